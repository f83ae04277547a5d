//! A deterministic executor: tasks, timers and messages in one thread, in an order that the seed chooses.

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;

use crate::raft::catalog::Catalog;
use crate::raft::host::{BoxFuture, Host, Unanswered};
use crate::raft::sync::oneshot;

/// Number of a server in its group.
pub(super) type Place = usize;

/// Whose task it is: it goes when that life of the server ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) place: Place,
    pub(super) life: u64,
}

/// Chance from a seed (SplitMix64).
#[derive(Debug, Clone)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub(super) const fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A place below `end`.
    pub(super) fn place(&mut self, end: usize) -> usize {
        usize::try_from(self.below(end as u64)).expect("below a size of this machine")
    }
}

/// What happens to messages.
#[derive(Debug, Default)]
pub(super) struct Net {
    /// Lost ones of 1,000.
    pub(super) lost: u64,
    /// Pairs (from, to) between which nothing goes through.
    pub(super) cut: BTreeSet<(Place, Place)>,
    /// The longest way, milliseconds.
    pub(super) delay_ms_max: u64,
}

struct Task {
    owner: Option<Owner>,
    /// None while it is polled.
    future: Option<BoxFuture<()>>,
    /// One for all polls, so that it is known again where it waits.
    waker: Waker,
}

/// Where the answer of a call goes, once.
type Answer = Arc<Mutex<Option<oneshot::Sender<Vec<u8>>>>>;

/// Polls at one point of time after which something must be going round in a circle.
const POLLS_MAX: u64 = 1_000_000;

struct Inner {
    now: Instant,
    chance: Chance,
    next_id: u64,
    tasks: BTreeMap<u64, Task>,
    timers: BTreeMap<(Instant, u64), Waker>,
    net: Net,
    /// The catalog of each server that runs, and its life.
    catalogs: BTreeMap<Place, (u64, Catalog)>,
    servers: Vec<ServerId>,
    /// What has happened so far, mixed.
    trace: u64,
}

/// See the head of this module.
pub(super) struct World {
    inner: Mutex<Inner>,
    ready: Arc<Mutex<Vec<u64>>>,
}

struct TaskWaker {
    task: u64,
    ready: Arc<Mutex<Vec<u64>>>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        let mut ready = self.ready.lock().expect("one thread");
        if !ready.contains(&self.task) {
            ready.push(self.task);
        }
    }
}

