//! The matrix kernel: every output is a sum of products of all inputs. It decodes, and encodes where no transform does.
//!
//! One step computes a few registers of up to eight outputs, so that each input is read once for all of them; two inputs
//! are folded at a time by a three-way sum. Outputs beyond eight take further passes over short tiles, whose inputs are
//! then still in the first-level cache.

use super::sink::Sink;
use super::vector::Vector;

/// The inputs of one tile, in bytes, when there are several passes: they stay in a first-level cache of 32 KiB.
const TILE_BYTES: usize = 24 * 1024;

/// No tile is shorter, however many inputs there are.
const TILE_BYTES_MIN: usize = 1024;

/// Bytes of each input in one tile: a multiple of every register and of the longest step.
pub(super) fn tile_len(inputs: usize) -> usize {
    (TILE_BYTES / inputs).max(TILE_BYTES_MIN) & !511
}

/// Computes `OUT` outputs from `at` on as far as whole steps of `V` reach before `end`; tells whether anything differed.
///
/// # Safety
/// The CPU has the instruction set. Every input is good for reading up to `end`, every output is good for what `S` does
/// up to there. There is at least one input, and a row of factors for each.
#[inline(always)]
pub(super) unsafe fn pass<V: Vector, S: Sink, const OUT: usize>(
    rows: &[[V::Factor; OUT]],
    inputs: &[&[u8]],
    outputs: [*mut u8; OUT],
    at: &mut usize,
    end: usize,
) -> bool {
    let mut differences: Option<V> = None;
    while *at + V::BYTES <= end {
        // SAFETY: the step ends before `end`.
        let sums = unsafe { sums::<V, S, OUT>(rows, inputs, *at) };
        let mut output = 0;
        while output < OUT {
            // SAFETY: the step ends before `end`, and the caller vouches for the output up to there.
            let difference = unsafe { S::put(sums[output], outputs[output].wrapping_add(*at)) };
            differences = fold(differences, difference);
            output += 1;
        }
        *at += V::BYTES;
    }
    differences.is_some_and(|difference| !difference.is_zero())
}

/// The sums of products at one place.
///
/// # Safety
/// The CPU has the instruction set; every input is good for reading a register from `at`.
#[inline(always)]
unsafe fn sums<V: Vector, S: Sink, const OUT: usize>(
    rows: &[[V::Factor; OUT]],
    inputs: &[&[u8]],
    at: usize,
) -> [V; OUT] {
    let (Some((first, inputs)), Some((row, rows))) = (inputs.split_first(), rows.split_first()) else {
        unreachable!("a matrix has at least one input");
    };
    // SAFETY: the caller vouches for the input.
    let first = unsafe { S::get::<V>(first.as_ptr().wrapping_add(at)) };
    let mut sums = [first; OUT];
    let mut output = 0;
    while output < OUT {
        // SAFETY: the caller vouches for the instruction set.
        sums[output] = first.multiply(unsafe { V::prepare(&row[output]) });
        output += 1;
    }
    let (pairs, last) = inputs.as_chunks::<2>();
    let (row_pairs, last_row) = rows.as_chunks::<2>();
    for ([even, odd], [even_row, odd_row]) in pairs.iter().zip(row_pairs) {
        // SAFETY: the caller vouches for the input.
        let even = unsafe { S::get::<V>(even.as_ptr().wrapping_add(at)) };
        // SAFETY: the caller vouches for the input.
        let odd = unsafe { S::get::<V>(odd.as_ptr().wrapping_add(at)) };
        let mut output = 0;
        while output < OUT {
            // SAFETY: the caller vouches for the instruction set.
            let even = even.multiply(unsafe { V::prepare(&even_row[output]) });
            // SAFETY: the caller vouches for the instruction set.
            let odd = odd.multiply(unsafe { V::prepare(&odd_row[output]) });
            sums[output] = sums[output].xor3(even, odd);
            output += 1;
        }
    }
    if let ([last], [row]) = (last, last_row) {
        // SAFETY: the caller vouches for the input.
        let last = unsafe { S::get::<V>(last.as_ptr().wrapping_add(at)) };
        let mut output = 0;
        while output < OUT {
            // SAFETY: the caller vouches for the instruction set.
            sums[output] = sums[output].xor(last.multiply(unsafe { V::prepare(&row[output]) }));
            output += 1;
        }
    }
    sums
}

/// What differed so far and now.
#[inline(always)]
pub(super) fn fold<V: Vector>(before: Option<V>, now: Option<V>) -> Option<V> {
    match (before, now) {
        (Some(before), Some(now)) => {
            // Any bit that differs must stay: a sum would lose one that differs twice.
            Some(before.or(now))
        }
        (before, now) => before.or(now),
    }
}
