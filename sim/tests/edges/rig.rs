//! Servers with a grid each, on one simulated world.

use core::future::poll_fn;
use core::task::{Poll, Waker};
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ashlar_grid::config::GridConfig;
use ashlar_grid::hello::Secrets;
use ashlar_grid::seam::{BoxFuture, Lane, Threads as _};
use ashlar_grid::status::{PeerEvent, PeerState, PeerStatus};
use ashlar_grid::{CallOptions, Grid};
use ashlar_sim::net::{ConnId, LinkOptions};
use ashlar_sim::world::ConnInfo;
use ashlar_sim::{Control, Kill, ServerNo, SimRuntime, Stop, World, WorldOptions};
use ashlar_wire::id::{ClusterId, Incarnation, ServerId};
use ashlar_wire::secret::Secret;

use crate::methods::{Tally, handlers};

pub(crate) const CLUSTER: ClusterId = ClusterId::from_bytes([0xc1; 16]);
pub(crate) const SECRET: [u8; 32] = [7; 32];

pub(crate) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A link without chance: `bytes_per_s` is 0 for without limit.
pub(crate) fn link(latency_us: u64, bytes_per_s: u64, segment_bytes_max: u32) -> LinkOptions {
    let latency_ns = latency_us * 1_000;
    LinkOptions { latency_ns, jitter_ns: 0, bytes_per_s, segment_bytes_max, loss_ppm: 0, corrupt_ppm: 0 }
}

pub(crate) fn world_with(link: LinkOptions) -> WorldOptions {
    WorldOptions { link, ..WorldOptions::default() }
}

/// Chance of every kind that changes nothing but the order of things.
pub(crate) fn shaken(seed: u64) -> WorldOptions {
    let (shuffle_tasks, shuffle_ties) = (true, true);
    let (short_reads_ppm, short_writes_ppm, lines_ppm) = (200_000, 200_000, 200_000);
    let usual = WorldOptions::default();
    WorldOptions { seed, shuffle_tasks, shuffle_ties, short_reads_ppm, short_writes_ppm, lines_ppm, ..usual }
}

pub(crate) fn host(at: usize) -> String {
    format!("s{at}")
}

pub(crate) fn addr(at: usize) -> String {
    format!("s{at}:7000")
}

pub(crate) fn id(at: usize) -> ServerId {
    ServerId::from_bytes([at as u8 + 1; 16])
}

/// The present life of one server.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) no: ServerNo,
    pub(crate) runtime: SimRuntime,
    pub(crate) grid: Grid<SimRuntime>,
    pub(crate) tally: Tally,
    /// What its grid told, and when.
    pub(crate) events: Arc<Mutex<Vec<(u64, PeerEvent)>>>,
}

impl Node {
    /// How this server sees the server `at`.
    pub(crate) fn status(&self, at: usize) -> PeerStatus {
        let all = self.grid.peers();
        all.into_iter().find(|peer| peer.id == Some(id(at))).expect("the peer is known")
    }

    pub(crate) fn is_connected(&self, at: usize) -> bool {
        self.grid.peers().iter().any(|peer| peer.id == Some(id(at)) && peer.state == PeerState::Connected)
    }

    /// Losses so far: when, and why.
    pub(crate) fn losses(&self) -> Vec<(u64, String)> {
        let events = lock(&self.events);
        let losses = events.iter().filter_map(|(at_ns, event)| match event {
            PeerEvent::Lost { reason, .. } => Some((*at_ns, reason.clone())),
            _ => None,
        });
        losses.collect()
    }
}

pub(crate) type Tweak = fn(usize, &mut GridConfig);

/// See the head of this file.
pub(crate) struct Rig {
    pub(crate) world: World,
    pub(crate) nodes: Vec<Node>,
    tweak: Tweak,
    /// Servers that turn every bulk connection away.
    pub(crate) refuses_bulk: bool,
}

impl Rig {
    /// `count` servers that run and do not know each other.
    pub(crate) fn new(count: usize, options: WorldOptions, tweak: Tweak) -> Self {
        let mut rig = Self { world: World::new(options), nodes: Vec::new(), tweak, refuses_bulk: false };
        for at in 0..count {
            let no = rig.world.add_server(&host(at));
            let node = rig.life(at, no, Tally::default());
            rig.nodes.push(node);
        }
        rig
    }

    /// Servers that are all connected.
    pub(crate) fn meshed(count: usize, options: WorldOptions, tweak: Tweak) -> Self {
        let mut rig = Self::new(count, options, tweak);
        rig.mesh();
        rig
    }

    /// Two servers on an ordinary link with every default.
    pub(crate) fn two() -> Self {
        Self::meshed(2, WorldOptions::default(), |_, _| {})
    }

    pub(crate) fn control(&self) -> Control {
        self.world.control()
    }

    pub(crate) fn config(&self, at: usize, life: u32) -> GridConfig {
        let secrets = Secrets::new(Secret::from_bytes(SECRET));
        let mut config = GridConfig::new(CLUSTER, id(at), Incarnation(u64::from(life)), addr(at), secrets);
        (self.tweak)(at, &mut config);
        config
    }

