//! Every operation of every kernel: each length, each alignment, each kind of data, and not a byte beside the outputs.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::definition::Definition;
use super::room::{Placement, Room};
use super::{Random, geometry, kernels_under_test, set};
use crate::{Codec, Kernel, Plan, ShardSet, Stores};

/// What outputs hold before they are written.
const OLD: u8 = 0xee;

/// One stripe, one kernel, and all that the kernel can do with the stripe.
struct Trial {
    codec: Codec,
    /// Gives some lost shards from all others.
    plan: Plan,
    /// The same plan, cut in two.
    parts: [Plan; 2],
    /// The lost shards, and what comes of adding them to outputs full of `OLD`.
    lost: Vec<Vec<u8>>,
    added: Vec<Vec<u8>>,
    /// All shards as the definition has them.
    shards: Vec<Vec<u8>>,
    /// The data shard that an update changes, what it becomes, and the parity then.
    updated: usize,
    new: Vec<u8>,
    new_parity: Vec<Vec<u8>>,
    inputs: Vec<Room>,
    outputs: Vec<Room>,
}

impl Trial {
    /// Prepared for the first bytes of these data shards, up to all of them.
    fn new(kernel: Kernel, parity: usize, data: &[Vec<u8>], random: &mut Random) -> Self {
        let (count, len) = (data.len(), data[0].len());
        let definition = Definition::of(count, parity);
        let shards = definition.shards(data);
        let (updated, new) = (random.below(count), random.bytes(len));
        let mut changed = data.to_vec();
        changed[updated].clone_from(&new);
        let new_parity = definition.shards(&changed).split_off(count);

        let codec = Codec::with_kernel(geometry(count, parity), kernel);
        let mut lost = random.choose(parity, count + parity);
        lost.sort_unstable();
        let mut present = ShardSet::first(count + parity);
        lost.iter().for_each(|&shard| present.remove(shard));
        let plan = codec.plan(present, set(&lost)).unwrap();
        let (even, odd): (Vec<usize>, Vec<usize>) = present.iter().partition(|shard| shard % 2 == 0);
        let parts = [plan.part(set(&even)), plan.part(set(&odd))];
        let lost: Vec<Vec<u8>> = lost.iter().map(|&shard| shards[shard].clone()).collect();
        let added = lost.iter().map(|shard| shard.iter().map(|byte| byte ^ OLD).collect()).collect();
        let rooms = |count: usize| (0..count).map(|_| Room::new(len)).collect();
        let (inputs, outputs) = (rooms(count + parity), rooms(parity));
        Self { codec, plan, parts, lost, added, shards, updated, new, new_parity, inputs, outputs }
    }

    fn data(&self) -> usize {
        self.codec.geometry().data()
    }

    fn parity_shard(&self, output: usize) -> &[u8] {
        &self.shards[self.data() + output]
    }

    /// All operations on the first `len` bytes.
    fn check(&mut self, len: usize, placement: Placement) {
        self.check_encode(len, placement);
        self.check_verify(len, placement);
        self.check_add(len, placement);
        self.check_update(len, placement);
        self.check_plan(len, placement);
    }

    /// Puts all shards of the stripe into the inputs' rooms.
    fn place(&mut self, len: usize, placement: Placement) {
        for (index, (room, shard)) in self.inputs.iter_mut().zip(&self.shards).enumerate() {
            room.put(placement, index + 1, &shard[..len]);
        }
    }

    /// Lets `work` write or change the outputs, which begin with `before`, and holds them to `expected`.
    fn outputs(
        &mut self,
        what: &str,
        placement: Placement,
        before: impl Fn(usize) -> Vec<u8>,
        work: impl FnOnce(&Self, &mut [&mut [u8]]),
        expected: impl Fn(&Self, usize) -> &[u8],
    ) {
        let mut rooms = core::mem::take(&mut self.outputs);
        rooms.iter_mut().enumerate().for_each(|(index, room)| room.put(placement, index, &before(index)));
        work(self, &mut rooms.iter_mut().map(Room::content_mut).collect::<Vec<_>>());
        for (index, room) in rooms.iter().enumerate() {
            let is_right = room.content() == &expected(self, index)[..room.content().len()];
            assert!(is_right && room.guards_are_whole(), "{what}: {}", self.describe(index, room, placement));
        }
        self.outputs = rooms;
    }

    fn describe(&self, output: usize, room: &Room, placement: Placement) -> String {
        let (geometry, kernel, len) = (self.codec.geometry(), self.codec.kernel(), room.content().len());
        let guards = if room.guards_are_whole() { "guards whole" } else { "guards broken" };
        format!("{geometry} {kernel}, {len} B, {placement:?}: output {output} is not as defined, or {guards}")
    }

