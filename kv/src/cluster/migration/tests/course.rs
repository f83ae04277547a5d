//! How much goes at a time, and what becomes of leave that nobody has said the end of.

use super::super::{Migrator, Step};
use super::{SOURCE, STEPS_MAX, World, map_of};
use crate::cluster::map::{Map, SlotRange};
use crate::persist::journal::{Readers, Written, encode_request};

/// Some more than a piece and all that one look into a slot may add to it.
const PIECE_BYTES_MAX: usize = 16 << 10;

#[test]
fn one_piece_is_sent_at_a_time_and_none_before_the_last_was_answered() {
    let mut world = World::new();
    world.step_until("keys are copied", |world| world.state().starts_with("snapshotting"));
    assert_eq!(world.step(), "send");
    let answer = std::mem::take(&mut world.came);
    assert!(!answer.is_empty());
    assert_eq!([(); 3].map(|()| world.step()), ["receive"; 3]);
    world.came = answer;
    assert_eq!([(); 2].map(|()| world.step()), ["receive", "send"]);
}

#[test]
fn pieces_are_small_however_much_is_in_a_slot() {
    let mut world = World::new();
    world.write("EVAL \"for n=0,999 do redis.call('SET',KEYS[1]..n,n) end\" 1 {bar}");
    let mut lens = Vec::new();
    let mut next = |migrator: &mut Migrator, now| {
        let step = migrator.next_step(now);
        if let Step::Send(bytes) = &step {
            lens.push(bytes.len());
        }
        step
    };
    let now = world.source.now();
    assert!(matches!(next(&mut world.migrator, now), Step::Dial { .. }));
    world.migrator.handle_connected(now);
    assert!(matches!(next(&mut world.migrator, now), Step::Send(_)));
    world.migrator.handle_bytes(b"+OK\r\n", now);
    while world.state().starts_with("snapshotting") {
        assert!(matches!(next(&mut world.migrator, now), Step::Send(_)));
        world.migrator.handle_bytes(b"+OK\r\n", now);
    }
    assert!(lens.len() > 5 && lens.iter().all(|len| *len < PIECE_BYTES_MAX), "{lens:?}");
}

#[test]
fn writes_are_held_only_once_so_little_is_left_as_is_configured() {
    for (limit, is_held) in [("-1", true), ("0", false), ("4096", false), ("100000", true)] {
        let mut world = World::new();
        world.source.engine().configure("slot-migration-max-failover-repl-bytes", limit).unwrap();
        world.step_until("changes follow", |world| world.state().starts_with("replicating"));
        let text = "x".repeat(6_000);
        for _ in 0..20 {
            world.write(&format!("SET {{bar}}long {text}"));
            world.step();
        }
        assert_eq!(!world.state().starts_with("replicating"), is_held, "{limit}: {}", world.state());
        world.finish();
        assert_eq!(world.state(), "success ", "{limit}");
        assert_eq!(world.voters.lock().unwrap().epoch, 1, "only the target has claimed anything");
    }
}

/// All slots that go have been copied, and that of `{g}` stays.
#[test]
fn what_commands_do_to_slots_that_were_copied_is_passed_on() {
    let request = |line: &str| {
        let (words, mut bytes) = (line.split(' ').collect::<Vec<_>>(), Vec::new());
        encode_request(words.iter().map(|word| word.as_bytes()), &mut bytes);
        bytes
    };
    let (set, two) = ("SET {bar}key value", "MSET {bar}a 1 {b}b 2");
    // More may wait than any piece of the copy has.
    let long = format!("SET {{bar}}key {}", "x".repeat(100_000));
    let len = [&request("SELECT 1")[..], &request(&long)].concat().len();
    let too_much = "More was written to the slots than client-output-buffer-limit lets wait for a replica";
    for (readers, line, bytes_max, expected) in [
        (Readers::All, set, 0, Ok(true)),
        (Readers::All, &long, 0, Ok(true)),
        (Readers::All, &long, len, Ok(true)),
        (Readers::All, &long, len - 1, Err(too_much)),
        (Readers::All, &long, len / 2, Err(too_much)),
        (Readers::Replicas, set, 0, Ok(false)),
        (Readers::All, "SET {g}key value", 0, Ok(false)),
        (Readers::All, two, 0, Ok(true)),
        (Readers::All, "MSET {bar}a 1 {g}b 2", 0, Err("A command wrote to several slots")),
        (Readers::All, "FLUSHALL", 0, Err("Data was flushed")),
        (Readers::All, "FLUSHDB", 0, Err("Data was flushed")),
        (Readers::All, "SWAPDB 0 1", 0, Err("Data was flushed")),
        (Readers::All, "NONSENSE", 0, Err("what a command did cannot be told")),
    ] {
        let mut world = World::new();
        let limit = format!("replica {bytes_max} 0 0");
        world.source.engine().configure("client-output-buffer-limit", &limit).unwrap();
        world.step_until("changes follow", |world| world.state().starts_with("replicating"));
        let words: Vec<&str> = line.split(' ').collect();
        let mut written = Written::default();
        written.push_for(readers, 1, words.iter().map(|word| word.as_bytes()));
        world.source.engine().tell_migration(&written);
        assert_eq!(world.step(), "receive", "the end of the copy has been sent");
        let now = world.source.now();
        let step = world.migrator.next_step(now);
        match expected {
            Ok(is_passed_on) => {
                let Step::Send(bytes) = step else { panic!("{line}: {step:?}") };
                let wanted = [request("SELECT 1"), request(line)].concat();
                assert_eq!(bytes.starts_with(&wanted), is_passed_on, "{line}");
            }
            Err(why) => assert_eq!(world.state(), format!("failed {why}"), "{line}"),
        }
    }
}

