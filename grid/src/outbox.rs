//! What waits to be written, and in which order it leaves.
//!
//! Three queues. *Control* (pings, pongs, proofs, datagrams) leaves before everything else. *Small* messages are encoded
//! straight into open [`Segment`]s, so that a hundred of them leave in one frame and one write. *Large* payloads stay
//! where they are and give one chunk at a time, in turn and by class, into the room that a batch has left: a large one
//! never stands before a small one for longer than a batch.
//!
//! The connection's task takes a [`Batch`] out under the lock, writes it without the lock, and gives its buffers back.

use std::collections::VecDeque;
use std::sync::Arc;

use ashlar_wire::checksum::Salt;

use crate::config::FRAME_TARGET;
use crate::frame::{FRAME_PAYLOAD_MAX, Segment, Side};
use crate::message::{self, CHECKSUM_LEN, Flags, HEADER_MAX, Header, MuxId, Op};

/// Bytes that one batch takes at most, give or take a frame.
const BATCH_MAX: usize = 256 * 1024;
/// Bytes of large payloads in one batch: what a small message may find before it.
const LARGE_PER_BATCH: usize = 64 * 1024;
/// Bytes of datagrams that wait at most: the rest of the frame stays free for pings.
const DATAGRAM_BYTES_MAX: usize = FRAME_TARGET * 3 / 4;
/// Buffers kept for reuse: those of one batch.
const SPARE_MAX: usize = BATCH_MAX / FRAME_TARGET;
/// A buffer that grew beyond this is not kept.
const SPARE_CAPACITY_MAX: usize = 2 * FRAME_PAYLOAD_MAX;

/// How urgent a large payload is. Each turn serves the most urgent class first, and the others once in four turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Class {
    /// Somebody waits.
    #[default]
    Foreground,
    /// Repair, migration, scrubbing.
    Background,
}

/// Sealed frames on their way to the socket.
#[derive(Debug, Default)]
pub struct Batch {
    segments: VecDeque<Segment>,
    /// Bytes of the first segment that are written.
    written: usize,
}

impl Batch {
    /// Whether all is written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// The unwritten bytes, in order.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let mut skip = self.written;
        self.segments.iter().map(move |segment| &segment.as_bytes()[core::mem::take(&mut skip)..])
    }

    /// Notes that `len` more bytes are written; hands finished buffers to `spare`.
    pub fn advance(&mut self, len: usize, spare: &mut Vec<Vec<u8>>) {
        self.written += len;
        while let Some(first) = self.segments.front() {
            let first_len = first.as_bytes().len();
            if self.written < first_len {
                break;
            }
            self.written -= first_len;
            spare.extend(self.segments.pop_front().map(Segment::into_buffer));
        }
    }
}

#[derive(Debug)]
struct Large {
    header: Header,
    payload: Arc<Vec<u8>>,
    at: usize,
    /// Number of the last segment of small messages that came before it: it leaves after that.
    after: u64,
}

/// The queues of one connection.
#[derive(Debug)]
pub struct Outbox {
    side: Side,
    salt: Option<Salt>,
    chunk_max: usize,
    control: Option<Segment>,
    /// Small messages: full segments, then an open one.
    small: VecDeque<Segment>,
    /// Number of the segment at the front of `small`; every small message knows the number of its own.
    first_segment: u64,
    large: [VecDeque<Large>; 2],
    turn: u32,
    /// Bytes in all queues.
    queued: usize,
    spare: Vec<Vec<u8>>,
}

/// Where a small message waits, to tell later whether it left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    segment: u64,
    /// Where in the segment's buffer.
    at: usize,
}

impl Position {
    /// A message that waits among the large payloads, or waited there.
    pub const LARGE: Self = Self { segment: u64::MAX, at: 0 };
}

impl Outbox {
    /// Empty queues for a connection whose messages carry checksums if `salt`.
    #[must_use]
    pub fn new(side: Side, chunk_max: usize, salt: Option<Salt>) -> Self {
        assert!(
            chunk_max + HEADER_MAX + CHECKSUM_LEN <= FRAME_PAYLOAD_MAX,
            "a chunk with its header fits into a frame"
        );
        Self {
            side,
            salt,
            chunk_max,
            control: None,
            small: VecDeque::new(),
            first_segment: 1,
            large: [VecDeque::new(), VecDeque::new()],
            turn: 0,
            queued: 0,
            spare: Vec::new(),
        }
    }

