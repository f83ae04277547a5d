//! Fingerprints of facts, by which two members find out cheaply that they know the same.

use ashlar_wire::checksum::Digest;

/// The fingerprint of one fact. Fingerprints of many facts are combined by exclusive-or, so that their order does not
/// matter and one fact is exchanged for another at no cost.
pub(crate) fn fingerprint(fact: &[u8]) -> u64 {
    let mut digest = Digest::default();
    digest.update(fact);
    u64::from_be_bytes(digest.to_bytes())
}
