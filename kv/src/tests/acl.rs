//! ACL: users come, go, and do what they may.

use std::sync::Mutex;

use super::{Talk, check, readable};
use crate::AclFile;

#[test]
fn users_are_made_and_unmade() {
    check(
        r#"
        > ACL WHOAMI
        "default"
        > ACL LIST
        ["user default on nopass ~* &* +@all"]
        > ACL SETUSER "a b"
        (error) ERR Usernames can't contain spaces or null characters
        > ACL SETUSER u >pw
        OK
        > ACL USERS
        ["default" "u"]
        > AUTH u pw
        (error) WRONGPASS invalid username-password pair or user is disabled.
        > ACL SETUSER u on +acl +ping +auth
        OK
        > AUTH u pw
        OK
        > ACL WHOAMI
        "u"
        > GET a
        (error) NOPERM User u has no permissions to run the 'get' command
        > ACL SETUSER u +get ~b
        OK
        > GET a
        (error) NOPERM No permissions to access a key
        > GET b
        (nil)
        > PUBLISH a b
        (error) NOPERM User u has no permissions to run the 'publish' command
        > ACL SETUSER u +publish
        OK
        > PUBLISH a b
        (error) NOPERM No permissions to access a channel
        > AUTH default any
        OK
        > ACL SETUSER u <pw
        OK
        > ACL SETUSER u <pw
        (error) ERR Error in ACL SETUSER modifier '<pw': The password you are trying to remove from the user does not exist
    "#,
    );
}

#[test]
fn users_are_shown_and_deleted() {
    check(
        r#"
        > ACL SETUSER u on +acl +ping +auth +get +publish ~b
        OK
        > ACL SETUSER u (+get
        (error) ERR Unmatched parenthesis in acl selector starting at '(+get'.
        > ACL SETUSER u +@string nosuch
        (error) ERR Error in ACL SETUSER modifier 'nosuch': Syntax error
        > ACL GETUSER u
        ["flags" ["on"] "passwords" [] "commands" "-@all +acl +ping +auth +get +publish" "keys" "~b" "channels" "" "databases" "alldbs" "selectors" []]
        > ACL SETUSER u &c (~x +set db=5,2)
        OK
        > ACL GETUSER u
        ["flags" ["on"] "passwords" [] "commands" "-@all +acl +ping +auth +get +publish" "keys" "~b" "channels" "&c" "databases" "alldbs" "selectors" [["commands" "-@all +set" "keys" "~x" "channels" "" "databases" "db=2,5"]]]
        > ACL GETUSER nobody
        (nil)
        > ACL DELUSER default
        (error) ERR The 'default' user cannot be removed
        > ACL DELUSER u nobody
        1
        > ACL CAT nosuch
        (error) ERR Unknown category 'nosuch'
        > ACL CAT a b
        (error) ERR unknown subcommand or wrong number of arguments for 'CAT'. Try ACL HELP.
        > ACL CAT transaction
        ["discard" "exec" "multi" "unwatch" "watch"]
        > ACL GENPASS 5000
        (error) ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096
        > ACL DRYRUN nobody GET a
        (error) ERR User 'nobody' not found
        > ACL DRYRUN default nosuch
        (error) ERR Command 'nosuch' not found
        > ACL DRYRUN default GET
        (error) ERR wrong number of arguments for 'get' command
        > ACL DRYRUN default GET a
        OK
        > ACL SETUSER v
        OK
        > ACL DRYRUN v GET a
        "User v has no permissions to run the \'get\' command"
        > ACL SAVE
        (error) ERR This instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a configuration file set) in order to store users in the configuration.
        > ACL NOSUCH
        (error) ERR unknown subcommand 'NOSUCH'. Try ACL HELP.
    "#,
    );
    let mut talk = Talk::new();
    let passwords: Vec<String> = (0..2).map(|_| talk.say(0, "ACL GENPASS")).collect();
    assert!(passwords[0].len() == 66 && passwords[0] != passwords[1]);
    assert_eq!(talk.say(0, "ACL GENPASS 5").len(), 4);
    assert!(talk.say(0, "ACL HELP").contains("DRYRUN <username> <command> [<arg> ...]"));
}

#[test]
fn rights_hold_in_transactions() {
    check(
        r#"
        > ACL SETUSER u on nopass +@all ~* &*
        OK
        1> AUTH u x
        OK
        1> MULTI
        OK
        1> INCR a
        QUEUED
        1> GET b
        QUEUED
        1> PING
        QUEUED
        > ACL SETUSER u -incr resetkeys
        OK
        1> EXEC
        [(error) NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command is no longer allowed for the following reason: no permission to execute the command or subcommand (error) NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command is no longer allowed for the following reason: no permission to touch the specified keys PONG]
        1> MULTI
        OK
        1> INCR a
        (error) NOPERM User u has no permissions to run the 'incr' command
        1> EXEC
        (error) EXECABORT Transaction discarded because of previous errors.
    "#,
    );
}

