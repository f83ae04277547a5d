//! Commands for those who run the server, and those that servers send to each other.

use super::argument::{KEY, block, integer, one_of, pattern, string, token};
use super::flags::{access, categories, flags};
use super::key::at;
use super::{Argument, Flags, Group, Spec};

const fn command(name: &'static str, arity: i8, flags: Flags) -> Spec {
    Spec::new(Group::Server, name, arity, flags)
}

const LOG: Argument = one_of("type", &[token("SLOW"), token("LARGE-REQUEST"), token("LARGE-REPLY")]);
const FLUSH: Argument = one_of("flush-type", &[token("ASYNC").since("4.0.0"), token("SYNC").since("6.2.0")]).optional();
const PRIMARY: Argument = one_of(
    "args",
    &[block("host-port", &[string("host"), integer("port")]), block("no-one", &[token("NO"), token("ONE")])],
);

pub(super) static COMMANDS: &[Spec] = &[
    command("acl", -2, Flags::NONE)
        .docs("6.0.0", "Manages users and what they may do.", "As the subcommand")
        .subcommands(ACL),
    command("bgrewriteaof", 1, flags![ADMIN | NOSCRIPT | NO_ASYNC_LOADING]).docs(
        "1.0.0",
        "Rewrites the append-only log in the background.",
        "O(1)",
    ),
    command("bgsave", -1, flags![ADMIN | NOSCRIPT | NO_ASYNC_LOADING])
        .docs("1.0.0", "Writes a snapshot in the background.", "O(1)")
        .history(&[("3.2.2", "`SCHEDULE`."), ("8.1.0", "`CANCEL`.")])
        .arguments(&[
            one_of("operation", &[token("SCHEDULE").since("3.2.2"), token("CANCEL").since("8.1.0")]).optional()
        ]),
    command("command", -1, flags![LOADING | STALE])
        .listed(categories![CONNECTION])
        .docs("2.8.13", "Describes all commands.", "O(N) for N commands")
        .tips(&["nondeterministic_output_order"])
        .subcommands(COMMAND),
    command("commandlog", -2, Flags::NONE)
        .docs("8.1.0", "Looks at commands that were slow, or large, or had large replies.", "As the subcommand")
        .subcommands(COMMANDLOG),
    command("config", -2, Flags::NONE)
        .docs("2.0.0", "Reads and changes the configuration.", "As the subcommand")
        .subcommands(CONFIG),
    command("dbsize", 1, flags![READONLY | FAST])
        .listed(categories![KEYSPACE])
        .docs("1.0.0", "Counts the keys of the database.", "O(1)")
        .tips(&["request_policy:all_shards", "response_policy:agg_sum"]),
    command("debug", -2, flags![ADMIN | NOSCRIPT | LOADING | STALE | PROTECTED])
        .docs("1.0.0", "Does what tests need.", "As the subcommand")
        .internal(),
    command("failover", -1, flags![ADMIN | NOSCRIPT | STALE])
        .docs("6.2.0", "Hands the role of primary to a replica, in an orderly way.", "O(1)")
        .arguments(&[
            block("target", &[string("host"), integer("port"), token("FORCE").optional()]).after("TO").optional(),
            token("ABORT").optional(),
            integer("milliseconds").after("TIMEOUT").optional(),
        ]),
    command("flushall", -1, flags![WRITE | ALL_DBS])
        .listed(categories![KEYSPACE | DANGEROUS])
        .docs("1.0.0", "Deletes every key of every database.", "O(N) for N keys of all databases")
        .history(&[("4.0.0", "`ASYNC`."), ("6.2.0", "`SYNC`.")])
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .arguments(&[FLUSH]),
    command("flushdb", -1, flags![WRITE])
        .listed(categories![KEYSPACE | DANGEROUS])
        .docs("1.0.0", "Deletes every key of the database.", "O(N) for N keys of the database")
        .history(&[("4.0.0", "`ASYNC`."), ("6.2.0", "`SYNC`.")])
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .arguments(&[FLUSH]),
    command("info", -1, flags![LOADING | STALE])
        .listed(categories![DANGEROUS])
        .docs("1.0.0", "Reports on the server and its statistics.", "O(1)")
        .history(&[("7.0.0", "Several sections in one call.")])
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
        .arguments(&[string("section").optional().multiple()]),
    command("lastsave", 1, flags![LOADING | STALE | FAST])
        .listed(categories![ADMIN | DANGEROUS])
        .docs("1.0.0", "Tells when the latest snapshot was finished.", "O(1)")
        .tips(&["nondeterministic_output"]),
    command("latency", -2, Flags::NONE)
        .docs("2.8.13", "Looks at what took long.", "As the subcommand")
        .subcommands(LATENCY),
    command("lolwut", -1, flags![READONLY | FAST])
        .docs("5.0.0", "Draws a picture and names the version.", "")
        .arguments(&[integer("version").after("VERSION").optional()]),
    command("memory", -2, Flags::NONE)
        .docs("4.0.0", "Looks at what memory is used for.", "As the subcommand")
        .subcommands(MEMORY),
    command("module", -2, Flags::NONE)
        .docs("4.0.0", "Would load modules; this server takes none.", "As the subcommand")
        .subcommands(MODULE),
    command("monitor", 1, flags![ADMIN | NOSCRIPT | LOADING | STALE]).docs(
        "1.0.0",
        "Shows every command that the server receives.",
        "",
    ),
    command("psync", -3, flags![ADMIN | NOSCRIPT | NO_ASYNC_LOADING | NO_MULTI])
        .docs("2.8.0", "Asks a primary for what a replica lacks; not for clients.", "")
        .arguments(&[string("replicationid"), integer("offset")]),
    command("replconf", -1, flags![ADMIN | NOSCRIPT | LOADING | STALE | ALLOW_BUSY])
        .docs("3.0.0", "Tells a primary about a replica; not for clients.", "O(1)")
        .internal(),
    command("replicaof", 3, flags![ADMIN | NOSCRIPT | STALE | NO_ASYNC_LOADING])
        .docs("5.0.0", "Makes the server a replica of another, or a primary again.", "O(1)")
        .arguments(&[PRIMARY]),
    command("restore-asking", -4, flags![WRITE | DENYOOM | ASKING])
        .listed(categories![KEYSPACE | DANGEROUS])
        .keys(&[at(1, access![OW | UPDATE])])
        .docs(
            "3.0.0",
            "Does what RESTORE does in a slot that is being imported; not for clients.",
            "O(1) for the key and O(N*M) to read N elements of size M; O(N*M*log(N)) for sorted sets",
        )
        .internal()
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
    command("role", 1, flags![NOSCRIPT | LOADING | STALE | FAST]).listed(categories![ADMIN | DANGEROUS]).docs(
        "2.8.12",
        "Tells which part the server plays in replication.",
        "O(1)",
    ),
    command("save", 1, flags![ADMIN | NOSCRIPT | NO_ASYNC_LOADING | NO_MULTI]).docs(
        "1.0.0",
        "Writes a snapshot while everybody waits.",
        "O(N) for N keys of all databases",
    ),
    command("shutdown", -1, flags![ADMIN | NOSCRIPT | LOADING | STALE | NO_MULTI | ALLOW_BUSY])
        .docs(
            "1.0.0",
            "Ends the server, with or without a last snapshot.",
            "O(N) for N keys where it saves, O(1) otherwise",
        )
        .history(&[("7.0.0", "`NOW`, `FORCE` and `ABORT`."), ("9.0.0", "`SAFE` and `FAILOVER`.")])
        .arguments(&[one_of(
            "abort-selector",
            &[
                block(
                    "save-selector-block",
                    &[
                        one_of("save-selector", &[token("NOSAVE"), token("SAVE")]).optional(),
                        token("NOW").since("7.0.0").optional(),
                        token("FORCE").since("7.0.0").optional(),
                        token("SAFE").since("9.0.0").optional(),
                        token("FAILOVER").since("9.0.0").optional(),
                    ],
                ),
                token("ABORT").since("7.0.0"),
            ],
        )
        .optional()]),
    command("slaveof", 3, flags![ADMIN | NOSCRIPT | STALE | NO_ASYNC_LOADING])
        .docs("1.0.0", "Makes the server a replica of another, or a primary again.", "O(1)")
        .deprecated("5.0.0", "`REPLICAOF`")
        .arguments(&[PRIMARY]),
    command("slowlog", -2, Flags::NONE)
        .docs("2.2.12", "Looks at commands that were slow.", "As the subcommand")
        .subcommands(SLOWLOG),
    command("swapdb", 3, flags![WRITE | FAST])
        .listed(categories![KEYSPACE | DANGEROUS])
        .docs(
            "4.0.0",
            "Lets two databases trade places.",
            "O(N) for N clients that watch or wait for keys of the two databases",
        )
        .arguments(&[integer("index1"), integer("index2")]),
    command("sync", 1, flags![ADMIN | NOSCRIPT | NO_ASYNC_LOADING | NO_MULTI]).docs(
        "1.0.0",
        "Asks a primary for everything; not for clients.",
        "",
    ),
    command("time", 1, flags![LOADING | STALE | FAST])
        .docs("2.6.0", "Tells the server's time.", "O(1)")
        .tips(&["nondeterministic_output"]),
];

