//! Work that nobody waits for stops, and more than can be done is refused.

use ashlar_grid::error::{CallError, Outcome, Reason};
use ashlar_grid::handler::{Packed, Payload as _};
use ashlar_grid::message::{Header, MuxId, Op};
use ashlar_grid::seam::BoxFuture;
use ashlar_grid::{CallOptions, Grid};
use ashlar_sim::{Control, SimRuntime, WorldOptions};

use crate::methods::{COUNTED, Counted, ECHO, PATTERN, Pattern, Slow};
use crate::rig::{Rig, addr, gather, id, ms, secs, shaken};
use crate::rogue::Rogue;

type Answer = Result<Packed<u64>, CallError>;

/// A call that runs for `delay_ms`, given up by its caller after `patience_ms`.
fn impatient(rig: &Rig, number: u64, delay_ms: u64, patience_ms: u64) -> BoxFuture<Option<Answer>> {
    let (grid, control) = (rig.nodes[0].grid.clone(), rig.control());
    Box::pin(async move {
        let request = Packed((number, delay_ms));
        let call = grid.call::<Counted>(id(1), &request, CallOptions::within(secs(600)));
        let (mut call, mut patience) = (Box::pin(call), control.sleep(ms(patience_ms)));
        core::future::poll_fn(|cx| match call.as_mut().poll(cx) {
            core::task::Poll::Ready(answer) => core::task::Poll::Ready(Some(answer)),
            core::task::Poll::Pending => patience.as_mut().poll(cx).map(|()| None),
        })
        .await
    })
}

#[test]
fn abandoned_calls_stop() {
    const CALLERS: u64 = 2_000;
    let mut rig = Rig::meshed(2, shaken(1), |_, _| {});
    let control = rig.control();
    // The callers leave while their handlers run.
    let left = gather(&control, (0..CALLERS).map(|number| impatient(&rig, number, 60_000, 500)).collect());
    rig.pass(ms(400));
    assert_eq!(rig.nodes[1].tally.done().running, CALLERS);
    assert!(rig.run(secs(1), left).iter().all(Option::is_none));
    rig.pass(ms(10));
    let (running, finished) = (rig.nodes[1].tally.done().running, rig.nodes[1].tally.done().finished);
    assert_eq!((running, finished), (0, 0), "every handler's future is dropped");
    let status = rig.nodes[1].status(0);
    assert_eq!((status.counters.abandoned, status.calls_handled), (CALLERS, 0));
    assert_eq!(rig.nodes[0].status(1).calls_in_flight, 0);
    // Deadlines that pass while handlers run; the caller hears of it in time, and the handler's future is dropped.
    let grid = rig.nodes[0].grid.clone();
    let call = |number: u64| -> BoxFuture<Answer> {
        let grid = grid.clone();
        Box::pin(
            async move { grid.call::<Counted>(id(1), &Packed((number, 60_000)), CallOptions::within(ms(300))).await },
        )
    };
    let expired = gather(&control, (0..CALLERS).map(call).collect());
    let answers = rig.run(ms(310), expired);
    assert!(answers.iter().all(|answer| *answer == Err(CallError::Unknown(Reason::Deadline))));
    rig.pass(ms(10));
    assert_eq!((rig.nodes[1].tally.done().running, rig.nodes[1].tally.done().finished), (0, 0));
    assert_eq!(rig.nodes[1].status(0).counters.abandoned, 2 * CALLERS);
    // The deadline went with the request: no word of the caller has to come when it passes.
    let unheard = gather(&control, vec![call(0)]);
    rig.pass(ms(100));
    assert_eq!(rig.nodes[1].tally.done().running, 1);
    rig.partition(0, 1, true);
    rig.pass(ms(210));
    assert_eq!(rig.nodes[1].tally.done().running, 0);
    rig.partition(0, 1, false);
    assert_eq!(rig.run(secs(1), unheard), vec![Err(CallError::Unknown(Reason::Deadline))]);
}

