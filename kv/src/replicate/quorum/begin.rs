//! What an operator can decide where nobody may serve a shard any more: that the data of one node are the shard's from now on.
//!
//! All copies were restarted at once, say: each has in its log what it had, and none knows whether it lacks what it has acknowledged.
//! The decision (`CLUSTER BEGINSHARD`) is carried out by the next attempt to serve, once. The shard begins anew with this node as its only
//! member, in a term and a history that nobody else has any part of.
//!
//! What makes it safe, where no other copy serves or can: the term is later than all that were served, so that whoever follows has promised
//! it and follows none before it; nobody goes on in the new history with what it has, so each takes a dump; and nobody counts as a member
//! before it has all of that. What it does not prevent: members of before that were not restarted, and are so many that they need none of
//! those that are members now, may still make one of them their primary. What was acknowledged here is lost then.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Members, TakeOver, Term};
use crate::cluster::map::Map;
use crate::engine::Engine;
use crate::error::Error;
use crate::time::Now;

/// What an attempt waits for while it takes over another member's data.
pub(super) const COPIES: &str = "the data of the member that has most are being taken over";
/// The same where what is here is a part of them.
const TORN: &str = "the data of another member were being taken over, and have not come whole";

/// The attempts of this process to serve its shard, and what was decided of them.
#[derive(Debug, Default)]
pub(crate) struct Attempts(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The last attempt, if it is to be made again.
    waiting: Option<Waiting>,
    /// The next attempt is to begin the shard anew.
    is_decided: bool,
    /// The latest term that was served.
    served: Term,
}

/// An attempt that will be made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) term: Term,
    /// What for.
    pub(crate) why: &'static str,
}

impl Attempts {
    /// The last attempt, if it is to be made again.
    pub(crate) fn waiting(&self) -> Option<Waiting> {
        self.lock().waiting
    }

    /// What has become of an attempt. What was decided meanwhile stands only while there is a next one.
    pub(super) fn note(&self, term: Term, ended: &TakeOver) {
        let mut state = self.lock();
        let waiting = match ended {
            TakeOver::Waits(why) => Some(Waiting { term, why }),
            TakeOver::Done | TakeOver::Superseded(_) => None,
        };
        match waiting {
            Some(Waiting { why, .. }) if state.waiting != waiting => {
                tracing::info!(%term, why, "does not serve its shard yet");
            }
            Some(_) => {}
            None => state.is_decided = false,
        }
        state.waiting = waiting;
        if *ended == TakeOver::Done {
            state.served = state.served.max(term);
        }
    }

    /// None will follow.
    fn end(&self) {
        let mut state = self.lock();
        state.waiting = None;
        if std::mem::take(&mut state.is_decided) {
            tracing::warn!("the shard does not begin anew here: this node is to serve nothing now");
        }
    }

    /// Whether the shard is to begin anew. It is said once.
    pub(super) fn take_decision(&self) -> bool {
        std::mem::take(&mut self.lock().is_decided)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    /// What the attempts of this node to take its shard over wait for, if the last one has to be made again.
    #[must_use]
    pub fn take_over_waits_for(&self) -> Option<&'static str> {
        self.attempts.waiting().map(|waiting| waiting.why)
    }

    /// This node is not to serve its shard as things are: what was decided for its next attempt is dropped.
    pub fn give_up_take_over(&self) {
        self.attempts.end();
    }

    /// An operator has decided: the data of this node are the shard's from now on, whatever other copies have.
    ///
    /// # Errors
    /// It is not for this node to begin, or not now: why, and what to do.
    pub(crate) fn decide_to_begin(&self) -> Result<(), Error> {
        let map = self.map().ok_or(Error::new("ERR This instance has cluster support disabled"))?;
        let mut state = self.attempts.lock();
        if map.own().is_replica() && state.waiting.is_none() {
            return Err(Error::new(
                "ERR This node is a replica: send it CLUSTER FAILOVER TAKEOVER first, if its data are to be the shard's",
            ));
        }
        if !self.wants_quorum() {
            return Err(Error::new(
                "ERR Writes of this shard need no majority of its copies (replication-quorum): its primary serves without this",
            ));
        }
        if let Some(term) = self.replication.serving() {
            return Err(Error::text(format!(
                "ERR This node serves term {term} of its shard already: see INFO replication for which copies are missing"
            )));
        }
        let Some(Waiting { term, why }) = state.waiting else {
            return Err(Error::new(
                "ERR This node is not waiting to serve: send this to the primary of a shard that nobody serves; if this is the one, try \
                 again when it has heard from the cluster",
            ));
        };
        if why == COPIES && self.copying.lock().is_some() {
            return Err(Error::new(
                "ERR This node is taking over the data of another member, which has more: wait until that is done",
            ));
        }
        if self.replication.is_torn() {
            return Err(Error::new(
                "ERR This node has only a part of another member's data: restart it, so that it has what is in its log, or choose another",
            ));
        }
        if term <= state.served {
            return Err(Error::text(format!(
                "ERR This process has served term {term} before, and others may have more of it: restart it, and send this again"
            )));
        }
        state.is_decided = true;
        tracing::warn!(
            %term,
            "an operator has decided that the data of this node are the shard's: what other copies have besides is given up"
        );
        Ok(())
    }

    /// The shard begins anew with the data that are here, and this node as its only member.
    pub(super) fn begin_anew(&self, map: &Map, term: Term, now: Now) -> TakeOver {
        let (own, shard) = (map.own().name, map.own().shard);
        {
            let mut following = self.following.lock();
            if let Err(bound) = self.promises.promise(shard, term, own) {
                tracing::warn!(%term, later = %bound.0, "the shard does not begin anew here: a later term was promised");
                return bound.into();
            }
            following.keep_to(self, (own, term.life), now);
        }
        // What is here is not replaced by anything from now on.
        self.follow(None, now);
        if self.replication.is_torn() {
            tracing::warn!(%term, "the shard does not begin anew here: {TORN}");
            return TakeOver::Waits(TORN);
        }
        let members = Members::alone(own);
        if !self.promises.note_members(shard, &members) {
            tracing::warn!(%term, "the shard does not begin anew here: its members could not be written down");
            return TakeOver::Waits("the members of the shard could not be written down");
        }
        self.replication.break_off();
        self.begin_term(term, own, members, true);
        self.set_copying(None);
        tracing::warn!(%term, position = self.replication.end(), "the shard begins anew with the data of this node");
        TakeOver::Done
    }
}
