//! Others follow the key-value engine: a client that speaks the protocol by itself, and `redis-server` where it is installed.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use super::process::{Running, Scratch, nobody, until};

/// A connection that reads replies of any kind.
pub(super) struct Wire(BufReader<TcpStream>);

impl Wire {
    pub(super) fn new(address: &str) -> Option<Self> {
        TcpStream::connect(address).ok().map(|stream| Self(BufReader::new(stream)))
    }

    fn send(&mut self, words: &[&str]) {
        let mut request = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| request += &format!("${}\r\n{word}\r\n", word.len()));
        self.0.get_mut().write_all(request.as_bytes()).expect("it takes requests");
    }

    /// A line that is not empty, without its end.
    fn line(&mut self) -> String {
        loop {
            let mut line = String::new();
            let count = self.0.read_line(&mut line).expect("it sends lines");
            assert!(count > 0, "it has closed");
            if !line.trim_end().is_empty() {
                return line.trim_end().to_owned();
            }
        }
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes).expect("it sends what it announced");
        bytes
    }

    /// A reply or a request, whose words are told with spaces between.
    pub(super) fn read(&mut self) -> String {
        let line = self.line();
        let count = || line[1..].parse::<usize>().expect("a number");
        match line.as_bytes()[0] {
            b'*' => (0..count()).map(|_| self.read()).collect::<Vec<_>>().join(" "),
            b'$' if line == "$-1" => "nil".to_owned(),
            b'$' => {
                let text = self.bytes(count() + 2);
                String::from_utf8_lossy(&text[..text.len() - 2]).into_owned()
            }
            _ => line[1..].to_owned(),
        }
    }

    pub(super) fn ask(&mut self, words: &[&str]) -> String {
        self.send(words);
        self.read()
    }

    /// Whether something has come that was not read.
    pub(super) fn has_more(&self) -> bool {
        let stream = self.0.get_ref();
        stream.set_nonblocking(true).expect("it is a socket");
        let is_there = stream.peek(&mut [0]).is_ok_and(|count| count > 0);
        stream.set_nonblocking(false).expect("it is a socket");
        is_there || !self.0.buffer().is_empty()
    }
}

/// An engine, and a way to ask it.
fn engine(scratch: &Scratch, more: &[&str]) -> (Running, String) {
    let address = nobody();
    (engine_at(scratch, &address, more), address)
}

/// The same at an address.
pub(super) fn engine_at(scratch: &Scratch, address: &str, more: &[&str]) -> Running {
    let (port, data) = (address.rsplit(':').next().expect("an address has a port"), scratch.path(""));
    // What is no parameter of Valkey comes first.
    let begin = ["kv", "--port", port, "--workers", "2"];
    let settings = ["--dir", &data, "--save", ""];
    let debugging = ["--enable-debug-command", "yes", "--repl-diskless-sync-delay", "0"];
    let running = Running::start(&[&begin[..], more, &settings, &debugging].concat(), &[]);
    until("the engine to answer", || Wire::new(address).is_some_and(|mut wire| wire.ask(&["PING"]) == "PONG"));
    running
}

/// Writes of many kinds, so that a part of them comes before a dump, a part while it is taken, and a part after it.
pub(super) fn write(wire: &mut Wire, from: usize, to: usize) {
    for number in from..to {
        let (key, value) = (format!("k{}", number % 700), number.to_string());
        wire.ask(&["SET", &key, &value]);
        wire.ask(&["RPUSH", &format!("l{}", number % 50), &value]);
        wire.ask(&["SADD", &format!("s{}", number % 50), &value]);
        wire.ask(&["SPOP", &format!("s{}", number % 7)]);
        wire.ask(&["HSET", &format!("h{}", number % 50), &key, &value]);
        wire.ask(&["EVAL", "redis.call('INCR', 'n') redis.call('ZADD', 'z', ARGV[1], ARGV[1])", "0", &value]);
        wire.ask(&["XADD", "x", "*", "a", &value]);
    }
}

