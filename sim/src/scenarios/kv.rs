//! Whole servers with key-value engines: grid, bus, controller, engines and their links, as the program runs them, on a fake world.
//!
//! Each server has two engines. An operator claims slots and arranges replicas while faults strike; clients read and write. In half of
//! the seeds writes need a majority of three copies, in the others a primary acknowledges alone and has one replica.
//!
//! Verified: with majorities every key's history is one of a register, whatever fails; without, no read gives what nobody wrote. After
//! everything heals, but for one server in half of the seeds, every shard takes writes within a minute, and has all its copies on servers that
//! are up. With majorities a shard is excused if a majority of its copies was restarted, without if the only one that has its data is lost:
//! data are in memory here, as with `appendonly no`, and only an operator may decide then.
//!
//! Not verified: data on drives, users, messages of subscribers, slots that move (`kv`'s own tests do that).

mod busy;
mod client;
mod connection;
mod engine;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ashlar_grid::seam::{Runtime as _, Threads as _};
use ashlar_kv::cluster::map::Name;
use ashlar_kv::replicate::CopyStatus;
use ashlar_kv::replicate::quorum::QuorumStatus;
use ashlar_node::Node;
use ashlar_node::keyvalue::host::EngineHost as _;

use self::client::{Plan, SharedState, Wanted, arrange, client, lock, operate, ranges};
use self::engine::{EngineDrive, SimEngine, SimEngines};
use super::node::memory::{Drive, DriveMemory};
use super::node::plan;
use super::whole::{Drained, Seen, WIND_DOWN_NS_MAX, accept, check_drained, leave_times};
use crate::history::{Action, is_linearizable};
use crate::rng::Rng;
use crate::swarm::{Bounds, Case, Params};
use crate::world::{Control, ServerNo, SimRuntime};

/// After the healing every shard must take writes within this time: failed members are found, elections held, copies taken over.
const CONVERGE_NS_MAX: u64 = 60_000_000_000;
/// How often it is looked which terms are served.
const LOOK_AT_TERMS: Duration = Duration::from_millis(20);
/// Long enough to set a cluster up.
pub(super) const CALM_NS: u64 = 5_000_000_000;
/// Clients of one world.
const CLIENTS: u64 = 3;
/// How long replicas may take to take over from a server that leaves.
const HAND_OVER_MAX: Duration = Duration::from_secs(5);
/// Copies of a shard whose writes need a majority, or that can spare one, and of another one.
const COPIES_OF_MAJORITY: usize = 3;
const COPIES: usize = 2;

/// Bugs that can be planted in the glue between bus and engines.
#[cfg(feature = "planted")]
pub(super) fn bugs() -> Vec<String> {
    ashlar_node::keyvalue::planted::Planted::ALL.iter().map(|bug| format!("{bug:?}")).collect()
}

/// There are none.
#[cfg(not(feature = "planted"))]
pub(super) const fn bugs() -> Vec<String> {
    Vec::new()
}

/// All servers on this thread have this bug from now on, or none.
#[cfg(feature = "planted")]
pub(super) fn plant(bug: Option<usize>) {
    use ashlar_node::keyvalue::planted;
    planted::plant(bug.map(|bug| planted::Planted::ALL[bug]));
}

/// There are none.
#[cfg(not(feature = "planted"))]
pub(super) const fn plant(_bug: Option<usize>) {}

/// One life of a server.
struct Life {
    node: Node<SimRuntime>,
    engines: SimEngines,
    /// How its bus stood a moment ago.
    bus: Seen,
    drained: Drained,
}

/// See the head of this file.
pub struct KvCase {
    control: Control,
    needs_majority: bool,
    slots: Vec<(u16, u16)>,
    wanted: Vec<Wanted>,
    shared: SharedState,
    drives: BTreeMap<ServerNo, (Drive, [EngineDrive; engine::ENGINES])>,
    lives: BTreeMap<ServerNo, Life>,
    /// How often a thread of an engine is busy when it is woken, per million.
    busy_ppm: u32,
    is_restless: bool,
    /// Replicas go over to shards that have none.
    migrates: bool,
    is_begun: bool,
    healed_ns: u64,
    converged_ns: u64,
    excused: u64,
    is_stopping: bool,
}

