//! What the owner of a range is asked and answers, and the written form of both (version 1).
//!
//! Every value has a version: it changes with each commit and never repeats. So whatever a caller decided from a value it
//! commits by naming the version that it saw; a condition on an object's content is checked by the caller.
//!
//! Repeating a commit whose reply was lost is safe where its checks name versions: the second one finds other versions.

use bytes::Bytes;

use super::key::{BucketId, INDEX_KEY_BYTES_MAX};
use super::usage::Usage;
use crate::cursor::{Cursor, Malformed, Put};

/// Version of the written form.
const VERSION: u8 = 1;
/// Longest value: the record of an object of 10,000 parts fits.
pub const VALUE_BYTES_MAX: usize = 448 << 10;
/// Changes of one commit: the parts of an upload, and a few.
pub const CHANGES_MAX: usize = 10_016;
/// Checks of one commit.
pub const CHECKS_MAX: usize = 16;
/// Bytes of the changes of one commit.
pub const COMMIT_BYTES_MAX: usize = 960 << 10;
/// Lines of one page of a scan.
pub const LINES_MAX: usize = 10_001;
/// Spans of one request.
pub const SPANS_MAX: usize = 8;
/// Bytes of one page of a scan; a page has one line at least.
pub const PAGE_BYTES_MAX: usize = 1 << 20;

/// What a key has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Changes with each commit of the key, and never repeats in a range.
    pub version: u64,
    /// What was committed.
    pub value: Bytes,
}

/// What must hold for a commit, in the state that it changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// The key has nothing.
    Absent(Vec<u8>),
    /// The key has this version.
    Version(Vec<u8>, u64),
    /// No key from the first one to before the second one has anything.
    Empty(Vec<u8>, Vec<u8>),
    /// The contents of the bucket have at most so many bytes once the changes are done, or the changes add none.
    Room(BucketId, u64),
}

/// A new value of a key, or none any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The key, up to [`INDEX_KEY_BYTES_MAX`] bytes.
    pub key: Vec<u8>,
    /// The value, up to [`VALUE_BYTES_MAX`] bytes; nothing removes the key.
    pub value: Option<Bytes>,
}

/// A scan of neighbouring keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scan {
    /// The first key.
    pub from: Vec<u8>,
    /// The key before which it ends.
    pub to: Vec<u8>,
    /// Keys that have these bytes behind their first `fold_after` bytes are told once, up to and with these bytes.
    /// Empty: none are.
    pub fold: Vec<u8>,
    /// Bytes of a key that are not looked at for `fold`.
    pub fold_after: u32,
    /// Lines of the page, up to [`LINES_MAX`].
    pub lines_max: u32,
}

/// Neighbouring keys, from one to before another.
pub type Span = (Vec<u8>, Vec<u8>);

/// One line of a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A key and what it has.
    Entry(Vec<u8>, Entry),
    /// The common beginning of folded keys.
    Folded(Vec<u8>),
}

/// What the owner is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// What has this key?
    Get(Vec<u8>),
    /// Which keys are there?
    Scan(Scan),
    /// Which keys are there in these spans? One page of all of them, in one state of the range: what a commit moves from one span to
    /// another is in exactly one of them.
    Spans(Vec<Span>),
    /// How much has this bucket?
    Usage(BucketId),
    /// Do all of these changes if all of these checks hold.
    Commit {
        /// What must hold.
        checks: Vec<Check>,
        /// What changes; no key twice.
        changes: Vec<Change>,
    },
}

/// What the owner answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// What the key has.
    Value(Option<Entry>),
    /// A page, and the key with which the next one begins if there is more. The page of several spans ends where it does, and
    /// lacks the spans behind that one.
    Page {
        /// The lines.
        lines: Vec<Line>,
        /// Where it goes on.
        next: Option<Vec<u8>>,
    },
    /// What the bucket has.
    Usage(Usage),
    /// Durable at every acting copy.
    Committed {
        /// The version of every value that it set.
        version: u64,
        /// What each changed key had before, in the order of the changes.
        before: Vec<Option<Entry>>,
    },
    /// This check does not hold, by its number; nothing has changed.
    Refused(u32),
    /// The request breaks a limit; nothing has changed.
    TooLarge,
    /// This server does not own the range, or not any more. A commit may have taken effect.
    Unavailable,
    /// The drives have no room for the commit in the log; nothing has changed.
    Full,
}

impl Request {
    /// Whether it changes nothing.
    #[must_use]
    pub const fn is_read(&self) -> bool {
        !matches!(self, Self::Commit { .. })
    }

