//! Scripts that do not end: what others are told meanwhile, and how they are ended.
//!
//! There are no threads here: a slow script gives way once, in the middle of itself, and the others speak then.

use std::sync::{Arc, Mutex};

use super::{Talk, readable};
use crate::client::{Link, Mailbox};
use crate::session::{Next, Session};
use crate::time::Now;

/// Runs a script of client 0; once it is slow, another client says each line, so many milliseconds after the script began. What
/// the script replied, and what the other was told; `held` for a request that is not answered yet.
fn run(talk: &mut Talk, script: &str, lines: &[(u64, &str)]) -> (String, Vec<String>) {
    let link = Link {
        peer: "127.0.0.1:9".into(),
        local: "127.0.0.1:6379".into(),
        descriptor: 8,
        is_unix: false,
        is_tls: false,
        is_server: false,
    };
    let mailbox = Arc::new(Mailbox::new(Box::new(|| {})));
    let mut other = Session::open(talk.engine_shared(), mailbox, link, talk.now()).unwrap();
    let mut lines: Vec<(u64, String)> = lines.iter().map(|(ms, line)| (*ms, format!("{line}\r\n"))).collect();
    let (began, told) = (talk.now(), Arc::new(Mutex::new(Vec::new())));
    let heard = Arc::clone(&told);
    let speak = Mutex::new(move || {
        for (ms, line) in lines.drain(..) {
            let span = std::time::Duration::from_millis(ms);
            let now = Now { instant: began.instant + span, ..began };
            other.handle_time(now);
            let (taken, next) = other.feed(line.as_bytes(), now);
            let is_held = taken == 0 && matches!(next, Next::Wait(Some(_)));
            heard.lock().unwrap().push(if is_held { "held".into() } else { readable(other.replies()) });
            let sent = other.replies().len();
            other.handle_sent(sent);
        }
    });
    talk.engine().set_give_way(Box::new(move || (speak.lock().unwrap())()));
    let reply = talk.say(0, script);
    let told = told.lock().unwrap().clone();
    (reply, told)
}

const BUSY_SCRIPT: &str =
    "(error) BUSY Valkey is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";
const BUSY_FUNCTION: &str =
    "(error) BUSY Valkey is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.";
const UNKILLABLE: &str = "(error) UNKILLABLE Sorry the script already executed write commands against the dataset. You can \
                          either wait the script termination or kill the server in a hard way using the SHUTDOWN NOSAVE \
                          command.";

#[test]
fn a_script_without_end_is_killed() {
    let mut talk = Talk::new();
    let (reply, told) = run(
        &mut talk,
        r#"EVAL "while true do pcall(function() while true do end end) end" 0"#,
        &[
            (100, "PING"),
            (100, "GET k"),
            (4_999, "GET k"),
            (5_000, "GET k"),
            (5_000, "PING"),
            (5_000, "EVAL 'return 1' 0"),
            (5_000, "MULTI"),
            (5_000, "GET k"),
            (5_000, "EXEC"),
            (5_000, "FUNCTION KILL"),
            (5_000, "FUNCTION STATS"),
            (5_000, "SCRIPT KILL"),
            (5_000, "SELECT 1"),
        ],
    );
    assert!(reply.starts_with("(error) ERR Script killed by user with SCRIPT KILL."), "{reply}");
    let exec = format!("(error) EXECABORT Transaction discarded because of: {}", &BUSY_SCRIPT["(error) ".len()..]);
    let expected = [
        "PONG",
        "held",
        "held",
        BUSY_SCRIPT,
        BUSY_SCRIPT,
        BUSY_SCRIPT,
        "OK",
        BUSY_SCRIPT,
        &exec,
        BUSY_SCRIPT,
        BUSY_SCRIPT,
        "OK",
        "OK",
    ];
    assert_eq!(told, expected);
    // All is as before.
    assert_eq!(talk.say(0, "EVAL 'local n = 0 for i = 1, 1000000 do n = n + 1 end return n' 0"), "1000000");
    assert_eq!(talk.say(0, "SCRIPT KILL"), "(error) NOTBUSY No scripts in execution right now.");
}

