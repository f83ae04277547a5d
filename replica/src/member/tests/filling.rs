//! Filling of a learner: what it is asked, and when writes begin to wait for it.

use super::*;

const EXTENT: ExtentId = ExtentId { volume: VolumeId::from_bytes([7; 16]), extent: Extent(3) };

fn standing() -> Standing {
    Standing { clean: Version::ZERO, newest: Version::ZERO, is_partial: true, room: Room::Enough }
}

/// A drive that is slow is asked again and again.
#[test]
fn a_question_that_comes_again_is_not_put_to_the_store_again() {
    let mut learner = member(2);
    learner.handle_configuration(at(1), &configuration(2, &[1], &[2])).unwrap();
    complete(&mut learner, at(1));
    let inquire = || Body::Inquire { extent: EXTENT };
    let list = |after| Body::List { above: Version::ZERO, after };
    let mut ask = |body| {
        learner.handle_message(at(2), drive(1), message(2, 1, 2, body)).unwrap();
        outputs(&mut learner)
    };
    let asked = [ask(inquire()), ask(list(None)), ask(list(Some(EXTENT)))];
    assert!(asked.iter().all(|asked| matches!(asked[..], [Output::Store { .. }])), "{asked:?}");
    assert_eq!([ask(inquire()), ask(list(None)), ask(list(Some(EXTENT)))], [const { Vec::new() }; 3]);
    for asked in asked.into_iter().flatten() {
        let Output::Store { id, request } = asked else { panic!("{asked:?}") };
        learner.handle_stored(at(3), id, Ok(reply_to(&request))).unwrap();
    }
    assert_eq!(outputs(&mut learner).len(), 3, "each is answered once");
    learner.handle_message(at(4), drive(1), message(2, 1, 2, inquire())).unwrap();
    assert_eq!(complete(&mut learner, at(4)).len(), 1, "the answer was lost");
}

#[test]
fn writes_wait_for_a_learner_once_it_has_stored_all_copies() {
    let mut primary = member(1);
    primary.handle_configuration(at(1), &configuration(2, &[1], &[2])).unwrap();
    complete(&mut primary, at(1));
    primary.handle_timeout(at(1_100));
    complete(&mut primary, at(1_100));
    tell(&mut primary, 2, 1_101, Body::Adopted(standing()));
    primary.handle_timeout(at(1_300));
    complete(&mut primary, at(1_300));
    let version = Version { epoch: Epoch(1), sequence: 1 };
    let page = Page { entries: vec![(EXTENT, version)], has_more: false, newest: version };
    let entries = |said: Vec<Output>| {
        let entry = |output| match output {
            Output::Send { message: Message { body: Body::Apply { entry, .. }, .. }, .. } => Some(entry),
            _ => None,
        };
        said.into_iter().filter_map(entry).collect::<Vec<_>>()
    };
    tell(&mut primary, 2, 1_302, Body::Listed { after: None, page });
    let copied = entries(tell(&mut primary, 2, 1_303, Body::Checksums { extent: EXTENT, sums: Vec::new() }));
    assert!(matches!(copied[..], [Entry::Patch { .. }]), "{copied:?}");
    let applied = |durable| Body::Applied(Progress { received: 1, durable });
    assert_eq!(entries(tell(&mut primary, 2, 1_304, applied(0))), [], "it has come and is not stored");
    assert_eq!(entries(tell(&mut primary, 2, 1_305, applied(1))), [Entry::Whole]);
}
