//! The shards of a server, over all its lives: blobs on a [`Device`], and the task of each life that owns them, as the program's
//! thread does.

use core::future::poll_fn;
use core::task::{Poll, Waker};
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use ashlar_grid::seam::{Runtime as _, Threads as _};
use ashlar_node::object::BlobPort;
use ashlar_node::object::damage::Damage;
use ashlar_node::object::shards::{blob_request, listed_shard, shard_reply};
use ashlar_node::promise::{Promise, promise};
use ashlar_node::together;
use ashlar_object::api::BoxFuture;
use ashlar_object::cluster::{ShardReply, ShardRequest};
use ashlar_object::service::collect::{ListedShard, ShardStore};
use ashlar_store::blob::{
    BlobConfig, BlobError, BlobFormatting, BlobOpening, BlobReply, BlobRequest, BlobRequestKind, Blobs, ListDetail,
    NewBlobArea,
};
use ashlar_store::buffer::BLOCK_BYTES;
use ashlar_store::format::Existing;
use ashlar_store::io::{Io, IoError, IoId, IoOutput};
use ashlar_store::opening::Expected;
use ashlar_store::request::RequestId;
use ashlar_wire::id::{BlobId, DriveId};
use bytes::Bytes;

use crate::rng::Rng;
use crate::scenarios::cluster::device::{Device, Habits, Wrongs};
use crate::scenarios::lock;
use crate::scenarios::node::{cluster, server_id};
use crate::world::{ServerNo, SimRuntime};

/// Blocks of a segment: a shard of 1 MiB takes an eighth of it.
const SEGMENT_BLOCKS: u32 = 2_064;
const SEGMENTS: u32 = 12;
/// Bytes for shards.
const AREA_BYTES: u64 = (8 + SEGMENTS as u64 * SEGMENT_BLOCKS as u64 + 1) * BLOCK_BYTES as u64;
/// How long a shard may take here, as in the program.
const ASK_MAX: Duration = Duration::from_secs(4);
/// Time between two blobs of the scrub: short, so that damage is found within a run.
const SCRUB_INTERVAL: Duration = Duration::from_millis(200);

/// What has come to the owner and was not looked at.
#[derive(Default)]
struct Waiting {
    requests: Vec<(BlobRequestKind, Promise<Result<BlobReply, BlobError>>)>,
    completions: Vec<(IoId, Result<IoOutput, IoError>)>,
    damage: Damage,
    waker: Option<Waker>,
}

/// How the owner of one life is reached.
#[derive(Clone)]
struct Port {
    runtime: SimRuntime,
    waiting: Arc<Mutex<Waiting>>,
}

impl Port {
    fn wake(mut waiting: MutexGuard<'_, Waiting>) {
        let waker = waiting.waker.take();
        drop(waiting);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// What the blobs answer; nothing if they do not in time.
    async fn ask_blobs(self, request: BlobRequestKind) -> Option<Result<BlobReply, BlobError>> {
        let (kept, reply) = promise();
        {
            let mut waiting = lock(&self.waiting);
            waiting.requests.push((request, kept));
            Self::wake(waiting);
        }
        together::first(reply, self.runtime.sleep_until(self.runtime.now() + ASK_MAX)).await.flatten()
    }

    async fn filled(&self) {
        poll_fn(|cx| {
            let mut waiting = lock(&self.waiting);
            if waiting.requests.is_empty() && waiting.completions.is_empty() {
                waiting.waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
    }
}

impl BlobPort for Port {
    fn ask(&self, request: ShardRequest) -> BoxFuture<'static, ShardReply> {
        let port = self.clone();
        Box::pin(
            async move { port.ask_blobs(blob_request(request)).await.map_or(ShardReply::Unavailable, shard_reply) },
        )
    }

    fn take_damage(&self) -> Damage {
        core::mem::take(&mut lock(&self.waiting).damage)
    }
}

impl ShardStore for Port {
    fn list(&self, after: Option<BlobId>, limit: usize) -> BoxFuture<'_, Option<Vec<ListedShard>>> {
        Box::pin(async move {
            let list = BlobRequestKind::List { after, limit, detail: ListDetail::Headers };
            match self.clone().ask_blobs(list).await? {
                Ok(BlobReply::Blobs { blobs, .. }) => Some(blobs.into_iter().map(listed_shard).collect()),
                _ => None,
            }
        })
    }

    fn header(&self, blob: BlobId) -> BoxFuture<'_, Option<Bytes>> {
        Box::pin(async move {
            match self.clone().ask_blobs(BlobRequestKind::Head { blob }).await? {
                Ok(BlobReply::Head(head)) => Some(Bytes::from(head.header)),
                _ => None,
            }
        })
    }

    fn remove(&self, blob: BlobId, stamp: u64) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            matches!(self.clone().ask_blobs(BlobRequestKind::RemoveStamped { blob, stamp }).await, Some(Ok(_)))
        })
    }
}

/// The shards of one server.
pub(super) struct Shelf {
    device: Device,
    drive: DriveId,
}

