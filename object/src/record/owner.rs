//! Header of a shard, read back: which record would name it.

use bytes::Bytes;

use super::{HEADER_KEY_BYTES_MAX, PartId, VERSION};
use crate::cursor::{Cursor, Malformed};
use crate::index::key::BucketId;

/// The key of an object, as far as a header keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyBeginning {
    /// All of it.
    Whole(Vec<u8>),
    /// Its first bytes.
    Cut(Vec<u8>),
}

/// Whose shard it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardOwner {
    /// The object's bucket.
    pub bucket: BucketId,
    /// The part.
    pub part: PartId,
    /// Its number among the shards of the part.
    pub shard: u8,
    /// The upload and the number of the part in it, if the part is one of an upload.
    pub upload: Option<([u8; 16], u16)>,
    /// The object's key.
    pub key: KeyBeginning,
}

impl ShardOwner {
    /// Reads what [`ShardHeader::encode`](super::ShardHeader::encode) has written.
    ///
    /// # Errors
    /// [`Malformed`]: a newer program wrote it.
    pub fn decode(header: &Bytes) -> Result<Self, Malformed> {
        let mut from = Cursor(header.clone());
        if from.u8()? != VERSION {
            return Err(Malformed);
        }
        let (bucket, part) = (BucketId(from.array()?), PartId(from.array()?));
        let (_block, _block_bytes) = (from.u32()?, from.u32()?);
        let [shard, _data, _parity] = from.array()?;
        let (upload, number) = (from.array()?, from.u16()?);
        let key_len = usize::from(from.u16()?);
        let key = from.bytes(key_len.min(HEADER_KEY_BYTES_MAX))?.to_vec();
        from.end()?;
        let upload = (upload != [0; 16]).then_some((upload, number));
        let key = if key.len() == key_len { KeyBeginning::Whole(key) } else { KeyBeginning::Cut(key) };
        Ok(Self { bucket, part, shard, upload, key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::ShardHeader;

    #[test]
    fn headers_are_read_back_or_refused() {
        let long = "k".repeat(HEADER_KEY_BYTES_MAX + 1);
        for (key, upload) in [("", None), ("a/b", Some(([7; 16], 9))), (&long, None), (&long[1..], None)] {
            let written = ShardHeader { bucket: [1; 16], key, upload, part: PartId([2; 12]), geometry: (2, 1) };
            let header = Bytes::from(written.encode(5, 6, 2));
            let owner = ShardOwner::decode(&header).unwrap();
            assert_eq!((owner.bucket, owner.part, owner.shard), (BucketId([1; 16]), PartId([2; 12]), 2));
            assert_eq!(owner.upload, upload);
            let kept = key.as_bytes()[..key.len().min(HEADER_KEY_BYTES_MAX)].to_vec();
            let is_cut = key.len() > HEADER_KEY_BYTES_MAX;
            assert_eq!(owner.key, if is_cut { KeyBeginning::Cut(kept) } else { KeyBeginning::Whole(kept) });
            for len in 0..header.len() {
                assert_eq!(ShardOwner::decode(&header.slice(..len)), Err(Malformed));
            }
        }
        assert_eq!(ShardOwner::decode(&Bytes::from(vec![9; 80])), Err(Malformed));
    }
}
