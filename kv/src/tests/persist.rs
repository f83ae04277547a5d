//! What is in the log makes the same data again.

use std::sync::Arc;

use super::{BEGIN_MS, Talk};
use crate::engine::{Engine, EngineConfig};
use crate::memory::hash_key::HASH_KEY_BYTES;
use crate::persist::snapshot::{Purpose, Step};
use crate::persist::tests::folder::Chance;
use crate::persist::{Replay, Snapshot};
use crate::rdb::ImportOptions;
use crate::replicate::FullSync;
use crate::time::Now;

/// The words of a flat reply.
fn words(reply: &str) -> Vec<&str> {
    let inside = reply.trim_start_matches('[').trim_end_matches(']');
    inside.split(' ').filter(|word| !word.is_empty()).map(|word| word.trim_matches('"')).collect()
}

fn sorted(reply: &str) -> String {
    let mut words = words(reply);
    words.sort_unstable();
    words.join(" ")
}

/// Everything that clients can see of all data, in a fixed order.
fn picture(talk: &mut Talk) -> String {
    let client = talk.join();
    let mut picture = String::new();
    for database in 0..16 {
        let mut ask = |line: String| talk.say(client, &line);
        ask(format!("SELECT {database}"));
        let keys = ask("KEYS *".into());
        let mut names = words(&keys);
        names.sort_unstable();
        for name in names {
            let kind = ask(format!("TYPE {name}"));
            let value = match kind.as_str() {
                "string" => ask(format!("GET {name}")),
                "list" => ask(format!("LRANGE {name} 0 -1")),
                "set" => sorted(&ask(format!("SMEMBERS {name}"))),
                "zset" => ask(format!("ZRANGE {name} 0 -1 WITHSCORES")),
                // How it lies in memory is no part of it.
                "stream" => {
                    ask(format!("XINFO STREAM {name} FULL")).split(" \"radix-tree-nodes\" ").next().unwrap().to_owned()
                }
                "hash" => {
                    let fields = sorted(&ask(format!("HKEYS {name}")));
                    let field = |field: &str| {
                        let value = ask(format!("HGET {name} {field}"));
                        format!("{field}={value}@{}", ask(format!("HPEXPIRETIME {name} FIELDS 1 {field}")))
                    };
                    words(&fields).into_iter().map(field).collect::<Vec<_>>().join(" ")
                }
                other => panic!("{name} is a {other}"),
            };
            let expiry = ask(format!("PEXPIRETIME {name}"));
            picture += &format!("{database} {name} {kind} {expiry} {value}\n");
        }
    }
    picture
}

/// One random command on few keys.
fn command(chance: &mut Chance) -> String {
    let mut pick =
        |words: &[&str]| words[usize::try_from(chance.draw(u64::try_from(words.len()).unwrap())).unwrap()].to_owned();
    let text = pick(TEMPLATES);
    let mut out = String::new();
    for word in text.split(' ') {
        let made = match word {
            "S" => format!("s{}", pick(&["1", "2", "3"])),
            "L" => format!("l{}", pick(&["1", "2", "3"])),
            "E" => format!("e{}", pick(&["1", "2", "3"])),
            "Z" => format!("z{}", pick(&["1", "2", "3"])),
            "H" => format!("h{}", pick(&["1", "2", "3"])),
            "X" => format!("x{}", pick(&["1", "2"])),
            "K" => pick(&["s1", "s2", "l1", "l2", "e1", "e2", "z1", "z2", "h1", "h2", "x1", "x2"]),
            "m" => pick(&["a", "b", "c", "d", "e", "17", "99", "-3", "longer-than-others"]),
            "n" => pick(&["0", "1", "2", "3", "-1", "7"]),
            "t" => pick(&["1", "5", "20", "300"]),
            other => other.to_owned(),
        };
        out += &made;
        out.push(' ');
    }
    out.trim_end().to_owned()
}

