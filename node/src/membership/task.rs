//! The task that runs the bus: packets, time and wishes in; packets, durable state and news out.

use core::future::poll_fn;
use core::pin::pin;
use core::task::Poll;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use ashlar_bus::event::{FailedBy, Health, Output, Spans, Unfit};
use ashlar_bus::slot::GroupId;
use ashlar_bus::{Bus, Command, Event};
use ashlar_grid::seam::Runtime;
use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;
use tracing::{debug, error, info, warn};

use super::super::promise::Promise;
use super::super::service::{Agent, NodeAction};
use super::super::{BUS, Node};
use super::view::{Beside, BusStatus, Forgotten, MemberState, view};
use super::{Departing, ForgetError, HandedOver, Membership, Post, Wish};

/// Questions are answered this often at most: what is asked of the bus must not slow it down.
const VIEW_EVERY: Duration = Duration::from_millis(50);
/// Rounds with the services' agents before other things have their turn.
const AGENT_ROUNDS_MAX: usize = 4;
/// For how long a server that was told to meet another looks for it.
const MEET_MAX: Duration = Duration::from_secs(30);
/// Forgotten members that are still shown.
const FORGOTTEN_MAX: usize = 64;

/// Runs one bus. To be polled on the control thread until the server ends.
pub(crate) struct Task<R: Runtime> {
    node: Node<R>,
    bus: Bus,
    /// Since when each member is seen as it is.
    since: BTreeMap<ServerId, (MemberState, Instant)>,
    /// Who was forgotten here, the latest last.
    forgotten: Vec<Forgotten>,
    /// Who keeps this server out as forgotten, and until when.
    forgotten_by: Option<(ServerId, Instant)>,
    persist: Spans,
    packets_unsent: u64,
    packets_dropped: u64,
    viewers: Vec<Promise<Arc<BusStatus>>>,
    viewed_at: Instant,
    /// The services' parts on this thread.
    agents: Vec<Box<dyn Agent>>,
    /// Until when whoever is connected and unknown is introduced, because somebody has asked for that.
    meets_until: Instant,
    /// Which bus this is of those that this process had.
    buses: u64,
    /// Who waits until this server leads nothing any more, how many groups it led, and until when it is waited.
    leaving: Option<(Promise<HandedOver>, usize, Instant)>,
}

impl<R: Runtime> Task<R> {
    pub(crate) fn new(node: Node<R>, bus: Bus, agents: Vec<Box<dyn Agent>>) -> Self {
        let now = node.runtime().now();
        let mut task = Self {
            node,
            bus,
            since: BTreeMap::new(),
            forgotten: Vec::new(),
            forgotten_by: None,
            persist: Spans::default(),
            packets_unsent: 0,
            packets_dropped: 0,
            viewers: Vec::new(),
            viewed_at: Instant::ORIGIN,
            agents,
            meets_until: Instant::ORIGIN,
            buses: 0,
            leaving: None,
        };
        let members = task.bus.members().map(|member| (member.id, member.address.to_owned()));
        let own = task.bus.identity().server;
        let members: Vec<(ServerId, String)> = members.filter(|(id, _)| *id != own).collect();
        for (id, address) in members {
            task.node.know(id, &address);
        }
        task.note_states(now);
        task
    }

