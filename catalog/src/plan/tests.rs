//! What planners propose, and that the state takes it.

use std::collections::BTreeSet;

use arbtest::arbtest;
use ashlar_placement::domains::Conflict;
use ashlar_placement::map::{GroupId, PgId, SetId, Shape};
use ashlar_wire::id::{DriveId, ServerId};

use super::departure::plan_departure;
use super::drives::{plan_given_up, plan_release};
use super::failure::{plan_failure, plan_learners, plan_promotion, plan_return, plan_settled, plan_witnesses};
use super::placement::{plan_reshaped, plan_set, plan_target};
use super::voters::plan_voters;
use crate::change::Change;
use crate::error::{Refusal, Subject};
use crate::sample::{Sample, drive, drive_id, group, server, server_id};
use crate::server::{DriveClass, DriveState, Server, ServerState};
use crate::set::{Copies, PG_STEPS_MAX, PgConfig, PgStep, Settled};
use crate::state::State;

fn servers(numbers: &[u32]) -> BTreeSet<ServerId> {
    numbers.iter().copied().map(server_id).collect()
}

fn configs(state: &State) -> Vec<PgConfig> {
    state.pgs_of(SetId(1)).map(|(_, config)| config).collect()
}

fn server_of(state: &State, drive: DriveId) -> ServerId {
    state.drive(drive).unwrap().server
}

#[test]
fn a_failed_server_leaves_every_acting_list() {
    let mut sample = Sample::with_set(5, 600);
    let failed = servers(&[1]);
    let before = configs(&sample.state);
    let changes = plan_failure(&sample.state, &failed);
    assert!(changes.len() > 1, "more than one batch");
    for change in changes {
        let Change::ConfigurePgs(steps) = &change else { panic!("{change:?}") };
        assert!(steps.len() <= PG_STEPS_MAX);
        sample.must(change);
    }
    for (before, after) in before.iter().zip(configs(&sample.state)) {
        let held = before.acting.contains(&drive_id(1));
        assert!(!after.acting.contains(&drive_id(1)));
        assert_eq!(after.acting.len(), 3 - usize::from(held));
        assert_eq!(after.epoch.0, 1 + u64::from(held));
        let primary = if before.primary == drive_id(1) { before.acting[1] } else { before.primary };
        assert_eq!(after.primary, primary, "the next acting member, and only if it must be another");
    }
    assert_eq!(plan_failure(&sample.state, &failed), [], "done is done");
}

/// Plans departures and takes the steps until nothing comes; how often that was.
fn depart(sample: &mut Sample, departing: &[u32], alive: &[u32]) -> usize {
    for round in 0.. {
        let steps = plan_departure(&sample.state, &servers(departing), &servers(alive));
        if steps.is_empty() {
            return round;
        }
        for steps in steps.chunks(PG_STEPS_MAX) {
            sample.must(Change::ConfigurePgs(steps.to_vec()));
        }
    }
    unreachable!()
}

#[test]
fn a_server_that_departs_is_first_no_primary_and_then_no_member() {
    let mut sample = Sample::with_set(5, 600);
    let before = configs(&sample.state);
    let steps = plan_departure(&sample.state, &servers(&[1]), &servers(&[0, 1, 2, 3, 4]));
    for step in &steps {
        let old = &before[step.group.pg.0 as usize];
        let leads = old.primary == drive_id(1);
        assert_eq!(step.acting == old.acting, leads, "whoever led stays for an epoch: {step:?}");
        assert!(step.primary != drive_id(1) && (leads || step.primary == old.primary), "{step:?}");
    }
    assert_eq!(steps.len(), before.iter().filter(|config| config.acting.contains(&drive_id(1))).count());
    assert_eq!(depart(&mut sample, &[1], &[0, 1, 2, 3, 4]), 2);
    for (before, after) in before.iter().zip(configs(&sample.state)) {
        let mut rest = before.acting.clone();
        rest.retain(|drive| *drive != drive_id(1));
        assert_eq!(after.acting, rest);
        let led = u64::from(before.primary == drive_id(1));
        assert_eq!(after.epoch.0, 1 + led + u64::from(rest.len() == 2));
    }
}

