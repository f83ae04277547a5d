//! What is written to slots that leave, for the node that they go to.
//!
//! A slot is copied key by key while writes go on. Until its copy is whole nothing of what is written to it is sent: the keys are
//! noted, and copied again. The last of them are copied in one step with the slot locked; from then on commands follow. So the
//! target is at no point given a command about a key that it does not have as the source had it, and what it has at the end is
//! what the source has.
//!
//! Lock order: shards, then what is here.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::SlotTable;
use crate::command::dump::payload_of;
use crate::command::run;
use crate::command::spec::keys::keys_of;
use crate::engine::Engine;
use crate::keyspace::slot::SLOTS;
use crate::keyspace::{Keys, Slot};
use crate::persist::journal::{Readers, Written, encode_request};
use crate::rdb::Encoder;
use crate::resp::number::Decimal;
use crate::resp::{Parser, RequestLimits};

/// How far the copy of a slot is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It stays, or its copy has not begun: it will have what is written now.
    Untouched,
    /// Keys that change are noted.
    Copied,
    /// What changes keys is passed on.
    Followed,
}

/// Listens to what commands do, if slots leave.
#[derive(Debug, Default)]
pub(crate) struct Tap {
    is_open: AtomicBool,
    flow: Mutex<Option<Flow>>,
}

/// What is to be sent, and what is left to copy.
#[derive(Debug)]
pub(super) struct Flow {
    phases: Box<[Phase]>,
    /// Keys of the slot that is being copied which have changed meanwhile, of any database.
    noted: BTreeSet<Box<[u8]>>,
    /// Whole commands.
    stream: Vec<u8>,
    /// That of the last of them.
    database: Option<usize>,
    /// Bytes that may wait; 0 for any number.
    bytes_max: u64,
    encoder: Encoder,
    fault: Option<&'static str>,
}

impl Tap {
    /// Whether anybody wants to know what commands do.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Begins. Nothing is copied yet.
    pub(super) fn open(&self, encoder: Encoder, bytes_max: u64) {
        let phases = vec![Phase::Untouched; usize::from(SLOTS)].into_boxed_slice();
        let (noted, stream) = (BTreeSet::new(), Vec::new());
        *self.flow() = Some(Flow { phases, noted, stream, database: None, bytes_max, encoder, fault: None });
        self.is_open.store(true, Ordering::Release);
    }

    /// Ends. What was not taken is forgotten.
    pub(super) fn close(&self) {
        self.is_open.store(false, Ordering::Release);
        *self.flow() = None;
    }

    /// Takes all that is to be sent: whole commands.
    ///
    /// # Errors
    /// Why it is not all that was done.
    pub(super) fn take(&self) -> Result<Vec<u8>, &'static str> {
        let mut flow = self.flow();
        let Some(flow) = &mut *flow else { return Ok(Vec::new()) };
        flow.fault.map_or_else(|| Ok(std::mem::take(&mut flow.stream)), Err)
    }

    /// Bytes that wait to be sent.
    pub(super) fn waiting(&self) -> usize {
        self.flow().as_ref().map_or(0, |flow| flow.stream.len())
    }

    pub(super) fn flow(&self) -> MutexGuard<'_, Option<Flow>> {
        self.flow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Commands did this. Their keys are still locked.
    pub(crate) fn listen(&self, engine: &Engine, written: &Written) {
        let mut flow = self.flow();
        let Some(flow) = &mut *flow else { return };
        for (database, _, mut rest) in written.runs().filter(|(_, readers, _)| *readers == Readers::All) {
            let mut parser = Parser::default();
            while !rest.is_empty() && flow.fault.is_none() {
                let limits = RequestLimits { word_bytes_max: i64::from(u32::MAX), is_known: true };
                let Ok(Some(len)) = parser.parse(rest, limits) else {
                    flow.fault = Some("what a command did cannot be told");
                    return;
                };
                let args = parser.args(rest);
                match run::look_up(engine, args) {
                    Ok(ready) if is_flush(ready.spec().name) => flow.fault = Some(super::FLUSHED),
                    Ok(ready) => {
                        let mut keys = Vec::new();
                        if keys_of(ready.spec(), args, &mut |at, _| keys.push(&args[at])).is_err() {
                            // Any word may be one.
                            keys.extend(args.from(1));
                        }
                        flow.listen(database, &rest[..len], &keys);
                    }
                    Err(_) => flow.fault = Some("what a command did cannot be told"),
                }
                rest = &rest[len..];
            }
        }
        if flow.bytes_max > 0 && flow.stream.len() as u64 > flow.bytes_max {
            flow.fault = Some("More was written to the slots than client-output-buffer-limit lets wait for a replica");
        }
    }
}

