//! Collector of one drive: shards to which no record refers are removed, after a long while.
//!
//! Such shards are left by puts that a crash has cut off, by removals that were only remembered in memory, by parts that
//! were put while their upload was completed, and on drives from which a part has moved. The server of a drive walks over
//! its blobs in the order of their ids. Of each, the header says which record would name it; that record is asked for. A blob
//! that is not named becomes a candidate; it is removed once it has been one for [`CollectorConfig::orphan_after`] without
//! a single pass finding it named. Time is the server's own monotonic clock: stamps of other clocks decide nothing.
//!
//! Why nothing that is needed is removed:
//! - A put or a healing whose record is committed later than [`PUT_MAX`] after its first shard is refused by itself, and
//!   `orphan_after` is longer: a candidate that is due belongs to nothing that is under way.
//! - Parts become objects, never the other way: the record of the part is asked for before that of the object.
//! - The record of an object moves between the keys of its name where versions are kept: all of them are looked at in one state of
//!   the index ([`Request::Spans`]).
//! - Before candidates are removed, the whole index of their bucket is read. If it cannot be read to its end, or has a value that
//!   this program does not know, or is empty although the bucket is not being deleted (as an index that was lost), nothing of
//!   the bucket is removed. Of each candidate the record is asked for once more after that.
//! - A blob is removed only with the stamp with which it was listed: healing stores shards with a new one.
//!
//! Candidates are in memory only: a restart begins anew.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use ashlar_wire::id::{BlobId, DriveId};
use ashlar_wire::time::Instant;
use bytes::Bytes;

use super::{ObjectService, version, versioning};
use crate::api::{BoxFuture, Error};
use crate::cluster::Cluster;
use crate::index::key::{self, BucketId};
use crate::index::request::{Scan, Span};
use crate::index::{Line, Reply, Request};
use crate::record::{KeyBeginning, PartContent, PartId, PartRecord, ShardOwner, UploadRecord, VersionRecord};

/// The longest time from the first shard of a put, or of the healing of a part, to the commit of its record.
pub const PUT_MAX: Duration = Duration::from_secs(6 * 3_600);
/// Lines of one page of an index.
const PAGE_LINES: u32 = 1_000;
/// Blobs that are looked at in one step.
pub const STEP_MAX: usize = 32;
/// Lines of an index after which a step ends with the blob that it looks at: objects with thousands of versions take as many.
const STEP_LINES: usize = 2_000;
/// Blobs that may be candidates at a time. Further ones are found by a later pass.
pub const CANDIDATES_MAX: usize = 20_000;

/// Times of a collector.
#[derive(Debug, Clone, Copy)]
pub struct CollectorConfig {
    /// How long a blob is a candidate before it is removed. Longer than [`PUT_MAX`].
    pub orphan_after: Duration,
    /// The same for a blob on a drive that is being emptied, whose part has moved: nothing new is put there, so only readers
    /// and completions that have read the old record are waited for.
    pub moved_after: Duration,
}

impl Default for CollectorConfig {
    fn default() -> Self {
        let config = Self { orphan_after: Duration::from_secs(7 * 3_600), moved_after: Duration::from_secs(600) };
        assert!(config.orphan_after > PUT_MAX, "what is under way is no orphan");
        config
    }
}

/// A blob as its drive lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedShard {
    /// Its name.
    pub blob: BlobId,
    /// What it was stored with.
    pub stamp: u64,
    /// What it says about itself; nothing if that cannot be read.
    pub header: Option<Bytes>,
}

/// The blobs of one drive of this server. Three methods.
pub trait ShardStore: Send + Sync {
    /// Blobs behind one, ascending by their names, up to so many; nothing if the drive does not answer. None at the end.
    fn list(&self, after: Option<BlobId>, limit: usize) -> BoxFuture<'_, Option<Vec<ListedShard>>>;

    /// What a blob says about itself; nothing if the drive has no such blob, or not with a whole head, or does not answer.
    fn header(&self, blob: BlobId) -> BoxFuture<'_, Option<Bytes>>;

