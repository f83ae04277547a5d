use super::*;
use crate::memory::draws::Draws;

type Pairs = Vec<Vec<u8>>;

fn pairs_of(entry: Entry<'_>) -> Pairs {
    entry.fields.flat_map(|(name, value)| [name.to_vec(), value.to_vec()]).collect()
}

fn listed<'a>(entries: impl Iterator<Item = Entry<'a>>) -> Vec<(StreamId, Pairs)> {
    entries.map(|entry| (entry.id, pairs_of(entry))).collect()
}

/// One field and its value.
const FV: [&[u8]; 2] = [b"f", b"v"];

fn id(ms: u64, seq: u64) -> StreamId {
    StreamId::new(ms, seq)
}

/// A stream of `1-0`, `2-0` and so on, each with the field `f`.
fn stream_of(count: u64) -> Stream {
    let mut stream = Stream::new();
    for ms in 1..=count {
        stream.log.append(NewId::Given(id(ms, 0)), 0, FV.into_iter(), NodeLimits::default()).unwrap();
    }
    stream
}

#[test]
fn ids_are_read_and_written() {
    for (text, expected) in [
        ("1-2", Some(id(1, 2))),
        ("1", Some(id(1, 7))),
        ("0-0", Some(id(0, 0))),
        ("18446744073709551615-18446744073709551615", Some(StreamId::MAX)),
        ("18446744073709551616", None),
        ("", None),
        ("-", None),
        ("1-", None),
        ("-1", None),
        ("1-2-3", None),
        ("1-*", None),
        ("a", None),
        ("+1", None),
        (" 1", None),
    ] {
        assert_eq!(StreamId::parse(text.as_bytes(), 7), expected, "{text}");
    }
    assert_eq!(id(5, 6).to_string(), "5-6");
    assert_eq!(NewId::parse(b"*"), Some(NewId::Auto));
    assert_eq!(NewId::parse(b"5-*"), Some(NewId::AutoSeq { ms: 5 }));
    assert_eq!(NewId::parse(b"5"), Some(NewId::Given(id(5, 0))));
    assert_eq!(NewId::parse(b"*-5"), None);
    for one in [id(0, 0), id(1, u64::MAX), StreamId::MAX] {
        assert_eq!(StreamId::from_bytes(one.to_bytes()), one);
        assert_eq!(one.next().and_then(StreamId::previous), (one != StreamId::MAX).then_some(one));
    }
}

#[test]
fn new_ids_are_greater_than_the_last() {
    let mut log = Log::default();
    let mut add = |wanted, now| log.append(wanted, now, FV.into_iter(), NodeLimits::default());
    assert_eq!(add(NewId::Given(id(0, 0)), 0), Err(NotAppended::NotGreater));
    assert_eq!(add(NewId::AutoSeq { ms: 0 }, 0), Ok(id(0, 1)));
    assert_eq!(add(NewId::Auto, 5), Ok(id(5, 0)));
    assert_eq!(add(NewId::Auto, 5), Ok(id(5, 1)));
    assert_eq!(add(NewId::Auto, 3), Ok(id(5, 2)));
    assert_eq!(add(NewId::Given(id(5, 2)), 9), Err(NotAppended::NotGreater));
    assert_eq!(add(NewId::AutoSeq { ms: 4 }, 9), Err(NotAppended::NotGreater));
    assert_eq!(add(NewId::AutoSeq { ms: 7 }, 9), Ok(id(7, 0)));
    assert_eq!(add(NewId::Given(id(7, u64::MAX)), 9), Ok(id(7, u64::MAX)));
    assert_eq!(add(NewId::AutoSeq { ms: 7 }, 9), Err(NotAppended::NotGreater));
    assert_eq!(add(NewId::Auto, 7), Ok(id(8, 0)));
    assert_eq!(add(NewId::Given(StreamId::MAX), 9), Ok(StreamId::MAX));
    assert_eq!(add(NewId::Auto, 9), Err(NotAppended::NotGreater));
}

#[test]
fn the_text_of_an_id_is_what_is_read_again() {
    for id in [StreamId::MIN, id(1, 0), id(0, 10), id(1_700_000_000_123, 99), StreamId::MAX] {
        assert_eq!(id.text().as_bytes(), id.to_string().as_bytes());
        assert_eq!(StreamId::parse(id.text().as_bytes(), 7), Some(id));
    }
}

