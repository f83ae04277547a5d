//! Somebody else's WebSocket and plain HTTP against the listener.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Message, client};

use super::process::{Scratch, TestServer, get};

/// A peer that never answers must not hold up the tests; nothing is measured by this.
const PATIENCE: Duration = Duration::from_secs(60);

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
    stream
}

/// Completes the upgrade with an ordinary client, says `message`, and returns how the server closed.
fn closed_after(address: &str, path: &str, message: Message) -> (CloseCode, String) {
    let (mut socket, response) = client(format!("ws://{address}{path}"), connect(address)).expect("the upgrade");
    assert_eq!(response.status(), 101);
    socket.send(message).expect("the server reads");
    loop {
        match socket.read().expect("a farewell before the end") {
            Message::Close(Some(frame)) => return (frame.code, frame.reason.to_string()),
            Message::Close(None) => panic!("closed without a reason"),
            _ => {}
        }
    }
}

/// Sends a request as it stands and returns the status line's code and the whole answer.
fn raw(address: &str, request: &str) -> (u16, String) {
    let mut stream = connect(address);
    stream.write_all(request.as_bytes()).expect("the server reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the server answers and closes");
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
    (code.unwrap_or_default(), answer)
}

#[test]
fn ordinary_websocket_client_is_upgraded_and_refused_politely() {
    let scratch = Scratch::new();
    let server = TestServer::start(&scratch.path("a"), &["--tls", "off"], &[]);
    for path in ["/ashlar/grid/v1", "/ashlar/bulk/v1"] {
        for message in [Message::text("hello"), Message::binary(vec![1, 2, 3])] {
            let (code, reason) = closed_after(&server.address, path, message);
            assert!(code == CloseCode::Policy && !reason.is_empty(), "{code} {reason}");
        }
    }
    let status = server.status().expect("it answers");
    assert_eq!(status.grid.rejected_malformed, 4, "{status:?}");
    server.stop();
}

#[test]
fn wrong_requests_get_reasons() {
    let scratch = Scratch::new();
    let server = TestServer::start(&scratch.path("a"), &["--tls", "off"], &[]);
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    let key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let many: String = (0..100).map(|number| format!("X-{number}: x\r\n")).collect();
    let cases = [
        ("GET", "/nothing", String::new(), 404, "\"error\":\"not_found\""),
        ("POST", "/metrics", "Content-Length: 0\r\n".into(), 405, "allow: GET, HEAD"),
        ("POST", "/ashlar/grid/v1", "Content-Length: 0\r\n".into(), 405, "\"error\":\"method_not_allowed\""),
        ("GET", "/ashlar/grid/v1", String::new(), 426, "upgrade: websocket"),
        (
            "GET",
            "/ashlar/grid/v1",
            format!("{upgrade}{key}Sec-WebSocket-Version: 8\r\n"),
            426,
            "sec-websocket-version: 13",
        ),
        (
            "GET",
            "/ashlar/bulk/v1",
            format!("{upgrade}Sec-WebSocket-Version: 13\r\n"),
            400,
            "\"error\":\"websocket_key\"",
        ),
        ("GET", "/health/live", many, 431, ""),
    ];
    for (method, path, headers, code, text) in cases {
        let close = if headers.contains("Upgrade") { "" } else { "Connection: close\r\n" };
        let request = format!("{method} {path} HTTP/1.1\r\nHost: x\r\n{close}{headers}\r\n");
        // A refused upgrade leaves the connection open for another request: say that there is none.
        let request = if close.is_empty() { format!("{request}{}", last(path)) } else { request };
        let (got, answer) = raw(&server.address, &request);
        assert!(got == code && answer.contains(text), "{method} {path}: {answer}");
    }
    server.stop();
}

fn last(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
}

#[test]
fn encrypted_servers_refuse_plain_ones() {
    let scratch = Scratch::new();
    let server = TestServer::start(&scratch.path("a"), &[], &[]);
    let answer = get(&server.address, "/ashlar/grid/v1").expect("it answers");
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(answer.status == 403 && text.contains("tls_required"), "{text}");
    assert_eq!(get(&server.address, "/health/live").expect("it answers").status, 200);
    server.stop();
}
