//! Nodes of one shard, what fails, and whoever decides who is primary.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ashlar_kv::cluster::control::{Control, MessageFigures, Order, Ticket};
use ashlar_kv::cluster::map::{Map, Name, Node as Seen, Place, Service, SlotRange};
use ashlar_kv::network::{Broken, Line};
use ashlar_kv::persist::Snapshot;
use ashlar_kv::persist::snapshot::Step as Taken;
use ashlar_kv::replicate::quorum::{PromiseAnswer, PromiseRequest, QuorumStatus, TakeOver};
use ashlar_kv::replicate::{Follower, FullSync, Step, Upstream};
use ashlar_kv::{Engine, EngineConfig, Network, Now};
use ashlar_wire::time::Instant;

use super::client::Client;
use super::faults::{Plot, Splits};
use super::pipe::{Pipe, link_of};
use crate::history::{Action, NEVER, OPERATIONS_MAX, Operation, is_linearizable};
use crate::rng::Rng;

/// Keys that clients use at a time.
const KEYS: usize = 3;
/// When the world begins, Unix microseconds.
const BEGIN_US: i64 = 1_800_000_000_000_000;
/// How often an engine looks after itself, microseconds.
const TICK_US: u64 = 100_000;
/// What happens after everything works again.
const HEALING_STEPS: usize = 10_000;
/// Connections that ended at one end and not yet at the other.
const LOOSE_MAX: usize = 16;
/// How much older than the latest a claim may be that a node hears of.
const BEHIND_MAX: u64 = 2;
/// Letters of the mark at the end of a dump.
const MARK: &str = "0123456789abcdef0123456789abcdef01234567";
/// The epoch of the first primary.
const FIRST_EPOCH: u64 = 1;

/// How a seed went.
#[derive(Debug, Default, PartialEq, Eq, Clone)]
pub(crate) struct Outcome {
    /// Operations that clients were told of.
    pub(crate) told: u64,
    /// Writes whose clients were told nothing.
    pub(crate) untold: u64,
    pub(crate) kills: u64,
    pub(crate) ballots: u64,
    /// Terms that were served.
    pub(crate) terms: u64,
    /// After everything had healed the shard was served again.
    pub(crate) recovered: u64,
    /// A majority had its data when everything had healed.
    pub(crate) could_recover: u64,
    /// It had, and the shard was not served all the same.
    pub(crate) stuck: u64,
    /// A hash of what happened.
    pub(crate) hash: u64,
}

/// What nodes reach of each other.
#[derive(Debug)]
pub(super) struct Cables {
    engines: Vec<Option<Arc<Engine>>>,
    /// From whom to whom nothing passes.
    pub(super) cut: BTreeSet<(usize, usize)>,
    pub(super) now: Now,
    rng: Rng,
}

pub(super) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The network of one node.
#[derive(Debug)]
struct Cable;

impl Network for Cable {
    fn listen(&self, _addresses: &[&str], _port: u16) -> Result<(), String> {
        Ok(())
    }

    fn dial(&self, _host: &str, _port: u16, _span: Duration) -> Result<Box<dyn Line>, Broken> {
        // Only `MIGRATE` dials, which nobody sends here.
        Err(Broken::Gone)
    }
}

impl Cables {
    /// A candidate asks a member. The request or its answer may be lost.
    fn ask(&mut self, from: usize, to: usize, request: &PromiseRequest) -> Option<PromiseAnswer> {
        if self.cut.contains(&(from, to)) || self.rng.chance(50_000) {
            return None;
        }
        let answer = self.engines[to].clone()?.answer_promise(request, self.now);
        let is_lost = self.rng.chance(50_000) || self.cut.contains(&(to, from));
        (!is_lost).then_some(answer)
    }
}

/// Nobody may order anything here.
#[derive(Debug)]
struct NoOrders;

