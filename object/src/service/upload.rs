//! Multipart uploads: parts are kept under the upload's name, and one commit makes an object of them.

use std::collections::BTreeMap;

use ashlar_wire::id::BlobId;
use bytes::Bytes;

use super::object::check;
use super::put::Owner;
use super::version::{Beside, Putting, Tried};
use super::{ObjectService, TRIES_MAX, object, quota};
use crate::api::{
    Attributes, Body, BoxFuture, Completion, Error, KeyEnvelope, Object, PART_BYTES_MIN, PART_NUMBER_MAX, Part,
    Redundancy, UnwrapKey, Upload, UploadId, UploadParts, Uploads, VersionId,
};
use crate::cluster::Cluster;
use crate::index::key::{self, BucketId};
use crate::index::request::{LINES_MAX, Scan};
use crate::index::{Change, Check, Entry, Line, Reply, Request};
use crate::lock::Lock;
use crate::record::{ObjectRecord, PartRecord, UploadRecord};
use crate::service::Committed;

/// The parts of an upload, by their numbers, and the keys that have them.
type Parts = BTreeMap<u32, PartRecord>;

fn bytes_of(id: &UploadId) -> Result<[u8; 16], Error> {
    id.0.parse::<BlobId>().map(|id| *id.as_bytes()).map_err(|_| Error::NoSuchUpload)
}

fn name_of(id: [u8; 16]) -> UploadId {
    UploadId(BlobId::from_bytes(id).to_string())
}

impl<C: Cluster> ObjectService<C> {
    /// An upload for a key, and the version of its record.
    async fn upload(&self, bucket: BucketId, name: &str, id: &[u8; 16]) -> Result<(UploadRecord, u64), Error> {
        let entry = self.get_entry(bucket, key::upload(bucket, id)).await?.ok_or(Error::NoSuchUpload)?;
        let record = UploadRecord::decode(&entry.value).map_err(|_| Error::Damaged)?;
        if record.key == name { Ok((record, entry.version)) } else { Err(Error::NoSuchUpload) }
    }

    /// All keys and values of a part of the index.
    pub(super) async fn scan_all(
        &self,
        bucket: BucketId,
        mut from: Vec<u8>,
        to: Vec<u8>,
    ) -> Result<Vec<(Vec<u8>, Entry)>, Error> {
        let mut all = Vec::new();
        let lines_max = u32::try_from(LINES_MAX).expect("some thousands");
        loop {
            let scan = Scan { from, to: to.clone(), fold: Vec::new(), fold_after: 0, lines_max };
            let Reply::Page { lines, next } = self.cluster.index(bucket, Request::Scan(scan)).await else {
                return Err(Error::Unavailable);
            };
            all.extend(lines.into_iter().filter_map(|line| match line {
                Line::Entry(key, entry) => Some((key, entry)),
                Line::Folded(_) => None,
            }));
            match next {
                Some(next) => from = next,
                None => return Ok(all),
            }
        }
    }

    async fn parts(&self, bucket: BucketId, id: &[u8; 16]) -> Result<Parts, Error> {
        let found = self.scan_all(bucket, key::part(bucket, id, 0), key::parts_end(bucket, id)).await?;
        let parts = found.into_iter().map(|(key, entry)| {
            let number = key::part_number(&key).ok_or(Error::Damaged)?;
            Ok((number, PartRecord::decode(&entry.value).map_err(|_| Error::Damaged)?))
        });
        parts.collect()
    }

    async fn begin_upload(
        &self,
        (bucket, name): (&str, &str),
        attributes: Attributes,
        lock: Lock,
        envelope: Option<KeyEnvelope>,
    ) -> Result<UploadId, Error> {
        check(name, &attributes)?;
        let (bucket, _) = self.bucket(bucket).await?;
        if !lock.is_absent() {
            self.check_lockable(bucket).await?;
        }
        let moment = self.cluster.moment();
        let record = UploadRecord { key: name.to_owned(), begun_ms: moment.now_ms, attributes, lock, envelope };
        let key = key::upload(bucket, &moment.drawn);
        let change = Change { key, value: Some(Bytes::from(record.encode())) };
        match self.commit(bucket, Vec::new(), vec![change]).await? {
            Committed::Done(_) => Ok(name_of(moment.drawn)),
            Committed::Changed => Err(Error::Unavailable),
        }
    }

