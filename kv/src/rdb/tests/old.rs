//! Types that are written no more, and those of Redis since its formats are its own: made by hand.

use super::import;
use crate::rdb::code::{VERSION, kind, opcode};
use crate::rdb::crc::Crc;
use crate::rdb::encode::{Encoder, push_length};
use crate::rdb::listpack::Listpack;
use crate::rdb::{Damage, ImportCause};
use crate::tests::BEGIN_MS;
use crate::value::list::Fill;

/// A file with one key, `k`, of this type and body.
fn file(head: &str, number: u8, body: &[u8]) -> Vec<u8> {
    let mut file = head.as_bytes().to_vec();
    file.push(number);
    file.extend_from_slice(b"\x01k");
    file.extend_from_slice(body);
    file.push(opcode::END);
    if head > "REDIS0004" {
        file.extend_from_slice(&Crc::of(&file).to_le_bytes());
    }
    file
}

/// The head of the usual version.
fn usual() -> String {
    format!("REDIS{VERSION:04}")
}

fn text(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Encoder::new(false, Fill::default()).text(text, &mut out);
    out
}

fn counted(count: u64, parts: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    push_length(count, &mut out);
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out
}

fn ziplist(elements: &[&str]) -> Vec<u8> {
    let (mut body, mut before, mut last) = (Vec::new(), 0, 0);
    for element in elements {
        let mut entry = if before < 254 {
            vec![u8::try_from(before).unwrap()]
        } else {
            [&[254][..], &u32::try_from(before).unwrap().to_le_bytes()].concat()
        };
        match element.parse::<i64>() {
            Ok(small @ 0..=12) => entry.push(0xf1 + u8::try_from(small).unwrap()),
            Ok(number) if i16::try_from(number).is_ok() => {
                entry.push(0xc0);
                entry.extend_from_slice(&i16::try_from(number).unwrap().to_le_bytes());
            }
            Ok(number) => {
                entry.push(0xe0);
                entry.extend_from_slice(&number.to_le_bytes());
            }
            Err(_) if element.len() < 64 => {
                entry.push(u8::try_from(element.len()).unwrap());
                entry.extend_from_slice(element.as_bytes());
            }
            Err(_) => {
                let [high, low] = u16::try_from(element.len()).unwrap().to_be_bytes();
                entry.extend_from_slice(&[0x40 | high, low]);
                entry.extend_from_slice(element.as_bytes());
            }
        }
        last = 10 + body.len();
        before = entry.len();
        body.extend_from_slice(&entry);
    }
    let len = u32::try_from(body.len() + 11).unwrap().to_le_bytes();
    let last = u32::try_from(last.max(10)).unwrap().to_le_bytes();
    let count = u16::try_from(elements.len()).unwrap().to_le_bytes();
    [&len[..], &last, &count, &body, &[0xff]].concat()
}

fn listpack(elements: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut listpack = Listpack::begin(&mut out);
    elements.iter().for_each(|element| listpack.push(element.as_bytes()));
    listpack.finish().to_vec()
}

/// Imports a file with one key, and asks.
fn ask(file: &[u8], command: &str) -> String {
    let (mut talk, imported) = import(file, 5).unwrap();
    assert_eq!(imported.keys, 1);
    talk.say(0, command)
}

#[test]
fn collections_element_by_element() {
    let [a, b, one] = [text(b"a"), text(b"b"), text(b"1")];
    for (number, body, command, expected) in [
        (kind::LIST, counted(3, &[&a, &b, &one]), "LRANGE k 0 -1", "[\"a\" \"b\" \"1\"]"),
        (kind::SET, counted(3, &[&a, &b, &one]), "SMEMBERS k", "[\"a\" \"b\" \"1\"]"),
        (kind::SET, counted(1, &[&one]), "OBJECT ENCODING k", "\"intset\""),
        (kind::HASH, counted(2, &[&a, &one, &b, &b]), "HGETALL k", "[\"a\" \"1\" \"b\" \"b\"]"),
        (
            kind::ZSET,
            counted(4, &[&a, b"\x03205", &b, b"\xfe", &one, b"\xff", &text(b"x"), b"\x050.125"]),
            "ZRANGE k 0 -1 WITHSCORES",
            "[\"1\" \"-inf\" \"x\" \"0.125\" \"a\" \"205\" \"b\" \"inf\"]",
        ),
    ] {
        assert_eq!(ask(&file("REDIS0003", number, &body), command), expected, "type {number}");
    }
}