impl Shelf {
    /// An empty one.
    pub(super) fn new(server: ServerNo, drive: DriveId, habits: Habits, rng: &mut Rng) -> Self {
        let device = Device::new(habits);
        let mut nonce = [0; 16];
        rng.fill(&mut nonce);
        let area = NewBlobArea {
            cluster: cluster(),
            server: server_id(server),
            drive,
            nonce,
            bytes: AREA_BYTES,
            segment_blocks: SEGMENT_BLOCKS,
        };
        let mut formatting = BlobFormatting::new(&area, Existing::Overwrite).expect("the sizes are this file's");
        loop {
            if let Some(formatted) = formatting.poll_ready() {
                formatted.expect("nothing goes wrong before it is known where data lies");
                return Self { device, drive };
            }
            let io = formatting.poll_io().expect("formatting goes on");
            let id = io.id;
            formatting.handle_io(id, device.execute(io, rng));
        }
    }

    pub(super) const fn drive(&self) -> DriveId {
        self.drive
    }

    pub(super) fn crash(&self, rng: &mut Rng) {
        self.device.crash(rng);
    }

    pub(super) fn heal(&self) {
        self.device.heal();
    }

    pub(super) fn has_failed(&self) -> bool {
        self.device.has_failed()
    }

    pub(super) fn wrongs(&self) -> Wrongs {
        self.device.wrongs()
    }

    /// Opens them for one life; nothing if the device fails just then, and so until the next life.
    ///
    /// # Errors
    /// They were lost over a crash, in words.
    pub(super) fn open(&self, runtime: &SimRuntime, mut rng: Rng) -> Result<Option<Arc<dyn BlobPort>>, String> {
        let expected = Expected { cluster: cluster(), drive: Some(self.drive), bytes: AREA_BYTES };
        let config = BlobConfig { scrub_interval: Some(SCRUB_INTERVAL), ..BlobConfig::default() };
        let mut opening = BlobOpening::new(config, expected);
        let blobs: Blobs = loop {
            if let Some(opened) = opening.poll_ready(runtime.now()) {
                match opened {
                    Ok(blobs) => break blobs,
                    Err(_) if self.has_failed() => return Ok(None),
                    Err(error) => return Err(format!("shards cannot be opened again: {error}")),
                }
            }
            let io = opening.poll_io().expect("opening goes on");
            let id = io.id;
            opening.handle_io(id, self.device.execute(io, &mut rng));
        };
        let geometry = blobs.superblock().geometry;
        let first = geometry.offset(0, 0) / BLOCK_BYTES as u64;
        self.device.set_data(first..first + u64::from(geometry.segments) * u64::from(geometry.segment_blocks));
        let port = Port { runtime: runtime.clone(), waiting: Arc::default() };
        let owner =
            Owner { port: port.clone(), device: self.device.clone(), blobs, asked: BTreeMap::new(), last: 0, rng };
        runtime.spawn(Box::pin(owner.run()));
        Ok(Some(Arc::new(port)))
    }
}

/// The blobs of one life.
struct Owner {
    port: Port,
    device: Device,
    blobs: Blobs,
    asked: BTreeMap<u64, Promise<Result<BlobReply, BlobError>>>,
    last: u64,
    rng: Rng,
}

impl Owner {
    /// Runs them until the life ends.
    async fn run(mut self) {
        let runtime = self.port.runtime.clone();
        loop {
            while let Some(io) = self.blobs.poll_io() {
                self.begin(io);
            }
            while let Some((id, reply)) = self.blobs.poll_reply() {
                if let Some(kept) = self.asked.remove(&id.0) {
                    kept.keep(reply);
                }
            }
            while let Some(event) = self.blobs.poll_event() {
                lock(&self.port.waiting).damage.note(&event);
            }
            match self.blobs.poll_timeout() {
                Some(due) => drop(together::first(self.port.filled(), runtime.sleep_until(due)).await),
                None => self.port.filled().await,
            }
            let (requests, completions) = {
                let mut waiting = lock(&self.port.waiting);
                (core::mem::take(&mut waiting.requests), core::mem::take(&mut waiting.completions))
            };
            let now = runtime.now();
            for (id, result) in completions {
                self.blobs.handle_io(now, id, result);
            }
            for (kind, kept) in requests {
                self.last += 1;
                match self.blobs.handle_request(
                    now,
                    RequestId(self.last),
                    BlobRequest { deadline: now + ASK_MAX, kind },
                ) {
                    Ok(()) => drop(self.asked.insert(self.last, kept)),
                    Err(error) => kept.keep(Err(error)),
                }
            }
            if self.blobs.poll_timeout().is_some_and(|due| due <= now) {
                self.blobs.handle_timeout(now);
            }
        }
    }

    fn begin(&mut self, io: Io) {
        let id = io.id;
        let takes = Duration::from_nanos(self.device.start(io, &mut self.rng));
        let (port, device) = (self.port.clone(), self.device.clone());
        let mut rng = self.rng.fork("io", id.0);
        let at = port.runtime.now() + takes;
        port.runtime.clone().spawn(Box::pin(async move {
            port.runtime.sleep_until(at).await;
            if let Some(result) = device.complete(id, &mut rng) {
                let mut waiting = lock(&port.waiting);
                waiting.completions.push((id, result));
                Port::wake(waiting);
            }
        }));
    }
}
