//! Which connection to a peer counts, when both sides dial and processes come and go.
//!
//! Rules, the same at both ends, so that exactly one connection stays:
//!
//! 1. A later life of a peer replaces an earlier one; an earlier life is refused.
//! 2. A live connection stays: another one to the same life is a duplicate, unless the live one has fallen silent.
//! 3. If both dial at once, the dial of the smaller [`ServerId`] wins. A side whose own dial has gone so far that the
//!    peer may accept it (its proof is sent) refuses the other's if its own wins, and gives its own up if not.

use ashlar_wire::id::{Incarnation, ServerId};

use crate::hello::RefusalCode;

/// What is known of one peer's connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Standing {
    /// Latest life that has proved itself.
    pub incarnation: Option<Incarnation>,
    /// Whether there is a live connection to that life.
    pub is_linked: bool,
    /// Whether that connection has been silent for longer than it should.
    pub is_suspect: bool,
    /// Whether this side has sent its proof on a dial of its own, and not heard the outcome.
    pub is_dialing: bool,
}

/// What to do with a connection whose peer has proved itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It is the one; what was there before goes.
    Install,
    /// It is refused.
    Refuse(RefusalCode),
}

/// Decides about a connection that `peer` dialed, in its life `incarnation`.
#[must_use]
pub fn decide_accepted(me: ServerId, peer: ServerId, incarnation: Incarnation, standing: Standing) -> Decision {
    if standing.incarnation.is_some_and(|known| known > incarnation) {
        return Decision::Refuse(RefusalCode::StaleIncarnation);
    }
    let later_life = standing.incarnation.is_some_and(|known| known < incarnation);
    if standing.is_linked && !later_life && !standing.is_suspect {
        return Decision::Refuse(RefusalCode::Duplicate);
    }
    if standing.is_dialing && me < peer {
        return Decision::Refuse(RefusalCode::Duplicate);
    }
    Decision::Install
}

/// Decides about a connection that this side dialed and the peer welcomed.
#[must_use]
pub fn decide_dialed(incarnation: Incarnation, standing: Standing) -> Decision {
    if standing.incarnation.is_some_and(|known| known > incarnation) {
        return Decision::Refuse(RefusalCode::StaleIncarnation);
    }
    // The peer has chosen this one: whatever else there is, it has given up.
    Decision::Install
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: ServerId = ServerId::from_bytes([1; 16]);
    const GREAT: ServerId = ServerId::from_bytes([2; 16]);
    const LIFE: Incarnation = Incarnation(5);

    fn standing(incarnation: Option<u64>, is_linked: bool, is_suspect: bool, is_dialing: bool) -> Standing {
        Standing { incarnation: incarnation.map(Incarnation), is_linked, is_suspect, is_dialing }
    }

    #[test]
    fn one_connection_stays() {
        let duplicate = Decision::Refuse(RefusalCode::Duplicate);
        let stale = Decision::Refuse(RefusalCode::StaleIncarnation);
        let cases = [
            ("first", SMALL, GREAT, standing(None, false, false, false), Decision::Install),
            ("reconnect", SMALL, GREAT, standing(Some(5), false, false, false), Decision::Install),
            ("second to a live one", SMALL, GREAT, standing(Some(5), true, false, false), duplicate),
            ("live one is silent", SMALL, GREAT, standing(Some(5), true, true, false), Decision::Install),
            ("restarted", SMALL, GREAT, standing(Some(4), true, false, false), Decision::Install),
            ("restarted while both dial", SMALL, GREAT, standing(Some(4), true, false, true), duplicate),
            ("from an old life", SMALL, GREAT, standing(Some(6), false, false, false), stale),
            ("both dial, mine wins", SMALL, GREAT, standing(None, false, false, true), duplicate),
            ("both dial, theirs wins", GREAT, SMALL, standing(None, false, false, true), Decision::Install),
        ];
        for (name, me, peer, standing, expected) in cases {
            assert_eq!(decide_accepted(me, peer, LIFE, standing), expected, "{name}");
        }
    }

    #[test]
    fn who_was_welcomed_goes_on_unless_a_later_life_is_known() {
        for (known, expected) in [
            (None, Decision::Install),
            (Some(4), Decision::Install),
            (Some(5), Decision::Install),
            (Some(6), Decision::Refuse(RefusalCode::StaleIncarnation)),
        ] {
            for [is_linked, is_suspect, is_dialing] in [[false; 3], [true; 3], [true, false, true]] {
                assert_eq!(
                    decide_dialed(LIFE, standing(known, is_linked, is_suspect, is_dialing)),
                    expected,
                    "{known:?}"
                );
            }
        }
    }

    #[test]
    fn crossing_dials_leave_exactly_one() {
        // Both proofs are on their way: each side judges the other's dial while its own is undecided.
        let undecided = standing(None, false, false, true);
        let at_small = decide_accepted(SMALL, GREAT, LIFE, undecided);
        let at_great = decide_accepted(GREAT, SMALL, LIFE, undecided);
        assert_eq!((at_small, at_great), (Decision::Refuse(RefusalCode::Duplicate), Decision::Install));
    }
}
