//! Content of one extent: checksums of its blocks, what differs from another copy, and a patched extent.
//!
//! Pure functions over the bytes of a whole extent. A block of zeroes and an absent block are the same to replicas, so a
//! patched extent keeps no block of zeroes.

use std::sync::Arc;

use ashlar_placement::rule::ExtentId;
use ashlar_replica::request::{Content, Difference, Run};
use ashlar_store::block::{BlockChecksum, BlockSet, EXTENT_BLOCKS, LostBlocks};
use ashlar_store::buffer::{AlignedBuf, BLOCK_BYTES, Segment};
use ashlar_wire::checksum::{Checksum, Salt, checksum};
use ashlar_wire::version::Version;
use bytes::Bytes;

/// What a block that cannot be read has for a checksum: it differs from that of every content, but for one in 2^64.
pub(super) const UNREADABLE: Checksum = Checksum(u64::MAX);

const ZERO_BLOCK: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

/// Computes checksums of one extent's blocks. All drives have to compute the same: they are compared between servers.
struct Hasher(Salt);

impl Hasher {
    fn new(id: ExtentId) -> Self {
        Self(Salt::new(&[b"replica block", id.volume.as_bytes(), &id.extent.0.to_be_bytes()]))
    }

    /// XXH3-64 under the extent's identity, mixed with the block's number by the 64-bit golden ratio.
    fn block(&self, index: usize, bytes: &[u8]) -> Checksum {
        let place = (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Checksum(checksum(self.0, bytes).0 ^ place)
    }
}

/// The checksums of all blocks of an extent.
pub(super) fn block_checksums(id: ExtentId, bytes: &[u8], lost: &LostBlocks) -> Vec<Checksum> {
    let hasher = Hasher::new(id);
    let sum = |(index, block)| if lost.contains(index) { UNREADABLE } else { hasher.block(index, block) };
    bytes.chunks_exact(BLOCK_BYTES).enumerate().map(sum).collect()
}

/// Whether all blocks are zeroes.
pub(super) fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks_exact(BLOCK_BYTES).all(|block| block == ZERO_BLOCK)
}

/// The blocks whose checksums differ from `than`; behind its end, those that are not zeroes; and all that are lost. The
/// runs share `bytes`.
pub(super) fn difference(
    id: ExtentId,
    version: Version,
    bytes: &Bytes,
    lost: &LostBlocks,
    than: &[Checksum],
) -> Difference {
    let hasher = Hasher::new(id);
    let mut runs: Vec<Run> = Vec::new();
    for (index, block) in bytes.chunks_exact(BLOCK_BYTES).enumerate() {
        let is_zero = block == ZERO_BLOCK;
        if lost.contains(index) {
            push_lost(&mut runs, index, lost.sum(index));
            continue;
        }
        let is_equal = than.get(index).map_or(is_zero, |sum| hasher.block(index, block) == *sum);
        if !is_equal {
            push_block(&mut runs, bytes, index, is_zero);
        }
    }
    Difference { version, runs }
}

/// Adds a block, to the last run if it continues that one.
fn push_block(runs: &mut Vec<Run>, bytes: &Bytes, index: usize, is_zero: bool) {
    let start = index * BLOCK_BYTES;
    let end = start + BLOCK_BYTES;
    match last_before(runs, index) {
        Some(Run { content: Content::Zeroes(len), .. }) if is_zero => *len += byte_count(BLOCK_BYTES),
        Some(Run { offset, content: Content::Data(data) }) if !is_zero => *data = bytes.slice(*offset as usize..end),
        _ => {
            let data = || Content::Data(bytes.slice(start..end));
            let content = if is_zero { Content::Zeroes(byte_count(BLOCK_BYTES)) } else { data() };
            runs.push(Run { offset: byte_count(start), content });
        }
    }
}

fn push_lost(runs: &mut Vec<Run>, index: usize, sum: Option<BlockChecksum>) {
    let sum = sum.map(|sum| sum.0);
    match last_before(runs, index) {
        Some(Run { content: Content::Lost(sums), .. }) => sums.push(sum),
        _ => runs.push(Run { offset: byte_count(index * BLOCK_BYTES), content: Content::Lost(vec![sum]) }),
    }
}

/// The last run, if it ends at this block.
fn last_before(runs: &mut [Run], index: usize) -> Option<&mut Run> {
    runs.last_mut().filter(|run| run.range().offset + run.range().len == byte_count(index * BLOCK_BYTES))
}

fn byte_count(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("an extent has up to 1 MiB")
}

/// Whether runs cover every block, so that nothing of the extent before them is needed.
pub(super) fn covers_extent(runs: &[Run]) -> bool {
    runs.iter().fold(BlockSet::EMPTY, |covered, run| covered.or(&blocks_of(run))).len() == EXTENT_BLOCKS
}

