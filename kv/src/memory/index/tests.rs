use std::cell::Cell;
use std::collections::BTreeSet;

use super::segment::BLOCKS_MAX;
use super::*;
use crate::memory::draws::{Draws, assert_even, mix};

/// What fills a segment that splits.
const SEGMENT_ENTRIES_MAX: usize = BLOCKS_MAX * 7;

type Hash = fn(u64) -> u64;

/// An index of numbers, which are their own handles.
struct Numbers {
    index: Index,
    hash: Hash,
    /// How many entries had to move in the longest step so far.
    moved_max: usize,
}

impl Numbers {
    fn new(hash: Hash) -> Self {
        Self { index: Index::new(), hash, moved_max: 0 }
    }

    fn filled(hash: Hash, count: u32) -> Self {
        let mut numbers = Self::new(hash);
        (0..count).for_each(|number| numbers.insert(number));
        numbers
    }

    fn hash_of(&self, number: u32) -> u64 {
        (self.hash)(u64::from(number))
    }

    fn has(&self, number: u32) -> bool {
        self.index.find(self.hash_of(number), |handle| handle.raw() == number).is_some()
    }

    fn insert(&mut self, number: u32) {
        let (hash, moved) = (self.hash, Cell::new(0));
        self.index.insert(self.hash_of(number), Handle::from_raw(number), &|handle: Handle| {
            moved.set(moved.get() + 1);
            hash(u64::from(handle.raw()))
        });
        self.moved_max = self.moved_max.max(moved.get());
    }

    fn remove(&mut self, number: u32) -> bool {
        let (hash, moved) = (self.hash, Cell::new(0));
        let hash_of = |handle: Handle| {
            moved.set(moved.get() + 1);
            hash(u64::from(handle.raw()))
        };
        let removed = self.index.remove(self.hash_of(number), |handle| handle.raw() == number, &hash_of);
        self.moved_max = self.moved_max.max(moved.get());
        removed.is_some()
    }

    fn scan(&self, cursor: u32, count: usize, visit: impl FnMut(Handle)) -> u32 {
        self.index.scan(cursor, count, &|handle: Handle| (self.hash)(u64::from(handle.raw())), visit)
    }

    fn sorted(&self) -> Vec<u32> {
        let mut all: Vec<u32> = self.index.iter().map(Handle::raw).collect();
        all.sort_unstable();
        all
    }

    /// What directory and segments say of themselves.
    fn check(&self) {
        let parts = self.index.parts();
        assert_eq!(parts.iter().map(|part| part.segment.len()).sum::<usize>(), self.index.len());
        let segments: usize = parts.iter().map(|part| part.segment.bytes_held()).sum();
        assert!(self.index.bytes_held() >= segments);
        match &self.index.root {
            Root::One(_) => {}
            Root::Many(directory) => directory.check(),
        }
    }
}

const GOOD: Hash = mix;

/// Hashes that are not what they should be, and how many entries are still affordable.
const HASHES: [(&str, Hash, usize); 7] = [
    ("good", GOOD, 5_000),
    ("all orders equal", |number| mix(number) & 0xffff_ffff, 1_200),
    ("all orders the last", |number| mix(number) | 0xffff_ffff_0000_0000, 1_200),
    ("all tags equal", |number| mix(number) << 8, 5_000),
    ("everything equal", |_| 77, 1_200),
    ("orders close together", |number| (mix(number) >> 14) | 0x5555 << 50, 3_000),
    ("eight orders", |number| mix(number) & 0xe000_0000_ffff_ffff, 3_000),
];

#[test]
fn random_steps_against_a_model() {
    for (name, hash, entries) in HASHES {
        let mut draws = Draws(3);
        let mut numbers = Numbers::new(hash);
        let mut model = BTreeSet::new();
        for step in 0..entries * 8 {
            let number = draws.below(entries) as u32;
            let is_growing = step / (entries * 2) % 2 == 0;
            let is_there = model.contains(&number);
            assert_eq!(numbers.has(number), is_there, "{name}: {number}");
            let chance = draws.below(10);
            if is_there && chance < if is_growing { 1 } else { 8 } {
                assert!(numbers.remove(number), "{name}: {number}");
                model.remove(&number);
            } else if !is_there && chance < if is_growing { 9 } else { 1 } {
                numbers.insert(number);
                model.insert(number);
            }
            assert_eq!(numbers.index.len(), model.len(), "{name}");
            if step % 500 == 0 {
                numbers.check();
                assert_eq!(numbers.sorted(), Vec::from_iter(model.iter().copied()), "{name}");
            }
        }
        model.iter().for_each(|number| assert!(numbers.remove(*number), "{name}: {number}"));
        assert_eq!(numbers.index.bytes_held(), 0, "{name}: an empty index holds nothing");
    }
}

