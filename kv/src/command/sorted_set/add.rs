//! Members come, get other scores, and go.

use std::ops::Range;

use super::{Call, Run, lex_range, removed, reply_score, score_range};
use crate::error::Error;
use crate::resp::number::parse_i64;
use crate::settings::Events;
use crate::value::score::parse_score;
use crate::value::zset::{NotANumber, Outcome, When, ZSet};

pub(in crate::command) const RUNS: &[(&str, Run)] = &[
    ("zadd", |call| add(call, false)),
    ("zincrby", |call| add(call, true)),
    ("zrem", zrem),
    ("zremrangebylex", zremrangebylex),
    ("zremrangebyrank", zremrangebyrank),
    ("zremrangebyscore", zremrangebyscore),
];

/// The options of ZADD.
#[derive(Debug, Default)]
pub(in crate::command) struct Options {
    pub(in crate::command) when: When,
    /// Changed scores are counted too.
    pub(in crate::command) counts_changed: bool,
    increments: bool,
    /// The word of the first score.
    at: usize,
}

impl Options {
    fn read(call: &Call<'_, '_>, increments: bool) -> Result<Self, Error> {
        let mut options = Self { increments, at: 2, ..Self::default() };
        loop {
            let is = |word| call.args.is(options.at, word);
            let when = &mut options.when;
            match () {
                () if is("NX") => when.is_new = true,
                () if is("XX") => when.is_known = true,
                () if is("GT") => when.is_greater = true,
                () if is("LT") => when.is_less = true,
                () if is("CH") => options.counts_changed = true,
                () if is("INCR") => options.increments = true,
                () => break,
            }
            options.at += 1;
        }
        let words = call.args.len() - options.at;
        let When { is_new, is_known, is_greater, is_less } = options.when;
        if words == 0 || !words.is_multiple_of(2) {
            return Err(Error::SYNTAX);
        }
        if is_new && is_known {
            return Err(Error::new("ERR XX and NX options at the same time are not compatible"));
        }
        if is_new && (is_greater || is_less) || is_greater && is_less {
            return Err(Error::new("ERR GT, LT, and/or NX options at the same time are not compatible"));
        }
        if options.increments && words > 2 {
            return Err(Error::new("ERR INCR option supports a single increment-element pair"));
        }
        Ok(options)
    }
}

fn add(call: &mut Call<'_, '_>, increments: bool) -> Result<(), Error> {
    let options = Options::read(call, increments)?;
    let scores = call.args.from(options.at).step_by(2).map(|word| parse_score(word).ok_or(Error::NOT_FLOAT));
    let scores = scores.collect::<Result<Vec<f64>, Error>>()?;
    let members = call.args.from(options.at + 1).step_by(2);
    let entries: Vec<(f64, &[u8])> = scores.into_iter().zip(members).collect();
    put(call, &options, &entries)
}

/// Sets, or increments, the scores of members of the set in word 1, and replies what came of it.
pub(in crate::command) fn put(
    call: &mut Call<'_, '_>,
    options: &Options,
    entries: &[(f64, &[u8])],
) -> Result<(), Error> {
    let key = call.key(1);
    if call.keys.get_mut::<ZSet>(key)?.is_none() && options.when.is_known {
        if options.increments {
            call.reply.null();
        } else {
            call.reply.integer(0);
        }
        return Ok(());
    }
    let (hash_key, limits) = (call.engine.keyspace.hash_key(), &call.settings.sorted_set);
    let longest = entries.iter().map(|(_, member)| member.len()).max().unwrap_or(0);
    let set = call.keys.get_or_insert(key, ZSet::new)?;
    set.prepare(set.len().max(entries.len()), longest, hash_key, limits);
    let (mut added, mut updated, mut last) = (0, 0, None);
    for (score, member) in entries {
        let done = if options.increments {
            set.increment(member, *score, options.when, hash_key, limits)
        } else {
            set.add(member, *score, options.when, hash_key, limits)
        };
        let done = done.map_err(|NotANumber| Error::new("ERR resulting score is not a number (NaN)"))?;
        added += usize::from(matches!(done, Outcome::Added(_)));
        updated += usize::from(matches!(done, Outcome::Updated(_)));
        last = done.score();
    }
    if added + updated > 0 {
        let event = if options.increments { "zincr" } else { "zadd" };
        call.changed_by(added + updated, key, Events::SORTED_SET, event);
    }
    match last {
        Some(score) if options.increments => reply_score(call.reply, score),
        None if options.increments => call.reply.null(),
        _ => call.reply.count(if options.counts_changed { added + updated } else { added }),
    }
    Ok(())
}

fn zrem(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, hash_key) = (call.key(1), call.engine.keyspace.hash_key());
    let count = match call.keys.get_mut::<ZSet>(key)? {
        Some(set) => call.args.from(2).filter(|member| set.remove(member, hash_key).is_some()).count(),
        None => 0,
    };
    if count > 0 {
        removed(call, key, count, "zrem");
    }
    call.reply.count(count);
    Ok(())
}

/// Removes the entries at the ranks that are told for a set.
fn remove_range(
    call: &mut Call<'_, '_>,
    event: &'static str,
    ranks: impl FnOnce(&ZSet) -> Range<usize>,
) -> Result<(), Error> {
    let (key, hash_key) = (call.key(1), call.engine.keyspace.hash_key());
    let count = match call.keys.get_mut::<ZSet>(key)? {
        Some(set) => {
            let ranks = ranks(set);
            set.remove_range(ranks, hash_key)
        }
        None => 0,
    };
    if count > 0 {
        removed(call, key, count, event);
    }
    call.reply.count(count);
    Ok(())
}

fn zremrangebyrank(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let place = |at: usize| parse_i64(&call.args[at]).ok_or(Error::NOT_INTEGER);
    let (start, stop) = (place(2)?, place(3)?);
    remove_range(call, "zremrangebyrank", |set| set.ranks_by_rank(start, stop, false))
}

fn zremrangebyscore(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let range = score_range(call, 2, 3)?;
    remove_range(call, "zremrangebyscore", |set| set.ranks_by_score(&range))
}

fn zremrangebylex(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, range) = (call.key(1), lex_range(call, 2, 3)?);
    let mut ranks = 0..0;
    remove_range(call, "zremrangebylex", |set| {
        ranks = set.ranks_by_member(&range);
        ranks.clone()
    })?;
    if !ranks.is_empty() {
        // Where scores differ, what lies between two members depends on how the set is kept: ranks do not.
        let (first, last) = (ranks.start.to_string(), (ranks.end - 1).to_string());
        call.trace_as(|_| [b"ZREMRANGEBYRANK", key.bytes, first.as_bytes(), last.as_bytes()].into_iter().collect());
    }
    Ok(())
}
