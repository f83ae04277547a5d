//! `struct`: numbers and text as bytes, by a format.
//!
//! | letter | what |
//! |---|---|
//! | `<` `>` `!n` | little or big endian from here on; alignment up to n |
//! | `b` `B`, `h` `H`, `l` `L`, `T`, `in` `In` | integers of 1, 2, 8, 8 and n (4) bytes; small letters are signed |
//! | `f` `d` | floating point of 4 and 8 bytes |
//! | `x` | a zero byte |
//! | `cn` `s` | n bytes (`c0`: all, or as many as the number before says); text that ends with a zero byte |

use mlua::{Lua, MultiValue, Table, Value};

use super::super::arguments::{Arguments, to_integer};
use super::add;

/// Bytes of an integer at most.
const INTEGER_BYTES_MAX: usize = 32;
/// What `!` aligns to by itself.
const ALIGNMENT: i64 = 8;
/// Values that one call returns.
const RESULTS_MAX: usize = 7_000;

pub(super) fn table(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    add(lua, &table, "pack", |arguments| pack(&arguments))?;
    add(lua, &table, "unpack", |arguments| unpack(&arguments))?;
    add(lua, &table, "size", |arguments| size(&arguments))?;
    Ok(table)
}

/// One letter of a format, with what it means.
#[derive(Debug, Clone, Copy)]
struct Item {
    letter: u8,
    /// Bytes that it takes; 0 for what takes none, and for what says so itself.
    bytes: usize,
    /// Bytes before it, for its alignment.
    padding: usize,
}

/// Walks over a format.
struct Format<'a> {
    arguments: &'a Arguments<'a>,
    rest: &'a [u8],
    is_little: bool,
    alignment: usize,
}

impl<'a> Format<'a> {
    fn new(arguments: &'a Arguments<'a>, format: &'a [u8]) -> Self {
        let end = format.iter().position(|byte| *byte == 0).unwrap_or(format.len());
        Self { arguments, rest: &format[..end], is_little: true, alignment: 1 }
    }

    /// The next letter, where so many bytes were before it.
    fn next(&mut self, before: usize) -> mlua::Result<Option<Item>> {
        let Some((letter, rest)) = self.rest.split_first() else { return Ok(None) };
        self.rest = rest;
        let bytes = match letter {
            b'B' | b'b' | b'x' => 1,
            b'H' | b'h' => 2,
            b'f' => 4,
            b'L' | b'l' | b'T' | b'd' => 8,
            b'c' => self.count(1)?,
            b'i' | b'I' => {
                let bytes = self.count(4)?;
                if bytes > INTEGER_BYTES_MAX {
                    let what = format!("integral size {bytes} is larger than limit of {INTEGER_BYTES_MAX}");
                    return Err(self.arguments.failed(&what));
                }
                bytes
            }
            _ => 0,
        };
        let padding = match (bytes, letter) {
            (0, _) | (_, b'c') => 0,
            _ => {
                let unit = bytes.min(self.alignment);
                unit.wrapping_sub(before & unit.wrapping_sub(1)) & unit.wrapping_sub(1)
            }
        };
        Ok(Some(Item { letter: *letter, bytes, padding }))
    }

    /// The number that follows a letter, if there is one.
    fn count(&mut self, default: usize) -> mlua::Result<usize> {
        if !self.rest.first().is_some_and(u8::is_ascii_digit) {
            return Ok(default);
        }
        let mut count = 0_i32;
        while let Some((digit @ b'0'..=b'9', rest)) = self.rest.split_first() {
            let next = count.checked_mul(10).and_then(|count| count.checked_add(i32::from(digit - b'0')));
            count = next.ok_or_else(|| self.arguments.failed("integral size overflow"))?;
            self.rest = rest;
        }
        Ok(usize::try_from(count).expect("it is not negative"))
    }

    /// A letter that only changes how others are read.
    fn control(&mut self, letter: u8) -> mlua::Result<()> {
        match letter {
            b' ' => {}
            b'>' => self.is_little = false,
            b'<' => self.is_little = true,
            b'!' => {
                let default = usize::try_from(ALIGNMENT).expect("it is small");
                let alignment = self.count(default)?;
                if !alignment.is_power_of_two() {
                    return Err(self.arguments.failed(&format!("alignment {alignment} is not a power of 2")));
                }
                self.alignment = alignment;
            }
            _ => {
                let letter = String::from_utf8_lossy(&[letter]).into_owned();
                return Err(self.arguments.wrong(1, &format!("invalid format option '{letter}'")));
            }
        }
        Ok(())
    }

    /// Bytes in the order that the format asks for, from little endian and back.
    fn ordered<const N: usize>(&self, mut bytes: [u8; N]) -> [u8; N] {
        if !self.is_little {
            bytes.reverse();
        }
        bytes
    }
}

