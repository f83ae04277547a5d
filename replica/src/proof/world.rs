//! The world of one seed: servers with one drive each, the network, the catalog, clients, and true time.
//!
//! Endpoints have numbers: servers from 0, then the catalog, then clients. An event happens at a point of true time;
//! every server has a clock of its own that is off and runs fast or slow within the bound.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use ashlar_placement::map::{GroupId, PgId, SetId};
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::{DriveId, VolumeId};
use ashlar_wire::time::Instant;
use bytes::Bytes;

use super::Outcome;
use super::catalog::Catalog;
use super::chance::Chance;
use super::client::Client;
use super::history::{Block, History};
use super::store::Store;
use crate::config::{Configuration, Settings, Witnesses};
use crate::error::Refusal;
use crate::life::Life;
use crate::member::{Member, Output, Report};
use crate::message::Fault;
use crate::message::form::{decode, encode};
use crate::planted::{Bugs, Planted};
use crate::record::Record;
use crate::request::{ClientRequest, ClientResult, Generation, RequestId, Room, SessionId, StoreId};

mod clients;
mod faults;

/// Earlier configurations of a group that a server may hear of when it starts.
const PAST_TOLD: usize = 3;
/// How often, in 1,000 completed requests, a drive drops the extents without blocks that it may.
const DROP_CHANCE: u64 = 500;
/// Nanoseconds of a millisecond.
pub const MS: u64 = 1_000_000;

/// Which faults happen, and how often: chances in 1,000.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// A message is lost.
    pub loss: u64,
    /// A message comes twice.
    pub double: u64,
    /// A message takes up to a second.
    pub late: u64,
    /// At a step: some servers are cut off, in one or both directions.
    pub partition: u64,
    /// At a step: two endpoints lose each other.
    pub pair: u64,
    /// At a step: a server crashes.
    pub crash: u64,
    /// At a step: all servers crash at once.
    pub blackout: u64,
    /// Of the crashes: the drive is empty afterwards.
    pub empty: u64,
    /// At a step: a process stands still.
    pub pause: u64,
    /// At a step: a drive becomes slow.
    pub slow: u64,
    /// At a step: the catalog takes a member out that may be well.
    pub suspect: u64,
    /// At a step: the catalog makes another acting member the primary.
    pub hand_over: u64,
    /// At a step: a volume is attached by another client.
    pub takeover: u64,
    /// At a step: a volume is deleted, of which drives hear one after another, and another one takes its place.
    pub delete: u64,
    /// At a step: a drive has no room for more for a while, which its members may hear of late.
    pub full: u64,
    /// At a step: a drive has other bytes than were written to an extent.
    pub damage: u64,
    /// Of the groups at the beginning: the catalog takes members out before anybody has heard of the group.
    pub early: u64,
    /// A server that starts hears of earlier configurations first, of one that comes much later.
    pub stale: u64,
}

/// What a world is made of.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// All chance comes from it.
    pub seed: u64,
    /// Servers, 1 to 5.
    pub servers: u64,
    /// Placement groups.
    pub groups: u32,
    /// Acting members that writes need.
    pub min_copies: u8,
    /// Clients.
    pub clients: u64,
    /// Clocks drift by up to this many millionths.
    pub drift_ppm: u64,
    /// What goes wrong.
    pub faults: Faults,
    /// How long things go wrong.
    pub faults_ms: u64,
    /// The bug, if there is one.
    pub planted: Option<Planted>,
}

impl Options {
    /// A world without faults.
    #[must_use]
    pub fn quiet(seed: u64, servers: u64) -> Self {
        Self {
            seed,
            servers,
            groups: 1,
            min_copies: if servers > 1 { 2 } else { 1 },
            clients: 2,
            drift_ppm: 0,
            faults: Faults::default(),
            faults_ms: 0,
            planted: None,
        }
    }

