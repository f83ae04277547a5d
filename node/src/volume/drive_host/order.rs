//! Order of requests to one drive: per extent for changes and reads, per placement group for lists.
//!
//! A store applies a change when its batch is durable, and a read before that moment does not see it. Replicas need more:
//! a read sees every change of its extent that was submitted before it. So a read waits here for those changes, and a
//! list waits for the earlier changes of its placement group. A change never waits for a read.
//!
//! Some changes take several requests to the store. Such a change is alone with its extent while it lasts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ashlar_placement::map::GroupId;
use ashlar_placement::rule::ExtentId;

/// Place of a job in the table of jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct JobId(pub(super) u32);

/// Number of a job in the order of arrival, over all extents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Arrival(pub(super) u64);

/// How a change shares its extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sharing {
    /// One request to the store, which keeps the order itself.
    Shared,
    /// Several requests: no other change and no read of the extent meanwhile.
    Alone,
}

/// Empty queues of extents that are kept for the next extents.
const SPARE_MAX: usize = 1_024;

/// What is under way on one extent.
#[derive(Debug, Default)]
struct Lane {
    /// Changes that are not done, ascending.
    open: VecDeque<Arrival>,
    /// Those of them that have not begun.
    waiting: VecDeque<(JobId, Sharing)>,
    /// Shared changes that are with the store.
    running: usize,
    is_taken: bool,
    /// Reads and the last change that they have to see, ascending.
    reads: VecDeque<(Option<Arrival>, JobId)>,
}

impl Lane {
    fn is_idle(&self) -> bool {
        self.open.is_empty() && self.reads.is_empty()
    }

    fn admits(&self, sharing: Sharing) -> bool {
        match sharing {
            Sharing::Shared => !self.is_taken,
            Sharing::Alone => !self.is_taken && self.running == 0,
        }
    }

    fn admit(&mut self, sharing: Sharing) {
        match sharing {
            Sharing::Shared => self.running += 1,
            Sharing::Alone => self.is_taken = true,
        }
    }

    fn shows(&self, last: Option<Arrival>) -> bool {
        !self.is_taken && last.is_none_or(|last| self.open.front().is_none_or(|first| *first > last))
    }
}

/// Changes and lists of one placement group.
#[derive(Debug, Default)]
struct GroupLane {
    open: BTreeSet<Arrival>,
    lists: VecDeque<(Option<Arrival>, JobId)>,
}

/// The order of one drive's requests. What it lets begin is given back by [`Order::poll_start`].
#[derive(Debug, Default)]
pub(super) struct Order {
    extents: BTreeMap<ExtentId, Lane>,
    groups: BTreeMap<GroupId, GroupLane>,
    spare: Vec<Lane>,
    starts: VecDeque<JobId>,
}

impl Order {
    /// The next job that may begin, in the order in which jobs were let in.
    pub(super) fn poll_start(&mut self) -> Option<JobId> {
        self.starts.pop_front()
    }

    /// A job that waits for nothing.
    pub(super) fn start(&mut self, job: JobId) {
        self.starts.push_back(job);
    }

    pub(super) fn handle_change(
        &mut self,
        job: JobId,
        arrival: Arrival,
        group: GroupId,
        extent: ExtentId,
        sharing: Sharing,
    ) {
        self.groups.entry(group).or_default().open.insert(arrival);
        let spare = &mut self.spare;
        let lane = self.extents.entry(extent).or_insert_with(|| spare.pop().unwrap_or_default());
        lane.open.push_back(arrival);
        if lane.waiting.is_empty() && lane.admits(sharing) {
            lane.admit(sharing);
            self.starts.push_back(job);
        } else {
            lane.waiting.push_back((job, sharing));
        }
    }

    pub(super) fn handle_read(&mut self, job: JobId, extent: ExtentId) {
        let Some(lane) = self.extents.get_mut(&extent) else { return self.starts.push_back(job) };
        let last = lane.open.back().copied();
        if lane.reads.is_empty() && lane.shows(last) {
            self.starts.push_back(job);
        } else {
            lane.reads.push_back((last, job));
        }
    }

    pub(super) fn handle_list(&mut self, job: JobId, group: GroupId) {
        let lane = self.groups.entry(group).or_default();
        match lane.open.last() {
            Some(last) => lane.lists.push_back((Some(*last), job)),
            None => self.starts.push_back(job),
        }
    }

    /// Whether changes of an extent are under way or wait.
    pub(super) fn is_changing(&self, extent: ExtentId) -> bool {
        self.extents.get(&extent).is_some_and(|lane| !lane.open.is_empty())
    }

