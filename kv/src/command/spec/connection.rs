//! Commands about the connection itself, and about the connections of others.

use super::argument::{block, integer, one_of, string, token};
use super::flags::flags;
use super::{Argument, Categories, Flags, Group, Spec};

const fn command(name: &'static str, arity: i8, flags: Flags) -> Spec {
    Spec::new(Group::Connection, name, arity, flags).listed(Categories::CONNECTION)
}

const ENABLED: Argument = one_of("enabled", &[token("ON"), token("OFF")]);

pub(super) static COMMANDS: &[Spec] = &[
    command("auth", -2, flags![NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY])
        .docs("1.0.0", "Logs in as a user.", "O(N) for N passwords of the user")
        .history(&[("6.0.0", "A user name in front of the password.")])
        .arguments(&[string("username").since("6.0.0").optional(), string("password")]),
    command("client", -2, Flags::NONE)
        .listed(Categories::NONE)
        .docs("2.4.0", "Inspects and changes connections.", "As the subcommand")
        .subcommands(CLIENT),
    command("echo", 2, flags![LOADING | STALE | FAST])
        .docs("1.0.0", "Sends back what it was given.", "O(1)")
        .arguments(&[string("message")]),
    command("hello", -1, flags![NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY])
        .docs("6.0.0", "Opens the conversation: version, user, name.", "O(1)")
        .history(&[
            ("8.1.0", "The reply names the availability zone where one is configured."),
            ("6.2.0", "Without a version it only describes the connection."),
        ])
        .arguments(&[block(
            "arguments",
            &[
                integer("protover"),
                block("auth", &[string("username"), string("password")]).after("AUTH").optional(),
                string("clientname").after("SETNAME").optional(),
            ],
        )
        .optional()]),
    command("ping", -1, flags![FAST])
        .docs("1.0.0", "Shows that the server is there.", "O(1)")
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .arguments(&[string("message").optional()]),
    command("quit", -1, flags![NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY]).docs(
        "1.0.0",
        "Closes the connection.",
        "O(1)",
    ),
    command("reset", 1, flags![NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY]).docs(
        "6.2.0",
        "Makes the connection as if it were new.",
        "O(1)",
    ),
    command("select", 2, flags![LOADING | STALE | FAST | ALLOW_BUSY])
        .docs("1.0.0", "Chooses the database of this connection.", "O(1)")
        .arguments(&[integer("index")]),
];

