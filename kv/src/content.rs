//! Logical content of an engine as comparable text: every key with its value, expiry and the facts of its type.
//!
//! Two engines have the same content if a client cannot tell their data apart. How a value is encoded in memory does not show,
//! nor the order of members of sets and hashes. A key or field that has expired shows as long as it is there: replicas and the log
//! are told of each removal. It is what `cargo xtask replay` compares.
//!
//! The two zeros of a score are one: Valkey and we keep the sign in large sorted sets only.
//!
//! Left out, because no primary tells it to replicas: when a key was last used and how often, and when a consumer of a group was last
//! seen or active.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use xxhash_rust::xxh3::xxh3_64;

use crate::engine::Engine;
use crate::keyspace::{AccessClock, Lock, Policy, Record};
use crate::memory::packed::Digits;
use crate::rdb::Value;
use crate::rdb::export::value_of;
use crate::value::object::Object;
use crate::value::stream::{Group, Stream, StreamId};

/// Longer texts appear as a prefix of this many bytes, their length and a checksum.
const SHOWN_BYTES_MAX: usize = 96;

/// What an engine holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    /// Facts of each key, by database and name.
    keys: BTreeMap<(usize, Box<[u8]>), Vec<String>>,
    /// Sources of the function libraries, in the order of their names.
    libraries: Vec<String>,
}

impl Content {
    /// How many keys there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is neither a key nor a function library.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.libraries.is_empty()
    }

    /// Where `other` differs from this: a few lines a key, at most `keys_max` keys. Empty if they are equal.
    #[must_use]
    pub fn differences(&self, other: &Self, keys_max: usize) -> Vec<String> {
        let mut lines = Vec::new();
        let names = self.keys.keys().chain(other.keys.keys().filter(|name| !self.keys.contains_key(*name)));
        let differing = names.filter(|name| self.keys.get(*name) != other.keys.get(*name));
        for name in differing.take(keys_max) {
            lines.push(format!("key {:?} of database {}", name.1.escape_ascii().to_string(), name.0));
            compare(self.keys.get(name), other.keys.get(name), &mut lines);
        }
        if self.libraries != other.libraries {
            lines.push("function libraries".to_owned());
            compare(Some(&self.libraries), Some(&other.libraries), &mut lines);
        }
        lines
    }
}

/// Adds the facts that only one side has.
fn compare(ours: Option<&Vec<String>>, theirs: Option<&Vec<String>>, lines: &mut Vec<String>) {
    let (Some(ours), Some(theirs)) = (ours, theirs) else {
        lines.push(if ours.is_some() { "  - it is there".to_owned() } else { "  + it is there".to_owned() });
        return;
    };
    let before = lines.len();
    lines.extend(ours.iter().filter(|fact| !theirs.contains(fact)).map(|fact| format!("  - {fact}")));
    lines.extend(theirs.iter().filter(|fact| !ours.contains(fact)).map(|fact| format!("  + {fact}")));
    if lines.len() == before {
        lines.push("  the same facts in another order, or another number of them".to_owned());
    }
}

/// Bytes for people, exact or with a checksum.
struct Shown<'a>(&'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = &self.0[..self.0.len().min(SHOWN_BYTES_MAX)];
        write!(f, "\"{}\"", head.escape_ascii())?;
        if head.len() < self.0.len() {
            write!(f, ".. {} bytes, XXH3 {:016x}", self.0.len(), xxh3_64(self.0))?;
        }
        Ok(())
    }
}

impl Engine {
    /// All that the engine holds. Locks all shards meanwhile; for tests and checks.
    #[must_use]
    pub fn content(&self) -> Content {
        let keys = self.keyspace.lock(Lock::Everything, 0, 0, AccessClock::new(Policy::default(), 0));
        let mut content = Content::default();
        for database in 0..self.keyspace.databases() {
            for shard in keys.shards() {
                shard.each(database, |record| {
                    let facts = facts_of(record, value_of(shard, record));
                    content.keys.insert((database, record.key().into()), facts);
                });
            }
        }
        content.libraries = self.libraries().iter().map(|text| Shown(text).to_string()).collect();
        content.libraries.sort();
        content
    }
}

fn facts_of(record: Record<'_>, value: Value<'_>) -> Vec<String> {
    let mut facts = vec![format!("type {}", record.kind().name())];
    if let Some(expiry) = record.expiry() {
        facts.push(format!("expires at {expiry}"));
    }
    match value {
        Value::String(text) => facts.push(format!("value {}", Shown(text))),
        Value::Object(object) => add_members(object, &mut facts),
    }
    facts
}

