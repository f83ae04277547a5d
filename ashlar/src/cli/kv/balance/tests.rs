//! From pictures to steps, and to where they lead.

mod worlds;

use super::*;

/// The two engines of each of these servers, without slots; the letter of a server, and its zone.
fn fresh(servers: &[(char, &str)]) -> Vec<Engine> {
    let engine = |server: char, zone: &str, seat: usize| Engine {
        name: format!("{}0000000{seat}", server.to_string().repeat(SERVER_LEN)),
        place: format!("{server}{seat}"),
        zone: zone.into(),
        is_reached: true,
        ..Engine::default()
    };
    let mut engines: Vec<Engine> =
        servers.iter().flat_map(|(server, zone)| [engine(*server, zone, 0), engine(*server, zone, 1)]).collect();
    tell_seconds(&mut engines);
    engines
}

/// What the steps make of the picture, which has to allow them.
fn act(engines: &mut [Engine], steps: &[Step]) {
    for step in steps {
        match step {
            Step::Claim { slots, .. } => {
                for slot in slots {
                    assert!(engines.iter().all(|other| !other.slots.contains(slot)), "{slot} is owned");
                }
            }
            Step::Follow { replica, primary } => assert_ne!(engines[*replica].server(), engines[*primary].server()),
            Step::Migrate { slots, from, to } => {
                assert!(slots.iter().all(|slot| engines[*from].slots.contains(slot)));
                assert!(slots.iter().all(|slot| !engines[*to].strays.contains_key(slot)), "its keys would be lost");
            }
            Step::Move { slot, from, .. } => assert!(engines[*from].slots.contains(slot)),
            Step::GiveBack { .. } | Step::Settle { .. } | Step::Await { .. } | Step::Detach { .. } => {}
        }
        apply(engines, core::slice::from_ref(step));
    }
}

/// Does what is to be done until nothing is left; the steps.
fn settle(engines: &mut [Engine]) -> Vec<Step> {
    let mut all = Vec::new();
    for _ in 0..20 {
        let steps = next(engines);
        if steps.is_empty() {
            return all;
        }
        act(engines, &steps);
        all.extend(steps);
    }
    panic!("there is no end to it: {:?}", next(engines).first());
}

fn at(engines: &[Engine], place: &str) -> usize {
    engines.iter().position(|engine| engine.place == place).unwrap()
}

/// Whom each second engine follows, by places.
fn followed(engines: &[Engine]) -> Vec<(&str, &str)> {
    let place = |name: &String| engines.iter().find(|other| other.name == *name).map_or("", |other| &other.place);
    engines.iter().filter_map(|engine| Some((engine.place.as_str(), place(engine.primary.as_ref()?)))).collect()
}

fn counts(engines: &[Engine]) -> Vec<usize> {
    engines.iter().filter(|engine| engine.primary.is_none()).map(|engine| engine.slots.len()).collect()
}

const NO_ZONE: &str = "";

fn three() -> Vec<Engine> {
    let mut engines = fresh(&[('a', NO_ZONE), ('b', NO_ZONE), ('c', NO_ZONE)]);
    settle(&mut engines);
    engines
}

/// A server is lost, and replicas of it take over.
fn lose(engines: &mut [Engine], server: char) {
    let lost: Vec<usize> = (0..engines.len()).filter(|at| engines[*at].place.starts_with(server)).collect();
    lost.iter().for_each(|at| (engines[*at].is_reached, engines[*at].is_linked) = (false, false));
    for at in lost {
        let name = engines[at].name.clone();
        let heir =
            (0..engines.len()).find(|at| engines[*at].primary.as_ref() == Some(&name) && engines[*at].is_reached);
        if let Some(heir) = heir {
            let heir_name = engines[heir].name.clone();
            engines[heir].slots = core::mem::take(&mut engines[at].slots);
            (engines[heir].primary, engines[at].primary) = (None, Some(heir_name.clone()));
            engines.iter_mut().filter(|other| other.primary.as_ref() == Some(&name)).for_each(|other| {
                other.primary = Some(heir_name.clone());
            });
        }
    }
}

#[test]
fn a_new_cluster_has_all_slots_and_each_primary_a_replica_elsewhere() {
    let engines = three();
    assert_eq!(counts(&engines), [5_462, 5_461, 5_461]);
    assert_eq!(followed(&engines), [("a1", "b0"), ("b1", "c0"), ("c1", "a0")]);
    assert_eq!(next(&engines), []);
    let ranges: Vec<_> = engines.iter().filter_map(|engine| engine.slots.first().zip(engine.slots.last())).collect();
    assert_eq!(ranges, [(&0, &5_461), (&5_462, &10_922), (&10_923, &16_383)], "each has one run");
}

