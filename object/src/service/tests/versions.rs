//! Versions: the same requests to the service and to its twin in memory, and what only drives can show.

use arbtest::arbtest;

use super::*;
use crate::api::{ListedVersion, Permit, Service, Versioning, Versions, VersionsPage, VersionsRequest};

/// A line of a list of versions, without the names of versions: they differ between the two.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    key: String,
    is_null: bool,
    is_current: bool,
    /// The entity tag; nothing of a mark of a deletion or a prefix.
    etag: Option<String>,
}

fn told(entry: &ListedVersion) -> (Told, Option<VersionId>) {
    match entry {
        ListedVersion::Prefix(prefix) => {
            (Told { key: format!("({prefix})"), is_null: false, is_current: false, etag: None }, None)
        }
        ListedVersion::Object(object, is_current) => {
            let version = object.version.unwrap_or_default();
            let (key, etag) = (object.key.clone(), Some(object.etag.clone()));
            (Told { key, is_null: version == VersionId::Null, is_current: *is_current, etag }, Some(version))
        }
        ListedVersion::Marker(marker, is_current) => {
            let (key, is_null) = (marker.key.clone(), marker.version == VersionId::Null);
            (Told { key, is_null, is_current: *is_current, etag: None }, Some(marker.version))
        }
    }
}

fn all(service: &Service, request: &VersionsRequest) -> Vec<(Told, Option<VersionId>)> {
    let (mut request, mut lines) = (request.clone(), Vec::new());
    loop {
        let VersionsPage { entries, next } = run(service.versions.list("bucket", &request)).unwrap();
        assert!(entries.len() <= request.limit);
        lines.extend(entries.iter().map(told));
        match next {
            Some((after, version)) => (request.after, request.after_version) = (after, version),
            None => return lines,
        }
    }
}

/// Both services, and a request to both.
struct Both([Service; 2], Memory);

impl Both {
    fn new() -> Self {
        let (memory, service) = Memory::with_drives(1);
        let twin = crate::memory::Memory::new(|| 5).service();
        run(twin.buckets.create("bucket", Attributes::default(), Versioning::Never)).unwrap();
        Self([service.api(), twin], memory)
    }

    fn put(&self, key: &str, bytes: &[u8]) {
        let put = |service: &Service| {
            let request = PutRequest { bucket: "bucket".into(), key: key.into(), ..PutRequest::default() };
            let object = run(service.objects.put(request, &mut given(bytes))).unwrap();
            (object.etag, object.version.map(|version| version == VersionId::Null))
        };
        assert_eq!(put(&self.0[0]), put(&self.0[1]));
    }

    /// Deletes the current version, or the one on that line of the list of all versions.
    fn delete(&self, key: &str, line: Option<usize>) {
        let delete = |service: &Service| {
            let lines = all(service, &VersionsRequest { limit: 1_000, ..VersionsRequest::default() });
            let named = line.and_then(|line| lines.get(line)).map(|(told, version)| (told.key.as_str(), *version));
            let (key, version) = named.unwrap_or((key, None));
            let (target, attributes) = (Target { bucket: "bucket", key, version }, Attributes::default());
            let request = DeleteRequest {
                target,
                condition: &Condition::default(),
                attributes: &attributes,
                bypass: Bypass::Denied,
                permit: Permit::ALWAYS,
            };
            let Deletion { version, is_marker } = run(service.objects.delete(request)).unwrap();
            (version.map(|version| version == VersionId::Null), is_marker)
        };
        assert_eq!(delete(&self.0[0]), delete(&self.0[1]));
    }

    fn set(&self, state: Versioning) {
        for service in &self.0 {
            run(service.versions.set_state("bucket", state)).unwrap();
            assert_eq!(run(service.versions.state("bucket")), Ok(state));
        }
    }

