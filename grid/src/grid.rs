//! The grid of one server: every peer, the connections to it, and calls by peer id.
//!
//! Each known address has a *keeper*: a task that dials whenever there is no connection, backs off, and runs the
//! connection it made. Connections from outside come in by [`Grid::accept`]; their peers get a keeper too, so that both
//! sides dial after a loss. [`table`](crate::table) decides which of two connections stays.

use core::future::poll_fn;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::task::Poll;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;

use crate::calling::{Start, Started, start};
use crate::config::{BULK_THRESHOLD, GridConfig};
use crate::error::{CallError, Lost, Reason, StreamError};
use crate::handler::{HandlerId, Handlers, Method, Payload as _};
use crate::link::Link;
use crate::mux::{Mux, NewCall};
use crate::outbox::Class;
use crate::peer::Peer;
use crate::race::before;
use crate::rotation::Keyring;
use crate::seam::{Lane, Runtime};
use crate::status::{GridCounters, PeerEvent, PeerStatus};
use crate::stream::ClientStream;

/// What a caller can say about one call or stream.
#[derive(Debug, Clone, Copy)]
pub struct CallOptions<'a> {
    /// How long to wait for the answer, a connection included; `None` is the configured default.
    pub timeout: Option<Duration>,
    /// The route at the peer, empty for none.
    pub route: &'a str,
    /// Fail at once when there is no connection, instead of waiting for one.
    pub fail_fast: bool,
    /// How urgent a large request is.
    pub class: Class,
    /// For streams: bytes accepted unread at first and at most; 0 is the configured default.
    pub window: (u32, u32),
}

impl Default for CallOptions<'_> {
    fn default() -> Self {
        Self { timeout: None, route: "", fail_fast: false, class: Class::Foreground, window: (0, 0) }
    }
}

impl CallOptions<'_> {
    /// The defaults, with this time to wait.
    #[must_use]
    pub fn within(timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..Self::default() }
    }
}

/// What all tasks of one grid share.
pub(crate) struct Shared<R: Runtime> {
    pub(crate) runtime: Arc<R>,
    /// Where bulk connections live, so that their long copies hold up nothing that is short.
    pub(crate) bulk_runtime: Arc<R>,
    pub(crate) config: GridConfig,
    pub(crate) keyring: Keyring,
    pub(crate) handlers: Arc<Handlers>,
    pub(crate) peers: Mutex<Peers>,
    pub(crate) counters: Mutex<GridCounters>,
    pub(crate) on_event: Box<dyn Fn(&PeerEvent) + Send + Sync>,
    pub(crate) draining: AtomicBool,
    pub(crate) stopped: AtomicBool,
    pub(crate) handshakes: AtomicUsize,
    /// Connections to other servers, but for those of bulk data.
    pub(crate) connections: Arc<AtomicUsize>,
    /// Keepers, connections and the like that run.
    pub(crate) tasks: AtomicUsize,
}

#[derive(Default)]
pub(crate) struct Peers {
    pub(crate) by_id: BTreeMap<ServerId, Arc<Peer>>,
    /// Addresses that have a keeper, and who was found there.
    pub(crate) targets: BTreeMap<String, Target>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Target {
    pub(crate) id: Option<ServerId>,
    pub(crate) last_error: Option<String>,
    pub(crate) removed: bool,
}

/// One server's end of the grid. Clones are the same grid.
pub struct Grid<R: Runtime>(pub(crate) Arc<Shared<R>>);

impl<R: Runtime> Clone for Grid<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<R: Runtime> Grid<R> {
    /// A grid that answers with `handlers` and tells `on_event` what happens to its connections.
    pub fn new(
        runtime: Arc<R>,
        config: GridConfig,
        handlers: Handlers,
        on_event: impl Fn(&PeerEvent) + Send + Sync + 'static,
    ) -> Self {
        Self::with_bulk(runtime.clone(), runtime, config, handlers, on_event)
    }

