//! Replication: what commands did goes as one stream of bytes to every replica, in the protocol of Valkey.
//!
//! In reading order: `backlog` (the newest bytes of the stream), `replica` (one replica), `goal` (what WAIT waits for), `dump`
//! (a full synchronisation, from the side of whoever takes the dump). The commands SYNC, PSYNC and REPLCONF are in
//! `command/sync.rs`. Then the other side: `role` (whom this server follows), `relay` (the stream of a server that follows another is
//! that of its primary, byte for byte), `follow` (the link to the primary), `origin` and `aside` (data that a primary's dump must
//! not simply replace); and `failover` (the roles of two servers trade places).
//!
//! Model
//! - Commands append to the stream while their keys are locked, as they append to the journal, so it has one order that every
//!   key agrees with. While nobody has ever asked for it there is no stream, and nothing is written down for it.
//! - A position is the number of bytes of the stream before it. A dump is taken with all keys locked at its beginning, and has
//!   what came before the position of that moment: the dump and the stream from there on are all data.
//! - The stream is kept once for all replicas; each has a position in it. What none of them needs any more and is longer ago
//!   than `repl-backlog-size` is forgotten; a replica that stays behind by more than its class of clients may is dismissed.
//! - A replica that comes back names the history and the position that it has. If the stream from there on is still here it goes
//!   on, otherwise it gets a dump.
//!
//! Lock order: shards, then the stream, then what belongs to one replica.

mod aside;
mod backlog;
mod dump;
pub(crate) mod failover;
pub(crate) mod follow;
mod goal;
mod origin;
pub mod quorum;
mod relay;
mod replica;
pub(crate) mod role;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::client::card::{Card, Figure};
use crate::client::{ClientId, Farewell};
use crate::engine::Engine;
use crate::identity::Identity;
use crate::persist::journal::{Written, encode_request};
use crate::resp::number::Decimal;
use crate::settings::Settings;
use crate::time::Now;
pub use aside::{Aside, KeptCopy};
use backlog::Backlog;
pub use dump::FullSync;
pub use follow::{Follower, Step};
pub(crate) use goal::{Copied, LogGoal};
pub(crate) use origin::Origins;
use quorum::CommitState;
pub use relay::Point;
pub(crate) use replica::{Introduction, Phase, Replica};
pub use role::{CopyStatus, LinkStatus, Turned, Upstream};

/// What a session takes for a replica at a time, bytes.
const TAKE_BYTES: usize = 64 << 10;
/// An end that no GETACK is at.
const NEVER: u64 = u64::MAX;

/// Replicas, and what they are sent.
#[derive(Debug)]
pub(crate) struct Replication {
    /// There is a stream that commands append to.
    is_on: AtomicBool,
    /// Position of its end.
    end: AtomicU64,
    stream: Mutex<Stream>,
    /// `repl-backlog-size`.
    backlog_bytes: AtomicU64,
    /// By how many bytes a replica may be behind; 0 for any.
    behind_max: AtomicU64,
    /// Position up to which the log is durable, for those who wait for that.
    durable: AtomicU64,
    /// Bytes that replicas have taken.
    pub(crate) sent_bytes: AtomicU64,
    /// Synchronisations with a dump, without one, and refused wishes for one without.
    pub(crate) full: AtomicU64,
    pub(crate) partial: AtomicU64,
    pub(crate) refused: AtomicU64,
    /// Bytes that came from a primary.
    pub(crate) received_bytes: AtomicU64,
    /// Commands of a primary that failed here.
    pub(crate) unexpected: AtomicU64,
    /// When the tick last looked, in seconds of the monotonic clock.
    looked_s: AtomicI64,
    /// The stream is one whose writes a majority acknowledges; see [`quorum`].
    is_quorum: AtomicBool,
    /// A [`quorum::Gate`].
    gate: AtomicU8,
    /// Position up to which replies may tell, on a primary of such a shard.
    released: AtomicU64,
    /// Members without which nothing is written there.
    copies_min: AtomicUsize,
}

#[derive(Debug)]
struct Stream {
    end: u64,
    /// That of the last command.
    database: Option<usize>,
    backlog: Option<Backlog>,
    replicas: BTreeMap<ClientId, Arc<Replica>>,
    /// Since when there is no replica, in seconds of the monotonic clock.
    lonely_since_s: i64,
    /// When replicas were last sent a PING, in seconds of the monotonic clock.
    pinged_s: i64,
    /// The end behind the last GETACK.
    asked_at: u64,
    /// It is that of a primary, and nothing else is appended.
    is_relay: bool,
    /// Which turn of the role it is.
    turn: u64,
    /// The data are those of the history at its end, as far as the stream comes from a primary.
    is_whole: bool,
    /// The data were forgotten for those of a dump, which has not been read whole.
    is_torn: bool,
    commit: CommitState,
}

