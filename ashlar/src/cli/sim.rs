//! `ashlar sim`: clusters in virtual time. The simulator reads its words itself; `ashlar-sim` takes the same ones.

use std::process::ExitCode;

use clap::Args;

use crate::os::logs;

/// Arguments of `ashlar sim`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct Arguments {
    /// The name of a simulation and its options: `ashlar sim --help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORDS")]
    words: Vec<String>,
}

/// Runs the command.
#[must_use]
pub fn run(arguments: Arguments) -> ExitCode {
    // What the simulated servers log, at these levels: for one seed that fails.
    if let Ok(levels) = std::env::var("ASHLAR_LOG") {
        logs::start(&levels, false);
    }
    ashlar_sim::command::run(arguments.words.into_iter())
}
