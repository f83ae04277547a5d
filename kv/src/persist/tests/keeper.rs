//! An engine, its journal and its log, when power is lost.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ashlar_wire::time::Instant;

use super::folder::{Chance, MemoryFolder};
use crate::engine::{Engine, EngineConfig};
use crate::memory::hash_key::HASH_KEY_BYTES;
use crate::persist::folder::Syncer;
use crate::persist::log::{BaseChecksum, LogError};
use crate::persist::snapshot::{Purpose, Step};
use crate::persist::{Folder, Keeper, NewBase, Snapshot};
use crate::settings::LogSync;
use crate::tests::{BEGIN_MS, Talk, readable};
use crate::time::Now;

const ID: [u8; 16] = [4; 16];

fn engine() -> Arc<Engine> {
    Arc::new(Engine::new(&EngineConfig { secret: [6; HASH_KEY_BYTES], shards: 4, databases: 16 }))
}

fn recover(folder: &MemoryFolder) -> Result<(Talk, Keeper<MemoryFolder>), LogError> {
    let engine = engine();
    let now = Now { unix_us: BEGIN_MS * 1_000, instant: Instant::from_nanos(1) };
    let (keeper, _) = Keeper::recover(Arc::clone(&engine), folder.clone(), ID, Box::new(|| {}), now)?;
    let mut talk = Talk::with(engine);
    talk.say(0, "CONFIG SET appendfsync always");
    Ok((talk, keeper))
}

/// Gives the log a new base.
fn rewrite(talk: &Talk, keeper: &mut Keeper<MemoryFolder>, folder: &MemoryFolder) -> Result<(), LogError> {
    let mut folder = folder.clone();
    let mut snapshot = Snapshot::begin(talk.engine_shared(), Purpose::LogBase, true, talk.now());
    while snapshot.step() != Step::Done {}
    let (bytes, mut checksum) = (snapshot.take(), BaseChecksum::default());
    checksum.update(&bytes);
    let (name, position) = (format!("base-{}.rdb", folder.operations()), snapshot.position());
    keeper.turn(talk.now().instant)?;
    let written = folder.append(&name, &bytes).and_then(|()| folder.syncer(&name)());
    if written.is_ok() && keeper.look(|log| log.begins_at(position)) {
        let length = u64::try_from(bytes.len()).unwrap();
        keeper.install(&NewBase { name, length, checksum: checksum.value(), position, keys: 0 })?;
    }
    Ok(())
}

/// Counts up until the power goes. Returns the last number that was told, and the last that was tried.
fn count_up(
    talk: &mut Talk,
    keeper: &mut Keeper<MemoryFolder>,
    folder: &MemoryFolder,
    chance: &mut Chance,
    from: u64,
) -> (u64, u64) {
    let (mut tried, mut told) = (from, from);
    for _ in 0..30 {
        let mut done = Ok(());
        match chance.draw(10) {
            0 => done = rewrite(talk, keeper, folder),
            1 => talk.wait(700),
            2..5 => done = keeper.turn(talk.now().instant).map(drop),
            _ => {
                tried += 1;
                let reply = talk.say(0, "INCR counter");
                assert!(reply == tried.to_string() || reply.contains("MISCONF"), "{reply}");
                if reply.contains("MISCONF") {
                    tried -= 1;
                }
                talk.say(0, &format!("RPUSH list {tried}"));
            }
        }
        if matches!(done, Err(LogError::Lost { .. })) {
            break;
        }
        if talk.session(0).holds().is_none() {
            told = tried;
        }
    }
    (told, tried)
}

