//! What goes wrong in the world, the end of all faults, and what must hold then.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use ashlar_placement::map::GroupId;
use ashlar_placement::rule::ExtentId;
use ashlar_wire::id::{DriveId, VolumeId};
use ashlar_wire::version::Version;

use super::super::history::Block;
use super::super::store::{DAMAGED, Extent, Extents, Store};
use super::{Event, MS, Node, Server, World, drive_of};
use crate::member::Report;
use crate::message::Fault;
use crate::request::{RequestId, Room};

/// After the end of all faults every group has to serve within this time.
const RECOVERY_MS_MAX: u64 = 8_000;
/// After the end of all faults all members have to act, and be equal, within this time.
const WHOLE_MS_MAX: u64 = 40_000;

impl World {
    /// Warm-up, faults, healing, and the last checks.
    pub fn run_swarm(&mut self) {
        // Who was taken out at the beginning comes back after up to 3 s, and is needed to tell that nobody has anything.
        self.run_ms(if self.options.faults.early > 0 { RECOVERY_MS_MAX } else { 2_500 });
        if !self.groups().iter().all(|group| self.is_serving(*group)) {
            self.fail(String::from("a new placement group does not serve"));
        }
        self.begin_faults();
        self.run_ms(self.options.faults_ms);
        self.heal();
        self.recover();
        self.finish();
    }

    /// From now on things go wrong as the options say.
    pub fn begin_faults(&mut self) {
        self.is_faulty = true;
        self.schedule(self.now, Event::FaultStep);
    }

    /// Lets time pass, unless a rule is broken.
    pub fn run_ms(&mut self, span_ms: u64) {
        let end = self.now + span_ms * MS;
        while self.outcome.violation.is_none() && self.events.first_key_value().is_some_and(|((at, _), _)| *at <= end) {
            self.step();
        }
        self.now = self.now.max(end);
    }

    fn groups(&self) -> Vec<GroupId> {
        self.catalog.groups()
    }

    pub(super) fn fault_step(&mut self) {
        if !self.is_faulty {
            return;
        }
        let faults = self.options.faults;
        let number = self.chance.index(self.servers.len());
        if self.chance.is(faults.partition) {
            self.cut_off_some();
        }
        if self.chance.is(faults.pair) {
            self.cut_off_pair();
        }
        if self.chance.is(faults.crash) && self.servers[number].is_up {
            let is_empty = self.chance.is(faults.empty) && self.may_empty(number);
            self.crash(number, is_empty);
            let at = self.now + self.chance.between(10, 3_000) * MS;
            self.schedule(at, Event::Restart { server: number });
        }
        if self.chance.is(faults.blackout) {
            let loses = self.chance.index(self.servers.len());
            let is_lost = self.chance.is(faults.empty) && self.may_empty(loses);
            for number in 0..self.servers.len() {
                self.crash(number, is_lost && number == loses);
                let at = self.now + self.chance.between(10, 600) * MS;
                self.schedule(at, Event::Restart { server: number });
            }
        }
        let number = self.chance.index(self.servers.len());
        if self.chance.is(faults.pause) {
            self.servers[number].paused_until = self.now + self.chance.between(50, 2_500) * MS;
        }
        let number = self.chance.index(self.servers.len());
        if self.chance.is(faults.slow) {
            self.servers[number].slow_until = self.now + self.chance.between(100, 2_000) * MS;
        }
        if self.chance.is(faults.suspect) {
            self.suspect_some();
        }
        if self.chance.is(faults.takeover) {
            self.begin_takeover();
        }
        let number = self.chance.index(self.servers.len());
        if self.chance.is(faults.full) {
            self.fill_drive(number);
        }
        if self.chance.is(faults.damage) {
            self.damage_some();
        }
        if faults.delete > 0 && self.chance.is(faults.delete) {
            self.delete_volume();
        }
        if faults.hand_over > 0 && self.chance.is(faults.hand_over) {
            self.hand_over_some();
        }
        let next = self.now + self.chance.between(20, 200) * MS;
        self.schedule(next, Event::FaultStep);
    }

    /// A drive has no room for more, for a while. Its members hear of that at once, or after something was refused, and then leave.
    /// So this does not happen to the last one that has the data of a group: two losses, not one.
    fn fill_drive(&mut self, number: usize) {
        let told = self.now + if self.chance.is(500) { 0 } else { self.chance.between(1, 400) * MS };
        if !self.others_have_data(number) {
            return;
        }
        self.begin_full(number);
        self.schedule(told, Event::Room { server: number, room: Room::Low });
        let at = told + self.chance.between(300, 3_000) * MS;
        self.schedule(at, Event::Room { server: number, room: Room::Enough });
    }

