use super::*;
use crate::message::form::{decode, encode};
use crate::request::{Answer, Content, Operation, Page, Range, Run};
use crate::stream::{Entry, Progress};
use alloc::vec;
use alloc::vec::Vec;
use arbtest::arbitrary::{Result, Unstructured};
use ashlar_placement::rule::{Extent, ExtentId};
use bytes::Bytes;

const GROUP: GroupId = GroupId { set: ashlar_placement::map::SetId(1), pg: ashlar_placement::map::PgId(2) };

fn drive(number: u8) -> DriveId {
    DriveId::from_bytes([number; 16])
}

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

fn configuration(epoch: u64, acting: &[u8], learners: &[u8]) -> Configuration {
    Configuration {
        group: GROUP,
        epoch: Epoch(epoch),
        acting: acting.iter().copied().map(drive).collect(),
        primary: drive(acting[0]),
        learners: learners.iter().copied().map(drive).collect(),
        min_copies: 1,
    }
}

/// A record of a member that took part before.
fn record(number: u8) -> Vec<u8> {
    let mut record = Record::NEW;
    record.promise.accept(Epoch(1), drive(1)).unwrap();
    record.encode(GROUP, drive(number))
}

fn member(number: u8) -> Member {
    Member::new(at(0), GROUP, drive(number), Settings::default(), Some(&record(number)))
}

fn outputs(member: &mut Member) -> Vec<Output> {
    core::iter::from_fn(|| member.poll_output()).collect()
}

fn reply_to(request: &StoreRequest) -> StoreReply {
    match request {
        StoreRequest::Write { .. } | StoreRequest::Patch { .. } | StoreRequest::Save { .. } => StoreReply::Done,
        StoreRequest::Read { range, .. } => StoreReply::Read(Bytes::from(vec![0; range.len as usize])),
        StoreRequest::List { .. } => StoreReply::List(Page::default()),
        StoreRequest::Checksums { .. } => StoreReply::Checksums(Vec::new()),
        StoreRequest::Difference { .. } => {
            StoreReply::Difference(crate::request::Difference { version: Version::ZERO, runs: Vec::new() })
        }
    }
}

/// Completes what the store was asked for, and what that leads to; everything else that the member wants.
fn complete(member: &mut Member, now: Instant) -> Vec<Output> {
    let mut others = Vec::new();
    while let Some(output) = member.poll_output() {
        match output {
            Output::Store { id, request } => member.handle_stored(now, id, Ok(reply_to(&request))).unwrap(),
            other => others.push(other),
        }
    }
    others
}

fn write(epoch: u64, number: u64) -> ClientRequest {
    let run = Run { offset: 0, content: Content::Data(Bytes::from(vec![1; 4_096])) };
    ClientRequest {
        session: SessionId(1),
        request: RequestId(number),
        floor: RequestId(number),
        generation: Generation(1),
        epoch: Epoch(epoch),
        extent: ExtentId::default(),
        operation: Operation::Write(run),
    }
}

#[test]
fn nothing_is_said_in_an_epoch_before_its_promise_is_durable() {
    let mut backup = member(2);
    backup.handle_configuration(at(1), &configuration(2, &[1, 2], &[])).unwrap();
    let adopt = Message { group: GROUP, epoch: Epoch(2), body: Body::Adopt(configuration(2, &[1, 2], &[])) };
    backup.handle_message(at(1), drive(1), adopt).unwrap();
    let asked = outputs(&mut backup);
    let [Output::Store { id, request: StoreRequest::Save { .. } }] = asked[..] else { panic!("{asked:?}") };
    backup.handle_timeout(at(500));
    assert_eq!(outputs(&mut backup), [], "the promise is not durable");
    backup.handle_stored(at(501), id, Ok(StoreReply::Done)).unwrap();
    let said = complete(&mut backup, at(502));
    assert!(matches!(&said[..], [Output::Send { message: Message { body: Body::Adopted(_), .. }, .. }]), "{said:?}");
}

