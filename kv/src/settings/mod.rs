//! What can be configured while the engine runs.
//!
//! One value holds everything; a change makes a new value that every connection sees with its next request.

mod check;
pub(crate) mod file;
pub(crate) mod form;
pub mod kept;
mod memory;
pub(crate) mod parameter;
mod replication;
pub(crate) mod table;
mod value;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::client::limits::ClientLimits;
use crate::keyspace::Policy;
use crate::persist::Files;
use crate::rdb::VersionCheck;
use crate::value::hll::SPARSE_BYTES_MAX;
use crate::value::list::Fill;
use crate::value::stream::NodeLimits;
use crate::value::{hash, set, zset};
use memory::MemorySettings;
pub(crate) use replication::DisklessLoad;
use replication::ReplicationSettings;

/// Which keyspace events are published: the letters of `notify-keyspace-events`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Events(u16);

impl Events {
    pub(crate) const KEYSPACE: Self = Self(1);
    pub(crate) const KEYEVENT: Self = Self(1 << 1);
    pub(crate) const GENERIC: Self = Self(1 << 2);
    pub(crate) const STRING: Self = Self(1 << 3);
    pub(crate) const LIST: Self = Self(1 << 4);
    pub(crate) const SET: Self = Self(1 << 5);
    pub(crate) const HASH: Self = Self(1 << 6);
    pub(crate) const SORTED_SET: Self = Self(1 << 7);
    pub(crate) const EXPIRED: Self = Self(1 << 8);
    pub(crate) const EVICTED: Self = Self(1 << 9);
    pub(crate) const STREAM: Self = Self(1 << 10);
    pub(crate) const MISS: Self = Self(1 << 11);
    pub(crate) const NEW: Self = Self(1 << 12);

    /// In the order in which the setting is shown; `A` stands for all from `g` to `t`.
    const LETTERS: [(u8, Self); 13] = [
        (b'g', Self::GENERIC),
        (b'$', Self::STRING),
        (b'l', Self::LIST),
        (b's', Self::SET),
        (b'h', Self::HASH),
        (b'z', Self::SORTED_SET),
        (b'x', Self::EXPIRED),
        (b'e', Self::EVICTED),
        (b't', Self::STREAM),
        (b'n', Self::NEW),
        (b'K', Self::KEYSPACE),
        (b'E', Self::KEYEVENT),
        (b'm', Self::MISS),
    ];
    const ALL: Self = Self(
        Self::GENERIC.0
            | Self::STRING.0
            | Self::LIST.0
            | Self::SET.0
            | Self::HASH.0
            | Self::SORTED_SET.0
            | Self::EXPIRED.0
            | Self::EVICTED.0
            | Self::STREAM.0,
    );

    /// Whether all of `other` is in it.
    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// From letters; `None` if one is unknown.
    pub(crate) fn from_letters(letters: &[u8]) -> Option<Self> {
        letters.iter().try_fold(Self::default(), |events, letter| {
            let more = if *letter == b'A' {
                Self::ALL
            } else {
                Self::LETTERS.iter().find(|(known, _)| known == letter).map(|(_, event)| *event)?
            };
            Some(Self(events.0 | more.0))
        })
    }

    /// As letters.
    pub(crate) fn letters(self) -> String {
        let is_all = self.has(Self::ALL);
        let shown = Self::LETTERS.iter().filter(|(_, event)| self.has(*event) && !(is_all && Self::ALL.has(*event)));
        let rest = shown.map(|(letter, _)| char::from(*letter));
        is_all.then_some('A').into_iter().chain(rest).collect()
    }
}

/// When the log becomes durable (`appendfsync`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum LogSync {
    /// Before anybody is told.
    Always,
    /// About every second.
    #[default]
    EverySecond,
    /// When the operating system likes.
    No,
}

impl LogSync {
    const ALL: [(Self, &'static str); 3] =
        [(Self::Always, "always"), (Self::EverySecond, "everysec"), (Self::No, "no")];

    /// Its name in the configuration.
    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(sync, _)| *sync == self).map_or("everysec", |(_, name)| name)
    }

    /// The one of this name.
    pub(crate) fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| known.as_bytes().eq_ignore_ascii_case(name)).map(|(sync, _)| *sync)
    }
}

/// Which commands are remembered, and how many.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LogSettings {
    /// Microseconds from which a command is slow; negative for none (`commandlog-execution-slower-than`).
    pub(crate) slower_than_us: i64,
    /// Slow commands that are remembered (`commandlog-slow-execution-max-len`).
    pub(crate) slow_max: usize,
    /// Bytes from which a request is large; negative for none (`commandlog-request-larger-than`).
    pub(crate) request_bytes: i64,
    /// Large requests that are remembered (`commandlog-large-request-max-len`).
    pub(crate) requests_max: usize,
    /// Bytes from which a reply is large; negative for none (`commandlog-reply-larger-than`).
    pub(crate) reply_bytes: i64,
    /// Large replies that are remembered (`commandlog-large-reply-max-len`).
    pub(crate) replies_max: usize,
    /// Milliseconds from which an event is remembered; 0 for none (`latency-monitor-threshold`).
    pub(crate) latency_ms: u64,
    /// Whether durations of commands are counted (`latency-tracking`).
    pub(crate) counts_latency: bool,
    /// Whether costs are counted by slots (`cluster-slot-stats-enabled`).
    pub(crate) counts_slots: bool,
    /// Which of their percentiles are shown (`latency-tracking-info-percentiles`).
    pub(crate) percentiles: Vec<f64>,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self {
            slower_than_us: 10_000,
            slow_max: 128,
            request_bytes: 1 << 20,
            requests_max: 128,
            reply_bytes: 1 << 20,
            replies_max: 128,
            latency_ms: 0,
            counts_latency: true,
            counts_slots: false,
            percentiles: vec![50.0, 99.0, 99.9],
        }
    }
}

