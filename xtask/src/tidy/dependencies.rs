//! Rule `dependencies`: every direct dependency was chosen, for a reason, for named crates.
//!
//! The list is a text file with one line each: the package, where it may be used, and why it is worth it. Where is
//! `any`, `dev` (tests only) or the names of crates with commas between them.

use super::Finding;
use crate::workspace::{Dependency, Kind, Origin, Package};

const RULE: &str = "dependencies";

/// One line of the list.
struct Entry<'a> {
    line: usize,
    name: &'a str,
    place: &'a str,
    reason: &'a str,
}

/// Every dependency that the list does not allow there, and every line of the list that is not as it should be.
pub(super) fn check(packages: &[Package], list_path: &str, list: &str) -> Vec<Finding> {
    let entries = read(list);
    let mut findings = check_list(list_path, &entries);
    for package in packages {
        for dependency in package.dependencies.iter().filter(|dependency| dependency.origin != Origin::Path) {
            if let Some(complaint) = complaint(&package.name, dependency, list_path, &entries) {
                let line = package.line_of(&dependency.name);
                findings.push(Finding::new(&package.manifest, line, RULE, complaint));
            }
        }
    }
    findings
}

fn read(list: &str) -> Vec<Entry<'_>> {
    let lines = list.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let entries = lines.map(|(index, text)| {
        let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let (place, reason) = rest.trim_start().split_once(char::is_whitespace).unwrap_or((rest, ""));
        Entry { line: index + 1, name, place: place.trim(), reason: reason.trim() }
    });
    entries.collect()
}

fn check_list(path: &str, entries: &[Entry<'_>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for entry in entries.iter().filter(|entry| entry.place.is_empty() || entry.reason.is_empty()) {
        let message = format!("`{}` has no place or no reason (write `NAME PLACE REASON`)", entry.name);
        findings.push(Finding::new(path, entry.line, RULE, message));
    }
    for pair in entries.windows(2).filter(|pair| pair[0].name >= pair[1].name) {
        let message = format!("`{}` stands before `{}` (sort the list, each name once)", pair[0].name, pair[1].name);
        findings.push(Finding::new(path, pair[1].line, RULE, message));
    }
    findings
}

fn complaint(dependant: &str, dependency: &Dependency, list_path: &str, entries: &[Entry<'_>]) -> Option<String> {
    let Dependency { name, kind, origin } = dependency;
    if *origin == Origin::Other {
        return Some(format!("`{name}` comes neither from the registry nor from this repository (use a release)"));
    }
    let Some(entry) = entries.iter().find(|entry| entry.name == name) else {
        return Some(format!("`{name}` is not listed (do without, or add it to {list_path} with a written decision)"));
    };
    let is_allowed = match entry.place {
        "any" => true,
        "dev" => *kind == Kind::Dev,
        crates => crates.split(',').any(|allowed| allowed == dependant),
    };
    let place = entry.place;
    (!is_allowed).then(|| format!("`{name}` is listed for `{place}`, not here (take a seam, or change {list_path})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str =
        "# NAME PLACE REASON\n\nblake3   any  checksums\nproptest dev  cases\ntokio    ashlar,ashlar-sim  runtime\n";

    fn findings(dependant: &str, name: &str, kind: Kind, origin: Origin, list: &str) -> Vec<String> {
        let package = Package {
            name: dependant.into(),
            manifest: "crate/Cargo.toml".into(),
            manifest_text: format!("[dependencies]\n{name} = \"1\"\n"),
            has_library: true,
            dependencies: vec![Dependency { name: name.into(), kind, origin }],
        };
        check(&[package], "list.txt", list).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn unlisted() {
        let planted = [
            ("ashlar-wire", "left-pad", Kind::Normal, Origin::Registry),
            ("ashlar-wire", "left-pad", Kind::Dev, Origin::Registry),
            ("ashlar-wire", "proptest", Kind::Normal, Origin::Registry),
            ("ashlar-wire", "tokio", Kind::Normal, Origin::Registry),
            ("ashlar-wire", "tokio", Kind::Dev, Origin::Registry),
            ("ashlar-wire", "blake3", Kind::Normal, Origin::Other),
        ];
        for (dependant, name, kind, origin) in planted {
            let found = findings(dependant, name, kind, origin, LIST);
            assert_eq!(found.len(), 1, "{name}: {found:?}");
            assert!(found[0].starts_with("crate/Cargo.toml:2: dependencies: "), "{found:?}");
        }
    }

    #[test]
    fn listed() {
        let clean = [
            ("ashlar-wire", "blake3", Kind::Normal, Origin::Registry),
            ("ashlar-wire", "proptest", Kind::Dev, Origin::Registry),
            ("ashlar-sim", "tokio", Kind::Normal, Origin::Registry),
            ("ashlar-grid", "ashlar-wire", Kind::Normal, Origin::Path),
        ];
        for (dependant, name, kind, origin) in clean {
            assert_eq!(findings(dependant, name, kind, origin, LIST), Vec::<String>::new(), "{name}");
        }
    }

    #[test]
    fn the_list_itself() {
        for (list, line) in [("b any x\na any x\n", 2), ("a any x\na any x\n", 2), ("a any\n", 1), ("a\n", 1)] {
            let found = check(&[], "list.txt", list);
            assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), [line], "{list}");
        }
    }
}
