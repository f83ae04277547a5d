//! The key-value cluster of `ashlar up`: served at once, whole after the loss of a server, and the same after a restart.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use super::keyvalue::connect;
use super::process::{Running, Scratch, run, signal, until};

/// Who says nothing for so long is asked no more; nothing is measured by this.
const PATIENCE: Duration = Duration::from_secs(10);

const SERVERS: u16 = 3;
/// One key for each of some slots all over.
const KEYS: usize = 200;

/// A connection that may break.
pub(crate) struct Wire(BufReader<TcpStream>);

impl Wire {
    pub(crate) fn new(address: &str) -> Option<Self> {
        let stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        Some(Self(BufReader::new(stream)))
    }

    /// Asks; arrays come as their elements with spaces between.
    pub(crate) fn ask(&mut self, words: &[&str]) -> Option<String> {
        let mut request = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| request += &format!("${}\r\n{word}\r\n", word.len()));
        self.0.get_mut().write_all(request.as_bytes()).ok()?;
        self.read()
    }

    fn read(&mut self) -> Option<String> {
        let mut line = String::new();
        self.0.read_line(&mut line).ok().filter(|count| *count > 0)?;
        let (kind, text) = line.trim_end().split_at_checked(1)?;
        let count = text.parse::<usize>();
        match (kind, count) {
            ("*", Ok(count)) => Some((0..count).map(|_| self.read()).collect::<Option<Vec<_>>>()?.join(" ")),
            ("$", Ok(count)) => {
                let mut body = vec![0; count + 2];
                self.0.read_exact(&mut body).ok()?;
                Some(String::from_utf8_lossy(&body[..count]).into_owned())
            }
            _ => Some(text.to_owned()),
        }
    }
}

/// The first of some free ports in a row, below those that the kernel gives to outgoing connections: they stay free while a test has its
/// servers down.
pub(crate) fn ports(count: u16) -> u16 {
    let is_free = |port: &u16| {
        let all = (0..count).map(|more| TcpListener::bind(("127.0.0.1", port + more)));
        all.collect::<Result<Vec<_>, _>>().is_ok()
    };
    let draw = |_| 12_000 + u16::from_le_bytes(ashlar::os::random::bytes()) % 20_000;
    (0..1_000).map(draw).find(is_free).expect("there are free ports in a row")
}

/// A cluster, and all that is needed to start it again.
pub(crate) struct Up {
    pub(crate) data: String,
    pub(crate) port: u16,
    /// Ports of each kind: it may have so many servers.
    room: u16,
    servers: u16,
    pub(crate) running: Running,
    _scratch: Option<Scratch>,
}

fn command(data: &str, port: u16, room: u16, servers: u16) -> Running {
    let kv = port + room;
    let words = [data.to_owned(), port.to_string(), kv.to_string(), (kv + room).to_string(), servers.to_string()];
    let [data, port, kv, replica, servers] = words.each_ref().map(String::as_str);
    let begin = ["up", "--data", data, "--port-base", port, "--kv-port", kv, "--kv-replica-port", replica];
    Running::start(&[&begin[..], &["--servers", servers, "--workers", "1", "--drive-mib", "0"]].concat(), &[])
}

impl Up {
    pub(crate) fn new(servers: u16) -> Self {
        Self::with_room(servers, servers)
    }

    fn with_room(servers: u16, room: u16) -> Self {
        let scratch = Scratch::new();
        let (port, data) = (ports(3 * room), scratch.path("data"));
        let running = command(&data, port, room, servers);
        Running::line(&running.out, "ashlar is up");
        Self { data, port, room, servers, running, _scratch: Some(scratch) }
    }

    fn restart(&mut self) {
        self.running.signal("INT");
        assert_eq!(self.running.wait(), Some(0));
        self.running = command(&self.data, self.port, self.room, self.servers);
    }

    pub(crate) fn first(&self, server: u16) -> String {
        format!("127.0.0.1:{}", self.port + self.room + server)
    }

    pub(crate) fn second(&self, server: u16) -> String {
        format!("127.0.0.1:{}", self.port + 2 * self.room + server)
    }

    fn ask(&self, address: &str, words: &[&str]) -> Option<String> {
        Wire::new(address)?.ask(words)
    }

    /// The process id of a server, from its status.
    pub(crate) fn pid(&self, server: u16) -> u32 {
        super::process::status(&format!("127.0.0.1:{}", self.port + server)).expect("it answers").pid
    }

    pub(crate) fn role(&self, address: &str) -> String {
        let role = self.ask(address, &["ROLE"]).unwrap_or_default();
        role.split(' ').next().unwrap_or_default().to_owned()
    }

