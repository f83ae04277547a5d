//! The control thread's side of the mailboxes: orders and reports become commands of the bus, and what the bus decides becomes assignments.

use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;

use ashlar_bus::event::{CopyState, GroupView, Health, How, Role};
use ashlar_bus::slot::{GroupId, SlotRange, SlotSet};
use ashlar_bus::{Bus, Command, CommandError, Event};
use ashlar_kv::cluster::control::{FailoverKind, Order};
use ashlar_kv::cluster::map::{self, Name};
use ashlar_kv::replicate::{CopyStatus, Upstream};
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;

use super::assignment::{Assignment, EngineInfo, Report, server_of};
use super::mailboxes::{Answer, EngineMailboxes, PendingRequest};
use super::messages::{Listener, Messages, Relay};
use super::planted::{self, Planted};
use super::services::Services;
use super::topology::Topology;
use crate::service::{Agent, NodeAction};

/// How long the bus may take to do what was ordered; the mailboxes wait longer.
const GOAL_MAX: Duration = Duration::from_secs(4);
/// A replica that takes over by agreement is looked at closely for so long.
const AWAITED_MAX: Duration = Duration::from_secs(6);
/// What the bus refused for being busy is tried again after this.
const RETRY: Duration = Duration::from_millis(20);
/// For how long leave to take slots lasts at most, and some more (`ashlar_kv::cluster::migration`).
const QUIET: Duration = Duration::from_millis(2_500);
/// How much later than the bus an order is given up that the bus decides in time or not at all.
const TAKE_SLACK: Duration = Duration::from_millis(50);
/// Several changes that come one after another make one map.
const GATHER: Duration = Duration::from_millis(2);

/// When an order is done.
#[derive(Debug)]
enum Goal {
    /// Once the bus has taken the command.
    Taken,
    /// Once this server owns these slots for the group.
    Holds(GroupId, SlotSet),
    /// Once it does not.
    Lacks(GroupId, SlotSet),
    /// Once this server's claim of the group is of a greater epoch.
    Renewed(GroupId, Epoch),
}

/// An order that is not done.
#[derive(Debug)]
struct Pending {
    /// What the bus is to be told still.
    command: Option<Command>,
    goal: Goal,
    answer: Answer,
    until: Instant,
}

/// What the controller knows of one engine.
#[derive(Debug, Default)]
struct File {
    engine_info: EngineInfo,
    /// How far its data went when the bus was last told.
    offset: Option<u64>,
    /// What it had of its primary's data then; nothing if the bus is to be told anew.
    copy: Option<CopyStatus>,
    /// Until when it may be taking over by agreement.
    awaited_until: Option<Instant>,
    /// Until when its primary may be pausing for it.
    succeeds_until: Option<Instant>,
    purges: u64,
    /// It asks a majority before it serves ([`Report::asks_majority`]).
    asks_majority: bool,
    /// The engine has told where clients reach it.
    is_told: bool,
}

/// The controller.
#[derive(Debug)]
pub(crate) struct Controller {
    mailboxes: Arc<EngineMailboxes>,
    files: Vec<File>,
    bus_port: u16,
    zone: String,
    /// Replicas follow on streams of the grid.
    has_streams: bool,
    /// Groups whose primary here pauses for a replica.
    paused: BTreeSet<GroupId>,
    pending: Vec<Pending>,
    /// Orders that are done with the next assignments.
    done: Vec<Answer>,
    /// Whoever has ordered that this server leaves its cluster, which the node is about to do.
    leaving: Vec<Answer>,
    /// Something has changed since then.
    changed_at: Option<Instant>,
    /// The cluster has forgotten this server: its engines follow nobody.
    is_forgotten: bool,
    /// An engine here owns slots now, of which it is to know at once.
    is_urgent: bool,
    retry_at: Option<Instant>,
    told: Option<Services>,
    needs_all_slots: bool,
    /// Whether the bus was told that this server listens to messages.
    listens: bool,
    /// Until when slots that this server had when it started are served to nobody: others may be allowed to take them still.
    quiet_until: Option<Instant>,
    is_begun: bool,
}

