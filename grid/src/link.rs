//! One live connection as its users hold it: a mux behind a lock, and calls as futures.
//!
//! The lock is held for the encoding of one message and never across a wait or a handler. Callers of any thread may
//! share a link; its task (see [`driver`](crate::driver)) is woken when it sleeps and has something to write.

use core::future::Future;
use core::ops::Deref;
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use core::task::{Context, Poll, Waker};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

use ashlar_wire::time::Instant;

use crate::apart::Apart;
use crate::error::{CallError, Lost};
use crate::handover::{Handover, Requests};
use crate::hello::Session;
use crate::message::MuxId;
use crate::mux::calls::CallResult;
use crate::mux::{Mux, NewCall};
use crate::rotation::Proofs;

/// How often a lock is tried before a thread sleeps for it. It is held for less than a microsecond, and whoever slept for it
/// would cost its holder a system call.
const TRIES_MAX: u32 = 100;

/// One connection to an authenticated peer.
#[derive(Debug)]
pub struct Link {
    mux: Apart<Mutex<Mux>>,
    handed: Apart<Handed>,
    /// Number of the thread that the connection's task runs on; [`NOWHERE`] before it runs.
    home: AtomicUsize,
    /// Of the other threads that have handed a call over, by number.
    handovers: [OnceLock<Arc<Handover>>; THREADS],
    /// Whether there are any.
    has_handovers: AtomicBool,
    /// Why the connection's task has ended.
    over: OnceLock<Lost>,
    session: Session,
    proofs: Proofs,
    made_at: Instant,
    pub(crate) bytes_in: Count,
    pub(crate) bytes_out: Count,
}

/// Threads that have things of a connection to themselves; further ones share them.
pub(crate) const THREADS: usize = 16;
/// Stands for the thread of a task that has not run yet.
const NOWHERE: usize = usize::MAX;

/// What other threads tell the task of a connection.
#[derive(Debug, Default)]
struct Handed {
    /// A bit for each thread that has handed over something that was not taken yet.
    threads: AtomicU32,
    /// Whether the task has to be woken for it.
    is_asleep: AtomicBool,
    task: Mutex<Option<Waker>>,
}

