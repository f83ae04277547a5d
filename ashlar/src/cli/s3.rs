//! `ashlar s3`: what S3 clients need.

use super::asking::{Asked, ask, no_server};
use super::{no_runtime, say};
use crate::failure::Failure;
use crate::front::admin::objects::KeyView;
use crate::os;
use crate::os::http::Target;

/// S3 objects: what clients need.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Print the key that the cluster has made for its root user
    Key(Key),
}

#[derive(Debug, clap::Args)]
struct Key {
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    asked: Asked,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Command::Key(Key { json, asked }) = &arguments.command;
    let target = asked.target_to_change()?;
    let key = os::block_on(key(&target)).map_err(|error| no_runtime(&error))??;
    say(&if *json {
        serde_json::to_string(&key).expect("our own values have text keys and no cycles")
    } else {
        format!("AWS_ACCESS_KEY_ID={}\nAWS_SECRET_ACCESS_KEY={}", key.access_key, key.secret_key)
    });
    Ok(())
}

/// The root key of a cluster.
pub(super) async fn key(target: &Target) -> Result<KeyView, Failure> {
    let body = ask(target, "/v1/s3/key").await?;
    serde_json::from_slice(&body).map_err(|error| no_server(target, &error))
}
