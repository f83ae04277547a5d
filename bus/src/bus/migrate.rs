//! Replicas go where they are needed: a primary without any living replica gets one from a group that has more than enough.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;

use super::Bus;
use crate::event::Role;
use crate::slot::GroupId;

/// Orphans are looked for when nothing has changed for this long, so that elections come first.
const MIGRATE_AFTER: Duration = Duration::from_secs(5);

impl Bus {
    /// Something has changed that may leave a primary without replicas.
    pub(super) fn consider_migration(&mut self, now: Instant) {
        let is_replica = self.places.values().any(|place| place.role == Role::Replica);
        if self.config.migrates && is_replica {
            self.migrate_at = Some(now + MIGRATE_AFTER);
        }
    }

    /// Moves this replica to an orphaned primary, if it is the one that should: of the groups with the most living replicas
    /// the first, and of its replicas the one with the smallest id. So no two move for one orphan.
    pub(super) fn tick_migration(&mut self, now: Instant) {
        if self.migrate_at.is_none_or(|at| at > now) {
            return;
        }
        self.migrate_at = None;
        if self.standing.held_since.is_none() {
            return;
        }
        let mut replicas: BTreeMap<GroupId, Vec<ServerId>> = BTreeMap::new();
        let mut has_any: BTreeMap<GroupId, usize> = BTreeMap::new();
        for member in self.members.sorted() {
            for group in &member.description.follows {
                *has_any.entry(*group).or_default() += 1;
                if !member.life.failed {
                    replicas.entry(*group).or_default().push(member.id);
                }
            }
        }
        let lives = |id| self.members.get(id).is_some_and(|member| !member.life.failed);
        // Only a group that once had replicas is an orphan: others are meant to have none.
        let is_orphan = |group: &GroupId| {
            let claim = self.claims.get(*group).filter(|claim| lives(claim.owner));
            claim.is_some() && self.claims.owned_by(*group) > 0 && !replicas.contains_key(group)
        };
        let orphan = has_any.keys().copied().find(is_orphan);
        let giver =
            replicas.iter().filter(|(group, _)| self.claims.get(**group).is_some_and(|claim| lives(claim.owner)));
        let giver = giver.max_by_key(|(group, ids)| (ids.len(), core::cmp::Reverse(**group)));
        let (Some(orphan), Some((giver, ids))) = (orphan, giver) else { return };
        if ids.len() > self.config.migration_barrier && ids.first() == Some(&self.identity.server) {
            let giver = *giver;
            // Both tables have room: one group goes, one comes.
            let left = self.unfollow(now, giver);
            let joined = self.follow(now, orphan);
            debug_assert!(left.is_ok() && joined.is_ok(), "it follows the giver and not the orphan");
            self.consider_migration(now);
        }
    }
}
