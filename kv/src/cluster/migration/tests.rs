//! Two nodes, a line between them, and voters that decide at once. Nodes die at every step, and clients write between all of them.

mod course;
mod parts;

use std::sync::{Arc, Mutex, OnceLock, Weak};

use super::job::Stage;
use super::{Migrator, Step};
use crate::cluster::control::{Control, MessageFigures, Order, Ticket};
use crate::cluster::map::{Map, Name, Node, Place, Service, SlotRange};
use crate::engine::{Engine, EngineConfig};
use crate::keyspace::Slot;
use crate::memory::hash_key::HASH_KEY_BYTES;
use crate::persist::Replay;
use crate::rdb::ImportOptions;
use crate::replicate::quorum::TakeOver;
use crate::tests::{Talk, check_with};

const SOURCE: Name = Name::new([0x11; 20]);
const TARGET: Name = Name::new([0x22; 20]);
/// What the slots are asked for by: `{bar}` is in 5061, `{b}` in 3300. `{g}` stays, in 7233, and `{a}` is the
/// target's, in 15495.
const RANGES: &str = "5000 5100 3300 3300";
const DATABASES: usize = 2;
/// More steps than any migration takes, and so many rests in a row that nothing follows.
const STEPS_MAX: usize = 1_000;
const RESTS: usize = 12;

/// What becomes of leave to take slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Ballot {
    #[default]
    Won,
    Refused,
}

/// Who owns the slots that migrate.
#[derive(Debug, Default)]
struct Voters {
    is_target: bool,
    epoch: u64,
    ballot: Ballot,
    /// Until when the last leave that was used could be.
    until: Option<ashlar_wire::time::Instant>,
}

type Shared = Arc<Mutex<Voters>>;

fn map_of(own: Name, voters: &Shared) -> Map {
    let voters = voters.lock().unwrap();
    let range = |first, last| SlotRange::new(first, last).unwrap();
    let mut given = vec![range(5_000, 5_100), range(3_300, 3_300)];
    let kept = vec![range(0, 3_299), range(3_301, 4_999), range(5_101, 8_191)];
    let (mut source, mut target) = (kept, vec![range(8_192, 16_383)]);
    if voters.is_target {
        target.append(&mut given);
    } else {
        source.append(&mut given);
    }
    let node = |name, port, epoch, mut slots: Vec<SlotRange>| {
        slots.sort_unstable();
        let place = Place { host: "10.0.0.1".into(), port, ..Place::default() };
        Node { name, shard: name, place, epoch, slots, is_connected: true, ..Node::default() }
    };
    let nodes = vec![node(SOURCE, 7_001, 1, source), node(TARGET, 7_002, 2 + voters.epoch, target)];
    Map::new(own, nodes, Service { is_up: true, epoch: 9, ..Service::default() })
}

/// Decides at once, and tells the node itself at once.
#[derive(Debug)]
struct Seat {
    own: Name,
    voters: Shared,
    engine: Arc<OnceLock<Weak<Engine>>>,
}

impl Control for Seat {
    fn order(&self, order: Order, _ticket: Ticket) -> Option<Result<(), String>> {
        let mut voters = self.voters.lock().unwrap();
        match order {
            Order::Take { ranges, until } if voters.ballot == Ballot::Won => {
                assert_eq!(ranges.len(), 2);
                (voters.is_target, voters.epoch, voters.until) = (true, voters.epoch + 1, Some(until));
            }
            Order::Take { .. } => return Some(Err("not now".to_owned())),
            Order::Renew => voters.epoch += 1,
            other => panic!("{other:?}"),
        }
        drop(voters);
        let engine = self.engine.get().and_then(Weak::upgrade).expect("it orders while it lives");
        let now = crate::time::Now { unix_us: 0, instant: ashlar_wire::time::Instant::ORIGIN };
        engine.set_map(map_of(self.own, &self.voters), now);
        Some(Ok(()))
    }

    fn publish(&self, _channel: &[u8], _message: &[u8], _is_sharded: bool) {}

    fn listens(&self) {}

    fn message_figures(&self) -> MessageFigures {
        MessageFigures::default()
    }
}

fn node(own: Name, voters: &Shared, dump: &[u8]) -> Talk {
    let config = EngineConfig { secret: [3; HASH_KEY_BYTES], shards: 8, databases: DATABASES };
    let engine = Arc::new(Engine::new(&config));
    engine.configure("enable-debug-command", "yes").unwrap();
    if !dump.is_empty() {
        let mut import = engine.import_rdb(ImportOptions { is_own: true, ..ImportOptions::default() });
        import.handle_bytes(dump, Talk::new().now()).unwrap();
        import.finish().unwrap();
    }
    let known = Arc::new(OnceLock::new());
    known.set(Arc::downgrade(&engine)).unwrap();
    let seat = Seat { own, voters: Arc::clone(voters), engine: known };
    engine.join_cluster(map_of(own, voters), Box::new(seat));
    Talk::with(engine)
}