fn blocks_of(run: &Run) -> BlockSet {
    let first = run.offset as usize / BLOCK_BYTES;
    let mut blocks = BlockSet::EMPTY;
    (first..first + run.content.len() as usize / BLOCK_BYTES).for_each(|block| blocks.insert(block));
    blocks
}

/// Those blocks of runs that are lost here and have the checksum of what is lost: its content, in a copy of any version.
pub(super) fn known_again(id: ExtentId, lost: &LostBlocks, runs: &[Run]) -> Vec<Run> {
    let mut found = Vec::new();
    for run in runs {
        for block in blocks_of(run).iter() {
            let offset = byte_count(block * BLOCK_BYTES);
            let content = match &run.content {
                Content::Data(data) => {
                    let start = (offset - run.offset) as usize;
                    Content::Data(data.slice(start..start + BLOCK_BYTES))
                }
                Content::Zeroes(_) => Content::Zeroes(byte_count(BLOCK_BYTES)),
                Content::Lost(_) => continue,
            };
            let bytes = if let Content::Data(data) = &content { data } else { &ZERO_BLOCK[..] };
            if lost.sum(block) == Some(BlockChecksum::of(id, block, bytes)) {
                found.push(Run { offset, content });
            }
        }
    }
    found
}

/// What an extent has after a patch.
#[derive(Debug)]
pub(super) struct Patched {
    /// The blocks that are not zeroes, lost ones among them.
    pub(super) blocks: BlockSet,
    /// Those that cannot be read.
    pub(super) lost: LostBlocks,
    /// The data of the blocks without gaps.
    pub(super) data: Option<Segment>,
}