#[test]
fn who_waits_may_lose_its_rights() {
    check(
        r#"
        > ACL SETUSER u on nopass +@all ~*
        OK
        1> AUTH u x
        OK
        1> BLPOP k 0
        > ACL SETUSER u resetkeys
        OK
        > RPUSH k a
        1
        1?
        (error) NOPERM No permissions to access a key
        1> PING
        PONG
    "#,
    );
}

#[test]
fn clients_lose_their_users_and_channels() {
    let mut talk = Talk::new();
    talk.say(0, "ACL SETUSER u on nopass +@all &a &b*");
    for client in 1..5 {
        talk.join();
        talk.say(client, "AUTH u x");
    }
    talk.say(1, "SUBSCRIBE a");
    talk.say(2, "PSUBSCRIBE b*");
    talk.say(3, "SSUBSCRIBE b1");
    assert_eq!(talk.say(0, "ACL SETUSER u &c"), "OK");
    assert!((0..5).all(|client| !talk.is_closed(client)));
    talk.say(0, "ACL SETUSER u resetchannels &b*");
    assert_eq!([1, 2, 3, 4].map(|client| talk.is_closed(client)), [true, false, false, false]);
    talk.say(0, "ACL SETUSER u resetchannels &b?");
    assert_eq!([1, 2, 3, 4].map(|client| talk.is_closed(client)), [true, true, false, false]);
    assert_eq!(talk.say(4, "ACL DELUSER u"), "1");
    assert_eq!([0, 3, 4].map(|client| talk.is_closed(client)), [false, true, true]);
}

#[test]
fn passwords_of_the_default_user() {
    check(
        r#"
        > CONFIG SET requirepass secret
        OK
        > ACL LIST
        ["user default on #2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b ~* &* +@all"]
        1> PING
        (error) NOAUTH Authentication required.
        1> AUTH secret
        OK
        > CONFIG SET requirepass ""
        OK
        2> PING
        PONG
        > ACL SETUSER default off
        OK
        3> PING
        (error) NOAUTH Authentication required.
        > ACL SETUSER v on nopass +@all
        OK
        3> HELLO 2 AUTH v x SETNAME n
        ["server" "valkey" "version" "9.1.0" "proto" 2 "id" 4 "mode" "standalone" "role" "master" "modules" []]
        > ACL SETUSER default on -@all
        OK
        2> RESET
        RESET
        2> PING
        (error) NOPERM User default has no permissions to run the 'ping' command
        2> AUTH v x
        OK
        2> PING
        PONG
    "#,
    );
}

#[test]
fn refusals_are_noted() {
    let mut talk = Talk::new();
    talk.join();
    talk.say(0, "ACL SETUSER u on >pw +multi +exec +get ~a +publish");
    talk.say(1, "AUTH u pw");
    for line in ["SET a 1", "SET a 1", "GET b", "PUBLISH c m", "MULTI", "INCR a", "EXEC", "AUTH u no"] {
        talk.say(1, line);
    }
    talk.wait(1_500);
    let log = talk.say(0, "ACL LOG");
    for entry in [
        "\"count\" 1 \"reason\" \"auth\" \"context\" \"toplevel\" \"object\" \"AUTH\" \"username\" \"u\" \"age-seconds\" \"1.5\"",
        "\"count\" 1 \"reason\" \"command\" \"context\" \"multi\" \"object\" \"incr\"",
        "\"count\" 1 \"reason\" \"channel\" \"context\" \"toplevel\" \"object\" \"c\"",
        "\"count\" 1 \"reason\" \"key\" \"context\" \"toplevel\" \"object\" \"b\"",
        "\"count\" 2 \"reason\" \"command\" \"context\" \"toplevel\" \"object\" \"set\"",
        "\"entry-id\" 4 \"timestamp-created\" 1800000000000 \"timestamp-last-updated\" 1800000000000",
        " cmd=set user=u ",
    ] {
        assert!(log.contains(entry), "{entry}: {log}");
    }
    talk.wait(100_000);
    talk.say(1, "SET a 1");
    assert!(talk.say(0, "ACL LOG 1").starts_with("[[\"count\" 1 \"reason\" \"command\""));
    talk.say(0, "CONFIG SET acllog-max-len 2");
    talk.say(1, "GET z");
    assert_eq!(talk.say(0, "ACL LOG").matches("\"count\"").count(), 2);
    assert_eq!(talk.say(0, "ACL LOG RESET"), "OK");
    assert_eq!(talk.say(0, "ACL LOG"), "[]");
    assert_eq!(talk.say(0, "ACL LOG x"), "(error) ERR value is not an integer or out of range");
}

