//! What all connections share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use crate::acl::Acl;
use crate::ahead::Fetch;
use crate::client::pause::Pause;
use crate::client::registry::Clients;
use crate::client::{ClientId, Farewell};
use crate::cluster::Cluster;
use crate::cluster::migration::Migration;
use crate::command::Runs;
use crate::command::migrate::Lines;
use crate::command::run::access;
use crate::error::Error;
use crate::evict::Memory;
use crate::host::{Certificates, Host, NoHost};
use crate::identity::Identity;
use crate::keyspace::{Keys, Keyspace, Lock};
use crate::memory::hash_key::{HASH_KEY_BYTES, HashKey};
use crate::monitor::Monitors;
use crate::network::Network;
use crate::persist::{Files, Journal, Opener, Saves};
use crate::pubsub::PubSub;
use crate::replicate::failover::Failover;
use crate::replicate::follow::Following;
use crate::replicate::quorum::{Attempts, Promises, Term};
use crate::replicate::role::Role;
use crate::replicate::{Aside, Origins, Replication};
use crate::rest::Rest;
use crate::script::Scripts;
use crate::settings::kept::SettingsStore;
use crate::settings::{Settings, parameter};
use crate::shutdown::Shutdown;
use crate::statistics::Statistics;
use crate::switches::Switches;
use crate::time::{Now, Seldom};
use crate::tracking::Tracking;
use crate::waiting::{Release, Waiting};

/// Codes of errors that are counted one by one; scripts can invent any number.
const CODES_MAX: usize = 128;
/// Where the others are counted.
const CODES_OVERFLOW: &str = "ERRORSTATS_OVERFLOW";
/// Codes of our own, which are always counted one by one.
const KNOWN_CODES: [&str; 25] = [
    "ERR",
    "WRONGTYPE",
    "NOAUTH",
    "NOPERM",
    "OOM",
    "NOSCRIPT",
    "BUSY",
    "EXECABORT",
    "MISCONF",
    "READONLY",
    "LOADING",
    "NOGROUP",
    "UNBLOCKED",
    "BUSYGROUP",
    "BUSYKEY",
    "UNKILLABLE",
    "NOTBUSY",
    "NOREPLICAS",
    "WRONGPASS",
    "NOPROTO",
    "CROSSSLOT",
    "CLUSTERDOWN",
    "MOVED",
    "ASK",
    "TRYAGAIN",
];

/// How an engine is made.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Bytes that nobody else knows: hashes are made with them.
    pub secret: [u8; HASH_KEY_BYTES],
    /// Locks that the slots are cut into: a power of two up to 16,384. More than four for each worker help little.
    pub shards: usize,
    /// Databases (`databases`).
    pub databases: usize,
}