#[test]
fn what_was_told_is_there_after_power_is_lost() {
    let mut lost = 0;
    for seed in 0..150 {
        let (folder, mut chance) = (MemoryFolder::default(), Chance(seed));
        let (mut told, mut tried) = (0, 0);
        for round in 0..6 {
            folder.lose_power_after(chance.draw(40));
            match recover(&folder) {
                Ok((mut talk, mut keeper)) => {
                    let reply = talk.say(0, "GET counter");
                    let found: u64 = reply.trim_matches('"').parse().unwrap_or(0);
                    assert!(
                        told <= found && found <= tried,
                        "seed {seed} round {round}: {found} not in {told}..={tried}"
                    );
                    (told, tried) = count_up(&mut talk, &mut keeper, &folder, &mut chance, found);
                    lost += tried - told;
                }
                Err(LogError::Damaged { file, offset, what }) => {
                    panic!("seed {seed} round {round}: {file} {offset} {what}")
                }
                Err(_) => {}
            }
            folder.restart(&mut Chance(seed * 100 + round));
        }
    }
    assert!(lost > 100, "the power is lost when something is on its way: {lost}");
}

/// A keeper that is called when it asked for it, or is woken, and at no other time.
#[test]
fn what_is_written_is_durable_within_a_second_and_then_the_keeper_rests() {
    let (engine, folder, woken) = (engine(), MemoryFolder::default(), Arc::new(AtomicBool::new(true)));
    let wake = Arc::clone(&woken);
    let now = Now { unix_us: BEGIN_MS * 1_000, instant: Instant::from_nanos(1) };
    let wake = Box::new(move || wake.store(true, Ordering::Relaxed));
    let (mut keeper, _) = Keeper::recover(Arc::clone(&engine), folder.clone(), ID, wake, now).unwrap();
    let mut talk = Talk::with(engine);
    assert_eq!(talk.say(0, "CONFIG SET appendfsync everysec"), "OK");
    let (mut due, mut turns, mut written) = (None, 0, Vec::new());
    for ms in 0..60_000_u64 {
        talk.wait(1);
        if ms < 10_000 && ms % 370 == 0 {
            talk.say(0, "INCR counter");
            written.push((ms, talk.engine().journal().end()));
        }
        let now = talk.now().instant;
        if woken.swap(false, Ordering::Relaxed) || due.is_some_and(|due| due <= now) {
            due = keeper.turn(now).unwrap().again;
            turns += u64::from(ms >= 20_000);
        }
        let durable = keeper.look(|log| log.durable());
        let late = written.iter().find(|(at, end)| ms > at + 1_100 && *end > durable);
        assert_eq!(late, None, "at {ms} ms");
    }
    assert_eq!(turns, 0, "nothing is written for 40 s");
    folder.restart(&mut Chance(1));
    assert_eq!(recover(&folder).unwrap().0.say(0, "GET counter"), "\"28\"");
}

#[test]
fn a_log_that_is_closed_is_recovered_whole() {
    let folder = MemoryFolder::default();
    let (mut talk, mut keeper) = recover(&folder).unwrap();
    for number in 1..=100 {
        assert_eq!(talk.say(0, "INCR counter"), number.to_string());
        if number == 50 {
            rewrite(&talk, &mut keeper, &folder).unwrap();
        }
    }
    assert!(talk.session(0).holds().is_some(), "nothing was written yet");
    keeper.finish(talk.now().instant).unwrap();
    assert!(talk.session(0).holds().is_none());
    folder.restart(&mut Chance(1));
    let (mut talk, _) = recover(&folder).unwrap();
    assert_eq!(talk.say(0, "GET counter"), "\"100\"");
}

/// Runs a request and sends its reply as a connection does. Nothing if it has to wait.
fn converse(talk: &mut Talk, client: usize, request: &str) -> Option<String> {
    talk.session_mut(client);
    let reply = talk.say(client, request);
    let session = talk.session_mut(client);
    match session.holds() {
        Some(position) if !session.write_out(position) => None,
        _ => Some(reply),
    }
}

