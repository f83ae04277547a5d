//! Sorted sets: members with a score each, in the order of score, then member.
//!
//! A small one is a [`Packed`] of pairs in that order (`short`); a large one is a table of members and a tree of the same
//! entries (`long`). Which it is, is told to clients as the encoding; it grows by Valkey's `zset-max-listpack-entries`
//! and `zset-max-listpack-value`, and never becomes small again by itself.
//!
//! A place in the order is a rank, and a part of the order is a range of ranks: by score, by member or by rank, it is found
//! first ([`ZSet::ranks_by_score`] and the others) and then read, counted or removed. Reading it backwards is `rev`.
//!
//! Not here: keys, replies, options. An empty set is for its owner to remove. No score is ever not a number.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Range;

use crate::memory::arena::Handle;
use crate::memory::hash_key::HashKey;
use crate::memory::index::below;
use crate::memory::packed::{Digits, Packed, Piece, Place};
use crate::memory::tree::Handles;
use crate::value::dict::Dict;
use crate::value::span::span;
use crate::value::text::Text;

mod bounds;
mod combine;
mod long;
mod short;

pub use bounds::{LexBound, LexRange, ScoreBound, ScoreRange, window};
pub use combine::{Aggregate, Scored, diff, inter, inter_len, union};
use long::Long;

/// How much a small sorted set may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Members: the setting `zset-max-listpack-entries`.
    pub listpack_entries_max: usize,
    /// Bytes of one member: the setting `zset-max-listpack-value`.
    pub listpack_value_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { listpack_entries_max: 128, listpack_value_bytes_max: 64 }
    }
}

impl Limits {
    const fn allow(&self, entries: usize, value_bytes: usize) -> bool {
        entries <= self.listpack_entries_max && value_bytes <= self.listpack_value_bytes_max
    }
}

/// A member and its score.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// The member.
    pub member: Text<'a>,
    /// Its score.
    pub score: f64,
}

impl Entry<'_> {
    /// How this entry is ordered against another.
    fn order(&self, score: f64, member: &[u8]) -> Ordering {
        order((self.score, self.member.bytes(&mut Digits::default())), (score, member))
    }
}

fn order(one: (f64, &[u8]), other: (f64, &[u8])) -> Ordering {
    one.0.partial_cmp(&other.0).expect("no score is not a number").then_with(|| one.1.cmp(other.1))
}

/// The result would be a score that is not a number. The caller's fault; nothing has changed, and a retry fails as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotANumber;

/// Under which conditions a score is set: those that are true must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct When {
    /// The member is not there yet (`NX`).
    pub is_new: bool,
    /// The member is there (`XX`).
    pub is_known: bool,
    /// The new score is greater, if the member is there (`GT`).
    pub is_greater: bool,
    /// The new score is less, if the member is there (`LT`).
    pub is_less: bool,
}

/// What became of a score that was to be set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Outcome {
    /// The member was added, with this score.
    Added(f64),
    /// The member has this score instead of another.
    Updated(f64),
    /// The member had this score already.
    Same(f64),
    /// A condition did not hold.
    Refused,
}

impl Outcome {
    /// The score that the member has now, unless a condition did not hold.
    #[must_use]
    pub const fn score(self) -> Option<f64> {
        match self {
            Self::Added(score) | Self::Updated(score) | Self::Same(score) => Some(score),
            Self::Refused => None,
        }
    }
}

/// A sorted set.
#[derive(Debug, Clone)]
pub struct ZSet {
    body: Body,
}

#[derive(Debug, Clone)]
enum Body {
    Short(Packed),
    Long(Box<Long>),
}

impl Default for ZSet {
    fn default() -> Self {
        Self::new()
    }
}

impl ZSet {
    /// An empty sorted set.
    #[must_use]
    pub const fn new() -> Self {
        Self { body: Body::Short(Packed::new()) }
    }

    /// A set of what was gathered in a table of scores, eight bytes each, little-endian, in the form that fits.
    pub(crate) fn from_members(members: Dict, limits: &Limits) -> Self {
        let mut set = Self { body: Body::Long(Box::new(Long::from_members(members))) };
        set.settle(limits);
        set
    }

