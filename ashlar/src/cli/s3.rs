//! `ashlar s3`: what S3 clients need.

use std::path::PathBuf;

use ashlar_object::s3::encoding::encode_component;
use serde_json::json;

use super::asking::{Asked, ask, demand, no_server, remove};
use super::{no_runtime, say};
use crate::failure::Failure;
use crate::front::admin::objects::{KeyView, KmsKeyView, UserKeyView, UserPolicyView};
use crate::os::http::Target;
use crate::os::{self, files};

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
    /// What a user may do: a policy beside those of buckets
    Policy(PolicyArguments),
    /// Make and list keys for encryption with `aws:kms`: every server has them, in the catalog
    #[command(subcommand)]
    Kms(KmsCommand),
}

#[derive(Debug, clap::Subcommand)]
enum KmsCommand {
    /// Make a key. It cannot be deleted: what it has encrypted could not be read any more
    Create {
        /// What clients name it by, and the defaults of buckets: letters, digits, '-', '_' and '.'
        name: String,
        #[command(flatten)]
        printed: Printed,
    },
    /// List the names of keys
    List(Printed),
}

#[derive(Debug, clap::Args)]
struct PolicyArguments {
    #[command(subcommand)]
    command: PolicyCommand,
}

#[derive(Debug, clap::Subcommand)]
enum PolicyCommand {
    /// Give a user a policy in the place of the one before: the user may do from then on what it says, and what policies and lists of
    /// buckets grant
    Set {
        /// Id of the user
        user: String,
        #[command(flatten)]
        granted: Granted,
        #[command(flatten)]
        printed: Printed,
    },
    /// Print the policy of a user
    Show {
        /// Id of the user
        user: String,
        #[command(flatten)]
        printed: Printed,
    },
    /// Take the policy of a user away: the user may make buckets again, and do everything in those that are the user's own
    Remove {
        /// Id of the user
        user: String,
        #[command(flatten)]
        printed: Printed,
    },
}

/// What a policy grants: a document, or one of the usual ones.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Granted {
    /// File with the policy, JSON in the grammar of AWS, without principals; at most 4 KiB without blanks
    #[arg(long, value_name = "FILE")]
    document: Option<PathBuf>,
    /// Buckets whose objects may be listed and read, with commas between them; `*` stands for any text
    #[arg(long, value_name = "BUCKETS", value_delimiter = ',')]
    read: Vec<String>,
    /// Buckets whose objects may be listed, read, put and deleted
    #[arg(long, value_name = "BUCKETS", value_delimiter = ',')]
    write: Vec<String>,
    /// Buckets that may be made, configured and deleted too; `*` for everything but users and keys
    #[arg(long, value_name = "BUCKETS", value_delimiter = ',')]
    all: Vec<String>,
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
    /// Replace the root key by a new one, and print it: what the old one signs is refused within seconds, at all servers
    ReplaceRoot(Printed),
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
    let done = match &arguments.command {
        Command::Policy(PolicyArguments { command }) => os::block_on(change_policy(command)),
        Command::Key(Key { command, printed }) => run_key(command.as_ref(), printed),
        Command::Kms(KmsCommand::Create { name, printed }) => os::block_on(create_kms_key(name, printed)),
        Command::Kms(KmsCommand::List(printed)) => os::block_on(list_kms_keys(printed)),
    };
    say(&done.map_err(|error| no_runtime(&error))??);
    Ok(())
}

fn run_key(command: Option<&KeyCommand>, printed: &Printed) -> std::io::Result<Result<String, Failure>> {
    match command {
        None => os::block_on(print_root(printed)),
        Some(KeyCommand::Create { user, name, printed }) => os::block_on(create(user, name.as_deref(), printed)),
        Some(KeyCommand::ReplaceRoot(printed)) => os::block_on(replace_root(printed)),
        Some(KeyCommand::List(printed)) => os::block_on(list(printed)),
        Some(KeyCommand::Delete { access_key, printed }) => os::block_on(delete(access_key, printed)),
    }
}

