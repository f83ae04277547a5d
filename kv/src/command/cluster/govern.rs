//! Who is in the cluster and who follows whom.

use super::super::call::{Call, Run};
use super::{alone, cluster, node, order};
use crate::cluster::control::{FailoverKind, Order};
use crate::cluster::map::{Health, Name};
use crate::error::Error;

pub(in crate::command) const RUNS: &[(&str, Run)] = &[
    ("asking", asking),
    ("cluster|beginshard", begin_shard),
    ("cluster|bumpepoch", bump_epoch),
    ("cluster|failover", failover),
    ("cluster|forget", forget),
    ("cluster|meet", meet),
    ("cluster|replicate", replicate),
    ("cluster|reset", reset),
    ("cluster|saveconfig", |call| order(call, Order::Save)),
    ("cluster|set-config-epoch", set_epoch),
];

/// How far a bus's port is from that for clients, unless something else is said.
const BUS_PORT_STEP: i64 = 10_000;

fn asking(call: &mut Call<'_, '_>) -> Result<(), Error> {
    cluster(call)?;
    call.client.is_asking = true;
    call.reply.ok();
    Ok(())
}

fn meet(call: &mut Call<'_, '_>) -> Result<(), Error> {
    cluster(call)?;
    let text = |at: usize| String::from_utf8_lossy(&call.args[at]).into_owned();
    let wrong = |what: &str, at: usize| Error::text(format!("ERR Invalid {what} port specified: {}", text(at)));
    let number = |at: usize, what: &str| call.integer(at).map_err(|_| wrong(what, at));
    let is_port = |number: &i64| (1..=i64::from(u16::MAX)).contains(number);
    let port = number(3, "base")?;
    if !is_port(&port) {
        return Err(Error::new("ERR Port number is out of range"));
    }
    let bus_port = if call.args.len() > 4 { number(4, "bus")? } else { port + BUS_PORT_STEP };
    if !is_port(&bus_port) {
        return Err(Error::new("ERR Cluster bus port number is out of range"));
    }
    let host = text(2);
    if host.parse::<core::net::IpAddr>().is_err() {
        return Err(Error::text(format!("ERR Invalid node address specified: {host}:{port}")));
    }
    let port = |number: i64| u16::try_from(number).unwrap_or_default();
    let (port, bus_port) = (port(call.integer(3)?), port(bus_port));
    order(call, Order::Meet { host, port, bus_port })
}

fn forget(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let map = cluster(call)?.map();
    let word = &call.args[2];
    let unknown = || Error::text(format!("ERR Unknown node {}", String::from_utf8_lossy(word)));
    let name = Name::read(word).ok_or_else(unknown)?;
    if name == map.own().name {
        return Err(Error::new("ERR I tried hard but I can't forget myself..."));
    }
    if map.own().primary == Some(name) {
        return Err(Error::new("ERR Can't forget my master!"));
    }
    // One that is not known may have been forgotten a moment ago: whoever remembers that says so.
    order(call, Order::Forget(name))
}

fn replicate(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let map = alone(call)?.map();
    let own = map.own();
    if call.args.len() == 4 {
        if !call.args.is(2, "NO") || !call.args.is(3, "ONE") {
            return Err(Error::wrong_subcommand("CLUSTER", &call.args[1]));
        }
        if !own.is_replica() {
            call.reply.ok();
            return Ok(());
        }
        return order(call, Order::Detach);
    }
    if call.args.len() != 3 {
        return Err(Error::wrong_subcommand("CLUSTER", &call.args[1]));
    }
    let primary = node(call, &map, 2, "Unknown node")?;
    if primary.name == own.name {
        return Err(Error::new("ERR Can't replicate myself"));
    }
    if primary.is_replica() {
        return Err(Error::new("ERR I can only replicate a master, not a replica."));
    }
    if !own.is_replica() && (!own.slots.is_empty() || !call.engine.is_empty()) {
        return Err(Error::new("ERR To set a master the node must be empty and without assigned slots."));
    }
    if own.primary == Some(primary.name) {
        call.reply.ok();
        return Ok(());
    }
    let name = primary.name;
    order(call, Order::Follow(name))
}

fn failover(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let map = cluster(call)?.map();
    let mut kind = FailoverKind::Agreed;
    for at in 2..call.args.len() {
        kind = match () {
            () if call.args.is(at, "FORCE") && kind != FailoverKind::Takeover => FailoverKind::Forced,
            () if call.args.is(at, "FORCE") => kind,
            () if call.args.is(at, "TAKEOVER") => FailoverKind::Takeover,
            () => return Err(Error::SYNTAX),
        };
    }
    let Some(name) = map.own().primary else {
        return Err(Error::new("ERR You should send CLUSTER FAILOVER to a replica"));
    };
    let primary = map.node(name).ok_or(Error::new("ERR I'm a replica but my master is unknown to me"))?;
    if kind == FailoverKind::Agreed && (primary.health == Health::Failed || !primary.is_connected) {
        return Err(Error::new("ERR Master is down or failed, please use CLUSTER FAILOVER FORCE"));
    }
    order(call, Order::Failover(kind))
}

/// The data of this node are the shard's from now on, whatever other copies have: for a shard in which all of them were restarted. Whoever
/// sends it has made sure that no other copy serves, or can: members that were not restarted may still agree on a primary among them.
fn begin_shard(call: &mut Call<'_, '_>) -> Result<(), Error> {
    cluster(call)?;
    call.engine.decide_to_begin()?;
    call.reply.ok();
    Ok(())
}

fn reset(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let map = alone(call)?.map();
    let hard = call.args.len() == 3 && call.args.is(2, "HARD");
    if call.args.len() > 3 || call.args.len() == 3 && !hard && !call.args.is(2, "SOFT") {
        return Err(Error::SYNTAX);
    }
    if !map.own().is_replica() && !call.engine.is_empty() {
        return Err(Error::new("ERR CLUSTER RESET can't be called with master nodes containing keys"));
    }
    order(call, Order::Reset { hard })
}

/// Epochs are given by votes here, one for each claim: there is nothing to raise by hand.
fn bump_epoch(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let map = cluster(call)?.map();
    call.reply.status(&format!("STILL {}", map.own().epoch));
    Ok(())
}

/// Whoever makes a cluster gives each node an epoch of its own, so that no two are equal. Here votes see to that: the wish is
/// checked as in Valkey, and nothing more is done.
fn set_epoch(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let map = cluster(call)?.map();
    let epoch = call.integer(2)?;
    if epoch < 0 {
        return Err(Error::text(format!("ERR Invalid config epoch specified: {epoch}")));
    }
    if map.nodes().len() > 1 {
        return Err(Error::new(
            "ERR The user can assign a config epoch only when the node does not know any other node.",
        ));
    }
    call.reply.ok();
    Ok(())
}
