//! Requests to the object service and its answers: the seam between a protocol's front and the objects.
//!
//! A front (S3 over HTTP) checks who asks and takes the protocol apart; behind these three traits are names, bytes and
//! conditions only. Contents are streams of shared buffers in both directions: nothing holds a whole object in memory.
//!
//! Durable on return: what a change answers with `Ok` is on every drive of its parity set that could be reached, and on
//! at least as many as give it back; it outlives every crash, and the loss of drives as far as others have kept shards.

use core::fmt;
use core::future::Future;
use core::pin::Pin;

use bytes::Bytes;

use crate::cipher::DataKey;
use crate::lock::{Bypass, Lock, LockChange};

/// A future that a trait object returns: one allocation a request.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Longest key of an object, in bytes of UTF-8.
pub const KEY_BYTES_MAX: usize = 1_024;
/// Bytes of a bucket's attributes in all, names and values: the record fits into the catalog.
pub const BUCKET_ATTRIBUTES_BYTES_MAX: usize = 60 << 10;
/// Bytes of an object's attributes in all, names and values.
pub const ATTRIBUTES_BYTES_MAX: usize = 8 << 10;
/// Longest object, in one part or many.
pub const OBJECT_BYTES_MAX: u64 = 5 << 40;
/// Longest part of an upload, and longest object that is put in one request.
pub const PART_BYTES_MAX: u64 = 5 << 30;
/// Shortest part of an upload but the last one.
pub const PART_BYTES_MIN: u64 = 5 << 20;
/// Greatest number of a part; the smallest is 1.
pub const PART_NUMBER_MAX: u32 = 10_000;
/// Entries of one page of a list.
pub const PAGE_MAX: usize = 1_000;

/// A bucket, as its owner sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// Its name.
    pub name: String,
    /// When it was made, in milliseconds since 1970 (UTC).
    pub created_ms: u64,
    /// What it says about itself: whose it is, who may do what with it, its tags.
    pub attributes: Attributes,
}

/// What an object says about itself beside its bytes: pairs of names and values that are kept as they are.
///
/// The front chooses the names. S3's keeps `content-type` and its kind, `x-amz-meta-*`, tags and checksums here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributes(pub Vec<(String, String)>);

impl Attributes {
    /// The value of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The same with this value of a name, or without the name.
    #[must_use]
    pub fn with(&self, name: &str, value: Option<String>) -> Self {
        let mut pairs: Vec<_> = self.0.iter().filter(|(known, _)| known != name).cloned().collect();
        pairs.extend(value.map(|value| (name.to_owned(), value)));
        Self(pairs)
    }

    /// Bytes of all names and values.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.0.iter().map(|(name, value)| name.len() + value.len()).sum()
    }
}

/// The data key of an object, wrapped: what has to be known beside a secret to have the key again. The front makes and opens it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyEnvelope(pub Bytes);

/// Bytes of a key envelope.
pub const ENVELOPE_BYTES_MAX: usize = 1_024;

/// How an object is encrypted on drives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encryption {
    /// Its key, which is not kept.
    pub data_key: DataKey,
    /// What is kept with the object instead.
    pub envelope: KeyEnvelope,
}

/// Whether a bucket keeps the versions of its objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Versioning {
    /// It never has: each key has the null version, and a put replaces it.
    #[default]
    Never,
    /// Each put and each deletion adds a version.
    Enabled,
    /// A put or a deletion replaces the null version; other versions stay.
    Suspended,
    /// As [`Self::Enabled`], and for good: versions can be locked.
    Locked,
}

/// Names a version of an object.
///
/// The text of a named one is 32 hexadecimal digits, opaque to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum VersionId {
    /// The version that is put while a bucket does not keep versions. A key has one at most.
    #[default]
    Null,
    /// A version that is kept. Never used again.
    Named {
        /// Its place among the versions of its key: the greatest is the newest.
        sequence: u64,
        /// Drawn by chance.
        drawn: u64,
    },
}

impl fmt::Display for VersionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Named { sequence, drawn } => write!(f, "{sequence:016x}{drawn:016x}"),
        }
    }
}

/// The text is no name of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoVersionId;

impl core::str::FromStr for VersionId {
    type Err = NoVersionId;

