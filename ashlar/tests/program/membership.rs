//! Servers notice who falls silent, remember what they must, and forget whom they are told to.

use ashlar_node::membership::view::{BusStatus, MemberState};

use super::process::{Running, Scratch, TestServer, check_fails, get, nobody, run, secret, status, until};

/// Short, so that tests need not wait for long.
const TIMEOUT: [&str; 2] = ["--member-timeout-ms", "1000"];

/// A cluster whose servers keep their data in `0`, `1`, ...
struct Cluster {
    scratch: Scratch,
    secret: String,
    servers: Vec<Option<TestServer>>,
}

impl Cluster {
    /// Servers that know each other and vote.
    fn start(count: usize) -> Self {
        let scratch = Scratch::new();
        let first = TestServer::start(&scratch.path("0"), &TIMEOUT, &[]);
        let secret = secret(&scratch.path("0"));
        let join = first.address.clone();
        let mut cluster = Self { scratch, secret, servers: vec![Some(first)] };
        for _ in 1..count {
            cluster.add(&join);
        }
        let voters = if count.is_multiple_of(2) { count - 1 } else { count };
        until("all to be members and voters", || {
            cluster.all(|bus| bus.count(MemberState::Alive) == count && bus.voters.len() == voters && bus.majority)
        });
        cluster
    }

    fn add(&mut self, join: &str) -> String {
        let data = self.scratch.path(&self.servers.len().to_string());
        let [flag, value] = TIMEOUT;
        let arguments = ["--join", join, flag, value, "--zone", "room-1"];
        let server = TestServer::start(&data, &arguments, &[("ASHLAR_SECRET", &self.secret)]);
        let address = server.address.clone();
        self.servers.push(Some(server));
        address
    }

    /// The next life of a server that was ended, at another address, without a word about whom to join.
    fn restart(&mut self, number: usize) {
        self.restart_with(number, &[]);
    }

    fn restart_with(&mut self, number: usize, more: &[&str]) {
        let data = self.scratch.path(&number.to_string());
        let arguments = [&TIMEOUT, more].concat();
        self.servers[number] = Some(TestServer::start(&data, &arguments, &[("ASHLAR_SECRET", &self.secret)]));
    }

    fn kill(&mut self, number: usize) -> String {
        let server = self.servers[number].take().expect("it runs");
        let id = server.status().expect("it answers").server;
        // Dropped, it is killed.
        drop(server);
        id
    }

    fn stop(&mut self, number: usize) {
        self.servers[number].take().expect("it runs").stop();
    }

    fn running(&self) -> impl Iterator<Item = &TestServer> {
        self.servers.iter().flatten()
    }

    fn bus(&self, number: usize) -> Option<BusStatus> {
        self.servers[number].as_ref()?.status().map(|status| status.bus)
    }

    fn all(&self, holds: impl Fn(&BusStatus) -> bool) -> bool {
        self.running().all(|server| server.status().is_some_and(|status| holds(&status.bus)))
    }

    fn until_all_see(&self, id: &str, state: MemberState) {
        until(&format!("{id} to be {}", state.name()), || {
            self.all(|bus| bus.members.iter().any(|member| member.server == id && member.state == state))
        });
    }
}

fn health(server: &TestServer) -> (u16, String) {
    let answer = get(&server.address, "/health/cluster").expect("it answers");
    (answer.status, String::from_utf8_lossy(&answer.body).into_owned())
}

#[test]
fn servers_that_meet_before_the_first_one_runs_wait_for_it() {
    let scratch = Scratch::new();
    drop(TestServer::start(&scratch.path("other"), &[], &[]));
    let environment = [("ASHLAR_SECRET", &*secret(&scratch.path("other")))];
    let first = nobody();
    let one = TestServer::start(&scratch.path("1"), &[&TIMEOUT[..], &["--join", &first]].concat(), &environment);
    let join = format!("{first},{}", one.address);
    let two = TestServer::start(&scratch.path("2"), &[&TIMEOUT[..], &["--join", &join]].concat(), &environment);
    let bus = |server: &TestServer| server.status().expect("it answers").bus;
    until("two to know one", || [&one, &two].iter().all(|server| bus(server).count(MemberState::Alive) == 2));
    let words = ["server", "--data", &scratch.path("0"), "--listen", &first, "--workers", "1"];
    let _zero = Running::start(&[&words[..], &TIMEOUT].concat(), &environment);
    until("one cluster of three to vote", || {
        let all = [&first, &one.address, &two.address].map(|address| status(address).map(|status| status.bus));
        let is_whole = |bus: BusStatus| bus.count(MemberState::Alive) == 3 && bus.voters.len() == 3 && bus.majority;
        all.into_iter().all(|bus| bus.is_some_and(is_whole))
    });
}

