//! Writes: admitted, ordered, written here and at every other member in parallel, acknowledged in order.

use ashlar_placement::rule::ExtentId;
use ashlar_wire::id::VolumeId;
use ashlar_wire::time::Instant;
use ashlar_wire::version::Version;

use super::{Phase, Primary};
use crate::commit::Rule;
use crate::core_state::{Core, Purpose};
use crate::error::Refusal;
use crate::member::Output;
use crate::planted::Planted;
use crate::request::{Answer, ClientRequest, Generation, Operation, Range, RequestId, Run, SessionId, StoreRequest};
use crate::session::Known;
use crate::stream::Entry;

/// Writes of one placement group that are not acknowledged.
pub(super) const WRITES_MAX: usize = 1_024;
/// Bytes of content of those.
pub(super) const WRITE_BYTES_MAX: usize = 64 << 20;

/// A write that is not acknowledged.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) sequence: u64,
    pub(super) session: SessionId,
    pub(super) request: RequestId,
    pub(super) extent: ExtentId,
    pub(super) range: Range,
    pub(super) generation: Generation,
    bytes: usize,
}

impl Primary {
    /// A client's request of this epoch.
    pub(crate) fn handle_client(&mut self, core: &mut Core, now: Instant, request: &ClientRequest) {
        let admitted = self.admit(core, request).and_then(|()| match &request.operation {
            Operation::Read(range) | Operation::Presence(range) => self.begin_read(core, now, request, *range),
            Operation::Write(run) => self.begin_write(core, now, request, run),
        });
        if let Err(refusal) = admitted {
            core.reply(request.session, request.request, Err(refusal));
        }
    }

    /// What reads and writes are checked for alike.
    fn admit(&self, core: &mut Core, request: &ClientRequest) -> Result<(), Refusal> {
        let range = match &request.operation {
            Operation::Read(range) | Operation::Presence(range) => *range,
            Operation::Write(run) => run.range(),
        };
        let is_lost = matches!(&request.operation, Operation::Write(run) if run.is_lost());
        if !range.is_valid() || is_lost {
            return Err(Refusal::BadRange);
        }
        let known = core.raise_fence(request.extent.volume, request.generation).ok_or(Refusal::Busy)?;
        if request.generation < known && !core.settings.bugs.has(Planted::NoGenerationCheck) {
            return Err(Refusal::Fenced(known));
        }
        let is_served = matches!(self.phase, Phase::Active) && !self.unproven.has(request.extent);
        if is_served { Ok(()) } else { Err(Refusal::NotServing) }
    }

    fn begin_write(
        &mut self,
        core: &mut Core,
        now: Instant,
        request: &ClientRequest,
        run: &Run,
    ) -> Result<(), Refusal> {
        if !self.configuration.has_copies() && !core.settings.bugs.has(Planted::IgnoreMinCopies) {
            return Err(Refusal::TooFewCopies);
        }
        if self.is_mending(core, request.extent) {
            return Err(Refusal::NotServing);
        }
        let required = || self.peers.values().filter(|peer| peer.is_required());
        let is_full = self.window.len() + self.probes.len() >= WRITES_MAX || self.window_bytes >= WRITE_BYTES_MAX;
        if is_full || required().any(|peer| peer.stream.is_full()) {
            return Err(Refusal::Busy);
        }
        let known = self.sessions.take(request, run.range());
        match known {
            _ if core.settings.bugs.has(Planted::ApplyDuplicate) => {}
            Ok(Known::New) => {}
            Ok(Known::Underway) => return Ok(()),
            Ok(Known::Late(_)) if core.settings.bugs.has(Planted::TakeLateCopies) => {}
            Ok(Known::Late(later)) => return Err(Refusal::GivenUp(later)),
            Ok(Known::Done) => {
                core.reply(request.session, request.request, Ok(Answer::Written));
                return Ok(());
            }
            Err(refusal) => return Err(refusal),
        }
        if !core.settings.bugs.has(Planted::OrderBehind) {
            self.decide_overlapping(core, now, request.extent, run.range());
        }
        if self.depends(core, now, request.extent, run) {
            self.begin_probe(core, request, run);
        } else {
            self.order(core, now, request, run);
        }
        Ok(())
    }

