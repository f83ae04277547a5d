//! Ranges over extents in memory: IOs end in any order, owners die at any moment, and the next one must find a state that
//! has every answered commit, in order.

use std::collections::BTreeMap;

use arbtest::arbitrary::{Result as Drawn, Unstructured};
use arbtest::arbtest;

use ashlar_wire::id::DriveId;

use super::*;
use crate::api::{Attributes, VersionId};
use crate::cluster::Spread;
use crate::index::request::{Line, Scan};
use crate::index::usage::Usage;
use crate::lock::Lock;
use crate::record::{ObjectRecord, PartContent, PartId, ShardNames};

/// The extents of the placement group.
#[derive(Default)]
struct Extents(BTreeMap<u64, Vec<u8>>);

impl Extents {
    fn execute(&mut self, io: &Io) -> Bytes {
        match io {
            Io::Read { place, len } => match self.0.get(&place.extent()) {
                Some(extent) => Bytes::copy_from_slice(&extent[..*len]),
                None => Bytes::from(vec![0; *len]),
            },
            Io::Write { place, offset, data } => {
                assert!(offset.is_multiple_of(BLOCK) && data.len().is_multiple_of(BLOCK));
                let extent = self.0.entry(place.extent()).or_insert_with(|| vec![0; EXTENT_BYTES]);
                extent[*offset..offset + data.len()].copy_from_slice(data);
                Bytes::new()
            }
            Io::Clear(place) => {
                self.0.remove(&place.extent());
                Bytes::new()
            }
            Io::Confirm => Bytes::new(),
        }
    }
}

fn small() -> RangeConfig {
    RangeConfig { requests_max: 64, rewrite_bytes_min: 64 << 10, rewrite_step_bytes: 1_024 }
}

/// Executes everything until nothing is to be done; gives the replies.
fn settle(range: &mut Range, extents: &mut Extents) -> Vec<(Token, Reply)> {
    while let Some((id, io)) = range.poll_io() {
        let bytes = extents.execute(&io);
        range.handle_io(id, Ok(bytes));
    }
    core::iter::from_fn(|| range.poll_reply()).collect()
}

fn put(key: &[u8], value: &[u8]) -> Change {
    Change { key: key.to_vec(), value: Some(Bytes::copy_from_slice(value)) }
}

fn remove(key: &[u8]) -> Change {
    Change { key: key.to_vec(), value: None }
}

fn commit(checks: Vec<Check>, changes: Vec<Change>) -> Request {
    Request::Commit { checks, changes }
}

fn ask(range: &mut Range, extents: &mut Extents, request: Request) -> Reply {
    range.handle_request(Token(1), request);
    let mut replies = settle(range, extents);
    assert_eq!(replies.len(), 1, "one request, one reply");
    replies.remove(0).1
}

/// The next owner finds the same.
fn assert_found_by_the_next(range: &Range, extents: &mut Extents) {
    let mut next = Range::open(small(), 2);
    settle(&mut next, extents);
    assert_eq!(next.map, range.map);
}

/// The same where no extent gets space that has none yet; the last writes come first.
fn ask_without_room(range: &mut Range, extents: &mut Extents, requests: Vec<Request>) -> Vec<(Token, Reply)> {
    (1..).zip(requests).for_each(|(token, request)| range.handle_request(Token(token), request));
    while !range.io.is_empty() {
        let mut ios: Vec<_> = core::iter::from_fn(|| range.poll_io()).collect();
        ios.reverse();
        for (id, io) in ios {
            let lacks_room = matches!(&io, Io::Write { place, .. } if !extents.0.contains_key(&place.extent()));
            let result = if lacks_room { Err(IoFailed::Full) } else { Ok(extents.execute(&io)) };
            range.handle_io(id, result);
        }
    }
    let mut replies: Vec<_> = core::iter::from_fn(|| range.poll_reply()).collect();
    replies.sort_by_key(|(token, _)| *token);
    replies
}

#[test]
fn a_commit_is_found_again_by_the_next_owner() {
    let mut extents = Extents::default();
    let mut range = Range::open(small(), 1);
    assert_eq!(ask(&mut range, &mut extents, Request::Get(b"a".to_vec())), Reply::Value(None));
    let reply = ask(&mut range, &mut extents, commit(vec![], vec![put(b"a", b"1"), put(b"b", b"2")]));
    assert_eq!(reply, Reply::Committed { version: 1, before: vec![None, None] });
    let mut next = Range::open(small(), 2);
    let entry = Entry { version: 1, value: Bytes::from_static(b"1") };
    assert_eq!(ask(&mut next, &mut extents, Request::Get(b"a".to_vec())), Reply::Value(Some(entry.clone())));
    let reply = ask(&mut next, &mut extents, commit(vec![Check::Version(b"a".to_vec(), 1)], vec![remove(b"a")]));
    assert_eq!(reply, Reply::Committed { version: 2, before: vec![Some(entry)] });
    let reply = ask(&mut next, &mut extents, commit(vec![Check::Version(b"a".to_vec(), 1)], vec![put(b"a", b"3")]));
    assert_eq!(reply, Reply::Refused(0));
    assert_eq!((next.len(), next.is_empty()), (1, false));
    let reply = ask(&mut next, &mut extents, commit(vec![], vec![put(b"a", b"4")]));
    assert!(matches!(reply, Reply::Committed { version: 3, .. }));
    assert_eq!((next.len(), next.stream_bytes()), (2, 3 * BLOCK as u64));
}

