//! Who is not let in, and who is let in without a password.

use super::Talk;
use crate::client::{Link, Rejected};
use crate::session::Next;

/// An address of another machine.
const FAR: &str = "192.0.2.7:4711";

#[test]
fn strangers_from_elsewhere_need_a_password_to_be_there() {
    let mut talk = Talk::new();
    assert_eq!(talk.try_join_by(Talk::link(FAR)), Err(Rejected::Protected));
    assert!(Rejected::Protected.reply().starts_with(b"-DENIED ") && Rejected::Protected.reply().ends_with(b".\r\n"));
    assert!(talk.say(0, "INFO stats").contains("rejected_connections:1"));
    for near in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
        assert!(talk.try_join_by(Talk::link(near)).is_ok(), "{near}");
    }
    let unix = Link { is_unix: true, ..Talk::link("/run/kv.sock:0") };
    assert!(talk.try_join_by(unix).is_ok());
    for far in ["128.0.0.1:1", "[2001:db8::1]:1", "[::ffff:192.0.2.7]:1"] {
        assert_eq!(talk.try_join_by(Talk::link(far)), Err(Rejected::Protected), "{far}");
    }
    // The operator's choice.
    assert_eq!(talk.say(0, "CONFIG SET protected-mode no"), "OK");
    assert!(talk.try_join_by(Talk::link(FAR)).is_ok());
    assert_eq!(talk.say(0, "CONFIG SET protected-mode yes requirepass secret"), "OK");
    let client = talk.try_join_by(Talk::link(FAR)).unwrap();
    assert!(talk.say(client, "PING").starts_with("(error) NOAUTH"));
    assert_eq!(talk.say(client, "AUTH secret"), "OK");
    assert_eq!(talk.say(client, "PING"), "PONG");
    assert_eq!(talk.say(client, "ACL SETUSER default nopass"), "OK");
    assert_eq!(
        talk.try_join_by(Talk::link(FAR)),
        Err(Rejected::Protected),
        "what counts is the user, not the parameter"
    );
}

#[test]
fn servers_of_the_cluster_need_no_password() {
    let mut talk = Talk::new();
    let server = || Link { is_server: true, ..Talk::link("192.0.2.7:7800") };
    assert!(talk.try_join_by(server()).is_ok(), "protected mode is about clients");
    talk.say(0, "CONFIG SET requirepass secret");
    talk.say(0, "ACL SETUSER default -@all");
    let other = talk.try_join_by(server()).unwrap();
    assert_eq!(talk.say(other, "REPLCONF listening-port 7"), "OK");
    assert_eq!(talk.say(other, "PING"), "PONG");
    // Also after users have changed once more.
    talk.say(other, "ACL SETUSER default reset");
    assert_eq!(talk.say(other, "PING"), "PONG");
}

#[test]
fn http_ends_before_its_body_is_run() {
    for request in [
        "POST / HTTP/1.1\r\nHost: db.internal:6379\r\nContent-Length: 13\r\n\r\nSET pwned 1\r\n",
        "GET / HTTP/1.1\r\nhost: db.internal:6379\r\n\r\nSET pwned 1\r\n",
        "*1\r\n$4\r\npost\r\n*3\r\n$3\r\nSET\r\n$5\r\npwned\r\n$1\r\n1\r\n",
    ] {
        let mut talk = Talk::new();
        let (browser, now) = (talk.join(), talk.now());
        let (_, next) = talk.sessions[browser].feed(request.as_bytes(), now);
        assert_eq!(next, Next::Drop, "{request}");
        assert_eq!(talk.say(0, "EXISTS pwned"), "0", "{request}");
        assert_eq!(talk.say(0, "CLIENT LIST").matches(" addr=").count(), 1, "{request}");
    }
    // What only looks like it is a key, or a value.
    let mut talk = Talk::new();
    assert_eq!(talk.say(0, "SET POST Host:"), "OK");
    assert_eq!(talk.say(0, "GET POST"), "\"Host:\"");
}
