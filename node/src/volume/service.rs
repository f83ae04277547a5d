//! Volumes as a service of the node: drives of this server, volumes that are attached here, and what travels between servers.
//!
//! Three streams of events meet here. The catalog's configurations go to the drives that they name. What drives want sent goes to
//! other servers' drives, what they answer goes to whoever asked, and what they report goes to the catalog. Requests for volumes
//! that are attached elsewhere come as calls, and are answered when the drive answers.
//!
//! Drives run on threads of the program, behind [`DrivePort`]; nothing here waits for one.

mod attaching;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ashlar_bus::{Bus, Event};
use ashlar_catalog::change::CatalogVersion;
use ashlar_catalog::server::DriveState;
use ashlar_catalog::set::PgConfig;
use ashlar_catalog::state::State;
use ashlar_grid::CallOptions;
use ashlar_grid::error::Refusal;
use ashlar_grid::handler::{HandlerId, Handlers, RegisteredTwice};
use ashlar_grid::seam::{BoxFuture, Runtime};
use ashlar_grid::stream::{ClientStream, ServerStream};
use ashlar_placement::map::GroupId;
use ashlar_replica::config::Witnesses;
use ashlar_replica::error::Refusal as MemberRefusal;
use ashlar_replica::request::ClientResult;
use ashlar_replica::{Configuration, Report as MemberReport};
use ashlar_volume::initiator::{Answer, Subrequest};
use ashlar_volume::message::{AnswerKind, GroupConfig, SubrequestHeader};
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::{DriveId, ServerId, VolumeId};
use ashlar_wire::time::Instant;
use bytes::Bytes;

pub use self::attaching::AttachError;
use super::attachment::{Attachment, Fabric, Leader};
use super::drive_host::{ClientToken, HostOutput};
use super::drive_port::{DriveInput, DrivePort};
use super::figures::VolumeFigures;
use super::link::{Framed, Frames, Queue, VERSION};
use super::route::{RouteCache, is_whole_without};
use super::space::{DriveSpace, SpaceCall, SpaceForm};
use super::subrequest::{Answered, Asked, VolumeIo, answer_of, answered, client_request};
use super::turns::Turns;
use crate::catalog::CatalogHandle;
use crate::catalog::reports::{Report, ReportKind};
use crate::ending::Ending;
use crate::promise::{Promise, promise};
use crate::service::{Agent, NodeAction, Service};
use crate::{Node, WeakNode, detour, no_member, stopped};

/// A stream of messages between members of placement groups; it answers nothing.
const MEMBERS: HandlerId = HandlerId::new(65);

/// The same to a third server, which hands it on; behind the version stands the server that it is for.
const MEMBERS_BY_WAY: HandlerId = HandlerId::new(67);
/// The same from a third server; behind the version stands the server that it comes from.
const MEMBERS_BROUGHT: HandlerId = HandlerId::new(68);

/// How long a primary may take to answer before it is asked again. Longer than a lost backup takes to be removed.
const ASK_MAX: Duration = Duration::from_secs(6);
/// So long a request waits for a copy that is away, where the others have a block damaged. Less than the time after which a guest gives a
/// request up.
const DAMAGED_WAIT: Duration = Duration::from_secs(20);
/// After this long it is asked again meanwhile.
const DAMAGED_AGAIN: Duration = Duration::from_millis(500);
/// Bytes of one message of a stream.
const PIECE_BYTES: usize = 32 << 10;
/// Bytes on their way to one server.
const WINDOW_BYTES: u32 = 4 << 20;
/// A stream ends after so long, and the next one begins.
const STREAM_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Pause before a stream is opened again, or a configuration is given again to a drive whose inbox is full.
const RETRY: Duration = Duration::from_millis(20);
/// Refusal of a stream of another version.
const OTHER_VERSION: u32 = 1;
/// Refusal of a request for a drive that is not here.
const NO_DRIVE: u32 = 2;

/// Looks how full the drives of a server are. Never waits for one.
pub type SpaceReader = Box<dyn Fn() -> Vec<DriveSpace> + Send + Sync>;

