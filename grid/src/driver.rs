//! The task of one connection: bytes in, handlers, bytes out, time.
//!
//! A future over a [`Wire`] and a [`Link`]; it resolves when the connection has ended, with the reason. One turn reads
//! what has come, lets the woken callers run once so that what they send next leaves in one write together, and writes when
//! it is this connection's turn.

use core::future::Future;
use core::pin::Pin;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::task::{Context, Poll};
use core::time::Duration;
use std::io::IoSlice;
use std::sync::Arc;

use ashlar_wire::time::Instant;

use crate::error::Lost;
use crate::frame;
use crate::handover::Requests;
use crate::inlet::{Inlet, ReceiveEnd};
use crate::link::Link;
use crate::mux::ProtocolError;
use crate::mux::returns::Returns;
use crate::outbox::Batch;
use crate::seam::{BoxFuture, Runtime, Wire, WireError};

/// Batches read and written in one turn; then other connections of the same thread have theirs.
const BATCHES_PER_TURN_MAX: u32 = 8;
/// A connection whose task has not run for so long reads all that has come before it serves any of it.
const AWAY: Duration = Duration::from_millis(50);
/// Or until requests of so many bytes have come.
const PUT_DOWN_MAX: usize = 256 << 10;
/// From so many bytes on, what waits is worth a write of its own, before woken callers add to it and whose turn it may be: some
/// messages, for which a system call more does not matter.
const EARLY_BYTES: usize = 4_096;
/// Slices in one vectored write.
const SLICES_MAX: usize = 16;

/// How a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// For calls and metrics.
    pub lost: Lost,
    /// What the peer did wrong, if it did.
    pub protocol: Option<ProtocolError>,
    /// What the transport said, if it failed.
    pub wire: Option<WireError>,
}

/// A connection that runs.
pub struct Driver<R: Runtime> {
    runtime: Arc<R>,
    wire: R::Wire,
    link: Arc<Link>,
    inlet: Inlet<R>,
    /// How many connections this server has.
    connections: Arc<AtomicUsize>,
    batch: Batch,
    /// Bytes of `inlet.raw_out` that are written.
    raw_written: usize,
    spare: Vec<Vec<u8>>,
    timer: BoxFuture<()>,
    /// When the timer wakes this task; at [`Instant::NEVER`] there is none.
    timer_at: Instant,
    /// What the clock said last: once a turn.
    now: Instant,
    /// Whether that was in this turn.
    has_read_clock: bool,
    /// Woken callers had their chance to add to the next batch.
    lingered: bool,
    /// Has something to write and waits for its turn: woken when that comes, and for nothing that is added meanwhile.
    in_line: bool,
    /// Batches of this turn so far.
    batches: u32,
    /// What was taken from, and goes to, callers on other threads; both empty, and kept for their room.
    requests: Requests,
    returns: Returns,
    ended: Option<Ended>,
}

impl<R: Runtime> Driver<R> {
    /// A driver for `link`, whose received bytes go to `inlet`, on a server that has so many `connections`.
    pub fn new(
        runtime: Arc<R>,
        wire: R::Wire,
        link: Arc<Link>,
        inlet: Inlet<R>,
        connections: Arc<AtomicUsize>,
    ) -> Self {
        let now = runtime.now();
        Self {
            runtime,
            wire,
            link,
            inlet,
            connections,
            batch: Batch::default(),
            raw_written: 0,
            spare: Vec::new(),
            timer: Box::pin(core::future::pending()),
            timer_at: Instant::NEVER,
            now,
            has_read_clock: false,
            lingered: false,
            in_line: false,
            batches: 0,
            requests: Requests::default(),
            returns: Returns::default(),
            ended: None,
        }
    }

    /// Takes bytes that came in one batch with the end of the hello.
    pub fn handle_early(&mut self, bytes: &mut [u8]) {
        let result = self.inlet.handle_bytes(self.runtime.now(), bytes);
        self.note_received(result);
    }

    fn end(&mut self, lost: Lost, protocol: Option<ProtocolError>, wire: Option<WireError>) {
        let mut mux = self.link.lock();
        let expected = mux.is_let_go() && matches!(lost, Lost::Closed | Lost::Broken);
        let lost = if expected { Lost::Drained } else { lost };
        // Where this side has ended it, what the peer made of that is no other reason.
        let lost = mux.lost().unwrap_or(lost);
        mux.close(lost);
        drop(mux);
        if self.ended.is_none() {
            self.ended = Some(Ended { lost, protocol, wire });
        }
    }

    fn note_received(&mut self, result: Result<(), ReceiveEnd>) {
        match result {
            Ok(()) => {}
            Err(ReceiveEnd::Closed) => self.end(Lost::Closed, None, None),
            Err(ReceiveEnd::Unproved) => self.end(Lost::Unproved, None, None),
            Err(ReceiveEnd::Protocol(error)) => self.end(Lost::Protocol, Some(error), None),
        }
    }

    /// Starts the calls that other threads have handed over.
    fn take_over(&mut self) {
        if !self.link.has_handovers() {
            return;
        }
        let link = self.link.clone();
        for handover in link.take_handed() {
            if !core::mem::replace(&mut self.has_read_clock, true) {
                self.now = self.runtime.now();
            }
            handover.take_over(&mut link.lock(), self.now, &mut self.requests);
        }
    }

