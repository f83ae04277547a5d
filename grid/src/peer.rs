//! One peer: its connections, who waits for one, its breaker.

use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, Waker};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ashlar_wire::id::{Incarnation, ServerId};
use ashlar_wire::time::Instant;

use crate::apart::Apart;
use crate::breaker::Breaker;
use crate::config::GridConfig;
use crate::error::{CallError, Lost, Reason};
use crate::link::{Link, THREADS};
use crate::mux::Counters;
use crate::mux::calls::CallResult;
use crate::seam::Lane;
use crate::status::{PeerState, PeerStatus};
use crate::table::Standing;

/// One peer, for as long as it is known.
#[derive(Debug)]
pub(crate) struct Peer {
    id: ServerId,
    /// Whether the breaker has counted a refusal since the last success: without one, nobody needs to ask it.
    is_refusing: AtomicBool,
    state: Apart<Mutex<State>>,
    /// The small connection as threads of each number see it: what one call after the other takes and counts is of its own
    /// thread. Written under the lock of `state` only.
    small: [Apart<Mutex<Option<LinkOfThread>>>; THREADS],
}

/// A connection, counted by the threads of one number.
pub(crate) type LinkOfThread = Arc<Arc<Link>>;

#[derive(Debug)]
struct State {
    address: String,
    incarnation: Option<Incarnation>,
    link: Option<Arc<Link>>,
    bulk: Vec<Arc<Link>>,
    /// Bulk connections that are being opened.
    bulk_opening: usize,
    bulk_max: usize,
    /// Where the next bulk call looks first.
    bulk_turn: usize,
    /// Dials of this side whose proof is sent and whose outcome is not known.
    dialing: usize,
    breaker: Breaker,
    waiting: Vec<Waker>,
    /// Who wants to know when the connection is gone.
    keepers: Vec<Waker>,
    connects: u64,
    last_error: Option<String>,
    /// Traffic of connections that have ended.
    past_bytes: (u64, u64),
}