#[test]
fn a_dump_and_the_stream_are_all_data() {
    let scratch = Scratch::new();
    let (_running, address) = engine(&scratch, &[]);
    let mut client = Wire::new(&address).expect("it listens");
    write(&mut client, 0, 300);
    let mut replica = Wire::new(&address).expect("it listens");
    for words in [["REPLCONF", "capa", "eof"], ["REPLCONF", "capa", "psync2"], ["REPLCONF", "version", "9.1.0"]] {
        assert_eq!(replica.ask(&words), "OK");
    }
    replica.send(&["PSYNC", "?", "-1"]);
    write(&mut client, 300, 500);
    let resync = replica.line();
    let (history, position) =
        resync.strip_prefix("+FULLRESYNC ").and_then(|rest| rest.split_once(' ')).expect("a dump");
    let mark = replica.line().strip_prefix("$EOF:").expect("it ends with a mark").to_owned();
    let mut file = Vec::new();
    while !file.ends_with(mark.as_bytes()) {
        file.extend_from_slice(&replica.bytes(1));
    }
    file.truncate(file.len() - mark.len());
    // Replicas say it again every second; this one says it once, so not before it is listened to.
    until("the dump to be over", || client.ask(&["INFO", "replication"]).contains("state=online"));
    replica.send(&["REPLCONF", "ACK", position]);
    write(&mut client, 500, 600);
    assert_eq!(client.ask(&["SET", "last", "1"]), "OK");
    let mut stream = Vec::new();
    while stream.last().map(String::as_str) != Some("SET last 1") {
        stream.push(replica.read());
    }
    // Another engine with the dump, to which the stream is said.
    let (second, dump) = (Scratch::new(), scratch.path("taken.rdb"));
    std::fs::write(&dump, file).expect("the scratch directory can be written");
    let (_copying, other) = engine(&second, &["--import", &dump]);
    let mut copy = Wire::new(&other).expect("it listens");
    for request in &stream {
        let words: Vec<&str> = request.split(' ').collect();
        let reply = copy.ask(&words);
        assert!(!reply.starts_with("ERR"), "{request}: {reply}");
    }
    assert_eq!(client.ask(&["DEBUG", "DIGEST"]), copy.ask(&["DEBUG", "DIGEST"]));
    assert_ne!(client.ask(&["DEBUG", "DIGEST"]), "0".repeat(40));
    goes_on(&mut client, replica, history);
}

/// A replica that comes back gets what it missed, and is counted again.
fn goes_on(client: &mut Wire, replica: Wire, history: &str) {
    let address = replica.0.get_ref().peer_addr().expect("it is connected").to_string();
    let end =
        |client: &mut Wire| client.ask(&["ROLE"]).split(' ').nth(1).expect("a position").parse::<u64>().expect("one");
    let before = end(client);
    drop(replica);
    until("the replica to be gone", || client.ask(&["INFO", "replication"]).contains("connected_slaves:0"));
    client.ask(&["SET", "missed", "1"]);
    let mut again = Wire::new(&address).expect("it listens");
    again.send(&["PSYNC", history, &(before + 1).to_string()]);
    assert_eq!(again.line(), "+CONTINUE");
    let mut heard = again.read();
    while heard != "SET missed 1" {
        assert!(heard == "PING", "{heard}");
        heard = again.read();
    }
    client.send(&["WAIT", "1", "0"]);
    while heard != "REPLCONF GETACK *" {
        heard = again.read();
    }
    let now = end(&mut Wire::new(&address).expect("it listens")).to_string();
    again.send(&["REPLCONF", "ACK", &now]);
    assert_eq!(client.read(), "1");
}

/// A process that ends with the test.
pub(super) struct Other(pub(super) Child);

