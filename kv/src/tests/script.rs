//! Scripts: EVAL, EVALSHA, SCRIPT, and what scripts see. The replies are those of Valkey 8.1.

use super::{Talk, check};

#[test]
fn what_scripts_return() {
    check(
        r#"
        > EVAL "return 'hello'" 0
        "hello"
        > EVAL "return 100.5" 0
        100
        > EVAL "return 0/0" 0
        -9223372036854775808
        > EVAL "return true" 0
        1
        > EVAL "return false" 0
        (nil)
        > EVAL "return" 0
        (nil)
        > EVAL "return {ok='fine'}" 0
        fine
        > EVAL "return {err='ERR this is an error'}" 0
        (error) ERR this is an error
        > EVAL "return {1,2,3,'ciao',{1,2}}" 0
        [1 2 3 "ciao" [1 2]]
        > EVAL "return {1,nil,3}" 0
        [1]
        > EVAL "return {KEYS[1],KEYS[2],ARGV[1],ARGV[2]}" 2 a b c d
        ["a" "b" "c" "d"]
        > EVAL "return {double=0.1}" 0
        "0.1"
        > EVAL "return {map={a=1}}" 0
        ["a" 1]
        > EVAL "return {set={a=true}}" 0
        ["a"]
        > EVAL "return {big_number='123'}" 0
        "123"
        > EVAL "return {verbatim_string={string='hi',format='txt'}}" 0
        "hi"
        > EVAL "return function() end" 0
        (nil)
        > EVAL "local a = setmetatable({},{__index=function() foo() end}) return a" 0
        []
        > EVAL "return _G" 0
        []
        %3
        > EVAL "return {double=0.1}" 0
        0.1
        > EVAL "return {map={a=1}}" 0
        {"a": 1}
        > EVAL "return {set={a=true}}" 0
        ~["a"]
        > EVAL "return {big_number='123'}" 0
        123
        > EVAL "return true" 0
        1
        > EVAL "redis.setresp(3) return {true, false}" 0
        [true false]
        > EVAL "return nil" 0
        (nil)
    "#,
    );
}

#[test]
fn what_scripts_call() {
    check(
        r#"
        > EVAL "return redis.call('set', KEYS[1], 'bar')" 1 foo
        OK
        > EVAL "return redis.call('get', KEYS[1])" 1 foo
        "bar"
        > EVAL "return type(redis.call('get', 'nosuch'))" 0
        "boolean"
        > EVAL "redis.setresp(3) return type(redis.call('get', 'nosuch'))" 0
        "nil"
        > EVAL "return redis.call('incr', KEYS[1])" 1 foo
        (error) ERR value is not an integer or out of range script: 2bab3b661081db58bd2341920e0ba7cf5dc77b25, on @user_script:1.
        > EVAL "return redis.pcall('incr', KEYS[1])" 1 foo
        (error) ERR value is not an integer or out of range
        > EVAL "local e = redis.pcall('incr', KEYS[1]) return e.err" 1 foo
        "ERR value is not an integer or out of range"
        > EVAL "local ok, e = pcall(redis.call, 'incr', KEYS[1]) return {tostring(ok), e}" 1 foo
        ["false" "ERR value is not an integer or out of range"]
        > EVAL "local ok, e = pcall(redis.call, 'nosuch') return e" 0
        "ERR Unknown command called from script"
        > EVAL "local ok, e = pcall(redis.call, 'get') return e" 0
        "ERR Wrong number of args calling command from script"
        > EVAL "local ok, e = pcall(redis.call) return e" 0
        "ERR Please specify at least one argument for this call"
        > EVAL "local ok, e = pcall(redis.call, 'get', {}) return e" 0
        "ERR Command arguments must be strings or integers"
        > EVAL "local ok, e = pcall(redis.call, 'multi') return e" 0
        "ERR This Redis command is not allowed from script"
        > EVAL "return {redis.call('echo', 1.5), redis.call('echo', 1e20), redis.call('echo', -0.0)}" 0
        ["1.5" "1e+20" "0"]
        > EVAL "redis.call('hset', 'h', 'f', 'v') redis.setresp(3) return redis.call('hgetall', 'h').map.f" 0
        "v"
        > EVAL "redis.call('sadd', 's', 'm') redis.setresp(3) return tostring(redis.call('smembers', 's').set.m)" 0
        "true"
        > EVAL "redis.call('zadd', 'z', 1.5, 'm') redis.setresp(3) return tostring(redis.call('zscore', 'z', 'm').double)" 0
        "1.5"
        > EVAL "return redis.call('lpush', 'l', 'a', 'b')" 0
        2
        > EVAL "redis.call('select', 5) return redis.call('set', 'there', 1)" 0
        OK
        > EXISTS there
        0
        > SELECT 5
        OK
        > EXISTS there
        1
    "#,
    );
}

