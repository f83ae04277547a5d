//! How a new primary makes sure, before it serves, that it has everything that was committed, and that nobody else can commit.
//!
//! [`Engine::try_take_over`] is one attempt, which asks each member once; whoever runs the engine calls it until it succeeds or the cluster
//! has decided otherwise. Each attempt is safe by itself, and may be given up at any point.

use std::collections::BTreeMap;
use std::time::Duration;

use super::begin::COPIES;
use super::commit::Extent;
use super::planted::{self, Planted};
use super::promise::Bound;
use super::{Members, Term};
use crate::cluster::map::{Map, Name, Node};
use crate::engine::Engine;
use crate::error::Error;
use crate::network::{Broken, Line};
use crate::persist::journal::encode_request;
use crate::time::Now;

/// How long a member may take to be reached, and to answer.
const ASK_SPAN: Duration = Duration::from_millis(500);
/// The longest answer.
const ANSWER_BYTES_MAX: usize = 256;

/// What has become of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TakeOver {
    /// This server serves the term.
    Done,
    /// Too few members have answered, or their data are being taken over: try again.
    Waits(&'static str),
    /// A later term was promised: this one will never be served.
    Superseded(Term),
}

impl From<Bound> for TakeOver {
    fn from(Bound(term): Bound) -> Self {
        Self::Superseded(term)
    }
}

/// A member was asked for its promise.
///
/// # Errors
/// It is not given: as the candidate is told.
pub(crate) fn handle_request(
    engine: &Engine,
    shard: Name,
    term: Term,
    candidate: Name,
    now: Now,
) -> Result<Option<Extent>, Error> {
    let map = engine.map().ok_or(Error::new("ERR This instance has cluster support disabled"))?;
    if map.own().shard != shard {
        return Err(Error::new("ERR This node belongs to another shard"));
    }
    // Nothing is applied or acknowledged meanwhile.
    let mut following = engine.following.lock();
    engine
        .promises
        .promise(shard, term, candidate)
        .map_err(|Bound(later)| Error::text(format!("STALETERM {later}")))?;
    if !planted::has(Planted::KeepLink) {
        following.keep_to(engine, (candidate, term.life), now);
    }
    if candidate != map.own().name {
        engine.replication.stop_serving();
    }
    Ok(engine.replication.extent().0)
}

impl Engine {
    /// Whether this node is a primary of a shard in this mode that has not made sure yet that it may serve.
    pub(crate) fn awaits_take_over(&self) -> bool {
        let Some(map) = self.map() else { return false };
        let is_bound = || self.promises.of(map.own().shard).is_some();
        !self.role.is_replica() && is_bound() && self.replication.serving().is_none()
    }

    /// What a replica is told that asks for the stream: the term that is served here, or `copied`, which was promised to it; where
    /// the stream ends, and the members.
    ///
    /// # Errors
    /// Nothing is served here in this mode, now.
    pub(crate) fn mandate(&self, shard: Name, asks: Name, copied: Option<Term>) -> Result<String, Error> {
        let map = self.map().ok_or(Error::new("ERR This instance has cluster support disabled"))?;
        let promise = self.promises.of(shard).filter(|_| map.own().shard == shard);
        let Some(promise) = promise else { return Ok("ASYNC".to_owned()) };
        let (extent, members) = self.replication.extent();
        let (term, holder) = match copied {
            Some(term) if promise.term == term && promise.holder == asks && extent.is_some() => (term, asks),
            Some(_) => return Err(Error::text(format!("STALETERM {}", promise.term))),
            None => match self.replication.serving() {
                Some(term) => (term, map.own().name),
                None if self.role.is_replica() => return Ok("ASYNC".to_owned()),
                None => return Err(Error::new("NOMASTERLINK a majority of the copies has not agreed yet")),
            },
        };
        Ok(format!("TERM {term} {holder} {} {members}", self.replication.end()))
    }

    /// Whether this node, which the map makes a primary with slots, has to make sure of its data before it serves.
    #[must_use]
    pub fn must_take_over(&self, map: &Map) -> bool {
        let own = map.own();
        let is_bound = || self.promises.of(own.shard).is_some();
        // Slots that are on their way arrive first: a shard does not enter this mode meanwhile.
        let is_wanted = is_bound() || self.settings().replication.is_quorum && !self.is_moving_slots();
        let serves = || self.replication.serving().is_some_and(|term| term.epoch == own.epoch);
        is_wanted && !own.is_replica() && !own.slots.is_empty() && !serves()
    }

