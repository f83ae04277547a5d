//! Commands: what is known of them, what runs them, and one module for each family.

pub(crate) mod acl;
pub(crate) mod bitfield;
pub(crate) mod bitmap;
pub(crate) mod call;
pub(crate) mod client;
pub(crate) mod client_tracking;
mod cluster;
mod command_log;
pub(crate) mod config;
pub(crate) mod connection;
pub(crate) mod debug;
pub(crate) mod dump;
pub(crate) mod elements;
pub(crate) mod expire;
pub(crate) mod function;
pub(crate) mod generic;
pub(crate) mod geo;
pub(crate) mod hash;
pub(crate) mod hash_expiry;
pub(crate) mod help;
pub(crate) mod hyperloglog;
pub(crate) mod info;
mod info_memory;
pub(crate) mod introspect;
mod latency;
mod lcs;
mod lifecycle;
pub(crate) mod list;
pub(crate) mod list_wait;
pub(crate) mod memory;
pub(crate) mod migrate;
mod module;
pub(crate) mod monitor;
pub(crate) mod persistence;
pub(crate) mod pubsub;
pub(crate) mod redact;
mod replication;
pub(crate) mod run;
mod scan;
pub(crate) mod script;
pub(crate) mod server;
pub(crate) mod set;
pub(crate) mod sort;
pub(crate) mod sorted_set;
pub(crate) mod space;
pub(crate) mod spec;
pub(crate) mod stream;
pub(crate) mod string;
mod sync;
pub(crate) mod transaction;

pub(crate) use call::{Effects, Run};
pub(crate) use run::Runs;

/// The commands of every family: full names, and what runs each.
const FAMILIES: &[&[(&str, Run)]] = &[
    acl::RUNS,
    bitfield::RUNS,
    bitmap::RUNS,
    client::RUNS,
    client_tracking::RUNS,
    cluster::RUNS,
    cluster::govern::RUNS,
    cluster::migration::RUNS,
    cluster::slots::RUNS,
    cluster::view::RUNS,
    command_log::RUNS,
    config::RUNS,
    connection::RUNS,
    debug::RUNS,
    dump::RUNS,
    expire::RUNS,
    function::RUNS,
    generic::RUNS,
    geo::RUNS,
    hash::RUNS,
    hash_expiry::RUNS,
    hyperloglog::RUNS,
    info::RUNS,
    latency::RUNS,
    lcs::RUNS,
    lifecycle::RUNS,
    list::RUNS,
    list_wait::RUNS,
    memory::RUNS,
    migrate::RUNS,
    module::RUNS,
    monitor::RUNS,
    persistence::RUNS,
    pubsub::RUNS,
    replication::RUNS,
    scan::RUNS,
    script::RUNS,
    server::RUNS,
    set::RUNS,
    sort::RUNS,
    sorted_set::add::RUNS,
    sorted_set::combine::RUNS,
    sorted_set::pop::RUNS,
    sorted_set::range::RUNS,
    sorted_set::read::RUNS,
    space::RUNS,
    stream::add::RUNS,
    stream::claim::RUNS,
    stream::group::RUNS,
    stream::info::RUNS,
    stream::read::RUNS,
    string::RUNS,
    sync::RUNS,
    transaction::RUNS,
];