/// What all parts of the service share.
struct Shared<R: Runtime> {
    catalog: CatalogHandle,
    drives: OnceLock<BTreeMap<DriveId, Arc<dyn DrivePort>>>,
    space: OnceLock<SpaceReader>,
    node: OnceLock<WeakNode<R>>,
    own: OnceLock<ServerId>,
    /// Who waits for a drive's reply.
    asked: Mutex<BTreeMap<u64, Promise<ClientResult>>>,
    token: AtomicU64,
    routes: Mutex<RouteCache>,
    queues: Mutex<BTreeMap<ServerId, Arc<Queue>>>,
    /// Reports on their way to the catalog. Members repeat theirs several times a second, and one of each is enough.
    reports: Mutex<BTreeSet<(GroupId, DriveId, Epoch, bool)>>,
    /// Volumes that are attached here, and by how many clients.
    attached: Mutex<BTreeMap<VolumeId, (Arc<Attachment>, usize)>>,
    turns: Turns,
    /// Drives of this server that have failed a write or a sync.
    broken: Mutex<BTreeSet<DriveId>>,
    /// The server stops: nothing is sent or tried again.
    ending: Ending,
}

/// The volumes of one server. Clones are the same.
pub struct VolumeService<R: Runtime>(Arc<Shared<R>>);

impl<R: Runtime> Clone for VolumeService<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<R: Runtime> VolumeService<R> {
    /// The service over a catalog. Drives come with [`VolumeService::set_drives`].
    #[must_use]
    pub fn new(catalog: CatalogHandle) -> Self {
        Self(Arc::new(Shared {
            catalog,
            drives: OnceLock::new(),
            space: OnceLock::new(),
            node: OnceLock::new(),
            own: OnceLock::new(),
            asked: Mutex::default(),
            token: AtomicU64::new(0),
            routes: Mutex::default(),
            queues: Mutex::default(),
            reports: Mutex::default(),
            attached: Mutex::default(),
            turns: Turns::default(),
            broken: Mutex::default(),
            ending: Ending::default(),
        }))
    }

    /// The drives of this server, which are open. Only the first call does anything; before the node starts.
    pub fn set_drives(&self, drives: BTreeMap<DriveId, Arc<dyn DrivePort>>) {
        drop(self.0.drives.set(drives));
    }

    /// How full the drives of this server are is looked up by this from now on. Only the first call does anything.
    pub fn set_space(&self, space: SpaceReader) {
        drop(self.0.space.set(space));
    }

    /// How full the drives of this server are, as of a moment ago.
    #[must_use]
    pub fn space_here(&self) -> Vec<DriveSpace> {
        self.0.space.get().map(|space| space()).unwrap_or_default()
    }

    /// Whether a drive of this server has failed a write or a sync since it was opened, and is not used any more.
    #[must_use]
    pub fn is_broken(&self, drive: DriveId) -> bool {
        lock(&self.0.broken).contains(&drive)
    }

    /// The volumes that are attached here, and what their requests have come to.
    #[must_use]
    pub fn figures_here(&self) -> Vec<VolumeFigures> {
        let state = self.0.catalog.state_now();
        let attached: Vec<(VolumeId, Arc<Attachment>, usize)> = lock(&self.0.attached)
            .iter()
            .map(|(id, (attachment, clients))| (*id, Arc::clone(attachment), *clients))
            .collect();
        let figures = attached.into_iter().map(|(id, attachment, clients)| {
            let figures = attachment.figures();
            let name = state.as_ref().and_then(|state| Some(state.volume(id)?.name.clone()));
            VolumeFigures { clients, name: name.unwrap_or_else(|| figures.name.clone()), ..figures }
        });
        figures.collect()
    }

    /// The catalog that the service follows.
    #[must_use]
    pub fn catalog(&self) -> &CatalogHandle {
        &self.0.catalog
    }

    /// What a drive of this server wants done. Called on the drive's thread; never waits. Messages to one server, or to another drive
    /// of this one, go together: whoever takes them is woken once.
    pub fn handle_outputs(&self, drive: DriveId, outputs: impl IntoIterator<Item = HostOutput>) {
        let mut messages = Vec::new();
        for output in outputs {
            self.handle_output(drive, output, &mut messages);
        }
        if !messages.is_empty() {
            self.send_all(messages);
        }
    }