#[test]
fn copies_that_writes_need_do_not_depart() {
    let all = [0, 1, 2];
    // Two of three stop: the third leads, and keeps the others, as writes need two.
    let mut sample = Sample::with_set(3, 20);
    assert_eq!(depart(&mut sample, &[0, 1], &all), 1);
    for config in configs(&sample.state) {
        assert_eq!((config.acting.len(), config.primary), (3, drive_id(2)));
    }
    // All stop, or nobody else is there.
    let mut sample = Sample::with_set(3, 20);
    assert_eq!((depart(&mut sample, &all, &all), depart(&mut sample, &[0], &[0])), (0, 0));
    // A copy that is away counts for nothing.
    assert_eq!(depart(&mut sample, &[0], &[0, 1]), 1);
    for config in configs(&sample.state) {
        assert!(config.acting.len() == 3 && config.primary != drive_id(0), "{config:?}");
    }
    for number in [1, 2] {
        let mut sample = Sample::with_set(3, 20);
        sample.must(Change::SetDriveState { id: drive_id(number), state: DriveState::Missing });
        depart(&mut sample, &[0], &all);
        for config in configs(&sample.state) {
            let led = if config.epoch.0 == 1 { config.acting[0] } else { drive_id(3 - number) };
            assert_eq!((config.acting.len(), config.primary), (3, led), "{config:?}");
        }
    }
}

#[test]
fn a_learner_departs_with_its_server() {
    let mut sample = Sample::with_set(4, 20);
    sample.must_all(plan_failure(&sample.state, &servers(&[3])));
    sample.must_all(plan_learners(&sample.state, &servers(&[3]), 20));
    let fills = |sample: &Sample| configs(&sample.state).iter().filter(|config| !config.learners.is_empty()).count();
    assert!(fills(&sample) > 0);
    assert_eq!((depart(&mut sample, &[3], &[0, 1, 2, 3]), fills(&sample)), (1, 0));
}

#[test]
fn the_last_acting_member_stays() {
    let mut sample = Sample::with_set(3, 20);
    for failed in [&[0][..], &[0, 1], &[0, 1, 2]] {
        let changes = plan_failure(&sample.state, &servers(failed));
        sample.must_all(changes);
    }
    for config in configs(&sample.state) {
        assert_eq!((config.acting, config.primary), (vec![drive_id(2)], drive_id(2)));
    }
}

#[test]
fn of_members_that_fail_together_the_first_that_is_back_goes_on() {
    let mut sample = Sample::with_set(3, 20);
    assert_eq!(plan_failure(&sample.state, &servers(&[0, 1, 2])), [], "each has everything");
    let changes = plan_failure(&sample.state, &servers(&[0, 2]));
    sample.must_all(changes);
    for config in configs(&sample.state) {
        assert_eq!((config.acting, config.primary), (vec![drive_id(1)], drive_id(1)));
    }
    // Those that are given up are not waited for, but for one.
    let mut sample = Sample::with_set(3, 20);
    for number in [0, 1] {
        sample.must(Change::SetDriveState { id: drive_id(number), state: DriveState::Failed });
    }
    let changes = plan_failure(&sample.state, &servers(&[2]));
    sample.must_all(changes);
    assert!(configs(&sample.state).iter().all(|config| config.acting == [drive_id(2)]));
}

/// The acting list, the primary and the learners of group 0 after its servers of these places have failed together.
fn without(sample: &Sample, failed: &[usize]) -> Option<(Vec<DriveId>, DriveId, Vec<DriveId>)> {
    let acting = sample.state.pg(group(1, 0)).unwrap().acting;
    let failed = failed.iter().map(|place| server_of(&sample.state, acting[*place])).collect();
    let changes = plan_failure(&sample.state, &failed);
    let steps = changes.into_iter().flat_map(|change| match change {
        Change::ConfigurePgs(steps) => steps,
        other => panic!("{other:?}"),
    });
    let step = steps.into_iter().find(|step| step.group == group(1, 0));
    step.map(|step| (step.acting, step.primary, step.learners))
}

/// Moves the primary of group 0 to the second of its acting list.
fn move_primary(sample: &mut Sample) -> [DriveId; 3] {
    let config = sample.state.pg(group(1, 0)).unwrap();
    let (acting, primary) = (config.acting.clone(), config.acting[1]);
    let step = PgStep {
        group: group(1, 0),
        expected: config.epoch,
        acting: acting.clone(),
        primary,
        learners: config.learners,
        certified: Vec::new(),
        settled: Settled::No,
    };
    sample.must(Change::ConfigurePgs(vec![step]));
    acting.try_into().unwrap()
}