/// Both nodes, and an engine without a cluster that has done whatever clients were told was done.
struct World {
    voters: Shared,
    source: Talk,
    target: Talk,
    mirror: Talk,
    migrator: Migrator,
    tidier: Migrator,
    /// Whether the migrator has a connection, which client of the target it is, and what came back over it.
    line: Option<usize>,
    came: Vec<u8>,
    /// Whether the target cannot be reached.
    is_apart: bool,
    /// What is sent gets lost.
    is_deaf: bool,
    /// The map comes to the source only at the end.
    is_blind: bool,
    /// What clients wait for: their numbers at the source, and what they sent.
    waiting: Vec<(usize, String)>,
    writes: usize,
}

impl World {
    fn new() -> Self {
        let voters = Shared::default();
        let (source, target) = (node(SOURCE, &voters, &[]), node(TARGET, &voters, &[]));
        let (migrator, tidier) = (Migrator::new(source.engine_shared()), Migrator::new(target.engine_shared()));
        let mut world = Self {
            voters,
            source,
            target,
            mirror: Talk::new(),
            migrator,
            tidier,
            line: None,
            came: Vec::new(),
            is_apart: false,
            is_deaf: false,
            is_blind: false,
            waiting: Vec::new(),
            writes: 0,
        };
        for line in BEGIN.lines().map(str::trim) {
            world.write(line);
        }
        let order = format!("CLUSTER MIGRATESLOTS SLOTSRANGE {RANGES} NODE {TARGET}");
        assert_eq!(world.source.say(0, &order), "OK");
        world
    }

    /// A client writes where it is sent.
    fn write(&mut self, line: &str) {
        let client = self.source.join();
        let reply = self.source.say(client, line);
        self.note(client, line, &reply);
    }

    fn note(&mut self, client: usize, line: &str, reply: &str) {
        if reply.is_empty() {
            self.waiting.push((client, line.to_owned()));
            return;
        }
        let reply = if reply.starts_with("(error) MOVED") {
            let client = self.target.join();
            self.target.say(client, line)
        } else {
            reply.to_owned()
        };
        assert!(!reply.contains("MOVED"), "{line}: {reply}");
        let expected = self.mirror.say(0, line);
        assert_eq!(reply, expected, "{line}");
    }

    /// Those that wait look whether they may go on.
    fn look(&mut self) {
        for (client, line) in std::mem::take(&mut self.waiting) {
            let reply = crate::tests::readable(&self.source.mail(client));
            self.note(client, &line, &reply);
        }
    }

    /// Clients write to what was copied, to what was not, and to what stays.
    fn write_some(&mut self) {
        self.writes += 1;
        let number = self.writes;
        for line in [
            "INCR {bar}count".to_owned(),
            format!("RPUSH {{bar}}list {number}"),
            format!("SADD {{b}}set {number}"),
            format!("HSET {{b}}hash {number} {number}"),
            format!("SET {{g}}stays {number}"),
            format!("COPY {{bar}}{} {{bar}}copy REPLACE", number % 100),
            format!("RENAME {{b}}{} {{b}}{}", number % 150, (number * 7 + 1) % 150),
            "SUNIONSTORE {b}union {b}set {b}more".to_owned(),
        ] {
            self.write(&line);
        }
    }

