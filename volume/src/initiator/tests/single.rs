//! One thing at a time.

use super::*;

#[test]
fn a_read_is_one_request_to_the_preferred_primary() {
    let mut initiator = initiator(Limits::default());
    start(&mut initiator, 5, read(K, 2 * K));
    let sent = only(&mut initiator);
    let (table, volume) = (table(1, 8), volume());
    let route = volume.route(volume.locate(K).unwrap(), &table).unwrap();
    let leader = route.drives().next().unwrap();
    assert_eq!((sent.server, sent.header.drive, sent.header.group.pg), (leader.server, leader.id, route.pg));
    let header = &sent.header;
    assert_eq!((header.verb, header.range.offset, header.range.len), (Verb::Read, 4_096, 8_192));
    assert_eq!((header.epoch, header.generation, header.session), (Epoch(0), Generation(3), SessionId(77)));
    assert!(sent.payload.is_empty());
    let bytes = Bytes::from(vec![1; 8_192]);
    initiator.handle_answer(at(1), sent.id, Answer::Answered(AnswerKind::Done, bytes.clone()));
    let completion = initiator.poll_completion().unwrap();
    let Ok([Piece::Data(read)]) = completion.result.as_deref() else { panic!("{completion:?}") };
    assert_eq!(read.as_ptr(), bytes.as_ptr(), "nothing is copied");
    assert_eq!((initiator.requests(), initiator.in_flight()), (0, (0, 0)));
}

#[test]
fn an_unaligned_read_takes_whole_blocks_and_gives_the_bytes() {
    let mut initiator = initiator(Limits::default());
    start(&mut initiator, 1, read(EXTENT - 3, 5));
    let both = subrequests(&mut initiator);
    assert_eq!(both.len(), 2);
    assert_ne!(both[0].header.range.extent, both[1].header.range.extent);
    // In the other order; the second extent was never written.
    initiator.handle_answer(at(1), both[1].id, answered(AnswerKind::Zeroes));
    assert_eq!(initiator.poll_completion(), None);
    let block: Vec<u8> = (0..4_096_u32).map(|index| index.to_be_bytes()[3]).collect();
    initiator.handle_answer(at(1), both[0].id, Answer::Answered(AnswerKind::Done, Bytes::from(block)));
    assert_eq!(completions(&mut initiator), [(1, Ok(vec![253, 254, 255, 0, 0]))]);
}

#[test]
fn an_aligned_write_is_cut_and_not_copied() {
    let mut initiator = initiator(Limits::default());
    let data = Bytes::from(vec![7; 3 * 65_536]);
    start(&mut initiator, 1, Op::Write { offset: 2 * K, data: data.clone() });
    let all = subrequests(&mut initiator);
    assert_eq!(all.len(), 4);
    let mut at_byte = 0;
    for sent in &all {
        assert_eq!(sent.payload.as_ptr(), data[at_byte..].as_ptr());
        assert_eq!(sent.payload.len(), sent.header.range.len as usize);
        at_byte += sent.payload.len();
        initiator.handle_answer(at(1), sent.id, DONE);
    }
    assert_eq!(completions(&mut initiator), [(1, Ok(vec![]))]);
}

#[test]
fn blocks_that_are_named_in_part_are_read_first() {
    let mut initiator = initiator(Limits::default());
    start(&mut initiator, 1, write(K - 1, 2 * K, 7));
    let ends = subrequests(&mut initiator);
    let ranges: Vec<_> =
        ends.iter().map(|sent| (sent.header.verb, sent.header.range.offset, sent.header.range.len)).collect();
    assert_eq!(ranges, [(Verb::Read, 0, 4_096), (Verb::Read, 8_192, 4_096)]);
    initiator.handle_answer(at(1), ends[1].id, Answer::Answered(AnswerKind::Done, Bytes::from(vec![2; 4_096])));
    assert_eq!(initiator.poll_subrequest(), None);
    initiator.handle_answer(at(1), ends[0].id, Answer::Answered(AnswerKind::Done, Bytes::from(vec![1; 4_096])));
    let sent = only(&mut initiator);
    assert_eq!((sent.header.verb, sent.header.range.offset, sent.header.range.len), (Verb::Write, 0, 12_288));
    let expected = [vec![1; 4_095], vec![7; 8_192], vec![2]].concat();
    assert_eq!(sent.payload, expected);
    initiator.handle_answer(at(1), sent.id, DONE);
    assert_eq!(completions(&mut initiator), [(1, Ok(vec![]))]);
}