/// All data, and everything that connections have in common.
#[derive(Debug)]
pub struct Engine {
    pub(crate) keyspace: Keyspace,
    pub(crate) memory: Memory,
    pub(crate) waiting: Waiting,
    pub(crate) pubsub: PubSub,
    pub(crate) acl: Acl,
    pub(crate) clients: Clients,
    pub(crate) pause: Pause,
    pub(crate) tracking: Tracking,
    pub(crate) monitors: Monitors,
    pub(crate) runs: Runs,
    pub(crate) scripts: Scripts,
    pub(crate) journal: Journal,
    pub(crate) replication: Replication,
    pub(crate) role: Role,
    pub(crate) following: parking_lot::Mutex<Following>,
    pub(crate) failover: Failover,
    /// What this node has promised in shards whose writes a majority acknowledges.
    pub(crate) promises: Promises,
    pub(crate) aside: Aside,
    pub(crate) origins: Origins,
    /// The term for which data are taken over from another member.
    pub(crate) copying: parking_lot::Mutex<Option<Term>>,
    /// How this node tries to serve its shard there.
    pub(crate) attempts: Attempts,
    pub(crate) saves: Saves,
    /// How many read data from files or from a primary, while nobody else may touch them.
    loading: AtomicUsize,
    /// Changes by commands that held no key.
    pub(crate) keyless_changes: AtomicU64,
    pub(crate) host: Arc<dyn Host>,
    network: OnceLock<Box<dyn Network>>,
    log_opener: OnceLock<Box<dyn Opener>>,
    /// The certificates of TLS towards clients.
    certificates: OnceLock<Certificates>,
    /// What it knows of its cluster, if it is a node of one.
    pub(crate) cluster: OnceLock<Cluster>,
    /// Slots that go to other nodes whole, or come from them.
    pub(crate) migration: Migration,
    /// Connections to other servers that MIGRATE keeps.
    pub(crate) lines: Lines,
    pub(crate) identity: Identity,
    pub(crate) switches: Switches,
    pub(crate) statistics: Statistics,
    pub(crate) rest: Rest,
    /// How the process is to end, if it is to.
    pub(crate) stop: Mutex<Option<Shutdown>>,
    settings: RwLock<Arc<Settings>>,
    /// Grows with every change of the settings.
    settings_version: AtomicU64,
    /// Draws so far, from a secret beginning.
    draws: AtomicU64,
    /// How memory is brought near, if it can be.
    fetch: OnceLock<Fetch>,
    /// Errors by their code.
    errors: Mutex<BTreeMap<String, u64>>,
    /// Where changes of settings and users are made durable, if they last by themselves.
    pub(crate) store: OnceLock<Arc<dyn SettingsStore>>,
    /// That somebody has sent HTTP is logged now and then.
    pub(crate) http_warning: Seldom,
}

impl Engine {
    /// No keys, and no world outside.
    ///
    /// # Panics
    /// `config.shards` is no power of two up to 16,384, or there is no database.
    #[must_use]
    pub fn new(config: &EngineConfig) -> Self {
        Self::with_host(config, Arc::new(NoHost))
    }

    /// No keys.
    ///
    /// # Panics
    /// `config.shards` is no power of two up to 16,384, or there is no database.
    #[must_use]
    pub fn with_host(config: &EngineConfig, host: Arc<dyn Host>) -> Self {
        assert!(config.databases > 0, "clients begin in database 0");
        let hash_key = Arc::new(HashKey::new(config.secret));
        let directory = host.folder("", ".").unwrap_or_default();
        let files = Files { directory, ..Files::default() };
        let settings = Settings { databases: config.databases, files, ..Settings::default() };
        let replication = Replication::default();
        replication.configure(&settings);
        Self {
            keyspace: Keyspace::new(hash_key, config.shards, config.databases),
            memory: Memory::new(config.shards),
            waiting: Waiting::default(),
            pubsub: PubSub::default(),
            acl: Acl::new(&config.secret),
            clients: Clients::default(),
            pause: Pause::default(),
            tracking: Tracking::default(),
            monitors: Monitors::default(),
            runs: Runs::new(),
            scripts: Scripts::default(),
            journal: Journal::default(),
            replication,
            role: Role::default(),
            following: parking_lot::Mutex::default(),
            failover: Failover::default(),
            promises: Promises::default(),
            aside: Aside::default(),
            origins: Origins::default(),
            copying: parking_lot::Mutex::default(),
            attempts: Attempts::default(),
            saves: Saves::default(),
            loading: AtomicUsize::new(0),
            keyless_changes: AtomicU64::new(0),
            host,
            network: OnceLock::new(),
            log_opener: OnceLock::new(),
            certificates: OnceLock::new(),
            cluster: OnceLock::new(),
            migration: Migration::default(),
            lines: Lines::default(),
            identity: Identity::new(&config.secret),
            switches: Switches::default(),
            statistics: Statistics::default(),
            rest: Rest::default(),
            stop: Mutex::default(),
            settings: RwLock::new(Arc::new(settings)),
            settings_version: AtomicU64::new(1),
            draws: AtomicU64::new(hash_key_seed(&config.secret)),
            fetch: OnceLock::new(),
            errors: Mutex::default(),
            store: OnceLock::new(),
            http_warning: Seldom::default(),
        }
    }

