//! Staying awake for a moment: a worker that has just received something looks again before it sleeps.
//!
//! Waking a sleeping thread takes longer than a whole call does (20 us and more where the core has halted), and in an
//! exchange of small calls the next bytes come within that time. So a worker keeps its runtime from parking until
//! nothing has come for [`SPIN_SPAN`]. An idle worker sleeps and costs nothing.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::Duration;

use ashlar_wire::time::Instant;

use super::clock;

/// How long a worker stays awake after the last bytes.
const SPIN_SPAN: Duration = Duration::from_micros(50);

thread_local! {
    static LAST: Cell<Instant> = const { Cell::new(Instant::ORIGIN) };
    static SPINNER: RefCell<Option<Waker>> = const { RefCell::new(None) };
}

/// Something was received on this thread.
pub(super) fn note_received() {
    LAST.set(clock::now());
    if let Some(spinner) = SPINNER.take() {
        spinner.wake();
    }
}

/// Keeps this thread's runtime awake after each [`note_received`]; never ends.
pub(super) async fn stay_awake() {
    loop {
        poll_fn(|cx| {
            if clock::now() < LAST.get() + SPIN_SPAN {
                return Poll::Ready(());
            }
            SPINNER.set(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
        tokio::task::yield_now().await;
    }
}