fn pack(arguments: &Arguments<'_>) -> mlua::Result<Value> {
    let text = arguments.bytes(1)?;
    let mut format = Format::new(arguments, &text);
    let (mut out, mut number) = (Vec::new(), 1);
    while let Some(Item { letter, bytes, padding }) = format.next(out.len())? {
        out.resize(out.len() + padding, 0);
        match letter {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                number += 1;
                let value = integer_bits(arguments.number(number)?).to_le_bytes();
                let start = out.len();
                out.extend((0..bytes).map(|at| value.get(at).copied().unwrap_or(0)));
                if !format.is_little {
                    out[start..].reverse();
                }
            }
            b'x' => out.push(0),
            b'f' => {
                number += 1;
                #[expect(clippy::cast_possible_truncation, reason = "the format asks for few bytes")]
                let value = arguments.number(number)? as f32;
                out.extend_from_slice(&format.ordered(value.to_le_bytes()));
            }
            b'd' => {
                number += 1;
                out.extend_from_slice(&format.ordered(arguments.number(number)?.to_le_bytes()));
            }
            b'c' | b's' => {
                number += 1;
                let value = arguments.bytes(number)?;
                let bytes = if bytes == 0 { value.len() } else { bytes };
                let value = value.get(..bytes).ok_or_else(|| arguments.wrong(number + 1, "string too short"))?;
                out.extend_from_slice(value);
                if letter == b's' {
                    out.push(0);
                }
            }
            letter => format.control(letter)?,
        }
    }
    arguments.lua.create_string(&out).map(Value::String)
}

/// A number's 64 bits as x86 converts them.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "what does not fit was sorted out")]
fn integer_bits(number: f64) -> u64 {
    const HALF: f64 = 9_223_372_036_854_775_808.0;
    if number < HALF || number.is_nan() {
        to_integer(number).cast_unsigned()
    } else if number < 2.0 * HALF {
        number as u64
    } else {
        0
    }
}

fn unpack(arguments: &Arguments<'_>) -> mlua::Result<MultiValue> {
    let (text, data) = (arguments.bytes(1)?, arguments.bytes(2)?);
    let begin = arguments.integer_or(3, 1)?.cast_unsigned();
    if begin == 0 {
        return Err(arguments.wrong(3, "offset must be 1 or greater"));
    }
    let too_short = || arguments.wrong(2, "data string too short");
    let mut at = usize::try_from(begin - 1).map_err(|_| too_short())?;
    let mut format = Format::new(arguments, &text);
    let mut values = MultiValue::new();
    while let Some(Item { letter, bytes, padding }) = format.next(at)? {
        at = at.wrapping_add(padding);
        let here = data.get(at..).filter(|here| bytes <= here.len()).ok_or_else(too_short)?;
        if values.len() > RESULTS_MAX {
            return Err(arguments.failed("stack overflow (too many results)"));
        }
        let mut taken = bytes;
        match letter {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                values.push_back(integer(&here[..bytes], format.is_little, letter.is_ascii_lowercase()));
            }
            b'x' => {}
            b'f' => {
                let raw = *here.first_chunk().expect("there are four bytes");
                values.push_back(Value::Number(f64::from(f32::from_le_bytes(format.ordered(raw)))));
            }
            b'd' => {
                let raw = *here.first_chunk().expect("there are eight bytes");
                values.push_back(Value::Number(f64::from_le_bytes(format.ordered(raw))));
            }
            b'c' => {
                if bytes == 0 {
                    let before = values.pop_back().and_then(|value| arguments.number_of(&value));
                    let before = before.ok_or_else(|| arguments.failed("format 'c0' needs a previous size"))?;
                    taken = usize::try_from(integer_bits(before)).map_err(|_| too_short())?;
                }
                let value = here.get(..taken).ok_or_else(too_short)?;
                values.push_back(Value::String(arguments.lua.create_string(value)?));
            }
            b's' => {
                let end = here.iter().position(|byte| *byte == 0);
                let end = end.ok_or_else(|| arguments.failed("unfinished string in data"))?;
                values.push_back(Value::String(arguments.lua.create_string(&here[..end])?));
                taken = end + 1;
            }
            letter => format.control(letter)?,
        }
        at += taken;
    }
    values.push_back(Value::Integer(i64::try_from(at + 1).expect("it is a place in memory")));
    Ok(values)
}

/// An integer of up to 32 bytes, of which the last eight count.
#[expect(clippy::cast_precision_loss, reason = "Lua's numbers are doubles")]
fn integer(bytes: &[u8], is_little: bool, is_signed: bool) -> Value {
    let join = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    let value = if is_little { bytes.iter().rev().fold(0, join) } else { bytes.iter().fold(0, join) };
    if !is_signed {
        return Value::Number(value as f64);
    }
    // Shifts count modulo 64, as x86 does.
    let sign = u32::try_from(bytes.len() * 8).expect("integers are short").wrapping_sub(1);
    let mask = u64::MAX.wrapping_shl(sign);
    let value = if value & mask == 0 { value } else { value | mask };
    Value::Number(value.cast_signed() as f64)
}

fn size(arguments: &Arguments<'_>) -> mlua::Result<i64> {
    let text = arguments.bytes(1)?;
    let mut format = Format::new(arguments, &text);
    let mut total = 0_usize;
    while let Some(Item { letter, bytes, padding }) = format.next(total)? {
        total = total.wrapping_add(padding);
        match (letter, bytes) {
            (b's', _) => return Err(arguments.wrong(1, "option 's' has no fixed size")),
            (b'c', 0) => return Err(arguments.wrong(1, "option 'c0' has no fixed size")),
            (letter, _) if !letter.is_ascii_alphanumeric() => format.control(letter)?,
            _ => {}
        }
        total = total.wrapping_add(bytes);
    }
    Ok(i64::try_from(total).unwrap_or(i64::MAX))
}