    fn from_str(text: &str) -> Result<Self, NoVersionId> {
        if text == "null" {
            return Ok(Self::Null);
        }
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != 32 || !text.bytes().all(is_digit) {
            return Err(NoVersionId);
        }
        let number = |digits: &str| u64::from_str_radix(digits, 16).map_err(|_| NoVersionId);
        Ok(Self::Named { sequence: number(&text[..16])?, drawn: number(&text[16..])? })
    }
}

/// The object that a request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target<'a> {
    /// Its bucket.
    pub bucket: &'a str,
    /// Its key.
    pub key: &'a str,
    /// The version; nothing is the current one.
    pub version: Option<VersionId>,
}

impl<'a> Target<'a> {
    /// The current version.
    #[must_use]
    pub const fn current(bucket: &'a str, key: &'a str) -> Self {
        Self { bucket, key, version: None }
    }
}

/// A version that says that its key was deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteMarker {
    /// Its key.
    pub key: String,
    /// Its name.
    pub version: VersionId,
    /// When it was put, in milliseconds since 1970 (UTC).
    pub modified_ms: u64,
    /// What it says about itself: who has put it.
    pub attributes: Attributes,
}

/// An object, without its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Its key.
    pub key: String,
    /// Its version; nothing in a bucket that has never kept versions.
    pub version: Option<VersionId>,
    /// Its length in bytes, before encryption.
    pub bytes: u64,
    /// Its entity tag, without quotes.
    pub etag: String,
    /// When it was put, in milliseconds since 1970 (UTC).
    pub modified_ms: u64,
    /// What it says about itself.
    pub attributes: Attributes,
    /// What keeps it from deletion.
    pub lock: Lock,
    /// Lengths of the parts of which it was completed; none if it was put in one request.
    pub parts: Vec<u64>,
    /// Its key, wrapped, if it is encrypted.
    pub envelope: Option<KeyEnvelope>,
}

/// A condition on the object that has the key now. All that are given must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Condition {
    /// The object exists and has one of these entity tags; `*` is any. `If-Match`.
    pub etag_is: Option<Vec<String>>,
    /// No object exists that has one of these entity tags; `*` is any. `If-None-Match`.
    pub etag_is_not: Option<Vec<String>>,
    /// The object was put at this time, in milliseconds since 1970 (UTC).
    pub put_at_ms: Option<u64>,
}

/// Bytes of an object to be read, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Range {
    /// From the first to the last one, or to the end of the object if that comes before.
    Between(u64, u64),
    /// From this one to the end.
    From(u64),
    /// So many at the end.
    Last(u64),
}

/// The attribute with the storage class of an object or an upload, if it is not the usual one. Fronts choose the names of attributes; this
/// one the service reads, too.
pub const STORAGE_CLASS: &str = "x-amz-storage-class";
/// The storage class with fewer parity shards.
pub const REDUCED_REDUNDANCY: &str = "REDUCED_REDUNDANCY";

/// How many drives an object may lose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redundancy {
    /// As many as the number of drives allows.
    Usual,
    /// Half as many, rounded up.
    Reduced,
}

impl Redundancy {
    /// What attributes ask for.
    #[must_use]
    pub fn of(attributes: &Attributes) -> Self {
        if attributes.get(STORAGE_CLASS) == Some(REDUCED_REDUNDANCY) { Self::Reduced } else { Self::Usual }
    }

    /// Parity shards of a stripe that would have `usual` ones.
    #[must_use]
    pub const fn parity(self, usual: u8) -> u8 {
        match self {
            Self::Usual => usual,
            Self::Reduced => usual.div_ceil(2),
        }
    }
}

impl Range {
    /// First byte and number of bytes in an object of so many bytes; nothing if it has none of them.
    #[must_use]
    pub const fn within(self, bytes: u64) -> Option<(u64, u64)> {
        let (first, end) = match self {
            Self::Between(first, last) if first <= last => (first, if last < bytes { last + 1 } else { bytes }),
            Self::Between(..) | Self::Last(0) => return None,
            Self::From(first) => (first, bytes),
            Self::Last(count) => (bytes.saturating_sub(count), bytes),
        };
        if first < end { Some((first, end - first)) } else { None }
    }
}

/// What a body was found to be when it had come whole.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BodyDigest {
    /// The entity tag of its bytes.
    pub etag: String,
    /// Attributes that follow from the bytes, such as checksums; they join the object's.
    pub attributes: Attributes,
}

