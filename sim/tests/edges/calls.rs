//! A call that fails says whether it ran.

use ashlar_grid::CallOptions;
use ashlar_grid::error::{CallError, Lost, Reason};
use ashlar_grid::handler::Packed;
use ashlar_grid::seam::{BoxFuture, Lane};
use ashlar_sim::net::Side;
use ashlar_sim::{Kill, WorldOptions};

use crate::methods::{Counted, Echo, Idempotent, Sink, Unknown};
use crate::rig::{Rig, at_once, gather, id, link, ms, secs, shaken};

/// What became of numbered calls that were under way when their connection was reset.
fn calls_at_a_cut(seed: u64, bytes: u64, idempotent: bool) -> [usize; 4] {
    // A link so slow, and buffers so small, that calls wait at every stage when the cut comes.
    let small = WorldOptions { send_bytes_max: 2_000, receive_bytes_max: 2_000, ..shaken(seed) };
    let mut rig = Rig::meshed(2, WorldOptions { link: link(200, 100_000, 500), ..small }, |_, _| {});
    let conn = rig.conns(Lane::Small)[0];
    let writers = [Side::Dialer, Side::Acceptor];
    rig.world.reset_after(conn.id, writers[seed as usize % 2], bytes);
    let (grid, control) = (rig.nodes[0].grid.clone(), rig.control());
    let results = rig.run(secs(60), async move {
        let call = |number: u64| -> BoxFuture<Result<Packed<u64>, CallError>> {
            let (grid, control) = (grid.clone(), control.clone());
            Box::pin(async move {
                control.sleep(ms(number / 8)).await;
                let request = Packed((number, number % 3));
                if idempotent {
                    return grid.call::<Idempotent>(id(1), &request, CallOptions::within(secs(30))).await;
                }
                // What may not run twice is not tried again either where there is time to.
                let options = if seed.is_multiple_of(5) { CallOptions::within(secs(30)) } else { at_once() };
                grid.call::<Counted>(id(1), &request, options).await
            })
        };
        gather(&control, (0..200).map(call).collect()).await
    });
    let mut seen = [0; 4];
    for (number, result) in (0_u64..).zip(results) {
        let runs = rig.nodes[1].tally.runs(number);
        let (kind, possible) = match result {
            Ok(Packed(answer)) => (0, answer == number && (runs == 1 || idempotent && runs == 2)),
            // It was on this connection, and never left.
            Err(CallError::NotSent(Reason::Disconnected(_))) => (3, runs == 0),
            Err(CallError::NotSent(_) | CallError::NotExecuted(_)) => (1, runs == 0),
            Err(CallError::Unknown(_)) => (2, runs <= 1),
            Err(CallError::Refused(_)) => (2, false),
        };
        assert!(possible, "seed {seed}, cut at {bytes}: {result:?}, and it ran {runs} times");
        seen[kind] += 1;
    }
    seen
}

#[test]
fn failed_call_says_whether_it_ran() {
    let mut seen = [0; 4];
    for cut in 0..120 {
        let once = calls_at_a_cut(cut, 1 + cut * 53, false);
        seen.iter_mut().zip(once).for_each(|(all, once)| *all += once);
        // What may run twice is tried again by the library, and succeeds.
        assert_eq!(calls_at_a_cut(cut, 1 + cut * 53, true), [200, 0, 0, 0], "cut at {}", 1 + cut * 53);
    }
    assert!(seen.iter().all(|count| *count > 200), "answered, not run, unknown, never left: {seen:?}");
}