#[test]
fn checks_see_earlier_commits_of_the_same_batch() {
    let mut extents = Extents::default();
    let mut range = Range::open(small(), 1);
    settle(&mut range, &mut extents);
    let absent = || vec![Check::Absent(b"a".to_vec())];
    let empty = || vec![Check::Empty(b"a".to_vec(), b"b".to_vec())];
    range.handle_request(Token(0), commit(vec![], vec![put(b"z", b"0")]));
    range.handle_request(Token(1), commit(absent(), vec![put(b"a", b"1")]));
    range.handle_request(Token(2), commit(absent(), vec![put(b"a", b"2")]));
    range.handle_request(Token(3), commit(empty(), vec![put(b"q", b"1")]));
    range.handle_request(Token(4), commit(vec![], vec![remove(b"a")]));
    range.handle_request(Token(5), commit(empty(), vec![put(b"q", b"2")]));
    let replies: BTreeMap<Token, Reply> = settle(&mut range, &mut extents).into_iter().collect();
    assert!(matches!(replies[&Token(1)], Reply::Committed { .. }));
    assert_eq!(replies[&Token(2)], Reply::Refused(0));
    assert_eq!(replies[&Token(3)], Reply::Refused(0));
    assert!(matches!(replies[&Token(5)], Reply::Committed { .. }));
    assert!(extents.0[&Place::Extent(Area::First, 0).extent()][2 * BLOCK..].iter().all(|byte| *byte == 0), "one batch");
}

#[test]
fn a_span_that_ends_before_it_begins_is_empty() {
    let mut extents = Extents::default();
    let mut range = Range::open(small(), 1);
    ask(&mut range, &mut extents, commit(vec![], vec![put(b"b", b"1")]));
    for (from, to, is_empty) in [(b"c", b"a", true), (b"b", b"b", true), (b"a", b"c", false), (b"b", b"c", false)] {
        let reply =
            ask(&mut range, &mut extents, commit(vec![Check::Empty(from.to_vec(), to.to_vec())], vec![put(b"z", b"")]));
        assert_eq!(matches!(reply, Reply::Committed { .. }), is_empty, "{reply:?}");
    }
}

const BUCKET: BucketId = BucketId([7; 16]);

/// An object of so many bytes, as a record has it.
fn object(name: &str, bytes: u64) -> Change {
    let content = PartContent {
        id: PartId([1; 12]),
        bytes,
        is_encrypted: false,
        spread: Spread { parity: 0, drives: vec![DriveId::from_bytes([1; 16])] },
        number: 0,
        names: ShardNames::OfShard,
        missing: Vec::new(),
    };
    let record = ObjectRecord {
        version: VersionId::Null,
        sequence: 1,
        put_id: [0; 16],
        etag: String::new(),
        modified_ms: 1,
        attributes: Attributes::default(),
        lock: Lock::default(),
        is_multipart: false,
        envelope: None,
        parts: vec![content],
    };
    put(&key::object(BUCKET, name.as_bytes()), &record.encode())
}

fn usage(range: &mut Range, extents: &mut Extents) -> (u64, u64) {
    let reply = ask(range, extents, Request::Usage(BUCKET));
    let Reply::Usage(Usage { objects, versions: 0, parts: 0, bytes }) = reply else { panic!("{reply:?}") };
    (objects, bytes)
}

#[test]
fn a_bucket_has_room_for_what_is_below_its_limit_with_all_commits_of_the_batch() {
    let mut extents = Extents::default();
    let mut range = Range::open(small(), 1);
    settle(&mut range, &mut extents);
    let room = |bytes_max| vec![Check::Room(BUCKET, bytes_max)];
    // The first is written alone; the others come meanwhile and share a batch.
    range.handle_request(Token(0), commit(room(100), vec![object("a", 60)]));
    range.handle_request(Token(1), commit(room(100), vec![object("b", 30)]));
    range.handle_request(Token(2), commit(room(100), vec![object("c", 11)]));
    range.handle_request(Token(3), commit(room(100), vec![object("c", 10)]));
    range.handle_request(Token(4), commit(room(100), vec![object("d", 1)]));
    range.handle_request(Token(5), commit(vec![], vec![remove(&key::object(BUCKET, b"b"))]));
    range.handle_request(Token(6), commit(room(100), vec![object("d", 30)]));
    range.handle_request(Token(7), commit(room(100), vec![object("d", 31)]));
    // As much as is there already, or less, takes no room: also with a limit that is below what is there.
    range.handle_request(Token(8), commit(room(50), vec![object("a", 60)]));
    range.handle_request(Token(9), commit(room(50), vec![object("a", 59)]));
    range.handle_request(Token(10), commit(room(50), vec![object("a", 60)]));
    let replies: BTreeMap<Token, Reply> = settle(&mut range, &mut extents).into_iter().collect();
    let refused: Vec<u64> =
        replies.iter().filter(|(_, reply)| **reply == Reply::Refused(0)).map(|(token, _)| token.0).collect();
    assert_eq!(refused, [2, 4, 7, 10]);
    assert_eq!(usage(&mut range, &mut extents), (3, 59 + 10 + 30));
    let mut next = Range::open(small(), 2);
    assert_eq!(usage(&mut next, &mut extents), (3, 99), "the next owner counts the same");
    let moved = vec![remove(&key::object(BUCKET, b"a")), object("e", 59)];
    assert!(matches!(ask(&mut next, &mut extents, commit(room(10), moved)), Reply::Committed { .. }));
    let all = [b"c", b"d", b"e"].map(|name| remove(&key::object(BUCKET, name))).to_vec();
    assert!(matches!(ask(&mut next, &mut extents, commit(vec![], all)), Reply::Committed { .. }));
    assert_eq!(usage(&mut next, &mut extents), (0, 0));
}

