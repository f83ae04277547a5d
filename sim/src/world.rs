//! The world: its state, the loop that moves it, and the handles that scenarios and servers hold.
//!
//! The loop polls ready tasks until none is left, then takes the next entry of the agenda and moves time there. All
//! state is behind one lock that is held for single steps only: wakers run and futures drop after it is released.

mod control;
pub(crate) mod runtime;

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

pub use self::control::{ConnInfo, Control, Counts};
pub use self::runtime::SimRuntime;
use crate::clock::{Agenda, ServerClock};
use crate::executor::{Owner, Ready, Tasks};
use crate::net::{LinkOptions, Net, Packet, Route};
use crate::rng::Rng;
use crate::trace::{Kind, Trace};

/// One simulated server, by number from 0; the same through all its lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerNo(pub u32);

/// What a world is like, beside its seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorldOptions {
    /// Everything random follows from it.
    pub seed: u64,
    /// Ready tasks are polled in random order, not in the order in which they were woken.
    pub shuffle_tasks: bool,
    /// What happens at the same nanosecond happens in random order.
    pub shuffle_ties: bool,
    /// Bytes that a writer's kernel holds for one connection.
    pub send_bytes_max: u64,
    /// Bytes that a reader's kernel holds for one connection.
    pub receive_bytes_max: u64,
    /// Chance that a read sees only a part of what is there.
    pub short_reads_ppm: u32,
    /// Chance that a write is accepted only in part.
    pub short_writes_ppm: u32,
    /// Chance that a connection that wants to write waits for its turn.
    pub lines_ppm: u32,
    /// Whether a wire knows how much its peer has not acknowledged.
    pub shows_unacked: bool,
    /// Whether both ends of a connection share a channel binding, as under TLS; else it is zeroes.
    pub binds_channels: bool,
    /// Upgrade requests that wait for one listener.
    pub backlog_max: usize,
    /// Every link starts like this.
    pub link: LinkOptions,
    /// Polls at one point of time, after which the run is called a livelock.
    pub polls_at_once_max: u64,
    /// Events of a whole run.
    pub events_max: u64,
    /// Events that are kept in words.
    pub tail_max: usize,
}

impl Default for WorldOptions {
    fn default() -> Self {
        Self {
            seed: 0,
            shuffle_tasks: false,
            shuffle_ties: false,
            send_bytes_max: 256 << 10,
            receive_bytes_max: 256 << 10,
            short_reads_ppm: 0,
            short_writes_ppm: 0,
            lines_ppm: 0,
            shows_unacked: true,
            binds_channels: true,
            backlog_max: 128,
            link: LinkOptions::default(),
            polls_at_once_max: 200_000,
            events_max: 100_000_000,
            tail_max: 200,
        }
    }
}

/// How a server dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kill {
    /// The process ends; its kernel closes every connection, so peers learn of it.
    Process,
    /// The machine loses power: peers hear nothing until it runs again, and then only if they speak.
    Machine,
}

/// Why a run came to rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// A task called [`Control::finish`].
    Finished,
    /// The time was reached.
    Reached,
    /// No task is ready and nothing will ever happen again.
    Quiet,
}

/// Why a run was cut off: the code under test, or the scenario, runs away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Halt {
    /// Tasks keep waking each other and time cannot move on.
    Livelock,
    /// [`WorldOptions::events_max`] is reached.
    Events,
}

impl core::fmt::Display for Halt {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Livelock => "livelock: tasks keep waking each other and time stands still",
            Self::Events => "the run reached its limit of events",
        })
    }
}

impl core::error::Error for Halt {}

/// What the agenda holds.
#[derive(Debug)]
pub(crate) enum Happening {
    Timer { timer: u64 },
    LinkFree { route: Route },
    Arrival { route: Route, packet: Packet },
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) host: String,
    /// 0 before the first start.
    pub(crate) life: u32,
    pub(crate) up: bool,
    pub(crate) machine_up: bool,
    pub(crate) paused: bool,
    /// World time at which the present pause began.
    paused_at_ns: u64,
    /// How long all earlier pauses took.
    paused_ns: u64,
    /// Tasks that were woken during the pause.
    parked: Vec<u64>,
    pub(crate) clock: ServerClock,
    pub(crate) wall_step_ns: i64,
    pub(crate) rng: Rng,
    /// Packets that arrived while the machine had no power.
    pub(crate) held: Vec<(Route, Packet)>,
}

