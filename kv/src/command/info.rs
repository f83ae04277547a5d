//! `INFO`: what the server tells of itself, in sections.

use std::sync::atomic::{AtomicU64, Ordering};

use super::call::{Call, Run};
use super::info_memory;
use super::spec::table::COMMANDS;
use crate::acl::Reason;
use crate::client::card::{Figure, Marks};
use crate::error::Error;
use crate::identity::NO_HISTORY;
use crate::keyspace::Counts;
use crate::persist::snapshot::Purpose;
use crate::pubsub::Topic;
use crate::replicate::Phase;
use crate::replicate::role::LinkState;
use crate::settings::parameter;
use crate::statistics::histogram::Histogram;
use crate::statistics::rates::Rate;

pub(super) const RUNS: &[(&str, Run)] = &[("info", info)];

/// Keys whose time to live is looked at for the mean.
const TTL_DRAWS: usize = 32;

type Write = fn(&Call<'_, '_>, &mut Section);

/// The sections in their order: name, head, whether it is shown unless another was asked for, and what writes it.
const SECTIONS: &[(&str, &str, bool, Write)] = &[
    ("server", "Server", true, server),
    ("tls", "TLS", false, certificates),
    ("clients", "Clients", true, clients),
    ("memory", "Memory", true, memory),
    ("persistence", "Persistence", true, persistence),
    ("stats", "Stats", true, stats),
    ("replication", "Replication", true, replication),
    ("cpu", "CPU", true, cpu),
    ("modules", "Modules", true, |_, _| {}),
    ("commandstats", "Commandstats", false, commands),
    ("errorstats", "Errorstats", true, errors),
    ("latencystats", "Latencystats", false, latencies),
    ("cluster", "Cluster", true, |call, section| {
        section.put("cluster_enabled", u8::from(call.engine.cluster().is_some()));
    }),
    ("keyspace", "Keyspace", true, keyspace),
];

/// One section's lines.
#[derive(Debug, Default)]
struct Section(String);

impl Section {
    fn put(&mut self, name: &str, value: impl std::fmt::Display) {
        self.0 += &format!("{name}:{value}\r\n");
    }

    fn put_all<const N: usize>(&mut self, lines: [(&str, u64); N]) {
        lines.iter().for_each(|(name, value)| self.put(name, value));
    }
}

fn info(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.client.meter.flush(call.engine, call.settings.logs.counts_latency);
    let is = |name: &str| call.args.from(1).any(|word| word.eq_ignore_ascii_case(name.as_bytes()));
    let (has_all, has_default) = (is("all") || is("everything"), is("default") || call.args.len() == 1);
    let wanted = SECTIONS.iter().filter(|(name, _, is_default, _)| {
        has_all || has_default && *is_default || is(name) || *name == "modules" && is("module_list")
    });
    let mut texts: Vec<String> = wanted
        .map(|(_, head, _, write)| {
            let mut section = Section(format!("# {head}\r\n"));
            write(call, &mut section);
            section.0
        })
        .collect();
    if is("debug") {
        texts.push(debug(call));
    }
    call.reply.verbatim("txt", texts.join("\r\n").as_bytes());
    Ok(())
}

/// A parameter as it is shown.
pub(super) fn shown(call: &Call<'_, '_>, name: &str) -> String {
    let parameter = parameter::find(name.as_bytes()).expect("the table has it");
    String::from_utf8_lossy(&parameter.show(call.settings)).into_owned()
}

fn server(call: &Call<'_, '_>, section: &mut Section) {
    let facts = call.engine.host.facts();
    let uptime_s = call.now.instant.as_nanos() / 1_000_000_000;
    let mode = if shown(call, "extended-redis-compatibility") == "yes" { "redis_mode" } else { "server_mode" };
    section.put("redis_version", "7.2.4");
    section.put("server_name", "valkey");
    section.put("valkey_version", "9.1.0");
    section.put("valkey_release_stage", "ga");
    section.put("redis_git_sha1", "00000000");
    section.put("redis_git_dirty", 0);
    section.put("redis_build_id", concat!("ashlar-", env!("CARGO_PKG_VERSION")));
    section.put(mode, if call.engine.cluster().is_some() { "cluster" } else { "standalone" });
    section.put("os", format!("{} {}", facts.system, facts.machine));
    section.put("arch_bits", usize::BITS);
    section.put("monotonic_clock", "POSIX clock_gettime");
    section.put("multiplexing_api", "epoll");
    section.put("gcc_version", "0.0.0");
    section.put("process_id", facts.process);
    section.put("process_supervised", "no");
    section.put("run_id", &call.engine.identity.run);
    section.put("tcp_port", shown(call, "port"));
    section.put("server_time_usec", call.now.unix_us);
    section.put("uptime_in_seconds", uptime_s);
    section.put("uptime_in_days", uptime_s / 86_400);
    section.put("hz", shown(call, "hz"));
    section.put("configured_hz", shown(call, "hz"));
    section.put("clients_hz", shown(call, "hz"));
    section.put("lru_clock", call.now.unix_us.div_euclid(1_000_000) & 0xff_ffff);
    section.put("executable", &facts.executable);
    section.put("config_file", &facts.config_file);
    section.put("io_threads_active", u8::from(facts.workers > 1));
    section.put("availability_zone", shown(call, "availability-zone"));
}

