//! Unions, intersections and differences of sorted sets, and of sets, whose members all have the score 1.
//!
//! Where scores are added and one is infinite each way, or an infinite one has the weight 0, the result is 0, as in Valkey:
//! a score is never not a number. Sources are taken the smallest first, which decides the last digits of a sum.
//!
//! A result has the large form; one that is kept is for [`ZSet::settle`].

use super::long::{Long, score_of};
use super::{Body, ZSet};
use crate::memory::hash_key::HashKey;
use crate::memory::packed::Digits;
use crate::value::dict::{Dict, Entry};
use crate::value::set::Set;

/// Something that has members with scores.
pub trait Scored {
    /// How many members there are.
    fn members(&self) -> usize;

    /// The score of a member.
    fn score_of(&self, member: &[u8], key: &HashKey) -> Option<f64>;

    /// Visits all members until one visit says false.
    fn visit_scores(&self, visit: &mut dyn FnMut(&[u8], f64) -> bool);
}

impl Scored for ZSet {
    fn members(&self) -> usize {
        self.len()
    }

    fn score_of(&self, member: &[u8], key: &HashKey) -> Option<f64> {
        self.score(member, key)
    }

    fn visit_scores(&self, visit: &mut dyn FnMut(&[u8], f64) -> bool) {
        for entry in self {
            if !visit(entry.member.bytes(&mut Digits::default()), entry.score) {
                return;
            }
        }
    }
}

impl Scored for Set {
    fn members(&self) -> usize {
        self.len()
    }

    fn score_of(&self, member: &[u8], key: &HashKey) -> Option<f64> {
        self.contains(member, key).then_some(1.0)
    }

    fn visit_scores(&self, visit: &mut dyn FnMut(&[u8], f64) -> bool) {
        for member in self.iter() {
            if !visit(member.bytes(&mut Digits::default()), 1.0) {
                return;
            }
        }
    }
}

/// What becomes of the scores that a member has in several sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Aggregate {
    /// They are added.
    #[default]
    Sum,
    /// The least.
    Min,
    /// The greatest.
    Max,
}

impl Aggregate {
    fn of(self, total: f64, score: f64) -> f64 {
        match self {
            Self::Sum => or_zero(total + score),
            Self::Min if score < total => score,
            Self::Max if score > total => score,
            Self::Min | Self::Max => total,
        }
    }
}

const fn or_zero(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// What is combined, with its weight.
type Weighted<'a> = (&'a dyn Scored, f64);

/// The smallest first.
fn sorted<'a>(sources: &[Weighted<'a>]) -> Vec<Weighted<'a>> {
    let mut sources = sources.to_vec();
    sources.sort_by_key(|(source, _)| source.members());
    sources
}

fn finish(members: Dict) -> ZSet {
    ZSet { body: Body::Long(Box::new(Long::from_members(members))) }
}

fn put(members: &mut Dict, member: &[u8], score: f64, key: &HashKey) {
    members.insert(key, Entry { member, value: &score.to_le_bytes(), expiry_ms: None });
}

/// All members of all sources. What is not there is an empty source or none.
#[must_use]
pub fn union(sources: &[(&dyn Scored, f64)], aggregate: Aggregate, key: &HashKey) -> ZSet {
    let mut members = Dict::new();
    for (source, weight) in sorted(sources) {
        source.visit_scores(&mut |member, score| {
            let score = or_zero(weight * score);
            let before = members.get(key, member).map(score_of);
            put(&mut members, member, before.map_or(score, |before| aggregate.of(before, score)), key);
            true
        });
    }
    finish(members)
}

/// The members that all sources have. One that is not there must be given as an empty source.
#[must_use]
pub fn inter(sources: &[(&dyn Scored, f64)], aggregate: Aggregate, key: &HashKey) -> ZSet {
    let mut members = Dict::new();
    visit_common(sources, key, &mut |member, scores| {
        // Only the first product that is not a number counts as 0 by itself, as in Valkey.
        let (first, rest) = scores.split_first().expect("a score for each source");
        let total = rest.iter().fold(or_zero(*first), |total, score| aggregate.of(total, *score));
        put(&mut members, member, total, key);
        true
    });
    finish(members)
}

/// How many members all sources have, counted up to a limit if that is not 0.
#[must_use]
pub fn inter_len(sources: &[&dyn Scored], limit: usize, key: &HashKey) -> usize {
    let sources: Vec<Weighted<'_>> = sources.iter().map(|source| (*source, 1.0)).collect();
    let mut count = 0;
    visit_common(&sources, key, &mut |_, _| {
        count += 1;
        count != limit
    });
    count
}

/// Visits the members that all sources have, with their weighted scores, the smallest source first.
fn visit_common(sources: &[Weighted<'_>], key: &HashKey, visit: &mut dyn FnMut(&[u8], &[f64]) -> bool) {
    let sources = sorted(sources);
    let Some(((smallest, weight), others)) = sources.split_first() else { return };
    let mut scores = Vec::with_capacity(sources.len());
    smallest.visit_scores(&mut |member, score| {
        scores.clear();
        scores.push(weight * score);
        for (source, weight) in others {
            let Some(score) = source.score_of(member, key) else { return true };
            scores.push(weight * score);
        }
        visit(member, &scores)
    });
}

/// The members of the first source that no other has, with their scores.
#[must_use]
pub fn diff(first: &dyn Scored, others: &[&dyn Scored], key: &HashKey) -> ZSet {
    let mut members = Dict::new();
    first.visit_scores(&mut |member, score| {
        if !others.iter().any(|other| other.score_of(member, key).is_some()) {
            put(&mut members, member, score, key);
        }
        true
    });
    finish(members)
}
