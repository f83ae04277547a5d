//! One server: the grid, the membership, and the services of the server put together, over seams only.
//!
//! The mesh forms by itself: a joining server introduces itself to one member, the bus tells all others, and each dials the
//! members it did not know yet; so any way of joining becomes a full mesh, in any order of starting. Addresses of members are
//! remembered over restarts.
//!
//! Deliberately absent: sockets, clocks, threads and tokio. The node sees the world through the grid's [`Runtime`] and through
//! [`Memory`], so it runs on a simulator as well.
//!
//! Entry points: [`Node::start`], [`Plan`]. Modules in reading order: [`service`] (what plugs into a node),
//! [`membership`] (the bus and its timers), [`secret`] (replacing the cluster's secret), [`keyvalue`] (engines as nodes of the cluster), [`status`] (what a server tells of itself).

pub mod catalog;
mod detour;
mod ending;
pub mod keyvalue;
pub mod membership;
pub mod object;
pub mod promise;
pub mod secret;
pub mod service;
pub mod status;
pub mod together;
pub mod volume;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use ashlar_bus::event::{Departure, RestoreError};
use ashlar_bus::slot::Zone;
use ashlar_bus::{Bus, Identity};
use ashlar_grid::config::GridConfig;
use ashlar_grid::handler::{HandlerId, Handlers, Method, Packed, RegisteredTwice};
use ashlar_grid::hello::Secrets;
use ashlar_grid::seam::{BoxFuture, Lane, Runtime};
use ashlar_grid::status::PeerEvent;
use ashlar_grid::{CallOptions, Grid};
use ashlar_wire::id::{ClusterId, ServerId};
use ashlar_wire::time::Instant;
use tracing::{info, warn};

use membership::task::Task;
use membership::view::BusStatus;
use membership::{ForgetError, HandedOver, Membership};
use service::Service;
use status::{MeshStatus, MeshView, PeerView, ServerStatus};

/// Members whose addresses a server remembers.
pub const MEMBERS_MAX: usize = 4_096;

/// How long a peer may take to tell how it is.
const PEER_ANSWER_MAX: Duration = Duration::from_secs(2);

/// Packets of the membership bus, as datagrams.
const BUS: HandlerId = HandlerId::new(10);

/// "How are you?"
struct Status;

impl Method for Status {
    const ID: HandlerId = HandlerId::new(3);
    const IDEMPOTENT: bool = true;
    type Request = ();
    type Reply = Packed<ServerStatus>;
}

/// What a node must not forget.
pub trait Memory: Send + Sync + 'static {
    /// Keeps these addresses instead of those before. Returns at once; the work may be done later, the latest call wins.
    fn remember(&self, members: Vec<(ServerId, String)>);

    /// Keeps the bus's durable state instead of the one before, and calls `stored` with how long that took once it would
    /// survive anything. Returns at once, and tries again while the drive refuses. Of several calls the latest wins; the
    /// others' `stored` may never be called.
    fn keep(&self, state: Vec<u8>, stored: Box<dyn FnOnce(Duration) + Send>);

    /// Keeps the cluster's secrets instead of those before, and calls `stored` once they would survive anything, or with
    /// the reason why they were not kept; then the earlier ones are. Returns at once. Of several calls the latest wins;
    /// the others' `stored` may never be called.
    fn keep_secrets(&self, cluster: ClusterId, secrets: &Secrets, stored: Box<dyn FnOnce(Result<(), String>) + Send>);
}

/// Who a node is and whom it looks for.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The grid's configuration, which names the server.
    pub grid: GridConfig,
    /// Whether connections are encrypted; for status only.
    pub is_tls: bool,
    /// Id of the process; for status only.
    pub pid: u32,
    /// Addresses from the configuration.
    pub join: Vec<String>,
    /// Where members were in earlier lives.
    pub met: Vec<(ServerId, String)>,
    /// How the bus behaves.
    pub bus: ashlar_bus::Config,
    /// What this server may be lost together with; empty for nothing in particular.
    pub zone: String,
    /// The bus's durable state from the last life.
    pub saved: Vec<u8>,
    /// The bus's chance in this life.
    pub seed: u64,
}

