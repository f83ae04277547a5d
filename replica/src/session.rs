//! Requests of client sessions that were taken in this epoch, so that a copy of one is not applied over a later write.
//!
//! One table of a primary, empty at the start of every epoch: copies that were sent by an earlier epoch are refused for
//! that epoch. A session's requests below its floor are refused, so only those between the floor and
//! [`OUTSTANDING_MAX`] beyond it are remembered.

use alloc::collections::BTreeMap;

use crate::error::Refusal;
use crate::request::{RequestId, SessionId};

/// Sessions of one placement group and epoch. When they are used up, the primary asks for a new epoch.
pub(crate) const SESSIONS_MAX: usize = 4_096;
/// Requests of a session between its floor and its greatest number.
pub(crate) const OUTSTANDING_MAX: u64 = 1_024;

/// What is known of a request that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// It came for the first time, and is remembered now.
    New,
    /// It came before and is not done.
    Underway,
    /// It came before and is done.
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Underway,
    Done,
}

#[derive(Debug)]
struct Session {
    floor: RequestId,
    taken: BTreeMap<RequestId, State>,
}

/// The table.
#[derive(Debug, Default)]
pub(crate) struct Sessions(BTreeMap<SessionId, Session>);

impl Sessions {
    /// Looks a write up, and remembers it if it is new.
    pub(crate) fn take(&mut self, id: SessionId, request: RequestId, floor: RequestId) -> Result<Known, Refusal> {
        if self.0.len() >= SESSIONS_MAX && !self.0.contains_key(&id) {
            return Err(Refusal::Busy);
        }
        let session = self.0.entry(id).or_insert(Session { floor, taken: BTreeMap::new() });
        if floor > session.floor {
            session.floor = floor;
            session.taken = session.taken.split_off(&floor);
        }
        if request < session.floor {
            return Err(Refusal::GivenUp(session.floor));
        }
        if request.0 - session.floor.0 >= OUTSTANDING_MAX {
            return Err(Refusal::TooFarAhead);
        }
        Ok(match session.taken.get(&request) {
            Some(State::Underway) => Known::Underway,
            Some(State::Done) => Known::Done,
            None => {
                session.taken.insert(request, State::Underway);
                Known::New
            }
        })
    }

    /// A write was answered.
    pub(crate) fn finish(&mut self, id: SessionId, request: RequestId) {
        if let Some(state) = self.0.get_mut(&id).and_then(|session| session.taken.get_mut(&request)) {
            *state = State::Done;
        }
    }

    /// Whether no further session can be taken.
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= SESSIONS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(sessions: &mut Sessions, session: u64, request: u64, floor: u64) -> Result<Known, Refusal> {
        sessions.take(SessionId(session), RequestId(request), RequestId(floor))
    }

    #[test]
    fn a_copy_is_known_until_the_floor_passes_it() {
        let mut sessions = Sessions::default();
        assert_eq!(take(&mut sessions, 1, 5, 5), Ok(Known::New));
        assert_eq!(take(&mut sessions, 1, 5, 5), Ok(Known::Underway));
        assert_eq!(take(&mut sessions, 2, 5, 5), Ok(Known::New), "sessions have numbers of their own");
        sessions.finish(SessionId(1), RequestId(5));
        assert_eq!(take(&mut sessions, 1, 5, 5), Ok(Known::Done));
        assert_eq!(take(&mut sessions, 1, 6, 6), Ok(Known::New));
        assert_eq!(take(&mut sessions, 1, 5, 5), Err(Refusal::GivenUp(RequestId(6))));
        assert_eq!(take(&mut sessions, 1, 6, 1), Ok(Known::Underway), "a floor does not sink");
    }

    #[test]
    fn limits() {
        let mut sessions = Sessions::default();
        assert_eq!(take(&mut sessions, 0, OUTSTANDING_MAX, 1), Ok(Known::New));
        assert_eq!(take(&mut sessions, 0, OUTSTANDING_MAX + 1, 1), Err(Refusal::TooFarAhead));
        for session in 1..SESSIONS_MAX as u64 {
            assert_eq!(take(&mut sessions, session, 1, 1), Ok(Known::New));
        }
        assert!(sessions.is_full());
        assert_eq!(take(&mut sessions, u64::MAX, 1, 1), Err(Refusal::Busy));
        assert_eq!(take(&mut sessions, 1, 1, 1), Ok(Known::Underway));
    }
}
