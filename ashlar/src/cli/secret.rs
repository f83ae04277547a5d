//! `ashlar secret`: the cluster's secret is replaced while the cluster runs.

use super::asking::{Asked, demand, no_server};
use super::{no_runtime, say};
use crate::failure::Failure;
use crate::os;
use ashlar_node::secret::Rotation;

/// Replace the cluster's secret while the cluster runs
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Give all servers a new secret, in their files and on their connections; nothing is interrupted. Again after a failure,
    /// it finishes what was begun
    Rotate(Rotate),
}

#[derive(Debug, clap::Args)]
struct Rotate {
    /// Leave out members that do not answer: they cannot come back before they were given the new cluster.secret
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    asked: Asked,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Command::Rotate(rotate) = &arguments.command;
    let target = rotate.asked.target_to_change()?;
    let path = if rotate.force { "/v1/secret?force" } else { "/v1/secret" };
    let body = os::block_on(demand(&target, path)).map_err(|error| no_runtime(&error))??;
    let rotation: Rotation = serde_json::from_slice(&body).map_err(|error| no_server(&target, &error))?;
    say(&text(&rotation));
    if rotation.unfinished.is_empty() {
        return Ok(());
    }
    let what = format!("some servers hold the earlier secret as well: {}", rotation.unfinished.join("; "));
    let remedy = "everything goes on working meanwhile; once these answer and can write their files, run `ashlar secret rotate` again: it \
                  finishes this rotation";
    Err(Failure::world(what, remedy))
}

fn text(rotation: &Rotation) -> String {
    let verb = if rotation.is_resumed { "the rotation that was begun is finished" } else { "the secret was replaced" };
    let mut text = format!("{verb}: {} servers hold secret {} alone", rotation.servers, rotation.key);
    if !rotation.absent.is_empty() {
        text.push_str("\nleft out, give them the new cluster.secret: ");
        text.push_str(&rotation.absent.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_left_out_is_named() {
        let rotation = Rotation {
            key: "00000000000000ab".into(),
            servers: 2,
            is_resumed: false,
            unfinished: Vec::new(),
            absent: vec!["cd".into()],
        };
        assert_eq!(
            text(&rotation),
            "the secret was replaced: 2 servers hold secret 00000000000000ab alone\nleft out, give them the new cluster.secret: cd"
        );
    }
}