#[test]
fn ziplists_and_zipmaps() {
    let long = "y".repeat(300);
    let elements = ["a", "7", "-300", "12345678901", &long, "z"];
    let expected = format!("[\"a\" \"7\" \"-300\" \"12345678901\" \"{long}\" \"z\"]");
    let list = text(&ziplist(&elements));
    assert_eq!(ask(&file("REDIS0006", kind::LIST_ZIPLIST, &list), "LRANGE k 0 -1"), expected);
    let nodes = counted(2, &[&text(&ziplist(&elements[..2])), &text(&ziplist(&elements[2..]))]);
    assert_eq!(ask(&file("REDIS0009", kind::LIST_QUICKLIST, &nodes), "LRANGE k 0 -1"), expected);
    let hash = text(&ziplist(&elements));
    let pairs = format!("[\"a\" \"7\" \"-300\" \"12345678901\" \"{long}\" \"z\"]");
    assert_eq!(ask(&file("REDIS0006", kind::HASH_ZIPLIST, &hash), "HGETALL k"), pairs);
    let scores = text(&ziplist(&["low", "-inf", "a", "-1.5", "b", "3", "c", "3", "d", "1e300"]));
    assert_eq!(
        ask(&file("REDIS0006", kind::ZSET_ZIPLIST, &scores), "ZRANGE k 0 -1 WITHSCORES"),
        "[\"low\" \"-inf\" \"a\" \"-1.5\" \"b\" \"3\" \"c\" \"3\" \"d\" \"1e+300\"]"
    );
    let zipmap = text(b"\x02\x01a\x03\x00one\x03two\x01\x022..\xff");
    assert_eq!(ask(&file("REDIS0002", kind::HASH_ZIPMAP, &zipmap), "HGETALL k"), "[\"a\" \"one\" \"two\" \"2\"]");
}

/// A node with the entries 5-0 and 6-1.
fn nodes() -> Vec<u8> {
    let id = |ms: u64, seq: u64| [ms.to_be_bytes(), seq.to_be_bytes()].concat();
    let node = listpack(&[
        "2", "1", "1", "f", "0", "2", "0", "0", "x", "4", "3", "0", "9", "y", "4", "0", "1", "1", "1", "g", "z", "6",
    ]);
    counted(1, &[&text(&id(5, 0)), &text(&node)])
}

#[test]
fn streams_before_their_counts() {
    let id = |ms: u64, seq: u64| [ms.to_be_bytes(), seq.to_be_bytes()].concat();
    let pending = counted(1, &[&id(6, 1), &1_000_i64.to_le_bytes(), b"\x02"]);
    let consumers = counted(1, &[&text(b"ann"), &2_000_i64.to_le_bytes(), b"\x01", &id(6, 1)]);
    let first = [&nodes()[..], b"\x02\x06\x01", b"\x01", &text(b"grp"), b"\x06\x01", &pending, &consumers].concat();
    let second = [
        &nodes()[..],
        b"\x02\x06\x01",
        b"\x05\x00",
        b"\x05\x09",
        b"\x03",
        b"\x01",
        &text(b"grp"),
        b"\x06\x01",
        b"\x03",
        &pending,
        &consumers,
    ]
    .concat();
    for (number, body, added) in [(kind::STREAM, first, "2"), (kind::STREAM_2, second, "3")] {
        let (mut talk, _) = import(&file("REDIS0010", number, &body), 1).unwrap();
        assert_eq!(talk.say(0, "XRANGE k - +"), "[[\"5-0\" [\"f\" \"x\"]] [\"6-1\" [\"g\" \"z\"]]]");
        assert_eq!(talk.say(0, "XPENDING k grp - + 10"), format!("[[\"6-1\" \"ann\" {} 2]]", BEGIN_MS - 1_000));
        let groups = talk.say(0, "XINFO GROUPS k");
        assert!(groups.contains(&format!("\"entries-read\" {added} \"lag\" 0")), "{groups}");
        let consumers = talk.say(0, "XINFO CONSUMERS k grp");
        assert!(consumers.contains(&format!("\"inactive\" {}", BEGIN_MS - 2_000)), "{consumers}");
    }
}

