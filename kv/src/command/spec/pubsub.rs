//! Commands that send messages to channels and listen to them.

use super::argument::{pattern, string};
use super::flags::{access, flags};
use super::key::at;
use super::{Flags, Group, Spec};

const fn command(name: &'static str, arity: i8, flags: Flags) -> Spec {
    Spec::new(Group::PubSub, name, arity, flags)
}

pub(super) static COMMANDS: &[Spec] = &[
    command("psubscribe", -2, flags![PUBSUB | NOSCRIPT | LOADING | STALE])
        .docs("2.0.0", "Listens to channels whose names match patterns.", "O(N) for N patterns")
        .arguments(&[pattern("pattern").multiple()]),
    command("publish", 3, flags![PUBSUB | LOADING | STALE | FAST | MAY_REPLICATE])
        .docs(
            "2.0.0",
            "Sends a message to a channel.",
            "O(N+M) for N subscribers of the channel and M patterns of all clients",
        )
        .arguments(&[string("channel"), string("message")]),
    command("pubsub", -2, Flags::NONE)
        .docs("2.8.0", "Looks at channels and subscriptions.", "As the subcommand")
        .subcommands(PUBSUB),
    command("punsubscribe", -1, flags![PUBSUB | NOSCRIPT | LOADING | STALE])
        .docs("2.0.0", "Stops listening to patterns.", "O(N) for N patterns")
        .arguments(&[pattern("pattern").optional().multiple()]),
    command("spublish", 3, flags![PUBSUB | LOADING | STALE | FAST | MAY_REPLICATE])
        .keys(&[at(1, access![NOT_KEY])])
        .docs("7.0.0", "Sends a message to a shard channel.", "O(N) for N subscribers of the channel")
        .arguments(&[string("shardchannel"), string("message")]),
    command("ssubscribe", -2, flags![PUBSUB | NOSCRIPT | LOADING | STALE])
        .keys(&[at(1, access![NOT_KEY]).through(-1)])
        .docs("7.0.0", "Listens to shard channels.", "O(N) for N channels")
        .arguments(&[string("shardchannel").multiple()]),
    command("subscribe", -2, flags![PUBSUB | NOSCRIPT | LOADING | STALE])
        .docs("2.0.0", "Listens to channels.", "O(N) for N channels")
        .arguments(&[string("channel").multiple()]),
    command("sunsubscribe", -1, flags![PUBSUB | NOSCRIPT | LOADING | STALE])
        .keys(&[at(1, access![NOT_KEY]).through(-1)])
        .docs("7.0.0", "Stops listening to shard channels.", "O(N) for N channels")
        .arguments(&[string("shardchannel").optional().multiple()]),
    command("unsubscribe", -1, flags![PUBSUB | NOSCRIPT | LOADING | STALE])
        .docs("2.0.0", "Stops listening to channels.", "O(N) for N channels")
        .arguments(&[string("channel").optional().multiple()]),
];

/// Subcommands of `PUBSUB`.
static PUBSUB: &[Spec] = &[
    command("channels", -2, flags![PUBSUB | LOADING | STALE])
        .docs("2.8.0", "Names the channels that somebody listens to.", "O(N) for N active channels")
        .arguments(&[pattern("pattern").optional()]),
    command("help", 2, flags![LOADING | STALE]).docs("6.2.0", "Explains the subcommands.", "O(1)"),
    command("numpat", 2, flags![PUBSUB | LOADING | STALE]).docs(
        "2.8.0",
        "Counts the patterns that somebody listens to.",
        "O(1)",
    ),
    command("numsub", -2, flags![PUBSUB | LOADING | STALE])
        .docs("2.8.0", "Counts the subscribers of channels.", "O(N) for N channels asked for")
        .arguments(&[string("channel").optional().multiple()]),
    command("shardchannels", -2, flags![PUBSUB | LOADING | STALE])
        .docs("7.0.0", "Names the shard channels that somebody listens to.", "O(N) for N active shard channels")
        .arguments(&[pattern("pattern").optional()]),
    command("shardnumsub", -2, flags![PUBSUB | LOADING | STALE])
        .docs("7.0.0", "Counts the subscribers of shard channels.", "O(N) for N shard channels asked for")
        .arguments(&[string("shardchannel").optional().multiple()]),
];
