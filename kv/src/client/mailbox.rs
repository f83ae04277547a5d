//! What others leave for a client: replies of commands that waited, messages, the wish that it go.
//!
//! Only the owner empties it. Who leaves something is told nothing about the owner, and never waits for it: an owner that
//! does not fetch what it has is dismissed before it fills the memory.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::resp::Protocol;

/// The way others reach a client.
pub struct Mailbox {
    letters: Mutex<Letters>,
    /// Whether something may lie there, so that an owner with nothing to fetch takes no lock.
    is_waiting: AtomicBool,
    /// What its owner speaks.
    is_resp3: AtomicBool,
    /// Bytes that the owner has taken out, and that its client has not.
    unsent: AtomicUsize,
    /// Bytes here and unsent at which the owner is dismissed.
    bytes_max: AtomicUsize,
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Debug, Default)]
struct Letters {
    bytes: Vec<u8>,
    /// What came while the reply of the command that waits is being made, and follows it.
    later: Option<Vec<u8>>,
    /// The command that waited has its reply.
    is_served: bool,
    /// The connection ends behind this.
    is_last: bool,
    farewell: Option<Farewell>,
}

impl Letters {
    fn len(&self) -> usize {
        self.bytes.len() + self.later.as_ref().map_or(0, Vec::len)
    }

    fn put_later(&mut self) {
        let later = self.later.take();
        self.bytes.extend(later.into_iter().flatten());
    }
}

/// Why a client must go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Farewell {
    /// Somebody wants it.
    Dismissed,
    /// It does not fetch what it asked for.
    Overflow,
}

/// What lay in a mailbox.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Mail {
    pub(crate) bytes: Vec<u8>,
    pub(crate) is_served: bool,
    pub(crate) is_last: bool,
    pub(crate) farewell: Option<Farewell>,
}

impl Mailbox {
    /// A mailbox whose owner is told by `wake`, from any thread and with locks held: it must only schedule.
    #[must_use]
    pub fn new(wake: Box<dyn Fn() + Send + Sync>) -> Self {
        Self {
            letters: Mutex::default(),
            is_waiting: AtomicBool::new(false),
            is_resp3: AtomicBool::new(false),
            unsent: AtomicUsize::new(0),
            bytes_max: AtomicUsize::new(usize::MAX),
            wake,
        }
    }

    /// In which protocol messages are left.
    pub(crate) fn protocol(&self) -> Protocol {
        if self.is_resp3.load(Ordering::Relaxed) { Protocol::Resp3 } else { Protocol::Resp2 }
    }

    /// Its owner speaks another protocol from now on.
    pub(crate) fn set_protocol(&self, protocol: Protocol) {
        self.is_resp3.store(protocol == Protocol::Resp3, Ordering::Relaxed);
    }

    /// How many bytes the owner holds that its client has not fetched.
    pub(crate) fn set_unsent(&self, bytes: usize) {
        self.unsent.store(bytes, Ordering::Relaxed);
    }

    /// At how many bytes its owner is dismissed.
    pub(crate) fn set_bytes_max(&self, bytes_max: usize) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// Bytes that the client has not fetched, here and with the owner.
    pub(crate) fn bytes(&self) -> usize {
        self.letters().len() + self.unsent.load(Ordering::Relaxed)
    }

    /// Leaves bytes that are not a reply.
    pub(crate) fn put(&self, bytes: &[u8]) {
        self.leave(|letters| letters.later.as_mut().unwrap_or(&mut letters.bytes).extend_from_slice(bytes));
    }

    /// The command that waits is tried again: what is left from now on follows its reply.
    pub(crate) fn hold(&self) {
        self.letters().later.get_or_insert_default();
    }

    /// It got none.
    pub(crate) fn release(&self) {
        if self.letters().later.as_ref().is_some_and(|later| !later.is_empty()) {
            self.leave(Letters::put_later);
        } else {
            self.letters().later = None;
        }
    }

    /// Leaves the reply of the command that waits.
    pub(crate) fn serve(&self, reply: &[u8]) {
        self.leave(|letters| {
            letters.bytes.extend_from_slice(reply);
            letters.put_later();
            letters.is_served = true;
        });
    }

    /// The client must go when it has got what lies here.
    pub(crate) fn part(&self) {
        self.leave(|letters| letters.is_last = true);
    }

    /// The client must go.
    pub(crate) fn dismiss(&self, why: Farewell) {
        self.leave(|letters| letters.farewell = Some(why));
    }

    /// Tells the owner to look around.
    pub(crate) fn nudge(&self) {
        (self.wake)();
    }

    fn leave(&self, change: impl FnOnce(&mut Letters)) {
        {
            let mut letters = self.letters();
            change(&mut letters);
            if letters.len() + self.unsent.load(Ordering::Relaxed) > self.bytes_max.load(Ordering::Relaxed) {
                letters.farewell.get_or_insert(Farewell::Overflow);
            }
            if letters.farewell.is_some() {
                letters.bytes = Vec::new();
                letters.later = None;
            }
            self.is_waiting.store(true, Ordering::Release);
        }
        (self.wake)();
    }

    /// Whether something lies there.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::Acquire)
    }

    /// Empties it.
    pub(crate) fn take(&self) -> Mail {
        let mut letters = self.letters();
        self.is_waiting.store(false, Ordering::Release);
        let Letters { bytes, later, is_served, is_last, farewell } = std::mem::take(&mut *letters);
        // Who must go, must go for ever.
        (letters.later, letters.farewell) = (later, farewell);
        Mail { bytes, is_served, is_last, farewell }
    }

    fn letters(&self) -> MutexGuard<'_, Letters> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailbox").field("letters", &self.letters).finish_non_exhaustive()
    }
}
