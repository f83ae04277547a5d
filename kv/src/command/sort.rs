//! SORT: the elements of a list, a set or a sorted set in order, by themselves or by what other keys hold for them.

use std::cmp::Ordering;

use super::call::{Call, Run};
use super::spec::table;
use crate::error::Error;
use crate::keyspace::{Expiry, Kind};
use crate::settings::Events;
use crate::value::Object;
use crate::value::hash::Hash;
use crate::value::list::{End, List};
use crate::value::score::parse_score;

pub(super) const RUNS: &[(&str, Run)] = &[("sort", |call| sort(call, true)), ("sort_ro", |call| sort(call, false))];

const BY_DENIED: Error = Error::new("ERR BY option of SORT denied due to insufficient ACL permissions.");
const GET_DENIED: Error = Error::new("ERR GET option of SORT denied due to insufficient ACL permissions.");

/// What SORT is asked for.
#[derive(Debug, Default)]
struct Options<'a> {
    is_descending: bool,
    is_text: bool,
    /// The first element wanted, and how many; all if below zero.
    limit: (i64, i64),
    by: Option<&'a [u8]>,
    get: Vec<&'a [u8]>,
    store: Option<&'a [u8]>,
}

impl<'a> Options<'a> {
    fn read(call: &Call<'a, '_>, may_store: bool) -> Result<Self, Error> {
        let command = table::find_call(call.args).expect("it was found before it ran");
        let may_read_all = call.client.user.may_read_any_key(command, call.args, call.engine.databases_of(call.client));
        let mut options = Self { limit: (0, -1), ..Self::default() };
        let mut at = 2;
        while at < call.args.len() {
            let is = |word| call.args.is(at, word);
            let next = call.args.get(at + 1);
            at += match next {
                _ if is("ASC") || is("DESC") => {
                    options.is_descending = is("DESC");
                    1
                }
                _ if is("ALPHA") => {
                    options.is_text = true;
                    1
                }
                Some(_) if is("LIMIT") && at + 2 < call.args.len() => {
                    options.limit = (call.integer(at + 1)?, call.integer(at + 2)?);
                    3
                }
                Some(key) if is("STORE") && may_store => {
                    options.store = Some(key);
                    2
                }
                Some(pattern) if is("BY") => {
                    if pattern.contains(&b'*') && !may_read_all {
                        return Err(BY_DENIED);
                    }
                    options.by = Some(pattern);
                    2
                }
                Some(_) if is("GET") && !may_read_all => return Err(GET_DENIED),
                Some(pattern) if is("GET") => {
                    options.get.push(pattern);
                    2
                }
                _ => return Err(Error::SYNTAX),
            };
        }
        Ok(options)
    }

    /// The elements wanted, of so many.
    fn range(&self, len: usize) -> std::ops::Range<usize> {
        let place = |at: i64| usize::try_from(at.max(0)).unwrap_or(usize::MAX).min(len);
        let start = place(self.limit.0);
        let count = if self.limit.1 < 0 { len } else { place(self.limit.1) };
        start..start.saturating_add(count).min(len)
    }
}

/// What an element is sorted by.
#[derive(Debug)]
enum Weight {
    Number(f64),
    /// Nothing comes before everything.
    Text(Option<Vec<u8>>),
}

impl Weight {
    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number(left), Self::Number(right)) => left.partial_cmp(right).expect("no number is read as none"),
            (Self::Text(left), Self::Text(right)) => left.cmp(right),
            _ => unreachable!("all are of one sort"),
        }
    }
}

fn sort(call: &mut Call<'_, '_>, may_store: bool) -> Result<(), Error> {
    let options = Options::read(call, may_store)?;
    let (mut elements, kind) = elements(call)?;
    let is_sorted = options.by.is_none_or(|pattern| pattern.contains(&b'*'));
    if is_sorted {
        elements = in_order(call, elements, &options, options.by)?;
    } else if kind == Kind::Set && (options.store.is_some() || call.engine.scripts.running.is_on()) {
        // What is stored must not depend on the order of a table, nor what a script does.
        let as_text = Options { is_text: true, is_descending: options.is_descending, ..Options::default() };
        elements = in_order(call, elements, &as_text, None)?;
    } else if kind != Kind::Set && options.is_descending {
        elements.reverse();
    }
    let wanted = options.range(elements.len());
    let results = results(call, &elements[wanted], &options.get);
    let Some(target) = options.store else {
        call.reply.array(results.len());
        for result in results {
            match result {
                Some(text) => call.reply.bulk(&text),
                None => call.reply.null(),
            }
        }
        return Ok(());
    };
    store(call, target, &results);
    Ok(())
}

