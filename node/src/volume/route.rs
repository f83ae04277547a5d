//! Placement groups by the catalog: which one has an extent, and which drives a group can do without.
//!
//! A request of another server names its placement group. A wrong name would make an extent in a group that never finds it
//! again, so the name is compared with this server's own reckoning before a drive hears of the request.

use std::collections::BTreeMap;
use std::sync::Arc;

use ashlar_catalog::set::{PgConfig, Set};
use ashlar_catalog::state::State;
use ashlar_placement::choose::PgTable;
use ashlar_placement::map::{GroupId, SetId};
use ashlar_placement::part;
use ashlar_placement::rule::ExtentId;
use ashlar_wire::id::{DriveId, VolumeId};

/// Volumes that are remembered; all are forgotten when there are more.
const VOLUMES_MAX: usize = 4_096;

/// Volumes and tables that were looked up, so that a request costs two look-ups in maps.
#[derive(Debug, Default)]
pub(super) struct RouteCache {
    /// With the size for which the volume was placed.
    volumes: BTreeMap<VolumeId, (u64, Arc<part::Volume>)>,
    tables: BTreeMap<SetId, Arc<PgTable>>,
}

impl RouteCache {
    /// The placement group of an extent; nothing if the catalog, as far as this server knows it, has no such extent.
    pub(super) fn group(&mut self, state: &State, extent: ExtentId) -> Option<GroupId> {
        let record = state.volume(extent.volume)?;
        let known = self.volumes.get(&extent.volume).filter(|(size, _)| *size == record.size_bytes);
        let placed = match known {
            Some((_, placed)) => Arc::clone(placed),
            None => {
                if self.volumes.len() >= VOLUMES_MAX {
                    self.volumes.clear();
                }
                let placed = Arc::new(record.placed().ok()?);
                self.volumes.insert(extent.volume, (record.size_bytes, Arc::clone(&placed)));
                placed
            }
        };
        let offset = extent.extent.0.checked_mul(placed.rule().extent_size.bytes())?;
        let location = placed.locate(offset).ok()?;
        // The number of placement groups of a set is fixed, so the first map's is that of all later ones.
        let table = match self.tables.get(&location.set) {
            Some(table) => Arc::clone(table),
            None => {
                let table = Arc::new(PgTable::new((*state.set(location.set)?.first).clone()));
                self.tables.insert(location.set, Arc::clone(&table));
                table
            }
        };
        let route = placed.route(location, &table).ok()?;
        Some(GroupId { set: location.set, pg: route.pg })
    }
}

/// Whether a placement group has all its copies, settled and equal, and none of them on this drive.
pub(super) fn is_whole_without(set: &Set, config: &PgConfig, drive: DriveId) -> bool {
    let is_full = config.acting.len() >= set.first.shape().width();
    is_full && config.learners.is_empty() && config.previous.is_empty() && !config.is_member(drive)
}

#[cfg(test)]
mod tests {
    use ashlar_catalog::change::{Change, Command, ProposalId};
    use ashlar_catalog::plan::placement::plan_set;
    use ashlar_catalog::server::{Drive, DriveClass, DriveState, Server, ServerState};
    use ashlar_catalog::set::Copies;
    use ashlar_catalog::volume::{Generation, VolumeClass, VolumeRecord};
    use ashlar_placement::domains::Conflict;
    use ashlar_placement::map::{PgId, Rack, Shape, Zone};
    use ashlar_placement::part::Part;
    use ashlar_placement::rule::{Extent, ExtentSize};
    use ashlar_wire::id::{ClusterId, ServerId};

    use super::*;

    const VOLUME: VolumeId = VolumeId::from_bytes([7; 16]);

    fn drive(number: u8) -> DriveId {
        DriveId::from_bytes([number; 16])
    }

    fn apply(state: &mut State, change: Change) {
        let id = ProposalId(u128::from(state.version().0 + 1).to_be_bytes());
        state.apply(&Command { id, seen: state.version(), change }).unwrap();
    }

    fn state() -> State {
        let mut state = State::new(ClusterId::from_bytes([1; 16]));
        for number in 1..=4 {
            let id = ServerId::from_bytes([number; 16]);
            let (zone, rack, address) = (Zone(number.into()), Rack(number.into()), format!("{number}:1"));
            let server = Server { id, address, zone, rack, release: 1, state: ServerState::Active };
            apply(&mut state, Change::AddServer(server));
            let (class, size_bytes) = (DriveClass::Ssd, 1 << 40);
            let added =
                Drive { id: drive(number), server: id, class, size_bytes, state: DriveState::Active, set: None };
            apply(&mut state, Change::AddDrive(added));
        }
        let shape = Shape { pgs: 16, width: 3, conflict: Conflict::Server };
        let copies = Copies { write_min: 2, acting_min: 1 };
        let set = plan_set(&state, SetId(1), shape, DriveClass::Ssd, copies, &[]).unwrap();
        apply(&mut state, set);
        let volume = VolumeRecord {
            id: VOLUME,
            name: "volume".into(),
            class: VolumeClass::Ssd,
            extent_size: ExtentSize::DEFAULT,
            size_bytes: 100 << 20,
            parts: vec![Part { set: SetId(1), extents: 100 }],
            generation: Generation(0),
            attached: None,
        };
        apply(&mut state, Change::CreateVolume(volume));
        state
    }

    #[test]
    fn extents_of_the_catalogs_volumes_have_groups() {
        let (state, mut cache) = (state(), RouteCache::default());
        let extent = |number| ExtentId { volume: VOLUME, extent: Extent(number) };
        let groups: Vec<_> = (0..100).map(|number| cache.group(&state, extent(number))).collect();
        assert!(groups.iter().all(|group| group.is_some_and(|group| group.pg < PgId(16))), "{groups:?}");
        assert!(groups.iter().any(|group| *group != groups[0]), "more than one");
        assert_eq!(cache.group(&state, extent(3)), RouteCache::default().group(&state, extent(3)));
        assert_eq!(cache.group(&state, extent(100)), None, "behind the end");
        assert_eq!(cache.group(&state, extent(u64::MAX)), None);
        assert_eq!(cache.group(&state, ExtentId { volume: VolumeId::default(), extent: Extent(0) }), None);
    }

    #[test]
    fn what_a_group_can_do_without() {
        let state = state();
        let set = state.set(SetId(1)).unwrap();
        let config = state.pg(GroupId { set: SetId(1), pg: PgId(0) }).unwrap();
        let other = (1..=4).map(drive).find(|drive| !config.is_member(*drive)).unwrap();
        assert!(is_whole_without(set, &config, other));
        assert!(!is_whole_without(set, &config, config.primary));
        let few = PgConfig { acting: config.acting[..2].to_vec(), ..config.clone() };
        let moving = PgConfig { previous: vec![other], ..config.clone() };
        let filling = PgConfig { learners: vec![drive(9)], ..config };
        for config in [few, moving, filling] {
            assert!(!is_whole_without(set, &config, other), "{config:?}");
        }
    }
}