impl Controller {
    pub(crate) fn new(
        mailboxes: Arc<EngineMailboxes>,
        engines: Vec<EngineInfo>,
        bus_port: u16,
        zone: String,
        has_streams: bool,
    ) -> Self {
        let files = engines.into_iter().map(|engine_info| File { engine_info, ..File::default() }).collect();
        Self {
            mailboxes,
            files,
            bus_port,
            zone,
            has_streams,
            paused: BTreeSet::new(),
            pending: Vec::new(),
            done: Vec::new(),
            leaving: Vec::new(),
            changed_at: None,
            is_forgotten: false,
            is_urgent: false,
            retry_at: None,
            told: None,
            needs_all_slots: true,
            listens: false,
            quiet_until: None,
            is_begun: false,
        }
    }

    /// The mailboxes wake the controller by this, and messages of engines are carried so.
    pub(crate) fn open(&self, wake: Box<dyn Fn() + Send + Sync>, relay: Box<dyn Relay>) {
        self.mailboxes.messages().open(relay);
        self.mailboxes.open(wake);
    }

    /// Messages of engines to subscribers elsewhere.
    pub(crate) fn messages(&self) -> &Arc<Messages> {
        self.mailboxes.messages()
    }

    /// Before it started this server may have allowed another to take its slots: it serves nothing for as long as that may last. A shard that
    /// asks a majority of its copies gives no such leave, and entered that mode when none was out.
    fn keep_quiet(&mut self, bus: &Bus, now: Instant) {
        let is_begun = std::mem::replace(&mut self.is_begun, true);
        if is_begun && self.quiet_until.is_none() {
            return;
        }
        let own = bus.identity().server;
        let asks_majority =
            |group: GroupId| self.files.iter().any(|file| file.engine_info.group == group && file.asks_majority);
        let has_slots =
            bus.groups().any(|view| view.primary == own && !view.slots.is_empty() && !asks_majority(view.group));
        if !is_begun {
            self.quiet_until = has_slots.then_some(now + QUIET);
        }
        // What it learns to be another's by now it cannot have allowed anybody to take: what it takes over next is by a later vote.
        if self.quiet_until.is_some_and(|until| until <= now || !has_slots) {
            self.quiet_until = None;
            self.changed_at = Some(self.changed_at.unwrap_or(now));
        }
    }

    fn services(&self) -> Services {
        let engines = self.files.iter().map(|file| file.engine_info.clone()).collect();
        Services { bus_port: self.bus_port, zone: self.zone.clone(), engines }
    }

    /// Whether all engines of this server have told where clients reach them.
    fn knows_engines(&self) -> bool {
        self.files.iter().all(|file| file.is_told)
    }

    /// Tells all members of this server's engines, if that is news. An engine whose ports are not known is told to nobody: clients would
    /// be sent to port 0.
    fn describe(&mut self, bus: &mut Bus, now: Instant) {
        let services = self.services();
        if self.knows_engines() && self.told.as_ref() != Some(&services) {
            // The form is never longer than it may be.
            let _ = bus.handle_command(now, Command::Describe { services: services.encode() });
            self.told = Some(services);
        }
    }

    fn read_reports(&mut self, bus: &mut Bus, now: Instant) {
        let (reports, mut wants_messages) = (self.mailboxes.reports(), false);
        for (file, report) in self.files.iter_mut().zip(reports) {
            let Some(Report { told, offset, copy, is_settled, needs_all_slots, listens, asks_majority }) = report
            else {
                continue;
            };
            file.asks_majority = asks_majority;
            wants_messages |= listens;
            let (group, has_data) = (file.engine_info.group, offset.is_some());
            let is_news = !file.is_told || file.engine_info.told != told || file.engine_info.has_data != has_data;
            file.is_told = true;
            if is_news || self.needs_all_slots != needs_all_slots {
                (file.engine_info.told, file.engine_info.has_data, self.needs_all_slots) =
                    (told, has_data, needs_all_slots);
                self.changed_at = Some(self.changed_at.unwrap_or(now));
            }
            if file.offset != offset || file.copy != Some(copy) {
                let offset_told = Command::Offset { group, offset: offset.unwrap_or(0), copy: copy_state(copy) };
                file.offset = offset;
                // It is refused where the engine has no part in its group yet, and is told again then.
                file.copy = bus.handle_command(now, offset_told).is_ok().then_some(copy);
            }
            if is_settled && self.paused.contains(&group) {
                let _ = bus.handle_command(now, Command::Paused { group });
            }
        }
        if self.listens != wants_messages {
            self.listens = wants_messages;
            // It is never refused.
            let _ = bus.handle_command(now, Command::SubscribeAll { wanted: wants_messages });
        }
        self.describe(bus, now);
    }

