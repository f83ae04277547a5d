//! Parts become a body: blocks are read ahead of what is sent, and decrypted if they are encrypted.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use crate::api::{BoxFuture, Content, Error, ObjectContent};
use crate::cipher::{CHUNK_BYTES, DataKey, PartCipher, PartIdentity, STORED_CHUNK_BYTES};
use crate::cluster::{Chore, Cluster};
use crate::flight::Flight;
use crate::index::key::BucketId;
use crate::record::{BLOCK_BYTES, ObjectRecord, PartContent, PartId};
use crate::stripe::{Codecs, read_block};

/// Blocks that are read ahead: the memory of a request.
const BLOCKS_AHEAD_MAX: usize = 2;

/// The bytes of a range of an object.
pub(super) struct Blocks<C> {
    cluster: Arc<C>,
    codecs: Arc<Codecs>,
    parts: VecDeque<PartContent>,
    /// Where the next block to be read begins, in the first of the parts.
    offset: u64,
    /// Bytes that are not asked for yet.
    left: u64,
    flight: Flight<'static, Result<(Vec<Bytes>, bool), Error>>,
    /// Whose bytes they are.
    object: (BucketId, String),
    /// Damage of them was told.
    is_told: bool,
    /// The upload of which the object was completed.
    upload: Option<[u8; 16]>,
    /// The object's key, and the cipher of the first of the parts.
    key: Option<DataKey>,
    cipher: Option<(PartId, Arc<PartCipher>)>,
    pieces: VecDeque<Bytes>,
}

impl<C: Cluster> Blocks<C> {
    /// The bytes from `offset` on, `len` of them, which the parts have.
    pub(super) fn new(
        (cluster, codecs): (Arc<C>, Arc<Codecs>),
        record: &ObjectRecord,
        (offset, len): (u64, u64),
        object: (BucketId, String),
    ) -> Self {
        let mut blocks = Self {
            cluster,
            codecs,
            parts: record.parts.clone().into(),
            offset,
            left: len,
            flight: Flight::new(),
            object,
            is_told: false,
            upload: record.is_multipart.then_some(record.put_id),
            key: None,
            cipher: None,
            pieces: VecDeque::new(),
        };
        blocks.skip();
        blocks
    }

    /// Drops parts that end before the offset.
    fn skip(&mut self) {
        while let Some(part) = self.parts.front()
            && self.offset >= part.bytes
        {
            self.offset -= part.bytes;
            self.parts.pop_front();
        }
    }

    fn read_ahead(&mut self) {
        while self.flight.len() < BLOCKS_AHEAD_MAX && self.left > 0 {
            let Some(part) = self.parts.front().cloned() else { return };
            let full = u64::from(part.full_block_bytes());
            let block = u32::try_from(self.offset / full).expect("a part has at most 5 GiB");
            let offset = u32::try_from(self.offset % full).expect("within a block");
            let len = u64::from(part.plain_bytes(block) - offset).min(self.left);
            let range = (offset, u32::try_from(len).expect("within a block"));
            let (cluster, codecs) = (Arc::clone(&self.cluster), Arc::clone(&self.codecs));
            let cipher = if part.is_encrypted { self.cipher_of(&part) } else { None };
            self.flight.push(match (part.is_encrypted, cipher) {
                (false, _) => Box::pin(read_block(cluster, codecs, part, block, range)),
                (true, Some(cipher)) => Box::pin(async move {
                    let reading = async |stored| read_block(cluster, codecs, part.clone(), block, stored).await;
                    read_encrypted(&part, block, range, &cipher, reading).await
                }),
                // Without the key there is nothing to be told.
                (true, None) => Box::pin(async { Err(Error::Damaged) }),
            });
            self.offset += len;
            self.left -= len;
            self.skip();
        }
    }

    /// What decrypts a part, if the key is known.
    fn cipher_of(&mut self, part: &PartContent) -> Option<Arc<PartCipher>> {
        if let Some((_, cipher)) = self.cipher.as_ref().filter(|(id, _)| *id == part.id) {
            return Some(Arc::clone(cipher));
        }
        let (bucket, name) = &self.object;
        let upload = self.upload.map(|upload| (upload, part.number));
        let identity = PartIdentity { bucket: *bucket, key: name, upload, part: part.id };
        let cipher = Arc::new(self.key.as_ref()?.part(&identity));
        self.cipher = Some((part.id, Arc::clone(&cipher)));
        Some(cipher)
    }
}

/// Reads the chunks of a block that have the range of it, and gives the range.
async fn read_encrypted(
    part: &PartContent,
    block: u32,
    (offset, len): (u32, u32),
    cipher: &PartCipher,
    read: impl AsyncFnOnce((u32, u32)) -> Result<(Vec<Bytes>, bool), Error>,
) -> Result<(Vec<Bytes>, bool), Error> {
    let (first, behind) = (offset / CHUNK_BYTES, (offset + len).div_ceil(CHUNK_BYTES));
    let from = first * STORED_CHUNK_BYTES;
    let to = (behind * STORED_CHUNK_BYTES).min(part.block_bytes(block));
    let (pieces, is_lost) = read((from, to - from)).await?;
    let chunk = block * (BLOCK_BYTES / STORED_CHUNK_BYTES) + first;
    let chunks = cipher.decrypt_chunks(chunk, pieces.concat(), part.bytes).map_err(|_| Error::Damaged)?;
    let mut skipped = (offset - first * CHUNK_BYTES) as usize;
    let mut left = len as usize;
    let mut content = Vec::with_capacity(chunks.len());
    for mut chunk in chunks {
        let _before = chunk.split_to(skipped.min(chunk.len()));
        chunk.truncate(left);
        (skipped, left) = (0, left - chunk.len());
        content.push(chunk);
    }
    if left > 0 { Err(Error::Damaged) } else { Ok((content, is_lost)) }
}

impl<C: Cluster> Content for Blocks<C> {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, Error>> {
        Box::pin(async move {
            loop {
                if let Some(piece) = self.pieces.pop_front() {
                    return Ok(Some(piece));
                }
                self.read_ahead();
                match self.flight.next().await {
                    None => return Ok(None),
                    Some(read) => {
                        let (pieces, is_lost) = read?;
                        if is_lost && !self.is_told {
                            self.is_told = true;
                            let (bucket, key) = self.object.clone();
                            self.cluster.later(Chore::Heal(bucket, key));
                        }
                        self.pieces.extend(pieces.into_iter().filter(|piece| !piece.is_empty()));
                    }
                }
            }
        })
    }
}

impl<C: Cluster> ObjectContent for Blocks<C> {
    fn decrypt_with(&mut self, key: DataKey) {
        self.key = Some(key);
    }
}
