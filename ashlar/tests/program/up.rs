//! `ashlar up`: start, kill, restart, end.

use super::process::{Running, Scratch, check_fails, get, signal, status, until};
use super::upkv::{Wire, ports};

fn start(data: &str, port: u16, kv_port: u16) -> Running {
    let (port, kv_port) = (port.to_string(), kv_port.to_string());
    let words =
        ["up", "--data", data, "--port-base", &port, "--kv-port", &kv_port, "--drive-mib", "0", "--workers", "1"];
    Running::start(&words, &[])
}

/// A server, from the table.
#[derive(Debug)]
struct Row {
    id: String,
    pid: u32,
    kv: String,
    replica: String,
}

fn table(up: &Running) -> Vec<Row> {
    Running::line(&up.out, "ashlar is up: 3 servers");
    Running::line(&up.out, "server ");
    let rows = (0..3).map(|_| Running::line(&up.out, "127.0.0.1:"));
    let cells = rows.map(|row| row.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    let row = |cells: Vec<String>| Row {
        id: cells[0].clone(),
        pid: cells[1].parse().expect("a process id"),
        kv: cells[3].clone(),
        replica: cells[4].clone(),
    };
    cells.map(row).collect()
}

#[test]
fn starts_restarts_and_stops() {
    let scratch = Scratch::new();
    let (data, port) = (scratch.path("data"), ports(3));
    let mut up = start(&data, port, 0);
    let servers = table(&up);
    assert!(servers.iter().all(|server| server.kv == "-"), "{servers:?}");

    signal(servers[2].pid, "KILL");
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
    let mut again = start(&data, port, 0);
    let ids = |servers: &[Row]| servers.iter().map(|server| server.id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&table(&again)), ids(&servers));

    // No server outlives the program that watches it.
    again.signal("KILL");
    assert_eq!(again.wait(), None);
    until("the servers' end", || {
        (0..3).all(|more| get(&format!("127.0.0.1:{}", port + more), "/health/live").is_none())
    });
}

#[test]
fn ports_of_both_engines_are_shown_and_must_be_free() {
    let scratch = Scratch::new();
    let (data, port, kv_port, replica_port) = (scratch.path("data"), ports(3), ports(3), ports(3));
    let words = [port, kv_port, replica_port].map(|port| port.to_string());
    let [port, kv, replica] = words.each_ref().map(String::as_str);
    let ports =
        ["--port-base", port, "--kv-port", kv, "--kv-replica-port", replica, "--drive-mib", "0", "--workers", "1"];
    let mut up = Running::start(&[&["up", "--data", &data], &ports[..]].concat(), &[]);
    for (number, server) in table(&up).iter().enumerate() {
        let places = [kv_port, replica_port].map(|port| format!("127.0.0.1:{}", usize::from(port) + number));
        assert_eq!([&server.kv, &server.replica], places.each_ref());
    }
    let expected = [&format!("port {kv_port} of 127.0.0.1 is in use"), "--kv-port (0 for none)", "Redis or Valkey"];
    let other = ["up", "--data", &scratch.path("other"), "--port-base", "65000", "--drive-mib", "0", "--kv-port"];
    check_fails(&[&other[..], &[kv]].concat(), &[], 1, &expected);
    let server = ["server", "--data", &scratch.path("more"), "--listen", "127.0.0.1:0"];
    check_fails(&server, &[("ASHLAR_KV_PORT", kv)], 1, &expected[..2]);
    let expected = [&format!("port {replica_port} of 127.0.0.1 is in use"), "--kv-replica-port"];
    let free = super::process::nobody();
    let free = free.rsplit(':').next().expect("an address has a port");
    check_fails(&[&other[..], &[free, "--kv-replica-port", replica]].concat(), &[], 1, &expected);
    let more = [("ASHLAR_KV_PORT", free), ("ASHLAR_KV_REPLICA_PORT", replica)];
    check_fails(&server, &more, 1, &expected);
    up.signal("INT");
    assert_eq!(up.wait(), Some(0));
}

