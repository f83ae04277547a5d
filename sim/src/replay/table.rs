//! The command table as the engine documents it: `COMMAND DOCS` and `COMMAND`, read as a client reads them.
//!
//! So the generator knows every command and option that clients can find, and a new one without a change here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ashlar_kv::{Engine, Mailbox, Now, Session};

use super::world::link_of;

/// A reply of RESP2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Text(Vec<u8>),
    Number(i64),
    List(Vec<Self>),
    Null,
}

impl Value {
    /// Reads a reply, and what follows it; nothing if it is none.
    pub(super) fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let end = bytes.windows(2).position(|two| two == b"\r\n")?;
        let (line, rest) = (&bytes[1..end], &bytes[end + 2..]);
        let number = || std::str::from_utf8(line).ok()?.parse::<i64>().ok();
        match bytes[0] {
            b'+' | b'-' => Some((Self::Text(line.to_vec()), rest)),
            b':' => Some((Self::Number(number()?), rest)),
            b'$' => match usize::try_from(number()?) {
                Ok(len) => Some((Self::Text(rest.get(..len)?.to_vec()), rest.get(len + 2..)?)),
                Err(_) => Some((Self::Null, rest)),
            },
            b'*' => {
                let Ok(count) = usize::try_from(number()?) else { return Some((Self::Null, rest)) };
                let (mut list, mut rest) = (Vec::new(), rest);
                for _ in 0..count {
                    let (value, left) = Self::read(rest)?;
                    list.push(value);
                    rest = left;
                }
                Some((Self::List(list), rest))
            }
            _ => None,
        }
    }

    fn list(&self) -> &[Self] {
        if let Self::List(list) = self { list } else { &[] }
    }

    fn text(&self) -> String {
        if let Self::Text(text) = self { String::from_utf8_lossy(text).into_owned() } else { String::new() }
    }

    /// The value of a name in a map.
    fn get(&self, name: &str) -> Option<&Self> {
        self.list().chunks_exact(2).find(|pair| pair[0].text() == name).map(|pair| &pair[1])
    }

    fn flags(&self) -> BTreeSet<String> {
        self.list().iter().map(Self::text).collect()
    }
}

/// What an argument is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Block,
    OneOf,
    Token,
    Key,
    Integer,
    Double,
    Pattern,
    UnixTime,
    String,
}

/// An argument, or a group of arguments.
#[derive(Debug, Clone)]
pub(super) struct Argument {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) token: Option<String>,
    pub(super) is_optional: bool,
    pub(super) is_multiple: bool,
    pub(super) has_multiple_token: bool,
    pub(super) inner: Vec<Self>,
}

impl Argument {
    fn read(value: &Value) -> Self {
        let text = |name: &str| value.get(name).map(Value::text).unwrap_or_default();
        let kind = match text("type").as_str() {
            "block" => Kind::Block,
            "oneof" => Kind::OneOf,
            "pure-token" => Kind::Token,
            "key" => Kind::Key,
            "integer" => Kind::Integer,
            "double" => Kind::Double,
            "pattern" => Kind::Pattern,
            "unix-time" => Kind::UnixTime,
            _ => Kind::String,
        };
        let flags = value.get("flags").map(Value::flags).unwrap_or_default();
        Self {
            name: text("name"),
            kind,
            token: value.get("token").map(Value::text),
            is_optional: flags.contains("optional"),
            is_multiple: flags.contains("multiple"),
            has_multiple_token: flags.contains("multiple_token"),
            inner: value.get("arguments").map(read_arguments).unwrap_or_default(),
        }
    }
}

fn read_arguments(value: &Value) -> Vec<Argument> {
    value.list().iter().map(Argument::read).collect()
}

/// A command, or a subcommand with the name of its container.
#[derive(Debug, Clone)]
pub(super) struct Command {
    /// `xgroup|create`.
    pub(super) name: String,
    pub(super) group: String,
    pub(super) writes: bool,
    pub(super) arguments: Vec<Argument>,
}

impl Command {
    /// The words of its name.
    pub(super) fn words(&self) -> impl Iterator<Item = Vec<u8>> {
        self.name.split('|').map(|word| word.to_ascii_uppercase().into_bytes())
    }
}

/// Commands by name.
#[derive(Debug)]
pub struct Table {
    pub(super) writing: Vec<Command>,
    pub(super) reading: Vec<Command>,
    /// Every word that is an option of some command.
    pub(super) tokens: Vec<String>,
}