const TEMPLATES: &[&str] = &[
    "SET S m",
    "SET S m EX t",
    "SET S m PX t KEEPTTL",
    "SET S m PX t",
    "SETEX S t m",
    "GETEX S PX t",
    "GETDEL S",
    "APPEND S m",
    "INCR S",
    "INCRBYFLOAT S 0.1",
    "SETRANGE S 7 m",
    "SETBIT S 77 1",
    "BITFIELD S INCRBY u8 n 9",
    "MSET S m S m",
    "GETSET S m",
    "PFADD S m m",
    "PFMERGE S S",
    "BITOP XOR S S S",
    "LPUSH L m m",
    "RPUSH L m",
    "LPOP L",
    "RPOP L 2",
    "LMOVE L L LEFT RIGHT",
    "LINSERT L BEFORE m m",
    "LREM L n m",
    "LTRIM L 0 5",
    "LSET L 0 m",
    "BLPOP L 0",
    "BLMOVE L L RIGHT LEFT 0",
    "BLMPOP 0 1 L LEFT COUNT 2",
    "SADD E m m",
    "SREM E m",
    "SPOP E",
    "SPOP E 2",
    "SMOVE E E m",
    "SUNIONSTORE E E E",
    "SDIFFSTORE E E E",
    "ZADD Z n m t m",
    "ZADD Z INCR n m",
    "ZINCRBY Z n m",
    "ZREM Z m",
    "ZPOPMIN Z",
    "ZPOPMAX Z 2",
    "ZRANGESTORE Z Z 0 1",
    "ZUNIONSTORE Z 2 Z Z",
    "ZREMRANGEBYRANK Z 0 0",
    "BZPOPMIN Z 0",
    "BZMPOP 0 1 Z MIN",
    "GEOADD Z n n m",
    "HSET H m m m m",
    "HDEL H m",
    "HINCRBY H 17 n",
    "HINCRBYFLOAT H 99 0.5",
    "HPEXPIRE H t FIELDS 1 m",
    "HPERSIST H FIELDS 1 m",
    "HSETEX H PX t FIELDS 1 m m",
    "HGETEX H PX t FIELDS 1 m",
    "XADD X * m m",
    "XADD X MAXLEN 5 * m m",
    "XADD X MAXLEN ~ 5 * m m",
    "XTRIM X MAXLEN 3",
    "XGROUP CREATE X g 0 MKSTREAM",
    "XGROUP CREATE X g $",
    "XREADGROUP GROUP g c1 COUNT 2 STREAMS X >",
    "XREADGROUP GROUP g c2 NOACK STREAMS X >",
    "XACK X g 1-1",
    "XAUTOCLAIM X g c2 0 0",
    "XCLAIM X g c3 0 1-1 FORCE",
    "XDEL X 1-1",
    "XGROUP DELCONSUMER X g c1",
    "XGROUP DESTROY X g",
    "XSETID X 99999999999999-0",
    "DEL K",
    "UNLINK K",
    "EXPIRE K t",
    "PEXPIRE K t",
    "PEXPIRE K t GT",
    "PERSIST K",
    "RENAME K K",
    "COPY K K REPLACE",
    "COPY K K DB 2",
    "MOVE K 1",
    "SORT E ALPHA STORE L",
    "TOUCH K",
    "GET S",
    "HGETALL H",
    "LRANGE L 0 -1",
    "XREADGROUP GROUP g c1 STREAMS X 0",
    "SELECT n",
    "FLUSHDB",
    "SWAPDB 0 1",
    "SPOP E 99",
    "SINTERSTORE E E E",
];

/// An engine without keys, unlike that of conversations in all that must not matter.
fn another() -> Arc<Engine> {
    Arc::new(Engine::new(&EngineConfig { secret: [5; HASH_KEY_BYTES], shards: 32, databases: 16 }))
}

/// A client at a time.
fn client_of(engine: Arc<Engine>, now_ms: i64) -> Talk {
    let mut talk = Talk::with(engine);
    talk.wait(now_ms - BEGIN_MS);
    talk
}

