//! The machine that joins all parts.
//!
//! The parts decide; this machine carries what one has found to the others, and out. It is cut by what is going on:
//! `receive` (packets come in), `watch` (probes, doubts, failures), `spread` (news and differences), `elect` (ballots, claims,
//! roles), `handover` (primaries that agree to go), `depart` (members that stop in order), `migrate` (replicas go where
//! they are needed), `govern` (voters come and go), `command` (what the node wants),
//! `durable` (what must be on stable storage first), `views` (what is shown).
//!
//! Every `handle_*` ends in `finish`, which hands out durable state and computes [`Bus::next_tick`] anew from the few timers there
//! are. In the steady state no step takes time in proportion to the number of members.

mod command;
mod depart;
mod durable;
mod elect;
mod govern;
mod handover;
mod migrate;
mod receive;
mod spread;
mod views;
mod watch;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::{Incarnation, ServerId};
use ashlar_wire::time::Instant;

use crate::ballot::{Ballot, Votes};
use crate::chance::Chance;
use crate::claim::Claims;
use crate::config::{Config, Identity};
use crate::counters::Counters;
use crate::event::{CopyState, Departure, Event, Output, RestoreError, Role, Ticket, Unfit};
use crate::gossip::Gossip;
use crate::member::{Description, Life, MemberRecord, Members, Opinion, Seen};
use crate::packet::{Body, Circular, Header, Silence, encode};
use crate::planted::Bugs;
use crate::probe::Prober;
use crate::reach::Reach;
use crate::saved::Saved;
use crate::slot::GroupId;
use crate::suspicion::Suspicion;
use crate::voters::{FIRST_LIFE, Voters};
use durable::Durable;
use handover::Handover;

/// A timer that is this late means that this process was stopped.
const STALL_MIN: Duration = Duration::from_millis(500);
/// A server that was introduced is asked again this often until it answers.
const MEET_EVERY: Duration = Duration::from_secs(1);
/// So often.
const MEET_TRIES_MAX: u32 = 300;

/// This member's part in a group.
#[derive(Debug, Clone)]
struct Place {
    role: Role,
    /// How far its copy goes.
    offset: u64,
    /// Whether its copy is whole, and how old it is; of a replica.
    copy: CopyState,
    /// The claim under which it was told last that this member does not stand, and why not.
    unfit: Option<(Epoch, Unfit)>,
    /// It takes no writes, for an agreed failover.
    paused: Option<handover::Pause>,
    /// How much the other replicas have told to have, upon the failure of the primary of this epoch.
    told: BTreeMap<ServerId, (Epoch, u64)>,
}

/// A wish that a member be forgotten. It is remembered for a while after its end, so that it is not taken again from
/// somebody for whom it ends a little later.
#[derive(Debug, Clone, Copy)]
struct KeptOut {
    tag: u32,
    until: Instant,
    /// What had been heard of which of its lives: it may come back in the same one, and late packets with it.
    heard: Option<(Incarnation, Seen)>,
}

/// A server that is being introduced.
#[derive(Debug, Clone)]
struct Meeting {
    address: String,
    next: Instant,
    tries: u32,
}

/// A quick look at all members, after several doubts at once.
#[derive(Debug, Clone, Copy)]
struct Sweep {
    cursor: usize,
    next: Instant,
}

/// Who hears a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hearers {
    /// All voters.
    All,
    /// The few that care for the member first, or those that come after them.
    Few(u32),
}

/// What waits to be told to voters together.
#[derive(Debug, Clone, Default)]
struct Outbound {
    /// Own doubts, for a few voters.
    doubts: Vec<ServerId>,
    /// A voter's doubts, for all voters.
    relayed: Vec<ServerId>,
    /// Suspicions, and withdrawn ones.
    reports: Vec<(Silence, Hearers)>,
    /// Failures that were declared here, for the replicas concerned.
    declared: Vec<ServerId>,
}

impl Outbound {
    fn is_empty(&self) -> bool {
        self.doubts.is_empty() && self.relayed.is_empty() && self.reports.is_empty() && self.declared.is_empty()
    }
}

