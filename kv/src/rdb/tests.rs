//! Whole files and payloads: what is written is read, and what is damaged is refused.

mod golden;
mod old;

use std::fmt::Write;

use super::encode::Attributes;
use super::writer::{Version, Writer};
use super::{Encoder, ImportCause, ImportError, ImportOptions, Imported, Value};
use crate::tests::{BEGIN_MS, Talk, readable};
use crate::time::Now;
use crate::value::list::Fill;

/// A client that has made some keys of every type and encoding.
fn filled() -> Talk {
    let mut talk = Talk::new();
    let mut say = |line: &str| {
        let reply = talk.say(0, line);
        assert!(!reply.starts_with("(error)"), "{reply}");
    };
    for (key, text) in [("int", "12345"), ("int8", "-7"), ("int64", "9223372036854775807"), ("short", "hello")] {
        say(&format!("SET {key} {text}"));
    }
    say(&format!("SET long {}", "abcdefgh".repeat(100)));
    let noise = (0..300_u32).map(|at| char::from_digit(at * at % 36, 36).unwrap()).collect::<String>();
    say(&format!("SET noise {noise}"));
    say("SET expiring x PX 100000");
    say("RPUSH list a b 3 400 -70000 5000000000");
    let many = (0..3_000).fold(String::new(), |mut line, at| {
        write!(line, " {}", at * 7_919).unwrap();
        line
    });
    for (command, key) in [("RPUSH", "longlist"), ("SADD", "longset"), ("SADD", "longset2")] {
        say(&format!("{command} {key}{many}"));
    }
    say("SADD longset2 x");
    say(&format!("RPUSH plain a {} b", "z".repeat(20_000)));
    say("SADD intset 1 -2 30000");
    say("SADD intset32 1 -2 70000");
    say("SADD intset64 1 -2 7000000000");
    say("SADD set a b c 4");
    say("ZADD zset 1 a 2.5 b -inf c 1e300 d 0.1 e 3 3");
    let pairs = (0..300).fold(String::new(), |mut line, at| {
        write!(line, " {}.5 member-{at}", at % 17).unwrap();
        line
    });
    say(&format!("ZADD longzset{pairs}"));
    say("HSET hash f v g 2 h 3.5");
    let pairs = (0..1_000).fold(String::new(), |mut line, at| {
        write!(line, " field-{at} {}", at * 7_919).unwrap();
        line
    });
    say(&format!("HSET longhash{pairs}"));
    say("HSET expiringhash a 1 b 2 c 3");
    say("HPEXPIRE expiringhash 50000 FIELDS 1 b");
    for at in 1..=250 {
        say(&format!("XADD stream {at}-1 name {at} other x"));
    }
    say("XADD stream 300-0 different 1");
    say("XDEL stream 3-1 4-1");
    say("XGROUP CREATE stream group 0");
    say("XGROUP CREATE stream idle 5-1");
    say("XREADGROUP GROUP group alice COUNT 3 STREAMS stream >");
    say("XREADGROUP GROUP group bob COUNT 2 STREAMS stream >");
    say("XGROUP CREATECONSUMER stream group carol");
    say("XGROUP CREATE empty g $ MKSTREAM");
    say("PFADD hll a b c d");
    say("SELECT 3");
    say("SET other database");
    say("SELECT 0");
    talk
}

const KEYS: [&str; 25] = [
    "int",
    "int8",
    "int64",
    "short",
    "long",
    "noise",
    "expiring",
    "list",
    "longlist",
    "longset",
    "longset2",
    "plain",
    "intset",
    "intset32",
    "intset64",
    "set",
    "zset",
    "longzset",
    "hash",
    "longhash",
    "expiringhash",
    "stream",
    "empty",
    "hll",
    "nosuch",
];

