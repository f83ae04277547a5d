//! Placement groups in the admin API: which drives hold the copies of each, and whether all copies are there.
//!
//! `GET /v1/groups` lists them as this server knows the catalog. A server that is cut off shows what it knew last.

use ashlar_catalog::set::PgConfig;
use ashlar_catalog::state::State;
use ashlar_placement::choose::PgTable;
use ashlar_placement::map::{GroupId, PgId};
use ashlar_wire::id::DriveId;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Response, StatusCode};
use serde::{Deserialize, Serialize};

use super::routes::{json, refuse};
use super::{Front, catalog};

/// A placement group, as the admin API shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupView {
    /// Its set of drives.
    pub set: u32,
    /// Whether it is one of the index of objects, which are counted by themselves.
    #[serde(default)]
    pub index: bool,
    /// Its number in the set.
    pub group: u32,
    /// Number of its configuration; greater after each change.
    pub epoch: u64,
    /// The drive whose server orders writes.
    pub primary: String,
    /// Drives that have every acknowledged write.
    pub acting: Vec<String>,
    /// Drives that are being filled.
    pub learners: Vec<String>,
    /// Drives that acted before, hold old data, and are remembered until all copies are there again.
    pub previous: Vec<String>,
    /// How many copies there are to be.
    pub copies: usize,
    /// Whether that many act and nothing is being filled.
    pub whole: bool,
}

impl GroupView {
    fn new(group: GroupId, copies: usize, config: &PgConfig) -> Self {
        let ids = |drives: &[DriveId]| drives.iter().map(DriveId::to_string).collect();
        Self {
            set: group.set.home().0,
            index: group.set.is_companion(),
            group: group.pg.0,
            epoch: config.epoch.0,
            primary: config.primary.to_string(),
            acting: ids(&config.acting),
            learners: ids(&config.learners),
            previous: ids(&config.previous),
            copies,
            whole: config.acting.len() >= copies && config.learners.is_empty() && config.previous.is_empty(),
        }
    }
}

/// The placement groups of all sets.
pub(super) async fn list(front: &Front) -> Response<Full<Bytes>> {
    let Some(drives) = front.drives.as_ref() else {
        return refuse(StatusCode::CONFLICT, "no_drives", "this server has no drive: ask one that has");
    };
    catalog::state(drives.volumes.catalog())
        .await
        .map_or_else(|refusal| refusal, |state| json(StatusCode::OK, &views(&state)))
}

/// All of them, as the catalog has them.
pub(super) fn views(state: &State) -> Vec<GroupView> {
    let mut views = Vec::new();
    for set in state.sets() {
        let table = PgTable::new((*set.target).clone());
        let view = |(pg, config): (PgId, PgConfig)| {
            GroupView::new(GroupId { set: set.id, pg }, table.drives(pg).count(), &config)
        };
        views.extend(state.pgs_of(set.id).map(view));
    }
    views
}

/// How many of them lack copies, or have copies that are being filled.
pub(super) fn degraded(views: &[GroupView]) -> usize {
    views.iter().filter(|view| !view.whole).count()
}

#[cfg(test)]
mod tests {
    use ashlar_placement::map::SetId;
    use ashlar_wire::epoch::Epoch;

    use super::*;

    fn drive(number: u8) -> DriveId {
        DriveId::from_bytes([number; 16])
    }

    #[test]
    fn a_group_is_whole_with_all_copies_and_nothing_under_way() {
        let acting = vec![drive(1), drive(2), drive(3)];
        let (learners, previous) = (Vec::new(), Vec::new());
        let whole = PgConfig { epoch: Epoch(9), acting, primary: drive(2), learners, previous };
        let view = |config: &PgConfig| GroupView::new(GroupId { set: SetId(4), pg: PgId(5) }, 3, config);
        let GroupView { set: of, index, group, epoch, primary, copies, whole: is_whole, .. } = view(&whole);
        assert_eq!((of, index, group, epoch, copies, is_whole), (4, false, 5, 9, 3, true));
        let of_index = GroupView::new(GroupId { set: SetId(4).companion(), pg: PgId(5) }, 3, &whole);
        assert_eq!((of_index.set, of_index.index, of_index.group), (4, true, 5));
        assert_eq!(primary, drive(2).to_string());
        let few = PgConfig { acting: vec![drive(2), drive(3)], ..whole.clone() };
        let filling = PgConfig { learners: vec![drive(4)], ..whole.clone() };
        let remembered = PgConfig { previous: vec![drive(4)], ..whole };
        for config in [few, filling, remembered] {
            assert!(!view(&config).whole, "{config:?}");
        }
    }
}
