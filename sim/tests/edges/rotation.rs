//! The cluster's secret is replaced while connections live on.

use ashlar_grid::frame::Side;
use ashlar_grid::hello::Secrets;
use ashlar_sim::WorldOptions;
use ashlar_wire::secret::Secret;

use crate::rig::{Rig, SECRET, addr, id, link, ms, secs, world_with};
use crate::rogue::{ROGUE, Rogue};

const NEWER: [u8; 32] = [9; 32];

fn secret(bytes: [u8; 32]) -> Secret {
    Secret::from_bytes(bytes)
}

/// Whether both ends of every pair among `servers` have proved the newer secret.
fn proved(rig: &Rig, servers: &[usize]) -> bool {
    let newer = Some(secret(NEWER).key_id());
    servers.iter().all(|at| servers.iter().all(|other| at == other || rig.nodes[*at].status(*other).key == newer))
}

#[test]
fn rotation_keeps_every_connection() {
    let mut rig = Rig::meshed(3, WorldOptions::default(), |_, _| {});
    for at in 0..3 {
        rig.nodes[at].grid.rotate(Secrets::rotating(secret(NEWER), secret(SECRET)));
        rig.pass(secs(1));
    }
    // The first server asked before the others held the secret: it asks again when all do.
    for at in 0..3 {
        rig.nodes[at].grid.rotate(Secrets::new(secret(NEWER)));
    }
    rig.until(secs(1), "all have proved the newer secret", |rig| proved(rig, &[0, 1, 2]));
    rig.pass(secs(20));
    for at in 0..3 {
        assert_eq!(rig.nodes[at].losses(), [], "server {at} lost nothing");
        assert_eq!(rig.nodes[at].grid.counters().connects, 2);
    }
}

#[test]
fn a_server_without_the_new_secret_is_left_out() {
    let mut rig = Rig::meshed(3, WorldOptions::default(), |_, _| {});
    for at in 0..2 {
        rig.nodes[at].grid.rotate(Secrets::rotating(secret(NEWER), secret(SECRET)));
    }
    rig.pass(secs(20));
    assert!(rig.nodes.iter().all(|node| node.losses().is_empty()), "the older secret is still held");
    for at in 0..2 {
        rig.nodes[at].grid.rotate(Secrets::new(secret(NEWER)));
    }
    rig.pass(secs(20));
    assert!(proved(&rig, &[0, 1]) && rig.nodes[0].is_connected(1) && rig.nodes[1].is_connected(0));
    assert!(!rig.nodes[0].is_connected(2) && !rig.nodes[2].is_connected(0) && !rig.nodes[2].is_connected(1));
    let reason = &rig.nodes[0].losses()[0].1;
    assert!(reason.contains("did not prove the new cluster secret"), "{reason}");
    let error = rig.nodes[2].status(0).last_error.expect("told why");
    assert!(error.contains("no common cluster secret"), "{error}");
    assert_eq!(rig.nodes[2].status(0).id, Some(id(0)));
}

/// Replaces the secret at all servers, in two steps.
fn rotate_all(rig: &mut Rig, pause: core::time::Duration) {
    for secrets in [Secrets::rotating(secret(NEWER), secret(SECRET)), Secrets::new(secret(NEWER))] {
        for node in &rig.nodes {
            node.grid.rotate(secrets.clone());
        }
        rig.pass(pause);
    }
}

/// Whether any server has a connection to the rogue.
fn knows_rogue(rig: &Rig) -> bool {
    let peers = rig.nodes.iter().flat_map(|node| node.grid.peers());
    peers.into_iter().any(|peer| peer.id == Some(ROGUE) && peer.state == ashlar_grid::status::PeerState::Connected)
}

#[test]
fn a_hello_begun_with_an_old_secret_ends_with_it() {
    // The rogue dials: it holds its proof back until the secret has been replaced.
    let mut rig = Rig::two();
    let runtime = rig.nodes[0].runtime.clone();
    let (mut rogue, proof) = rig.run(secs(1), async move {
        let mut rogue = Rogue::dial(&runtime, &addr(1), 1).await;
        let proof = rogue.hold_proof().await.expect("the secret is still held");
        (rogue, proof)
    });
    rotate_all(&mut rig, secs(1));
    let answer = rig.run(secs(1), async move {
        rogue.send_frame(&proof).await.expect("the connection is open");
        let answer = rogue.next_frame().await;
        (answer.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()), rogue.until_closed().await)
    });
    let refusal = answer.0.expect("the server says why");
    assert!(refusal.contains("no common cluster secret"), "not welcomed: {refusal}");
    assert!(!knows_rogue(&rig));
    assert!(rig.nodes.iter().all(|node| node.losses().is_empty()), "nobody else was disturbed");
}

#[test]
fn a_welcome_proved_by_an_old_secret_comes_too_late() {
    // The rogue is dialed: it holds its welcome back until the secret has been replaced.
    let mut rig = Rig::two();
    let no = rig.world.add_server("rogue");
    let runtime = rig.world.start(no);
    let listener = runtime.listen("rogue:1").expect("free");
    rig.nodes[0].grid.add_peer("rogue:1");
    let (mut rogue, welcome) = rig.run(secs(5), async move {
        let (wire, _) = listener.accept().await;
        let mut rogue = Rogue::new(wire, Side::Acceptor, 1);
        let welcome = rogue.hold_welcome().await.expect("the secret is still held");
        (rogue, welcome)
    });
    rotate_all(&mut rig, secs(1));
    let last_word = rig.run(secs(2), async move {
        rogue.send_frame(&welcome).await.expect("the connection is open");
        rogue.until_closed().await
    });
    assert!(!last_word.is_empty() && !knows_rogue(&rig), "{last_word}");
    assert!(rig.nodes.iter().all(|node| node.losses().iter().all(|(_, why)| why.contains("did not prove"))));
    assert!(rig.nodes[0].is_connected(1) && rig.nodes[1].is_connected(0));
}

/// The second step of a rotation reaches both servers while the answers to the first challenges are on their way.
#[test]
fn a_rotation_faster_than_a_round_trip_keeps_every_connection() {
    let mut rig = Rig::meshed(2, world_with(link(100_000, 0, 1 << 16)), |_, _| {});
    rotate_all(&mut rig, ms(50));
    rig.pass(secs(20));
    for (at, node) in rig.nodes.iter().enumerate() {
        assert_eq!(node.losses(), [], "server {at} lost nothing");
        assert_eq!(node.grid.counters().connects, 1);
    }
    assert!(proved(&rig, &[0, 1]));
}