/// The elements to be sorted, in the order of their collection, and what that is.
fn elements(call: &mut Call<'_, '_>) -> Result<(Vec<Vec<u8>>, Kind), Error> {
    let key = call.key(1);
    let Some(found) = call.keys.read(key) else { return Ok((Vec::new(), Kind::List)) };
    if found.kind() == Kind::String {
        return Err(Error::WRONG_TYPE);
    }
    let elements = match found.object() {
        Object::List(list) => list.iter().map(|element| element.to_vec()).collect(),
        Object::Set(set) => set.iter().map(|member| member.to_vec()).collect(),
        Object::SortedSet(set) => set.iter().map(|entry| entry.member.to_vec()).collect(),
        Object::Hash(_) | Object::Stream(_) => return Err(Error::WRONG_TYPE),
    };
    Ok((elements, found.kind()))
}

fn in_order(
    call: &mut Call<'_, '_>,
    elements: Vec<Vec<u8>>,
    options: &Options<'_>,
    by: Option<&[u8]>,
) -> Result<Vec<Vec<u8>>, Error> {
    let mut weighted = Vec::with_capacity(elements.len());
    for element in elements {
        let text = match by {
            Some(pattern) => look_up(call, pattern, &element),
            None => Some(element.clone()),
        };
        let weight = if options.is_text {
            Weight::Text(text)
        } else {
            Weight::Number(text.map_or(Some(0.0), |text| number(&text)).ok_or(NOT_NUMBERS)?)
        };
        weighted.push((weight, element));
    }
    weighted.sort_by(|(left, left_element), (right, right_element)| {
        // Equal weights must not leave the elements in the order of a hash table: STORE would keep what no replica has.
        let order = left.compare(right).then_with(|| left_element.cmp(right_element));
        if options.is_descending { order.reverse() } else { order }
    });
    Ok(weighted.into_iter().map(|(_, element)| element).collect())
}

const NOT_NUMBERS: Error = Error::new("ERR One or more scores can't be converted into double");

/// A score that ends before a zero byte.
fn number(text: &[u8]) -> Option<f64> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    parse_score(text)
}

/// What is replied or stored for elements: themselves, or what the patterns of GET find for each.
fn results(call: &mut Call<'_, '_>, elements: &[Vec<u8>], patterns: &[&[u8]]) -> Vec<Option<Vec<u8>>> {
    if patterns.is_empty() {
        return elements.iter().cloned().map(Some).collect();
    }
    let mut results = Vec::with_capacity(elements.len() * patterns.len());
    for element in elements {
        results.extend(patterns.iter().map(|pattern| look_up(call, pattern, element)));
    }
    results
}

/// What a pattern finds for an element: `#` itself; otherwise the key with the element in the place of the star, or the field
/// behind `->` of that key.
fn look_up(call: &mut Call<'_, '_>, pattern: &[u8], element: &[u8]) -> Option<Vec<u8>> {
    if pattern == b"#" {
        return Some(element.to_vec());
    }
    let star = pattern.iter().position(|byte| *byte == b'*')?;
    let (head, tail) = (&pattern[..star], &pattern[star + 1..]);
    let arrow = tail.windows(2).position(|two| two == b"->").filter(|at| at + 2 < tail.len());
    let (tail, field) = arrow.map_or((tail, None), |at| (&tail[..at], Some(&tail[at + 2..])));
    let name = [head, element, tail].concat();
    let key = call.keys.key(&name);
    let Some(field) = field else { return call.keys.string(key).ok()?.map(<[u8]>::to_vec) };
    let (hash_key, now_ms) = (call.engine.keyspace.hash_key(), call.now.unix_ms());
    let hash = call.keys.get::<Hash>(key).ok()??;
    hash.get(field, now_ms, hash_key).map(|field| field.value.to_vec())
}

fn store(call: &mut Call<'_, '_>, target: &[u8], results: &[Option<Vec<u8>>]) {
    let target = call.keys.key(target);
    if results.is_empty() {
        if call.keys.remove(target).is_some() {
            call.changed(target, Events::GENERIC, "del");
        }
    } else {
        let mut list = List::new();
        let elements = results.iter().map(|result| result.as_deref().unwrap_or_default());
        list.push_all(End::Back, elements, call.settings.list_fill);
        call.keys.put(target, list, Expiry::Never);
        call.changed(target, Events::LIST, "sortstore");
        call.effects.changes += u64::try_from(results.len() - 1).unwrap_or(u64::MAX);
    }
    call.reply.count(results.len());
}
