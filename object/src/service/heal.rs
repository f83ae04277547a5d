//! Shards that a drive has missed, lost or damaged are made anew from the others.
//!
//! Which shards are missing a record notes when it is put; others are found when they are read, or by asking every drive. A
//! shard is made with the same name and bytes as before, so it does not matter whether two servers do it at a time. The
//! record's note goes by its version: of an object that was replaced meanwhile nothing changes.

use bytes::Bytes;

use super::{Committed, ObjectService, decode};
use crate::api::{BoxFuture, Error};
use crate::cluster::{Cluster, ShardReply, ShardRequest};
use crate::flight::all;
use crate::index::key::{self, BucketId};
use crate::index::request::Scan;
use crate::index::{Change, Check, Line, Reply, Request};
use crate::record::{ObjectRecord, PartContent};
use crate::stripe::{PutShards, put_shards, rebuild_block};

/// Objects of one step.
const OBJECTS_MAX: u32 = 200;

/// Which shards are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealDepth {
    /// Those that records note as missing.
    Noted,
    /// All: every drive is asked for each of its shards.
    Every,
}

/// What a step has found and done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Healed {
    /// Objects that were looked at.
    pub objects: u64,
    /// Objects that are whole again.
    pub healed: u64,
    /// Objects that are not: their drives cannot be reached, or too few shards are left.
    pub failed: u64,
}

impl<C: Cluster> ObjectService<C> {
    /// One step of healing a bucket, from a key on; where the next step begins, if there is more.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the index cannot be asked. A retry is safe.
    pub async fn heal_bucket(
        &self,
        bucket: BucketId,
        from: Option<Vec<u8>>,
        depth: HealDepth,
    ) -> Result<(Healed, Option<Vec<u8>>), Error> {
        let from = from.unwrap_or_else(|| key::object(bucket, b""));
        let to = key::objects_end(bucket);
        let scan = Scan { from, to, fold: Vec::new(), fold_after: 0, lines_max: OBJECTS_MAX };
        let Reply::Page { lines, next } = self.cluster.index(bucket, Request::Scan(scan)).await else {
            return Err(Error::Unavailable);
        };
        let mut healed = Healed::default();
        for line in lines {
            let Line::Entry(key, entry) = line else { continue };
            healed.objects += 1;
            let (Some(name), Ok(record)) = (key::object_name(&key), decode(&entry)) else { continue };
            match self.heal_record(bucket, name, record, entry.version, depth).await {
                Ok(false) => {}
                Ok(true) => healed.healed += 1,
                Err(_) => healed.failed += 1,
            }
        }
        Ok((healed, next))
    }

    /// Heals one object, asking every drive for each of its shards. Whether something had to be done.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Damaged`], [`Error::Full`]: not everything could be made anew.
    pub async fn heal_object(&self, bucket: BucketId, name: &str) -> Result<bool, Error> {
        match self.record(bucket, name).await? {
            Some((record, version)) => self.heal_record(bucket, name, record, version, HealDepth::Every).await,
            None => Ok(false),
        }
    }

    async fn heal_record(
        &self,
        bucket: BucketId,
        name: &str,
        mut record: ObjectRecord,
        version: u64,
        depth: HealDepth,
    ) -> Result<bool, Error> {
        let mut has_healed = false;
        let mut result = Ok(());
        let noted = record.clone();
        for part in &mut record.parts {
            let header = noted.header(bucket, name, part);
            for block in 0..part.blocks() {
                let lost = match depth {
                    HealDepth::Noted => part.missing.clone(),
                    HealDepth::Every => self.lost_shards(part, block).await,
                };
                if lost.is_empty() {
                    continue;
                }
                let data = rebuild_block(&self.cluster, &self.codecs, part, block).await?;
                let all = self.codecs.encode(&part.spread, data.concat());
                let shards = (0..).zip(all).filter(|(number, _)| lost.contains(number)).collect();
                let put = PutShards { header, block, stamp: noted.modified_ms, shards, is_repair: true };
                let replies = put_shards(&self.cluster, part, put).await;
                let is_whole = replies.iter().all(|reply| *reply == ShardReply::Done);
                has_healed |= is_whole;
                if !is_whole {
                    result = Err(Error::Unavailable);
                }
            }
            if result.is_ok() {
                part.missing.clear();
            }
        }
        if record != noted {
            let key = key::object(bucket, name.as_bytes());
            let checks = vec![Check::Version(key.clone(), version)];
            let change = Change { key, value: Some(Bytes::from(record.encode())) };
            // An object that was replaced meanwhile needs no healing.
            let (Committed::Done(_) | Committed::Changed) = self.commit(bucket, checks, vec![change]).await?;
        }
        result.map(|()| has_healed)
    }

    /// Shards of a block that their drives do not have, or not whole. One whose drive cannot be reached is not among them.
    async fn lost_shards(&self, part: &PartContent, block: u32) -> Vec<u8> {
        let (blob, len) = (part.id.blob(block), part.shard_bytes(block));
        let asked = part.spread.drives.iter().map(|drive| -> BoxFuture<'static, ShardReply> {
            self.cluster.shard(*drive, ShardRequest::Get { blob, offset: 0, len })
        });
        let replies = all(asked).await;
        let lost =
            replies.iter().zip(0..).filter(|(reply, _)| matches!(reply, ShardReply::Missing | ShardReply::Damaged));
        lost.map(|(_, number)| number).collect()
    }
}
