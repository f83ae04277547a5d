//! One ordered stream of changes from a primary to each other member, over messages that may be lost, doubled or late.
//!
//! The sender numbers entries from 1, keeps what is not acknowledged, and sends it again; the receiver submits entries
//! to its store in the order of their numbers, whatever order they arrive in, and acknowledges how far the stream is
//! durable without a gap. Writes and copies of extents share the stream: that is how they meet in the right order.
//!
//! A stream lasts one epoch. A receiver that lost its memory takes part in a later epoch only.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use ashlar_placement::rule::ExtentId;
use ashlar_wire::time::Instant;
use ashlar_wire::version::Version;

use crate::request::{Content, Generation, Run};

/// Unacknowledged entries of one stream. A member that owes more is too slow, and its removal is asked for.
pub const WINDOW_MAX: usize = 4_096;
/// Unacknowledged bytes of content of one stream.
pub const WINDOW_BYTES_MAX: usize = 256 << 20;
/// Entries that are sent again at a time.
const RESEND_MAX: usize = 32;

/// One change of an extent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A client's write.
    Write {
        /// Position in the order of the placement group.
        version: Version,
        /// Attachment of the client.
        generation: Generation,
        /// Which extent.
        extent: ExtentId,
        /// What, and where.
        run: Run,
    },
    /// What makes a copy of an extent equal to the primary's.
    Patch {
        /// Version of the extent from then on.
        version: Version,
        /// Which extent.
        extent: ExtentId,
        /// The blocks that differ.
        runs: Vec<Run>,
    },
    /// Last entry of the filling of a learner: its copy is whole when all before this is durable, and its record is to
    /// say so, durably.
    Whole,
}

impl Entry {
    /// Bytes of content.
    pub(crate) fn content_bytes(&self) -> usize {
        let len = |content: &Content| if let Content::Data(data) = content { data.len() } else { 0 };
        match self {
            Self::Write { run, .. } => len(&run.content),
            Self::Patch { runs, .. } => runs.iter().map(|run| len(&run.content)).sum(),
            Self::Whole => 0,
        }
    }

    /// Sequence number of a write.
    const fn sequence(&self) -> Option<u64> {
        match self {
            Self::Write { version, .. } => Some(version.sequence),
            Self::Patch { .. } | Self::Whole => None,
        }
    }
}

/// How far a stream has come at its receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Everything up to this number has arrived.
    pub received: u64,
    /// Everything up to this number is on stable storage. At most `received`.
    pub durable: u64,
}

/// Numbers from 1 that are done in any order: all up to one of them, and some beyond.
#[derive(Debug, Default)]
pub(crate) struct Watermark {
    upto: u64,
    beyond: BTreeSet<u64>,
}

impl Watermark {
    /// This one is done.
    pub(crate) fn insert(&mut self, number: u64) {
        debug_assert!(number > self.upto, "a number is done once");
        self.beyond.insert(number);
        while self.beyond.remove(&(self.upto + 1)) {
            self.upto += 1;
        }
    }

    /// All up to this one are done.
    pub(crate) const fn upto(&self) -> u64 {
        self.upto
    }
}

/// The sender's end.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    /// Number of the first unacknowledged entry, less one: how far the stream is durable at the receiver.
    durable: u64,
    /// How far the stream has arrived at the receiver without a gap, as far as is known. At least `durable`.
    received: u64,
    /// Entries that are not acknowledged, each with the moment at which it was sent last.
    entries: VecDeque<(Entry, Instant)>,
    bytes: usize,
    /// Sequence number of the last acknowledged write.
    durable_sequence: u64,
    /// When the stream last advanced, or was empty.
    progress_at: Instant,
}

impl Outgoing {
    /// Appends an entry and returns its number.
    pub(crate) fn push(&mut self, now: Instant, entry: Entry) -> u64 {
        if self.entries.is_empty() {
            self.progress_at = now;
        }
        self.bytes += entry.content_bytes();
        self.entries.push_back((entry, now));
        self.end()
    }

    /// Number of the last entry.
    pub(crate) fn end(&self) -> u64 {
        self.durable + self.entries.len() as u64
    }

    /// The receiver has everything up to `received`, and up to `durable` on stable storage. Says whether that can be.
    pub(crate) fn handle_progress(&mut self, now: Instant, progress: Progress) -> bool {
        let Progress { received, durable } = progress;
        if durable > received || received > self.end() {
            return false;
        }
        self.received = self.received.max(received);
        while self.durable < durable {
            let (entry, _) = self.entries.pop_front().expect("entries reach up to the end");
            self.bytes -= entry.content_bytes();
            self.durable_sequence = entry.sequence().unwrap_or(self.durable_sequence);
            self.durable += 1;
            self.progress_at = now;
        }
        debug_assert!(
            self.durable <= self.received && self.received <= self.end(),
            "nothing is durable that has not arrived"
        );
        debug_assert!(!self.entries.is_empty() || self.bytes == 0, "bytes are those of unacknowledged entries");
        true
    }

