//! Named records of services, and gates of features.
//!
//! A service keeps settings of its own here (buckets, users, policies) under a name, without the catalog knowing what
//! they mean. A record changes by compare-and-set on its revision, which is the catalog's version that wrote it: it
//! grows even when a record is removed and made again, so an old revision never fits a new record.

use crate::change::CatalogVersion;
use crate::codec::{Fields, Sink, Source, words};
use crate::error::FormError;
use crate::table::Row;

/// Most named records.
pub const RECORDS_MAX: usize = 131_072;
/// Most bytes of a record's space.
pub const SPACE_BYTES_MAX: usize = 32;
/// Most bytes of a record's name.
pub const RECORD_NAME_BYTES_MAX: usize = 512;
/// Most bytes of a record's value.
pub const VALUE_BYTES_MAX: usize = 64 << 10;
/// Most features.
pub const FEATURES_MAX: usize = 256;
/// Most bytes of a feature's name.
pub const FEATURE_NAME_BYTES_MAX: usize = 64;

/// What a record is found by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordKey {
    /// Whose record and of which kind, as `object/bucket`: 1 to [`SPACE_BYTES_MAX`] bytes.
    pub space: String,
    /// Its name in the space, 1 to [`RECORD_NAME_BYTES_MAX`] bytes.
    pub name: String,
}

impl Fields for RecordKey {
    fn write(&self, out: &mut impl Sink) {
        out.text("space", &self.space);
        out.text("name", &self.name);
    }

    fn read(from: &mut impl Source) -> Result<Self, FormError> {
        Ok(Self { space: from.text("space", SPACE_BYTES_MAX)?, name: from.text("name", RECORD_NAME_BYTES_MAX)? })
    }
}

/// One named record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedRecord {
    /// What it is found by.
    pub key: RecordKey,
    /// The catalog's version that wrote it.
    pub revision: CatalogVersion,
    /// What the service wrote, up to [`VALUE_BYTES_MAX`] bytes.
    pub value: Vec<u8>,
}

impl Row for NamedRecord {
    type Key = RecordKey;
    const KIND: &'static str = "record";
    const ROWS_MAX: usize = RECORDS_MAX;

    fn key(&self) -> RecordKey {
        self.key.clone()
    }
}

impl Fields for NamedRecord {
    fn write(&self, out: &mut impl Sink) {
        self.key.write(out);
        out.uint("revision", self.revision.0);
        out.bytes("value", &self.value);
    }

    fn read(from: &mut impl Source) -> Result<Self, FormError> {
        Ok(Self {
            key: RecordKey::read(from)?,
            revision: CatalogVersion(from.uint("revision")?),
            value: from.bytes("value", VALUE_BYTES_MAX)?,
        })
    }
}

/// What a record must be before it is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Anything: the last writer wins.
    Anything,
    /// There is no such record.
    Absent,
    /// It has this revision.
    Revision(CatalogVersion),
}

words! {
    /// The kinds of [`Expected`].
    ExpectedKind {
        Anything = "anything",
        Absent = "absent",
        Revision = "revision",
    }
}

impl Fields for Expected {
    fn write(&self, out: &mut impl Sink) {
        match self {
            Self::Anything => ExpectedKind::Anything.write(out, "expected"),
            Self::Absent => ExpectedKind::Absent.write(out, "expected"),
            Self::Revision(revision) => {
                ExpectedKind::Revision.write(out, "expected");
                out.uint("revision", revision.0);
            }
        }
    }

    fn read(from: &mut impl Source) -> Result<Self, FormError> {
        Ok(match ExpectedKind::read(from, "expected")? {
            ExpectedKind::Anything => Self::Anything,
            ExpectedKind::Absent => Self::Absent,
            ExpectedKind::Revision => Self::Revision(CatalogVersion(from.uint("revision")?)),
        })
    }
}

/// A feature that is in use for good: every server must know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feature {
    /// What it is called, 1 to [`FEATURE_NAME_BYTES_MAX`] bytes.
    pub name: String,
    /// The first release that knows it.
    pub release_min: u32,
}

impl Row for Feature {
    type Key = String;
    const KIND: &'static str = "feature";
    const ROWS_MAX: usize = FEATURES_MAX;

    fn key(&self) -> String {
        self.name.clone()
    }
}

impl Fields for Feature {
    fn write(&self, out: &mut impl Sink) {
        out.text("name", &self.name);
        out.uint("release_min", u64::from(self.release_min));
    }

    fn read(from: &mut impl Source) -> Result<Self, FormError> {
        Ok(Self { name: from.text("name", FEATURE_NAME_BYTES_MAX)?, release_min: from.uint32("release_min")? })
    }
}
