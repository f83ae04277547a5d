//! Blocks as stripes of shards: cut and encoded, put on drives, read and made again from any that are enough.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use ashlar_erasure::{Codec, Geometry, ShardSet, Stores};
use bytes::Bytes;

use crate::api::{BoxFuture, Error};
use crate::cluster::{Cluster, SHARDS_MAX, ShardReply, ShardRequest, Spread};
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

/// Which shards of a block were kept.
pub(crate) type Kept = Vec<bool>;

/// Drives that must have kept every block of a part for it to be acknowledged: as many as give the data back, and one more
/// where half of the shards are parity, so that two halves cannot both be enough.
pub(crate) fn quorum(spread: &Spread) -> usize {
    let parity = usize::from(spread.parity);
    let data = spread.drives.len() - parity;
    data + usize::from(parity > 0 && data == parity)
}

/// Puts the shards of a block on their drives: which of them were kept, and whether some drive is full.
pub(crate) fn put_block<C: Cluster>(
    cluster: &Arc<C>,
    content: &PartContent,
    header: &ShardHeader<'_>,
    (block, block_bytes): (u32, u32),
    (stamp, shards): (u64, Vec<Bytes>),
) -> BoxFuture<'static, (Kept, bool)> {
    let blob = content.id.blob(block);
    let puts = content.spread.drives.iter().zip(shards).enumerate().map(|(shard, (drive, data))| {
        let number = u8::try_from(shard).expect("at most SHARDS_MAX");
        let header = Bytes::from(header.encode(block, block_bytes, number));
        cluster.shard(*drive, ShardRequest::Put { blob, stamp, header, data })
    });
    let puts: Vec<BoxFuture<'static, ShardReply>> = puts.collect();
    Box::pin(async move {
        let replies = all(puts).await;
        let is_full = replies.contains(&ShardReply::Full);
        (replies.into_iter().map(|reply| reply == ShardReply::Done).collect(), is_full)
    })
}

/// Reads bytes of one block, and makes them from other shards where some cannot be had.
pub(crate) async fn read_block<C: Cluster>(
    cluster: Arc<C>,
    codecs: Arc<Codecs>,
    content: PartContent,
    block: u32,
    (offset, len): (u32, u32),
) -> Result<Vec<Bytes>, Error> {
    let (blob, shard_bytes) = (content.id.blob(block), content.shard_bytes(block));
    let end = offset + len;
    let first = offset / shard_bytes;
    let pieces: Vec<(usize, u32, u32)> = (first..end.div_ceil(shard_bytes))
        .map(|shard| {
            let begin = (shard * shard_bytes).max(offset);
            let last = ((shard + 1) * shard_bytes).min(end);
            (usize::try_from(shard).expect("at most SHARDS_MAX"), begin - shard * shard_bytes, last - begin)
        })
        .collect();
    let direct = pieces.iter().map(|(shard, offset, len)| {
        cluster.shard(content.spread.drives[*shard], ShardRequest::Get { blob, offset: *offset, len: *len })
    });
    let direct: Vec<BoxFuture<'static, ShardReply>> = direct.collect();
    let read: Option<Vec<Bytes>> =
        all(direct).await.into_iter().zip(&pieces).map(|(reply, (_, _, len))| whole(reply, *len)).collect();
    if let Some(read) = read {
        return Ok(read);
    }
    let shards = content
        .spread
        .drives
        .iter()
        .map(|drive| cluster.shard(*drive, ShardRequest::Get { blob, offset: 0, len: shard_bytes }));
    let shards: Vec<BoxFuture<'static, ShardReply>> = shards.collect();
    debug_assert!(shards.len() <= SHARDS_MAX);
    let replies = all(shards).await;
    let is_gone = replies.iter().filter(|reply| matches!(reply, ShardReply::Unavailable)).count() == 0;
    let shards = replies.into_iter().map(|reply| whole(reply, shard_bytes)).collect();
    let Some(shards) = codecs.decode(&content.spread, shards) else {
        return Err(if is_gone { Error::Damaged } else { Error::Unavailable });
    };
    let piece = |(shard, offset, len): (usize, u32, u32)| shards[shard].slice(offset as usize..(offset + len) as usize);
    Ok(pieces.into_iter().map(piece).collect())
}

fn whole(reply: ShardReply, len: u32) -> Option<Bytes> {
    match reply {
        ShardReply::Data(bytes) if bytes.len() == len as usize => Some(bytes),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
