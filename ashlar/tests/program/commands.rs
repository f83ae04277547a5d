//! What a person gets to read when something is wrong, and the exit code that a script gets.

use std::net::TcpListener;

use super::process::{Running, Scratch, TestServer, check_fails, nobody, run, secret};

#[test]
fn unknown_configuration_key() {
    let scratch = Scratch::new();
    let file = scratch.write("a.toml", "data = \"d\"\nlisen = \"127.0.0.1:1\"\n");
    let expected = format!("{file}:2: unknown key `lisen`; did you mean `listen`?");
    for command in [&["config", "check"][..], &["config", "show"], &["server"]] {
        let mut arguments = command.to_vec();
        arguments.extend(["--config", &file]);
        check_fails(&arguments, &[], 2, &[&expected, "what to do"]);
    }
    check_fails(&["config", "check"], &[("ASHLAR_CONFIG", &file)], 2, &[&expected]);
    check_fails(&["server", "--data", "d"], &[("ASHLAR_LISTN", "x")], 2, &["did you mean ASHLAR_LISTEN?"]);
    check_fails(&["server", "--lisen", "x"], &[], 2, &["--listen"]);
    check_fails(
        &["server", "--config", &scratch.path("absent.toml")],
        &[],
        2,
        &["there is no file", "absent.toml", "--config"],
    );
}

#[test]
fn wrong_and_missing_values() {
    check_fails(&["server"], &[], 2, &["data: missing: give --data"]);
    check_fails(&["server", "--data", "d", "--tls", "maybe"], &[], 2, &["--tls: `maybe`", "on or off"]);
    check_fails(&["server", "--data", "d", "--listen", "0.0.0.0:1"], &[], 2, &["advertise: missing"]);
    check_fails(&["up", "--servers", "0"], &[], 2, &["--servers"]);
    for place in ["127.0.0.1", "127.0.0.1:99999", "[::1]", ":80", ""] {
        for command in [&["status"][..], &["kv", "status"]] {
            check_fails(&[command, &["--addr", place]].concat(), &[], 2, &["--addr", "expected HOST:PORT"]);
        }
    }
}

