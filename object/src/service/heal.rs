//! Healing: shards that a drive has missed, lost or damaged are made anew, and those on drives that leave move to others.
//!
//! Which shards are missing a record notes when it is put; others are found when they are read, or by asking every drive. A
//! drive leaves when it is given up or emptied: [`Cluster::spread`] names another one for each of its shards. A shard is made
//! with the same name and bytes as before, so it does not matter whether two servers do it at a time. The record changes
//! after the shards are durable, by compare-and-set on its version: of an object that was replaced meanwhile nothing changes.
//!
//! What a shard is moved away from, or what a healing leaves that was cut off, is not removed here but by the collector.
//! A drive that does not answer is asked once a pass and not tried: nothing is read for a shard that cannot be put.

use std::collections::{BTreeMap, BTreeSet};

use ashlar_wire::id::{BlobId, DriveId};
use ashlar_wire::time::Instant;
use bytes::Bytes;

use super::collect::PUT_MAX;
use super::{Committed, ObjectService};
use crate::api::{BoxFuture, Error, VersionId};
use crate::cluster::{Cluster, Placed, Placing, ShardReply, ShardRequest, Spread};
use crate::flight::all;
use crate::index::key::{self, BucketId};
use crate::index::request::Scan;
use crate::index::{Change, Check, Entry, Line, Reply, Request};
use crate::planted::{self, Planted};
use crate::record::{
    KeyBeginning, ObjectRecord, PartContent, PartRecord, ShardHeader, ShardOwner, UploadRecord, VersionRecord,
};
use crate::stripe::{PutShards, put_shards, rebuild_block};

/// Objects of one step.
const OBJECTS_MAX: u32 = 200;
/// Objects of one step of [`HealDepth::Proven`]: all their bytes are read.
const PROVEN_OBJECTS_MAX: u32 = 16;

/// Which shards are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealDepth {
    /// Those that records note as missing, and those on drives that leave.
    Noted,
    /// Those only that records say to be on this drive: it is asked for the head of each. What is noted, or moves, is left to
    /// whoever heals the bucket.
    Drive(DriveId),
    /// All: every drive is asked for each of its shards.
    Every,
    /// All, in short steps; an object counts as waiting if a drive of its shards does not answer.
    Proven,
}

impl HealDepth {
    const fn objects_max(self) -> u32 {
        match self {
            Self::Noted | Self::Drive(_) | Self::Every => OBJECTS_MAX,
            Self::Proven => PROVEN_OBJECTS_MAX,
        }
    }
}

/// What a step has found and done. Parts of uploads that are not completed count as objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Healed {
    /// Objects that were looked at.
    pub objects: u64,
    /// Objects that had something to be made anew and are whole again.
    pub healed: u64,
    /// Objects of which shards wait for a drive that does not answer.
    pub waiting: u64,
    /// Objects with shards on drives that are given up, for which there is no other drive.
    pub lacking: u64,
    /// Objects that are not whole for another reason: too few shards are left, a drive is full, the index is not reached.
    pub failed: u64,
}

impl Healed {
    /// Both together.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            objects: self.objects + other.objects,
            healed: self.healed + other.healed,
            waiting: self.waiting + other.waiting,
            lacking: self.lacking + other.lacking,
            failed: self.failed + other.failed,
        }
    }
}

/// What one pass of healing has found: which drives answer, and what is not whole.
#[derive(Debug, Default)]
pub struct HealPass {
    /// Whether each drive answered.
    answers: BTreeMap<DriveId, bool>,
    unwhole: Vec<Unwhole>,
}

/// Something that is not whole after a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unwhole {
    /// The key of the object; empty for a part of an upload.
    pub key: String,
    /// Its version, if it is not the current one, or not known.
    pub version: Option<VersionId>,
    /// What is missing.
    pub why: Lack,
}

/// Why something is not whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// A drive does not answer.
    Waits,
    /// A drive is given up, and there is no other one for its shards.
    Drive,
    /// Too few shards are left, a drive is full, or the index is not reached.
    Failed,
}

/// Objects of one pass that are named.
pub const UNWHOLE_MAX: usize = 100;

impl HealPass {
    /// The drives that did not answer.
    #[must_use]
    pub fn away(&self) -> BTreeSet<DriveId> {
        self.answers.iter().filter(|(_, answers)| !**answers).map(|(drive, _)| *drive).collect()
    }