#[test]
fn a_snapshot_is_what_was_there_when_it_began() {
    let (mut whole, mut lost) = (0, 0);
    for seed in 0..40 {
        let mut chance = Chance(seed);
        let mut talk = Talk::new();
        let mut running: Option<(Snapshot, Vec<u8>, String, i64)> = None;
        for turn in 0..700 {
            if turn % 100 == 50 && running.is_none() {
                let before = picture(&mut talk);
                let snapshot = Snapshot::begin(talk.engine_shared(), Purpose::Dump, seed % 4 != 0, talk.now());
                running = Some((snapshot, Vec::new(), before, talk.now_ms));
            }
            if chance.draw(20) == 0 {
                talk.wait(i64::try_from(chance.draw(300)).unwrap());
                talk.tick();
            }
            let line = command(&mut chance);
            let is_rare = line.starts_with("FLUSHDB") || line.starts_with("SWAPDB");
            if !line.starts_with('B') && (!is_rare || chance.draw(30) == 0) {
                talk.say(0, &line);
            }
            let Some((snapshot, file, before, at_ms)) = &mut running else { continue };
            if chance.draw(2) == 0 {
                continue;
            }
            let step = snapshot.step();
            file.extend_from_slice(&snapshot.take());
            match step {
                Step::More => continue,
                Step::Lost(_) => lost += 1,
                Step::Done => {
                    let engine = another();
                    let options = ImportOptions { keeps_expired: true, ..ImportOptions::default() };
                    let mut import = engine.import_rdb(options);
                    import.handle_bytes(file, talk.now()).unwrap();
                    import.finish().unwrap();
                    let after = picture(&mut client_of(engine, *at_ms));
                    for (before, after) in before.lines().zip(after.lines()) {
                        assert_eq!(before, after, "seed {seed} turn {turn}");
                    }
                    assert_eq!(*before, after, "seed {seed} turn {turn}");
                    whole += 1;
                }
            }
            running = None;
        }
        // One that is dropped in the middle leaves nothing behind that the next one would trip over.
        drop(running);
        let mut last = Snapshot::begin(talk.engine_shared(), Purpose::Dump, true, talk.now());
        while last.step() == Step::More {}
        assert_eq!(last.step(), Step::Done);
    }
    assert!(whole > 60 && lost > 5, "{whole} whole, {lost} lost");
}

#[test]
fn the_log_makes_the_same_again() {
    for seed in 0..10 {
        let mut chance = Chance(seed);
        let mut talk = Talk::new();
        talk.engine().journal().start(0, Box::new(|| {}));
        let (mut batches, mut in_transaction) = (Vec::new(), false);
        for _ in 0..600 {
            match chance.draw(40) {
                0 => talk.wait(i64::try_from(chance.draw(400)).unwrap()),
                1 => talk.tick(),
                2 => {
                    talk.say(0, if in_transaction { "EXEC" } else { "MULTI" });
                    in_transaction = !in_transaction;
                }
                3 => batches.push(talk.engine().journal().take().batch),
                _ => {
                    let line = command(&mut chance);
                    let waits = line.starts_with('B') && !line.starts_with("BIT");
                    if !waits || in_transaction {
                        talk.say(0, &line);
                    }
                }
            }
        }
        if in_transaction {
            talk.say(0, "DISCARD");
        }
        batches.push(talk.engine().journal().take().batch);
        let engine = another();
        let mut replay = Replay::new(Arc::clone(&engine));
        let now = Now { unix_us: BEGIN_MS * 1_000, instant: ashlar_wire::time::Instant::from_nanos(1) };
        for batch in &batches {
            replay.handle_batch(batch, now).unwrap();
        }
        let mut again = client_of(engine, talk.now_ms);
        let (first, second) = (picture(&mut talk), picture(&mut again));
        for (first, second) in first.lines().zip(second.lines()) {
            assert_eq!(first, second, "seed {seed}");
        }
        assert_eq!(first, second, "seed {seed}");
        assert!(!first.is_empty(), "seed {seed} leaves something");
    }
}

#[test]
fn a_swap_during_a_snapshot_leaves_no_key_out_of_the_next() {
    let mut talk = Talk::new();
    for key in 0..2_000 {
        talk.say(0, &format!("SET a{key} x"));
    }
    talk.say(0, "SELECT 1");
    for key in 0..2_000 {
        talk.say(0, &format!("SET b{key} x"));
    }
    let mut first = Snapshot::begin(talk.engine_shared(), Purpose::Dump, true, talk.now());
    // So far that some shards have been walked through in one database and not in the other.
    for _ in 0..3 {
        assert_eq!(first.step(), Step::More);
    }
    talk.say(0, "SWAPDB 0 1");
    while first.step() == Step::More {}
    drop(first);
    let mut second = Snapshot::begin(talk.engine_shared(), Purpose::Dump, true, talk.now());
    while second.step() == Step::More {}
    assert_eq!((second.step(), second.keys()), (Step::Done, 4_000));
}

/// A replica that asks for everything, and the dump that it gets.
fn ask(talk: &mut Talk) -> (usize, FullSync, Snapshot, Vec<u8>) {
    let replica = talk.join();
    assert_eq!(talk.raw(replica, b"SYNC\r\n"), b"");
    let sync = talk.engine_shared().next_full_sync(talk.now()).unwrap();
    let snapshot = Snapshot::begin_sync(talk.engine_shared(), &sync, talk.now());
    (replica, sync, snapshot, Vec::new())
}

