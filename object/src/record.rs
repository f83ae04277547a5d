//! Values of the index: objects, marks of deletions, uploads and parts of uploads. Written forms, versions 1 to 4.
//!
//! An object that is the null version of its key, as all are in buckets that have never kept versions, has the form of
//! version 1. Version 2 adds which version it is; version 3 adds to that what keeps it from deletion, version 4 the wrapped key
//! of an object that is encrypted. So programs that know no locks and no encryption read and change what has neither, and refuse the rest.
//!
//! An object's bytes are one part or many; a part is cut into blocks, and each block is a stripe of shards on the drives of
//! the part. A record names the drives: shards are found where they were put, whatever the rule of placement says by then.

use ashlar_wire::id::{BlobId, DriveId};
use bytes::Bytes;

use crate::api::{
    ATTRIBUTES_BYTES_MAX, Attributes, ENVELOPE_BYTES_MAX, KEY_BYTES_MAX, KeyEnvelope, PART_NUMBER_MAX, VersionId,
};
use crate::cipher::{PLAIN_BLOCK_BYTES, stored_bytes};
use crate::cluster::{SHARDS_MAX, Spread};
use crate::cursor::{Cursor, Malformed, Put};
use crate::index::key::BucketId;
use crate::lock::Lock;

mod owner;

pub use owner::{KeyBeginning, ShardOwner};

/// Bytes of a block but the last one of a part.
pub const BLOCK_BYTES: u32 = 1 << 20;
/// Longest entity tag.
const ETAG_BYTES_MAX: usize = 64;
/// Most pairs of attributes.
const PAIRS_MAX: usize = 2_048;
/// Version of the written forms.
const VERSION: u8 = 1;
/// Version of the written form of an object that says which version of its key it is.
const VERSION_OF_VERSIONS: u8 = 2;
/// Version of the written form of an object that says what keeps it from deletion.
const VERSION_OF_LOCKS: u8 = 3;
/// Version of the written form of an object that is encrypted.
const VERSION_OF_ENCRYPTION: u8 = 4;
/// Version of the written form of an upload whose object will be kept from deletion.
const UPLOAD_VERSION_OF_LOCKS: u8 = 2;
/// Version of the written form of an upload whose object will be encrypted.
const UPLOAD_VERSION_OF_ENCRYPTION: u8 = 3;
/// Version of the written form of a part that is encrypted.
const PART_VERSION_OF_ENCRYPTION: u8 = 2;

const OBJECT: u8 = 0;
const UPLOAD: u8 = 1;
const PART: u8 = 2;
const MARKER: u8 = 3;

/// Names the bytes of a part; drawn by chance, never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartId(pub [u8; 12]);

/// How the shards of a part are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ShardNames {
    /// By the block alone: two shards of a block cannot lie on one drive, and the second one is refused. Parts from before.
    OfBlock,
    /// By block and number: whoever made the other shard anew for the same drive is in nobody's way.
    #[default]
    OfShard,
}

/// Bytes that lie in shards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartContent {
    /// Their name.
    pub id: PartId,
    /// How many, before encryption.
    pub bytes: u64,
    /// Whether they are encrypted: shards have what [`crate::cipher`] makes of them.
    pub is_encrypted: bool,
    /// The drives of their shards.
    pub spread: Spread,
    /// Number of the part in its upload; 0 of an object that was put in one request.
    pub number: u16,
    /// How its shards are called.
    pub names: ShardNames,
    /// Shards that some drive did not keep when they were put, by their numbers: to be made anew.
    pub missing: Vec<u8>,
}

/// In the written form of a number: the shards are called by block and number.
const NAMES_OF_SHARDS: u16 = 1 << 15;

impl PartContent {
    /// The name of a shard on its drive.
    #[must_use]
    pub fn blob(&self, block: u32, shard: u8) -> BlobId {
        let shard = if self.names == ShardNames::OfShard { u32::from(shard) << 24 } else { 0 };
        let mut bytes = [0; 16];
        bytes[..12].copy_from_slice(&self.id.0);
        // A part has some thousands of blocks.
        bytes[12..].copy_from_slice(&(shard | block).to_be_bytes());
        BlobId::from_bytes(bytes)
    }

    /// Bytes of a block but the last one, before encryption.
    #[must_use]
    pub const fn full_block_bytes(&self) -> u32 {
        if self.is_encrypted { PLAIN_BLOCK_BYTES } else { BLOCK_BYTES }
    }

