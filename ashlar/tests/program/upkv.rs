//! The key-value cluster of `ashlar up`: served at once, whole after the loss of a server, and the same after a restart.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use super::process::{Running, Scratch, run, signal, until};

/// Who says nothing for so long is asked no more; nothing is measured by this.
const PATIENCE: Duration = Duration::from_secs(10);

const SERVERS: u16 = 3;
/// One key for each of some slots all over.
const KEYS: usize = 200;

/// A connection that may break.
struct Wire(BufReader<TcpStream>);

impl Wire {
    fn new(address: &str) -> Option<Self> {
        let stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        Some(Self(BufReader::new(stream)))
    }

    /// Asks; arrays come as their elements with spaces between.
    fn ask(&mut self, words: &[&str]) -> Option<String> {
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

/// The first of some free ports in a row.
fn ports(count: u16) -> u16 {
    let find = || {
        let first = TcpListener::bind("127.0.0.1:0").ok()?;
        let port = first.local_addr().ok()?.port();
        let others = (1..count).map(|more| TcpListener::bind(("127.0.0.1", port.checked_add(more)?)).ok());
        others.collect::<Option<Vec<_>>>().map(|_| port)
    };
    (0..1_000).find_map(|_| find()).expect("there are free ports in a row")
}

/// A cluster, and all that is needed to start it again.
struct Up {
    data: String,
    port: u16,
    kv: u16,
    servers: u16,
    running: Running,
    _scratch: Option<Scratch>,
}

fn command(data: &str, port: u16, kv: u16, servers: u16) -> Running {
    let words = [data.to_owned(), port.to_string(), kv.to_string(), (kv + servers).to_string(), servers.to_string()];
    let [data, port, kv, replica, servers] = words.each_ref().map(String::as_str);
    let begin = ["up", "--data", data, "--port-base", port, "--kv-port", kv, "--kv-replica-port", replica];
    Running::start(&[&begin[..], &["--servers", servers, "--workers", "1"]].concat(), &[])
}

impl Up {
    fn new(servers: u16) -> Self {
        let scratch = Scratch::new();
        let (port, data) = (ports(3 * servers), scratch.path("data"));
        let kv = port + servers;
        let running = command(&data, port, kv, servers);
        Running::line(&running.out, "ashlar is up");
        Self { data, port, kv, servers, running, _scratch: Some(scratch) }
    }

    fn restart(&mut self) {
        self.running.signal("INT");
        assert_eq!(self.running.wait(), Some(0));
        self.running = command(&self.data, self.port, self.kv, self.servers);
    }

    fn first(&self, server: u16) -> String {
        format!("127.0.0.1:{}", self.kv + server)
    }

    fn second(&self, server: u16) -> String {
        format!("127.0.0.1:{}", self.kv + self.servers + server)
    }

    fn ask(&self, address: &str, words: &[&str]) -> Option<String> {
        Wire::new(address)?.ask(words)
    }

    /// The process id of a server, from its status.
    fn pid(&self, server: u16) -> u32 {
        super::process::status(&format!("127.0.0.1:{}", self.port + server)).expect("it answers").pid
    }

    fn role(&self, address: &str) -> String {
        let role = self.ask(address, &["ROLE"]).unwrap_or_default();
        role.split(' ').next().unwrap_or_default().to_owned()
    }

    fn roles(&self) -> Vec<String> {
        let firsts = (0..self.servers).map(|server| self.first(server));
        firsts.chain((0..self.servers).map(|server| self.second(server))).map(|place| self.role(&place)).collect()
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
    fn is_whole(&self) -> bool {
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
    assert!(said.contains(&format!("{} becomes primary again", up.first(0))), "{said}");
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
    let moves = said.lines().filter(|line| line.starts_with("moved 1 of 1 slots")).count();
    assert_eq!(moves, 2, "one there, and another one back: {said}");
    assert!(said.contains("moved 1 of 1 slots, 249 keys"), "{said}");
    assert_eq!((counts(&from).as_str(), counts(&to).as_str()), ("0", "250"));
    keys.iter().for_each(|key| assert_eq!(Client::new(&up).ask(&["GET", key]), *key));
    let groups = up.status()["groups"].as_array().expect("groups").clone();
    assert!(groups.iter().all(|group| group["slots"] == 8_192), "{groups:?}");
    assert_eq!(up.rebalance().lines().count(), 1, "there is nothing to do");
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
