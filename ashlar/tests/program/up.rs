//! `ashlar up`: start, kill, restart, end.

use std::net::TcpListener;

use super::process::{Running, Scratch, get, signal, status, until};

/// The first of three free ports in a row.
fn port_base() -> u16 {
    let find = || {
        let first = TcpListener::bind("127.0.0.1:0").ok()?;
        let port = first.local_addr().ok()?.port();
        let others = (1..3).map(|more| TcpListener::bind(("127.0.0.1", port.checked_add(more)?)).ok());
        others.collect::<Option<Vec<_>>>().map(|_| port)
    };
    (0..1_000).find_map(|_| find()).expect("there are three free ports in a row")
}

fn start(data: &str, port: u16) -> Running {
    Running::start(&["up", "--data", data, "--port-base", &port.to_string(), "--workers", "1"], &[])
}

/// The id and process id of each server, from the table.
fn table(up: &Running) -> Vec<(String, u32)> {
    Running::line(&up.out, "ashlar is up: 3 servers");
    Running::line(&up.out, "server ");
    let rows = (0..3).map(|_| Running::line(&up.out, "127.0.0.1:"));
    let cells = rows.map(|row| row.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    cells.map(|cells| (cells[0].clone(), cells[1].parse().expect("a process id"))).collect()
}

#[test]
fn starts_restarts_and_stops() {
    let scratch = Scratch::new();
    let (data, port) = (scratch.path("data"), port_base());
    let mut up = start(&data, port);
    let servers = table(&up);

    signal(servers[2].1, "KILL");
    Running::line(&up.out, "server 3 (pid ");
    Running::line(&up.out, "server 3 runs again");
    let address = format!("127.0.0.1:{}", port + 2);
    until("the third server's next life", || {
        status(&address).is_some_and(|status| status.incarnation == 2 && status.connected() == 2)
    });
    up.signal("INT");
    assert_eq!(up.wait(), Some(0));
    assert!(get(&address, "/health/live").is_none(), "no server outlives an orderly end");

    // The same data again: the same servers.
    let mut again = start(&data, port);
    let ids = |servers: &[(String, u32)]| servers.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&table(&again)), ids(&servers));

    // No server outlives the program that watches it.
    again.signal("KILL");
    assert_eq!(again.wait(), None);
    until("the servers' end", || {
        (0..3).all(|more| get(&format!("127.0.0.1:{}", port + more), "/health/live").is_none())
    });
}
