//! What leaves when, what waits, and that the two add up.

use super::*;
use crate::frame::{Decoder, Piece};
use crate::message::{Assembler, Message, MessageError};

const CHUNK: usize = 1_000;

fn outbox() -> Outbox {
    Outbox::new(Side::Acceptor, CHUNK, None)
}

const fn id(slot: u32) -> MuxId {
    MuxId { slot, generation: 1 }
}

const fn header(op: Op, slot: u32) -> Header {
    Header::new(op, id(slot), 0)
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from(at % 251).expect("less than 251")).collect()
}

/// A message that has left: its header, and how long its payload is.
type Left = (Header, usize);

/// The next batch: how many frames, which messages, and whose large payloads end in it.
fn take(outbox: &mut Outbox) -> (usize, Vec<Left>, Vec<(MuxId, bool)>) {
    let (mut batch, mut ended) = (Batch::default(), Vec::new());
    let any = outbox.take_batch(&mut batch, |id, responder| ended.push((id, responder)));
    assert_eq!(any, !batch.is_empty());
    let frames = batch.slices().count();
    let mut bytes: Vec<u8> = batch.slices().flatten().copied().collect();
    let (mut decoder, mut assembler) = (Decoder::new(Side::Dialer), Assembler::new(FRAME_PAYLOAD_MAX, None));
    let (mut input, mut left) = (bytes.as_mut_slice(), Vec::new());
    while let Some(Piece::Payload { bytes, .. }) = decoder.next_piece(&mut input).expect("frames") {
        let each = |message: Option<Message<'_>>| {
            let message = message.expect("a known operation");
            left.push((message.header, message.payload.len()));
            Ok::<(), MessageError>(())
        };
        assembler.handle_bytes(bytes, each).expect("messages");
    }
    (frames, left, ended)
}

fn lens(left: &[Left]) -> Vec<(Op, u32, usize)> {
    left.iter().map(|(header, len)| (header.op, header.id.slot, *len)).collect()
}

#[test]
fn control_leaves_first_then_small_ones_in_order_then_parts_of_large_ones() {
    let mut outbox = outbox();
    outbox.push_large(header(Op::Call, 1), Arc::new(vec![0; 2 * CHUNK + 1]), Class::Foreground);
    outbox.push(&header(Op::Call, 2), &[0; CHUNK]);
    outbox.push(&header(Op::Call, 3), &[]);
    outbox.push_control(&header(Op::Ping, 0), &[]);
    assert!(outbox.push_datagram(&header(Op::Datagram, 0), &[0; 7]));
    let (frames, left, ended) = take(&mut outbox);
    let expected = [
        (Op::Ping, 0, 0),
        (Op::Datagram, 0, 7),
        (Op::Call, 2, CHUNK),
        (Op::Call, 3, 0),
        (Op::Call, 1, CHUNK),
        (Op::Chunk, 1, CHUNK),
        (Op::Chunk, 1, 1),
    ];
    assert_eq!((lens(&left).as_slice(), frames), (&expected[..], 5), "a frame for each part of a large one");
    let flags: Vec<_> = left[4..].iter().map(|(header, _)| (header.flags, header.sequence)).collect();
    assert_eq!(
        flags,
        [(Flags::MORE, 2 * CHUNK as u64 + 1), (Flags::MORE, 0), (Flags(0), 0)],
        "the first says how much"
    );
    assert_eq!((ended, outbox.queued()), (vec![(id(1), false)], 0));
    assert_eq!(take(&mut outbox), (0, Vec::new(), Vec::new()));
}

#[test]
fn large_payloads_are_cut_at_the_chunk() {
    // A message of a stream keeps its number; everything else announces its length, where it is not all.
    for (op, responder) in [(Op::Data, false), (Op::Reply, true), (Op::Call, false)] {
        for (len, parts) in
            [(1, vec![1]), (CHUNK, vec![CHUNK]), (CHUNK + 1, vec![CHUNK, 1]), (2 * CHUNK, vec![CHUNK; 2])]
        {
            let mut outbox = outbox();
            let header = Header { sequence: 77, ..header(op, 1) }.from_responder(responder);
            outbox.push_large(header, Arc::new(vec![0; len]), Class::Foreground);
            let (_, left, ended) = take(&mut outbox);
            assert_eq!(left.iter().map(|(_, len)| *len).collect::<Vec<_>>(), parts, "{op:?} {len}");
            let sequence = if op == Op::Data || parts.len() == 1 { 77 } else { len as u64 };
            assert_eq!((left[0].0.op, left[0].0.sequence), (op, sequence), "{op:?} {len}");
            for (at, (header, _)) in left.iter().enumerate() {
                assert_eq!(header.flags.contains(Flags::MORE), at + 1 < parts.len(), "{op:?} {len}");
                assert_eq!(header.flags.contains(Flags::RESPONDER), responder, "{op:?} {len}");
            }
            assert_eq!((ended, outbox.queued()), (vec![(id(1), responder)], 0));
        }
    }
}

