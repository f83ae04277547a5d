//! Calls that this side waits for: a slab of slots, no map, no channel, no timer of their own.

use core::task::{Context, Poll, Waker};

use ashlar_wire::time::Instant;

use crate::error::{CallError, Lost, Reason};
use crate::message::MuxId;
use crate::outbox::{Outbox, Position};

/// What a call ends with.
pub type CallResult = Result<Vec<u8>, CallError>;

#[derive(Debug)]
enum State {
    Free,
    Waiting,
    /// A part of a chunked answer has come.
    Receiving {
        answer: Vec<u8>,
        total: usize,
    },
    Done(CallResult),
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    state: State,
    deadline: Instant,
    position: Position,
    waker: Option<Waker>,
}

/// The slots of one connection.
#[derive(Debug)]
pub struct Calls {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Slots that wait for an answer.
    waiting: u32,
    /// Slots in use: waiting, or done and not yet collected.
    used: u32,
    max: u32,
    next_generation: u32,
    /// No call expires before this.
    next_deadline: Instant,
}

/// What an answer's chunk meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// It was used.
    Used,
    /// Nobody waits for it any more.
    Late,
    /// It does not fit what came before.
    Misfit,
}

impl Calls {
    /// Room for `max` calls in flight.
    #[must_use]
    pub fn new(max: u32) -> Self {
        let (slots, free) = (Vec::new(), Vec::new());
        Self { slots, free, waiting: 0, used: 0, max, next_generation: 0, next_deadline: Instant::NEVER }
    }