#[test]
fn discards_shrink_and_flush_has_nothing_to_do() {
    let mut initiator = initiator(Limits::default());
    start(&mut initiator, 1, Op::Discard { offset: 1, len: 2 * K - 2 });
    start(&mut initiator, 2, Op::Flush);
    assert_eq!(completions(&mut initiator), [(1, Ok(vec![])), (2, Ok(vec![]))]);
    start(&mut initiator, 3, Op::Discard { offset: 1, len: 3 * K });
    let sent = only(&mut initiator);
    assert_eq!((sent.header.verb, sent.header.range.offset, sent.header.range.len), (Verb::Discard, 4_096, 8_192));
}

#[test]
fn zeroes_say_what_becomes_of_the_space() {
    for (space, verb) in [(Space::Release, Verb::Zero), (Space::Keep, Verb::ZeroInPlace)] {
        let mut initiator = initiator(Limits::default());
        start(&mut initiator, 1, Op::Zero { offset: K / 2, len: 2 * K, space });
        let sent = subrequests(&mut initiator);
        let verbs: Vec<(Verb, u32)> = sent.iter().map(|sent| (sent.header.verb, sent.header.range.offset)).collect();
        assert_eq!(verbs, [(Verb::Read, 0), (verb, 4_096), (Verb::Read, 8_192)]);
    }
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let mut initiator = initiator(Limits::default());
    let mut refused = |op| initiator.handle_request(at(0), RequestId(1), op, None).unwrap_err();
    assert_eq!(refused(read(0, 0)), Error::EmptyRange);
    assert_eq!(refused(read(SIZE, 1)), Error::BehindEnd { offset: SIZE, len: 1, size: SIZE });
    assert_eq!(refused(write(SIZE - 1, 2, 0)), Error::BehindEnd { offset: SIZE - 1, len: 2, size: SIZE });
    assert_eq!(refused(read(u64::MAX, u64::MAX)), Error::BehindEnd { offset: u64::MAX, len: u64::MAX, size: SIZE });
    assert_eq!(initiator.requests(), 0);
}

#[test]
fn overlapping_requests_run_in_order_and_others_beside_them() {
    let mut initiator = initiator(Limits::default());
    start(&mut initiator, 1, write(0, K, 1));
    start(&mut initiator, 2, read(0, K));
    start(&mut initiator, 3, read(0, 2 * K));
    start(&mut initiator, 4, write(K, K, 2));
    start(&mut initiator, 5, write(8 * K, K, 3));
    let first = subrequests(&mut initiator);
    let bytes: Vec<u8> = first.iter().map(|sent| sent.payload[0]).collect();
    assert_eq!(bytes, [1, 3]);
    initiator.handle_answer(at(1), first[0].id, DONE);
    // Both reads; the second write waits for the read that it overlaps.
    let reads = subrequests(&mut initiator);
    assert_eq!(reads.iter().map(|sent| sent.header.range.len).collect::<Vec<_>>(), [4_096, 8_192]);
    initiator.handle_answer(at(1), reads[0].id, answered(AnswerKind::Zeroes));
    assert_eq!(initiator.poll_subrequest(), None);
    initiator.handle_answer(at(1), reads[1].id, answered(AnswerKind::Zeroes));
    assert_eq!(only(&mut initiator).payload[0], 2);
}

