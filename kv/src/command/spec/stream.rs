//! Commands for streams and their groups.

use super::argument::{KEY, block, integer, one_of, string, token, unix_time};
use super::flags::{access, flags};
use super::key::{at, behind};
use super::{Argument, Categories, Flags, Group, Search, Spec};

const fn command(name: &'static str, arity: i8, flags: Flags) -> Spec {
    Spec::new(Group::Stream, name, arity, flags).listed(Categories::STREAM)
}

const STREAMS: Argument = block("streams", &[KEY.multiple(), string("id").multiple()]).after("STREAMS");
const OPERATOR: Argument =
    one_of("operator", &[token("=").named("equal"), token("~").named("approximately")]).optional();
const STRATEGY: Argument = one_of("strategy", &[token("MAXLEN"), token("MINID").since("6.2.0")]);
const ID: Argument = one_of("id-selector", &[string("id"), token("$").named("new-id")]);

pub(super) static COMMANDS: &[Spec] = &[
    command("xack", -4, flags![WRITE | FAST])
        .keys(&[at(1, access![RW | UPDATE])])
        .docs("5.0.0", "Marks entries as dealt with by a group.", "O(1) per entry")
        .arguments(&[KEY, string("group"), string("id").multiple()]),
    command("xadd", -5, flags![WRITE | DENYOOM | FAST])
        .keys(&[at(1, access![RW | UPDATE]).notes("It may trim the stream as well")])
        .docs("5.0.0", "Adds an entry to a stream, and may trim it.", "O(1); O(N) for N entries trimmed")
        .history(&[("6.2.0", "`NOMKSTREAM`, `MINID` and `LIMIT`."), ("7.0.0", "`<ms>-*` as an id.")])
        .tips(&["nondeterministic_output"])
        .arguments(&[
            KEY,
            token("NOMKSTREAM").since("6.2.0").optional(),
            block(
                "trim",
                &[STRATEGY, OPERATOR, string("threshold"), integer("count").after("LIMIT").since("6.2.0").optional()],
            )
            .optional(),
            one_of("id-selector", &[token("*").named("auto-id"), string("id")]),
            block("data", &[string("field"), string("value")]).multiple(),
        ]),
    command("xautoclaim", -6, flags![WRITE | FAST])
        .keys(&[at(1, access![RW | DELETE])])
        .docs("6.2.0", "Gives entries that have been pending for long to another consumer.", "O(1) for a small COUNT")
        .history(&[("7.0.0", "The reply also lists the entries that no longer exist.")])
        .tips(&["nondeterministic_output"])
        .arguments(&[
            KEY,
            string("group"),
            string("consumer"),
            string("min-idle-time"),
            string("start"),
            integer("count").after("COUNT").optional(),
            token("JUSTID").optional(),
        ]),
    command("xclaim", -6, flags![WRITE | FAST])
        .keys(&[at(1, access![RW | UPDATE])])
        .docs("5.0.0", "Gives pending entries to another consumer.", "O(log N) for N entries that are pending")
        .tips(&["nondeterministic_output"])
        .arguments(&[
            KEY,
            string("group"),
            string("consumer"),
            string("min-idle-time"),
            string("id").multiple(),
            integer("ms").after("IDLE").optional(),
            unix_time("unix-time-milliseconds").after("TIME").optional(),
            integer("count").after("RETRYCOUNT").optional(),
            token("FORCE").optional(),
            token("JUSTID").optional(),
            string("lastid").after("LASTID").optional(),
        ]),
    command("xdel", -3, flags![WRITE | FAST])
        .keys(&[at(1, access![RW | DELETE])])
        .docs("5.0.0", "Deletes entries.", "O(1) per entry")
        .arguments(&[KEY, string("id").multiple()]),
    command("xgroup", -2, Flags::NONE)
        .listed(Categories::NONE)
        .docs("5.0.0", "Manages the groups of a stream.", "As the subcommand")
        .subcommands(XGROUP),
    command("xinfo", -2, Flags::NONE)
        .listed(Categories::NONE)
        .docs("5.0.0", "Looks at streams, groups and consumers.", "As the subcommand")
        .subcommands(XINFO),
    command("xlen", 2, flags![READONLY | FAST])
        .keys(&[at(1, access![RO])])
        .docs("5.0.0", "Counts the entries of a stream.", "O(1)")
        .arguments(&[KEY]),
    command("xpending", -3, flags![READONLY])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs(
            "5.0.0",
            "Tells which entries of a group are pending.",
            "O(N) for N entries returned, O(M) for M looked at with IDLE; the summary is O(N) for N consumers",
        )
        .history(&[("6.2.0", "`IDLE`, and ranges without their ends.")])
        .tips(&["nondeterministic_output"])
        .arguments(&[
            KEY,
            string("group"),
            block(
                "filters",
                &[
                    integer("min-idle-time").after("IDLE").since("6.2.0").optional(),
                    string("start"),
                    string("end"),
                    integer("count"),
                    string("consumer").optional(),
                ],
            )
            .optional(),
        ]),
    command("xrange", -4, flags![READONLY])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("5.0.0", "Reads a range of entries, oldest first.", "O(N) for N entries returned")
        .history(&[("6.2.0", "Ranges without their ends.")])
        .arguments(&[KEY, string("start"), string("end"), integer("count").after("COUNT").optional()]),
    command("xread", -4, flags![READONLY | BLOCKING])
        .keys(&[behind("STREAMS", 1, access![RO | ACCESS]).half()])
        .search(Search::Streams { from: 1 })
        .docs("5.0.0", "Reads entries of streams after given ids, and may wait for them.", "")
        .arguments(&[
            integer("count").after("COUNT").optional(),
            integer("milliseconds").after("BLOCK").optional(),
            STREAMS,
        ]),
    command("xreadgroup", -7, flags![WRITE | BLOCKING])
        .keys(&[behind("STREAMS", 4, access![RO | ACCESS]).half()])
        .search(Search::Streams { from: 4 })
        .docs(
            "5.0.0",
            "Reads entries of streams as a consumer of a group, and may wait for them.",
            "O(M) per stream for M entries returned; XADD pays O(N) for N clients that wait",
        )
        .arguments(&[
            block("group-block", &[string("group"), string("consumer")]).after("GROUP"),
            integer("count").after("COUNT").optional(),
            integer("milliseconds").after("BLOCK").optional(),
            token("NOACK").optional(),
            STREAMS,
        ]),
    command("xrevrange", -4, flags![READONLY])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("5.0.0", "Reads a range of entries, newest first.", "O(N) for N entries returned")
        .history(&[("6.2.0", "Ranges without their ends.")])
        .arguments(&[KEY, string("end"), string("start"), integer("count").after("COUNT").optional()]),
    command("xsetid", -3, flags![WRITE | DENYOOM | FAST])
        .keys(&[at(1, access![RW | UPDATE])])
        .docs("5.0.0", "Sets a stream's last id; not for clients.", "O(1)")
        .history(&[("7.0.0", "`ENTRIESADDED` and `MAXDELETEDID`.")])
        .arguments(&[
            KEY,
            string("last-id"),
            integer("entries-added").after("ENTRIESADDED").since("7.0.0").optional(),
            string("max-deleted-id").after("MAXDELETEDID").since("7.0.0").optional(),
        ]),
    command("xtrim", -4, flags![WRITE])
        .keys(&[at(1, access![RW | DELETE])])
        .docs("5.0.0", "Removes the oldest entries of a stream.", "O(N) for N entries trimmed")
        .history(&[("6.2.0", "`MINID` and `LIMIT`.")])
        .tips(&["nondeterministic_output"])
        .arguments(&[
            KEY,
            block(
                "trim",
                &[STRATEGY, OPERATOR, string("threshold"), integer("count").after("LIMIT").since("6.2.0").optional()],
            ),
        ]),
];

