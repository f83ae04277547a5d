//! Which blocks are stored: bits of a server as pieces of the volume.

use crate::block::{BLOCK_BYTES, ByteRange};
use crate::piece::Piece;

/// The pieces of the bytes `named`, of which a server has told the bits of whole `blocks`; no bits for no block.
///
/// # Panics
/// There are fewer bits than blocks, or bytes are named that are in no block: both were checked.
pub(super) fn pieces(told: &Piece, blocks: ByteRange, named: ByteRange) -> Vec<Piece> {
    let Piece::Data(bits) = told else { return vec![Piece::Zeroes(named.len())] };
    let block_bytes = u64::from(BLOCK_BYTES);
    let of_block = |number: u64| {
        let start = blocks.start + number * block_bytes;
        let len = named.intersection(ByteRange { start, end: start + block_bytes }).len();
        // Positions within bytes in memory are sizes.
        let is_stored = bits[(number / 8) as usize] >> (number % 8) & 1 == 1;
        if is_stored { Piece::Stored(len) } else { Piece::Zeroes(len) }
    };
    joined((0..blocks.len() / block_bytes).map(of_block))
}

/// Pieces without neighbours of one kind, and none that are empty.
pub(super) fn joined(pieces: impl Iterator<Item = Piece>) -> Vec<Piece> {
    let mut joined: Vec<Piece> = Vec::new();
    for piece in pieces.filter(|piece| !piece.is_empty()) {
        match (joined.last_mut(), &piece) {
            (Some(Piece::Stored(len)), Piece::Stored(more)) | (Some(Piece::Zeroes(len)), Piece::Zeroes(more)) => {
                *len += more;
            }
            _ => joined.push(piece),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn bits_are_pieces_of_the_bytes_that_were_named() {
        let blocks = ByteRange { start: 8_192, end: 8_192 + 10 * 4_096 };
        let bits = Piece::Data(Bytes::from_static(&[0b0000_1110, 0b10]));
        let whole = pieces(&bits, blocks, blocks);
        let expected = [Piece::Zeroes(4_096), Piece::Stored(3 * 4_096), Piece::Zeroes(5 * 4_096), Piece::Stored(4_096)];
        assert_eq!(whole, expected);
        let part = ByteRange { start: 8_192 + 4_000, end: 8_192 + 2 * 4_096 + 1 };
        assert_eq!(pieces(&bits, blocks, part), [Piece::Zeroes(96), Piece::Stored(4_097)]);
        assert_eq!(pieces(&Piece::Zeroes(10 * 4_096), blocks, part), [Piece::Zeroes(4_193)]);
    }
}
