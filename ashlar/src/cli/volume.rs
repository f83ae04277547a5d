//! `ashlar volume`: creates and lists volumes.

use super::asking::{Asked, ask, demand, no_server, short};
use super::{no_runtime, say, table};
use crate::failure::Failure;
use crate::front::admin::volumes::VolumeView;
use crate::os;
use crate::os::http::Target;

/// Volumes: cloud disks with copies on several servers, for NBD clients.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Create a volume
    Create(Create),
    /// List the volumes of the cluster
    List(List),
}

#[derive(Debug, clap::Args)]
struct Create {
    /// Its name: letters, digits, `-`, `_` and `.`
    #[arg(value_name = "NAME")]
    name: String,
    /// Its size: a number with K, M, G or T for KiB, MiB, GiB or TiB
    #[arg(value_name = "SIZE", value_parser = size)]
    size: u64,
    #[command(flatten)]
    asked: Asked,
}

#[derive(Debug, clap::Args)]
struct List {
    /// Print one JSON array and nothing else
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    asked: Asked,
}

/// Reads a size.
fn size(text: &str) -> Result<u64, String> {
    let (number, shift) = match text.char_indices().next_back() {
        Some((at, unit)) if unit.is_ascii_alphabetic() => {
            let shift = match unit.to_ascii_uppercase() {
                'K' => 10,
                'M' => 20,
                'G' => 30,
                'T' => 40,
                _ => return Err("the unit is K, M, G or T".to_owned()),
            };
            (&text[..at], shift)
        }
        _ => (text, 0),
    };
    let number: u64 = number.parse().map_err(|_| "a size is a whole number with K, M, G or T behind it".to_owned())?;
    let bytes = number.checked_mul(1 << shift).ok_or_else(|| "that is too large".to_owned())?;
    let is_whole = bytes > 0 && bytes.is_multiple_of(4_096);
    if is_whole { Ok(bytes) } else { Err("a size is a multiple of 4K above 0".to_owned()) }
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::Create(arguments) => {
            let target = arguments.asked.target_to_change()?;
            let created = create(&target, &arguments.name, arguments.size);
            let volume = os::block_on(created).map_err(|error| no_runtime(&error))??;
            say(&format!("created: {} ({} bytes)", volume.name, volume.bytes));
            Ok(())
        }
        Command::List(arguments) => list(arguments),
    }
}

/// Creates a volume.
pub(super) async fn create(target: &Target, name: &str, bytes: u64) -> Result<VolumeView, Failure> {
    let body = demand(target, &format!("/v1/volumes/{name}?bytes={bytes}")).await?;
    serde_json::from_slice(&body).map_err(|error| no_server(target, &error))
}

/// The volumes of a cluster.
pub(super) async fn volumes(target: &Target) -> Result<Vec<VolumeView>, Failure> {
    let body = ask(target, "/v1/volumes").await?;
    serde_json::from_slice(&body).map_err(|error| no_server(target, &error))
}

fn list(arguments: &List) -> Result<(), Failure> {
    let target = arguments.asked.target()?;
    let volumes = os::block_on(volumes(&target)).map_err(|error| no_runtime(&error))??;
    if arguments.json {
        say(&serde_json::to_string(&volumes).expect("our own values have text keys and no cycles"));
        return Ok(());
    }
    let row = |volume: &VolumeView| {
        let attached = volume.attached.as_deref().map_or_else(|| "-".into(), |server| short(Some(server)));
        vec![volume.name.clone(), volume.bytes.to_string(), attached, volume.id.clone()]
    };
    let rows: Vec<Vec<String>> = volumes.iter().map(row).collect();
    say(&table::text(&["volume", "bytes", "attached at", "id"], &rows));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [("4096", 4_096), ("4K", 4_096), ("1m", 1 << 20), ("2G", 2 << 30), ("3T", 3 << 40)] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for wrong in ["", "G", "0", "1", "4097", "1X", "-1G", "1.5G", "99999999999T"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
