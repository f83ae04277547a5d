//! Messages between members of placement groups on different servers: one queue and one stream of the grid to each server.
//!
//! Messages that come while others are being sent leave together with the next piece. A message that is lost with its stream,
//! or finds no room, is sent again by the members' own time-outs, as is one that a network loses; so nothing here is tried twice.
//!
//! Written form of a message on the stream, version 2 (the stream's initial payload is that byte): length of all that follows
//! (4 bytes), sending drive, receiving drive, length of the head (4 bytes), head, payload.

use core::future::poll_fn;
use core::task::{Context, Poll, Waker};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ashlar_replica::Message;
use ashlar_replica::message::form::{self, HEAD_BYTES_MAX};
use ashlar_wire::id::DriveId;
use bytes::Bytes;

/// The version of the written form.
pub(super) const VERSION: u8 = 2;
/// Bytes that wait for one server; what comes beyond is dropped. Some extents of 1 MiB, and all small messages.
const QUEUE_BYTES_MAX: usize = 16 << 20;
/// Bytes of one message on the stream: an extent and its head.
const FRAME_BYTES_MAX: usize = (1 << 20) + HEAD_BYTES_MAX + 64;
/// Bytes before the head of a message.
const PREFIX: usize = 16 + 16 + 4;

/// A message and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Framed {
    pub(super) from: DriveId,
    pub(super) to: DriveId,
    pub(super) message: Message,
}

impl Framed {
    fn encode(&self, out: &mut Vec<u8>) {
        let encoded = form::encode(&self.message);
        let payload: usize = encoded.payload.iter().map(Bytes::len).sum();
        let len = |len: usize| u32::try_from(len).expect("messages keep their limits, which are far below 2^32");
        out.extend_from_slice(&len(PREFIX + encoded.head.len() + payload).to_be_bytes());
        out.extend_from_slice(self.from.as_bytes());
        out.extend_from_slice(self.to.as_bytes());
        out.extend_from_slice(&len(encoded.head.len()).to_be_bytes());
        out.extend_from_slice(&encoded.head);
        encoded.payload.iter().for_each(|bytes| out.extend_from_slice(bytes));
    }
}

#[derive(Debug, Default)]
struct Waiting {
    /// Whole messages in their written form.
    frames: VecDeque<Vec<u8>>,
    bytes: usize,
    dropped: u64,
    sender: Option<Waker>,
    is_over: bool,
}

/// What waits to be sent to one server.
#[derive(Debug, Default)]
pub(super) struct Queue(Mutex<Waiting>);

impl Queue {
    /// Adds a message, or drops it where there is no room. [`Queue::wake`] sends it, with all that were added before.
    pub(super) fn push(&self, framed: &Framed) {
        let mut frame = Vec::new();
        framed.encode(&mut frame);
        let mut waiting = self.lock();
        if waiting.bytes + frame.len() > QUEUE_BYTES_MAX {
            waiting.dropped += 1;
            return;
        }
        waiting.bytes += frame.len();
        waiting.frames.push_back(frame);
    }

    /// Wakes whoever sends what was added.
    pub(super) fn wake(&self) {
        let sender = self.lock().sender.take();
        if let Some(sender) = sender {
            sender.wake();
        }
    }

    /// Messages that were dropped since the start.
    #[cfg(test)]
    pub(super) fn dropped(&self) -> u64 {
        self.lock().dropped
    }

    /// No more is sent.
    pub(super) fn close(&self) {
        self.lock().is_over = true;
        self.wake();
    }

    /// Waits for messages and takes them all, one behind the other; nothing once the queue is closed.
    pub(super) async fn take(&self) -> Option<Vec<u8>> {
        poll_fn(|cx| self.poll_take(cx)).await
    }