impl Control for NoOrders {
    fn order(&self, _order: Order, _ticket: Ticket) -> Option<Result<(), String>> {
        Some(Err("the world decides".to_owned()))
    }

    fn publish(&self, _channel: &[u8], _message: &[u8], _is_sharded: bool) {}

    fn listens(&self) {}

    fn message_figures(&self) -> MessageFigures {
        MessageFigures::default()
    }
}

/// A dump that is taken for replicas.
#[derive(Debug)]
struct Dump {
    snapshot: Snapshot,
    sync: FullSync,
    has_begun: bool,
}

/// The process of a node.
#[derive(Debug)]
pub(super) struct Process {
    engine: Arc<Engine>,
    pub(super) follower: Follower,
    pub(super) pipe: Option<Pipe>,
    file: Vec<u8>,
    read: usize,
    dump: Option<Dump>,
    /// What it is to be once it has made sure of its data.
    taking_over: Option<Map>,
    /// The number of the claim that it knows.
    pub(super) known: usize,
    ticked_us: u64,
    /// It has once had all that it ever acknowledged, and its data were not replaced since.
    is_complete: bool,
}

/// A node.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) process: Option<Process>,
    life: u64,
    /// What it has promised, on its drive.
    promises: Arc<Mutex<String>>,
}

/// Whom the cluster says to be primary.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claim {
    pub(super) epoch: u64,
    pub(super) primary: usize,
    /// A node that does not belong to the shard meanwhile.
    pub(super) outside: Option<usize>,
}

/// A connection whose replica has hung up, or died, which the other end does not know yet.
#[derive(Debug)]
pub(super) struct Loose {
    from: usize,
    pipe: Pipe,
}

/// What a client likes to do, in a million.
#[derive(Debug)]
struct Habits {
    /// So many requests write.
    writes: u32,
    /// Before so many it goes to another node.
    leaves: u32,
}

impl Habits {
    fn draw(rng: &mut Rng) -> Self {
        Self { writes: rng.pick(&[0, 100_000, 500_000, 900_000]), leaves: rng.pick(&[10_000, 50_000, 500_000]) }
    }
}

/// The world of one seed.
pub(super) struct World {
    pub(super) rng: Rng,
    pub(super) machines: Vec<Machine>,
    pub(super) loose: Vec<Loose>,
    pub(super) cables: Arc<Mutex<Cables>>,
    pub(super) claims: Vec<Claim>,
    clients: Vec<Client>,
    /// One for each key that was ever used.
    histories: Vec<Vec<Operation>>,
    /// Those that are used now.
    keys: [usize; KEYS],
    values: u64,
    us: u64,
    /// How likely a process that may end does, in a million.
    pub(super) kill_chance: u32,
    /// How likely a node hears of a claim in a step, in a million.
    tell_chance: u32,
    pub(super) splits: Splits,
    pub(super) plot: Plot,
    /// How many faults begin a plot, in a million.
    pub(super) plots: u32,
    /// Most bytes that a link delivers at a time, if it is a thin one.
    pub(super) thin: Option<u64>,
    habits: Vec<Habits>,
    pub(super) outcome: Outcome,
}

fn number_of(host: &str) -> Option<usize> {
    host.strip_prefix('n')?.parse().ok()
}

fn name_of(node: usize) -> Name {
    let mut bytes = [7; 20];
    bytes[19] = node as u8;
    Name::new(bytes)
}

