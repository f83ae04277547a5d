//! The code as a whole: known answers, every kernel against the definition, loss patterns.

extern crate std;

use alloc::vec;
use alloc::vec::Vec;

use crate::{Codec, Geometry, Kernel, Stores};

/// Shards with bytes that differ by shard and place.
fn data_shards(count: usize, len: usize) -> Vec<Vec<u8>> {
    let byte = |shard: usize, at: usize| ((shard * 37 + at * 11 + 5) % 256) as u8;
    (0..count).map(|shard| (0..len).map(|at| byte(shard, at)).collect()).collect()
}

/// Parity made by klauspost/reedsolomon v1 with its default matrix, from the data of `data_shards(M, 8)`.
#[test]
fn golden() {
    for (data, parity, expected) in [
        (2, 2, vec!["5b5aadfcff861118", "747ff69198db3a3d"]),
        (3, 2, vec!["607f3e1d1cdbbab9", "c184e0808f55ccf9"]),
        (4, 4, vec!["cc8485f24adb3cd7", "9ba1418882bb3fff", "26ce329089c68afe", "65eb4262fdd685ae"]),
    ] {
        let geometry = Geometry::new(data, parity).unwrap();
        for kernel in Kernel::ALL.into_iter().filter(|kernel| kernel.is_available()) {
            let codec = Codec::with_kernel(geometry, kernel);
            let data = data_shards(data, 8);
            let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
            let mut outputs = vec![vec![0; 8]; parity];
            let mut refs: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
            codec.encode(&data, &mut refs, Stores::Cached).unwrap();
            for (output, expected) in outputs.iter().zip(&expected) {
                let hex: std::string::String = output.iter().map(|byte| std::format!("{byte:02x}")).collect();
                assert_eq!(hex, *expected, "{geometry} {kernel}");
            }
        }
    }
}
