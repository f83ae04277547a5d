//! Which words of a call are keys, and what becomes of each.
//!
//! The key specifications of a command tell, or where they cannot its own [`Search`].
//!
//! Valkey's second attempt with C's `atoi`, which takes a count such as `02` or `2x`, is not made: no command takes such a count.
//! Nothing here looks at the keyspace: `BY` and `GET` of `SORT` build names from elements, so those keys are not found.

use std::ops::{Range, RangeInclusive};

use super::flags::access;
use super::{Begin, Find, Flags, KeyFlags, KeySpec, Search, Spec};
use crate::resp::Args;
use crate::resp::number::parse_i64;

/// Why the keys of a call cannot be told. The client is at fault; the same call fails again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeysError {
    /// There is no such command or subcommand.
    UnknownCommand,
    /// It takes no keys.
    NoKeys,
    /// Too few words, or too many.
    WrongNumber,
    /// The words do not make sense.
    InvalidArguments,
}

impl KeysError {
    /// The error reply.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::UnknownCommand => "ERR Invalid command specified",
            Self::NoKeys => "ERR The command has no key arguments",
            Self::WrongNumber => "ERR Invalid number of arguments specified for command",
            Self::InvalidArguments => "ERR Invalid arguments specified for command",
        }
    }
}

/// Calls `found` with the place of each key in a call, the command's name being word 0, and with what becomes of it. A command
/// without keys has none.
///
/// # Errors
/// [`KeysError::InvalidArguments`] where there are no keys although the command needs some: it will fail as well. Nothing was
/// found then.
pub(crate) fn keys_of(spec: &Spec, args: Args<'_>, found: &mut impl FnMut(usize, KeyFlags)) -> Result<(), KeysError> {
    if !spec.has_keys() {
        return Ok(());
    }
    let mut count = 0;
    let mut counting = |at, flags| {
        count += 1;
        found(at, flags);
    };
    let real = spec.keys.iter().filter(|keys| !keys.flags.has(KeyFlags::NOT_KEY));
    let are_variable = || real.clone().any(|keys| keys.flags.has(KeyFlags::VARIABLE_FLAGS));
    if spec.search.is_always_asked() || are_variable() || !by_specs(real.clone(), args, &mut counting) {
        by_search(spec.search, args, &mut counting);
    }
    if count == 0 && !spec.flags.has(Flags::NO_MANDATORY_KEYS) { Err(KeysError::InvalidArguments) } else { Ok(()) }
}

/// Calls `found` with the place of each word that chooses a slot of the cluster: of keys, and of what is no key but is routed as
/// one, such as shard channels. None where the call makes no sense.
pub(crate) fn routes_of(spec: &Spec, args: Args<'_>, found: &mut impl FnMut(usize)) {
    if spec.has_keys() {
        let _ = keys_of(spec, args, &mut |at, _| found(at));
    } else {
        by_specs(spec.keys.iter(), args, &mut |at, _| found(at));
    }
}

/// Whether the specifications fit the call. Nothing is found if not.
fn by_specs<'a>(
    specs: impl Iterator<Item = &'a KeySpec> + Clone,
    args: Args<'_>,
    found: &mut impl FnMut(usize, KeyFlags),
) -> bool {
    let unfit = |spec: &KeySpec| match range_of(spec, args) {
        Ok(found) => found.is_some() && spec.flags.has(KeyFlags::INCOMPLETE),
        Err(Unfit) => true,
    };
    if specs.clone().any(unfit) {
        return false;
    }
    for spec in specs {
        let Ok(Some((range, step))) = range_of(spec, args) else { continue };
        range.step_by(step).for_each(|at| found(at, spec.flags));
    }
    true
}

/// The words do not fit a key specification.
struct Unfit;

/// The first and the last key that a specification finds, and how far they are apart; `None` if its keyword is missing.
fn range_of(spec: &KeySpec, args: Args<'_>) -> Result<Option<(RangeInclusive<usize>, usize)>, Unfit> {
    let begin = match spec.begin {
        Begin::Index(at) => offset(0, at)?,
        Begin::Keyword { word, from } => match keyword(args, word, from) {
            Some(at) => at + 1,
            None => return Ok(None),
        },
        Begin::Unknown => return Err(Unfit),
    };
    let (first, last, step) = match spec.find {
        Find::Range { last, step, .. } if last >= 0 => (begin, offset(begin, last)?, step),
        Find::Range { last, step, limit: 0 } => (begin, offset(args.len(), last)?, step),
        Find::Range { last, step, limit } => {
            let some = args.len().checked_sub(begin).ok_or(Unfit)? / usize::try_from(limit).map_err(|_| Unfit)?;
            (begin, offset(begin + some, last)?, step)
        }
        Find::Count { count_at, first, step } => {
            let count = parse_i64(args.get(offset(begin, count_at)?).ok_or(Unfit)?).ok_or(Unfit)?;
            let count = usize::try_from(count).map_err(|_| Unfit)?.min(args.len());
            let first = offset(begin, first)?;
            let (last, width) = (count.checked_sub(1).ok_or(Unfit)?, usize::from(step.unsigned_abs()));
            // The last key has its value behind it, as all have: a call without it is a syntax error, wherever it is sent.
            if first + last * width + width > args.len() {
                return Err(Unfit);
            }
            (first, first + last * width, step)
        }
        Find::Unknown => return Err(Unfit),
    };
    if last >= args.len() || last < first {
        return Err(Unfit);
    }
    Ok(Some((first..=last, usize::from(step.unsigned_abs()))))
}

