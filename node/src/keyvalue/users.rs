//! Users of the key-value engines, the same at all servers: each server tells each other what it has until both have the same.
//!
//! An exchange is one call over the grid: our users there, theirs back, and each takes in what is newer ([`ashlar_kv::kept`]). A
//! server that was away, or joins, is told as soon as it is connected. Between servers that have the same nothing is said.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use ashlar_grid::CallOptions;
use ashlar_grid::error::CallError;
use ashlar_grid::handler::{HandlerId, Method};
use ashlar_grid::seam::{BoxFuture, Runtime};
use ashlar_wire::id::ServerId;

use super::super::{Node, together};

/// How often it is looked whether somebody has to be told. A password that was set at one server holds at all about so long after.
const LOOK: Duration = Duration::from_millis(250);
/// How long an exchange may take.
const EXCHANGE_MAX: Duration = Duration::from_secs(5);
/// Servers that are told at the same time.
const TOLD_MAX: usize = 16;

/// The users of this server's engines.
pub trait SharedUsers: Send + Sync + core::fmt::Debug {
    /// All of them, as other servers are told.
    fn text(&self) -> String;

    /// Another server has these. What is newer is taken in soon, durably.
    ///
    /// # Errors
    /// The text makes no sense from this line on.
    fn offer(&self, text: &str) -> Result<(), usize>;
}

/// One exchange.
pub(crate) struct Exchange;

impl Method for Exchange {
    const ID: HandlerId = HandlerId::new(14);
    const IDEMPOTENT: bool = true;
    type Request = Vec<u8>;
    type Reply = Vec<u8>;
}

/// Another server tells us its users: ours, before theirs were taken in.
pub(crate) fn answer(users: &dyn SharedUsers, from: ServerId, request: &[u8]) -> Vec<u8> {
    let own = users.text();
    take(users, &own, from, request);
    own.into_bytes()
}

/// Takes in what another server has, unless it is the same. Says whether it is.
fn take(users: &dyn SharedUsers, own: &str, from: ServerId, theirs: &[u8]) -> bool {
    if theirs == own.as_bytes() {
        return true;
    }
    let offered = str::from_utf8(theirs).map_err(|_| 1).and_then(|text| users.offer(text));
    if let Err(line) = offered {
        tracing::warn!(%from, line, "users of another server make no sense: is it of another version?");
    }
    false
}

/// Tells other servers until the node stops.
pub(crate) async fn tell<R: Runtime>(node: Node<R>, users: Arc<dyn SharedUsers>) {
    // What each was found to have too, as a hash.
    let mut same: BTreeMap<ServerId, [u8; 32]> = BTreeMap::new();
    while !node.is_draining() {
        let own = users.text();
        let hash = *blake3::hash(own.as_bytes()).as_bytes();
        let connected = node.connected();
        same.retain(|server, _| connected.contains(server));
        let untold = connected.into_iter().filter(|server| same.get(server) != Some(&hash)).take(TOLD_MAX);
        let exchanges = untold.map(|server| -> BoxFuture<(ServerId, bool)> {
            let (node, users, own) = (node.clone(), Arc::clone(&users), own.clone());
            Box::pin(async move { (server, exchange(&node, &*users, server, &own).await) })
        });
        for (server, is_same) in together::all(exchanges.collect()).await {
            if is_same {
                same.insert(server, hash);
            }
        }
        node.runtime().sleep_until(node.runtime().now() + LOOK).await;
    }
}

/// Whether nothing is left to be told.
async fn exchange<R: Runtime>(node: &Node<R>, users: &dyn SharedUsers, server: ServerId, own: &str) -> bool {
    let options = CallOptions { fail_fast: true, ..CallOptions::within(EXCHANGE_MAX) };
    match node.grid().call::<Exchange>(server, &own.as_bytes().to_vec(), options).await {
        Ok(theirs) => take(users, own, server, &theirs),
        // It has no engines.
        Err(CallError::Refused(_)) => true,
        Err(_) => false,
    }
}
