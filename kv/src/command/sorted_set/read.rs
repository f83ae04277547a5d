//! What there is to know of members: scores, ranks, counts, some at random, all of them bit by bit.

use super::{Call, Run, lex_range, reply_entries, reply_score, score_range};
use crate::error::Error;
use crate::glob;
use crate::memory::packed::Digits;
use crate::value::score::write_score;
use crate::value::zset::{Entry, ZSet};

pub(in crate::command) const RUNS: &[(&str, Run)] = &[
    ("zcard", zcard),
    ("zcount", zcount),
    ("zlexcount", zlexcount),
    ("zmscore", zmscore),
    ("zrandmember", zrandmember),
    ("zrank", |call| rank(call, "zrank", false)),
    ("zrevrank", |call| rank(call, "zrevrank", true)),
    ("zscan", zscan),
    ("zscore", zscore),
];

/// Entries that one step of a scan looks at unless COUNT says otherwise.
const COUNT_DEFAULT: usize = 10;
/// The most entries that are drawn with repetition: what they take is not bounded by what the set holds.
const REPEATED_MAX: usize = 1 << 27;

fn zcard(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(1);
    let len = call.keys.get::<ZSet>(key)?.map_or(0, ZSet::len);
    call.reply.count(len);
    Ok(())
}

fn zcount(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, range) = (call.key(1), score_range(call, 2, 3)?);
    let count = call.keys.get::<ZSet>(key)?.map_or(0, |set| set.ranks_by_score(&range).len());
    call.reply.count(count);
    Ok(())
}

fn zlexcount(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, range) = (call.key(1), lex_range(call, 2, 3)?);
    let count = call.keys.get::<ZSet>(key)?.map_or(0, |set| set.ranks_by_member(&range).len());
    call.reply.count(count);
    Ok(())
}

fn zscore(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, hash_key) = (call.key(1), call.engine.keyspace.hash_key());
    match call.keys.get::<ZSet>(key)?.and_then(|set| set.score(&call.args[2], hash_key)) {
        Some(score) => reply_score(call.reply, score),
        None => call.reply.null(),
    }
    Ok(())
}

fn zmscore(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, hash_key) = (call.key(1), call.engine.keyspace.hash_key());
    let set = call.keys.get::<ZSet>(key)?;
    call.reply.array(call.args.len() - 2);
    for member in call.args.from(2) {
        match set.and_then(|set| set.score(member, hash_key)) {
            Some(score) => reply_score(call.reply, score),
            None => call.reply.null(),
        }
    }
    Ok(())
}

fn rank(call: &mut Call<'_, '_>, name: &str, is_reversed: bool) -> Result<(), Error> {
    let with_score = match call.args.len() {
        3 => false,
        4 if call.args.is(3, "WITHSCORE") => true,
        4 => return Err(Error::SYNTAX),
        _ => return Err(Error::wrong_number(name)),
    };
    let (key, hash_key) = (call.key(1), call.engine.keyspace.hash_key());
    let set = call.keys.get::<ZSet>(key)?;
    let found = set.and_then(|set| set.rank(&call.args[2], hash_key).map(|found| (set.len(), found)));
    match found {
        Some((len, (rank, score))) => {
            let rank = if is_reversed { len - 1 - rank } else { rank };
            if with_score {
                call.reply.array(2);
            }
            call.reply.count(rank);
            if with_score {
                reply_score(call.reply, score);
            }
        }
        None if with_score => call.reply.null_array(),
        None => call.reply.null(),
    }
    Ok(())
}

fn zrandmember(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, engine) = (call.key(1), call.engine);
    if call.args.len() == 2 {
        match call.keys.get::<ZSet>(key)?.and_then(|set| set.random(|| engine.draw())) {
            Some(entry) => call.reply.bulk(entry.member.bytes(&mut Digits::default())),
            None => call.reply.null(),
        }
        return Ok(());
    }
    let count = call.integer(2)?;
    if count == i64::MIN {
        return Err(Error::text(format!("ERR value is out of range, value must between -{0} and {0}", i64::MAX)));
    }
    let with_scores = call.args.len() == 4 && call.args.is(3, "WITHSCORES");
    if call.args.len() > 3 && !with_scores {
        return Err(Error::SYNTAX);
    }
    let magnitude = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    if with_scores && count.unsigned_abs() > i64::MAX.unsigned_abs() / 2 || count < 0 && magnitude > REPEATED_MAX {
        return Err(Error::OUT_OF_RANGE);
    }
    let Some(set) = call.keys.get::<ZSet>(key)? else {
        call.reply.array(0);
        return Ok(());
    };
    let entry = |rank| set.nth(rank).expect("the rank is within the set");
    if count < 0 {
        let any = || set.random(|| engine.draw()).expect("no set that is there is empty");
        reply_entries(call.reply, (0..magnitude).map(|_| any()), with_scores);
    } else {
        let ranks = set.random_ranks(magnitude, || engine.draw());
        reply_entries(call.reply, ranks.into_iter().map(entry), with_scores);
    }
    Ok(())
}