/// Subcommands of `ACL`.
static ACL: &[Spec] = &[
    command("cat", -2, flags![NOSCRIPT | LOADING | STALE])
        .docs("6.0.0", "Names the categories, or the commands of one.", "O(1)")
        .arguments(&[string("category").optional()]),
    command("deluser", -3, flags![ADMIN | NOSCRIPT | LOADING | STALE])
        .docs("6.0.0", "Deletes users and closes their connections.", "O(1) for a user with few connections")
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .arguments(&[string("username").multiple()]),
    command("dryrun", -4, flags![ADMIN | NOSCRIPT | LOADING | STALE])
        .docs("7.0.0", "Tells whether a user may run a command, without running it.", "O(1)")
        .arguments(&[string("username"), string("command"), string("arg").optional().multiple()]),
    command("genpass", -2, flags![NOSCRIPT | LOADING | STALE])
        .docs("6.0.0", "Invents a password.", "O(1)")
        .arguments(&[integer("bits").optional()]),
    command("getuser", 3, flags![ADMIN | NOSCRIPT | LOADING | STALE])
        .docs("6.0.0", "Describes what a user may do.", "O(N) for N rules of the user")
        .history(&[
            ("6.2.0", "Channel patterns."),
            ("7.0.0", "Selectors; patterns are shown as the rules that made them."),
            ("9.1.0", "Rules for databases."),
        ])
        .arguments(&[string("username")]),
    command("help", 2, flags![LOADING | STALE]).docs("6.0.0", "Explains the subcommands.", "O(1)"),
    command("list", 2, flags![ADMIN | NOSCRIPT | LOADING | STALE]).docs(
        "6.0.0",
        "Shows the rules of all users.",
        "O(N) for N users",
    ),
    command("load", 2, flags![ADMIN | NOSCRIPT | LOADING | STALE]).docs(
        "6.0.0",
        "Reads the users' rules from their file.",
        "O(N) for N users",
    ),
    command("log", -2, flags![ADMIN | NOSCRIPT | LOADING | STALE])
        .docs("6.0.0", "Lists what users were refused.", "O(N) for N entries")
        .history(&[("7.2.0", "An entry has an id, the time of its first and of its latest occurrence.")])
        .arguments(&[one_of("operation", &[integer("count"), token("RESET")]).optional()]),
    command("save", 2, flags![ADMIN | NOSCRIPT | LOADING | STALE])
        .docs("6.0.0", "Writes the users' rules to their file.", "O(N) for N users")
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    command("setuser", -3, flags![ADMIN | NOSCRIPT | LOADING | STALE])
        .docs("6.0.0", "Creates a user, or changes what one may do.", "O(N) for N rules")
        .history(&[
            ("6.2.0", "Channel patterns."),
            ("7.0.0", "Selectors, and rules that tell reading a key from writing it."),
            ("9.1.0", "Rules for databases."),
        ])
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .arguments(&[string("username"), string("rule").optional().multiple()]),
    command("users", 2, flags![ADMIN | NOSCRIPT | LOADING | STALE]).docs(
        "6.0.0",
        "Names all users.",
        "O(N) for N users",
    ),
    command("whoami", 2, flags![NOSCRIPT | LOADING | STALE]).docs(
        "6.0.0",
        "Names the user of this connection.",
        "O(1)",
    ),
];

