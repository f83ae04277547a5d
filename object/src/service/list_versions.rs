//! A page of the versions of a bucket: current objects and what lies under keys of its own, joined.
//!
//! The two are read one after the other. An object that is replaced meanwhile is met twice, as current and as older, and
//! told once. One that becomes current again meanwhile, because a newer version was deleted, would be met in neither: so
//! current objects are read once more.

use std::collections::BTreeMap;

use super::{ObjectService, decode};
use crate::api::{DeleteMarker, Error, ListedVersion, PAGE_MAX, VersionId, Versioning, VersionsPage, VersionsRequest};
use crate::cluster::Cluster;
use crate::index::key::{self, BucketId};
use crate::index::request::Scan;
use crate::index::{Line, Reply, Request};
use crate::record::VersionRecord;

/// Where a line stands: by its key, and the newest first.
type Place = (String, u64);

/// A line before it is known whether it is the current version.
enum Row {
    Version(VersionRecord),
    Prefix,
}

/// One of the two runs of keys: where it goes on, if it does.
struct Run {
    from: Option<Vec<u8>>,
    to: Vec<u8>,
    fold: Vec<u8>,
    fold_after: u32,
}

impl Run {
    fn new(from: Vec<u8>, to: Vec<u8>, fold: Vec<u8>, fold_after: usize) -> Self {
        let fold_after = u32::try_from(fold_after).expect("a key is short");
        Self { from: Some(from), to, fold, fold_after }
    }
}

fn place_of(key: &[u8]) -> Result<Place, Error> {
    if let Some((name, sequence)) = key::version_name(key) {
        return Ok((name, u64::MAX - sequence));
    }
    // The current object comes before all other versions of its key.
    key::object_name(key).map(|name| (name.to_owned(), 0)).ok_or(Error::Damaged)
}

impl<C: Cluster> ObjectService<C> {
    /// One page of a run, into `rows`. The place from which on nothing is known yet, if there is more.
    async fn read_run(
        &self,
        bucket: BucketId,
        (from, run): (Vec<u8>, &Run),
        lines_max: u32,
        rows: &mut BTreeMap<Place, Row>,
    ) -> Result<Option<(Vec<u8>, Place)>, Error> {
        let scan = Scan { from, to: run.to.clone(), fold: run.fold.clone(), fold_after: run.fold_after, lines_max };
        let Reply::Page { lines, next } = self.cluster.index(bucket, Request::Scan(scan)).await else {
            return Err(Error::Unavailable);
        };
        for line in lines {
            match line {
                Line::Entry(key, entry) => {
                    let record = match key::object_name(&key) {
                        Some(_) => VersionRecord::Object(decode(&entry)?),
                        None => VersionRecord::decode(&entry.value).map_err(|_| Error::Damaged)?,
                    };
                    let (name, _) = place_of(&key)?;
                    rows.insert((name, u64::MAX - record.sequence()), Row::Version(record));
                }
                Line::Folded(key) => {
                    let prefix = match key::object_name(&key) {
                        Some(prefix) => Some(prefix.to_owned()),
                        None => key::version_prefix(&key),
                    };
                    rows.insert((prefix.ok_or(Error::Damaged)?, 0), Row::Prefix);
                }
            }
        }
        next.map(|next| place_of(&next).map(|place| (next, place))).transpose()
    }

    pub(super) async fn versions_page(&self, bucket: &str, request: &VersionsRequest) -> Result<VersionsPage, Error> {
        let (bucket, _) = self.bucket(bucket).await?;
        let state = self.versioning_for_read(bucket).await?;
        let limit = request.limit.min(PAGE_MAX);
        let Some((mut objects, mut versions)) = self.runs(bucket, request).await?.filter(|_| limit > 0) else {
            return Ok(VersionsPage::default());
        };
        let lines_max = u32::try_from(limit + 1).expect("at most PAGE_MAX and one");
        let mut rows = BTreeMap::new();
        loop {
            // Up to where everything is known: what lies behind may have neighbours that are not.
            let mut horizon: Option<Place> = None;
            let first = objects.from.clone();
            for run in [&mut objects, &mut versions] {
                if let Some(from) = run.from.take() {
                    let next = self.read_run(bucket, (from, run), lines_max, &mut rows).await?;
                    if let Some((next, place)) = next {
                        horizon = Some(horizon.map_or(place.clone(), |known| known.min(place)));
                        run.from = Some(next);
                    }
                }
            }
            if let Some(from) = first.filter(|_| state != Versioning::Never) {
                let again = self.read_run(bucket, (from, &objects), lines_max, &mut rows).await?;
                horizon = again.map(|(_, place)| place).into_iter().chain(horizon).min();
            }
            let known = rows.keys().take_while(|place| horizon.as_ref().is_none_or(|horizon| *place < horizon)).count();
            if known > limit || horizon.is_none() {
                return Ok(page(rows, request, limit, state));
            }
        }
    }