#[test]
fn a_node_has_the_pieces_of_the_format() {
    let mut log = Log::default();
    for (ms, pairs) in [(10, &[b"a", b"1", b"b", b"x"][..]), (12, &[b"a", b"2", b"b", b"y"]), (13, &[b"c", b"3"])] {
        log.append(NewId::Given(id(ms, 5)), 0, pairs.iter().map(|piece| &piece[..]), NodeLimits::default()).unwrap();
    }
    let expected = "[2, \"a\", \"b\", 0, 0, 0, 1, \"x\", 5, 2, 0, 0, 2, \"y\", 5, 3, 0, 1, \"c\", 3, 5]";
    assert!(format!("{log:?}").contains(expected), "{log:?}");
}

#[test]
fn names_are_kept_once_in_a_node() {
    let long = [b'n'; 1000];
    let pairs = [&long[..], b"1"];
    let mut log = Log::default();
    for _ in 0..100 {
        log.append(NewId::Auto, 1, pairs.into_iter(), NodeLimits::default()).unwrap();
    }
    assert!(log.bytes_held() < 8000, "{}", log.bytes_held());
    assert!(log.range(StreamId::MIN, StreamId::MAX).all(|entry| pairs_of(entry) == pairs));
}

#[test]
fn nodes_are_filled_to_their_limits() {
    assert_eq!(stream_of(250).log.nodes(), 3);
    let mut log = Log::default();
    let limits = NodeLimits { bytes_max: 0, entries_max: 0 };
    for _ in 0..250 {
        log.append(NewId::Auto, 1, FV.into_iter(), limits).unwrap();
    }
    assert_eq!(log.nodes(), 1);
    for _ in 0..3 {
        log.append(
            NewId::Auto,
            1,
            [&b"f"[..], &[b'v'; 3000]].into_iter(),
            NodeLimits { entries_max: 0, bytes_max: 4096 },
        )
        .unwrap();
    }
    assert_eq!(log.nodes(), 4);
    // A node that lost entries is as full as before.
    let mut stream = stream_of(100);
    stream.log.delete(id(50, 0));
    stream.log.append(NewId::Auto, 1000, FV.into_iter(), NodeLimits::default()).unwrap();
    assert_eq!(stream.log.nodes(), 2);
}

#[test]
fn a_log_does_what_a_vector_does() {
    for seed in 0..12 {
        let mut draws = Draws(seed);
        let (mut log, mut model) = (Log::default(), Vec::<(StreamId, Pairs)>::new());
        let mut max_deleted = StreamId::MIN;
        for step in 0..1500 {
            step_of(&mut draws, &mut log, &mut model, &mut max_deleted);
            assert_eq!(log.len(), model.len() as u64);
            assert_eq!(log.max_deleted_id(), max_deleted);
            assert_eq!(log.first().map(|entry| entry.id), model.first().map(|(id, _)| *id));
            assert_eq!(log.last().map(|entry| entry.id), model.last().map(|(id, _)| *id));
            if step % 20 == 0 {
                check_range(&mut draws, &log, &model);
            }
        }
        assert_eq!(listed(log.range(StreamId::MIN, StreamId::MAX)), model);
    }
}

fn step_of(draws: &mut Draws, log: &mut Log, model: &mut Vec<(StreamId, Pairs)>, max_deleted: &mut StreamId) {
    let any = model.get(draws.below(model.len() + 1)).map_or(id(1, 1), |(id, _)| *id);
    match draws.below(30) {
        0..=23 => {
            let names = match draws.below(12) {
                0 => vec![b"a"],
                1 => vec![b"7", b"b", b"c"],
                _ => vec![b"a", b"b"],
            };
            let mut pairs = Vec::new();
            for name in names {
                pairs.push(name.to_vec());
                pairs.push(vec![b'0' + draws.byte() % 10; draws.below(60)]);
            }
            let now = log.last_id().ms + draws.next() % 3;
            let id = log.append(NewId::Auto, now, pairs.iter().map(Vec::as_slice), NodeLimits::default()).unwrap();
            model.push((id, pairs));
        }
        24..=27 => {
            let at = model.iter().position(|(id, _)| *id == any);
            assert_eq!(log.delete(any), at.is_some());
            if let Some(at) = at {
                model.remove(at);
                *max_deleted = any.max(*max_deleted);
            }
        }
        28 => {
            let keep = draws.below(model.len() + 50);
            let removed = model.len().saturating_sub(keep);
            assert_eq!(log.trim(Keep::Len(keep as u64), false, 0), removed as u64);
            model.drain(..removed);
        }
        _ => {
            let rough = log.trim(Keep::From(any), true, 0);
            assert!(model[..usize::try_from(rough).unwrap()].iter().all(|(id, _)| *id < any));
            model.drain(..usize::try_from(rough).unwrap());
            let removed = model.partition_point(|(id, _)| *id < any);
            assert_eq!(log.trim(Keep::From(any), false, 0), removed as u64);
            model.drain(..removed);
        }
    }
}

