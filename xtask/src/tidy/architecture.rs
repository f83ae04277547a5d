//! Rule `architecture`: ARCHITECTURE.md names the crates, their edges and their modules as they are.
//!
//! Two kinds of tables are read. Under `## Crates`, `| layer | crate | uses |` has a row for each crate, with what it depends on
//! outside of tests. In each section `### `crate`: ..` or `### `crate::module`: ..`, `| module | what it is |` has rows for its
//! modules. Every module that is named exists, and every module exists in the table, at the top of the crate and wherever one
//! of its siblings is named. A module that is named stands for what is below it. Other columns are for people.

use std::collections::{BTreeMap, BTreeSet};

use super::source::Source;
use super::{Finding, edges};
use crate::workspace::{Dependency, Kind, Origin, Package};

const RULE: &str = "architecture";
const CRATES: [&str; 3] = ["layer", "crate", "uses"];
const MODULES: [&str; 2] = ["module", "what it is"];

/// A line of the document and what is wrong there.
type Complaint = (usize, String);

/// The modules of each crate, below its `src`, as in `mux::calls`.
type Modules = BTreeMap<String, BTreeSet<String>>;

/// Every difference between the document and the code.
pub(super) fn check(path: &str, text: &str, packages: &[Package], sources: &[Source]) -> Vec<Finding> {
    let sections = read(text);
    let mut complaints = check_crates(&sections, packages);
    complaints.extend(check_modules(&sections, &modules(packages, sources)));
    complaints.into_iter().map(|(line, message)| Finding::new(path, line, RULE, message)).collect()
}

/// One heading with the tables below it.
struct Section<'a> {
    line: usize,
    level: usize,
    title: &'a str,
    /// Rows with their lines; the head of a table is a row like the others.
    rows: Vec<(usize, Vec<&'a str>)>,
}

fn read(text: &str) -> Vec<Section<'_>> {
    let (mut sections, mut in_code) = (Vec::<Section<'_>>::new(), false);
    for (index, line) in text.lines().enumerate() {
        in_code ^= line.starts_with("```");
        if in_code {
            continue;
        }
        let title = line.trim_start_matches('#');
        if title.starts_with(' ') && title.len() < line.len() {
            let level = line.len() - title.len();
            sections.push(Section { line: index + 1, level, title: title.trim(), rows: Vec::new() });
        } else if let (Some(row), Some(section)) = (line.strip_prefix('|'), sections.last_mut()) {
            let cells = row.trim_end().strip_suffix('|').unwrap_or(row).split('|').map(str::trim).collect();
            section.rows.push((index + 1, cells));
        }
    }
    sections
}

impl<'a> Section<'a> {
    /// The rows of the section's one table, if it has this head.
    fn table(&self, head: &[&str]) -> Result<&[(usize, Vec<&'a str>)], Complaint> {
        let wanted = || format!("| {} |", head.join(" | "));
        match &self.rows[..] {
            [(_, first), (_, rule), rows @ ..] if first == head && rule.iter().all(|cell| *cell == "---") => {
                match rows.iter().find(|(_, cells)| cells.len() != head.len()) {
                    Some((line, _)) => Err((*line, format!("not a row of `{}`", wanted()))),
                    None => Ok(rows),
                }
            }
            rows => {
                let line = rows.first().map_or(self.line, |(line, _)| *line);
                Err((line, format!("`{}` has to begin with the one table `{}`", self.title, wanted())))
            }
        }
    }
}

/// The names in a cell: each in backquotes, commas between them.
fn names<'a>(cell: &'a str) -> Result<Vec<&'a str>, String> {
    let name = |part: &'a str| {
        let name = part.strip_prefix('`').and_then(|part| part.strip_suffix('`'));
        let is_name = |name: &&str| {
            let is_word = |word: &str| {
                !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
            };
            name.split("::").all(is_word)
        };
        name.filter(is_name)
            .ok_or_else(|| format!("`{part}` is no name (write names in backquotes, commas between them)"))
    };
    cell.split(", ").map(name).collect()
}

/// A package as the document calls it.
fn crate_name(package: &str) -> &str {
    package.strip_prefix("ashlar-").unwrap_or(package)
}

