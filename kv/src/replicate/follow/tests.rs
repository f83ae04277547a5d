//! A replica beside its primary, both here, and a primary that says what the test wants.

mod link;

use std::sync::Arc;
use std::time::Duration;

use super::{Follower, Step};
use crate::client::Link;
use crate::engine::Engine;
use crate::persist::Snapshot;
use crate::persist::snapshot::Step as SnapshotStep;
use crate::replicate::Turned;
use crate::replicate::role::LinkState;
use crate::tests::Talk;

const HISTORY: &str = "0123456789abcdef0123456789abcdef01234567";
const OTHER: &str = "ffffffffffffffffffffffffffffffffffffffff";

fn link() -> Link {
    Link {
        peer: "10.0.0.1:7".into(),
        local: "10.0.0.2:8".into(),
        descriptor: -1,
        is_unix: false,
        is_tls: false,
        is_server: false,
    }
}

/// A replica, and what a thread of the program would have.
struct Replica {
    talk: Talk,
    follower: Follower,
    file: Vec<u8>,
    read: usize,
}

impl Replica {
    fn new() -> Self {
        let talk = Talk::new();
        let follower = Follower::new(talk.engine_shared());
        Self { talk, follower, file: Vec::new(), read: 0 }
    }

    fn following() -> Self {
        let mut replica = Self::new();
        assert_eq!(replica.talk.say(0, "REPLICAOF primary 7"), "OK");
        replica
    }

    fn engine(&self) -> &Engine {
        self.talk.engine()
    }

    fn state(&self) -> LinkState {
        self.engine().role.view().state
    }

    /// Does what is to be done until something is to be read, or nothing is to be done. What was sent.
    fn turn(&mut self) -> String {
        let mut sent = Vec::new();
        loop {
            let now = self.talk.now();
            match self.follower.next_step(now) {
                Step::Dial { .. } => self.follower.handle_connected(link(), now),
                Step::Send(bytes) => sent.extend_from_slice(&bytes),
                Step::Keep(bytes) => self.file.extend_from_slice(&bytes),
                Step::Load => {
                    let piece: Vec<u8> = self.file[self.read..].iter().copied().take(100).collect();
                    self.read += piece.len();
                    self.follower.handle_kept(&piece, now);
                }
                Step::HangUp => (self.file, self.read) = (Vec::new(), 0),
                Step::Receive(_) | Step::Rest(_) => return String::from_utf8(sent).expect("only texts are sent"),
            }
        }
    }

    /// Bytes come, in pieces.
    fn hear(&mut self, bytes: &[u8], step: usize) -> String {
        let mut sent = String::new();
        for piece in bytes.chunks(step) {
            self.follower.handle_bytes(piece, self.talk.now());
            sent += &self.turn();
        }
        sent
    }

    fn say(&mut self, line: &str) -> String {
        self.talk.say(0, line)
    }

    fn end(&self) -> u64 {
        self.engine().replication.end()
    }
}

/// Requests as bytes.
fn requests(lines: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in lines {
        crate::persist::journal::encode_request(
            line.split(' ').map(str::as_bytes).collect::<Vec<_>>().into_iter(),
            &mut bytes,
        );
    }
    bytes
}

/// A dump that has `k` and `old`, in which the stream is at a database.
fn dump() -> Vec<u8> {
    let mut talk = Talk::new();
    talk.say(0, "SET k 1");
    talk.say(0, "SELECT 2");
    talk.say(0, "SET other 1");
    talk.engine().export_rdb(talk.now())
}

/// All that a primary says to one that has nothing.
fn session(stream: &[&str], by_mark: bool) -> Vec<u8> {
    let mark = "m".repeat(40);
    let dump = dump();
    let mut bytes = b"+PONG\r\n+OK\r\n+OK\r\n+OK\r\n\n".to_vec();
    bytes.extend_from_slice(format!("+FULLRESYNC {HISTORY} 1000\r\n\n").as_bytes());
    if by_mark {
        bytes.extend_from_slice(format!("$EOF:{mark}\r\n").as_bytes());
        bytes.extend_from_slice(&dump);
        bytes.extend_from_slice(mark.as_bytes());
    } else {
        bytes.extend_from_slice(format!("${}\r\n", dump.len()).as_bytes());
        bytes.extend_from_slice(&dump);
    }
    bytes.extend_from_slice(&requests(stream));
    bytes
}