    /// Removes a blob if it has this stamp. Whether it is gone.
    fn remove(&self, blob: BlobId, stamp: u64) -> BoxFuture<'_, bool>;
}

/// Whether a drive is being emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriveUse {
    /// It may be given shards.
    InUse,
    /// It is given nothing new.
    Leaving,
}

/// A blob that nothing names as far as is known.
#[derive(Debug, Clone)]
struct Candidate {
    owner: ShardOwner,
    stamp: u64,
    since: Instant,
    /// A record names its part, on other drives.
    is_moved: bool,
}

/// What a step has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Collected {
    /// Blobs that were looked at.
    pub looked_at: u64,
    /// Candidates that were removed.
    pub removed: u64,
    /// Whether the pass has come to the end of the drive.
    pub is_whole: bool,
}

/// What a whole pass has left on a drive, in blobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Left {
    /// A record names them on this drive, or they cannot be read.
    pub named: u64,
    /// A record names their part on other drives: they go after [`CollectorConfig::moved_after`] if the drive is being emptied.
    pub moved: u64,
    /// No record names them: they go after [`CollectorConfig::orphan_after`].
    pub orphans: u64,
}

impl Left {
    /// All of them.
    #[must_use]
    pub const fn all(self) -> u64 {
        self.named + self.moved + self.orphans
    }
}

/// The collector of one drive.
#[derive(Debug)]
pub struct Collector {
    drive: DriveId,
    config: CollectorConfig,
    /// The last blob that this pass has looked at.
    after: Option<BlobId>,
    candidates: BTreeMap<BlobId, Candidate>,
    /// Blobs of this pass so far, and those that the last whole one has left.
    seen: u64,
    left: u64,
}

/// Which record names a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Named {
    No,
    /// One does, with its shards on other drives.
    Elsewhere,
    /// One does, with a shard on the drive.
    Here,
}

impl Collector {
    /// A collector that has seen nothing.
    #[must_use]
    pub const fn new(drive: DriveId, config: CollectorConfig) -> Self {
        Self { drive, config, after: None, candidates: BTreeMap::new(), seen: 0, left: 0 }
    }

    /// Blobs that are candidates now.
    #[must_use]
    pub fn candidates(&self) -> usize {
        self.candidates.len()
    }

    /// What the last whole pass has left, if it has just ended.
    #[must_use]
    pub fn left(&self) -> Left {
        let moved = self.candidates.values().filter(|candidate| candidate.is_moved).count() as u64;
        let orphans = self.candidates() as u64 - moved;
        Left { named: self.left.saturating_sub(moved + orphans), moved, orphans }
    }

    /// One step: looks at some blobs and, at the end of a pass, removes candidates that are due.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the drive or an index does not answer. The next step begins where this one did. Safe to retry.
    pub async fn step<C: Cluster>(
        &mut self,
        service: &ObjectService<C>,
        shards: &dyn ShardStore,
        drive_use: DriveUse,
    ) -> Result<Collected, Error> {
        let listed = shards.list(self.after, STEP_MAX).await.ok_or(Error::Unavailable)?;
        // Looked up behind the list, which may have taken as long as the process was stopped: what was put meanwhile is listed.
        let now = service.cluster.moment().at;
        if listed.is_empty() {
            self.forget_between(self.after, None);
            let removed = self.remove_due(service, shards, now, drive_use).await;
            (self.left, self.seen, self.after) = (self.seen.saturating_sub(removed), 0, None);
            return Ok(Collected { looked_at: 0, removed, is_whole: true });
        }
        // The blocks of one part lie side by side: one question for all of them.
        let mut asked: BTreeMap<(PartId, u8), Named> = BTreeMap::new();
        let (mut after, mut looked_at, mut lines) = (self.after, 0, 0);
        for shard in listed {
            if lines >= STEP_LINES {
                break;
            }
            self.forget_between(after, Some(shard.blob));
            (after, looked_at) = (Some(shard.blob), looked_at + 1);
            let Some(owner) = shard.header.as_ref().and_then(|header| ShardOwner::decode(header).ok()) else {
                // Damaged, or of a newer program: it stays.
                self.candidates.remove(&shard.blob);
                continue;
            };
            let named = match asked.get(&(owner.part, owner.shard)) {
                Some(named) => *named,
                None => {
                    let search = service.search(self.drive, &owner).await?;
                    lines += search.lines;
                    search.found
                }
            };
            asked.insert((owner.part, owner.shard), named);
            self.note(&shard, owner, named, now);
        }
        self.after = after;
        self.seen += looked_at;
        Ok(Collected { looked_at, removed: 0, is_whole: false })
    }

