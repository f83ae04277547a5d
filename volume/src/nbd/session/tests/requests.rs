//! Requests that are refused, each with the error that the specification asks for.

use super::*;
use crate::nbd::protocol::{ErrorCode, command_flag};

const END: u64 = SIZE;

/// What becomes of one request: an error, or it reaches the owner.
fn outcome(pair: &mut Pair, flags: u16, command: u16, offset: u64, len: u32) -> Option<u32> {
    pair.send(&request_bytes(flags, command, 1, offset, len));
    if command == command::WRITE {
        pair.send(&vec![0; len as usize]);
    }
    if let Some(Request::Io(_)) = pair.session.poll_request() {
        return None;
    }
    let received = pair.received();
    let is_chunk = received[..4] == hex("668e33ef");
    let at = if is_chunk { 20 } else { 4 };
    Some(u32::from_be_bytes(received[at..at + 4].try_into().unwrap()))
}

fn check(pair: &mut Pair, cases: &[(u16, u16, u64, u32, Option<ErrorCode>)]) {
    for (flags, command, offset, len, expected) in cases {
        let got = outcome(pair, *flags, *command, *offset, *len);
        assert_eq!(got, expected.map(ErrorCode::number), "command {command}, flags {flags}, {len} bytes at {offset}");
    }
}

#[test]
fn ranges() {
    let (invalid, no_space) = (Some(ErrorCode::Invalid), Some(ErrorCode::NoSpace));
    let mut pair = Pair::structured(Limits::default());
    for command in [command::READ, command::TRIM, command::CACHE, command::BLOCK_STATUS] {
        let cases = [
            (0, command, 0, 0, invalid),
            (0, command, END, 1, invalid),
            (0, command, END - 1, 2, invalid),
            (0, command, u64::MAX, 1, invalid),
            (0, command, END - 1, 1, None),
        ];
        check(&mut pair, &cases);
    }
    for command in [command::WRITE, command::WRITE_ZEROES] {
        let cases = [
            (0, command, 0, 0, invalid),
            (0, command, END, 1, no_space),
            (0, command, END - 1, 2, no_space),
            (0, command, u64::MAX, 1, no_space),
            (0, command, END - 1, 1, None),
        ];
        check(&mut pair, &cases);
    }
    check(&mut pair, &[(0, command::FLUSH, 0, 1, invalid), (0, command::FLUSH, 1, 0, invalid), (0, 8, 0, 1, invalid)]);
    check(&mut pair, &[(0, command::FLUSH, 0, 0, None)]);
}

#[test]
fn flags() {
    use command_flag::{DF, FAST_ZERO, FUA, NO_HOLE, PAYLOAD_LEN, REQ_ONE};
    let allowed = [
        (command::READ, DF),
        (command::WRITE, 0),
        (command::TRIM, 0),
        (command::CACHE, 0),
        (command::WRITE_ZEROES, NO_HOLE | FAST_ZERO),
        (command::BLOCK_STATUS, REQ_ONE),
    ];
    for (command, flags) in allowed {
        for flag in [FUA, NO_HOLE, DF, REQ_ONE, FAST_ZERO, PAYLOAD_LEN, 1 << 6, 1 << 15] {
            let mut pair = Pair::structured(Limits::default());
            let is_allowed = (flags | FUA) & flag != 0;
            let expected = if is_allowed { None } else { Some(ErrorCode::Invalid) };
            check(&mut pair, &[(flag, command, 0, 512, expected)]);
        }
    }
    let mut simple = Pair::entered(Limits::default(), export(), &[]);
    check(&mut simple, &[(DF, command::READ, 0, 512, Some(ErrorCode::Invalid))]);
}

#[test]
fn an_export_without_features_has_reads_and_writes_only() {
    let invalid = Some(ErrorCode::Invalid);
    let mut pair = Pair::entered(Limits::default(), Export { features: Features::default(), ..export() }, &[]);
    for command in [command::TRIM, command::CACHE, command::WRITE_ZEROES, command::BLOCK_STATUS] {
        check(&mut pair, &[(0, command, 0, 512, invalid)]);
    }
    check(&mut pair, &[(0, command::FLUSH, 0, 0, invalid), (command_flag::FUA, command::WRITE, 0, 1, invalid)]);
    check(&mut pair, &[(0, command::READ, 0, 1, None), (0, command::WRITE, 0, 1, None)]);
}

#[test]
fn nothing_is_written_to_a_read_only_export() {
    let read_only = Export { features: Features::ALL.with(Features::READ_ONLY), ..export() };
    let mut pair = Pair::entered(Limits::default(), read_only, &structured_options());
    for command in [command::WRITE, command::TRIM, command::WRITE_ZEROES] {
        check(&mut pair, &[(0, command, 0, 512, Some(ErrorCode::NotPermitted))]);
    }
    check(&mut pair, &[(0, command::READ, 0, 512, None), (0, command::FLUSH, 0, 0, None)]);
}

#[test]
fn requests_keep_to_blocks() {
    let invalid = Some(ErrorCode::Invalid);
    let blocks = BlockSizes { min: 512, preferred: 4_096 };
    let mut pair = Pair::entered(Limits::default(), Export { blocks, ..export() }, &[]);
    for command in [command::READ, command::WRITE, command::TRIM] {
        check(
            &mut pair,
            &[(0, command, 1, 512, invalid), (0, command, 512, 511, invalid), (0, command, 512, 512, None)],
        );
    }
}

#[test]
fn requests_longer_than_the_limit() {
    let limits = Limits { payload_bytes_max: 65_536, ..Limits::default() };
    let cases = |read| {
        [
            (0, command::READ, 0, 65_537, Some(read)),
            (0, command::WRITE, 0, 65_537, Some(ErrorCode::Invalid)),
            (0, command::READ, 0, 65_536, None),
            (0, command::WRITE, 0, 65_536, None),
            // They carry no payload.
            (0, command::WRITE_ZEROES, 0, 1 << 20, None),
            (0, command::TRIM, 0, 1 << 20, None),
        ]
    };
    check(&mut Pair::structured(limits), &cases(ErrorCode::Overflow));
    check(&mut Pair::entered(limits, export(), &[]), &cases(ErrorCode::Invalid));
}

#[test]
fn a_bad_magic_number_ends_the_session() {
    let mut pair = Pair::entered(Limits::default(), export(), &[]);
    let mut bytes = request_bytes(0, command::READ, 1, 0, 1);
    bytes[3] ^= 1;
    pair.send(&bytes);
    assert_eq!(pair.session.end(), Some(End::BadMagic));
    assert!(pair.session.is_finished());
    // Nor does an extended request pass where compact ones were agreed on.
    let mut pair = Pair::entered(Limits::default(), export(), &[]);
    pair.session.handle_bytes(&hex("21e41c71 0000 0003 0000000000000003 0000000000000000 0000000000000000"));
    assert_eq!(pair.session.end(), Some(End::BadMagic));
}
