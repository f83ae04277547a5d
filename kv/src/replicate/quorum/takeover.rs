//! How a new primary makes sure, before it serves, that it has everything that was committed, and that nobody else can commit.
//!
//! An attempt begins with [`Engine::begin_take_over`], which says whom to ask ([`Round`]), and ends with [`Engine::finish_take_over`].
//! Whoever runs the engine asks the members ([`Engine::answer_promise`] at their side), and repeats the attempt until it succeeds or the
//! cluster has decided otherwise. Each attempt is safe by itself, and may be given up at any point.

use std::collections::BTreeMap;

use super::begin::COPIES;
use super::commit::Extent;
use super::planted::{self, Planted};
use super::promise::Bound;
use super::{Members, Term};
use crate::cluster::map::{Health, Map, Name};
use crate::engine::Engine;
use crate::error::Error;
use crate::time::Now;

/// How far a candidate's epoch may be ahead of the latest that the member has heard of. Each election takes one.
const EPOCHS_AHEAD_MAX: u64 = 1 << 20;
/// How often a process can have been started.
const LIVES_MAX: u64 = 1 << 40;

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

impl Engine {
    /// A candidate asks this node for its promise. What it answers is durable on return. Nothing is applied from an earlier primary, or
    /// acknowledged to one, after that.
    ///
    /// The caller has made sure that the request comes from the candidate's server.
    #[must_use]
    pub fn answer_promise(&self, request: &PromiseRequest, now: Now) -> PromiseAnswer {
        let PromiseRequest { shard, term, candidate, member } = *request;
        let Some(map) = self.map().filter(|map| map.own().shard == shard && map.own().name == member) else {
            return PromiseAnswer::Refused(Refused::OtherShard);
        };
        if map.node(candidate).is_none_or(|node| node.shard != shard) {
            return PromiseAnswer::Refused(Refused::UnknownCandidate);
        }
        // A member that promised the greatest term of all could never promise another one.
        if term.epoch > map.service().epoch.saturating_add(EPOCHS_AHEAD_MAX) || term.life > LIVES_MAX {
            return PromiseAnswer::Refused(Refused::TermTooHigh);
        }
        // Nothing is applied or acknowledged meanwhile.
        let mut following = self.following.lock();
        if let Err(Bound(later)) = self.promises.promise(shard, term, candidate) {
            return PromiseAnswer::Superseded(later);
        }
        if !planted::has(Planted::KeepLink) {
            following.keep_to(self, (candidate, term.life), now);
        }
        if candidate != map.own().name {
            self.replication.stop_serving();
        }
        PromiseAnswer::Promised(self.replication.extent().0)
    }

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
        // Slots that are on their way arrive first: a shard does not enter this mode meanwhile, nor while an earlier life may have given
        // another leave to take slots, for which the service is closed.
        let may_enter = || map.service().is_up && !self.is_moving_slots();
        let is_wanted = is_bound() || self.settings().replication.is_quorum && may_enter();
        let serves = || self.replication.serving().is_some_and(|term| term.epoch == own.epoch);
        is_wanted && !own.is_replica() && !own.slots.is_empty() && !serves()
    }

    /// Whether this node is bound to the mode in a shard, for all its lives.
    #[must_use]
    pub fn has_promised(&self, shard: Name) -> bool {
        self.promises.of(shard).is_some()
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

    /// Begins an attempt to serve the term of the map's claim, as this life of the node: promises the term to itself, and says which
    /// members are to be asked for the same. The attempt ends with [`Engine::finish_take_over`].
    ///
    /// # Errors
    /// There is nobody to ask: what has become of the attempt. On [`TakeOver::Done`] the engine is a primary; the map may be set.
    pub fn begin_take_over(&self, map: &Map, life: u64, now: Now) -> Result<Round, TakeOver> {
        let life = if planted::has(Planted::SameLife) { 1 } else { life };
        let term = Term { epoch: map.own().epoch, life };
        let is_decided = self.attempts.take_decision();
        let begun = if is_decided { Err(self.begin_anew(map, term, now)) } else { self.begin_round(map, term, now) };
        if let Err(ended) = &begun {
            self.attempts.note(term, ended);
        }
        begun
    }

    fn begin_round(&self, map: &Map, term: Term, now: Now) -> Result<Round, TakeOver> {
        let (own, shard) = (map.own().name, map.own().shard);
        let promise = self.promises.of(shard);
        if promise.is_none() && self.may_begin(map) {
            return Err(self.begin_shard(own, shard, term));
        }
        self.promise_itself(map, term, now)?;
        let members = self.known_members(shard);
        let mut asked = members.all();
        if asked.is_empty() {
            // Whoever belongs to the shard may know who has its data.
            asked.extend(map.nodes().iter().filter(|node| node.shard == shard).map(|node| node.name));
        }
        asked.retain(|name| *name != own && map.node(*name).is_some());
        let is_lost = |name: &Name| map.node(*name).is_none_or(|node| node.health != Health::Alive);
        // Those that will probably not answer are asked last, where not all are asked at once.
        asked.sort_by_key(is_lost);
        let (extent, _) = self.replication.extent();
        let answers = extent.map(|extent| (own, extent)).into_iter().collect();
        Ok(Round { shard, term, candidate: own, members, asked, answers, later: None })
    }

    /// The members of the shard, as the data say, or what was promised where the data say nothing.
    fn known_members(&self, shard: Name) -> Members {
        let (extent, in_data) = self.replication.extent();
        if extent.is_some() && in_data.is_some() {
            return in_data;
        }
        self.promises.of(shard).unwrap_or_default().members
    }

    /// Nobody else is followed, or promised an earlier term, from now on.
    fn promise_itself(&self, map: &Map, term: Term, now: Now) -> Result<(), TakeOver> {
        let (own, shard) = (map.own().name, map.own().shard);
        let mut following = self.following.lock();
        self.promises.promise(shard, term, own)?;
        following.keep_to(self, (own, term.life), now);
        Ok(())
    }

    /// Ends an attempt with what the members have answered. On [`TakeOver::Done`] the engine is a primary and has all that was
    /// committed; the map may be set.
    pub fn finish_take_over(&self, map: &Map, round: Round, now: Now) -> TakeOver {
        let term = round.term;
        let ended = self.finish(map, round, now);
        self.attempts.note(term, &ended);
        ended
    }

    fn finish(&self, map: &Map, round: Round, now: Now) -> TakeOver {
        let Round { shard, term, candidate: own, mut answers, later, .. } = round;
        if let Some(later) = later {
            return TakeOver::Superseded(later);
        }
        // While members were asked, this node may have promised a later term, or have been made to follow.
        if let Err(ended) = self.promise_itself(map, term, now) {
            return ended;
        }
        let (extent, _) = self.replication.extent();
        answers.remove(&own);
        answers.extend(extent.map(|extent| (own, extent)));
        let members = self.known_members(shard);
        let is_skipped = planted::has(Planted::SkipTakeOver);
        if !is_skipped && !is_enough(&members, &answers) {
            return TakeOver::Waits("too few members have answered that have all their data");
        }
        let best = answers.iter().max_by_key(|(_, extent)| **extent).map(|(name, extent)| (*name, *extent));
        let best = best.filter(|(_, best)| extent.is_none_or(|extent| extent < *best));
        let best = best.filter(|_| !planted::has(Planted::KeepOwnData) && !is_skipped);
        if let Some((name, _)) = best {
            let Some(upstream) = map.node(name).and_then(|node| Some(self.network()?.way_to(node))) else {
                return TakeOver::Waits("the member that has most cannot be reached");
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
}

/// Whether so many have answered that the attempt can end.
fn is_enough(members: &Members, answers: &BTreeMap<Name, Extent>) -> bool {
    if members.is_some() {
        members.is_agreed_by(|name| answers.contains_key(&name))
    } else {
        // Nothing is served by this: it only learns who the members are, or were.
        !answers.is_empty()
    }
}

/// One attempt of a candidate: whom it asks, and what they have answered.
///
/// All members are asked at the same time. The attempt can end as soon as a majority has answered: whichever majority that is, it has
/// one member of each majority that has committed something.
#[derive(Debug)]
pub struct Round {
    shard: Name,
    term: Term,
    candidate: Name,
    members: Members,
    asked: Vec<Name>,
    answers: BTreeMap<Name, Extent>,
    /// A later term that a member has promised.
    later: Option<Term>,
}

impl Round {
    /// The members to ask, those first that will probably answer.
    #[must_use]
    pub fn asked(&self) -> &[Name] {
        &self.asked
    }

    /// What a member is asked.
    #[must_use]
    pub fn request(&self, member: Name) -> PromiseRequest {
        PromiseRequest { shard: self.shard, term: self.term, candidate: self.candidate, member }
    }

    /// A member has answered.
    pub fn handle_answer(&mut self, member: Name, answer: PromiseAnswer) {
        match answer {
            PromiseAnswer::Promised(Some(extent)) => drop(self.answers.insert(member, extent)),
            PromiseAnswer::Superseded(term) => self.later = Some(self.later.map_or(term, |later| later.max(term))),
            // It lacks data, or has refused: the shard can do without it as long as others answer.
            PromiseAnswer::Promised(None) | PromiseAnswer::Refused(_) => {}
        }
    }

    /// Whether further answers would change nothing.
    #[must_use]
    pub fn is_decided(&self) -> bool {
        self.later.is_some() || self.members.is_some() && is_enough(&self.members, &self.answers)
    }
}

/// A candidate asks a member to promise its term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromiseRequest {
    /// The shard.
    pub shard: Name,
    /// The candidate's term.
    pub term: Term,
    /// Who wants to serve.
    pub candidate: Name,
    /// Who is asked.
    pub member: Name,
}

/// What a member answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromiseAnswer {
    /// The promise is durable; how far the member's data go, if they lack nothing.
    Promised(Option<Extent>),
    /// A later term was promised before.
    Superseded(Term),
    /// The member does not belong to the shard, or the candidate does not.
    Refused(Refused),
}

/// Why a member does not promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// It belongs to another shard, or to no cluster.
    OtherShard,
    /// The candidate is no node of the shard, as far as the member knows.
    UnknownCandidate,
    /// The term is further ahead than elections can have come.
    TermTooHigh,
}