const STREAM: &[&str] =
    &["SELECT 0", "SET a 1", "PING", "MULTI", "INCR a", "SELECT 3", "SET b 2", "EXEC", "REPLCONF GETACK *"];

#[test]
fn the_whole_way_torn_anywhere() {
    for (step, by_mark, load) in
        [(1, true, "disabled"), (7, false, "disabled"), (3, true, "swapdb"), (usize::MAX, false, "flush-before-load")]
    {
        let mut replica = Replica::new();
        replica.say("SET gone 1");
        replica.say(&format!("CONFIG SET repl-diskless-load {load} replica-announce-port 77 primaryauth secret"));
        replica.say("CONFIG SET primaryuser me replica-announce-ip here");
        assert_eq!(replica.say("REPLICAOF primary 7"), "OK");
        let mut sent = replica.turn();
        let mut bytes = session(STREAM, by_mark);
        // It is asked for a password, and told an address.
        bytes.splice(..7, *b"-NOAUTH who are you?\r\n+OK\r\n+OK\r\n");
        sent += &replica.hear(&bytes, step);
        let said = requests(&[
            "PING",
            "AUTH me secret",
            "REPLCONF listening-port 77",
            "REPLCONF ip-address here",
            "REPLCONF capa eof capa psync2",
            "REPLCONF version 9.1.0",
            "PSYNC ? -1",
        ]);
        let said = String::from_utf8(said).unwrap();
        assert!(sent.starts_with(&said), "{sent}");
        let end = 1000 + requests(STREAM).len() as u64;
        let ack = String::from_utf8(requests(&[&format!("REPLCONF ACK {end}")])).unwrap();
        assert!(sent.ends_with(&ack), "{sent}");
        assert_eq!((replica.end(), replica.engine().identity.history()), (end, HISTORY.to_owned()));
        assert_eq!(replica.say("MGET k a gone"), "[\"1\" \"2\" (nil)]");
        replica.say("SELECT 3");
        assert_eq!(replica.say("GET b"), "\"2\"");
        assert_eq!(replica.say("ROLE"), format!("[\"slave\" \"primary\" 7 \"connected\" {end}]"));
        assert_eq!(replica.say("SET x 1"), "(error) READONLY You can't write against a read only replica.");
    }
}

#[test]
fn what_came_in_part_is_not_done() {
    let whole = requests(STREAM);
    let head = session(&[], true);
    for cut in 0..=whole.len() {
        let mut replica = Replica::following();
        replica.turn();
        replica.hear(&head, usize::MAX);
        replica.hear(&whole[..cut], usize::MAX);
        let done = |count: usize| cut >= requests(&STREAM[..count]).len();
        assert_eq!(
            replica.say("GET a"),
            if done(8) {
                "\"2\""
            } else if done(2) {
                "\"1\""
            } else {
                "(nil)"
            },
            "{cut}"
        );
        let position = replica.end();
        let units = [0, 1, 2, 3, 8, 9].map(|count| 1000 + requests(&STREAM[..count]).len() as u64);
        assert!(units.contains(&position), "{cut}: {position}");
        // Half a transaction is dropped, and whoever is promoted begins where it began.
        let now = replica.talk.now();
        let turned = replica.engine().follow(None, now);
        let history = replica.engine().identity.history();
        assert_eq!(turned, Turned { position, history: history.clone(), is_whole: true });
        assert_ne!(history, HISTORY);
        let second = replica.engine().identity.all_histories().second;
        assert_eq!(second, Some((HISTORY.to_owned(), position)));
        assert_eq!(replica.turn(), "");
        // It may go on as a replica of the former history as long as it has begun no other.
        let has = |replica: &Replica| replica.engine().point().map(|point| (point.history, point.position));
        if cut % 2 == 0 {
            replica.say("REPLICAOF primary 8");
            assert_eq!(has(&replica), Some((HISTORY.to_owned(), position)));
        } else {
            assert_eq!(replica.say("SET x 1"), "OK");
            replica.say("REPLICAOF primary 8");
            assert_eq!(has(&replica).map(|(name, _)| name), Some(history));
        }
    }
}

