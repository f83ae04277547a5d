//! Conversations with a node of a cluster of two primaries and a replica. `bar` is in slot 5061, `foo` in 12182.

mod views;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ashlar_wire::time::Instant;

use super::control::{Control, MessageFigures, Order, Ticket};
use super::map::{Health, Map, Name, Node, Place, Service, SlotRange};
use super::route;
use crate::client::Mailbox;
use crate::command::run;
use crate::engine::{Engine, EngineConfig};
use crate::keyspace::Lock;
use crate::memory::hash_key::HASH_KEY_BYTES;
use crate::replicate::Upstream;
use crate::replicate::quorum::TakeOver;
use crate::replicate::role::{LinkState, WholeCopy};
use crate::resp::Request;
use crate::session::Session;
use crate::tests::{Talk, check_with, readable};
use crate::time::Now;

const ONE: Name = Name::new([0x11; 20]);
const TWO: Name = Name::new([0x22; 20]);
const REPLICA: Name = Name::new([0x33; 20]);

/// Takes every order and message, and does nothing.
#[derive(Debug, Default)]
struct Orders {
    orders: Arc<Mutex<Vec<Order>>>,
    messages: Arc<Mutex<Vec<String>>>,
    /// The orders' tickets.
    tickets: Arc<Mutex<Vec<Ticket>>>,
    /// What becomes of them is told later.
    are_late: bool,
    /// When the service ends, unless it goes on for good.
    serves_until: Arc<Mutex<Option<Instant>>>,
}

impl Control for Orders {
    fn order(&self, order: Order, ticket: Ticket) -> Option<Result<(), String>> {
        self.orders.lock().unwrap().push(order);
        self.tickets.lock().unwrap().push(ticket);
        (!self.are_late).then_some(Ok(()))
    }

    fn publish(&self, channel: &[u8], message: &[u8], is_sharded: bool) {
        let [channel, message] = [channel, message].map(String::from_utf8_lossy);
        self.messages.lock().unwrap().push(format!("{channel} {message} {is_sharded}"));
    }

    fn listens(&self) {
        self.messages.lock().unwrap().push("listens".into());
    }

    fn message_figures(&self) -> MessageFigures {
        MessageFigures { sent: 3, dropped: 1, ..MessageFigures::default() }
    }

    fn serves_until(&self) -> Instant {
        self.serves_until.lock().unwrap().unwrap_or(Instant::NEVER)
    }
}

fn node(name: Name, port: u16, slots: Option<(u16, u16)>) -> Node {
    Node {
        name,
        shard: name,
        place: Place { host: "10.0.0.1".into(), port, bus_port: port + 10_000, ..Place::default() },
        epoch: u64::from(port),
        is_connected: true,
        offset: 9,
        slots: slots.and_then(|(first, last)| SlotRange::new(first, last)).into_iter().collect(),
        ..Node::default()
    }
}

fn nodes() -> Vec<Node> {
    let replica = Node { primary: Some(ONE), shard: ONE, epoch: 7001, ..node(REPLICA, 7003, None) };
    vec![node(ONE, 7001, Some((0, 8_191))), node(TWO, 7002, Some((8_192, 16_383))), replica]
}

fn map(own: Name, nodes: Vec<Node>) -> Map {
    Map::new(own, nodes, Service { is_up: true, epoch: 7_002, ..Service::default() })
}

/// A client of the node of this name, and the orders that it gets.
fn talk(own: Name) -> (Talk, Arc<Mutex<Vec<Order>>>) {
    let orders = Orders::default();
    let given = Arc::clone(&orders.orders);
    (talk_with(own, orders), given)
}

fn talk_with(own: Name, orders: Orders) -> Talk {
    let engine = Engine::new(&EngineConfig { secret: [3; HASH_KEY_BYTES], shards: 8, databases: 2 });
    engine.join_cluster(map(own, nodes()), Box::new(orders));
    Talk::with(Arc::new(engine))
}

fn check(own: Name, conversation: &str) {
    check_with(&mut talk(own).0, &own.to_string(), conversation);
}

#[test]
fn who_knows_no_members_of_its_shard_serves_no_term() {
    let (talk, _) = talk(ONE);
    talk.engine().configure("replication-quorum", "yes").unwrap();
    // It was told to follow somebody of its shard, and whoever knew more is gone.
    talk.engine().prepare_to_follow(ONE, talk.now());
    talk.engine().replication.catch_up_at(0);
    let map = map(ONE, nodes());
    let round = talk.engine().begin_take_over(&map, 1, talk.now()).unwrap();
    let ended = talk.engine().finish_take_over(&map, round, talk.now());
    assert!(matches!(ended, TakeOver::Waits(_)), "nobody could commit what it would serve: {ended:?}");
    assert!(talk.engine().must_take_over(&map));
    assert_eq!(talk.engine().replication.serving(), None);
}

