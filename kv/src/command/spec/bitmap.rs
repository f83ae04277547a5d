//! Commands that see a string as bits.

use super::argument::{KEY, block, integer, key, one_of, string, token};
use super::flags::{access, flags};
use super::key::at;
use super::{Argument, Categories, Flags, Group, Search, Spec};

const fn command(name: &'static str, arity: i8, flags: Flags) -> Spec {
    Spec::new(Group::Bitmap, name, arity, flags).listed(Categories::BITMAP)
}

const RANGE: Argument = block(
    "range",
    &[
        integer("start"),
        block(
            "end-unit-block",
            &[integer("end"), one_of("unit", &[token("BYTE"), token("BIT")]).since("7.0.0").optional()],
        )
        .optional(),
    ],
)
.optional();

pub(super) static COMMANDS: &[Spec] = &[
    command("bitcount", -2, flags![READONLY])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("2.6.0", "Counts the bits of a string that are 1.", "O(N)")
        .history(&[("7.0.0", "`BYTE` and `BIT`."), ("8.0.0", "Without `end` the range reaches to the last byte.")])
        .arguments(&[KEY, RANGE]),
    command("bitfield", -2, flags![WRITE | DENYOOM])
        .keys(&[at(1, access![RW | UPDATE | ACCESS | VARIABLE_FLAGS])
            .notes("It reads, writes or does both, as its operations say")])
        .search(Search::BitField)
        .docs("3.2.0", "Reads, writes and increments integers of any width inside a string.", "O(1) per operation")
        .arguments(&[
            KEY,
            one_of(
                "operation",
                &[
                    block("get-block", &[string("encoding"), integer("offset")]).after("GET"),
                    block(
                        "write",
                        &[
                            one_of("overflow-block", &[token("WRAP"), token("SAT"), token("FAIL")])
                                .after("OVERFLOW")
                                .optional(),
                            one_of(
                                "write-operation",
                                &[
                                    block("set-block", &[string("encoding"), integer("offset"), integer("value")])
                                        .after("SET"),
                                    block(
                                        "incrby-block",
                                        &[string("encoding"), integer("offset"), integer("increment")],
                                    )
                                    .after("INCRBY"),
                                ],
                            ),
                        ],
                    ),
                ],
            )
            .optional()
            .multiple(),
        ]),
    command("bitfield_ro", -2, flags![READONLY | FAST])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("6.0.0", "Reads integers of any width inside a string.", "O(1) per operation")
        .arguments(&[
            KEY,
            block("get-block", &[string("encoding"), integer("offset")]).after("GET").optional().multiple_token(),
        ]),
    command("bitop", -4, flags![WRITE | DENYOOM])
        .keys(&[at(2, access![OW | UPDATE]), at(3, access![RO | ACCESS]).through(-1)])
        .docs("2.6.0", "Combines strings bit by bit into a new one.", "O(N)")
        .arguments(&[
            one_of("operation", &[token("AND"), token("OR"), token("XOR"), token("NOT")]),
            key("destkey", 0),
            key("key", 1).multiple(),
        ]),
    command("bitpos", -3, flags![READONLY])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("2.8.7", "Finds the first bit of a string that is 0 or 1.", "O(N)")
        .history(&[("7.0.0", "`BYTE` and `BIT`.")])
        .arguments(&[KEY, integer("bit"), RANGE]),
    command("getbit", 3, flags![READONLY | FAST])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("2.2.0", "Reads one bit of a string.", "O(1)")
        .arguments(&[KEY, integer("offset")]),
    command("setbit", 4, flags![WRITE | DENYOOM])
        .keys(&[at(1, access![RW | ACCESS | UPDATE])])
        .docs("2.2.0", "Writes one bit of a string, which grows where it is too short.", "O(1)")
        .arguments(&[KEY, integer("offset"), integer("value")]),
];
