//! Dumps for replicas: taken by the thread that takes snapshots, and sent by their connections.
//!
//! Replicas that find the end of a dump by a mark get it while it is taken; it is taken no faster than the slowest of them
//! reads. For the others it is written to a file without a name, since its length is sent first, and a thread of its own hands
//! it over.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ashlar_kv::Engine;
use ashlar_kv::persist::snapshot::Step;
use ashlar_kv::persist::{Files, Snapshot};
use ashlar_kv::replicate::FullSync;

use super::courtesy::Courtesy;
use crate::os::files::{self, Creation};
use crate::os::{clock, random};

/// Letters of a mark.
const MARK_LETTERS: usize = 40;
/// Bytes that are read of a file at a time.
const READ_BYTES: usize = 256 << 10;
/// How long a replica's room is waited for before it is looked whether there still is a reason to.
const ROOM_SPAN: Duration = Duration::from_millis(100);

/// Takes a dump for replicas. Those that do not get it whole lose their connections, and ask again.
pub(super) fn synchronise(engine: &Arc<Engine>, sync: FullSync, files: &Files, is_given_up: &dyn Fn() -> bool) {
    let snapshot = Snapshot::begin_sync(Arc::clone(engine), &sync, clock::now_both());
    let done = if sync.is_streamed() {
        stream(snapshot, &sync, is_given_up).map(|()| sync.end(clock::now_both()))
    } else {
        spool(snapshot, &sync, Path::new(&files.directory), is_given_up).and_then(|file| hand_over(file, sync))
    };
    match done {
        Ok(()) => tracing::info!("a dump for replicas was taken"),
        Err(error) => tracing::warn!(%error, "no dump for replicas: they must ask again"),
    }
}

/// Hands the dump over while it is taken, between two times the mark.
fn stream(snapshot: Snapshot, sync: &FullSync, is_given_up: &dyn Fn() -> bool) -> io::Result<()> {
    let parts: [u8; MARK_LETTERS / 2] = random::bytes();
    let mark: String = parts.iter().map(|byte| format!("{byte:02x}")).collect();
    put(sync, format!("$EOF:{mark}\r\n").as_bytes(), is_given_up)?;
    take(snapshot, sync, is_given_up, &mut |bytes| put(sync, bytes, is_given_up))?;
    put(sync, mark.as_bytes(), is_given_up)
}

/// Writes the dump to a file that nobody else sees.
fn spool(snapshot: Snapshot, sync: &FullSync, folder: &Path, is_given_up: &dyn Fn() -> bool) -> io::Result<File> {
    let path = folder.join(format!("replicas-{}.rdb", clock::now_both().unix_us));
    let mut file = files::create(&path, Creation::New)?;
    fs::remove_file(&path)?;
    take(snapshot, sync, is_given_up, &mut |bytes| file.write_all(bytes))?;
    file.rewind()?;
    Ok(file)
}

/// Takes a snapshot to its end, as long as somebody wants it.
fn take(
    mut snapshot: Snapshot,
    sync: &FullSync,
    is_given_up: &dyn Fn() -> bool,
    write: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut courtesy = Courtesy::new();
    loop {
        let step = snapshot.step();
        write(&snapshot.take())?;
        courtesy.handle_step();
        match step {
            Step::More if is_given_up() || sync.is_deserted() => {
                return Err(io::Error::other("nobody wants it any more"));
            }
            Step::More => {}
            Step::Done => return Ok(()),
            Step::Lost(loss) => return Err(io::Error::other(format!("it was lost: {loss:?}"))),
        }
    }
}

/// Hands a file over, with its length first, on a thread of its own.
fn hand_over(mut file: File, sync: FullSync) -> io::Result<()> {
    let body = move || {
        sync.send();
        let sent = (|| {
            put(&sync, format!("${}\r\n", file.metadata()?.len()).as_bytes(), &|| false)?;
            let mut piece = vec![0; READ_BYTES];
            loop {
                match file.read(&mut piece)? {
                    0 => return Ok(()),
                    count => put(&sync, &piece[..count], &|| false)?,
                }
            }
        })();
        match sent {
            Ok(()) => sync.end(clock::now_both()),
            Err(error) => {
                let error: io::Error = error;
                tracing::warn!(%error, "a dump for replicas was not sent");
            }
        }
    };
    thread::Builder::new().name("kv-sync".into()).spawn(body).map(drop)
}

/// Hands bytes to all replicas. One that takes nothing for too long is given up.
fn put(sync: &FullSync, bytes: &[u8], is_given_up: &dyn Fn() -> bool) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let (mut from, mut since, patience) = (0, clock::now(), sync.patience());
    while let Err(full) = sync.put(bytes, from, ROOM_SPAN) {
        if is_given_up() {
            return Err(io::Error::other("the engine stops"));
        }
        if full != from {
            (from, since) = (full, clock::now());
        } else if clock::now().saturating_since(since) >= patience {
            sync.dismiss(full);
        }
    }
    if sync.is_deserted() { Err(io::Error::other("nobody wants it any more")) } else { Ok(()) }
}
