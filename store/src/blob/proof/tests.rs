use super::*;

#[test]
fn every_state_is_recovered() {
    let counts = enumerate_blobs(48, 1, None).unwrap();
    assert!(counts.acknowledged > 500 && counts.interrupted > 50 && counts.survived > 5, "{counts:?}");
    assert!(counts.erased > 50 && counts.emptied > 2 && counts.refused > 20 && counts.reads > 500, "{counts:?}");
}

#[test]
fn flipped_bytes_are_never_served() {
    let counts = flip_blobs(4_000, 1, None).unwrap();
    assert!(counts.flips > 300 && counts.lost > 0 && counts.damaged > 20, "{counts:?}");
}

#[test]
fn misplaced_blocks_are_never_served() {
    let counts = misplace_blobs(300, 1, None).unwrap();
    assert!(counts.lost > 20 && counts.damaged > 0, "{counts:?}");
}

#[test]
fn any_area_can_be_opened_and_used() {
    arbtest::arbtest(|u| {
        open_any(&u.arbitrary::<Vec<u8>>()?);
        Ok(())
    })
    .size_min(64)
    .size_max(600)
    .budget_ms(2_000);
}

#[test]
fn the_same_seed_gives_the_same_states() {
    assert_eq!(enumerate_blobs(8, 7, None), enumerate_blobs(8, 7, None));
}
