//! Shards made by another program: klauspost/reedsolomon v1 (the engine of MinIO) with its default matrix.
//!
//! Byte `j` of data shard `i` is `(37 i + 11 j + 5) mod 256`, eight bytes a shard. The parity below was printed by a
//! program of a few lines that calls `reedsolomon.New(m, k)` and `Encode`, and `Verify` on the result.

use alloc::vec;
use alloc::vec::Vec;

use super::{geometry, kernels_under_test, slices, slices_mut};
use crate::{Codec, Stores};

const LEN: usize = 8;

/// M, K and the parity; each shard's first byte is the highest of its number.
const STRIPES: &[(usize, usize, &[u64])] = &[
    (1, 1, &[0x0510_1b26_313c_4752]),
    (2, 1, &[0x5b5a_adfc_ff86_1118]),
    (2, 2, &[0x5b5a_adfc_ff86_1118, 0x747f_f691_98db_3a3d]),
    (3, 2, &[0x607f_3e1d_1cdb_bab9, 0xc184_e080_8f55_ccf9]),
    (4, 4, &[0xcc84_85f2_4adb_3cd7, 0x9ba1_4188_82bb_3fff, 0x26ce_3290_89c6_8afe, 0x65eb_4262_fdd6_85ae]),
    (5, 3, &[0xce81_6bc0_0db0_d8ce, 0x73ee_18d8_06cd_6dcf, 0x30cb_682a_72dd_629f]),
    (
        8,
        8,
        &[
            0xb61b_87dd_ae32_ca3a,
            0x8c08_c062_c8c4_df42,
            0x9884_b443_dafc_c6d5,
            0x5d25_0d52_8514_2774,
            0x57d3_0249_5fd6_949b,
            0xed78_83df_a908_6745,
            0x41b7_a0ab_01ca_f2dd,
            0xdc3e_f753_667a_4d2a,
        ],
    ),
    (10, 4, &[0x894b_a8c9_af9c_a2b2, 0x099c_7d5a_b16f_ad8e, 0xc535_6be8_b1ec_ae95, 0x3ae8_86fc_0629_b3d6]),
    (12, 4, &[0xb4cd_3c5e_534a_87f5, 0x2c06_97d9_c78c_f7d0, 0xa94f_602d_0c56_5c6a, 0x7d54_f772_7c70_0877]),
    (14, 2, &[0xbfbf_9655_64a2_6ea1, 0xd452_8168_7fa7_61a4]),
    (17, 3, &[0xd1f2_3440_6dcf_3fc3, 0x7295_373b_bb2b_e456, 0x03e1_52a9_9fd4_3879]),
];

/// M, K and the factors of each parity shard over the data, by the same program: the parity of unit vectors.
const MATRICES: &[(usize, usize, &[&[u8]])] = &[
    (
        12,
        4,
        &[
            &[0xaf, 0xb4, 0x96, 0x8c, 0xf5, 0xe8, 0xc4, 0xd8, 0x1b, 0x1c, 0x12, 0x14],
            &[0xb4, 0xaf, 0x8c, 0x96, 0xe8, 0xf5, 0xd8, 0xc4, 0x1c, 0x1b, 0x14, 0x12],
            &[0x96, 0x8c, 0xaf, 0xb4, 0xc4, 0xd8, 0xf5, 0xe8, 0x12, 0x14, 0x1b, 0x1c],
            &[0x8c, 0x96, 0xb4, 0xaf, 0xd8, 0xc4, 0xe8, 0xf5, 0x14, 0x12, 0x1c, 0x1b],
        ],
    ),
    (
        10,
        4,
        &[
            &[0x81, 0x96, 0xaf, 0xb8, 0xd2, 0xc4, 0xfe, 0xe8, 0x03, 0x02],
            &[0x96, 0x81, 0xb8, 0xaf, 0xc4, 0xd2, 0xe8, 0xfe, 0x02, 0x03],
            &[0xbf, 0xd6, 0x62, 0x0a, 0x06, 0x6f, 0xdf, 0xb7, 0x05, 0x04],
            &[0xd6, 0xbf, 0x0a, 0x62, 0x6f, 0x06, 0xb7, 0xdf, 0x04, 0x05],
        ],
    ),
];

fn data_shards(count: usize) -> Vec<Vec<u8>> {
    let byte = |shard: usize, at: usize| u8::try_from((shard * 37 + at * 11 + 5) % 256).unwrap();
    (0..count).map(|shard| (0..LEN).map(|at| byte(shard, at)).collect()).collect()
}

#[test]
fn stripes_of_klauspost_are_ours() {
    for &(data, parity, golden) in STRIPES {
        let mut shards = data_shards(data);
        shards.extend(golden.iter().map(|shard| shard.to_be_bytes().to_vec()));
        for kernel in kernels_under_test() {
            let codec = Codec::with_kernel(geometry(data, parity), kernel);
            let mut outputs = vec![vec![0; LEN]; parity];
            codec.encode(&slices(&shards[..data]), &mut slices_mut(&mut outputs), Stores::Cached).unwrap();
            assert_eq!(outputs, shards[data..], "{data}+{parity} {kernel}");
            assert_eq!(codec.verify(&slices(&shards)), Ok(true));
            check_losses(&codec, &shards);
        }
    }
}

/// Every loss of one shard, of two, and every run of K shards, which may begin anywhere and wraps around.
fn check_losses(codec: &Codec, shards: &[Vec<u8>]) {
    let (total, parity) = (shards.len(), codec.geometry().parity());
    let singles = (0..total).map(|one| vec![one]);
    let pairs = (0..total).flat_map(|one| (one + 1..total).map(move |two| vec![one, two]));
    let runs = (0..total).map(|first| (first..first + parity).map(|shard| shard % total).collect());
    for lost in singles.chain(pairs.filter(|_| parity > 1)).chain(runs) {
        let present: Vec<Option<&[u8]>> =
            shards.iter().enumerate().map(|(at, shard)| (!lost.contains(&at)).then_some(&**shard)).collect();
        let mut outputs = vec![vec![0; LEN]; lost.len()];
        let mut wanted: Vec<(usize, &mut [u8])> =
            lost.iter().copied().zip(outputs.iter_mut().map(Vec::as_mut_slice)).collect();
        codec.reconstruct(&present, &mut wanted, Stores::Cached).unwrap();
        for (&shard, output) in lost.iter().zip(&outputs) {
            assert_eq!(*output, shards[shard], "{} {lost:?}", codec.geometry());
        }
    }
}

#[test]
fn the_matrix_of_klauspost_is_ours() {
    for &(data, parity, rows) in MATRICES {
        for kernel in kernels_under_test() {
            let codec = Codec::with_kernel(geometry(data, parity), kernel);
            for unit in 0..data {
                let mut parity_shards = vec![vec![0]; parity];
                codec.add(unit, &[1], &mut slices_mut(&mut parity_shards)).unwrap();
                let column: Vec<Vec<u8>> = rows.iter().map(|row| vec![row[unit]]).collect();
                assert_eq!(parity_shards, column, "{data}+{parity} {kernel}");
            }
        }
    }
}
