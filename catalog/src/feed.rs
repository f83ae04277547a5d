//! Change feed: the latest commands by version, for readers that follow.
//!
//! A reader that has the state of version v asks for what came after it. It gets every command since, and what each has
//! touched, or hears that the feed does not reach that far back: then it takes a whole state and follows from there. To
//! apply the commands to a state of version v is the same as to take a later one, so a reader elsewhere needs a
//! snapshot once.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::change::{CatalogVersion, Command, Touched};

/// Most commands that a feed holds.
pub const FEED_COMMANDS_MAX: usize = 8_192;
/// Most bytes of the commands that a feed holds, in their written form; the latest is held whatever its size.
pub const FEED_BYTES_MAX: usize = 16 << 20;

/// An applied command, and the version that it made.
#[derive(Debug, Clone)]
pub struct FeedEntry {
    /// The version.
    pub version: CatalogVersion,
    /// The command.
    pub command: Arc<Command>,
    /// Bytes of the command in its written form.
    bytes: usize,
}

impl FeedEntry {
    /// What the command has touched.
    #[must_use]
    pub fn touches(&self) -> Vec<Touched> {
        self.command.change.touches()
    }
}

/// The latest commands of a catalog. See the head of this module.
#[derive(Debug)]
pub struct Feed {
    /// The version before the oldest entry; the only one if there is none.
    base: CatalogVersion,
    entries: VecDeque<FeedEntry>,
    bytes: usize,
}

impl Feed {
    /// A feed without entries, of a catalog at this version.
    #[must_use]
    pub const fn new(version: CatalogVersion) -> Self {
        Self { base: version, entries: VecDeque::new(), bytes: 0 }
    }

    /// The version of the latest entry.
    #[must_use]
    pub fn version(&self) -> CatalogVersion {
        self.entries.back().map_or(self.base, |entry| entry.version)
    }

    /// Adds the command that made a version.
    ///
    /// # Panics
    /// When the version is not greater than the latest: commands are added as they are applied.
    pub fn push(&mut self, version: CatalogVersion, command: Arc<Command>) {
        assert!(version > self.version(), "versions of a feed grow");
        let bytes = command.encode().len();
        self.bytes += bytes;
        self.entries.push_back(FeedEntry { version, command, bytes });
        while self.entries.len() > FEED_COMMANDS_MAX || (self.bytes > FEED_BYTES_MAX && self.entries.len() > 1) {
            let oldest = self.entries.pop_front().expect("a feed that is too long has an entry");
            self.bytes -= oldest.bytes;
            self.base = oldest.version;
        }
    }

    /// Every command after a version, oldest first; `None` if the feed does not reach that far back, or the version is
    /// none of this catalog's.
    #[must_use]
    pub fn since(&self, version: CatalogVersion) -> Option<Vec<FeedEntry>> {
        let behind = self.entries.partition_point(|entry| entry.version <= version);
        let last = if behind == 0 { self.base } else { self.entries[behind - 1].version };
        (last == version).then(|| self.entries.range(behind..).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::Change;
    use crate::record::Expected;
    use crate::sample::{Sample, key};

    fn versions(entries: &[FeedEntry]) -> Vec<u64> {
        entries.iter().map(|entry| entry.version.0).collect()
    }

    #[test]
    fn a_feed_reaches_as_far_back_as_it_has_room() {
        let command = Arc::new(Sample::new().command(Change::SetVoters(vec![])));
        let mut feed = Feed::new(CatalogVersion(4));
        assert_eq!(
            (feed.version(), feed.since(CatalogVersion(4)).map(|entries| entries.len())),
            (CatalogVersion(4), Some(0))
        );
        for version in [5, 7] {
            feed.push(CatalogVersion(version), Arc::clone(&command));
            assert_eq!(feed.version(), CatalogVersion(version));
        }
        let entries = feed.since(CatalogVersion(5)).unwrap();
        assert_eq!((versions(&entries), entries[0].touches()), (vec![7], vec![Touched::Voters]));
        assert!(feed.since(CatalogVersion(6)).is_none() && feed.since(CatalogVersion(3)).is_none());
        let count = FEED_COMMANDS_MAX as u64;
        (8..8 + count).for_each(|version| feed.push(CatalogVersion(version), Arc::clone(&command)));
        assert_eq!(feed.since(CatalogVersion(7)).map(|entries| entries.len()), Some(FEED_COMMANDS_MAX));
        assert!(feed.since(CatalogVersion(5)).is_none(), "too long ago");
    }

    #[test]
    fn a_feed_holds_so_many_bytes_and_the_latest_command_whatever_its_size() {
        let sample = Sample::new();
        let command = |value: Vec<u8>| {
            Arc::new(sample.command(Change::PutRecord { key: key("a"), expected: Expected::Anything, value }))
        };
        let around = command(vec![0; 1 << 17]).encode().len() - (1 << 17);
        let of_bytes = |bytes: usize| command(vec![0; bytes - around]);
        let (large, part) = (1 << 20, 1 << 18);
        let mut feed = Feed::new(CatalogVersion(0));
        let mut held = |version: u64, bytes: usize| {
            feed.push(CatalogVersion(version), of_bytes(bytes));
            // From the oldest version on from which the feed knows everything.
            (0..=version).find_map(|since| feed.since(CatalogVersion(since))).map(|entries| entries.len())
        };
        let count = FEED_BYTES_MAX / large;
        for version in 1..=count {
            assert_eq!(held(version as u64, large), Some(version), "there is room for all");
        }
        let last = count as u64;
        assert_eq!(held(last + 1, part), Some(count), "the oldest of them is gone");
        assert_eq!(held(last + 2, large - part), Some(count + 1), "there is room for this one");
        assert_eq!(held(last + 3, part), Some(count + 1));
        assert_eq!(held(last + 4, FEED_BYTES_MAX + 1), Some(1), "alone, although it is too large");
        assert_eq!(held(last + 5, part), Some(1));
        assert_eq!(held(last + 6, part), Some(2));
    }

    #[test]
    #[should_panic(expected = "versions of a feed grow")]
    fn a_version_comes_once() {
        let command = Arc::new(Sample::new().command(Change::SetVoters(vec![])));
        let mut feed = Feed::new(CatalogVersion(4));
        feed.push(CatalogVersion(5), Arc::clone(&command));
        feed.push(CatalogVersion(5), command);
    }
}
