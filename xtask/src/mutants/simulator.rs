//! The simulators: which of them covers a package, and what it says to a mutant that all tests passed.
//!
//! A simulator checks promises (nothing acknowledged is lost, one history, one owner) under faults that unit tests do not
//! combine. It runs the same seeds on the unchanged tree first: otherwise a seed that always fails would catch every mutant.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::list::Mutant;
use super::score::Verdict;
use super::switch::Number;
use super::switched::Build;
use super::tree::Tree;
use crate::failure::Failure;
use crate::process::{cargo, timed, within};
use crate::terminal::say;

/// A program with simulations, as cargo is told to build it.
type Program = &'static [&'static str];

/// The crash enumerators of a drive, at full speed: they are eight times slower in the test profile.
const STORE: Program =
    &["--profile", "sim", "--package", "ashlar-store", "--features", "proof", "--example", "store_states"];

/// Placement groups alone.
const REPLICA: Program =
    &["--profile", "sim", "--package", "ashlar-replica", "--features", "proof", "--example", "replica_seeds"];

/// Whole servers, in the test profile: it is built incrementally, which saves more than a faster program would.
const SIM: Program = &["--profile", "test", "--package", "ashlar-sim"];

/// A package, the program that covers it and the arguments of its runs. The first run that fails is the last.
type Row = (&'static str, Program, &'static [&'static [&'static str]]);

/// Seeds and states are as many as run in a minute or two on two cores; those of whole servers are the ones that `verify` passes.
const ROWS: [Row; 9] = [
    ("ashlar-bus", SIM, &[&["bus", "--seeds", "2000"]]),
    ("ashlar-catalog", SIM, &[&["catalog", "--seeds", "200"]]),
    ("ashlar-grid", SIM, &[&["grid", "--seeds", "200"]]),
    ("ashlar-kv", SIM, &[&["replay", "--commands", "200000"], &["quorum", "--seeds", "150"], &KV]),
    ("ashlar-node", SIM, &[&["node", "--seeds", "100"], &KV, &CLUSTER, &OBJECT]),
    ("ashlar-object", SIM, &[&OBJECT]),
    ("ashlar-replica", REPLICA, &[&["1", "1000"]]),
    (
        "ashlar-store",
        STORE,
        &[&["extents", "1", "3000"], &["blobs", "1", "3000"], &["flips", "1", "500"], &["misplaced", "1", "2000"]],
    ),
    ("ashlar-volume", SIM, &[&CLUSTER]),
];

const KV: [&str; 5] = ["kv", "--seeds", "40", "--from", "1000"];

const OBJECT: [&str; 5] = ["object", "--seeds", "12", "--from", "1000"];

const CLUSTER: [&str; 5] = ["cluster", "--seeds", "25", "--from", "1000"];

/// A run on a mutant may take so many times as long as on the unchanged tree; then it hangs. As with tests.
const TIMES_MAX: u32 = 5;

/// And at least so long: the machine may do other work as well.
const RUN_MIN: Duration = Duration::from_secs(60);

/// How long a build may take from nothing, and a run on the unchanged tree.
const UNCHANGED_MAX: Duration = Duration::from_secs(40 * 60);

/// The simulator of a package.
#[derive(Debug)]
pub(super) struct Simulator {
    /// What cargo builds there.
    build: PathBuf,
    /// What the simulator printed.
    log: PathBuf,
    program: Program,
    runs: &'static [&'static [&'static str]],
    /// How long a run on a mutant may take; nothing before the runs on the unchanged tree.
    limit: Option<Duration>,
}

impl Simulator {
    /// The one that covers this package, if there is one. What it makes lies below `place`.
    pub(super) fn of(package: &str, place: &Path) -> Option<Self> {
        let (_, program, runs) = ROWS.into_iter().find(|(covered, ..)| *covered == package)?;
        let log = place.join(package).join("simulator.log");
        Some(Self { build: place.join("build/simulators"), log, program, runs, limit: None })
    }

