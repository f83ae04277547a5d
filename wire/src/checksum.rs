//! Proof that bytes are whole, and that they are the ones that were meant.
//!
//! A checksum binds identity: a [`Salt`] made of who, where and when goes into it, so that the right bytes in the wrong
//! place do not pass. XXH3 detects accidents, not attackers; those are kept out by TLS.

use alloc::vec::Vec;
use core::fmt;

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Identity, ready to be mixed into checksums at no cost per use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Salt(u64);

impl Salt {
    /// The salt of an identity that consists of `parts`.
    #[must_use]
    pub fn new(parts: &[&[u8]]) -> Self {
        let mut joined = Vec::new();
        for part in parts {
            joined.extend_from_slice(&(part.len() as u64).to_le_bytes());
            joined.extend_from_slice(part);
        }
        Self(xxh3_64(&joined))
    }
}

/// The checksum of some bytes under an identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Checksum(pub u64);

/// The checksum of `bytes` under the identity `salt`: XXH3-64, exclusive-or the salt.
#[inline]
#[must_use]
pub fn checksum(salt: Salt, bytes: &[u8]) -> Checksum {
    Checksum(xxh3_64(bytes) ^ salt.0)
}

/// A [`checksum`] of bytes that come piece by piece. However they are cut, the checksum is that of the whole.
#[derive(Clone, Default)]
pub struct Running(Xxh3);

impl Running {
    /// Takes the next piece.
    #[inline]
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// The checksum of all pieces so far under the identity `salt`.
    #[must_use]
    pub fn checksum(&self, salt: Salt) -> Checksum {
        Checksum(self.0.digest() ^ salt.0)
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Running").field(&self.checksum(Salt(0))).finish()
    }
}

/// A digest of messages in their order: what a stream's end carries, so that its reader knows that nothing is missing,
/// doubled or out of order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Digest(u64);

impl Digest {
    /// Takes the next message.
    #[inline]
    pub fn update(&mut self, message: &[u8]) {
        // The multiplier is the 64-bit golden ratio, odd: each step is a bijection of the state.
        self.0 = (self.0.rotate_left(23) ^ xxh3_64(message)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    /// The written form.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_values() {
        assert_eq!(checksum(Salt(0), b""), Checksum(0x2d06_8005_38d3_94c2));
        let salt = Salt::new(&[b"extent", b"7"]);
        assert_eq!(checksum(salt, b"").0 ^ salt.0, 0x2d06_8005_38d3_94c2);
    }

    #[test]
    fn identity_and_its_boundaries_count() {
        let one = checksum(Salt::new(&[b"ab", b"c"]), b"data");
        assert_ne!(one, checksum(Salt::new(&[b"a", b"bc"]), b"data"));
        assert_ne!(one, checksum(Salt::new(&[b"ab", b"c"]), b"date"));
    }

    #[test]
    fn pieces_give_the_checksum_of_the_whole() {
        let salt = Salt::new(&[b"extent", b"7"]);
        let bytes: Vec<u8> = (0..2_000_u32).map(|index| index.wrapping_mul(0x9e37_79b1).to_be_bytes()[0]).collect();
        for piece_len in [1, 63, 64, 256, 1_000, 2_000] {
            let mut running = Running::default();
            bytes.chunks(piece_len).for_each(|piece| running.update(piece));
            assert_eq!(running.checksum(salt), checksum(salt, &bytes), "{piece_len}");
        }
        assert_eq!(Running::default().checksum(salt), checksum(salt, b""));
    }

    #[test]
    fn a_digest_knows_order_and_number() {
        let digest = |messages: &[&[u8]]| {
            let mut digest = Digest::default();
            messages.iter().for_each(|message| digest.update(message));
            digest
        };
        let whole = digest(&[b"a", b"b"]);
        // Written to files and sent: worked out by another implementation.
        assert_eq!(whole.to_bytes(), [0x22, 0x04, 0xca, 0x23, 0xb3, 0xff, 0x73, 0xe6]);
        for other in [digest(&[b"b", b"a"]), digest(&[b"a"]), digest(&[b"a", b"b", b""]), digest(&[b"ab"])] {
            assert_ne!(whole, other);
        }
    }
}
