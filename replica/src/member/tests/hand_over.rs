//! When a new primary serves: not while an earlier one may serve by a lease of its.

use super::*;

/// The first drive, which has granted a lease to the second one in the second epoch, until the 3,000th millisecond. It is primary in
/// the third epoch among these from the 2,100th on.
fn primary_of(acting: &[u8]) -> Member {
    let mut member = member(1);
    member.handle_configuration(at(1), &configuration(2, &[2, 1, 3], &[])).unwrap();
    complete(&mut member, at(1));
    let lease = message(2, 2, 1, Body::Lease { nonce: 1, clean: Version::ZERO });
    member.handle_message(at(2_000), drive(2), lease).unwrap();
    enter(&mut member, 2_100, 3, acting);
    member
}

/// It becomes primary among these, who enter the epoch at once and are equal.
fn enter(member: &mut Member, now: u64, epoch: u64, acting: &[u8]) {
    member.handle_configuration(at(now), &configuration(epoch, acting, &[])).unwrap();
    complete(member, at(now));
    let standing = Standing { clean: Version::ZERO, newest: Version::ZERO, is_partial: false, room: Room::Enough };
    for body in [Body::Adopted(standing), Body::Listed { after: None, page: Page::default() }] {
        for from in acting.iter().copied().filter(|from| *from != 1) {
            member.handle_message(at(now), drive(from), message(epoch, from, 1, body.clone())).unwrap();
            complete(member, at(now));
        }
    }
}

/// Whether it takes a write at that moment.
fn takes_writes(member: &mut Member, now: u64, epoch: u64, number: u64) -> bool {
    member.handle_timeout(at(now));
    complete(member, at(now));
    member.handle_client(at(now), &write(epoch, number));
    let said = complete(member, at(now));
    let is_ordered =
        |output: &Output| matches!(output, Output::Send { message, .. } if matches!(message.body, Body::Apply { .. }));
    let refused = said.iter().any(|output| matches!(output, Output::Reply { result: Err(Refusal::NotServing), .. }));
    assert_ne!(refused, said.iter().any(is_ordered), "{said:?}");
    !refused
}

#[test]
fn an_earlier_primary_that_is_taken_out_may_serve_until_its_lease_has_run_out() {
    let mut primary = primary_of(&[1, 3]);
    assert!(!takes_writes(&mut primary, 2_102, 3, 1) && !takes_writes(&mut primary, 2_999, 3, 2));
    assert!(takes_writes(&mut primary, 3_100, 3, 3));
}

/// Nor is it in a later epoch, in which it is no member any more.
#[test]
fn an_earlier_primary_that_has_entered_the_epoch_is_not_waited_for() {
    let mut primary = primary_of(&[1, 2, 3]);
    assert!(takes_writes(&mut primary, 2_102, 3, 1));
    enter(&mut primary, 2_103, 4, &[1, 3]);
    assert!(takes_writes(&mut primary, 2_104, 4, 2));
}
