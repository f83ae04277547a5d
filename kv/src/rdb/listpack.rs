//! Writing listpacks: the packed form of Redis 7 and Valkey. Reading them is in `sequence`.
//!
//! A head of the length in bytes (4, little-endian) and the count of elements (2; 65,535 where there are more), the elements,
//! and 0xff. An element is its payload behind a head that tells its kind, and the length of both once more, in groups of seven bits
//! with the lowest last.

use crate::memory::packed::{Digits, Piece};

/// Bytes before the elements.
pub(super) const HEAD_BYTES: usize = 6;
/// What stands for a count that two bytes cannot tell.
pub(super) const COUNT_UNKNOWN: u16 = u16::MAX;
/// What ends a listpack, and a ziplist.
pub(super) const END: u8 = 0xff;

/// A listpack that is being written.
#[derive(Debug)]
pub(super) struct Listpack<'a> {
    out: &'a mut Vec<u8>,
    count: usize,
}

impl<'a> Listpack<'a> {
    /// Begins one in a buffer that is emptied first.
    pub(super) fn begin(out: &'a mut Vec<u8>) -> Self {
        out.clear();
        out.resize(HEAD_BYTES, 0);
        Self { out, count: 0 }
    }

    /// Adds an element.
    pub(super) fn push<'p>(&mut self, piece: impl Into<Piece<'p>>) {
        let piece: Piece<'p> = piece.into();
        let start = self.out.len();
        match piece.integer() {
            Some(value) => self.push_integer(value),
            None => {
                let mut digits = Digits::default();
                self.push_text(piece.bytes(&mut digits));
            }
        }
        let len = self.out.len() - start;
        push_length(len, self.out);
        self.count += 1;
    }

    fn push_integer(&mut self, value: i64) {
        let bytes = value.to_le_bytes();
        let (head, width) = match value {
            0..=127 => {
                self.out.push(bytes[0]);
                return;
            }
            -0x1000..=0xfff => {
                self.out.extend_from_slice(&[0xc0 | bytes[1] & 0x1f, bytes[0]]);
                return;
            }
            -0x8000..=0x7fff => (0xf1, 2),
            -0x80_0000..=0x7f_ffff => (0xf2, 3),
            -0x8000_0000..=0x7fff_ffff => (0xf3, 4),
            _ => (0xf4, 8),
        };
        self.out.push(head);
        self.out.extend_from_slice(&bytes[..width]);
    }

    fn push_text(&mut self, text: &[u8]) {
        let len = u32::try_from(text.len()).expect("an element is shorter than 4 GiB").to_le_bytes();
        match text.len() {
            0..=0x3f => self.out.push(0x80 | len[0]),
            0x40..=0xfff => self.out.extend_from_slice(&[0xe0 | len[1], len[0]]),
            _ => {
                self.out.push(0xf0);
                self.out.extend_from_slice(&len);
            }
        }
        self.out.extend_from_slice(text);
    }

    /// Ends it; all its bytes.
    ///
    /// # Panics
    /// It has 4 GiB or more.
    pub(super) fn finish(self) -> &'a [u8] {
        self.out.push(END);
        let len = u32::try_from(self.out.len()).expect("a packed collection is far shorter than 4 GiB");
        let count = u16::try_from(self.count).unwrap_or(COUNT_UNKNOWN);
        self.out[..4].copy_from_slice(&len.to_le_bytes());
        self.out[4..HEAD_BYTES].copy_from_slice(&count.to_le_bytes());
        self.out
    }
}

/// How many bytes the length at the end of an element takes. The bounds of two bytes and more are one less than they could
/// be, as in Valkey.
pub(super) const fn length_bytes(len: usize) -> usize {
    match len {
        0..=127 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    }
}

fn push_length(len: usize, out: &mut Vec<u8>) {
    let count = length_bytes(len);
    for group in (0..count).rev() {
        let more = if group + 1 == count { 0 } else { 0x80 };
        out.push(more | ((len >> (7 * group)).to_le_bytes()[0] & 0x7f));
    }
}