/// What was given up before the server came to it never begins: a server that was frozen for a while finds requests and
/// cancels together. (A request that is read before its cancel has come cannot be known to be unwanted.)
#[test]
fn abandoned_calls_never_start() {
    const CALLERS: u64 = 500;
    let mut rig = Rig::two();
    let control = rig.control();
    rig.world.pause(rig.nodes[1].no);
    let early = gather(&control, (0..CALLERS).map(|number| impatient(&rig, number, 10, 300)).collect());
    assert!(rig.run(secs(1), early).iter().all(Option::is_none));
    rig.pass(ms(500));
    rig.world.resume(rig.nodes[1].no);
    rig.pass(secs(1));
    assert_eq!(rig.nodes[1].tally.done().started, 0, "of {CALLERS} calls that nobody waits for");
    assert_eq!(rig.nodes[1].status(0).counters.abandoned, CALLERS);
    // And one that is wanted runs as ever.
    let wanted = rig.run(secs(5), impatient(&rig, 0, 10, 1_000));
    assert_eq!(wanted, Some(Ok(Packed(0))));
}

/// A call that holds `len` bytes at the second server for `pause` times ten milliseconds.
fn slow(grid: &Grid<SimRuntime>, pause: u8, len: usize) -> BoxFuture<Answer> {
    let (grid, mut request) = (grid.clone(), vec![0; len]);
    request[0] = pause;
    Box::pin(async move { grid.call::<Slow>(id(1), &request, CallOptions::default()).await })
}

async fn breaker_opens_and_closes(grid: Grid<SimRuntime>, control: Control) {
    // Five refusals in a row, and a sixth call is not sent.
    let held = (0..3).map(|_| -> BoxFuture<Answer> {
        let (grid, options) = (grid.clone(), CallOptions::within(ms(700)));
        let request = vec![200; 30_000];
        Box::pin(async move { grid.call::<Slow>(id(1), &request, options).await })
    });
    let held = gather(&control, held.collect());
    control.sleep(ms(1)).await;
    for _ in 0..5 {
        assert!(!grid.peers()[0].breaker_open);
        assert_eq!(slow(&grid, 0, 15_000).await, Err(CallError::NotExecuted(Reason::Overloaded)));
    }
    let refused = Err(CallError::NotSent(Reason::BreakerOpen));
    assert_eq!(slow(&grid, 0, 1).await, refused);
    assert!(grid.peers()[0].breaker_open);
    // After its pause one call of those that come is let through, and finds the peer as it was.
    control.sleep(ms(501)).await;
    let probes = gather(&control, (0..3).map(|_| slow(&grid, 0, 15_000)).collect()).await;
    assert_eq!(probes.iter().filter(|probe| **probe == Err(CallError::NotExecuted(Reason::Overloaded))).count(), 1);
    assert_eq!(probes.iter().filter(|probe| **probe == refused).count(), 2);
    assert_eq!(slow(&grid, 0, 1).await, refused);
    assert!(held.await.iter().all(|answer| *answer == Err(CallError::Unknown(Reason::Deadline))));
    // And at last one that is answered. It is a large one, which begins on the small lane and takes the other.
    control.sleep(ms(501)).await;
    assert_eq!(slow(&grid, 0, 70_000).await, Ok(Packed(70_000)));
    assert_eq!(slow(&grid, 0, 1).await, Ok(Packed(1)));
    assert!(!grid.peers()[0].breaker_open);
}

/// Asks the first server 300 times and reads only then; how often it was refused.
async fn asks_and_does_not_read(runtime: SimRuntime, server: Grid<SimRuntime>) -> u32 {
    let mut rogue = Rogue::enter(&runtime, &addr(0), 1).await;
    for slot in 0..300 {
        let header = Header::new(Op::Call, MuxId { slot, generation: 1 }, 0);
        rogue.send(Header { handler: u32::from(ECHO.number()), ..header }, &[1; 10_000]).await;
    }
    let queued = server.peers().iter().map(|peer| peer.bytes_queued).max();
    assert!(queued < Some(300_000), "{queued:?} bytes wait for a peer that does not read");
    let mut refused = 0;
    for _ in 0..300 {
        let (answer, _) = rogue.next_of(Op::Reply).await.expect("answered");
        refused += u32::from(answer.handler == Outcome::Overloaded as u32);
    }
    refused
}

