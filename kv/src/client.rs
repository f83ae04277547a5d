//! One client: what its connection knows of it, and what others see of it.
//!
//! [`Client`] belongs to one session. Others know the client by its [`card::Card`], which hangs in the [`registry`], and
//! reach it through its [`Mailbox`].

pub(crate) mod card;
pub(crate) mod describe;
pub(crate) mod filter;
pub(crate) mod limits;
mod mailbox;
pub(crate) mod pause;
pub(crate) mod registry;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::pubsub::Topic;
use crate::resp::{Protocol, Request};
use card::{Card, ClientClass, Figure, Marks};

pub use card::Link;
pub(crate) use mailbox::Farewell;
pub use mailbox::Mailbox;
pub use registry::TooManyClients;

/// A client's number; none is used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// What one connection knows of its client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: ClientId,
    pub(crate) database: usize,
    pub(crate) is_known: bool,
    pub(crate) protocol: Protocol,
    /// Replies are thrown away: always, or of the next command.
    pub(crate) silence: Silence,
    pub(crate) transaction: Option<Transaction>,
    /// Keys that EXEC looks at first.
    pub(crate) watched: Vec<(usize, Box<[u8]>)>,
    /// Set by whoever changes one of them.
    pub(crate) is_dirty: Arc<AtomicBool>,
    pub(crate) subscriptions: BTreeSet<(Topic, Box<[u8]>)>,
    /// The connection ends after the replies so far.
    pub(crate) is_leaving: bool,
    /// What it has said about itself.
    pub(crate) wishes: Wishes,
    pub(crate) traffic: Traffic,
    pub(crate) card: Arc<Card>,
    pub(crate) mailbox: Arc<Mailbox>,
}

/// What a client has asked for, or says that it can do.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wishes {
    /// `CLIENT NO-EVICT`: it is not ended to save memory.
    pub(crate) no_evict: bool,
    /// `CLIENT NO-TOUCH`: its reads leave no trace in the age of keys.
    pub(crate) no_touch: bool,
    /// `CLIENT IMPORT-SOURCE`.
    pub(crate) import_source: bool,
    /// `CLIENT CAPA redirect`.
    pub(crate) can_redirect: bool,
}

/// What went over the connection.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Traffic {
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    /// Commands that were run.
    pub(crate) commands: u64,
    /// The number of the last command, and one.
    pub(crate) last: u64,
    /// When something last came, Unix milliseconds.
    pub(crate) seen_ms: i64,
    /// Bytes of a request that has not come whole.
    pub(crate) input: usize,
    /// Whether a command waits, or is held back.
    pub(crate) is_blocked: bool,
}

/// Whether replies are thrown away (`CLIENT REPLY`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Silence {
    /// No.
    #[default]
    Never,
    /// From the next command on that of one.
    Next,
    /// That of the present command.
    Now,
    /// All.
    Always,
}

/// Commands that wait for EXEC.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    pub(crate) queued: Vec<Request>,
    /// Bytes of their words.
    pub(crate) bytes: usize,
    /// A command was refused: EXEC will be too.
    pub(crate) is_broken: bool,
    /// Whether one of them may write, or reach replicas.
    pub(crate) may_write: bool,
}

impl Client {
    /// A client that has just come.
    pub(crate) fn new(card: Arc<Card>) -> Self {
        Self {
            id: card.id,
            database: 0,
            is_known: false,
            protocol: Protocol::Resp2,
            silence: Silence::Never,
            transaction: None,
            watched: Vec::new(),
            is_dirty: Arc::new(AtomicBool::new(false)),
            subscriptions: BTreeSet::new(),
            is_leaving: false,
            wishes: Wishes::default(),
            traffic: Traffic { seen_ms: card.born_ms, ..Traffic::default() },
            mailbox: Arc::clone(&card.mailbox),
            card,
        }
    }

    /// Whether a watched key was changed.
    pub(crate) fn is_dirty(&self) -> bool {
        self.is_dirty.load(Ordering::Acquire)
    }

    /// How many topics of a kind it listens to.
    pub(crate) fn subscribed(&self, topic: Topic) -> usize {
        self.subscriptions.iter().filter(|(other, _)| *other == topic).count()
    }

    /// Writes its card anew.
    pub(crate) fn publish(&self) {
        let (card, traffic) = (&self.card, &self.traffic);
        card.set_marks(self.marks());
        card.set(Figure::SeenMs, traffic.seen_ms.unsigned_abs());
        card.set(Figure::Command, traffic.last);
        card.set(Figure::BytesIn, traffic.bytes_in);
        card.set(Figure::BytesOut, traffic.bytes_out);
        card.set(Figure::Commands, traffic.commands);
        card.set(Figure::IsResp3, u64::from(self.protocol == Protocol::Resp3));
        card.set_count(Figure::Input, traffic.input);
        card.set_count(Figure::Database, self.database);
        card.set_count(Figure::Watched, self.watched.len());
        card.set_count(Figure::QueuedBytes, self.transaction.as_ref().map_or(0, |open| open.bytes));
        card.set_count(Figure::Queued, self.transaction.as_ref().map_or(0, |open| open.queued.len() + 1));
    }

    /// Writes on its card what it listens to.
    pub(crate) fn publish_subscriptions(&self) {
        self.card.set_count(Figure::Channels, self.subscribed(Topic::Channel));
        self.card.set_count(Figure::Patterns, self.subscribed(Topic::Pattern));
        self.card.set_count(Figure::ShardChannels, self.subscribed(Topic::Shard));
    }

    /// Which limits hold for it.
    pub(crate) fn class(&self) -> ClientClass {
        ClientClass::of(self.marks())
    }

    fn marks(&self) -> Marks {
        Marks::default()
            .with_if(!self.subscriptions.is_empty(), Marks::PUBSUB)
            .with_if(self.transaction.is_some(), Marks::MULTI)
            .with_if(self.traffic.is_blocked, Marks::BLOCKED)
            .with_if(!self.watched.is_empty() && self.is_dirty(), Marks::DIRTY)
            .with_if(self.is_leaving, Marks::LEAVING)
            .with_if(self.card.link.is_unix, Marks::UNIX)
            .with_if(self.wishes.no_evict, Marks::NO_EVICT)
            .with_if(self.wishes.no_touch, Marks::NO_TOUCH)
            .with_if(self.wishes.import_source, Marks::IMPORT_SOURCE)
            .with_if(self.wishes.can_redirect, Marks::CAN_REDIRECT)
    }
}
