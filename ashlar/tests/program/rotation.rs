//! The cluster's secret is replaced while the cluster runs.

use std::path::Path;
use std::sync::Arc;

use ashlar::os::datadir::Token;
use ashlar::os::runtime::OsRuntime;
use ashlar::os::workers::Workers;
use ashlar_grid::config::GridConfig;
use ashlar_grid::handler::{HandlerId, Handlers, Method, Packed};
use ashlar_grid::seam::Lane;
use ashlar_grid::status::PeerState;
use ashlar_grid::{CallOptions, Grid};
use ashlar_node::status::ServerStatus;
use ashlar_wire::id::{Incarnation, ServerId};
use serde::{Deserialize, Serialize};

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
    run(&[&["secret", "rotate", "--addr", &server.address, "--data", &server.data], more].concat(), &[])
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
    let outcome = rotate(&servers[1], &[]);
    assert!(outcome.code == Some(0) && outcome.out.contains("is finished: 2 servers"), "{outcome:?}");
    assert_eq!(secret(&scratch.path("0")).trim(), format!("{cluster}.{}", "7".repeat(64)));

    // A server that has not got the newer secret takes it back everywhere, and gives all another one.
    servers.remove(1).stop();
    give(&scratch.path("1"), &format!("{cluster}.{}.{}", "8".repeat(64), "7".repeat(64)));
    servers.push(TestServer::start(&scratch.path("1"), &[], &[]));
    until_a_mesh(&servers);
    let outcome = rotate(&servers[0], &[]);
    assert!(outcome.code == Some(0) && outcome.out.contains("was replaced: 2 servers"), "{outcome:?}");
    let held = secret(&scratch.path("0"));
    assert_eq!(held, secret(&scratch.path("1")));
    assert!(!held.contains(&"7".repeat(64)) && !held.contains(&"8".repeat(64)), "{held}");
    servers.into_iter().for_each(TestServer::stop);
}

#[test]
fn without_tls_no_secret_travels() {
    let scratch = Scratch::new();
    let servers = start(&scratch, 2, &["--tls", "off"]);
    let before = keys(&servers[0]);
    let outcome = rotate(&servers[0], &[]);
    assert!(outcome.code == Some(1) && outcome.err.contains("turn tls on"), "{outcome:?}");
    // Nor does a server take one that somebody sends it.
    let answers = stranger(&servers[1], false);
    assert!(
        answers.iter().all(|answer| answer.as_ref().is_err_and(|why| why.contains("not encrypted"))),
        "{answers:?}"
    );
    assert!(servers.iter().all(|server| keys(server) == before));
    servers.into_iter().for_each(TestServer::stop);
}

#[derive(Serialize, Deserialize)]
enum Told {
    Reserve,
    Hold(String),
    Keep(u64),
}

#[derive(Serialize, Deserialize)]
enum Step {
    Take((String, u64, u64), Told),
}

struct TakeStep;

impl Method for TakeStep {
    const ID: HandlerId = HandlerId::new(11);
    const IDEMPOTENT: bool = false;
    type Request = Packed<Step>;
    type Reply = Packed<Result<Vec<u64>, String>>;
}

/// Somebody with the cluster's secret who is no member sends a server the steps of a rotation to a secret of its own; what
/// the server answers.
fn stranger(server: &TestServer, is_tls: bool) -> Vec<Result<Vec<u64>, String>> {
    let token = Token::parse(&secret(&server.data)).expect("a secret");
    let workers = Workers::start(1).expect("a thread");
    let runtime = Arc::new(OsRuntime::new(Lane::Small, workers.handles.clone(), is_tls));
    let own = ServerId::from_bytes([0xee; 16]);
    let config = GridConfig::new(token.cluster, own, Incarnation(1), "127.0.0.1:1".into(), token.secrets);
    let grid = Grid::new(runtime, config, Handlers::new(), |_| {});
    grid.add_peer(&server.address);
    let ServerStatus { server: id, .. } = server.status().expect("it answers");
    let id: ServerId = id.parse().expect("an id");
    until("the stranger to be connected", || {
        grid.peers().iter().any(|peer| peer.id == Some(id) && peer.state == PeerState::Connected)
    });
    let steps = [Told::Reserve, Told::Hold("5".repeat(64)), Told::Keep(5)];
    let answers = steps.into_iter().map(|told| {
        let step = Packed(Step::Take((own.to_string(), 1, 15_000), told));
        let grid = grid.clone();
        ashlar::os::block_on(async move {
            let Packed(answer) = grid.call::<TakeStep>(id, &step, CallOptions::default()).await.expect("it answers");
            answer
        })
        .expect("there is a runtime")
    });
    let answers = answers.collect();
    workers.stop();
    answers
}

#[test]
fn steps_of_a_rotation_come_from_members_only() {
    let scratch = Scratch::new();
    let server = TestServer::start(&scratch.path("0"), &[], &[]);
    let before = keys(&server);
    let answers = stranger(&server, true);
    assert!(answers.iter().all(|answer| answer.as_ref().is_err_and(|why| why.contains("no member"))), "{answers:?}");
    assert_eq!(keys(&server), before);
    server.stop();
}

/// Three servers of one cluster are asked at the same time, again and again: whatever each says, one secret is left.
#[test]
fn rotations_at_the_same_time_leave_one_secret() {
    let scratch = Scratch::new();
    let servers = start(&scratch, 3, &[]);
    for _ in 0..3 {
        let asked: Vec<super::process::Running> = servers
            .iter()
            .map(|server| {
                let arguments = ["secret", "rotate", "--addr", &server.address, "--data", &server.data];
                super::process::Running::start(&arguments, &[])
            })
            .collect();
        for mut asking in asked {
            assert!(asking.wait().is_some(), "it ends by itself");
        }
        assert!(servers.iter().all(|server| server.status().is_some_and(|status| status.connected() == 2)));
    }
    // Whatever was left unfinished, one of them can finish; a reservation of somebody who gave up has ended.
    until("one secret everywhere", || {
        let _ = servers.iter().find(|server| rotate(server, &[]).code == Some(0));
        let held: Vec<Vec<String>> = servers.iter().map(keys).collect();
        held[0].len() == 1 && held.iter().all(|keys| *keys == held[0])
    });
    until_a_mesh(&servers);
    servers.into_iter().for_each(TestServer::stop);
}
