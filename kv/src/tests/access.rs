//! What users with some rights may do, against what a Valkey server says; and that they do no more.
//!
//! `access.txt` is what a server of version 9.1.2 replied to `ACL DRYRUN` for calls of every command and subcommand, with every
//! option that its own documentation names, and with options in odd orders. A line begins with a sign for each of [`USERS`]: `+`
//! where the call was permitted, else what refused it: a `k`ey, a `d`atabase or a `c`hannel.

use std::collections::{BTreeMap, BTreeSet};

use super::Talk;
use crate::command::spec::table::{COMMANDS, find_call};
use crate::command::spec::{Categories, Flags, Group, Spec};
use crate::resp::Request;

const FACTS: &str = include_str!("../../tests/data/access.txt");

/// Each user's name, rules, and the database from which it calls.
const USERS: [(&str, &str, usize); 6] = [
    ("ro", "%R~* &*", 0),
    ("wo", "%W~* &*", 0),
    ("db", "~* &* db=0", 0),
    ("db", "~* &* db=0", 1),
    ("key", "~k1 &*", 0),
    ("channel", "~* &s &s*", 0),
];

/// Commands that no client of a test may call, for what they do to the server or wait for.
const NOT_CALLED: [&str; 9] =
    ["shutdown", "debug", "monitor", "sync", "psync", "replconf", "client", "failover", "cluster"];

/// Commands of Valkey that are not in the table: its server answers them to no client.
const NOT_ASKED: [&str; 1] = ["cluster|syncslots"];
/// Commands that Valkey does not have.
const OURS: [&str; 1] = ["cluster|beginshard"];

/// The signs and the calls of the table.
fn facts() -> impl Iterator<Item = (&'static str, &'static str)> {
    FACTS.lines().map(|line| line.split_once(' ').expect("a line has signs and a call"))
}

fn spec_of(call: &str) -> &'static Spec {
    let words: Request = call.split(' ').map(str::as_bytes).collect();
    find_call(words.args()).unwrap_or_else(|| panic!("{call}: there is no such command")).spec
}

/// An engine with the users of the table, and one client of each: client 0 may do everything.
fn talk_with_users() -> Talk {
    let mut talk = Talk::new();
    for (at, (name, rules, database)) in (1..).zip(USERS) {
        assert_eq!(talk.say(0, &format!("ACL SETUSER {name} reset on nopass +@all {rules}")), "OK");
        assert_eq!(talk.join(), at);
        assert_eq!(talk.say(at, &format!("SELECT {database}")), "OK");
        assert_eq!(talk.say(at, &format!("AUTH {name} x")), "OK");
    }
    talk
}

#[test]
fn permissions_are_those_of_valkey() {
    let mut talk = talk_with_users();
    let mut apart = Vec::new();
    for (signs, call) in facts() {
        let mut ours = String::new();
        for (name, _, database) in USERS {
            talk.say(0, &format!("SELECT {database}"));
            let told = talk.say(0, &format!("ACL DRYRUN {name} {call}"));
            ours.push(match told.as_str() {
                "OK" => '+',
                _ if told.ends_with(" key\"") => 'k',
                _ if told.contains(" access database ") => 'd',
                _ if told.ends_with(" channel\"") => 'c',
                _ => panic!("{call}: {told}"),
            });
        }
        if ours != signs {
            apart.push(format!("{call}: {signs} {ours}"));
        }
    }
    assert!(apart.is_empty(), "call: Valkey, we\n{}", apart.join("\n"));
}

#[test]
fn every_command_was_asked_for() {
    let asked: BTreeSet<u16> = facts()
        .map(|(_, call)| {
            let words: Request = call.split(' ').map(str::as_bytes).collect();
            find_call(words.args()).unwrap_or_else(|| panic!("{call}: there is no such command")).number
        })
        .collect();
    let missing = COMMANDS
        .iter()
        .filter(|command| command.spec.subcommands.is_empty() && !asked.contains(&command.number))
        .map(|command| command.full_name());
    let mut expected = [NOT_ASKED, OURS].concat();
    expected.sort_unstable();
    assert_eq!(missing.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>(), expected);
}

/// What lies in each database under each name, as `DUMP` shows it, with its expiry.
fn state(talk: &mut Talk) -> BTreeMap<(usize, String), String> {
    let mut all = BTreeMap::new();
    for database in 0..2 {
        talk.say(0, &format!("SELECT {database}"));
        let names = talk.say(0, "KEYS *");
        for name in names.trim_matches(['[', ']']).split(' ').filter(|name| !name.is_empty()) {
            let shown = talk.say(0, &format!("DUMP {name}")) + &talk.say(0, &format!("PEXPIRETIME {name}"));
            all.insert((database, name.to_owned()), shown);
        }
    }
    talk.say(0, "SELECT 0");
    all
}

/// Commands that fill a key with values of each kind; all of them hold the word `secret`.
const KINDS: [&str; 6] = [
    "SET {} secret",
    "RPUSH {} secret secret1",
    "SADD {} secret secret1",
    "HSET {} s secret f secret secret 1",
    "GEOADD {} 1 1 s 1 1 secret",
    "XADD {} 1-1 secret secret",
];

