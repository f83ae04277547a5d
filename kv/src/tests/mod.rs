//! Conversations: what is sent, and what comes back.
//!
//! Each family of commands has a file of its own. A conversation is written as people type it, one command a line, and its
//! replies as `redis-cli` would print them without colours; see [`check`].

mod bitmap;
mod copy;
mod generic;
mod hash;
mod hash_expiry;
mod hyperloglog;
mod set;
mod sort;
mod string;
mod transaction;

use std::sync::Arc;

use ashlar_wire::time::Instant;

use crate::client::Mailbox;
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
    now_ms: i64,
}

impl Talk {
    /// An empty engine and one client.
    pub(crate) fn new() -> Self {
        let engine = Engine::new(&EngineConfig { secret: [3; HASH_KEY_BYTES], shards: 8, databases: 16 });
        let mut talk = Self { engine: Arc::new(engine), sessions: Vec::new(), now_ms: BEGIN_MS };
        talk.join();
        talk
    }

    /// One more client; its number.
    pub(crate) fn join(&mut self) -> usize {
        let mailbox = Arc::new(Mailbox::new(Box::new(|| {})));
        self.sessions.push(Session::new(Arc::clone(&self.engine), mailbox));
        self.sessions.len() - 1
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

    fn now(&self) -> Now {
        let nanos = u64::try_from(self.now_ms - BEGIN_MS + 1).unwrap() * 1_000_000;
        Now { unix_us: self.now_ms * 1_000, instant: Instant::from_nanos(nanos) }
    }

    /// A client sends bytes; the bytes that come back.
    pub(crate) fn raw(&mut self, client: usize, bytes: &[u8]) -> Vec<u8> {
        let now = self.now();
        let session = &mut self.sessions[client];
        let (taken, next) = session.feed(bytes, now);
        assert!(taken == bytes.len() || next != Next::Read, "whole requests are taken");
        self.mail(client)
    }

    /// What has come for a client since it was last looked at.
    pub(crate) fn mail(&mut self, client: usize) -> Vec<u8> {
        let session = &mut self.sessions[client];
        session.handle_mail();
        std::mem::take(session.replies())
    }

    /// A client types a line; the replies, readable.
    pub(crate) fn say(&mut self, client: usize, line: &str) -> String {
        let bytes = self.raw(client, format!("{line}\r\n").as_bytes());
        readable(&bytes)
    }
}

/// Runs a conversation of the first client. Lines that begin with `> ` are sent, `+N` lets N milliseconds pass, others are the
/// expected replies.
///
/// # Panics
/// A reply differs.
pub(crate) fn check(conversation: &str) {
    let mut talk = Talk::new();
    let mut lines = conversation.lines().map(str::trim).filter(|line| !line.is_empty()).peekable();
    while let Some(line) = lines.next() {
        if let Some(ms) = line.strip_prefix('+') {
            talk.wait(ms.parse().expect("milliseconds"));
            continue;
        }
        let sent = line.strip_prefix("> ").unwrap_or_else(|| panic!("a reply without a command: {line}"));
        let mut expected = Vec::new();
        while let Some(reply) = lines.next_if(|line| !line.starts_with("> ") && !line.starts_with('+')) {
            expected.push(reply);
        }
        assert_eq!(talk.say(0, sent), expected.join("\n"), "{sent}");
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
