//! Peers that are wrong, silent or malicious hurt nobody but themselves.

use core::time::Duration;

use ashlar_grid::CallOptions;
use ashlar_grid::config::Limits;
use ashlar_grid::error::{CallError, Outcome, Reason};
use ashlar_grid::frame::{Decoder, FRAME_ACCEPT_MAX, FrameError, Side};
use ashlar_grid::handler::{HandlerId, Packed};
use ashlar_grid::hello::{HELLO_LEN_MAX, Secrets};
use ashlar_grid::message::{self, Assembler, Flags, Header, MessageError, MuxId, Op};
use ashlar_grid::seam::{BoxFuture, Lane};
use ashlar_sim::WorldOptions;
use ashlar_sim::net::LinkOptions;
use ashlar_wire::secret::Secret;

use crate::methods::{COUNTED, ECHO, Echo, PATTERN, Pattern, SINK, STATUS, message as stream_message};
use crate::rig::{CLUSTER, Rig, SECRET, addr, gather, id, lock, ms, secs, shaken};
use crate::rogue::{ROGUE, Rogue};

const GIGANTIC: u64 = 6_900_000_000;

fn call(slot: u32, handler: HandlerId) -> Header {
    Header { handler: u32::from(handler.number()), ..Header::new(Op::Call, MuxId { slot, generation: 1 }, 0) }
}

/// The header of a masked binary frame that announces that many bytes.
fn frame_head(announced: u64) -> Vec<u8> {
    let mut head = vec![0x82, 0x80 | 127];
    head.extend(announced.to_be_bytes());
    head.extend([0; 4]);
    head
}

/// A message up to its payload, which is announced with a length of four bytes.
fn message_head(announced: u32) -> Vec<u8> {
    let mut head = vec![0x97, 1, 1, 0, 1, 1, 0, 0xc6];
    head.extend(announced.to_be_bytes());
    head
}

/// The two decoders, byte by byte: they refuse before the first byte of what is announced.
fn decoders_refuse_at_the_head() {
    let mut decoder = Decoder::new(Side::Acceptor);
    let mut head = frame_head(GIGANTIC);
    let refused = head.chunks_mut(1).find_map(|mut byte| decoder.next_piece(&mut byte).err());
    assert_eq!(refused, Some(FrameError::TooLong { announced: GIGANTIC }));
    let chunk_max = Limits::for_lane(Lane::Bulk).chunk_max;
    let mut assembler = Assembler::new(chunk_max, None);
    let refused = assembler.handle_bytes::<MessageError>(&message_head(u32::MAX), |_| Ok(()));
    assert_eq!(refused, Err(MessageError::TooLong { announced: u32::MAX as usize }));
    // What is within the limit is kept only as far as it came.
    let mut assembler = Assembler::new(chunk_max, None);
    let head = message_head(u32::try_from(chunk_max).expect("some kilobytes"));
    assembler.handle_bytes::<MessageError>(&head, |_| Ok(())).expect("a good beginning");
    assert_eq!(assembler.partial_len(), head.len());
}

