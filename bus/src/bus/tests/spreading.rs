//! News comes and goes, message by message: what is believed, passed on, compared and forgotten.

use alloc::boxed::Box;

use super::scripted::{CLUSTER, Scripted, claim, ms, quiet, record, replica};
use super::*;
use crate::CommandError;
use crate::event::{Departure, FailedBy, Health};
use crate::gossip::{Gossip, Subject};
use crate::member::{LIFE_MAX, Life, MemberRecord};
use crate::packet::{Beat, Body, Forgetting, Header, News, Sync, encode_news};

fn life(number: u8, incarnation: u64, revision: u32, refuted: u64, failed: bool) -> MemberRecord {
    let mut record = record(number);
    (record.description.incarnation, record.description.revision) = (Incarnation(incarnation), revision);
    record.life = Life { refuted, failed };
    record
}

fn is_news(body: &Body) -> bool {
    matches!(body, Body::News(_))
}

fn wish(number: u8, tag: u32, left_ms: u64) -> Forgetting {
    Forgetting { id: id(number), tag, left_ms }
}

#[test]
fn what_a_third_member_says_of_lives_is_believed_within_bounds() {
    let (known, unknown, all) = (1 << 20, 1 << 32, LIFE_MAX.0);
    // Who tells, of whom, which life, how many refutations, and whether that is taken. 3 is known in its first life.
    let cases = [
        (2, 3, 1 + known, 0, true),
        (2, 3, 2 + known, 0, false),
        (2, 3, 1, known, true),
        (2, 3, 1, known + 1, false),
        (2, 4, unknown, 0, true),
        (2, 4, unknown + 1, 0, false),
        (2, 4, 1, unknown, true),
        (2, 4, 1, unknown + 1, false),
        (3, 3, all, 0, true),
        (3, 3, all + 1, 0, false),
        (3, 3, 1, all, true),
        (3, 3, 1, all + 1, false),
    ];
    for (from, of, incarnation, refuted, expected) in cases {
        let mut one = Scripted::new(quiet(), &[record(2), life(3, 1, 0, 0, false)]);
        let told = life(of, incarnation, 1, refuted, false);
        one.member(from, told.clone());
        let case = format!("{from} {of} {incarnation} {refuted}");
        assert_eq!(one.bus.members.get(id(of)).is_some_and(|of| of.record() == told), expected, "{case}");
        assert_eq!(one.bus.counters().refused_unentitled, u64::from(!expected), "{case}");
        if of == 3 && incarnation == 1 {
            let mut one = Scripted::new(quiet(), &[record(2), record(3)]);
            one.news(from, News::Life(id(3), told.life));
            assert_eq!(one.bus.members.get(id(3)).unwrap().life == told.life, expected, "{case}");
            assert_eq!(one.bus.counters().refused_unentitled, u64::from(!expected), "{case}");
        }
    }
    let mut one = Scripted::new(quiet(), &[record(2)]);
    one.news(2, News::Life(id(9), Life { refuted: 1, failed: false }));
    assert_eq!((one.bus.members.len(), one.bus.counters().refused_unentitled), (2, 0), "nobody knows it");
}

#[test]
fn a_description_that_this_member_never_gave_is_overtaken() {
    let (skipped, most) = (1 << 16, 1 << 32);
    // The life and revision that are told, and those that it gives then.
    let cases = [
        (1, 0, (1, 0)),
        (1, 7, (1, 8)),
        (1, u32::MAX, (1 + skipped, 1)),
        (2, 0, (2 + skipped, 1)),
        (most - skipped, 5, (most, 1)),
        (most, 0, (1 + most, 1)),
        (u64::MAX, 0, (1 + most, 1)),
    ];
    for (incarnation, revision, expected) in cases {
        let mut one = Scripted::new(quiet(), &[record(2)]);
        one.pass(ms(20));
        one.member(2, life(1, incarnation, revision, 0, false));
        let own = one.bus.own_record();
        let given = (own.description.incarnation.0, own.description.revision);
        assert_eq!(given, expected, "{incarnation} {revision}");
        assert_eq!(one.bus.next_header(id(2)).incarnation.0, expected.0, "{incarnation} {revision}");
        one.pass(ms(10));
        let told = Body::News(std::vec![News::Member(Box::new(own))]);
        let expected = if expected == (1, 0) { std::vec![] } else { std::vec![(2, told)] };
        assert_eq!(one.sent, expected, "{incarnation} {revision}");
    }
}

