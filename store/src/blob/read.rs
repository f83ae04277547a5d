//! Reads of records: the head, which has the checksums, and the wanted blocks of data.
//!
//! Where the index says that the blob lies, its head and data are at known places: both are read at once, in one IO where
//! they are close together.

use core::ops::Range;

use ashlar_wire::checksum::Salt;
use ashlar_wire::id::BlobId;
use ashlar_wire::time::Instant;

use super::Blobs;
use super::entry::LogEntry;
use super::error::BlobError;
use super::head::{CHUNK_BYTES, ChunkHasher, RecordHead};
use super::index::IndexEntry;
use super::operation::{Flow, OpId, Operation, Owner, Task};
use super::planted::{BlobBug, BlobBugs};
use super::request::{BlobBytes, BlobHead};
use super::submit::{Purpose, Urgency};
use crate::buffer::{AlignedBuf, BLOCK_BYTES, Segment};
use crate::io::{IoError, IoKind};

/// Head and data are read in one IO if so many blocks lie between them, or fewer.
const GAP_BLOCKS_MAX: usize = 16;

/// Consecutive blocks that are read.
#[derive(Debug)]
struct ReadSpan {
    /// First block in the segment.
    block: usize,
    blocks: usize,
    data: Option<Segment>,
}

impl ReadSpan {
    /// The blocks with these bytes.
    const fn around(bytes: &Range<usize>) -> Self {
        let block = bytes.start / BLOCK_BYTES;
        Self { block, blocks: bytes.end.div_ceil(BLOCK_BYTES) - block, data: None }
    }

    const fn start(&self) -> usize {
        self.block * BLOCK_BYTES
    }
}

/// A record on its way from the drive.
#[derive(Debug)]
pub(super) struct RecordRead {
    pub(super) entry: LogEntry,
    pub(super) segment: u32,
    /// Chunks of data that are read.
    chunks: Range<usize>,
    /// The first has the head, the last the data.
    spans: Vec<ReadSpan>,
    error: Option<IoError>,
}

impl RecordRead {
    fn plan(entry: LogEntry, segment: u32, bytes: &Range<u32>) -> Self {
        let span = entry.span();
        let head = ReadSpan::around(&(span.head..span.head_end));
        let chunks = if bytes.is_empty() {
            0..0
        } else {
            bytes.start as usize / CHUNK_BYTES..(bytes.end as usize).div_ceil(CHUNK_BYTES)
        };
        let mut read = Self { entry, segment, chunks: chunks.clone(), spans: vec![head], error: None };
        if !chunks.is_empty() {
            let data = ReadSpan::around(&(read.chunk(chunks.start).start..read.chunk(chunks.end - 1).end));
            let head = &mut read.spans[0];
            if data.block <= head.block + head.blocks + GAP_BLOCKS_MAX {
                head.blocks = data.block + data.blocks - head.block;
            } else {
                read.spans.push(data);
            }
        }
        read
    }

    /// Where a chunk lies in the segment.
    fn chunk(&self, chunk: usize) -> Range<usize> {
        let (first, len) = (chunk * CHUNK_BYTES, self.entry.len as usize);
        let start = self.entry.span().data;
        start + first..start + len.min(first + CHUNK_BYTES)
    }

    fn is_complete(&self) -> bool {
        self.spans.iter().all(|span| span.data.is_some())
    }

