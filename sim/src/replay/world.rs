//! A live engine with clients, its log, and replicas, in virtual time; and the comparison of all of them.

use std::sync::Arc;
use std::time::Duration;

use ashlar_kv::memory::hash_key::HASH_KEY_BYTES;
use ashlar_kv::persist::log::BaseChecksum;
use ashlar_kv::persist::snapshot::{Purpose, Step as Taken};
use ashlar_kv::persist::{Folder as _, Keeper, NewBase, Snapshot};
#[cfg(test)]
use ashlar_kv::persist::{Log, log::Recovered};
use ashlar_kv::replicate::{Follower, FullSync, Step, Upstream};
use ashlar_kv::{Content, Engine, EngineConfig, Link, Mailbox, Next, Now, Session};
use ashlar_wire::time::Instant;

#[cfg(test)]
use super::fault::{Fault, plant};
use super::folder::MemoryFolder;
use super::grammar::{DATABASES, DUMP_OF, FUNCTIONS_DUMP, Words};
use super::life::{Act, BEGIN_MS, CLIENTS, Life, Setting, TIGHT};
use super::table::{Table, Value};

/// Identity of every log here.
const LOG_ID: [u8; 16] = [7; 16];
/// Rounds in which replicas must have caught up, each of up to so many steps.
const ROUNDS_MAX: usize = 400;
const STEPS_MAX: usize = 100_000;
/// What passes in a round in which a replica waits.
const ROUND_MS: i64 = 50;
/// Keys of a difference that are shown.
const SHOWN_KEYS_MAX: usize = 4;
/// The mark at the end of a dump.
const MARK: &str = "0123456789abcdef0123456789abcdef01234567";

/// A link as an engine sees it.
pub(super) fn link_of(who: &str) -> Link {
    Link {
        peer: format!("127.0.0.1:{who}"),
        local: "live:1".to_owned(),
        descriptor: -1,
        is_unix: false,
        is_tls: false,
        is_server: false,
    }
}

fn engine(secret: u8, settings: &[Setting]) -> Arc<Engine> {
    let engine = Engine::new(&EngineConfig { secret: [secret; HASH_KEY_BYTES], shards: 2, databases: DATABASES });
    for (name, value) in settings {
        engine.configure(name, value).expect("it is a parameter");
    }
    Arc::new(engine)
}

/// The command table of the engine.
pub(crate) fn new_table() -> Table {
    Table::of(&engine(1, &[]), Now { unix_us: BEGIN_MS * 1_000, instant: Instant::from_nanos(1) })
}

fn open(engine: &Arc<Engine>, who: &str, now: Now) -> Session {
    let mailbox = Arc::new(Mailbox::new(Box::new(|| {})));
    Session::open(Arc::clone(engine), mailbox, link_of(who), now).expect("there is room for a few clients")
}

/// Takes the replies of a session.
fn replies(session: &mut Session) -> Vec<u8> {
    let bytes = session.replies().to_vec();
    session.handle_sent(bytes.len());
    bytes
}

/// A request as clients send it.
fn encode(words: &Words) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// A replica and its link.
struct Replica {
    engine: Arc<Engine>,
    follower: Follower,
    /// The other end of the link.
    session: Option<Session>,
    /// Bytes for the other end that it has not taken.
    up: Vec<u8>,
    file: Vec<u8>,
    is_attached: bool,
}

impl Replica {
    fn new(secret: u8, settings: &[Setting]) -> Self {
        let engine = engine(secret, settings);
        let follower = Follower::new(Arc::clone(&engine));
        Self { engine, follower, session: None, up: Vec::new(), file: Vec::new(), is_attached: false }
    }

    fn attach(&mut self, now: Now) {
        self.is_attached = true;
        self.engine.follow(Some(Upstream::Address { host: "live".to_owned(), port: 1 }), now);
    }

