//! `ashlar volume`: creates, lists, shows, enlarges, deletes and detaches volumes.

use super::asking::{Asked, ask, demand, no_server, remove, short};
use super::{no_runtime, say, table};
use crate::failure::Failure;
use crate::front::admin::volumes::{VolumeView, wrong_name, wrong_size};
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
    /// Show one volume
    Show(Show),
    /// Make a volume larger; clients that connect afterwards see it
    Resize(Resize),
    /// Delete a volume that is not attached, and everything in it
    Delete(Named),
    /// Take a volume from the server that it is attached to
    Detach(Detach),
}

#[derive(Debug, clap::Args)]
struct Create {
    /// Its name: letters, digits, `-`, `_` and `.`
    #[arg(value_name = "NAME", value_parser = name)]
    name: String,
    /// Its size: a number with K, M, G or T for KiB, MiB, GiB or TiB
    #[arg(value_name = "SIZE", value_parser = size)]
    size: u64,
    /// Print the volume as one JSON object and nothing else
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    asked: Asked,
}

#[derive(Debug, clap::Args)]
struct Show {
    /// Its name
    #[arg(value_name = "NAME", value_parser = name)]
    name: String,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    asked: Asked,
}

#[derive(Debug, clap::Args)]
struct Resize {
    /// Its name
    #[arg(value_name = "NAME", value_parser = name)]
    name: String,
    /// Its new size: a number with K, M, G or T for KiB, MiB, GiB or TiB, and not less than it has
    #[arg(value_name = "SIZE", value_parser = size)]
    size: u64,
    /// Print the volume as one JSON object and nothing else
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    asked: Asked,
}

#[derive(Debug, clap::Args)]
struct Named {
    /// Its name
    #[arg(value_name = "NAME", value_parser = name)]
    name: String,
    /// Print what was deleted as one JSON object and nothing else
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    asked: Asked,
}

#[derive(Debug, clap::Args)]
struct Detach {
    /// Its name
    #[arg(value_name = "NAME", value_parser = name)]
    name: String,
    /// Also from clients that use it: their further reads and writes fail
    #[arg(long)]
    force: bool,
    /// Print the volume as one JSON object and nothing else
    #[arg(long)]
    json: bool,
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

/// Reads a name.
fn name(text: &str) -> Result<String, String> {
    wrong_name(text).map_or_else(|| Ok(text.to_owned()), |wrong| Err(wrong.to_owned()))
}

/// Reads the size of a volume.
fn size(text: &str) -> Result<u64, String> {
    let bytes = bytes(text)?;
    wrong_size(bytes).map_or(Ok(bytes), |wrong| Err(wrong.to_owned()))
}

/// Reads a number of bytes.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
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
    number.checked_mul(1 << shift).ok_or_else(|| "that is too large".to_owned())
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::Create(arguments) => {
            let target = arguments.asked.target_to_change()?;
            let volume = done(create(&target, &arguments.name, arguments.size))?;
            tell(&volume, arguments.json, &format!("created: {} ({} bytes)", volume.name, volume.bytes));
            Ok(())
        }
        Command::List(arguments) => list(arguments),
        Command::Show(Show { name, json, asked }) => {
            let target = asked.target()?;
            let volume = done(volume_of(&target, ask(&target, &path(name))))?;
            tell(&volume, *json, &picture(&volume));
            Ok(())
        }
        Command::Resize(Resize { name, size, json, asked }) => {
            let target = asked.target_to_change()?;
            let at = format!("{}/size?bytes={size}", path(name));
            let volume = done(volume_of(&target, demand(&target, &at)))?;
            tell(&volume, *json, &format!("resized: {} ({} bytes)", volume.name, volume.bytes));
            Ok(())
        }
        Command::Delete(Named { name, json, asked }) => {
            let target = asked.target_to_change()?;
            let volume = done(volume_of(&target, remove(&target, &path(name))))?;
            tell(&volume, *json, &format!("deleted: {}", volume.name));
            Ok(())
        }
        Command::Detach(Detach { name, force, json, asked }) => {
            let target = asked.target_to_change()?;
            let query = if *force { "?force" } else { "" };
            let at = format!("{}/attachment{query}", path(name));
            let volume = done(volume_of(&target, remove(&target, &at)))?;
            tell(&volume, *json, &format!("detached: {}", volume.name));
            Ok(())
        }
    }
}

fn path(name: &str) -> String {
    format!("/v1/volumes/{name}")
}

fn done(volume: impl Future<Output = Result<VolumeView, Failure>>) -> Result<VolumeView, Failure> {
    os::block_on(volume).map_err(|error| no_runtime(&error))?
}

/// The volume in an answer.
async fn volume_of(
    target: &Target,
    body: impl Future<Output = Result<Vec<u8>, Failure>>,
) -> Result<VolumeView, Failure> {
    serde_json::from_slice(&body.await?).map_err(|error| no_server(target, &error))
}

fn tell(volume: &VolumeView, json: bool, text: &str) {
    if json {
        say(&serde_json::to_string(volume).expect("our own values have text keys and no cycles"));
    } else {
        say(text);
    }
}

/// One volume for people.
fn picture(volume: &VolumeView) -> String {
    let attached = volume.attached.as_deref().unwrap_or("-");
    let sets = volume.sets.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let rows = [
        ("volume", volume.name.clone()),
        ("id", volume.id.clone()),
        ("bytes", volume.bytes.to_string()),
        ("attached at", attached.to_owned()),
        ("attachments so far", volume.generation.to_string()),
        ("bytes of an extent", volume.extent_bytes.to_string()),
        ("sets of drives", sets),
    ];
    let lines = rows.map(|(what, value)| format!("{what:<20}{value}"));
    lines.join("\n")
}

/// Creates a volume.
pub(super) async fn create(target: &Target, name: &str, bytes: u64) -> Result<VolumeView, Failure> {
    let at = format!("{}?bytes={bytes}", path(name));
    volume_of(target, demand(target, &at)).await
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
        for wrong in ["", "G", "0", "1", "4097", "1X", "-1G", "1.5G", "1048577T", "99999999999T"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_are_checked_before_anybody_is_asked() {
        assert_eq!(name("a-b_c.9"), Ok("a-b_c.9".to_owned()));
        for wrong in ["", "..", "a/b", "a b", "a?b", "a#b", "\u{fc}"] {
            assert!(name(wrong).is_err(), "{wrong}");
        }
    }
}
