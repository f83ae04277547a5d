//! Commands for strings and numbers.

use super::argument::{KEY, block, double, integer, key, one_of, string, token, unix_time};
use super::flags::{access, flags};
use super::key::{at, counted};
use super::{Argument, Categories, Flags, Group, Search, Spec};

const fn command(name: &'static str, arity: i8, flags: Flags) -> Spec {
    Spec::new(Group::String, name, arity, flags).listed(Categories::STRING)
}

const PAIRS: Argument = block("data", &[KEY, string("value")]).multiple();

pub(super) static COMMANDS: &[Spec] = &[
    command("append", 3, flags![WRITE | DENYOOM | FAST])
        .keys(&[at(1, access![RW | INSERT])])
        .docs("2.0.0", "Adds bytes at the end of a string.", "O(1) amortized for short strings")
        .arguments(&[KEY, string("value")]),
    command("decr", 2, flags![WRITE | DENYOOM | FAST])
        .keys(&[at(1, access![RW | ACCESS | UPDATE])])
        .docs("1.0.0", "Takes one from an integer.", "O(1)")
        .arguments(&[KEY]),
    command("decrby", 3, flags![WRITE | DENYOOM | FAST])
        .keys(&[at(1, access![RW | ACCESS | UPDATE])])
        .docs("1.0.0", "Takes a number from an integer.", "O(1)")
        .arguments(&[KEY, integer("decrement")]),
    command("delifeq", 3, flags![WRITE | FAST])
        .keys(&[at(1, access![RM | DELETE])])
        .docs("9.0.0", "Deletes a key if it holds a value.", "O(1)")
        .arguments(&[KEY, string("value")]),
    command("get", 2, flags![READONLY | FAST])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("1.0.0", "Reads a string.", "O(1)")
        .arguments(&[KEY]),
    command("getdel", 2, flags![WRITE | FAST])
        .keys(&[at(1, access![RW | ACCESS | DELETE])])
        .docs("6.2.0", "Reads a string and deletes its key.", "O(1)")
        .arguments(&[KEY]),
    command("getex", -2, flags![WRITE | FAST])
        .keys(&[at(1, access![RW | ACCESS | UPDATE]).notes("It changes the expiry")])
        .docs("6.2.0", "Reads a string and changes when its key expires.", "O(1)")
        .arguments(&[
            KEY,
            one_of(
                "expiration",
                &[
                    integer("seconds").after("EX"),
                    integer("milliseconds").after("PX"),
                    unix_time("unix-time-seconds").after("EXAT"),
                    unix_time("unix-time-milliseconds").after("PXAT"),
                    token("PERSIST"),
                ],
            )
            .optional(),
        ]),
    command("getrange", 4, flags![READONLY])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("2.4.0", "Reads a part of a string.", "O(N) for N bytes returned")
        .arguments(&[KEY, integer("start"), integer("end")]),
    command("getset", 3, flags![WRITE | DENYOOM | FAST])
        .keys(&[at(1, access![RW | ACCESS | UPDATE])])
        .docs("1.0.0", "Sets a string and reads what it was.", "O(1)")
        .arguments(&[KEY, string("value")]),
    command("incr", 2, flags![WRITE | DENYOOM | FAST])
        .keys(&[at(1, access![RW | ACCESS | UPDATE])])
        .docs("1.0.0", "Adds one to an integer.", "O(1)")
        .arguments(&[KEY]),
    command("incrby", 3, flags![WRITE | DENYOOM | FAST])
        .keys(&[at(1, access![RW | ACCESS | UPDATE])])
        .docs("1.0.0", "Adds a number to an integer.", "O(1)")
        .arguments(&[KEY, integer("increment")]),
    command("incrbyfloat", 3, flags![WRITE | DENYOOM | FAST])
        .keys(&[at(1, access![RW | ACCESS | UPDATE])])
        .docs("2.6.0", "Adds to a floating point number.", "O(1)")
        .arguments(&[KEY, double("increment")]),
    command("lcs", -3, flags![READONLY])
        .keys(&[at(1, access![RO | ACCESS]).through(1)])
        .docs("7.0.0", "Finds the longest common subsequence of two strings.", "O(N*M) for strings of N and M bytes")
        .arguments(&[
            key("key1", 0),
            key("key2", 0),
            token("LEN").optional(),
            token("IDX").optional(),
            integer("min-match-len").after("MINMATCHLEN").optional(),
            token("WITHMATCHLEN").optional(),
        ]),
    command("mget", -2, flags![READONLY | FAST])
        .keys(&[at(1, access![RO | ACCESS]).through(-1)])
        .docs("1.0.0", "Reads several strings.", "O(N) for N keys")
        .tips(&["request_policy:multi_shard"])
        .arguments(&[KEY.multiple()]),
    command("mset", -3, flags![WRITE | DENYOOM])
        .keys(&[at(1, access![OW | UPDATE]).step(2)])
        .docs("1.0.1", "Sets several strings.", "O(N) for N keys")
        .tips(&["request_policy:multi_shard", "response_policy:all_succeeded"])
        .arguments(&[PAIRS]),
    command("msetex", -4, flags![WRITE | DENYOOM])
        .keys(&[counted(1, access![OW | UPDATE]).step(2)])
        .docs("9.1.0", "Sets several strings and when their keys expire.", "O(N) for N keys")
        .tips(&["request_policy:multi_shard", "response_policy:all_succeeded"])
        .arguments(&[
            integer("numkeys"),
            PAIRS,
            one_of("condition", &[token("NX"), token("XX")]).optional(),
            one_of(
                "expiration",
                &[
                    integer("seconds").after("EX"),
                    integer("milliseconds").after("PX"),
                    unix_time("unix-time-seconds").after("EXAT"),
                    unix_time("unix-time-milliseconds").after("PXAT"),
                    token("KEEPTTL"),
                ],
            )
            .optional(),
        ]),
    command("msetnx", -3, flags![WRITE | DENYOOM])
        .keys(&[at(1, access![OW | INSERT]).step(2)])
        .docs("1.0.1", "Sets several strings if none of their keys exists.", "O(N) for N keys")
        .arguments(&[PAIRS]),
    command("psetex", 4, flags![WRITE | DENYOOM])
        .keys(&[at(1, access![OW | UPDATE])])
        .docs("2.6.0", "Sets a string that expires after some milliseconds.", "O(1)")
        .arguments(&[KEY, integer("milliseconds"), string("value")]),
    command("set", -3, flags![WRITE | DENYOOM])
        .keys(&[at(1, access![RW | ACCESS | UPDATE | VARIABLE_FLAGS]).notes("It reads the old value only with `GET`")])
        .search(Search::Set)
        .docs("1.0.0", "Sets a string, whatever the key held.", "O(1)")
        .history(&[
            ("2.6.12", "`EX`, `PX`, `NX` and `XX`."),
            ("6.0.0", "`KEEPTTL`."),
            ("6.2.0", "`GET`, `EXAT` and `PXAT`."),
            ("7.0.0", "`NX` and `GET` in one call."),
            ("8.1.0", "`IFEQ`."),
        ])
        .arguments(&[
            KEY,
            string("value"),
            one_of(
                "condition",
                &[
                    token("NX").since("2.6.12"),
                    token("XX").since("2.6.12"),
                    string("comparison-value")
                        .after("IFEQ")
                        .summary("The value that the key must hold.")
                        .since("8.1.0"),
                ],
            )
            .optional(),
            token("GET").since("6.2.0").optional(),
            one_of(
                "expiration",
                &[
                    integer("seconds").after("EX").since("2.6.12"),
                    integer("milliseconds").after("PX").since("2.6.12"),
                    unix_time("unix-time-seconds").after("EXAT").since("6.2.0"),
                    unix_time("unix-time-milliseconds").after("PXAT").since("6.2.0"),
                    token("KEEPTTL").since("6.0.0"),
                ],
            )
            .optional(),
        ]),
    command("setex", 4, flags![WRITE | DENYOOM])
        .keys(&[at(1, access![OW | UPDATE])])
        .docs("2.0.0", "Sets a string that expires after some seconds.", "O(1)")
        .arguments(&[KEY, integer("seconds"), string("value")]),
    command("setnx", 3, flags![WRITE | DENYOOM | FAST])
        .keys(&[at(1, access![OW | INSERT])])
        .docs("1.0.0", "Sets a string if its key does not exist.", "O(1)")
        .arguments(&[KEY, string("value")]),
    command("setrange", 4, flags![WRITE | DENYOOM])
        .keys(&[at(1, access![RW | UPDATE])])
        .docs(
            "2.2.0",
            "Overwrites a part of a string, which grows where it is too short.",
            "O(1) for short values, O(M) for M bytes",
        )
        .arguments(&[KEY, integer("offset"), string("value")]),
    command("strlen", 2, flags![READONLY | FAST])
        .keys(&[at(1, access![RO])])
        .docs("2.2.0", "Measures a string.", "O(1)")
        .arguments(&[KEY]),
    command("substr", 4, flags![READONLY])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("1.0.0", "Reads a part of a string.", "O(N) for N bytes returned")
        .arguments(&[KEY, integer("start"), integer("end")]),
];
