//! What a replica is sent, byte for byte, and who waits for it.

use std::time::Duration;

use crate::persist::Snapshot;
use crate::persist::snapshot::Step;
use crate::tests::Talk;

/// An engine with one replica that has its dump; the first client is nobody's.
struct Pair {
    talk: Talk,
    replica: usize,
}

/// Takes the dump that is wanted, and hands it over as replicas that wait for it take it.
fn serve_dump(talk: &Talk) -> Vec<u8> {
    let sync = talk.engine_shared().next_full_sync(talk.now()).expect("somebody waits for a dump");
    let mut snapshot = Snapshot::begin_sync(talk.engine_shared(), &sync, talk.now());
    let mut file = Vec::new();
    while snapshot.step() == Step::More {
        file.extend_from_slice(&snapshot.take());
    }
    file.extend_from_slice(&snapshot.take());
    sync.put(&file, 0, Duration::ZERO).expect("there is room");
    sync.end(talk.now());
    file
}

impl Pair {
    /// The replica introduces itself with these lines, and then asks.
    fn new(lines: &[&str], asks: &str) -> Self {
        let mut talk = Talk::new();
        talk.engine().configure("repl-diskless-sync-delay", "0").unwrap();
        let replica = talk.join();
        for line in lines {
            assert_eq!(talk.say(replica, line), "OK");
        }
        assert_eq!(talk.raw(replica, format!("{asks}\r\n").as_bytes()), b"");
        Self { talk, replica }
    }

    fn attached() -> Self {
        let mut pair = Self::new(&[], "SYNC");
        let file = serve_dump(&pair.talk);
        assert_eq!(pair.heard(), String::from_utf8_lossy(&file));
        pair
    }

    /// What has come for the replica.
    fn heard(&mut self) -> String {
        let mut all = Vec::new();
        loop {
            let more = self.talk.mail(self.replica);
            if more.is_empty() {
                return String::from_utf8_lossy(&all).into_owned();
            }
            all.extend_from_slice(&more);
        }
    }

    /// The commands that have come, without lengths; a bar before each.
    fn commands(&mut self) -> String {
        let heard = self.heard();
        let words = heard.split("\r\n").filter(|word| !word.is_empty() && !word.starts_with('$'));
        let words: Vec<&str> = words.map(|word| if word.starts_with('*') { "|" } else { word }).collect();
        words.join(" ")
    }

    fn say(&mut self, line: &str) -> String {
        self.talk.say(0, line)
    }
}

#[test]
fn the_stream_is_what_clients_send() {
    let mut pair = Pair::attached();
    pair.say("SET k v");
    assert_eq!(pair.heard(), "*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n");
    pair.say("GET k");
    assert_eq!(pair.heard(), "", "what changes nothing is not told");
    pair.say("MULTI");
    pair.say("DEL k");
    assert_eq!(pair.say("EXEC"), "[1]");
    assert_eq!(pair.heard(), "*2\r\n$3\r\nDEL\r\n$1\r\nk\r\n", "one command is no transaction");
}

#[test]
fn several_effects_are_one_transaction() {
    for (lines, told) in [
        (
            &["MULTI", "SET a 1", "SELECT 3", "SET b 2", "EXEC"][..],
            "| MULTI | SELECT 0 | SET a 1 | SELECT 3 | SET b 2 | EXEC",
        ),
        (
            &["EVAL \"redis.call('set','a','1') redis.call('incr','a')\" 0"],
            "| MULTI | SELECT 0 | set a 1 | incr a | EXEC",
        ),
        (&["SADD s 1", "SPOP s"], "| SELECT 0 | SADD s 1 | SREM s 1"),
        (&["SADD s 1 2", "SPOP s 2"], "| SELECT 0 | SADD s 1 2 | UNLINK s"),
        (&["SET k v EX 10"], "| SELECT 0 | SET k v PXAT 1800000010000"),
        (&["SET n 1", "INCRBYFLOAT n 0.5"], "| SELECT 0 | SET n 1 | SET n 1.5 KEEPTTL"),
        (&["XADD x * a b"], "| SELECT 0 | XADD x 1800000000000-0 a b"),
        (&["PUBLISH c m", "SPUBLISH c m"], "| SELECT 0 | PUBLISH c m | SPUBLISH c m"),
        (&["SELECT 1", "FLUSHALL"], "| SELECT 1 | FLUSHALL"),
        (&["DEBUG REPLICATE a b"], "| a b"),
    ] {
        let mut pair = Pair::attached();
        lines.iter().for_each(|line| drop(pair.say(line)));
        assert_eq!(pair.commands(), told, "{lines:?}");
    }
}

