//! Functions: FUNCTION and FCALL. The replies are those of Valkey 8.1.

use super::{Talk, check};
use crate::rdb::ImportOptions;

#[test]
fn libraries_come_and_go() {
    check(
        r##"
        > FUNCTION LOAD "#!lua name=lib\nserver.register_function('f', function(keys, args) return {keys[1], args[1]} end)"
        "lib"
        > FCALL f 1 a b
        ["a" "b"]
        > FCALL F 1 x y
        ["x" "y"]
        > FCALL_RO f 0
        (error) ERR Can not execute a script with write flag using *_ro command.
        > FCALL nosuch 0
        (error) ERR Function not found
        > FCALL f x
        (error) ERR Bad number of keys provided
        > FCALL f 3 a
        (error) ERR Number of keys can't be greater than number of args
        > FCALL f -1 a
        (error) ERR Number of keys can't be negative
        > FUNCTION LOAD "#!lua name=lib\nserver.register_function('f', function() return 1 end)"
        (error) ERR Library 'lib' already exists
        > FUNCTION LOAD REPLACE "#!lua name=lib\nserver.register_function('F', function() return 1 end)"
        "lib"
        > FCALL f 0
        1
        > FUNCTION LOAD "#!lua name=other\nserver.register_function('f', function() return 2 end)"
        (error) ERR Function f already exists
        > FUNCTION LOAD REPLACE nothing "#!lua name=other\n"
        (error) ERR Unknown option given: nothing
        > FUNCTION LIST
        [["library_name" "lib" "engine" "LUA" "functions" [["name" "F" "description" (nil) "flags" []]]]]
        > FUNCTION STATS
        ["running_script" (nil) "engines" ["LUA" ["libraries_count" 1 "functions_count" 1]]]
        > FUNCTION DELETE lib
        OK
        > FUNCTION DELETE lib
        (error) ERR Library not found
        > FUNCTION LIST
        []
        > FUNCTION FLUSH MAYBE
        (error) ERR FUNCTION FLUSH only supports SYNC|ASYNC option
        > FUNCTION FLUSH ASYNC SYNC
        (error) ERR unknown subcommand or wrong number of arguments for 'FLUSH'. Try FUNCTION HELP.
        > FUNCTION FLUSH async
        OK
        > FUNCTION KILL
        (error) NOTBUSY No scripts in execution right now.
    "##,
    );
}

#[test]
fn libraries_are_described() {
    check(
        r##"
        > FUNCTION LOAD "#!lua name=one\nserver.register_function{function_name='f', callback=function() return 1 end, description='what', flags={'no-writes','ALLOW-OOM'}} server.register_function('g', function() return redis.call('set','k','v') end)"
        "one"
        > FUNCTION LOAD "#!lua name=two\nserver.register_function('h', function() return 1 end)"
        "two"
        > FUNCTION LIST LIBRARYNAME ON* WITHCODE
        [["library_name" "one" "engine" "LUA" "functions" [["name" "f" "description" "what" "flags" [no-writes allow-oom]] ["name" "g" "description" (nil) "flags" []]] "library_code" "#!lua name=one\nserver.register_function{function_name=\'f\', callback=function() return 1 end, description=\'what\', flags={\'no-writes\',\'ALLOW-OOM\'}} server.register_function(\'g\', function() return redis.call(\'set\',\'k\',\'v\') end)"]]
        > FUNCTION LIST LIBRARYNAME none
        []
        > FUNCTION LIST LIBRARYNAME
        (error) ERR library name argument was not given
        > FUNCTION LIST WITHCODE WITHCODE
        (error) ERR Unknown argument WITHCODE
        > FCALL_RO f 0
        1
        > FCALL_RO g 0
        (error) ERR Can not execute a script with write flag using *_ro command.
        > FCALL g 0
        OK
        %3
        > FUNCTION LIST LIBRARYNAME two
        [{"library_name": "two", "engine": "LUA", "functions": [{"name": "h", "description": (nil), "flags": ~[]}]}]
        > FUNCTION STATS
        {"running_script": (nil), "engines": {"LUA": {"libraries_count": 2, "functions_count": 3}}}
    "##,
    );
}

/// What FUNCTION LOAD says of a library.
fn load(talk: &mut Talk, code: &str) -> String {
    let request = format!("*3\r\n$8\r\nFUNCTION\r\n$4\r\nLOAD\r\n${}\r\n{code}\r\n", code.len());
    super::readable(&talk.raw(0, request.as_bytes())).replace("(error) ERR ", "")
}

