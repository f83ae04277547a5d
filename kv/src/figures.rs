//! Figures of an engine for whoever watches it: metrics, health checks.
//!
//! They are read beside the commands that run. Counters of workers are summed up; shards are locked one after another, for a moment
//! each, so figures of keys are no snapshot. A script that holds keys for long holds up nobody here: figures of keys are left out then.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::cluster::map::{Health, Map};
use crate::command::spec::Flags;
use crate::command::spec::table::COMMANDS;
use crate::engine::Engine;
use crate::keyspace::Counts;
use crate::replicate::Phase;
use crate::replicate::role::LinkState;
use crate::statistics::histogram::Histogram;
use crate::time::Now;

/// How long a shard may be held by a command before figures of keys are left out.
const SHARD_MAX: Duration = Duration::from_millis(100);

/// Bounds of the histogram of durations, nanoseconds: from 10 us to 10 s, in steps of 1, 2.5 and 5.
pub const DURATION_BOUNDS: [u64; 19] = [
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
];

/// What a command does, by its flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandClass {
    /// It may change keys.
    Write,
    /// It reads keys.
    Read,
    /// Everything else.
    Other,
}

impl CommandClass {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Write, Self::Read, Self::Other];

    /// As a label has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Other => "other",
        }
    }
}

/// What was counted of the commands of one class, since the process began or `CONFIG RESETSTAT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommandFigures {
    /// Those that ran.
    pub calls: u64,
    /// Those that ran and replied an error.
    pub failed: u64,
    /// Those that were refused before they ran.
    pub rejected: u64,
    /// How long all calls took together, nanoseconds.
    pub nanos: u64,
    /// Calls that took no longer than each of [`DURATION_BOUNDS`]. All are zero while `latency-tracking` is off.
    pub within: [u64; DURATION_BOUNDS.len()],
}

/// Keys of one database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatabaseFigures {
    /// Its number.
    pub database: usize,
    /// Keys in it.
    pub keys: u64,
    /// Those that expire.
    pub expiring: u64,
}

/// What is known of keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyFigures {
    /// Databases that have keys, and the first one.
    pub databases: Vec<DatabaseFigures>,
    /// Keys that commands looked for and found.
    pub hits: u64,
    /// Keys that commands looked for in vain.
    pub misses: u64,
    /// Keys that expired.
    pub expired: u64,
    /// Changes since the last dump.
    pub changes: u64,
}

/// A replica, as its primary sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaFigures {
    /// `HOST:PORT`.
    pub place: String,
    /// It gets the stream: it has its copy.
    pub is_online: bool,
    /// Bytes of the stream that it has not acknowledged.
    pub lag_bytes: u64,
    /// Since it was last heard of, seconds.
    pub lag_s: i64,
}

/// The link of a replica to its primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkFigures {
    /// The stream comes.
    pub is_up: bool,
    /// A copy of all data is on its way.
    pub is_syncing: bool,
    /// Since something came, seconds; nothing while the link is down.
    pub silent_s: Option<i64>,
}

/// The cluster, as an engine sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClusterFigures {
    /// Calls with keys are served (`cluster_state:ok`).
    pub is_up: bool,
    /// Slots that this engine owns.
    pub slots_owned: usize,
    /// Slots that have an owner.
    pub slots_assigned: usize,
    /// Slots whose owner has failed.
    pub slots_failed: usize,
}

impl ClusterFigures {
    fn of(map: &Map) -> Self {
        let failed = map.nodes().iter().filter(|node| node.health == Health::Failed);
        Self {
            is_up: map.service().is_up,
            slots_owned: map.own().slot_count(),
            slots_assigned: map.slots_assigned(),
            slots_failed: failed.map(crate::cluster::map::Node::slot_count).sum(),
        }
    }

    /// Slots that clients are served, wherever.
    #[must_use]
    pub const fn slots_served(&self) -> usize {
        if self.is_up { self.slots_assigned.saturating_sub(self.slots_failed) } else { 0 }
    }
}

/// The append log and dumps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileFigures {
    /// There is a log.
    pub has_log: bool,
    /// The log cannot be written: writes are refused.
    pub is_log_refused: bool,
    /// Bytes of the log, its base included.
    pub log_bytes: u64,
    /// Bytes that are not in the log yet.
    pub log_waiting_bytes: u64,
    /// Rewrites of the log that succeeded.
    pub rewrites: u64,
    /// The last rewrite failed.
    pub has_rewrite_failed: bool,
    /// Dumps that succeeded.
    pub dumps: u64,
    /// When the last one ended, Unix seconds; 0 for never.
    pub dumped_s: i64,
    /// The last dump failed.
    pub has_dump_failed: bool,
}