fn check_range(draws: &mut Draws, log: &Log, model: &[(StreamId, Pairs)]) {
    let mut bound = || {
        let (id, _) = model.get(draws.below(model.len() + 1)).cloned().unwrap_or((StreamId::MAX, Vec::new()));
        [id, id.next().unwrap_or(id), id.previous().unwrap_or(id)][draws.below(3)]
    };
    let (first, last) = (bound(), bound());
    let expected: Vec<_> = model.iter().filter(|(id, _)| first <= *id && *id <= last).cloned().collect();
    assert_eq!(listed(log.range(first, last)), expected);
    assert_eq!(listed(log.range(first, last).rev()), expected.iter().rev().cloned().collect::<Vec<_>>());
    assert_eq!(log.get(first).map(pairs_of), model.iter().find(|(id, _)| *id == first).map(|(_, pairs)| pairs.clone()));
}

#[test]
fn rough_trims_take_whole_nodes_up_to_a_limit() {
    for (keep, limit, left) in [
        (Keep::Len(250), 0, 250),
        (Keep::Len(249), 0, 250),
        (Keep::Len(150), 0, 150),
        (Keep::Len(51), 0, 150),
        (Keep::Len(0), 0, 0),
        (Keep::Len(0), 100, 150),
        (Keep::Len(0), 199, 150),
        (Keep::Len(0), 99, 250),
        (Keep::From(id(100, 0)), 0, 250),
        (Keep::From(id(101, 0)), 0, 150),
        (Keep::From(id(1000, 0)), 0, 0),
    ] {
        let mut stream = stream_of(250);
        assert_eq!(stream.log.trim(keep, true, limit), 250 - left, "{keep:?} {limit}");
        assert_eq!(stream.log.len(), left);
    }
    assert_eq!(stream_of(250).log.trim(Keep::Len(120), false, 0), 130);
}

#[test]
fn counts_are_set_within_what_is_there() {
    let mut log = stream_of(10).log;
    log.delete(id(10, 0));
    assert_eq!(log.set_id(id(9, 9), None, None), Err(NotSet::BelowDeleted));
    assert_eq!(log.set_id(id(20, 0), Some(8), None), Err(NotSet::FewerAdded));
    assert_eq!(log.set_id(id(20, 0), Some(100), Some(id(15, 0))), Ok(()));
    assert_eq!((log.last_id(), log.entries_added(), log.max_deleted_id()), (id(20, 0), 100, id(15, 0)));
    let mut log = stream_of(10).log;
    assert_eq!(log.set_id(id(9, 9), None, None), Err(NotSet::BelowLast));
    assert_eq!(log.set_id(id(10, 0), None, Some(StreamId::MIN)), Ok(()));
    assert_eq!(log.next_id(NewId::Auto, 0), Some(id(10, 1)));
}

#[test]
fn entries_before_an_id_are_told_where_they_can_be() {
    let check = |log: &Log, expected: [Option<u64>; 5]| {
        assert_eq!([0, 2, 3, 5, 6].map(|ms| log.entries_until(id(ms, 0))), expected);
    };
    check(&Log::default(), [Some(0); 5]);
    let mut log = stream_of(5).log;
    check(&log, [Some(0), None, None, Some(5), None]);
    log.trim(Keep::Len(4), false, 0);
    check(&log, [Some(1), Some(2), None, Some(5), None]);
    log.delete(id(3, 0));
    check(&log, [None, None, None, Some(5), None]);
    log.trim(Keep::From(id(4, 0)), false, 0);
    check(&log, [Some(3), None, Some(3), Some(5), None]);
    log.trim(Keep::Len(0), false, 0);
    check(&log, [Some(5), Some(5), Some(5), Some(5), None]);
}

