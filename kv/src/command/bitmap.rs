//! Strings as rows of bits, the first bit of a byte being its highest. Integers of any width are in `bitfield`.

use super::call::{Call, Run};
use crate::error::Error;
use crate::keyspace::Expiry;
use crate::resp::number::parse_i64;
use crate::settings::Events;

pub(super) const RUNS: &[(&str, Run)] =
    &[("bitcount", bitcount), ("bitop", bitop), ("bitpos", bitpos), ("getbit", getbit), ("setbit", setbit)];

const WRONG_OFFSET: Error = Error::new("ERR bit offset is not an integer or out of range");
const WRONG_BIT: Error = Error::new("ERR bit is not an integer or out of range");

/// Reads word `at` as the number of a bit. With a width, `#` before it counts in integers of that width.
///
/// # Errors
/// It is none, or no string may be so long.
pub(super) fn offset_of(call: &Call<'_, '_>, at: usize, width: Option<u32>) -> Result<usize, Error> {
    let word = &call.args[at];
    let offset = match (word, width) {
        ([b'#', digits @ ..], Some(width)) => parse_i64(digits).and_then(|number| number.checked_mul(i64::from(width))),
        _ => parse_i64(word),
    };
    let offset = offset.filter(|offset| *offset >= 0 && offset >> 3 < call.settings.word_bytes_max);
    offset.and_then(|offset| usize::try_from(offset).ok()).ok_or(WRONG_OFFSET)
}

/// A bit; those behind the end are 0.
fn bit_at(bytes: &[u8], offset: usize) -> bool {
    bytes.get(offset / 8).is_some_and(|byte| byte & mask_of(offset) != 0)
}

const fn mask_of(offset: usize) -> u8 {
    0x80 >> (offset % 8)
}

fn getbit(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, offset) = (call.key(1), offset_of(call, 2, None)?);
    let bit = call.keys.string(key)?.is_some_and(|value| bit_at(value, offset));
    call.reply.integer(i64::from(bit));
    Ok(())
}

fn setbit(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, offset) = (call.key(1), offset_of(call, 2, None)?);
    let new = match parse_i64(&call.args[3]) {
        Some(0) => false,
        Some(1) => true,
        _ => return Err(WRONG_BIT),
    };
    let value = call.keys.string_for_change(key)?;
    let (is_short, old) = value.map_or((true, false), |value| (value.len() <= offset / 8, bit_at(value, offset)));
    if is_short || old != new {
        let write = |value: &mut [u8]| {
            let byte = &mut value[offset / 8];
            *byte = if new { *byte | mask_of(offset) } else { *byte & !mask_of(offset) };
        };
        call.keys.change_string(key, |len| len.max(offset / 8 + 1), write)?;
        call.changed(key, Events::STRING, "setbit");
    }
    call.reply.integer(i64::from(old));
    Ok(())
}

/// The range that BITCOUNT and BITPOS are given, before it is known how long the string is.
#[derive(Debug, Clone, Copy)]
struct Range {
    start: i64,
    end: Option<i64>,
    in_bits: bool,
}

impl Range {
    /// Reads words from `at` on.
    fn read(call: &Call<'_, '_>, at: usize) -> Result<Self, Error> {
        let mut range = Self { start: 0, end: None, in_bits: false };
        if call.args.len() > at + 3 {
            return Err(Error::SYNTAX);
        }
        if call.args.len() > at {
            range.start = call.integer(at)?;
        }
        if call.args.len() > at + 2 {
            range.in_bits = call.args.is(at + 2, "BIT");
            if !range.in_bits && !call.args.is(at + 2, "BYTE") {
                return Err(Error::SYNTAX);
            }
        }
        if call.args.len() > at + 1 {
            range.end = Some(call.integer(at + 1)?);
        }
        Ok(range)
    }

    /// The numbers of the first bit and of the one behind the last, in a string of so many bytes.
    fn within(self, len: usize) -> Option<(usize, usize)> {
        let unit = if self.in_bits { 1 } else { 8 };
        let total = i64::try_from(len * 8 / unit).ok()?;
        let place = |at: i64| if at < 0 { total.saturating_add(at).max(0) } else { at };
        let (start, end) = (place(self.start), self.end.map_or(total - 1, |end| place(end).min(total - 1)));
        let small = |at: i64| usize::try_from(at).expect("it is within the string");
        (start <= end).then(|| (small(start) * unit, (small(end) + 1) * unit))
    }
}