    /// Like [`Grid::new`], with bulk connections in a runtime of their own.
    pub fn with_bulk(
        runtime: Arc<R>,
        bulk_runtime: Arc<R>,
        config: GridConfig,
        handlers: Handlers,
        on_event: impl Fn(&PeerEvent) + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Shared {
            runtime,
            bulk_runtime,
            keyring: Keyring::new(config.secrets.clone()),
            config,
            handlers: Arc::new(handlers),
            peers: Mutex::default(),
            counters: Mutex::default(),
            on_event: Box::new(on_event),
            draining: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            handshakes: AtomicUsize::new(0),
            connections: Arc::default(),
            tasks: AtomicUsize::new(0),
        }))
    }

    /// This server.
    #[must_use]
    pub fn server(&self) -> ServerId {
        self.0.config.server
    }

    /// Keeps a connection to whoever answers at `address` (`host:port`), from now on. Nothing happens if it is known.
    pub fn add_peer(&self, address: &str) {
        self.0.add_target(address, None);
    }

    /// Dials `address` no more. A connection that was made there stays.
    pub fn forget_address(&self, address: &str) {
        self.0.peers().targets.remove(address);
    }

    /// Ends the connections to a peer and forgets its addresses. It may come back by dialing.
    pub fn forget_peer(&self, id: ServerId) {
        let peer = {
            let mut peers = self.0.peers();
            for target in peers.targets.values_mut().filter(|target| target.id == Some(id)) {
                target.removed = true;
            }
            peers.targets.retain(|_, target| !target.removed);
            peers.by_id.remove(&id)
        };
        if let Some(peer) = peer {
            peer.close(Lost::Shutdown);
        }
    }

    /// The peer of that id, for repeated calls.
    ///
    /// # Errors
    /// [`Reason::UnknownPeer`].
    pub fn peer(&self, id: ServerId) -> Result<PeerHandle<R>, CallError> {
        let peer = self.0.peers().by_id.get(&id).cloned();
        let peer = peer.ok_or(CallError::NotSent(Reason::UnknownPeer))?;
        Ok(PeerHandle { shared: self.0.clone(), peer })
    }

    /// Calls a peer; see [`PeerHandle::call`].
    ///
    /// # Errors
    /// As there, and [`Reason::UnknownPeer`].
    pub async fn call<M: Method>(
        &self,
        peer: ServerId,
        request: &M::Request,
        options: CallOptions<'_>,
    ) -> Result<M::Reply, CallError>
    where
        M::Request: Sync,
    {
        self.peer(peer)?.call::<M>(request, options).await
    }

    /// Sends a datagram: ahead of calls and streams, never answered, at most a chunk (16 KiB) long. It may be lost, with its
    /// connection or in front of one that is full, and overtakes nothing of its own kind on one connection. Returns at
    /// once; false where it certainly did not leave, because nobody is connected or too much waits.
    #[must_use = "a datagram that did not leave may be worth counting"]
    pub fn send_datagram(&self, peer: ServerId, handler: HandlerId, payload: &[u8]) -> bool {
        let peer = self.0.peers().by_id.get(&peer).cloned();
        let link = peer.and_then(|peer| peer.link(Lane::Small));
        link.is_some_and(|link| link.lock().send_datagram(handler.number(), payload))
    }

    /// Opens a stream to a peer; see [`PeerHandle::open_stream`].
    ///
    /// # Errors
    /// As there, and [`Reason::UnknownPeer`].
    pub async fn open_stream(
        &self,
        peer: ServerId,
        handler: HandlerId,
        initial: &[u8],
        options: CallOptions<'_>,
    ) -> Result<ClientStream, StreamError> {
        let peer = self.peer(peer).map_err(|_| StreamError::NotExecuted(Reason::UnknownPeer))?;
        peer.open_stream(handler, initial, options).await
    }

    /// All peers, as they stand now, by id; then addresses where nobody was found so far.
    #[must_use]
    pub fn peers(&self) -> Vec<PeerStatus> {
        self.0.statuses()
    }

    /// What was counted since the start.
    #[must_use]
    pub fn counters(&self) -> GridCounters {
        *self.0.counters()
    }

    /// Tasks of this grid that run: keepers, connections, hellos.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.0.tasks.load(Ordering::Acquire)
    }

    /// Stops in peace: peers are told to send nothing new, what runs is finished, for at most
    /// [`Timing::drain_max`](crate::config::Timing::drain_max); then every connection is closed. Gives the peers with whom something
    /// had not ended by then.
    pub async fn drain(&self) -> Vec<ServerId> {
        self.0.draining.store(true, Ordering::Release);
        for link in self.0.links() {
            link.drain(self.0.runtime.now());
        }
        let at = self.0.runtime.now() + self.0.config.timing.drain_max;
        let unsettled = loop {
            let now = self.0.runtime.now();
            let unsettled: Vec<ServerId> = {
                let peers = self.0.peers();
                peers.by_id.iter().filter(|(_, peer)| !peer.is_settled()).map(|(id, _)| *id).collect()
            };
            if unsettled.is_empty() || now >= at {
                break unsettled;
            }
            self.0.runtime.sleep_until(now + DRAIN_LOOK).await;
        };
        self.stop();
        unsettled
    }

    /// Stops at once: every connection is closed, every call fails, no task stays.
    pub fn stop(&self) {
        self.0.draining.store(true, Ordering::Release);
        self.0.stopped.store(true, Ordering::Release);
        let peers: Vec<Arc<Peer>> = {
            let mut peers = self.0.peers();
            for target in peers.targets.values_mut() {
                target.removed = true;
            }
            peers.targets.clear();
            peers.by_id.values().cloned().collect()
        };
        for peer in peers {
            peer.close(Lost::Shutdown);
        }
    }
}

