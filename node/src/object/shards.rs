//! Shards as blobs of a drive: what the object crate asks in the words of the store, and the store's answers in its words.

use ashlar_object::cluster::{ShardReply, ShardRequest};
use ashlar_object::service::collect::ListedShard;
use ashlar_store::blob::{BlobError, BlobReply, BlobRequestKind, ListedBlob, ListedHeader, NewBlob};
use ashlar_store::buffer::{AlignedBuf, BLOCK_BYTES, Segment};
use bytes::Bytes;

/// A blob of a list, as a collector sees it.
#[must_use]
pub fn listed_shard(listed: ListedBlob) -> ListedShard {
    let header = match listed.header {
        ListedHeader::Whole(header) => Some(Bytes::from(header)),
        ListedHeader::NotAsked | ListedHeader::Damaged => None,
    };
    ListedShard { blob: listed.blob, stamp: listed.stamp, header }
}

/// What a drive's blobs are asked for a shard.
#[must_use]
pub fn blob_request(request: ShardRequest) -> BlobRequestKind {
    match request {
        ShardRequest::Put { blob, stamp, header, data, is_repair } => {
            let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
            let new = NewBlob { blob, stamp, header: header.as_ref().into(), len, data: segments(&data) };
            if is_repair { BlobRequestKind::Repair(new) } else { BlobRequestKind::Put(new) }
        }
        ShardRequest::Get { blob, offset, len } => BlobRequestKind::Get { blob, offset, len },
        ShardRequest::Remove(blob) => BlobRequestKind::Remove { blob },
    }
}

/// Whole blocks in memory that direct IO can take.
fn segments(data: &Bytes) -> Vec<Segment> {
    if data.is_empty() {
        return Vec::new();
    }
    let mut buf = AlignedBuf::zeroed(data.len().div_ceil(BLOCK_BYTES));
    buf[..data.len()].copy_from_slice(data);
    vec![Segment::from(buf)]
}

/// What their answer is to whoever asked for the shard.
#[must_use]
pub fn shard_reply(answer: Result<BlobReply, BlobError>) -> ShardReply {
    match answer {
        Ok(BlobReply::Data { bytes, .. }) => ShardReply::Data(Bytes::from_owner(bytes)),
        Ok(BlobReply::Done | BlobReply::Head(_) | BlobReply::Blobs { .. }) => ShardReply::Done,
        Err(BlobError::NoSuchBlob) => ShardReply::Missing,
        Err(BlobError::Full | BlobError::TooManyBlobs) => ShardReply::Full,
        Err(BlobError::Damaged | BlobError::OutsideBlob { .. } | BlobError::ReadFailed(_)) => ShardReply::Damaged,
        Err(error) => {
            tracing::warn!(%error, "the drive refuses a shard");
            ShardReply::Unavailable
        }
    }
}
