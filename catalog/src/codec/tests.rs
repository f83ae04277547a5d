//! What both written forms take and refuse, field by field.

use super::pack::{PackSink, PackSource};
use super::text::{TextSink, TextSource};
use super::*;

const WORDS: &[&str] = &["hdd", "ssd", "nvme"];

#[test]
fn words_are_numbers_from_one() {
    for (number, place) in [(0, None), (1, Some(0)), (3, Some(2)), (4, None), (127, None)] {
        let error = FormError::BadNumber { what: "class", value: u64::from(number) };
        assert_eq!(PackSource::new(&[number]).word("class", WORDS), place.ok_or(error), "{number}");
        if let Some(place) = place {
            let mut out = PackSink::default();
            out.word("class", WORDS, place);
            assert_eq!(out.0, [number]);
        }
    }
}

#[test]
fn words_of_a_line_have_a_blank_between_them() {
    let mut out = TextSink::default();
    out.uint("a", 1);
    out.word("class", WORDS, 1);
    assert_eq!(out.0, "a=1 class=ssd");
    out.0.push('\n');
    out.text("name", "50% ä");
    out.bytes("value", &[0x0f, 0xf0]);
    assert_eq!(out.0, "a=1 class=ssd\nname=50%25%20%c3%a4 value=0ff0");
}

#[test]
fn a_value_of_a_line_is_read_as_it_is_written_and_no_other_way() {
    let uint = |text| TextSource::new(text, 3).uint("a");
    let text = |text| TextSource::new(text, 3).text("a", 4);
    let bytes = |text| TextSource::new(text, 3).bytes("a", 2);
    let bad = || FormError::BadText { line: 3, what: "a" };
    for (line, expected) in [
        ("a=0", Some(0)),
        ("a=18446744073709551615", Some(u64::MAX)),
        ("a=18446744073709551616", None),
        ("a=+1", None),
        ("a=", None),
        ("a", None),
        ("b=1", None),
        ("aa=1", None),
        ("", None),
    ] {
        assert_eq!(uint(line), expected.ok_or_else(bad), "{line}");
    }
    for (line, expected) in [
        ("a=", Some("")),
        ("a=%25=%2f", Some("%=/")),
        ("a=%c3%a4", Some("ä")),
        ("a=abcd", Some("abcd")),
        ("a=abcde", None),
        ("a=%c3", None),
        ("a=%2", None),
        ("a=%2F", None),
        ("a=%", None),
    ] {
        assert_eq!(text(line), expected.map(str::to_owned).ok_or_else(bad), "{line}");
    }
    for (line, expected) in [
        ("a=", Some(&[][..])),
        ("a=09af", Some(&[0x09, 0xaf])),
        ("a=09afff", None),
        ("a=09a", None),
        ("a=0g", None),
        ("a=0A", None),
    ] {
        assert_eq!(bytes(line), expected.map(<[u8]>::to_vec).ok_or_else(bad), "{line}");
    }
    let mut source = TextSource::new("drive a=1", 3);
    assert_eq!(
        (source.kind(), source.finish()),
        (Ok("drive"), Err(FormError::BadText { line: 3, what: "end of the line" }))
    );
}
