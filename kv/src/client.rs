//! One client: what it has said about itself, and how others reach it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::pubsub::Topic;
use crate::resp::{Protocol, Request};

/// A client's number; none is used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// What one connection knows of its client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: ClientId,
    pub(crate) database: usize,
    pub(crate) name: Vec<u8>,
    pub(crate) library: (Vec<u8>, Vec<u8>),
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
    pub(crate) mailbox: Arc<Mailbox>,
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
    /// A command was refused: EXEC will be too.
    pub(crate) is_broken: bool,
}

impl Client {
    /// A client that has just come.
    pub(crate) fn new(id: ClientId, mailbox: Arc<Mailbox>) -> Self {
        Self {
            id,
            database: 0,
            name: Vec::new(),
            library: (Vec::new(), Vec::new()),
            is_known: false,
            protocol: Protocol::Resp2,
            silence: Silence::Never,
            transaction: None,
            watched: Vec::new(),
            is_dirty: Arc::new(AtomicBool::new(false)),
            subscriptions: BTreeSet::new(),
            is_leaving: false,
            mailbox,
        }
    }

    /// Whether a watched key was changed.
    pub(crate) fn is_dirty(&self) -> bool {
        self.is_dirty.load(Ordering::Acquire)
    }
}

/// What others leave for a client: replies of commands that waited, messages, the wish that it go.
pub struct Mailbox {
    letters: Mutex<Letters>,
    /// What its owner speaks.
    is_resp3: AtomicBool,
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Debug, Default)]
struct Letters {
    bytes: Vec<u8>,
    /// The command that waited has its reply.
    is_served: bool,
    must_leave: bool,
}

/// What lay in a mailbox.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Mail {
    pub(crate) bytes: Vec<u8>,
    pub(crate) is_served: bool,
    pub(crate) must_leave: bool,
}

impl Mailbox {
    /// A mailbox whose owner is told by `wake`, from any thread and with locks held: it must only schedule.
    #[must_use]
    pub fn new(wake: Box<dyn Fn() + Send + Sync>) -> Self {
        Self { letters: Mutex::default(), is_resp3: AtomicBool::new(false), wake }
    }

    /// In which protocol messages are left.
    pub(crate) fn protocol(&self) -> Protocol {
        if self.is_resp3.load(Ordering::Relaxed) { Protocol::Resp3 } else { Protocol::Resp2 }
    }

    /// Its owner speaks another protocol from now on.
    pub(crate) fn set_protocol(&self, protocol: Protocol) {
        self.is_resp3.store(protocol == Protocol::Resp3, Ordering::Relaxed);
    }

    /// Leaves bytes that are not a reply. Returns how many wait.
    pub(crate) fn put(&self, bytes: &[u8]) -> usize {
        let len = {
            let mut letters = self.letters();
            letters.bytes.extend_from_slice(bytes);
            letters.bytes.len()
        };
        (self.wake)();
        len
    }

    /// Leaves the reply of the command that waits.
    pub(crate) fn serve(&self, reply: &[u8]) {
        {
            let mut letters = self.letters();
            letters.bytes.extend_from_slice(reply);
            letters.is_served = true;
        }
        (self.wake)();
    }

    /// The client must go.
    pub(crate) fn dismiss(&self) {
        self.letters().must_leave = true;
        (self.wake)();
    }

    /// Empties it.
    pub(crate) fn take(&self) -> Mail {
        let letters = std::mem::take(&mut *self.letters());
        Mail { bytes: letters.bytes, is_served: letters.is_served, must_leave: letters.must_leave }
    }

    fn letters(&self) -> std::sync::MutexGuard<'_, Letters> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailbox").field("letters", &self.letters).finish_non_exhaustive()
    }
}