#[test]
fn a_restarted_member_asks_for_another_epoch_and_stays_out_of_this_one() {
    let mut member = member(1);
    member.handle_configuration(at(1), &configuration(1, &[1], &[])).unwrap();
    assert_eq!(outputs(&mut member), [Output::Report(Report::NewEpoch { epoch: Epoch(1) })]);
    member.handle_client(at(2), &write(1, 1));
    let refused = outputs(&mut member);
    assert!(matches!(&refused[..], [Output::Reply { result: Err(Refusal::NotServing), .. }]), "{refused:?}");
    member.handle_configuration(at(3), &configuration(2, &[1], &[])).unwrap();
    complete(&mut member, at(3));
    member.handle_timeout(at(1_100));
    member.handle_client(at(1_101), &write(2, 1));
    let done = complete(&mut member, at(1_102));
    assert!(matches!(&done[..], [Output::Reply { result: Ok(Answer::Written), .. }]), "{done:?}");
}

#[test]
fn a_write_waits_for_every_acting_member() {
    let mut primary = member(1);
    primary.handle_configuration(at(1), &configuration(2, &[1, 2, 3], &[])).unwrap();
    complete(&mut primary, at(1));
    let tell = |primary: &mut Member, from: u8, now: u64, body: Body| {
        primary.handle_message(at(now), drive(from), Message { group: GROUP, epoch: Epoch(2), body }).unwrap();
        complete(primary, at(now))
    };
    for from in [2, 3] {
        let standing = Standing { clean: Version::ZERO, newest: Version::ZERO, is_blank: false };
        tell(&mut primary, from, 2, Body::Adopted(standing));
    }
    for from in [2, 3] {
        tell(&mut primary, from, 3, Body::Listed { after: None, page: Page::default() });
    }
    primary.handle_timeout(at(1_100));
    complete(&mut primary, at(1_100));
    primary.handle_client(at(1_101), &write(2, 1));
    let sent = complete(&mut primary, at(1_101));
    assert_eq!(sent.len(), 2, "to both at once, and no reply: {sent:?}");
    let applied = Body::Applied(Progress { received: 1, durable: 1 });
    let arrived = Body::Applied(Progress { received: 1, durable: 0 });
    assert_eq!(tell(&mut primary, 2, 1_102, applied.clone()), []);
    assert_eq!(tell(&mut primary, 3, 1_102, arrived), []);
    let done = tell(&mut primary, 3, 1_103, applied);
    assert!(matches!(&done[..], [Output::Reply { result: Ok(Answer::Written), .. }]), "{done:?}");
    primary.handle_client(at(1_104), &write(2, 1));
    let again = complete(&mut primary, at(1_104));
    assert!(matches!(&again[..], [Output::Reply { result: Ok(Answer::Written), .. }]), "no second write: {again:?}");
}

#[test]
fn a_message_of_an_earlier_epoch_is_refused_with_the_newer_configuration() {
    let mut backup = member(2);
    backup.handle_configuration(at(1), &configuration(5, &[1, 2], &[])).unwrap();
    complete(&mut backup, at(1));
    let old = Message { group: GROUP, epoch: Epoch(4), body: Body::Lease { nonce: 1, clean: Version::ZERO } };
    assert_eq!(backup.handle_message(at(2), drive(3), old), Err(Error::EarlierEpoch(Epoch(5))));
    let said = outputs(&mut backup);
    let newer = Body::Newer(configuration(5, &[1, 2], &[]));
    assert!(matches!(&said[..], [Output::Send { message, .. }] if message.body == newer), "{said:?}");
}

fn version(u: &mut Unstructured<'_>) -> Result<Version> {
    Ok(Version { epoch: Epoch(u.int_in_range(0..=3)?), sequence: u.int_in_range(0..=5)? })
}

fn extent(u: &mut Unstructured<'_>) -> Result<ExtentId> {
    Ok(ExtentId { extent: Extent(u.int_in_range(0..=3)?), ..ExtentId::default() })
}

fn run(u: &mut Unstructured<'_>) -> Result<Run> {
    Ok(Run { offset: 4_096 * u.int_in_range(0..=3)?, content: Content::Zeroes(4_096 * u.int_in_range(1..=3)?) })
}

