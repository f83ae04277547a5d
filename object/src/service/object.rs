//! Objects: put, get, delete, list.

use std::sync::Arc;

use bytes::Bytes;

use super::content::Blocks;
use super::put::Owner;
use super::{Committed, ObjectService, TRIES_MAX, decode, holds, object, unchanged};
use crate::api::{
    ATTRIBUTES_BYTES_MAX, Attributes, Body, BoxFuture, Condition, Error, KEY_BYTES_MAX, ListRequest, Listed, Object,
    Objects, Opened, PAGE_MAX, PART_BYTES_MAX, Page, PutRequest, Range,
};
use crate::cluster::{Chore, Cluster};
use crate::index::key::{self, BucketId};
use crate::index::request::Scan;
use crate::index::{Change, Line, Reply, Request};
use crate::record::ObjectRecord;

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
    /// Commits a record in the place of the one that the key has, if the condition holds then. `also` changes with it.
    pub(super) async fn commit_object(
        &self,
        bucket: BucketId,
        (name, record): (&str, &ObjectRecord),
        condition: &Condition,
    ) -> Result<(), Error> {
        let key = key::object(bucket, name.as_bytes());
        let value = Some(Bytes::from(record.encode()));
        let is_conditional = *condition != Condition::default();
        for _ in 0..TRIES_MAX {
            let mut checks = Vec::new();
            if is_conditional {
                let now = self.record(bucket, name).await?;
                if now.as_ref().is_some_and(|(now, _)| now.put_id == record.put_id) {
                    // An earlier try was committed, and its reply was lost.
                    return Ok(());
                }
                holds(condition, now.as_ref().map(|(now, _)| now))?;
                checks.push(unchanged(key.clone(), now.map(|(_, version)| version)));
            }
            let change = Change { key: key.clone(), value: value.clone() };
            match self.commit(bucket, checks, vec![change]).await? {
                Committed::Done(before) => {
                    self.discard(before.as_ref(), &record.parts);
                    return Ok(());
                }
                Committed::Changed => {}
            }
        }
        Err(Error::Unavailable)
    }

    async fn put_object(&self, request: PutRequest, body: &mut dyn Body) -> Result<Object, Error> {
        check(&request.key, &request.attributes)?;
        if request.bytes.is_some_and(|bytes| bytes > PART_BYTES_MAX) {
            return Err(Error::TooLarge);
        }
        let (bucket, _) = self.bucket(&request.bucket).await?;
        if request.condition != Condition::default() {
            // A condition that does not hold now spares the bytes. What counts is the check at the commit.
            let now = self.record(bucket, &request.key).await?;
            holds(&request.condition, now.as_ref().map(|(now, _)| now))?;
        }
        let owner = Owner { bucket, key: &request.key, upload: None };
        let content = self.put_body(&owner, body).await?;
        let digest = body.digest();
        let moment = self.cluster.moment();
        let attributes = Attributes([request.attributes.0, digest.attributes.0].concat());
        let parts = if content.bytes == 0 { Vec::new() } else { vec![content] };
        let record = ObjectRecord {
            put_id: moment.drawn,
            etag: digest.etag,
            modified_ms: moment.now_ms,
            attributes,
            is_multipart: false,
            parts,
        };
        match self.commit_object(bucket, (&request.key, &record), &request.condition).await {
            Ok(()) => Ok(object(&request.key, record)),
            // Whether it took effect is not known: its shards stay.
            Err(Error::Unavailable) => Err(Error::Unavailable),
            Err(error) => {
                record.parts.into_iter().for_each(|part| self.cluster.later(Chore::Discard(part)));
                Err(error)
            }
        }
    }

    async fn get_object(
        &self,
        bucket: &str,
        name: &str,
        range: Option<Range>,
        condition: &Condition,
    ) -> Result<Opened, Error> {
        let (bucket, _) = self.bucket(bucket).await?;
        let (record, _) = self.record(bucket, name).await?.ok_or(Error::NoSuchKey)?;
        let is_match = Condition { etag_is_not: None, ..condition.clone() };
        holds(&is_match, Some(&record))?;
        let is_other = Condition { etag_is: None, ..condition.clone() };
        if holds(&is_other, Some(&record)).is_err() {
            return Err(Error::NotModified(Box::new(object(name, record))));
        }
        let bytes = record.bytes();
        let range = match range {
            None => (0, bytes),
            Some(range) => range.within(bytes).ok_or(Error::BadRange(bytes))?,
        };
        let world = (Arc::clone(&self.cluster), Arc::clone(&self.codecs));
        let content = Box::new(Blocks::new(world, record.parts.clone(), range, (bucket, name.to_owned())));
        Ok(Opened { object: object(name, record), range, content })
    }

    async fn delete_object(&self, bucket: &str, name: &str, condition: &Condition) -> Result<(), Error> {
        let (bucket, _) = self.bucket(bucket).await?;
        let key = key::object(bucket, name.as_bytes());
        for _ in 0..TRIES_MAX {
            let mut checks = Vec::new();
            if *condition != Condition::default() {
                let now = self.record(bucket, name).await?;
                holds(condition, now.as_ref().map(|(now, _)| now))?;
                checks.push(unchanged(key.clone(), now.map(|(_, version)| version)));
            }
            let change = Change { key: key.clone(), value: None };
            if let Committed::Done(before) = self.commit(bucket, checks, vec![change]).await? {
                self.discard(before.as_ref(), &[]);
                return Ok(());
            }
        }
        Err(Error::Unavailable)
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
        let folded = after.strip_prefix(prefix.as_str()).filter(|_| !delimiter.is_empty());
        let is_folded =
            folded.is_some_and(|rest| rest.find(delimiter.as_str()) == rest.len().checked_sub(delimiter.len()));
        from = if is_folded {
            // A common prefix that was told already: all keys under it are.
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

/// The first key behind all that begin so.
fn key_behind(beginning: &[u8]) -> Option<Vec<u8>> {
    let last = beginning.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut behind = beginning[..=last].to_vec();
    behind[last] += 1;
    Some(behind)
}

fn listed(line: Line) -> Result<Listed, Error> {
    let name = |key: &[u8]| key::object_name(key).map(str::to_owned).ok_or(Error::Damaged);
    Ok(match line {
        Line::Entry(key, entry) => Listed::Object(object(&name(&key)?, decode(&entry)?)),
        Line::Folded(key) => Listed::Prefix(name(&key)?),
    })
}

impl<C: Cluster> Objects for ObjectService<C> {
    fn put<'a>(&'a self, request: PutRequest, body: &'a mut dyn Body) -> BoxFuture<'a, Result<Object, Error>> {
        Box::pin(self.put_object(request, body))
    }

    fn get<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
        range: Option<Range>,
        condition: &'a Condition,
    ) -> BoxFuture<'a, Result<Opened, Error>> {
        Box::pin(self.get_object(bucket, key, range, condition))
    }

    fn head<'a>(&'a self, bucket: &'a str, key: &'a str) -> BoxFuture<'a, Result<Object, Error>> {
        Box::pin(async move {
            let (bucket, _) = self.bucket(bucket).await?;
            let (record, _) = self.record(bucket, key).await?.ok_or(Error::NoSuchKey)?;
            Ok(object(key, record))
        })
    }

    fn delete<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
        condition: &'a Condition,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.delete_object(bucket, key, condition))
    }

    fn list<'a>(&'a self, bucket: &'a str, request: &'a ListRequest) -> BoxFuture<'a, Result<Page, Error>> {
        Box::pin(self.list_objects(bucket, request))
    }
}
