//! Encoding by tiles: the parity that encoding gives, and every byte of every shard shown once and in order.

use alloc::vec;
use alloc::vec::Vec;

use super::definition::Definition;
use super::room::{Placement, Room};
use super::{Random, geometry, kernels_under_test, slices};
use crate::{Codec, SHARDS_MAX};

/// Longest piece that the documentation allows.
const PIECE_LEN_MAX: usize = 2048;

/// Lengths around one, two and three tiles of the narrow shapes.
const LARGE: [usize; 7] = [2_047, 2_048, 2_049, 4_096, 4_159, 4_160, 7_001];

/// Encodes the first `len` bytes of the stripe `shards`, and holds the parity and what is shown to the stripe.
fn check(codec: &Codec, shards: &[Vec<u8>], len: usize, placement: Placement, next: &[&[u8]]) {
    let (count, total) = (codec.geometry().data(), codec.geometry().total());
    let data: Vec<&[u8]> = shards[..count].iter().map(|shard| &shard[..len]).collect();
    let mut rooms: Vec<Room> = (count..total).map(|_| Room::new(len)).collect();
    rooms.iter_mut().enumerate().for_each(|(at, room)| room.put(placement, at, &vec![0xee; len]));
    let mut parity: Vec<&mut [u8]> = rooms.iter_mut().map(Room::content_mut).collect();
    let mut shown = vec![Vec::new(); total];
    let mut lens: Vec<usize> = Vec::new();
    let each = |shard: usize, piece: &[u8]| {
        assert_eq!(shard, lens.len() % total, "all shards of a tile, in order");
        lens.push(piece.len());
        shown[shard].extend_from_slice(piece);
    };
    codec.encode_tiles(&data, &mut parity, next, each).unwrap();

    let name = || (codec.geometry(), codec.kernel(), len, placement);
    for (shard, (shown, expected)) in shown.iter().zip(shards).enumerate() {
        assert!(shown[..] == expected[..len], "shown of shard {shard}: {:?}", name());
    }
    for (at, room) in rooms.iter().enumerate() {
        assert!(*room.content() == shards[count + at][..len], "parity {at}: {:?}", name());
        assert!(room.guards_are_whole(), "beside parity {at}: {:?}", name());
    }
    let tiles: Vec<&[usize]> = lens.chunks(total).collect();
    for (at, tile) in tiles.iter().enumerate() {
        let whole = tiles[0][0];
        assert!(tile.iter().all(|&len| len == tile[0]) && tile[0] <= PIECE_LEN_MAX, "{:?}: {tile:?}", name());
        let is_whole = tile[0] == whole && whole.is_multiple_of(64);
        assert!(is_whole || at + 1 == tiles.len() && tile[0] <= whole, "{:?}: {tile:?}", name());
    }
}

/// Narrow geometries and lengths up to a few registers; over all geometries every length comes for every kernel.
#[test]
fn every_narrow_geometry() {
    let mut random = Random(21);
    let placements = [Placement::Apart(5), Placement::Alike(0), Placement::Alike(37)];
    for (data, parity) in (1..=8).flat_map(|data| (1..=8).map(move |parity| (data, parity))) {
        let shards = Definition::of(data, parity).shards(&random.shards(data, 300));
        for kernel in kernels_under_test() {
            let codec = Codec::with_kernel(geometry(data, parity), kernel);
            for (turn, len) in ((data + 8 * parity) % 11..=300).step_by(11).enumerate() {
                check(&codec, &shards, len, placements[turn % 3], &[]);
            }
        }
    }
}

/// Lengths of several tiles, and shapes whose tiles are shorter.
#[test]
fn several_tiles() {
    let mut random = Random(22);
    for (data, parity, lens) in [
        (12, 4, &LARGE[..]),
        (8, 8, &LARGE[..]),
        (1, 1, &LARGE[..]),
        (4, 9, &LARGE[..]),
        (200, 56, &[300, 512, 1_100]),
        (1, 255, &[128, 300]),
        (255, 1, &[300, 512, 1_100]),
    ] {
        let len_max = lens.iter().copied().max().unwrap();
        let shards = Definition::of(data, parity).shards(&random.shards(data, len_max));
        for kernel in kernels_under_test() {
            let codec = Codec::with_kernel(geometry(data, parity), kernel);
            for &len in lens {
                check(&codec, &shards, len, Placement::Apart(9), &[]);
                check(&codec, &shards, len, Placement::Alike(0), &slices(&shards));
            }
        }
    }
}

/// Every length of the shape that is used most.
#[test]
fn every_length() {
    let shards = Definition::of(12, 4).shards(&Random(23).shards(12, 300));
    for kernel in kernels_under_test() {
        let codec = Codec::with_kernel(geometry(12, 4), kernel);
        (0..=300).for_each(|len| check(&codec, &shards, len, Placement::Apart(len), &[]));
    }
}

/// What comes next may be anything: it is asked for and not read.
#[test]
fn whatever_comes_next() {
    let shards = Definition::of(4, 2).shards(&Random(24).shards(4, 5_000));
    let lens: [&[usize]; 5] = [&[], &[0], &[1, 0, 70], &[5_000; 4], &[100; SHARDS_MAX + 9]];
    for kernel in kernels_under_test() {
        let codec = Codec::with_kernel(geometry(4, 2), kernel);
        for lens in lens {
            let next: Vec<&[u8]> = lens.iter().map(|&len| &shards[0][..len]).collect();
            check(&codec, &shards, 5_000, Placement::Apart(0), &next);
        }
    }
}

/// Tiles are whole lines, and their parity fits into the scratch, whatever the geometry.
#[test]
fn every_tile_has_room() {
    for total in 2..=SHARDS_MAX {
        for parity in 1..total {
            let tile_len = crate::tiles::tile_len(geometry(total - parity, parity));
            let is_right = (64..=PIECE_LEN_MAX).contains(&tile_len) && tile_len.is_multiple_of(64);
            assert!(is_right, "{total}, {parity}: {tile_len}");
        }
    }
}
