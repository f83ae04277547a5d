//! What scripts call `redis` and `server`, and what the sandbox is made of.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mlua::debug::Debug;
use mlua::{Function, IntoLuaMulti, Lua, MultiValue, Table, Value};
use sha1::{Digest, Sha1};

use super::arguments::{Arguments, text_of, type_name};
use super::convert::{error_text, value_of};
use super::library::Registering;
use super::machine::{Purpose, Shared, Wish, is_sandbox};
use super::thrown::{self, Thrown};
use crate::resp::{Protocol, Request};
use crate::value::score::write_score;

/// Changes go to the log and to replicas.
pub(crate) const REPLICATE_ALL: u8 = 3;

/// Names of numbers, in both tables.
const LEVELS: [(&str, u8); 4] = [("LOG_DEBUG", 0), ("LOG_VERBOSE", 1), ("LOG_NOTICE", 2), ("LOG_WARNING", 3)];
const REPLICATION: [(&str, u8); 5] =
    [("REPL_NONE", 0), ("REPL_AOF", 1), ("REPL_SLAVE", 2), ("REPL_REPLICA", 2), ("REPL_ALL", REPLICATE_ALL)];

/// Which versions scripts are told: of Redis the one that it is compatible with.
const REDIS_VERSION: (&str, u32) = ("7.2.4", 0x0007_0204);
const VALKEY_VERSION: (&str, u32) = ("9.1.0", 0x0009_0100);

/// A function of ours.
fn function<R: IntoLuaMulti>(
    lua: &Lua,
    run: impl Fn(Arguments<'_>) -> mlua::Result<R> + Send + 'static,
) -> mlua::Result<Function> {
    lua.create_function(move |lua, values: MultiValue| run(Arguments::new(lua, values)))
}

/// `redis` and `server`, as scripts see it while they run.
pub(crate) fn server(lua: &Lua, purpose: Purpose, exchange: &Shared, slot: &Table) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    common(lua, &table)?;
    for (name, raises) in [("call", true), ("pcall", false)] {
        let (exchange, slot) = (exchange.clone(), slot.clone());
        table.raw_set(name, function(lua, move |arguments| call(arguments, &exchange, &slot, raises))?)?;
    }
    {
        let (exchange, slot) = (exchange.clone(), slot.clone());
        table.raw_set("acl_check_cmd", function(lua, move |arguments| check(arguments, &exchange, &slot))?)?;
    }
    let shared = exchange.clone();
    table.raw_set("setresp", function(lua, move |arguments| set_protocol(&arguments, &shared))?)?;
    let shared = exchange.clone();
    table.raw_set("set_repl", function(lua, move |arguments| set_replication(&arguments, &shared))?)?;
    table.raw_set("sha1hex", function(lua, |arguments| sha1hex(&arguments))?)?;
    table.raw_set("error_reply", function(lua, |arguments| error_reply(&arguments))?)?;
    table.raw_set("status_reply", function(lua, |arguments| status_reply(&arguments))?)?;
    for (name, number) in REPLICATION {
        table.raw_set(name, number)?;
    }
    if purpose == Purpose::Scripts {
        // There is no debugger.
        table.raw_set("breakpoint", function(lua, |_| Ok(false))?)?;
        table.raw_set("debug", function(lua, |_| Ok(()))?)?;
        table.raw_set("replicate_commands", function(lua, |_| Ok(true))?)?;
    }
    let random: Table = lua.globals().raw_get("math")?;
    let state = Arc::new(AtomicU64::new(RANDOM_BEGIN));
    let seeded = Arc::clone(&state);
    random.raw_set("random", function(lua, move |arguments| draw(&arguments, &state))?)?;
    random.raw_set("randomseed", function(lua, move |arguments| seed(&arguments, &seeded))?)?;
    Ok(table)
}

/// The same while a library is loaded: all that it can do is to register its functions.
pub(crate) fn loading(lua: &Lua, registering: &Registering) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    common(lua, &table)?;
    let registering = registering.clone();
    table.raw_set("register_function", function(lua, move |arguments| registering.register(&arguments))?)?;
    Ok(table)
}

/// What both have.
fn common(lua: &Lua, table: &Table) -> mlua::Result<()> {
    table.raw_set("log", function(lua, |arguments| log(&arguments))?)?;
    for (name, level) in LEVELS {
        table.raw_set(name, level)?;
    }
    table.raw_set("REDIS_VERSION", REDIS_VERSION.0)?;
    table.raw_set("REDIS_VERSION_NUM", REDIS_VERSION.1)?;
    table.raw_set("VALKEY_VERSION", VALKEY_VERSION.0)?;
    table.raw_set("VALKEY_VERSION_NUM", VALKEY_VERSION.1)?;
    table.raw_set("SERVER_NAME", "valkey")
}