#[test]
fn what_others_say_of_this_members_failure() {
    let bound = 1 << 32;
    for (refuted, failed, by_life, expected) in [
        (5, false, false, 5),
        (5, false, true, 5),
        (bound, false, true, bound),
        (bound + 1, false, true, bound),
        (u64::MAX, false, false, bound),
        (0, true, true, 1),
        (7, true, false, 8),
        (u64::MAX, true, true, bound + 1),
    ] {
        let mut one = Scripted::new(quiet(), &[record(2)]);
        let told = life(1, 1, 0, refuted, failed);
        one.news(2, if by_life { News::Life(id(1), told.life) } else { News::Member(Box::new(told)) });
        let own = one.bus.members.get(id(1)).unwrap().life;
        assert_eq!(own, Life { refuted: expected, failed: false }, "{refuted} {failed}");
        assert_eq!(one.bus.counters().refutations, u64::from(failed), "{refuted} {failed}");
    }
    // A primary with a replica refutes its failure later, but an earlier life of it may have done so.
    let mut one = Scripted::new(quiet(), &[replica(2, &[1])]);
    one.command(Command::Claim { group: group(1), slots: std::vec![SlotRange::ALL] }).unwrap();
    let health = |one: &Scripted| one.bus.member(id(1)).unwrap().health;
    one.news(2, News::Life(id(1), Life { refuted: 3, failed: true }));
    assert_eq!((health(&one), one.bus.counters().refutations), (Health::Failed, 0));
    one.news(2, News::Life(id(1), Life { refuted: 3, failed: false }));
    assert_eq!(health(&one), Health::Failed, "that is older");
    one.news(2, News::Life(id(1), Life { refuted: 4, failed: false }));
    assert_eq!((health(&one), one.bus.counters().refutations), (Health::Alive, 0));
}

#[test]
fn every_change_of_a_member_is_told_to_the_node_as_what_it_is() {
    let mut one = Scripted::new(quiet(), &[record(2), record(4)]);
    let three = id(3);
    let mut moved = life(3, 1, 2, 0, false);
    moved.description.address = "elsewhere".into();
    let moved_to = Event::AddressChanged { id: three, address: "elsewhere".into() };
    let back_at = Event::AddressChanged { id: three, address: "server-3".into() };
    let described = Event::Described { id: three };
    let cases = [
        (record(3), std::vec![Event::MemberJoined { id: three, address: "server-3".into() }]),
        (record(3), std::vec![]),
        (life(3, 1, 1, 0, false), std::vec![described.clone()]),
        (moved, std::vec![moved_to, described.clone()]),
        (life(3, 1, 2, 0, true), std::vec![Event::Failed { id: three, by: FailedBy::News }]),
        (life(3, 1, 3, 0, true), std::vec![back_at, described.clone()]),
        (life(3, 1, 3, 1, false), std::vec![Event::Recovered { id: three }]),
        (life(3, 1, 3, 2, false), std::vec![]),
        (life(3, 1, 4, 3, true), std::vec![described.clone(), Event::Failed { id: three, by: FailedBy::News }]),
    ];
    for (number, (record, expected)) in cases.into_iter().enumerate() {
        one.pass(ms(1_000));
        let before = one.bus.standing.changed_at;
        one.member(2, record);
        assert_eq!(one.events, expected, "{number}");
        let is_change = number != 1;
        assert_eq!(one.bus.standing.changed_at > before, is_change, "{number}");
        // It is handed on ten milliseconds later, and what is no news is not.
        one.pass(ms(9));
        assert_eq!(one.receivers(is_news), [], "{number}");
        one.pass(ms(1));
        assert_eq!(one.receivers(is_news).len(), if is_change { one.bus.members.living() - 1 } else { 0 }, "{number}");
    }
    assert_eq!(one.bus.counters().failures, 2);
    one.hear(4, &Body::Departure(Departure::Left));
    one.member(2, life(4, 2, 0, 0, false));
    assert_eq!(one.events, [Event::Described { id: id(4) }, Event::Returned { id: id(4) }]);
    // What came by comparing is no secret any more: it rides on probes.
    one.pass(ms(1_000));
    one.hear(2, &Body::Records(std::vec![News::Member(Box::new(life(3, 1, 9, 3, true)))]));
    one.pass(ms(1_000));
    assert_eq!(one.receivers(is_news), []);
    assert!(one.bus.take_news(one.now, 9_000).iter().any(|news| matches!(news, News::Member(of) if of.id == three)));
}

