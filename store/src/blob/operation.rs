//! Operations: requests and the scrub on their way, step by step.
//!
//! Changes of one blob are done one after the other: each has the blob's gate from its first step to its answer. Reads
//! have no gate; they see what is durable.

use std::collections::{BTreeMap, VecDeque};

use ashlar_wire::id::BlobId;
use ashlar_wire::time::Instant;

use super::Blobs;
use super::batch::{Record, RecordBody, RecordData};
use super::entry::{EntryKind, LogEntry, Place};
use super::error::BlobError;
use super::head::{ChunkHasher, RecordHead};
use super::index::IndexEntry;
use super::log::{Append, AppendOwner};
use super::read::RecordRead;
use super::request::{
    BlobEvent, BlobReply, BlobRequest, BlobRequestKind, HEADER_BYTES_MAX, ListDetail, ListedBlob, ListedHeader, NewBlob,
};
use crate::buffer::{AlignedBuf, BLOCK_BYTES, Segment};
use crate::request::RequestId;

/// Names an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct OpId(pub(super) u64);

/// For whom an operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// A request of the caller.
    Request(RequestId),
    /// The scrub reads a blob.
    Scrub,
    /// A request that a planted bug has answered already.
    Answered,
}

/// Whether a blob that is there is written again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PutMode {
    New,
    Repair,
}

/// What an operation does.
#[derive(Debug)]
pub(super) enum Task {
    Put {
        mode: PutMode,
        head: RecordHead,
        /// Taken when the record goes to the log.
        data: Vec<Segment>,
    },
    Remove {
        blob: BlobId,
        /// It is removed only if it has this one, if any is given.
        stamp: Option<u64>,
    },
    Get {
        blob: BlobId,
        offset: u32,
        len: u32,
    },
    Head(BlobId),
    List {
        after: Option<BlobId>,
        limit: usize,
        detail: ListDetail,
        /// Whether there may be more behind those that are read.
        more: bool,
    },
}

impl Task {
    /// The blob that it changes.
    const fn gate(&self) -> Option<BlobId> {
        match self {
            Self::Put { head, .. } => Some(head.blob),
            Self::Remove { blob, .. } => Some(*blob),
            Self::Get { .. } | Self::Head(_) | Self::List { .. } => None,
        }
    }

    /// Bytes that count against `put_bytes_max`.
    pub(super) const fn put_bytes(&self) -> usize {
        match self {
            Self::Put { head, .. } => head.len as usize,
            _ => 0,
        }
    }
}

/// One request or read of the scrub.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) owner: Owner,
    pub(super) deadline: Instant,
    pub(super) task: Task,
    /// It has the gate of its blob, or waits in its line.
    has_gate: bool,
    /// Records that it reads from the drive.
    pub(super) reads: Vec<RecordRead>,
}

/// What a step gave.
#[derive(Debug)]
pub(super) enum Flow {
    /// Something has to happen first.
    Wait,
    /// It is done.
    Done(Result<BlobReply, BlobError>),
}

impl From<BlobError> for Flow {
    fn from(error: BlobError) -> Self {
        Self::Done(Err(error))
    }
}

/// Changes of each blob that is being changed: the first is under way, the others wait.
#[derive(Debug, Default)]
pub(super) struct BlobGates(BTreeMap<BlobId, VecDeque<OpId>>);

impl BlobGates {
    /// Stands in line; says whether nobody else does.
    fn enter(&mut self, blob: BlobId, op: OpId) -> bool {
        let line = self.0.entry(blob).or_default();
        line.push_back(op);
        line.len() == 1
    }

    /// The first of the line leaves; says who is first now.
    fn leave(&mut self, blob: BlobId) -> Option<OpId> {
        let line = self.0.get_mut(&blob).expect("who leaves a line is in it");
        line.pop_front();
        let next = line.front().copied();
        if next.is_none() {
            self.0.remove(&blob);
        }
        next
    }
}

impl Blobs {
    /// What a request asks for, if it can be done at all.
    pub(super) fn task_of(&self, kind: BlobRequestKind) -> Result<Task, BlobError> {
        match kind {
            BlobRequestKind::Put(new) => self.put_task(PutMode::New, new),
            BlobRequestKind::Repair(new) => self.put_task(PutMode::Repair, new),
            BlobRequestKind::Get { blob, offset, len } => Ok(Task::Get { blob, offset, len }),
            BlobRequestKind::Head { blob } => Ok(Task::Head(blob)),
            BlobRequestKind::Remove { blob } => Ok(Task::Remove { blob, stamp: None }),
            BlobRequestKind::RemoveStamped { blob, stamp } => Ok(Task::Remove { blob, stamp: Some(stamp) }),
            BlobRequestKind::List { after, limit, detail } => {
                let limit_max = match detail {
                    ListDetail::Brief => self.config.list_max,
                    ListDetail::Headers => self.config.list_headers_max.min(self.config.list_max),
                };
                Ok(Task::List { after, limit: limit.min(limit_max), detail, more: false })
            }
        }
    }