    /// Whether the shard of this node is in this mode, or is to be.
    pub(crate) fn wants_quorum(&self) -> bool {
        let is_bound = || self.map().is_some_and(|map| self.promises.of(map.own().shard).is_some());
        self.replication.is_quorum() || self.settings().replication.is_quorum || is_bound()
    }

    /// What this node has promised in earlier lives. All of it is given to `keep` whenever it changes, which returns true once it is
    /// durable.
    ///
    /// # Errors
    /// `kept` is nothing that was given to `keep`: the number of the line, from 1.
    pub fn open_promises(&self, kept: &str, keep: Box<dyn Fn(&str) -> bool + Send + Sync>) -> Result<(), usize> {
        self.promises.open(kept, keep)
    }

    /// This node is about to follow the primary of a shard: it will not begin the shard anew, whatever becomes of the primary.
    pub fn prepare_to_follow(&self, shard: Name, now: Now) {
        self.consider_leaving(shard, now.instant);
        self.set_copying(None);
        self.give_up_take_over();
        if self.settings().replication.is_quorum && !self.promises.note_shard(shard) {
            tracing::error!("that this node belongs to the shard could not be written down");
        }
    }

    /// Tries to serve the term of the map's claim, as this life of the node. Asks each member once, which may take half a second for
    /// each that is not there. On [`TakeOver::Done`] the engine is a primary and has all that was committed; the map may be set.
    pub fn try_take_over(&self, map: &Map, life: u64, now: Now) -> TakeOver {
        let life = if planted::has(Planted::SameLife) { 1 } else { life };
        let term = Term { epoch: map.own().epoch, life };
        let is_decided = self.attempts.take_decision();
        let sealing = if is_decided { self.begin_anew(map, term, now) } else { self.attempt(map, term, now) };
        self.attempts.note(term, &sealing);
        sealing
    }

    fn attempt(&self, map: &Map, term: Term, now: Now) -> TakeOver {
        let (own, shard) = (map.own().name, map.own().shard);
        let promise = self.promises.of(shard);
        if promise.is_none() && self.may_begin(map) {
            return self.begin_shard(own, shard, term);
        }
        let promise = promise.unwrap_or_default();
        {
            let mut following = self.following.lock();
            if let Err(bound) = self.promises.promise(shard, term, own) {
                return bound.into();
            }
            following.keep_to(self, (own, term.life), now);
        }
        let (extent, in_data) = self.replication.extent();
        let members = if extent.is_some() && in_data.is_some() { in_data } else { promise.members };
        let mut answers: BTreeMap<Name, Extent> = extent.map(|extent| (own, extent)).into_iter().collect();
        let mut asked = members.all();
        if asked.is_empty() {
            // Whoever belongs to the shard may know who has its data.
            asked.extend(map.nodes().iter().filter(|node| node.shard == shard).map(|node| node.name));
        }
        for name in asked.into_iter().filter(|name| *name != own) {
            let Some(node) = map.node(name) else { continue };
            match self.ask(node, shard, term, own) {
                Some(Answer::Sealed(Some(extent))) => drop(answers.insert(name, extent)),
                Some(Answer::Bound(later)) => return TakeOver::Superseded(later),
                Some(Answer::Sealed(None)) | None => {}
            }
        }
        let is_skipped = planted::has(Planted::SkipTakeOver);
        let is_agreed = if members.is_some() {
            members.is_agreed_by(|name| answers.contains_key(&name))
        } else {
            // Nothing is served by this: it only learns who the members are, or were.
            !answers.is_empty()
        };
        if !is_skipped && !is_agreed {
            return TakeOver::Waits("too few members have answered that have all their data");
        }
        let best = answers.iter().max_by_key(|(_, extent)| **extent).map(|(name, extent)| (*name, *extent));
        let best = best.filter(|(_, best)| extent.is_none_or(|extent| extent < *best));
        let best = best.filter(|_| !planted::has(Planted::KeepOwnData) && !is_skipped);
        if let Some((name, _)) = best {
            let node = map.node(name).expect("it was asked");
            let Some(upstream) = self.network().map(|network| network.way_to(node)) else {
                return TakeOver::Waits("there is no network to take over another member's data by");
            };
            self.set_copying(Some(term));
            self.follow(Some(upstream), now);
            return TakeOver::Waits(COPIES);
        }
        if !members.is_some() {
            return TakeOver::Waits("nobody who has answered knows the members of the shard");
        }
        self.follow(None, now);
        self.begin_term(term, own, members, false);
        self.set_copying(None);
        TakeOver::Done
    }