    /// The world of a seed of the swarm: each kind of fault happens in some of them.
    #[must_use]
    pub fn draw(seed: u64, planted: Option<Planted>) -> Self {
        let mut chance = Chance::new(seed ^ 0x5ee_d0ff);
        // A third of the seeds are storms: everything goes wrong, and often.
        let (kinds, often) = if seed % 3 == 2 { (850, 3) } else { (550, 1) };
        let mut maybe = |most: u64| if chance.is(kinds) { 1 + chance.below(most * often) } else { 0 };
        let faults = Faults {
            loss: maybe(100),
            double: maybe(100),
            late: maybe(60),
            partition: maybe(100),
            pair: maybe(150),
            crash: maybe(120),
            blackout: maybe(25),
            empty: maybe(300),
            pause: maybe(150),
            slow: maybe(150),
            suspect: maybe(60),
            takeover: maybe(60),
            full: maybe(120),
            stale: maybe(300),
            damage: maybe(80),
            early: 0,
            delete: 0,
            hand_over: 0,
        };
        let mut chance_of_deletions = Chance::new(seed ^ 0x0de1_e7ed);
        let early = if seed % 8 == 7 { 500 } else { 0 };
        let delete = if chance_of_deletions.is(500) { 1 + chance_of_deletions.below(60) } else { 0 };
        let mut chance_of_hand_overs = Chance::new(seed ^ 0x04a7_d0e4);
        let hand_over = if chance_of_hand_overs.is(500) { 1 + chance_of_hand_overs.below(100) } else { 0 };
        let faults = Faults { early, delete, hand_over, ..faults };
        let mut chance = Chance::new(seed ^ 0x0dd_0bed);
        Self {
            seed,
            servers: chance.between(3, 5),
            groups: u32::try_from(chance.between(1, 3)).expect("three at most"),
            min_copies: if chance.is(700) { 2 } else { 1 },
            clients: chance.between(2, 4),
            drift_ppm: if chance.is(500) { 9_900 } else { 0 },
            faults,
            faults_ms: chance.between(6_000, 10_000),
            planted,
        }
    }

    fn settings(&self) -> Settings {
        Settings {
            lease: Duration::from_millis(400),
            guard: Duration::from_millis(500),
            silence: Duration::from_millis(800),
            lag: Duration::from_secs(3),
            tick: Duration::from_millis(50),
            copies_max: 2,
            save_every: Duration::from_secs(1),
            awaited: Duration::from_secs(3),
            bugs: Bugs::new(self.planted),
        }
    }
}

/// A member and its store.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) member: Member,
    pub(super) store: Store,
    timer_at: u64,
}

/// A server with one drive.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) drive: DriveId,
    /// Counts its processes.
    life: u64,
    pub(super) is_up: bool,
    /// Nothing of it happens before.
    pub(super) paused_until: u64,
    pub(super) slow_until: u64,
    clock_offset: u64,
    drift_ppm: i64,
    pub(super) nodes: BTreeMap<GroupId, Node>,
    /// Stores of groups while the server is down.
    pub(super) stores: BTreeMap<GroupId, Store>,
}

impl Server {
    fn local(&self, now: u64) -> Instant {
        let drift = i128::from(now) * i128::from(self.drift_ppm) / 1_000_000;
        let local = i128::from(self.clock_offset) + i128::from(now) + drift;
        Instant::from_nanos(u64::try_from(local).expect("clocks begin far above zero"))
    }

    /// When its clock shows at least `local`.
    fn when(&self, local: Instant) -> u64 {
        let since = i128::from(local.as_nanos()) - i128::from(self.clock_offset);
        let now = since * 1_000_000 / (1_000_000 + i128::from(self.drift_ppm)) + 1_000;
        u64::try_from(now.max(0)).unwrap_or(u64::MAX)
    }
}