#[test]
fn one_server_has_all_slots_and_two_keep_each_others_replicas() {
    let mut engines = fresh(&[('a', NO_ZONE)]);
    settle(&mut engines);
    assert_eq!((counts(&engines), followed(&engines)), (vec![16_384, 0], vec![]));
    let mut engines = fresh(&[('a', NO_ZONE), ('b', NO_ZONE)]);
    settle(&mut engines);
    assert_eq!((counts(&engines), followed(&engines)), (vec![8_192, 8_192], vec![("a1", "b0"), ("b1", "a0")]));
}

#[test]
fn replicas_are_in_other_zones() {
    for zones in [["x", "x", "y", "y"], ["x", "y", "x", "y"], ["x", "y", "z", "x"]] {
        let servers: Vec<(char, &str)> = ['a', 'b', 'c', 'd'].into_iter().zip(zones).collect();
        let mut engines = fresh(&servers);
        settle(&mut engines);
        let zone = |place: &str| &engines[at(&engines, place)].zone;
        let pairs = followed(&engines);
        assert!(pairs.iter().all(|(one, other)| zone(one) != zone(other)), "{zones:?}: {pairs:?}");
        let primaries: BTreeSet<&str> = pairs.iter().map(|(_, primary)| *primary).collect();
        assert_eq!(primaries.len(), 4, "{zones:?}: {pairs:?}");
    }
}

#[test]
fn nothing_moves_while_a_server_is_away_and_roles_go_back_when_it_returns() {
    let mut engines = three();
    lose(&mut engines, 'b');
    assert_eq!(next(&engines), []);
    for place in ["b0", "b1"] {
        let at = at(&engines, place);
        (engines[at].is_reached, engines[at].is_linked) = (true, true);
    }
    let replica = at(&engines, "b0");
    assert_eq!(settle(&mut engines), [Step::GiveBack { replica }]);
    assert_eq!(followed(&engines), followed(&three()));
}

#[test]
fn slots_of_a_server_that_was_forgotten_go_to_the_others() {
    let mut engines = three();
    lose(&mut engines, 'b');
    engines.retain(|engine| !engine.place.starts_with('b'));
    settle(&mut engines);
    assert_eq!((counts(&engines), followed(&engines)), (vec![8_192, 8_192], vec![("a1", "c0"), ("c1", "a0")]));
}

#[test]
fn a_server_that_comes_gets_slots_and_a_replica() {
    let mut engines = three();
    engines.extend(fresh(&[('d', NO_ZONE)]));
    tell_seconds(&mut engines);
    let steps = settle(&mut engines);
    let moved = steps.iter().map(|step| if let Step::Migrate { slots, .. } = step { slots.len() } else { 0 });
    assert_eq!((counts(&engines), moved.sum::<usize>()), (vec![4_096; 4], 4_096), "all of them whole");
    let pairs = followed(&engines);
    let primaries: BTreeSet<&str> = pairs.iter().map(|(_, primary)| *primary).collect();
    assert_eq!((pairs.len(), primaries.len()), (4, 4), "{pairs:?}");
}

#[test]
fn what_was_broken_off_is_finished() {
    let mut engines = three();
    let (a, b) = (at(&engines, "a0"), at(&engines, "b0"));
    let (a_name, b_name) = (engines[a].name.clone(), engines[b].name.clone());
    engines[a].leaving = vec![(0, b_name), (1, "gone".into())];
    engines[b].coming = vec![(0, a_name.clone()), (2, a_name)];
    let expected = [
        Step::Move { slot: 0, from: a, to: b },
        Step::Settle { slot: 1, engine: a },
        Step::Settle { slot: 2, engine: b },
    ];
    assert_eq!(next(&engines), expected);
    settle(&mut engines);
    assert_eq!(counts(&engines).iter().sum::<usize>(), 16_384);
}

#[test]
fn slots_go_where_their_keys_are() {
    let mut engines = fresh(&[('a', NO_ZONE), ('b', NO_ZONE)]);
    let (a, b) = (at(&engines, "a0"), at(&engines, "b0"));
    engines[a].strays = [(9_000, 1), (9_001, 5)].into();
    engines[b].strays = [(9_001, 4), (3, 1)].into();
    let steps = next(&engines);
    act(&mut engines, &steps);
    assert!(engines[a].slots.contains(&9_000) && engines[a].slots.contains(&9_001) && engines[b].slots.contains(&3));
    assert_eq!(counts(&engines), [8_192, 0, 8_192, 0]);
    let steps = settle(&mut engines);
    assert!(steps.contains(&Step::Move { slot: 9_001, from: a, to: b }), "the keys at both ends come together");
    assert!(engines.iter().all(|engine| engine.strays.is_empty()));
}

