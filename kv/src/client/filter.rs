//! Which clients `CLIENT LIST` shows and `CLIENT KILL` ends.

use std::collections::BTreeSet;
use std::mem::discriminant;

use super::card::{Card, ClientClass, Figure, Marks};
use crate::engine::Engine;
use crate::error::Error;
use crate::resp::Args;
use crate::resp::number::parse_i64;

/// Conditions, all of which must hold.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    conditions: Vec<(Sense, Condition)>,
    /// Whether whoever asks is left out, if it was said.
    pub(crate) skip_me: Option<bool>,
}

/// Whether a condition must hold, or must not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sense {
    Must,
    MustNot,
}

#[derive(Debug)]
enum Condition {
    Ids(BTreeSet<u64>),
    Class(ClientClass),
    Address(Vec<u8>),
    LocalAddress(Vec<u8>),
    Host(Vec<u8>),
    User(Vec<u8>),
    Name(Vec<u8>),
    Library(Vec<u8>),
    LibraryVersion(Vec<u8>),
    Flags(String),
    Capabilities(String),
    Database(u64),
    IdleAtLeast(i64),
    AgeAtLeast(i64),
}

impl Filter {
    /// The filter of an address alone.
    pub(crate) fn of_address(address: &[u8]) -> Self {
        let conditions = vec![(Sense::Must, Condition::Address(address.to_vec()))];
        Self { conditions, skip_me: Some(false) }
    }

    /// Reads pairs of a word and a value from word `from` on; `ID` takes several values.
    ///
    /// # Errors
    /// A word is unknown, or its value makes no sense.
    pub(crate) fn read(engine: &Engine, args: Args<'_>, from: usize) -> Result<Self, Error> {
        let (mut filter, mut at) = (Self::default(), from);
        while at < args.len() {
            let value = args.get(at + 1).ok_or(Error::SYNTAX)?;
            let word = args[at].to_ascii_lowercase();
            let (sense, plain) = match word.strip_prefix(b"not-") {
                Some(rest) if !matches!(rest, b"maxage" | b"idle" | b"skipme") => (Sense::MustNot, rest),
                _ => (Sense::Must, &*word),
            };
            at += 2;
            let condition = match plain {
                b"id" => {
                    at -= 1;
                    Condition::Ids(read_ids(args, &mut at)?)
                }
                b"skipme" => {
                    filter.skip_me = Some(yes_or_no(value)?);
                    continue;
                }
                _ => Condition::read(engine, plain, value)?,
            };
            filter.add(sense, condition);
        }
        Ok(filter)
    }

    /// The last of a kind holds; of ids all do.
    fn add(&mut self, sense: Sense, condition: Condition) {
        let is_same = |(other, known): &&mut (Sense, Condition)| {
            *other == sense && discriminant(known) == discriminant(&condition)
        };
        match (self.conditions.iter_mut().find(is_same), condition) {
            (Some((_, Condition::Ids(known))), Condition::Ids(more)) => known.extend(more),
            (Some((_, known)), condition) => *known = condition,
            (None, condition) => self.conditions.push((sense, condition)),
        }
    }

    /// Whether a client is meant, apart from [`Filter::skip_me`].
    pub(crate) fn admits(&self, card: &Card, now_ms: i64) -> bool {
        self.conditions.iter().all(|(sense, condition)| condition.holds(card, now_ms) == (*sense == Sense::Must))
    }
}

fn yes_or_no(word: &[u8]) -> Result<bool, Error> {
    match word.to_ascii_lowercase().as_slice() {
        b"yes" => Ok(true),
        b"no" => Ok(false),
        _ => Err(Error::SYNTAX),
    }
}

/// Numbers from word `at` on; moves `at` behind them. What is no number is the next condition, or a mistake in one.
fn read_ids(args: Args<'_>, at: &mut usize) -> Result<BTreeSet<u64>, Error> {
    const WRONG: Error = Error::new("ERR client-id should be greater than 0");
    let mut ids = BTreeSet::new();
    while let Some(id) = args.get(*at).and_then(parse_i64) {
        ids.insert(u64::try_from(id).ok().filter(|id| *id > 0).ok_or(WRONG)?);
        *at += 1;
    }
    Ok(ids)
}

