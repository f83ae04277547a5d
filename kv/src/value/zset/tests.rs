use std::collections::BTreeMap;

use super::*;
use crate::memory::draws::{Draws, hash_key};
use crate::value::set;

/// Members by name, and how they lie in order.
type Model = BTreeMap<Vec<u8>, f64>;

fn in_order(model: &Model) -> Vec<(Vec<u8>, f64)> {
    let mut entries: Vec<(Vec<u8>, f64)> = model.iter().map(|(member, score)| (member.clone(), *score)).collect();
    entries.sort_by(|one, other| order((one.1, &one.0), (other.1, &other.0)));
    entries
}

fn listed<'a>(entries: impl Iterator<Item = Entry<'a>>) -> Vec<(Vec<u8>, f64)> {
    entries.map(|entry| (entry.member.to_vec(), entry.score)).collect()
}

fn member(draws: &mut Draws, many: usize) -> Vec<u8> {
    let number = draws.below(many);
    if number.is_multiple_of(3) { number.to_string().into_bytes() } else { format!("member{number}").into_bytes() }
}

fn score(draws: &mut Draws) -> f64 {
    match draws.below(12) {
        0 => f64::INFINITY,
        1 => f64::NEG_INFINITY,
        2 => -0.5,
        3 => 0.0,
        4 => 1e300,
        5 => 12_345_678.0,
        // Its bytes are digits.
        6 => f64::from_le_bytes(*b"12345678"),
        _ => [1.0, 2.0, 3.0, 1.5, -7.0][draws.below(5)],
    }
}

fn zset(key: &HashKey, entries: &[(&str, f64)], limits: &Limits) -> ZSet {
    let mut set = ZSet::new();
    for (member, score) in entries {
        set.add(member.as_bytes(), *score, When::default(), key, limits).unwrap();
    }
    set
}

const SMALL: Limits = Limits { listpack_entries_max: 128, listpack_value_bytes_max: 64 };
const LARGE: Limits = Limits { listpack_entries_max: 0, listpack_value_bytes_max: 64 };

#[test]
fn a_sorted_set_does_what_a_sorted_vector_does() {
    let key = hash_key(1);
    for (seed, many, limits) in [
        (1, 40, SMALL),
        (2, 40, LARGE),
        (3, 300, SMALL),
        (4, 300, Limits { listpack_entries_max: 100, listpack_value_bytes_max: 8 }),
        (5, 3000, LARGE),
        (6, 3000, SMALL),
    ] {
        let mut draws = Draws(seed);
        let (mut set, mut model) = (ZSet::new(), Model::new());
        for step in 0..4000 {
            step_of(&key, &mut draws, many, &limits, &mut set, &mut model);
            assert_eq!(set.len(), model.len());
            if step % 50 == 0 {
                check_against(&key, &mut draws, many, &set, &model);
            }
        }
        assert_eq!(listed(set.iter()), in_order(&model));
        assert_eq!(listed(set.clone().iter()), in_order(&model));
    }
}

fn step_of(key: &HashKey, draws: &mut Draws, many: usize, limits: &Limits, set: &mut ZSet, model: &mut Model) {
    let member = member(draws, many);
    let before = model.get(&member).copied();
    assert_eq!(set.score(&member, key), before);
    match draws.below(20) {
        0..=9 => {
            let score = score(draws);
            let outcome = set.add(&member, score, When::default(), key, limits);
            let expected = match before {
                None => Outcome::Added(score),
                Some(before) if before == score => Outcome::Same(score),
                Some(_) => Outcome::Updated(score),
            };
            assert_eq!(outcome, Ok(expected));
            model.insert(member, score);
        }
        10..=13 => {
            let by = score(draws);
            let sum = before.unwrap_or(0.0) + by;
            let outcome = set.increment(&member, by, When::default(), key, limits);
            assert_eq!(outcome.is_err(), sum.is_nan());
            if !sum.is_nan() {
                model.insert(member, sum);
            }
        }
        14..=18 => {
            assert_eq!(set.remove(&member, key), before);
            model.remove(&member);
        }
        _ => {
            let start = draws.below(model.len() + 1);
            let end = (start + draws.below(20)).min(model.len());
            for (member, _) in &in_order(model)[start..end] {
                model.remove(member);
            }
            assert_eq!(set.remove_range(start..end, key), end - start);
        }
    }
}