    /// What is not whole, [`UNWHOLE_MAX`] at most.
    #[must_use]
    pub fn unwhole(self) -> Vec<Unwhole> {
        self.unwhole
    }

    fn note(&mut self, key: &[u8], version: Option<VersionId>, why: Lack) {
        if self.unwhole.len() < UNWHOLE_MAX {
            let version = version.filter(|_| key::version_name(key).is_some());
            self.unwhole.push(Unwhole { key: name_in(key).unwrap_or_default(), version, why });
        }
    }
}

/// What has become of one object or part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// Nothing had to be done.
    Whole,
    /// Everything that had to be done is done.
    Healed,
    /// Some shards lack a drive: theirs is given up, and every other one has a shard of the object.
    Lacking,
    /// Some shards wait for a drive that does not answer.
    Waiting,
}

impl Outcome {
    /// Whether something had to be done; an error if not all of it is done.
    const fn into_healed(self) -> Result<bool, Error> {
        match self {
            Self::Whole => Ok(false),
            Self::Healed => Ok(true),
            Self::Lacking | Self::Waiting => Err(Error::Unavailable),
        }
    }
}

/// The name of the object in the key of a current object or of an older version; nothing for other keys.
fn name_in(key: &[u8]) -> Option<String> {
    let older = key::version_name(key).map(|(name, _)| name);
    older.or_else(|| key::object_name(key).map(str::to_owned))
}

impl<C: Cluster> ObjectService<C> {
    /// One step of healing a bucket, from a key on; where the next step begins, if there is more. Current objects come first,
    /// then parts of uploads, then older versions.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the index cannot be asked. A retry is safe.
    pub async fn heal_bucket(
        &self,
        bucket: BucketId,
        from: Option<Vec<u8>>,
        depth: HealDepth,
        pass: &mut HealPass,
    ) -> Result<(Healed, Option<Vec<u8>>), Error> {
        let (lines, next) = self.heal_page(bucket, from, depth.objects_max()).await?;
        let mut healed = Healed::default();
        for (key, entry) in lines {
            let (whole_key, mut version) = (key.clone(), None);
            let outcome = match name_in(&key) {
                Some(name) => match VersionRecord::decode(&entry.value) {
                    Ok(VersionRecord::Object(record)) => {
                        version = Some(record.version);
                        self.heal_record(bucket, (key, &name), (record, entry.version), depth, pass).await
                    }
                    // A mark of a deletion has no shards.
                    Ok(VersionRecord::Marker(_)) => continue,
                    Err(_) => Err(Error::Damaged),
                },
                None if key::part_number(&key).is_some() => {
                    self.heal_upload_part(bucket, &key, &entry, depth, pass).await
                }
                None => continue,
            };
            healed.objects += 1;
            let (count, lack) = match outcome {
                Ok(Outcome::Whole) => continue,
                Ok(Outcome::Healed) => (&mut healed.healed, None),
                Ok(Outcome::Lacking) => (&mut healed.lacking, Some(Lack::Drive)),
                Ok(Outcome::Waiting) => (&mut healed.waiting, Some(Lack::Waits)),
                Err(_) => (&mut healed.failed, Some(Lack::Failed)),
            };
            *count += 1;
            if let Some(lack) = lack {
                pass.note(&whole_key, version, lack);
            }
        }
        Ok((healed, next))
    }

    /// Counts, in one step from a key on, the objects of which records note something to be healed; where the next step
    /// begins, if there is more. Asks no drive.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the index cannot be asked. A retry is safe.
    pub async fn count_to_heal(
        &self,
        bucket: BucketId,
        from: Option<Vec<u8>>,
    ) -> Result<(u64, Option<Vec<u8>>), Error> {
        let (lines, next) = self.heal_page(bucket, from, OBJECTS_MAX).await?;
        let is_due = |(key, entry): &(Vec<u8>, Entry)| {
            let parts = if key::part_number(key).is_some() {
                PartRecord::decode(&entry.value).map(|record| vec![record.content]).unwrap_or_default()
            } else {
                match VersionRecord::decode(&entry.value) {
                    Ok(VersionRecord::Object(record)) => record.parts,
                    Ok(VersionRecord::Marker(_)) | Err(_) => Vec::new(),
                }
            };
            parts.iter().any(|part| {
                let Placed { spread, lacking, .. } = self.target(part);
                spread != part.spread || part.missing.iter().any(|number| !lacking.contains(number))
            })
        };
        Ok((lines.iter().filter(|line| is_due(line)).count() as u64, next))
    }

