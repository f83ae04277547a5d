//! Raft's log over a [`Storage`]: entries in memory, every step of theirs on the drive.
//!
//! The log is short (a snapshot replaces what is older), so reads come from memory. A step is handed to the storage in
//! the order in which Raft decides it; Raft hears of it when it is durable.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::ops::RangeBounds;
use std::sync::{Arc, Mutex, MutexGuard};

use openraft::alias::VoteOf;
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use openraft::{OptionalSend, RaftTypeConfig};

use super::form::{decode_entry, decode_log_id, decode_vote, encode_entry, encode_log_id, encode_vote};
use super::host::{Host, LogWrite, Storage, StorageError, StoredLog};
use super::types::{Entry, LogId, Types, Vote};
use crate::error::FormError;

/// What is in the log.
#[derive(Debug, Default)]
pub(crate) struct LogContent {
    pub(crate) vote: Option<Vote>,
    pub(crate) committed: Option<LogId>,
    pub(crate) purged: Option<LogId>,
    /// By index, without a gap.
    pub(crate) entries: BTreeMap<u64, Entry>,
}

impl LogContent {
    /// What a storage holds.
    ///
    /// # Errors
    /// The bytes are of another version, or damaged.
    pub(crate) fn decode(stored: &StoredLog) -> Result<Self, FormError> {
        let vote = stored.vote.as_deref().map(decode_vote).transpose()?;
        let committed = stored.committed.as_deref().map(decode_log_id).transpose()?;
        let purged = stored.purged.as_deref().map(decode_log_id).transpose()?;
        let mut entries = BTreeMap::new();
        for (index, bytes) in &stored.entries {
            let entry = decode_entry(bytes)?;
            let next = entries.last_key_value().map_or(*index, |(last, _)| last + 1);
            if entry.log_id.index() != *index || next != *index {
                return Err(FormError::OutOfOrder("log entry"));
            }
            entries.insert(*index, entry);
        }
        Ok(Self { vote, committed, purged, entries })
    }

    /// The position of the last entry, or of the last one that was purged.
    pub(crate) fn last(&self) -> Option<LogId> {
        self.entries.last_key_value().map(|(_, entry)| entry.log_id).or(self.purged)
    }

    /// Whether this entry is there, under this vote.
    fn has(&self, vote: &Vote, id: &LogId) -> bool {
        self.vote.as_ref() == Some(vote) && self.entries.get(&id.index()).is_some_and(|entry| entry.log_id == *id)
    }

    /// Forgets the entries up to this one.
    fn purge(&mut self, upto: LogId) {
        self.entries = self.entries.split_off(&(upto.index() + 1));
        self.purged = Some(upto);
    }
}

/// The log of one server; copies share it.
#[derive(Clone)]
pub(crate) struct Log {
    host: Arc<dyn Host>,
    storage: Arc<dyn Storage>,
    content: Arc<Mutex<LogContent>>,
}

impl Log {
    /// The log that a storage holds.
    pub(crate) fn new(host: Arc<dyn Host>, storage: Arc<dyn Storage>, content: LogContent) -> Self {
        Self { host, storage, content: Arc::new(Mutex::new(content)) }
    }

    /// Whether the log has this entry, under this vote.
    pub(crate) fn has(&self, vote: &Vote, id: &LogId) -> bool {
        self.content().has(vote, id)
    }

    /// Completes when everything that was written before is durable.
    pub(crate) async fn sync(&self) -> Result<(), StorageError> {
        self.storage.write(LogWrite::default()).await
    }

    fn content(&self) -> MutexGuard<'_, LogContent> {
        self.content.lock().expect("nobody panics while it holds the log")
    }
}

pub(crate) fn io_error(error: StorageError) -> io::Error {
    io::Error::other(error)
}

impl RaftLogReader<Types> for Log {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Result<Vec<Entry>, io::Error> {
        Ok(self.content().entries.range(range).map(|(_, entry)| entry.clone()).collect())
    }

    async fn read_vote(&mut self) -> Result<Option<VoteOf<Types>>, io::Error> {
        Ok(self.content().vote)
    }
}

