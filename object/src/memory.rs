//! The object service in memory, for tests of fronts: same answers, no drives, nothing durable.
//!
//! One lock around everything makes each change atomic. Contents are lists of the buffers that came in.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::api::{
    ATTRIBUTES_BYTES_MAX, Attributes, Body, BodyDigest, BoxFuture, Bucket, Buckets, Completion, Condition, Content,
    Error, KEY_BYTES_MAX, ListRequest, Listed, OBJECT_BYTES_MAX, Object, Objects, Opened, PAGE_MAX, PART_BYTES_MAX,
    PART_BYTES_MIN, PART_NUMBER_MAX, Page, Part, PutRequest, Range, Service, Upload, UploadId, Uploads,
};

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
}

struct Contents {
    created_ms: u64,
    objects: BTreeMap<String, Stored>,
    uploads: BTreeMap<UploadId, Pending>,
    /// Uploads that became objects: repeated completions are answered the same.
    completed: BTreeMap<UploadId, Object>,
}

#[derive(Clone)]
struct Stored {
    object: Object,
    pieces: Vec<Bytes>,
}

struct Pending {
    upload: Upload,
    parts: BTreeMap<u32, (Part, Vec<Bytes>)>,
}

impl Memory {
    /// Without buckets. `now_ms` tells the time in milliseconds since 1970.
    #[must_use]
    pub fn new(now_ms: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self { state: Arc::default(), now_ms: Arc::new(now_ms) }
    }

    /// The three faces of it, as a front takes them.
    #[must_use]
    pub fn service(&self) -> Service {
        Service { buckets: Arc::new(self.clone()), objects: Arc::new(self.clone()), uploads: Arc::new(self.clone()) }
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
    fn create<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let mut state = self.lock();
            if state.buckets.contains_key(name) {
                return Err(Error::BucketExists);
            }
            let (objects, uploads, completed) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
            let contents = Contents { created_ms: self.now(), objects, uploads, completed };
            state.buckets.insert(name.to_owned(), contents);
            Ok(())
        })
    }

    fn delete<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let mut state = self.lock();
            let contents = state.bucket(name)?;
            if !contents.objects.is_empty() || !contents.uploads.is_empty() {
                return Err(Error::BucketNotEmpty);
            }
            state.buckets.remove(name);
            Ok(())
        })
    }

    fn get<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Bucket, Error>> {
        Box::pin(async move {
            let created_ms = self.lock().bucket(name)?.created_ms;
            Ok(Bucket { name: name.to_owned(), created_ms })
        })
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Bucket>, Error>> {
        Box::pin(async move {
            let state = self.lock();
            let bucket =
                |(name, contents): (&String, &Contents)| Bucket { name: name.clone(), created_ms: contents.created_ms };
            Ok(state.buckets.iter().map(bucket).collect())
        })
    }
}

impl Objects for Memory {
    fn put<'a>(&'a self, request: PutRequest, body: &'a mut dyn Body) -> BoxFuture<'a, Result<Object, Error>> {
        Box::pin(async move {
            check_names(&request.key, &request.attributes)?;
            self.lock().bucket(&request.bucket)?;
            let (pieces, bytes, digest) = take(body).await?;
            let object = Object {
                key: request.key.clone(),
                bytes,
                etag: digest.etag,
                modified_ms: self.now(),
                attributes: joined(request.attributes, digest.attributes),
                parts: Vec::new(),
            };
            let mut state = self.lock();
            let objects = &mut state.bucket(&request.bucket)?.objects;
            check(&request.condition, objects.get(&request.key))?;
            objects.insert(request.key, Stored { object: object.clone(), pieces });
            Ok(object)
        })
    }