/// How this member stands to the rest of the cluster.
#[derive(Debug, Clone, Default)]
struct Standing {
    /// Since when a majority of the voters is in reach.
    held_since: Option<Instant>,
    /// Whether its claims were found equal to those of a peer in reach of a majority since `held_since`, or nobody else lives.
    matched: bool,
    /// Since when it differs from those that it speaks with.
    differs_since: Option<Instant>,
    /// Since when it has differed from some of them, without so many in a row that know the same.
    unsettled_since: Option<Instant>,
    /// When what it knows changed last.
    changed_at: Instant,
    next_sync: Instant,
    /// Since when it is said to have failed.
    accused_since: Option<Instant>,
    /// Whether every slot has a living owner.
    covered: bool,
    /// Owners of slots that have failed or are no members.
    lapsed: BTreeSet<ServerId>,
    /// `covered` must be looked at again.
    recount: bool,
    /// Whether this member may take writes at all.
    writable: bool,
}

/// One member's whole bus state. See the [crate] for what it promises.
///
/// The caller drives it: bytes from the transport, time at [`Bus::next_tick`], commands of the node, and word that durable
/// state has reached stable storage; after each of these it drains [`Bus::poll_output`].
///
/// A clone is for simulations, which go on from one state in several ways: two of them with one id must never speak with
/// the same members.
#[derive(Debug, Clone)]
pub struct Bus {
    config: Config,
    identity: Identity,
    bugs: Bugs,
    chance: Chance,
    counters: Counters,
    outputs: VecDeque<Output>,
    /// When the next tick is due; `finish` keeps it true.
    next: Instant,

    members: Members,
    prober: Prober,
    suspicion: Suspicion,
    gossip: Gossip,
    claims: Claims,
    voters: Voters,
    votes: Votes,
    reach: Reach,
    ballots: BTreeMap<GroupId, Ballot>,
    handovers: BTreeMap<GroupId, Handover>,
    /// Groups in which this member has a part or had one.
    places: BTreeMap<GroupId, Place>,
    /// The greatest epoch that was heard of.
    current: Epoch,
    durable: Durable,
    standing: Standing,

    keep_outs: BTreeMap<ServerId, KeptOut>,
    /// The last wish by which this member itself was forgotten, as far as it was told.
    told_forgotten: Option<u32>,
    /// Who told it so last, unless some member has answered since.
    forgotten_by: Option<ServerId>,
    /// The life that this member tells: that of its identity, unless somebody made up a later one and it had to go beyond that.
    life: Incarnation,
    /// In which life this member's memory began.
    memory_since: Incarnation,
    meetings: BTreeMap<ServerId, Meeting>,
    channels: BTreeSet<Vec<u8>>,
    hears_all: bool,
    /// What this member tells of its services.
    services: Box<[u8]>,
    outbound: Outbound,
    /// When what waits to be told together leaves.
    flush_at: Option<Instant>,
    next_turn: Instant,
    sweep: Option<Sweep>,
    swept_at: Option<Instant>,
    govern: govern::Govern,
    /// When to look for orphaned primaries.
    migrate_at: Option<Instant>,
    /// Whether this member is about to stop, and when it offers next what it leads.
    departure: Departure,
    offer_at: Option<Instant>,
}

impl Bus {
    /// A member that begins a life at `now`. `saved` is what the last [`Output::Persist`] of an earlier life held that
    /// reached stable storage, or `None` for a new member. `seed` is the randomness of this life.
    ///
    /// # Errors
    /// The saved record is not this member's memory. Not safe to retry: without its memory it must not start.
    pub fn new(
        config: Config,
        identity: Identity,
        saved: Option<&[u8]>,
        seed: u64,
        now: Instant,
    ) -> Result<Self, RestoreError> {
        Self::start(config, identity, saved, seed, now, Bugs::default())
    }

    /// The same, with a rule that it breaks from the beginning.
    ///
    /// # Errors
    /// As [`Bus::new`].
    #[cfg(feature = "planted")]
    pub fn new_planted(
        config: Config,
        identity: Identity,
        saved: Option<&[u8]>,
        seed: u64,
        now: Instant,
        bug: crate::planted::Planted,
    ) -> Result<Self, RestoreError> {
        Self::start(config, identity, saved, seed, now, Bugs { planted: Some(bug) })
    }

