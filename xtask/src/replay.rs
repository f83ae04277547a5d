//! `cargo xtask replay`: what is logged and replicated is what happened, shown with random commands.
//!
//! The simulator does it (`sim/src/replay.rs`); this builds it: in the test profile for `verify`, which has it built already, and
//! optimised for runs of millions of commands.

use crate::asks_for_help;
use crate::failure::Failure;
use crate::process::{cargo, run};
use crate::requirements::Outcome;
use crate::sim::{SIMULATOR, simulate};
use crate::terminal::say;
use crate::workspace::Workspace;

const HELP: &str = "\
Random commands of the whole command table on a key-value engine; then an engine that read its log, one that read base and log, and two
replicas must have the same content, key by key.

Usage: cargo xtask replay [--commands N] [--seed S] [--life N] [--keep-going] [--json]

  --commands N  how many commands [default: 100000]
  --seed S      which ones [default: 1]
  --life N      this life of the seed only, as a failure names it
  --keep-going  do not stop at the first difference

A difference is printed as the shortest list of commands that was found to show it.";

/// What each merge passes: a number, so that a failure is the same everywhere. It takes most of a minute.
const SMOKE: [&str; 3] = ["replay", "--commands", "500000"];

/// Runs the chore.
pub(crate) fn command(arguments: &[String]) -> Result<(), Failure> {
    if asks_for_help(arguments) {
        say(HELP);
        return Ok(());
    }
    let workspace = Workspace::load()?;
    let own = ["run", "--locked", "--profile", "sim", "--package", SIMULATOR, "--", "replay"];
    let passed: Vec<&str> = arguments.iter().map(String::as_str).collect();
    run(&mut cargo(&workspace.root, &[&own, &passed[..]].concat()))
}

/// Most of a minute of it.
pub(crate) fn smoke(workspace: &Workspace) -> Result<Outcome, Failure> {
    simulate(&workspace.root, &SMOKE).map(Outcome::passed)
}
