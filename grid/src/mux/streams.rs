//! Streams, seen from either end: messages both ways, each way under a window of bytes, ended only by an explicit end.
//!
//! A sender may begin a message while its window has room, so it overdraws it by one message at most; a window of one
//! byte therefore means one message at a time. The receiver gives bytes back as its reader takes messages out, and
//! doubles the window while that comes round faster than twice the round trip.
//!
//! An orderly end carries the count and the digest of all messages. An end without them, or with others, is an error:
//! what a reader has seen to its end is what was sent.

use std::collections::VecDeque;

use core::task::Waker;
use core::time::Duration;

use ashlar_wire::checksum::Digest;
use ashlar_wire::time::Instant;

use crate::cancel::Cancelled;
use crate::error::StreamError;
use crate::message::MuxId;

/// What a message costs of the window beside its payload, so that empty messages are limited too.
const MESSAGE_COST: u64 = 32;

/// A stream of one connection, at this end of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamKey {
    index: u32,
    generation: u32,
}

/// How one direction stands.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Direction {
    Open,
    Ended,
    Failed(StreamError),
}

/// The direction from here.
#[derive(Debug)]
pub struct Sending {
    state: Direction,
    /// Cost of all messages so far, and up to where the peer allows more to begin.
    sent: u64,
    allowed: u64,
    messages: u64,
    digest: Digest,
    /// A large message is leaving in chunks; later ones wait for it.
    pub(super) large_leaving: bool,
    waker: Option<Waker>,
}

/// The direction to here.
#[derive(Debug)]
pub struct Receiving {
    state: Direction,
    queue: VecDeque<Vec<u8>>,
    received: u64,
    allowed: u64,
    messages: u64,
    digest: Digest,
    /// A large message of which a part has come.
    partial: Option<Vec<u8>>,
    window: u32,
    window_max: u32,
    /// Taken out by the reader, not yet given back to the sender.
    unreturned: u64,
    returned_at: Instant,
    waker: Option<Waker>,
}

/// One stream.
#[derive(Debug)]
pub struct Stream {
    generation: u32,
    /// How both ends call it.
    pub(super) id: MuxId,
    /// Whether the peer opened it.
    pub(super) responder: bool,
    pub(super) deadline: Instant,
    pub(super) cancelled: Cancelled,
    /// The peer's handler has ended its direction and goes on reading.
    pub(super) half_closed: bool,
    pub(super) sending: Sending,
    pub(super) receiving: Receiving,
}

/// A direction's messages broke order, window or count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Misfit;

impl Sending {
    /// Whether a message may begin now; the reason if never again.
    pub(super) fn check(&self) -> Result<bool, StreamError> {
        match &self.state {
            Direction::Open => Ok(self.sent < self.allowed && !self.large_leaving),
            Direction::Ended => Err(StreamError::Finished),
            Direction::Failed(error) => Err(error.clone()),
        }
    }

    /// Counts a message that leaves; its number.
    #[inline]
    pub(super) fn count(&mut self, payload: &[u8]) -> u64 {
        debug_assert!(self.sent < self.allowed && !self.large_leaving, "a message begins while its window has room");
        self.sent += payload.len() as u64 + MESSAGE_COST;
        self.messages += 1;
        self.digest.update(payload);
        self.messages
    }

    pub(super) fn allow(&mut self, bytes: u64) {
        self.allowed = self.allowed.saturating_add(bytes);
        self.wake();
    }

    pub(super) fn wait(&mut self, waker: &Waker) {
        match &mut self.waker {
            Some(old) => old.clone_from(waker),
            empty => *empty = Some(waker.clone()),
        }
    }

    pub(super) fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Ends the direction in order; count and digest for the end, `None` if it had ended before.
    pub(super) fn end(&mut self) -> Option<(u64, [u8; 8])> {
        if self.state != Direction::Open {
            return None;
        }
        self.state = Direction::Ended;
        Some((self.messages, self.digest.to_bytes()))
    }