    /// Whether what this node has are the shard's data, although nothing is known of its members: it is the only node there, or its
    /// primary already.
    fn may_begin(&self, map: &Map) -> bool {
        let (own, shard) = (map.own().name, map.own().shard);
        let is_alone = || map.nodes().iter().all(|node| node.name == own || node.shard != shard);
        let serves =
            |known: &Map| known.own().shard == shard && !known.own().is_replica() && !known.own().slots.is_empty();
        !self.role.is_replica() && (is_alone() || self.map().is_some_and(|known| serves(&known)))
    }

    /// The data of another member are taken over for a term, or not any more. Meanwhile nobody is served, although clients may still be
    /// sent here.
    pub(super) fn set_copying(&self, term: Option<Term>) {
        *self.copying.lock() = term;
        self.replication.set_copying(term.is_some());
    }

    /// A shard begins in this mode, with this node as its only member.
    fn begin_shard(&self, own: Name, shard: Name, term: Term) -> TakeOver {
        if let Err(bound) = self.promises.promise(shard, term, own) {
            return bound.into();
        }
        let members = Members::alone(own);
        if !self.promises.note_members(shard, &members) {
            return TakeOver::Waits("the members of the shard could not be written down");
        }
        self.begin_term(term, own, members, true);
        TakeOver::Done
    }

    pub(super) fn begin_term(&self, term: Term, own: Name, members: Members, is_genesis: bool) {
        assert!(members.is_some(), "a term without members would be committed by nobody");
        self.replication.begin_stream(|| self.identity.change_history([self.draw(), self.draw()]));
        tracing::info!(%term, %members, "serves its shard");
        self.replication.begin_term(term, own, members, is_genesis);
    }

    fn ask(&self, node: &Node, shard: Name, term: Term, own: Name) -> Option<Answer> {
        let way = self.network()?.way_to(node);
        let mut line = self.network()?.reach(&way, ASK_SPAN).ok()?;
        let settings = self.settings();
        let (user, password) = (&settings.replication.user, &settings.replication.password);
        let mut bytes = Vec::new();
        let mut say = |words: &[&[u8]]| encode_request(words.iter().copied(), &mut bytes);
        let has_password = !password.is_empty() && !way.proves_us();
        match (!has_password, user.is_empty()) {
            (true, _) => {}
            (false, true) => say(&[b"AUTH", password]),
            (false, false) => say(&[b"AUTH", user, password]),
        }
        let (shard, term, own) = (shard.to_string(), term.to_string(), own.to_string());
        say(&[b"REPLCONF", b"ASHLAR-SEAL", shard.as_bytes(), b"TERM", term.as_bytes(), b"FOR", own.as_bytes()]);
        line.write(&bytes, ASK_SPAN).ok()?;
        read_answer(&mut *line, has_password).ok().flatten()
    }
}

/// What a member has said.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    /// It has promised; how far its data go, if they lack nothing.
    Sealed(Option<Extent>),
    /// It has promised a later term before.
    Bound(Term),
}

/// The answer behind that to the password, if there was one.
fn read_answer(line: &mut dyn Line, has_password: bool) -> Result<Option<Answer>, Broken> {
    let (mut read, mut room) = (Vec::new(), [0; ANSWER_BYTES_MAX]);
    let wanted = if has_password { 2 } else { 1 };
    while read.iter().filter(|byte| **byte == b'\n').count() < wanted && read.len() < ANSWER_BYTES_MAX {
        let count = line.read(&mut room, ASK_SPAN)?;
        read.extend_from_slice(&room[..count]);
    }
    let text = String::from_utf8_lossy(&read);
    Ok(text.lines().nth(wanted - 1).and_then(parse_answer))
}

/// `+SEALED TERM POSITION`, `+SEALED -`, or `-STALETERM TERM`.
fn parse_answer(line: &str) -> Option<Answer> {
    let line = line.trim_end();
    if let Some(term) = line.strip_prefix("-STALETERM ") {
        return Term::read(term).map(Answer::Bound);
    }
    let rest = line.strip_prefix("+SEALED ")?;
    if rest == "-" {
        return Some(Answer::Sealed(None));
    }
    let (term, position) = rest.split_once(' ')?;
    Some(Answer::Sealed(Some(Extent { term: Term::read(term)?, position: position.parse().ok()? })))
}

/// The answer that [`parse_answer`] reads.
pub(crate) fn write_answer(extent: Option<Extent>) -> String {
    extent.map_or("SEALED -".to_owned(), |Extent { term, position }| format!("SEALED {term} {position}"))
}
