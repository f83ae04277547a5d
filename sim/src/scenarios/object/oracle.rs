//! What clients did with objects, and whether it can be the history of registers.
//!
//! Each object that is put is another one: its number makes its length and its bytes, and is its entity tag. Number 0 is no object.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::history::{Action, NEVER, OPERATIONS_MAX, Operation, is_linearizable};
use crate::rng::mix;

/// Keys that are used at a time.
const OPEN_KEYS: u64 = 10;
/// Operations on a key until another one takes its place.
const BUSY_MAX: usize = 40;
/// Operations on a key that leave room for the reads at the end.
const READ_MAX: usize = OPERATIONS_MAX - 8;
/// Operations on a key that leave room for lists.
const LIST_MAX: usize = 90;

/// A key, with the bucket that has it.
pub(super) type Key = (&'static str, String);

/// An operation that was begun.
#[derive(Debug, Clone)]
pub(super) struct Begun {
    key: Key,
    place: usize,
}

/// The history of everything.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    histories: BTreeMap<Key, Vec<Operation>>,
    /// Keys that were filled.
    closed: u64,
    objects: u64,
    pub(super) told: u64,
    pub(super) untold: u64,
    pub(super) refused: u64,
}

/// Length of an object: most are small, some of several shards' blocks, a few of two stripes.
pub(super) fn len_of(object: u64) -> usize {
    let drawn = mix(object);
    let below = |bound: u64| (mix(drawn) % bound) as usize;
    match drawn % 100 {
        0..4 => 0,
        4..70 => 1 + below(3_000),
        70..90 => 3_000 + below(70_000),
        90..98 => 70_000 + below(400_000),
        _ => (1 << 20) + below(200_000),
    }
}

/// The bytes of an object.
pub(super) fn bytes_of(object: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len_of(object) + 8);
    let mut word = mix(object ^ 0x5eed);
    while bytes.len() < len_of(object) {
        bytes.extend_from_slice(&word.to_le_bytes());
        word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(object);
    }
    bytes.truncate(len_of(object));
    bytes
}

/// Its entity tag.
pub(super) fn etag_of(object: u64) -> String {
    format!("{object:016x}")
}

/// Which object has an entity tag.
///
/// # Errors
/// None has.
pub(super) fn object_of(etag: &str) -> Result<u64, String> {
    u64::from_str_radix(etag, 16).map_err(|_| format!("no object has the entity tag {etag:?}"))
}

impl Oracle {
    /// A key that has room, chosen by a draw.
    pub(super) fn choose(&mut self, draw: u64) -> Key {
        loop {
            let number = self.closed + draw % OPEN_KEYS;
            let bucket = super::client::BUCKETS[(number % 2) as usize];
            // Some are longer than what a shard says of its key.
            let name = if number % 5 == 4 { format!("{number}-{}", "long/".repeat(90)) } else { number.to_string() };
            let history = self.histories.entry((bucket, name.clone())).or_default();
            if history.len() < BUSY_MAX {
                return (bucket, name);
            }
            self.closed += 1;
        }
    }

    /// All keys that were used.
    pub(super) fn keys(&self) -> Vec<Key> {
        self.histories.keys().cloned().collect()
    }

    /// Another object.
    pub(super) const fn next_object(&mut self) -> u64 {
        self.objects += 1;
        self.objects
    }

    fn begin(&mut self, key: &Key, action: Action, seen: Option<u64>, now: u64) -> Begun {
        let history = self.histories.entry(key.clone()).or_default();
        history.push(Operation { action, begin: now, end: NEVER, is_attempt: false, seen });
        Begun { key: key.clone(), place: history.len() - 1 }
    }

    /// An object begins to be written, or 0 for a deletion: in any case, or in the place of what was seen.
    pub(super) fn begin_write(&mut self, key: &Key, object: u64, seen: Option<u64>, now: u64) -> Begun {
        self.begin(key, Action::Write(object), seen, now)
    }

