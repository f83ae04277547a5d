//! Forgetting the extents of a placement group: one is emptied and dropped at a time, page by page.
//!
//! The first step is the record: it says that the copy is partial before anything of it goes.

use super::*;

/// How far the forgetting of a placement group is.
#[derive(Debug)]
pub(super) struct Forgetting {
    /// The record, which says partial; to be saved first if there is one.
    record: Option<Vec<u8>>,
    step: ForgettingStep,
    /// Extents of the page that are still there, the next one last.
    extents: Vec<(ExtentId, Version)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ForgettingStep {
    Saves,
    Lists,
    Empties,
    Forgets,
}

impl Adapter {
    /// Begins to forget a placement group that has no member here and nothing under way.
    pub(in super::super) fn begin_forgetting(&mut self, group: GroupId) {
        let decoded = self.record(group).and_then(|record| Record::decode(record, group, self.drive).ok());
        let whole = decoded.filter(|record| !record.is_partial);
        let record = whole.map(|record| Record { is_partial: true, ..record }.encode(group, self.drive));
        let step = if record.is_some() { ForgettingStep::Saves } else { ForgettingStep::Lists };
        self.forgetting.insert(group);
        self.begin(group, StoreId(0), Work::Forget(Box::new(Forgetting { record, step, extents: Vec::new() })));
    }

    /// Ends it behind the step that is under way; says whether one is.
    pub(in super::super) fn stop_forgetting(&mut self, group: GroupId) -> bool {
        self.forgetting.remove(&group) || self.jobs_of(group) > 0
    }

    /// Groups that are being forgotten.
    pub(in super::super) fn forgetting(&self) -> usize {
        self.forgetting.len()
    }

    /// The epoch that the record of a group's member promises; zero if there is none.
    pub(in super::super) fn promised(&self, group: GroupId) -> Epoch {
        let decoded = self.record(group).and_then(|record| Record::decode(record, group, self.drive).ok());
        decoded.map_or(Epoch::ZERO, |record| record.promise.term)
    }

    /// The next request; none at the end, after a refusal, or when it was stopped.
    pub(super) fn advance_forgetting(
        &mut self,
        group: GroupId,
        forgetting: &mut Forgetting,
        result: Result<Reply, Error>,
    ) -> Option<RequestKind> {
        let reply = result.ok()?;
        match forgetting.step {
            ForgettingStep::Saves => {
                let record = forgetting.record.take().expect("a record is saved once");
                self.keep_record(group, record);
            }
            ForgettingStep::Lists => {
                let Reply::Extents { extents, .. } = reply else { unreachable!("a list is answered with extents") };
                if extents.is_empty() {
                    return None;
                }
                forgetting.extents = extents;
                forgetting.extents.reverse();
            }
            ForgettingStep::Empties => {
                forgetting.step = ForgettingStep::Forgets;
                let (extent, version) = *forgetting.extents.last()?;
                return Some(RequestKind::ForgetExtent { extent, version });
            }
            ForgettingStep::Forgets => {
                let (extent, _) = forgetting.extents.pop()?;
                self.damaged.remove(&extent);
            }
        }
        if !self.forgetting.contains(&group) {
            return None;
        }
        Some(match forgetting.extents.last() {
            Some((extent, version)) => {
                forgetting.step = ForgettingStep::Empties;
                steps::empty(group, *extent, *version)
            }
            None => {
                forgetting.step = ForgettingStep::Lists;
                RequestKind::List { group, after: None }
            }
        })
    }

    /// Nothing of it is under way any more.
    pub(super) fn end_forgetting(&mut self, group: GroupId) {
        self.forgetting.remove(&group);
        if let Some(known) = self.groups.get_mut(&group) {
            (known.listed, known.completed) = (None, Version::ZERO);
        }
        self.done.push_back(Done::Forgotten(group));
    }
}

impl Forgetting {
    pub(super) fn first_request(&self, group: GroupId) -> RequestKind {
        match &self.record {
            Some(record) => put_record(group, record),
            None => RequestKind::List { group, after: None },
        }
    }
}