/// Follows a primary of shard `of` with a whole copy, hears of it for the last time, and is told to follow one of shard `to` after
/// `silence_s`. Whether its data are kept aside before they are replaced.
fn keeps_aside(of: Name, to: Name, silence_s: u64) -> bool {
    let (mut talk, _) = talk(ONE);
    let client = talk.join();
    talk.say(client, "SET bar 1");
    let engine = talk.engine_shared();
    engine.follow(Some(Upstream::Address { host: "10.0.0.9".into(), port: 7_009 }), talk.now());
    let heard = talk.now().instant;
    engine.role.note(engine.role.turn(), |view| {
        (view.state, view.copy) = (LinkState::Connected, Some(WholeCopy { shard: Some(of), heard }));
    });
    let later = Now { instant: heard + Duration::from_secs(silence_s), ..talk.now() };
    engine.prepare_to_follow(to, later);
    engine.consider_aside(false);
    engine.aside().next()
}

#[test]
fn a_current_copy_of_a_shard_that_is_left_is_not_kept_aside() {
    assert!(!keeps_aside(ONE, TWO, 1), "the primary of its former shard has it");
    assert!(keeps_aside(ONE, TWO, 60), "that primary has been silent: it may be lost, and this the last copy");
    assert!(keeps_aside(ONE, ONE, 1), "another primary of the same shard may lack a part of it");
}

#[test]
fn names_are_read_as_they_are_written() {
    assert_eq!(Name::read(ONE.to_string().as_bytes()), Some(ONE));
    for wrong in ["", "11", &"1".repeat(41), &"G".repeat(40), &"A".repeat(40), &"é".repeat(20)] {
        assert_eq!(Name::read(wrong.as_bytes()), None, "{wrong}");
    }
}

#[test]
fn of_two_owners_the_one_with_the_greater_epoch_stands() {
    let mut nodes = nodes();
    nodes[0].slots = vec![SlotRange::all()];
    let map = map(ONE, nodes);
    let runs: Vec<_> = map.runs().map(|(range, node)| (range.to_string(), node.name)).collect();
    assert_eq!(runs, [("0-8191".to_owned(), ONE), ("8192-16383".to_owned(), TWO)]);
    assert_eq!(map.slots_assigned(), 16_384);
}

#[test]
fn keys_of_other_nodes_are_asked_for_there() {
    check(
        ONE,
        "> SET bar 1
        OK
        > GET foo
        (error) MOVED 12182 10.0.0.1:7002
        > MGET bar foo
        (error) CROSSSLOT Keys in request don't hash to the same slot
        > MSETEX 2 bar a foo b
        (error) CROSSSLOT Keys in request don't hash to the same slot
        > MSETEX 2 bar a foo
        (error) ERR syntax error
        > MSET {bar}1 a {bar}2 b
        OK
        > PING
        PONG
        > DBSIZE
        3
        > EVAL \"return redis.call('GET', KEYS[1])\" 1 foo
        (error) MOVED 12182 10.0.0.1:7002
        > EVAL \"return redis.pcall('GET', 'foo')\" 1 bar
        (error) ERR Attempted to access a non local key in a cluster node
        > SPUBLISH foo x
        (error) MOVED 12182 10.0.0.1:7002
        > SSUBSCRIBE foo
        (error) MOVED 12182 10.0.0.1:7002
        > SWAPDB 0 1
        (error) ERR SWAPDB is not allowed in cluster mode
        > REPLICAOF 127.0.0.1 1
        (error) ERR REPLICAOF not allowed in cluster mode.
        > CLUSTER KEYSLOT foo
        12182",
    );
}

