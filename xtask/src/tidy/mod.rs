//! `cargo xtask tidy`: the laws of the house that neither the compiler nor clippy knows.
//!
//! A rule is a file: a pure function from what was read (sources, packages) to findings, and a test that shows it
//! failing on a planted source and silent on its clean twin. Rules read parsed Rust, never lines of text, so that
//! neither a comment nor a rename fools them. What they cannot see: items that a macro makes.
//!
//! In reading order: [`source`] (what a rule is given), then the rules [`edges`], [`rooms`], [`unsafety`], [`sizes`],
//! [`docs`], [`allows`], [`dependencies`], [`names`]; those with old places that are counted ([`baseline`]): [`words`],
//! [`seams`], [`services`]; and those that hold documents to the code: [`architecture`], [`walks`].

mod allows;
mod architecture;
mod baseline;
mod dependencies;
mod docs;
mod edges;
mod names;
mod rooms;
mod seams;
mod services;
mod sizes;
mod source;
mod unsafety;
mod walks;
mod words;

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use baseline::{Baseline, Found, Places};
use source::Source;
use words::Words;

use crate::failure::Failure;
use crate::terminal::say;
use crate::workspace::{Package, Workspace};
use crate::{asks_for_help, expect_nothing};

const HELP: &str = "\
Checks the laws of the house that the compiler does not know and prints `file:line: rule: message (what to do)`.

Usage: cargo xtask tidy

Rules:
  edges         a crate depends only on lower layers; services never on each other, on bus or on catalog
  rooms         tokio, std::net, std::fs and std::thread only in ashlar/src/os, ashlar/src/front and ashlar/src/main.rs;
                words and laws (wire, placement, bus, erasure) are no_std
  unsafe        only in erasure/src/simd and ashlar/src/os
  sizes         functions up to 70 lines, files up to 1,000
  docs          every file has a head, every public item its documentation
  allows        every #[allow] and #[expect] has its reason
  dependencies  every direct dependency is listed in xtask/dependencies.txt
  names         no common, utils, helpers, manager
  words         no metaphor of xtask/words.txt in names and comments
  seams         a public trait has at most five methods
  services      no file outside a service's own directories names its crate
  architecture  crates, edges and modules are those of ARCHITECTURE.md
  walks         files and functions of docs/walk-through.md exist

Old places of words, seams and services are counted in xtask/baseline.txt; the counts may only shrink.";

/// Where the allowed dependencies are listed.
const DEPENDENCIES: &str = "xtask/dependencies.txt";

/// Where the words are listed that names and comments do not use.
const WORDS: &str = "xtask/words.txt";

/// Where old places of rules are counted.
const BASELINE: &str = "xtask/baseline.txt";

/// Where crates, edges and modules are named.
const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// Where ways through the code are walked, file by file.
const WALKS: &str = "docs/walk-through.md";

/// One place where a law is broken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    rule: &'static str,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, rule: &'static str, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, rule, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, rule, message } = self;
        write!(f, "{path}:{line}: {rule}: {message}")
    }
}

/// Runs the chore.
pub(crate) fn command(arguments: &[String]) -> Result<(), Failure> {
    if asks_for_help(arguments) {
        say(HELP);
        return Ok(());
    }
    expect_nothing("tidy", arguments)?;
    tidy(&Workspace::load()?)
}

/// Prints every finding and fails if there is one.
pub(crate) fn tidy(workspace: &Workspace) -> Result<(), Failure> {
    let fuzz = Workspace::at(&workspace.root.join("fuzz"), &workspace.root)?;
    let everything = [&workspace.packages[..], &fuzz.packages[..]].concat();
    let read = |path| fs::read_to_string(workspace.root.join(path)).map_err(|error| Failure::io(path, &error));

    let mut findings = edges::check(&workspace.packages);
    findings.extend(dependencies::check(&everything, DEPENDENCIES, &read(DEPENDENCIES)?));
    let (sources, unreadable) = read_sources(&workspace.root, &everything)?;
    findings.extend(unreadable);
    findings.extend(sources.iter().flat_map(check_source));
    findings.extend(check_counted(&sources, &read(WORDS)?, &read(BASELINE)?));
    findings.extend(architecture::check(ARCHITECTURE, &read(ARCHITECTURE)?, &workspace.packages, &sources));
    findings.extend(walks::check(WALKS, &read(WALKS)?, &sources));

    findings.sort();
    findings.dedup();
    findings.iter().for_each(|finding| say(&finding.to_string()));
    let (files, packages) = (sources.len(), everything.len());
    match findings.len() {
        0 => {
            say(&format!("tidy: {files} files of {packages} packages, no finding"));
            Ok(())
        }
        count => Err(Failure::Failed(format!("tidy: {count} finding(s) in {files} files of {packages} packages"))),
    }
}

