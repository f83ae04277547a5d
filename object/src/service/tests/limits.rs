//! What lies at a limit and behind it, what is refused before it costs anything, and what requests cost.

use super::*;
use crate::api::{
    ATTRIBUTES_BYTES_MAX, BUCKET_ATTRIBUTES_BYTES_MAX, KEY_BYTES_MAX, ListedVersion, PART_BYTES_MAX, Versions,
    VersionsRequest,
};
use crate::index::request::VALUE_BYTES_MAX;

#[test]
fn a_body_that_will_be_refused_is_not_read() {
    let (at_most, any) = (|bytes: u64| Some(bytes), Condition::default);
    let cases = [
        ("new", at_most(8_000), Some(3_000), any(), None),
        ("new", at_most(8_000), Some(3_001), any(), Some(Error::OverQuota)),
        ("key", at_most(8_000), Some(8_000), any(), None),
        ("key", at_most(8_000), Some(8_001), any(), Some(Error::OverQuota)),
        ("key", at_most(1), Some(5_000), any(), None),
        ("key", at_most(1), Some(5_001), any(), Some(Error::OverQuota)),
        ("new", None, Some(PART_BYTES_MAX), any(), None),
        ("new", None, Some(PART_BYTES_MAX + 1), any(), Some(Error::TooLarge)),
        ("key", None, None, absent(), Some(Error::ConditionFailed)),
        ("key", None, None, is("other"), Some(Error::ConditionFailed)),
        ("new", None, None, is("other"), Some(Error::NoSuchKey)),
        ("new", None, None, absent(), None),
    ];
    for (number, (key, quota, bytes, condition, refused)) in cases.into_iter().enumerate() {
        let (_, service) = Memory::with_drives(1);
        put(&service, "key", &pattern(5_000));
        run(service.set_quota("bucket", quota)).unwrap();
        let mut body = given(b"");
        body.bytes = Bytes::from_static(b"x");
        if quota == Some(1) && refused.is_none() {
            // The commit counts what has come: less than before.
            body.bytes = Bytes::from(pattern(4_000));
        }
        let len = body.bytes.len();
        let request =
            PutRequest { bucket: "bucket".into(), key: key.into(), bytes, condition, ..PutRequest::default() };
        let result = run(service.put(request, &mut body)).err();
        assert_eq!((&result, body.bytes.len()), (&refused, if refused.is_some() { len } else { 0 }), "{number}");
    }
}

#[test]
fn keys_and_attributes_have_limits() {
    let (memory, service) = Memory::with_drives(1);
    let long = |len: usize| Attributes(vec![("name".into(), "v".repeat(len - 4))]);
    let cases = [
        (0, 4, false),
        (1, 4, true),
        (KEY_BYTES_MAX, ATTRIBUTES_BYTES_MAX, true),
        (KEY_BYTES_MAX + 1, 4, false),
        (1, ATTRIBUTES_BYTES_MAX + 1, false),
    ];
    for (key, attributes, is_allowed) in cases {
        let (key, attributes) = ("k".repeat(key), long(attributes));
        let request = PutRequest {
            bucket: "bucket".into(),
            key: key.clone(),
            attributes: attributes.clone(),
            ..PutRequest::default()
        };
        let put = run(service.put(request, &mut given(b"x"))).map(drop);
        let begun = run(service.begin("bucket", &key, attributes, Lock::default(), None)).map(drop);
        for result in [put, begun] {
            match result {
                Ok(()) => assert!(is_allowed, "{}", key.len()),
                Err(error) => assert!(!is_allowed && matches!(error, Error::BadRequest(_)), "{error:?}"),
            }
        }
    }
    for (len, name, is_allowed) in [(0, "fits", true), (1, "long", false)] {
        let attributes = long(BUCKET_ATTRIBUTES_BYTES_MAX + len);
        let edited = run(Buckets::edit(&service, "bucket", &|_| Ok(attributes.clone())));
        assert_eq!((edited.is_ok(), matches!(edited, Err(Error::BadRequest(_)))), (is_allowed, !is_allowed));
        let created = run(service.create(name, attributes.clone(), Versioning::Never));
        assert_eq!((created.is_ok(), memory.world().buckets.contains_key(name)), (is_allowed, is_allowed));
    }
}

#[test]
fn a_record_that_is_too_long_for_the_index_is_a_bad_request() {
    let (_, service) = Memory::with_drives(1);
    let (bucket, _) = run(service.bucket("bucket")).unwrap();
    let commit = |len| {
        let change = Change { key: key::object(bucket, b"key"), value: Some(Bytes::from(vec![0; len])) };
        run(service.commit(bucket, Vec::new(), vec![change]))
    };
    assert!(matches!(commit(VALUE_BYTES_MAX), Ok(Committed::Done(None))));
    assert!(matches!(commit(VALUE_BYTES_MAX + 1), Err(Error::BadRequest(_))));
}

