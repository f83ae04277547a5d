//! Commands that run scripts and functions.

use super::argument::{KEY, integer, one_of, string, token};
use super::flags::{access, flags};
use super::key::counted;
use super::{Categories, Flags, Group, Spec};

const fn command(name: &'static str, arity: i8, flags: Flags) -> Spec {
    Spec::new(Group::Scripting, name, arity, flags).listed(Categories::SCRIPTING)
}

pub(super) static COMMANDS: &[Spec] = &[
    command("eval", -3, flags![NOSCRIPT | STALE | SKIP_MONITOR | MAY_REPLICATE | NO_MANDATORY_KEYS])
        .keys(&[counted(2, access![RW | ACCESS | UPDATE]).notes("Only the code knows what it does with a key")])
        .docs("2.6.0", "Runs a script.", "As the script")
        .arguments(&[
            string("script"),
            integer("numkeys"),
            KEY.optional().multiple(),
            string("arg").optional().multiple(),
        ]),
    command("eval_ro", -3, flags![READONLY | NOSCRIPT | STALE | SKIP_MONITOR | NO_MANDATORY_KEYS])
        .keys(&[counted(2, access![RO | ACCESS]).notes("Only the code knows what it reads of a key")])
        .docs("7.0.0", "Runs a script that only reads.", "As the script")
        .arguments(&[
            string("script"),
            integer("numkeys"),
            KEY.optional().multiple(),
            string("arg").optional().multiple(),
        ]),
    command("evalsha", -3, flags![NOSCRIPT | STALE | SKIP_MONITOR | MAY_REPLICATE | NO_MANDATORY_KEYS])
        .keys(&[counted(2, access![RW | ACCESS | UPDATE])])
        .docs("2.6.0", "Runs a script that is named by its digest.", "As the script")
        .arguments(&[
            string("sha1"),
            integer("numkeys"),
            KEY.optional().multiple(),
            string("arg").optional().multiple(),
        ]),
    command("evalsha_ro", -3, flags![READONLY | NOSCRIPT | STALE | SKIP_MONITOR | NO_MANDATORY_KEYS])
        .keys(&[counted(2, access![RO | ACCESS])])
        .docs("7.0.0", "Runs a script that only reads and is named by its digest.", "As the script")
        .arguments(&[
            string("sha1"),
            integer("numkeys"),
            KEY.optional().multiple(),
            string("arg").optional().multiple(),
        ]),
    command("fcall", -3, flags![NOSCRIPT | STALE | SKIP_MONITOR | MAY_REPLICATE | NO_MANDATORY_KEYS])
        .keys(&[counted(2, access![RW | ACCESS | UPDATE]).notes("Only the code knows what it does with a key")])
        .docs("7.0.0", "Calls a function.", "As the function")
        .arguments(&[
            string("function"),
            integer("numkeys"),
            KEY.optional().multiple(),
            string("arg").optional().multiple(),
        ]),
    command("fcall_ro", -3, flags![READONLY | NOSCRIPT | STALE | SKIP_MONITOR | NO_MANDATORY_KEYS])
        .keys(&[counted(2, access![RO | ACCESS]).notes("Only the code knows what it reads of a key")])
        .docs("7.0.0", "Calls a function that only reads.", "As the function")
        .arguments(&[
            string("function"),
            integer("numkeys"),
            KEY.optional().multiple(),
            string("arg").optional().multiple(),
        ]),
    command("function", -2, Flags::NONE)
        .listed(Categories::NONE)
        .docs("7.0.0", "Loads, lists and deletes functions.", "As the subcommand")
        .subcommands(FUNCTION),
    command("script", -2, Flags::NONE)
        .listed(Categories::NONE)
        .docs("2.6.0", "Looks after the scripts that the server remembers.", "As the subcommand")
        .subcommands(SCRIPT),
];