impl RaftLogStorage<Types> for Log {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, io::Error> {
        let content = self.content();
        Ok(LogState { last_purged_log_id: content.purged, last_log_id: content.last() })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        self.content().vote = Some(*vote);
        let step = LogWrite { vote: Some(encode_vote(vote)), ..LogWrite::default() };
        self.storage.write(step).await.map_err(io_error)
    }

    /// Remembers what is committed; the next step of the log takes it to the drive. What a crash loses of it is applied
    /// again once a leader says that it is committed.
    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        self.content().committed = committed;
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        Ok(self.content().committed)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = <Types as RaftTypeConfig>::Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let write = {
            let mut content = self.content();
            let mut step = LogWrite::default();
            for entry in entries {
                step.append.push((entry.log_id.index(), encode_entry(&entry)));
                content.entries.insert(entry.log_id.index(), entry);
            }
            step.committed = content.committed.as_ref().map(encode_log_id);
            self.storage.write(step)
        };
        self.host.spawn(Box::pin(async move {
            callback.io_completed(write.await.map_err(io_error));
        }));
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> Result<(), io::Error> {
        let from = last.map_or(0, |last| last.index() + 1);
        self.content().entries.split_off(&from);
        let step = LogWrite { truncate_from: Some(from), ..LogWrite::default() };
        self.storage.write(step).await.map_err(io_error)
    }

    async fn purge(&mut self, upto: LogId) -> Result<(), io::Error> {
        self.content().purge(upto);
        let step = LogWrite { purge: Some((upto.index(), encode_log_id(&upto))), ..LogWrite::default() };
        self.storage.write(step).await.map_err(io_error)
    }
}

#[cfg(test)]
mod tests {
    use openraft::EntryPayload;
    use openraft::impls::leader_id_std::LeaderId;

    use super::super::sample::{Memory, Still, at_once};
    use super::super::sync::oneshot;
    use super::*;
    use crate::sample::server_id;

    fn entry(index: u64) -> Entry {
        Entry { log_id: LogId::new_term_index(3, index), payload: EntryPayload::Blank }
    }

    fn vote(term: u64) -> Vote {
        Vote { leader_id: LeaderId { term, voted_for: server_id(1) }, committed: true }
    }

    fn content(indexes: impl Iterator<Item = u64>) -> LogContent {
        let entries = indexes.map(|index| (index, entry(index))).collect();
        LogContent { vote: Some(vote(3)), entries, ..LogContent::default() }
    }

    #[test]
    fn an_entry_is_known_by_its_vote_its_index_and_its_term() {
        let content = content(4..=6);
        let at = LogId::new_term_index;
        for (vote, id, expected) in [
            (vote(3), at(3, 4), true),
            (vote(3), at(3, 6), true),
            (vote(3), at(3, 7), false),
            (vote(3), at(3, 3), false),
            (vote(3), at(2, 5), false),
            (vote(4), at(3, 5), false),
        ] {
            assert_eq!(content.has(&vote, &id), expected, "{vote} {id}");
        }
        assert!(!LogContent::default().has(&vote(3), &at(3, 4)));
    }

    #[test]
    fn what_is_purged_ends_with_the_entry_that_is_named() {
        let mut content = content(4..=6);
        for (upto, left, last) in [(4, &[5, 6][..], 6), (6, &[], 6), (9, &[], 9)] {
            content.purge(LogId::new_term_index(3, upto));
            assert_eq!(content.entries.keys().copied().collect::<Vec<_>>(), left, "{upto}");
            assert_eq!(content.purged, Some(LogId::new_term_index(3, upto)));
            assert_eq!(content.last(), Some(LogId::new_term_index(3, last)), "{upto}");
        }
    }

