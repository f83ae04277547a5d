use arbtest::arbtest;

use super::*;

fn entry(version: u64, value: &'static [u8]) -> Entry {
    Entry { version, value: Bytes::from_static(value) }
}

fn requests() -> Vec<Request> {
    vec![
        Request::Get(b"k".to_vec()),
        Request::Scan(Scan {
            from: b"a".to_vec(),
            to: b"b".to_vec(),
            fold: b"/".to_vec(),
            fold_after: 17,
            lines_max: 1_000,
        }),
        Request::Commit {
            checks: vec![
                Check::Absent(b"x".to_vec()),
                Check::Version(b"y".to_vec(), 7),
                Check::Empty(b"a".to_vec(), b"b".to_vec()),
            ],
            changes: vec![
                Change { key: b"x".to_vec(), value: Some(Bytes::from_static(b"value")) },
                Change { key: b"y".to_vec(), value: None },
            ],
        },
        Request::Usage(BucketId([5; 16])),
        Request::Commit { checks: vec![Check::Room(BucketId([6; 16]), 1 << 40)], changes: Vec::new() },
        Request::Spans(vec![(b"a".to_vec(), b"b".to_vec()), (b"c".to_vec(), b"d".to_vec())]),
    ]
}

fn replies() -> Vec<Reply> {
    vec![
        Reply::Value(None),
        Reply::Value(Some(entry(3, b"v"))),
        Reply::Page {
            lines: vec![Line::Entry(b"k".to_vec(), entry(1, b"")), Line::Folded(b"p/".to_vec())],
            next: Some(b"q".to_vec()),
        },
        Reply::Committed { version: 9, before: vec![None, Some(entry(8, b"old"))] },
        Reply::Refused(2),
        Reply::TooLarge,
        Reply::Unavailable,
        Reply::Usage(Usage { objects: 1, versions: 2, parts: 3, bytes: 1 << 33 }),
        Reply::Full,
    ]
}

#[test]
fn forms_are_read_back() {
    for request in requests() {
        assert_eq!(Request::decode(Bytes::from(request.encode())), Ok(request));
    }
    for reply in replies() {
        assert_eq!(Reply::decode(Bytes::from(reply.encode())), Ok(reply));
    }
}

#[test]
fn golden_bytes() {
    let commit = requests().remove(2).encode();
    let expected: &[u8] = &[
        1, 2, 0, 0, 0, 3, 0, 0, 1, b'x', 1, 0, 1, b'y', 0, 0, 0, 0, 0, 0, 0, 7, 2, 0, 1, b'a', 0, 1, b'b', 0, 0, 0, 2,
        0, 1, b'x', 1, 0, 0, 0, 5, b'v', b'a', b'l', b'u', b'e', 0, 1, b'y', 0,
    ];
    assert_eq!(commit, expected);
    let scan = requests().remove(1).encode();
    assert_eq!(scan, [1, 1, 0, 1, b'a', 0, 1, b'b', 0, 1, b'/', 0, 0, 0, 17, 0, 0, 3, 0xe8]);
    let committed = replies().remove(3).encode();
    let expected: &[u8] =
        &[1, 2, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 3, b'o', b'l', b'd'];
    assert_eq!(committed, expected);
    assert_eq!(requests().remove(3).encode(), [&[1, 3][..], &[5; 16]].concat());
    let room = [&[1, 2, 0, 0, 0, 1, 3][..], &[6; 16], &[0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]].concat();
    assert_eq!(requests().remove(4).encode(), room);
    let usage = [&[1, 6][..], &[0, 0, 0, 0, 0, 0, 0, 1], &[0, 0, 0, 0, 0, 0, 0, 2], &[0, 0, 0, 0, 0, 0, 0, 3]].concat();
    assert_eq!(replies().remove(7).encode(), [usage, vec![0, 0, 0, 2, 0, 0, 0, 0]].concat());
    assert_eq!(replies().remove(8).encode(), [1, 7]);
}