/// How joining stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Joining {
    /// The server is in its cluster, or founds one.
    Done,
    /// Nobody was reached so far; why, if anything is known.
    Waiting(Option<String>),
    /// Whoever it was told to ask will never let it in.
    Hopeless(String),
}

/// One server. Clones are the same server.
pub struct Node<R: Runtime>(Arc<Shared<R>>);

impl<R: Runtime> Clone for Node<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// A server that may be gone: what handlers keep, which the server owns.
pub struct WeakNode<R: Runtime>(Weak<Shared<R>>);

impl<R: Runtime> Clone for WeakNode<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<R: Runtime> WeakNode<R> {
    /// The server, unless it is gone.
    #[must_use]
    pub fn upgrade(&self) -> Option<Node<R>> {
        self.0.upgrade().map(Node)
    }
}

struct Shared<R: Runtime> {
    runtime: Arc<R>,
    plan: Plan,
    memory: Box<dyn Memory>,
    started: Instant,
    is_draining: AtomicBool,
    known: Mutex<Known>,
    membership: Membership,
    turns: secret::Turns,
    /// Ways to servers that the link to is cut.
    detours: detour::Detours,
    services: Vec<Box<dyn Service<R>>>,
    /// Set once, before anything can ask for it: the grid's handlers need the node and the node needs the grid.
    grid: OnceLock<Grid<R>>,
}

#[derive(Debug, Default)]
struct Known {
    /// Where members are reached.
    met: BTreeMap<ServerId, String>,
    /// Whether it is in its cluster: it knows another member.
    is_member: bool,
    last_failure: Option<String>,
    /// Addresses where somebody will never let this server in, and why.
    hopeless: BTreeMap<String, String>,
    /// Why a connection from outside was refused last, and when that was told.
    last_rejection: Option<(String, Instant)>,
    /// Why the server goes on although it was told to stop.
    stays_because: Option<String>,
}

/// Refused: the caller is no member, as far as this server knows.
const NO_MEMBER: u32 = 3;

/// The same reason for refusing connections is told again after this span: whoever dials wrongly dials often.
const REJECTION_AGAIN_AFTER: Duration = Duration::from_secs(60);

impl Known {
    /// Whether a refusal is news.
    fn is_worth_telling(&mut self, reason: &str, now: Instant) -> bool {
        let is_old = |(last, told_at): &(String, Instant)| last == reason && now < *told_at + REJECTION_AGAIN_AFTER;
        let is_news = !self.last_rejection.as_ref().is_some_and(is_old);
        if is_news {
            self.last_rejection = Some((reason.to_owned(), now));
        }
        is_news
    }
}

impl<R: Runtime> Node<R> {
    /// Starts the server with these services and looks for its cluster. Bulk connections live in `bulk_runtime`. The future is
    /// the bus: nothing but it may keep the thread that polls it.
    ///
    /// # Errors
    /// The saved state is not this server's memory. It must not start without: it could vote twice.
    pub fn start(
        runtime: Arc<R>,
        bulk_runtime: Arc<R>,
        plan: Plan,
        memory: impl Memory,
        services: Vec<Box<dyn Service<R>>>,
    ) -> Result<(Self, BoxFuture<()>), RestoreError> {
        let bus = Bus::new(plan.bus.clone(), identity(&plan), Some(&plan.saved), plan.seed, runtime.now())?;
        let met = plan.met.iter().cloned().collect();
        let shared = Arc::new(Shared {
            started: runtime.now(),
            runtime: runtime.clone(),
            memory: Box::new(memory),
            is_draining: AtomicBool::new(false),
            known: Mutex::new(Known { met, ..Known::default() }),
            membership: Membership::default(),
            turns: secret::Turns::default(),
            detours: detour::Detours::default(),
            services,
            grid: OnceLock::new(),
            plan,
        });
        let node = Self(shared);
        let (weak, observer) = (node.downgrade(), node.downgrade());
        let handlers = handlers(&weak, &node.0.services).expect("each handler has a number of its own");
        let grid = Grid::with_bulk(runtime, bulk_runtime, node.0.plan.grid.clone(), handlers, move |event| {
            if let Some(node) = observer.upgrade() {
                node.note(event);
            }
        });
        // First the grid, then whatever makes it speak: nothing asks the node before.
        drop(node.0.grid.set(grid));
        for address in node.0.plan.join.iter().chain(node.0.plan.met.iter().map(|(_, address)| address)) {
            node.grid().add_peer(address);
        }
        let agents = node.0.services.iter().map(|service| service.start(&node)).collect();
        let task = Task::new(node.clone(), bus, agents);
        Ok((node, Box::pin(task.run())))
    }