    fn roles(&self) -> Vec<String> {
        let firsts = (0..self.servers).map(|server| self.first(server));
        firsts.chain((0..self.servers).map(|server| self.second(server))).map(|place| self.role(&place)).collect()
    }

    /// What is said up to the line with `text` in it, that line included.
    fn said(&self, text: &str) -> Vec<String> {
        let mut said = Vec::new();
        while !said.last().is_some_and(|line: &String| line.contains(text)) {
            said.push(Running::line(&self.running.out, ""));
        }
        said
    }

    /// What `ashlar kv rebalance` says.
    fn rebalance(&self) -> String {
        let outcome = run(&["kv", "rebalance", "--addr", &self.first(0)], &[]);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        outcome.out
    }

    fn status(&self) -> serde_json::Value {
        let outcome = run(&["kv", "status", "--json", "--addr", &self.first(0)], &[]);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        serde_json::from_str(&outcome.out).expect("it is JSON")
    }

    /// Whether all groups have a primary and a replica that has what its primary has.
    pub(crate) fn is_whole(&self) -> bool {
        let status = self.status();
        let groups = status["groups"].as_array().expect("groups").clone();
        let is_online = |member: &serde_json::Value| member["state"] == "online";
        let has_all = |member: &serde_json::Value| is_online(member) && member["lag"] == 0;
        status["slots_served"] == 16_384
            && groups.len() == usize::from(self.servers)
            && groups.iter().all(|group| {
                let replicas = group["replicas"].as_array().expect("replicas");
                is_online(&group["primary"]) && replicas.len() == 1 && replicas.iter().all(has_all)
            })
    }
}

/// A client that goes where it is sent, and elsewhere if nobody is there.
struct Client {
    entries: Vec<String>,
    wires: BTreeMap<String, Wire>,
}

impl Client {
    fn new(up: &Up) -> Self {
        Self { entries: (0..up.servers).map(|server| up.first(server)).collect(), wires: BTreeMap::new() }
    }

    /// Asks once; nothing if it was not answered.
    fn try_ask(&mut self, words: &[&str]) -> Option<String> {
        let mut address = self.entries.first()?.clone();
        for _ in 0..8 {
            let wire = match self.wires.remove(&address) {
                Some(wire) => Some(wire),
                None => Wire::new(&address),
            };
            let reply = wire.and_then(|mut wire| wire.ask(words).map(|reply| (wire, reply)));
            let Some((wire, reply)) = reply else {
                self.entries.rotate_left(1);
                return None;
            };
            self.wires.insert(address.clone(), wire);
            match reply.split(' ').collect::<Vec<_>>()[..] {
                ["MOVED", _, to] => address = to.to_owned(),
                _ if reply.starts_with("CLUSTERDOWN") || reply.starts_with("LOADING") => return None,
                _ => return Some(reply),
            }
        }
        None
    }

    fn ask(&mut self, words: &[&str]) -> String {
        let mut reply = None;
        until(&format!("an answer to {words:?}"), || {
            reply = self.try_ask(words);
            reply.is_some()
        });
        reply.expect("there is one")
    }
}

fn write_all(client: &mut Client, value: &str) {
    for number in 0..KEYS {
        assert_eq!(client.ask(&["SET", &format!("key:{number}"), value]), "OK");
    }
}

fn check_all(client: &mut Client, value: &str) {
    for number in 0..KEYS {
        assert_eq!(client.ask(&["GET", &format!("key:{number}")]), value, "key:{number}");
    }
}

#[test]
fn a_primary_that_was_frozen_acknowledges_nothing_that_waited_for_it() {
    let up = Up::new(3);
    let (mut client, pid) = (connect(&up.first(0)), up.pid(0));
    assert_eq!(client.ask(&["SET", "bar", "before"]), "OK");
    signal(pid, "STOP");
    client.send(&["SET", "bar", "late"]);
    until("a successor", || [1, 2].iter().any(|other| up.role(&up.second(*other)) == "master"));
    signal(pid, "CONT");
    let reply = client.reply();
    assert!(["-CLUSTERDOWN", "-MOVED"].iter().any(|code| reply.starts_with(code)), "{reply}");
}

