//! The watermark of a member: who notes it, and when it is saved.

use super::*;

const CLEAN: Version = Version { epoch: Epoch(2), sequence: 5 };
const LATER: Version = Version { epoch: Epoch(2), sequence: 6 };

/// The second drive, whose record says this and whose copy goes so far, in an epoch in which it acts or is filled.
fn second(is_partial: bool, configuration: &Configuration, newest: Version) -> Member {
    let mut record = Record { is_partial, ..Record::NEW };
    record.promise.accept(Epoch(1), drive(1)).unwrap();
    let identity = (GROUP, drive(2), life(2));
    let mut member = Member::new(at(0), identity, Settings::default(), Some(&record.encode(GROUP, drive(2))));
    member.handle_configuration(at(1), configuration).unwrap();
    while let Some(output) = member.poll_output() {
        let Output::Store { id, request } = output else { continue };
        let is_list = matches!(request, StoreRequest::List { .. });
        let reply = if is_list { StoreReply::List(Page { newest, ..Page::default() }) } else { reply_to(&request) };
        member.handle_stored(at(1), id, Ok(reply)).unwrap();
    }
    member
}

/// The primary tells its watermark at this time; the one that is saved upon that.
fn tell(member: &mut Member, now: u64, clean: Version) -> Option<Version> {
    let lease = message(2, 1, 2, Body::Lease { nonce: now, clean });
    member.handle_message(at(now), drive(1), lease).unwrap();
    member.handle_timeout(at(now));
    let mut saved = None;
    while let Some(output) = member.poll_output() {
        let Output::Store { id, request } = output else { continue };
        if let StoreRequest::Save { record } = &request {
            saved = Some(Record::decode(record, GROUP, drive(2)).unwrap().clean);
        }
        member.handle_stored(at(now), id, Ok(reply_to(&request))).unwrap();
    }
    saved
}

#[test]
fn the_first_watermark_is_saved_at_once_and_later_ones_from_time_to_time() {
    let mut member = second(false, &configuration(2, &[1, 2], &[]), LATER);
    assert_eq!(tell(&mut member, 100, Version::ZERO), None);
    assert_eq!(tell(&mut member, 200, CLEAN), Some(CLEAN));
    assert_eq!(tell(&mut member, 300, LATER), None);
    assert_eq!(tell(&mut member, 5_100, LATER), None);
    assert_eq!(tell(&mut member, 5_200, LATER), Some(LATER));
    assert_eq!(tell(&mut member, 11_000, LATER), None, "it is saved");
}

/// What the primary has beyond it may have gone with a deleted volume, before this drive had it.
#[test]
fn a_watermark_goes_no_further_than_the_copy() {
    let mut member = second(false, &configuration(2, &[1, 2], &[]), CLEAN);
    assert_eq!(tell(&mut member, 200, LATER), Some(CLEAN));
    let (extent, run) = (ExtentId::default(), Run { offset: 0, content: Content::Zeroes(4_096) });
    let entry = Entry::Write { version: LATER, generation: Generation(1), extent, run };
    let apply = message(2, 1, 2, Body::Apply { index: 1, clean: LATER, entry });
    member.handle_message(at(300), drive(1), apply).unwrap();
    complete(&mut member, at(300));
    assert_eq!(tell(&mut member, 5_300, LATER), Some(LATER));
}

#[test]
fn only_a_whole_copy_that_acts_notes_a_watermark() {
    let mut learner = second(false, &configuration(2, &[1], &[2]), LATER);
    assert_eq!(tell(&mut learner, 200, CLEAN), None);
    let mut partial = second(true, &configuration(2, &[1, 2], &[]), LATER);
    assert_eq!(tell(&mut partial, 200, CLEAN), None);
}
