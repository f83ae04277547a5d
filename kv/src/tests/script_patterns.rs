//! Patterns in scripts: whatever way a call takes, the result and the error are those of Lua's own functions.

use mlua::{Lua, LuaString, StdLib};

use super::Talk;
use crate::script::pattern::{ALTERNATIVES_MAX, Fault, Matcher, PatternError, STEPS_PER_CALL, Steps, harmless_len};

/// Calls a function as it is told and says all that it returned.
const SCRIPT: &str = r"
local name, text, pattern, extra = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local out = {}
local function put(...)
  for i = 1, select('#', ...) do out[#out + 1] = type((select(i, ...))) .. ':' .. tostring((select(i, ...))) end
end
local function replace(...)
  put(select('#', ...), ...)
  local first = ...
  if first == 'a' then return nil elseif first == 'b' then return 7 elseif first == 'ab' then return {} end
  return '<' .. first .. '>'
end
local calls = {
  find = function() put(string.find(text, pattern, tonumber(extra))) end,
  plain = function() put(text:find(pattern, tonumber(extra), true)) end,
  match = function() put(text:match(pattern, tonumber(extra))) end,
  gmatch = function() for one, other in string.gmatch(text, pattern) do put(one, other) end end,
  gfind = function() local iterator = text:gfind(pattern) put(iterator()) put(iterator()) end,
  gsub = function() put(text:gsub(pattern, extra)) end,
  two = function() put(text:gsub(pattern, extra, 2)) end,
  call = function() put(string.gsub(text, pattern, replace)) end,
  call_two = function() put(string.gsub(text, pattern, replace, 2)) end,
  look = function() put(text:gsub(pattern, {a = 'x', b = false, [1] = 2, ab = {}})) end,
  rep = function() put(text:rep(tonumber(extra))) end,
  none = function() put(string.find(text)) end,
  wrong = function() put(text:match(pattern, {})) end,
  no_replacement = function() put(text:gsub(pattern)) end,
  bad_replacement = function() put(string.gsub(text, pattern, true)) end,
  bad_count = function() put(string.gsub(text, pattern, extra, 'x')) end,
  bad_self = function() local gmatch = string.gmatch put(gmatch(nil, pattern)) end,
  number = function() put((12321):rep(2)) end,
}
local ok, failure = pcall(calls[name])
if not ok then put(failure) end
return table.concat(out, '|')
";
const CALLS: [&str; 17] = [
    "find",
    "plain",
    "match",
    "gmatch",
    "gfind",
    "gsub",
    "two",
    "call",
    "call_two",
    "look",
    "rep",
    "none",
    "wrong",
    "no_replacement",
    "bad_replacement",
    "bad_count",
    "bad_self",
];
const PIECES: [&str; 48] = [
    "a", "b", "c", "ab", ".", "%a", "%d", "%W", "[ab]", "[^a]", "[%w_]", "[a-c]", "[]]", "[^]b]", "*", "+", "-", "?",
    "(", ")", "()", "(", ")", "%1", "%2", "%0", "%bab", "%b", "%f[ab]", "%f", "$", "^", "[", "]", "%", "\0", "%z",
    "(a*)", "(.-)", "%s", "[a-]", "[%]", "[b-", "%p", "(b)", "1", "[b-%%]", "[^!-%%]",
];
const EXTRAS: [&str; 12] = ["", "1", "2", "-1", "-3", "0", "100", "<%0>", "%1-%2", "x%", "%%y", "-9e9"];
const CASES: usize = 30_000;

/// Numbers without a pattern (xorshift).
struct Draws(u64);

impl Draws {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    fn pattern(&mut self) -> Vec<u8> {
        let pieces = 1 + self.below(7);
        let mut pattern: Vec<u8> = (0..pieces).flat_map(|_| PIECES[self.below(PIECES.len())].bytes()).collect();
        if self.below(8) == 0 {
            // Too long for Lua's own.
            pattern.extend(b"[abbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb]?");
        }
        pattern
    }

    fn text(&mut self) -> Vec<u8> {
        const BYTES: &[u8] = b"aaabbbccab01 _](-%\0Z\xff";
        let len = if self.below(4) == 0 { self.below(60) } else { self.below(14) };
        (0..len).map(|_| BYTES[self.below(BYTES.len())]).collect()
    }
}

fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut request = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        request.extend([format!("${}\r\n", word.len()).as_bytes(), word, b"\r\n"].concat());
    }
    request
}