/// How often draining looks whether all is done.
const DRAIN_LOOK: Duration = Duration::from_millis(5);

impl<R: Runtime> Shared<R> {
    pub(crate) fn peers(&self) -> MutexGuard<'_, Peers> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn counters(&self) -> MutexGuard<'_, GridCounters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Every live connection.
    pub(crate) fn links(&self) -> Vec<Arc<Link>> {
        let peers: Vec<Arc<Peer>> = self.peers().by_id.values().cloned().collect();
        peers.iter().flat_map(|peer| peer.links()).collect()
    }

    fn statuses(&self) -> Vec<PeerStatus> {
        let now = self.runtime.now();
        let (known, unknown) = {
            let peers = self.peers();
            let known: Vec<Arc<Peer>> = peers.by_id.values().cloned().collect();
            let unknown = peers.targets.iter().filter(|(_, target)| target.id.is_none());
            (known, unknown.map(|(address, target)| (address.clone(), target.last_error.clone())).collect::<Vec<_>>())
        };
        let known = known.iter().map(|peer| peer.status(now));
        known.chain(unknown.into_iter().map(|(address, error)| PeerStatus::unknown(address, error))).collect()
    }
}

/// One peer of a grid.
pub struct PeerHandle<R: Runtime> {
    shared: Arc<Shared<R>>,
    peer: Arc<Peer>,
}

impl<R: Runtime> Clone for PeerHandle<R> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), peer: self.peer.clone() }
    }
}

impl<R: Runtime> PeerHandle<R> {
    /// Who.
    #[must_use]
    pub fn id(&self) -> ServerId {
        self.peer.id()
    }