    /// Its grid: calls and streams to other servers.
    #[must_use]
    pub fn grid(&self) -> &Grid<R> {
        self.0.grid.get().expect("the grid is set before anybody can see the node")
    }

    /// A handle that does not keep the server.
    #[must_use]
    pub fn downgrade(&self) -> WeakNode<R> {
        WeakNode(Arc::downgrade(&self.0))
    }

    /// Has the agents of all services look again, soon, on the control thread.
    pub fn wake_agents(&self) {
        self.membership().wake_agents();
    }

    /// The servers that there is a connection to.
    fn connected(&self) -> Vec<ServerId> {
        let is_connected = |peer: &ashlar_grid::status::PeerStatus| peer.connected_for.is_some();
        self.grid().peers().into_iter().filter(is_connected).filter_map(|peer| peer.id).collect()
    }

    /// Whether there is a connection to a server.
    fn is_connected(&self, server: ServerId) -> bool {
        self.grid().peers().iter().any(|peer| peer.id == Some(server) && peer.connected_for.is_some())
    }

    /// Which server it is.
    #[must_use]
    pub fn id(&self) -> ServerId {
        self.0.plan.grid.server
    }

    /// The world that it runs in.
    #[must_use]
    pub fn runtime(&self) -> &R {
        &self.0.runtime
    }

    /// A number by chance.
    fn draw(&self) -> u64 {
        let mut bytes = [0; 8];
        self.0.runtime.random(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    fn membership(&self) -> &Membership {
        &self.0.membership
    }

    fn memory(&self) -> &dyn Memory {
        &*self.0.memory
    }

    fn bus_config(&self) -> &ashlar_bus::Config {
        &self.0.plan.bus
    }

    /// Takes over a connection after its upgrade.
    pub fn accept(&self, wire: R::Wire, lane: Lane) {
        self.grid().accept(wire, lane);
    }

    /// How joining stands.
    #[must_use]
    pub fn joining(&self) -> Joining {
        let known = self.0.known();
        let must_join = !self.0.plan.join.is_empty() && self.0.plan.met.is_empty();
        if known.is_member || !must_join {
            return Joining::Done;
        }
        let reasons = self.0.plan.join.iter().map(|address| known.hopeless.get(address).cloned());
        match reasons.collect::<Option<Vec<String>>>() {
            Some(reasons) => Joining::Hopeless(reasons.join("; ")),
            None => Joining::Waiting(known.last_failure.clone()),
        }
    }

    /// Whether the server takes part: it has joined and is not about to stop.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.joining() == Joining::Done && !self.is_draining()
    }

    /// Whether the server is about to stop.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.0.is_draining.load(Ordering::Acquire)
    }

    /// Hands what this server leads over to replicas elsewhere, which may take so long, before it stops.
    pub async fn hand_over(&self, within: Duration) -> HandedOver {
        self.0.is_draining.store(true, Ordering::Release);
        self.0.known().stays_because = None;
        self.membership().depart(Departure::Leaves, within).await
    }

    /// Tells all others that this server goes on: it was to stop, and did not, for this reason if there is one to be shown. To be called
    /// before it says goodbye.
    pub async fn stay(&self, why: Option<String>) {
        self.0.known().stays_because = why;
        self.0.is_draining.store(false, Ordering::Release);
        self.membership().depart(Departure::Stays, Duration::ZERO).await;
    }

