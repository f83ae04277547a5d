//! Whole grids without sockets and threads: a clock that the test moves, pipes between servers, and tasks that run when they were
//! woken, and only then.

mod bulk;
mod calling;
mod draining;
mod keeping;
mod raw;
mod rejected;
mod rotating;
mod streaming;

use core::future::Future;
use core::pin::{Pin, pin};
use core::sync::atomic::{AtomicU32, AtomicU64};
use core::task::{Context, Waker};
use std::io::IoSlice;
use std::task::Wake;

use ashlar_wire::id::{ClusterId, Incarnation};
use ashlar_wire::secret::Secret;

use super::*;
use crate::error::Refusal;
use crate::handler::CallContext;
use crate::hello::Secrets;
use crate::seam::{BoxFuture, Threads, Wire, WireError};
use crate::status::PeerState;

const A: ServerId = ServerId::from_bytes([1; 16]);
const B: ServerId = ServerId::from_bytes([2; 16]);
/// Where the two are reached.
const ADDRESSES: [&str; 2] = ["a:1", "b:1"];

/// Whether a task was woken since it ran last.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Flag {
    fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// A task of a server whose process is stopped while the first flag is set.
type Task = (Arc<AtomicBool>, Arc<Flag>, BoxFuture<()>);
type Listener = Box<dyn Fn(Pipe, Lane) + Send>;

/// What all servers of a test share.
#[derive(Default)]
struct World {
    /// Milliseconds so far.
    ms: AtomicU64,
    tasks: Mutex<Vec<Task>>,
    timers: Mutex<Vec<(Instant, Waker)>>,
    listeners: Mutex<BTreeMap<String, Listener>>,
    /// Every direction of every connection so far.
    ways: Mutex<Vec<Arc<Mutex<Way>>>>,
    /// When who was dialed, in milliseconds.
    dials: Mutex<Vec<(u64, String, Lane)>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nobody panics with it")
}

fn at(ms: u64) -> Instant {
    Instant::from_nanos(1_000_000_000 + ms * 1_000_000)
}

impl World {
    fn ms(&self) -> u64 {
        self.ms.load(Ordering::Relaxed)
    }

    /// Lets every task run that was woken, until none is.
    fn run(&self) {
        for _ in 0..10_000 {
            let mut woken: Vec<Task> = Vec::new();
            let may_run = |task: &mut Task| !task.0.load(Ordering::Relaxed) && task.1.take();
            woken.extend(locked(&self.tasks).extract_if(.., may_run));
            if woken.is_empty() {
                return;
            }
            for (is_stopped, flag, mut task) in woken {
                if task.as_mut().poll(&mut Context::from_waker(&flag.clone().into())).is_pending() {
                    locked(&self.tasks).push((is_stopped, flag, task));
                }
            }
        }
        panic!("tasks wake each other for ever");
    }

    /// Moves the clock to the next time that somebody waits for, or by so many milliseconds; how many those were.
    fn step(&self, ms: u64) -> u64 {
        let mut timers = locked(&self.timers);
        let next = timers.iter().map(|(at, _)| *at).min().unwrap_or(Instant::NEVER);
        let passed = (1..ms).find(|passed| at(self.ms() + passed) >= next).unwrap_or(ms);
        self.ms.fetch_add(passed, Ordering::Relaxed);
        let now = at(self.ms());
        let due: Vec<_> = timers.extract_if(.., |(at, _)| *at <= now).collect();
        drop(timers);
        due.into_iter().for_each(|(_, waker)| waker.wake());
        passed
    }

    fn pass(&self, mut ms: u64) {
        self.run();
        while ms > 0 {
            ms -= self.step(ms);
            self.run();
        }
    }

    /// What `work` comes to, if it does within so many milliseconds.
    fn within<T>(&self, mut ms: u64, work: impl Future<Output = T>) -> Option<T> {
        let (flag, mut work) = (Arc::new(Flag::default()), pin!(work));
        let waker = flag.clone().into();
        flag.wake_by_ref();
        loop {
            while flag.take() {
                if let Poll::Ready(value) = work.as_mut().poll(&mut Context::from_waker(&waker)) {
                    self.run();
                    return Some(value);
                }
                self.run();
            }
            if ms == 0 {
                return None;
            }
            ms -= self.step(ms);
            self.run();
        }
    }