#[test]
fn what_scripts_may_not() {
    check(
        r##"
        > EVAL_RO "return redis.call('set', 'a', 1)" 0
        (error) ERR Write commands are not allowed from read-only scripts. script: 077e58c8635d4a7e55d5d5644be12af800cc5bd7, on @user_script:1.
        > EVAL_RO "return redis.call('get', 'a')" 0
        (nil)
        > EVAL "#!lua flags=no-writes\nreturn redis.pcall('set', 'a', 1)" 0
        (error) ERR Write commands are not allowed from read-only scripts.
        > EVAL_RO "#!lua\nreturn 1" 0
        (error) ERR Can not execute a script with write flag using *_ro command.
        > EVAL_RO "#!lua flags=no-writes\nreturn 1" 0
        1
        > EVAL "#!lua flags=nosuch\nreturn 1" 0
        (error) ERR Unexpected flag in script shebang: nosuch
        > EVAL "return 1" x
        (error) ERR value is not an integer or out of range
        > EVAL "return 1" -1
        (error) ERR Number of keys can't be negative
        > EVAL "return 1" 1
        (error) ERR Number of keys can't be greater than number of args
        > EVAL "return +" 0
        (error) ERR Error compiling script (new function): user_script:1: unexpected symbol near '+'
        > EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0
        (error) NOSCRIPT No matching script.
        > EVALSHA e0e1 0
        (error) NOSCRIPT No matching script.
    "##,
    );
}

/// Runs each script, whose reply is an error that begins like this.
fn check_errors(cases: &[(&str, &str)]) {
    let mut talk = Talk::new();
    for (script, expected) in cases {
        let reply = talk.say(0, &format!("EVAL \"{script}\" 0"));
        let error = reply.strip_prefix("(error) ").unwrap_or_else(|| panic!("{script}: {reply}"));
        let (text, place) = error.split_once(" script: ").unwrap_or((error, ""));
        assert_eq!(text, *expected, "{script}");
        assert!(place.is_empty() || place.ends_with(", on @user_script:1."), "{script}: {place}");
    }
}

#[test]
fn the_sandbox_holds() {
    let readonly = "ERR user_script:1: Attempt to modify a readonly table";
    let bare = "ERR Attempt to modify a readonly table";
    check_errors(&[
        ("a = 10", readonly),
        ("function f() end", readonly),
        ("redis.call = 1", readonly),
        ("redis.new = 1", readonly),
        ("string.x = 1", readonly),
        ("redis = function() return 1 end", readonly),
        ("_G = {}", readonly),
        ("getmetatable(_G).__index = 1", readonly),
        ("getmetatable('').__index.x = 1", readonly),
        ("getmetatable('').__index = 1", readonly),
        ("rawset(_G, 'a', 1)", bare),
        ("rawset(redis, 'call', 1)", bare),
        ("table.insert(redis, 1)", bare),
        ("setmetatable(_G, {})", bare),
        ("setmetatable(redis, {})", bare),
        ("return a", "ERR user_script:1: Script attempted to access nonexistent global variable 'a'"),
        ("print('x')", "ERR user_script:1: Script attempted to access nonexistent global variable 'print'"),
        ("dofile('x')", "ERR user_script:1: Script attempted to access nonexistent global variable 'dofile'"),
        ("return io", "ERR user_script:1: Script attempted to access nonexistent global variable 'io'"),
        ("return os.getenv('x')", "ERR user_script:1: attempt to call field 'getenv' (a nil value)"),
        ("error('x')", "ERR user_script:1: x"),
        ("error({err='My Err'})", "My Err"),
        ("local x; return x.y", "ERR user_script:1: attempt to index local 'x' (a nil value)"),
        (
            "local t = setmetatable(1, {})",
            "ERR user_script:1: bad argument #1 to 'setmetatable' (table expected, got number)",
        ),
        ("table.insert(nil, 1)", "ERR user_script:1: bad argument #1 to 'insert' (table expected, got nil)"),
    ]);
}

