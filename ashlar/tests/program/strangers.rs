//! Who comes from another address than this machine's own, and who speaks another protocol.

use std::process::Command;

use super::keyvalue::KvServer;
use super::process::Scratch;

/// Starts an engine that listens at an address of its own beside the loopback, and asks it there. The first line of each answer.
const SCRIPT: &str = r#"
ip link set lo up && ip addr add 192.0.2.7/32 dev lo || exit 90
"$ASHLAR" kv --bind 192.0.2.7,127.0.0.1 --port 7001 --workers 1 --dir "$DIR" --save "" >"$DIR/out" 2>&1 &
pid=$!
trap 'kill -9 $pid' EXIT
for _ in $(seq 600); do grep -q "on 192.0.2.7:7001" "$DIR/out" && break; sleep 0.1; done
ask() {
    exec 3<>"/dev/tcp/$1/7001" || exit 91
    printf '%s\r\n' "${@:2}" >&3
    for _ in "${@:2}"; do read -r -t 60 line <&3 && echo "$line"; done
    exec 3>&-
}
ask 192.0.2.7 FLUSHALL
ask 127.0.0.1 PING
ask 127.0.0.1 "CONFIG SET requirepass secret"
ask 192.0.2.7 PING "AUTH secret" PING
ask 127.0.0.1 "AUTH secret" "CONFIG SET requirepass '' protected-mode no"
ask 192.0.2.7 PING
"#;

#[test]
fn another_address_is_denied_until_there_is_a_password() {
    let scratch = Scratch::new();
    let ran = Command::new("unshare")
        .args(["--map-root-user", "--net", "bash", "-c", SCRIPT])
        .env("ASHLAR", env!("CARGO_BIN_EXE_ashlar"))
        .env("DIR", scratch.path(""))
        .output()
        .expect("unshare is there");
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    let lines: Vec<&str> = out.lines().map(str::trim_end).collect();
    assert!(lines.first().is_some_and(|line| line.starts_with("-DENIED ")), "{lines:?} {err}");
    let noauth = "-NOAUTH Authentication required.";
    assert_eq!(lines[1..], ["+PONG", "+OK", noauth, "+OK", "+PONG", "+OK", "+OK", "+PONG"], "{err}");
}

#[test]
fn a_browser_that_is_made_to_post_changes_nothing() {
    let server = KvServer::start(&[]);
    let mut browser = server.client();
    browser.send_raw("POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: text/plain\r\n\r\nSET pwned 1\r\n");
    assert!(browser.is_over(), "the connection ends without an answer");
    assert_eq!(server.client().ask(&["EXISTS", "pwned"]), "0");
    super::process::Running::line(&server.process.err, "an HTTP request came to the key-value port");
}
