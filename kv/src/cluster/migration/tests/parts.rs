//! What migrations are made of, each by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ashlar_wire::time::Instant;

use super::super::copies::Copies;
use super::super::hold::Hold;
use super::super::job::{Job, Operation, Stage};
use super::super::link::{Link, introduce};
use super::super::{Import, Migration, Migrator, SlotTable, Step, span_of};
use super::{SOURCE, Shared, TARGET, map_of, node, settle};
use crate::client::{ClientId, Mailbox};
use crate::cluster::map::{Map, Name, Node, Service, SlotRange};
use crate::keyspace::Slot;
use crate::replicate::Upstream;
use crate::tests::{Talk, readable};
use crate::time::Now;

fn slots(ranges: &[(u16, u16)]) -> SlotTable {
    let ranges: Vec<SlotRange> = ranges.iter().map(|(first, last)| SlotRange::new(*first, *last).unwrap()).collect();
    SlotTable::of(&ranges)
}

fn slot(number: u16) -> Slot {
    Slot::new(number).unwrap()
}

fn at(ms: i64) -> Now {
    Now { unix_us: ms * 1_000, instant: Instant::ORIGIN + Duration::from_millis(u64::try_from(ms).unwrap()) }
}

/// That of the slots that are to go, and whose name is this.
fn job(operation: Operation, name: u8, now: Now) -> Job {
    let ranges = [(5_000, 5_100), (3_300, 3_300)].map(|(first, last)| SlotRange::new(first, last).unwrap());
    Job::new(operation, Name::new([name; 20]), ranges.into(), (SOURCE, TARGET), now)
}

#[test]
fn a_set_of_slots_is_one() {
    let ranges = [(0, 1), (63, 64), (127, 129), (16_383, 16_383)];
    let numbers = [0, 1, 63, 64, 127, 128, 129, 16_383];
    let mut table = slots(&ranges);
    assert_eq!(table.slots().map(Slot::number).collect::<Vec<_>>(), numbers);
    assert!((0..16_384).all(|number| table.has(slot(number)) == numbers.contains(&number)));
    assert!(!table.is_empty() && SlotTable::default().is_empty());
    assert!(table.overlaps(&slots(&[(2, 63)])) && !table.overlaps(&slots(&[(2, 62), (65, 126)])));
    table.add(&slots(&[(2, 2), (64, 66)]));
    table.remove(&slots(&[(0, 0), (128, 200)]));
    let shown: Vec<String> = table.ranges().iter().map(SlotRange::to_string).collect();
    assert_eq!(shown, ["1-2", "63-66", "127", "16383"]);
}

#[test]
fn a_migration_goes_on_until_it_is_over_and_is_over_once() {
    let export = job(Operation::Export, 1, at(100_999));
    let state = |job: &Job| {
        let progress = job.progress();
        (progress.stage, progress.updated_s, progress.heard_s, progress.left_bytes)
    };
    assert_eq!((state(&export), export.created_s), ((Stage::Connecting, 100, 100, 0), 100));
    assert!(export.enter(Stage::Copying, at(101_000)) && export.enter(Stage::Copying, at(102_000)));
    export.note_heard(at(103_000));
    export.note_left(7);
    assert_eq!(state(&export), (Stage::Copying, 101, 103, 7), "since when it is so");
    let long = "x".repeat(500);
    assert!(export.end(Stage::Failed, &format!("a\n{long}"), at(104_000)));
    assert!(!export.end(Stage::Success, "", at(105_000)) && !export.enter(Stage::Copying, at(105_000)));
    assert!(!export.cancel(at(105_000)));
    assert_eq!((state(&export).0, state(&export).1), (Stage::Failed, 104));
    assert_eq!(export.progress().message, format!("a{}", &long[..399]));
    for (stage, can_end) in [(Stage::Paused, true), (Stage::Granted, false)] {
        let job = job(Operation::Export, 1, at(0));
        job.enter(stage, at(0));
        assert_eq!(job.cancel(at(9_000)), can_end);
        let expected = if can_end { (Stage::Cancelled, 9) } else { (Stage::Granted, 0) };
        assert_eq!((state(&job).0, state(&job).1), expected);
    }
    // Keys that came are removed first.
    let import = job(Operation::Import, 1, at(0));
    import.note_clean(at(1_000));
    assert_eq!(import.stage(), Stage::Receiving);
    assert!(import.end(Stage::Failed, "", at(2_000)) && !import.end(Stage::Success, "", at(3_000)));
    assert!(!import.cancel(at(3_000)) && !import.enter(Stage::Granted, at(3_000)));
    assert_eq!(import.stage(), Stage::CleaningUp);
    [4_000, 5_000].into_iter().for_each(|ms| import.note_clean(at(ms)));
    assert_eq!((state(&import).0, state(&import).1), (Stage::Failed, 4));
    let import = job(Operation::Import, 1, at(0));
    assert!(import.end(Stage::Success, "", at(0)) && import.stage() == Stage::Success);
}

