//! `bit`: operations on 32 bits. Numbers of any size are taken modulo 2^32, and results are signed.

use mlua::{Lua, Table, Value};

use super::super::arguments::Arguments;
use super::add;

/// Added to a number, it leaves the number's lower 32 bits in those of the sum: 2^52 + 2^51.
const SHIFT_TO_BITS: f64 = 6_755_399_441_055_744.0;
/// Hexadecimal digits of 32 bits.
const DIGITS_MAX: i64 = 8;

pub(super) fn table(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    add(lua, &table, "tobit", |arguments| bits(&arguments, 1).map(signed))?;
    add(lua, &table, "bnot", |arguments| bits(&arguments, 1).map(|bits| signed(!bits)))?;
    add(lua, &table, "bswap", |arguments| bits(&arguments, 1).map(|bits| signed(bits.swap_bytes())))?;
    add(lua, &table, "band", |arguments| fold(&arguments, |one, other| one & other))?;
    add(lua, &table, "bor", |arguments| fold(&arguments, |one, other| one | other))?;
    add(lua, &table, "bxor", |arguments| fold(&arguments, |one, other| one ^ other))?;
    add(lua, &table, "lshift", |arguments| shift(&arguments, |bits, by| bits << by))?;
    add(lua, &table, "rshift", |arguments| shift(&arguments, |bits, by| bits >> by))?;
    add(lua, &table, "arshift", |arguments| shift(&arguments, |bits, by| (bits.cast_signed() >> by).cast_unsigned()))?;
    add(lua, &table, "rol", |arguments| shift(&arguments, u32::rotate_left))?;
    add(lua, &table, "ror", |arguments| shift(&arguments, u32::rotate_right))?;
    add(lua, &table, "tohex", |arguments| to_hex(&arguments))?;
    Ok(table)
}

/// An argument's bits.
fn bits(arguments: &Arguments<'_>, number: usize) -> mlua::Result<u32> {
    match arguments.number_of(arguments.get(number)) {
        #[expect(clippy::cast_possible_truncation, reason = "the lower half is what is wanted")]
        Some(value) => Ok((value + SHIFT_TO_BITS).to_bits() as u32),
        None => Err(arguments.wrong_type(number, "number")),
    }
}

fn signed(bits: u32) -> Value {
    Value::Integer(i64::from(bits.cast_signed()))
}

fn fold(arguments: &Arguments<'_>, join: impl Fn(u32, u32) -> u32) -> mlua::Result<Value> {
    let mut joined = bits(arguments, 1)?;
    for number in (2..=arguments.len()).rev() {
        joined = join(joined, bits(arguments, number)?);
    }
    Ok(signed(joined))
}

fn shift(arguments: &Arguments<'_>, shift: impl Fn(u32, u32) -> u32) -> mlua::Result<Value> {
    let (value, by) = (bits(arguments, 1)?, bits(arguments, 2)? & 31);
    Ok(signed(shift(value, by)))
}

/// So many hexadecimal digits; a negative number of them asks for capital letters.
fn to_hex(arguments: &Arguments<'_>) -> mlua::Result<String> {
    let value = bits(arguments, 1)?;
    let digits = match arguments.len() {
        0 | 1 => DIGITS_MAX,
        _ => i64::from(bits(arguments, 2)?.cast_signed()),
    };
    let text = if digits < 0 { format!("{value:08X}") } else { format!("{value:08x}") };
    let wanted = usize::try_from(digits.abs().min(DIGITS_MAX)).expect("it is at most eight");
    Ok(text[text.len() - wanted..].to_owned())
}
