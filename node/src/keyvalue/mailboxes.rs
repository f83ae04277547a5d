//! Where the control thread and the key-value service leave things for each other.
//!
//! Nothing here waits for the bus or an engine: each side takes what lies there, and is woken when something new does. Each engine has a
//! inbox of its own, so that none waits for what another does; of the assignments in it only the latest counts. Orders wait in a queue of
//! bounded length.

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use ashlar_bus::slot::GroupId;
use ashlar_kv::cluster::Announcement;
use ashlar_kv::cluster::control::{Control, MessageFigures, Order};
use ashlar_kv::cluster::map::{Map, Name};
use ashlar_kv::replicate::{CopyStatus, Upstream};
use ashlar_wire::id::ServerId;

use super::messages::{Messages, Subscriber};

/// Orders that wait for the controller.
const ORDERS_MAX: usize = 64;
/// How long an order may take.
const ORDER_MAX: Duration = Duration::from_secs(5);

/// An engine of a server, as a member of a replica group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EngineInfo {
    /// Tells it from others that the server has or ever had.
    pub tag: u32,
    /// Its replica group.
    pub group: GroupId,
    /// What it tells of itself.
    pub told: Announcement,
    /// It has the data of its group, as far as it follows one.
    pub has_data: bool,
}

impl EngineInfo {
    /// A tag for the server's engine of this number, from chance. Its last bit tells the second engine from the first, so that whoever knows a
    /// node's name knows which of the two it is.
    #[must_use]
    pub fn tag(number: usize, chance: u32) -> u32 {
        chance & !1 | u32::from(number > 0)
    }

    /// What clients call it.
    #[must_use]
    pub fn name(&self, server: ServerId) -> Name {
        let mut bytes = [0; 20];
        bytes[..16].copy_from_slice(server.as_bytes());
        bytes[16..].copy_from_slice(&self.tag.to_be_bytes());
        Name::new(bytes)
    }
}

/// What clients call a group.
#[must_use]
pub fn shard_name(group: GroupId) -> Name {
    let mut bytes = [0; 20];
    bytes[12..].copy_from_slice(&group.0.to_be_bytes());
    Name::new(bytes)
}

/// The server that a node belongs to, and its tag there.
#[must_use]
pub fn server_of(name: Name) -> (ServerId, u32) {
    let (server, tag) = name.bytes().split_at(16);
    let server: [u8; 16] = server.try_into().expect("a name has 20 bytes");
    let tag: [u8; 4] = tag.try_into().expect("a name has 20 bytes");
    (ServerId::from_bytes(server), u32::from_be_bytes(tag))
}

/// What an engine is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// Its tag and group, to be remembered over restarts.
    pub engine_info: EngineInfo,
    /// The cluster, for its clients.
    pub map: Map,
    /// Where its primary is, if it follows one.
    pub upstream: Option<Upstream>,
    /// Until told otherwise it takes no writes, and tells how far its data go then.
    pub is_paused: bool,
    /// It takes over from its primary by agreement, which waits for how far its data go.
    pub is_awaited: bool,
    /// Its primary has paused for it: clients that it would send there wait, until it serves them itself or its part is another one.
    pub is_successor: bool,
    /// How often it was to throw all its data away so far.
    pub purges: u64,
}

/// What an engine tells.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// What it tells of itself.
    pub told: Announcement,
    /// How far its data go; nothing while they are not whole.
    pub offset: Option<u64>,
    /// What it has of its primary's data, if it follows one.
    pub copy: CopyStatus,
    /// Its writes have ended, as the pause demands: the offset is final.
    pub is_settled: bool,
    /// Slots without an owner stop all service.
    pub needs_all_slots: bool,
    /// Its clients subscribe to something, or did not long ago.
    pub listens: bool,
}

/// Tells whoever gave an order what became of it.
pub(super) type Answer = SyncSender<Result<(), String>>;

/// An order, of which engine, and who waits.
#[derive(Debug)]
pub(super) struct PendingRequest {
    pub(super) engine_info: usize,
    pub(super) order: Order,
    pub(super) answer: Answer,
}

/// What lies there for one engine.
#[derive(Debug, Default)]
struct Inbox {
    assignment: Option<Assignment>,
    /// Who is to be told once this and what others have to do is done.
    answers: Vec<Arc<Vec<Answer>>>,
    /// The engine has something to report.
    is_called: bool,
}

#[derive(Debug, Default)]
struct MailboxState {
    orders: VecDeque<PendingRequest>,
    reports: Vec<Option<Report>>,
    inboxes: Vec<Inbox>,
    /// Somebody has to look again.
    is_news: bool,
    is_over: bool,
}

/// The mailboxes of one server.
pub struct EngineMailboxes {
    state: Mutex<MailboxState>,
    /// Something lies there for the key-value service.
    service: Condvar,
    /// Wakes the controller.
    controller: OnceLock<Box<dyn Fn() + Send + Sync>>,
    messages: Arc<Messages>,
}

impl core::fmt::Debug for EngineMailboxes {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("EngineMailboxes").finish_non_exhaustive()
    }
}

impl EngineMailboxes {
    /// One for so many engines.
    #[must_use]
    pub fn new(engines: usize) -> Arc<Self> {
        let inboxes = core::iter::repeat_with(Inbox::default).take(engines).collect();
        let state = MailboxState { reports: vec![None; engines], inboxes, ..MailboxState::default() };
        let messages = Arc::new(Messages::new(engines));
        Arc::new(Self { state: Mutex::new(state), service: Condvar::new(), controller: OnceLock::new(), messages })
    }