impl Server {
    fn new(host: &str) -> Self {
        Self {
            host: host.to_owned(),
            life: 0,
            up: false,
            machine_up: true,
            paused: false,
            paused_at_ns: 0,
            paused_ns: 0,
            parked: Vec::new(),
            clock: ServerClock::new(0, 0, 0),
            wall_step_ns: 0,
            rng: Rng::new(0),
            held: Vec::new(),
        }
    }
}

/// Everything that is.
pub(crate) struct State {
    pub(crate) options: WorldOptions,
    pub(crate) now_ns: u64,
    agenda: Agenda<Happening>,
    timers: BTreeMap<u64, Waker>,
    timer_sequence: u64,
    pub(crate) tasks: Tasks,
    pub(crate) servers: Vec<Server>,
    pub(crate) net: Net,
    pub(crate) trace: Trace,
    pub(crate) rng: Rng,
    rng_order: Rng,
    pub(crate) rng_net: Rng,
    /// To be woken as soon as the lock is released.
    pub(crate) wakes: Vec<Waker>,
    pub(crate) finished: bool,
    /// The world is being taken down: nothing is spawned any more.
    pub(crate) over: bool,
}

/// The state and its lock; everything that stands for a part of the world holds one.
pub(crate) struct Shared {
    state: Mutex<State>,
    ready: Arc<Ready>,
}

impl Shared {
    /// One step on the state. Wakers that it collected are called after the lock is released.
    pub(crate) fn with<T>(&self, step: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = step(&mut state);
        let wakes = core::mem::take(&mut state.wakes);
        drop(state);
        for waker in wakes {
            waker.wake();
        }
        result
    }
}

impl State {
    pub(crate) fn server(&self, server: ServerNo) -> &Server {
        &self.servers[server.0 as usize]
    }

    pub(crate) fn server_mut(&mut self, server: ServerNo) -> &mut Server {
        &mut self.servers[server.0 as usize]
    }

    /// The server whose host name `addr` (`host:port`) begins with.
    pub(crate) fn server_at(&self, addr: &str) -> Option<ServerNo> {
        let (host, _port) = addr.rsplit_once(':')?;
        self.servers.iter().position(|server| server.host == host).map(|at| ServerNo(at as u32))
    }

    pub(crate) fn is_alive(&self, owner: Owner) -> bool {
        match owner {
            Owner::Scenario => !self.over,
            Owner::Server(no, life) => !self.over && self.server(no).up && self.server(no).life == life,
        }
    }

    pub(crate) fn plan(&mut self, at_ns: u64, what: Happening) {
        let tie = if self.options.shuffle_ties { self.rng_order.next_u64() } else { 0 };
        self.agenda.insert(at_ns.max(self.now_ns), tie, what);
    }

    /// Wakes `waker` at `at_ns`; the number takes it back.
    pub(crate) fn set_timer(&mut self, at_ns: u64, waker: Waker) -> u64 {
        self.timer_sequence += 1;
        let timer = self.timer_sequence;
        self.timers.insert(timer, waker);
        self.plan(at_ns, Happening::Timer { timer });
        timer
    }

    pub(crate) fn update_timer(&mut self, timer: u64, waker: &Waker) -> bool {
        self.timers.get_mut(&timer).map(|held| held.clone_from(waker)).is_some()
    }

    pub(crate) fn cancel_timer(&mut self, timer: u64) {
        self.timers.remove(&timer);
    }

    pub(crate) fn timers(&self) -> usize {
        self.timers.len()
    }

    fn pick_task(&mut self, ready: &Ready) -> Option<u64> {
        loop {
            let task = ready.pick(self.options.shuffle_tasks.then_some(&mut self.rng_order))?;
            match self.tasks.owner(task) {
                Some(Owner::Server(no, _)) if self.server(no).paused => self.server_mut(no).parked.push(task),
                Some(_) => return Some(task),
                None => {}
            }
        }
    }

    /// Takes the next entry of the agenda, at `until_ns` at the latest, and lets it happen.
    fn happen(&mut self, until_ns: u64) -> Option<Stop> {
        let (at_ns, what) = loop {
            match self.agenda.next() {
                None => return Some(Stop::Quiet),
                Some((_, Happening::Timer { timer })) if !self.timers.contains_key(timer) => drop(self.agenda.pop()),
                Some((at_ns, _)) if at_ns > until_ns => {
                    self.now_ns = self.now_ns.max(until_ns);
                    return Some(Stop::Reached);
                }
                Some(_) => break self.agenda.pop().expect("it was there"),
            }
        };
        assert!(at_ns >= self.now_ns, "time never goes back");
        self.now_ns = at_ns;
        match what {
            Happening::Timer { timer } => {
                self.trace.record(at_ns, Kind::Timer, [timer, 0, 0]);
                self.wakes.extend(self.timers.remove(&timer));
            }
            Happening::LinkFree { route } => self.transmit(route),
            Happening::Arrival { route, packet } => self.arrive(route, packet),
        }
        None
    }
}

