//! `ashlar status`: the members of a cluster and the connections between them, asked through one server.

use super::asking::{Asked, ask, no_server, short};
use super::{no_runtime, say, table};
use crate::failure::Failure;
use crate::os;
use ashlar_node::membership::view::{BusStatus, MemberState, MemberView};
use ashlar_node::status::{MeshStatus, MeshView, PeerView, ServerStatus};

/// Servers up to which every connection is shown: more would fill more than a screen.
const CONNECTIONS_SHOWN_MAX: usize = 8;

/// Connections in trouble that are shown.
const TROUBLES_MAX: usize = 20;

/// Show the members of a cluster and the connections between them.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print what the servers said as JSON
    #[arg(long)]
    json: bool,
    /// Show every connection, however many there are
    #[arg(long)]
    connections: bool,
    #[command(flatten)]
    asked: Asked,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let target = arguments.asked.target()?;
    let body = os::block_on(ask(&target, "/v1/mesh")).map_err(|error| no_runtime(&error))??;
    let mesh: MeshStatus = serde_json::from_slice(&body).map_err(|error| no_server(&target, &error))?;
    if arguments.json {
        say(&serde_json::to_string_pretty(&mesh).map_err(|error| no_server(&target, &error))?);
    } else {
        say(&text(&mesh, arguments.connections));
    }
    Ok(())
}

/// The mesh for people.
#[must_use]
pub fn text(mesh: &MeshStatus, all_connections: bool) -> String {
    let mut parts = vec![format!("cluster {}", mesh.cluster), servers(mesh)];
    parts.extend(own(mesh).map(|status| membership(mesh, &status.bus)));
    if mesh.servers.len() > CONNECTIONS_SHOWN_MAX && !all_connections {
        parts.push(troubles(mesh));
    } else if mesh.servers.len() > 1 {
        parts.push(format!("round trip, row to column\n{}", matrix(mesh)));
        parts.push(pairs(mesh, |_| true));
    }
    parts.join("\n\n")
}

/// What the server that was asked said.
fn own(mesh: &MeshStatus) -> Option<&ServerStatus> {
    let view = mesh.servers.iter().find(|view| view.server.as_deref() == Some(&mesh.asked));
    view.and_then(|view| view.status.as_ref())
}

/// All servers: those that were asked, then members that nobody is connected to.
fn servers(mesh: &MeshStatus) -> String {
    let members = own(mesh).map_or(&[][..], |status| &status.bus.members);
    let asked = mesh.servers.iter().map(|view| {
        let member = members.iter().find(|member| Some(&member.server) == view.server.as_ref());
        server(mesh, view, member)
    });
    let is_asked = |member: &&MemberView| mesh.servers.iter().any(|view| view.server.as_ref() == Some(&member.server));
    let others = members.iter().filter(|member| !is_asked(member)).map(|member| {
        let view = MeshView {
            server: Some(member.server.clone()),
            address: member.address.clone(),
            status: None,
            error: None,
        };
        server(mesh, &view, Some(member))
    });
    table::text(
        &["server", "address", "state", "peers", "member", "for", "zone", "incarnation", "uptime", "version", "error"],
        &asked.chain(others).collect::<Vec<_>>(),
    )
}

fn server(mesh: &MeshStatus, view: &MeshView, member: Option<&MemberView>) -> Vec<String> {
    let none = || "-".to_owned();
    let mark = if view.server.as_deref() == Some(&mesh.asked) { "*" } else { "" };
    let mut cells = vec![format!("{}{mark}", short(view.server.as_deref())), view.address.clone()];
    let (member_state, since) = member.map_or_else(
        // Connected, and nobody has introduced it: forgotten, or about to join.
        || ("stranger".into(), none()),
        |member| (voter_state(member), table::span(member.since_ms)),
    );
    match &view.status {
        Some(status) => {
            let state = match (status.draining, status.ready) {
                (true, _) => "draining",
                (false, true) => "ready",
                (false, false) => "joining",
            };
            let peers = format!("{}/{}", status.connected(), status.peers.len());
            let zone = if status.zone.is_empty() { none() } else { status.zone.clone() };
            let (lives, uptime) = (status.incarnation.to_string(), table::span(status.uptime_ms));
            cells.extend([state.into(), peers, member_state, since, zone, lives, uptime, status.version.clone()]);
        }
        None => {
            let lives = member.filter(|member| member.incarnation > 0);
            let lives = lives.map_or_else(none, |member| member.incarnation.to_string());
            cells.extend(["no answer".into(), none(), member_state, since, none(), lives, none(), none()]);
            cells.push(view.error.clone().unwrap_or_default());
        }
    }
    cells
}

fn voter_state(member: &MemberView) -> String {
    let voter = if member.voter { ", votes" } else { "" };
    format!("{}{voter}", member.state.name())
}