#[test]
fn a_new_cluster_serves_all_slots_and_is_the_same_after_a_restart() {
    let mut up = Up::new(SERVERS);
    let before = up.roles();
    assert_eq!(before, ["master", "master", "master", "slave", "slave", "slave"]);
    assert!(up.is_whole(), "{}", up.status());
    let mut client = Client::new(&up);
    write_all(&mut client, "one");
    check_all(&mut client, "one");
    assert_eq!(up.rebalance().lines().count(), 1, "there is nothing to do");

    up.restart();
    let said = Running::line(&up.running.out, "");
    assert!(said.contains("ashlar is up"), "nothing was done: {said}");
    assert_eq!(up.roles(), before);
    check_all(&mut Client::new(&up), "one");
    up.running.signal("INT");
    assert_eq!(up.running.wait(), Some(0));
}

#[test]
fn the_loss_of_a_server_loses_no_slot() {
    let up = Up::new(SERVERS);
    let mut client = Client::new(&up);
    write_all(&mut client, "one");
    until("replicas to have all", || up.is_whole());
    signal(up.pid(0), "KILL");
    // Writes go on, some of them after a while.
    write_all(&mut client, "two");
    check_all(&mut client, "two");
    Running::line(&up.running.out, "server 1 runs again");
    until("its first engine to follow", || up.role(&up.first(0)) == "slave" && up.is_whole());
    let said = up.rebalance();
    assert!(said.contains(&format!("{}: becomes primary, and ", up.first(0))), "{said}");
    assert_eq!(up.roles(), ["master", "master", "master", "slave", "slave", "slave"]);
    check_all(&mut Client::new(&up), "two");
}

#[test]
fn one_server_alone_serves_all_slots() {
    let up = Up::new(1);
    assert_eq!(up.roles(), ["master", "master"]);
    let status = up.status();
    let group = &status["groups"][0];
    assert_eq!((&status["slots_served"], &group["replicas"]), (&16_384.into(), &serde_json::json!([])));
    assert_eq!(status["groups"][1]["primary"]["state"], "idle");
    write_all(&mut Client::new(&up), "one");
}

#[test]
fn a_move_that_was_broken_off_is_finished_and_slots_are_evened_out() {
    const SLOT: &str = "5061";
    let up = Up::new(2);
    let mut client = Client::new(&up);
    assert_eq!(client.ask(&["SET", "{bar}0", "0"]), "OK");
    // The slot's owner, and the other one.
    let counts = |place: &str| up.ask(place, &["CLUSTER", "COUNTKEYSINSLOT", SLOT]).expect("it answers");
    let (from, to) = match counts(&up.first(0)).as_str() {
        "1" => (up.first(0), up.first(1)),
        _ => (up.first(1), up.first(0)),
    };
    let keys: Vec<String> = (0..250).map(|number| format!("{{bar}}{number}")).collect();
    keys.iter().for_each(|key| assert_eq!(client.ask(&["SET", key, key]), "OK"));
    let name = |place: &str| up.ask(place, &["CLUSTER", "MYID"]).expect("it answers");
    let begin = ["CLUSTER", "SETSLOT", SLOT];
    let importing = up.ask(&to, &[&begin[..], &["IMPORTING", &name(&from)]].concat());
    let migrating = up.ask(&from, &[&begin[..], &["MIGRATING", &name(&to)]].concat());
    assert_eq!((importing.as_deref(), migrating.as_deref()), (Some("OK"), Some("OK")));
    let port = to.rsplit(':').next().expect("an address has a port");
    assert_eq!(up.ask(&from, &["MIGRATE", "127.0.0.1", port, &keys[7], "0", "5000"]).as_deref(), Some("OK"));

    let said = up.rebalance();
    // What was begun key by key is finished so; a slot goes back whole.
    assert!(said.contains("moved 1 of 1 slots, 249 keys"), "{said}");
    assert!(said.contains("moved 1 of 1 slots, 0 of 0 keys"), "{said}");
    assert_eq!((counts(&from).as_str(), counts(&to).as_str()), ("0", "250"));
    keys.iter().for_each(|key| assert_eq!(Client::new(&up).ask(&["GET", key]), *key));
    let groups = up.status()["groups"].as_array().expect("groups").clone();
    assert!(groups.iter().all(|group| group["slots"] == 8_192), "{groups:?}");
    assert_eq!(up.rebalance().lines().count(), 1, "there is nothing to do");

    // Somebody moves slots by hand: what would be done about it is told, and then done.
    let order = ["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", "0", "9", "NODE", &name(&up.first(1))];
    assert_eq!(up.ask(&up.first(0), &order).as_deref(), Some("OK"));
    let owned = |server| up.ask(&up.first(server), &["CLUSTER", "NODES"]).expect("it answers");
    until("the slots to be there", || owned(1).lines().any(|line| line.contains("myself") && line.contains(" 0-9 ")));
    let dry_run = || run(&["kv", "rebalance", "--dry-run", "--addr", &up.first(0)], &[]).out;
    let plan = dry_run();
    let [step, end] = plan.lines().collect::<Vec<_>>()[..] else { panic!("{plan}") };
    let way = format!("{} to {}: 10 slots (", up.first(1), up.first(0));
    assert!(step.starts_with(&way) && step.ends_with("), 0 keys"), "{plan}");
    assert_eq!((end, dry_run()), ("nothing was changed (--dry-run)", plan.clone()), "it is as it was");
    let told = up.rebalance();
    assert!(step.starts_with(told.lines().next().expect("a line")), "{told}");
    assert_eq!(told.lines().last(), Some("nothing is left to do"));
}

