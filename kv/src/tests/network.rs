//! MIGRATE, and doors that move.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{Talk, check, readable};
use crate::network::{Broken, Line, Network};
use crate::persist::journal::decode_batch;

/// Servers by their ports: each is an engine with one client, the line.
#[derive(Debug, Clone, Default)]
struct Servers(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    servers: Vec<(u16, Talk)>,
    /// What fails next: reads after so many, and how.
    breaks: Option<(usize, Broken)>,
    dials: usize,
    doors: Vec<String>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("dials", &self.dials).finish_non_exhaustive()
    }
}

impl Network for Servers {
    fn listen(&self, addresses: &[&str], port: u16) -> Result<(), String> {
        if port == 1 || addresses.contains(&"203.0.113.1") {
            return Err("taken".into());
        }
        self.0.lock().unwrap().doors.push(format!("{} {port}", addresses.join(" ")));
        Ok(())
    }

    fn dial(&self, _host: &str, port: u16, _span: Duration) -> Result<Box<dyn Line>, Broken> {
        let mut state = self.0.lock().unwrap();
        state.dials += 1;
        if !state.servers.iter().any(|(known, _)| *known == port) {
            return Err(Broken::Gone);
        }
        Ok(Box::new(Wire { servers: self.clone(), port, came: Vec::new() }))
    }
}

/// A connection to one of them.
#[derive(Debug)]
struct Wire {
    servers: Servers,
    port: u16,
    came: Vec<u8>,
}

impl Line for Wire {
    fn write(&mut self, bytes: &[u8], _span: Duration) -> Result<(), Broken> {
        let mut state = self.servers.0.lock().unwrap();
        let (_, talk) = state.servers.iter_mut().find(|(port, _)| *port == self.port).unwrap();
        self.came.extend(talk.piece(0, bytes));
        Ok(())
    }

    fn read(&mut self, room: &mut [u8], _span: Duration) -> Result<usize, Broken> {
        if let Some((left, why)) = &mut self.servers.0.lock().unwrap().breaks {
            if *left == 0 {
                return Err(*why);
            }
            *left -= 1;
        }
        // In pieces, as a network may.
        let count = self.came.len().min(5).min(room.len());
        room[..count].copy_from_slice(&self.came[..count]);
        self.came.drain(..count);
        Ok(count)
    }
}

/// A server that reaches another one at port 7.
fn two() -> (Talk, Servers) {
    let talk = Talk::new();
    let servers = Servers::default();
    servers.0.lock().unwrap().servers.push((7, Talk::new()));
    talk.engine().set_network(Box::new(servers.clone()));
    (talk, servers)
}

/// What the other server replies.
fn there(servers: &Servers, line: &str) -> String {
    let mut state = servers.0.lock().unwrap();
    state.servers[0].1.join_until(1);
    state.servers[0].1.say(1, line)
}

#[test]
fn keys_go_to_another_server() {
    let (mut talk, servers) = two();
    let engine = talk.engine_shared();
    engine.journal().start(0, Box::new(|| {}));
    talk.say(0, "SET a 1 PX 5000");
    talk.say(0, "RPUSH l x y");
    talk.say(0, "SET b 2");
    engine.journal().take();
    let listener = talk.join();
    talk.say(0, "CONFIG SET notify-keyspace-events Eg");
    talk.say(listener, "PSUBSCRIBE *");
    for (line, reply) in [
        ("MIGRATE h 7 nosuch 0 100", "NOKEY"),
        ("MIGRATE h 7 \"\" 0 100 KEYS nosuch no", "NOKEY"),
        ("MIGRATE h 7 a 3 100", "OK"),
        ("MIGRATE h 7 \"\" 3 100 KEYS l nosuch b", "OK"),
        ("EXISTS a b l", "0"),
    ] {
        assert_eq!(talk.say(0, line), reply, "{line}");
    }
    assert_eq!(servers.0.lock().unwrap().dials, 1, "the connection is kept");
    let events = readable(&talk.mail(listener));
    assert_eq!(events.matches("__keyevent@0__:del").count(), 3, "{events}");
    let batch = engine.journal().take().batch;
    let units = decode_batch(&batch).unwrap();
    let written: String = units.iter().map(|unit| String::from_utf8_lossy(unit.commands)).collect();
    assert_eq!(written, "*2\r\n$3\r\nDEL\r\n$1\r\na\r\n*3\r\n$3\r\nDEL\r\n$1\r\nl\r\n$1\r\nb\r\n");
    there(&servers, "SELECT 3");
    assert_eq!(there(&servers, "MGET a b"), "[\"1\" \"2\"]");
    assert_eq!(there(&servers, "LRANGE l 0 -1"), "[\"x\" \"y\"]");
    assert_eq!((there(&servers, "PTTL a").as_str(), there(&servers, "PTTL b").as_str()), ("5000", "-1"));
}

