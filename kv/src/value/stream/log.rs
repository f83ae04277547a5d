//! The entries of a stream, and the counts that outlive them.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::node::{Entry, Node};
use super::{NewId, StreamId, tree_bytes};

/// The most bytes that the fields and values of one entry may have together, and a node without a limit of its own.
pub const ENTRY_BYTES_MAX: usize = 1 << 30;

/// How much one node may hold: the settings `stream-node-max-bytes` and `stream-node-max-entries`; 0 is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeLimits {
    /// Bytes.
    pub bytes_max: usize,
    /// Entries, removed ones too.
    pub entries_max: u32,
}

impl Default for NodeLimits {
    fn default() -> Self {
        Self { bytes_max: 4096, entries_max: 100 }
    }
}

impl NodeLimits {
    fn allows(self, node: &Node, entry_bytes: usize) -> bool {
        let bytes_max = match self.bytes_max {
            0 => ENTRY_BYTES_MAX,
            bytes_max => bytes_max.min(ENTRY_BYTES_MAX),
        };
        let has_room = node.reckoned_bytes() + entry_bytes < bytes_max;
        has_room && (self.entries_max == 0 || node.added() < self.entries_max)
    }
}

/// Why an entry was not added. The caller's fault; nothing has changed, and a retry fails as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotAppended {
    /// Its id is not greater than the last.
    NotGreater,
    /// It has more than [`ENTRY_BYTES_MAX`].
    TooLarge,
}

/// Why the counts of a stream were not set. The caller's fault; nothing has changed, and a retry fails as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotSet {
    /// An entry with a greater id has been deleted.
    BelowDeleted,
    /// There is an entry with a greater id.
    BelowLast,
    /// More entries are there than are said to have been added.
    FewerAdded,
}

/// What a stream is trimmed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// At most so many of the last entries.
    Len(u64),
    /// Those from an id on.
    From(StreamId),
}

/// The entries of a stream.
#[derive(Debug, Clone, Default)]
pub struct Log {
    /// By the id that their entries' ids are relative to: at most that of the first. None is empty.
    nodes: BTreeMap<StreamId, Node>,
    len: u64,
    last_id: StreamId,
    entries_added: u64,
    max_deleted_id: StreamId,
}

impl Log {
    /// How many entries there are.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The greatest id that an entry ever had, or what was set instead.
    #[must_use]
    pub const fn last_id(&self) -> StreamId {
        self.last_id
    }

    /// How many entries there have ever been.
    #[must_use]
    pub const fn entries_added(&self) -> u64 {
        self.entries_added
    }

    /// The greatest id that was deleted; trimming does not count.
    #[must_use]
    pub const fn max_deleted_id(&self) -> StreamId {
        self.max_deleted_id
    }

