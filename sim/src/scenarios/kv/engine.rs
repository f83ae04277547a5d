//! The key-value engines of one life of a simulated server, with all the tasks that the program runs beside them.

use core::time::Duration;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ashlar_bus::slot::GroupId;
use ashlar_grid::seam::{BoxFuture, Runtime as _, Threads as _};
use ashlar_kv::cluster::map::{Map, Node as Seen};
use ashlar_kv::network::{Broken, Line};
use ashlar_kv::persist::Snapshot;
use ashlar_kv::persist::snapshot::Step;
use ashlar_kv::replicate::CopyStatus;
use ashlar_kv::replicate::{FullSync, Upstream};
use ashlar_kv::{Engine, EngineConfig, Mailbox, Network, Now, Session};
use ashlar_node::keyvalue::assignment::{EngineInfo, server_of, shard_name};
use ashlar_node::keyvalue::engine_task::EngineTask;
use ashlar_node::keyvalue::following::follow;
use ashlar_node::keyvalue::host::{Connection, DumpFile, EngineHost};
use ashlar_node::keyvalue::migrating::move_slots;
use ashlar_node::keyvalue::{EngineMailboxes, Part, ReplicationStreams, Rules};
use ashlar_wire::id::ServerId;

use super::busy::Busy;
use super::connection::{Pipe, link, serve, serve_stream};
use crate::rng::Rng;
use crate::scenarios::node::server_id;
use crate::world::{Control, SimRuntime};

/// Engines of a server.
pub(super) const ENGINES: usize = 2;
/// Where clients reach the first engine; the second one's port is the next.
pub(super) const PORT: u16 = 6_379;
/// How often an engine looks after itself.
const TICK: Duration = Duration::from_millis(100);
/// How often it is looked whether a replica wants a dump, and whether an engine has all its data.
const LOOK: Duration = Duration::from_millis(20);
/// Letters of the mark at the end of a dump.
const MARK: &str = "0123456789abcdef0123456789abcdef01234567";
/// The time of day at which the world begins, microseconds.
const BEGIN_US: i64 = 1_800_000_000_000_000;
/// How long a member may be silent, as the bus is told too.
const MEMBER_TIMEOUT_MS: u64 = 2_000;

/// What an engine remembers over the lives of its server.
#[derive(Debug, Clone, Default)]
pub(super) struct EngineDrive(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    info: Option<EngineInfo>,
    promises: String,
    origin: String,
}

impl EngineDrive {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The engine's identity, which is drawn at the first start.
    fn info(&self, number: usize, rng: &mut Rng) -> EngineInfo {
        let mut kept = self.lock();
        let drawn = || EngineInfo {
            tag: EngineInfo::tag(number, rng.next_u64() as u32),
            group: GroupId(rng.next_u64() >> 1),
            ..EngineInfo::default()
        };
        kept.info.get_or_insert_with(drawn).clone()
    }
}

/// The world as an engine's tasks see it.
pub(super) struct SimEngineHost {
    control: Control,
    runtime: SimRuntime,
    drive: EngineDrive,
}

impl EngineHost for SimEngineHost {
    fn now(&self) -> Now {
        let unix_us = BEGIN_US + self.control.wall_clock_ns(self.runtime.server()) / 1_000;
        Now { unix_us, instant: self.runtime.now() }
    }

    fn sleep(&self, span: Duration) -> BoxFuture<()> {
        self.runtime.sleep_until(self.runtime.now() + span)
    }

    fn connect(&self, _host: &str, _port: u16) -> BoxFuture<Result<Box<dyn Connection>, Broken>> {
        Box::pin(core::future::ready(Err(Broken::Gone)))
    }

    fn dump_file(&self) -> io::Result<Box<dyn DumpFile>> {
        Ok(Box::new(MemoryFile::default()))
    }

    fn keep_engine_info(&self, info: &EngineInfo) -> bool {
        self.drive.lock().info = Some(info.clone());
        true
    }
}

