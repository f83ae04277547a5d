//! The secret with which keys and members are hashed.

use xxhash_rust::xxh3::xxh3_64_with_secret;

/// Bytes of a [`HashKey`].
pub const HASH_KEY_BYTES: usize = 192;

/// What makes hashes unguessable: 192 random bytes, drawn once for a process and shared by reference. Who does not know
/// them cannot make keys that collide (XXH3-64 with a secret: against a guess, not against a cryptanalyst).
#[derive(Clone, PartialEq, Eq)]
pub struct HashKey([u8; HASH_KEY_BYTES]);

impl HashKey {
    /// The key with these bytes, which should be random.
    #[must_use]
    pub const fn new(bytes: [u8; HASH_KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// The hash of a key or member, for an [`crate::memory::index::Index`].
    #[inline]
    #[must_use]
    pub fn hash(&self, bytes: &[u8]) -> u64 {
        xxh3_64_with_secret(bytes, &self.0)
    }
}

impl std::fmt::Debug for HashKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HashKey(..)")
    }
}
