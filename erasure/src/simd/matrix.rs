//! The matrix kernel: every output is a sum of products of all inputs. It decodes, and encodes where no transform does.
//!
//! One step computes a few registers of up to eight outputs, so that each input is read once for all of them; two inputs
//! are folded at a time by a three-way sum. Outputs beyond eight take further passes over short tiles, whose inputs are
//! then still in the first-level cache.

use core::ops::Range;

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

/// Computes `OUT` outputs over `span`, and tells whether anything differed.
///
/// # Safety
/// The CPU has the instruction set. Every input is good for reading over `span`, every output is good for what `S` does
/// over `span`; `span` is a multiple of `V::BYTES` long. There is at least one input, and a row of factors for each.
#[inline(always)]
pub(super) unsafe fn pass<V: Vector, S: Sink, const OUT: usize>(
    rows: &[[V::Factor; OUT]],
    inputs: &[&[u8]],
    outputs: [*mut u8; OUT],
    span: Range<usize>,
) -> bool {
    let mut is_different = false;
    let mut at = span.start;
    if V::SUMS / OUT >= 4 {
        // SAFETY: the caller vouches for all of `span`.
        is_different |= unsafe { steps::<V, S, OUT, 4>(rows, inputs, outputs, &mut at, span.end) };
    } else if V::SUMS / OUT >= 2 {
        // SAFETY: the caller vouches for all of `span`.
        is_different |= unsafe { steps::<V, S, OUT, 2>(rows, inputs, outputs, &mut at, span.end) };
    }
    // SAFETY: the caller vouches for all of `span`.
    is_different | unsafe { steps::<V, S, OUT, 1>(rows, inputs, outputs, &mut at, span.end) }
}

/// As many steps of `WIDE` registers as fit between `at` and `end`.
///
/// # Safety
/// As for [`pass`].
#[inline(always)]
unsafe fn steps<V: Vector, S: Sink, const OUT: usize, const WIDE: usize>(
    rows: &[[V::Factor; OUT]],
    inputs: &[&[u8]],
    outputs: [*mut u8; OUT],
    at: &mut usize,
    end: usize,
) -> bool {
    let mut differences: Option<V> = None;
    while *at + WIDE * V::BYTES <= end {
        // SAFETY: the step ends before `end`.
        let sums = unsafe { sums::<V, OUT, WIDE>(rows, inputs, *at) };
        for (output, sums) in outputs.into_iter().zip(sums) {
            for (index, sum) in sums.into_iter().enumerate() {
                let to = output.wrapping_add(*at + index * V::BYTES);
                // SAFETY: the step ends before `end`, and the caller vouches for the output up to there.
                let difference = unsafe { S::put(sum, to) };
                differences = fold(differences, difference);
            }
        }
        *at += WIDE * V::BYTES;
    }
    differences.is_some_and(|difference| !difference.is_zero())
}

/// The sums of products for `WIDE` registers of each output.
///
/// # Safety
/// The CPU has the instruction set; every input is good for reading `WIDE` registers from `at`.
#[inline(always)]
unsafe fn sums<V: Vector, const OUT: usize, const WIDE: usize>(
    rows: &[[V::Factor; OUT]],
    inputs: &[&[u8]],
    at: usize,
) -> [[V; WIDE]; OUT] {
    let (Some((first, inputs)), Some((row, rows))) = (inputs.split_first(), rows.split_first()) else {
        unreachable!("a matrix has at least one input");
    };
    // SAFETY: the caller vouches for the input.
    let first = unsafe { load::<V, WIDE>(first, at) };
    let mut sums = [first; OUT];
    for output in 0..OUT {
        // SAFETY: the caller vouches for the instruction set.
        let factor = unsafe { V::prepare(&row[output]) };
        for wide in 0..WIDE {
            sums[output][wide] = first[wide].multiply(factor);
        }
    }
    let pairs = inputs.chunks_exact(2);
    let row_pairs = rows.chunks_exact(2);
    if let ([input], [row]) = (pairs.remainder(), row_pairs.remainder()) {
        // SAFETY: the caller vouches for the input.
        let last = unsafe { load::<V, WIDE>(input, at) };
        for output in 0..OUT {
            // SAFETY: the caller vouches for the instruction set.
            let factor = unsafe { V::prepare(&row[output]) };
            for wide in 0..WIDE {
                sums[output][wide] = sums[output][wide].xor(last[wide].multiply(factor));
            }
        }
    }
    for (pair, row_pair) in pairs.zip(row_pairs) {
        let (&[even, odd], [even_row, odd_row]) = (pair, row_pair) else {
            unreachable!("chunks of two hold two");
        };
        // SAFETY: the caller vouches for the input.
        let even = unsafe { load::<V, WIDE>(even, at) };
        // SAFETY: the caller vouches for the input.
        let odd = unsafe { load::<V, WIDE>(odd, at) };
        for output in 0..OUT {
            // SAFETY: the caller vouches for the instruction set.
            let even_factor = unsafe { V::prepare(&even_row[output]) };
            // SAFETY: the caller vouches for the instruction set.
            let odd_factor = unsafe { V::prepare(&odd_row[output]) };
            for wide in 0..WIDE {
                let even = even[wide].multiply(even_factor);
                sums[output][wide] = sums[output][wide].xor3(even, odd[wide].multiply(odd_factor));
            }
        }
    }
    sums
}

/// `WIDE` registers of `input` from `at`.
///
/// # Safety
/// The CPU has the instruction set; the input is good for reading there.
#[inline(always)]
unsafe fn load<V: Vector, const WIDE: usize>(input: &[u8], at: usize) -> [V; WIDE] {
    let from = input.as_ptr().wrapping_add(at);
    // SAFETY: the caller vouches for the input.
    let mut registers = [unsafe { V::load(from) }; WIDE];
    for (index, register) in registers.iter_mut().enumerate().skip(1) {
        // SAFETY: the caller vouches for the input.
        *register = unsafe { V::load(from.wrapping_add(index * V::BYTES)) };
    }
    registers
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
