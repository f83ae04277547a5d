//! How a value is written: the few forms of MessagePack that headers need.
//!
//! Written by hand because it runs once or twice a message: appending to a buffer that is there already, and reading
//! in place, with no allocation and no trait in between. The forms: arrays (of up to 15 written, any length read),
//! unsigned numbers, byte strings, text, nil. Anything else that a later version adds is passed over by
//! [`Reader::skip_value`], so a header can grow at its end. What is written is the shortest form; what is read may be any.
//!
//! A length that a peer announces is compared with the caller's limit before it is used, and never sizes an
//! allocation. An error leaves the reader where it was: after [`PackError::Truncated`], the caller tries again from the
//! same place with more bytes.

use alloc::vec::Vec;
use core::fmt;

const NIL: u8 = 0xc0;
const BIN8: u8 = 0xc4;
const BIN16: u8 = 0xc5;
const BIN32: u8 = 0xc6;
const U8: u8 = 0xcc;
const U16: u8 = 0xcd;
const U32: u8 = 0xce;
const U64: u8 = 0xcf;
const STR8: u8 = 0xd9;
const STR16: u8 = 0xda;
const STR32: u8 = 0xdb;
const ARRAY16: u8 = 0xdc;
const ARRAY32: u8 = 0xdd;
const FIXARRAY: u8 = 0x90;
const FIXSTR: u8 = 0xa0;

/// Items of the longest array that is written.
pub const ARRAY_LEN_MAX: usize = 15;

/// Bytes of the longest number, with its marker.
pub const UINT_BYTES_MAX: usize = 9;

/// Bytes of the longest header of a byte string or text.
pub const BIN_HEADER_BYTES_MAX: usize = 5;

/// Why bytes are not the value that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PackError {
    /// The value goes on beyond the bytes at hand. Not a fault while more may come.
    Truncated,
    /// There is another kind of value, or no value at all. More bytes do not help.
    Malformed,
    /// The value announces more than the reader accepts. Nothing was read or reserved for it.
    TooLong {
        /// What was announced: bytes, or items of an array.
        len: usize,
        /// What is accepted.
        max: usize,
    },
}

impl fmt::Display for PackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the value is cut off"),
            Self::Malformed => f.write_str("the bytes are not the expected kind of value"),
            Self::TooLong { len, max } => write!(f, "the value announces a length of {len}, accepted are {max}"),
        }
    }
}

impl core::error::Error for PackError {}

/// Appends the header of an array of `len` values; the caller appends the values.
///
/// # Panics
/// With more than [`ARRAY_LEN_MAX`] values: arrays here are headers with a fixed number of fields.
#[inline]
pub fn write_array_len(out: &mut Vec<u8>, len: usize) {
    assert!(len <= ARRAY_LEN_MAX, "a header has at most 15 fields");
    out.push(FIXARRAY | len as u8);
}

/// Appends a number in its shortest form.
#[inline]
pub fn write_uint(out: &mut Vec<u8>, value: u64) {
    if value < 0x80 {
        out.push(value as u8);
    } else if value <= 0xff {
        out.extend_from_slice(&[U8, value as u8]);
    } else if value <= 0xffff {
        let [a, b] = (value as u16).to_be_bytes();
        out.extend_from_slice(&[U16, a, b]);
    } else if value <= 0xffff_ffff {
        let [a, b, c, d] = (value as u32).to_be_bytes();
        out.extend_from_slice(&[U32, a, b, c, d]);
    } else {
        let [a, b, c, d, e, f, g, h] = value.to_be_bytes();
        out.extend_from_slice(&[U64, a, b, c, d, e, f, g, h]);
    }
}

/// Appends the header of a byte string of `len` bytes; the caller appends the bytes, here or behind this buffer.
///
/// # Panics
/// With `len` of 4 GiB and more: every payload has a far lower limit.
#[inline]
pub fn write_bin_len(out: &mut Vec<u8>, len: usize) {
    write_len(out, len, [BIN8, BIN16, BIN32]);
}