    /// A server hears that a volume was deleted. That is repeated to every life of it.
    pub(super) fn tell_deleted(&mut self, server: usize, volume: VolumeId) {
        let longest = if self.chance.is(500) { 50 } else { 2_000 };
        let at = self.now + self.chance.between(1, longest) * MS;
        self.schedule(at, Event::Deleted { server, volume });
    }

    /// One copy of an extent is damaged: as a rule, as long as another acting member has it whole.
    fn damage_some(&mut self) {
        let (groups, number) = (self.groups(), self.chance.index(self.servers.len()));
        let group = groups[self.chance.index(groups.len())];
        let Some(store) = self.store(number, group) else { return };
        let extents: Vec<ExtentId> = store.visible().keys().copied().collect();
        if extents.is_empty() {
            return;
        }
        let extent = extents[self.chance.index(extents.len())];
        let acting = &self.catalog.configuration(group).acting;
        let is_whole = |other: usize| {
            let is_there = other != number && !self.blank.contains(&(other, group));
            let is_read = self.store(other, group).is_some_and(|store| !store.damaged().contains(&extent));
            is_there && is_read && acting.contains(&drive_of(other))
        };
        if (0..self.servers.len()).any(is_whole) || self.chance.is(200) {
            self.damage(number, group, extent);
        }
    }

    /// A copy of an extent is damaged.
    pub(in super::super) fn damage(&mut self, number: usize, group: GroupId, extent: ExtentId) {
        let bits = self.chance.next_u64();
        let server = &mut self.servers[number];
        let node = server.nodes.get_mut(&group).map(|node| &mut node.store);
        if let Some(store) = node.or_else(|| server.stores.get_mut(&group)) {
            store.damage(extent, bits);
            self.outcome.damages += 1;
        }
    }

    fn store(&self, number: usize, group: GroupId) -> Option<&Store> {
        let server = &self.servers[number];
        server.nodes.get(&group).map(|node| &node.store).or_else(|| server.stores.get(&group))
    }

    /// A read was refused as blocks of it are lost: each acting member lacks one of them, unless a write of the extent is or
    /// was under way, which may have made them whole meanwhile.
    pub(super) fn check_lost(&mut self, number: usize, group: GroupId, client: usize, id: RequestId) {
        let known = self.servers[number].nodes.get(&group).and_then(|node| node.member.configuration());
        if known.map(|known| known.epoch) != Some(self.catalog.configuration(group).epoch) {
            // It does not know yet who acts now.
            return;
        }
        let Some(request) = self.clients[client].outstanding.get(&id) else { return };
        let is_damaged = |store: &Store, (extent, block): &Block| {
            let held = store.visible().get(extent).and_then(|extent| extent.blocks.get(block));
            held.is_some_and(|tag| tag & DAMAGED != 0)
        };
        let acting = &self.catalog.configuration(group).acting;
        let numbers = (0..self.servers.len()).filter(|number| acting.contains(&drive_of(*number)));
        let stores: Vec<&Store> = numbers.filter_map(|number| self.store(number, group)).collect();
        let versions =
            stores.iter().map(|store| store.visible().get(&request.blocks[0].0).map(|extent| extent.version));
        let versions: Vec<_> = versions.collect();
        let is_written = versions.iter().any(|version| *version != versions[0])
            || request
                .blocks
                .iter()
                .any(|block| self.acknowledged_at.get(block).is_some_and(|at| *at >= request.begun))
            || self.clients.iter().any(|client| client.is_writing(&request.blocks));
        let is_lost = stores.iter().all(|store| request.blocks.iter().any(|block| is_damaged(store, block)));
        self.outcome.lost += 1;
        if !is_lost && !is_written {
            self.fail(format!("request {} of client {client} was refused as lost, and a copy is whole", id.0));
        }
    }

    /// Whether no block is damaged of which another copy of the same version is whole.
    fn is_mended(&self, group: GroupId) -> bool {
        let stores: Vec<&Store> = (0..self.servers.len()).filter_map(|number| self.store(number, group)).collect();
        let has_whole = |id: &ExtentId, version: Version, block: &u32| {
            let extents = stores.iter().filter_map(|store| store.visible().get(id));
            let mut same = extents.filter(|extent| extent.version == version);
            same.any(|extent| extent.blocks.get(block).is_none_or(|tag| tag & DAMAGED == 0))
        };
        let is_mended = |(id, extent): (&ExtentId, &Extent)| {
            let mut damaged = extent.blocks.iter().filter(|(_, tag)| *tag & DAMAGED != 0).map(|(block, _)| block);
            !damaged.any(|block| has_whole(id, extent.version, block))
        };
        stores.iter().all(|store| store.visible().iter().all(is_mended))
    }

