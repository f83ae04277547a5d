//! The stream of a server that follows another: the primary's bytes at the primary's positions, so that its own replicas, and
//! whoever follows it once it is a primary, can go on with what they have.

use std::sync::atomic::Ordering;

use super::backlog::Backlog;
use super::{Replication, Stream};
use crate::client::Farewell;
use crate::identity::Identity;
use crate::time::Now;

/// A point of a history: whoever has the data of it can go on from there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Point {
    /// What the history is called.
    pub history: String,
    /// Bytes of the stream before it.
    pub position: u64,
    /// The database of the command before it.
    pub database: Option<usize>,
}

impl Stream {
    /// Replicas must come back and be told what has become of the history.
    fn dismiss_all(&self) {
        for replica in self.replicas.values() {
            replica.dismiss(Farewell::Dismissed);
            replica.leave();
        }
    }

    /// What is before the end is not known.
    fn begin_anew(&mut self, end: u64, database: Option<usize>) {
        (self.end, self.database, self.backlog) = (end, database, Some(Backlog::new(end)));
    }
}

impl Replication {
    /// Commands append nothing from now on. All shards are held.
    pub(super) fn begin_relay(&self, turn: u64, identity: &Identity) {
        let mut stream = self.stream();
        if !stream.is_relay {
            // What was done while there was no stream is not counted.
            stream.is_whole = stream.backlog.is_some();
            identity.join_history(stream.end);
        }
        (stream.is_relay, stream.turn) = (true, turn);
        self.is_on.store(false, Ordering::Release);
        stream.commit.stop_serving();
        self.recount(&mut stream);
    }

    /// Commands append again, and a history of our own branches off. All shards are held.
    pub(super) fn end_relay(&self, turn: u64, identity: &Identity, draws: [u64; 2], now: Now) {
        let mut stream = self.stream();
        if stream.is_whole {
            identity.branch_history(&identity.history(), stream.end, draws);
        } else {
            identity.change_history(draws);
            stream.backlog = None;
            stream.commit.forget();
        }
        // The stream goes on with the name of a database, whatever the former primary's last was.
        (stream.is_relay, stream.turn, stream.database) = (false, turn, None);
        stream.lonely_since_s = now.seconds();
        stream.dismiss_all();
        self.is_on.store(stream.backlog.is_some(), Ordering::Release);
    }

    /// Position of the end, and whether the data are those of it.
    pub(crate) fn whole(&self) -> (u64, bool) {
        let stream = self.stream();
        (stream.end, stream.is_whole)
    }

    /// The data are being replaced: nobody can go on from any point.
    pub(super) fn forget(&self, turn: u64) -> bool {
        let mut stream = self.stream();
        if stream.turn != turn {
            return false;
        }
        stream.dismiss_all();
        (stream.is_whole, stream.backlog) = (false, None);
        stream.commit.forget();
        self.is_on.store(false, Ordering::Release);
        self.recount(&mut stream);
        true
    }

    /// The data are gone, and those of a dump begin to come.
    pub(super) fn note_torn(&self) {
        self.stream().is_torn = true;
    }

    /// Whether only a part of a dump is there, or nothing at all, because it has not been read whole.
    pub(super) fn is_torn(&self) -> bool {
        self.stream().is_torn
    }

    /// The data that are here are nobody else's: nobody goes on from what it has, and nobody has acknowledged anything.
    pub(super) fn break_off(&self) {
        let mut stream = self.stream();
        stream.dismiss_all();
        stream.backlog = None;
        stream.commit.forget();
        self.is_on.store(false, Ordering::Release);
    }

    /// The data are those of a point of another server's history. False if it is another turn.
    pub(super) fn adopt(&self, turn: u64, point: Point, identity: &Identity) -> bool {
        let mut stream = self.stream();
        if stream.turn != turn {
            return false;
        }
        identity.set_history(point.history);
        stream.begin_anew(point.position, point.database);
        (stream.is_whole, stream.is_torn) = (true, false);
        self.settle(&mut stream);
        true
    }

    /// The data came from a file, which says that they are those of a point. Nobody is served yet.
    pub(crate) fn restore(&self, point: &Point, identity: &Identity, draws: [u64; 2], now: Now) {
        let mut stream = self.stream();
        stream.begin_anew(point.position, point.database);
        // Who is told to follow another before anything is done goes on from the point itself.
        identity.branch_history(&point.history, point.position, draws);
        stream.lonely_since_s = now.seconds();
        self.is_on.store(true, Ordering::Release);
        self.settle(&mut stream);
    }

    /// The primary goes on where we are, and calls the history so.
    pub(super) fn go_on(&self, turn: u64, history: Option<&str>, identity: &Identity) -> bool {
        let mut stream = self.stream();
        if stream.turn != turn {
            return false;
        }
        if let Some(name) = history.filter(|name| *name != identity.history()) {
            identity.rename_history(name.to_owned(), stream.end);
            stream.dismiss_all();
        }
        if stream.backlog.is_none() {
            let (end, database) = (stream.end, stream.database);
            stream.begin_anew(end, database);
        }
        true
    }

    /// Appends what the primary sent, which is in effect; the keys that it is about must still be locked. False if it is another
    /// turn: then nothing was done.
    pub(super) fn relay(&self, turn: u64, bytes: &[u8], database: usize) -> bool {
        let mut stream = self.stream();
        if stream.turn != turn {
            return false;
        }
        stream.put(bytes);
        stream.note_caught_up();
        stream.database = Some(database);
        self.settle(&mut stream);
        true
    }

    /// The point that the data are at, if they are at one. What commands hold must be locked, or none may run.
    pub(crate) fn point(&self, identity: &Identity) -> Option<Point> {
        let stream = self.stream();
        let is_known = if stream.is_relay { stream.is_whole } else { stream.backlog.is_some() };
        is_known.then(|| Point { history: identity.history(), position: stream.end, database: stream.database })
    }

    /// The database that the stream's next command is for.
    pub(super) fn database(&self) -> usize {
        self.stream().database.unwrap_or(0)
    }

    /// Whether the stream is a primary's.
    pub(super) fn is_relay(&self) -> bool {
        self.stream().is_relay
    }
}