#[test]
fn a_dump_that_breaks_leaves_nothing() {
    let bytes = session(STREAM, false);
    let head = bytes.len() - requests(STREAM).len();
    for (load, wrong) in [("swapdb", head - 4), ("disabled", head - 4), ("swapdb", head - 60)] {
        let mut replica = Replica::new();
        replica.say("SET gone 1");
        replica.say(&format!("CONFIG SET repl-diskless-load {load}"));
        replica.say("REPLICAOF primary 7");
        replica.turn();
        let mut broken = bytes.clone();
        broken[wrong] ^= 0xff;
        replica.hear(&broken, 50);
        assert_eq!(replica.state(), LinkState::Connect, "{load} {wrong}");
        assert_eq!(replica.say("DBSIZE"), "0");
        replica.talk.wait(2_000);
        let sent = replica.turn() + &replica.hear(b"+PONG\r\n+OK\r\n+OK\r\n+OK\r\n", usize::MAX);
        assert!(sent.contains("\r\n?\r\n"), "it has nothing to go on from: {sent}");
    }
}

#[test]
fn what_cannot_be_applied_is_not_acknowledged_and_a_dump_is_asked_for() {
    for refused in [&["LPUSH k 1"][..], &["MULTI", "SET a 9", "LPUSH k 1", "EXEC"], &["NOSUCHCOMMAND x"]] {
        let mut replica = Replica::following();
        replica.turn();
        replica.hear(&session(STREAM, true), usize::MAX);
        assert!(replica.engine().point().is_some());
        let sent = replica.hear(&requests(&[&["SELECT 0"], refused, &["REPLCONF GETACK *"]].concat()), usize::MAX);
        assert!(!sent.contains("ACK"), "{refused:?}: {sent}");
        assert_eq!((replica.engine().point(), replica.state()), (None, LinkState::Connect), "{refused:?}");
        replica.talk.wait(2_000);
        let sent = replica.turn() + &replica.hear(b"+PONG\r\n+OK\r\n+OK\r\n+OK\r\n", usize::MAX);
        assert!(sent.contains("PSYNC\r\n$1\r\n?\r\n"), "it has nothing to go on from: {sent}");
    }
}

/// A client of the primary had other limits than clients of the replica have.
#[test]
fn limits_of_clients_do_not_hold_for_the_primary() {
    let mut replica = Replica::following();
    replica.say("CONFIG SET proto-max-bulk-len 1mb maxmemory 1");
    replica.turn();
    replica.hear(&session(STREAM, true), usize::MAX);
    replica.hear(&requests(&["SELECT 0", "SETRANGE long 3000000 x"]), usize::MAX);
    assert_eq!(replica.say("STRLEN long"), "3000001");
    assert_eq!(replica.state(), LinkState::Connected);
}

/// A dump that does not come to its end: the old data were served so long, where it is kept first.
#[test]
fn a_dump_that_ends_early() {
    let bytes = session(&[], false);
    for (load, left) in [("disabled", "1"), ("swapdb", "0")] {
        let mut replica = Replica::new();
        replica.say("SET old 1");
        replica.say(&format!("CONFIG SET repl-diskless-load {load}"));
        replica.say("REPLICAOF primary 7");
        replica.turn();
        replica.hear(&bytes[..bytes.len() - 10], usize::MAX);
        let now = replica.talk.now();
        replica.follower.handle_broken("it is gone", now);
        replica.turn();
        assert_eq!(replica.say("DBSIZE"), left, "{load}");
        assert!(replica.file.is_empty());
    }
}

#[test]
fn who_comes_back_goes_on() {
    let mut replica = Replica::following();
    replica.turn();
    replica.hear(&session(STREAM, true), usize::MAX);
    let end = replica.end();
    let half = requests(&["MULTI", "SET a 9"]);
    replica.hear(&half, usize::MAX);
    let now = replica.talk.now();
    replica.follower.handle_broken("it is gone", now);
    assert_eq!(replica.turn(), "");
    assert!(replica.say("INFO replication").contains("master_link_status:down\\r\\nmaster_last_io_seconds_ago:-1"));
    replica.talk.wait(100);
    let sent = replica.turn() + &replica.hear(b"+PONG\r\n+OK\r\n+OK\r\n+OK\r\n", usize::MAX);
    let asked = String::from_utf8(requests(&[&format!("PSYNC {HISTORY} {}", end + 1)])).unwrap();
    assert!(sent.ends_with(&asked), "{sent}");
    replica.hear(format!("+CONTINUE {OTHER}\r\n").as_bytes(), usize::MAX);
    replica.hear(&requests(&["SET c 5"]), usize::MAX);
    replica.say("SELECT 3");
    assert_eq!(replica.say("GET c"), "\"5\"", "the database is the one before");
    let histories = replica.engine().identity.all_histories();
    assert_eq!((histories.first, histories.second), (OTHER.to_owned(), Some((HISTORY.to_owned(), end))));
}

