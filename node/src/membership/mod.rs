//! The bus in this server: what reaches it and from where, who runs it, what is seen of it.
//!
//! The [`Bus`](ashlar_bus::Bus) belongs to one task, `task::Task`, on the control thread. Everybody else leaves what it
//! has for the bus in the `Membership`, which wakes the task: packets and connections from the workers, word that state
//! is on the drive from the thread that writes, wishes and questions from the admin API. Each of these has its limit, no
//! lock is held for longer than a push, and questions are answered together a few times a second at most: nothing that
//! somebody asks or sends can hold up a probe.
//!
//! Packets travel as datagrams of the grid, ahead of calls and streams. A packet to a server that is not connected is
//! dropped: silence is what the bus understands.

pub mod task;
pub mod view;

use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ashlar_bus::event::Departure;
use ashlar_bus::{CommandError, Ticket};
use ashlar_wire::id::ServerId;

use super::MEMBERS_MAX;
use super::promise::{Promise, Promised, promise};
use view::BusStatus;

/// Packets that wait for the bus; more are dropped, as a network would.
const PACKETS_MAX: usize = 4_096;
/// Wishes of people that wait for the bus.
const WISHES_MAX: usize = 64;
/// Questions that wait for an answer; more are answered with what was last known.
const VIEWERS_MAX: usize = 256;

/// Why a member was not forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForgetError {
    /// It answers: stop it first, or insist. Safe to retry.
    Alive,
    /// The bus refused. As safe to retry as it says.
    Refused(CommandError),
    /// Too many wishes wait, or the server stops. Safe to retry.
    Busy,
}

/// "Remove this member everywhere."
#[derive(Debug)]
pub(super) struct Wish {
    pub(super) id: ServerId,
    /// Even if it is alive.
    pub(super) insists: bool,
    pub(super) answer: Promise<Result<(), ForgetError>>,
}

/// What became of the groups that a server led which is about to stop.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HandedOver {
    /// Groups that a replica elsewhere has taken over.
    pub groups: usize,
    /// Ranges of slots that nobody has taken over, in words; empty if there are none.
    pub slots_left: String,
}

/// "This server is about to stop, or has stopped."
#[derive(Debug)]
pub(super) struct Departing {
    pub(super) departure: Departure,
    /// How long replicas have for taking over.
    pub(super) within: Duration,
    pub(super) answer: Promise<HandedOver>,
}

/// What waits for the bus.
#[derive(Debug, Default)]
pub(super) struct Post {
    /// In the order of their coming.
    pub(super) packets: VecDeque<(ServerId, Vec<u8>)>,
    /// Packets that found no room, since the start.
    pub(super) packets_dropped: u64,
    /// Who was connected since the last look, and where.
    pub(super) connected: BTreeMap<ServerId, String>,
    /// The latest durable state that is on the drive, which bus it is of, and how long that took.
    pub(super) stored: Option<(u64, Ticket, Duration)>,
    pub(super) wishes: Vec<Wish>,
    pub(super) departing: Vec<Departing>,
    pub(super) viewers: Vec<Promise<Arc<BusStatus>>>,
    /// An agent of a service has something to work off.
    pub(super) has_agent_news: bool,
}

impl Post {
    fn is_empty(&self) -> bool {
        self.packets.is_empty()
            && self.connected.is_empty()
            && self.stored.is_none()
            && self.wishes.is_empty()
            && self.departing.is_empty()
            && self.viewers.is_empty()
            && !self.has_agent_news
    }
}

#[derive(Debug, Default)]
struct Inbox {
    post: Post,
    /// The bus's task, while it sleeps.
    task: Option<Waker>,
    /// The bus runs no more.
    is_closed: bool,
}

/// Where everybody leaves what the bus should get.
#[derive(Debug, Default)]
pub(super) struct Membership {
    inbox: Mutex<Inbox>,
    /// What was seen last.
    seen: Mutex<Arc<BusStatus>>,
}

impl Membership {
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves something, and wakes the bus.
    fn leave<T>(&self, put: impl FnOnce(&mut Post) -> T) -> Option<T> {
        let mut inbox = self.lock();
        if inbox.is_closed {
            return None;
        }
        let left = put(&mut inbox.post);
        let task = inbox.task.take();
        drop(inbox);
        if let Some(task) = task {
            task.wake();
        }
        Some(left)
    }

    /// A packet came.
    pub(super) fn handle_packet(&self, from: ServerId, bytes: &[u8]) {
        self.leave(|post| {
            if post.packets.len() < PACKETS_MAX {
                post.packets.push_back((from, bytes.to_vec()));
            } else {
                post.packets_dropped += 1;
            }
        });
    }

    /// A server is connected.
    pub(super) fn handle_connected(&self, server: ServerId, address: &str) {
        self.leave(|post| {
            if post.connected.len() < MEMBERS_MAX {
                post.connected.insert(server, address.to_owned());
            }
        });
    }

    /// Durable state of the bus of this number is on the drive.
    pub(super) fn handle_stored(&self, bus: u64, ticket: Ticket, took: Duration) {
        self.leave(|post| post.stored = Some((bus, ticket, took)));
    }

    /// An agent of a service has something to work off.
    pub(super) fn wake_agents(&self) {
        self.leave(|post| post.has_agent_news = true);
    }

    /// Asks the bus to forget a member.
    pub(super) async fn forget(&self, id: ServerId, insists: bool) -> Result<(), ForgetError> {
        let (answer, answered) = promise();
        self.leave(|post| {
            if post.wishes.len() < WISHES_MAX {
                post.wishes.push(Wish { id, insists, answer });
            }
        });
        answered.await.unwrap_or(Err(ForgetError::Busy))
    }

    /// Tells the cluster that this server is about to stop, and waits until what it leads was handed over, or that it has stopped.
    pub(super) async fn depart(&self, departure: Departure, within: Duration) -> HandedOver {
        let (answer, answered) = promise();
        self.leave(|post| {
            if post.departing.len() < WISHES_MAX {
                post.departing.push(Departing { departure, within, answer });
            }
        });
        answered.await.unwrap_or_default()
    }

    /// How the bus stands now, or stood when it was last seen.
    pub(super) async fn status(&self) -> Arc<BusStatus> {
        let (answer, answered): (Promise<Arc<BusStatus>>, Promised<_>) = promise();
        self.leave(|post| {
            if post.viewers.len() < VIEWERS_MAX {
                post.viewers.push(answer);
            }
        });
        match answered.await {
            Some(status) => status,
            None => self.seen(),
        }
    }

    fn seen(&self) -> Arc<BusStatus> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes how the bus stands.
    pub(super) fn show(&self, status: Arc<BusStatus>) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }

    /// All that waits.
    pub(super) fn take(&self) -> Post {
        let mut inbox = self.lock();
        let packets_dropped = inbox.post.packets_dropped;
        core::mem::replace(&mut inbox.post, Post { packets_dropped, ..Post::default() })
    }

    /// Ready when something waits.
    pub(super) fn poll_post(&self, cx: &Context<'_>) -> Poll<()> {
        let mut inbox = self.lock();
        if !inbox.post.is_empty() {
            return Poll::Ready(());
        }
        inbox.task = Some(cx.waker().clone());
        Poll::Pending
    }

    /// The bus runs no more: whoever waits for it is told.
    pub(super) fn close(&self) {
        let mut inbox = self.lock();
        inbox.is_closed = true;
        let post = core::mem::take(&mut inbox.post);
        drop(inbox);
        // Breaking the promises wakes those who wait for them.
        drop(post);
    }
}

#[cfg(test)]
mod tests;
