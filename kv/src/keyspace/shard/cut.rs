//! A snapshot of one shard, as it was at one moment, while writes go on.
//!
//! Every record has a mark of one bit. A cut turns the mark around, so that all records that are there have the wrong one.
//! Whoever is about to change or remove such a record saves it first; what a walk over all records finds with the wrong mark it
//! saves too. What is saved, or made after the cut, has the right mark. After the walk all have, and the cut is over.
//!
//! Cost: one branch for each change while there is no cut; a record is written down once for each. A collection is written
//! down as a whole, with the shard locked.

use super::{Arena, Record, Shard, record};
use crate::keyspace::{AccessClock, Kind};
use crate::memory::arena::Handle;
use crate::memory::slab::Slab;
use crate::rdb::{Encoder, Value, attributes_of};
use crate::value::Object;

/// Records that one look into an index visits.
const VISIT: usize = 64;
/// Records that one step visits, saved already or not.
const VISITS_MAX: usize = 1 << 10;

/// Why a cut does not become a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// A whole database went away or became another.
    Flushed,
    /// There is a hash with fields that expire, and the form that was chosen has none.
    NeedsValkey,
    /// What was saved cannot be written.
    Refused,
}

/// Keys that were saved, in the form of a file: runs of one database each.
#[derive(Debug, Default)]
pub(crate) struct Saved {
    pub(crate) bytes: Vec<u8>,
    /// The database of each run, and where it ends.
    pub(crate) runs: Vec<(usize, usize)>,
    pub(crate) keys: u64,
}

/// A cut through one shard.
#[derive(Debug)]
pub(super) struct Cut {
    encoder: Encoder,
    clock: AccessClock,
    takes_fields: bool,
    saved: Saved,
    loss: Option<Loss>,
    /// Where the walk goes on: database, slot within the shard, cursor.
    place: (usize, usize, u32),
}

impl Cut {
    fn save(&mut self, database: usize, record: Record<'_>, objects: &Slab<Object>) {
        if self.loss.is_some() {
            return;
        }
        let value = match record.kind() {
            Kind::String => Value::String(record.value()),
            _ => Value::Object(objects.get(record.object())),
        };
        if value.needs_valkey() && !self.takes_fields {
            self.lose(Loss::NeedsValkey);
            return;
        }
        let Saved { bytes, runs, keys } = &mut self.saved;
        self.encoder.entry(record.key(), attributes_of(record, self.clock), value, bytes);
        *keys += 1;
        match runs.last_mut() {
            Some(last) if last.0 == database => last.1 = bytes.len(),
            _ => runs.push((database, bytes.len())),
        }
    }

    fn lose(&mut self, loss: Loss) {
        self.loss.get_or_insert(loss);
        self.saved = Saved::default();
    }
}

impl Shard {
    /// All that is here now is to be saved. `takes_fields` says whether the form has hashes with fields that expire.
    ///
    /// # Panics
    /// A cut is not over yet.
    pub(crate) fn begin_cut(&mut self, encoder: Encoder, clock: AccessClock, takes_fields: bool) {
        assert!(self.cut.is_none(), "one snapshot is taken at a time");
        let (saved, place) = (Saved::default(), (0, 0, 0));
        self.mark = !self.mark;
        self.cut = Some(Box::new(Cut { encoder, clock, takes_fields, saved, loss: None, place }));
    }

    /// The cut becomes no snapshot, if there is one. Its walk must still be finished.
    pub(crate) fn lose_cut(&mut self, loss: Loss) {
        if let Some(cut) = &mut self.cut {
            cut.lose(loss);
        }
    }

    /// What was saved since it was last taken, and whether it is all in vain.
    pub(crate) fn take_saved(&mut self) -> (Saved, Option<Loss>) {
        self.cut.as_mut().map_or((Saved::default(), None), |cut| (std::mem::take(&mut cut.saved), cut.loss))
    }

    /// Walks on until about so many bytes wait to be taken. Says whether all records are saved. The caller takes them then, and
    /// calls [`Shard::end_cut`].
    pub(crate) fn save_some(&mut self, bytes: usize) -> bool {
        let mut visits = 0;
        while visits < VISITS_MAX {
            let Some(cut) = &self.cut else { return true };
            if cut.saved.bytes.len() >= bytes {
                return false;
            }
            let (database, slot, cursor) = cut.place;
            let Some(there) = self.databases.get(database) else { return true };
            let Some(index) = there.as_ref().and_then(|database| database.slots.get(slot)) else {
                self.move_cut((database + 1, 0, 0));
                continue;
            };
            let mut found: Vec<Handle> = Vec::with_capacity(VISIT);
            let next = index.scan(cursor, VISIT, &self.held(), |handle| found.push(handle));
            visits += found.len().max(1);
            found.into_iter().for_each(|handle| self.save_first(database, handle));
            self.move_cut(if next == 0 { (database, slot + 1, 0) } else { (database, slot, next) });
        }
        false
    }

    /// The walk is over and what was saved is taken.
    pub(crate) fn end_cut(&mut self) {
        self.cut = None;
    }

    pub(super) fn move_cut(&mut self, place: (usize, usize, u32)) {
        if let Some(cut) = &mut self.cut {
            cut.place = place;
        }
    }

    /// A record is about to be changed or removed: it is saved as it is, unless it was or nobody wants it.
    #[inline]
    pub(super) fn save_first(&mut self, database: usize, handle: Handle) {
        if let Some(cut) = &mut self.cut {
            save(cut, &mut self.arena, &self.objects, self.mark, database, handle);
        }
    }
}

#[cold]
fn save(cut: &mut Cut, arena: &mut Arena, objects: &Slab<Object>, mark: bool, database: usize, handle: Handle) {
    let found = Record::of(arena.cell(handle));
    if found.mark() != mark {
        cut.save(database, found, objects);
        record::set_mark(arena.cell_mut(handle), mark);
    }
}
