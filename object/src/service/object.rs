//! Objects: put, get, delete, list.

use std::sync::Arc;

use super::content::Blocks;
use super::put::Owner;
use super::version::{Beside, Putting, Tried};
use super::{ObjectService, TRIES_MAX, decode, holds, object, quota};
use crate::api::{
    ATTRIBUTES_BYTES_MAX, Attributes, Body, BoxFuture, Condition, DeleteRequest, Deletion, Edit, Error, KEY_BYTES_MAX,
    ListRequest, Listed, Object, Objects, Opened, PAGE_MAX, PART_BYTES_MAX, Page, Permit, PutRequest, Range,
    Redundancy, Target, VersionId, Versioning, Versions, VersionsPage, VersionsRequest,
};
use crate::cluster::Cluster;
use crate::index::key::{self, BucketId};
use crate::index::request::Scan;
use crate::index::{Line, Reply, Request};
use crate::lock::{Bypass, LockChange};
use crate::record::{ObjectRecord, VersionRecord};

/// Refuses what no object may be called or say about itself.
pub(super) fn check(key: &str, attributes: &Attributes) -> Result<(), Error> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Err(Error::BadRequest("a key has 1 to 1,024 bytes"));
    }
    if attributes.len_bytes() > ATTRIBUTES_BYTES_MAX {
        return Err(Error::BadRequest("an object's attributes have at most 8 KiB"));
    }
    Ok(())
}

impl<C: Cluster> ObjectService<C> {
    async fn put_object(&self, request: PutRequest, body: &mut dyn Body) -> Result<Object, Error> {
        check(&request.key, &request.attributes)?;
        if request.bytes.is_some_and(|bytes| bytes > PART_BYTES_MAX) {
            return Err(Error::TooLarge);
        }
        let (bucket, about) = self.bucket(&request.bucket).await?;
        let quota = quota::of(&about.attributes);
        self.check_quota((bucket, &request.key), quota, request.bytes).await?;
        if request.condition != Condition::default() {
            // A condition that does not hold now spares the bytes. What counts is the check at the commit.
            let now = self.record(bucket, &request.key).await?;
            holds(&request.condition, now.as_ref().map(|(now, _)| now))?;
        }
        if !request.lock.is_absent() {
            self.check_lockable(bucket).await?;
        }
        let owner = Owner { bucket, key: &request.key, upload: None };
        let key = request.encryption.as_ref().map(|encryption| &encryption.data_key);
        let content = self.put_body(&owner, Redundancy::of(&request.attributes), key, body).await?;
        let digest = body.digest();
        let moment = self.cluster.moment();
        let attributes = Attributes([request.attributes.0, digest.attributes.0].concat());
        let parts = if content.bytes == 0 { Vec::new() } else { vec![content] };
        let record = ObjectRecord {
            version: VersionId::Null,
            sequence: moment.now_ms,
            put_id: moment.drawn,
            etag: digest.etag,
            modified_ms: moment.now_ms,
            attributes,
            lock: request.lock,
            is_multipart: false,
            envelope: request.encryption.map(|encryption| encryption.envelope),
            parts,
        };
        let mut putting = Putting::new(record, quota);
        match self.commit_object((bucket, &request.key), &mut putting, &request.condition).await {
            // Whether it took effect is not known: its shards stay.
            Err(Error::Unavailable) => Err(Error::Unavailable),
            Err(error) => {
                putting.record.parts.into_iter().for_each(|part| self.discard_unread(part));
                Err(error)
            }
            put => put,
        }
    }

    async fn commit_object(
        &self,
        at: (BucketId, &str),
        putting: &mut Putting,
        condition: &Condition,
    ) -> Result<Object, Error> {
        for _ in 0..TRIES_MAX {
            match self.try_put(at, putting, condition, Beside::default()).await {
                Ok(Tried::Done(object)) => return Ok(object),
                Ok(Tried::Changed) => {}
                Err(Error::Unavailable) => return self.put_after_unknown(at, putting).await,
                Err(error) => return Err(error),
            }
        }
        Err(Error::Unavailable)
    }

    /// Nobody knows whether a put was committed. It is done if its record is there. If another one is, or none, it may have been
    /// committed and replaced, or may be committed still: the put is not repeated, since its shards may be on their way to be removed.
    async fn put_after_unknown(&self, (bucket, name): (BucketId, &str), putting: &Putting) -> Result<Object, Error> {
        match self.record(bucket, name).await? {
            Some((found, _)) if found.put_id == putting.record.put_id => {
                let state = self.versioning_for_write(bucket).await?.state;
                Ok(object(name, found, state))
            }
            _ => Err(Error::Unavailable),
        }
    }

    async fn get_object(
        &self,
        target: Target<'_>,
        range: Option<Range>,
        condition: &Condition,
    ) -> Result<Opened, Error> {
        let name = target.key;
        let (bucket, record, state) = self.found(target).await?;
        let is_match = Condition { etag_is_not: None, ..condition.clone() };
        holds(&is_match, Some(&record))?;
        let is_other = Condition { etag_is: None, ..condition.clone() };
        if holds(&is_other, Some(&record)).is_err() {
            return Err(Error::NotModified(Box::new(object(name, record, state))));
        }
        let bytes = record.bytes();
        let range = match range {
            None => (0, bytes),
            Some(range) => range.within(bytes).ok_or(Error::BadRange(bytes))?,
        };
        let world = (Arc::clone(&self.cluster), Arc::clone(&self.codecs));
        let content = Box::new(Blocks::new(world, &record, range, (bucket, name.to_owned())));
        Ok(Opened { object: object(name, record, state), range, content })
    }

