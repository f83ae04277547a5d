//! How many extents a drive reads or rewrites whole at a time, for copies to and from others.
//!
//! A member that comes back has hundreds of extents compared, each of 1 MiB. All at once they would stand before every write of a client
//! in the drive's queue, for seconds; a few at a time keep the drive as busy.

use std::collections::VecDeque;

use super::order::JobId;

/// So many at a time.
pub(super) const WHOLE_MAX: usize = 4;

/// Jobs of one kind: those that have begun, and those that wait, in order.
#[derive(Debug, Default)]
pub(super) struct Pace {
    begun: usize,
    waiting: VecDeque<JobId>,
}

impl Pace {
    /// Whether a job may begin now. Else it waits until [`Pace::end`] gives it back.
    pub(super) fn begin(&mut self, job: JobId) -> bool {
        let may_begin = self.begun < WHOLE_MAX;
        if may_begin {
            self.begun += 1;
        } else {
            self.waiting.push_back(job);
        }
        may_begin
    }

    /// A job that had begun is done: the one that begins in its place.
    pub(super) fn end(&mut self) -> Option<JobId> {
        assert!(self.begun > 0, "what ends has begun");
        let next = self.waiting.pop_front();
        self.begun -= usize::from(next.is_none());
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_begin_and_the_others_follow_in_order() {
        let mut pace = Pace::default();
        let begun: Vec<bool> = (0..6).map(|number| pace.begin(JobId(number))).collect();
        assert_eq!(begun, [true, true, true, true, false, false]);
        assert_eq!((pace.end(), pace.end(), pace.end()), (Some(JobId(4)), Some(JobId(5)), None));
        assert!(pace.begin(JobId(6)) && !pace.begin(JobId(7)));
    }
}