    /// How many nodes hold the entries.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The first entry.
    #[must_use]
    pub fn first(&self) -> Option<Entry<'_>> {
        self.range(StreamId::MIN, StreamId::MAX).next()
    }

    /// The last entry.
    #[must_use]
    pub fn last(&self) -> Option<Entry<'_>> {
        self.range(StreamId::MIN, StreamId::MAX).next_back()
    }

    /// The entry with an id.
    #[must_use]
    pub fn get(&self, id: StreamId) -> Option<Entry<'_>> {
        self.range(id, id).next()
    }

    /// The entries from one id to another, both within, from either end.
    pub fn range(&self, first: StreamId, last: StreamId) -> impl DoubleEndedIterator<Item = Entry<'_>> {
        // A node that begins before the range may reach into it.
        let start = self.nodes.range(..=first).next_back().map_or(first, |(base, _)| *base);
        let nodes = (first <= last).then(|| self.nodes.range(start..=last));
        let entries = nodes.into_iter().flatten().flat_map(|(base, node)| node.entries(*base));
        entries.filter(move |entry| (first..=last).contains(&entry.id))
    }

    /// How many nodes the entries lie in.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// About how many bytes of memory are held.
    #[must_use]
    pub fn bytes_held(&self) -> usize {
        let payload: usize = self.nodes.values().map(Node::bytes_held).sum();
        payload + tree_bytes(self.nodes.len(), size_of::<(StreamId, Node)>())
    }

    /// The id that a new entry would get. `None` where that is not greater than the last.
    #[must_use]
    pub fn next_id(&self, wanted: NewId, now_ms: u64) -> Option<StreamId> {
        let id = match wanted {
            NewId::Auto if now_ms > self.last_id.ms => StreamId::new(now_ms, 0),
            NewId::Auto => self.last_id.next()?,
            NewId::AutoSeq { ms } if ms == self.last_id.ms => StreamId::new(ms, self.last_id.seq.checked_add(1)?),
            NewId::AutoSeq { ms } => StreamId::new(ms, 0),
            NewId::Given(id) => id,
        };
        (id > self.last_id).then_some(id)
    }

    /// Adds an entry: names and values in turn, at least one of each.
    ///
    /// # Errors
    /// [`NotAppended`]: the caller's fault.
    ///
    /// # Panics
    /// When a name has no value, or there is none.
    pub fn append<'p>(
        &mut self,
        wanted: NewId,
        now_ms: u64,
        pairs: impl ExactSizeIterator<Item = &'p [u8]> + Clone,
        limits: NodeLimits,
    ) -> Result<StreamId, NotAppended> {
        assert!(pairs.len() > 0 && pairs.len().is_multiple_of(2), "names and values come in pairs");
        let id = self.next_id(wanted, now_ms).ok_or(NotAppended::NotGreater)?;
        let bytes = pairs.clone().map(<[u8]>::len).sum();
        if bytes > ENTRY_BYTES_MAX {
            return Err(NotAppended::TooLarge);
        }
        let mut tail = self.nodes.last_entry();
        match &mut tail {
            Some(tail) if limits.allows(tail.get(), bytes) => {
                let base = *tail.key();
                tail.get_mut().push(base, id, pairs);
            }
            full => {
                if let Some(full) = full {
                    full.get_mut().shrink_to_fit();
                }
                let mut node = Node::new(pairs.clone());
                node.push(id, id, pairs);
                self.nodes.insert(id, node);
            }
        }
        self.len += 1;
        // A dump may have said any number.
        self.entries_added = self.entries_added.saturating_add(1);
        self.last_id = id;
        Ok(id)
    }

    /// Removes an entry. False if there is none of this id.
    pub fn delete(&mut self, id: StreamId) -> bool {
        let Some((base, node)) = self.nodes.range_mut(..=id).next_back() else { return false };
        if !node.remove(*base, id) {
            return false;
        }
        if node.len() == 0 {
            let base = *base;
            self.nodes.remove(&base);
        }
        self.len -= 1;
        self.max_deleted_id = self.max_deleted_id.max(id);
        true
    }

    /// Removes the oldest entries; how many that were. Roughly: only whole nodes, and no more than `limit` entries, if
    /// that is not 0.
    pub fn trim(&mut self, keep: Keep, is_rough: bool, limit: u64) -> u64 {
        let before = self.len;
        while let Some((base, node)) = self.nodes.first_key_value() {
            let entries = u64::from(node.len());
            if matches!(keep, Keep::Len(len) if self.len <= len) {
                break;
            }
            if limit > 0 && before - self.len + entries > limit {
                break;
            }
            let goes = match keep {
                Keep::Len(len) => self.len - entries >= len,
                Keep::From(id) => node.entries(*base).next_back().is_some_and(|entry| entry.id < id),
            };
            if !goes {
                if !is_rough {
                    self.trim_first_node(keep);
                }
                break;
            }
            self.nodes.pop_first();
            self.len -= entries;
        }
        before - self.len
    }

    fn trim_first_node(&mut self, keep: Keep) {
        let Some(mut first) = self.nodes.first_entry() else { return };
        let base = *first.key();
        let goes = match keep {
            Keep::Len(len) => self.len - len,
            Keep::From(id) => first.get().entries(base).take_while(|entry| entry.id < id).count() as u64,
        };
        let goes = u32::try_from(goes).expect("less than one node, which counts in 32 bits");
        first.get_mut().remove_first(goes);
        self.len -= u64::from(goes);
    }

    /// The nodes that hold the entries, by the id that theirs are relative to.
    pub(crate) fn nodes_by_id(&self) -> impl ExactSizeIterator<Item = (StreamId, &Node)> {
        self.nodes.iter().map(|(base, node)| (*base, node))
    }

    /// Adds a node as a dump has it, behind the others. False, and nothing is added, if it has no entries or their ids do
    /// not follow those before.
    pub(crate) fn add_node(&mut self, base: StreamId, node: Node) -> bool {
        let mut last = (!self.is_empty()).then_some(self.last_id);
        let is_behind = last.is_none_or(|last| last < base);
        let follows = node.entries(base).all(|entry| {
            let follows = base <= entry.id && last.is_none_or(|last| last < entry.id);
            last = Some(entry.id);
            follows
        });
        let Some(last) = last.filter(|_| is_behind && follows && node.len() > 0) else { return false };
        self.len += u64::from(node.len());
        self.last_id = last;
        self.nodes.insert(base, node);
        true
    }

    /// Sets the counts of a stream whose nodes were added, as a dump has them. False, and nothing is changed, if the last id
    /// is not that of the last entry or greater.
    pub(crate) fn set_counts(&mut self, last_id: StreamId, entries_added: u64, max_deleted_id: StreamId) -> bool {
        if !self.is_empty() && last_id < self.last_id {
            return false;
        }
        (self.last_id, self.entries_added, self.max_deleted_id) = (last_id, entries_added, max_deleted_id);
        true
    }

    /// Sets the last id and, where given, how many entries there have been and the greatest deleted id.
    ///
    /// # Errors
    /// [`NotSet`]: the caller's fault.
    pub fn set_id(
        &mut self,
        last_id: StreamId,
        entries_added: Option<u64>,
        max_deleted_id: Option<StreamId>,
    ) -> Result<(), NotSet> {
        if last_id < self.max_deleted_id {
            return Err(NotSet::BelowDeleted);
        }
        if self.last().is_some_and(|entry| last_id < entry.id) {
            return Err(NotSet::BelowLast);
        }
        if entries_added.is_some_and(|added| self.len > added) {
            return Err(NotSet::FewerAdded);
        }
        self.last_id = last_id;
        self.entries_added = entries_added.unwrap_or(self.entries_added);
        self.max_deleted_id = max_deleted_id.filter(|id| *id != StreamId::MIN).unwrap_or(self.max_deleted_id);
        Ok(())
    }

    /// Whether an entry may have been deleted behind an id, or the one of that id.
    pub(super) fn has_holes_from(&self, start: StreamId) -> bool {
        self.max_deleted_id != StreamId::MIN && start <= self.max_deleted_id && self.len > 0
    }

    /// How many entries there had been when the one with an id was added, if that can be told.
    #[must_use]
    pub fn entries_until(&self, id: StreamId) -> Option<u64> {
        if self.entries_added == 0 {
            return Some(0);
        }
        if self.len == 0 && id <= self.last_id {
            return Some(self.entries_added);
        }
        if id != StreamId::MIN && id < self.max_deleted_id || id > self.last_id {
            return None;
        }
        if id == self.last_id {
            return Some(self.entries_added);
        }
        let first = self.first()?.id;
        let has_holes = self.max_deleted_id != StreamId::MIN && self.max_deleted_id >= first;
        let before_first = self.entries_added.saturating_sub(self.len);
        match id.cmp(&first) {
            _ if has_holes => None,
            std::cmp::Ordering::Less => Some(before_first),
            std::cmp::Ordering::Equal => Some(before_first.saturating_add(1)),
            std::cmp::Ordering::Greater => None,
        }
    }

    /// The entries after an id.
    pub(super) fn after(&self, id: StreamId) -> impl DoubleEndedIterator<Item = Entry<'_>> {
        let nodes = id.next().map(|first| self.range(first, StreamId::MAX));
        nodes.into_iter().flatten()
    }
}

/// What follows an id, as a bound.
pub(super) const fn behind(id: StreamId) -> (Bound<StreamId>, Bound<StreamId>) {
    (Bound::Excluded(id), Bound::Unbounded)
}
