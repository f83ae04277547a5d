//! Who is alive is known soon, and no clock but the monotonic one counts.

use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ashlar_grid::CallOptions;
use ashlar_grid::seam::{Runtime as _, Threads as _};
use ashlar_grid::status::PeerState;
use ashlar_sim::net::Side;
use ashlar_sim::{Kill, WorldOptions};

use crate::methods::{Echo, PATTERN, Pattern, Sink, message};
use crate::rig::{Node, Rig, Tweak, id, link, ms, secs, shaken};

/// What goes on between two servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Load {
    Idle,
    /// A few bytes now and then: the peer's kernel always has room for them.
    Trickle,
    /// Small calls without a pause.
    Calls,
    /// Large payloads and streams without a pause: every buffer is full.
    Flood,
}

/// Lets server `node` load server `to` for as long as it lives. Its tasks freeze with it.
fn load(node: &Node, to: usize, load: Load, answered: &Arc<AtomicU64>) {
    let forever = CallOptions { timeout: Some(secs(10_000)), ..CallOptions::default() };
    let tasks = if load == Load::Idle { 0 } else { 4 };
    for task in 0..tasks {
        let (grid, runtime, answered) = (node.grid.clone(), node.runtime.clone(), answered.clone());
        node.runtime.spawn(Box::pin(async move {
            if load == Load::Flood && task < 2 {
                let pattern = if task == 0 { Pattern::Flood(5_000) } else { Pattern::Up(5_000) }.encode();
                let opened = grid.open_stream(id(to), PATTERN, &pattern, forever).await;
                let mut stream = opened.expect("connected");
                if task == 0 {
                    while let Ok(Some(_)) = stream.receiver.receive().await {}
                    return;
                }
                let mut number = 0;
                while stream.sender.send(&message(number, 5_000)).await.is_ok() {
                    number += 1;
                }
                return;
            }
            loop {
                let called = if load == Load::Flood {
                    grid.call::<Sink>(id(to), &vec![0; 60_000], CallOptions::default()).await.map(|_| ())
                } else {
                    grid.call::<Echo>(id(to), &vec![0; 100], CallOptions::default()).await.map(|_| ())
                };
                answered.fetch_add(u64::from(called.is_ok()), Ordering::Relaxed);
                if load == Load::Trickle {
                    runtime.sleep_until(runtime.now() + ms(70 + task * 11)).await;
                }
            }
        }));
    }
}

/// What is done to the second server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Freeze,
    PowerLoss,
    Partition,
    /// What the server sends is lost; what is sent to it arrives.
    HalfOpen,
}

#[test]
fn frozen_peer_is_noticed() {
    for fault in [Fault::Freeze, Fault::PowerLoss, Fault::Partition, Fault::HalfOpen] {
        for kind in [Load::Idle, Load::Trickle, Load::Calls, Load::Flood] {
            for after_ms in [137, 1_300, 6_100] {
                notice(fault, kind, after_ms);
            }
        }
    }
}

/// A world whose links bound what a load without a pause comes to.
fn modest(seed: u64) -> WorldOptions {
    WorldOptions { link: link(1_000, 5_000_000, 64 << 10), ..shaken(seed) }
}

