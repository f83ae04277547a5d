//! Rules, and what they admit.

use super::{Databases, User, join_selectors};
use crate::command::spec::table::find_call;
use crate::resp::Request;

/// A user with these rules.
fn user(rules: &str) -> Result<User, &'static str> {
    let mut user = User::new(b"u", false);
    let rules = join_selectors(rules.split(' ').map(str::as_bytes)).map_err(|_| "Unmatched")?;
    rules.iter().try_for_each(|rule| user.apply(rule).map_err(|wrong| wrong.text()))?;
    Ok(user)
}

#[test]
fn rules_are_shown_as_they_were_made() {
    for (rules, expected) in [
        ("", "-@all"),
        ("+@all -@hash -@slow +hget", "+@all -@hash -@slow +hget"),
        ("+@all -@hash -@slow +hget -@hash", "+@all -@slow +hget -@hash"),
        ("+@all -@slow +hget -@hash +@hash", "+@all -@slow +hget +@hash"),
        ("+@string -@slow +@all", "+@all"),
        ("-@all +@HASH +@hash +@HaSh", "-@all +@hash"),
        ("+HGET +hget +hGeT", "-@all +hget"),
        ("+@hash +@slow +@set +@set +@slow +@hash", "-@all +@set +@slow +@hash"),
        ("+hget -hset +hset -hget", "-@all +hset -hget"),
        ("+client|list +client|list +config|get +config +acl|list -acl", "-@all +client|list +config -acl"),
        ("+select|0 +select|0 +debug|segfault +debug", "-@all +select|0 +debug"),
        ("-@dangerous", "-@all -@dangerous"),
        ("+config +config|get -config|set +config", "-@all +config"),
        ("+memory|doctor +memory", "-@all +memory"),
        ("nocommands +get allcommands", "+@all"),
    ] {
        assert_eq!(user(rules).unwrap().root().show_commands(), expected, "{rules}");
    }
}

#[test]
fn users_are_shown_as_they_were_made() {
    for (rules, expected) in [
        ("", "user u off resetchannels -@all"),
        ("on nopass ~* &* +@all", "user u on nopass ~* &* +@all"),
        ("on resetchannels &foo +@all", "user u on resetchannels &foo +@all"),
        (
            "%R~a %W~a ~b %W~c (+get %r~d) ( +set ~e )",
            "user u off ~a ~b %W~c resetchannels -@all (%R~d resetchannels -@all +get) (~e resetchannels -@all +set)",
        ),
        ("~a allkeys resetkeys ~b &a &b skip-sanitize-payload", "user u off ~b resetchannels &a &b -@all"),
        (">a", "user u off #ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb resetchannels -@all"),
        (">a >a >b nopass", "user u off nopass resetchannels -@all"),
        ("on ~a (+get) clearselectors reset", "user u off resetchannels -@all"),
        ("db=1,0 +@all", "user u off resetchannels db=0,1 +@all"),
        ("db=1 alldbs", "user u off resetchannels -@all"),
        ("db=7 resetdbs db=1,0", "user u off resetchannels db=0,1 -@all"),
        ("resetdbs", "user u off resetchannels resetdbs -@all"),
    ] {
        let shown = String::from_utf8(user(rules).unwrap().show()).unwrap();
        assert_eq!(shown, expected, "{rules}");
        let again = user(shown.strip_prefix("user u ").unwrap()).unwrap();
        assert_eq!(again.show(), shown.as_bytes(), "what is shown makes the same user");
    }
}

#[test]
fn rules_that_make_no_sense() {
    for (rules, expected) in [
        ("nosuch", "Syntax error"),
        (")", "Syntax error"),
        ("(", "Unmatched"),
        ("(+get (+set", "Unmatched"),
        ("(nosuch)", "Syntax error"),
        ("+nosuch", "Unknown command or category name in ACL"),
        ("-config|nosuch", "Unknown command or category name in ACL"),
        ("+config|nosuch", "Unknown command or category name in ACL"),
        ("-get|a", "Unknown command or category name in ACL"),
        ("+@nosuch", "Unknown command or category name in ACL"),
        ("+config|get|a", "Allowing first-arg of a subcommand is not supported"),
        ("+get|a|b", "Unknown command or category name in ACL"),
        ("+debug|", "Syntax error"),
        ("%~", "Syntax error"),
        ("%RR~a", "Syntax error"),
        ("%R", "Syntax error"),
        ("db=", "Syntax error"),
        ("db=a", "Syntax error"),
        ("#abc", "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"),
        ("<a", "The password you are trying to remove from the user does not exist"),
        (
            "&* &a",
            "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. Try 'resetchannels' to start with an empty list of channels",
        ),
        (
            "~* ~a",
            "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try 'resetkeys' to start with an empty list of patterns",
        ),
    ] {
        assert_eq!(user(rules).map(|user| user.show()), Err(expected), "{rules}");
    }
}