#[test]
fn scripts_leave_nothing_behind() {
    check(
        r#"
        > EVAL "local ok = pcall(rawset, string, 'x', 1) return {tostring(ok), type(rawget(string, 'x'))}" 0
        ["false" "nil"]
        > EVAL "local f = getfenv(pcall) return tostring(f == _G)" 0
        "true"
        > EVAL "for k in pairs(redis) do if k == 'call' then return k end end" 0
        "call"
        > EVAL "local n = 0 for k, v in pairs(_G) do n = n + 1 end return tostring(n > 30)" 0
        "true"
        > EVAL "local _, copy = pairs(redis) copy.call = nil return type(redis.call)" 0
        "function"
        > EVAL "return select(2, loadstring('\\27Lua', '=x'))" 0
        "x:1: unexpected symbol near \'char(27)\'"
        > EVAL "return loadstring('return 5')()" 0
        5
        > EVAL "setfenv(1, {redis=redis}) return redis.call('ping')" 0
        PONG
        > EVAL "math.randomseed(1) return math.random(1000000)" 0
        41631
    "#,
    );
}

#[test]
fn scripts_are_remembered() {
    check(
        r#"
        > SCRIPT LOAD "return 1"
        "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"
        > EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0
        1
        > EVALSHA E0E1F9FABFC9D4800C877A703B823AC0578FF8DB 0
        1
        > EVALSHA_RO e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0
        1
        > SCRIPT EXISTS e0e1f9fabfc9d4800c877a703b823ac0578ff8db nosuch
        [1 0]
        > SCRIPT SHOW e0e1f9fabfc9d4800c877a703b823ac0578ff8db
        "return 1"
        > SCRIPT SHOW nosuch
        (error) NOSCRIPT No matching script.
        > SCRIPT LOAD "return +"
        (error) ERR Error compiling script (new function): user_script:1: unexpected symbol near '+'
        > SCRIPT FLUSH NOW
        (error) ERR SCRIPT FLUSH only support SYNC|ASYNC option
        > SCRIPT FLUSH ASYNC
        OK
        > SCRIPT EXISTS e0e1f9fabfc9d4800c877a703b823ac0578ff8db
        [0]
        > SCRIPT DEBUG maybe
        (error) ERR Use SCRIPT DEBUG YES/SYNC/NO
        > SCRIPT DEBUG NO
        OK
        > SCRIPT NOSUCH
        (error) ERR unknown subcommand 'NOSUCH'. Try SCRIPT HELP.
    "#,
    );
}

#[test]
fn a_script_that_is_meant_for_a_debugger_does_not_run_for_good() {
    check(
        r#"
        > SCRIPT LOAD "return redis.call('SET','k','v')"
        "756928dd1246249109cfe8475bfa267e967ea948"
        > SCRIPT DEBUG YES
        (error) ERR This server has no script debugger. Scripts of this connection are refused until SCRIPT DEBUG NO
        > EVAL "return redis.call('SET','k','v')" 0
        (error) ERR This server has no script debugger, so the script was not run. SCRIPT DEBUG NO lets scripts run on this connection
        > EVAL_RO "return 1" 0
        (error) ERR This server has no script debugger, so the script was not run. SCRIPT DEBUG NO lets scripts run on this connection
        > MULTI
        OK
        > EVALSHA 756928dd1246249109cfe8475bfa267e967ea948 0
        QUEUED
        > EXEC
        [(error) ERR This server has no script debugger, so the script was not run. SCRIPT DEBUG NO lets scripts run on this connection]
        1> EXISTS k
        0
        1> EVAL "return 1" 0
        1
        > SCRIPT DEBUG NO
        OK
        > EVAL "return 2" 0
        2
        > SCRIPT DEBUG sync
        (error) ERR This server has no script debugger. Scripts of this connection are refused until SCRIPT DEBUG NO
        > RESET
        RESET
        > EVAL "return 3" 0
        3
    "#,
    );
}

#[test]
fn only_so_many_scripts_of_eval_are_remembered() {
    let mut talk = Talk::new();
    let first = "06d3d2ae3ba9ac6fb9c0fe1f09f0ef0da2bbd0ee";
    assert_eq!(talk.say(0, "SCRIPT LOAD \"return 'kept'\"").len(), first.len() + 2);
    for number in 0..600 {
        assert_eq!(talk.say(0, &format!("EVAL \"return {number}\" 0")), number.to_string());
    }
    let evals = talk.engine().scripts.evals();
    assert_eq!((evals.len(), evals.evicted), (501, 100));
}

#[test]
fn a_transaction_runs_scripts() {
    check(
        r#"
        > MULTI
        OK
        > EVAL "return redis.call('incr', 'a')" 0
        QUEUED
        > EVAL "return redis.call('incr', 'a')" 0
        QUEUED
        > EXEC
        [1 2]
        > WATCH a
        OK
        1> EVAL "return redis.call('incr', 'a')" 0
        3
        > MULTI
        OK
        > PING
        QUEUED
        > EXEC
        (nil array)
        1> BLPOP list 0
        > EVAL "redis.call('rpush', 'list', 'x') return redis.call('llen', 'list')" 0
        1
        1?
        ["list" "x"]
    "#,
    );
}

