//! A task on a thread that is sometimes busy: what wakes it finds it running something else, or waiting for a processor or a drive.
//!
//! Tasks of the program that have threads of their own run so: several things happen before they look again.

use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;

use ashlar_grid::seam::{BoxFuture, Runtime as _};

use crate::rng::Rng;
use crate::world::SimRuntime;

/// How long the thread may be busy, nanoseconds: as long as a slow drive takes for one sync.
const BUSY_NS: core::ops::RangeInclusive<u64> = 10_000..=300_000_000;

/// See the head of this file.
pub(super) struct Busy {
    task: BoxFuture<()>,
    runtime: SimRuntime,
    rng: Rng,
    /// How often the thread is busy when the task is woken, per million.
    often_ppm: u32,
    /// The end of what it does else.
    until: Option<BoxFuture<()>>,
}

impl Busy {
    /// The task on such a thread.
    pub(super) fn new(task: BoxFuture<()>, runtime: SimRuntime, rng: Rng, often_ppm: u32) -> Self {
        Self { task, runtime, rng, often_ppm, until: None }
    }
}

impl Future for Busy {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let own = &mut *self;
        if own.until.is_none() && own.rng.chance(own.often_ppm) {
            let span = Duration::from_nanos(own.rng.magnitude(BUSY_NS));
            own.until = Some(own.runtime.sleep_until(own.runtime.now() + span));
        }
        if let Some(until) = &mut own.until {
            if until.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            own.until = None;
        }
        own.task.as_mut().poll(cx)
    }
}
