//! A file that Valkey 8.1 wrote, with every type and encoding that it has.

use super::{import, payload_of};
use crate::rdb::encode::Encoder;
use crate::value::list::Fill;

/// The file in hexadecimal.
const VALKEY: &str = include_str!("valkey-8.1.hex");

/// The file.
pub(super) fn valkey() -> Vec<u8> {
    let digits: Vec<u8> = VALKEY.bytes().filter(u8::is_ascii_hexdigit).collect();
    let digit = |byte: u8| u8::try_from(char::from(byte).to_digit(16).unwrap()).unwrap();
    digits.chunks(2).map(|two| digit(two[0]) << 4 | digit(two[1])).collect()
}

#[test]
fn a_file_of_valkey_is_read() {
    let (mut talk, imported) = import(&valkey(), 100).unwrap();
    assert_eq!((imported.keys, imported.expired, imported.empty), (23, 0, 0));
    let library = "#!lua name=lib\nserver.register_function('f', function() return 1 end)";
    assert_eq!(imported.libraries, [library.as_bytes()]);
    let compressed = format!("\"{}\"", "ab".repeat(40));
    let list = format!("[\"a\" \"12\" \"-5000\" \"{}\"]", "b".repeat(70));
    let plain = format!("[\"{}\" \"q\"]", "p".repeat(4_100));
    for (command, expected) in [
        ("GET string", "\"hello\""),
        ("GET int8", "\"-7\""),
        ("GET int16", "\"300\""),
        ("GET int32", "\"70000\""),
        ("GET int64", "\"5000000000\""),
        ("GET compressed", &compressed),
        ("PEXPIRETIME expiring", "33000000000000"),
        ("LRANGE list 0 -1", &list),
        ("LRANGE quicklist 0 -1", "[\"1\" \"2\" \"3\" \"four\" \"five\"]"),
        ("OBJECT ENCODING quicklist", "\"quicklist\""),
        ("LRANGE plain 0 -1", &plain),
        ("SMEMBERS intset16", "[\"-1\" \"2\" \"30000\"]"),
        ("SMEMBERS intset32", "[\"1\" \"70000\"]"),
        ("SMEMBERS intset64", "[\"1\" \"5000000000\"]"),
        ("OBJECT ENCODING intset64", "\"intset\""),
        ("SMEMBERS set", "[\"x\" \"y\" \"10\"]"),
        ("SORT settable ALPHA", "[\"3\" \"one\" \"two\"]"),
        ("ZRANGE zset 0 -1 WITHSCORES", "[\"low\" \"-inf\" \"one\" \"1\" \"half\" \"2.5\" \"big\" \"1e+30\"]"),
        ("ZRANGE skiplist 0 -1 WITHSCORES", "[\"one\" \"1\" \"half\" \"2.5\" \"high\" \"inf\"]"),
        ("OBJECT ENCODING skiplist", "\"listpack\""),
        ("HGETALL hash", "[\"field\" \"value\" \"number\" \"42\"]"),
        ("HMGET hashtable f g", "[\"1\" \"two\"]"),
        (
            "XRANGE stream - +",
            "[[\"1-1\" [\"name\" \"n1\" \"age\" \"1\"]] [\"3-1\" [\"name\" \"n3\" \"age\" \"3\"]] [\"9-9\" [\"other\" \"fields\"]]]",
        ),
        ("XPENDING stream readers", "[1 \"1-1\" \"1-1\" [[\"alice\" \"1\"]]]"),
        (
            "XINFO GROUPS emptystream",
            "[[\"name\" \"g\" \"consumers\" 0 \"pending\" 0 \"last-delivered-id\" \"0-0\" \"entries-read\" (nil) \"lag\" 0]]",
        ),
        ("PFCOUNT hll", "3"),
        ("SELECT 7", "OK"),
        ("GET elsewhere", "\"1\""),
    ] {
        assert_eq!(talk.say(0, command), expected, "{command}");
    }
}

#[test]
fn the_same_values_are_written_the_same() {
    let file = valkey();
    let (mut talk, _) = import(&file, usize::MAX).unwrap();
    let mut encoder = Encoder::new(true, Fill::default());
    for key in [
        "string",
        "int8",
        "int16",
        "int32",
        "int64",
        "compressed",
        "expiring",
        "list",
        "quicklist",
        "intset16",
        "intset32",
        "intset64",
        "set",
        "zset",
        "hash",
        "emptystream",
        "hll",
    ] {
        let payload = payload_of(&talk.raw(0, format!("DUMP {key}\r\n").as_bytes())).unwrap();
        let (number, rest) = payload.split_first().unwrap();
        let mut written = vec![*number];
        encoder.text(key.as_bytes(), &mut written);
        written.extend_from_slice(&rest[..rest.len() - 10]);
        assert!(file.windows(written.len()).any(|part| part == written), "{key}");
    }
}

#[test]
fn every_cut_and_every_flip_is_refused() {
    let file = valkey();
    for cut in 0..file.len() {
        assert!(import(&file[..cut], usize::MAX).is_err(), "cut at {cut}");
    }
    for at in 0..file.len() {
        let mut flipped = file.clone();
        flipped[at] ^= 1 << (at % 8);
        assert!(import(&flipped, usize::MAX).is_err(), "byte {at}");
    }
}
