//! Calls that this side waits for: a slab of slots, no map, no channel, no timer of their own.

use core::task::{Context, Poll, Waker};

use ashlar_wire::time::Instant;

use crate::error::{CallError, Lost, Reason};
use crate::message::MuxId;
use crate::outbox::{Outbox, Position};

use super::first_of;
use super::returns::{Key, Returns};

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
    /// Answered, with what is in the slot's room.
    Answered,
}

impl State {
    fn is_over(&self) -> bool {
        matches!(self, Self::Done(_) | Self::Answered)
    }
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    state: State,
    /// Where a short answer lies until it is collected; kept for its room. Its caller makes the copy that it gets: memory that
    /// one thread allocates and another one frees makes the two wait for each other.
    room: Vec<u8>,
    deadline: Instant,
    position: Position,
    waiter: Waiter,
}

/// Who waits for a call.
#[derive(Debug)]
enum Waiter {
    /// Nobody so far.
    Nobody,
    /// A task, woken for the result.
    Task(Waker),
    /// The caller under that key on the thread of that number, which gets the result by way of [`Returns`].
    Thread(usize, Key),
}

/// Longer answers do not pass through the room of a slot.
const ROOM_MAX: usize = 2_048;

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
    /// Of each thread that hands calls over.
    threads: Vec<Thread>,
}

/// Calls that one thread has handed over.
#[derive(Debug, Default)]
struct Thread {
    /// By their slot there: of whose generation, and which call it is here.
    calls: Vec<Option<(u32, MuxId)>>,
    returns: Returns,
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

#[cfg(test)]
impl Thread {
    fn held_bytes(&self) -> usize {
        self.calls.capacity() * size_of::<Option<(u32, MuxId)>>() + self.returns.held_bytes()
    }
}

impl Calls {
    /// Room for `max` calls in flight.
    #[must_use]
    pub fn new(max: u32) -> Self {
        let (slots, free, threads) = (Vec::new(), Vec::new(), Vec::new());
        Self { slots, free, waiting: 0, used: 0, max, next_generation: 0, next_deadline: Instant::NEVER, threads }
    }

    /// Calls in flight, at most.
    #[must_use]
    pub fn max(&self) -> u32 {
        self.max
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
        let at = match self.free.pop() {
            Some(at) => {
                let slot = &mut self.slots[at as usize];
                (slot.generation, slot.state, slot.deadline) = (generation, State::Waiting, deadline);
                (slot.position, slot.waiter) = (Position::LARGE, Waiter::Nobody);
                at
            }
            None => {
                let (state, room, position) = (State::Waiting, Vec::new(), Position::LARGE);
                self.slots.push(Slot { generation, state, room, deadline, position, waiter: Waiter::Nobody });
                u32::try_from(self.slots.len() - 1).expect("slots are limited by a u32")
            }
        };
        self.waiting += 1;
        self.used += 1;
        debug_assert!(
            self.waiting <= self.used && self.used <= self.max,
            "a call that waits is in use, within the limit"
        );
        debug_assert_eq!(self.free.len() + self.used as usize, self.slots.len(), "a slot is free or in use");
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
        if !slot.state.is_over() {
            match &mut slot.waiter {
                Waiter::Task(waker) => waker.clone_from(cx.waker()),
                waiter => *waiter = Waiter::Task(cx.waker().clone()),
            }
            return Poll::Pending;
        }
        let result = match core::mem::replace(&mut slot.state, State::Free) {
            State::Done(result) => result,
            _ => Ok(slot.room.clone()),
        };
        self.free.push(id.slot);
        self.used -= 1;
        Poll::Ready(result)
    }

    /// Ends a call with `result` and tells its caller; whether anybody waited.
    #[inline]
    pub fn complete(&mut self, id: MuxId, result: CallResult) -> bool {
        self.end(id, result, |_, result| State::Done(result), |returns, key, result| returns.push(key, result))
    }

    /// Ends a call with the answer `payload` and tells its caller; whether anybody waited.
    #[inline]
    pub fn answer(&mut self, id: MuxId, payload: &[u8]) -> bool {
        let keep = |room: &mut Vec<u8>, payload: &[u8]| {
            if payload.len() > ROOM_MAX {
                return State::Done(Ok(payload.to_vec()));
            }
            room.clear();
            room.extend_from_slice(payload);
            State::Answered
        };
        self.end(id, payload, keep, |returns, key, payload| returns.push_answer(key, payload))
    }