    /// A set of entries that come in their order, with members that the caller has found to be different. `None` if they do
    /// not, or a score is not a number.
    pub(crate) fn from_ordered<'a>(
        entries: impl Iterator<Item = (Piece<'a>, f64)>,
        key: &HashKey,
        limits: &Limits,
    ) -> Option<Self> {
        let (mut packed, mut before): (Packed, Option<(Piece<'a>, f64)>) = (Packed::new(), None);
        for (member, score) in entries {
            if score.is_nan() {
                return None;
            }
            let is_after = before.is_none_or(|(before, least)| {
                let before = Entry { member: before.into(), score: least };
                before.order(score, member.bytes(&mut Digits::default())).is_lt()
            });
            if !is_after {
                return None;
            }
            short::push_back(&mut packed, member, score);
            before = Some((member, score));
        }
        let mut set = Self { body: Body::Short(packed) };
        set.prepare(set.len(), 0, key, limits);
        Some(set)
    }

    /// Takes the form that fits, if so many entries with members of up to so many bytes are about to be added. Only ever
    /// to the large one.
    pub fn prepare(&mut self, entries: usize, value_bytes: usize, key: &HashKey, limits: &Limits) {
        if !limits.allow(entries, value_bytes) {
            self.lengthen(key);
        }
    }

    /// How many members there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.body {
            Body::Short(packed) => packed.len() / 2,
            Body::Long(long) => long.len(),
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it has the small form.
    #[must_use]
    pub const fn is_short(&self) -> bool {
        matches!(self.body, Body::Short(_))
    }

    /// The map that finds its members, if it is a large one.
    pub(crate) fn dict(&self) -> Option<&Dict> {
        match &self.body {
            Body::Long(long) => Some(long.members()),
            Body::Short(_) => None,
        }
    }

    /// The name that `OBJECT ENCODING` gives the form.
    #[must_use]
    pub const fn encoding(&self) -> &'static str {
        match self.body {
            Body::Short(_) => "listpack",
            Body::Long(_) => "skiplist",
        }
    }

    /// How many bytes of memory are held, this value itself aside. Looks at every node.
    #[must_use]
    pub fn bytes_held(&self) -> usize {
        match &self.body {
            Body::Short(packed) => packed.bytes_held(),
            Body::Long(long) => size_of::<Long>() + long.bytes_held(),
        }
    }

    /// The score of a member.
    #[must_use]
    pub fn score(&self, member: &[u8], key: &HashKey) -> Option<f64> {
        self.find(member, key).map(|(_, score)| score)
    }

    /// The rank of a member from the front, and its score. From the back it is `len - 1 - rank`.
    #[must_use]
    pub fn rank(&self, member: &[u8], key: &HashKey) -> Option<(usize, f64)> {
        let score = self.score(member, key)?;
        let rank = match &self.body {
            Body::Short(_) => self.iter().take_while(|entry| entry.order(score, member).is_lt()).count(),
            Body::Long(long) => long.rank_of(score, member),
        };
        Some((rank, score))
    }

    /// Sets the score of a member.
    ///
    /// # Errors
    /// [`NotANumber`]: the caller's fault.
    pub fn add(
        &mut self,
        member: &[u8],
        score: f64,
        when: When,
        key: &HashKey,
        limits: &Limits,
    ) -> Result<Outcome, NotANumber> {
        if score.is_nan() {
            return Err(NotANumber);
        }
        self.set(member, when, key, limits, |_| score)
    }

    /// Adds to the score of a member, which is 0 for one that is not there.
    ///
    /// # Errors
    /// [`NotANumber`]: the caller's fault.
    pub fn increment(
        &mut self,
        member: &[u8],
        by: f64,
        when: When,
        key: &HashKey,
        limits: &Limits,
    ) -> Result<Outcome, NotANumber> {
        if by.is_nan() {
            return Err(NotANumber);
        }
        self.set(member, when, key, limits, |score| score.map_or(by, |score| score + by))
    }

    fn set(
        &mut self,
        member: &[u8],
        when: When,
        key: &HashKey,
        limits: &Limits,
        score_of: impl Fn(Option<f64>) -> f64,
    ) -> Result<Outcome, NotANumber> {
        let Some((spot, before)) = self.find(member, key) else {
            if when.is_known {
                return Ok(Outcome::Refused);
            }
            let score = score_of(None);
            self.insert_new(member, score, key, limits);
            return Ok(Outcome::Added(score));
        };
        if when.is_new {
            return Ok(Outcome::Refused);
        }
        let score = score_of(Some(before));
        if score.is_nan() {
            return Err(NotANumber);
        }
        if (when.is_less && score >= before) || (when.is_greater && score <= before) {
            return Ok(Outcome::Refused);
        }
        // As Valkey does, one zero is not put in the place of the other.
        if score == before {
            return Ok(Outcome::Same(score));
        }
        match (&mut self.body, spot) {
            (Body::Short(packed), Spot::Short(place)) => {
                packed.remove_many(place, 2);
                short::insert(packed, member, score);
            }
            (Body::Long(long), Spot::Long(handle)) => long.set_score(handle, score),
            _ => unreachable!("the form has not changed since the member was found"),
        }
        Ok(Outcome::Updated(score))
    }

    /// Where a member is, and its score.
    fn find(&self, member: &[u8], key: &HashKey) -> Option<(Spot, f64)> {
        Some(match &self.body {
            Body::Short(packed) => {
                let (place, score) = short::find(packed, member)?;
                (Spot::Short(place), score)
            }
            Body::Long(long) => {
                let (handle, score) = long.find(member, key)?;
                (Spot::Long(handle), score)
            }
        })
    }

    fn insert_new(&mut self, member: &[u8], score: f64, key: &HashKey, limits: &Limits) {
        if !limits.allow(self.len() + 1, member.len()) {
            self.lengthen(key);
        }
        match &mut self.body {
            Body::Short(packed) => short::insert(packed, member, score),
            Body::Long(long) => long.insert(member, score, key),
        }
    }

    /// Removes a member; its score, if it was there.
    pub fn remove(&mut self, member: &[u8], key: &HashKey) -> Option<f64> {
        match &mut self.body {
            Body::Short(packed) => {
                let (place, score) = short::find(packed, member)?;
                packed.remove_many(place, 2);
                Some(score)
            }
            Body::Long(long) => long.remove(member, key),
        }
    }

    /// The entry at a rank.
    #[must_use]
    pub fn nth(&self, rank: usize) -> Option<Entry<'_>> {
        self.range(rank..rank.saturating_add(1)).next()
    }

