//! `ashlar kv`: the key-value engine alone, in the foreground; and looking after the engines of a cluster.

mod balance;
mod doors;
mod migrate;
mod password;
pub(super) mod picture;
pub(super) mod rebalance;
mod status;
pub(super) mod valkey;
mod words;

use std::path::{Path, PathBuf};

use self::picture::Asker;
use self::valkey::Configuration;
use crate::config::keys;
use crate::failure::Failure;
use crate::os::{self, files, kv, logs, process};

/// What `--help` says of what clap does not see: see [`words`].
const SETTINGS_HELP: &str = "\
Settings:
  --NAME VALUE... is any parameter of Valkey's configuration, for instance `--appendonly yes --save 60 1`. Settings and options stand in any \
order. A setting takes the words up to the next --NAME; --NAME=VALUE takes one. A name that stands under Options means what it says there, \
also where Valkey has a parameter of that name. docs/kv-parameters.md has all settings.";

/// Run the key-value engine alone: one server that any Redis or Valkey client can use.
///
/// Data is in memory, with a dump now and then (`save`), and an append log if that is switched on (`appendonly yes`).
#[derive(Debug, clap::Args)]
#[command(args_override_self = true, args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
#[command(after_help = SETTINGS_HELP)]
pub struct Arguments {
    #[command(subcommand)]
    care: Option<Care>,
    #[command(flatten)]
    doors: doors::DoorArguments,
    /// Threads that serve clients; one for each core unless given
    #[arg(long, value_name = "N", alias = "io-threads")]
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
}

/// Looking after the engines of a cluster.
#[derive(Debug, clap::Subcommand)]
enum Care {
    /// Show a cluster's replica groups: who serves which slots, who follows whom and how far behind
    Status {
        /// Print it as JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        asked: AskedEngine,
    },
    /// Give every slot an owner, every primary a replica on another server, and owners as many slots as each other
    ///
    /// Slots move while they are served. Safe to break off and to run again; where all is well it changes nothing.
    Rebalance {
        /// Print what would be done, and do nothing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        asked: AskedEngine,
    },
    /// Set the password of all engines of a cluster, or take it away
    ///
    /// The new one is read from a file, the terminal or standard input; it is never an argument. Says which engines did not get it.
    Password {
        #[command(flatten)]
        new: password::Arguments,
        #[command(flatten)]
        asked: AskedEngine,
    },
}

/// The engine to ask.
#[derive(Debug, clap::Args)]
struct AskedEngine {
    /// An engine of the cluster; it names the others. Engines with a password need it: in `ASHLAR_KV_PASSWORD`, or a file
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:6379", value_parser = keys::place)]
    addr: String,
    /// File whose first line is the engines' present password; stronger than `ASHLAR_KV_PASSWORD`
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
}

impl AskedEngine {
    fn asker(&self) -> Result<Asker, Failure> {
        let password = match &self.password_file {
            Some(path) => Some(password_in(path)?),
            None => std::env::var("ASHLAR_KV_PASSWORD").ok().filter(|password| !password.is_empty()),
        };
        Ok(Asker::new(vec![self.addr.clone()], password))
    }
}

/// The password in a file.
pub(super) fn password_in(path: &Path) -> Result<String, Failure> {
    let failed = |why: &str| {
        Failure::usage(
            format!("no password in {}: {why}", path.display()),
            "give a file whose first line is the password",
        )
    };
    let text = files::read_text(path).map_err(|error| failed(&error.to_string()))?;
    let text = text.ok_or_else(|| failed("there is no such file"))?;
    password::first_line(&text).map(str::to_owned).map_err(|why| failed(&why))
}

impl Care {
    fn run(&self) -> Result<(), Failure> {
        os::block_on(async {
            match self {
                Self::Status { json, asked } => {
                    let told = status::ask(&mut asked.asker()?).await.map_err(|why| {
                        let remedy = "name an engine of a cluster with --addr HOST:PORT (`ashlar up` starts some)";
                        let remedy = picture::closed_remedy(&why).unwrap_or(remedy);
                        Failure::world(why, remedy)
                    })?;
                    let shown =
                        if *json { serde_json::to_string_pretty(&told).ok() } else { Some(status::text(&told)) };
                    super::say(&shown.unwrap_or_default());
                }
                Self::Rebalance { dry_run: true, asked } => {
                    let lines = rebalance::plan(&mut asked.asker()?, &mut |line| super::note(line)).await?;
                    lines.iter().for_each(|line| super::say(line));
                    let end =
                        if lines.is_empty() { "nothing is left to do" } else { "nothing was changed (--dry-run)" };
                    super::say(end);
                }
                Self::Rebalance { dry_run: false, asked } => {
                    let engines = rebalance::run(&mut asked.asker()?, None, &mut |line| super::say(line)).await?;
                    super::say(&rebalance::end(&engines));
                }
                Self::Password { new, asked } => password::run(new, &mut asked.asker()?).await?,
            }
            Ok(())
        })
        .map_err(|error| super::no_runtime(&error))?
    }
}

/// Says which lines of a configuration a person would expect something of that does not happen.
fn tell_without_effect(settings: &[(String, String)], gone: &[String]) {
    for name in gone {
        tracing::info!(name, "this parameter of older versions means nothing any more");
    }
    let last = |name: &str| settings.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    for (name, nothing, instead) in [
        ("daemonize", "no", "the engine stays in the foreground"),
        ("logfile", "", "the log goes to standard error"),
        ("syslog-enabled", "no", "the log goes to standard error"),
        ("pidfile", "", "no such file is written"),
        ("unixsocketgroup", "", "the socket has the group of the process"),
    ] {
        if let Some(value) = last(name).filter(|value| *value != nothing) {
            tracing::info!(name, value, "this parameter has no effect: {instead}");
        }
    }
}

pub(super) fn run(arguments: &Arguments, configuration: Configuration) -> Result<(), Failure> {
    if let Some(care) = &arguments.care {
        return care.run();
    }
    logs::start("info", false);
    assert!(arguments.config.is_none(), "the file of --config is read before other options are parsed");
    let Configuration { file, settings, users, gone } = configuration;
    tell_without_effect(&settings, &gone);
    let plan = kv::Plan {
        doors: doors::plan(&arguments.doors),
        workers: arguments.workers.unwrap_or_else(process::cores),
        databases: usize::from(arguments.databases),
        import: arguments.import.clone(),
        settings,
        config_file: file,
        users,
        cluster_engine: None,
        store: None,
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
