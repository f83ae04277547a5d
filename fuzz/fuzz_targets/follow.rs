//! A primary that says anything: whatever it is, and in whatever pieces it comes, the replica does not panic; and a stream that is cut
//! anywhere and goes on where the replica says it is has the effect of the whole.
#![no_main]

use std::sync::Arc;

use ashlar_kv::memory::hash_key::HASH_KEY_BYTES;
use ashlar_kv::replicate::{Follower, Step, Upstream};
use ashlar_kv::{Engine, EngineConfig, Link, Now};
use ashlar_wire::time::Instant;
use libfuzzer_sys::fuzz_target;

const HISTORY: &str = "0123456789abcdef0123456789abcdef01234567";
/// Where the stream begins.
const BEGIN: u64 = 1_000;
const NOW_MS: i64 = 1_800_000_000_000;
/// Connections of one replica.
const LINKS_MAX: usize = 3;
/// Steps that follow from one piece.
const STEPS_MAX: usize = 1_000;

struct Replica {
    engine: Arc<Engine>,
    follower: Follower,
    now_ms: i64,
    file: Vec<u8>,
    links: usize,
    is_up: bool,
}

impl Replica {
    fn new(is_kept: bool) -> Self {
        let config = EngineConfig { secret: [5; HASH_KEY_BYTES], shards: 4, databases: 4 };
        let engine = Arc::new(Engine::new(&config));
        let load = if is_kept { "disabled" } else { "swapdb" };
        engine.configure("repl-diskless-load", load).expect("it is a parameter");
        let follower = Follower::new(Arc::clone(&engine));
        let mut replica = Self { engine, follower, now_ms: NOW_MS, file: Vec::new(), links: 0, is_up: false };
        replica.engine.follow(Some(Upstream::Address { host: "there".into(), port: 7 }), replica.now());
        replica.go_on();
        replica
    }

    fn now(&self) -> Now {
        let nanos = u64::try_from(self.now_ms).unwrap_or(0) * 1_000_000;
        Now { unix_us: NOW_MS * 1_000, instant: Instant::from_nanos(nanos) }
    }

    /// Does what is to be done, until something must be heard.
    fn go_on(&mut self) {
        for _ in 0..STEPS_MAX {
            let now = self.now();
            match self.follower.next_step(now) {
                Step::Dial { .. } if self.links == LINKS_MAX => return,
                Step::Dial { .. } => {
                    (self.links, self.is_up) = (self.links + 1, true);
                    let link = Link {
                        is_server: false,
                        peer: "there:7".into(),
                        local: "here:8".into(),
                        descriptor: 9,
                        is_unix: false,
                        is_tls: false,
                    };
                    self.follower.handle_connected(link, now);
                }
                Step::Send(_) => {}
                Step::Keep(bytes) => self.file.extend_from_slice(&bytes),
                Step::Load => {
                    let file = std::mem::take(&mut self.file);
                    self.follower.handle_kept(&file, now);
                }
                Step::HangUp => (self.file, self.is_up) = (Vec::new(), false),
                Step::Receive(_) => return,
                Step::Rest(_) => {
                    self.now_ms += 1_000;
                    if self.is_up {
                        return;
                    }
                }
            }
        }
    }

    fn hear(&mut self, bytes: &[u8], step: usize) {
        // What follows what broke the link was not said on the next one.
        let links = self.links;
        for piece in bytes.chunks(step.max(1)) {
            if self.is_up && self.links == links {
                self.follower.handle_bytes(piece, self.now());
                self.go_on();
            }
        }
    }

    /// The link breaks, and is made again.
    fn reconnect(&mut self) {
        self.follower.handle_broken("cut", self.now());
        self.go_on();
    }

    fn position(&self) -> u64 {
        self.engine.point().map_or(0, |point| point.position)
    }
}

/// What a primary says before its stream.
fn head() -> Vec<u8> {
    let config = EngineConfig { secret: [6; HASH_KEY_BYTES], shards: 1, databases: 1 };
    let now = Now { unix_us: NOW_MS * 1_000, instant: Instant::from_nanos(1) };
    let dump = Engine::new(&config).export_rdb(now);
    let mark = "m".repeat(40);
    let mut head =
        format!("+PONG\r\n+OK\r\n+OK\r\n+OK\r\n+FULLRESYNC {HISTORY} {BEGIN}\r\n$EOF:{mark}\r\n").into_bytes();
    head.extend_from_slice(&dump);
    head.extend_from_slice(mark.as_bytes());
    head
}

/// What chance or the clock decides, and what takes long.
fn is_unsteady(bytes: &[u8]) -> bool {
    let has = |word: &[u8]| bytes.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word));
    let digits = bytes.split(|byte| !byte.is_ascii_digit()).map(<[u8]>::len).max();
    [&b"pop"[..], b"rand", b"time", b"eval", b"fcall", b"setrange", b"setbit", b"bitfield", b"replicaof", b"slaveof"]
        .iter()
        .any(|word| has(word))
        || digits.is_some_and(|digits| digits > 8)
}

fuzz_target!(|input: &[u8]| {
    let [kind, step, cut, rest @ ..] = input else { return };
    let (step, is_kept) = (usize::from(*step), kind & 2 == 0);
    if kind & 1 == 0 {
        let mut replica = Replica::new(is_kept);
        replica.hear(rest, step);
        replica.engine.follow(None, replica.now());
        replica.go_on();
        return;
    }
    if is_unsteady(rest) {
        return;
    }
    let head = head();
    let mut whole = Replica::new(is_kept);
    whole.hear(&head, usize::MAX);
    assert_eq!(whole.position(), BEGIN, "the dump is whole");
    whole.hear(rest, usize::MAX);
    if whole.engine.point().is_none() {
        // Something could not be applied: it asks for a dump, and has no position until then.
        return;
    }
    let mut torn = Replica::new(!is_kept);
    torn.hear(&head, step);
    let cut = usize::from(*cut).min(rest.len());
    torn.hear(&rest[..cut], step);
    let done = usize::try_from(torn.position() - BEGIN).expect("a short stream");
    assert!(done <= cut, "what has not come is not done");
    if torn.is_up {
        torn.reconnect();
        torn.hear(format!("+PONG\r\n+OK\r\n+OK\r\n+OK\r\n+CONTINUE {HISTORY}\r\n").as_bytes(), step);
        torn.hear(&rest[done..], step);
    }
    assert_eq!(torn.position(), whole.position(), "the same was done");
    let now = whole.now();
    assert!(whole.engine.export_rdb(now) == torn.engine.export_rdb(now), "with the same effect");
});