    fn check_encode(&mut self, len: usize, placement: Placement) {
        self.place(len, placement);
        for stores in [Stores::Cached, Stores::Streaming] {
            let encode = |trial: &Self, parity: &mut [&mut [u8]]| {
                trial.codec.encode(&contents(&trial.inputs[..trial.data()]), parity, stores).unwrap();
            };
            self.outputs("encode", placement, |_| vec![OLD; len], encode, Self::parity_shard);
        }
    }

    /// The whole stripe passes, and one with a flipped bit somewhere does not.
    fn check_verify(&mut self, len: usize, placement: Placement) {
        self.place(len, placement);
        assert_eq!(self.codec.verify(&contents(&self.inputs)), Ok(true), "{len} B, {placement:?}");
        if len > 0 {
            let mut random = Random(u64::try_from(len).unwrap());
            let (shard, at, bit) = (random.below(self.inputs.len()), random.below(len), random.below(8));
            self.check_flips(&[(shard, at)], 1 << bit);
        }
    }

    /// With these bytes of these placed shards altered, the stripe does not pass.
    fn check_flips(&mut self, places: &[(usize, usize)], bits: u8) {
        let flip = |inputs: &mut [Room]| places.iter().for_each(|&(shard, at)| inputs[shard].content_mut()[at] ^= bits);
        flip(&mut self.inputs);
        let (geometry, kernel) = (self.codec.geometry(), self.codec.kernel());
        assert_eq!(
            self.codec.verify(&contents(&self.inputs)),
            Ok(false),
            "{geometry} {kernel}, {places:?} ^ {bits:#x}"
        );
        flip(&mut self.inputs);
    }

    /// Each data shard added once, the last one first.
    fn check_add(&mut self, len: usize, placement: Placement) {
        let add = |trial: &Self, parity: &mut [&mut [u8]]| {
            for shard in (0..trial.data()).rev() {
                trial.codec.add(shard, trial.inputs[shard].content(), parity).unwrap();
            }
        };
        self.outputs("add", placement, |_| vec![0; len], add, Self::parity_shard);
    }

    fn check_update(&mut self, len: usize, placement: Placement) {
        let parity: Vec<Vec<u8>> = self.shards[self.data()..].iter().map(|shard| shard[..len].to_vec()).collect();
        let update = |trial: &Self, parity: &mut [&mut [u8]]| {
            let old = trial.inputs[trial.updated].content();
            trial.codec.update(trial.updated, old, &trial.new[..len], parity).unwrap();
        };
        self.outputs(
            "update",
            placement,
            |output| parity[output].clone(),
            update,
            |trial, output| &trial.new_parity[output],
        );
    }

    fn check_plan(&mut self, len: usize, placement: Placement) {
        for stores in [Stores::Cached, Stores::Streaming] {
            let run = |trial: &Self, outputs: &mut [&mut [u8]]| {
                trial.plan.run(&trial.sources(&trial.plan), outputs, stores).unwrap();
            };
            self.outputs("plan", placement, |_| vec![OLD; len], run, |trial, output| &trial.lost[output]);
        }
        let add = |trial: &Self, outputs: &mut [&mut [u8]]| {
            trial.plan.add(&trial.sources(&trial.plan), outputs).unwrap();
        };
        self.outputs("plan adds", placement, |_| vec![OLD; len], add, |trial, output| &trial.added[output]);
        let parts = |trial: &Self, outputs: &mut [&mut [u8]]| {
            let [one, other] = &trial.parts;
            one.run(&trial.sources(one), outputs, Stores::Streaming).unwrap();
            other.add(&trial.sources(other), outputs).unwrap();
        };
        self.outputs("parts", placement, |_| vec![OLD; len], parts, |trial, output| &trial.lost[output]);
    }

    fn sources(&self, plan: &Plan) -> Vec<&[u8]> {
        plan.sources().iter().map(|shard| self.inputs[shard].content()).collect()
    }
}

fn contents(rooms: &[Room]) -> Vec<&[u8]> {
    rooms.iter().map(Room::content).collect()
}

/// Runs `check` for each kernel under test and each geometry, on random data of `len` bytes a shard.
fn each(geometries: &[(usize, usize)], len: usize, mut check: impl FnMut(&mut Trial, &mut Random)) {
    let mut random = Random(2);
    for kernel in kernels_under_test() {
        for &(data, parity) in geometries {
            let data = random.shards(data, len);
            check(&mut Trial::new(kernel, parity, &data, &mut random), &mut random);
        }
    }
}