    fn take_order(
        &mut self,
        bus: &mut Bus,
        now: Instant,
        PendingRequest { number, order, answer }: PendingRequest,
        chance: &mut dyn FnMut() -> u64,
    ) -> Option<NodeAction> {
        let file = self.files.get_mut(number)?;
        let group = file.engine_info.group;
        let mut pend = |command, goal| {
            self.pending.push(Pending { command, goal, answer, until: now + GOAL_MAX });
        };
        match order {
            Order::Meet { host, bus_port, .. } => {
                pend(None, Goal::Taken);
                return Some(NodeAction::Meet(address(&host, bus_port)));
            }
            Order::Forget(name) => pend(Some(Command::Forget { id: server_of(name).0 }), Goal::Taken),
            Order::Claim(ranges) => {
                let slots = slots(&ranges);
                pend(Some(Command::Claim { group, slots: slots.ranges().to_vec() }), Goal::Holds(group, slots));
            }
            Order::Take { ranges, until } => {
                let slots = slots(&ranges);
                let command = Command::Take { group, slots: slots.ranges().to_vec(), until };
                let goal = Goal::Holds(group, slots);
                // Whatever the bus has not decided then it has dropped.
                let until = until.max(now) + TAKE_SLACK;
                self.pending.push(Pending { command: Some(command), goal, answer, until });
            }
            Order::Renew => {
                let epoch = bus.primary(group).map_or(Epoch::ZERO, |(_, epoch)| epoch);
                pend(Some(Command::Claim { group, slots: Vec::new() }), Goal::Renewed(group, epoch));
            }
            Order::Release(ranges) => {
                let slots = slots(&ranges);
                let known = bus.primary(group).is_some();
                let command = known.then(|| Command::Release { group, slots: slots.ranges().to_vec() });
                pend(command, Goal::Lacks(group, slots));
            }
            Order::Failover(kind) => {
                file.awaited_until = Some(now + AWAITED_MAX);
                self.changed_at = Some(self.changed_at.unwrap_or(now));
                let how = match kind {
                    FailoverKind::Agreed => How::Agreed,
                    FailoverKind::Forced => How::Forced,
                    FailoverKind::Takeover => How::Takeover,
                };
                pend(Some(Command::Failover { group, how }), Goal::Taken);
            }
            Order::Save => pend(None, Goal::Taken),
            Order::Follow(name) => self.follow(bus, now, number, name, answer),
            Order::Detach => {
                let _ = bus.handle_command(now, Command::Unfollow { group });
                self.begin_anew(number, GroupId(chance()), None);
                self.done.push(answer);
                self.describe(bus, now);
            }
            Order::Reset { hard } => {
                let own = bus.identity().server;
                let is_theirs = |view: &GroupView| view.primary == own && view.group != group && !view.slots.is_empty();
                if bus.groups().any(|view| is_theirs(&view)) {
                    let text =
                        "the other engine of this server serves slots, and would leave the cluster too".to_owned();
                    self.mailboxes.answer(answer, Err(text));
                    return None;
                }
                for number in 0..self.files.len() {
                    let tag = hard.then(|| EngineInfo::tag(number, u32::try_from(chance() >> 32).unwrap_or(0)));
                    self.begin_anew(number, GroupId(chance()), tag);
                }
                self.leaving.push(answer);
                return Some(NodeAction::LeaveCluster);
            }
        }
        None
    }

