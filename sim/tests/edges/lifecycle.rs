//! Servers come and go, and calls do not suffer.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ashlar_grid::CallOptions;
use ashlar_grid::error::{CallError, Reason};
use ashlar_grid::handler::Packed;
use ashlar_sim::{Kill, WorldOptions};

use crate::methods::{Busy, Counted, Echo};
use crate::rig::{Rig, addr, id, link, lock, ms, secs, shaken};

/// One server's callers: each calls, waits for the answer, and calls again, until told to stop.
struct Callers {
    stop: Arc<AtomicBool>,
    running: Arc<AtomicU64>,
}

const CALLERS: u64 = 4;

/// Callers on server `at` to every other one. Numbers of requests begin at `first` and are given out by `next`.
fn callers(
    rig: &Rig,
    at: usize,
    delay_ms_max: u64,
    next: &Arc<AtomicU64>,
    failed: &Arc<Mutex<Vec<CallError>>>,
) -> Callers {
    let callers = Callers { stop: Arc::default(), running: Arc::default() };
    for to in (0..rig.nodes.len()).filter(|to| *to != at) {
        for caller in 0..CALLERS {
            let (stop, running) = (callers.stop.clone(), callers.running.clone());
            let (next, failed, grid) = (next.clone(), failed.clone(), rig.nodes[at].grid.clone());
            let control = rig.control();
            running.fetch_add(1, Ordering::Relaxed);
            rig.world.spawn(async move {
                while grid.peer(id(to)).is_err() {
                    control.sleep(ms(10)).await;
                }
                while !stop.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let request = Packed((number, caller * number % (delay_ms_max + 1)));
                    let result = grid.call::<Counted>(id(to), &request, CallOptions::within(secs(30))).await;
                    match result {
                        Ok(Packed(answer)) => assert_eq!(answer, number),
                        Err(error) => lock(&failed).push(error),
                    }
                }
                running.fetch_sub(1, Ordering::Relaxed);
            });
        }
    }
    callers
}

#[test]
fn rolling_restart_fails_no_call() {
    for seed in 0..12 {
        // Handlers take longer than the way to them, or no time on a long way: then most calls are on the way when the
        // server that they go to has nothing to do and could leave.
        let (latency_us, delay_ms_max) = [(50, 3), (2_000, 0), (500, 1)][seed as usize % 3];
        let mut rig = Rig::meshed(3, WorldOptions { link: link(latency_us, 0, 64 << 10), ..shaken(seed) }, |_, _| {});
        let (next, failed) = (Arc::new(AtomicU64::new(0)), Arc::default());
        let mut all: Vec<Callers> = (0..3).map(|at| callers(&rig, at, delay_ms_max, &next, &failed)).collect();
        rig.pass(ms(300));
        for (at, own) in all.iter_mut().enumerate() {
            // A server that is to stop stops its own work, then drains, then ends.
            own.stop.store(true, Ordering::Relaxed);
            let running = own.running.clone();
            let grid = rig.nodes[at].grid.clone();
            let control = rig.control();
            let took = rig.run(secs(10), async move {
                let begun_ns = control.now_ns();
                grid.drain().await;
                control.now_ns() - begun_ns
            });
            assert!(took < 1_000_000_000, "calls of some milliseconds let it go soon, not after {took} ns");
            rig.until(secs(1), "its own calls are over", |_| running.load(Ordering::Relaxed) == 0);
            rig.world.kill(rig.nodes[at].no, Kill::Process);
            rig.pass(ms(100 + seed * 70));
            rig.begin(at);
            rig.until_connected(secs(10));
            *own = callers(&rig, at, delay_ms_max, &next, &failed);
            rig.pass(ms(100));
        }
        all.iter().for_each(|callers| callers.stop.store(true, Ordering::Relaxed));
        rig.until(secs(10), "all calls are over", |_| {
            all.iter().all(|callers| callers.running.load(Ordering::Relaxed) == 0)
        });
        let failures = lock(&failed).clone();
        assert_eq!(failures, Vec::new(), "seed {seed}");
        let asked = next.load(Ordering::Relaxed);
        assert!(asked > 1_000, "only {asked} calls were made");
        let mut runs = vec![0_u64; usize::try_from(asked).expect("few")];
        for node in &rig.nodes {
            node.tally.all_runs().iter().for_each(|(number, count)| runs[*number as usize] += count);
        }
        assert!(runs.iter().all(|count| *count == 1), "seed {seed}: a call ran twice or never");
    }
}

#[test]
fn application_refusal_is_not_a_transport_fault() {
    let mut rig = Rig::two();
    let (grid, before) = (rig.nodes[0].grid.clone(), rig.conn());
    rig.run(secs(10), async move {
        for _ in 0..1_000 {
            match grid.call::<Busy>(id(1), &Vec::new(), CallOptions::default()).await {
                Err(CallError::Refused(refusal)) => assert_eq!((refusal.code, refusal.text.as_str()), (7, "busy")),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(grid.call::<Echo>(id(1), &vec![1], CallOptions::default()).await, Ok(vec![1]));
    });
    assert_eq!(rig.conn(), before, "the connection is the one that was there before");
    let status = rig.nodes[0].status(1);
    assert_eq!((status.connects, status.breaker_open, status.calls_in_flight), (1, false, 0));
    assert_eq!((rig.nodes[0].losses(), rig.nodes[0].grid.counters().losses), (Vec::new(), 0));
}

#[test]
fn servers_start_in_any_order_without_noise() {
    for seed in 0..20 {
        let mut rig = Rig::new(4, WorldOptions { seed, ..shaken(seed) }, |_, _| {});
        for at in 0..4 {
            for other in (0..4).filter(|other| *other != at) {
                rig.nodes[at].grid.add_peer(&addr(other));
            }
            rig.pass(ms(seed * 37 % 200));
        }
        rig.until_connected(secs(5));
        rig.pass(secs(5));
        assert_eq!(rig.conns(ashlar_grid::seam::Lane::Small).len(), 6, "one connection for each pair");
        for node in &rig.nodes {
            let told = lock(&node.events);
            let connected =
                told.iter().all(|(_, event)| matches!(event, ashlar_grid::status::PeerEvent::Connected { .. }));
            assert!(connected && told.len() == 3, "seed {seed}: {told:?}");
        }
    }
}

#[test]
fn a_stopped_grid_stops_whatever_it_was_doing() {
    // The stop comes at every stage of a dial, and of the hello after it.
    for after_us in (0..1_200).step_by(30) {
        let mut rig = Rig::new(2, WorldOptions::default(), |_, _| {});
        rig.nodes[0].grid.add_peer(&addr(1));
        rig.pass(core::time::Duration::from_micros(after_us));
        rig.nodes[0].grid.stop();
        rig.pass(secs(20));
        assert_eq!(rig.nodes[0].grid.tasks(), 0, "stopped {after_us} us after the dial");
        let peer = rig.nodes[1].grid.peers();
        assert!(!rig.nodes[1].is_connected(0), "stopped after {after_us} us: {peer:?}");
        let grid = rig.nodes[0].grid.clone();
        if let Ok(handle) = grid.peer(id(1)) {
            let error =
                rig.run(secs(40), async move { handle.call::<Echo>(&Vec::new(), CallOptions::default()).await });
            let reason = error.expect_err("it is stopped").reason();
            assert!(matches!(reason, Some(Reason::Disconnected(_) | Reason::NotConnected)), "{reason:?}");
        }
    }
}
