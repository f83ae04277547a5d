//! Mailboxes between the control thread and the tasks that run engines.
//!
//! The `controller` leaves assignments and outcomes of orders in the inbox of each engine; an engine's
//! [task](super::engine_task) leaves reports and orders for the controller. Nobody waits for the other side: each takes what is there,
//! and is woken when something new comes. Of several assignments only the latest counts. All queues are bounded.

use core::sync::atomic::{AtomicU64, Ordering};
use core::task::{Context, Poll};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ashlar_grid::seam::BoxFuture;
use ashlar_kv::Notify;
use ashlar_kv::cluster::control::{Control, MessageFigures, Order, Ticket};
use ashlar_kv::replicate::quorum::{PromiseAnswer, PromiseRequest};
use ashlar_wire::time::Instant;

use super::assignment::{Assignment, Report};
use super::messages::{Messages, Subscriber};
use super::planted::{self, Planted};
use super::promise_call::PendingPromise;

/// Orders that wait for the controller.
const ORDERS_MAX: usize = 64;
/// Requests for a promise that wait for one engine. A shard has one candidate at a time, and some that are late.
const PROMISES_MAX: usize = 16;

/// The engine whose client gave an order, and the order's ticket there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    number: usize,
    ticket: Ticket,
}

/// An order that the controller has not looked at.
#[derive(Debug)]
pub(super) struct PendingRequest {
    /// The number of the engine whose client gave it.
    pub(super) number: usize,
    pub(super) order: Order,
    pub(super) answer: Answer,
}

/// What is there for one engine.
#[derive(Debug, Default)]
pub struct Delivery {
    /// What the engine is to be from now on, if that is new. Whoever takes it calls [`Answers::done`] when the engine is so.
    pub assignment: Option<(Box<Assignment>, Answers)>,
    /// What has become of orders of its clients.
    pub outcomes: Vec<(Ticket, Result<(), String>)>,
    /// Candidates that want a promise.
    pub promises: VecDeque<PendingPromise>,
    /// The server stops: there will be nothing more.
    pub is_over: bool,
}

#[derive(Debug, Default)]
struct Inbox {
    assignment: Option<Box<Assignment>>,
    /// Orders that are done once all engines have done their assignments.
    answers: Vec<Arc<Vec<Answer>>>,
    outcomes: Vec<(Ticket, Result<(), String>)>,
    promises: VecDeque<PendingPromise>,
}

#[derive(Debug, Default)]
struct State {
    orders: VecDeque<PendingRequest>,
    reports: Vec<Option<Report>>,
    inboxes: Vec<Inbox>,
    /// There are reports or orders that the controller has not looked at.
    is_news: bool,
    is_over: bool,
}

/// Asks a member of another server for its promise; nothing if no answer comes in time.
pub(super) type PromiseCaller = Box<dyn Fn(PromiseRequest) -> BoxFuture<Option<PromiseAnswer>> + Send + Sync>;

/// The mailboxes of one server's engines. An engine's number is its place in the list of the server's engines.
pub struct EngineMailboxes {
    state: Mutex<State>,
    /// Wakes the task of each engine.
    engines: Vec<Notify>,
    /// Wakes the controller.
    controller: OnceLock<Box<dyn Fn() + Send + Sync>>,
    promise_caller: OnceLock<PromiseCaller>,
    messages: Arc<Messages>,
    /// Nanoseconds of [`EngineMailboxes::set_serves_until`].
    serves_until: AtomicU64,
}

impl core::fmt::Debug for EngineMailboxes {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("EngineMailboxes").finish_non_exhaustive()
    }
}

impl EngineMailboxes {
    /// Mailboxes for so many engines.
    #[must_use]
    pub fn new(engines: usize) -> Arc<Self> {
        let inboxes = core::iter::repeat_with(Inbox::default).take(engines).collect();
        Arc::new(Self {
            state: Mutex::new(State { reports: vec![None; engines], inboxes, ..State::default() }),
            engines: core::iter::repeat_with(Notify::default).take(engines).collect(),
            controller: OnceLock::new(),
            promise_caller: OnceLock::new(),
            messages: Arc::new(Messages::new(engines)),
            serves_until: AtomicU64::new(Instant::NEVER.as_nanos()),
        })
    }

    /// Until when engines may serve by the maps that they have, unless this is put off: see [`Control::serves_until`].
    pub(super) fn set_serves_until(&self, until: Instant) {
        self.serves_until.store(until.as_nanos(), Ordering::Release);
    }