    /// Gives callers on other threads the results of their calls.
    fn hand_back(&mut self) {
        while self.link.has_handovers() {
            let thread = self.link.lock().take_returns(&mut self.returns);
            let Some(thread) = thread else { return };
            let handover = self.link.handover_at(thread).expect("a thread that hands over has a handover");
            handover.hand_back(&mut self.returns);
        }
    }

    /// Reads a batch, if one has come, and serves the calls in it; whether there was anything.
    fn read(&mut self, cx: &mut Context<'_>) -> bool {
        let before = self.now;
        let any = self.read_batch(cx);
        if any && self.now.saturating_since(before) >= AWAY {
            // Nothing has run here for a while: what was given up meanwhile is given up before it is begun.
            while self.batches < BATCHES_PER_TURN_MAX && self.inlet.put_down_len() < PUT_DOWN_MAX && self.read_batch(cx)
            {
            }
        }
        if self.ended.is_some() {
            return any;
        }
        let served = self.inlet.serve(self.now);
        let any = any || !matches!(served, Ok(false));
        self.note_received(served.map(drop));
        if any {
            self.hand_back();
        }
        any
    }

    /// Reads one batch, if one has come; whether it had.
    fn read_batch(&mut self, cx: &mut Context<'_>) -> bool {
        if self.ended.is_some() {
            return false;
        }
        let mut result = Ok(());
        let Self { runtime, inlet, now, has_read_clock, .. } = self;
        let mut sink = |bytes: &mut [u8]| {
            (*now, *has_read_clock) = (runtime.now(), true);
            result = inlet.handle_bytes(*now, bytes);
        };
        match self.wire.poll_read(cx, &mut sink) {
            Poll::Pending => return false,
            Poll::Ready(Ok(0)) => self.end(Lost::Closed, None, None),
            Poll::Ready(Ok(len)) => {
                self.batches += 1;
                self.link.bytes_in.add(len);
                self.note_received(result);
            }
            Poll::Ready(Err(error)) => self.end(Lost::Broken, None, Some(error)),
        }
        true
    }

    /// Lets woken callers run before the next write, if any were woken. Answers that are worth a write of their own leave
    /// first: the peer works on them meanwhile.
    fn linger(&mut self, cx: &mut Context<'_>) -> bool {
        let queued = {
            let mut mux = self.link.lock();
            self.lingered = self.ended.is_none() && mux.take_stirred();
            mux.queued()
        };
        if self.lingered {
            cx.waker().wake_by_ref();
            if queued >= EARLY_BYTES {
                self.write_or_end(cx);
            }
        }
        self.lingered
    }

    fn write_or_end(&mut self, cx: &mut Context<'_>) {
        if let Poll::Ready(Err(error)) = self.write(cx) {
            self.end(Lost::Broken, None, Some(error));
        }
    }