#[test]
fn a_million_entries_come_and_go_in_small_steps() {
    const COUNT: u32 = 1_000_000;
    let mut numbers = Numbers::filled(GOOD, COUNT);
    numbers.check();
    assert!(numbers.moved_max <= SEGMENT_ENTRIES_MAX, "{} moves in one step", numbers.moved_max);
    assert!((0..COUNT).all(|number| numbers.has(number)));
    assert!((COUNT..COUNT + 1_000).all(|number| !numbers.has(number)));
    let bytes = numbers.index.bytes_held();
    assert!(bytes <= COUNT as usize * 8, "{bytes} bytes");

    numbers.moved_max = 0;
    for number in 0..COUNT - COUNT / 100 {
        assert!(numbers.remove(number));
        if number % 100_000 == 0 {
            numbers.check();
        }
    }
    assert!(numbers.moved_max <= SEGMENT_ENTRIES_MAX / 2, "{} moves in one step", numbers.moved_max);
    assert!((COUNT - COUNT / 100..COUNT).all(|number| numbers.has(number)));
    let bytes = numbers.index.bytes_held();
    assert!(bytes <= COUNT as usize / 100 * 24, "{bytes} bytes for 10,000 entries");
    let parts = numbers.index.parts().len();
    assert!(parts <= 200, "{parts} segments for 10,000 entries");
    assert!((COUNT - COUNT / 100..COUNT).all(|number| numbers.remove(number)));
    assert!(matches!(numbers.index.root, Root::One(_)));
    assert_eq!(numbers.index.bytes_held(), 0);
}

#[test]
fn a_small_index_is_a_block() {
    let mut numbers = Numbers::new(GOOD);
    assert_eq!(numbers.index.bytes_held(), 0);
    numbers.insert(1);
    assert_eq!(numbers.index.bytes_held(), 40);
    (2..8).for_each(|number| numbers.insert(number));
    assert_eq!(numbers.index.bytes_held(), 40);
    numbers.insert(8);
    assert_eq!(numbers.index.bytes_held(), 80);
}

#[test]
fn coming_and_going_does_not_grow_it() {
    let mut numbers = Numbers::filled(GOOD, 600);
    let bytes = numbers.index.bytes_held();
    for number in 600..60_000 {
        numbers.insert(number);
        assert!(numbers.remove(number - 600));
    }
    assert!(numbers.index.bytes_held() <= bytes * 8 / 5, "{} bytes, {bytes} at first", numbers.index.bytes_held());
}

#[test]
fn indexes_that_fill_alike_do_not_grow_together() {
    const INDEXES: u32 = 400;
    let mut all: Vec<Numbers> = (0..INDEXES).map(|_| Numbers::new(GOOD)).collect();
    for round in 0..1_000 {
        let mut moved = 0;
        for (first, numbers) in (0..).step_by(1 << 16).zip(&mut all) {
            numbers.moved_max = 0;
            numbers.insert(first + round);
            moved += usize::from(numbers.moved_max > 200);
        }
        assert!(moved < INDEXES as usize / 8, "{moved} of {INDEXES} had much to move at {round} entries");
    }
}

#[test]
fn a_handle_is_replaced_in_place() {
    let mut numbers = Numbers::filled(GOOD, 3_000);
    let hash = numbers.hash_of(5);
    assert!(numbers.index.replace(hash, Handle::from_raw(5), Handle::from_raw(9_999)));
    assert!(!numbers.index.replace(hash, Handle::from_raw(5), Handle::from_raw(8_888)));
    assert_eq!(numbers.index.find(hash, |handle| handle.raw() == 9_999), Some(Handle::from_raw(9_999)));
    assert!(!numbers.has(5));
    assert_eq!(numbers.index.len(), 3_000);
}