/// Whether a command empties whole databases, or exchanges them.
pub(super) fn is_flush(name: &str) -> bool {
    matches!(name, "flushall" | "flushdb" | "swapdb")
}

impl Flow {
    fn listen(&mut self, database: usize, command: &[u8], keys: &[&[u8]]) {
        let phase = |flow: &Self, key: &[u8]| flow.phases[Slot::of(key).index()];
        let followed = keys.iter().filter(|key| phase(self, key) == Phase::Followed).count();
        let noted: Vec<&[u8]> = keys.iter().copied().filter(|key| phase(self, key) == Phase::Copied).collect();
        self.noted.extend(noted.into_iter().map(Box::from));
        if followed == 0 {
            return;
        }
        if followed < keys.len() {
            self.fault = Some("A command wrote to several slots");
            return;
        }
        self.select(database);
        self.stream.extend_from_slice(command);
    }

    fn select(&mut self, database: usize) {
        if self.database.replace(database) != Some(database) {
            let number = Decimal::new(i64::try_from(database).expect("there are far fewer databases"));
            encode_request([&b"SELECT"[..], number.as_bytes()].into_iter(), &mut self.stream);
        }
    }

    /// Whether the copy of a slot has begun. It has from now on.
    pub(super) fn begin(&mut self, slot: Slot) {
        self.phases[slot.index()] = Phase::Copied;
    }

    /// The copy of a slot is whole if no key of it is noted: says whether it is. What is done from now on follows.
    pub(super) fn finish(&mut self, slot: Slot) -> bool {
        if self.noted.is_empty() {
            self.phases[slot.index()] = Phase::Followed;
        }
        self.noted.is_empty()
    }

    /// A key that has changed since it was copied, or while it was not.
    pub(super) fn take_noted(&mut self) -> Option<Box<[u8]>> {
        self.noted.pop_first()
    }

    /// Bytes that wait to be sent.
    pub(super) fn len(&self) -> usize {
        self.stream.len()
    }

    /// Writes a key down as it is now, in one database.
    pub(super) fn copy(&mut self, database: usize, name: &[u8], keys: &mut Keys<'_>) {
        keys.select(database);
        self.select(database);
        let Some(found) = keys.look(keys.key(name)) else {
            encode_request([&b"DEL"[..], name].into_iter(), &mut self.stream);
            return;
        };
        let ttl = Decimal::new(found.record().expiry().unwrap_or(0));
        let payload = payload_of(&mut self.encoder, found);
        let words = [&b"RESTORE"[..], name, ttl.as_bytes(), &payload, b"REPLACE", b"ABSTTL"];
        encode_request(words.into_iter(), &mut self.stream);
    }
}

/// Slots in the order in which they are copied, and how far that is.
#[derive(Debug)]
pub(super) struct Walk {
    slots: Vec<Slot>,
    at: usize,
    database: usize,
    cursor: u32,
    is_begun: bool,
}

/// Keys that one look into a slot visits.
const VISIT: usize = 64;
/// What one step writes down before it lets go of a slot, bytes.
const STEP_BYTES: usize = if cfg!(test) { 2 << 10 } else { 32 << 10 };

impl Walk {
    pub(super) fn new(slots: &SlotTable) -> Self {
        Self { slots: slots.slots().collect(), at: 0, database: 0, cursor: 0, is_begun: false }
    }

    /// Whether all slots are copied.
    pub(super) fn is_over(&self) -> bool {
        self.at == self.slots.len()
    }

    /// Goes on with one slot for a short while. `keys` holds it.
    pub(super) fn step(&mut self, flow: &mut Flow, keys: &mut Keys<'_>) {
        let slot = self.slots[self.at];
        if !self.is_begun {
            (self.is_begun, self.database, self.cursor) = (true, 0, 0);
            flow.begin(slot);
        }
        let end = flow.len() + STEP_BYTES;
        while self.database < keys.databases() && flow.len() < end {
            let mut names: Vec<Box<[u8]>> = Vec::with_capacity(VISIT);
            let visit = |record: crate::keyspace::Record<'_>| names.push(record.key().into());
            self.cursor = keys.shard(slot).scan_slot(self.database, slot.index(), self.cursor, VISIT, visit);
            names.iter().for_each(|name| flow.copy(self.database, name, keys));
            if self.cursor == 0 {
                self.database += 1;
            }
        }
        if self.database < keys.databases() {
            return;
        }
        while flow.len() < end
            && let Some(name) = flow.take_noted()
        {
            // A command may have moved it to another database.
            (0..keys.databases()).for_each(|database| flow.copy(database, &name, keys));
        }
        if flow.len() < end && flow.finish(slot) {
            (self.at, self.is_begun) = (self.at + 1, false);
        }
    }

    /// The slot whose turn it is.
    pub(super) fn slot(&self) -> Slot {
        self.slots[self.at]
    }
}