    /// One step of the source's thread; what it was.
    fn step(&mut self) -> &'static str {
        if !self.is_blind {
            self.tell();
        }
        let now = self.source.now();
        match self.migrator.next_step(now) {
            Step::Rest(_) => {
                self.pass(100);
                self.tidy();
                "rest"
            }
            Step::Dial { .. } if self.is_apart => {
                self.migrator.handle_broken("it cannot be reached", now);
                "dial in vain"
            }
            Step::Dial { .. } => {
                (self.line, self.came) = (Some(self.target.join()), Vec::new());
                self.migrator.handle_connected(now);
                "dial"
            }
            Step::Send(bytes) => {
                match self.line.filter(|_| !self.is_deaf) {
                    Some(client) => self.came.extend(self.target.piece(client, &bytes)),
                    None if self.is_deaf => {}
                    None => self.migrator.handle_broken("there is no connection", now),
                }
                "send"
            }
            Step::Receive(_) => {
                self.receive(now);
                "receive"
            }
            Step::HangUp => {
                self.hang_up();
                "hang up"
            }
        }
    }

    fn receive(&mut self, now: crate::time::Now) {
        let came = std::mem::take(&mut self.came);
        match self.line {
            Some(_) if !came.is_empty() => self.migrator.handle_bytes(&came, now),
            Some(client) if !self.target.is_closed(client) => self.pass(50),
            _ => {
                self.hang_up();
                self.migrator.handle_broken("it has closed the connection", now);
            }
        }
    }

    /// Goes on until the source hears this in place of what the target answers.
    #[track_caller]
    fn hear(&mut self, answer: &str) {
        let is_heard = (0..STEPS_MAX).any(|_| {
            self.came = answer.into();
            self.step() == "receive"
        });
        assert!(is_heard, "not within {STEPS_MAX} steps: an answer is waited for");
    }

    /// Goes on until the target may take the slots and has; the source has not heard of it.
    #[track_caller]
    fn give_leave(&mut self) {
        self.step_until("leave is given", |world| world.state().starts_with("failover-granted"));
        assert!(self.voters.lock().unwrap().is_target, "the target takes them at once");
        self.is_blind = true;
    }

    fn hang_up(&mut self) {
        if let Some(client) = self.line.take() {
            // Nobody else may take its number.
            self.target.join();
            self.target.leave(client);
        }
    }

    fn tell(&mut self) {
        let now = self.source.now();
        self.source.engine().set_map(map_of(SOURCE, &self.voters), now);
        self.target.engine().set_map(map_of(TARGET, &self.voters), now);
    }

    fn pass(&mut self, ms: i64) {
        [&mut self.source, &mut self.target, &mut self.mirror].into_iter().for_each(|talk| talk.wait(ms));
    }

    /// Goes on until something is so.
    #[track_caller]
    fn step_until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let is_reached = (0..STEPS_MAX).any(|_| {
            let is_so = is_so(self);
            if !is_so {
                self.step();
            }
            is_so
        });
        assert!(is_reached, "not within {STEPS_MAX} steps: {what}");
    }

    /// The target's thread does what it finds.
    fn tidy(&mut self) {
        let now = self.target.now();
        let goes_on = |_| self.tidier.next_step(now) == Step::Rest(std::time::Duration::ZERO);
        assert!(!(0..STEPS_MAX).all(goes_on), "it tidies for ever");
    }

    /// The target's process ends, and begins again with what it had.
    fn lose_target(&mut self) {
        self.line = None;
        let (now, dump) = (self.target.now(), self.target.engine().export_rdb(self.target.now()));
        self.target = node(TARGET, &self.voters, &dump);
        self.target.wait(ms_of(now));
        self.tidier = Migrator::new(self.target.engine_shared());
        self.came.clear();
    }

    /// The same of the source. Those that waited are told nothing.
    fn lose_source(&mut self) {
        self.hang_up();
        self.waiting.clear();
        let (now, dump) = (self.source.now(), self.source.engine().export_rdb(self.source.now()));
        self.source = node(SOURCE, &self.voters, &dump);
        self.source.wait(ms_of(now));
        self.migrator = Migrator::new(self.source.engine_shared());
    }

    /// Everybody goes on until nothing happens any more, and what there is then is right.
    fn finish(&mut self) {
        self.is_blind = false;
        let mut rests = 0;
        for _ in 0..STEPS_MAX {
            rests = if self.step() == "rest" { rests + 1 } else { 0 };
            self.tidy();
            self.look();
            if rests == RESTS {
                break;
            }
        }
        assert!(self.waiting.is_empty(), "nobody waits for ever");
        self.check();
    }

    fn check(&mut self) {
        let is_target = self.voters.lock().unwrap().is_target;
        for database in 0..DATABASES {
            let mut sum = 0;
            for talk in [&mut self.source, &mut self.target, &mut self.mirror] {
                assert_eq!(talk.say(0, &format!("SELECT {database}")), "OK");
            }
            let keys = self.mirror.say(0, "KEYS *");
            for key in keys.trim_matches(['[', ']']).split(' ').filter(|key| !key.is_empty()) {
                let slot = Slot::of(key.trim_matches('"').as_bytes()).number();
                let moves = (5_000..=5_100).contains(&slot) || slot == 3_300;
                let owner = if slot > 8_191 || moves && is_target { &mut self.target } else { &mut self.source };
                for question in ["DEBUG DIGEST-VALUE", "PEXPIRETIME"] {
                    let line = format!("{question} {key}");
                    assert_eq!(owner.say(0, &line), self.mirror.say(0, &line), "{line}, target: {is_target}");
                }
                sum += 1;
            }
            let size = |talk: &mut Talk| talk.say(0, "DBSIZE").parse::<usize>().unwrap();
            assert_eq!(size(&mut self.source) + size(&mut self.target), sum, "no key is at both");
        }
        let other = if is_target { &self.source } else { &self.target };
        for slot in (5_000..=5_100).chain([3_300]).filter_map(Slot::new) {
            assert!(!other.engine().has_keys_in(slot), "what is left behind is removed");
        }
        for talk in [&self.source, &self.target] {
            assert!(!talk.engine().migration.copies.is_any() && !talk.engine().migration.hold.is_on());
            assert!(!talk.engine().migration.is_listening());
        }
    }

    fn state(&mut self) -> String {
        let jobs = self.source.engine().migration.jobs();
        jobs.first().map_or("none".into(), |job| format!("{} {}", job.stage().word(), job.progress().message))
    }
}

