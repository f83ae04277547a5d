//! Clients of objects: those of one life of a server use what it offers, until it ends.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ashlar_grid::seam::Runtime as _;
use ashlar_node::object::ObjectNode;
use ashlar_node::together;
use ashlar_object::api::{
    Attributes, Body, BodyDigest, BoxFuture, Completion, Condition, DeleteRequest, Error, ListRequest, Listed, Opened,
    PAGE_MAX, Permit, PutRequest, Range, Service, Target, Versioning,
};
use ashlar_object::cluster::BucketList;
use ashlar_object::lock::{Bypass, Lock};
use ashlar_object::service::ObjectService;
use ashlar_object::service::heal::{HealDepth, HealPass, Healed};
use bytes::Bytes;

use super::oracle::{Begun, Key, Oracle, are_of, bytes_of, etag_of, len_of, object_of};
use crate::rng::Rng;
use crate::scenarios::lock;
use crate::world::{Control, SimRuntime};

/// The buckets: the first keeps no versions, the second does.
pub(super) const BUCKETS: [&str; 2] = ["plain", "kept"];
/// Requests of one server at a time.
const DEPTH: u64 = 3;
/// Requests of one turn, each of those at a time.
const TURN: u64 = 5;
/// Requests of a round after the healing.
const LAST: u64 = 3;
/// Pause of clients that have done what was asked for.
const IDLE: Duration = Duration::from_secs(5);
/// How long a request may take: longer than all that the service waits for.
const PATIENCE: Duration = Duration::from_secs(200);
/// A read that takes as long may find that what it reads was replaced and removed meanwhile.
const READ_MAX_NS: u64 = 50_000_000_000;
/// Pause before a request of a round that has failed is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// A server and its life.
type Place = (u32, u32);

/// What all lives know.
#[derive(Debug, Default)]
pub(super) struct Clients {
    pub(super) oracle: Oracle,
    /// Rounds after the healing that are asked for; 0 before it.
    round: u64,
    /// The latest of them in which every shard has to be there, and the latest in which every shard was.
    whole_asked: u64,
    whole_done: u64,
    /// Who looks whether all shards are there.
    healer: Option<Place>,
    looked: Healed,
    /// The rounds that lives have done.
    done: BTreeMap<Place, u64>,
    pub(super) wrong: Option<String>,
    puts: u64,
    gets: u64,
    lists: u64,
    uploads: u64,
    deletes: u64,
    /// Objects that were not whole when somebody looked, after the healing.
    found_broken: u64,
}

impl Clients {
    pub(super) const fn ask_for_a_round(&mut self, is_whole: bool) {
        self.round += 1;
        if is_whole {
            self.whole_asked = self.round;
        }
    }

    pub(super) fn left(&mut self, place: Place) {
        self.done.remove(&place);
        self.healer = self.healer.filter(|healer| *healer != place);
    }

    /// Whether these lives have done what was asked for.
    ///
    /// # Errors
    /// What is left.
    pub(super) fn check_round(&self, mut lives: impl Iterator<Item = Place>) -> Result<(), String> {
        let done = |place: &Place| self.done.get(place).copied().unwrap_or_default();
        if let Some(place) = lives.find(|place| done(place) < self.round) {
            let looks = self.looks();
            return Err(format!("clients at {place:?} have done {} rounds of {}; {looks}", done(&place), self.round));
        }
        if self.whole_done < self.whole_asked {
            return Err(format!("not all shards are there in round {}: {}", self.whole_asked, self.looks()));
        }
        Ok(())
    }

    /// Who looks for shards, and what was found last.
    fn looks(&self) -> String {
        format!("{:?} looks for shards, and has found {:?}", self.healer, self.looked)
    }

    pub(super) fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("told", self.oracle.told),
            ("untold", self.oracle.untold),
            ("refused", self.oracle.refused),
            ("puts", self.puts),
            ("gets", self.gets),
            ("lists", self.lists),
            ("uploads", self.uploads),
            ("deletes", self.deletes),
            ("found_broken", self.found_broken),
        ]
    }
}

