//! Whole servers with the catalog as a service: clients on every server propose, members report, servers fail and return.
//!
//! Verified: an acknowledged proposal is part of every later state of every server; two compare-and-sets of one value are never
//! both acknowledged; states of one version are equal byte for byte; storages lose at a crash what was not synced. After the
//! healing all servers have the same state with one leader, the voters are the planned ones, every server and drive is known,
//! and every placement group has all its members. Then one server stops for good: it leaves every acting list and the voters
//! are planned without it; it is started again and is a member again.
//!
//! Not verified: what placement groups hold (there are none, a toy reports in their stead), and the program's own storage.

mod client;
pub(super) mod disk;
mod ledger;

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ashlar_grid::seam::{Runtime as _, Threads as _};
use ashlar_node::Node;
use ashlar_node::catalog::{CatalogOptions, CatalogService};

use self::client::{Bench, LAST_PROPOSALS, drive_id};
use self::disk::{Disk, DiskStorage};
use self::ledger::Ledger;
use super::agreement::{agreed, check_state};
use super::lock;
use super::node::memory::{Drive, DriveMemory};
use super::node::{plan, server_id};
use super::whole::{Drained, Seen, WIND_DOWN_NS_MAX, accept, check_drained, leave_times};
use crate::swarm::{Bounds, Case, Params};
use crate::world::{Control, Kill, ServerNo, SimRuntime};

/// After the healing everything must work within this time: elections, voters, further drives, then a server that stops and comes back.
const CONVERGE_NS_MAX: u64 = 240_000_000_000;
/// Placement groups of the set: few, so that many seeds can be run.
const PGS: u32 = 16;

/// One life of a server.
struct Life {
    node: Node<SimRuntime>,
    bench: Bench,
    drained: Drained,
    bus: Seen,
}

/// What is waited for after the healing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Everything is as it should be.
    Healing,
    /// This server was stopped, and the others go on without it.
    Without(ServerNo),
    /// It was started again, and everything is as before.
    Again,
}

/// See the head of this file.
pub struct CatalogCase {
    control: Control,
    servers: u32,
    copies: u8,
    /// What each server remembers.
    drives: BTreeMap<ServerNo, (Drive, Disk)>,
    lives: BTreeMap<ServerNo, Life>,
    ledger: Arc<Mutex<Ledger>>,
    is_healed: Arc<AtomicBool>,
    stage: Stage,
    healed_ns: u64,
    converged_ns: u64,
    is_stopping: bool,
}

impl CatalogCase {
    /// The case for one world.
    #[must_use]
    pub fn new(control: &Control, params: &Params) -> Self {
        let mut rng = control.rng("catalog", 0);
        Self {
            control: control.clone(),
            servers: params.servers,
            copies: if rng.chance(700_000) { 3 } else { rng.within(1..=2) as u8 },
            drives: BTreeMap::new(),
            lives: BTreeMap::new(),
            ledger: Arc::default(),
            is_healed: Arc::default(),
            stage: Stage::Healing,
            healed_ns: 0,
            converged_ns: 0,
            is_stopping: false,
        }
    }

    fn rng(&self, label: &str, runtime: &SimRuntime) -> crate::rng::Rng {
        self.control.rng(label, u64::from(runtime.server().0) << 32 | u64::from(runtime.life()))
    }

    fn check_safety(&self) -> Result<(), String> {
        lock(&self.ledger).wrong.clone().map_or(Ok(()), Err)
    }

    fn check_converged(&self) -> Result<(), String> {
        for (server, life) in &self.lives {
            let told = life.bench.last_told.load(Ordering::SeqCst);
            if told < LAST_PROPOSALS {
                return Err(format!("{told} proposals of {server:?} were acknowledged after the healing"));
            }
        }
        if let Some((server, _)) = self.lives.iter().find(|(_, life)| !life.bus.knows_voters()) {
            return Err(format!("the bus of {server:?} knows no voters"));
        }
        let state = agreed(self.lives.iter().map(|(server, life)| (*server, &life.bench.handle)))?;
        let gone = if let Stage::Without(server) = self.stage { Some(server) } else { None };
        let drives = (0..self.servers).map(|server| (ServerNo(server), drive_id(ServerNo(server)))).collect();
        check_state(&state, &drives, gone)?;
        let me = server_id(ServerNo(0));
        lock(&self.ledger).check_told(me, &state);
        self.check_safety()
    }

    /// What each server sees, for people.
    fn table(&self) -> String {
        let row = |(server, life): (&ServerNo, &Life)| {
            format!("  {server:?} life {}: {:?}\n", life.bench.runtime.life(), life.bench.handle.status())
        };
        self.lives.iter().map(row).collect()
    }

