//! One rotation of the secret as its leader sees it: whom to tell what next, from what was answered so far.
//!
//! | round | told | goes on if |
//! |---|---|---|
//! | 1 | everybody: reserve | all granted it |
//! | | whoever has a newer secret that this server lacks: take it back | all do: not all have it, so nobody has let the old one go |
//! | 2 | this server, then all others: hold the new secret too | all do; otherwise all take it back |
//! | 3 | all others, then this server: keep the new secret alone | whoever did not hear it is unfinished |
//!
//! If this server itself has the newer secret of an earlier rotation, it finishes that one.
//!
//! From the moment when somebody lets the old secret go, all have the new one: any two servers have one in common always.

use ashlar_wire::id::ServerId;

use super::holder::{Action, Reservation};
use super::{Answer, RotateError, refusal};

/// A rotation that goes on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Lead {
    own: ServerId,
    others: Vec<ServerId>,
    pub(super) reservation: Reservation,
    /// The key that this rotation brings: a new one, or that of an earlier rotation which this one finishes.
    pub(super) key: u64,
    /// The key to go back to; `None` when an earlier rotation is finished.
    before: Option<u64>,
    round: Round,
    unfinished: Vec<String>,
    /// Why it came to nothing.
    failure: Option<RotateError>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Round {
    Reserve,
    RollBack,
    HoldOwn,
    HoldOthers,
    KeepOthers,
    KeepOwn,
    TakeBackOthers,
    TakeBackOwn,
    Release,
}

/// What the leader does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// Tell these servers, this one perhaps among them, and hand in their answers.
    Tell(Vec<ServerId>, Action),
    /// It is over.
    Done(Result<Outcome, RotateError>),
}

/// How a rotation ended that all agreed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) is_resumed: bool,
    /// Who did not let the earlier secret go, and why.
    pub(super) unfinished: Vec<String>,
}

impl Lead {
    /// A rotation to the secret of `new_key`, unless an earlier one has to be finished.
    pub(super) fn begin(own: ServerId, others: Vec<ServerId>, reservation: Reservation, new_key: u64) -> (Self, Next) {
        let all = core::iter::once(own).chain(others.iter().copied()).collect();
        let (round, unfinished) = (Round::Reserve, Vec::new());
        let lead = Self { own, others, reservation, key: new_key, before: None, round, unfinished, failure: None };
        (lead, Next::Tell(all, Action::Reserve))
    }

    /// Takes the answers to what was told last, from every server that was told.
    pub(super) fn handle(&mut self, answers: Vec<(ServerId, Answer)>) -> Next {
        match self.round {
            Round::Reserve => self.handle_reserved(answers),
            Round::RollBack => match refusals(answers) {
                reasons if reasons.is_empty() => self.tell_own(Round::HoldOwn, Action::Hold(self.key)),
                reasons => self.give_up(RotateError::Refused(reasons.join("; "))),
            },
            Round::HoldOwn => match refusals(answers) {
                reasons if reasons.is_empty() => self.tell_others(Round::HoldOthers, Action::Hold(self.key)),
                reasons => self.give_up(RotateError::Refused(reasons.join("; "))),
            },
            Round::HoldOthers => match refusals(answers) {
                reasons if reasons.is_empty() => self.tell_others(Round::KeepOthers, Action::Keep(self.key)),
                reasons => {
                    let error = RotateError::Refused(reasons.join("; "));
                    let Some(before) = self.before else { return self.give_up(error) };
                    self.failure = Some(error);
                    self.tell_others(Round::TakeBackOthers, Action::TakeBack(before))
                }
            },
            Round::KeepOthers => {
                self.unfinished = refusals(answers);
                self.tell_own(Round::KeepOwn, Action::Keep(self.key))
            }
            Round::KeepOwn => {
                self.unfinished.extend(refusals(answers));
                let unfinished = core::mem::take(&mut self.unfinished);
                Next::Done(Ok(Outcome { is_resumed: self.before.is_none(), unfinished }))
            }
            // Whoever does not hear this, or refuses, is found by the next rotation.
            Round::TakeBackOthers => match self.before {
                Some(before) => self.tell_own(Round::TakeBackOwn, Action::TakeBack(before)),
                None => self.release(),
            },
            Round::TakeBackOwn => self.release(),
            Round::Release => self.ended(),
        }
    }