#[test]
fn a_body_without_a_byte_that_fails_leaves_nothing_to_discard() {
    let (memory, service) = Memory::with_drives(1);
    for bytes in [0, 9] {
        let mut body = Given { is_cut: true, ..given(&pattern(bytes)) };
        let request = PutRequest { bucket: "bucket".into(), key: "key".into(), ..PutRequest::default() };
        let discarded = memory.world().discarded.len();
        assert_eq!(run(service.put(request, &mut body)), Err(Error::BodyLost));
        assert_eq!(memory.world().discarded.len() - discarded, 0, "{bytes}: no block was put");
    }
    let mut body = Given { is_cut: true, ..given(&pattern(2_000_000)) };
    let request = PutRequest { bucket: "bucket".into(), key: "key".into(), ..PutRequest::default() };
    assert_eq!(run(service.put(request, &mut body)), Err(Error::BodyLost));
    assert_eq!(memory.shards(), 0);
    assert_eq!(memory.world().discarded.len(), 1);
}

#[test]
fn three_blocks_are_put_and_two_are_read_at_a_time() {
    let (memory, service) = Memory::with_drives(1);
    let bytes = pattern(6 * BLOCK_BYTES as usize);
    let request = PutRequest { bucket: "bucket".into(), key: "key".into(), ..PutRequest::default() };
    memory.world().under_way = (0, 0);
    run(service.put(request, &mut Given { piece: bytes.len(), ..given(&bytes) })).unwrap();
    assert_eq!(core::mem::take(&mut memory.world().under_way), (0, 3));
    assert!(read(&service, "key", None).unwrap() == bytes);
    assert_eq!(memory.world().under_way, (0, 2));
    assert!(memory.world().to_heal.is_empty(), "nothing was missing");
}

#[test]
fn what_a_read_finds_missing_is_told_once() {
    let (memory, service) = Memory::with_drives(3);
    let bytes = pattern(5 * BLOCK_BYTES as usize);
    put(&service, "key", &bytes);
    memory.world().drives.values_mut().next().unwrap().clear();
    assert!(read(&service, "key", None).unwrap() == bytes);
    assert_eq!(memory.world().to_heal, ["key"]);
}

#[test]
fn a_put_that_drives_have_no_room_for() {
    let (memory, service) = Memory::with_drives(3);
    let drives: Vec<DriveId> = memory.world().drives.keys().copied().collect();
    memory.world().full = BTreeSet::from([drives[1]]);
    put(&service, "key", b"1");
    let (bucket, _) = run(service.bucket("bucket")).unwrap();
    assert_eq!(run(service.record(bucket, "key")).unwrap().unwrap().0.parts[0].missing, [1]);
    memory.world().down.insert(drives[2]);
    assert_eq!(
        put_if(&service, "key", b"2", Condition::default()),
        Err(Error::Unavailable),
        "until that drive answers"
    );
    memory.world().down.clear();
    memory.world().full.insert(drives[2]);
    assert_eq!(put_if(&service, "key", b"2", Condition::default()), Err(Error::Full));
    assert_eq!(read(&service, "key", None).unwrap(), b"1");
}

fn list(service: &ObjectService<Memory>, request: &ListRequest) -> (Vec<String>, Option<String>) {
    let page = run(Objects::list(service, "bucket", request)).unwrap();
    let name = |entry| match entry {
        Listed::Object(object) => object.key,
        Listed::Prefix(prefix) => prefix,
    };
    (page.entries.into_iter().map(name).collect(), page.next)
}

fn list_versions(service: &ObjectService<Memory>, request: &VersionsRequest) -> (Vec<String>, Option<String>) {
    let page = run(Versions::list(service, "bucket", request)).unwrap();
    let name = |entry| match entry {
        ListedVersion::Object(object, _) => object.key,
        ListedVersion::Marker(marker, _) => marker.key,
        ListedVersion::Prefix(prefix) => prefix,
    };
    (page.entries.into_iter().map(name).collect(), page.next.map(|(key, _)| key))
}

#[test]
fn a_page_costs_its_lines_and_not_the_bucket() {
    let (memory, service) = Memory::with_drives(1);
    for number in 0..50 {
        put(&service, &format!("key-{number:02}"), b"");
    }
    let cost = |limit| {
        run(service.versioning_now("bucket")).unwrap();
        memory.world().asked = 0;
        let objects = list(&service, &ListRequest { limit, ..ListRequest::default() }).0.len();
        let of_objects = core::mem::take(&mut memory.world().asked);
        let versions = list_versions(&service, &VersionsRequest { limit, ..VersionsRequest::default() }).0.len();
        (objects, of_objects, versions, memory.world().asked)
    };
    assert_eq!([0, 10, 49].map(cost), [(0, 0, 0, 0), (10, 1, 10, 2), (49, 1, 49, 2)]);
    // Where versions are kept, current objects are read once more.
    run(service.set_state("bucket", Versioning::Enabled)).unwrap();
    assert_eq!([0, 10, 49].map(cost), [(0, 0, 0, 0), (10, 1, 10, 3), (49, 1, 49, 3)]);
    for _ in 0..50 {
        put(&service, "a", b"");
    }
    assert_eq!([0, 10, 49].map(cost), [(0, 0, 0, 0), (10, 1, 10, 3), (49, 1, 49, 3)]);
}

