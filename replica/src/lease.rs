//! Leases: a primary's right to serve reads, granted by every other acting member for a bounded time (Gray and Cheriton).
//!
//! The primary counts from the moment at which it asked, the member from the later moment at which it granted, and for
//! longer. So a grant ends at the primary before it ends at the member, whatever the message took and whichever way the
//! clocks drift within their bound.

use alloc::collections::VecDeque;
use core::time::Duration;

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
}
