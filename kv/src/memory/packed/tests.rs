use super::*;
use crate::memory::draws::Draws;

fn element(draws: &mut Draws) -> Vec<u8> {
    match draws.below(10) {
        0..=2 => (draws.next().cast_signed() >> draws.below(64)).to_string().into_bytes(),
        3 => format!("0{}", draws.below(100)).into_bytes(),
        4 => vec![b'x'; draws.below(5000)],
        5 => vec![b'y'; 60 + draws.below(10)],
        _ => (0..draws.below(12)).map(|_| draws.byte()).collect(),
    }
}

fn packed(elements: &[&[u8]]) -> Packed {
    let mut packed = Packed::new();
    for element in elements {
        packed.push_back(*element);
    }
    packed
}

fn texts<'a>(pieces: impl Iterator<Item = Piece<'a>>) -> Vec<Vec<u8>> {
    pieces.map(|piece| piece.to_vec()).collect()
}

#[test]
fn each_element_has_the_bytes_of_the_format() {
    #[track_caller]
    fn check(element: &[u8], bytes: &[u8]) {
        let packed = packed(&[element]);
        assert_eq!(packed.as_bytes(), bytes, "{}", element.escape_ascii());
        assert_eq!(texts(packed.iter()), [element]);
        assert_eq!(Piece::from(element).entry_bytes(), bytes.len());
        assert_eq!(Packed::from_bytes(bytes), Ok(packed));
    }
    check(b"", &[0x80, 1]);
    check(b"abc", &[0x83, b'a', b'b', b'c', 4]);
    check(b"0", &[0, 1]);
    check(b"127", &[0x7f, 1]);
    check(b"128", &[0xd0, 0x80, 2]);
    check(b"-1", &[0xef, 0xff, 2]);
    check(b"4095", &[0xdf, 0xff, 2]);
    check(b"-4096", &[0xe0, 0, 2]);
    check(b"4096", &[0xf2, 0, 0x10, 3]);
    check(b"-4097", &[0xf2, 0xff, 0xef, 3]);
    check(b"32768", &[0xf3, 0, 0x80, 0, 4]);
    check(b"-32768", &[0xf2, 0, 0x80, 3]);
    check(b"9223372036854775807", &[0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 9]);
    check(b"-9223372036854775808", &[0xf8, 0, 0, 0, 0, 0, 0, 0, 0x80, 9]);
    check(b"-0", &[0x82, b'-', b'0', 3]);
    check(b"01", &[0x82, b'0', b'1', 3]);
    let long = [b'a'; 64];
    check(&long, &[&[0xc0, 64], &long[..], &[66]].concat());
    let longer = [b'a'; 200];
    check(&longer, &[&[0xc0, 200], &longer[..], &[0x01, 0x80 | 74]].concat());
    let longest = [b'a'; 4096];
    check(&longest, &[&[0xff, 0, 0x10, 0, 0], &longest[..], &[0x20, 0x80 | 5]].concat());
}

#[test]
fn elements_of_any_length_are_walked_both_ways() {
    let mut packed = Packed::new();
    let lens = [0, 1, 62, 63, 64, 124, 125, 126, 127, 4095, 4096, 16_378, 16_379, 2_097_146, 2_097_147, 3_000_000];
    for len in lens {
        packed.push_back(&vec![b'x'; len]);
    }
    assert!(packed.iter().map(|piece| piece.len()).eq(lens));
    assert!(packed.iter().rev().map(|piece| piece.len()).eq(lens.into_iter().rev()));
    assert_eq!(Packed::from_bytes(packed.as_bytes()), Ok(packed));
}

#[test]
fn only_canonical_decimals_are_integers() {
    for (text, value) in [
        ("0", Some(0)),
        ("-1", Some(-1)),
        ("9223372036854775807", Some(i64::MAX)),
        ("-9223372036854775808", Some(i64::MIN)),
        ("9223372036854775808", None),
        ("-9223372036854775809", None),
        ("99999999999999999999", None),
        ("", None),
        ("-", None),
        ("-0", None),
        ("+1", None),
        ("00", None),
        ("1 ", None),
        ("1.0", None),
        ("1a", None),
    ] {
        assert_eq!(parse_integer(text.as_bytes()), value, "{text}");
    }
}

#[test]
fn what_is_not_the_only_form_is_refused() {
    for bytes in [
        &[0x00][..],
        &[0x00, 2],
        &[0x00, 0x80, 1],
        &[0x81, b'7', 2],
        &[0x83, b'a', b'b', 4],
        &[0xc0, 1, b'a', 3],
        &[0xd0, 5, 2],
        &[0xf2, 1, 0, 3],
        &[0xf1, 1, 2],
        &[0xf9, 1, 2],
        &[0xff, 1, 0, 0, 0, b'a', 6],
        &[0xff, 0xff, 0xff, 0xff, 0xff, b'a', 6],
        &[0x00, 1, 0x80],
    ] {
        assert_eq!(Packed::from_bytes(bytes), Err(Malformed), "{bytes:x?}");
    }
}