    /// Whether it keeps the limits of this module.
    #[must_use]
    pub fn is_within_limits(&self) -> bool {
        let is_key = |key: &Vec<u8>| key.len() <= INDEX_KEY_BYTES_MAX;
        match self {
            Self::Get(key) => is_key(key),
            Self::Usage(_) => true,
            Self::Scan(scan) => is_key(&scan.from) && is_key(&scan.to) && is_key(&scan.fold),
            Self::Spans(spans) => spans.len() <= SPANS_MAX && spans.iter().all(|(from, to)| is_key(from) && is_key(to)),
            Self::Commit { checks, changes } => {
                let bytes = |change: &Change| change.key.len() + change.value.as_ref().map_or(0, Bytes::len) + 32;
                let checked = checks.iter().all(|check| match check {
                    Check::Absent(key) | Check::Version(key, _) => is_key(key),
                    Check::Empty(from, to) => is_key(from) && is_key(to),
                    Check::Room(..) => true,
                });
                checked
                    && checks.len() <= CHECKS_MAX
                    && changes.len() <= CHANGES_MAX
                    && changes.iter().all(|change| is_key(&change.key))
                    && changes.iter().all(|change| change.value.as_ref().map_or(0, Bytes::len) <= VALUE_BYTES_MAX)
                    && changes.iter().map(bytes).sum::<usize>() <= COMMIT_BYTES_MAX
            }
        }
    }

    /// Its written form.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        match self {
            Self::Get(key) => {
                out.put_u8(0);
                out.put_short(key);
            }
            Self::Scan(Scan { from, to, fold, fold_after, lines_max }) => {
                out.put_u8(1);
                for bytes in [from, to, fold] {
                    out.put_short(bytes);
                }
                out.put_u32(*fold_after);
                out.put_u32(*lines_max);
            }
            Self::Commit { checks, changes } => {
                out.put_u8(2);
                out.put_u32(u32::try_from(checks.len()).expect("at most CHECKS_MAX"));
                for check in checks {
                    match check {
                        Check::Absent(key) => {
                            out.put_u8(0);
                            out.put_short(key);
                        }
                        Check::Version(key, version) => {
                            out.put_u8(1);
                            out.put_short(key);
                            out.put_u64(*version);
                        }
                        Check::Empty(from, to) => {
                            out.put_u8(2);
                            out.put_short(from);
                            out.put_short(to);
                        }
                        Check::Room(bucket, bytes_max) => {
                            out.put_u8(3);
                            out.extend_from_slice(&bucket.0);
                            out.put_u64(*bytes_max);
                        }
                    }
                }
                out.put_u32(u32::try_from(changes.len()).expect("at most CHANGES_MAX"));
                for Change { key, value } in changes {
                    out.put_short(key);
                    put_optional(&mut out, value.as_deref());
                }
            }
            Self::Usage(bucket) => {
                out.put_u8(3);
                out.extend_from_slice(&bucket.0);
            }
            Self::Spans(spans) => {
                out.put_u8(4);
                out.put_u32(u32::try_from(spans.len()).expect("at most SPANS_MAX"));
                for (from, to) in spans {
                    out.put_short(from);
                    out.put_short(to);
                }
            }
        }
        out
    }

    /// Reads it back.
    ///
    /// # Errors
    /// [`Malformed`]: the sender's fault.
    pub fn decode(bytes: Bytes) -> Result<Self, Malformed> {
        let mut from = Cursor(bytes);
        if from.u8()? != VERSION {
            return Err(Malformed);
        }
        let request = match from.u8()? {
            0 => Self::Get(take_key(&mut from)?),
            1 => Self::Scan(Scan {
                from: take_key(&mut from)?,
                to: take_key(&mut from)?,
                fold: take_key(&mut from)?,
                fold_after: from.u32()?,
                lines_max: from.u32()?,
            }),
            2 => {
                let checks = (0..from.count(CHECKS_MAX)?).map(|_| take_check(&mut from)).collect::<Result<_, _>>()?;
                let changes = (0..from.count(CHANGES_MAX)?)
                    .map(|_| Ok(Change { key: take_key(&mut from)?, value: take_optional(&mut from)? }));
                Self::Commit { checks, changes: changes.collect::<Result<_, _>>()? }
            }
            3 => Self::Usage(take_bucket(&mut from)?),
            4 => {
                let spans = (0..from.count(SPANS_MAX)?).map(|_| Ok((take_key(&mut from)?, take_key(&mut from)?)));
                Self::Spans(spans.collect::<Result<_, _>>()?)
            }
            _ => return Err(Malformed),
        };
        from.end()?;
        Ok(request)
    }
}