#[test]
fn what_a_commit_of_the_same_batch_frees_is_room() {
    let mut extents = Extents::default();
    let mut range = Range::open(small(), 1);
    ask(&mut range, &mut extents, commit(vec![], vec![object("a", 60)]));
    let room = || vec![Check::Room(BUCKET, 100)];
    range.handle_request(Token(0), commit(vec![], vec![put(b"z", b"0")]));
    range.handle_request(Token(1), commit(vec![], vec![object("a", 10)]));
    range.handle_request(Token(2), commit(room(), vec![object("b", 91)]));
    range.handle_request(Token(3), commit(room(), vec![object("b", 90)]));
    let replies: BTreeMap<Token, Reply> = settle(&mut range, &mut extents).into_iter().collect();
    assert_eq!(replies[&Token(2)], Reply::Refused(0));
    assert!(matches!(replies[&Token(3)], Reply::Committed { .. }));
    assert_eq!(usage(&mut range, &mut extents), (2, 100));
}

#[test]
fn no_reply_leaves_before_its_batch_is_durable_and_no_read_before_a_later_confirmation() {
    let mut extents = Extents::default();
    let mut range = Range::open(small(), 1);
    settle(&mut range, &mut extents);
    range.handle_request(Token(1), commit(vec![], vec![put(b"a", b"1")]));
    let (write, io) = range.poll_io().expect("the batch");
    assert!(matches!(io, Io::Write { .. }) && range.poll_reply().is_none());
    range.handle_request(Token(2), Request::Get(b"a".to_vec()));
    let (confirm, io) = range.poll_io().expect("the confirmation");
    assert_eq!(io, Io::Confirm);
    range.handle_io(write, Ok(Bytes::new()));
    assert!(matches!(range.poll_reply(), Some((Token(1), Reply::Committed { .. }))));
    // It came while the first confirmation was under way, which may be from before it.
    range.handle_request(Token(3), Request::Get(b"a".to_vec()));
    assert!(range.poll_io().is_none());
    range.handle_io(confirm, Ok(Bytes::new()));
    assert_eq!(range.poll_reply(), Some((Token(2), Reply::Value(None))), "what was not durable is not read");
    assert!(range.poll_reply().is_none());
    let (confirm, io) = range.poll_io().expect("the next confirmation");
    assert_eq!(io, Io::Confirm);
    range.handle_io(confirm, Err(IoFailed::Lost));
    assert_eq!(range.poll_reply(), Some((Token(3), Reply::Unavailable)));
    assert!(range.is_closed());
    range.handle_request(Token(4), Request::Get(b"a".to_vec()));
    assert_eq!(range.poll_reply(), Some((Token(4), Reply::Unavailable)));
}

/// What all entries of a range take in a log.
fn logged(range: &Range) -> u64 {
    range.map.iter().map(|(key, entry)| logged_bytes(key, Some(&entry.value)) as u64).sum()
}

#[test]
fn a_long_stream_is_written_anew_and_its_extents_go() {
    let mut extents = Extents::default();
    let mut range = Range::open(small(), 1);
    settle(&mut range, &mut extents);
    for round in 0..2_000_u32 {
        let key = [b'k', u8::try_from(round % 50).unwrap()];
        let reply = ask(&mut range, &mut extents, commit(vec![], vec![put(&key, &round.to_be_bytes())]));
        assert!(matches!(reply, Reply::Committed { .. }));
    }
    assert!(range.stream_bytes() < 200 << 10, "{}", range.stream_bytes());
    assert!(extents.0.len() <= 3, "the head, and an extent of each area at most");
    assert_eq!(range.live_bytes, logged(&range));
    let mut next = Range::open(small(), 2);
    settle(&mut next, &mut extents);
    assert_eq!((next.stream_bytes(), next.live_bytes), (range.stream_bytes(), range.live_bytes));
    assert_eq!(next.map, range.map);
    assert_eq!(next.version, range.version);
}