#[test]
fn libraries_must_make_sense() {
    const NAMES: &str =
        "Library names can only contain letters, numbers, or underscores(_) and must be at least one character long";
    let mut talk = Talk::new();
    for (code, expected) in [
        ("return 1", "Missing library metadata"),
        ("#!lua name=x", "Invalid library metadata"),
        ("#!lua name=\"x\n", "Invalid library metadata"),
        ("#!lua\n", "Library name was not given"),
        ("#!lua foo=bar\n", "Invalid metadata value given: foo=bar"),
        ("#!lua name=a name=b\n", "Invalid metadata value, name argument was given multiple times"),
        ("#!lua name=a-b\n", NAMES),
        ("#!lua name=\n", NAMES),
        ("#! name=a\n", "Engine '' not found"),
        ("#!js name=a\n", "Engine 'js' not found"),
        ("#!lua name=a\nfoo bar", "Error compiling function: user_function:2: '=' expected near 'bar'"),
        ("#!lua name=a\nlocal x = 1", "No functions registered"),
        (
            "#!lua name=a\nfoo()",
            "Error registering functions: ERR user_function:2: Script attempted to access nonexistent global variable 'foo'",
        ),
        (
            "#!lua name=a\nredis.call('ping')",
            "Error registering functions: ERR user_function:2: Script attempted to access nonexistent global variable 'call'",
        ),
        ("#!lua name=a\nx = 1", "Error registering functions: ERR user_function:2: Attempt to modify a readonly table"),
    ] {
        assert_eq!(load(&mut talk, code), expected, "{code:?}");
    }
    for (arguments, expected) in [
        ("()", "wrong number of arguments to server.register_function"),
        ("('a', function() end, 1)", "wrong number of arguments to server.register_function"),
        (
            "('a')",
            "calling server.register_function with a single argument is only applicable to Lua table (representing named \
             arguments).",
        ),
        ("({}, function() end)", "first argument to server.register_function must be a string"),
        ("('a', 'b')", "second argument to server.register_function must be a function"),
        (
            "('a b', function() end)",
            "Function names can only contain letters, numbers, or underscores(_) and must be at least one character long",
        ),
        ("{callback=function() end}", "server.register_function must get a function name argument"),
        ("{function_name='a'}", "server.register_function must get a callback argument"),
        ("{[{}]='a'}", "named argument key given to server.register_function is not a string"),
        ("{foo='a'}", "unknown argument given to server.register_function"),
        ("{function_name={}}", "function_name argument given to server.register_function must be a string"),
        ("{description={}}", "description argument given to server.register_function must be a string"),
        ("{callback='a'}", "callback argument given to server.register_function must be a function"),
        ("{flags='a'}", "flags argument to server.register_function must be a table representing function flags"),
        ("{flags={'a'}}", "unknown flag given"),
        ("{flags={{}}}", "unknown flag given"),
    ] {
        let code = format!("#!lua name=a\nserver.register_function{arguments}");
        assert_eq!(load(&mut talk, &code), format!("Error registering functions: ERR {expected}"), "{arguments}");
    }
    let twice = "#!lua name=a\nfor i = 1, 2 do server.register_function('a', function() end) end";
    assert_eq!(load(&mut talk, twice), "Error registering functions: ERR Function already exists in the library");
    let endless = "#!lua name=a\nwhile true do end";
    assert_eq!(load(&mut talk, endless), "Error registering functions: ERR FUNCTION LOAD timeout");
    assert_eq!(talk.say(0, "FUNCTION LIST"), "[]");
}

#[test]
fn functions_may_not_do_what_libraries_may() {
    let mut talk = Talk::new();
    let code = "#!lua name=a\nlocal lib = server lib.register_function('f', function() return \
                pcall(function() lib.register_function('g', function() end) end) end) lib.register_function('h', function() \
                server.register_function('g', function() end) end) local n = 0 lib.register_function('count', function() n = n + 1 \
                return n end)";
    assert_eq!(load(&mut talk, code), "\"a\"");
    let refused = talk.say(0, "FCALL f 0");
    assert_eq!(refused, "(nil)");
    let missing = "(error) ERR user_function:2: attempt to call field 'register_function' (a nil value) script: h, on \
                   @user_function:2.";
    assert_eq!(talk.say(0, "FCALL h 0"), missing);
    assert_eq!((talk.say(0, "FCALL count 0"), talk.say(0, "FCALL count 0")), ("1".into(), "2".into()));
    assert_eq!(talk.say(0, "EVAL \"return redis.call('fcall', 'count', 0)\" 0").split(' ').nth(1), Some("ERR"));
}

