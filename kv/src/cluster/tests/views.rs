//! What a map says, which slots are on their way, and what becomes of orders.

use std::sync::Arc;

use super::{ONE, Orders, REPLICA, TWO, map, node, nodes, talk, talk_with};
use crate::cluster::Move;
use crate::cluster::control::Order;
use crate::cluster::map::{Health, Map, Name, Node, Service, SlotRange};
use crate::cluster::moves::Moves;
use crate::cluster::orders::Renewal;
use crate::cluster::route::{self, Astray};
use crate::keyspace::Slot;
use crate::replicate::quorum::TakeOver;
use crate::replicate::{Follower, Point, Step, Upstream};
use crate::tests::{Talk, check_with};
use crate::time::Now;

const LOST: Name = Name::new([0x44; 20]);

fn range(first: u16, last: u16) -> SlotRange {
    SlotRange::new(first, last).unwrap()
}

fn slot(number: u16) -> Slot {
    Slot::new(number).unwrap()
}

#[test]
fn a_map_tells_who_owns_a_slot_and_who_has_its_data() {
    let mut all = nodes();
    all[0].slots = vec![range(0, 99), range(200, 8_191)];
    // The primary of the last is not known.
    all.push(Node { primary: Some(Name::new([0x55; 20])), ..node(LOST, 7004, None) });
    let one = map(ONE, all.clone());
    let runs: Vec<_> = one.runs().map(|(range, node)| (range, node.name)).collect();
    assert_eq!(runs, [(range(0, 99), ONE), (range(200, 8_191), ONE), (range(8_192, 16_383), TWO)]);
    assert_eq!((one.slots_assigned(), one.shards_with_slots(), one.nodes().len()), (16_284, 2, 4));
    assert_eq!([ONE, TWO, REPLICA].map(|name| one.node(name).unwrap().slot_count()), [8_092, 8_192, 0]);
    assert_eq!(one.replicas(ONE).map(|node| node.name).collect::<Vec<_>>(), [REPLICA]);
    assert!(one.replicas(TWO).next().is_none() && one.node(Name::default()).is_none());
    let slots = [0, 150, 9_000].map(slot);
    assert_eq!(slots.map(|slot| one.owner(slot).map(|owner| owner.name)), [Some(ONE), None, Some(TWO)]);
    for (own, is_replica, holds, serves) in [
        (ONE, false, [true, false, false], [true, false, false]),
        (TWO, false, [false, false, true], [false, false, true]),
        (REPLICA, true, [false; 3], [true, false, false]),
        (LOST, true, [false; 3], [false; 3]),
    ] {
        let map = map(own, all.clone());
        assert_eq!((map.own().name, map.own().is_replica()), (own, is_replica));
        assert_eq!((slots.map(|slot| map.holds(slot)), slots.map(|slot| map.serves(slot))), (holds, serves), "{own}");
    }
    let alone = Map::alone(all[0].clone());
    assert!(!alone.service().is_up && alone.holds(slot(0)) && alone.owner(slot(9_000)).is_none());
}

#[test]
fn slots_are_gathered_into_ranges_that_do_not_touch() {
    let gathered = SlotRange::gather([0, 1, 3, 5, 6, 7, 9, 16_383]);
    let shown: Vec<String> = gathered.iter().map(SlotRange::to_string).collect();
    assert_eq!(shown, ["0-1", "3", "5-7", "9", "16383"]);
    assert!(SlotRange::gather([]).is_empty());
    assert_eq!(gathered.iter().flat_map(|range| range.numbers()).collect::<Vec<_>>(), [0, 1, 3, 5, 6, 7, 9, 16_383]);
    assert_eq!((SlotRange::new(5, 4), SlotRange::new(0, 16_384)), (None, None));
    assert_eq!(SlotRange::all(), range(0, 16_383));
}