    /// A drive has no room for more, and nobody was told.
    pub(in super::super) fn begin_full(&mut self, number: usize) {
        let server = &mut self.servers[number];
        let stores = server.nodes.values_mut().map(|node| &mut node.store).chain(server.stores.values_mut());
        stores.for_each(|store| store.occupied_max = Some(store.occupied()));
    }

    /// The members of a server hear how much room its drive has; enough means that it has.
    pub(in super::super) fn tell_room(&mut self, number: usize, room: Room) {
        let server = &mut self.servers[number];
        if room == Room::Enough {
            let stores = server.nodes.values_mut().map(|node| &mut node.store).chain(server.stores.values_mut());
            stores.for_each(|store| store.occupied_max = None);
        }
        server.nodes.values_mut().for_each(|node| node.member.handle_room(room));
    }

    /// Whether each of its groups has another acting member that did not lose its data.
    fn others_have_data(&self, number: usize) -> bool {
        self.groups().iter().all(|group| {
            let acting = &self.catalog.configuration(*group).acting;
            let has_data = |other: &usize| *other != number && !self.blank.contains(&(*other, *group));
            (0..self.servers.len()).filter(has_data).any(|other| acting.contains(&drive_of(other)))
        })
    }

    /// Whether a drive may lose its data: another acting member of each of its groups has them, and is not about to leave.
    fn may_empty(&self, number: usize) -> bool {
        let is_leaving = |other: usize, group: GroupId| {
            let node = self.servers[other].nodes.get(&group);
            node.is_some_and(|node| node.member.fault().is_some() || node.store.occupied_max.is_some())
        };
        let is_whole = |other: usize, group: GroupId| {
            other != number && !self.blank.contains(&(other, group)) && !is_leaving(other, group)
        };
        self.groups().iter().all(|group| {
            let acting = &self.catalog.configuration(*group).acting;
            (0..self.servers.len()).any(|other| is_whole(other, *group) && acting.contains(&drive_of(other)))
        })
    }

    /// The catalog takes an acting member out without asking anybody, as long as it leaves one that has its data.
    fn suspect_some(&mut self) {
        let groups = self.groups();
        let group = groups[self.chance.index(groups.len())];
        let acting = self.catalog.configuration(group).acting.clone();
        let member = acting[self.chance.index(acting.len())];
        let is_whole = |other: usize| acting.contains(&drive_of(other)) && !self.blank.contains(&(other, group));
        if (0..self.servers.len()).any(|other| drive_of(other) != member && is_whole(other)) {
            self.take_out(group, member);
        }
    }

    /// The catalog makes another acting member the primary.
    fn hand_over_some(&mut self) {
        let groups = self.groups();
        let group = groups[self.chance.index(groups.len())];
        let before = self.catalog.configuration(group).clone();
        let primary = before.acting[self.chance.index(before.acting.len())];
        self.catalog.hand_over(group, primary);
        self.announce(&before);
    }

    /// The catalog takes a member out.
    pub(in super::super) fn take_out(&mut self, group: GroupId, member: DriveId) {
        let epoch = self.catalog.configuration(group).epoch;
        let report = Report::Lost { epoch, member, fault: Fault::Silent };
        self.schedule(self.now, Event::Report { group, report });
    }

    /// Nothing passes between two endpoints any more.
    pub fn cut(&mut self, one: usize, other: usize) {
        self.blocked.extend([(one, other), (other, one)]);
    }

    fn block_for(&mut self, pairs: Vec<(usize, usize)>, span_ms: u64) {
        self.blocked.extend(pairs.iter().copied());
        let at = self.now + span_ms * MS;
        self.schedule(at, Event::Unblock { pairs });
    }

    /// A server loses all other servers, and perhaps the catalog, in one direction or both.
    fn cut_off_some(&mut self) {
        let number = self.chance.index(self.servers.len());
        let reach = self.servers.len() + usize::from(self.chance.is(500));
        let direction = self.chance.below(4);
        let mut pairs = Vec::new();
        for other in (0..reach).filter(|other| *other != number) {
            if direction != 1 {
                pairs.push((number, other));
            }
            if direction != 2 {
                pairs.push((other, number));
            }
        }
        let span_ms = self.chance.between(100, 3_000);
        self.block_for(pairs, span_ms);
    }