fn notice(fault: Fault, kind: Load, after_ms: u64) {
    let mut setup = Rig::meshed(2, modest(after_ms), |_, _| {});
    let answered = Arc::new(AtomicU64::new(0));
    load(&setup.nodes[0], 1, kind, &answered);
    load(&setup.nodes[1], 0, kind, &answered);
    setup.pass(ms(after_ms));
    assert!(setup.nodes[0].losses().is_empty(), "{kind:?}: a healthy peer was given up");
    let begun_ns = setup.world.now_ns();
    let no = setup.nodes[1].no;
    match fault {
        Fault::Freeze => setup.world.pause(no),
        Fault::PowerLoss => setup.world.kill(no, Kill::Machine),
        Fault::Partition => setup.partition(0, 1, true),
        Fault::HalfOpen => {
            for conn in setup.world.connections() {
                setup.world.black_hole(conn.id, if conn.hosts[0] == no { Side::Dialer } else { Side::Acceptor });
            }
        }
    }
    setup.until(secs(5), "the loss is noticed", |setup| !setup.nodes[0].losses().is_empty());
    let (lost_ns, reason) = setup.nodes[0].losses()[0].clone();
    // Three seconds of silence, one look at the clock, and what was on its way.
    let after = Duration::from_nanos(lost_ns - begun_ns);
    assert!(after <= ms(3_250) + ms(20), "{fault:?}, {kind:?}: noticed after {after:?}");
    assert_eq!(reason, "peer is silent", "{fault:?}, {kind:?}");
    if fault != Fault::HalfOpen {
        assert_eq!(setup.nodes[0].status(1).state, PeerState::Connecting, "{fault:?}, {kind:?}");
    }
}

/// Messages that all servers received from all others so far.
fn messages(setup: &Rig) -> u64 {
    let of = |node: &Node| node.grid.peers().iter().map(|peer| peer.counters.messages_in).sum::<u64>();
    setup.nodes.iter().map(of).sum()
}

#[test]
fn idle_mesh_is_quiet() {
    const SERVERS: usize = 60;
    let mut setup = Rig::meshed(SERVERS, WorldOptions { link: link(500, 0, 1_460), ..shaken(60) }, |_, _| {});
    // The first pings, that measure the round trip, are over.
    setup.pass(secs(10));
    let before = messages(&setup);
    setup.pass(secs(60));
    let each = (messages(&setup) - before) as f64 / SERVERS as f64 / 60.0;
    // With one side of each connection asking, and as many answers; both sides ask where their timers meet.
    assert!((10.0..20.0).contains(&each), "{each} messages a second and server");
    let losses: Vec<_> = setup.nodes.iter().flat_map(Node::losses).collect();
    assert_eq!(losses, Vec::new());
}

#[test]
fn frozen_peer_among_many_is_noticed() {
    for calls in [false, true] {
        let mut setup = Rig::meshed(40, shaken(41), |_, _| {});
        setup.pass(secs(10));
        let begun_ns = setup.world.now_ns();
        setup.world.pause(setup.nodes[1].no);
        if calls {
            load(&setup.nodes[0], 1, Load::Trickle, &Arc::default());
        }
        let others = |setup: &Rig| (2..40).all(|at| !setup.nodes[at].losses().is_empty());
        setup.until(secs(6), "the loss is noticed", |setup| !setup.nodes[0].losses().is_empty());
        let after = Duration::from_nanos(setup.nodes[0].losses()[0].0 - begun_ns);
        // Who waits for it knows as soon as in a mesh of two. Nobody else waits for longer than a rest and the time for the answer.
        assert!(!calls || after <= ms(3_250) + ms(20), "noticed after {after:?}");
        setup.until(ms(6_000), "everybody notices", others);
        let latest = (2..40).map(|at| setup.nodes[at].losses()[0].0).max().expect("they are many");
        let latest = Duration::from_nanos(latest - begun_ns);
        assert!(latest <= ms(39 * 75 * 5 / 4 + 2_100 + 300), "the last notices after {latest:?}");
    }
}

#[test]
fn peer_that_knows_of_the_loss_first_is_back_soon() {
    back_soon(|_, _| {});
    // Rests that are longer than any pause between two dials.
    back_soon(|_, config| config.timing.rest_per_connection = ms(400));
}

fn back_soon(tweak: Tweak) {
    let mut setup = Rig::meshed(40, shaken(43), tweak);
    setup.pass(secs(10));
    let (one, two) = (setup.nodes[0].no, setup.nodes[1].no);
    // What either sends on this connection is lost from now on, and only one of them looks.
    for conn in setup.world.connections() {
        if conn.hosts == [one, two] || conn.hosts == [two, one] {
            setup.world.black_hole(conn.id, Side::Dialer);
            setup.world.black_hole(conn.id, Side::Acceptor);
        }
    }
    load(&setup.nodes[0], 1, Load::Trickle, &Arc::default());
    setup.until(secs(3), "the caller notices", |setup| !setup.nodes[0].losses().is_empty());
    let back = setup
        .until(secs(5), "connected again", |setup| setup.nodes[0].is_connected(1) && setup.nodes[1].is_connected(0));
    assert!(back <= secs(3), "back after {back:?}");
}