fn check_crates(sections: &[Section<'_>], packages: &[Package]) -> Vec<Complaint> {
    let Some(section) = sections.iter().find(|section| section.level == 2 && section.title == "Crates") else {
        return vec![(1, "there is no section `## Crates`".into())];
    };
    let rows = match section.table(&CRATES) {
        Ok(rows) => rows,
        Err(complaint) => return vec![complaint],
    };
    let (mut complaints, mut named) = (Vec::new(), BTreeSet::new());
    for (line, cells) in rows {
        let package = packages.iter().find(|package| format!("`{}`", crate_name(&package.name)) == cells[1]);
        let complaint = match package {
            None => Some(format!("{} is no crate of the workspace", cells[1])),
            Some(package) if !named.insert(&package.name) => Some(format!("{} has a row already", cells[1])),
            Some(package) => check_crate(package, cells[0], cells[2]),
        };
        complaints.extend(complaint.map(|complaint| (*line, complaint)));
    }
    let absent = packages.iter().filter(|package| !named.contains(&package.name));
    complaints.extend(absent.map(|package| (section.line, format!("`{}` has no row", crate_name(&package.name)))));
    complaints
}

fn check_crate(package: &Package, layer: &str, uses: &str) -> Option<String> {
    let is_edge = |edge: &&Dependency| edge.origin == Origin::Path && edge.kind == Kind::Normal;
    let edges = package.dependencies.iter().filter(is_edge).map(|edge| format!("`{}`", crate_name(&edge.name)));
    let edges: Vec<String> = edges.collect::<BTreeSet<_>>().into_iter().collect();
    let expected = if edges.is_empty() { "nothing".to_owned() } else { edges.join(", ") };
    let level = edges::level_of(&package.name).map_or_else(|| "no layer".to_owned(), |level| format!("L{level}"));
    if level != layer {
        return Some(format!("`{}` is of {level}, not {layer}", crate_name(&package.name)));
    }
    (uses != expected).then(|| format!("`{}` uses {expected} (write exactly that)", crate_name(&package.name)))
}

/// The modules that have files, those of tests aside.
fn modules(packages: &[Package], sources: &[Source]) -> Modules {
    let mut modules = Modules::new();
    for package in packages {
        let prefix = format!("{}/src/", package.directory());
        let files =
            sources.iter().filter(|source| !source.is_test).filter_map(|source| source.path.strip_prefix(&prefix));
        let names = files.filter(|file| !file.starts_with("bin/")).filter_map(|file| {
            let file = file.trim_end_matches(".rs");
            let file = file.strip_suffix("/mod").unwrap_or(file);
            (!["lib", "main"].contains(&file)).then(|| file.replace('/', "::"))
        });
        modules.insert(crate_name(&package.name).to_owned(), names.collect());
    }
    modules
}

fn check_modules(sections: &[Section<'_>], modules: &Modules) -> Vec<Complaint> {
    let (mut complaints, mut heads) = (Vec::new(), BTreeMap::<&str, usize>::new());
    let mut named = BTreeSet::<(&str, String)>::new();
    let begin = sections.iter().position(|section| section.level == 2 && section.title == "Crates");
    let below = sections.iter().skip(begin.map_or(sections.len(), |at| at + 1)).take_while(|section| section.level > 2);
    for section in below {
        let path = section.title.strip_prefix('`').and_then(|title| title.split_once("`: ")).map(|(path, _)| path);
        let (name, prefix) = path.and_then(|path| path.split_once("::")).unwrap_or((path.unwrap_or_default(), ""));
        let Some(existing) = modules.get(name) else {
            complaints.push((section.line, format!("`{}` does not begin with a crate", section.title)));
            continue;
        };
        heads.entry(name).or_insert(section.line);
        let rows = match section.table(&MODULES) {
            Ok(rows) => rows,
            Err(complaint) => {
                complaints.push(complaint);
                continue;
            }
        };
        for (line, cells) in rows {
            match names(cells[0]) {
                Err(complaint) => complaints.push((*line, complaint)),
                Ok(names) => complaints.extend(names.iter().filter_map(|short| {
                    let full = if prefix.is_empty() { (*short).to_owned() } else { format!("{prefix}::{short}") };
                    let complaint =
                        if existing.contains(&full) { "is named already" } else { "is no module with a file" };
                    let is_new = existing.contains(&full) && named.insert((name, full));
                    (!is_new).then(|| (*line, format!("`{short}` of `{name}` {complaint}")))
                })),
            }
        }
    }
    for (name, existing) in modules {
        let Some(line) = heads.get(name.as_str()) else {
            complaints.push((1, format!("there is no section on `{name}`, as in \"### `{name}`: what it is\"")));
            continue;
        };
        let named: BTreeSet<&str> =
            named.iter().filter(|(of, _)| of == name).map(|(_, module)| module.as_str()).collect();
        let absent = existing.iter().filter(|module| is_missing(module, &named));
        complaints.extend(absent.map(|module| (*line, format!("`{module}` of `{name}` is not named"))));
    }
    complaints
}

/// Whether a module is in no table, though it is at the top of its crate or a sibling of it is in one.
fn is_missing(module: &str, named: &BTreeSet<&str>) -> bool {
    let is_below = |name: &str, parent: &str| name.strip_prefix(parent).is_some_and(|rest| rest.starts_with("::"));
    if named.iter().any(|name| *name == module || is_below(name, module)) {
        return false;
    }
    match module.rsplit_once("::") {
        None => true,
        Some((parent, _)) => named.iter().any(|name| is_below(name, parent)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEAN: &str = "\
# Architecture

## Crates

Text.

| layer | crate | uses |
|---|---|---|
| L0 | `wire` | nothing |
| L2 | `grid` | `wire` |

### `wire`: words

| module | what it is |
|---|---|
| `id`, `pack` | all `there` is |

### `grid`: calls

| module | what it is |
|---|---|
| `mux` | one connection |

### `grid::hello`: the handshake

| module | what it is |
|---|---|
| `form`, `rekey` | forms; proofs |

## Threads

| layer | crate |
";

    fn package(name: &str, uses: &[(&str, Kind)]) -> Package {
        let uses =
            uses.iter().map(|(name, kind)| Dependency { name: (*name).into(), kind: *kind, origin: Origin::Path });
        Package {
            name: name.into(),
            manifest: format!("{}/Cargo.toml", crate_name(name)),
            manifest_text: String::new(),
            has_library: true,
            dependencies: uses.collect(),
        }
    }

    fn findings(text: &str) -> Vec<String> {
        let packages = [
            package("ashlar-wire", &[("ashlar-grid", Kind::Dev)]),
            package("ashlar-grid", &[("ashlar-wire", Kind::Normal)]),
        ];
        let files = [
            "wire/src/lib.rs",
            "wire/src/id.rs",
            "wire/src/pack/mod.rs",
            "wire/src/pack/map.rs",
            "wire/src/tests.rs",
            "grid/src/mux.rs",
            "grid/src/mux/calls.rs",
            "grid/src/hello.rs",
            "grid/src/hello/form.rs",
            "grid/src/hello/rekey.rs",
            "grid/tests/edges.rs",
        ];
        let sources = files.map(|path| Source::parse(path, true, String::new()).expect("nothing parses"));
        check("A.md", text, &packages, &sources).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_clean_text() {
        assert_eq!(findings(CLEAN), Vec::<String>::new());
    }

    #[test]
    fn what_is_refused() {
        let planted = [
            ("| L0 | `wire` | nothing |\n", "", "`wire` has no row"),
            ("| `wire` | nothing |", "| wire | nothing |", "wire is no crate"),
            ("| L2 | `grid` | `wire` |", "| L2 | `mesh` | `wire` |", "`mesh` is no crate"),
            ("| L0 | `wire` | nothing |\n", "| L0 | `wire` | nothing |\n| L0 | `wire` | nothing |\n", "a row already"),
            ("| L2 | `grid` | `wire` |", "| L3 | `grid` | `wire` |", "`grid` is of L2, not L3"),
            ("| L2 | `grid` | `wire` |", "| L2 | `grid` | nothing |", "`grid` uses `wire`"),
            ("| L0 | `wire` | nothing |", "| L0 | `wire` | `grid` |", "`wire` uses nothing"),
            ("| L0 | `wire` | nothing |", "| L0 | `wire` |", "not a row"),
            ("| layer | crate | uses |", "| crate | uses |", "the one table"),
            ("## Crates", "## Boxes", "no section `## Crates`"),
            ("### `grid`: calls", "### grid: calls", "does not begin with a crate"),
            ("### `wire`: words", "### `mesh`: words", "no section on `wire`"),
            ("| `id`, `pack` |", "| `id` |", "`pack` of `wire` is not named"),
            ("| `id`, `pack` |", "| `id`, `pack`, `time` |", "`time` of `wire` is no module"),
            ("| `id`, `pack` |", "| `id`, `pack`, `id` |", "`id` of `wire` is named already"),
            ("| `id`, `pack` |", "| `id` and `pack` |", "is no name"),
            ("| `id`, `pack` |", "| `id`, `pack`, `pack/map` |", "is no name"),
            ("| `mux` |", "| `mux`, `mux::streams` |", "`mux::streams` of `grid` is no module"),
            ("| `form`, `rekey` |", "| `form` |", "`hello::rekey` of `grid` is not named"),
            ("| module | what it is |", "| module | what |", "the one table"),
        ];
        for (from, to, expected) in planted {
            assert!(CLEAN.contains(from), "{from}");
            let found = findings(&CLEAN.replacen(from, to, 1));
            assert!(found.iter().any(|finding| finding.contains(expected)), "{to}: {found:?}");
        }
    }

    #[test]
    fn a_finding_names_the_line() {
        let found = findings(&CLEAN.replace("| `id`, `pack` |", "| `id`, `pack`, `time` |"));
        assert_eq!(found, ["A.md:16: architecture: `time` of `wire` is no module with a file"]);
    }
}