    async fn put_one(
        &self,
        (bucket, name): (&str, &str),
        id: &UploadId,
        number: u32,
        unwrap: UnwrapKey<'_>,
        body: &mut dyn Body,
    ) -> Result<Part, Error> {
        if !(1..=PART_NUMBER_MAX).contains(&number) {
            return Err(Error::BadRequest("the number of a part is 1 to 10,000"));
        }
        let short = u16::try_from(number).expect("at most PART_NUMBER_MAX");
        let (bucket, about) = self.bucket(bucket).await?;
        let quota = quota::of(&about.attributes);
        self.check_quota((bucket, name), quota, Some(1)).await?;
        let id = bytes_of(id)?;
        let (upload, version) = self.upload(bucket, name, &id).await?;
        let data_key = unwrap(upload.envelope.as_ref())?;
        assert!(data_key.is_some() == upload.envelope.is_some(), "a part is encrypted if its upload is");
        body.join_upload(&upload.attributes)?;
        let owner = Owner { bucket, key: name, upload: Some((id, short)) };
        let content = self.put_body(&owner, Redundancy::of(&upload.attributes), data_key.as_ref(), body).await?;
        let digest = body.digest();
        let modified_ms = self.cluster.moment().now_ms;
        let record = PartRecord { etag: digest.etag, modified_ms, attributes: digest.attributes, content };
        let part = Part { envelope: upload.envelope, ..part(number, &record) };
        let change = Change { key: key::part(bucket, &id, number), value: Some(Bytes::from(record.encode())) };
        let mut checks = vec![Check::Version(key::upload(bucket, &id), version)];
        checks.extend(quota.map(|bytes_max| Check::Room(bucket, bytes_max)));
        match self.commit(bucket, checks, vec![change]).await {
            Ok(Committed::Done(before)) => {
                // A part that was put again: also the same one, whose reply was lost.
                let before = before.and_then(|before| PartRecord::decode(&before.value).ok());
                if let Some(before) = before.filter(|before| before.content.id != record.content.id) {
                    self.discard_unread(before.content);
                }
                Ok(part)
            }
            Ok(Committed::Changed) => {
                self.discard_unread(record.content);
                Err(Error::NoSuchUpload)
            }
            Err(Error::OverQuota) => {
                self.discard_unread(record.content);
                Err(Error::OverQuota)
            }
            Err(error) => Err(error),
        }
    }

    async fn complete_upload(
        &self,
        (bucket, name): (&str, &str),
        id: &UploadId,
        completion: &Completion,
    ) -> Result<Object, Error> {
        let (bucket, about) = self.bucket(bucket).await?;
        let id = bytes_of(id)?;
        let mut putting: Option<Putting> = None;
        for _ in 0..TRIES_MAX {
            if let Some(made) = self.completed((bucket, name), id, completion).await? {
                return Ok(made);
            }
            let mut parts = self.parts(bucket, &id).await?;
            let (upload, version) = match self.upload(bucket, name, &id).await {
                Ok(found) => found,
                // The same completion may have come between the looks.
                Err(Error::NoSuchUpload) => {
                    return self.completed((bucket, name), id, completion).await?.ok_or(Error::NoSuchUpload);
                }
                Err(error) => return Err(error),
            };
            let mut changes = vec![Change { key: key::upload(bucket, &id), value: None }];
            changes.extend(parts.keys().map(|number| Change { key: key::part(bucket, &id, *number), value: None }));
            let chosen = choose(&mut parts, &completion.parts)?;
            let attributes = Attributes([upload.attributes.0, completion.digest.attributes.0.clone()].concat());
            let modified_ms = self.cluster.moment().now_ms;
            let record = ObjectRecord {
                version: VersionId::Null,
                sequence: modified_ms,
                put_id: id,
                etag: completion.digest.etag.clone(),
                modified_ms,
                attributes,
                lock: upload.lock,
                is_multipart: true,
                envelope: upload.envelope,
                parts: chosen.into_iter().map(|part| part.content).collect(),
            };
            let checks = vec![Check::Version(key::upload(bucket, &id), version)];
            putting = match putting.take() {
                Some(earlier) => Some(earlier.again(record)),
                None => Some(Putting::new(record, quota::of(&about.attributes))),
            };
            let putting = putting.as_mut().expect("it was just made");
            let tried =
                self.try_put((bucket, name), putting, &completion.condition, Beside { checks, changes }).await?;
            if let Tried::Done(object) = tried {
                parts.into_values().for_each(|unused| self.discard_unread(unused.content));
                return Ok(object);
            }
        }
        Err(Error::Unavailable)
    }

    /// The object, if the upload was completed before, with the same parts.
    async fn completed(
        &self,
        (bucket, name): (BucketId, &str),
        upload: [u8; 16],
        completion: &Completion,
    ) -> Result<Option<Object>, Error> {
        let now = self.record(bucket, name).await?.filter(|(now, _)| is_made_by(now, upload, completion));
        let Some((now, _)) = now else { return Ok(None) };
        let state = self.versioning_for_read(bucket).await?;
        Ok(Some(object(name, now, state)))
    }

    async fn abort_upload(&self, (bucket, name): (&str, &str), id: &UploadId) -> Result<(), Error> {
        let (bucket, _) = self.bucket(bucket).await?;
        let id = bytes_of(id)?;
        for _ in 0..TRIES_MAX {
            let (_, version) = self.upload(bucket, name, &id).await?;
            let parts = self.parts(bucket, &id).await?;
            let mut changes = vec![Change { key: key::upload(bucket, &id), value: None }];
            changes.extend(parts.keys().map(|number| Change { key: key::part(bucket, &id, *number), value: None }));
            let checks = vec![Check::Version(key::upload(bucket, &id), version)];
            if let Committed::Done(_) = self.commit(bucket, checks, changes).await? {
                parts.into_values().for_each(|part| self.discard_unread(part.content));
                return Ok(());
            }
        }
        Err(Error::Unavailable)
    }

