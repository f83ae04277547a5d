//! Reads, of bytes or of which blocks are stored: from the primary's own copy, under a lease, and never ahead of an acknowledgement.
//!
//! A read may return a write that is not acknowledged, because both are under way in the store at once. So its reply waits
//! until every write that it overlaps, as of the end of the reading, is acknowledged. The lease is checked when it begins,
//! which makes it linearizable at that moment, and once more when the reply leaves: a primary that has lost its lease
//! says nothing, whatever its store did meanwhile.

use alloc::vec::Vec;

use ashlar_placement::rule::ExtentId;
use ashlar_wire::time::Instant;
use bytes::Bytes;

use super::Primary;
use crate::core_state::{Core, Purpose};
use crate::error::Refusal;
use crate::planted::Planted;
use crate::request::{Answer, ClientRequest, Operation, Range, RequestId, SessionId, StoreRequest};

/// Reads of one placement group that are not answered.
pub(super) const READS_MAX: usize = 4_096;

/// A read that is not answered.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) session: SessionId,
    pub(super) request: RequestId,
    pub(super) extent: ExtentId,
    pub(super) range: Range,
    /// How often it found damage.
    pub(super) attempts: u32,
    /// Nobody could repair it: damage that is found once more is the answer.
    pub(super) is_last: bool,
    /// What was read, and the write whose acknowledgement the reply waits for.
    done: Option<(Bytes, u64)>,
}

impl Primary {
    pub(super) fn begin_read(
        &mut self,
        core: &mut Core,
        now: Instant,
        request: &ClientRequest,
        range: Range,
    ) -> Result<(), Refusal> {
        if !self.is_serving(core, now) {
            return Err(Refusal::NotServing);
        }
        if self.reads.len() >= READS_MAX {
            return Err(Refusal::Busy);
        }
        self.next_read += 1;
        let extent = request.extent;
        let (session, request_id) = (request.session, request.request);
        let read = Read { session, request: request_id, extent, range, attempts: 0, is_last: false, done: None };
        self.reads.insert(self.next_read, read);
        let asked = match &request.operation {
            Operation::Presence(_) => StoreRequest::Presence { extent, range },
            Operation::Read(_) | Operation::Write(_) => StoreRequest::Read { extent, range },
        };
        core.store(asked, Purpose::Read(self.next_read));
        Ok(())
    }

    /// The store has read.
    pub(super) fn handle_read(&mut self, core: &Core, number: u64, data: Bytes) {
        let Some(read) = self.reads.get(&number) else { return };
        let is_reckless = core.settings.bugs.has(Planted::ReadUncommitted);
        let after = if is_reckless { 0 } else { self.last_overlapping(read.extent, read.range) };
        if let Some(read) = self.reads.get_mut(&number) {
            read.done = Some((data, after));
        }
    }

    /// Answers reads whose writes are acknowledged, if the lease holds now.
    pub(super) fn release_reads(&mut self, core: &mut Core, now: Instant) {
        if self.reads.is_empty() || !self.is_serving(core, now) {
            return;
        }
        let committed = self.committed;
        let is_ready = |read: &Read| read.done.as_ref().is_some_and(|(_, after)| *after <= committed);
        let ready: Vec<u64> = self.reads.iter().filter(|(_, read)| is_ready(read)).map(|(number, _)| *number).collect();
        for number in ready {
            let read = self.reads.remove(&number).expect("it was found above");
            let (data, _) = read.done.expect("it was read");
            core.reply(read.session, read.request, Ok(Answer::Read(data)));
        }
    }
}