#[test]
fn what_was_told_is_there_after_the_process_died() {
    for mode in ["everysec", "no"] {
        let folder = MemoryFolder::default();
        let (mut talk, mut keeper) = recover(&folder).unwrap();
        talk.say(0, &format!("CONFIG SET appendfsync {mode}"));
        for number in 1..=50 {
            assert_eq!(converse(&mut talk, 0, "INCR counter"), Some(number.to_string()), "{mode}");
            // What another client reads is told as well.
            talk.session_mut(1);
            talk.say(1, "INCR other");
            assert_eq!(converse(&mut talk, 2, "GET other"), Some(format!("\"{number}\"")));
            if number == 20 {
                rewrite(&talk, &mut keeper, &folder).unwrap();
            }
            // The process is gone here; what the kernel has stays.
            let mut again = recover(&folder.copy()).unwrap().0;
            assert_eq!(again.say(0, "MGET counter other"), format!("[\"{number}\" \"{number}\"]"), "{mode}");
        }
    }
}

#[test]
fn a_client_waits_while_the_log_is_rotated() {
    let folder = MemoryFolder::default();
    let (mut talk, mut keeper) = recover(&folder).unwrap();
    talk.say(0, "CONFIG SET appendfsync everysec");
    talk.say(0, "SET a 1");
    talk.engine().journal().cut();
    assert_eq!(converse(&mut talk, 0, "SET a 2"), None, "the thread of the log has to begin a segment");
    let (position, length) = (talk.session(0).holds().unwrap(), folder.bytes("log-1").len());
    assert_eq!(converse(&mut talk, 1, "APPEND a 3"), None);
    assert_eq!(folder.bytes("log-1").len(), length, "what comes behind a cut is for the new segment");
    keeper.turn(talk.now().instant).unwrap();
    assert!(talk.session_mut(0).write_out(position));
    assert_eq!(recover(&folder.copy()).unwrap().0.say(0, "GET a"), "\"23\"");
}

#[test]
fn writes_that_cannot_be_logged_are_answered_with_errors() {
    for mode in ["everysec", "no", "always"] {
        let folder = MemoryFolder::default();
        let (mut talk, mut keeper) = recover(&folder).unwrap();
        talk.say(0, &format!("CONFIG SET appendfsync {mode}"));
        talk.say(0, "SET a 1");
        keeper.turn(talk.now().instant).unwrap();
        folder.set_full(true);
        // Each runs, and each appends; only then the file system refuses.
        for client in 0..2 {
            let now = talk.now();
            talk.session_mut(client).feed(b"PING\r\nINCR a\r\nGET a\r\n", now);
        }
        let position = talk.session(0).holds().expect("nothing was written");
        if mode == "always" {
            assert!(!talk.session_mut(0).write_out(position));
            keeper.turn(talk.now().instant).unwrap();
        }
        let error = "-MISCONF Errors writing to the AOF file: cannot append to log-1: no storage space. The command was carried out \
                     in memory. It is lost if the server restarts before the file can be written again.";
        for client in 0..2 {
            assert!(talk.session_mut(client).write_out(position), "{mode}");
            let replies = String::from_utf8(talk.session(client).replies().to_vec()).unwrap();
            let value = client + 2;
            assert_eq!(replies, format!("+PONG\r\n{error}\r\n$1\r\n{value}\r\n"), "{mode}");
            let len = replies.len();
            talk.session_mut(client).handle_sent(len);
        }
        assert!(converse(&mut talk, 0, "SET a 9").unwrap().contains("MISCONF"), "{mode}");
        assert_eq!(converse(&mut talk, 0, "GET a").as_deref(), Some("\"3\""), "{mode}");
        assert_eq!(converse(&mut talk, 0, "PING").as_deref(), Some("PONG"), "{mode}");
        folder.set_full(false);
        keeper.turn(talk.now().instant).unwrap();
        assert_eq!(talk.say(0, "INCR a"), "4", "{mode}");
        keeper.finish(talk.now().instant).unwrap();
        assert_eq!(recover(&folder).unwrap().0.say(0, "GET a"), "\"4\"", "{mode}");
    }
}

