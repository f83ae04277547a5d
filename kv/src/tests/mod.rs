//! Conversations: what is sent, and what comes back.
//!
//! Each family of commands has a file of its own. A conversation is written as people type it, one command a line, and its
//! replies as `redis-cli` would print them without colours; see [`check`]. Long ones are in files of their own beside the
//! tests, see [`check_all`]; their replies are those of Valkey 8.1.

mod access;
mod acl;
mod bitmap;
mod busy;
mod client;
mod copy;
mod debug;
mod dump;
mod evict;
mod function;
mod generic;
mod geo;
mod hash;
mod hash_expiry;
mod hyperloglog;
mod list;
mod monitor;
mod network;
mod persist;
mod pubsub;
mod rest;
mod script;
mod script_lib;
mod script_limits;
mod script_patterns;
mod server;
mod set;
mod sort;
mod sorted_set;
mod statistics;
mod strangers;
mod stream;
mod string;
mod told;
mod tracking;
mod transaction;
mod truth;
mod turns;

use std::sync::Arc;

use ashlar_wire::time::Instant;

use crate::client::{Link, Mailbox, Rejected};
use crate::engine::{Engine, EngineConfig};
use crate::memory::hash_key::HASH_KEY_BYTES;
use crate::session::{Next, Session};
use crate::time::Now;

/// When conversations begin, Unix milliseconds.
pub(crate) const BEGIN_MS: i64 = 1_800_000_000_000;

/// One engine, one clock, any number of clients.
pub(crate) struct Talk {
    engine: Arc<Engine>,
    sessions: Vec<Session>,
    /// What each has sent and its session has not taken.
    unread: Vec<Vec<u8>>,
    now_ms: i64,
    /// How far Unix time was set ahead of the monotonic clock.
    stepped_ms: i64,
}

impl Talk {
    /// An empty engine and one client.
    pub(crate) fn new() -> Self {
        let engine = Engine::new(&EngineConfig { secret: [3; HASH_KEY_BYTES], shards: 8, databases: 16 });
        engine.configure("enable-debug-command", "yes").expect("it is a parameter");
        engine.configure("enable-protected-configs", "yes").expect("it is a parameter");
        Self::with(Arc::new(engine))
    }

    /// One client of an engine that others may have.
    pub(crate) fn with(engine: Arc<Engine>) -> Self {
        let mut talk = Self { engine, sessions: Vec::new(), unread: Vec::new(), now_ms: BEGIN_MS, stepped_ms: 0 };
        talk.join();
        talk
    }

    /// The engine, for others.
    pub(crate) fn engine_shared(&self) -> Arc<Engine> {
        Arc::clone(&self.engine)
    }

    /// One more client; its number.
    pub(crate) fn join(&mut self) -> usize {
        self.try_join().expect("there is room for one more")
    }

    /// One more client, if there may be so many; its number.
    pub(crate) fn try_join(&mut self) -> Option<usize> {
        let peer = format!("127.0.0.1:{}", 50_000 + self.sessions.len());
        self.try_join_by(Talk::link(&peer)).ok()
    }

    /// A connection from that address.
    pub(crate) fn link(peer: &str) -> Link {
        let (peer, local) = (peer.to_owned(), "127.0.0.1:6379".to_owned());
        Link { peer, local, descriptor: 9, is_unix: false, is_tls: false, is_server: false }
    }

    /// One more client by this connection, if it is let in; its number.
    pub(crate) fn try_join_by(&mut self, link: Link) -> Result<usize, Rejected> {
        let mailbox = Arc::new(Mailbox::new(Box::new(|| {})));
        let session = Session::open(Arc::clone(&self.engine), mailbox, link, self.now())?;
        self.sessions.push(session);
        self.unread.push(Vec::new());
        Ok(self.sessions.len() - 1)
    }

    /// So many clients that there is one of this number.
    fn join_until(&mut self, client: usize) {
        while self.sessions.len() <= client {
            self.join();
        }
    }

