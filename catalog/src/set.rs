//! Sets, and the configuration of each placement group: who holds its data now.
//!
//! A set has two placement maps. By the *first* map its placement groups began; the *target* map says where data should
//! be. A placement group whose configuration never changed has no record: its acting list is that of the first map, at
//! the set's first epoch. So a fresh set costs the catalog 45 bytes a drive and nothing for each placement group.
//!
//! A set may have a companion ([`SetId::companion`]) on the same drives: placement groups with copies of their own, of which
//! there may be more later. A drive belongs to the set, and to its companion with it.
//!
//! A configuration changes by compare-and-set on its epoch ([`PgStep`]), as in Vertical Paxos and PacificA: the new
//! acting list is a subset of the old one plus learners that the primary of that epoch has certified.

use std::sync::Arc;

use ashlar_placement::domains::Conflict;
use ashlar_placement::map::{GroupId, Map, PgId, SEATS_MAX, SetId, Shape};
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::DriveId;

use crate::codec::{Fields, Sink, Source, read_drives, read_list, words, write_drives, write_list};
use crate::error::FormError;
use crate::server::DriveClass;
use crate::table::Row;

/// Most sets of a cluster.
pub const SETS_MAX: usize = 256;
/// Most placement groups of all sets together.
pub const PGS_MAX: usize = 1 << 18;
/// Most bytes of a placement map.
pub const MAP_BYTES_MAX: usize = 8 << 20;
/// Most placement groups that one change configures.
pub const PG_STEPS_MAX: usize = 256;
/// Most learners of a placement group, and most members that its previous list remembers.
pub const MEMBERS_MAX: usize = SEATS_MAX;

/// How many copies a set's placement groups need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copies {
    /// Fewest acting members with which writes are acknowledged, 1 to the map's width.
    pub write_min: u8,
    /// Fewest members of an acting list, 1 to the map's width. The catalog takes none out below this number.
    pub acting_min: u8,
}

/// One set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// Who it is.
    pub id: SetId,
    /// What all its drives are made of.
    pub class: DriveClass,
    /// How many copies are needed.
    pub copies: Copies,
    /// Epoch of the placement groups that have no record.
    pub first_epoch: Epoch,
    /// The map by which the placement groups without a record lie.
    pub first: Arc<Map>,
    /// The map by which data should lie. Of the same set as `first`, with an epoch at least as great and as many placement
    /// groups; but for a companion with the same shape.
    pub target: Arc<Map>,
}

impl Set {
    /// Most members of an acting list, and most learners. A companion's may still be longer than its map is wide.
    #[must_use]
    pub fn width_max(&self) -> usize {
        if self.id.is_companion() { MEMBERS_MAX } else { self.first.shape().width() }
    }

    /// What two acting members must not share, by whichever map asks for less.
    #[must_use]
    pub fn conflict(&self) -> Conflict {
        self.first.shape().conflict.min(self.target.shape().conflict)
    }

    /// Whether a map of this shape can follow.
    #[must_use]
    pub fn may_become(&self, shape: Shape) -> bool {
        let first = self.first.shape();
        if self.id.is_companion() { shape.pgs == first.pgs } else { shape == first }
    }
}

impl Row for Set {
    type Key = SetId;
    const KIND: &'static str = "set";
    const ROWS_MAX: usize = SETS_MAX;

    fn key(&self) -> SetId {
        self.id
    }
}

impl Fields for Set {
    fn write(&self, out: &mut impl Sink) {
        out.uint("id", u64::from(self.id.0));
        self.class.write(out, "class");
        out.uint("write_min", u64::from(self.copies.write_min));
        out.uint("acting_min", u64::from(self.copies.acting_min));
        out.uint("epoch", self.first_epoch.0);
        write_map(out, "first", &self.first);
        // Until data is to move, both maps are one.
        let other = Some(&self.target).filter(|target| **target != self.first);
        write_list(out, "target", other.as_slice(), |out, map| write_map(out, "map", map));
    }

    fn read(from: &mut impl Source) -> Result<Self, FormError> {
        let id = SetId(from.uint32("id")?);
        let class = DriveClass::read(from, "class")?;
        let copies = Copies { write_min: from.uint8("write_min")?, acting_min: from.uint8("acting_min")? };
        let first_epoch = Epoch(from.uint("epoch")?);
        let first = read_map(from, "first")?;
        let target = read_list(from, "target", 1, |from| read_map(from, "map"))?.pop();
        Ok(Self { id, class, copies, first_epoch, target: target.unwrap_or_else(|| first.clone()), first })
    }
}

pub(crate) fn write_map(out: &mut impl Sink, name: &'static str, map: &Map) {
    out.bytes(name, &map.encode());
}

