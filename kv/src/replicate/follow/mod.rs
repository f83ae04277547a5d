//! The link to the primary that this server follows: it asks for what it lacks, takes the dump, and does what the primary does.
//!
//! In reading order: `talk` (what is said until the stream begins), `units` (the stream, cut into what is done as one), `apply` (a
//! unit, done here), `linked` (one connection from its beginning to its end), and this file: which connection there is to be.
//!
//! One thread of the program keeps the link. It asks what to do next ([`Follower::next_step`]), does that (dials, sends, reads,
//! keeps a file), and says how it went. Nothing here waits but for locks.
//!
//! Model
//! - The primary's bytes are applied one unit after another. A unit is in effect, and the position behind it, at the same moment: its
//!   keys are locked. So the position is always one that the data are at, and the link may end anywhere.
//! - With the position goes the name of the history. Who has both asks for what follows; otherwise the primary sends a dump.
//! - A dump is kept in a file until it is whole (`repl-diskless-load disabled`), and the old data are served so long; or it is read
//!   as it comes. While it is read nobody is served. A dump that cannot be read leaves no data, and no position.
//!
//! Lock order: what belongs to the link ([`Following`]), then shards, then the stream.

mod apply;
mod linked;
mod talk;
#[cfg(test)]
mod tests;
mod units;

use core::fmt;
use std::borrow::Cow;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ashlar_wire::time::Instant;

use super::role::{LinkState, Upstream};
use crate::client::Link;
use crate::cluster::map::Name;
use crate::engine::Engine;
use crate::time::Now;
use linked::Linked;
use talk::{Membership, Opening};

/// How long a connection is read before it is looked whether there is something else to do.
const READ_SPAN: Duration = Duration::from_millis(100);
/// How long a connection may take to be made, whatever `repl-timeout` is: whom to follow may change meanwhile.
const DIAL_SPAN_MAX: Duration = Duration::from_secs(2);
/// The same while the engine rests: then it is said how far its data go.
const READ_SPAN_AT_REST: Duration = Duration::from_secs(1);
/// How long nothing is done while nobody is followed.
const REST_SPAN: Duration = Duration::from_secs(5);
/// How long what is held up by others waits before it is tried again.
const LATER_SPAN: Duration = Duration::from_millis(5);
/// After how long a lost connection is made again: at first, and at most, doubled each time in between.
const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(1);
/// Attempts after which a lost connection is worth a warning: some seconds, longer than a restart takes.
const FAILURES_TOLD: u32 = 8;

/// What whoever keeps the link is to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Nothing for so long, or until [`Follower::poll_changed`] is ready.
    Rest(Duration),
    /// Connect, then [`Follower::handle_connected`] or [`Follower::handle_broken`].
    Dial {
        /// Where to.
        upstream: Upstream,
        /// How long it may take.
        span: Duration,
    },
    /// Send this.
    Send(Vec<u8>),
    /// Read what comes within so long, and [`Follower::handle_bytes`]; nothing may come.
    Receive(Duration),
    /// Append this to a file, which is empty at first.
    Keep(Vec<u8>),
    /// Read the next piece of that file and [`Follower::handle_kept`]; an empty one at its end, and then the file is gone.
    Load,
    /// Close the connection, and forget the file.
    HangUp,
}

/// Why a link ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    text: Cow<'static, str>,
    /// The primary does not want to be one.
    is_refusal: bool,
    /// The data may be other than the primary's: only a dump helps.
    is_divergence: bool,
}

impl Fault {
    const fn new(text: &'static str) -> Self {
        Self { text: Cow::Borrowed(text), is_refusal: false, is_divergence: false }
    }

    fn text(text: String) -> Self {
        Self { text: Cow::Owned(text), is_refusal: false, is_divergence: false }
    }

    /// Something that the primary did cannot be done here.
    fn diverged(text: String) -> Self {
        Self { is_divergence: true, ..Self::text(text) }
    }