    fn handle_output(&self, drive: DriveId, output: HostOutput, messages: &mut Vec<Framed>) {
        match output {
            HostOutput::Send { to, message } => messages.push(Framed { from: drive, to, message }),
            HostOutput::Reply { token, result } => {
                if let Some(asked) = lock(&self.0.asked).remove(&token.0) {
                    asked.keep(result);
                }
            }
            HostOutput::Report { group, report } => self.report(drive, group, report),
            // Nobody waits for it: a client's generation fences earlier ones with its first request to a group.
            HostOutput::Fenced { .. } => {}
            // Told again at every start.
            HostOutput::Deleted { volume, result: Ok(()) } => tracing::debug!(%drive, %volume, "volume deleted"),
            HostOutput::Deleted { volume, result: Err(error) } => {
                tracing::error!(%drive, %volume, %error, "the drive keeps the space of a deleted volume until the server starts again");
            }
            HostOutput::Damage { extent } => {
                let (volume, extent) = (extent.volume, extent.extent.0);
                tracing::error!(%drive, %volume, extent, "an extent on the drive is damaged: it is made whole from another copy");
            }
            HostOutput::Awaits { extent } => {
                let (volume, extent) = (extent.volume, extent.extent.0);
                tracing::error!(%drive, %volume, extent, "blocks of an extent cannot be read, and drives that may have them are away: start their servers; after five minutes the blocks are given up");
            }
            HostOutput::Lost { extent } => {
                let (volume, extent) = (extent.volume, extent.extent.0);
                tracing::error!(%drive, %volume, extent, "blocks of an extent are lost: no copy can be read; reads of them fail until they are written");
            }
            HostOutput::Mended { extent } => {
                let (volume, extent) = (extent.volume, extent.extent.0);
                tracing::info!(%drive, %volume, extent, "a damaged extent is whole again");
            }
            HostOutput::Poisoned(error) => {
                lock(&self.0.broken).insert(drive);
                tracing::error!(%drive, ?error, "the drive has failed a write or sync and is not used any more: replace it");
            }
        }
    }

    fn drive(&self, id: DriveId) -> Option<&Arc<dyn DrivePort>> {
        self.0.drives.get()?.get(&id)
    }

    pub(super) fn node(&self) -> Option<Node<R>> {
        self.0.node.get()?.upgrade()
    }

    fn send_all(&self, messages: Vec<Framed>) {
        let state = self.0.catalog.state_now();
        let server_of = |drive| state.as_ref().and_then(|state| state.drive(drive).map(|drive| drive.server));
        let mut here = Inputs::default();
        let mut queues: BTreeMap<ServerId, Arc<Queue>> = BTreeMap::new();
        for framed in messages {
            if self.drive(framed.to).is_some() {
                here.add(framed);
                continue;
            }
            let Some(server) = server_of(framed.to) else { continue };
            if let Some(queue) = queues.get(&server) {
                queue.push(&framed);
            } else if let Some(queue) = self.queue(server) {
                queue.push(&framed);
                queues.insert(server, queue);
            }
        }
        queues.values().for_each(|queue| queue.wake());
        self.hand_in(here);
    }

    /// Hands messages to the drives of this server. A full inbox loses them, as a network may.
    fn hand_in(&self, inputs: Inputs) {
        for (drive, inputs) in inputs.0 {
            if let Some(port) = self.drive(drive) {
                port.send_all(inputs);
            }
        }
    }

    /// The queue to a server. The first message to it begins its stream; nothing before the node has started.
    fn queue(&self, server: ServerId) -> Option<Arc<Queue>> {
        let node = self.node()?;
        let mut queues = lock(&self.0.queues);
        if let Some(queue) = queues.get(&server) {
            return Some(Arc::clone(queue));
        }
        let queue = Arc::new(Queue::default());
        queues.insert(server, Arc::clone(&queue));
        drop(queues);
        let task = deliver(node.clone(), server, Arc::clone(&queue));
        node.runtime().spawn(Box::pin(task));
        Some(queue)
    }