    /// Appends a message that overtakes all others. Its payload is short.
    pub fn push_control(&mut self, header: &Header, payload: &[u8]) {
        let segment = match &mut self.control {
            Some(segment) if segment.payload_len() + payload.len() < FRAME_TARGET => segment,
            Some(_) => return self.push_overflowing_control(header, payload),
            empty => empty.insert(Segment::new(self.spare.pop().unwrap_or_default())),
        };
        let before = segment.payload_len();
        message::encode(segment.payload_mut(), header, payload, self.salt);
        self.queued += segment.payload_len() - before;
    }

    /// A burst of control messages that fills a frame continues among the small ones, whose order does not matter to it.
    fn push_overflowing_control(&mut self, header: &Header, payload: &[u8]) {
        self.push(header, payload);
    }

    /// Appends a datagram, which overtakes all calls and streams; false, and nothing has happened, where too many wait.
    pub fn push_datagram(&mut self, header: &Header, payload: &[u8]) -> bool {
        let waiting = self.control.as_mut().map_or(0, |segment| segment.payload_len());
        let fits = waiting + HEADER_MAX + CHECKSUM_LEN + payload.len() <= DATAGRAM_BYTES_MAX;
        if fits {
            self.push_control(header, payload);
        }
        fits
    }

    /// Appends a message whose payload fits into a chunk.
    #[inline]
    pub fn push(&mut self, header: &Header, payload: &[u8]) -> Position {
        assert!(payload.len() <= self.chunk_max, "longer payloads go through push_large");
        let needed = HEADER_MAX + CHECKSUM_LEN + payload.len();
        let segment = match self.small.back_mut() {
            Some(open) if open.payload_len() < FRAME_TARGET && open.payload_len() + needed <= FRAME_PAYLOAD_MAX => open,
            _ => {
                self.small.push_back(Segment::new(self.spare.pop().unwrap_or_default()));
                self.small.back_mut().expect("pushed the line before")
            }
        };
        let (before, at) = (segment.payload_len(), segment.payload_mut().len());
        message::encode(segment.payload_mut(), header, payload, self.salt);
        self.queued += segment.payload_len() - before;
        Position { segment: self.first_segment + self.small.len() as u64 - 1, at }
    }

    /// Queues a payload of any length, to leave in chunks.
    pub fn push_large(&mut self, header: Header, payload: Arc<Vec<u8>>, class: Class) {
        self.queued += payload.len();
        let after = self.first_segment + self.small.len() as u64 - 1;
        self.large[class as usize].push_back(Large { header, payload, at: 0, after });
    }

    /// Whether a message at `position` has been handed to the socket, as far as is known.
    #[must_use]
    pub fn has_left(&self, position: Position) -> bool {
        position.segment < self.first_segment
    }

    /// Turns a small request that still waits at `position` into its own cancel, which does nothing where it arrives;
    /// whether it still waited.
    pub fn retract(&mut self, position: Position) -> bool {
        let index = position.segment.checked_sub(self.first_segment).and_then(|index| usize::try_from(index).ok());
        let Some(segment) = index.and_then(|index| self.small.get_mut(index)) else { return false };
        message::change_op(&mut segment.payload_mut()[position.at..], Op::Cancel, self.salt);
        true
    }

    /// Whether a large payload of `id` is queued; `Some(true)` if a part of it has left.
    #[must_use]
    pub fn large_state(&self, id: MuxId, responder: bool) -> Option<bool> {
        self.large.iter().flatten().find(|large| is_of(large, id, responder)).map(|large| large.at > 0)
    }

    /// Drops what is left of a large payload of `id`. Returns whether a part of it has left already.
    pub fn drop_large(&mut self, id: MuxId, responder: bool) -> bool {
        let mut part_left = false;
        for queue in &mut self.large {
            queue.retain(|large| {
                let of_id = is_of(large, id, responder);
                if of_id {
                    part_left |= large.at > 0;
                    self.queued -= large.payload.len() - large.at;
                }
                !of_id
            });
        }
        part_left
    }