/// Everything that can be configured while the engine runs.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// How many databases there are (`databases`).
    pub(crate) databases: usize,
    /// Which commands are remembered.
    pub(crate) logs: LogSettings,
    /// Parameters without a field of their own that somebody has set, as texts.
    pub(crate) kept: BTreeMap<&'static str, Box<[u8]>>,
    /// The longest word of a request, bytes (`proto-max-bulk-len`).
    pub(crate) word_bytes_max: i64,
    /// Bytes that data may take; 0 is no limit (`maxmemory`).
    pub(crate) memory_bytes_max: u64,
    /// Which keys go when memory is full (`maxmemory-policy`).
    pub(crate) policy: Policy,
    /// At how many bytes a HyperLogLog becomes dense (`hll-sparse-max-bytes`).
    pub(crate) sketch_bytes_max: usize,
    pub(crate) lfu_growth: u32,
    pub(crate) lfu_decay_minutes: u32,
    /// `notify-keyspace-events`.
    pub(crate) events: Events,
    /// `list-max-listpack-size`.
    pub(crate) list_fill: Fill,
    /// `hash-max-listpack-entries` and `-value`.
    pub(crate) hash: hash::Limits,
    /// `set-max-intset-entries`, `set-max-listpack-entries` and `-value`.
    pub(crate) set: set::Limits,
    /// `zset-max-listpack-entries` and `-value`.
    pub(crate) sorted_set: zset::Limits,
    /// `stream-node-max-bytes` and `-entries`.
    pub(crate) stream: NodeLimits,
    /// `appendfsync`.
    pub(crate) log_sync: LogSync,
    /// Where files are, and when they are written.
    pub(crate) files: Files,
    /// Whether long strings are compressed in files and payloads (`rdbcompression`).
    pub(crate) compresses: bool,
    /// Which versions of payloads are taken (`rdb-version-check`).
    pub(crate) version_check: VersionCheck,
    /// The password of the default user; empty for none (`requirepass`).
    pub(crate) password: Vec<u8>,
    /// How often it was set: also the same one replaces all passwords of the default user.
    pub(crate) password_changes: u64,
    /// Without a password of the default user, only connections from this machine are accepted (`protected-mode`).
    pub(crate) is_protected: bool,
    /// Keys that are remembered for clients that track; 0 for any number (`tracking-table-max-keys`).
    pub(crate) tracking_keys_max: usize,
    /// Entries of what users were refused (`acllog-max-len`).
    pub(crate) acl_log_max: usize,
    /// Whether new users may use all channels (`acl-pubsub-default`).
    pub(crate) acl_all_channels: bool,
    /// Milliseconds that a script may run before others are told that the server is busy; 0 is no limit
    /// (`busy-reply-threshold`).
    pub(crate) script_ms_max: u64,
    /// How many clients there may be, and how much each may take.
    pub(crate) clients: ClientLimits,
    /// Nothing expires and nothing goes when memory is full: another server says what does (`import-mode`).
    pub(crate) imports: bool,
    /// How keys and clients are chosen that go when memory is full.
    pub(crate) memory: MemorySettings,
    /// What replicas get.
    pub(crate) replication: ReplicationSettings,
}

impl Settings {
    /// Where clients connect (`port`); 0 for nowhere.
    pub(crate) fn port(&self) -> u16 {
        let shown = parameter::find(b"port").map(|parameter| parameter.show(self)).unwrap_or_default();
        str::from_utf8(&shown).ok().and_then(|port| port.parse().ok()).unwrap_or_default()
    }
}

impl Settings {
    /// The same for what the log or a primary says: it was done once, so no limit that holds for requests of clients applies.
    pub(crate) fn without_client_limits(&self) -> Arc<Self> {
        Arc::new(Self { word_bytes_max: i64::from(u32::MAX), ..self.clone() })
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            databases: 16,
            logs: LogSettings::default(),
            kept: BTreeMap::new(),
            word_bytes_max: 512 * 1024 * 1024,
            memory_bytes_max: 0,
            policy: Policy::NoEviction,
            sketch_bytes_max: SPARSE_BYTES_MAX,
            lfu_growth: 10,
            lfu_decay_minutes: 1,
            events: Events::default(),
            list_fill: Fill::default(),
            hash: hash::Limits::default(),
            set: set::Limits::default(),
            sorted_set: zset::Limits::default(),
            stream: NodeLimits::default(),
            log_sync: LogSync::default(),
            files: Files::default(),
            compresses: true,
            version_check: VersionCheck::default(),
            password: Vec::new(),
            password_changes: 0,
            is_protected: true,
            tracking_keys_max: 1_000_000,
            acl_log_max: 128,
            acl_all_channels: false,
            script_ms_max: 5_000,
            clients: ClientLimits::default(),
            imports: false,
            memory: MemorySettings::default(),
            replication: ReplicationSettings::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_as_letters() {
        for (given, shown) in
            [("", ""), ("KEA", "AKE"), ("Kx", "xK"), ("g$lszhxetE", "AE"), ("AKEm", "AKEm"), ("Kn", "nK")]
        {
            assert_eq!(Events::from_letters(given.as_bytes()).unwrap().letters(), shown, "{given}");
        }
        assert_eq!(Events::from_letters(b"KEy"), None);
    }
}
