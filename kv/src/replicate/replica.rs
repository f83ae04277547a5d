//! One replica, as the stream, the dump and its connection share it.
//!
//! Its session takes what is to be sent ([`super::Replication::take`]): first what lies in the queue, which is a dump and what
//! goes with it, then the stream from [`Replica::position`] on. The thread that takes the dump fills the queue and waits while it
//! is full, so that a slow replica costs no memory.

use core::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::client::card::Card;
use crate::client::{ClientId, Farewell};
use crate::cluster::map::Name;

/// Bytes of a dump that wait for the connection of a replica.
const QUEUE_BYTES_MAX: usize = 1 << 20;
/// A position that no stream reaches: that of a replica which is not fed yet.
const UNFED: u64 = u64::MAX;

/// What a replica has said of itself before it asked (`REPLCONF`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Introduction {
    /// Where it listens, if it said so.
    pub(crate) port: i64,
    pub(crate) address: Option<String>,
    /// It finds the end of a dump by a mark, and need not know the length before.
    pub(crate) takes_marks: bool,
    /// It may be told that the history has another name now.
    pub(crate) takes_names: bool,
    /// `0x00MMmmpp`; 0 where it did not say.
    pub(crate) version: u32,
    /// It wants a dump and nothing else.
    pub(crate) wants_dump_only: bool,
    pub(crate) wants_keys: bool,
    pub(crate) wants_functions: bool,
    /// Which node it is, if it can be a member of the shard.
    pub(crate) member: Option<Name>,
    /// It is about to be the primary, and takes over what this server has.
    pub(crate) copies: bool,
}

impl Default for Introduction {
    fn default() -> Self {
        Self {
            port: 0,
            address: None,
            takes_marks: false,
            takes_names: false,
            version: 0,
            wants_dump_only: false,
            wants_keys: true,
            wants_functions: true,
            member: None,
            copies: false,
        }
    }
}

/// How far a replica has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It waits for a dump to be begun, since this time, in seconds of the monotonic clock.
    Waits(i64),
    /// A dump is being taken; it is not sent before it is whole.
    Spools,
    /// A dump is being sent.
    Sends,
    /// It has the dump, or needed none.
    Online,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    queue: Vec<u8>,
    /// The connection is gone.
    is_gone: bool,
    /// The stream follows once it has acknowledged the dump.
    awaits_ack: bool,
}

/// A replica.
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) card: Arc<Card>,
    pub(crate) introduction: Introduction,
    /// It asked by SYNC: it is told no position, and acknowledges nothing.
    pub(crate) is_old: bool,
    state: Mutex<State>,
    /// There is room in the queue, or nobody empties it any more.
    room: Condvar,
    /// Of the next byte of the stream that it gets.
    position: AtomicU64,
    /// Its session has taken everything, and is to be told of more.
    is_asleep: AtomicBool,
    acknowledged: AtomicU64,
    /// What it says that its own log has.
    logged: AtomicU64,
    /// When it last acknowledged something or came online, in seconds of the monotonic clock.
    heard_s: AtomicI64,
}

impl Replica {
    /// One that needs a dump.
    pub(super) fn new(card: Arc<Card>, introduction: Introduction, is_old: bool, now_s: i64) -> Self {
        let state = State { phase: Phase::Waits(now_s), queue: Vec::new(), is_gone: false, awaits_ack: false };
        Self {
            card,
            introduction,
            is_old,
            state: Mutex::new(state),
            room: Condvar::new(),
            position: AtomicU64::new(UNFED),
            is_asleep: AtomicBool::new(false),
            acknowledged: AtomicU64::new(0),
            logged: AtomicU64::new(0),
            heard_s: AtomicI64::new(now_s),
        }
    }

    pub(super) fn id(&self) -> ClientId {
        self.card.id
    }

    /// How far it has come.
    pub(crate) fn phase(&self) -> Phase {
        self.state().phase
    }

    /// Position of the next byte of the stream that it gets; so high that no stream reaches it while it gets none.
    pub(super) fn position(&self) -> u64 {
        self.position.load(Ordering::Acquire)
    }

    /// Whether it has got any of the stream behind a position.
    pub(super) fn has_got(&self, position: u64) -> bool {
        let next = self.position();
        next != UNFED && next > position
    }

    pub(super) fn move_to(&self, position: u64) {
        self.position.store(position, Ordering::Release);
    }

    /// What of the stream it has not taken yet, bytes.
    pub(super) fn behind(&self, end: u64) -> u64 {
        end.saturating_sub(self.position())
    }

    /// A dump begins for it, which is the data at this position; `first` is what it gets at once.
    pub(super) fn begin_dump(&self, position: u64, first: &[u8], is_spooled: bool) {
        self.move_to(position);
        let mut state = self.state();
        state.phase = if is_spooled { Phase::Spools } else { Phase::Sends };
        // Who is told how long the dump is need not say that it has found the end.
        state.awaits_ack = !is_spooled;
        state.queue.extend_from_slice(first);
        drop(state);
        self.wake();
    }

    /// The dump was taken and is sent now.
    pub(super) fn send_dump(&self) {
        self.state().phase = Phase::Sends;
    }