/// What INFO tells of the stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) end: u64,
    pub(crate) is_on: bool,
    /// The first byte of the backlog, counted from 1.
    pub(crate) first: u64,
    pub(crate) len: u64,
    pub(crate) memory: u64,
}

impl Stream {
    fn put(&mut self, bytes: &[u8]) {
        if let Some(backlog) = &mut self.backlog {
            backlog.append(bytes);
            self.end = backlog.end();
        }
    }

    fn put_words(&mut self, words: &[&[u8]]) {
        let mut bytes = Vec::new();
        encode_request(words.iter().copied(), &mut bytes);
        self.put(&bytes);
    }

    /// One more replica. Before the first there was nobody to be sent a PING.
    fn admit(&mut self, who: Newcomer<'_>) -> Arc<Replica> {
        if self.replicas.is_empty() {
            self.pinged_s = who.now_s;
        }
        let replica = Arc::new(who.replica());
        self.replicas.insert(replica.id(), Arc::clone(&replica));
        replica
    }

    fn select(&mut self, database: usize) {
        if self.database.replace(database) != Some(database) {
            let number = i64::try_from(database).expect("there are far fewer databases");
            self.put_words(&[b"SELECT", Decimal::new(number).as_bytes()]);
        }
    }
}

impl Default for Replication {
    fn default() -> Self {
        Self {
            is_on: AtomicBool::new(false),
            end: AtomicU64::new(0),
            stream: Mutex::new(Stream {
                end: 0,
                database: None,
                backlog: None,
                replicas: BTreeMap::new(),
                lonely_since_s: 0,
                pinged_s: 0,
                asked_at: NEVER,
                is_relay: false,
                turn: 0,
                is_whole: false,
                is_torn: false,
                commit: CommitState::default(),
            }),
            backlog_bytes: AtomicU64::new(0),
            behind_max: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            full: AtomicU64::new(0),
            partial: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            unexpected: AtomicU64::new(0),
            looked_s: AtomicI64::new(-1),
            is_quorum: AtomicBool::new(false),
            gate: AtomicU8::new(0),
            released: AtomicU64::new(0),
            copies_min: AtomicUsize::new(0),
        }
    }
}

impl Replication {
    /// Whether there is a stream that commands append to.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Position of the end of the stream.
    pub(crate) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// The settings are these.
    pub(crate) fn configure(&self, settings: &Settings) {
        let backlog_bytes = settings.replication.backlog_bytes;
        self.backlog_bytes.store(backlog_bytes, Ordering::Relaxed);
        // A limit below the backlog would dismiss replicas that need not wait for anything.
        let hard = settings.clients.output.replica.hard_bytes;
        self.behind_max.store(if hard == 0 { 0 } else { hard.max(backlog_bytes) }, Ordering::Relaxed);
        self.copies_min.store(settings.replication.copies_min, Ordering::Relaxed);
        self.settle(&mut self.stream());
    }

    /// Appends what a command, transaction or script did; its keys must still be locked. Several commands become one
    /// transaction if they are `whole`.
    pub(crate) fn append(&self, written: &Written, whole: bool) {
        let mut stream = self.stream();
        if stream.is_relay {
            return;
        }
        let is_transaction = whole && written.commands() > 1;
        if is_transaction {
            stream.put_words(&[b"MULTI"]);
        }
        for (database, _, commands) in written.runs() {
            stream.select(database);
            stream.put(commands);
        }
        if is_transaction {
            stream.put_words(&[b"EXEC"]);
        }
        self.settle(&mut stream);
    }

    /// Appends a command that is about no database.
    pub(crate) fn append_words(&self, words: &[&[u8]]) {
        let mut stream = self.stream();
        if !stream.is_relay {
            stream.put_words(words);
            self.settle(&mut stream);
        }
    }

    /// Asks replicas what they have, unless the last thing that they were sent is this question.
    pub(crate) fn ask(&self) {
        let mut stream = self.stream();
        if stream.is_relay || stream.replicas.is_empty() || stream.asked_at == stream.end {
            return;
        }
        stream.put_words(&[b"REPLCONF", b"GETACK", b"*"]);
        stream.asked_at = stream.end;
        self.settle(&mut stream);
    }

