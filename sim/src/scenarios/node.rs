//! Whole servers: grid, bus, membership and a service, as the program runs them, on a fake network, clock and drive.
//!
//! Verified: after the healing every server sees all others alive, a majority of the voters is in reach, and events alone have
//! told the service's agent the same; every life of a server has greeted every other server, by calls that the service
//! registered; no greeting of an earlier life comes after one of a later life; a server that leaves in order closes its service;
//! the memory of the bus survives crashes of its drive (a server that could not restore it would stop the run).
//!
//! Not verified: secrets that change, forgetting, elections of primaries (`ashlar sim bus` does that).

mod greeting;
pub(super) mod memory;

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ashlar_bus::saved::Saved;
use ashlar_grid::config::GridConfig;
use ashlar_grid::hello::Secrets;
use ashlar_grid::seam::{Runtime as _, Threads as _};
use ashlar_node::membership::view::{BusStatus, MemberState, MemberView};
use ashlar_node::{Node, Plan};
use ashlar_wire::id::{ClusterId, Incarnation, ServerId};
use ashlar_wire::secret::Secret;

use self::greeting::Greeting;
use self::memory::{Drive, DriveMemory};
use super::lock;
use super::whole::{Drained, WIND_DOWN_NS_MAX, accept, check_drained, leave_times};
use crate::swarm::{Bounds, Case, Params, host};
use crate::world::{Control, ServerNo, SimRuntime};

/// After the healing everything must work within this time: members are found again, suspicions end, greetings are tried again.
const CONVERGE_NS_MAX: u64 = 60_000_000_000;
/// How often a server's own view is looked at.
const LOOK: Duration = Duration::from_millis(200);
/// How long replicas would have to take over; there are none.
const HAND_OVER_MAX: Duration = Duration::from_millis(500);
/// How long a member may be silent. Short, so that failures are declared within a run.
const MEMBER_TIMEOUT: Duration = Duration::from_secs(2);

/// One life of a server.
struct Life {
    node: Node<SimRuntime>,
    runtime: SimRuntime,
    service: Greeting,
    seen: Arc<Mutex<Arc<BusStatus>>>,
    drained: Drained,
}

/// See the head of this file.
pub struct NodeCase {
    control: Control,
    servers: u32,
    /// What each server remembers.
    drives: BTreeMap<ServerNo, Drive>,
    lives: BTreeMap<ServerNo, Life>,
    wrong: Arc<Mutex<Option<String>>>,
    healed_ns: u64,
    converged_ns: u64,
    refused: u64,
    is_stopping: bool,
}

impl NodeCase {
    /// The case for one world.
    #[must_use]
    pub fn new(control: &Control, params: &Params) -> Self {
        Self {
            control: control.clone(),
            servers: params.servers,
            drives: BTreeMap::new(),
            lives: BTreeMap::new(),
            wrong: Arc::default(),
            healed_ns: 0,
            converged_ns: 0,
            refused: 0,
            is_stopping: false,
        }
    }

    fn others(&self, server: ServerNo) -> impl Iterator<Item = ServerNo> {
        (0..self.servers).map(ServerNo).filter(move |other| *other != server)
    }

    fn check_safety(&self) -> Result<(), String> {
        if let Some(wrong) = &*lock(&self.wrong) {
            return Err(wrong.clone());
        }
        for (server, life) in &self.lives {
            let ghosts = life.service.lock().ghosts;
            if ghosts > 0 {
                return Err(format!("{server:?} was greeted {ghosts} times by an earlier life after a later one"));
            }
        }
        Ok(())
    }

    /// What each server sees, for people.
    fn table(&self) -> String {
        let row = |(server, life): (&ServerNo, &Life)| {
            let seen = Arc::clone(&lock(&life.seen));
            let member =
                |member: &MemberView| format!(" {}:{:?}/{}", &member.server[30..], member.state, member.incarnation);
            let members: String = seen.members.iter().map(member).collect();
            let voters: Vec<&str> = seen.voters.iter().map(|voter| &voter[30..]).collect();
            let known = life.service.lock();
            let (greeted, heard) =
                (known.greeted.values().collect::<Vec<_>>(), known.heard.values().collect::<Vec<_>>());
            format!(
                "  {server:?} life {}: sees{members}; voters {voters:?}; greeted {greeted:?}, heard {heard:?}\n",
                life.runtime.life()
            )
        };
        self.lives.iter().map(row).collect()
    }

    fn check_converged(&self, server: ServerNo, life: &Life) -> Result<(), String> {
        let seen = Arc::clone(&lock(&life.seen));
        if !seen.majority {
            return Err(format!("{server:?} reaches no majority of the voters {:?}", seen.voters));
        }
        let known = life.service.lock();
        for other in self.others(server) {
            let id = server_id(other);
            let state = seen.members.iter().find(|member| member.server == id.to_string()).map(|member| member.state);
            if state != Some(MemberState::Alive) {
                return Err(format!("{server:?} sees {other:?} as {state:?}"));
            }
            if !known.alive.contains(&id) {
                return Err(format!("events have not told the agent of {server:?} that {other:?} is alive"));
            }
            if !known.greeted.contains_key(&id) {
                return Err(format!("{server:?} has not greeted {other:?}"));
            }
            let life = self.lives.get(&other).map_or(0, |life| u64::from(life.runtime.life()));
            if known.heard.get(&id) != Some(&life) {
                return Err(format!("{server:?} was not greeted by life {life} of {other:?}: {:?}", known.heard));
            }
        }
        Ok(())
    }
}

