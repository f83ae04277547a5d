//! An export: what a client sees of a volume.

use super::limits::Limits;
use super::protocol::STRING_BYTES_MAX;

/// Transmission flags of an export, as bits of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Features(u16);

impl Features {
    /// Set in every answer.
    pub(super) const HAS_FLAGS: Self = Self(1 << 0);
    /// Reads of one chunk: set by the session where replies are structured.
    pub(super) const DF: Self = Self(1 << 7);
    /// Nothing can be written.
    pub const READ_ONLY: Self = Self(1 << 1);
    /// Flush.
    pub const FLUSH: Self = Self(1 << 2);
    /// Writes that are durable when they are answered.
    pub const FUA: Self = Self(1 << 3);
    /// The medium rotates.
    pub const ROTATIONAL: Self = Self(1 << 4);
    /// Trim.
    pub const TRIM: Self = Self(1 << 5);
    /// Write zeroes.
    pub const WRITE_ZEROES: Self = Self(1 << 6);
    /// Flush and FUA hold on all connections to the export.
    pub const MULTI_CONN: Self = Self(1 << 8);
    /// Cache.
    pub const CACHE: Self = Self(1 << 10);
    /// Write zeroes only if that is fast.
    pub const FAST_ZERO: Self = Self(1 << 11);
    /// All that a volume can do.
    pub const ALL: Self = Self::FLUSH
        .with(Self::FUA)
        .with(Self::TRIM)
        .with(Self::WRITE_ZEROES)
        .with(Self::MULTI_CONN)
        .with(Self::CACHE)
        .with(Self::FAST_ZERO);

    /// These and those.
    #[must_use]
    pub const fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Whether all of `others` are among these.
    #[must_use]
    pub const fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// The bits on the wire.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }
}

/// Sizes that requests to an export should keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockSizes {
    /// Offsets and lengths are multiples of it: a power of two up to 65,536.
    pub min: u32,
    /// Multiples of it are efficient: a power of two, at least 512 and at least `min`.
    pub preferred: u32,
}

impl Default for BlockSizes {
    /// Any byte; 4 KiB preferred, as volumes keep checksums of 4 KiB blocks.
    fn default() -> Self {
        Self { min: 1, preferred: 4_096 }
    }
}

/// An export that a session serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    /// Bytes; a multiple of the smallest block.
    pub size: u64,
    /// What it can do.
    pub features: Features,
    /// Block sizes.
    pub blocks: BlockSizes,
    /// Whether the owner can tell holes from data (`base:allocation`).
    pub tells_allocation: bool,
    /// Canonical name, where that is another than the one asked for; up to 4,096 bytes.
    pub name: Option<String>,
    /// For people; may be empty; up to 4,096 bytes.
    pub description: String,
}

impl Export {
    /// Checks what the protocol asks of an export.
    ///
    /// # Panics
    /// When a block size is none, sizes do not agree, or a text is too long: an export comes from this program.
    pub(super) fn assert_valid(&self, limits: &Limits) {
        let BlockSizes { min, preferred } = self.blocks;
        assert!(min.is_power_of_two() && min <= 65_536, "the smallest block is a power of two up to 64 KiB");
        assert!(preferred.is_power_of_two() && preferred >= min.max(512), "the preferred block is 512 bytes or more");
        assert!(limits.payload_bytes_max >= preferred, "a request has room for a preferred block");
        assert!(self.size.is_multiple_of(u64::from(min)), "an export ends with a block");
        assert!(self.description.len() <= STRING_BYTES_MAX, "a description has up to 4,096 bytes");
        assert!(self.name.as_ref().is_none_or(|name| name.len() <= STRING_BYTES_MAX), "a name has up to 4,096 bytes");
        let zeroes_agree =
            !self.features.contains(Features::FAST_ZERO) || self.features.contains(Features::WRITE_ZEROES);
        assert!(zeroes_agree, "who writes zeroes fast writes zeroes");
    }
}

/// One export in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportName {
    /// The name to ask for; up to 4,096 bytes.
    pub name: String,
    /// For people; may be empty; up to 4,096 bytes.
    pub description: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "ends with a block")]
    fn an_export_that_ends_within_a_block_is_a_mistake_of_the_program() {
        let blocks = BlockSizes { min: 4_096, preferred: 4_096 };
        let (features, description) = (Features::ALL, String::new());
        let export = Export { size: 5_000, features, blocks, tells_allocation: false, name: None, description };
        export.assert_valid(&Limits::default());
    }
}