    /// Ends a call with what `keep` makes of `result` for a task that waits, or `hand_back` for a thread.
    #[inline]
    fn end<T>(
        &mut self,
        id: MuxId,
        result: T,
        keep: impl FnOnce(&mut Vec<u8>, T) -> State,
        hand_back: impl FnOnce(&mut Returns, Key, T),
    ) -> bool {
        let Some(slot) = self.slot(id).filter(|slot| !slot.state.is_over()) else { return false };
        match core::mem::replace(&mut slot.waiter, Waiter::Nobody) {
            Waiter::Thread(thread, key) => {
                slot.state = State::Free;
                self.free.push(id.slot);
                self.used -= 1;
                hand_back(&mut self.thread(thread).returns, key, result);
            }
            waiter => {
                slot.state = keep(&mut slot.room, result);
                if let Waiter::Task(waker) = waiter {
                    waker.wake();
                }
            }
        }
        self.waiting -= 1;
        true
    }

    /// Notes that a call is that of `key` on the thread of that number.
    pub fn hand_over(&mut self, id: MuxId, (thread, key): (usize, Key)) {
        if let Some(slot) = self.slot(id) {
            slot.waiter = Waiter::Thread(thread, key);
        }
        let (calls, at) = (&mut self.thread(thread).calls, key.slot as usize);
        if calls.len() <= at {
            calls.resize(at + 1, None);
        }
        calls[at] = Some((key.generation, id));
    }

    /// The call of `key` on the thread of that number, if it was handed over and no later one was under the same slot.
    #[must_use]
    pub fn find_handed(&self, thread: usize, key: Key) -> Option<MuxId> {
        let (generation, id) = (*self.threads.get(thread)?.calls.get(key.slot as usize)?)?;
        (generation == key.generation).then_some(id)
    }

    /// A call that was handed over could not be started.
    pub fn return_error(&mut self, (thread, key): (usize, Key), error: CallError) {
        self.thread(thread).returns.push(key, Err(error));
    }

    /// Moves the results for one thread into `returns`, which is empty; which thread, if there were any.
    pub fn take_returns(&mut self, returns: &mut Returns) -> Option<usize> {
        let thread = self.threads.iter().position(|thread| !thread.returns.is_empty())?;
        core::mem::swap(&mut self.threads[thread].returns, returns);
        Some(thread)
    }

    fn thread(&mut self, number: usize) -> &mut Thread {
        if self.threads.len() <= number {
            self.threads.resize_with(number + 1, Thread::default);
        }
        &mut self.threads[number]
    }

    /// Takes a part of a chunked answer: the first with the announced `total`, later ones without.
    pub fn receive_part(&mut self, id: MuxId, total: Option<usize>, part: &[u8], last: bool) -> Heard {
        let Some(slot) = self.slot(id) else { return Heard::Late };
        match (&mut slot.state, total) {
            (State::Waiting, Some(total)) if !last && part.len() < total => {
                slot.state = State::Receiving { answer: first_of(part, total), total };
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
            (State::Done(_) | State::Answered | State::Free, _) => Heard::Late,
            _ => Heard::Misfit,
        }
    }

    /// Gives a call up. Where its request waits or waited, if the peer has to be told.
    pub fn cancel(&mut self, id: MuxId) -> Option<Position> {
        let slot = self.slot(id)?;
        let position = slot.position;
        let was_waiting = !slot.state.is_over();
        slot.state = State::Free;
        slot.waiter = Waiter::Nobody;
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
            for thread in &mut self.threads {
                thread.calls = Vec::new();
                if thread.returns.is_empty() {
                    thread.returns = Returns::default();
                }
            }
        }
    }

    #[cfg(test)]
    pub(super) fn last(&self) -> MuxId {
        let at = self.slots.iter().position(|slot| slot.generation == self.next_generation).expect("one was started");
        MuxId { slot: u32::try_from(at).expect("slots are limited by a u32"), generation: self.next_generation }
    }

    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        let rooms: usize = self.slots.iter().map(|slot| slot.room.capacity()).sum();
        let threads: usize = self.threads.iter().map(Thread::held_bytes).sum();
        rooms + threads + self.slots.capacity() * size_of::<Slot>() + self.free.capacity() * size_of::<u32>()
    }
}

/// What a caller learns when no answer comes: whether anything of the request has left this process.
fn failure(position: Position, id: MuxId, out: &Outbox, reason: Reason) -> CallError {
    let left =
        if position == Position::LARGE { out.large_state(id, false) != Some(false) } else { out.has_left(position) };
    if left { CallError::Unknown(reason) } else { CallError::NotSent(reason) }
}
