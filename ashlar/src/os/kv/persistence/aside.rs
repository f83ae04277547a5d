//! Dumps of data that a new primary's data replace although it may lack some of them: `diverged-MICROSECONDS.rdb`.
//!
//! Up to `diverged-copies-max` are kept. The oldest is removed once a newer one is whole, never before.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use ashlar_kv::Engine;
use ashlar_kv::persist::Files;
use ashlar_kv::replicate::KeptCopy;

use super::saver::write_dump;
use crate::os::{clock, files};

/// How the names of the files begin and end.
const BEGIN: &str = "diverged-";
const END: &str = ".rdb";

/// Finds the copies that earlier processes have kept.
pub(super) fn look(engine: &Engine, files: &Files) {
    match copies(Path::new(&files.directory)) {
        Ok(copies) => {
            if let Some(last) = copies.last() {
                tracing::warn!(
                    copies = copies.len(),
                    last = last.file,
                    "data that a new primary may have lacked are kept aside here: see `Diverged copies` in docs/operating/kv-cluster.md"
                );
            }
            engine.aside().note_copies(copies);
        }
        Err(error) => tracing::warn!(%error, "diverged copies cannot be counted"),
    }
}

/// Writes all data to a file of its own, durable on return, and removes the oldest copies beyond the limit. How many were removed.
///
/// # Errors
/// The data are not on files; nothing was removed. Retry safe.
pub(super) fn keep(engine: &Arc<Engine>, files: &Files, is_given_up: &dyn Fn() -> bool) -> Result<u64, String> {
    let directory = Path::new(&files.directory);
    let file = format!("{BEGIN}{}{END}", clock::now_both().unix_us);
    let keys = write_dump(engine, &directory.join(&file), is_given_up).map_err(|why| {
        tracing::error!(file, %why, "the data cannot be kept aside: the new primary is not followed");
        why.to_string()
    })?;
    tracing::warn!(
        file,
        keys,
        directory = files.directory,
        "the data of this node were kept aside, and those of the new primary replace them: see `Diverged copies` in docs/operating/kv-cluster.md"
    );
    let all = copies(directory).map_err(|error| error.to_string())?;
    let beyond = all.len().saturating_sub(engine.diverged_copies_max().max(1));
    let mut removed = 0;
    for copy in &all[..beyond] {
        match fs::remove_file(directory.join(&copy.file)) {
            Ok(()) => {
                removed += 1;
                tracing::warn!(
                    file = copy.file,
                    "the oldest diverged copy was removed: there were more than diverged-copies-max"
                );
            }
            Err(error) => {
                tracing::error!(file = copy.file, %error, "a diverged copy beyond diverged-copies-max cannot be removed");
            }
        }
    }
    files::sync_directory(directory).map_err(|error| error.to_string())?;
    engine.aside().note_copies(copies(directory).map_err(|error| error.to_string())?);
    Ok(removed)
}

/// The copies in a directory, oldest first.
fn copies(directory: &Path) -> io::Result<Vec<KeptCopy>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let Ok(file) = entry.file_name().into_string() else { continue };
        let time =
            file.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(END)).and_then(|time| time.parse::<i64>().ok());
        if let Some(unix_us) = time {
            found.push((unix_us, KeptCopy { file, bytes: entry.metadata()?.len(), unix_s: unix_us / 1_000_000 }));
        }
    }
    found.sort_by_key(|(unix_us, _)| *unix_us);
    Ok(found.into_iter().map(|(_, copy)| copy).collect())
}
