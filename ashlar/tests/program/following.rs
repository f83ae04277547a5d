//! The key-value engine follows others: `redis-server` where it is installed, and servers of its own kind.

use std::process::{Child, Command, Stdio};

use super::process::{Running, Scratch, nobody, until};
use super::replicas::{Other, Wire, engine_at, write};

/// A server of our kind that can be started again with what it has on files.
struct Ours {
    scratch: Scratch,
    address: String,
    running: Running,
}

impl Ours {
    fn start(more: &[&str]) -> Self {
        let (scratch, address) = (Scratch::new(), nobody());
        let running = engine_at(&scratch, &address, more);
        Self { scratch, address, running }
    }

    fn wire(&self) -> Wire {
        Wire::new(&self.address).expect("it listens")
    }

    fn ask(&self, words: &[&str]) -> String {
        self.wire().ask(words)
    }

    /// It ends at once, or in an orderly way, and is started again.
    fn again(&mut self, signal: &str, more: &[&str]) {
        self.running.signal(signal);
        self.running.wait();
        self.running = engine_at(&self.scratch, &self.address, more);
    }

    fn follow(&self, address: &str) {
        let (host, port) = address.rsplit_once(':').expect("a port");
        assert_eq!(self.ask(&["REPLICAOF", host, port]), "OK");
    }
}

fn redis(folder: &Scratch, address: &str, more: &[&str]) -> Option<Other> {
    if Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_err() {
        // Whoever asks has nothing to test then.
        return None;
    }
    let port = address.rsplit(':').next().expect("a port");
    let begin = ["--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", &folder.path("")];
    let settings = ["--enable-debug-command", "yes", "--repl-diskless-sync-delay", "0", "--repl-timeout", "20"];
    let mut command = Command::new("redis-server");
    command.args(begin).args(settings).args(more).stdout(Stdio::null()).stderr(Stdio::null());
    let child: Child = command.spawn().expect("it is installed");
    until("redis to answer", || Wire::new(address).is_some_and(|mut wire| wire.ask(&["PING"]) == "PONG"));
    Some(Other(child))
}

/// Waits until `count` replicas have everything that a server has, and compares all.
fn same(primary: &mut Wire, count: &str, replicas: &[&str]) {
    until("replicas to be up", || {
        primary.ask(&["INFO", "replication"]).matches("state=online").count().to_string() == count
    });
    // A client waits for what it wrote.
    primary.ask(&["SET", "written", "last"]);
    until("replicas to have everything", || primary.ask(&["WAIT", count, "1000"]) == count);
    let (digest, position) = (primary.ask(&["DEBUG", "DIGEST"]), position(primary));
    for address in replicas {
        let mut wire = Wire::new(address).expect("it listens");
        until("a replica to come so far", || self::position(&mut wire) >= position);
        assert_eq!(wire.ask(&["DEBUG", "DIGEST"]), digest, "{address}");
    }
}

fn position(wire: &mut Wire) -> u64 {
    figure(&wire.ask(&["INFO", "replication"]), "master_repl_offset").parse().expect("a number")
}

fn figure<'t>(text: &'t str, name: &str) -> &'t str {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).expect("INFO tells it")
}

/// How many got a dump from a server, and how many went on without one.
fn synchronised(wire: &mut Wire) -> (String, String) {
    let stats = wire.ask(&["INFO", "stats"]);
    (figure(&stats, "sync_full").to_owned(), figure(&stats, "sync_partial_ok").to_owned())
}

