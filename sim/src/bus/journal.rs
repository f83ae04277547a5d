//! What happened: a running hash over every step, and the last few steps in words.
//!
//! Two runs with equal hashes took the same steps in the same order with the same bytes. Words are kept only when they
//! were asked for: a failing seed is run again to get them.

use core::fmt;
use std::collections::VecDeque;

use crate::rng::{hash_bytes, mix};

/// The hash and the tail of a run.
#[derive(Debug, Clone)]
pub(crate) struct Journal {
    hash: u64,
    steps: u64,
    tail: VecDeque<String>,
    tail_max: usize,
}

impl Journal {
    /// Keeps `tail_max` lines; none if it is 0.
    pub(crate) fn new(tail_max: usize) -> Self {
        Self { hash: 0, steps: 0, tail: VecDeque::new(), tail_max }
    }

    /// One step: folds its time, its kind and a number into the hash.
    pub(crate) fn step(&mut self, at_ns: u64, kind: u8, number: u64) {
        self.steps += 1;
        self.hash = mix(self.hash ^ at_ns.rotate_left(8) ^ u64::from(kind)).wrapping_add(mix(number));
    }

    /// Folds bytes that a member receives or stores into the hash.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.hash = hash_bytes(self.hash, bytes);
    }

    /// Words about the latest step, made only if somebody keeps them.
    pub(crate) fn tell(&mut self, at_ns: u64, words: impl FnOnce() -> String) {
        if self.tail_max == 0 {
            return;
        }
        if self.tail.len() >= self.tail_max {
            self.tail.pop_front();
        }
        self.tail.push_back(format!("{} {}", Seconds(at_ns), numbers_for_ids(&words())));
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }

    pub(crate) fn tail(&self) -> Vec<String> {
        self.tail.iter().cloned().collect()
    }
}

/// Ids of members end with their numbers, which say more to a reader.
fn numbers_for_ids(words: &str) -> String {
    let mut parts = words.split("ServerId(");
    let mut told = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part
            .split_at_checked(32)
            .and_then(|(id, rest)| Some((u32::from_str_radix(id.get(24..)?, 16).ok()?, rest)))
        {
            Some((number, rest)) => told.push_str(&format!("{number}{}", rest.strip_prefix(')').unwrap_or(rest))),
            None => told.push_str(part),
        }
    }
    told
}

/// World time for people: seconds with six digits after the point.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seconds(pub(crate) u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>5}.{:06} s", self.0 / 1_000_000_000, self.0 / 1_000 % 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(steps: &[(u64, u8, u64)]) -> Journal {
        let mut journal = Journal::new(2);
        for (at_ns, kind, number) in steps.iter().copied() {
            journal.step(at_ns, kind, number);
            journal.tell(at_ns, || format!("step {number}"));
        }
        journal
    }

    #[test]
    fn the_hash_sees_everything_and_the_tail_the_end() {
        let steps = [(1, 0, 1), (1, 1, 0), (2, 0, 1)];
        let whole = run(&steps);
        assert_eq!((whole.hash(), whole.steps()), (run(&steps).hash(), 3));
        assert_eq!(whole.tail(), ["    0.000000 s step 0", "    0.000000 s step 1"]);
        let mut swapped = steps;
        swapped.swap(0, 1);
        assert_ne!(run(&swapped).hash(), whole.hash());
        for (at, field) in [(0, (2, 0, 1)), (1, (1, 2, 0)), (2, (2, 0, 0))] {
            let mut other = steps;
            other[at] = field;
            assert_ne!(run(&other).hash(), whole.hash(), "{field:?}");
        }
    }

    #[test]
    fn ids_are_told_as_numbers() {
        let id = ashlar_wire::id::ServerId::from_bytes([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0, 1, 2]);
        assert_eq!(numbers_for_ids(&format!("1 fears {:?}, {id:?}", Some(id))), "1 fears Some(258), 258");
        assert_eq!(numbers_for_ids("ServerId(x"), "x");
    }

    #[test]
    fn without_a_tail_nothing_is_told() {
        Journal::new(0).tell(0, || panic!("nobody keeps these words"));
    }
}
