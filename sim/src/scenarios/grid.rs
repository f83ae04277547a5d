//! The grid itself: every server calls every other one while connections, links, clocks and servers fail.
//!
//! Verified: a stream that ends in order has brought every message, unchanged and in order, at both ends; a call gets
//! its own answer or none; a request whose caller was told that it did not run never runs, before or after; a request
//! that is not idempotent never runs twice; calls and streams end by their deadline; a refusal arrives as it was given;
//! without faults of the network no call fails for reasons of the connection, not even while servers leave and come
//! back; queues stay within their limits; after the healing every pair talks again in bounded time; in the end no
//! call, stream, byte, task, timer or connection is left.
//!
//! Not verified: speed, fairness between lanes, rotation to a secret that not all servers know, changes of membership.

mod book;
mod load;
mod serve;

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ashlar_grid::Grid;
use ashlar_grid::config::{GridConfig, Limits};
use ashlar_grid::hello::Secrets;
use ashlar_grid::seam::Threads as _;
use ashlar_grid::status::{PeerState, PeerStatus};
use ashlar_wire::id::{ClusterId, Incarnation};
use ashlar_wire::secret::Secret;

use self::book::{Book, Phase};
use self::load::{Client, Strictness, probe, server_id};
use crate::rng::Rng;
use crate::swarm::{Bounds, Case, Params, host};
use crate::world::{Control, ServerNo, SimRuntime};

/// After the healing every pair must talk within this time.
const CONVERGE_NS_MAX: u64 = 30_000_000_000;

/// Deadlines of the load, then draining: all that may still run when the load ends.
const WIND_DOWN_NS_MAX: u64 = 40_000_000_000;

/// How often queues are measured.
const MEASURE: Duration = Duration::from_millis(500);

/// What is queued beyond the limit: one message that was let in while there was room, and control messages.
const QUEUE_SLACK: usize = 1 << 20;

/// One life of a server.
struct Life {
    grid: Grid<SimRuntime>,
    runtime: SimRuntime,
    limits: Limits,
    drained: Arc<AtomicBool>,
}

type Lives = Mutex<BTreeMap<ServerNo, Life>>;

fn lock(lives: &Lives) -> MutexGuard<'_, BTreeMap<ServerNo, Life>> {
    lives.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How the world of one seed differs from that of another, beside what the swarm draws.
#[derive(Debug, Clone, Copy)]
struct Style {
    /// Every server knows all others from the start, or only those with greater numbers.
    all_known: bool,
    small_limits: bool,
    clients: u64,
    think_ns_max: u64,
    silence_max: Duration,
    drain_at_end: bool,
}

/// See the head of this file.
pub struct GridCase {
    control: Control,
    servers: u32,
    style: Style,
    strictness: Strictness,
    book: Arc<Book>,
    lives: Arc<Lives>,
    healed_ns: u64,
    stopping: bool,
}

impl GridCase {
    /// The case for one world.
    #[must_use]
    pub fn new(control: &Control, params: &Params) -> Self {
        let mut rng = control.rng("grid", 0);
        let style = Style {
            all_known: rng.chance(500_000),
            small_limits: rng.chance(400_000),
            clients: rng.within(1..=3),
            think_ns_max: rng.magnitude(10_000_000..=1_000_000_000),
            silence_max: Duration::from_millis(if rng.chance(500_000) { 3_000 } else { rng.magnitude(800..=5_000) }),
            drain_at_end: rng.chance(500_000),
        };
        let case = Self {
            control: control.clone(),
            servers: params.servers,
            style,
            strictness: Strictness::of(params),
            book: Arc::new(Book::new(control)),
            lives: Arc::default(),
            healed_ns: 0,
            stopping: false,
        };
        control.note(format!("{style:?}"));
        let (control, book, lives) = (case.control.clone(), Arc::clone(&case.book), Arc::clone(&case.lives));
        case.control.spawn(measure(control, book, lives, case.strictness));
        case
    }