/// Certificates of TLS towards clients. As a client of other servers this server shows none.
fn certificates(call: &Call<'_, '_>, section: &mut Section) {
    let shown = call.engine.certificates();
    let server = shown.and_then(|certificates| certificates.server.as_ref());
    let authority = shown.and_then(|certificates| certificates.authority.as_ref());
    let now_s = call.now.unix_us.div_euclid(1_000_000);
    for (name, certificate) in [("server", server), ("client", None), ("ca", authority)] {
        let left_s = certificate.map_or(0, |certificate| certificate.expires_s.saturating_sub(now_s).max(0));
        let serial = certificate.map_or("none", |certificate| certificate.serial.as_str());
        section.put(&format!("tls_{name}_cert_serial"), serial);
        section.put(&format!("tls_{name}_cert_expires_in_seconds"), left_s);
    }
}

fn clients(call: &Call<'_, '_>, section: &mut Section) {
    let engine = call.engine;
    let cards = engine.clients.all();
    let most = |figure: Figure| cards.iter().map(|card| card.get(figure)).max().unwrap_or(0);
    let count = |is_one: &dyn Fn(&crate::client::card::Card) -> bool| cards.iter().filter(|card| is_one(card)).count();
    let (watched, awaited, awaited_absent) = engine.waiting.places();
    let [trackers, ..] = engine.tracking.counts();
    let (reason, actions, until_ms) = engine.pause.shown(call.now.milliseconds());
    section.put("connected_clients", engine.clients.count());
    section.put("cluster_connections", 0);
    section.put("maxclients", call.settings.clients.clients_max);
    section.put("client_recent_max_input_buffer", most(Figure::Input));
    section.put("client_recent_max_output_buffer", most(Figure::OutputPeak));
    section.put("blocked_clients", engine.blocked_clients());
    section.put("tracking_clients", trackers);
    section.put("pubsub_clients", count(&|card| card.marks().has(Marks::PUBSUB)));
    section.put("watching_clients", count(&|card| card.get(Figure::Watched) > 0));
    section.put("clients_in_timeout_table", 0);
    section.put("total_watched_keys", watched);
    section.put("total_blocking_keys", awaited);
    section.put("total_blocking_keys_on_nokey", awaited_absent);
    section.put("paused_reason", reason);
    section.put("paused_actions", actions);
    section.put("paused_timeout_milliseconds", until_ms);
}

fn memory(call: &Call<'_, '_>, section: &mut Section) {
    let [machine, scripts, cached] = call.engine.scripts.eval_figures().map(|figure| figure as u64);
    let [library_machine, libraries] = call.engine.scripts.library_figures().map(|figure| figure as u64);
    let (library_count, functions) = call.engine.scripts.counts();
    let facts = call.engine.host.facts();
    let lines = info_memory::section(call);
    section.0.push_str(lines.strip_prefix("# Memory\r\n").unwrap_or(&lines));
    section.put_all([
        ("total_system_memory", facts.memory_bytes),
        ("used_memory_lua", machine),
        ("used_memory_vm_eval", machine),
        ("used_memory_scripts_eval", scripts),
        ("number_of_cached_scripts", cached),
        ("used_memory_vm_functions", library_machine),
        ("used_memory_vm_total", machine + library_machine),
        ("used_memory_functions", libraries),
        ("used_memory_scripts", scripts + libraries),
        ("number_of_functions", functions as u64),
        ("number_of_libraries", library_count as u64),
    ]);
    for (name, bytes) in [
        ("total_system_memory_human", facts.memory_bytes),
        ("used_memory_lua_human", machine),
        ("used_memory_vm_total_human", machine + library_machine),
        ("used_memory_scripts_human", scripts + libraries),
    ] {
        section.put(name, info_memory::human(bytes));
    }
}