    /// An engine begins a group of its own, without data.
    fn begin_anew(&mut self, number: usize, group: GroupId, tag: Option<u32>) {
        let file = &mut self.files[number];
        file.engine_info.group = group;
        file.engine_info.tag = tag.unwrap_or(file.engine_info.tag);
        (file.offset, file.purges) = (None, file.purges + 1);
    }

    fn follow(&mut self, bus: &mut Bus, now: Instant, number: usize, name: Name, answer: Answer) {
        let Some(group) = self.group_of(bus, name) else {
            self.mailboxes.answer(answer, Err(format!("Unknown node {name}")));
            return;
        };
        let before = self.files[number].engine_info.group;
        if self.files.iter().enumerate().any(|(other, file)| other != number && file.engine_info.group == group) {
            let text = "a server's two engines cannot be of one shard: they would be lost together".to_owned();
            self.mailboxes.answer(answer, Err(text));
            return;
        }
        if before != group {
            // It may follow nobody.
            let _ = bus.handle_command(now, Command::Unfollow { group: before });
        }
        match bus.handle_command(now, Command::Follow { group }) {
            Ok(()) => {
                let file = &mut self.files[number];
                (file.engine_info.group, file.offset) = (group, None);
                self.describe(bus, now);
                self.done.push(answer);
            }
            Err(error) => self.mailboxes.answer(answer, Err(error.to_string())),
        }
    }

    /// The group of a node.
    fn group_of(&self, bus: &Bus, name: Name) -> Option<GroupId> {
        let (server, tag) = server_of(name);
        let services = match server == bus.identity().server {
            true => self.services(),
            false => Services::decode(bus.member(server)?.services)?,
        };
        services.engines.into_iter().find(|engine_info| engine_info.tag == tag).map(|engine_info| engine_info.group)
    }

    /// Tells the bus what it has not taken yet, and answers orders that are done or have taken too long.
    fn pursue(&mut self, bus: &mut Bus, now: Instant) {
        let mut left = Vec::new();
        for mut pending in core::mem::take(&mut self.pending) {
            let refused = pending.command.take().and_then(|command| {
                let refused = bus.handle_command(now, command.clone()).err()?;
                if refused == CommandError::Busy {
                    pending.command = Some(command);
                    return None;
                }
                Some(refused)
            });
            if let Some(error) = refused {
                self.mailboxes.answer(pending.answer, Err(error.to_string()));
            } else if pending.command.is_none() && (is_reached(bus, &pending.goal) || planted::has(Planted::DoneAtOnce))
            {
                self.done.push(pending.answer);
            } else if pending.until <= now {
                let text = "the cluster has not agreed in time: is a majority of its voters there?".to_owned();
                self.mailboxes.answer(pending.answer, Err(text));
            } else {
                left.push(pending);
            }
        }
        self.retry_at = (!left.is_empty()).then_some(now + RETRY);
        self.pending = left;
    }

    /// Replicas may have gone over to another group by themselves, and what was promised to survive a restart stands in the bus: an engine
    /// without a part takes that which nobody sits on. Where there is none, and another server has the engine's group, it follows that.
    fn reconcile(&mut self, bus: &mut Bus, now: Instant) {
        let own = bus.identity().server;
        let follows: Vec<GroupId> = bus.member(own).map(|member| member.follows.to_vec()).unwrap_or_default();
        let owned = bus.groups().filter(|view| view.primary == own && !view.slots.is_empty()).map(|view| view.group);
        let parts: BTreeSet<GroupId> = owned.chain(follows).collect();
        let mut free: Vec<GroupId> = parts
            .iter()
            .copied()
            .filter(|group| self.files.iter().all(|file| file.engine_info.group != *group))
            .collect();
        for file in &mut self.files {
            if parts.contains(&file.engine_info.group) {
                continue;
            }
            if let Some(group) = free.pop() {
                (file.engine_info.group, file.offset) = (group, None);
            } else if bus.primary(file.engine_info.group).is_some_and(|(server, _)| server != own) {
                // It is refused where this server follows as many as it may.
                let _ = bus.handle_command(now, Command::Follow { group: file.engine_info.group });
            }
        }
    }