#[test]
fn what_has_expired_is_told_before_what_follows_from_it() {
    let mut pair = Pair::attached();
    pair.say("MSET a 1 b 2 c 3");
    ["a", "b", "c"].iter().for_each(|key| drop(pair.say(&format!("PEXPIRE {key} 10"))));
    pair.commands();
    pair.talk.wait(20);
    assert_eq!(pair.say("INCR a"), "1");
    assert_eq!(pair.commands(), "| MULTI | UNLINK a | INCR a | EXEC");
    pair.say("CONFIG SET lazyfree-lazy-expire no");
    pair.say("GET b");
    assert_eq!(pair.commands(), "| DEL b");
    pair.talk.tick();
    assert_eq!(pair.commands(), "| DEL c");
    pair.say("HSETEX h PX 5 FIELDS 2 f v g w");
    pair.commands();
    pair.talk.wait(20);
    pair.talk.tick();
    assert_eq!(pair.commands(), "| MULTI | HDEL h f g | DEL h | EXEC");
}

#[test]
fn nobody_listens_and_nothing_is_kept() {
    let mut talk = Talk::new();
    talk.say(0, "SET k v");
    assert_eq!(talk.engine().replication.figures(), super::Figures::default());
    assert!(talk.engine_shared().next_full_sync(talk.now()).is_none());
}

/// Whoever reads the mark at the dump's end may say so before the thread that hands the dump over has ended it; it says so once.
#[test]
fn an_end_that_is_acknowledged_early_counts() {
    let mut pair = Pair::new(&["REPLCONF capa eof"], "SYNC");
    let sync = pair.talk.engine_shared().next_full_sync(pair.talk.now()).expect("somebody waits for a dump");
    let mut snapshot = Snapshot::begin_sync(pair.talk.engine_shared(), &sync, pair.talk.now());
    while snapshot.step() == Step::More {}
    sync.put(&snapshot.take(), 0, Duration::ZERO).expect("there is room");
    assert!(!pair.heard().is_empty());
    pair.talk.raw(pair.replica, b"REPLCONF ACK 0\r\n");
    sync.end(pair.talk.now());
    pair.say("SET k v");
    assert_eq!(pair.commands(), "| SELECT 0 | SET k v");
}

#[test]
fn a_dump_of_known_length_need_not_be_acknowledged() {
    let mut talk = Talk::new();
    let replica = talk.join();
    assert_eq!(talk.say(replica, "REPLCONF capa eof"), "OK");
    let mut pair = Pair { talk, replica };
    pair.talk.engine().configure("repl-diskless-sync", "no").unwrap();
    assert_eq!(pair.talk.raw(pair.replica, b"SYNC\r\n"), b"");
    serve_dump(&pair.talk);
    pair.heard();
    pair.say("SET k v");
    assert_eq!(pair.commands(), "| SELECT 0 | SET k v");
}

#[test]
fn a_primary_rests_while_replicas_say_how_far_they_are() {
    let mut pair = Pair::new(&["REPLCONF capa eof capa psync2"], "PSYNC ? -1");
    serve_dump(&pair.talk);
    pair.heard();
    for tick in 0..40 {
        pair.talk.wait(100);
        pair.talk.tick();
        if tick % 10 == 0 {
            pair.talk.raw(pair.replica, b"*3\r\n$8\r\nREPLCONF\r\n$3\r\nACK\r\n$1\r\n0\r\n");
        }
    }
    assert!(pair.talk.engine().is_resting());
    pair.say("SET a 1");
    assert!(!pair.talk.engine().is_resting());
}

