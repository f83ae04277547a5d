//! Group commit: entries gather while a batch is in flight, and make the next one.
//!
//! What a batch holds is applied in memory, and its requests are answered, when it is durable: in this order, and not
//! before.

use std::collections::VecDeque;

use ashlar_wire::checksum::Salt;
use ashlar_wire::time::Instant;

use super::Store;
use super::operation::{Operation, Stage};
use super::submit::{Purpose, Urgency};
use crate::buffer::Segment;
use crate::gate::OpId;
use crate::io::{Durability, IoKind};
use crate::journal::batch::{BATCH_BLOCKS_MAX, BatchPlace, BatchSeq, batch_blocks, encode_batch};
use crate::journal::entry::Entry;
use crate::journal::ring::{LiveBatch, Reserve, Ring};
use crate::planted::Bug;
use crate::request::Reply;

/// An entry that waits for a batch.
#[derive(Debug)]
struct Pending {
    op: OpId,
    entry: Entry,
    data: Option<Segment>,
}

/// The batch that is being written.
#[derive(Debug)]
struct Flight {
    sequence: BatchSeq,
    tail: BatchSeq,
    /// Its inline data stands in the batch's own buffer.
    entries: Vec<Pending>,
}

/// The journal of an open drive.
#[derive(Debug)]
pub(crate) struct Journal {
    salt: Salt,
    ring: Ring,
    ring_blocks: u32,
    generation: u64,
    pending: VecDeque<Pending>,
    flight: Option<Flight>,
    /// The oldest batch that recovery needs, by what is in its place.
    tail: BatchSeq,
    /// The same by what the newest durable batch says.
    durable_tail: BatchSeq,
    /// When an empty batch is due: behind one with entries, or for a new tail.
    seal_at: Option<Instant>,
}

/// With what a journal begins.
pub(crate) struct JournalStart {
    pub(crate) salt: Salt,
    pub(crate) ring_blocks: u32,
    pub(crate) live: VecDeque<LiveBatch>,
    pub(crate) generation: u64,
    pub(crate) tail: BatchSeq,
    pub(crate) seal_at: Instant,
}

impl Journal {
    pub(crate) fn new(start: JournalStart) -> Self {
        Self {
            salt: start.salt,
            ring: Ring::new(start.ring_blocks, start.live),
            ring_blocks: start.ring_blocks,
            generation: start.generation,
            pending: VecDeque::new(),
            flight: None,
            tail: start.tail,
            durable_tail: start.tail,
            // Not known to have an empty batch behind the last one.
            seal_at: Some(start.seal_at),
        }
    }

    pub(super) fn seal_due(&self) -> Option<Instant> {
        self.seal_at.filter(|_| self.flight.is_none() && self.pending.is_empty())
    }

    pub(super) fn is_settled(&self) -> bool {
        self.pending.is_empty() && self.flight.is_none() && self.seal_at.is_none()
    }

    pub(super) fn is_half_full(&self) -> bool {
        self.ring.used() > self.ring_blocks / 2 && self.tail != self.first_unapplied()
    }

    /// The oldest batch that is not durable.
    pub(super) fn first_unapplied(&self) -> BatchSeq {
        self.flight.as_ref().map_or(self.ring.next_sequence(), |flight| flight.sequence)
    }

    pub(super) fn move_tail(&mut self, tail: BatchSeq, seal_at: Instant) {
        assert!(tail >= self.tail, "the tail moves forward");
        if tail > self.tail {
            self.tail = tail;
            self.seal_at = Some(seal_at);
        }
    }
}

impl Store {
    /// Puts an entry into the next batch.
    pub(super) fn enqueue(&mut self, op: OpId, operation: &mut Operation, entry: Entry, data: Option<Segment>) {
        assert!(entry.data_blocks() == data.as_ref().map_or(0, Segment::blocks), "inline data stands in the batch");
        operation.stage = Stage::Journaled;
        // From here on it is not dropped any more.
        operation.deadline = Instant::NEVER;
        self.journal.pending.push_back(Pending { op, entry, data });
    }

    /// Writes the next batch, if none is in flight and there is something to write and space for it.
    pub(super) fn commit_next(&mut self) {
        if self.journal.flight.is_some() {
            return;
        }
        if self.bugs.has(Bug::ReuseJournalEarly) {
            self.journal.ring.release_before(self.journal.tail);
        }
        let (count, blocks) = self.gather();
        if count > 0
            && let Some(position) = self.journal.ring.place(blocks, Reserve::Keep)
        {
            return self.write_batch(position, blocks, count);
        }
        let is_stuck = !self.journal.pending.is_empty();
        if self.journal.tail > self.journal.durable_tail && is_stuck {
            // Space comes back only when the new tail is durable.
            let position = self.journal.ring.place(1, Reserve::Use).expect("a block is kept for a new tail");
            return self.write_batch(position, 1, 0);
        }
        if is_stuck {
            self.start_round();
            return self.advance_round();
        }
        if self.journal.seal_at.is_some_and(|at| at <= self.now) {
            let is_new_tail = self.journal.tail > self.journal.durable_tail;
            let reserve = if is_new_tail { Reserve::Use } else { Reserve::Keep };
            match self.journal.ring.place(1, reserve) {
                Some(position) => self.write_batch(position, 1, 0),
                None => self.journal.seal_at = None,
            }
        }
    }

