//! The cluster's secret is replaced while connections live on.

use ashlar_grid::hello::Secrets;
use ashlar_sim::WorldOptions;
use ashlar_wire::secret::Secret;

use crate::rig::{Rig, SECRET, id, secs};

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