#[test]
fn a_replica_that_comes_back_goes_on_where_it_was() {
    let lines =
        ["REPLCONF listening-port 7 ip-address here", "REPLCONF capa eof capa psync2", "REPLCONF version 9.1.0"];
    let mut pair = Pair::new(&lines, "PSYNC ? -1");
    let file = serve_dump(&pair.talk);
    let history = pair.talk.engine().identity.history();
    assert_eq!(pair.heard(), format!("+FULLRESYNC {history} 0\r\n{}", String::from_utf8_lossy(&file)));
    pair.say("SET a 1");
    assert_eq!(pair.heard(), "", "it finds the mark more easily if nothing follows");
    let heard = pair.talk.raw(pair.replica, b"REPLCONF ACK 0\r\n");
    let stream = "*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n";
    assert_eq!(String::from_utf8_lossy(&heard), stream);
    assert_eq!(pair.say("ROLE"), format!("[\"master\" {} [[\"here\" \"7\" \"0\"]]]", stream.len()));
    pair.talk.leave(pair.replica);
    pair.say("SET b 2");
    let tail = "*3\r\n$3\r\nSET\r\n$1\r\nb\r\n$1\r\n2\r\n";
    pair.replica = pair.talk.join();
    pair.talk.say(pair.replica, "REPLCONF capa psync2");
    let asked = format!("PSYNC {history} {}\r\n", stream.len() + 1);
    let heard = pair.talk.raw(pair.replica, asked.as_bytes());
    assert_eq!(String::from_utf8_lossy(&heard), format!("+CONTINUE {history}\r\n{tail}"));
    for wrong in [format!("PSYNC {history} {}", stream.len() + tail.len() + 2), format!("PSYNC {}0 1", &history[1..])] {
        let stranger = pair.talk.join();
        assert_eq!(pair.talk.raw(stranger, format!("{wrong}\r\n").as_bytes()), b"", "{wrong}: it must wait for a dump");
    }
    assert!(pair.say("INFO replication").contains("connected_slaves:3"));
}

#[test]
fn the_backlog_is_bounded_and_goes_when_nobody_wants_it() {
    let mut pair = Pair::attached();
    pair.say("CONFIG SET repl-backlog-size 1000 repl-backlog-ttl 10");
    let value = "x".repeat(1_000);
    (0..100).for_each(|_| drop(pair.say(&format!("SET k {value}"))));
    let figures = pair.talk.engine().replication.figures();
    assert!(figures.len > 100_000, "the replica has not taken them: {figures:?}");
    assert_eq!(pair.talk.engine().replication.excess_bytes(), figures.memory - 1_000);
    assert!(pair.heard().len() as u64 == figures.end);
    pair.say("SET k v");
    let figures = pair.talk.engine().replication.figures();
    assert!((1_000..40_000).contains(&figures.len), "{figures:?}");
    let (replica, before) = (pair.replica, pair.talk.engine().identity.history());
    pair.talk.leave(replica);
    pair.talk.wait(12_000);
    pair.talk.tick();
    assert!(!pair.talk.engine().replication.is_on());
    let late = pair.talk.join();
    pair.talk.raw(late, b"SYNC\r\n");
    assert_ne!(pair.talk.engine().identity.history(), before, "what was not kept may be asked for under the old name");
}

#[test]
fn who_is_too_slow_must_go() {
    let mut pair = Pair::attached();
    pair.say("CONFIG SET repl-backlog-size 1000 client-output-buffer-limit \"replica 5000 0 0\"");
    let value = "x".repeat(1_000);
    (0..4).for_each(|_| drop(pair.say(&format!("SET k {value}"))));
    assert!(!pair.talk.is_closed(pair.replica));
    assert!(pair.heard().len() > 4_000);
    (0..6).for_each(|_| drop(pair.say(&format!("SET k {value}"))));
    assert!(pair.talk.is_closed(pair.replica));
}

