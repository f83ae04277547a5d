//! Bits of strings, and integers in them. Most of what is expected was taken from Valkey 8.1.

use super::check;

const SINGLE_BITS: &str = r#"
    > SETBIT a 7 1
    0
    > GET a
    "\x01"
    > SETBIT a 7 1
    1
    > SETBIT a 7 0
    1
    > SETBIT a 100 1
    0
    > STRLEN a
    13
    > GETBIT a 100
    1
    > GETBIT a 99
    0
    > GETBIT a 100000
    0
    > GETBIT nosuch 5
    0
    > SETBIT a x 1
    (error) ERR bit offset is not an integer or out of range
    > SETBIT a -1 1
    (error) ERR bit offset is not an integer or out of range
    > SETBIT a 4294967296 1
    (error) ERR bit offset is not an integer or out of range
    > GETBIT a 4294967296
    (error) ERR bit offset is not an integer or out of range
    > GETBIT a 4294967295
    0
    > SETBIT a 1 2
    (error) ERR bit is not an integer or out of range
    > SETBIT a 1 x
    (error) ERR bit is not an integer or out of range
    > SETBIT a 1 -1
    (error) ERR bit is not an integer or out of range
    > GETBIT a x
    (error) ERR bit offset is not an integer or out of range
    > SETBIT empty 0 0
    0
    > EXISTS empty
    1
    > STRLEN empty
    1
    > SET n 123
    OK
    > GETBIT n 2
    1
    > GETBIT n 3
    1
    > SETBIT n 3 0
    1
    > GET n
    "!23"
    > OBJECT ENCODING n
    "raw"
    > SADD s x
    1
    > SETBIT s 1 1
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > GETBIT s 1
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > BITCOUNT s
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > BITPOS s 1
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > BITFIELD s GET u8 0
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > BITFIELD s SET u8 0 1
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > BITFIELD_RO s GET u8 0
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > BITOP AND d s
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > BITOP AND d a s
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > SETBIT a 1
    (error) ERR wrong number of arguments for 'setbit' command
    > GETBIT a
    (error) ERR wrong number of arguments for 'getbit' command
    > BITOP AND d
    (error) ERR wrong number of arguments for 'bitop' command
    > BITPOS a
    (error) ERR wrong number of arguments for 'bitpos' command
    > BITCOUNT
    (error) ERR wrong number of arguments for 'bitcount' command
"#;

#[test]
fn single_bits() {
    check(SINGLE_BITS);
}

const COUNTING: &str = r#"
    > SET f foobar
    OK
    > BITCOUNT f
    26
    > BITCOUNT f 0 0
    4
    > BITCOUNT f 1 1
    6
    > BITCOUNT f 0
    26
    > BITCOUNT f 1
    22
    > BITCOUNT f -2
    7
    > BITCOUNT f 0 -5
    10
    > BITCOUNT f 5 30
    4
    > BITCOUNT f 5 30 BYTE
    4
    > BITCOUNT f 5 30 BIT
    17
    > BITCOUNT f -5 -30 BIT
    0
    > BITCOUNT f -30 -5 bit
    14
    > BITCOUNT f 3 3 BIT
    0
    > BITCOUNT f 1 1 BIT
    1
    > BITCOUNT f 0 -1 BIT
    26
    > BITCOUNT f -1 -2
    0
    > BITCOUNT f -100 -50
    4
    > BITCOUNT f -50 -100
    0
    > BITCOUNT f 10 20
    0
    > BITCOUNT f 3 2
    0
    > BITCOUNT f x
    (error) ERR value is not an integer or out of range
    > BITCOUNT f 0 x
    (error) ERR value is not an integer or out of range
    > BITCOUNT f x x BIT
    (error) ERR value is not an integer or out of range
    > BITCOUNT f 0 1 FOO
    (error) ERR syntax error
    > BITCOUNT f x 1 FOO
    (error) ERR value is not an integer or out of range
    > BITCOUNT f 0 x FOO
    (error) ERR syntax error
    > BITCOUNT f 0 1 BIT x
    (error) ERR syntax error
    > BITCOUNT nosuch
    0
    > BITCOUNT nosuch 0 -1
    0
    > BITCOUNT nosuch 0 -1 BIT
    0
    > BITCOUNT f 9223372036854775807 -9223372036854775808
    0
    > BITCOUNT f -9223372036854775808 9223372036854775807 BIT
    26
    > SET e ""
    OK
    > BITCOUNT e
    0
    > BITCOUNT e 0 -1
    0
    > BITCOUNT e 0 -1 BIT
    0
"#;

#[test]
fn counting() {
    check(COUNTING);
}

