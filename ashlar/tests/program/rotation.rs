//! The cluster's secret is replaced while the cluster runs.

use std::path::Path;

use super::process::{Outcome, Scratch, TestServer, check_fails, run, secret, until};

/// Servers `0`, `1`, ... that are members of one cluster, each with a secret file of its own.
fn start(scratch: &Scratch, count: usize, arguments: &[&str]) -> Vec<TestServer> {
    let mut servers = vec![TestServer::start(&scratch.path("0"), arguments, &[])];
    let token = secret(&scratch.path("0"));
    for number in 1..count {
        let data = scratch.path(&number.to_string());
        give(&data, &token);
        let join = servers[0].address.clone();
        servers.push(TestServer::start(&data, &[arguments, &["--join", &join]].concat(), &[]));
    }
    until_a_mesh(&servers);
    servers
}

fn give(data: &str, token: &str) {
    std::fs::create_dir_all(data).expect("the scratch directory can be written");
    std::fs::write(Path::new(data).join("cluster.secret"), token).expect("the scratch directory can be written");
}

fn until_a_mesh(servers: &[TestServer]) {
    let others = servers.len() - 1;
    until("a mesh of members", || {
        servers.iter().all(|server| {
            server.status().is_some_and(|status| {
                let members = status.bus.members.iter().filter(|member| member.state.name() == "alive").count();
                status.connected() == others && members == servers.len()
            })
        })
    });
}

fn rotate(server: &TestServer, more: &[&str]) -> Outcome {
    run(&[&["secret", "rotate", "--addr", &server.address], more].concat(), &[])
}

fn keys(server: &TestServer) -> Vec<String> {
    server.status().expect("it answers").secrets
}

fn connects(server: &TestServer) -> u64 {
    server.status().expect("it answers").peers.iter().map(|peer| peer.connects).sum()
}

#[test]
fn all_servers_take_the_new_secret_and_keep_their_connections() {
    let scratch = Scratch::new();
    let mut servers = start(&scratch, 3, &[]);
    let (old, before) = (secret(&scratch.path("0")), keys(&servers[0]));
    let connects_before: Vec<u64> = servers.iter().map(connects).collect();
    let cluster = servers[0].status().expect("it answers").cluster;

    let outcome = rotate(&servers[1], &[]);
    assert!(outcome.code == Some(0) && outcome.out.contains("the secret was replaced: 3 servers"), "{outcome:?}");
    let after = keys(&servers[0]);
    assert!(after.len() == 1 && after != before, "{before:?} {after:?}");
    for (number, server) in servers.iter().enumerate() {
        assert_eq!(keys(server), after);
        let token = secret(&scratch.path(&number.to_string()));
        assert!(token.starts_with(&format!("{cluster}.")) && token.matches('.').count() == 1, "server {number}");
    }
    let connects_after: Vec<u64> = servers.iter().map(connects).collect();
    assert_eq!(connects_after, connects_before, "no connection was made again");

    // Whoever has only the old secret stays outside; with the new one it is of the same cluster.
    let stranger = scratch.path("stranger");
    give(&stranger, &old);
    let join = servers[0].address.clone();
    let arguments = ["server", "--data", &stranger, "--listen", "127.0.0.1:0", "--join", &join];
    check_fails(&arguments, &[], 1, &["does not let this server in", "cluster.secret"]);
    let data = scratch.path("3");
    give(&data, &secret(&scratch.path("2")));
    servers.push(TestServer::start(&data, &["--join", &join], &[]));
    until_a_mesh(&servers);

    // The next life of a server reads the new secret from its file.
    servers.remove(1).stop();
    servers.push(TestServer::start(&scratch.path("1"), &[], &[]));
    until_a_mesh(&servers);
    assert_eq!(keys(&servers[3]), after);
    servers.into_iter().for_each(TestServer::stop);
}

#[test]
fn a_secret_that_cannot_be_kept_everywhere_is_not_replaced() {
    let scratch = Scratch::new();
    let mut servers = start(&scratch, 2, &[]);
    let token = secret(&scratch.path("0"));
    let environment = [("ASHLAR_SECRET", token.as_str())];
    let join = servers[0].address.clone();
    servers.push(TestServer::start(&scratch.path("2"), &["--join", &join], &environment));
    until_a_mesh(&servers);
    let before = keys(&servers[0]);
    let outcome = rotate(&servers[0], &[]);
    assert!(outcome.code == Some(1) && outcome.err.contains("ASHLAR_SECRET"), "{outcome:?}");
    assert!(servers.iter().all(|server| keys(server) == before), "everybody went back");

    // A member that is away would be locked out.
    let gone = servers.remove(2).status().expect("it answers").server;
    until("the loss to be seen", || {
        servers.iter().all(|server| server.status().is_some_and(|status| status.connected() == 1))
    });
    let outcome = rotate(&servers[0], &[]);
    assert!(outcome.code == Some(1) && outcome.err.contains(&gone), "{outcome:?}");
    let outcome = rotate(&servers[0], &["--force"]);
    assert!(outcome.code == Some(0) && outcome.out.contains(&gone), "{outcome:?}");
    assert!(servers.iter().all(|server| keys(server).len() == 1 && keys(server) != before));
    // With the new file it comes back as who it was.
    let token = secret(&scratch.path("1"));
    servers.push(TestServer::start(&scratch.path("2"), &[], &[("ASHLAR_SECRET", &token)]));
    until_a_mesh(&servers);
    assert_eq!(servers[2].status().expect("it answers").server, gone);
    servers.into_iter().for_each(TestServer::stop);
}

/// One server holds both, as if whoever led had stopped in between.
#[test]
fn a_rotation_that_broke_off_is_finished_by_who_is_ahead() {
    let scratch = Scratch::new();
    let mut servers = start(&scratch, 2, &[]);
    let (cluster, old) = (servers[0].status().expect("it answers").cluster, secret(&scratch.path("0")));
    servers.remove(1).stop();
    give(&scratch.path("1"), &format!("{cluster}.{}.{}", "7".repeat(64), old.trim()));
    servers.push(TestServer::start(&scratch.path("1"), &[], &[]));
    until_a_mesh(&servers);
    assert_eq!(keys(&servers[1]).len(), 2);
    let outcome = rotate(&servers[0], &[]);
    assert!(outcome.code == Some(1) && outcome.err.contains("ask that server"), "{outcome:?}");
    let outcome = rotate(&servers[1], &[]);
    assert!(outcome.code == Some(0) && outcome.out.contains("is finished: 2 servers"), "{outcome:?}");
    assert_eq!(secret(&scratch.path("0")).trim(), format!("{cluster}.{}", "7".repeat(64)));
    servers.into_iter().for_each(TestServer::stop);
}

#[test]
fn without_tls_no_secret_travels() {
    let scratch = Scratch::new();
    let servers = start(&scratch, 2, &["--tls", "off"]);
    let before = keys(&servers[0]);
    let outcome = rotate(&servers[0], &[]);
    assert!(outcome.code == Some(1) && outcome.err.contains("turn tls on"), "{outcome:?}");
    assert!(servers.iter().all(|server| keys(server) == before));
    servers.into_iter().for_each(TestServer::stop);
}
