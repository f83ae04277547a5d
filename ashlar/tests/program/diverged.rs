//! Three nodes, and a link between two of them that is cut while the third reaches both: a stale replica does not take over, and what
//! a demoted primary has and its successor lacks is kept aside.
//!
//! Each node is in a network namespace of its own, so that one link can be cut and the others not. That needs root and `ip`; without
//! them the tests say so and are skipped, unless `ASHLAR_VERIFY_COMPLETE=1` says that nothing may be.

use std::process::{Command, Stdio};

use super::process::{Running, Scratch, until};
use super::replicas::Wire;

const PORT: &str = "6379";

/// Runs `ip` with these words.
fn ip(words: &str) -> bool {
    let status = Command::new("ip").args(words.split(' ')).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Namespaces that are joined by a bridge in a namespace of its own; gone afterwards.
struct Lab {
    tag: String,
    /// The first three numbers of all addresses.
    net: String,
    count: usize,
}

impl Lab {
    /// So many namespaces; nothing where none can be made.
    fn new(count: usize) -> Option<Self> {
        let [one, two, three]: [u8; 3] = ashlar::os::random::bytes();
        let tag = format!("elect{one:02x}{two:02x}{three:02x}");
        let lab = Self { tag, net: format!("10.{}.{}", 64 + one % 128, two), count };
        let (hub, tag, own) = (lab.name(0), &lab.tag, lab.address(254));
        let is_made = ip(&format!("netns add {hub}"))
            && ip(&format!("-n {hub} link add hub type bridge"))
            && ip(&format!("-n {hub} link set hub up"))
            // The test itself reaches all of them.
            && ip(&format!("link add {tag} type veth peer name p0 netns {hub}"))
            && ip(&format!("-n {hub} link set p0 master hub"))
            && ip(&format!("-n {hub} link set p0 up"))
            && ip(&format!("address add {own}/24 dev {tag}"))
            && ip(&format!("link set {tag} up"))
            && (1..=count).all(|number| lab.join(number));
        let is_required = std::env::var("ASHLAR_VERIFY_COMPLETE").is_ok_and(|value| value == "1");
        assert!(is_made || !is_required, "network namespaces cannot be made here: run as root, with `ip` installed");
        is_made.then_some(lab)
    }

    fn join(&self, number: usize) -> bool {
        let (hub, name, address) = (self.name(0), self.name(number), self.address(number));
        ip(&format!("netns add {name}"))
            && ip(&format!("-n {hub} link add p{number} type veth peer name eth0 netns {name}"))
            && ip(&format!("-n {hub} link set p{number} master hub"))
            && ip(&format!("-n {hub} link set p{number} up"))
            && ip(&format!("-n {name} address add {address}/24 dev eth0"))
            && ip(&format!("-n {name} link set eth0 up"))
            && ip(&format!("-n {name} link set lo up"))
    }

    fn name(&self, number: usize) -> String {
        format!("{}-{number}", self.tag)
    }

    fn address(&self, number: usize) -> String {
        format!("{}.{number}", self.net)
    }

    /// Nothing passes between two of them any more.
    fn cut(&self, one: usize, other: usize) {
        for (from, to) in [(one, other), (other, one)] {
            let (from, to) = (self.name(from), self.address(to));
            assert!(ip(&format!("-n {from} route add blackhole {to}/32")), "the route is new");
            // What was connected is as silent as what begins.
            let _cache_may_be_empty = ip(&format!("-n {from} route flush cache"));
        }
    }

    fn mend(&self, one: usize, other: usize) {
        for (from, to) in [(one, other), (other, one)] {
            let (from, to) = (self.name(from), self.address(to));
            assert!(ip(&format!("-n {from} route delete blackhole {to}/32")), "the route is there");
        }
    }

    /// A node in a namespace.
    fn start(&self, number: usize, data: &Scratch, more: &[&str]) -> Running {
        let (address, directory) = (self.address(number), data.path(""));
        let begin = ["kv", "--port", PORT, "--bind", &address, "--workers", "1", "--dir", &directory, "--save", ""];
        let cluster = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--appendonly", "yes"];
        let settings = ["--appendfsync", "always", "--repl-diskless-sync-delay", "0", "--protected-mode", "no"];
        let words = [&begin[..], more, &cluster, &settings].concat();
        let running = Running::start_in(&self.name(number), &words);
        until("a node to answer", || self.ask(number, &["PING"]).as_deref() == Some("PONG"));
        running
    }

    /// Asks a node; nothing if it does not listen.
    fn ask(&self, number: usize, words: &[&str]) -> Option<String> {
        let answers = self.ask_all(number, &[words.iter().map(|word| (*word).to_owned()).collect()])?;
        answers.into_iter().next()
    }

    /// Asks several things in a row, on one connection.
    fn ask_all(&self, number: usize, requests: &[Vec<String>]) -> Option<Vec<String>> {
        let mut wire = Wire::new(&format!("{}:{PORT}", self.address(number)))?;
        let mut ask = |request: &Vec<String>| wire.ask(&request.iter().map(String::as_str).collect::<Vec<_>>());
        Some(requests.iter().map(&mut ask).collect())
    }

    /// Writes keys of the first slot range, and counts those that are acknowledged.
    fn write(&self, number: usize, from: usize, to: usize) -> usize {
        let set = |key| ["SET".to_owned(), format!("{{a}}{key}"), "x".to_owned()].to_vec();
        let answers = self.ask_all(number, &(from..to).map(set).collect::<Vec<_>>()).unwrap_or_default();
        answers.iter().filter(|answer| *answer == "OK").count()
    }

    fn info(&self, number: usize, field: &str) -> String {
        let info = self.ask(number, &["INFO", "replication"]).unwrap_or_default();
        let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        value.unwrap_or_default().trim_end().to_owned()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for number in 0..=self.count {
            let _is_gone = ip(&format!("netns delete {}", self.name(number)));
        }
    }
}

/// Three nodes: 1 has the slots of `{a}`, 2 follows it, 3 has the others. All can vote.
struct Trio {
    lab: Lab,
    data: Vec<Scratch>,
    nodes: Vec<Option<Running>>,
    more: Vec<&'static str>,
}

impl Trio {
    fn new(more: &[&'static str]) -> Option<Self> {
        let lab = Lab::new(3)?;
        let data: Vec<Scratch> = (0..3).map(|_| Scratch::new()).collect();
        let nodes = (1..=3).map(|number| Some(lab.start(number, &data[number - 1], more))).collect();
        let trio = Self { lab, data, nodes, more: more.to_vec() };
        // The slot of {a} is 15495.
        let ask = |number, words: &[&str]| trio.lab.ask(number, words).unwrap_or_default();
        assert_eq!(ask(1, &["CLUSTER", "ADDSLOTSRANGE", "8192", "16383"]), "OK");
        assert_eq!(ask(3, &["CLUSTER", "ADDSLOTSRANGE", "0", "8191"]), "OK");
        for other in [1, 2] {
            assert_eq!(ask(3, &["CLUSTER", "MEET", &trio.lab.address(other), PORT]), "OK");
        }
        let is_up = |number| {
            let info = ask(number, &["CLUSTER", "INFO"]);
            ["cluster_state:ok", "cluster_slots_ok:16384", "cluster_known_nodes:3"]
                .iter()
                .all(|line| info.contains(line))
        };
        until("all nodes to know each other", || (1..=3).all(is_up));
        assert_eq!(ask(2, &["CLUSTER", "REPLICATE", &ask(1, &["CLUSTER", "MYID"])]), "OK");
        until("the replica to follow", || trio.lab.info(2, "master_link_status") == "up");
        Some(trio)
    }

    fn kill(&mut self, number: usize) {
        self.nodes[number - 1].take().expect("it runs").signal("KILL");
    }

    fn start(&mut self, number: usize) {
        self.nodes[number - 1] = Some(self.lab.start(number, &self.data[number - 1], &self.more));
    }

    fn count(&self, number: usize) -> usize {
        self.lab.ask(number, &["DBSIZE"]).and_then(|count| count.parse().ok()).unwrap_or(0)
    }

    /// Waits for a line of a node's log.
    fn line(&self, number: usize, text: &str) -> String {
        Running::line(&self.nodes[number - 1].as_ref().expect("it runs").err, text)
    }
}

#[test]
fn a_replica_that_was_cut_off_for_long_does_not_replace_its_primary() {
    let Some(mut trio) = Trio::new(&[
        "--cluster-replica-validity-factor",
        "2",
        "--repl-timeout",
        "5",
        "--repl-ping-replica-period",
        "1",
    ]) else {
        return;
    };
    assert_eq!(trio.lab.write(1, 0, 1), 1);
    until("the replica to have the first key", || trio.count(2) == 1);
    trio.lab.cut(1, 2);
    // The third reaches both, so nobody has failed. Longer than 2 times 1 s, and 1 s.
    let mut acknowledged = 1;
    until("the replica's copy to be old", || {
        acknowledged += trio.lab.write(1, acknowledged, acknowledged + 10);
        trio.lab.info(2, "master_link_down_since_seconds").parse::<i64>().is_ok_and(|age| age >= 6)
            || trio.lab.info(2, "master_last_io_seconds_ago").parse::<i64>().is_ok_and(|age| age >= 6)
    });
    assert!(acknowledged > 10, "{acknowledged} writes");
    trio.kill(1);
    assert!(trio.line(2, "does not stand").contains("cluster-replica-validity-factor"));
    trio.lab.mend(1, 2);
    trio.start(1);
    // The replica may have got a whole copy from the primary that is back, and take over then: it has everything.
    let serves = |number| trio.lab.write(number, acknowledged, acknowledged + 1) == 1;
    until("somebody to serve again", || serves(1) || serves(2));
    until("both to have what was acknowledged", || {
        // The last write may have come when the one gave way to the other: then it is kept aside.
        trio.count(1) >= acknowledged && trio.count(1) == trio.count(2)
    });
}

#[test]
fn what_a_demoted_primary_has_and_its_successor_lacks_is_kept_aside() {
    // Factor 0: a replica stands however old its copy is.
    let Some(mut trio) = Trio::new(&["--cluster-replica-validity-factor", "0"]) else { return };
    assert_eq!(trio.lab.write(1, 0, 1), 1);
    until("the replica to have the first key", || trio.count(2) == 1);
    trio.lab.cut(1, 2);
    let acknowledged = 1 + trio.lab.write(1, 1, 60);
    assert_eq!((trio.count(1), trio.count(2)), (acknowledged, 1));
    trio.kill(1);
    until("the replica to take over", || trio.lab.info(2, "role") == "master");
    until("the new primary to serve", || trio.lab.ask(2, &["SET", "{a}new", "x"]).as_deref() == Some("OK"));
    trio.lab.mend(1, 2);
    trio.start(1);
    assert!(trio.line(1, "kept aside, and").contains("keys=60"));
    until("the old primary to follow", || trio.lab.info(1, "master_link_status") == "up");
    until("both to have the same", || trio.count(1) == 2 && trio.count(2) == 2);
    assert_eq!((trio.lab.info(1, "diverged_copies"), trio.lab.info(2, "diverged_copies")), ("1".into(), "0".into()));
    let address = format!("{}:{PORT}", trio.lab.address(1));
    let status = super::process::run(&["kv", "status", "--addr", &address], &[]);
    assert!(status.out.contains("diverged"), "{status:?}");
    // It is looked at as the page says: all 60 acknowledged writes are there.
    let copy = trio.lab.info(1, "diverged_copy0");
    let file =
        copy.strip_prefix("file=").and_then(|rest| rest.split(',').next()).expect("the copy has a file").to_owned();
    let (look, address) = (Scratch::new(), super::process::nobody());
    let _looking = super::replicas::engine_at(&look, &address, &["--import", &trio.data[0].path(&file)]);
    let mut wire = Wire::new(&address).expect("it listens");
    assert_eq!(wire.ask(&["DBSIZE"]), acknowledged.to_string());

    // After a restart in order nothing is kept a second time: the primary contains what the replica has.
    let mut first = trio.nodes[0].take().expect("it runs");
    first.signal("TERM");
    assert_eq!(first.wait(), Some(0));
    trio.start(1);
    until("the replica to follow again", || trio.lab.info(1, "master_link_status") == "up");
    assert_eq!(trio.lab.info(1, "diverged_copies"), "1");
}