#[test]
fn sort_looks_at_other_keys_only_if_it_may() {
    check(
        r#"
        > ACL SETUSER u on nopass (+sort ~mylist ~v*)
        OK
        > RPUSH mylist 1
        1
        1> AUTH u x
        OK
        1> SORT mylist
        ["1"]
        1> SORT mylist BY v*
        (error) ERR BY option of SORT denied due to insufficient ACL permissions.
        1> SORT mylist BY nosort
        ["1"]
        1> SORT mylist GET v*
        (error) ERR GET option of SORT denied due to insufficient ACL permissions.
        > ACL SETUSER u (+sort ~mylist %R~*)
        OK
        1> SORT mylist BY v*
        ["1"]
    "#,
    );
}

#[test]
fn a_reader_deletes_no_field() {
    check(
        r#"
        > ACL SETUSER ro on nopass +@all %R~*
        OK
        > ACL SETUSER wo on nopass +@all %W~*
        OK
        > HSET h f v
        1
        1> AUTH ro x
        OK
        1> HGETEX h PXAT 1 FIELDS 1 f
        (error) NOPERM No permissions to access a key
        2> AUTH wo x
        OK
        2> HGETEX h FIELDS 1 f
        (error) NOPERM No permissions to access a key
        > HGETALL h
        ["f" "v"]
    "#,
    );
}

#[test]
fn every_database_that_copy_names_is_checked() {
    check(
        r#"
        > ACL SETUSER d0 on nopass +@all ~* db=0
        OK
        > SET k0 v
        OK
        1> AUTH d0 x
        OK
        1> COPY k0 victim DB 0 DB 1 REPLACE
        (error) NOPERM No permissions to access database
        1> COPY k0 victim REPLACE db 1 DB 0
        (error) NOPERM No permissions to access database
        1> COPY k0 DB DB 1
        (error) NOPERM No permissions to access database
        1> EVAL "return redis.call('COPY',KEYS[1],'victim','DB','0','DB','1')" 1 k0
        (error) NOPERM ACL failure in script: No permissions to access database script: 59bc443fe410f85acad6d3ab0c093b7b59532236, on @user_script:1.
        1> MULTI
        OK
        1> COPY k0 victim DB 0 DB 1
        (error) NOPERM No permissions to access database
        1> DISCARD
        OK
        1> COPY k0 copied DB 0 DB 0
        1
        1> COPY k0 DB
        1
        1> COPY k0 copied DB 99
        (error) ERR DB index is out of range
        > SELECT 1
        OK
        > DBSIZE
        0
    "#,
    );
}

#[test]
fn all_databases_need_rights_on_all() {
    let mut talk = Talk::new();
    let all = (0..16).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
    talk.say(0, "ACL SETUSER d0 on nopass +@all ~* db=0");
    talk.say(0, &format!("ACL SETUSER each on nopass +@all ~* db={all}"));
    for call in [
        "FLUSHALL",
        "CLUSTER FLUSHSLOT 5",
        "CLUSTER CANCELSLOTMIGRATIONS",
        "CLUSTER MIGRATESLOTS SLOTSRANGE 0 1 NODE 0123456789012345678901234567890123456789",
    ] {
        let told = talk.say(0, &format!("ACL DRYRUN d0 {call}"));
        assert!(told.starts_with("\"User d0 has no permissions to access database "), "{call}: {told}");
        assert_eq!(talk.say(0, &format!("ACL DRYRUN each {call}")), "OK", "{call}");
    }
}

#[test]
fn a_transaction_is_checked_in_the_database_that_it_has_chosen() {
    check(
        r#"
        > ACL SETUSER d1 on nopass +@all ~* db=1
        OK
        1> AUTH d1 x
        OK
        1> MULTI
        OK
        1> GET k
        (error) NOPERM No permissions to access database
        1> DISCARD
        OK
        1> MULTI
        OK
        1> SELECT 1
        QUEUED
        1> SET k v
        QUEUED
        1> EXEC
        [OK OK]
        1> GET k
        "v"
    "#,
    );
}

