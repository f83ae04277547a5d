//! Commands about the server: its settings, its commands, its state.

use super::call::{Call, Run};
use super::info_memory;
use super::introspect::{self, Filter};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::acl::Reason;
use crate::engine::Engine;
use crate::error::Error;
use crate::glob;
use crate::identity::NO_HISTORY;
use crate::keyspace::Counts;
use crate::resp::Request;

pub(super) const RUNS: &[(&str, Run)] = &[
    ("command", command),
    ("command|count", command_count),
    ("command|info", command_info),
    ("command|list", command_list),
    ("command|docs", command_docs),
    ("command|getkeys", |call| command_keys(call, false)),
    ("command|getkeysandflags", |call| command_keys(call, true)),
    ("info", info),
    ("time", time),
];

fn command(call: &mut Call<'_, '_>) -> Result<(), Error> {
    introspect::write_all(call.reply);
    Ok(())
}

fn command_count(call: &mut Call<'_, '_>) -> Result<(), Error> {
    introspect::write_count(call.reply);
    Ok(())
}

fn command_info(call: &mut Call<'_, '_>) -> Result<(), Error> {
    if call.args.len() == 2 {
        introspect::write_all(call.reply);
    } else {
        introspect::write_info(call.reply, call.args.from(2));
    }
    Ok(())
}

fn command_list(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let matches = |pattern: &[u8], name: &[u8]| glob::matches(pattern, name, true);
    let filter = Filter::read(call.args, matches).ok_or(Error::SYNTAX)?;
    introspect::write_list(call.reply, filter);
    Ok(())
}

fn command_docs(call: &mut Call<'_, '_>) -> Result<(), Error> {
    if call.args.len() == 2 {
        introspect::write_all_docs(call.reply);
    } else {
        introspect::write_docs(call.reply, call.args.from(2));
    }
    Ok(())
}

fn command_keys(call: &mut Call<'_, '_>, with_flags: bool) -> Result<(), Error> {
    let request: Request = call.args.from(2).collect();
    introspect::write_keys(call.reply, request.args(), with_flags).map_err(|error| Error::new(error.text()))
}

fn time(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let unix_us = call.now.unix_us;
    call.reply.array(2);
    call.reply.bulk_integer(unix_us.div_euclid(1_000_000));
    call.reply.bulk_integer(unix_us.rem_euclid(1_000_000));
    Ok(())
}

fn info(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let wants = |section: &str| {
        let all = ["all", "default", "everything"];
        let names = |word: &[u8]| [section].iter().chain(&all).any(|name| word.eq_ignore_ascii_case(name.as_bytes()));
        call.args.len() == 1 || call.args.from(1).any(names)
    };
    let mut sections = Vec::new();
    if wants("server") {
        sections.push("# Server\r\nserver_name:valkey\r\nvalkey_version:9.1.0\r\nredis_version:7.2.4\r\n".to_owned());
        sections[0] += &format!("run_id:{}\r\n", call.engine.identity.run);
    }
    if wants("replication") {
        let history = call.engine.identity.history();
        sections.push(format!(
            "# Replication\r\nrole:master\r\nconnected_slaves:0\r\nmaster_replid:{history}\r\nmaster_replid2:{NO_HISTORY}\r\n"
        ));
    }
    if wants("clients") {
        let (clients, waiting) = (call.engine.clients.count(), call.engine.blocked_clients());
        let max = call.settings.clients.clients_max;
        let [trackers, ..] = call.engine.tracking.counts();
        let (reason, actions, until_ms) = call.engine.pause.shown(call.now.unix_ms());
        sections.push(format!(
            "# Clients\r\nconnected_clients:{clients}\r\nmaxclients:{max}\r\nblocked_clients:{waiting}\r\ntracking_clients:{trackers}\r\n\
             paused_reason:{reason}\r\npaused_actions:{actions}\r\npaused_timeout_milliseconds:{until_ms}\r\n"
        ));
    }
    if wants("memory") {
        sections.push(info_memory::section(call));
    }
    if wants("stats") {
        let mut counts = Counts::default();
        call.keys.shards().for_each(|shard| counts += shard.counts);
        sections.push(format!(
            "# Stats\r\nexpired_keys:{}\r\n{}keyspace_hits:{}\r\nkeyspace_misses:{}\r\n{}",
            counts.expired,
            info_memory::stats(call.engine, call.now),
            counts.hits,
            counts.misses,
            clients_stats(call.engine)
        ));
    }
    if wants("errorstats") {
        let lines = call.engine.errors().into_iter().map(|(code, count)| format!("errorstat_{code}:count={count}\r\n"));
        sections.push(format!("# Errorstats\r\n{}", lines.collect::<String>()));
    }
    if wants("keyspace") {
        sections.push(format!("# Keyspace\r\n{}", keyspace(call)));
    }
    call.reply.verbatim("txt", sections.join("\r\n").as_bytes());
    Ok(())
}

/// What became of clients, users and reads.
fn clients_stats(engine: &Engine) -> String {
    let [_, keys, items, prefixes] = engine.tracking.counts();
    let refused = engine.acl.log().counts;
    let clients = &engine.clients.counts;
    let load = |count: &AtomicU64| usize::try_from(count.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
    let refused = |reason: Reason| usize::try_from(refused[reason as usize]).unwrap_or(usize::MAX);
    let lines = [
        ("total_connections_received", load(&clients.accepted)),
        ("rejected_connections", load(&clients.rejected)),
        ("client_query_buffer_limit_disconnections", load(&clients.input_overflows)),
        ("client_output_buffer_limit_disconnections", load(&clients.output_overflows)),
        ("tracking_total_keys", keys),
        ("tracking_total_items", items),
        ("tracking_total_prefixes", prefixes),
        ("acl_access_denied_auth", refused(Reason::Auth)),
        ("acl_access_denied_cmd", refused(Reason::Command)),
        ("acl_access_denied_key", refused(Reason::Key)),
        ("acl_access_denied_channel", refused(Reason::Channel)),
        ("acl_access_denied_db", refused(Reason::Database)),
    ];
    lines.iter().map(|(name, value)| format!("{name}:{value}\r\n")).collect()
}

fn keyspace(call: &Call<'_, '_>) -> String {
    let databases = 0..call.engine.keyspace.databases();
    let counts = databases.map(|database| {
        let shards = || call.keys.shards();
        let keys: usize = shards().map(|shard| shard.keys(database)).sum();
        let expiring: usize = shards().map(|shard| shard.keys_expiring(database)).sum();
        (database, keys, expiring)
    });
    let lines = counts.filter(|(_, keys, _)| *keys > 0);
    lines
        .map(|(database, keys, expiring)| format!("db{database}:keys={keys},expires={expiring},avg_ttl=0\r\n"))
        .collect()
}
