//! Versions of one key: what a put and a deletion do to them, and where one is found.
//!
//! The current object of a key lies under the object's own key of the index, in buckets with and without versions: one
//! look-up finds it, and a list of objects meets nothing else. Older versions and marks of deletions lie under keys of
//! their own ([`key::version`]). So
//! - where the object's key has nothing, the newest version is a mark of a deletion, or there is none;
//! - a version under a key of its own is older than the object that is current;
//! - of a key's versions one at most is the null version. If it is not the current object, [`key::null`] says where it is.
//!
//! Every change of these is one commit, checked by the versions of all entries that it was decided from.

use bytes::Bytes;

use super::versioning::Known;
use super::{Committed, ObjectService, TRIES_MAX, decode, holds, unchanged};
use crate::api::{
    Condition, DeleteMarker, DeleteRequest, Deletion, Edit, Error, Object, Permit, Target, VersionId, Versioning,
};
use crate::cluster::{Chore, Cluster, Moment};
use crate::cursor::{Cursor, Put as _};
use crate::index::key::{self, BucketId};
use crate::index::request::Scan;
use crate::index::{Change, Check, Entry, Line, Reply, Request};
use crate::lock::{Bypass, LockChange};
use crate::record::{MarkerRecord, ObjectRecord, PartContent, VersionRecord};

/// What has become of one try to change a key.
pub(super) enum Tried<T> {
    Done(T),
    /// Something that it was decided from has changed.
    Changed,
}

/// What is committed beside a put.
#[derive(Default)]
pub(super) struct Beside {
    pub(super) checks: Vec<Check>,
    pub(super) changes: Vec<Change>,
}

/// The record that is put, and what earlier tries have found.
pub(super) struct Putting {
    pub(super) record: ObjectRecord,
    /// The new version's sequence is this at least.
    floor: u64,
    /// The most bytes that the bucket may have.
    quota: Option<u64>,
}

impl Putting {
    pub(super) const fn new(record: ObjectRecord, quota: Option<u64>) -> Self {
        Self { record, floor: 0, quota }
    }

    /// Another try, with what the one before has found.
    pub(super) fn again(self, record: ObjectRecord) -> Self {
        Self { record, floor: self.floor, quota: self.quota }
    }
}

/// The current version makes room for a new one.
#[derive(Default)]
struct Displaced {
    checks: Vec<Check>,
    changes: Vec<Change>,
    discarded: Vec<PartContent>,
    /// The name and place of the new version.
    version: VersionId,
    sequence: u64,
    /// Where the null version is from now on, if that changes: a place of its own, or none.
    null: Option<Option<u64>>,
}

impl Displaced {
    fn changes_with_null(&mut self, bucket: BucketId, name: &str) {
        if let Some(null) = self.null {
            let value = null.map(|sequence| Bytes::from(encode_null(sequence)));
            self.changes.push(Change { key: key::null(bucket, name), value });
        }
    }
}

/// Version 1 of the written form, and the sequence.
fn encode_null(sequence: u64) -> Vec<u8> {
    let mut out = vec![1];
    out.put_u64(sequence);
    out
}

pub(super) fn decode_null(bytes: &Bytes) -> Result<u64, Error> {
    let mut from = Cursor(bytes.clone());
    match (from.u8(), from.u64(), from.end()) {
        (Ok(1), Ok(sequence), Ok(())) => Ok(sequence),
        _ => Err(Error::Damaged),
    }
}

/// A version that was found, and where.
pub(super) struct Found {
    pub(super) key: Vec<u8>,
    pub(super) entry: u64,
    pub(super) record: VersionRecord,
}

fn removed(key: Vec<u8>) -> Change {
    Change { key, value: None }
}

fn marker(name: &str, record: MarkerRecord) -> Box<DeleteMarker> {
    let MarkerRecord { version, modified_ms, attributes, .. } = record;
    Box::new(DeleteMarker { key: name.to_owned(), version, modified_ms, attributes })
}