    /// Number of blocks.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        u32::try_from(self.bytes.div_ceil(self.full_block_bytes().into())).expect("a part has at most 5 GiB")
    }

    /// Bytes of a block, before encryption.
    #[must_use]
    pub fn plain_bytes(&self, block: u32) -> u32 {
        let full = u64::from(self.full_block_bytes());
        u32::try_from((self.bytes - u64::from(block) * full).min(full)).expect("at most a block")
    }

    /// Bytes of a block as its shards have it.
    #[must_use]
    pub fn block_bytes(&self, block: u32) -> u32 {
        let plain = self.plain_bytes(block);
        if self.is_encrypted { stored_bytes(plain) } else { plain }
    }

    /// Data shards of a stripe.
    #[must_use]
    pub fn data_shards(&self) -> usize {
        self.spread.drives.len() - usize::from(self.spread.parity)
    }

    /// Bytes of each shard of a block.
    #[must_use]
    pub fn shard_bytes(&self, block: u32) -> u32 {
        let shards = u32::try_from(self.data_shards()).expect("at most SHARDS_MAX");
        self.block_bytes(block).div_ceil(shards)
    }
}

/// An object in the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectRecord {
    /// Which version of its key it is.
    pub version: VersionId,
    /// Its place among the versions of its key: the greatest is the newest.
    pub sequence: u64,
    /// Names the request that put it: a repeated one finds itself. An upload's id where one was completed.
    pub put_id: [u8; 16],
    /// Its entity tag.
    pub etag: String,
    /// When it was put, in milliseconds since 1970 (UTC).
    pub modified_ms: u64,
    /// What it says about itself.
    pub attributes: Attributes,
    /// What keeps it from deletion.
    pub lock: Lock,
    /// Whether it was put in parts.
    pub is_multipart: bool,
    /// Its key, wrapped, if it is encrypted. Then all of its parts are.
    pub envelope: Option<KeyEnvelope>,
    /// Its bytes, in order.
    pub parts: Vec<PartContent>,
}

impl ObjectRecord {
    /// Its length, before encryption.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }

    /// What the shards of one of its parts say about themselves.
    #[must_use]
    pub fn header<'a>(&self, bucket: BucketId, key: &'a str, part: &PartContent) -> ShardHeader<'a> {
        let upload = self.is_multipart.then_some((self.put_id, part.number));
        ShardHeader::new(bucket, key, upload, part)
    }

    /// Its written form.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let is_plain = self.version == VersionId::Null && self.sequence == self.modified_ms;
        let form = match (&self.envelope, self.lock.is_absent(), is_plain) {
            (None, true, true) => VERSION,
            (None, true, false) => VERSION_OF_VERSIONS,
            (None, false, _) => VERSION_OF_LOCKS,
            (Some(_), ..) => VERSION_OF_ENCRYPTION,
        };
        let is_alike = self.parts.iter().all(|part| part.is_encrypted == self.envelope.is_some());
        assert!(is_alike, "the parts of an object are encrypted if it is");
        let mut out = vec![form, OBJECT];
        if form != VERSION {
            put_version(&mut out, self.version, self.sequence);
        }
        if form >= VERSION_OF_LOCKS {
            self.lock.encode_into(&mut out);
        }
        if let Some(KeyEnvelope(envelope)) = &self.envelope {
            out.put_short(envelope);
        }
        out.extend_from_slice(&self.put_id);
        out.put_short(self.etag.as_bytes());
        out.put_u64(self.modified_ms);
        put_attributes(&mut out, &self.attributes);
        out.put_u8(u8::from(self.is_multipart));
        put_parts(&mut out, &self.parts);
        out
    }

    /// Reads it back.
    ///
    /// # Errors
    /// [`Malformed`]: a newer program wrote it.
    pub fn decode(bytes: &Bytes) -> Result<Self, Malformed> {
        let mut from = Cursor(bytes.clone());
        let known = match (from.u8()?, from.u8()?) {
            (VERSION, OBJECT) => None,
            (VERSION_OF_VERSIONS..=VERSION_OF_ENCRYPTION, OBJECT) => Some(take_version(&mut from)?),
            _ => return Err(Malformed),
        };
        let form = bytes.first().copied().unwrap_or_default();
        let lock = if form >= VERSION_OF_LOCKS { Lock::decode_from(&mut from)? } else { Lock::default() };
        let is_encrypted = form == VERSION_OF_ENCRYPTION;
        let envelope = if is_encrypted { Some(take_envelope(&mut from)?) } else { None };
        let mut record = Self {
            version: VersionId::Null,
            sequence: 0,
            put_id: from.array()?,
            etag: from.text(ETAG_BYTES_MAX)?,
            modified_ms: from.u64()?,
            attributes: take_attributes(&mut from)?,
            lock,
            is_multipart: take_bool(&mut from)?,
            envelope,
            parts: take_parts(&mut from, is_encrypted)?,
        };
        (record.version, record.sequence) = known.unwrap_or((VersionId::Null, record.modified_ms));
        from.end()?;
        Ok(record)
    }
}