    /// A change is done: what waited for it may begin.
    ///
    /// # Panics
    /// When it was not under way.
    pub(super) fn finish_change(&mut self, arrival: Arrival, group: GroupId, extent: ExtentId, sharing: Sharing) {
        let lane = self.extents.get_mut(&extent).expect("a change that is under way has its extent's lane");
        let place = lane.open.iter().position(|open| *open == arrival).expect("a change is done once");
        lane.open.remove(place);
        match sharing {
            Sharing::Shared => lane.running -= 1,
            Sharing::Alone => lane.is_taken = false,
        }
        while let Some((job, sharing)) = lane.waiting.front().copied()
            && lane.admits(sharing)
        {
            lane.waiting.pop_front();
            lane.admit(sharing);
            self.starts.push_back(job);
        }
        while let Some((last, job)) = lane.reads.front().copied()
            && lane.shows(last)
        {
            lane.reads.pop_front();
            self.starts.push_back(job);
        }
        if lane.is_idle() {
            let lane = self.extents.remove(&extent).expect("it was there above");
            if self.spare.len() < SPARE_MAX {
                self.spare.push(lane);
            }
        }
        self.finish_group_change(arrival, group);
    }

    fn finish_group_change(&mut self, arrival: Arrival, group: GroupId) {
        let lane = self.groups.get_mut(&group).expect("a change that is under way has its group's lane");
        assert!(lane.open.remove(&arrival), "a change is done once");
        while let Some((last, job)) = lane.lists.front().copied()
            && last.is_none_or(|last| lane.open.first().is_none_or(|first| *first > last))
        {
            lane.lists.pop_front();
            self.starts.push_back(job);
        }
    }

    /// A placement group has left the drive, and nothing of it is under way.
    pub(super) fn forget(&mut self, group: GroupId) {
        let lane = self.groups.remove(&group).unwrap_or_default();
        assert!(lane.open.is_empty() && lane.lists.is_empty(), "a group leaves when nothing of it is under way");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(order: &mut Order) -> Vec<u32> {
        core::iter::from_fn(|| order.poll_start()).map(|job| job.0).collect()
    }

    #[test]
    fn reads_wait_for_earlier_changes_and_changes_for_no_read() {
        let (mut order, group, extent) = (Order::default(), GroupId::default(), ExtentId::default());
        order.handle_change(JobId(1), Arrival(1), group, extent, Sharing::Shared);
        order.handle_change(JobId(2), Arrival(2), group, extent, Sharing::Shared);
        order.handle_read(JobId(3), extent);
        order.handle_change(JobId(4), Arrival(4), group, extent, Sharing::Shared);
        assert_eq!(starts(&mut order), [1, 2, 4]);
        order.finish_change(Arrival(2), group, extent, Sharing::Shared);
        order.finish_change(Arrival(4), group, extent, Sharing::Shared);
        assert_eq!(starts(&mut order), [0; 0], "the first change is not done");
        order.finish_change(Arrival(1), group, extent, Sharing::Shared);
        assert_eq!(starts(&mut order), [3]);
        assert!(order.extents.is_empty() && order.spare.len() == 1);
    }

    #[test]
    fn a_change_of_several_requests_is_alone() {
        let (mut order, group, extent) = (Order::default(), GroupId::default(), ExtentId::default());
        order.handle_change(JobId(1), Arrival(1), group, extent, Sharing::Shared);
        order.handle_change(JobId(2), Arrival(2), group, extent, Sharing::Alone);
        order.handle_change(JobId(3), Arrival(3), group, extent, Sharing::Shared);
        assert_eq!(starts(&mut order), [1]);
        order.finish_change(Arrival(1), group, extent, Sharing::Shared);
        order.handle_read(JobId(4), extent);
        assert_eq!(starts(&mut order), [2]);
        order.finish_change(Arrival(2), group, extent, Sharing::Alone);
        assert_eq!(starts(&mut order), [3], "the read sees the third change too");
        order.finish_change(Arrival(3), group, extent, Sharing::Shared);
        assert_eq!(starts(&mut order), [4]);
    }

    #[test]
    fn a_list_waits_for_earlier_changes_of_its_group() {
        let (mut order, group, extent) = (Order::default(), GroupId::default(), ExtentId::default());
        order.handle_list(JobId(0), group);
        order.handle_change(JobId(1), Arrival(1), group, extent, Sharing::Shared);
        order.handle_list(JobId(2), group);
        order.handle_change(JobId(3), Arrival(3), group, extent, Sharing::Shared);
        assert_eq!(starts(&mut order), [0, 1, 3]);
        order.finish_change(Arrival(1), group, extent, Sharing::Shared);
        assert_eq!(starts(&mut order), [2]);
        order.finish_change(Arrival(3), group, extent, Sharing::Shared);
        order.forget(group);
        assert!(order.groups.is_empty());
    }
}