    pub(super) fn fail(&mut self, error: StreamError) {
        if self.state == Direction::Open {
            self.state = Direction::Failed(error);
        }
        self.wake();
    }

    /// Whether it ended in order.
    pub(super) fn is_ended(&self) -> bool {
        self.state == Direction::Ended
    }

    pub(super) fn is_open(&self) -> bool {
        self.state == Direction::Open
    }
}

impl Receiving {
    /// Takes a message, or with `more` the beginning of one.
    #[inline]
    pub(super) fn handle_data(&mut self, number: u64, payload: &[u8], more: bool) -> Result<(), Misfit> {
        if self.state != Direction::Open
            || number != self.messages + 1
            || self.received >= self.allowed
            || self.partial.is_some()
        {
            return Err(Misfit);
        }
        if more {
            self.partial = Some(payload.to_vec());
            return Ok(());
        }
        self.finish_message(payload.to_vec());
        Ok(())
    }

    pub(super) fn handle_chunk(&mut self, part: &[u8], last: bool, payload_max: usize) -> Result<(), Misfit> {
        let partial = self.partial.as_mut().ok_or(Misfit)?;
        if partial.len() + part.len() > payload_max {
            return Err(Misfit);
        }
        partial.extend_from_slice(part);
        if last {
            let message = self.partial.take().ok_or(Misfit)?;
            self.finish_message(message);
        }
        Ok(())
    }

    fn finish_message(&mut self, message: Vec<u8>) {
        self.messages += 1;
        self.received += message.len() as u64 + MESSAGE_COST;
        self.digest.update(&message);
        self.queue.push_back(message);
        self.wake();
    }

    /// The sender's orderly end.
    pub(super) fn handle_end(&mut self, count: u64, digest: &[u8]) {
        if self.state != Direction::Open {
            return;
        }
        let whole = count == self.messages && digest == self.digest.to_bytes() && self.partial.is_none();
        self.state = if whole { Direction::Ended } else { Direction::Failed(StreamError::NotWhole) };
        self.partial = None;
        self.wake();
    }

    pub(super) fn fail(&mut self, error: StreamError) {
        if self.state == Direction::Open {
            self.state = Direction::Failed(error);
        }
        self.partial = None;
        self.wake();
    }

    /// Moves all messages that have come into `into`; `Some` with the end if there are none and none will come.
    pub(super) fn take(&mut self, into: &mut VecDeque<Vec<u8>>) -> Option<Result<(), StreamError>> {
        if !self.queue.is_empty() {
            core::mem::swap(&mut self.queue, into);
            return None;
        }
        match &self.state {
            Direction::Open => None,
            Direction::Ended => Some(Ok(())),
            Direction::Failed(error) => Some(Err(error.clone())),
        }
    }

    pub(super) fn wait(&mut self, waker: &Waker) {
        match &mut self.waker {
            Some(old) => old.clone_from(waker),
            empty => *empty = Some(waker.clone()),
        }
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// The reader has taken messages of this cost out; bytes to give back to the sender, if it is time.
    pub(super) fn handle_consumed(&mut self, cost: u64, now: Instant, round_trip: Option<Duration>) -> Option<u64> {
        self.unreturned += cost;
        debug_assert!(self.unreturned <= self.received, "the reader takes out what came");
        if self.state != Direction::Open || self.unreturned < u64::from(self.window.div_ceil(2)) {
            return None;
        }
        let mut credit = core::mem::take(&mut self.unreturned);
        let quick = round_trip.is_some_and(|round_trip| now.saturating_since(self.returned_at) < round_trip * 2);
        if quick && self.window < self.window_max {
            let wider = self.window.saturating_mul(2).min(self.window_max);
            credit += u64::from(wider - self.window);
            self.window = wider;
        }
        self.returned_at = now;
        self.allowed += credit;
        Some(credit)
    }

    pub(super) fn is_open(&self) -> bool {
        self.state == Direction::Open
    }
}

/// What a message of that payload costs of a window.
#[must_use]
pub const fn cost(payload_len: usize) -> u64 {
    payload_len as u64 + MESSAGE_COST
}

/// Windows of a stream at its opening, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    /// What this end may send before it hears more.
    pub send: u32,
    /// What this end accepts at first.
    pub receive: u32,
    /// What this end accepts after tuning.
    pub receive_max: u32,
}

