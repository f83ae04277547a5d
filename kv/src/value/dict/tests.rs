use std::collections::BTreeMap;

use super::*;
use crate::memory::draws::{Draws, hash_key};

fn entry<'a>(member: &'a [u8], value: &'a [u8], expiry_ms: Option<i64>) -> Entry<'a> {
    Entry { member, value, expiry_ms }
}

#[test]
fn cells_hold_what_was_put_in() {
    let lens = [0, 1, 8, 100, 255, 256, 300, 5_000, 70_000];
    let key = hash_key(1);
    let mut dict = Dict::new();
    for member_len in lens {
        for value_len in lens {
            for expiry_ms in [None, Some(0), Some(i64::MIN), Some(1_700_000_000_000)] {
                let (member, value) = (vec![b'm'; member_len], vec![b'v'; value_len]);
                let put = entry(&member, &value, expiry_ms);
                let inserted = dict.insert(&key, put);
                assert_eq!(dict.entry(inserted.handle), put);
                assert_eq!(dict.get(&key, &member), Some(put));
            }
        }
    }
    assert_eq!(dict.len(), lens.len());
}

#[test]
fn random_steps_against_a_model() {
    let (key, mut draws) = (hash_key(2), Draws(2));
    let mut dict = Dict::new();
    let mut model: BTreeMap<Vec<u8>, (Vec<u8>, Option<i64>)> = BTreeMap::new();
    for step in 0..30_000 {
        let member = format!("member:{}", draws.below(2_000)).into_bytes();
        match draws.below(10) {
            0..5 => {
                let value = vec![draws.next() as u8; draws.below(60)];
                let expiry_ms = (draws.below(4) == 0).then(|| draws.next() as i64);
                let inserted = dict.insert(&key, entry(&member, &value, expiry_ms));
                assert_eq!(inserted.is_new(), model.insert(member, (value, expiry_ms)).is_none());
            }
            5 => {
                let expiry_ms = (draws.below(2) == 0).then(|| draws.next() as i64);
                let changed = dict.set_expiry(&key, &member, expiry_ms);
                assert_eq!(changed.is_some(), model.contains_key(&member));
                model.entry(member).and_modify(|known| known.1 = expiry_ms);
            }
            6..9 => assert_eq!(dict.remove(&key, &member).is_some(), model.remove(&member).is_some()),
            _ => {
                let found = dict.random(|| draws.next());
                assert_eq!(found.is_none(), model.is_empty());
                if let Some(handle) = found {
                    assert!(model.remove(dict.entry(handle).member).is_some());
                    dict.remove_handle(&key, handle);
                }
            }
        }
        if step % 1_000 == 0 {
            let all: BTreeMap<Vec<u8>, (Vec<u8>, Option<i64>)> =
                dict.iter().map(|entry| (entry.member.to_vec(), (entry.value.to_vec(), entry.expiry_ms))).collect();
            assert_eq!(all, model);
            assert_eq!(dict.len(), model.len());
        }
    }
    model.keys().for_each(|member| assert!(dict.remove(&key, member).is_some()));
    assert_eq!(dict.bytes_held(), 0);
}

#[test]
fn a_handle_stays_while_the_value_keeps_its_length() {
    let key = hash_key(3);
    let mut dict = Dict::new();
    let first = dict.insert(&key, entry(b"member", b"12345678", None));
    for number in 0..3_000_u32 {
        let _ = dict.insert(&key, entry(&number.to_le_bytes(), b"value", None));
    }
    let again = dict.insert(&key, entry(b"member", b"87654321", None));
    assert_eq!(again, Inserted { handle: first.handle, before: Some(first.handle) });
    dict.value_mut(first.handle).copy_from_slice(b"abcdefgh");
    assert_eq!(dict.get(&key, b"member"), Some(entry(b"member", b"abcdefgh", None)));
    let moved = dict.insert(&key, entry(b"member", &[7; 100], None));
    assert_ne!(moved.handle, first.handle);
    assert_eq!(moved.before, Some(first.handle));
    assert_eq!(dict.len(), 3_001);
}

#[test]
fn a_scan_shows_every_entry() {
    let key = hash_key(4);
    let mut dict = Dict::new();
    for number in 0..2_000_u32 {
        let _ = dict.insert(&key, entry(&number.to_le_bytes(), b"", None));
    }
    let (mut cursor, mut seen) = (0, Vec::new());
    loop {
        cursor = dict.scan(&key, cursor, 10, |entry| seen.push(entry.member.to_vec()));
        if cursor == 0 {
            break;
        }
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 2_000);
}

#[test]
fn a_large_dict_costs_little_more_than_its_bytes() {
    let key = hash_key(5);
    let mut dict = Dict::new();
    (0..100_000_u64).for_each(|number| {
        let member = format!("{number:016}");
        dict.insert(&key, entry(member.as_bytes(), &number.to_le_bytes(), None));
    });
    // A header of three bytes, 16, 8, rounded up to 32, and a place in the index.
    let bytes = dict.bytes_held() / dict.len();
    assert!(bytes <= 32 + 9, "{bytes} bytes an entry");
}