/// What clients can expect of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServiceFigures {
    /// Data is read from files or comes from a primary: nobody is served.
    pub is_loading: bool,
    /// The log cannot be written: writes are refused.
    pub is_log_refused: bool,
    /// The cluster, if it is a node of one.
    pub cluster: Option<ClusterFigures>,
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figures {
    /// Data is read from files or comes from a primary: nobody is served.
    pub is_loading: bool,
    /// The link to its primary, of a replica.
    pub link: Option<LinkFigures>,
    /// The cluster, if it is a node of one.
    pub cluster: Option<ClusterFigures>,
    /// Keys; nothing while a command holds some of them for long.
    pub keys: Option<KeyFigures>,
    /// Commands, in the order of [`CommandClass::ALL`].
    pub commands: [CommandFigures; CommandClass::ALL.len()],
    /// Keys that went for lack of memory.
    pub evicted: u64,
    /// Memory in use by all engines of the process.
    pub memory_bytes: u64,
    /// `maxmemory`; 0 for none.
    pub memory_bytes_max: u64,
    /// Connected clients, and those that wait for a key.
    pub clients: usize,
    /// Clients that wait for a key or for replicas.
    pub blocked_clients: usize,
    /// Clients that ever connected.
    pub accepted: u64,
    /// Connections that were refused for there being too many.
    pub rejected: u64,
    /// Bytes that clients sent.
    pub received_bytes: u64,
    /// Bytes that clients were sent.
    pub sent_bytes: u64,
    /// How far the stream for replicas goes.
    pub offset: u64,
    /// Those that follow.
    pub replicas: Vec<ReplicaFigures>,
    /// The append log and dumps.
    pub files: FileFigures,
}

impl Engine {
    /// Its figures now. May wait for a moment where commands hold keys: call it where that holds up nobody.
    #[must_use]
    pub fn figures(&self, now: Now) -> Figures {
        let settings = self.settings();
        let totals = self.statistics.totals();
        let clients = &self.clients.counts;
        Figures {
            is_loading: self.is_loading(),
            link: self.link_figures(now),
            cluster: self.map().map(|map| ClusterFigures::of(&map)),
            keys: self.key_figures(),
            commands: command_figures(self),
            evicted: self.memory.counts.keys.load(Ordering::Relaxed),
            memory_bytes: self.used_memory(),
            memory_bytes_max: settings.memory_bytes_max,
            clients: self.clients.count(),
            blocked_clients: self.blocked_clients(),
            accepted: clients.accepted.load(Ordering::Relaxed),
            rejected: clients.rejected.load(Ordering::Relaxed),
            received_bytes: totals.bytes_in,
            sent_bytes: totals.bytes_out,
            offset: self.replication.end(),
            replicas: self.replica_figures(now),
            files: self.file_figures(),
        }
    }

    /// What clients can expect of it now. Waits for nobody.
    #[must_use]
    pub fn service_figures(&self) -> ServiceFigures {
        ServiceFigures {
            is_loading: self.is_loading(),
            is_log_refused: self.journal.refusal().is_some(),
            cluster: self.map().map(|map| ClusterFigures::of(&map)),
        }
    }

    fn key_figures(&self) -> Option<KeyFigures> {
        let databases = self.keyspace.databases();
        let (mut counts, mut found) = (Counts::default(), vec![(0_u64, 0_u64); databases]);
        for number in 0..self.keyspace.shards() {
            let shard = self.keyspace.shard_within(number, SHARD_MAX)?;
            counts += shard.counts;
            for (database, (keys, expiring)) in found.iter_mut().enumerate() {
                *keys += shard.keys(database) as u64;
                *expiring += shard.keys_expiring(database) as u64;
            }
        }
        let figures = found.into_iter().enumerate();
        let figures = figures.map(|(database, (keys, expiring))| DatabaseFigures { database, keys, expiring });
        let changes = counts.changes + self.keyless_changes.load(Ordering::Relaxed);
        Some(KeyFigures {
            databases: figures.filter(|figures| figures.database == 0 || figures.keys > 0).collect(),
            hits: counts.hits,
            misses: counts.misses,
            expired: counts.expired,
            changes: changes.saturating_sub(self.saves.get().changes_at_dump.0),
        })
    }

