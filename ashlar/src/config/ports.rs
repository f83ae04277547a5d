//! Ports of one server against each other: two options that ask for the same port are refused before anything is written.
//!
//! Without this the server would start, make its data directory, and fail at the second listener, with an error that names one option
//! only. A default can be one of both: the second engine's port follows the first one's.

use core::net::SocketAddr;

use super::keys::{self, Fallback};
use super::{Config, Problem, Source, Values};

/// One listener: the option that its port comes from, and where it is.
type Listener = (&'static str, SocketAddr);

/// A problem for each pair of listeners of a server that cannot both have their port.
pub(super) fn check(config: &Config, values: &Values) -> Vec<Problem> {
    let listeners = listeners(config, values);
    let pairs = listeners.iter().enumerate().flat_map(|(at, one)| {
        let later = listeners.iter().skip(at + 1);
        later.filter(|other| meet(one.1, other.1)).map(move |other| (one, other))
    });
    let problem = |(one, other): (&Listener, &Listener)| {
        let (port, default) = (other.1.port(), default_of(other.0, values));
        let what = format!(
            "port {port}{default} is that of {}{}, too: give one of them another",
            one.0,
            default_of(one.0, values)
        );
        Problem { place: other.0.to_owned(), what }
    };
    pairs.map(problem).collect()
}

/// All listeners whose port is chosen. A later one is told to be in the way of an earlier one.
fn listeners(config: &Config, values: &Values) -> Vec<Listener> {
    let listen = if values.contains_key("listen") { "listen" } else { "port_base" };
    let engines = [("kv_port", config.kv), ("kv_replica_port", config.kv_replica)];
    let under_tls = |at: SocketAddr, port: Option<u16>| port.map(|port| SocketAddr::new(at.ip(), port));
    let tls = config.kv_tls.as_ref();
    let first = config.kv.and_then(|at| under_tls(at, tls.map(|tls| tls.port)));
    let second = config.kv_replica.and_then(|at| under_tls(at, tls.map(|tls| tls.replica_port)));
    let all = [(listen, Some(config.listen)), ("s3_port", config.s3), ("nbd_port", config.nbd)];
    let all = all.into_iter().chain(engines).chain([("kv_tls_port", first), ("kv_replica_tls_port", second)]);
    all.filter_map(|(name, at)| Some((name, at.filter(|at| at.port() > 0)?))).collect()
}

/// Whether two listeners want one port: at the same address, or where one of them takes all addresses.
fn meet(one: SocketAddr, other: SocketAddr) -> bool {
    let (here, there) = (one.ip(), other.ip());
    one.port() == other.port() && (here == there || here.is_unspecified() || there.is_unspecified())
}

/// What is said of a port that nobody has given.
fn default_of(name: &str, values: &Values) -> String {
    if values.get(name).is_some_and(|(_, source)| *source != Source::Fallback) {
        return String::new();
    }
    match keys::find(name).map(|key| key.fallback) {
        Some(Fallback::Computed(text)) => format!(" ({}, because it is not given)", text.replace('`', "")),
        _ => " (its default)".to_owned(),
    }
}