#[test]
fn only_what_concerns_clients_makes_maps_differ_in_service() {
    let before = map(ONE, nodes());
    let with = |change: fn(&mut Vec<Node>)| {
        let mut changed = nodes();
        change(&mut changed);
        map(ONE, changed)
    };
    for (what, after, differs) in [
        ("nothing", map(ONE, nodes()), false),
        ("figures", with(|nodes| (nodes[1].offset, nodes[1].health) = (77, Health::Suspected)), false),
        ("the role of another", with(|nodes| nodes[2].primary = Some(TWO)), false),
        ("another node's view", map(TWO, nodes()), true),
        ("the own role", with(|nodes| nodes[0].primary = Some(TWO)), true),
        ("the service", Map::new(ONE, nodes(), Service { epoch: 7_002, ..Service::default() }), true),
        ("the last slot's owner", with(|nodes| nodes[1].slots = vec![range(8_192, 16_382)]), true),
        ("another primary", with(|nodes| nodes[0].slots = vec![range(1, 8_191)]), true),
    ] {
        assert_eq!([before.differs_in_service(&after), after.differs_in_service(&before)], [differs; 2], "{what}");
    }
}

#[test]
fn a_slot_is_on_its_way_until_it_has_arrived_or_the_other_end_is_gone() {
    let moves = Moves::default();
    assert!(!moves.is_any() && moves.all().is_empty() && moves.of(slot(1)).is_none());
    for (number, way) in [
        (1, Move::To(TWO)),
        (2, Move::To(LOST)),
        (3, Move::From(TWO)),
        (9_000, Move::From(TWO)),
        (9_001, Move::From(LOST)),
        (9_002, Move::To(TWO)),
    ] {
        moves.begin(slot(number), way);
        assert!(moves.is_any() && moves.of(slot(number)) == Some(way));
    }
    for own in [ONE, REPLICA] {
        moves.settle(&map(own, nodes()));
        assert_eq!(moves.all(), [(1, Move::To(TWO)), (9_000, Move::From(TWO))], "{own} has the data of slots to 8191");
    }
    moves.end(slot(1));
    assert!(moves.is_any() && moves.of(slot(1)).is_none());
    moves.end(slot(9_000));
    assert!(!moves.is_any());
}

#[test]
fn a_slot_that_was_taken_from_a_lost_node_may_be_claimed_until_that_is_back() {
    let mut lost = nodes();
    lost[1].health = Health::Failed;
    let (lost, back) = (map(ONE, lost), map(ONE, nodes()));
    let moves = Moves::default();
    assert!(!moves.is_left(slot(9_000), &lost));
    moves.leave(slot(9_000));
    assert_eq!([9_000, 9_000, 9_001, 1].map(|number| moves.is_left(slot(number), &lost)), [true, true, false, false]);
    assert!(!moves.is_left(slot(9_000), &back));
    assert!(!moves.is_left(slot(9_000), &lost), "it is to be said anew");
}

#[test]
fn what_has_become_of_an_order_is_told_once_and_claims_are_renewed_again_and_again() {
    let orders = Orders { are_late: true, ..Orders::default() };
    let tickets = Arc::clone(&orders.tickets);
    let later = talk_with(ONE, orders);
    let cluster = later.engine().cluster().unwrap();
    let [first, second] = [(); 2].map(|()| cluster.submit(Order::Renew, None).unwrap_err());
    let finish = |ticket, outcome| later.engine().finish_order(ticket, &outcome, later.now());
    finish(first, Err("not now".to_owned()));
    assert!(cluster.orders.is_done(first) && !cluster.orders.is_done(second));
    assert_eq!(cluster.orders.take(first), Err("not now".to_owned()));
    assert!(cluster.orders.is_done(first), "nobody will tell more of it");
    for ticket in [first, second] {
        assert!(cluster.orders.take(ticket).unwrap_err().contains("in time"), "it is given up");
    }
    let mut renewal = Renewal::default();
    for outcome in [Ok(()), Err("lost".to_owned()), Ok(())] {
        let before = tickets.lock().unwrap().len();
        assert_eq!([(); 3].map(|()| renewal.poll(cluster)), [None, None, None]);
        let given = tickets.lock().unwrap().clone();
        assert_eq!(given.len(), before + 1, "one order until that is decided");
        finish(given[before], outcome.clone());
        assert_eq!(renewal.poll(cluster), Some(outcome));
    }
    let at_once = talk(ONE).0;
    assert_eq!(Renewal::default().poll(at_once.engine().cluster().unwrap()), Some(Ok(())));
}

