//! Random clusters, and what has to hold while their steps are done and at the end.

use super::*;
use crate::bench::load::Dice;

/// Batches after which there has to be an end.
const BATCHES_MAX: usize = 40;
const SEEDS: u64 = 50;
/// Slots that go together, so that pictures are drawn quickly.
const RUN: u16 = 256;

fn server_of(letter: usize) -> char {
    char::from(b'a' + u8::try_from(letter).unwrap())
}

fn name_of(engines: &[Engine], at: usize) -> Option<String> {
    Some(engines[at].name.clone())
}

fn shuffle(engines: &mut [Engine], dice: &mut Dice) {
    (1..engines.len()).rev().for_each(|at| engines.swap(at, dice.below(at + 1)));
}

fn kill(engines: &mut [Engine], server: &str) {
    let lost: Vec<usize> = (0..engines.len()).filter(|at| engines[*at].server() == server).collect();
    lost.iter().for_each(|at| (engines[*at].is_reached, engines[*at].is_linked) = (false, false));
    for at in lost {
        let name = name_of(engines, at);
        let is_heir = |other: &Engine| other.primary == name && other.is_reached && other.is_linked;
        let Some(heir) = engines.iter().position(is_heir) else { continue };
        let heir_name = name_of(engines, heir);
        engines[heir].slots = core::mem::take(&mut engines[at].slots);
        engines.iter_mut().filter(|other| other.primary == name).for_each(|other| other.primary = heir_name.clone());
        (engines[heir].primary, engines[heir].is_linked) = (None, false);
        engines[at].primary = heir_name;
    }
}

fn forget(engines: &mut Vec<Engine>, server: &str) {
    let names: Vec<String> =
        engines.iter().filter(|engine| engine.server() == server).map(|one| one.name.clone()).collect();
    engines.retain(|engine| engine.server() != server);
    // A group without a primary: its replicas follow nobody.
    let is_gone = |engine: &&mut Engine| engine.primary.as_ref().is_some_and(|name| names.contains(name));
    engines.iter_mut().filter(is_gone).for_each(|engine| (engine.primary, engine.is_linked) = (None, false));
    tell_seconds(engines);
}

/// A cluster with a past: servers came, died, came back and were forgotten, and not every rebalance went to its end.
fn with_a_past(dice: &mut Dice) -> Vec<Engine> {
    let mut servers = 1 + dice.below(4);
    let zone = |dice: &mut Dice| ["", "", "x", "y"][dice.below(4)];
    let mut engines: Vec<Engine> = (0..servers).flat_map(|at| fresh(&[(server_of(at), zone(dice))])).collect();
    shuffle(&mut engines, dice);
    if dice.below(8) > 0 {
        settle_checked(&mut engines);
    }
    for _ in 0..dice.below(8) {
        let living = |engines: &[Engine], is_reached| -> Vec<String> {
            let names = engines.iter().filter(|engine| engine.is_reached == is_reached);
            names.map(|engine| engine.server().to_owned()).collect()
        };
        let (up, away) = (living(&engines, true), living(&engines, false));
        match dice.below(6) {
            0 if servers < 9 => {
                engines.extend(fresh(&[(server_of(servers), zone(dice))]));
                servers += 1;
                shuffle(&mut engines, dice);
            }
            1 if up.len() > 2 => kill(&mut engines, &up[dice.below(up.len())]),
            2 if !away.is_empty() => {
                let back = &away[dice.below(away.len())];
                let is_linked = dice.below(2) > 0;
                for engine in engines.iter_mut().filter(|engine| engine.server() == back) {
                    (engine.is_reached, engine.is_linked) = (true, is_linked && engine.primary.is_some());
                }
            }
            3 if !away.is_empty() => forget(&mut engines, &away[dice.below(away.len())]),
            _ => {
                for _ in 0..dice.below(6) {
                    let steps = next(&engines);
                    let count = dice.below(steps.len() + 1);
                    act_checked(&mut engines, &steps[..count], dice.below(2) > 0);
                }
            }
        }
        tell_seconds(&mut engines);
    }
    engines
}