#[test]
fn answers_are_lines_and_are_waited_for_only_while_they_are_owed() {
    let mut link = Link::new(at(0));
    let span = Duration::from_secs(5);
    assert!(!link.is_owed() && !link.is_silent(span, at(60_000)));
    link.ask(2, at(60_000));
    link.ask(1, at(63_000));
    assert!(link.is_owed() && link.owed() == 3);
    assert!(!link.is_silent(span, at(65_000)) && link.is_silent(span, at(65_001)), "since the first of them");
    let answers = link.handle_bytes(b"+OK\r\n:5\r\n-ERR no\r\n+ta", at(66_000)).unwrap();
    let shown: Vec<_> = answers.iter().map(|answer| (answer.text.as_str(), answer.is_refusal)).collect();
    assert_eq!(shown, [("OK", false), ("5", false), ("ERR no", true)]);
    assert!(!link.is_owed() && !link.is_silent(span, at(90_000)));
    assert_eq!(link.handle_bytes(b"ken\r\n", at(90_000)).unwrap()[0].text, "taken");
    assert_eq!(link.owed(), 0, "nobody asked for that");
    assert!(link.handle_bytes(&[b'+'; 4_096], at(90_000)).is_ok_and(|answers| answers.is_empty()));
    assert!(link.handle_bytes(b"x", at(90_000)).is_err());
    for wrong in ["$5\r\n", "\n", "OK\r\n"] {
        assert!(Link::new(at(0)).handle_bytes(wrong.as_bytes(), at(0)).is_err(), "{wrong:?}");
    }
}

#[test]
fn a_source_says_its_password_where_it_has_one() {
    let auth = |words: &[&str]| {
        let text: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
        format!("*{}\r\n{text}", words.len())
    };
    for (user, password, said) in [
        ("", "", None),
        ("me", "", None),
        ("", "secret", Some(auth(&["AUTH", "secret"]))),
        ("me", "secret", Some(auth(&["AUTH", "me", "secret"]))),
    ] {
        let talk = Talk::new();
        talk.engine().configure("primaryuser", user).unwrap();
        talk.engine().configure("primaryauth", password).unwrap();
        let mut bytes = Vec::new();
        let answers = introduce(talk.engine(), &mut bytes);
        assert_eq!(
            (answers, String::from_utf8(bytes).unwrap()),
            (usize::from(said.is_some()), said.unwrap_or_default())
        );
    }
}

#[test]
fn who_waits_for_slots_looks_again_whenever_something_has_changed() {
    let (hold, woken) = (Hold::default(), Arc::new(AtomicUsize::new(0)));
    let counter = Arc::clone(&woken);
    let mailbox = Arc::new(Mailbox::new(Box::new(move || _ = counter.fetch_add(1, Ordering::Relaxed))));
    let woken = || woken.swap(0, Ordering::Relaxed);
    let covers = || [Some(slot(5)), Some(slot(7)), None].map(|slot| hold.covers(slot));
    assert_eq!((hold.is_on(), covers()), (false, [false; 3]));
    hold.look_again();
    let client = ClientId(7);
    hold.enter(client, &mailbox);
    assert_eq!((woken(), hold.clients()), (1, 1), "the hold ended before it came");
    hold.begin(&slots(&[(5, 6)]));
    assert_eq!((hold.is_on(), covers(), woken()), (true, [true, false, true], 1));
    hold.enter(client, &mailbox);
    assert_eq!(woken(), 0);
    hold.look_again();
    hold.doubt(slots(&[(7, 7)]));
    assert_eq!((covers(), woken()), ([true; 3], 2));
    hold.end();
    assert_eq!((hold.is_on(), covers(), woken()), (true, [false, true, true], 1));
    hold.doubt(SlotTable::default());
    assert_eq!((hold.is_on(), covers(), woken()), (false, [false; 3], 1));
    let until = at(5_000).instant;
    hold.expect(Some((SOURCE, until)));
    assert_eq!((hold.is_on(), covers(), woken()), (true, [false, false, true], 1));
    let expected = [(SOURCE, 4_999), (SOURCE, 5_000), (TARGET, 0)];
    let expected = expected.map(|(owner, ms)| hold.expected_until(owner, at(ms).instant));
    assert_eq!(expected, [Some(until), None, None]);
    hold.leave(client);
    hold.expect(None);
    assert_eq!((hold.is_on(), hold.clients(), woken()), (false, 0, 0));
}