#[test]
fn an_acting_list_keeps_its_least_number_of_members_and_a_primary_that_is_there() {
    for (acting_min, failed, kept, primary) in [
        (1, &[2][..], &[0, 1][..], 1),
        (1, &[0], &[1, 2], 1),
        (1, &[1], &[0, 2], 0),
        (1, &[1, 2], &[0], 0),
        (2, &[1, 2], &[0, 1], 0),
        (2, &[0, 2], &[0, 1], 1),
        (2, &[0, 1], &[1, 2], 2),
    ] {
        let mut sample = Sample::new();
        for number in 0..3 {
            sample.must(Change::AddServer(server(number)));
            sample.must(Change::AddDrive(drive(number, number)));
        }
        let shape = Shape { pgs: 4, width: 3, conflict: Conflict::Server };
        let copies = Copies { write_min: 2, acting_min };
        sample.must(plan_set(&sample.state, SetId(1), shape, DriveClass::Ssd, copies, &[]).unwrap());
        let acting = move_primary(&mut sample);
        let expected = (kept.iter().map(|place| acting[*place]).collect(), acting[primary], vec![]);
        assert_eq!(without(&sample, failed), Some(expected), "{acting_min}: {failed:?}");
    }
    // Of drives that are all given up, the primary alone stays.
    let mut sample = Sample::with_set(3, 4);
    let acting = move_primary(&mut sample);
    for id in acting {
        sample.must(Change::SetDriveState { id, state: DriveState::Failed });
    }
    assert_eq!(without(&sample, &[]), Some((vec![acting[1]], acting[1], vec![])));
}

#[test]
fn learners_that_fail_leave_and_the_others_stay() {
    let mut sample = Sample::with_set(5, 4);
    let config = sample.state.pg(group(1, 0)).unwrap();
    let outside: Vec<DriveId> = (0..5).map(drive_id).filter(|drive| !config.acting.contains(drive)).collect();
    let PgConfig { epoch: expected, acting, primary, .. } = config;
    let (certified, settled) = (Vec::new(), Settled::No);
    let learners = outside.clone();
    let step = PgStep { group: group(1, 0), expected, acting: acting.clone(), primary, learners, certified, settled };
    sample.must(Change::ConfigurePgs(vec![step]));
    assert_eq!(without(&sample, &[1]), Some((vec![acting[0], acting[2]], primary, outside.clone())));
    sample.must(Change::SetDriveState { id: outside[0], state: DriveState::Missing });
    assert_eq!(without(&sample, &[]), Some((acting, primary, vec![outside[1]])));
}

#[test]
fn a_group_goes_on_without_a_drive_that_is_missing_and_fills_it_when_it_is_back() {
    let mut sample = Sample::with_set(3, 20);
    let is_missing = Change::SetDriveState { id: drive_id(1), state: DriveState::Missing };
    sample.must(is_missing);
    let changes = plan_failure(&sample.state, &BTreeSet::new());
    sample.must_all(changes);
    assert!(configs(&sample.state).iter().all(|config| config.acting.len() == 2 && config.primary != drive_id(1)));
    let all = servers(&[0, 1, 2]);
    assert_eq!(plan_learners(&sample.state, &all, usize::MAX), [], "its server is there, the drive is not");
    assert_eq!(plan_target(&sample.state, SetId(1), &[]), Ok(None), "nothing moves yet");
    sample.must(Change::SetDriveState { id: drive_id(1), state: DriveState::Active });
    let changes = plan_learners(&sample.state, &all, usize::MAX);
    sample.must_all(changes);
    assert!(configs(&sample.state).iter().all(|config| config.learners == [drive_id(1)]));
}