/// A body that comes in. Whoever makes it verifies what its sender promised about it.
pub trait Body: Send {
    /// It becomes a part of an upload that has these attributes. Called before the first byte is asked for.
    ///
    /// # Errors
    /// It may not, whatever its bytes are.
    fn join_upload(&mut self, upload: &Attributes) -> Result<(), Error> {
        let _ = upload;
        Ok(())
    }

    /// The next bytes, none of them empty; nothing at the end. An error means that nothing may be stored.
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, Error>>;

    /// What it was. Called once, after the end.
    fn digest(&mut self) -> BodyDigest;
}

/// Bytes of an object that go out.
pub trait Content: Send {
    /// The next bytes, none of them empty; nothing at the end. An error means that the rest cannot be had.
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, Error>>;
}

/// Bytes of an object that go out, once the object's key is known if it is encrypted.
pub trait ObjectContent: Content {
    /// Gives the key, before the first bytes are asked for. Without the right one there are none: [`Error::Damaged`].
    fn decrypt_with(&mut self, key: DataKey);
}

/// An object and the bytes of it that were asked for.
pub struct Opened {
    /// The object.
    pub object: Object,
    /// First byte and number of bytes of what follows.
    pub range: (u64, u64),
    /// The bytes. Of an object with an envelope they need its key.
    pub content: Box<dyn ObjectContent>,
}

/// Which objects to list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListRequest {
    /// Only keys that begin so.
    pub prefix: String,
    /// Keys that have this behind the prefix are told once, as a common prefix up to and with it. Empty: none are.
    pub delimiter: String,
    /// Only keys and common prefixes behind this one, in the order of their bytes.
    pub after: String,
    /// Entries of the page, up to [`PAGE_MAX`].
    pub limit: usize,
}

/// One line of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listed {
    /// An object.
    Object(Object),
    /// The common prefix of several.
    Prefix(String),
}

/// A page of a list, ascending.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// The lines.
    pub entries: Vec<Listed>,
    /// Where the next page begins (`after`), if there is more.
    pub next: Option<String>,
}

/// Which versions to list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VersionsRequest {
    /// Only keys that begin so.
    pub prefix: String,
    /// As in [`ListRequest`].
    pub delimiter: String,
    /// Only what comes behind this key or common prefix, and behind the version of it if one is named.
    pub after: String,
    /// Versions of the key `after` that are older than this one come first.
    pub after_version: Option<VersionId>,
    /// Entries of the page, up to [`PAGE_MAX`].
    pub limit: usize,
}

/// One line of a list of versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListedVersion {
    /// An object, and whether it is the current version of its key.
    Object(Object, bool),
    /// A mark of a deletion, and whether it is the current version of its key.
    Marker(DeleteMarker, bool),
    /// The common prefix of several keys.
    Prefix(String),
}

/// A page of a list of versions: ascending by key, the newest version of a key first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VersionsPage {
    /// The lines.
    pub entries: Vec<ListedVersion>,
    /// Where the next page begins (`after`, `after_version`), if there is more.
    pub next: Option<(String, Option<VersionId>)>,
}

/// What a deletion has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Deletion {
    /// The version that was added or removed; nothing in a bucket that has never kept versions.
    pub version: Option<VersionId>,
    /// Whether that version is a mark of a deletion.
    pub is_marker: bool,
}

/// Names an upload. Never used again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UploadId(pub String);

/// An upload that was begun and neither completed nor given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    /// Its name.
    pub id: UploadId,
    /// The key that the object will have.
    pub key: String,
    /// When it was begun, in milliseconds since 1970 (UTC).
    pub begun_ms: u64,
    /// What the object will say about itself.
    pub attributes: Attributes,
    /// The object's key, wrapped, if it is encrypted.
    pub envelope: Option<KeyEnvelope>,
}

/// One part of an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its number, from 1.
    pub number: u32,
    /// Its length in bytes.
    pub bytes: u64,
    /// The entity tag of its bytes.
    pub etag: String,
    /// When it was put, in milliseconds since 1970 (UTC).
    pub modified_ms: u64,
    /// What follows from its bytes, such as checksums.
    pub attributes: Attributes,
    /// The key of its object, wrapped, if it is encrypted. Told when it is put only.
    pub envelope: Option<KeyEnvelope>,
}

/// An upload and those of its parts that were asked for.
pub type UploadParts = (Upload, Vec<Part>);

