//! Whole servers with cloud disks: grid, bus, catalog, placement groups, stores on drives, and guests that use volumes, on a fake world.
//!
//! Each server has one drive. Two volumes of three copies lie on all of them. A guest attaches its volume at a server, reads and
//! writes there, several requests at a time, and comes back at another server when that one ends or the volume is taken from it. In two
//! thirds of the worlds it sometimes deletes the volume and makes another, which has nothing of the former one.
//! Drives take time, forget what was not synced and tear it by sectors; in half of the worlds one of them also rots, loses and
//! misplaces writes, reads with errors and fails. A third of the worlds have owners of drives that come late to their inbox.
//!
//! Verified: the history of every 2 KiB of a volume is one of a register, and a write of an attachment that was fenced is done before
//! that or never; no request fails but for the end of its server or attachment; of each placement group at most one member would serve.
//! After everything heals each guest writes and reads again everything it ever wrote, the catalog is the same everywhere and every
//! placement group has all its members. Then the power fails everywhere while guests write, and comes back: the same bars. Then a link of
//! the catalog's leader is cut, and everything goes on by way of others: the same bars. The link comes back, and one server
//! ends, in half of the worlds in order, and then no placement group has its drive any more when it does: the others go on with the same
//! bars. It comes back, in half of the worlds with an empty drive, and once more everything is as
//! it was.
//!
//! Not verified: NBD, space that runs out, volumes that grow, drives that are drained.

pub(super) mod device;
mod drive;
mod guest;
pub(super) mod load;
mod oracle;
mod planted;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use ashlar_catalog::server::DriveClass;
use ashlar_grid::seam::{Runtime as _, Threads as _};
use ashlar_node::Node;
use ashlar_node::catalog::{CatalogHandle, CatalogOptions, CatalogService, DriveHere, FIRST_SET, RegisterError};
use ashlar_node::volume::drive_host::DriveHost;
use ashlar_node::volume::drive_port::DrivePort;
use ashlar_node::volume::service::VolumeService;
use ashlar_placement::map::{GroupId, PgId};
use ashlar_wire::id::DriveId;

use self::device::{Device, Habits};
use self::drive::{Inbox, Owner, TOLD_BYTES};
use self::guest::GuestLoad;
use self::load::{Birth, Load};
pub(super) use self::planted::{bugs, plant};
use super::agreement::{agreed, check_state};
use super::catalog::disk::{Disk, DiskStorage};
use super::lock;
use super::node::memory::{Drive, DriveMemory};
use super::node::{plan, server_id};
use super::whole::{Drained, Seen, WIND_DOWN_NS_MAX, accept, check_drained, leave_times};
use crate::rng::Rng;
use crate::swarm::{Bounds, Case, Params};
use crate::world::{Control, Kill, ServerNo, SimRuntime};

/// Long enough for servers to find each other and for guests to begin.
pub(super) const CALM_NS: u64 = 6_000_000_000;
/// After the healing everything must work within this time: elections, copies that are filled, a server that stops, a drive that is
/// given up after a minute and made anew.
const CONVERGE_NS_MAX: u64 = 300_000_000_000;
/// Placement groups of the set: few, so that many seeds can be run.
const PGS: u32 = 6;
/// Copies of everything.
const COPIES: u8 = 3;
/// After this long a server that does not come back is brought back where it is missed.
const MISSED_NS: u64 = 60_000_000_000;
/// After how long a drive that its server does not have any more is given up.
const MISSING: Duration = Duration::from_secs(5);
/// How often it is looked who would serve.
const LOOK: Duration = Duration::from_millis(50);

/// Links carry what copies of extents of 1 MiB need: a network of 1 Gbit/s at least, with pauses as all have them.
pub(super) fn adapt(params: &mut Params) {
    let world = &mut params.world;
    world.send_bytes_max = world.send_bytes_max.max(256 << 10);
    world.receive_bytes_max = world.receive_bytes_max.max(256 << 10);
    let link = &mut world.link;
    link.latency_ns = link.latency_ns.min(1_000_000);
    link.jitter_ns = link.jitter_ns.min(1_000_000);
    link.bytes_per_s = link.bytes_per_s.max(125_000_000);
    link.segment_bytes_max = link.segment_bytes_max.max(8_960);
    link.loss_ppm = link.loss_ppm.min(500);
}

/// How the drives of a world are.
#[derive(Debug, Clone, Copy)]
pub(super) struct DriveHabits {
    /// The server whose first drive does what it must not.
    pub(super) bad: Option<ServerNo>,
    pub(super) good: Habits,
    pub(super) worse: Habits,
}

