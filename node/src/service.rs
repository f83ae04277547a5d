//! A service of a server, as the node sees it: what it answers, what it does on changes of the cluster, how it ends.
//!
//! A service is two values. [`Service`] is shared by all threads: it registers calls and streams before the first connection, and
//! is told when the server starts and stops. [`Agent`] lives on the control thread beside the bus: it is told of every change of
//! membership and ownership, and gives the bus commands. What a service does beside (engines, drives, sockets) runs on threads of
//! the program; nothing here may wait for it, because heartbeats would wait too.
//!
//! The node calls the methods in this order: [`Service::register`], [`Service::start`], then the agent's until the end, and
//! [`Service::close`] when connections are drained.

use ashlar_bus::{Bus, Event};
use ashlar_grid::handler::{Handlers, RegisteredTwice};
use ashlar_grid::seam::Runtime;
use ashlar_wire::time::Instant;

use crate::{Node, WeakNode};

/// What a service brings to its server.
pub trait Service<R: Runtime>: Send + Sync + 'static {
    /// Registers the calls and streams that it answers. The node is not running yet: handlers keep the weak handle.
    ///
    /// # Errors
    /// Another service has a handler of the same number: a mistake in the program.
    fn register(&self, node: &WeakNode<R>, handlers: Handlers) -> Result<Handlers, RegisteredTwice>;

    /// Begins its tasks, and gives its agent. Called once, before anything is received.
    fn start(&self, node: &Node<R>) -> Box<dyn Agent>;

    /// The server stops: ends streams that have no end of their own.
    fn close(&self);
}

/// A service's part on the control thread. Nothing in it may wait.
pub trait Agent: Send {
    /// Something has changed in the cluster.
    fn handle_event(&mut self, event: &Event, now: Instant);

    /// Works off what has come, and says what the node is to do for it. Called after every change and at [`Agent::due`].
    fn turn(&mut self, bus: &mut Bus, now: Instant, chance: &mut dyn FnMut() -> u64) -> Vec<NodeAction>;

    /// When there is something to do even if nothing comes.
    fn due(&self) -> Instant;

    /// The server has left its cluster, and the bus begins anew with nobody but this server.
    fn begin_alone(&mut self, bus: &mut Bus, now: Instant);

    /// What people call the member that describes itself so, for logs.
    fn nickname(&self, description: &[u8]) -> Option<String>;
}

/// What the node does for a service, beside commands of the bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeAction {
    /// Connect to the server at this address (`HOST:PORT`), and introduce this server to it.
    Meet(String),
    /// Forget all other members, and begin with an empty memory of the bus.
    LeaveCluster,
}
