//! The blocks that a case works on: one buffer, cut into parts for threads, and those into shards.

use core::ops::Range;

use ashlar_erasure::{Codec, Error, ShardSet, Stores};

use super::case::{Case, Layout, Walk, Work};
use super::pattern;
use crate::failure::Failure;
use crate::os::{crew, pages::Pages};

/// Blocks of one layout, data filled in.
#[derive(Debug)]
pub struct Blocks {
    layout: Layout,
    pages: Pages,
    /// Whether the parity of every block is right.
    is_encoded: bool,
}

/// The blocks of one thread.
#[derive(Debug)]
pub struct Part<'a> {
    /// Their numbers.
    pub numbers: Range<usize>,
    /// Their bytes.
    pub bytes: &'a mut [u8],
}

/// One block, its shards lent out as a case needs them.
#[derive(Debug)]
pub struct Job<'a> {
    /// What is read, ascending.
    pub sources: Vec<&'a [u8]>,
    /// What is written, ascending.
    pub outputs: Vec<&'a mut [u8]>,
    /// All but the lost shards.
    pub present: ShardSet,
    /// The shards that `outputs` are.
    pub lost: ShardSet,
    /// Hashes of sources, then of outputs, where the case takes them.
    pub sums: Vec<u64>,
    /// The sources of the job that comes next, where there is another.
    pub next: Vec<&'a [u8]>,
}

impl Blocks {
    /// Takes memory for `layout` and fills in the data, on `threads` threads.
    ///
    /// # Errors
    /// The operating system gives no memory or no threads.
    pub fn new(layout: Layout, threads: usize) -> Result<Self, Failure> {
        let len = layout.buffer_len().ok_or_else(|| no_memory("the blocks are longer than any memory"))?;
        let pages = Pages::new(len).map_err(|error| no_memory(&error.to_string()))?;
        let mut blocks = Self { layout, pages, is_encoded: false };
        let parts = blocks.parts(layout.blocks, threads.min(layout.blocks));
        crew::run(parts, |part| {
            for (number, block) in part.numbers.zip(part.bytes.chunks_exact_mut(layout.block_len())) {
                let shards = block.chunks_exact_mut(layout.stride).take(layout.geometry.data());
                shards.enumerate().for_each(|(shard, bytes)| {
                    pattern::fill(number, shard, &mut bytes[..layout.shard_len]);
                });
            }
        })
        .map_err(|error| no_threads(&error))?;
        Ok(blocks)
    }

    /// Where the shards stand.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Whether nearly all of it stands on huge pages.
    #[must_use]
    pub fn is_on_huge_pages(&self) -> bool {
        self.pages.huge_bytes() >= self.pages.bytes().len() / 10 * 9
    }

    /// The parts of `case`, one for each thread.
    pub fn parts_of(&mut self, case: &Case) -> Vec<Part<'_>> {
        let blocks = if case.walk == Walk::Cold { self.layout.blocks } else { case.threads };
        self.parts(blocks, case.threads)
    }

    /// Makes the parity right before a case that reads it, and remembers what a case leaves behind.
    ///
    /// # Errors
    /// The operating system gives no threads.
    pub fn prepare(&mut self, case: &Case, codec: &Codec) -> Result<(), Failure> {
        match (case.work, case.walk) {
            (Work::Xor, _) => self.is_encoded = false,
            (Work::Encode | Work::EncodeHash(_), Walk::Cold) => self.is_encoded = true,
            (Work::Encode | Work::EncodeHash(_), _) => {}
            (Work::Decode(_), _) if self.is_encoded => {}
            (Work::Decode(_), _) => {
                self.encode(codec, case.threads)?;
                self.is_encoded = true;
            }
        }
        Ok(())
    }

    fn encode(&mut self, codec: &Codec, threads: usize) -> Result<(), Failure> {
        let layout = self.layout;
        let parts = self.parts(layout.blocks, threads.min(layout.blocks));
        let results = crew::run(parts, |part| {
            let mut jobs = part.bytes.chunks_exact_mut(layout.block_len()).map(|block| Job::encoding(&layout, block));
            jobs.try_for_each(|mut job| codec.encode(&job.sources, &mut job.outputs, Stores::Streaming))
        });
        let results: Result<(), Error> = results.map_err(|error| no_threads(&error))?.into_iter().collect();
        results.expect("shards are cut as the codec wants them");
        Ok(())
    }

    /// The first `blocks` blocks in `count` parts as equal as can be.
    fn parts(&mut self, blocks: usize, count: usize) -> Vec<Part<'_>> {
        let block_len = self.layout.block_len();
        let mut rest = &mut self.pages.bytes_mut()[..blocks * block_len];
        let mut parts = Vec::with_capacity(count);
        for index in 0..count {
            let numbers = blocks * index / count..blocks * (index + 1) / count;
            let (bytes, others) = rest.split_at_mut(numbers.len() * block_len);
            parts.push(Part { numbers, bytes });
            rest = others;
        }
        parts
    }
}

impl<'a> Job<'a> {
    /// Block `number`, as `case` wants it.
    ///
    /// # Errors
    /// As [`Codec::plan`].
    pub fn new(case: &Case, layout: &Layout, codec: &Codec, number: usize, block: &'a mut [u8]) -> Result<Self, Error> {
        let Work::Decode(Some(count)) = case.work else { return Ok(Self::encoding(layout, block)) };
        let lost = pattern::lost(case.geometry, number, count);
        let mut present = ShardSet::first(case.geometry.total());
        lost.iter().for_each(|shard| present.remove(shard));
        let sources = codec.plan(present, lost)?.sources();
        Ok(Self::cut(layout, block, sources, present, lost))
    }

    fn encoding(layout: &Layout, block: &'a mut [u8]) -> Self {
        let data = ShardSet::first(layout.geometry.data());
        let mut parity = ShardSet::first(layout.geometry.total());
        data.iter().for_each(|shard| parity.remove(shard));
        Self::cut(layout, block, data, data, parity)
    }

    fn cut(layout: &Layout, block: &'a mut [u8], read: ShardSet, present: ShardSet, lost: ShardSet) -> Self {
        let (mut sources, mut outputs) = (Vec::new(), Vec::new());
        for (shard, bytes) in block.chunks_exact_mut(layout.stride).enumerate() {
            let bytes = &mut bytes[..layout.shard_len];
            if lost.contains(shard) {
                outputs.push(bytes);
            } else if read.contains(shard) {
                sources.push(&*bytes);
            }
        }
        Self { sources, outputs, present, lost, sums: vec![0; layout.geometry.total()], next: Vec::new() }
    }

    /// Overwrites what the case has to write.
    pub fn poison(&mut self) {
        self.outputs.iter_mut().for_each(|output| output.fill(pattern::POISON));
        self.sums.fill(0);
    }
}

/// No memory for the blocks.
#[must_use]
pub fn no_memory(why: &str) -> Failure {
    Failure::world(format!("no memory for the blocks: {why}"), "ask for fewer or smaller ones (--blocks, --block-size)")
}

/// No threads for the crew.
#[must_use]
pub fn no_threads(error: &std::io::Error) -> Failure {
    Failure::world(format!("cannot start threads: {error}"), "ask for fewer (--threads), or raise this user's limits")
}
