//! Raft's state machine: applies committed commands, makes and takes snapshots, and shows the state to readers.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};

use ashlar_wire::id::{ClusterId, ServerId};
use futures_core::Stream;
use openraft::OptionalSend;
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};

use super::form::encode_snapshot;
use super::host::Storage;
use super::log::io_error;
use super::sync::watch;
use super::types::{
    Answer, Entry, LogId, Membership, Payload, Snapshot, SnapshotData, SnapshotMeta, StoredMembership, Types,
};
use crate::change::{CatalogVersion, Change, Command, ProposalId};
use crate::error::FormError;
use crate::feed::{Feed, FeedEntry};
use crate::state::State;

/// What readers see: the state at one version, and how it came about.
pub(crate) struct View {
    state: Mutex<Shown>,
    version: watch::Sender<CatalogVersion>,
}

struct Shown {
    state: Arc<State>,
    feed: Feed,
}

impl View {
    fn new(state: State) -> Self {
        let version = state.version();
        let shown = Shown { feed: Feed::new(version), state: Arc::new(state) };
        Self { state: Mutex::new(shown), version: watch::channel(version).0 }
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.state.lock().expect("nobody panics while it holds the state that is shown")
    }

    /// The latest state.
    pub(crate) fn state(&self) -> Arc<State> {
        self.shown().state.clone()
    }

    /// The latest state, and what came after `version` if the feed knows.
    pub(crate) fn since(&self, version: CatalogVersion) -> (Arc<State>, Option<Vec<FeedEntry>>) {
        let shown = self.shown();
        (shown.state.clone(), shown.feed.since(version))
    }

    /// A reader of the latest version.
    pub(crate) fn versions(&self) -> watch::Receiver<CatalogVersion> {
        self.version.subscribe()
    }

    fn show(&self, state: &State, entries: Vec<(CatalogVersion, Arc<Command>)>) {
        let mut shown = self.shown();
        shown.state = Arc::new(state.clone());
        entries.into_iter().for_each(|(version, command)| shown.feed.push(version, command));
        drop(shown);
        self.announce(state.version());
    }

    /// Shows a state that did not come about by commands.
    fn replace(&self, state: &State) {
        let mut shown = self.shown();
        *shown = Shown { state: Arc::new(state.clone()), feed: Feed::new(state.version()) };
        drop(shown);
        self.announce(state.version());
    }

    fn announce(&self, version: CatalogVersion) {
        self.version.send_if_modified(|latest| {
            *latest = version;
            true
        });
    }
}

/// The latest snapshot.
type Saved = Arc<Mutex<Option<Snapshot>>>;

/// See the head of this module.
pub(crate) struct Machine {
    storage: Arc<dyn Storage>,
    state: State,
    applied: Option<LogId>,
    members: StoredMembership,
    saved: Saved,
    view: Arc<View>,
}

impl Machine {
    /// The machine of a cluster before its first entry; what was saved is installed by Raft when it starts.
    pub(crate) fn new(storage: Arc<dyn Storage>, cluster: ClusterId, saved: Option<Snapshot>) -> Self {
        let state = State::new(cluster);
        Self {
            storage,
            view: Arc::new(View::new(state.clone())),
            state,
            applied: None,
            members: StoredMembership::default(),
            saved: Arc::new(Mutex::new(saved)),
        }
    }

    /// What readers see.
    pub(crate) fn view(&self) -> Arc<View> {
        self.view.clone()
    }

    /// Applies one entry. Adds the command to `done` if it made a version.
    fn apply_entry(&mut self, entry: Entry, done: &mut Vec<(CatalogVersion, Arc<Command>)>) -> Answer {
        self.applied = Some(entry.log_id);
        let command = match entry.payload {
            Payload::Blank => return None,
            Payload::Normal(logged) => logged.0,
            Payload::Membership(members) => {
                let command = command_of_members(&entry.log_id, &members, self.state.version());
                self.members = StoredMembership::new(Some(entry.log_id), members);
                Arc::new(command)
            }
        };
        let before = self.state.version();
        let answer = self.state.apply(&command);
        if self.state.version() != before {
            done.push((self.state.version(), command));
        }
        Some(answer)
    }
}

/// The command by which the state learns who votes. Its id is the position in the log, so it is the same everywhere.
pub(crate) fn command_of_members(at: &LogId, members: &Membership, seen: CatalogVersion) -> Command {
    let mut id = *b"voters\0\0\0\0\0\0\0\0\0\0";
    id[8..].copy_from_slice(&at.index().to_be_bytes());
    let voters: std::collections::BTreeSet<ServerId> = members.voter_ids().collect();
    Command { id: ProposalId(id), seen, change: Change::SetVoters(voters.into_iter().collect()) }
}

