//! Leases: a primary's right to serve reads, granted by every other acting member for a bounded time (Gray and Cheriton).
//!
//! The primary counts from the moment at which it asked, the member from the later moment at which it granted, and for
//! longer. So a grant ends at the primary before it ends at the member, whatever the message took and whichever way the
//! clocks drift within their bound.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use ashlar_wire::id::DriveId;
use ashlar_wire::time::Instant;

/// Requests of one peer that may be unanswered; answers to older ones are ignored.
const ASKED_MAX: usize = 16;

/// The lease that a primary holds from one peer.
#[derive(Debug, Default)]
pub(crate) struct Held {
    asked: VecDeque<(u64, Instant)>,
    next: u64,
    until: Option<Instant>,
}

impl Held {
    /// Number of a request that is sent now.
    pub(crate) fn ask(&mut self, now: Instant) -> u64 {
        self.next += 1;
        if self.asked.len() == ASKED_MAX {
            self.asked.pop_front();
        }
        self.asked.push_back((self.next, now));
        self.next
    }

    /// The peer granted request `nonce`.
    pub(crate) fn handle_granted(&mut self, nonce: u64, lease: Duration) {
        if let Some((_, asked_at)) = self.asked.iter().find(|(number, _)| *number == nonce) {
            let until = *asked_at + lease;
            self.until = self.until.max(Some(until));
            self.asked.retain(|(number, _)| *number > nonce);
        }
    }

    /// For a planted bug: the lease lasts until then.
    pub(crate) fn extend(&mut self, until: Instant) {
        self.until = self.until.max(Some(until));
    }

    /// Whether the lease holds at `now`.
    pub(crate) fn holds(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

/// The leases that a member has granted, as long as it stands by them.
#[derive(Debug)]
pub(crate) struct Granted {
    /// Until then an earlier life of the member may have granted one to anybody.
    earlier_until: Instant,
    /// To whom, and until when. A primary of the present epoch may ask while the lease of an earlier one still holds.
    to: Vec<(DriveId, Instant)>,
}

impl Granted {
    pub(crate) const fn new(earlier_until: Instant) -> Self {
        Self { earlier_until, to: Vec::new() }
    }

    /// A primary gets a lease, by which this member stands until then.
    pub(crate) fn grant(&mut self, now: Instant, primary: DriveId, until: Instant) {
        self.to.retain(|(drive, until)| *drive != primary && now < *until);
        self.to.push((primary, until));
    }

    /// A drive serves by no lease of this member any more: it has left the epochs for which it had one.
    pub(crate) fn end(&mut self, primary: DriveId) {
        self.to.retain(|(drive, _)| *drive != primary);
    }

    /// Whether nobody serves by a lease of this member any more.
    pub(crate) fn are_over(&self, now: Instant) -> bool {
        now >= self.earlier_until && self.to.iter().all(|(_, until)| now >= *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_lease_counts_from_the_question() {
        let (mut held, lease) = (Held::default(), Duration::from_millis(100));
        assert!(!held.holds(at(0)));
        let first = held.ask(at(0));
        let second = held.ask(at(50));
        held.handle_granted(second, lease);
        assert!(held.holds(at(149)) && !held.holds(at(150)));
        held.handle_granted(first, lease);
        assert!(held.holds(at(149)), "a late answer takes nothing away");
        held.handle_granted(99, lease);
        held.handle_granted(second, lease);
        assert!(!held.holds(at(150)), "what was not asked grants nothing");
    }

    #[test]
    fn an_answer_leaves_later_questions_open() {
        let (mut held, lease) = (Held::default(), Duration::from_millis(100));
        let [first, second] = [0, 50].map(|asked| held.ask(at(asked)));
        held.handle_granted(first, lease);
        assert!(held.holds(at(99)) && !held.holds(at(100)));
        held.handle_granted(second, lease);
        assert!(held.holds(at(149)));
    }

    #[test]
    fn questions_have_a_limit() {
        let mut held = Held::default();
        let first = held.ask(at(0));
        (0..ASKED_MAX as u64).for_each(|number| {
            held.ask(at(number));
        });
        held.handle_granted(first, Duration::from_secs(1));
        assert!(!held.holds(at(1)), "the oldest question was forgotten");
    }

    #[test]
    fn grants_run_out_or_end_with_the_epoch_of_who_has_them() {
        let [one, other] = [1, 2].map(|number| DriveId::from_bytes([number; 16]));
        let mut granted = Granted::new(at(100));
        granted.end(one);
        assert!(!granted.are_over(at(99)), "an earlier life has granted it to whom nobody knows");
        assert!(granted.are_over(at(100)));
        granted.grant(at(100), one, at(200));
        granted.grant(at(150), other, at(250));
        granted.grant(at(160), one, at(260));
        assert!(!granted.are_over(at(259)) && granted.are_over(at(260)), "the first one's was renewed");
        granted.end(one);
        assert!(!granted.are_over(at(249)) && granted.are_over(at(250)), "the other one's is left");
        granted.grant(at(255), one, at(355));
        assert_eq!(granted.to, [(one, at(355))], "what has run out is not kept");
    }
}
