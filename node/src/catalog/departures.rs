//! Servers that are about to stop, as the leader of the catalog knows: in memory, as whoever departs says so again and again.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;

use super::context::Members;

/// So long after the last server has said that it departs nothing is decided: servers that stop all together have nobody to go on.
const DEPARTURE_GRACE: Duration = Duration::from_millis(200);
/// A server that says so again later than this departs anew: it has been back meanwhile, and may have something again.
const ANEW_AFTER: Duration = Duration::from_secs(1);
/// A server that has not stopped so long after it has said so does not depart. Longer than its clients are answered meanwhile.
const SAID_MAX: Duration = Duration::from_secs(15);

/// A server that departs.
#[derive(Debug, Clone, Copy)]
struct Departure {
    began: Instant,
    said: Instant,
    /// Nothing that others can take over is left with it.
    is_done: bool,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Departures(BTreeMap<ServerId, Departure>);

impl Departures {
    /// A server says that it departs; whether nothing that others can take over is left with it.
    pub(super) fn say(&mut self, server: ServerId, now: Instant) -> bool {
        let anew = Departure { began: now, said: now, is_done: false };
        let departure = self.0.entry(server).or_insert(anew);
        if departure.said + ANEW_AFTER <= now {
            *departure = anew;
        }
        departure.said = now;
        departure.is_done
    }

    /// The servers that depart. One that was gone and is there again since it has said so does not.
    pub(super) fn servers(&mut self, members: &Members, now: Instant) -> BTreeSet<ServerId> {
        let is_back = |id: &ServerId, said: Instant| members.seen.get(id).is_some_and(|seen| seen.since > said);
        self.0.retain(|id, departure| departure.said + SAID_MAX > now && !is_back(id, departure.said));
        self.0.keys().copied().collect()
    }

    /// Whether all that depart have said so for long enough.
    pub(super) fn are_due(&self, now: Instant) -> bool {
        self.0.values().all(|departure| departure.began + DEPARTURE_GRACE <= now)
    }

    /// Nothing is left with these.
    pub(super) fn set_done(&mut self, servers: &BTreeSet<ServerId>) {
        for server in servers {
            if let Some(departure) = self.0.get_mut(server) {
                departure.is_done = true;
            }
        }
    }

    /// Forgets everything: another server leads.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::super::context::Seen;
    use super::*;

    fn server(number: u8) -> ServerId {
        ServerId::from_bytes([number; 16])
    }

    const fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn members(since: u64) -> Members {
        let seen = Seen { address: String::new(), zone: 0, is_alive: true, since: at(since) };
        Members { seen: BTreeMap::from([(server(1), seen.clone()), (server(2), seen)]), forgotten: BTreeSet::new() }
    }

    #[test]
    fn a_server_departs_until_it_is_back_or_has_not_stopped() {
        let mut departures = Departures::default();
        assert!(
            !departures.say(server(1), at(1_000)) && !departures.are_due(at(1_199)) && departures.are_due(at(1_200))
        );
        let both = BTreeSet::from([server(1), server(2)]);
        assert!(!departures.say(server(2), at(1_300)) && !departures.are_due(at(1_499)), "together with another one");
        assert_eq!(departures.servers(&members(500), at(1_500)), both);
        departures.set_done(&BTreeSet::from([server(1), server(3)]));
        assert!(departures.say(server(1), at(1_999)) && !departures.say(server(2), at(2_000)));
        assert!(departures.are_due(at(2_000)), "whoever says so again is not new");
        assert!(!departures.say(server(1), at(2_999)), "it was back meanwhile");
        departures.set_done(&both);
        assert!(departures.say(server(1), at(3_000)) && !departures.are_due(at(3_000)));
        let mut departures = Departures::default();
        both.iter().for_each(|server| assert!(!departures.say(*server, at(2_000))));
        assert_eq!(departures.servers(&members(2_000), at(16_999)), both);
        assert_eq!(departures.servers(&members(2_000), at(17_000)), BTreeSet::new(), "they have not stopped");
        departures.say(server(1), at(17_000));
        assert_eq!(departures.servers(&members(17_001), at(17_001)), BTreeSet::new(), "it is back");
        departures.say(server(1), at(17_002));
        departures.clear();
        assert!(departures.servers(&members(0), at(17_002)).is_empty());
    }
}
