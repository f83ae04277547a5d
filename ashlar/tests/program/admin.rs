//! The admin API: who may change something, and that a flood of connections does not blind those who watch.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use ashlar::os::http::{self, Target};
use ashlar::os::{self, process};

use super::process::{Running, Scratch, TestServer, check_fails, get, run, until};
use super::upkv::ports;

/// No answer takes longer, whatever else the machine does; what is read after it is not judged by time.
const ANSWER_MAX: Duration = Duration::from_secs(60);

const NOBODY: &str = "/v1/members/000102030405060708090a0b0c0d0e0f";

fn token(server: &TestServer) -> String {
    let text = std::fs::read_to_string(Path::new(&server.data).join("admin.token"));
    text.expect("the server makes it").trim().to_owned()
}

/// The status of an answer to this method with this token.
fn ask(server: &TestServer, method: &str, path: &str, token: Option<String>) -> u16 {
    let target = Target { address: server.address.clone(), token, ..Target::default() };
    let answer = os::block_on(async {
        match method {
            "DELETE" => http::delete(&target, path).await,
            "PUT" => http::put(&target, path).await,
            _ => http::get(&target, path).await,
        }
    });
    answer.expect("there is a runtime").expect("it answers").status
}

/// The first line of the answer to a request with this `Host`.
fn with_host(server: &TestServer, path: &str, host: &str) -> String {
    let mut stream = TcpStream::connect(&server.address).expect("it listens");
    stream.set_read_timeout(Some(ANSWER_MAX)).expect("a socket");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn a_change_needs_the_token_from_this_machine_too() {
    let scratch = Scratch::new();
    let server = TestServer::start(&scratch.path("0"), &[], &[]);
    let secret = super::process::secret(&server.data);
    for (method, path) in [("DELETE", NOBODY), ("DELETE", &format!("{NOBODY}?force")), ("PUT", "/v1/secret?force")] {
        assert_eq!(ask(&server, method, path, None), 401, "{method} {path}");
        assert_eq!(ask(&server, method, path, Some("0123456789abcdef".repeat(4))), 401, "{method} {path}");
        assert_eq!(ask(&server, method, path, Some(String::new())), 401, "{method} {path}");
    }
    assert_eq!(super::process::secret(&server.data), secret, "nothing was replaced");
    assert_eq!(ask(&server, "DELETE", NOBODY, Some(token(&server))), 404, "with the token it is looked for");
    assert_eq!(ask(&server, "GET", "/v1/status", None), 200, "this machine may read");
    let page = String::from_utf8(get(&server.address, "/metrics").expect("it answers").body).expect("text");
    assert!(page.contains("ashlar_admin_refused_total{reason=\"token\"} 6\n"), "counted: {page}");

    // The command says what it lacks, and finds the token in the data directory.
    let rotate = ["secret", "rotate", "--addr", &server.address];
    check_fails(&rotate, &[], 1, &["admin.token", "--data DIR"]);
    let outcome = run(&[&rotate[..], &["--data", &server.data]].concat(), &[]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_ne!(super::process::secret(&server.data), secret);
    server.stop();
}

#[test]
fn a_change_with_odd_words_is_refused() {
    let scratch = Scratch::new();
    let server = TestServer::start(&scratch.path("0"), &[], &[]);
    let (own, secret) = (token(&server), super::process::secret(&server.data));
    let asked = |method: &str, path: &str| ask(&server, method, path, Some(own.clone()));
    for query in ["force=true", "force=false", "FORCE", "force&x", "%66orce"] {
        assert_eq!(asked("PUT", &format!("/v1/secret?{query}")), 400, "{query}");
        assert_eq!(asked("DELETE", &format!("{NOBODY}?{query}")), 400, "{query}");
    }
    for name in ["", "x", "0", "..", "%00", "00010203-0405-0607-0809-0a0b0c0d0e0f", &"0".repeat(33), &"f".repeat(8_000)]
    {
        assert_eq!(asked("DELETE", &format!("/v1/members/{name}")), 400, "{name}");
    }
    for (method, path, status) in [
        ("PUT", NOBODY, 405),
        ("DELETE", "/v1/secret", 405),
        ("GET", "/v1/secret", 405),
        ("PUT", "/v1/status", 405),
        ("PUT", "/v1/secret/", 404),
        ("PUT", "//v1/secret", 404),
        ("PUT", "/v1/SECRET", 404),
    ] {
        assert_eq!(asked(method, path), status, "{method} {path}");
    }
    assert_eq!(super::process::secret(&server.data), secret, "nothing was replaced");
    assert_eq!(ask(&server, "GET", "/v1/status", None), 200);
    server.stop();
}

#[test]
fn a_foreign_host_is_refused() {
    let scratch = Scratch::new();
    let server = TestServer::start(&scratch.path("0"), &[], &[]);
    for path in ["/v1/status", "/v1/mesh", "/health/cluster", "/metrics"] {
        for host in ["evil.example", "evil.example:7800", "127.0.0.1.evil.example"] {
            assert!(with_host(&server, path, host).contains(" 421 "), "{host}{path}");
        }
        for host in ["127.0.0.1", "localhost:7800", "[::1]:7800"] {
            assert!(with_host(&server, path, host).contains(" 200 ") || path == "/health/cluster", "{host}{path}");
        }
    }
    server.stop();
}

#[test]
fn a_server_tells_of_secrets_that_are_weak_or_open() {
    let scratch = Scratch::new();
    let open = |path: &str| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666)).expect("it is ours");
    };
    for (name, secret) in [("zeros", "0".repeat(64)), ("pattern", "0123456789abcdef".repeat(4))] {
        let file = scratch.write(name, &secret);
        open(&file);
        let running = Running::start(
            &[
                "server",
                "--data",
                &scratch.path(&format!("of-{name}")),
                "--listen",
                "127.0.0.1:0",
                "--secret-file",
                &file,
            ],
            &[],
        );
        let line = Running::line(&running.err, "other users of this machine can read this secret");
        assert!(line.contains(&file) && line.contains("0666"), "{line}");
        let line = Running::line(&running.err, "was not made by chance");
        assert!(line.contains("ashlar secret rotate"), "{line}");
    }
    let (password, kv) = (scratch.write("password", "word\n"), ports(2));
    open(&password);
    let (data, kv, replica) = (scratch.path("kv"), kv.to_string(), (kv + 1).to_string());
    let begin = ["server", "--data", &data, "--listen", "127.0.0.1:0", "--workers", "1", "--kv-port", &kv];
    let running =
        Running::start(&[&begin[..], &["--kv-replica-port", &replica, "--kv-password-file", &password]].concat(), &[]);
    assert!(Running::line(&running.err, "other users of this machine can read this secret").contains(&password));
    // No rotation replaces what comes from the environment.
    let running = Running::start(
        &["server", "--data", &scratch.path("environment"), "--listen", "127.0.0.1:0"],
        &[("ASHLAR_SECRET", &"0".repeat(64))],
    );
    let line = Running::line(&running.err, "was not made by chance");
    assert!(!line.contains("secret rotate") && line.contains("ASHLAR_SECRET"), "{line}");
}