#[test]
fn writes_are_refused_while_the_log_cannot_be_written() {
    let folder = MemoryFolder::default();
    let (mut talk, mut keeper) = recover(&folder).unwrap();
    talk.say(0, "SET a 1");
    folder.set_full(true);
    assert!(keeper.turn(talk.now().instant).unwrap().refused.is_some());
    assert_eq!(
        talk.say(0, "SET a 2"),
        "(error) MISCONF Errors writing to the AOF file: cannot append to log-1: no storage space"
    );
    assert_eq!(talk.say(0, "GET a"), "\"1\"");
    assert!(keeper.turn(talk.now().instant).unwrap().refused.is_none(), "told once");
    folder.set_full(false);
    keeper.turn(talk.now().instant).unwrap();
    assert_eq!(talk.say(0, "SET a 3"), "OK");
    keeper.finish(talk.now().instant).unwrap();
    assert_eq!(recover(&folder).unwrap().0.say(0, "GET a"), "\"3\"");
}

#[test]
fn what_changes_no_data_is_answered_while_the_log_cannot_be_written() {
    let folder = MemoryFolder::default();
    let (mut talk, mut keeper) = recover(&folder).unwrap();
    talk.say(0, "CONFIG SET appendfsync everysec");
    talk.say(0, "SET gone x PX 10");
    talk.say(0, "PFADD seen a b");
    keeper.turn(talk.now().instant).unwrap();
    talk.session_mut(1);
    talk.say(1, "SUBSCRIBE news");
    talk.wait(20);
    folder.set_full(true);
    let now = talk.now();
    talk.session_mut(0).feed(b"SET a 1\r\nPUBLISH news x\r\nGET gone\r\nPFCOUNT seen\r\nEVAL return(1) 0\r\n", now);
    let position = talk.session(0).holds().expect("nothing was written");
    assert!(talk.session_mut(0).write_out(position));
    let replies = String::from_utf8(talk.session(0).replies().to_vec()).unwrap();
    let (first, others) = replies.split_once("\r\n").unwrap();
    assert!(first.starts_with("-MISCONF"), "{first}");
    assert_eq!(others, ":1\r\n$-1\r\n:2\r\n:1\r\n");
    assert!(readable(&talk.mail(1)).contains("news"));
}

#[test]
fn the_keeper_syncs_when_it_is_told_to_and_tries_again_what_was_refused() {
    let folder = MemoryFolder::default();
    let (mut talk, mut keeper) = recover(&folder).unwrap();
    let ends = |keeper: &Keeper<MemoryFolder>| keeper.look(|log| (log.end(), log.durable()));
    talk.say(0, "CONFIG SET appendfsync no");
    talk.say(0, "SET a 1");
    let now = talk.now().instant;
    assert_eq!(ends(&keeper), (0, 0));
    keeper.turn(now).unwrap();
    let (end, durable) = ends(&keeper);
    assert!(end > 0 && durable == 0, "that is left to the system");
    keeper.sync_now(now).unwrap();
    assert_eq!(ends(&keeper), (end, end));
    talk.say(0, "SET a 2");
    keeper.sync_now(now).unwrap();
    let (end, durable) = ends(&keeper);
    assert_eq!((talk.engine().journal().end(), durable), (end, end), "what waits is written first");
    talk.say(0, "SET a 3");
    folder.set_full(true);
    assert!(matches!(keeper.sync_now(now), Err(LogError::Refused { .. })));
    let turn = keeper.turn(now).unwrap();
    assert_eq!(turn.again, Some(now + Duration::from_secs(1)));
    folder.set_full(false);
    keeper.sync_now(now).unwrap();
    assert_eq!(recover(&folder.copy()).unwrap().0.say(0, "GET a"), "\"3\"");
}

#[test]
fn the_log_says_how_far_it_is_durable_once_nothing_was_written_for_a_second() {
    let folder = MemoryFolder::default();
    let (mut talk, mut keeper) = recover(&folder).unwrap();
    let mut added = |talk: &mut Talk, ms: i64| {
        talk.wait(ms);
        let before = folder.bytes("log-1").len();
        keeper.turn(talk.now().instant).unwrap();
        folder.bytes("log-1").len() - before
    };
    talk.say(0, "SET a 1");
    assert!(added(&mut talk, 0) > 0);
    assert_eq!([999, 1, 5_000].map(|ms| added(&mut talk, ms)), [0, 32, 0]);
    talk.say(0, "SET a 2");
    assert!(added(&mut talk, 0) > 0);
    assert_eq!([1_000, 1_000].map(|ms| added(&mut talk, ms)), [32, 0]);
}