/// What an object becomes when its upload is completed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Completion {
    /// Numbers and entity tags of the parts, ascending by number.
    pub parts: Vec<(u32, String)>,
    /// The object's entity tag and the attributes that follow from its parts.
    pub digest: BodyDigest,
    /// Completed only if this holds.
    pub condition: Condition,
}

/// By whose fault a request fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The caller's: the same request fails again.
    Caller,
    /// Another server's, or the way to it: safe to retry.
    Peer,
    /// A drive's: no room, or no copy that is whole.
    Drive,
}

/// Why a request fails. Nothing was changed, unless it is said otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// No bucket has this name.
    NoSuchBucket,
    /// A bucket of this name exists.
    BucketExists,
    /// The bucket has objects, or older versions of some.
    BucketNotEmpty,
    /// No bucket may be called so.
    BadBucketName,
    /// No object has this key.
    NoSuchKey,
    /// The key has no version of this name.
    NoSuchVersion,
    /// The current version of the key is a mark of its deletion.
    Deleted(Box<DeleteMarker>),
    /// The version that is named is a mark of a deletion: it has no content.
    IsMarker(Box<DeleteMarker>),
    /// No upload has this name, or it was completed or given up.
    NoSuchUpload,
    /// A part of the completion was not put, or has another entity tag.
    BadPart(u32),
    /// A part but the last one is shorter than [`PART_BYTES_MIN`].
    PartTooSmall(u32),
    /// The completion names no part, or parts out of order.
    BadPartOrder,
    /// A key longer than [`KEY_BYTES_MAX`] or empty, attributes beyond [`ATTRIBUTES_BYTES_MAX`], a part's number out of range.
    BadRequest(&'static str),
    /// The object or part would be longer than it may.
    TooLarge,
    /// The condition does not hold.
    ConditionFailed,
    /// The condition of a read says that the reader has this already; its object.
    NotModified(Box<Object>),
    /// The object has none of these bytes; its length.
    BadRange(u64),
    /// The sender may not do it with the object that is there now.
    Denied,
    /// A retention or a legal hold keeps the version, or the retention may only be made longer.
    Locked,
    /// The bucket is not one whose versions can be locked.
    NotLockable,
    /// The object's key is needed, and was not given.
    KeyMissing,
    /// The key that was given is not the object's.
    WrongKey,
    /// A key was given, and the object is not encrypted with one.
    KeyNotNeeded,
    /// Whether the bucket keeps versions does not allow the change: locks need versions, for good.
    BadState,
    /// The body is not what its sender promised. The front that made it keeps the reason.
    BadBody,
    /// The sender of the body is gone, or was too slow.
    BodyLost,
    /// Not now: servers or copies are missing, or one is overloaded. Safe to retry. A change may have taken effect.
    Unavailable,
    /// The drives have no room. Deleting still works.
    Full,
    /// The bucket would have more bytes than its quota. Deleting still works, and so does what adds none.
    OverQuota,
    /// Too few shards of the object are whole.
    Damaged,
}