    /// Tells all others that this server takes no writes any more and is about to be gone: they need not find that out by its silence.
    pub async fn say_goodbye(&self) {
        self.membership().depart(Departure::Left, Duration::ZERO).await;
    }

    /// Finishes what runs, refuses what is new, closes all connections; bounded by the grid's `drain_max`. Gives the peers with whom
    /// something had not ended by then.
    pub async fn drain(&self) -> Vec<ServerId> {
        self.0.is_draining.store(true, Ordering::Release);
        self.0.services.iter().for_each(|service| service.close());
        let unsettled = self.grid().drain().await;
        if !unsettled.is_empty() {
            let peers: Vec<String> = unsettled.iter().map(ToString::to_string).collect();
            tracing::warn!(peers = peers.join(","), "calls or streams of these peers do not end: they are cut");
        }
        unsettled
    }

    /// How this server's bus stands.
    pub async fn bus(&self) -> Arc<BusStatus> {
        self.membership().status().await
    }

    /// Removes a member from the whole cluster and keeps it out for a while; one that is alive only if `insists`.
    ///
    /// # Errors
    /// See [`ForgetError`]; nothing has changed then.
    pub async fn forget(&self, id: ServerId, insists: bool) -> Result<(), ForgetError> {
        self.membership().forget(id, insists).await
    }

    /// What this server knows.
    pub async fn status(&self) -> ServerStatus {
        let bus = BusStatus::clone(&*self.bus().await);
        let (plan, grid) = (&self.0.plan, self.grid());
        ServerStatus {
            server: plan.grid.server.to_string(),
            cluster: plan.grid.cluster.to_string(),
            address: plan.grid.address.clone(),
            incarnation: plan.grid.incarnation.0,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: plan.pid,
            uptime_ms: status::millis(self.0.runtime.now().saturating_since(self.0.started)),
            tls: plan.is_tls,
            ready: self.is_ready(),
            draining: self.is_draining(),
            grid: grid.counters().into(),
            peers: self.peers(),
            zone: plan.zone.clone(),
            bus,
            secrets: grid.secrets().key_ids().iter().map(|key| format!("{:016x}", key.0)).collect(),
            stays_because: self.0.known().stays_because.clone(),
        }
    }

    fn peers(&self) -> Vec<PeerView> {
        self.grid().peers().into_iter().map(Into::into).collect()
    }

    /// What every server knows, asked through this one.
    pub async fn mesh(&self) -> MeshStatus {
        let own = self.status().await;
        let asked = own.peers.iter().map(|peer| -> BoxFuture<MeshView> {
            let (node, peer) = (self.clone(), peer.clone());
            Box::pin(async move {
                let (status, error) = match node.ask(peer.server.as_deref()).await {
                    Ok(status) => (Some(status), None),
                    Err(error) => (None, Some(peer.last_error.unwrap_or(error))),
                };
                MeshView { server: peer.server, address: peer.address, status, error }
            })
        });
        let mut views = together::all(asked.collect()).await;
        let me = MeshView {
            server: Some(own.server.clone()),
            address: own.address.clone(),
            status: Some(own.clone()),
            error: None,
        };
        views.push(me);
        views.sort_by(|a, b| (&a.address, &a.server).cmp(&(&b.address, &b.server)));
        MeshStatus { asked: own.server, cluster: own.cluster, servers: views }
    }

    async fn ask(&self, server: Option<&str>) -> Result<ServerStatus, String> {
        let id: ServerId = server.and_then(|text| text.parse().ok()).ok_or("nobody was found at this address")?;
        let options = CallOptions { fail_fast: true, ..CallOptions::within(PEER_ANSWER_MAX) };
        let reply = self.grid().call::<Status>(id, &(), options).await;
        reply.map(|Packed(status)| status).map_err(|error| error.to_string())
    }