/// Everything that has come for a client.
fn all_mail(talk: &mut Talk, client: usize) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let more = talk.mail(client);
        if more.is_empty() {
            return all;
        }
        all.extend_from_slice(&more);
    }
}

/// An engine with a dump, as it comes to a replica.
///
/// Its clock stands still at the beginning, so that nothing expires there by itself, as with a replica.
fn copy_of(mail: &[u8]) -> (Talk, Vec<u8>) {
    let text = mail.trim_ascii_start().strip_prefix(b"$").unwrap();
    let end = text.iter().position(|byte| *byte == b'\r').unwrap();
    let len: usize = std::str::from_utf8(&text[..end]).unwrap().parse().unwrap();
    let (file, stream) = text[end + 2..].split_at(len);
    let engine = another();
    let copy = client_of(Arc::clone(&engine), BEGIN_MS);
    let mut import = engine.import_rdb(ImportOptions { keeps_expired: true, ..ImportOptions::default() });
    import.handle_bytes(file, copy.now()).unwrap();
    import.finish().unwrap();
    (copy, stream.to_vec())
}

#[test]
fn a_dump_and_the_stream_make_the_same() {
    for seed in 0..20 {
        let mut chance = Chance(seed);
        let mut talk = Talk::new();
        let (mut running, mut copy, mut replica, mut in_transaction) = (None, None::<Talk>, 0, false);
        for turn in 0..600 {
            match chance.draw(40) {
                0 => talk.wait(i64::try_from(chance.draw(400)).unwrap()),
                1 => talk.tick(),
                2 => {
                    talk.say(0, if in_transaction { "EXEC" } else { "MULTI" });
                    in_transaction = !in_transaction;
                }
                _ => {
                    let line = command(&mut chance);
                    let waits = line.starts_with('B') && !line.starts_with("BIT");
                    if !waits || in_transaction {
                        talk.say(0, &line);
                    }
                }
            }
            if turn == 100 {
                running = Some(ask(&mut talk));
            }
            if let Some((client, sync, mut snapshot, mut file)) = running.take() {
                let step = snapshot.step();
                file.extend_from_slice(&snapshot.take());
                match step {
                    Step::More => running = Some((client, sync, snapshot, file)),
                    Step::Lost(_) => {
                        drop((sync, snapshot));
                        assert!(talk.is_closed(client), "who gets half a dump is told");
                        running = Some(ask(&mut talk));
                    }
                    Step::Done => {
                        let head = format!("${}\r\n", file.len());
                        sync.put(head.as_bytes(), 0, std::time::Duration::ZERO).unwrap();
                        sync.put(&file, 0, std::time::Duration::ZERO).unwrap();
                        sync.end(talk.now());
                        let (made, stream) = copy_of(&all_mail(&mut talk, client));
                        (copy, replica) = (Some(made), client);
                        follow(copy.as_mut().unwrap(), &stream, seed);
                    }
                }
            } else if let Some(copy) = &mut copy {
                let stream = all_mail(&mut talk, replica);
                follow(copy, &stream, seed);
            }
        }
        if in_transaction {
            talk.say(0, "DISCARD");
        }
        let mut copy = copy.expect("a dump comes to its end");
        copy.wait(talk.now_ms - copy.now_ms);
        let (first, second) = (without_looks(&picture(&mut talk)), without_looks(&picture(&mut copy)));
        for (first, second) in first.lines().zip(second.lines()) {
            assert_eq!(first, second, "seed {seed}");
        }
        assert_eq!(first, second, "seed {seed}");
    }
}

/// A picture without the times at which consumers were seen, of which replicas are not told.
fn without_looks(picture: &str) -> String {
    let mut is_time = false;
    let words = picture.split(' ').filter(|word| {
        let was_time = std::mem::replace(&mut is_time, word.contains("seen-time") || word.contains("active-time"));
        !was_time
    });
    words.collect::<Vec<_>>().join(" ")
}

/// A copy is sent the stream, and refuses nothing of it.
fn follow(copy: &mut Talk, stream: &[u8], seed: u64) {
    let replies = super::readable(&copy.raw(0, stream));
    assert!(!replies.contains("(error)"), "seed {seed}: {replies} to {}", stream.escape_ascii());
}