#[test]
fn a_source_says_its_password_first_and_waits_for_what_is_said_to_it() {
    for (password, is_right) in [("secret", true), ("wrong", false)] {
        let mut world = World::new();
        world.target.engine().configure("requirepass", "secret").unwrap();
        world.source.engine().configure("primaryauth", password).unwrap();
        world.step_until("the password is sent", |world| world.state().starts_with("reading-auth-response"));
        assert_eq!(world.step(), "send");
        if is_right {
            // The answer to the password comes alone.
            let rest = world.came.split_off("+OK\r\n".len());
            assert_eq!(world.step(), "receive");
            assert_eq!(world.state(), "reading-establish-response ");
            world.came = rest;
            world.step_until("it is over", |world| world.state().starts_with("success"));
        } else {
            world.step();
            let state = world.state();
            assert!(state.starts_with("failed Received error during handshake to target: -WRONGPASS"), "{state}");
        }
    }
}

#[test]
fn slots_that_a_third_node_owns_are_nobodys_to_give() {
    let mut world = World::new();
    world.give_leave();
    let map = map_of(SOURCE, &world.voters);
    let mut nodes = map.nodes().to_vec();
    let is_kept = |range: &SlotRange| *range != SlotRange::new(3_300, 3_300).unwrap();
    nodes.iter_mut().for_each(|node| node.slots.retain(is_kept));
    let now = world.source.now();
    world.source.engine().set_map(Map::new(SOURCE, nodes, *map.service()), now);
    world.step();
    assert_eq!(world.state(), "failed Slots are no longer owned by myself");
}

#[test]
fn a_target_that_says_that_it_took_the_slots_is_waited_for_until_the_map_says_so() {
    let mut world = World::new();
    world.give_leave();
    (0..20).for_each(|_| _ = world.step());
    assert_eq!(world.state(), "failover-granted ");
    assert_eq!(world.voters.lock().unwrap().epoch, 1, "the source claims nothing");
    world.finish();
    assert_eq!(world.state(), "success ");
}

/// Leave was lost on its way, and the target says so when it is asked.
#[test]
fn a_target_that_has_called_its_import_off_is_believed_at_once() {
    let mut world = World::new();
    world.step_until("leave is given", |world| {
        let is_complete = |job: &std::sync::Arc<super::super::job::Job>| job.stage().word() == "failover-requested";
        world.is_deaf = world.target.engine().migration.jobs().first().is_some_and(is_complete);
        world.state().starts_with("failover-granted")
    });
    (world.is_deaf, world.is_blind) = (false, true);
    world.hang_up();
    world.came.clear();
    let began = world.source.now().unix_ms();
    world.step_until("it is over", |world| world.state().starts_with("failed"));
    assert_eq!(world.state(), "failed The target has not taken the slots");
    assert!(world.source.now().unix_ms() - began < 1_000);
    assert_eq!(world.voters.lock().unwrap().epoch, 1, "the source's claim was renewed");
    world.finish();
}

#[test]
fn a_target_that_refuses_to_tell_is_asked_twice_a_second() {
    let mut world = World::new();
    world.give_leave();
    world.hang_up();
    let began = world.source.now().unix_ms();
    let mut dials = 0;
    for _ in 0..STEPS_MAX {
        if world.source.now().unix_ms() - began >= 5_000 {
            break;
        }
        world.came = b"-LOADING it reads its data\r\n".to_vec();
        dials += usize::from(world.step() == "dial");
    }
    assert!((8..=10).contains(&dials), "{dials} dials in five seconds");
    world.came.clear();
    world.hang_up();
    world.finish();
}

#[test]
fn a_target_that_took_the_slots_and_is_not_heard_of_for_long_has_them() {
    let mut world = World::new();
    world.give_leave();
    world.is_apart = true;
    world.hang_up();
    world.came.clear();
    let (began, mut span_ms, mut dials) = (world.source.now().unix_ms(), 0, 0);
    for _ in 0..STEPS_MAX {
        if world.voters.lock().unwrap().epoch == 2 {
            break;
        }
        span_ms = world.source.now().unix_ms() - began;
        dials += usize::from(world.step() == "dial in vain");
    }
    // It is asked twice a second until the node timeout and five seconds more are over.
    assert_eq!((dials, span_ms), (41, 20_100));
    world.step();
    assert_eq!(world.state(), "success ", "the map says that the slots are the target's");
    world.is_apart = false;
    world.finish();
}
