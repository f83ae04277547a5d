//! Who has a copy, what is promised, and what an attempt to serve looks at.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::{Extent, Members, Promise, PromiseAnswer, Promises, Refused, TakeOver};
use super::{
    Nowhere, SHARD, SHORT, all_restarted, begin_shard, dumped, load, map, map_led_by, map_of_three, members, name,
    promised_to, start, start_in, take_over, term, turn,
};
use crate::cluster::map::{Health, Map, Name, Node, Service};
use crate::replicate::{Follower, Step, Upstream};
use crate::tests::Talk;

#[test]
fn old_and_new_members_have_copies_while_members_change() {
    let towards = |now: &[u8], next: &[u8]| members(now).towards(next.iter().map(|number| name(*number)).collect());
    for (members, all, copies) in [
        (members(&[1, 2, 3]), &[1, 2, 3][..], 3),
        (towards(&[1, 2], &[1, 2, 3]), &[1, 2, 3], 2),
        (towards(&[1, 2, 3], &[3, 4]), &[1, 2, 3, 4], 2),
        (Members::default(), &[], 0),
    ] {
        let all: Vec<Name> = all.iter().map(|number| name(*number)).collect();
        assert_eq!((members.all(), members.copies()), (all.clone(), copies), "{members}");
        assert_eq!((1..=5).map(name).filter(|name| members.has(*name)).collect::<Vec<_>>(), all, "{members}");
    }
}

#[test]
fn what_is_noted_of_a_shard_leaves_its_promise_as_it_is() {
    let (promises, can_keep) = (Promises::default(), Arc::new(AtomicBool::new(true)));
    let keeps = Arc::clone(&can_keep);
    promises.open("", Box::new(move |_| keeps.load(Ordering::Relaxed))).unwrap();
    assert!(promises.note_shard(SHARD));
    assert_eq!(promises.of(SHARD), Some(Promise::default()), "it begins nothing there by itself");
    promises.promise(SHARD, term(3, 1), name(1)).unwrap();
    assert!(promises.note_members(SHARD, &members(&[1, 2])));
    let noted = promises.of(SHARD);
    assert!(promises.note_shard(SHARD));
    assert_eq!(promises.of(SHARD), noted);
    can_keep.store(false, Ordering::Relaxed);
    assert!(promises.note_shard(SHARD) && promises.note_members(SHARD, &members(&[1, 2])), "it was kept before");
    assert!(!promises.note_shard(name(8)) && !promises.note_members(SHARD, &members(&[1])));
    assert_eq!((promises.of(SHARD), promises.of(name(8))), (noted, None), "what cannot be kept does not count");
}

#[test]
fn promises_of_sixteen_shards_are_kept_and_that_of_the_earliest_term_goes_first() {
    let promises = Promises::default();
    let promise = |shard: u8, epoch: u64| {
        promises.promise(name(shard), term(epoch, 1), name(1)).unwrap();
        (1..=18).filter(|number| promises.of(name(*number)).is_some()).collect::<Vec<u8>>()
    };
    let kept: Vec<Vec<u8>> = (1..=16).map(|shard| promise(shard, 40 - u64::from(shard))).collect();
    assert_eq!(kept.last(), Some(&(1..=16).collect()));
    assert_eq!(promise(17, 1), [&(1..=15).collect::<Vec<u8>>()[..], &[17]].concat(), "not the one that is made now");
    assert_eq!(promise(18, 90), [&(1..=15).collect::<Vec<u8>>()[..], &[18]].concat());
}

#[test]
fn a_primary_that_promises_a_later_term_to_another_serves_no_more() {
    let (mut talk, _) = begin_shard(&Arc::default());
    let client = talk.join();
    talk.say(client, "SET foo 1");
    assert!(talk.session_mut(client).is_held());
    assert!(matches!(promised_to(&talk, term(7, 1), name(1)), PromiseAnswer::Promised(Some(_))));
    assert_eq!(talk.engine().replication.serving(), Some(term(7, 1)), "it is its own term");
    assert!(!talk.is_closed(client));
    assert!(matches!(promised_to(&talk, term(8, 1), name(2)), PromiseAnswer::Promised(Some(_))));
    assert_eq!(talk.engine().replication.serving(), None);
    assert!(talk.is_closed(client), "whether that holds is decided elsewhere");
    assert!(talk.say(0, "GET foo").contains("NOREPLICAS"));
}

/// The follower of a member that has just reached its primary.
fn dialling(member: &Talk) -> Follower {
    member.engine().set_network(Box::new(Nowhere));
    let upstream = Upstream::Address { host: "primary".to_owned(), port: 7 };
    member.engine().follow(Some(upstream), member.now());
    let (follower, now) = (Follower::new(member.engine_shared()), member.now());
    assert!(matches!(follower.next_step(now), Step::Dial { .. }));
    follower.handle_connected(Talk::link("127.0.0.1:1"), now);
    turn(&follower, now);
    follower
}