#[test]
fn the_lag_is_told_where_it_can_be() {
    let mut stream = stream_of(5);
    stream.create_group(b"g", StreamId::MIN, None);
    let lag = |stream: &Stream| stream.groups[&b"g"[..]].lag(&stream.log);
    let read = |stream: &mut Stream, count| {
        let Stream { log, groups } = stream;
        let group = groups.get_mut(&b"g"[..]).unwrap();
        let consumer = group.consumer_of(b"c", 0);
        group.deliver(log, consumer, count, false, 0, |_| {});
        (group.entries_read(), group.lag(log))
    };
    assert_eq!(lag(&stream), Some(5));
    assert_eq!(read(&mut stream, 1), (Some(1), Some(4)));
    assert_eq!(read(&mut stream, 1), (Some(2), Some(3)));
    // A hole ahead: it cannot be told how much of it was read.
    stream.log.delete(id(4, 0));
    assert_eq!(lag(&stream), None);
    assert_eq!(read(&mut stream, 1), (None, None));
    assert_eq!(read(&mut stream, 1), (Some(5), Some(0)));
    // The hole is trimmed away.
    stream.log.append(NewId::Auto, 6, FV.into_iter(), NodeLimits::default()).unwrap();
    stream.log.trim(Keep::Len(1), false, 0);
    assert_eq!(lag(&stream), Some(1));
    stream.groups.get_mut(&b"g"[..]).unwrap().set_id(StreamId::MIN, None);
    assert_eq!(lag(&stream), Some(1));
    assert_eq!(Group::new(StreamId::MIN, None).lag(&Log::default()), Some(0));
}

#[test]
fn what_is_delivered_is_pending_until_it_is_acknowledged() {
    let Stream { log, .. } = stream_of(5);
    let mut group = Group::new(id(2, 0), None);
    let (one, two) = (group.consumer_of(b"one", 7), group.consumer_of(b"two", 7));
    let mut seen = Vec::new();
    assert_eq!(group.deliver(&log, one, 2, true, 10, |entry| seen.push(entry.id)), 2);
    assert_eq!(seen, [id(3, 0), id(4, 0)]);
    assert_eq!(group.deliver(&log, two, 0, true, 11, |_| {}), 1);
    assert_eq!(group.deliver(&log, two, 0, true, 12, |_| {}), 0);
    let all: Vec<_> = group.pending(StreamId::MIN, StreamId::MAX, None).map(|(id, _)| id).collect();
    assert_eq!(all, [id(3, 0), id(4, 0), id(5, 0)]);
    let of_one: Vec<_> = group.pending(id(4, 0), StreamId::MAX, Some(one)).collect();
    assert_eq!(of_one, [(id(4, 0), Pending { consumer: one, delivered_ms: 10, deliveries: 1 })]);
    assert_eq!(group.consumer(two).active_ms, Some(11));
    assert!(group.acknowledge(id(4, 0)));
    assert!(!group.acknowledge(id(4, 0)));
    let mut again = Vec::new();
    group.deliver_again(&log, one, StreamId::MIN, 0, 20, |id, entry| again.push((id, entry.is_some())));
    assert_eq!(again, [(id(3, 0), true)]);
    assert_eq!(group.pending_of(id(3, 0)).unwrap().deliveries, 2);
    assert_eq!(group.delete_consumer(b"one"), Some(1));
    assert_eq!(group.delete_consumer(b"one"), None);
    assert_eq!(group.consumers().map(Consumer::name).collect::<Vec<_>>(), [b"two"]);
    group.check();
}