#[test]
fn what_returns_is_filled_and_then_acts() {
    let mut sample = Sample::with_set(5, 40);
    let first = configs(&sample.state);
    let changes = plan_failure(&sample.state, &servers(&[2, 3]));
    sample.must_all(changes);
    let few = plan_return(&sample.state, server_id(2), 3);
    assert!(matches!(&few[..], [Change::ConfigurePgs(steps)] if steps.len() == 3), "{few:?}");
    for number in [2, 3] {
        let changes = plan_return(&sample.state, server_id(number), usize::MAX);
        sample.must_all(changes);
    }
    for (pg, config) in (0..).zip(configs(&sample.state)) {
        assert!(config.learners.iter().all(|drive| config.previous.contains(drive)), "{config:?}");
        if let Some(step) = plan_promotion(&sample.state, group(1, pg), &config.learners) {
            sample.must(Change::ConfigurePgs(vec![step]));
        }
    }
    for (first, last) in first.into_iter().zip(configs(&sample.state)) {
        assert_eq!((first.acting, first.primary), (last.acting, last.primary), "as it was, the primary too");
        assert_eq!((last.learners, last.previous), (vec![], vec![]));
    }
    assert_eq!(plan_learners(&sample.state, &servers(&[0, 1, 2, 3, 4]), usize::MAX), []);
}

#[test]
fn a_new_map_moves_data_and_nothing_else() {
    let mut sample = Sample::with_set(4, 50);
    assert_eq!(plan_target(&sample.state, SetId(1), &[]), Ok(None), "nothing has changed");
    sample.must(Change::AddServer(server(8)));
    sample.must(Change::AddDrive(drive(8, 8)));
    let change = plan_target(&sample.state, SetId(1), &[drive_id(8)]).unwrap().unwrap();
    sample.must(change);
    assert!(configs(&sample.state).iter().all(|config| config.epoch.0 == 1), "a map alone changes no configuration");
    let changes = plan_learners(&sample.state, &servers(&[8]), usize::MAX);
    sample.must_all(changes);
    let moving = configs(&sample.state).iter().filter(|config| config.learners == [drive_id(8)]).count();
    assert!((25..=35).contains(&moving), "three of five drives for each of 50 groups: {moving}");
    for pg in 0..50 {
        let learners = sample.state.pg(group(1, pg)).unwrap().learners;
        let step = plan_promotion(&sample.state, group(1, pg), &learners);
        assert_eq!(step.is_some(), !learners.is_empty());
        sample.must_all(step.map(|step| Change::ConfigurePgs(vec![step])));
    }
    assert!(configs(&sample.state).iter().all(|config| config.acting.len() == 3 && config.learners.is_empty()));
    assert!(plan_promotion(&sample.state, group(1, 0), &[drive_id(0)]).is_none(), "no learner");
}

#[test]
fn sets_are_made_of_what_is_free() {
    let mut sample = Sample::with_set(4, 8);
    let set = sample.state.set(SetId(1)).unwrap().clone();
    let plan = |state: &State| plan_set(state, SetId(2), set.first.shape(), set.class, set.copies, &[]);
    assert!(plan(&sample.state).is_err(), "no drive is free");
    for number in 10..14 {
        sample.must(Change::AddDrive(drive(number, number - 10)));
    }
    sample.must(Change::SetDriveState { id: drive_id(13), state: DriveState::Failed });
    let change = plan(&sample.state).unwrap();
    sample.must(change);
    let of_set: Vec<_> =
        sample.state.drives().filter(|drive| drive.set == Some(SetId(2))).map(|drive| drive.id).collect();
    assert_eq!(of_set, [10, 11, 12].map(drive_id));
}

#[test]
fn a_server_that_is_emptied_gets_nothing() {
    let mut sample = Sample::with_set(4, 50);
    sample.must(Change::SetServerState { id: server_id(3), state: ServerState::Draining });
    let change = plan_target(&sample.state, SetId(1), &[]).unwrap().unwrap();
    sample.must(change);
    let all = servers(&[0, 1, 2, 3]);
    let changes = plan_learners(&sample.state, &all, usize::MAX);
    sample.must_all(changes);
    for pg in 0..50 {
        let learners = sample.state.pg(group(1, pg)).unwrap().learners;
        assert!(learners.iter().all(|drive| server_of(&sample.state, *drive) != server_id(3)));
        let step = plan_promotion(&sample.state, group(1, pg), &learners);
        sample.must_all(step.map(|step| Change::ConfigurePgs(vec![step])));
    }
    assert!(configs(&sample.state).iter().all(|config| !config.is_member(drive_id(3)) && config.acting.len() == 3));
}

/// A group with no former members is settled, whoever is its primary.
#[test]
fn only_groups_that_count_former_members_or_have_too_many_are_settled() {
    let mut sample = Sample::with_set(3, 4);
    let all = servers(&[0, 1, 2]);
    assert_eq!(plan_settled(&sample.state, &all), []);
    move_primary(&mut sample);
    assert_eq!(plan_settled(&sample.state, &all), []);
}

