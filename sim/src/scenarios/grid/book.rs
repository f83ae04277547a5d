//! What all servers of one world tell the scenario, and what it checks at once.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::rng::Rng;
use crate::world::{Control, ServerNo};

/// Where the run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Faults,
    Healed,
    Over,
}

/// What is known of one request that must not run twice.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    ran: u32,
    /// The caller was told that it did not run.
    denied: bool,
}

struct Pages {
    phase: Phase,
    wrong: Option<String>,
    next_id: u64,
    counted: BTreeMap<u64, Counted>,
    /// Handlers that have begun and not ended, and load that has begun and not ended.
    running: BTreeMap<&'static str, i64>,
    /// Pairs that talked after the healing.
    met: BTreeSet<(ServerNo, ServerNo)>,
    tally: BTreeMap<&'static str, u64>,
}

/// Shared by every server of one world.
pub(super) struct Book {
    control: Control,
    pages: Mutex<Pages>,
}

/// Counts something that runs, until it is dropped.
pub(super) struct Running {
    book: Arc<Book>,
    what: &'static str,
}

impl Drop for Running {
    fn drop(&mut self) {
        *self.book.pages().running.entry(self.what).or_default() -= 1;
    }
}

impl Book {
    pub(super) fn new(control: &Control) -> Self {
        let pages = Pages {
            phase: Phase::Faults,
            wrong: None,
            next_id: 1,
            counted: BTreeMap::new(),
            running: BTreeMap::new(),
            met: BTreeSet::new(),
            tally: BTreeMap::new(),
        };
        Self { control: control.clone(), pages: Mutex::new(pages) }
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something must not be: the first such thing ends the run.
    pub(super) fn wrong(&self, what: impl fmt::Display) {
        let mut pages = self.pages();
        if pages.wrong.is_none() {
            pages.wrong = Some(what.to_string());
            drop(pages);
            self.control.note(format!("WRONG: {what}"));
            self.control.finish();
        }
    }

    pub(super) fn first_wrong(&self) -> Option<String> {
        self.pages().wrong.clone()
    }

    pub(super) fn phase(&self) -> Phase {
        self.pages().phase
    }

    pub(super) fn set_phase(&self, phase: Phase) {
        self.pages().phase = phase;
    }

    /// An id that no other request of this world has.
    pub(super) fn new_id(&self) -> u64 {
        let mut pages = self.pages();
        pages.next_id += 1;
        pages.next_id
    }

    pub(super) fn run(self: &Arc<Self>, what: &'static str) -> Running {
        *self.pages().running.entry(what).or_default() += 1;
        Running { book: Arc::clone(self), what }
    }

    /// What has begun and not ended.
    pub(super) fn still_running(&self) -> Vec<(&'static str, i64)> {
        self.pages().running.iter().filter(|(_, count)| **count != 0).map(|(what, count)| (*what, *count)).collect()
    }

    pub(super) fn count(&self, what: &'static str) {
        self.add(what, 1);
    }

    pub(super) fn add(&self, what: &'static str, count: u64) {
        *self.pages().tally.entry(what).or_default() += count;
    }

    pub(super) fn tally(&self) -> Vec<(&'static str, u64)> {
        self.pages().tally.iter().map(|(what, count)| (*what, *count)).collect()
    }

    pub(super) fn meet(&self, from: ServerNo, to: ServerNo) {
        self.pages().met.insert((from, to));
    }

    pub(super) fn has_met(&self, from: ServerNo, to: ServerNo) -> bool {
        self.pages().met.contains(&(from, to))
    }

    /// A request that must not run twice begins to run.
    pub(super) fn ran(&self, id: u64) {
        self.control.note(format!("request {id} runs"));
        let counted = {
            let mut pages = self.pages();
            let counted = pages.counted.entry(id).or_default();
            counted.ran += 1;
            *counted
        };
        if counted.ran > 1 {
            self.wrong(format_args!("request {id} ran {} times", counted.ran));
        }
        if counted.denied {
            self.wrong(format_args!("request {id} runs after its caller was told that it would not"));
        }
    }

    /// The caller of such a request was told that it did not run.
    pub(super) fn denied(&self, id: u64, error: &dyn fmt::Display) {
        let ran = {
            let mut pages = self.pages();
            let counted = pages.counted.entry(id).or_default();
            counted.denied = true;
            counted.ran
        };
        if ran > 0 {
            self.wrong(format_args!("request {id} ran, its caller was told: {error}"));
        }
    }

    /// The caller of such a request got its answer.
    pub(super) fn answered(&self, id: u64) {
        let ran = self.pages().counted.get(&id).map_or(0, |counted| counted.ran);
        if ran != 1 {
            self.wrong(format_args!("request {id} was answered and ran {ran} times"));
        }
    }
}

/// The bytes number `index` of request or stream `id`: nobody else's look like them.
pub(super) fn pattern(id: u64, index: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::new(id).fork("pattern", index).fill(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::{World, WorldOptions};

    fn check(entries: impl Fn(&Book), wrong: Option<&str>) {
        let world = World::new(WorldOptions::default());
        let book = Book::new(&world.control());
        entries(&book);
        assert_eq!(book.first_wrong().as_deref(), wrong);
    }

    #[test]
    fn what_must_not_be_is_seen() {
        check(|book| book.ran(1), None);
        check(|book| [1, 1].into_iter().for_each(|id| book.ran(id)), Some("request 1 ran 2 times"));
        check(|book| [1, 2].into_iter().for_each(|id| book.ran(id)), None);
        check(
            |book| {
                book.denied(1, &"not sent");
                book.ran(1);
            },
            Some("request 1 runs after its caller was told that it would not"),
        );
        check(
            |book| {
                book.ran(1);
                book.denied(1, &"not sent");
            },
            Some("request 1 ran, its caller was told: not sent"),
        );
        check(|book| book.answered(1), Some("request 1 was answered and ran 0 times"));
        check(
            |book| {
                book.ran(1);
                book.answered(1);
            },
            None,
        );
    }

    #[test]
    fn what_runs_is_counted_until_it_ends() {
        let world = World::new(WorldOptions::default());
        let book = Arc::new(Book::new(&world.control()));
        let running = book.run("handlers");
        assert_eq!(book.still_running(), [("handlers", 1)]);
        drop(running);
        assert_eq!(book.still_running(), []);
    }

    #[test]
    fn every_id_and_index_has_its_own_bytes() {
        assert_eq!(pattern(1, 1, 100), pattern(1, 1, 100));
        assert_eq!(pattern(1, 1, 100)[..10], pattern(1, 1, 10));
        assert_ne!(pattern(1, 1, 10), pattern(1, 2, 10));
        assert_ne!(pattern(1, 1, 10), pattern(2, 1, 10));
    }
}
