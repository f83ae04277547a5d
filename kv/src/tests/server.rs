//! Settings, commands, state.

use super::{Talk, check};

#[test]
fn what_other_nodes_write_down_has_no_signs_of_their_files() {
    let mut talk = Talk::new();
    for bad in ["a,b", "\"a b\"", "\"a\\nb\"", "a=b", "a@1", "[::1]"] {
        let told = talk.say(0, &format!("CONFIG SET cluster-announce-ip {bad}"));
        assert!(told.ends_with("cluster-announce-ip contains invalid character"), "{bad}: {told}");
        let told = talk.say(0, &format!("CONFIG SET cluster-announce-human-nodename {bad}"));
        assert!(told.ends_with("Announced human node name contained invalid character"), "{bad}: {told}");
    }
    let told = talk.say(0, &format!("CONFIG SET cluster-announce-ip {}", "1".repeat(46)));
    assert!(told.ends_with("cluster-announce-ip is too long"), "{told}");
    for good in ["10.0.0.1", "fe80::1", "\"\""] {
        assert_eq!(talk.say(0, &format!("CONFIG SET cluster-announce-ip {good}")), "OK");
    }
}

#[test]
fn settings_are_set_together_or_not_at_all() {
    check(
        r#"
        > CONFIG GET hash-max-*-entries
        ["hash-max-listpack-entries" "512" "hash-max-ziplist-entries" "512"]
        > CONFIG SET hash-max-listpack-entries 10 maxmemory 100mb
        OK
        > CONFIG GET maxmemory hash-max-listpack-entries
        ["hash-max-listpack-entries" "10" "maxmemory" "104857600"]
        > CONFIG SET maxmemory 1 maxmemory-policy nosuch
        (error) ERR CONFIG SET failed (possibly related to argument 'maxmemory-policy') - argument(s) must be one of the following: volatile-lru, volatile-lfu, volatile-random, volatile-ttl, allkeys-lru, allkeys-lfu, allkeys-random, noeviction
        > CONFIG GET maxmemory
        ["maxmemory" "104857600"]
        > CONFIG SET maxmemory 1 maxmemory 2
        (error) ERR CONFIG SET failed (possibly related to argument 'maxmemory') - duplicate parameter
        > CONFIG SET nosuch 1
        (error) ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'
        > CONFIG SET maxmemory
        (error) ERR wrong number of arguments for 'config|set' command
        > CONFIG SET proto-max-bulk-len 4294967295
        (error) ERR CONFIG SET failed (possibly related to argument 'proto-max-bulk-len') - argument must be between 1048576 and 2147482624 inclusive
        > CONFIG GET nosuch
        []
        > CONFIG SET maxmemory 1 maxmemory-policy
        (error) ERR syntax error
        > CONFIG SET databases 3
        (error) ERR CONFIG SET failed (possibly related to argument 'databases') - can't set immutable config
        > CONFIG SET hz 9999 slave-priority 7
        OK
        > CONFIG GET hz replica-priority slave-priority databases
        ["databases" "16" "hz" "500" "replica-priority" "7" "slave-priority" "7"]
        > CONFIG GET rdb-key-save-delay
        ["rdb-key-save-delay" "0"]
        > CONFIG GET rdb-key-save-*
        []
        > CONFIG SET save '60 1 30'
        (error) ERR CONFIG SET failed (possibly related to argument 'save') - Invalid save parameters
        > CONFIG SET save '60 1 30 5' dir /x
        OK
        > CONFIG GET save dir
        ["dir" "/x" "save" "60 1 30 5"]
        > CONFIG SET port 7000
        (error) ERR CONFIG SET failed (possibly related to argument 'port') - Unable to listen on this port. Check server logs.
        > CONFIG SET port 6379 bind '* -::*'
        OK
        > CONFIG REWRITE
        (error) ERR The server is running without a config file
    "#,
    );
    let mut talk = Talk::new();
    let shown = talk.say(0, "CONFIG GET *");
    assert!(shown.contains("\"tcp-keepalive\" \"300\"") && !shown.contains("key-load-delay"), "{shown}");
    talk.engine().configure("enable-protected-configs", "no").unwrap();
    let refused = talk.say(0, "CONFIG SET dir /tmp");
    assert!(refused.ends_with("(possibly related to argument 'dir') - can't set protected config"), "{refused}");
    assert!(talk.engine().configure("nosuch", "1").is_err());
}

