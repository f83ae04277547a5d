//! One server's part in a rotation of the secret: whom it has promised its secrets to, and what a step does to them.
//!
//! A leader reserves every member before it changes anything. Each step names the reservation and is refused unless this
//! server has granted that one and it has not expired here. A leader gives up before the first of its reservations
//! expires. So when a later leader holds all reservations, no step of an
//! earlier leader can take effect any more, however late it comes; and what the later leader was told when it reserved
//! stays true until it changes it itself. A reservation does not survive its server: a restart ends it, which is safe,
//! because the steps that name it are refused then.

use core::time::Duration;

use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;
use serde::{Deserialize, Serialize};

/// The longest time for which a server reserves itself: longer than [`ATTEMPT_MAX`].
pub(super) const RESERVATION_MAX: Duration = Duration::from_secs(20);

/// How long a leader goes on, from before it asks for the first reservation: the rounds of a rotation, each at its limit.
/// No reservation of its attempt has expired by then, even where a clock runs a fifth faster than its own.
pub(super) const ATTEMPT_MAX: Duration = Duration::from_secs(16);

/// Who changes the secret, and in which of its attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Reservation {
    /// The server that leads, as 32 hexadecimal digits on the wire.
    #[serde(with = "as_text")]
    pub leader: ServerId,
    /// Chance: another one for each attempt.
    pub attempt: u64,
    /// How long it lasts from when it is granted, milliseconds; [`RESERVATION_MAX`] at most.
    pub lasts_ms: u64,
}

mod as_text {
    use ashlar_wire::id::ServerId;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(id: &ServerId, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(id)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ServerId, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(|_| serde::de::Error::custom("no server id"))
    }
}

/// What a server is asked to do, in key ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Action {
    /// To take steps of this reservation only until it ends.
    Reserve,
    /// To hold this secret too, before the one that it has.
    Hold(u64),
    /// To hold this secret alone. Ends the reservation.
    Keep(u64),
    /// To go back to this secret, because not all could take the new one.
    TakeBack(u64),
    /// Nothing: ends the reservation.
    Release,
}

/// The reservation that a server has granted, if any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Holder {
    granted: Option<(Reservation, Instant)>,
}

impl Holder {
    /// What a server that holds `held` (key ids, the newest first) holds after `action`; `None` if that changes nothing.
    ///
    /// # Errors
    /// Why it refuses. Nothing has changed then.
    pub(super) fn handle(
        &mut self,
        held: &[u64],
        reservation: Reservation,
        action: Action,
        now: Instant,
    ) -> Result<Option<Vec<u64>>, String> {
        self.granted = self.granted.filter(|(_, until)| now < *until);
        let other = self.granted.map(|(granted, _)| granted).filter(|granted| *granted != reservation);
        match (action, other) {
            // An earlier attempt of the same leader is over, or it would not make another one.
            (Action::Reserve, Some(other)) if other.leader != reservation.leader => {
                return Err(format!("server {} replaces the secret now", other.leader));
            }
            (Action::Reserve, _) => {
                let lasts = Duration::from_millis(reservation.lasts_ms).min(RESERVATION_MAX);
                self.granted = Some((reservation, now + lasts));
                return Ok(None);
            }
            (_, Some(other)) => {
                return Err(format!("it is reserved for another rotation, led by server {}", other.leader));
            }
            (_, None) if self.granted.is_none() => return Err("its reservation for this rotation has ended".into()),
            (_, None) => {}
        }
        let next = after(held, action);
        let ends = matches!(action, Action::Keep(_) | Action::Release);
        if ends && next.is_ok() {
            self.granted = None;
        }
        next
    }

    /// For whom it is reserved.
    #[cfg(test)]
    pub(super) fn granted(&self) -> Option<Reservation> {
        self.granted.map(|(reservation, _)| reservation)
    }

    /// Ends whatever was reserved, as time does.
    #[cfg(test)]
    pub(super) fn expire(&mut self) {
        self.granted = None;
    }
}

