//! Whether what was timed is right.
//!
//! Every block that a case touched is checked: its parity with another kernel than the one that was timed and, every
//! `SAMPLE_EVERY`-th block, with plain integers too; rebuilt data against the formula that made it; hashes against a
//! second computation, and one of each thread against the definition of the CRC.

use ashlar_erasure::{Codec, Kernel};

use super::blocks::Part;
use super::case::{Case, Hash, Layout, Work};
use super::{hash, pattern};

/// Every so-many-th block is checked more thoroughly; the first of each thread always is.
const SAMPLE_EVERY: usize = 64;

/// What was found wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// The block's number.
    pub block: usize,
    /// What is wrong with it.
    pub what: String,
}

/// Checks the blocks of one case.
#[derive(Debug)]
pub struct Checker {
    case: Case,
    layout: Layout,
    /// Not the kernel that was timed, where the CPU has another.
    other: Codec,
    portable: Codec,
}

impl Checker {
    /// For blocks that `case` has worked on.
    #[must_use]
    pub fn new(case: Case, layout: Layout) -> Self {
        let mut others = Kernel::ALL.into_iter().filter(|&kernel| kernel.is_available() && kernel != case.kernel);
        let other = Codec::with_kernel(case.geometry, others.next_back().unwrap_or(Kernel::Portable));
        let portable = Codec::with_kernel(case.geometry, Kernel::Portable);
        Self { case, layout, other, portable }
    }

    /// Checks a thread's blocks; `sums` are the hashes that it took of each.
    ///
    /// # Errors
    /// The first wrong block.
    pub fn part(&self, part: &Part<'_>, sums: &[Vec<u64>]) -> Result<(), Wrong> {
        let blocks = part.bytes.chunks_exact(self.layout.block_len());
        for (index, (number, block)) in part.numbers.clone().zip(blocks).enumerate() {
            let shards = block.chunks_exact(self.layout.stride);
            let shards: Vec<&[u8]> = shards.map(|shard| &shard[..self.layout.shard_len]).collect();
            let is_sample = index % SAMPLE_EVERY == 0;
            let mut result = match self.case.work {
                Work::Xor => self.sum(&shards),
                _ => self.stripe(number, &shards, is_sample),
            };
            if let (Work::EncodeHash(Some(hash)), Ok(())) = (self.case.work, &result) {
                result = hashes(hash, &shards, &sums[index], index == 0);
            }
            result.map_err(|what| Wrong { block: number, what })?;
        }
        Ok(())
    }

    fn stripe(&self, number: usize, shards: &[&[u8]], is_sample: bool) -> Result<(), String> {
        let data = 0..self.case.geometry.data();
        let rebuilt = match self.case.work {
            Work::Decode(Some(count)) => pattern::lost(self.case.geometry, number, count).iter().collect(),
            _ => Vec::new(),
        };
        for shard in data.filter(|shard| is_sample || rebuilt.contains(shard)) {
            if let Some(at) = pattern::first_difference(number, shard, shards[shard]) {
                return Err(format!("data shard {shard} differs at byte {at}"));
            }
        }
        let codecs = [Some(&self.other), is_sample.then_some(&self.portable)];
        for codec in codecs.into_iter().flatten() {
            let is_right = codec.verify(shards).expect("shards are cut as the codec wants them");
            if !is_right {
                return Err(format!("the parity is not what kernel {} makes of the data", codec.kernel()));
            }
        }
        Ok(())
    }

    /// The twin of the limit: each parity shard is the exclusive-or of the data.
    fn sum(&self, shards: &[&[u8]]) -> Result<(), String> {
        let (data, parity) = shards.split_at(self.case.geometry.data());
        let mut sum = vec![0; self.layout.shard_len];
        for shard in data {
            sum.iter_mut().zip(*shard).for_each(|(sum, byte)| *sum ^= byte);
        }
        match parity.iter().position(|shard| *shard != sum) {
            Some(at) => Err(format!("output {at} is not the exclusive-or of the data")),
            None => Ok(()),
        }
    }
}

fn hashes(kind: Hash, shards: &[&[u8]], sums: &[u64], is_sample: bool) -> Result<(), String> {
    let expected = shards.iter().map(|shard| hash::whole(kind, shard));
    if let Some(at) = expected.zip(sums).position(|(expected, &sum)| expected != sum) {
        return Err(format!("the {kind} of shard {at} differs"));
    }
    let (Some(shard), Some(&sum), true) = (shards.first(), sums.first(), is_sample && kind == Hash::Crc64Nvme) else {
        return Ok(());
    };
    if crc64_nvme(shard) == sum { Ok(()) } else { Err("the CRC is not what its definition says".to_owned()) }
}