/// A mark of a deletion in the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkerRecord {
    /// Which version of its key it is.
    pub version: VersionId,
    /// Its place among the versions of its key.
    pub sequence: u64,
    /// When it was put, in milliseconds since 1970 (UTC).
    pub modified_ms: u64,
    /// What it says about itself.
    pub attributes: Attributes,
}

impl MarkerRecord {
    /// Its written form.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION, MARKER];
        put_version(&mut out, self.version, self.sequence);
        out.put_u64(self.modified_ms);
        put_attributes(&mut out, &self.attributes);
        out
    }

    /// Reads it back.
    ///
    /// # Errors
    /// [`Malformed`]: a newer program wrote it.
    pub fn decode(bytes: &Bytes) -> Result<Self, Malformed> {
        let mut from = begin(bytes, MARKER)?;
        let (version, sequence) = take_version(&mut from)?;
        let record = Self { version, sequence, modified_ms: from.u64()?, attributes: take_attributes(&mut from)? };
        from.end()?;
        Ok(record)
    }
}

/// A version of a key in the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VersionRecord {
    /// An object.
    Object(ObjectRecord),
    /// A mark of a deletion.
    Marker(MarkerRecord),
}

impl VersionRecord {
    /// Reads what [`ObjectRecord::encode`] or [`MarkerRecord::encode`] wrote.
    ///
    /// # Errors
    /// [`Malformed`]: a newer program wrote it.
    pub fn decode(bytes: &Bytes) -> Result<Self, Malformed> {
        match bytes.get(1) {
            Some(&MARKER) => MarkerRecord::decode(bytes).map(Self::Marker),
            _ => ObjectRecord::decode(bytes).map(Self::Object),
        }
    }

    /// Which version it is.
    #[must_use]
    pub const fn version(&self) -> VersionId {
        match self {
            Self::Object(record) => record.version,
            Self::Marker(record) => record.version,
        }
    }

    /// Its place among the versions of its key.
    #[must_use]
    pub const fn sequence(&self) -> u64 {
        match self {
            Self::Object(record) => record.sequence,
            Self::Marker(record) => record.sequence,
        }
    }
}

/// Sequence, flag, and for flag 1 the number that was drawn.
fn put_version(out: &mut Vec<u8>, version: VersionId, sequence: u64) {
    out.put_u64(sequence);
    match version {
        VersionId::Null => out.put_u8(0),
        VersionId::Named { drawn, sequence: named } => {
            assert!(named == sequence, "a version is named by its place");
            out.put_u8(1);
            out.put_u64(drawn);
        }
    }
}

fn take_version(from: &mut Cursor) -> Result<(VersionId, u64), Malformed> {
    let (sequence, is_named) = (from.u64()?, take_bool(from)?);
    let version = if is_named { VersionId::Named { sequence, drawn: from.u64()? } } else { VersionId::Null };
    Ok((version, sequence))
}

/// An upload in the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadRecord {
    /// The key of the object that it will be.
    pub key: String,
    /// When it was begun, in milliseconds since 1970 (UTC).
    pub begun_ms: u64,
    /// What the object will say about itself.
    pub attributes: Attributes,
    /// What will keep the object from deletion.
    pub lock: Lock,
    /// The object's key, wrapped, if it will be encrypted.
    pub envelope: Option<KeyEnvelope>,
}

