//! Clients that write without a pause while servers fail, and know for each key what was acknowledged.
//!
//! Each key holds a number that only grows, and each attempt writes a number of its own: a request that a server carries out late, when the
//! client has long given it up, changes nothing. So a key must always hold what was acknowledged last, or an attempt after that.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::clients::worker::{now, pause};
use crate::failure::Failure;
use crate::talk::{Reply, Talk};

/// Keys of all writers. With seven shards some of them would be without a key in one of a million runs.
const KEYS: usize = 96;
/// Threads, each with keys of its own.
const WRITERS: usize = 12;
/// A request that takes longer is given up. Longer than any that is served takes on a busy machine.
const PATIENCE: Duration = Duration::from_millis(700);
/// An address that did not answer is left alone for so long, so that one lost server does not hold the keys of others up.
const SHUN: Duration = Duration::from_millis(500);
/// Between two requests of a thread.
const PAUSE: Duration = Duration::from_millis(4);
/// Redirections that one request follows.
const REDIRECTS_MAX: usize = 4;
/// How long a replica may take to say that it has a write, milliseconds.
const WAIT_MS: &str = "20";
/// Attempts to read a key once all is well again, one pause between them.
const READS_MAX: usize = 500;

/// The number becomes the greater one of what is there and what comes.
const RAISE: &str = "local n = redis.call('GET', KEYS[1]) \
                     if not n or tonumber(n) < tonumber(ARGV[1]) then redis.call('SET', KEYS[1], ARGV[1]) end return 1";

/// What is known of one key.
#[derive(Debug, Default, Clone)]
struct KeyState {
    /// The number of the last attempt.
    attempted: u64,
    /// The greatest one that must be there.
    acknowledged: u64,
    /// The first reply to a write that began after the last fault.
    served_at: Option<Instant>,
    /// What the last attempt met that failed.
    trouble: String,
}

/// What is known of all keys, from round to round.
#[derive(Debug)]
pub(super) struct Keys {
    states: Vec<Mutex<KeyState>>,
    /// Where the cluster's nodes are.
    addresses: Vec<String>,
    /// A write counts once a replica has it: the mode of the shards promises less than this checks.
    waits: bool,
    /// When the last fault began.
    fault_at: Mutex<Instant>,
    is_over: AtomicBool,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Keys {
    pub(super) fn new(addresses: Vec<String>, waits: bool) -> Arc<Self> {
        let states = (0..KEYS).map(|_| Mutex::default()).collect();
        Arc::new(Self { states, addresses, waits, fault_at: Mutex::new(now()), is_over: AtomicBool::new(false) })
    }

    /// A fault that began at `at` is complete: from here on it counts which keys are served.
    pub(super) fn note_fault(&self, at: Instant) {
        let complete_at = now();
        *lock(&self.fault_at) = complete_at;
        self.states.iter().for_each(|state| lock(state).served_at = None);
        debug_assert!(at <= complete_at);
    }

    /// How long it took since `at` until all keys were served, if they all were.
    pub(super) fn served_after(&self, at: Instant) -> Option<Duration> {
        let served = self.states.iter().map(|state| lock(state).served_at);
        let all: Option<Vec<Instant>> = served.collect();
        all?.into_iter().max().map(|last| last.saturating_duration_since(at))
    }

    /// How many keys are not served since the last fault, and what the last attempt for one of them met.
    pub(super) fn troubles(&self) -> String {
        let states = self.states.iter().map(|state| lock(state).clone());
        let unserved: Vec<KeyState> = states.filter(|state| state.served_at.is_none()).collect();
        let last = unserved.first().map(|state| state.trouble.as_str()).unwrap_or_default();
        format!("{} of {KEYS} keys are not served; one of them met `{last}`", unserved.len())
    }

    fn attempt(&self, client: &mut Client, key: usize) {
        let (begun_at, number) = {
            let mut state = lock(&self.states[key]);
            state.attempted += 1;
            (now(), state.attempted)
        };
        let outcome = client.write(key, number);
        {
            let mut state = lock(&self.states[key]);
            match outcome {
                Ok(()) if state.served_at.is_none() && begun_at >= *lock(&self.fault_at) => {
                    state.served_at = Some(now());
                }
                Ok(()) => {}
                Err(trouble) => {
                    state.trouble = trouble;
                    return;
                }
            }
        }
        // A write that no replica has yet may be lost with its primary, where no majority is asked for.
        if !self.waits || client.has_copy(key) {
            lock(&self.states[key]).acknowledged = number;
        }
    }

    /// Reads every key: each must hold what was acknowledged, and nothing that was never written.
    fn check(&self) -> Result<u64, Failure> {
        let mut client = Client::new(self.addresses.clone());
        let (mut wrong, mut acknowledged) = (Vec::new(), 0);
        for (key, state) in self.states.iter().enumerate() {
            let mut last = Err("was not read".to_owned());
            for _ in 0..READS_MAX {
                last = client.read(key);
                if last.is_ok() {
                    break;
                }
                pause(PAUSE);
            }
            let state = lock(state);
            acknowledged += state.acknowledged;
            match last {
                Ok(number) if (state.acknowledged..=state.attempted).contains(&number) => {}
                Ok(number) => wrong.push(format!(
                    "key {key} holds {number}, but {} was acknowledged, and {} attempted last",
                    state.acknowledged, state.attempted
                )),
                Err(trouble) => wrong.push(format!("key {key} cannot be read: {trouble}")),
            }
        }
        if wrong.is_empty() { Ok(acknowledged) } else { Err(Failure::Failed(wrong.join("; "))) }
    }
}

/// Threads that write until they are stopped.
pub(super) struct Writers {
    keys: Arc<Keys>,
    threads: Vec<JoinHandle<()>>,
}

impl Writers {
    pub(super) fn start(keys: &Arc<Keys>) -> Self {
        keys.is_over.store(false, Ordering::Relaxed);
        keys.note_fault(now());
        let write = |writer: usize| {
            let keys = Arc::clone(keys);
            #[expect(clippy::disallowed_methods, reason = "clients of a chore write beside each other")]
            thread::spawn(move || {
                let mut client = Client::new(keys.addresses.clone());
                for key in (writer..KEYS).step_by(WRITERS).cycle() {
                    if keys.is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    keys.attempt(&mut client, key);
                    pause(PAUSE);
                }
            })
        };
        Self { keys: Arc::clone(keys), threads: (0..WRITERS).map(write).collect() }
    }