#[test]
fn answers_and_what_follows_from_them() {
    for (answer, sends, state) in [
        ("-NOMASTERLINK not now\r\n", "", LinkState::Connect),
        ("-LOADING wait\r\n", "", LinkState::Connect),
        ("+NONSENSE\r\n", "", LinkState::Connect),
        ("+FULLRESYNC x y\r\n", "", LinkState::Connect),
        ("+CONTINUE\r\n", "", LinkState::Connect),
        ("-ERR unknown command 'PSYNC'\r\n", "*1\r\n$4\r\nSYNC\r\n", LinkState::Sync),
        ("-ERR unknown command 'PSYNC'\r\n-ERR no\r\n", "*1\r\n$4\r\nSYNC\r\n", LinkState::Connect),
        ("\n\n\n", "", LinkState::Handshake),
    ] {
        let mut replica = Replica::following();
        replica.turn();
        replica.hear(b"+PONG\r\n+OK\r\n+OK\r\n+OK\r\n", usize::MAX);
        let sent = replica.hear(answer.as_bytes(), 1);
        assert_eq!(replica.state(), state, "{answer}");
        assert_eq!(sent, sends, "{answer}");
    }
    for greeting in ["-ERR no\r\n", "-NOAUTH\r\n-WRONGPASS\r\n"] {
        let mut replica = Replica::new();
        replica.say("CONFIG SET primaryauth secret");
        replica.say("REPLICAOF primary 7");
        replica.turn();
        replica.hear(greeting.as_bytes(), usize::MAX);
        assert_eq!(replica.state(), LinkState::Connect, "{greeting}");
    }
    let mut replica = Replica::following();
    replica.turn();
    replica.hear(&[b'x'; 5_000], usize::MAX);
    assert_eq!(replica.state(), LinkState::Connect, "a line has an end");
}

/// A primary that knows no positions is followed all the same, and told none.
#[test]
fn an_old_primary() {
    let mut replica = Replica::following();
    replica.turn();
    replica.hear(b"+PONG\r\n-ERR what?\r\n-ERR what?\r\n-ERR what?\r\n-ERR what?\r\n", usize::MAX);
    let dump = dump();
    replica.hear(&[format!("${}\r\n", dump.len()).as_bytes(), &dump].concat(), usize::MAX);
    replica.talk.wait(3_000);
    assert_eq!(replica.hear(&requests(&["SET a 1"]), usize::MAX), "");
    assert_eq!(replica.say("MGET k a"), "[\"1\" \"1\"]");
}

#[test]
fn silence_ends_a_link() {
    let mut replica = Replica::following();
    replica.say("CONFIG SET repl-timeout 5");
    replica.turn();
    replica.hear(&session(&[], true), usize::MAX);
    assert_eq!(replica.state(), LinkState::Connected);
    assert!(replica.engine().link_status().is_some_and(|status| status.is_up && !status.is_syncing));
    for _ in 0..5 {
        replica.talk.wait(4_000);
        replica.turn();
        replica.hear(&requests(&["PING"]), usize::MAX);
    }
    assert_eq!(replica.state(), LinkState::Connected);
    replica.talk.wait(7_000);
    replica.turn();
    assert_ne!(replica.state(), LinkState::Connected);
}

#[test]
fn a_link_can_be_killed_and_is_listed() {
    let mut replica = Replica::following();
    replica.turn();
    replica.hear(&session(&[], true), usize::MAX);
    let listed = replica.say("CLIENT LIST TYPE master");
    assert!(listed.contains("flags=M ") && listed.contains("addr=10.0.0.1:7"), "{listed}");
    assert_eq!(replica.say("CLIENT KILL TYPE master"), "1");
    replica.turn();
    assert_eq!(replica.state(), LinkState::Connect);
}

