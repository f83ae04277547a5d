//! What replaces Lua's own functions of `string` that match patterns or repeat text, where Lua's would overflow the thread's stack
//! or run for ever without the hook. `sandbox.lua` decides which of the two a script gets, and calls these in the script's name.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mlua::{IntoLuaMulti, Lua, LuaString, MultiValue, Table, Value};

use super::super::arguments::{Arguments, text_of};
use super::super::machine::{MEMORY_BYTES_MAX, Purpose};
use super::super::pattern::{
    Captured, Fault, Matcher, STEPS_PER_CALL, Steps, find_plain, harmless_len, is_plain, split_anchor,
};
use super::super::running::Watch;

/// What is said of an argument 3 of `string.gsub` that cannot be put in place of anything.
const NO_REPLACEMENT: &str = "string/function/table expected";

/// The functions, for an interpreter that is watched.
pub(crate) fn table(lua: &Lua, watch: &Arc<Watch>, purpose: Purpose) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let work = Work { matcher: Matcher::default(), left: STEPS_PER_CALL };
    let search = Search { watch: Arc::clone(watch), purpose, work: Arc::new(Mutex::new(work)) };
    search.add(lua, &table, "find", |search, arguments| search.find(arguments, Finds::Place))?;
    search.add(lua, &table, "find_pattern", |search, arguments| search.find(arguments, Finds::PlaceOfPattern))?;
    search.add(lua, &table, "find_first", |search, arguments| search.find(arguments, Finds::FirstOfPattern))?;
    search.add(lua, &table, "match", |search, arguments| search.find(arguments, Finds::Captures))?;
    search.add(lua, &table, "step", Search::step)?;
    search.add(lua, &table, "gsub", Search::substitute)?;
    search.add(lua, &table, "rep", Search::repeat)?;
    search.add(lua, &table, "gmatch_arguments", |_, arguments| Ok((arguments.text(1)?, arguments.text(2)?)))?;
    search.add(lua, &table, "gsub_arguments", |_, arguments| gsub_arguments(arguments))?;
    search.add(lua, &table, "harmless_len", |_, arguments| {
        #[expect(clippy::cast_precision_loss, reason = "what is that large is no length")]
        Ok(harmless_len(&arguments.bytes(1)?).map_or(-1.0, |len| len as f64))
    })?;
    Ok(table)
}

/// What searches work with.
#[derive(Debug)]
struct Work {
    matcher: Matcher,
    /// Steps until the watch is asked.
    left: usize,
}

#[derive(Debug, Clone)]
struct Search {
    watch: Arc<Watch>,
    purpose: Purpose,
    work: Arc<Mutex<Work>>,
}

/// What a search returns before what was captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finds {
    /// Where the match is; a text that is no pattern is found as it is.
    Place,
    /// Where the match of a pattern is.
    PlaceOfPattern,
    /// The same, and no more than the first that was captured: the others may be wrong.
    FirstOfPattern,
    /// Nothing, but the whole match if nothing was captured.
    Captures,
}