/// Subcommands of `COMMAND`.
static COMMAND: &[Spec] = &[
    command("count", 2, flags![LOADING | STALE]).listed(categories![CONNECTION]).docs(
        "2.8.13",
        "Counts the commands.",
        "O(1)",
    ),
    command("docs", -2, flags![LOADING | STALE])
        .listed(categories![CONNECTION])
        .docs("7.0.0", "Explains commands and their arguments.", "O(N) for N commands asked for")
        .tips(&["nondeterministic_output_order"])
        .arguments(&[string("command-name").optional().multiple()]),
    command("getkeys", -3, flags![LOADING | STALE])
        .listed(categories![CONNECTION])
        .docs("2.8.13", "Names the keys in a call.", "O(N) for N words of the call")
        .arguments(&[string("command"), string("arg").optional().multiple()]),
    command("getkeysandflags", -3, flags![LOADING | STALE])
        .listed(categories![CONNECTION])
        .docs("7.0.0", "Names the keys in a call and what becomes of each.", "O(N) for N words of the call")
        .arguments(&[string("command"), string("arg").optional().multiple()]),
    command("help", 2, flags![LOADING | STALE]).listed(categories![CONNECTION]).docs(
        "5.0.0",
        "Explains the subcommands.",
        "O(1)",
    ),
    command("info", -2, flags![LOADING | STALE])
        .listed(categories![CONNECTION])
        .docs("2.8.13", "Describes some commands, or all.", "O(N) for N commands asked for")
        .history(&[("7.0.0", "Without a name it tells of all commands.")])
        .tips(&["nondeterministic_output_order"])
        .arguments(&[string("command-name").optional().multiple()]),
    command("list", -2, flags![LOADING | STALE])
        .listed(categories![CONNECTION])
        .docs("7.0.0", "Names the commands.", "O(N) for N commands")
        .tips(&["nondeterministic_output_order"])
        .arguments(&[one_of(
            "filterby",
            &[
                string("module-name").after("MODULE"),
                string("category").after("ACLCAT"),
                pattern("pattern").after("PATTERN"),
            ],
        )
        .after("FILTERBY")
        .optional()]),
];

