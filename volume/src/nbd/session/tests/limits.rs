//! Every limit of a session, reached.

use super::*;

#[test]
fn options() {
    let limits = Limits { options_max: 2, ..Limits::default() };
    let mut pair = Pair::greeted(limits, TlsPolicy::Unsupported, 3);
    pair.send(&option_bytes(99, &[]));
    pair.send(&option_bytes(99, &[]));
    assert_eq!(pair.session.end(), None);
    pair.send(&option_bytes(99, &[]));
    assert_eq!(pair.session.end(), Some(End::TooManyOptions));
}

#[test]
fn exports_in_a_list() {
    let limits = Limits { exports_listed_max: 1, ..Limits::default() };
    let mut pair = Pair::greeted(limits, TlsPolicy::Unsupported, 3);
    pair.send(&option_bytes(option::LIST, &[]));
    let name = ExportName { name: String::from("x"), description: String::new() };
    pair.session.handle_exports(Some(&[name.clone(), name]));
    assert_eq!(pair.received(), hex("0003e889045565a9 00000003 80000009 00000000"));
}

#[test]
fn requests_in_flight() {
    let limits = Limits { in_flight_max: 2, ..Limits::default() };
    let mut pair = Pair::entered(limits, export(), &[]);
    let three = request_bytes(0, command::FLUSH, 1, 0, 0).repeat(3);
    assert_eq!(pair.session.handle_bytes(&three), 56);
    assert!(!pair.session.wants_bytes());
    let id = pair.io().id;
    pair.session.handle_reply(id, Reply::Done);
    assert_eq!(pair.session.handle_bytes(&three[56..]), 28);
    assert_eq!(pair.session.in_flight(), 2);
}

#[test]
fn payload_that_is_held() {
    let limits = Limits { held_bytes_max: 150_000, ..Limits::default() };
    let mut pair = Pair::entered(limits, export(), &[]);
    pair.send(&request_bytes(0, command::READ, 1, 0, 100_000));
    pair.send(&request_bytes(0, command::WRITE, 2, 0, 100_000));
    assert!(!pair.session.wants_bytes());
    let read = pair.io();
    assert_eq!(pair.session.poll_request(), None);
    pair.session.handle_reply(read.id, Reply::Data(vec![Piece::Zeroes(100_000)]));
    // The reply is not sent yet.
    assert!(!pair.session.wants_bytes());
    pair.received();
    pair.send(&vec![1; 100_000]);
    assert!(matches!(pair.io().io, Io::Write(_)));
    // Alone, a request of any length is let in.
    let mut pair = Pair::entered(limits, export(), &[]);
    pair.send(&request_bytes(0, command::READ, 1, 0, 1 << 20));
    assert_eq!(pair.io().len, 1 << 20);
}

#[test]
fn a_held_write_is_refused_when_the_server_shuts_down() {
    let limits = Limits { held_bytes_max: 10, ..Limits::default() };
    let mut pair = Pair::entered(limits, export(), &[]);
    pair.send(&request_bytes(0, command::READ, 1, 0, 10));
    pair.send(&request_bytes(0, command::WRITE, 2, 0, 10));
    pair.session.shut_down();
    pair.send(&[0; 10]);
    assert_eq!(pair.received(), hex("67446698 0000006c 0000000000000002"));
}

#[test]
fn bytes_that_the_client_does_not_read() {
    let limits = Limits { output_bytes_max: 40, ..Limits::default() };
    let mut pair = Pair::entered(limits, export(), &[]);
    let bad = request_bytes(0, 99, 1, 0, 0).repeat(10);
    // Each answer has 16 bytes; no request is read once more than 40 wait.
    assert_eq!(pair.session.handle_bytes(&bad), 3 * 28);
    assert_eq!(pair.session.transmit_len(), 48);
    pair.received();
    assert!(pair.session.wants_bytes());
}

#[test]
fn payloads_that_are_passed_over() {
    let limits = Limits { payload_bytes_max: 65_536, skip_bytes_max: 70_000, ..Limits::default() };
    let mut pair = Pair::entered(limits, export(), &[]);
    pair.send(&request_bytes(0, command::WRITE, 1, 0, 70_000));
    pair.send(&vec![0; 70_000]);
    assert_eq!(pair.received().len(), 16);
    pair.session.handle_bytes(&request_bytes(0, command::WRITE, 1, 0, 70_001));
    assert_eq!(pair.session.end(), Some(End::TooLong));
}

#[test]
fn spans() {
    let limits = Limits { spans_max: 2, ..Limits::default() };
    let mut pair = Pair::structured(limits);
    pair.send(&request_bytes(0, command::BLOCK_STATUS, 1, 0, 1 << 20));
    let id = pair.io().id;
    let span = Span { len: 512, is_hole: false, is_zero: false };
    pair.session.handle_reply(id, Reply::Status(vec![span; 5]));
    assert_eq!(pair.received().len(), 20 + 4 + 2 * 8);
}

#[test]
fn an_announced_length_alone_costs_no_memory() {
    let mut pair = Pair::entered(Limits::default(), Export { size: 1 << 30, ..export() }, &[]);
    pair.send(&request_bytes(0, command::WRITE, 1, 0, 32 << 20));
    pair.send(b"x");
    let super::super::State::Payload(_, data) = &pair.session.state else { panic!("a payload is being received") };
    assert!(data.capacity() <= 1 << 20, "{}", data.capacity());
}
