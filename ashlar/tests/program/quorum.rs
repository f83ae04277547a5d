//! A shard whose writes a majority acknowledges loses none of them, whoever is killed.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use super::cluster::Node;
use super::process::until;

/// Kills in an ordinary run; `ASHLAR_KILL_ROUNDS` asks for another number.
const ROUNDS: usize = 3;
/// Clients that write, each to a key of its own.
const WRITERS: usize = 3;
/// Keys that are written before all copies of a shard die.
const KEYS: usize = 200;
/// How long a client waits for a reply before it asks elsewhere.
const PATIENCE: Duration = Duration::from_secs(8);
/// How long a client does nothing before it asks elsewhere.
const PAUSE: Duration = Duration::from_millis(20);
/// Told to the nodes of the shard that is watched.
const QUORUM: &[&str] = &["--replication-quorum", "yes", "--replication-quorum-copies-min", "2"];

/// How far a client has come: the last number that it sent, and the last that was acknowledged or read.
#[derive(Default)]
struct Progress {
    sent: AtomicU64,
    known: AtomicU64,
    count: AtomicU64,
}

/// A connection that may break at any time.
struct Line(BufReader<TcpStream>);

impl Line {
    fn new(address: &str) -> Option<Self> {
        let stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        Some(Self(BufReader::new(stream)))
    }

    /// A line, or a text; nothing if the connection broke.
    fn ask(&mut self, request: &str) -> Option<String> {
        self.0.get_mut().write_all(request.as_bytes()).ok()?;
        let mut line = String::new();
        if self.0.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_owned();
        match line.strip_prefix('$').map(str::parse::<usize>) {
            Some(Ok(count)) => {
                let mut text = vec![0; count + 2];
                self.0.read_exact(&mut text).ok()?;
                String::from_utf8(text[..count].to_vec()).ok()
            }
            _ => Some(line),
        }
    }
}

/// Writes one number after the other to a key and reads it in between, wherever it is served, until told to stop.
fn work(nodes: &[String], writer: usize, progress: &Progress, is_over: &AtomicBool) {
    let key = format!("{{bar}}{writer}");
    let (mut turn, mut line) = (writer, None);
    let (_keep, never) = mpsc::channel::<()>();
    while !is_over.load(Ordering::SeqCst) {
        if line.is_none() {
            // A connection each time, so not too often.
            never.recv_timeout(PAUSE).ok();
            turn += 1;
            line = Line::new(&nodes[turn % nodes.len()]);
            continue;
        }
        let number = progress.sent.load(Ordering::SeqCst) + 1;
        progress.sent.store(number, Ordering::SeqCst);
        let written = line.as_mut().and_then(|line| line.ask(&format!("SET {key} {number}\r\n")));
        if written.as_deref() != Some("+OK") {
            line = None;
            continue;
        }
        progress.known.store(number, Ordering::SeqCst);
        progress.count.fetch_add(1, Ordering::SeqCst);
        if number.is_multiple_of(4) {
            check(&mut line, &key, progress);
        }
    }
}

/// What is read must be what was acknowledged, or what was sent after that.
fn check(line: &mut Option<Line>, key: &str, progress: &Progress) -> bool {
    let read = line.as_mut().and_then(|line| line.ask(&format!("GET {key}\r\n")));
    let Some(read) = read.filter(|text| !text.starts_with('-')) else {
        *line = None;
        return false;
    };
    let number: u64 = if read == "$-1" { 0 } else { read.parse().expect("it was a number") };
    let bounds = progress.known.load(Ordering::SeqCst)..=progress.sent.load(Ordering::SeqCst);
    assert!(bounds.contains(&number), "{key} is {number}, and {bounds:?} may be");
    progress.known.store(number, Ordering::SeqCst);
    true
}

/// Three primaries; the first one's shard has two replicas, and all three wait for a majority.
fn cluster() -> Vec<Node> {
    let mut nodes: Vec<Node> = [QUORUM, &[], &[], QUORUM, QUORUM].map(Node::with).into();
    for (number, slots) in [["0", "5460"], ["5461", "10922"], ["10923", "16383"]].iter().enumerate() {
        assert_eq!(nodes[number].ask(&["CLUSTER", "ADDSLOTSRANGE", slots[0], slots[1]]), "OK");
    }
    for other in &nodes[1..] {
        assert_eq!(nodes[0].ask(&["CLUSTER", "MEET", "127.0.0.1", other.port(), &other.bus_port]), "OK");
    }
    until("all nodes to know each other", || nodes.iter().all(|node| node.is_up(nodes.len())));
    for replica in &nodes[3..] {
        assert_eq!(replica.ask(&["CLUSTER", "REPLICATE", &nodes[0].name()]), "OK");
    }
    nodes.swap(1, 3);
    nodes.swap(2, 4);
    until("all three to be members", || has_members(&nodes[0], &nodes[..3]));
    nodes
}

