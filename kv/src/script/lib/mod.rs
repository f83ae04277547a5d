//! The libraries that scripts find beside Lua's own, with the behaviour of those that Valkey brings along: `bit` (BitOp 1.0.2),
//! `cjson` (Lua CJSON 2.1.0), `cmsgpack` (0.4.0) and `struct` (of 2018). And `search`: functions of Lua's own `string` for which Lua's
//! are not safe.

mod bit;
mod json;
mod msgpack;
mod packing;
pub(super) mod search;

use mlua::{IntoLuaMulti, Lua, MultiValue, Table};

use super::arguments::Arguments;

/// Adds them to the tables that become globals.
pub(super) fn register(lua: &Lua, tables: &Table) -> mlua::Result<()> {
    tables.raw_set("bit", bit::table(lua)?)?;
    tables.raw_set("cjson", json::table(lua)?)?;
    tables.raw_set("cmsgpack", msgpack::table(lua)?)?;
    tables.raw_set("struct", packing::table(lua)?)
}

/// Adds a function to a library.
fn add<R: IntoLuaMulti>(
    lua: &Lua,
    table: &Table,
    name: &str,
    run: impl Fn(Arguments<'_>) -> mlua::Result<R> + Send + 'static,
) -> mlua::Result<()> {
    let function = lua.create_function(move |lua, values: MultiValue| run(Arguments::new(lua, values)))?;
    table.raw_set(name, function)
}