/// The map of a claim, as a node sees it.
fn map_of(claim: Claim, own: usize, count: usize) -> Map {
    let node = |number: usize| {
        let is_outside = claim.outside == Some(number);
        let is_primary = number == claim.primary;
        Seen {
            name: name_of(number),
            shard: Name::new([if is_outside { 100 + number as u8 } else { 1 }; 20]),
            place: Place { host: format!("n{number}"), port: 1, ..Place::default() },
            primary: (!is_primary && !is_outside).then(|| name_of(claim.primary)),
            epoch: if is_outside { 0 } else { claim.epoch },
            slots: if is_primary { vec![SlotRange::all()] } else { Vec::new() },
            ..Seen::default()
        }
    };
    let service = Service { is_up: true, epoch: claim.epoch, ..Service::default() };
    Map::new(name_of(own), (0..count).map(node).collect(), service)
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let count = rng.within(2..=5) as usize;
        let now = Now { unix_us: BEGIN_US, instant: Instant::default() };
        let cables = Cables { engines: vec![None; count], cut: BTreeSet::new(), now, rng: rng.fork("cables", 0) };
        let machine = |_| Machine { process: None, life: 0, promises: Arc::default() };
        let clients = rng.within(2..=4) as usize;
        let how_deadly = rng.below(3) as usize;
        let how_told = rng.below(3) as usize;
        let thin = rng.chance(300_000).then(|| rng.magnitude(4..=64));
        let splits = Splits::draw(&mut rng);
        let plots = [0, 300_000, 1_000_000][rng.below(3) as usize];
        let habits = (0..clients).map(|_| Habits::draw(&mut rng)).collect();
        let mut world = Self {
            rng,
            machines: (0..count).map(machine).collect(),
            loose: Vec::new(),
            cables: Arc::new(Mutex::new(cables)),
            claims: vec![Claim { epoch: FIRST_EPOCH, primary: 0, outside: None }],
            clients: (0..clients).map(|_| Client::default()).collect(),
            histories: vec![Vec::new(); KEYS],
            keys: core::array::from_fn(|key| key),
            values: 0,
            us: 0,
            kill_chance: [0, 200_000, 1_000_000][how_deadly],
            tell_chance: [30_000, 5_000, 1_000][how_told],
            splits,
            plot: Plot::default(),
            plots,
            thin,
            habits,
            outcome: Outcome::default(),
        };
        (0..count).for_each(|node| world.start(node));
        world.begin();
        world
    }

    /// The first node serves, and is told to go over to this mode.
    fn begin(&mut self) {
        let (map, now) = (map_of(self.claims[0], 0, self.machines.len()), self.now());
        let process = self.machines[0].process.as_mut().expect("it was started");
        process.engine.configure("replication-quorum", "no").expect("it is a parameter");
        take_up(&process.engine, map.clone(), now);
        process.engine.configure("replication-quorum", "yes").expect("it is a parameter");
        process.known = 0;
        process.taking_over = Some(map);
        self.take_over(0);
    }

    fn now(&self) -> Now {
        let unix_us = BEGIN_US + self.us as i64;
        Now { unix_us, instant: Instant::default() + Duration::from_micros(self.us) }
    }

    /// Starts the process of a node, which has lost everything but its promises.
    pub(super) fn start(&mut self, node: usize) {
        let count = self.machines.len();
        let machine = &mut self.machines[node];
        machine.life += 1;
        // Names of histories are drawn from it: no two processes have the same.
        let own = (machine.life << 8 | node as u64).to_le_bytes();
        let secret = core::array::from_fn(|at| own[at % own.len()]);
        let engine = Arc::new(Engine::new(&EngineConfig { secret, shards: 2, databases: 1 }));
        for (name, value) in [
            ("replication-quorum", "yes"),
            ("repl-diskless-sync-delay", "0"),
            ("replication-quorum-timeout", "2000"),
            ("protected-mode", "no"),
        ] {
            engine.configure(name, value).expect("it is a parameter");
        }
        if self.rng.chance(300_000) {
            engine.configure("repl-backlog-size", "1").expect("it is a parameter");
        }
        engine.set_network(Box::new(Cable));
        let (kept, drive) = (lock(&machine.promises).clone(), Arc::clone(&machine.promises));
        let keep = move |text: &str| {
            text.clone_into(&mut lock(&drive));
            true
        };
        engine.open_promises(&kept, Box::new(keep)).expect("it wrote that itself");
        let first = Claim { epoch: 0, primary: node, outside: None };
        let mut alone = map_of(first, node, count).own().clone();
        (alone.slots, alone.epoch) = (Vec::new(), 0);
        engine.join_cluster(Map::alone(alone), Box::new(NoOrders));
        lock(&self.cables).engines[node] = Some(Arc::clone(&engine));
        self.machines[node].process = Some(Process {
            follower: Follower::new(Arc::clone(&engine)),
            engine,
            pipe: None,
            file: Vec::new(),
            read: 0,
            dump: None,
            taking_over: None,
            known: usize::MAX,
            ticked_us: 0,
            is_complete: false,
        });
    }

    /// Ends the process of a node.
    pub(super) fn kill(&mut self, node: usize) {
        lock(&self.cables).engines[node] = None;
        for client in 0..self.clients.len() {
            if self.clients[client].node() == Some(node) {
                self.lose(client);
            }
        }
        for machine in &mut self.machines {
            if let Some(process) = &mut machine.process
                && process.pipe.as_ref().is_some_and(|pipe| pipe.to == node)
            {
                process.pipe = None;
                process.follower.handle_broken("the other end died", lock(&self.cables).now);
            }
        }
        self.loose.retain(|loose| loose.pipe.to != node);
        if let Some(mut process) = self.machines[node].process.take() {
            hang_up(&mut self.loose, node, &mut process);
            self.outcome.kills += 1;
        }
    }

    fn lose(&mut self, client: usize) {
        if let Some((key, operation)) = self.clients[client].lose() {
            self.histories[key].push(operation);
            self.outcome.untold += 1;
        }
    }

    /// A node hears of a claim, mostly the latest.
    fn tell(&mut self, node: usize) {
        let latest = self.claims.len() - 1;
        let Some(process) = &self.machines[node].process else { return };
        let known = if process.known == usize::MAX { 0 } else { process.known };
        let number = (latest.saturating_sub(self.rng.below(BEHIND_MAX + 1) as usize)).max(known);
        let is_current = self.rng.chance(700_000);
        self.tell_of(node, if is_current { latest } else { number });
    }

    pub(super) fn tell_of(&mut self, node: usize, number: usize) {
        let count = self.machines.len();
        let Some(process) = &mut self.machines[node].process else { return };
        if process.known == number {
            return;
        }
        process.known = number;
        let (map, now) = (map_of(self.claims[number], node, count), self.now());
        let Some(process) = &mut self.machines[node].process else { return };
        process.taking_over = None;
        if process.engine.must_take_over(&map) {
            process.taking_over = Some(map);
        } else {
            take_up(&process.engine, map, now);
        }
    }

    /// Whoever is to be primary tries to make sure of its data.
    fn take_over(&mut self, node: usize) {
        let (now, life) = (self.now(), self.machines[node].life);
        let Some(process) = &mut self.machines[node].process else { return };
        let Some(map) = process.taking_over.take() else { return };
        let ended = match process.engine.begin_take_over(&map, life, now) {
            Ok(mut round) => {
                for member in round.asked().to_vec() {
                    let to = number_of(&map.node(member).expect("it is of the map").place.host).expect("it is a node");
                    if let Some(answer) = lock(&self.cables).ask(node, to, &round.request(member)) {
                        round.handle_answer(member, answer);
                    }
                    if round.is_decided() {
                        break;
                    }
                }
                process.engine.finish_take_over(&map, round, now)
            }
            Err(ended) => ended,
        };
        match ended {
            TakeOver::Done => {
                take_up(&process.engine, map, now);
                self.outcome.terms += 1;
            }
            TakeOver::Waits(_) => process.taking_over = Some(map),
            TakeOver::Superseded(_) => {}
        }
    }

    /// The thread that keeps a node's link does one thing.
    fn follow(&mut self, node: usize) {
        let now = self.now();
        let Self { machines, rng, cables, loose, thin, .. } = self;
        let Some(process) = &mut machines[node].process else { return };
        match process.follower.next_step(now) {
            Step::Dial { upstream, .. } => {
                let Upstream::Address { host, .. } = upstream else { return };
                let to = number_of(&host).filter(|to| *to != node);
                let cables = lock(cables);
                let engine =
                    to.filter(|to| !cables.cut.contains(&(node, *to))).and_then(|to| cables.engines[to].clone());
                drop(cables);
                let pipe = to.zip(engine).and_then(|(to, engine)| Pipe::open(node, to, &engine, now));
                match pipe {
                    Some(pipe) => {
                        process.pipe = Some(pipe);
                        process.follower.handle_connected(link_of("primary", node), now);
                    }
                    None => process.follower.handle_broken("nobody is there", now),
                }
            }
            Step::Send(bytes) => process.pipe.iter_mut().for_each(|pipe| pipe.send(&bytes)),
            Step::Receive(_) => {
                let Some(pipe) = &mut process.pipe else {
                    process.follower.handle_broken("the connection is gone", now);
                    return;
                };
                let is_cut = lock(cables).cut.contains(&(pipe.to, node));
                let bytes = if is_cut { Vec::new() } else { pipe.receive(rng, *thin) };
                if pipe.is_over() && bytes.is_empty() {
                    process.pipe = None;
                    process.follower.handle_broken("the other end hung up", now);
                } else if !bytes.is_empty() {
                    process.follower.handle_bytes(&bytes, now);
                }
            }
            Step::Keep(bytes) => process.file.extend_from_slice(&bytes),
            Step::Load => {
                let end = process.file.len().min(process.read + 512);
                let piece = process.file[process.read..end].to_vec();
                process.read = end;
                if piece.is_empty() {
                    (process.file, process.read) = (Vec::new(), 0);
                }
                process.follower.handle_kept(&piece, now);
            }
            Step::HangUp => {
                hang_up(loose, node, process);
                (process.file, process.read) = (Vec::new(), 0);
            }
            Step::Rest(_) => {}
        }
    }

    /// The other end of a node's link does one thing.
    fn serve(&mut self, node: usize) {
        let now = self.now();
        let Self { machines, rng, cables, loose, .. } = self;
        if !loose.is_empty() {
            let number = rng.below(loose.len() as u64) as usize;
            let Loose { from, pipe } = &mut loose[number];
            if !lock(cables).cut.contains(&(*from, pipe.to)) {
                pipe.serve(now, rng);
                if pipe.is_delivered() {
                    loose.swap_remove(number);
                }
            }
        }
        let Some(pipe) = machines[node].process.as_mut().and_then(|process| process.pipe.as_mut()) else { return };
        if !lock(cables).cut.contains(&(node, pipe.to)) {
            pipe.serve(now, rng);
        }
    }

    /// A node looks after itself, or goes on with a dump.
    fn tend(&mut self, node: usize) {
        let (now, us) = (self.now(), self.us);
        let Some(process) = &mut self.machines[node].process else { return };
        if us >= process.ticked_us + TICK_US {
            process.ticked_us = us;
            process.engine.handle_tick(now);
        }
        if process.engine.aside().next() {
            let is_full = self.rng.chance(100_000);
            let kept = if is_full { Err("the drive is full".to_owned()) } else { Ok((process.engine.changes(), 0)) };
            process.engine.aside().end(kept);
        }
        match process.dump.take() {
            Some(dump) => process.dump = go_on(dump, now),
            None => {
                let sync = process.engine.next_full_sync(now);
                process.dump = sync.map(|sync| {
                    let snapshot = Snapshot::begin_sync(Arc::clone(&process.engine), &sync, now);
                    Dump { snapshot, sync, has_begun: false }
                });
            }
        }
    }

    /// A client asks for something, or looks for its reply.
    fn use_client(&mut self, number: usize) {
        let now = self.now();
        if self.clients[number].is_waiting() {
            let node = self.clients[number].node();
            if let Some((key, operation)) = self.clients[number].listen(self.us) {
                let is_told = operation.end != NEVER;
                self.outcome.told += u64::from(is_told);
                self.outcome.untold += u64::from(!is_told);
                self.note(operation.begin ^ operation.end ^ node.unwrap_or(0) as u64);
                self.histories[key].push(operation);
            } else if self.rng.chance(20_000) {
                self.lose(number);
            }
            return;
        }
        let count = self.machines.len() as u64;
        if self.clients[number].node().is_none() || self.rng.chance(self.habits[number].leaves) {
            self.lose(number);
            let latest = self.claims.last().expect("there is a first one").primary;
            let node = if self.rng.chance(600_000) { latest } else { self.rng.below(count) as usize };
            if let Some(process) = &self.machines[node].process {
                self.clients[number].connect(node, &process.engine, now);
            }
        }
        if self.clients[number].node().is_none() {
            return;
        }
        let place = self.rng.below(KEYS as u64) as usize;
        let open = self.clients.iter().filter(|client| client.is_waiting()).count();
        if self.histories[self.keys[place]].len() + open + 1 >= OPERATIONS_MAX {
            self.keys[place] = self.histories.len();
            self.histories.push(Vec::new());
        }
        let key = self.keys[place];
        let action = if self.rng.chance(self.habits[number].writes) {
            self.values += 1;
            Action::Write(self.values)
        } else {
            Action::Read(0)
        };
        self.clients[number].ask(key, action, self.us, now, &mut self.rng);
    }

    fn note(&mut self, what: u64) {
        self.outcome.hash = (self.outcome.hash ^ what ^ self.us).wrapping_mul(0x0100_0000_01b3);
    }

    /// One thing happens, somewhere.
    fn step(&mut self) {
        self.us += self.rng.magnitude(50..=20_000);
        lock(&self.cables).now = self.now();
        let node = self.rng.below(self.machines.len() as u64) as usize;
        if self.plot.is_over() && self.rng.chance(self.tell_chance) {
            self.tell(node);
        }
        self.go_on_with_plot();
        match self.rng.below(100) {
            0..=6 => self.take_over(node),
            7..=34 => self.follow(node),
            35..=59 => self.serve(node),
            60..=74 => self.tend(node),
            _ => {
                let client = self.rng.below(self.clients.len() as u64) as usize;
                self.use_client(client);
            }
        }
        (0..self.machines.len()).for_each(|node| self.observe(node));
    }

    /// What is known of a node's data from outside, which it must not forget.
    fn observe(&mut self, node: usize) {
        let Some(process) = &mut self.machines[node].process else { return };
        let status = process.engine.quorum_status();
        let is_whole = status.is_some_and(|status| !status.is_blank);
        process.is_complete = !process.engine.is_loading() && (process.is_complete || is_whole);
    }

    /// Whether enough nodes have complete data for the shard to be served: of each majority of the members, as the latest of those
    /// data name them, there is one.
    fn can_serve(&self) -> bool {
        let complete = |(number, machine): (usize, &Machine)| {
            let process = machine.process.as_ref().filter(|process| process.is_complete)?;
            Some((name_of(number).to_string(), process.engine.quorum_status()?))
        };
        let there: Vec<(String, QuorumStatus)> = self.machines.iter().enumerate().filter_map(complete).collect();
        let Some((_, latest)) = there.iter().max_by_key(|(_, status)| status.term) else { return false };
        latest.members.to_string().split('>').all(|set| {
            let names: Vec<&str> = set.split(',').collect();
            let found = names.iter().filter(|name| there.iter().any(|(other, _)| other == *name)).count();
            found > names.len() / 2
        })
    }

    fn check(&self) -> Result<(), String> {
        for (key, history) in self.histories.iter().enumerate() {
            if !is_linearizable(history) {
                let mut history = history.clone();
                history.sort_by_key(|operation| operation.begin);
                let lines: Vec<String> = history.iter().map(|operation| format!("  {operation:?}")).collect();
                return Err(format!("the history of key {key} is none of a register:\n{}", lines.join("\n")));
            }
        }
        Ok(())
    }
}

