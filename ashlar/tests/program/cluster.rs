//! Key-value engines as nodes of a cluster, driven as `valkey-cli --cluster` drives them.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ashlar::os::datadir::{Token, cluster_in, secret_of};

use super::process::{Running, Scratch, check_fails, nobody, until};
use super::replicas::Wire;

/// A node, and all that is needed to start it again.
pub(super) struct Node {
    scratch: Scratch,
    pub(super) address: String,
    pub(super) bus_port: String,
    pub(super) running: Option<Running>,
    /// What it is told beside what all are.
    extra: &'static [&'static str],
}

impl Node {
    fn new() -> Self {
        Self::with(&[])
    }

    /// One that is told more.
    pub(super) fn with(extra: &'static [&'static str]) -> Self {
        let port = |address: &str| address.rsplit(':').next().expect("an address has a port").to_owned();
        let mut node =
            Self { scratch: Scratch::new(), address: nobody(), bus_port: port(&nobody()), running: None, extra };
        node.start();
        node
    }

    pub(super) fn port(&self) -> &str {
        self.address.rsplit(':').next().expect("an address has a port")
    }

    pub(super) fn start(&mut self) {
        let data = self.scratch.path("");
        let begin =
            ["kv", "--port", self.port(), "--workers", "1", "--dir", &data, "--save", "", "--appendonly", "yes"];
        let cluster = ["--cluster-enabled", "yes", "--cluster-port", &self.bus_port, "--cluster-node-timeout", "1000"];
        let called = ["--cluster-announce-human-nodename", &format!("node-{}", self.port())];
        let more = ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "3600", "--appendfsync", "always"];
        let running = Running::start(&[&begin[..], &cluster, &called, &more, self.extra].concat(), &[]);
        until("a node to answer", || Wire::new(&self.address).is_some_and(|mut wire| wire.ask(&["PING"]) == "PONG"));
        self.running = Some(running);
    }

    /// Ends it as a lost machine does.
    pub(super) fn kill(&mut self) {
        self.running.take().expect("it runs").signal("KILL");
    }

    pub(super) fn ask(&self, words: &[&str]) -> String {
        Wire::new(&self.address).expect("it listens").ask(words)
    }

    pub(super) fn name(&self) -> String {
        self.ask(&["CLUSTER", "MYID"])
    }

    fn info(&self) -> String {
        self.ask(&["CLUSTER", "INFO"])
    }

    pub(super) fn is_up(&self, nodes: usize) -> bool {
        let info = self.info();
        let lines = ["cluster_state:ok", "cluster_slots_ok:16384", &format!("cluster_known_nodes:{nodes}")];
        lines.iter().all(|line| info.contains(line))
    }

    pub(super) fn has_role(&self, role: &str) -> bool {
        self.ask(&["ROLE"]).starts_with(role)
    }
}

/// A client that goes where it is sent.
#[derive(Default)]
struct Client {
    wires: BTreeMap<String, Wire>,
}

impl Client {
    fn ask(&mut self, first: &str, words: &[&str]) -> String {
        let (mut address, mut is_asked) = (first.to_owned(), false);
        for _ in 0..8 {
            let wire = self.wires.entry(address.clone()).or_insert_with(|| Wire::new(&address).expect("it listens"));
            if is_asked {
                assert_eq!(wire.ask(&["ASKING"]), "OK");
            }
            let reply = wire.ask(words);
            let sent: Vec<&str> = reply.split(' ').collect();
            match sent[..] {
                [word @ ("MOVED" | "ASK"), _, to] => (address, is_asked) = (to.to_owned(), word == "ASK"),
                _ => return reply,
            }
        }
        panic!("{words:?} is sent from node to node");
    }
}

/// A cluster of so many primaries.
fn primaries(primaries: usize, nodes: usize) -> Vec<Node> {
    let nodes: Vec<Node> = (0..nodes).map(|_| Node::new()).collect();
    for (number, node) in nodes[..primaries].iter().enumerate() {
        let (first, last) = (16_384 * number / primaries, 16_384 * (number + 1) / primaries - 1);
        assert_eq!(node.ask(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]), "OK");
    }
    for other in &nodes[1..] {
        let (port, bus_port) = (other.port(), other.bus_port.as_str());
        assert_eq!(nodes[0].ask(&["CLUSTER", "MEET", "127.0.0.1", port, bus_port]), "OK");
    }
    until("all nodes to know each other", || nodes.iter().all(|node| node.is_up(nodes.len())));
    nodes
}