impl KvCase {
    /// The case for one world.
    #[must_use]
    pub fn new(control: &Control, params: &Params) -> Self {
        let mut rng = Rng::new(params.seed).fork("kv", 0);
        let needs_majority = rng.chance(500_000);
        let (busy_ppm, is_restless) = (rng.pick(&[0, 0, 50_000, 300_000]), rng.chance(500_000));
        // A primary without a replica can be given one only where another shard can spare one.
        let migrates = !needs_majority && rng.chance(500_000);
        let copies = if needs_majority || migrates { COPIES_OF_MAJORITY } else { COPIES };
        let (shards, wanted) = arrange(params.servers, copies);
        let shared = SharedState::default();
        {
            let mut known = lock(&shared);
            known.histories = vec![Vec::new(); shards];
            known.served = vec![false; shards];
        }
        Self {
            control: control.clone(),
            needs_majority,
            slots: ranges(shards),
            wanted,
            shared,
            drives: BTreeMap::new(),
            lives: BTreeMap::new(),
            busy_ppm,
            is_restless,
            migrates,
            is_begun: false,
            healed_ns: 0,
            converged_ns: 0,
            excused: 0,
            is_stopping: false,
        }
    }

    fn begin(&mut self) {
        if core::mem::replace(&mut self.is_begun, true) {
            return;
        }
        let (control, shared) = (self.control.clone(), Arc::clone(&self.shared));
        let plan = Plan {
            wanted: self.wanted.clone(),
            slots: self.slots.clone(),
            checks_claims: !self.needs_majority,
            is_restless: self.is_restless,
        };
        self.control.spawn(operate(control, shared, plan));
        for number in 0..CLIENTS {
            let (control, shared) = (self.control.clone(), Arc::clone(&self.shared));
            self.control.spawn(client(control, shared, number, self.slots.clone()));
        }
    }

    fn fail(&self, wrong: String) {
        lock(&self.shared).wrong = Some(wrong);
        self.control.finish();
    }

    fn check_safety(&self) -> Result<(), String> {
        let known = lock(&self.shared);
        if let Some(wrong) = &known.wrong {
            return Err(wrong.clone());
        }
        let histories = known.histories.iter().enumerate();
        for (shard, (number, history)) in
            histories.flat_map(|(shard, all)| all.iter().enumerate().map(move |one| (shard, one)))
        {
            let written = |value: u64| value == 0 || history.iter().any(|other| other.action == Action::Write(value));
            let is_possible =
                || history.iter().all(|one| !matches!(one.action, Action::Read(value) if !written(value)));
            let is_right = if self.needs_majority { is_linearizable(history) } else { is_possible() };
            if !is_right {
                let mut history = history.clone();
                history.sort_by_key(|operation| operation.begin);
                let lines: Vec<String> = history.iter().map(|operation| format!("  {operation:?}")).collect();
                return Err(format!("key {number} of shard {shard} is no register:\n{}", lines.join("\n")));
            }
        }
        Ok(())
    }

    /// The shard of this number: the one that most of its engines belong to now.
    fn shard_name(&self, shard: usize) -> Option<Name> {
        let mut counts: BTreeMap<Name, usize> = BTreeMap::new();
        let engine_of = |one: &Wanted| Some(&self.lives.get(&one.server)?.engines.engines[one.number].engine);
        let of_shard = self.wanted.iter().filter(|one| one.shard == shard);
        for map in of_shard.filter_map(engine_of).filter_map(|engine| engine.map()) {
            *counts.entry(map.own().shard).or_default() += 1;
        }
        counts.into_iter().max_by_key(|(_, count)| *count).map(|(name, _)| name)
    }

    /// Whether the shard can take writes: of each majority of its members, as the latest data name them, one is there, and has all data
    /// if the shard is served by nobody.
    fn can_serve(&self, shard: Name) -> bool {
        let engines = self.lives.values().flat_map(|life| &life.engines.engines);
        let of_shard: Vec<(&SimEngine, Name, QuorumStatus)> = engines
            .filter_map(|one| {
                let map = one.engine.map().filter(|map| map.own().shard == shard)?;
                Some((one, map.own().name, one.engine.quorum_status()?))
            })
            .collect();
        let is_served = of_shard.iter().any(|(_, _, status)| status.is_serving);
        let there: Vec<(String, &QuorumStatus)> = of_shard
            .iter()
            .filter(|(one, ..)| is_served || one.was_whole())
            .map(|(_, name, status)| (name.to_string(), status))
            .collect();
        let Some((_, latest)) = there.iter().max_by_key(|(_, status)| status.term) else { return false };
        latest.members.to_string().split('>').all(|set| {
            let names: Vec<&str> = set.split(',').collect();
            let found = names.iter().filter(|name| there.iter().any(|(other, _)| other == *name)).count();
            found > names.len() / 2
        })
    }

    /// Whether a copy of the shard has its data, so that it may stand for a primary that is lost.
    fn has_data(&self, shard: Name) -> bool {
        let engines = self.lives.values().flat_map(|life| &life.engines.engines);
        engines.filter(|one| one.was_whole()).any(|one| one.engine.map().is_some_and(|map| map.own().shard == shard))
    }