    /// Does one thing for the link. False if there is nothing to do.
    fn step(&mut self, live: &Arc<Engine>, now: Now) -> bool {
        if let Some(session) = &mut self.session
            && !self.up.is_empty()
        {
            let (taken, _) = session.feed(&self.up, now);
            self.up.drain(..taken);
        }
        match self.follower.next_step(now) {
            Step::Dial { .. } => {
                (self.session, self.up) = (Some(open(live, "replica", now)), Vec::new());
                self.follower.handle_connected(link_of("replica"), now);
            }
            Step::Send(bytes) => self.up.extend_from_slice(&bytes),
            Step::Receive(_) => {
                let Some(session) = &mut self.session else {
                    self.follower.handle_broken("the connection is gone", now);
                    return true;
                };
                let next = session.handle_mail();
                let bytes = replies(session);
                if !bytes.is_empty() {
                    self.follower.handle_bytes(&bytes, now);
                    return true;
                }
                if matches!(next, Next::Close | Next::Drop) {
                    self.session = None;
                    self.follower.handle_broken("the other end hung up", now);
                    return true;
                }
                return false;
            }
            Step::Keep(bytes) => self.file.extend_from_slice(&bytes),
            Step::Load => {
                let file = core::mem::take(&mut self.file);
                self.follower.handle_kept(&file, now);
            }
            Step::HangUp => (self.session, self.file) = (None, Vec::new()),
            Step::Rest(_) => return false,
        }
        true
    }

    fn cut(&mut self, now: Now) {
        if self.session.take().is_some() {
            self.follower.handle_broken("cut", now);
        }
    }
}

/// A snapshot that is being taken of the live engine.
enum Copy {
    Base { snapshot: Snapshot, bytes: Vec<u8> },
    Sync { snapshot: Snapshot, sync: FullSync, has_begun: bool },
}

/// All engines of a life.
struct World<'l> {
    life: &'l Life,
    live: Arc<Engine>,
    clients: Vec<Session>,
    folder: MemoryFolder,
    keeper: Keeper<MemoryFolder>,
    replicas: Vec<Replica>,
    copy: Option<Copy>,
    wants_base: bool,
    bases: usize,
    now_ms: i64,
}

impl<'l> World<'l> {
    fn new(life: &'l Life) -> Result<Self, String> {
        let live = engine(3, &life.settings);
        live.configure("repl-diskless-sync-delay", "0").expect("it is a parameter");
        live.configure("repl-timeout", "100000").expect("it is a parameter");
        let folder = MemoryFolder::default();
        let now = now_of(BEGIN_MS);
        let keeper = Keeper::recover(Arc::clone(&live), folder.clone(), LOG_ID, Box::new(|| {}), now);
        let (keeper, _) = keeper.map_err(|error| format!("a new log cannot be begun: {error}"))?;
        let mut others = life.other_settings.clone();
        others.extend(TIGHT);
        others.push(("repl-timeout", "100000"));
        let mut world = Self {
            life,
            clients: (0..CLIENTS).map(|_| open(&live, "client", now)).collect(),
            live,
            folder,
            keeper,
            replicas: vec![Replica::new(5, &others), Replica::new(6, &others)],
            copy: None,
            wants_base: false,
            bases: 0,
            now_ms: BEGIN_MS,
        };
        world.replicas[0].attach(now);
        world.catch_up()?;
        Ok(world)
    }

    fn now(&self) -> Now {
        now_of(self.now_ms)
    }

    fn act(&mut self, act: &Act) -> Result<(), String> {
        match act {
            Act::Say(client, words) => self.say(*client, words),
            Act::Pass(ms) => self.pass(*ms),
            Act::Tick => self.tick(),
            Act::Write => self.write()?,
            Act::Rewrite => self.wants_base = true,
            Act::Attach => {
                let now = self.now();
                self.replicas[1].attach(now);
            }
            Act::Cut => {
                let now = self.now();
                self.replicas[0].cut(now);
            }
            Act::Pump => {
                self.pump()?;
            }
            Act::Check => self.check()?,
        }
        self.go_on_with_copy()
    }

    fn pass(&mut self, ms: i64) {
        self.now_ms += ms;
        let now = self.now();
        for client in &mut self.clients {
            client.handle_time(now);
            replies(client);
        }
    }

    fn tick(&self) {
        self.live.handle_tick(self.now());
        self.replicas.iter().for_each(|replica| replica.engine.handle_tick(self.now()));
    }

    fn write(&mut self) -> Result<(), String> {
        let now = self.now();
        self.keeper.turn(now.instant).map(drop).map_err(|error| format!("the log cannot be written: {error}"))
    }

    /// A client that waits sends nothing: the request is left out.
    fn say(&mut self, client: usize, words: &Words) {
        let words = self.filled(words);
        let now = self.now();
        let session = &mut self.clients[client];
        if matches!(session.handle_mail(), Next::Wait(_)) {
            return;
        }
        let (_, next) = session.feed(&encode(&words), now);
        session.handle_mail();
        replies(session);
        if matches!(next, Next::Close | Next::Drop) {
            self.clients[client] = open(&self.live, "client", now);
        }
    }