/// The same, each with a replica.
fn cluster(primaries: usize) -> Vec<Node> {
    let nodes = self::primaries(primaries, primaries * 2);
    for (replica, primary) in nodes[primaries..].iter().zip(&nodes) {
        assert_eq!(replica.ask(&["CLUSTER", "REPLICATE", &primary.name()]), "OK");
    }
    let follows = |node: &Node| node.ask(&["INFO", "replication"]).contains("master_link_status:up");
    until("replicas to follow", || nodes[primaries..].iter().all(follows));
    // Clients go to replicas that they know of when a primary is lost.
    let shows_all = |node: &Node| nodes.iter().all(|other| node.ask(&["CLUSTER", "SLOTS"]).contains(&other.name()));
    until("replicas to be shown to clients", || nodes.iter().all(shows_all));
    nodes
}

fn check_keys(client: &mut Client, first: &str, count: usize) {
    for number in 0..count {
        assert_eq!(client.ask(first, &["GET", &format!("key:{number}")]), format!("value {number}"));
    }
}

#[test]
fn a_replica_takes_over_and_gives_back() {
    const KEYS: usize = 300;
    let mut nodes = cluster(3);
    let mut client = Client::default();
    for number in 0..KEYS {
        let words = ["SET", &format!("key:{number}"), &format!("value {number}")];
        assert_eq!(client.ask(&nodes[0].address, &words), "OK");
    }
    let has_all = |replica: &Node, primary: &Node| replica.ask(&["DBSIZE"]) == primary.ask(&["DBSIZE"]);
    until("replicas to have all", || (0..3).all(|number| has_all(&nodes[number + 3], &nodes[number])));

    nodes[0].kill();
    let log = &nodes[1].running.as_ref().expect("it runs").err;
    assert!(Running::line(log, "member failed").contains(&format!("node-{}", nodes[0].port())));
    // The client is sent to all of them, and each learns by itself that all slots are served.
    until("the replica to take over", || nodes[3].has_role("master") && nodes[1..].iter().all(|node| node.is_up(6)));
    let mut client = Client::default();
    check_keys(&mut client, &nodes[1].address, KEYS);
    assert_eq!(client.ask(&nodes[1].address, &["SET", "key:0", "value 0"]), "OK");

    nodes[0].start();
    until("the former primary to follow", || {
        nodes[0].ask(&["INFO", "replication"]).contains("master_link_status:up") && nodes[0].is_up(6)
    });
    until("it to have all", || has_all(&nodes[0], &nodes[3]));
    assert_eq!(nodes[0].ask(&["CLUSTER", "FAILOVER"]), "OK");
    until("it to be primary again", || {
        nodes[0].has_role("master") && nodes[3].has_role("slave") && nodes.iter().all(|node| node.is_up(6))
    });
    check_keys(&mut Client::default(), &nodes[0].address, KEYS);
}

/// The secret that earlier versions derived from a password.
fn fast_secret(password: &str) -> String {
    secret_of(&format!("ashlar kv cluster without a secret, primaryauth {password}"))
}

#[test]
fn nodes_without_a_secret_derive_it_slowly_from_their_password() {
    let nodes = [Node::with(&["--primaryauth", "word"]), Node::with(&["--primaryauth", "word"])];
    let met = nodes[0].ask(&["CLUSTER", "MEET", "127.0.0.1", nodes[1].port(), &nodes[1].bus_port]);
    assert_eq!(met, "OK");
    until("the nodes to know each other", || nodes.iter().all(|node| node.info().contains("cluster_known_nodes:2")));
    let cluster = |node: &Node| cluster_in(Path::new(&node.scratch.path("nodes.conf"))).expect("it can be read");
    assert_eq!(cluster(&nodes[0]), cluster(&nodes[1]));
    // The id is shown to everybody: it must not be one that can be compared with guesses quickly.
    let fast = Token::parse(&fast_secret("word")).map(|token| token.cluster);
    assert!(cluster(&nodes[0]).is_some() && cluster(&nodes[0]) != fast);
}

