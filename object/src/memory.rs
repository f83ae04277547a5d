//! The object service in memory, for tests of fronts: same answers, no drives, nothing durable.
//!
//! One lock around everything makes each change atomic. Contents are lists of the buffers that came in. They are not encrypted, but
//! those that would be are given out for the same key only.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::api::{
    ATTRIBUTES_BYTES_MAX, Attributes, Body, BodyDigest, BoxFuture, Bucket, BucketEdit, Buckets, Completion, Condition,
    Content, DeleteMarker, DeleteRequest, Deletion, Edit, Error, KEY_BYTES_MAX, KeyEnvelope, ListRequest, Listed,
    ListedVersion, OBJECT_BYTES_MAX, Object, ObjectContent, Objects, Opened, PAGE_MAX, PART_BYTES_MAX, PART_BYTES_MIN,
    PART_NUMBER_MAX, Page, Part, Permit, PutRequest, Range, Service, Target, UnwrapKey, Upload, UploadId, Uploads,
    VersionId, Versioning, Versions, VersionsPage, VersionsRequest,
};
use crate::cipher::DataKey;
use crate::lock::{Bypass, Lock, LockChange};

/// Buckets, objects and uploads in memory. Clones share them.
#[derive(Clone)]
pub struct Memory {
    state: Arc<Mutex<State>>,
    now_ms: Arc<dyn Fn() -> u64 + Send + Sync>,
}

#[derive(Default)]
struct State {
    buckets: BTreeMap<String, Contents>,
    uploads_begun: u64,
    versions_made: u64,
}

#[derive(Default)]
struct Contents {
    created_ms: u64,
    attributes: Attributes,
    versioning: Versioning,
    /// The versions of each key, the newest first.
    objects: BTreeMap<String, Vec<Kept>>,
    uploads: BTreeMap<UploadId, Pending>,
    /// Uploads that became objects, with the numbers of their parts: repeated completions are answered the same.
    completed: BTreeMap<UploadId, (Vec<u32>, Object)>,
}

#[derive(Clone)]
struct Stored {
    object: Object,
    pieces: Vec<Bytes>,
    key: Option<DataKey>,
}

/// A version of a key.
#[derive(Clone)]
enum Kept {
    Object(Stored),
    Marker(DeleteMarker),
}

impl Kept {
    fn version(&self) -> VersionId {
        match self {
            Self::Object(stored) => stored.object.version.unwrap_or_default(),
            Self::Marker(marker) => marker.version,
        }
    }

    const fn object(&self) -> Option<&Stored> {
        match self {
            Self::Object(stored) => Some(stored),
            Self::Marker(_) => None,
        }
    }
}

impl Contents {
    fn bucket(&self, name: &str) -> Bucket {
        Bucket { name: name.to_owned(), created_ms: self.created_ms, attributes: self.attributes.clone() }
    }

    /// The current object of a key.
    fn current(&self, key: &str) -> Option<&Stored> {
        self.objects.get(key)?.first()?.object()
    }

    fn stored(&self, key: &str, version: Option<VersionId>) -> Result<&Stored, Error> {
        let versions = self.objects.get(key).map_or(&[][..], Vec::as_slice);
        let found = match version {
            None => versions.first(),
            Some(version) => versions.iter().find(|kept| kept.version() == version),
        };
        match (found, version) {
            (Some(Kept::Object(stored)), _) => Ok(stored),
            (Some(Kept::Marker(marker)), None) => Err(Error::Deleted(Box::new(marker.clone()))),
            (Some(Kept::Marker(marker)), Some(_)) => Err(Error::IsMarker(Box::new(marker.clone()))),
            (None, None) => Err(Error::NoSuchKey),
            (None, Some(_)) => Err(Error::NoSuchVersion),
        }
    }

    /// The name of the next version; nothing in a bucket that has never kept versions.
    fn next_version(&self, made: &mut u64) -> Option<VersionId> {
        *made += 1;
        match self.versioning {
            Versioning::Never => None,
            Versioning::Enabled | Versioning::Locked => Some(VersionId::Named { sequence: *made, drawn: *made }),
            Versioning::Suspended => Some(VersionId::Null),
        }
    }

    /// Whether a version with this lock can be put.
    fn check_lockable(&self, lock: Lock) -> Result<(), Error> {
        if lock.is_absent() || self.versioning == Versioning::Locked { Ok(()) } else { Err(Error::NotLockable) }
    }

