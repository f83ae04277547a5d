//! The few MessagePack primitives that headers are made of, written and read by hand.
//!
//! Writers append the shortest form. The [`Reader`] accepts every form of the right type, checks an announced length
//! against a limit before it means anything, and never allocates. Typed payloads use a serde library instead; both
//! write the same bytes.

use alloc::vec::Vec;
use core::fmt;

/// Why bytes are not the value that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PackError {
    /// The bytes end before the value does.
    Truncated,
    /// Another type, or text that is not UTF-8.
    Malformed,
    /// Longer than the reader allows.
    TooLong {
        /// Announced length in bytes.
        len: usize,
        /// Limit in bytes.
        max: usize,
    },
}

impl fmt::Display for PackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("it ends too early"),
            Self::Malformed => f.write_str("a value has another type than expected"),
            Self::TooLong { len, max } => write!(f, "{len} bytes are announced where at most {max} are allowed"),
        }
    }
}

impl core::error::Error for PackError {}

/// Begins an array of `len` elements.
///
/// # Panics
/// When `len` exceeds 15: headers are short.
#[inline]
pub fn write_array_len(out: &mut Vec<u8>, len: u8) {
    assert!(len < 16, "headers have fewer than 16 elements");
    out.push(0x90 | len);
}

/// An unsigned number in its shortest form.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "each branch has checked the range")]
pub fn write_uint(out: &mut Vec<u8>, value: u64) {
    if value < 0x80 {
        out.push(value as u8);
    } else if value <= 0xff {
        out.extend_from_slice(&[0xcc, value as u8]);
    } else if value <= 0xffff {
        let [a, b] = (value as u16).to_be_bytes();
        out.extend_from_slice(&[0xcd, a, b]);
    } else if value <= 0xffff_ffff {
        let [a, b, c, d] = (value as u32).to_be_bytes();
        out.extend_from_slice(&[0xce, a, b, c, d]);
    } else {
        out.push(0xcf);
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// Bytes, with their length in the shortest form.
///
/// # Panics
/// When `bytes` has 4 GiB or more.
#[inline]
pub fn write_bin(out: &mut Vec<u8>, bytes: &[u8]) {
    write_len(out, bytes.len(), 0xc4, None);
    out.extend_from_slice(bytes);
}

/// Text, with its length in the shortest form.
///
/// # Panics
/// When `text` has 4 GiB or more.
pub fn write_str(out: &mut Vec<u8>, text: &str) {
    write_len(out, text.len(), 0xd9, Some(0xa0));
    out.extend_from_slice(text.as_bytes());
}

/// A length after a tag: `tag8`, `tag8 + 1`, `tag8 + 2` for one, two and four bytes; `fix` carries lengths below 32.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "each branch has checked the range")]
fn write_len(out: &mut Vec<u8>, len: usize, tag8: u8, fix: Option<u8>) {
    match (len, fix) {
        (0..32, Some(fix)) => out.push(fix | len as u8),
        (0..=0xff, _) => out.extend_from_slice(&[tag8, len as u8]),
        (0x100..=0xffff, _) => {
            let [a, b] = (len as u16).to_be_bytes();
            out.extend_from_slice(&[tag8 + 1, a, b]);
        }
        _ => {
            let [a, b, c, d] = u32::try_from(len).expect("values below 4 GiB").to_be_bytes();
            out.extend_from_slice(&[tag8 + 2, a, b, c, d]);
        }
    }
}

/// Reads values from the front of bytes.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader over `bytes`.
    #[inline]
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// What has not been read.
    #[inline]
    #[must_use]
    pub const fn remaining(&self) -> &'a [u8] {
        self.bytes
    }

    #[inline]
    fn take(&mut self, len: usize) -> Result<&'a [u8], PackError> {
        let (taken, rest) = self.bytes.split_at_checked(len).ok_or(PackError::Truncated)?;
        self.bytes = rest;
        Ok(taken)
    }

    #[inline]
    fn take_array<const N: usize>(&mut self) -> Result<[u8; N], PackError> {
        let (taken, rest) = self.bytes.split_first_chunk::<N>().ok_or(PackError::Truncated)?;
        self.bytes = rest;
        Ok(*taken)
    }

    /// The length of an array of at most 15 elements.
    ///
    /// # Errors
    /// Truncated, or not such an array.
    #[inline]
    pub fn read_array_len(&mut self) -> Result<u8, PackError> {
        let [tag] = self.take_array()?;
        if tag & 0xf0 == 0x90 { Ok(tag & 0x0f) } else { Err(PackError::Malformed) }
    }

    /// An unsigned number in any form.
    ///
    /// # Errors
    /// Truncated, or not such a number.
    #[inline]
    pub fn read_uint(&mut self) -> Result<u64, PackError> {
        let [tag] = self.take_array()?;
        Ok(match tag {
            0..0x80 => u64::from(tag),
            0xcc => u64::from(self.take_array::<1>()?[0]),
            0xcd => u64::from(u16::from_be_bytes(self.take_array()?)),
            0xce => u64::from(u32::from_be_bytes(self.take_array()?)),
            0xcf => u64::from_be_bytes(self.take_array()?),
            _ => return Err(PackError::Malformed),
        })
    }

    /// The announced length of bytes, which follow and are not read yet.
    ///
    /// # Errors
    /// Truncated, not bytes, or longer than `max`.
    #[inline]
    pub fn read_bin_len(&mut self, max: usize) -> Result<usize, PackError> {
        let [tag] = self.take_array()?;
        let len = match tag {
            0xc4 => u32::from(self.take_array::<1>()?[0]),
            0xc5 => u32::from(u16::from_be_bytes(self.take_array()?)),
            0xc6 => u32::from_be_bytes(self.take_array()?),
            _ => return Err(PackError::Malformed),
        };
        check_len(len, max)
    }

    /// Bytes.
    ///
    /// # Errors
    /// Truncated, not bytes, or longer than `max`.
    #[inline]
    pub fn read_bin(&mut self, max: usize) -> Result<&'a [u8], PackError> {
        let len = self.read_bin_len(max)?;
        self.take(len)
    }

    /// Bytes of a length that is known.
    ///
    /// # Errors
    /// Truncated, not bytes, or of another length.
    pub fn read_bin_array<const N: usize>(&mut self) -> Result<[u8; N], PackError> {
        self.read_bin(N)?.try_into().map_err(|_| PackError::Malformed)
    }

    /// Text.
    ///
    /// # Errors
    /// Truncated, not text, or longer than `max` bytes.
    pub fn read_str(&mut self, max: usize) -> Result<&'a str, PackError> {
        let [tag] = self.take_array()?;
        let len = match tag {
            0xa0..=0xbf => u32::from(tag & 0x1f),
            0xd9 => u32::from(self.take_array::<1>()?[0]),
            0xda => u32::from(u16::from_be_bytes(self.take_array()?)),
            0xdb => u32::from_be_bytes(self.take_array()?),
            _ => return Err(PackError::Malformed),
        };
        let len = check_len(len, max)?;
        core::str::from_utf8(self.take(len)?).map_err(|_| PackError::Malformed)
    }

    /// Passes over one value of any type, with all that is in it: what a later version has added. Takes time in
    /// proportion to the bytes passed over and no memory, however deep they nest.
    ///
    /// # Errors
    /// Truncated, or not a value.
    pub fn skip_value(&mut self) -> Result<(), PackError> {
        let mut values = 1_u64;
        while values > 0 {
            let (bytes, inner) = self.read_extent()?;
            self.take(usize::try_from(bytes).unwrap_or(usize::MAX))?;
            // Each value takes at least a byte, so the loop ends with the bytes, however many are announced.
            values = (values - 1).saturating_add(inner);
        }
        Ok(())
    }

    /// What belongs to the value that begins here, after its tag and length: so many bytes, and so many values.
    fn read_extent(&mut self) -> Result<(u64, u64), PackError> {
        let [tag] = self.take_array()?;
        let fixed = |bytes| Ok((bytes, 0));
        match tag {
            0x00..=0x7f | 0xe0..=0xff | 0xc0 | 0xc2 | 0xc3 => fixed(0),
            0xc1 => Err(PackError::Malformed),
            0x80..=0x8f => Ok((0, 2 * u64::from(tag & 0x0f))),
            0x90..=0x9f => Ok((0, u64::from(tag & 0x0f))),
            0xa0..=0xbf => fixed(u64::from(tag & 0x1f)),
            0xcc | 0xd0 => fixed(1),
            0xcd | 0xd1 => fixed(2),
            0xca | 0xce | 0xd2 => fixed(4),
            0xcb | 0xcf | 0xd3 => fixed(8),
            // An extension has a type of one byte before its bytes.
            0xd4..=0xd8 => fixed(1 + (1 << (tag - 0xd4))),
            0xc4 | 0xd9 => fixed(self.take_number::<1>()?),
            0xc5 | 0xda => fixed(self.take_number::<2>()?),
            0xc6 | 0xdb => fixed(self.take_number::<4>()?),
            0xc7 => fixed(1 + self.take_number::<1>()?),
            0xc8 => fixed(1 + self.take_number::<2>()?),
            0xc9 => fixed(1 + self.take_number::<4>()?),
            0xdc => Ok((0, self.take_number::<2>()?)),
            0xdd => Ok((0, self.take_number::<4>()?)),
            0xde => Ok((0, 2 * self.take_number::<2>()?)),
            0xdf => Ok((0, 2 * self.take_number::<4>()?)),
        }
    }

    /// A number of `N` bytes, at most 8, the highest first.
    fn take_number<const N: usize>(&mut self) -> Result<u64, PackError> {
        Ok(self.take_array::<N>()?.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }
}

#[inline]
fn check_len(len: u32, max: usize) -> Result<usize, PackError> {
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    if len <= max { Ok(len) } else { Err(PackError::TooLong { len, max }) }
}

#[cfg(test)]
mod tests;
