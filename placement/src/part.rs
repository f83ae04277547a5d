//! A volume as a list of parts, each in a set, and the way from a byte offset to drives.
//!
//! A volume that outgrows its set goes on in another one: capacity has no limit but the number of parts. An extent keeps
//! its number whatever part it lies in, so adding a part moves nothing.

use alloc::vec::Vec;

use ashlar_wire::id::VolumeId;

use crate::choose::PgTable;
use crate::error::Error;
use crate::map::{Drive, PgId, SetId};
use crate::rule::{Extent, Rule, VolumeName};

/// Most parts of one volume.
pub const PARTS_MAX: usize = 1_024;

/// Consecutive extents of a volume that lie in one set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The set.
    pub set: SetId,
    /// Number of extents, at least 1.
    pub extents: u64,
}

/// A part and where it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Placed {
    set: SetId,
    /// The first extent behind the part. Ascending.
    end: Extent,
}

/// All that is known of where a volume lives: the same few bytes at any size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    id: VolumeId,
    name: VolumeName,
    rule: Rule,
    parts: Vec<Placed>,
}

/// Where a byte of a volume lies, as far as the volume knows: the map of the set knows the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    /// The set whose map to ask.
    pub set: SetId,
    /// The extent.
    pub extent: Extent,
    /// The byte's offset in the extent.
    pub offset: u32,
    /// Bytes from there to the end of the extent, at least 1.
    pub len: u32,
}

/// The drives of a location.
#[derive(Debug, Clone, Copy)]
pub struct Route<'a> {
    /// The placement group.
    pub pg: PgId,
    table: &'a PgTable,
}

impl<'a> Route<'a> {
    /// The drives, seat by seat: the first is the preferred primary.
    #[inline]
    pub fn drives(&self) -> impl ExactSizeIterator<Item = &'a Drive> {
        self.table.drives(self.pg)
    }
}

impl Volume {
    /// The volume that is made of these parts, in order.
    ///
    /// # Errors
    /// The caller's: no part, an empty part, too many parts, or more than 2^64 - 1 bytes.
    pub fn new(id: VolumeId, rule: Rule, parts: &[Part]) -> Result<Self, Error> {
        let mut volume = Self { id, name: VolumeName::new(id), rule, parts: Vec::new() };
        parts.iter().try_for_each(|part| volume.grow(*part))?;
        if volume.parts.is_empty() { Err(Error::Missing("part")) } else { Ok(volume) }
    }

    /// Adds extents at the end: to the last part if that is in the same set, else as a new part. No extent moves.
    ///
    /// # Errors
    /// The caller's, as for [`Volume::new`]; the volume is then as it was.
    pub fn grow(&mut self, part: Part) -> Result<(), Error> {
        if part.extents == 0 {
            return Err(Error::Missing("extent"));
        }
        let extents_max = u64::MAX / self.rule.extent_size.bytes();
        let count = self.extents().saturating_add(part.extents);
        if count > extents_max {
            return Err(Error::TooMany { what: "extents", count, max: extents_max });
        }
        let is_full = self.parts.len() == PARTS_MAX;
        match self.parts.last_mut() {
            Some(last) if last.set == part.set => last.end = Extent(count),
            _ if is_full => {
                let max = PARTS_MAX as u64;
                return Err(Error::TooMany { what: "parts", count: max + 1, max });
            }
            _ => self.parts.push(Placed { set: part.set, end: Extent(count) }),
        }
        Ok(())
    }

    /// Who it is.
    #[must_use]
    pub const fn id(&self) -> VolumeId {
        self.id
    }

    /// Its rule.
    #[must_use]
    pub const fn rule(&self) -> Rule {
        self.rule
    }

    /// Number of extents.
    #[must_use]
    pub fn extents(&self) -> u64 {
        self.parts.last().map_or(0, |last| last.end.0)
    }

    /// Size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.extents() * self.rule.extent_size.bytes()
    }

    /// Its parts, in order.
    pub fn parts(&self) -> impl Iterator<Item = Part> {
        let starts = core::iter::once(0).chain(self.parts.iter().map(|part| part.end.0));
        self.parts.iter().zip(starts).map(|(part, start)| Part { set: part.set, extents: part.end.0 - start })
    }

    /// Where the byte at `offset` lies.
    ///
    /// # Errors
    /// [`Error::BehindEnd`], the caller's.
    #[inline]
    pub fn locate(&self, offset: u64) -> Result<Location, Error> {
        let (extent, within) = self.rule.extent_size.split(offset);
        let part = match &self.parts[..] {
            [only] => Some(only).filter(|only| extent < only.end),
            parts => parts.get(parts.partition_point(|part| part.end <= extent)),
        };
        let part = part.ok_or(Error::BehindEnd { offset, size: self.size() })?;
        // An extent has at most 2^30 bytes.
        let len = self.rule.extent_size.bytes() as u32 - within;
        Ok(Location { set: part.set, extent, offset: within, len })
    }

    /// The placement group and drives of a location of this volume.
    ///
    /// # Errors
    /// [`Error::OtherSet`], the caller's: the table is not of the location's set.
    #[inline]
    pub fn route<'a>(&self, location: Location, table: &'a PgTable) -> Result<Route<'a>, Error> {
        if table.set() != location.set {
            return Err(Error::OtherSet { expected: location.set, given: table.set() });
        }
        let pg = self.rule.mapping.choose_pg(self.name, location.extent, table.map().shape().pgs);
        Ok(Route { pg, table })
    }
}

#[cfg(test)]
mod tests;