    /// Makes a version the newest one of its key. The null version replaces the null version.
    fn add(&mut self, key: &str, kept: Kept) {
        let versions = self.objects.entry(key.to_owned()).or_default();
        if kept.version() == VersionId::Null {
            versions.retain(|old| old.version() != VersionId::Null);
        }
        versions.insert(0, kept);
    }

    /// An object as it is told: its version is not told where versions were never kept.
    fn told(&self, object: &Object) -> Object {
        let version =
            if self.versioning == Versioning::Never { None } else { object.version.or(Some(VersionId::Null)) };
        Object { version, ..object.clone() }
    }
}

struct Pending {
    upload: Upload,
    lock: Lock,
    key: Option<DataKey>,
    parts: BTreeMap<u32, (Part, Vec<Bytes>)>,
}

impl Memory {
    /// Without buckets. `now_ms` tells the time in milliseconds since 1970.
    #[must_use]
    pub fn new(now_ms: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self { state: Arc::default(), now_ms: Arc::new(now_ms) }
    }

    /// The four faces of it, as a front takes them.
    #[must_use]
    pub fn service(&self) -> Service {
        Service {
            buckets: Arc::new(self.clone()),
            objects: Arc::new(self.clone()),
            uploads: Arc::new(self.clone()),
            versions: Arc::new(self.clone()),
        }
    }

    /// No byte of an object can be read any more.
    #[cfg(test)]
    pub(crate) fn lose(&self, bucket: &str, key: &str) {
        let mut state = self.lock();
        let versions = state.bucket(bucket).ok().and_then(|contents| contents.objects.get_mut(key));
        for kept in versions.into_iter().flatten() {
            if let Kept::Object(stored) = kept {
                stored.key = Some(DataKey::from_bytes([1; 32]));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        (self.now_ms)()
    }
}

impl State {
    fn bucket(&mut self, name: &str) -> Result<&mut Contents, Error> {
        self.buckets.get_mut(name).ok_or(Error::NoSuchBucket)
    }

    fn upload(&mut self, bucket: &str, key: &str, id: &UploadId) -> Result<&mut Pending, Error> {
        let pending = self.bucket(bucket)?.uploads.get_mut(id);
        pending.filter(|pending| pending.upload.key == key).ok_or(Error::NoSuchUpload)
    }
}

/// Whether a write may go on.
fn check(condition: &Condition, current: Option<&Stored>) -> Result<(), Error> {
    let has_one = |etags: &[String], etag: &str| etags.iter().any(|wanted| wanted == "*" || wanted == etag);
    let etag = current.map(|stored| stored.object.etag.as_str());
    match (&condition.etag_is, etag) {
        (Some(_), None) => return Err(Error::NoSuchKey),
        (Some(wanted), Some(etag)) if !has_one(wanted, etag) => return Err(Error::ConditionFailed),
        _ => {}
    }
    if condition.put_at_ms.is_some_and(|ms| current.is_none_or(|stored| stored.object.modified_ms != ms)) {
        return Err(Error::ConditionFailed);
    }
    match (&condition.etag_is_not, etag) {
        (Some(unwanted), Some(etag)) if has_one(unwanted, etag) => Err(Error::ConditionFailed),
        _ => Ok(()),
    }
}

fn check_names(key: &str, attributes: &Attributes) -> Result<(), Error> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Err(Error::BadRequest("the key is empty or too long"));
    }
    if attributes.len_bytes() > ATTRIBUTES_BYTES_MAX {
        return Err(Error::BadRequest("the attributes are too long"));
    }
    Ok(())
}

/// Takes a body whole.
async fn take(body: &mut dyn Body) -> Result<(Vec<Bytes>, u64, BodyDigest), Error> {
    let (mut pieces, mut bytes) = (Vec::new(), 0);
    while let Some(piece) = body.next().await? {
        assert!(!piece.is_empty(), "a body gives an empty buffer");
        bytes += piece.len() as u64;
        if bytes > PART_BYTES_MAX {
            return Err(Error::TooLarge);
        }
        pieces.push(piece);
    }
    Ok((pieces, bytes, body.digest()))
}

fn joined(mut attributes: Attributes, more: Attributes) -> Attributes {
    attributes.0.extend(more.0);
    attributes
}

