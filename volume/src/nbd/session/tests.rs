//! A client's bytes against a session, with an owner that is a small memory.

mod any_input;
mod golden;
mod limits;
mod options;
mod requests;

use bytes::Bytes;

use super::super::protocol::{OPTION_MAGIC, REQUEST_MAGIC, command, option};
use super::super::{
    BlockSizes, End, Export, ExportName, Features, Io, IoRequest, Limits, Purpose, Reply, Request, RequestId, Session,
    Span, TlsPolicy,
};

use crate::piece::Piece;

/// Bytes of the export of tests.
const SIZE: u64 = 1 << 20;

/// The bytes of hexadecimal digits; blanks are passed over.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> =
        text.chars().filter(|digit| !digit.is_whitespace()).map(|digit| digit.to_digit(16).unwrap()).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] << 4 | pair[1]).unwrap()).collect()
}

fn export() -> Export {
    Export {
        size: SIZE,
        features: Features::ALL,
        blocks: BlockSizes::default(),
        tells_allocation: true,
        name: None,
        description: String::from("d"),
    }
}

fn option_bytes(option: u32, data: &[u8]) -> Vec<u8> {
    let len = u32::try_from(data.len()).unwrap();
    [&OPTION_MAGIC.to_be_bytes()[..], &option.to_be_bytes(), &len.to_be_bytes(), data].concat()
}

/// The data of `INFO` and `GO`.
fn info_data(name: &str, kinds: &[u16]) -> Vec<u8> {
    let mut data = u32::try_from(name.len()).unwrap().to_be_bytes().to_vec();
    data.extend_from_slice(name.as_bytes());
    data.extend_from_slice(&u16::try_from(kinds.len()).unwrap().to_be_bytes());
    kinds.iter().for_each(|kind| data.extend_from_slice(&kind.to_be_bytes()));
    data
}

/// The data of `SET_META_CONTEXT` and `LIST_META_CONTEXT`.
fn context_data(name: &str, queries: &[&str]) -> Vec<u8> {
    let text = |text: &str| [&u32::try_from(text.len()).unwrap().to_be_bytes()[..], text.as_bytes()].concat();
    let mut data = text(name);
    data.extend_from_slice(&u32::try_from(queries.len()).unwrap().to_be_bytes());
    queries.iter().for_each(|query| data.extend_from_slice(&text(query)));
    data
}

/// A compact request without its payload.
fn request_bytes(flags: u16, command: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    let mut bytes = REQUEST_MAGIC.to_be_bytes().to_vec();
    bytes.extend_from_slice(&flags.to_be_bytes());
    bytes.extend_from_slice(&command.to_be_bytes());
    bytes.extend_from_slice(&cookie.to_be_bytes());
    bytes.extend_from_slice(&offset.to_be_bytes());
    bytes.extend_from_slice(&len.to_be_bytes());
    bytes
}

/// A session and what its client has received.
struct Pair {
    session: Session,
}

impl Pair {
    fn new(limits: Limits, tls: TlsPolicy) -> Self {
        Self { session: Session::new(limits, tls) }
    }

    /// A session whose greeting has been answered with these client flags.
    fn greeted(limits: Limits, tls: TlsPolicy, flags: u32) -> Self {
        let mut pair = Self::new(limits, tls);
        assert_eq!(pair.received().len(), 18);
        pair.send(&flags.to_be_bytes());
        pair
    }

    /// A session in the transmission phase. `options` come before `GO`.
    fn entered(limits: Limits, export: Export, options: &[Vec<u8>]) -> Self {
        let mut pair = Self::greeted(limits, TlsPolicy::Unsupported, 3);
        for option in options {
            pair.send(option);
            if let Some(Request::Lookup { .. }) = pair.session.poll_request() {
                pair.session.handle_export(Some(export.clone()));
            }
        }
        pair.send(&option_bytes(option::GO, &info_data("x", &[])));
        let lookup = Request::Lookup { name: String::from("x"), purpose: Purpose::Enter };
        assert_eq!(pair.session.poll_request(), Some(lookup));
        pair.session.handle_export(Some(export));
        pair.received();
        pair
    }

    /// With structured replies and the allocation context.
    fn structured(limits: Limits) -> Self {
        Self::entered(limits, export(), &structured_options())
    }

    /// Gives bytes that the session has to take whole.
    fn send(&mut self, bytes: &[u8]) {
        assert_eq!(self.session.handle_bytes(bytes), bytes.len());
    }

