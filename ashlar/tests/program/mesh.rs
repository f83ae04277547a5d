//! Servers find each other, lose each other and come back.

use super::process::{Scratch, TestServer, get, run, secret, until};

fn is_connected_to(server: &TestServer, count: usize) -> bool {
    server.status().is_some_and(|status| status.peers.len() == count && status.connected() == count)
}

fn check_chain_becomes_a_mesh(tls: &str) {
    let scratch = Scratch::new();
    let mut servers = vec![TestServer::start(&scratch.path("0"), &["--tls", tls], &[])];
    let secret = secret(&scratch.path("0"));
    for number in 1..4 {
        let last = servers[number - 1].address.clone();
        let data = scratch.path(&number.to_string());
        servers.push(TestServer::start(&data, &["--tls", tls, "--join", &last], &[("ASHLAR_SECRET", &secret)]));
    }
    until("a full mesh", || servers.iter().all(|server| is_connected_to(server, 3)));
    let status = servers[0].status().expect("it answers");
    assert!(status.ready && status.tls == (tls == "on"), "{status:?}");

    let outcome = run(&["status", "--addr", &servers[2].address], &[]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let rows = outcome.out.lines().filter(|line| line.contains("  ready  3/3  ")).count();
    assert_eq!(rows, 4, "{}", outcome.out);
    let healthy = r#"{"status":"healthy","majority":true,"alive":4,"known":4}"#;
    until("a majority of voters", || {
        let health = get(&servers[1].address, "/health/cluster").expect("it answers");
        health.status == 200 && String::from_utf8_lossy(&health.body) == healthy
    });

    // One dies and comes back elsewhere, and is the same server in its next life.
    let before = servers[3].status().expect("it answers");
    drop(servers.pop());
    until("the loss to be seen", || {
        servers.iter().all(|server| server.status().is_some_and(|status| status.connected() == 2))
    });
    let again = TestServer::start(&scratch.path("3"), &["--tls", tls], &[("ASHLAR_SECRET", &secret)]);
    until("the mesh to be whole again", || is_connected_to(&again, 3));
    let after = again.status().expect("it answers");
    assert_eq!((after.server, after.incarnation), (before.server, before.incarnation + 1));
    again.stop();
    servers.into_iter().for_each(TestServer::stop);
}

#[test]
fn chain_becomes_a_mesh_encrypted() {
    check_chain_becomes_a_mesh("on");
}

#[test]
fn chain_becomes_a_mesh_plain() {
    check_chain_becomes_a_mesh("off");
}

#[test]
fn metrics_tell_of_peers() {
    let scratch = Scratch::new();
    let first = TestServer::start(&scratch.path("a"), &[], &[]);
    let secret = secret(&scratch.path("a"));
    let second = TestServer::start(&scratch.path("b"), &["--join", &first.address], &[("ASHLAR_SECRET", &secret)]);
    until("a connection", || is_connected_to(&first, 1));
    let page = get(&first.address, "/metrics").expect("it answers").body;
    let page = String::from_utf8(page).expect("metrics are text");
    let peer = second.status().expect("it answers").server;
    let expected = format!("ashlar_peer_up{{peer=\"{peer}\",address=\"{}\"}} 1", second.address);
    assert!(page.lines().any(|line| line == expected), "{expected} is not in {page}");
    second.stop();
    first.stop();
}

/// A cluster whose servers all got other addresses while they were down.
#[test]
fn everybody_moves() {
    let scratch = Scratch::new();
    let (a, b) = (scratch.path("a"), scratch.path("b"));
    let first = TestServer::start(&a, &[], &[]);
    let secret = secret(&a);
    let second = TestServer::start(&b, &["--join", &first.address], &[("ASHLAR_SECRET", &secret)]);
    until("a connection", || is_connected_to(&first, 1) && is_connected_to(&second, 1));
    second.stop();
    first.stop();
    let first = TestServer::start(&a, &[], &[]);
    let second = TestServer::start(&b, &["--join", &first.address], &[("ASHLAR_SECRET", &secret)]);
    until("the mesh at its new addresses", || is_connected_to(&first, 1) && is_connected_to(&second, 1));
    second.stop();
    first.stop();
}