/// What the task of the connection counts, and anybody reads.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Adds `len`. One task does: no other addition can come between.
    #[inline]
    pub(crate) fn add(&self, len: usize) {
        self.0.store(self.get() + len as u64, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Link {
    /// A link over `mux`.
    #[must_use]
    pub fn new(mux: Mux, session: Session, proofs: Proofs, made_at: Instant) -> Self {
        let (bytes_in, bytes_out) = (Count::default(), Count::default());
        Self {
            mux: Apart(Mutex::new(mux)),
            handed: Apart::default(),
            home: AtomicUsize::new(NOWHERE),
            handovers: core::array::from_fn(|_| OnceLock::new()),
            has_handovers: AtomicBool::new(false),
            over: OnceLock::new(),
            session,
            proofs,
            made_at,
            bytes_in,
            bytes_out,
        }
    }

    /// The connection's task is awake, on the thread of that number.
    pub(crate) fn awake(&self, thread: usize) {
        if self.home.load(Ordering::Relaxed) != thread {
            self.home.store(thread, Ordering::Relaxed);
        }
        if self.handed.0.is_asleep.load(Ordering::Relaxed) {
            self.handed.0.is_asleep.store(false, Ordering::Relaxed);
        }
    }

    /// Wakes `task` from now on when a thread hands something over; false, and it does not, if one has.
    pub(crate) fn sleep(&self, task: &Waker) -> bool {
        let Handed { threads, is_asleep, task: sleeper } = &self.handed.0;
        {
            let mut sleeper = sleeper.lock().unwrap_or_else(PoisonError::into_inner);
            match &mut *sleeper {
                Some(old) => old.clone_from(task),
                empty => *empty = Some(task.clone()),
            }
        }
        is_asleep.store(true, Ordering::SeqCst);
        // Whoever hands over sets its bit first and looks whether the task sleeps then; this is the other way round.
        let is_handed = threads.load(Ordering::SeqCst) != 0;
        if is_handed {
            is_asleep.store(false, Ordering::Relaxed);
        }
        !is_handed
    }

    /// Where callers on the thread of that number hand calls over; `None` where they go to the connection themselves: on its own
    /// thread, on one without a number, and before its task runs.
    pub(crate) fn handover(&self, thread: usize) -> Option<&Arc<Handover>> {
        let home = self.home.load(Ordering::Relaxed);
        if thread == 0 || home == 0 || home == NOWHERE || home == thread {
            return None;
        }
        let (number, mut is_new) = (thread % THREADS, false);
        let handover = self.handovers[number].get_or_init(|| {
            is_new = true;
            let limits = self.lock().call_limits();
            Arc::new(Handover::new(number, limits))
        });
        if is_new {
            self.has_handovers.store(true, Ordering::Relaxed);
            // Either this sees that the connection is over, or what ends it sees the new handover.
            fence(Ordering::SeqCst);
            self.over.get().into_iter().for_each(|lost| handover.close(*lost));
        }
        Some(handover)
    }

    /// Refuses new work from now on, of the peer and of this side; what was handed over before goes on.
    pub(crate) fn drain(&self, now: Instant) {
        let (mut mux, mut requests) = (self.lock(), Requests::default());
        for handover in self.handovers() {
            handover.take_over(&mut mux, now, &mut requests);
        }
        mux.drain();
    }

    /// Ends what other threads have handed over and what they hand over from now on: the connection's task has ended.
    pub(crate) fn close_handovers(&self, lost: Lost) {
        let lost = *self.over.get_or_init(|| lost);
        fence(Ordering::SeqCst);
        self.handovers.iter().filter_map(OnceLock::get).for_each(|handover| handover.close(lost));
    }

    /// A thread has put something into its handover.
    pub(crate) fn note_handed(&self, number: usize) {
        let Handed { threads, is_asleep, task } = &self.handed.0;
        let bit = 1 << number;
        // If it is set, what was put down is taken with what it was set for: both are under the handover's lock.
        if threads.load(Ordering::Relaxed) & bit != 0 {
            return;
        }
        threads.fetch_or(bit, Ordering::SeqCst);
        if is_asleep.load(Ordering::SeqCst) && is_asleep.swap(false, Ordering::SeqCst) {
            let task = task.lock().unwrap_or_else(PoisonError::into_inner).clone();
            task.into_iter().for_each(Waker::wake);
        }
    }

    /// The handovers in which something may wait.
    pub(crate) fn take_handed(&self) -> impl Iterator<Item = &Arc<Handover>> {
        let threads = match self.handed.0.threads.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.handed.0.threads.swap(0, Ordering::SeqCst),
        };
        self.handovers
            .iter()
            .enumerate()
            .filter(move |(number, _)| threads >> number & 1 != 0)
            .filter_map(|(_, it)| it.get())
    }

    /// Whether any thread hands calls over. The connection's task sees it with the first call that it takes.
    pub(crate) fn has_handovers(&self) -> bool {
        self.has_handovers.load(Ordering::Relaxed)
    }

    /// All handovers.
    pub(crate) fn handovers(&self) -> impl Iterator<Item = &Arc<Handover>> {
        self.handovers.iter().filter_map(OnceLock::get)
    }

    /// The handover of that number, which the mux knows.
    pub(crate) fn handover_at(&self, number: usize) -> Option<&Arc<Handover>> {
        self.handovers.get(number)?.get()
    }

    /// Who is at the other end, and what was agreed.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Which secrets the peer has proved.
    #[must_use]
    pub fn proofs(&self) -> &Proofs {
        &self.proofs
    }

    /// When the connection was made.
    #[must_use]
    pub fn made_at(&self) -> Instant {
        self.made_at
    }

    /// Bytes received and sent.
    #[must_use]
    pub fn traffic(&self) -> (u64, u64) {
        (self.bytes_in.get(), self.bytes_out.get())
    }

    /// The mux, for one short operation.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, Mux> {
        for _ in 0..TRIES_MAX {
            match self.mux.0.try_lock() {
                Ok(mux) => return mux,
                Err(TryLockError::Poisoned(mux)) => return mux.into_inner(),
                Err(TryLockError::WouldBlock) => core::hint::spin_loop(),
            }
        }
        // A panic ends the process in release; in tests, what it left is still the best to be had.
        self.mux.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a call; the future resolves to its answer, and cancels the call when it is dropped before.
    ///
    /// # Errors
    /// Always [`CallError::NotSent`]: retry is safe.
    #[inline]
    pub fn call(self: &Arc<Self>, now: Instant, call: &NewCall<'_>, request: &[u8]) -> Result<PendingCall, CallError> {
        let id = self.lock().start_call(now, call, request)?;
        Ok(PendingCall { link: self.clone(), id, collected: false, registered: false })
    }

    /// Like [`Link::call`] for a large request, which is not copied before it leaves.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn start_large(
        &self,
        now: Instant,
        call: &NewCall<'_>,
        request: Arc<Vec<u8>>,
    ) -> Result<PendingCall<&Self>, CallError> {
        let id = self.lock().start_large_call(now, call, request)?;
        Ok(PendingCall { link: self, id, collected: false, registered: false })
    }
}

/// A call that was started on the link that `L` refers to.
#[derive(Debug)]
#[must_use = "a call that nobody waits for is cancelled"]
pub struct PendingCall<L: Deref<Target = Link> = Arc<Link>> {
    link: L,
    id: MuxId,
    collected: bool,
    registered: bool,
}

impl<L: Deref<Target = Link>> PendingCall<L> {
    /// A call whose waker the mux has already; to be polled next by the same task, in the same turn.
    pub(crate) fn registered(link: L, id: MuxId) -> Self {
        Self { link, id, collected: false, registered: true }
    }
}

impl<L: Deref<Target = Link> + Unpin> Future for PendingCall<L> {
    type Output = CallResult;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CallResult> {
        if core::mem::take(&mut self.registered) {
            return Poll::Pending;
        }
        let result = self.link.lock().poll_call(self.id, cx);
        self.collected = result.is_ready();
        result
    }
}

impl<L: Deref<Target = Link>> Drop for PendingCall<L> {
    fn drop(&mut self) {
        if !self.collected {
            self.link.lock().cancel_call(self.id);
        }
    }
}