/// Subcommands of `XGROUP`.
static XGROUP: &[Spec] = &[
    command("create", -5, flags![WRITE | DENYOOM])
        .keys(&[at(2, access![RW | INSERT])])
        .docs("5.0.0", "Creates a group.", "O(1)")
        .history(&[("7.0.0", "`ENTRIESREAD`.")])
        .arguments(&[
            KEY,
            string("group"),
            ID,
            token("MKSTREAM").optional(),
            integer("entriesread").after("ENTRIESREAD").display("entries-read").optional(),
        ]),
    command("createconsumer", 5, flags![WRITE | DENYOOM])
        .keys(&[at(2, access![RW | INSERT])])
        .docs("6.2.0", "Creates a consumer in a group.", "O(1)")
        .arguments(&[KEY, string("group"), string("consumer")]),
    command("delconsumer", 5, flags![WRITE])
        .keys(&[at(2, access![RW | DELETE])])
        .docs("5.0.0", "Deletes a consumer and what is pending for it.", "O(1)")
        .arguments(&[KEY, string("group"), string("consumer")]),
    command("destroy", 4, flags![WRITE])
        .keys(&[at(2, access![RW | DELETE])])
        .docs("5.0.0", "Deletes a group.", "O(N) for N entries that are pending")
        .arguments(&[KEY, string("group")]),
    command("help", 2, flags![LOADING | STALE]).docs("5.0.0", "Explains the subcommands.", "O(1)"),
    command("setid", -5, flags![WRITE])
        .keys(&[at(2, access![RW | UPDATE])])
        .docs("5.0.0", "Sets the last entry that a group has been given.", "O(1)")
        .history(&[("7.0.0", "`ENTRIESREAD`.")])
        .arguments(&[
            KEY,
            string("group"),
            ID,
            integer("entriesread").after("ENTRIESREAD").display("entries-read").optional(),
        ]),
];

/// Subcommands of `XINFO`.
static XINFO: &[Spec] = &[
    command("consumers", 4, flags![READONLY])
        .keys(&[at(2, access![RO | ACCESS])])
        .docs("5.0.0", "Describes the consumers of a group.", "O(1)")
        .history(&[("7.2.0", "`inactive`; `idle` counts from the latest attempt.")])
        .tips(&["nondeterministic_output"])
        .arguments(&[KEY, string("group")]),
    command("groups", 3, flags![READONLY])
        .keys(&[at(2, access![RO | ACCESS])])
        .docs("5.0.0", "Describes the groups of a stream.", "O(1)")
        .history(&[("7.0.0", "`entries-read` and `lag`.")])
        .arguments(&[KEY]),
    command("help", 2, flags![LOADING | STALE]).docs("5.0.0", "Explains the subcommands.", "O(1)"),
    command("stream", -3, flags![READONLY])
        .keys(&[at(2, access![RO | ACCESS])])
        .docs("5.0.0", "Describes a stream.", "O(1)")
        .history(&[
            ("6.0.0", "`FULL`."),
            ("7.0.0", "`max-deleted-entry-id`, `entries-added`, `recorded-first-entry-id`, `entries-read` and `lag`."),
            ("7.2.0", "`active-time`; `seen-time` is the latest attempt."),
        ])
        .arguments(&[
            KEY,
            block("full-block", &[token("FULL"), integer("count").after("COUNT").optional()]).optional(),
        ]),
];