    /// Asks, and waits for the answer until the deadline. Where no connection is, waits for one (unless `fail_fast`). What
    /// is known not to have run is sent again on another connection, and so is what may have run if the method is
    /// idempotent. Dropping the future cancels the call at the peer.
    ///
    /// # Errors
    /// By what is known of the execution: see [`CallError`].
    pub async fn call<M: Method>(&self, request: &M::Request, options: CallOptions<'_>) -> Result<M::Reply, CallError>
    where
        M::Request: Sync,
    {
        let large = (M::LANE == Lane::Bulk).then(|| {
            let mut encoded = Vec::new();
            request.encode(&mut encoded);
            Arc::new(encoded)
        });
        let reply = self.call_encoded(M::ID, M::IDEMPOTENT, large, |out| request.encode(out), options).await?;
        M::Reply::decode(&reply).map_err(|_| CallError::Unknown(Reason::Malformed))
    }

    /// Like [`PeerHandle::call`], over bytes.
    ///
    /// # Errors
    /// As there.
    pub async fn call_bytes(
        &self,
        handler: HandlerId,
        request: &[u8],
        options: CallOptions<'_>,
    ) -> Result<Vec<u8>, CallError> {
        let large = (request.len() >= BULK_THRESHOLD).then(|| Arc::new(request.to_vec()));
        self.call_encoded(handler, false, large, |out| out.extend_from_slice(request), options).await
    }

    /// Like [`PeerHandle::call_bytes`] for a large request, which takes the bulk lane and is not copied before it leaves.
    ///
    /// # Errors
    /// As there.
    pub async fn call_large(
        &self,
        handler: HandlerId,
        request: Arc<Vec<u8>>,
        options: CallOptions<'_>,
    ) -> Result<Vec<u8>, CallError> {
        self.call_encoded(handler, false, Some(request), |_| {}, options).await
    }

    /// One call, with as many tries as are safe. `large` is the packed request of the bulk lane; without it, `encode`
    /// packs the request right into the connection's buffer.
    async fn call_encoded(
        &self,
        handler: HandlerId,
        idempotent: bool,
        mut large: Option<Arc<Vec<u8>>>,
        encode: impl Fn(&mut Vec<u8>),
        options: CallOptions<'_>,
    ) -> Result<Vec<u8>, CallError> {
        let runtime = &*self.shared.runtime;
        let (mut now, deadline) = self.begin(&options);
        let call = NewCall { handler: handler.number(), route: options.route, deadline, class: options.class };
        let mut attempts = 0;
        // Of an idempotent call: an earlier try may have run, whatever is known of the last one.
        let mut may_have_run = false;
        // Leaving the small lane is no second try: the breaker lets one probe through, and this is the one.
        let mut is_admitted = false;
        loop {
            if !core::mem::take(&mut is_admitted) && !self.peer.admit(|| runtime.now()) {
                return Err(last_word(CallError::NotSent(Reason::BreakerOpen), may_have_run));
            }
            let lane = if large.is_some() { Lane::Bulk } else { Lane::Small };
            let at_hand = match lane {
                Lane::Small => self.peer.small_link(runtime.thread_number()),
                Lane::Bulk => self.peer.link(lane).map(Arc::new),
            };
            let link = match at_hand {
                Some(link) if attempts == 0 => link,
                _ => {
                    let link = self.wait_for_link(lane, deadline, options.fail_fast).await;
                    now = runtime.now();
                    Arc::new(link.map_err(|error| last_word(error, may_have_run))?)
                }
            };
            let started = match &large {
                Some(request) => link.start_large(now, &call, request.clone()).map(Started::Own).map_err(Start::Failed),
                None => poll_fn(|cx| Poll::Ready(start(runtime, &link, (now, &call), &encode, cx))).await,
            };
            let result = match started {
                Err(Start::TakeBulk(request)) => {
                    large = Some(Arc::new(request));
                    is_admitted = true;
                    continue;
                }
                Err(Start::Failed(error)) => Err(error),
                Ok(started) => started.await,
            };
            self.peer.note_result(&result, || runtime.now());
            let Err(error) = &result else { return result };
            now = runtime.now();
            attempts += 1;
            if attempts >= ATTEMPTS_MAX || now >= deadline || !may_retry(error, idempotent, options) {
                return result.map_err(|error| last_word(error, may_have_run));
            }
            may_have_run |= !error.is_retry_safe();
            // What failed at once must not be tried in a circle: each further try waits a little longer.
            runtime.sleep_until((now + RETRY_PAUSE * attempts).min(deadline)).await;
            now = runtime.now();
        }
    }

    /// Opens a stream: an initial payload of at most a chunk, then messages both ways until the handler ends it or the
    /// deadline passes.
    ///
    /// # Errors
    /// [`StreamError::NotExecuted`]: retry is safe.
    pub async fn open_stream(
        &self,
        handler: HandlerId,
        initial: &[u8],
        options: CallOptions<'_>,
    ) -> Result<ClientStream, StreamError> {
        let runtime = &*self.shared.runtime;
        let (mut now, deadline) = self.begin(&options);
        let call = NewCall { handler: handler.number(), route: options.route, deadline, class: options.class };
        loop {
            let link = match self.peer.link(Lane::Small) {
                Some(link) => link,
                None => {
                    let link = self.wait_for_link(Lane::Small, deadline, options.fail_fast).await;
                    now = runtime.now();
                    link.map_err(|error| not_executed(&error))?
                }
            };
            let opened = link.lock().open_stream(now, &call, initial, options.window);
            match opened {
                Ok(key) => return Ok(ClientStream::new(link, key)),
                Err(StreamError::NotExecuted(Reason::Draining | Reason::Disconnected(_)))
                    if now < deadline && !options.fail_fast =>
                {
                    runtime.sleep_until((now + RETRY_PAUSE).min(deadline)).await;
                    now = runtime.now();
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// When a call begins, and its deadline.
    #[inline]
    fn begin(&self, options: &CallOptions<'_>) -> (Instant, Instant) {
        let span = options.timeout.unwrap_or(self.shared.config.timing.call_deadline);
        let runtime = &self.shared.runtime;
        let now = if span < EXACT_SPAN { runtime.now() } else { runtime.now_coarse() };
        (now, now + span)
    }

    /// Whether there is a connection now.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.peer.link(Lane::Small).is_some()
    }

    /// The connection for `lane`, opened or awaited until `deadline`.
    async fn wait_for_link(&self, lane: Lane, deadline: Instant, fail_fast: bool) -> Result<Arc<Link>, CallError> {
        if self.shared.stopped.load(Ordering::Acquire) {
            return Err(CallError::NotSent(Reason::Disconnected(Lost::Shutdown)));
        }
        if lane == Lane::Bulk {
            self.shared.open_bulk(&self.peer);
        }
        if fail_fast && self.peer.link(Lane::Small).is_none() {
            return Err(CallError::NotSent(Reason::NotConnected));
        }
        let linked = poll_fn(|cx| {
            if self.shared.stopped.load(Ordering::Acquire) {
                return Poll::Ready(Err(CallError::NotSent(Reason::Disconnected(Lost::Shutdown))));
            }
            self.peer.poll_link(lane, cx).map(Ok)
        });
        let linked = before(&*self.shared.runtime, deadline, linked).await;
        linked.unwrap_or(Err(CallError::NotSent(Reason::NotConnected)))
    }
}

/// Calls of a longer span begin at what the coarse clock says: their deadline may come a hundredth of this early.
const EXACT_SPAN: Duration = Duration::from_secs(5);
/// Tries of one call, at most.
const ATTEMPTS_MAX: u32 = 64;
/// Pause before a call is tried again, times the tries so far.
const RETRY_PAUSE: Duration = Duration::from_millis(5);

fn may_retry(error: &CallError, idempotent: bool, options: CallOptions<'_>) -> bool {
    if options.fail_fast {
        return false;
    }
    match error {
        CallError::NotSent(reason) | CallError::NotExecuted(reason) => {
            matches!(reason, Reason::Draining | Reason::Disconnected(_) | Reason::NotConnected)
        }
        CallError::Unknown(reason) => idempotent && matches!(reason, Reason::Disconnected(_)),
        CallError::Refused(_) => false,
    }
}

/// What the caller of several tries learns: none of them can be said not to have run if one may have.
fn last_word(error: CallError, may_have_run: bool) -> CallError {
    match error {
        CallError::NotSent(reason) | CallError::NotExecuted(reason) if may_have_run => CallError::Unknown(reason),
        error => error,
    }
}

fn not_executed(error: &CallError) -> StreamError {
    StreamError::NotExecuted(error.reason().unwrap_or(Reason::NotConnected))
}

impl<R: Runtime> Shared<R> {
    /// A mux for a connection whose hello is done.
    pub(crate) fn new_mux(&self, side: crate::frame::Side, session: &crate::hello::Session) -> Mux {
        let limits = match session.lane {
            Lane::Small => self.config.limits,
            Lane::Bulk => self.config.bulk_limits,
        };
        let peer_limits = session.peer_limits.apply_to(limits);
        Mux::new(side, limits, peer_limits, &self.config.timing, session.salt, self.runtime.now())
    }
}

#[cfg(test)]
mod tests;