    /// Messages of engines to subscribers elsewhere, and those that come from there.
    pub(crate) fn messages(&self) -> &Arc<Messages> {
        &self.messages
    }

    /// The engine of an engine is told of messages that are published elsewhere by this. Only the first call does anything.
    pub fn listen(&self, engine_info: usize, subscriber: Subscriber) {
        self.messages.listen(engine_info, subscriber);
    }

    /// The controller is woken by this from now on. Only the first call does anything.
    pub(super) fn open(&self, wake: Box<dyn Fn() + Send + Sync>) {
        drop(self.controller.set(wake));
        self.wake_office();
    }

    /// What clients of an engine may ask of the cluster.
    #[must_use]
    pub fn request_sender(self: &Arc<Self>, engine_info: usize) -> Box<dyn Control> {
        Box::new(RequestSender { mailboxes: Arc::clone(self), engine_info })
    }

    /// An engine tells how it is.
    pub fn report(&self, engine_info: usize, report: &Report) {
        let mut state = self.lock();
        if state.reports[engine_info].as_ref() == Some(report) {
            return;
        }
        state.reports[engine_info] = Some(report.clone());
        drop(state);
        self.wake_office();
    }

    /// Waits for an engine's assignment, or for something to report, `span` at most. Whoever gets an assignment calls [`Answers::done`].
    pub fn wait(&self, engine_info: usize, span: Duration) -> Wakened {
        let is_idle = |state: &mut MailboxState| {
            let inbox = &state.inboxes[engine_info];
            inbox.assignment.is_none() && !inbox.is_called && !state.is_over
        };
        let waited = self.service.wait_timeout_while(self.lock(), span, is_idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        let is_over = state.is_over;
        let inbox = &mut state.inboxes[engine_info];
        inbox.is_called = false;
        match inbox.assignment.take() {
            Some(assignment) => Wakened::Assignment(Box::new(assignment), Answers(core::mem::take(&mut inbox.answers))),
            None if is_over => Wakened::Over,
            None => Wakened::Nothing,
        }
    }

    /// There will be no more assignments.
    pub fn close(&self) {
        self.lock().is_over = true;
        self.service.notify_all();
    }

    pub(super) fn take_orders(&self) -> VecDeque<PendingRequest> {
        core::mem::take(&mut self.lock().orders)
    }

    pub(super) fn reports(&self) -> Vec<Option<Report>> {
        self.lock().reports.clone()
    }

    /// Something lies there for the controller. It does not any more.
    pub(super) fn take_news(&self) -> bool {
        core::mem::take(&mut self.lock().is_news)
    }

    /// What all engines are to be from now on, and who waits for that.
    pub(super) fn assign(&self, assignments: Vec<Assignment>, answers: Vec<Answer>) {
        let answers = (!answers.is_empty()).then(|| Arc::new(answers));
        let mut state = self.lock();
        for (inbox, assignment) in state.inboxes.iter_mut().zip(assignments) {
            inbox.assignment = Some(assignment);
            inbox.answers.extend(answers.clone());
        }
        drop((state, answers));
        self.service.notify_all();
    }

    fn wake_office(&self) {
        self.lock().is_news = true;
        if let Some(wake) = self.controller.get() {
            wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, MailboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What [`EngineMailboxes::wait`] has found.
#[derive(Debug)]
pub enum Wakened {
    /// What the engine is to be, and who waits for that.
    Assignment(Box<Assignment>, Answers),
    /// Time has passed, or there is something to report.
    Nothing,
    /// There will be no more.
    Over,
}

/// Those who wait until all engines have done their assignments.
#[derive(Debug)]
pub struct Answers(Vec<Arc<Vec<Answer>>>);

impl Answers {
    /// This engine has. The last one tells.
    pub fn done(self) {
        for answer in self.0.into_iter().filter_map(Arc::into_inner).flatten() {
            // Whoever is gone has waited too long.
            drop(answer.try_send(Ok(())));
        }
    }
}

/// Takes the orders of one engine's clients.
#[derive(Debug)]
struct RequestSender {
    mailboxes: Arc<EngineMailboxes>,
    engine_info: usize,
}

impl Control for RequestSender {
    fn order(&self, order: Order) -> Result<(), String> {
        let (answer, answered): (Answer, Receiver<_>) = sync_channel(1);
        let mut state = self.mailboxes.lock();
        if state.orders.len() >= ORDERS_MAX || state.is_over {
            return Err("too much is asked of the cluster at a time: try again later".to_owned());
        }
        state.orders.push_back(PendingRequest { engine_info: self.engine_info, order, answer });
        drop(state);
        self.mailboxes.wake_office();
        match answered.recv_timeout(ORDER_MAX) {
            Ok(done) => done,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                Err("the cluster has not done so in time; it may do so later".to_owned())
            }
        }
    }

    fn publish(&self, channel: &[u8], message: &[u8], is_sharded: bool) {
        self.mailboxes.messages.publish(self.engine_info, channel, message, is_sharded);
    }

    fn listens(&self) {
        self.mailboxes.lock().inboxes[self.engine_info].is_called = true;
        self.mailboxes.service.notify_all();
    }

    fn message_figures(&self) -> MessageFigures {
        self.mailboxes.messages.figures()
    }
}
