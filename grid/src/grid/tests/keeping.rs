//! Connections that come, go, and come again.

use super::*;
use crate::config::Limits;
use crate::error::Lost;
use crate::hello::PeerLimits;

/// The peer was heard last so many milliseconds ago.
fn lost(peer: ServerId, reason: &str, silence_ms: u64, is_expected: bool) -> PeerEvent {
    let (address, reason) = (ADDRESSES[usize::from(peer == B)].to_owned(), reason.to_owned());
    PeerEvent::Lost { peer, address, reason, silence: Duration::from_millis(silence_ms), is_expected }
}

fn connected(peer: ServerId, number: usize, dialed: bool) -> PeerEvent {
    PeerEvent::Connected { peer, address: ADDRESSES[number].to_owned(), incarnation: Incarnation(3), dialed }
}

/// When somebody was dialed, in milliseconds.
fn dials(setup: &Setup) -> Vec<u64> {
    core::mem::take(&mut *locked(&setup.world.dials)).into_iter().map(|(ms, ..)| ms).collect()
}

#[test]
fn both_sides_know_of_a_connection() {
    let setup = Setup::new();
    setup.servers[0].grid.add_peer(ADDRESSES[1]);
    let before = setup.servers[0].status();
    assert_eq!((before.id, &*before.address, before.state), (None, ADDRESSES[1], PeerState::Connecting));
    assert_eq!((before.connected_for, before.key, before.connects), (None, None, 0));
    setup.world.pass(20);
    for (number, peer) in [(0, B), (1, A)] {
        let server = &setup.servers[number];
        let status = server.status();
        assert_eq!((status.id, &*status.address), (Some(peer), ADDRESSES[1 - number]));
        assert_eq!((status.incarnation, status.state), (Some(Incarnation(3)), PeerState::Connected));
        assert_eq!((status.connects, status.last_error), (1, None));
        assert_eq!((status.round_trip, status.connected_for), (Some(Duration::ZERO), Some(Duration::from_millis(20))));
        assert_eq!(status.key, Some(config(0).secrets.newest().key_id()));
        assert_eq!(server.events(), [connected(peer, 1 - number, number == 0)]);
        assert_eq!(server.grid.counters(), GridCounters { connects: 1, ..GridCounters::default() });
        assert_eq!((server.grid.tasks(), server.grid.server()), (2, [A, B][number]), "a keeper and a connection");
        assert!(status.counters.messages_in > 0 && status.bytes_in > 0);
    }
    let [a, b] = setup.servers.each_ref().map(Server::status);
    assert_eq!((a.bytes_in, a.bytes_out), (b.bytes_out, b.bytes_in));
    assert_eq!(setup.handle().id(), B);
    assert!(setup.handle().clone().is_connected());
}

#[test]
fn a_dial_that_fails_is_tried_again_after_longer_and_longer_pauses() {
    let cases =
        [(0, [0, 50, 150, 350, 750, 1_550, 2_550, 3_550]), (255, [0, 100, 300, 700, 1_500, 3_100, 5_100, 7_100])];
    for (chance, times) in cases {
        let setup = Setup::new();
        *locked(&setup.servers[0].host.chance) = Some(chance);
        setup.servers[0].grid.add_peer("c:1");
        setup.world.pass(times[7]);
        assert_eq!(dials(&setup), times);
        let server = &setup.servers[0];
        let failed = PeerEvent::DialFailed { address: "c:1".into(), reason: "nobody there".into(), will_heal: true };
        assert_eq!(server.events(), [failed], "told once");
        assert_eq!(server.grid.counters().dials_failed, 8);
        assert_eq!(server.status().last_error.as_deref(), Some("nobody there"));
        // A success ends the row: the next failures begin anew, and are told again.
        let config = GridConfig { address: "c:1".into(), ..config(1) };
        let third = Setup::server(&setup.world, config, Handlers::new());
        setup.world.pass(3_000);
        assert_eq!((server.connected(), dials(&setup).len()), (1, 1));
        assert_eq!(server.status().last_error, None);
        locked(&setup.world.listeners).remove("c:1");
        third.grid.stop();
        setup.world.pass(500);
        assert!(dials(&setup).len() >= 2, "the pauses are short again");
        assert!(matches!(
            &server.events()[..],
            [PeerEvent::Connected { .. }, PeerEvent::Lost { .. }, PeerEvent::DialFailed { .. }]
        ));
        assert_eq!(server.status().last_error.as_deref(), Some("nobody there"));
    }
}

