//! A piece of a volume's content: bytes, or zeroes that nobody has to carry.

use core::ops::Range;

use bytes::Bytes;

/// A part of what was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// These bytes.
    Data(Bytes),
    /// So many zeroes.
    Zeroes(u64),
    /// So many bytes that are stored, and whose content was not asked for.
    Stored(u64),
}

impl Piece {
    /// Bytes of the volume that the piece stands for.
    #[must_use]
    pub const fn len(&self) -> u64 {
        match self {
            Self::Data(bytes) => bytes.len() as u64,
            Self::Zeroes(len) | Self::Stored(len) => *len,
        }
    }

    /// Whether it stands for nothing.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A part of the piece. Nothing is copied.
    ///
    /// # Panics
    /// When the range is not within the piece.
    #[must_use]
    pub fn slice(&self, range: Range<u64>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len(), "a part lies within its piece");
        match self {
            // Positions within bytes in memory are sizes.
            Self::Data(bytes) => Self::Data(bytes.slice(range.start as usize..range.end as usize)),
            Self::Zeroes(_) => Self::Zeroes(range.end - range.start),
            Self::Stored(_) => Self::Stored(range.end - range.start),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_pieces() {
        assert_eq!(Piece::Data(Bytes::from_static(b"abcd")).slice(1..3), Piece::Data(Bytes::from_static(b"bc")));
        assert_eq!(Piece::Zeroes(4).slice(1..3), Piece::Zeroes(2));
        assert_eq!(Piece::Stored(6).slice(2..6), Piece::Stored(4));
        assert!(Piece::Zeroes(4).slice(2..2).is_empty());
    }

    #[test]
    #[should_panic(expected = "within its piece")]
    fn no_part_exceeds_its_piece() {
        let _ = Piece::Zeroes(4).slice(1..5);
    }
}
