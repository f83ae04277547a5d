//! What guests did with a volume, and whether it can be the history of registers of 2 KiB.
//!
//! Half a block each, so that changes of two halves of a block come together and none may undo the other. A write that nobody was told
//! of may be done as long as its attachment may write: once a later attachment was served where it goes, it is done or never will be.

use core::ops::Range;
use std::collections::BTreeMap;

use bytes::Bytes;

use crate::history::{Action, NEVER, OPERATIONS_MAX, Operation, is_linearizable};

/// Bytes of one register.
pub(super) const UNIT_BYTES: u64 = 2_048;
/// Registers of an extent of 1 MiB.
pub(super) const UNITS: u64 = (1 << 20) / UNIT_BYTES;

/// One operation on one register, and what is known of it.
#[derive(Debug, Clone, Copy)]
struct Entry {
    generation: u64,
    action: Action,
    begin: u64,
    end: u64,
    /// When a later attachment was served there.
    fenced: u64,
    is_told: bool,
}

impl Entry {
    /// As a checker takes it; a read that nobody was told of is none.
    fn operation(&self) -> Option<Operation> {
        let Self { action, begin, end, fenced, is_told, .. } = *self;
        match action {
            Action::Read(_) => is_told.then_some(Operation { action, begin, end, is_attempt: false, seen: None }),
            Action::Write(_) => Some(Operation {
                action,
                begin,
                end: end.min(fenced),
                is_attempt: !is_told && fenced != NEVER,
                seen: None,
            }),
        }
    }
}

/// An operation that was begun.
#[derive(Debug, Clone)]
pub(super) struct Begun {
    generation: u64,
    units: Range<u64>,
    /// The place of its entry in each register's history.
    places: Vec<usize>,
}

/// The history of a volume.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    histories: BTreeMap<u64, Vec<Entry>>,
    /// The latest attachment that was served in each extent.
    served: BTreeMap<u64, u64>,
    values: u64,
    pub(super) told: u64,
    pub(super) untold: u64,
    pub(super) fenced: u64,
}

/// A register that holds a value: it says which one it is, so that content in another place shows.
fn pattern(unit: u64, value: u64) -> [u8; 8] {
    let word = if value == 0 { 0 } else { value << 24 | unit };
    word.to_le_bytes()
}

/// The value that a register's bytes are.
fn value_of(unit: u64, bytes: &[u8]) -> Result<u64, String> {
    let word = |chunk: &[u8]| u64::from_le_bytes(chunk.try_into().expect("chunks of 8"));
    let mut words = bytes.chunks_exact(8).map(word);
    let first = words.next().unwrap_or(0);
    if let Some(other) = words.find(|word| *word != first) {
        return Err(format!("register {unit} is torn: {first:#x} and {other:#x}"));
    }
    if first != 0 && first & 0xff_ffff != unit {
        return Err(format!("register {unit} has what was written to {}", first & 0xff_ffff));
    }
    Ok(first >> 24)
}

impl Oracle {
    /// The history of another volume in the place of this one: values of this one are none of it.
    pub(super) fn next_volume(&self) -> Self {
        let Self { values, told, untold, fenced, .. } = *self;
        Self { values, told, untold, fenced, ..Self::default() }
    }

    /// Whether the registers' histories have room for one more operation each.
    pub(super) fn has_room(&self, units: Range<u64>) -> bool {
        // Some are kept for the reads at the end.
        self.histories.range(units).all(|(_, history)| history.len() + 16 < OPERATIONS_MAX)
    }

    /// Registers that something was written to.
    pub(super) fn touched(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for unit in self.histories.keys().copied() {
            match ranges.last_mut() {
                Some(last) if last.end == unit && last.end - last.start < 64 => last.end = unit + 1,
                _ => ranges.push(unit..unit + 1),
            }
        }
        ranges
    }

    fn begin(&mut self, generation: u64, units: Range<u64>, action: Action, begin: u64) -> Begun {
        let mut places = Vec::new();
        for unit in units.clone() {
            let is_late = self.served.get(&(unit / UNITS)).is_some_and(|served| *served > generation);
            let fenced = if is_late { begin } else { NEVER };
            let entry = Entry { generation, action, begin, end: NEVER, fenced, is_told: false };
            let history = self.histories.entry(unit).or_default();
            places.push(history.len());
            history.push(entry);
        }
        Begun { generation, units, places }
    }

    /// A write begins: of a new value, which every register shows in its own way.
    pub(super) fn begin_write(&mut self, generation: u64, units: Range<u64>, now: u64) -> (Begun, Bytes) {
        self.values += 1;
        let value = self.values;
        let mut data = Vec::with_capacity(((units.end - units.start) * UNIT_BYTES) as usize);
        for unit in units.clone() {
            data.extend_from_slice(&pattern(unit, value).repeat(UNIT_BYTES as usize / 8));
        }
        (self.begin(generation, units, Action::Write(value), now), data.into())
    }