impl<C: Cluster> ObjectService<C> {
    /// Commits changes if the checks hold and the bucket keeps versions as it did when it was looked at.
    async fn commit_as(
        &self,
        bucket: BucketId,
        known: &Known,
        checks: Vec<Check>,
        changes: Vec<Change>,
    ) -> Result<Committed, Error> {
        let is_same = unchanged(key::versioning(bucket), known.entry);
        let committed = self.commit(bucket, [vec![is_same], checks].concat(), changes).await;
        if !matches!(committed, Ok(Committed::Done(_))) {
            self.known.forget(bucket);
        }
        committed
    }

    /// The newest version of a key behind a place, of those that are not the current object.
    async fn newest(&self, bucket: BucketId, name: &str, from: Vec<u8>) -> Result<Option<Found>, Error> {
        let to = key::versions_of_end(bucket, name);
        let scan = Scan { from, to, fold: Vec::new(), fold_after: 0, lines_max: 1 };
        let Reply::Page { lines, .. } = self.cluster.index(bucket, Request::Scan(scan)).await else {
            return Err(Error::Unavailable);
        };
        match lines.into_iter().next() {
            Some(Line::Entry(key, Entry { version: entry, value })) => {
                let record = VersionRecord::decode(&value).map_err(|_| Error::Damaged)?;
                Ok(Some(Found { key, entry, record }))
            }
            _ => Ok(None),
        }
    }

    async fn at(&self, bucket: BucketId, name: &str, sequence: u64) -> Result<Option<Found>, Error> {
        let key = key::version(bucket, name, sequence);
        let Some(Entry { version: entry, value }) = self.get_entry(bucket, key.clone()).await? else { return Ok(None) };
        let record = VersionRecord::decode(&value).map_err(|_| Error::Damaged)?;
        Ok(Some(Found { key, entry, record }))
    }

    /// The sequence of the null version of a key, if it is not the current object.
    pub(super) async fn null_place(&self, bucket: BucketId, name: &str) -> Result<Option<u64>, Error> {
        let entry = self.get_entry(bucket, key::null(bucket, name)).await?;
        entry.map(|entry| decode_null(&entry.value)).transpose()
    }

    /// A version of a key, of those that are not the current object.
    async fn older(&self, bucket: BucketId, name: &str, version: VersionId) -> Result<Option<Found>, Error> {
        let sequence = match version {
            VersionId::Named { sequence, .. } => sequence,
            VersionId::Null => match self.null_place(bucket, name).await? {
                Some(sequence) => sequence,
                None => return Ok(None),
            },
        };
        let found = self.at(bucket, name, sequence).await?;
        Ok(found.filter(|found| found.record.version() == version))
    }

    /// The version that a request is about.
    pub(super) async fn find(&self, bucket: BucketId, name: &str, version: Option<VersionId>) -> Result<Found, Error> {
        for _ in 0..TRIES_MAX {
            let now = self.get_entry(bucket, key::object(bucket, name.as_bytes())).await?;
            let record = now.as_ref().map(decode).transpose()?;
            match (now.as_ref(), record, version) {
                (Some(now), Some(record), wanted) if wanted.is_none_or(|wanted| wanted == record.version) => {
                    let key = key::object(bucket, name.as_bytes());
                    return Ok(Found { key, entry: now.version, record: VersionRecord::Object(record) });
                }
                (_, _, None) => return Err(self.absence(bucket, name).await?),
                (_, _, Some(wanted)) => match self.older(bucket, name, wanted).await? {
                    Some(Found { record: VersionRecord::Marker(record), .. }) => {
                        return Err(Error::IsMarker(marker(name, record)));
                    }
                    Some(found) => return Ok(found),
                    None => {}
                },
            }
            // It may have become the current one, or have stopped to be, between the two look-ups.
            let again = self.get_entry(bucket, key::object(bucket, name.as_bytes())).await?;
            if again.map(|again| again.version) == now.map(|now| now.version) {
                return Err(Error::NoSuchVersion);
            }
        }
        Err(Error::Unavailable)
    }

