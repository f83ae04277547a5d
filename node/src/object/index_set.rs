//! The placement groups of the index: a companion of the first set, on the same drives, with one copy more than objects have parity
//! shards, so that as many drives may be lost of the index as of objects.
//!
//! The server with the primary of the first set's first placement group proposes it, and its next maps as drives come and go.
//! A bucket that is made once it is there says so by its id ([`bucket_id`]), and has its range in the companion. Buckets from before
//! stay where they are, with the first set's copies.

use core::time::Duration;
use std::collections::BTreeSet;

use ashlar_catalog::change::Change;
use ashlar_catalog::error::Refusal;
use ashlar_catalog::plan::placement::{plan_reshaped, plan_set};
use ashlar_catalog::record::Feature;
use ashlar_catalog::server::{Drive, Server, ServerState, parity_shards};
use ashlar_catalog::set::Copies;
use ashlar_catalog::state::State;
use ashlar_grid::seam::Runtime;
use ashlar_object::index::key::BucketId;
use ashlar_placement::domains::Conflict;
use ashlar_placement::map::{self, GroupId, PgId, SetId, Shape};
use ashlar_placement::rule::choose_pg;
use ashlar_wire::id::ServerId;

use super::buckets::buckets_of;
use super::service::ObjectNode;
use crate::Node;
use crate::catalog::{FIRST_SET, fills};

/// The set of the index.
pub(super) const INDEX_SET: SetId = FIRST_SET.companion();
/// Most placement groups of it, and so ranges.
const GROUPS_MAX: u32 = 64;
/// Fewest acting copies with which a commit is acknowledged, where there are so many.
const WRITE_MIN: u8 = 2;
/// How ids of buckets begin that have their range in the companion. As long as no id that was drawn by chance begins so.
const MARK: [u8; 8] = *b"ashlarix";
/// The feature that servers must know before there is a companion.
const FEATURE: &str = "index set";
const RELEASE_MIN: u32 = 2;
/// How often it is looked whether something is to be proposed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The id of a new bucket, from chance.
pub(super) fn bucket_id(state: Option<&State>, mut drawn: [u8; 16]) -> BucketId {
    if state.is_some_and(|state| state.set(INDEX_SET).is_some()) {
        drawn[..MARK.len()].copy_from_slice(&MARK);
    }
    BucketId(drawn)
}

/// The placement group in whose range a bucket's index lies.
pub(super) fn range_of(state: &State, bucket: BucketId) -> Option<GroupId> {
    let set = if bucket.0.starts_with(&MARK) { INDEX_SET } else { FIRST_SET };
    let groups = state.set(set)?.first.shape().pgs;
    Some(GroupId { set, pg: choose_pg(&bucket.0, groups) })
}

/// The placement groups that may have a range: those of the companion, and those in which buckets from before lie. Until there is
/// a companion, new buckets may lie in any of the first set.
pub(super) fn ranges(state: &State) -> BTreeSet<GroupId> {
    let all = |set| {
        let pgs = state.set(set).map_or(0, |set| set.first.shape().pgs);
        (0..pgs).map(move |pg| GroupId { set, pg: PgId(pg) })
    };
    if state.set(INDEX_SET).is_none() {
        return all(FIRST_SET).collect();
    }
    let old = buckets_of(state).filter_map(|(_, bucket)| range_of(state, bucket.id));
    all(INDEX_SET).chain(old).collect()
}

/// How the placement groups of the index should be, of which the drives have places for.
fn shape(state: &State) -> Option<(Shape, u8)> {
    let home = state.set(FIRST_SET)?.target.shape();
    let holds = |drive: &&Drive| {
        let server = state.server(drive.server).map(|server| server.state);
        let leaves = matches!(server, None | Some(ServerState::Draining | ServerState::Dead));
        drive.set == Some(FIRST_SET) && drive.state.in_map() != map::DriveState::Out && !leaves
    };
    let drives: Vec<&Drive> = state.drives().filter(holds).collect();
    let servers: BTreeSet<ServerId> = drives.iter().map(|drive| drive.server).collect();
    // One more than commits need, also where disks have fewer copies: puts go on when a drive is lost.
    let wanted = home.width.max(parity_shards(drives.len()) + 1).max(WRITE_MIN + 1);
    let width = usize::from(wanted).min(drives.len());
    let conflict = if servers.len() >= width { Conflict::Server } else { Conflict::Drive };
    let width = u8::try_from(width).ok().filter(|width| *width > 0)?;
    Some((Shape { pgs: home.pgs.min(GROUPS_MAX), width, conflict }, WRITE_MIN.min(width)))
}

