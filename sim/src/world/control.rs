//! What a scenario does to the world and sees of it.

use core::time::Duration;
use std::sync::Arc;

use ashlar_grid::seam::{BoxFuture, Lane};

use super::runtime::{Sleep, spawn};
use super::{Kill, Server, ServerNo, Shared, SimRuntime};
use crate::clock::ServerClock;
use crate::executor::Owner;
use crate::net::{ConnId, EndState, Link, LinkOptions, Side};
use crate::rng::Rng;
use crate::trace::{Event, Kind};

/// A monotonic clock starts at up to an hour.
const CLOCK_ORIGIN_NS_MAX: u64 = 3_600_000_000_000;

/// The wall clock of a world that began in 2026.
const WALL_ORIGIN_NS: i64 = 1_767_225_600_000_000_000;

/// A handle on the world: makes servers, makes faults, looks. May be used from tasks of the scenario and between runs.
#[derive(Clone)]
pub struct Control {
    shared: Arc<Shared>,
}

/// One connection, as a scenario sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnInfo {
    /// Which.
    pub id: ConnId,
    /// The dialing and the accepting server.
    pub hosts: [ServerNo; 2],
    /// What it is for.
    pub lane: Lane,
    /// Neither end has let go of it, lost it or lost power.
    pub whole: bool,
    /// Bytes that either end's program has written and the other one has not read.
    pub unread_bytes: u64,
}

/// How much there is of what may leak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Tasks of all servers and of the scenario.
    pub tasks: usize,
    /// Timers that somebody waits for.
    pub timers: usize,
    /// Connections that at least one end holds.
    pub conns: usize,
    /// Dials under way.
    pub dials: usize,
}

