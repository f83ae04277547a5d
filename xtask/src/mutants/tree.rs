//! A copy of the tree for simulators of mutants.
//!
//! It is always the same directory, so that cargo builds again only what a mutant changed. A file is written only if its content
//! differs, whatever an earlier run left there: cargo sees by the time of a file that it must be built again.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::process::output;

/// The copy.
#[derive(Debug)]
pub(super) struct Tree {
    /// Its directory.
    pub(super) root: PathBuf,
}

impl Tree {
    /// Makes the copy equal to the working tree at `from`, without the files that git ignores.
    pub(super) fn copy(from: &Path, root: PathBuf) -> Result<Self, Failure> {
        let mut list = std::process::Command::new("git");
        list.current_dir(from).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let listed = output(&mut list)?;
        // A file that was deleted, but not yet in the index, is listed too.
        let files: BTreeSet<PathBuf> =
            listed.split('\0').map(PathBuf::from).filter(|file| from.join(file).is_file()).collect();
        fs::create_dir_all(&root).map_err(|error| Failure::io(&root.to_string_lossy(), &error))?;
        remove_others(&root, Path::new(""), &files)?;
        let tree = Self { root };
        for file in &files {
            let content = fs::read(from.join(file)).map_err(|error| Failure::io(&file.to_string_lossy(), &error))?;
            tree.write(file, &content)?;
        }
        Ok(tree)
    }

    /// The text of a file.
    pub(super) fn read(&self, file: &Path) -> Result<String, Failure> {
        fs::read_to_string(self.root.join(file)).map_err(|error| Failure::io(&file.to_string_lossy(), &error))
    }

    /// Gives a file this content, if it has another.
    pub(super) fn write(&self, file: &Path, content: &[u8]) -> Result<(), Failure> {
        let path = self.root.join(file);
        if fs::read(&path).is_ok_and(|old| old == content) {
            return Ok(());
        }
        let directory = path.parent().unwrap_or(&self.root);
        let written = fs::create_dir_all(directory).and_then(|()| fs::write(&path, content));
        written.map_err(|error| Failure::io(&path.to_string_lossy(), &error))
    }
}

/// Removes the files below a directory of the copy that the tree has no more: two files for one module do not compile.
fn remove_others(root: &Path, directory: &Path, files: &BTreeSet<PathBuf>) -> Result<(), Failure> {
    let failed = |error| Failure::io(&root.join(directory).to_string_lossy(), &error);
    for entry in fs::read_dir(root.join(directory)).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = directory.join(entry.file_name());
        if entry.file_type().map_err(failed)?.is_dir() {
            remove_others(root, &path, files)?;
        } else if !files.contains(&path) {
            fs::remove_file(entry.path()).map_err(failed)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_the_tree_has_no_more_are_removed() {
        let root = std::env::temp_dir().join(format!("xtask-mutants-tree-{}", std::process::id()));
        let tree = Tree { root: root.clone() };
        for file in ["a.rs", "b/c.rs", "b/d.rs"] {
            tree.write(Path::new(file), b"x").expect("it can be written");
        }
        let kept = BTreeSet::from([PathBuf::from("b/c.rs")]);
        remove_others(&root, Path::new(""), &kept).expect("they can be removed");
        let left = ["a.rs", "b/c.rs", "b/d.rs"].map(|file| tree.read(Path::new(file)).is_ok());
        fs::remove_dir_all(&root).expect("it is there");
        assert_eq!(left, [false, true, false]);
    }

    #[test]
    fn a_file_of_the_same_content_is_not_written() {
        let root = std::env::temp_dir().join(format!("xtask-mutants-same-{}", std::process::id()));
        let tree = Tree { root: root.clone() };
        let time = |tree: &Tree| fs::metadata(tree.root.join("a.rs")).and_then(|about| about.modified());
        tree.write(Path::new("a.rs"), b"x").expect("it can be written");
        let old = std::time::SystemTime::UNIX_EPOCH;
        let file = fs::File::options().write(true).open(root.join("a.rs")).expect("it is there");
        file.set_modified(old).expect("its time can be set");
        tree.write(Path::new("a.rs"), b"x").expect("it is the same");
        let same = time(&tree).is_ok_and(|time| time == old);
        tree.write(Path::new("a.rs"), b"y").expect("it can be written");
        let other = time(&tree).is_ok_and(|time| time != old);
        fs::remove_dir_all(&root).expect("it is there");
        assert!(same && other, "{same} {other}");
    }
}