/// Any picture at all: slots, roles and deaths by chance.
fn by_chance(dice: &mut Dice) -> Vec<Engine> {
    let mut engines: Vec<Engine> = (0..2 + dice.below(5)).flat_map(|at| fresh(&[(server_of(at), NO_ZONE)])).collect();
    shuffle(&mut engines, dice);
    let roles: Vec<usize> = engines.iter().map(|_| dice.below(4)).collect();
    let primaries: Vec<usize> = (0..engines.len()).filter(|at| roles[*at] > 0).collect();
    let owners: Vec<usize> = primaries.iter().copied().filter(|at| roles[*at] > 1).collect();
    for run in (0..SLOTS).step_by(usize::from(RUN)) {
        if !owners.is_empty() && dice.below(16) > 0 {
            engines[owners[dice.below(owners.len())]].slots.extend(run..run + RUN);
        }
    }
    for at in (0..engines.len()).filter(|at| roles[*at] == 0) {
        if primaries.is_empty() {
            break;
        }
        let primary = primaries[dice.below(primaries.len())];
        if !is_beside(&engines, at, primary) {
            engines[at].primary = name_of(&engines, primary);
            engines[at].is_linked = dice.below(4) > 0;
        }
    }
    if dice.below(2) > 0 {
        let server = engines[dice.below(engines.len())].server().to_owned();
        kill(&mut engines, &server);
    }
    engines
}

/// Whether that engine and one of the group are of one server.
fn is_beside(engines: &[Engine], at: usize, primary: usize) -> bool {
    let name = name_of(engines, primary);
    let mut group = engines.iter().filter(|other| other.name == engines[primary].name || other.primary == name);
    group.any(|other| other.server() == engines[at].server())
}

fn living_copies(engines: &[Engine], primary: usize) -> Vec<usize> {
    let name = name_of(engines, primary);
    (0..engines.len()).filter(|at| engines[*at].primary == name && engines[*at].is_reached).collect()
}

/// Primaries that serve slots.
fn serving(engines: &[Engine]) -> Vec<usize> {
    let serves = |engine: &Engine| engine.is_reached && engine.primary.is_none() && !engine.slots.is_empty();
    (0..engines.len()).filter(|at| serves(&engines[*at])).collect()
}

/// Nobody needs what this engine has.
fn may_leave(engines: &[Engine], at: usize) {
    let Some(name) = &engines[at].primary else {
        assert!(
            engines[at].slots.is_empty() && living_copies(engines, at).is_empty(),
            "{} is needed",
            engines[at].place
        );
        return;
    };
    let primary = engines.iter().position(|engine| engine.name == *name).expect("nobody leaves whom we do not know");
    if !engines[primary].slots.is_empty() {
        let others = living_copies(engines, primary);
        let is_kept =
            engines[primary].is_reached && others.iter().any(|other| *other != at && engines[*other].is_linked);
        assert!(is_kept, "{} has the last copy of what {} has", engines[at].place, engines[primary].place);
    }
}

/// Does a batch in order. Copies are there at its end, or if it is broken off perhaps not.
fn act_checked(engines: &mut [Engine], steps: &[Step], is_ended: bool) {
    let evens_out = |step: &Step| matches!(step, Step::Migrate { .. });
    if steps.iter().any(evens_out) {
        let is_free = |at: &usize| {
            let engine = &engines[*at];
            engine.is_reached
                && engine.primary.is_none()
                && engine.slots.is_empty()
                && living_copies(engines, *at).is_empty()
        };
        for primary in serving(engines).into_iter().filter(|at| living_copies(engines, *at).is_empty()) {
            let helper = (0..engines.len()).filter(is_free).find(|at| !is_beside(engines, *at, primary));
            assert_eq!(helper, None, "it could keep a copy of {}", engines[primary].place);
        }
    }
    let mut waiting = Vec::new();
    for step in steps {
        match step {
            Step::Follow { replica, primary } => {
                may_leave(engines, *replica);
                assert!(engines[*replica].is_reached && engines[*primary].is_reached);
                assert!(engines[*primary].primary.is_none() && !is_beside(engines, *replica, *primary));
            }
            Step::Detach { replica } => may_leave(engines, *replica),
            Step::GiveBack { replica } => assert!(engines[*replica].is_linked && engines[*replica].is_reached),
            _ => {}
        }
        act(engines, core::slice::from_ref(step));
        if let Step::Follow { replica, .. } = step {
            engines[*replica].is_linked = false;
            waiting.push(*replica);
        }
    }
    waiting.iter().filter(|_| is_ended).for_each(|at| engines[*at].is_linked = true);
}

