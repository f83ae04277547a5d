//! A full synchronisation: one dump for all replicas that wait for the same.
//!
//! The thread that takes snapshots asks for one ([`Engine::next_full_sync`]), begins a snapshot for it, and hands it the bytes as
//! they come. Where replicas find the end by a mark, the bytes go to them at once; otherwise the thread keeps them until it
//! knows how many they are, since their number is sent first.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Introduction, Phase, Point, Replica, Replication};
use crate::client::Farewell;
use crate::engine::Engine;
use crate::rdb::Version;
use crate::time::Now;

/// The first versions of Valkey and Redis whose replicas read a form, as they tell them.
const VALKEY_9: u32 = 0x0009_0000;
const REDIS_7_2: u32 = 0x0007_0200;

/// Replicas that get the same dump.
#[derive(Debug)]
pub struct FullSync {
    engine: Arc<Engine>,
    replicas: Vec<Arc<Replica>>,
    /// They find the end by a mark, and get bytes as they are made.
    is_streamed: bool,
    is_over: bool,
}

/// What decides who shares a dump.
fn kind(introduction: &Introduction) -> (bool, bool, bool, u32) {
    let Introduction { takes_marks, wants_keys, wants_functions, version, .. } = introduction;
    (*takes_marks, *wants_keys, *wants_functions, *version)
}

impl Engine {
    /// The replicas that a dump is to be taken for now, if any: those that want the same as the one that waits longest.
    pub fn next_full_sync(self: &Arc<Self>, now: Now) -> Option<FullSync> {
        if !self.replication.is_on() && !self.replication.is_relay() {
            return None;
        }
        let (settings, now_s) = (self.settings(), now.seconds());
        let since_s = |replica: &Replica| match replica.phase() {
            Phase::Waits(since_s) => Some(since_s),
            _ => None,
        };
        let mut replicas = self.replication.replicas();
        replicas.retain(|replica| since_s(replica).is_some() && !replica.is_gone());
        let first = replicas.first()?;
        let wanted = kind(&first.introduction);
        let waited_s = now_s - replicas.iter().filter_map(|replica| since_s(replica)).min()?;
        replicas.retain(|replica| kind(&replica.introduction) == wanted);
        let is_streamed = wanted.0 && settings.replication.is_diskless;
        let enough = settings.replication.delay_replicas_max;
        let may_wait = is_streamed && (enough == 0 || replicas.len() < enough);
        if may_wait && waited_s < settings.replication.delay_s {
            return None;
        }
        Some(FullSync { engine: Arc::clone(self), replicas, is_streamed, is_over: false })
    }
}

impl FullSync {
    /// Whether replicas get the bytes as they come, between two times the same mark. They get the number of bytes and then the
    /// bytes otherwise.
    pub fn is_streamed(&self) -> bool {
        self.is_streamed
    }

    /// For how long a replica may take nothing.
    pub fn patience(&self) -> Duration {
        Duration::from_secs(self.engine.settings().replication.timeout_s.unsigned_abs())
    }

    /// In which form the dump is, if nothing in it needs a newer one.
    pub(crate) fn version(&self) -> Version {
        match self.introduction().version {
            VALKEY_9.. => Version::Valkey80,
            REDIS_7_2.. => Version::Redis11,
            // Those before do not say what they are.
            _ => Version::Redis10,
        }
    }

    pub(crate) fn wants_keys(&self) -> bool {
        self.introduction().wants_keys
    }

    pub(crate) fn wants_functions(&self) -> bool {
        self.introduction().wants_functions
    }

    fn introduction(&self) -> &Introduction {
        &self.replicas.first().expect("a dump is for somebody").introduction
    }

    /// The dump has what is there now: all shards are locked. What is done from now on follows it. Returns the point, and
    /// what is known there of the term and the members of the shard.
    pub(crate) fn begin(&self) -> (Point, Option<String>) {
        let mut stream = self.engine.replication.stream();
        // Replicas begin without a database, unless the dump names one: what we pass on names none for them.
        if !stream.is_relay {
            stream.database = None;
        }
        let history = self.engine.identity.history();
        for replica in &self.replicas {
            let first =
                if replica.is_old { String::new() } else { format!("+FULLRESYNC {history} {}\r\n", stream.end) };
            replica.begin_dump(stream.end, first.as_bytes(), !self.is_streamed);
            self.engine.replication.full.fetch_add(1, Ordering::Relaxed);
        }
        let commit = Replication::commit_words(&stream);
        (Point { history, position: stream.end, database: stream.database }, commit)
    }

    /// What was kept is sent from now on.
    pub fn send(&self) {
        self.replicas.iter().for_each(|replica| replica.send_dump());
    }

    /// Hands over bytes, to those from number `from` on. Where one has no room for them for so long, returns its number, and
    /// those before it have them. It is to be tried again with that number, or the replica dismissed.
    ///
    /// # Errors
    /// The first replica that has no room.
    pub fn put(&self, bytes: &[u8], from: usize, span: Duration) -> Result<(), usize> {
        let full = (from..self.replicas.len()).find(|number| !self.replicas[*number].put_dump(bytes, span));
        full.map_or(Ok(()), Err)
    }

    /// Gives a replica up.
    pub fn dismiss(&self, number: usize) {
        self.replicas[number].dismiss(Farewell::Overflow);
        self.replicas[number].leave();
    }

    /// Whether nobody is left who wants the dump.
    pub fn is_deserted(&self) -> bool {
        self.replicas.iter().all(|replica| replica.is_gone())
    }

    /// All bytes were handed over: the stream follows.
    pub fn end(mut self, now: Now) {
        self.is_over = true;
        self.replicas.iter().for_each(|replica| replica.end_dump(now.seconds()));
    }
}

impl Drop for FullSync {
    /// A dump that is not whole ends the connections: replicas come back and ask again.
    fn drop(&mut self) {
        if !self.is_over {
            self.replicas.iter().for_each(|replica| replica.dismiss(Farewell::Dismissed));
        }
    }
}
