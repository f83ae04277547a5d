//! cargo-mutants: which mutants there are, and which of them the tests of a package notice.
//!
//! It makes a copy of the tree for itself and works in that. The copy is a new directory each time, so only packages from outside
//! are built once for all runs; within a run each mutant is an incremental build.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::list::{self, Mutant};
use crate::failure::Failure;
use crate::process::{cargo, output};
use crate::terminal::{complain, say};

/// The version whose list, options and output this was written for.
const VERSION: &str = "27.1.0";

/// How long tests may take at least before they count as hanging, seconds. cargo-mutants allows five times what they take on the
/// unchanged tree; tests of some tenths of a second need more on a machine that does other work as well.
const TEST_TIMEOUT_S_MIN: &str = "60";

/// Exit codes of cargo-mutants that say no more than what came of the mutants: all caught, some missed, some timed out.
const DONE: [i32; 3] = [0, 2, 3];

/// The exit code of cargo-mutants if tests fail on the unchanged tree.
const BASELINE_FAILED: i32 = 4;

/// Lines of cargo-mutants that are kept to be shown if it fails.
const TAIL_LINES_MAX: usize = 60;

/// What the tests made of a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tested {
    /// One failed, or did not end.
    Caught,
    /// All passed.
    Passed,
    /// It does not compile.
    Unviable,
}

/// cargo-mutants for one package.
#[derive(Debug)]
pub(super) struct Tester {
    root: PathBuf,
    package: String,
    /// Logs and the names of the mutants.
    own: PathBuf,
    /// What cargo builds there.
    build: PathBuf,
    /// The version of cargo-mutants that is installed.
    pub(super) version: String,
}

impl Tester {
    /// Looks whether cargo-mutants is there. It tests the tree at `root`; what it writes lies below `place`.
    pub(super) fn new(root: &Path, package: &str, place: &Path) -> Result<Self, Failure> {
        let version = version(root).ok_or_else(|| {
            let install = format!("cargo install cargo-mutants --locked --version {VERSION}");
            Failure::Failed(format!("cargo-mutants is not installed (`{install}`)"))
        })?;
        if version != VERSION {
            complain(&format!("note: cargo-mutants {version} is installed, but this chore was written for {VERSION}"));
        }
        let (own, build) = (place.join(package), place.join("build/tests"));
        Ok(Self { root: root.to_owned(), package: package.to_owned(), own, build, version })
    }

    /// All mutants of the package.
    pub(super) fn list(&self) -> Result<Vec<Mutant>, Failure> {
        let arguments = ["mutants", "--list", "--json", "--no-config", "--colors", "never", "--package", &self.package];
        list::read(&output(&mut cargo(&self.root, &arguments))?)
    }

    /// Runs the package's tests on the unchanged tree and then on each of these mutants, and tells as they come what they made of it.
    pub(super) fn test<'m>(
        &self,
        mutants: &'m [Mutant],
        mut tell: impl FnMut(&'m Mutant, Tested),
    ) -> Result<(), Failure> {
        // Incremental state of earlier copies, which are gone; it is large.
        fs::remove_dir_all(self.build.join("debug/incremental")).ok();
        let failed = |error| Failure::io("cargo mutants", &error);
        let mut child = self.command(mutants)?.stdout(Stdio::piped()).spawn().map_err(failed)?;
        let report = child.stdout.take().expect("standard output was piped above");
        let mut waiting: BTreeMap<&str, &Mutant> =
            mutants.iter().map(|mutant| (mutant.name.as_str(), mutant)).collect();
        let mut tail = Vec::new();
        for line in BufReader::new(report).split(b'\n') {
            let line = String::from_utf8_lossy(&line.map_err(failed)?).into_owned();
            let told = read_line(&line).and_then(|(tested, name)| Some((waiting.remove(name)?, tested)));
            match told {
                Some((mutant, tested)) => tell(mutant, tested),
                None => keep(&mut tail, line),
            }
        }
        let status = child.wait().map_err(failed)?;
        let why = match status.code() {
            Some(code) if DONE.contains(&code) && waiting.is_empty() => return Ok(()),
            Some(BASELINE_FAILED) => format!("the tests of `{}` fail on the unchanged tree", self.package),
            _ => format!("`cargo mutants`: {status}, with {} mutants not tested", waiting.len()),
        };
        tail.iter().for_each(|line| complain(line));
        Err(Failure::Failed(format!("{why} (logs: {}/mutants.out/log)", self.own.display())))
    }

    fn command(&self, mutants: &[Mutant]) -> Result<Command, Failure> {
        let (names, lines) = (self.own.join("examine.toml"), self.own.join("examine.diff"));
        for (file, content) in [(&names, configuration(mutants)), (&lines, self.difference(mutants)?)] {
            fs::write(file, content).map_err(|error| Failure::io(&file.to_string_lossy(), &error))?;
        }
        let arguments = ["mutants", "--jobs", "1", "--caught", "--unviable", "--no-times", "--annotations", "none"];
        let mut command = cargo(&self.root, &arguments);
        command.args(["--colors", "never", "--minimum-test-timeout", TEST_TIMEOUT_S_MIN, "--package", &self.package]);
        // The tree has no file that git ignores, but may itself lie in a directory that git ignores.
        command.args(["--gitignore", "false"]);
        command
            .arg("--config")
            .arg(&names)
            .arg("--in-diff")
            .arg(&lines)
            .arg("--output")
            .arg(&self.own)
            .env("CARGO_TARGET_DIR", &self.build);
        say(&format!("testing {} mutants; the unchanged tree comes first", mutants.len()));
        Ok(command)
    }