#[test]
fn a_killed_server_is_suspected_and_failed_and_comes_back() {
    let mut cluster = Cluster::start(3);
    let id = cluster.kill(2);
    cluster.until_all_see(&id, MemberState::Failed);
    let suspicions: u64 = (0..2).filter_map(|number| cluster.bus(number)).map(|bus| bus.counters.suspicions).sum();
    assert!(suspicions >= 1, "somebody suspected it before a majority did");
    for server in cluster.running() {
        Running::line(&server.process.err, &format!("member failed server={id}"));
        let (code, text) = health(server);
        assert!(code == 200 && text.contains(r#""status":"degraded","majority":true,"alive":2"#), "{code} {text}");
    }
    let outcome = run(&["status", "--addr", &cluster.servers[0].as_ref().expect("it runs").address], &[]);
    let row = outcome.out.lines().find(|line| line.starts_with(&id[..8])).map(str::to_owned).unwrap_or_default();
    assert!(row.contains("no answer") && row.contains("failed"), "{}", outcome.out);

    cluster.restart(2);
    cluster.until_all_see(&id, MemberState::Alive);
    let lives = |bus: BusStatus| bus.members.into_iter().find(|member| member.server == id).map(|m| m.incarnation);
    assert_eq!(cluster.bus(0).and_then(lives), Some(2));
    until("all to be well", || cluster.running().all(|server| health(server).1.contains(r#""status":"healthy""#)));
}

#[test]
fn without_a_majority_nothing_is_decided() {
    let mut cluster = Cluster::start(3);
    let gone = [cluster.kill(1), cluster.kill(2)];
    until("the minority to know what it is", || cluster.all(|bus| !bus.majority));
    let bus = cluster.bus(0).expect("it answers");
    let failed = bus.members.iter().filter(|member| gone.contains(&member.server)).map(|member| member.state);
    assert!(failed.clone().all(|state| state != MemberState::Failed), "{bus:?}");
    let (code, text) = health(cluster.servers[0].as_ref().expect("it runs"));
    assert!(code == 503 && text.contains(r#""status":"minority","majority":false"#), "{code} {text}");
}

#[test]
fn state_survives_the_end_of_all_servers() {
    let mut cluster = Cluster::start(3);
    // Another set of voters, so that there is more than a first epoch to remember.
    let id = cluster.kill(2);
    cluster.until_all_see(&id, MemberState::Failed);
    let first = cluster.servers[0].as_ref().expect("it runs");
    let forgotten = run(&["forget", &id, "--force", "--addr", &first.address, "--data", &first.data], &[]);
    assert_eq!(forgotten.code, Some(0), "{forgotten:?}");
    until("other voters", || cluster.all(|bus| bus.voters_epoch >= 2 && bus.voters_before.is_empty()));
    let before = cluster.bus(0).expect("it answers");
    cluster.stop(0);
    cluster.stop(1);
    cluster.restart(0);
    let after = cluster.bus(0).expect("it answers");
    assert_eq!((after.voters_epoch, &after.voters), (before.voters_epoch, &before.voters));
    assert!(after.epoch >= before.epoch);
    // That one was forgotten is shown for as long as it may not come back, which a restart ends.
    let ids = |bus: &BusStatus| {
        let members = bus.members.iter().filter(|member| member.state != MemberState::Forgotten);
        members.map(|member| member.server.clone()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&after), ids(&before));
    // Both have moved, so one has to be told where the other is.
    let address = cluster.servers[0].as_ref().expect("it runs").address.clone();
    cluster.restart_with(1, &["--join", &address]);
    until("the two to agree again", || cluster.all(|bus| bus.majority && bus.voters_epoch >= before.voters_epoch));
}

#[test]
fn a_memory_that_is_not_ones_own_is_refused() {
    let mut cluster = Cluster::start(2);
    cluster.stop(0);
    cluster.stop(1);
    let path = |number: &str| std::path::PathBuf::from(cluster.scratch.path(number)).join("bus");
    let whole = std::fs::read(path("0")).expect("it was written");
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    let other = std::fs::read(path("1")).expect("it was written");
    let data = cluster.scratch.path("0");
    let server = ["server", "--data", &data, "--listen", "127.0.0.1:0"];
    let remedy = "restore the file as it was when this server last ran";
    for (bytes, reason) in
        [(&damaged, "is damaged"), (&other, "belongs to another server"), (&Vec::new(), "is damaged")]
    {
        std::fs::write(path("0"), bytes).expect("it can be written");
        check_fails(&server, &[], 1, &[&path("0").display().to_string(), reason, "what to do", remedy]);
    }
    std::fs::remove_file(path("0")).expect("it is there");
    check_fails(&server, &[], 1, &["it is gone", remedy]);
    std::fs::write(path("0"), &whole).expect("it can be written");
    cluster.restart(0);
    assert_eq!(cluster.bus(0).map(|bus| bus.members.len()), Some(2));
}

#[test]
fn a_server_that_left_for_good_is_forgotten() {
    let mut cluster = Cluster::start(3);
    let asked = cluster.servers[0].as_ref().expect("it runs");
    let (address, data) = (asked.address.clone(), asked.data.clone());
    let forget = |id: &str, more: &[&str]| {
        let mut arguments = vec!["forget", id, "--addr", &address, "--data", &data];
        arguments.extend(more);
        run(&arguments, &[])
    };
    let id = cluster.servers[2].as_ref().and_then(TestServer::status).expect("it answers").server;
    let outcome = forget(&id[..8], &[]);
    assert!(outcome.code == Some(1) && outcome.err.contains("this member is alive"), "{outcome:?}");
    cluster.kill(2);
    cluster.until_all_see(&id, MemberState::Failed);
    let outcome = forget(&id[..8], &[]);
    assert_eq!((outcome.code, outcome.out), (Some(0), format!("forgotten: {id}")));
    cluster.until_all_see(&id, MemberState::Forgotten);
    until("nobody to dial it any more", || {
        cluster.running().all(|server| server.status().is_some_and(|status| status.peers.len() == 1))
    });
    until("all to be well", || cluster.running().all(|server| health(server).1.contains(r#""alive":2,"known":2"#)));
    let outcome = forget(&id, &[]);
    assert!(outcome.code == Some(2) && outcome.err.contains("no member's id begins with"), "{outcome:?}");

    // It is forgotten in the memory, too; and another one may take its place.
    cluster.stop(1);
    cluster.restart(1);
    until("the two to be connected", || cluster.bus(1).is_some_and(|bus| bus.majority && bus.known() == 2));
    cluster.add(&address);
    until("a new third member", || cluster.all(|bus| bus.count(MemberState::Alive) == 3));
}

#[test]
fn a_server_that_is_forgotten_while_it_runs_is_told() {
    let cluster = Cluster::start(3);
    let [first, third] = [0, 2].map(|number| cluster.servers[number].as_ref().expect("it runs"));
    let id = third.status().expect("it answers").server;
    let outcome = run(&["forget", &id, "--force", "--addr", &first.address, "--data", &first.data], &[]);
    assert_eq!((outcome.code, outcome.out), (Some(0), format!("forgotten: {id}")));
    Running::line(&third.process.err, "this server was forgotten by the cluster");
    until("its status to say so", || {
        let outcome = run(&["status", "--addr", &third.address], &[]);
        outcome.out.contains(&format!("forgotten {} was forgotten by the cluster", &id[..8]))
    });
    assert!(first.status().is_some_and(|status| status.bus.forgotten_by.is_none()));
}

#[test]
fn metrics_tell_of_members() {
    let cluster = Cluster::start(3);
    let server = cluster.servers[1].as_ref().expect("it runs");
    let page = String::from_utf8(get(&server.address, "/metrics").expect("it answers").body).expect("text");
    for expected in [
        "ashlar_bus_members{state=\"alive\"} 3",
        "ashlar_bus_members{state=\"doubted\"} 0",
        "ashlar_bus_members{state=\"failed\"} 0",
        "ashlar_bus_majority 1",
        "ashlar_bus_voters 3",
        "ashlar_bus_refused_packets_total{cause=\"cluster\"} 0",
        "ashlar_bus_failure_seconds_count 0",
    ] {
        assert!(page.lines().any(|line| line == expected), "{expected} is not in {page}");
    }
    assert_eq!(server.status().map(|status| status.zone).as_deref(), Some("room-1"));
}
