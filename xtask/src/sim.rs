//! `cargo xtask sim`: the simulator in the test profile, where it is fast and every check is on.

use std::path::Path;

use crate::asks_for_help;
use crate::failure::Failure;
use crate::process::{cargo, run};
use crate::terminal::say;
use crate::workspace::Workspace;

/// The package of the simulator.
pub(crate) const SIMULATOR: &str = "ashlar-sim";

const HELP: &str = "\
Runs the simulator, optimised and with every check on. Its own arguments follow; `cargo xtask sim -- --help` lists them.

Usage: cargo xtask sim [ARGUMENTS]

Examples: cargo xtask sim grid --seed 17
          cargo xtask sim bus --members 200 --kill 50%";

/// Runs the chore.
pub(crate) fn command(arguments: &[String]) -> Result<(), Failure> {
    let (own, passed) = match arguments.iter().position(|argument| argument == "--") {
        Some(at) => (&arguments[..at], [&arguments[..at], &arguments[at + 1..]].concat()),
        None => (arguments, arguments.to_vec()),
    };
    if asks_for_help(own) {
        say(HELP);
        return Ok(());
    }
    let workspace = Workspace::load()?;
    if !workspace.has_member(SIMULATOR) {
        return Err(Failure::Failed(format!("`{SIMULATOR}` is not a member of the workspace")));
    }
    let passed: Vec<&str> = passed.iter().map(String::as_str).collect();
    simulate(&workspace.root, &passed)
}

/// Builds the simulator and runs it with these arguments.
pub(crate) fn simulate(root: &Path, arguments: &[&str]) -> Result<(), Failure> {
    let own = ["run", "--locked", "--profile", "test", "--package", SIMULATOR, "--"];
    run(&mut cargo(root, &[&own, arguments].concat()))
}