fn ms_of(now: crate::time::Now) -> i64 {
    now.unix_ms() - crate::tests::BEGIN_MS
}

/// What is there at the beginning: every kind of value, with and without a time to live, and many keys of one slot.
const BEGIN: &str = "SET {bar}string text
    SET {bar}expires text PX 1000000
    RPUSH {bar}list a b c
    SADD {b}set a b c
    SADD {b}more d e
    SADD {bar}numbers 1 2 3
    ZADD {bar}zset 1 a 2 b
    HSET {b}hash a 1 b 2
    HSET {bar}fields a 1 b 2
    HPEXPIRE {bar}fields 1000000 FIELDS 1 a
    XADD {bar}stream 1-1 a 1
    XGROUP CREATE {bar}stream group 0
    SET {g}stays 1
    SET {a}theirs 1
    EVAL \"for n=0,99 do redis.call('SET',KEYS[1]..n,string.rep('x',200)) end\" 1 {bar}
    EVAL \"for n=0,149 do redis.call('SET',KEYS[1]..n,n) end\" 1 {b}";

/// Runs `steps` steps with writes between them.
fn begun(steps: usize) -> World {
    let mut world = World::new();
    for _ in 0..steps {
        world.step();
        world.write_some();
        world.look();
    }
    world
}

/// Copies go until none is left that may go.
#[track_caller]
fn settle(engine: &Engine, map: &Map, now: crate::time::Now) {
    assert!(!(0..STEPS_MAX).all(|_| engine.settle_copies(map, now)), "copies go for ever");
}

/// How many steps a migration takes.
fn steps() -> usize {
    let mut world = World::new();
    (0..STEPS_MAX)
        .find(|_| {
            world.step();
            world.write_some();
            world.look();
            world.state().starts_with("success")
        })
        .expect("it comes to an end")
}

#[test]
fn no_leave_is_given_before_the_log_of_the_source_says_that_its_keys_are_copies() {
    let mut world = World::new();
    let engine = world.source.engine_shared();
    engine.journal().start(0, Box::new(|| {}));
    (0..STEPS_MAX)
        .find(|_| {
            world.step();
            engine.migration.copies.is_any()
        })
        .expect("that is noted");
    // Nothing is in the log yet: who starts again now knows of no copies.
    for _ in 0..5 {
        world.step();
    }
    assert_eq!(world.state(), "failover-paused ");
    assert!(!world.voters.lock().unwrap().is_target);
    engine.journal().release(engine.journal().end());
    world.finish();
    assert_eq!(world.state(), "success ");
    assert!(world.voters.lock().unwrap().is_target);
}

#[test]
fn the_log_tells_of_copies_before_the_engine_is_a_node() {
    let mut world = World::new();
    let engine = world.source.engine_shared();
    engine.journal().start(0, Box::new(|| {}));
    world.step_until("copies are noted", |_| engine.migration.copies.is_any());
    let again = Arc::new(Engine::new(&EngineConfig { secret: [3; HASH_KEY_BYTES], shards: 8, databases: DATABASES }));
    Replay::new(Arc::clone(&again)).handle_batch(&engine.journal().take().batch, world.source.now()).unwrap();
    assert_eq!(again.migration.copies.show(), engine.migration.copies.show());
}

#[test]
fn copies_stay_noted_while_nobody_is_known_to_own_their_slot() {
    let voters = Shared::default();
    let mut target = node(TARGET, &voters, b"");
    let (engine, now, all) = (target.engine_shared(), target.now(), map_of(TARGET, &voters));
    // Keys that are there before the node knows whose they are.
    voters.lock().unwrap().is_target = true;
    engine.set_map(map_of(TARGET, &voters), now);
    assert_eq!(target.say(0, "SET {bar}copy 1"), "OK");
    let slots = super::SlotTable::of(&[SlotRange::new(5_000, 5_100).unwrap()]);
    engine.note_copies(&slots, true, now);
    // The source has just been started again, and has not said yet what it is.
    engine.set_map(Map::new(TARGET, vec![all.own().clone()], *all.service()), now);
    engine.settle_copies(&all, now);
    assert!(engine.migration.copies.table().has(Slot::of(b"bar")) && engine.has_keys_in(Slot::of(b"bar")));
    engine.set_map(map_of(TARGET, &Shared::default()), now);
    settle(&engine, &all, now);
    assert!(!engine.migration.copies.is_any() && !engine.has_keys_in(Slot::of(b"bar")));
}

#[test]
fn a_slot_whose_copies_are_left_is_told_and_not_imported_key_by_key() {
    let voters = Shared::default();
    let mut target = node(TARGET, &voters, b"");
    let (engine, now) = (target.engine_shared(), target.now());
    engine.note_copies(&super::SlotTable::of(&[SlotRange::new(5_060, 5_061).unwrap()]), true, now);
    assert!(target.say(0, "CLUSTER INFO").contains("cluster_slots_copies:5060-5061"));
    let import = format!("CLUSTER SETSLOT 5061 IMPORTING {SOURCE}");
    assert!(target.say(0, &import).contains("still being removed"), "keys that came would go with the copies");
    settle(&engine, &map_of(TARGET, &voters), now);
    assert!(!target.say(0, "CLUSTER INFO").contains("cluster_slots_copies"));
    assert_eq!(target.say(0, &import), "OK");
}

