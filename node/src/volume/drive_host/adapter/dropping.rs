//! Dropping extents without blocks: what a client has discarded takes no place in the tables any more.
//!
//! The record of the member says up to which version that is safe ([`Record::may_drop`]). So a group is looked through when its
//! record was saved, and when its extents were listed, which happens whenever a member enters an epoch.

use super::*;

/// Extents of a placement group that are dropped at a time.
const DROPS_MAX: usize = 32;

impl Adapter {
    /// Drops some extents of a placement group that have no blocks, if there are any, and goes on until there are none.
    pub(super) fn drop_empty(&mut self, group: GroupId) {
        let Some(known) = self.groups.get(&group) else { return };
        let (Some(listed), 0) = (known.listed, known.drops) else { return };
        let newest = listed.max(known.completed);
        let Some(record) = self.record(group).and_then(|record| Record::decode(record, group, self.drive).ok()) else {
            return;
        };
        let is_due = |(extent, version): &(ExtentId, Version)| {
            record.may_drop(*version, newest) && !self.damaged.contains(extent) && !self.order.is_changing(*extent)
        };
        let due: Vec<_> = self.store.empty_extents(group).filter(is_due).take(DROPS_MAX).collect();
        for (extent, version) in due {
            self.groups.get_mut(&group).expect("it was just there").drops += 1;
            self.begin(group, StoreId(0), Work::Drop { extent, version });
        }
    }

    /// An extent was dropped, or stays as it was written again or the drive fails.
    pub(super) fn finish_drop(&mut self, slot: JobId, job: &Job, extent: ExtentId, is_done: bool) {
        let group = job.group;
        self.order.finish_change(job.arrival, group, extent, Sharing::Shared);
        if !self.order.is_changing(extent) {
            self.refused.remove(&extent);
        }
        self.release(slot, group);
        let known = self.groups.get_mut(&group).expect("a job has a group");
        known.drops -= 1;
        if is_done {
            self.drop_empty(group);
        }
    }
}
