//! Writes that look at the own copy first, because the answer depends on whether their extent has any blocks.
//!
//! - Zeroes over an extent without blocks are answered and not written. They would take a place in the tables of every
//!   drive, and mean nothing: acting members are equal, so the blocks are zeroes at each of them. A member that returns
//!   with blocks of that extent is compared as a whole with this copy, and loses them. Such a request is a read that found
//!   zeroes, so the lease is checked, after the look, as for a read.
//! - Data while a required member is low on room are written where the extent has blocks, and so its space, at all acting
//!   members, and refused elsewhere. So a full drive takes no member out, and reads, discards and most rewrites go on.
//!
//! Both are decided when the look is done, and by what is true then: a write that is ordered meanwhile, an attachment that
//! is fenced, a lease that ends. A write that overlaps one that looks comes from a client that has given that one up, so
//! it decides the earlier one at once: it must not be ordered behind.

use alloc::vec::Vec;

use ashlar_placement::rule::ExtentId;
use ashlar_wire::time::Instant;

use super::Primary;
use crate::core_state::{Core, Purpose};
use crate::error::Refusal;
use crate::planted::Planted;
use crate::request::{Answer, ClientRequest, Content, Range, Room, Run, StoreRequest};

/// A write that waits for what its extent has. It counts as one that is not acknowledged.
#[derive(Debug)]
pub(super) struct Probe {
    pub(super) request: ClientRequest,
    run: Run,
}

impl Probe {
    fn bytes(&self) -> usize {
        if let Content::Data(data) = &self.run.content { data.len() } else { 0 }
    }
}

impl Primary {
    /// Whether a required member has no room for extents that have no space yet.
    fn is_low(&self, core: &Core) -> bool {
        let required = || self.peers.values().filter(|peer| peer.is_required());
        core.room == Room::Low || required().any(|peer| peer.room == Room::Low)
    }

    /// Whether the way of a write depends on what its extent has now.
    pub(super) fn depends(&self, core: &Core, now: Instant, extent: ExtentId, run: &Run) -> bool {
        match run.content {
            Content::Zeroes(_) | Content::Lost(_) => {
                self.is_serving(core, now) && self.last_overlapping(extent, run.range()) == 0
            }
            Content::Data(_) => self.is_low(core) && !self.window.iter().any(|write| write.extent == extent),
        }
    }

    pub(super) fn begin_probe(&mut self, core: &mut Core, request: &ClientRequest, run: &Run) {
        self.next_probe += 1;
        let probe = Probe { request: request.clone(), run: run.clone() };
        self.window_bytes += probe.bytes();
        self.probes.insert(self.next_probe, probe);
        core.store(StoreRequest::Occupied { extent: request.extent }, Purpose::Probe(self.next_probe));
    }

    /// Another write of these blocks comes: those that look are decided before it.
    pub(super) fn decide_overlapping(&mut self, core: &mut Core, now: Instant, extent: ExtentId, range: Range) {
        let overlaps = |probe: &Probe| probe.request.extent == extent && probe.run.range().overlaps(range);
        let earlier: Vec<u64> =
            self.probes.iter().filter(|(_, probe)| overlaps(probe)).map(|(number, _)| *number).collect();
        for number in earlier {
            let Some(probe) = self.probes.remove(&number) else { continue };
            self.window_bytes -= probe.bytes();
            let Probe { request, run } = probe;
            let refusal = match (fenced(core, &request), &run.content) {
                (Some(refusal), _) => refusal,
                (None, Content::Zeroes(_) | Content::Lost(_)) => {
                    self.order(core, now, &request, &run);
                    continue;
                }
                (None, Content::Data(_)) => Refusal::NoSpace,
            };
            self.sessions.give_back(request.session, request.request);
            core.reply(request.session, request.request, Err(refusal));
        }
    }

    /// The store has looked.
    pub(super) fn handle_probe(&mut self, core: &mut Core, now: Instant, number: u64, is_occupied: bool) {
        let Some(probe) = self.probes.remove(&number) else { return };
        self.window_bytes -= probe.bytes();
        let Probe { request, run } = probe;
        let is_unseen = core.settings.bugs.has(Planted::DiscardUnseen) && matches!(run.content, Content::Zeroes(_));
        let result = if let Some(refusal) = fenced(core, &request) {
            Err(refusal)
        } else if is_occupied && !is_unseen || !self.depends(core, now, request.extent, &run) {
            return self.order(core, now, &request, &run);
        } else if matches!(run.content, Content::Zeroes(_)) {
            Ok(Answer::Written)
        } else {
            Err(Refusal::NoSpace)
        };
        match &result {
            Ok(_) => self.sessions.finish(request.session, request.request),
            Err(_) => self.sessions.give_back(request.session, request.request),
        }
        core.reply(request.session, request.request, result);
    }
}

/// What a write is refused with whose attachment was fenced since it came.
fn fenced(core: &Core, request: &ClientRequest) -> Option<Refusal> {
    let known = core.fences.get(&request.extent.volume).copied().unwrap_or_default();
    (request.generation < known).then_some(Refusal::Fenced(known))
}