const FINDING: &str = r#"
    > SET p "\xff\xf0\x00"
    OK
    > BITPOS p 0
    12
    > BITPOS p 1
    0
    > BITPOS p 1 2
    -1
    > BITPOS p 1 1
    8
    > BITPOS p 0 0 0
    -1
    > BITPOS p 0 0 -1
    12
    > BITPOS p 0 1
    12
    > BITPOS p 1 7 15 BIT
    7
    > BITPOS p 0 7 15 BIT
    12
    > BITPOS p 0 7 11 BIT
    -1
    > BITPOS p 0 7 12 BIT
    12
    > BITPOS p 1 12 -1 BIT
    -1
    > BITPOS p 1 -13 -1 BIT
    11
    > BITPOS p 0 3 3 BIT
    -1
    > BITPOS p 1 3 3 BIT
    3
    > BITPOS p 1 0 2 BYTE
    0
    > BITPOS p 1 5 2
    -1
    > BITPOS p 0 5
    -1
    > BITPOS p 1 -100 -50
    0
    > BITPOS p 1 -50 -100
    0
    > SET q "\xff\xff"
    OK
    > BITPOS q 0
    16
    > BITPOS q 0 0
    16
    > BITPOS q 0 1
    16
    > BITPOS q 0 0 -1
    -1
    > BITPOS q 0 2
    -1
    > BITPOS q 0 0 -1 BIT
    -1
    > BITPOS q 1 0 -1 BIT
    0
    > SET z "\x00\x00"
    OK
    > BITPOS z 1
    -1
    > BITPOS z 1 0
    -1
    > BITPOS z 0
    0
    > BITPOS nosuch 0
    0
    > BITPOS nosuch 1
    -1
    > BITPOS nosuch 0 5
    0
    > BITPOS nosuch 0 5 7 BIT
    0
    > SET e ""
    OK
    > BITPOS e 0
    -1
    > BITPOS e 1
    -1
    > BITPOS e 0 0
    -1
    > BITPOS e 0 0 -1
    -1
    > BITPOS p 2
    (error) ERR The bit argument must be 1 or 0.
    > BITPOS p x
    (error) ERR value is not an integer or out of range
    > BITPOS p 1 x
    (error) ERR value is not an integer or out of range
    > BITPOS p 1 0 x
    (error) ERR value is not an integer or out of range
    > BITPOS p 1 0 1 FOO
    (error) ERR syntax error
    > BITPOS p 1 0 x FOO
    (error) ERR syntax error
    > BITPOS p 1 0 1 BIT x
    (error) ERR syntax error
    > BITPOS p 2 0 1 BIT x
    (error) ERR The bit argument must be 1 or 0.
    > BITPOS p 1 9223372036854775807 -9223372036854775808 BIT
    -1
"#;

#[test]
fn finding() {
    check(FINDING);
}

const COMBINING: &str = r#"
    > SET a "\xff\x0f\xaa"
    OK
    > SET b "\x0f\xf0"
    OK
    > SET c "\x55"
    OK
    > BITOP AND d a b
    3
    > GET d
    "\x0f\x00\x00"
    > BITOP OR d a b
    3
    > GET d
    "\xff\xff\xaa"
    > BITOP XOR d a b
    3
    > GET d
    "\xf0\xff\xaa"
    > BITOP NOT d a
    3
    > GET d
    "\x00\xf0U"
    > BITOP AND d a b c
    3
    > GET d
    "\x05\x00\x00"
    > BITOP or d c b a
    3
    > GET d
    "\xff\xff\xaa"
    > BITOP XOR d a a
    3
    > GET d
    "\x00\x00\x00"
    > BITOP AND d a nosuch
    3
    > GET d
    "\x00\x00\x00"
    > BITOP OR d nosuch a
    3
    > GET d
    "\xff\x0f\xaa"
    > BITOP XOR d nosuch b a
    3
    > GET d
    "\xf0\xff\xaa"
    > BITOP AND d nosuch b
    2
    > GET d
    "\x00\x00"
    > BITOP NOT d nosuch
    0
    > EXISTS d
    0
    > BITOP AND d a
    3
    > GET d
    "\xff\x0f\xaa"
    > BITOP NOT d a b
    (error) ERR BITOP NOT must be called with a single source key.
    > BITOP FOO d a b
    (error) ERR syntax error
    > BITOP DIFF d a b
    (error) ERR syntax error
    > BITOP NOT a a
    3
    > GET a
    "\x00\xf0U"
    > SET t 1 EX 100
    OK
    > BITOP OR t a
    3
    > TTL t
    -1
    > BITOP AND t nosuch
    0
    > EXISTS t
    0
    > SADD s x
    1
    > BITOP OR s a
    3
    > TYPE s
    string
"#;

#[test]
fn combining() {
    check(COMBINING);
}

