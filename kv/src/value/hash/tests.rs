use std::collections::BTreeMap;

use super::*;
use crate::memory::draws::{Draws, assert_even, hash_key};

/// A name, and its value and expiry.
type Model = BTreeMap<Vec<u8>, (Vec<u8>, Option<i64>)>;

const LIMITS: Limits = Limits { listpack_entries_max: 128, listpack_value_bytes_max: 64 };

fn hash_of(fields: impl IntoIterator<Item = (String, String)>) -> Hash {
    let (key, mut hash) = (hash_key(1), Hash::new());
    for (name, value) in fields {
        hash.set(name.as_bytes(), value.as_bytes(), Expiry::Never, 0, &key, &LIMITS);
    }
    hash
}

fn fields(count: usize) -> impl Iterator<Item = (String, String)> {
    (0..count).map(|number| (format!("field {number}"), number.to_string()))
}

fn model_of(hash: &Hash, now_ms: i64) -> Model {
    let fields: Vec<_> =
        hash.iter(now_ms).map(|field| (field.name.to_vec(), (field.value.to_vec(), field.expiry_ms))).collect();
    let model: Model = fields.iter().cloned().collect();
    assert_eq!((model.len(), hash.live_len(now_ms)), (fields.len(), fields.len()), "nothing is in a hash twice");
    model
}

#[test]
fn the_form_follows_the_settings() {
    let (short, long) = ("x".repeat(64), "x".repeat(65));
    let pair = |name: &str, value: &str| vec![(name.to_string(), value.to_string())];
    let cases = [
        ("few", fields(128).collect(), "listpack"),
        ("many", fields(129).collect(), "hashtable"),
        ("short", pair(&short, &short), "listpack"),
        ("a long name", pair(&long, "value"), "hashtable"),
        ("a long value", pair("name", &long), "hashtable"),
        ("a value that becomes long", [pair("name", "value"), pair("name", &long)].concat(), "hashtable"),
        ("one field, often", (0..500).flat_map(|_| pair("name", "value")).collect::<Vec<_>>(), "listpack"),
    ];
    for (name, fields, expected) in cases {
        let hash = hash_of(fields.clone());
        assert_eq!(hash.encoding(), expected, "{name}");
        let model: Model =
            fields.into_iter().map(|(name, value)| (name.into_bytes(), (value.into_bytes(), None))).collect();
        assert_eq!(model_of(&hash, 0), model, "{name}");
    }
}

#[test]
fn what_comes_at_once_is_looked_at_before() {
    let key = hash_key(1);
    for (lens, expected) in
        [(vec![], "listpack"), (vec![64; 256], "listpack"), (vec![1; 258], "hashtable"), (vec![1, 65], "hashtable")]
    {
        let mut hash = hash_of(fields(3));
        hash.prepare(lens.into_iter(), &key, &LIMITS);
        assert_eq!((hash.encoding(), hash.len()), (expected, 3));
    }
}

#[test]
fn an_expiry_makes_a_table_of_it() {
    let key = hash_key(1);
    let mut hash = hash_of(fields(3));
    assert!(!hash.set_expiry(b"nothing", Some(5), 0, &key));
    assert!(hash.set_expiry(b"field 1", None, 0, &key));
    assert_eq!(hash.encoding(), "listpack");
    assert!(hash.set_expiry(b"field 1", Some(5), 0, &key));
    assert_eq!((hash.encoding(), hash.len()), ("hashtable", 3));
    let mut hash = hash_of(fields(3));
    assert!(hash.set(b"new", b"value", Expiry::At(5), 0, &key, &LIMITS));
    assert_eq!((hash.encoding(), hash.len()), ("hashtable", 4));
}

#[test]
fn an_expired_field_is_hidden_until_it_is_reaped() {
    let key = hash_key(1);
    let mut hash = hash_of(fields(10));
    for (name, expiry_ms) in [("field 1", 100), ("field 2", 200), ("field 3", 300)] {
        assert!(hash.set_expiry(name.as_bytes(), Some(expiry_ms), 0, &key));
    }
    let value_at = |hash: &Hash, now_ms| hash.get(b"field 2", now_ms, &key).map(|field| field.value.to_vec());
    assert_eq!(value_at(&hash, 200), Some(b"2".to_vec()));
    assert_eq!(value_at(&hash, 201), None);
    assert_eq!([200, 201, 301].map(|now_ms| hash.live_len(now_ms)), [9, 8, 7]);
    assert_eq!((hash.len(), hash.expiring_len(), hash.next_expiry_ms()), (10, 3, Some(100)));
    assert_eq!(model_of(&hash, 201).len(), 8);
    let mut scanned = 0;
    hash.scan(0, 1_000, 201, &key, |_| scanned += 1);
    assert_eq!(scanned, 8);

    let mut reaped = Vec::new();
    assert_eq!(hash.reap(100, 10, &key, |_| panic!("nothing has expired")), 0);
    assert_eq!(hash.reap(301, 2, &key, |name| reaped.push(name.to_vec())), 2);
    assert_eq!(reaped, [b"field 1".to_vec(), b"field 2".to_vec()]);
    assert_eq!((hash.len(), hash.next_expiry_ms()), (8, Some(300)));
    assert_eq!(hash.reap(301, 10, &key, |_| {}), 1);
    assert_eq!((hash.len(), hash.expiring_len(), hash.next_expiry_ms()), (7, 0, None));
}

