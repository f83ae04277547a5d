//! The keyspace against a map.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::record::Kind;
use super::*;
use crate::memory::hash_key::{HASH_KEY_BYTES, HashKey};

fn draws(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ mixed >> 27
    }
}

fn space(shards: usize) -> Keyspace {
    Keyspace::new(Arc::new(HashKey::new([7; HASH_KEY_BYTES])), shards, 4)
}

fn lock(space: &Keyspace, now_ms: i64) -> Keys<'_> {
    space.lock(Lock::Everything, 0, now_ms, AccessClock::new(Policy::NoEviction, now_ms))
}

/// Database and name; value and expiry.
type Model = BTreeMap<(usize, Vec<u8>), (Vec<u8>, Option<i64>)>;

#[test]
fn strings_as_in_a_map() {
    let space = space(8);
    let mut model = Model::new();
    let mut draw = draws(1);
    for step in 0..60_000_i64 {
        let mut keys = lock(&space, step);
        let database = (draw() % 2) as usize;
        keys.select(database);
        let name = format!("{}key:{}", if draw().is_multiple_of(4) { "{t}" } else { "" }, draw() % 900).into_bytes();
        let key = keys.key(&name);
        let place = (database, name.clone());
        if model.get(&place).is_some_and(|(_, expiry)| expiry.is_some_and(|at| at <= step)) {
            model.remove(&place);
        }
        let len = match draw() % 20 {
            0 => 70_000,
            1 => 300,
            other => other as usize,
        };
        match draw() % 8 {
            0 | 1 => {
                let value = vec![draw() as u8; len];
                let at = step + 1 + (draw() % 5_000) as i64;
                let expiry = [Expiry::Keep, Expiry::Never, Expiry::At(at)][(draw() % 3) as usize];
                keys.put_string(key, &value, expiry);
                let before = model.get(&place).and_then(|(_, expiry)| *expiry);
                let expiry = match expiry {
                    Expiry::Keep => before,
                    Expiry::Never => None,
                    Expiry::At(at) => Some(at),
                };
                model.insert(place, (value, expiry));
            }
            2 => assert_eq!(keys.remove(key).is_some(), model.remove(&place).is_some()),
            3 => {
                let (fill, grow) = (draw() as u8, len % 700);
                keys.change_string(key, |len| len + grow, |bytes| *bytes.last_mut().unwrap_or(&mut 0) = fill).unwrap();
                let (value, _) = model.entry(place).or_default();
                value.resize(value.len() + grow, 0);
                *value.last_mut().unwrap_or(&mut 0) = fill;
            }
            4 => {
                let at = if draw().is_multiple_of(2) { None } else { Some(step + 1 + (draw() % 500) as i64) };
                assert_eq!(keys.set_expiry(key, at), model.contains_key(&place));
                if let Some((_, expiry)) = model.get_mut(&place) {
                    *expiry = at;
                }
            }
            _ => {
                assert_eq!(keys.expiry(key), model.get(&place).map(|(_, expiry)| *expiry));
                assert_eq!(keys.string(key).unwrap(), model.get(&place).map(|(value, _)| &value[..]));
            }
        }
    }
    compare(&space, model, 60_000);
}

/// Everything is where the model has it, and nothing else is.
fn compare(space: &Keyspace, mut model: Model, end: i64) {
    model.retain(|_, (_, expiry)| expiry.is_none_or(|at| at > end));
    let mut keys = lock(space, end);
    for ((database, name), (value, _)) in &model {
        keys.select(*database);
        assert_eq!(keys.string(keys.key(name)).unwrap(), Some(&value[..]));
    }
    for database in 0..2 {
        let mut expected: Vec<&[u8]> =
            model.keys().filter(|(other, _)| *other == database).map(|(_, name)| &name[..]).collect();
        let mut found = Vec::new();
        for shard in keys.shards() {
            shard.each(database, |record| {
                if record.expiry().is_none_or(|at| at > end) {
                    found.push(record.key().to_vec());
                }
            });
        }
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
        let expiring: usize = keys.shards().map(|shard| shard.keys_expiring(database)).sum();
        let of_model = model.iter().filter(|((other, _), (_, expiry))| *other == database && expiry.is_some()).count();
        assert!(expiring >= of_model);
    }
}

#[test]
fn a_slot_is_scanned_once_while_it_grows() {
    let space = space(64);
    let mut keys = lock(&space, 0);
    let name = |number: usize| format!("{{tag}}{number}").into_bytes();
    (0..3_000).for_each(|number| keys.put_string(keys.key(&name(number)), b"1", Expiry::Never));
    let slot = Slot::of(b"tag");
    let (mut seen, mut cursor, mut added) = (BTreeMap::new(), 0, 3_000);
    loop {
        cursor = keys.shard(slot).scan_slot(0, slot.index(), cursor, 10, |record| {
            *seen.entry(record.key().to_vec()).or_insert(0) += 1;
        });
        if cursor == 0 {
            break;
        }
        (0..5).for_each(|more| keys.put_string(keys.key(&name(added + more)), b"1", Expiry::Never));
        added += 5;
    }
    assert!((0..3_000).all(|number| seen[&name(number)] == 1));
    assert_eq!(keys.shard(slot).keys_in_slot(0, slot.index()), added);
    let mut draw = draws(3);
    let random = keys.shard(slot).random(0, false, &mut draw).unwrap();
    assert!(random.key().starts_with(b"{tag}") && random.kind() == Kind::String);
    assert!(keys.shard(slot).random(0, true, &mut draw).is_none());
    let shard = space.shard_of(slot);
    drop(keys);
    let mut shard = space.shard(shard);
    assert!(shard.flush(0).is_some_and(|flushed| flushed.keys > 0));
    assert_eq!((shard.keys(0), shard.record_bytes()), (0, 0));
}
