//! Calls about shards and ranges between servers, and the tasks that own ranges.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ashlar_bus::{Bus, Event};
use ashlar_catalog::change::CatalogVersion;
use ashlar_catalog::state::State;
use ashlar_grid::handler::{HandlerId, Handlers, Method, RegisteredTwice};
use ashlar_grid::seam::{Lane, Runtime};
use ashlar_object::api;
use ashlar_object::cluster::{BucketList, ShardReply, ShardRequest};
use ashlar_object::index::key::BucketId;
use ashlar_object::index::{Reply, Request};
use ashlar_object::s3::lifecycle::Day;
use ashlar_object::service::ObjectService;
use ashlar_object::service::collect::ShardStore;
use ashlar_placement::map::GroupId;
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::DriveId;
use ashlar_wire::time::Instant;
use bytes::Bytes;

use super::damage::Damage;
use super::discarding::Discards;
use super::form::{DriveCall, ToDrive, decode_to_range, encode_reply};
use super::healing::WaitingObjects;
use super::index_host::IndexHost;
use super::keys::RootKey;
use super::reach::OWNER_MAX;
use super::relay::{Relay, relay};
use super::{asked_healing, index_set};
use crate::catalog::CatalogHandle;
use crate::service::{Agent, NodeAction, Service};
use crate::volume::service::VolumeService;
use crate::{Node, WeakNode, no_member, stopped, together};

/// A request to the owner of a range.
pub(super) struct AskRange;

impl Method for AskRange {
    const ID: HandlerId = HandlerId::new(96);
    type Request = Vec<u8>;
    type Reply = Vec<u8>;
}

/// A shard to be kept or forgotten. Long ones take the bulk lane.
pub(super) struct PutShard;

impl Method for PutShard {
    const ID: HandlerId = HandlerId::new(97);
    const IDEMPOTENT: bool = true;
    type Request = DriveCall;
    type Reply = Vec<u8>;
}

/// Bytes of a shard to be read.
pub(super) struct GetShard;

impl Method for GetShard {
    const ID: HandlerId = HandlerId::new(98);
    const LANE: Lane = Lane::Bulk;
    const IDEMPOTENT: bool = true;
    type Request = DriveCall;
    type Reply = Vec<u8>;
}

/// How often the ranges of this server are looked at where the catalog does not change.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Blobs of a drive of this server, as the node sees them.
pub trait BlobPort: ShardStore + 'static {
    /// Does what is asked of the drive. Ends within seconds, also where the drive hangs.
    fn ask(&self, request: ShardRequest) -> api::BoxFuture<'static, ShardReply>;

    /// What the drive has found to be damaged since the last call.
    fn take_damage(&self) -> Damage;
}

/// What all parts of the service share.
struct Shared<R: Runtime> {
    catalog: CatalogHandle,
    volumes: VolumeService<R>,
    wall_clock_ms: Box<dyn Fn() -> u64 + Send + Sync>,
    blobs: OnceLock<BTreeMap<DriveId, Arc<dyn BlobPort>>>,
    /// The day of lifecycle rules.
    day: OnceLock<Day>,
    node: OnceLock<WeakNode<R>>,
    ranges: Mutex<BTreeMap<GroupId, Arc<IndexHost<R>>>>,
    discards: Mutex<Discards>,
    /// Objects of which damage was read, or that a drive missed.
    waiting: Mutex<WaitingObjects>,
    asked_healing: Mutex<asked_healing::Asked>,
    given_root: OnceLock<RootKey>,
    /// When the catalog's copy here was found current last, in nanoseconds of the runtime's clock; 0 before.
    rights_known_ns: AtomicU64,
    /// Objects of this server's ranges that the last pass found to lack shards and has not healed.
    unhealed: AtomicU64,
    is_over: AtomicBool,
}

/// The objects of one server. Clones are the same.
pub struct ObjectNode<R: Runtime>(Arc<Shared<R>>);

