//! Commands of the cluster: who owns which slot, and how that changes.

use super::argument::{block, integer, one_of, pattern, string, token};
use super::flags::{access, categories, flags};
use super::key::at;
use super::{Argument, Flags, Group, Spec};

const fn command(name: &'static str, arity: i8, flags: Flags) -> Spec {
    Spec::new(Group::Cluster, name, arity, flags)
}

const RANGES: Argument = block("range", &[integer("start-slot"), integer("end-slot")]).multiple();

pub(super) static COMMANDS: &[Spec] = &[
    command("asking", 1, flags![FAST]).listed(categories![CONNECTION]).docs(
        "3.0.0",
        "Announces that the next command follows an ASK redirection.",
        "O(1)",
    ),
    command("cluster", -2, Flags::NONE)
        .docs("3.0.0", "Inspects and changes the cluster.", "As the subcommand")
        .subcommands(CLUSTER),
    command("clusterscan", -2, flags![READONLY | TOUCHES_ARBITRARY_KEYS])
        .listed(categories![KEYSPACE])
        .keys(&[at(1, access![NOT_KEY])])
        .docs("9.1.0", "Goes through the keys of the whole cluster.", "O(N) for N keys returned")
        .tips(&["nondeterministic_output", "request_policy:special", "response_policy:special"])
        .arguments(&[
            string("cursor"),
            pattern("match-pattern").after("MATCH").optional(),
            integer("count").after("COUNT").optional(),
            string("type").after("TYPE").optional(),
            integer("slot").after("SLOT").optional(),
        ]),
    command("readonly", 1, flags![LOADING | STALE | FAST]).listed(categories![CONNECTION]).docs(
        "3.0.0",
        "Lets this connection read from a replica.",
        "O(1)",
    ),
    command("readwrite", 1, flags![LOADING | STALE | FAST]).listed(categories![CONNECTION]).docs(
        "3.0.0",
        "Ends what READONLY began.",
        "O(1)",
    ),
];

