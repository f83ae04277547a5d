//! Replicas go where they are needed: a primary without any living replica gets one from a group that has more than enough.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;
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
    /// the first, and of its replicas the one with the smallest id that is not the orphan's primary. So no two move for one orphan.
    pub(super) fn tick_migration(&mut self, now: Instant) {
        if self.migrate_at.is_none_or(|at| at > now) {
            return;
        }
        self.migrate_at = None;
        if self.standing.held_since.is_none() {
            return;
        }
        let mut replicas: BTreeMap<GroupId, Vec<ServerId>> = BTreeMap::new();
        let mut has_any: BTreeSet<GroupId> = BTreeSet::new();
        for member in self.members.sorted() {
            for group in &member.description.follows {
                has_any.insert(*group);
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
        let Some(orphan) = has_any.into_iter().find(is_orphan) else { return };
        let needy = self.claims.get(orphan).map(|claim| claim.owner);
        let Some((giver, mover)) = self.choose_giver(&replicas, needy) else { return };
        // One group goes and one comes: there is room unless more fell to this member than it may follow.
        let followed = self.places.values().filter(|place| place.role == Role::Replica).count();
        if mover == self.identity.server && followed <= self.config.follows_max {
            let left = self.unfollow(now, giver);
            let joined = self.follow(now, orphan);
            assert!(left.is_ok() && joined.is_ok(), "it follows the giver, and is not the orphan's primary");
            self.consider_migration(now);
        }
    }

    /// Of the groups with more replicas than they keep that can spare one, the one with the most, and who goes: its first
    /// replica that is not the primary in need itself.
    fn choose_giver(
        &self,
        replicas: &BTreeMap<GroupId, Vec<ServerId>>,
        needy: Option<ServerId>,
    ) -> Option<(GroupId, ServerId)> {
        let lives = |id| self.members.get(id).is_some_and(|member| !member.life.failed);
        let givers = replicas.iter().filter_map(|(group, ids)| {
            let is_served = self.claims.get(*group).is_some_and(|claim| lives(claim.owner));
            let mover = ids.iter().copied().find(|id| Some(*id) != needy);
            let spare = ids.len() > self.config.migration_barrier && is_served;
            mover.filter(|_| spare).map(|mover| (ids.len(), *group, mover))
        });
        let best = givers.max_by_key(|(count, group, _)| (*count, Reverse(*group)));
        best.map(|(_, group, mover)| (group, mover))
    }
}