#[test]
fn what_comes_by_a_migration_is_tidied_by_nobody() {
    let mut world = World::new();
    world.write("SET {bar}comes 1");
    let (engine, now) = (world.target.engine_shared(), world.target.now());
    let came =
        |engine: &Engine| (5_000..=5_100).filter(|number| engine.has_keys_in(Slot::new(*number).unwrap())).count();
    (0..STEPS_MAX)
        .find(|_| {
            world.step();
            came(&engine) > 0
        })
        .expect("keys come");
    let before = came(&engine);
    // Somebody looked for what is under way before the import began, and goes on now.
    let slots = super::SlotTable::of(&[SlotRange::new(5_000, 5_100).unwrap()]);
    for slot in slots.slots() {
        engine.drop_keys(slot, false, false, now);
    }
    engine.end_copies(slots.clone(), now);
    assert_eq!(came(&engine), before);
    assert!(slots.slots().all(|slot| engine.migration.copies.table().has(slot)), "they are copies still");
    world.finish();
    assert_eq!(world.state(), "success ");
}

#[test]
fn an_import_is_known_before_its_slots_are_noted() {
    let mut world = World::new();
    let engine = world.target.engine_shared();
    let (weak, jobs) = (Arc::downgrade(&engine), Arc::new(OnceLock::new()));
    let seen = Arc::clone(&jobs);
    // Called when the first thing is written to the log, which is the note.
    engine.journal().start(
        0,
        Box::new(move || {
            seen.get_or_init(|| weak.upgrade().expect("it is tested").migration.jobs().len());
        }),
    );
    world.step_until("copies are noted", |_| engine.migration.copies.is_any());
    assert_eq!(jobs.get(), Some(&1), "else whoever tidies meanwhile takes the note back");
}

#[test]
fn slots_go_with_all_their_keys_while_clients_write() {
    let mut world = begun(steps() + 1);
    assert_eq!(world.state(), "success ");
    world.finish();
    assert!(world.voters.lock().unwrap().is_target);
    let shown = world.target.say(0, "CLUSTER GETSLOTMIGRATIONS");
    let expected = "\"operation\" \"IMPORT\" \"slot_ranges\" \"5000-5100 3300-3300\"";
    assert!(shown.contains(expected) && shown.contains("\"state\" \"success\""), "{shown}");
}

#[test]
fn a_target_that_dies_at_any_step_loses_and_doubles_nothing() {
    for step in 0..=steps() + 1 {
        let mut world = begun(step);
        world.lose_target();
        world.write_some();
        world.finish();
    }
}

#[test]
fn a_source_that_dies_at_any_step_loses_and_doubles_nothing() {
    for step in 0..=steps() + 1 {
        let mut world = begun(step);
        world.lose_source();
        world.finish();
    }
}

#[test]
fn a_line_that_breaks_at_any_step_loses_and_doubles_nothing() {
    for step in 0..=steps() + 1 {
        for is_blind in [false, true] {
            let mut world = begun(step);
            world.is_blind = is_blind;
            world.hang_up();
            world.came.clear();
            for _ in 0..20 {
                world.step();
                world.write_some();
                world.look();
            }
            world.finish();
        }
    }
}

#[test]
fn writes_wait_until_it_is_known_who_has_the_slots() {
    for is_won in [true, false] {
        let mut world = World::new();
        world.step_until("writes wait", |world| world.state().starts_with("failover-paused"));
        // Leave is sent. It comes too late or not at all, or the answer never comes.
        world.step_until("leave is given", |world| {
            world.is_deaf = !is_won && world.target.engine().migration.jobs()[0].stage() == Stage::Complete;
            world.state().starts_with("failover-granted")
        });
        (world.is_deaf, world.is_blind, world.is_apart) = (false, true, true);
        world.hang_up();
        world.came.clear();
        for _ in 0..10 {
            world.step();
            world.write("INCR {bar}count");
            world.look();
        }
        assert!(!world.waiting.is_empty(), "nobody knows yet");
        world.write("SET {g}stays again");
        world.is_apart = false;
        world.finish();
        assert_eq!(world.state().starts_with("success"), is_won, "{}", world.state());
    }
}

/// Answers that cannot be read: no line of an answer, and one without an end.
fn unreadable() -> [String; 2] {
    ["!\r\n".to_owned(), "+".repeat(5_000)]
}

