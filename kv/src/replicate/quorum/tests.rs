//! Majorities, promises, and what is written of both. How nodes keep to them is shown in the simulator (`ashlar sim quorum`).

mod promises;
mod replies;

use std::slice;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::promise::Bound;
use super::{Extent, Members, PromiseAnswer, PromiseRequest, Promises, Refused, TakeOver, Term, readers, writers};
use crate::client::Mailbox;
use crate::cluster::control::{Control, MessageFigures, Order, Ticket};
use crate::cluster::map::{Map, Name, Node, Service, SlotRange};
use crate::engine::{Engine, EngineConfig};
use crate::memory::hash_key::HASH_KEY_BYTES;
use crate::network::{Broken, Line, Network};
use crate::replicate::{Follower, Point, Replication, Step, Upstream};
use crate::session::Session;
use crate::tests::Talk;
use crate::time::Now;

fn name(number: u8) -> Name {
    Name::new([number; 20])
}

fn members(names: &[u8]) -> Members {
    Members { now: names.iter().map(|number| name(*number)).collect(), next: None }
}

fn term(epoch: u64, life: u64) -> Term {
    Term { epoch, life }
}

#[test]
fn writers_and_readers_always_meet() {
    for count in 1..=super::MEMBERS_MAX {
        assert!(writers(count) * 2 > count, "two groups of writers meet");
        assert_eq!(writers(count) + readers(count), count + 1, "the fewest readers that meet each group of writers");
    }
}

#[test]
fn committed_is_what_a_majority_has() {
    let has = |name: Name| u64::from(name.bytes()[0]) * 10;
    assert_eq!(members(&[5]).committed(has), 50);
    assert_eq!(members(&[1, 5]).committed(has), 10);
    assert_eq!(members(&[1, 2, 5]).committed(has), 20);
    assert_eq!(members(&[1, 2, 4, 5]).committed(has), 20);
    assert_eq!(members(&[1, 5]).towards(vec![name(5)]).committed(has), 10, "both have to agree");
    assert_eq!(members(&[5]).towards(vec![name(1), name(2), name(5)]).committed(has), 20);
}

#[test]
fn sealed_is_what_no_majority_avoids() {
    let by = |promised: &'static [u8]| move |name: Name| promised.contains(&name.bytes()[0]);
    assert!(members(&[1, 2]).is_agreed_by(by(&[2])), "two write together, so one is enough");
    assert!(!members(&[1, 2, 3]).is_agreed_by(by(&[2])));
    assert!(members(&[1, 2, 3]).is_agreed_by(by(&[2, 3])));
    let changing = members(&[1, 2, 3]).towards(vec![name(3), name(4), name(5)]);
    assert!(!changing.is_agreed_by(by(&[1, 2, 3])));
    assert!(changing.is_agreed_by(by(&[1, 3, 4])));
    assert_eq!(changing.settled(), Some(members(&[3, 4, 5])));
}

#[test]
fn what_is_written_is_read() {
    for one in [Members::default(), members(&[1]), members(&[1, 2]), members(&[1]).towards(vec![name(1), name(9)])] {
        assert_eq!(Members::read(&one.to_string()), Some(one.clone()), "{one}");
    }
    assert_eq!(members(&[1, 2]).to_string(), format!("{},{}", "01".repeat(20), "02".repeat(20)));
    assert_eq!(Term::read(&term(7, 3).to_string()), Some(term(7, 3)));
    for wrong in ["", "x", "01", &format!("{0},{0},{0},{0},{0},{0},{0},{0}", "01".repeat(20))] {
        assert_eq!(Members::read(wrong), None, "{wrong}");
    }
    for wrong in ["", "1", "1.", ".1", "1.x", "-1.1"] {
        assert_eq!(Term::read(wrong), None, "{wrong}");
    }
}

