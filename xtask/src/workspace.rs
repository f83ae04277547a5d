//! What cargo knows of the workspace, reduced to what the chores ask.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::failure::Failure;
use crate::process;

/// The packages of one workspace and where they lie.
#[derive(Debug)]
pub(crate) struct Workspace {
    /// The directory of the workspace's `Cargo.toml`.
    pub(crate) root: PathBuf,
    /// Where cargo builds.
    pub(crate) target: PathBuf,
    /// The members, in cargo's order.
    pub(crate) packages: Vec<Package>,
}

/// One member of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Package {
    /// Its name, as in `ashlar-wire`.
    pub(crate) name: String,
    /// Its `Cargo.toml`, relative to the repository, with `/`.
    pub(crate) manifest: String,
    /// The text of its `Cargo.toml`, to find the line that a finding is about.
    pub(crate) manifest_text: String,
    /// Whether other crates can see its public items.
    pub(crate) has_library: bool,
    /// What its `Cargo.toml` names, and nothing behind that.
    pub(crate) dependencies: Vec<Dependency>,
}

/// One direct dependency.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dependency {
    /// The name of the package, whatever the dependant calls it.
    pub(crate) name: String,
    /// For what it is needed.
    pub(crate) kind: Kind,
    /// Where it comes from.
    pub(crate) origin: Origin,
}

/// For what a dependency is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// In the built thing itself.
    Normal,
    /// In its tests only.
    Dev,
    /// In its build script.
    Build,
}

/// Where a dependency comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// This repository.
    Path,
    /// A package registry.
    Registry,
    /// Anywhere else.
    Other,
}

impl Workspace {
    /// The main workspace: the one that this chore is a member of.
    pub(crate) fn load() -> Result<Self, Failure> {
        let root = match std::env::var_os("CARGO_MANIFEST_DIR") {
            Some(xtask) => PathBuf::from(xtask).join(".."),
            None => PathBuf::from("."),
        };
        let root = root.canonicalize().map_err(|error| Failure::io("the root of the workspace", &error))?;
        Self::at(&root, &root)
    }

    /// The workspace whose `Cargo.toml` is in `directory`, with paths relative to `repository`.
    pub(crate) fn at(directory: &Path, repository: &Path) -> Result<Self, Failure> {
        let text =
            process::output(&mut process::cargo(directory, &["metadata", "--no-deps", "--format-version", "1"]))?;
        let metadata: Value = serde_json::from_str(&text)
            .map_err(|error| Failure::Failed(format!("cargo metadata is not as expected: {error}")))?;
        let packages = array(&metadata, "packages").iter().map(|package| read_package(package, repository));
        Ok(Self {
            root: directory.to_owned(),
            target: PathBuf::from(string(&metadata, "target_directory")),
            packages: packages.collect::<Result<_, _>>()?,
        })
    }

    /// Whether a package of this name is a member.
    pub(crate) fn has_member(&self, name: &str) -> bool {
        self.packages.iter().any(|package| package.name == name)
    }
}

impl Package {
    /// The directory of the package, relative to the repository, with `/` and without one at its end.
    pub(crate) fn directory(&self) -> &str {
        self.manifest.trim_end_matches("Cargo.toml").trim_end_matches('/')
    }

    /// The line of the `Cargo.toml` that names this dependency, or 1.
    pub(crate) fn line_of(&self, dependency: &str) -> usize {
        let names_it = |line: &str| {
            let rest = line.trim().trim_start_matches('"').strip_prefix(dependency);
            rest.is_some_and(|rest| rest.starts_with(['.', ' ', '=', '"']))
        };
        let quoted = format!("\"{dependency}\"");
        let lines = || self.manifest_text.lines();
        let found = lines().position(names_it).or_else(|| lines().position(|line| line.contains(&quoted)));
        found.map_or(1, |index| index + 1)
    }
}

fn read_package(package: &Value, repository: &Path) -> Result<Package, Failure> {
    let manifest = PathBuf::from(string(package, "manifest_path"));
    let manifest_text =
        std::fs::read_to_string(&manifest).map_err(|error| Failure::io(&manifest.to_string_lossy(), &error))?;
    let relative = manifest.strip_prefix(repository).unwrap_or(&manifest);
    let is_library = |target: &Value| {
        array(target, "kind").iter().any(|kind| kind.as_str().is_some_and(|kind| kind.ends_with("lib")))
    };
    Ok(Package {
        name: string(package, "name"),
        manifest: relative.to_string_lossy().replace('\\', "/"),
        manifest_text,
        has_library: array(package, "targets").iter().any(is_library),
        dependencies: array(package, "dependencies").iter().map(read_dependency).collect(),
    })
}

fn read_dependency(dependency: &Value) -> Dependency {
    let kind = match dependency["kind"].as_str() {
        Some("dev") => Kind::Dev,
        Some("build") => Kind::Build,
        _ => Kind::Normal,
    };
    let origin = match dependency["source"].as_str() {
        _ if dependency["path"].is_string() => Origin::Path,
        Some(source) if source.starts_with("registry+") || source.starts_with("sparse+") => Origin::Registry,
        _ => Origin::Other,
    };
    Dependency { name: string(dependency, "name"), kind, origin }
}

fn array<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn string(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_dependency() {
        let manifest_text =
            "[dependencies]\nserde_json = \"1\"\nserde.workspace = true\nweb = { package = \"hyper\" }\n";
        let package = Package {
            name: "ashlar-wire".into(),
            manifest: "wire/Cargo.toml".into(),
            manifest_text: manifest_text.into(),
            has_library: true,
            dependencies: Vec::new(),
        };
        for (name, line) in [("serde", 3), ("serde_json", 2), ("hyper", 4), ("absent", 1)] {
            assert_eq!(package.line_of(name), line, "{name}");
        }
        assert_eq!(package.directory(), "wire");
    }
}
