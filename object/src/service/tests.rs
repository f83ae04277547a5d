//! The service over drives and an index in memory: lost and damaged shards, racing writers, pages, uploads.

use core::future::poll_fn;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

use ashlar_wire::id::{BlobId, DriveId};
use ashlar_wire::time::Instant;
use bytes::Bytes;

use super::*;
use crate::api::KeyEnvelope;
use crate::api::{
    Attributes, Body, BodyDigest, BoxFuture, Buckets, Completion, DeleteRequest, Deletion, ListRequest, Listed,
    Objects, PART_BYTES_MIN, Permit, PutRequest, REDUCED_REDUNDANCY, Range as Bytes_, STORAGE_CLASS, Target, UploadId,
    Uploads, VersionId,
};
use crate::cipher::DataKey;
use crate::cluster::{BucketRecord, Moment, Placed, Placing, ShardReply, ShardRequest, Spread};
use crate::index::range::{Io, IoId, RangeConfig, Token};
use crate::index::{Range, Reply, Request};
use crate::lock::{Bypass, Lock};
use crate::record::{BLOCK_BYTES, PartId, ShardNames};
use crate::service::heal::Healed;

mod encryption;
mod healing;
mod limits;
mod locks;
mod permits;
mod quota;
mod versions;

/// Polls a future until it is ready; it waits for nothing but itself.
fn run<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..100_000 {
        if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
            return value;
        }
    }
    panic!("the future waits for something that nobody does");
}