fn check_source(source: &Source) -> Vec<Finding> {
    let rules = [rooms::check, unsafety::check, sizes::check, docs::check, allows::check, names::check];
    rules.iter().flat_map(|check| check(source)).collect()
}

/// The rules whose old places are counted.
fn check_counted(sources: &[Source], words: &str, counts: &str) -> Vec<Finding> {
    let (words, mut findings) = Words::read(WORDS, words);
    let collect = |find: &dyn Fn(&Source, &mut Places)| {
        let mut places = Places::new();
        sources.iter().for_each(|source| find(source, &mut places));
        places
    };
    let instead = |word: &str| format!("write {}, or except it in {WORDS}", words.advice(word));
    let fewer = |_: &str| "give it fewer methods".to_owned();
    let elsewhere = |_: &str| "move this to the service's own directories".to_owned();
    let found = [
        Found { rule: "words", places: collect(&|source, places| words.find(source, places)), advice: &instead },
        Found { rule: "seams", places: collect(&seams::find), advice: &fewer },
        Found { rule: "services", places: collect(&services::find), advice: &elsewhere },
    ];
    findings.extend(baseline::check(Baseline { path: BASELINE, text: counts }, &found));
    findings
}

/// Every Rust file of the packages, and a finding for each that cannot be parsed.
fn read_sources(root: &Path, packages: &[Package]) -> Result<(Vec<Source>, Vec<Finding>), Failure> {
    let (mut sources, mut unreadable) = (Vec::new(), Vec::new());
    for package in packages {
        for file in rust_files(&root.join(package.directory()))? {
            let path = file.strip_prefix(root).unwrap_or(&file).to_string_lossy().replace('\\', "/");
            let text = fs::read_to_string(&file).map_err(|error| Failure::io(&path, &error))?;
            match Source::parse(&path, package.has_library, text) {
                Ok(source) => sources.push(source),
                Err(finding) => unreadable.push(finding),
            }
        }
    }
    if sources.is_empty() {
        return Err(Failure::Failed("tidy: no Rust file was found, so nothing was checked".into()));
    }
    source::mark_test_modules(&mut sources);
    Ok((sources, unreadable))
}

/// The Rust files below a package's directory, sorted, without what is built, hidden or another package.
fn rust_files(package: &Path) -> Result<BTreeSet<PathBuf>, Failure> {
    let mut files = BTreeSet::new();
    let mut directories = vec![package.to_owned()];
    while let Some(directory) = directories.pop() {
        let failed = |error| Failure::io(&directory.to_string_lossy(), &error);
        for entry in fs::read_dir(&directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if entry.file_type().map_err(failed)?.is_dir() {
                let is_foreign = name.starts_with('.') || name == "target" || path.join("Cargo.toml").exists();
                directories.extend((!is_foreign).then_some(path));
            } else if name.ends_with(".rs") {
                files.insert(path);
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines on which `check` finds something in a library's `path` with this text.
    pub(super) fn lines_found(check: fn(&Source) -> Vec<Finding>, path: &str, text: &str) -> Vec<usize> {
        let source = Source::parse(path, true, text.to_owned()).expect("the planted source parses");
        check(&source).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_finding_says_where_and_what() {
        let finding = Finding::new("wire/src/id.rs", 7, "unsafe", "outside its rooms (write it safely)");
        assert_eq!(finding.to_string(), "wire/src/id.rs:7: unsafe: outside its rooms (write it safely)");
    }

    #[test]
    fn a_file_that_is_not_rust_is_a_finding() {
        let finding = Source::parse("wire/src/id.rs", true, "\nfn {}".to_owned()).err().expect("this is not Rust");
        assert_eq!((finding.line, finding.rule), (2, "parse"));
    }
}
