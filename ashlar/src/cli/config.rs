//! `ashlar config`: check, show, reference.

use std::path::PathBuf;

use clap::Subcommand;

use super::{say, server, table};
use crate::config::flags::Flags;
use crate::config::keys::{Fallback, KEYS};
use crate::config::{Config, reference};
use crate::failure::Failure;
use crate::os::files;

/// Check, show or describe the configuration.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Say whether a server would accept this configuration, and whether the files and folders are there that it names; starts nothing
    Check(server::Arguments),
    /// Print every key's value and where it comes from
    Show(server::Arguments),
    /// Print the reference page, as Markdown
    Reference,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.action {
        Action::Check(arguments) => {
            check_files(&server::resolve(&arguments.flags)?)?;
            say("the configuration is right");
        }
        Action::Show(arguments) => say(&show(&arguments.flags)?),
        Action::Reference => say(reference::markdown().trim_end()),
    }
    Ok(())
}

/// What a server would miss at its start.
fn check_files(config: &Config) -> Result<(), Failure> {
    let is_secret_given = server::environment().iter().any(|(name, _)| name == "ASHLAR_SECRET");
    let own_secret = || (!config.join.is_empty()).then(|| config.data.join("cluster.secret"));
    let secret = config.secret_file.clone().or_else(own_secret).filter(|_| !is_secret_given);
    let tls = config.kv_tls.as_ref();
    let made = |folder: &PathBuf| folder.parent() == Some(&config.data);
    let drives = config.drives.iter().filter(|folder| !made(folder)).map(|folder| ("drives", folder.clone()));
    let named = [
        ("the secret of the cluster", secret),
        ("kv_password_file", config.kv_password_file.clone()),
        ("kv_tls_cert", tls.map(|tls| tls.certificate.clone())),
        ("kv_tls_key", tls.map(|tls| tls.key.clone())),
        ("kv_tls_ca", tls.and_then(|tls| tls.authorities.clone())),
    ];
    let named = named.into_iter().filter_map(|(what, path)| Some((what, path?)));
    let missing = named.chain(drives).filter(|(_, path)| !files::exists(path));
    let lines: Vec<String> = missing.map(|(what, path)| format!("{what}: there is no {}", path.display())).collect();
    if lines.is_empty() {
        return Ok(());
    }
    let what =
        format!("the values are right, and something is not there that a server needs:\n  {}", lines.join("\n  "));
    Err(Failure::world(what, "put it there, or correct the place"))
}

fn show(flags: &Flags) -> Result<String, Failure> {
    let values = server::collect(flags)?;
    let rows = KEYS.iter().map(|key| match (values.get(key.name), key.fallback) {
        (Some((value, source)), _) => vec![key.name.to_owned(), value.to_string(), source.to_string()],
        (None, Fallback::Required) => vec![key.name.to_owned(), "-".into(), "missing".into()],
        (None, Fallback::Computed(text) | Fallback::Fixed(text)) => {
            vec![key.name.to_owned(), "-".into(), format!("default: {}", text.replace('`', ""))]
        }
    });
    Ok(table::text(&["key", "value", "from"], &rows.collect::<Vec<_>>()))
}
