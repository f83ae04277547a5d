//! Keys of the index: what a bucket's objects, uploads and parts are called in the ordered map.
//!
//! A key is the bucket's id, a kind, and the rest. So a bucket's objects lie side by side in the order of their keys, and
//! its uploads and their parts beside them.

use super::request::Span;
use crate::api::KEY_BYTES_MAX;

/// A bucket, from its creation to its deletion. Never used again: a new bucket of the same name has another id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BucketId(pub [u8; 16]);

/// Longest key: an older version of an object whose key is nothing but U+0000.
pub const INDEX_KEY_BYTES_MAX: usize = 16 + 1 + 2 * KEY_BYTES_MAX + END_OF_NAME.len() + SEQUENCE_BYTES;

const SEAL: u8 = 0;
const OBJECT: u8 = 1;
const UPLOAD: u8 = 2;
const PART: u8 = 3;
const VERSION: u8 = 4;
const NULL: u8 = 5;
const VERSIONING: u8 = 6;

/// What ends the name of an object in the key of one of its versions. Less than whatever can go on in a name.
const END_OF_NAME: [u8; 2] = [0, 0];
/// What stands for U+0000 in such a name.
const ZERO_IN_NAME: [u8; 2] = [0, 0xff];
/// Bytes of a sequence in a key.
const SEQUENCE_BYTES: usize = 11;

fn key(bucket: BucketId, kind: u8, rest: &[&[u8]]) -> Vec<u8> {
    let mut key = Vec::with_capacity(17 + rest.iter().map(|piece| piece.len()).sum::<usize>());
    key.extend_from_slice(&bucket.0);
    key.push(kind);
    rest.iter().for_each(|piece| key.extend_from_slice(piece));
    key
}

/// Mark of a bucket that is being deleted: nothing is put into it any more.
#[must_use]
pub fn seal(bucket: BucketId) -> Vec<u8> {
    key(bucket, SEAL, &[])
}

/// Whether it is a key of [`seal`].
#[must_use]
pub fn is_seal(key: &[u8]) -> bool {
    key.len() == 17 && key[16] == SEAL
}

/// The first key behind everything of a bucket.
#[must_use]
pub fn end(bucket: BucketId) -> Vec<u8> {
    key(bucket, u8::MAX, &[])
}

/// An object. `name` may also be the beginning of keys.
#[must_use]
pub fn object(bucket: BucketId, name: &[u8]) -> Vec<u8> {
    key(bucket, OBJECT, &[name])
}

/// The object's name in a key of [`object`]; nothing for other keys.
#[must_use]
pub fn object_name(key: &[u8]) -> Option<&str> {
    match key.split_at_checked(17) {
        Some((head, name)) if head[16] == OBJECT => core::str::from_utf8(name).ok(),
        _ => None,
    }
}

/// The first key behind all objects of a bucket.
#[must_use]
pub fn objects_end(bucket: BucketId) -> Vec<u8> {
    key(bucket, OBJECT + 1, &[])
}

/// An upload.
#[must_use]
pub fn upload(bucket: BucketId, upload: &[u8; 16]) -> Vec<u8> {
    key(bucket, UPLOAD, &[upload])
}

/// The beginning of all uploads of a bucket.
#[must_use]
pub fn uploads(bucket: BucketId) -> Vec<u8> {
    key(bucket, UPLOAD, &[])
}

/// The upload in a key of [`upload`]; nothing for other keys.
#[must_use]
pub fn upload_id(key: &[u8]) -> Option<[u8; 16]> {
    match key.split_at_checked(17) {
        Some((head, id)) if head[16] == UPLOAD => id.try_into().ok(),
        _ => None,
    }
}

/// The first key behind all uploads of a bucket.
#[must_use]
pub fn uploads_end(bucket: BucketId) -> Vec<u8> {
    key(bucket, UPLOAD + 1, &[])
}

/// A part of an upload.
#[must_use]
pub fn part(bucket: BucketId, upload: &[u8; 16], number: u32) -> Vec<u8> {
    key(bucket, PART, &[upload, &number.to_be_bytes()])
}

/// The part's number in a key of [`part`]; nothing for other keys.
#[must_use]
pub fn part_number(key: &[u8]) -> Option<u32> {
    match key.split_at_checked(33) {
        Some((head, number)) if head[16] == PART => number.try_into().ok().map(u32::from_be_bytes),
        _ => None,
    }
}

/// The upload in a key of [`part`]; nothing for other keys.
#[must_use]
pub fn part_upload(key: &[u8]) -> Option<[u8; 16]> {
    part_number(key)?;
    key[17..33].try_into().ok()
}