    /// Both say the same of all keys and versions.
    fn compare(&self, request: &VersionsRequest) {
        let [one, other] = &self.0;
        let (lines, others) = (all(one, request), all(other, request));
        let of =
            |lines: &[(Told, Option<VersionId>)]| lines.iter().map(|(told, _)| format!("{told:?}")).collect::<Vec<_>>();
        assert_eq!(of(&lines), of(&others), "{request:?}");
        let head = |service: &Service, key: &str, version| {
            let found = run(service.objects.head(Target { bucket: "bucket", key, version }));
            found.map(|object| object.etag).map_err(|error| match error {
                Error::Deleted(marker) => format!("deleted {}", marker.version == VersionId::Null),
                Error::IsMarker(_) => "a mark".to_owned(),
                error => format!("{error:?}"),
            })
        };
        for ((told, version), (_, other_version)) in lines.iter().zip(&others) {
            let (found, twin) = (head(one, &told.key, *version), head(other, &told.key, *other_version));
            assert_eq!(found, twin, "{told:?}");
            if version.is_some() {
                assert_eq!(found.ok(), told.etag);
            }
        }
        for key in KEYS {
            assert_eq!(head(one, key, None), head(other, key, None), "{key:?}");
            assert_eq!(head(one, key, Some(VersionId::Null)), head(other, key, Some(VersionId::Null)), "{key:?}");
        }
        let current = |service: &Service| {
            let request = ListRequest { limit: 1_000, delimiter: request.delimiter.clone(), ..ListRequest::default() };
            let page = run(service.objects.list("bucket", &request)).unwrap();
            let name = |entry: Listed| match entry {
                Listed::Object(object) => object.key,
                Listed::Prefix(prefix) => prefix,
            };
            page.entries.into_iter().map(name).collect::<Vec<_>>()
        };
        assert_eq!(current(one), current(other));
    }
}

const KEYS: [&str; 6] = ["a", "a\0", "a/b", "a/c", "b", "b/\0c"];

#[test]
fn the_service_and_its_twin_keep_the_same_versions() {
    arbtest(|u| {
        let both = Both::new();
        let mut number = 0;
        while !u.is_empty() && number < 40 {
            number += 1;
            let key = *u.choose(&KEYS)?;
            match u.int_in_range(0..=9)? {
                0..=3 => both.put(key, &[number]),
                4 | 5 => both.delete(key, None),
                6 | 7 => both.delete(key, Some(u.int_in_range(0..=9)?)),
                8 => both.set(Versioning::Enabled),
                _ => both.set(Versioning::Suspended),
            }
        }
        for limit in [1, 2, 1_000] {
            for delimiter in ["", "/", "\0"] {
                for prefix in ["", "a", "a/", "b/"] {
                    let (prefix, delimiter) = (prefix.to_owned(), delimiter.to_owned());
                    both.compare(&VersionsRequest { prefix, delimiter, limit, ..VersionsRequest::default() });
                }
            }
        }
        // Nothing is left of what is deleted in all its versions.
        let lines = all(&both.0[0], &VersionsRequest { limit: 1_000, ..VersionsRequest::default() });
        lines.iter().for_each(|_| both.delete("", Some(0)));
        both.compare(&VersionsRequest { limit: 1, ..VersionsRequest::default() });
        assert_eq!(both.1.shards(), 0);
        assert_eq!(run(both.0[0].buckets.delete("bucket")), Ok(()));
        Ok(())
    })
    .budget_ms(4_000);
}

fn enabled() -> (Memory, ObjectService<Memory>) {
    let (memory, service) = Memory::with_drives(3);
    run(service.set_state("bucket", Versioning::Enabled)).unwrap();
    (memory, service)
}