#[test]
fn a_node_of_a_cluster_with_a_fast_secret_says_how_to_go_on() {
    let (scratch, address, bus_port) = (Scratch::new(), nobody(), nobody());
    let port = |address: &str| address.rsplit(':').next().expect("an address has a port").to_owned();
    let (dir, port, bus_port) = (scratch.path(""), port(&address), port(&bus_port));
    let begin = ["kv", "--port", &port, "--workers", "1", "--dir", &dir, "--save", "", "--appendonly", "yes"];
    let cluster = ["--cluster-enabled", "yes", "--cluster-port", &bus_port, "--primaryauth", "word"];
    let arguments = [&begin[..], &cluster].concat();
    let name = |secret: &str| {
        let mut node = Running::start(&arguments, &[("ASHLAR_SECRET", secret)]);
        Running::line(&node.out, "Ready to accept connections");
        let name = Wire::new(&address).expect("it listens").ask(&["CLUSTER", "MYID"]);
        node.signal("TERM");
        assert_eq!(node.wait(), Some(0));
        name
    };
    let fast = fast_secret("word");
    let before = name(&fast);
    let id = Token::parse(&fast).expect("a secret").cluster.to_string();
    check_fails(
        &arguments,
        &[],
        2,
        &[&format!("of cluster {id}"), &format!("ASHLAR_SECRET={id}.DIGITS"), "primaryauth"],
    );
    let own = format!("{id}.{}", "0123456789abcdef02468ace13579bdf".repeat(2));
    assert_eq!(name(&own), before, "it is the same node with another secret");
}

#[test]
fn a_node_is_not_told_whom_to_follow_by_its_configuration() {
    let scratch = Scratch::new();
    let file = scratch.write("node.conf", "port 0\ncluster-enabled yes\ncluster-port 7\nreplicaof 127.0.0.1 1\n");
    check_fails(&["kv", "--config", &file], &[], 2, &["replicaof directive not allowed in cluster mode"]);
}

#[test]
fn slots_move_key_by_key_while_they_are_served() {
    const SLOT: &str = "5061";
    let nodes = cluster(2);
    let (source, target) = (&nodes[0], &nodes[1]);
    let mut client = Client::default();
    let keys: Vec<String> = (0..20).map(|number| format!("{{bar}}{number}")).collect();
    keys.iter().for_each(|key| assert_eq!(client.ask(&source.address, &["SET", key, key]), "OK"));
    assert_eq!(target.ask(&["CLUSTER", "SETSLOT", SLOT, "IMPORTING", &source.name()]), "OK");
    assert_eq!(source.ask(&["CLUSTER", "SETSLOT", SLOT, "MIGRATING", &target.name()]), "OK");
    for key in &keys[..10] {
        assert_eq!(source.ask(&["MIGRATE", "127.0.0.1", target.port(), key, "0", "5000"]), "OK");
    }
    keys.iter().for_each(|key| assert_eq!(client.ask(&source.address, &["GET", key]), *key));
    for key in &keys[10..] {
        assert_eq!(source.ask(&["MIGRATE", "127.0.0.1", target.port(), key, "0", "5000"]), "OK");
    }
    for node in [target, source] {
        assert_eq!(node.ask(&["CLUSTER", "SETSLOT", SLOT, "NODE", &target.name()]), "OK");
    }
    until("all to know", || {
        nodes.iter().all(|node| node.ask(&["GET", "bar"]).starts_with("MOVED") != (node.name() == target.name()))
    });
    keys.iter().for_each(|key| assert_eq!(client.ask(&source.address, &["GET", key]), *key));
    assert_eq!(source.ask(&["CLUSTER", "COUNTKEYSINSLOT", SLOT]), "0");
}

/// A client of a node that has sent these words.
fn subscriber(node: &Node, words: &[&str]) -> Wire {
    let mut wire = Wire::new(&node.address).expect("it listens");
    assert_eq!(wire.ask(words), format!("{} {} 1", words[0].to_lowercase(), words[1]));
    wire
}

/// Publishes at a node until a subscriber elsewhere has heard something: who listens is not known everywhere at once.
fn publish_until_heard(node: &Node, ear: &mut Wire) {
    until("a message to come", || {
        node.ask(&["PUBLISH", "news", "hello"]);
        ear.has_more()
    });
    until("the others to come", || {
        assert_eq!(ear.read(), "message news hello");
        !ear.has_more()
    });
}