fn read_span(value: &[u8], name: &str) -> Result<i64, Error> {
    let span = parse_i64(value).ok_or_else(|| Error::text(format!("ERR {name} is not an integer or out of range")))?;
    if span > 0 { Ok(span) } else { Err(Error::text(format!("ERR {name} should be greater than 0"))) }
}

/// Letters, each of which `is_known`.
fn read_letters(value: &[u8], name: &str, is_known: impl Fn(char) -> bool) -> Result<String, Error> {
    let letters = String::from_utf8_lossy(value).into_owned();
    if letters.chars().all(is_known) {
        return Ok(letters);
    }
    Err(Error::text(format!("ERR Unknown {name} found in the provided filter: {letters}")))
}

impl Condition {
    fn read(engine: &Engine, word: &[u8], value: &[u8]) -> Result<Self, Error> {
        let shown = || String::from_utf8_lossy(value).into_owned();
        Ok(match word {
            b"type" => Self::Class(
                ClientClass::named(value)
                    .ok_or_else(|| Error::text(format!("ERR Unknown client type '{}'", shown())))?,
            ),
            b"addr" => Self::Address(value.to_vec()),
            b"laddr" => Self::LocalAddress(value.to_vec()),
            b"ip" => Self::Host(value.to_vec()),
            b"user" if engine.has_user(value) => Self::User(value.to_vec()),
            b"user" => return Err(Error::text(format!("ERR No such user '{}'", shown()))),
            b"name" => Self::Name(value.to_vec()),
            b"lib-name" => Self::Library(value.to_vec()),
            b"lib-ver" => Self::LibraryVersion(value.to_vec()),
            b"flags" => Self::Flags(read_letters(value, "flags", Marks::is_letter)?),
            b"capa" => Self::Capabilities(read_letters(value, "capa", |letter| letter == 'r')?),
            b"maxage" => Self::AgeAtLeast(read_span(value, "maxage")?),
            b"idle" => Self::IdleAtLeast(read_span(value, "idle")?),
            b"db" => {
                let last = engine.keyspace.databases() - 1;
                let number = parse_i64(value).ok_or(Error::NOT_INTEGER)?;
                let number = u64::try_from(number).ok().filter(|number| *number <= last as u64);
                let wrong = || Error::text(format!("ERR DB number should be between 0 and {last}"));
                Self::Database(number.ok_or_else(wrong)?)
            }
            _ => return Err(Error::SYNTAX),
        })
    }

    fn holds(&self, card: &Card, now_ms: i64) -> bool {
        match self {
            Self::Ids(ids) => ids.contains(&card.id.0),
            Self::Class(class) => ClientClass::of(card.marks()) == *class,
            Self::Address(address) => card.link.peer.as_bytes() == address,
            Self::LocalAddress(address) => card.link.local.as_bytes() == address,
            Self::Host(host) => {
                let address = card.link.peer.rsplit_once(':').map_or("", |(host, _)| host);
                address.trim_start_matches('[').trim_end_matches(']').as_bytes() == host
            }
            Self::User(user) => card.texts().user == *user,
            Self::Name(name) => card.texts().name == *name,
            Self::Library(name) => card.texts().library == *name,
            Self::LibraryVersion(version) => card.texts().library_version == *version,
            Self::Flags(letters) => {
                let own = card.marks().letters();
                letters.chars().all(|letter| own.contains(letter))
            }
            Self::Capabilities(letters) => letters.chars().all(|letter| card.marks().capabilities().contains(letter)),
            Self::Database(number) => card.get(Figure::Database) == *number,
            Self::IdleAtLeast(seconds) => card.idle_s(now_ms) >= *seconds,
            Self::AgeAtLeast(seconds) => card.age_s(now_ms) >= *seconds,
        }
    }
}