    /// Objects, uploads, parts of uploads and older versions from a key on.
    async fn heal_page(
        &self,
        bucket: BucketId,
        from: Option<Vec<u8>>,
        lines_max: u32,
    ) -> Result<(Vec<(Vec<u8>, Entry)>, Option<Vec<u8>>), Error> {
        let from = from.unwrap_or_else(|| key::object(bucket, b""));
        let to = key::versions_end(bucket);
        let scan = Scan { from, to, fold: Vec::new(), fold_after: 0, lines_max };
        let Reply::Page { lines, next } = self.cluster.index(bucket, Request::Scan(scan)).await else {
            return Err(Error::Unavailable);
        };
        let entry = |line| match line {
            Line::Entry(key, entry) => Some((key, entry)),
            Line::Folded(_) => None,
        };
        Ok((lines.into_iter().filter_map(entry).collect(), next))
    }

    /// Heals one object in all its versions. Whether something had to be done.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Damaged`], [`Error::Full`]: not everything could be made anew.
    pub async fn heal_object(
        &self,
        bucket: BucketId,
        name: &str,
        depth: HealDepth,
        pass: &mut HealPass,
    ) -> Result<bool, Error> {
        let mut outcome = Outcome::Whole;
        if let Some((record, version)) = self.record(bucket, name).await? {
            let (key, of) = (key::object(bucket, name.as_bytes()), (record, version));
            outcome = outcome.max(self.heal_record(bucket, (key, name), of, depth, pass).await?);
        }
        let older = self.scan_all(bucket, key::versions_of(bucket, name), key::versions_of_end(bucket, name)).await?;
        for (key, entry) in older {
            if let Ok(VersionRecord::Object(record)) = VersionRecord::decode(&entry.value) {
                let of = (record, entry.version);
                outcome = outcome.max(self.heal_record(bucket, (key, name), of, depth, pass).await?);
            }
        }
        outcome.into_healed()
    }

    /// Heals the part of which a drive has a shard that is damaged. Whether something had to be done. A part that no record
    /// names is left to the collector, and so is one whose key the shard does not have whole.
    ///
    /// # Errors
    /// As for [`ObjectService::heal_object`].
    pub async fn heal_shard(&self, owner: &ShardOwner) -> Result<bool, Error> {
        let (bucket, mut pass) = (owner.bucket, HealPass::default());
        let mut outcome = Outcome::Whole;
        // First the part, then the object: a part becomes an object, never the other way.
        if let Some((upload, number)) = owner.upload {
            let key = key::part(bucket, &upload, number.into());
            if let Some(entry) = self.get_entry(bucket, key.clone()).await? {
                outcome = self.heal_upload_part(bucket, &key, &entry, HealDepth::Every, &mut pass).await?;
            }
        }
        let name = match &owner.key {
            KeyBeginning::Whole(name) => core::str::from_utf8(name).map_err(|_| Error::Damaged)?,
            KeyBeginning::Cut(_) => return outcome.into_healed(),
        };
        let current = key::object(bucket, name.as_bytes());
        let mut found = Vec::new();
        found.extend(self.get_entry(bucket, current.clone()).await?.map(|entry| (current, entry)));
        found.extend(self.scan_all(bucket, key::versions_of(bucket, name), key::versions_of_end(bucket, name)).await?);
        for (key, entry) in found {
            let Ok(VersionRecord::Object(record)) = VersionRecord::decode(&entry.value) else { continue };
            if record.parts.iter().any(|part| part.id == owner.part) {
                let of = (record, entry.version);
                outcome = outcome.max(self.heal_record(bucket, (key, name), of, HealDepth::Every, &mut pass).await?);
            }
        }
        outcome.into_healed()
    }

    async fn heal_record(
        &self,
        bucket: BucketId,
        (key, name): (Vec<u8>, &str),
        (mut record, version): (ObjectRecord, u64),
        depth: HealDepth,
        pass: &mut HealPass,
    ) -> Result<Outcome, Error> {
        let (before, began) = (record.clone(), self.cluster.moment().at);
        let mut outcome = Ok(Outcome::Whole);
        for part in &mut record.parts {
            let header = before.header(bucket, name, part);
            let healed = self.heal_part(&header, part, depth, pass).await;
            outcome = outcome.and_then(|outcome| healed.map(|healed| outcome.max(healed)));
        }
        if record != before {
            self.change_record(bucket, (key, version), record.encode(), began).await?;
        }
        outcome
    }