#[test]
fn what_users_may_do() {
    const NO: &str = "User u has no permissions to";
    let keys = "+@all %R~read* %W~write* %RW~rw*";
    for (rules, call, expected) in [
        ("", "ping", "run the 'ping' command"),
        ("", "auth a b", ""),
        ("+@all", "set a b", "access the 'a' key"),
        ("+@all ~a", "set a b", ""),
        ("+@all allkeys", "publish c m", "access the 'c' channel"),
        ("+@all allkeys &c*", "publish ch m", ""),
        ("+@all allkeys &c*", "subscribe ch d", "access the 'd' channel"),
        ("+@all allkeys &c*", "psubscribe ch*", "access the 'ch*' channel"),
        ("+@all allkeys &c*", "psubscribe c*", ""),
        ("+@all allkeys &c*", "unsubscribe d", ""),
        ("+@all &c*", "ssubscribe d", "access the 'd' channel"),
        ("+@all -client +client|id", "client id", ""),
        ("+@all -client +client|id", "client kill type master", "run the 'client|kill' command"),
        ("+config -config|set", "config set a b", "run the 'config|set' command"),
        ("+select|0", "select 0", ""),
        ("+select|0", "select 1", "run the 'select' command"),
        ("(+set ~w*) (+get ~r*)", "set r v", "access the 'r' key"),
        ("(+set ~w*) (+get ~r*)", "get r", ""),
        ("(+set ~w*) (+get ~r*)", "del r", "run the 'del' command"),
        ("+mget ~key (+mget ~key ~other)", "mget other third", "access the 'third' key"),
        (keys, "get read", ""),
        (keys, "get write", "access the 'write' key"),
        (keys, "set write v", ""),
        (keys, "set write v get", "access the 'write' key"),
        (keys, "lpush read v", "access the 'read' key"),
        (keys, "copy read write", ""),
        (keys, "copy write read", "access the 'write' key"),
        (keys, "sort read store write", ""),
        (keys, "sort read store read", "access the 'read' key"),
        (keys, "eval x 1 read", "access the 'read' key"),
        (keys, "eval_ro x 1 read", ""),
        (keys, "eval x 3 rw read", ""),
        (keys, "exists write", ""),
        (keys, "exists nothing", "access the 'nothing' key"),
        (keys, "bitfield write set u4 0 1", "access the 'write' key"),
        ("+@all ~* db=0,2", "get a", ""),
        ("+@all ~* db=2", "get a", "access database get"),
        ("+@all ~* db=0", "select 2", "access database 2"),
        ("+@all ~* db=0", "select 0", ""),
        ("+@all ~* db=0", "swapdb 0 1", "access database 1"),
        ("+@all ~* db=0", "flushall", "access database flushall"),
        ("+@all ~* db=2", "dbsize", "access database dbsize"),
        ("+@all ~* db=2", "ping", ""),
        ("+@all ~* db=0", "copy a b db 1", "access database 1"),
    ] {
        let user = user(rules).unwrap();
        let words: Request = call.split(' ').map(str::as_bytes).collect();
        let command = find_call(words.args()).unwrap();
        let databases = Databases { chosen: 0, count: 16 };
        let told = user
            .check(command, words.args(), databases)
            .err()
            .map(|denial| denial.full_text(b"u", command, words.args()));
        let expected = (!expected.is_empty()).then(|| format!("{NO} {expected}"));
        assert_eq!(told, expected, "{rules}: {call}");
    }
}

#[test]
fn passwords() {
    let user = user("on >a >b <a #87428fc522803d31065e7bce3cf03fe475096631e5e07bbd7a0fde60c4cf25c7").unwrap();
    for (password, expected) in [("a", false), ("b", true), ("a3f", false), ("", false), ("a\n", true)] {
        assert_eq!(user.lets_in(password.as_bytes()), expected, "{password}");
    }
}