#[test]
fn any_bytes_are_refused_or_are_the_form_of_what_they_hold() {
    let mut draws = Draws(7);
    let mut kept = 0;
    for _ in 0..20_000 {
        let mut bytes = packed(&[&element(&mut draws)[..], &element(&mut draws)[..]]).as_bytes().to_vec();
        for _ in 0..draws.below(3) {
            let place = draws.below(bytes.len());
            bytes[place] = draws.byte();
        }
        if let Ok(read) = Packed::from_bytes(&bytes) {
            kept += 1;
            let elements = texts(read.iter());
            let slices: Vec<&[u8]> = elements.iter().map(Vec::as_slice).collect();
            assert_eq!(packed(&slices).as_bytes(), bytes);
            assert_eq!(read.len(), elements.len());
        }
    }
    assert!((5_000..20_000).contains(&kept), "both answers were given: {kept}");
}

#[test]
fn find_looks_at_every_strideth() {
    let pairs = packed(&[b"a", b"b", b"b", b"a", b"7", b"1"]);
    let at = |n: usize| pairs.nth(n);
    let first = pairs.first().unwrap();
    assert_eq!(pairs.find(b"b", first, 1), at(1));
    assert_eq!(pairs.find(b"b", first, 2), at(2));
    assert_eq!(pairs.find(b"a", at(1).unwrap(), 2), at(3));
    assert_eq!(pairs.find(b"7", first, 2), at(4));
    assert_eq!(pairs.find(b"1", first, 2), None);
    assert_eq!(pairs.find(b"07", first, 1), None);
    assert_eq!(Packed::new().find(b"", Place(0), 1), None);
}

#[test]
fn a_sequence_does_what_a_vector_does() {
    for seed in 0..20 {
        let mut draws = Draws(seed);
        let (mut packed, mut model) = (Packed::new(), Vec::<Vec<u8>>::new());
        for _ in 0..400 {
            step(&mut draws, &mut packed, &mut model);
            assert_eq!(texts(packed.iter()), model);
            assert_eq!(packed.len(), model.len());
        }
        assert_eq!(texts(packed.iter().rev()), model.iter().rev().cloned().collect::<Vec<_>>());
        assert_eq!(Packed::from_bytes(packed.as_bytes()).unwrap(), packed);
        for n in 0..=model.len() {
            assert_eq!(packed.nth(n).map(|place| packed.get(place).to_vec()), model.get(n).cloned());
        }
    }
}

fn step(draws: &mut Draws, packed: &mut Packed, model: &mut Vec<Vec<u8>>) {
    let element = element(draws);
    let n = draws.below(model.len() + 1);
    let place = packed.nth(n).unwrap_or(packed.end());
    match draws.below(10) {
        0 => {
            packed.push_back(&element);
            model.push(element);
        }
        1 => {
            packed.push_front(&element);
            model.insert(0, element);
        }
        2 | 3 => {
            packed.insert(place, &element);
            model.insert(n, element);
        }
        4 if n < model.len() => {
            packed.replace(place, &element);
            model[n] = element;
        }
        5 if n < model.len() => {
            packed.remove(place);
            model.remove(n);
        }
        6 if draws.below(2) == 0 => {
            let end = (n + draws.below(5)).min(model.len());
            packed.remove_between(place, packed.nth(end).unwrap_or(packed.end()));
            model.drain(n..end);
        }
        6 => {
            let count = draws.below(5);
            let removed = model.drain(n..model.len().min(n + count)).count();
            assert_eq!(packed.remove_many(place, count), removed);
        }
        7 => {
            let tail = packed.split_off(place);
            assert_eq!(texts(tail.iter()), model[n..]);
            packed.append(&tail);
        }
        8 => {
            let unwanted = model.get(n).cloned().unwrap_or_default();
            let (skip, count_max) = (draws.below(2), draws.below(3));
            let equal: Vec<usize> = (0..model.len()).filter(|n| model[*n] == unwanted).collect();
            let gone: Vec<usize> = equal.into_iter().skip(skip).take(count_max).collect();
            assert_eq!(packed.remove_equal(&unwanted, skip, count_max), gone.len());
            for n in gone.into_iter().rev() {
                model.remove(n);
            }
        }
        _ => {
            assert_eq!(texts(packed.iter_from(place)), model[n..]);
            assert_eq!(texts(packed.iter_until(place)), model[..n]);
            let (mut front, mut back) = (packed.iter(), packed.iter());
            assert_eq!((texts(front.split_front(n)), texts(front.clone())), (model[..n].to_vec(), model[n..].to_vec()));
            assert_eq!(packed.place_of(&front), place);
            let kept = model.len() - n;
            assert_eq!((texts(back.split_back(n)), texts(back)), (model[kept..].to_vec(), model[..kept].to_vec()));
            let found = model.iter().position(|other| *other == element);
            assert_eq!(packed.find(&element, Place(0), 1), found.and_then(|n| packed.nth(n)));
        }
    }
}

#[test]
fn memory_goes_back_when_elements_go() {
    let mut packed = Packed::new();
    for _ in 0..1000 {
        packed.push_back(b"some element");
    }
    assert!(packed.bytes_held() < packed.byte_len() + packed.byte_len() / 7 + 16);
    packed.remove_many(packed.first().unwrap(), 990);
    assert!(packed.bytes_held() < 200, "{}", packed.bytes_held());
    packed.clear();
    assert_eq!(packed.bytes_held(), 0);
}