#[test]
fn what_a_new_value_does_to_the_expiry() {
    let key = hash_key(1);
    // The expiry before, that of the set, the time; whether the field is new, its expiry after.
    let cases = [
        (None, Expiry::Never, 0, false, None),
        (Some(100), Expiry::Never, 0, false, None),
        (Some(100), Expiry::Kept, 0, false, Some(100)),
        (None, Expiry::Kept, 0, false, None),
        (None, Expiry::At(7), 0, false, Some(7)),
        (Some(100), Expiry::At(7), 0, false, Some(7)),
        (Some(100), Expiry::Kept, 101, true, None),
        (Some(100), Expiry::Never, 101, true, None),
        (Some(100), Expiry::At(200), 101, true, Some(200)),
    ];
    for (before, expiry, now_ms, is_new, after) in cases {
        let mut hash = hash_of(fields(3));
        assert!(hash.set_expiry(b"field 0", Some(50), 0, &key));
        assert!(hash.set_expiry(b"field 1", before, 0, &key));
        assert_eq!(hash.set(b"field 1", b"new", expiry, now_ms, &key, &LIMITS), is_new, "{before:?} {expiry:?}");
        let field = hash.get(b"field 1", now_ms, &key).expect("it was set");
        assert_eq!((field.value.to_vec(), field.expiry_ms), (b"new".to_vec(), after), "{before:?} {expiry:?}");
        assert_eq!(hash.expiring_len(), 1 + usize::from(after.is_some()));
    }
}

#[test]
fn random_steps_against_a_model() {
    let key = hash_key(1);
    for (count, expires) in [(50, false), (50, true), (2_000, false), (2_000, true)] {
        let (mut hash, mut model, mut draws) = (Hash::new(), Model::new(), Draws(5));
        for now_ms in 0..10_000 {
            let name = format!("name {}", draws.below(count)).into_bytes();
            model.retain(|_, (_, expiry_ms)| expiry_ms.is_none_or(|expiry_ms| expiry_ms >= now_ms));
            let known = model.get(&name).cloned();
            let found = hash.get(&name, now_ms, &key).map(|field| (field.value.to_vec(), field.expiry_ms));
            assert_eq!(found, known);
            let later = expires.then(|| now_ms + draws.below(1_000) as i64 - 10);
            match draws.below(10) {
                0..=4 => {
                    let value = vec![draws.byte(); draws.below(40)];
                    let kept = known.as_ref().and_then(|(_, expiry_ms)| *expiry_ms);
                    let (expiry, expiry_ms) = match (draws.below(3), later) {
                        (0, Some(later)) => (Expiry::At(later), Some(later)),
                        (1, _) => (Expiry::Kept, kept),
                        _ => (Expiry::Never, None),
                    };
                    assert_eq!(hash.set(&name, &value, expiry, now_ms, &key, &LIMITS), known.is_none());
                    model.insert(name, (value, expiry_ms));
                }
                5 | 6 => {
                    let len = hash.len() - usize::from(known.is_some());
                    assert_eq!(hash.remove(&name, now_ms, &key), known.is_some());
                    assert_eq!(hash.len(), len, "what has expired stays");
                    model.remove(&name);
                }
                7 => {
                    assert_eq!(hash.set_expiry(&name, later, now_ms, &key), known.is_some());
                    model.entry(name).and_modify(|field| field.1 = later);
                }
                8 => drop(hash.reap(now_ms, draws.below(3), &key, |name| assert!(!model.contains_key(name)))),
                _ => {
                    let found = hash.random(now_ms, || draws.next()).map(|field| field.name.to_vec());
                    assert_eq!(found.is_none(), model.retain_live(now_ms).is_empty());
                    assert!(found.is_none_or(|name| model.contains_key(&name)));
                }
            }
            if now_ms % 500 == 0 {
                let live = model.retain_live(now_ms);
                assert_eq!(&model_of(&hash, now_ms), live);
                let expiring = live.values().filter(|(_, expiry_ms)| expiry_ms.is_some()).count();
                assert!(hash.expiring_len() >= expiring);
                assert_eq!(hash.len() - live.len(), hash.expiring_len() - expiring, "only the expired are left");
            }
        }
    }
}

/// What a model does as time passes.
trait Live {
    fn retain_live(&mut self, now_ms: i64) -> &Self;
}

impl Live for Model {
    fn retain_live(&mut self, now_ms: i64) -> &Self {
        self.retain(|_, (_, expiry_ms)| expiry_ms.is_none_or(|expiry_ms| expiry_ms >= now_ms));
        self
    }
}

#[test]
fn every_field_has_the_same_chance() {
    let key = hash_key(1);
    let mut expiring = hash_of(fields(300));
    for number in 40..300 {
        assert!(expiring.set_expiry(format!("field {number}").as_bytes(), Some(1), 0, &key));
    }
    for (hash, live) in [(hash_of(fields(40)), 40), (hash_of(fields(300)), 300), (expiring, 40)] {
        let (mut draws, mut counts) = (Draws(3), vec![0; live]);
        let number_of =
            |field: Field<'_>| usize::try_from(field.value.integer().expect("a number")).expect("a small one");
        hash.random_repeated(live * 100, 2, || draws.next(), |field| counts[number_of(field)] += 1);
        assert_even(&counts);
        let mut seen = vec![0; live];
        hash.random_distinct(live / 2, 2, || draws.next(), |field| seen[number_of(field)] += 1);
        assert_eq!((seen.iter().sum::<usize>(), seen.iter().max()), (live / 2, Some(&1)));
        let mut all = 0;
        hash.random_distinct(usize::MAX, 2, || draws.next(), |_| all += 1);
        assert_eq!(all, live);
    }
    let mut gone = hash_of(fields(3));
    (0..3).for_each(|number| assert!(gone.set_expiry(format!("field {number}").as_bytes(), Some(1), 0, &key)));
    assert_eq!(gone.random(2, || 0), None);
    assert_eq!(Hash::new().random(0, || 0), None);
}
