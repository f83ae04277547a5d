//! The grid's seam over this world, for one life of one server.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;

use ashlar_grid::seam::{BoxFuture, Lane, Runtime, Threads, WireError};
use ashlar_wire::time::Instant;

use super::{ServerNo, Shared};
use crate::executor::Owner;
use crate::net::{Listener, SimWire, dial, listen};
use crate::trace::Kind;

/// What one life of a server sees of the world. After that life it does nothing: its tasks are dropped unseen, its
/// dials fail.
#[derive(Clone)]
pub struct SimRuntime {
    shared: Arc<Shared>,
    server: ServerNo,
    life: u32,
}

impl SimRuntime {
    pub(crate) fn new(shared: Arc<Shared>, server: ServerNo, life: u32) -> Self {
        Self { shared, server, life }
    }

    /// Whose runtime this is.
    #[must_use]
    pub fn server(&self) -> ServerNo {
        self.server
    }

    /// Which life of the server, from 1: its incarnation.
    #[must_use]
    pub fn life(&self) -> u32 {
        self.life
    }

    /// Accepts connections to `addr` (`host:port`).
    ///
    /// # Errors
    /// The host is not this server's, the address is in use, or the server is gone.
    pub fn listen(&self, addr: &str) -> Result<Listener, WireError> {
        listen(&self.shared, self.owner(), addr)
    }

    fn owner(&self) -> Owner {
        Owner::Server(self.server, self.life)
    }
}

impl fmt::Debug for SimRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimRuntime").field("server", &self.server).field("life", &self.life).finish_non_exhaustive()
    }
}

const TICK_NS: u64 = 10_000_000;
/// Threads of a server, as the grid sees them; 0 stands for those that are no workers.
const THREADS: u64 = 4;

impl Threads for SimRuntime {
    /// Of a few threads, any: calls take all ways that they can take between threads.
    fn thread_number(&self) -> usize {
        let number = self.shared.with(|state| state.server_mut(self.server).rng.below(THREADS));
        usize::try_from(number).unwrap_or(0)
    }

    fn spawn(&self, task: BoxFuture<()>) {
        spawn(&self.shared, self.owner(), task);
    }
}

impl Runtime for SimRuntime {
    type Wire = SimWire;

    fn now(&self) -> Instant {
        self.shared.with(|state| Instant::from_nanos(state.server(self.server).clock.shown_at(state.now_ns)))
    }

    /// As of the last tick of a kernel with 100 of them a second.
    fn now_coarse(&self) -> Instant {
        let nanos = self.now().as_nanos();
        Instant::from_nanos(nanos - nanos % TICK_NS)
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<()> {
        Box::pin(Sleep {
            shared: Arc::clone(&self.shared),
            clock: Some(self.server),
            at_ns: at.as_nanos(),
            timer: None,
        })
    }

    fn dial(&self, addr: &str, lane: Lane) -> BoxFuture<Result<SimWire, WireError>> {
        match dial(&self.shared, self.owner(), addr, lane) {
            Ok(dialing) => Box::pin(dialing),
            Err(error) => Box::pin(core::future::ready(Err(error))),
        }
    }

    fn random(&self, bytes: &mut [u8]) {
        self.shared.with(|state| state.server_mut(self.server).rng.fill(bytes));
    }
}

/// Gives the task to its owner, or drops it if the owner is gone.
pub(crate) fn spawn(shared: &Shared, owner: Owner, task: BoxFuture<()>) {
    let refused = shared.with(|state| {
        if !state.is_alive(owner) {
            return Some(task);
        }
        let number = state.tasks.insert(owner, task);
        let whose = match owner {
            Owner::Scenario => u64::MAX,
            Owner::Server(no, _) => u64::from(no.0),
        };
        state.trace.record(state.now_ns, Kind::Spawn, [number, whose, 0]);
        None
    });
    drop(refused);
}

/// Waits for a server's clock, or for the world's.
pub(crate) struct Sleep {
    pub(crate) shared: Arc<Shared>,
    pub(crate) clock: Option<ServerNo>,
    pub(crate) at_ns: u64,
    pub(crate) timer: Option<u64>,
}

impl Sleep {
    /// Waits for so long by the world's clock.
    pub(crate) fn span(shared: &Arc<Shared>, span_ns: u64) -> Self {
        let at_ns = shared.with(|state| state.now_ns).saturating_add(span_ns);
        Self { shared: Arc::clone(shared), clock: None, at_ns, timer: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let (clock, at_ns, timer) = (self.clock, self.at_ns, self.timer);
        let set = self.shared.with(|state| {
            let world_ns = clock.map_or(at_ns, |server| state.server(server).clock.world_at(at_ns));
            if world_ns <= state.now_ns {
                return None;
            }
            match timer {
                Some(timer) if state.update_timer(timer, cx.waker()) => Some(timer),
                _ => Some(state.set_timer(world_ns, cx.waker().clone())),
            }
        });
        match set {
            Some(timer) => {
                self.timer = Some(timer);
                Poll::Pending
            }
            None => Poll::Ready(()),
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            self.shared.with(|state| state.cancel_timer(timer));
        }
    }
}