#[test]
fn members_beyond_the_limit_are_refused_and_known_ones_are_not() {
    let mut one = Scripted::new(Config { members_max: 3, ..quiet() }, &[record(2), record(3)]);
    for number in 1..=2 {
        one.member(2, record(4));
        assert_eq!((one.bus.members.len(), one.bus.counters().refused_full), (3, number));
    }
    one.hear(5, &Body::Meet(record(5)));
    assert_eq!((one.sent.len(), one.bus.counters().refused_full), (0, 3), "it gets no answer");
    one.member(2, life(3, 1, 4, 0, false));
    assert_eq!(one.bus.members.get(id(3)).unwrap().description.revision, 4);
    assert_eq!(one.bus.counters().refused_full, 3);
}

#[test]
fn a_state_that_has_changed_is_stored_within_a_while() {
    let mut one = Scripted::new(Config { save_interval: Duration::from_secs(5), ..quiet() }, &[record(2)]);
    one.pass(ms(60_000));
    let persists = one.bus.counters().persists;
    one.member(2, record(3));
    one.pass(ms(4_000));
    one.member(2, record(4));
    one.pass(ms(999));
    assert_eq!(one.bus.counters().persists, persists);
    one.pass(ms(1));
    assert_eq!(one.bus.counters().persists, persists + 1, "five seconds after the first change");
    one.pass(ms(60_000));
    assert_eq!(one.bus.counters().persists, persists + 1);
}

#[test]
fn each_piece_of_news_is_told_three_times_the_logarithm_of_the_members() {
    for (others, expected) in [(0, 3), (1, 6), (2, 6), (3, 9), (6, 9), (7, 12)] {
        let members: Vec<_> = (2..2 + others).map(record).collect();
        let mut one = Scripted::new(quiet(), &members);
        one.bus.gossip = Gossip::default();
        one.bus.tell(one.now, Subject::Member(id(1)));
        let told = (0..100).take_while(|_| !one.bus.take_news(one.now, 700).is_empty()).count();
        assert_eq!(told, expected, "{others}");
    }
}

#[test]
fn news_fills_the_room_that_there_is() {
    let mut one = Scripted::new(quiet(), &[record(2), record(3)]);
    let mut written = Vec::new();
    encode_news(&mut written, &News::Member(Box::new(record(2))));
    let length = written.len();
    for (room, expected) in
        [(length * 2, 2), (length * 2 - 1, 1), (length, 1), (length - 1, 1), (0, 1), (length * 2 + 1, 2)]
    {
        one.bus.gossip = Gossip::default();
        [2, 3].into_iter().for_each(|number| one.bus.tell(one.now, Subject::Member(id(number))));
        let news = one.bus.take_news(one.now, room);
        assert_eq!(news.len(), expected, "{room}");
    }
    // What there is nothing to tell of is dropped and takes no room.
    one.bus.gossip = Gossip::default();
    for subject in [Subject::Member(id(2)), Subject::Voters, Subject::Claim(group(7)), Subject::Life(id(9))] {
        one.bus.tell(one.now, subject);
    }
    one.bus.tell(one.now, Subject::Forget(id(9)));
    assert_eq!(one.bus.take_news(one.now, 700), [News::Member(Box::new(record(2)))]);
    one.bus.tell(one.now, Subject::Life(id(3)));
    assert!(one.bus.take_news(one.now, 700).contains(&News::Life(id(3), Life::default())));
}

#[test]
fn fresh_news_goes_to_a_few_and_voters_are_told_to_all_voters() {
    let members: Vec<_> = (2..=9).map(record).collect();
    let mut one = Scripted::new(Config { news_fanout: 2, ..quiet() }, &members);
    one.pass(ms(1_000));
    one.member(2, record(10));
    one.pass(ms(10));
    let to = one.receivers(is_news);
    assert!(to.len() == 2 && to[0] != to[1], "{to:?}");
    one.command(Command::SetVoters { epoch: Epoch(1), voters: (1..=7).map(id).collect() }).unwrap();
    one.pass(ms(10));
    let tells =
        |body: &Body| matches!(body, Body::News(news) if news.iter().any(|news| matches!(news, News::Voters(_))));
    let to = one.receivers(tells);
    assert!((2..=7).all(|voter| to.contains(&voter)) && to.len() == 8, "{to:?}");
}

