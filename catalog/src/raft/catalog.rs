//! One server's catalog: a member of the Raft group, its copy of the state, and the way to the leader.

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ashlar_wire::id::{ClusterId, ServerId};
use openraft::async_runtime::{Select2, WatchReceiver as _};
use openraft::errors::{ClientWriteError, Fatal, ForwardToLeader, LinearizableReadError, RaftError};
use openraft::raft::ClientWriteResponse;
use openraft::{AsyncRuntime as _, ChangeMembers, Config, EmptyNode, Raft, ReadPolicy, SnapshotPolicy};

use super::form::{ENTRIES_MAX, SnapshotChunk, decode_snapshot};
use super::host::{Host, Storage, StorageError};
use super::log::{Log, LogContent};
use super::machine::{Machine, View};
use super::message::{Message, Reply};
use super::network::Network;
use super::pieces::{Incoming, Joined};
use super::runtime::{HostRuntime, Scoped, within};
use super::types::{Logged, Snapshot, Types};
use crate::change::{Applied, CatalogVersion, Change, Command, ProposalId, VOTERS_MAX};
use crate::error::{FormError, Refused};
use crate::feed::FeedEntry;
use crate::state::State;

/// Spans and limits of a catalog. All servers of a cluster have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CatalogConfig {
    /// How often a leader shows that it lives.
    pub heartbeat: Duration,
    /// The least time without a leader after which a voter stands for election. Several heartbeats.
    pub election_min: Duration,
    /// The most time: each election waits for some time between the two.
    pub election_max: Duration,
    /// Entries after which a snapshot replaces them.
    pub snapshot_entries: u64,
    /// Entries that stay in the log although a snapshot has them, so that a server that was away for a moment needs none.
    pub kept_entries: u64,
    /// How long a proposal is tried before it fails as [`Error::Unknown`].
    pub proposal_max: Duration,
    /// Between two tries of a proposal.
    pub retry: Duration,
}

impl Default for CatalogConfig {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(250),
            election_min: Duration::from_millis(1_000),
            election_max: Duration::from_millis(2_000),
            snapshot_entries: 4_096,
            kept_entries: 1_024,
            proposal_max: Duration::from_secs(15),
            retry: Duration::from_millis(100),
        }
    }
}

impl CatalogConfig {
    fn for_raft(&self) -> Result<Config, Error> {
        let milliseconds = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let config = Config {
            cluster_name: "catalog".into(),
            heartbeat_interval: milliseconds(self.heartbeat),
            election_timeout_min: milliseconds(self.election_min),
            election_timeout_max: milliseconds(self.election_max),
            max_payload_entries: ENTRIES_MAX as u64,
            snapshot_policy: SnapshotPolicy::LogsSinceLast(self.snapshot_entries),
            max_in_snapshot_log_to_keep: self.kept_entries,
            replication_lag_threshold: self.snapshot_entries.saturating_add(self.kept_entries),
            enable_pre_vote: Some(true),
            // A leader sends entries while it writes them. One that was killed meanwhile may have lost what others have, so it
            // must not go on in the same term: another entry with the same name would pass for the one that they have.
            enable_leader_restore: Some(false),
            ..Config::default()
        };
        config.validate().map_err(|_| Error::BadConfig)
    }
}

/// How a server comes to its catalog the first time. A server that has a log goes on from there, whatever is said here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// As the first server of a new cluster: it votes alone.
    First,
    /// As one that waits until a leader adds it.
    Join,
}

/// Why a catalog could not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    // The caller's.
    /// The state has refused the change, which has not been applied. [`Refused::kind`] says whether reading again helps.
    Refused(Refused),
    /// Spans that contradict each other.
    BadConfig,
    /// A change that only Raft makes, or members that cannot be.
    NotAllowed(&'static str),

    // Nobody's: the group had no leader in reach.
    /// No leader has answered in time. The change may have been applied, now or later: read the state before deciding
    /// anew. To propose the same intention again is safe where it is a compare-and-set.
    Unknown,

    // The drive's.
    /// The log cannot be written or read: this catalog has stopped.
    Storage(StorageError),
    /// What stands in the log or the snapshot cannot be read.
    Damaged(FormError),
    /// This catalog has stopped.
    Stopped,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => refused.fmt(f),
            Self::BadConfig => f.write_str("the catalog's spans of time contradict each other"),
            Self::NotAllowed(what) => write!(f, "not allowed: {what}"),
            Self::Unknown => f.write_str("no leader has answered: the change may or may not be applied"),
            Self::Storage(error) => error.fmt(f),
            Self::Damaged(error) => write!(f, "the catalog's log cannot be read: {error}"),
            Self::Stopped => f.write_str("the catalog has stopped"),
        }
    }
}