fn settle_checked(engines: &mut [Engine]) -> Vec<Step> {
    let mut all = Vec::new();
    for _ in 0..BATCHES_MAX {
        let steps = next(engines);
        if steps.is_empty() {
            return all;
        }
        act_checked(engines, &steps, true);
        all.extend(steps);
    }
    panic!("there is no end to it: {:?}", next(engines));
}

/// It may have the last copy of what an engine that is away serves.
fn waits(engines: &[Engine], at: usize) -> bool {
    let is_away = |other: &Engine| Some(&other.name) == engines[at].primary.as_ref() && !other.is_reached;
    engines.iter().any(|other| is_away(other) && !other.slots.is_empty())
}

/// For how many of these primaries at once there could be a copy on another server, each at an engine of its own.
fn copies_possible(engines: &[Engine], primaries: &[usize]) -> usize {
    fn find(
        engines: &[Engine],
        primaries: &[usize],
        group: usize,
        seen: &mut [bool],
        held: &mut [Option<usize>],
    ) -> bool {
        for at in 0..engines.len() {
            let fits = engines[at].is_reached
                && !waits(engines, at)
                && !primaries.contains(&at)
                && engines[at].server() != engines[primaries[group]].server();
            if !fits || core::mem::replace(&mut seen[at], true) {
                continue;
            }
            if held[at].is_none_or(|other| find(engines, primaries, other, seen, held)) {
                held[at] = Some(group);
                return true;
            }
        }
        false
    }
    let mut held = vec![None; engines.len()];
    let has = |group: &usize| find(engines, primaries, *group, &mut vec![false; engines.len()], &mut held);
    (0..primaries.len()).filter(has).count()
}

fn check_end(engines: &[Engine]) {
    let _told = Told("the end of it; batches at most", 40, engines);
    let serving = serving(engines);
    let owned: usize = engines.iter().map(|engine| engine.slots.len()).sum();
    assert_eq!(owned, usize::from(SLOTS), "every slot has an owner");
    let with_copy = serving.iter().filter(|at| !living_copies(engines, **at).is_empty()).count();
    assert_eq!(with_copy, copies_possible(engines, &serving), "groups with a second copy, and how many there could be");
    let counts: Vec<usize> = serving.iter().map(|at| engines[*at].slots.len()).collect();
    let (least, most) = (counts.iter().min(), counts.iter().max());
    assert!(most.zip(least).is_none_or(|(most, least)| most - least <= 1), "shares are even: {counts:?}");
    if engines.iter().all(|engine| engine.is_reached) && engines.len() != 4 {
        for engine in engines {
            assert_eq!(
                engine.is_second,
                engine.slots.is_empty(),
                "all are there, and {} has slots or not",
                engine.place
            );
        }
    }
}

/// Where it went wrong, with the picture.
struct Told<'e>(&'e str, u64, &'e [Engine]);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{} {}:", self.0, self.1);
            show(self.2);
        }
    }
}

fn show(engines: &[Engine]) {
    for engine in engines {
        let primary = engines.iter().find(|other| Some(&other.name) == engine.primary.as_ref());
        let follows = primary.map_or("-", |primary| &primary.place);
        let Engine { place, slots, is_reached, is_linked, .. } = engine;
        eprintln!("{place} follows {follows}, {} slots, reached {is_reached}, linked {is_linked}", slots.len());
    }
}

fn try_seed(seed: u64) {
    let mut dice = Dice::new(seed);
    let drawn = if seed.is_multiple_of(2) { by_chance(&mut dice) } else { with_a_past(&mut dice) };
    let _told = Told("seed", seed, &drawn);
    let mut engines = drawn.clone();
    settle_checked(&mut engines);
    check_end(&engines);
    // What is away is lost for good.
    let away: Vec<String> = engines.iter().filter(|one| !one.is_reached).map(|one| one.server().to_owned()).collect();
    away.iter().for_each(|server| forget(&mut engines, server));
    settle_checked(&mut engines);
    check_end(&engines);
}

#[test]
fn every_cluster_ends_with_all_slots_served_copied_and_even() {
    (1..=SEEDS).for_each(try_seed);
}
