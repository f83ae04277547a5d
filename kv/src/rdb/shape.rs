//! Where an item of a file ends: what it is made of, and a scanner that goes on where more bytes were needed.
//!
//! A file is a row of items: an opcode or a type in one byte, and what follows it. The scanner finds the end of an item without
//! understanding it, looks at each byte once however small the chunks are, and takes no memory for what is only announced.

use super::code::{VERSION_CHECKSUM, kind, module, opcode};
use super::source::{Damage, Length, TEXT_BYTES_MAX};

/// A part of an item.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    /// A string.
    Text,
    /// A length, or a number that is written as one.
    Length,
    /// So many bytes.
    Bytes(u64),
    /// A score as text: its length in one byte, which above 252 is a score by itself.
    OldScore,
    /// A count, and as often these parts.
    Many(&'static [Part]),
    /// Parts of a module's value up to their end.
    Module,
}

use Part::{Bytes, Length as Number, Many, Module, OldScore, Text};

/// The least of the lengths of old scores that has no text.
pub(super) const OLD_SCORE_SPECIAL: u8 = 253;

const ID: Part = Bytes(16);
const TIME: Part = Bytes(8);
const NODES: Part = Many(&[Text, Text]);
const STREAM: &[Part] = &[NODES, Number, Number, Number, Many(&[Text, Number, Number, PENDING, CONSUMERS])];
const STREAM_2: &[Part] = &[
    NODES,
    Number,
    Number,
    Number,
    Number,
    Number,
    Number,
    Number,
    Number,
    Many(&[Text, Number, Number, Number, PENDING, CONSUMERS]),
];
const STREAM_3: &[Part] = &[
    NODES,
    Number,
    Number,
    Number,
    Number,
    Number,
    Number,
    Number,
    Number,
    Many(&[Text, Number, Number, Number, PENDING, Many(&[Text, TIME, TIME, Many(&[ID])])]),
];
const PENDING: Part = Many(&[ID, TIME, Number]);
const CONSUMERS: Part = Many(&[Text, TIME, Many(&[ID])]);

/// What a value of a type is made of.
pub(super) const fn of_value(number: u8) -> Result<&'static [Part], Damage> {
    Ok(match number {
        kind::STRING
        | kind::HASH_ZIPMAP
        | kind::LIST_ZIPLIST
        | kind::SET_INTSET
        | kind::ZSET_ZIPLIST
        | kind::HASH_ZIPLIST
        | kind::HASH_LISTPACK
        | kind::ZSET_LISTPACK
        | kind::SET_LISTPACK => &[Text],
        kind::LIST | kind::SET | kind::LIST_QUICKLIST => &[Many(&[Text])],
        kind::ZSET => &[Many(&[Text, OldScore])],
        kind::ZSET_2 => &[Many(&[Text, Bytes(8)])],
        kind::HASH => &[Many(&[Text, Text])],
        kind::LIST_QUICKLIST_2 => &[Many(&[Number, Text])],
        kind::HASH_2 => &[Many(&[Text, Text, TIME])],
        kind::HASH_EXPIRING => &[TIME, Many(&[Number, Text, Text])],
        kind::HASH_LISTPACK_EXPIRING => &[TIME, Text],
        kind::STREAM => STREAM,
        kind::STREAM_2 => STREAM_2,
        kind::STREAM_3 => STREAM_3,
        // Only the module's name is looked at.
        kind::MODULE => &[Number],
        kind::MODULE_PRE_RELEASE => &[],
        _ => return Err(Damage::Type(number)),
    })
}

/// What follows an opcode; nothing if it is none.
const fn of_opcode(number: u8, version: u16) -> Option<&'static [Part]> {
    Some(match number {
        opcode::SLOT_IMPORT => &[Text, Many(&[Number, Number])],
        opcode::SLOT_INFO => &[Number, Number, Number],
        opcode::LIBRARY | opcode::LIBRARY_PRE_RELEASE => &[Text],
        opcode::MODULE => &[Number, Number, Number, Module],
        opcode::IDLE | opcode::DATABASE => &[Number],
        opcode::FREQUENCY => &[Bytes(1)],
        opcode::FACT => &[Text, Text],
        opcode::SIZES => &[Number, Number],
        opcode::EXPIRY_MS => &[TIME],
        opcode::EXPIRY_S => &[Bytes(4)],
        opcode::END if version < VERSION_CHECKSUM => &[],
        opcode::END => &[Bytes(8)],
        _ => return None,
    })
}

/// Parts that are still to come.
#[derive(Debug, Clone, Copy)]
struct Level {
    parts: &'static [Part],
    next: usize,
    /// How often the parts come, the present time included.
    rounds: u64,
}

/// Finds the end of an item.
#[derive(Debug)]
pub(super) struct Scanner {
    levels: Vec<Level>,
    /// How many bytes of the item were passed.
    at: u64,
}

