//! The tasks that make connections, keep them, and run them.

use core::fmt;
use core::future::poll_fn;
use core::pin::pin;
use core::sync::atomic::Ordering;
use core::task::Poll;
use core::time::Duration;
use std::sync::Arc;

use ashlar_wire::id::ServerId;

use crate::connect::{ConnectError, Framed};
use crate::driver::{Driver, Ended};
use crate::error::Lost;
use crate::frame::Side;
use crate::grid::{Grid, Shared, Target};
use crate::hello::{Acceptor, Dialer, HelloConfig, HelloError, PeerHello, RefusalCode, Session};
use crate::inlet::Inlet;
use crate::link::Link;
use crate::message::Assembler;
use crate::peer::Peer;
use crate::race::before;
use crate::rotation::Proofs;
use crate::seam::{Lane, Runtime, Wire as _};
use crate::status::PeerEvent;
use crate::table::{Decision, decide_accepted, decide_dialed};

impl<R: Runtime> Grid<R> {
    /// Takes a connection from outside after its HTTP upgrade: does the hello, decides whether it stays, and runs it.
    pub fn accept(&self, wire: R::Wire, lane: Lane) {
        let shared = self.0.clone();
        if shared.handshakes.fetch_add(1, Ordering::AcqRel) >= shared.config.handshakes_max {
            shared.handshakes.fetch_sub(1, Ordering::AcqRel);
            shared.reject(&ConnectError::Refused(RefusalCode::Busy));
            return;
        }
        let task = shared.clone().accepted(wire, lane);
        shared.spawn(lane, task);
    }
}

/// What belongs to ordinary life is reported all the same when it lasts: so many dials in a row.
const QUIET_FAILURES_MAX: u32 = 16;

/// A dial of this side that the peer may accept any moment.
struct Dialing(Arc<Peer>);

impl Dialing {
    fn begin(peer: Arc<Peer>) -> Self {
        peer.begin_dial();
        Self(peer)
    }
}

impl Drop for Dialing {
    fn drop(&mut self) {
        self.0.end_dial();
    }
}

impl<R: Runtime> Shared<R> {
    /// Runs a task that is counted.
    pub(crate) fn spawn(self: &Arc<Self>, lane: Lane, task: impl Future<Output = ()> + Send + 'static) {
        struct Counted<R: Runtime>(Arc<Shared<R>>);
        impl<R: Runtime> Drop for Counted<R> {
            fn drop(&mut self) {
                self.0.tasks.fetch_sub(1, Ordering::AcqRel);
            }
        }
        self.tasks.fetch_add(1, Ordering::AcqRel);
        let counted = Counted(self.clone());
        self.runtime_of(lane).spawn(Box::pin(async move {
            task.await;
            drop(counted);
        }));
    }

    /// Where connections of `lane` live.
    fn runtime_of(&self, lane: Lane) -> &Arc<R> {
        match lane {
            Lane::Small => &self.runtime,
            Lane::Bulk => &self.bulk_runtime,
        }
    }

    /// Starts a keeper for `address`, unless there is one.
    pub(crate) fn add_target(self: &Arc<Self>, address: &str, id: Option<ServerId>) {
        if self.is_draining() || address.is_empty() || address == self.config.address {
            return;
        }
        {
            let mut peers = self.peers();
            let known = id.is_some() && peers.targets.values().any(|target| target.id == id);
            if known || peers.targets.contains_key(address) || peers.targets.len() >= self.config.peers_max {
                return;
            }
            peers.targets.insert(address.to_owned(), Target { id, ..Target::default() });
        }
        let task = self.clone().keep(address.to_owned());
        self.spawn(Lane::Small, task);
    }

    /// The peer of that id, known from now on.
    fn peer_of(&self, hello: &PeerHello) -> Arc<Peer> {
        let mut peers = self.peers();
        let new = || Arc::new(Peer::new(hello.server, hello.address.clone(), &self.config));
        peers.by_id.entry(hello.server).or_insert_with(new).clone()
    }

    fn is_target(&self, address: &str) -> bool {
        self.peers().targets.contains_key(address)
    }