/// Opens 12 streams and makes 50 calls at the second server; streams accepted, streams refused, calls refused.
async fn keeps_no_limit(runtime: SimRuntime) -> [u32; 3] {
    let mut rogue = Rogue::enter(&runtime, &addr(1), 1).await;
    let (mut request, mut seen) = (Vec::new(), [0; 3]);
    Packed((100_u64, 60_000_u64)).encode(&mut request);
    for slot in 0..50 {
        let header = Header::new(Op::Call, MuxId { slot, generation: 1 }, 0);
        rogue.send(Header { handler: u32::from(COUNTED.number()), ..header }, &request).await;
    }
    for slot in 0..12 {
        let header = Header::new(Op::Open, MuxId { slot, generation: 1 | MuxId::STREAM }, 1);
        rogue.send(Header { handler: u32::from(PATTERN.number()), ..header }, &Pattern::Hold.encode()).await;
    }
    for _ in 0..22 {
        match rogue.next().await.expect("the connection lives").0 {
            Header { op: Op::Accept, .. } => seen[0] += 1,
            Header { op: Op::Reset, handler, .. } if handler == Outcome::Overloaded as u32 => seen[1] += 1,
            Header { op: Op::Reply, handler, .. } if handler == Outcome::Overloaded as u32 => seen[2] += 1,
            other => panic!("{other:?}"),
        }
    }
    seen
}

#[test]
fn overload_is_refused() {
    let mut rig = Rig::meshed(2, WorldOptions::default(), |at, config| {
        if at == 0 {
            config.breaker_failures_max = 5;
            config.limits.calls_in_flight_max = 64;
            config.limits.outbound_bytes_max = 200_000;
        } else {
            config.limits.calls_in_flight_max = 40;
            config.limits.inbound_bytes_max = 100_000;
            config.limits.streams_open_max = 8;
        }
    });
    let (control, grid) = (rig.control(), rig.nodes[0].grid.clone());
    let counted = {
        let grid = grid.clone();
        move |number: u64, delay_ms: u64| -> BoxFuture<Answer> {
            let grid = grid.clone();
            Box::pin(
                async move { grid.call::<Counted>(id(1), &Packed((number, delay_ms)), CallOptions::default()).await },
            )
        }
    };
    // By count: the caller knows the peer's limit and sends nothing beyond it; nobody has to be asked again later.
    let answers = rig.run(secs(10), gather(&control, (0..50).map(|number| counted(number, 100)).collect()));
    let refused = answers.iter().filter(|answer| **answer == Err(CallError::NotSent(Reason::Overloaded))).count();
    let served = answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!((served, refused), (40, 10));
    assert_eq!(rig.nodes[1].tally.done().started, 40);
    assert!(!rig.nodes[0].status(1).breaker_open);
    // By bytes: what is being received and handled together is more than the peer takes. It says so, and starts nothing.
    let answers = rig.run(secs(10), gather(&control, (0..6).map(|_| slow(&grid, 10, 30_000)).collect()));
    let refused = answers.iter().filter(|answer| **answer == Err(CallError::NotExecuted(Reason::Overloaded))).count();
    assert_eq!((answers.iter().filter(|answer| answer.is_ok()).count(), refused), (3, 3));
    assert_eq!(rig.nodes[1].status(0).counters.overloaded, 3);
    // What waits here to be sent is limited too.
    rig.world.clog(rig.nodes[0].no, rig.nodes[1].no, ms(500));
    let answers = rig.run(secs(10), gather(&control, (0..30).map(|_| slow(&grid, 0, 20_000)).collect()));
    assert!(answers.iter().filter(|answer| **answer == Err(CallError::NotSent(Reason::Overloaded))).count() > 5);
    rig.run(secs(20), breaker_opens_and_closes(grid, control));
    assert!(rig.nodes.iter().all(|node| node.losses().is_empty()));
    // Calls that are answered on the spot are no way around that.
    let asking = asks_and_does_not_read(rig.nodes[1].runtime.clone(), rig.nodes[0].grid.clone());
    let refused = rig.run(secs(10), asking);
    assert!((50..250).contains(&refused), "{refused} of 300 were refused");
    // Nor are the limits only the caller's to keep.
    let seen = rig.run(secs(10), keeps_no_limit(rig.nodes[0].runtime.clone()));
    assert_eq!(seen, [8, 4, 10], "streams accepted, streams refused, calls refused");
}