#[derive(Debug)]
pub(super) enum Event {
    Message { from: usize, to: usize, head: Vec<u8>, payload: Bytes },
    Stored { server: usize, life: u64, group: GroupId, id: StoreId },
    Timer { server: usize, life: u64, group: GroupId },
    Request { server: usize, client: usize, group: GroupId, request: ClientRequest },
    Reply { client: usize, request: RequestId, result: ClientResult },
    Report { group: GroupId, report: Report },
    Configuration { server: usize, configuration: Configuration },
    ClientConfiguration { client: usize, configuration: Configuration },
    ClientTick { client: usize },
    CatalogTick,
    FaultStep,
    Restart { server: usize },
    Room { server: usize, room: Room },
    Deleted { server: usize, volume: VolumeId },
    Unblock { pairs: Vec<(usize, usize)> },
}

/// The world.
#[derive(Debug)]
pub struct World {
    options: Options,
    pub(super) now: u64,
    pub(super) events: BTreeMap<(u64, u64), Event>,
    next_event: u64,
    pub(super) chance: Chance,
    pub(super) servers: Vec<Server>,
    /// From, to: nothing passes.
    pub(super) blocked: BTreeSet<(usize, usize)>,
    pub(super) catalog: Catalog,
    pub(super) clients: Vec<Client>,
    pub(super) history: History,
    /// The volumes that there are, and those that were.
    pub(super) volumes: Vec<VolumeId>,
    pub(super) deleted: Vec<VolumeId>,
    /// The generation of every volume as the catalog has it.
    pub(super) generations: BTreeMap<VolumeId, Generation>,
    /// A volume that goes to another client: to whom, and which members have not confirmed.
    pub(super) takeover: Option<Takeover>,
    /// Drives that lost their data and have not been taken back.
    blank: BTreeSet<(usize, GroupId)>,
    /// Drives that lost their data or went back to earlier ones, and when.
    pub(super) emptied: Vec<(u64, usize)>,
    /// When a write of each block was acknowledged last.
    acknowledged_at: BTreeMap<Block, u64>,
    /// Lives are drawn apart, so that their numbers change nothing else.
    lives: Chance,
    /// When drives drop extents without blocks is drawn apart, too.
    drops: Chance,
    /// Configurations of each group behind the first one, latest last.
    past: BTreeMap<GroupId, Vec<Configuration>>,
    next_tag: u64,
    is_faulty: bool,
    /// Clients begin requests by themselves.
    pub(super) has_load: bool,
    pub(super) outcome: Outcome,
}

/// A volume on its way to another client.
#[derive(Debug)]
pub(super) struct Takeover {
    pub(super) volume: VolumeId,
    pub(super) generation: Generation,
    pub(super) client: usize,
    pub(super) missing: BTreeSet<(usize, u64, GroupId)>,
}

fn drive_of(server: usize) -> DriveId {
    let number = u8::try_from(server + 1).expect("few servers");
    DriveId::from_bytes([number; 16])
}