/// A time that may not be there, as a number.
fn or_none(seconds: Option<i64>) -> i64 {
    seconds.unwrap_or(-1)
}

fn persistence(call: &Call<'_, '_>, section: &mut Section) {
    let (engine, now_s) = (call.engine, call.now.unix_us.div_euclid(1_000_000));
    let state = engine.saves.get();
    let status = |failed_s: Option<i64>| if failed_s.is_some() { "err" } else { "ok" };
    let since = |purpose| state.running.filter(|(what, _)| *what == purpose).map(|(_, since_s)| now_s - since_s);
    let (dump_since, base_since) = (since(Purpose::Dump), since(Purpose::LogBase));
    // All shards are held, so that their changes are read here.
    let held: u64 = call.keys.shards().map(|shard| shard.counts.changes).sum();
    let changes = held + engine.keyless_changes.load(Ordering::Relaxed);
    let is_on = engine.journal.is_on();
    section.put_all([
        ("loading", u64::from(engine.is_loading())),
        ("async_loading", 0),
        ("current_cow_peak", 0),
        ("current_cow_size", 0),
    ]);
    section.put("current_cow_size_age", 0);
    section.put("current_fork_perc", "0.00");
    section.put_all([("current_save_keys_processed", 0), ("current_save_keys_total", 0)]);
    section.put("rdb_changes_since_last_save", changes.saturating_sub(state.changes_at_dump.0));
    section.put("rdb_bgsave_in_progress", u8::from(state.is_pending(Purpose::Dump)));
    section.put("rdb_last_save_time", state.dumps.ended_s.max(state.loaded_s));
    section.put("rdb_last_bgsave_status", status(state.dumps.failed_s));
    section.put("rdb_last_bgsave_time_sec", or_none(state.dumps.took_s));
    section.put("rdb_current_bgsave_time_sec", or_none(dump_since));
    section.put("rdb_saves", state.dumps.count);
    section.put("rdb_last_cow_size", 0);
    section.put("rdb_last_load_keys_expired", 0);
    section.put("rdb_last_load_keys_loaded", 0);
    section.put("aof_enabled", u8::from(is_on));
    section.put("aof_rewrite_in_progress", u8::from(state.is_pending(Purpose::LogBase)));
    section.put("aof_rewrite_scheduled", u8::from(state.wants_base));
    section.put("aof_last_rewrite_time_sec", or_none(state.bases.took_s));
    section.put("aof_current_rewrite_time_sec", or_none(base_since));
    section.put("aof_last_bgrewrite_status", status(state.bases.failed_s));
    section.put("aof_rewrites", state.bases.count);
    section.put("aof_rewrites_consecutive_failures", u8::from(state.bases.failed_s.is_some()));
    section.put("aof_last_write_status", if engine.journal.refusal().is_some() { "err" } else { "ok" });
    section.put_all([("aof_last_cow_size", 0), ("module_fork_in_progress", 0), ("module_fork_last_cow_size", 0)]);
    if is_on {
        let (log, base) = state.log_bytes;
        section.put_all([("aof_current_size", log + base), ("aof_base_size", base)]);
        section.put("aof_pending_rewrite", u8::from(state.wants_base));
        section.put("aof_buffer_length", engine.journal.waiting_bytes());
        section.put_all([("aof_pending_bio_fsync", 0), ("aof_delayed_fsync", 0)]);
    }
}

/// Kibibytes with two digits.
fn kib(bytes: u64) -> String {
    format!("{}.{:02}", bytes / 1_024, bytes % 1_024 * 100 / 1_024)
}