    /// Why a key has no current object.
    async fn absence(&self, bucket: BucketId, name: &str) -> Result<Error, Error> {
        if self.versioning_for_read(bucket).await? == Versioning::Never {
            return Ok(Error::NoSuchKey);
        }
        Ok(match self.newest(bucket, name, key::versions_of(bucket, name)).await? {
            Some(Found { record: VersionRecord::Marker(record), .. }) => Error::Deleted(marker(name, record)),
            // An object can be here only if a deletion of a mark was under way.
            _ => Error::NoSuchKey,
        })
    }

    /// Plans how the current version of a key makes room for a new one, in a bucket that keeps versions or has kept them.
    async fn displace(
        &self,
        (bucket, name): (BucketId, &str),
        state: Versioning,
        now: Option<&(ObjectRecord, u64)>,
        moment: &Moment,
        floor: u64,
    ) -> Result<Displaced, Error> {
        let mut plan = Displaced::default();
        plan.checks.push(unchanged(key::object(bucket, name.as_bytes()), now.map(|(_, entry)| *entry)));
        let is_null_next = state == Versioning::Suspended;
        let is_null_now = now.is_some_and(|(now, _)| now.version == VersionId::Null);
        let mut floor = now.map_or(floor, |(now, _)| now.sequence + 1);
        if is_null_next && !is_null_now {
            // The null version that there was, wherever it is, goes for the new one.
            let pointer = self.get_entry(bucket, key::null(bucket, name)).await?;
            plan.checks.push(unchanged(key::null(bucket, name), pointer.as_ref().map(|pointer| pointer.version)));
            if let Some(pointer) = pointer {
                let sequence = decode_null(&pointer.value)?;
                floor = floor.max(sequence + 1);
                plan.null = Some(None);
                plan.changes.push(removed(key::version(bucket, name, sequence)));
                if let Some(Found { record: VersionRecord::Object(old), .. }) = self.at(bucket, name, sequence).await? {
                    old.lock.check_deletion(moment.now_ms, Bypass::Denied)?;
                    plan.discarded = old.parts;
                }
            }
        }
        plan.sequence = moment.now_ms.max(floor);
        let drawn = u64::from_be_bytes(*moment.drawn.first_chunk().expect("sixteen bytes have eight"));
        plan.version = if is_null_next { VersionId::Null } else { VersionId::Named { sequence: plan.sequence, drawn } };
        match now {
            None => {
                let behind = key::version(bucket, name, plan.sequence.saturating_sub(1));
                plan.checks.push(Check::Empty(key::versions_of(bucket, name), behind));
            }
            Some((now, _)) if is_null_now && is_null_next => {
                now.lock.check_deletion(moment.now_ms, Bypass::Denied)?;
                plan.discarded.clone_from(&now.parts);
            }
            Some((now, _)) => {
                let value = Some(Bytes::from(now.encode()));
                plan.changes.push(Change { key: key::version(bucket, name, now.sequence), value });
                if is_null_now {
                    plan.null = Some(Some(now.sequence));
                }
            }
        }
        Ok(plan)
    }

    /// What the next try has to know of a key without a current object: a sequence that all its versions are below.
    async fn floor(&self, bucket: BucketId, name: &str) -> Result<u64, Error> {
        let newest = self.newest(bucket, name, key::versions_of(bucket, name)).await?;
        Ok(newest.map_or(0, |newest| newest.record.sequence() + 1))
    }

