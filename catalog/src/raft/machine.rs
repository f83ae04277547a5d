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
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;
    use crate::sample::id;

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
