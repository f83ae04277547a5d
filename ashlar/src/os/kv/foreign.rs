//! Append logs of Valkey and Redis: never written to, and those programs kept away from ours.
//!
//! Both look for their log in the directory in which ours is, by the same parameters (`dir`, `appenddirname`, `appendfilename`). Where
//! they find none they start empty without a word, and write theirs beside ours. So our directory has a file in the place of their
//! manifest that they cannot read: they print its first line and refuse to start, with and without an append log of their own.

use std::io;
use std::path::Path;

use ashlar_kv::persist::Files;

use crate::failure::Failure;
use crate::os::files::{self, Readers};

/// How the name of their manifest ends, after `appendfilename`.
const END: &str = ".manifest";
/// How the first line begins. No line of theirs begins like this: they refuse it.
const MARK: &str = "This directory is the append log of an Ashlar key-value engine";
/// Not more is read of what stands in the place of their manifest.
const BYTES_MAX: u64 = 1 << 20;

/// What they find.
fn sign() -> String {
    format!(
        "{MARK} (ashlar kv): Valkey and Redis cannot read it.\nGive them another `dir`, with a dump of this engine's (SAVE, dump.rdb).\n"
    )
}

/// Refuses a directory that has a log of another program.
///
/// # Errors
/// It has, or what is there cannot be read.
pub(super) fn refuse_log(root: &Path) -> Result<(), Failure> {
    let unread = |error: io::Error| {
        let what = format!("cannot look for the log of another program in {}: {error}", root.display());
        Failure::world(what, "check the directory and who may read it")
    };
    let names = match files::names_in(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        names => names.map_err(unread)?,
    };
    for name in names.iter().filter(|name| name.ends_with(END)) {
        let path = root.join(name);
        let text = files::read_bytes(&path, BYTES_MAX).map_err(unread)?;
        if text.is_some_and(|text| !text.starts_with(MARK.as_bytes())) {
            return Err(foreign(&path));
        }
    }
    Ok(())
}

/// Refuses to begin a log where Redis before 7.0 has its own: one file, beside our directory.
///
/// # Errors
/// It is there.
pub(super) fn refuse_old_log(files: &Files) -> Result<(), Failure> {
    let path = Path::new(&files.directory).join(&files.foreign_log);
    if files::exists(&path) { Err(foreign(&path)) } else { Ok(()) }
}

fn foreign(path: &Path) -> Failure {
    Failure::usage(
        format!("{} is an append log of another program, which is not read", path.display()),
        "have that program save a dump (BGSAVE), put it into an empty directory, and start with `dir` naming that",
    )
}

/// Puts up what keeps the other programs away, unless it is there. Durable when this returns.
///
/// # Errors
/// It cannot be written. Retry safe.
pub(super) fn keep_away(root: &Path, files: &Files) -> Result<(), Failure> {
    let path = root.join(format!("{}{END}", files.foreign_log));
    if files::exists(&path) {
        return Ok(());
    }
    files::write_whole(&path, sign().as_bytes(), Readers::Owner).map_err(|error| {
        let what = format!("cannot write {}: {error}", path.display());
        Failure::world(what, "check the directory, and the space on its drive")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::files::tests::Scratch;

    #[test]
    fn ours_is_told_from_theirs_whatever_it_is_called() {
        let scratch = Scratch::new();
        let root = scratch.0.join("log");
        refuse_log(&root).unwrap();
        files::make_directory(&root).unwrap();
        let files = |name: &str| Files {
            directory: scratch.0.display().to_string(),
            foreign_log: name.to_owned(),
            ..Files::default()
        };
        for name in ["appendonly.aof", "other.aof"] {
            keep_away(&root, &files(name)).unwrap();
            refuse_log(&root).unwrap();
            let text = std::fs::read_to_string(root.join(format!("{name}.manifest"))).unwrap();
            // Theirs has lines of `file NAME seq NUMBER type LETTER`, and comments.
            assert!(
                text.lines().next().is_some_and(|line| !line.starts_with(['#', 'f']) && line.len() < 1_000),
                "{text}"
            );
            refuse_old_log(&files(name)).unwrap();
            std::fs::write(scratch.0.join(name), "*1\r\n$8\r\nFLUSHALL\r\n").unwrap();
            assert!(refuse_old_log(&files(name)).unwrap_err().what.contains(name));
        }
        for text in ["file x.aof.1.base.rdb seq 1 type b\n", "# This directory is the append log of an Ashlar\n", ""] {
            let path = root.join("x.aof.manifest");
            std::fs::write(&path, text).unwrap();
            assert!(refuse_log(&root).unwrap_err().what.contains("x.aof.manifest"), "{text}");
            std::fs::remove_file(path).unwrap();
        }
    }
}