impl core::error::Error for Error {}

impl From<StorageError> for Error {
    fn from(error: StorageError) -> Self {
        Self::Storage(error)
    }
}

impl From<FormError> for Error {
    fn from(error: FormError) -> Self {
        Self::Damaged(error)
    }
}

impl From<Fatal<Types>> for Error {
    fn from(error: Fatal<Types>) -> Self {
        match error {
            Fatal::StorageError(error) => Self::Storage(StorageError(error.to_string())),
            Fatal::Panicked | Fatal::Stopped => Self::Stopped,
        }
    }
}

/// What a catalog tells about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogStatus {
    /// The leader, as far as this server knows.
    pub leader: Option<ServerId>,
    /// The term.
    pub term: u64,
    /// Index of the last entry of the log.
    pub last_index: Option<u64>,
    /// Index of the last entry that is applied.
    pub applied_index: Option<u64>,
    /// Index up to which there is a snapshot.
    pub snapshot_index: Option<u64>,
    /// The servers that vote, ascending.
    pub voters: Vec<ServerId>,
    /// Whether the voters are the old and the new ones of a change that is not done.
    pub is_changing_voters: bool,
    /// The servers that get the log and do not vote, ascending.
    pub learners: Vec<ServerId>,
    /// The version of this server's copy.
    pub version: CatalogVersion,
    /// Whether the catalog runs; a failed drive stops it.
    pub is_running: bool,
}

/// What has happened since a version.
#[derive(Debug, Clone)]
pub struct News {
    /// The state now.
    pub state: Arc<State>,
    /// Every command since the version, oldest first; none if they are not known any more. Then anything may have
    /// changed.
    pub entries: Option<Vec<FeedEntry>>,
}

struct Inner {
    me: ServerId,
    config: CatalogConfig,
    host: Arc<dyn Host>,
    raft: Raft<Types, Machine>,
    log: Log,
    view: Arc<View>,
    incoming: Mutex<Incoming>,
}

/// One server's catalog. Copies are handles of the same one.
#[derive(Clone)]
pub struct Catalog(Arc<Inner>);

impl Catalog {
    /// Starts from what the storage holds, or as `begin` says if that is nothing.
    ///
    /// The state is that of the latest snapshot and of what was known to be committed; it catches up once there is a
    /// leader.
    ///
    /// # Errors
    /// [`Error::Storage`] and [`Error::Damaged`]; [`Error::BadConfig`].
    pub async fn start(
        host: Arc<dyn Host>,
        storage: Arc<dyn Storage>,
        config: CatalogConfig,
        cluster: ClusterId,
        me: ServerId,
        begin: Begin,
    ) -> Result<Self, Error> {
        let raft_config = Arc::new(config.for_raft()?);
        let stored = storage.load().await?;
        let content = LogContent::decode(&stored)?;
        let saved = stored.snapshot.as_deref().map(decode_snapshot).transpose()?;
        let saved = saved.map(|(meta, data)| Snapshot { meta, snapshot: Arc::new(data) });
        let log = Log::new(host.clone(), storage.clone(), content);
        let machine = Machine::new(storage, cluster, saved);
        let view = machine.view();
        let network = Network(host.clone());
        let own_log = log.clone();
        let raft = Scoped::new(host.clone(), async move {
            let raft = Raft::new(me, raft_config, network, log, machine).await?;
            if begin == Begin::First && !raft.is_initialized().await? {
                let members = BTreeSet::from([me]);
                // The only other answer is that it has been initialized, which has just been ruled out.
                if let Err(RaftError::Fatal(fatal)) = raft.initialize(members).await {
                    return Err(fatal);
                }
            }
            Ok::<_, Fatal<Types>>(raft)
        });
        let raft = raft.await?;
        Ok(Self(Arc::new(Inner { me, config, host, raft, log: own_log, view, incoming: Mutex::default() })))
    }

    /// The state as this server knows it: one version as a whole, perhaps not the latest.
    #[must_use]
    pub fn state(&self) -> Arc<State> {
        self.0.view.state()
    }

