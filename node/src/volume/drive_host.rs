//! One drive of a server: its store, and the members of all placement groups that have a copy on it.
//!
//! A [`DriveHost`] is a value: configurations, messages of other drives, requests of clients, completed IOs and time in;
//! IOs, messages, replies and reports out. One thread owns it, and others execute its IOs. After any `handle_*`, the
//! owner calls [`DriveHost::poll_io`] and [`DriveHost::poll_output`] until both are empty. Requests that come in between
//! share a batch of the store's journal.
//!
//! Limits: [`HostConfig::members_max`], [`HostConfig::jobs_max`] for requests of clients, twice that for messages.
//! A request of a client beyond the limit is refused as busy. A message beyond it that costs a request of the store is
//! dropped, as a network may do, and the other member sends it again.
//!
//! Room: while the drive has less than [`HostConfig::room_low`] extents' worth of space, its members are told, and primaries refuse
//! writes to extents that have no space yet.
//!
//! Deliberately absent: routing (the caller knows the placement group of an extent; one that the drive has in another group
//! is refused all the same), the written form of messages.
//!
//! Parts: `forgetting` (extents of groups that have left), `order` (what waits for what), `pace` (how many extents are copied at a time), `adapter` (requests of members become requests of the store), `content`
//! (checksums, differences and patches of one extent).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ashlar_placement::map::GroupId;
use ashlar_placement::rule::ExtentId;
use ashlar_replica::config::{Role, Witnesses};
use ashlar_replica::message::Body;
use ashlar_replica::request::{ClientRequest, ClientResult, Generation, RequestId, Room, SessionId};
use ashlar_replica::{Configuration, Life, Member, Message, Output, Refusal, Report, Settings};
use ashlar_store::io::{Io, IoError, IoId, IoOutput};
use ashlar_store::request::Event;
use ashlar_store::store::Store;
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::{DriveId, VolumeId};
use ashlar_wire::time::Instant;
use core::fmt;

use adapter::{Adapter, Done};

mod adapter;
mod content;
mod forgetting;
mod order;
mod pace;

/// Volumes whose attach generation a drive remembers.
pub const FENCES_MAX: usize = 65_536;

/// Lost extents that the caller is told of until the next start.
const LOST_TOLD_MAX: usize = 4_096;
/// Damaged extents that members are told of at a time.
const DAMAGED_TOLD_MAX: usize = 16;

/// Limits and time-outs of a drive.
#[derive(Debug, Clone, Copy)]
pub struct HostConfig {
    /// Time-outs of the members.
    pub settings: Settings,
    /// Most placement groups with a copy here. The store keeps a record of 1 KiB for each that ever had one.
    pub members_max: usize,
    /// Most requests under way at which a client's request is taken. Each may hold 1 MiB.
    pub jobs_max: usize,
    /// Requests that the store is given at a time; its own `requests_max` is at least as much.
    pub in_store_max: usize,
    /// Extents of 1 MiB for which there is room, below which members are told that room is low. Each write that is under way
    /// then may take one. On a drive with less than 16 times as many it is a 16th of them.
    pub room_low: usize,
}

impl Default for HostConfig {
    fn default() -> Self {
        let settings = Settings::default();
        Self { settings, members_max: 2_048, jobs_max: 1_024, in_store_max: 1_024, room_low: 2_048 }
    }
}

/// Names a client's request from its arrival to its reply; chosen by the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientToken(pub u64);

/// What a drive wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostOutput {
    /// Send this to the member of the same placement group on another drive.
    Send {
        /// The other drive.
        to: DriveId,
        /// The message.
        message: Message,
    },
    /// Answer a client.
    Reply {
        /// Its request.
        token: ClientToken,
        /// The answer. What it says to be written is durable at every acting member.
        result: ClientResult,
    },
    /// Ask the catalog for a change of a configuration.
    Report {
        /// Which placement group.
        group: GroupId,
        /// The change.
        report: Report,
    },
    /// No write of an earlier generation of this volume will take effect through this drive any more.
    Fenced {
        /// Which volume.
        volume: VolumeId,
        /// Its generation.
        generation: Generation,
    },
    /// [`DriveHost::handle_delete_volume`] is done: durable, or why not. A retry is safe.
    Deleted {
        /// Which volume.
        volume: VolumeId,
        /// How it ended.
        result: Result<(), ashlar_store::Error>,
    },
    /// A read or the scrub found damage in an extent. Its member has it made whole from another copy.
    Damage {
        /// Which extent.
        extent: ExtentId,
    },
    /// Blocks of an extent cannot be read, and drives that may have them are away: they are waited for.
    Awaits {
        /// Which extent.
        extent: ExtentId,
    },
    /// Blocks of an extent are lost: no copy of them can be read. Said once until it is whole.
    Lost {
        /// Which extent.
        extent: ExtentId,
    },
    /// An extent that was damaged is whole.
    Mended {
        /// Which extent.
        extent: ExtentId,
    },
    /// The drive failed a write or sync and is not used any more. Its members report themselves as lost.
    Poisoned(IoError),
}