impl NodeCase {
    /// Asks a server to leave, after a while.
    fn drain_after(&mut self, server: ServerNo, after: Duration) {
        let Some(life) = self.lives.get(&server) else { return };
        let (node, service) = (life.node.clone(), life.service.clone());
        let (drained, wrong) = (life.drained.clone(), Arc::clone(&self.wrong));
        let runtime = life.runtime.clone();
        runtime.clone().spawn(Box::pin(async move {
            runtime.sleep_until(runtime.now() + after).await;
            node.hand_over(HAND_OVER_MAX).await;
            node.say_goodbye().await;
            let unsettled = node.drain().await;
            if !service.lock().is_closed {
                *lock(&wrong) = Some(format!("{server:?} was drained, and its service was not closed"));
            }
            drained.set(unsettled);
        }));
    }
}

impl Case for NodeCase {
    fn start(&mut self, runtime: SimRuntime) {
        let server = runtime.server();
        let drive = self.drives.entry(server).or_default().clone();
        let service = Greeting::new(u64::from(runtime.life()));
        let rng = self.control.rng("drive", u64::from(server.0) << 32 | u64::from(runtime.life()));
        let memory = DriveMemory::new(drive.clone(), runtime.clone(), rng);
        let shared = Arc::new(runtime.clone());
        let plan = plan(&self.control, &runtime, &drive);
        let begun = Node::start(shared.clone(), shared, plan, memory, vec![Box::new(service.clone())]);
        let (node, bus) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                *lock(&self.wrong) = Some(format!("{server:?} cannot restore the memory of its bus: {error}"));
                return self.control.finish();
            }
        };
        runtime.spawn(bus);
        accept(&runtime, &node);
        let seen = Arc::<Mutex<Arc<BusStatus>>>::default();
        let (watched, clock, shown) = (node.clone(), runtime.clone(), Arc::clone(&seen));
        runtime.spawn(Box::pin(async move {
            loop {
                *lock(&shown) = watched.bus().await;
                clock.sleep_until(clock.now() + LOOK).await;
            }
        }));
        self.lives.insert(server, Life { node, runtime, service, seen, drained: Drained::default() });
    }

    fn killed(&mut self, server: ServerNo) {
        if let Some(life) = self.lives.remove(&server) {
            self.refused += life.service.lock().refused;
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
    }

    fn bounds(&self) -> Bounds {
        Bounds { converge_ns: CONVERGE_NS_MAX, wind_down_ns: WIND_DOWN_NS_MAX }
    }

    fn converged(&mut self) -> Result<(), String> {
        self.check_safety()?;
        let checked = self.lives.iter().try_for_each(|(server, life)| self.check_converged(*server, life));
        checked.map_err(|wrong| format!("{wrong}\n{}", self.table()))?;
        self.converged_ns = self.control.now_ns() - self.healed_ns;
        Ok(())
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
        let lives = self.lives.values().map(|life| u64::from(life.runtime.life())).sum();
        let refused = self.lives.values().map(|life| life.service.lock().refused).sum::<u64>() + self.refused;
        vec![("lives", lives), ("greetings_failed", refused), ("converge_ms", self.converged_ns / 1_000_000)]
    }
}

/// What a server is told at the start of a life: server 0 founds the cluster, the others join it and may meet each other before.
pub(super) fn plan(control: &Control, runtime: &SimRuntime, drive: &Drive) -> Plan {
    let server = runtime.server();
    let incarnation = Incarnation(u64::from(runtime.life()));
    let secrets = Secrets::new(Secret::from_bytes([1; 32]));
    let grid = GridConfig::new(cluster(), server_id(server), incarnation, address(server), secrets);
    let written = drive.read();
    let founder = ServerNo(0);
    let bus = ashlar_bus::Config {
        member_timeout: MEMBER_TIMEOUT,
        founds: server == founder,
        ..ashlar_bus::Config::default()
    };
    let join = (0..3).map(ServerNo).filter(|other| *other != server).map(address).collect();
    let mut seed = control.rng("bus", u64::from(server.0) << 32 | u64::from(runtime.life()));
    Plan {
        grid,
        is_tls: false,
        pid: server.0,
        join: if server == founder { Vec::new() } else { join },
        met: written.members,
        bus,
        zone: String::new(),
        saved: if written.bus.is_empty() { Saved::new(cluster(), server_id(server)).encode() } else { written.bus },
        seed: seed.next_u64(),
    }
}

pub(super) fn cluster() -> ClusterId {
    ClusterId::from_bytes([9; 16])
}

pub(super) fn server_id(server: ServerNo) -> ServerId {
    let mut bytes = [0x5a; 16];
    bytes[15] = server.0 as u8;
    ServerId::from_bytes(bytes)
}

pub(super) fn address(server: ServerNo) -> String {
    format!("{}:7800", host(server))
}
