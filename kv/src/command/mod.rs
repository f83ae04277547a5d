//! Commands: what is known of them, what runs them, and one module for each family.

pub(crate) mod bitfield;
pub(crate) mod bitmap;
pub(crate) mod call;
pub(crate) mod connection;
pub(crate) mod elements;
pub(crate) mod expire;
pub(crate) mod generic;
pub(crate) mod hash;
pub(crate) mod hash_expiry;
pub(crate) mod hyperloglog;
pub(crate) mod introspect;
pub(crate) mod run;
pub(crate) mod set;
pub(crate) mod sort;
pub(crate) mod space;
pub(crate) mod spec;
pub(crate) mod string;
pub(crate) mod transaction;

pub(crate) use call::{Call, Effects, Run};
pub(crate) use run::Runs;

/// The commands of every family: full names, and what runs each.
const FAMILIES: &[&[(&str, Run)]] = &[
    bitfield::RUNS,
    bitmap::RUNS,
    connection::RUNS,
    expire::RUNS,
    generic::RUNS,
    hash::RUNS,
    hash_expiry::RUNS,
    hyperloglog::RUNS,
    set::RUNS,
    sort::RUNS,
    space::RUNS,
    string::RUNS,
    transaction::RUNS,
];