#[test]
fn a_transaction_runs_in_one_slot() {
    check(
        ONE,
        "> MULTI
        OK
        > SET bar 1
        QUEUED
        > SET {bar}x 2
        QUEUED
        > EXEC
        [OK OK]
        > MULTI
        OK
        > SET foo 1
        (error) MOVED 12182 10.0.0.1:7002
        > EXEC
        (error) EXECABORT Transaction discarded because of previous errors.
        > MULTI
        OK
        > SET bar 1
        QUEUED
        > SET b 1
        QUEUED
        > EXEC
        (error) CROSSSLOT Keys in request don't hash to the same slot
        > MULTI
        OK
        > CLUSTER DELSLOTS 5
        QUEUED
        > GET bar
        QUEUED
        > EXEC
        [(error) ERR the cluster cannot be changed within a script, or a transaction that has keys \"1\"]
        > EVAL \"return redis.pcall('CLUSTER', 'DELSLOTS', '5')\" 0
        (error) ERR the cluster cannot be changed within a script, or a transaction that has keys
        > MULTI
        OK
        > CLUSTER ADDSLOTS 5
        QUEUED
        > CLUSTER DELSLOTS 5
        QUEUED
        > CLUSTER SETSLOT 5 STABLE
        QUEUED
        > CLUSTER BUMPEPOCH
        QUEUED
        > EXEC
        [(error) ERR Slot 5 is already busy OK OK STILL 7001]",
    );
}

#[test]
fn a_replica_is_read_by_those_who_say_so() {
    check(
        REPLICA,
        "> GET bar
        (error) MOVED 5061 10.0.0.1:7001
        > READONLY
        OK
        > GET bar
        (nil)
        > SET bar 1
        (error) MOVED 5061 10.0.0.1:7001
        > GET foo
        (error) MOVED 12182 10.0.0.1:7002
        > READWRITE
        OK
        > GET bar
        (error) MOVED 5061 10.0.0.1:7001",
    );
}

#[test]
fn a_transaction_that_writes_does_not_run_at_a_primary_that_has_become_a_replica() {
    for calls in [["GET bar", "SET bar 1"], ["SET bar 1", "GET bar"]] {
        let (mut talk, _) = talk(ONE);
        assert_eq!(talk.say(0, "READONLY"), "OK");
        assert_eq!(talk.say(0, "MULTI"), "OK");
        calls.iter().for_each(|call| assert_eq!(talk.say(0, call), "QUEUED"));
        let mut after = nodes();
        (after[2].primary, after[2].slots) = (None, std::mem::take(&mut after[0].slots));
        after[0].primary = Some(REPLICA);
        talk.engine().set_map(map(ONE, after), talk.now());
        assert_eq!(talk.say(0, "EXEC"), "(error) MOVED 5061 10.0.0.1:7003", "{calls:?}");
        assert_eq!(talk.say(0, "GET bar"), "(nil)", "it is read here");
    }
}

/// A replica whose primary has paused for it, and clients of which one waits for that.
fn successor() -> Talk {
    let mut talk = talk(REPLICA).0;
    let until = talk.now().instant + Duration::from_secs(5);
    talk.engine().expect_slots(Some(until));
    check_with(
        &mut talk,
        "successor",
        "> SET bar 1
        1> SET foo 1
        (error) MOVED 12182 10.0.0.1:7002
        1> MGET bar foo
        (error) CROSSSLOT Keys in request don't hash to the same slot
        1> MULTI
        OK
        1> GET bar",
    );
    talk
}

#[test]
fn who_would_be_sent_to_a_primary_that_goes_waits_at_its_successor() {
    let mut talk = successor();
    let mut after = nodes();
    after[0] = Node { primary: Some(REPLICA), shard: ONE, ..node(ONE, 7001, None) };
    after[2] = Node { shard: ONE, ..node(REPLICA, 7003, Some((0, 8_191))) };
    talk.engine().set_map(map(REPLICA, after), talk.now());
    check_with(&mut talk, "has taken over", "0?\n OK\n 1?\n QUEUED\n 1> EXEC\n [\"1\"]");
    talk.engine().expect_slots(None);
    assert!(!talk.engine().migration.hold.is_on());
}

#[test]
fn who_waits_at_a_successor_is_sent_on_when_it_is_none() {
    let mut talk = successor();
    let mut after = nodes();
    after.push(Node { shard: ONE, epoch: 7_004, ..node(Name::new([0x44; 20]), 7004, Some((0, 8_191))) });
    talk.engine().set_map(map(REPLICA, after), talk.now());
    check_with(&mut talk, "another has", "0?\n (error) MOVED 5061 10.0.0.1:7004");
    let mut talk = successor();
    talk.engine().expect_slots(None);
    check_with(&mut talk, "the primary stays", "0?\n (error) MOVED 5061 10.0.0.1:7001");
    let mut talk = successor();
    // Nothing is heard any more: it looks from time to time.
    for _ in 0..4 {
        talk.wait(1_100);
        assert_eq!(readable(&talk.mail(0)), "", "it waits still");
    }
    talk.wait(1_100);
    assert_eq!(readable(&talk.mail(0)), "(error) MOVED 5061 10.0.0.1:7001");
}

#[test]
fn a_slot_that_leaves_is_asked_for_at_the_other_end() {
    let (mut source, _) = talk(ONE);
    check_with(
        &mut source,
        "source",
        "> SET {bar}here 1
        OK
        > CLUSTER SETSLOT 5061 MIGRATING 2222222222222222222222222222222222222222
        OK
        > GET {bar}here
        \"1\"
        > GET {bar}gone
        (error) ASK 5061 10.0.0.1:7002
        > SET {bar}gone 1
        (error) ASK 5061 10.0.0.1:7002
        > MGET {bar}here {bar}gone
        (error) TRYAGAIN Multiple keys request during rehashing of slot
        > MOVE {bar}here 1
        (error) TRYAGAIN Multiple keys request during rehashing of slot
        > MULTI
        OK
        > GET {bar}gone
        QUEUED
        > EXEC
        (error) ASK 5061 10.0.0.1:7002
        > CLUSTER SETSLOT 5061 NODE 2222222222222222222222222222222222222222
        (error) ERR Can't assign hashslot 5061 to a different node while I still hold keys for this hash slot.
        > CLUSTER SETSLOT 5061 STABLE
        OK
        > GET {bar}gone
        (nil)",
    );
}

#[test]
fn who_says_that_a_slot_has_left_is_answered_when_its_new_owner_is_known() {
    let (mut source, _) = talk(ONE);
    check_with(
        &mut source,
        "the source",
        "> CLUSTER SETSLOT 5061 MIGRATING 2222222222222222222222222222222222222222
        OK
        1> CLUSTER SETSLOT 5061 NODE 2222222222222222222222222222222222222222 TIMEOUT 100
        +100
        1?
        OK
        1> CLUSTER SETSLOT 5061 NODE 2222222222222222222222222222222222222222
        > GET {bar}gone
        (error) ASK 5061 10.0.0.1:7002",
    );
    let mut after = nodes();
    after[0].slots = vec![SlotRange::new(0, 5060).unwrap(), SlotRange::new(5062, 8191).unwrap()];
    after[1].slots.push(SlotRange::new(5061, 5061).unwrap());
    source.engine().set_map(map(ONE, after), source.now());
    check_with(
        &mut source,
        "its new owner is known",
        "1?
        OK
        > GET {bar}gone
        (error) MOVED 5061 10.0.0.1:7002",
    );
}

#[test]
fn a_slot_that_comes_is_served_to_those_who_were_sent() {
    check(
        TWO,
        "> CLUSTER SETSLOT 5061 IMPORTING 1111111111111111111111111111111111111111
        OK
        > SET bar 1
        (error) MOVED 5061 10.0.0.1:7001
        > ASKING
        OK
        > SET bar 1
        OK
        > GET bar
        (error) MOVED 5061 10.0.0.1:7001
        > ASKING
        OK
        > MGET bar {bar}2
        (error) TRYAGAIN Multiple keys request during rehashing of slot
        > ASKING
        OK
        > MULTI
        OK
        > GET bar
        QUEUED
        > EXEC
        [\"1\"]
        > CLUSTER COUNTKEYSINSLOT 5061
        1
        > CLUSTER GETKEYSINSLOT 5061 10
        [\"bar\"]",
    );
}

#[test]
fn while_the_cluster_is_down_nothing_is_served_unless_it_was_allowed() {
    let (mut talk, _) = talk(ONE);
    talk.engine().set_map(Map::new(ONE, nodes(), Service::default()), talk.now());
    check_with(
        &mut talk,
        "down",
        "> GET bar
        (error) CLUSTERDOWN The cluster is down
        > CONFIG SET cluster-allow-reads-when-down yes
        OK
        > GET bar
        (nil)
        > SET bar 1
        (error) CLUSTERDOWN The cluster is down and only accepts read commands
        > SSUBSCRIBE bar
        [\"ssubscribe\" \"bar\" 1]",
    );
}

#[test]
fn who_waits_or_listens_is_told_when_a_slot_goes() {
    let (mut talk, _) = talk(ONE);
    check_with(
        &mut talk,
        "waits",
        "> BLPOP bar 0
        1> SSUBSCRIBE bar
        [\"ssubscribe\" \"bar\" 1]",
    );
    let mut after = nodes();
    after[0].slots.clear();
    after[1].slots = vec![SlotRange::all()];
    talk.engine().set_map(map(ONE, after), talk.now());
    check_with(
        &mut talk,
        "gone",
        "0?
        (error) MOVED 5061 10.0.0.1:7002
        1?
        [\"sunsubscribe\" \"bar\" 0]
        1> SSUBSCRIBE bar
        (error) MOVED 5061 10.0.0.1:7002",
    );
}

#[test]
fn messages_leave_for_other_nodes_from_wherever_they_are_published() {
    let orders = Orders::default();
    let left = Arc::clone(&orders.messages);
    let mut talk = talk_with(ONE, orders);
    check_with(
        &mut talk,
        "messages",
        "1> SUBSCRIBE c
        [\"subscribe\" \"c\" 1]
        1> SUBSCRIBE d
        [\"subscribe\" \"d\" 2]
        > PUBLISH c 1
        1
        1?
        [\"message\" \"c\" \"1\"]
        > SPUBLISH bar 2
        0
        > MULTI
        OK
        > PUBLISH e 3
        QUEUED
        > EXEC
        [0]
        > EVAL \"return redis.call('PUBLISH', 'f', '4')\" 0
        0
        > EVAL \"return redis.call('SPUBLISH', KEYS[1], '5')\" 1 bar
        0",
    );
    let expected = ["listens", "c 1 false", "bar 2 true", "e 3 false", "f 4 false", "bar 5 true"];
    assert_eq!(*left.lock().unwrap(), expected);
    talk.engine().hear(b"c", b"from elsewhere", false);
    check_with(
        &mut talk,
        "heard",
        "1?
        [\"message\" \"c\" \"from elsewhere\"]",
    );
    let info = talk.say(0, "CLUSTER INFO");
    for line in ["cluster_stats_messages_publish_sent:3", "cluster_stats_messages_publish_dropped:1"] {
        assert!(info.contains(line), "{line} in {info}");
    }
    assert!(!info.contains("publishshard"), "{info}");
}

#[test]
fn a_map_that_comes_while_a_call_waits_for_its_keys_is_looked_at_again() {
    let (mut talk, _) = talk(ONE);
    assert_eq!(talk.say(0, "SET bar 1"), "OK");
    let mut after = nodes();
    after[0].slots.clear();
    after[1].slots = vec![SlotRange::all()];
    let cluster = talk.engine_shared();
    cluster.set_map(map(ONE, after), talk.now());
    assert_eq!(talk.say(0, "GET bar"), "(error) MOVED 5061 10.0.0.1:7002");
}

#[test]
fn what_a_node_tells() {
    let (mut talk, _) = talk(ONE);
    let mut after = nodes();
    after[1].health = Health::Suspected;
    talk.engine().set_map(map(ONE, after), talk.now());
    let (one, two, replica) = (ONE.to_string(), TWO.to_string(), REPLICA.to_string());
    let lines = [
        format!("{one} 10.0.0.1:7001@17001 myself,master - 0 0 7001 connected 0-8191"),
        format!("{two} 10.0.0.1:7002@17002 master,fail? - 0 0 7002 connected 8192-16383"),
        format!("{replica} 10.0.0.1:7003@17003 slave {one} 0 0 7001 connected"),
    ];
    assert_eq!(talk.say(0, "CLUSTER NODES"), format!("\"{}\\n\"", lines.join("\\n")));
    assert_eq!(talk.say(0, "CLUSTER MYID"), format!("\"{one}\""));
    assert_eq!(
        talk.say(0, "CLUSTER SLOTS"),
        format!(
            "[[0 8191 [\"10.0.0.1\" 7001 \"{one}\" []] [\"10.0.0.1\" 7003 \"{replica}\" []]] \
             [8192 16383 [\"10.0.0.1\" 7002 \"{two}\" []]]]"
        )
    );
    assert_eq!(talk.say(0, &format!("CLUSTER REPLICAS {replica}")), "(error) ERR The specified node is not a master");
    let info = talk.say(0, "CLUSTER INFO");
    for line in ["cluster_state:ok", "cluster_slots_ok:8192", "cluster_slots_pfail:8192", "cluster_size:2"] {
        assert!(info.contains(line), "{line} in {info}");
    }
    assert!(talk.say(0, "CLUSTER SHARDS").contains("\"role\" \"replica\""));
}

#[test]
fn slots_of_a_lost_node_may_be_taken_from_it() {
    let (mut talk, orders) = talk(ONE);
    let mut others = nodes();
    others[1].health = Health::Failed;
    talk.engine().set_map(map(ONE, others), talk.now());
    check_with(
        &mut talk,
        "lost",
        "> CLUSTER ADDSLOTS 9000
        (error) ERR Slot 9000 is already busy
        > MULTI
        OK
        > CLUSTER DELSLOTS 9000
        QUEUED
        > CLUSTER ADDSLOTS 9000
        QUEUED
        > EXEC
        [OK OK]
        > CLUSTER ADDSLOTS 9001
        (error) ERR Slot 9001 is already busy",
    );
    let slots = vec![SlotRange::new(9_000, 9_000).unwrap()];
    assert_eq!(*orders.lock().unwrap(), [Order::Release(slots.clone()), Order::Claim(slots)]);
    // It is back before somebody else has its slots.
    talk.engine().set_map(map(ONE, nodes()), talk.now());
    assert_eq!(talk.say(0, "CLUSTER ADDSLOTS 9000"), "(error) ERR Slot 9000 is already busy");
}

#[test]
fn orders_are_checked_and_handed_on() {
    let (mut talk, orders) = talk(ONE);
    check_with(
        &mut talk,
        "orders",
        "> CLUSTER ADDSLOTS 5
        (error) ERR Slot 5 is already busy
        > CLUSTER ADDSLOTS 16384
        (error) ERR Invalid or out of range slot
        > CLUSTER ADDSLOTSRANGE 9 5
        (error) ERR start slot number 9 is greater than end slot number 5
        > CLUSTER DELSLOTS 5 5
        (error) ERR Slot 5 specified multiple times
        > CLUSTER DELSLOTSRANGE 5 7 9 9
        OK
        > CLUSTER MEET 10.0.0.9 7000
        OK
        > CLUSTER MEET nowhere 7000
        (error) ERR Invalid node address specified: nowhere:7000
        > CLUSTER FORGET 1111111111111111111111111111111111111111
        (error) ERR I tried hard but I can't forget myself...
        > CLUSTER REPLICATE 2222222222222222222222222222222222222222
        (error) ERR To set a master the node must be empty and without assigned slots.
        > CLUSTER FAILOVER
        (error) ERR You should send CLUSTER FAILOVER to a replica
        > CLUSTER SETSLOT 9000 NODE 1111111111111111111111111111111111111111
        OK",
    );
    let range = |first, last| SlotRange::new(first, last).unwrap();
    let expected = [
        Order::Release(vec![range(5, 7), range(9, 9)]),
        Order::Meet { host: "10.0.0.9".into(), port: 7_000, bus_port: 17_000 },
        Order::Claim(vec![range(9_000, 9_000)]),
    ];
    assert_eq!(*orders.lock().unwrap(), expected);
}

#[test]
fn a_scan_of_the_cluster_goes_from_node_to_node() {
    let (mut talk, _) = talk(ONE);
    check_with(
        &mut talk,
        "scan",
        "> MSET {4ZG}a 1
        OK
        > SADD {0or}b x
        1
        > CLUSTERSCAN 0-{06S}-0
        [\"0-{8YG}-0\" [\"{4ZG}a\" \"{0or}b\"]]
        > CLUSTERSCAN 0-{4ZG}-77 SLOT 50
        [\"0\" [\"{4ZG}a\"]]
        > CLUSTERSCAN 0-{06S}-0 MATCH {0or}*
        [\"0-{0or}-0\" []]
        > CLUSTERSCAN 0-{0or}-0 MATCH {0or}*
        [\"0\" [\"{0or}b\"]]
        > CLUSTERSCAN 0-{0or}-0 MATCH {4ZG}*
        [\"0\" []]
        > CLUSTERSCAN 0-{0or}-0 TYPE string COUNT 100
        [\"0-{8YG}-0\" []]
        > CLUSTERSCAN 0-{8YG}-0
        (error) MOVED 8192 10.0.0.1:7002
        > CLUSTERSCAN 0-{0or}-0 SLOT 1
        (error) ERR Cursor slot mismatch with SLOT argument
        > CLUSTERSCAN 0-{0or}-0 SLOT 100 SLOT 100
        (error) ERR SLOT option can only be specified once
        > CLUSTERSCAN 0-{0or}-0 SLOT 16384
        (error) ERR Invalid or out of range slot
        > CLUSTERSCAN 0-{0or} SLOT 100
        (error) ERR Invalid cursor
        > CLUSTERSCAN 0-{0or}-x
        (error) ERR Invalid cursor
        > CLUSTERSCAN 0-{0or}-0 COUNT 0
        (error) ERR syntax error
        > SCAN 0 SLOT 0
        (error) ERR syntax error",
    );
    // From place to place, and only where there is something.
    let first = talk.say(0, "CLUSTERSCAN 0-{06S}-0 COUNT 1");
    let cursor = first.split('"').nth(1).expect("it has a cursor").to_owned();
    assert!(cursor.contains("-{0or}-") && !cursor.starts_with("0-"), "{first}");
    assert_eq!(talk.say(0, &format!("CLUSTERSCAN {cursor}")), "[\"0-{8YG}-0\" [\"{0or}b\"]]");
    let foreign = cursor.replace(cursor.split('-').next().unwrap(), "zzzzzz");
    assert_eq!(talk.say(0, &format!("CLUSTERSCAN {foreign} SLOT 100")), "[\"0\" [\"{0or}b\"]]");
    check_with(
        &mut self::talk(TWO).0,
        "begin",
        "> CLUSTERSCAN 0
        [\"0-{06S}-0\" []]
        > CLUSTERSCAN 0 SLOT 100
        [\"0-{0or}-0\" []]
        > CLUSTERSCAN 0 MATCH a{0or}?
        [\"0-{0or}-0\" []]
        > CLUSTERSCAN 0 SLOT 1 MATCH a{0or}?
        [\"0\" []]
        > CLUSTERSCAN 0-{6ZJ}-0
        [\"0\" []]",
    );
}

#[test]
fn slots_are_charged_for_what_is_asked_of_them() {
    let (mut talk, _) = talk(ONE);
    check_with(
        &mut talk,
        "not counted",
        "> SET bar 1
        OK
        > CLUSTER SLOT-STATS SLOTSRANGE 5061 5061
        [[5061 [\"key-count\" 1]]]
        > CLUSTER SLOT-STATS ORDERBY CPU-USEC
        (error) ERR Unrecognized sort metric for ORDERBY.
        > CONFIG SET cluster-slot-stats-enabled yes
        OK
        > CLUSTER SLOT-STATS SLOTSRANGE 5061 5061
        [[5061 [\"key-count\" 1 \"cpu-usec\" 0 \"network-bytes-in\" 0 \"network-bytes-out\" 0]]]",
    );
    assert_eq!(talk.say(0, "SET bar value"), "OK");
    check_traffic(&mut talk, ("SET bar value\r\n".len(), "+OK\r\n".len()));
    assert_eq!(talk.say(0, "CONFIG RESETSTAT"), "OK");
    check_with(
        &mut talk,
        "a transaction",
        "> MULTI
        OK
        > SET bar value
        QUEUED
        > EXEC
        [OK]",
    );
    let requests = ["*1\r\n$5\r\nMULTI\r\n", "SET bar value\r\n", "EXEC\r\n"];
    check_traffic(&mut talk, (requests.concat().len(), "*1\r\n+OK\r\n".len()));
    assert_eq!(talk.say(0, "CONFIG RESETSTAT"), "OK");
    check_with(
        &mut talk,
        "waiting",
        "> DEL bar
        1
        1> BLPOP bar 0
        > CONFIG RESETSTAT
        OK
        > RPUSH bar value
        1
        1?
        [\"bar\" \"value\"]",
    );
    // The request that waited is counted as clients send it.
    check_traffic(&mut talk, ("RPUSH bar value\r\n".len() + 31, 4 + 24));
    assert_eq!(talk.say(0, "CONFIG RESETSTAT"), "OK");
    assert_eq!(talk.say(1, "SSUBSCRIBE bar"), "[\"ssubscribe\" \"bar\" 1]");
    assert_eq!(talk.say(0, "CONFIG RESETSTAT"), "OK");
    assert_eq!(talk.say(0, "SPUBLISH bar hello"), "1");
    let message = "*3\r\n$8\r\nsmessage\r\n$3\r\nbar\r\n$5\r\nhello\r\n";
    check_traffic(&mut talk, ("SPUBLISH bar hello\r\n".len(), ":1\r\n".len() + message.len()));
}

/// Slot 5061 has had most, and so many bytes in and out.
fn check_traffic(talk: &mut Talk, (bytes_in, bytes_out): (usize, usize)) {
    let told = talk.say(0, "CLUSTER SLOT-STATS ORDERBY NETWORK-BYTES-IN LIMIT 1");
    let wanted = format!("\"network-bytes-in\" {bytes_in} \"network-bytes-out\" {bytes_out}]]]");
    assert!(told.starts_with("[[5061 ") && told.ends_with(&wanted), "{told} instead of {wanted}");
}

#[test]
fn slots_are_not_charged_for_scripts_that_cross_them_and_begin_anew_with_another_owner() {
    let (mut talk, _) = talk(ONE);
    assert_eq!(talk.say(0, "CONFIG SET cluster-slot-stats-enabled yes"), "OK");
    let both = "#!lua flags=allow-cross-slot-keys\\nredis.call('GET', '{bar}x') redis.call('GET', '{4ZG}y')";
    assert_eq!(talk.say(0, &format!("EVAL \"{both}\" 0")), "(nil)");
    let told = talk.say(0, "CLUSTER SLOT-STATS ORDERBY NETWORK-BYTES-IN LIMIT 1");
    assert!(told.starts_with("[[0 "), "{told}");
    assert_eq!(talk.say(0, "GET bar"), "(nil)");
    check_traffic(&mut talk, (9, 5));
    let mut after = nodes();
    after[0].slots.clear();
    after[1].slots = vec![SlotRange::all()];
    talk.engine().set_map(map(ONE, after), talk.now());
    talk.engine().set_map(map(ONE, nodes()), talk.now());
    let told = talk.say(0, "CLUSTER SLOT-STATS SLOTSRANGE 5061 5061");
    assert!(told.ends_with("\"cpu-usec\" 0 \"network-bytes-in\" 0 \"network-bytes-out\" 0]]]"), "{told}");
}

#[test]
fn a_client_waits_for_what_becomes_of_its_order_and_others_do_not() {
    let orders = Orders { are_late: true, ..Orders::default() };
    let tickets = Arc::clone(&orders.tickets);
    let mut talk = talk_with(ONE, orders);
    let [first, second, other] = [(); 3].map(|()| talk.join());
    let release = |slot: u16| format!("CLUSTER DELSLOTS {slot}\r\n");
    assert_eq!(talk.raw(first, release(1).as_bytes()), b"");
    assert_eq!(talk.raw(second, release(2).as_bytes()), b"");
    assert_eq!(talk.say(other, "PING"), "PONG");
    let given = tickets.lock().unwrap().clone();
    talk.engine().finish_order(given[1], &Err("not now".to_owned()), talk.now());
    assert_eq!((talk.raw(first, b""), talk.raw(second, b"")), (Vec::new(), b"-ERR not now\r\n".to_vec()));
    talk.engine().finish_order(given[0], &Ok(()), talk.now());
    assert_eq!(talk.raw(first, b""), b"+OK\r\n");
    talk.engine().finish_order(given[0], &Ok(()), talk.now());
    assert_eq!(talk.say(first, "PING"), "PONG", "nothing comes of it twice");
}

#[test]
fn orders_that_nobody_finishes_or_looks_at_are_bounded() {
    let orders = Orders { are_late: true, ..Orders::default() };
    let tickets = Arc::clone(&orders.tickets);
    let talk = talk_with(ONE, orders);
    let cluster = talk.engine().cluster().unwrap();
    let pending = (0..1_000).filter(|_| cluster.submit(Order::Renew, None).is_err()).count();
    assert_eq!(pending, 64, "all others were refused");
    let given = tickets.lock().unwrap().clone();
    given.iter().for_each(|ticket| talk.engine().finish_order(*ticket, &Ok(()), talk.now()));
    assert!(cluster.submit(Order::Renew, None).is_err(), "those that are done make room");
}

#[test]
fn who_was_stopped_for_long_serves_nobody_until_it_has_heard_of_the_others() {
    let orders = Orders::default();
    let until = Arc::clone(&orders.serves_until);
    let mut talk = talk_with(ONE, orders);
    *until.lock().unwrap() = Some(talk.now().instant + Duration::from_nanos(1));
    check_with(&mut talk, "in time", "> SET bar 1\n        OK");
    *until.lock().unwrap() = Some(talk.now().instant);
    check_with(
        &mut talk,
        "late",
        "> SET bar 2
        (error) CLUSTERDOWN The cluster is down
        > GET bar
        (error) CLUSTERDOWN The cluster is down
        > PING
        PONG
        > MULTI
        OK
        > SET bar 2
        (error) CLUSTERDOWN The cluster is down
        > DISCARD
        OK
        > CONFIG SET cluster-allow-reads-when-down yes
        OK
        > GET bar
        \"1\"
        > SET bar 2
        (error) CLUSTERDOWN The cluster is down and only accepts read commands",
    );
    *until.lock().unwrap() = None;
    check_with(&mut talk, "heard", "> SET bar 2\n        OK");
}

#[test]
fn a_request_whose_slot_has_gone_while_its_keys_were_locked_is_sent_away() {
    let (talk, _) = talk(ONE);
    let (engine, now) = (talk.engine(), talk.now());
    let (cluster, settings) = (engine.cluster().unwrap(), engine.settings());
    let mailbox = Arc::new(Mailbox::new(Box::new(|| {})));
    let link = Talk::link("127.0.0.1:4000");
    let mut session = Session::open(talk.engine_shared(), mailbox, link, now).unwrap();
    let client = session.client();
    let request: Request = [&b"SET"[..], b"bar", b"1"].into_iter().collect();
    let asked = (run::find(engine, request.args()).unwrap(), request.args(), None);
    route::admit(engine, cluster, &settings, client, asked, now.instant).unwrap();
    let clock = run::access(&settings, now);
    let mut keys = engine.keyspace.lock(Lock::Nothing, 0, now.unix_ms(), clock);
    assert!(route::confirm(engine, cluster, &settings, client, asked, &mut keys, now.instant).is_ok());
    let nodes = vec![node(ONE, 7001, Some((0, 5_000))), node(TWO, 7002, Some((5_001, 16_383)))];
    engine.set_map(map(ONE, nodes), now);
    let refusal = route::confirm(engine, cluster, &settings, client, asked, &mut keys, now.instant).unwrap_err();
    assert_eq!(refusal.as_str(), "MOVED 5061 10.0.0.1:7002");
}
