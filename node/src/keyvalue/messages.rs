//! Messages of `PUBLISH` and `SPUBLISH` to subscribers at other nodes.
//!
//! Whoever runs the command leaves a message here, on its own thread, for each server that has listeners. A *line* is what waits for
//! one server; a task for each carries it over a stream of the grid, see `relay`. So messages take a way of their own,
//! beside the bus and its thread: they wait in bounded lines, and what finds no room in one is dropped and counted. Of one client's
//! messages those that arrive do so in their order.
//!
//! Whether a server listens is in the bus's description of it, which takes some milliseconds to get around. Messages of the last
//! moment are kept for servers that are found to have listened already.

use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ashlar_bus::pubsub::wants;
use ashlar_bus::slot::GroupId;
use ashlar_kv::cluster::control::MessageFigures;
use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;

use super::published::{MESSAGE_BYTES_MAX, Published};
use crate::ending::Ending;

/// Bytes that wait for one server, beside one message of any length.
const LINE_BYTES_MAX: usize = 32 * 1024 * 1024;
/// What a message takes in a line beside its own bytes.
const MESSAGE_COST: usize = 64;
/// MessageReader are taken out of a line together up to so many bytes.
const BATCH_BYTES: usize = 64 * 1024;
/// Messages are kept so long for servers that begin to listen.
const RECENT_MAX: Duration = Duration::from_secs(1);
/// Bytes of messages that are kept so.
const RECENT_BYTES_MAX: usize = 1024 * 1024;

// A line takes any message when it is empty.
const _: () = assert!(MESSAGE_BYTES_MAX <= LINE_BYTES_MAX);

/// Hands a message to the subscribers of one engine: channel, message, whether the channel belongs to a slot.
pub type Subscriber = Box<dyn Fn(&[u8], &[u8], bool) + Send + Sync>;

/// Carries lines to servers, and knows the time.
pub(crate) trait Relay: Send + Sync {
    /// Carries a line, until it is over.
    fn relay(&self, server: ServerId, line: Arc<Line>);

    /// The time.
    fn now(&self) -> Instant;
}

/// Another server with engines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listener {
    pub(super) server: ServerId,
    /// What it wants to hear, as the bus tells it.
    pub(super) interest: Box<[u8]>,
    /// The groups of its engines.
    pub(super) groups: Vec<GroupId>,
}

impl Listener {
    /// Whether a message is for its engines, listening or not.
    fn is_meant(&self, group: Option<GroupId>) -> bool {
        group.is_none_or(|group| self.groups.contains(&group))
    }
}

/// A published of the last moment.
#[derive(Debug)]
struct Recent {
    at: Instant,
    group: Option<GroupId>,
    channel: Box<[u8]>,
    published: Arc<[u8]>,
}

#[derive(Debug, Default)]
struct Room {
    listeners: Vec<Listener>,
    /// Groups of this server's own engines.
    own: Vec<GroupId>,
    lines: BTreeMap<ServerId, Arc<Line>>,
    /// What somebody did not listen to, the oldest first.
    recent: VecDeque<Recent>,
    recent_bytes: usize,
}

/// Messages of one server's engines, to others and from them.
pub struct Messages {
    room: Mutex<Room>,
    subscribers: Vec<OnceLock<Subscriber>>,
    relay: OnceLock<Box<dyn Relay>>,
    /// To channels, and to shard channels.
    sent: [AtomicU64; 2],
    received: [AtomicU64; 2],
    dropped: AtomicU64,
    pub(super) ending: Ending,
}

impl core::fmt::Debug for Messages {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Messages").finish_non_exhaustive()
    }
}

impl Messages {
    pub(super) fn new(engines: usize) -> Self {
        Self {
            room: Mutex::default(),
            subscribers: (0..engines).map(|_| OnceLock::new()).collect(),
            relay: OnceLock::new(),
            sent: Default::default(),
            received: Default::default(),
            dropped: AtomicU64::new(0),
            ending: Ending::default(),
        }
    }

