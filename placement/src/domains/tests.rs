//! Who shares a domain, and what each gets.

use super::*;
use crate::map::Weight;
use crate::sample::{drive, drives, shape};

#[test]
fn each_rule_sees_its_own_domains() {
    // 100 drives in 50 servers, 10 racks, 3 zones.
    let drives = drives(100, 2);
    let counts = Conflict::ALL.map(|conflict| Domains::new(conflict, &drives).count());
    assert_eq!(counts, [100, 50, 10, 3]);
    assert!(Conflict::Server.is_between(&drives[0], &drives[1]));
    assert!(!Conflict::Server.is_between(&drives[1], &drives[2]));
    assert!(Conflict::Rack.is_between(&drives[1], &drives[2]));
}

#[test]
fn drives_that_are_out_have_no_domain_and_no_share() {
    let mut all = drives(4, 1);
    all[2].state = DriveState::Out;
    all[3].state = DriveState::Full;
    let domains = Domains::new(Conflict::Drive, &all);
    assert_eq!(domains.count(), 3);
    let shares = shares(shape(1, 1, Conflict::Drive), &all, &domains);
    assert_eq!(shares[2], Share::default());
    assert!([0, 1, 3].iter().all(|place| shares[*place].part == shares[0].part && shares[*place].rate > 0));
}

/// Parts of one, in hundredths rounded down.
#[test]
fn domains_get_their_weight_as_far_as_one_seat_allows() {
    let cases: [(usize, &[u64], &[u64]); 7] = [
        (1, &[1, 1, 2], &[25, 25, 50]),
        (2, &[1, 1, 2], &[50, 50, 100]),
        (3, &[5, 1, 90], &[100, 100, 100]),
        (3, &[6, 1, 1, 1, 1], &[100, 50, 50, 50, 50]),
        // The first is limited, and of what it leaves the second would have more than one seat as well.
        (3, &[90, 60, 10, 10, 10], &[100, 100, 33, 33, 33]),
        (3, &[10, 10, 10, 10], &[75, 75, 75, 75]),
        (2, &[u64::from(u32::MAX) << 14, 1, 1], &[100, 50, 50]),
    ];
    for (seats, weights, expected) in cases {
        let parts: Vec<u64> = parts(seats, weights).iter().map(|part| (part + 1_000) / (ONE / 100)).collect();
        assert_eq!(parts, expected, "{seats} of {weights:?}");
    }
}

#[test]
fn drives_share_what_their_domain_gets() {
    let mut all = drives(9, 3);
    all[0].weight = Weight(8_000);
    let domains = Domains::new(Conflict::Server, &all);
    let shares = shares(shape(1, 1, Conflict::Server), &all, &domains);
    // One seat in all; the heavier drive has a fifth of all weight, the others a tenth each.
    let tenths = shares.iter().map(|share| (share.part + 1_000) / (ONE / 10)).collect::<Vec<_>>();
    assert_eq!(tenths, [2, 1, 1, 1, 1, 1, 1, 1, 1]);
}

#[test]
fn the_smallest_weight_still_arrives() {
    let mut all = drives(3, 1);
    all[0].weight = Weight(1);
    all[1].weight = Weight(u32::MAX);
    all[2] = drive(2, 1, u32::MAX);
    let domains = Domains::new(Conflict::Drive, &all);
    assert!(shares(shape(1, 1, Conflict::Drive), &all, &domains).iter().all(|share| share.rate > 0));
}
