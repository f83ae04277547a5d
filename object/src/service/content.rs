//! Parts become a body: blocks are read ahead of what is sent.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use crate::api::{BoxFuture, Content, Error};
use crate::cluster::{Chore, Cluster};
use crate::flight::Flight;
use crate::index::key::BucketId;
use crate::record::{BLOCK_BYTES, PartContent};
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
    /// Whose bytes they are, until damage of them was told.
    object: Option<(BucketId, String)>,
    pieces: VecDeque<Bytes>,
}

impl<C: Cluster> Blocks<C> {
    /// The bytes from `offset` on, `len` of them, which the parts have.
    pub(super) fn new(
        (cluster, codecs): (Arc<C>, Arc<Codecs>),
        parts: Vec<PartContent>,
        (offset, len): (u64, u64),
        object: (BucketId, String),
    ) -> Self {
        let mut blocks = Self {
            cluster,
            codecs,
            parts: parts.into(),
            offset,
            left: len,
            flight: Flight::new(),
            object: Some(object),
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
            let Some(part) = self.parts.front() else { return };
            let block = u32::try_from(self.offset / u64::from(BLOCK_BYTES)).expect("a part has at most 5 GiB");
            let offset = u32::try_from(self.offset % u64::from(BLOCK_BYTES)).expect("within a block");
            let len = u64::from(part.block_bytes(block) - offset).min(self.left);
            let range = (offset, u32::try_from(len).expect("within a block"));
            let (cluster, codecs) = (Arc::clone(&self.cluster), Arc::clone(&self.codecs));
            self.flight.push(Box::pin(read_block(cluster, codecs, part.clone(), block, range)));
            self.offset += len;
            self.left -= len;
            self.skip();
        }
    }
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
                        if is_lost && let Some((bucket, key)) = self.object.take() {
                            self.cluster.later(Chore::Heal(bucket, key));
                        }
                        self.pieces.extend(pieces.into_iter().filter(|piece| !piece.is_empty()));
                    }
                }
            }
        })
    }
}
