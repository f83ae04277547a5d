//! What was used comes back.

use core::time::Duration;

use ashlar_grid::CallOptions;
use ashlar_grid::handler::Packed;
use ashlar_grid::seam::BoxFuture;

use crate::methods::{Echo, PATTERN, Pattern, Sink, message};
use crate::rig::{Rig, gather, id, ms, secs, shaken};

/// A stream that is let go at stage `stage` of its life.
async fn let_go(rig_grid: ashlar_grid::Grid<ashlar_sim::SimRuntime>, control: ashlar_sim::Control, stage: u64) {
    let kinds = [
        Pattern::Down(50, 3_000),
        Pattern::Up(200),
        Pattern::Flood(2_000),
        Pattern::Hold,
        Pattern::Refuse,
        Pattern::Down(3, 40_000),
    ];
    let pattern = kinds[stage as usize % kinds.len()];
    let deadline = if stage % 7 == 6 { ms(20) } else { secs(60) };
    let initial = pattern.encode();
    let opened = rig_grid.open_stream(id(1), PATTERN, &initial, CallOptions::within(deadline)).await;
    let mut stream = opened.expect("connected");
    if let Pattern::Up(len) = pattern {
        for number in 0..stage % 5 {
            stream.sender.send(&message(number, len as usize)).await.expect("there is room");
        }
        // Far more than the window, so that it waits; or an end before the stream is let go.
        if stage.is_multiple_of(3) {
            stream.sender.finish().await.expect("nothing has failed");
        } else if stage % 3 == 1 {
            stream.sender.send(&vec![1; 200_000]).await.expect("one message may always begin");
        }
    }
    control.sleep(Duration::from_micros(stage * 97 % 30_000)).await;
    if stage.is_multiple_of(2) {
        let _ = stream.receiver.next_ready();
        for _ in 0..stage % 4 {
            let mut receive = Box::pin(stream.receiver.receive());
            let mut patience = control.sleep(ms(1));
            core::future::poll_fn(|cx| match receive.as_mut().poll(cx) {
                core::task::Poll::Ready(_) => core::task::Poll::Ready(()),
                core::task::Poll::Pending => patience.as_mut().poll(cx),
            })
            .await;
        }
    }
    // One half after the other, or both at once.
    if stage.is_multiple_of(5) {
        drop(stream.sender);
        control.sleep(ms(1)).await;
        drop(stream.receiver);
    }
}

#[test]
fn cancelled_streams_leak_nothing() {
    for seed in 0..4 {
        let mut rig = Rig::meshed(2, shaken(seed), |_, _| {});
        rig.pass(secs(1));
        let before = [0, 1].map(|at| (rig.nodes[at].grid.tasks(), rig.world.tasks_of(rig.nodes[at].no)));
        let (control, grid) = (rig.control(), rig.nodes[0].grid.clone());
        let streams = (0..300).map(|stage| -> BoxFuture<()> { Box::pin(let_go(grid.clone(), control.clone(), stage)) });
        rig.run(secs(20), gather(&control, streams.collect()));
        rig.pass(secs(1));
        for (at, before) in before.into_iter().enumerate() {
            let status = rig.nodes[at].status(1 - at);
            assert_eq!((status.streams, status.bytes_queued), (0, 0), "seed {seed}, server {at}");
            let now = (rig.nodes[at].grid.tasks(), rig.world.tasks_of(rig.nodes[at].no));
            assert_eq!(now, before, "seed {seed}: tasks of server {at}");
        }
        let done = rig.nodes[1].tally.done();
        assert_eq!((done.started, done.running), (300, 0), "handlers");
        assert!(rig.nodes.iter().all(|node| node.losses().is_empty()));
        assert_eq!(rig.nodes[1].status(0).counters.misfit + rig.nodes[0].status(1).counters.misfit, 0);
    }
}

/// That nothing of a burst stays in the books. The bytes are in the grid's test of this name, and measured on the real program.
#[test]
fn idle_peer_memory() {
    let mut rig = Rig::meshed(2, shaken(1), |_, _| {});
    rig.pass(secs(1));
    let before = (rig.world.counts().timers, rig.world.tasks_of(rig.nodes[0].no), rig.world.tasks_of(rig.nodes[1].no));
    let (control, grid) = (rig.control(), rig.nodes[0].grid.clone());
    let call = |number: u64| -> BoxFuture<bool> {
        let grid = grid.clone();
        Box::pin(async move {
            let request = message(number, 512);
            if number.is_multiple_of(2) {
                return grid.call::<Sink>(id(1), &request, CallOptions::default()).await == Ok(Packed(512));
            }
            grid.call::<Echo>(id(1), &request, CallOptions::default()).await == Ok(request)
        })
    };
    let answered = rig.run(secs(5), gather(&control, (0..1_000).map(call).collect()));
    assert!(answered.iter().all(|good| *good));
    // Longer than a connection keeps its buffers, shorter than the deadline of a call.
    rig.pass(secs(10));
    for at in 0..2 {
        let status = rig.nodes[at].status(1 - at);
        let held = (status.calls_in_flight, status.calls_handled, status.streams, status.bytes_queued);
        assert_eq!(held, (0, 0, 0, 0), "server {at}");
    }
    let after = (rig.world.counts().timers, rig.world.tasks_of(rig.nodes[0].no), rig.world.tasks_of(rig.nodes[1].no));
    assert_eq!(after, before, "timers and tasks");
    // An idle connection says something about once a second, and no more.
    let (quiet, events) = (rig.nodes[0].status(1).counters.messages_in, rig.world.events());
    rig.pass(secs(100));
    let said = rig.nodes[0].status(1).counters.messages_in - quiet;
    assert!((50..=240).contains(&said), "{said} messages in 100 s");
    assert!(rig.world.events() - events < 10_000, "an idle connection sleeps");
}
