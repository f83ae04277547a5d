//! Integers of any width up to 64 bits, anywhere in a string.

use super::bitmap::offset_of;
use super::call::{Call, Run};
use crate::error::Error;
use crate::resp::number::parse_i64;
use crate::settings::Events;

pub(super) const RUNS: &[(&str, Run)] =
    &[("bitfield", |call| bitfield(call, true)), ("bitfield_ro", |call| bitfield(call, false))];

const WRONG_TYPE: Error =
    Error::new("ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.");

/// The most bytes that an integer touches: 64 bits that begin within a byte.
const BYTES_MAX: usize = 9;

/// Where an integer lies, and of which type it is.
#[derive(Debug, Clone, Copy)]
struct Field {
    is_signed: bool,
    bits: u32,
    /// The number of its first bit.
    offset: usize,
}

/// What becomes of a result that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Get,
    Set(i64),
    Add(i64),
}

#[derive(Debug, Clone, Copy)]
struct Operation {
    field: Field,
    action: Action,
    overflow: Overflow,
}

impl Field {
    /// Reads a type at word `at` and an offset behind it.
    fn read(call: &Call<'_, '_>, at: usize) -> Result<Self, Error> {
        let (is_signed, digits) = match &call.args[at] {
            [b'i', digits @ ..] => (true, digits),
            [b'u', digits @ ..] => (false, digits),
            _ => return Err(WRONG_TYPE),
        };
        let bits = parse_i64(digits).and_then(|bits| u32::try_from(bits).ok());
        let bits = bits.filter(|bits| (1..=if is_signed { 64 } else { 63 }).contains(bits)).ok_or(WRONG_TYPE)?;
        let offset = offset_of(call, at + 1, Some(bits))?;
        Ok(Self { is_signed, bits, offset })
    }

    /// The byte behind its last one.
    fn end(self) -> usize {
        (self.offset + self.bits as usize).div_ceil(8)
    }

    /// Its bytes, as far as the string has them, as one number with zeros behind; and how far its last bit is from the end.
    fn window(self, bytes: &[u8]) -> (u128, u32) {
        let start = (self.offset / 8).min(bytes.len());
        let mut window = [0; 16];
        for (to, from) in window[16 - BYTES_MAX..].iter_mut().zip(&bytes[start..]) {
            *to = *from;
        }
        let before = u32::try_from(self.offset % 8).expect("below 8");
        (u128::from_be_bytes(window), 72 - before - self.bits)
    }

    fn mask(self) -> u128 {
        (1 << self.bits) - 1
    }

    /// The integer; bits behind the end are 0.
    fn get(self, bytes: &[u8]) -> i128 {
        let (window, shift) = self.window(bytes);
        self.wrap(window >> shift)
    }

    /// What lowest bits mean in this type.
    fn wrap(self, bits: u128) -> i128 {
        let value = i128::try_from(bits & self.mask()).expect("at most 64 bits");
        let is_negative = self.is_signed && value >> (self.bits - 1) != 0;
        if is_negative { value - (1 << self.bits) } else { value }
    }

    /// Writes the integer into a string that is long enough.
    fn set(self, bytes: &mut [u8], value: i128) {
        let (window, shift) = self.window(bytes);
        let value = value.cast_unsigned() & self.mask();
        let window = (window & !(self.mask() << shift) | value << shift).to_be_bytes();
        for (to, from) in bytes[self.offset / 8..].iter_mut().zip(&window[16 - BYTES_MAX..]) {
            *to = *from;
        }
    }

    /// The value as this type can hold it; nothing if it cannot and that is to fail.
    fn fit(self, value: i128, overflow: Overflow) -> Option<i128> {
        let (min, max) = if self.is_signed {
            (-1 << (self.bits - 1), (1 << (self.bits - 1)) - 1)
        } else {
            (0, (1 << self.bits) - 1)
        };
        match overflow {
            _ if (min..=max).contains(&value) => Some(value),
            Overflow::Wrap => Some(self.wrap(value.cast_unsigned())),
            Overflow::Saturate => Some(value.clamp(min, max)),
            Overflow::Fail => None,
        }
    }
}

