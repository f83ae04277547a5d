//! The cluster's secret is replaced while connections live.

use super::*;

fn secret(byte: u8) -> Secret {
    Secret::from_bytes([byte; 32])
}

#[test]
fn both_prove_the_new_secret_and_the_connection_stays() {
    let setup = Setup::new().connected();
    for secrets in [Secrets::rotating(secret(6), secret(5)), Secrets::new(secret(6))] {
        for server in &setup.servers {
            server.grid.rotate(secrets.clone());
            assert_eq!(server.grid.secrets().key_ids(), secrets.key_ids());
        }
        setup.world.pass(6_000);
    }
    for server in &setup.servers {
        let status = server.status();
        assert_eq!((status.connects, status.key), (1, Some(secret(6).key_id())));
        assert_eq!((server.events(), server.grid.tasks()), (Vec::new(), 2));
    }
}

#[test]
fn who_does_not_prove_it_in_time_is_let_go() {
    let setup = Setup::new().connected();
    let [a, b] = &setup.servers;
    a.grid.rotate(Secrets::new(secret(6)));
    setup.world.pass(4_999);
    assert_eq!((a.connected(), a.status().key), (1, Some(secret(5).key_id())));
    setup.world.pass(1);
    assert_eq!((a.connected(), b.connected()), (0, 0));
    let reason = "the peer did not prove the new cluster secret";
    assert!(matches!(&a.events()[0], PeerEvent::Lost { reason: told, .. } if told == reason));
    setup.world.pass(10_000);
    assert_eq!(a.connected(), 0, "no common secret");
    b.grid.rotate(Secrets::new(secret(6)));
    setup.world.pass(10_000);
    assert_eq!((a.connected(), a.status().key), (1, Some(secret(6).key_id())));
}
