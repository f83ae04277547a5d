use super::*;
use crate::message::form::{decode, encode};
use crate::request::{Answer, Content, Difference, Operation, Page, Range, Run};
use crate::stream::{Entry, Progress};
use alloc::vec;
use alloc::vec::Vec;
use arbtest::arbitrary::{Result, Unstructured};
use ashlar_placement::rule::{Extent, ExtentId};
use bytes::Bytes;

mod filling;
mod hand_over;
mod last_copy;
mod watermark;

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
    Member::new(at(0), (GROUP, drive(number), life(number)), Settings::default(), Some(&record(number)))
}

fn life(number: u8) -> Life {
    Life::drawn(number.into())
}

/// A message from one drive's first life to another's, which is known.
fn message(epoch: u64, from: u8, to: u8, body: Body) -> Message {
    Message { group: GROUP, epoch: Epoch(epoch), from: life(from), to: Some(life(to)), body }
}

fn outputs(member: &mut Member) -> Vec<Output> {
    core::iter::from_fn(|| member.poll_output()).collect()
}

fn reply_to(request: &StoreRequest) -> StoreReply {
    match request {
        StoreRequest::Write { .. }
        | StoreRequest::Patch { .. }
        | StoreRequest::Mend { .. }
        | StoreRequest::Save { .. } => StoreReply::Done,
        StoreRequest::Read { range, .. } => StoreReply::Read(Bytes::from(vec![0; range.len as usize])),
        StoreRequest::List { .. } => StoreReply::List(Page::default()),
        StoreRequest::Checksums { .. } => StoreReply::Checksums(Vec::new()),
        StoreRequest::Occupied { .. } => StoreReply::Occupied(false),
        StoreRequest::Presence { range, .. } => StoreReply::Read(Bytes::from(vec![0xff; range.presence_len()])),
        StoreRequest::Difference { .. } => {
            StoreReply::Difference(Difference { version: Version::ZERO, runs: Vec::new() })
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

/// The first of three drives that act in the second epoch.
fn primary_of_three() -> Member {
    let mut primary = member(1);
    primary.handle_configuration(at(1), &configuration(2, &[1, 2, 3], &[])).unwrap();
    complete(&mut primary, at(1));
    primary
}

/// The same once it serves: nobody has anything yet.
fn active_primary_of_three() -> Member {
    let mut primary = primary_of_three();
    for from in [2, 3] {
        let standing = Standing { clean: Version::ZERO, newest: Version::ZERO, is_partial: false, room: Room::Enough };
        tell(&mut primary, from, 2, Body::Adopted(standing));
    }
    for from in [2, 3] {
        tell(&mut primary, from, 3, Body::Listed { after: None, page: Page::default() });
    }
    primary.handle_timeout(at(1_100));
    complete(&mut primary, at(1_100));
    primary
}

/// Another drive tells the first one something in the second epoch: what that leads to.
fn tell(primary: &mut Member, from: u8, now: u64, body: Body) -> Vec<Output> {
    primary.handle_message(at(now), drive(from), message(2, from, 1, body)).unwrap();
    complete(primary, at(now))
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
    let adopt = Message { to: None, ..message(2, 1, 2, Body::Adopt(configuration(2, &[1, 2], &[]))) };
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

/// Without a watermark, too: a list above zero has damaged extents without their versions, as if they were nowhere.
#[test]
fn a_merge_is_told_the_versions_of_damaged_extents() {
    let mut primary = member(1);
    primary.handle_configuration(at(1), &configuration(2, &[1, 2], &[])).unwrap();
    complete(&mut primary, at(1));
    let standing = Standing { clean: Version::ZERO, newest: Version::ZERO, is_partial: false, room: Room::Enough };
    primary.handle_message(at(2), drive(2), message(2, 2, 1, Body::Adopted(standing))).unwrap();
    let asked = outputs(&mut primary).into_iter().find_map(|output| match output {
        Output::Send { message: Message { body: Body::List { above, .. }, .. }, .. } => Some(above),
        _ => None,
    });
    let above = asked.expect("the backup is asked");
    assert!(above > Version::ZERO && above < Version { epoch: Epoch(1), sequence: 0 }, "{above:?}");
}

/// A volume can be deleted at one drive between its list and the fetch; others may have heard of it later, or of nothing.
#[test]
fn a_merge_goes_on_when_what_was_listed_is_gone() {
    let mut primary = primary_of_three();
    let fetches_from = |said: &[Output]| {
        let fetch = said.iter().find_map(|output| match output {
            Output::Send { to, message: Message { body: Body::Fetch { .. }, .. } } => Some(*to),
            _ => None,
        });
        fetch.expect("an extent that is lacking is fetched")
    };
    let (extent, version) = (ExtentId::default(), Version { epoch: Epoch(1), sequence: 1 });
    let page = |entries| Page { entries, has_more: false, newest: version };
    for from in [2, 3] {
        let standing = Standing { clean: Version::ZERO, newest: version, is_partial: false, room: Room::Enough };
        tell(&mut primary, from, 2, Body::Adopted(standing));
    }
    tell(&mut primary, 2, 3, Body::Listed { after: None, page: page(vec![(extent, version)]) });
    let said = tell(&mut primary, 3, 3, Body::Listed { after: None, page: page(vec![(extent, version)]) });
    assert_eq!(fetches_from(&said), drive(2));
    let gone = || Body::Fetched { extent, difference: Difference { version: Version::ZERO, runs: Vec::new() } };
    let said = tell(&mut primary, 2, 4, gone());
    let lists = said
        .iter()
        .filter(|output| matches!(output, Output::Send { message, .. } if matches!(message.body, Body::List { .. })));
    assert_eq!(lists.count(), 2, "{said:?}");
    tell(&mut primary, 2, 5, Body::Listed { after: None, page: page(Vec::new()) });
    let said = tell(&mut primary, 3, 5, Body::Listed { after: None, page: page(vec![(extent, version)]) });
    assert_eq!(fetches_from(&said), drive(3));
    tell(&mut primary, 3, 6, gone());
    for from in [2, 3] {
        tell(&mut primary, from, 7, Body::Listed { after: None, page: page(Vec::new()) });
    }
    primary.handle_timeout(at(1_100));
    complete(&mut primary, at(1_100));
    primary.handle_client(at(1_101), &write(2, 1));
    assert_eq!(complete(&mut primary, at(1_101)).len(), 2, "the write goes to both");
}

#[test]
fn a_write_waits_for_every_acting_member() {
    let mut primary = active_primary_of_three();
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
    let old = message(4, 3, 2, Body::Lease { nonce: 1, clean: Version::ZERO });
    assert_eq!(backup.handle_message(at(2), drive(3), old), Err(Error::EarlierEpoch(Epoch(5))));
    let said = outputs(&mut backup);
    let newer = Body::Newer(configuration(5, &[1, 2], &[]));
    assert!(matches!(&said[..], [Output::Send { message, .. }] if message.body == newer), "{said:?}");
}

/// The configuration of a later epoch is taken from whoever has it; one that is not of the message's epoch from nobody.
#[test]
fn a_message_of_a_later_epoch_brings_its_configuration() {
    let cases = [(3, 3, Ok(()), 3), (3, 4, Err(Error::BadConfiguration), 2), (2, 2, Ok(()), 2), (1, 1, Ok(()), 2)];
    for (epoch, brought, expected, then) in cases {
        let mut backup = member(2);
        backup.handle_configuration(at(1), &configuration(2, &[1, 2], &[])).unwrap();
        complete(&mut backup, at(1));
        let newer = message(epoch, 3, 2, Body::Newer(configuration(brought, &[3, 2], &[])));
        assert_eq!(backup.handle_message(at(2), drive(3), newer), expected, "{epoch} {brought}");
        assert_eq!(backup.configuration().unwrap().epoch, Epoch(then), "{epoch} {brought}");
    }
}

/// Blocks that are no blocks, and writes of what only a mend may say.
#[test]
fn requests_for_what_cannot_be_are_refused() {
    let mut primary = active_primary_of_three();
    let odd = Range { offset: 1, len: 4_096 };
    let lost = Run { offset: 0, content: Content::Lost(vec![None]) };
    for operation in [Operation::Read(odd), Operation::Presence(odd), Operation::Write(lost)] {
        primary.handle_client(at(1_101), &ClientRequest { operation: operation.clone(), ..write(2, 1) });
        let refused = outputs(&mut primary);
        let [Output::Reply { result: Err(Refusal::BadRange), .. }] = refused[..] else {
            panic!("{operation:?}: {refused:?}")
        };
    }
}

/// Small ones by their number, whatever room their bytes would leave.
#[test]
fn a_primary_has_a_bounded_number_of_writes_under_way() {
    let mut primary = active_primary_of_three();
    for number in 1..=1_024 {
        primary.handle_client(at(1_101), &write(2, number));
        assert_eq!(complete(&mut primary, at(1_101)).len(), 2, "{number} goes to both, without a reply");
    }
    primary.handle_client(at(1_102), &write(2, 1_025));
    let refused = complete(&mut primary, at(1_102));
    assert!(matches!(&refused[..], [Output::Reply { result: Err(Refusal::Busy), .. }]), "{refused:?}");
    for from in [2, 3] {
        tell(&mut primary, from, 1_103, Body::Applied(Progress { received: 1, durable: 1 }));
    }
    primary.handle_client(at(1_104), &write(2, 1_025));
    assert_eq!(complete(&mut primary, at(1_104)).len(), 2, "one is done, so the next one has room");
}

#[test]
fn a_life_that_is_spoken_to_as_another_one_stays_out_of_the_epoch() {
    let mut backup = member(2);
    backup.handle_configuration(at(1), &configuration(2, &[1, 2], &[])).unwrap();
    complete(&mut backup, at(1));
    let lease =
        |to: u8| Message { to: Some(life(to)), ..message(2, 1, 2, Body::Lease { nonce: 1, clean: Version::ZERO }) };
    let unknown = Message { to: None, ..lease(2) };
    assert_eq!(backup.handle_message(at(2), drive(1), unknown), Err(Error::OtherLife));
    assert_eq!(outputs(&mut backup), [], "a primary that leases knows whom it asks");
    assert_eq!(backup.handle_message(at(2), drive(3), lease(9)), Err(Error::NotForRole));
    assert_eq!(backup.handle_message(at(2), drive(1), lease(9)), Err(Error::OtherLife));
    assert_eq!(outputs(&mut backup), [Output::Report(Report::NewEpoch { epoch: Epoch(2) })]);
    assert_eq!(backup.handle_message(at(3), drive(1), lease(2)), Ok(()));
    assert_eq!(outputs(&mut backup), [], "nothing more in this epoch");
    backup.handle_configuration(at(4), &configuration(3, &[1, 2], &[])).unwrap();
    complete(&mut backup, at(4));
    let adopt = Message { to: None, ..message(3, 1, 2, Body::Adopt(configuration(3, &[1, 2], &[]))) };
    backup.handle_message(at(5), drive(1), adopt).unwrap();
    assert_eq!(outputs(&mut backup).len(), 1, "it takes part in the next one");
}

#[test]
fn a_primary_listens_to_one_life_of_a_member() {
    let mut primary = member(1);
    primary.handle_configuration(at(1), &configuration(2, &[1, 2], &[])).unwrap();
    complete(&mut primary, at(1));
    let adopted =
        Body::Adopted(Standing { clean: Version::ZERO, newest: Version::ZERO, is_partial: false, room: Room::Enough });
    primary.handle_message(at(2), drive(2), message(2, 2, 1, adopted.clone())).unwrap();
    complete(&mut primary, at(2));
    let other = Message { from: life(9), ..message(2, 2, 1, adopted.clone()) };
    assert_eq!(primary.handle_message(at(3), drive(2), other), Err(Error::OtherLife));
    primary.handle_timeout(at(200));
    let asked = complete(&mut primary, at(200));
    let knows = |output: &Output| matches!(output, Output::Send { message, .. } if message.to == Some(life(2)));
    assert!(!asked.is_empty() && asked.iter().all(knows), "{asked:?}");
    // It is the second life of its own drive in this epoch, so the other member knows.
    let earlier = Message { to: Some(life(8)), ..message(2, 2, 1, adopted) };
    assert_eq!(primary.handle_message(at(201), drive(2), earlier), Err(Error::OtherLife));
    assert_eq!(outputs(&mut primary), [Output::Report(Report::NewEpoch { epoch: Epoch(2) })]);
    primary.handle_client(at(202), &write(2, 1));
    let refused = outputs(&mut primary);
    assert!(matches!(&refused[..], [Output::Reply { result: Err(Refusal::NotServing), .. }]), "{refused:?}");
}

#[test]
fn a_backup_tells_a_second_life_of_its_primary_of_the_first() {
    let mut backup = member(2);
    backup.handle_configuration(at(1), &configuration(2, &[1, 2], &[])).unwrap();
    complete(&mut backup, at(1));
    let adopt = Message { to: None, ..message(2, 1, 2, Body::Adopt(configuration(2, &[1, 2], &[]))) };
    backup.handle_message(at(2), drive(1), adopt.clone()).unwrap();
    outputs(&mut backup);
    let second = Message { from: life(9), ..adopt };
    assert_eq!(backup.handle_message(at(3), drive(1), second), Err(Error::OtherLife));
    let said = outputs(&mut backup);
    let for_first = |message: &Message| message.to == Some(life(1));
    assert!(matches!(&said[..], [Output::Send { message, .. }] if for_first(message)), "{said:?}");
}

/// The record that a member has saved last.
fn saved(outputs: &[Output]) -> Option<Record> {
    let records = outputs.iter().filter_map(|output| match output {
        Output::Store { request: StoreRequest::Save { record }, .. } => Some(record),
        _ => None,
    });
    records.last().map(|record| Record::decode(record, GROUP, drive(2)).unwrap())
}

#[test]
fn a_learner_is_partial_until_everything_before_the_end_of_its_filling_is_durable() {
    let mut learner = member(2);
    learner.handle_configuration(at(1), &configuration(2, &[1], &[2])).unwrap();
    let asked = outputs(&mut learner);
    assert_eq!(saved(&asked).map(|record| record.is_partial), Some(true), "whatever it was before");
    let [Output::Store { id, .. }] = asked[..] else { panic!("{asked:?}") };
    learner.handle_stored(at(1), id, Ok(StoreReply::Done)).unwrap();
    let adopt = Message { to: None, ..message(2, 1, 2, Body::Adopt(configuration(2, &[1], &[2]))) };
    learner.handle_message(at(2), drive(1), adopt).unwrap();
    complete(&mut learner, at(2));
    let run = Run { offset: 0, content: Content::Zeroes(4_096) };
    let patch = Entry::Patch { version: Version::ZERO.next(), extent: ExtentId::default(), runs: vec![run] };
    let mut ids = Vec::new();
    for (index, entry) in [(2, Entry::Whole), (1, patch)] {
        let apply = message(2, 1, 2, Body::Apply { index, clean: Version::ZERO, entry });
        learner.handle_message(at(3), drive(1), apply).unwrap();
        let asked = outputs(&mut learner);
        assert_eq!(saved(&asked), None, "the patch is not durable");
        ids.extend(
            asked.iter().filter_map(|output| if let Output::Store { id, .. } = output { Some(*id) } else { None }),
        );
    }
    learner.handle_stored(at(4), ids[0], Ok(StoreReply::Done)).unwrap();
    let asked = outputs(&mut learner);
    assert_eq!(saved(&asked).map(|record| record.is_partial), Some(false));
    let progress = |outputs: &[Output]| match outputs.last() {
        Some(Output::Send { message: Message { body: Body::Applied(progress), .. }, .. }) => progress.durable,
        other => panic!("{other:?}"),
    };
    assert_eq!(progress(&asked), 1, "the record is not durable");
    let id = asked.iter().find_map(|output| if let Output::Store { id, .. } = output { Some(*id) } else { None });
    learner.handle_stored(at(5), id.unwrap(), Ok(StoreReply::Done)).unwrap();
    assert_eq!(progress(&outputs(&mut learner)), 2);
    // It acts as whole, or is a learner anew.
    learner.handle_configuration(at(6), &configuration(3, &[1, 2], &[])).unwrap();
    assert_eq!(saved(&outputs(&mut learner)).map(|record| record.is_partial), Some(false));
    learner.handle_configuration(at(7), &configuration(4, &[1], &[2])).unwrap();
    assert_eq!(saved(&outputs(&mut learner)).map(|record| record.is_partial), Some(true));
}

#[test]
fn a_partial_copy_that_is_to_act_asks_for_its_own_removal_only() {
    let mut record = Record::NEW;
    record.promise.accept(Epoch(1), drive(1)).unwrap();
    record.is_partial = true;
    let record = record.encode(GROUP, drive(2));
    let mut backup = Member::new(at(0), (GROUP, drive(2), life(2)), Settings::default(), Some(&record));
    backup.handle_configuration(at(1), &configuration(2, &[1, 2], &[])).unwrap();
    complete(&mut backup, at(1));
    backup.handle_timeout(at(9_000));
    let lost = Report::Lost { epoch: Epoch(2), member: drive(2), fault: Fault::Blank };
    assert_eq!(outputs(&mut backup), [Output::Report(lost)], "not that of the silent primary");
}

#[test]
fn an_epoch_is_entered_although_a_change_of_the_one_before_was_refused_last() {
    let mut primary = member(1);
    primary.handle_configuration(at(1), &configuration(2, &[1], &[])).unwrap();
    complete(&mut primary, at(1));
    primary.handle_timeout(at(1_100));
    primary.handle_client(at(1_101), &write(2, 1));
    let asked = outputs(&mut primary);
    let [Output::Store { id, .. }] = asked[..] else { panic!("{asked:?}") };
    primary.handle_configuration(at(1_102), &configuration(3, &[1], &[])).unwrap();
    complete(&mut primary, at(1_102));
    primary.handle_stored(at(1_103), id, Err(StoreError::Full)).unwrap();
    complete(&mut primary, at(1_103));
    primary.handle_timeout(at(1_200));
    assert!(primary.is_serving(at(1_200)), "{primary:?}");
}

#[test]
fn a_backup_refuses_entries_that_cannot_be_its_primarys() {
    let mut backup = member(2);
    backup.handle_configuration(at(1), &configuration(2, &[1, 2], &[])).unwrap();
    let adopt = Message { to: None, ..message(2, 1, 2, Body::Adopt(configuration(2, &[1, 2], &[]))) };
    backup.handle_message(at(1), drive(1), adopt).unwrap();
    complete(&mut backup, at(1));
    let version = |epoch| Version { epoch: Epoch(epoch), sequence: 1 };
    let data = Run { offset: 0, content: Content::Data(Bytes::from(vec![1; 4_096])) };
    let write = |epoch, run: &Run| {
        let (generation, extent) = (Generation(1), ExtentId::default());
        Entry::Write { version: version(epoch), generation, extent, run: run.clone() }
    };
    let patch = |epoch, run: &Run| Entry::Patch {
        version: version(epoch),
        extent: ExtentId::default(),
        runs: vec![data.clone(), run.clone()],
    };
    let outside = Run { offset: 1 << 20, ..data.clone() };
    let lost = Run { offset: 0, content: Content::Lost(vec![None]) };
    let bad =
        [write(1, &data), write(3, &data), write(2, &outside), write(2, &lost), patch(3, &data), patch(2, &outside)];
    let mut tell = |entry| {
        let apply = Body::Apply { index: 1, clean: Version::ZERO, entry };
        backup.handle_message(at(2), drive(1), message(2, 1, 2, apply)).is_ok()
    };
    for entry in bad {
        assert!(!tell(entry.clone()), "{entry:?}");
    }
    assert!(tell(write(2, &data)));
}

/// The backup has another version of what is damaged here, so it is to take over; but it is lost, and this copy lacks nothing.
#[test]
fn a_copy_that_left_because_of_damage_acts_again_whatever_else_could_not_be_read() {
    let mut primary = member(1);
    primary.handle_configuration(at(1), &configuration(2, &[1, 2], &[])).unwrap();
    complete(&mut primary, at(1));
    let standing = Standing { clean: Version::ZERO, newest: Version::ZERO, is_partial: false, room: Room::Enough };
    for body in [Body::Adopted(standing), Body::Listed { after: None, page: Page::default() }] {
        primary.handle_message(at(2), drive(2), message(2, 2, 1, body)).unwrap();
        complete(&mut primary, at(2));
    }
    primary.handle_timeout(at(1_100));
    let nonces = complete(&mut primary, at(1_100)).into_iter().filter_map(|output| match output {
        Output::Send { message: Message { body: Body::Lease { nonce, .. }, .. }, .. } => Some(nonce),
        _ => None,
    });
    for nonce in nonces {
        let leased = Body::Leased { nonce, progress: Progress::default(), room: Room::Enough };
        primary.handle_message(at(1_100), drive(2), message(2, 2, 1, leased)).unwrap();
    }
    let extents = [0, 1].map(|number| ExtentId { extent: Extent(number), ..ExtentId::default() });
    for (number, extent) in (1..).zip(extents) {
        let operation = Operation::Read(Range { offset: 0, len: 4_096 });
        let request = ClientRequest { extent, operation, floor: RequestId(1), ..write(2, number) };
        primary.handle_client(at(1_101), &request);
    }
    let asked = outputs(&mut primary);
    let [Output::Store { id: first, .. }, Output::Store { id: second, .. }] = asked[..] else { panic!("{asked:?}") };
    primary.handle_stored(at(1_102), first, Err(StoreError::Damaged)).unwrap();
    complete(&mut primary, at(1_102));
    let run = Run { offset: 0, content: Content::Data(Bytes::from(vec![1; 4_096])) };
    let difference = Difference { version: Version::ZERO.next(), runs: vec![run] };
    let fetched = Body::Fetched { extent: extents[0], difference };
    primary.handle_message(at(1_103), drive(2), message(2, 2, 1, fetched)).unwrap();
    let asked = outputs(&mut primary);
    let [Output::Store { id: mend, request: StoreRequest::Mend { .. } }] = asked[..] else { panic!("{asked:?}") };
    primary.handle_stored(at(1_104), mend, Err(StoreError::Damaged)).unwrap();
    assert_eq!(primary.fault(), Some(Fault::Damaged));
    primary.handle_stored(at(1_105), second, Err(StoreError::Damaged)).unwrap();
    complete(&mut primary, at(1_105));
    primary.handle_configuration(at(1_106), &configuration(3, &[1], &[2])).unwrap();
    complete(&mut primary, at(1_106));
    primary.handle_timeout(at(1_300));
    assert!(primary.is_serving(at(1_300)), "{primary:?}");
}

#[test]
fn what_needs_room_is_refused_while_a_member_is_low_and_may_come_again() {
    let mut primary = member(1);
    primary.handle_configuration(at(1), &configuration(2, &[1], &[])).unwrap();
    complete(&mut primary, at(1));
    primary.handle_timeout(at(1_100));
    primary.handle_room(Room::Low);
    let answer = |primary: &mut Member, is_occupied| {
        primary.handle_client(at(1_101), &write(2, 1));
        let asked = outputs(primary);
        let [Output::Store { id, request: StoreRequest::Occupied { .. } }] = asked[..] else { panic!("{asked:?}") };
        primary.handle_stored(at(1_102), id, Ok(StoreReply::Occupied(is_occupied))).unwrap();
        complete(primary, at(1_102))
    };
    let refused = answer(&mut primary, false);
    assert!(matches!(&refused[..], [Output::Reply { result: Err(Refusal::NoSpace), .. }]), "{refused:?}");
    let done = answer(&mut primary, true);
    assert!(matches!(&done[..], [Output::Reply { result: Ok(Answer::Written), .. }]), "{done:?}");
}

#[test]
fn a_write_that_looks_is_not_ordered_behind_a_later_one_of_its_blocks() {
    let mut primary = member(1);
    primary.handle_configuration(at(1), &configuration(2, &[1], &[])).unwrap();
    complete(&mut primary, at(1));
    primary.handle_timeout(at(1_100));
    primary.handle_room(Room::Low);
    primary.handle_client(at(1_101), &write(2, 1));
    let asked = outputs(&mut primary);
    let [Output::Store { id, .. }] = asked[..] else { panic!("{asked:?}") };
    primary.handle_room(Room::Enough);
    primary.handle_client(at(1_102), &write(2, 2));
    let said = outputs(&mut primary);
    let refused = Output::Reply { session: SessionId(1), request: RequestId(1), result: Err(Refusal::NoSpace) };
    assert_eq!(said[0], refused);
    assert!(matches!(&said[1..], [Output::Store { request: StoreRequest::Write { .. }, .. }]), "{said:?}");
    primary.handle_stored(at(1_103), id, Ok(StoreReply::Occupied(true))).unwrap();
    assert_eq!(outputs(&mut primary), []);
}

#[test]
fn zeroes_that_were_fenced_while_they_looked_are_not_ordered_before_a_later_write() {
    let mut primary = member(1);
    primary.handle_configuration(at(1), &configuration(2, &[1], &[])).unwrap();
    complete(&mut primary, at(1));
    primary.handle_timeout(at(1_100));
    let zeroes = Operation::Write(Run { offset: 0, content: Content::Zeroes(8_192) });
    primary.handle_client(at(1_101), &ClientRequest { operation: zeroes, ..write(2, 1) });
    let asked = outputs(&mut primary);
    assert!(matches!(asked[..], [Output::Store { request: StoreRequest::Occupied { .. }, .. }]), "{asked:?}");
    primary.handle_fence(VolumeId::default(), Generation(2));
    outputs(&mut primary);
    let next = ClientRequest { session: SessionId(2), generation: Generation(2), ..write(2, 1) };
    primary.handle_client(at(1_102), &next);
    let said = outputs(&mut primary);
    let is_fenced = |result: &ClientResult| *result == Err(Refusal::Fenced(Generation(2)));
    let [Output::Reply { result, .. }, Output::Store { request: StoreRequest::Write { run, .. }, .. }] = &said[..]
    else {
        panic!("{said:?}")
    };
    assert!(is_fenced(result) && matches!(run.content, Content::Data(_)), "{said:?}");
}

#[test]
fn data_older_than_their_record_make_a_copy_partial_and_no_floor_for_others() {
    let mut record = Record::NEW;
    record.promise.accept(Epoch(1), drive(1)).unwrap();
    record.clean = Version { epoch: Epoch(1), sequence: 9 };
    let record = record.encode(GROUP, drive(2));
    let mut backup = Member::new(at(0), (GROUP, drive(2), life(2)), Settings::default(), Some(&record));
    backup.handle_configuration(at(1), &configuration(2, &[1, 2], &[])).unwrap();
    complete(&mut backup, at(1));
    let adopt = Message { to: None, ..message(2, 1, 2, Body::Adopt(configuration(2, &[1, 2], &[]))) };
    backup.handle_message(at(2), drive(1), adopt).unwrap();
    let said = outputs(&mut backup);
    let [Output::Send { message: adopted, .. }] = &said[..] else { panic!("{said:?}") };
    let mut primary = member(1);
    primary.handle_configuration(at(1), &configuration(2, &[1, 2], &[])).unwrap();
    complete(&mut primary, at(1));
    primary.handle_message(at(2), drive(2), adopted.clone()).unwrap();
    let lost = Report::Lost { epoch: Epoch(2), member: drive(2), fault: Fault::Blank };
    assert_eq!(outputs(&mut primary), [Output::Report(lost)]);
}

/// A member of a drive that has nothing, in an epoch that follows the one of which it heard first.
fn blank_primary(founders: &[u8], acting: &[u8], learners: &[u8]) -> (Member, Vec<Output>) {
    let mut primary = Member::new(at(0), (GROUP, drive(1), life(1)), Settings::default(), None);
    let witnesses = Witnesses { all: founders.iter().copied().map(drive).collect(), last_to_leave: None };
    primary.handle_witnesses(Epoch(3), &witnesses);
    primary.handle_configuration(at(1), &configuration(3, acting, learners)).unwrap();
    let lost = Report::Lost { epoch: Epoch(3), member: drive(1), fault: Fault::Blank };
    let again = Report::NewEpoch { epoch: Epoch(3) };
    assert_eq!(complete(&mut primary, at(1)), [Output::Report(lost), Output::Report(again)]);
    primary.handle_witnesses(Epoch(4), &witnesses);
    primary.handle_configuration(at(2), &configuration(4, acting, learners)).unwrap();
    let said = reports(&complete(&mut primary, at(2)));
    (primary, said)
}

fn reports(outputs: &[Output]) -> Vec<Output> {
    outputs.iter().filter(|output| matches!(output, Output::Report(_))).cloned().collect()
}

fn tell_standing(primary: &mut Member, from: u8, newest: Version) -> Vec<Output> {
    let standing = Standing { clean: Version::ZERO, newest, is_partial: true, room: Room::Enough };
    primary.handle_message(at(3), drive(from), message(4, from, 1, Body::Adopted(standing))).unwrap();
    reports(&complete(primary, at(3)))
}

#[test]
fn a_group_in_which_nobody_ever_had_anything_begins_with_who_is_there() {
    let lost = [Output::Report(Report::Lost { epoch: Epoch(4), member: drive(1), fault: Fault::Blank })];
    let again = Output::Report(Report::NewEpoch { epoch: Epoch(4) });
    let (mut primary, said) = blank_primary(&[1, 2, 3], &[1, 2], &[3]);
    assert_eq!(said, lost);
    assert_eq!(tell_standing(&mut primary, 2, Version::ZERO), lost, "the third may have everything");
    primary.handle_timeout(at(2_900));
    assert_eq!(reports(&complete(&mut primary, at(2_900))), lost, "nor does it accuse who is silent");
    assert_eq!(tell_standing(&mut primary, 3, Version::ZERO), [again]);
    primary.handle_configuration(at(3_000), &configuration(5, &[1], &[2, 3])).unwrap();
    complete(&mut primary, at(3_000));
    primary.handle_timeout(at(4_100));
    assert!(primary.is_serving(at(4_101)));

    // What a drive that is being filled holds was written by somebody.
    let (mut primary, _) = blank_primary(&[1, 2, 3], &[1, 2], &[3]);
    tell_standing(&mut primary, 2, Version::ZERO);
    assert_eq!(tell_standing(&mut primary, 3, Version { epoch: Epoch(2), sequence: 1 }), lost);
    assert_eq!(primary.fault(), Some(Fault::Blank));
    // A drive with which the group began is not there, or is not known.
    for founders in [&[1, 2, 3][..], &[]] {
        let (mut primary, _) = blank_primary(founders, &[1, 2], &[]);
        assert_eq!(tell_standing(&mut primary, 2, Version::ZERO), lost, "{founders:?}");
    }
    // Whom it was told in an earlier epoch may not be all by now.
    let (mut primary, _) = blank_primary(&[1, 2], &[1, 2], &[]);
    primary.handle_configuration(at(3), &configuration(5, &[1, 2], &[])).unwrap();
    complete(&mut primary, at(3));
    let standing = Standing { clean: Version::ZERO, newest: Version::ZERO, is_partial: true, room: Room::Enough };
    primary.handle_message(at(4), drive(2), message(5, 2, 1, Body::Adopted(standing))).unwrap();
    let of_now = Report::Lost { epoch: Epoch(5), member: drive(1), fault: Fault::Blank };
    assert_eq!(reports(&complete(&mut primary, at(4))), [Output::Report(of_now)]);
    // With one copy, a loss looks the same.
    assert_eq!(blank_primary(&[1], &[1], &[]).1, lost);
}

#[test]
fn a_write_that_was_fenced_while_it_looked_is_not_ordered() {
    let mut primary = member(1);
    primary.handle_configuration(at(1), &configuration(2, &[1], &[])).unwrap();
    complete(&mut primary, at(1));
    primary.handle_timeout(at(1_100));
    primary.handle_room(Room::Low);
    primary.handle_client(at(1_101), &write(2, 1));
    let asked = outputs(&mut primary);
    let [Output::Store { id, .. }] = asked[..] else { panic!("{asked:?}") };
    primary.handle_fence(VolumeId::default(), Generation(2));
    let fenced = Output::Fenced { volume: VolumeId::default(), generation: Generation(2) };
    assert_eq!(outputs(&mut primary), [fenced]);
    primary.handle_stored(at(1_102), id, Ok(StoreReply::Occupied(true))).unwrap();
    let refused = outputs(&mut primary);
    let is_fenced = |result: &ClientResult| *result == Err(Refusal::Fenced(Generation(2)));
    assert!(matches!(&refused[..], [Output::Reply { result, .. }] if is_fenced(result)), "{refused:?}");
}

#[test]
fn a_fence_waits_for_earlier_writes_of_its_volume_alone() {
    let mut primary = member(1);
    primary.handle_configuration(at(1), &configuration(2, &[1], &[])).unwrap();
    complete(&mut primary, at(1));
    primary.handle_timeout(at(1_100));
    primary.handle_client(at(1_101), &ClientRequest { generation: Generation(2), ..write(2, 1) });
    let written = outputs(&mut primary);
    let [Output::Store { id, .. }] = written[..] else { panic!("{written:?}") };
    let other = VolumeId::from_bytes([9; 16]);
    for (volume, generation) in [(other, Generation(3)), (VolumeId::default(), Generation(2))] {
        primary.handle_fence(volume, generation);
        assert_eq!(outputs(&mut primary), [Output::Fenced { volume, generation }], "nothing earlier is under way");
    }
    let (volume, generation) = (VolumeId::default(), Generation(3));
    primary.handle_fence(volume, generation);
    assert_eq!(outputs(&mut primary), [], "a write of the attachment before is under way");
    primary.handle_stored(at(1_102), id, Ok(StoreReply::Done)).unwrap();
    assert!(outputs(&mut primary).contains(&Output::Fenced { volume, generation }));
}

fn version(u: &mut Unstructured<'_>) -> Result<Version> {
    Ok(Version { epoch: Epoch(u.int_in_range(0..=3)?), sequence: u.int_in_range(0..=5)? })
}

fn room(u: &mut Unstructured<'_>) -> Result<Room> {
    Ok(if u.ratio(1, 5)? { Room::Low } else { Room::Enough })
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
    Ok(match u.int_in_range(0..=13)? {
        0 => Body::Adopt(configuration(2, &[1, 2, 3], &[4])),
        1 => Body::Adopted(Standing {
            clean: version(u)?,
            newest: version(u)?,
            is_partial: u.ratio(1, 9)?,
            room: room(u)?,
        }),
        2 => Body::Newer(configuration(u.int_in_range(1..=4)?, &[1, 2], &[3])),
        3 => Body::Lease { nonce: u.int_in_range(0..=3)?, clean: version(u)? },
        4 => {
            let received = u.int_in_range(0..=4)?;
            Body::Leased {
                nonce: u.int_in_range(0..=9)?,
                progress: Progress { received, durable: received },
                room: room(u)?,
            }
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
        12 => Body::Apply { index: u.int_in_range(0..=4)?, clean: version(u)?, entry: Entry::Whole },
        _ => {
            let difference = Difference { version: version(u)?, runs: vec![run(u)?] };
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
                    let from = u.int_in_range(1..=5)?;
                    let (known, other) = (u.ratio(9, 10)?, u.ratio(1, 30)?);
                    let mut message = message(u.int_in_range(1..=3)?, from, number, body(u)?);
                    message.to = message.to.filter(|_| known);
                    message.from = Life::drawn(u64::from(from) + 100 * u64::from(other));
                    let encoded = encode(&message);
                    if let Ok(message) = decode(&encoded.head, Bytes::new()) {
                        let _ = member.handle_message(at(now), drive(from), message);
                    }
                }
                5 | 6 if !asked.is_empty() => {
                    let (id, request) = asked.swap_remove(u.choose_index(asked.len())?);
                    let result = if u.ratio(1, 40)? { Err(StoreError::Full) } else { Ok(reply_to(&request)) };
                    member.handle_stored(at(now), id, result).unwrap();
                }
                7 => member.handle_timeout(at(now)),
                9 if u.ratio(1, 2)? => member.handle_room(room(u)?),
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

#[test]
fn members_of_a_drive_tick_together() {
    const TICK: Duration = Duration::from_millis(100);
    let first = |at, number| tick_after(at, TICK, drive(number));
    for number in [1, 2, 250] {
        let mut ticks = (0..250).map(|millis| first(at(5_000 + millis), number)).collect::<Vec<_>>();
        for (millis, tick) in (0..).zip(&ticks) {
            assert!(*tick > at(5_000 + millis) && *tick <= at(5_000 + millis) + TICK, "within a period, never at once");
        }
        ticks.dedup();
        assert!(ticks.len() <= 4 && ticks.windows(2).all(|two| two[1] == two[0] + TICK), "{ticks:?}");
        assert_eq!(first(ticks[0], number), ticks[1], "who has ticked waits a whole period");
    }
    assert_ne!(first(at(5_000), 1), first(at(5_000), 2), "drives tick at different moments");
    assert!(first(Instant::ORIGIN, 250) > Instant::ORIGIN);
    assert_eq!(first(Instant::NEVER, 1), Instant::NEVER);
}