#[test]
fn who_waits_for_a_key_goes_on_waiting_where_its_slot_is_or_comes() {
    let mut all = nodes();
    all[1].slots = vec![range(8_193, 16_383)];
    let (talk, _) = talk(ONE);
    let cluster = talk.engine().cluster().unwrap();
    cluster.moves.begin(slot(9_000), Move::From(TWO));
    let down = Map::new(ONE, nodes(), Service::default());
    let moved = |number| Err(Astray::Moved(slot(number)));
    for (map, number, reads, expected) in [
        (&map(ONE, all.clone()), 1, false, Ok(())),
        (&map(ONE, all.clone()), 8_192, false, Err(Astray::Unserved)),
        (&map(ONE, all.clone()), 9_000, false, Ok(())),
        (&map(ONE, all.clone()), 9_001, true, moved(9_001)),
        (&map(REPLICA, all.clone()), 1, true, Ok(())),
        (&map(REPLICA, all.clone()), 1, false, moved(1)),
        (&down, 1, true, Err(Astray::Down)),
    ] {
        assert_eq!(
            route::of_waiting(cluster, map, slot(number), reads),
            expected,
            "{} {number} {reads}",
            map.own().name
        );
    }
}

#[test]
fn a_slot_that_comes_is_served_at_a_replica_only_to_readers_who_were_sent() {
    let (mut talk, _) = talk(REPLICA);
    talk.engine().cluster().unwrap().moves.begin(Slot::of(b"foo"), Move::From(TWO));
    check_with(
        &mut talk,
        "a replica",
        "> ASKING
        OK
        > GET foo
        (error) MOVED 12182 10.0.0.1:7002
        > RESTORE-ASKING foo 0 x
        (error) MOVED 12182 10.0.0.1:7002
        > READONLY
        OK
        > GET foo
        (error) MOVED 12182 10.0.0.1:7002
        > MIGRATE 10.0.0.2 7002 foo 0 100
        (error) MOVED 12182 10.0.0.1:7002
        > ASKING
        OK
        > GET foo
        (nil)",
    );
    let mut primary = super::talk(ONE).0;
    primary.engine().cluster().unwrap().moves.begin(Slot::of(b"foo"), Move::From(TWO));
    for line in ["RESTORE-ASKING foo 0 x", "MIGRATE 10.0.0.2 7002 foo 0 100"] {
        let reply = primary.say(0, line);
        assert!(!reply.contains("MOVED"), "it is about a slot on its way: {reply}");
    }
}