impl Reply {
    /// Its written form.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        match self {
            Self::Value(entry) => {
                out.put_u8(0);
                put_entry(&mut out, entry.as_ref());
            }
            Self::Page { lines, next } => {
                out.put_u8(1);
                put_optional(&mut out, next.as_deref());
                out.put_u32(u32::try_from(lines.len()).expect("at most LINES_MAX"));
                for line in lines {
                    let (key, entry) = match line {
                        Line::Entry(key, entry) => (key, Some(entry)),
                        Line::Folded(key) => (key, None),
                    };
                    out.put_short(key);
                    put_entry(&mut out, entry);
                }
            }
            Self::Committed { version, before } => {
                out.put_u8(2);
                out.put_u64(*version);
                out.put_u32(u32::try_from(before.len()).expect("at most CHANGES_MAX"));
                before.iter().for_each(|entry| put_entry(&mut out, entry.as_ref()));
            }
            Self::Refused(check) => {
                out.put_u8(3);
                out.put_u32(*check);
            }
            Self::TooLarge => out.put_u8(4),
            Self::Unavailable => out.put_u8(5),
            Self::Full => out.put_u8(7),
            Self::Usage(Usage { objects, versions, parts, bytes }) => {
                out.put_u8(6);
                [objects, versions, parts, bytes].into_iter().for_each(|number| out.put_u64(*number));
            }
        }
        out
    }

    /// Reads it back.
    ///
    /// # Errors
    /// [`Malformed`]: the sender's fault.
    pub fn decode(bytes: Bytes) -> Result<Self, Malformed> {
        let mut from = Cursor(bytes);
        if from.u8()? != VERSION {
            return Err(Malformed);
        }
        let reply = match from.u8()? {
            0 => Self::Value(take_entry(&mut from)?),
            1 => {
                let next = take_optional(&mut from)?.map(|next| next.to_vec());
                let lines = (0..from.count(LINES_MAX)?).map(|_| {
                    let key = take_key(&mut from)?;
                    Ok(match take_entry(&mut from)? {
                        Some(entry) => Line::Entry(key, entry),
                        None => Line::Folded(key),
                    })
                });
                Self::Page { lines: lines.collect::<Result<_, _>>()?, next }
            }
            2 => Self::Committed {
                version: from.u64()?,
                before: (0..from.count(CHANGES_MAX)?).map(|_| take_entry(&mut from)).collect::<Result<_, _>>()?,
            },
            3 => Self::Refused(from.u32()?),
            4 => Self::TooLarge,
            5 => Self::Unavailable,
            6 => {
                let (objects, versions) = (from.u64()?, from.u64()?);
                Self::Usage(Usage { objects, versions, parts: from.u64()?, bytes: from.u64()? })
            }
            7 => Self::Full,
            _ => return Err(Malformed),
        };
        from.end()?;
        Ok(reply)
    }
}

fn put_optional(out: &mut Vec<u8>, value: Option<&[u8]>) {
    match value {
        None => out.put_u8(0),
        Some(value) => {
            out.put_u8(1);
            out.put_long(value);
        }
    }
}

fn take_optional(from: &mut Cursor) -> Result<Option<Bytes>, Malformed> {
    match from.u8()? {
        0 => Ok(None),
        1 => Ok(Some(from.long(VALUE_BYTES_MAX)?)),
        _ => Err(Malformed),
    }
}

fn put_entry(out: &mut Vec<u8>, entry: Option<&Entry>) {
    match entry {
        None => out.put_u8(0),
        Some(Entry { version, value }) => {
            out.put_u8(1);
            out.put_u64(*version);
            out.put_long(value);
        }
    }
}

fn take_entry(from: &mut Cursor) -> Result<Option<Entry>, Malformed> {
    match from.u8()? {
        0 => Ok(None),
        1 => Ok(Some(Entry { version: from.u64()?, value: from.long(VALUE_BYTES_MAX)? })),
        _ => Err(Malformed),
    }
}

fn take_key(from: &mut Cursor) -> Result<Vec<u8>, Malformed> {
    Ok(from.short(INDEX_KEY_BYTES_MAX)?.to_vec())
}

fn take_bucket(from: &mut Cursor) -> Result<BucketId, Malformed> {
    Ok(BucketId(from.array()?))
}

fn take_check(from: &mut Cursor) -> Result<Check, Malformed> {
    Ok(match from.u8()? {
        0 => Check::Absent(take_key(from)?),
        1 => Check::Version(take_key(from)?, from.u64()?),
        2 => Check::Empty(take_key(from)?, take_key(from)?),
        3 => Check::Room(take_bucket(from)?, from.u64()?),
        _ => return Err(Malformed),
    })
}

#[cfg(test)]
mod tests;