    fn slice<'a>(span: &'a ReadSpan, bytes: &Range<usize>) -> &'a [u8] {
        let data = span.data.as_ref().expect("a read without an error is complete");
        &data.bytes()[bytes.start - span.start()..bytes.end - span.start()]
    }

    fn data_span(&self) -> &ReadSpan {
        self.spans.last().expect("a record has a span")
    }

    /// The head, if it and all chunks that were read are what was written.
    pub(super) fn verify(&self, salt: Salt, bugs: BlobBugs) -> Result<RecordHead, BlobError> {
        if let Some(error) = self.error {
            return Err(BlobError::ReadFailed(error));
        }
        let span = self.entry.span();
        let head = RecordHead::decode(salt, Self::slice(&self.spans[0], &(span.head..span.head_end)));
        let is_right = |head: &RecordHead| {
            let entry = self.entry;
            (head.blob, head.stamp, head.len, head.header.len())
                == (entry.blob, entry.stamp, entry.len, usize::from(entry.header_len))
        };
        let head = head.filter(|head| is_right(head) || (bugs.has(BlobBug::IgnoreHead) && head.len == self.entry.len));
        let head = head.ok_or(BlobError::Damaged)?;
        let hasher = ChunkHasher::new(head.blob);
        let is_whole = |chunk: usize| {
            hasher.sum(chunk, Self::slice(self.data_span(), &self.chunk(chunk))) == head.sums[chunk]
                || bugs.has(BlobBug::SkipVerification)
        };
        if self.chunks.clone().all(is_whole) { Ok(head) } else { Err(BlobError::Damaged) }
    }

    /// Bytes of a range whose chunks were read.
    pub(super) fn bytes(&self, offset: u32, len: u32) -> BlobBytes {
        let span = self.data_span();
        let segment = span.data.clone().expect("a read without an error is complete");
        let start = if len == 0 { 0 } else { self.entry.span().data + offset as usize - span.start() };
        BlobBytes::new(segment, start, len as usize)
    }
}

impl RecordHead {
    pub(super) fn into_public(self) -> BlobHead {
        BlobHead { blob: self.blob, len: self.len, stamp: self.stamp, header: self.header }
    }
}

impl Blobs {
    /// Reads the heads of blobs, and bytes of their data.
    pub(super) fn read_records(
        &mut self,
        id: OpId,
        operation: &mut Operation,
        blobs: Vec<(BlobId, IndexEntry)>,
        bytes: Range<u32>,
    ) -> Flow {
        // From here on the request has cost an IO: it is not dropped any more.
        operation.deadline = Instant::NEVER;
        let urgency = if operation.owner == Owner::Scrub { Urgency::Background } else { Urgency::Request };
        for (record, (blob, held)) in blobs.into_iter().enumerate() {
            let read = RecordRead::plan(held.log_entry(blob), held.segment, &bytes);
            // Nothing is written there before the read is done.
            self.segments.get_mut(held.segment).pins += 1;
            for (span, ReadSpan { block, blocks, .. }) in read.spans.iter().enumerate() {
                let len = blocks * BLOCK_BYTES;
                let block = u32::try_from(*block).expect("a segment has a limit");
                let kind = IoKind::Read { offset: self.geometry.offset(held.segment, block), len };
                self.submissions.submit(urgency, Purpose::Read { op: id, record, span, len }, kind);
            }
            operation.reads.push(read);
        }
        Flow::Wait
    }

    pub(super) fn finish_read(&mut self, id: OpId, record: usize, span: usize, result: Result<AlignedBuf, IoError>) {
        let operation = self.operations.get_mut(&id).expect("an operation waits for its read");
        let read = &mut operation.reads[record];
        match result {
            Ok(data) => read.spans[span].data = Some(data.into()),
            Err(error) => {
                read.error = read.error.or(Some(error));
                read.spans[span].data = Some(AlignedBuf::zeroed(0).into());
            }
        }
        if operation.reads.iter().all(RecordRead::is_complete) {
            let operation = self.operations.remove(&id).expect("it was just looked at");
            self.finish_reads(id, operation);
        }
    }

    /// Reads the next blob of the scrub.
    pub(super) fn scrub_next(&mut self) {
        let next = self.index.behind(self.scrub.after).next();
        self.scrub.after = next.map(|(blob, _)| blob);
        let Some((blob, held)) = next else {
            // Once around: from the beginning next time.
            self.scrub.due = self.config.scrub_interval.map(|interval| self.now + interval);
            return;
        };
        self.scrub.due = None;
        let len = held.log_entry(blob).len;
        self.start(Owner::Scrub, Instant::NEVER, Task::Get { blob, offset: 0, len });
    }
}