    /// Bytes that wait in all queues.
    #[inline]
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queued
    }

    /// Bytes, in whole frames, that wait among the small messages.
    #[inline]
    #[must_use]
    pub fn queued_small(&self) -> usize {
        self.small.len() * FRAME_TARGET
    }

    /// Moves the next frames into `batch`, which must be empty; whether there were any. `finished` is told the mux id
    /// of every large payload whose last chunk is among them.
    pub fn take_batch(&mut self, batch: &mut Batch, mut finished: impl FnMut(MuxId, bool)) -> bool {
        assert!(batch.is_empty(), "a batch is written before the next one is taken");
        let mut len = 0;
        if let Some(control) = self.control.take() {
            len += self.seal_into(control, batch);
        }
        while len < BATCH_MAX
            && let Some(segment) = self.small.pop_front()
        {
            self.first_segment += 1;
            len += self.seal_into(segment, batch);
        }
        let mut large_len = 0;
        while large_len < LARGE_PER_BATCH
            && let Some((class, large)) = self.next_large()
        {
            let segment = self.next_chunk(class, large, &mut finished);
            large_len += self.seal_into(segment, batch);
        }
        !batch.is_empty()
    }

    fn seal_into(&mut self, mut segment: Segment, batch: &mut Batch) -> usize {
        segment.seal(self.side);
        let len = segment.payload_len();
        self.queued = self.queued.saturating_sub(len);
        batch.segments.push_back(segment);
        len
    }

    /// Takes the large payload out whose turn it is, of those that no earlier small message keeps waiting.
    fn next_large(&mut self) -> Option<(usize, Large)> {
        let may_leave = |large: &Large| large.after < self.first_segment;
        let [foreground, background] = self.large.each_ref().map(|queue| queue.iter().position(may_leave));
        let background_turn = self.turn % 4 == 3;
        self.turn = self.turn.wrapping_add(1);
        let (class, at) = match (foreground, background) {
            (None, None) => return None,
            (Some(_), Some(at)) if background_turn => (1, at),
            (Some(at), _) => (0, at),
            (None, Some(at)) => (1, at),
        };
        self.large[class].remove(at).map(|large| (class, large))
    }

    /// Encodes one chunk of a large payload of `class`, which then goes to the end of its queue.
    fn next_chunk(&mut self, class: usize, mut large: Large, finished: &mut impl FnMut(MuxId, bool)) -> Segment {
        let mut segment = Segment::new(self.spare.pop().unwrap_or_default());
        let end = large.payload.len().min(large.at + self.chunk_max);
        let mut header = large.header;
        if large.at > 0 {
            header = Header::new(Op::Chunk, header.id, 0).from_responder(header.flags.contains(Flags::RESPONDER));
        } else if end < large.payload.len() && header.op != Op::Data {
            header.sequence = large.payload.len() as u64;
        }
        if end < large.payload.len() {
            header.flags = header.flags.with(Flags::MORE);
        }
        message::encode(segment.payload_mut(), &header, &large.payload[large.at..end], self.salt);
        // `seal_into` takes the whole segment off `queued`; its header was never counted.
        self.queued += segment.payload_len() - (end - large.at);
        large.at = end;
        if end < large.payload.len() {
            self.large[class].push_back(large);
        } else {
            finished(header.id, header.flags.contains(Flags::RESPONDER));
        }
        segment
    }

    /// Drops everything that waits: nothing of it leaves any more.
    pub fn clear(&mut self) {
        self.control = None;
        self.small = VecDeque::new();
        self.large = [VecDeque::new(), VecDeque::new()];
        self.queued = 0;
    }

    /// Takes buffers back for reuse.
    pub fn reuse(&mut self, buffers: &mut Vec<Vec<u8>>) {
        for buffer in buffers.drain(..) {
            if self.spare.len() < SPARE_MAX && buffer.capacity() <= SPARE_CAPACITY_MAX {
                self.spare.push(buffer);
            }
        }
    }

    /// Frees the buffers kept for reuse: the connection is idle.
    pub fn release_memory(&mut self) {
        self.spare = Vec::new();
        self.small.shrink_to_fit();
        self.large.iter_mut().for_each(VecDeque::shrink_to_fit);
    }

    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        let larges: usize = self.large.iter().map(VecDeque::capacity).sum();
        self.spare.iter().map(Vec::capacity).sum::<usize>()
            + self.spare.capacity() * size_of::<Vec<u8>>()
            + self.small.capacity() * size_of::<Segment>()
            + larges * size_of::<Large>()
    }
}

fn is_of(large: &Large, id: MuxId, responder: bool) -> bool {
    large.header.id == id && large.header.flags.contains(Flags::RESPONDER) == responder
}

#[cfg(test)]
mod tests;
