//! Volumes: their rule, size, parts and the fence that lets one server at a time write.

use ashlar_placement::map::SetId;
use ashlar_placement::part::{self, PARTS_MAX, Part};
use ashlar_placement::rule::{ExtentSize, Mapping, Rule};
use ashlar_wire::id::{ServerId, VolumeId};

use crate::change::CatalogVersion;
use crate::codec::{Fields, Sink, Source, read_list, read_server, read_volume, words, write_list};
use crate::error::{FormError, Refusal};
use crate::table::Row;

/// Most volumes of a cluster.
pub const VOLUMES_MAX: usize = 65_536;
/// Most deleted volumes that are remembered.
pub const DELETED_MAX: usize = 65_536;
/// Most bytes of a volume's name.
pub const VOLUME_NAME_BYTES_MAX: usize = 255;

/// Fencing generation of a volume: the number of its attachments so far. Drives refuse writes of a lower generation than
/// they have seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Generation(pub u64);

words! {
    /// What a volume may demand, by which its limits are chosen.
    pub VolumeClass {
        /// On rotating drives.
        Standard = "standard",
        /// On flash, capped by size.
        Ssd = "ssd",
        /// On flash, without a cap.
        Ultra = "ultra",
    }
}

/// One volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeRecord {
    /// Who it is. Never used again after its deletion.
    pub id: VolumeId,
    /// What people call it: unique, 1 to [`VOLUME_NAME_BYTES_MAX`] bytes.
    pub name: String,
    /// What it may demand.
    pub class: VolumeClass,
    /// Bytes of an extent. Fixed.
    pub extent_size: ExtentSize,
    /// Bytes that users see: more than its extents but the last, at most all of them.
    pub size_bytes: u64,
    /// In which sets its extents lie, in order.
    pub parts: Vec<Part>,
    /// The generation of the latest attachment.
    pub generation: Generation,
    /// The server that it is attached to.
    pub attached: Option<ServerId>,
}

impl VolumeRecord {
    /// The volume as routes are computed from it.
    ///
    /// # Errors
    /// [`Refusal::Placement`] for parts that make no volume, [`Refusal::BadValue`] for a size that is not within the
    /// last extent. A record of the catalog has passed this.
    pub fn placed(&self) -> Result<part::Volume, Refusal> {
        let rule = Rule { extent_size: self.extent_size, mapping: Mapping::Shuffled };
        let volume = part::Volume::new(self.id, rule, &self.parts)?;
        let needed = self.size_bytes.div_ceil(self.extent_size.bytes());
        if needed == volume.extents() { Ok(volume) } else { Err(Refusal::BadValue("size of a volume")) }
    }
}

/// The parts without neighbours of one set: as a volume holds them.
pub(crate) fn joined(parts: &[Part]) -> Vec<Part> {
    let mut joined: Vec<Part> = Vec::new();
    for part in parts {
        match joined.last_mut() {
            Some(last) if last.set == part.set => last.extents = last.extents.saturating_add(part.extents),
            _ => joined.push(*part),
        }
    }
    joined
}

/// Whether every extent that both lists have lies in the same set.
pub(crate) fn is_same_as_far(one: &[Part], other: &[Part]) -> bool {
    let (mut ones, mut others) = (one.iter().copied(), other.iter().copied());
    let (mut left, mut right) = (ones.next(), others.next());
    while let (Some(one), Some(other)) = (left, right) {
        if one.set != other.set {
            return false;
        }
        let common = one.extents.min(other.extents);
        let rest = |part: Part| Some(Part { extents: part.extents - common, ..part }).filter(|part| part.extents > 0);
        left = rest(one).or_else(|| ones.next());
        right = rest(other).or_else(|| others.next());
    }
    true
}

impl Row for VolumeRecord {
    type Key = VolumeId;
    const KIND: &'static str = "volume";
    const ROWS_MAX: usize = VOLUMES_MAX;

    fn key(&self) -> VolumeId {
        self.id
    }
}

impl Fields for VolumeRecord {
    fn write(&self, out: &mut impl Sink) {
        out.id("volume", self.id.as_bytes());
        out.text("name", &self.name);
        self.class.write(out, "class");
        out.uint("extent_bytes", self.extent_size.bytes());
        out.uint("bytes", self.size_bytes);
        write_parts(out, &self.parts);
        out.uint("generation", self.generation.0);
        write_list(out, "attached", self.attached.as_slice(), |out, server| out.id("server", server.as_bytes()));
    }

    fn read(from: &mut impl Source) -> Result<Self, FormError> {
        Ok(Self {
            id: read_volume(from)?,
            name: from.text("name", VOLUME_NAME_BYTES_MAX)?,
            class: VolumeClass::read(from, "class")?,
            extent_size: read_extent_size(from)?,
            size_bytes: from.uint("bytes")?,
            parts: read_parts(from)?,
            generation: Generation(from.uint("generation")?),
            attached: read_list(from, "attached", 1, |from| read_server(from, "server"))?.pop(),
        })
    }
}

fn read_extent_size(from: &mut impl Source) -> Result<ExtentSize, FormError> {
    ExtentSize::new(from.uint("extent_bytes")?).map_err(FormError::Map)
}

pub(crate) fn write_parts(out: &mut impl Sink, parts: &[Part]) {
    write_list(out, "parts", parts, |out, part| {
        out.uint("set", u64::from(part.set.0));
        out.uint("extents", part.extents);
    });
}

pub(crate) fn read_parts(from: &mut impl Source) -> Result<Vec<Part>, FormError> {
    read_list(from, "parts", PARTS_MAX, |from| {
        Ok(Part { set: SetId(from.uint32("set")?), extents: from.uint("extents")? })
    })
}

/// A volume that was deleted: drives that come back drop what they hold of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeletedVolume {
    /// Who it was.
    pub id: VolumeId,
    /// The version of the catalog that deleted it.
    pub deleted: CatalogVersion,
}

impl Row for DeletedVolume {
    type Key = VolumeId;
    const KIND: &'static str = "deleted";
    const ROWS_MAX: usize = DELETED_MAX;

    fn key(&self) -> VolumeId {
        self.id
    }
}

impl Fields for DeletedVolume {
    fn write(&self, out: &mut impl Sink) {
        out.id("volume", self.id.as_bytes());
        out.uint("version", self.deleted.0);
    }

    fn read(from: &mut impl Source) -> Result<Self, FormError> {
        Ok(Self { id: read_volume(from)?, deleted: CatalogVersion(from.uint("version")?) })
    }
}

/// A name that a volume has: the index by name, made anew from the volumes and not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VolumeName {
    pub(crate) name: String,
    pub(crate) id: VolumeId,
}

impl Row for VolumeName {
    type Key = String;
    const KIND: &'static str = "volume name";
    const ROWS_MAX: usize = VOLUMES_MAX;

    fn key(&self) -> String {
        self.name.clone()
    }
}

impl Fields for VolumeName {
    fn write(&self, out: &mut impl Sink) {
        out.text("name", &self.name);
        out.id("volume", self.id.as_bytes());
    }

    fn read(from: &mut impl Source) -> Result<Self, FormError> {
        Ok(Self { name: from.text("name", VOLUME_NAME_BYTES_MAX)?, id: read_volume(from)? })
    }
}