/// The first key behind all parts of all uploads of a bucket.
#[must_use]
pub fn all_parts_end(bucket: BucketId) -> Vec<u8> {
    key(bucket, PART + 1, &[])
}

/// The first key behind all parts of an upload.
#[must_use]
pub fn parts_end(bucket: BucketId, upload: &[u8; 16]) -> Vec<u8> {
    key(bucket, PART, &[upload, &u32::MAX.to_be_bytes()])
}

/// Begins as all versions of a bucket do whose names begin so.
#[must_use]
pub fn versions(bucket: BucketId, name: &str) -> Vec<u8> {
    key(bucket, VERSION, &[&escaped(name.as_bytes())])
}

/// The spans of all keys that an object of this name may be under: the current one, and its versions, the newest first.
#[must_use]
pub fn spans_of(bucket: BucketId, name: &str) -> [Span; 2] {
    let current = object(bucket, name.as_bytes());
    let behind = [&*current, &[0]].concat();
    [(current, behind), (versions_of(bucket, name), versions_of_end(bucket, name))]
}

/// The same for all objects whose names begin with these bytes, which may end within a character.
#[must_use]
pub fn spans_of_beginning(bucket: BucketId, beginning: &[u8]) -> [Span; 2] {
    let escaped = escaped(beginning);
    [(OBJECT, beginning), (VERSION, &escaped)].map(|(kind, beginning)| {
        let from = key(bucket, kind, &[beginning]);
        let mut to = from.clone();
        to.resize(INDEX_KEY_BYTES_MAX, u8::MAX);
        (from, to)
    })
}

/// The first key behind all versions of a bucket.
#[must_use]
pub fn versions_end(bucket: BucketId) -> Vec<u8> {
    key(bucket, VERSION + 1, &[])
}

/// The beginning of all versions of one object.
#[must_use]
pub fn versions_of(bucket: BucketId, name: &str) -> Vec<u8> {
    key(bucket, VERSION, &[&escaped(name.as_bytes()), &END_OF_NAME])
}

/// The first key behind all versions of one object.
#[must_use]
pub fn versions_of_end(bucket: BucketId, name: &str) -> Vec<u8> {
    key(bucket, VERSION, &[&escaped(name.as_bytes()), &[0, 1]])
}

/// A version that is not the current object: an older one, or a mark of a deletion. The newest lies first.
#[must_use]
pub fn version(bucket: BucketId, name: &str, sequence: u64) -> Vec<u8> {
    // No byte of this begins a character of UTF-8: no delimiter is ever found in it.
    let digits: [u8; SEQUENCE_BYTES] = core::array::from_fn(|at| {
        let shift = 6 * (SEQUENCE_BYTES - 1 - at);
        0x80 | u8::try_from((!sequence >> shift) & 0x3f).expect("six bits")
    });
    key(bucket, VERSION, &[&escaped(name.as_bytes()), &END_OF_NAME, &digits])
}

/// The object and the sequence in a key of [`version`]; nothing for other keys.
#[must_use]
pub fn version_name(key: &[u8]) -> Option<(String, u64)> {
    let (head, rest) = key.split_at_checked(17)?;
    let (name, digits) = rest.split_at_checked(rest.len().checked_sub(SEQUENCE_BYTES)?)?;
    let name = name.strip_suffix(&END_OF_NAME[..]).filter(|_| head[16] == VERSION)?;
    let reversed = digits
        .iter()
        .try_fold(0_u64, |number, digit| (digit & 0xc0 == 0x80).then_some(number << 6 | u64::from(digit & 0x3f)))?;
    Some((unescaped(name)?, !reversed))
}

/// The beginning of names in a key that was folded by [`versions`]; nothing for other keys.
#[must_use]
pub fn version_prefix(key: &[u8]) -> Option<String> {
    let (head, name) = key.split_at_checked(17)?;
    if head[16] == VERSION { unescaped(name) } else { None }
}

/// Where the null version of an object lies, if it is not the current object.
#[must_use]
pub fn null(bucket: BucketId, name: &str) -> Vec<u8> {
    key(bucket, NULL, &[name.as_bytes()])
}

/// Whether it is a key of [`null`].
#[must_use]
pub fn is_null(key: &[u8]) -> bool {
    key.len() > 17 && key[16] == NULL
}

/// Whether a bucket keeps versions.
#[must_use]
pub fn versioning(bucket: BucketId) -> Vec<u8> {
    key(bucket, VERSIONING, &[])
}

/// Whether it is a key of [`versioning`].
#[must_use]
pub fn is_versioning(key: &[u8]) -> bool {
    key.len() == 17 && key[16] == VERSIONING
}