impl UploadRecord {
    /// Its written form.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let form = match (&self.envelope, self.lock.is_absent()) {
            (None, true) => VERSION,
            (None, false) => UPLOAD_VERSION_OF_LOCKS,
            (Some(_), _) => UPLOAD_VERSION_OF_ENCRYPTION,
        };
        let mut out = vec![form, UPLOAD];
        if form >= UPLOAD_VERSION_OF_LOCKS {
            self.lock.encode_into(&mut out);
        }
        if let Some(KeyEnvelope(envelope)) = &self.envelope {
            out.put_short(envelope);
        }
        out.put_short(self.key.as_bytes());
        out.put_u64(self.begun_ms);
        put_attributes(&mut out, &self.attributes);
        out
    }

    /// Reads it back.
    ///
    /// # Errors
    /// [`Malformed`]: a newer program wrote it.
    pub fn decode(bytes: &Bytes) -> Result<Self, Malformed> {
        let mut from = Cursor(bytes.clone());
        let lock = match (from.u8()?, from.u8()?) {
            (VERSION, UPLOAD) => Lock::default(),
            (UPLOAD_VERSION_OF_LOCKS | UPLOAD_VERSION_OF_ENCRYPTION, UPLOAD) => Lock::decode_from(&mut from)?,
            _ => return Err(Malformed),
        };
        let is_encrypted = bytes.first() == Some(&UPLOAD_VERSION_OF_ENCRYPTION);
        let envelope = if is_encrypted { Some(take_envelope(&mut from)?) } else { None };
        let (key, begun_ms) = (from.text(KEY_BYTES_MAX)?, from.u64()?);
        let record = Self { key, begun_ms, attributes: take_attributes(&mut from)?, lock, envelope };
        from.end()?;
        Ok(record)
    }
}

/// A part of an upload in the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartRecord {
    /// The entity tag of its bytes.
    pub etag: String,
    /// When it was put, in milliseconds since 1970 (UTC).
    pub modified_ms: u64,
    /// What follows from its bytes.
    pub attributes: Attributes,
    /// Its bytes.
    pub content: PartContent,
}

impl PartRecord {
    /// Its written form.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let form = if self.content.is_encrypted { PART_VERSION_OF_ENCRYPTION } else { VERSION };
        let mut out = vec![form, PART];
        out.put_short(self.etag.as_bytes());
        out.put_u64(self.modified_ms);
        put_attributes(&mut out, &self.attributes);
        put_parts(&mut out, core::slice::from_ref(&self.content));
        out
    }

    /// Reads it back.
    ///
    /// # Errors
    /// [`Malformed`]: a newer program wrote it.
    pub fn decode(bytes: &Bytes) -> Result<Self, Malformed> {
        let mut from = Cursor(bytes.clone());
        let is_encrypted = match (from.u8()?, from.u8()?) {
            (VERSION, PART) => false,
            (PART_VERSION_OF_ENCRYPTION, PART) => true,
            _ => return Err(Malformed),
        };
        let (etag, modified_ms) = (from.text(ETAG_BYTES_MAX)?, from.u64()?);
        let attributes = take_attributes(&mut from)?;
        let content = take_parts(&mut from, is_encrypted)?.pop().ok_or(Malformed)?;
        from.end()?;
        Ok(Self { etag, modified_ms, attributes, content })
    }
}

fn begin(bytes: &Bytes, kind: u8) -> Result<Cursor, Malformed> {
    let mut from = Cursor(bytes.clone());
    if from.u8()? == VERSION && from.u8()? == kind { Ok(from) } else { Err(Malformed) }
}

fn take_bool(from: &mut Cursor) -> Result<bool, Malformed> {
    match from.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed),
    }
}

fn take_envelope(from: &mut Cursor) -> Result<KeyEnvelope, Malformed> {
    Ok(KeyEnvelope(from.short(ENVELOPE_BYTES_MAX)?))
}

fn put_attributes(out: &mut Vec<u8>, attributes: &Attributes) {
    out.put_u32(u32::try_from(attributes.0.len()).expect("their bytes are limited"));
    for (name, value) in &attributes.0 {
        out.put_short(name.as_bytes());
        out.put_short(value.as_bytes());
    }
}

fn take_attributes(from: &mut Cursor) -> Result<Attributes, Malformed> {
    let pairs =
        (0..from.count(PAIRS_MAX)?).map(|_| Ok((from.text(ATTRIBUTES_BYTES_MAX)?, from.text(ATTRIBUTES_BYTES_MAX)?)));
    Ok(Attributes(pairs.collect::<Result<_, _>>()?))
}

