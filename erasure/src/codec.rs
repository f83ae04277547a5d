//! The code of one geometry: encode, verify, update.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::simd::{Kernel, Program, Sums};
use crate::{Error, Geometry, Plan, ShardSet, points, transform};

/// How results are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stores {
    /// Through the caches: right where the shards are hashed or sent next.
    #[default]
    Cached,
    /// Past the caches: right for bulk work, where a shard is next looked at long after. The outputs must stand equally to
    /// multiples of 64 bytes for this to have an effect (see [`crate::stride`]); the bytes are the same anyway.
    Streaming,
}

/// The code of one [`Geometry`], compiled for one [`Kernel`].
///
/// All methods take `&self` and may run on many threads at once. None allocates but [`Codec::plan`],
/// [`Codec::reconstruct`] and [`Codec::update`].
#[derive(Debug)]
pub struct Codec {
    geometry: Geometry,
    kernel: Kernel,
    /// The parity's rows over the data.
    sums: Box<dyn Sums>,
    /// The same by fewer products, where the geometry allows.
    transform: Option<Box<dyn Program>>,
}

impl Codec {
    /// The code with the fastest kernel of this CPU.
    #[must_use]
    pub fn new(geometry: Geometry) -> Self {
        Self::with_kernel(geometry, Kernel::best())
    }

    /// The code with this kernel, to compare and to test.
    ///
    /// # Panics
    /// If the CPU does not have it: see [`Kernel::is_available`].
    #[must_use]
    pub fn with_kernel(geometry: Geometry, kernel: Kernel) -> Self {
        let numbers: Vec<u8> = (0..geometry.total()).map(point).collect();
        let (data, parity) = numbers.split_at(geometry.data());
        let sums = kernel.matrix(&points::rows(data, parity));
        let transform = transform::skews(geometry).and_then(|skews| kernel.transform(&skews));
        Self { geometry, kernel, sums, transform }
    }

