//! What clients were told, against what servers know.

use std::collections::BTreeMap;

use ashlar_catalog::change::CatalogVersion;
use ashlar_catalog::record::RecordKey;
use ashlar_catalog::state::State;
use ashlar_wire::checksum::{Checksum, Salt, checksum};
use ashlar_wire::id::ServerId;

/// A proposal that was acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Told {
    /// A record of its own, never written again.
    Record { name: String, version: CatalogVersion },
    /// The record that all clients count up, at this number.
    Turn { number: u64, version: CatalogVersion },
    /// A volume that is never deleted.
    Volume { name: String, version: CatalogVersion },
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    told: Vec<Told>,
    /// Which version gave each number of the record that all count up.
    turns: BTreeMap<u64, CatalogVersion>,
    states: BTreeMap<CatalogVersion, Checksum>,
    pub(super) unknown: u64,
    pub(super) refused: u64,
    pub(super) wrong: Option<String>,
}

pub(super) fn key(name: &str) -> RecordKey {
    RecordKey { space: "sim".into(), name: name.into() }
}

/// The record that all clients count up.
pub(super) const TURN: &str = "turn";

/// The number of the record that all count up, and its revision.
pub(super) fn turn_of(state: &State) -> Option<(u64, CatalogVersion)> {
    let record = state.record(&key(TURN))?;
    let number = record.value.as_slice().try_into().map(u64::from_be_bytes);
    Some((number.expect("clients write eight bytes"), record.revision))
}

impl Ledger {
    /// How many proposals were acknowledged.
    pub(super) fn told(&self) -> u64 {
        self.told.len() as u64
    }

    fn accuse(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    /// A client was told that its proposal is made.
    pub(super) fn tell(&mut self, told: Told) {
        if let Told::Turn { number, version } = told
            && let Some(other) = self.turns.insert(number, version)
        {
            self.accuse(format!("versions {} and {} have both counted up to {number}", other.0, version.0));
        }
        self.told.push(told);
    }

    /// Compares a server's state with all other states of its version.
    pub(super) fn check_equal(&mut self, server: ServerId, state: &State) {
        let sum = checksum(Salt::new(&[]), &state.encode());
        if *self.states.entry(state.version()).or_insert(sum) != sum {
            self.accuse(format!("server {server} has another state of version {} than others", state.version().0));
        }
    }

    /// Looks for every acknowledged proposal that a server's state must have.
    pub(super) fn check_told(&mut self, server: ServerId, state: &State) {
        let lost = self.told.iter().find(|told| !is_kept(state, told));
        if let Some(told) = lost {
            let what = format!("server {server} at version {} does not have {told:?}", state.version().0);
            self.accuse(what);
        }
    }
}

fn is_kept(state: &State, told: &Told) -> bool {
    let now = state.version();
    match told {
        Told::Record { version, .. } | Told::Turn { version, .. } | Told::Volume { version, .. } if *version > now => {
            true
        }
        Told::Record { name, version } => state
            .record(&key(name))
            .is_some_and(|record| record.revision == *version && record.value == name.as_bytes()),
        Told::Turn { number, version } => turn_of(state).is_some_and(|(now, at)| (now, at) >= (*number, *version)),
        Told::Volume { name, .. } => state.volume_named(name).is_some(),
    }
}
