//! Conflict domains: what two seats of one placement group must not share, and how much each domain then holds.
//!
//! A domain holds at most one seat of each placement group. So a domain with more than `1 / seats` of all weight cannot
//! be filled in proportion to it: it gets one seat of every placement group, and what it cannot take is shared by the
//! others in proportion to their weights. Within a domain, drives share in proportion. `shares` works this out, and it is
//! what "spread by weight" means everywhere in this crate.

use alloc::vec;
use alloc::vec::Vec;

use ashlar_wire::id::{DriveId, ServerId};

use crate::draw::exponential;
use crate::map::{Drive, DriveIndex, DriveState, Rack, Shape, Zone};

/// What two seats of one placement group must not share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Conflict {
    /// A drive.
    Drive,
    /// A server.
    Server,
    /// A rack.
    Rack,
    /// A zone.
    Zone,
}

/// One thing that can fail as a whole, under one conflict rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Domain {
    Drive(DriveId),
    Server(ServerId),
    Rack(Rack),
    Zone(Zone),
}

impl Conflict {
    /// Every rule, the narrowest first.
    pub const ALL: [Self; 4] = [Self::Drive, Self::Server, Self::Rack, Self::Zone];

    /// The domain of a drive under this rule.
    pub(crate) const fn domain_of(self, drive: &Drive) -> Domain {
        match self {
            Self::Drive => Domain::Drive(drive.id),
            Self::Server => Domain::Server(drive.server),
            Self::Rack => Domain::Rack(drive.rack),
            Self::Zone => Domain::Zone(drive.zone),
        }
    }

    /// Whether two drives must not hold seats of one placement group.
    #[must_use]
    pub fn is_between(self, one: &Drive, other: &Drive) -> bool {
        self.domain_of(one) == self.domain_of(other)
    }
}

/// The drives of a map by domain. Drives that are out belong to none.
#[derive(Debug)]
pub(crate) struct Domains {
    /// For each drive its domain's number, from 0 without gaps; [`OUTSIDE`] for one that is out.
    of_drive: Vec<u16>,
    count: usize,
}

const OUTSIDE: u16 = u16::MAX;

impl Domains {
    /// Numbers the domains of these drives, at most as many as drives.
    pub(crate) fn new(conflict: Conflict, drives: &[Drive]) -> Self {
        let holding = || drives.iter().filter(|drive| drive.state != DriveState::Out);
        let mut all: Vec<Domain> = holding().map(|drive| conflict.domain_of(drive)).collect();
        all.sort_unstable();
        all.dedup();
        let number = |drive: &Drive| {
            let place = all.binary_search(&conflict.domain_of(drive)).ok()?;
            Some(DriveIndex::new(place).0)
        };
        let of_drive = drives.iter().map(|drive| match drive.state {
            DriveState::Out => OUTSIDE,
            DriveState::In | DriveState::Full => number(drive).expect("the domain of each drive was listed"),
        });
        Self { of_drive: of_drive.collect(), count: all.len() }
    }

    /// How many there are.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// The number of a drive's domain.
    #[inline]
    pub(crate) fn of(&self, index: DriveIndex) -> u16 {
        self.of_drive[index.get()]
    }

    /// Whether two drives are in one domain.
    #[inline]
    pub(crate) fn is_same(&self, one: DriveIndex, other: DriveIndex) -> bool {
        self.of(one) == self.of(other)
    }
}

/// One of every placement group's seats, in units of [`Share`]'s fields.
const ONE: u64 = 1 << 63;

/// What a drive gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Share {
    /// The part of all placement groups in which the drive has a seat, in units of 2^-63; 0 for a drive that is out.
    pub(crate) part: u64,
    /// The rate at which it arrives at seats; 0 for a drive that is out.
    pub(crate) rate: u64,
}

/// What each drive gets by its weight, as far as the domains allow.
///
/// If a domain shall have a seat in the part p of all placement groups, drawing without replacement in proportion to p
/// itself would give large domains less than that. Rates in proportion to `-ln(1 - p)` are right up to small terms
/// (order sampling: Rosen, "Asymptotic theory for order sampling", 1997): p is then the chance that a domain with that
/// rate has arrived by the time when the seats are taken.
pub(crate) fn shares(shape: Shape, drives: &[Drive], domains: &Domains) -> Vec<Share> {
    let mut weights = vec![0_u64; domains.count()];
    let number = |place: usize| match domains.of_drive[place] {
        OUTSIDE => None,
        domain => Some(usize::from(domain)),
    };
    for (place, drive) in drives.iter().enumerate() {
        if let Some(domain) = number(place) {
            weights[domain] += u64::from(drive.weight.0);
        }
    }
    let parts = parts(shape.width(), &weights);
    let share = |(place, drive): (usize, &Drive)| {
        let Some(domain) = number(place) else { return Share::default() };
        let of_domain = |value: u64| {
            let value = u128::from(value) * u128::from(drive.weight.0) / u128::from(weights[domain]);
            u64::try_from(value).expect("a drive has at most what its domain has")
        };
        // A part of one is the greatest number that there is: such a domain arrives before all others.
        let rate = exponential(parts[domain].saturating_mul(2));
        Share { part: of_domain(parts[domain]), rate: of_domain(rate).max(1) }
    };
    drives.iter().enumerate().map(share).collect()
}

/// The part of all placement groups in which each domain has a seat, in units of 2^-63; together `seats`.
fn parts(seats: usize, weights: &[u64]) -> Vec<u64> {
    let mut parts = vec![0; weights.len()];
    let mut heaviest: Vec<usize> = (0..weights.len()).collect();
    heaviest.sort_unstable_by_key(|domain| (core::cmp::Reverse(weights[*domain]), *domain));
    let mut seats_left = seats as u64;
    let mut weight_left: u64 = weights.iter().sum();
    for domain in heaviest {
        let weight = weights[domain];
        // Once a domain is below one seat, all lighter ones are.
        if weight * seats_left >= weight_left && seats_left > 0 {
            parts[domain] = ONE;
            seats_left -= 1;
            weight_left -= weight;
        } else {
            let part = u128::from(weight) * u128::from(seats_left) * u128::from(ONE) / u128::from(weight_left);
            parts[domain] = u64::try_from(part).expect("less than one seat");
        }
    }
    parts
}

#[cfg(test)]
mod tests;