#[test]
fn what_the_other_server_says_is_told() {
    let (mut talk, servers) = two();
    talk.say(0, "MSET a 1 b 2");
    there(&servers, "SET a old");
    there(&servers, "ACL SETUSER u on >p +@all ~*");
    for (line, reply) in [
        (
            "MIGRATE h 7 a 0 0",
            "(error) ERR Target instance replied with error: BUSYKEY Target key name already exists.",
        ),
        (
            "MIGRATE h 7 \"\" 0 0 KEYS a b",
            "(error) ERR Target instance replied with error: BUSYKEY Target key name already exists.",
        ),
        ("EXISTS a b", "1"),
        ("MIGRATE h 7 a 99 0", "(error) ERR Target instance replied with error: ERR DB index is out of range"),
        (
            "MIGRATE h 7 a 0 0 REPLACE AUTH2 u wrong",
            "(error) ERR Target instance replied with error: WRONGPASS invalid username-password pair or user is disabled.",
        ),
        ("EXISTS a", "1"),
        ("MIGRATE h 7 a 0 0 COPY REPLACE AUTH2 u p", "OK"),
        ("EXISTS a", "1"),
        ("MIGRATE h 7 a 0 0 replace", "OK"),
        ("EXISTS a", "0"),
    ] {
        assert_eq!(talk.say(0, line), reply, "{line}");
    }
    assert_eq!(there(&servers, "MGET a b"), "[\"1\" \"2\"]");
}

#[test]
fn a_line_that_breaks_is_tried_once_more() {
    let (mut talk, servers) = two();
    talk.say(0, "MSET a 1 b 2");
    let breaks = |after, why| servers.0.lock().unwrap().breaks = Some((after, why));
    assert_eq!(talk.say(0, "MIGRATE h 8 a 0 0"), "(error) IOERR error or timeout connecting to the client");
    breaks(0, Broken::TooLate);
    assert_eq!(talk.say(0, "MIGRATE h 7 a 0 0"), "(error) IOERR error or timeout reading to target instance");
    assert_eq!(servers.0.lock().unwrap().dials, 2, "what takes too long is not tried again");
    breaks(0, Broken::Gone);
    assert_eq!(talk.say(0, "MIGRATE h 7 a 0 0"), "(error) IOERR error or timeout reading to target instance");
    assert_eq!(servers.0.lock().unwrap().dials, 4);
    assert_eq!(talk.say(0, "EXISTS a b"), "2");
    // Replies of SELECT and of one RESTORE come.
    breaks(2, Broken::Gone);
    assert_eq!(
        talk.say(0, "MIGRATE h 7 \"\" 1 0 KEYS a b"),
        "(error) IOERR error or timeout reading to target instance"
    );
    assert_eq!((talk.say(0, "EXISTS a").as_str(), talk.say(0, "EXISTS b").as_str()), ("0", "1"));
}

#[test]
fn lines_are_closed_after_a_while() {
    let (mut talk, servers) = two();
    talk.say(0, "MSET a 1 b 2 c 3");
    talk.say(0, "MIGRATE h 7 a 0 0");
    talk.wait(9_000);
    talk.tick();
    talk.say(0, "MIGRATE h 7 b 0 0");
    assert_eq!(servers.0.lock().unwrap().dials, 1);
    talk.wait(11_000);
    talk.tick();
    talk.say(0, "MIGRATE h 7 c 0 0");
    assert_eq!(servers.0.lock().unwrap().dials, 2);
}

#[test]
fn options_of_migrate_are_checked() {
    check(
        "
        > MIGRATE h 7 k 0 0 AUTH
        (error) ERR syntax error
        > MIGRATE h 7 k 0 0 AUTH2 u
        (error) ERR syntax error
        > MIGRATE h 7 k 0 0 FAST
        (error) ERR syntax error
        > MIGRATE h 7 k 0 0 KEYS a
        (error) ERR When using MIGRATE KEYS option, the key argument must be set to the empty string
        > MIGRATE h 7 k 0 x
        (error) ERR value is not an integer or out of range
        > MIGRATE h 7 k x 0
        (error) ERR value is not an integer or out of range
        > MIGRATE h 7 k 0 0 COPY
        NOKEY
        > SET k v
        OK
        > MIGRATE h 7 k 0 0 COPY
        (error) IOERR error or timeout connecting to the client
    ",
    );
}

#[test]
fn doors_move_or_nothing_changes() {
    let (mut talk, servers) = two();
    talk.engine().configure("bind", "127.0.0.1").unwrap();
    talk.engine().configure("port", "6379").unwrap();
    let no_address =
        "(error) ERR CONFIG SET failed (possibly related to argument 'bind') - Failed to bind to specified addresses.";
    let no_port = "(error) ERR CONFIG SET failed (possibly related to argument 'port') - Unable to listen on this port. Check \
                   server logs.";
    for (line, reply) in [
        ("CONFIG SET bind 127.0.0.1 port 6379", "OK"),
        ("CONFIG SET maxmemory 1000000 bind 203.0.113.1", no_address),
        ("CONFIG SET maxmemory 1000000 port 1", no_port),
        ("CONFIG GET maxmemory", "[\"maxmemory\" \"0\"]"),
        ("CONFIG SET bind \"127.0.0.1 ::1\"", "OK"),
        ("CONFIG SET port 7000", "OK"),
        ("CONFIG GET bind", "[\"bind\" \"127.0.0.1 ::1\"]"),
    ] {
        assert_eq!(talk.say(0, line), reply, "{line}");
    }
    assert_eq!(servers.0.lock().unwrap().doors, ["127.0.0.1 ::1 6379", "127.0.0.1 ::1 7000"]);
}
