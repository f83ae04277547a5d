use super::*;
use arbtest::arbitrary::{Result as Any, Unstructured};
use arbtest::arbtest;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> =
        text.chars().filter(|digit| !digit.is_whitespace()).map(|digit| digit.to_digit(16).unwrap()).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] << 4 | pair[1]).unwrap()).collect()
}

fn request() -> SubrequestHeader {
    let extent = ExtentId { volume: VolumeId::from_bytes([0x22; 16]), extent: Extent(5) };
    SubrequestHeader {
        verb: Verb::Write,
        group: GroupId { set: SetId(1), pg: PgId(0x102) },
        epoch: Epoch(7),
        drive: DriveId::from_bytes([0x11; 16]),
        range: ExtentRange { extent, offset: 0x2000, len: 0x1000 },
        generation: Generation(3),
        session: SessionId(0xabc),
        number: RequestNumber(0x100),
        settled_below: RequestNumber(0xf0),
    }
}

fn config() -> GroupConfig {
    let (drive, server) = (DriveId::from_bytes([0x33; 16]), ServerId::from_bytes([0x44; 16]));
    GroupConfig { epoch: Epoch(8), drive, server }
}

#[test]
fn golden_request() {
    let payload = vec![0x55; 4_096];
    let golden = hex("02 02 0000 00000001 00000102 00002000 00001000 11111111111111111111111111111111
         22222222222222222222222222222222 0000000000000005 0000000000000007 0000000000000003 0000000000000abc
         0000000000000100 00000000000000f0 6e95833c5abf55ea");
    assert_eq!(request().encode(&payload)[..], golden);
    assert_eq!(SubrequestHeader::decode(&golden, &payload), Ok(request()));
}

#[test]
fn golden_verbs() {
    let numbers = [
        (Verb::Read, 1),
        (Verb::Write, 2),
        (Verb::Zero, 3),
        (Verb::Discard, 4),
        (Verb::ZeroInPlace, 5),
        (Verb::Presence, 6),
    ];
    for (verb, number) in numbers {
        let header = SubrequestHeader { verb, ..request() };
        let payload = vec![0; header.payload_len()];
        let bytes = header.encode(&payload);
        assert_eq!(bytes[..4], [2, number, 0, 0]);
        assert_eq!(SubrequestHeader::decode(&bytes, &payload), Ok(header));
    }
}

#[test]
fn golden_answers() {
    let answer = |kind| AnswerHeader { number: RequestNumber(0x100), kind, payload_len: 0 };
    let none = "0000000000000000 00000000000000000000000000000000 00000000000000000000000000000000";
    let known = "0000000000000008 33333333333333333333333333333333 44444444444444444444444444444444";
    let cases = [
        (AnswerKind::Done, "0100", none, "00000000", "a9f2fc2d42b62675"),
        (AnswerKind::Zeroes, "0200", none, "00000000", "b7a8fe13f6a1cf8e"),
        (AnswerKind::OtherEpoch(Some(config())), "0301", known, "00000000", "5601201dd2c565b5"),
        (AnswerKind::NotPrimary(None), "0400", none, "00000000", "97a15a7ac3f0211a"),
        (AnswerKind::Fenced, "0500", none, "00000000", "ad4133246dee0f25"),
        (AnswerKind::Busy { retry_after_ms: 20 }, "0600", none, "00000014", "55f1621e350ff740"),
        (AnswerKind::Full, "0700", none, "00000000", "6567834f5446ec6b"),
        (AnswerKind::Damaged, "0800", none, "00000000", "d04cff5c21ad8bf3"),
        (AnswerKind::Settled, "0900", none, "00000000", "6e44738df676053a"),
        (AnswerKind::Wrong, "0a00", none, "00000000", "6741ff2c1a84e16c"),
    ];
    for (kind, tag, config, retry, seal) in cases {
        let golden = hex(&format!("02 {tag} 00 00000000 0000000000000100 {config} {retry} {seal}"));
        assert_eq!(answer(kind).encode(b"")[..], golden, "{kind:?}");
        assert_eq!(AnswerHeader::decode(&golden, b""), Ok(answer(kind)));
    }
}

#[test]
fn a_payload_belongs_to_its_header() {
    let payload = vec![0x55; 4_096];
    let bytes = request().encode(&payload);
    let mut other = payload.clone();
    other[4_095] ^= 1;
    assert_eq!(SubrequestHeader::decode(&bytes, &other), Err(MessageError::Checksum));
    assert_eq!(SubrequestHeader::decode(&bytes, &payload[1..]), Err(MessageError::Malformed));
    // The same payload of another request.
    let next = SubrequestHeader { number: RequestNumber(0x101), ..request() }.encode(&payload);
    let mixed = [&bytes[..SubrequestHeader::LEN - 8], &next[SubrequestHeader::LEN - 8..]].concat();
    assert_eq!(SubrequestHeader::decode(&mixed, &payload), Err(MessageError::Checksum));
}

#[test]
fn every_flipped_bit_shows() {
    let payload = vec![0x55; 4_096];
    let bytes = request().encode(&payload);
    let answer =
        AnswerHeader { number: RequestNumber(9), kind: AnswerKind::OtherEpoch(Some(config())), payload_len: 0 };
    let answer = answer.encode(b"");
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes;
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(SubrequestHeader::decode(&flipped, &payload).is_err(), "bit {bit}");
    }
    for bit in 0..answer.len() * 8 {
        let mut flipped = answer;
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(AnswerHeader::decode(&flipped, b"").is_err(), "bit {bit}");
    }
}