#[test]
fn who_promises_a_term_takes_nothing_more_from_another_process() {
    for (candidate_life, is_kept) in [(1, true), (2, false)] {
        let member = start(2, &Arc::default());
        let (follower, now) = (dialling(&member), member.now());
        follower.handle_bytes(format!("+PONG\r\n+OK\r\n+TERM 7.1 {0} 0 {0}\r\n", name(1)).as_bytes(), now);
        assert!(!turn(&follower, now).1);
        let answer = promised_to(&member, term(8, candidate_life), name(1));
        assert_eq!(answer, PromiseAnswer::Promised(None));
        assert_eq!(follower.next_step(now) != Step::HangUp, is_kept, "life {candidate_life} of the same node");
    }
}

#[test]
fn terms_further_ahead_than_elections_can_have_come_are_refused() {
    let member = start(2, &Arc::default());
    let (epoch, life) = (7 + (1 << 20), 1 << 40);
    for (term, answer) in [
        (term(epoch + 1, 1), PromiseAnswer::Refused(Refused::TermTooHigh)),
        (term(8, life + 1), PromiseAnswer::Refused(Refused::TermTooHigh)),
        (term(8, life), PromiseAnswer::Promised(None)),
        (term(epoch, 1), PromiseAnswer::Promised(None)),
    ] {
        assert_eq!(promised_to(&member, term, name(1)), answer, "{term}");
    }
}

#[test]
fn a_primary_with_slots_makes_sure_before_it_serves_where_the_shard_is_or_is_to_be_in_this_mode() {
    let up = map(1, 7);
    let down = Map::new(name(1), up.nodes().to_vec(), Service { is_up: false, ..*up.service() });
    let empty = up.nodes().iter().map(|node| Node { slots: Vec::new(), ..node.clone() }).collect();
    let empty = Map::new(name(1), empty, *up.service());
    for (setting, is_bound, expected) in [
        ("no", false, [false, false]),
        ("yes", false, [true, false]),
        ("no", true, [true, true]),
        ("yes", true, [true, true]),
    ] {
        let node = start(1, &Arc::default());
        let engine = node.engine();
        engine.configure("replication-quorum", setting).unwrap();
        if is_bound {
            engine.promises.promise(SHARD, term(1, 1), name(2)).unwrap();
        }
        let what = format!("replication-quorum {setting}, bound: {is_bound}");
        assert_eq!([&up, &down].map(|map| engine.must_take_over(map)), expected, "{what}");
        assert!(!engine.must_take_over(&map_led_by(2, 1, 7)) && !engine.must_take_over(&empty), "{what}");
        assert_eq!((engine.has_promised(SHARD), engine.wants_quorum()), (is_bound, expected[0]), "{what}");
        engine.prepare_to_follow(SHARD, node.now());
        assert_eq!(engine.has_promised(SHARD), expected[0], "{what}: it begins nothing there by itself");
    }
    let replica = start(1, &Arc::default());
    replica.engine().configure("replication-quorum", "no").unwrap();
    replica.engine().replication.note_record(term(7, 1), members(&[1, 2]));
    assert!(replica.engine().wants_quorum(), "its data are of this mode");
    let (served, _) = begin_shard(&Arc::default());
    assert_eq!([7, 8].map(|epoch| served.engine().must_take_over(&map(1, epoch))), [false, true]);
}

#[test]
fn an_attempt_asks_the_members_that_were_promised_and_first_those_who_will_probably_answer() {
    let node = start_in(map_of_three(1, 7), &Arc::default());
    assert!(node.engine().promises.note_members(SHARD, &members(&[1, 2, 3, 4])));
    // What data say that may lack something is older than that.
    node.engine().replication.note_record(term(6, 1), members(&[1, 2]));
    for (silent, asked) in [(2, [3, 2]), (3, [2, 3])] {
        let mut nodes = map_of_three(1, 7).nodes().to_vec();
        nodes[silent - 1].health = Health::Suspected;
        let map = Map::new(name(1), nodes, *map_of_three(1, 7).service());
        let round = node.engine().begin_take_over(&map, 1, node.now()).unwrap();
        assert_eq!(round.asked(), asked.map(name), "the fourth is no node of the cluster");
        let promise = node.engine().promises.of(SHARD).unwrap();
        assert_eq!((promise.term, promise.holder), (term(7, 1), name(1)), "it promises to itself");
    }
}