#[test]
fn each_failure_has_its_name() {
    let small = WorldOptions { send_bytes_max: 4_000, receive_bytes_max: 4_000, ..WorldOptions::default() };
    let mut rig = Rig::meshed(2, small, |_, _| {});
    let (grid, control) = (rig.nodes[0].grid.clone(), rig.control());
    let (a, b, conn) = (rig.nodes[0].no, rig.nodes[1].no, rig.conn());
    rig.run(secs(10), async move {
        let unknown = grid.call::<Unknown>(id(1), &Vec::new(), at_once()).await;
        assert_eq!(unknown, Err(CallError::NotExecuted(Reason::UnknownHandler)));
        let nobody = grid.call::<Echo>(id(9), &Vec::new(), at_once()).await;
        assert_eq!(nobody, Err(CallError::NotSent(Reason::UnknownPeer)));
        let too_long = grid.call::<Echo>(id(1), &vec![0; (64 << 20) + 1], at_once()).await;
        assert_eq!(too_long, Err(CallError::NotSent(Reason::TooLong)));
        let late = CallOptions { timeout: Some(ms(100)), ..at_once() };
        let deadline = grid.call::<Counted>(id(1), &Packed((1, 1_000)), late).await;
        assert_eq!(deadline, Err(CallError::Unknown(Reason::Deadline)));
        // One that has left and runs; then the way is blocked, so that of the next one nothing leaves.
        let call = |number: u64| -> BoxFuture<_> {
            let grid = grid.clone();
            Box::pin(async move { grid.call::<Counted>(id(1), &Packed((number, 60_000)), at_once()).await })
        };
        let sent = gather(&control, vec![call(2)]);
        let filler = grid.clone();
        let waiting = control.clone();
        control.spawn(async move {
            waiting.sleep(ms(100)).await;
            waiting.cut(a, b);
            let _ = filler.call::<Sink>(id(1), &vec![0; 12_000], at_once()).await;
        });
        let cutting = control.clone();
        control.spawn(async move {
            cutting.sleep(ms(300)).await;
            cutting.reset(conn);
        });
        let later = control.clone();
        let held = call(3);
        let unsent = gather(
            &control,
            vec![Box::pin(async move {
                later.sleep(ms(200)).await;
                held.await
            }) as BoxFuture<_>],
        );
        let lost = Reason::Disconnected(Lost::Broken);
        assert_eq!(sent.await, vec![Err(CallError::Unknown(lost))]);
        assert_eq!(unsent.await, vec![Err(CallError::NotSent(lost))]);
        let away = grid.call::<Echo>(id(1), &Vec::new(), at_once()).await;
        assert_eq!(away, Err(CallError::NotSent(Reason::NotConnected)));
    });
    assert_eq!([1, 2, 3].map(|number| rig.nodes[1].tally.runs(number)), [1, 1, 0]);
    rig.partition(0, 1, false);
    rig.until_connected(secs(10));
    let (calling, draining) = (rig.nodes[0].grid.clone(), rig.nodes[1].grid.clone());
    let control = rig.control();
    rig.run(secs(20), async move {
        // A call that runs keeps the draining server; new ones are told.
        let (held, drain) = (calling.clone(), draining.clone());
        control.spawn(async move { drop(held.call::<Counted>(id(1), &Packed((5, 2_000)), at_once()).await) });
        control.sleep(ms(10)).await;
        control.spawn(async move { drop(drain.drain().await) });
        control.sleep(ms(10)).await;
        let refused = calling.call::<Echo>(id(1), &Vec::new(), at_once()).await;
        assert_eq!(refused, Err(CallError::NotSent(Reason::Draining)));
    });
    rig.restart(1, Kill::Process);
}

#[test]
fn a_second_try_does_not_forget_the_first() {
    let mut rig = Rig::two();
    let (grid, control) = (rig.nodes[0].grid.clone(), rig.control());
    let call: BoxFuture<_> =
        Box::pin(
            async move { grid.call::<Idempotent>(id(1), &Packed((1, 60_000)), CallOptions::within(secs(4))).await },
        );
    let call = gather(&control, vec![call]);
    rig.pass(ms(100));
    rig.world.kill(rig.nodes[1].no, Kill::Process);
    // The second try waits for a connection until the deadline and sends nothing; but the first one ran.
    let results = rig.run(secs(5), call);
    assert_eq!(results, vec![Err(CallError::Unknown(Reason::NotConnected))]);
    assert_eq!(rig.nodes[1].tally.runs(1), 1);
}