impl World {
    pub(super) fn new(seed: u64, servers: Vec<ServerId>) -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::new(Inner {
                now: Instant::ORIGIN + Duration::from_secs(1),
                chance: Chance(seed),
                next_id: 0,
                tasks: BTreeMap::new(),
                timers: BTreeMap::new(),
                net: Net { delay_ms_max: 10, ..Net::default() },
                catalogs: BTreeMap::new(),
                servers,
                trace: seed,
            }),
            ready: Arc::default(),
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("one thread")
    }

    pub(super) fn now(&self) -> Instant {
        self.inner().now
    }

    pub(super) fn chance(&self) -> u64 {
        self.inner().chance.next()
    }

    pub(super) fn below(&self, end: u64) -> u64 {
        self.inner().chance.below(end)
    }

    pub(super) fn with_net(&self, change: impl FnOnce(&mut Net)) {
        change(&mut self.inner().net);
    }

    /// Mixes a fact into the trace, by which two runs are compared.
    pub(super) fn note(&self, fact: u64) {
        let mut inner = self.inner();
        inner.trace = Chance(inner.trace ^ fact).next();
    }

    pub(super) fn trace(&self) -> u64 {
        self.inner().trace
    }

    pub(super) fn spawn(&self, owner: Option<Owner>, future: BoxFuture<()>) {
        let mut inner = self.inner();
        inner.next_id += 1;
        let id = inner.next_id;
        let waker = Waker::from(Arc::new(TaskWaker { task: id, ready: self.ready.clone() }));
        inner.tasks.insert(id, Task { owner, future: Some(future), waker });
        self.ready.lock().expect("one thread").push(id);
    }

    pub(super) fn sleep_until(self: &Arc<Self>, at: Instant) -> Sleep {
        Sleep { world: self.clone(), at, timer: None }
    }

    pub(super) fn sleep(self: &Arc<Self>, span: Duration) -> Sleep {
        self.sleep_until(self.now() + span)
    }

    pub(super) fn set_catalog(&self, owner: Owner, catalog: Catalog) {
        self.inner().catalogs.insert(owner.place, (owner.life, catalog));
    }

    pub(super) fn catalog(&self, place: Place) -> Option<Catalog> {
        self.inner().catalogs.get(&place).map(|(_, catalog)| catalog.clone())
    }

    pub(super) fn catalogs(&self) -> Vec<(Place, u64, Catalog)> {
        self.inner().catalogs.iter().map(|(place, (life, catalog))| (*place, *life, catalog.clone())).collect()
    }

    /// Ends every task of a server, and its catalog.
    pub(super) fn kill(&self, place: Place) {
        let (tasks, catalog) = {
            let mut inner = self.inner();
            let of_server = |task: &Task| task.owner.is_some_and(|owner| owner.place == place);
            let ids: Vec<u64> = inner.tasks.iter().filter(|(_, task)| of_server(task)).map(|(id, _)| *id).collect();
            let tasks: Vec<Task> = ids.iter().filter_map(|id| inner.tasks.remove(id)).collect();
            (tasks, inner.catalogs.remove(&place))
        };
        // Without the lock: what is dropped may ask the world for the time.
        drop(tasks);
        drop(catalog);
    }

    /// Ends every task and every catalog, so that nothing holds the world any more.
    pub(super) fn end(&self) {
        let (tasks, catalogs) = {
            let mut inner = self.inner();
            (std::mem::take(&mut inner.tasks), std::mem::take(&mut inner.catalogs))
        };
        drop(tasks);
        drop(catalogs);
    }

    /// Runs until the time `until`.
    pub(super) fn run_until(&self, until: Instant) {
        loop {
            let mut polls = 0;
            while self.poll_one() {
                polls += 1;
                assert!(polls < POLLS_MAX, "tasks wake each other for ever");
            }
            let waker = {
                let mut inner = self.inner();
                let due = inner.timers.first_key_value().map(|((at, _), _)| *at).filter(|at| *at <= until);
                let Some(at) = due else {
                    inner.now = inner.now.max(until);
                    return;
                };
                inner.now = inner.now.max(at);
                inner.timers.pop_first().map(|(_, waker)| waker)
            };
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// Runs for a span.
    pub(super) fn run_for(&self, span: Duration) {
        self.run_until(self.now() + span);
    }

    /// Polls one of the tasks that can go on; false if none can.
    fn poll_one(&self) -> bool {
        let (id, mut future, waker) = {
            let mut inner = self.inner();
            let mut ready = self.ready.lock().expect("one thread");
            if ready.is_empty() {
                return false;
            }
            let place = inner.chance.place(ready.len());
            let id = ready.remove(place);
            let task = inner.tasks.get_mut(&id).map(|task| (task.future.take(), task.waker.clone()));
            let Some((Some(future), waker)) = task else { return true };
            (id, future, waker)
        };
        let is_done = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        let mut inner = self.inner();
        // It may have ended its own server.
        let rest = if is_done { inner.tasks.remove(&id).and(Some(future)) } else { Some(future) };
        let rest = match (is_done, inner.tasks.get_mut(&id)) {
            (false, Some(task)) => {
                task.future = rest;
                None
            }
            _ => rest,
        };
        drop(inner);
        drop(rest);
        true
    }
}

/// A point of the world's time.
pub(super) struct Sleep {
    world: Arc<World>,
    at: Instant,
    timer: Option<(Instant, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self.timer;
        let mut inner = self.world.inner();
        if inner.now >= self.at {
            return Poll::Ready(());
        }
        let key = timer.unwrap_or_else(|| {
            inner.next_id += 1;
            (self.at, inner.next_id)
        });
        inner.timers.insert(key, cx.waker().clone());
        drop(inner);
        self.timer = Some(key);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.timer {
            let waker = self.world.inner().timers.remove(&key);
            drop(waker);
        }
    }
}

/// One life of a server as its catalog sees it.
pub(super) struct ServerHost {
    pub(super) world: Arc<World>,
    pub(super) owner: Owner,
}

/// How long a call is waited for.
const CALL_MAX: Duration = Duration::from_millis(400);

impl Host for ServerHost {
    fn now(&self) -> Instant {
        self.world.now()
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<()> {
        Box::pin(self.world.sleep_until(at))
    }

    fn spawn(&self, task: BoxFuture<()>) {
        self.world.spawn(Some(self.owner), task);
    }

    fn random(&self) -> u64 {
        self.world.chance()
    }

    fn call(&self, to: ServerId, message: Vec<u8>) -> BoxFuture<Result<Vec<u8>, Unanswered>> {
        let (world, from) = (self.world.clone(), self.owner.place);
        let target = world.inner().servers.iter().position(|server| *server == to);
        let deadline = world.now() + CALL_MAX;
        Box::pin(async move {
            let (sender, mut answer) = oneshot::channel();
            let sender = Arc::new(Mutex::new(Some(sender)));
            if let Some(target) = target {
                world.send(from, target, &message, &sender);
            }
            let mut sleep = world.sleep_until(deadline);
            poll_fn(|cx| match Pin::new(&mut answer).poll(cx) {
                Poll::Ready(Ok(bytes)) => Poll::Ready(Ok(bytes)),
                _ => Pin::new(&mut sleep).poll(cx).map(|()| Err(Unanswered)),
            })
            .await
        })
    }
}

impl World {
    /// The way of a message, or none if it is lost.
    fn way(&self, from: Place, to: Place) -> Option<Duration> {
        let mut inner = self.inner();
        let delay_ms_max = inner.net.delay_ms_max.max(1);
        let delay = 1 + inner.chance.below(delay_ms_max);
        let lost = inner.chance.below(1_000) < inner.net.lost;
        (!lost && !inner.net.cut.contains(&(from, to))).then(|| Duration::from_millis(delay))
    }

    /// Brings a message to a server, has it answered there, and brings the answer back; sometimes twice.
    fn send(self: &Arc<Self>, from: Place, to: Place, message: &[u8], answer: &Answer) {
        let copies = if self.below(50) == 0 { 2 } else { 1 };
        for _ in 0..copies {
            let Some(way) = self.way(from, to) else { continue };
            let (world, message, answer) = (self.clone(), message.to_vec(), answer.clone());
            let travel = async move {
                world.sleep(way).await;
                let Some((life, catalog)) = world.inner().catalogs.get(&to).cloned() else { return };
                let owner = Owner { place: to, life };
                let back = world.clone();
                world.spawn(
                    Some(owner),
                    Box::pin(async move {
                        let reply = catalog.handle(&message).await;
                        drop(catalog);
                        if let Some(way) = back.way(to, from) {
                            back.sleep(way).await;
                            let sender = answer.lock().expect("one thread").take();
                            // Whoever asked may have gone.
                            let _ = sender.map(|sender| sender.send(reply));
                        }
                    }),
                );
            };
            self.spawn(None, Box::pin(travel));
        }
    }
}