impl DriveHabits {
    /// Those of the first drive of a server.
    pub(super) fn of(&self, server: ServerNo) -> Habits {
        if self.bad == Some(server) { self.worse } else { self.good }
    }
}

/// What a server has over all its lives.
struct Machine {
    memory: Drive,
    disk: Disk,
    device: Device,
    /// The drive that is on the device.
    drive: DriveId,
    drives_made: u8,
}

/// One life of a server.
struct Life {
    node: Node<SimRuntime>,
    runtime: SimRuntime,
    catalog: CatalogHandle,
    host: Arc<Mutex<DriveHost>>,
    inbox: Inbox,
    drained: Drained,
    bus: Seen,
}

/// What is waited for after the healing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Everything is as it should be.
    Healing,
    /// The guests are busy, and the power is about to fail.
    Busy,
    /// The power has failed everywhere, and has come back.
    Dark,
    /// The link between these two was cut, and everything goes on by way of others.
    Apart(ServerNo, ServerNo),
    /// This server is about to stop in order.
    Leaving(ServerNo),
    /// This server was stopped, and the others go on without it.
    Without(ServerNo),
    /// It was started again, and everything is as before.
    Again,
}

/// Hosts of drives that run, with the clocks that they go by.
type Hosts = Arc<Mutex<BTreeMap<ServerNo, (SimRuntime, Arc<Mutex<DriveHost>>)>>>;

/// See the head of this file.
pub struct ClusterCase {
    control: Control,
    servers: u32,
    habits: DriveHabits,
    busy_ppm: u32,
    replaces: bool,
    /// The last server that ends does so in order.
    leaves: bool,
    machines: BTreeMap<ServerNo, Machine>,
    lives: BTreeMap<ServerNo, Life>,
    /// Servers that were told to stop and have not ended: they serve nothing any more.
    draining: BTreeSet<ServerNo>,
    hosts: Hosts,
    load: Box<dyn Load>,
    wrong: Arc<Mutex<Option<String>>>,
    stage: Stage,
    /// The histories were looked at.
    is_complete: bool,
    healed_ns: u64,
    converged_ns: u64,
    /// When the link was cut, and how long it then took until everything was as it should be.
    cut_ns: u64,
    apart_ns: u64,
    /// The server that was not to come back had to.
    came_back: bool,
    is_stopping: bool,
}

impl ClusterCase {
    /// Guests that use volumes, in one world.
    #[must_use]
    pub fn new(control: &Control, params: &Params) -> Self {
        Self::with_load(control, params, |rng, _| {
            let takes_ppm = rng.pick(&[0, 20_000, 200_000]);
            Box::new(GuestLoad::new(takes_ppm, rng.pick(&[0, 100_000, 400_000])))
        })
    }

    /// The case of one world with this load, which is told how the drives of a server are.
    pub(super) fn with_load(
        control: &Control,
        params: &Params,
        load: impl FnOnce(&mut Rng, DriveHabits) -> Box<dyn Load>,
    ) -> Self {
        let mut rng = Rng::new(params.seed).fork("cluster", 0);
        let bad = rng.chance(500_000).then(|| ServerNo(rng.below(params.servers.into()) as u32));
        let good = Habits { nanos_max: rng.pick(&[300_000, 3_000_000, 30_000_000]), wrong_ppm: 0, fails_ppm: 0 };
        let worse = Habits {
            nanos_max: rng.pick(&[good.nanos_max, 300_000_000]),
            wrong_ppm: rng.pick(&[0, 30_000, 300_000]),
            fails_ppm: rng.pick(&[0, 0, 3_000]),
        };
        let habits = DriveHabits { bad, good, worse };
        let busy_ppm = rng.pick(&[0, 0, 50_000]);
        let load = load(&mut rng, habits);
        let case = Self {
            control: control.clone(),
            servers: params.servers,
            habits,
            busy_ppm,
            replaces: rng.chance(500_000),
            leaves: control.rng("leaves", 0).chance(500_000),
            machines: BTreeMap::new(),
            lives: BTreeMap::new(),
            draining: BTreeSet::new(),
            hosts: Arc::default(),
            load,
            wrong: Arc::default(),
            stage: Stage::Healing,
            is_complete: false,
            healed_ns: 0,
            converged_ns: 0,
            cut_ns: 0,
            apart_ns: 0,
            came_back: false,
            is_stopping: false,
        };
        control.spawn(watch(control.clone(), Arc::clone(&case.hosts), Arc::clone(&case.wrong)));
        case
    }