/// A body in pieces.
struct Given {
    object: u64,
    left: Bytes,
}

impl Given {
    fn of(object: u64) -> Self {
        Self { object, left: bytes_of(object).into() }
    }
}

impl Body for Given {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, Error>> {
        Box::pin(async {
            let piece = self.left.split_to(self.left.len().min(100_000));
            Ok((!piece.is_empty()).then_some(piece))
        })
    }

    fn digest(&mut self) -> BodyDigest {
        BodyDigest { etag: etag_of(self.object), attributes: Attributes::default() }
    }
}

/// Clients of one life.
pub(super) struct Visit {
    control: Control,
    runtime: SimRuntime,
    objects: ObjectNode<SimRuntime>,
    api: Service,
    clients: Arc<Mutex<Clients>>,
    rng: Rng,
}

impl Visit {
    pub(super) fn new(
        control: Control,
        runtime: SimRuntime,
        objects: ObjectNode<SimRuntime>,
        clients: Arc<Mutex<Clients>>,
        rng: Rng,
    ) -> Self {
        Self { control, runtime, api: objects.api(), objects, clients, rng }
    }

    fn place(&self) -> Place {
        (self.runtime.server().0, self.runtime.life())
    }

    fn now(&self) -> u64 {
        self.control.now_ns()
    }

    fn fail(&self, what: impl Into<String>) {
        let what = format!("at {:?}: {}", self.place(), what.into());
        lock(&self.clients).wrong.get_or_insert(what);
        self.control.finish();
    }

    async fn pause(&self, span: Duration) {
        self.runtime.sleep_until(self.runtime.now() + span).await;
    }

    /// Uses objects until the life ends.
    pub(super) async fn run(mut self) {
        // As fronts do: until then the catalog of this server may be that of an earlier time.
        while !self.objects.is_caught_up() {
            self.pause(RETRY).await;
        }
        self.create().await;
        loop {
            let span = self.rng.magnitude(30_000_000..=2_000_000_000);
            self.pause(Duration::from_nanos(span)).await;
            let (round, is_due) = {
                let clients = lock(&self.clients);
                let done = clients.done.get(&self.place()).copied().unwrap_or_default();
                (clients.round, done < clients.round)
            };
            match (round, is_due) {
                (0, _) => {
                    let count = self.rng.within(1..=TURN);
                    self.turn(count).await;
                }
                (_, true) => self.turn(LAST).await,
                (_, false) => {
                    self.pause(IDLE).await;
                    self.list().await;
                }
            }
            if is_due {
                self.read_all().await;
                self.look_for_shards(round).await;
                lock(&self.clients).done.insert(self.place(), round);
            }
        }
    }

    /// Makes the buckets, if nobody has.
    async fn create(&self) {
        for (name, versioning) in BUCKETS.into_iter().zip([Versioning::Never, Versioning::Enabled]) {
            loop {
                match self.api.buckets.create(name, Attributes::default(), versioning).await {
                    Ok(()) | Err(Error::BucketExists) => break,
                    Err(Error::Unavailable) => self.pause(RETRY).await,
                    Err(error) => return self.fail(format!("the bucket {name} cannot be made: {error}")),
                }
            }
        }
    }

    /// Some requests at a time.
    async fn turn(&mut self, count: u64) {
        let lanes = (0..self.rng.within(1..=DEPTH)).map(|lane| {
            let rng = self.rng.fork("lane", lane ^ self.now());
            Box::pin(self.lane(count, rng)) as together::Pending<'_, ()>
        });
        drop(together::all(lanes.collect()).await);
    }

