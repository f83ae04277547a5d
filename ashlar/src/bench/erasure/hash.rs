//! The hashes that a study takes: of whole shards, and of shards that come piece by piece.

use ashlar_wire::checksum::{self, Salt, checksum};
use crc_fast::{CrcAlgorithm, Digest};

use super::case::Hash;

/// The hash of a shard.
#[must_use]
pub fn whole(hash: Hash, shard: &[u8]) -> u64 {
    match hash {
        Hash::Xxh3 => checksum(salt(), shard).0,
        Hash::Crc64Nvme => crc_fast::checksum(CrcAlgorithm::Crc64Nvme, shard),
    }
}

/// The hash of a shard that comes piece by piece; however it is cut, it is that of the [`whole`].
pub trait Running: Default {
    /// Takes the next piece.
    fn update(&mut self, piece: &[u8]);

    /// The hash of all pieces so far.
    fn sum(&self) -> u64;
}

/// [`Hash::Xxh3`], running.
#[derive(Debug, Default)]
pub struct Xxh3(checksum::Running);

impl Running for Xxh3 {
    fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    fn sum(&self) -> u64 {
        self.0.checksum(salt()).0
    }
}

/// [`Hash::Crc64Nvme`], running.
#[derive(Debug)]
pub struct Crc64Nvme(Digest);

impl Default for Crc64Nvme {
    fn default() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc64Nvme))
    }
}

impl Running for Crc64Nvme {
    fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    fn sum(&self) -> u64 {
        self.0.finalize()
    }
}

/// The identity in every XXH3 of a study.
fn salt() -> Salt {
    Salt::new(&[b"ashlar bench erasure"])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<R: Running>(hash: Hash) {
        let bytes: Vec<u8> = (0..9_000_u32).map(|index| index.wrapping_mul(0x9e37_79b1).to_be_bytes()[0]).collect();
        for piece_len in [1, 64, 1_000, 4_096, 9_000] {
            let mut running = R::default();
            bytes.chunks(piece_len).for_each(|piece| running.update(piece));
            assert_eq!(running.sum(), whole(hash, &bytes), "{hash}: {piece_len}");
        }
    }

    #[test]
    fn pieces_give_the_hash_of_the_whole() {
        check::<Xxh3>(Hash::Xxh3);
        check::<Crc64Nvme>(Hash::Crc64Nvme);
    }
}
