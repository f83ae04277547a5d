//! Blocks of a volume: what servers read and write is whole blocks.

/// Bytes of a block: the unit in which servers keep checksums and in which a write is not torn.
pub const BLOCK_BYTES: u32 = 4_096;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// The start of the block in which a byte lies.
pub(crate) const fn round_down(offset: u64) -> u64 {
    offset - offset % BLOCK
}

/// The end of the block in which the byte before `offset` lies. Volumes end with a block, so there is one.
pub(crate) const fn round_up(offset: u64) -> u64 {
    offset.next_multiple_of(BLOCK)
}

/// A range of bytes of a volume, from `start` to before `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ByteRange {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl ByteRange {
    pub(crate) const fn len(self) -> u64 {
        self.end - self.start
    }

    /// All blocks of which the range has a byte.
    pub(crate) const fn outer(self) -> Self {
        Self { start: round_down(self.start), end: round_up(self.end) }
    }

    /// All blocks of which the range has every byte; none where the ends have passed each other.
    pub(crate) const fn inner(self) -> Self {
        let (start, end) = (round_up(self.start), round_down(self.end));
        Self { start, end: if end < start { start } else { end } }
    }

    pub(crate) const fn overlaps(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// What both have; empty ranges begin anywhere.
    pub(crate) fn intersection(self, other: Self) -> Self {
        let start = self.start.max(other.start);
        Self { start, end: self.end.min(other.end).max(start) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding() {
        let range = |start, end| ByteRange { start, end };
        assert_eq!(range(1, 2).outer(), range(0, 4_096));
        assert_eq!(range(1, 2).inner().len(), 0);
        assert_eq!(range(4_095, 4_097).outer(), range(0, 8_192));
        assert_eq!(range(4_095, 12_289).inner(), range(4_096, 12_288));
        assert_eq!(range(4_096, 8_192).outer(), range(4_096, 8_192));
        assert_eq!(range(4_096, 8_192).inner(), range(4_096, 8_192));
        assert!(range(0, 8).overlaps(range(7, 9)) && range(7, 9).overlaps(range(0, 8)));
        assert!(!range(0, 8).overlaps(range(8, 9)) && !range(8, 9).overlaps(range(0, 8)));
    }

    #[test]
    fn overlaps() {
        let range = |start, end| ByteRange { start, end };
        assert!(range(0, 2).overlaps(range(1, 3)));
        assert!(!range(0, 2).overlaps(range(2, 3)));
        assert_eq!(range(0, 2).intersection(range(1, 3)), range(1, 2));
        assert_eq!(range(0, 2).intersection(range(5, 6)).len(), 0);
    }
}