#[test]
fn promises_hold_and_outlive_the_process() {
    let (shard, drive) = (name(7), Arc::new(Mutex::new(String::new())));
    let open = || {
        let (promises, kept) = (Promises::default(), drive.lock().unwrap().clone());
        let drive = Arc::clone(&drive);
        let keep = move |text: &str| {
            text.clone_into(&mut drive.lock().unwrap());
            true
        };
        promises.open(&kept, Box::new(keep)).unwrap();
        promises
    };
    let promises = open();
    assert_eq!(promises.promise(shard, term(3, 1), name(1)), Ok(()));
    assert_eq!(promises.promise(shard, term(3, 1), name(1)), Ok(()), "it may ask again");
    assert_eq!(promises.promise(shard, term(3, 1), name(2)), Err(Bound(term(3, 1))), "one term has one holder");
    assert!(promises.note_members(shard, &members(&[1, 2])));
    let promises = open();
    assert_eq!(promises.promise(shard, term(2, 9), name(2)), Err(Bound(term(3, 1))));
    assert_eq!(promises.promise(shard, term(3, 2), name(1)), Ok(()), "a later life of the same");
    assert_eq!(promises.promise(name(8), term(1, 1), name(2)), Ok(()), "another shard");
    let promise = open().of(shard).expect("it was kept");
    assert_eq!((promise.term, promise.holder, promise.members), (term(3, 2), name(1), members(&[1, 2])));
    assert_eq!(Promises::default().open("nonsense\n", Box::new(|_| true)), Err(1));
    let kept = drive.lock().unwrap().clone();
    for at in 0..kept.len() {
        let mut damaged = kept.clone().into_bytes();
        damaged[at] ^= 1;
        let damaged = String::from_utf8(damaged).expect("one bit of a letter makes another");
        assert!(Promises::default().open(&damaged, Box::new(|_| true)).is_err(), "{at}");
        assert!(Promises::default().open(&kept[..at], Box::new(|_| true)).is_err() || at == 0, "cut at {at}");
    }
    assert_eq!(kept.lines().last(), Some("check 006ad967bfc3bf6d"));
}

#[test]
fn who_is_promised_a_later_term_may_serve_its_earlier_one_unless_another_came_between() {
    let (promises, shard) = (Promises::default(), name(7));
    assert_eq!(promises.promise(shard, term(14, 2), name(1)), Ok(()));
    assert_eq!(promises.promise(shard, term(15, 2), name(1)), Ok(()));
    assert_eq!(promises.promise(shard, term(14, 2), name(1)), Ok(()), "it makes sure of the later one meanwhile");
    assert_eq!(promises.promise(shard, term(21, 1), name(3)), Ok(()));
    assert_eq!(promises.promise(shard, term(22, 2), name(1)), Ok(()));
    assert_eq!(promises.promise(shard, term(15, 2), name(1)), Err(Bound(term(22, 2))), "21.1 may have committed since");
    assert_eq!(promises.promise(shard, term(22, 2), name(1)), Ok(()));
}

#[test]
fn what_cannot_be_kept_is_not_promised() {
    let promises = Promises::default();
    promises.open("", Box::new(|_| false)).unwrap();
    assert_eq!(promises.promise(name(7), term(3, 1), name(1)), Err(Bound(Term::default())));
    assert!(promises.of(name(7)).is_none() && !promises.note_members(name(7), &members(&[1])));
}

/// Of the two nodes of a shard: the primary, with all slots, and its replica.
const SHARD: Name = Name::new([7; 20]);

fn map(own: u8, epoch: u64) -> Map {
    let node = Node { shard: SHARD, epoch, is_connected: true, ..Node::default() };
    let primary = Node { name: name(1), slots: vec![SlotRange::all()], ..node.clone() };
    let replica = Node { name: name(2), primary: Some(name(1)), ..node };
    Map::new(name(own), vec![primary, replica], Service { is_up: true, epoch, ..Service::default() })
}

/// The same of three nodes; each one's port is what stands before it.
fn map_of_three(own: u8, epoch: u64) -> Map {
    map_led_by(1, own, epoch)
}

fn map_led_by(leader: u8, own: u8, epoch: u64) -> Map {
    let node = |number: u8| {
        let mut node = Node { name: name(number), shard: SHARD, epoch, is_connected: true, ..Node::default() };
        node.place.port = u16::from(number) - 1;
        node
    };
    let nodes = [1, 2, 3].map(|number| match number == leader {
        true => Node { slots: vec![SlotRange::all()], ..node(number) },
        false => Node { primary: Some(name(leader)), ..node(number) },
    });
    Map::new(name(own), nodes.into(), Service { is_up: true, epoch, ..Service::default() })
}

#[derive(Debug)]
struct NoOrders;

impl Control for NoOrders {
    fn order(&self, _order: Order, _ticket: Ticket) -> Option<Result<(), String>> {
        Some(Err("nobody decides".to_owned()))
    }

    fn publish(&self, _channel: &[u8], _message: &[u8], _is_sharded: bool) {}

    fn listens(&self) {}

    fn message_figures(&self) -> MessageFigures {
        MessageFigures::default()
    }
}

fn open_session(engine: &Arc<Engine>, now: Now) -> Session {
    Session::open(Arc::clone(engine), Arc::new(Mailbox::new(Box::new(|| {}))), Talk::link("127.0.0.1:1"), now).unwrap()
}

