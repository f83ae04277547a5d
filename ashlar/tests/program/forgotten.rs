//! Servers that were forgotten while they were away and start again: they are told, get no part and no copy, and can be let in on purpose.

use super::cluster::Node;
use super::process::{Running, get, run, signal, status, until};
use super::upkv::{Up, Wire};

fn health(address: &str) -> String {
    get(address, "/health/ready").map(|answer| String::from_utf8_lossy(&answer.body).into_owned()).unwrap_or_default()
}

fn replication(engine: &str) -> String {
    Wire::new(engine).and_then(|mut wire| wire.ask(&["INFO", "replication"])).unwrap_or_default()
}

#[test]
fn a_server_that_was_forgotten_while_it_was_away_gets_no_copy() {
    let up = Up::new(3);
    let admin = |server: u16| format!("127.0.0.1:{}", up.port + server);
    let gone = status(&admin(2)).expect("it answers");
    let first = format!("{}/server-1", up.data);
    signal(gone.pid, "KILL");
    until("the member to be forgotten", || {
        run(&["forget", &gone.server, "--force", "--addr", &admin(0), "--data", &first], &[]).code == Some(0)
    });
    Running::line(&up.running.out, "server 3 runs again");
    until("it to say so", || health(&admin(2)).contains(r#""status":"forgotten""#));
    let told = run(&["status", "--addr", &admin(2)], &[]).out;
    assert!(told.contains(&format!("forgotten {} was forgotten by the cluster", &gone.server[..8])), "{told}");
    let log = std::fs::read_to_string(format!("{}/server-3.log", up.data)).expect("it has a log");
    assert!(log.contains("ERROR") && log.contains("this server was forgotten by the cluster"), "{log}");

    // Its second engine was a replica of the first server's first.
    assert!(!replication(&up.second(2)).contains("master_link_status:up"));
    for server in 0..2 {
        for engine in [up.first(server), up.second(server)] {
            let online = replication(&engine).lines().filter(|line| line.contains("state=online")).count();
            assert!(online <= 1, "{engine}: {}", replication(&engine));
        }
    }
    assert!(replication(&up.first(0)).contains("connected_slaves:0"), "{}", replication(&up.first(0)));
}

#[test]
fn a_node_that_was_forgotten_long_ago_is_told_and_is_let_in_on_purpose() {
    let mut nodes: Vec<Node> = (0..4).map(|_| Node::with(&["--cluster-blacklist-ttl", "1"])).collect();
    for (number, range) in [["0", "5460"], ["5461", "10922"], ["10923", "16383"]].iter().enumerate() {
        assert_eq!(nodes[number].ask(&[&["CLUSTER", "ADDSLOTSRANGE"][..], range].concat()), "OK");
    }
    for other in &nodes[1..] {
        let meet = ["CLUSTER", "MEET", "127.0.0.1", other.port(), &other.bus_port];
        assert_eq!(nodes[0].ask(&meet), "OK");
    }
    until("all to know each other", || nodes.iter().all(|node| node.is_up(4)));
    let is_copy = |node: &Node| node.ask(&["INFO", "replication"]).contains("master_link_status:up");
    assert_eq!(nodes[3].ask(&["CLUSTER", "REPLICATE", &nodes[0].name()]), "OK");
    until("the replica to have a copy", || is_copy(&nodes[3]));

    let name = nodes[3].name();
    nodes[3].kill();
    until("the node to be forgotten", || nodes[0].ask(&["CLUSTER", "FORGET", &name]) == "OK");
    until("all to have forgotten it", || nodes[..3].iter().all(|node| node.is_up(3)));
    // What they have forgotten outlasts their processes.
    for number in 0..3 {
        let mut running = nodes[number].running.take().expect("it runs");
        running.signal("TERM");
        assert_eq!(running.wait(), Some(0));
        nodes[number].start();
        until("the three to serve", || nodes[..3].iter().all(|node| node.is_up(3)));
    }
    nodes[3].start();
    Running::line(&nodes[3].running.as_ref().expect("it runs").err, "this server was forgotten by the cluster");
    let admin = format!("127.0.0.1:{}", nodes[3].bus_port);
    until("it to say so", || health(&admin).contains(r#""status":"forgotten""#));
    // It may have begun to follow before it was told.
    let has_replica = |node: &Node| !node.ask(&["INFO", "replication"]).contains("connected_slaves:0");
    until("it to follow nobody", || nodes[3].has_role("master") && !has_replica(&nodes[0]));
    assert!(nodes[..3].iter().all(|node| node.is_up(3)), "nobody takes it for a member");

    let meet = ["CLUSTER", "MEET", "127.0.0.1", nodes[3].port(), &nodes[3].bus_port];
    until("it to be let in", || nodes[0].ask(&meet) == "OK" && nodes.iter().all(|node| node.is_up(4)));
    until("it to have a copy again", || is_copy(&nodes[3]));
}