#[test]
fn a_sign_of_life_each_second_and_a_ping_now_and_then() {
    let mut pair = Pair::new(&[], "SYNC");
    pair.talk.tick();
    assert_eq!(pair.heard(), "\n");
    pair.talk.tick();
    assert_eq!(pair.heard(), "", "a second has not passed");
    serve_dump(&pair.talk);
    pair.heard();
    pair.say("CONFIG SET repl-ping-replica-period 3");
    let mut pings = String::new();
    for _ in 0..6 {
        pair.talk.wait(1_000);
        pair.talk.tick();
        pings += &pair.heard();
    }
    assert_eq!(pings, "*1\r\n$4\r\nPING\r\n".repeat(2));
}

#[test]
fn waits_end_with_what_replicas_say() {
    let mut pair = Pair::attached();
    let client = pair.talk.join();
    pair.talk.say(client, "SET k v");
    pair.heard();
    assert_eq!(pair.talk.raw(client, b"WAIT 1 0\r\n"), b"");
    assert_eq!(pair.heard(), "*3\r\n$8\r\nREPLCONF\r\n$6\r\nGETACK\r\n$1\r\n*\r\n");
    let end = pair.talk.engine().replication.end();
    pair.talk.raw(pair.replica, b"REPLCONF ACK 3\r\n");
    assert_eq!(pair.talk.mail(client), b"");
    pair.talk.raw(pair.replica, format!("REPLCONF ACK {end}\r\n").as_bytes());
    assert_eq!(pair.talk.mail(client), b":1\r\n");
    assert_eq!(pair.talk.say(client, "WAIT 0 0"), "1");
    assert_eq!(pair.talk.raw(client, b"WAIT 2 100\r\n"), b"");
    pair.talk.wait(200);
    assert_eq!(pair.talk.mail(client), b":1\r\n", "so many there were");
    assert_eq!(pair.talk.raw(client, b"WAITAOF 0 1 0\r\n"), b"");
    pair.talk.raw(pair.replica, format!("REPLCONF ACK {end} FACK {end}\r\n").as_bytes());
    assert_eq!(pair.talk.mail(client), b"*2\r\n:0\r\n:1\r\n");
}

#[test]
fn a_wait_for_the_log_ends_when_it_is_durable() {
    let mut talk = Talk::new();
    talk.engine().journal().start(100, Box::new(|| {}));
    talk.engine().note_durable(100);
    assert_eq!(talk.say(0, "WAITAOF 1 0 0"), "[1 0]");
    talk.say(0, "SET k v");
    assert_eq!(talk.raw(0, b"WAITAOF 1 0 0\r\n"), b"");
    let end = talk.engine().journal().end();
    talk.engine().note_durable(end - 1);
    assert_eq!(talk.mail(0), b"");
    talk.engine().note_durable(end);
    assert_eq!(talk.mail(0), b"*2\r\n:1\r\n:0\r\n");
}

#[test]
fn writes_may_need_replicas() {
    let mut pair = Pair::attached();
    pair.say("CONFIG SET min-replicas-to-write 1 min-replicas-max-lag 2");
    assert_eq!(pair.say("SET k v"), "OK");
    pair.talk.wait(3_000);
    assert_eq!(pair.say("SET k v"), "(error) NOREPLICAS Not enough good replicas to write.");
    assert_eq!(
        pair.say("EVAL \"return redis.pcall('set','k','v')\" 0"),
        "(error) NOREPLICAS Not enough good replicas to write."
    );
    // A script that says what it does is refused as a whole, unless it writes nothing.
    let script = |flags: &str| format!("EVAL \"#!lua{flags}\\nreturn redis.call('get','k')\" 0");
    assert_eq!(pair.say(&script("")), "(error) NOREPLICAS Not enough good replicas to write.");
    assert_eq!(pair.say(&script(" flags=no-writes")), "\"v\"");
    assert_eq!(pair.say("GET k"), "\"v\"");
    pair.talk.raw(pair.replica, b"REPLCONF ACK 1\r\n");
    assert_eq!(pair.say("SET k v"), "OK");
    assert_eq!(pair.say("CLIENT KILL TYPE replica"), "1");
    assert!(pair.talk.is_closed(pair.replica));
}

