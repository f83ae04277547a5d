//! Commands for sets.

use super::argument::{KEY, integer, key, pattern, string};
use super::flags::{access, flags};
use super::key::{at, counted};
use super::{Categories, Flags, Group, Spec};

const fn command(name: &'static str, arity: i8, flags: Flags) -> Spec {
    Spec::new(Group::Set, name, arity, flags).listed(Categories::SET)
}

pub(super) static COMMANDS: &[Spec] = &[
    command("sadd", -3, flags![WRITE | DENYOOM | FAST])
        .keys(&[at(1, access![RW | INSERT])])
        .docs("1.0.0", "Adds members to a set.", "O(N) for N elements added")
        .history(&[("2.4.0", "Several members in one call.")])
        .arguments(&[KEY, string("member").multiple()]),
    command("scard", 2, flags![READONLY | FAST])
        .keys(&[at(1, access![RO])])
        .docs("1.0.0", "Counts the members of a set.", "O(1)")
        .arguments(&[KEY]),
    command("sdiff", -2, flags![READONLY])
        .keys(&[at(1, access![RO | ACCESS]).through(-1)])
        .docs("1.0.0", "Lists the members of the first set that are in no other.", "O(N) for N members of all sets")
        .tips(&["nondeterministic_output_order"])
        .arguments(&[KEY.multiple()]),
    command("sdiffstore", -3, flags![WRITE | DENYOOM])
        .keys(&[at(1, access![OW | UPDATE]), at(2, access![RO | ACCESS]).through(-1)])
        .docs("1.0.0", "Stores the members of the first set that are in no other.", "O(N) for N members of all sets")
        .arguments(&[key("destination", 0), key("key", 1).multiple()]),
    command("sinter", -2, flags![READONLY])
        .keys(&[at(1, access![RO | ACCESS]).through(-1)])
        .docs("1.0.0", "Lists the members that all sets have.", "O(N*M) for M sets, the smallest with N members")
        .tips(&["nondeterministic_output_order"])
        .arguments(&[KEY.multiple()]),
    command("sintercard", -3, flags![READONLY])
        .keys(&[counted(1, access![RO | ACCESS])])
        .docs("7.0.0", "Counts the members that all sets have.", "O(N*M) for M sets, the smallest with N members")
        .arguments(&[integer("numkeys"), KEY.multiple(), integer("limit").after("LIMIT").optional()]),
    command("sinterstore", -3, flags![WRITE | DENYOOM])
        .keys(&[at(1, access![OW | UPDATE]), at(2, access![RO | ACCESS]).through(-1)])
        .docs("1.0.0", "Stores the members that all sets have.", "O(N*M) for M sets, the smallest with N members")
        .arguments(&[key("destination", 0), key("key", 1).multiple()]),
    command("sismember", 3, flags![READONLY | FAST])
        .keys(&[at(1, access![RO])])
        .docs("1.0.0", "Tells whether a set has a member.", "O(1)")
        .arguments(&[KEY, string("member")]),
    command("smembers", 2, flags![READONLY])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("1.0.0", "Lists the members of a set.", "O(N) for N members")
        .tips(&["nondeterministic_output_order"])
        .arguments(&[KEY]),
    command("smismember", -3, flags![READONLY | FAST])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("6.2.0", "Tells which of several members a set has.", "O(N) for N members asked for")
        .arguments(&[KEY, string("member").multiple()]),
    command("smove", 4, flags![WRITE | FAST])
        .keys(&[at(1, access![RW | ACCESS | DELETE]), at(2, access![RW | INSERT])])
        .docs("1.0.0", "Moves a member from one set to another.", "O(1)")
        .arguments(&[key("source", 0), key("destination", 1), string("member")]),
    command("spop", -2, flags![WRITE | FAST])
        .keys(&[at(1, access![RW | ACCESS | DELETE])])
        .docs("1.0.0", "Takes members at random.", "O(1) without a count, O(N) for a count of N")
        .history(&[("3.2.0", "`count`.")])
        .tips(&["nondeterministic_output"])
        .arguments(&[KEY, integer("count").since("3.2.0").optional()]),
    command("srandmember", -2, flags![READONLY])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("1.0.0", "Reads members at random.", "O(1) without a count, O(N) for a count of N or -N")
        .history(&[("2.6.0", "`count`.")])
        .tips(&["nondeterministic_output"])
        .arguments(&[KEY, integer("count").since("2.6.0").optional()]),
    command("srem", -3, flags![WRITE | FAST])
        .keys(&[at(1, access![RW | DELETE])])
        .docs("1.0.0", "Removes members, and the set with its last one.", "O(N) for N members")
        .history(&[("2.4.0", "Several members in one call.")])
        .arguments(&[KEY, string("member").multiple()]),
    command("sscan", -3, flags![READONLY])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs(
            "2.8.0",
            "Goes through the members of a set.",
            "O(1) per call, O(N) for a whole iteration over N elements",
        )
        .tips(&["nondeterministic_output"])
        .arguments(&[
            KEY,
            integer("cursor"),
            pattern("pattern").after("MATCH").optional(),
            integer("count").after("COUNT").optional(),
        ]),
    command("sunion", -2, flags![READONLY])
        .keys(&[at(1, access![RO | ACCESS]).through(-1)])
        .docs("1.0.0", "Lists the members that any of the sets has.", "O(N) for N members of all sets")
        .tips(&["nondeterministic_output_order"])
        .arguments(&[KEY.multiple()]),
    command("sunionstore", -3, flags![WRITE | DENYOOM])
        .keys(&[at(1, access![OW | UPDATE]), at(2, access![RO | ACCESS]).through(-1)])
        .docs("1.0.0", "Stores the members that any of the sets has.", "O(N) for N members of all sets")
        .arguments(&[key("destination", 0), key("key", 1).multiple()]),
];
