//! How to get lost shards back from any M that are left.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::codec::{check_count, check_lengths, point};
use crate::simd::{Kernel, Sums};
use crate::{Codec, Error, Geometry, ShardSet, Stores, points};

/// A way from some shards to others: which to read, and what to do with them. Good for any number of stripes.
#[derive(Debug)]
pub struct Plan {
    sources: ShardSet,
    targets: ShardSet,
    kernel: Kernel,
    /// For each target, its coefficients over the sources; both ascending.
    rows: Vec<Vec<u8>>,
    /// The same rows as a program; none if there is nothing to read or to write.
    sums: Option<Box<dyn Sums>>,
}

impl Plan {
    pub(crate) fn new(geometry: Geometry, kernel: Kernel, present: ShardSet, wanted: ShardSet) -> Result<Self, Error> {
        let total = geometry.total();
        if let Some(shard) = present.iter().chain(wanted.iter()).find(|&shard| shard >= total) {
            return Err(Error::NoSuchShard { shard, total });
        }
        if let Some(shard) = wanted.iter().find(|&shard| present.contains(shard)) {
            return Err(Error::NotLost { shard });
        }
        let needed = geometry.data();
        let sources: Vec<u8> = present.iter().take(needed).map(point).collect();
        if sources.len() < needed {
            return Err(Error::TooFewShards { needed, present: sources.len() });
        }
        let targets: Vec<u8> = wanted.iter().map(point).collect();
        let rows = points::rows(&sources, &targets);
        let numbers: Vec<usize> = sources.iter().map(|&source| usize::from(source)).collect();
        Ok(Self::of_rows(ShardSet::of(&numbers)?, wanted, kernel, rows))
    }

    fn of_rows(sources: ShardSet, targets: ShardSet, kernel: Kernel, rows: Vec<Vec<u8>>) -> Self {
        let is_empty = rows.first().is_none_or(Vec::is_empty);
        let sums = (!is_empty).then(|| kernel.matrix(&rows));
        Self { sources, targets, kernel, rows, sums }
    }

    /// The shards to read. No other is looked at.
    #[must_use]
    pub fn sources(&self) -> ShardSet {
        self.sources
    }

    /// The shards that it gives.
    #[must_use]
    pub fn targets(&self) -> ShardSet {
        self.targets
    }

    /// Writes the targets from the sources, both in ascending order of their numbers and all equally long.
    ///
    /// # Errors
    /// [`Error::ShardCount`], [`Error::ShardLength`].
    pub fn run(&self, sources: &[&[u8]], targets: &mut [&mut [u8]], stores: Stores) -> Result<(), Error> {
        self.check(sources, targets)?;
        match &self.sums {
            Some(sums) => sums.write(sources, targets, stores),
            None => targets.iter_mut().for_each(|target| target.fill(0)),
        }
        Ok(())
    }

    /// As [`Plan::run`], but adds to what the targets hold: for the parts of a plan one after another.
    ///
    /// # Errors
    /// [`Error::ShardCount`], [`Error::ShardLength`].
    pub fn add(&self, sources: &[&[u8]], targets: &mut [&mut [u8]]) -> Result<(), Error> {
        self.check(sources, targets)?;
        if let Some(sums) = &self.sums {
            sums.add(0, sources, targets);
        }
        Ok(())
    }

    /// The part of this plan that reads only the shards in `held`.
    ///
    /// A server that holds several sources runs its part and sends one sum in their place; the sums of all parts, added
    /// up ([`crate::add`]), are the targets. Shards in `held` that are no sources do not matter.
    #[must_use]
    pub fn part(&self, held: ShardSet) -> Self {
        let is_held: Vec<bool> = self.sources.iter().map(|source| held.contains(source)).collect();
        let cut = |row: &Vec<u8>| {
            let kept = row.iter().zip(&is_held).filter(|(_, is_held)| **is_held);
            kept.map(|(&coefficient, _)| coefficient).collect()
        };
        let mut sources = self.sources;
        self.sources.iter().filter(|&source| !held.contains(source)).for_each(|source| sources.remove(source));
        Self::of_rows(sources, self.targets, self.kernel, self.rows.iter().map(cut).collect())
    }

    fn check(&self, sources: &[&[u8]], targets: &[&mut [u8]]) -> Result<(), Error> {
        check_count(sources.len(), self.sources.len())?;
        check_count(targets.len(), self.targets.len())?;
        check_lengths(sources.iter().map(|shard| shard.len()).chain(targets.iter().map(|shard| shard.len())))
    }
}

/// The plans that were used last, for any number of codecs. One for each thread: there is no lock inside.
#[derive(Debug)]
pub struct PlanCache {
    plans_max: usize,
    /// Counts uses; the plan with the lowest stamp goes first.
    clock: u64,
    plans: BTreeMap<(Geometry, Kernel, ShardSet, ShardSet), Kept>,
}