    /// One try to make a record the current version of a key, if the condition holds then.
    pub(super) async fn try_put(
        &self,
        (bucket, name): (BucketId, &str),
        putting: &mut Putting,
        condition: &Condition,
        beside: Beside,
    ) -> Result<Tried<Object>, Error> {
        let has_lock = !putting.record.lock.is_absent();
        let known =
            if has_lock { self.check_lockable(bucket).await? } else { self.versioning_for_write(bucket).await? };
        let is_versioned = known.state != Versioning::Never;
        let is_blind = !is_versioned && *condition == Condition::default();
        let now = if is_blind { None } else { self.record(bucket, name).await? };
        if let Some((now, _)) = now.as_ref().filter(|(now, _)| now.put_id == putting.record.put_id) {
            // An earlier try was committed, and its reply was lost.
            return Ok(Tried::Done(super::object(name, now.clone(), known.state)));
        }
        holds(condition, now.as_ref().map(|(now, _)| now))?;
        let Beside { mut checks, mut changes } = beside;
        let record = &mut putting.record;
        let mut discarded = Vec::new();
        if is_versioned {
            let moment = Moment { now_ms: record.modified_ms, drawn: record.put_id, ..self.cluster.moment() };
            let mut plan = self.displace((bucket, name), known.state, now.as_ref(), &moment, putting.floor).await?;
            plan.changes_with_null(bucket, name);
            (record.version, record.sequence) = (plan.version, plan.sequence);
            checks.extend(plan.checks);
            changes.extend(plan.changes);
            discarded = plan.discarded;
        } else {
            (record.version, record.sequence) = (VersionId::Null, record.modified_ms);
            if !is_blind {
                checks.push(unchanged(key::object(bucket, name.as_bytes()), now.as_ref().map(|(_, entry)| *entry)));
            }
        }
        checks.extend(putting.quota.map(|bytes_max| Check::Room(bucket, bytes_max)));
        let key = key::object(bucket, name.as_bytes());
        changes.insert(0, Change { key, value: Some(Bytes::from(record.encode())) });
        match self.commit_as(bucket, &known, checks, changes).await? {
            Committed::Done(before) => {
                if !is_versioned {
                    self.discard(before.as_ref(), &record.parts);
                }
                self.discard_parts(discarded);
                if record.parts.iter().any(|part| !part.missing.is_empty()) {
                    self.cluster.later(Chore::HealNoted(bucket, name.to_owned()));
                }
                Ok(Tried::Done(super::object(name, record.clone(), known.state)))
            }
            Committed::Changed => {
                let earlier = if is_versioned { self.at(bucket, name, record.sequence).await? } else { None };
                match earlier {
                    // An earlier try was committed, and another put came behind it.
                    Some(Found { record: VersionRecord::Object(old), .. }) if old.put_id == record.put_id => {
                        return Ok(Tried::Done(super::object(name, old, known.state)));
                    }
                    _ => putting.floor = self.floor(bucket, name).await?,
                }
                Ok(Tried::Changed)
            }
        }
    }

    /// Deletes the current version of a key: for good, or by a mark.
    async fn try_delete(
        &self,
        bucket: BucketId,
        request: &DeleteRequest<'_>,
        floor: u64,
    ) -> Result<Tried<Deletion>, Error> {
        let name = request.target.key;
        let known = self.versioning_for_write(bucket).await?;
        let is_versioned = known.state != Versioning::Never;
        let is_blind = !is_versioned && *request.condition == Condition::default() && request.permit.is_always();
        let now = if is_blind { None } else { self.record(bucket, name).await? };
        holds(request.condition, now.as_ref().map(|(now, _)| now))?;
        if let Some((now, _)) = &now {
            request.permit.check(|| super::object(name, now.clone(), known.state))?;
        }
        let key = key::object(bucket, name.as_bytes());
        if !is_versioned {
            let is_same = || unchanged(key.clone(), now.as_ref().map(|(_, entry)| *entry));
            let checks = if is_blind { Vec::new() } else { vec![is_same()] };
            return Ok(match self.commit_as(bucket, &known, checks, vec![removed(key.clone())]).await? {
                Committed::Done(before) => {
                    self.discard(before.as_ref(), &[]);
                    Tried::Done(Deletion::default())
                }
                Committed::Changed => Tried::Changed,
            });
        }
        let moment = self.cluster.moment();
        let mut plan = self.displace((bucket, name), known.state, now.as_ref(), &moment, floor).await?;
        if now.is_some() {
            plan.changes.push(removed(key));
        }
        let record = MarkerRecord {
            version: plan.version,
            sequence: plan.sequence,
            modified_ms: moment.now_ms,
            attributes: request.attributes.clone(),
        };
        if plan.version == VersionId::Null {
            plan.null = Some(Some(plan.sequence));
        }
        plan.changes_with_null(bucket, name);
        let value = Some(Bytes::from(record.encode()));
        plan.changes.push(Change { key: key::version(bucket, name, plan.sequence), value });
        Ok(match self.commit_as(bucket, &known, plan.checks, plan.changes).await? {
            Committed::Done(_) => {
                self.discard_parts(plan.discarded);
                Tried::Done(Deletion { version: Some(plan.version), is_marker: true })
            }
            Committed::Changed => Tried::Changed,
        })
    }