/// What the sandbox needs of the engine.
pub(crate) fn native(lua: &Lua) -> mlua::Result<Table> {
    const READONLY: &str = "Attempt to modify a readonly table";
    let table = lua.create_table()?;
    table.raw_set("refuse", function(lua, |arguments| Err::<(), _>(arguments.failed(READONLY)))?)?;
    // Called by functions of the sandbox in the name of whoever called them.
    table.raw_set("refused", function(lua, |_| Err::<(), _>(mlua::Error::from(Thrown::Text(READONLY.into()))))?)?;
    table.raw_set("failed", function(lua, |arguments| Err::<(), _>(failed(&arguments)))?)?;
    table.raw_set("unreplaceable", function(lua, |arguments| Err::<(), _>(unreplaceable(&arguments)))?)?;
    table.raw_set("misused", function(lua, |arguments| Err::<(), _>(misused(&arguments)))?)?;
    table.raw_set("missing", function(lua, |arguments| Err::<(), _>(missing(&arguments)))?)?;
    table.raw_set("plain", function(lua, |arguments| thrown::plain(arguments.lua, arguments.get(1).clone()))?)?;
    table.raw_set("raised", function(lua, |arguments| Ok(raised(arguments.lua)))?)?;
    Ok(table)
}

/// A function of the sandbox has failed.
fn failed(arguments: &Arguments<'_>) -> mlua::Error {
    let what = arguments.bytes(1).unwrap_or_default();
    thrown::text_at(arguments.lua, 2, &String::from_utf8_lossy(&what))
}

/// A function that Lua's `gsub` has called for the sandbox's has no text to put in place, but a value of this type. The script is
/// behind both.
fn unreplaceable(arguments: &Arguments<'_>) -> mlua::Error {
    let what = arguments.bytes(1).unwrap_or_default();
    thrown::text_at(arguments.lua, 4, &format!("invalid replacement value (a {})", String::from_utf8_lossy(&what)))
}

/// A function of the sandbox was called with a wrong argument: its number, the function, what was expected, what came.
fn misused(arguments: &Arguments<'_>) -> mlua::Error {
    let text = |number| String::from_utf8(arguments.bytes(number).unwrap_or_default()).unwrap_or_default();
    let what = match arguments.len() {
        4 => format!("{} expected, got {}", text(3), type_name(arguments.get(4))),
        _ => text(3),
    };
    let message = format!("bad argument #{} to '{}' ({what})", text(1), text(2));
    thrown::text_at(arguments.lua, 2, &message)
}

/// A global was read that is not there.
fn missing(arguments: &Arguments<'_>) -> mlua::Error {
    match text_of(arguments.get(2)) {
        Some(name) => {
            let name = String::from_utf8_lossy(&name).into_owned();
            arguments.failed(&format!("Script attempted to access nonexistent global variable '{name}'"))
        }
        None => arguments.failed("Second argument to luaProtectedTableError must be a string or number"),
    }
}

/// Where the error was raised that is being explained: the source and line of the function that did, or of its caller if it is
/// not written in Lua. A function that has called another as the last it did is not known any more.
fn raised(lua: &Lua) -> (Option<String>, i64) {
    struct Frame {
        is_foreign: bool,
        is_sandbox: bool,
        place: (Option<String>, i64),
    }
    let frame = |level| {
        lua.inspect_stack(level, |debug: &Debug<'_>| {
            let source = debug.source();
            let name = source.source.map(std::borrow::Cow::into_owned);
            let line = debug.current_line().and_then(|line| i64::try_from(line).ok()).unwrap_or(-1);
            let is_sandbox = source.what == "tail" || name.as_deref().is_some_and(is_sandbox);
            Frame { is_foreign: source.what == "C", is_sandbox, place: (name, line) }
        })
    };
    // Level 0 is this function, level 1 the sandbox's that asks.
    let Some(mut found) = frame(2) else { return (None, -1) };
    let mut level = 3;
    if found.is_foreign
        && let Some(caller) = frame(level)
    {
        found = caller;
        level += 1;
    }
    while found.is_sandbox
        && let Some(caller) = frame(level)
    {
        found = caller;
        level += 1;
    }
    found.place
}