fn stats(call: &Call<'_, '_>, section: &mut Section) {
    let engine = call.engine;
    let totals = engine.statistics.totals();
    let clients = &engine.clients.counts;
    let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let (ops, bytes_in, bytes_out) = {
        let rates = engine.statistics.rates();
        (rates.get(Rate::Commands), rates.get(Rate::BytesIn), rates.get(Rate::BytesOut))
    };
    section.put_all([
        ("total_connections_received", load(&clients.accepted)),
        ("total_commands_processed", totals.commands),
        ("instantaneous_ops_per_sec", ops),
        ("total_net_input_bytes", totals.bytes_in),
        ("total_net_output_bytes", totals.bytes_out),
        ("total_net_repl_input_bytes", load(&engine.replication.received_bytes)),
        ("total_net_repl_output_bytes", load(&engine.replication.sent_bytes)),
    ]);
    section.put("instantaneous_input_kbps", kib(bytes_in));
    section.put("instantaneous_output_kbps", kib(bytes_out));
    section.put("instantaneous_input_repl_kbps", kib(0));
    section.put("instantaneous_output_repl_kbps", kib(0));
    section.put("rejected_connections", load(&clients.rejected));
    section.put_all([
        ("sync_full", load(&engine.replication.full)),
        ("sync_partial_ok", load(&engine.replication.partial)),
        ("sync_partial_err", load(&engine.replication.refused)),
    ]);
    keys_stats(call, section);
    section.put_all([
        ("pubsub_channels", engine.pubsub.topics(Topic::Channel).len() as u64),
        ("pubsub_patterns", engine.pubsub.topics(Topic::Pattern).len() as u64),
        ("pubsubshard_channels", engine.pubsub.topics(Topic::Shard).len() as u64),
        ("latest_fork_usec", 0),
        ("total_forks", 0),
        ("migrate_cached_sockets", 0),
        ("slave_expires_tracked_keys", 0),
        ("active_defrag_hits", 0),
        ("active_defrag_misses", 0),
        ("active_defrag_key_hits", 0),
        ("active_defrag_key_misses", 0),
        ("total_active_defrag_time", 0),
        ("current_active_defrag_time", 0),
    ]);
    let [_, tracked, items, prefixes] = engine.tracking.counts();
    section.put_all([
        ("tracking_total_keys", tracked as u64),
        ("tracking_total_items", items as u64),
        ("tracking_total_prefixes", prefixes as u64),
        ("unexpected_error_replies", load(&engine.replication.unexpected)),
        ("total_error_replies", engine.errors().values().sum()),
        ("dump_payload_sanitizations", 0),
        ("total_reads_processed", totals.reads),
        ("total_writes_processed", totals.writes),
        ("client_query_buffer_limit_disconnections", load(&clients.input_overflows)),
        ("client_output_buffer_limit_disconnections", load(&clients.output_overflows)),
        ("reply_buffer_shrinks", 0),
        ("reply_buffer_expands", 0),
        ("eventloop_cycles", totals.reads),
        ("eventloop_duration_cmd_sum", totals.nanos / 1_000),
    ]);
    let refused = engine.acl.log().counts;
    for (name, reason) in [
        ("auth", Reason::Auth),
        ("cmd", Reason::Command),
        ("key", Reason::Key),
        ("channel", Reason::Channel),
        ("db", Reason::Database),
    ] {
        section.put(&format!("acl_access_denied_{name}"), refused[reason as usize]);
    }
}

fn keys_stats(call: &Call<'_, '_>, section: &mut Section) {
    let mut counts = Counts::default();
    call.keys.shards().for_each(|shard| counts += shard.counts);
    section.put("expired_keys", counts.expired);
    section.put("expired_fields", counts.expired_fields);
    section.put("expired_stale_perc", "0.00");
    section.put("expired_keys_with_volatile_items_stale_perc", "0.00");
    section.put_all([("expired_time_cap_reached_count", 0), ("expire_cycle_cpu_milliseconds", 0)]);
    section.0 += &info_memory::stats(call.engine, call.now);
    section.put("evicted_scripts", 0);
    section.put_all([("keyspace_hits", counts.hits), ("keyspace_misses", counts.misses)]);
}