#[derive(Debug)]
struct Kept {
    plan: Plan,
    used: u64,
}

impl PlanCache {
    /// A cache of at most `plans_max` plans, and of one at least.
    #[must_use]
    pub fn new(plans_max: usize) -> Self {
        Self { plans_max: plans_max.max(1), clock: 0, plans: BTreeMap::new() }
    }

    /// As [`Codec::plan`], made only if it is not kept. Makes room by dropping the plan that was used longest ago.
    ///
    /// # Errors
    /// As [`Codec::plan`].
    pub fn plan(&mut self, codec: &Codec, present: ShardSet, wanted: ShardSet) -> Result<&Plan, Error> {
        self.clock += 1;
        let key = (codec.geometry(), codec.kernel(), present, wanted);
        if !self.plans.contains_key(&key) {
            let plan = codec.plan(present, wanted)?;
            self.make_room();
            self.plans.insert(key, Kept { plan, used: 0 });
        }
        let kept = self.plans.get_mut(&key).expect("found or just put in");
        kept.used = self.clock;
        Ok(&kept.plan)
    }

    /// Plans kept now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.plans.len()
    }

    /// Whether no plan is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.plans.is_empty()
    }

    fn make_room(&mut self) {
        if self.plans.len() < self.plans_max {
            return;
        }
        let oldest = self.plans.iter().min_by_key(|(_, kept)| kept.used).map(|(key, _)| *key);
        if let Some(key) = oldest {
            self.plans.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Present and wanted for each single loss in this geometry.
    fn losses(data: usize, parity: usize) -> (Codec, Vec<(ShardSet, ShardSet)>) {
        let codec = Codec::new(Geometry::new(data, parity).unwrap());
        let loss = |lost: usize| {
            let mut present = ShardSet::first(data + parity);
            present.remove(lost);
            (present, ShardSet::of(&[lost]).unwrap())
        };
        (codec, (0..data + parity).map(loss).collect())
    }

    /// Against a plain list in the order of use, with several geometries in one cache.
    #[test]
    fn the_plan_used_longest_ago_leaves() {
        for (plans_max, kept_max) in [(0, 1), (1, 1), (2, 2), (5, 5), (100, 14)] {
            let codecs = [losses(4, 2), losses(2, 2), losses(2, 2), losses(3, 1)];
            let mut cache = PlanCache::new(plans_max);
            let mut recent: Vec<(Geometry, ShardSet, ShardSet)> = Vec::new();
            let mut state = 1_usize;
            for _ in 0..2000 {
                state = (state * 1_103_515_245 + 12_345) % (1 << 31);
                let (codec, losses) = &codecs[(state >> 8) % codecs.len()];
                let (present, wanted) = losses[(state >> 16) % losses.len()];
                let used = (codec.geometry(), present, wanted);
                recent.retain(|kept| *kept != used);
                recent.push(used);
                if recent.len() > kept_max {
                    recent.remove(0);
                }

                let expected = codec.plan(present, wanted).unwrap();
                let plan = cache.plan(codec, present, wanted).unwrap();
                let is_same = plan.rows == expected.rows && plan.sources == expected.sources;
                assert!(is_same && plan.targets == wanted, "{} {wanted:?}", codec.geometry());
                let kept: alloc::collections::BTreeSet<_> =
                    cache.plans.keys().map(|&(geometry, _, present, wanted)| (geometry, present, wanted)).collect();
                assert_eq!(kept, recent.iter().copied().collect(), "at most {plans_max}");
                assert_eq!((cache.len(), cache.is_empty()), (recent.len(), false));
            }
        }
    }

    /// A hit is the plan that was kept, not another one made.
    #[test]
    fn a_plan_is_made_once() {
        let (codec, losses) = losses(4, 2);
        let mut cache = PlanCache::new(2);
        assert!(cache.is_empty());
        let (present, wanted) = losses[0];
        let first = cache.plan(&codec, present, wanted).unwrap().rows.as_ptr();
        assert_eq!(cache.plan(&codec, present, wanted).unwrap().rows.as_ptr(), first);
    }

    /// Kernels have plans of their own: their factors are not alike.
    #[test]
    fn kernels_do_not_share_plans() {
        let (codec, losses) = losses(4, 2);
        let portable = Codec::with_kernel(codec.geometry(), Kernel::Portable);
        let mut cache = PlanCache::new(2);
        let (present, wanted) = losses[0];
        for codec in [&codec, &portable] {
            assert_eq!(cache.plan(codec, present, wanted).unwrap().kernel, codec.kernel());
        }
        assert_eq!(cache.len(), if codec.kernel() == Kernel::Portable { 1 } else { 2 });
    }
}