impl Buckets for Memory {
    fn create<'a>(
        &'a self,
        name: &'a str,
        attributes: Attributes,
        versioning: Versioning,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let mut state = self.lock();
            if state.buckets.contains_key(name) {
                return Err(Error::BucketExists);
            }
            let contents = Contents { created_ms: self.now(), attributes, versioning, ..Contents::default() };
            state.buckets.insert(name.to_owned(), contents);
            Ok(())
        })
    }

    fn edit<'a>(&'a self, name: &'a str, edit: BucketEdit<'a>) -> BoxFuture<'a, Result<Bucket, Error>> {
        Box::pin(async move {
            let mut state = self.lock();
            let contents = state.bucket(name)?;
            contents.attributes = edit(&contents.bucket(name))?;
            Ok(contents.bucket(name))
        })
    }

    fn delete<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let mut state = self.lock();
            let contents = state.bucket(name)?;
            if !contents.objects.is_empty() {
                return Err(Error::BucketNotEmpty);
            }
            state.buckets.remove(name);
            Ok(())
        })
    }

    fn get<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Bucket, Error>> {
        Box::pin(async move { Ok(self.lock().bucket(name)?.bucket(name)) })
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Bucket>, Error>> {
        Box::pin(async move {
            let state = self.lock();
            Ok(state.buckets.iter().map(|(name, contents)| contents.bucket(name)).collect())
        })
    }
}

impl Objects for Memory {
    fn put<'a>(&'a self, request: PutRequest, body: &'a mut dyn Body) -> BoxFuture<'a, Result<Object, Error>> {
        Box::pin(async move {
            check_names(&request.key, &request.attributes)?;
            self.lock().bucket(&request.bucket)?.check_lockable(request.lock)?;
            let (pieces, bytes, digest) = take(body).await?;
            let (key, envelope) = request.encryption.map(|used| (used.data_key, used.envelope)).unzip();
            let mut object = Object {
                key: request.key.clone(),
                version: None,
                bytes,
                etag: digest.etag,
                modified_ms: self.now(),
                attributes: joined(request.attributes, digest.attributes),
                lock: request.lock,
                parts: Vec::new(),
                envelope,
            };
            let mut guard = self.lock();
            let state = &mut *guard;
            let contents = state.buckets.get_mut(&request.bucket).ok_or(Error::NoSuchBucket)?;
            check(&request.condition, contents.current(&request.key))?;
            object.version = contents.next_version(&mut state.versions_made);
            contents.add(&request.key, Kept::Object(Stored { object: object.clone(), pieces, key }));
            Ok(object)
        })
    }

    fn get<'a>(
        &'a self,
        target: Target<'a>,
        range: Option<Range>,
        condition: &'a Condition,
    ) -> BoxFuture<'a, Result<Opened, Error>> {
        Box::pin(async move {
            let stored = {
                let mut state = self.lock();
                let contents = state.bucket(target.bucket)?;
                let stored = contents.stored(target.key, target.version)?;
                Stored { object: contents.told(&stored.object), ..stored.clone() }
            };
            let match_only = Condition { etag_is: condition.etag_is.clone(), ..Condition::default() };
            check(&match_only, Some(&stored))?;
            let Stored { object, pieces, key } = stored;
            let is_known = |etags: &Vec<String>| etags.iter().any(|etag| etag == "*" || *etag == object.etag);
            if condition.etag_is_not.as_ref().is_some_and(is_known) {
                return Err(Error::NotModified(Box::new(object)));
            }
            let span = range.map_or(Some((0, object.bytes)), |range| range.within(object.bytes));
            let range = span.ok_or(Error::BadRange(object.bytes))?;
            Ok(Opened { object, range, content: Box::new(Pieces::of(pieces, range, key)) })
        })
    }

    fn head<'a>(&'a self, target: Target<'a>) -> BoxFuture<'a, Result<Object, Error>> {
        Box::pin(async move {
            let mut state = self.lock();
            let contents = state.bucket(target.bucket)?;
            Ok(contents.told(&contents.stored(target.key, target.version)?.object))
        })
    }

    fn delete<'a>(&'a self, request: DeleteRequest<'a>) -> BoxFuture<'a, Result<Deletion, Error>> {
        Box::pin(async move {
            let now = self.now();
            let mut guard = self.lock();
            let state = &mut *guard;
            let contents = state.buckets.get_mut(request.target.bucket).ok_or(Error::NoSuchBucket)?;
            delete(contents, &request, &mut state.versions_made, now)
        })
    }

    fn list<'a>(&'a self, bucket: &'a str, request: &'a ListRequest) -> BoxFuture<'a, Result<Page, Error>> {
        Box::pin(async move {
            let mut state = self.lock();
            Ok(page(&state.bucket(bucket)?.objects, request))
        })
    }
}