    /// Every engine that is to be a copy of a shard serves it or has its data, but for these shards. Where replicas go over to other shards,
    /// every engine does so with some shard, and no primary is without a copy.
    fn check_copies(&self, excused: &[usize]) -> Result<(), String> {
        let mut copied = BTreeSet::new();
        for one in self.wanted.iter().filter(|one| !excused.contains(&one.shard)) {
            let (Some(shard), Some(life)) = (self.shard_name(one.shard), self.lives.get(&one.server)) else { continue };
            let SimEngine { engine, host, .. } = &life.engines.engines[one.number];
            let Some(map) = engine.map() else { continue };
            let serves = map.own().primary.is_none() && !map.own().slots.is_empty();
            let is_blank = || self.needs_majority && engine.quorum_status().is_none_or(|status| status.is_blank);
            let is_copy = !serves && engine.copy_status(host.now().instant) == CopyStatus::Current && !is_blank();
            let is_elsewhere = !self.migrates && map.own().shard != shard;
            if is_elsewhere || !(serves || is_copy) {
                let what = format!("{one:?} is no copy of {shard}, majority: {}", self.needs_majority);
                return Err(format!("{what}\n{}", self.table()));
            }
            copied.extend(is_copy.then_some(map.own().shard));
        }
        let served = self.lives.values().flat_map(|life| &life.engines.engines).filter_map(|one| one.engine.map());
        let mut lone = served.filter(|map| map.own().primary.is_none() && !map.own().slots.is_empty());
        match lone.find(|map| self.migrates && !copied.contains(&map.own().shard)) {
            Some(map) => Err(format!("{} has no copy of its data\n{}", map.own().name, self.table())),
            None => Ok(()),
        }
    }

    /// What each engine sees of itself and of the shards, for people.
    fn table(&self) -> String {
        let mut lines = Vec::new();
        for (server, life) in &self.lives {
            let bus = life.bus.status();
            let members: Vec<String> =
                bus.members.iter().map(|one| format!("{} {:?}", one.address, one.state)).collect();
            let short = |voters: &[String]| voters.iter().map(|name| name[30..].to_owned()).collect::<Vec<_>>();
            lines.push(format!(
                "  server {} life {}: voters {} of {:?} before {:?} majority {} members {members:?}",
                server.0,
                life.engines.runtime.life(),
                bus.voters_epoch,
                short(&bus.voters),
                short(&bus.voters_before),
                bus.majority,
            ));
            for one in &life.engines.engines {
                let Some(map) = one.engine.map() else { continue };
                let own = map.own();
                let slots: Vec<String> =
                    own.slots.iter().map(|range| format!("{}-{}", range.first.number(), range.last.number())).collect();
                let short = |name: &str| name[30..].to_owned();
                let quorum = one.engine.quorum_status().map(|status| {
                    let members: Vec<String> = status.members.to_string().split(',').map(short).collect();
                    format!(
                        " term {} members {members:?} serving {} blank {}",
                        status.term, status.is_serving, status.is_blank
                    )
                });
                lines.push(format!(
                    "  {} life {} of shard {} follows {} slots {slots:?} epoch {} up {} whole {}{} waits {:?}; {}",
                    short(&own.name.to_string()),
                    life.engines.runtime.life(),
                    short(&own.shard.to_string()),
                    own.primary.map_or_else(|| "nobody".to_owned(), |name| short(&name.to_string())),
                    own.epoch,
                    map.service().is_up,
                    one.was_whole(),
                    quorum.unwrap_or_default(),
                    one.engine.take_over_waits_for(),
                    one.replication(),
                ));
            }
        }
        lines.join("\n")
    }
}

/// Notes which terms the engines of a life serve.
async fn watch_terms(control: Control, life: SimEngines, shared: SharedState) {
    loop {
        for one in &life.engines {
            let (Some(map), Some(status)) = (one.engine.map(), one.engine.quorum_status()) else { continue };
            if status.is_serving {
                lock(&shared).note_term(map.own().shard, status.term, (map.own().name, life.runtime.life()));
            }
        }
        if lock(&shared).wrong.is_some() {
            control.finish();
        }
        life.runtime.sleep_until(life.runtime.now() + LOOK_AT_TERMS).await;
    }
}

impl KvCase {
    /// Asks a server to leave, after a while.
    fn drain_after(&mut self, server: ServerNo, after: Duration) {
        let Some(life) = self.lives.get(&server) else { return };
        let (node, drained) = (life.node.clone(), life.drained.clone());
        let (mailboxes, engines) = (Arc::clone(&life.engines.part.mailboxes), life.engines.clone());
        let runtime = life.engines.runtime.clone();
        runtime.clone().spawn(Box::pin(async move {
            runtime.sleep_until(runtime.now() + after).await;
            node.hand_over(HAND_OVER_MAX).await;
            node.say_goodbye().await;
            let unsettled = node.drain().await;
            mailboxes.close();
            // A server that is restarted waits for the tasks of its engines.
            engines.ended().await;
            drained.set(unsettled);
        }));
    }
}

