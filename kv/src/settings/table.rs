//! Every parameter of Valkey 9.1, one line each: its name, what its text may be, and what it is when nobody sets it.
//!
//! `at` binds one to a place of the settings. The others are taken, kept and shown, and change nothing here: what they are
//! about does not exist (threads for input and output, defragmentation, forks), or is not a setting (addresses).

use super::check::*;
use super::form::Form;
use super::parameter::{
    ACL_CHANNELS, OUTPUT_LIMITS, PASSWORD, Parameter, at, bytes, checked, flag, int, of, parameter, text,
};

const INT_MIN: i64 = i32::MIN as i64;
const INT: u64 = i32::MAX as u64;
const UINT: u64 = u32::MAX as u64;
const LONG: u64 = i64::MAX as u64;
const PORT: u64 = u16::MAX as u64;
/// The longest word that may be allowed: a key and a value of that length lie in one record, whose length has 32 bits.
const WORD_BYTES_MAX: u64 = (1 << 31) - 1_024;

/// All of them, by name.
pub(crate) static PARAMETERS: &[Parameter] = &[
    of("acl-pubsub-default", &["allchannels", "resetchannels"], "resetchannels").at(ACL_CHANNELS),
    text("aclfile", "").fixed(),
    int("acllog-max-len", 0, LONG, 128).at(at!(acl_log_max)),
    int("active-defrag-cycle-max", 1, 99, 25),
    int("active-defrag-cycle-min", 1, 99, 1),
    int("active-defrag-cycle-us", 0, 100_000, 500),
    bytes("active-defrag-ignore-bytes", 1, LONG, 100 << 20),
    int("active-defrag-max-scan-fields", 1, LONG, 1_000),
    int("active-defrag-threshold-lower", 0, 1_000, 10),
    int("active-defrag-threshold-upper", 0, 1_000, 100),
    int("active-expire-effort", 1, 10, 1),
    checked("activedefrag", defrag, "no"),
    flag("activerehashing", true),
    flag("always-show-logo", false).fixed(),
    flag("aof-disable-auto-gc", false).hidden(),
    flag("aof-load-truncated", true).at(at!(files.takes_torn_log)),
    text("aof-rewrite-cpulist", "").alias("aof_rewrite_cpulist").fixed(),
    flag("aof-rewrite-incremental-fsync", true),
    flag("aof-timestamp-enabled", false),
    flag("aof-use-rdb-preamble", true),
    checked("appenddirname", log_folder, "appendonlydir").fixed().at(at!(files.log_folder)),
    checked("appendfilename", log_name, "appendonly.aof").fixed(),
    of("appendfsync", &["everysec", "always", "no"], "everysec").at(at!(log_sync)),
    flag("appendonly", false).at(at!(files.is_log_on)),
    bytes("auto-aof-rewrite-min-size", 0, LONG, 64 << 20).at(at!(files.growth_bytes_min)),
    int("auto-aof-rewrite-percentage", 0, INT, 100).at(at!(files.growth_percent)),
    text("availability-zone", ""),
    text("bgsave-cpulist", "").alias("bgsave_cpulist").fixed(),
    text("bind", "* -::*").many(),
    text("bind-source-addr", ""),
    text("bio-cpulist", "").alias("bio_cpulist").fixed(),
    int("busy-reply-threshold", 0, LONG, 5_000).alias("lua-time-limit").at(at!(script_ms_max)),
    text("client-output-buffer-limit", "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60")
        .many()
        .at(OUTPUT_LIMITS),
    bytes("client-query-buffer-limit", 1 << 20, LONG, 1024 << 20).at(at!(clients.input_bytes_max)),
    flag("cluster-allow-pubsubshard-when-down", true),
    flag("cluster-allow-reads-when-down", false),
    flag("cluster-allow-replica-migration", true),
    int("cluster-announce-bus-port", 0, PORT, 0),
    checked("cluster-announce-client-ipv4", ipv4, ""),
    checked("cluster-announce-client-ipv6", ipv6, ""),
    int("cluster-announce-client-port", 0, PORT, 0),
    int("cluster-announce-client-tls-port", 0, PORT, 0),
    checked("cluster-announce-hostname", host_name, ""),
    checked("cluster-announce-human-nodename", node_name, ""),
    text("cluster-announce-ip", ""),
    int("cluster-announce-port", 0, PORT, 0),
    int("cluster-announce-tls-port", 0, PORT, 0),
    int("cluster-blacklist-ttl", 0, u64::MAX, 60),
    checked("cluster-config-file", cluster_file, "nodes.conf").fixed(),
    of("cluster-config-save-behavior", &["sync", "best-effort"], "sync"),
    int("cluster-databases", 1, INT, 1).fixed(),
    flag("cluster-enabled", false).fixed(),
    bytes("cluster-link-sendbuf-limit", 0, u64::MAX, 0),
    int("cluster-manual-failover-timeout", 1, INT, 5_000),
    int("cluster-message-gossip-perc", 1, 100, 10),
    int("cluster-migration-barrier", 0, INT, 1),
    int("cluster-node-timeout", 0, LONG, 15_000),
    int("cluster-ping-interval", 0, LONG, 0).hidden(),
    int("cluster-port", 0, PORT, 0).fixed(),
    of("cluster-preferred-endpoint-type", &["ip", "hostname", "unknown-endpoint"], "ip"),
    flag("cluster-replica-no-failover", false).alias("cluster-slave-no-failover"),
    int("cluster-replica-validity-factor", 0, INT, 10).alias("cluster-slave-validity-factor"),
    flag("cluster-require-full-coverage", true),
    int("cluster-slot-migration-log-max-len", 0, LONG, 1_000),
    flag("cluster-slot-stats-enabled", false),
    int("commandlog-execution-slower-than", -1, LONG, 10_000)
        .alias("slowlog-log-slower-than")
        .at(at!(logs.slower_than_us)),
    int("commandlog-large-reply-max-len", 0, LONG, 128).at(at!(logs.replies_max)),
    int("commandlog-large-request-max-len", 0, LONG, 128).at(at!(logs.requests_max)),
    int("commandlog-reply-larger-than", -1, LONG, 1 << 20).at(at!(logs.reply_bytes)),
    int("commandlog-request-larger-than", -1, LONG, 1 << 20).at(at!(logs.request_bytes)),
    int("commandlog-slow-execution-max-len", 0, LONG, 128).alias("slowlog-max-len").at(at!(logs.slow_max)),
    flag("crash-log-enabled", true),
    flag("crash-memcheck-enabled", true),
    flag("daemonize", false).fixed(),
    int("databases", 1, INT, 16).fixed().at(at!(databases)),
    checked("dbfilename", dump_name, "dump.rdb").protected().at(at!(files.dump_name)),
    flag("debug-client-enforce-reply-list", false).hidden(),
    text("debug-context", "").hidden(),
    checked("dir", folder, ".").protected().at(at!(files.directory)),
    flag("disable-thp", true).fixed(),
    flag("dual-channel-replication-enabled", false),
    flag("dynamic-hz", true),
    flag("enable-debug-assert", false).fixed().hidden(),
    of("enable-debug-command", &["no", "yes", "local"], "no").fixed(),
    of("enable-module-command", &["no", "yes", "local"], "no").fixed(),
    of("enable-protected-configs", &["no", "yes", "local"], "no").fixed(),
    int("events-per-io-thread", 0, INT, 2),
    flag("extended-redis-compatibility", false),
    int("hash-max-listpack-entries", 0, LONG, 512).alias("hash-max-ziplist-entries").at(at!(hash.listpack_entries_max)),
    bytes("hash-max-listpack-value", 0, LONG, 64)
        .alias("hash-max-ziplist-value")
        .at(at!(hash.listpack_value_bytes_max)),
    text("hash-seed", "").fixed(),
    flag("hide-user-data-from-log", true),
    bytes("hll-sparse-max-bytes", 0, LONG, 3_000).at(at!(sketch_bytes_max)),
    checked("hz", hertz, "10"),
    text("ignore-warnings", ""),
    flag("import-mode", false).at(at!(imports)),
    int("io-threads", 1, 128, 1).fixed(),
    flag("io-threads-always-active", false).hidden(),
    flag("jemalloc-bg-thread", true),
    int("key-load-delay", INT_MIN, INT, 0).hidden(),
    int("latency-monitor-threshold", 0, LONG, 0).at(at!(logs.latency_ms)),
    flag("latency-tracking", true).at(at!(logs.counts_latency)),
    checked("latency-tracking-info-percentiles", percentiles, "50 99 99.9").many().at(at!(logs.percentiles)),
    flag("lazyfree-lazy-eviction", true).at(at!(memory.evicts_later)),
    flag("lazyfree-lazy-expire", true).at(at!(memory.expires_later)),
    flag("lazyfree-lazy-server-del", true).at(at!(memory.replaces_later)),
    flag("lazyfree-lazy-user-del", true).at(at!(memory.deletes_later)),
    flag("lazyfree-lazy-user-flush", true).at(at!(memory.flushes_later)),
    int("lfu-decay-time", 0, INT, 1).at(at!(lfu_decay_minutes)),
    int("lfu-log-factor", 0, INT, 10).at(at!(lfu_growth)),
    int("list-compress-depth", 0, INT, 0),
    int("list-max-listpack-size", INT_MIN, INT, -2).alias("list-max-ziplist-size").at(at!(list_fill)),
    int("loading-process-events-interval-bytes", 1_024, INT, 2 << 20).hidden(),
    text("locale-collate", ""),
    of("log-format", &["legacy", "logfmt"], "legacy"),
    of("log-timestamp-format", &["legacy", "iso8601", "milliseconds"], "legacy"),
    text("logfile", "").fixed(),
    of("loglevel", &["debug", "verbose", "notice", "warning", "nothing"], "notice"),
    flag("lua-enable-insecure-api", false).alias("lua-enable-deprecated-api").hidden().protected(),
    int("max-new-connections-per-cycle", 1, 1_000, 10),
    int("max-new-tls-connections-per-cycle", 1, 1_000, 1),
    int("maxclients", 1, UINT, 10_000).at(at!(clients.clients_max)),
    bytes("maxmemory", 0, u64::MAX, 0).at(at!(memory_bytes_max)),
    parameter("maxmemory-clients", Form::Share, "0").at(at!(memory.clients)),
    int("maxmemory-eviction-tenacity", 0, 100, 10).at(at!(memory.tenacity)),
    of(
        "maxmemory-policy",
        &[
            "volatile-lru",
            "volatile-lfu",
            "volatile-random",
            "volatile-ttl",
            "allkeys-lru",
            "allkeys-lfu",
            "allkeys-random",
            "noeviction",
        ],
        "noeviction",
    )
    .at(at!(policy)),
    int("maxmemory-samples", 1, 64, 5).at(at!(memory.samples)),
    int("min-io-threads-avoid-copy-reply", 0, INT, 7).hidden(),
    int("min-replicas-max-lag", 0, INT, 10).alias("min-slaves-max-lag").at(at!(replication.good_lag_s)),
    int("min-replicas-to-write", 0, INT, 0).alias("min-slaves-to-write").at(at!(replication.good_min)),
    int("min-string-size-avoid-copy-reply", 0, INT, 16_384).hidden(),
    int("min-string-size-avoid-copy-reply-threaded", 0, INT, 65_536).hidden(),
    flag("mptcp", false).fixed(),
    flag("no-appendfsync-on-rewrite", false),
    text("notify-keyspace-events", "").at(at!(events)),
    of("oom-score-adj", &["no", "yes", "relative", "absolute"], "no"),
    checked("oom-score-adj-values", oom_scores, "0 200 800").many(),
    text("pidfile", "").fixed(),
    int("port", 0, PORT, 6_379),
    int("prefetch-batch-max-size", 0, 128, 16),
    text("primaryauth", "").alias("masterauth").secret().at(at!(replication.password)),
    text("primaryuser", "").alias("masteruser").secret().at(at!(replication.user)),
    checked("proc-title-template", title, "{title} {listen-addr} {server-mode}"),
    of("propagation-error-behavior", &["ignore", "panic", "panic-on-replicas"], "ignore"),
    flag("protected-mode", true),
    bytes("proto-max-bulk-len", 1 << 20, WORD_BYTES_MAX, 512 << 20).at(at!(word_bytes_max)),
    flag("rdb-del-sync-files", false),
    int("rdb-key-save-delay", INT_MIN, INT, 0).hidden(),
    flag("rdb-save-incremental-fsync", true),
    of("rdb-version-check", &["strict", "relaxed"], "strict").at(at!(version_check)),
    flag("rdbchecksum", true).fixed(),
    flag("rdbcompression", true).at(at!(compresses)),
    bytes("repl-backlog-size", 1, LONG, 10 << 20).at(at!(replication.backlog_bytes)),
    int("repl-backlog-ttl", 0, LONG, 3_600).at(at!(replication.backlog_ttl_s)),
    flag("repl-disable-tcp-nodelay", false),
    of("repl-diskless-load", &["disabled", "on-empty-db", "swapdb", "flush-before-load"], "disabled")
        .at(at!(replication.diskless_load)),
    flag("repl-diskless-sync", true).at(at!(replication.is_diskless)),
    int("repl-diskless-sync-delay", 0, INT, 5).at(at!(replication.delay_s)),
    int("repl-diskless-sync-max-replicas", 0, INT, 0).at(at!(replication.delay_replicas_max)),
    flag("repl-mptcp", false),
    int("repl-ping-replica-period", 1, INT, 10).alias("repl-ping-slave-period").at(at!(replication.ping_s)),
    int("repl-timeout", 1, INT, 60).at(at!(replication.timeout_s)),
    text("replica-announce-ip", "").alias("slave-announce-ip").at(at!(replication.announced_address)),
    int("replica-announce-port", 0, PORT, 0).alias("slave-announce-port").at(at!(replication.announced_port)),
    flag("replica-announced", true).at(at!(replication.is_announced)),
    flag("replica-ignore-disk-write-errors", false),
    flag("replica-ignore-maxmemory", true).alias("slave-ignore-maxmemory").at(at!(replication.ignores_memory)),
    flag("replica-lazy-flush", true).alias("slave-lazy-flush"),
    int("replica-priority", 0, INT, 100).alias("slave-priority").at(at!(replication.priority)),
    flag("replica-read-only", true).alias("slave-read-only").at(at!(replication.is_read_only)),
    flag("replica-serve-stale-data", true).alias("slave-serve-stale-data").at(at!(replication.serves_stale)),
    checked("replicaof", primary, "").alias("slaveof").fixed().many().at(at!(replication.upstream)),
    text("requirepass", "").secret().at(PASSWORD),
    of("sanitize-dump-payload", &["no", "yes", "clients"], "no"),
    checked("save", save_points, "3600 1 300 100 60 10000").many().at(at!(files.save_points)),
    text("server-cpulist", "").alias("server_cpulist").fixed(),
    int("set-max-intset-entries", 0, LONG, 512).at(at!(set.intset_entries_max)),
    int("set-max-listpack-entries", 0, LONG, 128).at(at!(set.listpack_entries_max)),
    int("set-max-listpack-value", 0, LONG, 64).at(at!(set.listpack_value_bytes_max)),
    flag("set-proc-title", true).fixed(),
    parameter("shutdown-on-sigint", Form::Marks(&["default", "save", "nosave", "now", "force"]), "default").many(),
    parameter("shutdown-on-sigterm", Form::Marks(&["default", "save", "nosave", "now", "force"]), "default").many(),
    int("shutdown-timeout", 0, INT, 10),
    int("slot-migration-max-failover-repl-bytes", -1, LONG, 0),
    int("socket-mark-id", 0, UINT, 0).fixed(),
    flag("stop-writes-on-bgsave-error", true).at(at!(files.stops_after_failure)),
    bytes("stream-node-max-bytes", 0, LONG, 4_096).at(at!(stream.bytes_max)),
    int("stream-node-max-entries", 0, LONG, 100).at(at!(stream.entries_max)),
    of("supervised", &["upstart", "systemd", "auto", "no"], "no").fixed(),
    flag("syslog-enabled", false).fixed(),
    of(
        "syslog-facility",
        &["user", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7"],
        "local0",
    )
    .fixed(),
    text("syslog-ident", "valkey").fixed(),
    int("tcp-backlog", 0, INT, 511).fixed(),
    int("tcp-keepalive", 0, INT, 300).at(at!(clients.keepalive_s)),
    int("timeout", 0, INT, 0).at(at!(clients.idle_s_max)),
    of("tls-auth-clients", &["no", "yes", "optional"], "yes"),
    of("tls-auth-clients-user", &["off", "CN"], "off"),
    int("tls-auto-reload-interval", 0, INT, 0),
    text("tls-ca-cert-dir", ""),
    text("tls-ca-cert-file", ""),
    text("tls-cert-file", ""),
    text("tls-ciphers", ""),
    text("tls-ciphersuites", ""),
    text("tls-client-cert-file", ""),
    text("tls-client-key-file", ""),
    text("tls-client-key-file-pass", "").secret(),
    flag("tls-cluster", false),
    text("tls-dh-params-file", ""),
    text("tls-key-file", ""),
    text("tls-key-file-pass", "").secret(),
    int("tls-port", 0, PORT, 0),
    flag("tls-prefer-server-ciphers", false),
    text("tls-protocols", ""),
    flag("tls-replication", false),
    int("tls-session-cache-size", 0, INT, 20_480),
    int("tls-session-cache-timeout", 0, INT, 300),
    flag("tls-session-caching", true),
    int("tracking-table-max-keys", 0, LONG, 1_000_000).at(at!(tracking_keys_max)),
    text("unixsocket", "").fixed(),
    text("unixsocketgroup", "").fixed(),
    parameter("unixsocketperm", Form::Octal(0o777), "0").fixed(),
    flag("use-exit-on-panic", false).hidden(),
    int("watchdog-period", 0, INT, 0).hidden(),
    int("zset-max-listpack-entries", 0, LONG, 128)
        .alias("zset-max-ziplist-entries")
        .at(at!(sorted_set.listpack_entries_max)),
    bytes("zset-max-listpack-value", 0, LONG, 64)
        .alias("zset-max-ziplist-value")
        .at(at!(sorted_set.listpack_value_bytes_max)),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Those that are looked up by their names.
    const BY_NAME: [&str; 7] = [
        "availability-zone",
        "bind",
        "enable-debug-command",
        "enable-module-command",
        "enable-protected-configs",
        "extended-redis-compatibility",
        "port",
    ];

    /// The page that users read.
    #[test]
    fn the_page_lists_them_all() {
        let mut page = String::from(include_str!("parameters.md"));
        for parameter in PARAMETERS.iter().filter(|parameter| !parameter.is_hidden) {
            let default = String::from_utf8(parameter.default()).unwrap();
            let shown = if default.is_empty() { String::new() } else { format!("`{default}`") };
            let alias = if parameter.alias.is_empty() { String::new() } else { format!(" (`{}`)", parameter.alias) };
            let change = if parameter.is_fixed { "at the start" } else { "any time" };
            let has_effect = parameter.is_bound() || BY_NAME.contains(&parameter.name);
            let effect = if has_effect { "yes" } else { "taken and shown" };
            page += &format!("| `{}`{alias} | {shown} | {change} | {effect} |\n", parameter.name);
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/kv-parameters.md");
        let found = include_str!("../../../docs/kv-parameters.md");
        assert!(found == page, "{path} is not what the table says; it should be:\n{page}");
    }
}