    fn put_task(&self, mode: PutMode, new: NewBlob) -> Result<Task, BlobError> {
        let NewBlob { blob, stamp, header, len, mut data } = new;
        let bytes_max = self.geometry.blob_bytes_max();
        if header.len() > HEADER_BYTES_MAX {
            return Err(BlobError::HeaderTooLong);
        }
        if len > bytes_max {
            return Err(BlobError::TooLong { bytes_max });
        }
        if data.iter().map(Segment::blocks).sum::<usize>() != NewBlob::blocks_of(len) {
            return Err(BlobError::WrongLength);
        }
        data.retain(|segment| segment.blocks() > 0);
        end_with_zeroes(&mut data, len);
        let hasher = ChunkHasher::new(blob);
        let mut sums = Vec::with_capacity(NewBlob::blocks_of(len));
        let mut left = len as usize;
        for block in data.iter().flat_map(|segment| segment.bytes().chunks_exact(BLOCK_BYTES)) {
            let chunk = &block[..left.min(BLOCK_BYTES)];
            sums.push(hasher.sum(sums.len(), chunk));
            left -= chunk.len();
        }
        Ok(Task::Put { mode, head: RecordHead { blob, stamp, len, header, sums }, data })
    }

    pub(super) fn start(&mut self, owner: Owner, deadline: Instant, task: Task) {
        let id = OpId(self.next_op);
        self.next_op += 1;
        self.operations.insert(id, Operation { owner, deadline, task, has_gate: false, reads: Vec::new() });
        self.ready.push_back(id);
    }

    /// Takes an operation as far as it gets.
    pub(super) fn step(&mut self, id: OpId) {
        let mut operation = self.operations.remove(&id).expect("a ready operation exists");
        if !operation.has_gate
            && let Some(blob) = operation.task.gate()
        {
            operation.has_gate = true;
            if !self.gates.enter(blob, id) {
                self.operations.insert(id, operation);
                return;
            }
        }
        let flow =
            if operation.deadline <= self.now { BlobError::Expired.into() } else { self.advance(id, &mut operation) };
        match flow {
            Flow::Wait => drop(self.operations.insert(id, operation)),
            Flow::Done(result) => self.finish(&operation, result),
        }
    }

    fn advance(&mut self, id: OpId, operation: &mut Operation) -> Flow {
        match operation.task {
            // A blob that is there is compared first.
            Task::Put { ref head, .. } => {
                let blob = head.blob;
                match self.index.live(blob) {
                    Some(held) => self.read_records(id, operation, vec![(blob, held)], 0..0),
                    None => self.log_put(id, operation),
                }
            }
            // Whoever has the gate sees what the changes before it have made.
            Task::Remove { blob, stamp } => match self.index.live(blob) {
                Some(held) if stamp.is_none_or(|stamp| held.log_entry(blob).stamp == stamp) => {
                    self.log_change(id, Record { entry: LogEntry::removal(blob), body: None });
                    Flow::Wait
                }
                _ => Flow::Done(Ok(BlobReply::Done)),
            },
            Task::Head(blob) => match self.index.live(blob) {
                Some(held) => self.read_records(id, operation, vec![(blob, held)], 0..0),
                None => BlobError::NoSuchBlob.into(),
            },
            Task::Get { blob, offset, len } => {
                let Some(held) = self.index.live(blob) else { return BlobError::NoSuchBlob.into() };
                let held_len = held.log_entry(blob).len;
                match offset.checked_add(len).filter(|end| *end <= held_len) {
                    Some(end) => self.read_records(id, operation, vec![(blob, held)], offset..end),
                    None => BlobError::OutsideBlob { len: held_len }.into(),
                }
            }
            Task::List { after, limit, detail, ref mut more } => {
                let mut behind = self.index.behind(after);
                let taken: Vec<(BlobId, IndexEntry)> = behind.by_ref().take(limit).collect();
                *more = behind.next().is_some();
                drop(behind);
                if detail == ListDetail::Headers && !taken.is_empty() {
                    return self.read_records(id, operation, taken, 0..0);
                }
                let listed = |(blob, held): (BlobId, IndexEntry)| {
                    let LogEntry { len, stamp, .. } = held.log_entry(blob);
                    ListedBlob { blob, len, stamp, header: ListedHeader::NotAsked }
                };
                let blobs = taken.into_iter().map(listed).collect();
                Flow::Done(Ok(BlobReply::Blobs { blobs, more: *more }))
            }
        }
    }