#[test]
fn nothing_expires_that_the_primary_does_not_say_has() {
    let mut replica = Replica::following();
    replica.turn();
    replica.hear(&session(&[], true), usize::MAX);
    let at = replica.talk.now().unix_ms() + 100;
    let set = format!("SET e 5 PXAT {at}");
    let late = format!("HSETEX h PXAT {at} FIELDS 1 f v");
    replica.hear(&requests(&[&set, &late, "SET last 1"]), usize::MAX);
    replica.talk.wait(1_000);
    replica.talk.tick();
    assert_eq!(replica.say("GET e"), "(nil)", "it is hidden");
    assert_eq!(replica.say("HGET h f"), "(nil)");
    assert_eq!(replica.say("DBSIZE"), "4", "and there");
    assert_eq!(replica.say("WATCH e"), "OK");
    replica.hear(&requests(&["INCR e"]), usize::MAX);
    assert_eq!(replica.say("DEBUG OBJECT e").split(' ').next(), Some("Value"), "it is there still");
    replica.hear(&requests(&["PERSIST e", &format!("SET past 1 PXAT {}", at - 50)]), usize::MAX);
    assert_eq!(replica.say("GET e"), "\"6\"", "the primary had it");
    assert_eq!(replica.say("GET past"), "(nil)");
    replica.hear(&requests(&["DEL h past"]), usize::MAX);
    assert_eq!(replica.say("DBSIZE"), "3");
}

#[test]
fn transactions_and_scripts_of_clients_write_nothing() {
    let mut replica = Replica::following();
    for (line, reply) in [
        ("MULTI", "OK"),
        ("SET a 1", "(error) READONLY You can't write against a read only replica."),
        ("EXEC", "(error) EXECABORT Transaction discarded because of previous errors."),
        (
            "EVAL \"return redis.pcall('set','k','v')\" 0",
            "(error) READONLY You can't write against a read only replica.",
        ),
        (
            "EVAL \"#!lua\\nreturn redis.call('get','k')\" 0",
            "(error) READONLY Can not run script with write flag on readonly replica",
        ),
        ("EVAL \"#!lua flags=no-writes\\nreturn redis.call('get','k')\" 0", "(nil)"),
        ("CONFIG SET replica-serve-stale-data no", "OK"),
        ("GET a", "(error) MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."),
        ("CONFIG SET replica-read-only no replica-serve-stale-data yes", "OK"),
        ("SET a 1", "OK"),
        ("GET a", "\"1\""),
        (
            "WAIT 0 0",
            "(error) ERR WAIT cannot be used with replica instances. Please also note that if a replica is configured to be \
             writable (which is not the default) writes to replicas are just local and are not propagated.",
        ),
    ] {
        assert_eq!(replica.say(line), reply, "{line}");
    }
}

#[test]
fn who_waits_is_told_when_the_role_changes() {
    let mut replica = Replica::new();
    let waiting = replica.talk.join();
    assert_eq!(replica.talk.raw(waiting, b"BLPOP l 0\r\n"), b"");
    // A transaction may change the role too.
    replica.say("MULTI");
    replica.say("SET a 1");
    replica.say("REPLICAOF primary 7");
    assert_eq!(replica.say("EXEC"), "[OK OK]");
    let told = replica.talk.mail(waiting);
    let text = "-UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)\r\n";
    assert_eq!(String::from_utf8_lossy(&told), text);
    assert!(replica.talk.is_closed(waiting));
    assert_eq!(replica.say("SET a 1"), "(error) READONLY You can't write against a read only replica.");
    assert_eq!(replica.say("REPLICAOF PRIMARY 7"), "OK Already connected to specified master");
    assert_eq!(replica.say("CONFIG GET replicaof"), "[\"replicaof\" \"primary 7\"]");
}

/// A primary that is there, and its replicas.
struct Chain {
    primary: Talk,
    /// Each follows the one before it.
    replicas: Vec<Replica>,
    /// Which client of the one before it each is.
    clients: Vec<Option<usize>>,
}

/// Takes the dump that is wanted of an engine, if any is.
fn serve_dump(talk: &Talk) {
    let Some(sync) = talk.engine_shared().next_full_sync(talk.now()) else { return };
    let mut snapshot = Snapshot::begin_sync(talk.engine_shared(), &sync, talk.now());
    let mut file = Vec::new();
    while snapshot.step() == SnapshotStep::More {
        file.extend_from_slice(&snapshot.take());
    }
    file.extend_from_slice(&snapshot.take());
    let mark = "M".repeat(40);
    let (head, tail) = match sync.is_streamed() {
        true => (format!("$EOF:{mark}\r\n"), mark),
        false => (format!("${}\r\n", file.len()), String::new()),
    };
    sync.send();
    for part in [head.as_bytes(), &file, tail.as_bytes()] {
        sync.put(part, 0, Duration::ZERO).expect("there is room");
    }
    sync.end(talk.now());
}