#[test]
fn each_call_is_as_in_lua() {
    let lua = Lua::new_with(StdLib::STRING | StdLib::TABLE, mlua::LuaOptions::new()).unwrap();
    let reference = lua.load(SCRIPT).set_name("@user_script").into_function().unwrap();
    let (mut talk, mut draws) = (Talk::new(), Draws(0x9E37_79B9_7F4A_7C15));
    let mut failures = 0;
    for _ in 0..CASES {
        let name = CALLS[draws.below(CALLS.len()).min(draws.below(CALLS.len()))];
        let (text, pattern, extra) = (draws.text(), draws.pattern(), EXTRAS[draws.below(EXTRAS.len())]);
        let words = [name.as_bytes(), text.as_slice(), pattern.as_slice(), extra.as_bytes()];
        let arguments = lua.create_sequence_from(words.map(|word| lua.create_string(word).unwrap())).unwrap();
        lua.globals().raw_set("ARGV", arguments).unwrap();
        let expected: LuaString = reference.call(()).unwrap();
        let expected = expected.as_bytes().to_vec();
        failures += usize::from(expected.windows(12).any(|part| part == b"user_script:"));
        let reply = talk.raw(0, &request(&[b"EVAL", SCRIPT.as_bytes(), b"0", words[0], words[1], words[2], words[3]]));
        let wanted = [format!("${}\r\n", expected.len()).as_bytes(), &expected, b"\r\n"].concat();
        assert!(
            reply == wanted,
            "{name} {:?} {:?} {extra:?}: {:?}, not {:?}",
            String::from_utf8_lossy(&text),
            String::from_utf8_lossy(&pattern),
            String::from_utf8_lossy(&reply),
            String::from_utf8_lossy(&wanted)
        );
    }
    assert!((CASES / 10..CASES / 2).contains(&failures), "{failures} of the calls fail: too few or too many");
}

#[test]
fn patterns_that_are_harmless() {
    for (pattern, len) in [
        ("", Some(1 << 16)),
        ("abc", Some((1 << 16) / 3)),
        ("^abc", Some(usize::MAX)),
        ("%s+", Some((1 << 16) / 3)),
        ("^(.-):(.*)", Some((1 << 16) / 9)),
        ("^(.-):(.*)$", Some(80)),
        (".-.-.-x", Some(9)),
        ("a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?aa", Some(0)),
        ("a", Some(1 << 16)),
        ("%", None),
        ("[a", None),
        ("(", None),
        ("a)", None),
        ("%1", None),
        ("(%1)", None),
        ("(a)%1", Some(114)),
        ("%b(", None),
        ("%fa", None),
        ("a\0b", None),
        ("()()()()()()()()()()()()()()()()()()()()()()()()()()()()()()()()", Some(1 << 10)),
        ("()()()()()()()()()()()()()()()()()()()()()()()()()()()()()()()()a", None),
    ] {
        assert_eq!(harmless_len(pattern.as_bytes()), len, "{pattern}");
    }
}

/// One search with all that it may have.
fn search(text: &[u8], pattern: &[u8], asked_max: usize) -> (Result<bool, Fault<()>>, usize) {
    let (mut left, mut asked) = (STEPS_PER_CALL, 0);
    let mut go_on = || {
        asked += 1;
        if asked == asked_max { Err(()) } else { Ok(()) }
    };
    let found = Matcher::default().find(text, pattern, (0, true), &mut Steps::new(&mut left, &mut go_on));
    (found.map(|found| found.is_some()), asked)
}

#[test]
fn alternatives_have_a_limit() {
    let text = vec![b'a'; ALTERNATIVES_MAX + 1];
    let most = b"a?".repeat(ALTERNATIVES_MAX);
    assert_eq!(search(&text, &most, usize::MAX).0, Ok(true));
    let more = b"a?".repeat(ALTERNATIVES_MAX + 1);
    assert_eq!(search(&text, &more, usize::MAX).0, Err(Fault::Pattern(PatternError::TooComplex)));
}

#[test]
fn searches_are_counted() {
    // About 2^100 steps.
    assert_eq!(search(&[b'a'; 100], &[b"a?".repeat(100), b"b".to_vec()].concat(), 7), (Err(Fault::Stopped(())), 7));
    for (text, pattern) in [("a", "a"), ("", ""), ("aaaa", "a-b")] {
        assert_eq!(search(text.as_bytes(), pattern.as_bytes(), 1).1, 0, "{pattern}");
    }
    let long = vec![b'a'; 10 * STEPS_PER_CALL];
    for pattern in ["a*", "a-b", "[ab]*", "%a*", "%bab"] {
        let asked = search(&long, pattern.as_bytes(), usize::MAX).1;
        assert!((9..=31).contains(&asked), "{pattern}: {asked}");
    }
}