/// What ZSCAN shows.
struct Filter<'a> {
    pattern: Option<&'a [u8]>,
    count: usize,
    members_only: bool,
}

impl<'a> Filter<'a> {
    fn read(call: &Call<'a, '_>) -> Result<Self, Error> {
        let mut filter = Self { pattern: None, count: COUNT_DEFAULT, members_only: false };
        let mut at = 3;
        while at < call.args.len() {
            match call.args.get(at + 1) {
                Some(_) if call.args.is(at, "COUNT") => {
                    let count = call.integer(at + 1)?;
                    filter.count = usize::try_from(count).ok().filter(|count| *count > 0).ok_or(Error::SYNTAX)?;
                    at += 1;
                }
                Some(pattern) if call.args.is(at, "MATCH") => {
                    filter.pattern = Some(pattern);
                    at += 1;
                }
                _ if call.args.is(at, "NOVALUES") => {
                    return Err(Error::new("ERR NOVALUES option can only be used in HSCAN"));
                }
                _ if call.args.is(at, "NOSCORES") => filter.members_only = true,
                _ => return Err(Error::SYNTAX),
            }
            at += 1;
        }
        Ok(filter)
    }
}

fn zscan(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, hash_key) = (call.key(1), call.engine.keyspace.hash_key());
    let text = std::str::from_utf8(&call.args[2]).ok();
    let cursor: u64 = text.and_then(|text| text.parse().ok()).ok_or(Error::new("ERR invalid cursor"))?;
    let filter = Filter::read(call);
    let Some(set) = call.keys.get::<ZSet>(key)? else {
        call.reply.array(2);
        call.reply.bulk(b"0");
        call.reply.array(0);
        return Ok(());
    };
    let filter = filter?;
    let mut shown: Vec<Entry<'_>> = Vec::new();
    // A cursor that no scan returned is at the end.
    let next = u32::try_from(cursor).map_or(0, |cursor| {
        set.scan(cursor, filter.count, hash_key, |entry| {
            if filter
                .pattern
                .is_none_or(|pattern| glob::matches(pattern, entry.member.bytes(&mut Digits::default()), false))
            {
                shown.push(entry);
            }
        })
    });
    call.reply.array(2);
    call.reply.bulk_integer(next.into());
    call.reply.array(if filter.members_only { shown.len() } else { 2 * shown.len() });
    let (mut text, is_large) = (Vec::new(), set.encoding() == "skiplist");
    for entry in shown {
        call.reply.bulk(entry.member.bytes(&mut Digits::default()));
        if !filter.members_only {
            text.clear();
            if is_large {
                write_all_digits(entry.score, &mut text);
            } else {
                write_score(entry.score, &mut text);
            }
            call.reply.bulk(&text);
        }
    }
    Ok(())
}

/// Appends a score as a scan of a large set shows it in Valkey: rounded to 17 digits, as C's `%.17g`.
fn write_all_digits(score: f64, out: &mut Vec<u8>) {
    let scientific = format!("{score:.16e}");
    let split = scientific.split_once('e').and_then(|(digits, power)| Some((digits, power.parse::<i32>().ok()?)));
    let Some((digits, power)) = split else { return write_score(score, out) };
    let trimmed = |text: &str| text.trim_end_matches('0').trim_end_matches('.').to_owned();
    let text = match usize::try_from(16 - power) {
        Ok(decimals @ 1..=20) => trimmed(&format!("{score:.decimals$}")),
        Ok(0) => format!("{score:.0}"),
        _ => {
            let sign = if power < 0 { '-' } else { '+' };
            format!("{}e{sign}{:02}", trimmed(digits), power.unsigned_abs())
        }
    };
    out.extend_from_slice(text.as_bytes());
}
