//! The object service: buckets, objects and uploads over shards and the index.
//!
//! A put writes the shards of every block first, on fresh names, and commits one record that refers to them: readers and
//! crashes see the old object or the new one. Shards that a failed or overwritten put leaves are discarded after that.
//!
//! A condition is checked against the record that was read, and committed by that record's version: of several conditional
//! writers one wins, and the others look again.
//!
//! Parts: `bucket`, `put` (a body becomes a part), `content` (a part becomes a body), `version` (what lies under a key),
//! `versioning` (which buckets keep versions), `object`, `list_versions`, `upload`, [`quota`] (how much a bucket may have), [`heal`],
//! [`collect`] (shards without a record).

use std::sync::Arc;

use crate::api::{self, Bucket, Condition, Error, Object, VersionId, Versioning};
use crate::cluster::{BucketList, BucketListError, Chore, Cluster};
use crate::index::key::{self, BucketId};
use crate::index::{Change, Check, Entry, Reply, Request};
use crate::record::{ObjectRecord, PartContent};
use crate::stripe::Codecs;

mod bucket;
pub mod collect;
mod content;
pub mod heal;
mod list_versions;
mod object;
mod put;
pub mod quota;
mod upload;
mod version;
mod versioning;

/// Tries of a write whose record changes again and again under it.
const TRIES_MAX: u32 = 64;

/// The objects of a cluster, as every server of it offers them.
pub struct ObjectService<C> {
    cluster: Arc<C>,
    buckets: Arc<dyn BucketList>,
    codecs: Arc<Codecs>,
    known: Arc<versioning::KnownBuckets>,
}

impl<C> Clone for ObjectService<C> {
    fn clone(&self) -> Self {
        Self {
            cluster: Arc::clone(&self.cluster),
            buckets: Arc::clone(&self.buckets),
            codecs: Arc::clone(&self.codecs),
            known: Arc::clone(&self.known),
        }
    }
}

/// What a record's commit gave.
enum Committed {
    /// Done; what the first changed key had before.
    Done(Option<Entry>),
    /// A check does not hold.
    Changed,
}

impl<C: Cluster> ObjectService<C> {
    /// The service over a cluster.
    #[must_use]
    pub fn new(cluster: Arc<C>, buckets: Arc<dyn BucketList>) -> Self {
        Self { cluster, buckets, codecs: Arc::default(), known: Arc::default() }
    }

    /// What a front is given.
    #[must_use]
    pub fn api(&self) -> api::Service {
        let service = Arc::new(self.clone());
        api::Service {
            buckets: Arc::clone(&service) as Arc<dyn api::Buckets>,
            objects: Arc::clone(&service) as Arc<dyn api::Objects>,
            uploads: Arc::clone(&service) as Arc<dyn api::Uploads>,
            versions: service,
        }
    }

    /// The bucket of a name.
    async fn bucket(&self, name: &str) -> Result<(BucketId, Bucket), Error> {
        let found = self.buckets.find(name).await.map_err(list_error)?.ok_or(Error::NoSuchBucket)?;
        Ok((found.id, bucket::bucket(name, found)))
    }

    async fn get_entry(&self, bucket: BucketId, key: Vec<u8>) -> Result<Option<Entry>, Error> {
        match self.cluster.index(bucket, Request::Get(key)).await {
            Reply::Value(entry) => Ok(entry),
            _ => Err(Error::Unavailable),
        }
    }

    /// The record of an object and its version.
    async fn record(&self, bucket: BucketId, key: &str) -> Result<Option<(ObjectRecord, u64)>, Error> {
        let entry = self.get_entry(bucket, key::object(bucket, key.as_bytes())).await?;
        entry.map(|entry| Ok((decode(&entry)?, entry.version))).transpose()
    }

