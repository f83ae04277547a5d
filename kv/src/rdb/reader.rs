//! Files, read in chunks.
//!
//! One item at a time is in memory, whole: the longest value decides how much. The checksum covers everything before it, so
//! it is known to be right only at the end; whoever keeps what came before must be ready to throw it away.

use std::ops::Range;

use super::code::{VERSION, VERSION_CHECKSUM, VERSION_FOREIGN, VERSION_VALKEY, kind, opcode};
use super::crc::Crc;
use super::decode::{Decoded, Rules, decode};
use super::encode::Attributes;
use super::shape::Scanner;
use super::source::{Damage, Source};
use crate::replicate::Point;

/// Bytes of a file before its first item.
const HEAD_BYTES: usize = 9;
/// The most bytes that one item may have: a key with its value.
const ITEM_BYTES_MAX: u64 = 1 << 34;
/// Bytes that were read are kept until there are so many, or nothing else is.
const IDLE_BYTES_MAX: usize = 1 << 16;

/// What a file has next.
#[derive(Debug)]
pub(crate) enum Item<'a> {
    /// The keys that follow are in this database.
    Database(u64),
    /// A library of functions: its text.
    Library(Vec<u8>),
    /// A key.
    Entry(Entry<'a>),
    /// Its end. The checksum is right, or there is none.
    End,
}

/// A key.
#[derive(Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) key: std::borrow::Cow<'a, [u8]>,
    pub(crate) attributes: Attributes,
    pub(crate) value: Decoded<'a>,
}

/// What stopped a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The file does not begin as one.
    NotOne,
    /// It is of a version that is not known.
    Version(u32),
    /// The checksum is not that of the bytes.
    Checksum,
    /// An item is broken; of the key, if it was read.
    Damage(Damage, Option<Vec<u8>>),
}

impl From<Damage> for Fault {
    fn from(damage: Damage) -> Self {
        Self::Damage(damage, None)
    }
}

/// Reads a file.
#[derive(Debug)]
pub(crate) struct Reader {
    buffer: Vec<u8>,
    /// Where in the buffer the next item begins.
    start: usize,
    /// Where in the file the buffer begins.
    buffer_at: u64,
    /// How long the file is, if that is known.
    file_bytes: Option<u64>,
    /// None before the head was read.
    version: Option<u16>,
    scanner: Option<Scanner>,
    crc: Crc,
    /// What was said of the next key.
    attributes: Attributes,
    facts: Facts,
    is_over: bool,
}

/// What a file says of the point of a history whose data it has, and of what is only a copy in it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    history: Option<String>,
    position: Option<u64>,
    database: Option<usize>,
    commit: Option<String>,
    /// Slots whose keys are copies.
    copies: String,
}

impl Facts {
    /// The longest name of a history.
    const NAME_BYTES_MAX: usize = 40;
    /// The longest that a file says of a shard's term and members.
    const COMMIT_BYTES_MAX: usize = 2 << 10;

    fn note(&mut self, name: &[u8], value: &[u8]) {
        let value = String::from_utf8_lossy(value);
        match name {
            b"repl-id" if value.len() <= Self::NAME_BYTES_MAX => self.history = Some(value.into_owned()),
            b"repl-offset" => self.position = value.parse().ok(),
            b"repl-stream-db" => self.database = value.parse().ok(),
            b"ashlar-term" if value.len() <= Self::COMMIT_BYTES_MAX => self.commit = Some(value.into_owned()),
            name if name == super::export::COPIES.as_bytes() => self.copies = value.into_owned(),
            _ => {}
        }
    }

    /// What the file says of the term and the members of a shard.
    pub(crate) fn commit(&self) -> Option<String> {
        self.commit.clone()
    }

    /// Slots whose keys are copies, as text.
    pub(crate) fn copies(&self) -> &str {
        &self.copies
    }

    /// The point, if the file says one.
    pub(crate) fn point(&self) -> Option<Point> {
        let (history, position) = (self.history.clone()?, self.position?);
        Some(Point { history, position, database: self.database })
    }
}

impl Reader {
    /// A reader of a file of so many bytes, if that is known: a length that goes beyond its end is refused at once then.
    pub(crate) fn new(file_bytes: Option<u64>) -> Self {
        Self {
            buffer: Vec::new(),
            start: 0,
            buffer_at: 0,
            file_bytes,
            version: None,
            scanner: None,
            crc: Crc::new(),
            attributes: Attributes::default(),
            facts: Facts::default(),
            is_over: false,
        }
    }

    /// Takes the next bytes of the file.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        if self.start == self.buffer.len() || self.start > IDLE_BYTES_MAX {
            self.buffer.drain(..self.start);
            self.buffer_at += u64::try_from(self.start).expect("lengths have 64 bits");
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Where in the file the next item begins.
    pub(crate) fn offset(&self) -> u64 {
        self.buffer_at + u64::try_from(self.start).expect("lengths have 64 bits")
    }