/// The network of a node that is told to follow others, and never does.
#[derive(Debug)]
struct Nowhere;

impl Network for Nowhere {
    fn listen(&self, _addresses: &[&str], _port: u16) -> Result<(), String> {
        Ok(())
    }

    fn dial(&self, _host: &str, _port: u16, _span: Duration) -> Result<Box<dyn Line>, Broken> {
        Err(Broken::Gone)
    }
}

/// One attempt to serve, in which these nodes answer at once.
fn take_over(node: &Talk, map: &Map, life: u64, others: &[Talk]) -> TakeOver {
    let mut round = match node.engine().begin_take_over(map, life, node.now()) {
        Ok(round) => round,
        Err(ended) => return ended,
    };
    for other in others {
        let name = other.engine().map().unwrap().own().name;
        if round.asked().contains(&name) {
            let answer = other.engine().answer_promise(&round.request(name), other.now());
            round.handle_answer(name, answer);
        }
    }
    node.engine().finish_take_over(map, round, node.now())
}

/// What the member answers to the first node of the shard.
fn promised(member: &Talk, of: Term) -> PromiseAnswer {
    promised_to(member, of, name(1))
}

fn promised_to(member: &Talk, of: Term, candidate: Name) -> PromiseAnswer {
    let own = member.engine().map().unwrap().own().name;
    member.engine().answer_promise(&PromiseRequest { shard: SHARD, term: of, candidate, member: own }, member.now())
}

/// A node of the shard, in epoch 7; its promises are kept there.
fn start(own: u8, drive: &Arc<Mutex<String>>) -> Talk {
    start_in(map(own, 7), drive)
}

fn start_in(map: Map, drive: &Arc<Mutex<String>>) -> Talk {
    let engine = Engine::new(&EngineConfig { secret: [3; HASH_KEY_BYTES], shards: 8, databases: 2 });
    engine.configure("replication-quorum", "yes").unwrap();
    engine.join_cluster(map, Box::new(NoOrders));
    let (kept, drive) = (drive.lock().unwrap().clone(), Arc::clone(drive));
    let keep = move |text: &str| {
        text.clone_into(&mut drive.lock().unwrap());
        true
    };
    engine.open_promises(&kept, Box::new(keep)).unwrap();
    Talk::with(Arc::new(engine))
}

/// A primary that serves the first life of epoch 7, and its client that speaks as the other member.
fn begin_shard(drive: &Arc<Mutex<String>>) -> (Talk, usize) {
    let mut talk = start(1, drive);
    assert_eq!(take_over(&talk, &map(1, 7), 1, &[]), TakeOver::Done);
    let (replica, history, end) = (talk.join(), talk.engine().identity.history(), talk.engine().replication.end());
    let enrol = format!("REPLCONF ASHLAR-MEMBER {} OF {SHARD} COPIES -", name(2));
    assert_eq!(talk.say(replica, &enrol), format!("TERM 7.1 {} {end} {}", name(1), name(1)));
    let heard = talk.raw(replica, format!("PSYNC {history} {}\r\n", end + 1).as_bytes());
    assert_eq!(heard, b"+CONTINUE\r\n");
    for _ in 0..2 {
        acknowledge(&mut talk, replica, None);
        talk.tick();
    }
    acknowledge(&mut talk, replica, None);
    let status = talk.engine().quorum_status().unwrap();
    assert_eq!((status.members, status.is_attended), (members(&[1, 2]), true));
    assert_eq!(talk.engine().replication.released(), talk.engine().replication.end());
    (talk, replica)
}

/// It has all up to a position, or up to the end.
fn acknowledge(talk: &mut Talk, replica: usize, position: Option<u64>) {
    let position = position.unwrap_or(talk.engine().replication.end());
    talk.raw(replica, format!("REPLCONF ACK {position}\r\n").as_bytes());
}

/// As a dump tells it: the point, and the words of term and members.
fn dumped(engine: &Engine) -> (Point, String) {
    let words = Replication::commit_words(&engine.replication.stream());
    (engine.point().expect("it has a stream"), words.expect("it has members"))
}

/// Has the data of a dump, and lacks nothing that it has acknowledged.
fn load(talk: &Talk, (point, words): &(Point, String)) {
    talk.engine().restore_point(point, talk.now());
    talk.engine().replication.adopt_commit_state(words);
    talk.engine().replication.catch_up_at(point.position);
}