    /// Two endpoints lose each other, in one direction or both.
    fn cut_off_pair(&mut self) {
        let endpoints = self.servers.len() + 1 + self.clients.len();
        let (one, other) = (self.chance.index(self.servers.len()), self.chance.index(endpoints));
        let both = [(one, other), (other, one)];
        let kept = self.chance.between(1, 3);
        let chosen = both.into_iter().enumerate().filter(|(at, _)| kept & (1 << at) != 0);
        let pairs = chosen.map(|(_, pair)| pair).collect();
        let span_ms = self.chance.between(100, 3_000);
        self.block_for(pairs, span_ms);
    }

    /// Ends all faults: everything runs and reaches everything.
    pub fn heal(&mut self) {
        self.is_faulty = false;
        self.blocked.clear();
        for number in 0..self.servers.len() {
            self.servers[number].slow_until = 0;
            self.servers[number].paused_until = self.servers[number].paused_until.min(self.now);
            self.start(number);
            self.tell_room(number, Room::Enough);
        }
    }

    /// Waits until every group serves.
    pub fn recover(&mut self) {
        let healed = self.now;
        while self.outcome.violation.is_none() && !self.groups().iter().all(|group| self.is_serving(*group)) {
            self.run_ms(50);
            if self.now - healed > RECOVERY_MS_MAX * MS {
                self.fail(format!("a placement group does not serve {RECOVERY_MS_MAX} ms after the last fault"));
            }
        }
        self.outcome.recovery_ms = (self.now - healed) / MS;
    }

    /// Ends the load, waits until every member acts again, and looks at all copies.
    pub fn finish(&mut self) {
        self.run_ms(500);
        self.has_load = false;
        let begun = self.now;
        while self.outcome.violation.is_none() && !self.is_quiet() {
            self.run_ms(100);
            if self.now - begun > WHOLE_MS_MAX * MS {
                self.fail(format!("not all members act {WHOLE_MS_MAX} ms after the last fault"));
            }
        }
        if self.outcome.violation.is_none() {
            self.check_equal();
            self.check_contents();
        }
    }

    fn is_quiet(&self) -> bool {
        let is_idle = self.clients.iter().all(|client| client.outstanding.is_empty());
        let mut nodes = self.servers.iter().flat_map(|server| server.nodes.values());
        let has_heard = |node: &Node| self.deleted.iter().all(|volume| node.store.has_deleted(*volume));
        let is_synced = nodes.all(|node| node.store.is_synced() && has_heard(node));
        let is_mended = self.groups().iter().all(|group| self.is_mended(*group));
        let serve = self.groups().iter().all(|group| self.is_serving(*group));
        self.catalog.is_whole() && is_idle && is_synced && is_mended && serve
    }

    /// All members have the same bytes and versions.
    fn check_equal(&mut self) {
        for group in self.groups() {
            let stores: Vec<_> = self.servers.iter().filter_map(|server| server.nodes.get(&group)).collect();
            let first = what_is_left(&stores[0].store);
            let others = stores.iter().map(|node| what_is_left(&node.store));
            if let Some(other) = others.into_iter().find(|other| *other != first) {
                let differs = first.iter().find(|(id, extent)| other.get(id) != Some(extent));
                let what = differs.map(|(id, extent)| format!("{id:?}: {extent:?} and {:?}", other.get(id)));
                self.fail(format!("members of group {} differ: {what:?}", group.pg.0));
            }
        }
    }

    /// The copies have what was acknowledged and read, and nothing else.
    fn check_contents(&mut self) {
        for block in self.history.blocks() {
            let group = self.group_of(block.0);
            let extents = |server: &Server| server.nodes.get(&group).map(|node| node.store.visible().clone());
            let extents = self.servers.iter().find_map(extents).unwrap_or_default();
            let tag = extents.get(&block.0).and_then(|extent| extent.blocks.get(&block.1)).copied().unwrap_or(0);
            if tag & DAMAGED != 0 {
                continue;
            }
            let floors = self.history.begin_read(&[block]);
            if let Err(what) = self.history.end_read(&[block], &floors, &[tag]) {
                self.fail(format!("at the end: {what}"));
            }
        }
    }
}

/// Everything that a store has, with all damaged blocks alike. Extents without blocks are not there in one, and are in another.
fn what_is_left(store: &Store) -> Extents {
    let mut extents = store.visible().clone();
    extents.retain(|_, extent| !extent.blocks.is_empty());
    let tags = extents.values_mut().flat_map(|extent| extent.blocks.values_mut());
    tags.filter(|tag| **tag & DAMAGED != 0).for_each(|tag| *tag = DAMAGED);
    extents
}
