//! Tasks: who is ready, in what order they are polled, and what dies with a server.
//!
//! Everything runs in the thread of [`crate::world::World`]; the types are thread-safe only because the futures of
//! the code under test ask for it. A waker notes the task's number and nothing else, so waking is safe anywhere. A
//! task is never polled while the world's state is locked, and never dropped while it is.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use ashlar_grid::seam::BoxFuture;

use crate::rng::Rng;
use crate::world::ServerNo;

/// Whose a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// The scenario's: it outlives every server.
    Scenario,
    /// One life of a server: it ends with that life.
    Server(ServerNo, u32),
}

/// The tasks that want to be polled.
#[derive(Debug, Default)]
pub(crate) struct Ready {
    queue: Mutex<VecDeque<u64>>,
}

impl Ready {
    fn queue(&self) -> MutexGuard<'_, VecDeque<u64>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, task: u64) {
        self.queue().push_back(task);
    }

    /// The next task: the oldest, or with `shuffle` any.
    pub(crate) fn pick(&self, shuffle: Option<&mut Rng>) -> Option<u64> {
        let mut queue = self.queue();
        match shuffle {
            Some(rng) if queue.len() > 1 => {
                let at = rng.below(queue.len() as u64) as usize;
                queue.swap_remove_back(at)
            }
            _ => queue.pop_front(),
        }
    }
}

/// Notes that its task wants to be polled; once, however often it is woken.
pub(crate) struct TaskWaker {
    task: u64,
    noted: AtomicBool,
    ready: Arc<Ready>,
}

impl TaskWaker {
    /// From here on a wake-up counts again.
    pub(crate) fn rearm(&self) {
        self.noted.store(false, Ordering::SeqCst);
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.noted.swap(true, Ordering::SeqCst) {
            self.ready.push(self.task);
        }
    }
}

pub(crate) struct Task {
    pub(crate) owner: Owner,
    /// Absent while it is being polled.
    pub(crate) future: Option<BoxFuture<()>>,
    pub(crate) waker: Arc<TaskWaker>,
}

/// All tasks of the world, by number.
pub(crate) struct Tasks {
    tasks: BTreeMap<u64, Task>,
    sequence: u64,
    ready: Arc<Ready>,
}

impl Tasks {
    pub(crate) fn new(ready: Arc<Ready>) -> Self {
        Self { tasks: BTreeMap::new(), sequence: 0, ready }
    }

    /// Takes in a task, ready to be polled, and returns its number.
    pub(crate) fn insert(&mut self, owner: Owner, future: BoxFuture<()>) -> u64 {
        self.sequence += 1;
        let task = self.sequence;
        let waker = Arc::new(TaskWaker { task, noted: AtomicBool::new(false), ready: Arc::clone(&self.ready) });
        waker.wake_by_ref();
        self.tasks.insert(task, Task { owner, future: Some(future), waker });
        task
    }

    pub(crate) fn owner(&self, task: u64) -> Option<Owner> {
        self.tasks.get(&task).map(|task| task.owner)
    }

    /// The future and the waker to poll it with.
    pub(crate) fn begin_poll(&mut self, task: u64) -> Option<(BoxFuture<()>, Waker)> {
        let task = self.tasks.get_mut(&task)?;
        task.waker.rearm();
        Some((task.future.take()?, Waker::from(Arc::clone(&task.waker))))
    }

    /// Gives the future back for later, or out again if its task died while it was polled.
    pub(crate) fn end_poll(&mut self, task: u64, future: BoxFuture<()>) -> Option<BoxFuture<()>> {
        match self.tasks.get_mut(&task) {
            Some(slot) => {
                slot.future = Some(future);
                None
            }
            None => Some(future),
        }
    }

    pub(crate) fn remove(&mut self, task: u64) {
        self.tasks.remove(&task);
    }

    /// Removes every task of `owner`; the caller drops them in this order, outside the lock.
    pub(crate) fn take_owned(&mut self, owner: Owner) -> Vec<Task> {
        self.tasks.extract_if(.., |_, task| task.owner == owner).map(|(_, task)| task).collect()
    }

    /// Removes every task.
    pub(crate) fn take_all(&mut self) -> Vec<Task> {
        core::mem::take(&mut self.tasks).into_values().collect()
    }

    pub(crate) fn count(&self, owner: Owner) -> usize {
        self.tasks.values().filter(|task| task.owner == owner).count()
    }

    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }
}
