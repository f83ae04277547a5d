//! One index range at its owner: the state machine, and its IOs as requests to the placement group's primary.
//!
//! The owner is the server with the primary. It goes on through configurations that leave the primary where it is, as long
//! as it sees each of them; once one names another drive, or one was not seen, every further request to the placement group
//! fails here, and the range closes. The group refuses requests of earlier epochs by itself.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ashlar_grid::seam::{BoxFuture, Runtime};
use ashlar_object::index::log::{EXTENT_BYTES, Place};
use ashlar_object::index::range::{Io, IoFailed, IoId, RangeConfig, Token};
use ashlar_object::index::{Range, Reply, Request};
use ashlar_placement::map::GroupId;
use ashlar_placement::part::{Part, Volume};
use ashlar_placement::rule::{ExtentSize, Mapping, Rule};
use ashlar_volume::initiator::{self, Answer, Initiator, Limits, Subrequest};
use ashlar_volume::message::{AnswerKind, Generation, GroupConfig, SessionId};
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::{DriveId, VolumeId};
use ashlar_wire::time::Instant;
use bytes::Bytes;

use crate::Node;
use crate::promise::{Promise, promise};
use crate::volume::attachment::{Attachment, Fabric, Leader, PACING};
use crate::volume::service::VolumeService;

/// The volume under whose id ranges of the companion keep their extents. The catalog has no volume of this id.
const INDEX_VOLUME: VolumeId = VolumeId::from_bytes(*b"ashlar objranges");
/// That of ranges in the first set: buckets from before there was the companion.
const OLD_INDEX_VOLUME: VolumeId = VolumeId::from_bytes(*b"ashlar obj index");
/// Extents of one range, as a power of two: numbers of extents begin with the placement group's.
const RANGE_EXTENTS_LOG2: u32 = 24;
/// How often it is told of one range that there is no room for it.
const FULL_TOLD_EVERY: Duration = Duration::from_secs(60);

/// The way to the placement group while this server has its primary.
struct Owned<R: Runtime> {
    volumes: VolumeService<R>,
    node: Node<R>,
    group: GroupId,
    drive: DriveId,
    /// The latest epoch that was seen.
    epoch: AtomicU64,
    is_lost: AtomicBool,
}

impl<R: Runtime> Owned<R> {
    /// The configuration's epoch, if it follows the ones that were seen.
    fn epoch_now(&self) -> Option<Epoch> {
        if self.is_lost.load(Ordering::Acquire) {
            return None;
        }
        let state = self.volumes.catalog().state_now()?;
        let config = state.pg(self.group)?;
        let seen = self.epoch.load(Ordering::Acquire);
        let follows = config.primary == self.drive && (seen..=seen + 1).contains(&config.epoch.0);
        if !follows {
            self.is_lost.store(true, Ordering::Release);
            return None;
        }
        self.epoch.fetch_max(config.epoch.0, Ordering::AcqRel);
        Some(config.epoch)
    }

    fn config(&self, epoch: Epoch) -> GroupConfig {
        GroupConfig { epoch, drive: self.drive, server: self.node.id() }
    }
}