/// What can be seen of a key.
fn seen(talk: &mut Talk, key: &str) -> Vec<String> {
    let kind = talk.say(0, &format!("TYPE {key}"));
    let reads: &[&str] = match kind.as_str() {
        "string" => &["GET"],
        "list" => &["LRANGE 0 -1"],
        "set" => &["SMEMBERS"],
        "zset" => &["ZRANGE 0 -1 WITHSCORES"],
        "hash" => &["HGETALL", "HLEN"],
        "stream" => &["XINFO STREAM FULL", "XRANGE - +", "XLEN"],
        _ => &[],
    };
    let mut seen = vec![kind.clone()];
    for read in reads.iter().chain(&["PEXPIRETIME", "OBJECT ENCODING"]) {
        let (command, rest) = read.split_once(' ').unwrap_or((read, ""));
        let line = match command {
            "XINFO" => format!("XINFO STREAM {key} FULL COUNT 0"),
            "OBJECT" => format!("OBJECT ENCODING {key}"),
            _ => format!("{command} {key} {rest}"),
        };
        let mut reply = talk.say(0, &line);
        if matches!(command, "SMEMBERS" | "HGETALL") {
            let mut words: Vec<&str> = reply.trim_matches(['[', ']']).split(' ').collect();
            words.sort_unstable();
            reply = words.join(" ");
        }
        // A string that was changed in place is not written as one.
        reply = reply.replace("embstr", "raw");
        // How many nodes a stream has of which size is its own business.
        seen.push(reply.split("\"radix-tree-nodes\"").next().unwrap().to_owned());
    }
    if kind == "hash" {
        seen.push(talk.say(0, &format!("HPEXPIRETIME {key} FIELDS 3 a b c")));
    }
    seen
}

fn now() -> Now {
    Now { unix_us: BEGIN_MS * 1_000, instant: ashlar_wire::time::Instant::from_nanos(1) }
}

/// Reads a file in chunks of a size.
fn import(file: &[u8], chunk: usize) -> Result<(Talk, Imported), ImportError> {
    let talk = Talk::new();
    let mut import = talk.engine().import_rdb(ImportOptions::default());
    for bytes in file.chunks(chunk) {
        import.handle_bytes(bytes, now())?;
    }
    let imported = import.finish()?;
    Ok((talk, imported))
}

#[test]
fn what_is_exported_is_imported_the_same() {
    let mut talk = filled();
    let file = talk.engine().export_rdb(now());
    assert!(file.starts_with(b"VALKEY080"), "a hash has a field that expires");
    for chunk in [1, 7, 4096, usize::MAX] {
        let (mut copy, imported) = import(&file, chunk).unwrap();
        assert_eq!((imported.keys, imported.expired), (25, 0));
        for key in KEYS {
            assert_eq!(seen(&mut copy, key), seen(&mut talk, key), "{key}, in chunks of {chunk}");
        }
        assert_eq!(copy.say(0, "SELECT 3"), "OK");
        assert_eq!(copy.say(0, "GET other"), "\"database\"");
    }
}

#[test]
fn a_reload_changes_nothing() {
    let (mut talk, mut same) = (filled(), filled());
    let reloaded = talk.engine().reload(now()).unwrap();
    assert_eq!(reloaded.keys, 25);
    for key in KEYS {
        assert_eq!(seen(&mut talk, key), seen(&mut same, key), "{key}");
    }
}

#[test]
fn a_dump_is_restored_the_same() {
    let mut talk = filled();
    for key in KEYS {
        let dump = talk.raw(0, format!("DUMP {key}\r\n").as_bytes());
        let Some(dump) = payload_of(&dump) else {
            assert_eq!((readable(&dump).as_str(), key), ("(nil)", "nosuch"));
            continue;
        };
        let expected = seen(&mut talk, key);
        let reply = restore(&mut talk, "copy", 0, &dump, &["REPLACE"]);
        assert_eq!(reply, "OK", "{key}");
        let mut copied = seen(&mut talk, "copy");
        if key == "expiring" {
            copied.clone_from(&expected);
        }
        assert_eq!(copied, expected, "{key}");
        let again = talk.raw(0, b"DUMP copy\r\n");
        let is_table = ["longset", "longset2", "longhash", "expiringhash"].contains(&key);
        assert!(is_table || payload_of(&again).as_deref() == Some(&dump[..]), "{key} is dumped the same again");
    }
}