    /// Commits changes if the checks hold and the bucket is not being deleted.
    async fn commit(&self, bucket: BucketId, checks: Vec<Check>, changes: Vec<Change>) -> Result<Committed, Error> {
        let seal = Check::Absent(key::seal(bucket));
        let checks = [vec![seal], checks].concat();
        let room = checks.iter().position(|check| matches!(check, Check::Room(..)));
        match self.cluster.index(bucket, Request::Commit { checks, changes }).await {
            Reply::Committed { before, .. } => Ok(Committed::Done(before.into_iter().next().flatten())),
            Reply::Refused(0) => Err(Error::NoSuchBucket),
            Reply::Refused(number) if room.is_some_and(|room| room == number as usize) => Err(Error::OverQuota),
            Reply::Refused(_) => Ok(Committed::Changed),
            Reply::TooLarge => Err(Error::BadRequest("the record of the object is too long for the index")),
            Reply::Full => Err(Error::Full),
            _ => Err(Error::Unavailable),
        }
    }

    /// A part goes that was never one of an object.
    fn discard_unread(&self, part: PartContent) {
        self.cluster.later(Chore::Discard { part, of_bytes: 0 });
    }

    /// Parts of an object go, which somebody may be reading.
    fn discard_parts(&self, parts: Vec<PartContent>) {
        let of_bytes = parts.iter().map(|part| part.bytes).sum();
        parts.into_iter().for_each(|part| self.cluster.later(Chore::Discard { part, of_bytes }));
    }

    /// What an object that is replaced or deleted referred to goes, but for what the new one refers to.
    fn discard(&self, before: Option<&Entry>, but: &[PartContent]) {
        let Some(Ok(record)) = before.map(decode) else { return };
        let is_kept = |part: &PartContent| but.iter().any(|kept| kept.id == part.id);
        self.discard_parts(record.parts.into_iter().filter(|part| !is_kept(part)).collect());
    }
}

fn decode(entry: &Entry) -> Result<ObjectRecord, Error> {
    ObjectRecord::decode(&entry.value).map_err(|_| Error::Damaged)
}

const fn list_error(error: BucketListError) -> Error {
    match error {
        BucketListError::Exists => Error::BucketExists,
        BucketListError::Unknown => Error::NoSuchBucket,
        BucketListError::Changed | BucketListError::Unavailable => Error::Unavailable,
    }
}

/// An object of a bucket in that state.
fn object(key: &str, record: ObjectRecord, state: Versioning) -> Object {
    let is_unversioned = state == Versioning::Never && record.version == VersionId::Null;
    let bytes = record.bytes();
    let parts = if record.is_multipart { record.parts.iter().map(|part| part.bytes).collect() } else { Vec::new() };
    Object {
        key: key.to_owned(),
        version: (!is_unversioned).then_some(record.version),
        bytes,
        etag: record.etag,
        modified_ms: record.modified_ms,
        attributes: record.attributes,
        lock: record.lock,
        parts,
        envelope: record.envelope,
    }
}

/// Whether a condition holds for what has the key now.
fn holds(condition: &Condition, now: Option<&ObjectRecord>) -> Result<(), Error> {
    let is_one = |etags: &[String]| {
        now.is_some_and(|now| etags.iter().any(|etag| etag == "*" || etag.trim_matches('"') == now.etag))
    };
    match (&condition.etag_is, now) {
        // As S3 has it: what does not exist is not found, rather than another.
        (Some(_), None) => return Err(Error::NoSuchKey),
        (Some(etags), _) if !is_one(etags) => return Err(Error::ConditionFailed),
        _ => {}
    }
    if condition.put_at_ms.is_some_and(|ms| now.is_none_or(|now| now.modified_ms != ms)) {
        return Err(Error::ConditionFailed);
    }
    match &condition.etag_is_not {
        Some(etags) if is_one(etags) => Err(Error::ConditionFailed),
        _ => Ok(()),
    }
}

/// What must not have changed since a record was read.
fn unchanged(key: Vec<u8>, version: Option<u64>) -> Check {
    match version {
        Some(version) => Check::Version(key, version),
        None => Check::Absent(key),
    }
}

#[cfg(test)]
mod tests;
