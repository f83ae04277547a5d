//! Sorted sets.
//!
//! [`add`] changes them, [`read`] tells of members, [`range`] of parts of the order, [`pop`] takes from an end, or waits for
//! that, [`combine`] makes one of several. Here is what they share.

use super::call::{Call, Run};
use crate::error::Error;
use crate::keyspace::{Expiry, Key};
use crate::memory::packed::Digits;
use crate::resp::{Protocol, Reply};
use crate::settings::Events;
use crate::value::score::{SCORE_BYTES_MAX, write_score};
use crate::value::zset::{Entry, LexRange, ScoreRange, ZSet};

pub(super) mod add;
pub(super) mod combine;
pub(super) mod pop;
pub(super) mod range;
pub(super) mod read;

/// Replies a score.
pub(super) fn reply_score(reply: &mut Reply, score: f64) {
    let mut text = Vec::with_capacity(SCORE_BYTES_MAX);
    write_score(score, &mut text);
    reply.double(&text);
}

/// Replies entries: members, or members with scores, which are pairs of their own in RESP3.
pub(super) fn reply_entries<'a>(
    reply: &mut Reply,
    entries: impl ExactSizeIterator<Item = Entry<'a>>,
    with_scores: bool,
) {
    let is_flat = reply.protocol() == Protocol::Resp2;
    reply.array(if with_scores && is_flat { 2 * entries.len() } else { entries.len() });
    for entry in entries {
        if with_scores && !is_flat {
            reply.array(2);
        }
        reply.bulk(entry.member.bytes(&mut Digits::default()));
        if with_scores {
            reply_score(reply, entry.score);
        }
    }
}

/// Members have gone: subscribers are told, and a set without members goes.
pub(super) fn removed(call: &mut Call<'_, '_>, key: Key<'_>, count: usize, event: &'static str) {
    call.changed_by(count, key, Events::SORTED_SET, event);
    if call.keys.remove_if_empty::<ZSet>(key) {
        call.notify(Events::GENERIC, "del", key.bytes);
    }
}

/// Keeps a result in place of what a key has, and replies how many members it has. An empty result removes the key.
pub(super) fn store(call: &mut Call<'_, '_>, key: Key<'_>, set: ZSet, event: &'static str) {
    call.reply.count(set.len());
    if !set.is_empty() {
        call.keys.put(key, set, Expiry::Never);
        call.changed(key, Events::SORTED_SET, event);
    } else if call.keys.remove(key).is_some() {
        call.changed(key, Events::GENERIC, "del");
    }
}

/// A range of scores in two words.
pub(super) fn score_range(call: &Call<'_, '_>, min: usize, max: usize) -> Result<ScoreRange, Error> {
    ScoreRange::parse(&call.args[min], &call.args[max]).ok_or(Error::new("ERR min or max is not a float"))
}

/// A range of members in two words.
pub(super) fn lex_range<'c>(call: &Call<'c, '_>, min: usize, max: usize) -> Result<LexRange<'c>, Error> {
    let word = |at| call.args.get(at).expect("the arity was checked");
    LexRange::parse(word(min), word(max)).ok_or(Error::new("ERR min or max not valid string range item"))
}