    /// Memory that requests of a batch will need is brought near by `fetch` from now on. To be called once.
    pub fn fetch_ahead_with(&self, fetch: Fetch) {
        // Another call changes nothing.
        self.fetch.set(fetch).ok();
    }

    /// What brings memory near, if anything does.
    #[inline]
    pub(crate) fn fetch(&self) -> Option<Fetch> {
        self.fetch.get().copied()
    }

    /// Which snapshots are wanted, and how they went.
    pub fn saves(&self) -> &Saves {
        &self.saves
    }

    /// Whether data is read from files: commands are refused, and what is done is told to nobody.
    #[inline]
    pub fn is_loading(&self) -> bool {
        self.loading.load(Ordering::Acquire) > 0
    }

    /// Data is read from files from now on: when this returns, no command runs, and none will.
    pub fn begin_loading(&self, now: Now) {
        self.loading.fetch_add(1, Ordering::AcqRel);
        let clock = access(&self.settings(), now);
        drop(self.keyspace.lock(Lock::Everything, 0, now.unix_ms(), clock));
    }

    /// Commands run again.
    pub fn end_loading(&self) {
        self.loading.fetch_sub(1, Ordering::AcqRel);
    }

    /// Forgets all keys and functions, and tells nobody but who watches them.
    pub fn forget_data(&self, now: Now) {
        let _keys = self.forget_keys(now);
        self.forget_libraries();
    }