impl Operation {
    /// Runs it on a string that is long enough. The reply, if it did not fail, and whether the integer has changed.
    fn run(self, bytes: &mut [u8]) -> (Option<i128>, bool) {
        let old = self.field.get(bytes);
        let wished = match self.action {
            Action::Get => return (Some(old), false),
            // To an unsigned integer a number below zero is a great one.
            Action::Set(value) if !self.field.is_signed => i128::from(value.cast_unsigned()),
            Action::Set(value) => i128::from(value),
            Action::Add(value) => old + i128::from(value),
        };
        // Valkey's distance to the greatest integer has 63 bits: what is further below it counts as too great.
        let is_far = self.field.is_signed && matches!(self.action, Action::Set(_)) && {
            let max = (1_i128 << (self.field.bits - 1)) - 1;
            max - wished > i128::from(i64::MAX) && self.field.bits < 64
        };
        let wished = if is_far && self.overflow == Overflow::Saturate { i128::from(i64::MAX) } else { wished };
        let Some(new) = self.field.fit(wished, self.overflow) else { return (None, false) };
        self.field.set(bytes, new);
        (Some(if matches!(self.action, Action::Set(_)) { old } else { new }), old != new)
    }
}

fn read_operations(call: &Call<'_, '_>) -> Result<Vec<Operation>, Error> {
    let (mut operations, mut overflow, mut at) = (Vec::new(), Overflow::Wrap, 2);
    while at < call.args.len() {
        let rest = call.args.len() - at - 1;
        let is = |word| call.args.is(at, word);
        if is("OVERFLOW") && rest >= 1 {
            overflow = match () {
                () if call.args.is(at + 1, "WRAP") => Overflow::Wrap,
                () if call.args.is(at + 1, "SAT") => Overflow::Saturate,
                () if call.args.is(at + 1, "FAIL") => Overflow::Fail,
                () => return Err(Error::new("ERR Invalid OVERFLOW type specified")),
            };
            at += 2;
            continue;
        }
        let is_get = is("GET") && rest >= 2;
        if !is_get && !((is("SET") || is("INCRBY")) && rest >= 3) {
            return Err(Error::SYNTAX);
        }
        let field = Field::read(call, at + 1)?;
        let action = match () {
            () if is_get => Action::Get,
            () if is("SET") => Action::Set(call.integer(at + 3)?),
            () => Action::Add(call.integer(at + 3)?),
        };
        operations.push(Operation { field, action, overflow });
        at += if is_get { 3 } else { 4 };
    }
    Ok(operations)
}

fn bitfield(call: &mut Call<'_, '_>, may_write: bool) -> Result<(), Error> {
    let (key, operations) = (call.key(1), read_operations(call)?);
    let writes = operations.iter().filter(|operation| operation.action != Action::Get);
    let Some(end) = writes.map(|operation| operation.field.end()).max() else {
        let value = call.keys.string(key)?.unwrap_or_default();
        call.reply.array(operations.len());
        for operation in &operations {
            reply_integer(call.reply, operation.field.get(value));
        }
        return Ok(());
    };
    if !may_write {
        return Err(Error::new("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    let grows = call.keys.string_for_change(key)?.is_none_or(|value| value.len() < end);
    let run = |value: &mut [u8]| operations.iter().map(|operation| operation.run(value)).collect::<Vec<_>>();
    let done = call.keys.change_string(key, |len| len.max(end), run)?;
    call.reply.array(done.len());
    let mut changes = 0;
    for ((result, has_changed), operation) in done.into_iter().zip(&operations) {
        match result {
            Some(result) => reply_integer(call.reply, result),
            None => call.reply.null(),
        }
        changes += u64::from(has_changed || grows && result.is_some() && operation.action != Action::Get);
    }
    // A string that was made or became longer has changed, even where every operation failed.
    changes = changes.max(u64::from(grows));
    if changes > 0 {
        call.changed(key, Events::STRING, "setbit");
        call.effects.changes += changes - 1;
    }
    Ok(())
}

fn reply_integer(reply: &mut crate::resp::Reply, value: i128) {
    reply.integer(i64::try_from(value).expect("unsigned integers have 63 bits at most"));
}