#[test]
fn deep_tables_are_replied_up_to_a_depth() {
    let mut talk = Talk::new();
    talk.say(0, "HELLO 3");
    for (table, begin) in [("a[1] = b", "*1\r\n"), ("a.map = {k = b}", "%1\r\n$1\r\nk\r\n")] {
        let script = format!("local a = {{}} local b = a {table} return a");
        let request = format!("*3\r\n$4\r\nEVAL\r\n${}\r\n{script}\r\n$1\r\n0\r\n", script.len());
        let reply = String::from_utf8(talk.raw(0, request.as_bytes())).unwrap();
        let levels = reply.strip_suffix("-ERR reached lua stack limit\r\n").unwrap_or_else(|| panic!("{reply:.200}"));
        assert_eq!(levels, begin.repeat(levels.len() / begin.len()), "{table}");
    }
}

#[test]
fn touch_counts_in_scripts_of_clients_that_leave_no_trace() {
    let mut talk = Talk::new();
    talk.say(0, "SET k v");
    talk.wait(5_000);
    talk.say(0, "CLIENT NO-TOUCH ON");
    talk.say(0, "EVAL \"return redis.call('get', 'k')\" 0");
    assert_eq!(talk.say(0, "OBJECT IDLETIME k"), "5");
    talk.say(0, "EVAL \"return redis.call('touch', 'k')\" 0");
    assert_eq!(talk.say(0, "OBJECT IDLETIME k"), "0");
    talk.wait(3_000);
    talk.say(0, "EVAL \"redis.call('touch', 'none') return redis.call('get', 'k')\" 0");
    assert_eq!(talk.say(0, "OBJECT IDLETIME k"), "3");
}

#[test]
fn a_script_whose_reply_is_an_error_has_failed() {
    let mut talk = Talk::new();
    talk.say(0, "SET k v");
    for (script, failed) in [
        ("return redis.call('lpush', 'k', 1)", 1),
        ("return redis.pcall('lpush', 'k', 1)", 1),
        ("return redis.error_reply('MY own')", 1),
        ("error('x')", 1),
        ("redis.pcall('lpush', 'k', 1) return 1", 0),
        ("return {redis.pcall('lpush', 'k', 1)}", 0),
        ("return '-ERR no error'", 0),
    ] {
        talk.say(0, "CONFIG RESETSTAT");
        talk.say(0, &format!("EVAL \"{script}\" 0"));
        let counts = talk.say(0, "INFO commandstats");
        let counts = counts.split("cmdstat_eval:").nth(1).unwrap().split("\\r").next().unwrap();
        assert!(counts.starts_with("calls=1,"), "{script}: {counts}");
        assert!(counts.ends_with(&format!("rejected_calls=0,failed_calls={failed}")), "{script}: {counts}");
    }
}

/// An engine with more in it than it may have.
fn full() -> Talk {
    let mut talk = Talk::new();
    for number in 0..100 {
        talk.say(0, &format!("SET {number} {}", "x".repeat(20)));
    }
    talk.tick();
    talk.say(0, "CONFIG SET maxmemory 1");
    talk.say(0, "CONFIG RESETSTAT");
    talk
}

#[test]
fn a_script_that_writes_is_not_stopped_when_memory_is_full() {
    let mut talk = full();
    let refused = talk.say(0, "EVAL \"redis.call('get', KEYS[1]) return redis.call('set', KEYS[1], 'a')\" 1 foo");
    assert!(refused.starts_with("(error) OOM command not allowed"), "{refused}");
    let done = talk.say(0, "EVAL \"redis.call('del', KEYS[1]) return redis.call('set', KEYS[1], 'a')\" 1 foo");
    assert_eq!(done, "OK");
    assert_eq!(talk.say(0, "GET foo"), "\"a\"");
}

#[test]
fn what_scripts_are_refused_is_counted() {
    let mut talk = full();
    talk.say(0, "EVAL \"return redis.pcall('set', 'x', 'y')\" 0");
    assert!(
        talk.say(0, "INFO commandstats").contains("cmdstat_set:calls=0,usec=0,usec_per_call=0.00,rejected_calls=1")
    );
    talk.say(0, "CONFIG RESETSTAT");
    talk.say(0, r#"EVAL "error(redis.error_reply('-ERR\r\n-ERR FAKE'))" 0"#);
    let errors = talk.say(0, "INFO errorstats");
    assert!(errors.contains("errorstat_ERR:count=1"), "{errors}");
    let thrown = talk.say(0, "EVAL \"error({})\" 0");
    assert!(thrown.starts_with("(error) ERR unknown error script: "), "{thrown}");
}