    /// Whether a drive is of that server: nobody speaks for the drives of others.
    fn is_of(&self, drive: DriveId, server: ServerId) -> bool {
        let state = self.0.catalog.state_now();
        state.and_then(|state| state.drive(drive).map(|drive| drive.server)) == Some(server)
    }

    fn report(&self, drive: DriveId, group: GroupId, report: MemberReport) {
        let (epoch, kind, about) = match report {
            MemberReport::Lost { epoch, member, .. } => (epoch, ReportKind::Lost, member),
            MemberReport::CaughtUp { epoch, learner } => (epoch, ReportKind::CaughtUp, learner),
            MemberReport::NewEpoch { epoch } => (epoch, ReportKind::Restarted, drive),
        };
        let Some(node) = self.node() else { return };
        let key = (group, about, epoch, kind == ReportKind::Restarted);
        if !lock(&self.0.reports).insert(key) {
            return;
        }
        let service = self.clone();
        node.runtime().spawn(Box::pin(async move {
            // Whoever reports does so again until the epoch changes.
            let reported = service.0.catalog.report(Report { group, epoch, kind, drive: about }).await;
            lock(&service.0.reports).remove(&key);
            if let Err(error) = reported {
                tracing::debug!(
                    ?error,
                    set = group.set.0,
                    pg = group.pg.0,
                    "a report of a placement group was not taken"
                );
            }
        }));
    }

    /// Why a request is not for a drive of this server, if it names another placement group than that of its extent, or an
    /// extent that this server does not know of (yet).
    fn check_route(&self, header: &SubrequestHeader) -> Result<(), AnswerKind> {
        let state = self.0.catalog.state_now();
        let extent = header.range.extent;
        let group = state.as_ref().and_then(|state| lock(&self.0.routes).group(state, extent));
        match group {
            None if state.is_some_and(|state| state.is_deleted(extent.volume)) => Err(AnswerKind::Fenced),
            None => Err(AnswerKind::NotPrimary(None)),
            Some(group) if group != header.group => Err(AnswerKind::Wrong),
            Some(_) => Ok(()),
        }
    }

    /// A request for a drive of this server; [`Answer::Lost`] if it has no such drive, or this server stops: then a change may be done.
    pub(crate) async fn ask_here(&self, header: SubrequestHeader, payload: Bytes) -> Answer {
        let Some(request) = client_request(&header, &payload) else { return answered(AnswerKind::Wrong) };
        let Some(port) = self.drive(header.drive).map(Arc::clone) else { return Answer::Lost };
        let token = self.0.token.fetch_add(1, Ordering::Relaxed);
        let (asked, result) = promise();
        lock(&self.0.asked).insert(token, asked);
        // Dropped half-way nobody waits for the reply any more.
        let _forget = Forget { asked: &self.0.asked, token };
        if !port.send(DriveInput::Client { token: ClientToken(token), group: header.group, request }) {
            return answered(AnswerKind::Busy { retry_after_ms: 0 });
        }
        // Once this server stops, nothing comes from other copies any more: whoever asks is to ask the next primary.
        let Some(result) = self.0.ending.cut(result).await else { return Answer::Lost };
        let result = result.unwrap_or(Err(MemberRefusal::DriveFailed));
        answer_of(result, |configuration| self.locate(configuration))
    }

    /// Who leads a placement group by a configuration; nothing while the drive is not known here.
    fn locate(&self, configuration: &Configuration) -> Option<GroupConfig> {
        let Configuration { epoch, primary: drive, .. } = *configuration;
        let server = self.0.catalog.state_now()?.drive(drive)?.server;
        Some(GroupConfig { epoch, drive, server })
    }

