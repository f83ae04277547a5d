//! Which words of a call are secret: nobody who looks at commands sees them.

use super::spec::table::Command;
use crate::resp::Args;
use crate::settings::parameter;

/// Whether word `at` of a call is a password, or tells about users.
pub(crate) fn is_secret(command: &Command, args: Args<'_>, at: usize) -> bool {
    let container = command.container().map_or("", |container| container.spec.name);
    match (container, command.spec.name) {
        ("", "auth") => at >= 1,
        ("", "hello") => follows(args, 2, "AUTH", at, 2),
        ("", "migrate") => follows(args, 6, "AUTH", at, 1) || follows(args, 6, "AUTH2", at, 2),
        ("acl", "setuser" | "deluser" | "getuser") => at >= 2,
        ("config", "set") => at >= 3 && at % 2 == 1 && parameter::is_secret(&args[at - 1]),
        _ => false,
    }
}

/// Whether word `at` is one of the `count` words behind an option that stands at word `from` or later.
fn follows(args: Args<'_>, from: usize, option: &str, at: usize, count: usize) -> bool {
    (at.saturating_sub(count).max(from)..at).any(|place| args.is(place, option))
}