    /// Waits for a version after `version`, and tells what has happened. Dropping the future is safe.
    pub async fn watch(&self, version: CatalogVersion) -> News {
        let mut versions = self.0.view.versions();
        while *versions.borrow() <= version {
            if !versions.changed().await {
                break;
            }
        }
        let (state, entries) = self.0.view.since(version);
        News { state, entries }
    }

    /// Waits until the state of this server shows every change that was decided before the call. A server that has just started
    /// knows of the last changes before its end only by this. Costs the leader a round to the voters, and no write. Dropping the
    /// future is safe.
    ///
    /// # Errors
    /// [`Error::Unknown`]: no leader has answered; ask again. [`Error::Stopped`], [`Error::Storage`].
    pub async fn catch_up(&self) -> Result<(), Error> {
        let Reply::Index(index) = self.lead(|| Message::ReadIndex).await? else { return Err(Error::Unknown) };
        let raft = self.0.raft.clone();
        let wait = async move { raft.wait(None).applied_index_at_least(Some(index), "caught up").await };
        self.scoped(wait).await.map(drop).map_err(|_| Error::Stopped)
    }

    /// Proposes a change, by way of the leader whoever that is. When this returns, the change is part of every later
    /// version and durable at a majority of voters. At the leader the state shows it already; elsewhere
    /// [`Catalog::watch`] from the version before waits for it. Dropping the future leaves open whether it is applied.
    ///
    /// # Errors
    /// [`Error::Refused`]: not applied. [`Error::Unknown`]: perhaps. [`Error::Stopped`], [`Error::Storage`]: perhaps.
    pub async fn propose(&self, change: Change) -> Result<Applied, Error> {
        if matches!(change, Change::SetVoters(_)) {
            return Err(Error::NotAllowed("voters are changed by change_voters"));
        }
        let halves = [self.0.host.random().to_be_bytes(), self.0.host.random().to_be_bytes()].concat();
        let id = ProposalId(halves.try_into().expect("two halves of eight bytes"));
        let command = Command { id, seen: self.state().version(), change };
        match self.lead(move || Message::Propose(command.clone())).await? {
            Reply::Applied(applied) => Ok(applied),
            Reply::Refused(refused) => Err(Error::Refused(refused)),
            _ => Err(Error::Unknown),
        }
    }

    /// Sends a server the log from now on. It does not vote. Again is the same as once.
    ///
    /// # Errors
    /// As for [`Catalog::propose`].
    pub async fn add_learner(&self, server: ServerId) -> Result<(), Error> {
        self.reconfigure(move || Message::AddLearner(server)).await
    }

    /// Makes these servers the ones that vote, by way of a time in which both the old and the new ones have to agree.
    /// They must have been learners. Who votes no more stays as a learner.
    ///
    /// # Errors
    /// As for [`Catalog::propose`]; [`Error::NotAllowed`] for none or too many.
    pub async fn change_voters(&self, voters: &BTreeSet<ServerId>) -> Result<(), Error> {
        if voters.is_empty() || voters.len() > VOTERS_MAX {
            return Err(Error::NotAllowed("a number of voters from 1 to 7"));
        }
        let voters: Vec<ServerId> = voters.iter().copied().collect();
        self.reconfigure(move || Message::ChangeVoters(voters.clone())).await
    }

    /// Sends a server, which does not vote, the log no more.
    ///
    /// # Errors
    /// As for [`Catalog::propose`].
    pub async fn remove(&self, server: ServerId) -> Result<(), Error> {
        self.reconfigure(move || Message::Remove(server)).await
    }

    async fn reconfigure(&self, message: impl Fn() -> Message + Send + Sync) -> Result<(), Error> {
        match self.lead(message).await? {
            Reply::Done => Ok(()),
            Reply::Refused(refused) => Err(Error::Refused(refused)),
            _ => Err(Error::Unknown),
        }
    }