#[test]
fn messages_reach_subscribers_at_all_nodes() {
    let mut nodes = cluster(2);
    for number in 1..4 {
        publish_until_heard(&nodes[0], &mut subscriber(&nodes[number], &["SUBSCRIBE", "news"]));
    }
    let listen = |node: &Node| [subscriber(node, &["SUBSCRIBE", "weather"]), subscriber(node, &["PSUBSCRIBE", "wea*"])];
    let mut ears: Vec<[Wire; 2]> = nodes.iter().map(listen).collect();
    let long = "x".repeat(300_000);
    let script = ["EVAL", "return redis.call('PUBLISH', 'weather', ARGV[1])", "0", "rain"];
    for (node, words) in [(&nodes[0], &["PUBLISH", "weather", "sun"][..]), (&nodes[1], &script)] {
        assert_eq!(node.ask(words), "2", "only those of the node itself are counted");
        for [channel, pattern] in &mut ears {
            assert_eq!(channel.read(), format!("message weather {}", words[words.len() - 1]));
            assert_eq!(pattern.read(), format!("pmessage wea* weather {}", words[words.len() - 1]));
        }
    }
    assert_eq!(nodes[3].ask(&["PUBLISH", "weather", &long]), "2");
    ears.iter_mut().for_each(|[channel, _]| assert_eq!(channel.read(), format!("message weather {long}")));

    // The channel `bar` is in a slot of the first primary: its shard hears, from either of the two.
    let mut shard = [0, 2].map(|number| subscriber(&nodes[number], &["SSUBSCRIBE", "bar"]));
    for number in [0, 2] {
        assert_eq!(nodes[number].ask(&["SPUBLISH", "bar", "hi"]), "1");
        shard.iter_mut().for_each(|ear| assert_eq!(ear.read(), "smessage bar hi"));
    }
    assert!(nodes[1].ask(&["SPUBLISH", "bar", "hi"]).starts_with("MOVED"));
    assert!(nodes[0].info().contains("cluster_stats_messages_publishshard_sent:1"));

    nodes[3].kill();
    assert_eq!(nodes[0].ask(&["PUBLISH", "weather", "snow"]), "2");
    nodes[3].start();
    let mut ear = subscriber(&nodes[3], &["SUBSCRIBE", "news"]);
    publish_until_heard(&nodes[0], &mut ear);
    let mut ear = subscriber(&nodes[0], &["SUBSCRIBE", "news"]);
    publish_until_heard(&nodes[3], &mut ear);
}

#[test]
fn a_node_that_starts_again_is_who_it_was() {
    let mut node = Node::new();
    let name = node.name();
    assert_eq!(node.ask(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]), "OK");
    until("it to serve", || node.is_up(1));
    assert_eq!(node.ask(&["SET", "a", "b"]), "OK");
    node.kill();
    node.start();
    assert_eq!(node.name(), name);
    until("it to serve again", || node.is_up(1));
    assert_eq!(node.ask(&["CLUSTER", "COUNTKEYSINSLOT", "0"]), "0");
    assert_eq!(
        node.ask(&["CLUSTER", "RESET", "HARD"]),
        "ERR CLUSTER RESET can't be called with master nodes containing keys"
    );
    assert_eq!(node.ask(&["FLUSHALL"]), "OK");
    assert_eq!(node.ask(&["CLUSTER", "RESET", "HARD"]), "OK");
    assert_ne!(node.name(), name);
    assert!(node.info().contains("cluster_slots_assigned:0"));
}

/// What a client that goes where it is sent knows of a counter.
#[derive(Default)]
struct Counter {
    /// Additions that were acknowledged, and those of which nothing was heard.
    done: u64,
    unknown: u64,
}

/// Connections that have not broken, by address.
type Lines = BTreeMap<String, BufReader<TcpStream>>;

/// Adds to a counter once. Connections may break.
fn add(lines: &mut Lines, nodes: &[String], key: &str, counter: &mut Counter) {
    let mut address = nodes[0].clone();
    for _ in 0..4 {
        let kept = lines.remove(&address).ok_or(());
        let Ok(mut stream) = kept.or_else(|()| TcpStream::connect(&address).map(BufReader::new)) else {
            address.clone_from(&nodes[1]);
            continue;
        };
        let mut line = String::new();
        let sent = stream.get_mut().write_all(format!("INCR {key}\r\n").as_bytes());
        if sent.and_then(|()| stream.read_line(&mut line)).is_err() || !line.ends_with('\n') {
            counter.unknown += 1;
            return;
        }
        lines.insert(address.clone(), stream);
        match line.trim_end() {
            reply if reply.starts_with(':') => {
                counter.done += 1;
                return;
            }
            reply if reply.starts_with("-MOVED") => address = reply.rsplit(' ').next().expect("a place").to_owned(),
            _ => return,
        }
    }
}

/// Clients that count until they are told to stop.
struct Writers {
    is_over: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<Vec<(String, Counter)>>>,
}