#[test]
fn of_slots_with_copies_only_those_are_doubtful_that_an_earlier_life_noted_and_this_node_owns() {
    let (copies, map) = (Copies::default(), map_of(SOURCE, &Shared::default()));
    let doubtful = || copies.doubtful(&map).slots().map(Slot::number).collect::<Vec<_>>();
    assert_eq!((copies.is_any(), copies.show(), doubtful()), (false, String::new(), vec![]));
    copies.change(&slots(&[(1, 3)]), true);
    assert_eq!((copies.is_any(), copies.show(), doubtful()), (true, "1-3".to_owned(), vec![]));
    copies.hear(&slots(&[(5, 6), (9_000, 9_000)]), true);
    assert_eq!((copies.show(), doubtful()), ("1-3 5-6 9000".to_owned(), vec![5, 6]));
    copies.change(&slots(&[(5, 5)]), true);
    assert_eq!((copies.show(), doubtful()), ("1-3 5-6 9000".to_owned(), vec![6]), "it notes that itself now");
    copies.trust(&slots(&[(6, 6)]));
    assert_eq!((copies.show(), doubtful()), ("1-3 5-6 9000".to_owned(), vec![]));
    copies.hear(&slots(&[(2, 6)]), false);
    assert_eq!(copies.table(), slots(&[(1, 1), (9_000, 9_000)]));
    copies.replace(Copies::read("4-5 7 x 9-8 16384 8000-9000"));
    assert_eq!((copies.show(), doubtful().len()), ("4-5 7 8000-9000".to_owned(), 3 + 192));
    copies.change(&slots(&[(0, 16_383)]), false);
    assert_eq!((copies.is_any(), copies.show(), doubtful()), (false, String::new(), vec![]));
}

#[test]
fn migrations_are_remembered_until_there_are_too_many_and_all_while_they_last() {
    let migration = Migration::default();
    let names = || migration.jobs().iter().map(|job| job.name.bytes()[0]).collect::<Vec<_>>();
    let (export, import) = (Operation::Export, Operation::Import);
    let all = [(1, export), (2, export), (3, import), (4, export)].map(|(name, way)| Arc::new(job(way, name, at(0))));
    all.iter().for_each(|job| migration.enter(job));
    assert_eq!(names(), [4, 3, 2, 1]);
    let of = |name: u8, way| migration.job(Name::new([name; 20]), way).map(|job| job.name.bytes()[0]);
    assert_eq!([of(1, export), of(1, import), of(3, import), of(5, export)], [Some(1), None, Some(3), None]);
    let some = slots(&[(5_100, 5_200)]);
    let busy = |slots: &SlotTable| [export, import].map(|way| migration.is_busy(way, slots));
    assert_eq!((busy(&some), busy(&slots(&[(5_101, 5_200)]))), ([true, true], [false, false]));
    let state = || (migration.is_going_on(), migration.has_under_way(slot(5_000)), migration.has_under_way(slot(1)));
    assert_eq!(state(), (true, true, false));
    [0, 3].into_iter().for_each(|at_| _ = all[at_].end(Stage::Success, "", at(0)));
    migration.trim(4);
    assert_eq!(names(), [4, 3, 2, 1]);
    migration.trim(3);
    assert_eq!(names(), [4, 3, 2], "the oldest that is over");
    migration.trim(0);
    assert_eq!(names(), [3, 2], "the others have not ended");
    all[1].end(Stage::Failed, "", at(0));
    all[2].end(Stage::Failed, "", at(0));
    assert_eq!((state(), busy(&some)), ((true, false, false), [false, true]), "what came has to be removed");
    all[2].note_clean(at(0));
    assert_eq!((state(), busy(&some)), ((false, false, false), [false, false]));
    migration.copies.change(&some, true);
    assert!(migration.is_going_on());
    migration.copies.change(&some, false);
    let client = ClientId(7);
    migration.known().imports.push(Arc::new(Import::new(Arc::clone(&all[2]), client, at(0))));
    assert!(migration.is_going_on());
}