#[test]
fn an_attempt_is_decided_by_a_majority_of_whole_data_or_by_a_later_term() {
    let (first, _) = all_restarted();
    let map = map_of_three(1, 7);
    let begin = || first.engine().begin_take_over(&map, 2, first.now()).unwrap();
    let whole = PromiseAnswer::Promised(Some(Extent { term: term(7, 1), position: 5 }));
    let mut round = begin();
    for (member, answer, is_decided) in [
        (2, PromiseAnswer::Promised(None), false),
        (2, PromiseAnswer::Refused(Refused::OtherShard), false),
        (2, whole, false),
        (2, whole, false),
        (3, PromiseAnswer::Promised(None), false),
        (3, whole, true),
    ] {
        assert!(!round.is_decided());
        round.handle_answer(name(member), answer);
        assert_eq!(round.is_decided(), is_decided, "{member} {answer:?}");
    }
    let mut round = begin();
    for later in [8, 9, 8] {
        round.handle_answer(name(2), PromiseAnswer::Superseded(term(later, 1)));
        assert!(round.is_decided());
    }
    let ended = first.engine().finish_take_over(&map, round, first.now());
    assert_eq!(ended, TakeOver::Superseded(term(9, 1)));
    // This node itself may promise a later term meanwhile.
    let mut round = begin();
    [2, 3].into_iter().for_each(|member| round.handle_answer(name(member), whole));
    assert_eq!(promised_to(&first, term(9, 1), name(3)), PromiseAnswer::Promised(None));
    let ended = first.engine().finish_take_over(&map, round, first.now());
    assert_eq!(ended, TakeOver::Superseded(term(9, 1)));
    // Where the members are not known, whoever answers later may know them.
    let node = start_in(map_of_three(1, 7), &Arc::default());
    node.engine().prepare_to_follow(SHARD, node.now());
    let mut round = node.engine().begin_take_over(&map, 1, node.now()).unwrap();
    round.handle_answer(name(2), whole);
    assert!(!round.is_decided());
}

#[test]
fn who_has_less_than_another_member_takes_that_over_before_it_serves() {
    let (mut former, _) = begin_shard(&Arc::default());
    let shorter = dumped(former.engine());
    former.say(0, "SET bar 1");
    let longer = dumped(former.engine());
    for (own, others, is_done) in [(&shorter, &longer, false), (&longer, &shorter, true)] {
        let (node, member) = (start(1, &Arc::default()), start(2, &Arc::default()));
        node.engine().set_network(Box::new(Nowhere));
        assert!(node.engine().promises.note_members(SHARD, &members(&[1, 2])));
        load(&node, own);
        load(&member, others);
        let ended = take_over(&node, &map(1, 8), 1, &[member]);
        assert_eq!(ended == TakeOver::Done, is_done, "{ended:?}");
        assert_eq!(node.engine().replication.serving().is_some(), is_done);
    }
}

#[test]
fn who_follows_another_does_not_begin_the_shard_with_its_own_data() {
    let all = map(1, 7);
    let alone = Map::new(name(1), vec![all.own().clone()], *all.service());
    let node = start_in(alone.clone(), &Arc::default());
    node.engine().follow(Some(Upstream::Address { host: "primary".to_owned(), port: 7 }), node.now());
    assert!(node.engine().begin_take_over(&alone, 1, node.now()).is_ok_and(|round| round.asked().is_empty()));
    assert_eq!(node.engine().replication.serving(), None);
}

#[test]
fn a_process_that_has_served_a_term_does_not_begin_the_shard_anew_in_it() {
    let (mut talk, _) = begin_shard(&Arc::default());
    // It follows another for a while, and loses its data to a dump that does not come.
    talk.engine().follow(Some(Upstream::Address { host: "primary".to_owned(), port: 7 }), talk.now());
    assert!(talk.engine().replication.forget(talk.engine().role.turn()));
    assert_eq!(take_over(&talk, &map(1, 7), 1, &[]), SHORT);
    let why = talk.engine().take_over_waits_for().unwrap();
    assert!(why.contains("too few members"), "{why}");
    let reply = talk.say(0, "CLUSTER BEGINSHARD");
    assert!(reply.contains("has served term 7.1 before"), "{reply}");
    assert_eq!(take_over(&talk, &map(1, 7), 2, &[]), SHORT);
    assert_eq!(talk.say(0, "CLUSTER BEGINSHARD"), "OK");
}

#[test]
fn data_without_a_record_are_of_no_term() {
    let node = start(1, &Arc::default());
    node.engine().replication.catch_up_at(0);
    assert_eq!(node.engine().replication.extent(), (None, Members::default()));
    node.engine().replication.note_record(term(7, 1), members(&[1]));
    let extent = Extent { term: term(7, 1), position: node.engine().replication.end() };
    assert_eq!(node.engine().replication.extent(), (Some(extent), members(&[1])));
}

#[test]
fn who_serves_no_term_is_followed_only_where_the_shard_has_none() {
    let term_of_shard = format!("+TERM 7.1 {0} 0 {0}", name(1));
    for (is_bound, mandate, is_followed) in [
        (false, "+ASYNC", true),
        (false, "-ERR what is that", true),
        (true, "+ASYNC", false),
        (true, term_of_shard.as_str(), true),
        (false, "+TERM nonsense", false),
        (false, "-STALETERM 8.1", false),
        (false, "-NOMASTERLINK not now", false),
    ] {
        let member = start(2, &Arc::default());
        if is_bound {
            assert!(member.engine().promises.note_members(SHARD, &members(&[1, 2])));
        }
        let (follower, now) = (dialling(&member), member.now());
        follower.handle_bytes(format!("+PONG\r\n+OK\r\n{mandate}\r\n").as_bytes(), now);
        assert_eq!(!turn(&follower, now).1, is_followed, "{mandate}");
    }
}