/// `redis.call` and `redis.pcall`: an error of the command is raised, or returned.
fn call(arguments: Arguments<'_>, exchange: &Shared, slot: &Table, raises: bool) -> mlua::Result<Value> {
    let lua = arguments.lua;
    let request = match words(&arguments) {
        Ok(request) => request,
        Err(what) if raises => return Err(thrown::reply(what)),
        Err(what) => return thrown::table(lua, format!("ERR {what}").as_bytes(), false).map(Value::Table),
    };
    drop(arguments);
    exchange.lock().request = request;
    fulfil(exchange, slot, Wish::Run)?;
    let mut exchange = exchange.lock();
    let reply = exchange.reply.bytes();
    if let Some(line) = reply.strip_prefix(b"-").filter(|_| raises) {
        let text = error_text(line.strip_suffix(b"\r\n").unwrap_or(line));
        exchange.reply.buffer().clear();
        return Err(Thrown::Reply { text, is_counted: true }.into());
    }
    let value = value_of(lua, reply);
    exchange.reply.buffer().clear();
    value
}

/// Has the present run do what lies in the exchange.
fn fulfil(exchange: &Shared, slot: &Table, wish: Wish) -> mlua::Result<()> {
    exchange.lock().wish = wish;
    match slot.raw_get(1)? {
        Value::Function(present) => present.call(()),
        _ => Err(thrown::reply("commands can only be called while a script runs")),
    }
}

/// What the words of one command may have together, bytes: all else that a command becomes has 32 bits for its lengths.
const COMMAND_BYTES_MAX: usize = 1 << 31;

