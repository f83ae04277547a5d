//! A peer that refuses again and again is left alone for a while.
//!
//! Closed, calls pass. After a number of refusals in a row it opens: calls fail at once, without load for the peer. After a
//! pause one call is let through; its outcome closes the breaker or opens it again.

use core::time::Duration;

use ashlar_wire::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed {
        failures: u32,
    },
    Open {
        until: Instant,
    },
    /// One call is under way.
    HalfOpen {
        until: Instant,
    },
}

/// The breaker of one peer.
#[derive(Debug)]
pub struct Breaker {
    state: State,
    failures_max: u32,
    pause: Duration,
}

impl Breaker {
    /// A closed breaker that opens after `failures_max` refusals in a row, for `pause`.
    #[must_use]
    pub fn new(failures_max: u32, pause: Duration) -> Self {
        Self { state: State::Closed { failures: 0 }, failures_max, pause }
    }

    /// Whether a call may be tried at `now`.
    pub fn admit(&mut self, now: Instant) -> bool {
        match self.state {
            State::Closed { .. } => true,
            State::Open { until } | State::HalfOpen { until } if now < until => false,
            State::Open { .. } | State::HalfOpen { .. } => {
                // A probe that is never reported counts as lost after another pause.
                self.state = State::HalfOpen { until: now + self.pause };
                true
            }
        }
    }

    /// A call was answered, even if by the handler's refusal.
    #[inline]
    pub fn handle_success(&mut self) {
        self.state = State::Closed { failures: 0 };
    }

    /// A call was refused as overloaded at `now`.
    pub fn handle_refusal(&mut self, now: Instant) {
        let failures = match self.state {
            State::Closed { failures } => failures + 1,
            State::Open { .. } => return,
            State::HalfOpen { .. } => self.failures_max,
        };
        self.state = if failures >= self.failures_max {
            State::Open { until: now + self.pause }
        } else {
            State::Closed { failures }
        };
    }

    /// Whether calls fail at once now.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !matches!(self.state, State::Closed { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_probes_and_closes() {
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        let mut breaker = Breaker::new(3, Duration::from_millis(100));
        for _ in 0..3 {
            assert!(breaker.admit(at(0)));
            breaker.handle_refusal(at(0));
        }
        assert!(!breaker.admit(at(99)), "open");
        assert!(breaker.admit(at(100)), "one probe");
        assert!(!breaker.admit(at(100)), "only one");
        breaker.handle_refusal(at(101));
        assert!(!breaker.admit(at(200)), "open again");
        assert!(breaker.admit(at(201)), "the next probe");
        breaker.handle_success();
        assert!(breaker.admit(at(201)) && !breaker.is_open());
    }

    #[test]
    fn only_refusals_in_a_row_open_it() {
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        let mut breaker = Breaker::new(3, Duration::from_millis(100));
        for _ in 0..5 {
            breaker.handle_refusal(at(0));
            breaker.handle_refusal(at(0));
            assert!(!breaker.is_open() && breaker.admit(at(0)));
            breaker.handle_success();
        }
        for _ in 0..3 {
            breaker.handle_refusal(at(10));
        }
        assert!(breaker.is_open());
        // What was under way before it opened does not prolong the pause.
        breaker.handle_refusal(at(90));
        assert!(!breaker.admit(at(109)) && breaker.admit(at(110)) && breaker.is_open());
        // The probe is never heard of: another one goes out after another pause.
        assert!(!breaker.admit(at(209)) && breaker.admit(at(210)) && !breaker.admit(at(210)));
    }
}