/// A transform, a matrix of one group and one of several.
#[test]
fn every_length() {
    const LEN_MAX: usize = 4096;
    each(&[(2, 2), (3, 2), (1, 9)], LEN_MAX, |trial, random| {
        for len in 0..=LEN_MAX {
            let (apart, alike) = (Placement::Apart(random.below(64)), Placement::Alike(random.below(64)));
            let (all, some) = if len % 2 == 0 { (apart, alike) } else { (alike, apart) };
            trial.check(len, all);
            trial.check_encode(len, some);
        }
    });
}

#[test]
fn every_alignment() {
    const LENGTHS: [usize; 7] = [1, 15, 33, 64, 65, 129, 700];
    each(&[(4, 4), (12, 4), (5, 3), (3, 10)], 700, |trial, _| {
        for alignment in 0..64 {
            for len in LENGTHS {
                trial.check(len, Placement::Apart(alignment));
                trial.check(len, Placement::Alike(alignment));
            }
        }
    });
}

/// Every shape of transform, and every number of outputs in the last group of a matrix.
#[test]
fn every_shape() {
    let transforms = [(2, 2), (6, 2), (14, 2), (4, 4), (12, 4), (28, 4), (8, 8), (24, 8), (16, 16)];
    let matrices: Vec<(usize, usize)> = (1..=18).flat_map(|parity| [(3, parity), (6, parity)]).collect();
    each(&[&transforms[..], &matrices].concat(), 1100, |trial, random| {
        for len in [63, 64, 96, 320, 1100] {
            trial.check(len, Placement::Alike(random.below(64)));
            trial.check(len, Placement::Apart(random.below(64)));
        }
    });
}

/// Shards longer than any tile of a matrix with many outputs.
#[test]
fn long_shards() {
    each(&[(12, 4), (2, 17), (20, 10), (40, 17), (8, 9)], 33_333, |trial, random| {
        for len in [1023, 1024, 1025, 1535, 1537, 2111, 3072, 4096, 4607, 8192, 8195, 12_345, 33_333] {
            trial.check(len, Placement::Alike(random.below(64)));
        }
        trial.check(33_000, Placement::Apart(random.below(64)));
    });
}

/// Zeros, ones, and single bytes in one shard, near the borders of registers and of the shard.
#[test]
fn extreme_data() {
    const LEN: usize = 333;
    let mut random = Random(3);
    for kernel in kernels_under_test() {
        for (data, parity) in [(4, 4), (6, 2), (3, 2), (5, 9)] {
            for byte in [0x00, 0xff] {
                Trial::new(kernel, parity, &vec![vec![byte; LEN]; data], &mut random).check(LEN, Placement::Apart(0));
            }
            for at in [0, 1, 15, 16, 31, 32, 63, 64, 127, 128, 255, 256, 331, 332] {
                let mut shards = vec![vec![0; LEN]; data];
                shards[at % data][at] = [0x01, 0x80, 0xff][at % 3];
                Trial::new(kernel, parity, &shards, &mut random).check(LEN, Placement::Alike(0));
            }
        }
    }
}

/// Verify sees one flipped bit in any byte of any shard, the last ones too.
#[test]
fn verify_sees_every_flip() {
    each(&[(2, 2), (4, 4), (3, 2), (2, 10)], 300, |trial, random| {
        for len in [1, 5, 16, 31, 32, 33, 63, 64, 65, 127, 150, 300] {
            trial.place(len, Placement::Apart(random.below(64)));
            for shard in 0..trial.inputs.len() {
                for at in 0..len {
                    trial.check_flips(&[(shard, at)], 1 << ((shard + at) % 8));
                }
            }
        }
    });
}

/// Equal differences in two places do not cancel each other, however a kernel folds them.
#[test]
fn verify_sees_equal_differences() {
    const LEN: usize = 1040;
    each(&[(4, 4), (12, 4), (5, 3), (3, 10)], LEN, |trial, _| {
        trial.place(LEN, Placement::Alike(0));
        let (data, total) = (trial.data(), trial.inputs.len());
        for (one, other) in (data..total).flat_map(|one| (one + 1..total).map(move |other| (one, other))) {
            for at in [0, 500, LEN - 1] {
                trial.check_flips(&[(one, at), (other, at)], 0x10);
            }
        }
        for at in [0, 7, 64] {
            for other in (at + 8..LEN).step_by(8) {
                trial.check_flips(&[(data, at), (data, other)], 0x81);
            }
        }
    });
}

/// Outputs are the caller's alone: inputs stay as they are, and parity that is compared is not written.
#[test]
fn inputs_stay() {
    each(&[(4, 4), (3, 2)], 100, |trial, _| {
        for len in [7, 64, 100] {
            trial.check(len, Placement::Apart(3));
            let are_whole = trial.inputs.iter().all(Room::guards_are_whole);
            assert!(
                are_whole
                    && trial.inputs.iter().zip(&trial.shards).all(|(room, shard)| *room.content() == shard[..len])
            );
        }
    });
}
