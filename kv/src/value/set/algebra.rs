//! What sets have in common, together, and what one has that others lack.
//!
//! A key without a set is an empty set: the caller leaves it out of a union or a difference, and knows that an
//! intersection with it is empty. Results that are kept have the form that Valkey would keep them in.

use super::{Form, Limits, Set};
use crate::memory::hash_key::HashKey;
use crate::memory::packed::Packed;
use crate::value::text::Text;

use super::integers::Integers;

/// Shows what is in all of the sets, of which there is one at least: up to so many members. How many that were.
///
/// Takes the time of one look into each other set for each member of the smallest.
pub fn intersection<'a>(sets: &[&'a Set], members_max: usize, key: &HashKey, mut show: impl FnMut(Text<'a>)) -> usize {
    let Some(smallest) = smallest_of(sets) else { return 0 };
    let mut others: Vec<&Set> = sets.iter().copied().filter(|set| !std::ptr::eq(*set, smallest)).collect();
    others.sort_by_key(|set| set.len());
    let common = smallest.iter().filter(|member| others.iter().all(|set| set.contains_text(*member, key)));
    common.take(members_max).map(&mut show).count()
}

/// What is in all of the sets, as a set.
#[must_use]
pub fn intersection_of(sets: &[&Set], key: &HashKey, limits: &Limits) -> Set {
    let form = match smallest_of(sets).map(|set| &set.form) {
        Some(Form::Integers(_)) => Form::Integers(Integers::default()),
        _ => Form::Packed(Packed::new()),
    };
    let mut result = Set { form };
    let mut is_integers = true;
    intersection(sets, usize::MAX, key, |member| {
        is_integers = is_integers && member.integer().is_some();
        result.add_text(member, key, limits);
    });
    if is_integers {
        result.become_integers(limits);
    }
    result
}

/// What is in any of the sets, as a set.
#[must_use]
pub fn union_of(sets: &[&Set], key: &HashKey, limits: &Limits) -> Set {
    let mut result = Set { form: Form::Integers(Integers::default()) };
    let small_max = limits.intset_entries_max.max(limits.listpack_entries_max);
    if sets.iter().any(|set| set.len() > small_max) {
        result.become_table(key);
    }
    for member in sets.iter().flat_map(|set| set.iter()) {
        result.add_text(member, key, limits);
    }
    result
}

/// Shows what is in the first set and in none of the others.
pub fn difference(first: &Set, others: &[&Set], key: &HashKey, limits: &Limits, show: impl FnMut(Text<'_>)) {
    if is_looked_up(first, others) {
        difference_looked_up(first, others, key, show);
    } else {
        difference_of(first, others, key, limits).iter().for_each(show);
    }
}

/// What is in the first set and in none of the others, as a set.
#[must_use]
pub fn difference_of(first: &Set, others: &[&Set], key: &HashKey, limits: &Limits) -> Set {
    let mut result = Set { form: Form::Integers(Integers::default()) };
    if is_looked_up(first, others) {
        difference_looked_up(first, others, key, |member| {
            result.add_text(member, key, limits);
        });
        return result;
    }
    for member in first.iter() {
        result.add_text(member, key, limits);
    }
    for set in others {
        for member in set.iter() {
            if result.is_empty() {
                return result;
            }
            result.remove_text(member, key);
        }
    }
    result
}

/// Whether to look each member of the first set up in the others, and not to take all of the others' members out of a
/// copy. The same choice as Valkey's, as the form of the result depends on it.
fn is_looked_up(first: &Set, others: &[&Set]) -> bool {
    let looks = first.len().saturating_mul(others.len() + 1) / 2;
    let removals = others.iter().fold(first.len(), |sum, set| sum.saturating_add(set.len()));
    looks <= removals || others.iter().any(|set| std::ptr::eq(*set, first))
}

fn difference_looked_up<'a>(first: &'a Set, others: &[&Set], key: &HashKey, show: impl FnMut(Text<'a>)) {
    if others.iter().any(|set| std::ptr::eq(*set, first)) {
        return;
    }
    let mut others = others.to_vec();
    // The largest is the likeliest to have a member.
    others.sort_by_key(|set| std::cmp::Reverse(set.len()));
    first.iter().filter(|member| !others.iter().any(|set| set.contains_text(*member, key))).for_each(show);
}

fn smallest_of<'a>(sets: &[&'a Set]) -> Option<&'a Set> {
    sets.iter().copied().min_by_key(|set| set.len())
}

impl Set {
    /// Becomes a row of integers, which all members must be, if there are few enough.
    fn become_integers(&mut self, limits: &Limits) {
        if limits.takes_integers(self.len()) {
            let mut integers = Integers::default();
            for value in self.iter().filter_map(|member| member.integer()) {
                integers.insert(value);
            }
            self.form = Form::Integers(integers);
        }
    }
}