    /// Runs the simulator on the copy of the tree with this mutant. Before the first mutant it runs on the copy unchanged.
    ///
    /// # Errors
    /// It fails on the unchanged tree.
    pub(super) fn judge(&mut self, tree: &Tree, mutant: &Mutant) -> Result<Verdict, Failure> {
        let limit = match self.limit {
            Some(limit) => limit,
            None => {
                let limit = self.pass_unchanged(tree, &self.own())?;
                *self.limit.insert(limit)
            }
        };
        let file = Path::new(&mutant.file);
        let text = tree.read(file)?;
        let changed = mutant.apply(&text).ok_or_else(|| {
            Failure::Failed(format!("{}: the file has no such place (is this cargo-mutants tested?)", mutant.name))
        })?;
        tree.write(file, changed.as_bytes())?;
        let verdict = self.run_all(tree, limit, &mutant.name, &self.own());
        tree.write(file, text.as_bytes())?;
        verdict
    }

    /// Runs the simulator, built once with switches, with each of these mutants, and tells as they come what it made of it.
    ///
    /// # Errors
    /// It fails without a mutant.
    pub(super) fn judge_switched<'m>(
        &self,
        build: &Build<'_>,
        mutants: &[(Number, &'m Mutant)],
        mut tell: impl FnMut(&'m Mutant, Verdict),
    ) -> Result<(), Failure> {
        if mutants.is_empty() {
            return Ok(());
        }
        let limit = self.pass_unchanged(build.tree, &|command| build.switch(command, 0))?;
        for (number, mutant) in mutants {
            let verdict = self.run_all(build.tree, limit, &mutant.name, &|command| build.switch(command, *number))?;
            tell(mutant, verdict);
        }
        Ok(())
    }

    /// A build of the simulator alone, for one mutant.
    fn own(&self) -> impl Fn(&mut Command) {
        |command| {
            command.env("CARGO_TARGET_DIR", &self.build);
        }
    }

    /// Runs the simulator without a mutant and returns how long a run on a mutant may take.
    fn pass_unchanged(&self, tree: &Tree, prepare: &dyn Fn(&mut Command)) -> Result<Duration, Failure> {
        say("the simulator runs without a mutant first");
        // An old log would be taken for one of this run.
        fs::remove_file(&self.log).ok();
        // The first build is not in the time.
        self.log(&mut self.cargo(tree, "build", prepare), UNCHANGED_MAX, "unchanged")?;
        let (verdict, took) = timed(|| self.run_all(tree, UNCHANGED_MAX, "unchanged", prepare));
        match verdict? {
            Verdict::Survived => Ok((took * TIMES_MAX).max(RUN_MIN)),
            _ => Err(Failure::Failed(format!("the simulator fails without a mutant (log: {})", self.log.display()))),
        }
    }

    fn run_all(
        &self,
        tree: &Tree,
        limit: Duration,
        title: &str,
        prepare: &dyn Fn(&mut Command),
    ) -> Result<Verdict, Failure> {
        if !self.log(&mut self.cargo(tree, "build", prepare), UNCHANGED_MAX, title)? {
            return Ok(Verdict::Unviable);
        }
        for arguments in self.runs {
            if !self.log(self.cargo(tree, "run", prepare).arg("--").args(*arguments), limit, title)? {
                return Ok(Verdict::CaughtBySimulator);
            }
        }
        Ok(Verdict::Survived)
    }

    fn cargo(&self, tree: &Tree, what: &str, prepare: &dyn Fn(&mut Command)) -> Command {
        let mut command = cargo(&tree.root, &[what, "--locked"]);
        command.args(self.program);
        prepare(&mut command);
        command
    }

    /// Runs a command, with what it prints at the end of the log; whether it succeeded within `limit`.
    fn log(&self, command: &mut Command, limit: Duration, title: &str) -> Result<bool, Failure> {
        let failed = |error| Failure::io(&self.log.to_string_lossy(), &error);
        let mut log = File::options().create(true).append(true).open(&self.log).map_err(failed)?;
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        writeln!(log, "\n=== {title}\n$ cargo {}", words.join(" ")).map_err(failed)?;
        command.stderr(log.try_clone().map_err(failed)?).stdout(log);
        let status = within(limit, || command.status()).map_err(|error| Failure::io("cargo", &error))?;
        Ok(status.success())
    }
}
