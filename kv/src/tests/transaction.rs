//! Transactions.

use super::{Talk, check};

#[test]
fn commands_run_together() {
    check(
        r#"
        > MULTI
        OK
        > SET a 1
        QUEUED
        > INCR a
        QUEUED
        > INCR a b
        (error) ERR wrong number of arguments for 'incr' command
        > EXEC
        (error) EXECABORT Transaction discarded because of previous errors.
        > MULTI
        OK
        > MULTI
        (error) ERR Command 'multi' not allowed inside a transaction
        > EXEC
        (error) EXECABORT Transaction discarded because of previous errors.
        > MULTI
        OK
        > WATCH a
        (error) ERR Command 'watch' not allowed inside a transaction
        > CLIENT REPLY ON
        (error) ERR Command 'client|reply' not allowed inside a transaction
        > DISCARD
        OK
        > MULTI
        OK
        > SET a x
        QUEUED
        > INCR a
        QUEUED
        > APPEND a y
        QUEUED
        > EXEC
        [OK (error) ERR value is not an integer or out of range 2]
        > EXEC
        (error) ERR EXEC without MULTI
        > DISCARD
        (error) ERR DISCARD without MULTI
    "#,
    );
}

#[test]
fn what_is_watched_must_not_change() {
    let mut talk = Talk::new();
    let other = talk.join();
    for (client, line, reply) in [
        (0, "WATCH a b", "OK"),
        (0, "MULTI", "OK"),
        (0, "SET a mine", "QUEUED"),
        (other, "SET b theirs", "OK"),
        (0, "EXEC", "(nil array)"),
        (0, "GET a", "(nil)"),
        (0, "WATCH a", "OK"),
        (other, "SET b again", "OK"),
        (0, "MULTI", "OK"),
        (0, "SET a mine", "QUEUED"),
        (0, "EXEC", "[OK]"),
        (0, "WATCH a", "OK"),
        (other, "SET a theirs", "OK"),
        (0, "UNWATCH", "OK"),
        (0, "MULTI", "OK"),
        (0, "GET a", "QUEUED"),
        (0, "EXEC", "[\"theirs\"]"),
        (0, "SET c 1 PX 10", "OK"),
        (0, "WATCH c", "OK"),
    ] {
        assert_eq!(talk.say(client, line), reply, "{line}");
    }
    talk.wait(20);
    for (line, reply) in [("MULTI", "OK"), ("PING", "QUEUED"), ("EXEC", "(nil array)")] {
        assert_eq!(talk.say(0, line), reply, "{line}");
    }
    assert_eq!(talk.engine().waiting.clients(), 0);
}

#[test]
fn settings_that_a_transaction_changes_hold_inside_it() {
    check(
        r#"
        > MULTI
        OK
        > CONFIG SET maxmemory-policy allkeys-random
        QUEUED
        > CONFIG SET maxmemory 100mb
        QUEUED
        > CONFIG GET maxmemory
        QUEUED
        > EXEC
        [OK OK ["maxmemory" "104857600"]]
        > CONFIG GET maxmemory-policy
        ["maxmemory-policy" "allkeys-random"]
    "#,
    );
}
