//! `ashlar object`: objects as a whole.

use std::time::Duration;

use super::asking::{Asked, ask, demand, no_server, remove};
use super::{bucket, no_runtime, note, say};
use crate::failure::Failure;
use crate::front::admin::buckets::{HealingView, UnwholeView};
use crate::os;
use crate::os::http::Target;

/// How often the server is asked how far it is.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// How often that is printed.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// Objects as a whole.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Read all shards of a bucket's objects, and make anew those that are damaged or lost
    Heal(Heal),
}

/// The server goes on if this command is interrupted; started again, the command tells how far it is.
#[derive(Debug, clap::Args)]
struct Heal {
    /// Name of the bucket
    #[arg(value_parser = bucket::name)]
    bucket: String,
    /// Stop the server that was asked to do it
    #[arg(long)]
    stop: bool,
    /// Print the outcome as one JSON object and nothing else
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    asked: Asked,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Command::Heal(heal) = &arguments.command;
    os::block_on(healing(heal)).map_err(|error| no_runtime(&error))?
}

fn read(target: &Target, body: &[u8]) -> Result<HealingView, Failure> {
    serde_json::from_slice(body).map_err(|error| no_server(target, &error))
}

async fn healing(Heal { bucket, stop, json, asked }: &Heal) -> Result<(), Failure> {
    let target = asked.target_to_change()?;
    let path = format!("/v1/buckets/{bucket}/healing");
    let view =
        if *stop { read(&target, &remove(&target, &path).await?)? } else { await_end(&target, &path, !json).await? };
    if *json {
        say(&serde_json::to_string(&view).expect("our own values have text keys and no cycles"));
    } else {
        say(&text(&view));
        view.unwhole.iter().for_each(|unwhole| say(&line(unwhole)));
    }
    if *stop { Ok(()) } else { outcome(&view) }
}

/// Begins the healing and waits for its end.
async fn await_end(target: &Target, path: &str, tells: bool) -> Result<HealingView, Failure> {
    let mut view = read(target, &demand(target, path).await?)?;
    let mut tell_at = os::clock::now() + TELL_EVERY;
    while view.state == "running" {
        os::clock::sleep(ASK_EVERY).await;
        view = read(target, &ask(target, path).await?)?;
        if tells && view.state == "running" && os::clock::now() >= tell_at {
            note(&text(&view));
            tell_at = os::clock::now() + TELL_EVERY;
        }
    }
    Ok(view)
}

fn text(view: &HealingView) -> String {
    let HealingView { bucket, state, looked_at, healed, .. } = view;
    let mut text = format!("{bucket}: {state}, {looked_at} objects, versions and parts read, {healed} healed");
    for (number, what) in [
        (view.waiting, "with shards on a drive that does not answer"),
        (view.lacking, "with shards for which there is no drive"),
        (view.failed, "not whole"),
    ] {
        if number > 0 {
            text.push_str(&format!(", {number} {what}"));
        }
    }
    text
}

/// What is not whole, and why.
fn line(UnwholeView { key, version, why }: &UnwholeView) -> String {
    let what = key.as_ref().map_or_else(|| "a part of an upload".to_owned(), |key| format!("{key:?}"));
    let version = version.as_ref().map(|version| format!(", version {version}")).unwrap_or_default();
    format!("  {why}: {what}{version}")
}

/// A failure where not all is whole.
fn outcome(view: &HealingView) -> Result<(), Failure> {
    match view.state.as_str() {
        "failed" => Err(Failure::world(
            format!("the server that keeps the index of {} has not answered for a minute", view.bucket),
            "see `ashlar drives groups`, and start this again",
        )),
        "stopped" => Err(Failure::world(format!("the healing of {} was stopped", view.bucket), "start this again")),
        _ if view.waiting + view.lacking + view.failed > 0 => Err(Failure::world(
            format!("not all objects of {} are whole", view.bucket),
            "see `ashlar drives list` for drives that do not answer or are full",
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_whole_is_told_and_is_a_failure() {
        let view = |state: &str, waiting, lacking, failed| HealingView {
            bucket: "photos".into(),
            state: state.into(),
            looked_at: 9,
            healed: 2,
            waiting,
            lacking,
            failed,
            unwhole: Vec::new(),
        };
        let told = "photos: done, 9 objects, versions and parts read, 2 healed";
        assert_eq!(text(&view("done", 0, 0, 0)), told);
        assert!(outcome(&view("done", 0, 0, 0)).is_ok());
        for (waiting, lacking, failed) in [(1, 0, 0), (0, 1, 0), (0, 0, 1)] {
            let view = view("done", waiting, lacking, failed);
            assert!(text(&view).starts_with(told) && text(&view).len() > told.len());
            assert!(outcome(&view).is_err());
        }
        let unwhole = |key: Option<&str>, version: Option<&str>| {
            line(&UnwholeView {
                key: key.map(str::to_owned),
                version: version.map(str::to_owned),
                why: "failed".into(),
            })
        };
        assert_eq!(unwhole(Some("a b\n"), None), "  failed: \"a b\\n\"");
        assert_eq!(unwhole(Some("a"), Some("0f")), "  failed: \"a\", version 0f");
        assert_eq!(unwhole(None, None), "  failed: a part of an upload");
        for state in ["failed", "stopped"] {
            assert!(outcome(&view(state, 0, 0, 0)).is_err(), "{state}");
        }
    }
}