#[test]
fn commands_and_state_are_told() {
    let mut talk = Talk::new();
    talk.say(0, "SET a 1");
    talk.say(0, "GET a");
    talk.say(0, "GET nosuch");
    talk.say(0, "INCR");
    let info = talk.say(0, "INFO");
    for line in ["db0:keys=1,expires=0", "keyspace_hits:1", "keyspace_misses:1", "errorstat_ERR:count=1"] {
        assert!(info.contains(line), "{line}: {info}");
    }
    assert!(!talk.say(0, "INFO keyspace").contains("keyspace_hits"));
    assert_eq!(talk.say(0, "COMMAND GETKEYS MSET a 1 b 2"), "[\"a\" \"b\"]");
    assert_eq!(talk.say(0, "COMMAND LIST FILTERBY PATTERN getde*"), "[\"getdel\"]");
    assert_eq!(talk.say(0, "TIME"), "[\"1800000000\" \"0\"]");
    assert_eq!(talk.say(0, "CONFIG RESETSTAT"), "OK");
    assert!(talk.say(0, "INFO stats").contains("keyspace_hits:0"));
}

#[test]
fn who_does_not_know_the_password_stays_outside() {
    let mut talk = Talk::new();
    assert!(talk.say(0, "AUTH x").contains("without any password configured"));
    assert_eq!(talk.say(0, "CONFIG SET requirepass secret"), "OK");
    assert_eq!(talk.say(0, "PING"), "PONG", "who was inside stays inside");
    let other = talk.join();
    for (line, reply) in [
        ("GET a", "(error) NOAUTH Authentication required."),
        ("AUTH wrong", "(error) WRONGPASS invalid username-password pair or user is disabled."),
        ("AUTH nobody secret", "(error) WRONGPASS invalid username-password pair or user is disabled."),
        ("AUTH a b c", "(error) ERR syntax error"),
        ("GET a", "(error) NOAUTH Authentication required."),
        ("AUTH default secret", "OK"),
        ("GET a", "(nil)"),
        ("RESET", "RESET"),
        ("GET a", "(error) NOAUTH Authentication required."),
    ] {
        assert_eq!(talk.say(other, line), reply, "{line}");
    }
    assert!(talk.say(other, "HELLO 3").starts_with("(error) NOAUTH HELLO must"));
    assert!(talk.say(other, "HELLO 3 AUTH default secret").contains("\"proto\": 3"));
    assert_eq!(talk.say(other, "AUTH secret"), "OK");
}

/// Whoever types `COMMAND HELP` gets it, for every command that has subcommands.
#[test]
fn help_is_there() {
    use crate::command::spec::table::COMMANDS;
    let mut talk = Talk::new();
    for container in COMMANDS.iter().filter(|command| !command.spec.subcommands.is_empty()) {
        let name = container.spec.name;
        let help = talk.say(0, &format!("{name} HELP"));
        let is_off = name == "cluster" && help.contains("cluster support disabled");
        assert!(is_off || help.contains("<subcommand> [<arg> [value] [opt] ...]. Subcommands are:"), "{name}: {help}");
    }
}

#[test]
fn there_are_no_modules() {
    let mut talk = Talk::new();
    let refused = talk.say(0, "MODULE LOAD x.so");
    assert!(
        refused.starts_with("(error) ERR MODULE command not allowed. If the enable-module-command option"),
        "{refused}"
    );
    talk.engine().configure("enable-module-command", "yes").unwrap();
    for (line, reply) in [
        ("MODULE LIST", "[]"),
        ("MODULE LOAD x.so a", "(error) ERR Error loading the extension. Please check the server logs."),
        ("MODULE LOADEX x.so CONFIG a b", "(error) ERR Error loading the extension. Please check the server logs."),
        ("MODULE UNLOAD x", "(error) ERR Error unloading module: no such module with that name"),
        ("MODULE", "(error) ERR wrong number of arguments for 'module' command"),
    ] {
        assert_eq!(talk.say(0, line), reply, "{line}");
    }
    assert!(talk.say(0, "MODULE HELP").starts_with("[MODULE <subcommand> "));
}

#[test]
fn hello_names_the_zone_if_there_is_one() {
    let mut talk = Talk::new();
    assert!(talk.say(0, "HELLO 3").ends_with("\"modules\": []}"));
    talk.say(0, "CONFIG SET availability-zone here");
    assert!(talk.say(0, "HELLO").ends_with("\"modules\": [], \"availability_zone\": \"here\"}"));
}

#[test]
fn tools_that_want_redis_are_shown_redis() {
    let mut talk = Talk::new();
    assert_eq!(talk.say(0, "LOLWUT VERSION 5"), "\"Valkey ver. 9.1.0\\n\"");
    talk.say(0, "CONFIG SET extended-redis-compatibility yes");
    assert!(talk.say(0, "HELLO 3").starts_with("{\"server\": \"redis\", \"version\": \"7.2.4\""));
    assert!(talk.say(0, "LOLWUT").contains("Redis ver. 7.2.4\\n"));
    talk.say(0, "CONFIG SET extended-redis-compatibility no");
    assert!(talk.say(0, "HELLO 3").starts_with("{\"server\": \"valkey\", \"version\": \"9.1.0\""));
}
