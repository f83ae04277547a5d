//! Messages: the same ones wherever the bytes are cut, what was written is read again, and what is read would have been
//! written like that or meant the same.
#![no_main]

use ashlar_grid::message::{self, Assembler, Flags, Header, Message, MessageError, MuxId, Op};
use ashlar_wire::checksum::Salt;
use libfuzzer_sys::arbitrary::{self, Arbitrary};

/// The longest payload that these messages may have.
const PAYLOAD_MAX: usize = 300;

#[derive(Debug, Arbitrary)]
struct Written {
    slot: u32,
    generation: u32,
    sequence: u64,
    deadline_ms: u32,
    handler: u32,
    op: u8,
    flags: u8,
    payload: Vec<u8>,
    /// Changed to this operation after it was written.
    changed: Option<u8>,
}

#[derive(Debug, Arbitrary)]
struct Input {
    checked: bool,
    cuts: Vec<u16>,
    written: Vec<Written>,
    /// One altered bit in the written messages.
    altered: Option<(u16, u8)>,
    noise: Vec<u8>,
}

type Owned = Option<(Header, Vec<u8>)>;

fn op(number: u8) -> Op {
    Op::ALL[usize::from(number) % Op::ALL.len()]
}

/// The messages in `bytes` when they come in pieces of `cuts`, bytes kept for one that is not whole, and the error.
fn read(salt: Option<Salt>, bytes: &[u8], cuts: &[u16]) -> (Vec<Owned>, usize, Option<MessageError>) {
    let mut assembler = Assembler::new(PAYLOAD_MAX, salt);
    let mut seen = Vec::new();
    let mut rest = bytes;
    let mut cuts = cuts.iter().cycle();
    while !rest.is_empty() {
        let len = cuts.next().map_or(rest.len(), |cut| usize::from(*cut) + 1).min(rest.len());
        let (piece, later) = rest.split_at(len);
        let each = |message: Option<Message<'_>>| {
            seen.push(message.map(|message| (message.header, message.payload.to_vec())));
            Ok::<(), MessageError>(())
        };
        if let Err(error) = assembler.handle_bytes(piece, each) {
            return (seen, 0, Some(error));
        }
        rest = later;
        assert!(assembler.partial_len() <= message::HEADER_MAX + PAYLOAD_MAX + message::CHECKSUM_LEN + 16);
    }
    (seen, assembler.partial_len(), None)
}

fn write(written: &Written, salt: Option<Salt>, out: &mut Vec<u8>) -> Owned {
    let mut header = Header {
        id: MuxId { slot: written.slot, generation: written.generation },
        sequence: written.sequence,
        deadline_ms: written.deadline_ms,
        handler: written.handler,
        op: op(written.op),
        flags: Flags(written.flags),
    };
    let payload = &written.payload[..written.payload.len().min(PAYLOAD_MAX)];
    let start = out.len();
    message::encode(out, &header, payload, salt);
    assert!(out.len() - start <= message::HEADER_MAX + payload.len() + message::CHECKSUM_LEN);
    if let Some(changed) = written.changed {
        header.op = op(changed);
        message::change_op(&mut out[start..], header.op, salt);
    }
    Some((header, payload.to_vec()))
}

libfuzzer_sys::fuzz_target!(|input: Input| {
    let salt = input.checked.then(|| Salt::new(&[b"session"]));
    let mut bytes = Vec::new();
    let meant: Vec<_> = input.written.iter().map(|written| write(written, salt, &mut bytes)).collect();
    assert_eq!(read(salt, &bytes, &input.cuts), (meant.clone(), 0, None));
    if let (Some((at, bit)), Some(_), false) = (input.altered, salt, bytes.is_empty()) {
        let mut altered = bytes.clone();
        let at = usize::from(at) % altered.len();
        altered[at] ^= 1 << (bit % 8);
        let (seen, kept, error) = read(salt, &altered, &input.cuts);
        assert!(error.is_some() || kept > 0, "an altered bit is seen, or more is waited for");
        assert!(meant.starts_with(&seen), "and nothing of it is passed on");
    }
    bytes.extend_from_slice(&input.noise);
    let whole = read(salt, &bytes, &[]);
    assert_eq!(read(salt, &bytes, &input.cuts), whole);
    assert_eq!(read(salt, &bytes, &[0]), whole);
    assert!(whole.0.starts_with(&meant));
    // What was read, written again, is read as the same.
    let mut again = Vec::new();
    for (header, payload) in whole.0.iter().flatten() {
        message::encode(&mut again, header, payload, salt);
    }
    let known: Vec<_> = whole.0.into_iter().filter(Option::is_some).collect();
    assert_eq!(read(salt, &again, &[]), (known, 0, None));
});