/// A step of a scanner.
enum Step {
    /// A part has so many bytes.
    Whole(u64),
    /// A count of so many bytes, and how often these parts follow.
    Level(u64, &'static [Part], u64),
    /// A part of a module's value: so many bytes with its head, and more follow.
    More(u64),
}

impl Scanner {
    /// For the item that this byte begins.
    pub(super) fn new(first: u8, version: u16) -> Result<Self, Damage> {
        let level = |parts: &'static [Part]| Level { parts, next: 0, rounds: 1 };
        let levels = match of_opcode(first, version) {
            Some(parts) => vec![level(parts)],
            None => vec![level(of_value(first)?), level(&[Text])],
        };
        Ok(Self { levels, at: 1 })
    }

    /// How many bytes of the item are known to be there.
    pub(super) const fn passed(&self) -> u64 {
        self.at
    }

    /// Goes on in the bytes of the item, as far as they have come; how long it is, if its end is there. `left` is how many
    /// bytes the file has from the item on, if that is known.
    pub(super) fn scan(&mut self, bytes: &[u8], left: Option<u64>) -> Result<Option<usize>, Damage> {
        while let Some(level) = self.levels.last_mut() {
            let Some(part) = level.parts.get(level.next) else {
                level.rounds -= 1;
                level.next = 0;
                if level.rounds == 0 {
                    self.levels.pop();
                }
                continue;
            };
            let rest = usize::try_from(self.at).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
            let Some(step) = measure(*part, rest)? else { return self.wait(left, 1) };
            let len = match step {
                Step::Whole(len) | Step::More(len) | Step::Level(len, ..) => len,
            };
            if len > u64::try_from(rest.len()).unwrap_or(u64::MAX) {
                return self.wait(left, len);
            }
            self.at += len;
            if !matches!(step, Step::More(_)) {
                level.next += 1;
            }
            if let Step::Level(_, parts, rounds) = step {
                // Each takes a byte at least.
                self.wait(left, rounds)?;
                if rounds > 0 {
                    self.levels.push(Level { parts, next: 0, rounds });
                }
            }
        }
        Ok(usize::try_from(self.at).ok())
    }

    /// More bytes are needed: they must be possible.
    fn wait(&self, left: Option<u64>, needed: u64) -> Result<Option<usize>, Damage> {
        let end = self.at.checked_add(needed).ok_or(Damage::Length)?;
        if left.is_some_and(|left| end > left) { Err(Damage::Short) } else { Ok(None) }
    }
}

/// What the part that begins the bytes takes. `None` if that cannot be told yet.
fn measure(part: Part, bytes: &[u8]) -> Result<Option<Step>, Damage> {
    let number = |bytes: &[u8]| Ok(Length::read_plain(bytes)?.map(|(number, taken)| (number, as_u64(taken))));
    Ok(match part {
        Text => text_bytes(bytes)?.map(Step::Whole),
        Number => number(bytes)?.map(|(_, taken)| Step::Whole(taken)),
        Bytes(count) => Some(Step::Whole(count)),
        OldScore => bytes.first().map(|len| match *len {
            OLD_SCORE_SPECIAL.. => Step::Whole(1),
            len => Step::Whole(1 + u64::from(len)),
        }),
        Many(parts) => number(bytes)?.map(|(count, taken)| Step::Level(taken, parts, count)),
        Module => {
            let Some((head, taken)) = number(bytes)? else { return Ok(None) };
            let rest = &bytes[usize::try_from(taken).map_err(|_| Damage::Length)?..];
            let payload = match head {
                module::END => return Ok(Some(Step::Whole(taken))),
                module::SIGNED | module::UNSIGNED => number(rest)?.map(|(_, taken)| taken),
                module::FLOAT => Some(4),
                module::DOUBLE => Some(8),
                module::TEXT => text_bytes(rest)?,
                _ => return Err(Damage::Text),
            };
            payload.map(|payload| Step::More(taken + payload))
        }
    })
}

fn as_u64(len: usize) -> u64 {
    u64::try_from(len).expect("lengths have 64 bits")
}

/// How many bytes a string takes, with its head.
fn text_bytes(bytes: &[u8]) -> Result<Option<u64>, Damage> {
    let Some((head, taken)) = Length::read(bytes)? else { return Ok(None) };
    let within = |len: u64| if len <= TEXT_BYTES_MAX { Ok(len) } else { Err(Damage::Length) };
    let taken_bytes = as_u64(taken);
    Ok(match head {
        Length::Plain(len) => Some(taken_bytes + within(len)?),
        Length::Integer(width) => Some(taken_bytes + as_u64(width)),
        Length::Compressed => {
            let Some((compressed, first)) = Length::read_plain(&bytes[taken..])? else { return Ok(None) };
            let Some((_, second)) = Length::read_plain(&bytes[taken + first..])? else { return Ok(None) };
            Some(taken_bytes + as_u64(first) + as_u64(second) + within(compressed)?)
        }
    })
}
