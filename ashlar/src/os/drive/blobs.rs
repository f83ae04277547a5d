//! Blobs of a drive: the thread that owns the value [`Blobs`], and the threads that execute its IOs.
//!
//! Apart from the drive's extents: another file, another queue, so that long shards and short blocks of volumes wait for the
//! machine's drive only, not for each other.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ashlar_node::object::BlobPort;
use ashlar_node::object::damage::Damage;
use ashlar_node::object::shards::{blob_request, listed_shard, shard_reply};
use ashlar_node::volume::space::Room;
use ashlar_object::api::BoxFuture;
use ashlar_object::cluster::{ShardReply, ShardRequest};
use ashlar_object::service::collect::{ListedShard, ShardStore};
use ashlar_store::blob::{BlobError, BlobEvent, BlobReply, BlobRequest, BlobRequestKind, Blobs, ListDetail};
use ashlar_store::request::RequestId;
use ashlar_wire::id::{BlobId, DriveId};
use bytes::Bytes;
use tokio::sync::oneshot;

use super::folder::{BLOBS_LOCK, Folder};
use super::inbox::{Completion, Inbox};
use super::level::Level;
use super::pool::Pool;
use super::{DriveIds, IO_THREADS, no_thread};
use crate::failure::Failure;
use crate::os::clock;

/// How long a shard may take here.
const ASK_MAX: Duration = Duration::from_secs(4);
/// Pause before a drive that has too much to do is asked again.
const RETRY: Duration = Duration::from_millis(5);

/// A request, and who waits for its end.
struct Asked {
    request: BlobRequestKind,
    reply: oneshot::Sender<Result<BlobReply, BlobError>>,
}

/// Blobs that run. They stop when this value is dropped.
pub struct BlobHandle {
    inbox: Arc<Inbox<Asked>>,
    thread: Option<JoinHandle<()>>,
    level: Arc<Level>,
    damage: Arc<Mutex<Damage>>,
}

impl BlobHandle {
    /// Space for shards, as of a moment ago. What compaction has not gained yet is not free.
    #[must_use]
    pub fn room(&self) -> Room {
        self.level.room()
    }

    /// Whether the drive has failed a write or a sync of shards, and keeps none any more.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.level.has_failed()
    }

    /// Opens the blobs of a drive in its directory, or makes room of `bytes` bytes for them, and starts their threads.
    ///
    /// # Errors
    /// As for the drive itself. Retry safe.
    pub fn open_or_format(dir: &Path, ids: DriveIds, drive: DriveId, bytes: u64) -> Result<Self, Failure> {
        let folder = Folder::take(dir, BLOBS_LOCK)?;
        let (file, blobs) = folder.open_or_format_blobs(ids, drive, bytes)?;
        let stats = blobs.stats();
        let level = Arc::new(Level::new(stats.live_bytes + stats.dead_bytes + stats.free_bytes));
        let inbox = Arc::new(Inbox::default());
        let damage = Arc::new(Mutex::default());
        let pool = Pool::start(&Arc::new(file), &inbox, IO_THREADS).map_err(no_thread)?;
        let owner = Owner {
            drive,
            blobs,
            pool,
            inbox: Arc::clone(&inbox),
            asked: BTreeMap::new(),
            last: 0,
            level: Arc::clone(&level),
            damage: Arc::clone(&damage),
            _folder: folder,
        };
        let thread = thread::Builder::new().name("blobs".into()).spawn(move || owner.run()).map_err(no_thread)?;
        Ok(Self { inbox, thread: Some(thread), level, damage })
    }
}

impl Drop for BlobHandle {
    fn drop(&mut self) {
        self.inbox.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

impl BlobPort for BlobHandle {
    fn ask(&self, request: ShardRequest) -> BoxFuture<'static, ShardReply> {
        let inbox = Arc::clone(&self.inbox);
        Box::pin(async move {
            let answer = clock::within(ASK_MAX, ask(&inbox, blob_request(request))).await.flatten();
            answer.map_or(ShardReply::Unavailable, shard_reply)
        })
    }

    fn take_damage(&self) -> Damage {
        core::mem::take(&mut *self.damage.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ShardStore for BlobHandle {
    fn list(&self, after: Option<BlobId>, limit: usize) -> BoxFuture<'_, Option<Vec<ListedShard>>> {
        Box::pin(async move {
            let kind = BlobRequestKind::List { after, limit, detail: ListDetail::Headers };
            match clock::within(ASK_MAX, ask(&self.inbox, kind)).await? {
                Some(Ok(BlobReply::Blobs { blobs, .. })) => Some(blobs.into_iter().map(listed_shard).collect()),
                _ => None,
            }
        })
    }

    fn header(&self, blob: BlobId) -> BoxFuture<'_, Option<Bytes>> {
        Box::pin(async move {
            match clock::within(ASK_MAX, ask(&self.inbox, BlobRequestKind::Head { blob })).await? {
                Some(Ok(BlobReply::Head(head))) => Some(Bytes::from(head.header)),
                _ => None,
            }
        })
    }

    fn remove(&self, blob: BlobId, stamp: u64) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            let kind = BlobRequestKind::RemoveStamped { blob, stamp };
            matches!(clock::within(ASK_MAX, ask(&self.inbox, kind)).await, Some(Some(Ok(_))))
        })
    }
}