/// Fills what is due and lets all learners act.
fn fill(sample: &mut Sample, alive: &[u32], pgs: u32) {
    let changes = plan_learners(&sample.state, &servers(alive), usize::MAX);
    sample.must_all(changes);
    for pg in 0..pgs {
        let learners = sample.state.pg(group(1, pg)).unwrap().learners;
        let step = plan_promotion(&sample.state, group(1, pg), &learners);
        sample.must_all(step.map(|step| Change::ConfigurePgs(vec![step])));
    }
}

/// Three servers, of which number 2 is away, and drive 8 of a new one that is to have its copies.
fn with_a_drive_instead_of_a_lost_one() -> Sample {
    let mut sample = Sample::with_set(3, 40);
    let changes = plan_failure(&sample.state, &servers(&[2]));
    sample.must_all(changes);
    sample.must(Change::AddServer(server(8)));
    sample.must(Change::AddDrive(drive(8, 8)));
    let change = plan_target(&sample.state, SetId(1), &[drive_id(8)]).unwrap().unwrap();
    sample.must(change);
    sample
}

/// A new server takes the copies of one that is away, and then the lost one is given up.
#[test]
fn groups_that_were_filled_before_a_drive_was_given_up_forget_it() {
    let mut sample = with_a_drive_instead_of_a_lost_one();
    fill(&mut sample, &[0, 1, 8], 40);
    assert_eq!(plan_settled(&sample.state, &servers(&[0, 1, 8])), [], "the lost one may return");
    sample.must(Change::SetDriveState { id: drive_id(2), state: DriveState::Failed });
    let change = plan_target(&sample.state, SetId(1), &[]).unwrap().unwrap();
    sample.must(change);
    let changes = plan_learners(&sample.state, &servers(&[0, 1, 8]), usize::MAX);
    sample.must_all(changes);
    for (pg, config) in (0..).zip(configs(&sample.state)).filter(|(_, config)| !config.learners.is_empty()) {
        let step = plan_promotion(&sample.state, group(1, pg), &config.learners).unwrap();
        sample.must(Change::ConfigurePgs(vec![step]));
    }
    assert!(configs(&sample.state).iter().any(|config| !config.previous.is_empty()));
    assert_eq!(plan_settled(&sample.state, &servers(&[0, 8])), [], "a member is away");
    let changes = plan_settled(&sample.state, &servers(&[0, 1, 8]));
    sample.must_all(changes);
    assert!(configs(&sample.state).iter().all(|config| config.acting.len() == 3 && config.previous.is_empty()));
    assert_eq!(plan_settled(&sample.state, &servers(&[0, 1, 8])), [], "done is done");
}

#[test]
fn a_drive_that_is_given_up_is_replaced_by_another_one_of_its_server() {
    let mut sample = Sample::with_set(3, 20);
    // The server lives; its drive came back empty, under another id.
    sample.must(Change::SetDriveState { id: drive_id(2), state: DriveState::Failed });
    let changes = plan_failure(&sample.state, &servers(&[]));
    sample.must_all(changes);
    assert!(configs(&sample.state).iter().all(|config| !config.is_member(drive_id(2)) && config.acting.len() == 2));
    assert_eq!(plan_learners(&sample.state, &servers(&[0, 1, 2]), usize::MAX), [], "it is not filled again");
    assert_eq!(plan_release(&sample.state), [], "the map still counts on it");
    sample.must(Change::AddDrive(drive(9, 2)));
    let target = plan_target(&sample.state, SetId(1), &[drive_id(9)]).unwrap().unwrap();
    sample.must(target);
    fill(&mut sample, &[0, 1, 2], 20);
    assert!(
        configs(&sample.state).iter().all(|config| config.acting.contains(&drive_id(9)) && config.acting.len() == 3)
    );
    assert_eq!(plan_release(&sample.state), [Change::ReleaseDrive(drive_id(2))]);
    sample.must(Change::ReleaseDrive(drive_id(2)));
    assert_eq!(plan_release(&sample.state), []);
    for state in [DriveState::Active, DriveState::Draining, DriveState::Full] {
        let back = sample.apply(Change::SetDriveState { id: drive_id(2), state });
        assert_eq!(back, Err(Refusal::BadState(Subject::Drive(drive_id(2)))), "it never comes back");
    }
    sample.must(Change::SetDriveState { id: drive_id(2), state: DriveState::Failed });
}

