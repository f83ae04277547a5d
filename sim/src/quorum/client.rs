//! A client: one request at a time, to a node that may be the primary, and what it was told.

use std::sync::Arc;

use ashlar_kv::{Engine, Mailbox, Next, Now, Session};

use super::pipe::link_of;
use crate::history::{Action, NEVER, Operation};
use crate::rng::Rng;

/// A request that is on its way.
#[derive(Debug)]
struct Asked {
    key: usize,
    action: Action,
    begin: u64,
}

/// Where a client is.
#[derive(Debug)]
struct Seat {
    node: usize,
    session: Session,
}

/// A client.
#[derive(Debug, Default)]
pub(super) struct Client {
    seat: Option<Seat>,
    asked: Option<Asked>,
    /// Replies as they came.
    heard: Vec<u8>,
}

/// What came of a request.
#[derive(Debug, PartialEq, Eq)]
enum Reply {
    Done,
    Value(u64),
    /// It was not run.
    Refused,
}

impl Client {
    /// Whether it waits for a reply.
    pub(super) fn is_waiting(&self) -> bool {
        self.asked.is_some()
    }

    /// The node that it is connected to.
    pub(super) fn node(&self) -> Option<usize> {
        self.seat.as_ref().map(|seat| seat.node)
    }

    /// Goes to a node.
    pub(super) fn connect(&mut self, node: usize, engine: &Arc<Engine>, now: Now) {
        let mailbox = Arc::new(Mailbox::new(Box::new(|| {})));
        let session = Session::open(Arc::clone(engine), mailbox, link_of("client", node), now);
        self.seat = session.ok().map(|session| Seat { node, session });
        self.heard.clear();
    }

    /// Its connection is gone. What it asked for may have been done.
    pub(super) fn lose(&mut self) -> Option<(usize, Operation)> {
        self.seat = None;
        let Asked { key, action, begin } = self.asked.take()?;
        // A read of which nothing came means nothing.
        matches!(action, Action::Write(_))
            .then_some((key, Operation { action, begin, end: NEVER, is_attempt: false, seen: None }))
    }

    /// Sends a request.
    pub(super) fn ask(&mut self, key: usize, action: Action, at: u64, now: Now, rng: &mut Rng) {
        let Some(seat) = &mut self.seat else { return };
        let words = match action {
            Action::Write(value) => format!("SET {{s}}{key} {value}\r\n"),
            Action::Read(_) if rng.chance(100_000) => {
                format!("EVAL \"return server.call('GET',KEYS[1])\" 1 {{s}}{key}\r\n")
            }
            Action::Read(_) => format!("GET {{s}}{key}\r\n"),
        };
        self.asked = Some(Asked { key, action, begin: at });
        // A request that is held back, for a pause for instance, is brought again with nothing behind it: it is lost here.
        let _taken = seat.session.feed(words.as_bytes(), now);
    }

    /// Looks for the reply. An operation that has ended, if one has.
    pub(super) fn listen(&mut self, at: u64) -> Option<(usize, Operation)> {
        let seat = self.seat.as_mut()?;
        if seat.session.handle_mail() == Next::Drop {
            return self.lose();
        }
        if seat.session.is_held() || seat.session.replies().is_empty() {
            return None;
        }
        let count = seat.session.replies().len();
        self.heard.extend_from_slice(seat.session.replies());
        seat.session.handle_sent(count);
        let reply = read(&self.heard)?;
        self.heard.clear();
        let Asked { key, action, begin } = self.asked.take()?;
        match (action, reply) {
            (_, Reply::Refused) => {
                self.seat = None;
                None
            }
            (Action::Write(_), _) => Some((key, Operation { action, begin, end: at, is_attempt: false, seen: None })),
            (Action::Read(_), Reply::Value(value)) => {
                Some((key, Operation { action: Action::Read(value), begin, end: at, is_attempt: false, seen: None }))
            }
            (Action::Read(_), Reply::Done) => None,
        }
    }
}

/// A whole reply, if one has come.
fn read(bytes: &[u8]) -> Option<Reply> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (first, rest) = text.split_once("\r\n")?;
    match first.as_bytes().first()? {
        b'-' => Some(Reply::Refused),
        b'+' => Some(Reply::Done),
        b'$' if first == "$-1" => Some(Reply::Value(0)),
        b'$' => rest.strip_suffix("\r\n").and_then(|value| value.parse().ok()).map(Reply::Value),
        _ => None,
    }
}
