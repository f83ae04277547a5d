//! Version of a piece of replicated data: the epoch of its writer, then a sequence number within that epoch.

use core::fmt;

use crate::epoch::Epoch;

/// Position of one write in the order of its placement group. A primary numbers the writes of its epoch from 1; the
/// greater version is the later write, whoever was primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Version {
    /// Epoch of the primary that ordered the write.
    pub epoch: Epoch,
    /// Number of the write within the epoch, from 1.
    pub sequence: u64,
}

impl Version {
    /// Before the first write.
    pub const ZERO: Self = Self { epoch: Epoch::ZERO, sequence: 0 };
    /// Bytes of the written form.
    pub const LEN: usize = 16;

    /// The written form: epoch, then sequence, big-endian, so that the bytes sort as versions do.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        ((u128::from(self.epoch.0) << 64) | u128::from(self.sequence)).to_be_bytes()
    }

    /// The version that these bytes are the written form of.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        let both = u128::from_be_bytes(bytes);
        // The cast keeps the low half, which is the sequence.
        Self { epoch: Epoch((both >> 64) as u64), sequence: both as u64 }
    }

    /// The next write of the same epoch.
    ///
    /// # Panics
    /// After 2^64 - 1 writes in one epoch: a value that large is damage, not age.
    #[must_use]
    pub const fn next(self) -> Self {
        let sequence = self.sequence.checked_add(1).expect("an epoch has fewer than 2^64 writes");
        Self { epoch: self.epoch, sequence }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let version = Version { epoch: Epoch(0x0102), sequence: 0x0a0b_0c0d };
        let golden = b"\x00\x00\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x0a\x0b\x0c\x0d";
        assert_eq!(&version.to_bytes(), golden);
        assert_eq!(Version::from_bytes(*golden), version);
    }

    #[test]
    fn bytes_sort_as_versions_do() {
        let rising = [(0, 0), (0, u64::MAX), (1, 0), (1, 1), (2, 0), (u64::MAX, u64::MAX)];
        let versions = rising.map(|(epoch, sequence)| Version { epoch: Epoch(epoch), sequence });
        assert!(versions.is_sorted_by(|one, other| one < other && one.to_bytes() < other.to_bytes()));
    }

    #[test]
    #[should_panic(expected = "fewer than 2^64 writes")]
    fn the_last_sequence_has_no_next() {
        let _ = Version { epoch: Epoch(1), sequence: u64::MAX }.next();
    }
}