impl Chain {
    fn new(length: usize) -> Self {
        let primary = Talk::new();
        let replicas: Vec<Replica> = (0..length).map(|_| Replica::following()).collect();
        for talk in std::iter::once(&primary).chain(replicas.iter().map(|replica| &replica.talk)) {
            talk.engine().configure("repl-diskless-sync-delay", "0").unwrap();
        }
        Self { primary, clients: vec![None; length], replicas }
    }

    fn upstream(&mut self, number: usize) -> &mut Talk {
        match number {
            0 => &mut self.primary,
            _ => &mut self.replicas[number - 1].talk,
        }
    }

    /// Lets a replica and the one before it talk until they have nothing more to say.
    fn link(&mut self, number: usize) {
        let mut idle = 0;
        while idle < 3 {
            serve_dump(self.upstream(number));
            let now = self.replicas[number].talk.now();
            let follower = self.replicas[number].follower.clone();
            match follower.next_step(now) {
                Step::Dial { .. } => {
                    self.clients[number] = Some(self.upstream(number).join());
                    follower.handle_connected(link(), now);
                }
                Step::Send(bytes) => {
                    let client = self.clients[number].unwrap();
                    let heard = self.upstream(number).raw(client, &bytes);
                    follower.handle_bytes(&heard, now);
                }
                Step::Keep(bytes) => self.replicas[number].file.extend_from_slice(&bytes),
                Step::Load => {
                    let file = std::mem::take(&mut self.replicas[number].file);
                    follower.handle_kept(&file, now);
                }
                Step::HangUp => self.clients[number] = None,
                Step::Receive(_) => {
                    let client = self.clients[number].unwrap();
                    if self.upstream(number).is_closed(client) {
                        follower.handle_broken("it has closed", now);
                        continue;
                    }
                    let heard = self.upstream(number).mail(client);
                    idle = if heard.is_empty() { idle + 1 } else { 0 };
                    follower.handle_bytes(&heard, now);
                }
                Step::Rest(_) => {
                    self.replicas[number].talk.wait(1_000);
                    idle += 1;
                }
            }
        }
    }

    fn settle(&mut self) {
        (0..self.replicas.len()).for_each(|number| self.link(number));
    }
}

fn digest(talk: &mut Talk) -> String {
    talk.say(0, "DEBUG DIGEST")
}

fn figures(engine: &Arc<Engine>) -> (u64, String) {
    (engine.replication.end(), engine.identity.history())
}

#[test]
fn a_chain_has_the_same_bytes_and_goes_on_when_its_head_is_gone() {
    let mut chain = Chain::new(3);
    chain.primary.say(0, "SET a 1");
    chain.settle();
    chain.primary.say(0, "SELECT 5");
    chain.primary.say(0, "RPUSH l 1 2 3");
    // The last begins while the stream is at another database.
    chain.settle();
    chain.primary.say(0, "MULTI");
    chain.primary.say(0, "LPOP l");
    chain.primary.say(0, "INCR n");
    chain.primary.say(0, "EXEC");
    chain.settle();
    let expected = digest(&mut chain.primary);
    let at = figures(&chain.primary.engine_shared());
    for replica in &mut chain.replicas {
        assert_eq!(digest(&mut replica.talk), expected);
        assert_eq!(figures(&replica.talk.engine_shared()), at);
    }
    // The first replica is promoted: those behind it go on without a dump.
    assert_eq!(chain.replicas[0].say("REPLICAOF NO ONE"), "OK");
    let before = chain.replicas[0].engine().identity.all_histories();
    assert_eq!(before.second, Some((at.1, at.0)));
    chain.replicas[0].say("SET promoted 1");
    for _ in 0..3 {
        chain.link(1);
        chain.link(2);
    }
    let expected = digest(&mut chain.replicas[0].talk);
    let at = figures(&chain.replicas[0].talk.engine_shared());
    for replica in &mut chain.replicas[1..] {
        assert_eq!(digest(&mut replica.talk), expected);
        assert_eq!(figures(&replica.talk.engine_shared()), at);
        assert!(replica.say("INFO stats").contains("sync_full"));
    }
    assert!(chain.replicas[0].say("INFO stats").contains("sync_full:1\\r\\nsync_partial_ok:1"));
    // The former head has what the promoted one had: it goes on as its replica.
    let former = std::mem::replace(&mut chain.primary, Talk::new());
    let promoted = std::mem::replace(&mut chain.replicas[0], Replica::new());
    chain.primary = promoted.talk;
    let follower = Follower::new(former.engine_shared());
    chain.replicas[0] = Replica { talk: former, follower, file: Vec::new(), read: 0 };
    chain.replicas[0].say("REPLICAOF primary 7");
    chain.clients[0] = None;
    chain.link(0);
    let expected = digest(&mut chain.primary);
    assert_eq!(digest(&mut chain.replicas[0].talk), expected);
    assert!(chain.primary.say(0, "INFO stats").contains("sync_full:1\\r\\nsync_partial_ok:2"));
}

