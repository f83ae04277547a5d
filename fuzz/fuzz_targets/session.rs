//! The key-value engine's clients: whatever bytes two of them send, in whatever pieces, no request panics, each reply is whole,
//! and what was sent in pieces has the same replies as what was sent at once.
#![no_main]

use std::sync::Arc;

use ashlar_kv::memory::hash_key::HASH_KEY_BYTES;
use ashlar_kv::{Engine, EngineConfig, Link, Mailbox, Next, Now, Session};
use ashlar_wire::time::Instant;
use libfuzzer_sys::fuzz_target;

/// Sent first: longer strings would fill the fuzzer's memory, not find anything.
const SHORT_STRINGS: &[u8] = b"CONFIG SET proto-max-bulk-len 1mb\r\n";
/// Lines that an input consists of at most; each is a request of one of two clients.
const LINES_MAX: usize = 64;
/// How far a line that begins with `+` lets time pass.
const STEP_MS: i64 = 1_000;

fn now_at(now_ms: i64) -> Now {
    let nanos = u64::try_from(now_ms).unwrap_or(0) * 1_000_000;
    Now { unix_us: now_ms * 1_000, instant: Instant::from_nanos(nanos) }
}

struct Talk {
    sessions: [Session; 2],
    unread: [Vec<u8>; 2],
    engine: Arc<Engine>,
    now_ms: i64,
}

impl Talk {
    fn new() -> Self {
        let config = EngineConfig { secret: [5; HASH_KEY_BYTES], shards: 4, databases: 2 };
        let engine = Arc::new(Engine::new(&config));
        let now_ms = 1_800_000_000_000;
        let now = now_at(now_ms);
        let session = |peer: &str| {
            let link = Link {
                is_server: false,
                peer: peer.into(),
                local: "127.0.0.1:6379".into(),
                descriptor: 9,
                is_unix: false,
                is_tls: false,
            };
            let mailbox = Arc::new(Mailbox::new(Box::new(|| {})));
            Session::open(Arc::clone(&engine), mailbox, link, now).expect("two clients are not too many")
        };
        let sessions = [session("127.0.0.1:1"), session("127.0.0.1:2")];
        Self { sessions, unread: [Vec::new(), Vec::new()], engine, now_ms }
    }

    fn now(&self) -> Now {
        now_at(self.now_ms)
    }

    /// A client sends bytes, in pieces of `step`. False if its connection has to end.
    fn send(&mut self, client: usize, bytes: &[u8], step: usize) -> bool {
        let now = self.now();
        for piece in bytes.chunks(step) {
            self.unread[client].extend_from_slice(piece);
            let (taken, next) = self.sessions[client].feed(&self.unread[client], now);
            self.unread[client].drain(..taken);
            if matches!(next, Next::Close | Next::Drop) {
                return false;
            }
        }
        true
    }

    /// What has come for a client.
    fn replies(&mut self, client: usize) -> Vec<u8> {
        let session = &mut self.sessions[client];
        session.handle_mail();
        let replies = session.replies().to_vec();
        session.handle_sent(replies.len());
        replies
    }

    fn wait(&mut self) {
        self.now_ms += STEP_MS;
        let now = self.now();
        self.sessions.iter_mut().for_each(|session| {
            session.handle_time(now);
        });
        self.engine.handle_tick(now);
    }
}

/// Requests that are allowed to take long or to answer much: a hundred million random members, a self test.
fn is_heavy(line: &[u8]) -> bool {
    let has = |word: &[u8]| line.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word));
    let digits = line.split(|byte| !byte.is_ascii_digit()).map(<[u8]>::len).max();
    has(b"selftest") || has(b"proto-max") || has(b"rand") && digits.is_some_and(|digits| digits > 4)
}

fuzz_target!(|input: &[u8]| {
    let mut talks = [Talk::new(), Talk::new()];
    for talk in &mut talks {
        talk.send(0, SHORT_STRINGS, usize::MAX);
        talk.replies(0);
    }
    for line in input.split_inclusive(|byte| *byte == b'\n').take(LINES_MAX) {
        let (client, bytes) = match line {
            [b'1', bytes @ ..] => (1, bytes),
            [b'+', ..] => {
                talks.iter_mut().for_each(Talk::wait);
                continue;
            }
            bytes => (0, bytes),
        };
        if is_heavy(bytes) {
            continue;
        }
        let [whole, pieces] = &mut talks;
        let goes_on = whole.send(client, bytes, usize::MAX);
        assert_eq!(pieces.send(client, bytes, 3), goes_on, "pieces end a connection where the whole does");
        for client in 0..2 {
            let (one, other) = (whole.replies(client), pieces.replies(client));
            assert_eq!(one, other, "pieces have the replies of the whole");
            assert!(one.is_empty() || one.ends_with(b"\r\n"), "replies are whole");
        }
        if !goes_on {
            return;
        }
    }
});