/// Where the keyword stands: from word `from` on, but not the last, which has no key behind it; or backwards from that far before
/// the end.
fn keyword(args: Args<'_>, word: &str, from: i8) -> Option<usize> {
    let is_it = |at: &usize| args[*at].eq_ignore_ascii_case(word.as_bytes());
    match usize::try_from(from) {
        Ok(from) => (from..args.len().saturating_sub(1)).find(is_it),
        Err(_) => (2..=args.len().checked_add_signed(isize::from(from))?).rev().find(is_it),
    }
}

fn offset(at: usize, by: i8) -> Result<usize, Unfit> {
    at.checked_add_signed(isize::from(by)).ok_or(Unfit)
}

/// What the command itself finds.
fn by_search(search: Search, args: Args<'_>, found: &mut impl FnMut(usize, KeyFlags)) {
    const READ: KeyFlags = access![RO | ACCESS];
    const OVERWRITTEN: KeyFlags = access![OW | UPDATE];
    const CHANGED: KeyFlags = access![RW | ACCESS | UPDATE];
    match search {
        Search::Specs => {}
        Search::Sort => {
            found(1, READ);
            stored(args).into_iter().for_each(|at| found(at, OVERWRITTEN));
        }
        Search::SortReadOnly => found(1, READ),
        Search::Migrate => migrated(args).for_each(|at| found(at, access![RW | ACCESS | DELETE])),
        Search::Set => {
            let reads = args.from(3).any(|word| word.eq_ignore_ascii_case(b"get"));
            found(1, if reads { CHANGED } else { OVERWRITTEN });
        }
        Search::BitField => found(1, if only_reads(args) { READ } else { CHANGED }),
        Search::LastStore { from } => {
            found(1, READ);
            last_store(args, usize::from(from)).into_iter().for_each(|at| found(at, OVERWRITTEN));
        }
        Search::Streams { from } => streams(args, usize::from(from)).for_each(|at| found(at, READ)),
    }
}

/// The key after the last `STORE` of `SORT`. It is looked at as an option as well, as `SORT` does.
fn stored(args: Args<'_>) -> Option<usize> {
    let (mut at, mut stored) = (2, None);
    while let Some(word) = args.get(at) {
        at += 1;
        match word.to_ascii_lowercase().as_slice() {
            b"limit" => at += 2,
            b"get" | b"by" => at += 1,
            b"store" if at < args.len() => stored = Some(at),
            _ => {}
        }
    }
    stored
}

/// The key after the last `STORE` or `STOREDIST` from word `from` on: the option may be repeated, and the last one counts.
fn last_store(args: Args<'_>, from: usize) -> Option<usize> {
    let (mut at, mut stored) = (from, None);
    while at + 1 < args.len() {
        if args.is(at, "STORE") || args.is(at, "STOREDIST") {
            at += 1;
            stored = Some(at);
        }
        at += 1;
    }
    stored
}

/// The keys of `XREAD` and `XREADGROUP`: the first half of what follows `STREAMS`, unless that names the group or the consumer.
/// The other options have numbers behind them.
fn streams(args: Args<'_>, from: usize) -> Range<usize> {
    let mut at = 1;
    while at < args.len() && (at < from || !args.is(at, "STREAMS")) {
        at += if args.is(at, "GROUP") { 3 } else { 1 };
    }
    let first = args.len().min(at + 1);
    first..first + (args.len() - first) / 2
}

/// The keys of `MIGRATE`: word 3, or all after `KEYS` where that is empty.
fn migrated(args: Args<'_>) -> Range<usize> {
    let mut at = 6;
    while let Some(word) = args.get(at) {
        at += 1;
        match word.to_ascii_lowercase().as_slice() {
            b"keys" if args[3].is_empty() => return at..args.len(),
            b"keys" => return 0..0,
            b"auth" => at += 1,
            b"auth2" => at += 2,
            _ => {}
        }
    }
    3..4
}

