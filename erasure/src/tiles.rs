//! Encoding by tiles: each shard is looked at while it is in a cache, and memory works at the same time.
//!
//! Encoding a block that is in no cache and then hashing it reads all of it twice: by the time of the hash its beginning
//! has left the near caches again; and the hash, which is short of arithmetic and not of memory, leaves memory idle. So
//! the block is cut across all shards into *tiles*. A tile's parity is computed into a small scratch; then the caller
//! looks at the tile shard by shard, while memory brings the next tile and takes this one's parity.
//!
//! What it does not do: hash. The caller does what is to be done.

use core::array;

use crate::simd::{Streamer, ask_for};
use crate::{Codec, Error, Geometry, SHARDS_MAX, Stores};

/// Bytes of each shard in a tile, at most.
///
/// A tile of 16 shards is then 32 KiB, which a first-level cache holds: the hash finds there what encoding has read.
/// Measured with CRC64-NVME over 256 cold blocks of 1 MiB on a CPU with 48 KiB, beside one or two processes of low
/// priority (GB/s of data, 12+4 / 8+8 / 4+4): 1,024 bytes 11.4 / 7.6 / 7.6, 2,048 bytes 11.2 / 7.5 / 8.1, 4,096 bytes
/// 10.0 / 6.8 / 5.7, 8,192 bytes 9.2 / 6.1 / 6.4, 16,384 bytes 8.8 / 6.0 / 4.8. Of two that are equal the longer is
/// better: each call of that hash costs 21 ns beside its bytes.
const TILE_BYTES: usize = 2048;

/// Bytes of all shards of a tile, at most: the tile and the next one stay in a small second-level cache.
const TILE_BYTES_ALL: usize = 128 * 1024;

/// Bytes of a tile's parity, at most. More than eight parity shards have shorter pieces.
const SCRATCH_BYTES: usize = 8 * TILE_BYTES;

/// Pieces begin at multiples of this: a cache line.
const LINE_BYTES: usize = 64;

/// A tile's parity.
#[repr(align(64))]
struct Scratch([u8; SCRATCH_BYTES]);

impl Codec {
    /// Writes all K parity shards as [`Codec::encode`] does, and shows every piece of all M + K shards to `each` while it
    /// is in a near cache: to hash it, to send it.
    ///
    /// Right where the data is in no cache and every shard is hashed or sent at once. Where the data is in a cache already,
    /// [`Codec::encode`] and one call for each whole shard afterwards are twice as fast: asking for what is there is not
    /// free, and a hash works best on long pieces. The parity is written past the caches, as by [`Stores::Streaming`]; any
    /// alignment will do, and shards that begin at multiples of 64 bytes are best. Nothing is allocated; 24 KiB of the
    /// stack are used beside what encoding takes.
    ///
    /// `each` gets the number of a shard, 0 to M - 1 for data and M to M + K - 1 for parity, and a piece of it. Each shard
    /// comes piece by piece from its beginning to its end, every byte once, tile by tile: the first pieces of all shards
    /// in the order of their numbers, then the second pieces, and so on. A piece has 64 to 2,048 bytes, a multiple of 64,
    /// and the same for all shards; only the last may be any shorter. Shards of no bytes have no pieces. What `each`
    /// panics with goes to the caller; the parity is then written in part.
    ///
    /// `next` names what will be read after this call, most often the data shards of the next block: its first bytes are
    /// asked for while the last tile is worked on. Only its beginning counts, not its lengths nor how many there are (at
    /// most M are used); empty where it is not known.
    ///
    /// # Errors
    /// [`Error::ShardCount`], [`Error::ShardLength`], as [`Codec::encode`]: nothing was written, and `each` was not called.
    pub fn encode_tiles(
        &self,
        data: &[&[u8]],
        parity: &mut [&mut [u8]],
        next: &[&[u8]],
        mut each: impl FnMut(usize, &[u8]),
    ) -> Result<(), Error> {
        self.check_stripe(data, parity)?;
        let (len, tile_len) = (data[0].len(), tile_len(self.geometry()));
        let mut scratch = Scratch([0; SCRATCH_BYTES]);
        let mut pieces: [&mut [u8]; SHARDS_MAX] = array::from_fn(|_| <&mut [u8]>::default());
        let pieces = &mut pieces[..parity.len()];
        let rooms = scratch.0.chunks_exact_mut(room_len(parity.len()));
        pieces.iter_mut().zip(rooms).for_each(|(piece, room)| *piece = room);
        let mut tile = [[].as_slice(); SHARDS_MAX];
        let tile = &mut tile[..data.len()];
        let mut streamer = Streamer::new();
        for start in (0..len).step_by(tile_len) {
            let end = len.min(start + tile_len);
            tile.iter_mut().zip(data).for_each(|(piece, shard)| *piece = &shard[start..end]);
            pieces.iter_mut().for_each(|piece| *piece = &mut core::mem::take(piece)[..end - start]);
            self.encoder().write(tile, pieces, Stores::Cached);
            for (shard, piece) in tile.iter().enumerate() {
                let (whole, ahead) = if end < len { (data.get(shard), end) } else { (next.get(shard), 0) };
                let ahead = whole.map_or([].as_slice(), |whole| &whole[ahead..]);
                ask_for(&ahead[..ahead.len().min(tile_len)]);
                each(shard, piece);
            }
            for (index, (piece, shard)) in pieces.iter().zip(parity.iter_mut()).enumerate() {
                each(data.len() + index, piece);
                streamer.copy(piece, &mut shard[start..end]);
            }
        }
        Ok(())
    }
}

/// Bytes of each shard in a tile of this geometry: whole lines.
pub(crate) fn tile_len(geometry: Geometry) -> usize {
    let fitting = (TILE_BYTES_ALL / geometry.total()).min(room_len(geometry.parity()));
    fitting.min(TILE_BYTES) & !(LINE_BYTES - 1)
}

/// From one parity shard's piece to the next one's in the scratch: whole lines.
fn room_len(parity: usize) -> usize {
    (SCRATCH_BYTES / parity) & !(LINE_BYTES - 1)
}
