//! The transform kernel: encoding by an additive Fourier transform that never leaves the registers.
//!
//! See [`crate::transform`] for the mathematics. A coset of `K` data shards is loaded, turned into coefficients and
//! added to those of the other cosets; the sum is the parity coset's coefficients, which are turned back into values.
//! 12+4 needs 13 products in place of the matrix's 48.

use core::ops::Range;

use super::matrix::fold;
use super::sink::Sink;
use super::vector::Vector;

/// Computes `K` parity shards over `span` from `COSETS - 1` cosets of `K` data shards; tells whether anything differed.
///
/// `skews[c]` are the factors of coset `c`, the parity's last, in the order of a heap: 1 is the widest butterfly's, 2 and
/// 3 the next, and so on; 0 is not used.
///
/// # Safety
/// The CPU has the instruction set. Every input is good for reading over `span`, every output is good for what `S` does
/// over `span`; `span` is a multiple of `V::BYTES` long.
#[inline(always)]
pub(super) unsafe fn pass<V: Vector, S: Sink, const K: usize, const COSETS: usize>(
    skews: &[[V::Factor; K]; COSETS],
    inputs: &[&[u8]],
    outputs: [*mut u8; K],
    span: Range<usize>,
) -> bool {
    // SAFETY: the caller vouches for the instruction set.
    let unused = unsafe { V::prepare(&skews[0][0]) };
    let mut prepared = [[unused; K]; COSETS];
    for (coset, factors) in prepared.iter_mut().zip(skews) {
        for (place, factor) in coset.iter_mut().zip(factors).skip(1) {
            // SAFETY: the caller vouches for the instruction set.
            *place = unsafe { V::prepare(factor) };
        }
    }
    let cosets = inputs.as_chunks::<K>().0;
    assert!(cosets.len() + 1 == COSETS, "the geometry chose this kernel");
    let mut differences: Option<V> = None;
    let mut at = span.start;
    while at < span.end {
        // SAFETY: the caller vouches for the inputs up to the span's end.
        let mut sum = unsafe { load::<V, K>(&cosets[0], at) };
        to_coefficients::<V, K, true>(&mut sum, &prepared[0]);
        for coset in 1..COSETS - 1 {
            // SAFETY: the caller vouches for the inputs up to the span's end.
            let mut values = unsafe { load::<V, K>(&cosets[coset], at) };
            to_coefficients::<V, K, false>(&mut values, &prepared[coset]);
            for (sum, coefficient) in sum.iter_mut().zip(values) {
                *sum = sum.xor(coefficient);
            }
        }
        to_values::<V, K>(&mut sum, &prepared[COSETS - 1]);
        for (output, value) in outputs.into_iter().zip(sum) {
            // SAFETY: the caller vouches for the outputs up to the span's end.
            let difference = unsafe { S::put(value, output.wrapping_add(at)) };
            differences = fold(differences, difference);
        }
        at += V::BYTES;
    }
    differences.is_some_and(|difference| !difference.is_zero())
}

/// One register of each shard of a coset.
///
/// # Safety
/// The CPU has the instruction set; every shard is good for reading a register at `at`.
#[inline(always)]
unsafe fn load<V: Vector, const K: usize>(coset: &[&[u8]; K], at: usize) -> [V; K] {
    // SAFETY: the caller vouches for the shard.
    let mut values = [unsafe { V::load(coset[0].as_ptr().wrapping_add(at)) }; K];
    for (value, shard) in values.iter_mut().zip(coset).skip(1) {
        // SAFETY: the caller vouches for the shard.
        *value = unsafe { V::load(shard.as_ptr().wrapping_add(at)) };
    }
    values
}

/// The inverse transform, narrow butterflies first. At the origin the first butterfly of every width has a skew of zero.
#[inline(always)]
fn to_coefficients<V: Vector, const K: usize, const IS_ORIGIN: bool>(values: &mut [V; K], skews: &[V::Prepared; K]) {
    let mut half = 1;
    while half < K {
        let mut block = 0;
        while block * 2 * half < K {
            let skew = skews[K / (2 * half) + block];
            let mut low = block * 2 * half;
            while low < block * 2 * half + half {
                let high = values[low + half].xor(values[low]);
                values[low + half] = high;
                if !(IS_ORIGIN && block == 0) {
                    values[low] = values[low].xor(high.multiply(skew));
                }
                low += 1;
            }
            block += 1;
        }
        half *= 2;
    }
}

/// The transform, wide butterflies first.
#[inline(always)]
fn to_values<V: Vector, const K: usize>(coefficients: &mut [V; K], skews: &[V::Prepared; K]) {
    let mut half = K / 2;
    while half > 0 {
        let mut block = 0;
        while block * 2 * half < K {
            let skew = skews[K / (2 * half) + block];
            let mut low = block * 2 * half;
            while low < block * 2 * half + half {
                let sum = coefficients[low].xor(coefficients[low + half].multiply(skew));
                coefficients[low] = sum;
                coefficients[low + half] = coefficients[low + half].xor(sum);
                low += 1;
            }
            block += 1;
        }
        half /= 2;
    }
}