    /// Calls that wait for an answer.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.waiting
    }

    /// No call expires before this.
    #[must_use]
    pub fn next_deadline(&self) -> Instant {
        self.next_deadline
    }

    /// Takes a slot; `None` when the limit is reached.
    #[inline]
    pub fn begin(&mut self, deadline: Instant) -> Option<MuxId> {
        if self.used >= self.max {
            return None;
        }
        self.next_generation = self.next_generation.wrapping_add(1) & !MuxId::STREAM;
        let generation = self.next_generation;
        let slot = Slot { generation, state: State::Waiting, deadline, position: Position::LARGE, waker: None };
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at as usize] = slot;
                at
            }
            None => {
                self.slots.push(slot);
                u32::try_from(self.slots.len() - 1).expect("slots are limited by a u32")
            }
        };
        self.waiting += 1;
        self.used += 1;
        self.next_deadline = self.next_deadline.min(deadline);
        Some(MuxId { slot: at, generation })
    }

    /// Notes where the request waits.
    #[inline]
    pub fn set_position(&mut self, id: MuxId, position: Position) {
        if let Some(slot) = self.slot(id) {
            slot.position = position;
        }
    }

    #[inline]
    fn slot(&mut self, id: MuxId) -> Option<&mut Slot> {
        self.slots
            .get_mut(id.slot as usize)
            .filter(|slot| slot.generation == id.generation && !matches!(slot.state, State::Free))
    }

    /// The answer, if it is there; else `cx` is woken when it is.
    ///
    /// # Panics
    /// When the call was collected or cancelled before: a caller does that once.
    #[inline]
    pub fn poll(&mut self, id: MuxId, cx: &Context<'_>) -> Poll<CallResult> {
        let slot = self.slot(id).expect("a call is polled until it is collected, and no longer");
        if !matches!(slot.state, State::Done(_)) {
            match &mut slot.waker {
                Some(waker) => waker.clone_from(cx.waker()),
                empty => *empty = Some(cx.waker().clone()),
            }
            return Poll::Pending;
        }
        let State::Done(result) = core::mem::replace(&mut slot.state, State::Free) else {
            unreachable!("looked at above")
        };
        self.free.push(id.slot);
        self.used -= 1;
        Poll::Ready(result)
    }

    /// Ends a call with `result` and wakes its caller; whether anybody waited.
    #[inline]
    pub fn complete(&mut self, id: MuxId, result: CallResult) -> bool {
        let Some(slot) = self.slot(id).filter(|slot| !matches!(slot.state, State::Done(_))) else { return false };
        slot.state = State::Done(result);
        if let Some(waker) = slot.waker.take() {
            waker.wake();
        }
        self.waiting -= 1;
        true
    }

    /// Takes a part of a chunked answer: the first with the announced `total`, later ones without.
    pub fn receive_part(&mut self, id: MuxId, total: Option<usize>, part: &[u8], last: bool) -> Heard {
        let Some(slot) = self.slot(id) else { return Heard::Late };
        match (&mut slot.state, total) {
            (State::Waiting, Some(total)) if !last && part.len() < total => {
                slot.state = State::Receiving { answer: part.to_vec(), total };
                Heard::Used
            }
            (State::Receiving { answer, total }, None) => {
                let len = answer.len() + part.len();
                if len > *total || last != (len == *total) {
                    return Heard::Misfit;
                }
                answer.extend_from_slice(part);
                if last {
                    let answer = core::mem::take(answer);
                    self.complete(id, Ok(answer));
                }
                Heard::Used
            }
            (State::Done(_) | State::Free, _) => Heard::Late,
            _ => Heard::Misfit,
        }
    }

    /// Gives a call up. Where its request waits or waited, if the peer has to be told.
    pub fn cancel(&mut self, id: MuxId) -> Option<Position> {
        let slot = self.slot(id)?;
        let position = slot.position;
        let was_waiting = !matches!(slot.state, State::Done(_));
        slot.state = State::Free;
        slot.waker = None;
        self.free.push(id.slot);
        self.used -= 1;
        self.waiting -= u32::from(was_waiting);
        was_waiting.then_some(position)
    }

    /// Ends every call whose deadline has passed; returns them and where their requests wait or waited, so that the
    /// peer can be told.
    pub fn expire(&mut self, now: Instant, out: &Outbox) -> Vec<(MuxId, Position)> {
        let mut expired = Vec::new();
        if now < self.next_deadline {
            return expired;
        }
        self.next_deadline = Instant::NEVER;
        for at in 0..self.slots.len() {
            let slot = &self.slots[at];
            if !matches!(slot.state, State::Waiting | State::Receiving { .. }) {
                continue;
            }
            if slot.deadline > now {
                self.next_deadline = self.next_deadline.min(slot.deadline);
                continue;
            }
            let id =
                MuxId { slot: u32::try_from(at).expect("slots are limited by a u32"), generation: slot.generation };
            let position = slot.position;
            let error = failure(position, id, out, Reason::Deadline);
            self.complete(id, Err(error));
            expired.push((id, position));
        }
        expired
    }

    /// Ends every call: the connection is lost.
    pub fn fail_all(&mut self, lost: Lost, out: &Outbox) {
        for at in 0..self.slots.len() {
            let slot = &self.slots[at];
            let id =
                MuxId { slot: u32::try_from(at).expect("slots are limited by a u32"), generation: slot.generation };
            if matches!(slot.state, State::Waiting | State::Receiving { .. }) {
                let error = failure(slot.position, id, out, Reason::Disconnected(lost));
                self.complete(id, Err(error));
            }
        }
    }

    /// Frees the slots if none is in use.
    pub fn release_memory(&mut self) {
        if self.used == 0 {
            (self.slots, self.free) = (Vec::new(), Vec::new());
        }
    }

    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>() + self.free.capacity() * size_of::<u32>()
    }
}

/// What a caller learns when no answer comes: whether anything of the request has left this process.
fn failure(position: Position, id: MuxId, out: &Outbox, reason: Reason) -> CallError {
    let left =
        if position == Position::LARGE { out.large_state(id, false) != Some(false) } else { out.has_left(position) };
    if left { CallError::Unknown(reason) } else { CallError::NotSent(reason) }
}
