//! One sorted set of several, or of sets, whose members have the score 1.

use super::{Call, Run, reply_entries, store};
use crate::error::Error;
use crate::keyspace::{Key, Kind};
use crate::resp::number::parse_i64;
use crate::value::score::parse_score;
use crate::value::set::Set;
use crate::value::zset::{Aggregate, Scored, ZSet, diff, inter, inter_len, union};
use crate::value::{Collection, Object};

pub(in crate::command) const RUNS: &[(&str, Run)] = &[
    ("zdiff", |call| show(call, "zdiff", Operation::Diff)),
    ("zdiffstore", |call| keep(call, "zdiffstore", Operation::Diff)),
    ("zinter", |call| show(call, "zinter", Operation::Inter)),
    ("zintercard", zintercard),
    ("zinterstore", |call| keep(call, "zinterstore", Operation::Inter)),
    ("zunion", |call| show(call, "zunion", Operation::Union)),
    ("zunionstore", |call| keep(call, "zunionstore", Operation::Union)),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Union,
    Inter,
    Diff,
}

/// What stands behind the keys.
#[derive(Debug)]
struct Options {
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
}

/// The keys whose count stands in word `at`, which were all looked for and are of a kind that has members. Returns as well
/// the word behind them.
fn sources<'c>(call: &mut Call<'c, '_>, at: usize, name: &str) -> Result<(Vec<Key<'c>>, usize), Error> {
    let count = call.integer(at)?;
    let count = usize::try_from(count).ok().filter(|count| *count > 0);
    let few = || Error::text(format!("ERR at least 1 input key is needed for '{name}' command"));
    let count = count.ok_or_else(few)?;
    let end = at.checked_add(count).filter(|last| *last < call.args.len()).ok_or(Error::SYNTAX)? + 1;
    let keys: Vec<Key<'c>> = (at + 1..end).map(|at| call.key(at)).collect();
    for key in &keys {
        let kind = call.keys.read(*key).map(crate::keyspace::Found::kind);
        if !matches!(kind, None | Some(Kind::SortedSet | Kind::Set)) {
            return Err(Error::WRONG_TYPE);
        }
    }
    Ok((keys, end))
}

impl Options {
    fn read(call: &Call<'_, '_>, at: usize, keys: usize, of: Operation, is_kept: bool) -> Result<Self, Error> {
        let mut options = Self { weights: vec![1.0; keys], aggregate: Aggregate::Sum, with_scores: false };
        let (mut at, args) = (at, call.args);
        while at < args.len() {
            let left = args.len() - at;
            match () {
                () if of != Operation::Diff && left > keys && args.is(at, "WEIGHTS") => {
                    for weight in &mut options.weights {
                        at += 1;
                        *weight = parse_score(&args[at]).ok_or(Error::new("ERR weight value is not a float"))?;
                    }
                }
                () if of != Operation::Diff && left >= 2 && args.is(at, "AGGREGATE") => {
                    at += 1;
                    options.aggregate = match () {
                        () if args.is(at, "SUM") => Aggregate::Sum,
                        () if args.is(at, "MIN") => Aggregate::Min,
                        () if args.is(at, "MAX") => Aggregate::Max,
                        () => return Err(Error::SYNTAX),
                    };
                }
                () if !is_kept && args.is(at, "WITHSCORES") => options.with_scores = true,
                () => return Err(Error::SYNTAX),
            }
            at += 1;
        }
        Ok(options)
    }
}

/// What is behind keys that were just looked for. What is not there is empty.
fn behind<'a>(call: &'a Call<'_, '_>, keys: &[Key<'_>], empty: &'a ZSet) -> Vec<&'a dyn Scored> {
    let database = call.keys.database();
    let of = |key: &Key<'_>| -> &'a dyn Scored {
        let shard = call.keys.shard(key.slot);
        let Some(handle) = shard.find(database, *key) else { return empty };
        let object: &'a Object = shard.object(handle);
        let set = Set::of(object).map(|set| set as &dyn Scored);
        set.or_else(|| ZSet::of(object).map(|set| set as &dyn Scored)).unwrap_or(empty)
    };
    keys.iter().map(of).collect()
}

fn combined(call: &Call<'_, '_>, keys: &[Key<'_>], of: Operation, options: &Options) -> ZSet {
    let (hash_key, empty) = (call.engine.keyspace.hash_key(), ZSet::new());
    let sources = behind(call, keys, &empty);
    let weighted: Vec<_> = sources.iter().copied().zip(options.weights.iter().copied()).collect();
    match of {
        Operation::Union => union(&weighted, options.aggregate, hash_key),
        Operation::Inter => inter(&weighted, options.aggregate, hash_key),
        Operation::Diff => diff(sources[0], &sources[1..], hash_key),
    }
}

fn show(call: &mut Call<'_, '_>, name: &str, of: Operation) -> Result<(), Error> {
    let (keys, end) = sources(call, 1, name)?;
    let options = Options::read(call, end, keys.len(), of, false)?;
    let set = combined(call, &keys, of, &options);
    reply_entries(call.reply, set.iter(), options.with_scores);
    Ok(())
}

fn keep(call: &mut Call<'_, '_>, name: &'static str, of: Operation) -> Result<(), Error> {
    let target = call.key(1);
    let (keys, end) = sources(call, 2, name)?;
    let options = Options::read(call, end, keys.len(), of, true)?;
    let mut set = combined(call, &keys, of, &options);
    set.settle(&call.settings.sorted_set);
    store(call, target, set, name);
    Ok(())
}

fn zintercard(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (keys, end) = sources(call, 1, "zintercard")?;
    let (mut limit, args) = (0, call.args);
    for at in (end..args.len()).step_by(2) {
        if !args.is(at, "LIMIT") || at + 1 == args.len() {
            return Err(Error::SYNTAX);
        }
        let value = parse_i64(&args[at + 1]).and_then(|value| usize::try_from(value).ok());
        limit = value.ok_or(Error::new("ERR LIMIT can't be negative"))?;
    }
    let empty = ZSet::new();
    let count = inter_len(&behind(call, &keys, &empty), limit, call.engine.keyspace.hash_key());
    call.reply.count(count);
    Ok(())
}
