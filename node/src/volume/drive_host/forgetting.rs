//! Forgetting a placement group that the drive has left: its extents go, one after the other.
//!
//! First the record says that the copy is partial, durably: whatever comes of the rest, the drive never counts as whole
//! for that group again before it is filled anew. The record itself stays, for the promise in it. A crash half-way is
//! nothing special; the caller says again that the group can do without.
//!
//! A configuration that names the drive meanwhile waits for the step that is under way, so that no extent goes that its
//! member has seen.

use super::*;

/// Groups that are forgotten at a time, each with one request of the store.
const FORGETTING_MAX: usize = 4;

impl DriveHost {
    /// The catalog says that, at this epoch, the placement group is whole and settled without this drive: all its copies
    /// are equal, and none is here. What the drive still has of it is forgotten.
    ///
    /// Nothing happens while the drive has a member of the group, or has taken part in this epoch or a later one: then the
    /// caller's view is old.
    pub fn handle_left(&mut self, now: Instant, group: GroupId, epoch: Epoch) {
        let has_stayed = self.members.contains_key(&group) && !self.leaving.contains(&group);
        let had_a_member = self.adapter.record(group).is_some();
        if has_stayed || !had_a_member || self.deferred.contains_key(&group) {
            return;
        }
        self.left.insert(group, epoch);
        self.begin_forgetting();
        self.run(now);
    }

    /// Begins with as many groups as may be under way, of those whose member has gone.
    pub(super) fn begin_forgetting(&mut self) {
        let adapter = &self.adapter;
        self.left.retain(|group, epoch| adapter.promised(*group) < *epoch);
        let is_idle = |group: &&GroupId| !self.members.contains_key(group) && adapter.jobs_of(**group) == 0;
        let room = FORGETTING_MAX.saturating_sub(adapter.forgetting());
        let next: Vec<GroupId> = self.left.keys().filter(is_idle).take(room).copied().collect();
        for group in next {
            self.left.remove(&group);
            self.adapter.begin_forgetting(group);
        }
    }

    /// Keeps a configuration that names the drive while extents of the group are being forgotten; says whether it does.
    pub(super) fn defer(&mut self, configuration: &Configuration, witnesses: &Witnesses) -> bool {
        let group = configuration.group;
        self.left.remove(&group);
        if self.members.contains_key(&group) || !self.adapter.stop_forgetting(group) {
            return false;
        }
        let known = self.deferred.get(&group).map_or(Epoch::ZERO, |(known, _)| known.epoch);
        if known < configuration.epoch {
            self.deferred.insert(group, (configuration.clone(), witnesses.clone()));
        }
        true
    }

    /// The group's extents are gone, or are left alone from now on: its member begins, if there is to be one.
    pub(super) fn handle_forgotten(&mut self, now: Instant, group: GroupId) {
        if let Some((configuration, witnesses)) = self.deferred.remove(&group)
            && self.make_member(now, group).is_ok()
        {
            let member = self.members.get_mut(&group).expect("it was just made");
            member.handle_witnesses(configuration.epoch, &witnesses);
            let taken = member.handle_configuration(now, &configuration);
            taken.expect("a new member takes a configuration that was checked when it came");
            self.update_leaving(group);
            self.drain(group);
        }
        self.begin_forgetting();
    }
}