#[test]
fn with_everysec_the_drive_is_waited_for_once_a_second() {
    let folder = MemoryFolder::default();
    let (mut talk, mut keeper) = recover(&folder).unwrap();
    talk.say(0, "CONFIG SET appendfsync everysec");
    let mut is_durable = |talk: &mut Talk, ms: i64| {
        talk.wait(ms);
        talk.say(0, "INCR counter");
        keeper.turn(talk.now().instant).unwrap();
        keeper.look(|log| log.durable() == log.end())
    };
    assert_eq!(
        [999, 1, 0, 999, 1, 5_000, 10].map(|ms| is_durable(&mut talk, ms)),
        [false, true, false, false, true, true, false]
    );
}

/// A base has keys whose time is over when it is read, and the log may say that they were made to stay.
#[test]
fn keys_that_were_made_to_stay_after_the_base_was_taken_are_there() {
    let folder = MemoryFolder::default();
    let (mut talk, mut keeper) = recover(&folder).unwrap();
    for line in ["SET kept x PX 100", "SET gone x PX 100"] {
        assert_eq!(talk.say(0, line), "OK");
    }
    rewrite(&talk, &mut keeper, &folder).unwrap();
    assert_eq!(talk.say(0, "PERSIST kept"), "1");
    keeper.finish(talk.now().instant).unwrap();
    let (engine, mut now) = (engine(), talk.now());
    now.unix_us += 1_000_000;
    Keeper::recover(Arc::clone(&engine), folder, ID, Box::new(|| {}), now).unwrap();
    let mut talk = Talk::with(engine);
    talk.wait(1_000);
    assert_eq!(talk.say(0, "MGET kept gone"), "[\"x\" (nil)]");
}

/// Only the keeper begins another segment after an append that failed, even if that was a mark and nothing is missing.
#[test]
fn who_replies_writes_nothing_behind_a_mark_that_failed() {
    let folder = MemoryFolder::default();
    let (mut talk, mut keeper) = recover(&folder).unwrap();
    talk.say(0, "CONFIG SET appendfsync everysec");
    talk.say(0, "SET gone x PX 10");
    keeper.turn(talk.now().instant).unwrap();
    folder.set_full(true);
    talk.wait(1_000);
    assert!(keeper.turn(talk.now().instant).unwrap().refused.is_some(), "a part of the mark is there");
    folder.set_full(false);
    let before = folder.operations();
    assert_eq!(talk.say(0, "GET gone"), "(nil)");
    let (engine, position) = (talk.engine_shared(), talk.engine().journal().end());
    assert!(!engine.journal().write_out(position, LogSync::EverySecond));
    assert_eq!(folder.operations(), before, "nor does it wait for the drive");
    keeper.turn(talk.now().instant).unwrap();
    assert!(engine.journal().write_out(position, LogSync::EverySecond));
    assert_eq!(recover(&folder.copy()).unwrap().0.say(0, "DBSIZE"), "0");
}

#[test]
fn a_keeper_that_has_nothing_to_write_leaves_the_drive_alone() {
    let folder = MemoryFolder::default();
    let (mut talk, mut keeper) = recover(&folder).unwrap();
    for mode in ["always", "everysec", "no"] {
        talk.say(0, &format!("CONFIG SET appendfsync {mode}"));
        talk.say(0, "INCR counter");
        keeper.sync_now(talk.now().instant).unwrap();
        for ms in [0, 2_000] {
            talk.wait(ms);
            keeper.turn(talk.now().instant).unwrap();
        }
        let before = folder.operations();
        talk.wait(2_000);
        keeper.turn(talk.now().instant).unwrap();
        keeper.sync_now(talk.now().instant).unwrap();
        assert_eq!(folder.operations(), before, "{mode}");
    }
}

