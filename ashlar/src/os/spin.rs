//! Staying awake for a moment: a worker that has just received something looks again before it sleeps.
//!
//! Waking a sleeping thread takes longer than a whole call does (20 us and more where the core has halted), and in an
//! exchange of small calls the next bytes come within that time. So a worker keeps its runtime from parking until
//! nothing has come for [`SPIN_SPAN`]. Where staying awake has not paid several times in a row (rare traffic, or a core
//! that the other side needs to answer at all) it is left alone, and tried again only once in a while. An idle worker
//! sleeps and costs nothing.
//!
//! Two sides that both sleep find each other asleep every time: the wait of one is then its own waking, the other's, and
//! the other's work. A span that is shorter than all three never pays, and such a pair stays slow for good.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::Duration;

use ashlar_wire::time::Instant;

use super::clock;

/// How long a worker stays awake after the last bytes: two wakings (25 to 35 us each in a virtual machine) and the work on
/// a batch between them.
const SPIN_SPAN: Duration = Duration::from_micros(100);
/// After this many vain attempts in a row, a worker sleeps at once.
const VAIN_MAX: u32 = 8;
/// Then every so-many-th receipt is another attempt.
const ATTEMPT_EVERY: u32 = 64;

thread_local! {
    static LAST: Cell<Instant> = const { Cell::new(Instant::ORIGIN) };
    static HISTORY: Cell<History> = const { Cell::new(History::new()) };
    static SPINNER: RefCell<Option<Waker>> = const { RefCell::new(None) };
}

/// Whether staying awake has paid of late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct History {
    /// Attempts in vain since the last that paid.
    vain: u32,
    /// Receipts since the last attempt.
    skipped: u32,
}

impl History {
    const fn new() -> Self {
        Self { vain: 0, skipped: 0 }
    }

    /// Something came while the worker stayed awake, or had just been woken and has to decide: whether to stay awake.
    fn handle_received(&mut self, was_awake: bool) -> bool {
        if was_awake {
            *self = Self::new();
            return true;
        }
        self.skipped += 1;
        let attempt = self.vain < VAIN_MAX || self.skipped >= ATTEMPT_EVERY;
        if attempt {
            self.skipped = 0;
        }
        attempt
    }

    /// Nothing came while the worker stayed awake.
    fn handle_vain(&mut self) {
        self.vain = self.vain.saturating_add(1);
    }
}

/// Something was received on this thread.
pub(super) fn note_received() {
    let spinner = SPINNER.take();
    let mut history = HISTORY.get();
    let stays = history.handle_received(spinner.is_none());
    HISTORY.set(history);
    if stays {
        LAST.set(clock::now());
    }
    match spinner {
        Some(spinner) if stays => spinner.wake(),
        asleep => SPINNER.set(asleep),
    }
}

/// Keeps this thread's runtime awake after each [`note_received`] that calls for it; never ends.
pub(super) async fn stay_awake() {
    let mut is_spinning = false;
    loop {
        poll_fn(|cx| {
            if clock::now() < LAST.get() + SPIN_SPAN {
                is_spinning = true;
                return Poll::Ready(());
            }
            if core::mem::take(&mut is_spinning) {
                let mut history = HISTORY.get();
                history.handle_vain();
                HISTORY.set(history);
            }
            SPINNER.set(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_pay_is_left_alone_and_tried_again() {
        let mut history = History::new();
        for _ in 0..VAIN_MAX {
            assert!(history.handle_received(false));
            history.handle_vain();
        }
        for _ in 1..ATTEMPT_EVERY {
            assert!(!history.handle_received(false));
        }
        assert!(history.handle_received(false), "once in a while");
        history.handle_vain();
        assert!(!history.handle_received(false));
        assert!(history.handle_received(true), "it paid");
        assert!(history.handle_received(false), "so it is done again");
    }
}
