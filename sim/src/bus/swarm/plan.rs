//! Which faults strike when, and what the members are told meanwhile.

use ashlar_bus::event::How;

use super::params::{Class, MILLI_NS, Params};
use crate::rng::Rng;

/// Faults of one plan.
const FAULTS_MAX: usize = 120;

/// One fault or command; times are nanoseconds. Members and groups are numbers, taken modulo how many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// One direction is cut, or both.
    Cut { from: u32, to: u32, both: bool, for_ns: u64 },
    /// The members of the mask are cut from all others; or only their own words are.
    Split { mask: u32, both: bool, for_ns: u64 },
    /// A member is frozen.
    Pause { member: u32, for_ns: u64 },
    /// A member dies and comes back with what its disk holds.
    Crash { member: u32, down_ns: u64 },
    /// A member dies, and comes back with nothing.
    Wipe { member: u32, down_ns: u64 },
    /// All members of a zone die at once, and come back.
    ZoneLoss { zone: u32, down_ns: u64 },
    /// Every link becomes bad.
    Storm { loss_ppm: u32, late_ppm: u32, late_ns: u64, for_ns: u64 },
    /// A replica is told to take over, by a ballot: a takeover without one may make two primaries of one epoch.
    Failover { member: u32, group: u32, how: How },
    /// A primary claims slots, perhaps of another group.
    Claim { member: u32, group: u32, first: u16, last: u16 },
    /// A member is forgotten, then introduced again.
    Forget { member: u32, by: u32 },
    /// A message is published.
    Publish { member: u32 },
    /// The voters are chosen anew.
    SetVoters { member: u32, mask: u32 },
    /// A member dies, and a bit of its record flips.
    Rot { member: u32, bit: u64, down_ns: u64 },
    /// A server of another cluster is told to meet a member, or a member to meet it.
    Stranger { member: u32, invited: bool },
    /// A member stops in order, and comes back.
    Depart { member: u32, down_ns: u64 },
}

/// All faults of a run with their times, earliest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// World time and fault.
    pub(crate) entries: Vec<(u64, Fault)>,
}

impl Plan {
    /// How many faults there are.
    #[must_use]
    pub fn faults(&self) -> usize {
        self.entries.len()
    }

    /// What the seed of `params` draws.
    #[must_use]
    pub fn draw(params: &Params) -> Self {
        let mut rng = Rng::new(params.seed).fork("plan", 0);
        let mut entries = Vec::new();
        let mut at_ns = rng.within(0..=params.gap_ns);
        while at_ns < params.faults_ns && entries.len() < FAULTS_MAX && !params.classes.is_empty() {
            let class = rng.pick(&params.classes);
            entries.push((at_ns, draw_fault(class, params, &mut rng)));
            at_ns += rng.within(0..=2 * params.gap_ns);
        }
        Self { entries }
    }
}

fn draw_fault(class: Class, params: &Params, rng: &mut Rng) -> Fault {
    let members = u64::from(params.members);
    let member = rng.below(members) as u32;
    let other = (member + 1 + rng.below(members - 1) as u32) % params.members;
    let group = rng.below(u64::from(params.groups)) as u32;
    let for_ns = rng.magnitude(MILLI_NS..=params.fault_ns_max);
    let mask = rng.within(1..=(1 << members) - 2) as u32;
    match class {
        Class::Cut => Fault::Cut { from: member, to: other, both: rng.chance(500_000), for_ns },
        Class::Split => {
            let mask = if rng.chance(500_000) { 1 << member } else { mask };
            Fault::Split { mask, both: rng.chance(750_000), for_ns }
        }
        Class::Pause => Fault::Pause { member, for_ns },
        Class::Crash => Fault::Crash { member, down_ns: for_ns },
        Class::Wipe => Fault::Wipe { member, down_ns: for_ns },
        Class::ZoneLoss => Fault::ZoneLoss { zone: rng.below(u64::from(params.zones)) as u32, down_ns: for_ns },
        Class::Storm => {
            let (loss_ppm, late_ppm) = (rng.magnitude(1_000..=600_000) as u32, rng.magnitude(1..=500_000) as u32);
            Fault::Storm { loss_ppm, late_ppm, late_ns: rng.magnitude(MILLI_NS..=params.fault_ns_max), for_ns }
        }
        Class::LongCut => Fault::Cut { from: member, to: other, both: true, for_ns: for_ns + params.faults_ns / 2 },
        Class::Failover => Fault::Failover { member, group, how: rng.pick(&[How::Agreed, How::Forced]) },
        Class::Claim => {
            let first = rng.below(16_384) as u16;
            Fault::Claim { member, group, first, last: rng.within(u64::from(first)..=16_383) as u16 }
        }
        Class::Forget => Fault::Forget { member, by: other },
        Class::Publish => Fault::Publish { member },
        Class::SetVoters => Fault::SetVoters { member, mask },
        Class::Rot => Fault::Rot { member, bit: rng.next_u64(), down_ns: for_ns },
        Class::Stranger => Fault::Stranger { member, invited: rng.chance(500_000) },
        Class::Depart => Fault::Depart { member, down_ns: for_ns },
    }
}