#[test]
fn leave_to_take_slots_is_good_for_a_short_while_and_once() {
    for (node_timeout, span_ms) in [("15000", 1_000), ("1500", 500), ("150", 100)] {
        let voters = Shared::default();
        let mut target = node(TARGET, &voters, &[]);
        let engine = target.engine_shared();
        engine.configure("cluster-node-timeout", node_timeout).unwrap();
        assert_eq!(span_of(&engine), Duration::from_millis(span_ms));
        let client = target.session_mut(0).client().id;
        let take = |asked_ms: Option<i64>, name: u8| {
            let import = engine.begin_import(job(Operation::Import, name, at(0)), client, at(0));
            asked_ms.into_iter().for_each(|ms| import.note_complete(0, at(ms)));
            let taken = engine.take_slots(&import, at(10_000)).map_err(|error| error.as_str().to_owned());
            (taken, import.job.stage())
        };
        let span_ms = i64::try_from(span_ms).unwrap();
        let refused = |why: &str| (Err(format!("ERR {why}")), Stage::CleaningUp);
        assert_eq!(take(None, 1), refused("Leave was given before it was asked for"));
        assert_eq!(take(Some(10_000 - span_ms - 1), 2), refused("Leave came too late"));
        assert!(!voters.lock().unwrap().is_target);
        assert_eq!(take(Some(10_000 - span_ms), 3), (Ok(None), Stage::Success));
        let is_until = |ms: i64| voters.lock().unwrap().until == Some(at(ms).instant);
        assert!(voters.lock().unwrap().is_target && is_until(10_000 + span_ms), "the ballot may take as long again");
        assert_eq!(take(Some(10_000), 4), refused("Slots are no longer owned by source node"));
    }
}

#[test]
fn an_import_ends_when_there_is_no_reason_for_it_any_more() {
    let others = |change: fn(&mut Vec<Node>)| {
        let map = map_of(TARGET, &Shared::default());
        let mut nodes = map.nodes().to_vec();
        change(&mut nodes);
        Map::new(TARGET, nodes, *map.service())
    };
    let same = others(|_| ());
    let replica = others(|nodes| (nodes[1].primary, nodes[1].slots) = (Some(SOURCE), Vec::new()));
    let own = others(|nodes| (nodes[1].epoch, nodes[1].slots) = (99, vec![SlotRange::new(5_050, 16_383).unwrap()]));
    let lost = others(|nodes| nodes[0].slots = vec![SlotRange::new(0, 5_099).unwrap()]);
    for (map, after_ms, why) in [
        (&same, 60_000, ""),
        (&same, 60_001, "Timed out after too long with no interaction"),
        (&replica, 0, "Target node is a replica now"),
        (&own, 0, "Slots were unexpectedly assigned to myself during import"),
        (&lost, 0, "Slots are no longer owned by source node"),
    ] {
        for is_granted in [false, true] {
            let mut target = node(TARGET, &Shared::default(), &[]);
            let engine = target.engine_shared();
            engine.configure("repl-timeout", "60").unwrap();
            let client = target.session_mut(0).client().id;
            let import = engine.begin_import(job(Operation::Import, 1, at(0)), client, at(0));
            import.note_heard(at(1_000));
            if is_granted {
                import.job.enter(Stage::Granted, at(1_000));
            }
            engine.set_map(map.clone(), at(1_000));
            Migrator::new(Arc::clone(&engine)).next_step(at(1_000 + after_ms));
            let why = if is_granted { "" } else { why };
            assert_eq!(import.job.progress().message, why, "may be taken: {is_granted}");
            assert_eq!(import.job.stage().is_under_way(), why.is_empty(), "{why}");
            assert_eq!(target.is_closed(0), !why.is_empty(), "its connection ends with it");
        }
    }
}

#[test]
fn an_import_that_ends_leaves_the_others() {
    let mut target = node(TARGET, &Shared::default(), &[]);
    let (engine, client) = (target.engine_shared(), target.session_mut(0).client().id);
    let imports = [1, 2].map(|name| engine.begin_import(job(Operation::Import, name, at(0)), client, at(0)));
    engine.end_import(&imports[0], at(1_000));
    let left = engine.migration.imports();
    assert!(left.len() == 1 && Arc::ptr_eq(&left[0], &imports[1]));
    assert_eq!(imports.map(|import| import.job.stage()), [Stage::CleaningUp, Stage::Receiving]);
}

#[test]
fn whoever_moves_slots_hears_of_news_and_rests_longer_while_nobody_does_anything() {
    let source = node(SOURCE, &Shared::default(), &[]);
    let (engine, cx) = (source.engine_shared(), Context::from_waker(Waker::noop()));
    let mut migrator = Migrator::new(Arc::clone(&engine));
    while migrator.poll_news(&cx).is_ready() {}
    engine.migration.wake();
    assert_eq!([(); 2].map(|()| migrator.poll_news(&cx)), [Poll::Ready(()), Poll::Pending]);
    assert_eq!(migrator.next_step(at(0)), Step::Rest(Duration::from_millis(100)));
    (0..10).for_each(|second| engine.handle_tick(at(second * 1_000)));
    assert!(engine.is_resting());
    assert_eq!(migrator.next_step(at(10_000)), Step::Rest(Duration::from_secs(2)));
    assert_ne!(engine.name_migration(), engine.name_migration(), "no two migrations have the same name");
}

