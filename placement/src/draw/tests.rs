//! Golden draws, and how exact they are.

use alloc::vec::Vec;

use super::*;

#[test]
fn golden_numbers() {
    assert_eq!(mix(0), 0);
    assert_eq!(mix_step(0, 0), 0xe220_a839_7b1d_cdaf, "the first number of SplitMix64 from seed 0");
    assert_eq!(mix_step(0, 1), 0x6e78_9e6a_a1b9_65f4, "and the second");
    assert_eq!(name("drive", &[7; 16]), 0x4d50729ecf12d72c);
}

#[test]
fn golden_costs() {
    // ln 2 = 0.b17217f7d1cf79abc9e3b398...
    assert_eq!(LOGS[128], 0xb172_17f7_d1cf_79ab);
    // Computed with 80 decimal digits; the last but one is a unit below the exact value, as rounding down may make it.
    let cases: [(u64, u64); 8] = [
        (0, 0),
        (1 << 6, 1),
        (1 << 40, 0x0000_0004_0000_0200),
        (0x0123_4567_89ab_cdef, 0x0004_8fae_644d_53aa),
        (1 << 63, 0x02c5_c85f_df47_3de6),
        (0xfedc_ba98_7654_3210, 0x15aa_1639_4d48_1f01),
        (u64::MAX - 1, 0xaeac_4f97_f288_3bc4),
        (u64::MAX, 0xb172_17f7_d1cf_79ab),
    ];
    for (x, cost) in cases {
        assert_eq!(exponential(x), cost, "{x:#x}");
    }
}

/// Against the floating point of this machine, which is good to 2^-52 or so.
#[test]
#[expect(clippy::cast_precision_loss, reason = "floating point is the yardstick here")]
fn logarithms_are_exact() {
    let mut xs: Vec<u64> = (0..20_000).map(|step| mix_step(3, step)).collect();
    xs.extend((0..64).flat_map(|bit| [1 << bit, (1 << bit) + 1, u64::MAX >> bit, u64::MAX << bit]));
    // Both sides of every step of the table.
    xs.extend((1..256_u64).flat_map(|step| [step << 56, (step << 56) - 1, (step << 56) + 1]));
    for x in xs {
        let exact = -(-(x as f64 / 2_f64.powi(64))).ln_1p();
        if !exact.is_finite() || x > u64::MAX - (1 << 20) {
            continue;
        }
        let cost = exponential(x) as f64 / 2_f64.powi(58);
        // A fraction near one is itself rounded by the floating point: that error is no fault of ours.
        let allowed = 2_f64.powi(-57) + exact * 2_f64.powi(-45) + 2_f64.powi(-53) / (1.0 - x as f64 / 2_f64.powi(64));
        assert!((cost - exact).abs() <= allowed, "{x:#x}: {cost} instead of {exact}");
    }
}

#[test]
fn costs_grow_with_the_number() {
    let mut xs: Vec<u64> = (0..20_000).map(|step| mix_step(9, step)).collect();
    xs.extend((1..256_u64).flat_map(|step| [step << 56, (step << 56) - 1, (step << 56) + 1]));
    xs.sort_unstable();
    assert!(xs.windows(2).all(|pair| exponential(pair[0]) <= exponential(pair[1])));
}

#[test]
fn the_quick_look_never_loses_a_winner() {
    for step in 0..100_000 {
        let (x, rate) = (mix_step(1, step) >> (step % 40), (mix_step(2, step) >> (step % 60)).max(1));
        let other = Arrival::new(mix_step(4, step), (mix_step(5, step) >> (step % 50)).max(1));
        assert!(!Arrival::new(x, rate).is_before(other) || other.limit().admits(x, rate), "{step}");
        assert!(Arrival::new(x, rate).is_before(Arrival::NEVER));
    }
}