    /// Who is reached at an address is reached at another one too.
    fn alias(&self, grid: &Grid<Host>, address: &str) {
        let grid = grid.clone();
        let listener: Listener = Box::new(move |wire, lane| grid.accept(wire, lane));
        locked(&self.listeners).insert(address.to_owned(), listener);
    }

    fn now<T>(&self, work: impl Future<Output = T>) -> T {
        self.within(0, work).expect("what is done at once")
    }

    /// Two ends of a new connection.
    fn pipe() -> (Pipe, Pipe) {
        let (one, other) = (Arc::new(Mutex::new(Way::default())), Arc::new(Mutex::new(Way::default())));
        let binding = [0; 32];
        (
            Pipe { incoming: one.clone(), outgoing: other.clone(), binding },
            Pipe { incoming: other, outgoing: one, binding },
        )
    }
}

/// One direction of a connection.
#[derive(Default)]
struct Way {
    bytes: Vec<u8>,
    is_closed: bool,
    /// Nothing more is taken in.
    is_full: bool,
    reader: Option<Waker>,
}

impl Way {
    fn wake(&mut self) {
        self.reader.take().into_iter().for_each(Waker::wake);
    }
}

/// One end of a connection.
struct Pipe {
    incoming: Arc<Mutex<Way>>,
    outgoing: Arc<Mutex<Way>>,
    binding: [u8; 32],
}

impl Pipe {
    /// What has come to an end that the test holds; `None` when the other end is gone.
    fn take(&self) -> Option<Vec<u8>> {
        let mut way = locked(&self.incoming);
        let bytes = core::mem::take(&mut way.bytes);
        (!bytes.is_empty() || !way.is_closed).then_some(bytes)
    }

    fn put(&self, bytes: &[u8]) {
        let mut way = locked(&self.outgoing);
        way.bytes.extend_from_slice(bytes);
        way.wake();
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        for way in [&self.incoming, &self.outgoing] {
            let mut way = locked(way);
            way.is_closed = true;
            way.wake();
        }
    }
}