fn add_members(object: &Object, facts: &mut Vec<String>) {
    let (mut one, mut two) = (Digits::default(), Digits::default());
    let first = facts.len();
    match object {
        Object::List(list) => {
            for (at, element) in list.iter().enumerate() {
                facts.push(format!("element {at} {}", Shown(element.bytes(&mut one))));
            }
        }
        Object::Set(set) => {
            facts.extend(set.iter().map(|member| format!("member {}", Shown(member.bytes(&mut one)))));
            facts[first..].sort();
        }
        Object::SortedSet(set) => {
            facts.extend(
                set.iter().map(|entry| {
                    format!("member {} score {:?}", Shown(entry.member.bytes(&mut one)), entry.score + 0.0)
                }),
            );
        }
        Object::Hash(hash) => {
            facts.extend(hash.iter(i64::MIN).map(|field| {
                let (name, value) = (Shown(field.name.bytes(&mut one)), Shown(field.value.bytes(&mut two)));
                let expiry = field.expiry_ms.map_or_else(String::new, |at| format!(" expires at {at}"));
                format!("field {name} value {value}{expiry}")
            }));
            facts[first..].sort();
        }
        Object::Stream(stream) => add_stream(stream, facts),
    }
}

fn add_stream(stream: &Stream, facts: &mut Vec<String>) {
    let log = &stream.log;
    facts.push(format!(
        "last id {}, max deleted id {}, entries added {}",
        log.last_id(),
        log.max_deleted_id(),
        log.entries_added()
    ));
    let (mut one, mut two) = (Digits::default(), Digits::default());
    for entry in log.range(StreamId::MIN, StreamId::MAX) {
        let mut fact = format!("entry {}", entry.id);
        for (name, value) in entry.fields {
            // Writing to a string does not fail.
            write!(fact, " {} {}", Shown(name.bytes(&mut one)), Shown(value.bytes(&mut two))).ok();
        }
        facts.push(fact);
    }
    for (name, group) in &stream.groups {
        add_group(name, group, facts);
    }
}

fn add_group(name: &[u8], group: &Group, facts: &mut Vec<String>) {
    let name = Shown(name);
    facts.push(format!("group {name} last id {} entries read {:?}", group.last_id(), group.entries_read()));
    facts.extend(group.consumers().map(|consumer| format!("group {name} consumer {}", Shown(consumer.name()))));
    for (id, pending) in group.pending(StreamId::MIN, StreamId::MAX, None) {
        let consumer = group.consumer(pending.consumer);
        facts.push(format!(
            "group {name} pending {id} of {} delivered at {}, {} times",
            Shown(consumer.name()),
            pending.delivered_ms,
            pending.deliveries
        ));
        if !consumer.pending().contains(&id) {
            facts.push(format!("group {name} pending {id} is unknown to its consumer"));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::Talk;

    /// Commands, of which each gives other content than all before it.
    const COMMANDS: [&str; 21] = [
        "SET s 1",
        "SET s 2",
        "PEXPIREAT s 4000000000000",
        "RPUSH l a b",
        "LSET l 0 c",
        "SADD t 1",
        "SADD t x",
        "ZADD z 1 a",
        "ZADD z 1.5 a",
        "HSET h f v",
        "HPEXPIREAT h 4000000000000 FIELDS 1 f",
        "XADD x 1-1 f v",
        "XADD x 2-1 f w",
        "XDEL x 2-1",
        "XSETID x 3-0",
        "XGROUP CREATE x g 0 ENTRIESREAD 7",
        "XGROUP SETID x g 0 ENTRIESREAD 1",
        "XGROUP CREATECONSUMER x g c",
        "XREADGROUP GROUP g c STREAMS x >",
        "XCLAIM x g c 0 1-1 RETRYCOUNT 9",
        "FUNCTION LOAD \"#!lua name=a\\nserver.register_function('f', function() return 1 end)\"",
    ];

    #[test]
    fn each_change_shows() {
        let mut talk = Talk::new();
        let mut before = vec![talk.engine().content()];
        assert!(before[0].is_empty());
        for line in COMMANDS {
            assert!(!talk.say(0, line).contains("(error)"), "{line}");
            let content = talk.engine().content();
            for earlier in &before {
                assert_ne!(*earlier, content, "{line}");
                assert!(!earlier.differences(&content, 9).is_empty(), "{line}");
            }
            assert!(content.differences(&content, 9).is_empty());
            before.push(content);
        }
    }

    #[test]
    fn encodings_and_orders_do_not_show() {
        let of = |lines: &[&str]| {
            let mut talk = Talk::new();
            lines.iter().for_each(|line| drop(talk.say(0, line)));
            talk.engine().content()
        };
        let pairs: [[&[&str]; 2]; 4] = [
            [&["SADD t 1 2 3"], &["SADD t 3 x", "SADD t 2 1", "SREM t x"]],
            [&["HSET h a 1 b 2"], &["CONFIG SET hash-max-listpack-entries 0", "HSET h b 2 a 1"]],
            [&["ZADD z 1 a 1 b"], &["CONFIG SET zset-max-listpack-entries 0", "ZADD z 1 b 1 a"]],
            [&["RPUSH l a b c"], &["CONFIG SET list-max-listpack-size 1", "RPUSH l b c", "LPUSH l a"]],
        ];
        for [one, other] in pairs {
            assert_eq!(of(one), of(other), "{one:?}");
        }
    }
}