#[test]
fn differences_are_looked_into_when_it_is_quiet_or_has_lasted() {
    // Spans in milliseconds before now, of the last change, of the first difference and of differences with some; when the next look is
    // due; whether claims were confirmed; and whether it is looked into.
    let cases = [
        (150, 300, 0, 0, true, true),
        (149, 300, 0, 0, true, false),
        (150, 299, 0, 0, true, false),
        (0, 1_500, 0, 0, true, true),
        (0, 1_499, 0, 0, true, false),
        (0, 0, 1_500, 0, true, true),
        (0, 0, 1_499, 0, true, false),
        (0, 0, 0, 0, false, true),
        (0, 0, 0, 1, false, false),
        (9_000, 9_000, 9_000, 1, true, false),
    ];
    for (changed, since, unsettled, next, matched, expected) in cases {
        let mut one = Scripted::new(quiet(), &[record(2)]);
        one.pass(ms(20_000));
        let ago = |span| Instant::from_nanos(one.now.as_nanos() - span * 1_000_000);
        one.bus.standing.changed_at = ago(changed);
        one.bus.standing.differs_since = Some(ago(since));
        one.bus.standing.unsettled_since = Some(ago(unsettled));
        one.bus.standing.next_sync = one.now + ms(next);
        one.bus.standing.matched = matched;
        let case = (changed, since, unsettled, next, matched);
        let own = one.bus.digests();
        let unsettled_since = one.bus.standing.unsettled_since;
        one.bus.compare(one.now, id(2), (own.0, own.1 + 1));
        one.sent.clear();
        one.drain();
        let is_sync = |body: &Body| matches!(body, Body::Sync(Sync { wants_answer: true, .. }));
        assert_eq!(one.receivers(is_sync), Vec::from_iter(expected.then_some(2)), "{case:?}");
        assert_eq!(one.bus.counters().syncs_begun, u64::from(expected), "{case:?}");
        let due = if expected { one.now + ms(300) } else { one.now + ms(next) };
        assert_eq!(one.bus.standing.next_sync, due, "{case:?}");
        let begins_anew = expected && unsettled >= 1_500;
        let since_when = if begins_anew { Some(one.now) } else { unsettled_since };
        assert_eq!(one.bus.standing.unsettled_since, since_when, "{case:?}");
        // Found equal, it says how long it took.
        one.bus.compare(one.now, id(2), own);
        assert_eq!((one.bus.standing.differs_since, one.bus.counters().time_to_convergence.last), (None, ms(since)));
    }
    let mut one = Scripted::new(quiet(), &[record(2)]);
    let (own, now) = (one.bus.digests(), one.now);
    one.bus.compare(now, id(2), (own.0 + 1, own.1));
    assert_eq!((one.bus.standing.differs_since, one.bus.standing.unsettled_since), (Some(now), Some(now)));
    (0..7).for_each(|_| one.bus.compare(now, id(2), own));
    assert_eq!(one.bus.standing.unsettled_since, Some(now), "some others may differ still");
    one.bus.compare(now, id(2), own);
    assert_eq!(one.bus.standing.unsettled_since, None, "eight in a row know the same");
}