/// Subcommands of `COMMANDLOG`.
static COMMANDLOG: &[Spec] = &[
    command("get", 4, flags![ADMIN | LOADING | STALE])
        .docs("8.1.0", "Shows the latest entries of one of the logs.", "O(N) for N entries returned")
        .tips(&["request_policy:all_nodes", "nondeterministic_output"])
        .arguments(&[integer("count"), LOG]),
    command("help", 2, flags![LOADING | STALE]).docs("8.1.0", "Explains the subcommands.", "O(1)"),
    command("len", 3, flags![ADMIN | LOADING | STALE])
        .docs("8.1.0", "Counts the entries of one of the logs.", "O(1)")
        .tips(&["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"])
        .arguments(&[LOG]),
    command("reset", 3, flags![ADMIN | LOADING | STALE])
        .docs("8.1.0", "Empties one of the logs.", "O(N) for N entries")
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .arguments(&[LOG]),
];

/// Subcommands of `CONFIG`.
static CONFIG: &[Spec] = &[
    command("get", -3, flags![ADMIN | NOSCRIPT | LOADING | STALE])
        .docs("2.0.0", "Reads parameters.", "O(N) for N parameters")
        .history(&[("7.0.0", "Several patterns in one call.")])
        .arguments(&[string("parameter").multiple()]),
    command("help", 2, flags![LOADING | STALE]).docs("5.0.0", "Explains the subcommands.", "O(1)"),
    command("resetstat", 2, flags![ADMIN | NOSCRIPT | LOADING | STALE])
        .docs("2.0.0", "Begins the statistics anew.", "O(1)")
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    command("rewrite", 2, flags![ADMIN | NOSCRIPT | LOADING | STALE])
        .docs("2.8.0", "Writes the configuration as it is now to its file.", "O(1)")
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    command("set", -4, flags![ADMIN | NOSCRIPT | LOADING | STALE])
        .docs("2.0.0", "Changes parameters while the server runs.", "O(N) for N parameters")
        .history(&[("7.0.0", "Several parameters in one call.")])
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .arguments(&[block("data", &[string("parameter"), string("value")]).multiple()]),
];