#[test]
fn a_repetition_has_the_same_number_and_a_pause() {
    let mut initiator = initiator(Limits::default());
    start(&mut initiator, 1, write(0, K, 1));
    let first = only(&mut initiator);
    initiator.handle_answer(at(0), first.id, Answer::Lost);
    assert_eq!(initiator.poll_subrequest(), None);
    let due = initiator.poll_timeout().unwrap();
    assert!(due > at(0) && due <= at(5), "{due:?}");
    initiator.handle_timeout(due);
    let second = only(&mut initiator);
    assert_eq!(second.id, SubrequestId { number: first.id.number, attempt: 2 });
    assert_eq!(second.header, first.header);
    // What the first sending brings after all is ignored.
    initiator.handle_answer(due, first.id, answered(AnswerKind::Fenced));
    assert_eq!(initiator.poll_completion(), None);
    initiator.handle_answer(due, second.id, DONE);
    initiator.handle_answer(due, second.id, DONE);
    assert_eq!(completions(&mut initiator), [(1, Ok(vec![]))]);
}

#[test]
fn a_busy_server_is_left_alone_as_long_as_it_asks() {
    let mut initiator = initiator(Limits::default());
    start(&mut initiator, 1, read(0, K));
    let sent = only(&mut initiator);
    initiator.handle_answer(at(0), sent.id, answered(AnswerKind::Busy { retry_after_ms: 100 }));
    assert_eq!(initiator.poll_timeout(), Some(at(100)));
    initiator.handle_timeout(at(99));
    assert_eq!(initiator.poll_subrequest(), None);
    initiator.handle_timeout(at(100));
    only(&mut initiator);
}

#[test]
fn a_newer_configuration_is_followed_at_once_an_older_one_never() {
    let mut initiator = initiator(Limits::default());
    let table = table(1, 8);
    start(&mut initiator, 1, read(0, K));
    let sent = only(&mut initiator);
    let group = sent.header.group;
    let newer = config(&table, group, 7, 1);
    initiator.handle_answer(at(0), sent.id, answered(AnswerKind::OtherEpoch(Some(newer))));
    let again = only(&mut initiator);
    assert_eq!((again.server, again.header.drive, again.header.epoch), (newer.server, newer.drive, Epoch(7)));
    // A server that is behind says nothing new: a pause.
    let older = config(&table, group, 6, 2);
    initiator.handle_answer(at(0), again.id, answered(AnswerKind::NotPrimary(Some(older))));
    assert_eq!(initiator.poll_subrequest(), None);
    initiator.handle_timeout(at(100));
    let still = only(&mut initiator);
    assert_eq!((still.server, still.header.epoch), (newer.server, Epoch(7)));
    initiator.handle_answer(at(100), still.id, Answer::Lost);
    // The catalog ends the pause.
    let newest = config(&table, group, 8, 2);
    initiator.handle_config(group, newest);
    let last = only(&mut initiator);
    assert_eq!((last.server, last.header.epoch), (newest.server, Epoch(8)));
    initiator.handle_config(group, older);
    initiator.handle_answer(at(0), last.id, Answer::Lost);
    initiator.handle_timeout(at(1_000));
    assert_eq!(only(&mut initiator).header.epoch, Epoch(8));
}

#[test]
fn a_server_cannot_make_us_turn_in_a_circle() {
    let mut initiator = initiator(Limits::default());
    let table = table(1, 8);
    start(&mut initiator, 1, read(0, K));
    let mut epoch = 0;
    while let Some(sent) = initiator.poll_subrequest() {
        epoch += 1;
        let hint = config(&table, sent.header.group, epoch, 1);
        initiator.handle_answer(at(0), sent.id, answered(AnswerKind::OtherEpoch(Some(hint))));
    }
    assert_eq!(epoch, u64::from(Pacing::default().prompt_max) + 1);
    assert!(initiator.poll_timeout().is_some());
}

#[test]
fn hints_about_groups_that_do_not_exist_cost_nothing() {
    let mut initiator = initiator(Limits::default());
    for pg in 8..1_000 {
        let group = GroupId { set: SetId(1), pg: PgId(pg) };
        initiator.handle_config(group, config(&table(1, 8), GroupId { pg: PgId(0), ..group }, 9, 0));
    }
    start(&mut initiator, 1, read(0, K));
    assert_eq!(only(&mut initiator).header.epoch, Epoch::ZERO);
}