/// What a server with `held` holds after `action`, whoever asks; `None` if that changes nothing.
pub(super) fn after(held: &[u64], action: Action) -> Result<Option<Vec<u64>>, String> {
    match action {
        Action::Reserve | Action::Release => Ok(None),
        Action::Hold(key) if held.contains(&key) => Ok(None),
        Action::Hold(_) if held.len() > 1 => {
            Err("it has a newer secret from a rotation that was not finished: ask that server to rotate".into())
        }
        Action::Hold(key) => Ok(Some(core::iter::once(key).chain(held.iter().copied()).collect())),
        Action::Keep(key) | Action::TakeBack(key) if held.contains(&key) => Ok((held.len() > 1).then(|| vec![key])),
        Action::Keep(key) | Action::TakeBack(key) => Err(format!("it has no secret {key:016x}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ServerId = ServerId::from_bytes([1; 16]);
    const B: ServerId = ServerId::from_bytes([2; 16]);

    type Outcome = Result<Option<Vec<u64>>, &'static str>;

    fn by(leader: ServerId, attempt: u64) -> Reservation {
        Reservation { leader, attempt, lasts_ms: 10_000 }
    }

    #[test]
    fn steps() {
        use Action::{Hold, Keep, Release, TakeBack};
        // What is held, the action, and what is held then or why it is refused.
        let cases: [(&[u64], Action, Outcome); 11] = [
            (&[1], Hold(2), Ok(Some(vec![2, 1]))),
            (&[1], Hold(1), Ok(None)),
            (&[2, 1], Hold(2), Ok(None)),
            (&[2, 1], Hold(3), Err("was not finished")),
            (&[2, 1], Keep(2), Ok(Some(vec![2]))),
            (&[2], Keep(2), Ok(None)),
            (&[1], Keep(2), Err("has no secret")),
            (&[2, 1], TakeBack(1), Ok(Some(vec![1]))),
            (&[1], TakeBack(1), Ok(None)),
            (&[2], TakeBack(1), Err("has no secret")),
            (&[2, 1], Release, Ok(None)),
        ];
        for (held, action, expected) in cases {
            match (after(held, action), expected) {
                (Ok(next), Ok(expected)) => assert_eq!(next, expected, "{action:?}"),
                (Err(reason), Err(expected)) => assert!(reason.contains(expected), "{action:?}: {reason}"),
                (result, _) => panic!("{action:?}: {result:?}"),
            }
        }
    }

    #[test]
    fn only_the_leader_that_reserved_takes_steps() {
        use Action::{Hold, Keep, Release, Reserve, TakeBack};
        let start = Instant::ORIGIN + Duration::from_secs(100);
        let mut holder = Holder::default();
        let mut take = |held: &[u64], reservation, action, at_s| {
            let result = holder.handle(held, reservation, action, start + Duration::from_secs(at_s));
            result.map_err(|reason| reason.contains("ended"))
        };
        assert_eq!(take(&[1], by(A, 1), Hold(2), 0), Err(true), "nothing was reserved");
        assert_eq!(take(&[1], by(A, 1), Reserve, 0), Ok(None));
        for action in [Reserve, Hold(3), Keep(1), TakeBack(1), Release] {
            assert_eq!(take(&[1], by(B, 2), action, 1), Err(false), "another leader: {action:?}");
        }
        assert_eq!(take(&[1], by(A, 9), TakeBack(1), 1), Err(false), "another attempt");
        assert_eq!(take(&[1], by(A, 1), Hold(2), 1), Ok(Some(vec![2, 1])));
        // It expires: the other one takes over, and the first is too late.
        assert_eq!(take(&[2, 1], by(A, 1), Keep(2), 10), Err(true));
        assert_eq!(take(&[2, 1], by(B, 2), Reserve, 10), Ok(None));
        assert_eq!(take(&[2, 1], by(A, 1), TakeBack(1), 11), Err(false));
        assert_eq!(take(&[2, 1], by(B, 2), Keep(2), 11), Ok(Some(vec![2])));
        assert_eq!(take(&[2], by(A, 3), Reserve, 11), Ok(None), "keeping one secret ends the reservation");
        assert_eq!(take(&[2], by(A, 4), Reserve, 11), Ok(None), "the same leader tries again");
        assert_eq!(take(&[2], by(A, 3), Hold(5), 11), Err(false));
        // Nobody reserves a server for long.
        let greedy = Reservation { lasts_ms: u64::MAX, ..by(A, 5) };
        assert_eq!(take(&[2], greedy, Reserve, 11), Ok(None));
        assert_eq!(take(&[2], by(B, 6), Reserve, 11 + RESERVATION_MAX.as_secs()), Ok(None));
    }
}