    fn handle_reserved(&mut self, answers: Vec<(ServerId, Answer)>) -> Next {
        let mut held: Vec<(ServerId, Vec<u64>)> = Vec::new();
        let mut reasons = Vec::new();
        for (server, answer) in answers {
            match answer {
                Ok(keys) => held.push((server, keys)),
                Err(reason) => reasons.extend(refusal((server, Err(reason)))),
            }
        }
        if !reasons.is_empty() {
            return self.give_up(RotateError::Refused(reasons.join("; ")));
        }
        let own: Vec<u64> =
            held.iter().find(|(server, _)| *server == self.own).map(|(_, keys)| keys.clone()).unwrap_or_default();
        match (is_unfinished(&own, &held), own.first()) {
            (Err(error), _) => {
                let common = own.iter().find(|key| held.iter().all(|(_, keys)| keys.contains(key)));
                let Some(&common) = common else { return self.give_up(error) };
                self.before = Some(common);
                self.round = Round::RollBack;
                let ahead = held.iter().filter(|(_, keys)| keys.len() > 1).map(|(server, _)| *server).collect();
                return Next::Tell(ahead, Action::TakeBack(common));
            }
            (Ok(true), Some(&newest)) => self.key = newest,
            (Ok(_), newest) => self.before = newest.copied(),
        }
        // This server first: whoever has a newer secret than the others can finish what breaks off.
        self.tell_own(Round::HoldOwn, Action::Hold(self.key))
    }

    fn tell_own(&mut self, round: Round, action: Action) -> Next {
        self.round = round;
        Next::Tell(vec![self.own], action)
    }

    fn tell_others(&mut self, round: Round, action: Action) -> Next {
        self.round = round;
        if self.others.is_empty() {
            return self.handle(Vec::new());
        }
        Next::Tell(self.others.clone(), action)
    }

    /// Nothing was changed: lets everybody go.
    fn give_up(&mut self, error: RotateError) -> Next {
        self.failure = Some(error);
        self.release()
    }

    fn release(&mut self) -> Next {
        self.round = Round::Release;
        let all = core::iter::once(self.own).chain(self.others.iter().copied()).collect();
        Next::Tell(all, Action::Release)
    }

    fn ended(&mut self) -> Next {
        Next::Done(Err(self.failure.take().unwrap_or(RotateError::Busy)))
    }
}

fn refusals(answers: Vec<(ServerId, Answer)>) -> Vec<String> {
    answers.into_iter().filter_map(refusal).collect()
}

/// Whether an earlier rotation has to be finished first, from what this server and all servers hold.
fn is_unfinished(own: &[u64], all: &[(ServerId, Vec<u64>)]) -> Result<bool, RotateError> {
    let is_ahead = |keys: &[u64]| keys.first().is_some_and(|key| !own.contains(key));
    if let Some((server, _)) = all.iter().find(|(_, keys)| is_ahead(keys)) {
        return Err(RotateError::Elsewhere(server.to_string()));
    }
    Ok(all.iter().any(|(_, keys)| keys.len() > 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_the_newer_secret_finishes() {
        let (own, server) = (ServerId::from_bytes([1; 16]), ServerId::from_bytes([7; 16]));
        let all = |mine: &[u64], theirs: &[u64]| [(own, mine.to_vec()), (server, theirs.to_vec())];
        assert_eq!(is_unfinished(&[1], &all(&[1], &[1])), Ok(false));
        assert_eq!(is_unfinished(&[2, 1], &all(&[2, 1], &[1])), Ok(true), "not handed out to all");
        assert_eq!(is_unfinished(&[2], &all(&[2], &[2, 1])), Ok(true), "one has not let the old one go");
        let ahead = Err(RotateError::Elsewhere(server.to_string()));
        assert_eq!(is_unfinished(&[1], &all(&[1], &[2, 1])), ahead);
    }
}
