//! What a node tells of its cluster.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::super::call::{Call, Run};
use super::{cluster, node};
use crate::cluster::Move;
use crate::cluster::control::MessageFigures;
use crate::cluster::map::{Health, Map, Name, Node};
use crate::cluster::route::Endpoint;
use crate::error::Error;

pub(in crate::command) const RUNS: &[(&str, Run)] = &[
    ("cluster|count-failure-reports", count_failure_reports),
    ("cluster|info", info),
    ("cluster|links", links),
    ("cluster|myid", |call| name(call, |own| own.name)),
    ("cluster|myshardid", |call| name(call, |own| own.shard)),
    ("cluster|nodes", nodes),
    ("cluster|replicas", replicas),
    ("cluster|shards", shards),
    ("cluster|slaves", replicas),
    ("cluster|slots", slots),
];

fn name(call: &mut Call<'_, '_>, which: fn(&Node) -> Name) -> Result<(), Error> {
    let name = which(cluster(call)?.map().own());
    call.reply.bulk(name.to_string().as_bytes());
    Ok(())
}

fn count_failure_reports(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let map = cluster(call)?.map();
    let reports = node(call, &map, 2, "Unknown node")?.reports;
    call.reply.count(reports);
    Ok(())
}

/// The port of a node for clients like this one.
fn port(call: &Call<'_, '_>, node: &Node) -> u16 {
    if call.client.card.link.is_tls { node.place.tls_port } else { node.place.port }
}

/// The words that describe a node's state.
fn flags(node: &Node, is_own: bool) -> String {
    let health = match node.health {
        Health::Alive => None,
        Health::Suspected => Some("fail?"),
        Health::Failed => Some("fail"),
    };
    let role = if node.is_replica() { "slave" } else { "master" };
    let words = [is_own.then_some("myself"), Some(role), health, node.never_stands.then_some("nofailover")];
    words.into_iter().flatten().collect::<Vec<&str>>().join(",")
}

/// A node in a line of `CLUSTER NODES`.
fn line(call: &Call<'_, '_>, map: &Map, node: &Node) -> String {
    let is_own = node.name == map.own().name;
    let place = &node.place;
    let mut line = format!("{} {}:{}@{}", node.name, place.host, port(call, node), place.bus_port);
    if !place.hostname.is_empty() {
        line = line + "," + &place.hostname;
    }
    let primary = node.primary.map_or_else(|| "-".to_owned(), |name| name.to_string());
    let link = if is_own || node.is_connected { "connected" } else { "disconnected" };
    let _ =
        write!(line, " {} {primary} {} {} {} {link}", flags(node, is_own), node.asked_ms, node.heard_ms, node.epoch);
    for range in &node.slots {
        let _ = write!(line, " {range}");
    }
    let moves =
        if is_own { call.engine.cluster().map_or_else(Vec::new, |cluster| cluster.moves.all()) } else { Vec::new() };
    for (slot, way) in moves {
        let _ = match way {
            Move::To(name) => write!(line, " [{slot}->-{name}]"),
            Move::From(name) => write!(line, " [{slot}-<-{name}]"),
        };
    }
    line
}

fn nodes(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let map = cluster(call)?.map();
    let lines: String = map.nodes().iter().map(|node| line(call, &map, node) + "\n").collect();
    call.reply.verbatim("txt", lines.as_bytes());
    Ok(())
}

fn replicas(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let map = cluster(call)?.map();
    let primary = node(call, &map, 2, "Unknown node")?;
    if primary.is_replica() {
        return Err(Error::new("ERR The specified node is not a master"));
    }
    let lines: Vec<String> = map.replicas(primary.name).map(|node| line(call, &map, node)).collect();
    call.reply.array(lines.len());
    lines.iter().for_each(|line| call.reply.bulk(line.as_bytes()));
    Ok(())
}

