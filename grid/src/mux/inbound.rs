//! Calls of the peer that do not end where they begin: requests that come in chunks, and handlers that take time.

use std::collections::BTreeMap;

use ashlar_wire::time::Instant;

use crate::cancel::Cancelled;
use crate::message::MuxId;

use super::first_of;

#[derive(Debug)]
enum State {
    Receiving { request: Vec<u8>, total: usize, handler: u32 },
    Running(Cancelled),
}

#[derive(Debug)]
struct Incoming {
    state: State,
    deadline: Instant,
    bytes: usize,
}

/// The peer's calls that are being received or handled.
#[derive(Debug)]
pub struct Inbound {
    calls: BTreeMap<MuxId, Incoming>,
    calls_max: usize,
    bytes: usize,
    bytes_max: usize,
    next_deadline: Instant,
}

/// A request that is complete.
#[derive(Debug)]
pub struct Complete {
    /// Route and handler as the message names them.
    pub handler: u32,
    /// The whole request.
    pub request: Vec<u8>,
    /// When its caller stops waiting.
    pub deadline: Instant,
}

/// What a chunk of a request meant.
#[derive(Debug)]
pub enum Part {
    /// More must come.
    More,
    /// It was the last.
    Complete(Complete),
    /// It belongs to no request: cancelled, expired or refused before.
    Unexpected,
    /// It does not fit what was announced.
    Misfit,
}

impl Inbound {
    /// Room for `calls_max` calls with `bytes_max` bytes of requests.
    #[must_use]
    pub fn new(calls_max: u32, bytes_max: usize) -> Self {
        let calls_max = usize::try_from(calls_max).expect("usize holds a u32");
        Self { calls: BTreeMap::new(), calls_max, bytes: 0, bytes_max, next_deadline: Instant::NEVER }
    }

    /// Calls that are being received or handled.
    #[must_use]
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// No handler expires before this.
    #[must_use]
    pub fn next_deadline(&self) -> Instant {
        self.next_deadline
    }

    /// Whether one more call with a request of `bytes` bytes is within the limits.
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        let (calls, room) = self.room();
        calls > 0 && bytes <= room
    }

    /// Begins a chunked request of `total` bytes. `false` if the peer uses an id that is in use.
    pub fn begin_receiving(&mut self, id: MuxId, total: usize, handler: u32, first: &[u8], deadline: Instant) -> bool {
        let state = State::Receiving { request: first_of(first, total), total, handler };
        self.insert(id, Incoming { state, deadline, bytes: total })
    }

    /// Takes a further chunk.
    pub fn receive_part(&mut self, id: MuxId, part: &[u8], last: bool) -> Part {
        let Some(incoming) = self.calls.get_mut(&id) else { return Part::Unexpected };
        let State::Receiving { request, total, handler } = &mut incoming.state else { return Part::Misfit };
        let len = request.len() + part.len();
        if len > *total || last != (len == *total) {
            return Part::Misfit;
        }
        request.extend_from_slice(part);
        if !last {
            return Part::More;
        }
        let (request, handler, deadline) = (core::mem::take(request), *handler, incoming.deadline);
        self.remove(id);
        Part::Complete(Complete { handler, request, deadline })
    }

    /// Notes that a handler runs, which watches `cancelled` for the caller's leaving. `false` if the id is in use.
    pub fn begin_running(&mut self, id: MuxId, bytes: usize, deadline: Instant, cancelled: Cancelled) -> bool {
        self.insert(id, Incoming { state: State::Running(cancelled), deadline, bytes })
    }

    /// How many more calls, and how many more bytes of requests, are within the limits.
    #[must_use]
    pub fn room(&self) -> (usize, usize) {
        (self.calls_max.saturating_sub(self.calls.len()), self.bytes_max.saturating_sub(self.bytes))
    }

    fn insert(&mut self, id: MuxId, incoming: Incoming) -> bool {
        if self.calls.contains_key(&id) {
            return false;
        }
        self.bytes += incoming.bytes;
        self.next_deadline = self.next_deadline.min(incoming.deadline);
        self.calls.insert(id, incoming);
        debug_assert!(self.calls.len() <= self.calls_max, "what is beyond the limit was refused");
        true
    }

    fn remove(&mut self, id: MuxId) -> Option<Incoming> {
        let incoming = self.calls.remove(&id)?;
        self.bytes -= incoming.bytes;
        Some(incoming)
    }

    /// A handler has ended; whether its caller still waits.
    pub fn finish(&mut self, id: MuxId) -> bool {
        self.remove(id).is_some()
    }

    /// The caller has left; whether there was such a call.
    pub fn cancel(&mut self, id: MuxId) -> bool {
        let Some(incoming) = self.remove(id) else { return false };
        if let State::Running(cancelled) = incoming.state {
            cancelled.cancel();
        }
        true
    }

    /// Stops every call whose deadline has passed; how many those were.
    pub fn expire(&mut self, now: Instant) -> u64 {
        if now < self.next_deadline {
            return 0;
        }
        let expired: Vec<MuxId> =
            self.calls.iter().filter(|(_, call)| call.deadline <= now).map(|(id, _)| *id).collect();
        for id in &expired {
            self.cancel(*id);
        }
        self.next_deadline = self.calls.values().map(|call| call.deadline).min().unwrap_or(Instant::NEVER);
        expired.len() as u64
    }

    /// Stops every call: the connection is lost.
    pub fn cancel_all(&mut self) {
        for (_, incoming) in core::mem::take(&mut self.calls) {
            if let State::Running(cancelled) = incoming.state {
                cancelled.cancel();
            }
        }
        self.bytes = 0;
    }
}
