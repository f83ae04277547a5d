//! Values as payloads, and what RESTORE refuses.

use super::{BEGIN_MS, Talk, readable};

/// `hello`, as DUMP of Valkey 8.1 gives it.
const HELLO: &[u8] = b"\x00\x05hello\x0b\x00\x0a\xad\x62\x05\x98\xab\xc9\x83";

/// Sends words as they are.
fn send(talk: &mut Talk, words: &[&[u8]]) -> String {
    let mut request = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        request.extend_from_slice(word);
        request.extend_from_slice(b"\r\n");
    }
    readable(&talk.raw(0, &request))
}

#[test]
fn a_value_is_dumped_as_valkey_does() {
    let mut talk = Talk::new();
    assert_eq!(talk.say(0, "DUMP nosuch"), "(nil)");
    talk.say(0, "SET key hello");
    assert_eq!(talk.say(0, "DUMP key"), format!("\"{}\"", HELLO.escape_ascii()));
}

#[test]
fn restore_has_options() {
    let mut talk = Talk::new();
    assert_eq!(send(&mut talk, &[b"RESTORE", b"key", b"0", HELLO]), "OK");
    assert_eq!(talk.say(0, "GET key"), "\"hello\"");
    assert_eq!(talk.say(0, "PTTL key"), "-1");
    let busy = "(error) BUSYKEY Target key name already exists.";
    assert_eq!(send(&mut talk, &[b"RESTORE", b"key", b"0", HELLO]), busy);
    assert_eq!(send(&mut talk, &[b"RESTORE", b"key", b"5000", HELLO, b"replace"]), "OK");
    assert_eq!(talk.say(0, "PTTL key"), "5000");
    let at = (BEGIN_MS + 7_000).to_string();
    assert_eq!(send(&mut talk, &[b"RESTORE", b"key", at.as_bytes(), HELLO, b"REPLACE", b"ABSTTL"]), "OK");
    assert_eq!(talk.say(0, "PTTL key"), "7000");
    assert_eq!(send(&mut talk, &[b"RESTORE", b"key", b"0", HELLO, b"REPLACE", b"IDLETIME", b"1000"]), "OK");
    assert_eq!(talk.say(0, "OBJECT IDLETIME key"), "1000");
    talk.say(0, "CONFIG SET maxmemory-policy allkeys-lfu");
    assert_eq!(send(&mut talk, &[b"RESTORE", b"key", b"0", HELLO, b"REPLACE", b"FREQ", b"77"]), "OK");
    assert_eq!(talk.say(0, "OBJECT FREQ key"), "77");
    // A time that has passed takes out what was there.
    assert_eq!(send(&mut talk, &[b"RESTORE", b"key", b"1", HELLO, b"REPLACE", b"ABSTTL"]), "OK");
    assert_eq!(talk.say(0, "EXISTS key"), "0");
}

#[test]
fn restore_refuses() {
    let mut talk = Talk::new();
    let mut flipped = HELLO.to_vec();
    flipped[3] ^= 1;
    let wrong_foot = "(error) ERR DUMP payload version or checksum are wrong";
    for (words, expected) in [
        (&[b"0".as_slice(), HELLO, b"IDLETIME", b"-1"][..], "(error) ERR Invalid IDLETIME value, must be >= 0"),
        (&[b"0", HELLO, b"FREQ", b"256"], "(error) ERR Invalid FREQ value, must be >= 0 and <= 255"),
        (&[b"0", HELLO, b"FREQ", b"-1"], "(error) ERR Invalid FREQ value, must be >= 0 and <= 255"),
        (&[b"0", HELLO, b"FREQ", b"x"], "(error) ERR value is not an integer or out of range"),
        (&[b"0", HELLO, b"FREQ", b"1", b"IDLETIME", b"1"], "(error) ERR syntax error"),
        (&[b"0", HELLO, b"IDLETIME"], "(error) ERR syntax error"),
        (&[b"0", HELLO, b"OTHER"], "(error) ERR syntax error"),
        (&[b"x", HELLO], "(error) ERR value is not an integer or out of range"),
        (&[b"-1", HELLO], "(error) ERR Invalid TTL value, must be >= 0"),
        (&[b"0", b""], wrong_foot),
        (&[b"0", b"short"], wrong_foot),
        (&[b"0", &flipped], wrong_foot),
        (&[b"0", &HELLO[2..]], wrong_foot),
    ] {
        let words = [&[b"RESTORE".as_slice(), b"key"], words].concat();
        assert_eq!(send(&mut talk, &words), expected, "{}", words[3..].concat().escape_ascii());
        assert_eq!(talk.say(0, "EXISTS key"), "0");
    }
}

#[test]
fn a_checksum_may_be_ignored_and_nothing_else() {
    let mut talk = Talk::new();
    let mut wrong = HELLO.to_vec();
    *wrong.last_mut().unwrap() ^= 1;
    let refused = "(error) ERR DUMP payload version or checksum are wrong";
    assert_eq!(send(&mut talk, &[b"RESTORE", b"key", b"0", &wrong]), refused);
    assert_eq!(talk.say(0, "DEBUG SET-SKIP-CHECKSUM-VALIDATION 1"), "OK");
    assert_eq!(send(&mut talk, &[b"RESTORE", b"key", b"0", &wrong]), "OK");
    // A zipmap whose first length is written in five bytes though one is enough.
    let zipmap = b"\x09\x18\x02\xfe\x03\x00\x00\x00abc\x03\x00def\x03ghi\x03\x00jkl\xff\x50\x00\0\0\0\0\0\0\0\0";
    assert_eq!(send(&mut talk, &[b"RESTORE", b"map", b"0", zipmap]), "(error) ERR Bad data format");
    wrong[7] = 200;
    assert_eq!(send(&mut talk, &[b"RESTORE", b"other", b"0", &wrong]), refused);
    // Redis has another meaning for the number of hashes with fields that expire.
    let foreign = b"\x16\x00\x0c\x00\0\0\0\0\0\0\0\0";
    talk.say(0, "CONFIG SET rdb-version-check relaxed");
    let unsupported = "(error) ERR Unsupported foreign data type: 22";
    assert_eq!(send(&mut talk, &[b"RESTORE", b"other", b"0", foreign]), unsupported);
    assert_eq!(talk.say(0, "DEBUG SET-SKIP-CHECKSUM-VALIDATION 0"), "OK");
    assert_eq!(send(&mut talk, &[b"RESTORE", b"other", b"0", foreign]), refused);
}