impl<R: Runtime> Clone for ObjectNode<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R: Runtime> ObjectNode<R> {
    /// The service over a catalog and the drives of the volumes. `wall_clock_ms` gives milliseconds since 1970 (UTC).
    #[must_use]
    pub fn new(volumes: VolumeService<R>, wall_clock_ms: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(Shared {
            catalog: volumes.catalog().clone(),
            volumes,
            wall_clock_ms: Box::new(wall_clock_ms),
            blobs: OnceLock::new(),
            day: OnceLock::new(),
            node: OnceLock::new(),
            ranges: Mutex::default(),
            discards: Mutex::default(),
            waiting: Mutex::default(),
            asked_healing: Mutex::default(),
            given_root: OnceLock::new(),
            rights_known_ns: AtomicU64::new(0),
            unhealed: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        }))
    }

    /// The blobs of this server's drives, which are open. Only the first call does anything; before the node starts.
    pub fn set_blobs(&self, blobs: BTreeMap<DriveId, Arc<dyn BlobPort>>) {
        drop(self.0.blobs.set(blobs));
    }

    /// How long a day of lifecycle rules is, if it is not a day. Only the first call does anything; before the node starts.
    pub fn set_day(&self, day: Duration) {
        self.0.day.set(Day { ms: u64::try_from(day.as_millis()).expect("a day is short") }).ok();
    }

    /// The day of lifecycle rules.
    pub(super) fn day(&self) -> Day {
        self.0.day.get().copied().unwrap_or_default()
    }

    /// What a front is given.
    #[must_use]
    pub fn api(&self) -> api::Service {
        ObjectService::new(Arc::new(self.clone()), Arc::new(self.clone()) as Arc<dyn BucketList>).api()
    }

    pub(super) fn catalog(&self) -> &CatalogHandle {
        &self.0.catalog
    }

    pub(super) fn node(&self) -> Option<Node<R>> {
        self.0.node.get()?.upgrade()
    }

    pub(super) fn wall_clock_ms(&self) -> u64 {
        (self.0.wall_clock_ms)()
    }

    pub(super) fn blobs_of(&self, drive: DriveId) -> Option<&Arc<dyn BlobPort>> {
        self.0.blobs.get()?.get(&drive)
    }

    pub(super) fn is_over(&self) -> bool {
        self.0.is_over.load(Ordering::Acquire)
    }

    /// Objects that lack shards, or have some on drives that leave: those of the ranges that this server owns, as the last pass
    /// over them found, and those that this server heals as it has read or put them. One may count twice.
    #[must_use]
    pub fn to_heal(&self) -> u64 {
        self.0.unhealed.load(Ordering::Relaxed) + self.healing().len() as u64
    }

    pub(super) fn note_unhealed(&self, objects: u64) {
        self.0.unhealed.store(objects, Ordering::Relaxed);
    }

    pub(super) fn discards(&self) -> MutexGuard<'_, Discards> {
        self.0.discards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn waiting_objects(&self) -> &Mutex<WaitingObjects> {
        &self.0.waiting
    }

    pub(super) fn rights_known_ns(&self) -> &AtomicU64 {
        &self.0.rights_known_ns
    }

    pub(super) fn given_root(&self) -> &OnceLock<RootKey> {
        &self.0.given_root
    }

    pub(super) fn asked_healing(&self) -> &Mutex<asked_healing::Asked> {
        &self.0.asked_healing
    }

    /// Whether this server owns the range of a bucket.
    pub(super) fn owns(&self, bucket: BucketId) -> bool {
        let group = self.catalog().state_now().and_then(|state| index_set::range_of(&state, bucket));
        group.is_some_and(|group| self.ranges().contains_key(&group))
    }

    fn ranges(&self) -> MutexGuard<'_, BTreeMap<GroupId, Arc<IndexHost<R>>>> {
        self.0.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks a range that this server owns.
    pub(super) async fn ask_own(&self, group: GroupId, request: Request) -> Reply {
        let host = self.ranges().get(&group).cloned();
        match host {
            Some(host) => host.ask(request).await,
            None => Reply::Unavailable,
        }
    }

    /// Whether this server owns the range of a placement group now.
    pub(super) fn owns_group(&self, group: GroupId) -> bool {
        self.ranges().contains_key(&group)
    }

    /// A request of another server for a range.
    async fn take_range(&self, bytes: Vec<u8>) -> Reply {
        let Ok((group, request)) = decode_to_range(Bytes::from(bytes)) else { return Reply::TooLarge };
        let Ok(request) = Request::decode(request) else { return Reply::TooLarge };
        self.ask_own(group, request).await
    }

    /// A request of another server for a drive.
    async fn take_shard(&self, call: DriveCall) -> ShardReply {
        let Ok(ToDrive { drive, request }) = call.decode() else {
            return ShardReply::Unavailable;
        };
        match self.blobs_of(drive) {
            Some(port) => port.ask(request).await,
            None => ShardReply::Unavailable,
        }
    }

    /// Owns the ranges of the placement groups that have their primary here.
    async fn follow_catalog(self, node: Node<R>) {
        let mut version = CatalogVersion(0);
        let mut closed: BTreeMap<GroupId, Epoch> = BTreeMap::new();
        while !self.is_over() {
            let news = self.0.catalog.watch(version);
            let look = node.runtime().sleep_until(node.runtime().now() + LOOK_EVERY);
            match together::first(Box::pin(news), look).await {
                Some(Ok(news)) => version = news.state.version(),
                Some(Err(_)) => return,
                None => {}
            }
            if let Some(state) = self.0.catalog.state_now() {
                self.update_ranges(&node, &state, &mut closed);
            }
        }
    }

    fn update_ranges(&self, node: &Node<R>, state: &State, closed: &mut BTreeMap<GroupId, Epoch>) {
        let mut ranges = self.ranges();
        ranges.retain(|group, host| {
            let is_closed = host.is_closed();
            if is_closed && !host.may_reopen() {
                // Of the epoch in which it closed requests may still be under way: it opens again in a later one.
                closed.insert(*group, host.epoch());
            }
            !is_closed
        });
        for group in index_set::ranges(state) {
            let Some(config) = state.pg(group) else { continue };
            let is_mine = state.drive(config.primary).is_some_and(|drive| drive.server == node.id());
            let is_later = closed.get(&group).is_none_or(|closed| *closed < config.epoch);
            if is_mine && is_later && !ranges.contains_key(&group) {
                closed.remove(&group);
                let place = (group, config.primary, config.epoch);
                ranges.insert(group, IndexHost::open((node, &self.0.volumes), place));
            }
        }
    }
}

