//! Rows of the code by interpolation: what each shard is in terms of any others.
//!
//! Shard `x` of a stripe is the value at the point `x` of one polynomial of degree below M. Any M shards determine the
//! polynomial, so every other is a sum over those M of its Lagrange coefficient times the shard. Data and parity are
//! not different in this, and no matrix is inverted (Reed and Solomon, "Polynomial codes over certain finite fields", 1960).
//!
//! For the rows of the parity from the data this is the matrix that klauspost/reedsolomon (and so MinIO) uses by default:
//! a Vandermonde matrix times the inverse of its top square.

use alloc::vec::Vec;

use crate::field::{logarithm, power};

/// Nonzero elements: logarithms are modulo this.
const ORDER: usize = 255;

/// One row for each target: its coefficients over `sources`, in their order.
///
/// # Panics
/// If two sources are equal or a target is a source: such a row is no sum of products but a copy.
pub(crate) fn rows(sources: &[u8], targets: &[u8]) -> Vec<Vec<u8>> {
    let weights: Vec<usize> = sources.iter().map(|&source| log_distance(source, sources)).collect();
    targets.iter().map(|&target| row(target, sources, &weights)).collect()
}

fn row(target: u8, sources: &[u8], weights: &[usize]) -> Vec<u8> {
    let all = log_distance(target, sources);
    assert!(sources.iter().all(|&source| source != target), "a target is no source");
    let coefficient = |(&source, &weight): (&u8, &usize)| {
        let own = logarithm(source ^ target);
        power(all + 2 * ORDER - own - weight)
    };
    sources.iter().zip(weights).map(coefficient).collect()
}

/// The logarithm of the product of all distances from `point` to the other points.
fn log_distance(point: u8, others: &[u8]) -> usize {
    let others = others.iter().filter(|&&other| other != point);
    others.map(|&other| logarithm(other ^ point)).sum::<usize>() % ORDER
}
