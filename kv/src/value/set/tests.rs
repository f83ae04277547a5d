use std::collections::BTreeSet;

use super::*;
use crate::memory::draws::{Draws, assert_even, hash_key};

type Model = BTreeSet<Vec<u8>>;
type Write = fn(usize) -> String;

const LIMITS: Limits = Limits { intset_entries_max: 512, listpack_entries_max: 128, listpack_value_bytes_max: 64 };

fn set_of<M: AsRef<[u8]>>(members: impl IntoIterator<Item = M>) -> Set {
    let key = hash_key(1);
    let mut set = Set { form: Form::Integers(Integers::default()) };
    for member in members {
        set.add(member.as_ref(), &key, &LIMITS);
    }
    set
}

fn numbers(range: std::ops::Range<i64>) -> impl Iterator<Item = String> {
    range.map(|number| number.to_string())
}

fn words(range: std::ops::Range<i64>) -> impl Iterator<Item = String> {
    range.map(|number| format!("word {number}"))
}

fn model_of(set: &Set) -> Model {
    let members: Vec<Vec<u8>> = set.iter().map(|member| member.to_vec()).collect();
    let model: Model = members.iter().cloned().collect();
    assert_eq!((model.len(), set.len()), (members.len(), members.len()), "nothing is in a set twice");
    model
}

#[test]
fn the_form_follows_the_settings() {
    let long = "x".repeat(65);
    let cases: [(&str, Vec<String>, &str); 12] = [
        ("integers", numbers(0..512).collect(), "intset"),
        ("too many integers", numbers(0..513).collect(), "hashtable"),
        ("words", words(0..128).collect(), "listpack"),
        ("too many words", words(0..129).collect(), "hashtable"),
        ("a long word", vec!["x".repeat(64)], "listpack"),
        ("too long a word", vec![long.clone()], "hashtable"),
        ("a word after integers", numbers(0..127).chain(words(0..1)).collect(), "listpack"),
        ("a word after many integers", numbers(0..128).chain(words(0..1)).collect(), "hashtable"),
        ("a long word after integers", numbers(0..3).chain([long.clone()]).collect(), "hashtable"),
        ("a long word after words", words(0..3).chain([long]).collect(), "hashtable"),
        ("integers after a word", words(0..1).chain(numbers(0..127)).collect(), "listpack"),
        ("no integers after all", ["01", "+1", "9223372036854775808"].map(String::from).to_vec(), "listpack"),
    ];
    for (name, members, expected) in cases {
        let set = set_of(&members);
        assert_eq!(set.encoding(), expected, "{name}");
        assert_eq!(model_of(&set), members.into_iter().map(String::into_bytes).collect(), "{name}");
    }
}

#[test]
fn integers_may_be_too_long_for_a_sequence() {
    let (key, limits) = (hash_key(1), Limits { listpack_value_bytes_max: 4, ..LIMITS });
    for (integer, expected) in
        [("9999", "listpack"), ("-999", "listpack"), ("-1000", "hashtable"), ("10000", "hashtable")]
    {
        let mut set = set_of(["1", integer, "2"]);
        assert!(set.add(b"a", &key, &limits));
        assert_eq!(set.encoding(), expected, "{integer}");
    }
}

#[test]
fn the_first_form_follows_the_hint() {
    let cases = [
        (b"1".as_slice(), 1, "intset"),
        (b"1", 512, "intset"),
        (b"1", 513, "hashtable"),
        (b"a", 128, "listpack"),
        (b"a", 129, "hashtable"),
        (b"a", 513, "hashtable"),
    ];
    for (first, hint, expected) in cases {
        assert_eq!(Set::new(first, hint, &LIMITS).encoding(), expected, "{hint} from {first:?}");
    }
    let (key, mut set) = (hash_key(1), set_of(["a", "b"]));
    set.prepare(128, &key, &LIMITS);
    assert_eq!(set.encoding(), "listpack");
    set.prepare(129, &key, &LIMITS);
    assert_eq!((set.encoding(), model_of(&set).len()), ("hashtable", 2));
}