/// Why a configuration or a message was not taken. Nothing has changed then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostError {
    // The sender's fault: no retry helps.
    /// The member refused it.
    Refused(ashlar_replica::Error),
    /// No placement group of this drive.
    UnknownGroup,

    // The load's: a retry is safe, later.
    /// As many placement groups as [`HostConfig::members_max`] have a copy here.
    TooManyMembers,
    /// Too many requests are under way.
    Busy,
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => error.fmt(f),
            Self::UnknownGroup => f.write_str("no copy of this placement group is on the drive"),
            Self::TooManyMembers => f.write_str("the drive has copies of as many placement groups as it may"),
            Self::Busy => f.write_str("too many requests are under way on the drive; try again later"),
        }
    }
}

impl core::error::Error for HostError {}

/// A volume of which older writes are still under way in some members.
#[derive(Debug)]
struct Fencing {
    generation: Generation,
    missing: BTreeSet<GroupId>,
}

/// A client's request by the names that its member gives it.
type RequestName = (GroupId, SessionId, RequestId);

/// One drive of a server, running.
#[derive(Debug)]
pub struct DriveHost {
    config: HostConfig,
    drive: DriveId,
    adapter: Adapter,
    members: BTreeMap<GroupId, Member>,
    /// Number of the next member's life. It begins at one drawn by chance, and no number comes twice.
    next_life: u64,
    /// Members that are in their configuration no more, and go when the store has completed their requests.
    leaving: BTreeSet<GroupId>,
    /// Groups without a member here, or with one that leaves, that can do without this drive's extents, and since
    /// which epoch.
    left: BTreeMap<GroupId, Epoch>,
    /// Configurations that name this drive and wait until its group is not being forgotten any more.
    deferred: BTreeMap<GroupId, (Configuration, Witnesses)>,
    /// When a member's time comes, at the earliest.
    tick_at: Instant,
    /// What the members were told last.
    room: Room,
    fences: BTreeMap<VolumeId, Generation>,
    /// Extents that the caller was told to be lost in part.
    lost: BTreeSet<ExtentId>,
    fencing: BTreeMap<VolumeId, Fencing>,
    /// Requests of clients that were not answered. A repeated request takes the place of the earlier one.
    tokens: BTreeMap<RequestName, ClientToken>,
    out: VecDeque<HostOutput>,
}

impl DriveHost {
    /// A drive that goes on with an open store. It has no members before their configurations come. `life` is drawn by
    /// chance for this opening of the drive: no other member must take its messages for those of an earlier one.
    ///
    /// # Panics
    /// If the settings are not valid: the program's own constants.
    #[must_use]
    pub fn new(now: Instant, store: Store, config: HostConfig, life: u64) -> Self {
        assert!(config.settings.is_valid(), "time-outs that do not agree allow two primaries to serve");
        let drive = store.superblock().drive;
        let mut host = Self {
            config,
            drive,
            adapter: Adapter::new(now, store, config.in_store_max),
            members: BTreeMap::new(),
            next_life: life,
            leaving: BTreeSet::new(),
            left: BTreeMap::new(),
            deferred: BTreeMap::new(),
            tick_at: Instant::NEVER,
            room: Room::Enough,
            fences: BTreeMap::new(),
            lost: BTreeSet::new(),
            fencing: BTreeMap::new(),
            tokens: BTreeMap::new(),
            out: VecDeque::new(),
        };
        host.update_room();
        host
    }

    /// Which drive it is.
    #[must_use]
    pub const fn drive(&self) -> DriveId {
        self.drive
    }