/// Which part the server plays; of a replica, how its link is.
fn replica(call: &Call<'_, '_>, section: &mut Section) {
    let view = call.engine.role.view();
    let Some(upstream) = &view.upstream else {
        section.put("role", "master");
        return;
    };
    let ((host, port), now_s) = (upstream.place(), call.now.seconds());
    let (is_up, is_syncing) = (view.state == LinkState::Connected, view.state == LinkState::Sync);
    let end = call.engine.replication.end();
    let settings = &call.settings.replication;
    section.put("role", "slave");
    section.put("master_host", host);
    section.put("master_port", port);
    section.put("master_link_status", if is_up { "up" } else { "down" });
    section.put("master_last_io_seconds_ago", if is_up { (now_s - view.heard_s).max(0) } else { -1 });
    section.put("master_sync_in_progress", u8::from(is_syncing));
    section.put("slave_read_repl_offset", view.read.max(end));
    section.put("slave_repl_offset", end);
    section.put("replicas_repl_buffer_size", 0);
    section.put("replicas_repl_buffer_peak", 0);
    if is_syncing {
        let (total, read) = view.dump;
        let hundredths = (read * 10_000).checked_div(total).unwrap_or(0);
        section.put("master_sync_total_bytes", total);
        section.put("master_sync_read_bytes", read);
        section.put("master_sync_left_bytes", i128::from(total) - i128::from(read));
        section.put("master_sync_perc", format!("{}.{:02}", hundredths / 100, hundredths % 100));
        section.put("master_sync_last_io_seconds_ago", (now_s - view.heard_s).max(0));
    }
    if !is_up {
        section.put("master_link_down_since_seconds", view.down_since_s.map_or(-1, |since_s| (now_s - since_s).max(0)));
    }
    section.put("slave_priority", settings.priority);
    section.put("slave_read_only", u8::from(settings.is_read_only));
    section.put("replica_announced", u8::from(settings.is_announced));
}

fn replication(call: &Call<'_, '_>, section: &mut Section) {
    replica(call, section);
    let (replication, now_s) = (&call.engine.replication, call.now.seconds());
    let replicas = replication.replicas();
    section.put("connected_slaves", replicas.len());
    let (min, lag_s_max) = (call.settings.replication.good_min, call.settings.replication.good_lag_s);
    if min > 0 && lag_s_max > 0 {
        section.put("min_slaves_good_slaves", replication.good(lag_s_max, now_s));
    }
    for (number, replica) in replicas.iter().enumerate() {
        let phase = replica.phase();
        let lag_s = if phase == Phase::Online { replica.lag_s(now_s) } else { 0 };
        let state = match phase {
            Phase::Waits(_) | Phase::Spools => "wait_bgsave",
            Phase::Sends => "send_bulk",
            Phase::Online => "online",
        };
        let (host, port, offset) = (replica.host(), replica.introduction.port, replica.acknowledged());
        let line = format!("ip={host},port={port},state={state},offset={offset},lag={lag_s},type=replica");
        section.put(&format!("slave{number}"), line);
    }
    section.put("replicas_waiting_psync", 0);
    section.put("master_failover_state", call.engine.failover.name());
    let (histories, figures) = (call.engine.identity.all_histories(), replication.figures());
    section.put("master_replid", histories.first);
    let second = histories.second.map(|(name, end)| (name, i64::try_from(end + 1).unwrap_or(i64::MAX)));
    let (second, end) = second.unwrap_or_else(|| (NO_HISTORY.to_owned(), -1));
    section.put("master_replid2", second);
    section.put("master_repl_offset", figures.end);
    section.put("second_repl_offset", end);
    section.put("repl_backlog_active", u8::from(figures.is_on));
    section.put("repl_backlog_size", call.settings.replication.backlog_bytes);
    section.put("repl_backlog_first_byte_offset", figures.first);
    section.put("repl_backlog_histlen", figures.len);
    quorum(call, section);
    aside(call, section);
}

/// Data that were kept aside.
fn aside(call: &Call<'_, '_>, section: &mut Section) {
    let view = call.engine.aside_view();
    if call.engine.cluster().is_none() && view.copies.is_empty() {
        return;
    }
    section.put("diverged_copies", view.copies.len());
    section.put("diverged_copies_removed", view.removed);
    for (number, copy) in view.copies.iter().enumerate() {
        section.put(
            &format!("diverged_copy{number}"),
            format!("file={},bytes={},time={}", copy.file, copy.bytes, copy.unix_s),
        );
    }
    if let Some(why) = view.refusal {
        section.put("diverged_copy_refused", why);
    }
}

/// Of a shard whose writes a majority acknowledges.
fn quorum(call: &Call<'_, '_>, section: &mut Section) {
    if let Some(waiting) = call.engine.attempts.waiting() {
        section.put("quorum_waiting_term", waiting.term);
        section.put("quorum_waits", waiting.why);
    }
    let Some(status) = call.engine.quorum_status() else { return };
    section.put("quorum_term", status.term);
    section.put("quorum_members", status.members);
    section.put("quorum_serving", u8::from(status.is_serving));
    section.put("quorum_majority_present", u8::from(status.is_attended));
    section.put("quorum_committed_offset", status.committed);
    section.put("quorum_data_whole", u8::from(!status.is_blank));
}

