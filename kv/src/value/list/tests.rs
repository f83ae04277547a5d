use super::*;
use crate::memory::draws::Draws;

fn element(draws: &mut Draws) -> Vec<u8> {
    match draws.below(12) {
        0 => vec![b'x'; draws.below(12_000)],
        1..=3 => vec![b'a' + draws.byte() % 3; 1],
        4 => vec![b'z'; draws.below(400)],
        _ => draws.below(50).to_string().into_bytes(),
    }
}

fn texts<'a>(pieces: impl Iterator<Item = Piece<'a>>) -> Vec<Vec<u8>> {
    pieces.map(|piece| piece.to_vec()).collect()
}

fn check_form(list: &List, fill: Fill) {
    match &list.body {
        Body::Short(packed) => assert!(packed.is_empty() || !fill.is_large(packed.byte_len())),
        Body::Long(nodes) => {
            nodes.check();
            for node in nodes.iter().filter(|node| node.len() > 1) {
                assert!(!fill.is_exceeded(node.byte_len(), node.len()), "{} {}", node.byte_len(), node.len());
            }
        }
    }
}

#[test]
fn a_list_does_what_a_vector_does() {
    let mut encodings = std::collections::BTreeSet::new();
    for seed in 0..40 {
        let mut draws = Draws(seed);
        let fill = [Fill(-2), Fill(-1), Fill(4), Fill(1), Fill(64)][draws.below(5)];
        let (mut list, mut model) = (List::new(), Vec::new());
        for _ in 0..500 {
            step(&mut draws, fill, &mut list, &mut model);
            assert_eq!(list.len(), model.len());
            check_form(&list, fill);
            encodings.insert(list.encoding());
        }
        assert_eq!(texts(list.iter()), model);
        assert_eq!(texts(list.iter().rev()), model.iter().rev().cloned().collect::<Vec<_>>());
        let copy = List::from_nodes(list.nodes().cloned(), fill);
        assert_eq!(texts(copy.iter()), model);
    }
    assert_eq!(encodings.len(), 2);
}

fn step(draws: &mut Draws, fill: Fill, list: &mut List, model: &mut Vec<Vec<u8>>) {
    let value = element(draws);
    let end = if draws.below(2) == 0 { End::Front } else { End::Back };
    let index = i64::try_from(draws.below(model.len() + 2)).unwrap();
    let signed = if end == End::Front { index } else { -index };
    match draws.below(14) {
        0..=4 => {
            list.push(end, &value, fill);
            model.insert(if end == End::Front { 0 } else { model.len() }, value);
        }
        5 => {
            let values: Vec<Vec<u8>> = (0..draws.below(40)).map(|_| element(draws)).collect();
            list.push_all(end, values.iter(), fill);
            for value in values {
                model.insert(if end == End::Front { 0 } else { model.len() }, value);
            }
        }
        6 => {
            let expected = if end == End::Front { (!model.is_empty()).then(|| model.remove(0)) } else { model.pop() };
            assert_eq!(list.pop(end, fill), expected);
        }
        7 => {
            let place = place_of(signed, model.len());
            assert_eq!(list.get(signed).map(|piece| piece.to_vec()), place.map(|place| model[place].clone()));
            assert_eq!(list.set(signed, &value, fill), place.is_some());
            if let Some(place) = place {
                model[place] = value;
            }
        }
        8 | 9 => {
            let pivot = model.get(draws.below(model.len() + 1)).cloned().unwrap_or_default();
            let found = model.iter().position(|other| *other == pivot);
            let side = if end == End::Front { Side::Before } else { Side::After };
            assert_eq!(list.insert(side, &pivot, &value, fill), found.is_some());
            if let Some(place) = found {
                model.insert(if side == Side::Before { place } else { place + 1 }, value);
            }
        }
        10 => {
            let unwanted = model.get(draws.below(model.len() + 1)).cloned().unwrap_or_default();
            check_remove(draws, fill, list, model, &unwanted);
        }
        11 if draws.below(6) == 0 => {
            let (start, stop) = (signed / 4, signed.saturating_add(200));
            let kept = span(start, stop, model.len());
            assert_eq!(list.trim(start, stop, fill), model.len() - kept.len());
            *model = model[kept].to_vec();
        }
        12 => check_positions(draws, list, model),
        _ => check_range(list, model, signed, signed + 20),
    }
}

fn check_remove(draws: &mut Draws, fill: Fill, list: &mut List, model: &mut Vec<Vec<u8>>, unwanted: &[u8]) {
    let count: i64 = [0, 1, 2, -1, -2][draws.below(5)];
    let mut equal: Vec<usize> = (0..model.len()).filter(|place| model[*place] == unwanted).collect();
    if count < 0 {
        equal.reverse();
    }
    if count != 0 {
        equal.truncate(usize::try_from(count.unsigned_abs()).unwrap());
    }
    equal.sort_unstable();
    assert_eq!(list.remove(unwanted, count, fill), equal.len());
    for place in equal.into_iter().rev() {
        model.remove(place);
    }
}

