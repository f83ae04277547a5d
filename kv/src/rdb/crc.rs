//! The checksum of files and payloads: CRC-64 with the polynomial of Jones, reflected, from zero.

use std::fmt;

use crc_fast::{CrcAlgorithm, Digest};

/// A checksum that grows.
#[derive(Clone)]
pub(super) struct Crc(Digest);

impl Crc {
    pub(super) fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc64Redis))
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// That of all bytes so far.
    pub(super) fn sum(&self) -> u64 {
        self.0.finalize()
    }

    /// That of some bytes.
    pub(super) fn of(bytes: &[u8]) -> u64 {
        crc_fast::checksum(CrcAlgorithm::Crc64Redis, bytes)
    }
}

impl fmt::Debug for Crc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Crc({:016x})", self.sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_redis_counts_it() {
        assert_eq!(Crc::of(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        assert_eq!(Crc::of(b""), 0);
        let long: Vec<u8> = (0..10_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        let mut crc = Crc::new();
        for part in long.chunks(777) {
            crc.update(part);
        }
        assert_eq!(crc.sum(), Crc::of(&long));
    }
}
