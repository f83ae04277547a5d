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

use crate::acl::User;
use crate::cluster::Sight;
use crate::cluster::migration::Import;
use crate::engine::Engine;
use crate::keyspace::Slot;
use crate::pubsub::Topic;
use crate::replicate::{Introduction, Replica};
use crate::resp::{Protocol, Request};
use crate::statistics::meter::Meter;
use crate::tracking::Mode;
use card::{Card, ClientClass, Figure, Marks};

pub use card::Link;
pub(crate) use mailbox::Farewell;
pub use mailbox::Mailbox;
pub use registry::Rejected;

/// A client's number; none is used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// What one connection knows of its client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: ClientId,
    pub(crate) database: usize,
    /// Whether it need not say who it is before anything else.
    pub(crate) is_known: bool,
    /// Whether it has said who it is, or came when nobody had to.
    pub(crate) is_authenticated: bool,
    pub(crate) user: Arc<User>,
    /// Of which version of the settings `user` is.
    user_version: u64,
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
    /// Its command has waited and is tried again.
    pub(crate) is_again: bool,
    /// It is the primary that this server follows: what it says is done, and nothing has expired that it does not say has.
    pub(crate) is_primary: bool,
    /// Slots come over its connection: what it says is done in them, as if a primary had said so.
    pub(crate) import: Option<Arc<Import>>,
    /// It sees every command.
    pub(crate) is_monitor: bool,
    /// Its next command is meant for a slot that is coming (`ASKING`).
    pub(crate) is_asking: bool,
    /// The cluster as it last looked at it.
    pub(crate) sight: Sight,
    /// The slot that its present command is about.
    pub(crate) slot: Option<Slot>,
    /// The script that it runs has touched keys of others too.
    pub(crate) crosses_slots: bool,
    /// Memory was full when its last command began.
    pub(crate) is_memory_full: bool,
    /// How it tracks keys, if it does.
    pub(crate) tracking: Option<Box<Mode>>,
    /// What it has said about itself.
    pub(crate) wishes: Wishes,
    pub(crate) traffic: Traffic,
    /// What its commands did.
    pub(crate) meter: Meter,
    /// What it has said of itself as a replica.
    pub(crate) introduction: Option<Box<Introduction>>,
    /// It is a replica.
    pub(crate) replica: Option<Arc<Replica>>,
    /// Positions of the stream and of the log behind its last command.
    pub(crate) written: (u64, u64),
    /// Its last command appended to the journal.
    pub(crate) has_logged: bool,
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
    /// `READONLY`.
    pub(crate) readonly: bool,
    /// `CLIENT CAPA redirect`.
    pub(crate) can_redirect: bool,
    /// `SCRIPT DEBUG YES` or `SYNC`: its scripts are meant for a debugger, so they do not run for good.
    pub(crate) debugger: bool,
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
    /// The database that one of them chooses; those behind it are checked there.
    pub(crate) database: Option<usize>,
    /// Bytes of their words.
    pub(crate) bytes: usize,
    /// A command was refused: EXEC will be too.
    pub(crate) is_broken: bool,
    /// Whether one of them may write, or reach replicas.
    pub(crate) may_write: bool,
    /// Whether one of them writes for certain.
    pub(crate) writes: bool,
    /// Whether one of them is refused where what is there may be old.
    pub(crate) needs_present: bool,
    /// Whether one of them is refused when memory is full.
    pub(crate) needs_memory: bool,
}

impl Client {
    /// Whether what it says is done as another server did it: nothing has expired that it does not say has.
    #[inline]
    pub(crate) fn obeys_nobody(&self) -> bool {
        self.is_primary || self.import.is_some()
    }

    /// A client that has just come, as the user that connections begin as. Another server of the cluster may do everything, whatever
    /// users there are.
    pub(crate) fn new(card: Arc<Card>, user: Arc<User>) -> Self {
        if card.link.is_server {
            let mut client = Self::bare(card, Arc::clone(&user));
            client.set_user(User::superuser(), true);
            return client;
        }
        let mut client = Self::bare(card, Arc::clone(&user));
        let is_open = user.is_open();
        client.set_user(user, is_open);
        client
    }

