//! The life of one engine as a list of acts: what clients say, and what happens around them.

use core::fmt;

use super::choices::Choices;
use super::grammar::{Grammar, Words};
use super::table::Table;

/// Clients of the live engine.
pub(super) const CLIENTS: usize = 3;
/// When every life begins, Unix milliseconds.
pub(super) const BEGIN_MS: i64 = 1_800_000_000_000;

/// Something that happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Act {
    /// A client sends a request.
    Say(usize, Words),
    /// Milliseconds pass.
    Pass(i64),
    /// The engine looks after itself: active expiry and the like.
    Tick,
    /// The journal is written to the log.
    Write,
    /// The log begins anew with a base.
    Rewrite,
    /// The second replica begins to follow.
    Attach,
    /// The first replica loses its connection.
    Cut,
    /// Replicas get what there is for them.
    Pump,
    /// The log and the replicas are compared with the live engine.
    Check,
}

/// A word as `redis-cli` takes it.
struct Quoted<'a>(&'a [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain =
            !self.0.is_empty() && self.0.iter().all(|byte| byte.is_ascii_graphic() && !b"\"'\\".contains(byte));
        if is_plain {
            return f.write_str(&String::from_utf8_lossy(self.0));
        }
        f.write_str("\"")?;
        for byte in self.0 {
            match byte {
                b'"' | b'\\' => write!(f, "\\{}", char::from(*byte))?,
                b'\n' => f.write_str("\\n")?,
                b'\r' => f.write_str("\\r")?,
                0x20..=0x7e => write!(f, "{}", char::from(*byte))?,
                _ => write!(f, "\\x{byte:02x}")?,
            }
        }
        f.write_str("\"")
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Say(client, words) => {
                write!(f, "client {client}>")?;
                words.iter().try_for_each(|word| write!(f, " {}", Quoted(word)))
            }
            Self::Pass(ms) => write!(f, "{ms} ms pass"),
            Self::Tick => f.write_str("the engine ticks"),
            Self::Write => f.write_str("the journal is written"),
            Self::Rewrite => f.write_str("the log is rewritten"),
            Self::Attach => f.write_str("replica 1 attaches"),
            Self::Cut => f.write_str("replica 0 loses its connection"),
            Self::Pump => f.write_str("replicas catch up"),
            Self::Check => f.write_str("all are compared"),
        }
    }
}

/// Settings that one engine has and another need not have.
pub(super) type Setting = (&'static str, &'static str);

/// Choices of settings that change how values are encoded and removed, which must not show.
const SETTINGS: [(&str, [&str; 3]); 10] = [
    ("stream-node-max-entries", ["100", "2", "5"]),
    ("list-max-listpack-size", ["-2", "2", "1"]),
    ("hash-max-listpack-entries", ["512", "3", "0"]),
    ("set-max-intset-entries", ["512", "3", "0"]),
    ("set-max-listpack-entries", ["128", "3", "0"]),
    ("zset-max-listpack-entries", ["128", "3", "0"]),
    ("lazyfree-lazy-expire", ["yes", "no", "yes"]),
    ("lazyfree-lazy-user-del", ["yes", "no", "yes"]),
    ("lazyfree-lazy-server-del", ["yes", "no", "yes"]),
    ("repl-diskless-load", ["disabled", "swapdb", "flush-before-load"]),
];
/// What all engines of a life must have alike: the form of a HyperLogLog shows in its bytes, which are a string.
const SHARED: (&str, [&str; 3]) = ("hll-sparse-max-bytes", ["3000", "20", "100"]);
/// What only engines have that no client uses: they do what they are told, whatever clients may.
pub(super) const TIGHT: [Setting; 2] = [("proto-max-bulk-len", "1mb"), ("maxmemory", "1")];

/// A life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Life {
    pub(super) settings: Vec<Setting>,
    /// Those of engines that repeat what the live one did.
    pub(super) other_settings: Vec<Setting>,
    pub(crate) acts: Vec<Act>,
}

fn settings(choices: &mut Choices<'_>) -> Vec<Setting> {
    SETTINGS.iter().map(|(name, values)| (*name, values[choices.below(values.len())])).collect()
}

impl Life {
    /// A life of about so many requests.
    pub(crate) fn draw(table: &Table, mut choices: Choices<'_>, requests: usize) -> Self {
        let (mut own, mut other) = (settings(&mut choices), settings(&mut choices));
        let shared = (SHARED.0, SHARED.1[choices.below(SHARED.1.len())]);
        own.push(shared);
        other.push(shared);
        let mut grammar = Grammar::new(table, choices, BEGIN_MS);
        let (mut acts, mut open) = (Vec::new(), [false; CLIENTS]);
        let middle = requests / 2;
        for number in 0..requests {
            if grammar.choices.is_over() {
                break;
            }
            if number == middle {
                let second = [Act::Rewrite, Act::Attach];
                acts.push(Act::Check);
                acts.extend(if grammar.choices.one_in(2) {
                    second.into_iter().rev().collect::<Vec<_>>()
                } else {
                    second.to_vec()
                });
            }
            around(&mut grammar, &mut acts);
            let client = grammar.choices.below(CLIENTS);
            acts.push(Act::Say(client, transaction_or_request(&mut grammar, &mut open[client])));
        }
        Self { settings: own, other_settings: other, acts }
    }

    /// How many requests clients send.
    pub(crate) fn requests(&self) -> usize {
        self.acts.iter().filter(|act| matches!(act, Act::Say(..))).count()
    }
}

/// What happens beside requests.
fn around(grammar: &mut Grammar<'_, '_>, acts: &mut Vec<Act>) {
    match grammar.choices.below(60) {
        1..=6 => {
            let ms = [1, 10, 100, 700, 1_500, 4_000][grammar.choices.below(6)];
            grammar.now_ms += ms;
            acts.push(Act::Pass(ms));
        }
        7..=9 => acts.push(Act::Tick),
        10..=12 => acts.push(Act::Write),
        13..=15 => acts.push(Act::Pump),
        16 if grammar.choices.one_in(4) => acts.push(Act::Cut),
        _ => {}
    }
}

/// The next request of a client, which may have a transaction open.
fn transaction_or_request(grammar: &mut Grammar<'_, '_>, open: &mut bool) -> Words {
    if *open && grammar.choices.one_in(5) {
        *open = false;
        return vec![b"EXEC".to_vec()];
    }
    if !*open && grammar.choices.one_in(30) {
        *open = true;
        return vec![b"MULTI".to_vec()];
    }
    grammar.request()
}