#[test]
fn a_shard_begins_where_its_data_are_and_nowhere_else() {
    let begun = |known: Map, claimed: &Map| {
        let node = start_in(known, &Arc::default());
        let begun = node.engine().begin_take_over(claimed, 1, node.now()).map(|round| round.asked().to_vec());
        (begun, node.engine().promises.of(SHARD).unwrap_or_default().members)
    };
    let began = |number| (Err(TakeOver::Done), members(&[number]));
    let all = map(1, 7);
    assert_eq!(begun(all.clone(), &all), began(1), "it is the shard's primary already");
    let alone = Map::new(name(1), vec![all.own().clone()], *all.service());
    let without = |map: &Map| {
        let node = |node: &Node| Node { slots: Vec::new(), primary: None, ..node.clone() };
        Map::new(map.own().name, map.nodes().iter().map(node).collect(), *map.service())
    };
    assert_eq!(begun(without(&alone), &alone), began(1), "nobody else is of the shard");
    let asks = (Ok(vec![name(2)]), Members::default());
    assert_eq!(begun(without(&all), &all), asks, "the other one may have the shard's data");
    let node = |node: &Node| Node { shard: name(9), ..node.clone() };
    let elsewhere = Map::new(name(1), all.nodes().iter().map(node).collect(), *all.service());
    assert_eq!(begun(elsewhere, &all), asks, "what it has are another shard's data");
}

#[test]
fn what_an_earlier_term_has_appended_is_committed_with_the_record_of_the_present_one() {
    let (mut talk, replica) = begin_shard(&Arc::default());
    let mut client = open_session(&talk.engine_shared(), talk.now());
    let mut write = |talk: &Talk| {
        client.feed(b"SET bar 1\r\n", talk.now());
        assert!(client.replies().ends_with(b"+OK\r\n"));
        talk.engine().replication.end()
    };
    let first = write(&talk);
    acknowledge(&mut talk, replica, Some(first));
    assert_eq!(talk.engine().replication.released(), first, "its own term's");
    let second = write(&talk);
    assert!(client.is_held() && second > first);
    assert_eq!(take_over(&talk, &map(1, 8), 1, &[]), TakeOver::Done);
    assert_eq!(talk.engine().replication.serving(), Some(term(8, 1)));
    let from = talk.engine().replication.end();
    assert!(from > second, "there is a record");
    for position in [second, from - 1] {
        acknowledge(&mut talk, replica, Some(position));
        assert_eq!(talk.engine().replication.released(), first, "{position} is before the record's end");
        assert!(client.is_held());
    }
    acknowledge(&mut talk, replica, Some(from));
    assert_eq!(talk.engine().replication.released(), from);
    assert!(!client.is_held());
}

#[test]
fn a_primary_that_was_restarted_serves_another_term_although_its_epoch_is_the_same() {
    let drive = Arc::default();
    let (mut former, _) = begin_shard(&drive);
    let dump = dumped(former.engine());
    let member = start(2, &Arc::default());
    load(&member, &dump);
    let served = former.engine().replication.serving().unwrap();
    let extent = Extent { term: term(7, 1), position: dump.0.position };
    assert_eq!(promised(&member, served), PromiseAnswer::Promised(Some(extent)));
    // Nobody else has this, and it is longer than what the next life appends.
    former.say(0, &format!("SET bar {}", "x".repeat(1_000)));

    let latter = start(1, &drive);
    load(&latter, &dump);
    assert_eq!(take_over(&latter, &map(1, 7), 2, slice::from_ref(&member)), TakeOver::Done);
    let extents = [&former, &latter].map(|life| life.engine().replication.extent().0.unwrap());
    assert_eq!(extents.map(|extent| extent.term), [term(7, 1), term(7, 2)]);
    assert!(extents[0].position > extents[1].position && extents[0] < extents[1], "the later life's wins");

    let later = latter.engine().replication.serving().unwrap();
    assert_eq!(later, term(7, 2));
    assert_eq!(take_over(&former, &map(1, 7), 1, slice::from_ref(&member)), TakeOver::Superseded(later));
    assert_eq!(promised(&member, served), PromiseAnswer::Superseded(later));
    assert_eq!(promised(&member, later), PromiseAnswer::Promised(Some(extent)), "the later life may ask again");
}

#[test]
fn who_has_caught_up_once_is_not_blank_when_it_follows_another_primary() {
    let (former, _) = begin_shard(&Arc::default());
    let (point, words) = dumped(former.engine());
    let member = start(2, &Arc::default());
    let is_blank = || member.engine().replication.extent().0.is_none();
    member.engine().restore_point(&point, member.now());
    member.engine().replication.adopt_commit_state(&words);
    assert!(is_blank(), "nobody has said how far it has to go");
    member.engine().replication.catch_up_at(point.position + 1);
    assert!(is_blank(), "something may be missing");
    member.engine().replication.catch_up_at(point.position);
    assert!(!is_blank());
    // The next primary's record has not come yet. If that primary dies now, this answer is one of those that the shard needs.
    member.engine().replication.catch_up_at(point.position + 100);
    assert!(!is_blank());
}