fn check_positions(draws: &mut Draws, list: &List, model: &[Vec<u8>]) {
    let wanted = model.get(draws.below(model.len() + 1)).cloned().unwrap_or_default();
    let rank: i64 = [1, 2, -1, -2, 0][draws.below(5)];
    let looked_max = draws.below(model.len() + 1);
    let looked = if looked_max == 0 { model.len() } else { looked_max };
    let mut places: Vec<usize> = (0..model.len()).collect();
    if rank < 0 {
        places.reverse();
    }
    places.truncate(looked);
    places.retain(|place| model[*place] == wanted);
    let skip = usize::try_from(rank.unsigned_abs()).unwrap();
    let expected: Vec<usize> = if skip == 0 { Vec::new() } else { places.into_iter().skip(skip - 1).collect() };
    assert_eq!(list.positions(&wanted, rank, looked_max).collect::<Vec<_>>(), expected);
}

fn check_range(list: &List, model: &[Vec<u8>], start: i64, stop: i64) {
    let expected = &model[span(start, stop, model.len())];
    assert_eq!(texts(list.range(start, stop)), expected);
    assert_eq!(texts(list.range(start, stop).rev()), expected.iter().rev().cloned().collect::<Vec<_>>());
    let mut both = list.range(start, stop);
    let mut halves = Vec::new();
    let mut backward = Vec::new();
    while let Some(front) = both.next() {
        halves.push(front.to_vec());
        backward.extend(both.next_back().map(|piece| piece.to_vec()));
    }
    halves.extend(backward.into_iter().rev());
    assert_eq!(halves, expected);
}

#[test]
fn a_list_is_long_when_one_sequence_is_exceeded_and_short_again_at_half() {
    let fill = Fill(-2);
    let mut list = List::new();
    // Each takes 103 bytes, with 7 around all: 79 make 8,144, and the next is reckoned with 100. 39 make 4,024.
    let value = [b'v'; 100];
    while list.encoding() == "listpack" {
        list.push(End::Back, &value, fill);
    }
    assert_eq!(list.len(), 80);
    list.remove_end(End::Back, 40, fill);
    assert_eq!((list.len(), list.encoding()), (40, "quicklist"));
    list.pop(End::Front, fill);
    assert_eq!((list.len(), list.encoding()), (39, "listpack"));
}

#[test]
fn a_counted_list_is_long_above_its_count() {
    let fill = Fill(3);
    let mut list = List::new();
    list.push_all(End::Back, [b"a", b"b", b"c"].iter(), fill);
    assert_eq!(list.encoding(), "listpack");
    list.push(End::Back, b"d", fill);
    assert_eq!(list.encoding(), "quicklist");
    list.trim(0, 1, fill);
    assert_eq!(list.encoding(), "quicklist");
    list.trim(0, 0, fill);
    assert_eq!(list.encoding(), "listpack");
    list.set(0, &[b'x'; 9000], fill);
    assert_eq!(list.encoding(), "quicklist");
}

#[test]
fn elements_move_between_ends_and_lists() {
    let fill = Fill::default();
    let mut list = List::new();
    list.push_all(End::Back, [b"1", b"2", b"3"].iter(), fill);
    assert_eq!(list.rotate(End::Back, End::Front, fill).unwrap(), b"3");
    assert_eq!(list.rotate(End::Front, End::Front, fill).unwrap(), b"3");
    assert_eq!(texts(list.iter()), [b"3", b"1", b"2"]);
    let mut other = List::new();
    assert_eq!(list.move_to(End::Front, &mut other, End::Back, fill).unwrap(), b"3");
    assert_eq!((texts(list.iter()), texts(other.iter())), (vec![b"1".to_vec(), b"2".to_vec()], vec![b"3".to_vec()]));
    assert_eq!(List::new().rotate(End::Back, End::Front, fill), None);
    assert_eq!(List::new().move_to(End::Back, &mut other, End::Front, fill), None);
}

#[test]
fn a_long_list_has_few_nodes_after_most_elements_are_gone() {
    let fill = Fill::default();
    let mut list = List::new();
    for n in 0..100_000 {
        list.push(End::Back, if n % 100 == 0 { b"kept" } else { b"gone" }, fill);
    }
    let before = list.nodes().count();
    assert_eq!(list.remove(b"gone", 0, fill), 99_000);
    assert!(list.nodes().count() < before / 3, "{} of {before}", list.nodes().count());
    assert!(list.iter().all(|piece| piece.to_vec() == b"kept"));
}

#[test]
fn elements_inserted_at_one_place_fill_their_nodes() {
    // The first and the last of a full node.
    for (side, place) in [(Side::Before, 50), (Side::After, 49)] {
        let fill = Fill(10);
        let mut list = List::new();
        list.push_all(End::Back, (0..100).map(|n| if n == place { "pivot".into() } else { format!("e{n}") }), fill);
        for n in 0..400 {
            assert!(list.insert(side, b"pivot", format!("i{n}").as_bytes(), fill));
        }
        let nodes = list.nodes().count();
        assert!(nodes <= 110, "{nodes} nodes of up to ten for 500 elements");
    }
}
