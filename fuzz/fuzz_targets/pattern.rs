//! Lua's patterns: whatever pattern and text, a search ends in the steps that it was given, and finds, captures and refuses what
//! Lua's own `string.find` does.
#![no_main]

use ashlar_kv::pattern::{
    Captured, Fault, Matcher, STEPS_PER_CALL, Steps, find_plain, harmless_len, is_plain, split_anchor,
};
use libfuzzer_sys::fuzz_target;
use mlua::{Function, Lua, LuaString};

/// More than this is slow and shows nothing new. Lua's own recurses once for each item of the pattern.
const INPUT_BYTES_MAX: usize = 512;
/// Times that a search is let go on.
const CALLS_MAX: usize = 10;
/// What Lua finds, as text.
const REFERENCE: &str = "local function show(first, last, ...) if not first then return 'none' end local out = first .. ' ' .. last \
                         for at = 1, select('#', ...) do out = out .. '|' .. (select(at, ...)) end return out end \
                         local text, pattern = ... local ok, found = pcall(function() return show(string.find(text, pattern)) end) \
                         return found";

thread_local! {
    static LUA: (Lua, Function) = {
        let lua = Lua::new();
        let function = lua.load(REFERENCE).set_name("=r").into_function().expect("it is a program");
        (lua, function)
    };
}

/// What a search finds, as text; nothing if it was stopped.
fn find(text: &[u8], pattern: &[u8]) -> Option<Vec<u8>> {
    let (mut left, mut calls) = (STEPS_PER_CALL, 0);
    let mut go_on = || {
        calls += 1;
        if calls < CALLS_MAX { Ok(()) } else { Err(()) }
    };
    let mut steps = Steps::new(&mut left, &mut go_on);
    let mut matcher = Matcher::default();
    let found = if is_plain(pattern) {
        find_plain(text, pattern, 0, &mut steps)
    } else {
        let (is_anchored, pattern) = split_anchor(pattern);
        matcher.find(text, pattern, (0, is_anchored), &mut steps)
    };
    let refused = |error| Some(format!("r:1: {error}").into_bytes());
    let found = match found {
        Ok(Some(found)) => found,
        Ok(None) => return Some(b"none".to_vec()),
        Err(Fault::Pattern(error)) => return refused(error),
        Err(Fault::Stopped(())) => return None,
    };
    let mut out = format!("{} {}", found.start + 1, found.end).into_bytes();
    for index in 0..matcher.captures() {
        out.push(b'|');
        match matcher.capture(index, &found) {
            Ok(Captured::Piece(piece)) => out.extend(&text[piece]),
            Ok(Captured::Position(at)) => out.extend((at + 1).to_string().bytes()),
            Err(error) => return refused(error),
        }
    }
    Some(out)
}

fuzz_target!(|input: &[u8]| {
    let Some((len, rest)) = input.split_first().filter(|_| input.len() <= INPUT_BYTES_MAX) else { return };
    let (pattern, text) = rest.split_at(usize::from(*len).min(rest.len()));
    let found = find(text, pattern);
    let is_harmless = harmless_len(pattern).is_some_and(|len| text.len() <= len);
    assert!(found.is_some() || !is_harmless, "what is harmless ends soon");
    // Lua's own would take as long.
    let Some(found) = found else { return };
    let expected = LUA.with(|(lua, function)| {
        let word = |bytes| lua.create_string(bytes).expect("there is memory");
        let expected: LuaString = function.call((word(text), word(pattern))).expect("errors are caught");
        expected.as_bytes().to_vec()
    });
    assert_eq!(String::from_utf8_lossy(&found), String::from_utf8_lossy(&expected));
    assert!(!is_harmless || !expected.starts_with(b"r:1:"), "what is harmless is no error");
});