    /// Gives drives of this server the configurations that name them, as the catalog changes.
    async fn follow_catalog(self, node: Node<R>) {
        let mut given: BTreeMap<(DriveId, GroupId), Epoch> = BTreeMap::new();
        let mut left: BTreeMap<(DriveId, GroupId), Epoch> = BTreeMap::new();
        let mut deleted: BTreeSet<(DriveId, VolumeId)> = BTreeSet::new();
        let mut version = CatalogVersion(0);
        let mut is_first = true;
        while let Ok(news) = self.0.catalog.watch(version).await {
            version = news.state.version();
            if core::mem::take(&mut is_first) {
                node.runtime().spawn(Box::pin(self.clone().release_earlier()));
            }
            for (drive, configuration) in self.changed(&news.state, &given) {
                let key = (drive, configuration.group);
                let is_member = is_named(&configuration, drive);
                let epoch = configuration.epoch;
                let Some(port) = self.drive(drive) else { continue };
                let all = news.state.witnesses(configuration.group).unwrap_or_default();
                let left = news.state.pg(configuration.group).and_then(|config| config.previous.last().copied());
                let witnesses = Witnesses { all, last_to_leave: left };
                let input = DriveInput::Configuration { configuration, witnesses };
                while !port.send(input.clone()) && !self.is_over() {
                    node.runtime().sleep_until(node.runtime().now() + RETRY).await;
                }
                if is_member {
                    given.insert(key, epoch);
                } else {
                    given.remove(&key);
                }
            }
            self.tell_left(&news.state, &mut left);
            self.tell_deleted(&news.state, &mut deleted);
            self.tell_attached(&news.state);
            if self.is_over() {
                return;
            }
        }
    }

    /// Tells drives of this server which placement groups are whole without them, once for an epoch. What finds no room is
    /// told at the next change of the catalog.
    fn tell_left(&self, state: &State, told: &mut BTreeMap<(DriveId, GroupId), Epoch>) {
        let own: Vec<DriveId> = self.0.drives.get().map(|drives| drives.keys().copied().collect()).unwrap_or_default();
        for set in state.sets() {
            for (pg, config) in state.pgs_of(set.id) {
                let group = GroupId { set: set.id, pg };
                for drive in &own {
                    let epoch = config.epoch;
                    let is_new = told.get(&(*drive, group)) != Some(&epoch);
                    if is_new
                        && is_whole_without(set, &config, *drive)
                        && self.drive(*drive).is_some_and(|port| port.send(DriveInput::Left { group, epoch }))
                    {
                        told.insert((*drive, group), epoch);
                    }
                }
            }
        }
    }

    /// Tells drives of this server which volumes were deleted, once. What finds no room is told at the next change of the
    /// catalog; what was told is told again after a start, and costs nothing where it is known.
    fn tell_deleted(&self, state: &State, told: &mut BTreeSet<(DriveId, VolumeId)>) {
        let Some(drives) = self.0.drives.get() else { return };
        for (drive, port) in drives {
            for volume in state.deleted_volumes().map(|deleted| deleted.id) {
                let key = (*drive, volume);
                if !told.contains(&key) && port.send(DriveInput::DeleteVolume(volume)) {
                    told.insert(key);
                }
            }
        }
        told.retain(|(_, volume)| state.is_deleted(*volume));
    }

    /// Tells volumes that are attached here where their placement groups are by now, or that they are someone else's.
    fn tell_attached(&self, state: &State) {
        let attached: Vec<_> = lock(&self.0.attached).values().map(|(attachment, _)| Arc::clone(attachment)).collect();
        for attachment in attached.into_iter().filter(|attachment| !attachment.is_fenced()) {
            let (id, generation) = (attachment.volume(), attachment.generation().0);
            let is_later = state.volume(id).map(|record| record.generation.0 > generation);
            // One that is not known here was attached a moment ago, or is deleted.
            if is_later.unwrap_or_else(|| state.is_deleted(id)) {
                tracing::warn!(volume = %id, generation, "the volume was taken from this server: its clients get errors");
                attachment.fence();
            } else {
                attachment.handle_news();
            }
        }
    }

    /// Configurations that drives here do not know yet: those that name them, and those that have ceased to.
    fn changed(&self, state: &State, given: &BTreeMap<(DriveId, GroupId), Epoch>) -> Vec<(DriveId, Configuration)> {
        let mut changed = Vec::new();
        let own: Vec<DriveId> = self.0.drives.get().map(|drives| drives.keys().copied().collect()).unwrap_or_default();
        for set in state.sets() {
            for (pg, config) in state.pgs_of(set.id) {
                let group = GroupId { set: set.id, pg };
                for drive in &own {
                    let known = given.get(&(*drive, group));
                    let concerns = config.is_member(*drive) || known.is_some();
                    if concerns && known != Some(&config.epoch) {
                        changed.push((*drive, configuration(group, &config, set.copies.write_min)));
                    }
                }
            }
        }
        changed
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.ending.is_reached()
    }
}

