//! Where an extent is: placement tables, and the configurations that groups have now.

use std::collections::BTreeMap;
use std::sync::Arc;

use ashlar_placement::choose::PgTable;
use ashlar_placement::map::{GroupId, SetId};
use ashlar_placement::part::{Location, Part, Volume};
use ashlar_wire::epoch::Epoch;

use crate::error::Error;
use crate::message::GroupConfig;

/// Which placement group has an extent.
#[derive(Debug)]
enum Placement {
    /// By the tables of every set in which the volume has a part.
    Tables(BTreeMap<SetId, Arc<PgTable>>),
    /// One group has them all. Its configuration is always known.
    Pinned(GroupId),
}

/// A volume and the way to its extents.
#[derive(Debug)]
pub(super) struct Routes {
    volume: Volume,
    placement: Placement,
    /// Of groups of these tables only, so there are no more of them than groups.
    configs: BTreeMap<GroupId, GroupConfig>,
}

/// Whether a configuration moved anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Learned {
    News,
    Nothing,
}

impl Routes {
    pub(super) fn new(volume: Volume, tables: Vec<Arc<PgTable>>) -> Result<Self, Error> {
        let tables: BTreeMap<SetId, Arc<PgTable>> = tables.into_iter().map(|table| (table.set(), table)).collect();
        let missing = volume.parts().find(|part| !tables.contains_key(&part.set));
        match missing {
            Some(part) => Err(Error::UnknownSet(part.set)),
            None => Ok(Self { volume, placement: Placement::Tables(tables), configs: BTreeMap::new() }),
        }
    }

    pub(super) fn pinned(volume: Volume, group: GroupId, config: GroupConfig) -> Self {
        Self { volume, placement: Placement::Pinned(group), configs: BTreeMap::from([(group, config)]) }
    }

    pub(super) const fn volume(&self) -> &Volume {
        &self.volume
    }

    pub(super) fn grow(&mut self, part: Part) -> Result<(), Error> {
        let is_known = match &self.placement {
            Placement::Tables(tables) => tables.contains_key(&part.set),
            Placement::Pinned(group) => group.set == part.set,
        };
        if !is_known {
            return Err(Error::UnknownSet(part.set));
        }
        // Empty parts, too many of them and sizes beyond 64 bits are refused, and nothing is changed then.
        self.volume.grow(part).map_err(|_| Error::BadPart)
    }

    /// Takes a table if it is not older than the one of its set.
    pub(super) fn handle_table(&mut self, table: Arc<PgTable>) -> Result<(), Error> {
        let set = table.set();
        let pgs = table.map().shape().pgs;
        let Placement::Tables(tables) = &mut self.placement else { return Err(Error::OtherTable(set)) };
        match tables.get(&set) {
            Some(known) if known.map().shape().pgs != pgs => Err(Error::OtherTable(set)),
            Some(known) if known.epoch() > table.epoch() => Ok(()),
            _ => {
                tables.insert(set, table);
                Ok(())
            }
        }
    }

    /// Takes what the catalog says, if it is not older than what is known.
    pub(super) fn handle_config(&mut self, group: GroupId, config: GroupConfig) -> Learned {
        self.learn(group, config, |known| config.epoch >= known)
    }

    /// Takes what a server says, if it is newer than what is known.
    pub(super) fn handle_hint(&mut self, group: GroupId, config: GroupConfig) -> Learned {
        self.learn(group, config, |known| config.epoch > known)
    }

    fn learn(&mut self, group: GroupId, config: GroupConfig, is_later: impl Fn(Epoch) -> bool) -> Learned {
        let is_known = match &self.placement {
            Placement::Tables(tables) => {
                tables.get(&group.set).is_some_and(|table| group.pg.0 < table.map().shape().pgs)
            }
            Placement::Pinned(pinned) => *pinned == group,
        };
        let known = self.configs.get(&group);
        let is_later = is_later(known.map_or(Epoch::ZERO, |known| known.epoch));
        if !is_known || !is_later || known == Some(&config) {
            return Learned::Nothing;
        }
        self.configs.insert(group, config);
        Learned::News
    }

    /// Placement groups that may have extents of the volume.
    pub(super) fn groups(&self) -> usize {
        match &self.placement {
            Placement::Tables(tables) => {
                let sets: std::collections::BTreeSet<SetId> = self.volume.parts().map(|part| part.set).collect();
                sets.iter().map(|set| tables[set].map().shape().pgs as usize).sum()
            }
            Placement::Pinned(_) => 1,
        }
    }

    /// The place of a byte within the volume, and its group.
    ///
    /// # Panics
    /// When it is behind the end.
    pub(super) fn place(&self, offset: u64) -> (Location, GroupId) {
        let location = self.volume.locate(offset).expect("ranges were compared with the size");
        let tables = match &self.placement {
            Placement::Tables(tables) => tables,
            Placement::Pinned(group) => return (location, *group),
        };
        let table = tables.get(&location.set).expect("each part has the table of its set");
        let route = self.volume.route(location, table).expect("the table is of the set");
        (location, GroupId { set: location.set, pg: route.pg })
    }

    /// Who to ask: who leads the group as far as is known, else its preferred primary under no epoch.
    pub(super) fn leader(&self, group: GroupId) -> GroupConfig {
        if let Some(config) = self.configs.get(&group) {
            return *config;
        }
        let Placement::Tables(tables) = &self.placement else {
            unreachable!("the configuration of a pinned group is known")
        };
        let table = tables.get(&group.set).expect("each part has the table of its set");
        let drive = table.drives(group.pg).next().expect("a group has a seat");
        GroupConfig { epoch: Epoch::ZERO, drive: drive.id, server: drive.server }
    }
}