/// The streams of one connection.
#[derive(Debug)]
pub struct Streams {
    slots: Vec<Option<Box<Stream>>>,
    free: Vec<u32>,
    /// Where the peer's streams are, by their slot at the peer.
    by_peer_slot: Vec<u32>,
    open: [u32; 2],
    max: u32,
    next_generation: u32,
    next_deadline: Instant,
}

const NOWHERE: u32 = u32::MAX;

impl Streams {
    /// Room for `max` streams of each side.
    #[must_use]
    pub fn new(max: u32) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            by_peer_slot: Vec::new(),
            open: [0; 2],
            max,
            next_generation: 0,
            next_deadline: Instant::NEVER,
        }
    }

    /// Open streams of both sides.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether none is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether nothing comes or leaves on any stream, and no handler of this side has one: whoever opened it has yet to look at its end,
    /// and needs no connection for that.
    #[must_use]
    pub fn have_ended(&self) -> bool {
        self.iter().all(|(_, stream)| !stream.responder && !stream.sending.is_open() && !stream.receiving.is_open())
    }

    /// No stream expires before this.
    #[must_use]
    pub fn next_deadline(&self) -> Instant {
        self.next_deadline
    }

    /// Opens a stream: ours without `peer_id`, the peer's with it. `None` at the limit or for an id in use.
    pub fn open(
        &mut self,
        peer_id: Option<MuxId>,
        windows: Windows,
        deadline: Instant,
        now: Instant,
    ) -> Option<StreamKey> {
        let responder = peer_id.is_some();
        if self.open[usize::from(responder)] >= self.max {
            return None;
        }
        if let Some(id) = peer_id
            && (id.slot >= self.max.saturating_mul(2) || self.find(id, false).is_some())
        {
            return None;
        }
        self.next_generation = self.next_generation.wrapping_add(1);
        let generation = self.next_generation;
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("streams are limited by a u32")
        });
        let id = peer_id.unwrap_or(MuxId { slot: index, generation: generation | MuxId::STREAM });
        if responder {
            self.set_by_peer(id.slot, index);
        }
        self.slots[index as usize] = Some(Box::new(Stream::new(generation, id, responder, windows, deadline, now)));
        self.open[usize::from(responder)] += 1;
        debug_assert_eq!((self.open[0] + self.open[1]) as usize, self.len(), "each stream is one side's");
        self.next_deadline = self.next_deadline.min(deadline);
        Some(StreamKey { index, generation })
    }

    fn by_peer(&self, slot: u32) -> u32 {
        self.by_peer_slot.get(slot as usize).copied().unwrap_or(NOWHERE)
    }

    fn set_by_peer(&mut self, slot: u32, index: u32) {
        let at = slot as usize;
        if self.by_peer_slot.len() <= at {
            self.by_peer_slot.resize(at + 1, NOWHERE);
        }
        self.by_peer_slot[at] = index;
    }

    /// The stream of that key, if it is still here.
    #[inline]
    pub fn get(&mut self, key: StreamKey) -> Option<&mut Stream> {
        self.slots.get_mut(key.index as usize)?.as_deref_mut().filter(|stream| stream.generation == key.generation)
    }

    /// The stream that the peer's message names; `from_responder` if the peer is the responder in it.
    #[inline]
    pub fn find(&mut self, id: MuxId, from_responder: bool) -> Option<StreamKey> {
        let index = if from_responder { id.slot } else { self.by_peer(id.slot) };
        let stream = self.slots.get(index as usize)?.as_deref()?;
        (stream.id == id && stream.responder != from_responder)
            .then_some(StreamKey { index, generation: stream.generation })
    }

    /// The peer's stream that has the slot of `id` now, under another id.
    pub fn displaced_by(&mut self, id: MuxId) -> Option<StreamKey> {
        let index = self.by_peer(id.slot);
        let stream = self.slots.get(index as usize)?.as_deref()?;
        (stream.id != id).then_some(StreamKey { index, generation: stream.generation })
    }

    /// Forgets a stream.
    pub fn remove(&mut self, key: StreamKey) {
        if self.get(key).is_none() {
            return;
        }
        let Some(stream) = self.slots[key.index as usize].take() else { return };
        self.free.push(key.index);
        self.open[usize::from(stream.responder)] -= 1;
        if stream.responder && self.by_peer(stream.id.slot) == key.index {
            self.by_peer_slot[stream.id.slot as usize] = NOWHERE;
        }
    }

    /// Keys of the streams whose deadline has passed.
    pub fn expired(&mut self, now: Instant) -> Vec<StreamKey> {
        if now < self.next_deadline {
            return Vec::new();
        }
        let live = |stream: &&Stream| stream.sending.is_open() || stream.receiving.is_open();
        let later =
            self.iter().map(|(_, stream)| stream).filter(live).map(|stream| stream.deadline).filter(|at| *at > now);
        let next_deadline = later.min().unwrap_or(Instant::NEVER);
        let expired =
            self.iter().filter(|(_, stream)| stream.deadline <= now && live(stream)).map(|(key, _)| key).collect();
        self.next_deadline = next_deadline;
        expired
    }

    fn iter(&self) -> impl Iterator<Item = (StreamKey, &Stream)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let stream = slot.as_deref()?;
            let index = u32::try_from(index).expect("streams are limited by a u32");
            Some((StreamKey { index, generation: stream.generation }, stream))
        })
    }

    /// Wakes everybody who waits to send.
    pub(super) fn wake_senders(&mut self) {
        self.slots.iter_mut().flatten().for_each(|stream| stream.sending.wake());
    }

    /// Cuts every stream: the connection is lost.
    pub fn fail_all(&mut self, error: &StreamError) {
        for stream in self.slots.iter_mut().flatten() {
            stream.fail(error);
        }
    }

    /// Frees the tables if no stream is open.
    pub fn release_memory(&mut self) {
        if self.is_empty() {
            (self.slots, self.free, self.by_peer_slot) = (Vec::new(), Vec::new(), Vec::new());
        }
    }

    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        self.len() * size_of::<Stream>()
            + self.slots.capacity() * size_of::<Option<Box<Stream>>>()
            + (self.free.capacity() + self.by_peer_slot.capacity()) * size_of::<u32>()
    }
}

impl Stream {
    fn new(generation: u32, id: MuxId, responder: bool, windows: Windows, deadline: Instant, now: Instant) -> Self {
        let sending = Sending {
            state: Direction::Open,
            sent: 0,
            allowed: u64::from(windows.send),
            messages: 0,
            digest: Digest::default(),
            large_leaving: false,
            waker: None,
        };
        let receiving = Receiving {
            state: Direction::Open,
            queue: VecDeque::new(),
            received: 0,
            allowed: u64::from(windows.receive),
            messages: 0,
            digest: Digest::default(),
            partial: None,
            window: windows.receive,
            window_max: windows.receive_max.max(windows.receive),
            unreturned: 0,
            returned_at: now,
            waker: None,
        };
        Self {
            generation,
            id,
            responder,
            deadline,
            cancelled: Cancelled::default(),
            half_closed: false,
            sending,
            receiving,
        }
    }

    /// Ends both directions with an error, unless they have ended.
    pub(super) fn fail(&mut self, error: &StreamError) {
        self.sending.fail(error.clone());
        self.receiving.fail(error.clone());
        self.cancelled.cancel();
    }
}