    /// Stops them and checks what the keys hold. Returns how many writes were acknowledged so far.
    pub(super) fn finish(mut self) -> Result<u64, Failure> {
        if self.stop() { self.keys.check() } else { Err(Failure::Failed("a writer has panicked".into())) }
    }

    /// Each thread ends with its present request, which has a limit of time.
    fn stop(&mut self) -> bool {
        self.keys.is_over.store(true, Ordering::Relaxed);
        let panicked = self.threads.drain(..).filter_map(|thread| thread.join().err());
        panicked.count() == 0
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A client of a cluster: a connection to each node that it needs, and where each key was served last.
struct Client {
    seeds: Vec<String>,
    next_seed: usize,
    connections: BTreeMap<String, Talk>,
    places: BTreeMap<usize, String>,
    shunned: BTreeMap<String, Instant>,
}

impl Client {
    fn new(seeds: Vec<String>) -> Self {
        let (connections, places, shunned) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { seeds, next_seed: 0, connections, places, shunned }
    }

    fn write(&mut self, key: usize, number: u64) -> Result<(), String> {
        let (name, number) = (format!("key:{key}"), number.to_string());
        let reply = self.ask(key, &["EVAL", RAISE, "1", &name, &number])?;
        if reply == b":1\r\n" { Ok(()) } else { Err(reply.escape_ascii().to_string()) }
    }

    /// Whether a replica has what was just written for this key.
    fn has_copy(&mut self, key: usize) -> bool {
        // The place is the one that has just answered, and its connection knows what it has written.
        let Some(place) = self.places.get(&key).cloned() else { return false };
        self.exchange(&place, &["WAIT", "1", WAIT_MS]).is_ok_and(|copies| copies == b":1\r\n")
    }

    fn read(&mut self, key: usize) -> Result<u64, String> {
        let reply = self.ask(key, &["GET", &format!("key:{key}")])?;
        if reply == b"$-1\r\n" {
            return Ok(0);
        }
        let text = String::from_utf8_lossy(&reply);
        let number = text.split("\r\n").nth(1).and_then(|number| number.parse().ok());
        number.ok_or_else(|| reply.escape_ascii().to_string())
    }

    fn is_shunned(&self, address: &str) -> bool {
        self.shunned.get(address).is_some_and(|until| now() < *until)
    }

    fn some_seed(&mut self) -> Option<String> {
        (0..self.seeds.len()).find_map(|_| {
            self.next_seed = (self.next_seed + 1) % self.seeds.len();
            let seed = &self.seeds[self.next_seed];
            (!self.is_shunned(seed)).then(|| seed.clone())
        })
    }

    /// One request that goes where redirections say.
    fn ask(&mut self, key: usize, words: &[&str]) -> Result<Vec<u8>, String> {
        let remembered = self.places.remove(&key).filter(|place| !self.is_shunned(place));
        let mut place = remembered.or_else(|| self.some_seed()).ok_or("no node answers")?;
        for _ in 0..=REDIRECTS_MAX {
            let reply = self.exchange(&place, words)?;
            let text = String::from_utf8_lossy(&reply);
            let moved = text.strip_prefix("-MOVED ").or_else(|| text.strip_prefix("-ASK "));
            let Some(target) = moved.and_then(|moved| moved.split_whitespace().nth(1)) else {
                if reply.first() == Some(&b'-') {
                    return Err(format!("{place}: {}", text.trim_end()));
                }
                self.places.insert(key, place);
                return Ok(reply);
            };
            if self.is_shunned(target) {
                return Err(format!("{place}: {}, which does not answer", text.trim_end()));
            }
            place = target.to_owned();
        }
        Err(format!("more than {REDIRECTS_MAX} redirections"))
    }

    fn exchange(&mut self, address: &str, words: &[&str]) -> Result<Vec<u8>, String> {
        let mut exchange = || -> io::Result<Reply> {
            let mut talk = match self.connections.remove(address) {
                Some(talk) => talk,
                None => Talk::new(address, PATIENCE)?,
            };
            let reply = talk.ask(words)?;
            self.connections.insert(address.to_owned(), talk);
            Ok(reply)
        };
        match exchange() {
            Ok(Reply::One(bytes)) => Ok(bytes),
            Ok(Reply::Many(head, _)) => Ok(head),
            Err(error) => {
                // A connection that the server has ended says nothing about the next one.
                if matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionRefused | io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) {
                    self.shunned.insert(address.to_owned(), now() + SHUN);
                }
                Err(format!("{address}: {error}"))
            }
        }
    }
}