#[test]
fn configuration_commands() {
    let outcome = run(&["config", "check", "--data", "d"], &[]);
    assert_eq!((outcome.code, outcome.out.as_str()), (Some(0), "the configuration is right"));
    let scratch = Scratch::new();
    let (data, password, drive) = (scratch.path("data"), scratch.write("password", "secret"), scratch.path("drive"));
    let joining = ["config", "check", "--data", &data, "--join", "127.0.0.1:1", "--kv-password-file", &password];
    let missing = format!("the secret of the cluster: there is no {data}/cluster.secret");
    check_fails(&joining, &[], 1, &[&missing]);
    assert_eq!(run(&joining, &[("ASHLAR_SECRET", "whatever")]).code, Some(0));
    let own = format!("{data}/own");
    let drives = ["config", "check", "--data", &data, "--drive-mib", "1024", "--drives", &format!("{drive},{own}")];
    let outcome = run(&drives, &[]);
    assert!(outcome.code == Some(1) && outcome.err.contains(&format!("drives: there is no {drive}")), "{outcome:?}");
    assert!(!outcome.err.contains(&own), "a drive in the data directory is made");
    std::fs::create_dir(&drive).unwrap();
    assert_eq!(run(&drives, &[]).code, Some(0));
    let outcome = run(&["config", "show", "--workers", "3"], &[("ASHLAR_TLS", "off")]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let row =
        |name: &str| outcome.out.lines().find(|line| line.starts_with(name)).map(str::to_owned).unwrap_or_default();
    assert!(row("workers").contains("3") && row("workers").ends_with("--workers"), "{}", outcome.out);
    assert!(row("tls").contains("off") && row("tls").ends_with("ASHLAR_TLS"), "{}", outcome.out);
    let outcome = run(&["config", "reference"], &[]);
    assert!(outcome.code == Some(0) && outcome.out.starts_with("# Configuration"), "{outcome:?}");
    let outcome = run(&["--version"], &[]);
    assert_eq!((outcome.code, outcome.out), (Some(0), format!("ashlar {}", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn port_in_use() {
    let scratch = Scratch::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let expected = format!("port {} of 127.0.0.1 is in use", taken.local_addr().unwrap().port());
    let server = ["server", "--data", &scratch.path("a"), "--listen", &address];
    check_fails(&server, &[], 1, &[&expected, "--port-base"]);
    let port = taken.local_addr().unwrap().port().to_string();
    let up = ["up", "--data", &scratch.path("b"), "--servers", "1", "--port-base", &port];
    check_fails(&up, &[], 1, &[&expected, "is another `ashlar up` running?"]);
}

#[test]
fn unusable_data_directory() {
    let scratch = Scratch::new();
    let file = scratch.write("file", "x");
    check_fails(&["server", "--data", &file], &[], 1, &["cannot use the data directory", "not a directory", "--data"]);
    check_fails(&["server", "--data", "/proc/ashlar"], &[], 1, &["cannot use the data directory", "--data"]);
    check_fails(
        &["up", "--data", &file, "--port-base", "1"],
        &[],
        1,
        &["cannot use the data directory", "not a directory"],
    );
    let foreign = scratch.path("");
    check_fails(&["server", "--data", &foreign], &[], 1, &["is not a data directory of ashlar", "`file`"]);
}

#[test]
fn data_directory_in_use() {
    let scratch = Scratch::new();
    let data = scratch.path("a");
    let server = TestServer::start(&data, &[], &[]);
    check_fails(
        &["server", "--data", &data, "--listen", "127.0.0.1:0"],
        &[],
        1,
        &["is in use by another ashlar server"],
    );
    server.stop();
}

#[test]
fn joining_without_a_secret() {
    let scratch = Scratch::new();
    let arguments = ["server", "--data", &scratch.path("a"), "--listen", "127.0.0.1:0", "--join", &nobody()];
    check_fails(&arguments, &[], 1, &["no secret of the cluster", "cluster.secret", "ASHLAR_SECRET"]);
}

#[test]
fn joining_with_a_wrong_secret() {
    let scratch = Scratch::new();
    let first = TestServer::start(&scratch.path("a"), &[], &[]);
    let data = scratch.path("b");
    let arguments = ["server", "--data", &data, "--listen", "127.0.0.1:0", "--join", &first.address];
    let wrong = "0123456789abcdef".repeat(4);
    let texts = ["the cluster does not let this server in", &first.address, "cluster's own secret"];
    check_fails(&arguments, &[("ASHLAR_SECRET", &wrong)], 1, &texts);
    check_fails(&arguments, &[("ASHLAR_SECRET", "abc")], 1, &["ASHLAR_SECRET holds no cluster secret"]);
    // The same directory joins once the secret is right.
    let secret = secret(&scratch.path("a"));
    let second = TestServer::start(&data, &["--join", &first.address], &[("ASHLAR_SECRET", &secret)]);
    Running::line(&second.process.err, "peer connected");
    second.stop();
    first.stop();
}

#[test]
fn joining_where_nobody_is() {
    let scratch = Scratch::new();
    let (data, address) = (scratch.path("a"), nobody());
    let arguments = ["server", "--data", &data, "--listen", "127.0.0.1:0", "--join", &address, "--join-timeout-s", "1"];
    let expected = format!("no server answered at {address} within 1 s");
    check_fails(&arguments, &[("ASHLAR_SECRET", &"a".repeat(64))], 1, &[&expected, "firewall"]);
}

#[test]
fn joining_without_tls_where_tls_is_on() {
    let scratch = Scratch::new();
    let first = TestServer::start(&scratch.path("a"), &[], &[]);
    let (data, secret) = (scratch.path("b"), secret(&scratch.path("a")));
    let mut arguments = vec!["server", "--data", &data, "--listen", "127.0.0.1:0", "--join", &first.address];
    arguments.extend(["--join-timeout-s", "1", "--tls", "off"]);
    check_fails(&arguments, &[("ASHLAR_SECRET", &secret)], 1, &["speak TLS to each other", "tls = on"]);
    first.stop();
}

#[test]
fn status_of_nobody() {
    let address = nobody();
    check_fails(&["status", "--addr", &address], &[], 1, &[&format!("cannot connect to {address}"), "--addr"]);
}
