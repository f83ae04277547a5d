//! `CLUSTER`: what a node tells of its cluster, and what it is asked to change there.
//!
//! `view` tells, `slots` is about who owns which slot and the keys in it, `migration` about slots that go to another node whole, `govern`
//! changes who is in the cluster and who follows whom.
//! What changes the cluster is ordered from [`Control`](crate::cluster::control::Control); it
//! is refused in scripts and in transactions that hold keys, which the change would have to wait for.

pub(super) mod govern;
pub(super) mod migration;
pub(super) mod slots;
pub(super) mod view;

use super::call::{Call, Run};
use super::help;
use crate::cluster::Cluster;
use crate::cluster::control::{Order, Ticket};
use crate::cluster::map::{Map, Name, Node};
use crate::cluster::orders::ORDER_MAX;
use crate::error::Error;
use crate::keyspace::Slot;
use crate::waiting::{Goal, Wait};

pub(super) const RUNS: &[(&str, Run)] = &[("cluster|help", help), ("cluster|keyslot", keyslot)];

const NO_CLUSTER: Error = Error::new("ERR This instance has cluster support disabled");
const NO_SLOT: Error = Error::new("ERR Invalid or out of range slot");

const HELP: &[(&str, &str)] = &[
    ("COUNTKEYSINSLOT <slot>", "Count the keys of a slot at this node."),
    ("GETKEYSINSLOT <slot> <count>", "Name keys of a slot at this node."),
    ("INFO", "Tell how the cluster fares, as this node sees it."),
    ("KEYSLOT <key>", "Tell which slot a key belongs to."),
    ("MYID", "Tell what this node is called."),
    ("MYSHARDID", "Tell what this node's shard is called."),
    ("NODES", "Describe each node in a line: <id> <ip:port@bus-port[,hostname]> <flags> <primary> <pings> <pongs> ..."),
    ("REPLICAS <node-id>", "Describe who follows a node."),
    ("SLOTS", "List runs of slots with the places of the nodes that have them."),
    ("SLOT-STATS", "Report how slots of this node are used."),
    ("SHARDS", "Describe shards: their slots and nodes."),
    ("ADDSLOTS <slot> [<slot> ...]", "Give slots without an owner to this node."),
    ("ADDSLOTSRANGE <start slot> <end slot> [<start slot> <end slot> ...]", "The same with ranges of slots."),
    (
        "BEGINSHARD",
        "Let this node's data be those of its shard, which nobody serves: what other copies have besides is lost.",
    ),
    ("BUMPEPOCH", "Raise this node's epoch above all others."),
    ("COUNT-FAILURE-REPORTS <node-id>", "Count who says that a node is silent."),
    ("DELSLOTS <slot> [<slot> ...]", "Let this node give up slots."),
    ("DELSLOTSRANGE <start slot> <end slot> [<start slot> <end slot> ...]", "The same with ranges of slots."),
    ("FAILOVER [FORCE|TAKEOVER]", "Make this replica the primary of its shard."),
    ("FORGET <node-id>", "Remove a node from the cluster."),
    ("FLUSHSLOTS", "Let this node, which has to be empty, give up all of its slots."),
    ("FLUSHSLOT <slot> [ASYNC|SYNC]", "Remove all keys of a slot from this node."),
    ("MEET <ip> <port> [<bus-port>]", "Make this node and another know each other."),
    ("REPLICATE (<node-id>|NO ONE)", "Make this node follow another, or nobody."),
    ("RESET [HARD|SOFT]", "Take this node out of its cluster."),
    ("SET-CONFIG-EPOCH <epoch>", "Set the epoch of a node that is new."),
    ("SETSLOT <slot> (IMPORTING|MIGRATING|STABLE|NODE <node-id>)", "Say what becomes of a slot."),
    ("SAVECONFIG", "Write what this node knows of the cluster to its drive."),
    (
        "MIGRATESLOTS SLOTSRANGE <start slot> <end slot> [...] NODE <node-id> [SLOTSRANGE ...]",
        "Begin to move slots to other nodes.",
    ),
    ("CANCELSLOTMIGRATIONS", "Stop every migration that this node has begun."),
    ("GETSLOTMIGRATIONS", "Tell of migrations of slots, newest first."),
    ("LINKS", "Describe the connections between this node and others."),
];

fn help(call: &mut Call<'_, '_>) -> Result<(), Error> {
    cluster(call)?;
    help::write(call, "CLUSTER", HELP)
}

fn keyslot(call: &mut Call<'_, '_>) -> Result<(), Error> {
    cluster(call)?;
    call.reply.integer(Slot::of(&call.args[2]).number().into());
    Ok(())
}

/// The cluster that this engine is a node of.
///
/// # Errors
/// It is none.
pub(in crate::command) fn cluster<'c>(call: &Call<'c, '_>) -> Result<&'c Cluster, Error> {
    call.engine.cluster().ok_or(NO_CLUSTER)
}

/// The node that word `at` names.
///
/// # Errors
/// There is none; `unknown` says so, followed by the word.
fn node<'m>(call: &Call<'_, '_>, map: &'m Map, at: usize, unknown: &str) -> Result<&'m Node, Error> {
    let word = &call.args[at];
    let found = Name::read(word).and_then(|name| map.node(name));
    found.ok_or_else(|| Error::text(format!("ERR {unknown} {}", String::from_utf8_lossy(word))))
}

/// The slot that stands in word `at`.
///
/// # Errors
/// There is none of that number.
pub(in crate::command) fn slot(call: &Call<'_, '_>, at: usize) -> Result<Slot, Error> {
    call.integer(at).ok().and_then(|number| u16::try_from(number).ok()).and_then(Slot::new).ok_or(NO_SLOT)
}

/// The same for a call that may change it, and holds no keys: a change of the cluster waits for whoever does.
///
/// # Errors
/// It is none, or the call belongs to a script, or to a transaction that holds keys.
fn alone<'c>(call: &Call<'c, '_>) -> Result<&'c Cluster, Error> {
    let cluster = cluster(call)?;
    if !call.may_wait && !call.keys.holds_nothing() {
        return Err(Error::new("ERR the cluster cannot be changed within a script, or a transaction that has keys"));
    }
    Ok(cluster)
}

/// The client waits for what becomes of an order. A call that may not wait is told that the order was given.
fn wait_for_order(call: &mut Call<'_, '_>, ticket: Ticket) {
    if call.may_wait {
        call.wait(Wait::until(Goal::Ordered(ticket), Some(call.now.instant + ORDER_MAX)));
    } else {
        call.reply.ok();
    }
}

/// Has something done to the cluster, and replies that it was.
///
/// # Errors
/// It was refused, or the call may not wait for it.
fn order(call: &mut Call<'_, '_>, order: Order) -> Result<(), Error> {
    match alone(call)?.submit(order, None) {
        Ok(outcome) => {
            outcome.map_err(|why| Error::text(format!("ERR {why}")))?;
            call.reply.ok();
        }
        Err(ticket) => wait_for_order(call, ticket),
    }
    Ok(())
}