#[derive(Debug, Default)]
struct MemoryFile {
    bytes: Vec<u8>,
    read: usize,
}

impl DumpFile for MemoryFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let count = room.len().min(self.bytes.len() - self.read);
        room[..count].copy_from_slice(&self.bytes[self.read..self.read + count]);
        self.read += count;
        Ok(count)
    }
}

/// Engines of other servers are reached by the grid's streams.
#[derive(Debug)]
struct SimNetwork {
    own: ServerId,
}

impl Network for SimNetwork {
    fn listen(&self, _addresses: &[&str], _port: u16) -> Result<(), String> {
        Ok(())
    }

    fn dial(&self, _host: &str, _port: u16, _span: Duration) -> Result<Box<dyn Line>, Broken> {
        Err(Broken::Gone)
    }

    fn way_to(&self, node: &Seen) -> Upstream {
        let (host, port, id) = (node.place.host.clone(), node.place.port, server_of(node.name).0);
        if id == self.own { Upstream::Address { host, port } } else { Upstream::Server { id, host, port } }
    }
}

/// One engine of a life.
#[derive(Clone)]
pub(super) struct SimEngine {
    pub(super) engine: Arc<Engine>,
    pub(super) host: Arc<SimEngineHost>,
    /// It has had all data of its shard at some time of this life, which nothing has taken away since.
    pub(super) was_whole: Arc<Mutex<bool>>,
}

impl SimEngine {
    /// What the engine tells of its links and promises, for people.
    pub(super) fn replication(&self) -> String {
        let mailbox = Arc::new(Mailbox::new(Box::new(|| {})));
        let opened = Session::open(Arc::clone(&self.engine), mailbox, link("look".to_owned(), false), self.host.now());
        let Ok(mut session) = opened else { return String::new() };
        session.feed(b"INFO replication\r\n", self.host.now());
        let text = String::from_utf8_lossy(session.replies()).into_owned();
        let is_told =
            |line: &&str| ["link", "offset", "slave", "repl_state", "quorum"].iter().any(|word| line.contains(word));
        let lines: Vec<&str> = text.lines().filter(is_told).collect();
        format!("{}; promised {:?}", lines.join(" "), self.host.drive.lock().promises)
    }

