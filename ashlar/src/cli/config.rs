//! `ashlar config`: check, show, reference.

use clap::Subcommand;

use super::{say, server, table};
use crate::config::flags::Flags;
use crate::config::keys::{Fallback, KEYS};
use crate::config::reference;
use crate::failure::Failure;

/// Check, show or describe the configuration.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Say whether a server would accept this configuration; starts nothing
    Check(server::Arguments),
    /// Print every key's value and where it comes from
    Show(server::Arguments),
    /// Print the reference page, as Markdown
    Reference,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.action {
        Action::Check(arguments) => {
            server::resolve(&arguments.flags)?;
            say("the configuration is right");
        }
        Action::Show(arguments) => say(&show(&arguments.flags)?),
        Action::Reference => say(reference::markdown().trim_end()),
    }
    Ok(())
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