/// Fills the keys that calls name, in two databases, and returns what then lies there.
fn fill(talk: &mut Talk, kind: &str) -> BTreeMap<(usize, String), String> {
    talk.say(0, "FLUSHALL");
    talk.say(0, "FUNCTION FLUSH");
    talk.say(0, "SCRIPT FLUSH");
    for database in 0..2 {
        talk.say(0, &format!("SELECT {database}"));
        for key in ["k1", "k2", "k3"] {
            let told = talk.say(0, &kind.replace("{}", key));
            assert!(!told.starts_with("(error)"), "{told}");
            talk.say(0, &format!("XGROUP CREATE {key} g 0"));
        }
    }
    talk.say(0, "SELECT 0");
    state(talk)
}

/// Calls that are about keys or databases and are permitted to a user.
fn calls_of(client: usize) -> impl Iterator<Item = &'static str> {
    let permitted = facts().filter(move |(signs, _)| signs.as_bytes()[client - 1] == b'+').map(|(_, call)| call);
    permitted.filter(|call| {
        let (spec, name) = (spec_of(call), call.split(' ').next().expect("a call has a name"));
        let is_data = [Categories::KEYSPACE, Categories::READ, Categories::WRITE, Categories::TRANSACTION]
            .into_iter()
            .any(|category| spec.categories().has(category));
        (is_data || spec.has_keys()) && !NOT_CALLED.contains(&name)
    })
}

/// Calls each command as one of the users, for keys of each kind, and looks at what it has replied and changed.
fn try_all(client: usize, mut look: impl FnMut(&str, &str, Vec<(usize, String)>)) {
    let (name, _, database) = USERS[client - 1];
    for kind in KINDS {
        let mut talk = talk_with_users();
        let mut before = fill(&mut talk, kind);
        let mut digest = talk.say(0, "DEBUG DIGEST");
        for call in calls_of(client) {
            let told = talk.say(client, call);
            let after = talk.say(0, "DEBUG DIGEST");
            if after == digest {
                look(call, &told, Vec::new());
            } else {
                let after = state(&mut talk);
                let names: BTreeSet<_> = before.keys().chain(after.keys()).cloned().collect();
                let changed = names.into_iter().filter(|name| before.get(name) != after.get(name)).collect();
                look(call, &told, changed);
                before = fill(&mut talk, kind);
                digest = talk.say(0, "DEBUG DIGEST");
            }
            let spec = spec_of(call);
            if spec.flags.has(Flags::BLOCKING) || spec.docs.group == Group::Transactions || spec.name == "select" {
                // It may wait, or be in another state: its next call is made by a fresh client.
                talk.leave(client);
                let last = talk.join();
                talk.say(last, &format!("SELECT {database}"));
                assert_eq!(talk.say(last, &format!("AUTH {name} x")), "OK");
                talk.swap(client, last);
            }
        }
    }
}

#[test]
fn a_reader_changes_no_key() {
    try_all(1, |call, told, changed| {
        // These name no key: Valkey permits them to everybody who may run them. A group's state is no value for Valkey.
        let is_known = !spec_of(call).has_keys() || call.starts_with("xreadgroup ");
        assert!(is_known || changed.is_empty(), "{call}: {told}: {changed:?}");
    });
}

#[test]
fn a_writer_reads_no_value() {
    try_all(2, |call, told, _| {
        let is_known = !spec_of(call).has_keys();
        assert!(is_known || !told.contains("secret"), "{call}: {told}");
    });
}

#[test]
fn a_user_of_one_database_changes_no_other() {
    try_all(3, |call, told, changed| {
        assert!(changed.iter().all(|(database, _)| *database == 0), "{call}: {told}: {changed:?}");
    });
    try_all(4, |call, told, changed| {
        assert!(changed.iter().all(|(database, _)| *database == 0), "{call}: {told}: {changed:?}");
        assert!(!told.contains("secret"), "{call}: {told}");
    });
}

#[test]
fn a_user_of_one_key_changes_no_other() {
    try_all(5, |call, told, changed| {
        let is_known = !spec_of(call).has_keys();
        assert!(is_known || changed.iter().all(|(_, name)| name == "\"k1\""), "{call}: {told}: {changed:?}");
    });
}

/// Calls with an odd word where a fixed one stands, and what a server of version 9.1.2 replied, with one key of each kind.
const ODD_WORDS: &str = include_str!("../../tests/data/odd-words.txt");

#[test]
fn fixed_words_are_looked_at() {
    let mut talk = Talk::new();
    for line in
        ["HSET h f v", "SET k v", "RPUSH l a", "SADD s a", "ZADD z 1 a", "XADD x 1-1 f v", "XGROUP CREATE x g 0"]
    {
        assert!(!talk.say(0, line).starts_with("(error)"), "{line}");
    }
    let apart: Vec<String> = ODD_WORDS
        .lines()
        .filter_map(|line| {
            let (call, expected) = line.split_once(" -> ").expect("a call and its reply");
            let told = talk.say(0, call);
            (told != format!("(error) {expected}")).then(|| format!("{call}: {expected}: {told}"))
        })
        .collect();
    assert!(apart.is_empty(), "call: Valkey: we\n{}", apart.join("\n"));
}
