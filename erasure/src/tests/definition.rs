//! What the shards are, by definition: a Vandermonde matrix times the inverse of its top square.
//!
//! Slow and plain: multiplication bit by bit, Gauss-Jordan elimination, one byte after another. Nothing here comes from
//! the crate, which interpolates and transforms instead.

use alloc::vec;
use alloc::vec::Vec;
use std::sync::LazyLock;

use super::{Random, geometry, kernels_under_test, slices, slices_mut, std};
use crate::{Codec, Stores};

/// The field's polynomial, x^8 + x^4 + x^3 + x^2 + 1.
const POLYNOMIAL: u32 = 0x11d;

/// All products, because looking one up is faster than eight steps.
static PRODUCTS: LazyLock<Vec<[u8; 256]>> =
    LazyLock::new(|| (0..=255).map(|a| core::array::from_fn(|b| by_bits(a, u8::try_from(b).unwrap()))).collect());

/// Polynomials are multiplied, and what has a degree of 8 or more is reduced from the top.
fn by_bits(a: u8, b: u8) -> u8 {
    let product = (0..8).filter(|bit| b >> bit & 1 == 1).fold(0, |sum, bit| sum ^ u32::from(a) << bit);
    let reduce = |sum: u32, degree: u32| if sum >> degree & 1 == 1 { sum ^ POLYNOMIAL << (degree - 8) } else { sum };
    u8::try_from((8..16).rev().fold(product, reduce)).unwrap()
}

fn product(a: u8, b: u8) -> u8 {
    PRODUCTS[usize::from(a)][usize::from(b)]
}

type Matrix = Vec<Vec<u8>>;

/// Row r holds the powers 0 to `columns` - 1 of r; the power 0 of zero is 1.
fn vandermonde(rows: usize, columns: usize) -> Matrix {
    let row = |base: u8| core::iter::successors(Some(1), move |&power| Some(product(power, base))).take(columns);
    (0..rows).map(|base| row(u8::try_from(base).unwrap()).collect()).collect()
}

/// Gauss-Jordan elimination on the matrix with the identity beside it.
fn inverse(square: &[Vec<u8>]) -> Matrix {
    let size = square.len();
    let mut wide: Matrix = square.to_vec();
    for (at, row) in wide.iter_mut().enumerate() {
        row.extend((0..size).map(|column| u8::from(column == at)));
    }
    for column in 0..size {
        let pivot = (column..size).find(|&row| wide[row][column] != 0).expect("a Vandermonde square is regular");
        wide.swap(column, pivot);
        let scale = (1..=255).find(|&factor| product(factor, wide[column][column]) == 1).unwrap();
        wide[column].iter_mut().for_each(|element| *element = product(*element, scale));
        let pivot_row = wide[column].clone();
        for (_, row) in wide.iter_mut().enumerate().filter(|(at, _)| *at != column) {
            let factor = row[column];
            row.iter_mut().zip(&pivot_row).for_each(|(element, &pivot)| *element ^= product(factor, pivot));
        }
    }
    wide.into_iter().map(|row| row[size..].to_vec()).collect()
}

/// The code of M + K shards.
pub(super) struct Definition {
    /// For each of the M + K shards, its factors over the data.
    rows: Matrix,
}

impl Definition {
    pub(super) fn of(data: usize, parity: usize) -> Self {
        let all = vandermonde(data + parity, data);
        let top = inverse(&all[..data]);
        let entry = |row: &[u8], column: usize| (0..data).fold(0, |sum, at| sum ^ product(row[at], top[at][column]));
        Self { rows: all.iter().map(|row| (0..data).map(|column| entry(row, column)).collect()).collect() }
    }

    /// All M + K shards of these data shards.
    pub(super) fn shards(&self, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut shards = data.to_vec();
        shards.extend(self.rows[data.len()..].iter().map(|row| sum_of_products(row, data)));
        shards
    }
}

fn sum_of_products(row: &[u8], data: &[Vec<u8>]) -> Vec<u8> {
    let mut sum = vec![0; data[0].len()];
    for (&factor, shard) in row.iter().zip(data) {
        let products = &PRODUCTS[usize::from(factor)];
        sum.iter_mut().zip(shard).for_each(|(sum, &byte)| *sum ^= products[usize::from(byte)]);
    }
    sum
}

/// The geometries up to 8 + 8, larger ones to the limits, each shape that a transform encodes, and its neighbours.
fn geometries() -> Vec<(usize, usize)> {
    let mut all: Vec<(usize, usize)> = (1..=8).flat_map(|data| (1..=8).map(move |parity| (data, parity))).collect();
    let transforms = [(2, 2), (6, 2), (14, 2), (4, 4), (12, 4), (28, 4), (8, 8), (24, 8), (16, 16)];
    let linear = [(30, 2), (60, 4), (56, 8), (48, 16), (32, 32), (240, 16), (252, 4), (15, 1), (255, 1), (64, 64)];
    for (data, parity) in transforms.into_iter().chain(linear) {
        all.extend([(data, parity), (data + 1, parity - 1), (data, parity + 1), (data - 1, parity)]);
        all.extend([(data - 1, parity + 1), (data + 1, parity)]);
    }
    all.extend([(10, 4), (17, 3), (20, 10), (100, 20), (127, 129), (200, 56), (1, 255), (2, 254), (3, 253)]);
    all.retain(|&(data, parity)| data > 0 && parity > 0 && data + parity <= 256);
    all.sort_unstable();
    all.dedup();
    all
}

/// The first M bytes of the data shards are the identity, so that those of the parity are the matrix itself; then noise.
#[test]
fn encode_gives_the_shards_of_the_definition() {
    let mut random = Random(1);
    for (data, parity) in geometries() {
        let mut shards: Vec<Vec<u8>> =
            (0..data).map(|at| (0..data).map(|byte| u8::from(byte == at)).collect()).collect();
        shards.iter_mut().for_each(|shard| shard.extend(random.bytes(150)));
        let expected = Definition::of(data, parity).shards(&shards);
        for kernel in kernels_under_test() {
            let codec = Codec::with_kernel(geometry(data, parity), kernel);
            let mut outputs = vec![vec![0; data + 150]; parity];
            codec.encode(&slices(&shards), &mut slices_mut(&mut outputs), Stores::Cached).unwrap();
            assert_eq!(outputs, expected[data..], "{data}+{parity} {kernel}");
            assert_eq!(codec.verify(&slices(&expected)), Ok(true), "{data}+{parity} {kernel}");
        }
    }
}

/// In 2 + 254, parity shard x has the factor x over data shard 1: the bytes 0 to 255 give every product.
#[test]
fn every_kernel_multiplies_every_pair() {
    let data = [vec![0; 256], (0..=255).collect()];
    for kernel in kernels_under_test() {
        let mut outputs = vec![vec![0; 256]; 254];
        let codec = Codec::with_kernel(geometry(2, 254), kernel);
        codec.encode(&slices(&data), &mut slices_mut(&mut outputs), Stores::Cached).unwrap();
        for (factor, output) in (2..=255).zip(&outputs) {
            let expected: Vec<u8> = (0..=255).map(|byte| by_bits(factor, byte)).collect();
            assert_eq!(*output, expected, "{factor} {kernel}");
        }
    }
}
