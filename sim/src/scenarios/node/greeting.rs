//! A toy service: every server greets every other one once in each life of either. It uses all that a service can use of a node.
//!
//! The agent looks for members that this life has not greeted in theirs, on every event and at a time of its own; a greeting is a call
//! beside the control thread, and its end is news for the agent. What a server was told is kept for the judgement.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ashlar_bus::event::Health;
use ashlar_bus::{Bus, Event};
use ashlar_grid::CallOptions;
use ashlar_grid::handler::{HandlerId, Handlers, Method, Packed, RegisteredTwice};
use ashlar_grid::seam::Threads as _;
use ashlar_node::service::{Agent, NodeAction, Service};
use ashlar_node::{Node, WeakNode};
use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;

use crate::world::SimRuntime;

/// How long a greeting may take.
const GREETING_MAX: Duration = Duration::from_secs(2);
/// Members that could not be greeted are tried again after this span.
const RETRY: Duration = Duration::from_millis(500);

/// "I am in this life of mine."
struct Greet;

impl Method for Greet {
    const ID: HandlerId = HandlerId::new(1_000);
    const IDEMPOTENT: bool = true;
    type Request = Packed<u64>;
    type Reply = Packed<u64>;
}

/// What one life of a server has told and was told.
#[derive(Debug, Default)]
pub(super) struct Greetings {
    /// Greeted by this life, and the life that answered.
    pub(super) greeted: BTreeMap<ServerId, u64>,
    /// The latest life of each server that has greeted this one.
    pub(super) heard: BTreeMap<ServerId, u64>,
    /// Members that are alive, as events alone tell.
    pub(super) alive: BTreeSet<ServerId>,
    /// Greetings that came from an earlier life than one before.
    pub(super) ghosts: u64,
    /// Calls under way.
    under_way: BTreeSet<ServerId>,
    /// Calls that have failed.
    pub(super) refused: u64,
    /// The node has told the service to close.
    pub(super) is_closed: bool,
}

/// The toy service of one life of a server. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Greeting {
    life: u64,
    known: Arc<Mutex<Greetings>>,
}

impl Greeting {
    pub(super) fn new(life: u64) -> Self {
        Self { life, known: Arc::default() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Greetings> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, from: ServerId, life: u64) {
        let mut known = self.lock();
        let before = known.heard.get(&from).copied().unwrap_or(0);
        known.ghosts += u64::from(life < before);
        known.heard.insert(from, life.max(before));
    }
}

impl Service<SimRuntime> for Greeting {
    fn register(&self, _node: &WeakNode<SimRuntime>, handlers: Handlers) -> Result<Handlers, RegisteredTwice> {
        let own = self.clone();
        handlers.inline::<Greet>(move |caller, Packed(life)| {
            own.hear(caller, life);
            Ok(Packed(own.life))
        })
    }

    fn start(&self, node: &Node<SimRuntime>) -> Box<dyn Agent> {
        Box::new(Greeter { service: self.clone(), node: node.clone(), retry_at: Instant::ORIGIN, is_begun: false })
    }

    fn close(&self) {
        self.lock().is_closed = true;
    }
}

/// The agent.
struct Greeter {
    service: Greeting,
    node: Node<SimRuntime>,
    retry_at: Instant,
    is_begun: bool,
}

impl Greeter {
    fn greet(&self, server: ServerId) {
        let (node, service) = (self.node.clone(), self.service.clone());
        self.node.runtime().spawn(Box::pin(async move {
            let options = CallOptions { fail_fast: true, ..CallOptions::within(GREETING_MAX) };
            let answer = node.grid().call::<Greet>(server, &Packed(service.life), options).await;
            let mut known = service.lock();
            known.under_way.remove(&server);
            match answer {
                Ok(Packed(life)) => drop(known.greeted.insert(server, life)),
                Err(_) => known.refused += 1,
            }
            drop(known);
            node.wake_agents();
        }));
    }
}

impl Agent for Greeter {
    fn handle_event(&mut self, event: &Event, _now: Instant) {
        let mut known = self.service.lock();
        match event {
            Event::MemberJoined { id, .. } | Event::Recovered { id } | Event::Returned { id } => {
                known.alive.insert(*id);
            }
            Event::Failed { id, .. } | Event::Left { id } | Event::Forgotten { id } => drop(known.alive.remove(id)),
            _ => {}
        }
    }

    fn turn(&mut self, bus: &mut Bus, now: Instant, _chance: &mut dyn FnMut() -> u64) -> Vec<NodeAction> {
        let own = bus.identity().server;
        let alive =
            bus.members().filter(|member| member.id != own && member.health != Health::Failed && !member.has_left);
        let alive: Vec<(ServerId, u64)> = alive.map(|member| (member.id, member.incarnation.0)).collect();
        let mut known = self.service.lock();
        if !core::mem::replace(&mut self.is_begun, true) {
            // What the bus remembers of an earlier life comes without events.
            known.alive.extend(alive.iter().map(|(id, _)| *id));
        }
        let is_due = now >= self.retry_at;
        // A member that begins a new life has not been greeted in it.
        let is_untold = |known: &Greetings, (id, life): &(ServerId, u64)| {
            known.greeted.get(id).is_none_or(|greeted| greeted < life) && !known.under_way.contains(id)
        };
        let untold = alive.iter().filter(|member| is_due && is_untold(&known, member)).map(|(id, _)| *id);
        let untold: Vec<ServerId> = untold.collect();
        known.under_way.extend(untold.iter().copied());
        drop(known);
        if is_due {
            self.retry_at = now + RETRY;
        }
        untold.into_iter().for_each(|id| self.greet(id));
        Vec::new()
    }

    fn due(&self) -> Instant {
        self.retry_at
    }

    fn begin_alone(&mut self, _bus: &mut Bus, _now: Instant) {
        let mut known = self.service.lock();
        known.greeted.clear();
        known.alive.clear();
    }

    fn nickname(&self, _description: &[u8]) -> Option<String> {
        None
    }
}