    async fn lane(&self, count: u64, mut rng: Rng) {
        let mut seen: BTreeMap<Key, u64> = BTreeMap::new();
        for _ in 0..count {
            let key = lock(&self.clients).oracle.choose(rng.next_u64());
            match rng.below(100) {
                0..35 => self.put(&key, &seen, &mut rng).await,
                35..42 => self.upload(&key).await,
                42..52 => self.delete(&key, &seen, &mut rng).await,
                52..57 => {
                    self.list().await;
                }
                57..67 => self.get_range(&key, &mut rng).await,
                _ => {
                    if let Some(object) = self.get(&key).await {
                        seen.insert(key, object);
                    }
                }
            }
            if rng.chance(300_000) {
                self.pause(Duration::from_nanos(rng.magnitude(10_000..=30_000_000))).await;
            }
        }
    }

    /// The answer of a request; nothing if it takes too long, which is wrong.
    async fn within<T>(&self, what: &str, request: impl Future<Output = T>) -> Option<T> {
        let late = self.runtime.sleep_until(self.runtime.now() + PATIENCE);
        let answer = together::first(request, late).await;
        if answer.is_none() {
            self.fail(format!("{what} was not answered"));
        }
        answer
    }

    async fn put(&self, key: &Key, seen: &BTreeMap<Key, u64>, rng: &mut Rng) {
        let before = match rng.below(10) {
            0..2 => Some(0),
            2..6 => seen.get(key).copied(),
            _ => None,
        };
        let (object, begun) = self.begin_object(key, before);
        lock(&self.clients).puts += 1;
        let mut body = Given::of(object);
        let request = PutRequest {
            bucket: key.0.into(),
            key: key.1.clone(),
            condition: condition(before),
            bytes: rng.chance(500_000).then(|| len_of(object) as u64),
            ..PutRequest::default()
        };
        let put = self.within("a put", self.api.objects.put(request, &mut body)).await;
        self.changed("a put", &begun, put.map(|put| put.map(drop)));
    }

    fn begin_object(&self, key: &Key, before: Option<u64>) -> (u64, Begun) {
        let mut clients = lock(&self.clients);
        let object = clients.oracle.next_object();
        (object, clients.oracle.begin_write(key, object, before, self.control.now_ns()))
    }

    /// Puts an object as an upload of one part, whose completion is repeated until somebody answers.
    async fn upload(&self, key: &Key) {
        let (api, (bucket, name)) = (&self.api.uploads, (key.0, key.1.as_str()));
        let begin = api.begin(bucket, name, Attributes::default(), Lock::default(), None);
        let Some(Ok(upload)) = self.within("an upload", begin).await else { return };
        let object = lock(&self.clients).oracle.next_object();
        let mut body = Given::of(object);
        let part = api.put_part(bucket, name, &upload, 1, &|_| Ok(None), &mut body);
        let Some(Ok(part)) = self.within("a part", part).await else { return };
        let begun = {
            let mut clients = lock(&self.clients);
            clients.uploads += 1;
            clients.oracle.begin_write(key, object, None, self.control.now_ns())
        };
        let completion = Completion {
            parts: vec![(1, part.etag)],
            digest: BodyDigest { etag: etag_of(object), attributes: Attributes::default() },
            condition: Condition::default(),
        };
        for _ in 0..3 {
            let complete = api.complete(bucket, name, &upload, completion.clone());
            match self.within("a completion", complete).await {
                Some(Err(Error::Unavailable)) => self.pause(RETRY).await,
                // Completed the first time, and replaced or deleted since: whoever repeats it is not told.
                Some(Err(Error::NoSuchUpload)) => {
                    return self.changed("a completion", &begun, Some(Err(Error::Unavailable)));
                }
                answer => return self.changed("a completion", &begun, answer.map(|answer| answer.map(drop))),
            }
        }
    }

