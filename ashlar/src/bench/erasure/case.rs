//! The cases of the study and their names, which stay from release to release.
//!
//! `{encode|decode}/{cold|hot|hot-padded}/{M+K}/t{threads}`, then `/lost{n}`, the hash, the kernel unless it is the best
//! of this CPU, and the stores unless they are the usual ones. `decode/...` without `/lost{n}` is the mean over all
//! counts, `encode+hash/...` without a hash the faster of the two. `copy/{memcpy|streaming}/t{threads}` and `xor/...` are
//! what the machine allows.

use core::fmt;

use ashlar_erasure::{Geometry, Kernel, Stores, stride};

use super::Study;
use crate::os::yardstick::Route;

/// Shards stand at multiples of this: a cache line.
const LINE_BYTES: usize = 64;

/// How a thread goes through blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Walk {
    /// All blocks in turn: none is in a cache when its turn comes.
    Cold,
    /// One block again and again.
    Hot,
    /// As hot, with shards at the distance that [`stride`] gives.
    HotPadded,
}

/// A checksum of shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hash {
    /// XXH3, as for messages and extents.
    Xxh3,
    /// The CRC that S3 clients send.
    Crc64Nvme,
}

/// What is done with a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// Reads M shards, writes K, with the cheapest arithmetic: the limit.
    Xor,
    /// Writes the parity.
    Encode,
    /// Writes the parity and hashes every shard: cold and [`Stores::Streaming`] by tiles, else one after the other. `None`
    /// is the faster hash.
    EncodeHash(Option<Hash>),
    /// Writes so many lost shards; `None` is the mean over all counts.
    Decode(Option<usize>),
}

/// One case over stripes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// What is done.
    pub work: Work,
    /// Through which blocks.
    pub walk: Walk,
    /// Shards of a block.
    pub geometry: Geometry,
    /// Threads, each with blocks of its own.
    pub threads: usize,
    /// The instruction set.
    pub kernel: Kernel,
    /// How results are written.
    pub stores: Stores,
}

/// What a figure is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// Memory to memory.
    Copy {
        /// How the copy is written.
        route: Route,
        /// Threads, each with a part of its own.
        threads: usize,
    },
    /// Stripes.
    Stripes(Case),
}

/// Where the shards of blocks stand in a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Shards of a block.
    pub geometry: Geometry,
    /// Bytes of a shard.
    pub shard_len: usize,
    /// From the beginning of a shard to that of the next.
    pub stride: usize,
    /// Blocks in the buffer.
    pub blocks: usize,
}

impl Layout {
    /// The layout of `case` in a study of `study`'s sizes.
    #[must_use]
    pub fn of(study: &Study, case: &Case) -> Self {
        let shard_len = shard_len(study.block_bytes, case.geometry);
        let (stride, blocks) = match case.walk {
            Walk::Cold | Walk::Hot => (shard_len, study.blocks),
            Walk::HotPadded => (stride(shard_len), study.threads_most()),
        };
        Self { geometry: case.geometry, shard_len, stride, blocks }
    }

    /// Bytes from the beginning of a block to that of the next.
    #[must_use]
    pub fn block_len(&self) -> usize {
        self.geometry.total() * self.stride
    }

    /// Bytes of all blocks; `None` beyond what can be counted.
    #[must_use]
    pub fn buffer_len(&self) -> Option<usize> {
        self.geometry.total().checked_mul(self.stride)?.checked_mul(self.blocks)
    }
}

/// Bytes of each shard of a block: whole lines.
#[must_use]
pub fn shard_len(block_bytes: usize, geometry: Geometry) -> usize {
    block_bytes.div_ceil(geometry.data()).max(1).next_multiple_of(LINE_BYTES)
}

/// The stores that fit: what is looked at again and again stays in the caches.
#[must_use]
pub fn usual_stores(walk: Walk) -> Stores {
    match walk {
        Walk::Cold => Stores::Streaming,
        Walk::Hot | Walk::HotPadded => Stores::Cached,
    }
}

/// All cases over stripes that `study` asks for; those that share a buffer stand together.
#[must_use]
pub fn cases(study: &Study) -> Vec<Case> {
    let mut cases = Vec::new();
    for (index, &geometry) in study.geometries.iter().enumerate() {
        let shard_len = shard_len(study.block_bytes, geometry);
        for is_padded in [false, true] {
            if is_padded && stride(shard_len) == shard_len {
                continue;
            }
            let walks = study.walks.iter().filter_map(|&walk| match (walk, is_padded) {
                (walk, false) => Some(walk),
                (Walk::Hot, true) if !study.is_quick => Some(Walk::HotPadded),
                (_, true) => None,
            });
            let walks: Vec<Walk> = walks.collect();
            for &threads in &study.threads {
                for &walk in &walks {
                    for work in works(study, geometry, walk, index == 0) {
                        add_variants(study, work, walk, geometry, threads, &mut cases);
                    }
                }
            }
        }
    }
    cases.retain(|case| study.wants(&case.to_string()));
    cases
}

/// What is done in one walk. A quick study leaves out what shows least.
fn works(study: &Study, geometry: Geometry, walk: Walk, is_first: bool) -> Vec<Work> {
    let mut works = vec![Work::Xor, Work::Encode];
    if walk != Walk::HotPadded && (is_first || !study.is_quick) {
        works.extend([Hash::Xxh3, Hash::Crc64Nvme].map(|hash| Work::EncodeHash(Some(hash))));
    }
    let most = geometry.parity();
    let is_wanted = |&lost: &usize| !study.is_quick || lost == 1 || lost == most;
    works.extend((1..=most).filter(is_wanted).map(|lost| Work::Decode(Some(lost))));
    works
}