fn check_against(key: &HashKey, draws: &mut Draws, many: usize, set: &ZSet, model: &Model) {
    let entries = in_order(model);
    let (one, other) = (score(draws), score(draws));
    for (min_open, max_open) in [(false, false), (true, false), (false, true), (true, true)] {
        let range = ScoreRange {
            min: ScoreBound { score: one, is_open: min_open },
            max: ScoreBound { score: other, is_open: max_open },
        };
        let expected: Vec<_> =
            entries.iter().filter(|(_, score)| range.is_above_min(*score) && range.is_below_max(*score)).collect();
        let ranks = set.ranks_by_score(&range);
        assert_eq!(ranks.len(), expected.len());
        assert_eq!(listed(set.range(ranks)).iter().collect::<Vec<_>>(), expected);
    }
    let start = draws.below(entries.len() + 1);
    let end = (start + draws.below(300)).min(entries.len());
    assert_eq!(listed(set.range(start..end)), entries[start..end]);
    assert_eq!(listed(set.range(start..end).rev()), entries[start..end].iter().rev().cloned().collect::<Vec<_>>());
    assert_eq!(set.range(start..end).len(), end - start);
    let member = member(draws, many);
    let rank = entries.iter().position(|(other, _)| *other == member);
    assert_eq!(set.rank(&member, key), rank.map(|rank| (rank, entries[rank].1)));
    let mut seen = BTreeSet::new();
    let mut cursor = 0;
    loop {
        cursor = set.scan(cursor, 10, key, |entry| {
            assert_eq!(model.get(&entry.member.to_vec()), Some(&entry.score));
            seen.insert(entry.member.to_vec());
        });
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(seen.len(), model.len());
}

#[test]
fn scores_are_set_under_conditions() {
    let key = hash_key(2);
    let none = When::default();
    let nx = When { is_new: true, ..none };
    let xx = When { is_known: true, ..none };
    let gt = When { is_greater: true, ..none };
    let lt = When { is_less: true, ..none };
    for limits in [&SMALL, &LARGE] {
        let set = |member: &str, score, when| {
            let mut set = zset(&key, &[("a", 2.0), ("i", f64::INFINITY)], limits);
            let added = set.add(member.as_bytes(), score, when, &key, limits);
            (added, set.increment(member.as_bytes(), score, when, &key, limits))
        };
        for (member, score, when, expected) in [
            ("a", 3.0, none, Outcome::Updated(3.0)),
            ("a", 2.0, none, Outcome::Same(2.0)),
            ("b", 2.0, none, Outcome::Added(2.0)),
            ("a", 3.0, nx, Outcome::Refused),
            ("b", 3.0, nx, Outcome::Added(3.0)),
            ("a", 3.0, xx, Outcome::Updated(3.0)),
            ("b", 3.0, xx, Outcome::Refused),
            ("a", 3.0, gt, Outcome::Updated(3.0)),
            ("a", 2.0, gt, Outcome::Refused),
            ("b", 2.0, gt, Outcome::Added(2.0)),
            ("a", 1.0, lt, Outcome::Updated(1.0)),
            ("a", 3.0, lt, Outcome::Refused),
            ("a", 2.0, lt, Outcome::Refused),
            ("b", 3.0, When { is_known: true, ..gt }, Outcome::Refused),
        ] {
            assert_eq!(set(member, score, when).0, Ok(expected), "{member} {score} {when:?}");
        }
        for when in [none, nx, xx, gt, lt] {
            assert_eq!(set("a", f64::NAN, when), (Err(NotANumber), Err(NotANumber)));
        }
        assert_eq!(
            set("i", f64::NEG_INFINITY, none),
            (Ok(Outcome::Updated(f64::NEG_INFINITY)), Ok(Outcome::Same(f64::NEG_INFINITY)))
        );
        let mut infinite = zset(&key, &[("i", f64::INFINITY)], limits);
        assert_eq!(infinite.increment(b"i", f64::NEG_INFINITY, none, &key, limits), Err(NotANumber));
        assert_eq!(infinite.score(b"i", &key), Some(f64::INFINITY));
        assert_eq!(infinite.increment(b"i", f64::NEG_INFINITY, nx, &key, limits), Ok(Outcome::Refused));
    }
}

#[test]
fn a_set_becomes_large_above_its_limits() {
    let key = hash_key(3);
    let mut set = ZSet::new();
    for number in 0..128 {
        set.add(number.to_string().as_bytes(), 0.0, When::default(), &key, &SMALL).unwrap();
    }
    assert_eq!(set.encoding(), "listpack");
    let mut other = set.clone();
    set.add(b"128", 0.0, When::default(), &key, &SMALL).unwrap();
    assert_eq!((set.len(), set.encoding()), (129, "skiplist"));
    set.remove_range(1..129, &key);
    assert_eq!(set.encoding(), "skiplist");
    assert_eq!(set.clone().encoding(), "skiplist");
    set.settle(&SMALL);
    assert_eq!((set.len(), set.encoding()), (1, "listpack"));
    other.remove_range(0..100, &key);
    other.add(&[b'x'; 64], 0.0, When::default(), &key, &SMALL).unwrap();
    assert_eq!(other.encoding(), "listpack");
    other.add(&[b'x'; 65], 0.0, When::default(), &key, &SMALL).unwrap();
    assert_eq!(other.encoding(), "skiplist");
    other.settle(&SMALL);
    assert_eq!(other.encoding(), "skiplist");
    let mut hinted = ZSet::new();
    hinted.prepare(128, 64, &key, &SMALL);
    assert_eq!(hinted.encoding(), "listpack");
    hinted.prepare(129, 1, &key, &SMALL);
    assert_eq!(hinted.encoding(), "skiplist");
}

#[test]
fn ranges_are_read_and_found() {
    let key = hash_key(4);
    let letters: Vec<(String, f64)> = ('a'..='g').map(|letter| (letter.to_string(), 0.0)).collect();
    let letters: Vec<(&str, f64)> = letters.iter().map(|(letter, score)| (letter.as_str(), *score)).collect();
    for limits in [&SMALL, &LARGE] {
        let set = zset(&key, &letters, limits);
        for (min, max, expected) in [
            ("-", "+", Some(0..7)),
            ("[b", "(e", Some(1..4)),
            ("(b", "[e", Some(2..5)),
            ("[bb", "[dd", Some(2..4)),
            ("+", "-", Some(7..7)),
            ("[e", "[b", Some(4..4)),
            ("[", "(", Some(0..0)),
            ("b", "+", None),
            ("-x", "+", None),
            ("-", "", None),
        ] {
            let range = LexRange::parse(min.as_bytes(), max.as_bytes());
            assert_eq!(range.map(|range| set.ranks_by_member(&range)), expected, "{min} {max}");
        }
        assert_eq!(set.ranks_by_rank(1, -2, false), 1..6);
        assert_eq!(set.ranks_by_rank(0, 1, true), 5..7);
        assert_eq!(set.ranks_by_rank(5, 1, true).len(), 0);
        assert_eq!(set.ranks_at_end(false, 2), 0..2);
        assert_eq!(set.ranks_at_end(true, 2), 5..7);
        assert_eq!(set.ranks_at_end(true, 9), 0..7);
    }
    for (min, max, is_read) in [
        ("1", "(2", true),
        ("-inf", "+inf", true),
        ("(-inf", "", true),
        ("nan", "1", false),
        ("1", "((1", false),
        ("1x", "2", false),
        ("0x10", "17", false),
        ("(0x10", "17", false),
        (" 1", "2", false),
    ] {
        assert_eq!(ScoreRange::parse(min.as_bytes(), max.as_bytes()).is_some(), is_read, "{min} {max}");
    }
}

#[test]
fn windows_are_counted_from_where_reading_begins() {
    for (offset, count, is_reversed, expected) in [
        (0, -1, false, 10..20),
        (3, 4, false, 13..17),
        (3, 4, true, 13..17),
        (1, 2, true, 17..19),
        (8, 5, false, 18..20),
        (8, 5, true, 10..12),
        (10, 1, false, 20..20),
        (99, 1, true, 10..10),
        (-1, 5, false, 20..20),
        (2, -7, true, 10..18),
        (0, 0, false, 10..10),
    ] {
        assert_eq!(window(10..20, offset, count, is_reversed), expected, "{offset} {count} {is_reversed}");
    }
}

#[test]
fn random_members_are_evenly_spread_and_different() {
    let key = hash_key(5);
    let set = zset(&key, &[("a", 1.0), ("b", 2.0), ("c", 3.0), ("d", 4.0), ("e", 5.0)], &SMALL);
    let mut draws = Draws(9);
    let mut counts = [0_u32; 5];
    for _ in 0..5000 {
        let entry = set.random(|| draws.next()).unwrap();
        counts[usize::from(entry.member.to_vec()[0] - b'a')] += 1;
    }
    assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    for count in 0..7 {
        let mut counts = [0_u32; 5];
        for _ in 0..2000 {
            let ranks = set.random_ranks(count, || draws.next());
            assert_eq!(ranks.len(), count.min(5));
            assert!(ranks.is_sorted_by(|one, other| one < other));
            ranks.iter().for_each(|rank| counts[*rank] += 1);
        }
        let due = u32::try_from(2000 * count.min(5) / 5).unwrap();
        assert!(counts.iter().all(|count| count.abs_diff(due) < 120), "{count}: {counts:?}");
    }
    assert!(ZSet::new().random(|| 7).is_none());
    assert!(ZSet::new().random_ranks(3, || 7).is_empty());
}

#[test]
fn combinations_weigh_and_aggregate() {
    let key = hash_key(6);
    let inf = f64::INFINITY;
    let one = zset(&key, &[("a", 1.0), ("b", 2.0), ("i", inf)], &SMALL);
    let two = zset(&key, &[("b", 3.0), ("c", 4.0), ("i", -inf), ("z", 0.0)], &LARGE);
    let sources: [(&dyn Scored, f64); 2] = [(&one, 2.0), (&two, 10.0)];
    let check = |set: ZSet, expected: &[(&str, f64)]| {
        let listed: Vec<(String, f64)> =
            set.iter().map(|entry| (String::from_utf8(entry.member.to_vec()).unwrap(), entry.score)).collect();
        let listed: Vec<(&str, f64)> = listed.iter().map(|(member, score)| (member.as_str(), *score)).collect();
        assert_eq!(listed, expected);
    };
    let union_of = |aggregate| union(&sources, aggregate, &key);
    check(union_of(Aggregate::Sum), &[("i", 0.0), ("z", 0.0), ("a", 2.0), ("b", 34.0), ("c", 40.0)]);
    check(union_of(Aggregate::Min), &[("i", -inf), ("z", 0.0), ("a", 2.0), ("b", 4.0), ("c", 40.0)]);
    check(union_of(Aggregate::Max), &[("z", 0.0), ("a", 2.0), ("b", 30.0), ("c", 40.0), ("i", inf)]);
    let inter_of = |aggregate| inter(&sources, aggregate, &key);
    check(inter_of(Aggregate::Sum), &[("i", 0.0), ("b", 34.0)]);
    check(inter_of(Aggregate::Min), &[("i", -inf), ("b", 4.0)]);
    check(inter_of(Aggregate::Max), &[("b", 30.0), ("i", inf)]);
    // An infinite score with the weight 0 counts as 0.
    let zero: [(&dyn Scored, f64); 2] = [(&one, 0.0), (&two, 0.0)];
    check(inter(&zero, Aggregate::Max, &key), &[("b", 0.0), ("i", 0.0)]);
    check(union(&zero, Aggregate::Min, &key), &[("a", 0.0), ("b", 0.0), ("c", 0.0), ("i", 0.0), ("z", 0.0)]);
    check(diff(&one, &[&two], &key), &[("a", 1.0)]);
    check(diff(&two, &[&one, &ZSet::new()], &key), &[("z", 0.0), ("c", 4.0)]);
    check(diff(&one, &[&one], &key), &[]);
    check(inter(&[(&one, 1.0), (&ZSet::new(), 1.0)], Aggregate::Sum, &key), &[]);
    check(union(&[], Aggregate::Sum, &key), &[]);
    assert_eq!(inter_len(&[&one, &two], 0, &key), 2);
    assert_eq!(inter_len(&[&one, &two], 1, &key), 1);
    assert_eq!(inter_len(&[&one, &one], 9, &key), 3);
    let mut members = set::Set::new(b"c", 2, &set::Limits::default());
    for member in [b"c", b"z"] {
        members.add(member, &key, &set::Limits::default());
    }
    check(inter(&[(&two, 1.0), (&members, 5.0)], Aggregate::Sum, &key), &[("z", 5.0), ("c", 9.0)]);
    check(diff(&members, &[&one], &key), &[("c", 1.0), ("z", 1.0)]);
    let mut kept = union_of(Aggregate::Sum);
    kept.settle(&LARGE);
    assert_eq!(kept.encoding(), "skiplist");
    kept.settle(&SMALL);
    assert_eq!(kept.encoding(), "listpack");
}

#[test]
fn a_zero_of_either_sign_is_in_its_place() {
    let key = hash_key(7);
    for limits in [&SMALL, &LARGE] {
        let set = zset(&key, &[("b", -0.0), ("a", 0.0), ("c", 0.0)], limits);
        let members: Vec<u8> = set.iter().map(|entry| entry.member.to_vec()[0]).collect();
        assert_eq!(members, b"abc");
        assert_eq!(set.rank(b"b", &key), Some((1, 0.0)));
    }
}
