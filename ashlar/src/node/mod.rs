//! One server as its parts together: the grid, who was met, and what the server tells about itself.
//!
//! The mesh forms by itself: on every new connection both servers tell each other whom they know, and each dials whom it
//! did not know yet; so any way of joining becomes a full mesh, in any order of starting. Who was met is remembered
//! over restarts. The node sees the world through [`Runtime`] and [`Memory`] only, so it runs on a simulator as well.
//!
//! Absent: failure detection beyond a single connection and forgetting of servers; both belong to the bus.

pub mod status;
pub mod together;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use ashlar_grid::config::GridConfig;
use ashlar_grid::handler::{HandlerId, Handlers, Method, Packed};
use ashlar_grid::seam::{BoxFuture, Lane, Runtime};
use ashlar_grid::status::PeerEvent;
use ashlar_grid::{CallOptions, Grid};
use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;
use serde::{Deserialize, Serialize};
use tracing::{debug, info, warn};

use status::{MeshStatus, MeshView, PeerView, ServerStatus};

/// Members that one server tells another, and that it remembers.
pub const MEMBERS_MAX: usize = 4_096;

/// How long a peer may take to tell whom it knows or how it is.
const PEER_ANSWER_MAX: Duration = Duration::from_secs(2);

/// A server as others are told of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its [`ServerId`] as text.
    pub server: String,
    /// Where it is reached, `HOST:PORT`.
    pub address: String,
}

/// "These I know; whom do you know?"
struct Members;

impl Method for Members {
    const ID: HandlerId = HandlerId::Members;
    const IDEMPOTENT: bool = true;
    type Request = Packed<Vec<Member>>;
    type Reply = Packed<Vec<Member>>;
}

/// "How are you?"
struct Status;

impl Method for Status {
    const ID: HandlerId = HandlerId::Status;
    const IDEMPOTENT: bool = true;
    type Request = ();
    type Reply = Packed<ServerStatus>;
}

/// What a node must not forget.
pub trait Memory: Send + Sync + 'static {
    /// Keeps these instead of those before. Returns at once; the work may be done later, the latest call wins.
    fn remember(&self, members: Vec<(ServerId, String)>);
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
    /// Servers that were met in earlier lives.
    pub met: Vec<(ServerId, String)>,
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

struct Shared<R: Runtime> {
    runtime: Arc<R>,
    plan: Plan,
    memory: Box<dyn Memory>,
    started: Instant,
    is_draining: AtomicBool,
    known: Mutex<Known>,
    /// Set once, before anything can ask for it: the grid's handlers need the node and the node needs the grid.
    grid: OnceLock<Grid<R>>,
}