/// Does what follows until something is to be read. What was sent, and whether the link ended.
fn turn(follower: &Follower, now: Now) -> (String, bool) {
    let mut sent = Vec::new();
    loop {
        match follower.next_step(now) {
            Step::Send(bytes) => sent.extend_from_slice(&bytes),
            Step::HangUp => return (String::from_utf8(sent).expect("only texts are sent"), true),
            _ => return (String::from_utf8(sent).expect("only texts are sent"), false),
        }
    }
}

#[test]
fn a_copy_asks_again_once_its_primary_serves_terms() {
    let history = "ab".repeat(20);
    let mut member = start(2, &Arc::default());
    member.engine().configure("repl-diskless-load", "on-empty-db").unwrap();
    member.engine().set_network(Box::new(Nowhere));
    let upstream = Upstream::Address { host: "primary".to_owned(), port: 7 };
    member.engine().follow(Some(upstream), member.now());
    let follower = Follower::new(member.engine_shared());
    let hear = |bytes: &[u8], now: Now| {
        follower.handle_bytes(bytes, now);
        turn(&follower, now)
    };
    let connect = |mandate: &str, now: Now| {
        assert!(matches!(follower.next_step(now), Step::Dial { .. }));
        follower.handle_connected(Talk::link("127.0.0.1:1"), now);
        turn(&follower, now);
        let (introduced, _) = hear(b"+PONG\r\n", now);
        assert!(introduced.contains("ASHLAR-MEMBER"), "{introduced}");
        hear(format!("+OK\r\n+{mandate}\r\n").as_bytes(), now);
        (0..4).map(|_| hear(b"+OK\r\n", now).0).find(|sent| !sent.is_empty()).unwrap_or_default()
    };
    // A primary without terms, whose copy this is.
    let asked = connect("ASYNC", member.now());
    assert!(asked.contains("PSYNC"), "{asked}");
    let dump = Talk::new().engine().export_rdb(member.now());
    hear(format!("+FULLRESYNC {history} 1000\r\n${}\r\n", dump.len()).as_bytes(), member.now());
    assert!(!hear(&dump, member.now()).1);
    assert!(member.engine().replication.whole().1);
    // What has as many words as a record, or begins like one, is none.
    let others = b"*4\r\n$3\r\nSET\r\n$3\r\nbar\r\n$1\r\n1\r\n$7\r\nKEEPTTL\r\n\
                   *4\r\n$8\r\nREPLCONF\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n";
    assert!(!hear(others, member.now()).1);
    // It begins to serve terms: a member's data count only once it was told how far they are to go.
    let record = format!("*4\r\n$8\r\nREPLCONF\r\n$11\r\nASHLAR-TERM\r\n$3\r\n7.1\r\n$40\r\n{}\r\n", name(1));
    let (_, is_over) = hear(record.as_bytes(), member.now());
    assert!(is_over, "it asks again");
    let is_blank = |member: &Talk| member.engine().replication.extent().0.is_none();
    assert!(is_blank(&member));
    member.wait(10_000);
    let end = member.engine().replication.end();
    assert_eq!(end, 1000 + (others.len() + record.len()) as u64);
    let asked = connect(&format!("TERM 7.1 {} {end} {}", name(1), name(1)), member.now());
    assert!(asked.contains(&format!("{}", end + 1)), "it goes on where it was: {asked}");
    assert!(!hear(b"+CONTINUE\r\n", member.now()).1);
    assert!(!is_blank(&member));
    assert!(!hear(record.as_bytes(), member.now()).1, "it has said its term by now");
}

/// Three members that were all restarted, after term 7.1: none has anything that counts. The first one's log had a key.
fn all_restarted() -> (Talk, Vec<Talk>) {
    let drive = || {
        let drive: Arc<Mutex<String>> = Arc::default();
        let node = start(1, &drive);
        assert_eq!(node.engine().promises.promise(SHARD, term(7, 1), name(1)), Ok(()));
        assert!(node.engine().promises.note_members(SHARD, &members(&[1, 2, 3])));
        drive
    };
    let mut first = start_in(map_of_three(1, 7), &drive());
    assert_eq!(first.say(0, "SET bar 1"), "OK");
    let others: Vec<Talk> = [2, 3].map(|number| start_in(map_of_three(number, 7), &drive())).into();
    first.engine().set_network(Box::new(Nowhere));
    (first, others)
}