/// Subcommands of `CLIENT`.
static CLIENT: &[Spec] = &[
    command("caching", 3, flags![NOSCRIPT | LOADING | STALE | ALLOW_BUSY])
        .docs("6.0.0", "Says whether the keys of the next command are tracked.", "O(1)")
        .arguments(&[one_of("mode", &[token("YES"), token("NO")])]),
    command("capa", -3, flags![NOSCRIPT | LOADING | STALE | ALLOW_BUSY])
        .docs("8.0.0", "Says what this client is able to do.", "O(1)")
        .arguments(&[string("capability").multiple()]),
    command("getname", 2, flags![NOSCRIPT | LOADING | STALE | ALLOW_BUSY]).docs(
        "2.6.9",
        "Tells this connection's name.",
        "O(1)",
    ),
    command("getredir", 2, flags![NOSCRIPT | LOADING | STALE | ALLOW_BUSY]).docs(
        "6.0.0",
        "Tells which connection gets this one's invalidations.",
        "O(1)",
    ),
    command("help", 2, flags![LOADING | STALE]).docs("5.0.0", "Explains the subcommands.", "O(1)"),
    command("id", 2, flags![NOSCRIPT | LOADING | STALE | ALLOW_BUSY]).docs(
        "5.0.0",
        "Tells this connection's id.",
        "O(1)",
    ),
    command("import-source", 3, flags![NOSCRIPT | LOADING | STALE])
        .docs("8.1.0", "Marks this connection as the source of an import.", "O(1)")
        .arguments(&[ENABLED]),
    command("info", 2, flags![NOSCRIPT | LOADING | STALE])
        .docs("6.2.0", "Describes this connection.", "O(1)")
        .tips(&["nondeterministic_output"]),
    command("kill", -3, flags![ADMIN | NOSCRIPT | LOADING | STALE])
        .docs("2.4.0", "Closes connections.", "O(N) for N connections")
        .history(&[
            ("2.8.12", "Filters."),
            ("2.8.12", "`ID`."),
            ("3.2.0", "`TYPE master`."),
            ("5.0.0", "`TYPE replica`; `slave` means the same."),
            ("6.2.0", "`LADDR`."),
            ("8.0.0", "`MAXAGE`."),
            ("8.0.0", "`TYPE primary`; `master` means the same."),
            ("8.1.0", "`ID` takes several."),
            ("9.0.0", "More filters, and `NOT-` in front of most of them."),
        ])
        .arguments(&[one_of(
            "filter",
            &[
                string("old-format").display("ip:port").deprecated("2.8.12"),
                one_of(
                    "new-format",
                    &[
                        integer("client-id").after("ID").since("2.8.12").optional().multiple(),
                        one_of(
                            "client-type",
                            &[
                                token("NORMAL"),
                                token("MASTER").since("3.2.0"),
                                token("PRIMARY").since("8.0.0"),
                                token("SLAVE"),
                                token("REPLICA").since("5.0.0"),
                                token("PUBSUB"),
                            ],
                        )
                        .after("TYPE")
                        .since("2.8.12")
                        .optional(),
                        string("username").after("USER").optional(),
                        string("addr").after("ADDR").display("ip:port").optional(),
                        string("laddr").after("LADDR").display("ip:port").since("6.2.0").optional(),
                        one_of("skipme", &[token("YES"), token("NO")]).after("SKIPME").optional(),
                        integer("maxage").after("MAXAGE").since("8.0.0").optional(),
                        string("name").after("NAME").since("9.0.0").optional(),
                        integer("idle").after("IDLE").since("9.0.0").optional(),
                        string("flags").after("FLAGS").since("9.0.0").optional(),
                        string("lib-name").after("LIB-NAME").since("9.0.0").optional(),
                        string("lib-ver").after("LIB-VER").since("9.0.0").optional(),
                        integer("db").after("DB").since("9.0.0").optional(),
                        string("capa").after("CAPA").since("9.0.0").optional(),
                        string("ip").after("IP").since("9.0.0").optional(),
                        one_of(
                            "not-client-type",
                            &[
                                token("NORMAL"),
                                token("MASTER"),
                                token("PRIMARY"),
                                token("SLAVE"),
                                token("REPLICA"),
                                token("PUBSUB"),
                            ],
                        )
                        .after("NOT-TYPE")
                        .since("9.0.0")
                        .optional(),
                        integer("not-client-id").after("NOT-ID").since("9.0.0").optional().multiple(),
                        string("not-username").after("NOT-USER").since("9.0.0").optional(),
                        string("not-addr").after("NOT-ADDR").display("ip:port").since("9.0.0").optional(),
                        string("not-laddr").after("NOT-LADDR").display("ip:port").since("9.0.0").optional(),
                        string("not-name").after("NOT-NAME").since("9.0.0").optional(),
                        string("not-flags").after("NOT-FLAGS").since("9.0.0").optional(),
                        string("not-lib-name").after("NOT-LIB-NAME").since("9.0.0").optional(),
                        string("not-lib-ver").after("NOT-LIB-VER").since("9.0.0").optional(),
                        integer("not-db").after("NOT-DB").since("9.0.0").optional(),
                        string("not-capa").after("NOT-CAPA").since("9.0.0").optional(),
                        string("not-ip").after("NOT-IP").since("9.0.0").optional(),
                    ],
                )
                .multiple(),
            ],
        )]),
    command("list", -2, flags![ADMIN | NOSCRIPT | LOADING | STALE])
        .docs("2.4.0", "Describes connections, a line each.", "O(N) for N connections")
        .history(&[
            ("2.8.12", "`id` of a connection."),
            ("5.0.0", "`TYPE`."),
            ("6.0.0", "`user`."),
            ("6.2.0", "`argv-mem`, `tot-mem`, `laddr` and `redir`; the filter `ID`."),
            ("7.0.0", "`resp`, `multi-mem`, `rbs` and `rbp`."),
            ("7.0.3", "`ssub`."),
            ("8.0.0", "`TYPE primary`; `master` means the same."),
            ("8.1.0", "`USER`, `ADDR`, `LADDR`, `SKIPME` and `MAXAGE`."),
            ("9.0.0", "More filters, and `NOT-` in front of most of them."),
        ])
        .tips(&["nondeterministic_output"])
        .arguments(&[
            one_of("client-type", &[token("NORMAL"), token("MASTER"), token("REPLICA"), token("PUBSUB")])
                .after("TYPE")
                .since("5.0.0")
                .optional(),
            integer("client-id").after("ID").since("6.2.0").optional().multiple(),
            string("username").after("USER").since("8.1.0").optional(),
            string("addr").after("ADDR").display("ip:port").since("8.1.0").optional(),
            string("laddr").after("LADDR").display("ip:port").since("8.1.0").optional(),
            one_of("skipme", &[token("YES"), token("NO")]).after("SKIPME").since("8.1.0").optional(),
            integer("maxage").after("MAXAGE").since("8.1.0").optional(),
            string("name").after("NAME").since("9.0.0").optional(),
            integer("idle").after("IDLE").since("9.0.0").optional(),
            string("flags").after("FLAGS").since("9.0.0").optional(),
            string("lib-name").after("LIB-NAME").since("9.0.0").optional(),
            string("lib-ver").after("LIB-VER").since("9.0.0").optional(),
            integer("db").after("DB").since("9.0.0").optional(),
            string("capa").after("CAPA").since("9.0.0").optional(),
            string("ip").after("IP").since("9.0.0").optional(),
            one_of("not-client-type", &[token("NORMAL"), token("MASTER"), token("REPLICA"), token("PUBSUB")])
                .after("NOT-TYPE")
                .since("9.0.0")
                .optional(),
            integer("not-client-id").after("NOT-ID").since("9.0.0").optional().multiple(),
            string("not-username").after("NOT-USER").since("9.0.0").optional(),
            string("not-addr").after("NOT-ADDR").display("ip:port").since("9.0.0").optional(),
            string("not-laddr").after("NOT-LADDR").display("ip:port").since("9.0.0").optional(),
            string("not-name").after("NOT-NAME").since("9.0.0").optional(),
            string("not-flags").after("NOT-FLAGS").since("9.0.0").optional(),
            string("not-lib-name").after("NOT-LIB-NAME").since("9.0.0").optional(),
            string("not-lib-ver").after("NOT-LIB-VER").since("9.0.0").optional(),
            integer("not-db").after("NOT-DB").since("9.0.0").optional(),
            string("not-capa").after("NOT-CAPA").since("9.0.0").optional(),
            string("not-ip").after("NOT-IP").since("9.0.0").optional(),
        ]),
    command("no-evict", 3, flags![ADMIN | NOSCRIPT | LOADING | STALE | ALLOW_BUSY])
        .docs("7.0.0", "Keeps this connection from being closed to save memory.", "O(1)")
        .arguments(&[ENABLED]),
    command("no-touch", 3, flags![NOSCRIPT | LOADING | STALE | ALLOW_BUSY])
        .docs("7.2.0", "Lets this connection's reads leave no trace in the age of keys.", "O(1)")
        .arguments(&[ENABLED]),
    command("pause", -3, flags![ADMIN | NOSCRIPT | LOADING | STALE])
        .docs("3.0.0", "Holds back commands for a while.", "O(1)")
        .history(&[("6.2.0", "`WRITE` and `ALL`.")])
        .arguments(&[integer("timeout"), one_of("mode", &[token("WRITE"), token("ALL")]).since("6.2.0").optional()]),
    command("reply", 3, flags![NOSCRIPT | LOADING | STALE | NO_MULTI | ALLOW_BUSY])
        .docs("3.2.0", "Says whether commands are answered.", "O(1)")
        .arguments(&[one_of("action", &[token("ON"), token("OFF"), token("SKIP")])]),
    command("setinfo", 4, flags![NOSCRIPT | LOADING | STALE | ALLOW_BUSY])
        .docs("7.2.0", "Names the client's library or its version.", "O(1)")
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .arguments(&[one_of("attr", &[string("libname").after("LIB-NAME"), string("libver").after("LIB-VER")])]),
    command("setname", 3, flags![NOSCRIPT | LOADING | STALE | ALLOW_BUSY])
        .docs("2.6.9", "Names this connection.", "O(1)")
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .arguments(&[string("connection-name")]),
    command("tracking", -3, flags![NOSCRIPT | LOADING | STALE])
        .docs("6.0.0", "Says whether the server tells which keys have changed.", "O(1); O(N) for N prefixes")
        .arguments(&[
            one_of("status", &[token("ON"), token("OFF")]),
            integer("client-id").after("REDIRECT").optional(),
            string("prefix").after("PREFIX").optional().multiple_token(),
            token("BCAST").optional(),
            token("OPTIN").optional(),
            token("OPTOUT").optional(),
            token("NOLOOP").optional(),
        ]),
    command("trackinginfo", 2, flags![NOSCRIPT | LOADING | STALE]).docs(
        "6.2.0",
        "Tells how this connection tracks keys.",
        "O(1)",
    ),
    command("unblock", -3, flags![ADMIN | NOSCRIPT | LOADING | STALE])
        .docs("5.0.0", "Wakes a connection that waits in a command.", "O(log N) for N connections")
        .arguments(&[integer("client-id"), one_of("unblock-type", &[token("TIMEOUT"), token("ERROR")]).optional()]),
    command("unpause", 2, flags![ADMIN | NOSCRIPT | LOADING | STALE]).docs(
        "6.2.0",
        "Ends what CLIENT PAUSE began.",
        "O(N) for N paused clients",
    ),
];