impl Peer {
    pub(crate) fn new(id: ServerId, address: String, config: &GridConfig) -> Self {
        let state = State {
            address,
            incarnation: None,
            link: None,
            bulk: Vec::new(),
            bulk_opening: 0,
            bulk_max: config.bulk_pool_max,
            bulk_turn: 0,
            dialing: 0,
            breaker: Breaker::new(config.breaker_failures_max, config.timing.breaker_pause),
            waiting: Vec::new(),
            keepers: Vec::new(),
            connects: 0,
            last_error: None,
            past_bytes: (0, 0),
        };
        let small = core::array::from_fn(|_| Apart(Mutex::new(None)));
        Self { id, is_refusing: AtomicBool::new(false), state: Apart(Mutex::new(state)), small }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn small(&self, thread: usize) -> MutexGuard<'_, Option<LinkOfThread>> {
        self.small[thread % THREADS].0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the threads that `link` is the small connection. The caller has the lock of the state.
    fn set_small(&self, link: Option<&Arc<Link>>) {
        for thread in 0..THREADS {
            *self.small(thread) = link.map(|link| Arc::new(link.clone()));
        }
    }

    pub(crate) fn id(&self) -> ServerId {
        self.id
    }

    pub(crate) fn address(&self) -> String {
        self.lock().address.clone()
    }

    /// How the peer's connection stands, for [`table`](crate::table).
    pub(crate) fn standing(&self, now: Instant) -> Standing {
        let state = self.lock();
        let live = state.link.as_ref().map(|link| link.lock()).filter(|mux| mux.lost().is_none());
        let is_suspect = live.as_ref().is_some_and(|mux| mux.is_suspect(now));
        Standing {
            incarnation: state.incarnation,
            is_linked: live.is_some(),
            is_suspect,
            is_dialing: state.dialing > 0,
        }
    }

    /// Asks on its connection whether it lives, unless it was heard a moment ago.
    pub(crate) fn ask(&self, now: Instant) {
        if let Some(link) = &self.lock().link {
            link.lock().ask_peer(now);
        }
    }

    /// The peer may accept a dial of this side from now on.
    pub(crate) fn begin_dial(&self) {
        self.lock().dialing += 1;
    }

    /// The outcome of such a dial is known.
    pub(crate) fn end_dial(&self) {
        self.lock().dialing -= 1;
    }

    /// Whether every connection has ended and none can come of what this side has dialed.
    pub(crate) fn is_settled(&self) -> bool {
        let state = self.lock();
        let has_ended = |link: &Arc<Link>| link.lock().lost().is_some();
        state.dialing == 0 && state.bulk_opening == 0 && state.link.iter().chain(&state.bulk).all(has_ended)
    }

    /// Makes `link` the connection; the one that was there before is ended.
    pub(crate) fn install(&self, link: &Arc<Link>) {
        let (old, waiting) = {
            let mut state = self.lock();
            state.incarnation = state.incarnation.max(Some(link.session().incarnation));
            state.address.clone_from(&link.session().peer_address);
            state.connects += 1;
            state.last_error = None;
            state.breaker.handle_success();
            self.is_refusing.store(false, Ordering::Release);
            self.set_small(Some(link));
            (state.link.replace(link.clone()), core::mem::take(&mut state.waiting))
        };
        if let Some(old) = old {
            old.lock().close(Lost::Replaced);
        }
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Whether there may be one more bulk connection.
    pub(crate) fn has_bulk_room(&self, max: usize) -> bool {
        self.lock().bulk.len() < max
    }

    /// Adds a bulk connection; `false` if there are too many.
    pub(crate) fn install_bulk(&self, link: &Arc<Link>, max: usize) -> bool {
        let waiting = {
            let mut state = self.lock();
            if state.bulk.len() >= max {
                return false;
            }
            state.bulk.push(link.clone());
            core::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
        true
    }

    /// A connection has ended.
    pub(crate) fn remove(&self, link: &Arc<Link>, reason: Option<String>) {
        let mut state = self.lock();
        let (bytes_in, bytes_out) = link.traffic();
        state.past_bytes.0 += bytes_in;
        state.past_bytes.1 += bytes_out;
        if state.link.as_ref().is_some_and(|present| Arc::ptr_eq(present, link)) {
            state.link = None;
            self.set_small(None);
            state.last_error = reason;
        }
        state.bulk.retain(|present| !Arc::ptr_eq(present, link));
        let keepers = core::mem::take(&mut state.keepers);
        drop(state);
        keepers.into_iter().for_each(Waker::wake);
    }

    /// Ready when there is no connection.
    pub(crate) fn poll_unlinked(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.link.is_none() {
            return Poll::Ready(());
        }
        if !state.keepers.iter().any(|waker| waker.will_wake(cx.waker())) {
            state.keepers.push(cx.waker().clone());
        }
        Poll::Pending
    }

    pub(crate) fn note_error(&self, error: String) {
        self.lock().last_error = Some(error);
    }

    /// The small connection, for a caller on the thread of that number. One that has ended or drains refuses the call, which is
    /// tried again then.
    #[inline]
    pub(crate) fn small_link(&self, thread: usize) -> Option<LinkOfThread> {
        self.small(thread).clone()
    }

    /// A connection that takes new calls now.
    pub(crate) fn link(&self, lane: Lane) -> Option<Arc<Link>> {
        let mut state = self.lock();
        match lane {
            Lane::Small => state.link.clone(),
            Lane::Bulk => {
                state.bulk_turn = state.bulk_turn.wrapping_add(1);
                let turn = state.bulk_turn;
                let usable: Vec<&Arc<Link>> = state.bulk.iter().filter(|link| is_usable(link)).collect();
                let idle = usable.iter().find(|link| link.lock().is_idle());
                let full = usable.len() + state.bulk_opening >= state.bulk_max;
                let shared = if full && !usable.is_empty() { usable.get(turn % usable.len()) } else { None };
                idle.or(shared).map(|link| Arc::clone(link))
            }
        }
    }

    /// The connection for `lane`, once there is one. Where no bulk connection can be had, the small one serves.
    pub(crate) fn poll_link(&self, lane: Lane, cx: &Context<'_>) -> Poll<Arc<Link>> {
        if let Some(link) = self.link_or_small(lane).filter(is_usable) {
            return Poll::Ready(link);
        }
        let mut state = self.lock();
        if !state.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            state.waiting.push(cx.waker().clone());
        }
        drop(state);
        // It may have come between the first look and the registration.
        self.link_or_small(lane).filter(is_usable).map_or(Poll::Pending, Poll::Ready)
    }

    fn link_or_small(&self, lane: Lane) -> Option<Arc<Link>> {
        let small = lane == Lane::Bulk && self.lock().bulk_opening == 0;
        self.link(lane).or_else(|| self.link(Lane::Small).filter(|_| small))
    }

    /// Whether one more bulk connection should be opened now; counts it as opening.
    pub(crate) fn begin_bulk(&self, max: usize) -> bool {
        let mut state = self.lock();
        let room = state.bulk.len() + state.bulk_opening < max;
        state.bulk_opening += usize::from(room);
        room
    }

    /// A bulk connection was opened, or could not be.
    pub(crate) fn end_bulk(&self) {
        let waiting = {
            let mut state = self.lock();
            state.bulk_opening -= 1;
            core::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Whether the breaker lets a call pass.
    #[inline]
    pub(crate) fn admit(&self, now: impl FnOnce() -> Instant) -> bool {
        !self.is_refusing.load(Ordering::Acquire) || self.lock().breaker.admit(now())
    }

    /// Tells the breaker how a call went.
    #[inline]
    pub(crate) fn note_result(&self, result: &CallResult, now: impl FnOnce() -> Instant) {
        match result {
            Ok(_) | Err(CallError::Refused(_)) => {
                if self.is_refusing.load(Ordering::Acquire) {
                    let mut state = self.lock();
                    state.breaker.handle_success();
                    self.is_refusing.store(false, Ordering::Release);
                }
            }
            Err(CallError::NotExecuted(Reason::Overloaded)) => {
                let mut state = self.lock();
                state.breaker.handle_refusal(now());
                self.is_refusing.store(true, Ordering::Release);
            }
            Err(_) => {}
        }
    }

    /// Every connection.
    pub(crate) fn links(&self) -> Vec<Arc<Link>> {
        let state = self.lock();
        state.link.iter().chain(&state.bulk).cloned().collect()
    }

    /// Ends every connection, and lets those who wait for one look again.
    pub(crate) fn close(&self, lost: Lost) {
        for link in self.links() {
            link.lock().close(lost);
        }
        let mut state = self.lock();
        let waiting = core::mem::take(&mut state.waiting);
        let keepers = core::mem::take(&mut state.keepers);
        drop(state);
        waiting.into_iter().chain(keepers).for_each(Waker::wake);
    }

    pub(crate) fn status(&self, now: Instant) -> PeerStatus {
        let state = self.lock();
        let mut status = PeerStatus::unknown(state.address.clone(), state.last_error.clone());
        status.id = Some(self.id);
        status.incarnation = state.incarnation;
        status.connects = state.connects;
        status.breaker_open = state.breaker.is_open();
        status.bulk_connections = state.bulk.len();
        (status.bytes_in, status.bytes_out) = state.past_bytes;
        for link in state.link.iter().chain(&state.bulk) {
            let (bytes_in, bytes_out) = link.traffic();
            status.bytes_in += bytes_in;
            status.bytes_out += bytes_out;
        }
        if let Some(link) = &state.link {
            let mux = link.lock();
            status.state = match () {
                () if mux.lost().is_some() => PeerState::Connecting,
                () if mux.is_peer_draining() => PeerState::Draining,
                () if mux.is_suspect(now) => PeerState::Suspect,
                () => PeerState::Connected,
            };
            status.key = Some(link.proofs().key());
            status.round_trip = mux.round_trip();
            status.connected_for = Some(now.saturating_since(link.made_at()));
            status.counters = mux.counters();
            (status.calls_in_flight, status.calls_handled, status.streams, status.bytes_queued) = mux.in_flight();
        }
        status
    }
}

fn is_usable(link: &Arc<Link>) -> bool {
    let mux = link.lock();
    mux.lost().is_none() && !mux.is_peer_draining()
}

impl PeerStatus {
    /// An address where nobody was found so far.
    pub(crate) fn unknown(address: String, last_error: Option<String>) -> Self {
        Self {
            id: None,
            address,
            incarnation: None,
            state: PeerState::Connecting,
            round_trip: None,
            connected_for: None,
            key: None,
            bytes_in: 0,
            bytes_out: 0,
            counters: Counters::default(),
            calls_in_flight: 0,
            calls_handled: 0,
            streams: 0,
            bytes_queued: 0,
            bulk_connections: 0,
            connects: 0,
            last_error,
            breaker_open: false,
        }
    }
}
