//! Reed-Solomon by whatever geometry, lengths, alignments, losses and kernel the bytes say: right numbers give what a slow
//! definition gives and touch nothing else, wrong ones an error and nothing written; nobody panics.
#![no_main]

use std::sync::LazyLock;

use ashlar_erasure::{Codec, Error, Geometry, Kernel, PlanCache, ShardSet, Stores};
use libfuzzer_sys::arbitrary::{self, Arbitrary};

/// Longer shards would only be slower.
const LEN_MAX: usize = 450;

/// M times K above which the definition would take too long.
const PRODUCTS_MAX: usize = 600;

/// The longest register.
const ALIGN: usize = 64;

/// What stands beside every output, and in it before it is written.
const GUARD: u8 = 0xc9;

#[derive(Debug, Arbitrary)]
struct Input {
    data: u8,
    parity: u8,
    kernel: u8,
    streaming: bool,
    len: u16,
    /// Where outputs stand; shard i at the i-th, and so round.
    alignments: Vec<u8>,
    seed: u64,
    lost: Vec<u8>,
    wanted: Vec<u16>,
    /// Which server holds which source of the plan.
    servers: Vec<bool>,
    updated: u8,
    flip: (u8, u16, u8),
    wrong: Wrong,
}

/// A call that is not to be: numbers and lengths as they come.
#[derive(Debug, Arbitrary)]
struct Wrong {
    call: Call,
    shard: usize,
    inputs: Vec<u8>,
    outputs: Vec<u8>,
    present: Vec<bool>,
    numbers: Vec<usize>,
}

#[derive(Debug, Arbitrary)]
enum Call {
    Encode,
    Verify,
    Add,
    Update,
    Reconstruct,
}

/// Shards at chosen alignments, each with guards on both sides.
struct Rooms {
    rooms: Vec<(Vec<u8>, usize)>,
    len: usize,
}

impl Rooms {
    fn new(count: usize, len: usize, alignments: &[u8]) -> Self {
        let room = |index: usize| {
            let bytes = vec![GUARD; len + 4 * ALIGN];
            let wanted = alignments.get(index % alignments.len().max(1)).map_or(0, |&at| usize::from(at));
            let to_aligned = bytes.as_ptr().addr().wrapping_neg() % ALIGN;
            (bytes, ALIGN + (to_aligned + wanted) % ALIGN)
        };
        Self { rooms: (0..count).map(room).collect(), len }
    }

    fn outputs(&mut self) -> Vec<&mut [u8]> {
        self.rooms.iter_mut().map(|(bytes, start)| &mut bytes[*start..][..self.len]).collect()
    }

    fn fill(&mut self, byte: u8) {
        self.outputs().into_iter().for_each(|output| output.fill(byte));
    }

    #[track_caller]
    fn check<'a>(&self, expected: impl Iterator<Item = &'a Vec<u8>>) {
        let mut count = 0;
        for ((bytes, start), expected) in self.rooms.iter().zip(expected) {
            let (before, rest) = bytes.split_at(*start);
            let (output, after) = rest.split_at(self.len);
            assert_eq!(output, expected);
            assert!(before.iter().chain(after).all(|&byte| byte == GUARD), "written beside the output");
            count += 1;
        }
        assert_eq!(count, self.rooms.len());
    }
}

/// The field of 0x11d, by definition: all products, and each element's inverse (none for zero).
struct Field {
    products: Vec<[u8; 256]>,
    inverses: Vec<u8>,
}

static FIELD: LazyLock<Field> = LazyLock::new(|| {
    let by_bits = |mut a: u8, b: u8| {
        let mut sum = 0;
        for bit in 0..8 {
            sum ^= if b >> bit & 1 == 1 { a } else { 0 };
            a = a << 1 ^ if a >> 7 == 1 { 0x1d } else { 0 };
        }
        sum
    };
    let products: Vec<[u8; 256]> = (0..=255).map(|a| core::array::from_fn(|b| by_bits(a, b as u8))).collect();
    let inverse = |row: &[u8; 256]| row.iter().position(|&product| product == 1).unwrap_or(0) as u8;
    let inverses = products.iter().map(inverse).collect();
    Field { products, inverses }
});

/// The factor of shard `source` among the first `data` in shard `target`, after Lagrange.
fn factor(source: usize, target: usize, data: usize) -> u8 {
    let Field { products, inverses } = &*FIELD;
    let others = (0..data).filter(|&other| other != source);
    others.fold(1, |factor, other| {
        let quotient = products[target ^ other][usize::from(inverses[source ^ other])];
        products[usize::from(factor)][usize::from(quotient)]
    })
}