/// Is pending once, so that others go on.
async fn turn() {
    let mut is_over = false;
    poll_fn(|_| if core::mem::replace(&mut is_over, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

#[derive(Default)]
struct World {
    drawn: u64,
    /// What the clock says, if it does not go on by itself.
    clock_ms: Option<u64>,
    now: Instant,
    drives: BTreeMap<DriveId, BTreeMap<BlobId, Bytes>>,
    /// Stamps and headers of the shards.
    heads: BTreeMap<(DriveId, BlobId), (u64, Bytes)>,
    /// Removals that are remembered in memory only are lost: the server dies before it does them.
    forgets: bool,
    /// The index does not answer.
    is_index_away: bool,
    down: BTreeSet<DriveId>,
    /// Drives without room.
    full: BTreeSet<DriveId>,
    /// Where the shards of every part should lie, if that is not where they lie.
    goal: Option<Spread>,
    /// Requests to the index.
    asked: u64,
    /// Requests to drives that are under way, and the most that were at a time.
    under_way: (u32, u32),
    /// Drives that are given up or being emptied: nothing new is put on them.
    leaving: BTreeSet<DriveId>,
    /// Shards that were read.
    reads: u64,
    discarded: Vec<PartContent>,
    to_heal: Vec<String>,
    noted: Vec<String>,
    extents: BTreeMap<u64, Vec<u8>>,
    index: Option<Range>,
    buckets: BTreeMap<String, BucketRecord>,
    /// Replies of so many commits are lost, after they have taken effect.
    lost_replies: u32,
}

#[derive(Clone, Default)]
struct Memory(Arc<Mutex<World>>);

impl Memory {
    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }

    fn with_drives(count: u8) -> (Self, ObjectService<Self>) {
        let memory = Self::default();
        memory.world().drives = (1..=count).map(|drive| (DriveId::from_bytes([drive; 16]), BTreeMap::new())).collect();
        let service = ObjectService::new(Arc::new(memory.clone()), Arc::new(memory.clone()));
        run(service.create("bucket", Attributes::default(), Versioning::Never)).unwrap();
        (memory, service)
    }

    fn shards(&self) -> usize {
        self.world().drives.values().map(BTreeMap::len).sum()
    }
}

fn parity(drives: usize) -> u8 {
    match drives {
        1 => 0,
        2 | 3 => 1,
        _ => 2,
    }
}

impl Cluster for Memory {
    fn moment(&self) -> Moment {
        let mut world = self.world();
        world.drawn += 1;
        let mut drawn = [0; 16];
        drawn[..8].copy_from_slice(&world.drawn.to_be_bytes());
        let now_ms = world.clock_ms.unwrap_or(world.drawn);
        Moment { now_ms, at: world.now, drawn, bucket: BucketId(drawn) }
    }

    fn spread(&self, _part: PartId, placing: Placing<'_>) -> Option<Placed> {
        let world = self.world();
        let mut free: Vec<DriveId> =
            world.drives.keys().filter(|drive| !world.leaving.contains(drive)).copied().collect();
        let now = match placing {
            Placing::Lying(now) => now,
            Placing::New(redundancy) => {
                let spread = Spread { parity: redundancy.parity(parity(free.len())), drives: free };
                return Some(Placed { spread, lacking: Vec::new(), names: ShardNames::OfShard });
            }
        };
        free.retain(|drive| !now.drives.contains(drive));
        let mut next = world.goal.as_ref().unwrap_or(now).clone();
        for drive in next.drives.iter_mut().filter(|drive| world.leaving.contains(drive)) {
            *drive = free.pop().unwrap_or(*drive);
        }
        let is_given_up = |drive: &DriveId| world.leaving.contains(drive) && world.down.contains(drive);
        let given_up = (0..).zip(&next.drives).filter(|(_, drive)| is_given_up(drive));
        let lacking = given_up.map(|(number, _)| number).collect();
        Some(Placed { lacking, spread: next, names: ShardNames::OfShard })
    }

    fn shard(&self, drive: DriveId, request: ShardRequest) -> BoxFuture<'static, ShardReply> {
        let memory = self.clone();
        Box::pin(async move {
            {
                let (now, most) = &mut memory.world().under_way;
                *now += 1;
                *most = (*most).max(*now);
            }
            turn().await;
            let world = &mut *memory.world();
            world.under_way.0 -= 1;
            if world.down.contains(&drive) {
                return ShardReply::Unavailable;
            }
            let blobs = world.drives.get_mut(&drive).unwrap();
            match request {
                ShardRequest::Put { .. } if world.full.contains(&drive) => ShardReply::Full,
                ShardRequest::Put { blob, stamp, data, header, is_repair } => {
                    assert!(header.len() <= 512);
                    world.heads.insert((drive, blob), (stamp, header));
                    assert!(blobs.insert(blob, data).is_none() || is_repair, "a shard is put once");
                    ShardReply::Done
                }
                ShardRequest::Get { blob, offset, len } => match blobs.get(&blob) {
                    Some(data) if len > 0 => {
                        let data = data.slice(offset as usize..(offset + len) as usize);
                        world.reads += 1;
                        ShardReply::Data(data)
                    }
                    Some(_) => ShardReply::Data(Bytes::new()),
                    None => ShardReply::Missing,
                },
                ShardRequest::Remove(blob) => {
                    blobs.remove(&blob);
                    ShardReply::Done
                }
            }
        })
    }

    fn index(&self, _bucket: BucketId, request: Request) -> BoxFuture<'static, Reply> {
        let (memory, called) = (self.clone(), self.world().now);
        Box::pin(async move {
            turn().await;
            let world = &mut *memory.world();
            world.asked += 1;
            // A request that has waited for long is not executed.
            if world.is_index_away || world.now > called + Duration::from_secs(20) {
                return Reply::Unavailable;
            }
            let is_commit = matches!(request, Request::Commit { .. });
            let config = RangeConfig { rewrite_bytes_min: 1 << 20, ..RangeConfig::default() };
            let index = world.index.get_or_insert_with(|| Range::open(config, 1));
            index.handle_request(Token(1), request);
            while let Some((id, io)) = index.poll_io() {
                execute(&mut world.extents, index, id, &io);
            }
            let (_, reply) = index.poll_reply().expect("one request, one reply");
            if is_commit && world.lost_replies > 0 {
                world.lost_replies -= 1;
                return Reply::Unavailable;
            }
            reply
        })
    }

    fn later(&self, chore: Chore) {
        let mut world = self.world();
        let part = match chore {
            Chore::Discard { .. } if world.forgets => return,
            Chore::Discard { part, .. } => part,
            Chore::Heal(_, key) => return world.to_heal.push(key),
            Chore::HealNoted(_, key) => return world.noted.push(key),
        };
        for block in 0..part.blocks() {
            for (drive, number) in part.spread.drives.iter().zip(0..) {
                world.drives.get_mut(drive).unwrap().remove(&part.blob(block, number));
            }
        }
        world.discarded.push(part);
    }
}

