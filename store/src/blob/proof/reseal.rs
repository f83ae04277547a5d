//! Checksums made right, whatever they cover: what is behind a checksum is reached by bytes that nobody wrote.

use ashlar_wire::checksum::{Salt, checksum};

use super::super::entry::ENTRY_LEN;
use super::super::{batch, mark};

/// Makes the checksums of a mark right, and of the entries in its block.
pub(super) fn reseal_mark(salt: Salt, block: &mut [u8]) {
    let entries = usize::try_from(u32::from_be_bytes(block[12..16].try_into().expect("four bytes"))).expect("32 bits");
    if block[6] == 3 && entries <= mark::LAST_BLOCK_ENTRIES {
        let sum = checksum(salt, &block[mark::ENTRIES_AT..][..entries * ENTRY_LEN]);
        block[32..40].copy_from_slice(&sum.0.to_be_bytes());
    }
    let sum = checksum(salt, &block[..mark::CHECKSUM_AT]);
    block[mark::CHECKSUM_AT..][..8].copy_from_slice(&sum.0.to_be_bytes());
}

/// Makes the checksum of a batch's header and entries right, if they lie in these bytes.
pub(super) fn reseal_batch(salt: Salt, bytes: &mut [u8]) {
    let count = usize::try_from(u32::from_be_bytes(bytes[32..36].try_into().expect("four bytes"))).expect("32 bits");
    if let Some(meta) = bytes.get_mut(..batch::meta_len(count)) {
        let sum = batch::meta_checksum(salt, meta);
        meta[batch::CHECKSUM_AT..][..8].copy_from_slice(&sum.0.to_be_bytes());
    }
}
