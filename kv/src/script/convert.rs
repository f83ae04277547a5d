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

use mlua::{Lua, Table, Value};

use super::arguments::to_integer;
use super::thrown;
use crate::error::Error;
use crate::resp::{Protocol, Reply};
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
pub(crate) struct Writer<'a> {
    /// Where to.
    pub(crate) reply: &'a mut Reply,
    /// What the script speaks.
    pub(crate) script: Protocol,
    /// Told of each error that is written.
    pub(crate) count: &'a dyn Fn(&Error),
}

impl Writer<'_> {
    /// Writes a value.
    ///
    /// # Errors
    /// The interpreter has no memory left; what was written is not whole.
    pub(crate) fn write(&mut self, value: &Value) -> mlua::Result<()> {
        self.write_at(value, 0)
    }

    fn write_at(&mut self, value: &Value, depth: usize) -> mlua::Result<()> {
        match value {
            Value::String(text) => self.reply.bulk(&text.as_bytes()),
            Value::Integer(integer) => self.reply.integer(*integer),
            Value::Number(number) => self.reply.integer(to_integer(*number)),
            Value::Boolean(is_true) if self.script == Protocol::Resp3 => self.reply.boolean(*is_true),
            Value::Boolean(true) => self.reply.integer(1),
            Value::Table(_) if depth > DEPTH_MAX => self.error(b"ERR reached lua stack limit", false),
            Value::Table(table) => return self.table(table, depth),
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

    fn table(&mut self, table: &Table, depth: usize) -> mlua::Result<()> {
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
            let later = self.reply.map_later();
            let mut len = 0;
            for pair in map.pairs::<Value, Value>() {
                let (key, value) = pair?;
                self.write_at(&key, depth + 1)?;
                self.write_at(&value, depth + 1)?;
                len += 1;
            }
            self.reply.finish(later, len);
        } else if let Value::Table(set) = table.raw_get("set")? {
            let later = self.reply.set_later();
            let mut len = 0;
            for pair in set.pairs::<Value, Value>() {
                self.write_at(&pair?.0, depth + 1)?;
                len += 1;
            }
            self.reply.finish(later, len);
        } else {
            let later = self.reply.array_later();
            let mut len = 0;
            loop {
                let element: Value = table.raw_get(len + 1)?;
                if element.is_nil() {
                    break;
                }
                self.write_at(&element, depth + 1)?;
                len += 1;
            }
            self.reply.finish(later, len);
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