    /// The words with payloads in place of what stands for them.
    fn filled(&self, words: &Words) -> Words {
        let fill = |word: &Vec<u8>| match word.strip_prefix(DUMP_OF) {
            Some(key) => self.ask(&vec![b"DUMP".to_vec(), key.to_vec()]),
            None if word == FUNCTIONS_DUMP => self.ask(&vec![b"FUNCTION".to_vec(), b"DUMP".to_vec()]),
            None => word.clone(),
        };
        if words.iter().any(|word| word.starts_with(b"\0")) { words.iter().map(fill).collect() } else { words.clone() }
    }

    fn ask(&self, words: &Words) -> Vec<u8> {
        let mut session = open(&self.live, "asker", self.now());
        session.feed(&encode(words), self.now());
        match Value::read(&replies(&mut session)) {
            Some((Value::Text(text), _)) => text,
            _ => Vec::new(),
        }
    }

    /// Does one step of the snapshot that is being taken, or begins one that is wanted.
    fn go_on_with_copy(&mut self) -> Result<(), String> {
        let now = self.now();
        match self.copy.take() {
            Some(Copy::Base { mut snapshot, mut bytes }) => {
                let step = snapshot.step();
                bytes.extend(snapshot.take());
                match step {
                    Taken::More => self.copy = Some(Copy::Base { snapshot, bytes }),
                    Taken::Done => self.install(&snapshot, &bytes)?,
                    // A flush is in its way: another is begun.
                    Taken::Lost(_) => self.wants_base = true,
                }
            }
            Some(Copy::Sync { snapshot, sync, has_begun }) => {
                self.copy = go_on_with_sync(snapshot, sync, has_begun, now);
            }
            None if core::mem::take(&mut self.wants_base) => {
                let snapshot = Snapshot::begin(Arc::clone(&self.live), Purpose::LogBase, true, now);
                self.copy = Some(Copy::Base { snapshot, bytes: Vec::new() });
            }
            None => {
                self.copy = self.live.next_full_sync(now).map(|sync| {
                    let snapshot = Snapshot::begin_sync(Arc::clone(&self.live), &sync, now);
                    Copy::Sync { snapshot, sync, has_begun: false }
                });
            }
        }
        Ok(())
    }

    /// The log begins with this snapshot from now on.
    fn install(&mut self, snapshot: &Snapshot, bytes: &[u8]) -> Result<(), String> {
        self.write()?;
        self.bases += 1;
        let name = format!("base-{}.rdb", self.bases);
        let written = self.folder.append(&name, bytes).and_then(|()| self.folder.syncer(&name)());
        written.map_err(|error| format!("the base cannot be written: {error}"))?;
        let mut checksum = BaseChecksum::default();
        checksum.update(bytes);
        let (position, checksum) = (snapshot.position(), checksum.value());
        if !self.keeper.look(|log| log.begins_at(position)) {
            return Err(format!("no segment of the log begins at {position}, where the journal was cut"));
        }
        let base = NewBase { name, length: bytes.len() as u64, checksum, position, keys: snapshot.keys() };
        self.keeper.install(&base).map_err(|error| format!("the base cannot be installed: {error}"))
    }

    /// Moves all that is on its way between replicas and the live engine. False if there was nothing.
    fn pump(&mut self) -> Result<bool, String> {
        let (now, mut has_moved) = (self.now(), false);
        for _ in 0..STEPS_MAX {
            let Self { replicas, live, .. } = self;
            let mut moved = false;
            for replica in replicas.iter_mut().filter(|replica| replica.is_attached) {
                moved |= replica.step(live, now);
            }
            if !moved {
                return Ok(has_moved);
            }
            has_moved = true;
        }
        Err("replicas and their primary do not come to rest".to_owned())
    }

    /// Lets every replica have all that the live engine has done.
    fn catch_up(&mut self) -> Result<(), String> {
        for _ in 0..ROUNDS_MAX {
            while self.pump()? || self.copy.is_some() {
                self.go_on_with_copy()?;
            }
            self.go_on_with_copy()?;
            if self.copy.is_some() {
                continue;
            }
            let wanted = self.live.point().map(|point| (point.history, point.position));
            let has_all =
                |replica: &Replica| replica.engine.point().map(|point| (point.history, point.position)) == wanted;
            if self.replicas.iter().all(|replica| !replica.is_attached || has_all(replica)) {
                return Ok(());
            }
            self.pass(ROUND_MS);
        }
        let lag = |replica: &Replica| format!("{:?}", replica.engine.point());
        let lags: Vec<String> = self.replicas.iter().map(lag).collect();
        Err(format!("replicas do not catch up with {:?}: {}", self.live.point(), lags.join(", ")))
    }

