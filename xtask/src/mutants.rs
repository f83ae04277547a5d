//! `cargo xtask mutants`: mutation testing of one package, by its unit tests and then by its simulator.
//!
//! cargo-mutants says which changes of one expression or one function (mutants) there are. Most of them stand in one build, each
//! behind a switch, and the package's tests run once for each; the others are built one by one. A mutant that no test notices goes
//! through the simulator that covers the package. What neither notices has survived: either a test is missing there, or the
//! change makes no difference. Coverage cannot tell this: a line that runs is not yet a line whose result somebody looks at.
//!
//! In reading order: [`tree`] (the copy that all works on, so that the tree can be edited meanwhile), [`list`] (the mutants of a
//! package, and which of them are drawn), [`switch`] (the text of a file with switches), [`switched`] (one build of many mutants),
//! [`tester`] (cargo-mutants), [`simulator`] (the table of simulators), [`score`] (what came of all). It never writes to the tree
//! itself: everything lies in cargo's target directory, below `mutants`.

mod list;
mod score;
mod simulator;
mod switch;
mod switched;
mod tester;
mod tree;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;

use self::list::Mutant;
use self::score::{Score, Verdict};
use self::simulator::Simulator;
use self::switched::Build;
use self::tester::{Tested, Tester};
use self::tree::Tree;
use crate::asks_for_help;
use crate::failure::Failure;
use crate::terminal::say;
use crate::workspace::Workspace;

const HELP: &str = "\
Mutation testing of one package: which small changes of its code are noticed by its tests, and which by its simulator.

Usage: cargo xtask mutants PACKAGE [--module PATH]... [--sample N] [--seed S]

  PACKAGE        a member of the workspace, as in ashlar-store
  --module PATH  only mutants of this file or directory, with the module's file and all files below it; the path starts at the
                 root of the repository, as in store/src/blob; given again, also those below that [default: the whole package]
  --sample N     so many mutants, drawn at random; at least 1, all of them if there are fewer [default: all]
  --seed S       which ones are drawn: a whole number from 0 to 2^64 - 1 [default: 1]. The same seed draws the same mutants as
                 long as the code and the version of cargo-mutants are the same

Left out are tests, examples, fuzz targets, proofs and planted bugs. All work is done in a copy of the tree. One build there has as
many of the mutants as it can, each behind a switch that an environment variable sets, and the tests of PACKAGE run once for each.
A mutant that cannot be switched (a constant, a type that does not fit) is built by itself, by cargo-mutants. Tests that
take five times as long as without a mutant, and at least 60 s, count as caught. A mutant that does not compile is unviable and
not counted.

A mutant that all tests pass runs through the simulator of its package: bus, catalog, grid, kv, node, object, replica, store and
volume have one. It fails there: caught by the simulator. Else it survived.

Prints a line for each mutant, then the score and the survivors, and writes the score to target/mutants/PACKAGE.txt. Logs of
cargo-mutants and of the simulator lie in target/mutants/PACKAGE. target/mutants can be deleted between runs. One run at a time;
the tree can be edited meanwhile.
Exit code: 0 whatever the score is, 1 if tests or simulator fail on the unchanged tree or cargo-mutants is absent, 2 asked wrongly.";

/// Mutants of one run of cargo-mutants: it is told their names as regular expressions, whose size together has a limit.
const BATCH_MAX: usize = 500;

/// What a person asked for.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    package: String,
    /// None: the whole package.
    modules: Vec<String>,
    sample: Option<usize>,
    seed: u64,
}

/// Runs the chore.
pub(crate) fn command(arguments: &[String]) -> Result<(), Failure> {
    if asks_for_help(arguments) {
        say(HELP);
        return Ok(());
    }
    let request = read(arguments)?;
    let workspace = Workspace::load()?;
    if !workspace.has_member(&request.package) {
        let known: Vec<&str> = workspace.packages.iter().map(|package| package.name.as_str()).collect();
        return Err(Failure::Usage(format!(
            "no package is called `{}`; there are {}",
            request.package,
            known.join(", ")
        )));
    }
    examine(&workspace, &request)
}

fn read(arguments: &[String]) -> Result<Request, Failure> {
    let mut request = Request { package: String::new(), modules: Vec::new(), sample: None, seed: 1 };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut value =
            || arguments.next().cloned().ok_or_else(|| Failure::Usage(format!("`{argument}` needs a value")));
        match argument.as_str() {
            "--module" => request.modules.push(value()?),
            "--sample" => {
                let text = value()?;
                request.sample = Some(text.parse().ok().filter(|&sample| sample > 0).ok_or_else(|| {
                    Failure::Usage(format!("`--sample` needs a whole number above 0, but got `{text}`"))
                })?);
            }
            "--seed" => {
                let text = value()?;
                request.seed = text.parse().map_err(|_| {
                    Failure::Usage(format!("`--seed` needs a whole number from 0 to 2^64 - 1, but got `{text}`"))
                })?;
            }
            package if !package.starts_with('-') && request.package.is_empty() => {
                package.clone_into(&mut request.package);
            }
            other => return Err(Failure::Usage(format!("`mutants` does not know `{other}`"))),
        }
    }
    if request.package.is_empty() {
        return Err(Failure::Usage("`mutants` needs the name of a package, as in ashlar-store".into()));
    }
    Ok(request)
}