/// Appends a byte string.
///
/// # Panics
/// As [`write_bin_len`].
#[inline]
pub fn write_bin(out: &mut Vec<u8>, bytes: &[u8]) {
    write_bin_len(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// Appends a text.
///
/// # Panics
/// As [`write_bin_len`].
#[inline]
pub fn write_str(out: &mut Vec<u8>, text: &str) {
    if text.len() < 32 {
        out.push(FIXSTR | text.len() as u8);
    } else {
        write_len(out, text.len(), [STR8, STR16, STR32]);
    }
    out.extend_from_slice(text.as_bytes());
}

/// Appends nil: the value that stands for none.
#[inline]
pub fn write_nil(out: &mut Vec<u8>) {
    out.push(NIL);
}

#[inline]
fn write_len(out: &mut Vec<u8>, len: usize, [m8, m16, m32]: [u8; 3]) {
    let len = u32::try_from(len).expect("every payload has a limit below 4 GiB");
    let [a, b, c, d] = len.to_be_bytes();
    if len <= 0xff {
        out.extend_from_slice(&[m8, d]);
    } else if len <= 0xffff {
        out.extend_from_slice(&[m16, c, d]);
    } else {
        out.extend_from_slice(&[m32, a, b, c, d]);
    }
}

/// Reads values one after the other, in place.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
    total: usize,
}

impl<'a> Reader<'a> {
    /// Starts at the first of `bytes`.
    #[must_use]
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, total: bytes.len() }
    }

    /// Bytes read so far.
    #[must_use]
    #[inline]
    pub const fn position(&self) -> usize {
        self.total - self.rest.len()
    }

    /// The bytes not yet read.
    #[must_use]
    #[inline]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Reads the header of an array of at most `len_max` values and returns their number; the values follow.
    ///
    /// # Errors
    /// See [`PackError`]; the reader does not move.
    #[inline]
    pub fn read_array_len(&mut self, len_max: usize) -> Result<usize, PackError> {
        let mut at = *self;
        let len = match at.read_byte()? {
            marker @ 0x90..=0x9f => usize::from(marker & 0x0f),
            ARRAY16 => at.read_be::<2>()? as usize,
            ARRAY32 => at.read_be::<4>()? as usize,
            _ => return Err(PackError::Malformed),
        };
        at.check_len(len, len_max)?;
        *self = at;
        Ok(len)
    }

    /// Reads a number, in any of its unsigned forms.
    ///
    /// # Errors
    /// See [`PackError`]; the reader does not move.
    #[inline]
    pub fn read_uint(&mut self) -> Result<u64, PackError> {
        let mut at = *self;
        let value = match at.read_byte()? {
            marker @ 0..=0x7f => u64::from(marker),
            U8 => at.read_be::<1>()?,
            U16 => at.read_be::<2>()?,
            U32 => at.read_be::<4>()?,
            U64 => at.read_be::<8>()?,
            _ => return Err(PackError::Malformed),
        };
        *self = at;
        Ok(value)
    }

    /// Reads the header of a byte string of at most `len_max` bytes and returns its length; the bytes follow.
    ///
    /// # Errors
    /// See [`PackError`]; the reader does not move.
    #[inline]
    pub fn read_bin_len(&mut self, len_max: usize) -> Result<usize, PackError> {
        let mut at = *self;
        let len = match at.read_byte()? {
            BIN8 => at.read_be::<1>()? as usize,
            BIN16 => at.read_be::<2>()? as usize,
            BIN32 => at.read_be::<4>()? as usize,
            _ => return Err(PackError::Malformed),
        };
        at.check_len(len, len_max)?;
        *self = at;
        Ok(len)
    }

    /// Reads a byte string of at most `len_max` bytes.
    ///
    /// # Errors
    /// See [`PackError`]; the reader does not move.
    #[inline]
    pub fn read_bin(&mut self, len_max: usize) -> Result<&'a [u8], PackError> {
        let mut at = *self;
        let len = at.read_bin_len(len_max)?;
        let bytes = at.read_bytes(len)?;
        *self = at;
        Ok(bytes)
    }

    /// Reads a byte string of exactly `N` bytes (an id, a nonce, a MAC).
    ///
    /// # Errors
    /// See [`PackError`]; a shorter one is malformed. The reader does not move.
    #[inline]
    pub fn read_bin_array<const N: usize>(&mut self) -> Result<&'a [u8; N], PackError> {
        let mut at = *self;
        let len = at.read_bin_len(N)?;
        if len != N {
            return Err(PackError::Malformed);
        }
        let (bytes, rest) = at.rest.split_first_chunk().ok_or(PackError::Truncated)?;
        at.rest = rest;
        *self = at;
        Ok(bytes)
    }

    /// Reads a text of at most `len_max` bytes.
    ///
    /// # Errors
    /// See [`PackError`]; a text that is not UTF-8 is malformed. The reader does not move.
    #[inline]
    pub fn read_str(&mut self, len_max: usize) -> Result<&'a str, PackError> {
        let mut at = *self;
        let len = match at.read_byte()? {
            marker @ 0xa0..=0xbf => usize::from(marker & 0x1f),
            STR8 => at.read_be::<1>()? as usize,
            STR16 => at.read_be::<2>()? as usize,
            STR32 => at.read_be::<4>()? as usize,
            _ => return Err(PackError::Malformed),
        };
        at.check_len(len, len_max)?;
        let text = core::str::from_utf8(at.read_bytes(len)?).map_err(|_| PackError::Malformed)?;
        *self = at;
        Ok(text)
    }

    /// Reads nil if it stands here, and says whether it did.
    ///
    /// # Errors
    /// [`PackError::Truncated`] at the end of the bytes.
    #[inline]
    pub fn read_nil(&mut self) -> Result<bool, PackError> {
        let nil = *self.rest.first().ok_or(PackError::Truncated)? == NIL;
        if nil {
            self.rest = &self.rest[1..];
        }
        Ok(nil)
    }

    /// Passes over one value of any kind, with all that is in it: what a later version added. Takes time in proportion
    /// to the bytes passed over and no memory, however deep they nest.
    ///
    /// # Errors
    /// See [`PackError`]; the reader does not move.
    pub fn skip_value(&mut self) -> Result<(), PackError> {
        let mut at = *self;
        let mut values = 1_u64;
        while values > 0 {
            let marker = at.read_byte()?;
            let (bytes, inner) = at.read_extent(marker)?;
            at.read_bytes(bytes)?;
            // Each value takes at least a byte, so the loop ends with the bytes; saturating keeps it honest till then.
            values = (values - 1).saturating_add(inner);
        }
        *self = at;
        Ok(())
    }

    /// What follows `marker` and its length: so many bytes, and so many values.
    fn read_extent(&mut self, marker: u8) -> Result<(usize, u64), PackError> {
        Ok(match marker {
            0x00..=0x7f | 0xe0..=0xff | NIL | 0xc2 | 0xc3 => (0, 0),
            0x80..=0x8f => (0, 2 * u64::from(marker & 0x0f)),
            0x90..=0x9f => (0, u64::from(marker & 0x0f)),
            0xa0..=0xbf => (usize::from(marker & 0x1f), 0),
            0xc1 => return Err(PackError::Malformed),
            BIN8 | STR8 => (self.read_be::<1>()? as usize, 0),
            BIN16 | STR16 => (self.read_be::<2>()? as usize, 0),
            BIN32 | STR32 => (self.read_be::<4>()? as usize, 0),
            // An extension has one more byte, its type.
            0xc7 => (self.read_be::<1>()? as usize + 1, 0),
            0xc8 => (self.read_be::<2>()? as usize + 1, 0),
            0xc9 => (self.read_be::<4>()? as usize + 1, 0),
            U8 | 0xd0 => (1, 0),
            U16 | 0xd1 => (2, 0),
            U32 | 0xca | 0xd2 => (4, 0),
            U64 | 0xcb | 0xd3 => (8, 0),
            0xd4..=0xd8 => (1 + (1 << (marker - 0xd4)), 0),
            ARRAY16 => (0, self.read_be::<2>()?),
            ARRAY32 => (0, self.read_be::<4>()?),
            0xde => (0, 2 * self.read_be::<2>()?),
            0xdf => (0, 2 * self.read_be::<4>()?),
        })
    }

    #[inline]
    const fn check_len(&self, len: usize, max: usize) -> Result<(), PackError> {
        if len > max { Err(PackError::TooLong { len, max }) } else { Ok(()) }
    }

    #[inline]
    fn read_byte(&mut self) -> Result<u8, PackError> {
        let (first, rest) = self.rest.split_first().ok_or(PackError::Truncated)?;
        self.rest = rest;
        Ok(*first)
    }

    #[inline]
    fn read_bytes(&mut self, len: usize) -> Result<&'a [u8], PackError> {
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(PackError::Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// A number of `N` bytes, at most 8, the greatest first.
    #[inline]
    fn read_be<const N: usize>(&mut self) -> Result<u64, PackError> {
        let (bytes, rest) = self.rest.split_first_chunk::<N>().ok_or(PackError::Truncated)?;
        self.rest = rest;
        Ok(bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }
}

#[cfg(test)]
mod tests;