#[test]
fn a_batch_takes_so_much_of_small_and_so_much_of_large_ones() {
    let mut outbox = outbox();
    for slot in 0..400 {
        outbox.push(&header(Op::Call, slot), &[0; CHUNK]);
    }
    outbox.push_large(header(Op::Call, 1_000), Arc::new(vec![0; 200 * CHUNK]), Class::Foreground);
    outbox.push_control(&header(Op::Ping, 0), &[]);
    let mut smalls = Vec::new();
    let before = outbox.queued();
    let (_, left, _) = take(&mut outbox);
    smalls.push(left.iter().filter(|(header, _)| header.op == Op::Call).count());
    let bytes = before - outbox.queued();
    assert!((BATCH_MAX..BATCH_MAX + FRAME_TARGET + 2 * CHUNK).contains(&bytes), "{bytes}");
    assert!(left.iter().all(|(header, _)| header.id.slot < 1_000), "the large one came later");
    let (_, left, _) = take(&mut outbox);
    smalls.push(left.iter().filter(|(header, _)| header.id.slot < 1_000).count());
    assert_eq!(smalls.iter().sum::<usize>(), 400);
    let mut large: usize = left.iter().filter(|(header, _)| header.id.slot == 1_000).map(|(_, len)| len).sum();
    assert_eq!(large, 65 * CHUNK, "with their headers, 65 parts are the first beyond 64 KiB");
    while outbox.queued() > 0 {
        let (_, left, _) = take(&mut outbox);
        let len = left.iter().map(|(_, len)| len).sum::<usize>();
        assert!(len <= 65 * CHUNK && len > 0);
        large += len;
    }
    assert_eq!(large, 200 * CHUNK);
}

#[test]
fn frames_of_small_messages_are_closed_when_they_are_full_enough() {
    let mut outbox = Outbox::new(Side::Acceptor, 60_000, None);
    for (lens, frames) in [
        (vec![FRAME_TARGET / 2; 2], 1),
        (vec![FRAME_TARGET / 2; 3], 2),
        (vec![FRAME_TARGET, 1], 2),
        (vec![FRAME_TARGET - 100, 1, 1], 1),
        // The second would not fit into a frame behind the first.
        (vec![10_000, 60_000], 2),
        (vec![4_000, 60_000], 1),
    ] {
        for (slot, len) in (0..).zip(&lens) {
            outbox.push(&header(Op::Call, slot), &vec![0; *len]);
        }
        assert_eq!(outbox.queued_small(), frames * FRAME_TARGET, "{lens:?}");
        let (seen, left, _) = take(&mut outbox);
        assert_eq!((seen, left.into_iter().map(|(_, len)| len).collect::<Vec<_>>()), (frames, lens));
        assert_eq!((outbox.queued(), outbox.queued_small()), (0, 0));
    }
}

#[test]
fn a_burst_of_control_goes_on_among_the_small_ones_and_of_datagrams_it_does_not() {
    let mut outbox = outbox();
    outbox.push(&header(Op::Call, 1), &[0; 10]);
    for _ in 0..40 {
        outbox.push_control(&header(Op::Challenge, 0), &[0; CHUNK]);
    }
    let (_, left, _) = take(&mut outbox);
    let at = left.iter().position(|(header, _)| header.op == Op::Call).expect("it leaves too");
    assert!((32..=33).contains(&at) && left.len() == 41, "{at} of {}", left.len());
    // Datagrams fill three quarters of a frame, so that a ping has its place.
    let one = CHUNK + HEADER_MAX + CHECKSUM_LEN;
    let sent = (0..40).take_while(|_| outbox.push_datagram(&header(Op::Datagram, 0), &[0; CHUNK])).count();
    let waiting = outbox.queued();
    assert!(waiting <= DATAGRAM_BYTES_MAX && waiting + one > DATAGRAM_BYTES_MAX, "{waiting}");
    let room = DATAGRAM_BYTES_MAX - waiting - HEADER_MAX - CHECKSUM_LEN;
    assert!(!outbox.push_datagram(&header(Op::Datagram, 0), &vec![0; room + 1]));
    assert_eq!(outbox.queued(), waiting, "nothing has happened");
    assert!(outbox.push_datagram(&header(Op::Datagram, 0), &vec![0; room]));
    outbox.push_control(&header(Op::Ping, 0), &[]);
    let (frames, left, _) = take(&mut outbox);
    assert_eq!((frames, left.len()), (1, sent + 2));
}

#[test]
fn a_position_tells_whether_a_message_has_left() {
    let mut outbox = outbox();
    let positions: Vec<_> = (0..400).map(|slot| outbox.push(&header(Op::Call, slot), &[0; CHUNK])).collect();
    assert!(positions.is_sorted() && positions.iter().all(|position| !outbox.has_left(*position)));
    let (_, left, _) = take(&mut outbox);
    for (slot, position) in positions.iter().enumerate() {
        assert_eq!(outbox.has_left(*position), slot < left.len(), "{slot} of {}", left.len());
    }
    assert!(!outbox.retract(positions[0]) && !outbox.retract(Position::LARGE));
    assert!(outbox.retract(positions[390]));
    let (_, left, _) = take(&mut outbox);
    let cancelled: Vec<_> = left.iter().filter(|(header, _)| header.op == Op::Cancel).map(|left| left.0.id).collect();
    assert_eq!(cancelled, [id(390)]);
}