#[test]
fn slots_go_whole_to_a_new_server_in_the_order_of_servers() {
    const KEYS_OF_ONE: usize = 500;
    let mut up = Up::with_room(SERVERS, SERVERS + 1);
    let groups = up.status()["groups"].as_array().expect("groups").clone();
    let ranges = [[0, 5_461], [5_462, 10_922], [10_923, 16_383]];
    for (server, (group, range)) in (0..SERVERS).zip(groups.iter().zip(ranges)) {
        assert_eq!(group["primary"]["address"], up.first(server), "servers have slots in their order");
        assert_eq!(group["ranges"], serde_json::json!([range]));
        assert_eq!(group["replicas"][0]["address"], up.second((server + SERVERS - 1) % SERVERS));
    }
    let mut client = Client::new(&up);
    write_all(&mut client, "one");
    // This slot is one of those that go.
    let name = |number: usize| format!("{{many}}{number}");
    (0..KEYS_OF_ONE).for_each(|number| assert_eq!(client.ask(&["SET", &name(number), "x"]), "OK"));

    up.running.signal("INT");
    assert_eq!(up.running.wait(), Some(0));
    up.servers += 1;
    up.running = command(&up.data, up.port, up.room, up.servers);
    let said = up.said("ashlar is up");
    let has = |text: &str| said.iter().any(|line| line.contains(text));
    assert!(has(&format!(" to {}: 1366 slots (4096-5461)", up.first(3))) && !has("key by key"), "{said:#?}");
    let counts: Vec<_> = up.status()["groups"].as_array().expect("groups").iter().map(|g| g["slots"].clone()).collect();
    assert_eq!(counts, [4_096; 4]);
    let migrations = up.ask(&up.first(3), &["CLUSTER", "GETSLOTMIGRATIONS"]).expect("it answers");
    assert!(migrations.contains("operation IMPORT") && migrations.contains("state success"), "{migrations}");
    let mut client = Client::new(&up);
    check_all(&mut client, "one");
    (0..KEYS_OF_ONE).for_each(|number| assert_eq!(client.ask(&["GET", &name(number)]), "x"));
    until("replicas to have all", || up.is_whole());
}

#[test]
fn a_lost_server_that_is_replaced_by_an_empty_one_has_second_copies_first() {
    let mut up = Up::with_room(SERVERS, SERVERS + 1);
    let mut client = Client::new(&up);
    write_all(&mut client, "one");
    until("replicas to have all", || up.is_whole());
    let lost = super::process::status(&format!("127.0.0.1:{}", up.port + 1)).expect("it answers").server;
    up.running.signal("INT");
    assert_eq!(up.running.wait(), Some(0));
    let server = |number: u16| format!("{}/server-{number}", up.data);
    let start = |number: u16| {
        let at = |kind: u16| (up.port + kind * up.room + number - 1).to_string();
        let listen = format!("127.0.0.1:{}", at(0));
        let join = format!("127.0.0.1:{},127.0.0.1:{}", up.port, up.port + 2);
        let secret = format!("{}/cluster.secret", up.data);
        let data = server(number);
        let words = ["server", "--data", &data, "--listen", &listen, "--kv-port", &at(1), "--kv-replica-port", &at(2)];
        let more = ["--secret-file", &secret, "--member-timeout-ms", "2000", "--workers", "1", "--join", &join];
        Running::start(&[&words[..], &more].concat(), &[])
    };
    let mut running = vec![start(1), start(3)];
    let mut second = start(2);
    let served = |up: &Up| run(&["kv", "status", "--json", "--addr", &up.first(0)], &[]).out;
    until("all slots to be served again", || served(&up).contains("\"slots_served\": 16384"));
    until("replicas to have all again", || up.is_whole());
    // It never comes back: its directory is gone, and an empty server has its place.
    second.signal("KILL");
    second.wait();
    std::fs::remove_dir_all(server(2)).expect("nobody uses it");
    until("the stand-in to serve", || served(&up).contains("\"slots_served\": 16384"));
    until("the status to say whose second copies are lost", || served(&up).contains("\"groups_without_copy\": 2"));
    let first = format!("127.0.0.1:{}", up.port);
    until("it to be forgotten", || run(&["forget", &lost, "--addr", &first, "--data", &up.data], &[]).code == Some(0));
    running.push(start(4));
    until("six engines to know each other", || {
        let told = served(&up);
        told.contains(&up.first(3)) && told.contains(&up.second(3)) && !told.contains(&up.first(1))
    });
    let said = up.rebalance();
    let line = |text: &str| said.lines().position(|line| line.contains(text));
    let copy = line(&format!("{}: replica of ", up.first(3)));
    let role = line(&format!("{}: becomes primary, and ", up.first(3)));
    assert!(copy.is_some() && copy < role, "{said}");
    assert_eq!(line(" slots ("), None, "no slot had to move: {said}");
    let told = served(&up);
    assert!(told.contains("\"groups_without_copy\": 0") && told.contains("\"slots_served\": 16384"), "{told}");
    client.entries = vec![up.first(0), up.first(2), up.first(3)];
    check_all(&mut client, "one");
}