#[test]
fn a_script_that_has_written_is_not_killed() {
    let mut talk = Talk::new();
    talk.say(0, "CONFIG SET lua-time-limit 10");
    let (reply, told) = run(
        &mut talk,
        r#"EVAL "redis.call('set', 'k', 'v') for i = 1, 1000000 do end return redis.call('get', 'k')" 0"#,
        &[(9, "SET k w"), (10, "SET k w"), (10, "SCRIPT KILL")],
    );
    assert_eq!(reply, "\"v\"");
    assert_eq!(told, ["held", BUSY_SCRIPT, UNKILLABLE]);
}

#[test]
fn without_a_limit_nobody_is_turned_away() {
    let mut talk = Talk::new();
    talk.say(0, "CONFIG SET busy-reply-threshold 0");
    let (reply, told) =
        run(&mut talk, r#"EVAL "for i = 1, 1000000 do end return 1" 0"#, &[(1_000_000, "GET k"), (1_000_000, "PING")]);
    assert_eq!((reply.as_str(), told), ("1", vec!["held".into(), "PONG".into()]));
}

#[test]
fn a_function_without_end_is_killed() {
    let mut talk = Talk::new();
    talk.say(0, r##"FUNCTION LOAD "#!lua name=a\nserver.register_function('f', function() while true do end end)""##);
    let (reply, told) = run(
        &mut talk,
        "FCALL f 1 k",
        &[(6_000, "PING"), (6_000, "SCRIPT KILL"), (6_000, "FUNCTION STATS"), (6_000, "FUNCTION KILL")],
    );
    assert!(reply.starts_with("(error) ERR Script killed by user with FUNCTION KILL."), "{reply}");
    let stats = r#"["running_script" ["name" "f" "command" ["FCALL" "f" "1" "k"] "duration_ms" 6000] "engines" ["LUA" ["libraries_count" 1 "functions_count" 1]]]"#;
    assert_eq!(told, [BUSY_FUNCTION, BUSY_FUNCTION, stats, "OK"]);
}

/// Functions that take long in one call are found and ended as loops are, wherever an error of them is caught.
#[test]
fn a_call_without_end_is_killed() {
    let search = "local s = string.rep('a', 200) local p = string.rep('a*', 40) .. 'b'";
    for call in [
        "string.find(s, p)",
        "s:match(p)",
        "for word in s:gmatch(p) do end",
        "s:gsub(p, 'x')",
        "s:gsub(p, '%0')",
        "s:gsub(p, function() end)",
        "s:gsub(p, {})",
        "while true do s:find('a-a-a-b') end",
        "while true do pcall(string.find, s, p) end",
        "string.rep('a', 4000000):find(string.rep('a', 2000000) .. 'b', 1, true)",
        "string.rep('a', 4000000):find(string.rep('a', 2000000) .. 'b')",
        "while true do string.rep('a', 1000000) end",
        "while true do string.rep('', 2000000000) end",
        "while true do coroutine.wrap(function() for i = 1, 9000 do end end)() end",
        "coroutine.wrap(function() s:find(p) end)()",
        "local t = {} for i = 1, 100000 do t[i] = 1 end while true do table.insert(t, 1, 1) table.remove(t, 1) end",
        "local t = {} for i = 1, 100000 do t[i] = 1 end while true do table.sort(t) end",
        "local l = string.rep('x', 10000000) while true do local m = l .. 'y' end",
        "local l = string.rep('x', 10000000) while true do l:reverse() end",
        "while true do local t = setmetatable({}, {__index = function(t, k) return k end}) for i = 1, 100 do local x = t[i] end end",
    ] {
        let mut talk = Talk::new();
        let script = format!(r#"EVAL "{search} {call}" 0"#);
        let (reply, told) = run(&mut talk, &script, &[(4_999, "GET k"), (5_000, "GET k"), (5_000, "SCRIPT KILL")]);
        assert!(reply.starts_with("(error) ERR Script killed by user with SCRIPT KILL."), "{call}: {reply}");
        assert_eq!(told, ["held", BUSY_SCRIPT, "OK"], "{call}");
        assert_eq!(talk.say(0, "EVAL \"return #string.rep('x', 70000)\" 0"), "70000", "{call}");
    }
}

#[test]
fn a_library_that_searches_for_ever_is_not_loaded() {
    let mut talk = Talk::new();
    let library = r##"FUNCTION LOAD "#!lua name=a\nlocal text, pattern = ('a'):rep(200), ('a*'):rep(40) .. 'b' text:find(pattern)""##;
    assert_eq!(talk.say(0, library), "(error) ERR Error registering functions: ERR FUNCTION LOAD timeout");
}