#[test]
fn what_is_left_of_a_large_payload_can_be_dropped() {
    let mut outbox = outbox();
    let payload = Arc::new(vec![0; 100 * CHUNK]);
    let answer = header(Op::Reply, 1).from_responder(true);
    outbox.push_large(header(Op::Call, 1), payload.clone(), Class::Foreground);
    assert_eq!((outbox.queued(), outbox.large_state(id(1), false)), (100 * CHUNK, Some(false)));
    take(&mut outbox);
    assert_eq!((outbox.queued(), outbox.large_state(id(1), false)), (35 * CHUNK, Some(true)));
    outbox.push_large(answer, payload.clone(), Class::Background);
    outbox.push_large(header(Op::Call, 2), payload, Class::Foreground);
    for (of, responder) in [(id(3), false), (id(2), true), (MuxId { generation: 2, ..id(1) }, false)] {
        assert_eq!(outbox.large_state(of, responder), None);
        assert!(!outbox.drop_large(of, responder));
    }
    assert_eq!(outbox.queued(), 235 * CHUNK);
    assert!(outbox.drop_large(id(1), false), "a part had left");
    assert_eq!((outbox.queued(), outbox.large_state(id(1), false)), (200 * CHUNK, None));
    assert!(!outbox.drop_large(id(1), true), "nothing had");
    assert_eq!((outbox.queued(), outbox.large_state(id(2), false)), (100 * CHUNK, Some(false)));
    outbox.push_control(&header(Op::Ping, 0), &[]);
    outbox.push(&header(Op::Call, 3), &[0; 10]);
    outbox.clear();
    assert_eq!((outbox.queued(), take(&mut outbox)), (0, (0, Vec::new(), Vec::new())));
}

#[test]
fn the_background_has_one_turn_in_four_and_all_where_nobody_else_waits() {
    let mut outbox = outbox();
    let payload = Arc::new(vec![0; 60 * CHUNK]);
    for (slot, class) in [(1, Class::Background), (2, Class::Foreground), (3, Class::Foreground)] {
        outbox.push_large(header(Op::Call, slot), payload.clone(), class);
    }
    let (_, left, _) = take(&mut outbox);
    let turns: Vec<_> = left.iter().map(|(header, _)| header.id.slot).collect();
    assert_eq!(turns[..12], [2, 3, 2, 1, 3, 2, 3, 1, 2, 3, 2, 1]);
    assert!(!outbox.drop_large(id(9), false) && outbox.drop_large(id(2), false) && outbox.drop_large(id(3), false));
    let (_, left, ended) = take(&mut outbox);
    assert!(left.iter().all(|(header, _)| header.id.slot == 1) && left.len() == 60 - turns.len().div_ceil(4) + 1);
    assert_eq!(ended, [(id(1), false)]);
}

#[test]
fn a_batch_is_written_in_any_pieces() {
    for piece in [1, 7, 500, 1_500, usize::MAX] {
        let mut outbox = outbox();
        outbox.push_large(header(Op::Call, 1), Arc::new(bytes(2 * CHUNK + 500)), Class::Foreground);
        let (mut batch, mut spare) = (Batch::default(), Vec::new());
        outbox.take_batch(&mut batch, |_, _| {});
        let (frames, all) = (batch.slices().count(), batch.slices().flatten().copied().collect::<Vec<u8>>());
        let mut seen = Vec::new();
        while !batch.is_empty() {
            let rest: Vec<u8> = batch.slices().flatten().copied().collect();
            assert_eq!(rest, all[seen.len()..], "what is written is not given again");
            let piece = piece.min(rest.len());
            seen.extend_from_slice(&rest[..piece]);
            batch.advance(piece, &mut spare);
        }
        assert_eq!((seen, spare.len()), (all, frames), "pieces of {piece}");
    }
}

#[test]
fn so_many_buffers_are_kept_and_none_that_grew_large() {
    let mut outbox = outbox();
    let large = |more: usize| Vec::with_capacity(SPARE_CAPACITY_MAX + more);
    outbox.reuse(&mut vec![large(0), large(1)]);
    assert_eq!(outbox.spare.len(), 1);
    let mut buffers: Vec<Vec<u8>> = (0..20).map(|_| Vec::with_capacity(100)).collect();
    outbox.reuse(&mut buffers);
    assert_eq!((outbox.spare.len(), buffers.len()), (SPARE_MAX, 0));
    outbox.push(&header(Op::Call, 1), &[]);
    outbox.push_control(&header(Op::Ping, 0), &[]);
    outbox.push_large(header(Op::Call, 2), Arc::new(vec![0; 10]), Class::Foreground);
    assert_eq!(outbox.spare.len(), SPARE_MAX - 2, "they are used again");
    take(&mut outbox);
    assert!(outbox.held_bytes() > 0);
    outbox.release_memory();
    assert_eq!(outbox.held_bytes(), 0);
}
