//! The tests and the simulator of a package with many mutants in one build ([`switch`]).
//!
//! What does not compile is found by the compiler's errors and left out, build for build. For those, and for what cannot be switched,
//! there is cargo-mutants with a build for each.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::list::Mutant;
use super::switch::{self, Number, Switched};
use super::tester::Tested;
use super::tree::Tree;
use crate::failure::Failure;
use crate::process::{cargo, timed, within};
use crate::terminal::say;

/// Builds until those that do not compile are known: errors of types hide errors of ownership, and both hide others.
const BUILDS_MAX: usize = 12;

/// As with cargo-mutants: tests that take so many times as long as without a mutant do not end, but no less than this time.
const TIMES_MAX: u32 = 5;
const RUN_MIN: Duration = Duration::from_secs(60);

/// How long a build may take from nothing, and tests on the unchanged tree.
const UNCHANGED_MAX: Duration = Duration::from_secs(40 * 60);

/// A build with switches.
#[derive(Debug)]
pub(super) struct Build<'m> {
    pub(super) tree: &'m Tree,
    package: String,
    target: PathBuf,
    mutants: BTreeMap<Number, &'m Mutant>,
    /// The files of the mutants, and the crate's root, as they were.
    originals: BTreeMap<String, String>,
}

impl<'m> Build<'m> {
    /// Switches as many of these mutants as can be, in the copy of the tree, and builds the package's tests.
    ///
    /// # Errors
    /// The package has no library, or it does not compile for another reason than its mutants.
    pub(super) fn new(tree: &'m Tree, package: &str, place: &Path, mutants: &'m [Mutant]) -> Result<Self, Failure> {
        let mut build = Self {
            tree,
            package: package.to_owned(),
            target: place.join("build/switched"),
            mutants: (1..).zip(mutants).collect(),
            originals: BTreeMap::new(),
        };
        for mutant in mutants {
            if !build.originals.contains_key(&mutant.file) {
                build.originals.insert(mutant.file.clone(), tree.read(Path::new(&mutant.file))?);
            }
        }
        let root = build.root()?;
        build.originals.insert(root.clone(), tree.read(Path::new(&root))?);
        let built = build.build(&root);
        if built.is_err() {
            build.restore()?;
        }
        built.map(|()| build)
    }

    /// The mutants that it has.
    pub(super) fn mutants(&self) -> impl Iterator<Item = (Number, &'m Mutant)> {
        self.mutants.iter().map(|(number, mutant)| (*number, *mutant))
    }

    /// The root of the library that has the files.
    fn root(&self) -> Result<String, Failure> {
        let mut roots: BTreeSet<String> = BTreeSet::new();
        for file in self.originals.keys() {
            let (directory, _) = file.split_once("/src/").unwrap_or_default();
            roots.insert(format!("{directory}/src/lib.rs"));
        }
        match roots.pop_first() {
            Some(root) if roots.is_empty() => Ok(root),
            _ => Err(Failure::Failed(format!("`{}` is not one library below `src`", self.package))),
        }
    }

    fn build(&mut self, root: &str) -> Result<(), Failure> {
        for _ in 0..BUILDS_MAX {
            let files = self.write(root)?;
            let errors = self.errors()?;
            if errors.is_empty() {
                return Ok(());
            }
            let broken: BTreeSet<Number> = errors
                .iter()
                .flat_map(|(file, part)| files.get(file).map(|switched| switched.at(part)).unwrap_or_default())
                .collect();
            if broken.is_empty() {
                return Err(Failure::Failed(format!("`{}` with switches does not compile: {errors:?}", self.package)));
            }
            self.mutants.retain(|number, _| !broken.contains(number));
        }
        Err(Failure::Failed(format!(
            "`{}` with switches still does not compile after {BUILDS_MAX} builds",
            self.package
        )))
    }

    /// Writes the files with switches for the mutants that are left; those that cannot be switched are left out.
    fn write(&mut self, root: &str) -> Result<BTreeMap<String, Switched>, Failure> {
        let mut files = BTreeMap::new();
        let mut there = BTreeSet::new();
        for (file, text) in &self.originals {
            let of_it: Vec<_> = self
                .mutants
                .iter()
                .filter(|(_, mutant)| mutant.file == *file)
                .map(|(number, mutant)| (*number, *mutant))
                .collect();
            let Some(switched) = switch::switch(text, &of_it) else { continue };
            there.extend(switched.places.iter().map(|(_, number)| *number));
            let asking = if file == root { switch::ASKING } else { "" };
            self.tree.write(Path::new(file), format!("{}{asking}", switched.text).as_bytes())?;
            files.insert(file.clone(), switched);
        }
        self.mutants.retain(|number, _| there.contains(number));
        Ok(files)
    }