/// Subcommands of `FUNCTION`.
static FUNCTION: &[Spec] = &[
    command("delete", 3, flags![WRITE | NOSCRIPT])
        .docs("7.0.0", "Deletes a library.", "O(1)")
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .arguments(&[string("library-name")]),
    command("dump", 2, flags![NOSCRIPT]).docs(
        "7.0.0",
        "Writes all libraries as bytes that FUNCTION RESTORE reads.",
        "O(N) for N functions",
    ),
    command("flush", -2, flags![WRITE | NOSCRIPT])
        .docs("7.0.0", "Deletes all libraries.", "O(N) for N functions deleted")
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .arguments(&[one_of("flush-type", &[token("ASYNC"), token("SYNC")]).optional()]),
    command("help", 2, flags![LOADING | STALE]).docs("7.0.0", "Explains the subcommands.", "O(1)"),
    command("kill", 2, flags![NOSCRIPT | ALLOW_BUSY])
        .docs("7.0.0", "Stops the function that runs.", "O(1)")
        .tips(&["request_policy:all_shards", "response_policy:one_succeeded"]),
    command("list", -2, flags![NOSCRIPT])
        .docs("7.0.0", "Describes libraries and their functions.", "O(N) for N functions")
        .tips(&["nondeterministic_output_order"])
        .arguments(&[string("library-name-pattern").after("LIBRARYNAME").optional(), token("WITHCODE").optional()]),
    command("load", -3, flags![WRITE | DENYOOM | NOSCRIPT])
        .docs("7.0.0", "Adds a library.", "O(1) besides compiling")
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .arguments(&[token("REPLACE").optional(), string("function-code")]),
    command("restore", -3, flags![WRITE | DENYOOM | NOSCRIPT])
        .docs("7.0.0", "Adds the libraries that FUNCTION DUMP wrote.", "O(N) for N functions in the payload")
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .arguments(&[
            string("serialized-value"),
            one_of("policy", &[token("FLUSH"), token("APPEND"), token("REPLACE")]).optional(),
        ]),
    command("stats", 2, flags![NOSCRIPT | ALLOW_BUSY])
        .docs("7.0.0", "Describes the function that runs, and the engines.", "O(1)")
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
];

/// Subcommands of `SCRIPT`.
static SCRIPT: &[Spec] = &[
    command("debug", -3, flags![NOSCRIPT])
        .docs("3.2.0", "Says whether scripts of this connection run in the debugger.", "O(1)")
        .arguments(&[
            one_of("mode", &[token("YES"), token("SYNC"), token("NO")]),
            string("engine").since("9.1.0").optional(),
        ]),
    command("exists", -3, flags![NOSCRIPT | STALE])
        .docs("2.6.0", "Tells which scripts the server remembers.", "O(N) for N digests")
        .tips(&["request_policy:all_shards", "response_policy:agg_logical_and"])
        .arguments(&[string("sha1").multiple()]),
    command("flush", -2, flags![NOSCRIPT | STALE])
        .docs("2.6.0", "Forgets all scripts.", "O(N) for N scripts")
        .history(&[("6.2.0", "`ASYNC` and `SYNC`.")])
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .arguments(&[one_of("flush-type", &[token("ASYNC"), token("SYNC")]).since("6.2.0").optional()]),
    command("help", 2, flags![LOADING | STALE]).docs("5.0.0", "Explains the subcommands.", "O(1)"),
    command("kill", 2, flags![NOSCRIPT | ALLOW_BUSY])
        .docs("2.6.0", "Stops the script that runs.", "O(1)")
        .tips(&["request_policy:all_shards", "response_policy:one_succeeded"]),
    command("load", 3, flags![NOSCRIPT | STALE])
        .docs("2.6.0", "Remembers a script without running it.", "O(N) for N bytes of the script")
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .arguments(&[string("script")]),
    command("show", 3, flags![NOSCRIPT | STALE])
        .docs("8.0.0", "Shows the text of a script that the server remembers.", "O(1)")
        .arguments(&[string("sha1")]),
];