/// The tables of the sets in which a volume has parts.
fn is_named(configuration: &Configuration, drive: DriveId) -> bool {
    configuration.acting.contains(&drive) || configuration.learners.contains(&drive)
}

fn configuration(group: GroupId, config: &PgConfig, min_copies: u8) -> Configuration {
    let PgConfig { epoch, acting, primary, learners, .. } = config.clone();
    Configuration { group, epoch, acting, primary, learners, min_copies }
}

/// Forgets who waits for a reply.
struct Forget<'a> {
    asked: &'a Mutex<BTreeMap<u64, Promise<ClientResult>>>,
    token: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        lock(self.asked).remove(&self.token);
    }
}

impl<R: Runtime> Service<R> for VolumeService<R> {
    fn register(&self, node: &WeakNode<R>, handlers: Handlers) -> Result<Handlers, RegisteredTwice> {
        let (asked, members, passing, bringing) = (self.clone(), self.clone(), self.clone(), self.clone());
        let (node, relay) = (node.clone(), node.clone());
        let (told, told_by) = (self.clone(), node.clone());
        let handlers = handlers.serve::<SpaceCall, _>(move |context, ()| {
            let (service, node) = (told.clone(), told_by.upgrade());
            async move {
                let is_met = node.ok_or_else(stopped)?.is_met(context.caller);
                if is_met { Ok(SpaceForm(service.space_here())) } else { Err(no_member()) }
            }
        })?;
        let handlers = handlers.serve::<VolumeIo, _>(move |context, request| {
            let (service, node) = (asked.clone(), node.upgrade());
            async move {
                // A server that was forgotten while it was away may still have a volume attached.
                if !node.ok_or_else(stopped)?.is_met(context.caller) {
                    return Err(no_member());
                }
                let Asked { header, payload, .. } = request;
                let answer = match service.check_route(&header) {
                    Ok(()) => service.ask_here(header, payload).await,
                    Err(kind) => answered(kind),
                };
                // The caller asks again.
                Answered::new(header.number, answer).ok_or_else(|| Refusal::new(NO_DRIVE, "no such drive"))
            }
        })?;
        let handlers = detour::serve::<R, VolumeIo>(handlers, &relay)?;
        let (piped, brought) = (relay.clone(), relay);
        let handlers = handlers.stream(MEMBERS_BY_WAY, move |context, initial, stream| {
            let (service, node) = (passing.clone(), piped.upgrade());
            async move {
                let work = hand_on(node, context.caller, initial, stream);
                service.0.ending.cut(work).await.unwrap_or(Ok(()))
            }
        })?;
        let handlers = handlers.stream(MEMBERS_BROUGHT, move |context, initial, stream| {
            let (service, node) = (bringing.clone(), brought.upgrade());
            async move {
                let (version, from) = read_initial(&initial)?;
                check_met(node.as_ref(), &[context.caller, from])?;
                service.receive(from, version, stream).await
            }
        })?;
        handlers.stream(MEMBERS, move |context, initial, stream| {
            let (service, from) = (members.clone(), context.caller);
            async move {
                let version = *initial.first().filter(|_| initial.len() == 1).ok_or_else(other_version)?;
                service.receive(from, version, stream).await
            }
        })
    }

    fn start(&self, node: &Node<R>) -> Box<dyn Agent> {
        drop(self.0.node.set(node.downgrade()));
        // A service starts once.
        let _ = self.0.own.set(node.id());
        node.runtime().spawn(Box::pin(self.clone().follow_catalog(node.clone())));
        Box::new(VolumeAgent)
    }

    fn close(&self) {
        self.0.ending.reach();
        lock(&self.0.queues).values().for_each(|queue| queue.close());
    }
}

