//! One live connection as its users hold it: a mux behind a lock, and calls as futures.
//!
//! The lock is held for the encoding of one message and never across a wait or a handler. Callers of any thread may
//! share a link; its task (see [`driver`](crate::driver)) is woken when it sleeps and has something to write.

use core::future::Future;
use core::pin::Pin;
use core::sync::atomic::{AtomicU64, Ordering};
use core::task::{Context, Poll};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ashlar_wire::time::Instant;

use crate::error::CallError;
use crate::hello::Session;
use crate::message::MuxId;
use crate::mux::calls::CallResult;
use crate::mux::{Mux, NewCall};
use crate::rotation::Proofs;

/// One connection to an authenticated peer.
#[derive(Debug)]
pub struct Link {
    mux: Mutex<Mux>,
    session: Session,
    proofs: Proofs,
    made_at: Instant,
    pub(crate) bytes_in: Count,
    pub(crate) bytes_out: Count,
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
        Self { mux: Mutex::new(mux), session, proofs, made_at, bytes_in, bytes_out }
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
        // A panic ends the process in release; in tests, what it left is still the best to be had.
        self.mux.lock().unwrap_or_else(PoisonError::into_inner)
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
    pub fn call_large(
        self: &Arc<Self>,
        now: Instant,
        call: &NewCall<'_>,
        request: Arc<Vec<u8>>,
    ) -> Result<PendingCall, CallError> {
        let id = self.lock().start_large_call(now, call, request)?;
        Ok(PendingCall { link: self.clone(), id, collected: false, registered: false })
    }
}

/// A call that was started.
#[derive(Debug)]
#[must_use = "a call that nobody waits for is cancelled"]
pub struct PendingCall {
    link: Arc<Link>,
    id: MuxId,
    collected: bool,
    registered: bool,
}

impl PendingCall {
    /// A call whose waker the mux has already; to be polled next by the same task, in the same turn.
    pub(crate) fn registered(link: Arc<Link>, id: MuxId) -> Self {
        Self { link, id, collected: false, registered: true }
    }
}

impl Future for PendingCall {
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

impl Drop for PendingCall {
    fn drop(&mut self) {
        if !self.collected {
            self.link.lock().cancel_call(self.id);
        }
    }
}