#[test]
fn calls_about_a_slot_that_leaves_run_where_it_is_known_that_all_their_keys_are() {
    let (mut source, _) = talk(ONE);
    check_with(
        &mut source,
        "source",
        "> MSET {bar}here 1 {bar}two 2
        OK
        > CLUSTER SETSLOT 5061 MIGRATING 2222222222222222222222222222222222222222
        OK
        > MGET {bar}here {bar}two
        [\"1\" \"2\"]
        > MGET {bar}gone {bar}other
        (error) ASK 5061 10.0.0.1:7002
        > COPY {bar}here {bar}two DB 1 REPLACE
        (error) TRYAGAIN Multiple keys request during rehashing of slot
        > COPY {bar}here {bar}two REPLACE DB 1
        (error) TRYAGAIN Multiple keys request during rehashing of slot
        > COPY {bar}here {bar}two DB 0 REPLACE
        1
        > COPY {bar}here {bar}two REPLACE
        1
        > COPY {bar}here {bar}two DB
        (error) ERR syntax error
        > SPUBLISH {bar}channel x
        0
        > MULTI
        OK
        > SELECT 1
        QUEUED
        > GET {bar}here
        QUEUED
        > EXEC
        (error) ASK 5061 10.0.0.1:7002
        > MULTI
        OK
        > SELECT 2
        QUEUED
        > GET {bar}here
        QUEUED
        > EXEC
        [(error) ERR DB index is out of range \"1\"]
        > MULTI
        OK
        > SELECT 1
        QUEUED
        > SELECT 0
        QUEUED
        > GET {bar}here
        QUEUED
        > EXEC
        [OK OK \"1\"]
        > MULTI
        OK
        > GET {bar}gone
        QUEUED
        > MIGRATE 10.0.0.2 7002 {bar}here 0 100
        QUEUED
        > EXEC
        (error) TRYAGAIN Multiple keys request during rehashing of slot",
    );
    let reply = source.say(0, "MIGRATE 10.0.0.2 7002 {bar}gone 0 100");
    assert!(!reply.contains("ASK"), "{reply}");
}

#[test]
fn calls_about_several_keys_of_a_slot_that_comes_run_once_all_are_here() {
    check_with(
        &mut talk(TWO).0,
        "target",
        "> CLUSTER SETSLOT 5061 IMPORTING 1111111111111111111111111111111111111111
        OK
        > ASKING
        OK
        > MGET {bar}no {bar}no
        [(nil) (nil)]
        > ASKING
        OK
        > MGET {bar}no {bar}no {bar}other
        (error) TRYAGAIN Multiple keys request during rehashing of slot",
    );
}

#[test]
fn messages_may_be_forbidden_while_the_cluster_is_down() {
    let (mut talk, _) = talk(ONE);
    assert_eq!(talk.say(0, "MULTI"), "OK");
    for line in ["GET bar", "SPUBLISH bar x", "GET bar"] {
        assert_eq!(talk.say(0, line), "QUEUED");
    }
    talk.engine().set_map(Map::new(ONE, nodes(), Service::default()), talk.now());
    assert_eq!(talk.say(0, "EXEC"), "[(nil) 0 (nil)]", "it is about channels as well");
    check_with(
        &mut talk,
        "down",
        "> SPUBLISH bar x
        0
        > CONFIG SET cluster-allow-pubsubshard-when-down no cluster-allow-reads-when-down yes
        OK
        > SPUBLISH bar x
        (error) CLUSTERDOWN The cluster is down
        > GET bar
        (nil)",
    );
}

#[test]
fn clients_are_told_of_nodes_as_it_is_configured() {
    let (mut talk, _) = talk(ONE);
    for (kind, host, place) in [
        ("ip", "", "10.0.0.1:7002"),
        ("hostname", "", "?:7002"),
        ("hostname", "two.example", "two.example:7002"),
        ("unknown-endpoint", "two.example", ":7002"),
        ("ip", "two.example", "10.0.0.1:7002"),
    ] {
        let mut all = nodes();
        all[1].place.hostname = host.to_owned();
        talk.engine().set_map(map(ONE, all), talk.now());
        assert_eq!(talk.say(0, &format!("CONFIG SET cluster-preferred-endpoint-type {kind}")), "OK");
        assert_eq!(talk.say(0, "GET foo"), format!("(error) MOVED 12182 {place}"), "{kind}");
    }
}

#[test]
fn who_waits_to_take_over_its_own_shard_sends_clients_to_others() {
    let (mut talk, _) = talk(REPLICA);
    talk.engine().configure("replication-quorum", "yes").unwrap();
    talk.engine().prepare_to_follow(ONE, talk.now());
    let mut all = nodes();
    all[0] = Node { primary: Some(REPLICA), shard: ONE, ..node(ONE, 7001, None) };
    all[2] = Node { shard: ONE, ..node(REPLICA, 7003, Some((0, 8_191))) };
    let claimed = map(REPLICA, all);
    let round = talk.engine().begin_take_over(&claimed, 1, talk.now()).unwrap();
    assert!(matches!(talk.engine().finish_take_over(&claimed, round, talk.now()), TakeOver::Waits(_)));
    let told = talk.say(0, "GET bar");
    assert!(told.starts_with("(error) CLUSTERDOWN Hash slot not served: this node has yet to take it over"), "{told}");
    assert_eq!(talk.say(0, "GET foo"), "(error) MOVED 12182 10.0.0.1:7002");
}

/// What a follower has to say now.
fn sent(follower: &Follower, now: Now) -> String {
    let mut sent = Vec::new();
    while let Step::Send(bytes) = follower.next_step(now) {
        sent.extend(bytes);
    }
    String::from_utf8(sent).unwrap()
}

/// How a follower introduces itself to a primary that answers.
fn introduction(follower: &Follower, now: Now) -> String {
    assert!(matches!(follower.next_step(now), Step::Dial { .. }));
    follower.handle_connected(Talk::link("127.0.0.1:1"), now);
    sent(follower, now);
    follower.handle_bytes(b"+PONG\r\n", now);
    sent(follower, now)
}

/// Data that the primary may lack are kept aside before its dump replaces them.
#[test]
fn only_a_primary_that_says_so_contains_the_data_of_who_follows_it() {
    for (to_port, to_contents, is_kept) in [("+OK", "+YES", false), ("+YES", "+NO", true), ("+OK", "-ERR what", true)] {
        let (mut talk, _) = talk(ONE);
        let client = talk.join();
        talk.say(client, "SET bar 1");
        let (engine, now, history) = (talk.engine_shared(), talk.now(), "ab".repeat(20));
        engine.restore_point(&Point { history: history.clone(), position: 1_000, database: None }, now);
        engine.follow(Some(Upstream::Address { host: "10.0.0.9".into(), port: 7_009 }), now);
        let follower = Follower::new(Arc::clone(&engine));
        let introduced = introduction(&follower, now);
        assert!(introduced.contains("ASHLAR-HAS") && introduced.contains(&history), "{introduced}");
        // Of the name that its data have had since they were restored the primary knows nothing.
        let answers = format!("{to_port}\r\n+ASYNC\r\n{to_contents}\r\n+NO\r\n+OK\r\n+OK\r\n");
        follower.handle_bytes(answers.as_bytes(), now);
        assert!(sent(&follower, now).contains("PSYNC"));
        follower.handle_bytes(format!("+FULLRESYNC {} 5\r\n", "cd".repeat(20)).as_bytes(), now);
        assert_eq!(engine.aside().next(), is_kept, "{to_port} {to_contents}");
    }
}

/// Its successor may have copied its data under the name that they had while it was primary, though nothing was written then.
#[test]
fn who_was_primary_for_a_while_goes_on_under_either_name_of_its_history() {
    for (answers, goes_on_as) in [(["+YES", "+NO"], 0), (["+NO", "+YES"], 1), (["+YES", "+YES"], 0)] {
        let (mut talk, _) = talk(ONE);
        let client = talk.join();
        talk.say(client, "SET bar 1");
        let (engine, now, before) = (talk.engine_shared(), talk.now(), "ab".repeat(20));
        engine.restore_point(&Point { history: before.clone(), position: 1_000, database: None }, now);
        let upstream = || Some(Upstream::Address { host: "10.0.0.9".into(), port: 7_009 });
        engine.follow(upstream(), now);
        engine.follow(None, now);
        let meanwhile = engine.identity.history();
        engine.follow(upstream(), now);
        let follower = Follower::new(Arc::clone(&engine));
        let introduced = introduction(&follower, now);
        assert!(introduced.find(&before) < introduced.find(&meanwhile), "{introduced}");
        let [first, second] = answers;
        follower.handle_bytes(format!("+OK\r\n+ASYNC\r\n{first}\r\n{second}\r\n+OK\r\n+OK\r\n").as_bytes(), now);
        let asked = sent(&follower, now);
        let name = [&before, &meanwhile][goes_on_as];
        assert!(asked.contains(&format!("PSYNC\r\n$40\r\n{name}\r\n$4\r\n1001\r\n")), "{asked}");
        let now_called = "cd".repeat(20);
        follower.handle_bytes(format!("+CONTINUE {now_called}\r\n").as_bytes(), now);
        assert_eq!((engine.identity.history(), engine.aside().next()), (now_called, false));
    }
}
