//! Lives of members: which process of a drive speaks, and what may be concluded from what it says.
//!
//! A member may end, lose its data, and begin again while messages of its earlier life are on their way, and while its
//! server hears of configurations late. So every life draws a number by chance, and the head of a message names the life
//! of its sender and, as soon as the sender knows it, that of its receiver. Within an epoch a member listens to one life of
//! each other member, the first that it hears. A life that is spoken to as another one knows by that that it is not the
//! first of its drive in this epoch: it takes part no more before the next.
//!
//! What a primary may conclude from a learner's progress: this life, which has had the whole stream of this epoch from its
//! first entry, has so much of it on stable storage. It may not conclude what the drive will have later. The drive itself
//! remembers that: its record says that the copy is partial from the moment it becomes a learner on, and only the last
//! entry of the filling, [`Entry::Whole`](crate::stream::Entry::Whole), ends that, durably, before the catalog hears that
//! the learner is caught up. Whatever replaces the life that had that entry has a record that says partial, or none at
//! all. Such a copy never counts: among the acting members it asks for its own removal, and for that of no other.
//!
//! Not covered: an earlier state of a drive, record and data, that comes back while the primary is lost. Where the primary
//! lives it notices by the life, or by a greatest version that is too small. A configuration of a group's first epoch
//! that reaches an empty drive later than any other epoch: the first epoch is the one in which a drive may be empty.

use alloc::collections::BTreeMap;

use ashlar_wire::id::DriveId;

/// One life of a member, from its making to the end of its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Life(u64);

impl Life {
    /// The life of a number that was drawn by chance, and is never used again.
    #[must_use]
    pub const fn drawn(number: u64) -> Self {
        // Zero stands for no life where lives are written.
        Self(if number == 0 { 1 } else { number })
    }

    /// Its number, which is not zero.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// Lives of the other members of one epoch, as far as they have spoken. As many as the configuration has members.
#[derive(Debug, Default)]
pub(crate) struct Lives(BTreeMap<DriveId, Life>);

impl Lives {
    /// The life that this member listens to; none before it has spoken.
    pub(crate) fn of(&self, drive: DriveId) -> Option<Life> {
        self.0.get(&drive).copied()
    }

    /// A member of the configuration speaks in this life. Says whether it is the one that is listened to.
    pub(crate) fn hear(&mut self, drive: DriveId, life: Life) -> bool {
        *self.0.entry(drive).or_insert(life) == life
    }

    /// Another epoch begins.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_life_of_an_epoch_is_listened_to() {
        let (mut lives, drive) = (Lives::default(), DriveId::from_bytes([1; 16]));
        assert_eq!((lives.of(drive), Life::drawn(0).number()), (None, 1));
        assert!(lives.hear(drive, Life::drawn(7)) && !lives.hear(drive, Life::drawn(8)));
        assert_eq!(lives.of(drive), Some(Life::drawn(7)));
        lives.clear();
        assert!(lives.hear(drive, Life::drawn(8)), "the next epoch");
    }
}