#[test]
fn a_stream_is_written_anew_when_it_is_four_times_what_it_holds() {
    let mut extents = Extents::default();
    let mut range = Range::open(small(), 1);
    settle(&mut range, &mut extents);
    // Ten keys of two blocks each: the stream is long enough from the eighth commit on, and holds all that it has until the tenth.
    for commits in 1_u8..=21 {
        ask(&mut range, &mut extents, commit(vec![], vec![put(&[commits % 10], &[7; BLOCK])]));
        if commits <= 20 {
            assert_eq!(range.stream_bytes(), u64::from(commits) * 2 * BLOCK as u64);
        }
        assert_eq!(range.stream.area, if commits <= 20 { Area::First } else { Area::Second }, "{commits}");
    }
    assert!(range.stream_bytes() < 4 * range.live_bytes, "it is short again");
    assert_found_by_the_next(&range, &mut extents);
}

#[test]
fn a_step_of_a_rewrite_has_as_many_keys_as_fit() {
    let mut extents = Extents::default();
    let mut range = Range::open(small(), 1);
    // Two of these entries take as much as a step; one is longer than a step by itself.
    let lens = [495, 495, 495, 495, 5_000, 495, 494, 495];
    let changes = (0..).zip(lens).map(|(number, len)| put(&[b'k', number], &vec![7; len])).collect();
    ask(&mut range, &mut extents, commit(vec![], changes));
    range.stream.bytes = u64::MAX;
    range.begin_rewrite();
    let (stream, mut steps) = (range.rewrite.as_ref().expect("it has begun").stream.id, Vec::new());
    assert!(stream != range.stream.id);
    while let Some(step) = range.step_rewrite() {
        let Some(Io::Write { place: Place::Extent(Area::Second, 0), data, .. }) = step else { panic!("{step:?}") };
        let (changes, _) = decode_batch(&data, stream, steps.len() as u64).unwrap().expect("the next batch");
        steps.push(changes.len());
    }
    assert_eq!(steps, [2, 2, 1, 2, 1]);
    assert!(range.rewrite.is_some_and(|rewrite| rewrite.is_whole));
}

#[test]
fn streams_never_have_the_same_name() {
    let mut ranges = [1, 2].map(|seed| Range::open(small(), seed));
    let names: Vec<StreamId> = ranges.iter_mut().flat_map(|range| [range.draw(), range.draw(), range.draw()]).collect();
    for (number, name) in names.iter().enumerate() {
        assert!(!names[..number].contains(name), "{number}");
    }
}

#[test]
fn what_a_dead_owner_has_left_in_the_other_area_is_cleared_from_its_end() {
    let mut extents = Extents::default();
    let mut range = Range::open(small(), 1);
    ask(&mut range, &mut extents, commit(vec![], vec![put(b"a", b"1")]));
    for extent in 0..3 {
        extents.0.insert(Place::Extent(Area::Second, extent).extent(), vec![9; EXTENT_BYTES]);
    }
    let mut next = Range::open(small(), 2);
    let mut told = Vec::new();
    while let Some((id, io)) = next.poll_io() {
        assert!(told.len() < 20, "{told:?}");
        match &io {
            Io::Read { place: Place::Extent(Area::Second, extent), len: BLOCK } => told.push(('r', *extent)),
            Io::Clear(Place::Extent(Area::Second, extent)) => told.push(('c', *extent)),
            _ => assert!(matches!(io, Io::Read { place: Place::Head | Place::Extent(Area::First, _), .. }), "{io:?}"),
        }
        let bytes = extents.execute(&io);
        next.handle_io(id, Ok(bytes));
    }
    assert_eq!(told, [('r', 0), ('r', 1), ('r', 2), ('r', 3), ('c', 2), ('c', 1), ('c', 0)]);
    assert_eq!((extents.0.len(), next.len()), (2, 1), "the head and the stream");
}

#[test]
fn batches_fill_extents_to_their_end() {
    let mut extents = Extents::default();
    let mut range = Range::open(small(), 1);
    ask(&mut range, &mut extents, commit(vec![], vec![put(b"a", b"1")]));
    // Two values whose batch has exactly the bytes that are left of the extent, and further ones that share batches.
    let half = crate::index::request::VALUE_BYTES_MAX;
    let full = |bytes: usize| {
        let rest = bytes - 2 * logged_bytes(b"x", Some(&Bytes::new())) - half;
        commit(vec![], vec![put(b"b", &vec![1; half]), put(b"c", &vec![2; rest])])
    };
    ask(&mut range, &mut extents, full(half + (half >> 1)));
    let left = EXTENT_BYTES - range.stream.offset;
    ask(&mut range, &mut extents, commit(vec![], vec![put(b"d", &vec![3; left - BATCH_HEAD - 16])]));
    assert_eq!((range.stream.extent, range.stream.offset, extents.0.len()), (0, EXTENT_BYTES, 2));
    let few = BATCH_BYTES_MAX - 2 * half;
    for (more, batches) in [(0, 1), (1, 2)] {
        let before = range.stream.sequence;
        range.handle_request(Token(0), commit(vec![], vec![put(b"a", b"2")]));
        range.handle_request(Token(1), full(2 * half));
        range.handle_request(Token(2), commit(vec![], vec![put(b"e", &vec![4; few + more - 16])]));
        let replies = settle(&mut range, &mut extents);
        assert!(replies.iter().all(|(_, reply)| matches!(reply, Reply::Committed { .. })) && replies.len() == 3);
        assert_eq!(range.stream.sequence - before, 1 + batches, "{more}");
    }
    let mut next = Range::open(small(), 2);
    settle(&mut next, &mut extents);
    assert_eq!((next.map, next.stream.sequence), (range.map.clone(), range.stream.sequence));
    assert_eq!((next.stream.extent, next.stream.offset), (range.stream.extent, range.stream.offset));
    assert_eq!((next.stream.bytes, next.version), (range.stream.bytes, range.version));
}

