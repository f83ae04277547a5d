//! Who gets which message, without a network.

use core::task::Waker;

use super::super::published::MessageReader;
use super::*;

const GROUP: GroupId = GroupId(5);

/// Keeps the lines, and stands still until the test moves it.
#[derive(Default, Clone)]
struct Carried {
    lines: Arc<Mutex<BTreeMap<ServerId, Arc<Line>>>>,
    now: Arc<Mutex<Instant>>,
}

impl Relay for Carried {
    fn relay(&self, server: ServerId, line: Arc<Line>) {
        self.lines.lock().unwrap().insert(server, line);
    }

    fn now(&self) -> Instant {
        *self.now.lock().unwrap()
    }
}

impl Carried {
    /// What waits for a server, and the messages in it.
    fn take(&self, number: u8) -> Vec<String> {
        let Some(line) = self.lines.lock().unwrap().get(&server(number)).cloned() else { return Vec::new() };
        let (mut bytes, mut reader, mut texts) = (Vec::new(), MessageReader::default(), Vec::new());
        let _ = line.poll_take(&Context::from_waker(Waker::noop()), &mut bytes);
        reader.feed(&bytes);
        while let Some(published) = reader.next_message().unwrap() {
            texts.push(String::from_utf8_lossy(published.message).into_owned());
        }
        texts
    }
}

fn server(number: u8) -> ServerId {
    ServerId::from_bytes([number; 16])
}

fn listener(number: u8, hears: bool, group: GroupId) -> Listener {
    let interest: &[u8] = if hears { &[0] } else { &[] };
    Listener { server: server(number), interest: interest.into(), groups: vec![group] }
}

fn messages() -> (Messages, Carried) {
    let (messages, carried) = (Messages::new(1), Carried::default());
    messages.open(Box::new(carried.clone()));
    (messages, carried)
}

#[test]
fn messages_go_to_servers_that_listen_and_shard_messages_to_the_group() {
    let (messages, carried) = messages();
    let listeners = vec![listener(1, true, GROUP), listener(2, true, GroupId(6)), listener(3, false, GROUP)];
    messages.set_listeners(listeners, vec![GROUP]);
    messages.publish(0, b"c", b"to all", false);
    messages.publish(0, b"c", b"to the group", true);
    assert_eq!(carried.take(1), ["to all", "to the group"]);
    assert_eq!(carried.take(2), ["to all"]);
    assert!(carried.take(3).is_empty());
    let figures = messages.figures();
    assert_eq!((figures.sent, figures.sent_sharded, figures.dropped), (2, 1, 0));
}

#[test]
fn who_is_found_to_listen_gets_what_it_has_just_missed_and_nothing_older() {
    let (messages, carried) = messages();
    messages.set_listeners(vec![listener(1, true, GROUP), listener(2, false, GROUP)], vec![GROUP]);
    messages.publish(0, b"c", b"old", false);
    *carried.now.lock().unwrap() = Instant::ORIGIN + RECENT_MAX + Duration::from_millis(1);
    messages.publish(0, b"c", b"new", false);
    messages.publish(0, b"c", b"of the shard", true);
    messages.set_listeners(vec![listener(1, true, GROUP), listener(2, true, GroupId(6))], vec![GROUP]);
    assert_eq!(carried.take(2), ["new"]);
    assert_eq!(carried.take(1), ["old", "new", "of the shard"]);
    assert!(messages.room().recent_bytes <= RECENT_BYTES_MAX);
}

#[test]
fn what_finds_no_room_is_dropped_and_counted() {
    let (messages, carried) = messages();
    messages.set_listeners(vec![listener(1, true, GROUP), listener(2, false, GROUP)], vec![GROUP]);
    let long = vec![0; LINE_BYTES_MAX / 2];
    (0..3).for_each(|_| messages.publish(0, b"c", &long, false));
    messages.publish(0, b"c", &vec![0; MESSAGE_BYTES_MAX], false);
    assert_eq!((messages.figures().sent, messages.figures().dropped), (1, 3));
    assert_eq!(messages.room().recent_bytes, 0);
    messages.set_listeners(vec![listener(2, true, GROUP)], vec![GROUP]);
    assert_eq!(messages.figures().dropped, 4);
    assert!(carried.take(1).is_empty());
}

#[test]
fn a_server_that_stops_sends_what_waits_and_nothing_more() {
    let (messages, carried) = messages();
    messages.set_listeners(vec![listener(1, true, GROUP), listener(2, false, GROUP)], vec![GROUP]);
    messages.publish(0, b"c", b"before", false);
    messages.close();
    messages.publish(0, b"c", b"after", false);
    messages.set_listeners(vec![listener(1, true, GROUP), listener(2, true, GROUP)], vec![GROUP]);
    messages.publish(0, b"c", b"later", false);
    assert_eq!(carried.take(1), ["before"]);
    let lines = carried.lines.lock().unwrap();
    assert_eq!(lines.keys().collect::<Vec<_>>(), [&server(1)], "no line begins");
    let is_over = |line: &Arc<Line>| line.poll_take(&Context::from_waker(Waker::noop()), &mut Vec::new());
    assert_eq!(is_over(&lines[&server(1)]), Poll::Ready(None));
    let figures = messages.figures();
    // To the first server `after` and `later`, to the other one `before` and `later`.
    assert_eq!((figures.sent, figures.dropped), (1, 5));
}

#[test]
fn what_comes_is_heard_by_engines_that_it_is_for() {
    let messages = Messages::new(2);
    let heard: Arc<Mutex<Vec<(usize, bool)>>> = Arc::default();
    for engine_info in 0..2 {
        let heard = Arc::clone(&heard);
        messages.listen(
            engine_info,
            Box::new(move |_, _, is_sharded| heard.lock().unwrap().push((engine_info, is_sharded))),
        );
    }
    messages.set_listeners(Vec::new(), vec![GROUP, GroupId(6)]);
    messages.deliver(&Published { group: None, channel: b"c", message: b"m" });
    messages.deliver(&Published { group: Some(GroupId(6)), channel: b"c", message: b"m" });
    messages.deliver(&Published { group: Some(GroupId(7)), channel: b"c", message: b"m" });
    messages.publish(0, b"c", b"m", false);
    assert_eq!(*heard.lock().unwrap(), [(0, false), (1, false), (1, true), (1, false)]);
    assert_eq!(messages.figures().received_sharded, 2);
}
