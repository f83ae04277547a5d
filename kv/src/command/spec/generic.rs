//! Commands for keys of any kind.

use super::argument::{KEY, block, integer, key, one_of, pattern, string, token, unix_time};
use super::flags::{access, categories, flags};
use super::key::{at, behind, unknown};
use super::{Argument, Categories, Flags, Group, Search, Spec};

const fn command(name: &'static str, arity: i8, flags: Flags) -> Spec {
    Spec::new(Group::Generic, name, arity, flags).listed(Categories::KEYSPACE)
}

const CONDITION: Argument =
    one_of("condition", &[token("NX"), token("XX"), token("GT"), token("LT")]).since("7.0.0").optional();
const LIMIT: Argument = block("limit", &[integer("offset"), integer("count")]).after("LIMIT").optional();
const ORDER: Argument = one_of("order", &[token("ASC"), token("DESC")]).optional();

pub(super) static COMMANDS: &[Spec] = &[
    command("copy", -3, flags![WRITE | DENYOOM])
        .keys(&[at(1, access![RO | ACCESS]), at(2, access![OW | UPDATE])])
        .docs("6.2.0", "Copies a value to another key.", "O(1) for strings, O(N) for N elements of anything else")
        .arguments(&[
            key("source", 0),
            key("destination", 1),
            integer("destination-db").after("DB").optional(),
            token("REPLACE").optional(),
        ]),
    command("del", -2, flags![WRITE])
        .keys(&[at(1, access![RM | DELETE]).through(-1)])
        .docs("1.0.0", "Deletes keys.", "O(N) for N keys that hold strings; O(M) more for each key with M elements")
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .arguments(&[KEY.multiple()]),
    command("dump", 2, flags![READONLY])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs(
            "2.6.0",
            "Writes a value as bytes that RESTORE reads.",
            "O(1) to find the key and O(N*M) to write N elements of size M",
        )
        .tips(&["nondeterministic_output"])
        .arguments(&[KEY]),
    command("exists", -2, flags![READONLY | FAST])
        .keys(&[at(1, access![RO]).through(-1)])
        .docs("1.0.0", "Counts how many of the keys exist.", "O(N) for N keys")
        .history(&[("3.0.3", "Several keys in one call.")])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .arguments(&[KEY.multiple()]),
    command("expire", -3, flags![WRITE | FAST])
        .keys(&[at(1, access![RW | UPDATE])])
        .docs("1.0.0", "Lets a key expire after some seconds.", "O(1)")
        .history(&[("7.0.0", "`NX`, `XX`, `GT` and `LT`.")])
        .arguments(&[KEY, integer("seconds"), CONDITION]),
    command("expireat", -3, flags![WRITE | FAST])
        .keys(&[at(1, access![RW | UPDATE])])
        .docs("1.2.0", "Lets a key expire at a time, in seconds.", "O(1)")
        .history(&[("7.0.0", "`NX`, `XX`, `GT` and `LT`.")])
        .arguments(&[KEY, unix_time("unix-time-seconds"), CONDITION]),
    command("expiretime", 2, flags![READONLY | FAST])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("7.0.0", "Tells at which time a key expires, in seconds.", "O(1)")
        .arguments(&[KEY]),
    command("keys", 2, flags![READONLY])
        .listed(categories![KEYSPACE | DANGEROUS])
        .docs("1.0.0", "Names every key that matches a pattern.", "O(N) for N keys of the database")
        .tips(&["request_policy:all_shards", "nondeterministic_output_order"])
        .arguments(&[pattern("pattern")]),
    command("migrate", -6, flags![WRITE])
        .listed(categories![KEYSPACE | DANGEROUS])
        .keys(&[
            at(3, access![RW | ACCESS | DELETE]),
            behind("KEYS", -2, access![RW | ACCESS | DELETE | INCOMPLETE]).through(-1),
        ])
        .search(Search::Migrate)
        .docs("2.6.0", "Moves keys to another server.", "DUMP and DEL here, RESTORE there, and O(N) to send N bytes")
        .history(&[
            ("3.0.0", "`COPY` and `REPLACE`."),
            ("3.0.6", "`KEYS`."),
            ("4.0.7", "`AUTH`."),
            ("6.0.0", "`AUTH2`."),
        ])
        .tips(&["nondeterministic_output"])
        .arguments(&[
            string("host"),
            integer("port"),
            one_of("key-selector", &[KEY, token("").named("empty-string")]),
            integer("destination-db"),
            integer("timeout"),
            token("COPY").since("3.0.0").optional(),
            token("REPLACE").since("3.0.0").optional(),
            one_of(
                "authentication",
                &[
                    string("auth").after("AUTH").display("password").since("4.0.7"),
                    block("auth2", &[string("username"), string("password")]).after("AUTH2").since("6.0.0"),
                ],
            )
            .optional(),
            key("keys", 1).after("KEYS").display("key").since("3.0.6").optional().multiple(),
        ]),
    command("move", 3, flags![WRITE | FAST])
        .keys(&[at(1, access![RW | ACCESS | UPDATE])])
        .docs("1.0.0", "Moves a key to another database.", "O(1)")
        .arguments(&[KEY, integer("db")]),
    command("object", -2, Flags::NONE)
        .listed(Categories::NONE)
        .docs("2.2.3", "Looks at how a value is kept.", "As the subcommand")
        .subcommands(OBJECT),
    command("persist", 2, flags![WRITE | FAST])
        .keys(&[at(1, access![RW | UPDATE])])
        .docs("2.2.0", "Lets a key never expire.", "O(1)")
        .arguments(&[KEY]),
    command("pexpire", -3, flags![WRITE | FAST])
        .keys(&[at(1, access![RW | UPDATE])])
        .docs("2.6.0", "Lets a key expire after some milliseconds.", "O(1)")
        .history(&[("7.0.0", "`NX`, `XX`, `GT` and `LT`.")])
        .arguments(&[KEY, integer("milliseconds"), CONDITION]),
    command("pexpireat", -3, flags![WRITE | FAST])
        .keys(&[at(1, access![RW | UPDATE])])
        .docs("2.6.0", "Lets a key expire at a time, in milliseconds.", "O(1)")
        .history(&[("7.0.0", "`NX`, `XX`, `GT` and `LT`.")])
        .arguments(&[KEY, unix_time("unix-time-milliseconds"), CONDITION]),
    command("pexpiretime", 2, flags![READONLY | FAST])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("7.0.0", "Tells at which time a key expires, in milliseconds.", "O(1)")
        .arguments(&[KEY]),
    command("pttl", 2, flags![READONLY | FAST])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("2.6.0", "Tells in how many milliseconds a key expires.", "O(1)")
        .history(&[("2.8.0", "-2 where there is no such key.")])
        .tips(&["nondeterministic_output"])
        .arguments(&[KEY]),
    command("randomkey", 1, flags![READONLY | TOUCHES_ARBITRARY_KEYS])
        .docs("1.0.0", "Names a key at random.", "O(1)")
        .tips(&["request_policy:all_shards", "response_policy:special", "nondeterministic_output"]),
    command("rename", 3, flags![WRITE])
        .keys(&[at(1, access![RW | ACCESS | DELETE]), at(2, access![OW | UPDATE])])
        .docs("1.0.0", "Renames a key, over another one if need be.", "O(1)")
        .arguments(&[KEY, key("newkey", 1)]),
    command("renamenx", 3, flags![WRITE | FAST])
        .keys(&[at(1, access![RW | ACCESS | DELETE]), at(2, access![OW | INSERT])])
        .docs("1.0.0", "Renames a key if the new name is free.", "O(1)")
        .history(&[("3.2.0", "The same name twice is no error.")])
        .arguments(&[KEY, key("newkey", 1)]),
    command("restore", -4, flags![WRITE | DENYOOM])
        .listed(categories![KEYSPACE | DANGEROUS])
        .keys(&[at(1, access![OW | UPDATE])])
        .docs(
            "2.6.0",
            "Creates a key from what DUMP wrote.",
            "O(1) for the key and O(N*M) to read N elements of size M; O(N*M*log(N)) for sorted sets",
        )
        .history(&[("3.0.0", "`REPLACE`."), ("5.0.0", "`ABSTTL`."), ("5.0.0", "`IDLETIME` and `FREQ`.")])
        .arguments(&[
            KEY,
            integer("ttl"),
            string("serialized-value"),
            token("REPLACE").since("3.0.0").optional(),
            token("ABSTTL").since("5.0.0").optional(),
            integer("seconds").after("IDLETIME").since("5.0.0").optional(),
            integer("frequency").after("FREQ").since("5.0.0").optional(),
        ]),
    command("scan", -2, flags![READONLY | TOUCHES_ARBITRARY_KEYS])
        .docs(
            "2.8.0",
            "Goes through the keys of the database.",
            "O(1) per call, O(N) for a whole iteration over N elements",
        )
        .history(&[("6.0.0", "`TYPE`.")])
        .tips(&["nondeterministic_output", "request_policy:special", "response_policy:special"])
        .arguments(&[
            integer("cursor"),
            pattern("pattern").after("MATCH").optional(),
            integer("count").after("COUNT").optional(),
            string("type").after("TYPE").since("6.0.0").optional(),
        ]),
    command("sort", -2, flags![WRITE | DENYOOM])
        .listed(categories![SET | SORTED_SET | LIST | DANGEROUS])
        .keys(&[
            at(1, access![RO | ACCESS]),
            unknown(access![RO | ACCESS]).notes("`BY` and `GET` build the names of keys from the elements"),
            unknown(access![OW | UPDATE]).notes("`STORE` may stand anywhere"),
        ])
        .search(Search::Sort)
        .docs(
            "1.0.0",
            "Sorts a list, a set or a sorted set, and may store the result.",
            "O(N+M*log(M)) for N elements and M returned; O(N) where nothing is sorted",
        )
        .arguments(&[
            KEY,
            pattern("by-pattern").after("BY").display("pattern").key(1).optional(),
            LIMIT,
            pattern("get-pattern").after("GET").display("pattern").key(1).optional().multiple_token(),
            ORDER,
            token("ALPHA").named("sorting").optional(),
            key("destination", 2).after("STORE").optional(),
        ]),
    command("sort_ro", -2, flags![READONLY])
        .listed(categories![SET | SORTED_SET | LIST | DANGEROUS])
        .keys(&[
            at(1, access![RO | ACCESS]),
            unknown(access![RO | ACCESS]).notes("`BY` and `GET` build the names of keys from the elements"),
        ])
        .search(Search::SortReadOnly)
        .docs(
            "7.0.0",
            "Sorts a list, a set or a sorted set.",
            "O(N+M*log(M)) for N elements and M returned; O(N) where nothing is sorted",
        )
        .arguments(&[
            KEY,
            pattern("by-pattern").after("BY").display("pattern").key(1).optional(),
            LIMIT,
            pattern("get-pattern").after("GET").display("pattern").key(1).optional().multiple_token(),
            ORDER,
            token("ALPHA").named("sorting").optional(),
        ]),
    command("touch", -2, flags![READONLY | FAST])
        .keys(&[at(1, access![RO]).through(-1)])
        .docs("3.2.1", "Counts how many of the keys exist, and marks them as used.", "O(N) for N keys")
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .arguments(&[KEY.multiple()]),
    command("ttl", 2, flags![READONLY | FAST])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("1.0.0", "Tells in how many seconds a key expires.", "O(1)")
        .history(&[("2.8.0", "-2 where there is no such key.")])
        .tips(&["nondeterministic_output"])
        .arguments(&[KEY]),
    command("type", 2, flags![READONLY | FAST])
        .keys(&[at(1, access![RO])])
        .docs("1.0.0", "Names the kind of value that a key holds.", "O(1)")
        .arguments(&[KEY]),
    command("unlink", -2, flags![WRITE | FAST])
        .keys(&[at(1, access![RM | DELETE]).through(-1)])
        .docs(
            "4.0.0",
            "Deletes keys, and frees their memory in the background.",
            "O(1) per key; its M elements cost O(M) later, in the background",
        )
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .arguments(&[KEY.multiple()]),
    command("wait", 3, flags![BLOCKING])
        .listed(categories![CONNECTION])
        .docs("3.0.0", "Waits until replicas have this connection's writes.", "O(1)")
        .tips(&["request_policy:all_shards", "response_policy:agg_min"])
        .arguments(&[integer("numreplicas"), integer("timeout")]),
    command("waitaof", 4, flags![BLOCKING])
        .listed(categories![CONNECTION])
        .docs("7.2.0", "Waits until this connection's writes are in the logs on disk.", "O(1)")
        .tips(&["request_policy:all_shards", "response_policy:agg_min"])
        .arguments(&[integer("numlocal"), integer("numreplicas"), integer("timeout")]),
];

/// Subcommands of `OBJECT`.
static OBJECT: &[Spec] = &[
    command("encoding", 3, flags![READONLY])
        .keys(&[at(2, access![RO])])
        .docs("2.2.3", "Names the form that a value is kept in.", "O(1)")
        .tips(&["nondeterministic_output"])
        .arguments(&[KEY]),
    command("freq", 3, flags![READONLY])
        .keys(&[at(2, access![RO])])
        .docs("4.0.0", "Tells how often a key is used, on a logarithmic scale.", "O(1)")
        .tips(&["nondeterministic_output"])
        .arguments(&[KEY]),
    command("help", 2, flags![LOADING | STALE]).docs("6.2.0", "Explains the subcommands.", "O(1)"),
    command("idletime", 3, flags![READONLY])
        .keys(&[at(2, access![RO])])
        .docs("2.2.3", "Tells for how many seconds a key was not used.", "O(1)")
        .tips(&["nondeterministic_output"])
        .arguments(&[KEY]),
    command("refcount", 3, flags![READONLY])
        .keys(&[at(2, access![RO])])
        .docs("2.2.3", "Tells how many references a value has.", "O(1)")
        .tips(&["nondeterministic_output"])
        .arguments(&[KEY]),
];
