//! RESTORE of hostile payloads with the right checksum: refused, or a value that every command of its type can read and change,
//! and that is dumped and restored as the same.
#![no_main]

use std::sync::Arc;

use ashlar_kv::memory::hash_key::HASH_KEY_BYTES;
use ashlar_kv::{Engine, EngineConfig, Link, Mailbox, Now, Session};
use ashlar_wire::time::Instant;
use libfuzzer_sys::fuzz_target;

/// More than this is slow and shows nothing new.
const PAYLOAD_BYTES_MAX: usize = 4_096;
/// The polynomial of the checksum, reflected.
const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;

/// What is asked of any value; those for another type are refused.
const COMMANDS: &str = "
TYPE k|OBJECT ENCODING k|GET k|GETRANGE k 0 -1|STRLEN k|BITCOUNT k|PFCOUNT k|PFCOUNT k k|PFDEBUG DECODE k|PFMERGE m k
COPY k c|PFADD c x y z|PFDEBUG GETREG c|PFCOUNT c|DEL c|COPY k c|APPEND c x|SETRANGE c 3 yy|INCR c
LRANGE k 0 -1|LINDEX k -1|LPOS k a RANK -1|LLEN k|LPUSH c l|RPUSH c r|LSET c 1 s|LINSERT c AFTER l i|LREM c 0 a|LTRIM c 1 -2|RPOP c 2
SMEMBERS k|SISMEMBER k a|SADD c 1 x|SREM c 1|SPOP c 2|SSCAN k 0|SORT k ALPHA|SINTERSTORE d k c
ZRANGE k 0 -1 WITHSCORES|ZRANK k a|ZADD c 1 x 2.5 y|ZINCRBY c 1 a|ZRANGEBYSCORE k -inf +inf|ZPOPMIN c|ZREM c x|ZUNIONSTORE d 2 k c
HGETALL k|HPTTL k FIELDS 2 a b|HSET c f v|HPEXPIRE c 1000 FIELDS 1 f|HDEL c a|HSCAN k 0|HINCRBY c n 1|HRANDFIELD k -3 WITHVALUES
XINFO STREAM k FULL COUNT 0|XINFO STREAM k|XINFO GROUPS k|XINFO CONSUMERS k g|XRANGE k - +|XREVRANGE k + -|XLEN k|XPENDING k g|XPENDING k g - + 100
XADD c * f v|XADD c * other name|XREADGROUP GROUP g a STREAMS c >|XREADGROUP GROUP g a STREAMS c 0|XAUTOCLAIM c g b 0 0|XACK c g 1-1
XCLAIM c g b 0 1-1 FORCE|XDEL c 1-1|XTRIM c MAXLEN 2|XGROUP DELCONSUMER c g a|XGROUP SETID c g 0|XSETID c 99999999999999-1
DUMP c|RENAME c e|DUMP e|MEMORY USAGE k";

fn now() -> Now {
    Now { unix_us: 1_800_000_000_000_000, instant: Instant::from_nanos(1) }
}

struct Talk {
    session: Session,
}

impl Talk {
    fn new() -> Self {
        let engine = Arc::new(Engine::new(&EngineConfig { secret: [5; HASH_KEY_BYTES], shards: 4, databases: 1 }));
        let link = Link {
            is_server: false,
            peer: "127.0.0.1:1".into(),
            local: "127.0.0.1:6379".into(),
            descriptor: 9,
            is_unix: false,
            is_tls: false,
        };
        let mailbox = Arc::new(Mailbox::new(Box::new(|| {})));
        Self { session: Session::open(engine, mailbox, link, now()).expect("one client is not too many") }
    }

    fn send(&mut self, words: &[&[u8]]) -> Vec<u8> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            request.extend_from_slice(word);
            request.extend_from_slice(b"\r\n");
        }
        let (taken, _) = self.session.feed(&request, now());
        assert_eq!(taken, request.len(), "no command waits");
        let replies = self.session.replies().to_vec();
        self.session.handle_sent(replies.len());
        replies
    }
}

/// The payload with version and checksum, as DUMP makes it.
fn with_foot(body: &[u8], version: u16) -> Vec<u8> {
    let mut payload = [body, &version.to_le_bytes()].concat();
    let sum = payload.iter().fold(0, |sum: u64, byte| {
        (0..8).fold(sum ^ u64::from(*byte), |sum, _| sum >> 1 ^ if sum & 1 == 0 { 0 } else { POLYNOMIAL })
    });
    payload.extend_from_slice(&sum.to_le_bytes());
    payload
}

/// The bytes of a reply that is one string.
fn bulk(reply: &[u8]) -> &[u8] {
    let end = reply.windows(2).position(|two| two == b"\r\n").expect("a line");
    &reply[end + 2..reply.len() - 2]
}

fuzz_target!(|body: &[u8]| {
    if body.len() > PAYLOAD_BYTES_MAX {
        return;
    }
    let version = if body.first() == Some(&22) { 80 } else { 11 };
    let mut talk = Talk::new();
    let reply = talk.send(&[b"RESTORE", b"k", b"0", &with_foot(body, version)]);
    let is_there = talk.send(&[b"EXISTS", b"k"]) == b":1\r\n";
    if !is_there {
        assert!(reply == b"-ERR Bad data format\r\n" || reply == b"+OK\r\n", "{}", reply.escape_ascii());
        return;
    }
    assert_eq!(reply, b"+OK\r\n");
    let dump = talk.send(&[b"DUMP", b"k"]);
    assert_eq!(talk.send(&[b"RESTORE", b"same", b"0", bulk(&dump)]), b"+OK\r\n");
    assert_eq!(talk.send(&[b"DUMP", b"same"]).len(), dump.len());
    for command in COMMANDS.split(['|', '\n']).filter(|command| !command.is_empty()) {
        let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        let reply = talk.send(&words);
        assert!(reply.ends_with(b"\r\n"), "{command}");
    }
    // PFCOUNT keeps its result in the string.
    if talk.send(&[b"TYPE", b"k"]) != b"+string\r\n" {
        assert_eq!(talk.send(&[b"DUMP", b"k"]).len(), dump.len(), "what only reads changes nothing");
    }
});
