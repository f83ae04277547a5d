//! Calls from other threads than the connection's, handed over in batches.
//!
//! What two threads change in turn has to pass from one core's cache to the other's each time, and a lock that both want all
//! the time makes one of them sleep. So a caller on another worker does not touch its connection: it puts its request into the
//! [`Handover`] of its own thread, which nobody else wants at that moment. The connection's task takes all of them over at
//! once in its next turn, and hands their results back at once; a task on the callers' thread, the *distributor*, gives them out
//! and wakes the callers, which is cheap there.
//!
//! A call that was not taken over yet when the connection ends has not been sent.

use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ashlar_wire::time::Instant;

use crate::error::{CallError, Lost, Reason};
use crate::link::Link;
use crate::mux::calls::CallResult;
use crate::mux::returns::{Key, Returns};
use crate::mux::{CallLimits, Mux, NewCall};
use crate::outbox::Class;
use crate::seam::Threads;

/// Calls of the callers on one thread over one connection.
#[derive(Debug)]
pub(crate) struct Handover {
    state: Mutex<State>,
    /// Number of the thread, as the connection knows it.
    thread: usize,
    limits: CallLimits,
}

#[derive(Debug, Default)]
struct State {
    slots: Vec<Slot>,
    free: Vec<u32>,
    next_generation: u32,
    requests: Requests,
    returns: Returns,
    /// Whom to wake for returns.
    distributor: Option<Waker>,
    /// Which distributor gives out; one with another number ends.
    distributor_number: u32,
    has_distributor: bool,
    /// The connection has ended.
    lost: Option<Lost>,
}

/// A call that was put down.
struct Put {
    key: Key,
    /// The number of the distributor that has to be started for it.
    distributor: Option<u32>,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    call: Call,
}

#[derive(Debug)]
enum Call {
    Free,
    Waiting(Waker),
    Done(CallResult),
}

/// What was handed over and not taken yet, in order.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    entries: Vec<Entry>,
    /// The requests of all calls, one behind the other.
    bytes: Vec<u8>,
}

#[derive(Debug)]
enum Entry {
    Call { key: Key, handler: u16, deadline: Instant, len: usize },
    Cancel(Key),
}