/// One history of two servers, in which their wall clocks are stepped or not.
fn history(steps: bool) -> (u64, u64) {
    let mut setup = Rig::meshed(2, shaken(7), |_, _| {});
    let answered = Arc::new(AtomicU64::new(0));
    load(&setup.nodes[0], 1, Load::Trickle, &answered);
    for (at, step_s) in [20, -20, 300, -86_400, 86_400 * 365].into_iter().enumerate() {
        if steps {
            setup.world.step_wall_clock(setup.nodes[at % 2].no, step_s * 1_000_000_000);
        }
        setup.pass(secs(3));
        if at == 2 {
            setup.restart(1, Kill::Process);
            setup.until_connected(secs(10));
        }
    }
    assert_eq!(setup.nodes[0].losses().len(), 1, "only the restart");
    (setup.world.event_hash(), answered.load(Ordering::Relaxed))
}

#[test]
fn clock_jump_changes_nothing() {
    assert_eq!(history(true), history(false), "steps of the wall clock, minutes and years, change no event");
    // Stalls that are shorter than the silence that is allowed.
    for (kind, stall_ms) in [(Load::Idle, 2_000), (Load::Calls, 2_000), (Load::Flood, 1_500)] {
        let mut setup = Rig::meshed(3, modest(stall_ms), |_, _| {});
        let answered = Arc::new(AtomicU64::new(0));
        load(&setup.nodes[0], 1, kind, &answered);
        load(&setup.nodes[1], 2, kind, &answered);
        for _ in 0..5 {
            setup.world.pause(setup.nodes[1].no);
            setup.pass(ms(stall_ms));
            setup.world.resume(setup.nodes[1].no);
            setup.pass(ms(2_300));
        }
        let losses: Vec<_> = setup.nodes.iter().flat_map(Node::losses).collect();
        assert_eq!(losses, Vec::new(), "{kind:?}, stalls of {stall_ms} ms");
    }
    // A long stall of this server: the others gave it up; it blames nobody, and all are back soon.
    for kind in [Load::Idle, Load::Calls, Load::Flood] {
        let mut setup = Rig::meshed(3, modest(20), |_, _| {});
        let answered = Arc::new(AtomicU64::new(0));
        load(&setup.nodes[1], 0, kind, &answered);
        setup.pass(secs(1));
        setup.world.pause(setup.nodes[1].no);
        setup.pass(secs(20));
        setup.world.resume(setup.nodes[1].no);
        setup.until_connected(secs(5));
        let reasons: Vec<String> = setup.nodes[1].losses().into_iter().map(|(_, reason)| reason).collect();
        assert!(reasons.len() == 2 && reasons.iter().all(|reason| !reason.contains("silent")), "{reasons:?}");
        assert!(setup.nodes[0].losses().len() == 1 && setup.nodes[2].losses().len() == 1);
    }
    // All stall at once, as virtual machines of one host do: nobody was silent while anybody could listen.
    for (at, stall_ms) in [(0, 2_900), (100, 3_500), (450, 4_500), (850, 5_900), (1_700, 20_000)] {
        let mut setup = Rig::meshed(3, shaken(at), |_, _| {});
        setup.pass(secs(2) + ms(at));
        setup.nodes.iter().for_each(|node| setup.world.pause(node.no));
        setup.pass(ms(stall_ms));
        setup.nodes.iter().for_each(|node| setup.world.resume(node.no));
        setup.pass(secs(10));
        let losses: Vec<_> = setup.nodes.iter().flat_map(Node::losses).collect();
        assert_eq!(losses, Vec::new(), "all stalled for {stall_ms} ms");
    }
}