    /// Messages of engines to subscribers elsewhere, and those that come from there.
    pub(crate) fn messages(&self) -> &Arc<Messages> {
        &self.messages
    }

    /// Messages that are published elsewhere are handed to an engine by this. Only the first call does anything.
    pub fn listen(&self, number: usize, subscriber: Subscriber) {
        self.messages.listen(number, subscriber);
    }

    /// The controller is woken, and members of other servers are asked, by these from now on. Only the first call does anything.
    pub(super) fn open(&self, wake: Box<dyn Fn() + Send + Sync>) {
        drop(self.controller.set(wake));
        self.wake_controller();
    }

    /// Members of other servers are asked for promises by this from now on. Only the first call does anything.
    pub(super) fn call_promises_by(&self, caller: PromiseCaller) {
        drop(self.promise_caller.set(caller));
    }

    /// Asks a member for its promise; nothing before the node has started, or if no answer comes in time.
    pub(super) fn call_promise(&self, request: PromiseRequest) -> BoxFuture<Option<PromiseAnswer>> {
        match self.promise_caller.get() {
            Some(call) => call(request),
            None => Box::pin(core::future::ready(None)),
        }
    }

    /// What clients of an engine may ask of the cluster.
    #[must_use]
    pub fn control(self: &Arc<Self>, number: usize) -> Box<dyn Control> {
        Box::new(EngineControl { mailboxes: Arc::clone(self), number })
    }

    /// An engine tells how it is.
    pub fn report(&self, number: usize, report: &Report) {
        let mut state = self.lock();
        if state.reports[number].as_ref() == Some(report) {
            return;
        }
        state.reports[number] = Some(report.clone());
        drop(state);
        self.wake_controller();
    }

    /// Takes all that is there for an engine. Ready also when there is nothing but a reason to report, and always once the mailboxes are
    /// closed: a delivery that is over and empty is the last. One task asks for each engine.
    pub fn poll_delivery(&self, number: usize, cx: &Context<'_>) -> Poll<Delivery> {
        let is_notified = self.engines[number].poll_notified(cx).is_ready();
        let mut state = self.lock();
        let is_over = state.is_over;
        if !is_notified && (!is_over || planted::has(Planted::EndToldOnce)) {
            return Poll::Pending;
        }
        let Inbox { assignment, answers, outcomes, promises } = core::mem::take(&mut state.inboxes[number]);
        Poll::Ready(match assignment {
            Some(assignment) => {
                Delivery { assignment: Some((assignment, Answers(answers))), outcomes, promises, is_over }
            }
            None => Delivery { assignment: None, outcomes, promises, is_over },
        })
    }

    /// The server stops: nothing is taken in any more, and what is there already is still delivered.
    pub fn close(&self) {
        self.lock().is_over = true;
        self.engines.iter().for_each(Notify::notify);
    }

    /// A candidate of another server wants the promise of an engine. False if too many wait already.
    pub(super) fn want_promise(&self, number: usize, pending: PendingPromise) -> bool {
        let mut state = self.lock();
        let is_over = state.is_over;
        let Some(inbox) = state.inboxes.get_mut(number).filter(|inbox| !is_over && inbox.promises.len() < PROMISES_MAX)
        else {
            return false;
        };
        inbox.promises.push_back(pending);
        drop(state);
        self.engines[number].notify();
        true
    }

    pub(super) fn take_orders(&self) -> VecDeque<PendingRequest> {
        core::mem::take(&mut self.lock().orders)
    }

    pub(super) fn reports(&self) -> Vec<Option<Report>> {
        self.lock().reports.clone()
    }

    /// Whether there is something for the controller that it has not looked at.
    pub(super) fn take_news(&self) -> bool {
        core::mem::take(&mut self.lock().is_news)
    }

    /// What all engines are to be from now on. Orders with these answers are done when the last engine is so.
    pub(super) fn assign(&self, assignments: Vec<Assignment>, answers: Vec<Answer>) {
        let answers = (!answers.is_empty()).then(|| Arc::new(answers));
        let mut state = self.lock();
        if state.is_over {
            return;
        }
        for (inbox, assignment) in state.inboxes.iter_mut().zip(assignments) {
            inbox.assignment = Some(Box::new(assignment));
            inbox.answers.extend(answers.clone());
        }
        drop((state, answers));
        let woken = if planted::has(Planted::WakeFirstOnly) { 1 } else { self.engines.len() };
        self.engines.iter().take(woken).for_each(Notify::notify);
    }