    /// Whether this server leads, as far as it knows.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.status().leader == Some(self.0.me)
    }

    /// What this catalog knows about itself and the group.
    #[must_use]
    pub fn status(&self) -> CatalogStatus {
        let version = self.state().version();
        within(&self.0.host, || {
            let metrics = self.0.raft.metrics();
            let metrics = metrics.borrow_watched();
            let members = metrics.membership_config.membership();
            CatalogStatus {
                leader: metrics.current_leader,
                term: metrics.current_term,
                last_index: metrics.last_log_index,
                applied_index: metrics.last_applied.map(|id| id.index()),
                snapshot_index: metrics.snapshot.map(|id| id.index()),
                voters: members.voter_ids().collect::<BTreeSet<_>>().into_iter().collect(),
                is_changing_voters: members.get_joint_config().len() > 1,
                learners: members.learner_ids().collect(),
                version,
                is_running: metrics.running_state.is_ok(),
            }
        })
    }

    /// Stops this catalog's tasks. What is durable stays.
    pub async fn stop(&self) {
        let raft = self.0.raft.clone();
        // It fails only if the tasks have ended already.
        let _ = Scoped::new(self.0.host.clone(), async move { raft.shutdown().await }).await;
    }

    /// Brings a message to the leader until it is answered or time is up.
    async fn lead(&self, message: impl Fn() -> Message + Send + Sync) -> Result<Reply, Error> {
        let host = self.0.host.clone();
        let deadline = host.now() + self.0.config.proposal_max;
        loop {
            let attempt = async {
                match self.status().leader {
                    Some(leader) if leader != self.0.me => self.ask(leader, message()).await,
                    _ => self.answer_as_leader(message()).await,
                }
            };
            let attempt = std::pin::pin!(attempt);
            let reply = match HostRuntime::select2(attempt, host.sleep_until(deadline)).await {
                Select2::First(reply) => reply?,
                Select2::Second(()) => return Err(Error::Unknown),
            };
            if !matches!(reply, Reply::NotLeader(_) | Reply::Unavailable) {
                return Ok(reply);
            }
            let again = host.now() + self.0.config.retry;
            if again >= deadline {
                return Err(Error::Unknown);
            }
            host.sleep_until(again).await;
        }
    }

    async fn ask(&self, server: ServerId, message: Message) -> Result<Reply, Error> {
        let answer = self.0.host.call(server, message.encode()).await;
        let reply = answer.ok().and_then(|bytes| Reply::decode(&bytes).ok());
        Ok(reply.unwrap_or(Reply::Unavailable))
    }

    /// Answers a message of another catalog, as [`Host::call`] has brought it. The bytes may be anything.
    pub async fn handle(&self, message: &[u8]) -> Vec<u8> {
        let reply = match Message::decode(message) {
            Ok(message) => self.answer(message).await,
            Err(_) => Reply::Unavailable,
        };
        reply.encode()
    }

    async fn answer(&self, message: Message) -> Reply {
        let raft = self.0.raft.clone();
        match message {
            // Raft would log an error for each message.
            _ if !self.is_running() => Reply::Unavailable,
            Message::Append(request) => {
                let done = self.scoped(async move { raft.append_entries(request).await }).await;
                done.map_or(Reply::Unavailable, Reply::Appended)
            }
            // A server without any log may be a voter that has lost its drive, and with it what it has promised: it votes
            // for nobody until a leader has sent it the members.
            Message::Vote(_) | Message::PreVote(_) if !self.knows_members() => Reply::Unavailable,
            Message::Vote(request) => {
                let done = self.scoped(async move { raft.vote(request).await }).await;
                done.map_or(Reply::Unavailable, Reply::Voted)
            }
            Message::PreVote(request) => {
                let done = self.scoped(async move { raft.pre_vote(request).await }).await;
                done.map_or(Reply::Unavailable, Reply::Voted)
            }
            Message::Snapshot(chunk) => self.take_chunk(chunk).await,
            // Only a leader answers these, so that no message goes round in a circle.
            led => self.answer_as_leader(led).await.unwrap_or(Reply::Unavailable),
        }
    }

    fn is_running(&self) -> bool {
        within(&self.0.host, || self.0.raft.metrics().borrow_watched().running_state.is_ok())
    }

    fn knows_members(&self) -> bool {
        within(&self.0.host, || {
            let metrics = self.0.raft.metrics();
            let metrics = metrics.borrow_watched();
            metrics.membership_config.membership().nodes().next().is_some()
        })
    }

    /// Whether each of these servers that does not vote yet has some of this leader's log. One that has none would not vote
    /// (`knows_members`), and a group of such voters could stay without a leader. Those that vote already were looked at when they were
    /// added; one of them that is gone must not keep others from taking part.
    fn have_log(&self, servers: &[ServerId]) -> bool {
        within(&self.0.host, || {
            let metrics = self.0.raft.metrics();
            let metrics = metrics.borrow_watched();
            let voters: BTreeSet<ServerId> = metrics.membership_config.membership().voter_ids().collect();
            let matches = |server: &ServerId| {
                let reached = metrics.replication.as_ref().and_then(|all| all.get(server));
                voters.contains(server) || reached.is_some_and(Option::is_some)
            };
            servers.iter().all(matches)
        })
    }

    fn scoped<F: Future>(&self, work: F) -> Scoped<F> {
        Scoped::new(self.0.host.clone(), work)
    }

    async fn answer_as_leader(&self, message: Message) -> Result<Reply, Error> {
        let raft = self.0.raft.clone();
        let nodes = |servers: Vec<ServerId>| servers.into_iter().collect::<BTreeSet<_>>();
        let written = match message {
            Message::ReadIndex => {
                let read = self.scoped(async move { raft.get_read_log_id(ReadPolicy::ReadIndex).await }).await;
                return match read {
                    Ok((id, _)) => Ok(Reply::Index(id.index())),
                    Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(forward))) => {
                        Ok(Reply::NotLeader(forward.leader_id))
                    }
                    Err(RaftError::APIError(LinearizableReadError::QuorumNotEnough(_))) => Ok(Reply::Unavailable),
                    Err(RaftError::Fatal(fatal)) => Err(fatal.into()),
                };
            }
            Message::Propose(command) => {
                let logged = Logged(Arc::new(command));
                self.scoped(async move { raft.client_write(logged).await }).await
            }
            Message::AddLearner(server) => {
                self.scoped(async move { raft.add_learner(server, EmptyNode {}, false).await }).await
            }
            Message::ChangeVoters(servers) if self.is_leader() && !self.have_log(&servers) => {
                return Ok(Reply::Unavailable);
            }
            Message::ChangeVoters(servers) => {
                self.scoped(async move { raft.change_membership(nodes(servers), true).await }).await
            }
            Message::Remove(server) => {
                let change = ChangeMembers::RemoveNodes(BTreeSet::from([server]));
                self.scoped(async move { raft.change_membership(change, false).await }).await
            }
            Message::Append(_) | Message::Vote(_) | Message::PreVote(_) | Message::Snapshot(_) => {
                return Ok(Reply::Unavailable);
            }
        };
        match written {
            Ok(response) => Ok(reply_to(&response)),
            Err(RaftError::APIError(error)) => Ok(reply_to_failure(error)),
            Err(RaftError::Fatal(fatal)) => Err(fatal.into()),
        }
    }

    /// Takes a piece of a snapshot; the last one installs it.
    async fn take_chunk(&self, chunk: SnapshotChunk) -> Reply {
        let joined = self.0.incoming.lock().expect("nobody panics while it joins a snapshot").join(&chunk);
        let (vote, snapshot) = match joined {
            Joined::Misfit => return Reply::Unavailable,
            Joined::Partial => return Reply::ChunkTaken,
            Joined::Whole(vote, snapshot) => (vote, snapshot),
        };
        // A leader that has just started may send a snapshot of what this log has already from itself. To install it
        // would be going back, which openraft does not expect; it is enough to say that it is here, once that is true.
        if snapshot.meta.last_log_id.is_some_and(|last| self.0.log.has(&vote, &last)) {
            return self.0.log.sync().await.map_or(Reply::Unavailable, |()| Reply::SnapshotTaken(vote));
        }
        let raft = self.0.raft.clone();
        let installed = self.scoped(async move { raft.install_full_snapshot(vote, snapshot).await }).await;
        installed.map_or(Reply::Unavailable, |response| Reply::SnapshotTaken(response.vote))
    }
}

fn reply_to(response: &ClientWriteResponse<Types>) -> Reply {
    if response.membership.is_some() {
        return Reply::Done;
    }
    match response.data {
        Some(Ok(applied)) => Reply::Applied(applied),
        Some(Err(refusal)) => Reply::Refused(refusal.into()),
        None => Reply::Done,
    }
}

fn reply_to_failure(error: ClientWriteError<Types>) -> Reply {
    let leader = |forward: ForwardToLeader<Types>| Reply::NotLeader(forward.leader_id);
    match error {
        ClientWriteError::ForwardToLeader(forward) | ClientWriteError::LogEntryDiscarded(forward) => leader(forward),
        ClientWriteError::ChangeMembershipError(error) => match error {
            // The members that were asked for cannot be: asking again does not help.
            openraft::errors::ChangeMembershipError::EmptyMembership(_)
            | openraft::errors::ChangeMembershipError::LearnerNotFound(_) => Reply::Refused(Refused::members(&error)),
            _ => Reply::Unavailable,
        },
        ClientWriteError::PreconditionFailed(_) => Reply::Unavailable,
    }
}

#[cfg(test)]
mod tests;