#[test]
fn an_address_gets_one_keeper_and_its_own_none() {
    let setup = Setup::with(|config| config.peers_max = 2, |handlers| handlers);
    let grid = &setup.servers[0].grid;
    for (address, tasks) in [("", 0), (ADDRESSES[0], 0), ("c:1", 1), ("c:1", 1), ("d:1", 2), ("e:1", 2)] {
        grid.add_peer(address);
        assert_eq!(grid.tasks(), tasks, "{address}");
    }
    grid.forget_address("c:1");
    grid.add_peer("e:1");
    setup.world.pass(10_000);
    assert_eq!(grid.tasks(), 2, "the keeper of a forgotten address ends");
    let addresses: Vec<_> = grid.peers().into_iter().map(|peer| peer.address).collect();
    assert_eq!(addresses, ["d:1", "e:1"]);
}

#[test]
fn an_address_of_its_own_under_another_name_is_dropped() {
    let setup = Setup::new();
    let grid = &setup.servers[0].grid;
    setup.world.alias(grid, "alias:1");
    grid.add_peer("alias:1");
    setup.world.pass(10_000);
    assert_eq!((dials(&setup).len(), grid.tasks(), grid.peers().len()), (1, 0, 0));
    assert_eq!((setup.servers[0].events(), grid.counters().dials_failed), (Vec::new(), 0), "nothing to report");
    locked(&setup.world.listeners).clear();
}

#[test]
fn of_two_dials_at_once_one_stays_and_nothing_is_reported() {
    let setup = Setup::new();
    setup.servers[0].grid.add_peer(ADDRESSES[1]);
    setup.servers[1].grid.add_peer(ADDRESSES[0]);
    setup.world.pass(10_000);
    for server in &setup.servers {
        assert_eq!(server.connected(), 1);
        assert!(matches!(&server.events()[..], [PeerEvent::Connected { .. }]));
        assert_eq!(server.grid.counters().connects, 1);
        assert_eq!(server.status().connects, 1);
    }
    assert_eq!(setup.servers.each_ref().map(|server| server.grid.counters().losses), [0, 0]);
}

#[test]
fn a_connection_that_breaks_is_made_again_by_either_side() {
    for who in [0, 1] {
        let setup = Setup::new().connected();
        let before = setup.servers[0].status();
        let dialer = &setup.servers[who];
        // Only one side may dial now.
        locked(&setup.world.listeners).remove(ADDRESSES[who]);
        setup.cut(0);
        setup.world.run();
        let events = setup.servers.each_ref().map(|server| server.events());
        assert_eq!(events[0][0], lost(B, "transport failed", 5, false));
        assert_eq!(events[1][0], lost(A, "closed by the peer", 5, false));
        if who == 0 {
            assert_eq!(setup.servers.each_ref().map(Server::connected), [0, 0], "it pauses first");
            assert_eq!(setup.servers[0].status().state, PeerState::Connecting);
            let status = setup.servers[0].status();
            assert_eq!(status.last_error.as_deref(), Some("transport failed"));
            assert_eq!((status.bytes_in, status.bytes_out), (before.bytes_in, before.bytes_out), "none is forgotten");
        }
        setup.world.pass(5_000);
        assert_eq!(setup.servers.each_ref().map(Server::connected), [1, 1], "dialed by {who}");
        let events: Vec<_> = events.into_iter().nth(who).into_iter().flatten().chain(dialer.events()).collect();
        assert!(events.contains(&connected([B, A][who], 1 - who, true)), "{events:?}");
        let status = setup.servers[0].status();
        assert_eq!((status.connects, status.last_error), (2, None));
        assert!(status.bytes_in > before.bytes_in && status.bytes_out > before.bytes_out, "of all connections");
        assert_eq!(setup.servers[0].grid.counters().losses, 1);
    }
}

#[test]
fn a_later_life_takes_over_and_an_earlier_one_is_refused() {
    let setup = Setup::new().connected();
    let reborn = GridConfig { incarnation: Incarnation(4), ..config(1) };
    let reborn = Setup::server(&setup.world, reborn, Handlers::new());
    reborn.grid.add_peer(ADDRESSES[0]);
    setup.world.pass(100);
    let a = &setup.servers[0];
    assert_eq!((a.status().incarnation, a.connected(), a.status().connects), (Some(Incarnation(4)), 1, 2));
    let events = a.events();
    assert!(events.contains(&lost(B, "replaced by another connection", 5, true)), "{events:?}");
    assert_eq!((a.grid.counters().losses, a.grid.counters().connects), (0, 2));
    // The earlier one goes on dialing, and is told why it is not taken.
    setup.world.pass(30_000);
    assert_eq!((a.status().incarnation, a.connected()), (Some(Incarnation(4)), 1));
    assert!(a.grid.counters().rejected.other > 2);
    let stale = crate::hello::RefusalCode::StaleIncarnation;
    assert!(a.events().contains(&PeerEvent::Rejected { reason: format!("refused here: {stale}") }));
    let told = setup.servers[1].events();
    let failed = |event: &PeerEvent| match event {
        PeerEvent::DialFailed { address, reason, will_heal } => {
            address == ADDRESSES[0] && *reason == format!("refused by the peer: {stale}") && *will_heal
        }
        _ => false,
    };
    assert_eq!(told.iter().filter(|event| failed(event)).count(), 1, "{told:?}");
}

