//! Keys of the index: what a bucket's objects, uploads and parts are called in the ordered map.
//!
//! A key is the bucket's id, a kind, and the rest. So a bucket's objects lie side by side in the order of their keys, and
//! its uploads and their parts beside them.

use crate::api::KEY_BYTES_MAX;

/// A bucket, from its creation to its deletion. Never used again: a new bucket of the same name has another id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BucketId(pub [u8; 16]);

/// Longest key.
pub const INDEX_KEY_BYTES_MAX: usize = 16 + 1 + KEY_BYTES_MAX;

const SEAL: u8 = 0;
const OBJECT: u8 = 1;
const UPLOAD: u8 = 2;
const PART: u8 = 3;

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
            end(a),
            seal(b),
        ];
        assert!(keys.is_sorted());
        assert_eq!(uploads(a), objects_end(a));
        assert_eq!(keys.map(|key| is_seal(&key)).iter().filter(|is_seal| **is_seal).count(), 2);
        assert_eq!(object_name(&object(a, "ä".as_bytes())), Some("ä"));
        assert_eq!(object_name(&upload(a, &id)), None);
        assert_eq!(upload_id(&upload(a, &id)), Some(id));
        assert_eq!(upload_id(&object(a, &id)), None);
        assert_eq!(part_number(&part(a, &id, 9)), Some(9));
        assert_eq!(part_number(&upload(a, &id)), None);
        assert_eq!((part_upload(&part(a, &id, 9)), part_upload(&upload(a, &id))), (Some(id), None));
        assert_eq!(bucket(&seal(b)), Some(b));
    }
}