#[test]
fn servers_get_the_variables_that_mean_the_same_at_each_and_a_person_hears_of_others() {
    let scratch = Scratch::new();
    let (data, password, port, kv) = (scratch.path("data"), scratch.path("password"), ports(1), ports(1));
    std::fs::write(&password, "open sesame\n").expect("the directory is there");
    let kv_address = format!("127.0.0.1:{kv}");
    let (port, kv) = (port.to_string(), kv.to_string());
    let words = ["up", "--data", &data, "--servers", "1", "--port-base", &port, "--kv-port", &kv, "--workers", "1"];
    let variables =
        [("ASHLAR_KV_PASSWORD_FILE", password.as_str()), ("ASHLAR_WORKERS", "many"), ("ASHLAR_ADMIN_TOKEN", "t")];
    check_fails(&words, &[("ASHLAR_VOTERS_MAX", "many")], 2, &["ASHLAR_VOTERS_MAX: `many` is not what is expected"]);
    check_fails(&words, &[("ASHLAR_VOTER_MAX", "3")], 2, &["did you mean ASHLAR_VOTERS_MAX?"]);
    check_fails(&words, &[("ASHLAR_KV_PASSWORD_FILE", &scratch.path("none"))], 2, &["there is no such file"]);
    assert!(!std::fs::exists(&data).expect("it can be looked at"), "what is refused has written nothing");
    let mut up = Running::start(&words, &variables);
    let remark = Running::line(&up.err, "do not get");
    let (got, others) = (remark.contains("ASHLAR_KV_PASSWORD_FILE"), remark.contains("ASHLAR_ADMIN_TOKEN"));
    assert!(remark.contains("ASHLAR_WORKERS") && !got && !others, "{remark}");
    Running::line(&up.out, "ashlar is up: 1 servers");
    let mut wire = Wire::new(&kv_address).expect("the engine listens");
    assert_eq!(wire.ask(&["PING"]).as_deref(), Some("NOAUTH Authentication required."));
    assert_eq!(wire.ask(&["AUTH", "open sesame"]).as_deref(), Some("OK"));
    let told = wire.ask(&["CLUSTER", "INFO"]).expect("an answer");
    assert!(told.contains("cluster_slots_assigned:16384"), "`up` has used the password, too: {told}");
    up.signal("INT");
    assert_eq!(up.wait(), Some(0));
}

/// Whether a line shows a value as Rust writes it for its own people: `Name(..` or `Name { ..`.
fn shows_rust(line: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut words = line.split(|letter: char| !is_letter(letter) && letter != '(' && letter != '{').peekable();
    let is_name = |word: &str| word.starts_with(|letter: char| letter.is_ascii_uppercase()) && word.len() > 1;
    let mut before = "";
    words.any(|word| {
        let calls = word.split_once('(').is_some_and(|(name, _)| is_name(name) && name.chars().any(char::is_lowercase));
        let opens = word.starts_with('{') && is_name(before) && before.chars().any(char::is_lowercase);
        before = word;
        calls || opens
    })
}

#[test]
fn logs_of_an_everyday_start_join_and_stop_warn_of_nothing() {
    for line in
        ["upstream=Server { id: ServerId(65cb), host: \"h\" }", "by=Quorum { reports: 2 }", "point=Some((1, 2))"]
    {
        assert!(shows_rust(line), "{line}");
    }
    for line in ["reason=\"Connection refused (os error 111)\"", "INFO ashlar_node: peer connected {x}", "(DB) loaded"]
    {
        assert!(!shows_rust(line), "{line}");
    }
    let scratch = Scratch::new();
    let (data, port, kv) = (scratch.path("data"), ports(3), ports(3));
    // A first start, and one that finds everything there; the second as JSON.
    for format in ["text", "json"] {
        let (port, kv) = (port.to_string(), kv.to_string());
        let words =
            ["up", "--data", &data, "--port-base", &port, "--kv-port", &kv, "--drive-mib", "0", "--workers", "1"];
        let mut up = Running::start(&words, &[("ASHLAR_LOG_FORMAT", format)]);
        Running::line(&up.out, "ashlar is up: 3 servers");
        up.signal("INT");
        assert_eq!(up.wait(), Some(0));
    }
    for server in 1..=3 {
        let log = std::fs::read_to_string(format!("{data}/server-{server}.log")).expect("each server has a log");
        assert!(log.matches("server stopped").count() == 2, "{log}");
        for line in log.lines() {
            assert!(!line.contains("WARN") && !line.contains("ERROR") && !shows_rust(line), "server {server}: {line}");
            let Ok(json) = serde_json::from_str::<serde_json::Value>(line) else { continue };
            for (name, value) in json["fields"].as_object().expect("a line has fields") {
                let is_number = value.as_str().is_some_and(|text| text.parse::<i64>().is_ok());
                assert!(!is_number, "`{name}` is a number written as a text: {line}");
            }
        }
        assert!(log.contains("\"message\":\"server started\""), "the second start logs JSON: {log}");
    }
}