    /// Puts down what all engines are to be.
    fn assign(&mut self, bus: &mut Bus, now: Instant) {
        self.describe(bus, now);
        let own_groups = self.files.iter().map(|file| file.engine_info.group).collect();
        self.mailboxes.messages().set_listeners(listeners(bus), own_groups);
        let mut topology = Topology::draw(bus, &self.services(), self.needs_all_slots);
        if self.quiet_until.is_some() {
            topology.close();
        }
        let own: ServerId = bus.identity().server;
        let assignments = self.files.iter().map(|file| {
            let map = topology.map(file.engine_info.name(own));
            let primary = map.own().primary.and_then(|name| map.node(name));
            let upstream = primary.filter(|_| !self.is_forgotten).map(|node| {
                let (host, port) = (node.place.host.clone(), node.place.port);
                let id = server_of(node.name).0;
                if self.has_streams { Upstream::Server { id, host, port } } else { Upstream::Address { host, port } }
            });
            let is_paused = self.paused.contains(&file.engine_info.group);
            let is_replica_until =
                |until: Option<Instant>| upstream.is_some() && until.is_some_and(|until| now < until);
            let is_awaited = is_replica_until(file.awaited_until);
            let is_successor = is_replica_until(file.succeeds_until);
            Assignment {
                engine_info: file.engine_info.clone(),
                map,
                upstream,
                is_paused,
                is_awaited,
                is_successor,
                purges: file.purges,
            }
        });
        self.mailboxes.assign(assignments.collect(), core::mem::take(&mut self.done));
    }
}

impl Agent for Controller {
    fn handle_event(&mut self, event: &Event, now: Instant) {
        match event {
            Event::HandoverPaused { group } => drop(self.paused.insert(*group)),
            Event::HandoverOffered { group } => {
                let files = self.files.iter_mut().filter(|file| file.engine_info.group == *group);
                files.for_each(|file| file.awaited_until = Some(now + AWAITED_MAX));
            }
            Event::HandoverGranted { group } => {
                let files = self.files.iter_mut().filter(|file| file.engine_info.group == *group);
                files.for_each(|file| file.succeeds_until = Some(now + AWAITED_MAX));
                // The primary sends clients here as soon as this server has taken over: its engine is to know before.
                self.is_urgent = true;
            }
            Event::HandoverEnded { group } => drop(self.paused.remove(group)),
            Event::RoleChanged { group, role, .. } => {
                // The bus has forgotten what the engine has, which counts for one role.
                let files = self.files.iter_mut().filter(|file| file.engine_info.group == *group);
                files.for_each(|file| (file.copy, file.succeeds_until) = (None, None));
                // Others send clients here as soon as they know.
                self.is_urgent |= *role == Role::Primary;
            }
            _ => {}
        }
        self.changed_at = Some(self.changed_at.unwrap_or(now));
    }

    fn turn(&mut self, bus: &mut Bus, now: Instant, chance: &mut dyn FnMut() -> u64) -> Vec<NodeAction> {
        let mut actions = Vec::new();
        if core::mem::replace(&mut self.is_forgotten, bus.forgotten_by(now).is_some()) != self.is_forgotten {
            self.changed_at = Some(self.changed_at.unwrap_or(now));
        }
        self.mailboxes.set_serves_until(bus.in_reach_until(now));
        let is_news = self.mailboxes.take_news();
        if is_news || self.files.iter().any(|file| file.copy.is_none()) {
            self.read_reports(bus, now);
        }
        self.keep_quiet(bus, now);
        if is_news {
            for request in self.mailboxes.take_orders() {
                actions.extend(self.take_order(bus, now, request, chance));
            }
        }
        self.pursue(bus, now);
        if !self.knows_engines() {
            // The first report of the last engine begins it.
            (self.changed_at, self.is_urgent) = (None, false);
            return actions;
        }
        let is_due = self.changed_at.is_some_and(|at| at + GATHER <= now);
        if is_due || self.is_urgent || !self.done.is_empty() {
            (self.changed_at, self.is_urgent) = (None, false);
            if !planted::has(Planted::NoReconcile) {
                self.reconcile(bus, now);
            }
            self.assign(bus, now);
        }
        actions
    }

