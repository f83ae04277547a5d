//! Where the data of a node come from, as a node has to know it after a restart: a durable record of one line.
//!
//! The append log does not say at which position of which history its data are. A node that restarts and finds another primary in
//! its place must know whether it may have writes which that primary lacks (`aside`).
//!
//! - `own`: the node has been a primary of slots since, so its data may be nobody else's. Written before it serves.
//! - `own HISTORY POSITION`: the same, and the process ended in order at that point. It is good for one start.
//! - `copy HISTORY POSITION`: the data came from a primary, and are at this point of its history or a little behind it.
//!
//! Without a record the data count as its own.

use std::fmt;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::engine::Engine;

/// How the record begins: its form.
const FORM: &str = "origin 1";
/// Letters of a history's name.
const NAME_LETTERS: usize = 40;
/// Keeps the record. True once it is durable.
type Keep = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// A position of a history.
type At = (String, u64);

/// Where data come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// From clients.
    Own(Option<At>),
    /// From a primary.
    Copy(At),
}

impl Origin {
    /// The record.
    fn encode(&self) -> String {
        match self {
            Self::Own(None) => format!("{FORM} own\n"),
            Self::Own(Some((history, position))) => format!("{FORM} own {history} {position}\n"),
            Self::Copy((history, position)) => format!("{FORM} copy {history} {position}\n"),
        }
    }

    /// What a record says, if it is one.
    fn decode(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.strip_suffix('\n')?.strip_prefix(FORM)?.strip_prefix(' ')?.split(' ').collect();
        let at = |history: &str, position: &str| {
            let is_name = history.len() == NAME_LETTERS && history.bytes().all(|byte| byte.is_ascii_alphanumeric());
            is_name.then_some((history.to_owned(), position.parse().ok()?))
        };
        match words[..] {
            ["own"] => Some(Self::Own(None)),
            ["own", history, position] => Some(Self::Own(Some(at(history, position)?))),
            ["copy", history, position] => Some(Self::Copy(at(history, position)?)),
            _ => None,
        }
    }
}

#[derive(Debug, Default)]
struct State {
    /// As it is on the drive; nothing if nothing is, or not what was wanted.
    kept: Option<Origin>,
    /// The history that the data are known to contain up to a position, from an orderly end of the last process.
    past: Option<At>,
}

/// The record of one engine.
#[derive(Default)]
pub(crate) struct Origins {
    state: Mutex<State>,
    keep: OnceLock<Keep>,
}

impl fmt::Debug for Origins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Origins").field(&*self.lock()).finish()
    }
}

impl Origins {
    /// Whether the data are known to contain a history up to a position, from before this process.
    fn has(&self, name: &str, position: u64) -> bool {
        let state = self.lock();
        state.past.as_ref().is_some_and(|(history, end)| history.eq_ignore_ascii_case(name) && position <= *end)
    }

    /// Writes the record down, if it is another one.
    fn note(&self, origin: Origin) {
        let mut state = self.lock();
        if state.kept.as_ref() == Some(&origin) {
            return;
        }
        let Some(keep) = self.keep.get() else { return };
        let is_kept = keep(&origin.encode());
        state.kept = is_kept.then_some(origin);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    /// What was recorded of the origin of the data that were read from files, an empty text if nothing was. Each later record is given
    /// to `keep`, which returns true once it is durable. False if the text is no record: nothing was done then.
    #[must_use]
    pub fn open_origin(&self, kept: &str, keep: Box<dyn Fn(&str) -> bool + Send + Sync>) -> bool {
        let origin = Origin::decode(kept);
        if origin.is_none() && !kept.is_empty() {
            return false;
        }
        let mut state = self.origins.lock();
        if let Some(Origin::Own(Some(at)) | Origin::Copy(at)) = &origin
            && !self.is_empty()
        {
            state.past = Some(at.clone());
        }
        state.kept = origin;
        drop(state);
        self.origins.keep.get_or_init(|| keep);
        true
    }

    /// This node is about to serve slots: from now on its data may be nobody else's.
    pub fn note_own_data(&self) {
        self.origins.note(Origin::Own(None));
    }

    /// Writes down how far the data are a copy of a primary's, if they are one now. To be called about once a second.
    pub fn note_copied_data(&self) {
        if self.role.is_linked() {
            self.note_followed_data();
        }
    }

    /// The data are a copy of a primary's from now on.
    pub(super) fn note_followed_data(&self) {
        if self.role.is_replica()
            && let Some(point) = self.replication.point(&self.identity)
        {
            self.origins.note(Origin::Copy((point.history, point.position)));
        }
    }

    /// The process ends in order, and all data are on files.
    pub fn note_orderly_end(&self) {
        if self.role.is_replica() {
            return self.note_followed_data();
        }
        if let Some(point) = self.replication.point(&self.identity) {
            self.origins.note(Origin::Own(Some((point.history, point.position))));
        }
    }

    /// The point that the data here are at, for the question whether a primary contains them.
    pub(super) fn data_point(&self) -> Option<At> {
        let known = self.replication.point(&self.identity).map(|point| (point.history, point.position));
        known.or_else(|| match &self.origins.lock().kept {
            Some(Origin::Own(Some(at)) | Origin::Copy(at)) => Some(at.clone()),
            Some(Origin::Own(None)) | None => None,
        })
    }

    /// Whether the data here contain a history up to a position.
    pub(crate) fn contains(&self, history: &str, position: u64) -> bool {
        let is_now = self.replication.end() >= position && self.identity.all_histories().has(history, position);
        let (_, is_whole) = self.replication.whole();
        let is_served = !self.role.is_replica() || is_whole;
        is_served && (is_now || self.origins.has(history, position))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_records() {
        let name = "0123456789abcdef0123456789abcdef01234567";
        for (origin, text) in [
            (Origin::Own(None), "origin 1 own\n".to_owned()),
            (Origin::Own(Some((name.to_owned(), 42))), format!("origin 1 own {name} 42\n")),
            (Origin::Copy((name.to_owned(), 7)), format!("origin 1 copy {name} 7\n")),
        ] {
            assert_eq!(origin.encode(), text);
            assert_eq!(Origin::decode(&text), Some(origin));
        }
        for wrong in
            ["", "origin 1 own", "origin 2 own\n", "origin 1 copy\n", "origin 1 copy x 7\n", "origin 1 own  7\n"]
        {
            assert_eq!(Origin::decode(wrong), None, "{wrong:?}");
        }
    }
}
