//! Blocks as stripes of shards: cut and encoded, put on drives, read and made again from any that are enough.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use ashlar_erasure::{Codec, Geometry, ShardSet, Stores};
use bytes::Bytes;

use crate::api::{BoxFuture, Error};
use crate::cluster::{Cluster, ShardReply, ShardRequest, Spread};
use crate::flight::all;
use crate::record::{PartContent, ShardHeader};

/// Codecs of the geometries that were met. There are at most as many as pairs of data and parity shards.
#[derive(Debug, Default)]
pub(crate) struct Codecs(Mutex<BTreeMap<(usize, usize), Arc<Codec>>>);

impl Codecs {
    /// The codec of a spread; nothing for one without parity, whose shards are the block.
    fn of(&self, spread: &Spread) -> Option<Arc<Codec>> {
        let parity = usize::from(spread.parity);
        let data = spread.drives.len().checked_sub(parity)?;
        let geometry = Geometry::new(data, parity).ok()?;
        let mut codecs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(codecs.entry((data, parity)).or_insert_with(|| Arc::new(Codec::new(geometry)))))
    }

    /// The shards of a block, data first. All are equally long; behind the block's last byte are zeroes.
    ///
    /// # Panics
    /// The block is empty.
    pub(crate) fn encode(&self, spread: &Spread, mut block: Vec<u8>) -> Vec<Bytes> {
        let parity = usize::from(spread.parity);
        let data = spread.drives.len() - parity;
        let len = block.len().div_ceil(data);
        assert!(len > 0, "a block has bytes");
        block.resize(len * data, 0);
        let block = Bytes::from(block);
        let mut shards: Vec<Bytes> = (0..data).map(|shard| block.slice(shard * len..(shard + 1) * len)).collect();
        if let Some(codec) = self.of(spread) {
            let mut sums = vec![vec![0; len]; parity];
            let sources: Vec<&[u8]> = shards.iter().map(AsRef::as_ref).collect();
            let mut targets: Vec<&mut [u8]> = sums.iter_mut().map(Vec::as_mut_slice).collect();
            let encoded = codec.encode(&sources, &mut targets, Stores::Cached);
            encoded.expect("as many shards as the geometry has, equally long");
            shards.extend(sums.into_iter().map(Bytes::from));
        }
        shards
    }

    /// The data shards of a stripe from any that are enough; nothing if these are not.
    fn decode(&self, spread: &Spread, mut shards: Vec<Option<Bytes>>) -> Option<Vec<Bytes>> {
        let data = spread.drives.len() - usize::from(spread.parity);
        let lost: Vec<usize> = (0..data).filter(|shard| shards[*shard].is_none()).collect();
        if !lost.is_empty() {
            let codec = self.of(spread)?;
            let present: Vec<usize> = (0..shards.len()).filter(|shard| shards[*shard].is_some()).collect();
            if present.len() < data {
                return None;
            }
            let set = |numbers: &[usize]| ShardSet::of(numbers).expect("at most SHARDS_MAX");
            let plan = codec.plan(set(&present), set(&lost)).ok()?;
            let sources: Vec<&[u8]> = plan.sources().iter().filter_map(|shard| shards[shard].as_deref()).collect();
            let mut made = vec![vec![0; sources.first()?.len()]; lost.len()];
            let mut targets: Vec<&mut [u8]> = made.iter_mut().map(Vec::as_mut_slice).collect();
            plan.run(&sources, &mut targets, Stores::Cached).ok()?;
            for (shard, bytes) in lost.into_iter().zip(made) {
                shards[shard] = Some(Bytes::from(bytes));
            }
        }
        shards.truncate(data);
        shards.into_iter().collect()
    }
}

/// Drives that must have kept every block of a part for it to be acknowledged: as many as give the data back, and one more
/// where half of the shards are parity, so that two halves cannot both be enough.
pub(crate) fn quorum(spread: &Spread) -> usize {
    let parity = usize::from(spread.parity);
    let data = spread.drives.len() - parity;
    data + usize::from(parity > 0 && data == parity)
}