/// The words of a command, or what is wrong with them.
fn words(arguments: &Arguments<'_>) -> Result<Request, &'static str> {
    if arguments.len() == 0 {
        return Err("Please specify at least one argument for this call");
    }
    let mut request = Request::default();
    let (mut text, mut left) = (Vec::new(), COMMAND_BYTES_MAX);
    for value in arguments.all() {
        match value {
            Value::String(word) => {
                let word = word.as_bytes();
                left = left.checked_sub(word.len()).ok_or("A command of a script must be shorter than 2 GiB")?;
                request.push(&word);
            }
            Value::Integer(_) | Value::Number(_) => {
                let number = arguments.number_of(value).expect("it is a number");
                text.clear();
                write_score(if number == 0.0 { 0.0 } else { number }, &mut text);
                if number.is_nan() && number.is_sign_negative() {
                    text.insert(0, b'-');
                }
                request.push(&text);
            }
            _ => return Err("Command arguments must be strings or integers"),
        }
    }
    Ok(request)
}

/// `redis.acl_check_cmd`: whether the client may run a command.
fn check(arguments: Arguments<'_>, exchange: &Shared, slot: &Table) -> mlua::Result<bool> {
    let request = words(&arguments).map_err(thrown::reply)?;
    drop(arguments);
    exchange.lock().request = request;
    fulfil(exchange, slot, Wish::Check)?;
    let mut exchange = exchange.lock();
    let reply = std::mem::take(exchange.reply.buffer());
    match reply.first() {
        Some(b'-') => Err(thrown::reply("Invalid command passed to server.acl_check_cmd()")),
        _ => Ok(reply.starts_with(b":1")),
    }
}

/// `redis.setresp`: what replies to this script look like.
fn set_protocol(arguments: &Arguments<'_>, exchange: &Shared) -> mlua::Result<()> {
    if arguments.len() != 1 {
        return Err(thrown::reply("server.setresp() requires one argument."));
    }
    let protocol = match arguments.number_of(arguments.get(1)).map(f64::trunc) {
        Some(2.0) => Protocol::Resp2,
        Some(3.0) => Protocol::Resp3,
        _ => return Err(thrown::reply("RESP version must be 2 or 3.")),
    };
    exchange.lock().protocol = protocol;
    Ok(())
}

/// `redis.set_repl`: where changes go.
fn set_replication(arguments: &Arguments<'_>, exchange: &Shared) -> mlua::Result<()> {
    if arguments.len() != 1 {
        return Err(thrown::reply("server.set_repl() requires one argument."));
    }
    let flags = arguments.number_of(arguments.get(1)).unwrap_or_default().trunc();
    let known = (0..=REPLICATE_ALL).find(|known| f64::from(*known) == flags);
    let wrong = || thrown::reply("Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.");
    exchange.lock().replication = known.ok_or_else(wrong)?;
    Ok(())
}

/// `redis.sha1hex`.
fn sha1hex(arguments: &Arguments<'_>) -> mlua::Result<String> {
    if arguments.len() != 1 {
        return Err(thrown::reply("wrong number of arguments"));
    }
    let text = text_of(arguments.get(1)).unwrap_or_default();
    Ok(Sha1::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect())
}

/// `redis.error_reply`: an error to return.
fn error_reply(arguments: &Arguments<'_>) -> mlua::Result<Table> {
    let (1, Value::String(text)) = (arguments.len(), arguments.get(1)) else {
        return thrown::table(arguments.lua, b"ERR wrong number or type of arguments", false);
    };
    let text = text.as_bytes();
    let text = text.strip_prefix(b"-").unwrap_or(&text);
    thrown::table(arguments.lua, &error_text(text), false)
}

/// `redis.status_reply`: a status to return.
fn status_reply(arguments: &Arguments<'_>) -> mlua::Result<Table> {
    let (1, Value::String(text)) = (arguments.len(), arguments.get(1)) else {
        return thrown::table(arguments.lua, b"ERR wrong number or type of arguments", false);
    };
    let table = arguments.lua.create_table()?;
    table.raw_set("ok", text)?;
    Ok(table)
}

/// `redis.log`.
fn log(arguments: &Arguments<'_>) -> mlua::Result<()> {
    if arguments.len() < 2 {
        return Err(thrown::reply("server.log() requires two arguments or more."));
    }
    let Some(level) = arguments.number_of(arguments.get(1)) else {
        return Err(thrown::reply("First argument must be a number (log level)."));
    };
    let texts: Vec<String> =
        arguments.all().skip(1).filter_map(text_of).map(|text| String::from_utf8_lossy(&text).into_owned()).collect();
    let text = texts.join(" ");
    match level.trunc() {
        0.0 => tracing::trace!("{text}"),
        1.0 => tracing::debug!("{text}"),
        2.0 => tracing::info!("{text}"),
        3.0 => tracing::warn!("{text}"),
        _ => return Err(thrown::reply("Invalid log level.")),
    }
    Ok(())
}

/// Where the numbers of `math.random` begin, 48 bits (the generator of `lrand48`).
const RANDOM_BEGIN: u64 = 0x1234_ABCD_330E;
const RANDOM_LOW: u64 = 0x330E;
const RANDOM_FACTOR: u64 = 0x5_DEEC_E66D;
const RANDOM_ADDEND: u64 = 0xB;
const RANDOM_MASK: u64 = (1 << 48) - 1;
/// Draws are below it.
const RANDOM_END: f64 = 2_147_483_647.0;

/// `math.random`: the same numbers from the same seed on every machine.
fn draw(arguments: &Arguments<'_>, state: &AtomicU64) -> mlua::Result<f64> {
    let next = state.load(Ordering::Relaxed).wrapping_mul(RANDOM_FACTOR).wrapping_add(RANDOM_ADDEND) & RANDOM_MASK;
    state.store(next, Ordering::Relaxed);
    let drawn = f64::from(u32::try_from(next >> 17).expect("31 bits are left")) % RANDOM_END / RANDOM_END;
    let whole = |number| arguments.integer(number).map(|value| f64::from(low_half(value)));
    match arguments.len() {
        0 => Ok(drawn),
        1 => {
            let end = whole(1)?;
            if end < 1.0 {
                return Err(arguments.wrong(1, "interval is empty"));
            }
            Ok((drawn * end).floor() + 1.0)
        }
        2 => {
            let (begin, end) = (whole(1)?, whole(2)?);
            if begin > end {
                return Err(arguments.wrong(2, "interval is empty"));
            }
            // The width wraps as C's integers do.
            let width = f64::from(low_half(arguments.integer(2)? - arguments.integer(1)? + 1));
            Ok((drawn * width).floor() + begin)
        }
        _ => Err(arguments.failed("wrong number of arguments")),
    }
}

/// `math.randomseed`.
fn seed(arguments: &Arguments<'_>, state: &AtomicU64) -> mlua::Result<()> {
    let seed = u64::from(low_half(arguments.integer(1)?).cast_unsigned());
    state.store(seed << 16 | RANDOM_LOW, Ordering::Relaxed);
    Ok(())
}

/// The lower half of an integer, as C takes it.
#[expect(clippy::cast_possible_truncation, reason = "that is what is wanted")]
const fn low_half(value: i64) -> i32 {
    value as i32
}