#[test]
fn lists_are_whole_where_pages_of_the_index_are_shorter_than_theirs() {
    let (memory, service) = Memory::with_drives(1);
    run(service.set_state("bucket", Versioning::Enabled)).unwrap();
    let keys: Vec<String> = (0..140).map(|number| format!("key-{number:03}")).collect();
    for key in &keys {
        let attributes = Attributes(vec![("n".into(), "v".repeat(8_000))]);
        let request = PutRequest { bucket: "bucket".into(), key: key.clone(), attributes, ..PutRequest::default() };
        run(service.put(request, &mut given(b""))).unwrap();
    }
    for limit in 115..=140 {
        let (mut told, mut after) = (Vec::new(), String::new());
        loop {
            let (page, next) = list(&service, &ListRequest { limit, after, ..ListRequest::default() });
            assert!(page.len() == limit || next.is_none(), "{limit}: {}", page.len());
            told.extend(page);
            after = match next {
                Some(next) => next,
                None => break,
            };
        }
        assert_eq!(told, keys, "{limit}");
        let (page, next) = list_versions(&service, &VersionsRequest { limit, ..VersionsRequest::default() });
        assert_eq!((&page[..], next.as_ref()), (&keys[..limit], (limit < 140).then(|| &keys[limit - 1])));
    }
    memory.world().asked = 0;
    list(&service, &ListRequest { limit: 140, ..ListRequest::default() });
    assert_eq!(memory.world().asked, 2, "two pages of the index");
}

#[test]
fn a_list_begins_with_its_prefix_where_its_place_is_before_that() {
    let (_, service) = Memory::with_drives(1);
    run(service.set_state("bucket", Versioning::Enabled)).unwrap();
    for key in ["a", "ab", "b", "b/1", "c"] {
        put(&service, key, b"1");
        put(&service, key, b"2");
    }
    let cases: [(&str, &[&str]); 5] =
        [("", &["b", "b/1"]), ("a", &["b", "b/1"]), ("aa", &["b", "b/1"]), ("b", &["b/1"]), ("c", &[])];
    for (after, expected) in cases {
        let (prefix, after) = ("b".to_owned(), after.to_owned());
        let request =
            ListRequest { prefix: prefix.clone(), after: after.clone(), limit: 100, ..ListRequest::default() };
        assert_eq!(list(&service, &request).0, expected, "{after}");
        let request = VersionsRequest { prefix, after, limit: 100, ..VersionsRequest::default() };
        let twice: Vec<&str> = expected.iter().flat_map(|key| [*key, *key]).collect();
        assert_eq!(list_versions(&service, &request).0, twice);
    }
}

#[test]
fn the_first_key_behind_a_beginning() {
    for (beginning, behind) in
        [(&b"a"[..], Some(&b"b"[..])), (b"a\xff", Some(b"b")), (b"\x01\xff\xff", Some(b"\x02")), (b"\xff", None)]
    {
        assert_eq!(object::key_behind(beginning).as_deref(), behind);
    }
}

/// The index does not answer for a moment, at every moment of a put: it is told as done if it is, and never as another one.
#[test]
fn a_put_whose_commit_is_lost_is_not_taken_for_what_was_there() {
    let mut outcomes = [0, 0];
    for polls in 0..40 {
        let (memory, service) = Memory::with_drives(1);
        put(&service, "key", b"old");
        let request = PutRequest { bucket: "bucket".into(), key: "key".into(), ..PutRequest::default() };
        let (mut body, mut cx) = (given(b"a new one"), Context::from_waker(Waker::noop()));
        let mut putting = pin!(service.put(request, &mut body));
        let mut early = None;
        for poll in 0..=polls {
            memory.world().is_index_away = poll == polls;
            if early.is_none()
                && let Poll::Ready(done) = putting.as_mut().poll(&mut cx)
            {
                early = Some(done);
            }
        }
        memory.world().is_index_away = false;
        let done = early.unwrap_or_else(|| run(putting));
        let now = read(&service, "key", None).unwrap();
        match &done {
            Ok(object) => assert_eq!((object.bytes, &now[..]), (9, &b"a new one"[..]), "{polls}"),
            Err(error) => assert_eq!((error, &now[..]), (&Error::Unavailable, &b"old"[..]), "{polls}"),
        }
        outcomes[usize::from(done.is_ok())] += 1;
    }
    assert!(outcomes.iter().all(|outcome| *outcome > 0), "{outcomes:?}");
}