#[test]
fn drives_of_a_server_that_is_given_up_are_given_up() {
    let mut sample = Sample::with_set(4, 10);
    assert_eq!(plan_given_up(&sample.state), []);
    sample.must(Change::SetServerState { id: server_id(1), state: ServerState::Dead });
    let changes = plan_given_up(&sample.state);
    assert_eq!(changes, [Change::SetDriveState { id: drive_id(1), state: DriveState::Failed }]);
    sample.must_all(changes);
    assert_eq!(plan_given_up(&sample.state), []);
    // The server may come back. Its drive does not.
    sample.must(Change::SetServerState { id: server_id(1), state: ServerState::Joining });
    assert_eq!(sample.state.drive(drive_id(1)).unwrap().state, DriveState::Failed);
}

#[test]
fn voters() {
    let mut sample = Sample::new();
    let alive = |numbers: std::ops::Range<u32>| numbers.map(server_id).collect::<BTreeSet<_>>();
    assert_eq!(plan_voters(&sample.state, &alive(0..9)), []);
    let add = |sample: &mut Sample, numbers: std::ops::Range<u32>| {
        sample.must_all(numbers.map(|number| Change::AddServer(server(number))));
    };
    let ids = |numbers: &[u32]| numbers.iter().copied().map(server_id).collect::<Vec<_>>();
    add(&mut sample, 0..2);
    assert_eq!(plan_voters(&sample.state, &alive(0..2)), ids(&[0]), "two vote worse than one");
    sample.must(Change::SetVoters(ids(&[1])));
    assert_eq!(plan_voters(&sample.state, &alive(0..2)), ids(&[1]), "who votes goes on");
    // Zones 0, 1 and 2, two servers each.
    add(&mut sample, 2..4);
    assert_eq!(plan_voters(&sample.state, &alive(0..4)), ids(&[0, 1, 2]));
    add(&mut sample, 4..6);
    sample.must(Change::SetVoters(ids(&[0, 1, 2])));
    let planned = plan_voters(&sample.state, &alive(0..6));
    assert_eq!(planned, ids(&[0, 1, 2, 3, 4]), "no zone with more than two of five");
    sample.must(Change::SetVoters(planned));
    let without = alive(0..6).difference(&servers(&[1])).copied().collect();
    assert_eq!(plan_voters(&sample.state, &without), ids(&[0, 2, 3, 4, 5]), "replaced");
    let few = servers(&[0, 2, 3]);
    assert_eq!(plan_voters(&sample.state, &few), ids(&[0, 1, 2, 3, 4]), "kept where nobody can replace them");
    sample.must(Change::SetServerState { id: server_id(0), state: ServerState::Draining });
    assert!(!plan_voters(&sample.state, &alive(0..6)).contains(&server_id(0)));
}

#[test]
fn zones_with_fewer_voters_come_first() {
    for (zones, expected) in
        [(&[0, 0, 0, 1][..], &[0, 1, 3][..]), (&[0, 0, 1, 2], &[0, 2, 3]), (&[0, 0, 0, 0, 1, 1], &[0, 1, 2, 4, 5])]
    {
        let mut sample = Sample::new();
        for (number, zone) in (0..).zip(zones) {
            sample.must(Change::AddServer(Server { zone: ashlar_placement::map::Zone(*zone), ..server(number) }));
        }
        let all = sample.state.servers().map(|server| server.id).collect();
        let expected: Vec<ServerId> = expected.iter().copied().map(server_id).collect();
        assert_eq!(plan_voters(&sample.state, &all), expected, "{zones:?}");
    }
}

