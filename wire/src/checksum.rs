//! How bytes are proved whole, in their place and in their order.
//!
//! A [`Checksum`] is the XXH3 of the bytes, bound to *whose* bytes they are by a [`Salt`]. Bytes that are whole but
//! stand in the wrong place (another extent, another connection, another epoch) fail like damaged ones. A [`Digest`]
//! does the same for a sequence of messages: a lost, doubled or swapped one shows at the end.
//!
//! The salt is applied after the hash: XXH3 with a seed costs a new key schedule for every input above 240 bytes,
//! an exclusive-or costs nothing. For the same bytes, the checksums under two salts differ exactly when the salts do.
//!
//! This finds accidents, not attacks: none of it is a signature. Against people there is TLS and [`crate::secret`].

use core::fmt;

use xxhash_rust::xxh3::xxh3_64;

/// An odd number with its bits well spread (the golden ratio in 64 bits).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Whose bytes: 64 bits made of an identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Salt(u64);

impl Salt {
    /// Of bytes that belong to nobody in particular.
    pub const NONE: Self = Self(0);

    /// The salt of the identity that `parts` name within `domain`. Parts are set apart by their lengths, so
    /// `["ab", "c"]` is another identity than `["a", "bc"]`. Costs about a tenth of a microsecond: once an extent or
    /// connection, not once a message.
    #[must_use]
    pub fn derive(domain: &str, parts: &[&[u8]]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("ashlar checksum salt v1");
        for part in core::iter::once(domain.as_bytes()).chain(parts.iter().copied()) {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        let [a, b, c, d, e, f, g, h, ..] = *hasher.finalize().as_bytes();
        Self(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
    }

    /// The salt of item `number` (an offset, an epoch) of what `self` names. Costs two multiplications; different
    /// numbers always give different salts.
    #[must_use]
    #[inline]
    pub const fn with(self, number: u64) -> Self {
        // Both steps are one-to-one in `number`; the rotation lets its high bits reach the low ones.
        let mixed = (self.0 ^ number.wrapping_mul(SPREAD)).wrapping_mul(SPREAD);
        Self(mixed ^ (mixed >> 32))
    }
}

/// What the bytes of a given owner add up to.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Checksum(u64);

impl Checksum {
    /// Bytes of the written form.
    pub const LEN: usize = 8;

    /// The checksum that was written as `bits`.
    #[must_use]
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The number to write, little-endian where it stands alone.
    #[must_use]
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Checksum({:016x})", self.0)
    }
}

/// The checksum of `bytes` as the property of `salt`.
#[must_use]
#[inline]
pub fn checksum(salt: Salt, bytes: &[u8]) -> Checksum {
    Checksum(xxh3_64(bytes) ^ salt.0)
}

/// How many messages a stream carried, which, and in which order. Both ends feed theirs; the end of the stream
/// carries the sender's, and the receiver compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest {
    count: u64,
    state: u64,
}

impl Default for Digest {
    fn default() -> Self {
        Self::new()
    }
}

impl Digest {
    /// Of a stream without messages.
    #[must_use]
    pub const fn new() -> Self {
        Self { count: 0, state: SPREAD }
    }

    /// The digest that was written as these two numbers.
    #[must_use]
    pub const fn from_parts(count: u64, value: u64) -> Self {
        Self { count, state: value }
    }

    /// Takes in the next message.
    #[inline]
    pub fn absorb(&mut self, message: &[u8]) {
        self.absorb_checksum(checksum(Salt::NONE, message));
    }

    /// Takes in the next message by its checksum, where that is known already; the other end must take it in under
    /// the same salt.
    #[inline]
    pub const fn absorb_checksum(&mut self, message: Checksum) {
        self.count += 1;
        self.state = (self.state.rotate_left(23) ^ message.0).wrapping_mul(SPREAD);
    }

    /// Messages taken in.
    #[must_use]
    #[inline]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// 64 bits that depend on every message and on their order.
    #[must_use]
    #[inline]
    pub const fn value(&self) -> u64 {
        self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn digest(messages: &[&[u8]]) -> Digest {
        let mut digest = Digest::new();
        messages.iter().for_each(|message| digest.absorb(message));
        digest
    }

    #[test]
    fn golden_values() {
        assert_eq!(checksum(Salt::NONE, b"").bits(), 0x2d06_8005_38d3_94c2, "XXH3's own test vector");
        let salt = Salt::derive("golden", &[b"volume", b"extent"]);
        assert_eq!(salt, Salt(0xd5a8_a3be_2614_2629));
        assert_eq!(salt.with(7), Salt(0x2451_5f37_7b2d_ce75));
        assert_eq!(checksum(salt, b"bytes").bits(), 0x06ab_e640_deb8_1359);
        assert_eq!(digest(&[b"one", b"two"]), Digest::from_parts(2, 0x46b0_3236_4a31_cb59));
    }

    #[test]
    fn another_owner_is_another_checksum() {
        let identities: [&[&[u8]]; 6] = [&[], &[b""], &[b"ab", b"c"], &[b"a", b"bc"], &[b"abc"], &[b"abc", b""]];
        for (i, a) in identities.iter().enumerate() {
            for (j, b) in identities.iter().enumerate() {
                let same = checksum(Salt::derive("d", a), b"bytes") == checksum(Salt::derive("d", b), b"bytes");
                assert_eq!(same, i == j, "{a:?} {b:?}");
            }
            assert_ne!(Salt::derive("d", a), Salt::derive("e", a));
        }
        assert_ne!(Salt::derive("d", &[b"a"]), Salt::derive("da", &[]));
    }

    #[test]
    fn neighbours_have_their_own_salts() {
        let base = Salt::derive("extent", &[b"1"]);
        let mut numbers: Vec<u64> = (0..4096_u64).flat_map(|n| [n, n << 12, n << 52]).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let mut salts: Vec<u64> = numbers.iter().map(|number| base.with(*number).0).collect();
        salts.sort_unstable();
        salts.dedup();
        assert_eq!(salts.len(), numbers.len());
    }

    #[test]
    fn every_bit_of_the_bytes_counts() {
        let mut bytes = [0x5a_u8; 300];
        let whole = checksum(Salt::NONE, &bytes);
        for at in 0..bytes.len() * 8 {
            bytes[at / 8] ^= 1 << (at % 8);
            assert_ne!(checksum(Salt::NONE, &bytes), whole, "bit {at}");
            bytes[at / 8] ^= 1 << (at % 8);
        }
        assert_eq!(checksum(Salt::NONE, &bytes), whole);
    }

    #[test]
    fn a_digest_notices_loss_doubling_and_order() {
        let whole = digest(&[b"a", b"b", b"c"]);
        let cases: [&[&[u8]]; 7] = [
            &[b"a", b"b"],
            &[b"b", b"c"],
            &[b"a", b"c", b"b"],
            &[b"a", b"b", b"b", b"c"],
            &[b"a", b"b", b"c", b""],
            &[b"ab", b"c"],
            &[b"a", b"b", b"d"],
        ];
        for other in cases {
            assert_ne!(digest(other).value(), whole.value(), "{other:?}");
        }
        assert_eq!(digest(&[b"a", b"b", b"c"]), whole);
        assert_eq!(Digest::from_parts(whole.count(), whole.value()), whole);
    }
}