    fn rng(&self, label: &str, runtime: &SimRuntime) -> Rng {
        self.control.rng(label, u64::from(runtime.server().0) << 32 | u64::from(runtime.life()))
    }

    fn check_safety(&self) -> Result<(), String> {
        if let Some(wrong) = &*lock(&self.wrong) {
            return Err(wrong.clone());
        }
        self.load.wrong().map_or(Ok(()), Err)
    }

    fn check_converged(&self) -> Result<(), String> {
        self.load.check_round(&self.lives.values().map(|life| &life.runtime).collect::<Vec<_>>())?;
        if let Some((server, _)) = self.lives.iter().find(|(_, life)| !life.bus.knows_voters()) {
            return Err(format!("the bus of {server:?} knows no voters"));
        }
        let state = agreed(self.lives.iter().map(|(server, life)| (*server, &life.catalog)))?;
        let drives = self.machines.iter().map(|(server, machine)| (*server, machine.drive)).collect();
        let stopped = if let Stage::Without(server) = self.stage { Some(server) } else { None };
        check_state(&state, &drives, stopped.or_else(|| self.lost()))
    }

    /// The server that never comes back, once everything else has healed.
    fn lost(&self) -> Option<ServerNo> {
        let is_lost = |server: &ServerNo| self.stage == Stage::Healing && !self.lives.contains_key(server);
        (0..self.servers).map(ServerNo).find(is_lost)
    }

    /// Whether the server that does not come back is the last one that may have what a placement group acknowledged: it took the others out
    /// a moment before, as it had lost sight of them. Whoever runs the cluster has to bring it back then.
    fn is_missed(&self, lost: ServerNo) -> bool {
        let state = self.lives.values().find_map(|life| life.catalog.state_now());
        let drive = self.machines.get(&lost).map(|machine| machine.drive);
        state.is_some_and(|state| {
            state
                .pgs_of(FIRST_SET)
                .any(|(_, config)| Some(&config.acting[..]) == drive.as_ref().map(core::slice::from_ref))
        })
    }

    /// What each server sees, for people.
    fn table(&self) -> String {
        let row = |(server, life): (&ServerNo, &Life)| {
            let host = lock(&life.host);
            let now = life.runtime.now();
            let serving = (0..PGS).filter(|pg| host.is_serving(now, group(*pg))).collect::<Vec<_>>();
            let (run, is_settled, free) = (life.runtime.life(), host.is_settled(), host.store().free_extents());
            let catalog = life.catalog.status();
            format!(
                "  {server:?} life {run}: serves {serving:?}, settled {is_settled}, {free} extents free, {catalog:?}\n"
            )
        };
        let states = self.lives.values().filter_map(|life| life.catalog.state_now());
        let newest = states.max_by_key(|state| state.version());
        let sets = newest.iter().flat_map(|state| state.sets().map(move |set| (state, set.id)));
        let groups = sets.flat_map(|(state, set)| state.pgs_of(set).map(move |(pg, config)| (set, pg, config)));
        let groups = groups.map(|(set, pg, config)| format!("  {set:?} {pg:?} {config:?}\n"));
        self.lives.iter().map(row).chain(groups).collect()
    }

    /// A link of the server that leads the catalog, where one is known.
    fn choose_link(&self) -> (ServerNo, ServerNo) {
        let mut rng = self.control.rng("apart", 0);
        let leads = |life: &Life| life.catalog.status().is_some_and(|status| status.leader == Some(life.node.id()));
        let one = self.lives.iter().find(|(_, life)| leads(life)).map_or(ServerNo(0), |(server, _)| *server);
        let other = rng.below(u64::from(self.servers - 1)) as u32;
        (one, ServerNo(if other >= one.0 { other + 1 } else { other }))
    }

    fn choose_victim(&self) -> ServerNo {
        ServerNo(self.control.rng("victim", 0).below(u64::from(self.servers)) as u32)
    }

    fn stop(&mut self, server: ServerNo) {
        self.control.kill(server, Kill::Process);
        self.killed(server);
    }