/// Whether a primary serves, and these are the members of its shard.
fn has_members(primary: &Node, members: &[Node]) -> bool {
    let info = primary.ask(&["INFO", "replication"]);
    let line = info.lines().find_map(|line| line.strip_prefix("quorum_members:")).unwrap_or_default();
    let is_serving = info.contains("quorum_serving:1") && info.contains("quorum_majority_present:1");
    is_serving && !line.contains('>') && members.iter().all(|member| line.contains(&member.name()))
}

fn primary_of(nodes: &[Node]) -> Option<usize> {
    let serves =
        |node: &Node| node.running.is_some() && node.ask(&["INFO", "replication"]).contains("quorum_serving:1");
    nodes.iter().position(serves)
}

#[test]
fn no_acknowledged_write_is_lost_whoever_is_killed() {
    let rounds = std::env::var("ASHLAR_KILL_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    let mut nodes = cluster();
    let addresses: Vec<String> = nodes[..3].iter().map(|node| node.address.clone()).collect();
    let progress: Vec<Arc<Progress>> = (0..WRITERS).map(|_| Arc::default()).collect();
    let is_over = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (addresses, is_over) = (addresses.clone(), Arc::clone(&is_over));
            let progress = Arc::clone(&progress[writer]);
            #[allow(clippy::disallowed_methods, reason = "a client beside the test")]
            thread::spawn(move || work(&addresses, writer, &progress, &is_over))
        })
        .collect();
    let written = || progress.iter().map(|one| one.count.load(Ordering::SeqCst)).sum::<u64>();
    for round in 0..rounds {
        let before = written();
        until("some writes", || written() >= before + 20 + round as u64 * 37 % 200);
        // The primary mostly, a replica now and then.
        let primary = primary_of(&nodes[..3]).expect("somebody serves");
        let victim = if round % 4 == 3 { (primary + 1) % 3 } else { primary };
        nodes[victim].kill();
        let after = written();
        until("writes to go on", || written() >= after + 20);
        nodes[victim].start();
        until("all to have a copy again", || {
            let primary = primary_of(&nodes[..3]);
            primary.is_some_and(|primary| has_members(&nodes[primary], &nodes[..3]))
                && nodes[..3].iter().all(|node| node.ask(&["INFO", "replication"]).contains("quorum_data_whole:1"))
        });
    }
    is_over.store(true, Ordering::SeqCst);
    writers.into_iter().for_each(|writer| writer.join().expect("what was read was what may be"));
    println!("{} writes acknowledged, {rounds} kills", written());
    for (writer, progress) in progress.iter().enumerate() {
        let primary = primary_of(&nodes[..3]).expect("somebody serves");
        let mut line = Line::new(&nodes[primary].address);
        until("a last look", || check(&mut line, &format!("{{bar}}{writer}"), progress));
    }
}

/// Whether a node takes a write.
fn takes(node: &Node, request: &str) -> bool {
    Line::new(&node.address).and_then(|mut line| line.ask(request)).as_deref() == Some("+OK")
}

/// Asks a node for keys that were all written as what they are called.
fn check_keys(node: &Node) {
    let mut line = Line::new(&node.address).expect("it listens");
    for number in 0..KEYS {
        assert_eq!(line.ask(&format!("GET {{bar}}{number}\r\n")), Some(number.to_string()), "it was acknowledged");
    }
}

#[test]
fn a_shard_whose_copies_all_died_begins_anew_where_an_operator_says() {
    let mut nodes = cluster();
    let mut line = Line::new(&nodes[0].address).expect("it listens");
    for number in 0..KEYS {
        let reply = line.ask(&format!("SET {{bar}}{number} {number}\r\n"));
        assert_eq!(reply.as_deref(), Some("+OK"));
    }
    nodes[..3].iter_mut().for_each(Node::kill);
    nodes[..3].iter_mut().for_each(Node::start);

    let waits = |node: &Node| node.ask(&["INFO", "replication"]).contains("quorum_waits:");
    until("somebody to wait for the others", || nodes[..3].iter().any(waits));
    for _ in 0..10 {
        assert!(!nodes[..3].iter().any(|node| takes(node, "SET {bar} 1\r\n")), "nobody knows who has everything");
    }
    // The one that was primary has everything that was acknowledged; the cluster may have chosen another meanwhile.
    until("the shard to begin anew", || {
        let reply = nodes[0].ask(&["CLUSTER", "BEGINSHARD"]);
        if reply.contains("TAKEOVER") {
            nodes[0].ask(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
        }
        reply.contains("serves term")
    });
    until("all three to be members again", || has_members(&nodes[0], &nodes[..3]));
    until("the cluster to be there again", || nodes[0].is_up(nodes.len()));
    check_keys(&nodes[0]);
    until("a write", || takes(&nodes[0], "SET {bar} 1\r\n"));
}