#[test]
fn a_stream_ends_with_its_area() {
    let mut extents = Extents::default();
    let mut range = Range::open(small(), 1);
    ask(&mut range, &mut extents, commit(vec![], vec![put(b"a", b"1")]));
    (range.stream.extent, range.stream.offset) = (AREA_EXTENTS_MAX - 1, EXTENT_BYTES - BLOCK);
    let sequence = range.stream.sequence;
    let reply = ask(&mut range, &mut extents, commit(vec![], vec![put(b"b", b"2")]));
    assert!(matches!(reply, Reply::Committed { .. }), "the last block of the last extent");
    let mut extent = extents.0[&Place::Extent(Area::First, AREA_EXTENTS_MAX - 1).extent()].clone();
    extent.rotate_left(EXTENT_BYTES - BLOCK);
    // Nothing is looked for behind the last extent.
    range.stream.sequence = sequence;
    assert_eq!(range.replay(&Bytes::from(extent)), Ok(false));
    range.stream.offset = EXTENT_BYTES;
    let reply = ask(&mut range, &mut extents, commit(vec![], vec![put(b"c", b"3")]));
    assert_eq!(reply, Reply::Unavailable);
    assert!(range.is_closed());
}

#[test]
fn versions_do_not_repeat_when_what_had_them_is_gone() {
    let mut extents = Extents::default();
    let mut range = Range::open(small(), 1);
    for round in 0..40_u64 {
        let reply = ask(&mut range, &mut extents, commit(vec![], vec![put(b"a", &[0; 60]), put(b"b", &[1; 60])]));
        assert!(matches!(reply, Reply::Committed { version, .. } if version == round + 1));
    }
    ask(&mut range, &mut extents, commit(vec![], vec![remove(b"a"), remove(b"b")]));
    while range.stream.bytes > 0 {
        // Nothing lives any more: the stream gets empty when it is written anew.
        range.config.rewrite_bytes_min = 1;
        settle(&mut range, &mut extents);
        range.go_on();
    }
    let before = range.version;
    let mut next = Range::open(small(), 2);
    settle(&mut next, &mut extents);
    assert!(next.is_empty() && next.version >= before);
}

#[test]
fn pages_fold_common_beginnings_and_go_on_where_they_ended() {
    let mut extents = Extents::default();
    let mut range = Range::open(small(), 1);
    let keys: [&[u8]; 7] = [b"pa", b"pb/1", b"pb/2", b"pb/3", b"pc/", b"pd", b"q"];
    ask(&mut range, &mut extents, commit(vec![], keys.iter().map(|key| put(key, b"v")).collect()));
    let mut from = b"p".to_vec();
    let mut told = Vec::new();
    loop {
        let scan = Scan { from, to: b"q".to_vec(), fold: b"/".to_vec(), fold_after: 1, lines_max: 2 };
        let Reply::Page { lines, next } = ask(&mut range, &mut extents, Request::Scan(scan)) else { panic!() };
        assert!(lines.len() <= 2);
        told.extend(lines.into_iter().map(|line| match line {
            Line::Entry(key, _) => (key, false),
            Line::Folded(key) => (key, true),
        }));
        match next {
            Some(next) => from = next,
            None => break,
        }
    }
    let expected: Vec<(Vec<u8>, bool)> =
        [("pa", false), ("pb/", true), ("pc/", true), ("pd", false)].map(|(key, is)| (key.into(), is)).to_vec();
    assert_eq!(told, expected);
    let scan = Scan { from: b"z".to_vec(), to: b"a".to_vec(), fold: vec![], fold_after: 0, lines_max: 9 };
    assert_eq!(ask(&mut range, &mut extents, Request::Scan(scan)), Reply::Page { lines: vec![], next: None });
}

#[test]
fn a_beginning_may_end_with_the_greatest_byte() {
    let mut extents = Extents::default();
    let mut range = Range::open(small(), 1);
    let keys: [&[u8]; 4] = [b"a", b"a\xff1", b"a\xff2", b"b"];
    ask(&mut range, &mut extents, commit(vec![], keys.iter().map(|key| put(key, b"v")).collect()));
    let scan = Scan { from: vec![], to: vec![0xff], fold: vec![0xff], fold_after: 0, lines_max: 9 };
    let Reply::Page { lines, next } = ask(&mut range, &mut extents, Request::Scan(scan)) else { panic!() };
    let told: Vec<(&[u8], bool)> = lines
        .iter()
        .map(|line| match line {
            Line::Entry(key, _) => (&key[..], false),
            Line::Folded(key) => (&key[..], true),
        })
        .collect();
    assert_eq!((told, next), (vec![(&b"a"[..], false), (b"a\xff", true), (b"b", false)], None));
}

