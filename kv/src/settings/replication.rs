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
    pub(crate) good_lag_s: i64,
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
            good_lag_s: 10,
        }
    }
}