#[test]
fn hashes_with_fields_that_expire() {
    let [a, b, c] = [text(b"a"), text(b"b"), text(b"c")];
    let first = BEGIN_MS + 1_000;
    let past = (BEGIN_MS - 1).to_le_bytes();
    let valkey = counted(3, &[&a, &b, &first.to_le_bytes(), &b, &c, &(-1_i64).to_le_bytes(), &c, &c, &past]);
    // Relative to the first, plus one.
    let redis = [&first.to_le_bytes()[..], &counted(3, &[b"\x01", &a, &b, b"\x00", &b, &c, b"\x05", &c, &a])].concat();
    let (at, later) = (first.to_string(), (first + 4).to_string());
    let triples = listpack(&["a", "b", &at, "c", "a", &later, "b", "c", "0"]);
    let packed = [&first.to_le_bytes()[..], &text(&triples)].concat();
    for (head, number, body, c_expires) in [
        ("VALKEY080", kind::HASH_2, valkey, "-2"),
        ("REDIS0012", kind::HASH_EXPIRING, redis, later.as_str()),
        ("REDIS0012", kind::HASH_LISTPACK_EXPIRING, packed, later.as_str()),
    ] {
        let file = file(head, number, &body);
        assert_eq!(ask(&file, "HMGET k a b"), "[\"b\" \"c\"]", "type {number}");
        assert_eq!(ask(&file, "HPEXPIRETIME k FIELDS 3 a b c"), format!("[{at} -1 {c_expires}]"), "type {number}");
    }
    let gone = counted(1, &[&a, &b, &past]);
    let (_, imported) = import(&file("VALKEY080", kind::HASH_2, &gone), 9).unwrap();
    assert_eq!((imported.keys, imported.expired), (0, 1));
}

#[test]
fn what_is_not_known_is_told() {
    let refused =
        |head: &str, number, body: &[u8]| import(&file(head, number, body), usize::MAX).err().map(|error| error.cause);
    let of_key = |damage| Some(ImportCause::Damage(damage, Some(b"k".to_vec())));
    // Nine letters of six bits, and a version: `AAAAAAAAB`, 0.
    let module = counted(1 << 10, &[]);
    assert_eq!(refused(&usual(), kind::MODULE, &module), of_key(Damage::Module(*b"AAAAAAAAB")));
    assert_eq!(refused(&usual(), 23, b""), Some(ImportCause::Damage(Damage::Type(23), None)));
    assert_eq!(refused("REDIS0012", kind::HASH_2, b"\0"), Some(ImportCause::Damage(Damage::Type(22), None)));
    assert_eq!(refused("REDIS0080", kind::STRING, b"\0"), Some(ImportCause::Version(80)));
    assert_eq!(refused("VALKEY079", kind::STRING, b"\0"), Some(ImportCause::Version(79)));
    assert_eq!(refused("REDIS0000", kind::STRING, b"\0"), Some(ImportCause::Version(0)));
    assert_eq!(refused("RADISH011", kind::STRING, b"\0"), Some(ImportCause::NotOne));
    let database = [usual().as_bytes(), &[opcode::DATABASE, 16, opcode::END, 0, 0, 0, 0, 0, 0, 0, 0]].concat();
    assert_eq!(import(&database, 1).err().map(|error| error.cause), Some(ImportCause::Database(16)));
}