    /// What the file has said of its point so far.
    pub(crate) const fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Bytes behind the end, or of an item whose end has not come yet.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// Whether the end was reached.
    pub(crate) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// The next item that the bytes so far hold whole. Nothing at the end, or when more bytes are needed.
    ///
    /// # Errors
    /// [`Fault`]: the file's, so the same file fails again. The reader is of no use any more.
    pub(crate) fn next(&mut self, rules: &Rules<'_>) -> Result<Option<Item<'_>>, Fault> {
        loop {
            let Some(range) = self.scan()? else { return Ok(None) };
            if self.note(&range)? {
                continue;
            }
            self.is_over = self.buffer[range.start] == opcode::END;
            let attributes = std::mem::take(&mut self.attributes);
            let is_foreign = self.version.is_some_and(|version| (VERSION_FOREIGN..VERSION_VALKEY).contains(&version));
            return item(&self.buffer[range], attributes, is_foreign, rules).map(Some);
        }
    }

    /// The next item, if it is there whole. It counts as read.
    fn scan(&mut self) -> Result<Option<Range<usize>>, Fault> {
        if self.is_over {
            return Ok(None);
        }
        let Some(version) = self.head()? else { return Ok(None) };
        let rest = &self.buffer[self.start..];
        let Some(first) = rest.first() else { return Ok(None) };
        let mut scanner = match self.scanner.take() {
            Some(scanner) => scanner,
            None => Scanner::new(*first, version)?,
        };
        let offset = self.offset();
        let left = self.file_bytes.map(|bytes| bytes.saturating_sub(offset));
        let Some(len) = scanner.scan(rest, left)? else {
            if scanner.passed() > ITEM_BYTES_MAX {
                return Err(Damage::Length.into());
            }
            self.scanner = Some(scanner);
            return Ok(None);
        };
        let range = self.start..self.start + len;
        self.check(&range, version)?;
        self.start = range.end;
        Ok(Some(range))
    }

    /// The version, once the head is there.
    fn head(&mut self) -> Result<Option<u16>, Fault> {
        if self.version.is_some() {
            return Ok(self.version);
        }
        let Some(head) = self.buffer.first_chunk::<HEAD_BYTES>() else {
            let is_possible = |name: &[u8]| name.iter().zip(&self.buffer).all(|(one, other)| one == other);
            return if is_possible(b"REDIS") || is_possible(b"VALKEY") { Ok(None) } else { Err(Fault::NotOne) };
        };
        let digits = |from: usize| {
            let is_number = head[from..].iter().all(u8::is_ascii_digit);
            is_number.then(|| head[from..].iter().fold(0_u32, |number, digit| number * 10 + u32::from(digit - b'0')))
        };
        let (version, known) = match head {
            [b'R', b'E', b'D', b'I', b'S', ..] => (digits(5), 1..u32::from(VERSION_VALKEY)),
            [b'V', b'A', b'L', b'K', b'E', b'Y', ..] => {
                (digits(6), VERSION_VALKEY.into()..u32::from(VERSION_VALKEY) + 1)
            }
            _ => (None, 0..0),
        };
        let version = version.ok_or(Fault::NotOne)?;
        let known = u16::try_from(version).ok().filter(|_| known.contains(&version));
        self.version = Some(known.ok_or(Fault::Version(version))?);
        self.crc.update(head);
        self.start = HEAD_BYTES;
        Ok(self.version)
    }

    /// Counts an item into the checksum; at the end, compares.
    fn check(&mut self, range: &Range<usize>, version: u16) -> Result<(), Fault> {
        let bytes = &self.buffer[range.clone()];
        if bytes[0] != opcode::END {
            self.crc.update(bytes);
            return Ok(());
        }
        self.crc.update(&bytes[..1]);
        let sum = bytes[1..].first_chunk().map(|sum| u64::from_le_bytes(*sum));
        // Zero says that none was made.
        let is_right = version < VERSION_CHECKSUM || sum.is_some_and(|sum| sum == 0 || sum == self.crc.sum());
        if is_right { Ok(()) } else { Err(Fault::Checksum) }
    }

    /// Notes what an item says of the next key, and passes over what says nothing to us. Whether it was such an item.
    fn note(&mut self, range: &Range<usize>) -> Result<bool, Fault> {
        let (first, rest) = self.buffer[range.clone()].split_first().expect("an item has a byte at least");
        let mut source = Source::new(rest);
        match *first {
            opcode::EXPIRY_MS => self.attributes.expiry = Some(source.number()?),
            opcode::EXPIRY_S => {
                self.attributes.expiry = Some(i64::from(i32::from_le_bytes(source.array()?)) * 1_000);
            }
            opcode::IDLE => self.attributes.idle_s = Some(source.length()?),
            opcode::FREQUENCY => self.attributes.frequency = Some(source.byte()?),
            opcode::FACT => {
                // Whoever wrote a fact that is no text meant nothing to us.
                if let (Ok(name), Ok(value)) = (source.text_kept(), source.text_kept()) {
                    self.facts.note(&name, &value);
                }
            }
            opcode::SIZES | opcode::SLOT_INFO | opcode::SLOT_IMPORT | opcode::MODULE => {}
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Decodes an item that is whole.
fn item<'a>(bytes: &'a [u8], attributes: Attributes, is_foreign: bool, rules: &Rules<'_>) -> Result<Item<'a>, Fault> {
    let (first, rest) = bytes.split_first().expect("an item has a byte at least");
    let mut source = Source::new(rest);
    let item = match *first {
        opcode::END => return Ok(Item::End),
        opcode::DATABASE => Item::Database(source.length()?),
        opcode::LIBRARY => Item::Library(source.text_kept()?.into_owned()),
        opcode::LIBRARY_PRE_RELEASE => return Err(Damage::Type(*first).into()),
        // Redis has given this number to another form.
        kind::HASH_2 if is_foreign => return Err(Damage::Type(*first).into()),
        number => {
            let key = source.text_kept()?;
            let of_key = |damage| Fault::Damage(damage, Some(key.to_vec()));
            let value = decode(number, &mut source, rules).map_err(of_key)?;
            source.finish().map_err(of_key)?;
            Item::Entry(Entry { key, attributes, value })
        }
    };
    source.finish()?;
    Ok(item)
}

const _: () =
    assert!(VERSION < VERSION_FOREIGN && VERSION_FOREIGN < VERSION_VALKEY, "versions are told apart by these");