#[test]
fn only_shards_with_copies_in_slots_that_another_node_owns_hide_keys() {
    let engine = node(TARGET, &Shared::default(), &[]).engine_shared();
    let hiding = || (0..8).filter(|number| engine.hides_in_shard(*number)).collect::<Vec<_>>();
    assert_eq!(hiding(), [0; 0]);
    engine.migration.copies.change(&slots(&[(5_061, 5_061), (9_000, 9_000)]), true);
    assert_eq!(hiding(), [engine.keyspace.shard_of(slot(5_061))], "the other slot is its own");
}

/// A target to which keys of a slot came that is the source's.
fn with_copies() -> Talk {
    let voters = Shared::default();
    let mut target = node(TARGET, &voters, &[]);
    voters.lock().unwrap().is_target = true;
    target.engine().set_map(map_of(TARGET, &voters), at(0));
    assert_eq!(target.say(0, "SET {bar}copy 1"), "OK");
    target.engine().note_copies(&slots(&[(5_000, 5_100)]), true, at(0));
    target.engine().set_map(map_of(TARGET, &Shared::default()), at(0));
    target
}

#[test]
fn copies_go_only_from_a_primary_in_a_cluster_that_serves_and_the_import_is_over_then() {
    let map = map_of(TARGET, &Shared::default());
    let changed = |change: fn(&mut Node, &mut Service)| {
        let (mut nodes, mut service) = (map.nodes().to_vec(), *map.service());
        change(&mut nodes[1], &mut service);
        Map::new(TARGET, nodes, service)
    };
    let is_down = changed(|_, service| service.is_up = false);
    let is_replica = changed(|own, _| (own.primary, own.slots) = (Some(SOURCE), Vec::new()));
    for (case, map, follows, goes) in [
        ("a primary", &map, false, true),
        ("a replica by the map", &is_replica, false, false),
        ("a replica by its role", &map, true, false),
        ("a cluster that is down", &is_down, false, false),
    ] {
        let engine = with_copies().engine_shared();
        let import = Arc::new(job(Operation::Import, 1, at(0)));
        engine.migration.enter(&import);
        import.end(Stage::Failed, "", at(0));
        let other = Arc::new(job(Operation::Export, 2, at(0)));
        engine.migration.enter(&other);
        other.end(Stage::Failed, "", at(0));
        if follows {
            engine.follow(Some(Upstream::Address { host: "10.0.0.1".into(), port: 7_001 }), at(0));
        }
        settle(&engine, map, at(1_000));
        let is_there = [engine.has_keys_in(Slot::of(b"bar")), engine.migration.copies.is_any()];
        assert_eq!(is_there, [!goes; 2], "{case}");
        let stage = if goes { Stage::Failed } else { Stage::CleaningUp };
        assert_eq!((import.stage(), other.stage()), (stage, Stage::Failed), "{case}");
    }
}

#[test]
fn subscribers_hear_of_keys_that_went_to_another_node_and_of_no_other_copies() {
    let (export, import) = (Operation::Export, Operation::Import);
    for (events, way, range, outcome, is_heard) in [
        ("Eg", export, (5_000, 5_100), Stage::Success, true),
        ("E$", export, (5_000, 5_100), Stage::Success, false),
        ("Eg", export, (9_000, 9_100), Stage::Success, false),
        ("Eg", export, (5_000, 5_100), Stage::Failed, false),
        ("Eg", import, (5_000, 5_100), Stage::Success, false),
        ("Eg", import, (5_000, 5_100), Stage::Failed, false),
    ] {
        let mut target = with_copies();
        let engine = target.engine_shared();
        engine.configure("notify-keyspace-events", events).unwrap();
        target.join();
        target.say(1, "SUBSCRIBE __keyevent@0__:del");
        let ranges = vec![SlotRange::new(range.0, range.1).unwrap()];
        let job = Arc::new(Job::new(way, Name::new([1; 20]), ranges, (TARGET, SOURCE), at(0)));
        engine.migration.enter(&job);
        job.end(outcome, "", at(0));
        settle(&engine, &map_of(TARGET, &Shared::default()), at(0));
        assert!(!engine.has_keys_in(Slot::of(b"bar")));
        let heard = readable(&target.mail(1));
        assert_eq!(heard.contains("{bar}copy"), is_heard, "{events} {way:?} {range:?} {outcome:?}: {heard}");
    }
}