const SHORT: TakeOver = TakeOver::Waits("too few members have answered that have all their data");

/// A client that says it is a member, has this of a history, and is answered so.
fn enrol(talk: &mut Talk, number: u8, has: &str) -> (usize, String) {
    let client = talk.join();
    let mandate = talk.say(client, &format!("REPLCONF ASHLAR-MEMBER {} OF {SHARD} COPIES -", name(number)));
    let heard = talk.raw(client, format!("PSYNC {has}\r\n").as_bytes());
    assert!(heard.is_empty() || heard == b"+CONTINUE\r\n", "{}", heard.escape_ascii());
    let heard = if heard.is_empty() { "a dump".to_owned() } else { mandate };
    (client, heard)
}

#[test]
fn a_shard_whose_copies_were_all_restarted_begins_anew_where_an_operator_says() {
    let (mut first, others) = all_restarted();
    let map = map_of_three(1, 7);
    for _ in 0..3 {
        assert_eq!(take_over(&first, &map, 2, &others), SHORT);
    }
    let info = first.say(0, "INFO replication");
    assert!(info.contains("quorum_waiting_term:7.2") && info.contains("quorum_waits:too few members"), "{info}");
    assert_eq!(first.say(0, "CLUSTER BEGINSHARD"), "OK");
    assert_eq!(take_over(&first, &map, 2, &others), TakeOver::Done);
    assert!(!first.say(0, "INFO replication").contains("quorum_wait"));
    assert!(first.say(0, "CLUSTER BEGINSHARD").contains("serves term 7.2 of its shard already"));
    let status = first.engine().quorum_status().unwrap();
    assert_eq!((status.term, status.members, status.is_blank), (term(7, 2), members(&[1]), false));
    assert!(first.say(0, "GET bar").contains("NOREPLICAS"), "one copy is too few");

    // The others are promised to it, and to none before it.
    for other in &others {
        assert_eq!(promised(other, term(7, 2)), PromiseAnswer::Promised(None));
        assert_eq!(promised(other, term(7, 1)), PromiseAnswer::Superseded(term(7, 2)));
    }
    let mut replicas = Vec::new();
    for number in [2, 3] {
        let (history, end) = (first.engine().identity.history(), first.engine().replication.end());
        let (replica, heard) = enrol(&mut first, number, &format!("{history} {}", end + 1));
        assert!(heard.starts_with(&format!("TERM 7.2 {} {end} ", name(1))), "{heard}");
        replicas.push(replica);
    }
    for _ in 0..4 {
        replicas.iter().for_each(|replica| acknowledge(&mut first, *replica, None));
        first.tick();
    }
    replicas.iter().for_each(|replica| acknowledge(&mut first, *replica, None));
    assert_eq!(first.engine().quorum_status().unwrap().members, members(&[1, 2, 3]));
    let mut client = open_session(&first.engine_shared(), first.now());
    client.feed(b"GET bar\r\nSET bar 2\r\n", first.now());
    assert_eq!(client.replies(), b"$1\r\n1\r\n+OK\r\n", "the data were kept");
    assert!(client.is_held());
    acknowledge(&mut first, replicas[1], None);
    assert!(!client.is_held(), "a majority has it");
}

#[test]
fn who_waits_to_take_its_shard_over_sends_nobody_to_the_former_primary() {
    let mut elected = start_in(map_led_by(1, 2, 7), &Arc::default());
    assert!(elected.say(0, "SET bar 1").contains("MOVED"));
    assert_eq!(take_over(&elected, &map_led_by(2, 2, 8), 1, &[]), SHORT);
    let told = elected.say(0, "SET bar 1");
    assert!(told.contains("CLUSTERDOWN Hash slot not served") && told.contains("too few members"), "{told}");
    assert_eq!(elected.say(0, "CLUSTER BEGINSHARD"), "OK", "the map does not make it a primary yet");
    elected.engine().give_up_take_over();
    assert!(elected.say(0, "SET bar 1").contains("MOVED"));
}

