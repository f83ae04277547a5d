//! Work against a deadline, over the runtime's clock.

use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::Poll;

use ashlar_wire::time::Instant;

use crate::seam::Runtime;

/// The value of `work`, or `None` if `at` comes first; `work` is dropped then.
pub(crate) async fn before<R: Runtime, T>(runtime: &R, at: Instant, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    let mut timer = runtime.sleep_until(at);
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => timer.as_mut().poll(cx).map(|()| None),
    })
    .await
}