#[test]
fn the_store_that_counts_is_the_one_that_is_checked() {
    check(
        r#"
        > ACL SETUSER u on nopass +@all ~a* %R~src
        OK
        > GEOADD src 1 1 m
        1
        > SET victim v
        OK
        1> AUTH u x
        OK
        1> GEORADIUS src 1 1 1 km STORE a STORE victim
        (error) NOPERM No permissions to access a key
        1> GEORADIUS src 1 1 1 km STORE a STOREDIST victim
        (error) NOPERM No permissions to access a key
        1> GEORADIUSBYMEMBER src m 1 km STOREDIST a STORE victim
        (error) NOPERM No permissions to access a key
        1> GEORADIUS src 1 1 1 km STORE a
        1
        1> SORT src STORE a STORE victim
        (error) NOPERM No permissions to access a key
        > GET victim
        "v"
    "#,
    );
}

#[test]
fn a_group_called_streams_hides_no_key() {
    check(
        r#"
        > ACL SETUSER u on nopass +@all ~STREAMS
        OK
        > XADD secret 1-1 f v
        "1-1"
        > XGROUP CREATE secret STREAMS 0
        OK
        1> AUTH u x
        OK
        1> XREADGROUP COUNT 1 GROUP STREAMS STREAMS STREAMS secret >
        (error) NOPERM No permissions to access a key
        1> XREADGROUP NOACK COUNT 1 GROUP STREAMS STREAMS STREAMS secret >
        (error) NOPERM No permissions to access a key
        > XREADGROUP COUNT 1 GROUP STREAMS STREAMS STREAMS secret >
        [["secret" [["1-1" ["f" "v"]]]]]
    "#,
    );
}

/// A file in memory.
#[derive(Debug)]
struct Paper(Mutex<Vec<u8>>);

impl AclFile for Paper {
    fn name(&self) -> &str {
        "users.acl"
    }

    fn read(&self) -> Result<Vec<u8>, String> {
        Ok(self.0.lock().unwrap().clone())
    }

    fn write(&self, text: &[u8]) -> Result<(), String> {
        if text.windows(5).any(|part| part == b"wrong") {
            return Err("no".into());
        }
        *self.0.lock().unwrap() = text.to_vec();
        Ok(())
    }
}

#[test]
fn users_are_kept_in_a_file() {
    let mut talk = Talk::new();
    let text = "user alice on nopass &* +@all ~*\n\nuser bob on nopass -@all +@set +acl +ping ~set* (+get ~rw*)\n";
    talk.engine().use_acl_file(Box::new(Paper(Mutex::new(text.into())))).unwrap();
    assert_eq!(talk.say(0, "ACL USERS"), "[\"alice\" \"bob\" \"default\"]");
    talk.say(0, "ACL SETUSER carol on nopass +@all");
    for (client, user) in [(1, "alice"), (2, "bob"), (3, "carol")] {
        talk.join();
        assert_eq!(talk.say(client, &format!("AUTH {user} x")), "OK");
    }
    assert_eq!(talk.say(0, "ACL LOAD"), "OK");
    assert_eq!([0, 1, 2, 3].map(|client| talk.is_closed(client)), [false, false, false, true]);
    talk.say(0, "ACL SETUSER dora on >pw ~x");
    assert_eq!(talk.say(0, "ACL SAVE"), "OK");
    talk.say(0, "ACL DELUSER dora");
    assert_eq!(talk.say(0, "ACL LOAD"), "OK");
    assert_eq!(talk.say(0, "AUTH dora pw"), "OK");
    talk.say(1, "ACL SETUSER wrong");
    assert_eq!(
        talk.say(1, "ACL SAVE"),
        "(error) ERR There was an error trying to save the ACLs. Please check the server logs for more information"
    );
}

#[test]
fn files_that_make_no_sense_change_nothing() {
    for (text, expected) in [
        ("nobody", "users.acl:1 should start with user keyword followed by the username. "),
        ("user", "users.acl:1 should start with user keyword followed by the username. "),
        ("user a on\nuser a off", "WARNING: Duplicate user 'a' found on line 2. "),
        ("user a (+get", "users.acl:1: Unmatched parenthesis in selector definition."),
        (
            "\nuser a +nosuch x y",
            "users.acl:2: Error in applying operation '+nosuch': Unknown command or category name in ACL. users.acl:2: Syntax error. ",
        ),
    ] {
        let talk = Talk::new();
        let told = talk.engine().use_acl_file(Box::new(Paper(Mutex::new(text.into()))));
        let end = "WARNING: ACL errors detected, no change to the previously active ACL rules was performed";
        assert_eq!(told, Err(format!("{expected}{end}")), "{text}");
        assert_eq!(talk.engine().acl.all().len(), 1);
    }
    let mut talk = Talk::new();
    assert_eq!(talk.engine().add_user(b"eve on nopass ~* (+get ~a)"), Ok(()));
    assert!(talk.engine().add_user(b"eve nosuch").is_err());
    assert_eq!(readable(&talk.raw(0, b"AUTH eve x\r\n")), "OK");
}
