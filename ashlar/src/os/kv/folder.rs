//! The folder of an append log: a directory that one process at a time may use.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ashlar_kv::persist::{self, Syncer};

use crate::failure::Failure;
use crate::os::files::{self, Creation, Readers, Trickle};

/// Held by the process that uses the folder.
const LOCK: &str = "lock";
/// Added to the name of what is not whole yet, by [`files::write_whole`].
const BESIDE: &str = "new";

/// A directory, and the files in it that are open.
#[derive(Debug)]
pub(super) struct Folder {
    root: PathBuf,
    /// Those that were appended to; whether their names are durable.
    open: BTreeMap<String, (Arc<File>, bool)>,
    /// Nothing if another value of this process holds it.
    _lock: Option<File>,
}

impl Folder {
    /// Takes a directory for this process; makes it if it is not there.
    ///
    /// # Errors
    /// Another process has it, or it cannot be made.
    pub(super) fn take(root: &Path) -> Result<Self, Failure> {
        let cannot = |what: &str, error: &io::Error| {
            Failure::world(
                format!("cannot {what} {}: {error}", root.display()),
                "check the directory and who may write it",
            )
        };
        files::make_directory(root).map_err(|error| cannot("make", &error))?;
        let lock = files::create(&root.join(LOCK), Creation::Lock).map_err(|error| cannot("write to", &error))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { root: root.into(), open: BTreeMap::new(), _lock: Some(lock) }),
            Err(TryLockError::WouldBlock) => {
                let what = format!("another process writes to {}", root.display());
                Err(Failure::world(what, "stop it first, or use another directory"))
            }
            Err(TryLockError::Error(error)) => Err(cannot("lock", &error)),
        }
    }

    /// What was just appended to a file goes to the drive soon, without being waited for.
    pub(super) fn trickle(&self, name: &str, bytes: usize, trickle: &mut Trickle) {
        if let Some((file, _)) = self.open.get(name) {
            trickle.handle_written(file, bytes);
        }
    }

    /// The same directory for another thread of this process, for files that the first does not write.
    #[must_use]
    pub(super) fn beside(&self) -> Self {
        Self { root: self.root.clone(), open: BTreeMap::new(), _lock: None }
    }
}

impl persist::Folder for Folder {
    fn read_at(&mut self, name: &str, at: u64, into: &mut [u8]) -> io::Result<usize> {
        // Files are read once, at the start, in large pieces: opening them anew costs nothing that counts.
        File::open(self.root.join(name))?.read_at(into, at)
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        if !self.open.contains_key(name) {
            let file = files::create(&self.root.join(name), Creation::Append)?;
            self.open.insert(name.into(), (Arc::new(file), false));
        }
        let (file, _) = self.open.get(name).expect("it is open");
        file.as_ref().write_all(bytes)
    }

    fn syncer(&mut self, name: &str) -> Syncer {
        let root = self.root.clone();
        let Some((file, is_name_durable)) = self.open.get_mut(name) else {
            let path = root.join(name);
            return Box::new(move || {
                File::open(path)?.sync_all()?;
                files::sync_directory(&root)
            });
        };
        // Nobody goes on after a sync that failed.
        let (file, syncs_name) = (Arc::clone(file), !std::mem::replace(is_name_durable, true));
        Box::new(move || {
            file.sync_data()?;
            if syncs_name { files::sync_directory(&root) } else { Ok(()) }
        })
    }

    fn replace(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.open.remove(name);
        files::write_whole(&self.root.join(name), bytes, Readers::Owner)
    }

    fn others(&mut self, names: &[&str], remove: bool) -> io::Result<usize> {
        let mut count = 0;
        for entry in fs::read_dir(&self.root)? {
            let name = entry?.file_name();
            let Some(name) = name.to_str() else { continue };
            // What is not ours is of other programs, or keeps them away.
            let is_beside = Path::new(name).extension().is_some_and(|extension| extension == BESIDE);
            if !is_ours(name) || names.contains(&name) || (is_beside && !remove) {
                continue;
            }
            count += 1;
            if remove {
                self.open.remove(name);
                fs::remove_file(self.root.join(name))?;
            }
        }
        Ok(count)
    }
}

/// Whether a file is part of an append log, or was left by a crash in the middle of replacing one that is.
fn is_ours(name: &str) -> bool {
    let name = name.strip_suffix(BESIDE).and_then(|name| name.strip_suffix('.')).unwrap_or(name);
    let base = name.strip_prefix("base-").and_then(|name| name.strip_suffix(".rdb"));
    let number = base.or_else(|| name.strip_prefix("log-"));
    name == "manifest" || number.is_some_and(|number| number.bytes().all(|digit| digit.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use ashlar_kv::persist::Folder as _;

    use super::*;
    use crate::os::files::tests::Scratch;

    #[test]
    fn does_what_the_log_asks_of_a_folder() {
        let scratch = Scratch::new();
        let mut folder = Folder::take(&scratch.0).unwrap();
        assert_eq!(folder.read_at("log-1", 0, &mut [0; 4]).unwrap_err().kind(), io::ErrorKind::NotFound);
        folder.append("log-1", b"one").unwrap();
        folder.append("log-1", b"two").unwrap();
        folder.syncer("log-1")().unwrap();
        folder.syncer("log-1")().unwrap();
        let mut bytes = [0; 8];
        assert_eq!(folder.read_at("log-1", 2, &mut bytes).unwrap(), 4);
        assert_eq!(&bytes[..4], b"etwo");
        folder.replace("manifest", b"m").unwrap();
        folder.beside().append("base-2.rdb", b"b").unwrap();
        fs::write(scratch.0.join("notes.txt"), "of somebody else").unwrap();
        // `appendfilename` may look like a file of ours.
        fs::write(scratch.0.join("log-1.manifest"), "keeps others away").unwrap();
        fs::write(scratch.0.join("manifest.new"), "left by a crash").unwrap();
        assert_eq!(folder.others(&["manifest"], false).unwrap(), 2);
        assert_eq!(folder.others(&["manifest", "log-1"], true).unwrap(), 2);
        let mut left: Vec<_> = fs::read_dir(&scratch.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["lock", "log-1", "log-1.manifest", "manifest", "notes.txt"]);
        folder.replace("log-1", b"").unwrap();
        folder.append("log-1", b"x").unwrap();
        assert_eq!(fs::read(scratch.0.join("log-1")).unwrap(), b"x");
    }

    #[test]
    fn is_taken_by_one_process() {
        let scratch = Scratch::new();
        let first = Folder::take(&scratch.0).unwrap();
        assert!(Folder::take(&scratch.0).unwrap_err().what.contains("another process"));
        drop(first);
        Folder::take(&scratch.0).unwrap();
    }
}
