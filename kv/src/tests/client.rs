//! CLIENT, and the limits of clients.

use super::{Talk, check};

/// A field of a line of `CLIENT LIST`.
fn field<'a>(line: &'a str, name: &str) -> &'a str {
    let found = line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    found.unwrap_or_else(|| panic!("{name} is in {line}"))
}

/// What `CLIENT LIST` or `CLIENT INFO` shows, a line each.
fn lines(talk: &mut Talk, client: usize, command: &str) -> Vec<String> {
    let shown = talk.say(client, command);
    shown.trim_matches('"').split("\\n").filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// The numbers of the clients that `CLIENT LIST` with these words shows.
fn listed(talk: &mut Talk, words: &str) -> String {
    let lines = lines(talk, 0, &format!("CLIENT LIST {words}"));
    lines.iter().map(|line| field(line, "id")).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_client_is_described() {
    let mut talk = Talk::new();
    let other = talk.join();
    talk.say(other, "HELLO 3 SETNAME someone");
    talk.say(other, "CLIENT SETINFO LIB-NAME lib");
    talk.say(other, "CLIENT SETINFO LIB-VER 1.2");
    talk.say(other, "SELECT 3");
    talk.say(other, "SUBSCRIBE a b");
    talk.say(other, "PSUBSCRIBE c*");
    talk.say(other, "WATCH k");
    talk.say(other, "MULTI");
    talk.say(other, "SET k v");
    talk.wait(5_000);
    let all = lines(&mut talk, 0, "CLIENT LIST");
    assert_eq!(all.len(), 2);
    let begins = "id=1 addr=127.0.0.1:50000 laddr=127.0.0.1:6379 fd=9 name= age=5 idle=0 flags=N capa= db=0 sub=0 psub=0 ssub=0 \
                  multi=-1 watch=0 qbuf=0 ";
    assert!(all[0].starts_with(begins), "{}", all[0]);
    assert!(all[0].contains(" obl=0 oll=0 omem=0 "), "{}", all[0]);
    assert!(
        all[0].contains(" events=r cmd=client|list user=default redir=-1 resp=2 lib-name= lib-ver= "),
        "{}",
        all[0]
    );
    for (name, value) in [
        ("name", "someone"),
        ("idle", "5"),
        ("flags", "Px"),
        ("db", "3"),
        ("sub", "2"),
        ("psub", "1"),
        ("multi", "1"),
        ("multi-mem", "5"),
        ("watch", "1"),
        ("cmd", "set"),
        ("resp", "3"),
        ("lib-name", "lib"),
        ("lib-ver", "1.2"),
        ("tot-cmds", "8"),
    ] {
        assert_eq!(field(&all[1], name), value, "{name} of {}", all[1]);
    }
}

#[test]
fn traffic_is_counted() {
    let mut talk = Talk::new();
    let first = lines(&mut talk, 0, "CLIENT INFO")[0].clone();
    let second = lines(&mut talk, 0, "CLIENT INFO")[0].clone();
    let grown = |name: &str| field(&second, name).parse::<u64>().unwrap() - field(&first, name).parse::<u64>().unwrap();
    assert_eq!((grown("tot-net-in"), grown("tot-cmds")), (13, 1));
    assert!(grown("tot-net-out") > 300);
    assert_eq!(talk.piece(0, b"*2\r\n$4\r\nECHO\r\n$3\r\nab"), b"");
    let other = talk.join();
    assert_eq!(field(&lines(&mut talk, other, "CLIENT LIST ID 1")[0], "qbuf"), "20");
    assert_eq!(talk.piece(0, b"c\r\n"), b"$3\r\nabc\r\n");
    assert_eq!(field(&lines(&mut talk, other, "CLIENT LIST ID 1")[0], "qbuf"), "0");
}

#[test]
fn lists_are_filtered() {
    let mut talk = Talk::new();
    for client in 1..5 {
        assert_eq!(talk.join(), client);
    }
    talk.say(1, "CLIENT SETNAME one");
    talk.say(2, "SUBSCRIBE a");
    talk.say(3, "SELECT 5");
    talk.say(3, "CLIENT CAPA redirect nosuch");
    talk.say(4, "CLIENT SETINFO lib-name lib");
    for (words, expected) in [
        ("", "1 2 3 4 5"),
        ("ID 2 4 77", "2 4"),
        ("ID 2 ID 4", "2 4"),
        ("NOT-ID 2 4", "1 3 5"),
        ("TYPE pubsub", "3"),
        ("NOT-TYPE pubsub", "1 2 4 5"),
        ("TYPE replica", ""),
        ("TYPE normal ID 1 3", "1"),
        ("NAME one", "2"),
        ("NOT-NAME one", "1 3 4 5"),
        ("ADDR 127.0.0.1:50003", "4"),
        ("NOT-ADDR 127.0.0.1:50003", "1 2 3 5"),
        ("LADDR 127.0.0.1:6379", "1 2 3 4 5"),
        ("LADDR 127.0.0.1:1", ""),
        ("IP 127.0.0.1", "1 2 3 4 5"),
        ("NOT-IP 127.0.0.1", ""),
        ("USER default", "1 2 3 4 5"),
        ("FLAGS P", "3"),
        ("NOT-FLAGS N", "3"),
        ("CAPA r", "4"),
        ("DB 5", "4"),
        ("NOT-DB 5", "1 2 3 5"),
        ("LIB-NAME lib", "5"),
        ("LIB-VER 1", ""),
        ("SKIPME yes", "2 3 4 5"),
        ("SKIPME yes NOT-ID 2", "3 4 5"),
        ("MAXAGE 1", ""),
        ("IDLE 1", ""),
    ] {
        assert_eq!(listed(&mut talk, words), expected, "{words}");
    }
    talk.wait(2_500);
    assert_eq!(listed(&mut talk, "MAXAGE 2 SKIPME yes"), "2 3 4 5");
    assert_eq!(listed(&mut talk, "IDLE 2"), "2 3 4 5");
}

#[test]
fn filters_that_make_no_sense() {
    for command in ["LIST", "KILL"] {
        for (words, error) in [
            ("ID str", "syntax error"),
            ("ID 0", "client-id should be greater than 0"),
            ("ID -1", "client-id should be greater than 0"),
            ("ID 10 wrong_arg", "syntax error"),
            ("TYPE wrong_type", "Unknown client type 'wrong_type'"),
            ("USER nobody", "No such user 'nobody'"),
            ("SKIPME maybe", "syntax error"),
            ("MAXAGE str", "maxage is not an integer or out of range"),
            ("MAXAGE 9999999999999999999", "maxage is not an integer or out of range"),
            ("MAXAGE -1", "maxage should be greater than 0"),
            ("IDLE 0", "idle should be greater than 0"),
            ("FLAGS q", "Unknown flags found in the provided filter: q"),
            ("CAPA q", "Unknown capa found in the provided filter: q"),
            ("DB 16", "DB number should be between 0 and 15"),
            ("NOT-SKIPME yes", "syntax error"),
            ("NAME", if command == "LIST" { "syntax error" } else { "No such client" }),
        ] {
            assert_eq!(Talk::new().say(0, &format!("CLIENT {command} {words}")), format!("(error) ERR {error}"));
        }
    }
}

#[test]
fn clients_are_ended() {
    let mut talk = Talk::new();
    for client in 1..6 {
        talk.join();
        talk.say(client, &format!("CLIENT SETNAME c{client}"));
    }
    for (line, reply) in [
        ("CLIENT KILL 127.0.0.1:50001", "OK"),
        ("CLIENT KILL 127.0.0.1:50001", "(error) ERR No such client"),
        ("CLIENT KILL ID 3", "1"),
        ("CLIENT KILL ID 3", "0"),
        ("CLIENT KILL NAME c3 SKIPME no", "1"),
        ("CLIENT KILL SKIPME yes", "2"),
    ] {
        assert_eq!(talk.say(0, line), reply, "{line}");
    }
    assert_eq!(listed(&mut talk, ""), "1");
    assert!((1..6).all(|client| talk.is_closed(client)) && !talk.is_closed(0));
    assert_eq!(talk.say(0, "CLIENT KILL ID 1 SKIPME no"), "1", "the reply comes first");
    assert!(talk.is_closed(0));
}

#[test]
fn what_came_behind_a_command_that_waits_is_shown() {
    let mut talk = Talk::new();
    let waiter = talk.join();
    let partial = b"*3\r\n$3\r\nSET\r\n";
    talk.piece(waiter, &[b"BLPOP l 0\r\n", &partial[..]].concat());
    let line = &lines(&mut talk, 0, "CLIENT LIST ID 2")[0];
    assert_eq!((field(line, "flags"), field(line, "qbuf")), ("b", partial.len().to_string().as_str()));
    talk.say(0, "RPUSH l v");
    talk.piece(waiter, b"$1\r\nk\r\n$1\r\nv\r\n");
    assert_eq!(field(&lines(&mut talk, 0, "CLIENT LIST ID 2")[0], "qbuf"), "0");
    assert_eq!(talk.say(0, "GET k"), "\"v\"");
}

#[test]
fn who_was_ended_waits_no_more() {
    let mut talk = Talk::new();
    talk.join();
    assert_eq!(talk.say(1, "BLPOP k 0"), "");
    assert_eq!(field(&lines(&mut talk, 0, "CLIENT LIST ID 2")[0], "flags"), "b");
    assert_eq!(talk.say(0, "CLIENT KILL ID 2"), "1");
    assert_eq!(talk.say(0, "RPUSH k a"), "1");
    assert_eq!(talk.say(0, "LLEN k"), "1", "nobody took it");
}

#[test]
fn who_waits_is_released() {
    check(
        r"
        1> BLPOP k 0
        > CLIENT UNBLOCK 2
        1
        1?
        (nil array)
        1> BLPOP k 0
        > CLIENT UNBLOCK 2 error
        1
        1?
        (error) UNBLOCKED client unblocked via CLIENT UNBLOCK
        1> PING
        PONG
        > CLIENT UNBLOCK 2 timeout
        0
        > CLIENT UNBLOCK 77
        0
        > CLIENT UNBLOCK 2 never
        (error) ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR
        > CLIENT UNBLOCK x
        (error) ERR value is not an integer or out of range
        > RPUSH k a
        1
        > LRANGE k 0 -1
        ['a']
        "
        .replace('\'', "\"")
        .as_str(),
    );
}

#[test]
fn clients_are_held_back() {
    check(
        r#"
        > CLIENT PAUSE 1000 WRITE
        OK
        1> GET a
        (nil)
        1> SET a 1
        2> PUBLISH a 1
        3> MULTI
        OK
        3> GET a
        QUEUED
        3> EXEC
        [(nil)]
        4> MULTI
        OK
        4> SET b 1
        4?
        > CLIENT UNPAUSE
        OK
        1?
        OK
        2?
        0
        4?
        QUEUED
        > CLIENT PAUSE 100
        OK
        1> PING
        +50
        1?
        +60
        1?
        PONG
        > CLIENT PAUSE 100 SOME
        (error) ERR CLIENT PAUSE mode must be WRITE or ALL
        > CLIENT PAUSE abc
        (error) ERR timeout is not an integer or out of range
        > CLIENT PAUSE -1
        (error) ERR timeout is negative
        > CLIENT PAUSE 9223372036854775807
        (error) ERR timeout is out of range
    "#,
    );
}

#[test]
fn nothing_expires_during_a_pause() {
    let expired = |talk: &mut Talk| {
        let info = talk.say(0, "INFO stats");
        info.split("\\r\\n").find_map(|line| line.strip_prefix("expired_keys:").map(str::to_owned))
    };
    let mut talk = Talk::new();
    talk.say(0, "SET a 1 PX 10");
    talk.say(0, "CLIENT PAUSE 1000 WRITE");
    talk.wait(20);
    talk.tick();
    assert_eq!(talk.say(0, "GET a"), "(nil)");
    assert_eq!(talk.say(0, "RANDOMKEY"), "\"a\"", "of keys that are all over, one is named");
    assert_eq!(expired(&mut talk).as_deref(), Some("0"));
    talk.say(0, "CLIENT UNPAUSE");
    assert_eq!(talk.say(0, "GET a"), "(nil)");
    assert_eq!((talk.say(0, "RANDOMKEY"), expired(&mut talk).as_deref()), ("(nil)".into(), Some("1")));
}

#[test]
fn of_two_pauses_the_stricter_holds() {
    let mut talk = Talk::new();
    talk.join();
    for line in ["CLIENT PAUSE 200 ALL", "CLIENT PAUSE 20 WRITE"] {
        // The second one is held back itself.
        talk.say(0, line);
    }
    talk.wait(50);
    assert_eq!(talk.say(1, "GET a"), "");
    assert!(talk.say(1, "").is_empty());
    talk.wait(200);
    assert_eq!(super::readable(&talk.mail(1)), "(nil)");
}

#[test]
fn clients_say_what_they_want() {
    check(
        r#"
        > CLIENT GETNAME
        (nil)
        > CLIENT SETNAME "a b"
        (error) ERR Client names cannot contain spaces, newlines or special characters.
        > CLIENT SETNAME a
        OK
        > CLIENT GETNAME
        "a"
        > CLIENT SETNAME ""
        OK
        > CLIENT GETNAME
        (nil)
        > CLIENT ID
        1
        > CLIENT SETINFO lib-name
        (error) ERR wrong number of arguments for 'client|setinfo' command
        > CLIENT SETINFO lib-name "a b"
        (error) ERR lib-name cannot contain spaces, newlines or special characters.
        > CLIENT SETINFO badger hamster
        (error) ERR Unrecognized option 'badger'
        > CLIENT NO-EVICT on
        OK
        > CLIENT NO-EVICT maybe
        (error) ERR syntax error
        > CLIENT NO-TOUCH on
        OK
        > CLIENT NO-TOUCH maybe
        (error) ERR syntax error
        > CONFIG SET import-mode yes
        OK
        > CLIENT IMPORT-SOURCE on
        OK
        > CLIENT REPLY maybe
        (error) ERR syntax error
        > CLIENT REPLY OFF
        > PING
        > CLIENT REPLY ON
        OK
        > CLIENT REPLY SKIP
        > PING
        > PING
        PONG
        > HELLO 2 SETNAME "a b"
        (error) ERR Client names cannot contain spaces, newlines or special characters.
        > CLIENT NOSUCH
        (error) ERR unknown subcommand 'NOSUCH'. Try CLIENT HELP.
    "#,
    );
    let mut talk = Talk::new();
    for line in ["CLIENT NO-EVICT on", "CLIENT NO-TOUCH on", "CLIENT SETINFO LIB-NAME lib"] {
        talk.say(0, line);
    }
    assert_eq!(field(&lines(&mut talk, 0, "CLIENT INFO")[0], "flags"), "eT");
    talk.say(0, "RESET");
    let line = lines(&mut talk, 0, "CLIENT INFO")[0].clone();
    assert_eq!((field(&line, "flags"), field(&line, "lib-name")), ("N", "lib"));
    for line in ["CONFIG SET import-mode yes", "CLIENT IMPORT-SOURCE on"] {
        assert_eq!(talk.say(0, line), "OK");
    }
    assert_eq!(field(&lines(&mut talk, 0, "CLIENT INFO")[0], "flags"), "I");
    talk.say(0, "RESET");
    assert_eq!(field(&lines(&mut talk, 0, "CLIENT INFO")[0], "flags"), "N", "it sees no expired keys any more");
    assert!(talk.say(0, "CLIENT HELP").contains("UNBLOCK <clientid> [TIMEOUT|ERROR]"));
}

#[test]
fn there_are_only_so_many_clients() {
    let mut talk = Talk::new();
    assert_eq!(talk.say(0, "CONFIG SET maxclients 2"), "OK");
    assert_eq!(talk.try_join(), Some(1));
    assert_eq!(talk.try_join(), None);
    talk.leave(1);
    assert_eq!(talk.try_join(), Some(1));
    assert!(talk.say(0, "INFO clients").contains("connected_clients:2"));
}

#[test]
fn idle_clients_are_ended() {
    let mut talk = Talk::new();
    for _ in 1..4 {
        talk.join();
    }
    talk.say(0, "CONFIG SET timeout 10");
    talk.say(2, "SUBSCRIBE a");
    talk.say(3, "BLPOP k 0");
    talk.wait(11_500);
    assert_eq!(talk.say(0, "PING"), "PONG");
    (0..20).for_each(|_| talk.tick());
    assert_eq!([0, 1, 2, 3].map(|client| talk.is_closed(client)), [false, true, false, false]);
}

#[test]
fn who_does_not_fetch_is_ended() {
    let mut talk = Talk::new();
    talk.join();
    for (line, reply) in [
        ("CONFIG SET client-output-buffer-limit 'pubsub 10000 0 0 normal 20000 0 0'", "OK"),
        (
            "CONFIG GET client-output-buffer-limit",
            "[\"client-output-buffer-limit\" \"normal 20000 0 0 slave 268435456 67108864 60 pubsub 10000 0 0\"]",
        ),
        ("CONFIG SET client-output-buffer-limit 'normal 1 2'", "wrong"),
        ("CONFIG SET client-output-buffer-limit 'master 1 2 3'", "Invalid client class"),
        ("CONFIG SET client-output-buffer-limit 'normal 1x 2 3'", "Error in hard limit"),
        ("CONFIG SET client-output-buffer-limit 'normal 1 2x 3'", "Error in soft limit"),
        ("CONFIG SET client-output-buffer-limit 'normal 1 2 3s'", "Error in soft_seconds"),
    ] {
        assert!(talk.say(0, line).to_lowercase().contains(&reply.to_lowercase()), "{line}");
    }
    talk.say(1, "SUBSCRIBE a");
    let message = "x".repeat(3_000);
    for expected in [1, 1, 1, 1] {
        assert_eq!(talk.say(0, &format!("PUBLISH a {message}")), expected.to_string());
    }
    assert!(talk.is_closed(1));
    talk.say(0, &format!("SET long {}", "x".repeat(15_000)));
    assert!(!talk.is_closed(0));
    talk.say(0, "MGET long long");
    assert!(talk.is_closed(0));
}

#[test]
fn who_fetches_slowly_is_ended_after_a_while() {
    let mut talk = Talk::new();
    talk.join();
    talk.say(0, "CONFIG SET client-output-buffer-limit 'pubsub 0 1000 3'");
    talk.say(1, "SUBSCRIBE a");
    talk.say(0, &format!("PUBLISH a {}", "x".repeat(3_000)));
    for _ in 0..3 {
        (0..20).for_each(|_| talk.tick());
        talk.wait(1_000);
    }
    assert_eq!(listed(&mut talk, ""), "1 2");
    talk.wait(1_000);
    (0..20).for_each(|_| talk.tick());
    assert_eq!(listed(&mut talk, ""), "1");
}

#[test]
fn who_sends_too_much_is_ended() {
    let mut talk = Talk::new();
    assert_eq!(talk.say(0, "CONFIG SET client-query-buffer-limit 1mb"), "OK");
    talk.piece(0, b"*2\r\n$4\r\nECHO\r\n$1500000\r\n");
    assert!(!talk.is_closed(0));
    talk.piece(0, &vec![b'x'; 1_100_000]);
    assert!(talk.is_closed(0));
}

#[test]
fn clients_that_would_read_from_replicas_are_found() {
    let mut talk = Talk::new();
    let other = talk.join();
    talk.say(other, "READONLY");
    assert_eq!(listed(&mut talk, "FLAGS r"), "2");
    talk.say(other, "READWRITE");
    assert_eq!(listed(&mut talk, "FLAGS r"), "");
    talk.say(other, "READONLY");
    talk.say(other, "RESET");
    assert_eq!(listed(&mut talk, "FLAGS r"), "");
}
