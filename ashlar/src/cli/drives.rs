//! `ashlar drives`: removes a drive from the cluster.

use super::asking::{Asked, no_server, remove};
use super::{no_runtime, say};
use crate::failure::Failure;
use crate::front::admin::drives::LeavingDrive;
use crate::os;

/// Drives of the cluster's servers.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Empty a drive and take it out of the cluster; its server's log says when it is empty
    Remove(Remove),
}

#[derive(Debug, clap::Args)]
struct Remove {
    /// Its id, or the beginning of it, as its server's log shows it
    #[arg(value_name = "ID")]
    id: String,
    /// It is lost: give it up at once, and make what was on it anew elsewhere
    #[arg(long)]
    lost: bool,
    #[command(flatten)]
    asked: Asked,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Command::Remove(arguments) = &arguments.command;
    if arguments.id.is_empty() || !arguments.id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Failure::usage("a drive's id has hexadecimal digits", "see the log of its server"));
    }
    let target = arguments.asked.target_to_change()?;
    let query = if arguments.lost { "?force" } else { "" };
    let path = format!("/v1/drives/{}{query}", arguments.id.to_ascii_lowercase());
    let body = os::block_on(remove(&target, &path)).map_err(|error| no_runtime(&error))??;
    let LeavingDrive { leaving } = serde_json::from_slice(&body).map_err(|error| no_server(&target, &error))?;
    say(&if arguments.lost {
        format!("given up: {leaving}; what was on it is made anew on other drives")
    } else {
        format!("being emptied: {leaving}; its server's log says when it is empty")
    });
    Ok(())
}