/// Whether every operation of `BITFIELD` is `GET`, as far as the words make sense.
fn only_reads(args: Args<'_>) -> bool {
    let mut at = 2;
    while let Some(word) = args.get(at) {
        let left = args.len() - at - 1;
        match word.to_ascii_lowercase().as_slice() {
            b"get" if left >= 2 => at += 3,
            b"overflow" if left >= 1 => at += 2,
            _ => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::spec::table::find_call;
    use crate::resp::Request;

    fn found(call: &str) -> Result<String, KeysError> {
        let call: Request = call.split(' ').map(str::as_bytes).collect();
        let command = find_call(call.args()).ok_or(KeysError::UnknownCommand)?;
        let mut all = Vec::new();
        keys_of(command.spec, call.args(), &mut |at, flags| {
            let flags: Vec<_> = flags.words().collect();
            all.push(format!("{}={}", call.args()[at].escape_ascii(), flags.join(",")));
        })?;
        Ok(if all.is_empty() { "-".into() } else { all.join(" ") })
    }

    #[test]
    fn commands_of_version_9_1() {
        let cases = [
            ("msetex 2 a 1 b 2 ex 10", Ok("a=OW,update b=OW,update")),
            ("msetex 2 a 1 b", Err(KeysError::InvalidArguments)),
            ("msetex 3 a 1 b 2", Err(KeysError::InvalidArguments)),
            ("msetex 0 a 1", Err(KeysError::InvalidArguments)),
            ("hgetex h fields 1 f", Ok("h=RW,access,update")),
            ("hsetex h fields 1 f v", Ok("h=RW,insert")),
            ("hgetdel h fields 1 f", Ok("h=RW,access,delete")),
            ("delifeq k v", Ok("k=RM,delete")),
            ("clusterscan 0 slot 5", Ok("-")),
        ];
        for (call, expected) in cases {
            assert_eq!(found(call).as_deref(), expected.as_deref(), "{call}");
        }
    }

    #[test]
    fn keys_behind_words_that_options_may_hold_too() {
        let cases = [
            ("xread count 1 streams a b 0 0", Ok("a=RO,access b=RO,access")),
            ("xreadgroup group streams c streams k >", Ok("k=RO,access")),
            ("xreadgroup count 1 group streams streams streams k >", Ok("k=RO,access")),
            ("xreadgroup noack block 0 group g streams streams k >", Ok("k=RO,access")),
            ("xreadgroup group g c count streams k >", Ok("k=RO,access")),
            ("xreadgroup group streams streams", Err(KeysError::InvalidArguments)),
            ("xreadgroup streams a b c d e", Err(KeysError::InvalidArguments)),
            ("georadius s 1 1 1 km store a storedist b", Ok("s=RO,access b=OW,update")),
            ("georadius s 1 1 1 km store store", Ok("s=RO,access store=OW,update")),
            ("georadiusbymember s store 1 km count 1 storedist b store a", Ok("s=RO,access a=OW,update")),
            ("georadiusbymember s m 1 km store", Ok("s=RO,access")),
        ];
        for (call, expected) in cases {
            assert_eq!(found(call).as_deref(), expected.as_deref(), "{call}");
        }
    }

    #[test]
    fn counts_that_no_call_can_hold() {
        let more = "9223372036854775807";
        for count in [more, "9223372036854775808", "02", "+2", "2x", "", "-1"] {
            assert_eq!(found(&format!("zunion {count} a b")), Err(KeysError::InvalidArguments), "{count}");
            assert_eq!(found(&format!("eval x {count} a b")).as_deref(), Ok("-"), "{count}");
        }
    }

    #[test]
    fn too_few_words_are_no_harm() {
        for call in
            ["get", "eval", "zunionstore d", "migrate h", "sort", "xread", "xreadgroup", "set", "bitfield", "mset"]
        {
            let call: Request = call.split(' ').map(str::as_bytes).collect();
            let _ = keys_of(find_call(call.args()).unwrap().spec, call.args(), &mut |_, _| {});
        }
    }

    #[test]
    fn what_is_routed_like_a_key() {
        for (call, expected) in [
            ("ssubscribe a b", vec![1, 2]),
            ("spublish c m", vec![1]),
            ("clusterscan 0", vec![1]),
            ("subscribe a", vec![]),
            ("mset a 1 b 2", vec![1, 3]),
            ("zunion 9 a", vec![]),
            ("ping", vec![]),
        ] {
            let words: Request = call.split(' ').map(str::as_bytes).collect();
            let mut found = Vec::new();
            routes_of(find_call(words.args()).unwrap().spec, words.args(), &mut |at| found.push(at));
            assert_eq!(found, expected, "{call}");
        }
    }
}