    /// Heals a part of an upload that is not completed.
    async fn heal_upload_part(
        &self,
        bucket: BucketId,
        key: &[u8],
        entry: &Entry,
        depth: HealDepth,
        pass: &mut HealPass,
    ) -> Result<Outcome, Error> {
        let mut record = PartRecord::decode(&entry.value).map_err(|_| Error::Damaged)?;
        let (before, began) = (record.clone(), self.cluster.moment().at);
        let upload = key::part_upload(key).ok_or(Error::Damaged)?;
        let Some(owner) = self.get_entry(bucket, key::upload(bucket, &upload)).await? else {
            // Completed or given up a moment ago.
            return Ok(Outcome::Whole);
        };
        let owner = UploadRecord::decode(&owner.value).map_err(|_| Error::Damaged)?;
        let of = Some((upload, record.content.number));
        let header = ShardHeader::new(bucket, &owner.key, of, &before.content);
        let outcome = self.heal_part(&header, &mut record.content, depth, pass).await;
        if record != before {
            self.change_record(bucket, (key.to_vec(), entry.version), record.encode(), began).await?;
        }
        outcome
    }

    /// Commits what a record notes about its shards, unless the first of them were stored too long ago.
    async fn change_record(
        &self,
        bucket: BucketId,
        (key, version): (Vec<u8>, u64),
        value: Vec<u8>,
        began: Instant,
    ) -> Result<(), Error> {
        if began + PUT_MAX <= self.cluster.moment().at {
            return Err(Error::Unavailable);
        }
        let mut checks = vec![Check::Version(key.clone(), version)];
        if planted::has(Planted::HealOverNewer) {
            checks.clear();
        }
        let change = Change { key, value: Some(Bytes::from(value)) };
        // An object that was replaced meanwhile needs no healing.
        let (Committed::Done(_) | Committed::Changed) = self.commit(bucket, checks, vec![change]).await?;
        Ok(())
    }

    /// Where the shards of a part should lie: on the drives of now, but for those that leave.
    fn target(&self, part: &PartContent) -> Placed {
        let target = self.cluster.spread(part.id, Placing::Lying(&part.spread));
        let fits = |Placed { spread, .. }: &Placed| {
            spread.parity == part.spread.parity && spread.drives.len() == part.spread.drives.len()
        };
        target.filter(fits).unwrap_or_else(|| Self::as_it_is(part))
    }

    fn as_it_is(part: &PartContent) -> Placed {
        Placed { spread: part.spread.clone(), lacking: Vec::new(), names: part.names }
    }

    /// Heals the shards of a part. `part` says afterwards where they lie and which are missing; shards that it names are
    /// durable.
    async fn heal_part(
        &self,
        header: &ShardHeader<'_>,
        part: &mut PartContent,
        depth: HealDepth,
        pass: &mut HealPass,
    ) -> Result<Outcome, Error> {
        let Placed { spread, lacking, .. } = match depth {
            HealDepth::Drive(_) => Self::as_it_is(part),
            HealDepth::Noted | HealDepth::Every | HealDepth::Proven => self.target(part),
        };
        let goal = PartContent { spread, ..part.clone() };
        let numbers = 0..u8::try_from(part.spread.drives.len()).expect("at most SHARDS_MAX");
        let drive = |spread: &Spread, number: u8| spread.drives[usize::from(number)];
        let takes_noted = !matches!(depth, HealDepth::Drive(_));
        let is_due = |number: &u8| {
            takes_noted && part.missing.contains(number) || drive(&goal.spread, *number) != drive(&part.spread, *number)
        };
        let mut due: BTreeSet<u8> = numbers.filter(|number| !lacking.contains(number)).filter(is_due).collect();
        let wanted = due.len();
        for number in due.clone() {
            if !self.answers(drive(&goal.spread, number), part.blob(0, number), pass).await {
                due.remove(&number);
            }
        }
        let is_waiting = due.len() < wanted;
        let made = self.make_shards(header, part, &goal, &due, depth).await?;
        for number in due.difference(&made.failed) {
            part.spread.drives[usize::from(*number)] = drive(&goal.spread, *number);
            part.missing.retain(|missing| missing != number);
        }
        match made {
            Made { failed, .. } if !failed.is_empty() => Err(made.error),
            Made { is_unproven: true, .. } => Ok(Outcome::Waiting),
            _ if is_waiting => Ok(Outcome::Waiting),
            _ if !lacking.is_empty() => Ok(Outcome::Lacking),
            Made { any: true, .. } => Ok(Outcome::Healed),
            _ => Ok(Outcome::Whole),
        }
    }