    /// The ranks of the entries with scores in a range.
    #[must_use]
    pub fn ranks_by_score(&self, range: &ScoreRange) -> Range<usize> {
        let start = self.partition_by_score(|score| !range.is_above_min(score));
        let end = self.partition_by_score(|score| range.is_below_max(score));
        start..end.max(start)
    }

    /// The ranks of the entries with members in a range, where all scores are the same. Where they are not, nothing is
    /// promised of which ranks these are.
    #[must_use]
    pub fn ranks_by_member(&self, range: &LexRange<'_>) -> Range<usize> {
        let start = self.partition_by_member(|member| !range.is_above_min(member));
        let end = self.partition_by_member(|member| range.is_below_max(member));
        start..end.max(start)
    }

    /// The ranks from one position to another, both within, from the back where they are negative; counted from the last
    /// entry if the order is reversed.
    #[must_use]
    pub fn ranks_by_rank(&self, start: i64, stop: i64, is_reversed: bool) -> Range<usize> {
        let len = self.len();
        let span = span(start, stop, len);
        if is_reversed { len - span.end..len - span.start } else { span }
    }

    /// The entries at some ranks, from either end.
    #[must_use]
    pub fn range(&self, ranks: Range<usize>) -> Entries<'_> {
        Entries(match &self.body {
            Body::Short(packed) => Source::Short(short::range(packed, ranks)),
            Body::Long(long) => Source::Long(long, long.handles(ranks)),
        })
    }

    /// All entries, from either end.
    #[must_use]
    pub fn iter(&self) -> Entries<'_> {
        self.range(0..self.len())
    }

    /// Removes the entries at some ranks; how many that were.
    pub fn remove_range(&mut self, ranks: Range<usize>, key: &HashKey) -> usize {
        let before = self.len();
        match &mut self.body {
            Body::Short(packed) => short::remove_range(packed, ranks),
            Body::Long(long) => long.remove_range(ranks, key),
        }
        before - self.len()
    }

    /// The ranks of up to so many entries with the least scores, or the greatest: what `ZPOPMIN` and `ZPOPMAX` read in
    /// this order, or backwards, and then remove.
    #[must_use]
    pub fn ranks_at_end(&self, is_greatest: bool, count_max: usize) -> Range<usize> {
        let len = self.len();
        let count = count_max.min(len);
        if is_greatest { len - count..len } else { 0..count }
    }

    /// An entry, each with the same chance.
    #[must_use]
    pub fn random(&self, mut draw: impl FnMut() -> u64) -> Option<Entry<'_>> {
        if self.is_empty() { None } else { self.nth(below(draw(), self.len())) }
    }

    /// The ranks of so many different entries, each choice with the same chance, in ascending order. All if there are
    /// not more.
    #[must_use]
    pub fn random_ranks(&self, count: usize, mut draw: impl FnMut() -> u64) -> Vec<usize> {
        let len = self.len();
        let count = count.min(len);
        // Where most are chosen, those that are not are drawn.
        let is_inverted = count > len / 2;
        let drawn = if is_inverted { len - count } else { count };
        // Floyd's sampling (Bentley, Floyd: "A sample of brilliance", 1987).
        let mut chosen = BTreeSet::new();
        for limit in len - drawn..len {
            let rank = below(draw(), limit + 1);
            if !chosen.insert(rank) {
                chosen.insert(limit);
            }
        }
        if is_inverted {
            return (0..len).filter(|rank| !chosen.contains(rank)).collect();
        }
        chosen.into_iter().collect()
    }

    /// Visits about so many entries, from a cursor that an earlier call returned, 0 at first; the next cursor, 0 at the
    /// end. What is there all the time is visited, even if others come and go. A small set is visited at once.
    pub fn scan<'a>(&'a self, cursor: u32, count: usize, key: &HashKey, mut visit: impl FnMut(Entry<'a>)) -> u32 {
        match &self.body {
            Body::Short(_) => {
                self.iter().for_each(visit);
                0
            }
            Body::Long(long) => long.scan(cursor, count, key, &mut visit),
        }
    }

    /// How many entries at the front have scores that answer yes.
    fn partition_by_score(&self, mut is_before: impl FnMut(f64) -> bool) -> usize {
        match &self.body {
            Body::Short(_) => self.iter().take_while(|entry| is_before(entry.score)).count(),
            Body::Long(long) => long.partition_by_score(is_before),
        }
    }

    /// How many entries at the front have members that answer yes, where all that do come before all that do not.
    fn partition_by_member(&self, mut is_before: impl FnMut(&[u8]) -> bool) -> usize {
        match &self.body {
            Body::Short(_) => {
                self.iter().take_while(|entry| is_before(entry.member.bytes(&mut Digits::default()))).count()
            }
            Body::Long(long) => long.partition_by_member(is_before),
        }
    }

    /// Becomes large.
    fn lengthen(&mut self, key: &HashKey) {
        if matches!(self.body, Body::Long(_)) {
            return;
        }
        let mut long = Long::default();
        for entry in &*self {
            long.push_back(entry.member.bytes(&mut Digits::default()), entry.score, key);
        }
        self.body = Body::Long(Box::new(long));
    }

    /// Becomes small if it may: the form that the result of a command has.
    pub fn settle(&mut self, limits: &Limits) {
        let Body::Long(long) = &self.body else { return };
        if limits.allow(long.len(), 0) && self.iter().all(|entry| limits.allow(0, entry.member.len())) {
            let mut packed = Packed::new();
            for entry in self.iter() {
                short::push_back(&mut packed, entry.member.piece(), entry.score);
            }
            self.body = Body::Short(packed);
        }
    }
}

/// Where a member is, until the set changes.
#[derive(Debug, Clone, Copy)]
enum Spot {
    Short(Place),
    Long(Handle),
}

impl<'a> IntoIterator for &'a ZSet {
    type Item = Entry<'a>;
    type IntoIter = Entries<'a>;

    fn into_iter(self) -> Entries<'a> {
        self.iter()
    }
}

/// A part of a sorted set, from either end.
#[derive(Debug, Clone)]
pub struct Entries<'a>(Source<'a>);

#[derive(Debug, Clone)]
enum Source<'a> {
    Short(short::Pairs<'a>),
    Long(&'a Long, Handles<'a>),
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        match &mut self.0 {
            Source::Short(pairs) => pairs.next(),
            Source::Long(long, handles) => handles.next().map(|handle| long.entry(handle)),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.0 {
            Source::Short(pairs) => pairs.size_hint(),
            Source::Long(_, handles) => handles.size_hint(),
        }
    }
}

impl DoubleEndedIterator for Entries<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Source::Short(pairs) => pairs.next_back(),
            Source::Long(long, handles) => handles.next_back().map(|handle| long.entry(handle)),
        }
    }
}

impl ExactSizeIterator for Entries<'_> {}

#[cfg(test)]
mod tests;