/// The bytes that hold bits from `start` up to `end`, each with its number and those of its bits that are meant.
fn bytes_between(bytes: &[u8], start: usize, end: usize) -> impl Iterator<Item = (usize, u8, u8)> + '_ {
    let (first, last) = (start / 8, (end - 1) / 8);
    (first..=last).map(move |at| {
        let head = if at == first { 0xff >> (start % 8) } else { 0xff };
        let tail = if at == last { 0xff << (7 - (end - 1) % 8) } else { 0xff };
        (at, bytes[at], head & tail)
    })
}

fn bitcount(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, range) = (call.key(1), Range::read(call, 2)?);
    let value = call.keys.string(key)?.unwrap_or_default();
    // As for GETRANGE, both ends counted from the back the wrong way round mean nothing, even if both lie before the string.
    let is_reversed = range.end.is_some_and(|end| range.start < 0 && end < 0 && range.start > end);
    let count = range.within(value.len()).filter(|_| !is_reversed).map_or(0, |(start, end)| {
        bytes_between(value, start, end).map(|(_, byte, mask)| u64::from((byte & mask).count_ones())).sum()
    });
    call.reply.integer(i64::try_from(count).expect("a string has fewer bits"));
    Ok(())
}

fn bitpos(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(1);
    let wanted = match call.integer(2)? {
        0 => false,
        1 => true,
        _ => return Err(Error::new("ERR The bit argument must be 1 or 0.")),
    };
    let range = Range::read(call, 3)?;
    let Some(value) = call.keys.string(key)? else {
        call.reply.integer(if wanted { -1 } else { 0 });
        return Ok(());
    };
    let found = range.within(value.len()).and_then(|(start, end)| {
        let hit = bytes_between(value, start, end).find_map(|(at, byte, mask)| {
            let hits = mask & if wanted { byte } else { !byte };
            (hits != 0).then(|| at * 8 + usize::try_from(hits.leading_zeros()).expect("at most 8"))
        });
        // Behind the string there are only zeros, unless its end was given.
        hit.or((!wanted && range.end.is_none()).then_some(end))
    });
    call.reply.integer(found.map_or(-1, |at| i64::try_from(at).expect("a string has fewer bits")));
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    And,
    Or,
    Xor,
    Not,
}

impl Operation {
    const ALL: [(Self, &'static str); 4] =
        [(Self::And, "AND"), (Self::Or, "OR"), (Self::Xor, "XOR"), (Self::Not, "NOT")];

    /// Adds one more operand to what has come of those before; the shorter one ends in zeros.
    fn combine(self, result: &mut Vec<u8>, operand: &[u8]) {
        let shared = result.len().min(operand.len());
        let (both, rest) = operand.split_at(shared);
        for (byte, other) in result.iter_mut().zip(both) {
            match self {
                Self::And => *byte &= other,
                Self::Or => *byte |= other,
                Self::Xor => *byte ^= other,
                Self::Not => unreachable!("it has one operand"),
            }
        }
        match self {
            Self::And => {
                result[shared..].fill(0);
                result.resize(result.len() + rest.len(), 0);
            }
            _ => result.extend_from_slice(rest),
        }
    }
}

fn bitop(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let target = call.key(2);
    let found = Operation::ALL.iter().find(|(_, name)| call.args.is(1, name));
    let operation = found.map(|(operation, _)| *operation).ok_or(Error::SYNTAX)?;
    if operation == Operation::Not && call.args.len() != 4 {
        return Err(Error::new("ERR BITOP NOT must be called with a single source key."));
    }
    let first = call.key(3);
    let mut result = call.keys.string(first)?.unwrap_or_default().to_vec();
    for word in call.args.from(4) {
        let key = call.keys.key(word);
        operation.combine(&mut result, call.keys.string(key)?.unwrap_or_default());
    }
    if operation == Operation::Not {
        result.iter_mut().for_each(|byte| *byte = !*byte);
    }
    if !result.is_empty() {
        call.keys.put_string(target, &result, Expiry::Never);
        call.changed(target, Events::STRING, "set");
    } else if call.keys.remove(target).is_some() {
        call.changed(target, Events::GENERIC, "del");
    }
    call.reply.count(result.len());
    Ok(())
}
