//! Requests of the guest: what each waits for, and the order of those that overlap.
//!
//! A request that overlaps earlier ones, unless both read, counts them as blockers and is told when each is gone. It waits
//! for requests that came before it only, so no two wait for each other.

use std::collections::{BTreeMap, VecDeque};

use ashlar_wire::time::Instant;
use bytes::Bytes;

use super::RequestId;
use super::plan::Action;
use crate::block::ByteRange;
use crate::piece::Piece;

/// A request, by arrival: the greater key came later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RequestKey(u64);

/// One request.
#[derive(Debug)]
pub(super) struct GuestRequest {
    pub(super) id: RequestId,
    pub(super) action: Action,
    /// The bytes of a write.
    pub(super) data: Bytes,
    pub(super) deadline: Instant,
    /// The block at which the next run begins.
    pub(super) cursor: u64,
    /// Runs that were begun and are not done.
    pub(super) runs_open: usize,
    /// Subrequests that exist for it.
    pub(super) tasks_open: usize,
    /// What was read, by run.
    pub(super) pieces: Vec<Option<Piece>>,
    /// What is stored, by run: of a query of presence.
    pub(super) presence: Vec<Vec<Piece>>,
    /// The guest has its completion. The request stays until servers have answered, so that those behind it wait.
    pub(super) is_completed: bool,
    /// It may run as far as the class of the volume is concerned.
    pub(super) is_admitted: bool,
    /// Earlier requests that it waits for.
    blockers: usize,
    /// Later requests that wait for it.
    dependents: Vec<RequestKey>,
    /// It is in the queue of those that can begin a run.
    is_queued: bool,
}

impl GuestRequest {
    pub(super) const fn has_all_runs(&self) -> bool {
        self.cursor == self.action.blocks().end
    }

    const fn can_begin_run(&self, runs_max: usize) -> bool {
        let is_free = self.is_admitted && self.blockers == 0 && !self.is_completed;
        is_free && !self.has_all_runs() && self.runs_open < runs_max
    }
}

/// What a request locks. Kept apart from the rest, so that looking through all of them touches little memory.
#[derive(Debug, Clone, Copy)]
struct Lock {
    key: RequestKey,
    blocks: ByteRange,
    is_exclusive: bool,
}

impl Lock {
    fn conflicts(&self, later: &Self) -> bool {
        (self.is_exclusive || later.is_exclusive) && self.blocks.overlaps(later.blocks)
    }
}

/// All requests.
#[derive(Debug, Default)]
pub(super) struct Requests {
    all: BTreeMap<RequestKey, GuestRequest>,
    /// One for each request, in no order.
    locks: Vec<Lock>,
    next_key: u64,
    /// Those that can begin a run, in turn: each begins one and goes to the end, so that a long one does not hold up
    /// others.
    queue: VecDeque<RequestKey>,
}

impl Requests {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Takes a request in behind all those that it overlaps.
    pub(super) fn insert(&mut self, id: RequestId, action: Action, data: Bytes, deadline: Instant) -> RequestKey {
        let key = RequestKey(self.next_key);
        self.next_key += 1;
        let lock = Lock { key, blocks: action.blocks(), is_exclusive: action.verb.changes() };
        let mut blockers = 0;
        for earlier in self.locks.iter().filter(|earlier| earlier.conflicts(&lock)) {
            let earlier = self.all.get_mut(&earlier.key).expect("each request has one lock");
            earlier.dependents.push(key);
            blockers += 1;
        }
        self.locks.push(lock);
        let request = GuestRequest {
            id,
            action,
            data,
            deadline,
            cursor: action.blocks().start,
            runs_open: 0,
            tasks_open: 0,
            pieces: Vec::new(),
            presence: Vec::new(),
            is_completed: false,
            is_admitted: false,
            blockers,
            dependents: Vec::new(),
            is_queued: false,
        };
        self.all.insert(key, request);
        key
    }

    pub(super) fn contains(&self, key: RequestKey) -> bool {
        self.all.contains_key(&key)
    }

    pub(super) fn get(&self, key: RequestKey) -> &GuestRequest {
        self.all.get(&key).expect("a request stays while anything refers to it")
    }

    pub(super) fn get_mut(&mut self, key: RequestKey) -> &mut GuestRequest {
        self.all.get_mut(&key).expect("a request stays while anything refers to it")
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = RequestKey> {
        self.all.keys().copied()
    }

    /// Puts a request into the queue if it can begin a run and is not there.
    pub(super) fn queue(&mut self, key: RequestKey, runs_max: usize) {
        let request = self.get_mut(key);
        if request.can_begin_run(runs_max) && !request.is_queued {
            request.is_queued = true;
            self.queue.push_back(key);
        }
    }

    /// The request whose turn it is.
    pub(super) fn first(&self) -> Option<RequestKey> {
        self.queue.front().copied()
    }

    /// Takes that request off the queue.
    pub(super) fn pop_first(&mut self) {
        let key = self.queue.pop_front().expect("there was a first");
        self.get_mut(key).is_queued = false;
    }

    /// Takes a request that is given up off the queue.
    pub(super) fn unqueue(&mut self, key: RequestKey) {
        if std::mem::take(&mut self.get_mut(key).is_queued) {
            self.queue.retain(|queued| *queued != key);
        }
    }

    /// Removes a request and lets those go on that waited for it.
    pub(super) fn remove(&mut self, key: RequestKey, runs_max: usize) {
        let request = self.all.remove(&key).expect("a request is removed once");
        assert!(request.is_completed && request.tasks_open == 0 && !request.is_queued, "nothing refers to it");
        let lock = self.locks.iter().position(|lock| lock.key == key).expect("each request has one lock");
        self.locks.swap_remove(lock);
        for dependent in request.dependents {
            // A request that was given up may be gone before those it waited for.
            let Some(later) = self.all.get_mut(&dependent) else { continue };
            later.blockers = later.blockers.checked_sub(1).expect("a blocker is removed once");
            self.queue(dependent, runs_max);
        }
    }
}