fn delete(
    contents: &mut Contents,
    request: &DeleteRequest<'_>,
    versions_made: &mut u64,
    now_ms: u64,
) -> Result<Deletion, Error> {
    let key = request.target.key;
    let Some(version) = request.target.version else {
        let current = contents.current(key);
        check(request.condition, current)?;
        if let Some(stored) = current {
            request.permit.check(|| contents.told(&stored.object))?;
        }
        let Some(version) = contents.next_version(versions_made) else {
            contents.objects.remove(key);
            return Ok(Deletion::default());
        };
        let attributes = request.attributes.clone();
        let marker = DeleteMarker { key: key.to_owned(), version, modified_ms: now_ms, attributes };
        contents.add(key, Kept::Marker(marker));
        return Ok(Deletion { version: Some(version), is_marker: true });
    };
    let mut deletion = Deletion { version: Some(version), is_marker: false };
    let Some(versions) = contents.objects.get_mut(key) else { return Ok(deletion) };
    if let Some(at) = versions.iter().position(|kept| kept.version() == version) {
        match &versions[at] {
            Kept::Object(stored) => {
                check(request.condition, Some(stored))?;
                request.permit.check(|| stored.object.clone())?;
                stored.object.lock.check_deletion(now_ms, request.bypass)?;
            }
            Kept::Marker(_) => deletion.is_marker = true,
        }
        versions.remove(at);
        if versions.is_empty() {
            contents.objects.remove(key);
        }
    }
    Ok(deletion)
}

impl Versions for Memory {
    fn state<'a>(&'a self, bucket: &'a str) -> BoxFuture<'a, Result<Versioning, Error>> {
        Box::pin(async move { Ok(self.lock().bucket(bucket)?.versioning) })
    }

    fn set_state<'a>(&'a self, bucket: &'a str, state: Versioning) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            if state == Versioning::Never {
                return Err(Error::BadRequest("a bucket that has kept versions can only stop to"));
            }
            let mut guard = self.lock();
            let versioning = &mut guard.bucket(bucket)?.versioning;
            match (*versioning, state) {
                (Versioning::Locked, Versioning::Enabled | Versioning::Locked) => return Ok(()),
                (Versioning::Enabled, Versioning::Locked) => {}
                (Versioning::Locked, _) | (_, Versioning::Locked) => return Err(Error::BadState),
                _ => {}
            }
            *versioning = state;
            Ok(())
        })
    }

    fn list<'a>(&'a self, bucket: &'a str, request: &'a VersionsRequest) -> BoxFuture<'a, Result<VersionsPage, Error>> {
        Box::pin(async move { Ok(versions_page(self.lock().bucket(bucket)?, request)) })
    }

    fn edit<'a>(&'a self, target: Target<'a>, edit: Edit<'a>) -> BoxFuture<'a, Result<Object, Error>> {
        Box::pin(async move {
            let mut state = self.lock();
            let contents = state.bucket(target.bucket)?;
            let stored = contents.stored(target.key, target.version)?;
            let version = stored.object.version.unwrap_or_default();
            let attributes = edit(&contents.told(&stored.object))?;
            check_names(target.key, &attributes)?;
            let versions = contents.objects.get_mut(target.key).expect("it was found");
            for kept in versions.iter_mut().filter(|kept| kept.version() == version) {
                if let Kept::Object(stored) = kept {
                    stored.object.attributes = attributes.clone();
                }
            }
            Ok(contents.told(&contents.stored(target.key, Some(version))?.object))
        })
    }

    fn relock<'a>(
        &'a self,
        target: Target<'a>,
        change: LockChange,
        bypass: Bypass,
        permit: Permit<'a>,
    ) -> BoxFuture<'a, Result<Object, Error>> {
        Box::pin(async move {
            let now_ms = self.now();
            let mut state = self.lock();
            let contents = state.bucket(target.bucket)?;
            if contents.versioning != Versioning::Locked {
                return Err(Error::NotLockable);
            }
            let stored = contents.stored(target.key, target.version)?;
            let version = stored.object.version.unwrap_or_default();
            permit.check(|| contents.told(&stored.object))?;
            let lock = stored.object.lock.changed(change, now_ms, bypass)?;
            let versions = contents.objects.get_mut(target.key).expect("it was found");
            for kept in versions.iter_mut().filter(|kept| kept.version() == version) {
                if let Kept::Object(stored) = kept {
                    stored.object.lock = lock;
                }
            }
            Ok(contents.told(&contents.stored(target.key, Some(version))?.object))
        })
    }
}