#[test]
fn announced_size_is_not_trusted() {
    decoders_refuse_at_the_head();

    let mut rig = Rig::two();
    let (runtime, grid) = (rig.nodes[0].runtime.clone(), rig.nodes[0].grid.clone());
    let (victim, control) = (rig.nodes[1].grid.clone(), rig.control());
    let told = rig.run(secs(30), async move {
        let mut told = Vec::new();
        // Before it has proved anything; then as a member of the cluster, each time in a later life.
        for announced in [u64::try_from(FRAME_ACCEPT_MAX).expect("small") + 1, GIGANTIC, u64::MAX] {
            let mut rogue = Rogue::dial(&runtime, &addr(1), 1).await;
            rogue.send_raw(&frame_head(announced)).await.expect("sent");
            rogue.until_closed().await;
        }
        // A hello within a frame's limit that is longer than any hello: refused as soon as it is, not when all has come.
        let mut rogue = Rogue::dial(&runtime, &addr(1), 1).await;
        rogue.send_raw(&frame_head(u64::try_from(FRAME_ACCEPT_MAX).expect("small"))).await.expect("sent");
        rogue.send_raw(&[0; HELLO_LEN_MAX + 1]).await.expect("sent");
        rogue.until_closed().await;
        let mut rogue = Rogue::enter(&runtime, &addr(1), 1).await;
        rogue.send_raw(&frame_head(GIGANTIC)).await.expect("sent");
        told.push(rogue.until_closed().await);
        let mut rogue = Rogue::enter(&runtime, &addr(1), 2).await;
        rogue.send_frame(&message_head(u32::MAX)).await.expect("sent");
        told.push(rogue.until_closed().await);
        // Totals of chunked payloads: a request, one that would fit alone and does not with others, and an answer.
        let mut rogue = Rogue::enter(&runtime, &addr(1), 3).await;
        let more = Flags(0).with(Flags::MORE);
        rogue.send(Header { flags: more, sequence: u64::MAX, ..call(1, SINK) }, &[1; 1_000]).await;
        let (answer, _) = rogue.next_of(Op::Reply).await.expect("answered");
        assert_eq!((answer.id.slot, answer.handler), (1, Outcome::TooLong as u32));
        for slot in 2..7 {
            rogue.send(Header { flags: more, sequence: 16 << 20, ..call(slot, SINK) }, &[1; 1_000]).await;
        }
        let (answer, _) = rogue.next_of(Op::Reply).await.expect("answered");
        assert_eq!((answer.id.slot, answer.handler), (6, Outcome::Overloaded as u32));
        let asking = gather(
            &control,
            vec![Box::pin(async move { victim.call::<Echo>(ROGUE, &Vec::new(), CallOptions::within(secs(5))).await })
                as BoxFuture<_>],
        );
        let (asked, _) = rogue.next_of(Op::Call).await.expect("asked");
        let reply = Header::new(Op::Reply, asked.id, u64::MAX).from_responder(true);
        rogue.send(Header { flags: reply.flags.with(Flags::MORE), ..reply }, &[1; 1_000]).await;
        assert_eq!(asking.await, vec![Err(CallError::Unknown(Reason::TooLong))]);
        // A stream's message announces nothing: it is refused when it has become too long.
        let stream = MuxId { slot: 1, generation: 1 | MuxId::STREAM };
        let open = Header { handler: u32::from(PATTERN.number()), ..Header::new(Op::Open, stream, 1 << 16) };
        rogue.send(open, &Pattern::Up(1).encode()).await;
        rogue.send(Header { flags: more, ..Header::new(Op::Data, stream, 1) }, &[1; 16 << 10]).await;
        for _ in 0..16 << 6 {
            rogue.send(Header { flags: more, ..Header::new(Op::Chunk, stream, 0) }, &[1; 16 << 10]).await;
        }
        let (reset, _) = rogue.next_of(Op::Reset).await.expect("answered");
        assert_eq!((reset.id, reset.handler), (stream, Outcome::BadStream as u32));
        // The connection has gone through all that, and so have the others.
        rogue.send(call(9, ECHO), b"still here").await;
        let (_, payload) = rogue.next_of(Op::Reply).await.expect("answered");
        assert_eq!(payload, b"still here");
        assert_eq!(grid.call::<Echo>(id(1), &vec![5], CallOptions::default()).await, Ok(vec![5]));
        told
    });
    assert!(told.iter().all(|text| text.starts_with("closed (1002)") && text.contains("announces")), "{told:?}");
    let counters = rig.nodes[1].grid.counters();
    assert_eq!((counters.rejected.malformed, counters.protocol_errors), (4, 2));
    assert!(rig.nodes[0].losses().is_empty(), "the neighbour noticed nothing");
}