#[derive(Debug, Default)]
struct Known {
    /// Who was met, at the latest address.
    met: BTreeMap<ServerId, String>,
    was_connected: bool,
    last_failure: Option<String>,
    /// Addresses where somebody will never let this server in, and why.
    hopeless: BTreeMap<String, String>,
    /// Why a connection from outside was refused last, and when that was told.
    last_rejection: Option<(String, Instant)>,
}

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
    /// Starts the server and looks for its cluster. Bulk connections live in `bulk_runtime`.
    #[must_use]
    pub fn start(runtime: Arc<R>, bulk_runtime: Arc<R>, plan: Plan, memory: impl Memory) -> Self {
        let met = plan.met.iter().cloned().collect();
        let shared = Arc::new(Shared {
            started: runtime.now(),
            runtime: runtime.clone(),
            memory: Box::new(memory),
            is_draining: AtomicBool::new(false),
            known: Mutex::new(Known { met, ..Known::default() }),
            grid: OnceLock::new(),
            plan,
        });
        let node = Self(shared);
        let (weak, observer) = (Arc::downgrade(&node.0), Arc::downgrade(&node.0));
        let grid = Grid::with_bulk(runtime, bulk_runtime, node.0.plan.grid.clone(), handlers(&weak), move |event| {
            if let Some(shared) = observer.upgrade() {
                Self(shared).note(event);
            }
        });
        // First the grid, then whatever makes it speak: nothing asks the node before.
        drop(node.0.grid.set(grid));
        for address in node.0.plan.join.iter().chain(node.0.plan.met.iter().map(|(_, address)| address)) {
            node.grid().add_peer(address);
        }
        node
    }

    fn grid(&self) -> &Grid<R> {
        self.0.grid.get().expect("the grid is set before anybody can see the node")
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
        if known.was_connected || !must_join {
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

    /// Finishes what runs, refuses what is new, closes all connections; bounded by the grid's `drain_max`.
    pub async fn drain(&self) {
        self.0.is_draining.store(true, Ordering::Release);
        self.grid().drain().await;
    }

    /// What this server knows.
    #[must_use]
    pub fn status(&self) -> ServerStatus {
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
        }
    }

    /// Who is known, without the addresses that a server has left since this life began.
    fn peers(&self) -> Vec<PeerView> {
        let known = self.0.known();
        let moved: BTreeSet<&str> = {
            let left = self.0.plan.met.iter().filter(|(id, address)| known.met.get(id) != Some(address));
            left.map(|(_, address)| address.as_str()).collect()
        };
        let peers = self.grid().peers().into_iter();
        peers.filter(|peer| peer.id.is_some() || !moved.contains(peer.address.as_str())).map(Into::into).collect()
    }

    /// What every server knows, asked through this one.
    pub async fn mesh(&self) -> MeshStatus {
        let own = self.status();
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
                info!(%peer, address, %incarnation, dialed, "peer connected");
                self.meet(*peer, address);
                let (node, peer) = (self.clone(), *peer);
                self.0.runtime.spawn(Box::pin(async move { node.exchange_members(peer).await }));
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
                warn!(address, reason, will_heal, "cannot connect to peer");
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

    /// Notes who answers where, and remembers it if that is new.
    fn meet(&self, peer: ServerId, address: &str) {
        let mut known = self.0.known();
        known.was_connected = true;
        if known.met.get(&peer).is_some_and(|last| last == address) {
            return;
        }
        known.met.insert(peer, address.to_owned());
        let members = known.met.iter().map(|(server, address)| (*server, address.clone()));
        self.0.memory.remember(members.take(MEMBERS_MAX).collect());
    }

    async fn exchange_members(&self, peer: ServerId) {
        let request = Packed(self.0.members());
        match self.grid().call::<Members>(peer, &request, CallOptions::within(PEER_ANSWER_MAX)).await {
            Ok(Packed(members)) => self.learn(&members),
            // The next connection asks again.
            Err(error) => debug!(%peer, %error, "peer did not tell whom it knows"),
        }
    }

    fn learn(&self, members: &[Member]) {
        let unknown: Vec<&Member> = {
            let known = self.0.known();
            let is_unknown = |member: &&Member| {
                let id = member.server.parse::<ServerId>();
                id.is_ok_and(|id| id != self.0.plan.grid.server && !known.met.contains_key(&id))
            };
            members.iter().take(MEMBERS_MAX).filter(is_unknown).collect()
        };
        for member in unknown {
            debug!(server = member.server, address = member.address, "heard of a server");
            self.grid().add_peer(&member.address);
        }
    }
}

impl<R: Runtime> Shared<R> {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whom this server met and, first of all, itself.
    fn members(&self) -> Vec<Member> {
        let own = Member { server: self.plan.grid.server.to_string(), address: self.plan.grid.address.clone() };
        let known = self.known();
        let met =
            known.met.iter().map(|(server, address)| Member { server: server.to_string(), address: address.clone() });
        core::iter::once(own).chain(met).take(MEMBERS_MAX).collect()
    }
}

fn handlers<R: Runtime>(node: &Weak<Shared<R>>) -> Handlers {
    let (members, status) = (node.clone(), node.clone());
    let handlers = Handlers::new().serve::<Members, _>(move |_, Packed(theirs)| {
        let node = members.upgrade().map(Node);
        async move {
            let Some(node) = node else { return Ok(Packed(Vec::new())) };
            node.learn(&theirs);
            Ok(Packed(node.0.members()))
        }
    });
    let handlers = handlers.and_then(|handlers| {
        handlers.serve::<Status, _>(move |_, ()| {
            let node = status.upgrade().map(Node);
            async move { node.map(|node| Packed(node.status())).ok_or_else(stopped) }
        })
    });
    handlers.expect("each handler is registered once")
}

fn stopped() -> ashlar_grid::error::Refusal {
    ashlar_grid::error::Refusal::new(1, "the server has stopped")
}
