//! Which geometries an additive Fourier transform encodes, and with which factors.
//!
//! Shard `x` of a stripe is the value at the point `x` of the one polynomial of degree below M that takes the data's
//! values at 0..M (see [`crate::points`]). Let N = M + K and K be powers of two. Then the points 0..N are a linear space over the
//! field of two elements, cut into N / K cosets of K points, of which the last is the parity's.
//!
//! In the basis of Lin, Chung and Han ("Novel polynomial basis and its application to Reed-Solomon erasure codes",
//! FOCS 2014) the inverse transform of size N first transforms each coset for itself and then combines cosets by
//! butterflies, in which the highest K coefficients of all are the plain sum of the cosets' coefficients. A degree below
//! M = N - K means that this sum is zero. So the parity's coefficients are the sum of the data's, coset by coset.
//!
//! A butterfly of width 2h over the block of points that starts at `b` multiplies by the skew s(b) / s(h), where
//! s(x) is the product of x + u over all u below h.

use alloc::vec::Vec;

use crate::Geometry;
use crate::codec::point;
use crate::field::{divide, multiply};

/// The factors for each coset, the parity's last, each in the order of a heap: 1 is the widest butterfly's skew, 2 and 3
/// the next, and so on; 0 is not used. `None` where M + K or K is no power of two.
pub(crate) fn skews(geometry: Geometry) -> Option<Vec<Vec<u8>>> {
    let (total, width) = (geometry.total(), geometry.parity());
    let is_linear = total.is_power_of_two() && width.is_power_of_two();
    is_linear.then(|| (0..total / width).map(|coset| skews_of_coset(coset * width, width)).collect())
}

fn skews_of_coset(start: usize, width: usize) -> Vec<u8> {
    let mut skews = alloc::vec![0; width];
    let mut half = width / 2;
    while half > 0 {
        let blocks = width / (2 * half);
        for block in 0..blocks {
            skews[blocks + block] = skew(start + block * 2 * half, half);
        }
        half /= 2;
    }
    skews
}

/// s(start) / s(half), where s vanishes on all points below `half`.
fn skew(start: usize, half: usize) -> u8 {
    let vanishing = |at: usize| (0..half).fold(1, |product, root| multiply(product, point(at ^ root)));
    divide(vanishing(start), vanishing(half))
}