#[test]
fn we_follow_redis() {
    let (folder, address) = (Scratch::new(), nobody());
    let Some(primary) = redis(&folder, &address, &[]) else { return };
    let mut client = Wire::new(&address).expect("it listens");
    write(&mut client, 0, 200);
    let port = address.rsplit(':').next().expect("a port");
    let mut ours = Ours::start(&["--replicaof", "127.0.0.1", port]);
    write(&mut client, 200, 300);
    same(&mut client, "1", &[&ours.address]);
    assert_eq!(ours.ask(&["SET", "a", "1"]), "READONLY You can't write against a read only replica.");
    // The link is cut, from either side, and goes on where it was.
    assert_eq!(client.ask(&["CLIENT", "KILL", "TYPE", "replica"]), "1");
    write(&mut client, 300, 350);
    same(&mut client, "1", &[&ours.address]);
    assert_eq!(ours.ask(&["CLIENT", "KILL", "TYPE", "master"]), "1");
    write(&mut client, 350, 400);
    until("a second time", || synchronised(&mut client).1 == "2");
    same(&mut client, "1", &[&ours.address]);
    assert_eq!(synchronised(&mut client), ("1".into(), "2".into()));
    // We stop in an orderly way, with a dump, and go on with it.
    assert_eq!(ours.ask(&["CONFIG", "SET", "save", "3600 1"]), "OK");
    ours.again("TERM", &["--replicaof", "127.0.0.1", port]);
    write(&mut client, 400, 420);
    same(&mut client, "1", &[&ours.address]);
    assert_eq!(synchronised(&mut client), ("1".into(), "3".into()));
    // We are killed: what we have on a file is older, and the primary still has what follows.
    ours.again("KILL", &["--replicaof", "127.0.0.1", port]);
    same(&mut client, "1", &[&ours.address]);
    // The primary is killed, and another one is there with other data.
    drop(primary);
    until("the link to be down", || figure(&ours.ask(&["INFO", "replication"]), "master_link_status") == "down");
    assert_eq!(ours.ask(&["GET", "written"]), "last", "what is there is served");
    let _primary = redis(&folder, &address, &[]);
    let mut client = Wire::new(&address).expect("it listens");
    write(&mut client, 1_000, 1_020);
    same(&mut client, "1", &[&ours.address]);
    // And nobody any more.
    assert_eq!(ours.ask(&["REPLICAOF", "NO", "ONE"]), "OK");
    assert_eq!(ours.ask(&["SET", "a", "1"]), "OK");
}

#[test]
fn a_chain_that_loses_its_head() {
    let (folder, last) = (Scratch::new(), nobody());
    let head = Ours::start(&[]);
    let mut client = head.wire();
    write(&mut client, 0, 100);
    let (second, third) = (Ours::start(&["--appendonly", "yes"]), Ours::start(&[]));
    second.follow(&head.address);
    write(&mut client, 100, 150);
    same(&mut client, "1", &[&second.address]);
    third.follow(&second.address);
    write(&mut client, 150, 200);
    let port = third.address.rsplit(':').next().expect("a port");
    let redis = redis(&folder, &last, &["--replicaof", "127.0.0.1", port]);
    let mut all = vec![&*second.address, &*third.address];
    if redis.is_some() {
        all.push(&last);
        until("redis to be up", || third.ask(&["INFO", "replication"]).contains("state=online"));
    }
    write(&mut client, 200, 300);
    same(&mut client, "1", &all);
    // The head is killed, and the second takes its place: the others go on, and so does the head's successor.
    drop(head);
    assert_eq!(second.ask(&["REPLICAOF", "NO", "ONE"]), "OK");
    let mut client = second.wire();
    write(&mut client, 300, 400);
    same(&mut client, "1", &all[1..]);
    assert_eq!(synchronised(&mut client), ("1".into(), "1".into()));
    let fourth = Ours::start(&["--repl-diskless-load", "swapdb"]);
    fourth.follow(&second.address);
    write(&mut client, 400, 450);
    same(&mut client, "2", &[&all[1..], &[&fourth.address]].concat());
    // What the second applied and did is in its log.
    let (mut second, digest) = (second, client.ask(&["DEBUG", "DIGEST"]));
    second.again("KILL", &["--appendonly", "yes"]);
    assert_eq!(second.ask(&["DEBUG", "DIGEST"]), digest);
}

/// Two servers trade places while a client writes: nothing that it was told is lost.
#[test]
fn places_are_traded() {
    let (one, other) = (Ours::start(&[]), Ours::start(&[]));
    other.follow(&one.address);
    let mut client = one.wire();
    write(&mut client, 0, 50);
    same(&mut client, "1", &[&other.address]);
    for round in 0..4 {
        let (primary, replica) = if round % 2 == 0 { (&one, &other) } else { (&other, &one) };
        let mut client = primary.wire();
        assert_eq!(client.ask(&["INCR", "rounds"]), (round + 1).to_string());
        assert_eq!(primary.ask(&["FAILOVER"]), "OK");
        until("the roles to be traded", || {
            primary.ask(&["ROLE"]).starts_with("slave ") && replica.ask(&["ROLE"]).starts_with("master ")
        });
        until("the failover to be over", || {
            figure(&primary.ask(&["INFO", "replication"]), "master_failover_state") == "no-failover"
        });
        write(&mut replica.wire(), round * 10, round * 10 + 10);
        same(&mut replica.wire(), "1", &[&primary.address]);
    }
    assert_eq!(one.ask(&["GET", "rounds"]), "4");
    assert_eq!(synchronised(&mut one.wire()).0, "1");
    assert_eq!(synchronised(&mut other.wire()).0, "0", "nobody needed a dump again");
}