/// All M + K shards: shard x is the value at x of the polynomial whose values at 0..M are the data.
fn stripe(geometry: Geometry, len: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut state = seed;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Long runs of zeros and ones too.
        match state >> 60 {
            0 => 0,
            1 => 0xff,
            _ => (state >> 33) as u8,
        }
    };
    let mut shards: Vec<Vec<u8>> = (0..geometry.data()).map(|_| (0..len).map(|_| byte()).collect()).collect();
    for target in geometry.data()..geometry.total() {
        let mut sum = vec![0; len];
        for (source, shard) in shards.iter().enumerate().take(geometry.data()) {
            let table = &FIELD.products[usize::from(factor(source, target, geometry.data()))];
            sum.iter_mut().zip(shard).for_each(|(sum, &byte)| *sum ^= table[usize::from(byte)]);
        }
        shards.push(sum);
    }
    shards
}

fn slices(shards: &[Vec<u8>]) -> Vec<&[u8]> {
    shards.iter().map(Vec::as_slice).collect()
}

fn encode_and_verify(input: &Input, codec: &Codec, stores: Stores, shards: &[Vec<u8>]) {
    let (data, parity, len) = (codec.geometry().data(), codec.geometry().parity(), shards[0].len());
    let mut rooms = Rooms::new(parity, len, &input.alignments);
    codec.encode(&slices(&shards[..data]), &mut rooms.outputs(), stores).expect("right numbers");
    rooms.check(shards[data..].iter());

    rooms.fill(0);
    let first = usize::from(input.updated) % data;
    for shard in (first..data).chain(0..first) {
        codec.add(shard, &shards[shard], &mut rooms.outputs()).expect("right numbers");
    }
    rooms.check(shards[data..].iter());

    assert_eq!(codec.verify(&slices(shards)), Ok(true));
    let (shard, at, bit) = input.flip;
    if len > 0 {
        let mut flipped = shards.to_vec();
        flipped[usize::from(shard) % shards.len()][usize::from(at) % len] ^= 1 << (bit % 8);
        assert_eq!(codec.verify(&slices(&flipped)), Ok(false));
    }
}

/// Updating one shard is encoding anew.
fn update(input: &Input, codec: &Codec, shards: &[Vec<u8>]) {
    let (geometry, len) = (codec.geometry(), shards[0].len());
    let shard = usize::from(input.updated) % geometry.data();
    let mut changed = shards.to_vec();
    changed[shard].iter_mut().enumerate().for_each(|(at, byte)| *byte = byte.wrapping_add(at as u8) ^ 0x35);
    let mut rooms = Rooms::new(geometry.parity(), len, &input.alignments);
    let old_parity = &shards[geometry.data()..];
    rooms.outputs().into_iter().zip(old_parity).for_each(|(output, parity)| output.copy_from_slice(parity));
    codec.update(shard, &shards[shard], &changed[shard], &mut rooms.outputs()).expect("right numbers");
    let mut anew = vec![vec![0; len]; geometry.parity()];
    let mut outputs: Vec<&mut [u8]> = anew.iter_mut().map(Vec::as_mut_slice).collect();
    codec.encode(&slices(&changed[..geometry.data()]), &mut outputs, Stores::Cached).expect("right numbers");
    rooms.check(anew.iter());
}

