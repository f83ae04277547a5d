//! The transform kernel: encoding by an additive Fourier transform that never leaves the registers.
//!
//! See [`crate::transform`] for the mathematics. A coset of `K` data shards is loaded, turned into coefficients and
//! added to those of the other cosets; the sum is the parity coset's coefficients, which are turned back into values.
//! 12+4 needs 13 products in place of the matrix's 48.

use super::matrix::fold;
use super::sink::Sink;
use super::vector::Vector;

/// Computes `K` parity shards from `COSETS - 1` cosets of `K` data shards, from `at` on as far as whole steps of `V` reach
/// before `end`; tells whether anything differed.
///
/// `skews[c]` are the factors of coset `c`, the parity's last, in the order of a heap: 1 is the widest butterfly's, 2 and
/// 3 the next, and so on; 0 is not used.
///
/// # Safety
/// The CPU has the instruction set. Every input is good for reading up to `end`, every output is good for what `S` does
/// up to there.
#[inline(always)]
pub(super) unsafe fn pass<V: Vector, S: Sink, const K: usize, const COSETS: usize>(
    skews: &[[V::Factor; K]; COSETS],
    inputs: &[&[u8]],
    outputs: [*mut u8; K],
    at: &mut usize,
    end: usize,
) -> bool {
    // SAFETY: the caller vouches for the instruction set.
    let mut prepared = [[unsafe { V::prepare(&skews[0][0]) }; K]; COSETS];
    let mut place = 0;
    while place < COSETS * K {
        let (coset, node) = (place / K, place % K);
        // SAFETY: the caller vouches for the instruction set.
        prepared[coset][node] = unsafe { V::prepare(&skews[coset][node]) };
        place += 1;
    }
    let cosets = inputs.as_chunks::<K>().0;
    assert!(cosets.len() + 1 == COSETS, "the geometry chose this kernel");
    let mut differences: Option<V> = None;
    while *at + V::BYTES <= end {
        // SAFETY: the step ends before `end`.
        let mut sum = unsafe { load::<V, S, K>(&cosets[0], *at) };
        to_coefficients::<V, K, true>(&mut sum, &prepared[0]);
        let mut coset = 1;
        while coset < COSETS - 1 {
            // SAFETY: the step ends before `end`.
            let mut values = unsafe { load::<V, S, K>(&cosets[coset], *at) };
            to_coefficients::<V, K, false>(&mut values, &prepared[coset]);
            let mut index = 0;
            while index < K {
                sum[index] = sum[index].xor(values[index]);
                index += 1;
            }
            coset += 1;
        }
        to_values::<V, K>(&mut sum, &prepared[COSETS - 1]);
        let mut index = 0;
        while index < K {
            // SAFETY: the step ends before `end`, and the caller vouches for the output up to there.
            let difference = unsafe { S::put(sum[index], outputs[index].wrapping_add(*at)) };
            differences = fold(differences, difference);
            index += 1;
        }
        *at += V::BYTES;
    }
    differences.is_some_and(|difference| !difference.is_zero())
}

/// One register of each shard of a coset.
///
/// # Safety
/// The CPU has the instruction set; every shard is good for reading a register at `at`.
#[inline(always)]
unsafe fn load<V: Vector, S: Sink, const K: usize>(coset: &[&[u8]; K], at: usize) -> [V; K] {
    // SAFETY: the caller vouches for the shard.
    let mut values = [unsafe { S::get::<V>(coset[0].as_ptr().wrapping_add(at)) }; K];
    let mut index = 1;
    while index < K {
        // SAFETY: the caller vouches for the shard.
        values[index] = unsafe { S::get(coset[index].as_ptr().wrapping_add(at)) };
        index += 1;
    }
    values
}

/// The inverse transform, narrow butterflies first. At the origin the first block of every width has a skew of zero.
#[inline(always)]
fn to_coefficients<V: Vector, const K: usize, const IS_ORIGIN: bool>(values: &mut [V; K], skews: &[V::Prepared; K]) {
    narrow_to_wide::<V, K, 1, IS_ORIGIN>(values, skews);
    narrow_to_wide::<V, K, 2, IS_ORIGIN>(values, skews);
    narrow_to_wide::<V, K, 4, IS_ORIGIN>(values, skews);
    narrow_to_wide::<V, K, 8, IS_ORIGIN>(values, skews);
}

/// The transform, wide butterflies first.
#[inline(always)]
fn to_values<V: Vector, const K: usize>(coefficients: &mut [V; K], skews: &[V::Prepared; K]) {
    wide_to_narrow::<V, K, 8>(coefficients, skews);
    wide_to_narrow::<V, K, 4>(coefficients, skews);
    wide_to_narrow::<V, K, 2>(coefficients, skews);
    wide_to_narrow::<V, K, 1>(coefficients, skews);
}

/// All butterflies of width `2 * HALF` of the inverse transform; none where the transform is narrower.
#[inline(always)]
fn narrow_to_wide<V: Vector, const K: usize, const HALF: usize, const IS_ORIGIN: bool>(
    values: &mut [V; K],
    skews: &[V::Prepared; K],
) {
    let mut pair = 0;
    while HALF < K && pair < K / 2 {
        let block = pair / HALF;
        let (low, high) = (pair + block * HALF, pair + (block + 1) * HALF);
        values[high] = values[high].xor(values[low]);
        if !(IS_ORIGIN && block == 0) {
            values[low] = values[low].xor(values[high].multiply(skews[K / (2 * HALF) + block]));
        }
        pair += 1;
    }
}

/// All butterflies of width `2 * HALF` of the transform; none where the transform is narrower.
#[inline(always)]
fn wide_to_narrow<V: Vector, const K: usize, const HALF: usize>(values: &mut [V; K], skews: &[V::Prepared; K]) {
    let mut pair = 0;
    while HALF < K && pair < K / 2 {
        let block = pair / HALF;
        let (low, high) = (pair + block * HALF, pair + (block + 1) * HALF);
        values[low] = values[low].xor(values[high].multiply(skews[K / (2 * HALF) + block]));
        values[high] = values[high].xor(values[low]);
        pair += 1;
    }
}
