//! Golden bytes: whole exchanges, written down once and compared with the specification.

use super::*;
use crate::nbd::protocol::{ErrorCode, info};

const ACK: &str = "00000001 00000000";
const REPLY: &str = "0003e889045565a9";

#[test]
fn the_greeting_and_export_name() {
    let mut pair = Pair::new(Limits::default(), TlsPolicy::Unsupported);
    assert_eq!(pair.received(), b"NBDMAGICIHAVEOPT\x00\x03");
    pair.send(&hex("00000003"));
    pair.send(&hex("49484156454f5054 00000001 00000001 78"));
    let lookup = Request::Lookup { name: String::from("x"), purpose: Purpose::Enter };
    assert_eq!(pair.session.poll_request(), Some(lookup));
    pair.session.handle_export(Some(export()));
    assert_eq!(pair.received(), hex("0000000000100000 0d6d"));

    // A client that has not given the zeroes up.
    let mut pair = Pair::greeted(Limits::default(), TlsPolicy::Unsupported, 1);
    pair.send(&option_bytes(option::EXPORT_NAME, b""));
    pair.session.handle_export(Some(Export { features: Features::READ_ONLY, ..export() }));
    assert_eq!(pair.received(), [hex("0000000000100000 0003"), vec![0; 124]].concat());
}

#[test]
fn go_with_everything() {
    let mut pair = Pair::greeted(Limits::default(), TlsPolicy::Unsupported, 3);
    pair.send(&hex("49484156454f5054 00000008 00000000"));
    assert_eq!(pair.received(), hex(&format!("{REPLY} 00000008 {ACK}")));

    let query = "00000001 78 00000001 0000000f 626173653a616c6c6f636174696f6e";
    pair.send(&hex(&format!("49484156454f5054 0000000a 0000001c {query}")));
    let lookup = Request::Lookup { name: String::from("x"), purpose: Purpose::Describe };
    assert_eq!(pair.session.poll_request(), Some(lookup));
    pair.session.handle_export(Some(export()));
    let context = "0000000a 00000004 00000013 00000001 626173653a616c6c6f636174696f6e";
    assert_eq!(pair.received(), hex(&format!("{REPLY} {context} {REPLY} 0000000a {ACK}")));

    pair.send(&hex("49484156454f5054 00000007 0000000f 00000001 78 0004 0000 0001 0002 0003"));
    pair.session.poll_request().unwrap();
    pair.session.handle_export(Some(Export { name: Some(String::from("xx")), ..export() }));
    let told = [
        format!("{REPLY} 00000007 00000003 0000000c 0000 0000000000100000 0ded"),
        format!("{REPLY} 00000007 00000003 00000004 0001 7878"),
        format!("{REPLY} 00000007 00000003 00000003 0002 64"),
        format!("{REPLY} 00000007 00000003 0000000e 0003 00000001 00001000 02000000"),
        format!("{REPLY} 00000007 {ACK}"),
    ];
    assert_eq!(pair.received(), hex(&told.concat()));
    pair.send(&hex("25609513 0001 0001 0000000000000007 0000000000000010 00000003 616263"));
    let expected =
        IoRequest { id: RequestId(0), offset: 16, len: 3, fua: true, io: Io::Write(Bytes::from_static(b"abc")) };
    assert_eq!(pair.io(), expected);
}

#[test]
fn lists() {
    let mut pair = Pair::greeted(Limits::default(), TlsPolicy::Unsupported, 3);
    pair.send(&option_bytes(option::LIST, &[]));
    assert_eq!(pair.session.poll_request(), Some(Request::List));
    let name = |name: &str, description: &str| ExportName { name: name.into(), description: description.into() };
    pair.session.handle_exports(Some(&[name("a", ""), name("b", "c")]));
    let servers =
        format!("{REPLY} 00000003 00000002 00000005 00000001 61 {REPLY} 00000003 00000002 00000006 00000001 6263");
    assert_eq!(pair.received(), hex(&format!("{servers} {REPLY} 00000003 {ACK}")));
    pair.send(&option_bytes(option::LIST, &[]));
    pair.session.handle_exports(None);
    let text = super::super::handshake::NO_LIST.as_bytes();
    let len = u32::try_from(text.len()).unwrap().to_be_bytes();
    assert_eq!(pair.received(), [&hex(&format!("{REPLY} 00000003 80000002"))[..], &len, text].concat());
}

/// One request, its reply, and the bytes of the reply for one framing.
fn check(options: &[Vec<u8>], request: &[u8], reply: Reply, golden: &str) {
    let mut pair = Pair::entered(Limits::default(), export(), options);
    pair.send(request);
    let id = pair.io().id;
    pair.session.handle_reply(id, reply);
    assert_eq!(pair.received(), hex(golden), "{golden}");
}

fn hole_and_data() -> Reply {
    Reply::Data(vec![Piece::Zeroes(2), Piece::Data(Bytes::from_static(b"ab"))])
}

fn spans() -> Reply {
    let span = |len, is_hole| Span { len, is_hole, is_zero: is_hole };
    Reply::Status(vec![span(0x1000, false), span(0x2000, true), span(SIZE, false), span(1, true)])
}

#[test]
fn simple_replies() {
    check(&[], &request_bytes(0, 0, 9, 8, 4), hole_and_data(), "67446698 00000000 0000000000000009 0000 6162");
    let failed = Reply::Failed { code: ErrorCode::Io, offset: Some(9) };
    check(&[], &request_bytes(0, 0, 9, 8, 4), failed, "67446698 00000005 0000000000000009");
    check(&[], &request_bytes(0, 4, 9, 8, 4), Reply::Done, "67446698 00000000 0000000000000009");
}

