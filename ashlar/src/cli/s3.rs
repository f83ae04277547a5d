//! `ashlar s3`: what S3 clients need.

use ashlar_object::s3::encoding::encode_component;

use super::asking::{Asked, ask, demand, no_server, remove};
use super::{no_runtime, say};
use crate::failure::Failure;
use crate::front::admin::objects::{KeyView, UserKeyView};
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
    /// Print the key that the cluster has made for its root user; make, list and delete keys of other users
    Key(Key),
}

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
struct Key {
    #[command(subcommand)]
    command: Option<KeyCommand>,
    #[command(flatten)]
    printed: Printed,
}

#[derive(Debug, clap::Subcommand)]
enum KeyCommand {
    /// Make a key for a user, who is made with the first one, and print it: its secret is never shown again
    Create {
        /// Id of the user, as policies name it: letters, digits, '-', '_' and '.'
        user: String,
        /// What people are shown of a new user [default: the id]
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        printed: Printed,
    },
    /// List the keys of users, without their secrets
    List(Printed),
    /// Delete a key: what it signs is refused from then on
    Delete {
        /// The access key
        access_key: String,
        #[command(flatten)]
        printed: Printed,
    },
}

#[derive(Debug, clap::Args)]
struct Printed {
    /// Print JSON and nothing else
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    asked: Asked,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Command::Key(Key { command, printed }) = &arguments.command;
    let done = match command {
        None => os::block_on(print_root(printed)),
        Some(KeyCommand::Create { user, name, printed }) => os::block_on(create(user, name.as_deref(), printed)),
        Some(KeyCommand::List(printed)) => os::block_on(list(printed)),
        Some(KeyCommand::Delete { access_key, printed }) => os::block_on(delete(access_key, printed)),
    };
    say(&done.map_err(|error| no_runtime(&error))??);
    Ok(())
}

fn to_json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("our own values have text keys and no cycles")
}

fn environment(access_key: &str, secret_key: &str) -> String {
    format!("AWS_ACCESS_KEY_ID={access_key}\nAWS_SECRET_ACCESS_KEY={secret_key}")
}

async fn print_root(printed: &Printed) -> Result<String, Failure> {
    let key = key(&printed.asked.target_to_change()?).await?;
    Ok(if printed.json { to_json(&key) } else { environment(&key.access_key, &key.secret_key) })
}

async fn create(user: &str, name: Option<&str>, printed: &Printed) -> Result<String, Failure> {
    let target = printed.asked.target_to_change()?;
    let query = name.map_or_else(String::new, |name| format!("?name={}", encode_component(name)));
    let body = demand(&target, &format!("/v1/s3/users/{}{query}", encode_component(user))).await?;
    let key: UserKeyView = serde_json::from_slice(&body).map_err(|error| no_server(&target, &error))?;
    let secret_key = key.secret_key.as_deref().unwrap_or_default();
    Ok(if printed.json { to_json(&key) } else { environment(&key.access_key, secret_key) })
}

async fn list(printed: &Printed) -> Result<String, Failure> {
    let target = printed.asked.target()?;
    let body = ask(&target, "/v1/s3/keys").await?;
    let keys: Vec<UserKeyView> = serde_json::from_slice(&body).map_err(|error| no_server(&target, &error))?;
    let line = |key: &UserKeyView| format!("{}  {}", key.access_key, key.user);
    Ok(if printed.json { to_json(&keys) } else { keys.iter().map(line).collect::<Vec<_>>().join("\n") })
}

async fn delete(access_key: &str, printed: &Printed) -> Result<String, Failure> {
    let target = printed.asked.target_to_change()?;
    remove(&target, &format!("/v1/s3/keys/{}", encode_component(access_key))).await?;
    Ok(if printed.json { "{}".to_owned() } else { format!("{access_key} is deleted") })
}

/// The root key of a cluster.
pub(super) async fn key(target: &Target) -> Result<KeyView, Failure> {
    let body = ask(target, "/v1/s3/key").await?;
    serde_json::from_slice(&body).map_err(|error| no_server(target, &error))
}
