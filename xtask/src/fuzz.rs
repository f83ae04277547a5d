//! `cargo xtask fuzz`: libFuzzer on the stable toolchain.
//!
//! What cargo-fuzz does on nightly is a set of flags to LLVM: its coverage pass is in every rustc, and libFuzzer comes
//! as a crate. No sanitizer is needed, because a bug here is a panic or a broken assertion; `unsafe` has its own tests.
//! The targets are a workspace of their own in `fuzz/`, so that nothing of this reaches the program.
//!
//! Proof of the fuzzer: `planted` holds a bug that only coverage leads to; each smoke must find it.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{sync::mpsc, thread};

use crate::asks_for_help;
use crate::failure::Failure;
use crate::process::{cargo, output, run};
use crate::terminal::{complain, say};
use crate::workspace::Workspace;

const HELP: &str = "\
Runs libFuzzer over the targets in fuzz/fuzz_targets, optimised and with every check on. Stable Rust and a C++ compiler
are all it needs. Finds are kept in fuzz/corpus/TARGET and go on growing; what breaks a target is kept in
fuzz/artifacts/TARGET; fuzz/seeds/TARGET is committed and never written to.

Usage: cargo xtask fuzz [TARGET|all] [--seconds N] [--input FILE]

  TARGET       one target, `all` (the default), or `planted`: succeeds if the fuzzer finds a bug planted for it
  --seconds N  how long each target runs; 60 if absent
  --input FILE runs one target once with this input, to see a finding again";

/// Code coverage for libFuzzer out of a stable rustc.
const COVERAGE_FLAGS: [&str; 6] = [
    "-Dwarnings",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// What every target is held to: memory in MiB, seconds for one input.
const LIMITS: [&str; 3] = ["-rss_limit_mb=2048", "-timeout=10", "-print_final_stats=1"];

/// The target that must be broken, and what it then says.
const PLANTED: &str = "planted";
const PLANTED_PANIC: &str = "the planted bug was reached";

/// Inputs within which the planted bug must be found; about two million suffice with coverage, 2^47 without.
const PLANTED_RUNS: &str = "-runs=100000000";

const SECONDS: u32 = 60;
const SMOKE_SECONDS: u32 = 10;

/// Lines of a broken target's output that are shown.
const TAIL_LINES_MAX: usize = 60;

/// What a person asked for.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    target: String,
    seconds: u32,
    input: Option<String>,
}

/// A built set of targets and where their files go.
struct Fuzzer {
    seeds: PathBuf,
    inputs: PathBuf,
    corpus: PathBuf,
    artifacts: PathBuf,
    binaries: PathBuf,
    shows_progress: bool,
}

/// What one run of a target came to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    executions: u64,
    executions_per_s: u64,
    coverage: u64,
    inputs: String,
    tail: Vec<String>,
    reached_planted: bool,
    succeeded: bool,
}

/// Runs the chore.
pub(crate) fn command(arguments: &[String]) -> Result<(), Failure> {
    if asks_for_help(arguments) {
        say(HELP);
        return Ok(());
    }
    let request = read(arguments)?;
    let workspace = Workspace::load()?;
    let targets = choose(&request.target, targets(&workspace.root)?)?;
    let binaries = build(&workspace)?;
    let here = workspace.root.join("fuzz");
    let fuzzer = Fuzzer {
        seeds: here.join("seeds"),
        inputs: here.join("corpus"),
        corpus: here.join("corpus"),
        artifacts: here.join("artifacts"),
        binaries,
        shows_progress: true,
    };
    match &request.input {
        Some(input) => run(Command::new(fuzzer.binaries.join(&targets[0])).args(LIMITS).arg(input)),
        None => fuzzer.run_all(&targets, request.seconds),
    }
}

/// Every target for a short while and the planted bug, writing below cargo's target directory only.
pub(crate) fn smoke(workspace: &Workspace) -> Result<(), Failure> {
    let mut targets = targets(&workspace.root)?;
    targets.push(PLANTED.to_owned());
    let binaries = build(workspace)?;
    let smoke = workspace.target.join("fuzz-smoke");
    let fuzzer = Fuzzer {
        seeds: workspace.root.join("fuzz/seeds"),
        inputs: workspace.root.join("fuzz/corpus"),
        corpus: smoke.join("corpus"),
        artifacts: smoke.join("artifacts"),
        binaries,
        shows_progress: false,
    };
    fuzzer.run_all(&targets, SMOKE_SECONDS)
}

fn read(arguments: &[String]) -> Result<Request, Failure> {
    let mut request = Request { target: String::new(), seconds: SECONDS, input: None };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut value =
            || arguments.next().cloned().ok_or_else(|| Failure::Usage(format!("`{argument}` needs a value")));
        match argument.as_str() {
            "--seconds" => {
                let text = value()?;
                request.seconds = text.parse().ok().filter(|&seconds| seconds > 0).ok_or_else(|| {
                    Failure::Usage(format!("`--seconds` needs a whole number above 0, but got `{text}`"))
                })?;
            }
            "--input" => request.input = Some(value()?),
            target if !target.starts_with('-') && request.target.is_empty() => request.target = target.to_owned(),
            other => return Err(Failure::Usage(format!("`fuzz` does not know `{other}`"))),
        }
    }
    if request.target.is_empty() {
        "all".clone_into(&mut request.target);
    }
    if request.input.is_some() && request.target == "all" {
        return Err(Failure::Usage("`--input` needs one target".into()));
    }
    Ok(request)
}