impl Drop for Other {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn redis_follows() {
    if Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("redis-server is not installed: nothing was tested");
        return;
    }
    let (scratch, folder) = (Scratch::new(), Scratch::new());
    let (_running, address) = engine(&scratch, &[]);
    let mut client = Wire::new(&address).expect("it listens");
    write(&mut client, 0, 200);
    let (ours, theirs) = (address.rsplit_once(':').expect("a port"), nobody());
    let port = theirs.rsplit(':').next().expect("a port").to_owned();
    let begin = ["--port", &port, "--bind", "127.0.0.1", "--save", "", "--dir", &folder.path("")];
    let follows = ["--enable-debug-command", "yes", "--replicaof", ours.0, ours.1];
    let mut command = Command::new("redis-server");
    command.args(begin).args(follows).stdout(Stdio::null()).stderr(Stdio::null());
    let _redis = Other(command.spawn().expect("it is installed"));
    write(&mut client, 200, 300);
    until("redis to have the dump", || client.ask(&["INFO", "replication"]).contains("state=online"));
    write(&mut client, 300, 400);
    assert_eq!(client.ask(&["WAIT", "1", "0"]), "1");
    let mut redis = Wire::new(&theirs).expect("it listens");
    assert_eq!(client.ask(&["DEBUG", "DIGEST"]), redis.ask(&["DEBUG", "DIGEST"]));
    // Its connection is cut, and it goes on where it was.
    assert_eq!(client.ask(&["CLIENT", "KILL", "TYPE", "replica"]), "1");
    write(&mut client, 400, 450);
    until("redis to come back", || client.ask(&["INFO", "replication"]).contains("state=online"));
    assert_eq!(client.ask(&["WAIT", "1", "0"]), "1");
    assert_eq!(client.ask(&["DEBUG", "DIGEST"]), redis.ask(&["DEBUG", "DIGEST"]));
    let stats = client.ask(&["INFO", "stats"]);
    assert!(stats.contains("sync_full:1\r\n") && stats.contains("sync_partial_ok:1\r\n"), "{stats}");
}

#[test]
fn data_is_read_again_from_files() {
    for is_on in ["yes", "no"] {
        let scratch = Scratch::new();
        let (_running, address) = engine(&scratch, &["--appendonly", is_on]);
        let mut client = Wire::new(&address).expect("it listens");
        write(&mut client, 0, 50);
        let before = client.ask(&["DEBUG", "DIGEST"]);
        if is_on == "no" {
            assert!(client.ask(&["DEBUG", "LOADAOF"]).starts_with("ERR "), "there is no log");
            assert!(client.ask(&["BGREWRITEAOF"]).starts_with("Background append only file rewriting"));
            until("a log", || {
                client.ask(&["INFO", "persistence"]).contains("aof_rewrite_in_progress:0\r\n")
                    && std::fs::exists(scratch.path("appendonlydir/manifest")).unwrap_or(false)
            });
        }
        assert_eq!(client.ask(&["DEBUG", "LOADAOF"]), "OK");
        assert_eq!(client.ask(&["DEBUG", "DIGEST"]), before, "appendonly {is_on}");
        assert_eq!(client.ask(&["DEBUG", "RELOAD"]), "OK");
        assert_eq!(client.ask(&["DEBUG", "DIGEST"]), before);
        client.ask(&["SET", "after", "1"]);
        assert!(
            client.ask(&["DEBUG", "RELOAD", "NOSAVE", "NOFLUSH"]).starts_with("ERR "),
            "all keys are there already"
        );
        assert_eq!(client.ask(&["DEBUG", "RELOAD", "NOSAVE", "NOFLUSH", "MERGE"]), "OK");
        assert_eq!(client.ask(&["GET", "after"]), "1", "what is there stays");
        assert_eq!(client.ask(&["DEBUG", "RELOAD", "NOSAVE"]), "OK");
        assert_eq!((client.ask(&["GET", "after"]), client.ask(&["DEBUG", "DIGEST"])), ("nil".into(), before));
    }
}