#[test]
fn a_target_that_answers_nonsense_before_leave_is_given_gets_nothing() {
    for (answer, why) in unreadable().into_iter().zip(["something else than a line", "too long a line"]) {
        for stage in ["reading-establish-response", "snapshotting", "replicating", "failover-paused"] {
            let mut world = World::new();
            world.step_until(stage, |world| world.state().starts_with(stage));
            world.hear(&answer);
            assert_eq!(world.state(), format!("failed The target answers with {why}"), "{stage}");
            world.step();
            world.write_some();
            assert!(world.waiting.is_empty(), "{stage}: no write waits any longer");
            world.finish();
            assert!(!world.voters.lock().unwrap().is_target, "{stage}");
        }
    }
}

#[test]
fn a_refusal_at_any_stage_is_told() {
    for stage in ["reading-establish-response", "snapshotting", "replicating", "failover-paused"] {
        let mut world = World::new();
        world.step_until(stage, |world| world.state().starts_with(stage));
        world.hear("-ERR no more\r\n");
        let state = world.state();
        assert!(state.starts_with("failed ") && state.ends_with("-ERR no more"), "{stage}: {state}");
        world.finish();
    }
}

#[test]
fn what_has_become_of_leave_is_asked_until_it_can_be_read() {
    for answer in unreadable() {
        let mut world = World::new();
        world.give_leave();
        for _ in 0..3 {
            world.hear(&answer);
            assert_eq!(world.state(), "failover-granted ", "nobody knows yet");
            world.write("INCR {bar}count");
        }
        assert_eq!(world.waiting.len(), 3);
        world.hear("+taken\r\n");
        // The map is late by more than the target may be silent for, and no claim is renewed: it is the target's.
        for _ in 0..STEPS_MAX {
            world.step();
        }
        assert_eq!((world.state().as_str(), world.waiting.len()), ("failover-granted ", 3));
        assert_eq!(world.voters.lock().unwrap().epoch, 1, "only the target has claimed anything");
        world.finish();
        assert_eq!(world.state(), "success ");
    }
}

#[test]
fn a_target_that_answers_nonsense_for_ever_is_asked_twice_a_second_and_then_no_more() {
    for answer in unreadable() {
        let mut world = World::new();
        world.step_until("leave is given", |world| {
            world.is_deaf =
                world.target.engine().migration.jobs()[..].first().is_some_and(|job| job.stage() == Stage::Complete);
            world.state().starts_with("failover-granted")
        });
        (world.is_deaf, world.is_blind) = (false, true);
        let (began, mut dials) = (world.source.now().unix_ms(), 0);
        for _ in 0..STEPS_MAX {
            if world.state().starts_with("failed") {
                break;
            }
            world.came = answer.as_bytes().into();
            dials += usize::from(world.step() == "dial");
        }
        let span_ms = usize::try_from(world.source.now().unix_ms() - began).unwrap();
        assert!((20_000..22_000).contains(&span_ms), "{span_ms}");
        assert!((span_ms / 700..=span_ms / 500 + 1).contains(&dials), "{dials} in {span_ms} ms");
        assert_eq!(world.state(), "failed The target did not say whether it has taken the slots");
        assert_eq!(world.voters.lock().unwrap().epoch, 1, "the source's claim was renewed");
        world.finish();
    }
}

#[test]
fn a_target_that_never_says_that_it_has_all_ends_it_when_writes_have_waited_long_enough() {
    let mut world = World::new();
    world.step_until("writes wait", |world| {
        world.is_deaf = world.state().starts_with("waiting-to-pause") || world.state().starts_with("failover-paused");
        world.state().starts_with("failover-paused")
    });
    let began = world.source.now().unix_ms();
    world.came.clear();
    world.write("INCR {bar}count");
    assert_eq!(world.waiting.len(), 1);
    world.step_until("it ends", |world| {
        world.came.clear();
        world.state().starts_with("failed")
    });
    assert_eq!(world.state(), "failed Timed out before streaming completed");
    let span_ms = world.source.now().unix_ms() - began;
    assert!((5_000..5_200).contains(&span_ms), "cluster-manual-failover-timeout is 5 s: {span_ms}");
    world.is_deaf = false;
    world.finish();
}

#[test]
fn a_source_that_becomes_a_replica_gives_nothing() {
    for is_granted in [false, true] {
        let mut world = World::new();
        if is_granted {
            world.give_leave();
        } else {
            world.step_until("writes wait", |world| world.state().starts_with("failover-paused"));
        }
        // The target is its primary now, and owns all that it had.
        let map = map_of(SOURCE, &world.voters);
        let [mut own, mut primary] = [SOURCE, TARGET].map(|name| map.node(name).unwrap().clone());
        primary.slots = vec![SlotRange::new(0, 16_383).unwrap()];
        (own.primary, own.shard, own.slots) = (Some(TARGET), TARGET, Vec::new());
        world.is_blind = true;
        let now = world.source.now();
        world.source.engine().set_map(Map::new(SOURCE, vec![own, primary], *map.service()), now);
        world.step();
        assert_eq!(world.state(), "failed Source node is a replica now", "leave given: {is_granted}");
    }
}