/// The names of the targets, without the planted one, sorted.
fn targets(root: &Path) -> Result<Vec<String>, Failure> {
    let directory = root.join("fuzz/fuzz_targets");
    let failed = |error| Failure::io("fuzz/fuzz_targets", &error);
    let mut targets = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let file = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        targets.extend(file.strip_suffix(".rs").filter(|name| *name != PLANTED).map(str::to_owned));
    }
    targets.sort();
    Ok(targets)
}

fn choose(asked: &str, known: Vec<String>) -> Result<Vec<String>, Failure> {
    if asked == "all" {
        return Ok(known);
    }
    if asked == PLANTED || known.iter().any(|name| name == asked) {
        return Ok(vec![asked.to_owned()]);
    }
    Err(Failure::Usage(format!("no fuzz target is called `{asked}`; there are {}, {PLANTED}", known.join(", "))))
}

/// Builds every target and returns the directory of the binaries.
fn build(workspace: &Workspace) -> Result<PathBuf, Failure> {
    let host = host()?;
    let directory = workspace.target.join("fuzz");
    let shown = directory.to_string_lossy().into_owned();
    let arguments =
        ["build", "--release", "--locked", "--bins", "--manifest-path", "fuzz/Cargo.toml", "--target", &host];
    let mut build = cargo(&workspace.root, &[&arguments[..], &["--target-dir", &shown]].concat());
    // The target is named so that the flags reach the targets, but no build script.
    run(build.env_remove("CARGO_ENCODED_RUSTFLAGS").env("RUSTFLAGS", COVERAGE_FLAGS.join(" ")))?;
    Ok(directory.join(host).join("release"))
}

fn host() -> Result<String, Failure> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = output(Command::new(rustc).arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| Failure::Failed("rustc does not name its host".into()))
}

impl Fuzzer {
    /// Runs the targets, one on each processor at a time, prints a line of a table as each ends and fails if one of them did.
    fn run_all(&self, targets: &[String], seconds: u32) -> Result<(), Failure> {
        say(&format!(
            "{:12} {:>13} {:>10} {:>9} {:>13}  result",
            "target", "executions", "exec/s", "coverage", "corpus"
        ));
        let at_once = thread::available_parallelism().map_or(1, NonZero::get);
        let (next, mut broken) = (AtomicUsize::new(0), Vec::new());
        let (tell, told) = mpsc::channel();
        let take_turns = |tell: &mpsc::Sender<_>| {
            while let Some(target) = targets.get(next.fetch_add(1, Ordering::Relaxed)) {
                tell.send((target.as_str(), self.run_one(target, seconds))).expect("heard until all have ended");
            }
        };
        thread::scope(|scope| {
            for _ in 0..at_once {
                let tell = tell.clone();
                scope.spawn(move || take_turns(&tell));
            }
            drop(tell);
            for (target, outcome) in told {
                if !show(target, &outcome?) {
                    broken.push(target);
                }
            }
            Ok(())
        })?;
        if broken.is_empty() {
            return Ok(());
        }
        let artifacts = self.artifacts.display();
        Err(Failure::Failed(format!(
            "fuzz: {} failed; what broke it is below {artifacts} (see it again with `cargo xtask fuzz TARGET --input FILE`)",
            broken.join(", ")
        )))
    }

    fn run_one(&self, target: &str, seconds: u32) -> Result<Outcome, Failure> {
        let (corpus, artifacts) = (self.corpus.join(target), self.artifacts.join(target));
        for directory in [&corpus, &artifacts] {
            fs::create_dir_all(directory).map_err(|error| Failure::io(&directory.to_string_lossy(), &error))?;
        }
        let mut command = Command::new(self.binaries.join(target));
        command.args(LIMITS).arg(format!("-artifact_prefix={}/", artifacts.display()));
        if target == PLANTED {
            // Always from nothing and always the same way, or it would prove nothing the second time.
            command.args([PLANTED_RUNS, "-seed=1"]);
        } else {
            command.arg(format!("-max_total_time={seconds}")).arg(&corpus);
            let more = [self.seeds.join(target), self.inputs.join(target)];
            command.args(more.iter().filter(|directory| directory.is_dir() && **directory != corpus));
        }
        self.watch(target, &mut command)
    }

