//! Giving way to whoever serves clients on the same core, without being starved by them.
//!
//! Niceness decides who gets how much of a core, not when: a thread that is woken while a nicer one runs may wait for the rest of
//! that one's turn, several milliseconds. So whoever works in the background gives way after each short step: who is waiting
//! runs at once. A core that is wanted all the time would leave it next to nothing then, so below a share of the time in which it wants
//! to run it keeps its turns, as long as its niceness grants them. While it waits for a drive it wants no core.

use std::thread;
use std::time::Duration;

use ashlar_wire::time::Instant;

use crate::os::{clock, process};

/// Below one part in so many of the time in which it wants to run, turns are kept. Niceness 10 grants about one in ten.
const SHARE: u32 = 12;
/// Steps between two looks at the clocks.
const STEPS_PER_LOOK: u32 = 64;

/// The calling thread's work in the background, from its beginning to its end.
#[derive(Debug)]
pub(super) struct Courtesy {
    /// The thread's clocks then.
    began: Clocks,
    steps: u32,
    is_behind: bool,
}

/// For how long a thread has run, and for how long it could have run besides.
#[derive(Debug, Clone, Copy)]
struct Clocks {
    cpu: Duration,
    delay: Option<Duration>,
    now: Instant,
}

impl Clocks {
    fn read() -> Self {
        Self { cpu: process::cpu_time_of_thread(), delay: process::run_delay_of_thread(), now: clock::now() }
    }

    /// For how long the thread has run since `before`, and wanted to.
    fn since(&self, before: &Self) -> (Duration, Duration) {
        let cpu = self.cpu.saturating_sub(before.cpu);
        let delay = self.delay.zip(before.delay).map(|(delay, before)| delay.saturating_sub(before));
        (cpu, delay.map_or_else(|| self.now.saturating_since(before.now), |delay| cpu + delay))
    }
}

impl Courtesy {
    /// It begins.
    pub(super) fn new() -> Self {
        Self { began: Clocks::read(), steps: 0, is_behind: false }
    }

    /// A step is done, and nothing is held that others may want.
    pub(super) fn handle_step(&mut self) {
        self.steps = self.steps.wrapping_add(1);
        if self.steps.is_multiple_of(STEPS_PER_LOOK) {
            let (cpu, wanted) = Clocks::read().since(&self.began);
            self.is_behind = is_behind(cpu, wanted);
        }
        if !self.is_behind {
            thread::yield_now();
        }
    }
}

/// Whether a thread has got too little of the time in which it wanted to run.
fn is_behind(cpu: Duration, wanted: Duration) -> bool {
    cpu * SHARE < wanted
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
        let clocks = |cpu, delay, now_ms: u64| {
            let now = Instant::from_nanos(now_ms * 1_000_000);
            Clocks { cpu: ms(cpu), delay, now }
        };
        let before = clocks(10, Some(ms(5)), 100);
        assert_eq!(clocks(30, Some(ms(9)), 900).since(&before), (ms(20), ms(24)), "a drive may have kept it waiting");
        assert_eq!(clocks(30, None, 900).since(&before), (ms(20), ms(800)));
        let mut courtesy = Courtesy::new();
        (0..STEPS_PER_LOOK * 2).for_each(|_| courtesy.handle_step());
    }
}
