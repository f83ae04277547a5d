//! Encryption of objects: keys of objects, keys of parts, and chunks of parts under AES-256-GCM.
//!
//! An object has a data key that was drawn by chance. Each of its parts has a key that is derived from the data key and from what the part
//! is: bucket, key, upload, number and name. A part is cut into chunks; the nonce of a chunk says its number in the part and
//! whether it is the last one. So a chunk opens in its own place only: exchanged, moved, cut off or taken from another object it is refused,
//! and a range of an object needs no more than its chunks. No nonce comes twice under a key, because no name of a part does.
//!
//! Chunks follow the STREAM construction (Hoang, Reyhanitabar, Rogaway, Vizar: "Online Authenticated-Encryption and its
//! Nonce-Reuse Misuse-Resistance", 2015). Data keys are kept wrapped, under a key that is not kept with the object
//! ([`WrappingKey`]).
//!
//! Deliberately absent: which parts an object has. That is said by its record, which no key protects.

use core::fmt;

use aes_gcm::aead::inout::InOutBuf;
use aes_gcm::{AeadInOut as _, Aes256Gcm, KeyInit as _, Nonce, Tag};
use ashlar_wire::secret::Secret;
use bytes::Bytes;
use zeroize::Zeroizing;

use crate::index::key::BucketId;
use crate::record::{BLOCK_BYTES, PartId};

/// Bytes of a chunk but the last one of a part, before encryption.
pub const CHUNK_BYTES: u32 = STORED_CHUNK_BYTES - TAG_BYTES;
/// Bytes of such a chunk on drives.
pub const STORED_CHUNK_BYTES: u32 = 64 << 10;
/// Bytes by which encryption makes a chunk longer.
pub const TAG_BYTES: u32 = 16;
/// Bytes of a wrapped data key.
pub const WRAPPED_BYTES: usize = 48;

/// Bytes of a block but the last one of a part, before encryption: on drives it has [`BLOCK_BYTES`].
pub const PLAIN_BLOCK_BYTES: u32 = BLOCK_BYTES / STORED_CHUNK_BYTES * CHUNK_BYTES;

const _: () = assert!(BLOCK_BYTES.is_multiple_of(STORED_CHUNK_BYTES));

const PART_KEY: &str = "ashlar object part key v1";
const WRAPPING_KEY: &str = "ashlar object wrapping key v1";

/// The bytes were not made under this key for this place, or they were changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAuthentic;

/// The key of one object. Drawn by chance, never used for another one.
#[derive(Clone, PartialEq, Eq)]
pub struct DataKey(Zeroizing<[u8; 32]>);

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataKey(***)")
    }
}

/// What a part is: its key opens nothing else.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartIdentity<'a> {
    pub(crate) bucket: BucketId,
    pub(crate) key: &'a str,
    /// The upload and the number of the part in it, if the part is one of an upload.
    pub(crate) upload: Option<([u8; 16], u16)>,
    pub(crate) part: PartId,
}

impl DataKey {
    /// The key with these bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// What encrypts and decrypts a part.
    pub(crate) fn part(&self, part: &PartIdentity<'_>) -> PartCipher {
        let (upload, number) = part.upload.unwrap_or_default();
        let parts = [&part.bucket.0[..], part.key.as_bytes(), &upload, &number.to_be_bytes(), &part.part.0];
        let key = Zeroizing::new(Secret::from_bytes(*self.0).mac(PART_KEY, &parts));
        PartCipher(Aes256Gcm::new((&*key).into()))
    }
}

/// A key under which the data key of one object is wrapped.
pub struct WrappingKey(Aes256Gcm);

impl WrappingKey {
    /// The key that follows from a secret for one object. `context` says which object it is; no two objects of a secret have the same.
    #[must_use]
    pub fn derive(secret: &Secret, context: &[&[u8]]) -> Self {
        let key = Zeroizing::new(secret.mac(WRAPPING_KEY, context));
        Self(Aes256Gcm::new((&*key).into()))
    }

    /// Wraps the data key of the object. The key wraps nothing else, so its one nonce may be zero.
    #[must_use]
    pub fn wrap(&self, key: &DataKey) -> [u8; WRAPPED_BYTES] {
        let mut wrapped = [0; WRAPPED_BYTES];
        let (bytes, tag) = wrapped.split_at_mut(key.0.len());
        bytes.copy_from_slice(&*key.0);
        let made = self.0.encrypt_inout_detached(&Nonce::default(), b"", InOutBuf::from(bytes));
        tag.copy_from_slice(&made.expect("32 bytes are fewer than 64 GiB"));
        wrapped
    }