#[test]
fn the_keeper_says_when_it_looks_again() {
    for (mode, expected) in [
        // The mark is written a second after the last write.
        ("always", [Some(1_000), Some(900), None]),
        // It looks every 100 ms while something is written, and syncs a second after the last time.
        ("everysec", [Some(100), Some(900), None]),
        ("no", [Some(100), None, None]),
    ] {
        let (mut talk, mut keeper) = recover(&MemoryFolder::default()).unwrap();
        talk.say(0, &format!("CONFIG SET appendfsync {mode}"));
        keeper.sync_now(talk.now().instant).unwrap();
        talk.say(0, "SET a 1");
        let again = [0, 100, 900].map(|ms| {
            talk.wait(ms);
            let now = talk.now().instant;
            keeper.turn(now).unwrap().again.map(|again| again.saturating_since(now).as_millis())
        });
        assert_eq!(again, expected, "{mode}");
    }
}

#[test]
fn a_base_takes_the_place_of_what_was_before_it() {
    let folder = MemoryFolder::default();
    let (mut talk, mut keeper) = recover(&folder).unwrap();
    talk.say(0, "SET a 1");
    rewrite(&talk, &mut keeper, &folder).unwrap();
    let names = folder.names();
    let [base, rest @ ..] = &names[..] else { panic!("{names:?}") };
    assert!(base.starts_with("base-") && rest == ["log-2", "manifest"], "{names:?}");
    let length = u64::try_from(folder.bytes(base).len()).unwrap();
    assert_eq!(keeper.look(|log| (log.base_bytes(), log.bytes_since_base())), (length, 0));
    assert_eq!(recover(&folder).unwrap().0.say(0, "GET a"), "\"1\"");
}

type Run = Box<dyn FnOnce() + Send>;

/// A folder in memory. Something is done while the drive is waited for the next time.
struct SlowFolder {
    folder: MemoryFolder,
    meanwhile: Arc<Mutex<Option<Run>>>,
}

impl Folder for SlowFolder {
    fn read_at(&mut self, name: &str, at: u64, into: &mut [u8]) -> io::Result<usize> {
        self.folder.read_at(name, at, into)
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.folder.append(name, bytes)
    }

    fn syncer(&mut self, name: &str) -> Syncer {
        let (sync, meanwhile) = (self.folder.syncer(name), Arc::clone(&self.meanwhile));
        Box::new(move || {
            let run = meanwhile.lock().unwrap().take();
            run.into_iter().for_each(|run| run());
            sync()
        })
    }

    fn replace(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.folder.replace(name, bytes)
    }

    fn others(&mut self, names: &[&str], remove: bool) -> io::Result<usize> {
        self.folder.others(names, remove)
    }
}

#[test]
fn what_is_appended_while_the_drive_is_waited_for_is_not_forgotten() {
    let (engine, woken, meanwhile) = (engine(), Arc::new(AtomicBool::new(false)), Arc::default());
    let folder = SlowFolder { folder: MemoryFolder::default(), meanwhile: Arc::clone(&meanwhile) };
    let (mut talk, counter) = (Talk::with(Arc::clone(&engine)), Arc::clone(&woken));
    let wake = Box::new(move || counter.store(true, Ordering::Relaxed));
    let (mut keeper, _) = Keeper::recover(Arc::clone(&engine), folder, ID, wake, talk.now()).unwrap();
    talk.say(0, "CONFIG SET appendfsync everysec");
    talk.say(0, "SET a 1");
    keeper.turn(talk.now().instant).unwrap();
    woken.store(false, Ordering::Relaxed);
    talk.wait(1_000);
    let (engine, now) = (talk.engine_shared(), talk.now().instant);
    *meanwhile.lock().unwrap() = Some(Box::new(move || _ = Talk::with(engine).say(0, "SET b 2")) as Run);
    let turn = keeper.turn(now).unwrap();
    assert!(!woken.load(Ordering::Relaxed), "it looks by itself, as it said before");
    assert_eq!(turn.again, Some(now), "at once");
    keeper.turn(now).unwrap();
    assert_eq!(keeper.look(|log| log.end()), talk.engine().journal().end());
}