#[test]
fn bad_frame_hurts_one_call() {
    let mut rig = Rig::two();
    let runtime = rig.nodes[0].runtime.clone();
    let node = rig.nodes[1].clone();
    rig.run(secs(30), async move {
        let mut rogue = Rogue::enter(&runtime, &addr(1), 1).await;
        // Something good runs all the while.
        let mut request = Vec::new();
        ashlar_grid::handler::Payload::encode(&Packed((1_u64, 200_u64)), &mut request);
        rogue.send(call(1, COUNTED), &request).await;
        // An operation of a later version.
        let mut unknown = Vec::new();
        message::encode(&mut unknown, &call(2, ECHO), b"x", None);
        let op_at = unknown.len() - 5;
        assert_eq!(unknown[op_at], Op::Call as u8, "the operation stands before flags and payload");
        unknown[op_at] = 99;
        rogue.send_frame(&unknown).await.expect("the connection lives");
        // For nothing: an answer, a part of one, a part of a request, a stream's message, its end, a cancel.
        let nowhere = MuxId { slot: 77, generation: 77 };
        for (op, responder) in [
            (Op::Reply, true),
            (Op::Chunk, true),
            (Op::Chunk, false),
            (Op::Data, false),
            (Op::Data, true),
            (Op::Credit, false),
            (Op::End, false),
            (Op::Reset, true),
            (Op::Cancel, false),
            (Op::Accept, true),
        ] {
            rogue.send(Header::new(op, nowhere, 5).from_responder(responder), b"y").await;
        }
        // A request that its handler cannot read, and one for nobody.
        rogue.send(call(3, COUNTED), b"not two numbers").await;
        let (answer, _) = rogue.next_of(Op::Reply).await.expect("answered");
        assert_eq!((answer.id.slot, answer.handler), (3, Outcome::Malformed as u32));
        rogue.send(call(4, STATUS), b"").await;
        let (answer, _) = rogue.next_of(Op::Reply).await.expect("answered");
        assert_eq!((answer.id.slot, answer.handler), (4, Outcome::UnknownHandler as u32));
        // A chunked request that is longer than announced.
        let more = Flags(0).with(Flags::MORE);
        rogue.send(Header { flags: more, sequence: 10, ..call(5, SINK) }, &[1; 6]).await;
        rogue.send(Header::new(Op::Chunk, MuxId { slot: 5, generation: 1 }, 0), &[1; 6]).await;
        let (answer, _) = rogue.next_of(Op::Reply).await.expect("answered");
        assert_eq!((answer.id.slot, answer.handler), (5, Outcome::Malformed as u32));
        // A stream whose second message comes first, and one beside it that is as it should be.
        for slot in [1, 2] {
            let stream = MuxId { slot, generation: 1 | MuxId::STREAM };
            let open = Header { handler: u32::from(PATTERN.number()), ..Header::new(Op::Open, stream, 1 << 16) };
            rogue.send(open, &Pattern::Up(1).encode()).await;
            rogue.next_of(Op::Accept).await.expect("accepted");
        }
        let bad = MuxId { slot: 1, generation: 1 | MuxId::STREAM };
        rogue.send(Header::new(Op::Data, bad, 2), &[31]).await;
        let (reset, _) = rogue.next_of(Op::Reset).await.expect("answered");
        assert_eq!((reset.id, reset.handler), (bad, Outcome::BadStream as u32));
        let good = MuxId { slot: 2, ..bad };
        rogue.send(Header::new(Op::Data, good, 1), &stream_message(0, 1)).await;
        let mut digest = ashlar_wire::checksum::Digest::default();
        digest.update(&stream_message(0, 1));
        rogue.send(Header::new(Op::End, good, 1), &digest.to_bytes()).await;
        let (_, told) = rogue.next_of(Op::Data).await.expect("the good stream goes on");
        assert_eq!(told, 1_u64.to_be_bytes());
        let (answer, _) = rogue.next_of(Op::Reply).await.expect("answered");
        assert_eq!((answer.id.slot, answer.handler), (1, Outcome::Ok as u32), "what ran all the while");
        let seen = node.grid.peers().into_iter().find(|peer| peer.id == Some(ROGUE)).expect("known").counters;
        assert_eq!((seen.unknown_ops, seen.misfit, seen.late), (1, 2, 8), "{seen:?}");
    });
    assert_eq!(rig.nodes[1].grid.counters().protocol_errors, 0);
}

