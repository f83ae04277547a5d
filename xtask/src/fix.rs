//! `cargo xtask fix`: the chore that writes.

use crate::failure::Failure;
use crate::process::{cargo, run};
use crate::terminal::say;
use crate::workspace::Workspace;
use crate::{asks_for_help, expect_nothing};

const HELP: &str = "\
Applies what clippy can repair by itself, then formats everything. Look at the difference before you commit it.

Usage: cargo xtask fix";

/// Runs the chore.
pub(crate) fn command(arguments: &[String]) -> Result<(), Failure> {
    if asks_for_help(arguments) {
        say(HELP);
        return Ok(());
    }
    expect_nothing("fix", arguments)?;
    let workspace = Workspace::load()?;
    let root = &workspace.root;
    run(&mut cargo(root, &["clippy", "--workspace", "--all-targets", "--fix", "--allow-dirty", "--allow-staged"]))?;
    run(&mut cargo(root, &["fmt", "--all"]))?;
    run(&mut cargo(root, &["fmt", "--manifest-path", "fuzz/Cargo.toml"]))
}