    fn life(&self, at: usize, no: ServerNo, tally: Tally) -> Node {
        let runtime = self.world.start(no);
        let config = self.config(at, runtime.life());
        let events: Arc<Mutex<Vec<(u64, PeerEvent)>>> = Arc::default();
        let (told, control) = (events.clone(), self.world.control());
        let handlers = handlers(&runtime, &tally).expect("each id is registered once");
        let on_event = move |event: &PeerEvent| lock(&told).push((control.now_ns(), event.clone()));
        let grid = Grid::new(Arc::new(runtime.clone()), config, handlers, on_event);
        let listener = runtime.listen(&addr(at)).expect("a new life has its address for itself");
        let (accepting, refuses_bulk) = (grid.clone(), self.refuses_bulk);
        runtime.spawn(Box::pin(async move {
            loop {
                let (wire, lane) = listener.accept().await;
                if lane == Lane::Small || !refuses_bulk {
                    accepting.accept(wire, lane);
                }
            }
        }));
        Node { no, runtime, grid, tally, events }
    }

    /// Ends the present life of a server and begins the next, which knows all others.
    pub(crate) fn restart(&mut self, at: usize, how: Kill) {
        self.world.kill(self.nodes[at].no, how);
        self.begin(at);
    }

    /// Begins the next life of a server that was killed.
    pub(crate) fn begin(&mut self, at: usize) {
        self.nodes[at] = self.life(at, self.nodes[at].no, self.nodes[at].tally.clone());
        self.introduce(at);
    }

    fn introduce(&self, at: usize) {
        for other in (0..self.nodes.len()).filter(|other| *other != at) {
            self.nodes[at].grid.add_peer(&addr(other));
        }
    }

    /// Tells every server of every other one, and waits until all are connected.
    pub(crate) fn mesh(&mut self) {
        for at in 0..self.nodes.len() {
            self.introduce(at);
        }
        self.until_connected(secs(20));
    }

    pub(crate) fn until_connected(&mut self, within: Duration) {
        let count = self.nodes.len();
        self.until(within, "all are connected", |rig| {
            (0..count).all(|at| (0..count).all(|other| at == other || rig.nodes[at].is_connected(other)))
        });
    }

    /// Moves the world until `holds`; how long that took.
    pub(crate) fn until(&mut self, within: Duration, what: &str, mut holds: impl FnMut(&Self) -> bool) -> Duration {
        let begun_ns = self.world.now_ns();
        while !holds(self) {
            let passed = Duration::from_nanos(self.world.now_ns() - begun_ns);
            assert!(passed < within, "not within {within:?}: {what}");
            let stop = self.world.run_for(ms(1)).expect("the world does not run away");
            assert!(stop == Stop::Reached || holds(self), "nothing will ever happen again: {what}");
        }
        Duration::from_nanos(self.world.now_ns() - begun_ns)
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, span: Duration) {
        let until_ns = self.world.now_ns() + span.as_nanos() as u64;
        self.world.run_until_ns(until_ns).expect("the world does not run away");
        // A world of frozen servers is at rest before.
        self.world.pass_until_ns(until_ns);
    }

    /// Runs `work` beside the servers and gives its value; fails if it takes longer than `within`.
    pub(crate) fn run<T: Send + 'static>(
        &mut self,
        within: Duration,
        work: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let value: Arc<Mutex<Option<T>>> = Arc::default();
        let slot = value.clone();
        self.world.spawn(async move {
            let result = work.await;
            *lock(&slot) = Some(result);
        });
        self.until(within, "the work is done", |_| lock(&value).is_some());
        lock(&value).take().expect("waited for")
    }

    /// The connections that are whole between the first two servers, oldest first.
    pub(crate) fn conns(&self, lane: Lane) -> Vec<ConnInfo> {
        self.world.connections().into_iter().filter(|conn| conn.whole && conn.lane == lane).collect()
    }

    /// The small connection between the first two servers.
    pub(crate) fn conn(&self) -> ConnId {
        self.conns(Lane::Small).last().expect("they are connected").id
    }

    /// Cuts or heals both directions between two servers.
    pub(crate) fn partition(&self, a: usize, b: usize, cut: bool) {
        let (a, b) = (self.nodes[a].no, self.nodes[b].no);
        for (from, to) in [(a, b), (b, a)] {
            if cut { self.world.cut(from, to) } else { self.world.heal(from, to) }
        }
    }
}

/// A call that fails instead of waiting for a connection or trying again.
pub(crate) fn at_once() -> CallOptions<'static> {
    CallOptions { fail_fast: true, ..CallOptions::default() }
}

/// What `tasks` come to, in their order; they run beside each other, from now on.
pub(crate) fn gather<T: Send + 'static>(
    control: &Control,
    tasks: Vec<BoxFuture<T>>,
) -> impl Future<Output = Vec<T>> + use<T> {
    struct Gathered<T> {
        values: Vec<Option<T>>,
        left: usize,
        waker: Option<Waker>,
    }
    let count = tasks.len();
    let values = core::iter::repeat_with(|| None).take(count).collect();
    let gathered = Arc::new(Mutex::new(Gathered { values, left: count, waker: None }));
    for (at, task) in tasks.into_iter().enumerate() {
        let gathered = gathered.clone();
        control.spawn(async move {
            let value = task.await;
            let mut gathered = lock(&gathered);
            gathered.values[at] = Some(value);
            gathered.left -= 1;
            let waker = if gathered.left == 0 { gathered.waker.take() } else { None };
            drop(gathered);
            waker.into_iter().for_each(Waker::wake);
        });
    }
    poll_fn(move |cx| {
        let mut gathered = lock(&gathered);
        if gathered.left > 0 {
            gathered.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(gathered.values.iter_mut().map(|value| value.take().expect("each task left its value")).collect())
    })
}

/// How long `work` took in the world's time, with its value.
pub(crate) async fn timed<T>(control: &Control, work: impl Future<Output = T>) -> (Duration, T) {
    let begun_ns = control.now_ns();
    let value = work.await;
    (Duration::from_nanos(control.now_ns() - begun_ns), value)
}