#[test]
fn engines_that_are_alone_on_their_servers_are_first_ones() {
    let mut engines = fresh(&[('a', NO_ZONE), ('b', NO_ZONE)]);
    engines.retain(|engine| engine.place != "b0");
    tell_seconds(&mut engines);
    settle(&mut engines);
    assert_eq!(counts(&engines), [8_192, 8_192]);
    assert_eq!(followed(&engines), [("a1", "b1")]);
}

#[test]
fn a_shard_with_a_majority_gives_and_takes_slots_key_by_key() {
    let mut engines = three();
    let giver = at(&engines, "b0");
    engines[giver].is_quorum = true;
    engines.extend(fresh(&[('d', NO_ZONE)]));
    tell_seconds(&mut engines);
    let steps = settle(&mut engines);
    assert_eq!(counts(&engines), vec![4_096; 4]);
    let by_key = steps.iter().filter(|step| matches!(step, Step::Move { from, .. } if *from == giver)).count();
    assert_eq!(by_key, 1_365);
    assert!(steps.iter().all(|step| !matches!(step, Step::Migrate { from, .. } if *from == giver)));
}

/// Slots of primaries that have no living replica.
fn unsafe_slots(engines: &[Engine]) -> usize {
    let is_alone = |engine: &&Engine| {
        let mut others = engines.iter();
        engine.primary.is_none()
            && !others.any(|other| other.primary.as_ref() == Some(&engine.name) && other.is_reached)
    };
    engines.iter().filter(is_alone).map(|engine| engine.slots.len()).sum()
}

#[test]
fn second_copies_come_back_before_slots_are_evened_out() {
    let mut engines = three();
    lose(&mut engines, 'b');
    engines.retain(|engine| !engine.place.starts_with('b'));
    assert!(unsafe_slots(&engines) > 10_000);
    engines.extend(fresh(&[('d', NO_ZONE)]));
    tell_seconds(&mut engines);
    let (stand_in, alone) = (at(&engines, "a1"), at(&engines, "c0"));
    let (new, second) = (at(&engines, "d0"), at(&engines, "d1"));
    let copies = [Step::Follow { replica: new, primary: stand_in }, Step::Follow { replica: second, primary: alone }];
    assert_eq!(next(&engines), copies, "both at once");
    act(&mut engines, &copies);
    assert_eq!(unsafe_slots(&engines), 0);
    assert_eq!(next(&engines), [Step::GiveBack { replica: new }], "and then the two swap roles");
    let steps = settle(&mut engines);
    assert_eq!(steps, [Step::GiveBack { replica: new }], "no slot has to move");
    assert_eq!((counts(&engines), unsafe_slots(&engines)), (vec![5_462, 5_461, 5_461], 0));
    assert_eq!(followed(&engines), [("a1", "d0"), ("c1", "a0"), ("d1", "c0")]);
}

#[test]
fn no_slot_moves_before_a_copy_that_is_on_its_way_is_there() {
    let mut engines = three();
    engines.extend(fresh(&[('d', NO_ZONE)]));
    tell_seconds(&mut engines);
    let mut steps = next(&engines);
    while matches!(steps[..], [Step::Follow { .. }, ..]) {
        act(&mut engines, &steps);
        steps = next(&engines);
    }
    let replica = (0..engines.len()).find(|at| engines[*at].primary.is_some()).unwrap();
    engines[replica].is_linked = false;
    assert_eq!(next(&engines), [Step::Await { replica }], "rebalance was broken off while it waited for that");
    act(&mut engines, &[Step::Await { replica }]);
    assert!(matches!(next(&engines)[..], [Step::Migrate { .. }, ..]));
}

#[test]
fn two_lost_servers_are_replaced_by_two_empty_ones() {
    let mut engines = fresh(&[('a', NO_ZONE), ('b', NO_ZONE), ('c', NO_ZONE), ('d', NO_ZONE)]);
    settle(&mut engines);
    // Each follows the next one, so these two do not keep each other's copies.
    for server in ['a', 'c'] {
        lose(&mut engines, server);
    }
    engines.retain(|engine| !engine.place.starts_with(['a', 'c']));
    engines.extend(fresh(&[('e', NO_ZONE), ('f', NO_ZONE)]));
    tell_seconds(&mut engines);
    let steps = settle(&mut engines);
    assert!(steps.iter().all(|step| !matches!(step, Step::Migrate { .. } | Step::Move { .. })), "{steps:?}");
    assert_eq!((counts(&engines), unsafe_slots(&engines)), (vec![4_096; 4], 0));
}