    fn get<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
        range: Option<Range>,
        condition: &'a Condition,
    ) -> BoxFuture<'a, Result<Opened, Error>> {
        Box::pin(async move {
            let stored = self.lock().bucket(bucket)?.objects.get(key).cloned().ok_or(Error::NoSuchKey)?;
            let match_only = Condition { etag_is: condition.etag_is.clone(), etag_is_not: None };
            check(&match_only, Some(&stored))?;
            let Stored { object, pieces } = stored;
            let is_known = |etags: &Vec<String>| etags.iter().any(|etag| etag == "*" || *etag == object.etag);
            if condition.etag_is_not.as_ref().is_some_and(is_known) {
                return Err(Error::NotModified(Box::new(object)));
            }
            let span = range.map_or(Some((0, object.bytes)), |range| range.within(object.bytes));
            let range = span.ok_or(Error::BadRange(object.bytes))?;
            Ok(Opened { object, range, content: Box::new(Pieces::of(pieces, range)) })
        })
    }

    fn head<'a>(&'a self, bucket: &'a str, key: &'a str) -> BoxFuture<'a, Result<Object, Error>> {
        Box::pin(async move {
            let mut state = self.lock();
            state.bucket(bucket)?.objects.get(key).map(|stored| stored.object.clone()).ok_or(Error::NoSuchKey)
        })
    }

    fn delete<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
        condition: &'a Condition,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let mut state = self.lock();
            let objects = &mut state.bucket(bucket)?.objects;
            check(condition, objects.get(key))?;
            objects.remove(key);
            Ok(())
        })
    }

    fn list<'a>(&'a self, bucket: &'a str, request: &'a ListRequest) -> BoxFuture<'a, Result<Page, Error>> {
        Box::pin(async move {
            let mut state = self.lock();
            Ok(page(&state.bucket(bucket)?.objects, request))
        })
    }
}

fn page(objects: &BTreeMap<String, Stored>, request: &ListRequest) -> Page {
    let ListRequest { prefix, delimiter, after, limit } = request;
    let mut entries: Vec<Listed> = Vec::new();
    let mut last = None;
    for (key, stored) in objects.range::<str, _>((Bound::Included(prefix.as_str()), Bound::Unbounded)) {
        let Some(rest) = key.strip_prefix(prefix.as_str()) else { break };
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
    ) -> BoxFuture<'a, Result<UploadId, Error>> {
        Box::pin(async move {
            check_names(key, &attributes)?;
            let mut state = self.lock();
            state.uploads_begun += 1;
            let id = UploadId(format!("upload-{:08}", state.uploads_begun));
            let upload = Upload { id: id.clone(), key: key.to_owned(), begun_ms: self.now(), attributes };
            state.bucket(bucket)?.uploads.insert(id.clone(), Pending { upload, parts: BTreeMap::new() });
            Ok(id)
        })
    }

    fn put_part<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
        upload: &'a UploadId,
        number: u32,
        body: &'a mut dyn Body,
    ) -> BoxFuture<'a, Result<Part, Error>> {
        Box::pin(async move {
            if !(1..=PART_NUMBER_MAX).contains(&number) {
                return Err(Error::BadRequest("a part has a number from 1 to 10000"));
            }
            self.lock().upload(bucket, key, upload)?;
            let (pieces, bytes, digest) = take(body).await?;
            let BodyDigest { etag, attributes } = digest;
            let part = Part { number, bytes, etag, modified_ms: self.now(), attributes };
            self.lock().upload(bucket, key, upload)?.parts.insert(number, (part.clone(), pieces));
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
            let mut state = self.lock();
            if let Some(object) = state.bucket(bucket)?.completed.get(upload).filter(|object| object.key == key) {
                return Ok(object.clone());
            }
            let stored = assemble(state.upload(bucket, key, upload)?, &completion, now)?;
            let contents = state.bucket(bucket)?;
            check(&completion.condition, contents.objects.get(key))?;
            contents.uploads.remove(upload);
            contents.completed.insert(upload.clone(), stored.object.clone());
            contents.objects.insert(key.to_owned(), stored.clone());
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
        bytes,
        etag: completion.digest.etag.clone(),
        modified_ms: now_ms,
        attributes: joined(pending.upload.attributes.clone(), completion.digest.attributes.clone()),
        parts,
    };
    Ok(Stored { object, pieces })
}

/// Buffers on their way out, the last one first.
struct Pieces(Vec<Bytes>);

impl Pieces {
    /// The range of them: first byte and number of bytes.
    fn of(pieces: Vec<Bytes>, (first, count): (u64, u64)) -> Self {
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
        Self(cut)
    }
}

impl Content for Pieces {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, Error>> {
        Box::pin(async { Ok(self.0.pop()) })
    }
}
