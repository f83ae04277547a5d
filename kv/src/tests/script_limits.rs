//! What scripts can ask of the interpreter that it cannot give: each is an error of the script, and the next one runs.

use super::Talk;

/// Scripts, and what is replied (to its digest).
fn check(cases: &[(&str, &str)]) {
    let mut talk = Talk::new();
    let mut wrong = Vec::new();
    for (script, expected) in cases {
        let request = format!("*3\r\n$4\r\nEVAL\r\n${}\r\n{script}\r\n$1\r\n0\r\n", script.len());
        let reply = super::readable(&talk.raw(0, request.as_bytes()));
        let reply = reply.split(" script: ").next().unwrap();
        // A digest of 40 digits stands behind these words.
        let reply = match reply.split_once("Error running script ") {
            Some((before, after)) => format!("{before}{}", &after[42..]),
            None => reply.to_owned(),
        };
        if reply != *expected {
            wrong.push(format!("{script}: {reply}, not {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(talk.say(0, "EVAL 'return string.rep(\"x\", 1000000):len()' 0"), "1000000");
}

#[test]
fn patterns_have_a_limit() {
    const TOO_COMPLEX: &str = "(error) ERR user_script:1: pattern too complex";
    check(&[
        ("return string.find(string.rep('a',50000), string.rep('a?',50000))", "(error) ERR pattern too complex"),
        ("return (string.find(string.rep('a',50000), string.rep('a?',50000)))", TOO_COMPLEX),
        ("return (string.match(string.rep('a',50000), string.rep('a?',50000)))", TOO_COMPLEX),
        ("return (string.gsub(string.rep('a',50000), string.rep('a?',50000), 'x'))", TOO_COMPLEX),
        ("return (string.gsub(string.rep('a',50000), string.rep('a?',50000), {}))", TOO_COMPLEX),
        ("for word in string.gmatch(string.rep('a',50000), string.rep('a?',50000)) do end", TOO_COMPLEX),
        ("return string.find(string.rep('a',5000), string.rep('a?',5000))", "1"),
        ("return (string.find('', string.rep('()', 1000000)))", "(error) ERR user_script:1: too many captures"),
        ("return string.find(string.rep('(', 1000), string.rep('%b()', 1000000))", "(nil)"),
        ("return #string.gsub(string.rep('a',100000), 'a', string.rep('b', 100))", "10000000"),
    ]);
}

#[test]
fn memory_has_a_limit() {
    const NO_MEMORY: &str = "(error) ERR not enough memory";
    check(&[
        ("return #string.rep('', 2147483647)", "0"),
        ("return #string.rep('x', 2147483647)", NO_MEMORY),
        ("return #string.rep('xyz', 1000000000)", NO_MEMORY),
        ("return #string.rep('x', -1)", "0"),
        ("local s = string.rep('x', 1000000) return #string.gsub(s, 'x', s)", NO_MEMORY),
        ("local s = string.rep('x', 1000000) return #string.gsub(s, 'x', function() return s end)", NO_MEMORY),
        ("local s = string.rep('x', 30000000) return #(s .. s .. s .. s .. s)", NO_MEMORY),
        ("local s = string.rep('x', 30000000) return #table.concat({s, s, s, s, s})", NO_MEMORY),
        ("local s = string.rep('x', 30000000) return #string.format('%s%s%s%s%s', s, s, s, s, s)", NO_MEMORY),
        ("local s = string.rep('\\0', 40000000) return #string.format('%q', s)", NO_MEMORY),
        ("local t = {} for i = 1, 100000000 do t[i] = {} end", NO_MEMORY),
        (
            "local ok, e = pcall(function() local t = {} for i = 1, 100000000 do t[i] = {} end end) return e",
            "\"not enough memory\"",
        ),
    ]);
}

/// The memory that a script leaves behind is there for the next one, also if it has stopped the collection of garbage.
#[test]
fn garbage_is_collected_behind_a_script() {
    let fill = "collectgarbage('stop') local t = {} for i = 1, 100000000 do t[i] = {} end";
    let stuff = "collectgarbage('stop') local s = string.rep('x', 50000000) return #s";
    check(&[
        (fill, "(error) ERR not enough memory"),
        ("return 1", "1"),
        (fill, "(error) ERR not enough memory"),
        (stuff, "50000000"),
        (stuff, "50000000"),
        (stuff, "50000000"),
    ]);
}

#[test]
fn depth_has_a_limit() {
    const OVERFLOW: &str = "\"user_script:1: stack overflow\"";
    check(&[
        ("local function f() return 1 + f() end local ok, e = pcall(f) return (string.gsub(e, ' %(.*', ''))", OVERFLOW),
        ("local function f() return (pcall(f)) end return tostring(f())", "\"true\""),
        ("local function f() return coroutine.wrap(f)() end local ok, e = pcall(f) return tostring(ok)", "\"false\""),
        ("local function f() return (coroutine.resume(coroutine.create(f))) end return tostring(f())", "\"true\""),
        (
            "local t = setmetatable({}, {}) getmetatable(t).__index = function(_, k) return t[k + 1] end local ok = pcall(function() return t[1] end) return tostring(ok)",
            "\"false\"",
        ),
        (
            "local t = setmetatable({}, {}) getmetatable(t).__tostring = tostring local ok = pcall(tostring, t) return tostring(ok)",
            "\"false\"",
        ),
        (
            "local function f() return (string.gsub('a', 'a', f)) end local ok = pcall(f) return tostring(ok)",
            "\"false\"",
        ),
        (
            "local function f() return (string.gsub(string.rep('a', 200), 'a*a*a*$', f)) end local ok = pcall(f) return tostring(ok)",
            "\"false\"",
        ),
        ("local function f() table.sort({1, 2, 3}, f) end local ok = pcall(f) return tostring(ok)", "\"false\""),
        ("local function f() return (xpcall(error, f)) end return tostring(f())", "\"false\""),
        ("local ok, e = loadstring('return ' .. string.rep('(', 100000)) return tostring(ok)", "\"nil\""),
        ("local ok, e = loadstring('return ' .. string.rep('not ', 100000) .. '1') return tostring(ok)", "\"nil\""),
        ("local ok, e = loadstring(string.rep('do ', 100000)) return tostring(ok)", "\"nil\""),
        ("local ok, e = loadstring('return 1' .. string.rep('..1', 100000)) return tostring(ok)", "\"nil\""),
        (
            "local t = {} for i = 1, 100000 do t = {t} end local ok = pcall(cjson.encode, t) return tostring(ok)",
            "\"false\"",
        ),
        ("local ok = pcall(cjson.decode, string.rep('[', 100000)) return tostring(ok)", "\"false\""),
        ("local ok = pcall(cmsgpack.unpack, string.rep('\\145', 100000)) return tostring(ok)", "\"false\""),
        ("local t = {} for i = 1, 100000 do t = {t} end return #cmsgpack.pack(t) > 0 and 1", "1"),
        (
            "return string.format('%99999d', 1)",
            "(error) ERR user_script:1: invalid format (width or precision too long)",
        ),
    ]);
}

/// More arguments than the engine's functions can take are an error.
#[test]
fn arguments_have_a_limit() {
    const MANY: &str = "local t = {} for i = 1, 7999 do t[i] = 'v' .. i end";
    let script = |rest: &str| format!("{MANY} {rest}");
    let fails = |call: &str| (script(&format!("return tostring((pcall({call})))")), "\"false\"");
    let calls = [
        "redis.call, unpack(t)",
        "redis.pcall, unpack(t)",
        "redis.call, string.byte(string.rep('x', 7990), 1, -1)",
        "redis.log, unpack(t)",
        "redis.sha1hex, unpack(t)",
        "cjson.encode, unpack(t)",
        "cmsgpack.pack, unpack(t)",
        "struct.pack, unpack(t)",
        "bit.bor, unpack(t)",
        "string.find, unpack(t)",
        "string.rep, unpack(t)",
        "string.gsub, unpack(t)",
        "unpack, unpack(t)",
        "error, unpack(t)",
        "coroutine.wrap(function(...) return redis.call(...) end), unpack(t)",
    ];
    let calls = calls.map(fails);
    check(&calls.each_ref().map(|(script, expected)| (script.as_str(), *expected)));
    check(&[
        (&script("t[1] = 'rpush' t[2] = 'list' return redis.call(unpack(t, 1, 7800))"), "7798"),
        (
            &script(
                "t[1] = 'rpush' t[2] = 'list' for i = 3, 7900 do t[i] = i end return redis.call(unpack(t, 1, 7900))",
            ),
            "15696",
        ),
        ("return #{string.byte(string.rep('x', 7990), 1, -1)}", "7990"),
        (&script("return select('#', unpack(t))"), "7999"),
    ]);
}

/// What the collection of garbage calls runs without a hook, and could not be ended.
#[test]
fn nothing_runs_in_the_collection() {
    const REFUSED: &str = "(error) ERR user_script:1: __gc is not available to scripts";
    check(&[
        (
            "local p = newproxy(true) getmetatable(p).__gc = function() while true do end end p = nil collectgarbage() return 1",
            REFUSED,
        ),
        ("rawset(getmetatable(newproxy(true)), '__gc', function() end)", REFUSED),
        (
            "local q = newproxy(newproxy(true)) getmetatable(q).__gc = print",
            "(error) ERR user_script:1: Script attempted to access nonexistent global variable 'print'",
        ),
        ("return tostring((pcall(setmetatable, getmetatable(newproxy(true)), nil)))", "\"false\""),
        ("setfenv(function() __gc = 1 end, getmetatable(newproxy(true)))()", REFUSED),
        ("local p = newproxy(true) getmetatable(p).__len = function() return 7 end return #p", "7"),
        (
            "local p = newproxy(true) local q = newproxy(p) return tostring(getmetatable(p) == getmetatable(q))",
            "\"true\"",
        ),
        ("return tostring(getmetatable(newproxy()))", "\"nil\""),
        ("setmetatable({}, {__gc = function() while true do end end}) collectgarbage() return 2", "2"),
    ]);
}

/// Lua's own sorting is quadratic for some orders: here a script can be ended, and the order is the same.
#[test]
fn many_are_sorted_as_few() {
    let order = "local t, n = {}, N for i = 1, n do t[i] = (i * 7919) % n end table.sort(t) \
                 for i = 2, n do if t[i - 1] > t[i] then return i end end return t[n]";
    check(&[
        (&order.replace('N', "4096"), "4095"),
        (&order.replace('N', "10007"), "10006"),
        ("table.sort(nil)", "(error) ERR user_script:1: bad argument #1 to 'sort' (table expected, got nil)"),
        ("local t = {3, 1, 2} table.sort(t, function(a, b) return a > b end) return t", "[3 2 1]"),
    ]);
}
