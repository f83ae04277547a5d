//! A long stream written anew, beside the changes that go on, and the old one's extents given back.
//!
//! The new stream gets all keys in steps, and between the steps every change. Replayed in order it gives the same map: a
//! change of a key that was written already comes behind it, and one of a key that was not is in the step that comes later.
//! While this is under way the old stream has every change too, and it is the one that counts until the head names the new.

use core::ops::Bound;

use bytes::Bytes;

use super::{Io, Purpose, Range, Round, State, Stream};
use crate::index::log::{AREA_EXTENTS_MAX, Area, BLOCK, Logged, Place, logged_bytes};
use crate::index::request::Change;

/// A stream that is being written anew.
#[derive(Debug)]
pub(super) struct Rewrite {
    pub(super) stream: Stream,
    /// The last key that a step wrote.
    cursor: Option<Vec<u8>>,
    /// All keys are written.
    pub(super) is_whole: bool,
}

/// An area that holds no current stream gets empty. First its end is looked for, then extents are cleared from the last
/// to the first: whatever is left after a crash is found again from the beginning.
#[derive(Debug)]
pub(super) enum Cleaning {
    /// Whether this extent was ever written is being read.
    Probing(Area, u32),
    /// This extent is being cleared.
    Clearing(Area, u32),
}

impl Cleaning {
    pub(super) const fn probing(area: Area) -> Self {
        Self::Probing(area, 0)
    }
}

impl Range {
    /// Begins to write the stream anew if it has grown to four times what it holds.
    pub(super) fn begin_rewrite(&mut self) {
        let bytes_min = self.config.rewrite_bytes_min.max(self.rewrite_after);
        let is_long = self.stream.bytes >= bytes_min && self.stream.bytes / 4 >= self.live_bytes;
        if is_long && self.rewrite.is_none() && self.cleaning.is_none() {
            let stream = Stream::new(self.draw(), self.stream.area.other());
            self.rewrite = Some(Rewrite { stream, cursor: None, is_whole: false });
        }
    }

    /// The next step: keys behind the last step's. Nothing if there is no step to do; `Some(None)` if the area is full.
    pub(super) fn step_rewrite(&mut self) -> Option<Option<Io>> {
        let rewrite = self.rewrite.as_mut().filter(|rewrite| !rewrite.is_whole)?;
        let from = rewrite.cursor.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(key.clone()));
        let mut changes = Vec::new();
        let mut bytes = 0;
        let mut rest = self.map.range((from, Bound::Unbounded)).peekable();
        while let Some((key, entry)) = rest.peek() {
            let more = logged_bytes(key, Some(&entry.value));
            if bytes + more > self.config.rewrite_step_bytes && !changes.is_empty() {
                break;
            }
            bytes += more;
            let change = Change { key: (*key).clone(), value: Some(entry.value.clone()) };
            changes.push(Logged { change, version: entry.version });
            rest.next();
        }
        rewrite.is_whole = rest.peek().is_none();
        rewrite.cursor = changes.last().map(|logged| logged.change.key.clone()).or(rewrite.cursor.take());
        if changes.is_empty() { None } else { Some(rewrite.stream.append(&changes)) }
    }

    /// The head is changed to name the new stream. No change is under way, and both streams have them all.
    pub(super) fn switch(&mut self, round: &mut Round) {
        let rewrite = self.rewrite.take().expect("it is whole");
        let old = core::mem::replace(&mut self.stream, rewrite.stream);
        self.cleaning = Some(Cleaning::Clearing(old.area, old.extent));
        self.rewrite_after = 0;
        (round.outstanding, round.is_switch) = (1, true);
        self.write_head(Purpose::Round);
    }

    /// There is no room for the new stream, or it has changes that the old one has not: what it has goes. It is begun again once the
    /// old one has grown by as much as it takes to be written anew at all.
    pub(super) fn give_up_rewrite(&mut self) {
        let Some(Rewrite { stream, .. }) = self.rewrite.take() else { return };
        self.rewrite_after = self.stream.bytes + self.config.rewrite_bytes_min;
        self.cleaning = Some(Cleaning::Clearing(stream.area, stream.extent));
        self.clean();
    }

    /// The head names the new stream: the old one's extents can go.
    pub(super) fn finish_rewrite(&mut self) {
        self.clean();
    }

    pub(super) fn probe(&mut self) {
        if let Some(Cleaning::Probing(area, extent)) = self.cleaning {
            self.start(Purpose::Probe, Io::Read { place: Place::Extent(area, extent), len: BLOCK });
        }
    }

    pub(super) fn handle_probed(&mut self, block: &Bytes) {
        let Some(Cleaning::Probing(area, extent)) = self.cleaning else { return };
        let is_end = block.iter().all(|byte| *byte == 0) || extent + 1 >= AREA_EXTENTS_MAX;
        if !is_end {
            self.cleaning = Some(Cleaning::Probing(area, extent + 1));
            return self.probe();
        }
        self.cleaning = extent.checked_sub(1).map(|last| Cleaning::Clearing(area, last));
        self.clean();
    }

    fn clean(&mut self) {
        if let Some(Cleaning::Clearing(area, extent)) = self.cleaning {
            debug_assert!(area != self.stream.area && matches!(self.state, State::Serving));
            self.start(Purpose::Clear, Io::Clear(Place::Extent(area, extent)));
        }
    }

    pub(super) fn handle_cleared(&mut self) {
        let Some(Cleaning::Clearing(area, extent)) = self.cleaning else { return };
        self.cleaning = extent.checked_sub(1).map(|before| Cleaning::Clearing(area, before));
        self.clean();
    }
}