impl Writers {
    fn start(nodes: &[Node], keys: &[String]) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let addresses: Vec<String> = nodes.iter().map(|node| node.address.clone()).collect();
        let threads = keys.chunks(keys.len() / 2).map(|keys| {
            let (keys, addresses, is_over) = (keys.to_vec(), addresses.clone(), Arc::clone(&is_over));
            #[allow(clippy::disallowed_methods, reason = "clients beside the test")]
            thread::spawn(move || {
                let mut counters: Vec<(String, Counter)> =
                    keys.into_iter().map(|key| (key, Counter::default())).collect();
                let mut lines = Lines::new();
                while !is_over.load(Ordering::Relaxed) {
                    counters.iter_mut().for_each(|(key, counter)| add(&mut lines, &addresses, key, counter));
                }
                counters
            })
        });
        Self { threads: threads.collect(), is_over }
    }

    fn stop(self) -> Vec<(String, Counter)> {
        self.is_over.store(true, Ordering::Relaxed);
        self.threads.into_iter().flat_map(|thread| thread.join().expect("it counts")).collect()
    }
}

/// No migration is under way at any node, and all agree about who owns what.
fn is_settled(nodes: &[Node]) -> bool {
    let rests = |node: &Node| {
        let told = node.ask(&["CLUSTER", "GETSLOTMIGRATIONS"]);
        ["success", "failed", "cancelled"].iter().map(|word| told.matches(word).count()).sum::<usize>()
            == told.matches("create_time").count()
    };
    let owner = |node: &Node| {
        let lines = node.ask(&["CLUSTER", "NODES"]);
        let mut owners: Vec<String> = lines
            .lines()
            .map(|line| {
                let words: Vec<&str> = line.split(' ').collect();
                format!("{} {}", words[0], words.get(8..).unwrap_or_default().join(" "))
            })
            .collect();
        owners.sort();
        owners
    };
    nodes.iter().all(|node| node.is_up(nodes.len()) && rests(node) && owner(node) == owner(&nodes[0]))
}

fn number(reply: &str) -> usize {
    reply.parse().expect("a number")
}

#[test]
fn slots_go_whole_while_clients_write_and_nodes_die() {
    const FILL: usize = 1_500;
    let rounds = std::env::var("ASHLAR_KILL_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(4_usize);
    let mut nodes = primaries(3, 3);
    // Two replicas, which take nothing over: then it would be no fault if writes were lost.
    for primary in 0..2 {
        let replica = Node::with(&["--cluster-replica-no-failover", "yes"]);
        let (port, bus_port) = (replica.port(), replica.bus_port.as_str());
        assert_eq!(nodes[0].ask(&["CLUSTER", "MEET", "127.0.0.1", port, bus_port]), "OK");
        until("it to know the others", || replica.is_up(nodes.len() + 1));
        assert_eq!(replica.ask(&["CLUSTER", "REPLICATE", &nodes[primary].name()]), "OK");
        nodes.push(replica);
    }
    let text = "x".repeat(2_000);
    let mut client = Client::default();
    for number in 0..FILL {
        client.ask(&nodes[0].address, &["SET", &format!("fill:{number}"), &text]);
    }
    let keys: Vec<String> = (0..40).map(|number| format!("count:{number}")).collect();
    let writers = Writers::start(&nodes[..3], &keys);
    for round in 0..=rounds {
        let (from, to) = (round % 2, 1 - round % 2);
        let order = ["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", "0", "3000", "NODE", &nodes[to].name()];
        // Who owns them depends on how the round before ended.
        let is_begun = nodes[from].ask(&order) == "OK";
        if !is_begun {
            let order = ["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", "0", "3000", "NODE", &nodes[from].name()];
            assert_eq!(nodes[to].ask(&order), "OK");
        }
        if round < rounds {
            let victim = [from, to, 3 + from, 3 + to][round % 4];
            // Further on each time.
            (0..round % 23 * 5).for_each(|_| drop(nodes[victim].ask(&["CLUSTER", "GETSLOTMIGRATIONS"])));
            nodes[victim].kill();
            nodes[victim].start();
        }
        until("all to rest", || is_settled(&nodes));
        let keys_found: usize = nodes[..3].iter().map(|node| number(&node.ask(&["DBSIZE"]))).sum();
        assert!(keys_found <= FILL + keys.len(), "round {round}: {keys_found} keys, and there are fewer");
    }
    let counters = writers.stop();
    until("what was left behind to be removed", || {
        nodes[..3].iter().map(|node| number(&node.ask(&["DBSIZE"]))).sum::<usize>() == FILL + keys.len()
    });
    let has_all = |replica: usize| nodes[replica].ask(&["DBSIZE"]) == nodes[replica - 3].ask(&["DBSIZE"]);
    until("replicas to have the same", || has_all(3) && has_all(4));
    for (key, Counter { done, unknown }) in counters {
        let found: u64 = Client::default().ask(&nodes[0].address, &["GET", &key]).parse().expect("it counts");
        assert!((done..=done + unknown).contains(&found), "{key}: {found}, {done} and perhaps {unknown}");
    }
}