    /// Breaks a rule from now on, for the proof that checkers see it.
    #[cfg(feature = "planted")]
    pub fn plant(&mut self, bug: crate::planted::Planted) {
        self.bugs = Bugs { planted: Some(bug) };
    }

    fn start(
        config: Config,
        identity: Identity,
        saved: Option<&[u8]>,
        seed: u64,
        now: Instant,
        bugs: Bugs,
    ) -> Result<Self, RestoreError> {
        if identity.address.len() > config.address_bytes_max {
            return Err(RestoreError::AddressTooLong);
        }
        let memory = saved.map(|bytes| Saved::decode_with(bytes, &identity, &config, bugs)).transpose()?;
        let mut bus = Self::blank(config, identity, seed, now);
        bus.bugs = bugs;
        bus.memory_since = memory.as_ref().map_or(bus.memory_since, |memory| memory.memory_since);
        let own = bus.own_description();
        let refuted = memory.as_ref().map_or(0, |memory| memory.refuted);
        let life = Life { refuted, failed: false };
        bus.members.insert(MemberRecord { id: bus.identity.server, description: own, life }, now);
        if let Some(memory) = memory {
            bus.restore(memory, now);
        }
        bus.gossip.add(crate::gossip::Subject::Member(bus.identity.server), NEWS_MAX);
        bus.durable.need();
        bus.govern.handle_changed(now);
        bus.arm_flush(now);
        bus.finish(now);
        Ok(bus)
    }

    /// Nobody known, not even itself.
    fn blank(config: Config, identity: Identity, seed: u64, now: Instant) -> Self {
        let mut chance = Chance::new(seed);
        let first_token = u32::try_from(chance.next_u64() >> 32).unwrap_or(0);
        let first_turn = now + chance.span(config.probe_interval);
        Self {
            prober: Prober::new(config.probe_wait_min, config.probe_wait_max, first_token),
            bugs: Bugs::default(),
            counters: Counters::default(),
            outputs: VecDeque::new(),
            next: now,
            members: Members::default(),
            suspicion: Suspicion::default(),
            gossip: Gossip::default(),
            claims: Claims::default(),
            voters: Voters::default(),
            votes: Votes::default(),
            reach: Reach::default(),
            ballots: BTreeMap::new(),
            handovers: BTreeMap::new(),
            places: BTreeMap::new(),
            current: Epoch::ZERO,
            durable: Durable::default(),
            standing: Standing { changed_at: now, next_sync: now, recount: true, ..Standing::default() },
            keep_outs: BTreeMap::new(),
            told_forgotten: None,
            forgotten_by: None,
            life: identity.incarnation,
            memory_since: identity.incarnation.max(FIRST_LIFE),
            meetings: BTreeMap::new(),
            channels: BTreeSet::new(),
            hears_all: false,
            services: Box::default(),
            outbound: Outbound::default(),
            flush_at: None,
            next_turn: first_turn,
            sweep: None,
            swept_at: None,
            govern: govern::Govern::default(),
            migrate_at: None,
            departure: Departure::Stays,
            offer_at: None,
            chance,
            config,
            identity,
        }
    }

    /// Other choices from now on, and another order of probing: so that clones of one state go different ways.
    pub fn reseed(&mut self, seed: u64) {
        self.chance = Chance::new(seed);
        self.prober.handle_removed(self.members.len(), &mut self.chance);
    }

    fn own_description(&self) -> Description {
        let follows = self.places.iter().filter(|(_, place)| place.role == Role::Replica).map(|(group, _)| *group);
        Description {
            incarnation: self.life,
            revision: self.members.get(self.identity.server).map_or(0, |own| own.description.revision + 1),
            zone: self.identity.zone,
            address: self.identity.address.as_str().into(),
            follows: follows.take(self.config.follows_max).collect(),
            memory_since: self.memory_since,
            interest: crate::pubsub::encode_interest(&self.channels, self.hears_all),
            services: self.services.clone(),
        }
    }