fn versions_page(contents: &Contents, request: &VersionsRequest) -> VersionsPage {
    let VersionsRequest { prefix, delimiter, after, after_version, limit } = request;
    let mut page = VersionsPage::default();
    let mut last: Option<(String, Option<VersionId>)> = None;
    for (key, versions) in contents.objects.range::<str, _>((Bound::Included(prefix.as_str()), Bound::Unbounded)) {
        let Some(rest) = key.strip_prefix(prefix.as_str()) else { break };
        let cut = (!delimiter.is_empty()).then(|| rest.find(delimiter.as_str())).flatten();
        let name = &key[..cut.map_or(key.len(), |at| prefix.len() + at + delimiter.len())];
        let is_told = last.as_ref().is_some_and(|(last, version)| last == name && version.is_none());
        let mut lines: Vec<(ListedVersion, Option<VersionId>)> = Vec::new();
        if cut.is_some() {
            if name > after.as_str() && !is_told {
                lines.push((ListedVersion::Prefix(name.to_owned()), None));
            }
        } else {
            let told = |(at, kept): (usize, &Kept)| {
                let line = match kept {
                    Kept::Object(stored) => ListedVersion::Object(contents.told(&stored.object), at == 0),
                    Kept::Marker(marker) => ListedVersion::Marker(marker.clone(), at == 0),
                };
                (line, Some(kept.version()))
            };
            let skipped = match after_version {
                _ if name > after.as_str() => 0,
                Some(version) if name == after => {
                    let there = versions.iter().position(|kept| kept.version() == *version).map(|at| at + 1);
                    // The name of one that was deleted meanwhile says where it was.
                    let is_older = |kept: &Kept| kept.version() != VersionId::Null && kept.version() < *version;
                    there.or_else(|| versions.iter().position(is_older)).unwrap_or(versions.len())
                }
                _ => versions.len(),
            };
            lines.extend(versions.iter().enumerate().skip(skipped).map(told));
        }
        for (line, version) in lines {
            if page.entries.len() == (*limit).min(PAGE_MAX) {
                page.next = last.filter(|_| *limit > 0);
                return page;
            }
            page.entries.push(line);
            last = Some((name.to_owned(), version));
        }
    }
    page
}

fn page(objects: &BTreeMap<String, Vec<Kept>>, request: &ListRequest) -> Page {
    let ListRequest { prefix, delimiter, after, limit } = request;
    let mut entries: Vec<Listed> = Vec::new();
    let mut last = None;
    for (key, versions) in objects.range::<str, _>((Bound::Included(prefix.as_str()), Bound::Unbounded)) {
        let Some(rest) = key.strip_prefix(prefix.as_str()) else { break };
        let Some(stored) = versions.first().and_then(Kept::object) else { continue };
        let cut = (!delimiter.is_empty()).then(|| rest.find(delimiter.as_str())).flatten();
        let name = &key[..cut.map_or(key.len(), |at| prefix.len() + at + delimiter.len())];
        if name <= after.as_str() || last == Some(name) {
            continue;
        }
        if entries.len() == (*limit).min(PAGE_MAX) {
            return Page { entries, next: last.map(str::to_owned) };
        }
        last = Some(name);
        entries.push(match cut {
            Some(_) => Listed::Prefix(name.to_owned()),
            None => Listed::Object(stored.object.clone()),
        });
    }
    Page { entries, next: None }
}

