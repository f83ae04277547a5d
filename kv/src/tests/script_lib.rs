//! What scripts find beside Lua's own libraries. The replies are those of Valkey 8.1, which has the same libraries.

use super::{Talk, readable};

/// What a script replies, as people read it.
fn eval(talk: &mut Talk, script: &str) -> String {
    let request = format!("*3\r\n$4\r\nEVAL\r\n${}\r\n{script}\r\n$1\r\n0\r\n", script.len());
    readable(&talk.raw(0, request.as_bytes())).replace("\\'", "'")
}

/// Runs expressions, all in one interpreter. An error is the message that `pcall` gives.
fn check(cases: &[(&str, &str)]) {
    let mut talk = Talk::new();
    for (expression, expected) in cases {
        let script = format!("local ok, value = pcall(function() return {expression} end) return value");
        assert_eq!(eval(&mut talk, &script), *expected, "{expression}");
    }
}

/// Lua's own `unpack` writes behind its stack when the number of results does not fit its integers.
#[test]
fn results_of_unpack_are_counted() {
    const TOO_MANY: &str = r#""user_script:1: too many results to unpack""#;
    check(&[
        ("{unpack({1,2,3}, -2, 2147483647)}", TOO_MANY),
        ("{unpack({1,2,3}, 0, 2147483647)}", TOO_MANY),
        ("{unpack({1,2,3}, -2147483648, -2)}", TOO_MANY),
        ("{unpack({1,2,3}, -1/0, -2)}", TOO_MANY),
        ("{unpack({1,2,3}, 1, 1/0)}", TOO_MANY),
        ("{unpack({1,2,3}, 0/0, 1)}", TOO_MANY),
        ("{unpack({1,2,3}, 1, 8002)}", TOO_MANY),
        ("{unpack({1,2,3}, -1, -2)}", "[]"),
        ("#{unpack({1,2,3}, -1e300, -2e300)}", "0"),
        ("{unpack({1,2,3}, 2)}", "[2 3]"),
        ("{unpack({1,2,3}, '2', '2')}", "[2]"),
        ("select('#', unpack({}, 1, 7000))", "7000"),
        ("{unpack(nil)}", r#""user_script:1: bad argument #1 to 'unpack' (table expected, got nil)""#),
        ("{unpack({}, {})}", r#""user_script:1: bad argument #2 to 'unpack' (number expected, got table)""#),
        ("{unpack({}, 1, 'x')}", r#""user_script:1: bad argument #3 to 'unpack' (number expected, got string)""#),
    ]);
}

#[test]
fn json_is_written() {
    check(&[
        ("cjson.encode({1,2.5,'a',true,false,cjson.null})", r#""[1,2.5,\"a\",true,false,null]""#),
        ("cjson.encode({})", r#""{}""#),
        ("cjson.encode({a={b={}}})", r#""{\"a\":{\"b\":{}}}""#),
        ("cjson.encode({[1]='x',a='y'})", r#""{\"1\":\"x\",\"a\":\"y\"}""#),
        ("cjson.encode({{},{{}},{1}})", r#""[{},[{}],[1]]""#),
        ("cjson.encode(nil)", r#""null""#),
        ("cjson.encode(1/3)", r#""0.33333333333333""#),
        ("cjson.encode(1e15)", r#""1e+15""#),
        (r#"cjson.encode('a"b\\/\b\t\n\f\r\1\127\200')"#, r#""\"a\\\"b\\\\\\/\\b\\t\\n\\f\\r\\u0001\\u007f\xc8\"""#),
        ("cjson.encode({[3]='c'})", r#""[null,null,\"c\"]""#),
        ("cjson.encode({[1.5]='c'})", r#""{\"1.5\":\"c\"}""#),
        ("cjson.encode({[0]='c'})", r#""{\"0\":\"c\"}""#),
        ("cjson.encode({[11]=1})", r#""user_script:1: Cannot serialise table: excessively sparse array""#),
        (
            "cjson.encode({[true]=1})",
            r#""user_script:1: Cannot serialise boolean: table key must be a number or string""#,
        ),
        ("cjson.encode(pcall)", r#""user_script:1: Cannot serialise function: type not supported""#),
        ("cjson.encode(0/0)", r#""user_script:1: Cannot serialise number: must not be NaN or Inf""#),
        ("cjson.encode()", r#""user_script:1: bad argument #1 to 'encode' (expected 1 argument)""#),
        ("cjson.encode(1,2)", r#""user_script:1: bad argument #1 to 'encode' (expected 1 argument)""#),
    ]);
}

#[test]
fn json_is_read() {
    check(&[
        ("cjson.decode('[1,[2,[]],\"x\"]')", r#"[1 [2 []] "x"]"#),
        ("cjson.decode('{\"a\":{\"b\":[7]}}').a.b[1]", "7"),
        ("tostring(cjson.decode(' -0.5e3 '))", r#""-500""#),
        ("tostring(cjson.decode('0x1F'))", r#""31""#),
        ("tostring(cjson.decode('inf'))", r#""inf""#),
        ("tostring(cjson.decode('+5'))", r#""5""#),
        ("cjson.decode('null') == cjson.null", "1"),
        ("type(cjson.null)", r#""userdata""#),
        (r#"cjson.decode('"\\u00e9\\ud83d\\ude00\\n\\/"')"#, r#""\xc3\xa9\xf0\x9f\x98\x80\n/""#),
        (r#"cjson.decode('{"a":1,"a":2}').a"#, "2"),
        ("cjson.decode('')", r#""user_script:1: Expected value but found T_END at character 1""#),
        ("cjson.decode('[1,2')", r#""user_script:1: Expected comma or array end but found T_END at character 5""#),
        ("cjson.decode('[1 2]')", r#""user_script:1: Expected comma or array end but found T_NUMBER at character 4""#),
        ("cjson.decode('[,]')", r#""user_script:1: Expected value but found T_COMMA at character 2""#),
        ("cjson.decode('{1:2}')", r#""user_script:1: Expected object key string but found T_NUMBER at character 2""#),
        ("cjson.decode('{\"a\" 2}')", r#""user_script:1: Expected colon but found T_NUMBER at character 6""#),
        (
            "cjson.decode('{\"a\":2 \"b\"}')",
            r#""user_script:1: Expected comma or object end but found T_STRING at character 8""#,
        ),
        ("cjson.decode('1 2')", r#""user_script:1: Expected the end but found T_NUMBER at character 3""#),
        ("cjson.decode('nul')", r#""user_script:1: Expected value but found invalid token at character 1""#),
        ("cjson.decode('-x')", r#""user_script:1: Expected value but found invalid number at character 1""#),
        (
            r#"cjson.decode('"a')"#,
            r#""user_script:1: Expected value but found unexpected end of string at character 3""#,
        ),
        (r#"cjson.decode('"\\q"')"#, r#""user_script:1: Expected value but found invalid escape code at character 2""#),
        (
            r#"cjson.decode('"\\ud800"')"#,
            r#""user_script:1: Expected value but found invalid unicode escape code at character 2""#,
        ),
        (r#"cjson.decode('\0\0')"#, r#""user_script:1: JSON parser does not support UTF-16 or UTF-32""#),
        ("cjson.decode({})", r#""user_script:1: bad argument #1 to 'decode' (string expected, got table)""#),
    ]);
}

#[test]
fn json_has_options() {
    check(&[
        ("{cjson.encode_sparse_array()}", "[(nil) 2 10]"),
        ("{cjson.encode_sparse_array(true, 1, 3)}", "[1 1 3]"),
        ("cjson.encode({[4]=1})", r#""{\"4\":1}""#),
        ("{cjson.encode_sparse_array('off', 0)}", "[(nil) 0 3]"),
        ("#cjson.encode({[1000]=1})", "4998"),
        (
            "cjson.encode_sparse_array(1,2,3,4)",
            r#""user_script:1: bad argument #4 to 'encode_sparse_array' (found too many arguments)""#,
        ),
        (
            "cjson.encode_sparse_array('maybe')",
            r#""user_script:1: bad argument #1 to 'encode_sparse_array' (invalid option 'maybe')""#,
        ),
        (
            "cjson.encode_max_depth(0)",
            r#""user_script:1: bad argument #1 to 'encode_max_depth' (expected integer between 1 and 2147483647)""#,
        ),
        (
            "cjson.encode_number_precision(15)",
            r#""user_script:1: bad argument #1 to 'encode_number_precision' (expected integer between 1 and 14)""#,
        ),
        ("cjson.encode_number_precision(3)", "3"),
        ("cjson.encode(1/3)", r#""0.333""#),
        ("cjson.encode_max_depth(2)", "2"),
        ("cjson.encode({{{}}})", r#""user_script:1: Cannot serialise, excessive nesting (3)""#),
        ("cjson.decode_max_depth(2)", "2"),
        ("cjson.decode('[[[]]]')", r#""user_script:1: Found too many nested data structures (3) at character 3""#),
        ("cjson.encode_invalid_numbers()", "(nil)"),
        ("cjson.encode_invalid_numbers('null')", r#""null""#),
        ("cjson.encode({0/0,1/0})", r#""[null,null]""#),
        ("cjson.encode_invalid_numbers(true)", "1"),
        ("cjson.encode({0/0,-1/0})", r#""[nan,-inf]""#),
        ("cjson.decode_invalid_numbers(false)", "(nil)"),
        ("cjson.decode('0x1')", r#""user_script:1: Expected value but found invalid number at character 1""#),
        ("cjson.decode('01')", r#""user_script:1: Expected value but found invalid number at character 1""#),
        ("cjson.decode('inf')", r#""user_script:1: Expected value but found invalid token at character 1""#),
        ("cjson.encode_keep_buffer(false)", "(nil)"),
        ("cjson.new().encode_max_depth()", "1000"),
        ("cjson.new().encode({1})", r#""[1]""#),
        ("cjson._NAME .. cjson._VERSION", r#""cjson2.1.0""#),
    ]);
}

#[test]
fn json_goes_deep_without_a_stack() {
    let mut talk = Talk::new();
    let begin = "cjson.decode_max_depth(2147483647) cjson.encode_max_depth(2147483647) ";
    let script = format!(
        "{begin} local s = string.rep('[', 3999) .. '1' .. string.rep(']', 3999) return cjson.encode(cjson.decode(s)) == s"
    );
    assert_eq!(eval(&mut talk, &script), "1");
    let script = format!("{begin} return select(2, pcall(cjson.decode, string.rep('[', 100000)))");
    assert_eq!(eval(&mut talk, &script), r#""Found too many nested data structures (4001) at character 4001""#);
    let script = format!("{begin} local t = {{}} t[1] = t return select(2, pcall(cjson.encode, t))");
    assert_eq!(eval(&mut talk, &script), r#""Cannot serialise, excessive nesting (4001)""#);
}

#[test]
fn message_pack_is_written() {
    check(&[
        (
            "cmsgpack.pack(0,127,128,255,256,65535,65536,4294967295,4294967296)",
            r#""\x00\x7f\xcc\x80\xcc\xff\xcd\x01\x00\xcd\xff\xff\xce\x00\x01\x00\x00\xce\xff\xff\xff\xff\xcf\x00\x00\x00\x01\x00\x00\x00\x00""#,
        ),
        (
            "cmsgpack.pack(-1,-32,-33,-128,-129,-32768,-32769,-2147483648,-2147483649)",
            r#""\xff\xe0\xd0\xdf\xd0\x80\xd1\xff\x7f\xd1\x80\x00\xd2\xff\xff\x7f\xff\xd2\x80\x00\x00\x00\xd3\xff\xff\xff\xff\x7f\xff\xff\xff""#,
        ),
        ("cmsgpack.pack(0.5, 0.1, 1/0)", r#""\xca?\x00\x00\x00\xcb?\xb9\x99\x99\x99\x99\x99\x9a\xca\x7f\x80\x00\x00""#),
        ("cmsgpack.pack(nil, true, false, pcall)", r#""\xc0\xc3\xc2\xc0""#),
        (
            "cmsgpack.pack('ab', {}, {1,{2}}, {a=1}, {[2]=1})",
            r#""\xa2ab\x90\x92\x01\x91\x02\x81\xa1a\x01\x81\x02\x01""#,
        ),
        ("cmsgpack.pack(string.rep('x',32)):sub(1,3)", r#""\xd9 x""#),
        ("cmsgpack.pack(string.rep('x',256)):sub(1,4)", r#""\xda\x01\x00x""#),
        ("cmsgpack.pack(string.rep('x',65536)):sub(1,6)", r#""\xdb\x00\x01\x00\x00x""#),
        ("cmsgpack.pack()", r#""user_script:1: bad argument #0 to 'pack' (MessagePack pack needs input.)""#),
    ]);
    let mut talk = Talk::new();
    let script = "local t = {} for i = 1, 70000 do t[i] = 0 end local s = cmsgpack.pack(t) return {s:sub(1,5), #s}";
    assert_eq!(eval(&mut talk, script), r#"["\xdd\x00\x01\x11p" 70005]"#);
    let script = "local t = {} t[1] = t return cmsgpack.pack(t)";
    assert_eq!(eval(&mut talk, script), format!("\"{}\\xc0\"", "\\x91".repeat(16)));
}

#[test]
fn message_pack_is_read() {
    check(&[
        (
            r"{cmsgpack.unpack('\1\255\204\255\205\255\255\206\1\0\0\0\208\128\209\255\0\210\255\0\0\0')}",
            "[1 -1 255 65535 16777216 -128 -256 -16777216]",
        ),
        (r"cmsgpack.unpack('\207\255\255\255\255\255\255\255\255')", "-1"),
        (r"tostring(cmsgpack.unpack('\202\63\0\0\0'))", r#""0.5""#),
        (r"cmsgpack.unpack('\147\1\146\2\3\161x')", r#"[1 [2 3] "x"]"#),
        (r"cmsgpack.unpack('\129\161a\220\0\1\7').a[1]", "7"),
        (r"cmsgpack.unpack('\217\2ab')", r#""ab""#),
        (r"#{cmsgpack.unpack('')}", "0"),
        (r"{cmsgpack.unpack_one('\1\2')}", "[1 1]"),
        (r"{cmsgpack.unpack_one('\1\2', 1)}", "[-1 2]"),
        (r"{cmsgpack.unpack_limit('\1\2\3', 2)}", "[2 1 2]"),
        (r"{cmsgpack.unpack_limit('\1\2\3', 0, 0)}", "[1 2 3]"),
        (r"{cmsgpack.unpack_limit('\1\2\3', 0, 1)}", "[1]"),
        (r"cmsgpack.unpack_one('\1', 2)", r#""user_script:1: Start offset 2 greater than input length 1.""#),
        (
            r"cmsgpack.unpack_one('\1', -2)",
            r#""user_script:1: Invalid request to unpack with offset of -2 and limit of 1.""#,
        ),
        (
            r"cmsgpack.unpack_limit('\1')",
            r#""user_script:1: bad argument #2 to 'unpack_limit' (number expected, got no value)""#,
        ),
        (r"cmsgpack.unpack('\217\9ab')", r#""user_script:1: Missing bytes in input.""#),
        (r"cmsgpack.unpack('\221\255\255\255\255\1')", r#""user_script:1: Missing bytes in input.""#),
        (r"cmsgpack.unpack('\193')", r#""user_script:1: Bad data format in input.""#),
        (r"cmsgpack.unpack('\129\192\1')", r#""table index is nil""#),
        (r"cmsgpack.unpack('\129\203\255\248\0\0\0\0\0\0\1')", r#""table index is NaN""#),
        (r"select('#', cmsgpack.unpack(string.rep('\1', 7000)))", "7000"),
        (
            r"select(2, pcall(cmsgpack.unpack, string.rep('\145', 100000)))",
            r#""stack overflow (too many return values at once; use unpack_one or unpack_limit instead.)""#,
        ),
        ("cmsgpack._NAME .. cmsgpack._VERSION", r#""cmsgpacklua-cmsgpack 0.4.0""#),
    ]);
}

#[test]
fn bits() {
    check(&[
        ("bit.tobit(0xffffffff)", "-1"),
        ("bit.band(0xff, 0x0f, 0x3)", "3"),
        ("bit.bor(1, 2, 4)", "7"),
        ("bit.bxor(0xa5a5f0f0, 0xaa55ff00)", "267390960"),
        ("bit.lshift(1, 31)", "-2147483648"),
        ("bit.rshift(-1, 28)", "15"),
        ("bit.arshift(-256, 8)", "-1"),
        ("bit.rol(0x12345678, 12)", "1164411171"),
        ("bit.ror(0x12345678, 12)", "1736516421"),
        ("bit.bswap(0x12345678)", "2018915346"),
        ("bit.tohex(-1)", r#""ffffffff""#),
        ("bit.tohex(0xabcd, -4)", r#""ABCD""#),
        ("bit.band()", r#""user_script:1: bad argument #1 to 'band' (number expected, got no value)""#),
        ("bit.bnot('x')", r#""user_script:1: bad argument #1 to 'bnot' (number expected, got string)""#),
    ]);
}

#[test]
fn structs() {
    check(&[
        ("struct.pack('>hI2bs', 1, 2, -1, 'ab')", r#""\x00\x01\x00\x02\xffab\x00""#),
        ("{struct.unpack('<i4>I2c0', struct.pack('<i4>I2c0', -2, 3, 'abc'))}", r#"[-2 "abc" 10]"#),
        ("{struct.unpack('>s', 'ab\\0cd')}", r#"["ab" 4]"#),
        ("tostring(struct.unpack('>d', struct.pack('>d', 0.1)))", r#""0.1""#),
        ("struct.size('!8bd')", "16"),
        ("struct.size('s')", r#""user_script:1: bad argument #1 to 'size' (option 's' has no fixed size)""#),
        ("struct.pack('I33', 1)", r#""user_script:1: integral size 33 is larger than limit of 32""#),
        ("struct.pack('!3i', 1)", r#""user_script:1: alignment 3 is not a power of 2""#),
        ("struct.pack('y', 1)", r#""user_script:1: bad argument #1 to 'pack' (invalid format option 'y')""#),
        ("struct.unpack('>I4', 'ab')", r#""user_script:1: bad argument #2 to 'unpack' (data string too short)""#),
        ("struct.unpack('s', 'ab')", r#""user_script:1: unfinished string in data""#),
        ("struct.unpack('c99999999999', 'ab')", r#""user_script:1: integral size overflow""#),
        (
            "struct.unpack('>I4', 'abcd', 0)",
            r#""user_script:1: bad argument #3 to 'unpack' (offset must be 1 or greater)""#,
        ),
    ]);
}