impl Error {
    /// By whose fault it is.
    #[must_use]
    pub const fn fault(&self) -> Fault {
        match self {
            Self::Unavailable => Fault::Peer,
            Self::Full | Self::Damaged => Fault::Drive,
            _ => Fault::Caller,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchBucket => f.write_str("no bucket has this name"),
            Self::BucketExists => f.write_str("a bucket of this name exists"),
            Self::BucketNotEmpty => f.write_str("the bucket has objects, or older versions of some"),
            Self::BadBucketName => {
                f.write_str("a bucket's name has 3 to 63 lower-case letters, digits, dots and hyphens")
            }
            Self::NoSuchKey => f.write_str("no object has this key"),
            Self::NoSuchVersion => f.write_str("the key has no version of this name"),
            Self::Deleted(_) => f.write_str("the object was deleted"),
            Self::IsMarker(_) => f.write_str("the version is a mark of a deletion"),
            Self::NoSuchUpload => f.write_str("no upload has this name; it may have been completed or given up"),
            Self::BadPart(number) => write!(f, "part {number} was not put, or has another entity tag"),
            Self::PartTooSmall(number) => write!(f, "part {number} is shorter than {PART_BYTES_MIN} bytes"),
            Self::BadPartOrder => f.write_str("the parts are not ascending by their numbers"),
            Self::BadRequest(what) => f.write_str(what),
            Self::TooLarge => f.write_str("the object would be longer than it may"),
            Self::ConditionFailed => f.write_str("the condition does not hold"),
            Self::NotModified(_) => f.write_str("the object was not modified"),
            Self::BadRange(bytes) => write!(f, "the object has {bytes} bytes, none of them in the range"),
            Self::Denied => f.write_str("the sender may not do it with the object that is there now"),
            Self::Locked => f.write_str("a retention or a legal hold keeps the version"),
            Self::NotLockable => f.write_str("versions of the bucket cannot be locked"),
            Self::KeyMissing => f.write_str("the object is encrypted with a key that was not given"),
            Self::WrongKey => f.write_str("the object is encrypted with another key"),
            Self::KeyNotNeeded => f.write_str("the object is not encrypted with a key of its owner"),
            Self::BadState => f.write_str("locks need a bucket that keeps versions, and it keeps them for good"),
            Self::BadBody => f.write_str("the body is not what its sender promised"),
            Self::BodyLost => f.write_str("the body did not come whole"),
            Self::Unavailable => f.write_str("servers or copies are missing for now; try again"),
            Self::Full => f.write_str("the drives have no room"),
            Self::OverQuota => f.write_str("the bucket would have more bytes than its quota"),
            Self::Damaged => f.write_str("too few shards of the object are whole"),
        }
    }
}

impl core::error::Error for Error {}

/// Makes the new attributes of a bucket from it, or says why they stay.
pub type BucketEdit<'a> = &'a (dyn Fn(&Bucket) -> Result<Attributes, Error> + Send + Sync);

/// Buckets by name. Every server answers for all of them.
pub trait Buckets: Send + Sync + 'static {
    /// Makes a bucket that keeps versions in this way.
    fn create<'a>(
        &'a self,
        name: &'a str,
        attributes: Attributes,
        versioning: Versioning,
    ) -> BoxFuture<'a, Result<(), Error>>;

    /// Changes the attributes of a bucket. Every server goes by them within seconds, this one at once.
    fn edit<'a>(&'a self, name: &'a str, edit: BucketEdit<'a>) -> BoxFuture<'a, Result<Bucket, Error>>;

    /// Deletes one without objects; uploads that are not completed are given up. Refused, it changes nothing.
    fn delete<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Error>>;

    /// One bucket.
    fn get<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Bucket, Error>>;

    /// All of them, ascending by name.
    fn list(&self) -> BoxFuture<'_, Result<Vec<Bucket>, Error>>;
}

/// An object to be put, without its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PutRequest {
    /// Its bucket.
    pub bucket: String,
    /// Its key.
    pub key: String,
    /// What it says about itself.
    pub attributes: Attributes,
    /// What keeps it from deletion: [`Error::NotLockable`] but in a bucket that is [`Versioning::Locked`].
    pub lock: Lock,
    /// Put only if this holds when it is committed.
    pub condition: Condition,
    /// Length of the body, where its sender has said so.
    pub bytes: Option<u64>,
    /// How it is encrypted on drives; nothing if it is not.
    pub encryption: Option<Encryption>,
}

/// Whether the sender of a change may make it to an object, asked of the object that the change finds: it may be another one than that
/// which was looked at when the request came. Nothing is changed where it says no ([`Error::Denied`]).
#[derive(Clone, Copy, Default)]
pub struct Permit<'a>(Option<&'a (dyn Fn(&Object) -> bool + Send + Sync)>);

impl<'a> Permit<'a> {
    /// For a sender who may make the change to any object.
    pub const ALWAYS: Self = Self(None);

    /// A permit that this decides.
    #[must_use]
    pub const fn by(decide: &'a (dyn Fn(&Object) -> bool + Send + Sync)) -> Self {
        Self(Some(decide))
    }

    /// Whether it lets every change pass.
    #[must_use]
    pub const fn is_always(self) -> bool {
        self.0.is_none()
    }

    /// Lets the change of this object pass, or not.
    ///
    /// # Errors
    /// [`Error::Denied`].
    pub fn check(self, object: impl FnOnce() -> Object) -> Result<(), Error> {
        let is_allowed = self.0.is_none_or(|decide| decide(&object()));
        if is_allowed { Ok(()) } else { Err(Error::Denied) }
    }
}

impl fmt::Debug for Permit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Permit::by" } else { "Permit::ALWAYS" })
    }
}

