//! Wake-ups from one worker to another, gathered.
//!
//! To wake a task of another thread's runtime costs a lock and a system call each time, even where that thread is awake. A
//! [gathered](Gathered) task is woken from elsewhere by a line on its worker's list. The worker goes through its list once in each
//! turn of its runtime, and is itself woken, once, only where it sleeps. So a hundred answers to callers on another worker are a
//! hundred lines and one system call, or none.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use ashlar_grid::seam::BoxFuture;

thread_local! {
    /// The list of this thread, if it is a worker that looks at one.
    static HERE: RefCell<Option<Arc<List>>> = const { RefCell::new(None) };
    /// Of this thread, among workers: from 1 on.
    static NUMBER: Cell<usize> = const { Cell::new(0) };
    /// What the list of this thread is read into; kept for its room.
    static READ: Cell<Vec<Arc<Task>>> = const { Cell::new(Vec::new()) };
}

/// A list is read into room for so many that is kept.
const ROOM_MAX: usize = 4_096;

/// The tasks of one worker that others have woken. Each stands in it once at most.
#[derive(Debug, Default)]
pub(super) struct List {
    /// Whether there may be something in it.
    is_written: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    woken: Vec<Arc<Task>>,
    /// Whom to wake for the next line, where the worker does not look by itself.
    reader: Option<Waker>,
    /// The worker has ended: nobody reads any more.
    is_closed: bool,
    counts: Counts,
}

/// What was written on lists since the program began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Lines: tasks that a thread other than their worker has woken.
    pub lines: u64,
    /// Those of them for which the worker itself had to be woken, with a system call.
    pub wakes: u64,
}

impl core::ops::Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { lines: self.lines + other.lines, wakes: self.wakes + other.wakes }
    }
}

impl core::ops::Sub for Counts {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self { lines: self.lines - earlier.lines, wakes: self.wakes - earlier.wakes }
    }
}

impl List {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was written so far.
    pub(super) fn counts(&self) -> Counts {
        self.lock().counts
    }

    fn write(&self, task: Arc<Task>) {
        let mut state = self.lock();
        if state.is_closed {
            return;
        }
        state.woken.push(task);
        self.is_written.store(true, Ordering::Release);
        let reader = state.reader.take();
        state.counts = state.counts + Counts { lines: 1, wakes: u64::from(reader.is_some()) };
        drop(state);
        reader.into_iter().for_each(Waker::wake);
    }
}

/// How a task is woken.
#[derive(Debug)]
struct Task {
    home: Arc<List>,
    /// The runtime's own waker: cheap on the thread of `home`.
    waker: Waker,
    is_listed: AtomicBool,
}

impl Task {
    fn is_at_home(&self) -> bool {
        // A thread that is ending has no list any more.
        HERE.try_with(|here| here.borrow().as_ref().is_some_and(|here| Arc::ptr_eq(here, &self.home))).unwrap_or(false)
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_at_home() {
            self.waker.wake_by_ref();
        } else if !self.is_listed.swap(true, Ordering::AcqRel) {
            self.home.write(self.clone());
        }
    }
}

/// Makes the current thread the worker that [looks](wake_all) at `list`, until [`leave`].
pub(super) fn join(list: Arc<List>) {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    NUMBER.set(NEXT.fetch_add(1, Ordering::Relaxed));
    HERE.set(Some(list));
}

/// The number of this worker among those of the process; 0 on other threads.
pub(super) fn number_here() -> usize {
    NUMBER.get()
}

/// The worker of this thread has ended, and wakes nobody any more.
pub(super) fn leave() {
    if let Some(list) = HERE.take() {
        let left = {
            let mut state = list.lock();
            let closed = State { is_closed: true, counts: state.counts, ..State::default() };
            core::mem::replace(&mut *state, closed)
        };
        // Without the lock: what goes with a task may wake another one.
        drop(left);
    }
}

/// Wakes all tasks of this worker that others have woken; whether there were any.
pub(super) fn wake_all() -> bool {
    let mut woken = READ.take();
    HERE.with_borrow(|here| {
        if let Some(list) = here.as_ref().filter(|list| list.is_written.load(Ordering::Acquire)) {
            let mut state = list.lock();
            list.is_written.store(false, Ordering::Release);
            core::mem::swap(&mut state.woken, &mut woken);
        }
    });
    let any = !woken.is_empty();
    for task in woken.drain(..) {
        // Whoever comes after this writes another line: the task's next turn may have begun.
        task.is_listed.swap(false, Ordering::AcqRel);
        task.waker.wake_by_ref();
    }
    if woken.capacity() <= ROOM_MAX {
        READ.set(woken);
    }
    any
}