    /// Whether a server that was to stop in order has done so, and then whether others have taken over what it had.
    fn has_left(&self, server: ServerNo) -> Result<bool, String> {
        if !self.is_drained(server) {
            return Ok(false);
        }
        let drive = self.machines[&server].drive;
        let others = self.lives.iter().filter(|(other, _)| **other != server);
        let newest = others.filter_map(|(_, life)| life.catalog.state_now()).max_by_key(|state| state.version());
        let state = newest.ok_or("nobody else has a catalog")?;
        let names = |set| state.pgs_of(set).filter(|(_, config)| config.is_member(drive)).count();
        match state.sets().map(|set| names(set.id)).sum() {
            0 => Ok(true),
            left => Err(format!("{server:?} has left in order, and {left} placement groups have its drive")),
        }
    }

    /// All servers lose their power at the same moment, and have it again.
    fn fail_power(&mut self) {
        let servers: Vec<ServerNo> = self.lives.keys().copied().collect();
        for server in &servers {
            self.control.kill(*server, Kill::Process);
            self.killed(*server);
        }
        for server in servers {
            let runtime = self.control.start(server);
            self.start(runtime);
        }
    }

    /// A drive for a device that has none: another one than was ever there.
    fn make_drive(&self, server: ServerNo, number: u8, device: &Device) -> DriveId {
        let mut id = [0xd0 + server.0 as u8; 16];
        id[15] = number;
        let drive = DriveId::from_bytes(id);
        let mut rng = self.control.rng("format", u64::from(server.0) << 8 | u64::from(number));
        drive::format(device, server_id(server), drive, &mut rng);
        drive
    }

    fn make_machine(&self, server: ServerNo) -> Machine {
        let device = Device::new(self.habits.of(server));
        let drive = self.make_drive(server, 1, &device);
        Machine { memory: Drive::default(), disk: Disk::default(), device, drive, drives_made: 1 }
    }

    /// The drive of a server that is down was lost, and an empty one is in its place.
    fn replace(&mut self, server: ServerNo) {
        let device = Device::new(self.habits.good);
        let number = self.machines[&server].drives_made + 1;
        let drive = self.make_drive(server, number, &device);
        let machine = self.machines.get_mut(&server).expect("it has run");
        (machine.device, machine.drive, machine.drives_made) = (device, drive, number);
    }

    fn begin(&mut self, runtime: SimRuntime) -> Result<(), String> {
        let server = runtime.server();
        if !self.machines.contains_key(&server) {
            let machine = self.make_machine(server);
            self.machines.insert(server, machine);
        }
        let Machine { memory, disk, device, drive, .. } = &self.machines[&server];
        let host = drive::open(runtime.now(), device, *drive, &mut self.rng("open", &runtime))
            .map_err(|wrong| format!("{server:?}: {wrong}"))?;
        let host = Arc::new(Mutex::new(host));
        let inbox = Inbox::default();
        let storage = DiskStorage::new(disk.clone(), runtime.clone(), self.rng("disk", &runtime));
        let options = CatalogOptions { copies: COPIES, pgs: PGS, ..CatalogOptions::default() };
        let service = CatalogService::new(options, Arc::new(storage));
        let catalog = service.handle();
        let volumes = VolumeService::<SimRuntime>::new(catalog.clone());
        let port: Arc<dyn DrivePort> = Arc::new(inbox.clone());
        volumes.set_drives(BTreeMap::from([(*drive, port)]));
        let remembered = DriveMemory::new(memory.clone(), runtime.clone(), self.rng("memory", &runtime));
        let shared = Arc::new(runtime.clone());
        let plan = plan(&self.control, &runtime, memory);
        let birth =
            Birth { control: self.control.clone(), runtime: runtime.clone(), drive: *drive, volumes: volumes.clone() };
        let mut services: Vec<Box<dyn ashlar_node::service::Service<SimRuntime>>> =
            vec![Box::new(service), Box::new(volumes.clone())];
        services.extend(self.load.services(&birth)?);
        let (node, bus) = Node::start(shared.clone(), shared, plan, remembered, services)
            .map_err(|error| format!("{server:?} cannot restore the memory of its bus: {error}"))?;
        runtime.spawn(bus);
        accept(&runtime, &node);
        let owner = Owner {
            runtime: runtime.clone(),
            device: device.clone(),
            host: Arc::clone(&host),
            inbox: inbox.clone(),
            rng: self.rng("drive", &runtime),
            busy_ppm: self.busy_ppm,
        };
        let outputs = volumes.clone();
        runtime.spawn(Box::pin(owner.run(move |drive, wanted| outputs.handle_outputs(drive, wanted))));
        let register = register(volumes.clone(), *drive, Arc::clone(&self.wrong), self.control.clone());
        runtime.spawn(Box::pin(register));
        self.load.begin(&birth);
        lock(&self.hosts).insert(server, (runtime.clone(), Arc::clone(&host)));
        let bus = Seen::watch(&runtime, &node);
        self.lives.insert(server, Life { node, runtime, catalog, host, inbox, drained: Drained::default(), bus });
        Ok(())
    }
}