    /// Zeroes begin to be written.
    pub(super) fn begin_zero(&mut self, generation: u64, units: Range<u64>, now: u64) -> Begun {
        self.begin(generation, units, Action::Write(0), now)
    }

    /// A read begins.
    pub(super) fn begin_read(&mut self, generation: u64, units: Range<u64>, now: u64) -> Begun {
        self.begin(generation, units, Action::Read(0), now)
    }

    /// A change was acknowledged, or a read was answered with `data`.
    ///
    /// # Errors
    /// The data can be of no write.
    pub(super) fn tell(&mut self, begun: &Begun, data: Option<&Bytes>, now: u64) -> Result<(), String> {
        self.told += 1;
        for ((unit, place), number) in begun.units.clone().zip(&begun.places).zip(0..) {
            let entry = &mut self.histories.get_mut(&unit).expect("it was begun")[*place];
            if entry.fenced <= entry.begin {
                return Err(format!("register {unit} served an attachment after a later one: {entry:?}"));
            }
            (entry.end, entry.is_told) = (now, true);
            if let Some(data) = data {
                let at = number * UNIT_BYTES as usize;
                entry.action = Action::Read(value_of(unit, &data[at..at + UNIT_BYTES as usize])?);
            }
        }
        // Whoever is served has fenced who was there before, in all of the extents.
        self.fence(begun.generation, begun.units.start / UNITS..begun.units.end.div_ceil(UNITS), now);
        Ok(())
    }

    /// Earlier attachments than this write nothing more to these extents.
    pub(super) fn fence(&mut self, generation: u64, extents: Range<u64>, now: u64) {
        let is_new = |extent: &u64| self.served.get(extent).is_none_or(|served| *served < generation);
        let extents: Vec<u64> = extents.filter(is_new).collect();
        let units = |extent: &u64| extent * UNITS..(extent + 1) * UNITS;
        self.served.extend(extents.iter().map(|extent| (*extent, generation)));
        for extent in extents {
            for history in self.histories.range_mut(units(&extent)).map(|(_, history)| history) {
                let is_open = |entry: &&mut Entry| matches!(entry.action, Action::Write(_)) && entry.end == NEVER;
                let open = history.iter_mut().filter(is_open).filter(|entry| entry.fenced == NEVER);
                for entry in open.filter(|entry| entry.generation < generation) {
                    entry.fenced = now;
                    self.fenced += 1;
                }
            }
        }
    }

    /// Whether all of it can be.
    ///
    /// # Errors
    /// The first register whose history cannot.
    pub(super) fn check(&self) -> Result<(), String> {
        for (unit, history) in &self.histories {
            let operations: Vec<Operation> = history.iter().filter_map(Entry::operation).collect();
            if !is_linearizable(&operations) {
                let lines: Vec<String> = history.iter().map(|entry| format!("  {entry:?}\n")).collect();
                return Err(format!("register {unit} (extent {}) has no history:\n{}", unit / UNITS, lines.concat()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(oracle: &mut Oracle, generation: u64, value: u64, now: u64) -> Result<(), String> {
        let begun = oracle.begin_read(generation, 0..1, now);
        let data = pattern(0, value).repeat(UNIT_BYTES as usize / 8);
        oracle.tell(&begun, Some(&data.into()), now + 1)
    }

    #[test]
    fn what_was_told_stays() {
        let mut oracle = Oracle::default();
        let (begun, data) = oracle.begin_write(1, 0..2, 0);
        assert_eq!(value_of(1, &data[UNIT_BYTES as usize..]), Ok(1));
        oracle.tell(&begun, None, 5).unwrap();
        read(&mut oracle, 1, 1, 6).unwrap();
        oracle.check().unwrap();
        read(&mut oracle, 1, 0, 9).unwrap();
        assert!(oracle.check().unwrap_err().contains("register 0"));
    }

    #[test]
    fn a_fenced_attachment_writes_nothing_more() {
        let mut oracle = Oracle::default();
        let (_untold, _) = oracle.begin_write(1, 0..1, 0);
        read(&mut oracle, 2, 0, 5).unwrap();
        // It may have been done as the first reply left, and not after that.
        read(&mut oracle, 2, 0, 7).unwrap();
        oracle.check().unwrap();
        read(&mut oracle, 2, 1, 9).unwrap();
        oracle.check().unwrap_err();
    }

    #[test]
    fn a_register_is_whole_and_in_its_place() {
        let mut bytes = pattern(3, 9).repeat(UNIT_BYTES as usize / 8);
        assert_eq!(value_of(3, &bytes), Ok(9));
        assert!(value_of(4, &bytes).unwrap_err().contains("written to 3"));
        bytes[700] ^= 1;
        assert!(value_of(3, &bytes).unwrap_err().contains("torn"));
    }
}