    fn link_figures(&self, now: Now) -> Option<LinkFigures> {
        let view = self.role.view();
        view.upstream.as_ref()?;
        let is_up = view.state == LinkState::Connected;
        let silent_s = (now.seconds() - view.heard_s).max(0);
        Some(LinkFigures { is_up, is_syncing: view.state == LinkState::Sync, silent_s: is_up.then_some(silent_s) })
    }

    fn replica_figures(&self, now: Now) -> Vec<ReplicaFigures> {
        let (end, now_s) = (self.replication.end(), now.seconds());
        let replicas = self.replication.replicas();
        let figures = replicas.iter().map(|replica| ReplicaFigures {
            place: format!("{}:{}", replica.host(), replica.introduction.port),
            is_online: replica.phase() == Phase::Online,
            lag_bytes: end.saturating_sub(replica.acknowledged()),
            lag_s: replica.lag_s(now_s).max(0),
        });
        figures.collect()
    }

    fn file_figures(&self) -> FileFigures {
        let state = self.saves.get();
        let (log, base) = state.log_bytes;
        let has_log = self.journal.is_on();
        FileFigures {
            has_log,
            is_log_refused: self.journal.refusal().is_some(),
            log_bytes: if has_log { log + base } else { 0 },
            log_waiting_bytes: self.journal.waiting_bytes(),
            rewrites: state.bases.count,
            has_rewrite_failed: state.bases.failed_s.is_some(),
            dumps: state.dumps.count,
            dumped_s: state.dumps.ended_s,
            has_dump_failed: state.dumps.failed_s.is_some(),
        }
    }
}

fn command_figures(engine: &Engine) -> [CommandFigures; CommandClass::ALL.len()] {
    let mut figures = [CommandFigures::default(); CommandClass::ALL.len()];
    let mut spans: [Option<Histogram>; CommandClass::ALL.len()] = [None, None, None];
    for (command, counts) in COMMANDS.iter().zip(engine.statistics.commands()).filter(|(_, counts)| !counts.is_empty())
    {
        let class = match () {
            () if command.spec.flags.has(Flags::WRITE) => CommandClass::Write,
            () if command.spec.flags.has(Flags::READONLY) => CommandClass::Read,
            () => CommandClass::Other,
        };
        let sum = &mut figures[class as usize];
        sum.calls += counts.calls;
        sum.failed += counts.failed;
        sum.rejected += counts.rejected;
        sum.nanos += counts.nanos;
        if let Some(more) = &counts.spans {
            spans[class as usize].get_or_insert_default().merge(more);
        }
    }
    for (sum, spans) in figures.iter_mut().zip(&spans) {
        if let Some(spans) = spans {
            sum.within = DURATION_BOUNDS.map(|bound| spans.within(bound));
        }
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Talk;

    #[test]
    fn what_commands_did_is_told() {
        let mut talk = Talk::new();
        for request in
            ["SET a 1", "SET b 2 EX 100", "GET a", "GET missing", "INCR c", "PING", "GET a b", "SELECT 1", "SET x y"]
        {
            talk.say(0, request);
        }
        let figures = talk.engine().figures(talk.now());
        let [write, read, other] = figures.commands;
        assert_eq!((write.calls, read.calls, read.rejected), (4, 2, 1), "{figures:?}");
        assert_eq!(other.calls, 2, "{figures:?}");
        assert_eq!(write.within[DURATION_BOUNDS.len() - 1], write.calls, "nothing takes ten seconds");
        assert!(write.within.is_sorted());
        let keys = figures.keys.expect("nobody holds keys");
        let database = |database, keys, expiring| DatabaseFigures { database, keys, expiring };
        assert_eq!(keys.databases, [database(0, 3, 1), database(1, 1, 0)]);
        assert_eq!((keys.hits, keys.misses), (1, 1));
        assert_eq!((figures.cluster, figures.link, figures.clients > 0), (None, None, true));
    }

    #[test]
    fn keys_that_somebody_holds_for_long_are_left_out() {
        let talk = Talk::new();
        let engine = talk.engine_shared();
        let held = engine.keyspace.shard(0);
        assert_eq!(engine.figures(talk.now()).keys, None);
        drop(held);
        assert!(engine.figures(talk.now()).keys.is_some());
    }

    #[test]
    fn what_is_not_up_serves_no_slot() {
        let up = ClusterFigures { is_up: true, slots_owned: 1, slots_assigned: 16_384, slots_failed: 4 };
        assert_eq!(up.slots_served(), 16_380);
        assert_eq!(ClusterFigures { is_up: false, ..up }.slots_served(), 0);
    }
}