#[test]
fn planned_voters_are_odd_in_number_and_spread() {
    arbtest(|u| {
        let mut sample = Sample::new();
        for number in 0..u.int_in_range(0..=12)? {
            let zone = ashlar_placement::map::Zone(u.int_in_range(0..=3)?);
            let rack = ashlar_placement::map::Rack(number);
            let state = *u.choose(&[ServerState::Active, ServerState::Active, ServerState::Dead])?;
            sample.must(Change::AddServer(Server { zone, rack, state, ..server(number) }));
        }
        let active: Vec<Server> =
            sample.state.servers().filter(|server| server.state == ServerState::Active).cloned().collect();
        let all: BTreeSet<ServerId> = active.iter().map(|server| server.id).collect();
        let planned = plan_voters(&sample.state, &all);
        assert!(planned.is_sorted() && planned.iter().all(|id| all.contains(id)));
        assert_eq!(planned.is_empty(), active.is_empty());
        assert!(planned.is_empty() || planned.len() % 2 == 1);
        let zone_of = |id: &ServerId| sample.state.server(*id).unwrap().zone;
        let zones: BTreeSet<_> = active.iter().map(|server| server.zone).collect();
        let used: BTreeSet<_> = planned.iter().map(zone_of).collect();
        assert_eq!(used.len(), zones.len().min(planned.len()), "as many zones as can be");
        sample.must(Change::SetVoters(planned.clone()));
        assert_eq!(plan_voters(&sample.state, &all), planned, "a plan that is carried out is kept");
        Ok(())
    });
}

/// Fills whatever a companion's map asks for.
fn fill_companion(sample: &mut Sample, companion: SetId) {
    let all = servers(&[0, 1, 2, 3]);
    for _ in 0..4 {
        let changes = plan_learners(&sample.state, &all, usize::MAX);
        sample.must_all(changes);
        let configs: Vec<(PgId, PgConfig)> = sample.state.pgs_of(companion).collect();
        for (pg, config) in configs.into_iter().filter(|(_, config)| !config.learners.is_empty()) {
            let group = GroupId { set: companion, pg };
            let step = plan_promotion(&sample.state, group, &config.learners).unwrap();
            sample.must(Change::ConfigurePgs(vec![step]));
        }
        let changes = plan_settled(&sample.state, &all);
        sample.must_all(changes);
    }
}

#[test]
fn a_companion_lies_on_the_drives_of_its_set_and_gets_more_copies() {
    let mut sample = Sample::with_set(4, 20);
    let companion = SetId(1).companion();
    let shape = |width, conflict| Shape { pgs: 12, width, conflict };
    let copies = Copies { write_min: 2, acting_min: 1 };
    let none = plan_set(&Sample::new().state, companion, shape(3, Conflict::Drive), DriveClass::Ssd, copies, &[]);
    none.unwrap_err();
    let change = plan_set(&sample.state, companion, shape(3, Conflict::Drive), DriveClass::Ssd, copies, &[]).unwrap();
    sample.must(change);
    assert!(sample.state.drives().all(|drive| drive.set == Some(SetId(1))));
    // Each server gets a second drive. The set has it first, then the companion.
    for number in 4..8 {
        sample.must(Change::AddDrive(drive(number, number - 4)));
    }
    let added: Vec<DriveId> = (4..8).map(drive_id).collect();
    let reshaped = |sample: &Sample, shape| {
        plan_reshaped(&sample.state, sample.state.set(companion).unwrap(), &[], shape).unwrap()
    };
    let change = plan_target(&sample.state, SetId(1), &added).unwrap().unwrap();
    sample.must(change);
    let change = reshaped(&sample, shape(5, Conflict::Drive)).unwrap();
    sample.must(change);
    assert_eq!(reshaped(&sample, shape(5, Conflict::Drive)), None);
    let all = servers(&[0, 1, 2, 3]);
    let acting = |sample: &Sample| -> Vec<usize> {
        sample.state.pgs_of(companion).map(|(_, config)| config.acting.len()).collect()
    };
    assert_eq!(acting(&sample), [3; 12]);
    fill_companion(&mut sample, companion);
    assert_eq!(acting(&sample), [5; 12]);
    assert_eq!(plan_settled(&sample.state, &all), []);
    let change = reshaped(&sample, shape(4, Conflict::Drive)).unwrap();
    sample.must(change);
    fill_companion(&mut sample, companion);
    assert_eq!(acting(&sample), [4; 12], "one copy is given up");
    // A drive leaves both, or stays in both.
    sample.must(Change::SetDriveState { id: drive_id(7), state: DriveState::Draining });
    let change = plan_target(&sample.state, SetId(1), &[]).unwrap().unwrap();
    sample.must(change);
    fill(&mut sample, &[0, 1, 2, 3], 20);
    assert_eq!(plan_release(&sample.state), [], "the companion has it");
    assert_eq!(sample.apply(Change::ReleaseDrive(drive_id(7))), Err(Refusal::InUse(Subject::Drive(drive_id(7)))));
}