    fn config(&self, runtime: &SimRuntime, rng: &mut Rng) -> GridConfig {
        let server = runtime.server();
        let (older, newer) = (Secret::from_bytes([1; 32]), Secret::from_bytes([2; 32]));
        let secrets = if rng.chance(500_000) { Secrets::new(older) } else { Secrets::rotating(newer, older) };
        let incarnation = Incarnation(u64::from(runtime.life()));
        let cluster = ClusterId::from_bytes([9; 16]);
        let mut config = GridConfig::new(cluster, server_id(server), incarnation, address(server), secrets);
        config.timing.silence_max = self.style.silence_max;
        config.timing.ping_after = self.style.silence_max * 3 / 10;
        config.always_checksum = rng.chance(500_000);
        if self.style.small_limits {
            config.limits = small_limits(rng);
            config.bulk_limits = small_limits(rng);
        }
        config
    }

    fn others(&self, server: ServerNo) -> impl Iterator<Item = ServerNo> {
        (0..self.servers).map(ServerNo).filter(move |other| *other != server)
    }

    /// What of the load and its traces is left.
    fn leftovers(&self) -> Result<(), String> {
        let running = self.book.still_running();
        if !running.is_empty() {
            return Err(format!("still running: {running:?}"));
        }
        for (server, life) in &*lock(&self.lives) {
            for peer in life.grid.peers() {
                let left = [peer.calls_in_flight, peer.calls_handled, peer.streams, peer.bytes_queued];
                if left != [0; 4] {
                    let names = "calls in flight, calls handled, streams, bytes queued";
                    return Err(format!("{server:?} keeps for {} ({names}): {left:?}", peer.address));
                }
            }
        }
        Ok(())
    }

    fn stop_all(&mut self) {
        for life in lock(&self.lives).values() {
            let (grid, runtime) = (life.grid.clone(), life.runtime.clone());
            if self.style.drain_at_end {
                runtime.spawn(Box::pin(async move { drop(grid.drain().await) }));
            } else {
                grid.stop();
            }
        }
        self.stopping = true;
    }

    /// What of the grids is left after they stopped.
    fn remains(&self) -> Result<(), String> {
        for (server, life) in &*lock(&self.lives) {
            let (grid, all) = (life.grid.tasks(), self.control.tasks_of(*server));
            // The one that accepts connections is the scenario's.
            if (grid, all) != (0, 1) {
                return Err(format!("{server:?} has {grid} tasks of its grid and {all} in all after it stopped"));
            }
        }
        let counts = self.control.counts();
        // The timer is the one of `measure`, a task of the scenario.
        if (counts.conns, counts.dials, counts.timers) != (0, 0, 1) {
            return Err(format!("left after all grids stopped: {counts:?}"));
        }
        Ok(())
    }
}

impl Case for GridCase {
    fn start(&mut self, runtime: SimRuntime) {
        let server = runtime.server();
        let mut rng = self.control.rng("life", u64::from(server.0) << 32 | u64::from(runtime.life()));
        let config = self.config(&runtime, &mut rng);
        let limits = config.limits;
        let handlers = serve::handlers(&runtime, &self.book).expect("every handler is registered once");
        let control = self.control.clone();
        let told = move |event: &_| control.note(format!("{server:?} {event:?}"));
        let grid = Grid::new(Arc::new(runtime.clone()), config, handlers, told);
        let listener = runtime.listen(&address(server)).expect("a new life has its address for itself");
        let accepting = grid.clone();
        runtime.spawn(Box::pin(async move {
            loop {
                let (wire, lane) = listener.accept().await;
                accepting.accept(wire, lane);
            }
        }));
        for other in self.others(server).filter(|other| self.style.all_known || other.0 > server.0) {
            grid.add_peer(&address(other));
        }
        for number in 0..self.style.clients {
            let client = Client {
                grid: grid.clone(),
                runtime: runtime.clone(),
                control: self.control.clone(),
                book: Arc::clone(&self.book),
                rng: rng.fork("client", number),
                servers: self.servers,
                think_ns_max: self.style.think_ns_max,
                strictness: self.strictness,
                stopped: false,
            };
            runtime.spawn(Box::pin(client.run()));
        }
        lock(&self.lives).insert(server, Life { grid, runtime, limits, drained: Arc::default() });
    }

    fn killed(&mut self, server: ServerNo) {
        let life = lock(&self.lives).remove(&server);
        drop(life);
    }

    fn drain(&mut self, server: ServerNo) {
        let lives = lock(&self.lives);
        let Some(life) = lives.get(&server) else { return };
        let (grid, drained) = (life.grid.clone(), Arc::clone(&life.drained));
        life.runtime.spawn(Box::pin(async move {
            grid.drain().await;
            drained.store(true, Ordering::SeqCst);
        }));
    }

