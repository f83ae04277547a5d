//! Commands for hashes.

use super::argument::{KEY, block, double, integer, one_of, pattern, string, token, unix_time};
use super::flags::{access, flags};
use super::key::at;
use super::{Argument, Categories, Flags, Group, Spec};

const fn command(name: &'static str, arity: i8, flags: Flags) -> Spec {
    Spec::new(Group::Hash, name, arity, flags).listed(Categories::HASH)
}

const FIELDS: Argument = block("fields", &[integer("numfields").key(0), string("field").multiple()]).after("FIELDS");
const CONDITION: Argument =
    one_of("condition", &[token("NX"), token("XX"), token("GT"), token("LT")]).since("9.0.0").optional();
const PAIRS: Argument = block("data", &[string("field"), string("value")]).multiple();

pub(super) static COMMANDS: &[Spec] = &[
    command("hdel", -3, flags![WRITE | FAST])
        .keys(&[at(1, access![RW | DELETE])])
        .docs("2.0.0", "Deletes fields, and the hash with its last one.", "O(N) for N fields")
        .history(&[("2.4.0", "Several fields in one call.")])
        .arguments(&[KEY, string("field").multiple()]),
    command("hexists", 3, flags![READONLY | FAST])
        .keys(&[at(1, access![RO])])
        .docs("2.0.0", "Tells whether a hash has a field.", "O(1)")
        .arguments(&[KEY, string("field")]),
    command("hexpire", -6, flags![WRITE | FAST])
        .keys(&[at(1, access![RW | UPDATE])])
        .docs("9.0.0", "Lets fields expire after some seconds.", "O(N) for N fields")
        .arguments(&[
            KEY,
            integer("seconds"),
            one_of("condition", &[token("NX"), token("XX"), token("GT"), token("LT")]).optional(),
            block("fields", &[integer("numfields"), string("field").multiple()]).after("FIELDS"),
        ]),
    command("hexpireat", -6, flags![WRITE | FAST])
        .keys(&[at(1, access![RW | UPDATE])])
        .docs("9.0.0", "Lets fields expire at a time, in seconds.", "O(N) for N fields")
        .arguments(&[KEY, integer("unix-time-seconds"), CONDITION, FIELDS]),
    command("hexpiretime", -5, flags![READONLY | FAST])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("9.0.0", "Tells at which time fields expire, in seconds.", "O(N) for N fields")
        .arguments(&[KEY, FIELDS]),
    command("hget", 3, flags![READONLY | FAST])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("2.0.0", "Reads one field.", "O(1)")
        .arguments(&[KEY, string("field")]),
    command("hgetall", 2, flags![READONLY])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("2.0.0", "Reads all fields and their values.", "O(N) for N fields of the hash")
        .tips(&["nondeterministic_output_order"])
        .arguments(&[KEY]),
    command("hgetdel", -5, flags![WRITE | FAST])
        .keys(&[at(1, access![RW | ACCESS | DELETE])])
        .docs("9.1.0", "Reads fields and deletes them.", "O(N) for N fields")
        .arguments(&[KEY, FIELDS]),
    command("hgetex", -5, flags![WRITE | FAST])
        .keys(&[at(1, access![RW | ACCESS | UPDATE])])
        .docs("9.0.0", "Reads fields and changes when they expire.", "O(N) for N fields")
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
            FIELDS,
        ]),
    command("hincrby", 4, flags![WRITE | DENYOOM | FAST])
        .keys(&[at(1, access![RW | ACCESS | UPDATE])])
        .docs("2.0.0", "Adds an integer to a field.", "O(1)")
        .arguments(&[KEY, string("field"), integer("increment")]),
    command("hincrbyfloat", 4, flags![WRITE | DENYOOM | FAST])
        .keys(&[at(1, access![RW | ACCESS | UPDATE])])
        .docs("2.6.0", "Adds a floating point number to a field.", "O(1)")
        .arguments(&[KEY, string("field"), double("increment")]),
    command("hkeys", 2, flags![READONLY])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("2.0.0", "Names all fields.", "O(N) for N fields of the hash")
        .tips(&["nondeterministic_output_order"])
        .arguments(&[KEY]),
    command("hlen", 2, flags![READONLY | FAST])
        .keys(&[at(1, access![RO])])
        .docs("2.0.0", "Counts the fields.", "O(1)")
        .arguments(&[KEY]),
    command("hmget", -3, flags![READONLY | FAST])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("2.0.0", "Reads several fields.", "O(N) for N fields")
        .arguments(&[KEY, string("field").multiple()]),
    command("hmset", -4, flags![WRITE | DENYOOM | FAST])
        .keys(&[at(1, access![RW | UPDATE])])
        .docs("2.0.0", "Sets fields.", "O(N) for N fields")
        .arguments(&[KEY, PAIRS]),
    command("hpersist", -5, flags![WRITE | FAST])
        .keys(&[at(1, access![RW | UPDATE])])
        .docs("9.0.0", "Lets fields never expire.", "O(N) for N fields")
        .arguments(&[KEY, FIELDS]),
    command("hpexpire", -6, flags![WRITE | FAST])
        .keys(&[at(1, access![RW | UPDATE])])
        .docs("9.0.0", "Lets fields expire after some milliseconds.", "O(N) for N fields")
        .arguments(&[KEY, integer("milliseconds"), CONDITION, FIELDS]),
    command("hpexpireat", -6, flags![WRITE | FAST])
        .keys(&[at(1, access![RW | UPDATE])])
        .docs("9.0.0", "Lets fields expire at a time, in milliseconds.", "O(N) for N fields")
        .arguments(&[KEY, integer("unix-time-milliseconds"), CONDITION, FIELDS]),
    command("hpexpiretime", -5, flags![READONLY | FAST])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("9.0.0", "Tells at which time fields expire, in milliseconds.", "O(N) for N fields")
        .arguments(&[KEY, FIELDS]),
    command("hpttl", -5, flags![READONLY | FAST])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("9.0.0", "Tells in how many milliseconds fields expire.", "O(N) for N fields")
        .arguments(&[KEY, FIELDS]),
    command("hrandfield", -2, flags![READONLY])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("6.2.0", "Names fields at random.", "O(N) for N fields returned")
        .tips(&["nondeterministic_output"])
        .arguments(&[KEY, block("options", &[integer("count"), token("WITHVALUES").optional()]).optional()]),
    command("hscan", -3, flags![READONLY])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs(
            "2.8.0",
            "Goes through the fields of a hash.",
            "O(1) per call, O(N) for a whole iteration over N elements",
        )
        .tips(&["nondeterministic_output"])
        .arguments(&[
            KEY,
            integer("cursor"),
            pattern("pattern").after("MATCH").optional(),
            integer("count").after("COUNT").optional(),
            token("NOVALUES").optional(),
        ]),
    command("hset", -4, flags![WRITE | DENYOOM | FAST])
        .keys(&[at(1, access![RW | UPDATE])])
        .docs("2.0.0", "Sets fields.", "O(N) for N fields")
        .history(&[("4.0.0", "Several fields in one call.")])
        .arguments(&[KEY, PAIRS]),
    command("hsetex", -6, flags![WRITE | DENYOOM | FAST])
        .keys(&[at(1, access![RW | INSERT])])
        .docs("9.0.0", "Sets fields and when they expire.", "O(N) for N fields")
        .arguments(&[
            KEY,
            one_of("key-condition", &[token("NX"), token("XX")]).optional(),
            one_of("fields-condition", &[token("FNX"), token("FXX")]).optional(),
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
            block("fields", &[integer("numfields").key(0), PAIRS]).after("FIELDS"),
        ]),
    command("hsetnx", 4, flags![WRITE | DENYOOM | FAST])
        .keys(&[at(1, access![RW | INSERT])])
        .docs("2.0.0", "Sets a field that does not exist.", "O(1)")
        .arguments(&[KEY, string("field"), string("value")]),
    command("hstrlen", 3, flags![READONLY | FAST])
        .keys(&[at(1, access![RO])])
        .docs("3.2.0", "Measures the value of a field.", "O(1)")
        .arguments(&[KEY, string("field")]),
    command("httl", -5, flags![READONLY | FAST])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("9.0.0", "Tells in how many seconds fields expire.", "O(N) for N fields")
        .arguments(&[KEY, FIELDS]),
    command("hvals", 2, flags![READONLY])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("2.0.0", "Reads all values.", "O(N) for N fields of the hash")
        .tips(&["nondeterministic_output_order"])
        .arguments(&[KEY]),
];