    async fn delete(&self, key: &Key, seen: &BTreeMap<Key, u64>, rng: &mut Rng) {
        let before = if rng.chance(300_000) { seen.get(key).copied().filter(|seen| *seen > 0) } else { None };
        let begun = {
            let mut clients = lock(&self.clients);
            clients.deletes += 1;
            clients.oracle.begin_write(key, 0, before, self.control.now_ns())
        };
        let (condition, attributes) = (condition(before), Attributes::default());
        let request = DeleteRequest {
            target: Target::current(key.0, &key.1),
            condition: &condition,
            attributes: &attributes,
            bypass: Bypass::default(),
            permit: Permit::ALWAYS,
        };
        let deleted = self.within("a deletion", self.api.objects.delete(request)).await;
        self.changed("a deletion", &begun, deleted.map(|deleted| deleted.map(drop)));
    }

    /// Notes how a change ended.
    fn changed(&self, what: &str, begun: &Begun, answer: Option<Result<(), Error>>) {
        let now = self.control.now_ns();
        let mut clients = lock(&self.clients);
        let oracle = &mut clients.oracle;
        match answer {
            Some(Ok(())) => oracle.tell(begun, now),
            // That the object is not there is another way to say that the condition does not hold.
            Some(Err(Error::ConditionFailed | Error::NoSuchKey | Error::Deleted(_))) => oracle.refuse(begun),
            Some(Err(Error::Unavailable | Error::Full)) | None => oracle.untold += 1,
            Some(Err(error)) => {
                drop(clients);
                self.fail(format!("{what} failed: {error}"));
            }
        }
    }

    /// Reads a whole object and says which one it is, if somebody has told.
    async fn get(&self, key: &Key) -> Option<u64> {
        self.read(key, None).await
    }

    async fn get_range(&self, key: &Key, rng: &mut Rng) {
        let range = match rng.below(3) {
            0 => Range::From(rng.below(3_000)),
            1 => Range::Last(rng.within(1..=5_000)),
            _ => {
                let first = rng.magnitude(0..=1_500_000);
                Range::Between(first, first + rng.magnitude(0..=100_000))
            }
        };
        self.read(key, Some(range)).await;
    }

    async fn read(&self, key: &Key, range: Option<Range>) -> Option<u64> {
        lock(&self.clients).gets += 1;
        let begin = self.now();
        let read = self.within("a get", self.read_bytes(key, range)).await?;
        let (now, took) = (self.now(), self.now() - begin);
        match read {
            Ok(Ok(object)) => {
                lock(&self.clients).oracle.tell_read(key, object, begin, now);
                Some(object)
            }
            Ok(Err(wrong)) => {
                self.fail(format!("{key:?}: {wrong}"));
                None
            }
            Err(Error::Unavailable | Error::BadRange(_)) => None,
            Err(Error::Damaged) if took > READ_MAX_NS => None,
            Err(error) => {
                self.fail(format!("{key:?} cannot be read: {error}"));
                None
            }
        }
    }

    /// Which object was read, or what is wrong with it.
    async fn read_bytes(&self, key: &Key, range: Option<Range>) -> Result<Result<u64, String>, Error> {
        let condition = Condition::default();
        let opened = match self.api.objects.get(Target::current(key.0, &key.1), range, &condition).await {
            Ok(opened) => opened,
            Err(Error::NoSuchKey | Error::Deleted(_)) => return Ok(Ok(0)),
            Err(error) => return Err(error),
        };
        let Opened { object, range: (offset, count), mut content } = opened;
        let mut pieces = Vec::new();
        while let Some(piece) = content.next().await? {
            pieces.push(piece);
        }
        let number = match object_of(&object.etag) {
            Ok(number) => number,
            Err(wrong) => return Ok(Err(wrong)),
        };
        let came: usize = pieces.iter().map(Bytes::len).sum();
        if object.bytes != len_of(number) as u64 || came as u64 != count || !are_of(number, offset as usize, &pieces) {
            let (bytes, expected) = (object.bytes, len_of(number));
            return Ok(Err(format!("object {number} of {expected} bytes has {bytes}: {came} came from {offset} on")));
        }
        Ok(Ok(number))
    }

