//! Snapshots by steps, and what is said of a batch that does not run again.

use std::sync::Arc;

use crate::engine::{Engine, EngineConfig};
use crate::keyspace::Slot;
use crate::memory::hash_key::HASH_KEY_BYTES;
use crate::persist::snapshot::{Loss, Purpose, Snapshot, Step};
use crate::persist::{Journal, Replay};
use crate::tests::Talk;

const SHARDS: usize = 4;

fn talk() -> Talk {
    let engine = Engine::new(&EngineConfig { secret: [6; HASH_KEY_BYTES], shards: SHARDS, databases: 16 });
    engine.configure("rdbcompression", "no").unwrap();
    Talk::with(Arc::new(engine))
}

fn begin(talk: &Talk, purpose: Purpose, takes_fields: bool) -> Snapshot {
    Snapshot::begin(talk.engine_shared(), purpose, takes_fields, talk.now())
}

/// Goes on until it is done or lost; which of them, and what was written.
fn finish(mut snapshot: Snapshot) -> (Step, Vec<u8>, u64) {
    let mut file = Vec::new();
    loop {
        let step = snapshot.step();
        file.extend_from_slice(&snapshot.take());
        if step != Step::More {
            return (step, file, snapshot.keys());
        }
    }
}

/// What waits in memory to be written is what writes touch while each other shard has its turn once.
#[test]
fn what_writes_have_saved_is_taken_from_all_other_shards_in_turn() {
    let mut talk = talk();
    let engine = talk.engine_shared();
    let keys = |shard: usize, count: usize| -> Vec<String> {
        let names = (0..).map(|number| format!("<{number}>"));
        names.filter(|name| engine.keyspace.shard_of(Slot::of(name.as_bytes())) == shard).take(count).collect()
    };
    let value = "x".repeat(1 << 10);
    for key in keys(0, 64) {
        talk.say(0, &format!("SET {key} {value}"));
    }
    let others: Vec<Vec<String>> = (1..SHARDS).map(|shard| keys(shard, 2)).collect();
    others.iter().flatten().for_each(|key| _ = talk.say(0, &format!("SET {key} old")));
    let (mut snapshot, mut file) = (begin(&talk, Purpose::Dump, true), Vec::new());
    for round in 0..2 {
        others.iter().for_each(|keys| _ = talk.say(0, &format!("SET {} new", keys[round])));
        for _ in &others {
            assert_eq!(snapshot.step(), Step::More);
            file.extend_from_slice(&snapshot.take());
        }
        let has = |name: &String| file.windows(name.len()).any(|bytes| bytes == name.as_bytes());
        assert!(others.iter().all(|keys| has(&keys[round])), "round {round}");
    }
    let (step, _, count) = finish(snapshot);
    assert_eq!((step, count), (Step::Done, 64 + 6));
}

#[test]
fn a_snapshot_that_cannot_be_written_is_lost_and_the_next_one_is_whole() {
    let mut talk = talk();
    for number in 0..100 {
        talk.say(0, &format!("SET {number} {}", "x".repeat(500)));
    }
    let mut snapshot = begin(&talk, Purpose::Dump, true);
    assert_eq!(snapshot.step(), Step::More);
    snapshot.lose();
    assert_eq!(finish(snapshot).0, Step::Lost(Loss::Refused));
    let (step, _, keys) = finish(begin(&talk, Purpose::Dump, true));
    assert_eq!((step, keys), (Step::Done, 100));
}

#[test]
fn a_base_of_the_log_says_where_the_journal_was_cut() {
    let mut talk = talk();
    talk.engine().journal().start(100, Box::new(|| {}));
    talk.say(0, "SET a 1");
    let end = talk.engine().journal().end();
    assert_eq!(begin(&talk, Purpose::Dump, true).position(), 0);
    assert!(!talk.engine().journal().take().then_cut, "a dump is no affair of the log");
    let snapshot = begin(&talk, Purpose::LogBase, true);
    talk.say(0, "SET a 2");
    assert_eq!(snapshot.position(), end);
    assert!(end > 100 && talk.engine().journal().take().then_cut);
}

#[test]
fn a_snapshot_has_the_oldest_form_that_can_hold_it_and_that_its_reader_knows() {
    for has_fields in [false, true] {
        let mut talk = talk();
        talk.say(0, "HSET hash field value");
        if has_fields {
            talk.say(0, "HPEXPIRE hash 1000000 FIELDS 1 field");
        }
        let (step, file, _) = finish(begin(&talk, Purpose::Dump, true));
        assert!(step == Step::Done && file.starts_with(b"VALKEY080"));
        let (step, file, _) = finish(begin(&talk, Purpose::Dump, false));
        let expected = if has_fields { Step::Lost(Loss::NeedsValkey) } else { Step::Done };
        assert!(step == expected && file.starts_with(b"REDIS0011"), "{step:?}");
        for (version, form) in
            [("", "REDIS0010"), ("7.2.0", "REDIS0011"), ("8.1.0", "REDIS0011"), ("9.0.0", "VALKEY080")]
        {
            let replica = talk.join();
            if !version.is_empty() {
                assert_eq!(talk.say(replica, &format!("REPLCONF version {version}")), "OK");
            }
            assert_eq!(talk.raw(replica, b"SYNC\r\n"), b"");
            let sync = talk.engine_shared().next_full_sync(talk.now()).unwrap();
            let (step, file, _) = finish(Snapshot::begin_sync(talk.engine_shared(), &sync, talk.now()));
            let form = if has_fields { "VALKEY080" } else { form };
            assert!(step == Step::Done && file.starts_with(form.as_bytes()), "{version}: {:?}", &file[..9]);
            sync.end(talk.now());
        }
    }
}

#[test]
fn a_command_that_is_refused_when_it_runs_again_is_named_in_short() {
    let batch_of = |line: &str| {
        let mut talk = talk();
        talk.engine().journal().start(0, Box::new(|| {}));
        talk.say(0, line);
        let journal: &Journal = talk.engine().journal();
        journal.take().batch
    };
    let long = "x".repeat(70);
    for (line, named) in [
        ("RPUSH key a".to_owned(), "\"RPUSH key a\"".to_owned()),
        (format!("RPUSH key {long} b"), format!("\"RPUSH key {}\"", &long[..64])),
    ] {
        let mut talk = talk();
        talk.say(0, "SET key text");
        let mut replay = Replay::new(talk.engine_shared());
        let refused = replay.handle_batch(&batch_of(&line), talk.now()).unwrap_err();
        assert!(refused.starts_with(&format!("{named} is refused now: WRONGTYPE")), "{refused}");
    }
}