/// What the thread answers; nothing if it has stopped.
async fn ask(inbox: &Inbox<Asked>, kind: BlobRequestKind) -> Option<Result<BlobReply, BlobError>> {
    loop {
        let (reply, answer) = oneshot::channel();
        if inbox.send(Asked { request: kind.clone(), reply }).is_ok() {
            match answer.await {
                Ok(Err(BlobError::Busy | BlobError::Expired)) => {}
                Ok(answer) => return Some(answer),
                Err(_) => return None,
            }
        }
        clock::sleep(RETRY).await;
    }
}

/// What the thread holds.
struct Owner {
    drive: DriveId,
    blobs: Blobs,
    pool: Pool,
    inbox: Arc<Inbox<Asked>>,
    asked: BTreeMap<u64, oneshot::Sender<Result<BlobReply, BlobError>>>,
    last: u64,
    level: Arc<Level>,
    damage: Arc<Mutex<Damage>>,
    /// Its lock is released last, when no IO is under way any more.
    _folder: Folder,
}

impl Owner {
    fn run(mut self) {
        loop {
            self.pool.execute(core::iter::from_fn(|| self.blobs.poll_io()));
            self.level.set_free(self.blobs.stats().free_bytes);
            while let Some((id, reply)) = self.blobs.poll_reply() {
                if let Some(asked) = self.asked.remove(&id.0) {
                    // Whoever asked may have given up.
                    asked.send(reply).ok();
                }
            }
            while let Some(event) = self.blobs.poll_event() {
                self.tell(event);
            }
            let Some(batch) = self.inbox.wait(self.blobs.poll_timeout()) else { break };
            let now = clock::now();
            for Completion { id, result } in batch.completions {
                self.blobs.handle_io(now, id, result);
            }
            for Asked { request, reply } in batch.inputs {
                self.last += 1;
                let request = BlobRequest { deadline: now + ASK_MAX, kind: request };
                match self.blobs.handle_request(now, RequestId(self.last), request) {
                    Ok(()) => drop(self.asked.insert(self.last, reply)),
                    Err(error) => drop(reply.send(Err(error))),
                }
            }
            if self.blobs.poll_timeout().is_some_and(|due| due <= now) {
                self.blobs.handle_timeout(now);
            }
        }
        self.pool.stop();
    }

    fn tell(&self, event: BlobEvent) {
        let drive = self.drive;
        self.damage.lock().unwrap_or_else(PoisonError::into_inner).note(&event);
        match event {
            BlobEvent::Damage { blob } => {
                tracing::error!(%drive, %blob, "a shard on the drive is damaged: it is made anew from others");
            }
            BlobEvent::Lost { segment } => {
                tracing::error!(%drive, segment, "a part of the drive's shards is damaged: what is missing is made anew");
            }
            BlobEvent::Poisoned(error) => {
                self.level.fail();
                tracing::error!(%drive, ?error, "the drive has failed a write or sync and keeps no shards any more: replace it");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::files::tests::Scratch;
    use ashlar_wire::id::{ClusterId, ServerId};

    const DRIVE: DriveId = DriveId::from_bytes([3; 16]);

    fn open(dir: &Path) -> BlobHandle {
        let (cluster, server) = (ClusterId::from_bytes([1; 16]), ServerId::from_bytes([2; 16]));
        let ids = DriveIds { cluster, server, new_drive: DRIVE };
        BlobHandle::open_or_format(dir, ids, DRIVE, 512 << 20).unwrap()
    }

    #[test]
    fn shards_are_kept_and_forgotten() {
        let scratch = Scratch::new();
        let dir = scratch.0.join("drive");
        let blob = |number| BlobId::from_bytes([number; 16]);
        let data = Bytes::from((0..300_001_u32).map(|at| u8::try_from(at % 251).unwrap()).collect::<Vec<u8>>());
        let put = |number, data: &Bytes| ShardRequest::Put {
            blob: blob(number),
            stamp: 7,
            header: Bytes::from_static(b"header"),
            data: data.clone(),
            is_repair: false,
        };
        let get = |number, offset, len| ShardRequest::Get { blob: blob(number), offset, len };
        crate::os::block_on(async {
            let blobs = open(&dir);
            assert_eq!(blobs.ask(put(1, &data)).await, ShardReply::Done);
            assert_eq!(blobs.ask(put(2, &data.slice(..5))).await, ShardReply::Done);
            assert_eq!(blobs.ask(get(1, 4_000, 200_000)).await, ShardReply::Data(data.slice(4_000..204_000)));
            assert_eq!(blobs.ask(get(3, 0, 1)).await, ShardReply::Missing);
            let all = blobs.list(None, 9).await.unwrap();
            assert_eq!(all.iter().map(|shard| shard.blob).collect::<Vec<_>>(), [blob(1), blob(2)]);
            assert_eq!((all[0].stamp, all[0].header.as_deref()), (7, Some(&b"header"[..])));
            assert_eq!(blobs.list(Some(blob(1)), 9).await.unwrap(), all[1..]);
            assert!(blobs.remove(blob(1), 8).await);
            assert_eq!(blobs.ask(get(1, 0, 5)).await, ShardReply::Data(data.slice(..5)), "another stamp");
        })
        .unwrap();
        crate::os::block_on(async {
            let blobs = open(&dir);
            assert_eq!(blobs.ask(get(2, 0, 5)).await, ShardReply::Data(data.slice(..5)));
            assert_eq!(blobs.ask(ShardRequest::Remove(blob(1))).await, ShardReply::Done);
            assert_eq!(blobs.ask(ShardRequest::Remove(blob(1))).await, ShardReply::Done);
            assert_eq!(blobs.ask(get(1, 0, 1)).await, ShardReply::Missing);
        })
        .unwrap();
    }
}