/// Whether clients may read from a replica: it lives and has data.
fn is_of_use(node: &Node) -> bool {
    node.health != Health::Failed && node.offset > 0
}

fn slots(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let map = cluster(call)?.map();
    let endpoint = Endpoint::of(call.settings);
    call.reply.array(map.runs().count());
    for (range, owner) in map.runs() {
        let replicas: Vec<&Node> = map.replicas(owner.name).filter(|node| is_of_use(node)).collect();
        call.reply.array(3 + replicas.len());
        call.reply.integer(range.first.number().into());
        call.reply.integer(range.last.number().into());
        for node in [owner].into_iter().chain(replicas) {
            place(call, endpoint, node);
        }
    }
    Ok(())
}

/// The place of a node in `CLUSTER SLOTS`.
fn place(call: &mut Call<'_, '_>, endpoint: Endpoint, node: &Node) {
    call.reply.array(4);
    match endpoint.text(node) {
        Some(text) => call.reply.bulk(text.as_bytes()),
        None => call.reply.null(),
    }
    call.reply.integer(port(call, node).into());
    call.reply.bulk(node.name.to_string().as_bytes());
    let has_hostname = endpoint != Endpoint::Hostname && !node.place.hostname.is_empty();
    let more = [
        (endpoint != Endpoint::Address).then_some(("ip", &node.place.host)),
        has_hostname.then_some(("hostname", &node.place.hostname)),
        (!node.zone.is_empty()).then_some(("availability-zone", &node.zone)),
    ];
    call.reply.map(more.iter().flatten().count());
    for (what, text) in more.into_iter().flatten() {
        call.reply.bulk(what.as_bytes());
        call.reply.bulk(text.as_bytes());
    }
}

fn shards(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let map = cluster(call)?.map();
    let endpoint = Endpoint::of(call.settings);
    let mut shards: BTreeMap<Name, Vec<&Node>> = BTreeMap::new();
    for node in map.nodes() {
        shards.entry(node.shard).or_default().push(node);
    }
    call.reply.array(shards.len());
    for (name, nodes) in shards {
        call.reply.map(3);
        call.reply.bulk(b"slots");
        let ranges = nodes.iter().find(|node| !node.slots.is_empty()).map_or(&[][..], |node| &node.slots);
        call.reply.array(ranges.len() * 2);
        for range in ranges {
            call.reply.integer(range.first.number().into());
            call.reply.integer(range.last.number().into());
        }
        call.reply.bulk(b"nodes");
        call.reply.array(nodes.len());
        nodes.into_iter().for_each(|node| details(call, endpoint, node));
        call.reply.bulk(b"id");
        call.reply.bulk(name.to_string().as_bytes());
    }
    Ok(())
}

/// A node in `CLUSTER SHARDS`.
fn details(call: &mut Call<'_, '_>, endpoint: Endpoint, node: &Node) {
    enum Detail<'n> {
        Text(&'n str),
        Number(i64),
    }
    use Detail::{Number, Text};
    let (id, place) = (node.name.to_string(), &node.place);
    let health = match () {
        () if node.health == Health::Failed => "fail",
        () if node.is_replica() && node.offset == 0 => "loading",
        () => "online",
    };
    let lines = [
        Some(("id", Text(&id))),
        (place.port > 0).then_some(("port", Number(place.port.into()))),
        (place.tls_port > 0).then_some(("tls-port", Number(place.tls_port.into()))),
        Some(("ip", Text(&place.host))),
        Some(("endpoint", Text(endpoint.text(node).unwrap_or_default()))),
        (!place.hostname.is_empty()).then_some(("hostname", Text(&place.hostname))),
        Some(("role", Text(if node.is_replica() { "replica" } else { "master" }))),
        Some(("replication-offset", Number(i64::try_from(node.offset).unwrap_or(i64::MAX)))),
        Some(("health", Text(health))),
        (!node.zone.is_empty()).then_some(("availability-zone", Text(&node.zone))),
    ];
    call.reply.map(lines.iter().flatten().count());
    for (what, detail) in lines.into_iter().flatten() {
        call.reply.bulk(what.as_bytes());
        match detail {
            Text(text) => call.reply.bulk(text.as_bytes()),
            Number(number) => call.reply.integer(number),
        }
    }
}