#[test]
fn each_version_is_read_and_a_mark_is_told() {
    let (memory, service) = enabled();
    let (one, two) = (put(&service, "key", b"one"), put(&service, "key", b"two"));
    let mark = delete_if(&service, "key", None, &Condition::default()).unwrap();
    assert!(mark.is_marker);
    let get = |version| {
        run(Objects::get(&service, Target { version, ..Target::current("bucket", "key") }, None, &Condition::default()))
    };
    assert_eq!(get(one.version).unwrap().object.etag, one.etag);
    assert_eq!(get(two.version).unwrap().object.etag, two.etag);
    assert!(matches!(get(None), Err(Error::Deleted(marker)) if Some(marker.version) == mark.version));
    assert!(matches!(get(mark.version), Err(Error::IsMarker(_))));
    assert!(matches!(get(Some(VersionId::Null)), Err(Error::NoSuchVersion)));
    let other = VersionId::Named { sequence: 1, drawn: 1 };
    assert!(matches!(get(Some(other)), Err(Error::NoSuchVersion)));
    assert_eq!(run(Buckets::delete(&service, "bucket")), Err(Error::BucketNotEmpty));
    assert_eq!(memory.shards(), 6);
    // Without the mark the second version is the current one, and then the first.
    delete_if(&service, "key", mark.version, &Condition::default()).unwrap();
    assert_eq!(get(None).unwrap().object, two);
    delete_if(&service, "key", two.version, &Condition::default()).unwrap();
    assert_eq!((get(None).unwrap().object, memory.shards()), (one, 3));
}

#[test]
fn an_object_of_an_earlier_build_becomes_the_null_version() {
    let (memory, service) = Memory::with_drives(1);
    let old = put(&service, "key", b"old");
    let (bucket, _) = run(service.bucket("bucket")).unwrap();
    let form = run(service.get_entry(bucket, key::object(bucket, b"key"))).unwrap().unwrap().value;
    assert_eq!((form[0], old.version), (1, None), "without versions the form is the one of earlier builds");
    run(service.set_state("bucket", Versioning::Enabled)).unwrap();
    let new = put(&service, "key", b"new");
    let head = |version| run(service.head(Target { version, ..Target::current("bucket", "key") }));
    let null = head(Some(VersionId::Null)).unwrap();
    assert_eq!((null.etag, null.version), (old.etag, Some(VersionId::Null)));
    run(service.set_state("bucket", Versioning::Suspended)).unwrap();
    let third = put(&service, "key", b"third");
    assert_eq!(head(Some(VersionId::Null)).unwrap(), third);
    assert_eq!((head(new.version).unwrap(), memory.shards()), (new, 2), "the old null version is gone");
}

#[test]
fn a_server_that_has_not_heard_of_the_change_goes_by_it() {
    let (memory, service) = Memory::with_drives(1);
    let late = ObjectService::new(Arc::new(memory.clone()), Arc::new(memory.clone()));
    put(&late, "key", b"0");
    run(service.set_state("bucket", Versioning::Enabled)).unwrap();
    let one = put(&late, "key", b"1");
    assert!(matches!(one.version, Some(VersionId::Named { .. })));
    delete_if(&late, "key", None, &Condition::default()).unwrap();
    run(service.set_state("bucket", Versioning::Suspended)).unwrap();
    assert_eq!(put(&late, "key", b"2").version, Some(VersionId::Null));
    let page =
        run(Versions::list(&service, "bucket", &VersionsRequest { limit: 9, ..VersionsRequest::default() })).unwrap();
    assert_eq!(page.entries.len(), 3, "the new null version, the mark, the first version: {page:?}");
}

#[test]
fn of_writers_at_once_each_leaves_a_version_and_a_lost_reply_leaves_one() {
    let (memory, service) = enabled();
    let bodies: Vec<Vec<u8>> = (1..=6).map(|len| pattern(len * 1_000)).collect();
    let mut coming: Vec<Given> = bodies.iter().map(|bytes| given(bytes)).collect();
    let results = run(crate::flight::all(coming.iter_mut().map(|body| -> BoxFuture<'_, Result<Object, Error>> {
        let request = PutRequest { bucket: "bucket".into(), key: "key".into(), ..PutRequest::default() };
        service.put(request, body)
    })));
    let mut names: Vec<_> = results.into_iter().map(|result| result.unwrap().version).collect();
    names.sort();
    names.dedup();
    assert_eq!((names.len(), memory.shards()), (6, 18));
    let request = VersionsRequest { limit: 100, ..VersionsRequest::default() };
    let listed = run(Versions::list(&service, "bucket", &request)).unwrap();
    let newest: Vec<_> = listed.entries.iter().map(|entry| told(entry).1).collect();
    names.reverse();
    assert_eq!(newest, names);
    assert!(matches!(put_if(&service, "key", b"x", absent()), Err(Error::ConditionFailed)));
    memory.world().lost_replies = 1;
    assert_eq!(put_if(&service, "other", b"1", Condition::default()).unwrap().bytes, 1);
    assert_eq!(read(&service, "other", None).unwrap(), b"1");
}

