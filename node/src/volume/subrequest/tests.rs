use ashlar_placement::map::{GroupId, PgId, SetId};
use ashlar_placement::rule::{Extent, ExtentId};
use ashlar_volume::message::{ExtentRange, Generation as AttachGeneration, SessionId as AttachSession};
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::{DriveId, ServerId, VolumeId};

use super::*;

fn header(verb: Verb, (offset, len): (u32, u32)) -> SubrequestHeader {
    let extent = ExtentId { volume: VolumeId::from_bytes([0xee; 16]), extent: Extent(8) };
    SubrequestHeader {
        verb,
        group: GroupId { set: SetId(1), pg: PgId(2) },
        epoch: Epoch(7),
        drive: DriveId::from_bytes([0xd1; 16]),
        range: ExtentRange { extent, offset, len },
        generation: AttachGeneration(6),
        session: AttachSession(4),
        number: RequestNumber(5),
        settled_below: RequestNumber(9),
    }
}

fn config(epoch: u64) -> GroupConfig {
    GroupConfig { epoch: Epoch(epoch), drive: DriveId::from_bytes([2; 16]), server: ServerId::from_bytes([3; 16]) }
}

fn configuration(epoch: u64) -> Box<Configuration> {
    let (group, primary) = (GroupId { set: SetId(1), pg: PgId(2) }, DriveId::from_bytes([2; 16]));
    let acting = vec![primary];
    Box::new(Configuration { group, epoch: Epoch(epoch), acting, primary, learners: vec![], min_copies: 1 })
}

#[test]
fn a_subrequest_is_a_members_request() {
    let payload = Bytes::from(vec![7; 4_096]);
    let (range, run) =
        (Range { offset: 4_096, len: 4_096 }, |content| Operation::Write(Run { offset: 4_096, content }));
    for (verb, payload, operation) in [
        (Verb::Read, Bytes::new(), Operation::Read(range)),
        (Verb::Presence, Bytes::new(), Operation::Presence(range)),
        (Verb::Write, payload.clone(), run(Content::Data(payload))),
        (Verb::Zero, Bytes::new(), run(Content::Zeroes(4_096))),
        (Verb::Discard, Bytes::new(), run(Content::Zeroes(4_096))),
        (Verb::ZeroInPlace, Bytes::new(), run(Content::Data(Bytes::from(vec![0; 4_096])))),
    ] {
        let asked = client_request(&header(verb, (4_096, 4_096)), &payload).unwrap();
        assert_eq!(asked.operation, operation, "{verb:?}");
        assert_eq!((asked.session, asked.request, asked.floor), (SessionId(4), RequestId(5), RequestId(5)));
        assert_eq!((asked.generation, asked.epoch, asked.extent.extent), (Generation(6), Epoch(7), Extent(8)));
    }
    // Extents of a header may be longer than those of members.
    for range in [(EXTENT_BYTES_MAX, 4_096), (4_096, EXTENT_BYTES_MAX), (0, 1 << 30)] {
        assert_eq!(client_request(&header(Verb::ZeroInPlace, range), &Bytes::new()), None, "{range:?}");
    }
}

#[test]
fn each_refusal_has_its_answer() {
    let locate = |configuration: &Configuration| Some(config(configuration.epoch.0));
    let data = Bytes::from(vec![0, 0, 1]);
    assert_eq!(answer_of(Ok(MemberAnswer::Read(data.clone())), locate), Answer::Answered(AnswerKind::Done, data));
    for (result, kind) in [
        (Ok(MemberAnswer::Read(Bytes::from(vec![0; 8_192]))), AnswerKind::Zeroes),
        (Ok(MemberAnswer::Written), AnswerKind::Done),
        (Err(Refusal::Fenced(Generation(9))), AnswerKind::Fenced),
        (Err(Refusal::Moved(configuration(8))), AnswerKind::OtherEpoch(Some(config(8)))),
        (Err(Refusal::Unknown(configuration(9))), AnswerKind::OtherEpoch(Some(config(9)))),
        (Err(Refusal::BadRange), AnswerKind::Wrong),
        (Err(Refusal::OtherGroup), AnswerKind::Wrong),
        (Err(Refusal::GivenUp(RequestId(1))), AnswerKind::Settled),
        (Err(Refusal::NoSpace), AnswerKind::Full),
        (Err(Refusal::Damaged), AnswerKind::Damaged),
        (Err(Refusal::NotServing), AnswerKind::NotPrimary(None)),
        (Err(Refusal::Behind(Epoch(1))), AnswerKind::NotPrimary(None)),
        (Err(Refusal::TooFewCopies), AnswerKind::NotPrimary(None)),
        (Err(Refusal::DriveFailed), AnswerKind::NotPrimary(None)),
        (Err(Refusal::Busy), AnswerKind::Busy { retry_after_ms: 0 }),
        (Err(Refusal::TooFarAhead), AnswerKind::Busy { retry_after_ms: 0 }),
    ] {
        assert_eq!(answer_of(result.clone(), locate), answered(kind), "{result:?}");
    }
}

#[test]
fn zeroes_are_recognised() {
    for len in [0, 1, 255, 256, 257, 4_096] {
        let mut bytes = vec![0; len];
        assert!(is_zeroes(&bytes), "{len}");
        for at in [0, len / 2, len.saturating_sub(1)] {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = 1;
                assert!(!is_zeroes(&bytes), "{len}: byte {at} is not zero");
                bytes[at] = 0;
            }
        }
    }
}

#[test]
fn written_forms_are_header_and_payload() {
    let payload = Bytes::from(vec![7; 4_096]);
    let (header, number) = (header(Verb::Write, (0, 4_096)), RequestNumber(5));
    let asked = Asked { head: header.encode(&payload), header, payload: payload.clone() };
    let mut bytes = Vec::new();
    asked.encode(&mut bytes);
    assert_eq!(bytes, [&header.encode(&payload)[..], &payload].concat());
    assert_eq!(Asked::decode(&bytes), Ok(asked));
    let answer = Answer::Answered(AnswerKind::Done, payload);
    let answered = Answered::new(number, answer.clone()).unwrap();
    let mut reply = Vec::new();
    answered.encode(&mut reply);
    let decoded = Answered::decode(&reply).unwrap();
    assert_eq!(decoded.clone().answer_to(number), answer);
    assert_eq!(decoded.answer_to(RequestNumber(6)), Answer::Lost, "it answers another request");
    for bytes in [&bytes, &reply] {
        for end in [0, 1, 67, 107, bytes.len() - 1] {
            assert_eq!(Asked::decode(&bytes[..end]), Err(MalformedPayload), "cut at {end}");
            assert_eq!(Answered::decode(&bytes[..end]).err(), Some(MalformedPayload), "cut at {end}");
        }
    }
    assert_eq!(Answered::new(number, Answer::Lost), None);
}