impl Search {
    fn add<R: IntoLuaMulti>(
        &self,
        lua: &Lua,
        table: &Table,
        name: &str,
        run: impl Fn(&Self, &Arguments<'_>) -> mlua::Result<R> + Send + 'static,
    ) -> mlua::Result<()> {
        let search = self.clone();
        let function =
            lua.create_function(move |lua, values: MultiValue| run(&search, &Arguments::of_caller(lua, values)))?;
        table.raw_set(name, function)
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Searches, while the watch looks on.
    fn run<R>(
        &self,
        arguments: &Arguments<'_>,
        run: impl FnOnce(&mut Matcher, &mut Steps<'_, mlua::Error>) -> Result<R, Fault<mlua::Error>>,
    ) -> mlua::Result<R> {
        let mut work = self.work();
        let Work { matcher, left } = &mut *work;
        let mut go_on = || self.watch.handle_work(arguments.lua, self.purpose);
        run(matcher, &mut Steps::new(left, &mut go_on)).map_err(|fault| match fault {
            Fault::Pattern(error) => arguments.failed(&error.to_string()),
            Fault::Stopped(error) => error,
        })
    }

    /// `string.find` and `string.match`.
    fn find(&self, arguments: &Arguments<'_>, finds: Finds) -> mlua::Result<MultiValue> {
        let (text, pattern) = (arguments.text(1)?, arguments.text(2)?);
        let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
        let from = beginning(arguments.integer_or(3, 1)?, text.len());
        let is_exact = !matches!(arguments.get(4), Value::Nil | Value::Boolean(false));
        if finds == Finds::Place && (is_exact || is_plain(&pattern)) {
            let found = self.run(arguments, |_, steps| find_plain(&text, &pattern, from, steps))?;
            return found.map_or(Value::Nil.into_lua_multi(arguments.lua), |found| {
                (found.start + 1, found.end).into_lua_multi(arguments.lua)
            });
        }
        let (is_anchored, pattern) = split_anchor(&pattern);
        self.run(arguments, |matcher, steps| {
            let found = matcher.find(&text, pattern, (from, is_anchored), steps)?;
            let Some(found) = found else { return Ok(Value::Nil.into_lua_multi(arguments.lua)) };
            captured(arguments.lua, matcher, &text, &found, finds)
        })?
    }

    /// One step of `string.gmatch`: where the next match from a place on is, and what it captures.
    fn step(&self, arguments: &Arguments<'_>) -> mlua::Result<MultiValue> {
        let (text, pattern) = (arguments.text(1)?, arguments.text(2)?);
        let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
        let from = usize::try_from(arguments.integer(3)? - 1).expect("places are positive");
        self.run(arguments, |matcher, steps| {
            let Some(found) = matcher.find(&text, &pattern, (from, false), steps)? else {
                return Ok(Ok(MultiValue::new()));
            };
            let captured = captured(arguments.lua, matcher, &text, &found, Finds::Captures)?;
            Ok(captured.map(|mut values| {
                for place in [found.end, found.start + 1] {
                    values.push_front(Value::Integer(i64::try_from(place).expect("a text has less bytes")));
                }
                values
            }))
        })?
    }

    /// `string.gsub` with a text to put in place.
    fn substitute(&self, arguments: &Arguments<'_>) -> mlua::Result<(LuaString, usize)> {
        let (text, pattern) = (arguments.text(1)?, arguments.text(2)?);
        let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
        let count_max = count_max(arguments, text.len())?;
        let Some(replacement) = text_of(arguments.get(3)) else {
            return Err(arguments.wrong(3, NO_REPLACEMENT));
        };
        let (is_anchored, pattern) = split_anchor(&pattern);
        let out = self.run(arguments, |matcher, steps| {
            let (mut out, mut count, mut from, mut copied) = (Vec::new(), 0, 0, 0);
            while count < count_max && from <= text.len() {
                let Some(found) = matcher.find(&text, pattern, (from, is_anchored), steps)? else { break };
                count += 1;
                let before = out.len();
                append(&mut out, &text[copied..found.start])?;
                replace(&mut out, matcher, &text, &found, &replacement)?;
                steps.take_bytes(out.len() - before)?;
                (copied, from) = (found.end, found.end + usize::from(found.is_empty()));
                if is_anchored {
                    break;
                }
            }
            append(&mut out, &text[copied..])?;
            Ok((out, count))
        });
        let (out, count) = out?;
        Ok((arguments.lua.create_string(&out)?, count))
    }

    /// `string.rep`.
    fn repeat(&self, arguments: &Arguments<'_>) -> mlua::Result<LuaString> {
        let text = arguments.text(1)?;
        let text = text.as_bytes();
        let count = usize::try_from(as_int(arguments.integer(2)?)).unwrap_or(0);
        let len = text.len().checked_mul(count).filter(|len| *len <= MEMORY_BYTES_MAX).ok_or_else(no_memory)?;
        self.run(arguments, |_, steps| steps.take_bytes(len))?;
        arguments.lua.create_string(text.repeat(if len == 0 { 0 } else { count }))
    }
}

/// What a match returns.
fn captured(
    lua: &Lua,
    matcher: &Matcher,
    text: &[u8],
    found: &Range<usize>,
    finds: Finds,
) -> Result<mlua::Result<MultiValue>, Fault<mlua::Error>> {
    let mut values = MultiValue::new();
    let number = |place: usize| Value::Integer(i64::try_from(place).expect("a text has less bytes"));
    if finds != Finds::Captures {
        values.extend([number(found.start + 1), number(found.end)]);
    }
    let count = match finds {
        Finds::Place | Finds::PlaceOfPattern => matcher.captures(),
        Finds::FirstOfPattern => matcher.captures().min(1),
        Finds::Captures => matcher.captures().max(1),
    };
    for index in 0..count {
        values.push_back(match matcher.capture(index, found)? {
            Captured::Position(at) => number(at + 1),
            Captured::Piece(piece) => match lua.create_string(&text[piece]) {
                Ok(piece) => Value::String(piece),
                Err(error) => return Ok(Err(error)),
            },
        });
    }
    Ok(Ok(values))
}

/// Writes what is put in place of a match: a percent sign and a digit stand for a capture, and for the whole match if it is 0.
fn replace(
    out: &mut Vec<u8>,
    matcher: &Matcher,
    text: &[u8],
    found: &Range<usize>,
    replacement: &[u8],
) -> Result<(), Fault<mlua::Error>> {
    let mut rest = replacement;
    while let Some(sign) = rest.iter().position(|byte| *byte == b'%') {
        append(out, &rest[..sign])?;
        // C finds a zero byte behind the end.
        let what = rest.get(sign + 1).copied().unwrap_or(0);
        rest = rest.get(sign + 2..).unwrap_or_default();
        match what {
            b'0' => append(out, &text[found.clone()])?,
            b'1'..=b'9' => match matcher.capture(usize::from(what - b'1'), found)? {
                Captured::Piece(piece) => append(out, &text[piece])?,
                Captured::Position(at) => append(out, (at + 1).to_string().as_bytes())?,
            },
            other => append(out, &[other])?,
        }
    }
    append(out, rest)
}

/// Adds to a text that must stay shorter than all that a script may have.
fn append(out: &mut Vec<u8>, piece: &[u8]) -> Result<(), Fault<mlua::Error>> {
    if out.len() + piece.len() > MEMORY_BYTES_MAX {
        return Err(Fault::Stopped(no_memory()));
    }
    out.extend_from_slice(piece);
    Ok(())
}

fn no_memory() -> mlua::Error {
    mlua::Error::MemoryError("not enough memory".into())
}

/// The arguments of `string.gsub` with a function or table: the text, the pattern, whether it matches at the beginning only, and how
/// many matches are replaced at most.
fn gsub_arguments(arguments: &Arguments<'_>) -> mlua::Result<(LuaString, LuaString, bool, i64)> {
    let (text, pattern) = (arguments.text(1)?, arguments.text(2)?);
    let count_max = count_max(arguments, text.as_bytes().len())?;
    match arguments.get(3) {
        Value::Table(_) | Value::Function(_) => {}
        _ => return Err(arguments.wrong(3, NO_REPLACEMENT)),
    }
    let is_anchored = pattern.as_bytes().first() == Some(&b'^');
    Ok((text, pattern, is_anchored, i64::try_from(count_max).unwrap_or(i64::MAX)))
}

/// Argument 4 of `string.gsub`: how many matches are replaced at most.
fn count_max(arguments: &Arguments<'_>, len: usize) -> mlua::Result<usize> {
    let all = i64::try_from(len + 1).expect("a text has less bytes");
    let count = as_int(arguments.integer_or(4, all)?);
    Ok(usize::try_from(count).unwrap_or(0))
}

/// Where a search begins, from 0; what a script says counts from 1, or backwards from -1.
fn beginning(place: i64, len: usize) -> usize {
    let len = i64::try_from(len).expect("a text has less bytes");
    let place = if place < 0 { place.saturating_add(len + 1) } else { place };
    usize::try_from(place.clamp(1, len + 1) - 1).expect("it is positive")
}

/// An integer as C's `int`.
#[expect(clippy::cast_possible_truncation, reason = "that is what is wanted")]
const fn as_int(value: i64) -> i32 {
    value as i32
}