#[test]
fn only_who_has_given_leave_is_giving_slots_and_nobody_can_call_that_off() {
    let mut world = World::new();
    world.step_until("leave is given", |world| {
        let is_granted = world.state().starts_with("failover-granted");
        assert_eq!(world.source.engine().is_giving_slots(), is_granted);
        assert!(!world.target.engine().is_giving_slots(), "who takes slots gives none");
        is_granted
    });
    world.is_blind = true;
    assert_eq!(world.source.say(0, "CLUSTER CANCELSLOTMIGRATIONS"), "OK");
    assert_eq!(world.state(), "failover-granted ", "the target may have taken them");
    world.finish();
    assert_eq!(world.state(), "success ");
}

#[test]
fn who_may_have_given_slots_away_in_an_earlier_life_claims_them_anew_before_it_takes_writes() {
    let mut world = World::new();
    world.voters.lock().unwrap().ballot = Ballot::Refused;
    world.step_until("copies are noted", |world| world.source.engine().migration.copies.is_any());
    let epoch = world.voters.lock().unwrap().epoch;
    world.lose_source();
    let engine = world.source.engine_shared();
    engine.set_map(map_of(SOURCE, &world.voters), world.source.now());
    world.write("INCR {bar}count");
    assert_eq!(world.waiting.len(), 1, "the target may have taken the slots and died");
    world.write("SET {of-others}key value");
    assert_eq!(world.waiting.len(), 1, "that slot was never to go");
    world.finish();
    assert_eq!(world.voters.lock().unwrap().epoch, epoch + 1, "the claim was renewed");
    assert!(!engine.migration.copies.is_any());
}

#[test]
fn a_ballot_that_is_lost_leaves_everything_as_it_was() {
    let mut world = World::new();
    world.voters.lock().unwrap().ballot = Ballot::Refused;
    world.finish();
    assert_eq!(world.state(), "failed The target has refused: -ERR not now");
    assert_eq!(world.voters.lock().unwrap().epoch, 1, "the source's claim was renewed");
}

#[test]
fn a_migration_that_is_called_off_leaves_everything_as_it_was() {
    let all = steps();
    for step in 0..all {
        let mut world = begun(step);
        let said = world.source.say(0, "CLUSTER CANCELSLOTMIGRATIONS");
        assert_eq!(said, "OK");
        world.finish();
        let state = world.state();
        assert!(state.starts_with("cancelled") || state.starts_with("success"), "{step}: {state}");
    }
}

#[test]
fn data_that_are_flushed_at_either_end_end_it() {
    for at_source in [true, false] {
        let mut world = begun(4);
        if at_source {
            world.write("FLUSHALL");
            world.target.say(0, "FLUSHALL");
        } else {
            assert_eq!(world.target.say(0, "FLUSHALL"), "OK");
            world.mirror.say(0, "DEL {a}theirs");
        }
        world.finish();
        assert!(world.state().starts_with("failed"), "{}", world.state());
    }
}

