//! Parts of the order: by rank, by score, by member; shown or kept.

use std::ops::Range;

use super::{Call, Run, lex_range, reply_entries, score_range, store};
use crate::error::Error;
use crate::memory::packed::Digits;
use crate::value::zset::{LexRange, ScoreRange, When, ZSet, window};

pub(in crate::command) const RUNS: &[(&str, Run)] = &[
    ("zrange", |call| show(call, None, None)),
    ("zrangebylex", |call| show(call, Some(By::Member), Some(false))),
    ("zrangebyscore", |call| show(call, Some(By::Score), Some(false))),
    ("zrangestore", zrangestore),
    ("zrevrange", |call| show(call, Some(By::Rank), Some(true))),
    ("zrevrangebylex", |call| show(call, Some(By::Member), Some(true))),
    ("zrevrangebyscore", |call| show(call, Some(By::Score), Some(true))),
];

/// What a part of the order is told by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Member,
}

/// A part of the order.
#[derive(Debug, Clone, Copy)]
enum Part<'a> {
    Ranks(i64, i64),
    Scores(ScoreRange),
    Members(LexRange<'a>),
}

/// A part of the order, and how it is read.
#[derive(Debug, Clone, Copy)]
struct Wanted<'a> {
    part: Part<'a>,
    is_reversed: bool,
    /// How many are left out at the beginning, and how many are read then; below zero is all.
    limit: (i64, i64),
    with_scores: bool,
}

impl<'a> Wanted<'a> {
    /// Reads the words from the first bound, word `at`, on. What is not fixed may be an option.
    fn read(
        call: &Call<'a, '_>,
        at: usize,
        fixed_by: Option<By>,
        fixed_reversed: Option<bool>,
        is_kept: bool,
    ) -> Result<Self, Error> {
        let (mut by, mut is_reversed) = (fixed_by, fixed_reversed);
        let (mut limit, mut with_scores) = ((0, -1), false);
        let mut word = at + 2;
        while word < call.args.len() {
            let is = |expected| call.args.is(word, expected);
            match () {
                () if !is_kept && is("WITHSCORES") => with_scores = true,
                () if is("LIMIT") && word + 2 < call.args.len() => {
                    limit = (call.integer(word + 1)?, call.integer(word + 2)?);
                    word += 2;
                }
                // An order that is not fixed may be reversed only once.
                () if is_reversed.is_none() && is("REV") => is_reversed = Some(true),
                () if by.is_none() && is("BYLEX") => by = Some(By::Member),
                () if by.is_none() && is("BYSCORE") => by = Some(By::Score),
                () => return Err(Error::SYNTAX),
            }
            word += 1;
        }
        let (by, is_reversed) = (by.unwrap_or(By::Rank), is_reversed.unwrap_or(false));
        if limit.1 != -1 && by == By::Rank {
            return Err(Error::new(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if with_scores && by == By::Member {
            return Err(Error::new("ERR syntax error, WITHSCORES not supported in combination with BYLEX"));
        }
        let (min, max) = if is_reversed { (at + 1, at) } else { (at, at + 1) };
        let part = match by {
            By::Rank => Part::Ranks(call.integer(at)?, call.integer(at + 1)?),
            By::Score => Part::Scores(score_range(call, min, max)?),
            By::Member => Part::Members(lex_range(call, min, max)?),
        };
        Ok(Self { part, is_reversed, limit, with_scores })
    }

    /// The ranks that it means in a set.
    fn ranks(&self, set: &ZSet) -> Range<usize> {
        let ranks = match &self.part {
            Part::Ranks(start, stop) => return set.ranks_by_rank(*start, *stop, self.is_reversed),
            Part::Scores(range) => set.ranks_by_score(range),
            Part::Members(range) => set.ranks_by_member(range),
        };
        window(ranks, self.limit.0, self.limit.1, self.is_reversed)
    }
}

fn show(call: &mut Call<'_, '_>, by: Option<By>, is_reversed: Option<bool>) -> Result<(), Error> {
    let key = call.key(1);
    let wanted = Wanted::read(call, 2, by, is_reversed, false)?;
    let Some(set) = call.keys.get::<ZSet>(key)? else {
        call.reply.array(0);
        return Ok(());
    };
    let entries = set.range(wanted.ranks(set));
    if wanted.is_reversed {
        reply_entries(call.reply, entries.rev(), wanted.with_scores);
    } else {
        reply_entries(call.reply, entries, wanted.with_scores);
    }
    Ok(())
}

fn zrangestore(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (target, source) = (call.key(1), call.key(2));
    let wanted = Wanted::read(call, 3, None, None, true)?;
    let (hash_key, limits) = (call.engine.keyspace.hash_key(), &call.settings.sorted_set);
    let (mut kept, mut ranks) = (ZSet::new(), 0..0);
    if let Some(set) = call.keys.get::<ZSet>(source)? {
        ranks = wanted.ranks(set);
        kept.prepare(ranks.len(), 0, hash_key, limits);
        for entry in set.range(ranks.clone()) {
            let added =
                kept.add(entry.member.bytes(&mut Digits::default()), entry.score, When::default(), hash_key, limits);
            added.expect("the score of an entry is a number");
        }
    }
    let changes = !ranks.is_empty() || call.keys.contains(target);
    store(call, target, kept, "zrangestore");
    if changes && matches!(wanted.part, Part::Members(_)) {
        // Where scores differ, what lies between two members depends on how the set is kept: ranks do not. None are 1 to 0.
        let (first, last) = if ranks.is_empty() { (1, 0) } else { (ranks.start, ranks.end - 1) };
        let (first, last) = (first.to_string(), last.to_string());
        let words: [&[u8]; 5] = [b"ZRANGESTORE", target.bytes, source.bytes, first.as_bytes(), last.as_bytes()];
        call.trace_as(|_| words.into_iter().collect());
    }
    Ok(())
}
