//! `ashlar catalog`: shows the catalog, writes all of it down, and brings it back when a majority of its voters is gone for good.
//!
//! `recover` and `import` work on the data directory of a server that is stopped. They make this server the only voter of the catalog and
//! of the cluster's bus, with all epochs far ahead, so that whatever the lost servers have handed out is refused.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ashlar_bus::saved::Saved;
use ashlar_bus::slot::Zone;
use ashlar_bus::{Config as BusConfig, Identity};
use ashlar_catalog::raft::catalog::Error;
use ashlar_catalog::raft::recover::{install, recover};
use ashlar_catalog::server::ServerState;
use ashlar_catalog::state::State;
use ashlar_wire::id::ServerId;

use super::asking::{Asked, ask, no_server, short};
use super::{no_runtime, say};
use crate::failure::Failure;
use crate::front::admin::catalog::CatalogView;
use crate::os;
use crate::os::catalog_storage::CatalogStorage;
use crate::os::datadir::{DataDir, StoppedDir, bus_lost};
use crate::os::files;

/// How far epochs and generations jump: more than lost servers may have added to any of them since this one heard of it.
const EPOCHS_JUMP: u32 = 1_000_000;
/// A longer export is not read.
const EXPORT_BYTES_MAX: u64 = 1 << 30;

/// Show the catalog, or bring it back when a majority of its voters is gone for good
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show who leads it, who votes, and its version
    Status(Status),
    /// Print all of it as text, as the server knows it
    Export(Export),
    /// Let a stopped server go on alone, with what it knows: for when a majority of the voters is gone for good
    Recover(Recover),
    /// The same with what an export says
    Import(Import),
}

#[derive(Debug, clap::Args)]
struct Status {
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    asked: Asked,
}

#[derive(Debug, clap::Args)]
struct Export {
    #[command(flatten)]
    asked: Asked,
}

#[derive(Debug, clap::Args)]
struct Recover {
    /// Data directory of the server, which is stopped
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// None of the other servers will ever be started again with the data that it has
    #[arg(long)]
    others_are_gone: bool,
}

#[derive(Debug, clap::Args)]
struct Import {
    /// What `ashlar catalog export` printed
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    place: Recover,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::Status(arguments) => status(arguments),
        Command::Export(Export { asked }) => {
            let target = asked.target_to_change()?;
            let body = os::block_on(ask(&target, "/v1/catalog/export")).map_err(|error| no_runtime(&error))??;
            say(String::from_utf8_lossy(&body).trim_end());
            Ok(())
        }
        Command::Recover(place) => go_on_alone(place, None),
        Command::Import(Import { file, place }) => {
            let unusable = |why: String| {
                Failure::usage(
                    format!("{}: {why}", file.display()),
                    "give a file that `ashlar catalog export` has printed",
                )
            };
            let bytes = files::read_bytes(file, EXPORT_BYTES_MAX).map_err(|error| unusable(error.to_string()))?;
            let bytes = bytes.ok_or_else(|| unusable("there is no such file".to_owned()))?;
            let text = String::from_utf8(bytes).map_err(|error| unusable(error.to_string()))?;
            let state = State::import(&text).map_err(|error| unusable(error.to_string()))?;
            go_on_alone(place, Some(state))
        }
    }
}

fn status(arguments: &Status) -> Result<(), Failure> {
    let target = arguments.asked.target()?;
    let body = os::block_on(ask(&target, "/v1/catalog")).map_err(|error| no_runtime(&error))??;
    let catalog: CatalogView = serde_json::from_slice(&body).map_err(|error| no_server(&target, &error))?;
    if arguments.json {
        say(&serde_json::to_string(&catalog).expect("our own values have text keys and no cycles"));
    } else {
        say(&text_of(&catalog));
    }
    Ok(())
}

/// The catalog for people.
fn text_of(catalog: &CatalogView) -> String {
    let ids = |servers: &[String]| match servers {
        [] => "-".to_owned(),
        servers => servers.iter().map(|id| short(Some(id))).collect::<Vec<_>>().join(" "),
    };
    let leader = catalog.leader.as_deref().map_or_else(
        || "none: a majority of the voters is not there, nothing can be changed".to_owned(),
        |leader| format!("{} (term {})", short(Some(leader)), catalog.term),
    );
    let changing = if catalog.changing { ", being changed" } else { "" };
    let mut lines = vec![
        format!("leader    {leader}"),
        format!("voters    {}{changing}", ids(&catalog.voters)),
        format!("learners  {}", ids(&catalog.learners)),
        format!("version   {}", catalog.version),
    ];
    if !catalog.runs {
        lines.push("it has stopped on this server: see its log".to_owned());
    }
    lines.join("\n")
}