const INTEGERS_OF_ANY_WIDTH: &str = r#"
    > BITFIELD a SET u8 0 255 GET u8 0 GET i8 0
    [0 255 -1]
    > BITFIELD a INCRBY u8 0 1
    [0]
    > BITFIELD a INCRBY u8 0 -1
    [255]
    > BITFIELD a OVERFLOW SAT INCRBY u8 0 1
    [255]
    > BITFIELD a OVERFLOW SAT INCRBY u8 0 -300
    [0]
    > BITFIELD a OVERFLOW FAIL INCRBY u8 0 -1
    [(nil)]
    > BITFIELD a OVERFLOW FAIL SET u8 0 256 GET u8 0
    [(nil) 0]
    > BITFIELD a OVERFLOW SAT SET u8 0 256 GET u8 0
    [0 255]
    > BITFIELD a OVERFLOW SAT SET u8 0 -1 GET u8 0
    [255 255]
    > BITFIELD a SET u8 0 -1 GET u8 0
    [255 255]
    > BITFIELD a SET u8 0 257 GET u8 0
    [255 1]
    > BITFIELD a SET i8 0 127 INCRBY i8 0 1
    [1 -128]
    > BITFIELD a OVERFLOW SAT INCRBY i8 0 -100 INCRBY i8 0 -100
    [-128 -128]
    > BITFIELD a OVERFLOW SAT INCRBY i8 0 300
    [127]
    > BITFIELD a OVERFLOW FAIL INCRBY i8 0 1 OVERFLOW WRAP INCRBY i8 0 1
    [(nil) -128]
    > BITFIELD a SET i64 3 9223372036854775807 INCRBY i64 3 1
    [0 -9223372036854775808]
    > BITFIELD a GET i64 3 GET u63 4 GET i64 0
    [-9223372036854775808 0 -8070450532247928832]
    > BITFIELD a OVERFLOW SAT INCRBY i64 3 -5
    [-9223372036854775808]
    > BITFIELD a SET u63 1 9223372036854775807 INCRBY u63 1 1
    [1152921504606846976 0]
    > BITFIELD a SET u63 1 -1 GET u63 1
    [0 9223372036854775807]
    > BITFIELD a OVERFLOW SAT SET u63 1 -9223372036854775808 GET u63 1
    [9223372036854775807 9223372036854775807]
    > BITFIELD a SET u1 0 1 SET u1 1 1 SET u1 2 2 GET u3 0
    [1 1 1 6]
    > BITFIELD a SET i1 5 -1 GET i1 5 GET i1 6
    [-1 -1 -1]
    > BITFIELD a SET u5 #3 17 GET u5 #3 GET u5 15
    [31 17 17]
    > BITFIELD a GET u8 1000
    [0]
    > BITFIELD a GET u8 #0 GET u8 #1
    [223 255]
    > GET a
    "\xdf\xff\x1f\xff\xff\xff\xff\xff\x00"
    > STRLEN a
    9
    > BITFIELD nosuch GET u8 0 GET i16 #5
    [0 0]
    > EXISTS nosuch
    0
    > BITFIELD nosuch
    []
    > BITFIELD new OVERFLOW FAIL SET u8 8 256
    [(nil)]
    > EXISTS new
    1
    > STRLEN new
    2
    > BITFIELD new GET u8 0 SET u16 20 5 GET u16 20
    [0 0 5]
    > STRLEN new
    5
    > BITFIELD new SET u4 70 0
    [0]
    > STRLEN new
    10
    > BITFIELD_RO a GET u8 0 GET u8 8
    [223 255]
    > BITFIELD_RO a SET u8 0 1
    (error) ERR BITFIELD_RO only supports the GET subcommand
    > BITFIELD_RO a INCRBY u8 0 1
    (error) ERR BITFIELD_RO only supports the GET subcommand
    > BITFIELD_RO nosuch GET u8 0
    [0]
    > BITFIELD_RO nosuch
    []
    > BITFIELD a GET u64 0
    (error) ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.
    > BITFIELD a GET i65 0
    (error) ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.
    > BITFIELD a GET u0 0
    (error) ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.
    > BITFIELD a GET x8 0
    (error) ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.
    > BITFIELD a GET "" 0
    (error) ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.
    > BITFIELD a GET i 0
    (error) ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.
    > BITFIELD a GET U8 0
    (error) ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.
    > BITFIELD a GET u8 x
    (error) ERR bit offset is not an integer or out of range
    > BITFIELD a GET u8 -1
    (error) ERR bit offset is not an integer or out of range
    > BITFIELD a GET u8 #x
    (error) ERR bit offset is not an integer or out of range
    > BITFIELD a GET u8 #-1
    (error) ERR bit offset is not an integer or out of range
    > BITFIELD a GET u8 4294967296
    (error) ERR bit offset is not an integer or out of range
    > BITFIELD a GET u8 #536870912
    (error) ERR bit offset is not an integer or out of range
    > BITFIELD a SET u8 0 x
    (error) ERR value is not an integer or out of range
    > BITFIELD a SET u8 0
    (error) ERR syntax error
    > BITFIELD a GET u8
    (error) ERR syntax error
    > BITFIELD a FOO u8 0
    (error) ERR syntax error
    > BITFIELD a OVERFLOW
    (error) ERR syntax error
    > BITFIELD a OVERFLOW foo
    (error) ERR Invalid OVERFLOW type specified
    > BITFIELD a OVERFLOW foo GET u8 0
    (error) ERR Invalid OVERFLOW type specified
    > BITFIELD a SET u64 0 x
    (error) ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.
    > SET n 12
    OK
    > BITFIELD n GET u8 0 INCRBY u8 0 1
    [49 50]
    > GET n
    "22"
"#;

#[test]
fn integers_of_any_width() {
    check(INTEGERS_OF_ANY_WIDTH);
}