    /// All reads of an operation are completed.
    pub(super) fn finish_reads(&mut self, id: OpId, mut operation: Operation) {
        let reads = core::mem::take(&mut operation.reads);
        for read in &reads {
            self.segments.get_mut(read.segment).pins -= 1;
        }
        let mut heads: Vec<(LogEntry, Result<RecordHead, BlobError>)> =
            reads.iter().map(|read| (read.entry, read.verify(self.salts.head, self.bugs))).collect();
        for (entry, _) in heads.iter().filter(|(_, head)| head.is_err()) {
            self.report_damage(entry.blob);
        }
        if let Task::List { more, .. } = operation.task {
            let blobs = heads.into_iter().map(|(entry, head)| listed_with_header(entry, head)).collect();
            return self.finish(&operation, Ok(BlobReply::Blobs { blobs, more }));
        }
        let (_, held) = heads.pop().expect("an operation that reads has a record");
        let flow = match &operation.task {
            Task::Put { mode, head, .. } => match held {
                Ok(held) if (held.len, &held.header, &held.sums) != (head.len, &head.header, &head.sums) => {
                    BlobError::Conflict.into()
                }
                Ok(_) if *mode == PutMode::New => Flow::Done(Ok(BlobReply::Done)),
                Err(error) if *mode == PutMode::New => error.into(),
                _ => self.log_put(id, &mut operation),
            },
            Task::Get { offset, len, .. } => Flow::Done(held.map(|held| {
                let bytes = reads[0].bytes(*offset, *len);
                BlobReply::Data { head: held.into_public(), bytes }
            })),
            Task::Head(_) => Flow::Done(held.map(|held| BlobReply::Head(held.into_public()))),
            Task::Remove { .. } | Task::List { .. } => {
                unreachable!("a removal reads nothing, a list is answered above")
            }
        };
        match flow {
            Flow::Wait => drop(self.operations.insert(id, operation)),
            Flow::Done(result) => self.finish(&operation, result),
        }
    }

    fn log_put(&mut self, id: OpId, operation: &mut Operation) -> Flow {
        let Task::Put { head, data, .. } = &mut operation.task else { unreachable!("only puts come here") };
        let is_packed = head.len <= self.config.packed_bytes_max;
        let entry = LogEntry {
            blob: head.blob,
            stamp: head.stamp,
            len: head.len,
            header_len: u16::try_from(head.header.len()).expect("a header has a limit"),
            kind: if is_packed { EntryKind::Packed } else { EntryKind::Aligned },
            place: Place::default(),
        };
        let data = RecordData::Blocks(core::mem::take(data));
        let body = RecordBody { head: head.encode(self.salts.head), sums: head.sums.clone(), data };
        self.log_change(id, Record { entry, body: Some(body) });
        Flow::Wait
    }

    fn log_change(&mut self, id: OpId, record: Record) {
        self.log.changes.push_back(Append { owner: AppendOwner::Change(id), record });
    }

    /// Ends an operation.
    pub(super) fn finish(&mut self, operation: &Operation, result: Result<BlobReply, BlobError>) {
        if operation.has_gate
            && let Some(blob) = operation.task.gate()
            && let Some(next) = self.gates.leave(blob)
        {
            self.ready.push_back(next);
        }
        match operation.owner {
            Owner::Request(id) => {
                self.requests -= 1;
                self.replies.push_back((id, result));
            }
            Owner::Scrub => self.scrub.due = self.config.scrub_interval.map(|interval| self.now + interval),
            Owner::Answered => {}
        }
        self.put_bytes -= operation.task.put_bytes();
    }

    pub(super) fn report_damage(&mut self, blob: BlobId) {
        if self.events.len() < super::EVENTS_MAX {
            self.events.push_back(BlobEvent::Damage { blob });
        }
    }

    /// Checks the request before it counts, and starts it.
    pub(super) fn accept(&mut self, id: RequestId, request: BlobRequest) -> Result<(), BlobError> {
        let task = self.task_of(request.kind);
        let bytes = task.as_ref().map_or(0, Task::put_bytes);
        if self.put_bytes > 0 && bytes > self.config.put_bytes_max.saturating_sub(self.put_bytes) {
            return Err(BlobError::Busy);
        }
        match task {
            Ok(task) => {
                self.requests += 1;
                self.put_bytes += bytes;
                self.start(Owner::Request(id), request.deadline, task);
            }
            Err(error) => self.replies.push_back((id, Err(error))),
        }
        Ok(())
    }
}

fn listed_with_header(entry: LogEntry, head: Result<RecordHead, BlobError>) -> ListedBlob {
    let header = head.map_or(ListedHeader::Damaged, |head| ListedHeader::Whole(head.header));
    ListedBlob { blob: entry.blob, len: entry.len, stamp: entry.stamp, header }
}

/// Replaces the last block by one that is zero behind the blob's end: nothing of the caller's memory reaches the drive.
fn end_with_zeroes(data: &mut Vec<Segment>, len: u32) {
    let used = len as usize % BLOCK_BYTES;
    let Some(last) = data.pop_if(|_| used > 0) else { return };
    let before = last.blocks() - 1;
    let mut end = AlignedBuf::zeroed(1);
    end[..used].copy_from_slice(&last.bytes()[before * BLOCK_BYTES..][..used]);
    if before > 0 {
        data.push(last.part(0, before));
    }
    data.push(end.into());
}
