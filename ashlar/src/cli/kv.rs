//! `ashlar kv`: the key-value engine alone, in the foreground.

mod doors;
pub(super) mod valkey;

use std::path::PathBuf;

use self::valkey::Configuration;
use crate::failure::Failure;
use crate::os::{kv, logs, process};

/// Run the key-value engine alone: one server that any Redis or Valkey client can use.
///
/// Data is in memory, with a dump now and then (`save`), and an append log if that is switched on (`appendonly yes`).
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct Arguments {
    #[command(flatten)]
    doors: doors::DoorArguments,
    /// Threads that serve clients; one for each core unless given
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// How many databases there are
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    databases: u16,
    /// Configuration file of Valkey or Redis; what else is given stands above it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// RDB file of Redis or Valkey whose keys are there from the start
    #[arg(long, value_name = "FILE")]
    import: Option<PathBuf>,
    /// Settings by the names of Valkey's configuration, after all other options: `--appendonly yes --save 60 1`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "--NAME VALUE")]
    settings: Vec<String>,
}

/// Settings from words: a name after two dashes, and the words behind it up to the next.
fn read_settings(words: &[String]) -> Result<Vec<(String, String)>, Failure> {
    let mut settings: Vec<(String, String)> = Vec::new();
    for word in words {
        match (word.strip_prefix("--"), settings.last_mut()) {
            (Some(name), _) => settings.push((name.to_owned(), String::new())),
            (None, Some((_, value))) if value.is_empty() => value.clone_from(word),
            (None, Some((_, value))) => *value = format!("{value} {word}"),
            (None, None) => {
                let what = format!("`{word}` is no setting");
                return Err(Failure::usage(what, "give settings as --NAME VALUE"));
            }
        }
    }
    Ok(settings)
}

pub(super) fn run(arguments: &Arguments, configuration: Configuration) -> Result<(), Failure> {
    logs::start("info", false);
    if let Some(file) = &arguments.config {
        // It was taken out where it could be read.
        return Err(Failure::usage(
            format!("{} is not read here", file.display()),
            "give --config FILE before settings",
        ));
    }
    let Configuration { file, mut settings, users } = configuration;
    settings.extend(read_settings(&arguments.settings)?);
    let plan = kv::Plan {
        doors: doors::plan(&arguments.doors),
        workers: arguments.workers.unwrap_or_else(process::cores),
        databases: usize::from(arguments.databases),
        import: arguments.import.clone(),
        settings,
        config_file: file,
        users,
        seating: None,
    };
    let started = |listening: &[kv::doors::Listening]| {
        super::say(&format!("ashlar {}, PID: {}", env!("CARGO_PKG_VERSION"), std::process::id()));
        super::say("Server initialized");
        for door in listening {
            // The line that tools which start Valkey wait for.
            super::say(&format!("Ready to accept connections {} on {}", door.kind, door.place));
        }
    };
    if kv::cluster::is_wanted(&plan) {
        let secret = std::env::var("ASHLAR_SECRET").ok();
        return kv::cluster::run(&plan, secret.as_deref(), started);
    }
    kv::run(&plan, started)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_words_after_a_name() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let read = read_settings(&words("--save 60 1 300 10 --appendonly yes --requirepass")).unwrap();
        let expected = [("save", "60 1 300 10"), ("appendonly", "yes"), ("requirepass", "")];
        assert_eq!(read, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert!(read_settings(&words("yes")).is_err());
    }
}