impl World {
    /// A world at its beginning: every group has its first configuration.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        let mut chance = Chance::new(options.seed);
        let servers = (0..usize::try_from(options.servers).expect("few")).map(|number| Server {
            drive: drive_of(number),
            life: 0,
            is_up: false,
            paused_until: 0,
            slow_until: 0,
            clock_offset: 0,
            drift_ppm: 0,
            nodes: BTreeMap::new(),
            stores: BTreeMap::new(),
        });
        let mut world = Self {
            options: *options,
            now: 0,
            events: BTreeMap::new(),
            next_event: 0,
            servers: servers.collect(),
            blocked: BTreeSet::new(),
            catalog: Catalog::default(),
            clients: (0..options.clients).map(|_| Client::new(SessionId(chance.next_u64()))).collect(),
            history: History::default(),
            volumes: Vec::new(),
            deleted: Vec::new(),
            generations: BTreeMap::new(),
            takeover: None,
            blank: BTreeSet::new(),
            emptied: Vec::new(),
            acknowledged_at: BTreeMap::new(),
            lives: Chance::new(options.seed ^ 0x11fe),
            drops: Chance::new(options.seed ^ 0xd709),
            past: BTreeMap::new(),
            next_tag: 0,
            is_faulty: false,
            has_load: true,
            outcome: Outcome::default(),
            chance,
        };
        world.found();
        world
    }

    fn found(&mut self) {
        let all: Vec<DriveId> = self.servers.iter().map(|server| server.drive).collect();
        for pg in 0..self.options.groups {
            let group = GroupId { set: SetId(1), pg: PgId(pg) };
            let mut acting = all.clone();
            acting.rotate_left(pg as usize % all.len());
            let configuration = Configuration {
                group,
                epoch: Epoch(1),
                primary: acting[0],
                acting,
                learners: Vec::new(),
                min_copies: self.options.min_copies,
            };
            self.catalog.create(configuration);
            self.take_out_early(group);
        }
        for server in 0..self.servers.len() {
            self.start(server);
        }
        self.found_clients();
        self.schedule(0, Event::CatalogTick);
    }

    /// The catalog takes members out before any drive has heard of the group, and lets them come back.
    fn take_out_early(&mut self, group: GroupId) {
        let mut chance = Chance::new(self.options.seed ^ 0xea51 ^ u64::from(group.pg.0));
        if !chance.is(self.options.faults.early) {
            return;
        }
        for _ in 0..chance.between(1, 3) {
            let Configuration { epoch, acting, .. } = self.catalog.configuration(group).clone();
            let member = acting[chance.index(acting.len())];
            let report = Report::Lost { epoch, member, fault: Fault::Silent };
            self.catalog.handle_report(group, report, chance.between(500, 3_000) * MS);
        }
    }

    pub(super) fn schedule(&mut self, at: u64, event: impl Into<Scheduled>) {
        self.next_event += 1;
        self.events.insert((at, self.next_event), event.into().0);
    }

    /// Starts the process of a server: members with what their stores have kept.
    pub(super) fn start(&mut self, number: usize) {
        let settings = self.options.settings();
        let drift = self.options.drift_ppm;
        let (offset, drift) = (self.chance.between(1_000, 9_000_000) * MS, self.chance.between(0, 2 * drift));
        let server = &mut self.servers[number];
        if server.is_up {
            return;
        }
        server.life += 1;
        server.is_up = true;
        server.clock_offset = offset;
        server.drift_ppm = i64::try_from(drift).expect("small") - i64::try_from(self.options.drift_ppm).expect("small");
        let now = server.local(self.now);
        for group in self.catalog.groups() {
            let store = server.stores.remove(&group).unwrap_or_default();
            let life = Life::drawn(self.lives.next_u64());
            let mut member = Member::new(now, (group, server.drive, life), settings, store.record());
            self.generations.iter().for_each(|(volume, generation)| member.handle_fence(*volume, *generation));
            if store.occupied_max.is_some() {
                member.handle_room(Room::Low);
            }
            server.nodes.insert(group, Node { member, store, timer_at: 0 });
        }
        for group in self.catalog.groups() {
            self.tell_at_start(number, group);
            self.drain(number, group);
        }
        self.deleted.clone().into_iter().for_each(|volume| self.tell_deleted(number, volume));
    }

    /// The catalog of a server that starts: what it has now, or two of the last things that it had first.
    fn tell_at_start(&mut self, server: usize, group: GroupId) {
        let past = self.past.get(&group).map_or(&[][..], Vec::as_slice);
        let mut earlier = past[past.len().saturating_sub(PAST_TOLD)..].to_vec();
        let is_stale = self.is_faulty && self.chance.is(self.options.faults.stale);
        if is_stale {
            earlier.retain(|_| self.chance.is(600));
            self.events.retain(|_, event| match event {
                Event::Configuration { server: to, configuration } => *to != server || configuration.group != group,
                _ => true,
            });
        }
        let mut at = self.now + self.chance.between(1, 30) * MS;
        for configuration in earlier.into_iter().filter(|_| is_stale) {
            self.schedule(at, Event::Configuration { server, configuration });
            at += self.chance.between(1, 200) * MS;
        }
        let configuration = self.catalog.configuration(group).clone();
        self.schedule(at, Event::Configuration { server, configuration });
    }

    /// Ends the process of a server. Its drive keeps what is durable, or nothing.
    pub(super) fn crash(&mut self, number: usize, is_empty: bool) {
        let server = &mut self.servers[number];
        server.is_up = false;
        self.outcome.crashes += 1;
        for (group, mut node) in core::mem::take(&mut server.nodes) {
            node.store.crash(&mut self.chance);
            if is_empty {
                node.store = Store::default();
                self.blank.insert((number, group));
            }
            server.stores.insert(group, node.store);
        }
        if is_empty {
            self.emptied.push((self.now, number));
            // Reports that are on their way could take out the last member that has the data: two losses, not one.
            self.events.retain(|_, event| !matches!(event, Event::Report { .. }));
        }
        if let Some(takeover) = &mut self.takeover {
            takeover.missing.retain(|(server, _, _)| *server != number);
        }
    }

    /// One thing happens. False at the end of everything.
    pub(super) fn step(&mut self) -> bool {
        let Some(((at, _), event)) = self.events.pop_first() else { return false };
        self.now = at.max(self.now);
        let server = match &event {
            Event::Message { to: server, .. }
            | Event::Stored { server, .. }
            | Event::Timer { server, .. }
            | Event::Request { server, .. }
            | Event::Deleted { server, .. }
            | Event::Configuration { server, .. } => Some(*server),
            _ => None,
        };
        match server {
            Some(server) if self.servers[server].paused_until > self.now => {
                let until = self.servers[server].paused_until;
                self.schedule(until, event);
            }
            Some(server) => self.server_event(server, event),
            None => self.world_event(event),
        }
        true
    }

    fn server_event(&mut self, number: usize, event: Event) {
        let all: Vec<DriveId> = (0..self.servers.len()).map(drive_of).collect();
        let server = &mut self.servers[number];
        if !server.is_up {
            return;
        }
        let (now, life) = (server.local(self.now), server.life);
        let group = match event {
            Event::Message { from, head, payload, .. } => {
                let message = decode(&head, payload).expect("members send what they can read");
                let group = message.group;
                let Some(node) = server.nodes.get_mut(&group) else { return };
                // Refusals are part of the protocol: what is refused changes nothing.
                let _ = node.member.handle_message(now, drive_of(from), message);
                group
            }
            Event::Stored { group, id, life: of, .. } if of == life => {
                let Some(node) = server.nodes.get_mut(&group) else { return };
                let result = node.store.complete(id);
                node.member.handle_stored(now, id, result).expect("a request is completed once, as it was made");
                if self.drops.is(DROP_CHANCE) {
                    self.drop_empty(number, group);
                }
                group
            }
            Event::Timer { group, life: of, .. } if of == life => {
                let Some(node) = server.nodes.get_mut(&group) else { return };
                node.member.handle_timeout(now);
                // In half of the worlds a scrub finds damage, and in the others only those who read.
                if self.options.seed.is_multiple_of(2) || !self.is_faulty {
                    node.store.damaged().iter().for_each(|extent| node.member.handle_damage(now, *extent));
                }
                group
            }
            Event::Deleted { volume, .. } => {
                for (group, node) in &mut server.nodes {
                    node.store.delete_volume(volume, (*group, server.drive));
                }
                return;
            }
            Event::Request { group, request, client, .. } => {
                let Some(node) = server.nodes.get_mut(&group) else { return };
                node.member.handle_client(now, &request);
                let _ = client;
                group
            }
            Event::Configuration { configuration, .. } => {
                let Some(node) = server.nodes.get_mut(&configuration.group) else { return };
                let last_to_leave = self.catalog.last_to_leave(configuration.group, configuration.epoch);
                node.member.handle_witnesses(configuration.epoch, &Witnesses { all, last_to_leave });
                let _ = node.member.handle_configuration(now, &configuration);
                configuration.group
            }
            _ => return,
        };
        self.drain(number, group);
        self.check_serving(group);
    }

    /// The drive of a member drops extents without blocks.
    fn drop_empty(&mut self, number: usize, group: GroupId) {
        let server = &mut self.servers[number];
        let Some(node) = server.nodes.get_mut(&group) else { return };
        let Some(record) = node.store.record().and_then(|record| Record::decode(record, group, server.drive).ok())
        else {
            return;
        };
        let planted = self.options.planted;
        let may_drop = |version, newest| match planted {
            Some(Planted::DropUnacknowledged) => version < newest,
            Some(Planted::DropNewest) => !record.is_partial && version <= record.clean,
            _ => record.may_drop(version, newest),
        };
        self.outcome.drops += node.store.drop_empty(may_drop) as u64;
    }

    fn world_event(&mut self, event: Event) {
        match event {
            Event::Reply { client, request, result } => self.handle_reply(client, request, result),
            Event::ClientTick { client } => self.client_tick(client),
            Event::ClientConfiguration { client, configuration } => self.clients[client].learn(&configuration),
            Event::Report { group, report } => {
                let before = self.catalog.configuration(group).clone();
                let returns_at = self.now + self.chance.between(300, 2_000) * MS;
                self.catalog.handle_report(group, report, returns_at);
                self.announce(&before);
            }
            Event::CatalogTick => self.catalog_tick(),
            Event::FaultStep => self.fault_step(),
            Event::Restart { server } => self.start(server),
            Event::Room { server, room } => self.tell_room(server, room),
            Event::Unblock { pairs } => pairs.iter().for_each(|pair| {
                self.blocked.remove(pair);
            }),
            _ => {}
        }
    }

    fn catalog_tick(&mut self) {
        let before: Vec<_> =
            self.catalog.groups().iter().map(|group| self.catalog.configuration(*group).clone()).collect();
        let up: BTreeSet<DriveId> =
            self.servers.iter().filter(|server| server.is_up).map(|server| server.drive).collect();
        self.catalog.tick(self.now, |drive| up.contains(&drive));
        before.iter().for_each(|configuration| self.announce(configuration));
        // Watchers that missed a change hear of it again.
        for group in self.catalog.groups() {
            self.push_configuration(group);
        }
        let next = self.now + 250 * MS;
        self.schedule(next, Event::CatalogTick);
    }

    fn announce(&mut self, before: &Configuration) {
        let group = before.group;
        let after = self.catalog.configuration(group).clone();
        if after.epoch == before.epoch {
            return;
        }
        self.outcome.epochs += 1;
        let past = self.past.entry(group).or_default();
        past.push(after.clone());
        past.drain(..past.len().saturating_sub(PAST_TOLD + 1));
        for number in 0..self.servers.len() {
            if !after.acting.contains(&drive_of(number)) {
                self.blank.remove(&(number, group));
            }
        }
        self.push_configuration(group);
    }

    fn push_configuration(&mut self, group: GroupId) {
        let catalog = self.servers.len();
        let configuration = self.catalog.configuration(group).clone();
        for server in 0..self.servers.len() {
            let configuration = configuration.clone();
            if let Some(at) = self.transit(catalog, server) {
                self.schedule(at, Event::Configuration { server, configuration });
            }
        }
    }

    /// When something sent now arrives; never, if it is lost.
    pub(super) fn transit(&mut self, from: usize, to: usize) -> Option<u64> {
        if self.blocked.contains(&(from, to)) || self.is_faulty && self.chance.is(self.options.faults.loss) {
            return None;
        }
        let most = if self.is_faulty && self.chance.is(self.options.faults.late) { 1_000 * MS } else { MS };
        Some(self.now + self.chance.between(MS / 20, most))
    }

    pub(super) fn is_doubled(&mut self) -> bool {
        self.is_faulty && self.chance.is(self.options.faults.double)
    }

    /// Does what a member wants done.
    pub(super) fn drain(&mut self, number: usize, group: GroupId) {
        while let Some(node) = self.servers[number].nodes.get_mut(&group)
            && let Some(output) = node.member.poll_output()
        {
            self.handle_output(number, group, output);
        }
        let server = &self.servers[number];
        let life = server.life;
        let Some(node) = server.nodes.get(&group) else { return };
        let at = server.when(node.member.poll_timeout()).max(self.now);
        if node.timer_at <= self.now || at < node.timer_at {
            self.servers[number].nodes.get_mut(&group).expect("it was there").timer_at = at;
            self.schedule(at, Event::Timer { server: number, life, group });
        }
    }

    fn handle_output(&mut self, number: usize, group: GroupId, output: Output) {
        match output {
            Output::Send { to, message } => {
                let to = usize::from(to.as_bytes()[0]) - 1;
                let encoded = encode(&message);
                let payload = Bytes::from(encoded.payload.concat());
                for _ in 0..=usize::from(self.is_doubled()) {
                    if let Some(at) = self.transit(number, to) {
                        let (head, payload) = (encoded.head.clone(), payload.clone());
                        self.schedule(at, Event::Message { from: number, to, head, payload });
                    }
                }
            }
            Output::Store { id, request } => {
                let looks_now = self.chance.is(500);
                let took = self.store_takes(number);
                let server = &mut self.servers[number];
                let life = server.life;
                let node = server.nodes.get_mut(&group).expect("its member spoke");
                node.store.submit(id, request, looks_now);
                let at = self.now + took;
                self.schedule(at, Event::Stored { server: number, life, group, id });
            }
            Output::Lost { .. } | Output::Awaits { .. } => {}
            Output::Reply { session, request, result } => {
                let Some(client) = self.clients.iter().position(|client| client.session == session) else { return };
                if result == Err(Refusal::Damaged) {
                    self.check_lost(number, group, client, request);
                }
                let endpoint = self.servers.len() + 1 + client;
                if let Some(at) = self.transit(number, endpoint) {
                    self.schedule(at, Event::Reply { client, request, result });
                }
            }
            Output::Report(report) => {
                if let Some(at) = self.transit(number, self.servers.len()) {
                    self.schedule(at, Event::Report { group, report });
                }
            }
            Output::Fenced { volume, generation } => {
                let life = self.servers[number].life;
                if let Some(takeover) = &mut self.takeover
                    && takeover.volume == volume
                    && takeover.generation <= generation
                {
                    takeover.missing.remove(&(number, life, group));
                }
                self.finish_takeover();
            }
        }
    }

    fn store_takes(&mut self, number: usize) -> u64 {
        let is_slow = self.servers[number].slow_until > self.now;
        if is_slow { self.chance.between(10, 400) * MS } else { self.chance.between(MS / 20, 2 * MS) }
    }

    fn check_serving(&mut self, group: GroupId) {
        let serves = |server: &&Server| {
            let is_awake = server.is_up && server.paused_until <= self.now;
            is_awake && server.nodes.get(&group).is_some_and(|node| node.member.is_serving(server.local(self.now)))
        };
        let serving = self.servers.iter().filter(serves).count();
        if serving > 1 {
            self.fail(format!("{serving} members serve placement group {}", group.pg.0));
        }
    }

    /// Whether a group has a member that serves.
    #[must_use]
    pub fn is_serving(&self, group: GroupId) -> bool {
        let serves = |server: &Server| {
            let node = server.nodes.get(&group);
            server.is_up && node.is_some_and(|node| node.member.is_serving(server.local(self.now)))
        };
        self.servers.iter().any(serves)
    }

    pub(in super::super) fn fail(&mut self, what: String) {
        self.outcome.violation.get_or_insert(what);
    }

    /// What has happened so far.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let mut chance = self.chance.clone();
        Outcome { digest: chance.next_u64() ^ self.now ^ self.next_event.rotate_left(32), ..self.outcome.clone() }
    }
}

/// An event, for [`World::schedule`].
#[derive(Debug)]
pub(super) struct Scheduled(Event);

impl From<Event> for Scheduled {
    fn from(event: Event) -> Self {
        Self(event)
    }
}