fn info(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let cluster = cluster(call)?;
    let map = cluster.map();
    let service = map.service();
    let slots = |health| map.nodes().iter().filter(|node| node.health == health).map(Node::slot_count).sum::<usize>();
    let (mut silent, mut failed) = ((0, 0), (0, 0));
    for node in map.nodes() {
        let (count, owners) = match node.health {
            Health::Alive => continue,
            Health::Suspected => (&mut silent.0, &mut silent.1),
            Health::Failed => (&mut failed.0, &mut failed.1),
        };
        *count += 1;
        *owners += usize::from(!node.slots.is_empty());
    }
    let mut text = format!("cluster_state:{}\r\n", if service.is_up { "ok" } else { "fail" });
    for (line, count) in [
        ("slots_assigned", map.slots_assigned()),
        ("slots_ok", slots(Health::Alive)),
        ("slots_pfail", slots(Health::Suspected)),
        ("slots_fail", slots(Health::Failed)),
        ("nodes_pfail", silent.0),
        ("nodes_fail", failed.0),
        ("voting_nodes_pfail", silent.1),
        ("voting_nodes_fail", failed.1),
        ("known_nodes", map.nodes().len()),
        ("size", map.shards_with_slots()),
    ] {
        let _ = write!(text, "cluster_{line}:{count}\r\n");
    }
    let bus = &service.bus;
    for (line, count) in [
        ("current_epoch", service.epoch),
        ("my_epoch", map.own().epoch),
        ("stats_messages_sent", bus.packets_sent),
        ("stats_messages_received", bus.packets_received),
        ("stats_bytes_sent", bus.bytes_sent),
        ("stats_bytes_received", bus.bytes_received),
    ] {
        let _ = write!(text, "cluster_{line}:{count}\r\n");
    }
    // Kinds of messages are there once there was one.
    for (line, count) in messages(cluster.control.message_figures()).into_iter().filter(|(_, count)| *count > 0) {
        let _ = write!(text, "cluster_stats_messages_{line}:{count}\r\n");
    }
    // Keys that a migration brings, or left behind: whoever counts keys by slots has to know that these are not the slots' own.
    let copies = call.engine.migration.copies.show();
    if !copies.is_empty() {
        let _ = write!(text, "cluster_slots_copies:{copies}\r\n");
    }
    call.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

fn messages(figures: MessageFigures) -> [(&'static str, u64); 5] {
    [
        ("publish_sent", figures.sent),
        ("publishshard_sent", figures.sent_sharded),
        ("publish_received", figures.received),
        ("publishshard_received", figures.received_sharded),
        ("publish_dropped", figures.dropped),
    ]
}

/// Between any two nodes there is one connection, which both use: it is shown as one from here.
fn links(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let map = cluster(call)?.map();
    let linked: Vec<&Node> =
        map.nodes().iter().filter(|node| node.is_connected && node.name != map.own().name).collect();
    call.reply.array(linked.len());
    for node in linked {
        call.reply.map(6);
        for (what, text) in [("direction", "to"), ("node", node.name.to_string().as_str())] {
            call.reply.bulk(what.as_bytes());
            call.reply.bulk(text.as_bytes());
        }
        call.reply.bulk(b"create-time");
        call.reply.integer(node.connected_ms);
        call.reply.bulk(b"events");
        call.reply.bulk(b"r");
        for what in ["send-buffer-allocated", "send-buffer-used"] {
            call.reply.bulk(what.as_bytes());
            call.reply.integer(0);
        }
    }
    Ok(())
}