/// What is to be proposed next; nothing if all is as it should be, or something is being filled.
fn plan(state: &State) -> Result<Option<Change>, Refusal> {
    let (Some(home), Some((shape, write_min))) = (state.set(FIRST_SET), shape(state)) else { return Ok(None) };
    let Some(set) = state.set(INDEX_SET) else {
        if !state.uses(FEATURE) {
            let is_old = |server: &Server| server.state != ServerState::Dead && server.release < RELEASE_MIN;
            if state.servers().any(is_old) {
                return Ok(None);
            }
            return Ok(Some(Change::UseFeature(Feature { name: FEATURE.into(), release_min: RELEASE_MIN })));
        }
        let copies = Copies { write_min, acting_min: 1 };
        return plan_set(state, INDEX_SET, shape, home.class, copies, &[]).map(Some);
    };
    if state.pgs_of(INDEX_SET).any(|(_, config)| fills(state, &config, &BTreeSet::new())) {
        return Ok(None);
    }
    plan_reshaped(state, set, &[], shape)
}

impl<R: Runtime> ObjectNode<R> {
    /// Whether new buckets have their ranges in the companion.
    pub(super) fn has_index_set(&self) -> bool {
        self.catalog().state_now().is_some_and(|state| state.set(INDEX_SET).is_some())
    }