    /// A difference of files that adds the lines of these mutants, by which cargo-mutants examines no other lines.
    ///
    /// The names would be enough, but version 27.1.0 does not look at them for fields of structs (its issue 632): with a handful of
    /// names alone it tests every such field of the package.
    fn difference(&self, mutants: &[Mutant]) -> Result<String, Failure> {
        let mut lines: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
        for mutant in mutants {
            lines.entry(&mutant.file).or_default().insert(mutant.line());
        }
        let mut all = String::new();
        for (file, lines) in lines {
            let text = fs::read_to_string(self.root.join(file)).map_err(|error| Failure::io(file, &error))?;
            all += &difference_of(file, &text, &lines);
        }
        Ok(all)
    }
}

/// The difference by which these lines came into the file; lines count from 1.
fn difference_of(file: &str, text: &str, lines: &BTreeSet<usize>) -> String {
    let added =
        text.lines().zip(1..).filter(|(_, line)| lines.contains(line)).enumerate().map(|(before, (text, line))| {
            // The place in the old file, which has none of the lines that were added before.
            format!("@@ -{},0 +{line},1 @@\n+{text}\n", line - 1 - before)
        });
    format!("--- a/{file}\n+++ b/{file}\n{}", added.collect::<String>())
}

/// The version of cargo-mutants, if it is installed.
fn version(root: &Path) -> Option<String> {
    let output = cargo(root, &["mutants", "--version"]).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    text.split_whitespace().nth(1).map(str::to_owned)
}

/// A configuration file by which cargo-mutants examines these mutants and no others.
fn configuration(mutants: &[Mutant]) -> String {
    let patterns = mutants.iter().map(|mutant| {
        // A string of JSON is one of TOML.
        format!("    {},\n", serde_json::Value::from(format!("^{}$", escaped(&mutant.name))))
    });
    format!("examine_re = [\n{}]\n", patterns.collect::<String>())
}

/// A regular expression that matches this text only.
fn escaped(text: &str) -> String {
    let is_operator = |sign: char| r"\.+*?()|[]{}^$#&-~".contains(sign);
    text.chars().flat_map(|sign| is_operator(sign).then_some('\\').into_iter().chain([sign])).collect()
}

/// A line of cargo-mutants that says what came of a mutant, with its name.
fn read_line(line: &str) -> Option<(Tested, &str)> {
    let (word, name) = line.split_once(' ')?;
    let tested = match word {
        "caught" | "TIMEOUT" => Tested::Caught,
        "MISSED" => Tested::Passed,
        "unviable" => Tested::Unviable,
        _ => return None,
    };
    Some((tested, name.trim()))
}

fn keep(tail: &mut Vec<String>, line: String) {
    if tail.len() == TAIL_LINES_MAX {
        tail.remove(0);
    }
    tail.push(line);
}

#[cfg(test)]
mod tests {
    use super::super::list::tests::mutant;
    use super::*;

    #[test]
    fn lines_of_a_report() {
        let name = "a/src/lib.rs:1:2: replace < with == in one";
        for (line, tested) in [
            ("caught   ", Tested::Caught),
            ("TIMEOUT  ", Tested::Caught),
            ("MISSED   ", Tested::Passed),
            ("unviable ", Tested::Unviable),
        ] {
            assert_eq!(read_line(&format!("{line}{name}")), Some((tested, name)));
        }
        for other in ["ok       Unmutated baseline", "Found 3 mutants to test", "", "3 mutants tested: 1 missed"] {
            assert_eq!(read_line(other), None, "{other}");
        }
    }

    #[test]
    fn names_become_patterns_of_themselves() {
        assert_eq!(
            escaped(r#"a.rs:1: replace x -> Vec<u8> with vec![0] || "\n""#),
            r#"a\.rs:1: replace x \-> Vec<u8> with vec!\[0\] \|\| "\\n""#
        );
        let two = configuration(&[mutant("a.rs", 1), mutant("b.rs", 2)]);
        let text = "examine_re = [\n    \"^a\\\\.rs:1:1: replace it$\",\n    \"^b\\\\.rs:2:1: replace it$\",\n]\n";
        assert_eq!(two, text);
    }

    #[test]
    fn lines_become_a_difference() {
        let difference = difference_of("a/src/lib.rs", "one\ntwo\nthree\nfour\n", &BTreeSet::from([1, 2, 4]));
        let text = "--- a/a/src/lib.rs\n+++ b/a/src/lib.rs\n@@ -0,0 +1,1 @@\n+one\n@@ -0,0 +2,1 @@\n+two\n@@ -1,0 +4,1 @@\n+four\n";
        assert_eq!(difference, text);
    }

    #[test]
    fn the_last_lines_are_kept() {
        let mut tail = Vec::new();
        (0..=TAIL_LINES_MAX).for_each(|number| keep(&mut tail, number.to_string()));
        assert_eq!((tail.len(), tail[0].as_str()), (TAIL_LINES_MAX, "1"));
    }
}