#[test]
fn who_tells_its_fingerprints_gets_what_differs() {
    let mut one = Scripted::new(quiet(), &[record(2), record(3)]);
    one.news(2, claim(7, 2, 3, &[(0, 9)]));
    one.command(Command::SetVoters { epoch: Epoch(1), voters: [1, 2].map(id).to_vec() }).unwrap();
    one.command(Command::Forget { id: id(3) }).unwrap();
    one.pass(ms(20));
    assert_eq!(one.bus.digests().1, one.bus.claims.digest() ^ one.bus.voters.hash(), "both count in full");
    let members = crate::sync::member_classes(&one.bus.members, 1);
    let claims = crate::sync::claim_classes(&one.bus.claims, 1);
    let same = Sync { wants_answer: false, voters: one.bus.voters.hash(), members: members.clone(), claims };
    let other = |classes: &[u32]| std::vec![classes[0] ^ 1];
    let answer = Sync { wants_answer: false, ..same.clone() };
    let kinds = |one: &Scripted| {
        let count = |is_it: fn(&News) -> bool| {
            let news =
                one.sent.iter().filter_map(|(_, body)| if let Body::Records(news) = body { Some(news) } else { None });
            news.flatten().filter(|news| is_it(news)).count()
        };
        [
            count(|news| matches!(news, News::Member(_))),
            count(|news| matches!(news, News::Claim(_))),
            count(|news| matches!(news, News::Voters(_))),
            count(|news| matches!(news, News::Forget(_))),
        ]
    };
    let cases = [
        (same.clone(), [0, 0, 0, 1]),
        (Sync { members: other(&same.members), ..same.clone() }, [2, 0, 0, 1]),
        (Sync { claims: other(&same.claims), ..same.clone() }, [0, 1, 0, 1]),
        (Sync { voters: 0, ..same.clone() }, [0, 0, 1, 1]),
    ];
    for (theirs, expected) in cases {
        for wants_answer in [false, true] {
            one.hear(2, &Body::Sync(Sync { wants_answer, ..theirs.clone() }));
            assert_eq!(kinds(&one), expected, "{theirs:?}");
            let answers: Vec<_> = one.sent.iter().filter(|(_, body)| matches!(body, Body::Sync(_))).collect();
            assert_eq!(answers, Vec::from_iter(wants_answer.then_some(&(2, Body::Sync(answer.clone())))), "{theirs:?}");
        }
    }
    one.pass(ms(60_000));
    one.hear(2, &Body::Sync(same));
    assert_eq!(one.sent, [], "the wish is over");
}

#[test]
fn an_exchange_fills_its_packets_and_has_a_limit() {
    let count = |one: &Scripted| one.sent.iter().filter(|(_, body)| matches!(body, Body::Records(_))).count();
    let theirs = || Sync { wants_answer: false, voters: 0, members: std::vec![0], claims: std::vec![0] };
    let length = |record: &MemberRecord| {
        let mut written = Vec::new();
        encode_news(&mut written, &News::Member(Box::new(record.clone())));
        written.len()
    };
    // Three members and this one fill 6,016 bytes, to the byte or by one more.
    for (more, expected) in [(0, 1), (1, 2)] {
        let mut members: Vec<_> = (2..=8).map(record).collect();
        let mut one = Scripted::new(Config { packet_bytes_max: 0, ..quiet() }, &[]);
        let own = length(&one.bus.members.get(id(1)).unwrap().record());
        members.iter_mut().for_each(|record| record.description.services = std::vec![0; 800].into());
        let rest = 6_016 - own - members.iter().map(length).sum::<usize>();
        assert!((1..=200).contains(&rest), "{rest}");
        members[0].description.services = std::vec![0; 800 + rest + more].into();
        for record in members {
            one.bus.members.merge(record, one.now);
        }
        one.bus.handle_sync(one.now, id(2), &theirs());
        one.drain();
        assert_eq!(count(&one), expected, "{more}");
    }
    let mut one = Scripted::new(quiet(), &[record(2)]);
    for number in 3..=200 {
        let mut record = record(number);
        record.description.services = std::vec![0; 1_000].into();
        one.bus.members.merge(record, one.now);
    }
    one.bus.handle_sync(one.now, id(2), &theirs());
    one.drain();
    assert_eq!(count(&one), 16, "128 KiB at a time");
}

#[test]
fn who_introduces_itself_is_answered_once() {
    let (meet, sync) = (|body: &Body| matches!(body, Body::Meet(_)), |body: &Body| matches!(body, Body::Sync(_)));
    let answers = |one: &Scripted| (one.receivers(meet).len(), one.receivers(sync).len());
    let mut one = Scripted::new(quiet(), &[]);
    for (from, of, incarnation, refused) in [(2, 3, 1, 1), (2, 2, 2, 2)] {
        one.hear(from, &Body::Meet(life(of, incarnation, 0, 0, false)));
        assert_eq!((answers(&one), one.bus.counters().refused_unentitled), ((0, 0), refused));
        assert_eq!(one.bus.members.len(), 1);
    }
    one.hear(2, &Body::Meet(record(2)));
    assert_eq!(answers(&one), (1, 1));
    one.hear(2, &Body::Meet(record(2)));
    assert_eq!(answers(&one), (0, 0), "it knows this one, as it has a number for it");
    let header = Header { incarnation: Incarnation(1), sequence: 0 };
    one.hear_with(2, header, &Body::Meet(record(2)));
    assert_eq!(answers(&one), (1, 0), "it does not know this one any more");
    one.hear_with(3, header, &Body::Meet(record(3)));
    assert_eq!(answers(&one), (1, 1));
}