    fn is_drained(&self, server: ServerNo) -> bool {
        lock(&self.lives).get(&server).is_none_or(|life| life.drained.load(Ordering::SeqCst))
    }

    fn healed(&mut self) {
        self.book.set_phase(Phase::Healed);
        self.healed_ns = self.control.now_ns();
        for (server, life) in &*lock(&self.lives) {
            for other in self.others(*server) {
                let task = probe(life.grid.clone(), life.runtime.clone(), Arc::clone(&self.book), other);
                life.runtime.spawn(Box::pin(task));
            }
        }
    }

    fn bounds(&self) -> Bounds {
        Bounds { converge_ns: CONVERGE_NS_MAX, wind_down_ns: WIND_DOWN_NS_MAX }
    }

    fn converged(&mut self) -> Result<(), String> {
        for (server, life) in &*lock(&self.lives) {
            let peers = life.grid.peers();
            for other in self.others(*server) {
                if !self.book.has_met(*server, other) {
                    return Err(format!("after the healing {server:?} and {other:?} do not talk\n{}", table(&peers)));
                }
                let connected =
                    |peer: &PeerStatus| peer.id == Some(server_id(other)) && peer.state == PeerState::Connected;
                if !peers.iter().any(connected) {
                    return Err(format!("after the healing {server:?} misses {other:?}\n{}", table(&peers)));
                }
            }
        }
        self.book.add("converge_ms", (self.control.now_ns() - self.healed_ns) / 1_000_000);
        Ok(())
    }

    fn wind_down(&mut self) {
        self.book.set_phase(Phase::Over);
    }

    fn judge(&mut self) -> Result<(), String> {
        if let Some(wrong) = self.book.first_wrong() {
            return Err(wrong);
        }
        if self.stopping {
            return self.remains();
        }
        self.leftovers()?;
        self.stop_all();
        Err("the grids did not stop".to_owned())
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.book.tally()
    }
}

fn address(server: ServerNo) -> String {
    format!("{}:7000", host(server))
}

fn table(peers: &[PeerStatus]) -> String {
    let row = |peer: &PeerStatus| format!("  {} {:?} {:?}\n", peer.address, peer.state, peer.last_error);
    peers.iter().map(row).collect()
}

fn small_limits(rng: &mut Rng) -> Limits {
    let stream_window = rng.magnitude(1..=64 << 10) as u32;
    Limits {
        calls_in_flight_max: rng.magnitude(1..=64) as u32,
        streams_open_max: rng.magnitude(1..=16) as u32,
        inbound_bytes_max: rng.magnitude(16 << 10..=2 << 20) as usize,
        outbound_bytes_max: rng.magnitude(16 << 10..=2 << 20) as usize,
        chunk_max: rng.magnitude(1 << 10..=32 << 10) as usize,
        payload_max: rng.magnitude(64 << 10..=1 << 20) as usize,
        stream_window,
        stream_window_max: stream_window * rng.within(1..=8) as u32,
        routes_max: rng.within(2..=4) as u16,
    }
}

/// Looks at every grid from time to time: queues within their limits, no protocol errors.
async fn measure(control: Control, book: Arc<Book>, lives: Arc<Lives>, strictness: Strictness) {
    loop {
        control.sleep(MEASURE).await;
        for (server, life) in &*lock(&lives) {
            let counters = life.grid.counters();
            if counters.protocol_errors > 0 && !strictness.bytes_change() {
                book.wrong(format_args!("{server:?} saw {} protocol errors", counters.protocol_errors));
            }
            let rejected = counters.rejected;
            let odd = rejected.malformed + rejected.wrong_cluster + rejected.wrong_version + rejected.unauthenticated;
            if odd > 0 && !strictness.bytes_change() {
                book.wrong(format_args!("{server:?} rejected a peer of its own: {rejected:?}"));
            }
            for peer in life.grid.peers() {
                let (queued, queued_max) = (peer.bytes_queued, life.limits.outbound_bytes_max + QUEUE_SLACK);
                if queued > queued_max {
                    book.wrong(format_args!("{server:?} queues {queued} of {queued_max} bytes for {}", peer.address));
                }
            }
        }
    }
}