    /// How many pending entries the next batch takes, and its blocks.
    fn gather(&self) -> (usize, u32) {
        let (mut entry_bytes, mut data_blocks, mut count) = (0, 0, 0);
        let mut pages = std::collections::BTreeSet::new();
        for pending in &self.journal.pending {
            let (bytes, data) = (entry_bytes + pending.entry.len(), data_blocks + pending.entry.data_blocks());
            let page = self.tables.page_of(&pending.entry).expect("an entry names a cell of its table");
            if !self.tables.dirty.contains_key(&page) {
                pages.insert(page);
            }
            let is_too_much = batch_blocks(bytes, data) > BATCH_BLOCKS_MAX
                || self.tables.dirty.len() + pages.len() > self.config.dirty_pages_max;
            let has_place = || {
                let blocks = u32::try_from(batch_blocks(bytes, data)).expect("a batch has a limit");
                self.journal.ring.place(blocks, Reserve::Keep).is_some()
            };
            if is_too_much || !has_place() {
                break;
            }
            (entry_bytes, data_blocks, count) = (bytes, data, count + 1);
        }
        (count, u32::try_from(batch_blocks(entry_bytes, data_blocks)).expect("a batch has a limit"))
    }

    fn write_batch(&mut self, position: u32, blocks: u32, count: usize) {
        let journal = &mut self.journal;
        assert!(journal.flight.is_none(), "one batch is in flight at a time, so that one alone can be torn");
        let sequence = journal.ring.next_sequence();
        let place = BatchPlace { sequence, generation: journal.generation, tail: journal.tail, position };
        let mut entries: Vec<Pending> = journal.pending.drain(..count).collect();
        let data: Vec<Segment> = entries.iter().filter_map(|pending| pending.data.clone()).collect();
        let buf = encode_batch(journal.salt, place, entries.iter().map(|pending| &pending.entry), &data);
        assert!(buf.blocks() == blocks as usize, "a batch has the size that was placed");
        journal.ring.push(LiveBatch { sequence, position, blocks });
        let segment = Segment::from(buf);
        // From now on the data is the batch's copy; the caller's buffers are free.
        let mut at = blocks as usize - data.iter().map(Segment::blocks).sum::<usize>();
        for slot in entries.iter_mut().filter_map(|pending| pending.data.as_mut()) {
            let own = segment.part(at, slot.blocks());
            at += slot.blocks();
            *slot = own;
        }
        journal.flight = Some(Flight { sequence, tail: place.tail, entries });
        let offset = self.geometry.journal_offset(position);
        let durability = if self.bugs.has(Bug::JournalNotDurable) { Durability::Cached } else { Durability::Durable };
        let kind = IoKind::Write { offset, data: vec![segment], durability };
        self.submissions.submit(Urgency::Journal, Purpose::Journal, kind);
        if self.bugs.has(Bug::AnswerBeforeDurable) {
            self.answer_early();
        }
    }

    /// The planted bug: requests are answered while their batch is in flight.
    fn answer_early(&mut self) {
        let flight = self.journal.flight.as_ref().expect("a batch was just submitted");
        let mut answered = Vec::new();
        for pending in &flight.entries {
            let Some(operation) = self.operations.get_mut(&pending.op) else { continue };
            if let super::operation::Owner::Request(id) = operation.owner {
                operation.owner = super::operation::Owner::Scrub;
                answered.push(id);
            }
        }
        self.requests -= answered.len();
        self.completions.extend(answered.into_iter().map(|id| (id, Ok(Reply::Done))));
    }

    /// The batch in flight is durable: it is applied and its requests are answered.
    pub(super) fn finish_batch(&mut self) {
        let flight = self.journal.flight.take().expect("a batch was in flight");
        self.journal.durable_tail = flight.tail;
        self.journal.ring.release_before(flight.tail);
        let is_seal = flight.entries.is_empty();
        let seal_at = self.now + self.config.seal_after;
        self.journal.seal_at = (!is_seal || self.journal.tail > flight.tail).then_some(seal_at);
        for Pending { op, entry, data } in flight.entries {
            if let Some(change) = self.tables.apply(&entry, data.as_ref(), flight.sequence) {
                self.index.update(change);
            }
            self.index_table_change(&entry);
            let operation = self.operations.remove(&op).expect("an operation waits for its entry");
            self.finish(operation, Ok(Reply::Done));
        }
    }
}