#[test]
fn settings_of_zero_leave_tables_only() {
    let (key, none) =
        (hash_key(1), Limits { intset_entries_max: 0, listpack_entries_max: 0, listpack_value_bytes_max: 0 });
    for member in ["1", "a"] {
        let mut set = Set::new(member.as_bytes(), 1, &none);
        assert!(set.add(member.as_bytes(), &key, &none));
        assert_eq!(set.encoding(), "hashtable");
    }
}

#[test]
fn random_steps_against_a_model() {
    let key = hash_key(1);
    // What members look like, by number.
    let kinds: [(&str, Write, usize); 4] = [
        ("integers", |number| (number as i64 - 50).to_string(), 600),
        ("words", |number| format!("w{number}"), 100),
        ("many words", |number| format!("w{number}"), 3_000),
        ("both", |number| if number % 2 == 0 { number.to_string() } else { format!("0{number}") }, 1_000),
    ];
    for (name, write, count) in kinds {
        let (mut set, mut model, mut draws) = (set_of::<&str>([]), Model::new(), Draws(7));
        for step in 0..10_000 {
            let member = write(draws.below(count)).into_bytes();
            assert_eq!(set.contains(&member, &key), model.contains(&member), "{name}");
            match draws.below(8) {
                0..=4 => assert_eq!(set.add(&member, &key, &LIMITS), model.insert(member), "{name}"),
                5 | 6 => assert_eq!(set.remove(&member, &key), model.remove(&member), "{name}"),
                _ => match set.pop(&key, || draws.next()) {
                    Some(popped) => assert!(model.remove(&popped), "{name}"),
                    None => assert!(model.is_empty(), "{name}"),
                },
            }
            assert_eq!(set.len(), model.len(), "{name}");
            if step % 500 == 0 {
                assert_eq!(model_of(&set), model, "{name}");
            }
        }
    }
}

/// A set in each form, small enough to draw from.
fn one_of_each() -> [Set; 3] {
    let sets = [set_of(numbers(0..40)), set_of(words(0..40)), set_of(words(0..400))];
    assert_eq!(sets.each_ref().map(Set::encoding), ["intset", "listpack", "hashtable"]);
    sets
}

#[test]
fn a_scan_shows_every_member() {
    let key = hash_key(1);
    for set in one_of_each() {
        let (mut cursor, mut seen) = (0, Vec::new());
        loop {
            cursor = set.scan(cursor, 10, &key, |member| seen.push(member.to_vec()));
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(seen.len(), set.len());
        assert_eq!(seen.into_iter().collect::<Model>(), model_of(&set));
    }
}

#[test]
fn every_member_has_the_same_chance() {
    for set in one_of_each() {
        let members: Vec<Vec<u8>> = model_of(&set).into_iter().collect();
        let count = |member: Text<'_>, counts: &mut Vec<u32>| {
            counts[members.binary_search(&member.to_vec()).expect("a member of the set")] += 1;
        };
        let (mut draws, mut counts) = (Draws(3), vec![0; members.len()]);
        set.random_repeated(members.len() * 100, || draws.next(), |member| count(member, &mut counts));
        assert_even(&counts);
        for drawn in [members.len() / 20, members.len() / 2] {
            let mut counts = vec![0; members.len()];
            for _ in 0..1_000 {
                let mut seen = Model::new();
                set.random_distinct(
                    drawn,
                    || draws.next(),
                    |member| {
                        count(member, &mut counts);
                        assert!(seen.insert(member.to_vec()), "drawn twice");
                    },
                );
                assert_eq!(seen.len(), drawn);
            }
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            assert!(most - least < 200 && *least > 0, "{least} to {most}");
        }
        let mut all = 0;
        set.random_distinct(usize::MAX, || draws.next(), |_| all += 1);
        assert_eq!(all, set.len());
    }
    assert_eq!(set_of::<&str>([]).random(|| 0), None);
}

#[test]
fn many_are_popped() {
    let key = hash_key(1);
    for count in [0, 1, 20, 36, 39, 40, 300, 390, 400, usize::MAX] {
        for mut set in one_of_each() {
            let before = model_of(&set);
            let (mut draws, mut popped) = (Draws(9), Model::new());
            set.pop_many(
                count,
                &key,
                &LIMITS,
                || draws.next(),
                |member| {
                    assert!(popped.insert(member.to_vec()), "popped twice");
                },
            );
            let rest = model_of(&set);
            assert_eq!(popped.len(), count.min(before.len()));
            assert!(rest.is_disjoint(&popped));
            assert_eq!(rest.union(&popped).cloned().collect::<Model>(), before);
        }
    }
    let mut table = set_of(words(0..400));
    let mut draws = Draws(9);
    table.pop_many(395, &key, &LIMITS, || draws.next(), |_| {});
    assert_eq!(table.encoding(), "listpack", "the few that stay are a set of their own");
}