const fn group(pg: u32) -> GroupId {
    GroupId { set: FIRST_SET, pg: PgId(pg) }
}

/// Makes the drive known, and those that are not there any more.
async fn register(
    volumes: VolumeService<SimRuntime>,
    drive: DriveId,
    wrong: Arc<Mutex<Option<String>>>,
    control: Control,
) {
    let catalog = volumes.catalog();
    match catalog.register_drive(drive, TOLD_BYTES, DriveClass::Ssd).await {
        Ok(()) => {
            let here = |id| DriveHere { is_broken: volumes.is_broken(id), keeps_objects: true };
            catalog.keep_drives(|id| (id == drive).then(|| here(id)), MISSING).await;
        }
        Err(RegisterError::Stopped(_)) => {}
        Err(error) => {
            *lock(&wrong) = Some(format!("a drive cannot be registered: {error}"));
            control.finish();
        }
    }
}

/// Looks again and again whether two members of a placement group would serve at the same time.
async fn watch(control: Control, hosts: Hosts, wrong: Arc<Mutex<Option<String>>>) {
    loop {
        for pg in 0..PGS {
            let serving: Vec<ServerNo> = lock(&hosts)
                .iter()
                .filter(|(_, (runtime, host))| lock(host).is_serving(runtime.now(), group(pg)))
                .map(|(server, _)| *server)
                .collect();
            if serving.len() > 1 {
                *lock(&wrong) = Some(format!("{serving:?} would serve placement group {pg} at the same time"));
                return control.finish();
            }
        }
        control.sleep(LOOK).await;
    }
}

impl ClusterCase {
    /// Asks a server to leave, after a while.
    fn drain_after(&mut self, server: ServerNo, after: Duration) {
        let Some(life) = self.lives.get(&server) else { return };
        self.draining.insert(server);
        let (node, catalog) = (life.node.clone(), life.catalog.clone());
        let (drained, inbox) = (life.drained.clone(), life.inbox.clone());
        let runtime = life.runtime.clone();
        runtime.clone().spawn(Box::pin(async move {
            runtime.sleep_until(runtime.now() + after).await;
            catalog.depart().await;
            node.say_goodbye().await;
            let unsettled = node.drain().await;
            inbox.stop();
            drained.set(unsettled);
        }));
    }
}

impl Case for ClusterCase {
    fn start(&mut self, runtime: SimRuntime) {
        if let Err(wrong) = self.begin(runtime) {
            *lock(&self.wrong) = Some(wrong);
            self.control.finish();
        }
    }

    fn killed(&mut self, server: ServerNo) {
        let Some(life) = self.lives.remove(&server) else { return };
        self.draining.remove(&server);
        lock(&self.hosts).remove(&server);
        self.load.killed(&self.control, &life.runtime);
        if let Some(machine) = self.machines.get(&server) {
            machine.disk.crash(&mut self.rng("crash", &life.runtime));
            machine.device.crash(&mut self.rng("tear", &life.runtime));
        }
    }

    fn drain(&mut self, server: ServerNo) {
        self.drain_after(server, Duration::ZERO);
    }

    fn is_drained(&self, server: ServerNo) -> bool {
        self.lives.get(&server).is_none_or(|life| life.drained.is_set())
    }

    fn can_lose_one(&self) -> bool {
        // What rotted on one drive may be on no other but that server's.
        if self.habits.bad.is_some() || !self.load.can_lose_one() {
            return false;
        }
        // A catalog of one voter, and a placement group of one member that runs, cannot do without it.
        if !self.lives.values().all(|life| life.bus.knows_voters()) {
            return false;
        }
        // Until the one voter at the beginning has handed over to three, nothing is decided without it.
        let changes = |life: &Life| life.catalog.status().is_none_or(|status| status.is_changing_voters);
        if self.lives.values().any(changes) {
            return false;
        }
        let states = self.lives.values().filter_map(|life| life.catalog.state_now());
        states.max_by_key(|state| state.version()).is_some_and(|state| {
            let runs = |drive: &DriveId| {
                let is_here =
                    |server: &ServerNo| self.machines[server].drive == *drive && !self.draining.contains(server);
                self.lives.keys().any(is_here)
            };
            // One that was never there is not waited for.
            let is_known = |machine: &Machine| state.drive(machine.drive).is_some_and(|drive| drive.set.is_some());
            let mut pgs = state.pgs_of(FIRST_SET).peekable();
            let is_held_twice = |acting: &[DriveId]| acting.iter().filter(|drive| runs(drive)).count() >= 2;
            state.voters().len() >= 3
                && self.machines.values().all(is_known)
                && pgs.peek().is_some()
                && pgs.all(|(_, config)| is_held_twice(&config.acting))
        })
    }