    /// Removes one version of a key. If it was the current one, the newest that is left becomes current.
    async fn try_delete_version(
        &self,
        bucket: BucketId,
        request: &DeleteRequest<'_>,
        version: VersionId,
    ) -> Result<Tried<Deletion>, Error> {
        let name = request.target.key;
        let object_key = key::object(bucket, name.as_bytes());
        let now = self.record(bucket, name).await?;
        let is_object = unchanged(object_key.clone(), now.as_ref().map(|(_, entry)| *entry));
        let (mut checks, mut changes, mut discarded) = (Vec::new(), Vec::new(), Vec::new());
        let mut is_marker = false;
        let now_ms = self.cluster.moment().now_ms;
        // Behind which place the next current version is looked for, if the one that goes is the current one.
        let mut behind = None;
        if let Some((now, _)) = now.as_ref().filter(|(now, _)| now.version == version) {
            holds(request.condition, Some(now))?;
            request.permit.check(|| super::object(name, now.clone(), Versioning::Enabled))?;
            now.lock.check_deletion(now_ms, request.bypass)?;
            checks.push(is_object);
            discarded.clone_from(&now.parts);
            behind = Some(key::versions_of(bucket, name));
        } else {
            let Some(found) = self.older(bucket, name, version).await? else {
                let again = self.record(bucket, name).await?.map(|(_, entry)| entry);
                let is_same = again == now.map(|(_, entry)| entry);
                return Ok(if is_same {
                    Tried::Done(Deletion { version: Some(version), is_marker })
                } else {
                    Tried::Changed
                });
            };
            checks.push(Check::Version(found.key.clone(), found.entry));
            changes.push(removed(found.key.clone()));
            if version == VersionId::Null {
                changes.push(removed(key::null(bucket, name)));
            }
            match found.record {
                VersionRecord::Object(old) => {
                    holds(request.condition, Some(&old))?;
                    request.permit.check(|| super::object(name, old.clone(), Versioning::Enabled))?;
                    old.lock.check_deletion(now_ms, request.bypass)?;
                    discarded = old.parts;
                }
                VersionRecord::Marker(_) => {
                    is_marker = true;
                    let newest = self.newest(bucket, name, key::versions_of(bucket, name)).await?;
                    if now.is_none() && newest.is_some_and(|newest| newest.key == found.key) {
                        checks.push(is_object);
                        checks.push(Check::Empty(key::versions_of(bucket, name), found.key.clone()));
                        behind = Some([found.key, vec![0]].concat());
                    }
                }
            }
        }
        if let Some(behind) = behind {
            self.promote((bucket, name), behind, now.is_some(), (&mut checks, &mut changes)).await?;
        }
        Ok(match self.commit(bucket, checks, changes).await? {
            Committed::Done(_) => {
                self.discard_parts(discarded);
                Tried::Done(Deletion { version: Some(version), is_marker })
            }
            Committed::Changed => Tried::Changed,
        })
    }