/// What the server that was asked says about the membership, and everybody's suspicions.
fn membership(mesh: &MeshStatus, bus: &BusStatus) -> String {
    let counts = MemberState::ALL.map(|state| (bus.count(state), state.name()));
    let counts = counts.iter().filter(|(count, _)| *count > 0).map(|(count, name)| format!("{count} {name}"));
    let reach = match (bus.voters_epoch, bus.majority) {
        (0, _) => "no voters are chosen yet",
        (_, true) => "a majority is in reach",
        (_, false) => "NO MAJORITY IN REACH: nothing can be decided from here",
    };
    let names = |ids: &[String]| ids.iter().map(|id| short(Some(id))).collect::<Vec<_>>().join(" ");
    let mut lines = vec![
        format!("members   {}", counts.collect::<Vec<_>>().join(", ")),
        format!("voters    {} (epoch {}); {reach}", names(&bus.voters), bus.voters_epoch),
    ];
    if !bus.voters_before.is_empty() {
        lines.push(format!("          and, until all have gone over, {}", names(&bus.voters_before)));
    }
    lines.push(format!("epoch     {}", bus.epoch));
    for view in mesh.servers.iter().filter_map(|view| view.status.as_ref()) {
        let suspects = view.bus.members.iter().filter(|member| member.state == MemberState::Suspect);
        lines.extend(suspects.map(|member| {
            let (one, other) = (short(Some(&view.server)), short(Some(&member.server)));
            format!("suspicion {one} has not heard {other} ({}) for the member timeout", member.address)
        }));
        lines.extend(view.stays_because.as_ref().map(|why| {
            let one = short(Some(&view.server));
            format!("stopping  {one} was told to stop and goes on, because data would be lost: {why}; see its log")
        }));
        lines.extend(view.bus.forgotten_by.as_ref().map(|by| {
            let (one, by) = (short(Some(&view.server)), short(Some(by)));
            format!("forgotten {one} was forgotten by the cluster, says {by}: stop it, or join again with an empty directory")
        }));
    }
    lines.join("\n")
}

fn matrix(mesh: &MeshStatus) -> String {
    let names: Vec<String> = mesh.servers.iter().map(|view| short(view.server.as_deref())).collect();
    let head: Vec<&str> = core::iter::once("").chain(names.iter().map(String::as_str)).collect();
    let rows = mesh.servers.iter().map(|from| {
        let cells = mesh.servers.iter().map(|to| cell(from, to));
        core::iter::once(short(from.server.as_deref())).chain(cells).collect()
    });
    table::text(&head, &rows.collect::<Vec<_>>())
}

fn cell(from: &MeshView, to: &MeshView) -> String {
    if from.server == to.server {
        return "-".into();
    }
    let peers = from.status.iter().flat_map(|status| &status.peers);
    match peers.into_iter().find(|peer| peer.server == to.server && peer.server.is_some()) {
        None => "?".into(),
        Some(peer) if !peer.is_connected() => peer.state.clone(),
        Some(peer) => peer.round_trip_us.map_or_else(|| "...".into(), |micros| format!("{micros} us")),
    }
}

/// In place of all connections: how many there are, how fast they are, and which are not as they should be. That nobody
/// is connected to a member that has failed is no further news.
fn troubles(mesh: &MeshStatus) -> String {
    let members = own(mesh).map_or(&[][..], |status| &status.bus.members);
    let has_failed = |peer: &PeerView| {
        members.iter().any(|member| member.state == MemberState::Failed && Some(&member.server) == peer.server.as_ref())
    };
    let views = mesh.servers.iter().filter_map(|view| view.status.as_ref());
    let peers: Vec<&PeerView> = views.flat_map(|status| &status.peers).filter(|peer| !has_failed(peer)).collect();
    let connected = peers.iter().filter(|peer| peer.is_connected()).count();
    let mut trips: Vec<u64> = peers.iter().filter_map(|peer| peer.round_trip_us).collect();
    trips.sort_unstable();
    let (median, longest) = (trips.get(trips.len() / 2).unwrap_or(&0), trips.last().unwrap_or(&0));
    let mut text = format!(
        "connections  {connected} of {} as they should be; round trip {median} us (median), {longest} us (longest); \
         all of them with --connections",
        peers.len()
    );
    if connected < peers.len() {
        text.push('\n');
        let table = pairs(mesh, |peer| !peer.is_connected() && !has_failed(peer));
        let lines: Vec<&str> = table.lines().collect();
        // The first line is the head.
        text.push_str(&lines.iter().take(TROUBLES_MAX + 1).copied().collect::<Vec<_>>().join("\n"));
        if lines.len() > TROUBLES_MAX + 1 {
            text.push_str("\nand more");
        }
    }
    text
}

fn pairs(mesh: &MeshStatus, is_shown: impl Fn(&PeerView) -> bool) -> String {
    let views = mesh.servers.iter().filter_map(|view| view.status.as_ref());
    let rows = views.flat_map(|status| {
        status.peers.iter().filter(|peer| is_shown(peer)).map(|peer| {
            vec![
                short(Some(&status.server)),
                short(peer.server.as_deref()),
                peer.state.clone(),
                peer.connected_ms.map_or_else(|| "-".into(), table::span),
                table::bytes(peer.bytes_in),
                table::bytes(peer.bytes_out),
                peer.calls_in_flight.to_string(),
                peer.connects.to_string(),
                peer.last_error.clone().unwrap_or_default(),
            ]
        })
    });
    table::text(
        &["from", "to", "state", "for", "received", "sent", "in flight", "connects", "last error"],
        &rows.collect::<Vec<_>>(),
    )
}
