//! Settings, commands, state.

use super::{Talk, check};

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
        > CONFIG GET nosuch
        []
    "#,
    );
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