async fn change_policy(command: &PolicyCommand) -> Result<String, Failure> {
    let path = |user: &str| format!("/v1/s3/users/{}/policy", encode_component(user));
    let (body, printed) = match command {
        PolicyCommand::Set { user, granted, printed } => {
            let query = format!("?document={}", encode_component(&document(granted)?));
            (demand(&printed.asked.target_to_change()?, &format!("{}{query}", path(user))).await?, printed)
        }
        PolicyCommand::Show { user, printed } => (ask(&printed.asked.target()?, &path(user)).await?, printed),
        PolicyCommand::Remove { user, printed } => {
            (remove(&printed.asked.target_to_change()?, &path(user)).await?, printed)
        }
    };
    let target = printed.asked.target()?;
    let view: UserPolicyView = serde_json::from_slice(&body).map_err(|error| no_server(&target, &error))?;
    Ok(match view.document {
        _ if printed.json => to_json(&view),
        Some(document) => document,
        None => format!("{} has no policy", view.user),
    })
}

/// The policy that is asked for, without blanks.
fn document(granted: &Granted) -> Result<String, Failure> {
    if let Some(path) = &granted.document {
        let unread = |what: String| Failure::usage(what, "give a file with a policy with --document");
        let text =
            files::read_text(path).map_err(|error| unread(format!("cannot read {}: {error}", path.display())))?;
        let text = text.ok_or_else(|| unread(format!("there is no file {}", path.display())))?;
        let value: serde_json::Value =
            serde_json::from_str(&text).map_err(|error| unread(format!("{} is no JSON: {error}", path.display())))?;
        return Ok(to_json(&value));
    }
    let statement =
        |actions: &[&str], resources: Vec<String>| json!({"Effect": "Allow", "Action": actions, "Resource": resources});
    let buckets = |names: &[String]| names.iter().map(|name| format!("arn:aws:s3:::{name}")).collect::<Vec<_>>();
    let objects = |names: &[String]| names.iter().map(|name| format!("arn:aws:s3:::{name}/*")).collect::<Vec<_>>();
    let lists = statement(&["s3:ListAllMyBuckets"], vec!["*".to_owned()]);
    let looks = ["s3:ListBucket", "s3:ListBucketVersions", "s3:GetBucketLocation", "s3:GetBucketVersioning"];
    let reads = ["s3:GetObject*"];
    let writes = [
        &reads[..],
        &[
            "s3:PutObject",
            "s3:PutObjectTagging",
            "s3:DeleteObject*",
            "s3:AbortMultipartUpload",
            "s3:ListMultipartUploadParts",
        ],
    ]
    .concat();
    let statements = if !granted.all.is_empty() {
        let all = [buckets(&granted.all), objects(&granted.all)].concat();
        vec![lists, statement(&["s3:*"], all)]
    } else if !granted.write.is_empty() {
        let looks = [&looks[..], &["s3:ListBucketMultipartUploads"]].concat();
        vec![lists, statement(&looks, buckets(&granted.write)), statement(&writes, objects(&granted.write))]
    } else {
        vec![lists, statement(&looks, buckets(&granted.read)), statement(&reads, objects(&granted.read))]
    };
    Ok(to_json(&json!({"Version": "2012-10-17", "Statement": statements})))
}

fn to_json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("our own values have text keys and no cycles")
}

fn environment(access_key: &str, secret_key: &str) -> String {
    format!("AWS_ACCESS_KEY_ID={access_key}\nAWS_SECRET_ACCESS_KEY={secret_key}")
}

async fn print_root(printed: &Printed) -> Result<String, Failure> {
    let key = key(&printed.asked.target_to_change()?).await?;
    Ok(root_text(&key, printed))
}