#[test]
fn what_follows_no_rule_is_refused() {
    let [a, b] = [text(b"a"), text(b"b")];
    let id = |ms: u64, seq: u64| [ms.to_be_bytes(), seq.to_be_bytes()].concat();
    let rest = |len: u8, last: u8| [len, last, 1, 0, 0, 0, 0, 3, 0];
    let lonely = [
        &nodes()[..],
        &rest(2, 6)[..8],
        b"\x01",
        &text(b"g"),
        b"\0\0\0",
        &counted(1, &[&id(6, 1), &[0; 8], b"\x01"]),
        b"\0",
    ]
    .concat();
    for (number, body, damage) in [
        (kind::SET, counted(2, &[&a, &a]), Damage::Duplicate),
        (kind::HASH, counted(2, &[&a, &b, &a, &b]), Damage::Duplicate),
        (kind::ZSET_2, counted(2, &[&a, &[0; 8], &a, &[0; 8]]), Damage::Duplicate),
        (kind::ZSET_2, counted(1, &[&a, &f64::NAN.to_le_bytes()]), Damage::Number),
        (kind::ZSET, counted(1, &[&a, b"\xfd"]), Damage::Number),
        (kind::ZSET, counted(1, &[&a, b"\x03abc"]), Damage::Number),
        (kind::SET_LISTPACK, text(&listpack(&["a", "b", "a"])), Damage::Duplicate),
        (kind::HASH_LISTPACK, text(&listpack(&["a", "b", "c"])), Damage::Packed),
        (kind::HASH_LISTPACK, text(&listpack(&["a", "b", "a", "c"])), Damage::Duplicate),
        (kind::ZSET_LISTPACK, text(&listpack(&["a", "2", "b", "1"])), Damage::Order),
        (kind::ZSET_LISTPACK, text(&listpack(&["a", "2", "a", "3"])), Damage::Duplicate),
        (kind::ZSET_LISTPACK, text(&listpack(&["a", "nan"])), Damage::Number),
        (kind::SET_INTSET, text(b"\x02\0\0\0\x02\0\0\0\x05\0\x04\0"), Damage::Packed),
        (kind::SET_INTSET, text(b"\x03\0\0\0\x01\0\0\0\x05\0\x04"), Damage::Packed),
        (kind::SET_INTSET, text(b"\x02\0\0\0\0\0\0\0"), Damage::Packed),
        (kind::STRING, b"\xc3\x03\x08\x20\x00\x00".to_vec(), Damage::Compression),
        (kind::STRING, b"\xc3\x01\x82".to_vec(), Damage::Length),
        (kind::STRING, b"\xc4".to_vec(), Damage::Text),
        (kind::LIST_QUICKLIST_2, counted(1, &[b"\x03", &a]), Damage::Packed),
        (kind::STREAM_3, [&nodes()[..], &rest(3, 6)].concat(), Damage::Contradiction),
        (kind::STREAM_3, [&nodes()[..], &rest(2, 5)].concat(), Damage::Contradiction),
        (kind::STREAM_3, lonely, Damage::Contradiction),
        (kind::HASH_2, counted(1, &[&a, &b, &(-2_i64).to_le_bytes()]), Damage::Number),
    ] {
        let error = import(&file(&usual(), number, &body), usize::MAX).err().expect("it is refused");
        let found = if let ImportCause::Damage(found, _) = error.cause { Some(found) } else { None };
        assert_eq!(found, Some(damage), "type {number}, {body:02x?}");
    }
    let (_, imported) = import(&file(&usual(), kind::LIST, b"\0"), usize::MAX).unwrap();
    assert_eq!((imported.keys, imported.empty), (0, 1), "old servers wrote such by mistake");
}