/// A world and the right to move it. Dropping it drops every task of every server.
pub struct World {
    control: Control,
    polls_at_once: u64,
    polled_at_ns: u64,
}

impl World {
    /// An empty world at time 0.
    #[must_use]
    pub fn new(options: WorldOptions) -> Self {
        let ready = Arc::new(Ready::default());
        let rng = Rng::new(options.seed);
        let state = State {
            now_ns: 0,
            agenda: Agenda::new(),
            timers: BTreeMap::new(),
            timer_sequence: 0,
            tasks: Tasks::new(Arc::clone(&ready)),
            servers: Vec::new(),
            net: Net::default(),
            trace: Trace::new(options.tail_max),
            rng_order: rng.fork("order", 0),
            rng_net: rng.fork("net", 0),
            rng,
            wakes: Vec::new(),
            finished: false,
            over: false,
            options,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), ready });
        Self { control: Control::new(shared), polls_at_once: 0, polled_at_ns: 0 }
    }

    /// A handle for tasks of the scenario.
    #[must_use]
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Moves the world up to `until_ns`, unless it comes to rest before. Not to be called from within a task.
    ///
    /// # Errors
    /// The run ran away. The world may still be inspected.
    pub fn run_until_ns(&mut self, until_ns: u64) -> Result<Stop, Halt> {
        let shared = Arc::clone(self.control.shared());
        loop {
            self.poll_ready(&shared)?;
            let (stop, events, events_max) = shared.with(|state| {
                let stop = if state.finished { Some(Stop::Finished) } else { state.happen(until_ns) };
                (stop, state.trace.events(), state.options.events_max)
            });
            if let Some(stop) = stop {
                return Ok(stop);
            }
            if events >= events_max {
                return Err(Halt::Events);
            }
        }
    }

    /// Lets time pass up to `until_ns` in a world that came to rest ([`Stop::Quiet`]).
    ///
    /// # Panics
    /// If something would have happened before.
    pub fn pass_until_ns(&mut self, until_ns: u64) {
        self.control.shared().with(|state| {
            assert!(state.agenda.next().is_none_or(|(at_ns, _)| at_ns >= until_ns), "the world is not at rest");
            state.now_ns = state.now_ns.max(until_ns);
        });
    }

    /// Moves the world until it is finished or nothing will ever happen again.
    ///
    /// # Errors
    /// As [`World::run_until_ns`].
    pub fn run(&mut self) -> Result<Stop, Halt> {
        self.run_until_ns(u64::MAX)
    }

    /// Moves the world on by `span`.
    ///
    /// # Errors
    /// As [`World::run_until_ns`].
    pub fn run_for(&mut self, span: core::time::Duration) -> Result<Stop, Halt> {
        let until_ns = self.now_ns().saturating_add(control::nanos(span));
        self.run_until_ns(until_ns)
    }

    fn poll_ready(&mut self, shared: &Shared) -> Result<(), Halt> {
        loop {
            let picked = shared.with(|state| {
                let task = state.pick_task(&shared.ready)?;
                state.trace.record(state.now_ns, Kind::Poll, [task, 0, 0]);
                Some((task, state.now_ns, state.options.polls_at_once_max, state.tasks.begin_poll(task)))
            });
            let Some((task, now_ns, polls_max, begun)) = picked else { return Ok(()) };
            if now_ns != self.polled_at_ns {
                (self.polled_at_ns, self.polls_at_once) = (now_ns, 0);
            }
            self.polls_at_once += 1;
            if self.polls_at_once > polls_max {
                return Err(Halt::Livelock);
            }
            let Some((mut future, waker)) = begun else { continue };
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(()) => shared.with(|state| state.tasks.remove(task)),
                Poll::Pending => drop(shared.with(|state| state.tasks.end_poll(task, future))),
            }
        }
    }
}

impl Deref for World {
    type Target = Control;

    fn deref(&self) -> &Control {
        &self.control
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let tasks = self.control.shared().with(|state| {
            state.over = true;
            state.tasks.take_all()
        });
        for task in tasks {
            drop(task);
        }
    }
}

#[cfg(test)]
mod tests;
