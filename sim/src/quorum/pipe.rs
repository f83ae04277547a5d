//! The link from a replica to a node that it follows: bytes both ways, which take their time, and its session at the other end.

use std::sync::Arc;

use ashlar_kv::{Engine, Link, Mailbox, Next, Now, Session};

use crate::rng::Rng;

/// A link as the engine at its end sees it.
pub(super) fn link_of(who: &str, number: usize) -> Link {
    let (peer, local) = (format!("{who}{number}:1"), format!("n{number}:1"));
    Link { peer, local, descriptor: -1, is_unix: false, is_tls: false, is_server: false }
}

/// A link.
#[derive(Debug)]
pub(super) struct Pipe {
    /// The node that is followed.
    pub(super) to: usize,
    session: Session,
    /// On its way there, and there but not read.
    up: Vec<u8>,
    rest: Vec<u8>,
    /// On its way here.
    down: Vec<u8>,
    is_broken: bool,
}

/// Some of the bytes that are on their way.
fn some(bytes: &mut Vec<u8>, rng: &mut Rng) -> Vec<u8> {
    let count = if rng.chance(600_000) { bytes.len() } else { rng.magnitude(1..=bytes.len() as u64) as usize };
    bytes.drain(..count).collect()
}

impl Pipe {
    /// From a node to another, whose engine this is.
    pub(super) fn open(from: usize, to: usize, engine: &Arc<Engine>, now: Now) -> Option<Self> {
        let mailbox = Arc::new(Mailbox::new(Box::new(|| {})));
        let session = Session::open(Arc::clone(engine), mailbox, link_of("replica", from), now).ok()?;
        Some(Self { to, session, up: Vec::new(), rest: Vec::new(), down: Vec::new(), is_broken: false })
    }

    /// The replica sends.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        self.up.extend_from_slice(bytes);
    }

    /// What has come to the replica, perhaps in part; no more than `most` bytes.
    pub(super) fn receive(&mut self, rng: &mut Rng, most: Option<u64>) -> Vec<u8> {
        match most {
            _ if self.down.is_empty() => Vec::new(),
            Some(most) => self.down.drain(..self.down.len().min(rng.within(1..=most) as usize)).collect(),
            None => some(&mut self.down, rng),
        }
    }

    /// Whether the other end has hung up and nothing is left to be read.
    pub(super) fn is_over(&self) -> bool {
        self.is_broken && self.down.is_empty()
    }

    /// Whether all that was sent has arrived at the other end.
    pub(super) fn is_delivered(&self) -> bool {
        self.up.is_empty()
    }

    /// Some of what is on its way arrives at the other end, which does what it does.
    pub(super) fn serve(&mut self, now: Now, rng: &mut Rng) {
        if self.is_broken {
            return;
        }
        let mut next = self.session.handle_mail();
        if !self.up.is_empty() {
            self.rest.extend(some(&mut self.up, rng));
            let (taken, then) = self.session.feed(&self.rest, now);
            self.rest.drain(..taken);
            next = then;
        }
        if !self.session.is_held() {
            let count = self.session.replies().len();
            self.down.extend_from_slice(self.session.replies());
            self.session.handle_sent(count);
        }
        self.is_broken |= matches!(next, Next::Close | Next::Drop);
    }
}