#[test]
fn keys_that_come_are_seen_by_nobody() {
    let mut world = World::new();
    world.step_until("keys come", |world| world.target.engine().has_keys_in(Slot::new(5_061).unwrap()));
    check_with(
        &mut world.target,
        "the target",
        "> DBSIZE
        1
        > KEYS *
        [\"{a}theirs\"]
        > RANDOMKEY
        \"{a}theirs\"
        > SCAN 0 COUNT 100000
        [\"0\" [\"{a}theirs\"]]
        > GET {bar}string
        (error) MOVED 5061 10.0.0.1:7001
        > CLUSTER CANCELSLOTMIGRATIONS
        (error) ERR No migrations ongoing",
    );
}

#[test]
fn what_is_asked_for_is_checked() {
    let voters = Shared::default();
    let target = TARGET.to_string();
    let lines = format!(
        "> CLUSTER MIGRATESLOTS SLOTSRANGE
        (error) ERR wrong number of arguments for 'cluster|migrateslots' command
        > CLUSTER MIGRATESLOTS INVALID 0 1
        (error) ERR syntax error
        > CLUSTER MIGRATESLOTS SLOTSRANGE 0
        (error) ERR No end slot for final slot range
        > CLUSTER MIGRATESLOTS SLOTSRANGE 16380 16388
        (error) ERR Invalid or out of range slot
        > CLUSTER MIGRATESLOTS SLOTSRANGE a 0
        (error) ERR No slot ranges specified
        > CLUSTER MIGRATESLOTS SLOTSRANGE 0 a
        (error) ERR Invalid or out of range slot
        > CLUSTER MIGRATESLOTS SLOTSRANGE 1 0
        (error) ERR Start slot number 1 is greater than end slot number 0.
        > CLUSTER MIGRATESLOTS SLOTSRANGE 0 16383
        (error) ERR Requested slots span multiple shards
        > CLUSTER MIGRATESLOTS SLOTSRANGE 0 5 3 6
        (error) ERR Slot range 3-6 overlaps with previous range 0-5.
        > CLUSTER MIGRATESLOTS SLOTSRANGE 0 0
        (error) ERR syntax error
        > CLUSTER MIGRATESLOTS SLOTSRANGE 0 0 NODE
        (error) ERR syntax error
        > CLUSTER MIGRATESLOTS SLOTSRANGE 0 0 NODE blah
        (error) ERR Invalid node name: blah
        > CLUSTER MIGRATESLOTS SLOTSRANGE 0 0 NODE {SOURCE}
        (error) ERR Target node can not be this node.
        > CLUSTER MIGRATESLOTS SLOTSRANGE 0 0 NODE 3333333333333333333333333333333333333333
        (error) ERR Unknown node name: 3333333333333333333333333333333333333333
        > CLUSTER MIGRATESLOTS SLOTSRANGE 9000 9000 NODE {target}
        (error) ERR Slots are not served by this node.
        > CLUSTER MIGRATESLOTS SLOTSRANGE 1 1 NODE {target} SLOTSRANGE 0 2 NODE {target}
        (error) ERR Slot ranges in migrations overlap
        > CLUSTER SETSLOT 0 MIGRATING {target}
        OK
        > CLUSTER MIGRATESLOTS SLOTSRANGE 1 1 NODE {target}
        (error) ERR Slots are being manually migrated
        > CLUSTER SETSLOT 0 STABLE
        OK
        > CLUSTER CANCELSLOTMIGRATIONS
        (error) ERR No migrations ongoing
        > CLUSTER MIGRATESLOTS SLOTSRANGE 1 3 NODE {target}
        OK
        > CLUSTER MIGRATESLOTS SLOTSRANGE 0 0 3 3 NODE {target}
        (error) ERR I am already migrating slot 3.
        > CLUSTER CANCELSLOTMIGRATIONS
        OK
        > CLUSTER SYNCSLOTS TAKE
        (error) ERR CLUSTER SYNCSLOTS is for a connection that slots come over
        > CLUSTER SYNCSLOTS ESTABLISH SOURCE {target} NAME {target} SLOTSRANGE 0 0
        (error) ERR Target node does not agree about current slot ownership
        > CLUSTER SYNCSLOTS ESTABLISH SOURCE {SOURCE} NAME {target} SLOTSRANGE 0 0
        (error) ERR Source node is target node itself
        > MULTI
        OK
        > CLUSTER SYNCSLOTS ESTABLISH SOURCE {target} NAME {target} SLOTSRANGE 9000 9000
        QUEUED
        > EXEC
        [(error) ERR slots cannot be taken within a transaction or a script]
        > CLUSTER SYNCSLOTS NONSENSE
        (error) ERR syntax error"
    );
    check_with(&mut node(SOURCE, &voters, &[]), "source", &lines);
}

#[test]
fn shards_whose_writes_a_majority_acknowledges_keep_their_slots() {
    let refusal = "Slots do not migrate from or to a shard with replication-quorum";
    let voters = Shared::default();
    let mut source = node(SOURCE, &voters, &[]);
    let order = format!("CLUSTER MIGRATESLOTS SLOTSRANGE {RANGES} NODE {TARGET}");
    source.engine().configure("replication-quorum", "yes").unwrap();
    assert_eq!(source.say(0, &order), format!("(error) ERR {refusal}"));
    let map = map_of(SOURCE, &voters);
    assert!(source.engine().must_take_over(&map));
    assert_eq!(source.engine().begin_take_over(&map, 1, source.now()).unwrap_err(), TakeOver::Done);
    source.engine().configure("replication-quorum", "no").unwrap();
    assert_eq!(source.say(0, &order), format!("(error) ERR {refusal}"), "it stays in that mode");

    let mut world = World::new();
    world.target.engine().configure("replication-quorum", "yes").unwrap();
    world.finish();
    let expected = format!("failed Received error during handshake to target: -ERR {refusal}");
    assert_eq!(world.state(), expected);
    assert!(!world.voters.lock().unwrap().is_target);
}

#[test]
fn a_shard_enters_the_mode_of_majorities_when_no_slots_are_on_their_way() {
    let mut world = World::new();
    world.step_until("slots are on their way", |world| world.state().starts_with("replicating"));
    for talk in [&world.source, &world.target] {
        talk.engine().configure("replication-quorum", "yes").unwrap();
    }
    let needs = |world: &World| {
        let (source, target) = (map_of(SOURCE, &world.voters), map_of(TARGET, &world.voters));
        [world.source.engine().must_take_over(&source), world.target.engine().must_take_over(&target)]
    };
    assert_eq!(needs(&world), [false, false]);
    world.finish();
    assert_eq!(world.state(), "success ");
    assert_eq!(needs(&world), [true, true]);
}