async fn replace_root(printed: &Printed) -> Result<String, Failure> {
    let target = printed.asked.target_to_change()?;
    let body = demand(&target, "/v1/s3/key").await?;
    let key: KeyView = serde_json::from_slice(&body).map_err(|error| no_server(&target, &error))?;
    Ok(root_text(&key, printed))
}

fn root_text(key: &KeyView, printed: &Printed) -> String {
    if printed.json { to_json(key) } else { environment(&key.access_key, &key.secret_key) }
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

async fn create_kms_key(name: &str, printed: &Printed) -> Result<String, Failure> {
    let target = printed.asked.target_to_change()?;
    let body = demand(&target, &format!("/v1/s3/kms-keys/{}", encode_component(name))).await?;
    let key: KmsKeyView = serde_json::from_slice(&body).map_err(|error| no_server(&target, &error))?;
    Ok(if printed.json { to_json(&key) } else { format!("{} is made", key.name) })
}

async fn list_kms_keys(printed: &Printed) -> Result<String, Failure> {
    let target = printed.asked.target()?;
    let body = ask(&target, "/v1/s3/kms-keys").await?;
    let keys: Vec<KmsKeyView> = serde_json::from_slice(&body).map_err(|error| no_server(&target, &error))?;
    let names = || keys.iter().map(|key| key.name.as_str()).collect::<Vec<_>>().join("\n");
    Ok(if printed.json { to_json(&keys) } else { names() })
}

/// The root key of a cluster.
pub(super) async fn key(target: &Target) -> Result<KeyView, Failure> {
    let body = ask(target, "/v1/s3/key").await?;
    serde_json::from_slice(&body).map_err(|error| no_server(target, &error))
}

#[cfg(test)]
mod tests {
    use ashlar_object::s3::policy::{Policy, PolicyRequest, PolicyVerdict, Principal};

    use super::*;

    fn policy(change: impl FnOnce(&mut Granted)) -> Policy {
        let mut granted = Granted { document: None, read: Vec::new(), write: Vec::new(), all: Vec::new() };
        change(&mut granted);
        let policy = Policy::decode_of_user(document(&granted).unwrap().as_bytes()).unwrap();
        policy.check_of_user().unwrap();
        policy
    }

    fn may(policy: &Policy, action: &str, resource: &str) -> bool {
        let (principal, values) = (Principal::User("ann", "Ann"), &|_: &str| Vec::new());
        policy.judge(&PolicyRequest { principal, action, resource, values }) == PolicyVerdict::Allow
    }

    #[test]
    fn the_usual_policies_grant_what_they_say() {
        let names = || vec!["logs-*".to_owned(), "photos".to_owned()];
        let read = policy(|granted| granted.read = names());
        let write = policy(|granted| granted.write = names());
        let all = policy(|granted| granted.all = names());
        for (action, resource, expected) in [
            ("s3:ListAllMyBuckets", "", [true, true, true]),
            ("s3:ListBucket", "logs-1", [true, true, true]),
            ("s3:GetObject", "photos/a/b", [true, true, true]),
            ("s3:PutObject", "photos/a", [false, true, true]),
            ("s3:DeleteObjectVersion", "photos/a", [false, true, true]),
            ("s3:ListBucketMultipartUploads", "photos", [false, true, true]),
            ("s3:PutObjectAcl", "photos/a", [false, false, true]),
            ("s3:CreateBucket", "logs-2", [false, false, true]),
            ("s3:PutBucketPolicy", "photos", [false, false, true]),
            ("s3:GetObject", "other/a", [false, false, false]),
            ("s3:CreateBucket", "other", [false, false, false]),
        ] {
            let found = [&read, &write, &all].map(|policy| may(policy, action, resource));
            assert_eq!(found, expected, "{action} {resource}");
        }
        assert!(may(&policy(|granted| granted.all = vec!["*".to_owned()]), "s3:CreateBucket", "any"));
    }
}