    /// Plans that the newest version behind a place becomes the current one.
    async fn promote(
        &self,
        (bucket, name): (BucketId, &str),
        behind: Vec<u8>,
        has_object: bool,
        (checks, changes): (&mut Vec<Check>, &mut Vec<Change>),
    ) -> Result<(), Error> {
        let object_key = key::object(bucket, name.as_bytes());
        let next = self.newest(bucket, name, behind.clone()).await?;
        checks.push(match &next {
            Some(next) => Check::Version(next.key.clone(), next.entry),
            None => Check::Empty(behind, key::versions_of_end(bucket, name)),
        });
        match next {
            Some(Found { key, record: VersionRecord::Object(record), .. }) => {
                changes.push(Change { key: object_key, value: Some(Bytes::from(record.encode())) });
                changes.push(removed(key));
                if record.version == VersionId::Null {
                    changes.push(removed(key::null(bucket, name)));
                }
            }
            _ if has_object => changes.push(removed(object_key)),
            _ => {}
        }
        Ok(())
    }

    pub(super) async fn delete_object(&self, request: DeleteRequest<'_>) -> Result<Deletion, Error> {
        let (bucket, _) = self.bucket(request.target.bucket).await?;
        let mut floor = 0;
        for _ in 0..TRIES_MAX {
            let tried = match request.target.version {
                Some(version) => self.try_delete_version(bucket, &request, version).await?,
                None => self.try_delete(bucket, &request, floor).await?,
            };
            match tried {
                Tried::Done(deletion) => return Ok(deletion),
                Tried::Changed => floor = self.floor(bucket, request.target.key).await?,
            }
        }
        Err(Error::Unavailable)
    }

    /// Changes the attributes of a version.
    pub(super) async fn edit_object(&self, target: Target<'_>, edit: Edit<'_>) -> Result<Object, Error> {
        let (bucket, _) = self.bucket(target.bucket).await?;
        let state = self.versioning_for_read(bucket).await?;
        for _ in 0..TRIES_MAX {
            let Found { key, entry, record } = self.find(bucket, target.key, target.version).await?;
            let VersionRecord::Object(mut record) = record else { return Err(Error::NoSuchVersion) };
            record.attributes = edit(&super::object(target.key, record.clone(), state))?;
            super::object::check(target.key, &record.attributes)?;
            let change = Change { key: key.clone(), value: Some(Bytes::from(record.encode())) };
            if let Committed::Done(_) = self.commit(bucket, vec![Check::Version(key, entry)], vec![change]).await? {
                return Ok(super::object(target.key, record, state));
            }
        }
        Err(Error::Unavailable)
    }

    /// Changes what keeps a version from deletion. The commit names the version of the record from which it was decided, as
    /// that of a deletion does: whichever comes second decides again.
    pub(super) async fn relock_object(
        &self,
        target: Target<'_>,
        change: LockChange,
        bypass: Bypass,
        permit: Permit<'_>,
    ) -> Result<Object, Error> {
        let (bucket, _) = self.bucket(target.bucket).await?;
        for _ in 0..TRIES_MAX {
            let known = self.check_lockable(bucket).await?;
            let Found { key, entry, record } = self.find(bucket, target.key, target.version).await?;
            let VersionRecord::Object(mut record) = record else { return Err(Error::NoSuchVersion) };
            permit.check(|| super::object(target.key, record.clone(), known.state))?;
            record.lock = record.lock.changed(change, self.cluster.moment().now_ms, bypass)?;
            let changed = Change { key: key.clone(), value: Some(Bytes::from(record.encode())) };
            let checks = vec![Check::Version(key, entry)];
            if let Committed::Done(_) = self.commit_as(bucket, &known, checks, vec![changed]).await? {
                return Ok(super::object(target.key, record, known.state));
            }
        }
        Err(Error::Unavailable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        assert_eq!(encode_null(258), [1, 0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(decode_null(&Bytes::from(encode_null(258))), Ok(258));
        for wrong in [&[][..], &[2, 0, 0, 0, 0, 0, 0, 1, 2], &[1, 0], &[1, 0, 0, 0, 0, 0, 0, 1, 2, 3]] {
            assert_eq!(decode_null(&Bytes::copy_from_slice(wrong)), Err(Error::Damaged));
        }
    }
}