#[test]
fn each_wish_to_forget_is_taken_once_and_ends() {
    let mut one = Scripted::new(quiet(), &[record(2), record(3)]);
    let kept = |number, tag, left| Event::KeptOut { id: id(number), tag, left: ms(left) };
    let steps = [
        ("oneself", wish(1, 1, 9_000), std::vec![]),
        ("over", wish(3, 1, 0), std::vec![]),
        ("a stranger", wish(9, 1, 5_000), std::vec![kept(9, 1, 5_000)]),
        ("a member", wish(3, 1, 10_000), std::vec![kept(3, 1, 10_000), Event::Forgotten { id: id(3) }]),
        ("the same", wish(3, 1, 20_000), std::vec![]),
        ("another that ends sooner", wish(3, 2, 9_999), std::vec![]),
        ("one that ends with it", wish(3, 2, 10_000), std::vec![]),
        ("one that ends later", wish(3, 2, 10_001), std::vec![kept(3, 2, 10_001)]),
        ("one that goes on for ever", wish(3, 3, u64::MAX), std::vec![kept(3, 3, 60_000)]),
    ];
    for (name, wish, expected) in steps {
        one.news(2, News::Forget(wish));
        assert_eq!(one.events, expected, "{name}");
    }
    assert_eq!(one.bus.members.len(), 2);
    let meet = || Command::Meet { id: id(3), address: "server-3".into() };
    one.pass(ms(59_999));
    assert_eq!(one.command(meet()), Err(CommandError::KeptOut));
    one.member(2, record(3));
    one.hear(3, &Body::Meet(record(3)));
    assert_eq!((one.bus.members.len(), one.bus.counters().refused_kept_out), (2, 1));
    one.pass(ms(1));
    one.member(2, record(3));
    assert_eq!(one.bus.members.len(), 3, "it is over to the millisecond");
    assert_eq!(one.command(meet()), Ok(()));
}

#[test]
fn who_was_forgotten_is_told_so_when_it_probes() {
    let mut one = Scripted::new(quiet(), &[record(2), record(3)]);
    let probe = Body::Probe(1, Beat::default(), Vec::new());
    one.news(2, News::Forget(wish(3, 7, 10_000)));
    one.pass(ms(4_000));
    one.hear(3, &probe);
    assert_eq!(one.sent, [(3, Body::Forgotten(wish(3, 7, 6_000)))]);
    one.hear(3, &Body::HandoverAsk(group(1)));
    assert_eq!((one.sent.len(), one.bus.counters().refused_kept_out), (0, 2));
    one.pass(ms(60_000));
    one.hear(3, &probe);
    assert_eq!(one.sent, [(3, Body::Forgotten(wish(3, 7, 0)))], "however long ago that was");
    one.hear(8, &probe);
    let own = Body::Meet(one.bus.own_record());
    assert_eq!(one.sent, [(8, own)], "a stranger that probes knows this member from before");
    one.hear(8, &Body::HandoverAsk(group(1)));
    assert_eq!((one.sent.len(), one.bus.counters().refused_stranger), (0, 3));
    // Word that this member was forgotten counts once for each wish.
    let here = |by, left| Event::ForgottenHere { by: id(by), left: ms(left) };
    let steps = [
        (2, wish(3, 1, 5), std::vec![], 1),
        (2, wish(3, 1, 5), std::vec![], 2),
        (2, wish(1, 1, 5_000), std::vec![here(2, 5_000)], 2),
        (2, wish(1, 1, 4_000), std::vec![], 2),
        (2, wish(1, 2, u64::MAX), std::vec![here(2, 60_000)], 2),
    ];
    for (number, (from, wish, events, refused)) in steps.into_iter().enumerate() {
        one.hear(from, &Body::Forgotten(wish));
        assert_eq!((&one.events, one.bus.counters().refused_unentitled), (&events, refused), "{number}");
    }
}