    /// It has all of the dump, as far as it is up to us.
    pub(super) fn end_dump(&self, now_s: i64) {
        let mut state = self.state();
        state.phase = Phase::Online;
        drop(state);
        self.heard_s.store(now_s, Ordering::Relaxed);
        self.wake();
    }

    /// It needs no dump: the stream goes on for it from this position.
    pub(super) fn go_on(&self, position: u64, first: &[u8], now_s: i64) {
        self.move_to(position);
        let mut state = self.state();
        state.phase = Phase::Online;
        state.queue.extend_from_slice(first);
        drop(state);
        self.heard_s.store(now_s, Ordering::Relaxed);
        self.wake();
    }

    /// Something for the queue, however long that is already: line ends that show that we are there.
    pub(super) fn put(&self, bytes: &[u8]) {
        let mut state = self.state();
        if !state.is_gone && state.queue.len() < QUEUE_BYTES_MAX {
            state.queue.extend_from_slice(bytes);
        }
        drop(state);
        self.wake();
    }

    /// Bytes of a dump. Waits for room no longer than `span`, and says whether there was; if not, nothing was done. One that is
    /// gone has room for everything.
    pub(super) fn put_dump(&self, bytes: &[u8], span: Duration) -> bool {
        let mut state = self.state();
        let is_full = |state: &mut State| !state.is_gone && state.queue.len() >= QUEUE_BYTES_MAX;
        if is_full(&mut state) {
            let waited = self.room.wait_timeout_while(state, span, is_full);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if is_full(&mut state) {
                return false;
            }
        }
        if !state.is_gone {
            state.queue.extend_from_slice(bytes);
        }
        drop(state);
        self.wake();
        true
    }

    /// Appends what lies in the queue to `out`, up to so many bytes. Says whether the stream may follow.
    pub(super) fn take_queue(&self, bytes_max: usize, out: &mut Vec<u8>) -> bool {
        let mut state = self.state();
        if state.queue.is_empty() {
            return state.phase == Phase::Online && !state.awaits_ack && !self.introduction.wants_dump_only;
        }
        let was_full = state.queue.len() >= QUEUE_BYTES_MAX;
        let count = bytes_max.min(state.queue.len());
        out.extend(state.queue.drain(..count));
        if state.queue.is_empty() {
            state.queue = Vec::new();
        }
        drop(state);
        if was_full {
            self.room.notify_all();
        }
        false
    }

    /// It wanted a dump only and has taken it all.
    pub(crate) fn is_done(&self) -> bool {
        let state = self.state();
        self.introduction.wants_dump_only && state.phase == Phase::Online && state.queue.is_empty()
    }

    /// It has acknowledged the stream up to a position, and its log as well if it says so.
    pub(super) fn acknowledge(&self, position: u64, logged: Option<u64>, now_s: i64) {
        self.acknowledged.fetch_max(position, Ordering::AcqRel);
        if let Some(logged) = logged {
            self.logged.fetch_max(logged, Ordering::AcqRel);
        }
        self.heard_s.store(now_s, Ordering::Relaxed);
        let mut state = self.state();
        // It may have read the end of the dump before whoever hands the dump over says that this was the end.
        if matches!(state.phase, Phase::Sends | Phase::Online) {
            state.awaits_ack = false;
        }
        drop(state);
        self.wake();
    }

    /// What it has acknowledged.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Acquire)
    }

    /// What its log has.
    pub(super) fn logged(&self) -> u64 {
        self.logged.load(Ordering::Acquire)
    }

    /// Seconds since it was heard of.
    pub(crate) fn lag_s(&self, now_s: i64) -> i64 {
        now_s.saturating_sub(self.heard_s.load(Ordering::Relaxed)).max(0)
    }

    /// Where it listens, as far as it said so: the host that it comes from otherwise.
    pub(crate) fn host(&self) -> String {
        let peer = &self.card.link.peer;
        let from_peer = || peer.parse::<SocketAddr>().map_or_else(|_| peer.clone(), |peer| peer.ip().to_string());
        self.introduction.address.clone().unwrap_or_else(from_peer)
    }

    /// Its connection is to end.
    pub(super) fn dismiss(&self, why: Farewell) {
        self.card.mailbox.dismiss(why);
    }

    /// Its connection has ended.
    pub(super) fn leave(&self) {
        let mut state = self.state();
        (state.is_gone, state.queue) = (true, Vec::new());
        drop(state);
        self.move_to(UNFED);
        self.room.notify_all();
    }

    /// Whether its connection has ended.
    pub(super) fn is_gone(&self) -> bool {
        self.state().is_gone
    }

    /// Its session looks for more, and is to be woken if it finds nothing.
    pub(super) fn begin_look(&self) {
        self.is_asleep.store(true, Ordering::SeqCst);
    }

    /// Its session has found something, and looks again by itself.
    pub(super) fn end_look(&self) {
        self.is_asleep.store(false, Ordering::SeqCst);
    }

    /// There is more for it.
    pub(super) fn wake(&self) {
        if self.is_asleep.swap(false, Ordering::SeqCst) {
            self.card.mailbox.nudge();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