    /// Writes what waits until nothing does or the turn is over (`Ready`), or the socket is full, or others come first.
    fn write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), WireError>> {
        loop {
            if self.batch.is_empty() {
                if !self.inlet.raw_out.is_empty() {
                    core::task::ready!(self.write_raw(cx))?;
                }
                if self.batches >= BATCHES_PER_TURN_MAX || !core::task::ready!(self.take_batch(cx)) {
                    return Poll::Ready(Ok(()));
                }
                self.batches += 1;
            }
            let mut slices: [IoSlice<'_>; SLICES_MAX] = core::array::from_fn(|_| IoSlice::new(&[]));
            let mut count = 0;
            for (slice, bytes) in slices.iter_mut().zip(self.batch.slices()) {
                *slice = IoSlice::new(bytes);
                count += 1;
            }
            let len = core::task::ready!(self.wire.poll_write(cx, &slices[..count]))?;
            self.batch.advance(len, &mut self.spare);
            self.link.bytes_out.add(len);
            let batch_done = self.batch.is_empty();
            let mut mux = self.link.lock();
            mux.handle_written(len as u64, batch_done, &mut self.spare);
            if batch_done && !mux.has_output() && self.inlet.raw_out.is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Takes the next batch out if it is this connection's turn; whether there is one.
    fn take_batch(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut mux = self.link.lock();
        mux.awake();
        let may_wait = mux.has_output() && mux.queued() < EARLY_BYTES;
        self.in_line = may_wait && self.wire.poll_turn(cx).is_pending();
        if self.in_line { Poll::Pending } else { Poll::Ready(mux.take_batch(&mut self.batch)) }
    }

    /// Writes pongs and close frames, between two batches.
    fn write_raw(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), WireError>> {
        while self.raw_written < self.inlet.raw_out.len() {
            let rest = &self.inlet.raw_out[self.raw_written..];
            self.raw_written += core::task::ready!(self.wire.poll_write(cx, &[IoSlice::new(rest)]))?;
        }
        self.inlet.raw_out = Vec::new();
        self.raw_written = 0;
        Poll::Ready(Ok(()))
    }

    /// What there is to do when nothing more came and nothing more can be written. Without anything, the task is woken from
    /// now on; in line, when its turn comes.
    fn settle(&mut self, cx: &Context<'_>) -> Rest {
        let mut mux = self.link.lock();
        let is_written = self.batch.is_empty();
        if mux.go_on_draining() && is_written {
            mux.close(Lost::Drained);
        }
        match mux.lost() {
            Some(lost) => Rest::Finish(lost),
            None if self.in_line => Rest::SleepUntil(mux.next_timeout()),
            None if mux.has_output() && is_written => Rest::Write,
            None => {
                mux.sleep(cx.waker());
                let due = mux.next_timeout();
                drop(mux);
                if self.link.sleep(cx.waker()) { Rest::SleepUntil(due) } else { Rest::Write }
            }
        }
    }

    /// Handles the timeouts if the next one, `due`, is due, and sees to being woken at the one after. Whether any was.
    fn keep_time(&mut self, cx: &mut Context<'_>, mut due: Instant) -> bool {
        if !core::mem::replace(&mut self.has_read_clock, true) {
            self.now = self.runtime.now();
        }
        let mut was_due = false;
        loop {
            if due <= self.now {
                let unacked = self.wire.unacked_bytes();
                let mut mux = self.link.lock();
                mux.handle_timeout(self.now, unacked, self.connections.load(Ordering::Relaxed));
                if matches!(mux.in_flight(), (0, 0, 0, _)) {
                    self.inlet.release_memory();
                    self.link.handovers().for_each(|handover| handover.release_memory());
                }
                // A timeout that is still due would spin; each one moves at least a little.
                due = mux.next_timeout().max(self.now + MIN_SLEEP);
                drop(mux);
                self.arm(due);
                was_due = true;
            } else if due < self.timer_at || due > self.timer_at + TIMER_SLACK {
                self.arm(due);
            }
            if self.timer.as_mut().poll(cx).is_pending() {
                return was_due;
            }
            // It has told what it had to.
            self.timer = Box::pin(core::future::pending());
            self.timer_at = Instant::NEVER;
            self.now = self.runtime.now();
        }
    }

    fn arm(&mut self, at: Instant) {
        self.timer = self.runtime.sleep_until(at);
        self.timer_at = at;
    }

    /// The connection is over: what callers learn was said by `close`; says good-bye to the peer if it can be said at once.
    fn finish(&mut self, cx: &mut Context<'_>, lost: Lost) -> Ended {
        let ended = self.ended.take().unwrap_or(Ended { lost, protocol: None, wire: None });
        self.hand_back();
        self.link.close_handovers(ended.lost);
        let farewell = match ended.lost {
            Lost::Protocol => Some((1002, ended.protocol.map(|error| error.to_string()).unwrap_or_default())),
            Lost::Drained | Lost::Shutdown => Some((1001, "going away".to_owned())),
            Lost::Unproved => Some((1008, "the new cluster secret was not proved".to_owned())),
            Lost::Replaced => Some((1000, "replaced".to_owned())),
            Lost::Closed | Lost::Broken | Lost::Silent => None,
        };
        if let Some((code, text)) = farewell
            && self.batch.is_empty()
        {
            let bytes = frame::encode_close(self.inlet.side(), code, &text);
            // Best effort: a full socket means a peer that does not read.
            let _ = self.wire.poll_write(cx, &[IoSlice::new(&bytes)]);
        }
        ended
    }
}

/// A timer that is this much too early is set anew, where the task runs anyway: being woken in vain costs more.
const TIMER_SLACK: Duration = Duration::from_millis(100);
/// Timeouts are not looked at more often than this.
const MIN_SLEEP: Duration = Duration::from_micros(500);

/// What is left of a turn when nothing more has come.
#[derive(Debug, Clone, Copy)]
enum Rest {
    /// The connection is over.
    Finish(Lost),
    /// More has to be written.
    Write,
    /// Nothing, until this or until somebody wakes the task.
    SleepUntil(Instant),
}

impl<R: Runtime> Future for Driver<R> {
    type Output = Ended;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended> {
        let this = self.get_mut();
        this.batches = 0;
        this.has_read_clock = false;
        this.link.awake(this.runtime.thread_number());
        // After lingering, what has gathered leaves before more is read.
        if !core::mem::take(&mut this.lingered) && this.read(cx) && this.linger(cx) {
            return Poll::Pending;
        }
        loop {
            if this.batches >= BATCHES_PER_TURN_MAX && this.ended.is_none() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            this.take_over();
            this.write_or_end(cx);
            if this.read(cx) {
                if this.linger(cx) {
                    return Poll::Pending;
                }
                continue;
            }
            this.hand_back();
            let mut rest = this.settle(cx);
            if let Rest::SleepUntil(due) = rest
                && this.keep_time(cx, due)
            {
                this.hand_back();
                rest = this.settle(cx);
            }
            match rest {
                Rest::Finish(lost) => return Poll::Ready(this.finish(cx, lost)),
                Rest::Write => {}
                Rest::SleepUntil(_) => return Poll::Pending,
            }
        }
    }
}

#[cfg(test)]
mod tests;