impl<R: Runtime> Service<R> for ObjectNode<R> {
    fn register(&self, node: &WeakNode<R>, handlers: Handlers) -> Result<Handlers, RegisteredTwice> {
        let is_met = |node: &WeakNode<R>, caller| match node.upgrade() {
            Some(node) if node.is_met(caller) => Ok(()),
            Some(_) => Err(no_member()),
            None => Err(stopped()),
        };
        let (service, from) = (self.clone(), node.clone());
        let handlers = handlers.serve::<AskRange, _>(move |context, request| {
            let (service, met) = (service.clone(), is_met(&from, context.caller));
            async move {
                met?;
                Ok(service.take_range(request).await.encode())
            }
        })?;
        let (service, from) = (self.clone(), node.clone());
        let handlers = handlers.serve::<PutShard, _>(move |context, request| {
            let (service, met) = (service.clone(), is_met(&from, context.caller));
            async move {
                met?;
                Ok(encode_reply(&service.take_shard(request).await))
            }
        })?;
        let (service, from) = (self.clone(), node.clone());
        let handlers = handlers.serve::<Relay, _>(move |context, request| {
            let (service, node, met) = (service.clone(), from.upgrade(), is_met(&from, context.caller));
            async move {
                met?;
                relay(&service, &node.ok_or_else(stopped)?, &request, OWNER_MAX).await
            }
        })?;
        let (service, from) = (self.clone(), node.clone());
        handlers.serve::<GetShard, _>(move |context, request| {
            let (service, met) = (service.clone(), is_met(&from, context.caller));
            async move {
                met?;
                Ok(encode_reply(&service.take_shard(request).await))
            }
        })
    }

    fn start(&self, node: &Node<R>) -> Box<dyn Agent> {
        drop(self.0.node.set(node.downgrade()));
        node.runtime().spawn(Box::pin(self.clone().follow_catalog(node.clone())));
        node.runtime().spawn(Box::pin(self.clone().keep_index_set(node.clone())));
        node.runtime().spawn(Box::pin(self.clone().make_keys(node.clone())));
        node.runtime().spawn(Box::pin(self.clone().keep_rights(node.clone())));
        node.runtime().spawn(Box::pin(self.clone().heal_always(node.clone())));
        node.runtime().spawn(Box::pin(self.clone().expire_always(node.clone())));
        for (drive, port) in self.0.blobs.get().into_iter().flatten() {
            let collecting = self.clone().collect_always(node.clone(), *drive, Arc::clone(port));
            node.runtime().spawn(Box::pin(collecting));
            let healing = self.clone().heal_damage(node.clone(), *drive, Arc::clone(port));
            node.runtime().spawn(Box::pin(healing));
        }
        Box::new(ObjectAgent)
    }

    fn close(&self) {
        self.0.is_over.store(true, Ordering::Release);
    }
}

/// Nothing of objects happens beside the bus: failures come by way of the catalog.
struct ObjectAgent;

impl Agent for ObjectAgent {
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