#[test]
fn a_server_with_a_weak_admin_token_does_not_start() {
    let scratch = Scratch::new();
    let data = scratch.path("0");
    TestServer::start(&data, &[], &[]).stop();
    for weak in ["", "short"] {
        std::fs::write(Path::new(&data).join("admin.token"), weak).expect("it can be written");
        let arguments = ["server", "--data", &data, "--listen", "127.0.0.1:0"];
        check_fails(&arguments, &[], 1, &["the admin token in", "too weak", "remove the file"]);
    }
}

#[test]
fn idle_connections_of_one_address_leave_room_for_health() {
    process::raise_descriptor_limit().expect("the hard limit is no lower than the soft one");
    let scratch = Scratch::new();
    let server = TestServer::start(&scratch.path("0"), &[], &[]);
    // More than one address may have: each sends one byte, so that it lasts, and then nothing.
    let idle: Vec<TcpStream> = (0..1_100)
        .filter_map(|_| {
            let mut stream = TcpStream::connect(&server.address).ok()?;
            stream.write_all(b"G").ok()?;
            Some(stream)
        })
        .collect();
    assert!(idle.len() >= 1_024, "{} connections", idle.len());
    until("the flood to be seen", || {
        let answer = get(&server.address, "/v1/status");
        answer.is_some_and(|answer| answer.status == 503 && answer.body.starts_with(b"{\"error\":\"too_many"))
    });
    for _ in 0..20 {
        assert_eq!(get(&server.address, "/health/live").map(|answer| answer.status), Some(200));
    }
    drop(idle);
    until("room for everything again", || {
        get(&server.address, "/v1/status").is_some_and(|answer| answer.status == 200)
    });
    server.stop();
}
