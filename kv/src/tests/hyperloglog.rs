//! Sketches of how many different elements were seen. Most of what is expected was taken from Valkey 8.1.

use super::check;

const ELEMENTS_ARE_COUNTED: &str = r#"
    > PFADD h
    1
    > GET h
    "HYLL\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80\x7f\xff"
    > PFCOUNT h
    0
    > GET h
    "HYLL\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x7f\xff"
    > PFADD h
    0
    > PFADD h a b c
    1
    > PFADD h a
    0
    > PFADD h d
    1
    > PFCOUNT h
    4
    > GET h
    "HYLL\x01\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\\{\x80Dv\x80P\xb1\x84K\xfb\x80BZ"
    > OBJECT ENCODING h
    "raw"
    > PFADD nosuch2
    1
    > EXISTS nosuch2
    1
    > PFCOUNT nosuch
    0
    > PFCOUNT nosuch h
    4
    > PFADD g c d e f
    1
    > PFCOUNT h g
    6
    > PFMERGE m h g
    OK
    > PFCOUNT m
    6
    > PFDEBUG DECODE m
    "Z:1646 v:1,1 Z:5645 v:1,1 Z:1143 v:1,1 Z:4274 v:2,1 Z:2445 v:1,1 Z:622 v:1,1 Z:603"
    > GET m
    "HYLL\x01\x00\x00\x00\x06\x00\x00\x00\x00\x00\x00\x00Fm\x80V\x0c\x80Dv\x80P\xb1\x84I\x8c\x80Bm\x80BZ"
    > PFMERGE m
    OK
    > PFMERGE empty
    OK
    > PFCOUNT empty
    0
    > PFDEBUG SIMD on
    disabled
    > PFDEBUG simd OFF
    disabled
    > PFDEBUG SIMD m
    (error) ERR Argument must be ON or OFF
    > PFDEBUG DECODE empty
    "Z:16384"
    > PFDEBUG ENCODING m
    sparse
    > PFDEBUG TODENSE m
    1
    > PFDEBUG TODENSE m
    0
    > PFDEBUG ENCODING m
    dense
    > PFDEBUG DECODE m
    (error) ERR HLL encoding is not sparse
    > PFCOUNT m
    6
    > PFADD m new
    1
    > PFADD m new
    0
    > PFCOUNT m
    7
    > PFMERGE h m
    OK
    > PFDEBUG ENCODING h
    dense
    > PFCOUNT h
    7
    > STRLEN h
    12304
    > PFSELFTEST
    OK
"#;

#[test]
fn elements_are_counted() {
    check(ELEMENTS_ARE_COUNTED);
}

const WHAT_IS_REFUSED: &str = r#"
    > SET s x
    OK
    > SADD set x
    1
    > PFADD s a
    (error) WRONGTYPE Key is not a valid HyperLogLog string value.
    > PFCOUNT s
    (error) WRONGTYPE Key is not a valid HyperLogLog string value.
    > PFCOUNT s s
    (error) WRONGTYPE Key is not a valid HyperLogLog string value.
    > PFMERGE s s
    (error) WRONGTYPE Key is not a valid HyperLogLog string value.
    > PFMERGE d s
    (error) WRONGTYPE Key is not a valid HyperLogLog string value.
    > PFDEBUG ENCODING s
    (error) WRONGTYPE Key is not a valid HyperLogLog string value.
    > PFADD set a
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > PFCOUNT set
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > PFMERGE set
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > PFDEBUG ENCODING set
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > PFDEBUG ENCODING nosuch
    (error) ERR The specified key does not exist
    > PFADD h a
    1
    > PFDEBUG NOSUCH h
    (error) ERR Unknown PFDEBUG subcommand 'NOSUCH'
    > PFDEBUG ENCODING
    (error) ERR wrong number of arguments for 'pfdebug' command
    > PFDEBUG ENCODING h x
    (error) ERR wrong number of arguments for 'pfdebug' command
    > PFADD
    (error) ERR wrong number of arguments for 'pfadd' command
    > PFCOUNT
    (error) ERR wrong number of arguments for 'pfcount' command
    > PFMERGE
    (error) ERR wrong number of arguments for 'pfmerge' command
    > SETRANGE h 4 "\x02"
    21
    > PFADD h a
    (error) WRONGTYPE Key is not a valid HyperLogLog string value.
    > SETRANGE h 4 "\x00"
    21
    > PFADD h a
    (error) WRONGTYPE Key is not a valid HyperLogLog string value.
    > SETRANGE h 4 "\x01"
    21
    > PFCOUNT h
    1
    > SETRANGE h 15 "\x80"
    21
    > SETRANGE h 16 "\x00"
    21
    > PFCOUNT h
    (error) INVALIDOBJ Corrupted HLL object detected
    > PFMERGE d h
    (error) INVALIDOBJ Corrupted HLL object detected
    > PFDEBUG TODENSE h
    (error) INVALIDOBJ Corrupted HLL object detected
    > PFCOUNT h h
    (error) INVALIDOBJ Corrupted HLL object detected
    > SET n 12345678901234567
    OK
    > PFADD n a
    (error) WRONGTYPE Key is not a valid HyperLogLog string value.
"#;

#[test]
fn what_is_refused() {
    check(WHAT_IS_REFUSED);
}

#[test]
fn sketches_become_dense_when_they_are_told() {
    check(
        r#"
        > PFADD a x
        1
        > PFDEBUG ENCODING a
        sparse
        > CONFIG SET hll-sparse-max-bytes 21
        OK
        > PFADD a y
        1
        > PFDEBUG ENCODING a
        dense
        > PFADD b y
        1
        > PFDEBUG ENCODING b
        sparse
        > PFCOUNT a b
        2
    "#,
    );
}
