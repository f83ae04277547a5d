use super::*;

fn lanes(lanes: Lanes) -> Vec<usize> {
    lanes.collect()
}

#[test]
fn tags_are_compared_as_one_by_one() {
    let rows: [[u8; LANES]; 7] = [
        [0; 8],
        [1; 8],
        [255; 8],
        [0, 1, 2, 3, 4, 5, 6, 7],
        [128, 127, 129, 0, 255, 1, 2, 2],
        [2, 3, 2, 3, 2, 3, 2, 3],
        [9, 8, 9, 8, 0, 1, 0, 1],
    ];
    for row in rows {
        let tags = Tags(u64::from_le_bytes(row));
        let live: Vec<usize> = (0..LANES).filter(|lane| row[*lane] > DEAD).collect();
        assert_eq!(lanes(tags.live()), live, "{row:?}");
        assert_eq!(tags.has_empty(), row.contains(&EMPTY), "{row:?}");
        assert_eq!(tags.first_free(), row.iter().position(|tag| *tag <= DEAD), "{row:?}");
        for tag in 2..=255 {
            let found = lanes(tags.equal(tag));
            let expected: Vec<usize> = (0..LANES).filter(|lane| row[*lane] == tag).collect();
            assert!(expected.iter().all(|lane| found.contains(lane)), "{row:?} {tag}");
            assert_eq!(found.first(), expected.first(), "{row:?} {tag}");
        }
    }
}

#[test]
fn a_window_begins_and_ends_where_blocks_do() {
    for size in [1, 2, 3, 5, 8, 12, 31, 64, 96, 127, BLOCKS_MAX] {
        let segment = Segment::with_blocks(size);
        for block in 0..size {
            let first = segment.first_order(block);
            assert_eq!(segment.home(u32::try_from(first).unwrap()), block);
            if block > 0 {
                assert_eq!(segment.home(u32::try_from(first - 1).unwrap()), block - 1);
            }
        }
        assert_eq!(segment.first_order(size), 1 << 32);
    }
}

#[test]
fn visits_wrap_and_show_nothing_twice() {
    let mut segment = Segment::with_blocks(3);
    // All at home in the last block, so they go on in the first and second.
    for raw in 0..20 {
        segment.insert(Mark { order: u32::MAX, tag: 7 }, Handle::from_raw(raw));
    }
    for from in 0..3 {
        let mut seen = Vec::new();
        segment.visit(from, 3, |handle| seen.push(handle.raw()));
        seen.sort_unstable();
        assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "from {from}");
        assert_eq!(seen.len(), 20, "from {from}");
    }
}

#[test]
fn a_full_block_leaves_its_dead_behind() {
    let mut segment = Segment::with_blocks(2);
    let mark = Mark { order: 0, tag: 5 };
    (0..9).for_each(|raw| segment.insert(mark, Handle::from_raw(raw)));
    let place = |segment: &Segment, raw| segment.find(mark, |handle| handle.raw() == raw);
    let third = place(&segment, 3).unwrap();
    segment.remove(third);
    assert_eq!((segment.live, segment.dead), (8, 1));
    assert!(place(&segment, 8).is_some(), "the ninth is in the second block, behind the dead lane");
    let ninth = place(&segment, 8).unwrap();
    segment.remove(ninth);
    assert_eq!((segment.live, segment.dead), (7, 1), "the second block has empty lanes");
    segment.insert(mark, Handle::from_raw(3));
    assert_eq!((segment.live, segment.dead), (8, 0), "dead lanes are used again");
}

#[test]
fn how_much_a_segment_grows_is_spread_evenly() {
    for (blocks, least, most) in [(0, 1, 1), (1, 2, 2), (2, 3, 3), (3, 4, 4), (4, 5, 6), (12, 16, 19), (81, 108, 128)] {
        let segment = Segment::with_blocks(blocks);
        let sizes: std::collections::BTreeSet<usize> =
            (0..4_000_u32).map(|draw| segment.block_count_next(draw << 20 | draw)).collect();
        assert_eq!(sizes, (least..=most).collect(), "from {blocks}");
    }
    assert!((0..1_000).all(|draw| Segment::with_blocks(81).grows(draw)));
    assert!((0..1_000).all(|draw| !Segment::with_blocks(97).grows(draw)));
    for entries in [0, 1, 3, 7, 100, 896] {
        let room = |draw| Segment::with_room_for(entries, draw).used_max();
        assert!((0..1_000).all(|draw| room(draw) >= entries + entries / 4), "{entries}");
        assert!((0..1_000).all(|draw| room(draw) <= entries + entries / 2 + USED_MAX_PER_BLOCK), "{entries}");
    }
}