/// An object to be deleted.
#[derive(Debug, Clone)]
pub struct DeleteRequest<'a> {
    /// Which one.
    pub target: Target<'a>,
    /// Deleted only if this holds.
    pub condition: &'a Condition,
    /// What a mark of the deletion says about itself.
    pub attributes: &'a Attributes,
    /// Whether a retention in governance mode is passed over.
    pub bypass: Bypass,
    /// Whether the sender may delete the object that is found.
    pub permit: Permit<'a>,
}

/// Objects of buckets. Put, get, delete and list are linearizable for each key.
pub trait Objects: Send + Sync + 'static {
    /// Puts an object in the place of the one that has the key: readers see the old or the new one, never a mixture.
    fn put<'a>(&'a self, request: PutRequest, body: &'a mut dyn Body) -> BoxFuture<'a, Result<Object, Error>>;

    /// Opens an object. `condition` is that of a read: `etag_is_not` that does not hold is [`Error::NotModified`].
    fn get<'a>(
        &'a self,
        target: Target<'a>,
        range: Option<Range>,
        condition: &'a Condition,
    ) -> BoxFuture<'a, Result<Opened, Error>>;

    /// An object without its bytes.
    fn head<'a>(&'a self, target: Target<'a>) -> BoxFuture<'a, Result<Object, Error>>;

    /// Deletes an object; done also where none has the key, unless the condition asks for one.
    ///
    /// Without a version, a bucket that keeps versions gets a mark of the deletion. With one, that version is removed, and
    /// the newest one that is left becomes the current one. A version that is locked is not removed ([`Error::Locked`]).
    fn delete<'a>(&'a self, request: DeleteRequest<'a>) -> BoxFuture<'a, Result<Deletion, Error>>;

    /// A page of the objects of a bucket.
    fn list<'a>(&'a self, bucket: &'a str, request: &'a ListRequest) -> BoxFuture<'a, Result<Page, Error>>;
}

/// Makes the new attributes of an object from it, or says why they stay.
pub type Edit<'a> = &'a (dyn Fn(&Object) -> Result<Attributes, Error> + Send + Sync);

/// Versions of objects, and what can be changed of a version.
pub trait Versions: Send + Sync + 'static {
    /// Whether a bucket keeps versions.
    fn state<'a>(&'a self, bucket: &'a str) -> BoxFuture<'a, Result<Versioning, Error>>;

    /// Lets a bucket keep versions, or stop. Every put that begins after this has returned goes by it.
    ///
    /// [`Versioning::Never`] is refused: versions that are there stay. [`Versioning::Locked`] comes after
    /// [`Versioning::Enabled`] only, and stays ([`Error::BadState`]).
    fn set_state<'a>(&'a self, bucket: &'a str, state: Versioning) -> BoxFuture<'a, Result<(), Error>>;

    /// A page of the versions of a bucket.
    fn list<'a>(&'a self, bucket: &'a str, request: &'a VersionsRequest) -> BoxFuture<'a, Result<VersionsPage, Error>>;

    /// Changes the attributes of a version. Its time and its bytes stay.
    fn edit<'a>(&'a self, target: Target<'a>, edit: Edit<'a>) -> BoxFuture<'a, Result<Object, Error>>;

    /// Changes what keeps a version from deletion, as far as what keeps it now allows it.
    fn relock<'a>(
        &'a self,
        target: Target<'a>,
        change: LockChange,
        bypass: Bypass,
        permit: Permit<'a>,
    ) -> BoxFuture<'a, Result<Object, Error>>;
}

/// Tells the key of an upload by its envelope; nothing for one without. It says why a part is refused.
pub type UnwrapKey<'a> = &'a (dyn Fn(Option<&KeyEnvelope>) -> Result<Option<DataKey>, Error> + Send + Sync);