fn examine(workspace: &Workspace, request: &Request) -> Result<(), Failure> {
    let place = workspace.target.join("mutants");
    let own = place.join(&request.package);
    fs::create_dir_all(&own).map_err(|error| Failure::io(&own.to_string_lossy(), &error))?;
    let _until_the_end = lock(&place.join("lock"))?;
    let tree = Tree::copy(&workspace.root, place.join("tree"))?;
    let tester = Tester::new(&tree.root, &request.package, &place)?;
    let listed = list::chosen(tester.list()?, &request.modules);
    let below = match request.modules.join(", ") {
        modules if modules.is_empty() => modules,
        modules => format!(" below {modules}"),
    };
    let has_mutants = |module: &&String| listed.iter().any(|mutant| list::is_below(&mutant.file, module));
    if let Some(module) = request.modules.iter().find(|module| !has_mutants(module)) {
        return Err(Failure::Usage(format!("`{}` has no mutants below `{module}`", request.package)));
    }
    if listed.is_empty() {
        return Err(Failure::Usage(format!("`{}` has no mutants", request.package)));
    }
    let of = listed.len();
    let drawn = list::draw(listed, request.sample, request.seed);
    let title = format!(
        "{}{below}: {} of {of} mutants, seed {}, cargo-mutants {}",
        request.package,
        drawn.len(),
        request.seed,
        tester.version
    );
    say(&title);
    let mut simulator = Simulator::of(&request.package, &place);
    let mut score = Score::new(title, simulator.is_some());
    let left = test_switched(&tree, request, &place, &drawn, (&simulator, &mut score))?;
    for batch in left.chunks(BATCH_MAX) {
        for mutant in test(&tester, batch, &mut score)? {
            let verdict = match &mut simulator {
                Some(simulator) => simulator.judge(&tree, mutant)?,
                None => Verdict::Survived,
            };
            score.note(mutant, verdict);
        }
    }
    conclude(&score, &place.join(format!("{}.txt", request.package)))
}

/// Keeps a second run out of the same copy, for as long as the file is open.
fn lock(path: &Path) -> Result<File, Failure> {
    let file = File::create(path).map_err(|error| Failure::io(&path.to_string_lossy(), &error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(_) => Err(Failure::Failed(format!("another run of this chore holds {}", path.display()))),
    }
}

/// Judges the mutants that one build can have behind switches, and returns the others.
fn test_switched(
    tree: &Tree,
    request: &Request,
    place: &Path,
    drawn: &[Mutant],
    (simulator, score): (&Option<Simulator>, &mut Score),
) -> Result<Vec<Mutant>, Failure> {
    let build = match Build::new(tree, &request.package, place, drawn) {
        Ok(build) => build,
        Err(Failure::Failed(why)) => {
            say(&format!("note: no switches, so each mutant is built: {why}"));
            return Ok(drawn.to_vec());
        }
        Err(other) => return Err(other),
    };
    say(&format!("{} of {} mutants are in one build, behind switches", build.mutants().count(), drawn.len()));
    let judged = judge_switched(&build, simulator.as_ref(), score);
    build.restore()?;
    judged?;
    let switched: BTreeSet<&Mutant> = build.mutants().map(|(_, mutant)| mutant).collect();
    Ok(drawn.iter().filter(|mutant| !switched.contains(mutant)).cloned().collect())
}

fn judge_switched(build: &Build<'_>, simulator: Option<&Simulator>, score: &mut Score) -> Result<(), Failure> {
    let mut passed = Vec::new();
    build.test(|number, mutant, tested| match tested {
        Tested::Caught => score.note(mutant, Verdict::CaughtByTests),
        Tested::Unviable => score.note(mutant, Verdict::Unviable),
        Tested::Passed => passed.push((number, mutant)),
    })?;
    match simulator {
        Some(simulator) => simulator.judge_switched(build, &passed, |mutant, verdict| score.note(mutant, verdict)),
        None => {
            passed.into_iter().for_each(|(_, mutant)| score.note(mutant, Verdict::Survived));
            Ok(())
        }
    }
}

/// Runs the tests on each mutant and returns those that passed them.
fn test<'m>(tester: &Tester, batch: &'m [Mutant], score: &mut Score) -> Result<Vec<&'m Mutant>, Failure> {
    let mut passed = Vec::new();
    tester.test(batch, |mutant, tested| match tested {
        Tested::Caught => score.note(mutant, Verdict::CaughtByTests),
        Tested::Unviable => score.note(mutant, Verdict::Unviable),
        Tested::Passed => passed.push(mutant),
    })?;
    Ok(passed)
}

fn conclude(score: &Score, file: &Path) -> Result<(), Failure> {
    let text = score.to_string();
    say(&format!("\n{text}"));
    fs::write(file, text).map_err(|error| Failure::io(&file.to_string_lossy(), &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(words: &str) -> Result<Request, Failure> {
        read(&words.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn requests() {
        let whole = Request { package: "ashlar-store".into(), modules: Vec::new(), sample: None, seed: 1 };
        assert_eq!(asked("ashlar-store"), Ok(whole));
        let part = Request {
            package: "ashlar-store".into(),
            modules: vec!["store/src/blob".into(), "store/src/index.rs".into()],
            sample: Some(12),
            seed: 7,
        };
        assert_eq!(
            asked("--seed 7 --sample 12 ashlar-store --module store/src/blob --module store/src/index.rs"),
            Ok(part)
        );
        for wrong in [
            "",
            "--sample 3",
            "a --sample",
            "a --sample 0",
            "a --sample x",
            "a --sample -1",
            "a --sample 1.5",
            "a --seed x",
            "a --seed -1",
            "a --seed",
            "a --module",
            "a b",
            "a --quick",
        ] {
            assert!(matches!(asked(wrong), Err(Failure::Usage(_))), "{wrong}");
        }
    }
}