#[test]
fn a_page_is_full_at_its_last_byte() {
    let mut extents = Extents::default();
    let mut range = Range::open(small(), 1);
    let half = crate::index::request::VALUE_BYTES_MAX;
    for (key, value) in [(b"aa", half), (b"bb", half)] {
        ask(&mut range, &mut extents, commit(vec![], vec![put(key, &vec![7; value])]));
    }
    // Every line counts its key, its value and 64 bytes.
    let left = crate::index::request::PAGE_BYTES_MAX - 2 * (half + 2 + 64);
    for (more, lines) in [(0, 3), (1, 2)] {
        ask(&mut range, &mut extents, commit(vec![], vec![put(b"cc", &vec![7; left - 2 - 64 + more])]));
        let told = match ask(&mut range, &mut extents, Request::Spans(vec![(b"a".to_vec(), b"d".to_vec())])) {
            Reply::Page { lines, next } => (lines.len(), next.is_some()),
            reply => panic!("{reply:?}"),
        };
        assert_eq!(told, (lines, lines == 2));
    }
}

#[test]
fn spans_share_a_page_in_their_order() {
    let mut extents = Extents::default();
    let mut range = Range::open(small(), 1);
    let half = vec![7; crate::index::request::VALUE_BYTES_MAX];
    for key in [b"a", b"b", b"c", b"d"] {
        ask(&mut range, &mut extents, commit(vec![], vec![put(key, &half)]));
    }
    let mut told = |spans: &[(&[u8], &[u8])]| {
        let spans = spans.iter().map(|(from, to)| (from.to_vec(), to.to_vec())).collect();
        let Reply::Page { lines, next } = ask(&mut range, &mut extents, Request::Spans(spans)) else { panic!() };
        let keys = lines.into_iter().map(|line| match line {
            Line::Entry(key, _) => key,
            Line::Folded(_) => panic!("nothing is folded"),
        });
        (keys.collect::<Vec<_>>().concat(), next)
    };
    assert_eq!(told(&[(b"c", b"d"), (b"a", b"b"), (b"x", b"z")]), (b"ca".to_vec(), None));
    // Two of these values fill a page.
    assert_eq!(told(&[(b"b", b"c"), (b"c", b"e"), (b"a", b"b")]), (b"bc".to_vec(), Some(b"d".to_vec())));
    assert_eq!(told(&[(b"d", b"e"), (b"a", b"b")]), (b"da".to_vec(), None));
    assert_eq!(told(&[]), (Vec::new(), None));
}

#[test]
fn a_commit_without_room_changes_nothing_and_ends_nothing() {
    let mut extents = Extents::default();
    let mut range = Range::open(small(), 1);
    settle(&mut range, &mut extents);
    let put_a = || commit(vec![Check::Absent(b"a".to_vec())], vec![put(b"a", b"1")]);
    let get = || Request::Get(b"a".to_vec());
    // The second one is refused because of the first, which is not done: it is no answer that the key is there.
    let replies = ask_without_room(&mut range, &mut extents, vec![put_a(), put_a(), get()]);
    assert_eq!(
        replies.into_iter().map(|(_, reply)| reply).collect::<Vec<_>>(),
        [Reply::Full, Reply::Full, Reply::Value(None)]
    );
    assert!(range.is_serving() && !range.is_closed());
    assert!(matches!(ask(&mut range, &mut extents, put_a()), Reply::Committed { .. }), "there is room again");
    // What has space goes on.
    let replies = ask_without_room(&mut range, &mut extents, vec![commit(vec![], vec![put(b"b", b"2")])]);
    assert!(matches!(replies[0].1, Reply::Committed { .. }));
    assert_found_by_the_next(&range, &mut extents);
}

#[test]
fn a_stream_without_room_goes_on_where_it_was() {
    let mut extents = Extents::default();
    let mut range = Range::open(RangeConfig { rewrite_bytes_min: u64::MAX, ..small() }, 1);
    let large = |number: u8| commit(vec![], vec![put(&[number], &vec![number; 400 << 10])]);
    for number in [1, 2] {
        assert!(matches!(ask(&mut range, &mut extents, large(number)), Reply::Committed { .. }));
    }
    // The third would be in an extent of its own; a small one finds room behind the second.
    assert_eq!(ask_without_room(&mut range, &mut extents, vec![large(3)])[0].1, Reply::Full);
    let small_one = commit(vec![], vec![remove(&[1])]);
    assert!(matches!(ask_without_room(&mut range, &mut extents, vec![small_one])[0].1, Reply::Committed { .. }));
    assert!(matches!(ask(&mut range, &mut extents, large(4)), Reply::Committed { .. }));
    let mut next = Range::open(small(), 2);
    settle(&mut next, &mut extents);
    assert_eq!(
        (next.map.keys().collect::<Vec<_>>(), next.stream_bytes()),
        (vec![&vec![2], &vec![4]], range.stream_bytes())
    );
}

