//! Raft's runtime over a [`Host`]: openraft finds its runtime by type, so the host of a task is found by the task.
//!
//! Every task of a catalog runs inside a [`Scoped`] future, which makes the catalog's host the current one of its thread
//! while it is polled or dropped. So several catalogs live in one thread, each with its own clock and chance.

use std::cell::RefCell;
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use openraft::OptionalSend;
use openraft::async_runtime::{self, AsyncRuntime};

use ashlar_wire::time::Instant;

use super::host::{BoxFuture, Host};
use super::sync::{mpsc, mutex, oneshot, watch};

thread_local! {
    static CURRENT: RefCell<Option<Arc<dyn Host>>> = const { RefCell::new(None) };
}

/// Restores the host that was current before.
struct Entered(Option<Arc<dyn Host>>);

/// Makes a host the current one until the guard is dropped.
fn enter(host: &Arc<dyn Host>) -> Entered {
    Entered(CURRENT.with(|current| current.replace(Some(host.clone()))))
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.with(|current| current.replace(self.0.take()));
    }
}

/// Runs code of openraft that asks for its runtime.
pub(crate) fn within<T>(host: &Arc<dyn Host>, work: impl FnOnce() -> T) -> T {
    let _entered = enter(host);
    work()
}

fn current() -> Arc<dyn Host> {
    CURRENT.with(|current| current.borrow().clone()).expect("openraft runs inside a scope only")
}

/// A future of a catalog. See the head of this module.
pub(crate) struct Scoped<F: Future> {
    host: Arc<dyn Host>,
    /// None once it is dropped.
    future: Option<Pin<Box<F>>>,
}

impl<F: Future> Scoped<F> {
    /// The future `future`, run with this host.
    pub(crate) fn new(host: Arc<dyn Host>, future: F) -> Self {
        Self { host, future: Some(Box::pin(future)) }
    }
}

impl<F: Future> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let _entered = enter(&self.host);
        self.future.as_mut().expect("a future is not polled after it is dropped").as_mut().poll(cx)
    }
}

impl<F: Future> Drop for Scoped<F> {
    fn drop(&mut self) {
        let _entered = enter(&self.host);
        self.future = None;
    }
}

/// A point of the host's monotonic time, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HostInstant(u64);

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

impl Add<Duration> for HostInstant {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanoseconds(span)))
    }
}

impl AddAssign<Duration> for HostInstant {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Sub<Duration> for HostInstant {
    type Output = Self;

    fn sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(nanoseconds(span)))
    }
}

impl SubAssign<Duration> for HostInstant {
    fn sub_assign(&mut self, span: Duration) {
        *self = *self - span;
    }
}

impl Sub for HostInstant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl async_runtime::Instant for HostInstant {
    fn now() -> Self {
        Self(current().now().as_nanos())
    }
}

/// Numbers of the host as openraft takes them.
#[derive(Debug)]
pub(crate) struct HostRandom;

impl rand::TryRng for HostRandom {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(u32::try_from(current().random() >> 32).expect("the upper half of 64 bits"))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(current().random())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&current().random().to_be_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}

/// A task ended without a result: its host has dropped it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TaskDropped;

impl fmt::Display for TaskDropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the task was dropped")
    }
}

/// The result of a task.
#[derive(Debug)]
pub(crate) struct JoinHandle<T>(oneshot::Receiver<T>);

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, TaskDropped>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map_err(|_| TaskDropped)
    }
}

/// The deadline came first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeadlinePassed;

impl fmt::Display for DeadlinePassed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the deadline has passed")
    }
}

/// A future with a deadline.
pub(crate) struct Timeout<F: Future> {
    future: Pin<Box<F>>,
    sleep: BoxFuture<()>,
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, DeadlinePassed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(output) = self.future.as_mut().poll(cx) {
            return Poll::Ready(Ok(output));
        }
        self.sleep.as_mut().poll(cx).map(|()| Err(DeadlinePassed))
    }
}

/// See the head of this module.
#[derive(Debug)]
pub(crate) struct HostRuntime;

impl AsyncRuntime for HostRuntime {
    type JoinError = TaskDropped;
    type JoinHandle<T: OptionalSend + 'static> = JoinHandle<T>;
    type Sleep = BoxFuture<()>;
    type Instant = HostInstant;
    type TimeoutError = DeadlinePassed;
    type Timeout<R, T: Future<Output = R> + OptionalSend> = Timeout<T>;
    type ThreadLocalRng = HostRandom;
    type Mpsc = HostMpsc;
    type Watch = HostWatch;
    type Oneshot = HostOneshot;
    type Mutex<T: OptionalSend + 'static> = mutex::Mutex<T>;