#[test]
fn who_was_a_member_before_goes_on_with_nothing_that_it_has() {
    let drive = Arc::default();
    let (former, _) = begin_shard(&drive);
    let dump = dumped(former.engine());
    let mut node = start(1, &drive);
    load(&node, &dump);
    assert!(node.engine().promises.note_members(SHARD, &members(&[1, 2, 3])));
    let three = members(&[1, 2, 3]);
    node.engine().replication.note_record(term(7, 1), three);
    let map = map(1, 8);
    assert_eq!(take_over(&node, &map, 2, &[]), SHORT);
    assert_eq!(node.say(0, "CLUSTER BEGINSHARD"), "OK");
    assert_eq!(take_over(&node, &map, 2, &[]), TakeOver::Done);
    assert_eq!(node.engine().replication.released(), node.engine().replication.end(), "its own, and no earlier one's");
    let (history, position) = (&dump.0.history, dump.0.position);
    for position in [position, position - 1] {
        let (_, heard) = enrol(&mut node, 2, &format!("{history} {}", position + 1));
        assert_eq!(heard, "a dump");
    }
    assert_eq!(node.engine().quorum_status().unwrap().members, members(&[1]), "who has no data is no member");
}

#[test]
fn a_shard_begins_anew_only_where_that_is_called_for() {
    let mut alone = Talk::new();
    assert_eq!(alone.say(0, "CLUSTER BEGINSHARD"), "(error) ERR This instance has cluster support disabled");

    let (mut first, mut others) = all_restarted();
    let refused = |talk: &mut Talk, why: &str| {
        let reply = talk.say(0, "CLUSTER BEGINSHARD");
        assert!(reply.starts_with("(error) ERR ") && reply.contains(why), "{reply}");
    };
    refused(&mut first, "is not waiting to serve");
    refused(&mut others[0], "CLUSTER FAILOVER TAKEOVER");
    let map = map_of_three(1, 7);
    assert_eq!(take_over(&first, &map, 2, &others), SHORT);

    // A part of another's data is nothing to begin with.
    first.engine().replication.note_torn();
    refused(&mut first, "only a part of another member's data");
    let (mut first, others) = all_restarted();
    assert_eq!(take_over(&first, &map, 2, &others), SHORT);
    assert_eq!(first.say(0, "CLUSTER BEGINSHARD"), "OK");
    first.engine().replication.note_torn();
    assert!(matches!(take_over(&first, &map, 2, &others), TakeOver::Waits(why) if why.contains("not come whole")));

    // What was decided holds for one attempt, and for nobody who is to follow another or has promised a later term.
    let (mut first, others) = all_restarted();
    assert_eq!(take_over(&first, &map, 2, &others), SHORT);
    assert_eq!(first.say(0, "CLUSTER BEGINSHARD"), "OK");
    first.engine().prepare_to_follow(SHARD, first.now());
    assert_eq!(take_over(&first, &map, 2, &others), SHORT);
    assert_eq!(first.say(0, "CLUSTER BEGINSHARD"), "OK");
    assert_eq!(promised_to(&first, term(9, 1), name(2)), PromiseAnswer::Promised(None));
    for _ in 0..2 {
        assert_eq!(take_over(&first, &map, 2, &others), TakeOver::Superseded(term(9, 1)));
    }
    refused(&mut first, "is not waiting to serve");
    assert_eq!(others[0].engine().quorum_status(), None, "nobody serves");

    // Data that are being taken over come whole first.
    let drive = Arc::default();
    let (former, _) = begin_shard(&drive);
    let dump = dumped(former.engine());
    let (mut first, others) = all_restarted();
    load(&others[0], &dump);
    load(&others[1], &dump);
    assert!(matches!(take_over(&first, &map, 2, &others), TakeOver::Waits(why) if why.contains("taken over")));
    refused(&mut first, "taking over the data of another member");
    assert_eq!(take_over(&first, &map, 2, &[]), SHORT);
    assert_eq!(first.say(0, "CLUSTER BEGINSHARD"), "OK", "nobody is there any more from whom they could come");
}

#[test]
fn a_shard_that_needs_no_majority_does_not_begin_anew() {
    let engine = Engine::new(&EngineConfig { secret: [3; HASH_KEY_BYTES], shards: 8, databases: 2 });
    engine.join_cluster(map(1, 7), Box::new(NoOrders));
    let mut talk = Talk::with(Arc::new(engine));
    let reply = talk.say(0, "CLUSTER BEGINSHARD");
    assert!(reply.contains("need no majority of its copies"), "{reply}");
    talk.say(0, "MULTI");
    assert!(talk.say(0, "CLUSTER BEGINSHARD").starts_with("(error)"));
}