/// Scans while others come and go, and sees what stays exactly once.
fn check_scan(name: &str, hash: Hash, staying: u32, passing: usize, seed: u64) {
    let mut draws = Draws(seed);
    let mut numbers = Numbers::filled(hash, staying);
    let (mut next, mut passed) = (staying, Vec::new());
    let mut seen = vec![0; staying as usize];
    let mut cursor = 0;
    for _ in 0..staying * 2 + 10 {
        let count = 1 + draws.below(40);
        cursor = numbers.scan(cursor, count, |handle| {
            if let Some(times) = seen.get_mut(handle.raw() as usize) {
                *times += 1;
            }
        });
        if cursor == 0 {
            assert!(seen.iter().all(|times| *times == 1), "{name}, seed {seed}");
            return;
        }
        let wanted = draws.below(passing + 1);
        while passed.len() < wanted {
            numbers.insert(next);
            passed.push(next);
            next += 1;
        }
        while passed.len() > wanted {
            let gone = passed.swap_remove(draws.below(passed.len()));
            assert!(numbers.remove(gone));
        }
    }
    panic!("{name}, seed {seed}: the scan does not end");
}

#[test]
fn a_scan_sees_what_stays_exactly_once() {
    for seed in 0..10 {
        check_scan("nothing", GOOD, 0, 100, seed);
        check_scan("one segment", GOOD, 100, 300, seed);
        check_scan("one segment and more", GOOD, 300, 3_000, seed);
        check_scan("all tags equal", |number| mix(number) << 8, 300, 3_000, seed);
        check_scan("orders close together", |number| (mix(number) >> 14) | 0x5555 << 50, 100, 2_000, seed);
        check_scan("eight orders", |number| mix(number) & 0xe000_0000_ffff_ffff, 100, 1_000, seed);
        check_scan("all orders the last", |number| mix(number) | 0xffff_ffff_0000_0000, 50, 200, seed);
    }
    check_scan("many segments", GOOD, 20_000, 10_000, 11);
}

#[test]
fn a_scan_goes_by_its_hint() {
    for (entries, hint) in [(100, 10), (800, 10), (800, 100), (5_000, 10), (5_000, 1_000), (5_000, usize::MAX)] {
        let numbers = Numbers::filled(GOOD, entries);
        let (mut cursor, mut steps, mut total) = (0, 0, 0);
        loop {
            let mut visited = 0;
            cursor = numbers.scan(cursor, hint, |_| visited += 1);
            (steps, total) = (steps + 1, total + visited);
            assert!(visited <= hint.saturating_mul(2).saturating_add(16), "{visited} of {entries} for {hint}");
            if cursor == 0 {
                break;
            }
            assert!(visited >= hint, "{visited} of {entries} for {hint}");
        }
        assert_eq!(total, entries as usize);
        assert!(steps <= entries as usize / hint + 1, "{steps} steps");
    }
}

#[test]
fn every_entry_has_the_same_chance() {
    // How many entries there are, and how many of those are left before the draws.
    for (entries, left, draws_count) in
        [(1, 1, 100), (7, 7, 1_000), (300, 300, 30_000), (3_000, 3_000, 90_000), (9_000, 100, 10_000)]
    {
        let mut numbers = Numbers::filled(GOOD, entries);
        (left..entries).for_each(|number| assert!(numbers.remove(number)));
        let mut draws = Draws(5);
        let mut counts = vec![0; left as usize];
        for _ in 0..draws_count {
            let found = numbers.index.random(|| draws.next()).expect("there are entries");
            counts[found.raw() as usize] += 1;
        }
        if left > 1 {
            assert_even(&counts);
        }
    }
    assert_eq!(Index::new().random(|| 0), None);
}

#[test]
fn entries_are_counted_off_when_luck_runs_out() {
    let numbers = Numbers::filled(GOOD, 2_000);
    let mut all: Vec<u32> =
        (0..2_000).map(|rank| numbers.index.nth(rank).expect("a rank below the length").raw()).collect();
    all.sort_unstable();
    assert_eq!(all, numbers.sorted());
    assert_eq!(numbers.index.nth(2_000), None);
    // Draws that never hit: the last slot of one segment's blocks is always the last lane.
    let few = Numbers::filled(GOOD, 3);
    assert!(few.index.random(|| u64::MAX).is_some());
}