    fn spawn<T>(future: T) -> JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        let host = current();
        let (sender, receiver) = oneshot::channel();
        let task = async move {
            // Whoever has dropped the handle does not want the result.
            let _ = sender.send(future.await);
        };
        host.spawn(Box::pin(Scoped::new(host.clone(), task)));
        JoinHandle(receiver)
    }

    fn sleep(duration: Duration) -> BoxFuture<()> {
        let host = current();
        host.sleep_until(host.now() + duration)
    }

    fn sleep_until(deadline: HostInstant) -> BoxFuture<()> {
        current().sleep_until(Instant::from_nanos(deadline.0))
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(duration: Duration, future: F) -> Timeout<F> {
        Timeout { future: Box::pin(future), sleep: Self::sleep(duration) }
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(deadline: HostInstant, future: F) -> Timeout<F> {
        Timeout { future: Box::pin(future), sleep: Self::sleep_until(deadline) }
    }

    fn is_panic(_: &TaskDropped) -> bool {
        false
    }

    fn thread_rng() -> HostRandom {
        HostRandom
    }

    fn new(_: usize) -> Self {
        Self
    }

    /// # Panics
    /// Always: openraft calls this in its own tests only, and a host runs its tasks itself.
    fn block_on<F: Future<Output = T>, T>(&mut self, _: F) -> T {
        panic!("the host runs the tasks of a catalog")
    }
}

/// [`oneshot`] for openraft.
#[derive(Debug)]
pub(crate) struct HostOneshot;

impl async_runtime::Oneshot for HostOneshot {
    type Sender<T: OptionalSend> = oneshot::Sender<T>;
    type Receiver<T: OptionalSend> = oneshot::Receiver<T>;
    type ReceiverError = oneshot::Canceled;

    fn channel<T: OptionalSend>() -> (oneshot::Sender<T>, oneshot::Receiver<T>) {
        oneshot::channel()
    }
}

impl<T: OptionalSend> async_runtime::OneshotSender<T> for oneshot::Sender<T> {
    fn send(self, value: T) -> Result<(), T> {
        Self::send(self, value)
    }
}

/// [`mpsc`] for openraft.
#[derive(Debug)]
pub(crate) struct HostMpsc;

impl async_runtime::Mpsc for HostMpsc {
    type Sender<T: OptionalSend> = mpsc::Sender<T>;
    type Receiver<T: OptionalSend> = mpsc::Receiver<T>;
    type WeakSender<T: OptionalSend> = mpsc::WeakSender<T>;

    fn channel<T: OptionalSend>(buffer: usize) -> (mpsc::Sender<T>, mpsc::Receiver<T>) {
        mpsc::channel(buffer)
    }
}

impl<T: OptionalSend> async_runtime::MpscSender<HostMpsc, T> for mpsc::Sender<T> {
    async fn send(&self, item: T) -> Result<(), async_runtime::SendError<T>> {
        Self::send(self, item).await.map_err(async_runtime::SendError)
    }

    fn downgrade(&self) -> mpsc::WeakSender<T> {
        Self::downgrade(self)
    }
}

impl<T: OptionalSend> async_runtime::MpscWeakSender<HostMpsc, T> for mpsc::WeakSender<T> {
    fn upgrade(&self) -> Option<mpsc::Sender<T>> {
        Self::upgrade(self)
    }
}

impl<T: OptionalSend> async_runtime::MpscReceiver<T> for mpsc::Receiver<T> {
    async fn recv(&mut self) -> Option<T> {
        Self::recv(self).await
    }

    fn try_recv(&mut self) -> Result<T, async_runtime::TryRecvError> {
        match Self::try_recv(self) {
            mpsc::Taken::Item(item) => Ok(item),
            mpsc::Taken::Empty => Err(async_runtime::TryRecvError::Empty),
            mpsc::Taken::Closed => Err(async_runtime::TryRecvError::Disconnected),
        }
    }
}

/// [`watch`] for openraft.
#[derive(Debug)]
pub(crate) struct HostWatch;

impl async_runtime::Watch for HostWatch {
    type Sender<T: OptionalSend + openraft::OptionalSync> = watch::Sender<T>;
    type Receiver<T: OptionalSend + openraft::OptionalSync> = watch::Receiver<T>;
    type Ref<'a, T: OptionalSend + 'a> = watch::Ref<'a, T>;

    fn channel<T: OptionalSend + openraft::OptionalSync>(init: T) -> (watch::Sender<T>, watch::Receiver<T>) {
        watch::channel(init)
    }
}

impl<T: OptionalSend + openraft::OptionalSync> async_runtime::WatchSender<HostWatch, T> for watch::Sender<T> {
    fn send(&self, value: T) -> Result<(), async_runtime::watch::SendError<T>> {
        Self::send(self, value).map_err(async_runtime::watch::SendError)
    }

    fn send_if_modified<F: FnOnce(&mut T) -> bool>(&self, modify: F) -> bool {
        Self::send_if_modified(self, modify)
    }

    fn borrow_watched(&self) -> watch::Ref<'_, T> {
        self.borrow()
    }

    fn subscribe(&self) -> watch::Receiver<T> {
        Self::subscribe(self)
    }
}

impl<T: OptionalSend + openraft::OptionalSync> async_runtime::WatchReceiver<HostWatch, T> for watch::Receiver<T> {
    async fn changed(&mut self) -> Result<(), async_runtime::RecvError> {
        if Self::changed(self).await { Ok(()) } else { Err(async_runtime::watch::RecvError(())) }
    }

    fn borrow_watched(&self) -> watch::Ref<'_, T> {
        self.borrow()
    }

    fn borrow_and_update(&mut self) -> watch::Ref<'_, T> {
        Self::borrow_and_update(self)
    }
}

impl<T: OptionalSend + 'static> async_runtime::Mutex<T> for mutex::Mutex<T> {
    type Guard<'a> = mutex::Guard<'a, T>;

    fn new(value: T) -> Self {
        Self::new(value)
    }

    async fn lock(&self) -> mutex::Guard<'_, T> {
        Self::lock(self).await
    }
}

#[cfg(test)]
mod tests;
