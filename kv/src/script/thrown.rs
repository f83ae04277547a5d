//! Errors on their way through a script.
//!
//! Lua throws values: text that its own functions raise, tables that `redis.call` raises. What a function of ours throws travels
//! as a [`Thrown`] inside the interpreter's error type, because only that may leave a Rust function; whatever catches errors in
//! the sandbox (`pcall`, `xpcall`, `coroutine.resume`, the end of the script) makes of it the value that Valkey would have thrown.

use std::fmt;

use mlua::debug::Debug;
use mlua::{Lua, Value};

/// What was thrown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Thrown {
    /// A message.
    Text(Vec<u8>),
    /// A table whose field `err` is this text, its code first.
    Reply {
        /// The text.
        text: Vec<u8>,
        /// Statistics know of it already.
        is_counted: bool,
    },
}

impl fmt::Display for Thrown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Text(text) | Self::Reply { text, .. }) = self;
        f.write_str(&String::from_utf8_lossy(text))
    }
}

impl std::error::Error for Thrown {}

impl From<Thrown> for mlua::Error {
    fn from(thrown: Thrown) -> Self {
        Self::external(thrown)
    }
}

/// What a function of ours threw, if it was one of ours.
fn find(error: &mlua::Error) -> Option<&Thrown> {
    match error {
        mlua::Error::CallbackError { cause, .. } => find(cause),
        mlua::Error::ExternalError(thrown) => thrown.downcast_ref(),
        _ => None,
    }
}

/// What was thrown, as Valkey's functions throw it: text or a table. Other values stay as they are.
pub(crate) fn plain(lua: &Lua, value: Value) -> mlua::Result<Value> {
    let Value::Error(error) = value else { return Ok(value) };
    match find(&error) {
        Some(Thrown::Text(text)) => lua.create_string(text).map(Value::String),
        Some(Thrown::Reply { text, is_counted }) => table(lua, text, *is_counted).map(Value::Table),
        None => lua.create_string(first_line(&error)).map(Value::String),
    }
}

/// An error of the interpreter itself, without the trace that it adds.
fn first_line(error: &mlua::Error) -> String {
    let mut error = error;
    while let mlua::Error::CallbackError { cause, .. } = error {
        error = cause;
    }
    let text = match error {
        mlua::Error::MemoryError(text) => text.clone(),
        other => other.to_string(),
    };
    text.lines().next().unwrap_or_default().to_owned()
}

/// An error as scripts see it: a table with the field `err`.
pub(crate) fn table(lua: &Lua, text: &[u8], is_counted: bool) -> mlua::Result<mlua::Table> {
    let table = lua.create_table()?;
    table.raw_set("err", lua.create_string(text)?)?;
    if is_counted {
        table.raw_set("ignore_error_stats_update", true)?;
    }
    Ok(table)
}

/// A table with the text behind `ERR`: what the engine's own functions raise.
pub(crate) fn reply(text: &str) -> mlua::Error {
    Thrown::Reply { text: format!("ERR {text}").into_bytes(), is_counted: false }.into()
}

/// A message with the place of the function that stands at a level; level 0 is the present function.
pub(crate) fn text_at(lua: &Lua, level: usize, message: &str) -> mlua::Error {
    Thrown::Text(format!("{}{message}", place(lua, level)).into_bytes()).into()
}

/// Where the function at a level stands, as the beginning of a message; empty for one that is not written in Lua.
fn place(lua: &Lua, level: usize) -> String {
    let place = |debug: &Debug<'_>| {
        let line = debug.current_line()?;
        Some(format!("{}:{line}: ", debug.source().short_src?))
    };
    lua.inspect_stack(level, place).flatten().unwrap_or_default()
}

/// An argument of the function at a level is wrong; arguments are counted from 1.
pub(crate) fn argument(lua: &Lua, level: usize, number: usize, what: &str) -> mlua::Error {
    let name = lua.inspect_stack(level, |debug| {
        let names = debug.names();
        let is_method = names.name_what == Some("method");
        (names.name.map_or_else(|| "?".into(), std::borrow::Cow::into_owned), is_method)
    });
    let (name, is_method) = name.unwrap_or_else(|| ("?".into(), false));
    match (is_method, number) {
        (true, 1) => text_at(lua, level + 1, &format!("calling '{name}' on bad self ({what})")),
        (true, _) => text_at(lua, level + 1, &format!("bad argument #{} to '{name}' ({what})", number - 1)),
        (false, _) => text_at(lua, level + 1, &format!("bad argument #{number} to '{name}' ({what})")),
    }
}