impl Control {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Nanoseconds since the world began.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.shared.with(|state| state.now_ns)
    }

    /// Adds a machine named `host`, with power, without a running server. Its links are like
    /// [`super::WorldOptions::link`].
    ///
    /// # Panics
    /// If the name is taken.
    pub fn add_server(&self, host: &str) -> ServerNo {
        self.shared.with(|state| {
            assert!(state.servers.iter().all(|server| server.host != host), "two machines are named {host}");
            let no = ServerNo(state.servers.len() as u32);
            state.servers.push(Server::new(host));
            for other in (0..=no.0).map(ServerNo) {
                for route in [(no, other), (other, no)] {
                    state.net.links.insert(route, Link::new(state.options.link));
                }
            }
            no
        })
    }

    /// Starts the next life of a server that is down, on a machine that gets power if it had none.
    ///
    /// # Panics
    /// If it is up.
    #[must_use]
    pub fn start(&self, server: ServerNo) -> SimRuntime {
        let life = self.shared.with(|state| {
            let (now_ns, rng) = (state.now_ns, state.rng.fork("server", u64::from(server.0)));
            let held = state.server_mut(server);
            assert!(!held.up, "{server:?} is up already");
            held.life += 1;
            (held.up, held.machine_up) = (true, true);
            held.rng = rng.fork("life", u64::from(held.life));
            let origin_ns = held.rng.fork("clock", 0).below(CLOCK_ORIGIN_NS_MAX);
            held.clock = ServerClock::new(now_ns, origin_ns, 0);
            let life = held.life;
            state.trace.record(now_ns, Kind::Start, [u64::from(server.0), u64::from(life), 0]);
            state.release_held(server);
            life
        });
        SimRuntime::new(Arc::clone(&self.shared), server, life)
    }

    /// Ends a server's life: its connections as `how` says, then its tasks, dropped in the order of their birth.
    pub fn kill(&self, server: ServerNo, how: Kill) {
        let tasks = self.shared.with(|state| {
            let now_ns = state.now_ns;
            let held = state.server_mut(server);
            let life = held.life;
            if !held.up {
                return Vec::new();
            }
            held.paused_ns += if held.paused { now_ns - held.paused_at_ns } else { 0 };
            (held.up, held.paused) = (false, false);
            held.machine_up = how == Kill::Process;
            held.parked.clear();
            state.drop_sockets(server, how);
            let tasks = state.tasks.take_owned(Owner::Server(server, life));
            let kind = if how == Kill::Process { Kind::Kill } else { Kind::CrashMachine };
            state.trace.record(state.now_ns, kind, [u64::from(server.0), u64::from(life), tasks.len() as u64]);
            tasks
        });
        for task in tasks {
            drop(task);
        }
    }

    /// Whether the server is up.
    #[must_use]
    pub fn is_up(&self, server: ServerNo) -> bool {
        self.shared.with(|state| state.server(server).up)
    }

    /// Freezes every task of a server (`SIGSTOP`). Its kernel goes on receiving and acknowledging.
    pub fn pause(&self, server: ServerNo) {
        self.shared.with(|state| {
            if state.server(server).up && !state.server(server).paused {
                let now_ns = state.now_ns;
                let held = state.server_mut(server);
                (held.paused, held.paused_at_ns) = (true, now_ns);
                state.trace.record(state.now_ns, Kind::Pause, [u64::from(server.0), 0, 0]);
            }
        });
    }

    /// Ends a pause.
    pub fn resume(&self, server: ServerNo) {
        self.shared.with(|state| {
            let now_ns = state.now_ns;
            let held = state.server_mut(server);
            if core::mem::take(&mut held.paused) {
                held.paused_ns += now_ns - held.paused_at_ns;
                for task in core::mem::take(&mut held.parked) {
                    self.shared.ready.push(task);
                }
                state.trace.record(state.now_ns, Kind::Resume, [u64::from(server.0), 0, 0]);
            }
        });
    }

    /// How long a server has been paused in all its lives.
    #[must_use]
    pub fn paused_ns(&self, server: ServerNo) -> u64 {
        self.shared.with(|state| {
            let held = state.server(server);
            held.paused_ns + if held.paused { state.now_ns - held.paused_at_ns } else { 0 }
        })
    }

    /// Lets a server's monotonic clock run `drift_ppm` too fast (or, negative, too slow) from now on.
    ///
    /// # Panics
    /// If the drift exceeds [`crate::DRIFT_PPM_MAX`].
    pub fn set_drift(&self, server: ServerNo, drift_ppm: i32) {
        self.shared.with(|state| {
            let now_ns = state.now_ns;
            state.server_mut(server).clock.set_drift(now_ns, drift_ppm);
            let rate_ppm = u64::from(1_000_000_u32.wrapping_add_signed(drift_ppm));
            state.trace.record(now_ns, Kind::Drift, [u64::from(server.0), rate_ppm, 0]);
        });
    }

    /// Steps a server's wall clock. No seam shows it, so nothing may change: not even the event hash.
    pub fn step_wall_clock(&self, server: ServerNo, step_ns: i64) {
        self.shared.with(|state| {
            let held = state.server_mut(server);
            held.wall_step_ns = held.wall_step_ns.saturating_add(step_ns);
        });
    }

    /// What a server's wall clock shows: nanoseconds since 1970.
    #[must_use]
    pub fn wall_clock_ns(&self, server: ServerNo) -> i64 {
        self.shared.with(|state| {
            let world_ns = i64::try_from(state.now_ns).unwrap_or(i64::MAX);
            WALL_ORIGIN_NS.saturating_add(world_ns).saturating_add(state.server(server).wall_step_ns)
        })
    }

    /// What the link from one server to another is like.
    #[must_use]
    pub fn link(&self, from: ServerNo, to: ServerNo) -> LinkOptions {
        self.shared.with(|state| state.net.link((from, to)).options)
    }

    /// Changes the link from one server to another, for segments that are sent from now on.
    pub fn set_link(&self, from: ServerNo, to: ServerNo, options: LinkOptions) {
        self.shared.with(|state| state.set_link((from, to), options));
    }

    /// Nothing passes from one server to the other until the link is healed; it waits.
    pub fn cut(&self, from: ServerNo, to: ServerNo) {
        self.shared.with(|state| state.set_cut((from, to), true));
    }

    /// Ends a cut: what waited goes on.
    pub fn heal(&self, from: ServerNo, to: ServerNo) {
        self.shared.with(|state| state.set_cut((from, to), false));
    }

    /// Nothing passes from one server to the other for `span`; a `span` of zero ends it.
    pub fn clog(&self, from: ServerNo, to: ServerNo, span: Duration) {
        self.shared.with(|state| state.clog((from, to), nanos(span)));
    }

    /// Every connection that at least one end holds, oldest first.
    #[must_use]
    pub fn connections(&self) -> Vec<ConnInfo> {
        self.shared.with(|state| {
            let infos = state.net.conns.iter().map(|(id, conn)| ConnInfo {
                id: *id,
                hosts: conn.hosts,
                lane: conn.lane,
                whole: conn.ends.iter().all(|end| end.state == EndState::Open),
                unread_bytes: conn.pipes.iter().map(|pipe| pipe.accepted - pipe.read).sum(),
            });
            infos.collect()
        })
    }

    /// Resets a connection now: both ends learn of it; a random prefix of what was under way arrived.
    pub fn reset(&self, conn: ConnId) {
        self.shared.with(|state| state.reset_now(conn));
    }

    /// Resets a connection at the very byte: once `bytes` more of what `writer` writes have arrived.
    pub fn reset_after(&self, conn: ConnId, writer: Side, bytes: u64) {
        self.shared.with(|state| state.reset_after(conn, writer, bytes));
    }

    /// Half-open: whatever `writer` sends from now on is lost, and nobody is told.
    pub fn black_hole(&self, conn: ConnId, writer: Side) {
        self.shared.with(|state| state.black_hole(conn, writer));
    }

    /// Runs a task of the scenario: no fault touches it.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        spawn(&self.shared, Owner::Scenario, Box::pin(task));
    }

    /// Completes `span` later by the world's clock.
    #[must_use]
    pub fn sleep(&self, span: Duration) -> BoxFuture<()> {
        Box::pin(Sleep::span(&self.shared, nanos(span)))
    }

    /// Chance for the scenario: the same for equal arguments.
    #[must_use]
    pub fn rng(&self, label: &str, index: u64) -> Rng {
        self.shared.with(|state| state.rng.fork("scenario", 0).fork(label, index))
    }

    /// Writes a word into the trace.
    pub fn note(&self, text: impl Into<String>) {
        self.shared.with(|state| state.trace.note(state.now_ns, text.into()));
    }

    /// The run stops here.
    pub fn finish(&self) {
        self.shared.with(|state| state.finished = true);
    }

    /// The hash of everything that happened so far.
    #[must_use]
    pub fn event_hash(&self) -> u64 {
        self.shared.with(|state| state.trace.hash())
    }

    /// How many events happened so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.shared.with(|state| state.trace.events())
    }

    /// The last events, oldest first.
    #[must_use]
    pub fn tail(&self) -> Vec<Event> {
        self.shared.with(|state| state.trace.tail())
    }

    /// How much there is of what may leak.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.with(|state| Counts {
            tasks: state.tasks.len(),
            timers: state.timers(),
            conns: state.net.conns.len(),
            dials: state.net.dials.len(),
        })
    }

    /// Tasks of a server's present life.
    #[must_use]
    pub fn tasks_of(&self, server: ServerNo) -> usize {
        self.shared.with(|state| state.tasks.count(Owner::Server(server, state.server(server).life)))
    }
}

pub(super) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