#[test]
fn final_answers() {
    let block = Answer::Answered(AnswerKind::Done, Bytes::from(vec![0; 100]));
    let cases = [
        (write(0, K, 1), answered(AnswerKind::Full), Error::Full),
        (read(0, K), answered(AnswerKind::Damaged), Error::Damaged),
        (read(0, K), block.clone(), Error::BadAnswer),
        (write(0, K, 1), block, Error::BadAnswer),
        (write(0, K, 1), answered(AnswerKind::Zeroes), Error::BadAnswer),
        (write(0, K, 1), answered(AnswerKind::Settled), Error::BadAnswer),
        (write(0, K, 1), answered(AnswerKind::Fenced), Error::Fenced),
    ];
    for (op, answer, error) in cases {
        let mut initiator = initiator(Limits::default());
        start(&mut initiator, 1, op);
        let sent = only(&mut initiator);
        initiator.handle_answer(at(1), sent.id, answer);
        assert_eq!(completions(&mut initiator), [(1, Err(error))]);
        assert_eq!((initiator.requests(), initiator.in_flight()), (0, (0, 0)));
    }
}

#[test]
fn one_failed_run_fails_its_request_once() {
    let mut initiator = initiator(Limits::default());
    start(&mut initiator, 1, write(0, 3 * EXTENT, 1));
    let all = subrequests(&mut initiator);
    initiator.handle_answer(at(1), all[0].id, answered(AnswerKind::Full));
    initiator.handle_answer(at(1), all[1].id, answered(AnswerKind::Full));
    assert_eq!(completions(&mut initiator), [(1, Err(Error::Full))]);
    assert_eq!(initiator.requests(), 1);
    initiator.handle_answer(at(1), all[2].id, Answer::Lost);
    assert_eq!((initiator.requests(), initiator.poll_timeout()), (0, None));
}

#[test]
fn a_fenced_attachment_is_over() {
    let mut initiator = initiator(Limits::default());
    start(&mut initiator, 1, write(0, K, 1));
    start(&mut initiator, 2, write(0, K, 2));
    start(&mut initiator, 3, read(EXTENT, K));
    let sent = subrequests(&mut initiator);
    initiator.handle_answer(at(1), sent[0].id, answered(AnswerKind::Fenced));
    let fenced = |id| (id, Err(Error::Fenced));
    assert_eq!(completions(&mut initiator), [fenced(1), fenced(2), fenced(3)]);
    assert!(initiator.is_fenced());
    assert_eq!(initiator.poll_subrequest(), None);
    assert_eq!(initiator.handle_request(at(2), RequestId(4), read(0, K), None), Err(Error::Fenced));
    assert_eq!(initiator.handle_request(at(2), RequestId(4), Op::Flush, None), Err(Error::Fenced));
    initiator.handle_answer(at(3), sent[1].id, DONE);
    assert_eq!((completions(&mut initiator), initiator.requests()), (vec![], 0));
}

#[test]
fn a_deadline_ends_a_request_but_not_the_wait_of_those_behind_it() {
    let mut initiator = initiator(Limits::default());
    initiator.handle_request(at(0), RequestId(1), write(0, K, 1), Some(at(100))).unwrap();
    start(&mut initiator, 2, write(0, K, 2));
    let sent = only(&mut initiator);
    assert_eq!(sent.deadline, at(100));
    assert_eq!(initiator.poll_timeout(), Some(at(100)));
    initiator.handle_timeout(at(100));
    assert_eq!(completions(&mut initiator), [(1, Err(Error::TimedOut))]);
    // The server may still be at it.
    assert_eq!(initiator.poll_subrequest(), None);
    initiator.handle_answer(at(101), sent.id, Answer::Lost);
    let next = only(&mut initiator);
    assert_eq!(next.payload[0], 2);
    assert!(next.header.settled_below > sent.id.number, "the first will not be applied any more");
    initiator.handle_answer(at(101), next.id, DONE);
    assert_eq!((completions(&mut initiator), initiator.poll_timeout()), (vec![(2, Ok(vec![]))], None));
}