    fn healed(&mut self) {
        self.healed_ns = self.control.now_ns();
        self.machines.values().for_each(|machine| machine.device.heal());
        // Before a server is started again: it opens its drives at once, and one that failed just then would be out to the end.
        self.load.healed();
        // A drive that failed is out until somebody has looked after it.
        let failed = |server: &ServerNo| self.machines[server].device.has_failed() || self.load.has_failed(*server);
        let failed: Vec<ServerNo> = self.lives.keys().copied().filter(failed).collect();
        for server in failed {
            self.control.kill(server, Kill::Process);
            self.killed(server);
            let runtime = self.control.start(server);
            self.start(runtime);
        }
        self.load.ask_for_a_round(true);
    }

    fn bounds(&self) -> Bounds {
        Bounds { converge_ns: CONVERGE_NS_MAX, wind_down_ns: WIND_DOWN_NS_MAX }
    }

    fn converged(&mut self) -> Result<(), String> {
        self.check_safety()?;
        if let Some(lost) = self.lost()
            && self.control.now_ns() - self.healed_ns > MISSED_NS
            && self.is_missed(lost)
        {
            self.came_back = true;
            let runtime = self.control.start(lost);
            self.start(runtime);
        }
        if self.stage == Stage::Busy {
            self.fail_power();
            self.stage = Stage::Dark;
        }
        if let Stage::Leaving(server) = self.stage {
            if !self.has_left(server)? {
                return Err("a server leaves".into());
            }
            self.stop(server);
            self.stage = Stage::Without(server);
            self.load.ask_for_a_round(false);
        }
        self.check_converged().map_err(|wrong| format!("{:?}: {wrong}\n{}", self.stage, self.table()))?;
        match self.stage {
            Stage::Healing => {
                self.converged_ns = self.control.now_ns() - self.healed_ns;
                if self.lost().is_some() {
                    return Ok(());
                }
                self.stage = Stage::Busy;
                self.load.ask_for_a_round(true);
                Err("the guests are busy".into())
            }
            Stage::Busy | Stage::Leaving(_) => unreachable!("nobody waits for that"),
            Stage::Dark => {
                let (one, other) = self.choose_link();
                self.control.cut(one, other);
                self.control.cut(other, one);
                self.stage = Stage::Apart(one, other);
                self.cut_ns = self.control.now_ns();
                self.load.ask_for_a_round(true);
                Err("a link was cut".into())
            }
            Stage::Apart(one, other) => {
                self.apart_ns = self.control.now_ns() - self.cut_ns;
                self.control.heal(one, other);
                self.control.heal(other, one);
                let server = self.choose_victim();
                if self.leaves {
                    self.stage = Stage::Leaving(server);
                    self.drain_after(server, Duration::ZERO);
                } else {
                    self.stop(server);
                    self.stage = Stage::Without(server);
                    self.load.ask_for_a_round(false);
                }
                Err("a server was stopped".into())
            }
            Stage::Without(server) => {
                self.stage = Stage::Again;
                if self.replaces {
                    self.replace(server);
                }
                let runtime = self.control.start(server);
                self.start(runtime);
                self.load.ask_for_a_round(true);
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
        if self.is_stopping {
            check_drained(&self.lives, |life| &life.drained)?;
        }
        if !self.is_complete {
            self.load.check_histories()?;
            self.is_complete = true;
        }
        Ok(())
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let lives = self.lives.values().map(|life| u64::from(life.runtime.life())).sum();
        let millis = |nanos: u64| nanos / 1_000_000;
        let mut counters =
            vec![("lives", lives), ("converge_ms", millis(self.converged_ns)), ("apart_ms", millis(self.apart_ns))];
        counters.push(("came_back", u64::from(self.came_back)));
        counters.extend(self.load.counters());
        let mut wrongs = self.load.wrongs();
        self.machines.values().for_each(|machine| wrongs.add(machine.device.wrongs()));
        counters.extend(wrongs.counters());
        counters
    }
}
