//! Bytes to words: lengths, strings, numbers. Everything that is read is checked against what is there.

use std::borrow::Cow;
use std::fmt;

use super::code::length;
use super::lzf;
use crate::memory::packed::Digits;

/// The longest string that is read, bytes: the longest word that a request may have, so that a key and a value make a record.
pub(super) const TEXT_BYTES_MAX: u64 = (1 << 31) - 1_024;

/// What is wrong with bytes that somebody gave us. Reading them again fails again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// They end within something.
    Short,
    /// More of them are there than were announced.
    Long,
    /// A length is written in no known way, or is greater than anything can be.
    Length,
    /// A string is written in no known way.
    Text,
    /// A compressed string does not become what was announced.
    Compression,
    /// A packed form of a collection does not hold what it says.
    Packed,
    /// A member, field, node or consumer is there twice.
    Duplicate,
    /// Members, fields or entries are not in their order.
    Order,
    /// A score is not a number, or a time not one that can be.
    Number,
    /// A stream's counts or pending entries contradict each other.
    Contradiction,
    /// A type that is not known.
    Type(u8),
    /// A value of a module, of this name. There are no modules here.
    Module([u8; MODULE_NAME_BYTES]),
}

/// The length of a module's name.
pub const MODULE_NAME_BYTES: usize = 9;

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Short => "it ends too early",
            Self::Long => "something follows its end",
            Self::Length => "a length is wrong",
            Self::Text => "a string is written in an unknown way",
            Self::Compression => "a compressed string is wrong",
            Self::Packed => "a packed collection does not hold what it says",
            Self::Duplicate => "something is there twice",
            Self::Order => "the order is wrong",
            Self::Number => "a number is not one that can be there",
            Self::Contradiction => "the counts of a stream contradict each other",
            Self::Type(number) => return write!(f, "type {number} is not known"),
            Self::Module(name) => {
                return write!(
                    f,
                    "a value of the module type `{}`, and there are no modules here",
                    name.escape_ascii()
                );
            }
        };
        f.write_str(text)
    }
}

impl std::error::Error for Damage {}

/// The name of a module's type: nine letters of six bits, above ten bits of a version.
pub(super) fn module_name(id: u64) -> [u8; MODULE_NAME_BYTES] {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    std::array::from_fn(|at| {
        let shift = 10 + 6 * (MODULE_NAME_BYTES - 1 - at);
        LETTERS[usize::try_from(id >> shift & 63).expect("six bits")]
    })
}

/// What a byte that begins a length says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Length {
    /// So long.
    Plain(u64),
    /// An integer of so many bytes follows, in place of a length and a string.
    Integer(usize),
    /// A compressed string follows: its length, its true length, its bytes.
    Compressed,
}

impl Length {
    /// The length that begins the bytes, and how many bytes it takes. `None` if they end within it.
    pub(super) fn read(bytes: &[u8]) -> Result<Option<(Self, usize)>, Damage> {
        let Some((first, rest)) = bytes.split_first() else { return Ok(None) };
        let low = first & 0x3f;
        let plain = |len: Option<u64>, taken: usize| Ok(len.map(|len| (Self::Plain(len), taken)));
        match (first >> 6, *first) {
            (length::SIX_BITS, _) => plain(Some(low.into()), 1),
            (length::FOURTEEN_BITS, _) => plain(rest.first().map(|next| u16::from_be_bytes([low, *next]).into()), 2),
            (_, length::FOUR_BYTES) => plain(rest.first_chunk().map(|len| u32::from_be_bytes(*len).into()), 5),
            (_, length::EIGHT_BYTES) => plain(rest.first_chunk().map(|len| u64::from_be_bytes(*len)), 9),
            (_, length::INTEGER_8) => Ok(Some((Self::Integer(1), 1))),
            (_, length::INTEGER_16) => Ok(Some((Self::Integer(2), 1))),
            (_, length::INTEGER_32) => Ok(Some((Self::Integer(4), 1))),
            (_, length::COMPRESSED) => Ok(Some((Self::Compressed, 1))),
            (length::ENCODED, _) => Err(Damage::Text),
            _ => Err(Damage::Length),
        }
    }

    /// The same where no string may stand.
    pub(super) fn read_plain(bytes: &[u8]) -> Result<Option<(u64, usize)>, Damage> {
        match Self::read(bytes)? {
            None => Ok(None),
            Some((Self::Plain(len), taken)) => Ok(Some((len, taken))),
            Some(_) => Err(Damage::Length),
        }
    }
}

/// Bytes of which a part was read.
#[derive(Debug, Clone)]
pub(super) struct Source<'a> {
    rest: &'a [u8],
}

impl<'a> Source<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Checks that all was read.
    pub(super) const fn finish(&self) -> Result<(), Damage> {
        if self.rest.is_empty() { Ok(()) } else { Err(Damage::Long) }
    }

    /// What was not read yet.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Damage> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Damage::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Damage> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Damage::Short)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(super) fn byte(&mut self) -> Result<u8, Damage> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    /// A number of eight bytes, little-endian: times, mostly.
    pub(super) fn number(&mut self) -> Result<i64, Damage> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// A length, or a number that is written as one.
    pub(super) fn length(&mut self) -> Result<u64, Damage> {
        let (len, taken) = Length::read_plain(self.rest)?.ok_or(Damage::Short)?;
        self.rest = &self.rest[taken..];
        Ok(len)
    }

    /// How many things follow: at most as many as there are bytes for, if each takes at least `bytes_min`.
    pub(super) fn count(&mut self, bytes_min: usize) -> Result<usize, Damage> {
        let count = usize::try_from(self.length()?).map_err(|_| Damage::Length)?;
        let needed = count.checked_mul(bytes_min).ok_or(Damage::Length)?;
        if needed <= self.rest.len() { Ok(count) } else { Err(Damage::Short) }
    }

    /// A string that is kept: where it lies, or of its own.
    pub(super) fn text_kept(&mut self) -> Result<Cow<'a, [u8]>, Damage> {
        if let Some((Length::Plain(len), taken)) = Length::read(self.rest)? {
            self.rest = &self.rest[taken..];
            return Ok(Cow::Borrowed(self.bytes(text_len(len)?)?));
        }
        let mut made = Vec::new();
        self.text(&mut made)?;
        Ok(Cow::Owned(made))
    }

    /// A string: where it lies, or in `made` if it is not written as it is.
    pub(super) fn text<'s>(&mut self, made: &'s mut Vec<u8>) -> Result<&'s [u8], Damage>
    where
        'a: 's,
    {
        let (len, taken) = Length::read(self.rest)?.ok_or(Damage::Short)?;
        self.rest = &self.rest[taken..];
        match len {
            Length::Plain(len) => self.bytes(text_len(len)?),
            Length::Integer(width) => {
                let bytes = self.bytes(width)?;
                let sign = if bytes[width - 1] & 0x80 == 0 { 0 } else { 0xff };
                let mut wide = [sign; 8];
                wide[..width].copy_from_slice(bytes);
                made.clear();
                made.extend_from_slice(Digits::default().write(i64::from_le_bytes(wide)));
                Ok(made)
            }
            Length::Compressed => {
                let (compressed, len) = (text_len(self.length()?)?, text_len(self.length()?)?);
                made.clear();
                lzf::decompress(self.bytes(compressed)?, len, made)?;
                Ok(made)
            }
        }
    }
}

/// A length that a string can have.
fn text_len(len: u64) -> Result<usize, Damage> {
    usize::try_from(len).ok().filter(|_| len <= TEXT_BYTES_MAX).ok_or(Damage::Length)
}