/// An extent, of which some blocks are lost, with runs laid over it. A block that is lost elsewhere and whole here stays if its checksum
/// is that of what is lost.
pub(super) fn patch(id: ExtentId, mut extent: AlignedBuf, mut lost: LostBlocks, runs: &[Run]) -> Patched {
    for run in runs {
        let first = run.offset as usize / BLOCK_BYTES;
        let place = run.offset as usize..(run.offset + run.content.len()) as usize;
        match &run.content {
            Content::Data(data) => extent[place].copy_from_slice(data),
            Content::Zeroes(_) => extent[place].fill(0),
            Content::Lost(sums) => {
                for (block, sum) in (first..).zip(sums) {
                    let sum = sum.map(BlockChecksum);
                    let is_whole =
                        !lost.contains(block) && sum == Some(BlockChecksum::of(id, block, extent.block(block)));
                    if !is_whole {
                        extent.block_mut(block).fill(0);
                        lost.insert(block, sum);
                    }
                }
                continue;
            }
        }
        blocks_of(run).iter().for_each(|block| lost.remove(block));
    }
    let mut blocks = BlockSet::EMPTY;
    let mut count = 0;
    for block in 0..EXTENT_BLOCKS {
        if extent.block(block) == ZERO_BLOCK && !lost.contains(block) {
            continue;
        }
        blocks.insert(block);
        if block != count {
            extent.copy_within(block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES, count * BLOCK_BYTES);
        }
        count += 1;
    }
    Patched { blocks, lost, data: (count > 0).then(|| Segment::new(Arc::new(extent), 0, count)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ashlar_placement::rule::Extent;
    use ashlar_replica::request::EXTENT_BYTES_MAX;
    use ashlar_wire::id::VolumeId;

    fn id(volume: u8, extent: u64) -> ExtentId {
        ExtentId { volume: VolumeId::from_bytes([volume; 16]), extent: Extent(extent) }
    }

    fn extent(blocks: &[(usize, u8)]) -> AlignedBuf {
        let mut buf = AlignedBuf::zeroed(EXTENT_BLOCKS);
        blocks.iter().for_each(|(block, value)| buf.block_mut(*block).fill(*value));
        buf
    }

    #[test]
    fn a_checksum_binds_extent_and_place() {
        let sums = block_checksums(id(1, 2), &extent(&[(3, 5)]), &LostBlocks::default());
        assert_eq!(sums.len(), EXTENT_BLOCKS);
        assert_eq!(sums[3], Checksum(GOLDEN), "changing this changes what servers compare");
        let mut all =
            [id(1, 2), id(1, 3), id(2, 2)].map(|id| block_checksums(id, &extent(&[]), &LostBlocks::default())).concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 3 * EXTENT_BLOCKS);
    }

    const GOLDEN: u64 = 908_865_193_406_881_885;

    #[test]
    fn a_difference_makes_another_copy_equal() {
        let version = Version::ZERO.next();
        let right = extent(&[(0, 1), (1, 2), (7, 7), (255, 9)]);
        let others: [&[(usize, u8)]; 4] = [&[], &[(0, 1), (1, 3)], &[(8, 8), (9, 9), (255, 9)], &[(7, 7), (255, 1)]];
        for other in others {
            let sums = block_checksums(id(1, 1), &extent(other), &LostBlocks::default());
            for than in [&sums[..], &sums[..10], &[UNREADABLE; EXTENT_BLOCKS]] {
                let is_short = than.len() == 10;
                if is_short && other.iter().any(|(block, _)| *block >= 10) {
                    continue;
                }
                let bytes = Bytes::copy_from_slice(&right);
                let found = difference(id(1, 1), version, &bytes, &LostBlocks::default(), than);
                let Patched { blocks, data, .. } = patch(id(1, 1), extent(other), LostBlocks::default(), &found.runs);
                let expected: Vec<usize> = vec![0, 1, 7, 255];
                assert_eq!(blocks.iter().collect::<Vec<_>>(), expected, "{other:?}");
                let values: Vec<u8> = data.unwrap().bytes().chunks(BLOCK_BYTES).map(|block| block[0]).collect();
                assert_eq!(values, [1, 2, 7, 9], "{other:?}");
                assert_eq!(covers_extent(&found.runs), than[0] == UNREADABLE);
            }
        }
    }

    #[test]
    fn zeroes_leave_no_blocks() {
        let run = Run { offset: 0, content: Content::Zeroes(EXTENT_BYTES_MAX) };
        let Patched { blocks, data, .. } = patch(id(1, 1), extent(&[(0, 1), (255, 2)]), LostBlocks::default(), &[run]);
        assert!(blocks.is_empty() && data.is_none());
    }

    #[test]
    fn lost_blocks_stay_lost_unless_they_are_patched() {
        let mut lost = LostBlocks::default();
        let sum_of = |block, value| BlockChecksum::of(id(1, 1), block, extent(&[(block, value)]).block(block));
        [0, 7, 8, 20].into_iter().for_each(|block| lost.insert(block, (block == 7).then_some(sum_of(7, 5))));
        let bytes = Bytes::copy_from_slice(&extent(&[(1, 1), (7, 0)]));
        let sums = block_checksums(id(1, 1), &bytes, &lost);
        assert_eq!((sums[7], sums[8], sums[1] == UNREADABLE), (UNREADABLE, UNREADABLE, false));
        let found = difference(id(1, 1), Version::ZERO.next(), &bytes, &lost, &sums);
        let run = |offset: u32, content| Run { offset: offset * 4_096, content };
        let unknown = |block| run(block, Content::Lost(vec![None]));
        let expected = [unknown(0), run(7, Content::Lost(vec![Some(sum_of(7, 5).0), None])), unknown(20)];
        assert_eq!(found.runs, expected, "whatever the other copy has");
        let data = run(7, Content::Data(Bytes::from(vec![5; 4_096])));
        let sums = vec![None, Some(sum_of(31, 9).0), Some(sum_of(32, 9).0)];
        let runs = [data, run(20, Content::Zeroes(4_096)), run(30, Content::Lost(sums))];
        let patched = patch(id(1, 1), extent(&[(1, 1), (30, 9), (31, 9), (32, 8)]), lost, &runs);
        assert_eq!(patched.blocks.iter().collect::<Vec<_>>(), [0, 1, 7, 8, 30, 31, 32]);
        assert_eq!(patched.lost.iter().collect::<Vec<_>>(), [0, 8, 30, 32], "31 is what was lost");
        assert_eq!((patched.lost.sum(30), patched.lost.sum(32)), (None, Some(sum_of(32, 9))));
        assert_eq!(patched.data.unwrap().blocks(), 7);
    }

    #[test]
    fn lost_blocks_are_known_again_by_their_checksums() {
        let sum_of = |block, value| BlockChecksum::of(id(1, 1), block, extent(&[(block, value)]).block(block));
        let mut lost = LostBlocks::default();
        for (block, value) in [(1, 7), (2, 7), (3, 0), (4, 0), (9, 7)] {
            lost.insert(block, Some(sum_of(block, value)));
        }
        lost.insert(5, None);
        let run = |offset: u32, content| Run { offset: offset * 4_096, content };
        let runs = [
            run(0, Content::Data(Bytes::from([vec![7; 8_192], vec![8; 4_096]].concat()))),
            run(3, Content::Zeroes(3 * 4_096)),
            run(9, Content::Lost(vec![Some(sum_of(9, 7).0)])),
        ];
        let zeroes = || Content::Zeroes(4_096);
        let expected = [run(1, Content::Data(Bytes::from(vec![7; 4_096]))), run(3, zeroes()), run(4, zeroes())];
        assert_eq!(known_again(id(1, 1), &lost, &runs), expected);
    }
}
