//! `cargo xtask verify`: everything that a merge needs, from a fresh clone, without writing to the tree.
//!
//! What it makes lies in cargo's target directory. Every step runs even if an earlier one failed, so that one run
//! tells everything. What the steps need from outside is looked for before the first one starts ([`requirements`]), and a step that
//! cannot run says "skipped", never "passed".

use std::path::Path;
use std::time::Duration;

use crate::asks_for_help;
use crate::failure::Failure;
use crate::process::{cargo, run, timed, within};
use crate::requirements::{self, Outcome};
use crate::terminal::say;
use crate::workspace::Workspace;
use crate::{clients, differ, fuzz, replay, sim, tidy};

const HELP: &str = "\
Checks everything that a merge needs and never writes to the tree. All steps run, whatever fails.

Usage: cargo xtask verify [--only STEP,..]

Steps:
  fmt     formatting
  clippy  lints, with warnings as errors
  tidy    the laws of the house that the compiler does not know
  test    every test
  doc     documentation, with warnings as errors
  sim     a fixed number of simulator seeds
  replay  random commands for most of a minute: the log and replicas have what the engine has
  clients redis-py, ioredis and go-redis against the key-value engine, as far as their languages are installed
  differ  20,000 random commands for redis-server and our engine, every reply equal; where redis-server is installed
  fuzz    every fuzz target for ten seconds, and a planted bug that must be found";

/// A step that takes longer than twice what the longest takes on two cores, from nothing, hangs.
const STEP_MAX: Duration = Duration::from_secs(40 * 60);

/// Seeds of the simulator that each merge passes.
const SIM_SEEDS: &str = "200";

/// Those of a shard whose writes a majority acknowledges.
const SIM_QUORUM: [&str; 3] = ["quorum", "--seeds", "300"];

/// Those of whole servers with key-value engines, some tenths of a second each.
const SIM_KV: [&str; 5] = ["kv", "--seeds", "60", "--from", "1000"];

/// Those of whole servers with the catalog, drives and volumes, some seconds each.
const SIM_CLUSTER: [&str; 5] = ["cluster", "--seeds", "25", "--from", "1000"];

/// Those of whole servers with objects, some seconds each.
const SIM_OBJECT: [&str; 5] = ["object", "--seeds", "12", "--from", "1000"];

/// The bus's: they take a few milliseconds each.
const SIM_BUS: [&str; 3] = ["bus", "--seeds", "2000"];