/// Subcommands of `CLUSTER`.
static CLUSTER: &[Spec] = &[
    command("addslots", -3, flags![ADMIN | STALE | NO_ASYNC_LOADING])
        .docs("3.0.0", "Gives slots without an owner to this node.", "O(N) for N slots")
        .arguments(&[integer("slot").multiple()]),
    command("addslotsrange", -4, flags![ADMIN | STALE | NO_ASYNC_LOADING])
        .docs("7.0.0", "Gives ranges of slots without an owner to this node.", "O(N) for N slots in the ranges")
        .arguments(&[RANGES]),
    command("beginshard", 2, flags![ADMIN | NOSCRIPT | STALE | NO_ASYNC_LOADING | NO_MULTI]).docs(
        "9.1.0",
        "Lets this node's data be those of its shard, which nobody serves. Ashlar's own.",
        "O(1)",
    ),
    command("bumpepoch", 2, flags![ADMIN | STALE | NO_ASYNC_LOADING])
        .docs("3.0.0", "Raises this node's epoch above all others.", "O(1)")
        .tips(&["nondeterministic_output"]),
    command("cancelslotmigrations", 2, flags![ADMIN | STALE | NO_ASYNC_LOADING | ALL_DBS]).docs(
        "9.0.0",
        "Stops every migration of slots that this node has begun.",
        "O(N) for N migrations under way",
    ),
    command("count-failure-reports", 3, flags![ADMIN | STALE])
        .docs("3.0.0", "Counts the nodes that report a node as failing.", "O(N) for N reports")
        .history(&[("9.0.0", "A node that has failed gathers no more reports.")])
        .tips(&["nondeterministic_output"])
        .arguments(&[string("node-id")]),
    command("countkeysinslot", 3, flags![STALE])
        .docs("3.0.0", "Counts the keys of a slot on this node.", "O(1)")
        .arguments(&[integer("slot")]),
    command("delslots", -3, flags![ADMIN | STALE | NO_ASYNC_LOADING])
        .docs("3.0.0", "Lets this node forget who owns slots.", "O(N) for N slots")
        .arguments(&[integer("slot").multiple()]),
    command("delslotsrange", -4, flags![ADMIN | STALE | NO_ASYNC_LOADING])
        .docs("7.0.0", "Lets this node forget who owns ranges of slots.", "O(N) for N slots in the ranges")
        .arguments(&[RANGES]),
    command("failover", -2, flags![ADMIN | STALE | NO_ASYNC_LOADING])
        .docs("3.0.0", "Makes this replica take its primary's place.", "O(1)")
        .arguments(&[one_of("options", &[token("FORCE"), token("TAKEOVER")]).optional()]),
    command("flushslot", -3, flags![WRITE | ADMIN | NO_ASYNC_LOADING | ALL_DBS])
        .listed(categories![KEYSPACE])
        .docs("9.0.0", "Deletes every key of a slot.", "O(N) for N keys in the slot")
        .arguments(&[integer("slot"), one_of("flush-type", &[token("ASYNC"), token("SYNC")]).optional()]),
    command("flushslots", 2, flags![ADMIN | STALE | NO_ASYNC_LOADING]).docs(
        "3.0.0",
        "Lets this node, which has to be empty, give up all of its slots.",
        "O(1)",
    ),
    command("forget", 3, flags![ADMIN | STALE | NO_ASYNC_LOADING])
        .docs("3.0.0", "Removes a node from this node's view of the cluster.", "O(1)")
        .arguments(&[string("node-id")]),
    command("getkeysinslot", 4, flags![STALE])
        .docs("3.0.0", "Names keys of a slot on this node.", "O(N) for N keys asked for")
        .tips(&["nondeterministic_output"])
        .arguments(&[integer("slot"), integer("count")]),
    command("getslotmigrations", 2, flags![ADMIN | STALE | NO_ASYNC_LOADING]).docs(
        "9.0.0",
        "Tells of migrations of slots, those under way and those that ended lately.",
        "O(N) for N migrations",
    ),
    command("help", 2, flags![LOADING | STALE]).docs("5.0.0", "Explains the subcommands.", "O(1)"),
    command("info", 2, flags![LOADING | STALE])
        .docs("3.0.0", "Tells how the cluster fares, as this node sees it.", "O(1)")
        .tips(&["nondeterministic_output"]),
    command("keyslot", 3, flags![STALE])
        .docs("3.0.0", "Tells which slot a key belongs to.", "O(N) for N bytes of the key")
        .arguments(&[string("key")]),
    command("links", 2, flags![STALE])
        .docs("7.0.0", "Describes the connections between this node and the others.", "O(N) for N nodes")
        .tips(&["nondeterministic_output"]),
    command("meet", -4, flags![ADMIN | STALE | NO_ASYNC_LOADING])
        .docs("3.0.0", "Introduces this node to another, so that their clusters become one.", "O(1)")
        .history(&[("4.0.0", "The port of the bus may be given.")])
        .arguments(&[string("ip"), integer("port"), integer("cluster-bus-port").since("4.0.0").optional()]),
    command("migrateslots", -4, flags![ADMIN | STALE | NO_ASYNC_LOADING | ALL_DBS])
        .docs("9.0.0", "Begins to move slots of this node to others.", "O(N) for N slots in the ranges")
        .arguments(&[block(
            "migration-group",
            &[
                token("SLOTSRANGE").named("slotsrange-token"),
                RANGES,
                token("NODE").named("node-token"),
                string("node-id"),
            ],
        )
        .multiple()]),
    command("myid", 2, flags![LOADING | STALE]).docs("3.0.0", "Tells this node's id.", "O(1)"),
    command("myshardid", 2, flags![LOADING | STALE])
        .docs("7.2.0", "Tells the id of the shard that this node belongs to.", "O(1)")
        .tips(&["nondeterministic_output"]),
    command("nodes", 2, flags![LOADING | STALE])
        .docs("3.0.0", "Describes every node, a line each.", "O(N) for N nodes")
        .tips(&["nondeterministic_output"]),
    command("replicas", 3, flags![ADMIN | STALE])
        .docs("5.0.0", "Describes the replicas of a primary.", "O(N) for N replicas")
        .tips(&["nondeterministic_output"])
        .arguments(&[string("node-id")]),
    command("replicate", -3, flags![ADMIN | STALE | NO_ASYNC_LOADING])
        .docs("3.0.0", "Makes this node a replica of another, or of none.", "O(1)")
        .history(&[("9.0.0", "`NO ONE` detaches a replica.")])
        .arguments(&[one_of(
            "args",
            &[string("node-id"), block("no-one", &[token("NO"), token("ONE")]).since("9.0.0")],
        )]),
    command("reset", -2, flags![ADMIN | NOSCRIPT | STALE])
        .docs(
            "3.0.0",
            "Takes this node out of its cluster.",
            "O(N) for N nodes, and that of FLUSHALL where keys have to go",
        )
        .arguments(&[one_of("reset-type", &[token("HARD"), token("SOFT")]).optional()]),
    command("saveconfig", 2, flags![ADMIN | STALE | NO_ASYNC_LOADING]).docs(
        "3.0.0",
        "Writes the cluster's configuration to disk now.",
        "O(1)",
    ),
    command("set-config-epoch", 3, flags![ADMIN | STALE | NO_ASYNC_LOADING])
        .docs("3.0.0", "Sets the epoch of a node that is new.", "O(1)")
        .arguments(&[integer("config-epoch")]),
    command("setslot", -4, flags![ADMIN | STALE | MAY_REPLICATE | NO_ASYNC_LOADING])
        .docs("3.0.0", "Sets the owner of a slot, or what its migration has come to.", "O(1)")
        .history(&[("8.0.0", "`TIMEOUT`.")])
        .arguments(&[
            integer("slot"),
            one_of(
                "subcommand",
                &[
                    string("importing").after("IMPORTING").display("node-id"),
                    string("migrating").after("MIGRATING").display("node-id"),
                    string("node").after("NODE").display("node-id"),
                    token("STABLE"),
                ],
            ),
            integer("timeout").after("TIMEOUT").since("8.0.0").optional(),
        ]),
    command("shards", 2, flags![LOADING | STALE])
        .docs("7.0.0", "Describes the shards: their slots and nodes.", "O(N) for N nodes")
        .history(&[("9.1.0", "`id` of a shard, `availability-zone` of a node.")])
        .tips(&["nondeterministic_output"]),
    command("slaves", 3, flags![ADMIN | STALE])
        .docs("3.0.0", "Describes the replicas of a primary.", "O(N) for N replicas")
        .deprecated("5.0.0", "`CLUSTER REPLICAS`")
        .tips(&["nondeterministic_output"])
        .arguments(&[string("node-id")]),
    command("slot-stats", -4, flags![LOADING | STALE])
        .docs("8.0.0", "Reports how much slots are used.", "O(N) for N slots; O(N*log(N)) with ORDERBY")
        .tips(&["nondeterministic_output", "request_policy:all_shards"])
        .arguments(&[one_of(
            "filter",
            &[
                block("slotsrange", &[integer("start-slot"), integer("end-slot")]).after("SLOTSRANGE"),
                block(
                    "orderby",
                    &[
                        string("metric"),
                        integer("limit").after("LIMIT").optional(),
                        one_of("order", &[token("ASC"), token("DESC")]).optional(),
                    ],
                )
                .after("ORDERBY"),
            ],
        )]),
    command("slots", 2, flags![LOADING | STALE])
        .docs("3.0.0", "Lists ranges of slots and the nodes that serve them.", "O(N) for N nodes")
        .history(&[
            ("4.0.0", "The ids of the nodes."),
            ("7.0.0", "More addresses of a node."),
            ("9.1.0", "`availability-zone` among the addresses."),
        ])
        .tips(&["nondeterministic_output"]),
    command("syncslots", -3, flags![ADMIN | STALE | MAY_REPLICATE | NO_ASYNC_LOADING])
        .docs("9.0.0", "Carries a migration of slots between two nodes; not for clients.", "As the subcommand")
        .internal(),
];