    fn stop(&mut self) -> ServerNo {
        let victim = ServerNo(self.control.rng("victim", 0).below(u64::from(self.servers)) as u32);
        self.control.kill(victim, Kill::Process);
        self.killed(victim);
        victim
    }
}

impl CatalogCase {
    /// Asks a server to leave, after a while.
    fn drain_after(&mut self, server: ServerNo, after: Duration) {
        let Some(life) = self.lives.get(&server) else { return };
        let (node, handle, drained) = (life.node.clone(), life.bench.handle.clone(), life.drained.clone());
        let runtime = life.bench.runtime.clone();
        runtime.clone().spawn(Box::pin(async move {
            runtime.sleep_until(runtime.now() + after).await;
            handle.depart().await;
            node.say_goodbye().await;
            let unsettled = node.drain().await;
            drained.set(unsettled);
        }));
    }
}

impl Case for CatalogCase {
    fn start(&mut self, runtime: SimRuntime) {
        let server = runtime.server();
        let (drive, disk) = self.drives.entry(server).or_default().clone();
        let memory = DriveMemory::new(drive.clone(), runtime.clone(), self.rng("drive", &runtime));
        let storage = DiskStorage::new(disk, runtime.clone(), self.rng("disk", &runtime));
        let options = CatalogOptions { copies: self.copies, pgs: PGS, ..CatalogOptions::default() };
        let service = CatalogService::new(options, Arc::new(storage));
        let handle = service.handle();
        let shared = Arc::new(runtime.clone());
        let plan = plan(&self.control, &runtime, &drive);
        let (node, bus) = match Node::start(shared.clone(), shared, plan, memory, vec![Box::new(service)]) {
            Ok(begun) => begun,
            Err(error) => {
                lock(&self.ledger).wrong = Some(format!("{server:?} cannot restore the memory of its bus: {error}"));
                return self.control.finish();
            }
        };
        runtime.spawn(bus);
        accept(&runtime, &node);
        let bench = Bench {
            runtime: runtime.clone(),
            handle,
            ledger: Arc::clone(&self.ledger),
            is_healed: Arc::clone(&self.is_healed),
            last_told: Arc::default(),
        };
        runtime.spawn(Box::pin(bench.clone().register()));
        runtime.spawn(Box::pin(bench.clone().look()));
        runtime.spawn(Box::pin(bench.clone().propose(self.rng("client", &runtime))));
        runtime.spawn(Box::pin(bench.clone().report(self.rng("reports", &runtime))));
        let bus = Seen::watch(&bench.runtime, &node);
        self.lives.insert(server, Life { node, bench, drained: Drained::default(), bus });
    }

    fn killed(&mut self, server: ServerNo) {
        let Some(life) = self.lives.remove(&server) else { return };
        if let Some((_, disk)) = self.drives.get(&server) {
            disk.crash(&mut self.rng("crash", &life.bench.runtime));
        }
    }

    fn drain(&mut self, server: ServerNo) {
        self.drain_after(server, Duration::ZERO);
    }

    fn is_drained(&self, server: ServerNo) -> bool {
        self.lives.get(&server).is_none_or(|life| life.drained.is_set())
    }

    fn healed(&mut self) {
        self.healed_ns = self.control.now_ns();
        self.is_healed.store(true, Ordering::SeqCst);
    }

    fn bounds(&self) -> Bounds {
        Bounds { converge_ns: CONVERGE_NS_MAX, wind_down_ns: WIND_DOWN_NS_MAX }
    }

    fn converged(&mut self) -> Result<(), String> {
        self.check_safety()?;
        self.check_converged().map_err(|wrong| format!("{:?}: {wrong}\n{}", self.stage, self.table()))?;
        match self.stage {
            Stage::Healing => {
                self.converged_ns = self.control.now_ns() - self.healed_ns;
                self.stage = Stage::Without(self.stop());
                Err("a server was stopped".into())
            }
            Stage::Without(server) => {
                self.stage = Stage::Again;
                let runtime = self.control.start(server);
                self.start(runtime);
                Err("it was started again".into())
            }
            Stage::Again => Ok(()),
        }
    }

    fn wind_down(&mut self) {
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
        let ledger = lock(&self.ledger);
        let lives = self.lives.values().map(|life| u64::from(life.bench.runtime.life())).sum();
        vec![
            ("lives", lives),
            ("told", ledger.told()),
            ("refused", ledger.refused),
            ("unknown", ledger.unknown),
            ("converge_ms", self.converged_ns / 1_000_000),
        ]
    }
}