#[test]
fn who_may_have_something_is_made_a_learner() {
    let mut sample = Sample::with_set(3, 20);
    let ids = |drives: &[DriveId]| drives.iter().copied().collect::<BTreeSet<_>>();
    let all = ids(&[drive_id(0), drive_id(1), drive_id(2)]);
    for failed in [&[0][..], &[0, 1]] {
        let changes = plan_failure(&sample.state, &servers(failed));
        sample.must_all(changes);
    }
    for pg in 0..20 {
        let group = group(1, pg);
        let witnesses = sample.state.witnesses(group).unwrap();
        assert_eq!((witnesses.len(), ids(&witnesses)), (3, all.clone()), "each once");
        assert_eq!(plan_witnesses(&sample.state, group, &servers(&[2])), None, "nobody else is there");
        let before = sample.state.pg(group).unwrap();
        let step = plan_witnesses(&sample.state, group, &servers(&[0, 2])).unwrap();
        assert_eq!((step.group, step.expected, step.primary), (group, before.epoch, drive_id(2)));
        assert_eq!((&step.acting, &step.learners), (&vec![drive_id(2)], &vec![drive_id(0)]));
        assert_eq!((step.certified.len(), step.settled), (0, Settled::No));
        sample.must(Change::ConfigurePgs(vec![step]));
        assert_eq!(plan_witnesses(&sample.state, group, &servers(&[0, 2])), None, "done is done");
        let step = plan_witnesses(&sample.state, group, &servers(&[0, 1, 2])).unwrap();
        assert_eq!(ids(&step.learners), ids(&[drive_id(0), drive_id(1)]));
    }
    sample.must(Change::SetDriveState { id: drive_id(1), state: DriveState::Failed });
    assert_eq!(plan_witnesses(&sample.state, group(1, 0), &servers(&[0, 1, 2])), None, "what is given up is not asked");
    assert_eq!(sample.state.witnesses(group(1, 20)), None, "there is no such group");
    assert_eq!(plan_witnesses(&sample.state, group(2, 0), &servers(&[0, 1, 2])), None);
}

/// Those that came later may have what was written with them, those that the group began with may show that nothing was.
#[test]
fn who_came_later_is_asked_too_and_what_is_being_filled_gives_way() {
    let mut sample = with_a_drive_instead_of_a_lost_one();
    let changes = plan_learners(&sample.state, &servers(&[0, 1, 8]), usize::MAX);
    sample.must_all(changes);
    let filled: Vec<u32> =
        (0..40).filter(|pg| sample.state.pg(group(1, *pg)).unwrap().learners == [drive_id(8)]).collect();
    assert!(!filled.is_empty());
    let alive = servers(&[0, 1, 2, 8]);
    for pg in &filled {
        let step = plan_witnesses(&sample.state, group(1, *pg), &alive).unwrap();
        assert_eq!(step.learners, [drive_id(2), drive_id(8)], "the one that may have something comes first");
    }
    fill(&mut sample, &[0, 1, 8], 40);
    for pg in filled {
        let witnesses = sample.state.witnesses(group(1, pg)).unwrap();
        let expected = BTreeSet::from([0, 1, 2, 8].map(drive_id));
        assert_eq!((witnesses.len(), witnesses.into_iter().collect::<BTreeSet<_>>()), (4, expected), "{pg}");
    }
}

#[test]
fn a_group_that_began_with_one_copy_has_no_witnesses() {
    for (width, count) in [(1, 0), (2, 2)] {
        let mut sample = Sample::new();
        for number in 0..3 {
            sample.must(Change::AddServer(server(number)));
            sample.must(Change::AddDrive(drive(number, number)));
        }
        let shape = Shape { pgs: 10, width, conflict: Conflict::Server };
        let copies = Copies { write_min: 1, acting_min: 1 };
        sample.must(plan_set(&sample.state, SetId(1), shape, DriveClass::Ssd, copies, &[]).unwrap());
        assert_eq!(sample.state.witnesses(group(1, 0)).map(|all| all.len()), Some(count));
        assert_eq!(plan_witnesses(&sample.state, group(1, 0), &servers(&[0, 1, 2])), None, "all of them act");
    }
}