    /// After the stream has become longer: forgets what nobody needs, dismisses who is too far behind, wakes the others.
    fn settle(&self, stream: &mut Stream) {
        self.end.store(stream.end, Ordering::Release);
        let (end, behind_max) = (stream.end, self.behind_max.load(Ordering::Relaxed));
        let mut needed = end.saturating_sub(self.backlog_bytes.load(Ordering::Relaxed));
        for replica in stream.replicas.values() {
            if behind_max > 0 && replica.behind(end) > behind_max {
                replica.dismiss(Farewell::Overflow);
                // It gets nothing any more, so that nothing is kept for it.
                replica.leave();
            }
            needed = needed.min(replica.position());
            replica.wake();
        }
        if let Some(backlog) = &mut stream.backlog {
            backlog.trim(needed);
        }
    }

    /// A replica that has the stream of this history up to a position goes on there, if that is still here.
    pub(crate) fn resume(
        &self,
        who: Newcomer<'_>,
        history: &str,
        position: u64,
        identity: &Identity,
    ) -> Option<Arc<Replica>> {
        let mut stream = self.stream();
        let backlog = stream.backlog.as_ref()?;
        let is_here = (backlog.first()..=backlog.end()).contains(&position);
        let histories = identity.all_histories();
        if !is_here || !histories.has(history, position) {
            return None;
        }
        let history = histories.first;
        let first =
            if who.introduction.takes_names { format!("+CONTINUE {history}\r\n") } else { "+CONTINUE\r\n".into() };
        let now_s = who.now_s;
        let replica = stream.admit(who);
        replica.go_on(position, first.as_bytes(), now_s);
        Some(replica)
    }

    /// A replica waits for a dump from now on. The first one begins the stream, and with it another history.
    pub(crate) fn enter(&self, who: Newcomer<'_>, rename: impl FnOnce()) -> Arc<Replica> {
        self.begin_stream(rename);
        self.stream().admit(who)
    }

    /// Commands append from now on, if they have not done so before; their history has another name then.
    pub(crate) fn begin_stream(&self, rename: impl FnOnce()) {
        let mut stream = self.stream();
        if stream.backlog.is_none() {
            rename();
            (stream.backlog, stream.database) = (Some(Backlog::new(stream.end)), None);
            self.is_on.store(true, Ordering::Release);
        }
    }

    /// The connection of a client has ended, which may be a replica.
    pub(crate) fn leave(&self, client: ClientId) {
        let mut stream = self.stream();
        if let Some(replica) = stream.replicas.remove(&client) {
            replica.leave();
            stream.lonely_since_s = self.looked_s.load(Ordering::Relaxed);
            self.settle(&mut stream);
            if self.is_quorum() {
                self.review(&mut stream);
            }
        }
    }

    /// Appends to `out` what a replica is to be sent now, a bounded number of bytes. Says whether it is to look again; if not,
    /// its mailbox is woken when there is more.
    pub(crate) fn take(&self, replica: &Replica, out: &mut Vec<u8>) -> bool {
        let before = out.len();
        replica.begin_look();
        if replica.take_queue(TAKE_BYTES, out) {
            let stream = self.stream();
            let position = replica.position();
            let backlog = stream.backlog.as_ref().filter(|backlog| position <= backlog.end());
            if let Some(count) = backlog.map(|backlog| backlog.read(position, TAKE_BYTES, out)) {
                replica.move_to(position + count as u64);
            }
        }
        let count = out.len() - before;
        self.sent_bytes.fetch_add(count as u64, Ordering::Relaxed);
        if count > 0 {
            replica.end_look();
        }
        count > 0
    }

    /// All replicas, in the order in which they came.
    pub(crate) fn replicas(&self) -> Vec<Arc<Replica>> {
        self.stream().replicas.values().cloned().collect()
    }

    /// Whether all replicas that follow the stream have it up to a position.
    pub(crate) fn have_all(&self, position: u64) -> bool {
        let stream = self.stream();
        let mut online = stream.replicas.values().filter(|replica| replica.phase() == Phase::Online);
        online.all(|replica| replica.acknowledged() >= position)
    }

    /// How many replicas follow the stream.
    pub(crate) fn online(&self) -> usize {
        self.stream().replicas.values().filter(|replica| replica.phase() == Phase::Online).count()
    }

    /// Replicas that follow the stream and were heard of in the last so many seconds.
    pub(crate) fn good(&self, lag_s_max: i64, now_s: i64) -> usize {
        let stream = self.stream();
        let is_good = |replica: &&Arc<Replica>| replica.phase() == Phase::Online && replica.lag_s(now_s) <= lag_s_max;
        stream.replicas.values().filter(is_good).count()
    }