#[test]
fn a_stream_that_cannot_be_written_anew_for_want_of_room_is_tried_again_later() {
    let mut extents = Extents::default();
    let mut range = Range::open(small(), 1);
    settle(&mut range, &mut extents);
    let change = || commit(vec![], vec![put(b"a", b"1")]);
    ask(&mut range, &mut extents, change());
    let mut refused = 0;
    for _ in 0..40 {
        let replies = ask_without_room(&mut range, &mut extents, vec![change()]);
        assert!(matches!(replies[..], [(_, Reply::Committed { .. })]), "{replies:?}");
        refused += u32::from(range.rewrite_after > 0);
    }
    assert!(refused > 0 && range.rewrite.is_none() && range.cleaning.is_none());
    assert_eq!(range.stream.area, Area::First, "it was not written anew");
    assert_eq!(range.rewrite_after, range.config.rewrite_bytes_min * 3, "it was begun twice, not with each commit");
    for _ in 0..20 {
        ask(&mut range, &mut extents, change());
    }
    assert_eq!((range.stream.area, range.rewrite_after), (Area::Second, 0));
    assert_found_by_the_next(&range, &mut extents);
}

#[test]
fn a_range_that_has_no_room_for_its_head_may_be_opened_again() {
    let mut extents = Extents::default();
    let mut range = Range::open(small(), 1);
    let replies = ask_without_room(&mut range, &mut extents, vec![Request::Get(b"a".to_vec())]);
    assert_eq!(replies, [(Token(1), Reply::Unavailable)]);
    assert!(range.is_closed() && range.may_reopen());
    let mut other = Range::open(small(), 2);
    let (id, _) = other.poll_io().unwrap();
    other.handle_io(id, Err(IoFailed::Lost));
    assert!(other.is_closed() && !other.may_reopen());
}

#[test]
fn when_an_io_has_failed_everybody_who_waits_is_told_once() {
    let mut extents = Extents::default();
    let mut range = Range::open(small(), 1);
    ask(&mut range, &mut extents, commit(vec![], vec![object("a", 60)]));
    range.handle_request(Token(1), commit(vec![], vec![put(b"a", b"1")]));
    let (write, _) = range.poll_io().expect("the batch");
    range.handle_request(Token(2), Request::Get(b"a".to_vec()));
    let (confirm, io) = range.poll_io().expect("the confirmation");
    assert_eq!(io, Io::Confirm);
    range.handle_request(Token(3), commit(vec![], vec![put(b"a", b"2")]));
    range.handle_request(Token(4), Request::Get(b"a".to_vec()));
    range.handle_io(write, Err(IoFailed::Lost));
    range.handle_io(confirm, Ok(Bytes::new()));
    range.handle_request(Token(5), Request::Usage(BUCKET));
    let mut replies: Vec<(Token, Reply)> = core::iter::from_fn(|| range.poll_reply()).collect();
    replies.sort_by_key(|(token, _)| *token);
    assert_eq!(replies, [1, 2, 3, 4, 5].map(|token| (Token(token), Reply::Unavailable)));
    assert!(range.poll_io().is_none() && range.is_closed());
    // It holds nothing any more.
    assert_eq!((range.len(), range.usage.of(BUCKET)), (0, Usage::default()));
}

#[test]
fn a_head_of_something_else_is_no_range() {
    let mut extents = Extents::default();
    extents.0.insert(0, vec![7; EXTENT_BYTES]);
    let mut range = Range::open(small(), 1);
    range.handle_request(Token(9), Request::Get(vec![]));
    assert_eq!(settle(&mut range, &mut extents), [(Token(9), Reply::Unavailable)]);
    assert!(range.is_closed());
}

/// The map after each commit, in the order in which they were given.
struct Model {
    states: Vec<BTreeMap<Vec<u8>, Bytes>>,
    tokens: BTreeMap<Token, usize>,
    answered: usize,
}

impl Model {
    fn draw_commit(&mut self, u: &mut Unstructured<'_>) -> Drawn<Request> {
        let mut state = self.states.last().expect("there is a first state").clone();
        let key = |u: &mut Unstructured<'_>| -> Drawn<Vec<u8>> { Ok(vec![b'a' + u.int_in_range(0..=5)?]) };
        let mut changes: Vec<Change> = Vec::new();
        for _ in 0..u.int_in_range(1..=3)? {
            let key = key(u)?;
            if changes.iter().any(|change| change.key == key) {
                continue;
            }
            let len = *u.choose(&[0, 1, 100, 3_000, 9_000])?;
            let value = if u.ratio(1, 3)? { None } else { Some(Bytes::from(vec![u.arbitrary()?; len])) };
            changes.push(Change { key, value });
        }
        let mut checks = Vec::new();
        if u.ratio(1, 2)? {
            let key = key(u)?;
            let is_absent = !state.contains_key(&key);
            checks.push(Check::Absent(key));
            if !is_absent {
                changes.clear();
            }
        }
        for change in &changes {
            match &change.value {
                Some(value) => state.insert(change.key.clone(), value.clone()),
                None => state.remove(&change.key),
            };
        }
        let is_refused = !checks.is_empty() && changes.is_empty();
        if is_refused {
            changes.push(put(b"never", b"never"));
        }
        self.states.push(state);
        Ok(commit(checks, changes))
    }

    fn take(&mut self, replies: impl Iterator<Item = (Token, Reply)>) {
        for (token, reply) in replies {
            let number = self.tokens.remove(&token).expect("a reply comes once");
            if !matches!(reply, Reply::Unavailable) {
                self.answered = self.answered.max(number);
            }
        }
    }
}