#[test]
fn a_dump_says_which_point_it_is_of() {
    let mut chain = Chain::new(1);
    chain.settle();
    chain.primary.say(0, "SELECT 4");
    chain.primary.say(0, "SET a 1 EX 1");
    chain.settle();
    let replica = &chain.replicas[0];
    let mut snapshot = Snapshot::begin(
        replica.talk.engine_shared(),
        crate::persist::snapshot::Purpose::Dump,
        true,
        replica.talk.now(),
    );
    while snapshot.step() == SnapshotStep::More {}
    let file = snapshot.take();
    chain.primary.say(0, "SET b 1");
    // It starts again with that file, and goes on.
    let again = Talk::new();
    again.engine().configure("replicaof", "primary 7").unwrap();
    let mut import = again.engine().import_rdb(crate::rdb::ImportOptions { is_own: true, ..Default::default() });
    import.handle_bytes(&file, again.now()).unwrap();
    let point = import.finish().unwrap().point.expect("it says one");
    again.engine().restore_point(&point, again.now());
    again.engine().follow_as_configured(again.now());
    let follower = Follower::new(again.engine_shared());
    chain.replicas[0] = Replica { talk: again, follower, file: Vec::new(), read: 0 };
    chain.clients[0] = None;
    chain.settle();
    let expected = digest(&mut chain.primary);
    assert_eq!(digest(&mut chain.replicas[0].talk), expected);
    assert!(chain.primary.say(0, "INFO stats").contains("sync_full:1\\r\\nsync_partial_ok:1"));
}

#[test]
fn a_primary_hands_its_role_over() {
    let mut chain = Chain::new(1);
    chain.replicas[0].say("CONFIG SET replica-announce-port 77 replica-announce-ip there");
    chain.settle();
    chain.primary.say(0, "SET a 1");
    let blocked = chain.primary.join();
    assert_eq!(
        chain.primary.say(0, "FAILOVER TO there 78"),
        "(error) ERR FAILOVER target HOST and PORT is not a replica."
    );
    assert_eq!(chain.primary.say(0, "FAILOVER TO there 77 TIMEOUT 10000"), "OK");
    assert_eq!(chain.primary.say(0, "FAILOVER"), "(error) ERR FAILOVER already in progress.");
    assert_eq!(chain.primary.raw(blocked, b"SET a 2\r\n"), b"", "writes are held back");
    chain.primary.tick();
    assert!(chain.primary.say(0, "INFO replication").contains("master_failover_state:waiting-for-sync"));
    chain.settle();
    chain.primary.wait(100);
    chain.primary.tick();
    assert!(chain.primary.say(0, "INFO replication").contains("master_failover_state:failover-in-progress"));
    // They trade places.
    let former = std::mem::replace(&mut chain.primary, Talk::new());
    let promoted = std::mem::replace(&mut chain.replicas[0], Replica::new());
    chain.primary = promoted.talk;
    let follower = Follower::new(former.engine_shared());
    chain.replicas[0] = Replica { talk: former, follower, file: Vec::new(), read: 0 };
    chain.clients[0] = None;
    chain.link(0);
    assert!(chain.primary.say(0, "INFO replication").contains("role:master"));
    assert!(chain.replicas[0].say("INFO replication").contains("master_failover_state:no-failover"));
    assert_eq!(chain.replicas[0].state(), LinkState::Connected);
    chain.replicas[0].talk.wait(2_000);
    let told = chain.replicas[0].talk.mail(blocked);
    assert_eq!(told, b"-READONLY You can't write against a read only replica.\r\n");
    assert_eq!(chain.primary.say(0, "SET a 3"), "OK");
    chain.link(0);
    assert_eq!(chain.replicas[0].say("GET a"), "\"3\"");
}