impl Uploads for Memory {
    fn begin<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
        attributes: Attributes,
        lock: Lock,
        envelope: Option<KeyEnvelope>,
    ) -> BoxFuture<'a, Result<UploadId, Error>> {
        Box::pin(async move {
            check_names(key, &attributes)?;
            let mut state = self.lock();
            state.uploads_begun += 1;
            let id = UploadId(format!("upload-{:08}", state.uploads_begun));
            let upload = Upload { id: id.clone(), key: key.to_owned(), begun_ms: self.now(), attributes, envelope };
            let contents = state.bucket(bucket)?;
            contents.check_lockable(lock)?;
            contents.uploads.insert(id.clone(), Pending { upload, lock, key: None, parts: BTreeMap::new() });
            Ok(id)
        })
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
        Box::pin(async move {
            if !(1..=PART_NUMBER_MAX).contains(&number) {
                return Err(Error::BadRequest("a part has a number from 1 to 10000"));
            }
            {
                let mut state = self.lock();
                let pending = state.upload(bucket, key, upload)?;
                pending.key = unwrap(pending.upload.envelope.as_ref())?;
                assert_eq!(pending.key.is_some(), pending.upload.envelope.is_some());
                body.join_upload(&pending.upload.attributes)?;
            }
            let (pieces, bytes, digest) = take(body).await?;
            let BodyDigest { etag, attributes } = digest;
            let mut guard = self.lock();
            let pending = guard.upload(bucket, key, upload)?;
            let envelope = pending.upload.envelope.clone();
            let part = Part { number, bytes, etag, modified_ms: self.now(), attributes, envelope };
            pending.parts.insert(number, (part.clone(), pieces));
            Ok(part)
        })
    }

    fn complete<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
        upload: &'a UploadId,
        completion: Completion,
    ) -> BoxFuture<'a, Result<Object, Error>> {
        Box::pin(async move {
            let now = self.now();
            let mut guard = self.lock();
            let state = &mut *guard;
            let numbers: Vec<u32> = completion.parts.iter().map(|(number, _)| *number).collect();
            if let Some((made_of, object)) = state.bucket(bucket)?.completed.get(upload)
                && *made_of == numbers
                && object.key == key
                && object.etag == completion.digest.etag
            {
                return Ok(object.clone());
            }
            let mut stored = assemble(state.upload(bucket, key, upload)?, &completion, now)?;
            let contents = state.buckets.get_mut(bucket).ok_or(Error::NoSuchBucket)?;
            check(&completion.condition, contents.current(key))?;
            stored.object.version = contents.next_version(&mut state.versions_made);
            contents.uploads.remove(upload);
            contents.completed.insert(upload.clone(), (numbers, stored.object.clone()));
            contents.add(key, Kept::Object(stored.clone()));
            Ok(stored.object)
        })
    }

    fn abort<'a>(&'a self, bucket: &'a str, key: &'a str, upload: &'a UploadId) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let mut state = self.lock();
            state.upload(bucket, key, upload)?;
            state.bucket(bucket)?.uploads.remove(upload);
            Ok(())
        })
    }

    fn list<'a>(
        &'a self,
        bucket: &'a str,
        of: Option<(&'a str, &'a UploadId)>,
    ) -> BoxFuture<'a, Result<Vec<(Upload, Vec<Part>)>, Error>> {
        Box::pin(async move {
            let mut state = self.lock();
            let told = |pending: &Pending| {
                (pending.upload.clone(), pending.parts.values().map(|(part, _)| part.clone()).collect())
            };
            match of {
                Some((key, upload)) => Ok(vec![told(state.upload(bucket, key, upload)?)]),
                None => Ok(state.bucket(bucket)?.uploads.values().map(told).collect()),
            }
        })
    }
}

fn assemble(pending: &Pending, completion: &Completion, now_ms: u64) -> Result<Stored, Error> {
    if completion.parts.is_empty() || completion.parts.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
        return Err(Error::BadPartOrder);
    }
    let (mut parts, mut pieces) = (Vec::new(), Vec::new());
    for (index, (number, etag)) in completion.parts.iter().enumerate() {
        let (part, content) = pending.parts.get(number).ok_or(Error::BadPart(*number))?;
        if part.etag != *etag {
            return Err(Error::BadPart(*number));
        }
        if part.bytes < PART_BYTES_MIN && index + 1 < completion.parts.len() {
            return Err(Error::PartTooSmall(*number));
        }
        parts.push(part.bytes);
        pieces.extend(content.iter().cloned());
    }
    let bytes = parts.iter().sum();
    if bytes > OBJECT_BYTES_MAX {
        return Err(Error::TooLarge);
    }
    let object = Object {
        key: pending.upload.key.clone(),
        version: None,
        bytes,
        etag: completion.digest.etag.clone(),
        modified_ms: now_ms,
        attributes: joined(pending.upload.attributes.clone(), completion.digest.attributes.clone()),
        lock: pending.lock,
        parts,
        envelope: pending.upload.envelope.clone(),
    };
    Ok(Stored { object, pieces, key: pending.key.clone() })
}

/// Buffers on their way out, the last one first, and the key that they wait for.
struct Pieces(Vec<Bytes>, Option<DataKey>);

impl Pieces {
    /// The range of them: first byte and number of bytes.
    fn of(pieces: Vec<Bytes>, (first, count): (u64, u64), key: Option<DataKey>) -> Self {
        let (mut skip, mut left) = (first, count);
        let mut cut = Vec::new();
        for piece in pieces {
            let from = skip.min(piece.len() as u64);
            let to = from + left.min(piece.len() as u64 - from);
            (skip, left) = (skip - from, left - (to - from));
            if from < to {
                cut.push(piece.slice(from as usize..to as usize));
            }
        }
        cut.reverse();
        Self(cut, key)
    }
}