#[test]
fn a_deadline_ends_a_pause() {
    let mut initiator = initiator(Limits::default());
    initiator.handle_request(at(0), RequestId(1), write(0, K, 1), Some(at(1))).unwrap();
    start(&mut initiator, 2, read(0, K));
    let sent = only(&mut initiator);
    initiator.handle_answer(at(0), sent.id, Answer::Lost);
    initiator.handle_timeout(at(1));
    assert_eq!(completions(&mut initiator), [(1, Err(Error::TimedOut))]);
    assert_eq!(only(&mut initiator).header.verb, Verb::Read);
}

#[test]
fn numbers_below_which_all_is_settled() {
    let mut initiator = initiator(Limits::default());
    start(&mut initiator, 1, write(0, K, 1));
    start(&mut initiator, 2, write(K, K, 2));
    start(&mut initiator, 3, write(2 * K, K, 3));
    let sent = subrequests(&mut initiator);
    let settled = |sent: &Subrequest| sent.header.settled_below.0;
    assert_eq!(sent.iter().map(|sent| (sent.id.number.0, settled(sent))).collect::<Vec<_>>(), [(1, 1), (2, 1), (3, 1)]);
    // The second is done; the first still is not.
    initiator.handle_answer(at(0), sent[1].id, DONE);
    start(&mut initiator, 4, write(3 * K, K, 4));
    assert_eq!(settled(&only(&mut initiator)), 1);
    initiator.handle_answer(at(0), sent[0].id, DONE);
    start(&mut initiator, 5, read(3 * EXTENT / 4, K));
    assert_eq!(settled(&only(&mut initiator)), 3);
}

#[test]
fn volumes_grow_into_another_set() {
    let mut initiator = initiator(Limits::default());
    let part = Part { set: SetId(2), extents: 1 };
    assert_eq!(initiator.grow(part), Err(Error::UnknownSet(SetId(2))));
    initiator.handle_table(table(2, 4)).unwrap();
    assert_eq!(initiator.handle_table(table(2, 5)), Err(Error::OtherTable(SetId(2))));
    assert_eq!(initiator.grow(Part { extents: 0, ..part }), Err(Error::BadPart));
    initiator.grow(part).unwrap();
    start(&mut initiator, 1, read(SIZE, K));
    assert_eq!(only(&mut initiator).header.group.set, SetId(2));
    let missing = Initiator::new(ATTACHMENT, volume(), vec![], Limits::default(), Pacing::default(), 1);
    assert_eq!(missing.unwrap_err(), Error::UnknownSet(SetId(1)));
}

#[test]
fn a_cancelled_request_is_neither_completed_nor_sent_again() {
    let mut initiator = initiator(Limits::default());
    start(&mut initiator, 1, write(0, K, 1));
    start(&mut initiator, 2, write(0, K, 2));
    let sent = only(&mut initiator);
    initiator.handle_cancel(RequestId(1));
    assert_eq!(subrequests(&mut initiator), [], "the second one waits until the first is no more under way");
    initiator.handle_answer(at(1), sent.id, Answer::Lost);
    let second = only(&mut initiator);
    assert_eq!(second.payload[0], 2);
    assert!(second.header.settled_below > sent.header.number, "late copies of the first one are refused");
    initiator.handle_answer(at(2), second.id, DONE);
    assert_eq!(completions(&mut initiator), [(2, Ok(vec![]))]);
    // One that has ended and one that is not known.
    start(&mut initiator, 3, Op::Flush);
    initiator.handle_cancel(RequestId(3));
    initiator.handle_cancel(RequestId(4));
    assert_eq!((completions(&mut initiator), initiator.requests()), (vec![], 0));
}