    /// Whether it has, as known from outside: what an engine says of itself later does not count.
    pub(super) fn was_whole(&self) -> bool {
        *self.was_whole.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The engines of a life.
#[derive(Clone)]
pub(super) struct SimEngines {
    pub(super) runtime: SimRuntime,
    pub(super) engines: Vec<SimEngine>,
    pub(super) part: Part,
    /// How many tasks of engines have come to their end.
    ended: Arc<AtomicUsize>,
}

/// Makes the engines of a life. Their tasks begin with [`SimEngines::run`].
pub(super) fn make(
    control: &Control,
    runtime: &SimRuntime,
    drives: &[EngineDrive; ENGINES],
    needs_majority: bool,
    migrates: bool,
) -> SimEngines {
    let server = runtime.server();
    let mut rng = control.rng("engines", u64::from(server.0) << 32 | u64::from(runtime.life()));
    let (mailboxes, streams) = (EngineMailboxes::new(ENGINES), Arc::new(ReplicationStreams::default()));
    let infos: Vec<EngineInfo> = (0..ENGINES).map(|number| drives[number].info(number, &mut rng)).collect();
    let engines = drives.iter().enumerate().map(|(number, drive)| {
        let engine = configured(&mut rng, number, needs_majority);
        let host = SimEngineHost { control: control.clone(), runtime: runtime.clone(), drive: drive.clone() };
        join(&engine, &infos[number], server_id(server), drive, &mailboxes, number);
        SimEngine { engine, host: Arc::new(host), was_whole: Arc::default() }
    });
    let engines: Vec<SimEngine> = engines.collect();
    let rules = Rules {
        stands: true,
        migrates,
        migration_barrier: 1,
        handover_max: Duration::from_secs(5),
        keep_out: Duration::from_secs(60),
        copy_age_max: Some(Duration::from_millis(MEMBER_TIMEOUT_MS) * 10 + Duration::from_secs(10)),
    };
    let (replication_streams, zone) = (Some(streams), String::new());
    let part = Part { mailboxes, engines: infos, bus_port: 7_800, zone, rules, replication_streams, users: None };
    SimEngines { runtime: runtime.clone(), engines, part, ended: Arc::default() }
}

fn configured(rng: &mut Rng, number: usize, needs_majority: bool) -> Arc<Engine> {
    let secret = core::array::from_fn(|_| rng.next_u64() as u8);
    let engine = Arc::new(Engine::new(&EngineConfig { secret, shards: 2, databases: 1 }));
    let (timeout, port) = (MEMBER_TIMEOUT_MS.to_string(), (PORT + number as u16).to_string());
    for (name, value) in [
        ("port", port.as_str()),
        ("cluster-node-timeout", &timeout),
        ("repl-diskless-sync-delay", "0"),
        ("protected-mode", "no"),
        ("replication-quorum", if needs_majority { "yes" } else { "no" }),
        ("replication-quorum-timeout", "2000"),
        ("cluster-require-full-coverage", "no"),
    ] {
        engine.configure(name, value).expect("it is a parameter");
    }
    engine
}

/// The engine is a node of the cluster, with what it remembers.
fn join(
    engine: &Arc<Engine>,
    info: &EngineInfo,
    own: ServerId,
    drive: &EngineDrive,
    mailboxes: &Arc<EngineMailboxes>,
    number: usize,
) {
    let (promises, origin) = {
        let kept = drive.lock();
        (kept.promises.clone(), kept.origin.clone())
    };
    let writes = drive.clone();
    let keep = move |text: &str| {
        text.clone_into(&mut writes.lock().promises);
        true
    };
    engine.open_promises(&promises, Box::new(keep)).expect("it wrote that itself");
    let writes = drive.clone();
    let keep = move |text: &str| {
        text.clone_into(&mut writes.lock().origin);
        true
    };
    assert!(engine.open_origin(&origin, Box::new(keep)), "it wrote that itself");
    let place = engine.announcement().place(7_800);
    let node = Seen { name: info.name(own), shard: shard_name(info.group), place, ..Seen::default() };
    engine.join_cluster(Map::alone(node), mailboxes.control(number));
    engine.set_network(Box::new(SimNetwork { own }));
}

impl SimEngines {
    /// Begins the tasks of all engines, as the program does. Each of those that have threads of their own there is kept from running so
    /// often, per million, when it is woken.
    pub(super) fn run(&self, control: &Control, busy_ppm: u32) {
        let mut rng = control.rng("busy", u64::from(self.runtime.server().0) << 32 | u64::from(self.runtime.life()));
        let mut spawn = |task: BoxFuture<()>| {
            let rng = Rng::new(rng.next_u64());
            self.runtime.spawn(Box::pin(Busy::new(task, self.runtime.clone(), rng, busy_ppm)));
        };
        let streams = self.part.replication_streams.clone().expect("it was made with them");
        let served = self.engines.clone();
        streams.host(Box::new(move |from, port, stream| {
            let SimEngine { engine, host, .. } = served.get(usize::from(port.checked_sub(PORT)?))?.clone();
            Some(Box::pin(serve_stream(engine, stream, from.to_owned(), host)))
        }));
        for (number, SimEngine { engine, host, was_whole }) in self.engines.iter().enumerate() {
            let (mailboxes, info) = (Arc::clone(&self.part.mailboxes), self.part.engines[number].clone());
            let task = EngineTask { mailboxes, number, info, life: u64::from(self.runtime.life()) };
            task.introduce(engine, host.now());
            let shared = || (Arc::clone(engine), Arc::clone(host) as Arc<dyn EngineHost>);
            let ((one, its), (two, two_host), (three, three_host)) = (shared(), shared(), shared());
            let ended = Arc::clone(&self.ended);
            spawn(Box::pin(async move {
                task.run(one, its).await;
                ended.fetch_add(1, Ordering::SeqCst);
            }));
            spawn(Box::pin(follow(two, Some(Arc::clone(&streams)), two_host)));
            spawn(Box::pin(move_slots(three, Some(Arc::clone(&streams)), three_host)));
            self.runtime.spawn(Box::pin(tick(Arc::clone(engine), Arc::clone(host))));
            self.runtime.spawn(Box::pin(synchronise(Arc::clone(engine), Arc::clone(host), Arc::clone(was_whole))));
        }
    }

    /// Waits until the tasks of all engines have come to their end, which they do once the mailboxes are closed.
    pub(super) async fn ended(&self) {
        while self.ended.load(Ordering::SeqCst) < self.engines.len() {
            self.runtime.sleep_until(self.runtime.now() + LOOK).await;
        }
    }

    /// A client connects to an engine.
    pub(super) fn connect(&self, number: usize, peer: String) -> Arc<Pipe> {
        let pipe = Arc::<Pipe>::default();
        let SimEngine { engine, host, .. } = self.engines[number].clone();
        self.runtime.spawn(Box::pin(serve(engine, Arc::clone(&pipe), link(peer, false), host)));
        pipe
    }
}

/// The engine looks after itself, and keeps aside nothing: there is no drive for data.
async fn tick(engine: Arc<Engine>, host: Arc<SimEngineHost>) {
    loop {
        engine.handle_tick(host.now());
        if engine.aside().next() {
            engine.aside().end(Ok((engine.changes(), 0)));
        }
        host.sleep(TICK).await;
    }
}

/// Takes dumps for replicas, and looks whether the engine has all data.
async fn synchronise(engine: Arc<Engine>, host: Arc<SimEngineHost>, was_whole: Arc<Mutex<bool>>) {
    let mut has_served = false;
    loop {
        if let Some(sync) = engine.next_full_sync(host.now()) {
            let snapshot = Snapshot::begin_sync(Arc::clone(&engine), &sync, host.now());
            dump(snapshot, sync, &host).await;
        }
        {
            let mut whole = was_whole.lock().unwrap_or_else(PoisonError::into_inner);
            let has_lead = engine.map().is_some_and(|map| map.own().primary.is_none() && !map.own().slots.is_empty());
            let has_all = || has_lead || engine.copy_status(host.now().instant) == CopyStatus::Current;
            let is_whole = engine.quorum_status().map_or_else(has_all, |status| !status.is_blank);
            // What leads without majorities has the shard's data, whatever they are; but another one may have led since it was started.
            let has_lost =
                engine.quorum_status().is_none() && core::mem::replace(&mut has_served, has_lead) && !has_lead;
            *whole = !engine.is_loading() && (*whole && !has_lost || is_whole);
        }
        host.sleep(LOOK).await;
    }
}

async fn dump(mut snapshot: Snapshot, sync: FullSync, host: &SimEngineHost) {
    let put = |bytes: &[u8]| bytes.is_empty() || sync.put(bytes, 0, Duration::ZERO).is_ok();
    let mut is_taken = put(format!("$EOF:{MARK}\r\n").as_bytes());
    while is_taken {
        let step = snapshot.step();
        is_taken = put(&snapshot.take());
        match step {
            Step::More => host.sleep(Duration::from_millis(1)).await,
            Step::Done => {
                if is_taken && put(MARK.as_bytes()) {
                    sync.end(host.now());
                }
                return;
            }
            Step::Lost(_) => return,
        }
    }
    snapshot.lose();
}