#[test]
fn libraries_are_dumped_and_restored() {
    let mut talk = Talk::new();
    let library = |name: &str, function: &str, value: &str| {
        format!("#!lua name={name}\nserver.register_function('{function}', function() return {value} end)")
    };
    assert_eq!(load(&mut talk, &library("one", "f", "1")), "\"one\"");
    assert_eq!(load(&mut talk, &library("two", "g", "2")), "\"two\"");
    let dump = talk.raw(0, b"FUNCTION DUMP\r\n");
    let start = dump.windows(2).position(|two| two == b"\r\n").unwrap() + 2;
    let payload = &dump[start..dump.len() - 2];
    let restore = |talk: &mut Talk, payload: &[u8], how: &str| {
        let head = format!("*4\r\n$8\r\nFUNCTION\r\n$7\r\nRESTORE\r\n${}\r\n", payload.len());
        let tail = format!("\r\n${}\r\n{how}\r\n", how.len());
        super::readable(&talk.raw(0, &[head.as_bytes(), payload, tail.as_bytes()].concat()))
    };
    assert_eq!(restore(&mut talk, payload, "APPEND"), "(error) ERR Library one already exists");
    assert_eq!(restore(&mut talk, payload, "REPLACE"), "OK");
    talk.say(0, "FUNCTION DELETE two");
    load(&mut talk, &library("three", "G", "3"));
    assert_eq!(restore(&mut talk, payload, "replace"), "(error) ERR Function g already exists");
    assert_eq!(talk.say(0, "FCALL f 0"), "1");
    assert_eq!(talk.say(0, "FCALL g 0"), "3");
    assert_eq!(restore(&mut talk, payload, "FLUSH"), "OK");
    assert_eq!(talk.say(0, "FCALL g 0"), "2");
    let mut broken = payload.to_vec();
    broken[3] ^= 1;
    assert_eq!(restore(&mut talk, &broken, "FLUSH"), "(error) ERR DUMP payload version or checksum are wrong");
    let wrong = "(error) ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.";
    assert_eq!(restore(&mut talk, payload, "MAYBE"), wrong);
    talk.say(0, "SET k v");
    let other = talk.raw(0, b"DUMP k\r\n");
    let start = other.windows(2).position(|two| two == b"\r\n").unwrap() + 2;
    let value = &other[start..other.len() - 2];
    assert_eq!(restore(&mut talk, value, "FLUSH"), "(error) ERR given type is not a function");
    assert_eq!(
        talk.say(0, "FUNCTION STATS"),
        r#"["running_script" (nil) "engines" ["LUA" ["libraries_count" 2 "functions_count" 2]]]"#
    );
}

#[test]
fn libraries_are_in_files() {
    let mut talk = Talk::new();
    load(&mut talk, "#!lua name=a\nserver.register_function('f', function() return 7 end)");
    talk.say(0, "SET k v");
    let file = talk.engine().export_rdb(talk.now());
    let mut other = Talk::new();
    let mut import = other.engine().import_rdb(ImportOptions::default());
    import.handle_bytes(&file, talk.now()).unwrap();
    assert_eq!(import.finish().unwrap().libraries.len(), 1);
    assert_eq!(other.say(0, "FCALL f 0"), "7");
    other.engine().reload(other.now()).unwrap();
    assert_eq!((other.say(0, "FCALL f 0"), other.say(0, "GET k")), ("7".into(), "\"v\"".into()));
}

#[test]
fn what_libraries_take_is_shown() {
    let mut talk = Talk::new();
    let figure = |talk: &mut Talk, name: &str| -> u64 {
        let memory = talk.say(0, "INFO memory");
        let shown = memory.split(&format!("{name}:")).nth(1).expect("it is shown");
        shown.split('\\').next().unwrap().parse().unwrap()
    };
    assert_eq!(figure(&mut talk, "used_memory_vm_functions"), 0);
    let library = "#!lua name=one\nserver.register_function('run', function() return 1 end)";
    let request = format!("*3\r\n$8\r\nFUNCTION\r\n$4\r\nLOAD\r\n${}\r\n{library}\r\n", library.len());
    talk.raw(0, request.as_bytes());
    assert!(figure(&mut talk, "used_memory_vm_functions") > 10_000);
    assert_eq!(figure(&mut talk, "used_memory_functions"), library.len() as u64);
    assert_eq!((figure(&mut talk, "number_of_functions"), figure(&mut talk, "number_of_libraries")), (1, 1));
    talk.say(0, "FUNCTION FLUSH");
    assert_eq!(figure(&mut talk, "used_memory_vm_functions"), 0);
}

#[test]
fn a_file_replaces_libraries_only_if_it_may() {
    let mut talk = Talk::new();
    load(&mut talk, "#!lua name=a\nserver.register_function('f', function() return 7 end)");
    let file = talk.engine().export_rdb(talk.now());
    load(&mut talk, "#!lua name=b\nserver.register_function('g', function() return 9 end)");
    for replaces in [false, true] {
        let mut import = talk.engine().import_rdb(ImportOptions { replaces, ..ImportOptions::default() });
        let refusal = import.handle_bytes(&file, talk.now()).err().map(|error| error.to_string());
        let is_refused = refusal.is_some_and(|text| text.ends_with("Library 'a' already exists"));
        assert_eq!(is_refused, !replaces);
        assert_eq!((talk.say(0, "FCALL f 0"), talk.say(0, "FCALL g 0")), ("7".into(), "9".into()));
    }
}
