//! How much the buckets of a range have, counted with each change.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::key::{self, BucketId};
use crate::record::{PartRecord, VersionRecord};

/// What a bucket has. Bytes are those of contents, as they were put: neither shards nor records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Current objects.
    pub objects: u64,
    /// Older versions, and marks of deletions that are not the newest.
    pub versions: u64,
    /// Parts of uploads that are not completed.
    pub parts: u64,
    /// Bytes of all of these.
    pub bytes: u64,
}

impl Usage {
    /// What one key adds. A value that cannot be read counts without bytes; keys of other kinds count nothing.
    fn of(key: &[u8], value: &Bytes) -> Self {
        let bytes_of_version = || match VersionRecord::decode(value) {
            Ok(VersionRecord::Object(record)) => record.bytes(),
            Ok(VersionRecord::Marker(_)) | Err(_) => 0,
        };
        if key::object_name(key).is_some() {
            Self { objects: 1, bytes: bytes_of_version(), ..Self::default() }
        } else if key::part_number(key).is_some() {
            let bytes = PartRecord::decode(value).map_or(0, |record| record.content.bytes);
            Self { parts: 1, bytes, ..Self::default() }
        } else if key::version_name(key).is_some() {
            Self { versions: 1, bytes: bytes_of_version(), ..Self::default() }
        } else {
            Self::default()
        }
    }

    const fn plus(self, other: Self) -> Self {
        Self {
            objects: self.objects + other.objects,
            versions: self.versions + other.versions,
            parts: self.parts + other.parts,
            bytes: self.bytes + other.bytes,
        }
    }

    const fn minus(self, other: Self) -> Self {
        Self {
            objects: self.objects.saturating_sub(other.objects),
            versions: self.versions.saturating_sub(other.versions),
            parts: self.parts.saturating_sub(other.parts),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

/// The content bytes that a key's value stands for.
pub(super) fn content_bytes(key: &[u8], value: Option<&Bytes>) -> u64 {
    value.map_or(0, |value| Usage::of(key, value).bytes)
}

/// What every bucket of a range has.
#[derive(Debug, Default)]
pub(super) struct UsageTable(BTreeMap<BucketId, Usage>);

impl UsageTable {
    pub(super) fn of(&self, bucket: BucketId) -> Usage {
        self.0.get(&bucket).copied().unwrap_or_default()
    }

    /// A key has another value now.
    pub(super) fn change(&mut self, key: &[u8], before: Option<&Bytes>, after: Option<&Bytes>) {
        let Some(bucket) = key::bucket(key) else { return };
        let of = |value: Option<&Bytes>| value.map(|value| Usage::of(key, value)).unwrap_or_default();
        let (gone, come) = (of(before), of(after));
        if gone == come {
            return;
        }
        let now = self.of(bucket).plus(come).minus(gone);
        if now == Usage::default() {
            self.0.remove(&bucket);
        } else {
            self.0.insert(bucket, now);
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