    /// Dials `address` whenever nobody else has made a connection to whoever is there.
    async fn keep(self: Arc<Self>, address: String) {
        let mut failures = 0;
        let mut reported = String::new();
        while self.is_target(&address) && !self.is_draining() {
            if let Some(peer) = self.target_peer(&address) {
                poll_fn(|cx| peer.poll_unlinked(cx)).await;
                if !self.is_target(&address) || self.is_draining() {
                    break;
                }
            }
            // Boxed: what dialing needs is not kept while the connection lives.
            match Box::pin(self.dial(&address)).await {
                Ok(peer) => {
                    failures = 0;
                    reported.clear();
                    poll_fn(|cx| peer.poll_unlinked(cx)).await;
                }
                Err(ConnectError::Hello(HelloError::Refused(RefusalCode::OwnEcho))) => {
                    self.peers().targets.remove(&address);
                    break;
                }
                Err(error) => {
                    self.counters().dials_failed += 1;
                    failures += 1;
                    if !is_quiet(&error) || failures >= QUIET_FAILURES_MAX {
                        self.note_dial_error(&address, &error, &mut reported);
                    }
                }
            }
            let pause = self.backoff(failures);
            self.runtime.sleep_until(self.runtime.now() + pause).await;
        }
    }

    fn target_peer(&self, address: &str) -> Option<Arc<Peer>> {
        let peers = self.peers();
        let id = peers.targets.get(address)?.id?;
        peers.by_id.get(&id).cloned()
    }

    /// Half to all of the exponential pause, so that many dialers spread.
    fn backoff(&self, failures: u32) -> Duration {
        let timing = &self.config.timing;
        let pause = (timing.backoff_min * 2_u32.saturating_pow(failures.min(16))).min(timing.backoff_max);
        let mut chance = [0; 4];
        self.runtime.random(&mut chance);
        pause / 2 + pause / 2 * (u32::from_le_bytes(chance) >> 16) / 65_536
    }

    fn note_dial_error(&self, address: &str, error: &ConnectError, reported: &mut String) {
        let reason = error.to_string();
        if let Some(target) = self.peers().targets.get_mut(address) {
            target.last_error = Some(reason.clone());
        }
        if let Some(peer) = self.target_peer(address) {
            peer.note_error(reason.clone());
        }
        if *reported == reason {
            return;
        }
        let will_heal = match error {
            ConnectError::Hello(error) => error.will_heal(),
            _ => true,
        };
        (self.on_event)(&PeerEvent::DialFailed { address: address.to_owned(), reason: reason.clone(), will_heal });
        *reported = reason;
    }

    fn hello_config(&self, lane: Lane, expected_peer: Option<ServerId>, channel_binding: [u8; 32]) -> HelloConfig {
        let config = &self.config;
        HelloConfig {
            cluster: config.cluster,
            server: config.server,
            incarnation: config.incarnation,
            address: config.address.clone(),
            secrets: self.keyring.secrets(),
            limits: crate::hello::PeerLimits::of(if lane == Lane::Small { config.limits } else { config.bulk_limits }),
            always_checksum: config.always_checksum,
            lane,
            expected_peer,
            channel_binding,
        }
    }

    /// Dials, does the hello and starts the connection. An error means that it did not come to one.
    async fn dial(self: &Arc<Self>, address: &str) -> Result<Arc<Peer>, ConnectError> {
        let mut framed = self.open(address, Lane::Small).await?;
        let config = self.hello_config(Lane::Small, None, framed.wire.channel_binding());
        let (dialer, hello) = Dialer::new(config, self.nonce());
        let mut dialing = None;
        let proved = |hello: &PeerHello| {
            let peer = self.peer_of(hello);
            if let Some(target) = self.peers().targets.get_mut(address) {
                target.id = Some(hello.server);
            }
            let standing = peer.standing(self.runtime.now());
            let taken = standing.is_linked && !standing.is_suspect && standing.incarnation == Some(hello.incarnation);
            let goes_on = !taken && !self.is_draining();
            if goes_on {
                dialing = Some(Dialing::begin(peer));
            }
            goes_on
        };
        let session = framed.dial(dialer, hello, proved).await?;
        let Some(dialing) = dialing else { return Err(ConnectError::Refused(RefusalCode::Malformed)) };
        let peer = dialing.0.clone();
        let standing = peer.standing(self.runtime.now());
        if let Decision::Refuse(code) = decide_dialed(session.incarnation, standing) {
            framed.farewell(&code.to_string()).await;
            return Err(ConnectError::Refused(code));
        }
        // Even while draining: the peer has this connection already, and may have sent calls on it.
        let link = self.new_link(&framed, Side::Dialer, session);
        peer.install(&link);
        drop(dialing);
        self.start(framed, Side::Dialer, peer.clone(), link);
        Ok(peer)
    }