impl Handover {
    /// For the thread of that number.
    pub(crate) fn new(thread: usize, limits: CallLimits) -> Self {
        Self { state: Mutex::default(), thread, limits }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a call down whose request `encode` appends to a buffer; `waker` is woken for its result. `None`, and nothing has
    /// happened, if the request is too long for this way.
    fn put(
        &self,
        (handler, deadline): (u16, Instant),
        encode: &impl Fn(&mut Vec<u8>),
        waker: &Waker,
    ) -> Option<Result<Put, CallError>> {
        let mut state = self.lock();
        let state = &mut *state;
        if let Some(lost) = state.lost {
            return Some(Err(CallError::NotSent(Reason::Disconnected(lost))));
        }
        let CallLimits { calls, request_bytes, queued_bytes } = self.limits;
        let in_flight = state.slots.len() - state.free.len();
        // Callers that leave free their slots, and what they have put down stays until it is taken.
        if in_flight >= calls || state.requests.entries.len() >= 2 * calls || state.requests.bytes.len() > queued_bytes
        {
            return Some(Err(CallError::NotSent(Reason::Overloaded)));
        }
        let before = state.requests.bytes.len();
        encode(&mut state.requests.bytes);
        let len = state.requests.bytes.len() - before;
        if len > request_bytes {
            state.requests.bytes.truncate(before);
            return None;
        }
        state.next_generation = state.next_generation.wrapping_add(1);
        let new = Slot { generation: state.next_generation, call: Call::Waiting(waker.clone()) };
        let generation = new.generation;
        let slot = match state.free.pop() {
            Some(slot) => {
                state.slots[slot as usize] = new;
                slot
            }
            None => {
                state.slots.push(new);
                u32::try_from(state.slots.len() - 1).expect("slots are limited by a u32")
            }
        };
        let key = Key { slot, generation };
        state.requests.entries.push(Entry::Call { key, handler, deadline, len });
        let needs_distributor = !core::mem::replace(&mut state.has_distributor, true);
        state.distributor_number = state.distributor_number.wrapping_add(u32::from(needs_distributor));
        Some(Ok(Put { key, distributor: needs_distributor.then_some(state.distributor_number) }))
    }

    /// The result of a call, if it has come; else `waker` is woken when it does.
    fn collect(&self, key: Key, waker: &Waker) -> Poll<CallResult> {
        let mut state = self.lock();
        let slot = state.slot(key).expect("a call is polled until it is collected, and no longer");
        if let Call::Waiting(old) = &mut slot.call {
            old.clone_from(waker);
            return Poll::Pending;
        }
        let Call::Done(result) = core::mem::replace(&mut slot.call, Call::Free) else {
            unreachable!("a free slot has no call")
        };
        state.free.push(key.slot);
        Poll::Ready(result)
    }

    /// Gives a call up; whether the connection has to be told.
    fn give_up(&self, key: Key) -> bool {
        let mut state = self.lock();
        let is_lost = state.lost.is_some();
        let Some(slot) = state.slot(key) else { return false };
        let was_waiting = matches!(slot.call, Call::Waiting(_));
        slot.call = Call::Free;
        state.free.push(key.slot);
        let has_to_be_told = was_waiting && !is_lost;
        if has_to_be_told {
            state.requests.entries.push(Entry::Cancel(key));
        }
        has_to_be_told
    }

    /// Starts what was put down; `requests` is for its room only. What cannot be started is among the mux's returns.
    pub(crate) fn take_over(&self, mux: &mut Mux, now: Instant, requests: &mut Requests) {
        // Whoever takes has the mux: what is put down in order is started in order.
        core::mem::swap(&mut self.lock().requests, requests);
        let mut rest = requests.bytes.as_slice();
        for entry in requests.entries.drain(..) {
            match entry {
                Entry::Call { key, handler, deadline, len } => {
                    let (request, behind) = rest.split_at(len);
                    rest = behind;
                    let call = NewCall { handler, route: "", deadline, class: Class::Foreground };
                    mux.start_handed_call(now, (self.thread, key), &call, request);
                }
                Entry::Cancel(key) => mux.cancel_handed_call(self.thread, key),
            }
        }
        requests.bytes.clear();
    }

    /// Hands results back, on the connection's task; `returns` is left empty.
    pub(crate) fn hand_back(&self, returns: &mut Returns) {
        let mut state = self.lock();
        state.returns.append(returns);
        let distributor = state.distributor.take();
        drop(state);
        distributor.into_iter().for_each(Waker::wake);
    }

    /// The connection has ended, and all results of what was taken over are handed back.
    pub(crate) fn close(&self, lost: Lost) {
        let mut state = self.lock();
        let state = &mut *state;
        state.lost = Some(lost);
        let left = core::mem::take(&mut state.requests);
        for entry in left.entries {
            if let Entry::Call { key, .. } = entry {
                state.returns.push(key, Err(CallError::NotSent(Reason::Disconnected(lost))));
            }
        }
        state.distributor.take().into_iter().for_each(Waker::wake);
    }

    /// Frees buffers and ends the distributor, where no call is under way.
    pub(crate) fn release_memory(&self) {
        let mut state = self.lock();
        if state.slots.len() == state.free.len() && state.requests.entries.is_empty() && state.returns.is_empty() {
            let (next_generation, distributor_number, lost) =
                (state.next_generation, state.distributor_number, state.lost);
            let distributor = state.distributor.take();
            *state = State { next_generation, distributor_number, lost, ..State::default() };
            drop(state);
            distributor.into_iter().for_each(Waker::wake);
        }
    }

    /// The distributor of that number: gives results out to the callers of its thread, where it runs, while there are any.
    async fn give_out(self: Arc<Self>, number: u32) {
        let (mut returns, mut woken) = (Returns::default(), Vec::new());
        poll_fn(|cx| {
            let mut state = self.lock();
            if !state.has_distributor || state.distributor_number != number {
                return Poll::Ready(());
            }
            core::mem::swap(&mut state.returns, &mut returns);
            returns.drain(|key, result| woken.extend(state.finish(key, result)));
            let is_over = state.lost.is_some();
            state.distributor = (!is_over).then(|| cx.waker().clone());
            drop(state);
            woken.drain(..).for_each(Waker::wake);
            if is_over { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl State {
    fn slot(&mut self, key: Key) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(key.slot as usize)?;
        (slot.generation == key.generation && !matches!(slot.call, Call::Free)).then_some(slot)
    }

    /// A call has ended; whom to wake. An answer becomes its caller's here, on the thread that frees it.
    fn finish(&mut self, key: Key, result: Result<&[u8], CallResult>) -> Option<Waker> {
        let slot = self.slot(key)?;
        let result = result.map_or_else(|result| result, |answer| Ok(answer.to_vec()));
        match core::mem::replace(&mut slot.call, Call::Done(result)) {
            Call::Waiting(waker) => Some(waker),
            Call::Done(_) | Call::Free => None,
        }
    }
}

/// A call that was handed over.
#[must_use = "a call that nobody waits for is cancelled"]
pub(crate) struct HandedCall<'a> {
    link: &'a Link,
    handover: &'a Handover,
    key: Key,
    is_collected: bool,
    /// Its waker is known: the first poll, in the same turn, has nothing left to do.
    is_registered: bool,
}

impl<'a> HandedCall<'a> {
    /// Hands a call over to the task of `link`. `None`, and nothing has happened, if the request is too long for this way.
    ///
    /// # Errors
    /// Always [`CallError::NotSent`]: retry is safe.
    pub(crate) fn start(
        threads: &impl Threads,
        (link, handover): (&'a Link, &'a Arc<Handover>),
        call: (u16, Instant),
        encode: &impl Fn(&mut Vec<u8>),
        cx: &Context<'_>,
    ) -> Option<Result<Self, CallError>> {
        let Put { key, distributor } = match handover.put(call, encode, cx.waker())? {
            Ok(put) => put,
            Err(error) => return Some(Err(error)),
        };
        if let Some(number) = distributor {
            threads.spawn(Box::pin(handover.clone().give_out(number)));
        }
        link.note_handed(handover.thread);
        Some(Ok(Self { link, handover, key, is_collected: false, is_registered: true }))
    }
}

impl Future for HandedCall<'_> {
    type Output = CallResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CallResult> {
        if core::mem::take(&mut self.is_registered) {
            return Poll::Pending;
        }
        let result = self.handover.collect(self.key, cx.waker());
        self.is_collected = result.is_ready();
        result
    }
}

impl Drop for HandedCall<'_> {
    fn drop(&mut self) {
        if !self.is_collected && self.handover.give_up(self.key) {
            self.link.note_handed(self.handover.thread);
        }
    }
}
