//! What clients may ask of the cluster through a node.

use std::fmt::Debug;

use ashlar_wire::time::Instant;

use super::map::{Name, SlotRange};
pub use super::orders::Ticket;

/// How a replica becomes primary by hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailoverKind {
    /// The primary pauses until the replica has everything: nothing is lost.
    Agreed,
    /// Without asking the primary, by a vote.
    Forced,
    /// Without a vote.
    Takeover,
}

/// Something that the cluster is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Make this node and another know each other.
    Meet {
        /// Where it is.
        host: String,
        /// Its port for clients.
        port: u16,
        /// Its port for other nodes.
        bus_port: u16,
    },
    /// Remove a node from the cluster, and keep it out for a while.
    Forget(Name),
    /// This node owns these slots from now on, whoever did.
    Claim(Vec<SlotRange>),
    /// This node owns these slots from now on, if that can be decided in time and those who own them now do until then. If it is
    /// refused it never will by this order.
    Take {
        /// Which slots.
        ranges: Vec<SlotRange>,
        /// Until when, as the engine's clock tells it.
        until: Instant,
    },
    /// This node owns what it owns anew, so that nothing holds that was decided before and is not known.
    Renew,
    /// This node does not own these slots any more.
    Release(Vec<SlotRange>),
    /// This node follows a primary.
    Follow(Name),
    /// This node follows nobody any more and begins an empty shard of its own.
    Detach,
    /// This replica becomes primary of its shard.
    Failover(FailoverKind),
    /// This node leaves its cluster; with a new name if `hard`.
    Reset {
        /// Whether it takes a new name.
        hard: bool,
    },
    /// What must survive a restart is written now.
    Save,
}

/// What was counted of messages between subscribers' nodes, since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MessageFigures {
    /// Messages of channels that left for another node, once for each.
    pub sent: u64,
    /// The same of shard channels.
    pub sent_sharded: u64,
    /// Messages of channels that came.
    pub received: u64,
    /// The same of shard channels.
    pub received_sharded: u64,
    /// Messages that did not reach a node: it was away, they found no room, or they were too long.
    pub dropped: u64,
}

/// Whoever decides for this node, with others, what becomes of the cluster.
pub trait Control: Send + Sync + Debug {
    /// Has something done, and returns at once: what has become of it, or nothing if [`Engine::finish_order`](crate::Engine::finish_order)
    /// will be told with this ticket. An order that is done holds as far as this node sees, except that a meeting, a failover and a removal
    /// go on after they have begun. The error says why it was refused, as a client is told: nothing has changed then, or it is not known;
    /// a retry is safe.
    fn order(&self, order: Order, ticket: Ticket) -> Option<Result<(), String>>;

    /// Tells subscribers at other nodes of a message, or with `is_sharded` those of a shard channel at nodes of this one's shard. It
    /// returns at once, and nobody hears whether a message has arrived.
    fn publish(&self, channel: &[u8], message: &[u8], is_sharded: bool);

    /// This node has subscribers now, and had none before.
    fn listens(&self);

    /// What was counted of messages.
    fn message_figures(&self) -> MessageFigures;

    /// Until when what the map says of the service holds, unless this is put off meanwhile: a process that was stopped goes on with the
    /// map that it had before, while others may have taken its slots. Asked with each command of a client that is about a key.
    fn serves_until(&self) -> Instant {
        Instant::NEVER
    }
}