    fn due(&self) -> Instant {
        if self.is_urgent {
            return Instant::default();
        }
        let map = self.changed_at.map_or(Instant::NEVER, |at| at + GATHER);
        map.min(self.retry_at.unwrap_or(Instant::NEVER)).min(self.quiet_until.unwrap_or(Instant::NEVER))
    }

    fn begin_alone(&mut self, bus: &mut Bus, now: Instant) {
        self.paused.clear();
        self.done.append(&mut self.leaving);
        self.told = None;
        self.changed_at = Some(now);
        let _ = bus.handle_command(now, Command::SubscribeAll { wanted: self.listens });
        self.describe(bus, now);
    }

    fn nickname(&self, description: &[u8]) -> Option<String> {
        Services::decode(description)?.nicknames()
    }
}

/// The other servers that have engines and are not lost.
fn listeners(bus: &Bus) -> Vec<Listener> {
    let own = bus.identity().server;
    let others = bus.members().filter(|member| member.id != own && member.health != Health::Failed && !member.has_left);
    let listeners = others.filter_map(|member| {
        let groups = Services::decode(member.services)?.engines.iter().map(|engine_info| engine_info.group).collect();
        Some(Listener { server: member.id, interest: member.interest.into(), groups })
    });
    listeners.collect()
}

/// As the bus calls it.
fn copy_state(copy: CopyStatus) -> CopyState {
    match copy {
        CopyStatus::Missing => CopyState::Missing,
        CopyStatus::Current => CopyState::Current,
        CopyStatus::Since(at) => CopyState::Since(at),
    }
}

fn is_reached(bus: &Bus, goal: &Goal) -> bool {
    let owns = |group: GroupId, slots: &SlotSet, wanted: bool| {
        let own = bus.identity().server;
        slots.iter().all(|slot| {
            let is_owner = bus.owner(slot).is_some_and(|(other, server, _)| other == group && server == own);
            is_owner == wanted
        })
    };
    match goal {
        Goal::Taken => true,
        Goal::Holds(group, slots) => owns(*group, slots, true),
        Goal::Lacks(group, slots) => owns(*group, slots, false),
        Goal::Renewed(group, before) => {
            bus.primary(*group).is_some_and(|(server, epoch)| server == bus.identity().server && epoch > *before)
        }
    }
}

fn slots(ranges: &[map::SlotRange]) -> SlotSet {
    let range = |range: &map::SlotRange| SlotRange::new(range.first.number(), range.last.number());
    SlotSet::from_ranges(ranges.iter().filter_map(range))
}