impl<R: Runtime> Fabric for Owned<R> {
    fn now(&self) -> Instant {
        self.node.runtime().now()
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<()> {
        self.node.runtime().sleep_until(at)
    }

    fn spawn(&self, task: BoxFuture<()>) {
        self.node.runtime().spawn(task);
    }

    fn leader(&self, _group: GroupId) -> Leader {
        match self.epoch_now() {
            Some(epoch) if !self.volumes.is_over() => Leader::Known(self.config(epoch)),
            _ => Leader::Gone,
        }
    }

    fn ask(&self, subrequest: &Subrequest) -> BoxFuture<Answer> {
        let (volumes, header, payload) = (self.volumes.clone(), subrequest.header, subrequest.payload.clone());
        Box::pin(async move {
            match volumes.ask_here(header, payload).await {
                // Only the catalog says how the group goes on: a configuration that is skipped ends the ownership.
                Answer::Answered(AnswerKind::OtherEpoch(_), payload) => {
                    Answer::Answered(AnswerKind::OtherEpoch(None), payload)
                }
                answer => answer,
            }
        })
    }
}

/// What the range and those who wait for it share.
struct Held {
    range: Range,
    waiting: BTreeMap<Token, Promise<Reply>>,
    last: u64,
    /// When it was last told that there is no room.
    told_full: Option<Instant>,
}

/// One range that this server owns.
pub(super) struct IndexHost<R: Runtime> {
    owned: Arc<Owned<R>>,
    attachment: Attachment,
    held: Mutex<Held>,
}

impl<R: Runtime> IndexHost<R> {
    /// Begins to own the range of a placement group, whose primary is on a drive of this server in this epoch.
    pub(super) fn open(
        (node, volumes): (&Node<R>, &VolumeService<R>),
        (group, drive, epoch): (GroupId, DriveId, Epoch),
    ) -> Arc<Self> {
        let owned = Arc::new(Owned {
            volumes: volumes.clone(),
            node: node.clone(),
            group,
            drive,
            epoch: AtomicU64::new(epoch.0),
            is_lost: AtomicBool::new(false),
        });
        let extents = (u64::from(group.pg.0) + 1) << RANGE_EXTENTS_LOG2;
        let rule = Rule { extent_size: ExtentSize::DEFAULT, mapping: Mapping::Shuffled };
        let id = if group.set.is_companion() { INDEX_VOLUME } else { OLD_INDEX_VOLUME };
        let volume = Volume::new(id, rule, &[Part { set: group.set, extents }]);
        let volume = volume.expect("numbers of placement groups leave room for 2^24 extents each");
        let size = volume.size();
        let (generation, session) = (Generation::default(), SessionId(node.draw()));
        let attachment = initiator::Attachment { generation, session };
        let (config, seed) = (owned.config(epoch), node.draw());
        let initiator = Initiator::pinned(attachment, volume, (group, config), Limits::default(), PACING, seed);
        let attachment = Attachment::new(Arc::clone(&owned) as Arc<dyn Fabric>, initiator, size);
        let range = Range::open(RangeConfig::default(), node.draw());
        let held = Held { range, waiting: BTreeMap::new(), last: 0, told_full: None };
        let host = Arc::new(Self { owned, attachment, held: Mutex::new(held) });
        host.go_on();
        host
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this server can own the range no longer, or an IO has failed: nothing is answered any more.
    pub(super) fn is_closed(&self) -> bool {
        self.owned.epoch_now().is_none() || self.lock().range.is_closed()
    }

    /// Whether it is closed for want of room alone: it may be opened again in the same epoch.
    pub(super) fn may_reopen(&self) -> bool {
        self.lock().range.may_reopen()
    }

    /// The latest epoch in which this server is known to have the primary.
    pub(super) fn epoch(&self) -> Epoch {
        Epoch(self.owned.epoch.load(Ordering::Acquire))
    }

    /// Does what is asked, in the order in which requests come.
    pub(super) async fn ask(self: &Arc<Self>, request: Request) -> Reply {
        let (kept, reply) = promise();
        {
            let held = &mut *self.lock();
            held.last += 1;
            held.waiting.insert(Token(held.last), kept);
            held.range.handle_request(Token(held.last), request);
        }
        self.go_on();
        reply.await.unwrap_or(Reply::Unavailable)
    }

    /// Begins the IOs that the range wants, and hands over its replies.
    fn go_on(self: &Arc<Self>) {
        let mut ios = Vec::new();
        let mut replies = Vec::new();
        {
            let held = &mut *self.lock();
            ios.extend(core::iter::from_fn(|| held.range.poll_io()));
            while let Some((token, reply)) = held.range.poll_reply() {
                replies.extend(held.waiting.remove(&token).map(|kept| (kept, reply)));
            }
        }
        for (kept, reply) in replies {
            kept.keep(reply);
        }
        for (id, io) in ios {
            let host = Arc::clone(self);
            self.owned.node.runtime().spawn(Box::pin(async move { host.execute(id, io).await }));
        }
    }

    async fn execute(self: Arc<Self>, id: IoId, io: Io) {
        let result = match io {
            Io::Read { place, len } => {
                let len = u32::try_from(len).expect("at most an extent");
                self.attachment.read(self.at(place), len).await
            }
            Io::Write { place, offset, data } => {
                let written = self.attachment.write(self.at(place) + offset as u64, data).await;
                written.map(|()| Bytes::new())
            }
            Io::Clear(place) => self.attachment.zero(self.at(place), EXTENT_BYTES as u64).await.map(|()| Bytes::new()),
            // A read is served under the primary's lease, which it checks after the read.
            Io::Confirm => self.attachment.read(self.at(Place::Head), ashlar_replica::request::BLOCK_BYTES).await,
        };
        let result = result.map_err(|failure| {
            if failure.lacks_room() {
                self.tell_full();
                return IoFailed::Full;
            }
            tracing::debug!(?failure, group = ?self.owned.group, "an index range ends at this server");
            IoFailed::Lost
        });
        self.lock().range.handle_io(id, result);
        self.go_on();
    }

    /// Says that objects cannot be put for want of room, once a minute at most.
    fn tell_full(&self) {
        let now = self.owned.node.runtime().now();
        let told = &mut self.lock().told_full;
        if told.is_none_or(|told| now.saturating_since(told) >= FULL_TOLD_EVERY) {
            *told = Some(now);
            tracing::warn!(
                group = self.owned.group.pg.0,
                "the drives have no room for the index of objects, which takes space of volumes: puts that need more of it get 507; \
                 delete or trim something of volumes, or add drives"
            );
        }
    }

    /// Where an extent begins in the volume of all ranges.
    fn at(&self, place: Place) -> u64 {
        let extent = (u64::from(self.owned.group.pg.0) << RANGE_EXTENTS_LOG2) + place.extent();
        extent * EXTENT_BYTES as u64
    }
}