    /// Proposes the companion, and its maps, again and again.
    pub(super) async fn keep_index_set(self, node: Node<R>) {
        while !self.is_over() {
            node.runtime().sleep_until(node.runtime().now() + LOOK_EVERY).await;
            let Some(state) = self.catalog().state_now() else { continue };
            let first = state.pg(GroupId { set: FIRST_SET, pg: PgId(0) });
            let is_mine = first.and_then(|config| state.drive(config.primary)).map(|drive| drive.server);
            if is_mine != Some(node.id()) {
                continue;
            }
            match plan(&state) {
                Ok(Some(change)) => {
                    if let Err(error) = self.catalog().propose(change).await {
                        tracing::debug!(%error, "a change of the index's placement groups was not taken: proposed again in a second");
                    }
                }
                Ok(None) => {}
                // With the drives that are left there is no other map: what is there stays.
                Err(refusal) => tracing::debug!(%refusal, "there is no other map of the index"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::RELEASE;
    use ashlar_catalog::change::{Command, ProposalId};
    use ashlar_catalog::server::{DriveClass, DriveState};
    use ashlar_placement::map::{Rack, Zone};
    use ashlar_wire::id::{ClusterId, DriveId};

    struct Sample(State, u8);

    impl Sample {
        fn must(&mut self, change: Change) {
            self.1 += 1;
            let command = Command { id: ProposalId([self.1; 16]), seen: self.0.version(), change };
            self.0.apply(&command).unwrap();
        }

        fn add_server(&mut self, number: u8) {
            self.must(Change::AddServer(Server {
                id: ServerId::from_bytes([number; 16]),
                address: "a:1".into(),
                rack: Rack(0),
                zone: Zone(0),
                release: RELEASE,
                state: ServerState::Active,
            }));
        }

        fn add_drive(&mut self, number: u8, server: u8) -> DriveId {
            let id = DriveId::from_bytes([number; 16]);
            let (server, class) = (ServerId::from_bytes([server; 16]), DriveClass::Ssd);
            let state = DriveState::Active;
            self.must(Change::AddDrive(Drive { id, server, class, size_bytes: 1 << 32, state, set: None }));
            id
        }

        fn settle(&mut self) {
            for _ in 0..5 {
                if let Some(change) = plan(&self.0).unwrap() {
                    self.must(change);
                }
            }
        }

        fn index_shape(&self) -> (u8, Conflict) {
            let shape = self.0.set(INDEX_SET).unwrap().target.shape();
            (shape.width, shape.conflict)
        }
    }

    #[test]
    fn the_index_has_a_copy_more_than_objects_have_parity() {
        let mut sample = Sample(State::new(ClusterId::from_bytes([9; 16])), 0);
        let old = bucket_id(Some(&sample.0), [5; 16]);
        assert_eq!((old, range_of(&sample.0, old), plan(&sample.0)), (BucketId([5; 16]), None, Ok(None)));
        let mut drives = Vec::new();
        for number in 1..=3 {
            sample.add_server(number);
            drives.push(sample.add_drive(number, number));
        }
        let shape = Shape { pgs: 128, width: 3, conflict: Conflict::Server };
        let copies = Copies { write_min: 2, acting_min: 1 };
        let change = plan_set(&sample.0, FIRST_SET, shape, DriveClass::Ssd, copies, &drives).unwrap();
        sample.must(change);
        assert_eq!(ranges(&sample.0).len(), 128);
        let id = ServerId::from_bytes([3; 16]);
        sample.must(Change::UpdateServer { id, address: "a:1".into(), release: 1 });
        assert_eq!(plan(&sample.0), Ok(None), "all servers have to know it");
        sample.must(Change::UpdateServer { id, address: "a:1".into(), release: RELEASE });
        assert!(matches!(plan(&sample.0), Ok(Some(Change::UseFeature(_)))));
        sample.settle();
        assert_eq!(sample.index_shape(), (3, Conflict::Server));
        assert_eq!(ranges(&sample.0).len(), 64);
        assert_eq!(range_of(&sample.0, old).map(|group| group.set), Some(FIRST_SET), "it stays");
        let new = bucket_id(Some(&sample.0), [5; 16]);
        assert_eq!((new.0.starts_with(b"ashlarix"), &new.0[8..]), (true, &[5; 8][..]));
        assert_eq!(range_of(&sample.0, new).map(|group| group.set), Some(INDEX_SET));
        // A fourth server, and then three more drives for each.
        sample.add_server(4);
        let added: Vec<DriveId> =
            (0..13).map(|number| sample.add_drive(10 + number, if number == 0 { 4 } else { 1 + number % 4 })).collect();
        let target = ashlar_catalog::plan::placement::plan_target(&sample.0, FIRST_SET, &added).unwrap().unwrap();
        sample.must(target);
        sample.settle();
        assert_eq!(sample.index_shape(), (5, Conflict::Drive), "sixteen drives, four parity shards, four servers");
        sample.add_server(5);
        let last = sample.add_drive(40, 5);
        let target = ashlar_catalog::plan::placement::plan_target(&sample.0, FIRST_SET, &[last]).unwrap().unwrap();
        sample.must(target);
        sample.settle();
        assert_eq!(sample.index_shape(), (5, Conflict::Server));
    }

    #[test]
    fn the_index_can_lose_a_drive_where_disks_have_fewer_copies() {
        for (width, drives_first, then) in [(1, 1, 1), (2, 2, 2)] {
            let mut sample = Sample(State::new(ClusterId::from_bytes([9; 16])), 0);
            let drives: Vec<DriveId> = (1..=drives_first)
                .map(|number| {
                    sample.add_server(number);
                    sample.add_drive(number, number)
                })
                .collect();
            let shape = Shape { pgs: 128, width, conflict: Conflict::Drive };
            let copies = Copies { write_min: 1, acting_min: 1 };
            sample.must(plan_set(&sample.0, FIRST_SET, shape, DriveClass::Ssd, copies, &drives).unwrap());
            sample.settle();
            assert_eq!(sample.index_shape().0, then, "there are no more drives");
            for number in drives_first + 1..=3 {
                sample.add_server(number);
                let added = sample.add_drive(number, number);
                let target =
                    ashlar_catalog::plan::placement::plan_target(&sample.0, FIRST_SET, &[added]).unwrap().unwrap();
                sample.must(target);
            }
            sample.settle();
            assert_eq!(sample.index_shape(), (3, Conflict::Server), "two of them take a put");
        }
    }
}