/// `HOST:PORT`, with brackets around addresses that have colons.
fn address(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

#[cfg(test)]
mod tests {
    use ashlar_bus::Identity;
    use ashlar_kv::cluster::Announcement;
    use ashlar_wire::id::{ClusterId, Incarnation};

    use core::task::{Context, Poll, Waker};

    use super::*;

    fn bus(now: Instant) -> Bus {
        let identity = Identity {
            cluster: ClusterId::from_bytes([9; 16]),
            server: ServerId::from_bytes([1; 16]),
            incarnation: Incarnation(1),
            zone: ashlar_bus::slot::Zone::default(),
            address: "10.0.0.1:7800".into(),
        };
        Bus::new(ashlar_bus::Config::default(), identity, None, 7, now).expect("nothing was saved")
    }

    /// The ports that a server tells the others, engine by engine; nothing if it has told them of none.
    fn told(bus: &Bus) -> Option<Vec<(u16, u16)>> {
        let services = Services::decode(bus.member(bus.identity().server)?.services)?;
        Some(services.engines.iter().map(|engine_info| (engine_info.told.port, engine_info.told.tls_port)).collect())
    }

    /// Ports in the engine's own table of the cluster; nothing if it has got none yet.
    fn own_ports(mailboxes: &EngineMailboxes, number: usize) -> Option<(u16, u16)> {
        let cx = Context::from_waker(Waker::noop());
        let Poll::Ready(delivery) = mailboxes.poll_delivery(number, &cx) else { return None };
        let (assignment, answers) = delivery.assignment?;
        answers.done(mailboxes);
        let place = &assignment.map.own().place;
        Some((place.port, place.tls_port))
    }

    /// Whether a server that finds slots of its own at its start serves them at once.
    fn serves_at_once(asks_majority: bool) -> bool {
        let mut now = Instant::ORIGIN + Duration::from_secs(1);
        let (mailboxes, mut bus) = (EngineMailboxes::new(1), bus(now));
        let engine_info = EngineInfo { tag: EngineInfo::tag(0, 4), group: GroupId(9), ..EngineInfo::default() };
        let slots = vec![SlotRange::new(0, 16_383).expect("all slots")];
        bus.handle_command(now, Command::Claim { group: GroupId(9), slots }).expect("it is alone");
        for _ in 0..1_000 {
            now = bus.next_tick().max(now + GATHER);
            bus.handle_tick(now);
            while let Some(output) = bus.poll_output() {
                if let ashlar_bus::Output::Persist { ticket, .. } = output {
                    bus.handle_persisted(now, ticket);
                }
            }
        }
        assert!(bus.primary(GroupId(9)).is_some());
        let mut controller = Controller::new(Arc::clone(&mailboxes), vec![engine_info], 7_800, String::new(), false);
        mailboxes.report(0, &Report { asks_majority, ..Report::default() });
        controller.changed_at = Some(now);
        mailboxes.set_serves_until(Instant::ORIGIN);
        controller.turn(&mut bus, now + GATHER, &mut || 1);
        assert_eq!(mailboxes.control(0).serves_until(), Instant::NEVER, "it is the only voter");
        let cx = Context::from_waker(Waker::noop());
        let Poll::Ready(delivery) = mailboxes.poll_delivery(0, &cx) else { panic!("it is assigned something") };
        let (assignment, _) = delivery.assignment.expect("it is assigned something");
        assert!(!assignment.map.own().slots.is_empty());
        assignment.map.service().is_up
    }

    #[test]
    fn slots_that_another_may_take_are_served_later() {
        assert!(!serves_at_once(false));
        assert!(serves_at_once(true));
    }

    #[test]
    fn an_engine_is_shown_to_nobody_before_its_ports_are_known() {
        let mut now = Instant::ORIGIN + Duration::from_secs(1);
        let (mailboxes, mut bus) = (EngineMailboxes::new(2), bus(now));
        let engine_info = |number: usize| EngineInfo {
            tag: EngineInfo::tag(number, 4),
            group: GroupId(9 + number as u64),
            ..EngineInfo::default()
        };
        let mut controller =
            Controller::new(Arc::clone(&mailboxes), vec![engine_info(0), engine_info(1)], 7_800, String::new(), false);
        let mut turn = |controller: &mut Controller, bus: &mut Bus| {
            now = now + GATHER;
            while let Some(output) = bus.poll_output() {
                if let ashlar_bus::Output::Event(event) = output {
                    controller.handle_event(&event, now);
                }
            }
            controller.turn(bus, now, &mut || 1);
            now = now + GATHER;
            controller.turn(bus, now, &mut || 1);
            assert!(controller.due() > now, "there is nothing to do");
        };
        turn(&mut controller, &mut bus);
        assert_eq!((told(&bus), own_ports(&mailboxes, 0)), (None, None));
        let report = |port, tls_port| {
            let told = Announcement { port, tls_port, ..Announcement::default() };
            Report { told, ..Report::default() }
        };
        mailboxes.report(0, &report(6_379, 6_380));
        turn(&mut controller, &mut bus);
        assert_eq!((told(&bus), own_ports(&mailboxes, 0)), (None, None), "the other engine has told nothing");
        mailboxes.report(1, &report(6_479, 0));
        turn(&mut controller, &mut bus);
        assert_eq!(told(&bus), Some(vec![(6_379, 6_380), (6_479, 0)]));
        assert_eq!(
            [0, 1].map(|engine_info| own_ports(&mailboxes, engine_info)),
            [Some((6_379, 6_380)), Some((6_479, 0))]
        );
    }
}