impl Drop for World {
    /// Engines have their network, and that has them.
    fn drop(&mut self) {
        let engines = core::mem::take(&mut lock(&self.cables).engines);
        drop(engines);
    }
}

/// The engine is what the map says.
fn take_up(engine: &Engine, map: Map, now: Now) {
    let upstream = map.own().primary.and_then(|name| map.node(name));
    let upstream = upstream.map(|node| Upstream::Address { host: node.place.host.clone(), port: node.place.port });
    if upstream.is_some() {
        engine.set_map(map.clone(), now);
        engine.prepare_to_follow(map.own().shard, now);
        engine.follow(upstream, now);
    } else {
        engine.follow(None, now);
        engine.set_map(map, now);
    }
}

/// A dump goes on by one step; nothing once it is over.
fn go_on(mut dump: Dump, now: Now) -> Option<Dump> {
    let put = |sync: &FullSync, bytes: &[u8]| bytes.is_empty() || sync.put(bytes, 0, Duration::ZERO).is_ok();
    if !dump.has_begun {
        dump.has_begun = put(&dump.sync, format!("$EOF:{MARK}\r\n").as_bytes());
        return Some(dump);
    }
    let step = dump.snapshot.step();
    let bytes = dump.snapshot.take();
    if !put(&dump.sync, &bytes) {
        dump.snapshot.lose();
    }
    match step {
        Taken::More => Some(dump),
        Taken::Done => {
            if put(&dump.sync, MARK.as_bytes()) {
                dump.sync.end(now);
            }
            None
        }
        Taken::Lost(_) => None,
    }
}