    fn bare(card: Arc<Card>, user: Arc<User>) -> Self {
        Self {
            id: card.id,
            database: 0,
            is_known: false,
            is_authenticated: false,
            user,
            user_version: 0,
            protocol: Protocol::Resp2,
            silence: Silence::Never,
            transaction: None,
            watched: Vec::new(),
            is_dirty: Arc::new(AtomicBool::new(false)),
            subscriptions: BTreeSet::new(),
            is_leaving: false,
            is_again: false,
            is_primary: false,
            import: None,
            is_monitor: false,
            is_asking: false,
            sight: Sight::default(),
            slot: None,
            crosses_slots: false,
            is_memory_full: false,
            tracking: None,
            wishes: Wishes::default(),
            introduction: None,
            replica: None,
            written: (0, 0),
            has_logged: false,
            meter: Meter::default(),
            traffic: Traffic { seen_ms: card.born_ms, ..Traffic::default() },
            mailbox: Arc::clone(&card.mailbox),
            card,
        }
    }

    /// One whose command waits and is tried again, by somebody else: its own session knows nothing of it.
    pub(crate) fn again(card: Arc<Card>, user: Arc<User>) -> Self {
        let mut client = Self::bare(card, user);
        (client.is_authenticated, client.is_known, client.is_again) = (true, true, true);
        client
    }

    /// It is another user from now on.
    pub(crate) fn set_user(&mut self, user: Arc<User>, is_authenticated: bool) {
        self.card.texts().user.clone_from(&user.name);
        (self.user, self.is_authenticated, self.is_known) = (user, is_authenticated, is_authenticated);
    }

    /// Looks again at what its user may do if users may have changed since it did.
    pub(crate) fn refresh_user(&mut self, engine: &Engine) {
        if self.user_version == engine.settings_version() {
            return;
        }
        self.user_version = engine.settings_version();
        if self.card.link.is_server {
            return;
        }
        let default = engine.acl.default_user();
        self.is_known = self.is_authenticated || default.is_open();
        match engine.acl.user(&self.user.name) {
            Some(user) => self.user = user,
            // Its user is gone, and the connection will be.
            None => (self.user, self.is_authenticated, self.is_known) = (default, false, false),
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
        card.set(Figure::Redirect, self.tracking.as_ref().and_then(|mode| mode.redirect).map_or(0, |id| id.0));
        card.set_count(Figure::Input, traffic.input);
        card.set_count(Figure::Database, self.database);
        card.set_count(Figure::Watched, self.watched.len());
        let prefixes = self.tracking.as_ref().and_then(|mode| mode.prefixes.as_ref());
        card.set_count(Figure::Prefixes, prefixes.map_or(0, |prefixes| prefixes.len()));
        card.set_count(Figure::QueuedBytes, self.transaction.as_ref().map_or(0, |open| open.bytes));
        card.set_count(Figure::Queued, self.transaction.as_ref().map_or(0, |open| open.queued.len() + 1));
    }

    /// Forgets subscriptions to shard channels of slots that this node has not: it was told that they have ended.
    pub(crate) fn forget_foreign_channels(&mut self) {
        let sight = &self.sight;
        self.subscriptions.retain(|(topic, name)| *topic != Topic::Shard || sight.map().serves(Slot::of(name)));
        self.publish_subscriptions();
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
        let (is_tracking, is_broadcast) =
            self.tracking.as_ref().map_or((false, false), |mode| (true, mode.prefixes.is_some()));
        let is_broken = is_tracking && self.card.get(Figure::IsRedirectBroken) != 0;
        Marks::default()
            .with_if(self.is_monitor, Marks::MONITOR)
            .with_if(self.replica.is_some(), Marks::REPLICA)
            .with_if(self.is_primary, Marks::PRIMARY)
            .with_if(is_tracking, Marks::TRACKING)
            .with_if(is_broken, Marks::BROKEN_REDIRECT)
            .with_if(is_broadcast, Marks::BROADCAST)
            .with_if(!self.subscriptions.is_empty(), Marks::PUBSUB)
            .with_if(self.transaction.is_some(), Marks::MULTI)
            .with_if(self.traffic.is_blocked, Marks::BLOCKED)
            .with_if(!self.watched.is_empty() && self.is_dirty(), Marks::DIRTY)
            .with_if(self.is_leaving, Marks::LEAVING)
            .with_if(self.card.link.is_unix, Marks::UNIX)
            .with_if(self.wishes.readonly, Marks::READONLY)
            .with_if(self.wishes.no_evict, Marks::NO_EVICT)
            .with_if(self.wishes.no_touch, Marks::NO_TOUCH)
            .with_if(self.wishes.import_source, Marks::IMPORT_SOURCE)
            .with_if(self.wishes.can_redirect, Marks::CAN_REDIRECT)
    }
}