    fn poll_take(&self, cx: &Context<'_>) -> Poll<Option<Vec<u8>>> {
        let mut waiting = self.lock();
        if waiting.is_over {
            return Poll::Ready(None);
        }
        if waiting.frames.is_empty() {
            waiting.sender = Some(cx.waker().clone());
            return Poll::Pending;
        }
        waiting.bytes = 0;
        let mut frames = core::mem::take(&mut waiting.frames);
        drop(waiting);
        let mut batch = frames.pop_front().unwrap_or_default();
        frames.iter().for_each(|frame| batch.extend_from_slice(frame));
        Poll::Ready(Some(batch))
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bytes make no messages: the sender's fault, or another version's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// Messages out of a stream's pieces.
#[derive(Debug, Default)]
pub(super) struct Frames {
    bytes: Vec<u8>,
    /// Where the next message begins. What lies before it goes with the next piece: once for all of its messages.
    next: usize,
}

impl Frames {
    /// More bytes have come.
    pub(super) fn feed(&mut self, piece: &[u8]) {
        self.bytes.drain(..core::mem::take(&mut self.next));
        self.bytes.extend_from_slice(piece);
    }

    /// The next whole message. Its data are copied out of the stream's bytes, once.
    pub(super) fn next(&mut self) -> Result<Option<Framed>, Malformed> {
        let Some((len, rest)) = self.bytes[self.next..].split_first_chunk() else { return Ok(None) };
        let len = u32::from_be_bytes(*len) as usize;
        if !(PREFIX..=FRAME_BYTES_MAX).contains(&len) {
            return Err(Malformed);
        }
        let Some(frame) = rest.get(..len) else { return Ok(None) };
        let framed = decode(frame)?;
        self.next += 4 + len;
        Ok(Some(framed))
    }
}

fn decode(frame: &[u8]) -> Result<Framed, Malformed> {
    let (from, rest) = frame.split_first_chunk().ok_or(Malformed)?;
    let (to, rest) = rest.split_first_chunk().ok_or(Malformed)?;
    let (len, rest) = rest.split_first_chunk().ok_or(Malformed)?;
    let (head, payload) = rest.split_at_checked(u32::from_be_bytes(*len) as usize).ok_or(Malformed)?;
    let message = form::decode(head, Bytes::copy_from_slice(payload)).map_err(|_| Malformed)?;
    Ok(Framed { from: DriveId::from_bytes(*from), to: DriveId::from_bytes(*to), message })
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicUsize, Ordering};
    use core::task::Waker;
    use std::sync::Arc;
    use std::task::Wake;

    use ashlar_placement::map::{GroupId, PgId, SetId};
    use ashlar_replica::Life;
    use ashlar_replica::message::Body;
    use ashlar_wire::epoch::Epoch;
    use ashlar_wire::version::Version;

    use super::*;

    fn framed(nonce: u64) -> Framed {
        let group = GroupId { set: SetId(1), pg: PgId(2) };
        let (from, to) = (Life::drawn(4), Some(Life::drawn(5)));
        let message = Message { group, epoch: Epoch(3), from, to, body: Body::Lease { nonce, clean: Version::ZERO } };
        Framed { from: DriveId::from_bytes([0xa1; 16]), to: DriveId::from_bytes([0xb2; 16]), message }
    }

    #[test]
    fn golden_prefix() {
        let mut frame = Vec::new();
        framed(5).encode(&mut frame);
        let head = form::encode(&framed(5).message).head;
        let prefix = b"\xa1\xa1\xa1\xa1\xa1\xa1\xa1\xa1\xa1\xa1\xa1\xa1\xa1\xa1\xa1\xa1\
            \xb2\xb2\xb2\xb2\xb2\xb2\xb2\xb2\xb2\xb2\xb2\xb2\xb2\xb2\xb2\xb2";
        assert_eq!(&frame[4..36], prefix);
        assert_eq!(frame[..4], u32::try_from(PREFIX + head.len()).unwrap().to_be_bytes());
        assert_eq!(&frame[40..], head);
    }

    #[test]
    fn messages_come_out_whatever_the_cuts() {
        let queue = Queue::default();
        (1..=20).for_each(|nonce| queue.push(&framed(nonce)));
        let cx = Context::from_waker(Waker::noop());
        let Poll::Ready(Some(batch)) = queue.poll_take(&cx) else { panic!("there are messages") };
        assert!(queue.poll_take(&cx).is_pending(), "all are taken at once");
        for cut in [1, 7, 100, batch.len()] {
            let (mut frames, mut got) = (Frames::default(), Vec::new());
            for piece in batch.chunks(cut) {
                frames.feed(piece);
                while let Some(framed) = frames.next().expect("they are messages") {
                    got.push(framed);
                }
            }
            assert_eq!(got, (1..=20).map(framed).collect::<Vec<_>>(), "pieces of {cut} bytes");
        }
        queue.close();
        assert_eq!(queue.poll_take(&cx), Poll::Ready(None));
    }

    #[test]
    fn what_goes_together_wakes_its_sender_once() {
        struct Counting(AtomicUsize);
        impl Wake for Counting {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let (queue, counting) = (Queue::default(), Arc::new(Counting(AtomicUsize::new(0))));
        let waker = Waker::from(Arc::clone(&counting));
        let cx = Context::from_waker(&waker);
        assert!(queue.poll_take(&cx).is_pending());
        (1..=20).for_each(|nonce| queue.push(&framed(nonce)));
        assert_eq!(counting.0.load(Ordering::Relaxed), 0);
        queue.wake();
        queue.wake();
        assert_eq!(counting.0.load(Ordering::Relaxed), 1);
        assert!(queue.poll_take(&cx).is_ready());
        assert!(queue.poll_take(&cx).is_pending());
        queue.close();
        assert_eq!((counting.0.load(Ordering::Relaxed), queue.poll_take(&cx)), (2, Poll::Ready(None)));
    }

    #[test]
    fn what_is_no_message_ends_the_stream_and_a_full_queue_drops() {
        for wrong in [&[0, 0, 0, 1, 0][..], &[0xff; 4], &[&[0, 0, 0, 36][..], &[0; 36]].concat()] {
            let mut frames = Frames::default();
            frames.feed(wrong);
            assert_eq!(frames.next(), Err(Malformed), "{wrong:?}");
        }
        let queue = Queue::default();
        let mut frame = Vec::new();
        framed(1).encode(&mut frame);
        let fitting = QUEUE_BYTES_MAX / frame.len();
        (0..=fitting).for_each(|_| queue.push(&framed(1)));
        assert_eq!(queue.dropped(), 1);
    }
}