fn body(u: &mut Unstructured<'_>) -> Result<Body> {
    let page = |u: &mut Unstructured<'_>| -> Result<Page> {
        let has_more = u.ratio(1, 3)?;
        Ok(Page { entries: vec![(extent(u)?, version(u)?)], has_more, newest: version(u)? })
    };
    Ok(match u.int_in_range(0..=12)? {
        0 => Body::Adopt(configuration(2, &[1, 2, 3], &[4])),
        1 => Body::Adopted(Standing { clean: version(u)?, newest: version(u)?, is_blank: u.ratio(1, 9)? }),
        2 => Body::Newer(configuration(u.int_in_range(1..=4)?, &[1, 2], &[3])),
        3 => Body::Lease { nonce: u.int_in_range(0..=3)?, clean: version(u)? },
        4 => {
            let received = u.int_in_range(0..=4)?;
            Body::Leased { nonce: u.int_in_range(0..=9)?, progress: Progress { received, durable: received } }
        }
        5 => {
            let (version, generation) = (version(u)?, Generation(u.int_in_range(0..=2)?));
            let entry = Entry::Write { version, generation, extent: extent(u)?, run: run(u)? };
            Body::Apply { index: u.int_in_range(0..=4)?, clean: version, entry }
        }
        6 => {
            let (version, runs) = (version(u)?, vec![run(u)?]);
            let entry = Entry::Patch { version, extent: extent(u)?, runs };
            Body::Apply { index: u.int_in_range(0..=4)?, clean: version, entry }
        }
        7 => {
            let durable = u.int_in_range(0..=4)?;
            Body::Applied(Progress { received: durable, durable })
        }
        8 => Body::List { above: version(u)?, after: None },
        9 => Body::Listed { after: if u.ratio(1, 2)? { None } else { Some(extent(u)?) }, page: page(u)? },
        10 => Body::Inquire { extent: extent(u)? },
        11 => Body::Checksums { extent: extent(u)?, sums: Vec::new() },
        _ => {
            let difference = crate::request::Difference { version: version(u)?, runs: vec![run(u)?] };
            Body::Fetched { extent: extent(u)?, difference }
        }
    })
}

/// Whatever peers say, and whenever the store answers, a member refuses it or takes it, and goes on.
#[test]
fn no_order_of_events_stops_a_member() {
    arbtest::arbtest(|u| {
        let number = u.int_in_range(1..=4)?;
        let (mut member, mut now) = (member(number), 1);
        member.handle_configuration(at(now), &configuration(2, &[1, 2, 3], &[4])).unwrap();
        let mut asked: Vec<(StoreId, StoreRequest)> = Vec::new();
        for _ in 0..u.int_in_range(1..=60)? {
            now += u.int_in_range(0..=300)?;
            match u.int_in_range(0..=9)? {
                0..=4 => {
                    let message = Message { group: GROUP, epoch: Epoch(u.int_in_range(1..=3)?), body: body(u)? };
                    let encoded = encode(&message);
                    if let Ok(message) = decode(&encoded.head, Bytes::new()) {
                        let _ = member.handle_message(at(now), drive(u.int_in_range(1..=5)?), message);
                    }
                }
                5 | 6 if !asked.is_empty() => {
                    let (id, request) = asked.swap_remove(u.choose_index(asked.len())?);
                    let result = if u.ratio(1, 40)? { Err(StoreError::Full) } else { Ok(reply_to(&request)) };
                    member.handle_stored(at(now), id, result).unwrap();
                }
                7 => member.handle_timeout(at(now)),
                8 => {
                    let range = Range { offset: 4_096 * u.int_in_range(0..=3)?, len: 4_096 };
                    let mut request = write(u.int_in_range(1..=3)?, u.int_in_range(1..=4)?);
                    if u.ratio(1, 2)? {
                        request.operation = Operation::Read(range);
                    }
                    member.handle_client(at(now), &request);
                }
                _ => member.handle_fence(VolumeId::default(), Generation(u.int_in_range(0..=3)?)),
            }
            for output in outputs(&mut member) {
                if let Output::Store { id, request } = output {
                    asked.push((id, request));
                }
            }
        }
        assert_eq!(
            member.handle_stored(at(now), StoreId(u64::MAX), Ok(StoreReply::Done)),
            Err(Error::UnknownCompletion)
        );
        Ok(())
    });
}