    /// What the primary said to our displeasure.
    fn of_line(what: &str, line: &[u8]) -> Self {
        const SHOWN_BYTES_MAX: usize = 200;
        Self::text(format!("{what}: `{}`", line[..line.len().min(SHOWN_BYTES_MAX)].escape_ascii()))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Which connection there is.
#[derive(Debug, Default)]
pub(crate) struct Following {
    /// The turn of the role that all this is for.
    turn: u64,
    linked: Option<Box<Linked>>,
    /// Whoever keeps the link has a connection, or a file.
    has_line: bool,
    /// When to connect.
    dial_at: Option<Instant>,
    /// Connections in a row that came to nothing.
    failures: u32,
}

impl Following {
    /// Ends what is done for an older turn.
    fn catch_up(&mut self, engine: &Engine, now: Now) {
        if self.turn == engine.role.turn() {
            return;
        }
        self.turn = engine.role.turn();
        self.unlink(engine, now);
        (self.dial_at, self.failures) = (None, 0);
    }

    fn unlink(&mut self, engine: &Engine, now: Now) {
        if let Some(mut linked) = self.linked.take() {
            linked.end(engine, now);
        }
    }

    /// Takes nothing more from a primary but this life of this node.
    pub(super) fn keep_to(&mut self, engine: &Engine, holder: (Name, u64), now: Now) {
        if self.linked.as_ref().is_some_and(|linked| linked.is_of_other(holder)) {
            self.fail(engine, &Fault::new("a later term was promised to another node"), now);
        }
    }

    /// The link is gone; it is made again after a while.
    fn fail(&mut self, engine: &Engine, why: &Fault, now: Now) {
        let was_up = self.linked.as_ref().is_some_and(|linked| linked.is_following());
        self.unlink(engine, now);
        if why.is_divergence {
            // There is no position to go on from. Whoever follows this server asks for a dump as well.
            engine.replication.forget(self.turn);
        }
        engine.role.note_down(self.turn, now.seconds());
        if why.is_refusal {
            engine.failover_refused(&why.text);
        }
        self.failures = if was_up { 0 } else { self.failures.saturating_add(1) };
        let span = RETRY_MIN.saturating_mul(1 << self.failures.min(16)).min(RETRY_MAX);
        self.dial_at = Some(now.instant + span);
        // Primaries stop and start in the ordinary course of things.
        if self.failures < FAILURES_TOLD {
            tracing::info!(%why, "the link to the primary is down: connecting again");
        } else {
            tracing::warn!(%why, attempts = self.failures, "the link to the primary is down");
        }
    }

    /// Ends with what was done so far, if it is for this turn, unless that failed.
    fn settle(&mut self, engine: &Engine, done: Result<(), Fault>, now: Now) {
        if let Err(why) = done {
            self.fail(engine, &why, now);
        }
    }

    fn next_step(&mut self, engine: &Engine, now: Now) -> Step {
        self.catch_up(engine, now);
        if self.linked.is_none() && std::mem::take(&mut self.has_line) {
            return Step::HangUp;
        }
        let Some(upstream) = engine.role.view().upstream else { return Step::Rest(REST_SPAN) };
        let settings = engine.settings();
        let span = Duration::from_secs(settings.replication.timeout_s.unsigned_abs()).min(DIAL_SPAN_MAX);
        let Some(linked) = &mut self.linked else {
            let left = self.dial_at.map_or(Duration::ZERO, |at| at.saturating_since(now.instant));
            if left > Duration::ZERO {
                return Step::Rest(left);
            }
            engine.role.note(self.turn, |view| view.state = LinkState::Connecting);
            return Step::Dial { upstream, span };
        };
        match linked.next_step(engine, &settings, now) {
            Ok(step) => step,
            Err(why) => {
                self.fail(engine, &why, now);
                self.has_line = false;
                Step::HangUp
            }
        }
    }
}

/// The link to the primary, for the thread that keeps it.
#[derive(Debug, Clone)]
pub struct Follower {
    engine: Arc<Engine>,
}

impl Follower {
    /// That of an engine. There must be one only.
    #[must_use]
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    /// What to do next.
    pub fn next_step(&self, now: Now) -> Step {
        self.engine.following.lock().next_step(&self.engine, now)
    }

    /// Ready once the role has changed since this was last ready. One task asks.
    pub fn poll_changed(&self, cx: &Context<'_>) -> Poll<()> {
        self.engine.role.poll_changed(cx)
    }

    /// There is a connection, over this.
    pub fn handle_connected(&self, link: Link, now: Now) {
        let mut following = self.engine.following.lock();
        following.has_line = true;
        let engine = &*self.engine;
        if following.turn != engine.role.turn() {
            return;
        }
        let (settings, turn) = (engine.settings(), following.turn);
        let own_port = settings.port();
        let replication = &settings.replication;
        let is_proved = engine.upstream().is_some_and(|upstream| upstream.proves_us());
        let point = engine.replication.point(&engine.identity);
        let opening = Opening {
            password: if is_proved { Vec::new() } else { replication.password.clone() },
            user: replication.user.clone(),
            port: if replication.announced_port == 0 { own_port } else { replication.announced_port },
            address: replication.announced_address.clone(),
            has_also: point.as_ref().and_then(|point| engine.identity.other_name(point.position)),
            has: point.map(|point| (point.history, point.position)),
            proves: engine.cluster().and_then(|_| engine.data_point()),
            hands_over: engine.is_handing_over(),
            membership: engine.map().map(|map| Membership {
                shard: map.own().shard,
                own: map.own().name,
                copying: *engine.copying.lock(),
            }),
        };
        engine.role.note(turn, |view| view.state = LinkState::Handshake);
        following.linked = Some(Box::new(Linked::new(opening, link, turn, now)));
    }

    /// These bytes came.
    pub fn handle_bytes(&self, bytes: &[u8], now: Now) {
        let following = &mut *self.engine.following.lock();
        let engine = &*self.engine;
        if let Some(linked) = following.linked.as_mut().filter(|_| following.turn == engine.role.turn()) {
            let done = linked.handle_bytes(engine, bytes, now);
            following.settle(engine, done, now);
        }
    }

    /// A piece of what was kept; an empty one at the end.
    pub fn handle_kept(&self, bytes: &[u8], now: Now) {
        let following = &mut *self.engine.following.lock();
        let engine = &*self.engine;
        if let Some(linked) = following.linked.as_mut().filter(|_| following.turn == engine.role.turn()) {
            let done = linked.handle_kept(engine, bytes, now);
            following.settle(engine, done, now);
        }
    }

    /// No connection could be made, or it is gone, or the file could not be kept: why, in words.
    pub fn handle_broken(&self, why: &str, now: Now) {
        let mut following = self.engine.following.lock();
        let engine = &*self.engine;
        if following.turn == engine.role.turn() && engine.role.is_replica() {
            following.fail(engine, &Fault::text(why.to_owned()), now);
        }
    }
}

impl Engine {
    /// Ends the link of an older turn at once. What it was reading is gone.
    pub(super) fn end_old_link(&self, following: &mut Following, now: Now) {
        following.catch_up(self, now);
    }
}
