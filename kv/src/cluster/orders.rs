//! Orders of clients to the cluster that are not done yet: each has a ticket, and its client waits without a thread.
//!
//! [`Control::order`](super::control::Control::order) answers at once, or the order is pending until [`Engine::finish_order`] tells what
//! has become of it. Clients wait for that as they wait for replicas (`WAIT`); the code that moves slots looks again at its next turn.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Cluster;
use super::control::Order;
use super::migration::Import;
use crate::engine::Engine;
use crate::time::Now;

/// How long an order may take. Whoever decides about orders gives up earlier.
pub(crate) const ORDER_MAX: Duration = Duration::from_secs(5);
/// Orders that are pending at a time, and orders that are done and that nobody has looked at: the oldest of these are forgotten.
const PENDING_MAX: usize = 64;
const DONE_MAX: usize = 64;

/// The number of an order, which no other order of the same process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ticket(pub u64);

/// What has become of an order.
pub(crate) type Outcome = Result<(), String>;

/// All orders that are pending, or done and not looked at yet.
#[derive(Debug, Default)]
pub(crate) struct Orders(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: u64,
    pending: BTreeMap<Ticket, Pending>,
}

#[derive(Debug)]
struct Pending {
    outcome: Option<Outcome>,
    /// The import whose slots are taken by the order.
    import: Option<Arc<Import>>,
}

impl Orders {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is known what has become of an order.
    pub(crate) fn is_done(&self, ticket: Ticket) -> bool {
        self.lock().pending.get(&ticket).is_none_or(|pending| pending.outcome.is_some())
    }

    /// What has become of an order; it is forgotten with that. An order that is still pending is given up.
    pub(crate) fn take(&self, ticket: Ticket) -> Outcome {
        let pending = self.lock().pending.remove(&ticket);
        let outcome = pending.and_then(|pending| pending.outcome);
        outcome.unwrap_or_else(|| Err("the cluster has not done so in time; it may do so later".to_owned()))
    }
}

impl Cluster {
    /// Has something done. What has become of it, or the ticket by which to look for that.
    pub(crate) fn submit(&self, order: Order, import: Option<&Arc<Import>>) -> Result<Outcome, Ticket> {
        let mut state = self.orders.lock();
        let is_done = |(ticket, pending): (&Ticket, &Pending)| pending.outcome.is_some().then_some(*ticket);
        let done: Vec<Ticket> = state.pending.iter().filter_map(is_done).collect();
        if state.pending.len() - done.len() >= PENDING_MAX {
            return Ok(Err("too much is asked of the cluster at a time: try again later".to_owned()));
        }
        done.iter().take(done.len().saturating_sub(DONE_MAX)).for_each(|ticket| drop(state.pending.remove(ticket)));
        state.last += 1;
        let ticket = Ticket(state.last);
        // It is entered before anybody can finish it.
        state.pending.insert(ticket, Pending { outcome: None, import: import.cloned() });
        drop(state);
        match self.control.order(order, ticket) {
            Some(outcome) => {
                self.orders.lock().pending.remove(&ticket);
                Ok(outcome)
            }
            None => Err(ticket),
        }
    }
}

/// A claim that is made anew, for code that looks again and again until that is decided.
#[derive(Debug, Default)]
pub(crate) struct Renewal(Option<Ticket>);

impl Renewal {
    /// Begins, if it has not begun. What has become of it, once that is known; the next call begins another one then.
    pub(crate) fn poll(&mut self, cluster: &Cluster) -> Option<Outcome> {
        let Some(ticket) = self.0 else {
            return match cluster.submit(Order::Renew, None) {
                Ok(outcome) => Some(outcome),
                Err(ticket) => {
                    self.0 = Some(ticket);
                    None
                }
            };
        };
        cluster.orders.is_done(ticket).then(|| {
            self.0 = None;
            cluster.orders.take(ticket)
        })
    }
}

impl Engine {
    /// What has become of an order that was pending. Clients that wait for it are answered before this returns.
    ///
    /// # Panics
    /// The engine is no node of a cluster: nobody has a ticket then.
    pub fn finish_order(&self, ticket: Ticket, outcome: &Result<(), String>, now: Now) {
        let cluster = self.cluster().expect("only a node of a cluster gives orders");
        let mut state = cluster.orders.lock();
        // Nobody waits for it any more where it is not there.
        let Some(pending) = state.pending.get_mut(&ticket) else { return };
        let import = pending.import.take();
        pending.outcome = Some(outcome.clone());
        drop(state);
        if let Some(import) = import {
            import.note_taken(outcome, now);
        }
        self.migration.wake();
        self.waiting.reached(self);
    }
}
