//! Requests of client sessions that were taken in this epoch, so that a copy of one is not applied over a later write.
//!
//! One table of a primary, empty at the start of every epoch: copies that were sent by an earlier epoch are refused for
//! that epoch. A session's requests below its floor are refused, so only those between the floor and
//! [`OUTSTANDING_MAX`] beyond it are remembered.
//!
//! A request may be answered by an earlier epoch after a copy of it was sent to this one, while an earlier request keeps
//! the floor down. That copy is not known here. But a session holds a write back while an earlier one of the same blocks
//! is outstanding, so its writes of a block come in the order of their numbers: a copy that comes behind a greater number
//! is a late one.

use alloc::collections::BTreeMap;

use ashlar_placement::rule::ExtentId;

use crate::error::Refusal;
use crate::request::{ClientRequest, Range, RequestId, SessionId};

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
    /// A copy of one that was answered or given up: this later one of the same blocks came before.
    Late(RequestId),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Underway,
    Done,
}

/// A write that was taken.
#[derive(Debug)]
struct Taken {
    state: State,
    extent: ExtentId,
    range: Range,
}

#[derive(Debug)]
struct Session {
    floor: RequestId,
    taken: BTreeMap<RequestId, Taken>,
}

/// The table.
#[derive(Debug, Default)]
pub(crate) struct Sessions(BTreeMap<SessionId, Session>);

impl Sessions {
    /// Looks a write up, and remembers it if it is new.
    pub(crate) fn take(&mut self, asked: &ClientRequest, range: Range) -> Result<Known, Refusal> {
        let ClientRequest { session: id, request, floor, extent, .. } = *asked;
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
        match session.taken.get(&request).map(|taken| taken.state) {
            Some(State::Underway) => return Ok(Known::Underway),
            Some(State::Done) => return Ok(Known::Done),
            None => {}
        }
        let is_of_it = |taken: &Taken| taken.extent == extent && taken.range.overlaps(range);
        if let Some((later, _)) = session.taken.range(request..).find(|(_, taken)| is_of_it(taken)) {
            return Ok(Known::Late(*later));
        }
        session.taken.insert(request, Taken { state: State::Underway, extent, range });
        Ok(Known::New)
    }

    /// A write was answered.
    pub(crate) fn finish(&mut self, id: SessionId, request: RequestId) {
        if let Some(taken) = self.0.get_mut(&id).and_then(|session| session.taken.get_mut(&request)) {
            taken.state = State::Done;
        }
    }

    /// A write was refused after it was taken: it may come again.
    pub(crate) fn give_back(&mut self, id: SessionId, request: RequestId) {
        if let Some(session) = self.0.get_mut(&id) {
            session.taken.remove(&request);
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
    use crate::request::{Generation, Operation};
    use ashlar_wire::epoch::Epoch;

    fn take_of(
        sessions: &mut Sessions,
        session: u64,
        (request, floor): (u64, u64),
        offset: u32,
    ) -> Result<Known, Refusal> {
        let range = Range { offset, len: 4_096 };
        let asked = ClientRequest {
            session: SessionId(session),
            request: RequestId(request),
            floor: RequestId(floor),
            generation: Generation(1),
            epoch: Epoch(1),
            extent: ExtentId::default(),
            operation: Operation::Read(range),
        };
        sessions.take(&asked, range)
    }

    #[test]
    fn a_copy_behind_a_later_write_of_its_blocks_is_late() {
        let mut sessions = Sessions::default();
        assert_eq!(take_of(&mut sessions, 1, (5, 2), 0), Ok(Known::New));
        assert_eq!(take_of(&mut sessions, 1, (4, 2), 0), Ok(Known::Late(RequestId(5))));
        assert_eq!(take_of(&mut sessions, 1, (4, 2), 4_096), Ok(Known::New), "of other blocks");
        assert_eq!(take_of(&mut sessions, 2, (4, 2), 0), Ok(Known::New), "of another session");
        assert_eq!(take_of(&mut sessions, 1, (6, 2), 0), Ok(Known::New));
        assert_eq!(take_of(&mut sessions, 1, (5, 2), 0), Ok(Known::Underway));
    }

    fn take(sessions: &mut Sessions, session: u64, request: u64, floor: u64) -> Result<Known, Refusal> {
        take_of(sessions, session, (request, floor), 4_096 * u32::try_from(request % 8).unwrap())
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
        sessions.give_back(SessionId(1), RequestId(6));
        assert_eq!(take(&mut sessions, 1, 6, 6), Ok(Known::New), "it was refused");
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
