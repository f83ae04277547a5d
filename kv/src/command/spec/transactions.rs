//! Commands for transactions.

use super::argument::KEY;
use super::flags::{access, flags};
use super::key::at;
use super::{Categories, Flags, Group, Spec};

const fn command(name: &'static str, arity: i8, flags: Flags) -> Spec {
    Spec::new(Group::Transactions, name, arity, flags).listed(Categories::TRANSACTION)
}

pub(super) static COMMANDS: &[Spec] = &[
    command("discard", 1, flags![NOSCRIPT | LOADING | STALE | FAST | ALLOW_BUSY]).docs(
        "2.0.0",
        "Forgets the transaction that has begun.",
        "O(N) for N queued commands",
    ),
    command("exec", 1, flags![NOSCRIPT | LOADING | STALE | SKIP_SLOWLOG]).docs(
        "1.2.0",
        "Runs the transaction that has begun.",
        "As the queued commands",
    ),
    command("multi", 1, flags![NOSCRIPT | LOADING | STALE | FAST | NO_MULTI | ALLOW_BUSY]).docs(
        "1.2.0",
        "Begins a transaction: what follows is queued until EXEC.",
        "O(1)",
    ),
    command("unwatch", 1, flags![NOSCRIPT | LOADING | STALE | FAST | ALLOW_BUSY]).docs(
        "2.2.0",
        "Forgets the keys of WATCH.",
        "O(1)",
    ),
    command("watch", -2, flags![NOSCRIPT | LOADING | STALE | FAST | NO_MULTI | ALLOW_BUSY])
        .keys(&[at(1, access![RO]).through(-1)])
        .docs("2.2.0", "Makes the next EXEC do nothing if one of the keys has changed.", "O(1) per key")
        .arguments(&[KEY.multiple()]),
];