/// Parts, and before them each list of drives once: those of an upload are often the same.
fn put_parts(out: &mut Vec<u8>, parts: &[PartContent]) {
    let mut spreads: Vec<&Spread> = Vec::new();
    for part in parts {
        if !spreads.contains(&&part.spread) {
            spreads.push(&part.spread);
        }
    }
    out.put_u32(u32::try_from(spreads.len()).expect("not more than parts"));
    for spread in &spreads {
        out.put_u8(spread.parity);
        out.put_u8(u8::try_from(spread.drives.len()).expect("at most SHARDS_MAX"));
        spread.drives.iter().for_each(|drive| out.extend_from_slice(drive.as_bytes()));
    }
    out.put_u32(u32::try_from(parts.len()).expect("at most PART_NUMBER_MAX"));
    for part in parts {
        out.extend_from_slice(&part.id.0);
        out.put_u64(part.bytes);
        let number = spreads.iter().position(|spread| **spread == part.spread).expect("it was just listed");
        out.put_u16(u16::try_from(number).expect("not more than parts"));
        out.put_u16(if part.names == ShardNames::OfShard { part.number | NAMES_OF_SHARDS } else { part.number });
        out.put_short(&part.missing);
    }
}

fn take_parts(from: &mut Cursor, is_encrypted: bool) -> Result<Vec<PartContent>, Malformed> {
    let parts_max = usize::try_from(PART_NUMBER_MAX).expect("ten thousand");
    let spreads = (0..from.count(parts_max)?).map(|_| take_spread(from)).collect::<Result<Vec<_>, _>>()?;
    let parts = (0..from.count(parts_max)?).map(|_| {
        let (id, bytes) = (PartId(from.array()?), from.u64()?);
        let spread = spreads.get(usize::from(from.u16()?)).ok_or(Malformed)?.clone();
        let form = from.u16()?;
        let number = form & !NAMES_OF_SHARDS;
        let names = if form == number { ShardNames::OfBlock } else { ShardNames::OfShard };
        let missing = from.short(SHARDS_MAX)?.to_vec();
        if bytes > crate::api::PART_BYTES_MAX {
            return Err(Malformed);
        }
        Ok(PartContent { id, bytes, is_encrypted, spread, number, names, missing })
    });
    parts.collect()
}

fn take_spread(from: &mut Cursor) -> Result<Spread, Malformed> {
    let (parity, count) = (from.u8()?, usize::from(from.u8()?));
    if count > SHARDS_MAX || usize::from(parity) >= count {
        return Err(Malformed);
    }
    let drives = (0..count).map(|_| Ok(DriveId::from_bytes(from.array()?))).collect::<Result<_, _>>()?;
    Ok(Spread { parity, drives })
}

/// What a shard says about itself, so that a lost index can be made from drives: version, bucket, part, block, shard, data
/// and parity shards, bytes of the block, and the beginning of the key.
#[derive(Debug, Clone, Copy)]
pub struct ShardHeader<'a> {
    /// The object's bucket.
    pub bucket: [u8; 16],
    /// The object's key.
    pub key: &'a str,
    /// The upload and the number of the part in it, if the part is one of an upload.
    pub upload: Option<([u8; 16], u16)>,
    /// The part.
    pub part: PartId,
    /// Data and parity shards.
    pub geometry: (u8, u8),
}

/// Bytes of a key that a header keeps.
const HEADER_KEY_BYTES_MAX: usize = 384;

impl<'a> ShardHeader<'a> {
    /// The header of the shards of a part.
    #[must_use]
    pub fn new(bucket: BucketId, key: &'a str, upload: Option<([u8; 16], u16)>, part: &PartContent) -> Self {
        let data = u8::try_from(part.data_shards()).expect("at most SHARDS_MAX");
        Self { bucket: bucket.0, key, upload, part: part.id, geometry: (data, part.spread.parity) }
    }

    /// The header of one shard.
    #[must_use]
    pub fn encode(&self, block: u32, block_bytes: u32, shard: u8) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.bucket);
        out.extend_from_slice(&self.part.0);
        out.put_u32(block);
        out.put_u32(block_bytes);
        out.extend_from_slice(&[shard, self.geometry.0, self.geometry.1]);
        let (upload, number) = self.upload.unwrap_or_default();
        out.extend_from_slice(&upload);
        out.put_u16(number);
        let key = self.key.as_bytes();
        out.put_u16(u16::try_from(key.len()).expect("at most KEY_BYTES_MAX"));
        out.extend_from_slice(&key[..key.len().min(HEADER_KEY_BYTES_MAX)]);
        out
    }
}

#[cfg(test)]
mod tests;