/// One owner after the other. Each executes IOs in any order, and dies with some under way, done or not.
fn owners(u: &mut Unstructured<'_>) -> Drawn<()> {
    let mut extents = Extents::default();
    let mut model = Model { states: vec![BTreeMap::new()], tokens: BTreeMap::new(), answered: 0 };
    let mut token = 0;
    for owner in 0..4 {
        let config = RangeConfig { requests_max: 1_000, rewrite_bytes_min: 8 << 10, rewrite_step_bytes: 4_000 };
        let mut range = Range::open(config, owner);
        let mut under_way: Vec<(IoId, Io)> = Vec::new();
        for _ in 0..u.int_in_range(0..=60)? {
            under_way.extend(core::iter::from_fn(|| range.poll_io()));
            match u.int_in_range(0..=3)? {
                0 if model.states.len() < 60 => {
                    token += 1;
                    let request = model.draw_commit(u)?;
                    model.tokens.insert(Token(token), model.states.len() - 1);
                    range.handle_request(Token(token), request);
                }
                _ if !under_way.is_empty() => {
                    let at = u.choose_index(under_way.len())?;
                    let (id, io) = under_way.swap_remove(at);
                    let bytes = extents.execute(&io);
                    range.handle_io(id, Ok(bytes));
                }
                _ => {}
            }
            model.take(core::iter::from_fn(|| range.poll_reply()));
        }
        under_way.extend(core::iter::from_fn(|| range.poll_io()));
        for (_, io) in under_way {
            if u.arbitrary()? {
                extents.execute(&io);
            }
        }
        model.tokens.clear();
        let mut reader = Range::open(config, 100 + owner);
        settle(&mut reader, &mut extents);
        let found: BTreeMap<Vec<u8>, Bytes> =
            reader.map.iter().map(|(key, entry)| (key.clone(), entry.value.clone())).collect();
        let state = (model.answered..model.states.len()).find(|number| model.states[*number] == found);
        let state = state.unwrap_or_else(|| panic!("no state since the last answered commit is {found:?}"));
        model.states.truncate(state + 1);
        model.answered = state;
    }
    Ok(())
}

#[test]
fn every_owner_finds_what_was_answered() {
    arbtest(owners).budget_ms(2_000);
}

/// Owners whose writes may find no room, perhaps after a part: what was answered as done is there, and nothing else.
fn owners_without_room(u: &mut Unstructured<'_>) -> Drawn<()> {
    let mut extents = Extents::default();
    let mut model: BTreeMap<Vec<u8>, Bytes> = BTreeMap::new();
    for owner in 0..4 {
        let config = RangeConfig { requests_max: 1_000, rewrite_bytes_min: 8 << 10, rewrite_step_bytes: 4_000 };
        let mut range = Range::open(config, owner);
        settle(&mut range, &mut extents);
        let found: BTreeMap<_, _> = range.map.iter().map(|(key, entry)| (key.clone(), entry.value.clone())).collect();
        assert_eq!(found, model);
        for _ in 0..u.int_in_range(0..=20)? {
            let mut asked = Vec::new();
            for token in 0..u.int_in_range(1..=3)? {
                // Of zeroes, what is missing of a batch would be there already.
                let value =
                    if u.ratio(1, 4)? { None } else { Some(Bytes::from(vec![u.int_in_range(1..=255)?; 3_000])) };
                let change = Change { key: vec![b'a' + u.int_in_range(0..=3)?], value };
                asked.push(change.clone());
                range.handle_request(Token(token), commit(vec![], vec![change]));
            }
            let mut under_way: Vec<(IoId, Io)> = Vec::new();
            loop {
                under_way.extend(core::iter::from_fn(|| range.poll_io()));
                if under_way.is_empty() {
                    break;
                }
                let (id, io) = under_way.swap_remove(u.choose_index(under_way.len())?);
                let result = match &io {
                    Io::Write { place: place @ Place::Extent(..), offset, data } if u.ratio(1, 3)? => {
                        let data = data.slice(..data.len() / BLOCK / 2 * BLOCK);
                        extents.execute(&Io::Write { place: *place, offset: *offset, data });
                        Err(IoFailed::Full)
                    }
                    io => Ok(extents.execute(io)),
                };
                range.handle_io(id, result);
            }
            let mut replies: Vec<_> = core::iter::from_fn(|| range.poll_reply()).collect();
            replies.sort_by_key(|(token, _)| *token);
            assert_eq!(replies.len(), asked.len(), "one request, one reply");
            for ((_, reply), Change { key, value }) in replies.into_iter().zip(asked) {
                match (reply, value) {
                    (Reply::Committed { .. }, Some(value)) => drop(model.insert(key, value)),
                    (Reply::Committed { .. }, None) => drop(model.remove(&key)),
                    (Reply::Full, _) => {}
                    (other, _) => panic!("{other:?}"),
                }
            }
        }
    }
    Ok(())
}

#[test]
fn every_owner_finds_what_found_room() {
    arbtest(owners_without_room).budget_ms(2_000);
}