impl Case for KvCase {
    fn start(&mut self, runtime: SimRuntime) {
        let server = runtime.server();
        let (drive, engine_drives) = self.drives.entry(server).or_default().clone();
        let engines = engine::make(&self.control, &runtime, &engine_drives, self.needs_majority, self.migrates);
        engines.run(&self.control, self.busy_ppm);
        runtime.spawn(Box::pin(watch_terms(self.control.clone(), engines.clone(), Arc::clone(&self.shared))));
        let rng = self.control.rng("drive", u64::from(server.0) << 32 | u64::from(runtime.life()));
        let memory = DriveMemory::new(drive.clone(), runtime.clone(), rng);
        let shared = Arc::new(runtime.clone());
        let mut plan = plan(&self.control, &runtime, &drive);
        plan.bus = engines.part.rules.applied_to(&plan.bus);
        let begun = Node::start(shared.clone(), shared, plan, memory, vec![Box::new(engines.part.clone())]);
        let (node, bus) = match begun {
            Ok(begun) => begun,
            Err(error) => return self.fail(format!("{server:?} cannot restore the memory of its bus: {error}")),
        };
        runtime.spawn(bus);
        accept(&runtime, &node);
        lock(&self.shared).lives.insert(server, engines.clone());
        let bus = Seen::watch(&runtime, &node);
        self.lives.insert(server, Life { node, engines, bus, drained: Drained::default() });
        self.begin();
    }

    fn killed(&mut self, server: ServerNo) {
        let engines = lock(&self.shared).lives.remove(&server);
        drop((engines, self.lives.remove(&server)));
    }

    fn drain(&mut self, server: ServerNo) {
        self.drain_after(server, Duration::ZERO);
    }

    fn is_drained(&self, server: ServerNo) -> bool {
        self.lives.get(&server).is_none_or(|life| life.drained.is_set())
    }

    fn can_lose_one(&self) -> bool {
        // Who is away cannot be given its part, and the first voters are chosen by one server alone.
        lock(&self.shared).is_set_up && self.lives.values().all(|life| life.bus.knows_voters())
    }

    fn healed(&mut self) {
        self.healed_ns = self.control.now_ns();
        let mut known = lock(&self.shared);
        known.served.fill(false);
        known.is_healed = true;
    }

    fn bounds(&self) -> Bounds {
        Bounds { converge_ns: CONVERGE_NS_MAX, wind_down_ns: WIND_DOWN_NS_MAX }
    }

    fn converged(&mut self) -> Result<(), String> {
        self.check_safety()?;
        let (is_set_up, served) = {
            let known = lock(&self.shared);
            (known.is_set_up, known.served.clone())
        };
        let is_one_lost = self.wanted.iter().any(|one| !self.lives.contains_key(&one.server));
        let is_excused = |shard: usize| {
            self.shard_name(shard).is_some_and(|name| match self.needs_majority {
                true => !served[shard] && !self.can_serve(name),
                // A primary that was stopped may have served until it heard of the one that is lost now.
                false => is_one_lost && !self.has_data(name),
            })
        };
        let (excused, others): (Vec<usize>, Vec<usize>) = (0..served.len()).partition(|shard| is_excused(*shard));
        let stuck: Vec<usize> = others.into_iter().filter(|shard| !served[*shard]).collect();
        if !stuck.is_empty() || !is_set_up && excused.is_empty() {
            let what =
                format!("shards {stuck:?} take no writes, set up: {is_set_up}, majority: {}", self.needs_majority);
            return Err(format!("{what}\n{}", self.table()));
        }
        self.check_copies(&excused)?;
        self.excused = excused.len() as u64;
        self.converged_ns = self.control.now_ns() - self.healed_ns;
        Ok(())
    }

    fn wind_down(&mut self) {
        lock(&self.shared).is_over = true;
        for (server, after) in leave_times(&self.control, self.lives.keys().copied()) {
            self.drain_after(server, after);
        }
        self.is_stopping = true;
    }

    fn judge(&mut self) -> Result<(), String> {
        self.check_safety()?;
        if self.is_stopping { check_drained(&self.lives, |life| &life.drained) } else { Ok(()) }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let known = lock(&self.shared);
        let lives = self.lives.values().map(|life| u64::from(life.engines.runtime.life())).sum();
        vec![
            ("lives", lives),
            ("told", known.told),
            ("untold", known.untold),
            ("majority", u64::from(self.needs_majority)),
            ("excused", self.excused),
            ("converge_ms", self.converged_ns / 1_000_000),
        ]
    }
}