/// Shards of one block that are to be put.
pub(crate) struct PutShards<'a> {
    pub(crate) header: ShardHeader<'a>,
    pub(crate) block: u32,
    /// When the block was put first, in milliseconds since 1970 (UTC).
    pub(crate) stamp: u64,
    /// Their numbers, and what they are.
    pub(crate) shards: Vec<(u8, Bytes)>,
    /// They take the place of damaged ones.
    pub(crate) is_repair: bool,
}

/// Puts shards on their drives; what each drive answers.
pub(crate) fn put_shards<C: Cluster>(
    cluster: &Arc<C>,
    content: &PartContent,
    put: PutShards<'_>,
) -> BoxFuture<'static, Vec<ShardReply>> {
    let PutShards { header, block, stamp, shards, is_repair } = put;
    let block_bytes = content.block_bytes(block);
    let puts = shards.into_iter().map(|(number, data)| {
        let header = Bytes::from(header.encode(block, block_bytes, number));
        let (drive, blob) = (content.spread.drives[usize::from(number)], content.blob(block, number));
        cluster.shard(drive, ShardRequest::Put { blob, stamp, header, data, is_repair })
    });
    let puts: Vec<BoxFuture<'static, ShardReply>> = puts.collect();
    Box::pin(all(puts))
}

/// Reads all shards of a block that can be had, and makes the block of them.
pub(crate) async fn rebuild_block<C: Cluster>(
    cluster: &Arc<C>,
    codecs: &Codecs,
    content: &PartContent,
    block: u32,
) -> Result<Vec<Bytes>, Error> {
    let len = content.shard_bytes(block);
    let asked = content.spread.drives.iter().zip(0..).map(|(drive, number)| -> BoxFuture<'static, ShardReply> {
        cluster.shard(*drive, ShardRequest::Get { blob: content.blob(block, number), offset: 0, len })
    });
    let replies = all(asked).await;
    let is_gone = !replies.contains(&ShardReply::Unavailable);
    let shards = replies.into_iter().map(|reply| whole(reply, len)).collect();
    codecs.decode(&content.spread, shards).ok_or(if is_gone { Error::Damaged } else { Error::Unavailable })
}

/// Reads bytes of one block, and makes them from other shards where some cannot be had. Whether some are missing or damaged.
pub(crate) async fn read_block<C: Cluster>(
    cluster: Arc<C>,
    codecs: Arc<Codecs>,
    content: PartContent,
    block: u32,
    (offset, len): (u32, u32),
) -> Result<(Vec<Bytes>, bool), Error> {
    let shard_bytes = content.shard_bytes(block);
    let end = offset + len;
    let pieces: Vec<(usize, u32, u32)> = (offset / shard_bytes..end.div_ceil(shard_bytes))
        .map(|shard| {
            let begin = (shard * shard_bytes).max(offset);
            let last = ((shard + 1) * shard_bytes).min(end);
            (usize::try_from(shard).expect("at most SHARDS_MAX"), begin - shard * shard_bytes, last - begin)
        })
        .collect();
    let direct = pieces.iter().map(|(shard, offset, len)| -> BoxFuture<'static, ShardReply> {
        let blob = content.blob(block, u8::try_from(*shard).expect("at most SHARDS_MAX"));
        cluster.shard(content.spread.drives[*shard], ShardRequest::Get { blob, offset: *offset, len: *len })
    });
    let replies = all(direct).await;
    let is_lost = replies.iter().any(|reply| matches!(reply, ShardReply::Missing | ShardReply::Damaged));
    let read: Option<Vec<Bytes>> =
        replies.into_iter().zip(&pieces).map(|(reply, (_, _, len))| whole(reply, *len)).collect();
    if let Some(read) = read {
        return Ok((read, false));
    }
    let shards = rebuild_block(&cluster, &codecs, &content, block).await?;
    let piece = |(shard, offset, len): (usize, u32, u32)| shards[shard].slice(offset as usize..(offset + len) as usize);
    Ok((pieces.into_iter().map(piece).collect(), is_lost))
}

fn whole(reply: ShardReply, len: u32) -> Option<Bytes> {
    match reply {
        ShardReply::Data(bytes) if bytes.len() == len as usize => Some(bytes),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