/// Ready if somebody has been woken since [`wake_all`]; else the task that asks is woken when somebody is.
pub(super) fn poll_written(cx: &Context<'_>) -> Poll<()> {
    HERE.with_borrow(|here| {
        let Some(list) = here else { return Poll::Pending };
        let mut state = list.lock();
        if !state.woken.is_empty() {
            return Poll::Ready(());
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    })
}

/// A task that is woken by a line on the list of the worker that polls it first.
pub struct Gathered<T> {
    future: BoxFuture<T>,
    waker: Option<Waker>,
}

impl<T> Gathered<T> {
    /// `future` as such a task. On threads that are no workers it is what it was.
    #[must_use]
    pub fn new(future: BoxFuture<T>) -> Self {
        Self { future, waker: None }
    }
}

impl<T> Future for Gathered<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let this = self.get_mut();
        if this.waker.is_none() {
            let home = HERE.with_borrow(Clone::clone);
            this.waker = Some(match home {
                Some(home) => {
                    Arc::new(Task { home, waker: cx.waker().clone(), is_listed: AtomicBool::new(false) }).into()
                }
                None => cx.waker().clone(),
            });
        }
        let waker = this.waker.as_ref().unwrap_or(cx.waker());
        this.future.as_mut().poll(&mut Context::from_waker(waker))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::mpsc;
    use std::time::Duration;

    use ashlar_grid::seam::{Lane, Threads as _};

    use super::*;
    use crate::os::runtime::OsRuntime;
    use crate::os::workers::Workers;

    /// How long a test waits for what has to come.
    const PATIENCE: Duration = Duration::from_secs(20);

    /// A task that waits to be woken, and its waker.
    fn sleeper(workers: &Workers, at: usize) -> (Waker, mpsc::Receiver<std::thread::ThreadId>) {
        let runtime = OsRuntime::new(Lane::Small, vec![workers.handles[at].clone()], false);
        let ((tell_waker, waker), (tell_woken, woken)) = (mpsc::channel(), mpsc::channel());
        runtime.spawn(Box::pin(async move {
            let mut is_told = false;
            poll_fn(|cx| {
                if core::mem::replace(&mut is_told, true) {
                    return Poll::Ready(());
                }
                tell_waker.send(cx.waker().clone()).unwrap();
                Poll::Pending
            })
            .await;
            tell_woken.send(std::thread::current().id()).unwrap();
        }));
        (waker.recv_timeout(PATIENCE).unwrap(), woken)
    }

    #[test]
    fn a_task_is_woken_from_everywhere_also_where_its_worker_sleeps() {
        let workers = Workers::start(2).unwrap();
        for from in 0..4 {
            let (waker, woken) = sleeper(&workers, 0);
            // Beyond the span for which a worker stays awake.
            assert!(woken.recv_timeout(Duration::from_millis(2)).is_err());
            match from {
                0 => waker.wake(),
                1 | 2 => drop(workers.handles[from - 1].spawn(async move { waker.wake() })),
                _ => drop(std::thread::Builder::new().spawn(move || waker.wake()).unwrap().join()),
            }
            woken.recv_timeout(PATIENCE).unwrap();
        }
        workers.stop();
    }

    #[test]
    fn a_task_stands_in_the_list_once() {
        let home = Arc::new(List::default());
        let task =
            Arc::new(Task { home: home.clone(), waker: Waker::noop().clone(), is_listed: AtomicBool::new(false) });
        let waker = Waker::from(task);
        (0..3).for_each(|_| waker.wake_by_ref());
        assert_eq!(home.counts(), Counts { lines: 1, wakes: 0 });
        assert_eq!(home.lock().woken.len(), 1);
        HERE.set(Some(home.clone()));
        assert!(poll_written(&Context::from_waker(Waker::noop())).is_ready());
        assert!(wake_all() && !wake_all());
        assert!(poll_written(&Context::from_waker(Waker::noop())).is_pending());
        HERE.set(None);
        waker.wake_by_ref();
        assert_eq!(home.lock().woken.len(), 1, "and again, once it was read");
        HERE.set(Some(home.clone()));
        waker.wake_by_ref();
        assert_eq!(home.counts(), Counts { lines: 2, wakes: 1 }, "the second line has woken who reads it");
        leave();
        assert!(home.lock().woken.is_empty());
        waker.wake();
        assert!(home.lock().woken.is_empty(), "nobody reads it any more");
    }

    /// Two workers that wake each other's tasks: every one is answered.
    #[test]
    fn nothing_is_lost_between_two_workers() {
        let workers = Workers::start(2).unwrap();
        let mut lanes = Vec::new();
        for lane in 0..16_u64 {
            let (to, mut from_first) = tokio::sync::mpsc::channel::<u64>(4);
            let (back, mut answers) = tokio::sync::mpsc::channel::<u64>(4);
            let echo = async move {
                while let Some(number) = from_first.recv().await {
                    back.send(number).await.unwrap();
                }
            };
            workers.handles[1].spawn(Gathered::new(Box::pin(echo)));
            let (tell, told) = mpsc::channel();
            let ask = async move {
                for number in 0..2_000 {
                    to.send(number).await.unwrap();
                    assert_eq!(answers.recv().await, Some(number));
                }
                tell.send(lane).unwrap();
            };
            workers.handles[0].spawn(Gathered::new(Box::pin(ask)));
            lanes.push((lane, told));
        }
        for (lane, told) in lanes {
            assert_eq!(told.recv_timeout(PATIENCE), Ok(lane));
        }
        workers.stop();
    }
}
