//! What can be configured about replicas.

/// Settings about replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReplicationSettings {
    /// Bytes of the stream that are kept for replicas which come back (`repl-backlog-size`).
    pub(crate) backlog_bytes: u64,
    /// Seconds that they are kept without any replica; 0 for ever (`repl-backlog-ttl`).
    pub(crate) backlog_ttl_s: i64,
    /// Seconds between two PINGs to replicas (`repl-ping-replica-period`).
    pub(crate) ping_s: i64,
    /// Seconds after which a silent replica is given up (`repl-timeout`).
    pub(crate) timeout_s: i64,
    /// Whether a dump goes to replicas while it is made, where they can read that (`repl-diskless-sync`).
    pub(crate) is_diskless: bool,
    /// Seconds that such a dump waits for more replicas (`repl-diskless-sync-delay`).
    pub(crate) delay_s: i64,
    /// Replicas that are enough not to wait; 0 for any number (`repl-diskless-sync-max-replicas`).
    pub(crate) delay_replicas_max: usize,
    /// Replicas that there must be for writes (`min-replicas-to-write`), 0 for none, and seconds since they were heard of
    /// (`min-replicas-max-lag`).
    pub(crate) good_min: usize,
    /// Copies of diverged data that are kept aside (`diverged-copies-max`).
    pub(crate) diverged_max: usize,
    pub(crate) good_lag_s: i64,
    /// Whom this server follows (`replicaof`): host and port, or nothing.
    pub(crate) upstream: String,
    /// As whom it introduces itself there, with which password (`primaryuser`, `primaryauth`); nothing where none is needed.
    pub(crate) user: Vec<u8>,
    pub(crate) password: Vec<u8>,
    /// Where it says that it listens (`replica-announce-ip`, `replica-announce-port`); nothing, and 0, for where it does.
    pub(crate) announced_address: String,
    pub(crate) announced_port: u16,
    /// What becomes of the primary's dump while it comes (`repl-diskless-load`).
    pub(crate) diskless_load: DisklessLoad,
    /// While it follows another, clients may not write (`replica-read-only`).
    pub(crate) is_read_only: bool,
    /// Clients may read what is there although the primary cannot be reached (`replica-serve-stale-data`).
    pub(crate) serves_stale: bool,
    /// How gladly it is made a primary (`replica-priority`), and whether it is told of (`replica-announced`).
    pub(crate) priority: i32,
    pub(crate) is_announced: bool,
    /// A shard of which this server is primary acknowledges writes by a majority (`replication-quorum`).
    pub(crate) is_quorum: bool,
    /// Copies without which nothing is written then (`replication-quorum-copies-min`).
    pub(crate) copies_min: usize,
    /// Milliseconds that a reply may wait for a majority; then its connection ends (`replication-quorum-timeout`).
    pub(crate) quorum_timeout_ms: i64,
    /// While it follows another, no key goes when memory is full (`replica-ignore-maxmemory`).
    pub(crate) ignores_memory: bool,
}

/// What becomes of a primary's dump while it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum DisklessLoad {
    /// It is kept in a file until it is whole.
    #[default]
    Disabled,
    /// It is read as it comes if there are no keys.
    OnEmpty,
    /// It is read as it comes.
    Swap,
    /// It is read as it comes.
    Flush,
}

impl DisklessLoad {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Disabled, "disabled"),
        (Self::OnEmpty, "on-empty-db"),
        (Self::Swap, "swapdb"),
        (Self::Flush, "flush-before-load"),
    ];

    /// Its name in the configuration.
    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(load, _)| *load == self).map_or("disabled", |(_, name)| name)
    }

    /// The one of this name.
    pub(crate) fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| known.as_bytes().eq_ignore_ascii_case(name)).map(|(load, _)| *load)
    }
}

impl Default for ReplicationSettings {
    fn default() -> Self {
        Self {
            backlog_bytes: 10 << 20,
            backlog_ttl_s: 3_600,
            ping_s: 10,
            timeout_s: 60,
            is_diskless: true,
            delay_s: 5,
            delay_replicas_max: 0,
            good_min: 0,
            diverged_max: 3,
            good_lag_s: 10,
            upstream: String::new(),
            user: Vec::new(),
            password: Vec::new(),
            announced_address: String::new(),
            announced_port: 0,
            diskless_load: DisklessLoad::Disabled,
            is_read_only: true,
            serves_stale: true,
            priority: 100,
            is_announced: true,
            is_quorum: false,
            copies_min: 2,
            quorum_timeout_ms: 5_000,
            ignores_memory: true,
        }
    }
}