#[test]
fn structured_replies() {
    let options = structured_options();
    let hole = "668e33ef 0000 0002 0000000000000009 0000000c 0000000000000008 00000002";
    let data = "668e33ef 0001 0001 0000000000000009 0000000a 000000000000000a 6162";
    check(&options, &request_bytes(0, 0, 9, 8, 4), hole_and_data(), &[hole, data].concat());
    let one = "668e33ef 0001 0001 0000000000000009 0000000c 0000000000000008 0000 6162";
    check(&options, &request_bytes(4, 0, 9, 8, 4), hole_and_data(), one);
    let at = Reply::Failed { code: ErrorCode::Io, offset: Some(9) };
    let error = "668e33ef 0001 8002 0000000000000009 0000000e 00000005 0000 0000000000000009";
    check(&options, &request_bytes(0, 0, 9, 8, 4), at, error);
    let error = "668e33ef 0001 8001 0000000000000009 00000006 00000005 0000";
    check(&options, &request_bytes(0, 0, 9, 8, 4), Reply::failed(ErrorCode::Io), error);
    check(&options, &request_bytes(0, 6, 9, 8, 4), Reply::Done, "67446698 00000000 0000000000000009");
    // Up to the span that covers the request, cut at the end of the export.
    let status =
        "668e33ef 0001 0005 0000000000000009 0000001c 00000001 00001000 00000000 00002000 00000003 000fd000 00000000";
    check(&options, &request_bytes(0, 7, 9, 0, 0x4000), spans(), status);
    let status = "668e33ef 0001 0005 0000000000000009 00000014 00000001 00001000 00000000 00002000 00000003";
    check(&options, &request_bytes(0, 7, 9, 0, 0x2000), spans(), status);
    let status = "668e33ef 0001 0005 0000000000000009 0000000c 00000001 00000800 00000000";
    check(&options, &request_bytes(8, 7, 9, 0, 0x800), spans(), status);
}

#[test]
fn extended_headers() {
    let mut options = structured_options();
    options[0] = option_bytes(option::EXTENDED_HEADERS, &[]);
    let request = |flags: &str, command: &str, len: &str| {
        hex(&format!("21e41c71 {flags} {command} 0000000000000009 0000000000000008 {len}"))
    };
    let four = "0000000000000004";
    let head = |kind: &str, len: &str| format!("6e8a278c {kind} 0000000000000009 0000000000000008 {len}");
    let hole = head("0000 0002", "000000000000000c 0000000000000008 00000002");
    let data = head("0001 0001", "000000000000000a 000000000000000a 6162");
    check(&options, &request("0000", "0000", four), hole_and_data(), &[hole, data].concat());
    check(&options, &request("0000", "0004", four), Reply::Done, &head("0001 0000", "0000000000000000"));
    let write = [request("0020", "0001", four), b"abcd".to_vec()].concat();
    check(&options, &write, Reply::Done, &head("0001 0000", "0000000000000000"));
    let error = head("0001 8001", "0000000000000006 0000001c 0000");
    check(&options, &write, Reply::failed(ErrorCode::NoSpace), &error);
    let spans = Reply::Status(vec![Span { len: SIZE, is_hole: true, is_zero: true }]);
    let status = head("0001 0006", "0000000000000018 00000001 00000001 00000000000ffff8 0000000000000003");
    check(&options, &request("0000", "0007", four), spans, &status);
}

#[test]
fn extended_requests_say_whether_a_payload_follows() {
    let options = [option_bytes(option::EXTENDED_HEADERS, &[])];
    let mut pair = Pair::entered(Limits::default(), export(), &options);
    // A trim with a payload, then a write without one: refused, and the session stays in step.
    pair.send(&hex("21e41c71 0020 0004 0000000000000001 0000000000000000 0000000000000002 ffff"));
    pair.send(&hex("21e41c71 0000 0001 0000000000000002 0000000000000000 0000000000000002"));
    let refused = |cookie: u8| {
        hex(&format!("6e8a278c 0001 8001 00000000000000{cookie:02x} 0000000000000000 0000000000000006 00000016 0000"))
    };
    assert_eq!(pair.received(), [refused(1), refused(2)].concat());
    pair.send(&hex("21e41c71 0000 0003 0000000000000003 0000000000000000 0000000000000000"));
    assert_eq!(pair.io().io, Io::Flush);
}

#[test]
fn a_span_of_more_than_32_bits_ends_a_compact_list() {
    let large = Export { size: 1 << 40, ..export() };
    let mut pair = Pair::entered(Limits::default(), large, &structured_options());
    pair.send(&request_bytes(0, command::BLOCK_STATUS, 9, 0, u32::MAX));
    let id = pair.io().id;
    let span = |len| Span { len, is_hole: true, is_zero: true };
    pair.session.handle_reply(id, Reply::Status(vec![span(1 << 33), span(1)]));
    let status = "668e33ef 0001 0005 0000000000000009 0000000c 00000001 ffff0000 00000003";
    assert_eq!(pair.received(), hex(status));
}

#[test]
fn information_that_was_not_asked_for_is_not_told() {
    let mut pair = Pair::greeted(Limits::default(), TlsPolicy::Unsupported, 3);
    pair.send(&option_bytes(option::INFO, &info_data("x", &[info::EXPORT, 77, 77])));
    let lookup = Request::Lookup { name: String::from("x"), purpose: Purpose::Describe };
    assert_eq!(pair.session.poll_request(), Some(lookup));
    pair.session.handle_export(Some(export()));
    let told = format!("{REPLY} 00000006 00000003 0000000c 0000 0000000000100000 0d6d {REPLY} 00000006 {ACK}");
    assert_eq!(pair.received(), hex(&told));
}
