//! What was proposed and what became of it, and what must hold of both.

use std::collections::BTreeMap;

use ashlar_wire::checksum::{Salt, checksum};

use super::world::Place;
use crate::change::{Applied, CatalogVersion};
use crate::record::RecordKey;
use crate::state::State;

/// What became of a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Nothing is known: no answer, or its server has crashed.
    Unknown,
    /// Applied, as this says.
    Acknowledged(Applied),
    /// Refused.
    Refused,
}

/// Every proposal, and every state that was seen.
#[derive(Debug, Default)]
pub(super) struct History {
    /// By number.
    pub(super) fates: Vec<Fate>,
    /// Checksum of the state of each version that was seen at any server.
    seen: BTreeMap<CatalogVersion, u64>,
    /// The latest version that was seen at each life of each server.
    latest: BTreeMap<(Place, u64), CatalogVersion>,
}

/// The record that proposal `number` writes.
pub(super) fn key_of(number: usize) -> RecordKey {
    RecordKey { space: "proof".into(), name: format!("{number:08}") }
}

/// The value that proposal `number` writes.
pub(super) fn value_of(number: usize) -> Vec<u8> {
    format!("value of {number}").into_bytes()
}

impl History {
    /// Takes the state that a server shows.
    pub(super) fn observe(&mut self, place: Place, life: u64, state: &State) -> Result<(), String> {
        let version = state.version();
        let latest = self.latest.entry((place, life)).or_insert(version);
        if *latest > version {
            return Err(format!("server {place} went back from version {} to {}", latest.0, version.0));
        }
        *latest = version;
        let sum = checksum(Salt::new(&[]), &state.encode()).0;
        match self.seen.insert(version, sum) {
            Some(other) if other != sum => Err(format!("two states of version {}", version.0)),
            _ => Ok(()),
        }
    }

    /// Checks that a state has every acknowledged proposal, as it was acknowledged.
    pub(super) fn check(&self, state: &State) -> Result<(), String> {
        for (number, fate) in self.fates.iter().enumerate() {
            let record = state.record(&key_of(number));
            match (fate, record) {
                (Fate::Acknowledged(applied), None) => {
                    return Err(format!("proposal {number}, acknowledged at {}, is lost", applied.version.0));
                }
                (Fate::Acknowledged(applied), Some(record)) if record.revision != applied.version => {
                    let (told, found) = (applied.version.0, record.revision.0);
                    return Err(format!("proposal {number} was acknowledged at {told} and stands at {found}"));
                }
                (Fate::Refused, Some(_)) => return Err(format!("proposal {number} was refused and is there")),
                (_, Some(record)) if record.value != value_of(number) => {
                    return Err(format!("proposal {number} has another value"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// How many proposals had this kind of fate.
    pub(super) fn count(&self, of: impl Fn(&Fate) -> bool) -> usize {
        self.fates.iter().filter(|fate| of(fate)).count()
    }
}
