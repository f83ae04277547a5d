//! Giving way to whoever serves clients on the same core, without being starved by them.
//!
//! Niceness decides who gets how much of a core, not when: a thread that is woken while a nicer one runs may wait for the rest of
//! that one's turn, several milliseconds. So whoever works in the background gives way after each short step: who is waiting
//! runs at once. A core that is wanted all the time would leave it next to nothing then, so below a share of the core it keeps its
//! turns, as long as its niceness grants them.

use std::thread;
use std::time::Duration;

use ashlar_wire::time::Instant;

use crate::os::{clock, process};

/// Below one part in so many of the time that has passed, turns are kept. Niceness 10 grants about one in ten.
const SHARE: u32 = 12;
/// Steps between two looks at the clocks.
const STEPS_PER_LOOK: u32 = 32;

/// The calling thread's work in the background, from its beginning to its end.
#[derive(Debug)]
pub(super) struct Courtesy {
    began: Instant,
    /// The thread's CPU time then.
    cpu_before: Duration,
    steps: u32,
    is_behind: bool,
}

impl Courtesy {
    /// It begins.
    pub(super) fn new() -> Self {
        let (began, cpu_before) = (clock::now(), process::cpu_time_of_thread());
        Self { began, cpu_before, steps: 0, is_behind: false }
    }

    /// A step is done, and nothing is held that others may want.
    pub(super) fn handle_step(&mut self) {
        self.steps = self.steps.wrapping_add(1);
        if self.steps.is_multiple_of(STEPS_PER_LOOK) {
            let cpu = process::cpu_time_of_thread().saturating_sub(self.cpu_before);
            self.is_behind = is_behind(cpu, clock::now().saturating_since(self.began));
        }
        if !self.is_behind {
            thread::yield_now();
        }
    }
}

/// Whether a thread has got too little of the time that has passed.
fn is_behind(cpu: Duration, passed: Duration) -> bool {
    cpu * SHARE < passed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_kept_by_who_got_too_few() {
        let ms = Duration::from_millis;
        for (cpu, passed, expected) in [(0, 0, false), (0, 1, true), (8, 100, true), (9, 100, false), (100, 100, false)]
        {
            assert_eq!(is_behind(ms(cpu), ms(passed)), expected, "{cpu} of {passed}");
        }
        let mut courtesy = Courtesy::new();
        (0..STEPS_PER_LOOK * 2).for_each(|_| courtesy.handle_step());
    }
}