/// The CRC by its definition, bit by bit: polynomial 0xad93d23594c93659, reflected, all ones before and after (NVM
/// Express command set specification 1.0d, 5.2.1.3.4).
fn crc64_nvme(bytes: &[u8]) -> u64 {
    const REFLECTED: u64 = 0x9a6c_9329_ac4b_c9b5;
    let step = |sum: u64| (sum >> 1) ^ if sum & 1 == 1 { REFLECTED } else { 0 };
    !bytes.iter().fold(u64::MAX, |sum, &byte| (0..8).fold(sum ^ u64::from(byte), |sum, _| step(sum)))
}

#[cfg(test)]
mod tests {
    use super::super::blocks::Blocks;
    use super::super::case::Walk;
    use super::super::measure;
    use super::super::tests::small;
    use super::*;
    use ashlar_erasure::{Geometry, Stores};

    #[test]
    fn the_crc_is_the_catalogued_one() {
        assert_eq!(crc64_nvme(b"123456789"), 0xae8b_1486_0a79_9888);
        assert_eq!(hash::whole(Hash::Crc64Nvme, b"123456789"), 0xae8b_1486_0a79_9888);
    }

    /// Every byte of a stripe counts, whatever was done to it.
    #[test]
    fn one_wrong_bit_anywhere_is_found() {
        let geometry = Geometry::new(4, 2).unwrap();
        let codec = Codec::new(geometry);
        let hashed = Work::EncodeHash(Some(Hash::Crc64Nvme));
        for (work, stores) in [
            (Work::Xor, Stores::Cached),
            (Work::Encode, Stores::Cached),
            (hashed, Stores::Cached),
            (hashed, Stores::Streaming),
            (Work::Decode(Some(2)), Stores::Cached),
        ] {
            let case = Case { work, walk: Walk::Cold, geometry, threads: 1, kernel: Kernel::best(), stores };
            let layout = Layout { geometry, shard_len: 64, stride: 64, blocks: 2 };
            let mut blocks = Blocks::new(layout, 1).unwrap();
            let step = measure::step_of(&case, &codec);
            blocks.prepare(&case, &codec).unwrap();
            let mut parts = blocks.parts_of(&case);
            let sums = measure::once(&case, &layout, &codec, &mut parts[0], &step);
            let checker = Checker::new(case, layout);
            assert_eq!(checker.part(&parts[0], &sums), Ok(()), "{case}");
            for at in 0..parts[0].bytes.len() {
                parts[0].bytes[at] ^= 1 << (at % 8);
                let wrong = checker.part(&parts[0], &sums).unwrap_err();
                assert_eq!(wrong.block, at / layout.block_len(), "{case}: byte {at}");
                parts[0].bytes[at] ^= 1 << (at % 8);
            }
            if matches!(work, Work::EncodeHash(_)) {
                let mut sums = sums.clone();
                sums[1][5] ^= 1;
                assert_eq!(checker.part(&parts[0], &sums).unwrap_err().block, 1, "{case}: hash");
            }
        }
    }

    /// A consistent stripe of other data is wrong too, where shards were rebuilt.
    #[test]
    fn other_data_with_fitting_parity_is_found() {
        let study = small();
        let geometry = study.geometries[0];
        let (walk, kernel) = (Walk::Cold, Kernel::best());
        let case = Case { work: Work::Decode(Some(1)), walk, geometry, threads: 1, kernel, stores: Stores::Cached };
        let layout = Layout::of(&study, &case);
        let mut blocks = Blocks::new(layout, 1).unwrap();
        let victim = (0..layout.blocks).find(|&block| pattern::lost(geometry, block, 1).iter().all(|shard| shard < 4));
        let victim = victim.unwrap();
        let shard = pattern::lost(geometry, victim, 1).iter().next().unwrap();
        blocks.parts_of(&case)[0].bytes[victim * layout.block_len() + shard * layout.stride] ^= 1;
        blocks.prepare(&case, &Codec::new(geometry)).unwrap();
        let wrong = Checker::new(case, layout).part(&blocks.parts_of(&case)[0], &[]).unwrap_err();
        assert_eq!(wrong, Wrong { block: victim, what: format!("data shard {shard} differs at byte 0") });
    }
}
