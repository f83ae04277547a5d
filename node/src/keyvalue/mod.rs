//! The key-value engines of this server as nodes of the cluster: what the bus decides becomes maps and roles of engines, and what
//! clients order becomes commands of the bus.
//!
//! Two sides meet at the [`EngineMailboxes`]. On the control thread the `controller` looks at the bus and leaves an
//! [`Assignment`](assignment::Assignment) for each engine. The engine's [task](engine_task) has the engine do it, on a thread of its own,
//! and reports how far the data go. Clients' orders go the other way.
//!
//! An engine is known to clients as a node, whose name is the server's id and the engine's tag. Where clients reach it goes to all
//! members with the bus's descriptions, see [`services`].
//!
//! In reading order: [`assignment`] (the values), [`mailboxes`], `controller`, [`topology`] (from the bus to maps), [`engine_task`],
//! [`promise_call`] (a candidate asks a member), [`following`] and [`migrating`] (an engine's links to other engines),
//! [`replication_streams`] (such links over the grid), [`host`] (what these tasks need of the process). Messages to subscribers go from
//! engine to engine beside all that: [`messages`] says to whom, `relay` brings them there, `published` is their written form. [`planted`] are
//! bugs to order, for the simulator.

pub mod assignment;
pub(super) mod controller;
pub mod engine_task;
pub mod following;
pub mod host;
pub mod mailboxes;
pub mod messages;
pub mod migrating;
pub mod planted;
pub mod promise_call;
mod published;
pub(super) mod relay;
pub mod replication_streams;
mod service;
pub mod services;
pub mod topology;
pub mod users;

use core::time::Duration;
use std::sync::Arc;

use assignment::EngineInfo;
use controller::Controller;
pub use mailboxes::EngineMailboxes;
pub use replication_streams::ReplicationStreams;

/// What a node is told of its key-value engines.
#[derive(Debug, Clone)]
pub struct Part {
    /// Where their service and the node meet.
    pub mailboxes: Arc<EngineMailboxes>,
    /// Their engines.
    pub engines: Vec<EngineInfo>,
    /// Where other servers reach this one.
    pub bus_port: u16,
    /// What the server may be lost together with; empty for nothing in particular.
    pub zone: String,
    /// How they take part.
    pub rules: Rules,
    /// The streams on which they follow each other, if they do not by connections of their own.
    pub replication_streams: Option<Arc<ReplicationStreams>>,
    /// Users that all servers have in common, if they do.
    pub users: Option<Arc<dyn users::SharedUsers>>,
}

/// How a server's engines take part in their cluster, as their settings say at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// They stand for election.
    pub stands: bool,
    /// A replica may go over to a primary that has lost all of its own.
    pub migrates: bool,
    /// Replicas that a primary keeps then.
    pub migration_barrier: usize,
    /// Longest pause of a primary for an agreed failover.
    pub handover_max: Duration,
    /// For how long a forgotten server is kept out.
    pub keep_out: Duration,
    /// How old a replica's copy may be when its primary fails, if it is to stand; `None` for any age.
    pub copy_age_max: Option<Duration>,
}

impl Rules {
    /// The bus's configuration by these rules. Whether slots without an owner stop service is for the engines.
    #[must_use]
    pub fn applied_to(self, config: &ashlar_bus::Config) -> ashlar_bus::Config {
        ashlar_bus::Config {
            stands: self.stands,
            migrates: self.migrates,
            migration_barrier: self.migration_barrier,
            handover_max: self.handover_max,
            keep_out: self.keep_out,
            copy_age_max: self.copy_age_max,
            require_full_coverage: false,
            ..config.clone()
        }
    }
}

impl Part {
    pub(super) fn controller(self) -> Controller {
        Controller::new(self.mailboxes, self.engines, self.bus_port, self.zone, self.replication_streams.is_some())
    }
}