#[test]
fn replicas_follow_on_streams_of_the_grid() {
    let up = Up::new(2);
    for server in 0..2 {
        let clients = up.ask(&up.first(server), &["CLIENT", "LIST", "TYPE", "replica"]).expect("it answers");
        let other = format!(" addr=127.0.0.1:{} ", up.port + 1 - server);
        assert!(clients.contains(&other) && clients.contains(" fd=-1 "), "{clients}");
    }
    // More than fits into anything on the way.
    let long = "x".repeat(1 << 20);
    let mut client = Client::new(&up);
    for number in 0..4 {
        assert_eq!(client.ask(&["SET", &format!("long:{number}"), &long]), "OK");
    }
    until("replicas to have all", || up.is_whole());
    let size = |place: String| up.ask(&place, &["DBSIZE"]);
    for server in 0..2 {
        assert_eq!(size(up.first(server)), size(up.second(1 - server)));
    }
}

#[test]
fn status_says_who_is_silent() {
    let up = Up::new(SERVERS);
    let stopped = [up.pid(1), up.pid(2)];
    stopped.iter().for_each(|pid| signal(*pid, "STOP"));
    let outcome = run(&["kv", "status", "--addr", &up.first(0)], &[]);
    stopped.iter().for_each(|pid| signal(*pid, "CONT"));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let silent = outcome.out.lines().filter(|line| line.contains(" does not answer: ")).count();
    assert_eq!(silent, 2, "{}", outcome.out);
    for place in [up.first(1), up.second(1), up.first(2), up.second(2)] {
        assert!(outcome.out.contains(&format!("{place}: no answer within 2 s")), "{}", outcome.out);
    }
}

#[test]
fn health_and_metrics_tell_what_is_served() {
    let (scratch, port) = (Scratch::new(), ports(2));
    let [kv, replica] = [port, port + 1].map(|port| port.to_string());
    let words = ["--kv-port", &kv, "--kv-replica-port", &replica];
    let server = super::process::TestServer::start(&scratch.path("data"), &words, &[]);
    let ask = |path: &str| {
        let answer = super::process::get(&server.address, path).expect("it answers");
        (answer.status, String::from_utf8_lossy(&answer.body).into_owned())
    };
    let (status, text) = ask("/health/ready");
    assert_eq!(status, 503, "nobody owns a slot: {text}");
    assert!(text.contains("\"unserved\"") && text.contains("16384 slots have no owner"), "{text}");
    until("the cluster to be formed", || ask("/health/cluster").1.contains("\"unserved\""));
    let outcome = run(&["kv", "rebalance", "--addr", &format!("127.0.0.1:{kv}")], &[]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    until("the server to be ready", || ask("/health/ready").0 == 200);
    let (status, text) = ask("/health/cluster");
    assert_eq!(status, 200, "{text}");
    assert!(text.contains("\"healthy\"") && text.contains("\"slots_served\":16384"), "{text}");
    let (_, metrics) = ask("/metrics");
    for line in [
        format!("ashlar_kv_cluster_slots_served{{engine=\"127.0.0.1:{kv}\"}} 16384"),
        format!("ashlar_kv_keys{{engine=\"127.0.0.1:{kv}\",database=\"0\"}} 0"),
        format!("ashlar_kv_log_enabled{{engine=\"127.0.0.1:{replica}\"}} 1"),
    ] {
        assert!(metrics.lines().any(|other| other == line), "`{line}` is not in {metrics}");
    }
    server.stop();
}