#[test]
fn the_wish_that_ended_first_gives_way_unless_its_server_owns_slots() {
    let config = || Config { keep_outs_max: 2, keep_out: Duration::from_secs(3), ..quiet() };
    let kept = |one: &Scripted| one.bus.keep_outs.keys().map(|id| number(*id)).collect::<Vec<_>>();
    let begin = |owner: Option<u8>| {
        let mut one = Scripted::new(config(), &[record(2), record(3), record(4)]);
        owner.into_iter().for_each(|owner| one.news(2, claim(7, owner, 3, &[(0, 9)])));
        one.news(2, News::Forget(wish(3, 1, 2_000)));
        one.news(2, News::Forget(wish(4, 1, 1_000)));
        one
    };
    let mut one = begin(None);
    for refused in 1..=2 {
        one.news(2, News::Forget(wish(9, 1, 3_000)));
        assert_eq!((kept(&one), one.bus.counters().refused_full), (std::vec![3, 4], refused));
    }
    one.news(2, News::Forget(wish(3, 2, 2_500)));
    assert_eq!(one.bus.counters().refused_full, 2, "one that is remembered needs no room");
    one.pass(ms(3_999));
    one.news(2, News::Forget(wish(9, 1, 3_000)));
    assert_eq!(kept(&one), [3, 4], "others may tell of it still");
    one.pass(ms(1));
    one.news(2, News::Forget(wish(9, 1, 3_000)));
    assert_eq!(kept(&one), [3, 9]);
    let mut one = begin(Some(4));
    one.pass(ms(4_999));
    assert_eq!(one.command(Command::Forget { id: id(2) }), Err(CommandError::TooLong));
    one.pass(ms(1));
    assert_eq!(one.command(Command::Forget { id: id(2) }), Ok(()));
    assert_eq!(kept(&one), [2, 4], "an owner's wish stays, and the other one has ended too");
}

#[test]
fn a_commands_wish_has_room_like_any_other() {
    let mut one = Scripted::new(Config { keep_outs_max: 1, ..quiet() }, &[record(2), record(3), record(4)]);
    let forget = |number| Command::Forget { id: id(number) };
    assert_eq!(one.command(forget(1)), Err(CommandError::Oneself));
    assert_eq!(one.command(forget(9)), Err(CommandError::UnknownMember));
    assert_eq!(one.command(forget(3)), Ok(()));
    let [Event::KeptOut { tag, .. }, _] = &one.events[..] else { panic!("{:?}", one.events) };
    assert_ne!(*tag, 0);
    assert_eq!(one.command(forget(3)), Ok(()), "it was wished already");
    assert_eq!(one.command(forget(4)), Err(CommandError::TooLong));
    one.pass(ms(60_000));
    assert_eq!(one.command(forget(3)), Err(CommandError::UnknownMember), "that is over");
    one.member(2, record(3));
    assert_eq!(one.command(forget(3)), Ok(()), "for one that is remembered there is room");
}

#[test]
fn a_ballot_against_a_primary_that_is_back_ends_unless_it_had_failed() {
    use crate::ballot::{Ballot, Phase};
    use crate::packet::Purpose;
    for (failed, purpose, owner, stays) in [
        (false, Purpose::Election, 3, false),
        (true, Purpose::Election, 3, true),
        (false, Purpose::ByHand, 3, true),
        (false, Purpose::Election, 2, true),
    ] {
        let mut one = Scripted::new(quiet(), &[record(2)]);
        one.news(2, claim(7, owner, 3, &[(0, 9)]));
        let now = one.now;
        one.bus.ballots.insert(group(7), Ballot::new(purpose, Epoch(3), Phase::Hearing(now + ms(9_000)), now));
        one.member(2, life(3, 1, 0, 0, failed));
        assert_eq!(one.bus.ballots.contains_key(&group(7)), stays, "{failed} {purpose:?} {owner}");
    }
    let mut one = Scripted::new(quiet(), &[record(2)]);
    one.command(Command::SetVoters { epoch: Epoch(1), voters: [1, 3].map(id).to_vec() }).unwrap();
    [3, 4].into_iter().for_each(|number| one.member(2, record(number)));
    assert_eq!([2, 3, 4].map(|of| one.bus.member(id(of)).unwrap().is_voter), [false, true, false]);
    assert_eq!(one.bus.identity().cluster, CLUSTER);
}