    /// Lists both buckets. Whether that was answered.
    async fn list(&self) -> bool {
        for bucket in BUCKETS {
            if self.list_bucket(bucket).await.is_none() {
                return false;
            }
        }
        true
    }

    async fn list_bucket(&self, bucket: &'static str) -> Option<()> {
        let keys: Vec<Key> = {
            let mut clients = lock(&self.clients);
            clients.lists += 1;
            clients.oracle.keys().into_iter().filter(|key| key.0 == bucket).collect()
        };
        let begin = self.now();
        let request = ListRequest { limit: PAGE_MAX, ..ListRequest::default() };
        let page = match self.within("a list", self.api.objects.list(bucket, &request)).await? {
            Ok(page) => page,
            Err(Error::Unavailable) => return None,
            Err(error) => {
                self.fail(format!("a list failed: {error}"));
                return None;
            }
        };
        let now = self.now();
        let listed = page.entries.iter().map(|entry| match entry {
            Listed::Object(object) => Ok((object.key.as_str(), object_of(&object.etag)?)),
            Listed::Prefix(prefix) => Err(format!("a list without a delimiter has the prefix {prefix:?}")),
        });
        let listed: BTreeMap<&str, u64> = match listed.collect::<Result<_, String>>() {
            Ok(listed) => listed,
            Err(wrong) => {
                self.fail(wrong);
                return None;
            }
        };
        let oracle = &mut lock(&self.clients).oracle;
        for key in keys {
            let object = listed.get(key.1.as_str()).copied().unwrap_or_default();
            oracle.tell_listed(&key, object, begin, now);
        }
        Some(())
    }

    /// Reads everything that was ever put, and lists it.
    async fn read_all(&self) {
        let keys = lock(&self.clients).oracle.keys();
        for key in keys {
            while self.get(&key).await.is_none() {
                self.pause(RETRY).await;
            }
        }
        while !self.list().await {
            self.pause(RETRY).await;
        }
    }

    /// Looks whether every shard of every object is there, if somebody has to and nobody else does.
    async fn look_for_shards(&self, round: u64) {
        {
            let mut clients = lock(&self.clients);
            if clients.whole_asked != round || clients.whole_done >= round || clients.healer.is_some() {
                return;
            }
            clients.healer = Some(self.place());
        }
        loop {
            if self.heal_all().await.is_some_and(|looked| self.note_shards(looked, round)) {
                return;
            }
            self.pause(RETRY).await;
        }
    }

    /// Notes what was found. Whether all shards were there.
    fn note_shards(&self, looked: Healed, round: u64) -> bool {
        let Healed { healed, waiting, failed, .. } = looked;
        // One that lacks a drive is of more drives than there are now: it was put while an empty drive was there beside the lost one.
        let is_whole = healed + waiting + failed == 0;
        let mut clients = lock(&self.clients);
        clients.found_broken += healed;
        clients.looked = looked;
        if is_whole {
            clients.whole_done = clients.whole_done.max(round);
            clients.healer = None;
        }
        is_whole
    }

    async fn heal_all(&self) -> Option<Healed> {
        let service = ObjectService::new(Arc::new(self.objects.clone()), Arc::new(self.objects.clone()));
        let mut sum = Healed::default();
        for (_, bucket) in BucketList::all(&self.objects).await.ok()? {
            let (mut from, mut pass) = (None, HealPass::default());
            loop {
                let step = service.heal_bucket(bucket.id, from, HealDepth::Every, &mut pass).await;
                let (healed, next) = step.ok()?;
                sum = sum.and(healed);
                from = next;
                if from.is_none() {
                    break;
                }
            }
        }
        Some(sum)
    }
}

/// The condition that what was seen is there.
fn condition(seen: Option<u64>) -> Condition {
    match seen {
        None => Condition::default(),
        Some(0) => Condition { etag_is_not: Some(vec!["*".into()]), ..Condition::default() },
        Some(object) => Condition { etag_is: Some(vec![etag_of(object)]), ..Condition::default() },
    }
}