/// A node's connection to whom it follows is gone, at its end.
pub(super) fn hang_up(loose: &mut Vec<Loose>, from: usize, process: &mut Process) {
    if let Some(pipe) = process.pipe.take() {
        loose.truncate(LOOSE_MAX - 1);
        loose.push(Loose { from, pipe });
    }
}

/// Runs a world to its end. What is wrong in words, or how it went.
pub(crate) fn run_seed(seed: u64) -> Result<Outcome, String> {
    let mut world = World::new(seed);
    let steps = world.rng.magnitude(1_000..=20_000);
    let fault_every = world.rng.magnitude(40..=2_000);
    for _ in 0..steps {
        world.step();
        if world.plot.is_over() && world.rng.below(fault_every) == 0 {
            world.fail();
        }
    }
    world.heal();
    world.check()?;
    Ok(core::mem::take(&mut world.outcome))
}

impl World {
    /// Everything works again; whether the shard is served then, and whether it could be.
    fn heal(&mut self) {
        (self.thin, self.plot) = (None, Plot::default());
        let can_serve = self.can_serve();
        lock(&self.cables).cut.clear();
        for node in 0..self.machines.len() {
            if self.machines[node].process.is_none() {
                self.start(node);
            }
        }
        let last = *self.claims.last().expect("there is a first one");
        self.claims.push(Claim { epoch: last.epoch + 1, outside: None, ..last });
        (0..self.machines.len()).for_each(|node| self.tell_of(node, self.claims.len() - 1));
        let before = self.outcome.told;
        (0..HEALING_STEPS).for_each(|_| self.step());
        self.outcome.recovered = u64::from(self.outcome.told > before);
        self.outcome.could_recover = u64::from(can_serve);
        self.outcome.stuck = u64::from(can_serve && self.outcome.recovered == 0);
        for client in 0..self.clients.len() {
            self.lose(client);
        }
    }
}
