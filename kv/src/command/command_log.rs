//! `SLOWLOG` and `COMMANDLOG`: the latest commands that were slow, or large, or had large replies.

use super::call::{Call, Run};
use super::help;
use crate::error::Error;
use crate::resp::number::parse_i64;
use crate::statistics::command_log::{Entry, Kind};

pub(super) const RUNS: &[(&str, Run)] = &[
    ("slowlog|get", |call| get(call, Some(2), Kind::Slow)),
    ("slowlog|len", |call| len(call, Kind::Slow)),
    ("slowlog|reset", |call| reset(call, Kind::Slow)),
    ("slowlog|help", slow_help),
    ("commandlog|get", |call| {
        let kind = kind(call, 3)?;
        get(call, Some(2), kind)
    }),
    ("commandlog|len", |call| {
        let kind = kind(call, 2)?;
        len(call, kind)
    }),
    ("commandlog|reset", |call| {
        let kind = kind(call, 2)?;
        reset(call, kind)
    }),
    ("commandlog|help", command_help),
];

/// Entries that are shown unless a count is given.
const COUNT_DEFAULT: usize = 10;

/// The log that word `at` names.
fn kind(call: &Call<'_, '_>, at: usize) -> Result<Kind, Error> {
    let known = Kind::from_name(&call.args[at]);
    known.ok_or(Error::new("ERR type should be one of the following: slow, large-request, large-reply"))
}

fn get(call: &mut Call<'_, '_>, at: Option<usize>, kind: Kind) -> Result<(), Error> {
    let word = at.and_then(|at| call.args.get(at));
    let count = match word {
        None => COUNT_DEFAULT,
        Some(word) => {
            let count = parse_i64(word).filter(|count| *count >= -1);
            let count = count.ok_or(Error::new("ERR count should be greater than or equal to -1"))?;
            usize::try_from(count).unwrap_or(usize::MAX)
        }
    };
    let log = call.engine.statistics.logs.get(kind);
    call.reply.array(log.entries.len().min(count));
    for entry in log.entries.iter().take(count) {
        write(call.reply, entry);
    }
    Ok(())
}

fn write(reply: &mut crate::resp::Reply, entry: &Entry) {
    let small = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    reply.array(6);
    reply.integer(small(entry.number));
    reply.integer(entry.at_s);
    reply.integer(small(entry.figure));
    reply.array(entry.words.len());
    entry.words.iter().for_each(|word| reply.bulk(word));
    reply.bulk(entry.peer.as_bytes());
    reply.bulk(&entry.name);
}

fn len(call: &mut Call<'_, '_>, kind: Kind) -> Result<(), Error> {
    call.reply.count(call.engine.statistics.logs.get(kind).entries.len());
    Ok(())
}

fn reset(call: &mut Call<'_, '_>, kind: Kind) -> Result<(), Error> {
    call.engine.statistics.logs.get(kind).entries.clear();
    call.reply.ok();
    Ok(())
}

fn slow_help(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let lines = [
        ("GET [<count>]", "Return top <count> entries from the slowlog (default: 10, -1 mean all)."),
        ("LEN", "Return the length of the slowlog."),
        ("RESET", "Reset the slowlog."),
    ];
    help::write(call, "SLOWLOG", &lines)
}

fn command_help(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let lines = [
        ("GET <count> <type>", "Return top <count> entries of the specified <type> from the commandlog (-1 mean all)."),
        ("LEN <type>", "Return the length of the specified type of commandlog."),
        ("RESET <type>", "Reset the specified type of commandlog."),
    ];
    help::write(call, "COMMANDLOG", &lines)
}