#[test]
fn a_silent_peer_is_suspect_then_lost_and_dialed_again() {
    let setup = Setup::new().connected();
    let a = &setup.servers[0];
    setup.servers[1].host.is_stopped.store(true, Ordering::Relaxed);
    for (ms, state) in [(900, PeerState::Connected), (800, PeerState::Connected), (200, PeerState::Suspect)] {
        setup.world.pass(ms);
        assert_eq!(a.status().state, state);
    }
    let reached = setup.world.within(500, setup.handle().call_bytes(HandlerId::new(1), b"?", CallOptions::default()));
    assert_eq!(reached, None, "nobody answers");
    setup.world.pass(1_000);
    assert_eq!((a.status().state, a.grid.counters().losses), (PeerState::Connecting, 1));
    let events = a.events();
    assert!(matches!(&events[0], PeerEvent::Lost { silence, .. } if silence.as_secs() == 3), "{events:?}");
    // Where its process hangs it takes connections and answers nothing: dials end after a step's time.
    setup.world.pass(20_000);
    assert_eq!(a.status().last_error.as_deref(), Some("the peer did not answer in time"));
    setup.servers[1].host.is_stopped.store(false, Ordering::Relaxed);
    setup.world.pass(10_000);
    assert_eq!(setup.servers.each_ref().map(Server::connected), [1, 1]);
}

#[test]
fn a_forgotten_peer_is_dialed_no_more() {
    let setup = Setup::new().connected();
    let [a, b] = &setup.servers;
    let call = setup.handle();
    dials(&setup);
    a.grid.forget_peer(ServerId::from_bytes([9; 16]));
    assert_eq!(a.connected(), 1, "somebody else is nothing to it");
    assert!(a.grid.0.peers().targets.contains_key(ADDRESSES[1]));
    a.grid.forget_peer(B);
    assert!(a.grid.peers().is_empty() && a.grid.peer(B).is_err());
    locked(&setup.world.listeners).remove(ADDRESSES[0]);
    setup.world.pass(100);
    assert_eq!(a.events(), [lost(B, "shut down here", 5, true)]);
    assert_eq!((a.grid.tasks(), a.grid.counters().losses), (0, 0));
    assert!(!call.is_connected());
    assert!(dials(&setup).len() > 1, "the other side tries");
    assert_eq!(b.grid.counters().losses, 1);
}

#[test]
fn a_forgotten_address_keeps_its_connection() {
    for who in [0, 1] {
        let setup = Setup::new().connected();
        let (own, other) = (&setup.servers[who], &setup.servers[1 - who]);
        own.grid.forget_address(ADDRESSES[1 - who]);
        setup.world.pass(1_000);
        assert_eq!(own.connected(), 1);
        dials(&setup);
        locked(&setup.world.listeners).remove(ADDRESSES[who]);
        other.grid.stop();
        setup.world.pass(10_000);
        assert_eq!((own.connected(), dials(&setup).len(), own.grid.tasks()), (0, 0, 0));
    }
}

/// Whoever was dialed dials too after a loss; an address of somebody who has a keeper already gets no second one.
#[test]
fn a_peer_gets_one_keeper_whatever_it_calls_its_address() {
    let setup = Setup::new();
    let b = &setup.servers[1].grid;
    setup.world.alias(&setup.servers[0].grid, "alias:1");
    b.add_peer("alias:1");
    setup.world.pass(10);
    let third = GridConfig { server: ServerId::from_bytes([3; 16]), address: "c:1".into(), ..config(0) };
    let third = Setup::server(&setup.world, third, Handlers::new());
    third.grid.add_peer(ADDRESSES[1]);
    setup.world.pass(10);
    let targets = |grid: &Grid<Host>| grid.0.peers().targets.keys().cloned().collect::<Vec<_>>();
    assert_eq!(targets(b), ["alias:1", "c:1"]);
    locked(&setup.world.listeners).remove("alias:1");
    setup.servers[0].grid.add_peer(ADDRESSES[1]);
    setup.cut(0);
    setup.world.pass(1_000);
    assert_eq!((setup.servers[0].connected(), setup.servers[1].connected()), (1, 2));
    assert_eq!(targets(b), ["alias:1", "c:1"], "who comes back under its own address is known");
}

