//! Proof that bytes are whole, and that they are the ones that were meant.
//!
//! A checksum binds identity: a [`Salt`] made of who, where and when goes into it, so that the right bytes in the wrong
//! place do not pass. XXH3 detects accidents, not attackers; those are kept out by TLS.

use alloc::vec::Vec;

use xxhash_rust::xxh3::xxh3_64;

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
    fn a_digest_knows_order_and_number() {
        let digest = |messages: &[&[u8]]| {
            let mut digest = Digest::default();
            messages.iter().for_each(|message| digest.update(message));
            digest
        };
        let whole = digest(&[b"a", b"b"]);
        for other in [digest(&[b"b", b"a"]), digest(&[b"a"]), digest(&[b"a", b"b", b""]), digest(&[b"ab"])] {
            assert_ne!(whole, other);
        }
    }
}