    /// A client leaves. Its number is that of another then.
    pub(crate) fn leave(&mut self, client: usize) {
        self.sessions.swap_remove(client);
        self.unread.swap_remove(client);
    }

    /// Two clients have each other's numbers from now on.
    pub(crate) fn swap(&mut self, one: usize, other: usize) {
        self.sessions.swap(one, other);
        self.unread.swap(one, other);
    }

    /// A client's session.
    pub(crate) fn session(&self, client: usize) -> &Session {
        &self.sessions[client]
    }

    /// A client's session, for what a connection does with it.
    pub(crate) fn session_mut(&mut self, client: usize) -> &mut Session {
        self.join_until(client);
        &mut self.sessions[client]
    }

    /// The engine itself.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Lets time pass.
    pub(crate) fn wait(&mut self, ms: i64) {
        self.now_ms += ms;
        let now = self.now();
        self.sessions.iter_mut().for_each(|session| {
            session.handle_time(now);
        });
    }

    /// Somebody sets Unix time.
    pub(crate) fn step_wall_clock(&mut self, ms: i64) {
        self.stepped_ms += ms;
    }

    /// The engine looks after itself.
    pub(crate) fn tick(&mut self) {
        self.engine.handle_tick(self.now());
    }

    pub(crate) fn now(&self) -> Now {
        let nanos = u64::try_from(self.now_ms - BEGIN_MS + 1).unwrap() * 1_000_000;
        Now { unix_us: (self.now_ms + self.stepped_ms) * 1_000, instant: Instant::from_nanos(nanos) }
    }

    /// A client sends bytes; the bytes that come back.
    pub(crate) fn raw(&mut self, client: usize, bytes: &[u8]) -> Vec<u8> {
        self.unread[client].extend_from_slice(bytes);
        let mut next = self.feed(client);
        while next == Next::More {
            next = self.feed(client);
        }
        assert!(self.unread[client].is_empty() || next != Next::Read, "whole requests are taken");
        self.mail(client)
    }

    /// A client sends bytes that need not be whole requests; the bytes that come back.
    pub(crate) fn piece(&mut self, client: usize, bytes: &[u8]) -> Vec<u8> {
        self.unread[client].extend_from_slice(bytes);
        self.feed(client);
        self.mail(client)
    }

    fn feed(&mut self, client: usize) -> Next {
        let now = self.now();
        let (taken, next) = self.sessions[client].feed(&self.unread[client], now);
        self.unread[client].drain(..taken);
        next
    }

    /// What has come for a client since it was last looked at.
    pub(crate) fn mail(&mut self, client: usize) -> Vec<u8> {
        let next = self.sessions[client].handle_mail();
        if next == Next::Read && !self.unread[client].is_empty() {
            self.feed(client);
            self.sessions[client].handle_mail();
        }
        let session = &mut self.sessions[client];
        let bytes = session.replies().to_vec();
        session.handle_sent(bytes.len());
        bytes
    }

    /// Whether a client's connection has ended.
    pub(crate) fn is_closed(&mut self, client: usize) -> bool {
        matches!(self.sessions[client].handle_mail(), Next::Close | Next::Drop)
    }

    /// A client types a line; the replies, readable.
    pub(crate) fn say(&mut self, client: usize, line: &str) -> String {
        let bytes = self.raw(client, format!("{line}\r\n").as_bytes());
        readable(&bytes)
    }
}

/// Runs conversations, each of which begins with a line `## what it is about`.
///
/// # Panics
/// A reply differs.
pub(crate) fn check_all(conversations: &str) {
    for conversation in conversations.split("## ").skip(1) {
        let (title, lines) = conversation.split_once('\n').expect("a title has a line");
        check_titled(title, lines);
    }
}

/// Runs a conversation. Lines that begin with `> ` are sent by the first client, with `N> ` by client N; others are the
/// expected replies. `+MS` lets milliseconds pass, `N?` looks what has come for client N, and `%3` says HELLO for the first.
///
/// # Panics
/// A reply differs.
pub(crate) fn check(conversation: &str) {
    check_titled("conversation", conversation);
}

