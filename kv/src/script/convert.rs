//! Replies as values of Lua, and values of Lua as replies.
//!
//! | reply | Lua |
//! |---|---|
//! | integer | number |
//! | byte string | string |
//! | array | table from 1 on |
//! | status, error | table with the field `ok`, `err` |
//! | nothing | `false` in RESP2, nil in RESP3 |
//! | map, set | table with the field `map`, `set`, a table by key |
//! | double, big number, verbatim string | table with the field `double`, `big_number`, `verbatim_string` |
//! | boolean | boolean |
//!
//! The other way it is the same, and a fraction is cut off.

use mlua::{Function, Lua, Table, Value};

use super::arguments::to_integer;
use super::thrown;
use crate::error::Error;
use crate::resp::{Later, Protocol, Reply};
use crate::value::score::write_score;

/// How deep tables in tables are replied.
const DEPTH_MAX: usize = 1_000;
/// Elements that a table has room for before they were read.
const ROOM_MAX: usize = 1 << 16;

/// The value of a whole reply.
pub(crate) fn value_of(lua: &Lua, reply: &[u8]) -> mlua::Result<Value> {
    Reader { lua, rest: reply }.value()
}

/// Reads a reply of our own making.
struct Reader<'a> {
    lua: &'a Lua,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn line(&mut self) -> &'a [u8] {
        let end = self.rest.windows(2).position(|two| two == b"\r\n").expect("replies are whole");
        let line = &self.rest[..end];
        self.rest = &self.rest[end + 2..];
        line
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(len);
        self.rest = &rest[2..];
        taken
    }

    fn value(&mut self) -> mlua::Result<Value> {
        let kind = self.rest[0];
        self.rest = &self.rest[1..];
        let line = self.line();
        let text = || std::str::from_utf8(line).expect("it is a number");
        let length = || text().parse::<usize>().ok();
        match kind {
            b'+' => self.field("ok", Value::String(self.lua.create_string(line)?)),
            b'-' => error_of(self.lua, line).map(Value::Table),
            #[expect(clippy::cast_precision_loss, reason = "Lua's numbers are doubles")]
            b':' => Ok(Value::Number(text().parse::<i64>().expect("it is an integer") as f64)),
            b'$' => match length() {
                Some(len) => self.lua.create_string(self.take(len)).map(Value::String),
                None => Ok(Value::Boolean(false)),
            },
            b'*' | b'>' => match length() {
                Some(len) => self.array(len),
                None => Ok(Value::Boolean(false)),
            },
            b'%' => self.map(length().expect("a map has a length")),
            b'~' => self.set(length().expect("a set has a length")),
            b'|' => {
                // Facts about the reply that follows: scripts do not see them.
                for _ in 0..2 * length().expect("they have a count") {
                    self.value()?;
                }
                self.value()
            }
            b'_' => Ok(Value::Nil),
            b'#' => Ok(Value::Boolean(line == b"t")),
            b',' => self.field("double", Value::Number(text().parse().expect("it is a number"))),
            b'(' => self.field("big_number", Value::String(self.lua.create_string(line)?)),
            b'=' => self.verbatim(length().expect("it has a length")),
            other => unreachable!("no reply begins with {other}"),
        }
    }

    /// A table with one field.
    fn field(&self, name: &str, value: Value) -> mlua::Result<Value> {
        let table = self.lua.create_table_with_capacity(0, 1)?;
        table.raw_set(name, value)?;
        Ok(Value::Table(table))
    }

    fn array(&mut self, len: usize) -> mlua::Result<Value> {
        let table = self.lua.create_table_with_capacity(len.min(ROOM_MAX), 0)?;
        for at in 1..=len {
            let value = self.value()?;
            if !value.is_nil() {
                table.raw_set(at, value)?;
            }
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, len: usize) -> mlua::Result<Value> {
        let table = self.lua.create_table_with_capacity(0, len.min(ROOM_MAX))?;
        for _ in 0..len {
            let (key, value) = (self.value()?, self.value()?);
            table.raw_set(key, value)?;
        }
        self.field("map", Value::Table(table))
    }

    fn set(&mut self, len: usize) -> mlua::Result<Value> {
        let table = self.lua.create_table_with_capacity(0, len.min(ROOM_MAX))?;
        for _ in 0..len {
            table.raw_set(self.value()?, true)?;
        }
        self.field("set", Value::Table(table))
    }

    fn verbatim(&mut self, len: usize) -> mlua::Result<Value> {
        let whole = self.take(len);
        let table = self.lua.create_table_with_capacity(0, 2)?;
        table.raw_set("string", self.lua.create_string(&whole[4..])?)?;
        table.raw_set("format", self.lua.create_string(&whole[..3])?)?;
        self.field("verbatim_string", Value::Table(table))
    }
}

/// The text of an error reply, without its `-`, as an error has it that scripts see: a single word is no code.
pub(crate) fn error_text(line: &[u8]) -> Vec<u8> {
    let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
    let trim = |text: &[u8]| {
        let start = text.iter().position(|byte| !is_end(byte)).unwrap_or(text.len());
        let end = text.iter().rposition(|byte| !is_end(byte)).map_or(start, |last| last + 1);
        text[start..end].to_vec()
    };
    match line.iter().position(|byte| *byte == b' ') {
        Some(space) => [&line[..=space], &trim(&line[space + 1..])].concat(),
        None => [b"ERR ", trim(line).as_slice()].concat(),
    }
}

fn error_of(lua: &Lua, line: &[u8]) -> mlua::Result<Table> {
    thrown::table(lua, &error_text(line), true)
}