impl<R: Runtime> VolumeService<R> {
    /// Takes the messages of another server's drives, until it has no more or this server stops.
    async fn receive(self, from: ServerId, version: u8, mut stream: ServerStream) -> Result<(), Refusal> {
        if version != VERSION {
            return Err(other_version());
        }
        let work = async {
            let mut frames = Frames::default();
            while let Ok(Some(piece)) = stream.receiver.receive().await {
                frames.feed(&piece);
                let mut inputs = Inputs::default();
                while let Some(framed) = frames.next().map_err(|_| other_version())? {
                    if self.drive(framed.to).is_some() && self.is_of(framed.from, from) {
                        inputs.add(framed);
                    }
                }
                self.hand_in(inputs);
            }
            Ok(())
        };
        self.0.ending.cut(work).await.unwrap_or(Ok(()))
    }
}

/// Messages for drives of this server.
#[derive(Debug, Default)]
struct Inputs(BTreeMap<DriveId, Vec<DriveInput>>);

impl Inputs {
    fn add(&mut self, framed: Framed) {
        let Framed { from, to, message } = framed;
        self.0.entry(to).or_default().push(DriveInput::Message { from, message });
    }
}

fn other_version() -> Refusal {
    Refusal::new(OTHER_VERSION, "messages of another version")
}

/// Version and server of a stream by way of a third server.
fn read_initial(initial: &[u8]) -> Result<(u8, ServerId), Refusal> {
    let (version, server) = initial.split_first().ok_or_else(other_version)?;
    Ok((*version, ServerId::from_bytes(server.try_into().map_err(|_| other_version())?)))
}

fn check_met<R: Runtime>(node: Option<&Node<R>>, servers: &[ServerId]) -> Result<(), Refusal> {
    let node = node.ok_or_else(stopped)?;
    if servers.iter().all(|server| node.is_met(*server)) { Ok(()) } else { Err(no_member()) }
}

fn stream_options() -> CallOptions<'static> {
    CallOptions {
        timeout: Some(STREAM_MAX),
        fail_fast: true,
        window: (WINDOW_BYTES, WINDOW_BYTES),
        ..CallOptions::default()
    }
}

/// Hands the messages of a server's drives on to a server that it does not reach.
async fn hand_on<R: Runtime>(
    node: Option<Node<R>>,
    from: ServerId,
    initial: Vec<u8>,
    mut stream: ServerStream,
) -> Result<(), Refusal> {
    let (version, server) = read_initial(&initial)?;
    check_met(node.as_ref(), &[from])?;
    let node = node.ok_or_else(stopped)?;
    let initial = [&[version], &from.as_bytes()[..]].concat();
    let open = node.grid().open_stream(server, MEMBERS_BROUGHT, &initial, stream_options()).await;
    drop(node);
    let mut onward = open.map_err(|_| detour::unreachable())?;
    while let Ok(Some(piece)) = stream.receiver.receive().await {
        if onward.sender.send(&piece).await.is_err() {
            return Err(detour::unreachable());
        }
    }
    Ok(())
}

/// A stream to the drives of another server.
struct Outgoing {
    stream: ClientStream,
    /// The third server that hands it on, if there is no link.
    via: Option<ServerId>,
}

/// Opens a stream to a server, directly or by way of a third one.
async fn open_stream<R: Runtime>(node: &Node<R>, server: ServerId) -> Option<Outgoing> {
    let grid = node.grid();
    if let Ok(stream) = grid.open_stream(server, MEMBERS, &[VERSION], stream_options()).await {
        return Some(Outgoing { stream, via: None });
    }
    let initial = [&[VERSION], &server.as_bytes()[..]].concat();
    // Whether the third one reaches the server is known when the stream breaks or does not.
    let via = *detour::thirds(node, server).first()?;
    let stream = grid.open_stream(via, MEMBERS_BY_WAY, &initial, stream_options()).await.ok();
    detour::note(node, server, via, stream.is_some());
    Some(Outgoing { stream: stream?, via: Some(via) })
}