fn cpu(call: &Call<'_, '_>, section: &mut Section) {
    let facts = call.engine.host.facts();
    let ((system, user), (children_system, children_user)) = (facts.cpu, facts.cpu_children);
    for (name, span) in [
        ("used_cpu_sys", system),
        ("used_cpu_user", user),
        ("used_cpu_sys_children", children_system),
        ("used_cpu_user_children", children_user),
    ] {
        section.put(name, format!("{}.{:06}", span.as_secs(), span.subsec_micros()));
    }
    // The first thread is as good as the others.
    for (worker, nanos) in call.engine.statistics.active_nanos(facts.workers).into_iter().enumerate() {
        let name = match worker {
            0 => "used_active_time_main_thread".to_owned(),
            other => format!("used_active_time_io_thread_{other}"),
        };
        let micros = nanos / 1_000;
        section.put(&name, format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000));
    }
}

fn commands(call: &Call<'_, '_>, section: &mut Section) {
    let counted = call.engine.statistics.commands();
    for (command, counts) in COMMANDS.iter().zip(&counted).filter(|(_, counts)| !counts.is_empty()) {
        let micros = counts.nanos / 1_000;
        #[expect(clippy::cast_precision_loss, reason = "for people, with two digits")]
        let mean = micros as f64 / counts.calls.max(1) as f64;
        let line = format!(
            "calls={},usec={micros},usec_per_call={mean:.2},rejected_calls={},failed_calls={}",
            counts.calls, counts.rejected, counts.failed
        );
        section.put(&format!("cmdstat_{}", command.full_name()), line);
    }
}

fn errors(call: &Call<'_, '_>, section: &mut Section) {
    for (code, count) in call.engine.errors() {
        section.put(&format!("errorstat_{code}"), format!("count={count}"));
    }
}

fn latencies(call: &Call<'_, '_>, section: &mut Section) {
    if !call.settings.logs.counts_latency {
        return;
    }
    let counted = call.engine.statistics.commands();
    let spans = |counts: &crate::statistics::CommandCounts| counts.spans.clone();
    for (command, spans) in
        COMMANDS.iter().zip(&counted).filter_map(|(command, counts)| Some((command, spans(counts)?)))
    {
        section.put(&format!("latency_percentiles_usec_{}", command.full_name()), percentiles(call, &spans));
    }
}

fn percentiles(call: &Call<'_, '_>, spans: &Histogram) -> String {
    let wanted = call.settings.logs.percentiles.iter();
    let shown = wanted.map(|percent| {
        let nanos = spans.percentile(*percent);
        format!("p{percent}={}.{:03}", nanos / 1_000, nanos % 1_000)
    });
    shown.collect::<Vec<_>>().join(",")
}

fn keyspace(call: &Call<'_, '_>, section: &mut Section) {
    for database in 0..call.engine.keyspace.databases() {
        let keys: usize = call.keys.shards().map(|shard| shard.keys(database)).sum();
        let expiring: usize = call.keys.shards().map(|shard| shard.keys_expiring(database)).sum();
        if keys > 0 {
            let volatile: usize = call.keys.shards().map(|shard| shard.keys_with_expiring_fields(database)).sum();
            let ttl = mean_ttl_ms(call, database);
            let text = format!("keys={keys},expires={expiring},avg_ttl={ttl},keys_with_volatile_items={volatile}");
            section.put(&format!("db{database}"), text);
        }
    }
}

/// How long keys that expire still live, of some that chance draws from every shard.
fn mean_ttl_ms(call: &Call<'_, '_>, database: usize) -> i64 {
    let now_ms = call.now.unix_ms();
    let drawn = call.keys.shards().filter_map(|shard| shard.random(database, true, || call.engine.draw()));
    let ttls: Vec<i64> =
        drawn.filter_map(|record| record.expiry()).map(|at| (at - now_ms).max(0)).take(TTL_DRAWS).collect();
    ttls.iter().sum::<i64>() / i64::try_from(ttls.len().max(1)).unwrap_or(1)
}

/// What only who looks for defects of the server asks for.
fn debug(call: &Call<'_, '_>) -> String {
    let totals = call.engine.statistics.totals();
    let mut section = Section("# Debug\r\n".to_owned());
    section.put_all([("eventloop_duration_aof_sum", 0), ("eventloop_cmd_per_cycle_max", totals.batch_max)]);
    section.0
}