    /// Time has passed. To be called at or after [`Bus::next_tick`]; earlier calls do nothing.
    pub fn handle_tick(&mut self, now: Instant) {
        self.notice_stall(now);
        self.tick_probes(now);
        self.tick_doubts(now);
        self.tick_sweep(now);
        self.tick_meetings(now);
        self.tick_ballots(now);
        self.tick_handovers(now);
        self.tick_offers(now);
        self.tick_govern(now);
        self.tick_migration(now);
        self.try_refute(now);
        self.tick_flush(now);
        self.finish(now);
    }

    /// When to call [`Bus::handle_tick`] next. May change with every other call.
    #[must_use]
    pub fn next_tick(&self) -> Instant {
        self.next
    }

    /// Every [`Output::Persist`] up to `ticket` is on stable storage.
    pub fn handle_persisted(&mut self, now: Instant, ticket: Ticket) {
        self.notice_stall(now);
        self.persisted(now, ticket);
        self.finish(now);
    }

    /// What to do next; to be drained after every `handle_*`.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// A timer that is far too late means that this process was stopped: that silence was its own.
    fn notice_stall(&mut self, now: Instant) {
        if now > self.next + STALL_MIN {
            let span = now.saturating_since(self.next);
            self.counters.stalls += 1;
            self.prober.handle_stall(span);
            let withdrawn = self.suspicion.handle_stall(span, now);
            self.doubt_anew(now, withdrawn);
            self.next = now;
        }
    }

    /// What every `handle_*` ends with.
    fn finish(&mut self, now: Instant) {
        self.persist(now);
        self.judge_standing(now);
        self.next = self.earliest(now);
    }

    /// The earliest of all timers.
    fn earliest(&self, now: Instant) -> Instant {
        let or_never = |at: Option<Instant>| at.unwrap_or(Instant::NEVER);
        let least = |times: &mut dyn Iterator<Item = Instant>| times.min().unwrap_or(Instant::NEVER);
        let timers = [
            self.next_turn,
            self.prober.next_deadline(),
            self.suspicion.next_poll(),
            self.reach.next_pulse(),
            or_never(self.flush_at),
            or_never(self.sweep.map(|sweep| sweep.next)),
            or_never(self.migrate_at),
            or_never(self.offer_at),
            self.durable.next_save(),
            self.govern.next_tick(),
            self.next_turning_point(now),
            least(&mut self.ballots.values().map(Ballot::due)),
            least(&mut self.handovers.values().map(Handover::due)),
            least(&mut self.places.values().filter_map(|place| place.paused.map(|pause| pause.until))),
            least(&mut self.meetings.values().map(|meeting| meeting.next)),
        ];
        timers.into_iter().min().unwrap_or(Instant::NEVER)
    }

    /// When the standing changes by time alone: a majority is lost, writes are taken again, a failure may be refuted.
    fn next_turning_point(&self, now: Instant) -> Instant {
        let own = self.identity.server;
        let mut at = Instant::NEVER;
        if let Some(since) = self.standing.held_since {
            let timeout = self.config.member_timeout;
            let is_always = self.reach.majority_at(&self.voters, own, now) == Some(now);
            let until = self.reach.held_until(&self.voters, own, timeout, now);
            at = if is_always { at } else { until.unwrap_or(now) };
            if !self.standing.writable && since + self.config.rejoin_delay > now {
                at = at.min(since + self.config.rejoin_delay);
            }
        }
        match self.standing.accused_since {
            Some(since) => at.min((since + self.config.member_timeout * 2).max(now + Duration::from_millis(100))),
            None => at,
        }
    }