#[test]
fn an_upload_becomes_a_version_and_older_versions_are_healed() {
    let (memory, service) = enabled();
    let drives: Vec<DriveId> = memory.world().drives.keys().copied().collect();
    memory.world().down.insert(drives[1]);
    let old = put(&service, "key", &pattern(5_000));
    memory.world().down.clear();
    let upload = run(service.begin("bucket", "key", Attributes::default(), Lock::default(), None)).unwrap();
    let one = put_part(&service, &upload, 1, b"part");
    let done = run(service.complete("bucket", "key", &upload, completion(vec![one]))).unwrap();
    assert!(done.version > old.version);
    assert_eq!(run(service.head(Target::current("bucket", "key"))).unwrap(), done);
    let (bucket, _) = run(service.bucket("bucket")).unwrap();
    let (mut from, mut healed, mut asked) = (None, 0, heal::HealPass::default());
    loop {
        let (step, next) = run(service.heal_bucket(bucket, from, heal::HealDepth::Noted, &mut asked)).unwrap();
        healed += step.healed;
        match next {
            Some(next) => from = Some(next),
            None => break,
        }
    }
    assert_eq!((healed, memory.shards()), (1, 6));
    memory.world().drives.get_mut(&drives[0]).unwrap().clear();
    let asked = &mut heal::HealPass::default();
    assert_eq!(run(service.heal_object(bucket, "key", heal::HealDepth::Every, asked)), Ok(true));
    assert_eq!(memory.shards(), 6);
}

#[test]
fn attributes_of_a_version_are_changed_alone() {
    let (_, service) = enabled();
    let (one, two) = (put(&service, "key", b"one"), put(&service, "key", b"two"));
    let add = |object: &Object| Ok(Attributes([object.attributes.0.clone(), vec![("t".into(), "1".into())]].concat()));
    let target = Target { version: one.version, ..Target::current("bucket", "key") };
    let changed = run(Versions::edit(&service, target, &add)).unwrap();
    assert_eq!((changed.attributes.get("t"), changed.modified_ms), (Some("1"), one.modified_ms));
    assert_eq!(run(service.head(target)).unwrap(), changed);
    assert_eq!(run(service.head(Target::current("bucket", "key"))).unwrap(), two);
    let long = |_: &Object| Ok(Attributes(vec![("t".into(), "x".repeat(api::ATTRIBUTES_BYTES_MAX))]));
    assert!(matches!(run(Versions::edit(&service, target, &long)), Err(Error::BadRequest(_))));
    let gone = Target { key: "none", ..target };
    assert_eq!(run(Versions::edit(&service, gone, &add)), Err(Error::NoSuchVersion));
}

/// Keys of a list of all versions, and which versions they are.
fn listed(service: &ObjectService<Memory>, limit: usize) -> Vec<Option<VersionId>> {
    all(&service.api(), &VersionsRequest { limit, ..VersionsRequest::default() })
        .into_iter()
        .map(|(_, version)| version)
        .collect()
}

#[test]
fn the_newest_version_is_the_last_that_was_put_whatever_the_clock_says() {
    let (memory, service) = enabled();
    let mark = || delete_if(&service, "key", None, &Condition::default()).unwrap().version;
    let put = || put(&service, "key", b"1").version;
    let mut made = Vec::new();
    // It goes on, stands, goes back while a mark is the newest, and while an object is.
    for (now_ms, step) in [
        (1_700_000_000_000, &put as &dyn Fn() -> Option<VersionId>),
        (1_700_000_000_005, &put),
        (1_700_000_000_005, &put),
        (1_700_000_000_006, &mark),
        (1_600_000_000_000, &mark),
        (1_600_000_000_000, &put),
        (1_500_000_000_000, &put),
        (1_500_000_000_000, &mark),
        (1_400_000_000_000, &put),
    ] {
        memory.world().clock_ms = Some(now_ms);
        made.push(step());
        let newest: Vec<_> = made.iter().rev().copied().collect();
        assert_eq!([1, 2, 100].map(|limit| listed(&service, limit)), [newest.clone(), newest.clone(), newest]);
    }
}