fn execute(extents: &mut BTreeMap<u64, Vec<u8>>, index: &mut Range, id: IoId, io: &Io) {
    let mut bytes = Bytes::new();
    match io {
        Io::Read { place, len } => {
            bytes = extents.get(&place.extent()).map_or_else(|| vec![0; *len], |extent| extent[..*len].to_vec()).into();
        }
        Io::Write { place, offset, data } => {
            extents.entry(place.extent()).or_insert_with(|| vec![0; 1 << 20])[*offset..offset + data.len()]
                .copy_from_slice(data);
        }
        Io::Clear(place) => drop(extents.remove(&place.extent())),
        Io::Confirm => {}
    }
    index.handle_io(id, Ok(bytes));
}

impl BucketList for Memory {
    fn find<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<BucketRecord>, BucketListError>> {
        Box::pin(async move { Ok(self.world().buckets.get(name).cloned()) })
    }

    fn all(&self) -> BoxFuture<'_, Result<Vec<(String, BucketRecord)>, BucketListError>> {
        Box::pin(async move { Ok(self.world().buckets.clone().into_iter().collect()) })
    }

    fn add<'a>(&'a self, name: &'a str, bucket: BucketRecord) -> BoxFuture<'a, Result<(), BucketListError>> {
        Box::pin(async move {
            let mut world = self.world();
            if world.buckets.contains_key(name) {
                return Err(BucketListError::Exists);
            }
            world.buckets.insert(name.to_owned(), bucket);
            Ok(())
        })
    }

    fn replace<'a>(
        &'a self,
        name: &'a str,
        seen: &'a BucketRecord,
        bucket: BucketRecord,
    ) -> BoxFuture<'a, Result<(), BucketListError>> {
        Box::pin(async move {
            turn().await;
            let mut world = self.world();
            match world.buckets.get_mut(name) {
                Some(now) if now == seen => *now = bucket,
                Some(_) => return Err(BucketListError::Changed),
                None => return Err(BucketListError::Unknown),
            }
            Ok(())
        })
    }

    fn remove<'a>(&'a self, name: &'a str, _bucket: BucketId) -> BoxFuture<'a, Result<(), BucketListError>> {
        Box::pin(async move { self.world().buckets.remove(name).map(drop).ok_or(BucketListError::Unknown) })
    }
}

mod collecting;

/// A body in pieces; its entity tag is its sum. One that is not whole ends with an error.
struct Given {
    bytes: Bytes,
    piece: usize,
    sum: u64,
    is_cut: bool,
}

fn given(bytes: &[u8]) -> Given {
    Given { bytes: Bytes::copy_from_slice(bytes), piece: 70_000, sum: 0, is_cut: false }
}

impl Body for Given {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, Error>> {
        Box::pin(async move {
            turn().await;
            if self.bytes.is_empty() {
                return if self.is_cut { Err(Error::BodyLost) } else { Ok(None) };
            }
            let piece = self.bytes.split_to(self.piece.min(self.bytes.len()));
            self.sum = piece.iter().fold(self.sum, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
            Ok(Some(piece))
        })
    }