    /// Gives a write its place in the order and sends it to all.
    pub(super) fn order(&mut self, core: &mut Core, now: Instant, request: &ClientRequest, run: &Run) {
        self.sequence += 1;
        let version = Version { epoch: core.epoch, sequence: self.sequence };
        let (extent, generation) = (request.extent, request.generation);
        let entry = Entry::Write { version, generation, extent, run: run.clone() };
        let bytes = entry.content_bytes();
        self.window_bytes += bytes;
        self.window.push_back(Write {
            sequence: self.sequence,
            session: request.session,
            request: request.request,
            extent,
            range: run.range(),
            generation,
            bytes,
        });
        // First here: a difference that is read for a copy from now on has the write in it.
        core.store(StoreRequest::Write { extent, run: run.clone(), version }, Purpose::Write(self.sequence));
        self.forward(core, now, extent, &entry);
    }

    /// Acknowledges what every member has.
    pub(super) fn commit(&mut self, core: &mut Core) {
        let committed = self.committed_by_all(core);
        while self.window.front().is_some_and(|write| write.sequence <= committed) {
            let write = self.window.pop_front().expect("there is a first one");
            self.window_bytes -= write.bytes;
            self.committed = write.sequence;
            self.sessions.finish(write.session, write.request);
            core.reply(write.session, write.request, Ok(Answer::Written));
        }
        if self.committed > 0 {
            let clean = Version { epoch: core.epoch, sequence: self.committed };
            core.note_clean(clean);
            self.confirm_fences(core);
        }
    }

    fn committed_by_all(&self, core: &Core) -> u64 {
        let bugs = core.settings.bugs;
        let local = self.local.upto();
        if bugs.has(Planted::AcknowledgeOneCopy) {
            return local;
        }
        let position = |drive| {
            let Some(peer) = self.peers.get(&drive) else { return local };
            let durable = peer.stream.durable_sequence();
            match &peer.fill {
                None => durable,
                Some(_) if bugs.has(Planted::CertifiedNotRequired) => u64::MAX,
                Some(fill) => durable.max(fill.joined_at()),
            }
        };
        if bugs.has(Planted::AcknowledgeAllButOne) {
            let mut positions: alloc::vec::Vec<u64> =
                self.configuration.acting.iter().map(|drive| position(*drive)).collect();
            positions.sort_unstable();
            return positions.get(1).copied().unwrap_or(local);
        }
        Rule::All.committed(&self.members, position).min(self.sequence)
    }

    /// A volume is attached anew: confirms that once no older write is under way.
    pub(crate) fn handle_fence(&mut self, core: &mut Core, volume: VolumeId, generation: Generation) {
        self.fencing.retain(|(other, _)| *other != volume);
        self.fencing.push((volume, generation));
        self.confirm_fences(core);
    }

    fn confirm_fences(&mut self, core: &mut Core) {
        let window = &self.window;
        self.fencing.retain(|&(volume, generation)| {
            let is_older = |write: &Write| write.extent.volume == volume && write.generation < generation;
            let waits = window.iter().any(is_older);
            if !waits {
                core.out.push_back(Output::Fenced { volume, generation });
            }
            waits
        });
    }

    /// The last unacknowledged write that has a block in common with a range; 0 if there is none.
    pub(super) fn last_overlapping(&self, extent: ExtentId, range: Range) -> u64 {
        let overlaps = |write: &&Write| write.extent == extent && write.range.overlaps(range);
        self.window.iter().rev().find(overlaps).map_or(0, |write| write.sequence)
    }
}