#[test]
fn a_version_is_named_by_the_moment_of_its_put() {
    let (_, service) = enabled();
    let one = put(&service, "key", b"1");
    // In this cluster what is drawn at a moment begins with its number.
    let moment = one.modified_ms;
    assert_eq!(one.version, Some(VersionId::Named { sequence: moment, drawn: moment }));
}

#[test]
fn a_version_that_is_not_there_is_deleted_without_an_error() {
    let (_, service) = enabled();
    let one = put(&service, "key", b"1");
    let other = VersionId::Named { sequence: 1, drawn: 1 };
    for version in [other, other, VersionId::Null] {
        let deletion = delete_if(&service, "key", Some(version), &Condition::default());
        assert_eq!(deletion, Ok(Deletion { version: Some(version), is_marker: false }));
    }
    assert_eq!(listed(&service, 9), [one.version]);
    assert!(delete_if(&service, "key", one.version, &Condition::default()).is_ok());
    assert!(delete_if(&service, "key", one.version, &Condition::default()).is_ok());
}

/// A put at one server has come so far when two others are done in the same millisecond, for every "so far".
#[test]
fn puts_of_the_same_millisecond_are_told_apart() {
    for polls in 0..40 {
        let (memory, service) = enabled();
        memory.world().clock_ms = Some(1_700_000_000_000);
        let request = PutRequest { bucket: "bucket".into(), key: "key".into(), ..PutRequest::default() };
        let (mut body, mut cx) = (given(b"slow"), Context::from_waker(Waker::noop()));
        let mut slow = pin!(service.put(request, &mut body));
        let early = (0..polls).find_map(|_| match slow.as_mut().poll(&mut cx) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        });
        let mut versions = [put(&service, "key", b"1").version, put(&service, "key", b"22").version].to_vec();
        let done = early.unwrap_or_else(|| run(slow)).unwrap();
        assert_eq!(done.bytes, 4, "{polls}");
        versions.push(done.version);
        versions.sort_by(|one, other| other.cmp(one));
        assert_eq!(listed(&service, 9), versions, "{polls}");
    }
}

/// The newest version is deleted while a list is read, at every moment of it.
#[test]
fn a_version_that_becomes_the_current_one_while_it_is_listed_is_told() {
    for polls in 0..16 {
        let (_, service) = enabled();
        let (one, two) = (put(&service, "key", b"1"), put(&service, "key", b"2"));
        let request = VersionsRequest { limit: 9, ..VersionsRequest::default() };
        let mut listing = pin!(service.versions_page("bucket", &request));
        let mut cx = Context::from_waker(Waker::noop());
        let early = (0..polls).find_map(|_| match listing.as_mut().poll(&mut cx) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        });
        delete_if(&service, "key", two.version, &Condition::default()).unwrap();
        let page = early.unwrap_or_else(|| run(listing)).unwrap();
        let versions: Vec<_> = page.entries.iter().map(|entry| told(entry).1).collect();
        assert!(versions.contains(&one.version), "{polls}: {versions:?}");
    }
}

#[test]
fn a_read_goes_by_what_was_seen_of_a_bucket_for_some_seconds() {
    let (memory, service) = Memory::with_drives(1);
    let late = ObjectService::new(Arc::new(memory.clone()), Arc::new(memory.clone()));
    memory.world().clock_ms = Some(10_000);
    put(&late, "key", b"1");
    run(service.set_state("bucket", Versioning::Enabled)).unwrap();
    let head = |now_ms| {
        memory.world().clock_ms = Some(now_ms);
        run(late.head(Target::current("bucket", "key"))).unwrap().version
    };
    assert_eq!([10_000, 15_000, 15_001, 20_001].map(head), [None, None, Some(VersionId::Null), Some(VersionId::Null)]);
}