    /// It was acknowledged.
    pub(super) fn tell(&mut self, begun: &Begun, now: u64) {
        self.told += 1;
        self.of(begun).end = now;
    }

    /// It was refused: nothing has been done or will be.
    pub(super) fn refuse(&mut self, begun: &Begun) {
        self.refused += 1;
        // A read of what is there at the beginning changes nothing; this one is not told.
        *self.of(begun) = Operation { action: Action::Write(0), seen: Some(u64::MAX), ..*self.of(begun) };
    }

    fn of(&mut self, begun: &Begun) -> &mut Operation {
        &mut self.histories.get_mut(&begun.key).expect("it was begun")[begun.place]
    }

    /// A key was read.
    pub(super) fn tell_read(&mut self, key: &Key, object: u64, begin: u64, end: u64) {
        self.note_read(key, object, (begin, end), READ_MAX);
    }

    /// A key was read by a list.
    pub(super) fn tell_listed(&mut self, key: &Key, object: u64, begin: u64, end: u64) {
        self.note_read(key, object, (begin, end), LIST_MAX);
    }

    fn note_read(&mut self, key: &Key, object: u64, (begin, end): (u64, u64), operations_max: usize) {
        self.told += 1;
        let history = self.histories.entry(key.clone()).or_default();
        if history.len() < operations_max {
            history.push(Operation { action: Action::Read(object), begin, end, is_attempt: false, seen: None });
        }
    }

    /// Whether all of it can be.
    ///
    /// # Errors
    /// The first key whose history cannot.
    pub(super) fn check(&self) -> Result<(), String> {
        for (key, history) in &self.histories {
            if !is_linearizable(history) {
                let lines: Vec<String> = history.iter().map(|operation| format!("  {operation:?}\n")).collect();
                return Err(format!("{key:?} has no history:\n{}", lines.concat()));
            }
        }
        Ok(())
    }
}

/// Whether bytes are those of an object, from an offset on.
pub(super) fn are_of(object: u64, offset: usize, bytes: &[Bytes]) -> bool {
    let whole = bytes_of(object);
    let mut left = &whole[offset.min(whole.len())..];
    bytes.iter().all(|piece| {
        let Some((first, rest)) = left.split_at_checked(piece.len()) else { return false };
        left = rest;
        first == &piece[..]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_stays_and_what_was_refused_was_not_done() {
        let mut oracle = Oracle::default();
        let key = oracle.choose(3);
        let (one, two) = (oracle.next_object(), oracle.next_object());
        let first = oracle.begin_write(&key, one, Some(0), 0);
        let second = oracle.begin_write(&key, two, Some(0), 1);
        oracle.tell(&first, 5);
        oracle.refuse(&second);
        oracle.tell_read(&key, one, 6, 7);
        oracle.check().unwrap();
        oracle.tell_read(&key, two, 8, 9);
        assert!(oracle.check().unwrap_err().contains("has no history"));
    }

    #[test]
    fn filled_keys_make_room_for_others() {
        let mut oracle = Oracle::default();
        let key = oracle.choose(0);
        for at in 0..BUSY_MAX as u64 {
            oracle.tell_read(&key, 0, at, at);
        }
        let next = oracle.choose(0);
        assert_ne!(next, key);
        assert_eq!(oracle.keys().len(), 2);
    }

    #[test]
    fn bytes_tell_the_object_and_the_place() {
        let object = (1..).find(|object| len_of(*object) > 5_000).unwrap();
        let bytes = Bytes::from(bytes_of(object));
        assert!(are_of(object, 7, &[bytes.slice(7..2_000), bytes.slice(2_000..)]));
        assert!(!are_of(object, 8, &[bytes.slice(7..2_000)]));
        assert!(!are_of(object + 1, 0, &[bytes.slice(..2_000)]) || len_of(object + 1) < 2_000);
        assert_eq!(object_of(&etag_of(object)), Ok(object));
        object_of("other").unwrap_err();
    }
}