#[test]
fn any_bytes_are_refused_or_read() {
    arbtest(|u| {
        let bytes: Vec<u8> = u.arbitrary()?;
        if let Ok(request) = Request::decode(Bytes::from(bytes.clone())) {
            assert_eq!(request.encode(), bytes);
        }
        if let Ok(reply) = Reply::decode(Bytes::from(bytes.clone())) {
            assert_eq!(reply.encode(), bytes);
        }
        Ok(())
    });
    for form in requests().iter().map(Request::encode).chain(replies().iter().map(Reply::encode)) {
        for len in 0..form.len() {
            let cut = Bytes::copy_from_slice(&form[..len]);
            assert!(Request::decode(cut.clone()).is_err() || Reply::decode(cut).is_err());
        }
    }
}

#[test]
fn limits() {
    let long = Request::Get(vec![0; INDEX_KEY_BYTES_MAX + 1]);
    assert!(!long.is_within_limits());
    let value = |len| Request::Commit {
        checks: vec![],
        changes: vec![Change { key: vec![1], value: Some(Bytes::from(vec![0; len])) }],
    };
    assert!(value(VALUE_BYTES_MAX).is_within_limits() && !value(VALUE_BYTES_MAX + 1).is_within_limits());
    let part = |number: u32| Change { key: [&[0; 37][..], &number.to_be_bytes()].concat(), value: None };
    let upload = Request::Commit { checks: vec![], changes: (0..10_002).map(part).collect() };
    assert!(upload.is_within_limits(), "an upload of 10,000 parts is completed in one commit");
}

#[test]
fn each_limit_is_kept_by_itself() {
    let key = |more: usize| vec![0; INDEX_KEY_BYTES_MAX + more];
    let scan = |from, to, fold| Request::Scan(Scan { from, to, fold, fold_after: 0, lines_max: 1 });
    let spans = |count: usize, from: usize, to: usize| Request::Spans(vec![(key(from), key(to)); count]);
    let commit = |checks, changes| Request::Commit { checks, changes };
    let absent = |count: usize, more: usize| commit(vec![Check::Absent(key(more)); count], vec![]);
    let change = |key, value: Option<usize>| Change { key, value: value.map(|len| Bytes::from(vec![0; len])) };
    // Every change counts its key, its value and 32 bytes.
    let rest = COMMIT_BYTES_MAX - 2 * (VALUE_BYTES_MAX + 1 + 32) - (INDEX_KEY_BYTES_MAX + 32);
    let bytes = |more: usize| {
        let long = change(vec![0], Some(VALUE_BYTES_MAX));
        commit(vec![], vec![long.clone(), long, change(key(0), Some(rest + more))])
    };
    let allowed = [
        Request::Get(key(0)),
        Request::Usage(BucketId([0; 16])),
        scan(key(0), key(0), key(0)),
        spans(SPANS_MAX, 0, 0),
        absent(CHECKS_MAX, 0),
        commit(vec![Check::Empty(key(0), key(0)), Check::Version(key(0), 1)], vec![change(key(0), None)]),
        commit(vec![], vec![change(vec![], None); CHANGES_MAX]),
        bytes(0),
    ];
    let refused = [
        Request::Get(key(1)),
        scan(key(1), key(0), key(0)),
        scan(key(0), key(1), key(0)),
        scan(key(0), key(0), key(1)),
        spans(SPANS_MAX + 1, 0, 0),
        spans(1, 1, 0),
        spans(1, 0, 1),
        absent(CHECKS_MAX + 1, 0),
        absent(1, 1),
        commit(vec![Check::Version(key(1), 1)], vec![]),
        commit(vec![Check::Empty(key(1), key(0))], vec![]),
        commit(vec![Check::Empty(key(0), key(1))], vec![]),
        commit(vec![], vec![change(key(1), None)]),
        commit(vec![], vec![change(vec![], Some(VALUE_BYTES_MAX + 1))]),
        commit(vec![], vec![change(vec![], None); CHANGES_MAX + 1]),
        bytes(1),
    ];
    for (number, request) in allowed.iter().enumerate() {
        assert!(request.is_within_limits(), "allowed {number}");
    }
    for (number, request) in refused.iter().enumerate() {
        assert!(!request.is_within_limits(), "refused {number}");
    }
}