#[test]
fn a_pinned_volume_goes_to_its_group_alone() {
    let (group, other) = (GroupId { set: SetId(1), pg: PgId(5) }, GroupId { set: SetId(1), pg: PgId(4) });
    let first = config(&table(1, 8), group, 3, 1);
    let (limits, pacing) = (Limits::default(), Pacing::default());
    let mut initiator = Initiator::pinned(ATTACHMENT, volume(), (group, first), limits, pacing, 1);
    start(&mut initiator, 1, read(0, SIZE));
    let sent = subrequests(&mut initiator);
    assert_eq!(sent.len(), usize::try_from(EXTENTS).unwrap());
    assert!(sent.iter().all(|sent| sent.header.group == group && sent.header.epoch == first.epoch));
    initiator.handle_answer(at(0), sent[0].id, Answer::Lost);
    assert_eq!(initiator.paused_groups().collect::<Vec<_>>(), [group]);
    initiator.handle_config(other, config(&table(1, 8), other, 9, 2));
    assert_eq!(subrequests(&mut initiator), [], "that is another group");
    let second = config(&table(1, 8), group, 4, 2);
    initiator.handle_config(group, second);
    let again = only(&mut initiator);
    assert_eq!((again.server, again.header.drive, again.header.epoch), (second.server, second.drive, Epoch(4)));
    assert_eq!(initiator.handle_table(table(1, 8)), Err(Error::OtherTable(SetId(1))));
}

#[test]
fn what_a_server_calls_wrong_is_not_sent_again() {
    let mut initiator = initiator(Limits::default());
    start(&mut initiator, 1, read(0, K));
    let sent = only(&mut initiator);
    initiator.handle_answer(at(0), sent.id, answered(AnswerKind::Wrong));
    assert_eq!(completions(&mut initiator), [(1, Err(Error::Rejected))]);
    assert_eq!(initiator.requests(), 0);
}

#[test]
fn samples_are_of_every_group_that_has_extents() {
    let mut initiator = initiator(Limits::default());
    let samples: Vec<(GroupId, u64)> = initiator.group_samples();
    let named: Vec<GroupId> = samples.iter().map(|(group, _)| *group).collect();
    let mut groups = |offsets: Vec<u64>| {
        offsets.iter().for_each(|offset| start(&mut initiator, *offset, read(*offset, 1)));
        let mut groups: Vec<GroupId> = subrequests(&mut initiator).iter().map(|sent| sent.header.group).collect();
        groups.sort_unstable();
        groups
    };
    let sampled = groups(samples.into_iter().map(|(_, offset)| offset).collect());
    assert_eq!(sampled, named);
    let mut all = groups((0..EXTENTS).map(|extent| extent * EXTENT).collect());
    all.dedup();
    assert!(sampled == all && all.len() > 1, "{sampled:?} of {all:?}");
}

#[test]
fn presence_is_told_by_bits_and_cut_at_the_ends() {
    let mut initiator = initiator(Limits::default());
    start(&mut initiator, 1, Op::Presence { offset: EXTENT - 2 * K - 10, len: 3 * K });
    let sent = subrequests(&mut initiator);
    let ranges: Vec<_> = sent.iter().map(|sent| (sent.header.verb, sent.header.range.len)).collect();
    assert_eq!(ranges, [(Verb::Presence, 3 * 4_096), (Verb::Presence, 4_096)]);
    initiator.handle_answer(at(0), sent[1].id, answered(AnswerKind::Zeroes));
    let bits = Answer::Answered(AnswerKind::Done, Bytes::from_static(&[0b011]));
    initiator.handle_answer(at(0), sent[0].id, bits);
    let told = initiator.poll_completion().unwrap().result;
    assert_eq!(told, Ok(vec![Piece::Stored(10 + K), Piece::Zeroes(2 * K - 10)]));
    // Bits of another length are no answer.
    start(&mut initiator, 2, Op::Presence { offset: 0, len: EXTENT });
    let sent = only(&mut initiator);
    assert!(!sent.header.verb.changes());
    let short = Answer::Answered(AnswerKind::Done, Bytes::from_static(&[0xff]));
    initiator.handle_answer(at(0), sent.id, short);
    assert_eq!(completions(&mut initiator), [(2, Err(Error::BadAnswer))]);
}