/// What is lost comes back: by one call, by a kept plan, and by a plan in two parts.
fn reconstruct(input: &Input, codec: &Codec, stores: Stores, shards: &[Vec<u8>]) {
    let (geometry, len) = (codec.geometry(), shards[0].len());
    let mut present = ShardSet::first(geometry.total());
    input.lost.iter().take(geometry.parity()).for_each(|&lost| present.remove(usize::from(lost) % geometry.total()));
    let mut wanted: Vec<usize> = input.wanted.iter().map(|&wanted| usize::from(wanted) % geometry.total()).collect();
    wanted.retain(|&wanted| !present.contains(wanted));
    let targets = ShardSet::of(&wanted).expect("all below 256");
    wanted.sort_unstable();
    wanted.dedup();
    if input.streaming {
        wanted.reverse();
    }

    let mut rooms = Rooms::new(wanted.len(), len, &input.alignments);
    let given: Vec<Option<&[u8]>> =
        shards.iter().enumerate().map(|(at, shard)| present.contains(at).then_some(&**shard)).collect();
    let mut pairs: Vec<(usize, &mut [u8])> = wanted.iter().copied().zip(rooms.outputs()).collect();
    codec.reconstruct(&given, &mut pairs, stores).expect("up to K are lost");
    rooms.check(wanted.iter().map(|&shard| &shards[shard]));

    let mut cache = PlanCache::new(1);
    let plan = cache.plan(codec, present, targets).expect("up to K are lost");
    let expected = || targets.iter().map(|shard| &shards[shard]);
    let read = |sources: ShardSet| sources.iter().map(|shard| shards[shard].as_slice()).collect::<Vec<_>>();
    plan.run(&read(plan.sources()), &mut rooms.outputs(), stores).expect("right numbers");
    rooms.check(expected());

    let mut held = ShardSet::EMPTY;
    let mut others = ShardSet::EMPTY;
    for (at, shard) in plan.sources().iter().enumerate() {
        let is_held = input.servers.get(at).copied().unwrap_or(false);
        if is_held { &mut held } else { &mut others }.insert(shard).expect("below 256");
    }
    let (one, other) = (plan.part(held), plan.part(others));
    one.run(&read(held), &mut rooms.outputs(), stores).expect("right numbers");
    other.add(&read(others), &mut rooms.outputs()).expect("right numbers");
    rooms.check(expected());
}

/// Anything at all: an error, or numbers that happened to be right. After an error the outputs are as before.
fn anything(wrong: &Wrong, codec: &Codec, stores: Stores) {
    let inputs: Vec<Vec<u8>> = wrong.inputs.iter().map(|&len| vec![1; usize::from(len)]).collect();
    let before: Vec<Vec<u8>> = wrong.outputs.iter().map(|&len| vec![GUARD; usize::from(len)]).collect();
    let mut after = before.clone();
    let mut outputs: Vec<&mut [u8]> = after.iter_mut().map(Vec::as_mut_slice).collect();
    let inputs = slices(&inputs);
    let part = |at: usize| inputs.get(at).copied().unwrap_or_default();
    let result = match wrong.call {
        Call::Encode => codec.encode(&inputs, &mut outputs, stores),
        Call::Verify => codec.verify(&inputs).map(drop),
        Call::Add => codec.add(wrong.shard, part(0), &mut outputs),
        Call::Update => codec.update(wrong.shard, part(0), part(1), &mut outputs),
        Call::Reconstruct => {
            let is_present = |at: usize| wrong.present.get(at).copied().unwrap_or(true);
            let given: Vec<Option<&[u8]>> =
                inputs.iter().enumerate().map(|(at, input)| is_present(at).then_some(*input)).collect();
            let mut pairs: Vec<(usize, &mut [u8])> = wrong.numbers.iter().copied().zip(outputs).collect();
            codec.reconstruct(&given, &mut pairs, stores)
        }
    };
    match result {
        Ok(()) => {}
        Err(Error::ShardCount { expected, given }) => assert_ne!(expected, given),
        Err(Error::ShardLength { expected, given }) => assert_ne!(expected, given),
        Err(Error::NoSuchShard { shard, total }) => assert!(shard >= total),
        Err(Error::TooFewShards { needed, present }) => assert!(present < needed && needed == codec.geometry().data()),
        Err(Error::NotLost { shard }) => assert!(shard < codec.geometry().total()),
    }
    assert!(result.is_ok() || after == before, "written although refused");
}

libfuzzer_sys::fuzz_target!(|input: Input| {
    let (data, parity) = (usize::from(input.data), usize::from(input.parity));
    let Ok(geometry) = Geometry::new(data, parity) else {
        assert!(data == 0 || parity == 0 || data + parity > 256);
        return;
    };
    let kernels: Vec<Kernel> = Kernel::ALL.into_iter().filter(|kernel| kernel.is_available()).collect();
    let codec = Codec::with_kernel(geometry, kernels[usize::from(input.kernel) % kernels.len()]);
    let stores = if input.streaming { Stores::Streaming } else { Stores::Cached };
    anything(&input.wrong, &codec, stores);
    if data * parity > PRODUCTS_MAX {
        return;
    }
    let shards = stripe(geometry, usize::from(input.len) % (LEN_MAX + 1), input.seed);
    encode_and_verify(&input, &codec, stores, &shards);
    update(&input, &codec, &shards);
    reconstruct(&input, &codec, stores, &shards);
});