    async fn open(&self, address: &str, lane: Lane) -> Result<Framed<'_, R>, ConnectError> {
        let step_max = self.config.timing.handshake_step_max;
        let at = self.runtime.now() + step_max;
        let wire = before(&*self.runtime, at, self.runtime_of(lane).dial(address, lane)).await;
        let wire = wire.ok_or(ConnectError::Timeout)??;
        Ok(Framed::new(&*self.runtime, wire, Side::Dialer, step_max))
    }

    pub(crate) fn nonce(&self) -> [u8; 32] {
        let mut nonce = [0; 32];
        self.runtime.random(&mut nonce);
        nonce
    }

    fn new_link(&self, framed: &Framed<'_, R>, side: Side, session: Session) -> Arc<Link> {
        let mux = self.new_mux(side, &session);
        let binding = framed.wire.channel_binding();
        let proofs = Proofs::new(self.keyring.clone(), self.config.server, &session, binding);
        Arc::new(Link::new(mux, session, proofs, self.runtime.now()))
    }

    /// Decides about a connection from outside, and starts it.
    async fn accepted(self: Arc<Self>, wire: R::Wire, lane: Lane) {
        let mut framed = Framed::new(&*self.runtime, wire, Side::Acceptor, self.config.timing.handshake_step_max);
        let config = self.hello_config(lane, None, framed.wire.channel_binding());
        let mut acceptor = Acceptor::new(config, self.nonce());
        let admitted = match framed.accept(&mut acceptor).await {
            Ok(hello) => self.admit(&mut framed, acceptor, &hello).await,
            Err(error) => Err(error),
        };
        // Counted before the peer is told: who has been refused can see it in the counters.
        self.handshakes.fetch_sub(1, Ordering::AcqRel);
        match admitted {
            Ok((peer, link)) => self.start(framed, Side::Acceptor, peer, link),
            Err(error) => {
                self.reject(&error);
                let text = match &error {
                    ConnectError::Refused(_) => error.to_string(),
                    _ => format!("not authenticated: {error}"),
                };
                framed.farewell(&text).await;
            }
        }
    }

    /// Decides about a peer that has proved itself, and welcomes or refuses it.
    async fn admit(
        self: &Arc<Self>,
        framed: &mut Framed<'_, R>,
        acceptor: Acceptor,
        hello: &PeerHello,
    ) -> Result<(Arc<Peer>, Arc<Link>), ConnectError> {
        if self.is_draining() {
            return Err(framed.refuse(&acceptor, RefusalCode::Draining).await);
        }
        // The secret may have been replaced since the hello began: the peer has a step's time for its proof.
        if acceptor.key().is_none_or(|key| !self.keyring.holds(key)) {
            return Err(framed.refuse(&acceptor, RefusalCode::UnknownKey).await);
        }
        let peer = self.peer_of(hello);
        if hello.lane == Lane::Small {
            let standing = peer.standing(self.runtime.now());
            if let Decision::Refuse(code) =
                decide_accepted(self.config.server, hello.server, hello.incarnation, standing)
            {
                // It may know that the connection there is has failed: if so, its next dial is taken.
                peer.ask(self.runtime.now());
                return Err(framed.refuse(&acceptor, code).await);
            }
        }
        if hello.lane == Lane::Bulk && !peer.has_bulk_room(self.config.bulk_pool_max * 2) {
            return Err(framed.refuse(&acceptor, RefusalCode::Busy).await);
        }
        let mut session_id = [0; 8];
        self.runtime.random(&mut session_id);
        let (welcome, session) = acceptor.welcome(u64::from_le_bytes(session_id));
        let link = self.new_link(framed, Side::Acceptor, session);
        match hello.lane {
            Lane::Small => peer.install(&link),
            Lane::Bulk if peer.install_bulk(&link, self.config.bulk_pool_max * 2) => {}
            Lane::Bulk => return Err(ConnectError::Refused(RefusalCode::Busy)),
        }
        if let Err(error) = framed.send(&welcome).await {
            link.lock().close(Lost::Broken);
            peer.remove(&link, Some(error.to_string()));
            return Err(error);
        }
        self.add_target(&hello.address, Some(hello.server));
        Ok((peer, link))
    }

    /// Starts the task of a connection, which is all that is left of its making.
    fn start(self: &Arc<Self>, framed: Framed<'_, R>, side: Side, peer: Arc<Peer>, link: Arc<Link>) {
        let Framed { wire, decoder, mut rest, .. } = framed;
        // Whoever drained or stopped this grid while the link was being made has not seen it.
        if self.stopped.load(Ordering::Acquire) {
            link.lock().close(Lost::Shutdown);
        } else if !link.proofs().is_held() {
            // A rotation since the hello began has not seen this connection, or sees it now and closes it as well.
            link.lock().close(Lost::Unproved);
        } else if self.is_draining() {
            link.drain(self.runtime_of(link.session().lane).now());
        }
        let session = link.session();
        let chunk_max = self.config.limits.chunk_max.max(self.config.bulk_limits.chunk_max);
        let assembler = Assembler::new(chunk_max, session.salt);
        let runtime = self.runtime_of(session.lane);
        let inlet = Inlet::new(runtime.clone(), side, link.clone(), self.handlers.clone(), decoder, assembler);
        let mut driver = Driver::new(runtime.clone(), wire, link.clone(), inlet, self.connections.clone());
        driver.handle_early(&mut rest);
        drop(rest);
        if session.lane == Lane::Small {
            self.counters().connects += 1;
            (self.on_event)(&PeerEvent::Connected {
                peer: session.peer,
                address: session.peer_address.clone(),
                incarnation: session.incarnation,
                dialed: side == Side::Dialer,
            });
        }
        match session.lane {
            Lane::Small => self.spawn(Lane::Small, self.clone().run(driver, peer, link)),
            Lane::Bulk => self.spawn(Lane::Bulk, self.clone().run_bulk(driver, peer, link)),
        }
    }

    /// Runs a connection to its end.
    async fn run(self: Arc<Self>, driver: Driver<R>, peer: Arc<Peer>, link: Arc<Link>) {
        self.connections.fetch_add(1, Ordering::Relaxed);
        let ended = driver.await;
        self.connections.fetch_sub(1, Ordering::Relaxed);
        self.note_end(&peer, &link, &ended);
    }

    async fn run_bulk(self: Arc<Self>, driver: Driver<R>, peer: Arc<Peer>, link: Arc<Link>) {
        let ended = self.until_unused(driver, &link).await;
        self.note_end(&peer, &link, &ended);
    }

    /// Runs a bulk connection until it ends; drains it when it has been unused for long.
    async fn until_unused(&self, driver: Driver<R>, link: &Arc<Link>) -> Ended {
        let mut driver = pin!(driver);
        let watch = async {
            loop {
                let before = link.lock().counters();
                self.runtime.sleep_until(self.runtime.now() + self.config.timing.bulk_idle_max).await;
                let mut mux = link.lock();
                let after = mux.counters();
                if (before.calls_in, before.calls_out) == (after.calls_in, after.calls_out) && mux.is_idle() {
                    mux.drain();
                }
            }
        };
        let mut watch = pin!(watch);
        poll_fn(|cx| {
            let _: Poll<()> = watch.as_mut().poll(cx);
            driver.as_mut().poll(cx)
        })
        .await
    }

    fn note_end(&self, peer: &Arc<Peer>, link: &Arc<Link>, ended: &Ended) {
        let reason = describe(ended);
        peer.remove(link, Some(reason.clone()));
        let mut counters = self.counters();
        counters.protocol_errors += u64::from(ended.lost == Lost::Protocol);
        if link.session().lane == Lane::Bulk {
            return;
        }
        let is_expected = matches!(ended.lost, Lost::Drained | Lost::Shutdown | Lost::Replaced);
        counters.losses += u64::from(!is_expected);
        drop(counters);
        (self.on_event)(&PeerEvent::Lost {
            peer: peer.id(),
            address: peer.address(),
            reason,
            silence: link.lock().silence(self.runtime.now()),
            is_expected,
        });
    }

    /// Opens a bulk connection to `peer` if there is room for one more.
    pub(crate) fn open_bulk(self: &Arc<Self>, peer: &Arc<Peer>) {
        if self.is_draining() || !peer.begin_bulk(self.config.bulk_pool_max) {
            return;
        }
        let task = self.clone().dial_bulk(peer.clone());
        self.spawn(Lane::Bulk, task);
    }

    async fn dial_bulk(self: Arc<Self>, peer: Arc<Peer>) {
        match self.make_bulk(&peer).await {
            Ok((framed, link)) => {
                let installed = peer.install_bulk(&link, self.config.bulk_pool_max * 2);
                peer.end_bulk();
                if installed {
                    self.start(framed, Side::Dialer, peer, link);
                }
            }
            Err(error) => {
                self.counters().dials_failed += 1;
                peer.note_error(error.to_string());
                peer.end_bulk();
            }
        }
    }

    async fn make_bulk(&self, peer: &Arc<Peer>) -> Result<(Framed<'_, R>, Arc<Link>), ConnectError> {
        let mut framed = self.open(&peer.address(), Lane::Bulk).await?;
        let config = self.hello_config(Lane::Bulk, Some(peer.id()), framed.wire.channel_binding());
        let (dialer, hello) = Dialer::new(config, self.nonce());
        let session = framed.dial(dialer, hello, |_| !self.is_draining()).await?;
        let link = self.new_link(&framed, Side::Dialer, session);
        Ok((framed, link))
    }

    /// Counts a connection from outside that came to nothing, and tells why unless it is ordinary.
    fn reject(&self, error: &ConnectError) {
        let mut counters = self.counters();
        let kind = match error {
            ConnectError::Timeout => &mut counters.rejected.timeout,
            ConnectError::Frame(_) => &mut counters.rejected.malformed,
            ConnectError::Hello(error) if error.is_malformed() => &mut counters.rejected.malformed,
            ConnectError::Hello(error) => match error.refusal_code() {
                Some(RefusalCode::WrongCluster) => &mut counters.rejected.wrong_cluster,
                Some(RefusalCode::WrongVersion) => &mut counters.rejected.wrong_version,
                Some(RefusalCode::UnknownKey | RefusalCode::BadProof) => &mut counters.rejected.unauthenticated,
                _ => &mut counters.rejected.other,
            },
            _ => &mut counters.rejected.other,
        };
        *kind += 1;
        drop(counters);
        if !is_quiet(error) {
            (self.on_event)(&PeerEvent::Rejected { reason: error.to_string() });
        }
    }
}

/// Whether an error belongs to ordinary life: start-up in any order, both sides dialing, restarts.
fn is_quiet(error: &ConnectError) -> bool {
    let code = match error {
        ConnectError::Refused(code) => Some(*code),
        ConnectError::Hello(error) => error.refusal_code(),
        ConnectError::Closed(..) => return true,
        _ => None,
    };
    matches!(code, Some(RefusalCode::Duplicate | RefusalCode::Draining | RefusalCode::OwnEcho))
}

/// Why a connection ended, for people.
fn describe(ended: &Ended) -> String {
    let detail: Option<&dyn fmt::Display> = match (&ended.protocol, &ended.wire) {
        (Some(error), _) => Some(error),
        (None, Some(error)) => Some(error),
        (None, None) => None,
    };
    detail.map_or_else(|| ended.lost.to_string(), |detail| format!("{}: {detail}", ended.lost))
}
