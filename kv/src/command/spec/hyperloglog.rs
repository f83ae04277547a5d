//! Commands that estimate how many different elements were seen.

use super::argument::{KEY, key, string};
use super::flags::{access, flags};
use super::key::at;
use super::{Categories, Flags, Group, Spec};

const fn command(name: &'static str, arity: i8, flags: Flags) -> Spec {
    Spec::new(Group::HyperLogLog, name, arity, flags).listed(Categories::HYPERLOGLOG)
}

pub(super) static COMMANDS: &[Spec] = &[
    command("pfadd", -2, flags![WRITE | DENYOOM | FAST])
        .keys(&[at(1, access![RW | INSERT])])
        .docs("2.8.9", "Adds elements to a sketch of a set.", "O(1) per element")
        .arguments(&[KEY, string("element").optional().multiple()]),
    command("pfcount", -2, flags![READONLY | MAY_REPLICATE])
        .keys(&[at(1, access![RW | ACCESS]).through(-1).notes("It may store the count that it has computed")])
        .docs(
            "2.8.9",
            "Estimates how many different elements sketches have seen.",
            "O(1) for one key; O(N) for N keys, with a large constant",
        )
        .arguments(&[KEY.multiple()]),
    command("pfdebug", 3, flags![WRITE | DENYOOM | ADMIN])
        .keys(&[at(2, access![RW | ACCESS])])
        .docs("2.8.9", "Looks inside a sketch; for tests.", "N/A")
        .internal()
        .arguments(&[string("subcommand"), KEY]),
    command("pfmerge", -2, flags![WRITE | DENYOOM])
        .keys(&[at(1, access![RW | ACCESS | INSERT]), at(2, access![RO | ACCESS]).through(-1)])
        .docs("2.8.9", "Merges sketches into one.", "O(N) for N keys, with a large constant")
        .arguments(&[key("destkey", 0), key("sourcekey", 1).optional().multiple()]),
    command("pfselftest", 1, flags![ADMIN])
        .docs("2.8.9", "Checks the sketches' arithmetic; for tests.", "N/A")
        .internal(),
];