/// Commands that are not sent, and why: containers and single commands.
const LEFT_OUT: [(&str, &str); 28] = [
    ("acl", "is about users, not about data"),
    ("asking", "is about a cluster"),
    ("auth", "is about users"),
    ("bgrewriteaof", "the world decides when the log begins anew"),
    ("bgsave", "the world takes dumps"),
    ("client", "is about connections"),
    ("cluster", "is about a cluster"),
    ("config", "the world chooses the settings"),
    ("debug", "is not for data"),
    ("failover", "changes roles"),
    ("function|kill", "no script is slow"),
    ("hello", "the replies of the world are RESP2"),
    ("migrate", "needs another server"),
    ("monitor", "the client would be of no use afterwards"),
    ("psubscribe", "the client would be of no use afterwards"),
    ("psync", "the client would become a replica"),
    ("quit", "ends the connection"),
    ("replconf", "is for replicas"),
    ("replicaof", "changes roles"),
    ("save", "the world takes dumps"),
    ("script|debug", "changes no data"),
    ("shutdown", "ends the process"),
    ("slaveof", "changes roles"),
    ("ssubscribe", "the client would be of no use afterwards"),
    ("subscribe", "the client would be of no use afterwards"),
    ("sync", "the client would become a replica"),
    ("wait", "waits for replicas, which the world moves"),
    ("waitaof", "waits for the log, which the world moves"),
];

fn is_left_out(name: &str) -> bool {
    let container = name.split('|').next().unwrap_or(name);
    LEFT_OUT.iter().any(|(other, _)| *other == name || *other == container)
}

/// Which commands write.
fn read_flags(commands: &Value, into: &mut BTreeMap<String, BTreeSet<String>>) {
    for command in commands.list() {
        let [name, _, flags, .., subcommands] = command.list() else { continue };
        into.insert(name.text(), flags.flags());
        read_flags(subcommands, into);
    }
}

fn read_docs(docs: &Value, flags: &BTreeMap<String, BTreeSet<String>>, into: &mut Vec<Command>) {
    for pair in docs.list().chunks_exact(2) {
        let (name, facts) = (pair[0].text(), &pair[1]);
        if let Some(subcommands) = facts.get("subcommands") {
            read_docs(subcommands, flags, into);
        } else if !is_left_out(&name) {
            let writes = |flags: &BTreeSet<String>| flags.contains("write") || flags.contains("may_replicate");
            into.push(Command {
                group: facts.get("group").map(Value::text).unwrap_or_default(),
                writes: flags.get(&name).is_some_and(writes),
                arguments: facts.get("arguments").map(read_arguments).unwrap_or_default(),
                name,
            });
        }
    }
}

fn add_tokens(arguments: &[Argument], into: &mut BTreeSet<String>) {
    for argument in arguments {
        into.extend(argument.token.clone().filter(|token| !token.is_empty()));
        add_tokens(&argument.inner, into);
    }
}

impl Table {
    /// Asks an engine for its commands.
    pub(super) fn of(engine: &Arc<Engine>, now: Now) -> Self {
        let mailbox = Arc::new(Mailbox::new(Box::new(|| {})));
        let mut session =
            Session::open(Arc::clone(engine), mailbox, link_of("table"), now).expect("nobody else is there");
        let mut ask = |request: &[u8]| {
            let (_, _) = session.feed(request, now);
            let value = Value::read(session.replies()).expect("a reply of RESP2").0;
            session.handle_sent(session.replies().len());
            value
        };
        let (mut flags, mut commands) = (BTreeMap::new(), Vec::new());
        read_flags(&ask(b"COMMAND\r\n"), &mut flags);
        read_docs(&ask(b"COMMAND DOCS\r\n"), &flags, &mut commands);
        let mut tokens = BTreeSet::new();
        commands.iter().for_each(|command| add_tokens(&command.arguments, &mut tokens));
        let (writing, reading) = commands.into_iter().partition(|command| command.writes);
        Self { writing, reading, tokens: tokens.into_iter().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::world::new_table;

    #[test]
    fn the_whole_table_is_read() {
        let table = new_table();
        assert!(table.writing.len() > 110, "{}", table.writing.len());
        assert!(table.reading.len() > 60, "{}", table.reading.len());
        assert!(
            ["IFEQ", "GET", "NOMKSTREAM", "KEEPTTL", "ENTRIESREAD"]
                .iter()
                .all(|token| { table.tokens.iter().any(|other| other == token) })
        );
        let xadd = table.writing.iter().find(|command| command.name == "xadd").unwrap();
        assert_eq!((xadd.group.as_str(), xadd.arguments.len()), ("stream", 5));
        assert!(!table.writing.iter().any(|command| command.name == "shutdown"));
        for (name, why) in super::LEFT_OUT {
            assert!(!why.is_empty() && name == name.to_ascii_lowercase(), "{name}");
        }
    }
}
