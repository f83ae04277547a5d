//! What was set at the engines of servers lasts: a database that was closed stays closed, whatever becomes of its servers.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::process::{Running, Scratch, TestServer, check_fails, run, signal, until};
use super::upkv::{Up, Wire, ports};

const SERVERS: u16 = 3;
const PASSWORD: &str = "first secret";
const OTHER_PASSWORD: &str = "another secret";

/// What an engine answers to who has said this password.
fn ask_with(address: &str, password: &str, words: &[&str]) -> Option<String> {
    let mut wire = Wire::new(address)?;
    wire.ask(&["AUTH", password]).filter(|reply| reply == "OK")?;
    wire.ask(words)
}

/// Both engines of all servers.
fn engines(up: &Up) -> Vec<String> {
    (0..SERVERS).flat_map(|server| [up.first(server), up.second(server)]).collect()
}

/// Whether an engine does nothing for who says no password, or that one, and lets in who says this.
fn is_closed(address: &str, password: &str) -> bool {
    let stranger = Wire::new(address).and_then(|mut wire| wire.ask(&["PING"]));
    let stranger = stranger.is_some_and(|reply| reply.starts_with("NOAUTH"));
    stranger && ask_with(address, password, &["PING"]).as_deref() == Some("PONG")
}

/// Whether all groups have a primary and a replica that has what its primary has.
fn is_whole(up: &Up, password: &str) -> bool {
    let outcome = run(&["kv", "status", "--json", "--addr", &up.first(0)], &[("ASHLAR_KV_PASSWORD", password)]);
    let Ok(status) = serde_json::from_str::<serde_json::Value>(&outcome.out) else { return false };
    let groups = status["groups"].as_array().cloned().unwrap_or_default();
    let is_online = |member: &serde_json::Value| member["state"] == "online";
    status["slots_served"] == 16_384
        && groups.len() == usize::from(SERVERS)
        && groups.iter().all(|group| {
            let replicas = group["replicas"].as_array().cloned().unwrap_or_default();
            is_online(&group["primary"]) && replicas.iter().filter(|replica| is_online(replica)).count() == 1
        })
}

#[test]
fn a_closed_database_stays_closed_and_replicas_follow_after_all_servers_were_killed() {
    let up = Up::new(SERVERS);
    let scratch = Scratch::new();
    let file = scratch.write("password", &format!("{PASSWORD}\n"));
    let outcome = run(&["kv", "password", "--addr", &up.first(0), "--file", &file], &[]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.out.contains("holds at 6 of 6 engines"), "{outcome:?}");
    engines(&up).iter().for_each(|engine| assert!(is_closed(engine, PASSWORD), "{engine}"));
    check_fails(&["kv", "status", "--addr", &up.first(0)], &[], 1, &["NOAUTH", "ASHLAR_KV_PASSWORD"]);
    let set = ["CONFIG", "SET", "appendfsync", "always", "maxmemory", "1gb"];
    assert_eq!(ask_with(&up.first(0), PASSWORD, &set).as_deref(), Some("OK"));
    let user = ["ACL", "SETUSER", "bob", "on", ">pw", "~b:*", "+@read"];
    assert_eq!(ask_with(&up.second(1), PASSWORD, &user).as_deref(), Some("OK"));
    let has_bob = |engine: &String| {
        let users = ask_with(engine, PASSWORD, &["ACL", "USERS"]);
        users.is_some_and(|users| users == "bob default")
    };
    until("all to know the user", || engines(&up).iter().all(has_bob));

    let pids: Vec<u32> = (0..SERVERS).map(|server| up.pid(server)).collect();
    pids.iter().for_each(|pid| signal(*pid, "KILL"));
    for _ in 0..SERVERS {
        Running::line(&up.running.out, "runs again");
    }
    for engine in &engines(&up) {
        until("the engine to answer", || Wire::new(engine).is_some());
        assert!(is_closed(engine, PASSWORD), "{engine} is open, or does not know its password");
        assert!(has_bob(engine), "{engine}");
    }
    for engine in [up.first(0), up.second(0)] {
        for (name, value) in [("appendfsync", "always"), ("maxmemory", "1073741824"), ("requirepass", PASSWORD)] {
            let shown = ask_with(&engine, PASSWORD, &["CONFIG", "GET", name]);
            assert_eq!(shown, Some(format!("{name} {value}")), "{engine}");
        }
        for done in [["CONFIG", "REWRITE"], ["ACL", "SAVE"], ["ACL", "LOAD"]] {
            assert_eq!(ask_with(&engine, PASSWORD, &done).as_deref(), Some("OK"), "{done:?}");
        }
    }
    until("replicas to follow", || is_whole(&up, PASSWORD));
}