/// Subcommands of `LATENCY`.
static LATENCY: &[Spec] = &[
    command("doctor", 2, flags![ADMIN | NOSCRIPT | LOADING | STALE])
        .docs("2.8.13", "Says in plain words what took long.", "O(1)")
        .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"]),
    command("graph", 3, flags![ADMIN | NOSCRIPT | LOADING | STALE])
        .docs("2.8.13", "Draws how long an event took over time.", "O(1)")
        .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"])
        .arguments(&[string("event")]),
    command("help", 2, flags![LOADING | STALE]).docs("2.8.13", "Explains the subcommands.", "O(1)"),
    command("histogram", -2, flags![ADMIN | NOSCRIPT | LOADING | STALE])
        .docs("7.0.0", "Tells how the durations of commands are distributed.", "O(N) for N commands asked for")
        .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"])
        .arguments(&[string("command").optional().multiple()]),
    command("history", 3, flags![ADMIN | NOSCRIPT | LOADING | STALE])
        .docs("2.8.13", "Lists how long an event took, and when.", "O(1)")
        .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"])
        .arguments(&[string("event")]),
    command("latest", 2, flags![ADMIN | NOSCRIPT | LOADING | STALE])
        .docs("2.8.13", "Lists the latest duration of every event.", "O(1)")
        .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"]),
    command("reset", -2, flags![ADMIN | NOSCRIPT | LOADING | STALE])
        .docs("2.8.13", "Forgets the durations of events.", "O(1)")
        .tips(&["request_policy:all_nodes", "response_policy:agg_sum"])
        .arguments(&[string("event").optional().multiple()]),
];

/// Subcommands of `MEMORY`.
static MEMORY: &[Spec] =
    &[
        command("doctor", 2, Flags::NONE)
            .docs("4.0.0", "Says in plain words what is wrong with memory.", "O(1)")
            .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
        command("help", 2, flags![LOADING | STALE]).docs("4.0.0", "Explains the subcommands.", "O(1)"),
        command("malloc-stats", 2, flags![LOADING])
            .docs("4.0.0", "Shows the allocator's statistics.", "Grows with the memory that is allocated")
            .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
        command("purge", 2, flags![LOADING])
            .docs("4.0.0", "Asks the allocator to give memory back.", "Grows with the memory that is allocated")
            .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
        command("stats", 2, Flags::NONE).docs("4.0.0", "Tells what memory is used for.", "O(1)").tips(&[
            "nondeterministic_output",
            "request_policy:all_shards",
            "response_policy:special",
        ]),
        command("usage", -3, flags![READONLY])
            .keys(&[at(2, access![RO])])
            .docs("4.0.0", "Estimates the memory of a key and its value.", "O(N) for N samples")
            .arguments(&[KEY, integer("count").after("SAMPLES").optional()]),
    ];

/// Subcommands of `SLOWLOG`.
static SLOWLOG: &[Spec] = &[
    command("get", -2, flags![ADMIN | LOADING | STALE])
        .docs("2.2.12", "Shows the latest entries of the log.", "O(N) for N entries returned")
        .history(&[("4.0.0", "The client's address and name.")])
        .tips(&["request_policy:all_nodes", "nondeterministic_output"])
        .arguments(&[integer("count").optional()]),
    command("help", 2, flags![LOADING | STALE]).docs("6.2.0", "Explains the subcommands.", "O(1)"),
    command("len", 2, flags![ADMIN | LOADING | STALE])
        .docs("2.2.12", "Counts the entries of the log.", "O(1)")
        .tips(&["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"]),
    command("reset", 2, flags![ADMIN | LOADING | STALE])
        .docs("2.2.12", "Empties the log.", "O(N) for N entries")
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
];

/// Subcommands of `MODULE`.
static MODULE: &[Spec] = &[
    command("help", 2, flags![LOADING | STALE]).docs("5.0.0", "Explains the subcommands.", "O(1)"),
    command("list", 2, flags![ADMIN | NOSCRIPT])
        .docs("4.0.0", "Shows the loaded modules: none.", "O(1)")
        .tips(&["nondeterministic_output_order"]),
    command("load", -3, flags![ADMIN | NOSCRIPT | NO_ASYNC_LOADING | PROTECTED])
        .docs("4.0.0", "Is refused.", "O(1)")
        .arguments(&[string("path"), string("arg").optional().multiple()]),
    command("loadex", -3, flags![ADMIN | NOSCRIPT | NO_ASYNC_LOADING | PROTECTED])
        .docs("7.0.0", "Is refused.", "O(1)")
        .arguments(&[
            string("path"),
            block("configs", &[string("name"), string("value")]).after("CONFIG").optional().multiple().multiple_token(),
            string("args").after("ARGS").optional().multiple(),
        ]),
    command("unload", 3, flags![ADMIN | NOSCRIPT | NO_ASYNC_LOADING | PROTECTED])
        .docs("4.0.0", "Is refused.", "O(1)")
        .arguments(&[string("name")]),
];
