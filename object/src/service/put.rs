//! A body becomes a part: blocks of shards, some of them on their way while the next bytes come.

use bytes::Bytes;

use super::ObjectService;
use super::collect::PUT_MAX;
use crate::api::{Body, Error, PART_BYTES_MAX, Redundancy};
use crate::cipher::{DataKey, PartIdentity, Position};
use crate::cluster::{Cluster, Placed, Placing, ShardReply};
use crate::flight::Flight;
use crate::index::key::BucketId;
use crate::record::{PartContent, PartId, ShardHeader};
use crate::stripe::{PutShards, put_shards, quorum};

/// Blocks of one body that are on their way to drives at a time: the memory of a request.
const BLOCKS_AHEAD_MAX: usize = 3;

/// Whose bytes they are.
pub(super) struct Owner<'a> {
    pub(super) bucket: BucketId,
    pub(super) key: &'a str,
    /// The upload, and the number of the part in it.
    pub(super) upload: Option<([u8; 16], u16)>,
}

impl<'a> Owner<'a> {
    fn identity(&self, part: PartId) -> PartIdentity<'a> {
        PartIdentity { bucket: self.bucket, key: self.key, upload: self.upload, part }
    }
}

impl<C: Cluster> ObjectService<C> {
    /// Puts a body on drives, encrypted if there is a key. Nothing refers to it yet; if it fails, nothing will, and what was put
    /// is discarded.
    pub(super) async fn put_body(
        &self,
        owner: &Owner<'_>,
        redundancy: Redundancy,
        key: Option<&DataKey>,
        body: &mut dyn Body,
    ) -> Result<PartContent, Error> {
        let moment = self.cluster.moment();
        let id = PartId(*moment.drawn.first_chunk().expect("sixteen bytes have twelve"));
        let Placed { spread, names, .. } =
            self.cluster.spread(id, Placing::New(redundancy)).ok_or(Error::Unavailable)?;
        let number = owner.upload.map_or(0, |(_, number)| number);
        let is_encrypted = key.is_some();
        let mut content = PartContent { id, bytes: 0, is_encrypted, spread, number, names, missing: Vec::new() };
        let mut put = self.put_blocks((owner, key), body, &mut content, moment.now_ms).await;
        if put.is_ok() && moment.at + PUT_MAX <= self.cluster.moment().at {
            // The collector may take its first shards for orphans soon.
            put = Err(Error::BodyLost);
        }
        match put {
            Ok(()) => Ok(content),
            Err(error) => {
                if content.bytes > 0 {
                    self.discard_unread(content);
                }
                Err(error)
            }
        }
    }

    async fn put_blocks(
        &self,
        (owner, key): (&Owner<'_>, Option<&DataKey>),
        body: &mut dyn Body,
        content: &mut PartContent,
        stamp: u64,
    ) -> Result<(), Error> {
        let mut flight: Flight<'static, Vec<ShardReply>> = Flight::new();
        let len = content.full_block_bytes() as usize;
        let cipher = key.map(|key| key.part(&owner.identity(content.id)));
        let (mut rest, mut next) = (Bytes::new(), None);
        loop {
            let block = match next.take() {
                Some(block) => block,
                None => fill(&mut flight, body, &mut rest, len).await?,
            };
            if block.is_empty() {
                break;
            }
            let number = content.blocks();
            content.bytes += block.len() as u64;
            if content.bytes > PART_BYTES_MAX {
                return Err(Error::TooLarge);
            }
            let block = match &cipher {
                None => block,
                Some(cipher) => {
                    // Its last chunk says whether it is the last one of the part.
                    let behind = fill(&mut flight, body, &mut rest, len).await?;
                    let position = if behind.is_empty() { Position::Last } else { Position::Inner };
                    let stored = cipher.encrypt_block(number, &block, position);
                    next = Some(behind);
                    stored
                }
            };
            let header = ShardHeader::new(owner.bucket, owner.key, owner.upload, content);
            let shards = (0..).zip(self.codecs.encode(&content.spread, block)).collect();
            let put = PutShards { header, block: number, stamp, shards, is_repair: false };
            flight.push(put_shards(&self.cluster, content, put));
            if flight.len() >= BLOCKS_AHEAD_MAX {
                let kept = flight.next().await;
                note(content, kept)?;
            }
        }
        while flight.len() > 0 {
            let kept = flight.next().await;
            note(content, kept)?;
        }
        Ok(())
    }
}

/// Notes which shards of a block were not kept.
fn note(content: &mut PartContent, replies: Option<Vec<ShardReply>>) -> Result<(), Error> {
    let replies = replies.unwrap_or_default();
    for (shard, _) in (0..).zip(&replies).filter(|(_, reply)| **reply != ShardReply::Done) {
        if !content.missing.contains(&shard) {
            content.missing.push(shard);
        }
    }
    // Every block must have a quorum of the same drives: those that have kept all of them.
    if content.spread.drives.len() - content.missing.len() >= quorum(&content.spread) {
        return Ok(());
    }
    // If those that do not answer would have kept theirs, a later attempt may do.
    let full = replies.iter().filter(|reply| **reply == ShardReply::Full).count();
    let is_full = content.spread.drives.len() - full < quorum(&content.spread);
    Err(if is_full { Error::Full } else { Error::Unavailable })
}

/// The next block of a body: `len` bytes, or less at the end.
async fn fill(
    flight: &mut Flight<'static, Vec<ShardReply>>,
    body: &mut dyn Body,
    rest: &mut Bytes,
    len: usize,
) -> Result<Vec<u8>, Error> {
    let mut block = Vec::new();
    while block.len() < len {
        if rest.is_empty() {
            match flight.beside(body.next()).await? {
                Some(bytes) => *rest = bytes,
                None => break,
            }
        }
        // Small objects take what they need; long ones get one allocation a block, behind their first pieces.
        let is_long = block.len() + rest.len() >= len / 16;
        if is_long {
            block.reserve_exact(len - block.len());
        }
        block.extend_from_slice(&rest.split_to(rest.len().min(len - block.len())));
    }
    Ok(block)
}