    /// Messages leave from now on. Only the first call does anything.
    pub(super) fn open(&self, relay: Box<dyn Relay>) {
        drop(self.relay.set(relay));
    }

    /// The server stops: what waits still leaves, nothing is added, and nothing is heard from others any more.
    pub(super) fn close(&self) {
        self.ending.reach();
        self.room().lines.values().for_each(|line| line.close());
    }

    /// An engine hears by this. Only the first call does anything.
    pub(super) fn listen(&self, number: usize, subscriber: Subscriber) {
        drop(self.subscribers[number].set(subscriber));
    }

    /// What was counted so far.
    pub(super) fn figures(&self) -> MessageFigures {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        MessageFigures {
            sent: count(&self.sent[0]),
            sent_sharded: count(&self.sent[1]),
            received: count(&self.received[0]),
            received_sharded: count(&self.received[1]),
            dropped: count(&self.dropped),
        }
    }

    /// Messages were lost.
    pub(super) fn count_dropped(&self, count: usize) {
        self.dropped.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// A client of the engine at `engine` publishes something: it goes to all other engines that listen, or to those of its group.
    pub(super) fn publish(&self, number: usize, channel: &[u8], message: &[u8], is_sharded: bool) {
        let mut room = self.room();
        let group = if is_sharded { room.own.get(number).copied() } else { None };
        if is_sharded && group.is_none() {
            return;
        }
        let published = Published { group, channel, message };
        for other in (0..room.own.len()).filter(|other| *other != number) {
            self.hear(&room, other, &published);
        }
        if !room.listeners.iter().any(|listener| listener.is_meant(group)) {
            return;
        }
        if !published.is_sendable() {
            self.count_dropped(1);
            return;
        }
        let (written, mut is_missed): (Arc<[u8]>, _) = (published.encode().into(), false);
        let listeners = core::mem::take(&mut room.listeners);
        for listener in listeners.iter().filter(|listener| listener.is_meant(group)) {
            if wants(&listener.interest, channel) {
                self.post(&mut room, listener.server, group, &written);
            } else {
                is_missed = true;
            }
        }
        room.listeners = listeners;
        if is_missed && let Some(relay) = self.relay.get() {
            room.keep(Recent { at: relay.now(), group, channel: channel.into(), published: written });
        }
    }

    /// Who listens from now on, and the groups of this server's own engines.
    pub(super) fn set_listeners(&self, listeners: Vec<Listener>, own: Vec<GroupId>) {
        let mut room = self.room();
        room.own = own;
        if room.listeners == listeners {
            return;
        }
        let before = core::mem::take(&mut room.listeners);
        let is_left = |server: &ServerId| listeners.iter().all(|listener| listener.server != *server);
        for (_, line) in room.lines.extract_if(.., |server, _| is_left(server)) {
            self.count_dropped(line.end());
        }
        if let Some(relay) = self.relay.get() {
            room.forget_old(relay.now());
        }
        let recent = core::mem::take(&mut room.recent);
        for listener in &listeners {
            let known = before.iter().find(|known| known.server == listener.server);
            for Recent { group, channel, published, .. } in &recent {
                let had = known.is_some_and(|known| known.is_meant(*group) && wants(&known.interest, channel));
                if !had && listener.is_meant(*group) && wants(&listener.interest, channel) {
                    self.post(&mut room, listener.server, *group, published);
                }
            }
        }
        room.recent = recent;
        room.listeners = listeners;
    }

    /// Puts a published into the line for a server.
    fn post(&self, room: &mut Room, server: ServerId, group: Option<GroupId>, published: &Arc<[u8]>) {
        let Some(relay) = self.relay.get() else { return };
        if self.ending.is_reached() {
            return self.count_dropped(1);
        }
        let line = room.lines.entry(server).or_insert_with(|| {
            let line = Arc::new(Line::default());
            relay.relay(server, Arc::clone(&line));
            line
        });
        if line.put(Arc::clone(published)) {
            self.sent[usize::from(group.is_some())].fetch_add(1, Ordering::Relaxed);
        } else {
            self.count_dropped(1);
        }
    }

    /// A message has come from another server.
    pub(super) fn deliver(&self, published: &Published<'_>) {
        self.received[usize::from(published.group.is_some())].fetch_add(1, Ordering::Relaxed);
        let room = self.room();
        (0..room.own.len()).for_each(|number| self.hear(&room, number, published));
    }

    /// Hands a message to an engine, if it is for it.
    fn hear(&self, room: &Room, number: usize, published: &Published<'_>) {
        let is_meant = published.group.is_none_or(|group| room.own.get(number) == Some(&group));
        if let Some(subscriber) = self.subscribers.get(number).and_then(OnceLock::get).filter(|_| is_meant) {
            subscriber(published.channel, published.message, published.group.is_some());
        }
    }

    fn room(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Room {
    fn keep(&mut self, recent: Recent) {
        self.forget_old(recent.at);
        self.recent_bytes += recent.cost();
        self.recent.push_back(recent);
        while self.recent_bytes > RECENT_BYTES_MAX {
            self.forget_oldest();
        }
    }

    fn forget_old(&mut self, now: Instant) {
        while self.recent.front().is_some_and(|recent| recent.at + RECENT_MAX < now) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let cost = self.recent.pop_front().map_or(0, |recent| recent.cost());
        self.recent_bytes -= cost;
    }
}

impl Recent {
    fn cost(&self) -> usize {
        self.channel.len() + self.published.len() + MESSAGE_COST
    }
}

#[derive(Debug, Default)]
struct Queue {
    messages: VecDeque<Arc<[u8]>>,
    bytes: usize,
    /// Whoever carries it, while there is nothing to relay.
    task: Option<Waker>,
    is_over: bool,
}

/// What waits for one server.
#[derive(Debug, Default)]
pub(crate) struct Line(Mutex<Queue>);

impl Line {
    /// Puts a message at its end; false if there is no room.
    fn put(&self, published: Arc<[u8]>) -> bool {
        let mut queue = self.lock();
        let cost = published.len() + MESSAGE_COST;
        if queue.is_over || !queue.messages.is_empty() && queue.bytes + cost > LINE_BYTES_MAX {
            return false;
        }
        queue.bytes += cost;
        queue.messages.push_back(published);
        let task = queue.task.take();
        drop(queue);
        if let Some(task) = task {
            task.wake();
        }
        true
    }

    /// Appends messages from its front to `batch` and returns how many, once there are any; nothing once it is over.
    pub(super) fn poll_take(&self, cx: &Context<'_>, batch: &mut Vec<u8>) -> Poll<Option<usize>> {
        let (mut queue, mut count) = (self.lock(), 0);
        while batch.len() < BATCH_BYTES
            && let Some(published) = queue.messages.pop_front()
        {
            queue.bytes -= published.len() + MESSAGE_COST;
            batch.extend_from_slice(&published);
            count += 1;
        }
        match count {
            0 if queue.is_over => Poll::Ready(None),
            0 => {
                queue.task = Some(cx.waker().clone());
                Poll::Pending
            }
            _ => Poll::Ready(Some(count)),
        }
    }

    /// Drops all that waits. Returns how many messages that were.
    pub(super) fn clear(&self) -> usize {
        let mut queue = self.lock();
        queue.bytes = 0;
        let messages = core::mem::take(&mut queue.messages);
        drop(queue);
        messages.len()
    }

    /// Nobody puts anything there any more. Returns how many messages were lost with it.
    fn end(&self) -> usize {
        let lost = self.clear();
        self.close();
        lost
    }

    /// Nobody puts anything there any more; what waits is still carried.
    fn close(&self) {
        let mut queue = self.lock();
        queue.is_over = true;
        let task = queue.task.take();
        drop(queue);
        if let Some(task) = task {
            task.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