    /// The number of shards.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The instruction set.
    #[must_use]
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// Writes all K parity shards from all M data shards, each in the order of their numbers. All are equally long; any
    /// length and any alignment will do.
    ///
    /// # Errors
    /// [`Error::ShardCount`], [`Error::ShardLength`].
    pub fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]], stores: Stores) -> Result<(), Error> {
        self.check_stripe(data, parity)?;
        self.encoder().write(data, parity, stores);
        Ok(())
    }

    /// Whether the parity is what the data makes it. `shards` are all M + K in the order of their numbers.
    ///
    /// A `false` does not say which shard is wrong; that takes a checksum of each.
    ///
    /// # Errors
    /// [`Error::ShardCount`], [`Error::ShardLength`].
    pub fn verify(&self, shards: &[&[u8]]) -> Result<bool, Error> {
        check_count(shards.len(), self.geometry.total())?;
        check_lengths(shards.iter().map(|shard| shard.len()))?;
        let (data, parity) = shards.split_at(self.geometry.data());
        Ok(self.encoder().matches(data, parity))
    }

    /// Adds to all K parity shards what data shard `shard` contributes.
    ///
    /// Progressive encoding: parity that was zero, and to which each data shard was added once in any order, is the
    /// stripe's parity.
    ///
    /// # Errors
    /// [`Error::NoSuchShard`], [`Error::ShardCount`], [`Error::ShardLength`].
    pub fn add(&self, shard: usize, data: &[u8], parity: &mut [&mut [u8]]) -> Result<(), Error> {
        self.check_part(shard, &[data], parity)?;
        self.sums.add(shard, &[data], parity);
        Ok(())
    }

    /// Turns all K parity shards from those of a stripe whose data shard `shard` was `old` into those of one where it is
    /// `new`, without the other data shards.
    ///
    /// # Errors
    /// [`Error::NoSuchShard`], [`Error::ShardCount`], [`Error::ShardLength`].
    pub fn update(&self, shard: usize, old: &[u8], new: &[u8], parity: &mut [&mut [u8]]) -> Result<(), Error> {
        self.check_part(shard, &[old, new], parity)?;
        self.sums.change(shard, old, new, parity);
        Ok(())
    }

    /// How to get the shards `wanted` from those `present`. The plan reads M of them, and prefers low numbers.
    ///
    /// Making a plan costs about M squared steps; keep those that come again in a [`crate::PlanCache`].
    ///
    /// # Errors
    /// [`Error::NoSuchShard`], [`Error::TooFewShards`], [`Error::NotLost`].
    pub fn plan(&self, present: ShardSet, wanted: ShardSet) -> Result<Plan, Error> {
        Plan::new(self.geometry, self.kernel, present, wanted)
    }

    /// Writes the lost shards named in `wanted` from those `present` (all M + K in order, `None` where a shard is lost),
    /// without keeping the plan. Sorts `wanted` by number; a number that stands in it twice is an [`Error::ShardCount`].
    ///
    /// # Errors
    /// [`Error::ShardCount`], [`Error::ShardLength`], [`Error::NoSuchShard`], [`Error::TooFewShards`], [`Error::NotLost`].
    pub fn reconstruct(
        &self,
        present: &[Option<&[u8]>],
        wanted: &mut [(usize, &mut [u8])],
        stores: Stores,
    ) -> Result<(), Error> {
        check_count(present.len(), self.geometry.total())?;
        let is_present = |&shard: &usize| present[shard].is_some();
        let numbers: Vec<usize> = (0..present.len()).filter(is_present).collect();
        let total = self.geometry.total();
        if let Some(&(shard, _)) = wanted.iter().find(|(shard, _)| *shard >= total) {
            return Err(Error::NoSuchShard { shard, total });
        }
        let mut targets = ShardSet::EMPTY;
        wanted.iter().try_for_each(|(shard, _)| targets.insert(*shard))?;
        check_count(targets.len(), wanted.len())?;
        let plan = self.plan(ShardSet::of(&numbers)?, targets)?;
        let sources: Vec<&[u8]> = plan.sources().iter().filter_map(|shard| present[shard]).collect();
        wanted.sort_unstable_by_key(|(shard, _)| *shard);
        let mut outputs: Vec<&mut [u8]> = wanted.iter_mut().map(|(_, output)| &mut **output).collect();
        plan.run(&sources, &mut outputs, stores)
    }

    /// The cheaper of the two programs, which compute the same.
    pub(crate) fn encoder(&self) -> &dyn Program {
        match &self.transform {
            Some(transform) => &**transform,
            None => &*self.sums,
        }
    }

    /// Whether these are all data and all parity shards, and equally long.
    pub(crate) fn check_stripe(&self, data: &[&[u8]], parity: &[&mut [u8]]) -> Result<(), Error> {
        check_count(data.len(), self.geometry.data())?;
        check_count(parity.len(), self.geometry.parity())?;
        check_lengths(data.iter().map(|shard| shard.len()).chain(parity.iter().map(|shard| shard.len())))
    }

    fn check_part(&self, shard: usize, data: &[&[u8]], parity: &[&mut [u8]]) -> Result<(), Error> {
        if shard >= self.geometry.data() {
            return Err(Error::NoSuchShard { shard, total: self.geometry.data() });
        }
        check_count(parity.len(), self.geometry.parity())?;
        check_lengths(data.iter().map(|shard| shard.len()).chain(parity.iter().map(|shard| shard.len())))
    }
}

pub(crate) fn check_count(given: usize, expected: usize) -> Result<(), Error> {
    if given == expected { Ok(()) } else { Err(Error::ShardCount { expected, given }) }
}

pub(crate) fn check_lengths(mut lengths: impl Iterator<Item = usize>) -> Result<(), Error> {
    let Some(expected) = lengths.next() else { return Ok(()) };
    match lengths.find(|&given| given != expected) {
        Some(given) => Err(Error::ShardLength { expected, given }),
        None => Ok(()),
    }
}

/// A shard's number as a point of the field.
pub(crate) fn point(shard: usize) -> u8 {
    u8::try_from(shard).expect("a geometry has at most 256 shards")
}
