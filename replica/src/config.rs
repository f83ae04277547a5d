//! Configuration of a placement group, as the catalog decided it, and the time-outs of its members.

use alloc::vec::Vec;
use core::time::Duration;

use ashlar_placement::map::GroupId;
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::DriveId;

use crate::members::MEMBERS_MAX;
use crate::planted::Bugs;

/// Most learners of a placement group at a time.
pub const LEARNERS_MAX: usize = 7;
/// Epochs beyond this are damage, not age.
pub const EPOCH_MAX: Epoch = Epoch(1 << 62);
/// Most that two clocks may differ in speed from true time: 1 in this many, each.
pub const DRIFT_PART: u32 = 100;

/// Who holds a placement group, by one decision of the catalog. The first epoch of a group is 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configuration {
    /// Which placement group.
    pub group: GroupId,
    /// Number of the decision; the catalog changes a configuration only by compare-and-set on it.
    pub epoch: Epoch,
    /// Members whose acknowledgement every write needs.
    pub acting: Vec<DriveId>,
    /// The acting member that orders writes and serves reads.
    pub primary: DriveId,
    /// Members that are being filled.
    pub learners: Vec<DriveId>,
    /// Writes are served only while at least so many members act.
    pub min_copies: u8,
}

/// What a drive is in a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It is not mentioned.
    None,
    /// Orders writes and serves reads.
    Primary,
    /// Has every acknowledged write.
    Backup,
    /// Is being filled.
    Learner,
}

/// Who may have something of a placement group beside its members, as the catalog says of one epoch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Witnesses {
    /// The drives with which it began, those that act, and those that acted since it was settled. None for a group that began with one
    /// copy, of which a loss cannot be told from a beginning.
    pub all: Vec<DriveId>,
    /// The drive that was the last one to leave those that act.
    pub last_to_leave: Option<DriveId>,
}

impl Configuration {
    /// Whether the values can be a configuration: a primary that acts, no drive twice, limits kept.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let all = || self.acting.iter().chain(&self.learners);
        let is_once = all().all(|drive| all().filter(|other| *other == drive).count() == 1);
        let is_within = self.acting.len() <= MEMBERS_MAX && self.learners.len() <= LEARNERS_MAX;
        let epochs = Epoch(1)..=EPOCH_MAX;
        is_within && is_once && self.acting.contains(&self.primary) && epochs.contains(&self.epoch)
    }

    /// What `drive` is.
    #[must_use]
    pub fn role(&self, drive: DriveId) -> Role {
        match drive {
            _ if self.primary == drive => Role::Primary,
            _ if self.acting.contains(&drive) => Role::Backup,
            _ if self.learners.contains(&drive) => Role::Learner,
            _ => Role::None,
        }
    }

    /// Whether enough members act for writes.
    #[must_use]
    pub fn has_copies(&self) -> bool {
        self.acting.len() >= usize::from(self.min_copies)
    }
}

/// Time-outs of a member.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// How long a granted lease lasts at the primary, from the moment at which it asked.
    pub lease: Duration,
    /// How long a member stands by a lease that it granted, from the moment at which it granted it. Longer than `lease`
    /// even if both clocks drift apart by 1 in [`DRIFT_PART`] each.
    pub guard: Duration,
    /// How long another member may be silent before its removal is asked for. At least `guard`.
    pub silence: Duration,
    /// How long a member may owe an acknowledgement before its removal is asked for, although it answers. Longer than
    /// the longest stall of a drive that is still good.
    pub lag: Duration,
    /// Period of all work that no message starts: lease renewal, repeated requests and reports.
    pub tick: Duration,
    /// Extents that are copied to one member at a time. Each may have 1 MiB in flight.
    pub copies_max: usize,
    /// How often a member notes durably which writes all others have, at most.
    pub save_every: Duration,
    /// How long the last copy waits for drives that are away, before it gives up what it cannot read and they may have.
    pub awaited: Duration,
    /// Bugs that a simulator plants.
    pub bugs: Bugs,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease: Duration::from_millis(800),
            guard: Duration::from_millis(1_000),
            silence: Duration::from_millis(2_000),
            lag: Duration::from_secs(10),
            tick: Duration::from_millis(100),
            copies_max: 4,
            save_every: Duration::from_secs(5),
            // A server that was restarted is back by then.
            awaited: Duration::from_secs(300),
            bugs: Bugs::default(),
        }
    }
}

impl Settings {
    /// Whether the time-outs agree with each other.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let slow = self.lease.saturating_mul(DRIFT_PART + 1);
        let fast = self.guard.saturating_mul(DRIFT_PART - 1);
        slow < fast && self.guard <= self.silence && self.tick.saturating_mul(4) <= self.lease && self.copies_max > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn what_makes_a_configuration() {
        let drive = |number: u8| DriveId::from_bytes([number; 16]);
        let good = Configuration {
            group: GroupId::default(),
            epoch: Epoch(1),
            acting: vec![drive(1), drive(2)],
            primary: drive(2),
            learners: vec![drive(3)],
            min_copies: 2,
        };
        assert!(good.is_valid() && good.has_copies());
        let roles = [1, 2, 3, 4].map(|number| good.role(drive(number)));
        assert_eq!(roles, [Role::Backup, Role::Primary, Role::Learner, Role::None]);
        let many = (10..18).map(drive).collect::<Vec<_>>();
        let bad = [
            Configuration { epoch: Epoch::ZERO, ..good.clone() },
            Configuration { epoch: EPOCH_MAX.next(), ..good.clone() },
            Configuration { primary: drive(3), ..good.clone() },
            Configuration { learners: vec![drive(1)], ..good.clone() },
            Configuration { acting: vec![drive(2), drive(2)], ..good.clone() },
            Configuration { learners: many, ..good.clone() },
        ];
        assert!(bad.iter().all(|configuration| !configuration.is_valid()), "{bad:?}");
    }

    #[test]
    fn a_lease_ends_before_its_guard_whatever_the_clocks() {
        let good = Settings::default();
        assert!(good.is_valid());
        assert!(!Settings { lease: Duration::from_millis(981), ..good }.is_valid(), "drift may undo the difference");
        assert!(!Settings { silence: Duration::from_millis(999), ..good }.is_valid());
        assert!(!Settings { tick: Duration::from_millis(201), ..good }.is_valid());
        assert!(!Settings { copies_max: 0, ..good }.is_valid());
    }
}