    async fn list_uploads(&self, bucket: &str, of: Option<(&str, &UploadId)>) -> Result<Vec<UploadParts>, Error> {
        let (bucket, _) = self.bucket(bucket).await?;
        if let Some((name, id)) = of {
            let id = bytes_of(id)?;
            // The upload after its parts: they go with it, and would be missing where it was completed in between.
            let parts = self.parts(bucket, &id).await?;
            let (record, _) = self.upload(bucket, name, &id).await?;
            let parts = parts.iter().map(|(number, record)| part(*number, record)).collect();
            return Ok(vec![(upload(id, record), parts)]);
        }
        let found = self.scan_all(bucket, key::uploads(bucket), key::uploads_end(bucket)).await?;
        let uploads = found.into_iter().map(|(key, entry)| {
            let id = key::upload_id(&key).ok_or(Error::Damaged)?;
            Ok((upload(id, UploadRecord::decode(&entry.value).map_err(|_| Error::Damaged)?), Vec::new()))
        });
        let mut uploads: Vec<UploadParts> = uploads.collect::<Result<_, Error>>()?;
        uploads.sort_by(|(one, _), (other, _)| {
            (&one.key, one.begun_ms, &one.id).cmp(&(&other.key, other.begun_ms, &other.id))
        });
        Ok(uploads)
    }
}

fn upload(id: [u8; 16], record: UploadRecord) -> Upload {
    let UploadRecord { key, begun_ms, attributes, envelope, .. } = record;
    Upload { id: name_of(id), key, begun_ms, attributes, envelope }
}

fn part(number: u32, record: &PartRecord) -> Part {
    Part {
        number,
        bytes: record.content.bytes,
        etag: record.etag.clone(),
        modified_ms: record.modified_ms,
        attributes: record.attributes.clone(),
        envelope: None,
    }
}

/// Whether an object is what this completion of an upload makes. Its entity tag says which parts it has, and not their numbers.
fn is_made_by(record: &ObjectRecord, upload: [u8; 16], completion: &Completion) -> bool {
    let made = record.parts.iter().map(|part| u32::from(part.number));
    let named = completion.parts.iter().map(|(number, _)| *number);
    record.put_id == upload && record.etag == completion.digest.etag && made.eq(named)
}

/// Takes the parts of a completion out of those that were put.
fn choose(parts: &mut Parts, wanted: &[(u32, String)]) -> Result<Vec<PartRecord>, Error> {
    if wanted.is_empty() || !wanted.is_sorted_by(|(one, _), (other, _)| one < other) {
        return Err(Error::BadPartOrder);
    }
    for (number, etag) in wanted {
        let fits = parts.get(number).is_some_and(|part| part.etag == etag.trim_matches('"'));
        if !fits {
            return Err(Error::BadPart(*number));
        }
    }
    let mut chosen = Vec::with_capacity(wanted.len());
    for (at, (number, _)) in wanted.iter().enumerate() {
        if at + 1 < wanted.len() && parts[number].content.bytes < PART_BYTES_MIN {
            return Err(Error::PartTooSmall(*number));
        }
    }
    for (number, _) in wanted {
        chosen.extend(parts.remove(number));
    }
    Ok(chosen)
}

impl<C: Cluster> Uploads for ObjectService<C> {
    fn begin<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
        attributes: Attributes,
        lock: Lock,
        envelope: Option<KeyEnvelope>,
    ) -> BoxFuture<'a, Result<UploadId, Error>> {
        Box::pin(self.begin_upload((bucket, key), attributes, lock, envelope))
    }

    fn put_part<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
        upload: &'a UploadId,
        number: u32,
        unwrap: UnwrapKey<'a>,
        body: &'a mut dyn Body,
    ) -> BoxFuture<'a, Result<Part, Error>> {
        Box::pin(self.put_one((bucket, key), upload, number, unwrap, body))
    }

    fn complete<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
        upload: &'a UploadId,
        completion: Completion,
    ) -> BoxFuture<'a, Result<Object, Error>> {
        Box::pin(async move { self.complete_upload((bucket, key), upload, &completion).await })
    }

    fn abort<'a>(&'a self, bucket: &'a str, key: &'a str, upload: &'a UploadId) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.abort_upload((bucket, key), upload))
    }

    fn list<'a>(
        &'a self,
        bucket: &'a str,
        of: Option<(&'a str, &'a UploadId)>,
    ) -> BoxFuture<'a, Result<Vec<UploadParts>, Error>> {
        Box::pin(self.list_uploads(bucket, of))
    }
}