    /// Runs a target and reads what it reports on its standard error.
    fn watch(&self, target: &str, command: &mut Command) -> Result<Outcome, Failure> {
        let failed =
            |error| Failure::io(&format!("fuzz target `{target}` (has fuzz/Cargo.toml a [[bin]] for it?)"), &error);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(failed)?;
        let report = child.stderr.take().expect("standard error was piped above");
        let mut outcome = Outcome::default();
        for line in BufReader::new(report).split(b'\n') {
            let line = String::from_utf8_lossy(&line.map_err(failed)?).into_owned();
            if self.shows_progress && (line.contains("\tpulse") || line.contains("\tDONE")) {
                complain(&format!("{target}: {line}"));
            }
            outcome.read(line);
        }
        outcome.succeeded = child.wait().map_err(failed)?.success();
        Ok(outcome)
    }
}

/// Prints the line of a target that has ended; whether it did what it must.
fn show(target: &str, outcome: &Outcome) -> bool {
    let verdict = outcome.verdict(target);
    let Outcome { executions, executions_per_s, coverage, inputs, .. } = outcome;
    let result = verdict.as_ref().unwrap_or_else(|broken| broken);
    say(&format!("{target:12} {executions:>13} {executions_per_s:>10} {coverage:>9} {inputs:>13}  {result}"));
    if verdict.is_err() {
        outcome.tail.iter().for_each(|line| complain(line));
    }
    verdict.is_ok()
}

impl Outcome {
    /// Takes in one line of libFuzzer's report.
    fn read(&mut self, line: String) {
        let number = |text: Option<&str>| text.and_then(|text| text.trim().parse().ok());
        if let Some(executions) = number(line.strip_prefix("stat::number_of_executed_units:")) {
            self.executions = executions;
        } else if let Some(rate) = number(line.strip_prefix("stat::average_exec_per_sec:")) {
            self.executions_per_s = rate;
        } else if line.starts_with('#') {
            let after = |word| line.split_whitespace().skip_while(move |next| *next != word).nth(1);
            self.coverage = number(after("cov:")).unwrap_or(self.coverage);
            self.inputs = after("corp:").map_or_else(|| std::mem::take(&mut self.inputs), str::to_owned);
        }
        self.reached_planted |= line == PLANTED_PANIC;
        if self.tail.len() == TAIL_LINES_MAX {
            self.tail.remove(0);
        }
        self.tail.push(line);
    }

    /// `Ok` and `Err` both hold what the table says.
    fn verdict(&self, target: &str) -> Result<String, String> {
        match target {
            PLANTED if self.reached_planted && !self.succeeded => Ok("found, as it must be".into()),
            PLANTED => Err("NOT FOUND: the fuzzer is blind".into()),
            _ if !self.succeeded => Err("BROKEN".into()),
            _ if self.coverage == 0 => Err("NO COVERAGE: the fuzzer is blind".into()),
            _ => Ok("passed".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(words: &str) -> Result<Request, Failure> {
        read(&words.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn requests() {
        let all = Request { target: "all".into(), seconds: SECONDS, input: None };
        assert_eq!(asked(""), Ok(all));
        let one = Request { target: "id".into(), seconds: 5, input: None };
        assert_eq!(asked("--seconds 5 id"), Ok(one));
        for wrong in ["--seconds", "--seconds 0", "--seconds x", "id frame", "--quick", "--input x", "all --input x"] {
            assert!(matches!(asked(wrong), Err(Failure::Usage(_))), "{wrong}");
        }
    }

    fn outcome(report: &[&str], succeeded: bool) -> Outcome {
        let mut outcome = Outcome { succeeded, ..Outcome::default() };
        report.iter().for_each(|line| outcome.read((*line).to_owned()));
        outcome
    }

    #[test]
    fn reports() {
        let report = [
            "#2\tINITED cov: 3 ft: 3 corp: 1/1b exec/s: 0 rss: 26Mb",
            "#12346329\tDONE   cov: 51 ft: 81 corp: 15/418b lim: 4096 exec/s: 2057721 rss: 27Mb",
            "stat::number_of_executed_units: 12346329",
            "stat::average_exec_per_sec:     2057721",
        ];
        let passed = outcome(&report, true);
        let Outcome { executions, executions_per_s, coverage, inputs, .. } = &passed;
        assert_eq!(
            (*executions, *executions_per_s, *coverage, inputs.as_str()),
            (12_346_329, 2_057_721, 51, "15/418b")
        );
        assert_eq!(passed.verdict("id"), Ok("passed".into()));
        assert!(outcome(&report, false).verdict("id").is_err());
        assert!(outcome(&["#9\tDONE   corp: 1/1b exec/s: 9"], true).verdict("id").is_err(), "no coverage");
    }

    #[test]
    fn the_planted_bug_must_be_found_and_nothing_else() {
        let backtrace = ["   0: rust_begin_unwind"; 2 * TAIL_LINES_MAX];
        assert!(outcome(&[&[PLANTED_PANIC], &backtrace[..]].concat(), false).verdict(PLANTED).is_ok());
        assert!(outcome(&[], true).verdict(PLANTED).is_err());
        assert!(outcome(&["out of memory"], false).verdict(PLANTED).is_err());
    }
}