impl Wire for Pipe {
    fn poll_read(&mut self, cx: &mut Context<'_>, sink: &mut dyn FnMut(&mut [u8])) -> Poll<Result<usize, WireError>> {
        let mut way = locked(&self.incoming);
        let mut bytes = core::mem::take(&mut way.bytes);
        if bytes.is_empty() && !way.is_closed {
            way.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        drop(way);
        if !bytes.is_empty() {
            sink(&mut bytes);
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_turn(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    fn poll_write(&mut self, _: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<Result<usize, WireError>> {
        let mut way = locked(&self.outgoing);
        if way.is_full {
            return Poll::Pending;
        }
        if way.is_closed {
            return Poll::Ready(Err(WireError("nobody reads".to_owned())));
        }
        bufs.iter().for_each(|buf| way.bytes.extend_from_slice(buf));
        way.wake();
        Poll::Ready(Ok(bufs.iter().map(|buf| buf.len()).sum()))
    }

    fn unacked_bytes(&self) -> Option<u64> {
        None
    }

    fn channel_binding(&self) -> [u8; 32] {
        self.binding
    }
}

/// The world as one server sees it.
struct Host {
    world: Arc<World>,
    /// Its process is stopped.
    is_stopped: Arc<AtomicBool>,
    /// Each byte of chance; `None` for ever other ones.
    chance: Mutex<Option<u8>>,
    drawn: AtomicU32,
}

impl Threads for Host {
    fn spawn(&self, task: BoxFuture<()>) {
        let flag = Arc::new(Flag::default());
        flag.wake_by_ref();
        locked(&self.world.tasks).push((self.is_stopped.clone(), flag, task));
    }
}

impl Runtime for Host {
    type Wire = Pipe;

    fn now(&self) -> Instant {
        at(self.world.ms())
    }

    /// Ten milliseconds behind.
    fn now_coarse(&self) -> Instant {
        at(self.world.ms().saturating_sub(10))
    }

    fn sleep_until(&self, until: Instant) -> BoxFuture<()> {
        let world = self.world.clone();
        Box::pin(poll_fn(move |cx| {
            if at(world.ms()) >= until {
                return Poll::Ready(());
            }
            locked(&world.timers).push((until, cx.waker().clone()));
            Poll::Pending
        }))
    }

    fn dial(&self, addr: &str, lane: Lane) -> BoxFuture<Result<Pipe, WireError>> {
        locked(&self.world.dials).push((self.world.ms(), addr.to_owned(), lane));
        let (world, addr) = (self.world.clone(), addr.to_owned());
        Box::pin(async move {
            let (own, theirs) = World::pipe();
            locked(&world.ways).extend([own.incoming.clone(), own.outgoing.clone()]);
            match locked(&world.listeners).get(&addr) {
                Some(listen) => listen(theirs, lane),
                None => return Err(WireError("nobody there".to_owned())),
            }
            Ok(own)
        })
    }

    fn random(&self, bytes: &mut [u8]) {
        match *locked(&self.chance) {
            Some(chance) => bytes.fill(chance),
            None => {
                let drawn = self.drawn.fetch_add(1, Ordering::Relaxed).to_le_bytes();
                bytes.iter_mut().zip(drawn.iter().cycle()).for_each(|(byte, chance)| *byte = *chance);
            }
        }
    }
}

/// One server of a test.
struct Server {
    grid: Grid<Host>,
    host: Arc<Host>,
    events: Arc<Mutex<Vec<PeerEvent>>>,
}

impl Server {
    fn events(&self) -> Vec<PeerEvent> {
        core::mem::take(&mut locked(&self.events))
    }

    /// How the other server stands here.
    fn status(&self) -> PeerStatus {
        let mut statuses = self.grid.peers();
        assert_eq!(statuses.len(), 1, "{statuses:?}");
        statuses.remove(0)
    }

    /// Its peers that are connected.
    fn connected(&self) -> usize {
        self.grid.peers().iter().filter(|peer| peer.state == PeerState::Connected).count()
    }
}

fn config(number: usize) -> GridConfig {
    GridConfig::new(
        ClusterId::from_bytes([7; 16]),
        [A, B][number],
        Incarnation(3),
        ADDRESSES[number].to_owned(),
        Secrets::new(Secret::from_bytes([5; 32])),
    )
}

/// Two servers, each of which can be dialed.
struct Setup {
    world: Arc<World>,
    servers: [Server; 2],
}

impl Setup {
    fn new() -> Self {
        Self::with(|_| {}, |handlers| handlers)
    }

    /// Servers with other configurations than usual, and with these handlers.
    fn with(change: impl Fn(&mut GridConfig), handlers: impl Fn(Handlers) -> Handlers) -> Self {
        let world = Arc::new(World::default());
        let servers = [0, 1].map(|number| {
            let mut config = config(number);
            change(&mut config);
            Self::server(&world, config, handlers(Handlers::new()))
        });
        Self { world, servers }
    }

    /// A server that is reached at its address from now on.
    fn server(world: &Arc<World>, config: GridConfig, handlers: Handlers) -> Server {
        let (chance, drawn) = (Mutex::new(None), AtomicU32::new(1));
        let host = Arc::new(Host { world: world.clone(), is_stopped: Arc::default(), chance, drawn });
        let events: Arc<Mutex<Vec<PeerEvent>>> = Arc::default();
        let (address, told) = (config.address.clone(), events.clone());
        let on_event = move |event: &PeerEvent| locked(&told).push(event.clone());
        let grid = Grid::new(host.clone(), config, handlers, on_event);
        world.alias(&grid, &address);
        Server { grid, host, events }
    }

    /// Two servers of which the first has dialed the second.
    fn connected(self) -> Self {
        self.servers[0].grid.add_peer(ADDRESSES[1]);
        self.world.pass(5);
        assert_eq!(self.servers.each_ref().map(Server::connected), [1, 1]);
        self.servers.iter().for_each(|server| drop(server.events()));
        self
    }

    /// The second server, as the first one calls it.
    fn handle(&self) -> PeerHandle<Host> {
        self.servers[0].grid.peer(B).expect("it is known")
    }

    /// The connection of one of the servers breaks.
    fn cut(&self, number: usize) {
        let links = self.servers[number].grid.0.links();
        links.iter().for_each(|link| link.lock().close(Lost::Broken));
    }
}

/// A refusal for every purpose.
fn refusal() -> Refusal {
    Refusal::new(4, "no")
}