fn add_variants(study: &Study, work: Work, walk: Walk, geometry: Geometry, threads: usize, cases: &mut Vec<Case>) {
    let usual = usual_stores(walk);
    let stores = if study.stores.is_empty() { vec![usual] } else { study.stores.clone() };
    // The limit knows no kernel, and a hash is looked at with the best one only.
    let best = [study.best_kernel()];
    let kernels = if matches!(work, Work::Encode | Work::Decode(_)) { &study.kernels[..] } else { &best };
    for &kernel in kernels {
        cases.extend(stores.iter().map(|&stores| Case { work, walk, geometry, threads, kernel, stores }));
    }
}

impl Subject {
    /// Its threads.
    #[must_use]
    pub fn threads(&self) -> usize {
        match self {
            Self::Copy { threads, .. } => *threads,
            Self::Stripes(case) => case.threads,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Copy { route: Route::Cached, threads } => write!(f, "copy/memcpy/t{threads}"),
            Self::Copy { route: Route::Streaming, threads } => write!(f, "copy/streaming/t{threads}"),
            Self::Stripes(case) => write!(f, "{case}"),
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let work = match self.work {
            Work::Xor => "xor",
            Work::Encode => "encode",
            Work::EncodeHash(_) => "encode+hash",
            Work::Decode(_) => "decode",
        };
        write!(f, "{work}/{}/{}/t{}", self.walk, self.geometry, self.threads)?;
        match self.work {
            Work::EncodeHash(Some(hash)) => write!(f, "/{hash}")?,
            Work::Decode(Some(lost)) => write!(f, "/lost{lost}")?,
            Work::Xor | Work::Encode | Work::EncodeHash(None) | Work::Decode(None) => {}
        }
        if self.kernel != Kernel::best() {
            write!(f, "/{}", self.kernel)?;
        }
        match self.stores {
            stores if stores == usual_stores(self.walk) => Ok(()),
            Stores::Cached => f.write_str("/cached"),
            Stores::Streaming => f.write_str("/streaming"),
        }
    }
}

impl fmt::Display for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cold => "cold",
            Self::Hot => "hot",
            Self::HotPadded => "hot-padded",
        })
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Xxh3 => "xxh3",
            Self::Crc64Nvme => "crc64-nvme",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::small;
    use super::*;

    #[test]
    fn names() {
        let geometry = Geometry::new(12, 4).unwrap();
        let best = Kernel::best();
        let other = if best == Kernel::Portable { "" } else { "/portable" };
        let case = |work, walk, kernel, stores| Case { work, walk, geometry, threads: 2, kernel, stores }.to_string();
        let (cold, hot, padded) = (Walk::Cold, Walk::Hot, Walk::HotPadded);
        let (cached, streaming) = (Stores::Cached, Stores::Streaming);
        for (given, expected) in [
            (case(Work::Encode, cold, best, streaming), "encode/cold/12+4/t2".to_owned()),
            (case(Work::Encode, cold, best, cached), "encode/cold/12+4/t2/cached".to_owned()),
            (case(Work::Encode, hot, best, streaming), "encode/hot/12+4/t2/streaming".to_owned()),
            (case(Work::Encode, padded, Kernel::Portable, cached), format!("encode/hot-padded/12+4/t2{other}")),
            (case(Work::Decode(None), cold, best, streaming), "decode/cold/12+4/t2".to_owned()),
            (
                case(Work::Decode(Some(3)), cold, Kernel::Portable, cached),
                format!("decode/cold/12+4/t2/lost3{other}/cached"),
            ),
            (
                case(Work::EncodeHash(Some(Hash::Crc64Nvme)), cold, best, streaming),
                "encode+hash/cold/12+4/t2/crc64-nvme".to_owned(),
            ),
            (case(Work::EncodeHash(None), hot, best, cached), "encode+hash/hot/12+4/t2".to_owned()),
            (case(Work::Xor, cold, best, streaming), "xor/cold/12+4/t2".to_owned()),
            (Subject::Copy { route: Route::Cached, threads: 1 }.to_string(), "copy/memcpy/t1".to_owned()),
            (Subject::Copy { route: Route::Streaming, threads: 9 }.to_string(), "copy/streaming/t9".to_owned()),
        ] {
            assert_eq!(given, expected);
        }
    }

    #[test]
    fn every_name_comes_once() {
        let mut study = small();
        study.kernels = vec![Kernel::best(), Kernel::Portable];
        study.kernels.dedup();
        study.stores = vec![Stores::Cached, Stores::Streaming];
        let mut names: Vec<String> = cases(&study).iter().map(Case::to_string).collect();
        let count = names.len();
        assert!(count > 50, "{count}");
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn only_powers_of_two_are_padded_and_quick_is_less() {
        let mut study = Study { block_bytes: 1 << 20, ..small() };
        study.geometries = [(12, 4), (8, 8)].map(|(data, parity)| Geometry::new(data, parity).unwrap()).to_vec();
        let names = |study: &Study| -> Vec<String> { cases(study).iter().map(Case::to_string).collect() };
        let all = names(&study);
        assert!(all.contains(&"encode/hot-padded/8+8/t1".to_owned()));
        assert!(!all.iter().any(|name| name.contains("hot-padded/12+4")));
        assert_eq!(all.iter().filter(|name| name.starts_with("decode/cold/8+8/t1/lost")).count(), 8);
        study.is_quick = true;
        let quick = names(&study);
        assert!(quick.len() < all.len() && quick.iter().all(|name| all.contains(name)));
        study.only = Some("decode/cold/8+8".into());
        assert_eq!(names(&study).len(), 2 * study.threads.len());
    }
}
