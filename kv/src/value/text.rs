//! Bytes of a collection, where they are or as the number that they are kept as.

use crate::memory::packed::{Digits, Piece, parse_integer};

/// A byte string that may be kept as a number.
#[derive(Debug, Clone, Copy)]
pub enum Text<'a> {
    /// As it is.
    Bytes(&'a [u8]),
    /// As a small collection keeps it.
    Piece(Piece<'a>),
}

impl<'a> From<&'a [u8]> for Text<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

impl<'a> From<Piece<'a>> for Text<'a> {
    fn from(piece: Piece<'a>) -> Self {
        Self::Piece(piece)
    }
}

impl From<i64> for Text<'_> {
    fn from(number: i64) -> Self {
        Self::Piece(number.into())
    }
}

impl<'a> Text<'a> {
    /// The bytes, written into `digits` if they are kept as a number.
    #[inline]
    pub fn bytes<'b>(&self, digits: &'b mut Digits) -> &'b [u8]
    where
        'a: 'b,
    {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Piece(piece) => piece.bytes(digits),
        }
    }

    /// The number that the bytes are the canonical decimal form of, if they are.
    #[must_use]
    pub fn integer(&self) -> Option<i64> {
        match self {
            Self::Bytes(bytes) => parse_integer(bytes),
            Self::Piece(piece) => piece.integer(),
        }
    }

    /// How it goes into a small collection.
    #[must_use]
    pub fn piece(&self) -> Piece<'a> {
        match *self {
            Self::Bytes(bytes) => bytes.into(),
            Self::Piece(piece) => piece,
        }
    }

    /// How many bytes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes(&mut Digits::default()).len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, of their own.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        self.bytes(&mut Digits::default()).to_vec()
    }
}

/// Equal bytes are equal, however they are kept.
impl PartialEq for Text<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes(&mut Digits::default()) == other.bytes(&mut Digits::default())
    }
}

impl Eq for Text<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_bytes_are_equal_however_kept() {
        let (number, written) = (Text::from(-42), Text::from(b"-42".as_slice()));
        assert_eq!(number, written);
        assert_eq!((written.integer(), number.integer()), (Some(-42), Some(-42)));
        assert_eq!((number.len(), number.to_vec()), (3, b"-42".to_vec()));
        assert_ne!(number, Text::from(b"-042".as_slice()));
        assert_eq!(Text::from(b"-042".as_slice()).integer(), None);
        assert_eq!(written.piece(), number.piece());
    }
}