/// The bytes of a bulk reply.
fn payload_of(reply: &[u8]) -> Option<Vec<u8>> {
    let end = reply.windows(2).position(|two| two == b"\r\n")?;
    let len: usize = std::str::from_utf8(&reply[1..end]).ok()?.parse().ok()?;
    Some(reply[end + 2..end + 2 + len].to_vec())
}

/// Sends RESTORE with a payload; the reply.
fn restore(talk: &mut Talk, key: &str, ttl: i64, payload: &[u8], options: &[&str]) -> String {
    let ttl = ttl.to_string();
    let words = [b"RESTORE", key.as_bytes(), ttl.as_bytes(), payload].into_iter();
    let words: Vec<&[u8]> = words.chain(options.iter().map(|word| word.as_bytes())).collect();
    let mut request = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        request.extend_from_slice(word);
        request.extend_from_slice(b"\r\n");
    }
    readable(&talk.raw(0, &request))
}

#[test]
fn every_cut_of_a_file_is_refused() {
    let file = small().engine().export_rdb(now());
    for cut in 0..file.len() {
        let refused = import(&file[..cut], usize::MAX).err().map(|error| error.cause);
        assert_eq!(refused, Some(ImportCause::Truncated), "cut at {cut}");
    }
    let longer = [&file[..], b"x"].concat();
    assert_eq!(import(&longer, usize::MAX).err().map(|error| error.cause), Some(ImportCause::Trailing));
}

/// Few keys of every type.
fn small() -> Talk {
    let mut talk = Talk::new();
    for line in [
        "SET s hello",
        "SET e 12345 PX 1000",
        "SET l aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "RPUSH r a 1 200000",
        "SADD i 1 2 3",
        "SADD a x y",
        "ZADD z 1 a 2.5 b",
        "HSET h f v",
        "XADD t 1-1 f v",
        "XADD t 2-1 g v",
        "XGROUP CREATE t g 0",
        "XREADGROUP GROUP g c COUNT 1 STREAMS t >",
    ] {
        assert!(!talk.say(0, line).starts_with("(error)"), "{line}");
    }
    talk
}

#[test]
fn every_flipped_bit_of_a_file_is_refused() {
    let file = small().engine().export_rdb(now());
    assert!(file.starts_with(b"REDIS0011"));
    for bit in 0..file.len() * 8 {
        let mut flipped = file.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(import(&flipped, usize::MAX).is_err(), "bit {bit}");
        // Without a checksum it is refused, or it is another file that is valid.
        let len = flipped.len();
        flipped[len - 8..].fill(0);
        if let Ok((talk, _)) = import(&flipped, usize::MAX) {
            assert!(!talk.engine().export_rdb(now()).is_empty());
        }
    }
}

#[test]
fn libraries_and_unknown_facts_pass() {
    const LIBRARY: &[u8] = b"#!lua name=mylib\nserver.register_function('f', function() return 1 end)";
    let encoder = Encoder::new(true, Fill::default());
    let mut writer = Writer::begin(Version::Redis11, encoder, &[("some-fact", b"of somebody")]);
    writer.library(LIBRARY);
    let mut file = writer.take();
    writer.database(2, 1, 0);
    writer.entry(b"key", Attributes::default(), Value::String(b"value"));
    file.extend_from_slice(&writer.end());
    let (mut talk, imported) = import(&file, 3).unwrap();
    assert_eq!(imported.libraries, [LIBRARY]);
    assert_eq!(talk.say(0, "SELECT 2"), "OK");
    assert_eq!(talk.say(0, "GET key"), "\"value\"");
}