#[test]
fn slots_and_replicas_are_in_the_order_of_the_picture() {
    let mut engines = fresh(&[('c', NO_ZONE), ('a', NO_ZONE), ('b', NO_ZONE)]);
    settle(&mut engines);
    let first = |place: &str| engines[at(&engines, place)].slots.first().copied();
    assert_eq!(["c0", "a0", "b0"].map(first), [Some(0), Some(5_462), Some(10_923)]);
    assert_eq!(followed(&engines), [("c1", "a0"), ("a1", "b0"), ("b1", "c0")]);
}

/// Four servers of which the second was lost and the fourth came, empty, before it was forgotten.
fn one_lost_and_one_new() -> Vec<Engine> {
    let mut engines = three();
    lose(&mut engines, 'b');
    engines.extend(fresh(&[('d', NO_ZONE)]));
    tell_seconds(&mut engines);
    engines
}

#[test]
fn both_engines_of_a_new_server_keep_copies_that_an_absent_one_has_left() {
    let mut engines = one_lost_and_one_new();
    let [stand_in, alone, new, second] = ["a1", "c0", "d0", "d1"].map(|place| at(&engines, place));
    let copies = [Step::Follow { replica: new, primary: stand_in }, Step::Follow { replica: second, primary: alone }];
    assert_eq!(next(&engines), copies);
    assert_eq!(settle(&mut engines)[2..], [Step::GiveBack { replica: new }], "no slot has to move");
    assert_eq!(unsafe_slots(&engines), 0);
    // It is forgotten: all is well.
    let mut without = engines.clone();
    without.retain(|engine| !engine.place.starts_with('b'));
    assert_eq!(next(&without), []);
    // It is back, and has a part again.
    for place in ["b0", "b1"] {
        let at = at(&engines, place);
        (engines[at].is_reached, engines[at].is_linked) = (true, true);
    }
    settle(&mut engines);
    let firsts = engines.iter().filter(|engine| !engine.is_second).map(|engine| engine.slots.len());
    assert_eq!((firsts.collect::<Vec<_>>(), unsafe_slots(&engines)), (vec![4_096; 4], 0));
}

/// What earlier versions left: the stand-in `a1` is empty, and the only thing that `d1` follows.
fn emptied_stand_in(order: &[&str]) -> Vec<Engine> {
    let mut engines = fresh(&[('a', NO_ZONE), ('c', NO_ZONE), ('d', NO_ZONE)]);
    for (place, primary, slots) in [
        ("a0", None, 0..5_462),
        ("c0", None, 5_462..10_923),
        ("d0", None, 10_923..16_384),
        ("c1", Some("a0"), 0..0),
        ("d1", Some("a1"), 0..0),
    ] {
        let primary = primary.map(|primary| engines[at(&engines, primary)].name.clone());
        let at = at(&engines, place);
        (engines[at].is_linked, engines[at].primary, engines[at].slots) = (primary.is_some(), primary, slots.collect());
    }
    engines.sort_by_key(|engine| order.iter().position(|place| *place == engine.place));
    engines
}

#[test]
fn a_primary_without_slots_is_no_group_and_it_and_its_replica_become_free() {
    for order in [
        ["a0", "a1", "c0", "c1", "d0", "d1"],
        ["d0", "d1", "c0", "c1", "a0", "a1"],
        ["c1", "a1", "d1", "c0", "a0", "d0"],
    ] {
        let mut engines = emptied_stand_in(&order);
        let counts_before = counts(&engines).into_iter().filter(|count| *count > 0).collect::<Vec<_>>();
        let steps = settle(&mut engines);
        assert!(steps.iter().all(|step| matches!(step, Step::Follow { .. })), "{order:?}: {steps:?}");
        assert_eq!((unsafe_slots(&engines), counts(&engines)), (0, counts_before), "{order:?}");
    }
}

#[test]
fn a_fifth_server_mends_what_an_emptied_stand_in_has_left() {
    let mut engines = emptied_stand_in(&["a0", "a1", "c0", "c1", "d0", "d1"]);
    engines.extend(fresh(&[('e', NO_ZONE)]));
    tell_seconds(&mut engines);
    settle(&mut engines);
    assert_eq!((counts(&engines), unsafe_slots(&engines)), (vec![4_096; 4], 0));
}

#[test]
fn a_free_first_engine_keeps_a_copy_before_it_gets_slots() {
    let mut engines = three();
    lose(&mut engines, 'b');
    // As an earlier version did it: the new server's second engine follows the stand-in.
    engines.extend(fresh(&[('d', NO_ZONE)]));
    tell_seconds(&mut engines);
    let [stand_in, alone, new, second] = ["a1", "c0", "d0", "d1"].map(|place| at(&engines, place));
    act(&mut engines, &[Step::Follow { replica: second, primary: stand_in }]);
    assert_eq!(next(&engines), [Step::Follow { replica: new, primary: alone }]);
    settle(&mut engines);
    assert_eq!(unsafe_slots(&engines), 0);
}