pub(crate) fn read_map(from: &mut impl Source, name: &'static str) -> Result<Arc<Map>, FormError> {
    let bytes = from.bytes(name, MAP_BYTES_MAX)?;
    Map::decode(&bytes).map(Arc::new).map_err(FormError::Map)
}

/// Who holds the data of a placement group, at one epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PgConfig {
    /// Which configuration this is. Members refuse messages of an older one.
    pub epoch: Epoch,
    /// The drives that have every acknowledged write, distinct, without conflict, never empty.
    pub acting: Vec<DriveId>,
    /// The acting drive whose server orders writes.
    pub primary: DriveId,
    /// Drives that are being filled, distinct and none of them acting.
    pub learners: Vec<DriveId>,
    /// Drives that were acting since the placement group was last settled and are no more, oldest first. What they hold
    /// is stale, but less has to be copied to them than to a drive that holds nothing.
    pub previous: Vec<DriveId>,
}

impl PgConfig {
    /// Whether the drive is acting or a learner.
    #[must_use]
    pub fn is_member(&self, drive: DriveId) -> bool {
        self.acting.contains(&drive) || self.learners.contains(&drive)
    }
}

/// A placement group with a configuration of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PgRow {
    pub(crate) group: GroupId,
    pub(crate) config: PgConfig,
}

impl Row for PgRow {
    type Key = GroupId;
    const KIND: &'static str = "pg";
    const ROWS_MAX: usize = PGS_MAX;

    fn key(&self) -> GroupId {
        self.group
    }
}

pub(crate) fn write_group(out: &mut impl Sink, group: GroupId) {
    out.uint("set", u64::from(group.set.0));
    out.uint("pg", u64::from(group.pg.0));
}

pub(crate) fn read_group(from: &mut impl Source) -> Result<GroupId, FormError> {
    Ok(GroupId { set: SetId(from.uint32("set")?), pg: PgId(from.uint32("pg")?) })
}

impl Fields for PgRow {
    fn write(&self, out: &mut impl Sink) {
        write_group(out, self.group);
        out.uint("epoch", self.config.epoch.0);
        write_drives(out, "acting", &self.config.acting);
        out.id("primary", self.config.primary.as_bytes());
        write_drives(out, "learners", &self.config.learners);
        write_drives(out, "previous", &self.config.previous);
    }

    fn read(from: &mut impl Source) -> Result<Self, FormError> {
        Ok(Self {
            group: read_group(from)?,
            config: PgConfig {
                epoch: Epoch(from.uint("epoch")?),
                acting: read_drives(from, "acting", SEATS_MAX)?,
                primary: from.id("primary").map(DriveId::from_bytes)?,
                learners: read_drives(from, "learners", MEMBERS_MAX)?,
                previous: read_drives(from, "previous", MEMBERS_MAX)?,
            },
        })
    }
}

words! {
    /// Whether a placement group is where it should be.
    pub Settled {
        /// Members that leave are remembered as previous ones.
        No = "no",
        /// All acting members are equal: previous ones are forgotten.
        Yes = "yes",
    }
}

/// One configuration change of a placement group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PgStep {
    /// The placement group.
    pub group: GroupId,
    /// Its epoch before the change; the change is refused at any other.
    pub expected: Epoch,
    /// The new acting list: a subset of the old one plus `certified`.
    pub acting: Vec<DriveId>,
    /// The new primary, one of `acting`.
    pub primary: DriveId,
    /// The new learners.
    pub learners: Vec<DriveId>,
    /// Learners of the epoch `expected` that have everything, as its primary vouches.
    pub certified: Vec<DriveId>,
    /// Whether previous members may be forgotten.
    pub settled: Settled,
}

impl Fields for PgStep {
    fn write(&self, out: &mut impl Sink) {
        write_group(out, self.group);
        out.uint("expected", self.expected.0);
        write_drives(out, "acting", &self.acting);
        out.id("primary", self.primary.as_bytes());
        write_drives(out, "learners", &self.learners);
        write_drives(out, "certified", &self.certified);
        self.settled.write(out, "settled");
    }

    fn read(from: &mut impl Source) -> Result<Self, FormError> {
        Ok(Self {
            group: read_group(from)?,
            expected: Epoch(from.uint("expected")?),
            acting: read_drives(from, "acting", SEATS_MAX)?,
            primary: from.id("primary").map(DriveId::from_bytes)?,
            learners: read_drives(from, "learners", MEMBERS_MAX)?,
            certified: read_drives(from, "certified", MEMBERS_MAX)?,
            settled: Settled::read(from, "settled")?,
        })
    }
}

pub(crate) fn write_steps(out: &mut impl Sink, steps: &[PgStep]) {
    write_list(out, "steps", steps, |out, step| step.write(out));
}

pub(crate) fn read_steps(from: &mut impl Source) -> Result<Vec<PgStep>, FormError> {
    read_list(from, "steps", PG_STEPS_MAX, |from| PgStep::read(from))
}