    /// Gives the tree its files back.
    pub(super) fn restore(&self) -> Result<(), Failure> {
        self.originals.iter().try_for_each(|(file, text)| self.tree.write(Path::new(file), text.as_bytes()))
    }

    /// Builds the tests, and tells where the compiler found errors.
    fn errors(&self) -> Result<Vec<(String, Range<usize>)>, Failure> {
        let mut command = self.cargo(&["test", "--no-run", "--message-format", "json"]);
        let output = command.stderr(Stdio::null()).output().map_err(|error| Failure::io("cargo test", &error))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let errors: Vec<_> = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .filter_map(|line| place_of(&line))
            .collect();
        if errors.is_empty() && !output.status.success() {
            return Err(Failure::Failed(format!(
                "`{}` with switches does not compile, and no error says where",
                self.package
            )));
        }
        Ok(errors)
    }

    /// A command of cargo about the package's tests; warnings about brackets and the like are nothing to it.
    fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = cargo(&self.tree.root, arguments);
        command.args(["--locked", "--package", &self.package, "--lib", "--tests"]);
        self.switch(&mut command, 0);
        command
    }

    /// Lets a command build what has the switches, and run it with this mutant.
    pub(super) fn switch(&self, command: &mut Command, number: Number) {
        command.env("CARGO_TARGET_DIR", &self.target).env("RUSTFLAGS", "--cap-lints warn");
        command.env(switch::VARIABLE, number.to_string());
    }

    /// Runs the tests without a mutant and then with each of them, and tells as they come what the tests made of it.
    ///
    /// # Errors
    /// They fail without a mutant.
    pub(super) fn test(&self, mut tell: impl FnMut(Number, &'m Mutant, Tested)) -> Result<(), Failure> {
        let (passed, took) = timed(|| self.passes(0, UNCHANGED_MAX));
        if !passed? {
            return Err(Failure::Failed(format!("the tests of `{}` fail with all mutants switched off", self.package)));
        }
        let limit = (took * TIMES_MAX).max(RUN_MIN);
        say(&format!("the tests with switches took {:.1} s without a mutant", took.as_secs_f64()));
        for (number, mutant) in self.mutants() {
            let tested = if self.passes(number, limit)? { Tested::Passed } else { Tested::Caught };
            tell(number, mutant, tested);
        }
        Ok(())
    }

    fn passes(&self, number: Number, limit: Duration) -> Result<bool, Failure> {
        let mut command = self.cargo(&["test", "--quiet"]);
        self.switch(&mut command, number);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let status = within(limit, || command.status()).map_err(|error| Failure::io("cargo test", &error))?;
        Ok(status.success())
    }
}

/// Where an error of the compiler is, by its line of JSON.
fn place_of(line: &Value) -> Option<(String, Range<usize>)> {
    let message = line.get("message").filter(|message| message["level"] == "error")?;
    let spans = message["spans"].as_array()?;
    let span = spans.iter().find(|span| span["is_primary"] == true)?;
    let byte = |key: &str| span[key].as_u64().and_then(|at| usize::try_from(at).ok());
    Some((span["file_name"].as_str()?.to_owned(), byte("byte_start")?..byte("byte_end")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_compiler_have_places() {
        let line = serde_json::json!({"reason": "compiler-message", "message": {"level": "error", "spans": [
            {"file_name": "a/src/other.rs", "byte_start": 1, "byte_end": 2, "is_primary": false},
            {"file_name": "a/src/lib.rs", "byte_start": 7, "byte_end": 9, "is_primary": true},
        ]}});
        assert_eq!(place_of(&line), Some(("a/src/lib.rs".to_owned(), 7..9)));
        let mut warning = line.clone();
        warning["message"]["level"] = "warning".into();
        assert_eq!(place_of(&warning), None);
        assert_eq!(place_of(&serde_json::json!({"reason": "build-finished", "success": false})), None);
    }
}
