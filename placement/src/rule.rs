//! The rule R of a volume: which placement group an extent belongs to.
//!
//! R = (extent size, PG count, mapping, conflict rule). Extent size and mapping belong to the volume and stand here. PG
//! count and conflict rule belong to the set, because all its volumes share its placement groups: they are the set's
//! [`Shape`](crate::map::Shape). Nothing is kept for an extent, so a volume of 32 TiB costs as much as one of 1 GiB.
//!
//! Objects have no extents: their blocks take a placement group by key, see [`choose_pg`].

use ashlar_wire::id::VolumeId;

use crate::draw::{mix_step, name};
use crate::error::Error;
use crate::map::PgId;

/// Bytes of an extent: a power of two from 64 KiB to 1 GiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExtentSize {
    log2: u8,
}

impl ExtentSize {
    /// The smallest, 64 KiB.
    pub const MIN: Self = Self { log2: 16 };
    /// What a volume has unless it asks for another, 1 MiB.
    pub const DEFAULT: Self = Self { log2: 20 };
    /// The greatest, 1 GiB.
    pub const MAX: Self = Self { log2: 30 };

    /// The size of so many bytes.
    ///
    /// # Errors
    /// [`Error::BadExtentSize`], the caller's.
    pub const fn new(bytes: u64) -> Result<Self, Error> {
        if !bytes.is_power_of_two() || bytes < Self::MIN.bytes() || bytes > Self::MAX.bytes() {
            return Err(Error::BadExtentSize(bytes));
        }
        // Below 31.
        Ok(Self { log2: bytes.trailing_zeros() as u8 })
    }

    /// Bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        1 << self.log2
    }

    /// The extent in which a byte of a volume lies, and the byte's offset in it.
    #[inline]
    #[must_use]
    pub const fn split(self, offset: u64) -> (Extent, u32) {
        // An offset within an extent is below 2^30.
        (Extent(offset >> self.log2), (offset & (self.bytes() - 1)) as u32)
    }
}

/// The number of an extent of a volume, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Extent(pub u64);

/// One extent, unique in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ExtentId {
    /// Its volume.
    pub volume: VolumeId,
    /// Its number in the volume.
    pub extent: Extent,
}

/// How extents are mapped to placement groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mapping {
    /// Extents are dealt in rounds. A round is as many consecutive extents as there are placement groups, and each of
    /// these gets exactly one of them, in an order of the volume's and the round's own. So no placement group ever has
    /// two extents of a volume more than another; neighbouring extents, and extents at any regular distance, lie on
    /// unrelated drives; and two volumes do not press on the same drives in step.
    Shuffled,
}

/// The half of R that belongs to a volume. Never changes in its life: another rule is another volume, to which the data
/// migrates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rule {
    /// Bytes of an extent.
    pub extent_size: ExtentSize,
    /// How extents are mapped to placement groups.
    pub mapping: Mapping,
}

impl Default for Rule {
    fn default() -> Self {
        Self { extent_size: ExtentSize::DEFAULT, mapping: Mapping::Shuffled }
    }
}

/// A volume's id, ready to be mixed into the mapping of its extents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VolumeName(u64);

impl VolumeName {
    pub(crate) fn new(id: VolumeId) -> Self {
        Self(name("volume", id.as_bytes()))
    }
}

impl Mapping {
    /// The placement group of an extent, in a set that has `pgs` of them.
    #[inline]
    pub(crate) const fn choose_pg(self, volume: VolumeName, extent: Extent, pgs: u32) -> PgId {
        match self {
            Self::Shuffled => {
                let (round, place) = (extent.0 / pgs as u64, extent.0 % pgs as u64);
                // Below `pgs`, as is the remainder.
                PgId(shuffle(mix_step(volume.0, round), place as u32, pgs))
            }
        }
    }
}

/// The place of `value` after shuffling 0 to `len - 1` in the order that `key` gives: a bijection.
///
/// Three rounds of multiply, add and shift stir as many bits as `len` needs, and what falls beyond `len` is stirred
/// again, less than once on average.
#[inline]
const fn shuffle(key: u64, value: u32, len: u32) -> u32 {
    let bits = u32::BITS - (len - 1).leading_zeros();
    if bits == 0 {
        return 0;
    }
    let mask = u32::MAX >> (u32::BITS - bits);
    let half = bits.div_ceil(2);
    let mut value = value;
    loop {
        let mut round = 0;
        while round < 3 {
            let key = mix_step(key, round);
            // The low half of the key multiplies, odd; the high half is added.
            value = value.wrapping_mul(key as u32 | 1).wrapping_add((key >> 32) as u32) & mask;
            value ^= value >> half;
            round += 1;
        }
        if value < len {
            return value;
        }
    }
}

/// The placement group of anything that has a key, in a set of `pgs` of them: for blocks of objects. Keys spread as by
/// chance.
///
/// # Panics
/// When `pgs` is 0: no set has none.
#[must_use]
pub fn choose_pg(key: &[u8], pgs: u32) -> PgId {
    assert!(pgs > 0, "a set has a placement group");
    let scaled = (u128::from(name("key", key)) * u128::from(pgs)) >> 64;
    PgId(u32::try_from(scaled).expect("a fraction of a 32-bit number"))
}

#[cfg(test)]
mod tests;