    /// Tells the client that gave an order what has become of it.
    pub(super) fn answer(&self, answer: Answer, outcome: Result<(), String>) {
        let Answer { number, ticket } = answer;
        self.lock().inboxes[number].outcomes.push((ticket, outcome));
        self.engines[number].notify();
    }

    fn wake_controller(&self) {
        self.lock().is_news = true;
        if let Some(wake) = self.controller.get() {
            wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Orders that are done once all engines have done their assignments.
#[derive(Debug, Default)]
pub struct Answers(Vec<Arc<Vec<Answer>>>);

impl Answers {
    /// This engine has. The last one tells the clients.
    pub fn done(self, mailboxes: &EngineMailboxes) {
        let last = self.0.into_iter().filter_map(Arc::into_inner).flatten();
        last.for_each(|answer| mailboxes.answer(answer, Ok(())));
    }
}

/// Takes the orders of one engine's clients.
#[derive(Debug)]
struct EngineControl {
    mailboxes: Arc<EngineMailboxes>,
    number: usize,
}

impl Control for EngineControl {
    fn order(&self, order: Order, ticket: Ticket) -> Option<Result<(), String>> {
        let mut state = self.mailboxes.lock();
        if state.orders.len() >= ORDERS_MAX || state.is_over {
            return Some(Err("too much is asked of the cluster at a time: try again later".to_owned()));
        }
        let answer = Answer { number: self.number, ticket };
        state.orders.push_back(PendingRequest { number: self.number, order, answer });
        drop(state);
        self.mailboxes.wake_controller();
        None
    }

    fn publish(&self, channel: &[u8], message: &[u8], is_sharded: bool) {
        self.mailboxes.messages.publish(self.number, channel, message, is_sharded);
    }

    fn listens(&self) {
        self.mailboxes.engines[self.number].notify();
    }

    fn message_figures(&self) -> MessageFigures {
        self.mailboxes.messages.figures()
    }

    fn serves_until(&self) -> Instant {
        Instant::from_nanos(self.mailboxes.serves_until.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use ashlar_kv::cluster::map::{Map, Name, Node, Service};

    use super::super::assignment::EngineInfo;
    use super::*;

    fn assignment() -> Assignment {
        Assignment {
            engine_info: EngineInfo::default(),
            map: Map::new(Name::default(), vec![Node::default()], Service::default()),
            upstream: None,
            is_paused: false,
            is_awaited: false,
            is_successor: false,
            purges: 0,
        }
    }

    fn next(mailboxes: &EngineMailboxes) -> Option<Delivery> {
        match mailboxes.poll_delivery(0, &Context::from_waker(Waker::noop())) {
            Poll::Ready(delivery) => Some(delivery),
            Poll::Pending => None,
        }
    }

    #[test]
    fn what_was_assigned_before_the_end_is_delivered_and_then_the_end() {
        let mailboxes = EngineMailboxes::new(1);
        let ticket = Ticket(7);
        mailboxes.assign(vec![assignment()], vec![Answer { number: 0, ticket }]);
        mailboxes.close();
        let (assigned, answers) = next(&mailboxes).and_then(|delivery| delivery.assignment).expect("it was assigned");
        assert_eq!(*assigned, assignment());
        answers.done(&mailboxes);
        let answered = next(&mailboxes).expect("the order is answered");
        assert_eq!(answered.outcomes, [(ticket, Ok(()))]);
        // Whoever was busy at every notification still hears of the end.
        let last = next(&mailboxes).expect("the end is told whenever it is asked for");
        assert!(last.is_over && last.assignment.is_none() && last.outcomes.is_empty());
        mailboxes.assign(vec![assignment()], Vec::new());
        assert!(next(&mailboxes).is_some_and(|delivery| delivery.is_over && delivery.assignment.is_none()));
    }

    #[test]
    fn nothing_is_delivered_without_a_notification() {
        let mailboxes = EngineMailboxes::new(1);
        assert!(next(&mailboxes).is_none());
        mailboxes.control(0).listens();
        assert!(next(&mailboxes).is_some_and(|delivery| !delivery.is_over && delivery.assignment.is_none()));
        assert!(next(&mailboxes).is_none());
    }
}