    /// The object that a request is about.
    async fn found(&self, target: Target<'_>) -> Result<(BucketId, ObjectRecord, Versioning), Error> {
        let (bucket, _) = self.bucket(target.bucket).await?;
        let state = self.versioning_for_read(bucket).await?;
        match self.find(bucket, target.key, target.version).await?.record {
            VersionRecord::Object(record) => Ok((bucket, record, state)),
            VersionRecord::Marker(_) => unreachable!("a mark of a deletion is found as an error"),
        }
    }

    async fn list_objects(&self, bucket: &str, request: &ListRequest) -> Result<Page, Error> {
        let (bucket, _) = self.bucket(bucket).await?;
        let limit = request.limit.min(PAGE_MAX);
        let mut page = Page::default();
        let Some(mut scan) = scan(bucket, request, limit).filter(|_| limit > 0) else { return Ok(page) };
        loop {
            let Reply::Page { lines, next } = self.cluster.index(bucket, Request::Scan(scan.clone())).await else {
                return Err(Error::Unavailable);
            };
            for line in lines {
                page.entries.push(listed(line)?);
            }
            let Some(next) = next else { return Ok(page) };
            if page.entries.len() >= limit {
                page.next = page.entries.last().map(|last| match last {
                    Listed::Object(object) => object.key.clone(),
                    Listed::Prefix(prefix) => prefix.clone(),
                });
                return Ok(page);
            }
            // The page of the index was full before that of the list.
            scan.from = next;
            scan.lines_max = u32::try_from(limit - page.entries.len()).expect("at most PAGE_MAX");
        }
    }
}

/// The scan of the index that a list asks for; nothing if there can be no such key.
fn scan(bucket: BucketId, request: &ListRequest, limit: usize) -> Option<Scan> {
    let ListRequest { prefix, delimiter, after, .. } = request;
    let begin = key::object(bucket, prefix.as_bytes());
    let to = key_behind(&begin).filter(|_| !prefix.is_empty()).unwrap_or_else(|| key::objects_end(bucket));
    let mut from = begin.clone();
    if !after.is_empty() && after >= prefix {
        let after_key = key::object(bucket, after.as_bytes());
        from = if is_common_prefix(after, prefix, delimiter) {
            key_behind(&after_key)?
        } else {
            [after_key, vec![0]].concat()
        };
    }
    Some(Scan {
        from,
        to,
        fold: delimiter.as_bytes().to_vec(),
        fold_after: u32::try_from(begin.len()).expect("a key is short"),
        lines_max: u32::try_from(limit).expect("at most PAGE_MAX"),
    })
}

/// Whether the place at which a list goes on is a common prefix that was told: all keys under it are.
pub(super) fn is_common_prefix(after: &str, prefix: &str, delimiter: &str) -> bool {
    let rest = after.strip_prefix(prefix).filter(|_| !delimiter.is_empty());
    rest.is_some_and(|rest| rest.find(delimiter).is_some_and(|at| at + delimiter.len() == rest.len()))
}

/// The first key behind all that begin so.
pub(super) fn key_behind(beginning: &[u8]) -> Option<Vec<u8>> {
    let last = beginning.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut behind = beginning[..=last].to_vec();
    behind[last] += 1;
    Some(behind)
}

fn listed(line: Line) -> Result<Listed, Error> {
    let name = |key: &[u8]| key::object_name(key).map(str::to_owned).ok_or(Error::Damaged);
    Ok(match line {
        Line::Entry(key, entry) => Listed::Object(object(&name(&key)?, decode(&entry)?, Versioning::Never)),
        Line::Folded(key) => Listed::Prefix(name(&key)?),
    })
}

impl<C: Cluster> Objects for ObjectService<C> {
    fn put<'a>(&'a self, request: PutRequest, body: &'a mut dyn Body) -> BoxFuture<'a, Result<Object, Error>> {
        Box::pin(self.put_object(request, body))
    }

    fn get<'a>(
        &'a self,
        target: Target<'a>,
        range: Option<Range>,
        condition: &'a Condition,
    ) -> BoxFuture<'a, Result<Opened, Error>> {
        Box::pin(self.get_object(target, range, condition))
    }

    fn head<'a>(&'a self, target: Target<'a>) -> BoxFuture<'a, Result<Object, Error>> {
        Box::pin(async move {
            let (_, record, state) = self.found(target).await?;
            Ok(object(target.key, record, state))
        })
    }

    fn delete<'a>(&'a self, request: DeleteRequest<'a>) -> BoxFuture<'a, Result<Deletion, Error>> {
        Box::pin(self.delete_object(request))
    }

    fn list<'a>(&'a self, bucket: &'a str, request: &'a ListRequest) -> BoxFuture<'a, Result<Page, Error>> {
        Box::pin(self.list_objects(bucket, request))
    }
}

impl<C: Cluster> Versions for ObjectService<C> {
    fn state<'a>(&'a self, bucket: &'a str) -> BoxFuture<'a, Result<Versioning, Error>> {
        Box::pin(self.versioning_now(bucket))
    }

    fn set_state<'a>(&'a self, bucket: &'a str, state: Versioning) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.set_versioning(bucket, state))
    }

    fn list<'a>(&'a self, bucket: &'a str, request: &'a VersionsRequest) -> BoxFuture<'a, Result<VersionsPage, Error>> {
        Box::pin(self.versions_page(bucket, request))
    }

    fn edit<'a>(&'a self, target: Target<'a>, edit: Edit<'a>) -> BoxFuture<'a, Result<Object, Error>> {
        Box::pin(self.edit_object(target, edit))
    }

    fn relock<'a>(
        &'a self,
        target: Target<'a>,
        change: LockChange,
        bypass: Bypass,
        permit: Permit<'a>,
    ) -> BoxFuture<'a, Result<Object, Error>> {
        Box::pin(self.relock_object(target, change, bypass, permit))
    }
}
