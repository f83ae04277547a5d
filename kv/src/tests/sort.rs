//! SORT. Most of what is expected was taken from Valkey 8.1.

use super::check;

const ELEMENTS_IN_ORDER: &str = r#"
    > SADD s 3 1 2 10
    4
    > SORT s
    ["1" "2" "3" "10"]
    > SORT s DESC
    ["10" "3" "2" "1"]
    > SORT s ALPHA
    ["1" "10" "2" "3"]
    > SORT s ALPHA DESC
    ["3" "2" "10" "1"]
    > SORT s DESC ASC
    ["1" "2" "3" "10"]
    > SORT s LIMIT 1 2
    ["2" "3"]
    > SORT s LIMIT 1 -1
    ["2" "3" "10"]
    > SORT s LIMIT -5 2
    ["1" "2"]
    > SORT s LIMIT 9 2
    []
    > SORT s LIMIT 0 0
    []
    > SORT s LIMIT x 2
    (error) ERR value is not an integer or out of range
    > SORT s LIMIT 0 x
    (error) ERR value is not an integer or out of range
    > SORT s LIMIT 0
    (error) ERR syntax error
    > MSET w1 30 w2 20 w3 10 w10 0 o1 a o2 b o3 c
    OK
    > SORT s BY w*
    ["10" "3" "2" "1"]
    > SORT s BY w* DESC
    ["1" "2" "3" "10"]
    > SORT s BY o* ALPHA
    ["10" "1" "2" "3"]
    > SORT s BY o* ALPHA DESC
    ["3" "2" "1" "10"]
    > SORT s BY o*
    (error) ERR One or more scores can't be converted into double
    > SORT s BY nosuch*
    ["1" "10" "2" "3"]
    > SORT s BY nosuch* ALPHA LIMIT 0 0
    []
    > SORT s BY w* GET o* GET # GET nosuch*
    [(nil) "10" (nil) "c" "3" (nil) "b" "2" (nil) "a" "1" (nil)]
    > SORT s GET *
    [(nil) (nil) (nil) (nil)]
    > HSET h1 f 5 g x
    2
    > HSET h2 f 4 g y
    2
    > HSET h3 f 7
    1
    > HSET h10 f 1 g z
    2
    > SORT s BY h*->f
    ["10" "2" "1" "3"]
    > SORT s BY h*->f GET # GET h*->g GET h*->f
    ["10" "z" "1" "2" "y" "4" "1" "x" "5" "3" (nil) "7"]
    > SORT s BY h*->nosuch
    ["1" "10" "2" "3"]
    > SORT s GET h*-> GET h*
    [(nil) (nil) (nil) (nil) (nil) (nil) (nil) (nil)]
    > SORT s STORE d
    4
    > TYPE d
    list
    > OBJECT ENCODING d
    "listpack"
    > SORT d DESC
    ["10" "3" "2" "1"]
    > SORT d BY nosort
    ["1" "2" "3" "10"]
    > SORT d BY nosort DESC
    ["10" "3" "2" "1"]
    > SORT d BY nosort LIMIT 1 2
    ["2" "3"]
    > SORT d BY nosort DESC LIMIT 1 2
    ["3" "2"]
    > SORT s BY nosort STORE d
    4
    > SORT d BY nosort
    ["1" "10" "2" "3"]
    > SORT s BY nosort DESC LIMIT 0 3 STORE d
    3
    > SORT d BY nosort
    ["3" "2" "10"]
    > SORT s BY w* GET o* STORE d
    4
    > SORT d ALPHA
    ["" "a" "b" "c"]
    > SORT d
    (error) ERR One or more scores can't be converted into double
    > SORT d BY o* GET #
    ["" "a" "b" "c"]
    > SORT nosuch
    []
    > SORT nosuch STORE d
    0
    > EXISTS d
    0
    > SORT w1
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > SORT h1
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > SORT_RO s
    ["1" "2" "3" "10"]
    > SORT_RO s DESC LIMIT 0 2 GET #
    ["10" "3"]
    > SORT_RO s STORE d
    (error) ERR syntax error
    > SORT_RO h1
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > SORT s FOO
    (error) ERR syntax error
    > SORT s BY
    (error) ERR syntax error
    > SORT s GET
    (error) ERR syntax error
    > SORT s STORE
    (error) ERR syntax error
    > SADD t a b ""
    3
    > SORT t
    (error) ERR One or more scores can't be converted into double
    > SORT t ALPHA
    ["" "a" "b"]
    > SORT t ALPHA STORE d
    3
    > SORT d BY nosort
    ["" "a" "b"]
    > SADD n 1.5 -2 7 1e3 inf
    5
    > SORT n
    ["-2" "1.5" "7" "1e3" "inf"]
    > SADD n " 7"
    1
    > SORT n
    (error) ERR One or more scores can't be converted into double
    > SREM n " 7"
    1
    > SADD n 1e400
    1
    > SORT n
    (error) ERR One or more scores can't be converted into double
    > SADD n2 nan
    1
    > SORT n2
    (error) ERR One or more scores can't be converted into double
    > SORT
    (error) ERR wrong number of arguments for 'sort' command
"#;

#[test]
fn elements_in_order() {
    check(ELEMENTS_IN_ORDER);
}

#[test]
fn patterns_without_a_star() {
    check(
        r#"
        > SADD s 2 1
        2
        > SORT s GET constant
        [(nil) (nil)]
        > SORT s BY nosort GET # STORE s
        2
        > SORT s
        ["1" "2"]
        "#,
    );
}