    /// Takes everything that is to be sent.
    fn received(&mut self) -> Vec<u8> {
        let bytes: Vec<u8> = self.session.poll_transmit().flatten().copied().collect();
        self.session.handle_transmitted(bytes.len() as u64);
        bytes
    }

    /// The next request, which has to be IO.
    fn io(&mut self) -> IoRequest {
        match self.session.poll_request() {
            Some(Request::Io(request)) => request,
            other => panic!("{other:?} is no IO request"),
        }
    }
}

fn structured_options() -> [Vec<u8>; 2] {
    [
        option_bytes(option::STRUCTURED_REPLY, &[]),
        option_bytes(option::SET_META_CONTEXT, &context_data("x", &["base:allocation"])),
    ]
}

#[test]
fn answers_in_any_order_and_cookies_twice() {
    let mut pair = Pair::entered(Limits::default(), export(), &[]);
    pair.send(&request_bytes(0, command::READ, 5, 0, 1));
    pair.send(&request_bytes(0, command::READ, 5, 1, 1));
    pair.send(&request_bytes(0, command::FLUSH, 6, 0, 0));
    let (first, second, third) = (pair.io(), pair.io(), pair.io());
    assert_eq!((first.offset, second.offset, third.io), (0, 1, Io::Flush));
    pair.session.handle_reply(third.id, Reply::Done);
    pair.session.handle_reply(second.id, Reply::Data(vec![Piece::Data(Bytes::from_static(b"b"))]));
    pair.session.handle_reply(first.id, Reply::Data(vec![Piece::Data(Bytes::from_static(b"a"))]));
    let heads = ["67446698 00000000 0000000000000006", "67446698 00000000 0000000000000005 62"];
    let last = "67446698 00000000 0000000000000005 61";
    assert_eq!(pair.received(), hex(&[heads[0], heads[1], last].concat()));
    assert_eq!(pair.session.in_flight(), 0);
}

#[test]
fn a_client_that_leaves_gets_its_answers_first() {
    let mut pair = Pair::entered(Limits::default(), export(), &[]);
    pair.send(&request_bytes(0, command::FLUSH, 1, 0, 0));
    pair.send(&request_bytes(0, command::DISC, 2, 0, 0));
    assert_eq!(pair.session.handle_bytes(b"more"), 0);
    let flush = pair.io();
    assert_eq!(pair.session.poll_request(), Some(Request::Disconnect));
    assert_eq!(pair.session.end(), Some(End::Disconnected));
    assert!(!pair.session.is_finished());
    pair.session.handle_reply(flush.id, Reply::Done);
    assert!(!pair.session.is_finished());
    assert_eq!(pair.received().len(), 16);
    assert!(pair.session.is_finished());
}

#[test]
fn a_server_that_shuts_down_answers_what_it_has_and_refuses_the_rest() {
    let mut pair = Pair::structured(Limits::default());
    pair.send(&request_bytes(0, command::FLUSH, 1, 0, 0));
    pair.session.shut_down();
    pair.send(&request_bytes(0, command::WRITE, 2, 0, 3));
    pair.send(b"abc");
    pair.send(&request_bytes(0, command::READ, 3, 0, 3));
    let flush = pair.io();
    assert_eq!(pair.session.poll_request(), None);
    pair.session.handle_reply(flush.id, Reply::Done);
    let write = "67446698 0000006c 0000000000000002";
    let read = "668e33ef 0001 8001 0000000000000003 00000006 0000006c 0000";
    let flush = "67446698 00000000 0000000000000001";
    assert_eq!(pair.received(), hex(&[write, read, flush].concat()));

    let mut pair = Pair::greeted(Limits::default(), TlsPolicy::Unsupported, 3);
    pair.session.shut_down();
    pair.send(&option_bytes(option::LIST, &[]));
    assert_eq!(pair.received(), hex("0003e889045565a9 00000003 80000007 00000000"));
    pair.send(&option_bytes(option::EXPORT_NAME, b"x"));
    assert_eq!(pair.session.end(), Some(End::Refused));
}

#[test]
#[should_panic(expected = "answered once")]
fn a_second_answer_is_our_fault() {
    let mut pair = Pair::entered(Limits::default(), export(), &[]);
    pair.session.handle_reply(RequestId(0), Reply::Done);
}

#[test]
#[should_panic(expected = "the whole range")]
fn a_short_read_is_our_fault() {
    let mut pair = Pair::entered(Limits::default(), export(), &[]);
    pair.send(&request_bytes(0, command::READ, 5, 0, 2));
    let read = pair.io();
    pair.session.handle_reply(read.id, Reply::Data(vec![Piece::Zeroes(1)]));
}