    fn note(&self, event: &PeerEvent) {
        match event {
            PeerEvent::Connected { peer, address, incarnation, dialed } => {
                info!(%peer, address, incarnation = incarnation.0, dialed, "peer connected");
                self.membership().handle_connected(*peer, address);
            }
            PeerEvent::Lost { peer, address, reason, silence, is_expected } => {
                let silent_ms = status::millis(*silence);
                if *is_expected || self.is_draining() {
                    info!(%peer, address, reason, "connection closed");
                } else {
                    warn!(%peer, address, reason, silent_ms, "peer lost");
                }
            }
            PeerEvent::DialFailed { address, reason, will_heal } => {
                // Servers start and stop in any order: who is away for long is told of by the membership.
                if *will_heal {
                    info!(address, reason, will_heal, "cannot connect to peer");
                } else {
                    warn!(address, reason, will_heal, "cannot connect to peer");
                }
                let mut known = self.0.known();
                let text = format!("{address}: {reason}");
                if !will_heal {
                    known.hopeless.insert(address.clone(), text.clone());
                }
                known.last_failure = Some(text);
            }
            PeerEvent::Rejected { reason } => {
                if self.0.known().is_worth_telling(reason, self.0.runtime.now()) {
                    warn!(reason, "connection refused");
                }
            }
        }
    }

    /// A member is there: keeps a connection to it from now on, and remembers that.
    fn know(&self, member: ServerId, address: &str) {
        let before = {
            let mut known = self.0.known();
            known.is_member = true;
            known.met.insert(member, address.to_owned())
        };
        self.grid().add_peer(address);
        if before.as_deref() == Some(address) {
            return;
        }
        if let Some(left) = before {
            self.grid().forget_address(&left);
        }
        self.remember();
    }

    /// A member was forgotten: ends its connections. Where it was.
    fn unknow(&self, member: ServerId) -> Option<String> {
        let left = self.0.known().met.remove(&member);
        self.grid().forget_peer(member);
        self.remember();
        left
    }

    fn remember(&self) {
        let members = self.0.known().met.clone();
        self.0.memory.remember(members.into_iter().take(MEMBERS_MAX).collect());
    }

    /// Where a server is reached; empty if that is not known.
    fn address_of(&self, server: ServerId) -> String {
        self.0.known().met.get(&server).cloned().unwrap_or_default()
    }

    /// Whether this is where a member was in an earlier life.
    fn is_met(&self, server: ServerId) -> bool {
        self.0.known().met.contains_key(&server)
    }

    /// Whether the server was told to join.
    fn is_joining(&self) -> bool {
        !self.0.plan.join.is_empty()
    }
}

fn identity(plan: &Plan) -> Identity {
    let zone = if plan.zone.is_empty() { Zone::default() } else { Zone::named(&plan.zone) };
    Identity {
        cluster: plan.grid.cluster,
        server: plan.grid.server,
        incarnation: plan.grid.incarnation,
        zone,
        address: plan.grid.address.clone(),
    }
}

impl<R: Runtime> Shared<R> {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn handlers<R: Runtime>(node: &WeakNode<R>, services: &[Box<dyn Service<R>>]) -> Result<Handlers, RegisteredTwice> {
    let (packets, status, steps) = (node.clone(), node.clone(), node.clone());
    let own = Handlers::new()
        .datagram(BUS, move |from, bytes| {
            if let Some(node) = packets.upgrade() {
                node.membership().handle_packet(from, bytes);
            }
        })?
        .serve::<Status, _>(move |_, ()| {
            let node = status.upgrade();
            async move { Ok(Packed(node.ok_or_else(stopped)?.status().await)) }
        })?
        .serve::<secret::TakeStep, _>(move |context, Packed(step)| {
            let node = steps.upgrade();
            async move { Ok(Packed(node.ok_or_else(stopped)?.take_step(context.caller, step).await)) }
        })?;
    services.iter().try_fold(own, |handlers, service| service.register(node, handlers))
}

fn no_member() -> ashlar_grid::error::Refusal {
    ashlar_grid::error::Refusal::new(NO_MEMBER, "your server is no member of this cluster")
}

fn stopped() -> ashlar_grid::error::Refusal {
    ashlar_grid::error::Refusal::new(1, "the server has stopped")
}