    /// Forgets candidates between two neighbouring blobs of the drive: somebody else has removed them.
    fn forget_between(&mut self, after: Option<BlobId>, before: Option<BlobId>) {
        let span = (after.map_or(Bound::Unbounded, Bound::Excluded), before.map_or(Bound::Unbounded, Bound::Excluded));
        let gone: Vec<BlobId> = self.candidates.range(span).map(|(blob, _)| *blob).collect();
        for blob in gone {
            self.candidates.remove(&blob);
        }
    }

    fn note(&mut self, shard: &ListedShard, owner: ShardOwner, named: Named, now: Instant) {
        if named == Named::Here {
            self.candidates.remove(&shard.blob);
            return;
        }
        let is_moved = named == Named::Elsewhere;
        let (stamp, blob) = (shard.stamp, shard.blob);
        let has_room = self.candidates.len() < CANDIDATES_MAX;
        match self.candidates.get_mut(&blob) {
            // The same blob as before. A part that was named elsewhere and is not named now waits from now on.
            Some(known) if known.stamp == stamp && known.is_moved == is_moved => {}
            Some(known) => *known = Candidate { owner, stamp, since: now, is_moved },
            None if has_room => drop(self.candidates.insert(blob, Candidate { owner, stamp, since: now, is_moved })),
            None => {}
        }
    }

    /// Removes the candidates that are due and that a last look at their bucket's whole index does not find.
    async fn remove_due<C: Cluster>(
        &mut self,
        service: &ObjectService<C>,
        shards: &dyn ShardStore,
        now: Instant,
        drive_use: DriveUse,
    ) -> u64 {
        let wait = |candidate: &Candidate| match drive_use {
            DriveUse::Leaving if candidate.is_moved => self.config.moved_after,
            _ => self.config.orphan_after,
        };
        let mut due: BTreeMap<BucketId, BTreeMap<BlobId, Candidate>> = BTreeMap::new();
        for (blob, candidate) in &self.candidates {
            if candidate.since + wait(candidate) <= now {
                due.entry(candidate.owner.bucket).or_default().insert(*blob, candidate.clone());
            }
        }
        let mut removed = 0;
        for (bucket, candidates) in due {
            // An index that cannot be read, or that looks lost: the next pass tries again.
            let Some(named) = service.shards_named(bucket, self.drive).await else { continue };
            for (blob, candidate) in candidates {
                let is_named = named.contains(&(candidate.owner.part, candidate.owner.shard));
                let last = if is_named {
                    Ok(Named::Here)
                } else {
                    service.search(self.drive, &candidate.owner).await.map(|search| search.found)
                };
                match last {
                    Ok(Named::Here) => drop(self.candidates.remove(&blob)),
                    Ok(last) if (last == Named::Elsewhere) == candidate.is_moved => {
                        if shards.remove(blob, candidate.stamp).await {
                            self.candidates.remove(&blob);
                            removed += 1;
                        }
                    }
                    // Not as it was found, or not known now: the next pass notes it anew.
                    Ok(_) | Err(_) => {}
                }
            }
        }
        removed
    }
}

/// Whether a record has this shard of its part on a drive.
fn has_on(part: &PartContent, shard: u8, drive: DriveId) -> bool {
    part.spread.drives.get(usize::from(shard)) == Some(&drive)
}