    /// Where the two runs of a list begin and end; nothing if there can be nothing behind its place.
    async fn runs(&self, bucket: BucketId, request: &VersionsRequest) -> Result<Option<(Run, Run)>, Error> {
        let VersionsRequest { prefix, delimiter, after, after_version, .. } = request;
        let begin = (key::object(bucket, prefix.as_bytes()), key::versions(bucket, prefix));
        let end = if prefix.is_empty() {
            (key::objects_end(bucket), key::versions_end(bucket))
        } else {
            let behind = |key: &[u8]| super::object::key_behind(key).expect("a kind is less than 255");
            (behind(&begin.0), behind(&begin.1))
        };
        let mut from = begin.clone();
        if !after.is_empty() && after >= prefix {
            let object = key::object(bucket, after.as_bytes());
            from = if super::object::is_common_prefix(after, prefix, delimiter) {
                let keys =
                    (super::object::key_behind(&object), super::object::key_behind(&key::versions(bucket, after)));
                let (Some(objects), Some(versions)) = keys else { return Ok(None) };
                (objects, versions)
            } else {
                let versions = match after_version {
                    Some(version) => self.behind_version(bucket, after, *version).await?,
                    None => key::versions_of_end(bucket, after),
                };
                ([object, vec![0]].concat(), versions)
            };
        }
        let fold = (delimiter.as_bytes().to_vec(), key::escaped(delimiter.as_bytes()));
        let objects = Run::new(from.0, end.0, fold.0, begin.0.len());
        let versions = Run::new(from.1, end.1, fold.1, begin.1.len());
        Ok(Some((objects, versions)))
    }

    /// The first key of versions of an object that are older than one.
    async fn behind_version(&self, bucket: BucketId, name: &str, version: VersionId) -> Result<Vec<u8>, Error> {
        let sequence = match version {
            VersionId::Named { sequence, .. } => sequence,
            VersionId::Null => {
                match self.find(bucket, name, Some(version)).await {
                    Ok(found) => found.record.sequence(),
                    // A mark of a deletion, or a version that was deleted after the page before.
                    Err(Error::IsMarker(_) | Error::NoSuchVersion) => match self.null_place(bucket, name).await? {
                        Some(sequence) => sequence,
                        None => return Ok(key::versions_of_end(bucket, name)),
                    },
                    Err(error) => return Err(error),
                }
            }
        };
        Ok([key::version(bucket, name, sequence), vec![0]].concat())
    }
}

fn page(rows: BTreeMap<Place, Row>, request: &VersionsRequest, limit: usize, state: Versioning) -> VersionsPage {
    let mut page = VersionsPage::default();
    let mut before = request.after_version.map(|_| request.after.clone());
    let mut last = None;
    for ((name, _), row) in rows {
        if page.entries.len() == limit {
            page.next = last;
            break;
        }
        let is_current = before.as_ref() != Some(&name);
        let (entry, version) = match row {
            Row::Prefix => (ListedVersion::Prefix(name.clone()), None),
            Row::Version(VersionRecord::Object(record)) => {
                let version = record.version;
                (ListedVersion::Object(super::object(&name, record, state), is_current), Some(version))
            }
            Row::Version(VersionRecord::Marker(record)) => {
                let (key, version) = (name.clone(), record.version);
                let marker =
                    DeleteMarker { key, version, modified_ms: record.modified_ms, attributes: record.attributes };
                (ListedVersion::Marker(marker, is_current), Some(version))
            }
        };
        page.entries.push(entry);
        last = Some((name.clone(), version));
        before = Some(name);
    }
    page
}