/// What a script returned, written as its client reads it. `script` is what the script speaks: it decides what booleans are.
/// It does not go by recursion, so that deep tables take no stack.
pub(crate) struct Writer<'a> {
    /// Where to.
    pub(crate) reply: &'a mut Reply,
    /// What the script speaks.
    pub(crate) script: Protocol,
    /// Told of each error that is written.
    pub(crate) count: &'a dyn Fn(&Error),
    /// Lua's own `next`.
    pub(crate) next: &'a Function,
}

/// What is still to be written.
enum Rest {
    /// The elements of a table behind so many.
    Array(Table, Later, usize),
    /// The pairs of a table behind a key (nil before the first), after so many; of a set only the keys.
    Pairs { table: Table, behind: Value, later: Later, len: usize, is_map: bool },
    /// A value.
    Value(Value),
}

impl Writer<'_> {
    /// Writes a value.
    ///
    /// # Errors
    /// The interpreter has no memory left; what was written is not whole.
    pub(crate) fn write(&mut self, value: &Value) -> mlua::Result<()> {
        let mut rest = Vec::new();
        self.begin(value, &mut rest)?;
        while let Some(next) = rest.pop() {
            match next {
                Rest::Value(value) => self.begin(&value, &mut rest)?,
                Rest::Array(table, later, len) => {
                    let element: Value = table.raw_get(len + 1)?;
                    if element.is_nil() {
                        self.reply.finish(later, len);
                    } else {
                        rest.push(Rest::Array(table, later, len + 1));
                        self.begin(&element, &mut rest)?;
                    }
                }
                Rest::Pairs { table, behind, later, len, is_map } => {
                    let (key, value): (Value, Value) = self.next.call((&table, behind))?;
                    if key.is_nil() {
                        self.reply.finish(later, len);
                        continue;
                    }
                    rest.push(Rest::Pairs { table, behind: key.clone(), later, len: len + 1, is_map });
                    if is_map {
                        rest.push(Rest::Value(value));
                    }
                    self.begin(&key, &mut rest)?;
                }
            }
        }
        Ok(())
    }

    /// Writes a value; a table of others is only begun.
    fn begin(&mut self, value: &Value, rest: &mut Vec<Rest>) -> mlua::Result<()> {
        match value {
            Value::String(text) => self.reply.bulk(&text.as_bytes()),
            Value::Integer(integer) => self.reply.integer(*integer),
            Value::Number(number) => self.reply.integer(to_integer(*number)),
            Value::Boolean(is_true) if self.script == Protocol::Resp3 => self.reply.boolean(*is_true),
            Value::Boolean(true) => self.reply.integer(1),
            Value::Table(_) if rest.len() > DEPTH_MAX => self.error(b"ERR reached lua stack limit", false),
            Value::Table(table) => return self.table(table, rest),
            _ => self.reply.null(),
        }
        Ok(())
    }

    /// Writes an error.
    pub(crate) fn error(&mut self, text: &[u8], is_counted: bool) {
        let text = String::from_utf8_lossy(text).into_owned();
        self.reply.error(&text);
        if !is_counted {
            (self.count)(&Error::text(text));
        }
    }

    fn table(&mut self, table: &Table, rest: &mut Vec<Rest>) -> mlua::Result<()> {
        let pairs = |table, later, is_map| Rest::Pairs { table, behind: Value::Nil, later, len: 0, is_map };
        if let Value::String(text) = table.raw_get("err")? {
            let is_counted = table.raw_get::<Value>("ignore_error_stats_update")? == Value::Boolean(true);
            self.error(c_text(&text.as_bytes()), is_counted);
        } else if let Value::String(text) = table.raw_get("ok")? {
            let text = String::from_utf8_lossy(c_text(&text.as_bytes())).replace(['\r', '\n'], " ");
            self.reply.status(&text);
        } else if let Some(number) = as_number(&table.raw_get("double")?) {
            let mut text = Vec::new();
            write_score(number, &mut text);
            self.reply.double(&text);
        } else if let Value::String(text) = table.raw_get("big_number")? {
            let text = text.to_string_lossy().replace(['\r', '\n'], " ");
            self.reply.big_number(text.as_bytes());
        } else if let Some((format, text)) = verbatim(table)? {
            self.reply.verbatim(&format, &text);
        } else if let Value::Table(map) = table.raw_get("map")? {
            rest.push(pairs(map, self.reply.map_later(), true));
        } else if let Value::Table(set) = table.raw_get("set")? {
            rest.push(pairs(set, self.reply.set_later(), false));
        } else {
            rest.push(Rest::Array(table.clone(), self.reply.array_later(), 0));
        }
        Ok(())
    }
}

/// What C sees of a text: it ends before a zero byte.
fn c_text(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn as_number(value: &Value) -> Option<f64> {
    match value {
        #[expect(clippy::cast_precision_loss, reason = "it was a double before")]
        Value::Integer(integer) => Some(*integer as f64),
        Value::Number(number) => Some(*number),
        _ => None,
    }
}

/// The three letters and the text of a verbatim string, if the table is one.
fn verbatim(table: &Table) -> mlua::Result<Option<(String, Vec<u8>)>> {
    let Value::Table(inner) = table.raw_get("verbatim_string")? else { return Ok(None) };
    let (Value::String(format), Value::String(text)) = (inner.raw_get("format")?, inner.raw_get("string")?) else {
        return Ok(None);
    };
    let format = format.as_bytes();
    let letters = format.iter().copied().take_while(|byte| *byte != 0).chain([b' '; 3]);
    let letters = letters.take(3).map(|letter| if letter.is_ascii() { char::from(letter) } else { '?' });
    let letters: String = letters.collect();
    Ok(Some((letters, text.as_bytes().to_vec())))
}
