//! One member: its life, its clock, its disk, and what it has sent.

use std::collections::VecDeque;

use ashlar_bus::slot::Zone;
use ashlar_bus::{Bus, Ticket};
use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;

use super::clock::MemberClock;
use super::world::{Entry, Scene};

/// What waits at a member that does not run: more packets than this are lost, as in a full socket.
pub(super) const HELD_MAX: usize = 4_096;

/// A member's disk: whole states, each replaced by the next at one instant.
#[derive(Debug, Clone, Default)]
pub(super) struct Disk {
    /// What is on stable storage.
    pub(super) durable: Option<Vec<u8>>,
    /// What is being written, oldest first; a crash keeps one of them or none.
    pub(super) writing: VecDeque<(Ticket, Vec<u8>)>,
}

impl Disk {
    /// The write of `ticket` is done, and with it all earlier ones.
    pub(super) fn complete(&mut self, ticket: Ticket) {
        while self.writing.front().is_some_and(|(written, _)| *written <= ticket) {
            self.durable = self.writing.pop_front().map(|(_, bytes)| bytes);
        }
    }

    /// Power is lost: the first `kept` unfinished writes had reached the disk all the same.
    pub(super) fn crash(&mut self, kept: usize) {
        self.writing.truncate(kept);
        if let Some((_, bytes)) = self.writing.pop_back() {
            self.durable = Some(bytes);
        }
        self.writing.clear();
    }
}

/// What a member has sent since the counts were last taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Packets sent.
    pub packets: u64,
    /// Their bytes, without what the grid adds.
    pub bytes: u64,
    /// The most bytes in one second.
    pub burst: u64,
    second: u64,
    in_second: u64,
}

impl Traffic {
    /// So many packets of so many bytes.
    #[must_use]
    pub fn new(packets: u64, bytes: u64) -> Self {
        Self { packets, bytes, ..Self::default() }
    }

    /// A packet is sent.
    pub(super) fn add(&mut self, now_ns: u64, bytes: u64) {
        self.packets += 1;
        self.bytes += bytes;
        let second = now_ns / 1_000_000_000;
        if second != self.second {
            (self.second, self.in_second) = (second, 0);
        }
        self.in_second += bytes;
        self.burst = self.burst.max(self.in_second);
    }
}

/// A member, running or not.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) id: ServerId,
    pub(super) zone: Zone,
    pub(super) bus: Option<Bus>,
    /// Lives so far; what was scheduled for an earlier one is void.
    pub(super) life: u32,
    /// The incarnation of the latest life: the node keeps it apart and raises it before it speaks.
    pub(super) incarnation: u64,
    pub(super) clock: MemberClock,
    pub(super) disk: Disk,
    /// The time of the earliest tick in the queue, or `u64::MAX`.
    pub(super) tick_at_ns: u64,
    /// The same by the member's own clock; meaningless where there is none.
    pub(super) tick_at: Instant,
    /// Frozen: what comes is held.
    pub(super) paused: bool,
    pub(super) held: VecDeque<Entry>,
    pub(super) traffic: Traffic,
}

impl Member {
    /// The member as who watches sees it; it runs.
    pub(super) fn scene(&self, now_ns: u64, member: u32) -> Scene<'_> {
        let bus = self.bus.as_ref().expect("only what runs is shown");
        Scene { now_ns, now: self.clock.local(now_ns), member, bus, durable: self.disk.durable.as_deref() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> Disk {
        let writing = (1..=3).map(|ticket| (Ticket(ticket), vec![ticket as u8])).collect();
        Disk { durable: None, writing }
    }

    #[test]
    fn a_write_completes_with_all_earlier_ones() {
        let mut disk = disk();
        disk.complete(Ticket(2));
        assert_eq!((disk.durable, disk.writing.len()), (Some(vec![2]), 1));
    }

    #[test]
    fn a_crash_keeps_what_was_written_so_far() {
        for (kept, durable) in [(0, None), (1, Some(vec![1])), (3, Some(vec![3]))] {
            let mut disk = disk();
            disk.crash(kept);
            assert_eq!((disk.durable, disk.writing.len()), (durable, 0));
        }
    }
}