fn go_on_alone(place: &Recover, state: Option<State>) -> Result<(), Failure> {
    let Recover { data, others_are_gone } = place;
    let dir = StoppedDir::open(data)?;
    if !others_are_gone {
        let what = format!(
            "server {} would go on alone, with what it knows; a server of now that is started later with the data that it has could decide \
             against it",
            dir.server
        );
        let remedy = "if a majority of the voters can still be started, start it instead; if it is gone for good, and no other server will \
                      be started with its present data, say so with --others-are-gone";
        return Err(Failure::usage(what, remedy));
    }
    if let Some(state) = &state
        && state.cluster() != dir.cluster
    {
        let what = format!("the export is of cluster {}, the server of {}", state.cluster(), dir.cluster);
        return Err(Failure::usage(what, "give an export of this cluster"));
    }
    // Read before anything is changed: a server without it could not start.
    let bus = bus_alone(data, &dir)?;
    let recovered = if CatalogStorage::is_in(data) || state.is_some() {
        Some(os::block_on(recover_catalog(data, &dir, state)).map_err(|error| no_runtime(&error))??)
    } else {
        None
    };
    // The catalog first: it is what cannot be decided anew. A crash in between is mended by running the command again.
    DataDir::keep_bus(data, &bus)?;
    say(&told(dir.server, recovered.as_ref()));
    Ok(())
}

async fn recover_catalog(data: &Path, dir: &StoppedDir, state: Option<State>) -> Result<State, Failure> {
    let failed = |error: Error| {
        Failure::world(
            format!("the catalog was not recovered: {error}"),
            "see to what is named, and run this again before the server is started",
        )
    };
    let storage = CatalogStorage::open(data, dir.cluster, dir.server)
        .map_err(|error| Failure::world(error.to_string(), "nothing was changed"))?;
    let storage = Arc::new(storage);
    match state {
        Some(state) => install(storage, state, dir.server, EPOCHS_JUMP).await.map_err(failed),
        None => {
            let recovered = recover(storage, dir.cluster, dir.server, EPOCHS_JUMP).await.map_err(failed)?;
            Ok(recovered.state)
        }
    }
}

/// The bus's state with which the server goes on.
fn bus_alone(data: &Path, dir: &StoppedDir) -> Result<Vec<u8>, Failure> {
    let (cluster, server, incarnation) = (dir.cluster, dir.server, dir.incarnation);
    let identity = Identity { cluster, server, incarnation, zone: Zone::default(), address: String::new() };
    let mut saved = Saved::decode(&dir.bus, &identity, &BusConfig::default())
        .map_err(|error| bus_lost(data, &error.to_string()))?;
    saved.go_on_alone();
    Ok(saved.encode())
}

fn told(server: ServerId, catalog: Option<&State>) -> String {
    let mut text = format!("server {server} goes on alone: start it. It alone votes.");
    let Some(state) = catalog else { return text };
    let others = state.servers().filter(|other| other.id != server && other.state != ServerState::Dead);
    let others: Vec<String> = others.map(|other| short(Some(&other.id.to_string()))).collect();
    text += &format!("\nThe catalog is at version {}, with {} volumes.", state.version().0, state.volumes().count());
    if !others.is_empty() {
        text += &format!(
            "\nNever start these with the catalog that they have: {}. Once this server runs, move the folder `catalog` of each that is left away and \
             start it: its drives come back with what they have. Remove each that is lost with `ashlar forget`; new servers join with --join and \
             empty data directories, and get copies.",
            others.join(" ")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalog_is_shown() {
        let one = "0123456789abcdef0123456789abcdef".to_owned();
        let mut catalog = CatalogView {
            leader: Some(one.clone()),
            term: 7,
            version: 40,
            voters: vec![one.clone(), "f".repeat(32)],
            learners: Vec::new(),
            changing: false,
            runs: true,
        };
        let text = "leader    01234567 (term 7)\nvoters    01234567 ffffffff\nlearners  -\nversion   40";
        assert_eq!(text_of(&catalog), text);
        (catalog.leader, catalog.runs) = (None, false);
        let text = text_of(&catalog);
        assert!(text.starts_with("leader    none") && text.ends_with("see its log"), "{text}");
    }
}