    fn digest(&mut self) -> BodyDigest {
        BodyDigest { etag: format!("{:016x}", self.sum), attributes: Attributes(vec![("sum".into(), "s".into())]) }
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect()
}

fn put_if(service: &ObjectService<Memory>, key: &str, bytes: &[u8], condition: Condition) -> Result<Object, Error> {
    let request = PutRequest {
        bucket: "bucket".into(),
        key: key.into(),
        attributes: Attributes(vec![("content-type".into(), "text/plain".into())]),
        condition,
        ..PutRequest::default()
    };
    run(service.put(request, &mut given(bytes)))
}

fn put(service: &ObjectService<Memory>, key: &str, bytes: &[u8]) -> Object {
    put_if(service, key, bytes, Condition::default()).unwrap()
}

fn delete_if(
    service: &ObjectService<Memory>,
    key: &str,
    version: Option<VersionId>,
    condition: &Condition,
) -> Result<Deletion, Error> {
    let (target, attributes) = (Target { version, ..Target::current("bucket", key) }, Attributes::default());
    run(Objects::delete(
        service,
        DeleteRequest { target, condition, attributes: &attributes, bypass: Bypass::Denied, permit: Permit::ALWAYS },
    ))
}

fn read(service: &ObjectService<Memory>, key: &str, range: Option<Bytes_>) -> Result<Vec<u8>, Error> {
    run(async {
        let mut opened = Objects::get(service, Target::current("bucket", key), range, &Condition::default()).await?;
        let mut bytes = Vec::new();
        while let Some(piece) = opened.content.next().await? {
            bytes.extend_from_slice(&piece);
        }
        assert_eq!(bytes.len() as u64, opened.range.1);
        Ok(bytes)
    })
}

#[test]
fn objects_are_read_as_they_were_put_whole_and_in_ranges() {
    for drives in [1, 2, 3, 5] {
        let (_, service) = Memory::with_drives(drives);
        for len in [0, 1, 4_096, (1 << 20) - 1, 1 << 20, (3 << 20) + 12_345] {
            let bytes = pattern(len);
            let object = put(&service, "key", &bytes);
            assert_eq!((object.bytes, object.attributes.get("sum")), (len as u64, Some("s")));
            assert!(read(&service, "key", None).unwrap() == bytes, "{drives} drives, {len} bytes");
            for (first, last) in [(0, 0), (1, 5), (len / 3, len / 2), (len.saturating_sub(9), len)] {
                if first < len {
                    let range = Bytes_::Between(first as u64, last as u64);
                    let expected = &bytes[first..len.min(last + 1)];
                    assert!(read(&service, "key", Some(range)).unwrap() == expected, "{first} to {last} of {len}");
                }
            }
        }
        assert_eq!(read(&service, "none", None), Err(Error::NoSuchKey));
        put(&service, "short", b"abc");
        assert_eq!(read(&service, "short", Some(Bytes_::From(3))), Err(Error::BadRange(3)));
    }
}

#[test]
fn as_many_drives_as_there_is_parity_may_be_lost_and_damage_is_not_served() {
    let (memory, service) = Memory::with_drives(5);
    let bytes = pattern((2 << 20) + 77);
    put(&service, "key", &bytes);
    let drives: Vec<DriveId> = memory.world().drives.keys().copied().collect();
    for one in 0..5 {
        for other in 0..5 {
            memory.world().down = BTreeSet::from([drives[one], drives[other]]);
            assert!(read(&service, "key", None).unwrap() == bytes);
            assert!(read(&service, "key", Some(Bytes_::Last(100))).unwrap() == bytes[bytes.len() - 100..]);
        }
    }
    memory.world().down = drives[..3].iter().copied().collect();
    assert_eq!(read(&service, "key", None), Err(Error::Unavailable));
    memory.world().down.clear();
    for drive in &drives[..3] {
        memory.world().drives.get_mut(drive).unwrap().clear();
    }
    assert_eq!(read(&service, "key", None), Err(Error::Damaged));
}

#[test]
fn a_put_needs_a_quorum_of_drives_and_notes_who_is_missing() {
    let (memory, service) = Memory::with_drives(3);
    let drives: Vec<DriveId> = memory.world().drives.keys().copied().collect();
    memory.world().down.insert(drives[1]);
    let bytes = pattern(2_000_000);
    put(&service, "key", &bytes);
    let (bucket, _) = run(service.bucket("bucket")).unwrap();
    let (record, _) = run(service.record(bucket, "key")).unwrap().unwrap();
    assert_eq!(record.parts[0].missing, [1]);
    memory.world().down = BTreeSet::from([drives[0], drives[1]]);
    let refused = put_if(&service, "key", b"new", Condition::default());
    assert_eq!(refused, Err(Error::Unavailable));
    memory.world().down = BTreeSet::from([drives[1]]);
    assert!(read(&service, "key", None).unwrap() == bytes, "a failed put changes nothing");
}

#[test]
fn what_is_replaced_deleted_or_not_whole_leaves_no_shards() {
    let (memory, service) = Memory::with_drives(3);
    put(&service, "key", &pattern(3_000_000));
    put(&service, "key", &pattern(100));
    assert_eq!(memory.shards(), 3);
    let request = PutRequest { bucket: "bucket".into(), key: "key".into(), ..PutRequest::default() };
    let mut body = Given { is_cut: true, ..given(&pattern(2_500_000)) };
    assert_eq!(run(service.put(request, &mut body)), Err(Error::BodyLost));
    assert_eq!(memory.shards(), 3);
    assert_eq!(read(&service, "key", None).unwrap(), pattern(100));
    delete_if(&service, "key", None, &Condition::default()).unwrap();
    delete_if(&service, "key", None, &Condition::default()).unwrap();
    assert_eq!((memory.shards(), read(&service, "key", None)), (0, Err(Error::NoSuchKey)));
}

fn absent() -> Condition {
    Condition { etag_is_not: Some(vec!["*".into()]), ..Condition::default() }
}

fn is(etag: &str) -> Condition {
    Condition { etag_is: Some(vec![etag.into()]), ..Condition::default() }
}

#[test]
fn conditions_hold_when_they_are_committed() {
    let (memory, service) = Memory::with_drives(3);
    assert_eq!(put_if(&service, "key", b"0", is("*")), Err(Error::NoSuchKey));
    let first = put_if(&service, "key", b"1", absent()).unwrap();
    assert_eq!(put_if(&service, "key", b"2", absent()), Err(Error::ConditionFailed));
    let second = put_if(&service, "key", b"3", is(&first.etag)).unwrap();
    assert_eq!(put_if(&service, "key", b"4", is(&first.etag)), Err(Error::ConditionFailed));
    let quoted = format!("\"{}\"", second.etag);
    assert_eq!(delete_if(&service, "key", None, &is(&first.etag)), Err(Error::ConditionFailed));
    put_if(&service, "key", b"5", is(&quoted)).unwrap();
    let reread = run(Objects::get(&service, Target::current("bucket", "key"), None, &absent())).map(|_| ());
    assert!(matches!(reread, Err(Error::NotModified(_))));
    assert_eq!(memory.shards(), 3);
}

#[test]
fn of_several_conditional_writers_one_wins() {
    let (memory, service) = Memory::with_drives(3);
    let bodies: Vec<Vec<u8>> = (1..=6).map(|len| pattern(len * 1_000)).collect();
    let mut coming: Vec<Given> = bodies.iter().map(|bytes| given(bytes)).collect();
    let results = run(crate::flight::all(coming.iter_mut().map(|body| -> BoxFuture<'_, Result<Object, Error>> {
        let request =
            PutRequest { bucket: "bucket".into(), key: "key".into(), condition: absent(), ..PutRequest::default() };
        service.put(request, body)
    })));
    let won: Vec<&Object> = results.iter().filter_map(|result| result.as_ref().ok()).collect();
    assert_eq!(won.len(), 1);
    assert_eq!(read(&service, "key", None).unwrap().len() as u64, won[0].bytes);
    assert_eq!(memory.shards(), 3, "the shards of those that lost are gone");
}

#[test]
fn a_conditional_put_whose_reply_was_lost_finds_itself() {
    let (memory, service) = Memory::with_drives(3);
    memory.world().lost_replies = 1;
    assert_eq!(put_if(&service, "key", b"1", absent()).unwrap().bytes, 1);
    assert_eq!(read(&service, "key", None).unwrap(), b"1");
}

#[test]
fn lists_have_pages_prefixes_and_an_order() {
    let (_, service) = Memory::with_drives(1);
    let keys = ["a", "b/1", "b/2", "b/c/3", "b0", "c", "d/e", "ä"];
    for key in keys {
        put(&service, key, b"");
    }
    let list = |prefix: &str, delimiter: &str, limit| {
        let mut request =
            ListRequest { prefix: prefix.into(), delimiter: delimiter.into(), after: String::new(), limit };
        let mut told = Vec::new();
        loop {
            let page = run(Objects::list(&service, "bucket", &request)).unwrap();
            assert!(page.entries.len() <= limit);
            told.extend(page.entries.into_iter().map(|entry| match entry {
                Listed::Object(object) => object.key,
                Listed::Prefix(prefix) => format!("({prefix})"),
            }));
            match page.next {
                Some(next) => request.after = next,
                None => return told,
            }
        }
    };
    for limit in [1, 2, 3, 1_000] {
        assert_eq!(list("", "", limit), keys);
        assert_eq!(list("", "/", limit), ["a", "(b/)", "b0", "c", "(d/)", "ä"]);
        assert_eq!(list("b/", "/", limit), ["b/1", "b/2", "(b/c/)"]);
        assert_eq!(list("b", "", limit), ["b/1", "b/2", "b/c/3", "b0"]);
        assert_eq!(list("x", "/", limit), Vec::<String>::new());
        assert_eq!(list("c", "/", limit), ["c"]);
    }
    // A key that is the prefix is no common prefix: what comes behind it is told.
    put(&service, "c/1", b"");
    assert_eq!(list("c", "/", 1), ["c", "(c/)"]);
    let after = |after: &str| {
        let request = ListRequest { after: after.into(), delimiter: "/".into(), limit: 1, ..ListRequest::default() };
        run(Objects::list(&service, "bucket", &request)).unwrap().entries
    };
    assert_eq!(after("b/1"), [Listed::Prefix("b/".into())], "there is more of it behind");
    assert!(matches!(&after("b/")[..], [Listed::Object(object)] if object.key == "b0"));
    let nothing = ListRequest { limit: 0, ..ListRequest::default() };
    assert_eq!(run(Objects::list(&service, "bucket", &nothing)).unwrap().entries, []);
}

#[test]
fn buckets_are_deleted_when_they_are_empty() {
    let (memory, service) = Memory::with_drives(1);
    assert_eq!(run(service.create("bucket", Attributes::default(), Versioning::Never)), Err(Error::BucketExists));
    assert_eq!(run(service.create("No", Attributes::default(), Versioning::Never)), Err(Error::BadBucketName));
    put(&service, "key", b"1");
    assert_eq!(run(Buckets::delete(&service, "bucket")), Err(Error::BucketNotEmpty));
    let (id, _) = run(service.bucket("bucket")).unwrap();
    delete_if(&service, "key", None, &Condition::default()).unwrap();
    // A deletion that is refused leaves uploads as they are.
    let upload = run(service.begin("bucket", "key", Attributes::default(), Lock::default(), None)).unwrap();
    let part = put_part(&service, &upload, 1, b"part");
    put(&service, "other", b"1");
    assert_eq!(run(Buckets::delete(&service, "bucket")), Err(Error::BucketNotEmpty));
    run(service.complete("bucket", "key", &upload, completion(vec![part]))).unwrap();
    for key in ["key", "other"] {
        delete_if(&service, key, None, &Condition::default()).unwrap();
    }
    let upload = run(service.begin("bucket", "key", Attributes::default(), Lock::default(), None)).unwrap();
    let part = put_part(&service, &upload, 1, b"part");
    assert_eq!(memory.shards(), 1);
    run(service.seal(id)).unwrap();
    let late = put_if(&service, "key", b"2", Condition::default());
    assert_eq!(late, Err(Error::NoSuchBucket), "nothing is put into a bucket that is being deleted");
    let late = run(service.complete("bucket", "key", &upload, completion(vec![part])));
    assert_eq!(late, Err(Error::NoSuchBucket), "nor is an upload completed");
    run(Buckets::delete(&service, "bucket")).unwrap();
    assert_eq!(memory.shards(), 0, "uploads go with their bucket");
    assert_eq!(put_if(&service, "key", b"2", Condition::default()), Err(Error::NoSuchBucket));
    run(service.create("bucket", Attributes::default(), Versioning::Never)).unwrap();
    put(&service, "key", b"3");
    assert_eq!(run(Buckets::list(&service)).unwrap().len(), 1);
}

#[test]
fn attributes_of_a_bucket_are_changed_one_after_the_other() {
    let (_, service) = Memory::with_drives(1);
    let names: Vec<String> = (0..5).map(|number| format!("n{number}")).collect();
    let add = |name: &str, bucket: &Bucket| Ok(bucket.attributes.with(name, Some("v".into())));
    let edits: Vec<_> = names.iter().map(|name| move |bucket: &Bucket| add(name, bucket)).collect();
    run(crate::flight::all(
        edits.iter().map(|edit| -> BoxFuture<'_, _> { Box::pin(Buckets::edit(&service, "bucket", edit)) }),
    ));
    assert_eq!(run(Buckets::get(&service, "bucket")).unwrap().attributes.0.len(), 5);
    let without = |bucket: &Bucket| Ok(bucket.attributes.with("n3", None));
    assert_eq!(run(Buckets::edit(&service, "bucket", &without)).unwrap().attributes.get("n3"), None);
    let long = |bucket: &Bucket| Ok(bucket.attributes.with("long", Some("x".repeat(api::BUCKET_ATTRIBUTES_BYTES_MAX))));
    assert!(matches!(run(Buckets::edit(&service, "bucket", &long)), Err(Error::BadRequest(_))));
    assert_eq!(run(Buckets::edit(&service, "none", &long)), Err(Error::NoSuchBucket));
}

/// The key of an upload that is not encrypted.
fn unencrypted(envelope: Option<&KeyEnvelope>) -> Result<Option<DataKey>, Error> {
    assert_eq!(envelope, None);
    Ok(None)
}

fn put_part(service: &ObjectService<Memory>, upload: &UploadId, number: u32, bytes: &[u8]) -> (u32, String) {
    let part = run(service.put_part("bucket", "key", upload, number, &unencrypted, &mut given(bytes))).unwrap();
    (number, part.etag)
}

fn completion(parts: Vec<(u32, String)>) -> Completion {
    let digest = BodyDigest { etag: "whole-2".into(), attributes: Attributes::default() };
    Completion { parts, digest, condition: Condition::default() }
}

#[test]
fn what_asks_for_reduced_redundancy_has_half_the_parity() {
    let (memory, service) = Memory::with_drives(8);
    let drives: Vec<DriveId> = memory.world().drives.keys().copied().collect();
    let attributes = Attributes(vec![(STORAGE_CLASS.into(), REDUCED_REDUNDANCY.into())]);
    let bytes = pattern((1 << 20) + 9);
    put(&service, "usual", &bytes);
    let request = PutRequest {
        bucket: "bucket".into(),
        key: "reduced".into(),
        attributes: attributes.clone(),
        ..PutRequest::default()
    };
    run(service.put(request, &mut given(&bytes))).unwrap();
    let upload = run(service.begin("bucket", "key", attributes, Lock::default(), None)).unwrap();
    let part = put_part(&service, &upload, 1, &bytes);
    run(service.complete("bucket", "key", &upload, completion(vec![part]))).unwrap();
    for (lost, [usual, reduced]) in [(1, [true, true]), (2, [true, false]), (3, [false, false])] {
        memory.world().down = drives[..lost].iter().copied().collect();
        let is_readable = |key| read(&service, key, None).is_ok_and(|found| found == bytes);
        assert_eq!(["usual", "reduced", "key"].map(is_readable), [usual, reduced, reduced], "{lost} drives");
    }
}

#[test]
fn an_upload_becomes_an_object_in_one_step() {
    let (memory, service) = Memory::with_drives(3);
    let attributes = Attributes(vec![("x-amz-meta-a".into(), "b".into())]);
    let upload = run(service.begin("bucket", "key", attributes, Lock::default(), None)).unwrap();
    let long = usize::try_from(PART_BYTES_MIN).unwrap() + 99;
    put_part(&service, &upload, 1, &pattern(500));
    let one = put_part(&service, &upload, 1, &pattern(long));
    let unused = put_part(&service, &upload, 2, &pattern(700));
    let three = put_part(&service, &upload, 3, &pattern(900));
    let listed = run(Uploads::list(&service, "bucket", Some(("key", &upload)))).unwrap();
    assert_eq!(listed[0].1.iter().map(|part| part.number).collect::<Vec<_>>(), [1, 2, 3]);
    let complete = |parts| run(service.complete("bucket", "key", &upload, completion(parts)));
    assert_eq!(complete(vec![]), Err(Error::BadPartOrder));
    assert_eq!(complete(vec![three.clone(), one.clone()]), Err(Error::BadPartOrder));
    assert_eq!(complete(vec![one.clone(), one.clone()]), Err(Error::BadPartOrder));
    assert_eq!(complete(vec![(1, "x".into())]), Err(Error::BadPart(1)));
    assert_eq!(complete(vec![(7, "x".into())]), Err(Error::BadPart(7)));
    assert_eq!(complete(vec![unused, three.clone()]), Err(Error::PartTooSmall(2)));
    let object = complete(vec![one.clone(), three.clone()]).unwrap();
    assert_eq!((object.bytes, object.etag.as_str()), ((long + 900) as u64, "whole-2"));
    assert_eq!(object.parts, [long as u64, 900]);
    assert_eq!(object.attributes.get("x-amz-meta-a"), Some("b"));
    let renumbered = vec![one.clone(), (2, three.1.clone())];
    assert_eq!(complete(vec![one, three]).unwrap(), object, "a repeated completion answers the same");
    assert_eq!(complete(renumbered), Err(Error::NoSuchUpload), "another list is no repetition, whatever its digest");
    let whole = [pattern(long), pattern(900)].concat();
    assert!(read(&service, "key", None).unwrap() == whole);
    let range = Bytes_::Between(long as u64 - 10, long as u64 + 10);
    assert!(read(&service, "key", Some(range)).unwrap() == whole[long - 10..=long + 10]);
    let shards = 3 * (whole.len().div_ceil(BLOCK_BYTES as usize));
    assert!(memory.shards() <= shards + 3, "parts that were not used, or put again, are gone");
    assert_eq!(run(Uploads::list(&service, "bucket", None)).unwrap(), []);
    let late = run(service.put_part("bucket", "key", &upload, 1, &unencrypted, &mut given(b"x")));
    assert_eq!(late, Err(Error::NoSuchUpload));
    delete_if(&service, "key", None, &Condition::default()).unwrap();
    assert_eq!(memory.shards(), 0);
}

#[test]
fn completions_of_one_upload_at_one_time_are_all_answered_as_the_first() {
    for delay in 0..15 {
        let (_, service) = Memory::with_drives(3);
        let upload = run(service.begin("bucket", "key", Attributes::default(), Lock::default(), None)).unwrap();
        let part = put_part(&service, &upload, 1, &pattern(900));
        let complete = |delay| -> BoxFuture<'_, Result<Object, Error>> {
            let (service, upload, completion) = (&service, &upload, completion(vec![part.clone()]));
            Box::pin(async move {
                for _ in 0..delay {
                    turn().await;
                }
                service.complete("bucket", "key", upload, completion).await
            })
        };
        let objects = run(crate::flight::all([complete(0), complete(delay), complete(delay / 2)]));
        assert!(objects.iter().all(|object| object.is_ok() && *object == objects[0]), "{delay}: {objects:?}");
    }
}

#[test]
fn an_upload_is_listed_with_all_its_parts_or_not_at_all() {
    for delay in 0..15 {
        let (_, service) = Memory::with_drives(3);
        let upload = run(service.begin("bucket", "key", Attributes::default(), Lock::default(), None)).unwrap();
        let part = put_part(&service, &upload, 1, &pattern(900));
        let completed = completion(vec![part]);
        let list = async {
            for _ in 0..delay {
                turn().await;
            }
            Uploads::list(&service, "bucket", Some(("key", &upload))).await.map(|found| found[0].1.len())
        };
        let complete = async { service.complete("bucket", "key", &upload, completed).await.map(|_| 0) };
        let both: [BoxFuture<'_, Result<usize, Error>>; 2] = [Box::pin(complete), Box::pin(list)];
        let listed = run(crate::flight::all(both)).pop().unwrap();
        assert!(listed == Ok(1) || listed == Err(Error::NoSuchUpload), "{delay}: {listed:?}");
    }
}

#[test]
fn uploads_are_known_by_key_and_id() {
    let (memory, service) = Memory::with_drives(3);
    let upload = run(service.begin("bucket", "key", Attributes::default(), Lock::default(), None)).unwrap();
    put_part(&service, &upload, 1, &pattern(500));
    assert_eq!(run(service.abort("bucket", "other", &upload)), Err(Error::NoSuchUpload));
    assert_eq!(run(service.abort("bucket", "key", &UploadId("x".into()))), Err(Error::NoSuchUpload));
    let zero = run(service.put_part("bucket", "key", &upload, 0, &unencrypted, &mut given(b"x")));
    assert!(matches!(zero, Err(Error::BadRequest(_))));
    run(service.abort("bucket", "key", &upload)).unwrap();
    assert_eq!(run(service.abort("bucket", "key", &upload)), Err(Error::NoSuchUpload));
    assert_eq!(memory.shards(), 0);
}

#[test]
fn a_deletion_of_what_was_put_at_another_time_leaves_the_object() {
    let (_, service) = Memory::with_drives(1);
    let old = put(&service, "key", b"same");
    let new = put(&service, "key", b"same");
    assert_eq!(old.etag, new.etag);
    let seen = |object: &Object| Condition { put_at_ms: Some(object.modified_ms), ..is(&object.etag) };
    assert_eq!(delete_if(&service, "key", None, &seen(&old)), Err(Error::ConditionFailed));
    assert_eq!(read(&service, "key", None).unwrap(), b"same");
    delete_if(&service, "key", None, &seen(&new)).unwrap();
    assert_eq!(read(&service, "key", None), Err(Error::NoSuchKey));
}