    /// Position up to which the log is durable.
    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// A command of the primary has failed here: the data may be other than the primary's.
    pub(crate) fn note_unexpected(&self, error: &str) {
        if self.unexpected.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::error!(error, "a command of the primary fails here; others may, and are counted");
        }
    }

    /// What is known of the stream.
    pub(crate) fn figures(&self) -> Figures {
        let stream = self.stream();
        let Some(backlog) = &stream.backlog else { return Figures { end: stream.end, ..Figures::default() } };
        let (first, len) = (backlog.first() + 1, backlog.len());
        Figures { end: stream.end, is_on: true, first, len, memory: backlog.memory() }
    }

    /// Memory of the stream that is there only because a replica is behind: keys that go for it would make it longer.
    pub(crate) fn excess_bytes(&self) -> u64 {
        if !self.is_on() {
            return 0;
        }
        self.figures().memory.saturating_sub(self.backlog_bytes.load(Ordering::Relaxed))
    }

    fn stream(&self) -> MutexGuard<'_, Stream> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client that becomes a replica.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Newcomer<'n> {
    pub(crate) card: &'n Arc<Card>,
    pub(crate) introduction: &'n Introduction,
    /// It asked by SYNC.
    pub(crate) is_old: bool,
    /// Seconds of the monotonic clock.
    pub(crate) now_s: i64,
}

impl Newcomer<'_> {
    fn replica(&self) -> Replica {
        Replica::new(Arc::clone(self.card), self.introduction.clone(), self.is_old, self.now_s)
    }
}

impl Engine {
    /// Whether somebody wants to know what commands do: the log or replicas.
    #[inline]
    pub(crate) fn is_heard(&self) -> bool {
        (self.journal.is_on() || self.replication.is_on() || self.migration.is_listening()) && !self.is_loading()
    }

    /// Tells the log and replicas what was done. The keys must still be locked.
    pub(crate) fn append(&self, written: &Written, whole: bool, now_ms: i64) {
        if written.is_empty() || self.is_loading() {
            return;
        }
        if self.journal.is_on() {
            self.journal.append(written, now_ms);
        }
        if self.replication.is_on() {
            self.replication.append(written, whole);
        }
        if self.migration.is_listening() {
            self.tell_migration(written);
        }
    }

    /// Whether there are fewer replicas than writes need.
    #[inline]
    pub(crate) fn lacks_replicas(&self, settings: &Settings, now: Now) -> bool {
        let (min, lag_s) = (settings.replication.good_min, settings.replication.good_lag_s);
        min > 0 && lag_s > 0 && self.replication.good(lag_s, now.seconds()) < min
    }

    /// A replica has acknowledged the stream up to a position.
    pub(crate) fn acknowledge(&self, replica: &Replica, position: u64, logged: Option<u64>, now: Now) {
        replica.acknowledge(position, logged, now.seconds());
        self.replication.review_now();
        self.waiting.reached(self);
    }

    /// The log is durable up to a position.
    pub(crate) fn note_durable(&self, position: u64) {
        let before = self.replication.durable.swap(position, Ordering::AcqRel);
        if before != position {
            self.waiting.reached(self);
        }
    }

    /// Looks after replicas, about once a second.
    pub(crate) fn tend_replicas(&self, settings: &Settings, now: Now) {
        let now_s = now.seconds();
        let has_stream = self.replication.is_on() || self.role.is_replica();
        if !has_stream || self.replication.looked_s.swap(now_s, Ordering::Relaxed) == now_s {
            return;
        }
        let replicas = self.replication.replicas();
        for replica in &replicas {
            let behind = replica.behind(self.replication.end());
            replica.card.set(Figure::Behind, behind);
            match replica.phase() {
                // Whoever waits for us takes an empty line as a sign of life.
                Phase::Waits(_) | Phase::Spools => replica.put(b"\n"),
                Phase::Online if !replica.is_old && replica.lag_s(now_s) > settings.replication.timeout_s => {
                    replica.dismiss(Farewell::Dismissed);
                }
                Phase::Sends | Phase::Online => {}
            }
        }
        let mut stream = self.replication.stream();
        if stream.is_relay {
            // What replicas are sent is the primary's, and nothing else.
        } else if stream.replicas.is_empty() && self.replication.is_quorum() {
            // The stream is the shard's log.
        } else if stream.replicas.is_empty() {
            let ttl_s = settings.replication.backlog_ttl_s;
            if ttl_s > 0 && now_s.saturating_sub(stream.lonely_since_s) > ttl_s {
                stream.backlog = None;
                self.replication.is_on.store(false, Ordering::Release);
                // What is done from now on is not counted: nobody may ask for it under the old name.
                self.identity.change_history([self.draw(), self.draw()]);
            }
        } else if now_s - stream.pinged_s >= settings.replication.ping_s && !self.pause.is_on() {
            stream.pinged_s = now_s;
            stream.put_words(&[b"PING"]);
            self.replication.settle(&mut stream);
        }
    }
}