/// Objects that are put in parts.
pub trait Uploads: Send + Sync + 'static {
    /// Begins an upload. `attributes`, `lock` and `envelope` are those that the object will have.
    fn begin<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
        attributes: Attributes,
        lock: Lock,
        envelope: Option<KeyEnvelope>,
    ) -> BoxFuture<'a, Result<UploadId, Error>>;

    /// Puts a part in the place of the one that has the number, encrypted if the upload has an envelope.
    fn put_part<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
        upload: &'a UploadId,
        number: u32,
        unwrap: UnwrapKey<'a>,
        body: &'a mut dyn Body,
    ) -> BoxFuture<'a, Result<Part, Error>>;

    /// Makes the object of these parts and ends the upload, in one step. Repeated, it answers the same.
    fn complete<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
        upload: &'a UploadId,
        completion: Completion,
    ) -> BoxFuture<'a, Result<Object, Error>>;

    /// Gives an upload up; its parts go.
    fn abort<'a>(&'a self, bucket: &'a str, key: &'a str, upload: &'a UploadId) -> BoxFuture<'a, Result<(), Error>>;

    /// Uploads of a bucket: all, or one with its parts.
    fn list<'a>(
        &'a self,
        bucket: &'a str,
        of: Option<(&'a str, &'a UploadId)>,
    ) -> BoxFuture<'a, Result<Vec<UploadParts>, Error>>;
}

/// What a front is given.
#[derive(Clone)]
pub struct Service {
    /// Buckets.
    pub buckets: std::sync::Arc<dyn Buckets>,
    /// Objects.
    pub objects: std::sync::Arc<dyn Objects>,
    /// Uploads.
    pub uploads: std::sync::Arc<dyn Uploads>,
    /// Versions.
    pub versions: std::sync::Arc<dyn Versions>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_versions_are_read_back_or_refused() {
        let named = VersionId::Named { sequence: 0x0102, drawn: u64::MAX };
        assert_eq!(named.to_string(), "0000000000000102ffffffffffffffff");
        for version in [VersionId::Null, named] {
            assert_eq!(version.to_string().parse(), Ok(version));
        }
        for text in ["", "Null", "0102", "0000000000000102FFFFFFFFFFFFFFFF", "+000000000000102ffffffffffffffff"] {
            assert_eq!(text.parse::<VersionId>(), Err(NoVersionId), "{text}");
        }
        assert_eq!("ä".repeat(16).parse::<VersionId>(), Err(NoVersionId));
    }

    #[test]
    fn ranges_within_an_object() {
        assert_eq!(Range::Between(0, 0).within(10), Some((0, 1)));
        assert_eq!(Range::Between(3, 99).within(10), Some((3, 7)));
        assert_eq!(Range::Between(3, u64::MAX).within(10), Some((3, 7)));
        assert_eq!(Range::Between(10, 12).within(10), None);
        assert_eq!((Range::Between(5, 4).within(10), Range::Between(9, 4).within(10)), (None, None));
        assert_eq!(Range::From(9).within(10), Some((9, 1)));
        assert_eq!(Range::From(10).within(10), None);
        assert_eq!(Range::Last(3).within(10), Some((7, 3)));
        assert_eq!(Range::Last(30).within(10), Some((0, 10)));
        assert_eq!(Range::Last(0).within(10), None);
        assert_eq!(Range::Last(1).within(0), None);
    }

    #[test]
    fn attributes_are_found_by_their_whole_name_and_counted() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let two = Attributes(vec![pair("a", "1234"), pair("bcd", "56")]);
        assert_eq!((two.get("bcd"), two.get("b"), two.len_bytes()), (Some("56"), None, 10));
        assert_eq!(two.with("a", Some("7".into())).0, [pair("bcd", "56"), pair("a", "7")]);
        assert_eq!(two.with("a", None).0, [pair("bcd", "56")]);
    }

    #[test]
    fn errors_tell_what_is_wrong_and_by_whose_fault() {
        let missing = "servers or copies are missing for now; try again";
        for (error, fault, text) in [
            (Error::Unavailable, Fault::Peer, missing),
            (Error::Full, Fault::Drive, "the drives have no room"),
            (Error::Damaged, Fault::Drive, "too few shards of the object are whole"),
            (Error::Locked, Fault::Caller, "a retention or a legal hold keeps the version"),
            (Error::BadPart(7), Fault::Caller, "part 7 was not put, or has another entity tag"),
        ] {
            assert_eq!((error.fault(), error.to_string().as_str()), (fault, text));
        }
    }

    #[test]
    fn permits_tell_whether_they_ask() {
        let never = |_: &Object| false;
        let permits = [Permit::ALWAYS, Permit::by(&never)];
        assert_eq!(permits.map(Permit::is_always), [true, false]);
        assert_eq!(format!("{permits:?}"), "[Permit::ALWAYS, Permit::by]");
    }
}