#[test]
fn algebra_against_a_model() {
    let key = hash_key(1);
    let sets = [
        set_of(numbers(0..40)),
        set_of(numbers(20..600)),
        set_of(words(0..50)),
        set_of(words(30..400)),
        set_of(numbers(30..50).chain(words(40..60))),
        set_of(numbers(0..100).chain(words(0..1_000))),
        set_of::<&str>([]),
    ];
    let models: Vec<Model> = sets.iter().map(model_of).collect();
    for first in 0..sets.len() {
        for second in 0..sets.len() {
            for third in 0..sets.len() {
                let chosen = [first, second, third];
                let borrowed = chosen.map(|at| &sets[at]);
                let [a, b, c] = chosen.map(|at| &models[at]);
                let common: Model =
                    a.iter().filter(|member| b.contains(*member) && c.contains(*member)).cloned().collect();
                let together: Model = a.iter().chain(b).chain(c).cloned().collect();
                let lacking: Model =
                    a.iter().filter(|member| !b.contains(*member) && !c.contains(*member)).cloned().collect();
                assert_eq!(model_of(&intersection_of(&borrowed, &key, &LIMITS)), common, "{chosen:?}");
                assert_eq!(model_of(&union_of(&borrowed, &key, &LIMITS)), together, "{chosen:?}");
                assert_eq!(model_of(&difference_of(borrowed[0], &borrowed[1..], &key, &LIMITS)), lacking, "{chosen:?}");
                let mut shown = Model::new();
                difference(borrowed[0], &borrowed[1..], &key, &LIMITS, |member| assert!(shown.insert(member.to_vec())));
                assert_eq!(shown, lacking, "{chosen:?}");
                for members_max in [0, 1, 5, usize::MAX] {
                    let mut shown = 0;
                    let counted = intersection(&borrowed, members_max, &key, |_| shown += 1);
                    assert_eq!((counted, shown), (common.len().min(members_max), common.len().min(members_max)));
                }
            }
        }
    }
}

#[test]
fn results_have_the_form_that_suits_them() {
    let key = hash_key(1);
    let (table, integers) = (set_of(numbers(0..100).chain(words(0..1_000))), set_of(numbers(0..40)));
    let copy = table.clone();
    let parts = [0, 30, 60, 90].map(|from| set_of(words(from..from + 30)));
    let taken_out = difference_of(&set_of(words(0..150)), &parts.each_ref(), &key, &LIMITS);
    let cases = [
        (
            "integers of two tables",
            intersection_of(&[&set_of(numbers(0..600)), &set_of(numbers(590..1_200))], &key, &LIMITS),
            "intset",
        ),
        ("integers in a table", intersection_of(&[&table, &integers], &key, &LIMITS), "intset"),
        ("all of two tables", intersection_of(&[&table, &copy], &key, &LIMITS), "hashtable"),
        ("words of two", intersection_of(&[&table, &set_of(words(3..6))], &key, &LIMITS), "listpack"),
        ("a union of integers", union_of(&[&integers, &set_of(numbers(90..100))], &key, &LIMITS), "intset"),
        ("a union with words", union_of(&[&integers, &set_of(words(0..2))], &key, &LIMITS), "listpack"),
        ("a union with a table", union_of(&[&integers, &table], &key, &LIMITS), "hashtable"),
        ("few that others lack", difference_of(&integers, &[&set_of(words(0..2))], &key, &LIMITS), "intset"),
        ("looked up in others", difference_of(&table, &[&set_of(words(0..1_000)), &integers], &key, &LIMITS), "intset"),
        ("taken out of a copy", taken_out, "hashtable"),
    ];
    for (name, set, expected) in cases {
        assert_eq!(set.encoding(), expected, "{name}");
    }
}