#[test]
fn entries_are_claimed_by_their_idle_time() {
    let Stream { mut log, .. } = stream_of(6);
    let mut group = Group::new(StreamId::MIN, None);
    let (one, two) = (group.consumer_of(b"one", 0), group.consumer_of(b"two", 0));
    group.deliver(&log, one, 4, true, 100, |_| {});
    let claim = Claim {
        consumer: two,
        idle_ms_min: 50,
        delivered_ms: 140,
        deliveries: None,
        is_forced: false,
        is_delivery: true,
    };
    assert_eq!(group.claim(&log, id(1, 0), claim, 140), Claimed::No);
    let claim = Claim { delivered_ms: 150, ..claim };
    assert_eq!(group.claim(&log, id(1, 0), claim, 150), Claimed::Yes);
    assert_eq!(group.pending_of(id(1, 0)), Some(Pending { consumer: two, delivered_ms: 150, deliveries: 2 }));
    assert_eq!(group.claim(&log, id(5, 0), claim, 150), Claimed::No);
    let forced = Claim { is_forced: true, deliveries: Some(9), ..claim };
    assert_eq!(group.claim(&log, id(5, 0), forced, 150), Claimed::Yes);
    assert_eq!(group.pending_of(id(5, 0)).unwrap().deliveries, 9);
    assert_eq!(group.claim(&log, id(9, 0), forced, 150), Claimed::No);
    log.delete(id(2, 0));
    assert_eq!(group.claim(&log, id(2, 0), claim, 150), Claimed::Gone);
    assert_eq!(group.pending_of(id(2, 0)), None);
    assert_eq!(group.consumer(two).active_ms, Some(150));
    group.check();
}

#[test]
fn a_sweep_claims_up_to_a_count_and_says_where_it_stopped() {
    let Stream { mut log, .. } = stream_of(60);
    let mut group = Group::new(StreamId::MIN, None);
    let (one, two) = (group.consumer_of(b"one", 0), group.consumer_of(b"two", 0));
    group.deliver(&log, one, 40, true, 100, |_| {});
    group.deliver(&log, one, 20, true, 0, |_| {});
    log.delete(id(42, 0));
    let claim = Claim {
        consumer: two,
        idle_ms_min: 50,
        delivered_ms: 110,
        deliveries: None,
        is_forced: false,
        is_delivery: false,
    };
    // Ten are looked at for each that may be claimed, and none has been idle for long.
    let swept = group.auto_claim(&log, StreamId::MIN, 1, claim, 110);
    assert_eq!(swept, AutoClaimed { claimed: vec![], gone: vec![], next: id(11, 0) });
    let swept = group.auto_claim(&log, id(40, 0), 3, claim, 110);
    assert_eq!(swept, AutoClaimed { claimed: vec![id(41, 0), id(43, 0)], gone: vec![id(42, 0)], next: id(44, 0) });
    assert_eq!(group.pending_of(id(41, 0)), Some(Pending { consumer: two, delivered_ms: 110, deliveries: 1 }));
    let swept = group.auto_claim(&log, id(58, 0), 100, claim, 110);
    assert_eq!((swept.claimed.len(), swept.next), (3, StreamId::MIN));
    group.check();
}

#[test]
fn groups_keep_their_books_whatever_is_asked() {
    for seed in 0..10 {
        let mut draws = Draws(seed);
        let mut stream = stream_of(1);
        stream.create_group(b"g", StreamId::MIN, None);
        assert!(!stream.create_group(b"g", StreamId::MIN, None));
        for now in 0..1500 {
            let Stream { log, groups } = &mut stream;
            let group = groups.get_mut(&b"g"[..]).unwrap();
            let name = [b'a' + draws.byte() % 4];
            let any = id(1 + draws.next() % (log.last_id().ms + 1), 0);
            match draws.below(8) {
                0..=2 => {
                    let wanted = NewId::Given(id(log.last_id().ms + 1, 0));
                    log.append(wanted, 0, FV.into_iter(), NodeLimits::default()).unwrap();
                }
                3 => {
                    let consumer = group.consumer_of(&name, now);
                    group.deliver(log, consumer, 1 + draws.below(4), draws.below(3) > 0, now, |_| {});
                }
                4 => {
                    let was = group.pending_of(any).is_some();
                    assert_eq!(group.acknowledge(any), was);
                }
                5 => {
                    let consumer = group.consumer_of(&name, now);
                    let idle_ms_min = i64::try_from(draws.below(30)).unwrap();
                    let is_forced = draws.below(2) == 0;
                    let claim = Claim {
                        consumer,
                        idle_ms_min,
                        delivered_ms: now,
                        deliveries: None,
                        is_forced,
                        is_delivery: true,
                    };
                    if group.claim(log, any, claim, now) == Claimed::Yes {
                        assert_eq!(group.pending_of(any).unwrap().consumer, consumer);
                    }
                }
                6 if draws.below(5) == 0 => {
                    group.delete_consumer(&name);
                }
                _ => {
                    log.delete(any);
                }
            }
            group.check();
        }
    }
}