    #[test]
    fn a_stored_log_has_no_gap() {
        let stored = |indexes: &[(u64, u64)]| {
            let entries = indexes.iter().map(|(index, said)| (*index, encode_entry(&entry(*said)))).collect();
            LogContent::decode(&StoredLog { entries, ..StoredLog::default() })
        };
        let read = stored(&[(4, 4), (5, 5), (6, 6)]).unwrap();
        assert_eq!(read.entries.keys().copied().collect::<Vec<_>>(), [4, 5, 6]);
        for bad in [&[(4, 4), (6, 6)][..], &[(4, 5)], &[(4, 4), (5, 4)]] {
            assert_eq!(stored(bad).unwrap_err(), FormError::OutOfOrder("log entry"), "{bad:?}");
        }
    }

    /// Appends entries, and tells what becomes of them.
    fn append(log: &mut Log, indexes: std::ops::RangeInclusive<u64>) -> Result<(), io::Error> {
        let (sender, receiver) = oneshot::channel();
        at_once(log.append(indexes.map(entry), IOFlushed::signal(sender)))?;
        at_once(receiver).expect("it is told")
    }

    /// The indexes of the log, which are those on the drive, and what is purged.
    fn held(log: &mut Log, memory: &Memory) -> (Vec<u64>, Option<LogId>) {
        let entries = at_once(log.try_get_log_entries(..)).unwrap();
        let stored = LogContent::decode(&memory.stored()).unwrap();
        assert_eq!(stored.entries.into_values().collect::<Vec<_>>(), entries);
        let state = at_once(log.get_log_state()).unwrap();
        assert_eq!(state.last_log_id, entries.last().map(|entry| entry.log_id).or(state.last_purged_log_id));
        assert_eq!(stored.purged, state.last_purged_log_id);
        (entries.iter().map(|entry| entry.log_id.index()).collect(), stored.purged)
    }

    #[test]
    fn every_step_of_the_log_is_on_the_drive() {
        let memory = Memory::default();
        let mut log = Log::new(Still::new(0), Arc::new(memory.clone()), LogContent::default());
        let at = |index| LogId::new_term_index(3, index);
        at_once(log.save_vote(&vote(3))).unwrap();
        assert_eq!(at_once(log.read_vote()).unwrap(), Some(vote(3)));
        assert_eq!(memory.stored().vote, Some(encode_vote(&vote(3))));
        append(&mut log, 0..=6).unwrap();
        assert_eq!(held(&mut log, &memory), ((0..=6).collect(), None));
        at_once(log.save_committed(Some(at(4)))).unwrap();
        assert_eq!(at_once(log.read_committed()).unwrap(), Some(at(4)));
        assert_eq!(memory.stored().committed, None, "it goes with the next entries");
        append(&mut log, 7..=7).unwrap();
        assert_eq!(memory.stored().committed, Some(encode_log_id(&at(4))));
        at_once(log.truncate_after(Some(at(5)))).unwrap();
        assert_eq!(held(&mut log, &memory), ((0..=5).collect(), None));
        at_once(log.purge(at(2))).unwrap();
        assert_eq!(held(&mut log, &memory), (vec![3, 4, 5], Some(at(2))));
        assert_eq!(at_once(log.try_get_log_entries(4..5)).unwrap(), [entry(4)]);
        assert!(log.has(&vote(3), &at(3)) && !log.has(&vote(3), &at(2)) && !log.has(&vote(4), &at(3)));
        at_once(log.truncate_after(None)).unwrap();
        assert_eq!(held(&mut log, &memory), (vec![], Some(at(2))));
    }

    #[test]
    fn whoever_syncs_the_log_waits_for_the_drive() {
        let memory = Memory::default();
        let mut log = Log::new(Still::new(0), Arc::new(memory.clone()), LogContent::default());
        at_once(log.sync()).unwrap();
        assert_eq!(memory.take_writes(), [LogWrite::default()], "it is behind all steps before it, and adds nothing");
        memory.fail();
        assert!(at_once(log.sync()).is_err());
        let at = LogId::new_term_index(3, 4);
        assert!(at_once(log.save_vote(&vote(3))).is_err());
        assert!(append(&mut log, 0..=1).is_err());
        assert!(at_once(log.truncate_after(None)).is_err());
        assert!(at_once(log.purge(at)).is_err());
    }
}
