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
        ["user default on nopass sanitize-payload ~* &* +@all"]
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
        ["flags" ["on" "sanitize-payload"] "passwords" [] "commands" "-@all +acl +ping +auth +get +publish" "keys" "~b" "channels" "" "selectors" []]
        > ACL SETUSER u &c (~x +set)
        OK
        > ACL GETUSER u
        ["flags" ["on" "sanitize-payload"] "passwords" [] "commands" "-@all +acl +ping +auth +get +publish" "keys" "~b" "channels" "&c" "selectors" [["commands" "-@all +set" "keys" "~x" "channels" ""]]]
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
        ["user default on sanitize-payload #2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b ~* &* +@all"]
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