#[test]
fn an_end_that_does_not_fit_is_no_end() {
    let mut rig = Rig::two();
    let runtime = rig.nodes[0].runtime.clone();
    rig.run(secs(10), async move {
        let mut rogue = Rogue::enter(&runtime, &addr(1), 1).await;
        let mut digest = ashlar_wire::checksum::Digest::default();
        digest.update(&stream_message(0, 1));
        let right = digest.to_bytes();
        // The right end, one message too many, another message, none of both; a chunk is missing.
        for (slot, (count, digest, more)) in
            (1..).zip([(1, right, false), (2, right, false), (1, [1; 8], false), (0, right, false), (0, [0; 8], true)])
        {
            let stream = MuxId { slot, generation: 1 | MuxId::STREAM };
            let open = Header { handler: u32::from(PATTERN.number()), ..Header::new(Op::Open, stream, 1 << 16) };
            rogue.send(open, &Pattern::Up(1).encode()).await;
            let flags = if more { Flags::MORE } else { Flags(0) };
            rogue.send(Header { flags, ..Header::new(Op::Data, stream, 1) }, &stream_message(0, 1)).await;
            rogue.send(Header::new(Op::End, stream, count), &digest).await;
            let expected = if slot == 1 { Op::End } else { Op::Reset };
            let (end, _) = rogue.next_of(expected).await.expect("answered");
            assert_eq!((end.id, end.handler), (stream, if slot == 1 { 0 } else { Outcome::Refused as u32 }));
        }
    });
    assert_eq!(rig.nodes[1].tally.done().running, 0);
}

#[test]
fn corrupted_bytes_end_the_connection_and_no_call_is_answered_wrongly() {
    let mut protocol_errors = 0;
    for seed in 0..20 {
        let mut rig = Rig::meshed(2, shaken(seed), |_, config| config.always_checksum = true);
        let (a, b) = (rig.nodes[0].no, rig.nodes[1].no);
        let corrupt = LinkOptions { corrupt_ppm: 20_000, ..LinkOptions::default() };
        rig.world.set_link(a, b, corrupt);
        rig.world.set_link(b, a, corrupt);
        let (grid, control) = (rig.nodes[0].grid.clone(), rig.control());
        rig.run(secs(300), async move {
            let caller = |caller: u8| -> BoxFuture<u32> {
                let grid = grid.clone();
                Box::pin(async move {
                    let mut good = 0;
                    for number in 0..100 {
                        let request = vec![caller.wrapping_mul(31).wrapping_add(number); 400];
                        match grid.call::<Echo>(id(1), &request, CallOptions::within(secs(2))).await {
                            Ok(answer) => {
                                assert_eq!(answer, request);
                                good += 1;
                            }
                            Err(error) => assert!(error.reason().is_some(), "{error:?}"),
                        }
                    }
                    good
                })
            };
            let good: u32 = gather(&control, (0..8).map(caller).collect()).await.iter().sum();
            assert!(good > 600, "seed {seed}: {good} of 800 calls were answered");
        });
        protocol_errors += rig.nodes.iter().map(|node| node.grid.counters().protocol_errors).sum::<u64>();
    }
    assert!(protocol_errors > 100, "only {protocol_errors} connections were closed for what came on them");
}

/// It says hello and does not read what it is asked, and there is no room on the way for that.
fn a_dialer_that_does_not_read(step: Duration) {
    let narrow = WorldOptions { send_bytes_max: 64, receive_bytes_max: 64, ..WorldOptions::default() };
    let mut rig = Rig::new(2, narrow, |_, _| {});
    let (runtime, control) = (rig.nodes[0].runtime.clone(), rig.control());
    rig.run(secs(20), async move {
        let mut rogue = Rogue::dial(&runtime, &addr(1), 1).await;
        let (_, hello) = ashlar_grid::hello::Dialer::new(rogue.hello_config(CLUSTER, SECRET), [9; 32]);
        rogue.send_frame(&hello).await.expect("sent");
        control.sleep(step + secs(1)).await;
    });
    assert_eq!(rig.nodes[1].grid.counters().rejected.timeout, 1);
}