#[test]
fn a_server_that_was_away_is_named_and_takes_the_password_over() {
    let up = Up::new(SERVERS);
    let scratch = Scratch::new();
    let first = scratch.write("first", PASSWORD);
    let other = scratch.write("other", OTHER_PASSWORD);
    let asked = ["kv", "password", "--addr", &up.first(0)];
    assert_eq!(run(&[&asked[..], &["--file", &first]].concat(), &[]).code, Some(0));
    // Without the present password nobody sets another one.
    check_fails(&[&asked[..], &["--file", &other]].concat(), &[], 1, &["NOAUTH", "--password-file"]);
    let away = up.pid(2);
    signal(away, "STOP");
    let outcome = run(&[&asked[..], &["--file", &other, "--password-file", &first]].concat(), &[]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.err.contains("2 of 6 engines did not get it"), "{outcome:?}");
    assert!(outcome.err.contains(&up.first(2)) && outcome.err.contains(&up.second(2)), "{outcome:?}");
    assert!((0..2).all(|server| is_closed(&up.first(server), OTHER_PASSWORD)));
    signal(away, "CONT");
    until("the server to take it over", || {
        [up.first(2), up.second(2)].iter().all(|engine| is_closed(engine, OTHER_PASSWORD))
    });
    until("replicas to follow", || is_whole(&up, OTHER_PASSWORD));

    let environment = [("ASHLAR_KV_PASSWORD", OTHER_PASSWORD)];
    let outcome = run(&[&asked[..], &["--remove"]].concat(), &environment);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let is_open =
        |engine: &String| Wire::new(engine).and_then(|mut wire| wire.ask(&["PING"])).as_deref() == Some("PONG");
    assert!(engines(&up).iter().all(is_open));
}

#[test]
fn a_damaged_file_of_settings_starts_nothing_open() {
    let scratch = Scratch::new();
    let (data, password) = (scratch.path("data"), scratch.write("password", PASSWORD));
    let port = ports(2);
    let (kv, replica, engine) = (port.to_string(), (port + 1).to_string(), format!("127.0.0.1:{port}"));
    let arguments = ["--kv-port", &kv, "--kv-replica-port", &replica, "--kv-password-file", &password];
    let server = TestServer::start(&data, &arguments, &[]);
    assert!(is_closed(&engine, PASSWORD), "the password of the configuration holds from the first start on");
    let set = ["CONFIG", "SET", "requirepass", OTHER_PASSWORD];
    assert_eq!(ask_with(&engine, PASSWORD, &set).as_deref(), Some("OK"));
    server.stop();
    let server = TestServer::start(&data, &arguments, &[]);
    assert!(is_closed(&engine, OTHER_PASSWORD), "what was set since is stronger than the configuration");
    server.stop();

    let file = format!("{data}/kv.settings");
    let text = std::fs::read_to_string(&file).expect("the settings are there");
    assert!(!text.is_empty());
    std::fs::write(&file, &text[..text.len() / 2]).expect("it can be written");
    let start = ["server", "--data", &data, "--listen", "127.0.0.1:0", "--workers", "1"];
    check_fails(&[&start[..], &arguments].concat(), &[], 1, &["kv.settings cannot be used", "restore the file"]);
}

/// Answers requests on one connection until its client leaves: the table of nodes is what `table` says, everything else is done.
fn answer(stream: &TcpStream, table: &dyn Fn() -> String) -> Option<()> {
    let (mut reader, mut writer) = (BufReader::new(stream), stream);
    let mut line = || {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|len| *len > 0).map(|_| line.trim_end().to_owned())
    };
    loop {
        let count: usize = line()?.strip_prefix('*')?.parse().ok()?;
        let words = (0..count).map(|_| line().and_then(|_| line())).collect::<Option<Vec<String>>>()?;
        let reply = if words[0] == "CLUSTER" { table() } else { String::new() };
        let reply = if reply.is_empty() { "+OK\r\n".to_owned() } else { format!("${}\r\n{reply}\r\n", reply.len()) };
        writer.write_all(reply.as_bytes()).ok()?;
    }
}

#[test]
fn the_table_is_read_again_until_all_ports_are_known() {
    let (scratch, asked) = (Scratch::new(), Arc::new(AtomicUsize::new(0)));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (counter, port) = (Arc::clone(&asked), address.port());
    #[allow(clippy::disallowed_methods, reason = "an engine beside the test")]
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let counter = Arc::clone(&counter);
            let table = move || {
                let late = if counter.fetch_add(1, Ordering::Relaxed) < 3 { 0 } else { port };
                format!(
                    "aa 127.0.0.1:{port}@1 myself,master - 0 0 1 connected\nbb 127.0.0.1:{late}@1 master - 0 0 2 connected\n"
                )
            };
            #[allow(clippy::disallowed_methods, reason = "each of its connections")]
            std::thread::spawn(move || answer(&stream, &table));
        }
    });
    let file = scratch.write("password", PASSWORD);
    let outcome = run(&["kv", "password", "--addr", &address.to_string(), "--file", &file], &[]);
    assert!(outcome.out.contains("the password holds at 2 of 2 engines"), "{outcome:?}");
    assert_eq!((outcome.code, asked.load(Ordering::Relaxed)), (Some(0), 4), "{outcome:?}");
}
