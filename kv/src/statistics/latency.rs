//! Events that took long: when, and how long (`LATENCY`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Samples that are kept of an event.
const SAMPLES_MAX: usize = 160;

/// One event at one second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Unix seconds.
    pub(crate) at_s: i64,
    pub(crate) ms: u64,
}

/// An event's latest samples, the oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Series {
    pub(crate) samples: VecDeque<Sample>,
    /// The longest ever, milliseconds.
    pub(crate) longest_ms: u64,
    /// All of them together, milliseconds.
    pub(crate) sum_ms: u64,
    /// How many there were.
    pub(crate) count: u64,
}

/// All events by their names.
#[derive(Debug, Default)]
pub(crate) struct Latency(Mutex<BTreeMap<&'static str, Series>>);

impl Latency {
    /// All of them.
    pub(crate) fn all(&self) -> MutexGuard<'_, BTreeMap<&'static str, Series>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps an event; of those in one second the longest.
    pub(crate) fn note(&self, event: &'static str, ms: u64, at_s: i64) {
        let mut all = self.all();
        let series = all.entry(event).or_default();
        series.longest_ms = series.longest_ms.max(ms);
        series.sum_ms = series.sum_ms.saturating_add(ms);
        series.count += 1;
        match series.samples.back_mut() {
            Some(last) if last.at_s == at_s => last.ms = last.ms.max(ms),
            _ => {
                series.samples.push_back(Sample { at_s, ms });
                if series.samples.len() > SAMPLES_MAX {
                    series.samples.pop_front();
                }
            }
        }
    }

    /// Forgets events of these names, or all if there is none. Says how many there were.
    pub(crate) fn forget<'a>(&self, names: &(impl Iterator<Item = &'a [u8]> + Clone)) -> usize {
        let mut all = self.all();
        let before = all.len();
        let is_named = |event: &str| names.clone().any(|name| name.eq_ignore_ascii_case(event.as_bytes()));
        let has_names = names.clone().next().is_some();
        all.retain(|event, _| has_names && !is_named(event));
        before - all.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_of_a_second_and_only_so_many_seconds() {
        let latency = Latency::default();
        for (ms, at_s) in [(5, 1), (9, 1), (7, 1), (3, 2)] {
            latency.note("command", ms, at_s);
        }
        let samples = |event: &str| latency.all()[event].samples.iter().map(|at| (at.at_s, at.ms)).collect::<Vec<_>>();
        assert_eq!(samples("command"), [(1, 9), (2, 3)]);
        let sums = |event: &str| {
            let all = latency.all();
            (all[event].sum_ms, all[event].count)
        };
        assert_eq!(sums("command"), (24, 4));
        (3..1_000).for_each(|at_s| latency.note("command", 1, at_s));
        assert_eq!((samples("command").len(), latency.all()["command"].longest_ms), (SAMPLES_MAX, 9));
        latency.note("fork", 1, 1);
        assert_eq!(latency.forget(&[&b"nosuch"[..], b"FORK"].into_iter()), 1);
        assert_eq!(latency.forget(&std::iter::empty()), 1);
    }
}