/// Because the server is stopped with the upgrade in its backlog.
fn a_dialer_that_nobody_answers() {
    let mut rig = Rig::new(2, WorldOptions::default(), |_, _| {});
    rig.world.pause(rig.nodes[1].no);
    rig.nodes[0].grid.add_peer(&addr(1));
    rig.pass(secs(30));
    assert!(rig.nodes[0].grid.counters().dials_failed >= 4);
    rig.world.resume(rig.nodes[1].no);
    rig.until(secs(10), "a server that goes on is found", |rig| rig.nodes[0].is_connected(1));
}

#[test]
fn handshake_has_deadlines() {
    const STEP: Duration = Duration::from_secs(5);
    // A dialer is let down after the upgrade, and after the challenge, and dials again.
    for challenges in [false, true] {
        let mut rig = Rig::new(1, WorldOptions::default(), |_, _| {});
        let rogue = rig.world.add_server("rogue");
        let runtime = rig.world.start(rogue);
        let (accepting, control) = (runtime.clone(), rig.control());
        let listener = runtime.listen("rogue:1").expect("free");
        let held = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let holding = held.clone();
        ashlar_grid::seam::Threads::spawn(
            &accepting,
            Box::pin(async move {
                loop {
                    let (wire, _lane) = listener.accept().await;
                    let mut rogue = Rogue::new(wire, Side::Acceptor, 1);
                    let begun_ns = control.now_ns();
                    if challenges {
                        rogue.only_challenge().await.expect("it is what was expected");
                    }
                    // Reads, says nothing, and never lets go.
                    rogue.until_closed().await;
                    lock(&holding).push((rogue, Duration::from_nanos(control.now_ns() - begun_ns)));
                }
            }),
        );
        rig.nodes[0].grid.add_peer("rogue:1");
        rig.pass(secs(30));
        let held = lock(&held);
        assert!(held.len() >= 4, "dialed {} times in 30 s", held.len());
        assert!(held.iter().all(|(_, after)| *after < STEP + ms(10)), "each try ends in time");
        let counters = rig.nodes[0].grid.counters();
        assert!(counters.dials_failed >= 4 && counters.connects == 0, "{counters:?}");
    }
    a_dialer_that_nobody_answers();
    // An acceptor is let down at each step, among them by one that sends a byte now and then.
    let mut rig = Rig::two();
    let (runtime, control) = (rig.nodes[0].runtime.clone(), rig.control());
    let after = rig.run(secs(60), async move {
        let mut after = Vec::new();
        for step in 0..3 {
            let mut rogue = Rogue::dial(&runtime, &addr(1), 1).await;
            let begun_ns = control.now_ns();
            if step == 1 {
                let (_, hello) = ashlar_grid::hello::Dialer::new(rogue.hello_config(CLUSTER, SECRET), [9; 32]);
                rogue.send_frame(&hello).await.expect("sent");
                rogue.next_frame().await.expect("challenged");
            }
            if step == 2 {
                let dripping = [0x82, 0xff, 0, 0, 0, 0, 0, 0, 4, 0];
                for byte in dripping {
                    let _ = rogue.send_raw(&[byte]).await;
                    control.sleep(ms(600)).await;
                }
            }
            rogue.until_closed().await;
            after.push(Duration::from_nanos(control.now_ns() - begun_ns));
        }
        after
    });
    assert!(after.iter().all(|after| *after >= STEP && *after < STEP + secs(2)), "{after:?}");
    assert_eq!(rig.nodes[1].grid.counters().rejected.timeout, 3);
    assert!(rig.nodes[1].is_connected(0));
    a_dialer_that_does_not_read(STEP);
}