#[test]
fn other_versions_and_lengths_are_refused() {
    let mut bytes = request().encode(&[0; 4_096]);
    assert_eq!(SubrequestHeader::decode(&bytes[1..], &[0; 4_096]), Err(MessageError::Length));
    assert_eq!(SubrequestHeader::decode(&[], &[]), Err(MessageError::Length));
    bytes[0] = 1;
    assert_eq!(SubrequestHeader::decode(&bytes, &[0; 4_096]), Err(MessageError::Version(1)));
}

/// A request whose range no extent has, sealed as if it were right.
fn sealed(offset: u32, len: u32, verb: Verb) -> Result<SubrequestHeader, MessageError> {
    let range = ExtentRange { offset, len, ..request().range };
    let header = SubrequestHeader { verb, range, ..request() };
    SubrequestHeader::decode(&header.encode(&vec![0; header.payload_len()]), &vec![0; header.payload_len()])
}

#[test]
fn ranges_are_whole_blocks_of_an_extent() {
    for (offset, len) in [(0, 0), (1, 4_096), (0, 4_097), (EXTENT_BYTES_MAX, 4_096), (4_096, EXTENT_BYTES_MAX)] {
        assert_eq!(sealed(offset, len, Verb::Zero), Err(MessageError::Malformed), "{len} bytes at {offset}");
    }
    assert!(sealed(0, EXTENT_BYTES_MAX, Verb::Zero).is_ok());
    assert!(sealed(0, PAYLOAD_BYTES_MAX, Verb::Write).is_ok());
    assert_eq!(sealed(0, PAYLOAD_BYTES_MAX + 4_096, Verb::Write), Err(MessageError::Malformed));
}

fn any_request(u: &mut Unstructured<'_>) -> Any<SubrequestHeader> {
    let blocks = u.int_in_range(1..=4)?;
    let extent = ExtentId { volume: VolumeId::from_bytes(u.arbitrary()?), extent: Extent(u.arbitrary()?) };
    Ok(SubrequestHeader {
        verb: *u.choose(&[Verb::Read, Verb::Write, Verb::Zero, Verb::ZeroInPlace, Verb::Discard, Verb::Presence])?,
        group: GroupId { set: SetId(u.arbitrary()?), pg: PgId(u.arbitrary()?) },
        epoch: Epoch(u.arbitrary()?),
        drive: DriveId::from_bytes(u.arbitrary()?),
        range: ExtentRange { extent, offset: u.int_in_range(0..=1_000)? * 4_096, len: blocks * 4_096 },
        generation: Generation(u.arbitrary()?),
        session: SessionId(u.arbitrary()?),
        number: RequestNumber(u.arbitrary()?),
        settled_below: RequestNumber(u.arbitrary()?),
    })
}

#[test]
fn what_is_written_is_read() {
    arbtest(|u| {
        let header = any_request(u)?;
        let payload = vec![u.arbitrary()?; header.payload_len()];
        assert_eq!(SubrequestHeader::decode(&header.encode(&payload), &payload), Ok(header));
        Ok(())
    });
}

/// Makes the checksum right, so that the other checks are reached.
fn reseal(bytes: &mut [u8], payload: &[u8]) {
    let (head, checksum) = bytes.split_at_mut(bytes.len() - SEAL_BYTES);
    checksum.copy_from_slice(&seal(head, payload).0.to_be_bytes());
}

#[test]
fn any_bytes_do_no_harm() {
    arbtest(|u| {
        let mut bytes: [u8; SubrequestHeader::LEN] = u.arbitrary()?;
        let payload: Vec<u8> = u.arbitrary()?;
        (bytes[0], bytes[1]) = (VERSION, u.int_in_range(0..=7)?);
        reseal(&mut bytes, &payload);
        if let Ok(header) = SubrequestHeader::decode(&bytes, &payload) {
            assert_eq!(header.encode(&payload), bytes);
        }
        let mut bytes: [u8; AnswerHeader::LEN] = u.arbitrary()?;
        (bytes[0], bytes[1]) = (VERSION, u.int_in_range(0..=11)?);
        bytes[2] = u.int_in_range(0..=2)?;
        bytes[3..8].fill(0);
        for field in [16..24, 24..56, 56..60] {
            if u.ratio(2, 3)? {
                bytes[field].fill(0);
            }
        }
        reseal(&mut bytes, b"");
        if let Ok(header) = AnswerHeader::decode(&bytes, b"") {
            assert_eq!(header.encode(b""), bytes);
        }
        Ok(())
    });
}