    /// The data key that was wrapped.
    ///
    /// # Errors
    /// [`NotAuthentic`]: it was wrapped under another key, for another object, or was changed.
    pub fn unwrap(&self, wrapped: &[u8; WRAPPED_BYTES]) -> Result<DataKey, NotAuthentic> {
        let mut key = Zeroizing::new([0; 32]);
        let (bytes, tag) = wrapped.split_at(key.len());
        key.copy_from_slice(bytes);
        let tag = Tag::try_from(tag).map_err(|_| NotAuthentic)?;
        let opened = self.0.decrypt_inout_detached(&Nonce::default(), b"", InOutBuf::from(&mut key[..]), &tag);
        opened.map_err(|_| NotAuthentic)?;
        Ok(DataKey(key))
    }
}

/// Whether a block is the last one of its part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Position {
    Inner,
    Last,
}

/// What encrypts and decrypts one part.
pub(crate) struct PartCipher(Aes256Gcm);

/// Seven zeroes, the number of the chunk in its part, and 1 for the last one.
fn nonce(chunk: u32, is_last: bool) -> Nonce<aes_gcm::aead::consts::U12> {
    let mut nonce = Nonce::default();
    nonce[7..11].copy_from_slice(&chunk.to_be_bytes());
    nonce[11] = u8::from(is_last);
    nonce
}

/// Bytes on drives of so many at the beginning of a block.
pub(crate) const fn stored_bytes(plain: u32) -> u32 {
    plain + plain.div_ceil(CHUNK_BYTES) * TAG_BYTES
}

/// Chunks of a part that has so many bytes.
fn chunks(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(CHUNK_BYTES.into())).expect("a part has at most 5 GiB")
}

impl PartCipher {
    /// A block as it is stored.
    ///
    /// # Panics
    /// The block is empty, longer than [`PLAIN_BLOCK_BYTES`], or shorter and not the last one.
    pub(crate) fn encrypt_block(&self, number: u32, plain: &[u8], position: Position) -> Vec<u8> {
        let is_full = plain.len() == PLAIN_BLOCK_BYTES as usize;
        assert!(!plain.is_empty() && plain.len() <= PLAIN_BLOCK_BYTES as usize, "a block has bytes, and not too many");
        assert!(is_full || position == Position::Last, "a block in the middle is full");
        let stored = stored_bytes(u32::try_from(plain.len()).expect("at most a block"));
        let mut out = Vec::with_capacity(stored as usize);
        let first = number * (BLOCK_BYTES / STORED_CHUNK_BYTES);
        let mut pieces = plain.chunks(CHUNK_BYTES as usize).zip(first..).peekable();
        while let Some((piece, chunk)) = pieces.next() {
            let is_last = position == Position::Last && pieces.peek().is_none();
            let from = out.len();
            out.extend_from_slice(piece);
            let tag = self.0.encrypt_inout_detached(&nonce(chunk, is_last), b"", InOutBuf::from(&mut out[from..]));
            out.extend_from_slice(&tag.expect("a chunk has fewer than 64 GiB"));
        }
        out
    }

    /// The content of chunks that follow each other, the first of them by its number, in a part of so many bytes.
    ///
    /// # Errors
    /// [`NotAuthentic`]: one of them is not what was put there. Nothing is given then.
    pub(crate) fn decrypt_chunks(
        &self,
        first: u32,
        stored: Vec<u8>,
        part_bytes: u64,
    ) -> Result<Vec<Bytes>, NotAuthentic> {
        let mut stored = Zeroizing::new(stored);
        let last = chunks(part_bytes).checked_sub(1).ok_or(NotAuthentic)?;
        for (chunk, bytes) in (first..).zip(stored.chunks_mut(STORED_CHUNK_BYTES as usize)) {
            let len = bytes.len().checked_sub(TAG_BYTES as usize).ok_or(NotAuthentic)?;
            let (content, tag) = bytes.split_at_mut(len);
            let tag = Tag::try_from(&*tag).map_err(|_| NotAuthentic)?;
            let opened =
                self.0.decrypt_inout_detached(&nonce(chunk, chunk == last), b"", InOutBuf::from(content), &tag);
            opened.map_err(|_| NotAuthentic)?;
        }
        let stored = Bytes::from(core::mem::take(&mut *stored));
        let starts = (0..stored.len()).step_by(STORED_CHUNK_BYTES as usize);
        let end = |start: usize| stored.len().min(start + STORED_CHUNK_BYTES as usize) - TAG_BYTES as usize;
        Ok(starts.map(|start| stored.slice(start..end(start))).collect())
    }
}

#[cfg(test)]
mod tests;
