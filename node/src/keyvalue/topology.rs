//! From what the bus knows to a map for clients: who is in the cluster, who follows whom, who owns what.

use std::collections::BTreeMap;

use ashlar_bus::Bus;
use ashlar_bus::event::{GroupView, Health as BusHealth, MemberView};
use ashlar_bus::slot::{GroupId, SlotSet};
use ashlar_kv::cluster::map::{BusFigures, Health, Map, Name, Node, Place, Service, SlotRange};
use ashlar_wire::id::ServerId;

use super::assignment::{EngineInfo, shard_name};
use super::services::Services;

/// The cluster as the bus sees it, for all engines of this server.
#[derive(Debug)]
pub(super) struct Topology {
    nodes: Vec<Node>,
    service: Service,
    /// Whether what this server's engines own is served by them: a majority is in reach and has been for a while.
    is_open: bool,
}

/// One engine of the cluster, and what its server claims or follows.
struct EngineView {
    server: ServerId,
    engine_info: EngineInfo,
    follows: bool,
}

fn ranges(slots: &SlotSet) -> Vec<SlotRange> {
    let range = |range: &ashlar_bus::slot::SlotRange| SlotRange::new(range.first.number(), range.last.number());
    slots.ranges().iter().filter_map(range).collect()
}

fn health(member: &MemberView<'_>) -> Health {
    match member.health {
        _ if member.has_left => Health::Failed,
        BusHealth::Alive | BusHealth::Doubted => Health::Alive,
        BusHealth::Suspected => Health::Suspected,
        BusHealth::Failed => Health::Failed,
    }
}

/// The host in `HOST:PORT`, unless it stands for all addresses of a machine.
#[must_use]
pub fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if matches!(host, "0.0.0.0" | "::") { "" } else { host }
}

impl Topology {
    /// What the bus knows now. `own` are this server's engines, which it may not have told others of yet.
    pub(super) fn draw(bus: &Bus, own: &Services, needs_all_slots: bool) -> Self {
        let groups: BTreeMap<GroupId, GroupView> = bus.groups().map(|view| (view.group, view)).collect();
        let (mut engine_views, mut about) = (Vec::new(), BTreeMap::new());
        for member in bus.members() {
            let is_own = member.id == bus.identity().server;
            let services = if is_own { Some(own.clone()) } else { Services::decode(member.services) };
            let Some(Services { bus_port, zone, engines }) = services else { continue };
            for engine_info in engines {
                let follows = member.follows.contains(&engine_info.group);
                engine_views.push(EngineView { server: member.id, engine_info, follows });
            }
            let health = if is_own { Health::Alive } else { health(&member) };
            about.insert(member.id, (bus_port, zone, host_of(member.address).to_owned(), health));
        }
        let primaries = primaries(&groups, &engine_views);
        let nodes = engine_views.iter().map(|view| {
            let EngineView { server, engine_info, .. } = view;
            let (bus_port, zone, host, health) = &about[server];
            let name = engine_info.name(*server);
            let group = groups.get(&engine_info.group);
            let primary = primaries.get(&engine_info.group).copied().filter(|primary| *primary != name);
            let told = &engine_info.told;
            let place = told.place(*bus_port);
            Node {
                name,
                shard: shard_name(engine_info.group),
                place: if place.host.is_empty() { Place { host: host.clone(), ..place } } else { place },
                nickname: told.nickname.clone(),
                zone: zone.clone(),
                primary,
                epoch: group.map_or(0, |view| view.epoch.0),
                health: *health,
                is_connected: *health == Health::Alive,
                never_stands: told.never_stands,
                offset: u64::from(engine_info.has_data || primary.is_none()),
                reports: usize::from(*health != Health::Alive),
                slots: group.filter(|_| primary.is_none()).map_or_else(Vec::new, |view| ranges(&view.slots)),
                ..Node::default()
            }
        });
        let is_open = bus.cluster_state().is_confirmed;
        Self { nodes: nodes.collect(), service: service(bus, needs_all_slots), is_open }
    }

    /// What this server's engines own they do not serve.
    pub(super) fn close(&mut self) {
        self.is_open = false;
    }

    /// The map for one of this server's engines.
    pub(super) fn map(&self, own: Name) -> Map {
        // Who owns nothing can do no harm, and sends clients to where they are served.
        let is_replica = self.nodes.iter().any(|node| node.name == own && node.primary.is_some());
        let service = Service { is_up: self.service.is_up && (self.is_open || is_replica), ..self.service };
        Map::new(own, self.nodes.clone(), service)
    }
}

/// The primary of each group: the engine of its owner, or where nobody has claimed the group the one that does not follow it.
fn primaries(groups: &BTreeMap<GroupId, GroupView>, engine_views: &[EngineView]) -> BTreeMap<GroupId, Name> {
    let mut primaries = BTreeMap::new();
    for EngineView { server, engine_info, follows } in engine_views {
        let is_primary = groups.get(&engine_info.group).map_or(!follows, |view| view.primary == *server);
        if is_primary {
            primaries.insert(engine_info.group, engine_info.name(*server));
        }
    }
    primaries
}

fn service(bus: &Bus, needs_all_slots: bool) -> Service {
    let (state, counters) = (bus.cluster_state(), bus.counters());
    let is_covered = state.slots_assigned == ashlar_bus::slot::SLOTS && state.slots_failed == 0;
    Service {
        is_up: state.has_quorum && (is_covered || !needs_all_slots),
        epoch: bus.current_epoch().0,
        bus: BusFigures {
            packets_sent: counters.packets_sent,
            packets_received: counters.packets_received,
            bytes_sent: counters.bytes_sent,
            bytes_received: counters.bytes_received,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_sends_clients_on_before_a_primary_here_would_serve() {
        let [primary, replica] = [1, 2].map(|number| Name::new([number; 20]));
        let node = |name, follows| Node { name, primary: follows, ..Node::default() };
        let nodes = vec![node(primary, None), node(replica, Some(primary))];
        let service = Service { is_up: true, ..Service::default() };
        let mut topology = Topology { nodes, service, is_open: true };
        assert!(topology.map(primary).service().is_up && topology.map(replica).service().is_up);
        topology.close();
        assert!(!topology.map(primary).service().is_up && topology.map(replica).service().is_up);
    }
}