/// A name, or a piece of one, as it stands in keys of [`version`]: U+0000 two bytes, so that the end of a name can be told from
/// it. The order of names stays.
#[must_use]
pub fn escaped(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    for byte in name {
        if *byte == 0 { out.extend_from_slice(&ZERO_IN_NAME) } else { out.push(*byte) }
    }
    out
}

fn unescaped(bytes: &[u8]) -> Option<String> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter();
    while let Some(byte) = rest.next() {
        if *byte == 0 && rest.next() != Some(&ZERO_IN_NAME[1]) {
            return None;
        }
        out.push(*byte);
    }
    String::from_utf8(out).ok()
}

/// The bucket of a key.
#[must_use]
pub fn bucket(key: &[u8]) -> Option<BucketId> {
    key.first_chunk::<16>().copied().map(BucketId)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_lie_in_the_order_of_buckets_kinds_and_names() {
        let (a, b) = (BucketId([1; 16]), BucketId([2; 16]));
        let id = [7; 16];
        let keys = [
            seal(a),
            object(a, b""),
            object(a, b"a"),
            object(a, b"a/b"),
            object(a, &[0xff; 4]),
            objects_end(a),
            upload(a, &id),
            uploads_end(a),
            part(a, &id, 1),
            part(a, &id, 10_000),
            parts_end(a, &id),
            all_parts_end(a),
            version(a, "a", 3),
            version(a, "a", 2),
            versions_of_end(a, "a"),
            version(a, "a\0", 9),
            version(a, "a\0b", 9),
            version(a, "a/b", 9),
            versions_end(a),
            null(a, "a"),
            versioning(a),
            end(a),
            seal(b),
        ];
        assert!(keys.is_sorted());
        assert_eq!(uploads(a), objects_end(a));
        assert_eq!(keys.iter().filter(|key| is_seal(key)).count(), 2);
        assert_eq!(keys.iter().filter(|key| is_null(key)).count(), 1);
        assert_eq!(keys.iter().filter(|key| is_versioning(key)).count(), 1);
        assert_eq!(object_name(&object(a, "ä".as_bytes())), Some("ä"));
        assert_eq!(object_name(&upload(a, &id)), None);
        assert_eq!(upload_id(&upload(a, &id)), Some(id));
        assert_eq!(upload_id(&object(a, &id)), None);
        assert_eq!(part_number(&part(a, &id, 9)), Some(9));
        assert_eq!(part_number(&upload(a, &id)), None);
        assert_eq!(part_number(&object(a, b"of twenty characters")), None);
        assert_eq!((part_upload(&part(a, &id, 9)), part_upload(&upload(a, &id))), (Some(id), None));
        assert_eq!(bucket(&seal(b)), Some(b));
    }

    #[test]
    fn versions_of_an_object_lie_together_the_newest_first() {
        let bucket = BucketId([1; 16]);
        arbtest::arbtest(|u| {
            let (name, other): (String, String) = (u.arbitrary()?, u.arbitrary()?);
            let (one, two): (u64, u64) = (u.arbitrary()?, u.arbitrary()?);
            let key = version(bucket, &name, one);
            assert_eq!(version_name(&key), Some((name.clone(), one)));
            assert_eq!(key.cmp(&version(bucket, &other, two)), name.cmp(&other).then(two.cmp(&one)));
            assert!(key >= versions_of(bucket, &name) && key < versions_of_end(bucket, &name));
            assert_eq!(other.starts_with(&name), version(bucket, &other, two).starts_with(&versions(bucket, &name)));
            let lies_in = |spans: [Span; 2], key: &Vec<u8>| {
                spans.iter().filter(|(from, to)| (from..to).contains(&key)).count() == 1
            };
            let cut = &other.as_bytes()[..u.int_in_range(0..=other.len())?];
            for key in [object(bucket, name.as_bytes()), key] {
                assert_eq!(lies_in(spans_of(bucket, &other), &key), name == other);
                assert_eq!(lies_in(spans_of_beginning(bucket, cut), &key), name.as_bytes().starts_with(cut));
            }
            let folded = versions(bucket, &name);
            assert_eq!(version_prefix(&folded), Some(name));
            Ok(())
        });
        let expected = [&[1; 16][..], &[4, b'k', 0, 0xff, 0, 0], &[0x8f], &[0xbf; 8], &[0xbb, 0xbd]].concat();
        assert_eq!(version(bucket, "k\0", 258), expected);
        assert_eq!(version(bucket, &"\0".repeat(KEY_BYTES_MAX), 0).len(), INDEX_KEY_BYTES_MAX);
        assert_eq!(version_name(&null(bucket, "aaaaaaaaaaaaaaaa")), None);
    }
}