    pub(crate) async fn run(mut self) {
        // Before anything is sent: others get to know this server together with its services.
        self.run_agents();
        loop {
            self.turn();
            let (node, at) = (self.node.clone(), self.due());
            let mut timer = node.runtime().sleep_until(at);
            let mut post = pin!(poll_fn(|cx| node.membership().poll_post(cx)));
            poll_fn(|cx| match post.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(()),
                Poll::Pending => timer.as_mut().poll(cx),
            })
            .await;
        }
    }

    fn now(&self) -> Instant {
        self.node.runtime().now()
    }

    fn membership(&self) -> &Membership {
        self.node.membership()
    }

    /// When there is something to do even if nothing comes.
    fn due(&self) -> Instant {
        let view = if self.viewers.is_empty() { Instant::NEVER } else { self.viewed_at + VIEW_EVERY };
        let agents = self.agents.iter().map(|agent| agent.due()).min().unwrap_or(Instant::NEVER);
        let leaving = self.leaving.as_ref().map_or(Instant::NEVER, |(.., until)| *until);
        self.bus.next_tick().min(view).min(agents).min(leaving)
    }

    /// Takes what has come, then looks at the clock: an answer that is here already is no silence.
    fn turn(&mut self) {
        let Post { packets, packets_dropped, connected, stored, wishes, departing, viewers, .. } =
            self.membership().take();
        self.packets_dropped = packets_dropped;
        if let Some((_, ticket, took)) = stored.filter(|(bus, ..)| *bus == self.buses) {
            let Spans { count, longest, sum, .. } = self.persist;
            self.persist = Spans { count: count + 1, last: took, longest: longest.max(took), sum: sum + took };
            self.bus.handle_persisted(self.now(), ticket);
            self.act();
        }
        for (from, bytes) in packets {
            self.bus.handle_packet(self.now(), from, &bytes);
            self.act();
        }
        for (server, address) in connected {
            self.consider_meeting(server, address);
        }
        for wish in wishes {
            self.grant(wish);
        }
        for departing in departing {
            self.depart(departing);
        }
        if self.now() >= self.bus.next_tick() {
            self.bus.handle_tick(self.now());
            self.act();
        }
        self.run_agents();
        self.watch_leaving();
        self.viewers.extend(viewers);
        self.answer();
    }

    /// Lets the services work off what has come, and does what follows from that.
    fn run_agents(&mut self) {
        for _ in 0..AGENT_ROUNDS_MAX {
            let (now, node) = (self.now(), self.node.clone());
            let bus = &mut self.bus;
            let turns = self.agents.iter_mut().flat_map(|agent| agent.turn(bus, now, &mut || node.draw()));
            let actions: Vec<NodeAction> = turns.collect();
            self.act();
            for action in actions {
                match action {
                    NodeAction::Meet(address) => {
                        self.meets_until = now + MEET_MAX;
                        self.node.grid().add_peer(&address);
                        // It may be connected already.
                        self.meet_connected();
                    }
                    NodeAction::LeaveCluster => self.leave(now),
                }
            }
            if self.agents.iter().all(|agent| agent.due() > self.now()) {
                return;
            }
        }
    }

    /// Introduces itself to whom it is connected to and does not know.
    fn meet_connected(&mut self) {
        for peer in self.node.grid().peers() {
            if let Some(id) = peer.id
                && self.bus.member(id).is_none()
            {
                self.consider_meeting(id, peer.address);
            }
        }
    }

    /// Forgets all others and begins anew, as a server that was alone all the time. Others know it until they forget it.
    fn leave(&mut self, now: Instant) {
        let own = self.bus.identity().clone();
        let others: Vec<ServerId> = self.bus.members().map(|member| member.id).filter(|id| *id != own.server).collect();
        let config = self.node.bus_config().clone();
        // It has no memory of its votes: the bus sees to it that it takes part in no ballot that it may have voted in.
        self.bus = Bus::new(config, own, None, self.node.draw(), now).expect("there is nothing to restore");
        self.buses += 1;
        self.meets_until = Instant::ORIGIN;
        for id in others {
            self.node.unknow(id);
            self.since.remove(&id);
        }
        for agent in &mut self.agents {
            agent.begin_alone(&mut self.bus, now);
        }
        self.act();
    }

    /// Whoever joins introduces itself to whom it reached, until it is in a cluster with voters: those whom it met before may have been
    /// waiting for one, too. So does a server that met somebody whom its bus forgot to save.
    fn consider_meeting(&mut self, id: ServerId, address: String) {
        let is_alone = self.bus.members().nth(1).is_none();
        let is_asked = self.now() < self.meets_until;
        let is_outside = is_alone || self.bus.voters().voters.is_empty();
        let is_known = self.node.is_met(id) || is_asked || is_outside && self.node.is_joining();
        let wants = self.bus.member(id).is_none() && is_known;
        if !wants {
            return;
        }
        let now = self.now();
        if let Err(error) = self.bus.handle_command(now, Command::Meet { id, address }) {
            debug!(server = %id, %error, "a server is not introduced");
        }
        self.act();
    }

    /// Tells the cluster that this server is about to stop, or has stopped.
    fn depart(&mut self, Departing { departure, within, answer }: Departing) {
        let now = self.now();
        let led = self.bus.led_groups().count();
        // It is never refused.
        let _ = self.bus.handle_command(now, Command::Depart(departure));
        self.act();
        self.leaving = Some((answer, led, now + within));
    }

    /// Answers whoever waits for the hand-over once no replica can take anything over any more, or the time is over.
    fn watch_leaving(&mut self) {
        let now = self.now();
        let is_done = |until: Instant| now >= until || !self.bus.led_groups().any(|(_, has_heir)| has_heir);
        let Some((answer, led, _)) = self.leaving.take_if(|(.., until)| is_done(*until)) else { return };
        let left: Vec<GroupId> = self.bus.led_groups().map(|(group, _)| group).collect();
        let views = self.bus.groups().filter(|view| left.contains(&view.group));
        let slots = views.flat_map(|view| view.slots.ranges().to_vec());
        let slots = slots.map(|range| format!("{}-{}", range.first.number(), range.last.number())).collect::<Vec<_>>();
        answer.keep(HandedOver { groups: led - left.len().min(led), slots_left: slots.join(" ") });
    }

    fn grant(&mut self, wish: Wish) {
        let is_alive =
            self.bus.member(wish.id).is_some_and(|member| member.health < Health::Suspected && !member.has_left);
        if is_alive && wish.id != self.bus.identity().server && !wish.insists {
            return wish.answer.keep(Err(ForgetError::Alive));
        }
        let now = self.now();
        let done = self.bus.handle_command(now, Command::Forget { id: wish.id });
        self.act();
        wish.answer.keep(done.map_err(ForgetError::Refused));
    }

    /// Does what the bus wants done.
    fn act(&mut self) {
        while let Some(output) = self.bus.poll_output() {
            match output {
                Output::Send { to, bytes } => {
                    let is_sent = self.node.grid().send_datagram(to, BUS, &bytes);
                    self.packets_unsent += u64::from(!is_sent);
                }
                Output::Persist { ticket, bytes } => {
                    let node = self.node.clone();
                    let bus = self.buses;
                    let stored = move |took| node.membership().handle_stored(bus, ticket, took);
                    self.node.memory().keep(bytes, Box::new(stored));
                }
                Output::Event(event) => {
                    self.note(&event);
                    let now = self.now();
                    for agent in &mut self.agents {
                        agent.handle_event(&event, now);
                    }
                }
            }
        }
    }

    fn note(&mut self, event: &Event) {
        let now = self.now();
        match event {
            Event::MemberJoined { id, address } => {
                info!(server = %id, address, called = self.called(*id), "member joined");
                self.forgotten.retain(|forgotten| forgotten.id != *id);
                self.node.know(*id, address);
            }
            Event::AddressChanged { id, address } => {
                info!(server = %id, address, called = self.called(*id), "member has moved");
                self.node.know(*id, address);
            }
            Event::Left { id } => {
                info!(server = %id, address = self.address(*id), called = self.called(*id), "member has stopped in order");
            }
            Event::Returned { id } => {
                info!(server = %id, address = self.address(*id), called = self.called(*id), "member is back from an orderly stop");
            }
            // It said so itself.
            Event::Suspected { id } | Event::Failed { id, .. } if self.has_left(*id) => {
                debug!(event = ?event, "bus");
            }
            Event::Suspected { id }
            | Event::Unsuspected { id }
            | Event::Failed { id, .. }
            | Event::Recovered { id } => self.tell_health(*id, event),
            Event::Forgotten { id } => {
                info!(server = %id, "member forgotten");
                let address = self.node.unknow(*id).unwrap_or_default();
                if self.forgotten.len() >= FORGOTTEN_MAX {
                    self.forgotten.remove(0);
                }
                self.forgotten.push(Forgotten { id: *id, address, at: now });
                self.since.remove(id);
            }
            Event::ForgottenHere { by, left } => {
                error!(
                    %by,
                    "this server was forgotten by the cluster: no member takes it for one of theirs, and it serves nothing and gets no data. To use \
                     this machine again, stop the server, move its data directory away, and start it with an empty one and --join; to let it \
                     in again as it is, see `Forgetting` in docs/operating/membership.md"
                );
                self.forgotten_by = Some((*by, now + *left));
            }
            Event::VotersChanged { epoch, complete: true } => {
                let voters: Vec<String> = self.bus.voters().voters.iter().map(ToString::to_string).collect();
                info!(epoch = epoch.0, voters = voters.join(","), "voters changed");
            }
            Event::QuorumChanged { held: true } => info!("a majority of the voters is in reach"),
            Event::QuorumChanged { held: false } => warn!("no majority of the voters is in reach"),
            Event::NotStanding { group, why } => tell_unfit(*group, *why),
            // Nobody owns slots before there is a key-value service.
            other => debug!(event = ?other, "bus"),
        }
        if let Event::MemberJoined { id, .. }
        | Event::Suspected { id }
        | Event::Unsuspected { id }
        | Event::Failed { id, .. }
        | Event::Left { id }
        | Event::Returned { id }
        | Event::Recovered { id } = event
        {
            self.note_state(*id, now);
        }
    }

    fn tell_health(&self, id: ServerId, event: &Event) {
        let (address, called) = (self.address(id), self.called(id));
        match event {
            Event::Suspected { .. } => warn!(server = %id, address, called, "member suspected"),
            Event::Failed { by, .. } => {
                let by = match by {
                    FailedBy::Quorum { reports, voters } => format!("{reports} of {voters} voters, counted here"),
                    FailedBy::News => "told by another member".to_owned(),
                };
                warn!(server = %id, address, called, by, "member failed");
            }
            Event::Recovered { .. } => info!(server = %id, address, called, "member recovered"),
            _ => info!(server = %id, address, called, "member not suspected any more"),
        }
    }

    fn has_left(&self, id: ServerId) -> bool {
        self.bus.member(id).is_some_and(|member| member.has_left)
    }

    fn address(&self, id: ServerId) -> &str {
        self.bus.member(id).map_or("", |member| member.address)
    }

    /// What people call a member, if its services have names.
    fn called(&self, id: ServerId) -> Option<String> {
        let description = self.bus.member(id)?.services;
        self.agents.iter().find_map(|agent| agent.nickname(description))
    }

    fn note_state(&mut self, id: ServerId, now: Instant) {
        let Some(state) = self.bus.member(id).map(|member| MemberState::from(&member)) else { return };
        if self.since.get(&id).is_none_or(|(before, _)| *before != state) {
            self.since.insert(id, (state, now));
        }
    }

    fn note_states(&mut self, now: Instant) {
        let ids: Vec<ServerId> = self.bus.members().map(|member| member.id).collect();
        ids.into_iter().for_each(|id| self.note_state(id, now));
    }

    /// Answers all who ask, if the last answer was not a moment ago.
    fn answer(&mut self) {
        let now = self.now();
        if self.viewers.is_empty() || now < self.viewed_at + VIEW_EVERY {
            return;
        }
        self.viewed_at = now;
        self.note_states(now);
        let keep_out = self.node.bus_config().keep_out;
        self.forgotten.retain(|forgotten| now.saturating_since(forgotten.at) < keep_out);
        let beside = Beside {
            since: &self.since,
            forgotten: &self.forgotten,
            forgotten_by: self
                .forgotten_by
                .filter(|(_, until)| now < *until)
                .map(|(by, _)| by)
                .or_else(|| self.bus.forgotten_by(now)),
            persist: self.persist,
            packets_unsent: self.packets_unsent,
            packets_dropped: self.packets_dropped,
        };
        let status = Arc::new(view(&self.bus, &beside, now));
        self.membership().show(status.clone());
        for viewer in self.viewers.drain(..) {
            viewer.keep(status.clone());
        }
    }
}

/// Says why nobody here takes the place of a primary that has failed.
fn tell_unfit(group: GroupId, why: Unfit) {
    match why {
        Unfit::NoCopy => warn!(
            %group,
            "the primary has failed, and the replica here does not stand: it has had no whole copy since it started; start the primary \
             again, or send the replica CLUSTER FAILOVER TAKEOVER to serve what it has"
        ),
        Unfit::Stale { age } => warn!(
            %group,
            age_s = age.as_secs(),
            "the primary has failed, and the replica here does not stand: its copy is older than cluster-replica-validity-factor allows; \
             start the primary again, or send the replica CLUSTER FAILOVER TAKEOVER to serve what it has"
        ),
    }
}

impl<R: Runtime> Drop for Task<R> {
    fn drop(&mut self) {
        self.node.membership().close();
    }
}