#[test]
fn a_promise_is_given_only_to_a_node_of_the_shard_and_for_a_term_that_can_come() {
    let member = start(2, &Arc::default());
    let refused = |why| PromiseAnswer::Refused(why);
    let ask = |shard, term, candidate, to| {
        member.engine().answer_promise(&PromiseRequest { shard, term, candidate, member: to }, member.now())
    };
    assert_eq!(ask(name(9), term(8, 1), name(1), name(2)), refused(Refused::OtherShard));
    assert_eq!(ask(SHARD, term(8, 1), name(1), name(3)), refused(Refused::OtherShard), "it is for another node");
    assert_eq!(ask(SHARD, term(8, 1), name(3), name(2)), refused(Refused::UnknownCandidate));
    assert_eq!(ask(SHARD, term(u64::MAX, 1), name(1), name(2)), refused(Refused::TermTooHigh));
    assert_eq!(ask(SHARD, term(8, u64::MAX), name(1), name(2)), refused(Refused::TermTooHigh));
    assert!(member.engine().promises.of(SHARD).is_none(), "nothing was written down");
    assert_eq!(ask(SHARD, term(8, 1), name(1), name(2)), PromiseAnswer::Promised(None));
}

#[test]
fn a_node_that_leaves_the_shard_is_no_member_any_more() {
    let (mut talk, replica) = begin_shard(&Arc::default());
    let map = map(1, 7);
    let nodes = map.nodes().iter().map(|node| match node.name == name(2) {
        true => Node { shard: name(9), ..node.clone() },
        false => node.clone(),
    });
    let left = Map::new(name(1), nodes.collect(), Service { is_up: true, epoch: 7, ..Service::default() });
    talk.engine().set_map(left, talk.now());
    // Those that were, and those that will be, have to agree.
    talk.tick();
    let status = talk.engine().quorum_status().unwrap();
    assert_eq!(status.members, members(&[1, 2]).towards(vec![name(1)]));
    for _ in 0..2 {
        acknowledge(&mut talk, replica, None);
        talk.tick();
    }
    assert_eq!(talk.engine().quorum_status().unwrap().members, members(&[1]));
    let refused = talk.say(0, "SET foo 1");
    assert!(refused.starts_with("(error) NOREPLICAS"), "one copy is fewer than a shard must have: {refused}");
}

#[test]
fn a_reply_that_no_majority_allows_for_too_long_ends_its_connection() {
    let (mut talk, replica) = begin_shard(&Arc::default());
    let (one, other) = (talk.join(), talk.join());
    talk.say(one, "SET foo 1");
    assert!(talk.session_mut(one).is_held());
    talk.wait(5_000);
    talk.tick();
    assert!(!talk.is_closed(one) && talk.engine().has_held_replies(), "no longer than it may");
    acknowledge(&mut talk, replica, None);
    talk.tick();
    assert!(!talk.session_mut(one).is_held());
    talk.say(other, "SET bar 1");
    talk.wait(5_001);
    talk.tick();
    assert!(talk.is_closed(other) && !talk.is_closed(one));
    assert!(!talk.engine().has_held_replies());
}

#[test]
fn only_who_was_promised_a_term_copies_for_it() {
    let (former, _) = begin_shard(&Arc::default());
    let dump = dumped(former.engine());
    let member = start(2, &Arc::default());
    let later = term(8, 1);
    let ask = |member: &Talk, asks: u8, copied: Option<Term>| {
        member.engine().mandate(SHARD, name(asks), copied).map_err(|error| format!("{error:?}"))
    };
    assert!(matches!(promised(&member, later), PromiseAnswer::Promised(None)));
    assert!(ask(&member, 1, Some(later)).is_err(), "it has nothing that counts");
    load(&member, &dump);
    let mandate = ask(&member, 1, Some(later)).expect("it was promised");
    assert!(mandate.starts_with(&format!("TERM 8.1 {} {} ", name(1), dump.0.position)), "{mandate}");
    for (asks, of) in [(2, later), (1, term(7, 1)), (1, term(9, 1))] {
        let refused = ask(&member, asks, Some(of)).expect_err("that was not promised to it");
        assert!(refused.contains("STALETERM 8.1"), "{asks} {of}: {refused}");
    }
    // Who does not serve yet sends nobody its stream; a replica has none of this mode.
    member.engine().set_network(Box::new(Nowhere));
    member.engine().follow(Some(Upstream::Address { host: "primary".to_owned(), port: 7 }), member.now());
    assert_eq!(ask(&member, 1, None), Ok("ASYNC".to_owned()));
    let waiting = start(1, &Arc::default());
    assert!(matches!(promised_to(&waiting, later, name(2)), PromiseAnswer::Promised(_)));
    assert!(waiting.engine().awaits_take_over());
    let refused = ask(&waiting, 2, None).expect_err("it has not made sure");
    assert!(refused.contains("NOMASTERLINK"), "{refused}");
    assert!(!former.engine().awaits_take_over() && !member.engine().awaits_take_over());
}