/// Those that dial and say nothing take no place from others for longer than a step.
#[test]
fn handshakes_are_limited() {
    const MAX: usize = 10;
    let mut rig = Rig::new(1, WorldOptions::default(), |_, config| config.handshakes_max = MAX);
    let rogue = rig.world.add_server("rogue");
    let (runtime, control) = (rig.world.start(rogue), rig.control());
    let refused_after = rig.run(secs(60), async move {
        let mut held = Vec::new();
        for life in 0..MAX as u64 {
            held.push(Rogue::dial(&runtime, &addr(0), life).await);
        }
        let (mut next, began_ns) = (Rogue::dial(&runtime, &addr(0), 100).await, control.now_ns());
        next.until_closed().await;
        let refused_after = Duration::from_nanos(control.now_ns() - began_ns);
        control.sleep(secs(6)).await;
        drop(Rogue::enter(&runtime, &addr(0), 101).await);
        refused_after
    });
    assert!(refused_after < ms(10), "{refused_after:?}");
    let rejected = rig.nodes[0].grid.counters().rejected;
    assert_eq!((rejected.other, rejected.timeout), (1, MAX as u64), "{rejected:?}");
}

#[test]
fn rejected_dials_leak_nothing() {
    let mut rig = Rig::two();
    let rogue = rig.world.add_server("rogue");
    let runtime = rig.world.start(rogue);
    rig.pass(secs(2));
    let before = (rig.world.counts(), rig.nodes[1].grid.tasks(), rig.world.tasks_of(rig.nodes[1].no));
    let (no, control) = (rig.nodes[1].no, rig.control());
    let (server, watched) = (rig.nodes[1].clone(), control.clone());
    rig.run(secs(600), async move {
        let mut kept = Vec::new();
        for number in 0..1_000_u64 {
            let mut rogue = Rogue::dial(&runtime, &addr(1), number).await;
            let (cluster, secret) = match number % 4 {
                0 => (CLUSTER, [8; 32]),
                1 => (ashlar_wire::id::ClusterId::from_bytes([9; 16]), SECRET),
                _ => (CLUSTER, SECRET),
            };
            match number % 4 {
                // It is no hello at all, or the rogue leaves in the middle of it.
                2 => rogue.send_frame(b"GET / HTTP/1.1").await.expect("sent"),
                3 => drop(core::mem::replace(&mut rogue, Rogue::dial(&runtime, &addr(1), number).await)),
                _ => drop(rogue.say_hello(cluster, secret).await.expect_err("refused")),
            }
            // The rogue never closes on its own, except those that left.
            if number % 4 == 3 { drop(rogue) } else { kept.push(rogue) }
        }
        control.sleep(secs(6)).await;
        let held = watched.connections().into_iter().filter(|conn| conn.hosts[1] == no && conn.whole).count();
        assert_eq!(held, usize::from(watched.connections()[0].hosts[1] == no), "the server let go of each");
        assert_eq!(server.grid.tasks(), before.1, "and of its task");
        drop(kept);
    });
    rig.pass(secs(1));
    assert_eq!((rig.world.counts().conns, rig.world.counts().dials), (before.0.conns, before.0.dials));
    assert_eq!((rig.nodes[1].grid.tasks(), rig.world.tasks_of(rig.nodes[1].no)), (before.1, before.2));
    let rejected = rig.nodes[1].grid.counters().rejected;
    let counted = (rejected.unauthenticated, rejected.wrong_cluster, rejected.malformed, rejected.other);
    assert_eq!(counted, (250, 250, 250, 500), "{rejected:?}");
    assert!(rig.nodes[1].is_connected(0) && rig.nodes[0].losses().is_empty());
    // Nor does the one that dials and is rejected, again and again, keep anything of its tries.
    let mut rig = Rig::new(2, WorldOptions::default(), |at, config| {
        config.secrets = Secrets::new(Secret::from_bytes([SECRET, [8; 32]][at]));
    });
    rig.nodes[0].grid.add_peer(&addr(1));
    rig.pass(secs(60));
    assert!(rig.nodes[0].grid.counters().dials_failed > 20);
    assert!(rig.world.counts().conns <= 1, "{:?}", rig.world.counts());
}