/// Of a server that is connected already, found under a further address.
#[test]
fn a_second_dial_takes_over_only_where_the_first_connection_is_worth_nothing() {
    // It is fine.
    let setup = Setup::new().connected();
    let [a, b] = &setup.servers;
    setup.world.alias(&b.grid, "alias:1");
    a.grid.add_peer("alias:1");
    setup.world.pass(1_000);
    assert_eq!((a.connected(), a.status().connects, a.events()), (1, 1, Vec::new()));
    assert_eq!(
        (a.grid.counters().dials_failed, b.events()),
        (1, Vec::new()),
        "once: then its keeper knows who is there"
    );
    // Nothing passes any more.
    for way in &*locked(&setup.world.ways) {
        locked(way).is_full = true;
    }
    setup.world.pass(2_000);
    assert_eq!(a.status().state, PeerState::Suspect);
    setup.world.alias(&b.grid, "alias:2");
    a.grid.add_peer("alias:2");
    setup.world.pass(100);
    assert_eq!((a.connected(), a.status().connects), (1, 2));
    let events = a.events();
    assert!(events.contains(&connected(B, 1, true)), "{events:?}");
    let losses: Vec<_> = events.iter().filter(|event| matches!(event, PeerEvent::Lost { .. })).collect();
    assert!(matches!(losses[..], [PeerEvent::Lost { is_expected: true, .. }]), "{losses:?}");
    assert_eq!(a.grid.counters().losses, 0);
    // It is that of an earlier life.
    let setup = Setup::new().connected();
    let a = &setup.servers[0];
    let reborn = GridConfig { incarnation: Incarnation(4), ..config(1) };
    let reborn = Setup::server(&setup.world, reborn, Handlers::new());
    setup.world.alias(&reborn.grid, "alias:1");
    a.grid.add_peer("alias:1");
    setup.world.pass(100);
    assert_eq!((a.status().incarnation, a.status().connects), (Some(Incarnation(4)), 2));
}

#[test]
fn each_lane_is_told_its_own_limits() {
    let setup = Setup::new().connected();
    setup.servers[0].grid.0.open_bulk(&setup.servers[0].grid.0.peers().by_id[&B].clone());
    setup.world.run();
    for server in &setup.servers {
        let limits: Vec<_> = server.grid.0.links().iter().map(|link| link.session().peer_limits).collect();
        assert_eq!(limits, [Lane::Small, Lane::Bulk].map(|lane| PeerLimits::of(Limits::for_lane(lane))));
    }
}

#[test]
fn a_peer_that_breaks_the_protocol_is_counted_and_told() {
    let setup = Setup::new().connected();
    let [a, b] = &setup.servers;
    for way in &*locked(&setup.world.ways) {
        locked(way).bytes.extend([0x81, 0xff]);
        locked(way).wake();
    }
    setup.world.run();
    for (server, peer) in [(a, B), (b, A)] {
        let counters = server.grid.counters();
        assert_eq!((counters.protocol_errors, counters.losses), (1, 1));
        let text = "peer broke the protocol: a frame begins with 0x81; only whole binary frames are spoken";
        assert_eq!(server.events()[0], lost(peer, text, 0, false));
    }
    setup.cut(0);
    setup.world.pass(1_000);
    assert_eq!(a.grid.counters().protocol_errors, 1, "no other loss is");
}

#[test]
fn every_thread_finds_the_connection() {
    let setup = Setup::new().connected();
    let peer = setup.servers[0].grid.0.peers().by_id[&B].clone();
    for thread in [0, 1, 15, 16, 17, 1_000] {
        assert!(peer.small_link(thread).is_some(), "{thread}");
    }
    setup.cut(0);
    locked(&setup.world.listeners).clear();
    assert_eq!(setup.servers[0].status().state, PeerState::Connecting, "its task has not run yet");
    setup.world.run();
    for thread in [0, 15, 1_000] {
        assert!(peer.small_link(thread).is_none(), "{thread}");
    }
}

#[test]
fn whoever_stops_closes_all_and_leaves_no_task() {
    let setup = Setup::new().connected();
    let [a, b] = &setup.servers;
    a.grid.stop();
    setup.world.run();
    assert_eq!((a.connected(), b.connected()), (0, 0));
    setup.world.pass(100);
    assert_eq!(a.grid.tasks(), 0);
    assert_eq!(a.events(), [lost(B, "shut down here", 5, true)]);
    assert_eq!(b.events()[0], lost(A, "closed by the peer", 0, false), "it has said good-bye");
    // It neither dials nor takes calls from now on, and refuses who dials.
    a.grid.add_peer("c:1");
    assert_eq!(a.grid.tasks(), 0);
    setup.world.pass(5_000);
    assert_eq!((a.connected(), b.connected()), (0, 0));
    assert!(a.grid.counters().rejected.other > 0, "draining is told");
    assert_eq!(a.events(), [], "and belongs to ordinary life");
    let lost = CallError::NotSent(Reason::Disconnected(Lost::Shutdown));
    assert_eq!(setup.world.now(setup.handle().call_bytes(HandlerId::new(1), b"?", CallOptions::default())), Err(lost));
}