/// Sends what waits for a server until the queue is closed.
async fn deliver<R: Runtime>(node: Node<R>, server: ServerId, queue: Arc<Queue>) {
    let mut outgoing: Option<Outgoing> = None;
    while let Some(batch) = queue.take().await {
        if let Some(Outgoing { stream, .. }) = outgoing.as_mut().filter(|open| open.via.is_some())
            && node.is_connected(server)
        {
            // The link is there again. What was sent arrives.
            let _ = stream.sender.finish().await;
            outgoing = None;
        }
        if outgoing.is_none() {
            outgoing = open_stream(&node, server).await;
        }
        let Some(open) = &mut outgoing else {
            // What waited is lost, as with a connection that breaks.
            node.runtime().sleep_until(node.runtime().now() + RETRY).await;
            continue;
        };
        for piece in batch.chunks(PIECE_BYTES) {
            if open.stream.sender.send(piece).await.is_err() {
                if let Some(via) = open.via {
                    detour::note(&node, server, via, false);
                }
                outgoing = None;
                break;
            }
        }
    }
}

impl<R: Runtime> VolumeService<R> {
    /// Asks the primary, here or elsewhere.
    async fn ask_once(&self, node: &Node<R>, subrequest: &Subrequest) -> Answer {
        if self.0.own.get() == Some(&subrequest.server) {
            return self.ask_here(subrequest.header, subrequest.payload.clone()).await;
        }
        let asked = Asked::from(subrequest);
        let reply = detour::call::<R, VolumeIo>(node, subrequest.server, &asked, ASK_MAX).await;
        reply.map_or(Answer::Lost, |reply| reply.answer_to(asked.header.number))
    }

    /// Whether a drive is away that acted in a placement group, or is being filled: it may have whole what the others have damaged.
    fn lacks_copies(&self, group: GroupId) -> bool {
        let config = self.0.catalog.state_now().and_then(|state| state.pg(group));
        config.is_some_and(|config| !config.previous.is_empty() || !config.learners.is_empty())
    }
}

/// The way from placement groups to drives and servers.
struct Routes<R: Runtime>(VolumeService<R>);

impl<R: Runtime> Fabric for Routes<R> {
    fn now(&self) -> Instant {
        self.0.node().map_or(Instant::NEVER, |node| node.runtime().now())
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<()> {
        match self.0.node() {
            Some(node) => node.runtime().sleep_until(at),
            None => Box::pin(core::future::ready(())),
        }
    }

    fn spawn(&self, task: BoxFuture<()>) {
        if let Some(node) = self.0.node() {
            node.runtime().spawn(task);
        }
    }

    fn leader(&self, group: GroupId) -> Leader {
        if self.0.is_over() {
            return Leader::Gone;
        }
        let known = || {
            let state = self.0.0.catalog.state_now()?;
            let config = state.pg(group)?;
            let primary = state.drive(config.primary)?;
            if primary.state == DriveState::Failed && state.is_given_up(&config) {
                return Some(Leader::Lost);
            }
            Some(Leader::Known(GroupConfig { epoch: config.epoch, drive: config.primary, server: primary.server }))
        };
        known().unwrap_or(Leader::Unknown)
    }

    fn ask(&self, subrequest: &Subrequest) -> BoxFuture<Answer> {
        let (service, subrequest) = (self.0.clone(), subrequest.clone());
        Box::pin(async move {
            let Some(node) = service.node() else { return Answer::Lost };
            let until = node.runtime().now() + DAMAGED_WAIT;
            loop {
                let answer = service.ask_once(&node, &subrequest).await;
                let is_damaged = matches!(answer, Answer::Answered(AnswerKind::Damaged, _));
                if !is_damaged || node.runtime().now() >= until || !service.lacks_copies(subrequest.header.group) {
                    return answer;
                }
                node.runtime().sleep_until(node.runtime().now() + DAMAGED_AGAIN).await;
            }
        })
    }
}

/// Nothing of volumes happens beside the bus: failures come by way of the catalog.
struct VolumeAgent;

impl Agent for VolumeAgent {
    fn handle_event(&mut self, _event: &Event, _now: Instant) {}

    fn turn(&mut self, _bus: &mut Bus, _now: Instant, _chance: &mut dyn FnMut() -> u64) -> Vec<NodeAction> {
        Vec::new()
    }

    fn due(&self) -> Instant {
        Instant::NEVER
    }

    fn begin_alone(&mut self, _bus: &mut Bus, _now: Instant) {}

    fn nickname(&self, _description: &[u8]) -> Option<String> {
        None
    }
}