    /// Compares the log and the replicas with the live engine.
    fn check(&mut self) -> Result<(), String> {
        self.catch_up()?;
        self.write()?;
        let wanted = self.live.content();
        for (number, replica) in self.replicas.iter().enumerate().filter(|(_, replica)| replica.is_attached) {
            compare(&format!("replica {number}"), &wanted, &replica.engine.content())?;
        }
        let restarted = self.restart(self.folder.copy())?;
        let what = if self.bases > 0 { "restart from base and log" } else { "restart from the log" };
        compare(what, &wanted, &restarted.content())
    }

    /// An engine with what a log says.
    fn restart(&self, folder: MemoryFolder) -> Result<Arc<Engine>, String> {
        let mut settings = self.life.other_settings.clone();
        settings.extend(TIGHT);
        let restarted = engine(4, &settings);
        let recovered = Keeper::recover(Arc::clone(&restarted), folder, LOG_ID, Box::new(|| {}), self.now());
        recovered.map(|_| restarted).map_err(|error| format!("the log cannot be read: {error}"))
    }
}

fn now_of(unix_ms: i64) -> Now {
    let nanos = u64::try_from(unix_ms - BEGIN_MS + 1).unwrap_or(1) * 1_000_000;
    Now { unix_us: unix_ms * 1_000, instant: Instant::from_nanos(nanos) }
}

fn go_on_with_sync(mut snapshot: Snapshot, sync: FullSync, has_begun: bool, now: Now) -> Option<Copy> {
    let put = |sync: &FullSync, bytes: &[u8]| bytes.is_empty() || sync.put(bytes, 0, Duration::ZERO).is_ok();
    if !has_begun {
        let has_begun = put(&sync, format!("$EOF:{MARK}\r\n").as_bytes());
        return Some(Copy::Sync { snapshot, sync, has_begun });
    }
    let step = snapshot.step();
    if !put(&sync, &snapshot.take()) {
        snapshot.lose();
    }
    match step {
        Taken::More => Some(Copy::Sync { snapshot, sync, has_begun }),
        Taken::Done => {
            if put(&sync, MARK.as_bytes()) {
                sync.end(now);
            }
            None
        }
        Taken::Lost(_) => None,
    }
}

fn compare(what: &str, wanted: &Content, found: &Content) -> Result<(), String> {
    if wanted == found {
        return Ok(());
    }
    let lines = wanted.differences(found, SHOWN_KEYS_MAX);
    Err(format!("{what}: {} (- the live engine, + after the {what})", lines.join("\n")))
}

/// Lives a life to its end. `Err` says what differs, and after which act.
pub(crate) fn live(life: &Life) -> Result<(), (usize, String)> {
    let mut world = World::new(life).map_err(|why| (0, why))?;
    for (number, act) in life.acts.iter().enumerate() {
        world.act(act).map_err(|why| (number, why))?;
    }
    world.check().map_err(|why| (life.acts.len(), why))
}

/// Lives a life, then plants a fault in its log. Whether the comparison finds it; nothing if the log is too short for it.
#[cfg(test)]
pub(super) fn finds(life: &Life, fault: Fault, at: usize) -> Result<Option<bool>, String> {
    let mut world = World::new(life)?;
    for act in life.acts.iter().filter(|act| !matches!(act, Act::Check | Act::Rewrite)) {
        world.act(act)?;
    }
    world.write()?;
    let mut batches = Vec::new();
    let (_, report) = Log::open(world.folder.copy(), LOG_ID, &mut |found| {
        if let Recovered::Batch(batch) = found {
            batches.push(batch.to_vec());
        }
        Ok(())
    })
    .map_err(|error| error.to_string())?;
    debug_assert_eq!(report.batches, batches.len() as u64, "all were taken");
    let Some(changed) = plant(&batches.concat(), fault, at) else { return Ok(None) };
    let folder = MemoryFolder::default();
    let (mut log, _) = Log::open(folder.clone(), LOG_ID, &mut |_| Ok(())).map_err(|error| error.to_string())?;
    log.append(&changed).and_then(|()| log.sync()).map_err(|error| error.to_string())?;
    let wanted = world.live.content();
    let restarted = world.restart(folder);
    Ok(Some(!restarted.is_ok_and(|restarted| restarted.content() == wanted)))
}
