use super::*;

#[test]
fn every_state_is_recovered() {
    let counts = enumerate_blobs(48, 1, None).unwrap();
    assert!(counts.acknowledged > 500 && counts.interrupted > 50 && counts.survived > 5, "{counts:?}");
    assert!(counts.erased > 50 && counts.emptied > 2 && counts.refused > 20 && counts.reads > 500, "{counts:?}");
}

#[test]
fn flipped_bytes_are_never_served() {
    let counts = flip_blobs(4_000, 7, None).unwrap();
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

/// Each bug with a seed that shows it soon.
#[test]
fn planted_bugs_are_found() {
    for (bug, seed, states) in [
        (BlobBug::BatchNotDurable, 5, 4),
        (BlobBug::AnswerBeforeDurable, 6, 4),
        (BlobBug::AcceptTornBatch, 9, 8),
        (BlobBug::AcceptOldLife, 5, 32),
        (BlobBug::SkipOpeningSync, 1, 24),
        (BlobBug::IgnoreOrder, 3, 4),
        (BlobBug::OverwriteLastBatch, 7, 4),
        (BlobBug::ReuseBeforeErased, 10, 4),
        (BlobBug::EraseWhileRead, 4, 24),
        (BlobBug::DropTombstone, 7, 4),
        (BlobBug::ForgetCopies, 5, 8),
        (BlobBug::MoveAfterRemoval, 5, 4),
        (BlobBug::ForgetFormatting, 3, 56),
        (BlobBug::NoReserve, 7, 4),
    ] {
        assert!(enumerate_blobs(states, seed, Some(bug)).is_err(), "{bug:?} is not found");
    }
    for bug in [BlobBug::IgnoreGap, BlobBug::SkipVerification, BlobBug::SkipSeal] {
        assert!(flip_blobs(4_000, 7, Some(bug)).is_err(), "{bug:?} is not found");
    }
    assert!(misplace_blobs(2_000, 5, Some(BlobBug::IgnoreHead)).is_err());
}

#[test]
#[should_panic(expected = "a live blob has a record")]
fn a_segment_that_is_erased_before_its_moves_are_durable_trips_an_assertion() {
    let _ = enumerate_blobs(16, 1, Some(BlobBug::EraseBeforeMoved));
}

#[test]
#[should_panic(expected = "a segment that is erased has nothing in use")]
fn a_segment_that_is_erased_before_a_removal_is_durable_trips_an_assertion() {
    let _ = enumerate_blobs(200, 2, Some(BlobBug::EraseBeforeSuperseded));
}
