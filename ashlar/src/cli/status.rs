//! `ashlar status`: the servers of a cluster and the connections between them, asked through one server.

use std::path::{Path, PathBuf};

use super::{no_runtime, say, table};
use crate::failure::Failure;
use crate::node::status::{MeshStatus, MeshView};
use crate::os::http::{self, Target};
use crate::os::{self, files, tls};

/// Digits of an id that people see: enough to tell servers of one cluster apart.
const SHORT_ID_LEN: usize = 8;

/// Show the servers of a cluster and the connections between them.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Server to ask
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7800")]
    addr: String,
    /// Print what the servers said as JSON
    #[arg(long)]
    json: bool,
    /// Certificate of a server on another machine (tls.cert of its data directory); the connection is encrypted then
    #[arg(long, value_name = "FILE")]
    cert: Option<PathBuf>,
    /// File with the admin token of a server on another machine [environment: ASHLAR_ADMIN_TOKEN, the token itself]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let target = target(arguments)?;
    let body = os::block_on(ask(&target, "/v1/mesh")).map_err(|error| no_runtime(&error))??;
    let mesh: MeshStatus = serde_json::from_slice(&body).map_err(|error| no_server(&target.address, &error))?;
    if arguments.json {
        say(&serde_json::to_string_pretty(&mesh).map_err(|error| no_server(&target.address, &error))?);
    } else {
        say(&text(&mesh));
    }
    Ok(())
}

fn target(arguments: &Arguments) -> Result<Target, Failure> {
    let tls = match &arguments.cert {
        None => None,
        Some(path) => Some(tls::pinned(&text_of(path)?)?),
    };
    let token = match &arguments.token_file {
        None => std::env::var("ASHLAR_ADMIN_TOKEN").ok(),
        Some(path) => Some(text_of(path)?.trim().to_owned()),
    };
    Ok(Target { address: arguments.addr.clone(), tls, token })
}

fn text_of(path: &Path) -> Result<String, Failure> {
    let remedy = "give a file that can be read";
    match files::read_text(path) {
        Ok(Some(text)) => Ok(text),
        Ok(None) => Err(Failure::usage(format!("there is no file {}", path.display()), remedy)),
        Err(error) => Err(Failure::usage(format!("cannot read {}: {error}", path.display()), remedy)),
    }
}

/// Asks a server of the admin API for `path`.
///
/// # Errors
/// Nobody answers there, or not to us. Retry safe.
pub(super) async fn ask(target: &Target, path: &str) -> Result<Vec<u8>, Failure> {
    let answer = http::get(target, path).await.map_err(|error| {
        Failure::world(
            format!("{error}"),
            "check that a server runs there (`ashlar up` starts some) and name it with --addr HOST:PORT",
        )
    })?;
    if answer.status == 200 {
        return Ok(answer.body);
    }
    let text = String::from_utf8_lossy(&answer.body);
    let message = serde_json::from_str::<serde_json::Value>(&text).ok();
    let message = message.as_ref().and_then(|value| value["message"].as_str()).unwrap_or(text.trim());
    Err(Failure::world(
        format!("{} answered {}: {message}", target.address, answer.status),
        "a server on another machine needs --cert and --token-file",
    ))
}

fn no_server(address: &str, error: &serde_json::Error) -> Failure {
    Failure::world(
        format!("what answers at {address} is no ashlar server of this version: {error}"),
        "name another server with --addr HOST:PORT",
    )
}

/// The mesh for people.
#[must_use]
pub fn text(mesh: &MeshStatus) -> String {
    let mut parts = vec![format!("cluster {}", mesh.cluster), servers(mesh)];
    let matrix = matrix(mesh);
    if mesh.servers.len() > 1 {
        parts.push(format!("round trip, row to column\n{matrix}"));
        parts.push(pairs(mesh));
    }
    parts.join("\n\n")
}

fn servers(mesh: &MeshStatus) -> String {
    let rows = mesh.servers.iter().map(|view| {
        let mark = if view.server.as_deref() == Some(&mesh.asked) { "*" } else { "" };
        let server = format!("{}{mark}", short(view.server.as_deref()));
        match &view.status {
            Some(status) => {
                let state = match (status.draining, status.ready) {
                    (true, _) => "draining",
                    (false, true) => "ready",
                    (false, false) => "joining",
                };
                let peers = format!("{}/{}", status.connected(), status.peers.len());
                let lives = status.incarnation.to_string();
                let uptime = table::span(status.uptime_ms);
                vec![
                    server,
                    view.address.clone(),
                    state.into(),
                    peers,
                    lives,
                    uptime,
                    status.version.clone(),
                    String::new(),
                ]
            }
            None => {
                let none = || "-".to_owned();
                let error = view.error.clone().unwrap_or_default();
                vec![server, view.address.clone(), "no answer".into(), none(), none(), none(), none(), error]
            }
        }
    });
    table::text(
        &["server", "address", "state", "peers", "incarnation", "uptime", "version", "error"],
        &rows.collect::<Vec<_>>(),
    )
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

fn pairs(mesh: &MeshStatus) -> String {
    let views = mesh.servers.iter().filter_map(|view| view.status.as_ref());
    let rows = views.flat_map(|status| {
        status.peers.iter().map(|peer| {
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

/// The part of an id that people see.
#[must_use]
pub(super) fn short(id: Option<&str>) -> String {
    id.map_or_else(|| "?".into(), |id| id.chars().take(SHORT_ID_LEN).collect())
}