    /// The entries to send again, with their numbers: they did not arrive, and were sent `patience` ago or earlier.
    pub(crate) fn resend(&mut self, now: Instant, patience: Duration) -> impl Iterator<Item = (u64, &Entry)> {
        let arrived = usize::try_from(self.received - self.durable).unwrap_or(usize::MAX);
        let numbered = (self.durable + 1..).zip(&mut self.entries).skip(arrived).take(RESEND_MAX);
        numbered.filter(move |(_, (_, sent_at))| *sent_at + patience <= now).map(move |(index, (entry, sent_at))| {
            *sent_at = now;
            (index, &*entry)
        })
    }

    pub(crate) const fn durable(&self) -> u64 {
        self.durable
    }

    pub(crate) const fn durable_sequence(&self) -> u64 {
        self.durable_sequence
    }

    /// Since when an acknowledgement is owed; nothing if none is.
    pub(crate) fn owed_since(&self) -> Option<Instant> {
        (!self.entries.is_empty()).then_some(self.progress_at)
    }

    /// Whether a limit is reached.
    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= WINDOW_MAX || self.bytes >= WINDOW_BYTES_MAX
    }
}

/// The receiver's end.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    /// Number of the last entry that was submitted to the store.
    submitted: u64,
    /// Entries behind a gap.
    early: BTreeMap<u64, Entry>,
    durable: Watermark,
}

impl Incoming {
    /// An entry arrived. Entries that are double or too far ahead are dropped: they come again if they are needed.
    pub(crate) fn accept(&mut self, index: u64, entry: Entry) {
        if index > self.submitted && index - self.submitted <= WINDOW_MAX as u64 {
            self.early.insert(index, entry);
        }
    }

    /// The next entry in order, which the caller submits to the store now.
    pub(crate) fn next(&mut self) -> Option<(u64, Entry)> {
        let entry = self.early.remove(&(self.submitted + 1))?;
        self.submitted += 1;
        Some((self.submitted, entry))
    }

    /// For a planted bug: any entry that is there.
    pub(crate) fn next_as_arrived(&mut self) -> Option<(u64, Entry)> {
        let (index, entry) = self.early.pop_first()?;
        self.submitted = self.submitted.max(index);
        Some((index, entry))
    }

    /// The store has made an entry durable.
    pub(crate) fn handle_done(&mut self, index: u64) {
        self.durable.insert(index);
    }

    /// How far the stream has come here.
    pub(crate) const fn progress(&self) -> Progress {
        Progress { received: self.submitted, durable: self.durable.upto() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use ashlar_wire::epoch::Epoch;

    fn entry(sequence: u64) -> Entry {
        let run = Run { offset: 0, content: Content::Data(vec![0; 4_096].into()) };
        let version = Version { epoch: Epoch(1), sequence };
        Entry::Write { version, generation: Generation(1), extent: ExtentId::default(), run }
    }

    #[test]
    fn entries_are_submitted_in_order_and_acknowledged_without_a_gap() {
        let mut incoming = Incoming::default();
        for index in [3, 1, 1, 2, 2] {
            incoming.accept(index, entry(index));
        }
        let order: Vec<u64> = core::iter::from_fn(|| incoming.next()).map(|(index, _)| index).collect();
        assert_eq!(order, [1, 2, 3]);
        incoming.accept(2, entry(2));
        assert_eq!(incoming.next(), None, "a double is dropped");
        incoming.handle_done(3);
        incoming.handle_done(2);
        assert_eq!(incoming.progress(), Progress { received: 3, durable: 0 });
        incoming.handle_done(1);
        assert_eq!(incoming.progress(), Progress { received: 3, durable: 3 });
        incoming.accept(4 + WINDOW_MAX as u64, entry(9));
        assert!(incoming.early.is_empty(), "too far ahead");
    }

    #[test]
    fn the_sender_keeps_what_is_not_acknowledged() {
        let (mut outgoing, now) = (Outgoing::default(), Instant::from_nanos);
        assert_eq!(outgoing.owed_since(), None);
        for sequence in 1..=3 {
            assert_eq!(outgoing.push(now(sequence), entry(sequence)), sequence);
        }
        let patience = Duration::from_nanos(2);
        let again = |outgoing: &mut Outgoing, at: u64| -> Vec<u64> {
            outgoing.resend(now(at), patience).map(|(index, _)| index).collect()
        };
        assert_eq!((outgoing.owed_since(), again(&mut outgoing, 2)), (Some(now(1)), vec![]), "just sent");
        assert_eq!(again(&mut outgoing, 4), [1, 2]);
        assert_eq!(again(&mut outgoing, 5), [3]);
        let progress = |received, durable| Progress { received, durable };
        assert!(outgoing.handle_progress(now(7), progress(2, 1)));
        assert_eq!((outgoing.durable_sequence(), outgoing.owed_since()), (1, Some(now(7))));
        assert!(!outgoing.handle_progress(now(8), progress(4, 4)), "never sent");
        assert!(!outgoing.handle_progress(now(8), progress(1, 2)), "durable before it arrived");
        assert!(outgoing.handle_progress(now(8), progress(1, 1)), "old news change nothing");
        assert_eq!(again(&mut outgoing, 9), [3], "the second one arrived");
        while !outgoing.is_full() {
            outgoing.push(now(9), entry(9));
        }
        assert_eq!(again(&mut outgoing, 20).len(), RESEND_MAX);
        assert_eq!(outgoing.entries.len(), WINDOW_MAX);
    }
}
