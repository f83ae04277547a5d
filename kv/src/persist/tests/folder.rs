//! A folder in memory that can lose power.
//!
//! What was not synced may be lost when it does: all of it, the end of it, or any of its sectors. A file that was removed may be
//! back.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use crate::persist::Folder;
use crate::persist::folder::Syncer;

const SECTOR_BYTES: usize = 16;

#[derive(Debug, Clone, Default)]
struct File {
    /// With what is not durable.
    bytes: Vec<u8>,
    durable: usize,
    is_name_durable: bool,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<String, File>,
    removed: BTreeMap<String, File>,
    /// Operations that still succeed; then the power is gone, in the middle of the next one.
    left: Option<u64>,
    is_dark: bool,
    is_full: bool,
    /// A file that cannot be read.
    unreadable: Option<String>,
    operations: u64,
}

/// A folder in memory; clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemoryFolder(Arc<Mutex<State>>);

/// Numbers that look random, the same for a seed (SplitMix64).
#[derive(Debug)]
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn draw(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % below
    }
}

impl MemoryFolder {
    /// After so many more operations the power goes.
    pub(crate) fn lose_power_after(&self, operations: u64) {
        self.0.lock().unwrap().left = Some(operations);
    }

    /// There is no room for more, or there is again.
    pub(crate) fn set_full(&self, is_full: bool) {
        self.0.lock().unwrap().is_full = is_full;
    }

    /// Reading this file fails, or none.
    pub(crate) fn set_unreadable(&self, name: Option<&str>) {
        self.0.lock().unwrap().unreadable = name.map(str::to_owned);
    }

    /// Operations so far.
    pub(crate) fn operations(&self) -> u64 {
        self.0.lock().unwrap().operations
    }

    /// The power is back: what chance left of everything.
    pub(crate) fn restart(&self, chance: &mut Chance) {
        let mut state = self.0.lock().unwrap();
        (state.left, state.is_dark) = (None, false);
        let removed = std::mem::take(&mut state.removed);
        for (name, file) in removed {
            if chance.draw(2) == 0 {
                state.files.entry(name).or_insert(file);
            }
        }
        state.files.retain(|_, file| {
            let kept = file.is_name_durable || chance.draw(2) == 0;
            let (durable, len) = (file.durable, file.bytes.len());
            match chance.draw(4) {
                0 => file.bytes.truncate(durable),
                1 => {
                    let more = u64::try_from(len - durable).unwrap();
                    file.bytes.truncate(durable + usize::try_from(chance.draw(more + 1)).unwrap());
                }
                2 => file.bytes[durable..].chunks_mut(SECTOR_BYTES).for_each(|sector| {
                    if chance.draw(2) == 0 {
                        sector.fill(0);
                    }
                }),
                _ => {}
            }
            (file.durable, file.is_name_durable) = (file.bytes.len(), true);
            kept
        });
    }

    /// The bytes of a file.
    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        self.0.lock().unwrap().files[name].bytes.clone()
    }

    /// Gives a file other bytes, as no program would.
    pub(crate) fn set_bytes(&self, name: &str, bytes: Vec<u8>) {
        let durable = bytes.len();
        self.0.lock().unwrap().files.insert(name.into(), File { bytes, durable, is_name_durable: true });
    }

    /// Takes a file away, as no program would.
    pub(crate) fn take(&self, name: &str) {
        self.0.lock().unwrap().files.remove(name);
    }

    /// All names.
    pub(crate) fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().files.keys().cloned().collect()
    }

    /// A copy that shares nothing.
    pub(crate) fn copy(&self) -> Self {
        let files = self.0.lock().unwrap().files.clone();
        Self(Arc::new(Mutex::new(State { files, ..State::default() })))
    }
}

impl State {
    /// Whether the next operation succeeds; the first that does not is done in part.
    fn begin(&mut self) -> Result<(), bool> {
        self.operations += 1;
        if self.is_dark {
            return Err(false);
        }
        match &mut self.left {
            Some(0) => {
                self.is_dark = true;
                Err(true)
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

fn dark() -> io::Error {
    io::Error::other("no power")
}

impl Folder for MemoryFolder {
    fn read_at(&mut self, name: &str, at: u64, into: &mut [u8]) -> io::Result<usize> {
        let state = self.0.lock().unwrap();
        if state.is_dark {
            return Err(dark());
        }
        if state.unreadable.as_deref() == Some(name) {
            return Err(io::Error::other("the drive does not answer"));
        }
        let file = state.files.get(name).ok_or(io::ErrorKind::NotFound)?;
        let rest = usize::try_from(at).ok().and_then(|at| file.bytes.get(at..)).unwrap_or_default();
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        if state.is_full {
            state.files.entry(name.into()).or_default().bytes.extend_from_slice(&bytes[..bytes.len() / 2]);
            return Err(io::ErrorKind::StorageFull.into());
        }
        let begun = state.begin();
        if begun != Err(false) {
            let file = state.files.entry(name.into()).or_default();
            let part = if begun.is_ok() { bytes.len() } else { bytes.len() / 2 };
            file.bytes.extend_from_slice(&bytes[..part]);
        }
        begun.map_err(|_| dark())
    }

    fn syncer(&mut self, name: &str) -> Syncer {
        let (folder, name) = (self.clone(), name.to_owned());
        Box::new(move || {
            let mut state = folder.0.lock().unwrap();
            state.begin().map_err(|_| dark())?;
            let file = state.files.get_mut(&name).ok_or(io::ErrorKind::NotFound)?;
            (file.durable, file.is_name_durable) = (file.bytes.len(), true);
            Ok(())
        })
    }

    fn replace(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        if state.is_full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let begun = state.begin();
        // Cut in the middle it is done or not; which, depends on how far the log is.
        if begun.is_ok() || (begun == Err(true) && state.operations.is_multiple_of(2)) {
            let file = File { bytes: bytes.to_vec(), durable: bytes.len(), is_name_durable: true };
            state.files.insert(name.into(), file);
        }
        begun.map_err(|_| dark())
    }

    fn others(&mut self, names: &[&str], remove: bool) -> io::Result<usize> {
        let mut state = self.0.lock().unwrap();
        state.begin().map_err(|_| dark())?;
        let State { files, removed, .. } = &mut *state;
        let others: Vec<String> = files.keys().filter(|name| !names.contains(&name.as_str())).cloned().collect();
        let count = others.len();
        for name in others.into_iter().filter(|_| remove) {
            removed.extend(files.remove(&name).map(|file| (name, file)));
        }
        Ok(count)
    }
}
