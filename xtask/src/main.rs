//! The repository's own chores, in Rust.
//!
//! `verify` says whether the tree may be merged and never writes to it; `fix` writes; `tidy` holds the laws of the
//! house that neither the compiler nor clippy knows; `fuzz` and `sim` run the two machines that look for bugs, and
//! `mutants` tells what these and the tests would not notice.
//! Exit codes: 0 done, 1 failed, 2 asked wrongly.

mod clients;
mod dice;
mod differ;
mod failure;
mod fix;
mod fuzz;
mod mutants;
mod process;
mod replay;
mod requirements;
mod sim;
mod talk;
mod terminal;
mod tidy;
mod verify;
mod workspace;

use std::process::ExitCode;

use failure::Failure;
use terminal::{complain, say};

const HELP: &str = "\
The repository's own chores.

Usage: cargo xtask COMMAND [ARGUMENTS]

Commands:
  verify [--only STEP,..]        everything a merge needs; never writes to the tree
  fix                            format, and apply what clippy can repair by itself
  tidy                           the laws of the house that the compiler does not know
  fuzz [TARGET|all] [--seconds N] [--input FILE]
                                 libFuzzer over the decoders and state machines
  sim [ARGUMENTS]                the simulator, with every check on
  mutants PACKAGE [--module PATH] [--sample N] [--seed S]
                                 which small changes of a package its tests and its simulator notice
  replay [--commands N] [--seed S]
                                 random commands, then a restart from the log and replicas with the same content
  differ [--commands N] [--seed S] [--ours HOST:PORT]
                                 the same random commands for redis-server and our engine
  clients [--install]            other people's clients against the key-value engine

`cargo xtask COMMAND --help` tells more. Exit codes: 0 done, 1 failed, 2 asked wrongly.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(message)) => {
            complain(&format!("error: {message}\n\nTry `cargo xtask --help`."));
            ExitCode::from(2)
        }
        Err(Failure::Failed(message)) => {
            complain(&format!("error: {message}"));
            ExitCode::FAILURE
        }
    }
}

fn dispatch(arguments: &[String]) -> Result<(), Failure> {
    let Some((command, rest)) = arguments.split_first() else {
        return Err(Failure::Usage("a command is missing".into()));
    };
    match command.as_str() {
        "verify" => verify::command(rest),
        "fix" => fix::command(rest),
        "tidy" => tidy::command(rest),
        "fuzz" => fuzz::command(rest),
        "sim" => sim::command(rest),
        "mutants" => mutants::command(rest),
        "clients" => clients::command(rest),
        "replay" => replay::command(rest),
        "differ" => differ::command(rest),
        "help" | "--help" | "-h" => {
            say(HELP);
            Ok(())
        }
        other => Err(Failure::Usage(format!("no command is called `{other}`"))),
    }
}

/// Whether a person asks for help instead of work.
fn asks_for_help(arguments: &[String]) -> bool {
    arguments.iter().any(|argument| argument == "--help" || argument == "-h")
}

/// Fails unless nothing follows the command.
fn expect_nothing(command: &str, arguments: &[String]) -> Result<(), Failure> {
    match arguments.first() {
        None => Ok(()),
        Some(argument) => Err(Failure::Usage(format!("`{command}` takes no argument, but got `{argument}`"))),
    }
}
