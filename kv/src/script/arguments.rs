//! What a function of ours was called with, read as Lua's own functions read their arguments.

use mlua::{Lua, LuaString, MultiValue, Value};

use super::number::write_short;
use super::thrown;

/// The arguments of one call, counted from 1.
pub(crate) struct Arguments<'l> {
    /// The interpreter that calls.
    pub(crate) lua: &'l Lua,
    values: MultiValue,
    /// The level of the function that errors are about: 0 is the present one.
    level: usize,
}

impl<'l> Arguments<'l> {
    /// The arguments of a call.
    pub(crate) fn new(lua: &'l Lua, values: MultiValue) -> Self {
        Self { lua, values, level: 0 }
    }

    /// The arguments of a call that a function of the sandbox passes on: errors are in the name of that function.
    pub(crate) fn of_caller(lua: &'l Lua, values: MultiValue) -> Self {
        Self { lua, values, level: 1 }
    }

    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// One of them; nil if there are fewer.
    pub(crate) fn get(&self, number: usize) -> &Value {
        self.values.get(number - 1).unwrap_or(&Value::Nil)
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Value> {
        self.values.iter()
    }

    /// An error about one of them.
    pub(crate) fn wrong(&self, number: usize, what: &str) -> mlua::Error {
        thrown::argument(self.lua, self.level, number, what)
    }

    /// One is of another type than `expected`.
    pub(crate) fn wrong_type(&self, number: usize, expected: &str) -> mlua::Error {
        let found = self.values.get(number - 1).map_or("no value", type_name);
        self.wrong(number, &format!("{expected} expected, got {found}"))
    }

    /// An error of the function as a whole.
    pub(crate) fn failed(&self, message: &str) -> mlua::Error {
        thrown::text_at(self.lua, self.level + 1, message)
    }

    /// Text, or a number as text.
    pub(crate) fn bytes(&self, number: usize) -> mlua::Result<Vec<u8>> {
        text_of(self.get(number)).ok_or_else(|| self.wrong_type(number, "string"))
    }

    /// The same as Lua has it.
    pub(crate) fn text(&self, number: usize) -> mlua::Result<LuaString> {
        match self.get(number) {
            Value::String(text) => Ok(text.clone()),
            _ => self.lua.create_string(self.bytes(number)?),
        }
    }

    /// A number, or text that is one.
    pub(crate) fn number(&self, number: usize) -> mlua::Result<f64> {
        self.number_of(self.get(number)).ok_or_else(|| self.wrong_type(number, "number"))
    }

    /// A number without its fraction.
    pub(crate) fn integer(&self, number: usize) -> mlua::Result<i64> {
        self.number(number).map(to_integer)
    }

    /// The same, with what stands for nothing.
    pub(crate) fn integer_or(&self, number: usize, default: i64) -> mlua::Result<i64> {
        match self.get(number) {
            Value::Nil => Ok(default),
            _ => self.integer(number),
        }
    }

    /// A value as a number.
    pub(crate) fn number_of(&self, value: &Value) -> Option<f64> {
        match value {
            #[expect(clippy::cast_precision_loss, reason = "it was a double before")]
            Value::Integer(integer) => Some(*integer as f64),
            Value::Number(number) => Some(*number),
            Value::String(_) => self.lua.coerce_number(value.clone()).ok().flatten(),
            _ => None,
        }
    }
}

/// A number without its fraction, as x86 converts it: what is out of range is the smallest.
#[expect(clippy::cast_possible_truncation, reason = "what does not fit was sorted out")]
pub(crate) fn to_integer(number: f64) -> i64 {
    const END: f64 = 9_223_372_036_854_775_808.0;
    if (-END..END).contains(&number) { number as i64 } else { i64::MIN }
}

/// A value's type as Lua calls it.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Nil => "nil",
        Value::Boolean(_) => "boolean",
        Value::Integer(_) | Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Table(_) => "table",
        Value::Function(_) => "function",
        Value::Thread(_) => "thread",
        _ => "userdata",
    }
}

/// Text, or a number as Lua writes it.
pub(crate) fn text_of(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        #[expect(clippy::cast_precision_loss, reason = "it was a double before")]
        Value::Integer(integer) => Some(short(*integer as f64)),
        Value::Number(number) => Some(short(*number)),
        _ => None,
    }
}

fn short(number: f64) -> Vec<u8> {
    let mut out = Vec::new();
    write_short(number, LUA_DIGITS, &mut out);
    out
}

/// Digits that Lua writes of a number.
const LUA_DIGITS: usize = 14;