fn check_titled(title: &str, conversation: &str) {
    check_with(&mut Talk::new(), title, conversation);
}

/// The same with an engine and clients that are there already.
///
/// # Panics
/// A reply differs.
pub(crate) fn check_with(talk: &mut Talk, title: &str, conversation: &str) {
    let mut lines = conversation.lines().map(str::trim).filter(|line| !line.is_empty()).peekable();
    while let Some(line) = lines.next() {
        let act = Act::read(line).unwrap_or_else(|| panic!("{title}: a reply without a command: {line}"));
        let mut expected = Vec::new();
        while let Some(reply) = lines.next_if(|line| Act::read(line).is_none()) {
            expected.push(reply);
        }
        let replies = match act {
            Act::Wait(ms) => {
                talk.wait(ms);
                continue;
            }
            Act::Hello(version) => {
                talk.say(0, &format!("HELLO {version}"));
                continue;
            }
            Act::Say(client, sent) => {
                talk.join_until(client);
                talk.say(client, sent)
            }
            Act::Look(client) => readable(&talk.mail(client)),
        };
        assert_eq!(replies, expected.join("\n"), "{title}: {line}");
    }
}

/// A line of a conversation that is no reply.
enum Act<'a> {
    Wait(i64),
    Hello(&'a str),
    Say(usize, &'a str),
    Look(usize),
}

impl<'a> Act<'a> {
    fn read(line: &'a str) -> Option<Self> {
        if let Some(sent) = line.strip_prefix("> ") {
            return Some(Self::Say(0, sent));
        }
        if let Some(ms) = line.strip_prefix('+') {
            return ms.parse().ok().map(Self::Wait);
        }
        if let Some(version) = line.strip_prefix('%') {
            return Some(Self::Hello(version));
        }
        let (client, rest) = line.split_at(line.find(|letter: char| !letter.is_ascii_digit())?);
        let client = client.parse().ok()?;
        match rest {
            "?" => Some(Self::Look(client)),
            _ => rest.strip_prefix("> ").map(|sent| Self::Say(client, sent)),
        }
    }
}

/// Replies as text: a line each, nested ones in brackets.
pub(crate) fn readable(bytes: &[u8]) -> String {
    let (mut rest, mut lines) = (bytes, Vec::new());
    while !rest.is_empty() {
        lines.push(take(&mut rest));
    }
    lines.join("\n")
}

fn take(rest: &mut &[u8]) -> String {
    let end = rest.windows(2).position(|two| two == b"\r\n").expect("a whole reply");
    let (kind, line) = (rest[0], String::from_utf8_lossy(&rest[1..end]).into_owned());
    *rest = &rest[end + 2..];
    let mut many = |count: usize| (0..count).map(|_| take(rest)).collect::<Vec<_>>();
    match kind {
        b'+' | b':' | b',' | b'(' => line,
        b'#' => if line == "t" { "true" } else { "false" }.into(),
        b'-' => format!("(error) {line}"),
        b'_' => "(nil)".into(),
        b'$' | b'=' | b'*' if line == "-1" => if kind == b'*' { "(nil array)" } else { "(nil)" }.into(),
        b'$' | b'=' => {
            let len: usize = line.parse().expect("a length");
            let text = format!("\"{}\"", rest[..len].escape_ascii());
            *rest = &rest[len + 2..];
            text
        }
        b'*' => format!("[{}]", many(line.parse().expect("a length")).join(" ")),
        b'~' => format!("~[{}]", many(line.parse().expect("a length")).join(" ")),
        b'>' => format!(">[{}]", many(line.parse().expect("a length")).join(" ")),
        b'%' => {
            let pairs = many(line.parse::<usize>().expect("a length") * 2);
            let pairs: Vec<String> = pairs.chunks(2).map(|pair| format!("{}: {}", pair[0], pair[1])).collect();
            format!("{{{}}}", pairs.join(", "))
        }
        other => panic!("no reply begins with {}", char::from(other)),
    }
}