#[test]
fn what_replicas_may_say_of_themselves() {
    let mut talk = Talk::new();
    for (line, reply) in [
        ("REPLCONF", "OK"),
        ("REPLCONF listening-port", "(error) ERR syntax error"),
        ("REPLCONF listening-port x", "(error) ERR value is not an integer or out of range"),
        ("REPLCONF capa nobody-knows-it", "OK"),
        ("REPLCONF nosuch 1", "(error) ERR Unrecognized REPLCONF option: nosuch"),
        ("REPLCONF version 1", "(error) ERR Unrecognized version format: 1"),
        ("REPLCONF rdb-filter-only functions", "OK"),
        ("REPLCONF rdb-filter-only keys", "(error) ERR Unsupported rdb-filter-only option: keys"),
        ("REPLCONF ACK 5", ""),
        ("REPLCONF GETACK *", ""),
        ("PSYNC ? x", "(error) ERR value is not an integer or out of range"),
        ("FAILOVER TO h 1", "(error) ERR FAILOVER requires connected replicas."),
    ] {
        assert_eq!(talk.say(0, line), reply, "{line}");
    }
}

#[test]
fn a_wall_clock_that_steps_back_prolongs_no_pause_and_no_failover() {
    let mut pair = Pair::attached();
    assert_eq!(pair.talk.say(0, "FAILOVER TIMEOUT 100"), "OK");
    assert!(pair.talk.say(0, "INFO replication").contains("master_failover_state:waiting-for-sync"));
    pair.talk.step_wall_clock(-3_600_000);
    pair.talk.wait(200);
    pair.talk.tick();
    assert!(pair.talk.say(0, "INFO replication").contains("master_failover_state:no-failover"));
    let now = pair.talk.now();
    pair.talk.engine().hold_writes(Duration::from_millis(100), now);
    pair.talk.step_wall_clock(-3_600_000);
    assert_eq!(pair.talk.say(0, "SET a 1"), "");
    pair.talk.wait(200);
    pair.talk.tick();
    assert_eq!(pair.talk.say(0, "GET b"), "OK\n(nil)", "the write was held for 100 ms");
}

#[test]
fn a_wall_clock_that_steps_back_holds_up_no_replica() {
    let mut pair = Pair::attached();
    pair.commands();
    pair.talk.step_wall_clock(-3_600_000);
    pair.talk.wait(11_000);
    pair.talk.tick();
    assert!(pair.commands().contains("PING"), "replicas hear that the primary is there");
    pair.talk.engine().configure("repl-diskless-sync-delay", "5").unwrap();
    let second = pair.talk.join();
    pair.talk.say(second, "REPLCONF capa eof");
    pair.talk.raw(second, b"PSYNC ? -1\r\n");
    pair.talk.step_wall_clock(-3_600_000);
    assert!(pair.talk.engine_shared().next_full_sync(pair.talk.now()).is_none());
    pair.talk.wait(5_000);
    assert!(pair.talk.engine_shared().next_full_sync(pair.talk.now()).is_some());
    // A step forward is no silence of a replica.
    let mut pair = Pair::new(&["REPLCONF capa eof"], "PSYNC ? -1");
    serve_dump(&pair.talk);
    let ack = format!("REPLCONF ACK {}\r\n", pair.talk.engine().replication.end());
    pair.talk.raw(pair.replica, ack.as_bytes());
    pair.talk.step_wall_clock(86_400_000);
    pair.talk.wait(1_000);
    pair.talk.tick();
    assert!(!pair.talk.is_closed(pair.replica));
}