    /// Whether a majority is in reach, and what follows for writes.
    fn judge_standing(&mut self, now: Instant) {
        let (own, timeout) = (self.identity.server, self.config.member_timeout);
        let held = self.reach.held_until(&self.voters, own, timeout, now).is_some();
        if held != self.standing.held_since.is_some() {
            self.standing.held_since = held.then_some(now);
            self.standing.matched = false;
            self.event(Event::QuorumChanged { held });
            if held {
                let withdrawn = self.suspicion.handle_regained(now);
                self.doubt_anew(now, withdrawn);
            }
        }
        // Where nobody else lives there is nobody to know more. Those that failed before a restart are found to have failed once more.
        self.standing.matched |= self.members.living() == 1 && self.standing.accused_since.is_none();
        if core::mem::take(&mut self.standing.recount) {
            self.standing.covered = self.is_covered();
        }
        let ready = self.standing.held_since.is_some_and(|since| now >= since + self.config.rejoin_delay);
        let stands = self.standing.accused_since.is_none() && self.departure != Departure::Left;
        let writable = ready && self.standing.matched && stands;
        if core::mem::replace(&mut self.standing.writable, writable) != writable {
            self.event(Event::ConfirmedChanged { confirmed: writable });
            if writable {
                self.advance_handovers(now);
            }
        }
    }

    /// Suspicions from a time when no majority was in reach, or from before a stop of this process, are taken back.
    fn doubt_anew(&mut self, now: Instant, withdrawn: Vec<ServerId>) {
        for id in withdrawn {
            if let Some(member) = self.members.get_mut(id) {
                member.opinion = Opinion::Doubted;
            }
            self.event(Event::Unsuspected { id });
            self.withdraw(id, now);
        }
    }

    /// Whether every slot has an owner that has not failed.
    fn is_covered(&mut self) -> bool {
        let turned = [self.members.take_turned(), self.claims.take_turned()];
        for id in turned.into_iter().flatten() {
            let has_failed = self.members.get(id).is_none_or(|member| member.life.failed);
            if has_failed && self.claims.owned_by_server(id) > 0 {
                self.standing.lapsed.insert(id);
            } else {
                self.standing.lapsed.remove(&id);
            }
        }
        self.standing.lapsed.is_empty() && self.claims.assigned() == crate::slot::SLOTS
    }

    /// Sends a packet.
    fn send(&mut self, to: ServerId, body: &Body) {
        let header = self.next_header(to);
        let bytes = encode(self.identity.cluster, header, body);
        self.hand_out(to, bytes);
    }

    /// Sends the same to many.
    fn send_to_all(&mut self, to: impl IntoIterator<Item = ServerId>, body: &Body) {
        let circular = Circular::new(body);
        for id in to {
            let header = self.next_header(id);
            let bytes = circular.encode(self.identity.cluster, header);
            self.hand_out(id, bytes);
        }
    }

    fn next_header(&mut self, to: ServerId) -> Header {
        let sequence = self.members.get_mut(to).map_or(0, |member| {
            member.sent = member.sent.saturating_add(1);
            member.sent
        });
        Header { incarnation: self.life, sequence }
    }

    fn hand_out(&mut self, to: ServerId, bytes: Vec<u8>) {
        self.counters.packets_sent += 1;
        self.counters.bytes_sent += bytes.len() as u64;
        self.outputs.push_back(Output::Send { to, bytes });
    }

    fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    fn arm_flush(&mut self, now: Instant) {
        self.flush_at = Some(self.flush_at.unwrap_or(now + self.config.news_delay));
    }

    /// Introduced servers are asked again until they answer.
    fn tick_meetings(&mut self, now: Instant) {
        let due: Vec<ServerId> =
            self.meetings.iter().filter(|(_, meeting)| meeting.next <= now).map(|(id, _)| *id).collect();
        for id in due {
            let Some(meeting) = self.meetings.get_mut(&id) else { continue };
            meeting.tries += 1;
            meeting.next = now + MEET_EVERY;
            if meeting.tries > MEET_TRIES_MAX {
                self.meetings.remove(&id);
            } else {
                let own = self.own_record();
                self.send(id, &Body::Meet(own));
            }
        }
    }

    fn own_record(&self) -> MemberRecord {
        self.members.get(self.identity.server).expect("a member knows itself").record()
    }
}

/// Pieces of news that are kept for telling.
const NEWS_MAX: usize = 4_096;

#[cfg(test)]
mod tests;