    /// Makes shards of every block of a part and puts them on the drives of `goal`.
    async fn make_shards(
        &self,
        header: &ShardHeader<'_>,
        part: &PartContent,
        goal: &PartContent,
        due: &BTreeSet<u8>,
        depth: HealDepth,
    ) -> Result<Made, Error> {
        let mut made = Made { failed: BTreeSet::new(), error: Error::Unavailable, any: false, is_unproven: false };
        for block in 0..part.blocks() {
            let mut numbers: BTreeSet<u8> = due.difference(&made.failed).copied().collect();
            let (lost, is_unproven) = self.lost_shards(part, block, depth).await;
            made.is_unproven |= is_unproven && depth == HealDepth::Proven;
            numbers.extend(lost);
            if numbers.is_empty() {
                continue;
            }
            let data = rebuild_block(&self.cluster, &self.codecs, part, block).await?;
            let mut all = self.codecs.encode(&part.spread, data.concat());
            if planted::has(Planted::HealShifted) {
                all.rotate_left(1);
            }
            let shards = (0..).zip(all).filter(|(number, _)| numbers.contains(number)).collect();
            // The stamp of now: what the collector may have found there before is another shard to it.
            let stamp = self.cluster.moment().now_ms;
            let put = PutShards { header: *header, block, stamp, shards, is_repair: true };
            let replies = put_shards(&self.cluster, goal, put).await;
            made.any = true;
            for (number, reply) in numbers.into_iter().zip(replies) {
                if reply == ShardReply::Full {
                    made.error = Error::Full;
                }
                if reply != ShardReply::Done {
                    made.failed.insert(number);
                }
            }
        }
        Ok(made)
    }

    /// Whether a drive answers: asked once a pass, for no bytes of a shard that it may have or not.
    async fn answers(&self, drive: DriveId, blob: BlobId, pass: &mut HealPass) -> bool {
        if let Some(answers) = pass.answers.get(&drive) {
            return *answers;
        }
        let reply = self.cluster.shard(drive, ShardRequest::Get { blob, offset: 0, len: 0 }).await;
        *pass.answers.entry(drive).or_insert(reply != ShardReply::Unavailable)
    }

    /// Shards of a block that their drives do not have, or not whole, as far as they are asked. One whose drive cannot be
    /// reached is not among them; whether there is one.
    async fn lost_shards(&self, part: &PartContent, block: u32, depth: HealDepth) -> (Vec<u8>, bool) {
        let len_of = |drive: DriveId, number: u8| match depth {
            HealDepth::Noted => None,
            HealDepth::Drive(asked) => (asked == drive && !part.missing.contains(&number)).then_some(0),
            HealDepth::Every | HealDepth::Proven => Some(part.shard_bytes(block)),
        };
        let shards = part.spread.drives.iter().zip(0..);
        let (numbers, asked): (Vec<u8>, Vec<BoxFuture<'static, ShardReply>>) = shards
            .filter_map(|(drive, number)| {
                let get = ShardRequest::Get { blob: part.blob(block, number), offset: 0, len: len_of(*drive, number)? };
                Some((number, self.cluster.shard(*drive, get)))
            })
            .unzip();
        let replies = all(asked).await;
        let is_lost = |reply: &ShardReply| matches!(reply, ShardReply::Missing | ShardReply::Damaged);
        let is_unproven = replies.contains(&ShardReply::Unavailable);
        let lost = numbers.into_iter().zip(replies).filter(|(_, reply)| is_lost(reply));
        (lost.map(|(number, _)| number).collect(), is_unproven)
    }
}

/// What has become of shards that were to be made.
struct Made {
    /// Numbers of those that some drive did not take.
    failed: BTreeSet<u8>,
    /// Why, if some were not.
    error: Error,
    /// At least one was made.
    any: bool,
    /// A drive was asked for a shard and has not answered.
    is_unproven: bool,
}
