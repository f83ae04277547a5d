//! `ashlar forget`: a server that left for good is removed from the whole cluster.

use super::asking::{Asked, ask, no_server, remove};
use super::{no_runtime, say};
use crate::failure::Failure;
use crate::os;
use crate::os::http::Target;
use ashlar_node::membership::view::MemberState;
use ashlar_node::status::ServerStatus;

/// Remove a server that left for good. Stop it first; while it is forgotten it is kept out for a minute. To come back it needs
/// an empty data directory and --join.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Its id, or the beginning of it, as `ashlar status` shows it
    #[arg(value_name = "ID")]
    id: String,
    /// Forget it even if it is alive
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    asked: Asked,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let target = arguments.asked.target_to_change()?;
    let id = os::block_on(forget(arguments, &target)).map_err(|error| no_runtime(&error))??;
    say(&format!("forgotten: {id}"));
    Ok(())
}

async fn forget(arguments: &Arguments, target: &Target) -> Result<String, Failure> {
    let body = ask(target, "/v1/status").await?;
    let status: ServerStatus = serde_json::from_slice(&body).map_err(|error| no_server(target, &error))?;
    let members = status.bus.members.iter().filter(|member| member.state != MemberState::Forgotten);
    let ids: Vec<&str> = members.map(|member| member.server.as_str()).collect();
    let id = find(&arguments.id, &ids)?;
    let query = if arguments.force { "?force" } else { "" };
    remove(target, &format!("/v1/members/{id}{query}")).await?;
    Ok(id.to_owned())
}

/// The one id that begins so.
fn find<'a>(beginning: &str, ids: &[&'a str]) -> Result<&'a str, Failure> {
    let found: Vec<&str> = ids.iter().copied().filter(|id| id.starts_with(beginning)).collect();
    match found[..] {
        [id] => Ok(id),
        [] => Err(Failure::usage(format!("no member's id begins with {beginning}"), "see `ashlar status`")),
        _ => {
            let what = format!("{} members' ids begin with {beginning}", found.len());
            Err(Failure::usage(what, "give more of the id: `ashlar status --json` shows all of it"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_has_to_fit_one() {
        let ids = ["ab12", "ab34", "cd56"];
        assert_eq!(find("c", &ids).ok(), Some("cd56"));
        assert_eq!(find("ab34", &ids).ok(), Some("ab34"));
        for (wrong, text) in [("ab", "2 members"), ("x", "no member"), ("", "3 members")] {
            let failure = find(wrong, &ids).expect_err("not one");
            assert!(failure.what.contains(text) && failure.exit_code() == 2, "{failure}");
        }
    }
}