/// The parts that a value of the index names; nothing if this program does not know what the value is.
fn parts_of(key: &[u8], value: &Bytes) -> Option<Vec<PartContent>> {
    if key::is_seal(key) || UploadRecord::decode(value).is_ok() {
        return Some(Vec::new());
    }
    if key::is_versioning(key) {
        return versioning::decode(value).ok().map(|_| Vec::new());
    }
    if key::is_null(key) {
        return version::decode_null(value).ok().map(|_| Vec::new());
    }
    if let Ok(record) = PartRecord::decode(value) {
        return Some(vec![record.content]);
    }
    match VersionRecord::decode(value).ok()? {
        VersionRecord::Object(record) => Some(record.parts),
        VersionRecord::Marker(_) => Some(Vec::new()),
    }
}

/// A search for the record that names a shard on a drive.
struct Search<'a> {
    drive: DriveId,
    owner: &'a ShardOwner,
    found: Named,
    /// Lines of the index that were read for it.
    lines: usize,
}

impl Search<'_> {
    fn look_at(&mut self, part: &PartContent) {
        if part.id == self.owner.part {
            let is_here = has_on(part, self.owner.shard, self.drive);
            self.found = self.found.max(if is_here { Named::Here } else { Named::Elsewhere });
        }
    }
}