    /// The store, to be looked at.
    #[must_use]
    pub const fn store(&self) -> &Store {
        &self.adapter.store
    }

    /// Placement groups that have a member here, ascending.
    pub fn groups(&self) -> impl Iterator<Item = GroupId> {
        self.members.keys().copied()
    }

    /// Whether this drive has the primary of a placement group and would serve a read now.
    #[must_use]
    pub fn is_serving(&self, now: Instant, group: GroupId) -> bool {
        self.members.get(&group).is_some_and(|member| member.is_serving(now))
    }

    /// Whether nothing is under way: no request of a member, and nothing that the store has to write back.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.adapter.jobs() == 0 && self.adapter.store.is_settled()
    }

    /// The catalog has decided. A member is made if the drive is named, and goes if it is named no more. `witnesses` are the
    /// drives that may have something of the group beside its members.
    ///
    /// # Errors
    /// [`HostError::TooManyMembers`], [`HostError::Refused`] if the configuration is not valid or an earlier one.
    pub fn handle_configuration(
        &mut self,
        now: Instant,
        configuration: &Configuration,
        witnesses: &Witnesses,
    ) -> Result<(), HostError> {
        let group = configuration.group;
        let is_named = configuration.role(self.drive) != Role::None;
        if is_named && configuration.is_valid() && self.defer(configuration, witnesses) {
            return Ok(());
        }
        if !is_named {
            self.deferred.retain(|known, (deferred, _)| *known != group || deferred.epoch > configuration.epoch);
        }
        if !self.members.contains_key(&group) {
            if !is_named {
                return Ok(());
            }
            if !configuration.is_valid() {
                return Err(HostError::Refused(ashlar_replica::Error::BadConfiguration));
            }
            self.make_member(now, group)?;
        }
        let member = self.members.get_mut(&group).expect("it was there, or was made");
        member.handle_witnesses(configuration.epoch, witnesses);
        member.handle_configuration(now, configuration).map_err(HostError::Refused)?;
        self.update_leaving(group);
        self.drain(group);
        self.run(now);
        Ok(())
    }

    fn make_member(&mut self, now: Instant, group: GroupId) -> Result<(), HostError> {
        if self.members.len() >= self.config.members_max {
            return Err(HostError::TooManyMembers);
        }
        let record = self.adapter.record(group);
        let life = Life::drawn(self.next_life);
        self.next_life = self.next_life.wrapping_add(1);
        let mut member = Member::new(now, (group, self.drive, life), self.config.settings, record);
        for (volume, generation) in &self.fences {
            member.handle_fence(*volume, *generation);
        }
        member.handle_room(self.room);
        // A member that serves nothing yet confirms at once, and nobody asked.
        while member.poll_output().is_some() {}
        self.tick_at = self.tick_at.min(member.poll_timeout());
        self.members.insert(group, member);
        Ok(())
    }

    /// Notes whether the present configuration of a member names this drive.
    fn update_leaving(&mut self, group: GroupId) {
        let drive = self.drive;
        let configuration = self.members.get(&group).and_then(Member::configuration);
        if configuration.is_some_and(|configuration| configuration.role(drive) == Role::None) {
            self.leaving.insert(group);
        } else if !self.leaving.is_empty() {
            self.leaving.remove(&group);
        }
    }

    /// A message from the member of the same placement group on another drive, which the transport has authenticated.
    ///
    /// # Errors
    /// [`HostError`]; the message has changed nothing. The sender repeats what matters.
    pub fn handle_message(&mut self, now: Instant, from: DriveId, message: Message) -> Result<(), HostError> {
        let group = message.group;
        let member = self.members.get_mut(&group).ok_or(HostError::UnknownGroup)?;
        // Leases and acknowledgements cost no request of the store, and what is under way needs them to end.
        let costs =
            matches!(message.body, Body::Apply { .. } | Body::List { .. } | Body::Inquire { .. } | Body::Fetch { .. });
        if costs && self.adapter.jobs() >= self.config.jobs_max.saturating_mul(2) {
            return Err(HostError::Busy);
        }
        let result = member.handle_message(now, from, message);
        // A message may bring a configuration, and a refusal has an answer to the sender.
        self.update_leaving(group);
        self.drain(group);
        self.run(now);
        result.map_err(HostError::Refused)
    }

    /// A client wants something of an extent. The caller has routed it: the extent is one of `group`. It is answered by
    /// [`HostOutput::Reply`], or never if the drive stops; clients repeat their requests with the same number.
    pub fn handle_client(&mut self, now: Instant, token: ClientToken, group: GroupId, request: &ClientRequest) {
        let is_busy = self.adapter.jobs() >= self.config.jobs_max;
        let is_other = self.adapter.store.group_of(request.extent).is_some_and(|held| held != group);
        let refusal = match self.members.get_mut(&group) {
            Some(_) if is_other => Refusal::OtherGroup,
            None => Refusal::Behind(Epoch::ZERO),
            Some(_) if is_busy => Refusal::Busy,
            Some(member) => {
                self.tokens.insert((group, request.session, request.request), token);
                member.handle_client(now, request);
                self.drain(group);
                return self.run(now);
            }
        };
        self.out.push_back(HostOutput::Reply { token, result: Err(refusal) });
    }

    /// A volume has this attach generation, as the catalog says. Requests of smaller ones are refused from now on, and
    /// [`HostOutput::Fenced`] follows once no earlier write is under way on this drive. After a start the caller repeats
    /// this before it hands over configurations. Nothing follows if there is no room for the volume.
    pub fn handle_fence(&mut self, now: Instant, volume: VolumeId, generation: Generation) {
        if self.fences.len() >= FENCES_MAX && !self.fences.contains_key(&volume) {
            return;
        }
        let known = self.fences.entry(volume).or_default();
        *known = generation.max(*known);
        let generation = *known;
        let groups: Vec<GroupId> = self.members.keys().copied().collect();
        self.fencing.insert(volume, Fencing { generation, missing: groups.iter().copied().collect() });
        for group in groups {
            let member = self.members.get_mut(&group).expect("its name was just listed");
            member.handle_fence(volume, generation);
            self.drain(group);
        }
        self.confirm_fence(volume);
        self.run(now);
    }

    fn confirm_fence(&mut self, volume: VolumeId) {
        if self.fencing.get(&volume).is_some_and(|fencing| fencing.missing.is_empty())
            && let Some(Fencing { generation, .. }) = self.fencing.remove(&volume)
        {
            self.out.push_back(HostOutput::Fenced { volume, generation });
        }
    }

    /// Members say it each time that they find out.
    fn tell_lost(&mut self, extent: ExtentId) {
        if self.lost.len() < LOST_TOLD_MAX && self.lost.insert(extent) {
            self.out.push_back(HostOutput::Lost { extent });
        }
    }

    fn handle_fenced(&mut self, group: GroupId, volume: VolumeId, generation: Generation) {
        let Some(fencing) = self.fencing.get_mut(&volume) else { return };
        if generation >= fencing.generation {
            fencing.missing.remove(&group);
            self.confirm_fence(volume);
        }
    }

    /// A volume was deleted, as the catalog says: its extents go, and no late message brings them back.
    /// [`HostOutput::Deleted`] follows when that is durable.
    pub fn handle_delete_volume(&mut self, now: Instant, volume: VolumeId) {
        self.fences.remove(&volume);
        self.adapter.delete_volume(volume);
        self.run(now);
    }

    /// Takes the result of an IO of [`DriveHost::poll_io`].
    ///
    /// # Panics
    /// When the IO is not in progress, or a read is answered with another length.
    pub fn handle_io(&mut self, now: Instant, id: IoId, result: Result<IoOutput, IoError>) {
        self.adapter.store.handle_io(now, id, result);
        self.run(now);
    }

    /// Does what is due: to be called at [`DriveHost::poll_timeout`] or soon after.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.adapter.store.handle_timeout(now);
        if self.tick_at <= now {
            let groups: Vec<GroupId> = self.members.keys().copied().collect();
            for group in groups {
                let member = self.members.get_mut(&group).expect("its name was just listed");
                member.handle_timeout(now);
                self.drain(group);
            }
            self.update_tick();
            self.tell_damage(now);
        }
        self.run(now);
    }

    /// Tells members of damaged extents until they are made whole: some of them at a time.
    fn tell_damage(&mut self, now: Instant) {
        for (group, extent) in self.adapter.next_damaged(DAMAGED_TOLD_MAX) {
            if let Some(member) = self.members.get_mut(&group) {
                member.handle_damage(now, extent);
                self.drain(group);
            }
        }
    }

    fn update_tick(&mut self) {
        let ticks = self.members.values().map(|member| member.poll_timeout());
        self.tick_at = ticks.min().unwrap_or(Instant::NEVER);
    }

    /// When [`DriveHost::handle_timeout`] is to be called, if no other call comes before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let tick = (self.tick_at < Instant::NEVER).then_some(self.tick_at);
        [tick, self.adapter.store.poll_timeout()].into_iter().flatten().min()
    }

    /// The next IO to execute.
    pub fn poll_io(&mut self) -> Option<Io> {
        self.adapter.store.poll_io()
    }

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<HostOutput> {
        self.out.pop_front()
    }

    /// Takes what a member wants done.
    fn drain(&mut self, group: GroupId) {
        while let Some(output) = self.members.get_mut(&group).and_then(|member| member.poll_output()) {
            match output {
                Output::Send { to, message } => self.out.push_back(HostOutput::Send { to, message }),
                Output::Store { id, request } => self.adapter.handle_request(group, id, request),
                Output::Reply { session, request, result } => {
                    if let Some(token) = self.tokens.remove(&(group, session, request)) {
                        self.out.push_back(HostOutput::Reply { token, result });
                    }
                }
                Output::Report(report) => self.out.push_back(HostOutput::Report { group, report }),
                Output::Awaits { extent } => self.out.push_back(HostOutput::Awaits { extent }),
                Output::Lost { extent } => self.tell_lost(extent),
                Output::Fenced { volume, generation } => self.handle_fenced(group, volume, generation),
            }
        }
    }

    /// Goes on until nothing can be done without a completed IO, a message or time.
    fn run(&mut self, now: Instant) {
        loop {
            self.adapter.run(now);
            self.take_events();
            let Some(done) = self.adapter.poll_done() else { break };
            match done {
                Done::Mended(extent) => {
                    self.lost.remove(&extent);
                    self.out.push_back(HostOutput::Mended { extent });
                }
                Done::Forgotten(group) => self.handle_forgotten(now, group),
                Done::Deleted { volume, result } => self.out.push_back(HostOutput::Deleted { volume, result }),
                Done::Stored { group, id, result } => {
                    let member = self.members.get_mut(&group).expect("a member stays until its requests are completed");
                    let taken = member.handle_stored(now, id, result);
                    taken.expect("a member is handed the replies to its own requests");
                    self.drain(group);
                }
            }
        }
        self.update_room();
        let idle = |group: &GroupId| self.adapter.jobs_of(*group) == 0;
        let left: Vec<GroupId> = self.leaving.iter().copied().filter(idle).collect();
        left.into_iter().for_each(|group| self.release(group));
    }

    /// Tells the members when room gets low, and when there is enough again: a quarter more.
    fn update_room(&mut self) {
        let store = &self.adapter.store;
        let slots = usize::try_from(store.free_bytes() >> 20).unwrap_or(usize::MAX);
        let free = slots.min(store.free_extents());
        let low = self.config.room_low.min(store.superblock().geometry.slots as usize / 16);
        let enough = low + low / 4;
        let room = match self.room {
            Room::Enough if free <= low => Room::Low,
            Room::Low if free > enough => Room::Enough,
            same => same,
        };
        if room != self.room {
            self.room = room;
            self.members.values_mut().for_each(|member| member.handle_room(room));
        }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.adapter.store.poll_event() {
            match event {
                Event::Damage { extent } => {
                    if self.adapter.note_damage(extent) {
                        self.out.push_back(HostOutput::Damage { extent });
                    }
                }
                Event::Poisoned(error) => self.out.push_back(HostOutput::Poisoned(error)),
            }
        }
    }

    /// Drops a member that left and has nothing under way.
    fn release(&mut self, group: GroupId) {
        self.leaving.remove(&group);
        self.members.remove(&group);
        self.adapter.forget(group);
        self.begin_forgetting();
        self.update_tick();
        let volumes: Vec<VolumeId> = self.fencing.keys().copied().collect();
        for volume in volumes {
            self.handle_fenced(group, volume, Generation(u64::MAX));
        }
    }
}

#[cfg(test)]
mod tests;