impl Content for Pieces {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, Error>> {
        Box::pin(async {
            match &self.1 {
                Some(_) if !self.0.is_empty() => Err(Error::Damaged),
                _ => Ok(self.0.pop()),
            }
        })
    }
}

impl ObjectContent for Pieces {
    fn decrypt_with(&mut self, key: DataKey) {
        self.1.take_if(|wanted| *wanted == key);
    }
}

#[cfg(test)]
mod tests {
    use core::pin::pin;
    use core::task::{Context, Poll, Waker};
    use std::sync::LazyLock;

    use super::*;

    fn run<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => value,
            Poll::Pending => panic!("it waits"),
        }
    }

    /// A body of pieces, the last one first. Its entity tag is `e`.
    struct Given(Vec<Bytes>);

    impl Body for Given {
        fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, Error>> {
            Box::pin(async { Ok(self.0.pop()) })
        }

        fn digest(&mut self) -> BodyDigest {
            BodyDigest { etag: "e".into(), attributes: Attributes::default() }
        }
    }

    fn setup() -> Memory {
        let memory = Memory::new(|| 5);
        run(Buckets::create(&memory, "bucket", Attributes::default(), Versioning::Never)).unwrap();
        memory
    }

    fn put(memory: &Memory, key: &str, attributes: Attributes, pieces: Vec<Bytes>) -> Result<u64, Error> {
        let request = PutRequest { bucket: "bucket".into(), key: key.into(), attributes, ..PutRequest::default() };
        run(memory.put(request, &mut Given(pieces))).map(|object| object.bytes)
    }

    /// Pieces of so many bytes in all. They share their memory, of which nothing is touched.
    fn pieces(bytes: u64) -> Vec<Bytes> {
        static PIECE: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(vec![0; 64 << 20]));
        let len = PIECE.len() as u64;
        (0..bytes.div_ceil(len)).map(|at| PIECE.slice(..len.min(bytes - at * len) as usize)).collect()
    }

    #[test]
    fn names_attributes_and_bodies_have_bounds() {
        let memory = setup();
        let wrong = |outcome: Result<u64, Error>| matches!(outcome, Err(Error::BadRequest(_)));
        for (len, is_wrong) in [(0, true), (1, false), (KEY_BYTES_MAX, false), (KEY_BYTES_MAX + 1, true)] {
            assert_eq!(wrong(put(&memory, &"k".repeat(len), Attributes::default(), vec![])), is_wrong, "{len}");
        }
        for (len, is_wrong) in [(ATTRIBUTES_BYTES_MAX - 2, false), (ATTRIBUTES_BYTES_MAX - 1, true)] {
            let attributes = Attributes(vec![("ab".into(), "v".repeat(len))]);
            assert_eq!(wrong(put(&memory, "key", attributes, vec![])), is_wrong, "{len}");
        }
        for bytes in [0, 1, PART_BYTES_MAX] {
            assert_eq!(put(&memory, "key", Attributes::default(), pieces(bytes)), Ok(bytes));
        }
        let longer = pieces(PART_BYTES_MAX + 1);
        assert_eq!(put(&memory, "key", Attributes::default(), longer), Err(Error::TooLarge));
    }

    #[test]
    fn reads_go_by_their_conditions() {
        let memory = setup();
        put(&memory, "key", Attributes::default(), vec![]).unwrap();
        let list = |etag: &str| Some(vec!["other".to_owned(), etag.to_owned()]);
        let read = |etag_is, etag_is_not| {
            let condition = Condition { etag_is, etag_is_not, put_at_ms: None };
            run(Objects::get(&memory, Target::current("bucket", "key"), None, &condition)).map(drop)
        };
        for (etag, is_there) in [("e", true), ("*", true), ("f", false)] {
            assert_eq!(read(list(etag), None), if is_there { Ok(()) } else { Err(Error::ConditionFailed) }, "{etag}");
            let known = read(None, list(etag));
            assert_eq!(matches!(known, Err(Error::NotModified(_))), is_there, "{etag}");
            assert_eq!(known.is_ok(), !is_there, "{etag}");
            let request = PutRequest { bucket: "bucket".into(), key: "key".into(), ..PutRequest::default() };
            let condition = Condition { etag_is_not: list(etag), ..Condition::default() };
            let written = run(memory.put(PutRequest { condition, ..request }, &mut Given(vec![])));
            assert_eq!(written.is_ok(), !is_there, "{etag}");
        }
    }

    #[test]
    fn an_object_of_before_is_told_as_the_null_version() {
        let memory = setup();
        put(&memory, "key", Attributes::default(), vec![]).unwrap();
        let target = Target::current("bucket", "key");
        let told = || {
            let head = run(memory.head(target)).unwrap();
            let read = run(Objects::get(&memory, target, None, &Condition::default())).unwrap().object;
            (head.version, read.version)
        };
        assert_eq!(told(), (None, None));
        run(memory.set_state("bucket", Versioning::Enabled)).unwrap();
        assert_eq!(told(), (Some(VersionId::Null), Some(VersionId::Null)));
    }

    #[test]
    fn a_completion_names_parts_in_order_and_of_the_right_lengths() {
        let memory = setup();
        let begin = Uploads::begin(&memory, "bucket", "key", Attributes::default(), Lock::default(), None);
        let upload = run(begin).unwrap();
        // 5 TiB in the parts from 3 on, one byte more with the last one.
        let lengths = [PART_BYTES_MIN - 1, PART_BYTES_MIN].into_iter();
        let lengths = lengths.chain(core::iter::repeat_n(PART_BYTES_MAX, 1_024)).chain([1]);
        for (number, bytes) in (1..).zip(lengths) {
            let part = &mut Given(pieces(bytes));
            run(memory.put_part("bucket", "key", &upload, number, &|_| Ok(None), part)).unwrap();
        }
        let complete = |numbers: &[u32]| {
            let parts = numbers.iter().map(|number| (*number, "e".to_owned())).collect();
            let completion = Completion { parts, ..Completion::default() };
            run(memory.complete("bucket", "key", &upload, completion)).map(|object| object.bytes)
        };
        for numbers in [&[][..], &[2, 1], &[2, 2]] {
            assert_eq!(complete(numbers), Err(Error::BadPartOrder), "{numbers:?}");
        }
        assert_eq!(complete(&[1, 2]), Err(Error::PartTooSmall(1)));
        assert_eq!(complete(&[2, 1, 3]), Err(Error::BadPartOrder));
        assert_eq!(complete(&[2, 9_999]), Err(Error::BadPart(9_999)));
        assert_eq!(complete(&(3..=1_027).collect::<Vec<_>>()), Err(Error::TooLarge));
        assert_eq!(complete(&(3..=1_026).collect::<Vec<_>>()), Ok(OBJECT_BYTES_MAX));
        let upload =
            run(Uploads::begin(&memory, "bucket", "key", Attributes::default(), Lock::default(), None)).unwrap();
        for (number, bytes) in [(1, PART_BYTES_MIN), (2, 1)] {
            run(memory.put_part("bucket", "key", &upload, number, &|_| Ok(None), &mut Given(pieces(bytes)))).unwrap();
        }
        let parts = vec![(1, "e".to_owned()), (2, "e".to_owned())];
        let done = run(memory.complete("bucket", "key", &upload, Completion { parts, ..Completion::default() }));
        assert_eq!(done.unwrap().parts, [PART_BYTES_MIN, 1]);
    }

    #[test]
    fn ranges_are_cut_out_of_the_pieces() {
        let whole = b"abcdefghi";
        let pieces = [&whole[..3], &whole[3..7], &whole[7..]].map(Bytes::from_static);
        for first in 0..whole.len() {
            for count in 0..=whole.len() - first {
                let mut cut = Pieces::of(pieces.to_vec(), (first as u64, count as u64), None);
                assert!(cut.0.iter().all(|piece| !piece.is_empty()), "{first} {count}");
                let mut read = Vec::new();
                while let Some(piece) = run(cut.next()).unwrap() {
                    read.extend_from_slice(&piece);
                }
                assert_eq!(read, whole[first..first + count], "{first} {count}");
            }
        }
    }

    #[test]
    fn what_is_encrypted_is_read_with_its_key_and_nothing_is_read_without() {
        let key = |byte| DataKey::from_bytes([byte; 32]);
        for (given, bytes, expected) in [
            (None, 3, Err(Error::Damaged)),
            (Some(2), 3, Err(Error::Damaged)),
            (Some(1), 3, Ok(Some(3))),
            (None, 0, Ok(None)),
        ] {
            let mut content = Pieces::of(vec![Bytes::from_static(b"abc")], (0, bytes), Some(key(1)));
            given.into_iter().for_each(|given| content.decrypt_with(key(given)));
            assert_eq!(run(content.next()).map(|piece| piece.map(|piece| piece.len())), expected, "{given:?} {bytes}");
        }
    }
}