impl<C: Cluster> ObjectService<C> {
    /// Whether a record names a shard on a drive, as far as the shard's header says where to look.
    async fn search<'a>(&self, drive: DriveId, owner: &'a ShardOwner) -> Result<Search<'a>, Error> {
        let mut search = Search { drive, owner, found: Named::No, lines: 0 };
        // First the part, then the object: a part becomes an object, never the other way.
        if let Some((upload, number)) = owner.upload {
            let entry = self.get_entry(owner.bucket, key::part(owner.bucket, &upload, number.into())).await?;
            if let Some(entry) = entry {
                search.look_at(&PartRecord::decode(&entry.value).map_err(|_| Error::Unavailable)?.content);
            }
        }
        let spans = match &owner.key {
            KeyBeginning::Whole(name) => {
                let name = core::str::from_utf8(name).map_err(|_| Error::Unavailable)?;
                key::spans_of(owner.bucket, name)
            }
            // Rare: keys beyond what a header keeps. All that begin so are looked at.
            KeyBeginning::Cut(beginning) => key::spans_of_beginning(owner.bucket, beginning),
        };
        // Several pages are not of one state. What moved to a page that had been read, as thousands of newer versions were deleted, is
        // found when they are read again.
        for _ in 0..2 {
            let mut next = self.search_spans(&mut search, spans.to_vec()).await?;
            if next.is_none() {
                break;
            }
            while let Some(spans) = next {
                next = self.search_spans(&mut search, spans).await?;
            }
        }
        Ok(search)
    }

    /// Searches the first page of these spans. What lies behind it, if there is more.
    async fn search_spans(&self, search: &mut Search<'_>, spans: Vec<Span>) -> Result<Option<Vec<Span>>, Error> {
        let Reply::Page { lines, next } = self.cluster.index(search.owner.bucket, Request::Spans(spans.clone())).await
        else {
            return Err(Error::Unavailable);
        };
        search.lines += lines.len();
        for line in &lines {
            if let Line::Entry(key, entry) = line {
                let parts = parts_of(key, &entry.value).ok_or(Error::Unavailable)?;
                parts.iter().for_each(|part| search.look_at(part));
            }
        }
        let rest = next.map(|next| {
            let behind = spans.into_iter().skip_while(|(from, to)| !(from..to).contains(&&next));
            let mut behind: Vec<_> = behind.collect();
            if let Some((from, _)) = behind.first_mut() {
                *from = next;
            }
            behind
        });
        Ok(rest)
    }

    /// Shows all keys between two keys and what they have, page by page.
    async fn walk(
        &self,
        bucket: BucketId,
        (mut from, to): (Vec<u8>, Vec<u8>),
        mut show: impl FnMut(&[u8], &Bytes) + Send,
    ) -> Result<(), Error> {
        loop {
            let scan = Scan { from, to: to.clone(), fold: Vec::new(), fold_after: 0, lines_max: PAGE_LINES };
            let Reply::Page { lines, next } = self.cluster.index(bucket, Request::Scan(scan)).await else {
                return Err(Error::Unavailable);
            };
            for line in &lines {
                if let Line::Entry(key, entry) = line {
                    show(key, &entry.value);
                }
            }
            match next {
                Some(next) => from = next,
                None => return Ok(()),
            }
        }
    }

    /// The shards on a drive that a bucket's index names, but for records that move between keys while it is read. Nothing if the index does not answer to the end, has
    /// something that this program does not know, or is empty and not that of a bucket which is being deleted.
    async fn shards_named(&self, bucket: BucketId, drive: DriveId) -> Option<BTreeSet<(PartId, u8)>> {
        let (mut named, mut is_empty, mut is_known) = (BTreeSet::new(), true, true);
        let middle = key::uploads(bucket);
        // Parts first: what becomes an object meanwhile is found as one.
        for span in [(middle.clone(), key::end(bucket)), (key::seal(bucket), middle)] {
            let read = self.walk(bucket, span, |key, value| {
                is_empty = false;
                match parts_of(key, value) {
                    Some(parts) => {
                        named.extend(parts.iter().flat_map(|part| {
                            let numbers = part.spread.drives.iter().zip(0..).filter(|(one, _)| **one == drive);
                            numbers.map(|(_, number)| (part.id, number))
                        }));
                    }
                    None => is_known = false,
                }
            });
            read.await.ok()?;
        }
        (is_known && !is_empty).then_some(named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner() -> ShardOwner {
        let key = KeyBeginning::Whole(b"key".to_vec());
        ShardOwner { bucket: BucketId([1; 16]), part: PartId([2; 12]), shard: 3, upload: None, key }
    }

    fn listed(number: u64, stamp: u64) -> ListedShard {
        let mut blob = [0; 16];
        blob[..8].copy_from_slice(&number.to_be_bytes());
        ListedShard { blob: BlobId::from_bytes(blob), stamp, header: None }
    }

    #[test]
    fn a_candidate_waits_since_it_was_found_so_and_with_that_stamp() {
        let mut collector = Collector::new(DriveId::from_bytes([1; 16]), CollectorConfig::default());
        let at = |seconds| Instant::default() + Duration::from_secs(seconds);
        let steps = [
            (1, Named::No, 1, 1),
            (1, Named::No, 2, 1),
            (7, Named::No, 3, 3),
            (7, Named::No, 4, 3),
            (7, Named::Elsewhere, 5, 5),
            (7, Named::Elsewhere, 6, 5),
            (8, Named::Elsewhere, 7, 7),
            (8, Named::No, 8, 8),
        ];
        for (stamp, named, now, since) in steps {
            collector.note(&listed(1, stamp), owner(), named, at(now));
            let candidate = &collector.candidates[&listed(1, stamp).blob];
            let expected = (at(since), stamp, named == Named::Elsewhere);
            assert_eq!((candidate.since, candidate.stamp, candidate.is_moved), expected, "{now}");
        }
        collector.note(&listed(1, 8), owner(), Named::Here, at(9));
        assert_eq!(collector.candidates(), 0);
    }

    #[test]
    fn so_many_blobs_are_candidates_and_not_more() {
        let mut collector = Collector::new(DriveId::from_bytes([1; 16]), CollectorConfig::default());
        let max = CANDIDATES_MAX as u64;
        for number in 0..=max {
            collector.note(&listed(number, 1), owner(), Named::No, Instant::default());
        }
        assert_eq!(collector.candidates(), CANDIDATES_MAX);
        // Those that are candidates are still noted.
        collector.note(&listed(0, 2), owner(), Named::No, Instant::default());
        assert_eq!(collector.candidates[&listed(0, 2).blob].stamp, 2);
        collector.note(&listed(0, 2), owner(), Named::Here, Instant::default());
        collector.note(&listed(max, 1), owner(), Named::No, Instant::default());
        assert!(collector.candidates.contains_key(&listed(max, 1).blob));
    }
}