fn form_error(error: FormError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn saved(saved: &Saved) -> MutexGuard<'_, Option<Snapshot>> {
    saved.lock().expect("nobody panics while it holds the saved snapshot")
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotData = SnapshotData;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        Ok((self.applied, self.members.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<Types>, io::Error>> + Unpin + OptionalSend,
    {
        let mut done = Vec::new();
        let mut answers = Vec::new();
        while let Some(next) = poll_fn(|cx| Pin::new(&mut entries).poll_next(cx)).await {
            let (entry, responder) = next?;
            let answer = self.apply_entry(entry, &mut done);
            answers.extend(responder.map(|responder| (responder, answer)));
        }
        // Shown before it is answered: who proposed a change at this server reads it here.
        self.view.show(&self.state, done);
        answers.into_iter().for_each(|(responder, answer)| responder.send(answer));
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        let meta = SnapshotMeta { last_log_id: self.applied, last_membership: self.members.clone() };
        let (storage, saved) = (self.storage.clone(), self.saved.clone());
        Builder { storage, saved, state: self.state.clone(), meta }
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, data: SnapshotData) -> Result<(), io::Error> {
        let state = State::decode(&data).map_err(form_error)?;
        if state.cluster() != self.state.cluster() {
            return Err(form_error(FormError::Checksum));
        }
        let is_saved = saved(&self.saved).as_ref().is_some_and(|snapshot| snapshot.meta == *meta);
        if !is_saved {
            self.storage.save_snapshot(encode_snapshot(meta, &data)).await.map_err(io_error)?;
            *saved(&self.saved) = Some(Snapshot { meta: meta.clone(), snapshot: data });
        }
        self.applied = meta.last_log_id;
        self.members = meta.last_membership.clone();
        self.state = state;
        self.view.replace(&self.state);
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, io::Error> {
        Ok(saved(&self.saved).clone())
    }
}

/// Makes a snapshot of the state as it was when the builder was made.
pub(crate) struct Builder {
    storage: Arc<dyn Storage>,
    saved: Saved,
    state: State,
    meta: SnapshotMeta,
}

impl RaftSnapshotBuilder<Types> for Builder {
    type SnapshotData = SnapshotData;

    async fn build_snapshot(&mut self) -> Result<Snapshot, io::Error> {
        let data = Arc::new(self.state.encode());
        self.storage.save_snapshot(encode_snapshot(&self.meta, &data)).await.map_err(io_error)?;
        let snapshot = Snapshot { meta: self.meta.clone(), snapshot: data };
        *saved(&self.saved) = Some(snapshot.clone());
        Ok(snapshot)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet, VecDeque};
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use openraft::EmptyNode;

    use super::super::sample::{Memory, at_once};
    use super::super::types::Logged;
    use super::*;
    use crate::record::Expected;
    use crate::sample::{id, key, server_id};

    const CLUSTER: ClusterId = ClusterId::from_bytes([7; 16]);

    fn at(index: u64) -> LogId {
        LogId::new_term_index(3, index)
    }

    fn members(numbers: &[u32]) -> Membership {
        let nodes: BTreeMap<_, _> = numbers.iter().map(|number| (server_id(*number), EmptyNode {})).collect();
        Membership::new(vec![nodes.keys().copied().collect::<BTreeSet<_>>()], nodes).unwrap()
    }

    /// A command that makes a record once.
    fn record(number: u32, name: &str) -> Payload {
        let change = Change::PutRecord { key: key(name), expected: Expected::Absent, value: vec![] };
        let command = Command { id: ProposalId(id(number)), seen: CatalogVersion(0), change };
        Payload::Normal(Logged(Arc::new(command)))
    }

    /// Committed entries on their way to the machine.
    struct Entries(VecDeque<Result<EntryResponder<Types>, io::Error>>);

    impl Stream for Entries {
        type Item = Result<EntryResponder<Types>, io::Error>;

        fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            Poll::Ready(self.0.pop_front())
        }
    }

    fn entries(payloads: Vec<Payload>) -> Entries {
        let entries = (1..).zip(payloads).map(|(index, payload)| Ok((Entry { log_id: at(index), payload }, None)));
        Entries(entries.collect())
    }

    fn machine(memory: &Memory) -> Machine {
        Machine::new(Arc::new(memory.clone()), CLUSTER, None)
    }

    #[test]
    fn committed_entries_make_versions_in_their_order() {
        let mut machine = machine(&Memory::default());
        let view = machine.view();
        let payloads = vec![
            Payload::Blank,
            record(1, "one"),
            record(1, "one"),
            record(2, "one"),
            Payload::Membership(members(&[1, 2])),
            record(3, "two"),
        ];
        at_once(machine.apply(entries(payloads))).unwrap();
        let (state, news) = view.since(CatalogVersion(0));
        let names: Vec<_> = state.records_of("object/bucket").map(|record| record.key.name.clone()).collect();
        assert_eq!((names, state.voters()), (vec!["one".into(), "two".into()], &[server_id(1), server_id(2)][..]));
        let versions: Vec<u64> = news.unwrap().iter().map(|entry| entry.version.0).collect();
        assert_eq!(versions, [1, 2, 3], "what is sent again or refused makes none");
        let stored = StoredMembership::new(Some(at(5)), members(&[1, 2]));
        assert_eq!(at_once(machine.applied_state()).unwrap(), (Some(at(6)), stored));
        let broken = Entries([Err(io::Error::other("no log"))].into());
        assert!(at_once(machine.apply(broken)).is_err());
    }

    #[test]
    fn a_snapshot_is_saved_once_and_brings_all_that_was_applied() {
        let (memory, other) = (Memory::default(), Memory::default());
        let (mut source, mut target) = (machine(&memory), machine(&other));
        at_once(source.apply(entries(vec![Payload::Membership(members(&[1])), record(1, "one")]))).unwrap();
        let snapshot = at_once(async { source.get_snapshot_builder().await.build_snapshot().await }).unwrap();
        assert_eq!(memory.stored().snapshot, Some(encode_snapshot(&snapshot.meta, &snapshot.snapshot)));
        let view = target.view();
        for _ in 0..2 {
            at_once(target.install_snapshot(&snapshot.meta, snapshot.snapshot.clone())).unwrap();
            assert_eq!((other.snapshots(), other.stored().snapshot), (1, memory.stored().snapshot));
        }
        assert_eq!(view.state(), source.view().state());
        assert_eq!(at_once(target.applied_state()).unwrap(), at_once(source.applied_state()).unwrap());
        let kept = at_once(target.get_current_snapshot()).unwrap().unwrap();
        assert_eq!((kept.meta, kept.snapshot), (snapshot.meta.clone(), snapshot.snapshot.clone()));
        // One of another place in the log is another one.
        let meta = SnapshotMeta { last_log_id: Some(at(9)), ..snapshot.meta };
        at_once(target.install_snapshot(&meta, snapshot.snapshot)).unwrap();
        assert_eq!((other.snapshots(), at_once(target.applied_state()).unwrap().0), (2, Some(at(9))));
    }

    #[test]
    fn a_snapshot_of_something_else_is_refused() {
        let memory = Memory::default();
        let mut machine = machine(&memory);
        at_once(machine.apply(entries(vec![record(1, "one")]))).unwrap();
        let before = machine.view().state();
        let meta = SnapshotMeta { last_log_id: Some(at(9)), last_membership: StoredMembership::default() };
        let of_other_cluster = State::new(ClusterId::from_bytes([8; 16])).encode();
        for bytes in [of_other_cluster, vec![1, 2, 3]] {
            let refused = at_once(machine.install_snapshot(&meta, Arc::new(bytes))).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        }
        assert_eq!((machine.view().state(), memory.snapshots()), (before, 0));
        assert_eq!(at_once(machine.applied_state()).unwrap().0, Some(at(1)));
        memory.fail();
        let good = Arc::new(State::new(CLUSTER).encode());
        assert!(at_once(machine.install_snapshot(&meta, good)).is_err(), "it is not durable");
        assert_eq!(at_once(machine.applied_state()).unwrap().0, Some(at(1)));
    }

    #[test]
    fn who_watches_a_view_is_told_whenever_it_shows_a_state() {
        let state = State::new(ClusterId::from_bytes(id(1)));
        let view = View::new(state.clone());
        let mut versions = view.versions();
        let mut is_told = || pin!(versions.changed()).poll(&mut Context::from_waker(Waker::noop())).is_ready();
        view.show(&state, Vec::new());
        assert!(is_told() && !is_told(), "what commands came to");
        view.replace(&state);
        assert!(is_told() && !is_told(), "what a snapshot brought");
    }
}