/// One step: its name and what it does.
type Step = (&'static str, fn(&Workspace) -> Result<Outcome, Failure>);

/// A step that has run: its name, what came of it and how long it took.
type Done = (&'static str, Result<Outcome, Failure>, Duration);

const STEPS: [Step; 10] = [
    ("fmt", fmt),
    ("clippy", clippy),
    ("tidy", |workspace| tidy::tidy(workspace).map(Outcome::passed)),
    ("test", test),
    ("doc", doc),
    ("sim", sim),
    ("replay", replay::smoke),
    ("clients", clients::clients),
    ("differ", differ::smoke),
    ("fuzz", |workspace| fuzz::smoke(workspace).map(Outcome::passed)),
];

/// Runs the chore.
pub(crate) fn command(arguments: &[String]) -> Result<(), Failure> {
    if asks_for_help(arguments) {
        say(HELP);
        return Ok(());
    }
    let steps = choose(arguments)?;
    let workspace = Workspace::load()?;
    let names: Vec<&str> = steps.iter().map(|(name, _)| *name).collect();
    requirements::look(&names)?;
    let (mut done, count) = (Vec::new(), steps.len());
    for (at, (name, step)) in steps.into_iter().enumerate() {
        say(&format!("\n=== verify: {name} ({} of {count})", at + 1));
        let (result, took) = timed(|| within(STEP_MAX, || step(&workspace)));
        done.push((name, result, took));
    }
    conclude(&done)
}

fn choose(arguments: &[String]) -> Result<Vec<Step>, Failure> {
    let only = match arguments {
        [] => return Ok(STEPS.to_vec()),
        [flag, names] if flag == "--only" => names.as_str(),
        [flag] => flag.strip_prefix("--only=").unwrap_or(""),
        _ => "",
    };
    if only.is_empty() {
        return Err(Failure::Usage("`verify` takes `--only STEP,..` and nothing else".into()));
    }
    let asked: Vec<&str> = only.split(',').map(str::trim).collect();
    if let Some(unknown) = asked.iter().find(|name| !STEPS.iter().any(|(known, _)| known == *name)) {
        let known: Vec<&str> = STEPS.iter().map(|(name, _)| *name).collect();
        return Err(Failure::Usage(format!("no step is called `{unknown}`; there are {}", known.join(", "))));
    }
    Ok(STEPS.into_iter().filter(|(name, _)| asked.contains(name)).collect())
}

/// Prints what each step came to and fails if one failed.
fn conclude(done: &[Done]) -> Result<(), Failure> {
    say("\n=== verify: summary");
    for (name, result, took) in done {
        let came_to = match result {
            Ok(outcome) => outcome.to_string(),
            Err(Failure::Usage(message) | Failure::Failed(message)) => format!("FAILED: {message}"),
        };
        say(&format!("{name:8} {:>7.1} s  {came_to}", took.as_secs_f64()));
    }
    verdict(done)
}

fn verdict(done: &[Done]) -> Result<(), Failure> {
    match done.iter().filter(|(_, result, _)| result.is_err()).count() {
        0 => Ok(()),
        count => Err(Failure::Failed(format!("verify: {count} of {} steps failed", done.len()))),
    }
}

fn fmt(workspace: &Workspace) -> Result<Outcome, Failure> {
    run(&mut cargo(&workspace.root, &["fmt", "--all", "--check"]))?;
    run(&mut cargo(&workspace.root, &["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"])).map(Outcome::passed)
}

fn clippy(workspace: &Workspace) -> Result<Outcome, Failure> {
    let arguments = ["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
    run(&mut cargo(&workspace.root, &arguments)).map(Outcome::passed)
}

fn test(workspace: &Workspace) -> Result<Outcome, Failure> {
    run(&mut cargo(&workspace.root, &["test", "--workspace", "--locked"])).map(Outcome::passed)
}

fn doc(workspace: &Workspace) -> Result<Outcome, Failure> {
    let arguments = ["doc", "--workspace", "--no-deps", "--locked"];
    run(cargo(&workspace.root, &arguments).env("RUSTDOCFLAGS", "-Dwarnings")).map(Outcome::passed)
}

fn sim(workspace: &Workspace) -> Result<Outcome, Failure> {
    let root: &Path = &workspace.root;
    sim::simulate(root, &["grid", "--seeds", SIM_SEEDS])?;
    sim::simulate(root, &["node", "--seeds", SIM_SEEDS])?;
    sim::simulate(root, &["catalog", "--seeds", SIM_SEEDS])?;
    sim::simulate(root, &SIM_KV)?;
    sim::simulate(root, &SIM_CLUSTER)?;
    sim::simulate(root, &SIM_OBJECT)?;
    sim::simulate(root, &SIM_QUORUM)?;
    sim::simulate(root, &SIM_BUS).map(Outcome::passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(words: &[&str]) -> Result<Vec<&'static str>, Failure> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        choose(&words).map(|steps| steps.iter().map(|(name, _)| *name).collect())
    }

    #[test]
    fn steps_run_in_their_own_order() {
        assert_eq!(chosen(&[]).map(|steps| steps.len()), Ok(STEPS.len()));
        assert_eq!(chosen(&["--only", "tidy,clippy"]), Ok(vec!["clippy", "tidy"]));
        assert_eq!(chosen(&["--only=test"]), Ok(vec!["test"]));
        for wrong in [&["--only"][..], &["--only", ""], &["--only", "tests"], &["--quick"], &["--only", "fmt", "x"]] {
            assert!(matches!(chosen(wrong), Err(Failure::Usage(_))), "{wrong:?}");
        }
    }

    #[test]
    fn one_failed_step_fails_the_whole() {
        let took = Duration::from_secs(1);
        assert!(
            verdict(&[("fmt", Ok(Outcome::Passed), took), ("doc", Ok(Outcome::Skipped("x".into())), took)]).is_ok()
        );
        let failed = Err(Failure::Failed("x".into()));
        assert!(verdict(&[("fmt", failed, took), ("doc", Ok(Outcome::Passed), took)]).is_err());
    }
}