    /// Forgets all keys, and tells nobody but who watches them. What is returned keeps others from them until it is dropped.
    pub(crate) fn forget_keys(&self, now: Now) -> Keys<'_> {
        let clock = access(&self.settings(), now);
        let mut keys = self.keyspace.lock(Lock::Everything, 0, now.unix_ms(), clock);
        let all: Vec<usize> = (0..self.keyspace.databases()).collect();
        self.waiting.changed_all(&all);
        self.invalidate_all();
        for number in 0..self.keyspace.shards() {
            all.iter().for_each(|database| drop(keys.shard_at(number).flush(*database)));
        }
        keys
    }

    /// Where files are, and when they are written.
    #[must_use]
    pub fn files(&self) -> Files {
        self.settings().files.clone()
    }

    /// Where commands append what they did.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Writes to the log's file what waits to be written, unless every write must be durable: then the log's thread does.
    pub fn write_log(&self) {
        if self.journal.is_on() {
            self.journal.write_out(self.journal.end(), self.settings().log_sync);
        }
    }

    /// What a script does, once, that has run for some milliseconds: it lets others use the worker of its thread, so that
    /// they can be told that the server is busy, or end the script. It is called on the thread that runs the script.
    pub fn set_give_way(&self, give_way: Box<dyn Fn() + Send + Sync>) {
        self.scripts.running.set_give_way(give_way);
    }

    /// Lends who opens the append log. Only the first call does.
    pub fn set_log_opener(&self, opener: Box<dyn Opener>) {
        self.log_opener.get_or_init(|| opener);
    }

    /// Who opens the append log, if there is one.
    pub(crate) fn log_opener(&self) -> Option<&dyn Opener> {
        self.log_opener.get().map(|opener| &**opener)
    }

    /// Lends the network. Only the first call does.
    pub fn set_network(&self, network: Box<dyn Network>) {
        self.network.get_or_init(|| network);
    }

    /// Has `INFO tls` show these certificates. Only the first call does.
    pub fn show_certificates(&self, certificates: Certificates) {
        self.certificates.get_or_init(|| certificates);
    }

    /// The certificates of TLS towards clients, if it is spoken.
    pub(crate) fn certificates(&self) -> Option<&Certificates> {
        self.certificates.get()
    }

    /// The network, if there is one.
    pub(crate) fn network(&self) -> Option<&dyn Network> {
        self.network.get().map(|network| &**network)
    }

    /// Clients that wait: for a key, or for the end of a pause.
    pub(crate) fn blocked_clients(&self) -> usize {
        self.waiting.clients() + self.pause.held() + self.migration.hold.clients()
    }

    /// Ends a client: it is not listed any more, waits no more, and its session is told.
    pub(crate) fn dismiss(&self, client: ClientId, why: Farewell) {
        self.clients.dismiss(client, why);
        self.waiting.release(client, Release::Gone, self);
    }

    /// After how long without a word a connection's other end is asked whether it is there (`tcp-keepalive`).
    #[must_use]
    pub fn keepalive(&self) -> Option<Duration> {
        let seconds = self.settings().clients.keepalive_s;
        (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)))
    }

    /// Whether there is a user of that name.
    pub(crate) fn has_user(&self, name: &[u8]) -> bool {
        self.acl.user(name).is_some()
    }

    /// The present settings.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Which settings are the present ones.
    #[inline]
    pub(crate) fn settings_version(&self) -> u64 {
        self.settings_version.load(Ordering::Acquire)
    }

    /// Changes settings; every connection sees them with its next request.
    pub(crate) fn change_settings(&self, change: impl FnOnce(&mut Settings)) {
        let changed: Result<(), std::convert::Infallible> = self.try_change_settings(|settings| {
            change(settings);
            Ok(())
        });
        changed.unwrap_or_else(|never| match never {});
    }

    /// The same, unless `change` fails: then they stay as they are. It sees the present settings, and nobody changes them
    /// meanwhile.
    ///
    /// # Errors
    /// Those of `change`.
    pub(crate) fn try_change_settings<E>(&self, change: impl FnOnce(&mut Settings) -> Result<(), E>) -> Result<(), E> {
        let mut settings = self.settings.write().unwrap_or_else(PoisonError::into_inner);
        let mut changed = Settings::clone(&settings);
        change(&mut changed)?;
        if changed.clients != settings.clients {
            self.clients.limit(&changed.clients);
        }
        if changed.password_changes != settings.password_changes {
            self.set_default_password(&changed.password);
        }
        let is_stream_bounded = changed.clients != settings.clients || changed.replication != settings.replication;
        let may_clients_go = changed.memory != settings.memory || changed.memory_bytes_max != settings.memory_bytes_max;
        *settings = Arc::new(changed);
        let present = Arc::clone(&settings);
        drop(settings);
        if is_stream_bounded {
            self.replication.configure(&present);
        }
        self.settings_changed();
        if may_clients_go {
            self.tend_clients(&present);
        }
        Ok(())
    }

    /// Sets a parameter as a configuration file does: also one that cannot be changed while the engine runs.
    ///
    /// # Errors
    /// There is no such parameter, or why it cannot be set so.
    pub fn configure(&self, name: &str, value: &str) -> Result<(), String> {
        let parameter = parameter::find(name.as_bytes()).ok_or("there is no such parameter")?;
        let mut changed = Settings::clone(&self.settings());
        parameter.set(&mut changed, value.as_bytes())?;
        if changed.files.directory != self.settings().files.directory {
            changed.files.directory = self.host.folder(&self.settings().files.directory, &changed.files.directory)?;
        }
        self.change_settings(|settings| *settings = changed);
        Ok(())
    }

    /// Every session looks at the settings, and at what its user may do, before its next request.
    pub(crate) fn settings_changed(&self) {
        self.settings_version.fetch_add(1, Ordering::AcqRel);
    }

    /// A number that nobody can foresee, evenly spread (SplitMix64 from a secret beginning).
    pub(crate) fn draw(&self) -> u64 {
        let state = self.draws.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Errors so far, by code.
    pub(crate) fn errors(&self) -> BTreeMap<String, u64> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts errors from zero again.
    pub(crate) fn forget_errors(&self) {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// An error was replied.
    pub(crate) fn count_error(&self, error: &Error) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        let code = error.code();
        let is_known = KNOWN_CODES.contains(&code) || errors.len() < CODES_MAX || errors.contains_key(code);
        *errors.entry(if is_known { code } else { CODES_OVERFLOW }.into()).or_default() += 1;
    }
}

/// Where draws begin.
fn hash_key_seed(secret: &[u8; HASH_KEY_BYTES]) -> u64 {
    let first = secret.first_chunk().expect("the secret is longer than eight bytes");
    u64::from_le_bytes(*first)
}
