//! How well it must go: what many seeds come to on average must stay within bars.
//!
//! A world in which nobody is told anything, or in which everybody is declared to have failed all the time, has correct histories too.
//! So a sweep of many seeds counts what was told, how long it took until all was well again, how often somebody was given up and how much
//! happened for that, and fails where an average leaves its bars. These stand four to five standard errors of the smallest such sweep
//! apart from what is usual, as blocks of seeds showed it: a change that moves an average on purpose moves its bars.

/// What one counter must come to, compared with another one.
#[derive(Debug, Clone, Copy)]
pub struct Bar {
    /// Which counter.
    pub counter: &'static str,
    /// For each of what: another counter, `seeds`, or `world_ms`, the milliseconds that the worlds lasted.
    pub per: &'static str,
    /// At least.
    pub least: f64,
    /// At most.
    pub most: f64,
}

/// The bars of one simulation.
#[derive(Debug, Clone, Copy)]
pub struct Bars {
    /// Sweeps of fewer seeds say too little.
    pub seeds_min: u64,
    /// One for each counter that says how well it goes.
    pub each: &'static [Bar],
}

impl Bars {
    /// No average says anything.
    pub const NONE: Self = Self { seeds_min: u64::MAX, each: &[] };

    /// Compares the sums of so many seeds, by the names of counters, with the bars.
    ///
    /// # Errors
    /// Which averages are outside, and what is expected.
    pub(crate) fn check(&self, seeds: u64, sum: impl Fn(&str) -> u64) -> Result<(), String> {
        if seeds < self.seeds_min {
            return Ok(());
        }
        let outside = self.each.iter().filter_map(|bar| {
            let Bar { counter, per, least, most } = bar;
            let count = if *per == "seeds" { seeds } else { sum(per) };
            let average = sum(counter) as f64 / count as f64;
            let is_within = (*least..=*most).contains(&average);
            (!is_within)
                .then(|| format!("{counter} for each of {per} is {average:.4}, and {least} to {most} is expected"))
        });
        let outside: Vec<String> = outside.collect();
        if outside.is_empty() { Ok(()) } else { Err(format!("no seed failed, but {}", outside.join("; "))) }
    }
}

/// Members of the bus in small clusters.
pub(crate) const BUS: Bars = Bars {
    seeds_min: 2_000,
    each: &[
        Bar { counter: "agreed_milli", per: "seeds", least: 2_900.0, most: 3_450.0 },
        Bar { counter: "elections", per: "seeds", least: 1.69, most: 2.26 },
        Bar { counter: "failures", per: "seeds", least: 7.84, most: 10.1 },
        Bar { counter: "failures_of_living", per: "seeds", least: 5.08, most: 7.03 },
        Bar { counter: "recoveries", per: "failures", least: 1.63, most: 1.78 },
        Bar { counter: "elections", per: "votes", least: 0.2, most: 0.255 },
        Bar { counter: "events", per: "world_ms", least: 0.1135, most: 0.1326 },
    ],
};

/// Calls and streams.
pub(crate) const GRID: Bars = Bars {
    seeds_min: 200,
    each: &[
        Bar { counter: "calls_ok", per: "world_ms", least: 0.04, most: 0.068 },
        Bar { counter: "calls_unknown", per: "calls_ok", least: 0.19, most: 0.324 },
        Bar { counter: "streams_failed", per: "streams_ok", least: 0.36, most: 0.66 },
        Bar { counter: "converge_ms", per: "seeds", least: 0.0, most: 1_211.0 },
        Bar { counter: "events", per: "world_ms", least: 7.5, most: 15.4 },
    ],
};

/// Whole servers with a toy service.
pub(crate) const NODE: Bars = Bars {
    seeds_min: 200,
    each: &[
        Bar { counter: "converge_ms", per: "seeds", least: 0.0, most: 1_415.0 },
        Bar { counter: "events", per: "world_ms", least: 1.7, most: 3.23 },
    ],
};

/// Whole servers with the catalog.
pub(crate) const CATALOG: Bars = Bars {
    seeds_min: 200,
    each: &[
        Bar { counter: "told", per: "world_ms", least: 0.01, most: 0.0163 },
        Bar { counter: "unknown", per: "told", least: 0.0, most: 0.06 },
        Bar { counter: "converge_ms", per: "seeds", least: 0.0, most: 4_650.0 },
        Bar { counter: "events", per: "told", least: 410.0, most: 556.0 },
    ],
};

/// Whole servers with key-value engines.
pub(crate) const KV: Bars = Bars {
    seeds_min: 40,
    each: &[
        Bar { counter: "told", per: "world_ms", least: 0.023, most: 0.21 },
        Bar { counter: "untold", per: "world_ms", least: 0.0, most: 0.00015 },
        Bar { counter: "converge_ms", per: "seeds", least: 0.0, most: 2_190.0 },
        Bar { counter: "events", per: "told", least: 18.0, most: 160.0 },
    ],
};

/// Whole servers with drives and volumes.
pub(crate) const CLUSTER: Bars = Bars {
    seeds_min: 100,
    each: &[
        Bar { counter: "told", per: "world_ms", least: 0.051, most: 0.145 },
        Bar { counter: "untold", per: "world_ms", least: 0.0, most: 0.0004 },
        Bar { counter: "converge_ms", per: "seeds", least: 0.0, most: 6_220.0 },
        Bar { counter: "apart_ms", per: "seeds", least: 0.0, most: 10_540.0 },
        Bar { counter: "events", per: "told", least: 130.0, most: 234.0 },
    ],
};

/// Whole servers with objects. A few worlds make much of what a hundred come to, so these bars stand twice as far apart.
pub(crate) const OBJECT: Bars = Bars {
    seeds_min: 100,
    each: &[
        Bar { counter: "told", per: "world_ms", least: 0.03, most: 0.115 },
        Bar { counter: "puts", per: "told", least: 0.035, most: 0.072 },
        Bar { counter: "converge_ms", per: "seeds", least: 0.0, most: 8_170.0 },
        Bar { counter: "apart_ms", per: "seeds", least: 0.0, most: 12_060.0 },
        Bar { counter: "events", per: "told", least: 225.0, most: 420.0 },
    ],
};

/// Shards whose writes a majority acknowledges.
pub(crate) const QUORUM: Bars = Bars {
    seeds_min: 150,
    each: &[
        Bar { counter: "told", per: "seeds", least: 290.0, most: 430.0 },
        Bar { counter: "untold_writes", per: "seeds", least: 0.0, most: 24.6 },
        Bar { counter: "recovered", per: "seeds", least: 0.83, most: 1.0 },
        Bar { counter: "stuck", per: "could_recover", least: 0.0, most: 0.05 },
    ],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_are_compared_where_seeds_are_many() {
        const EACH: &[Bar] = &[
            Bar { counter: "told", per: "seeds", least: 9.0, most: 11.0 },
            Bar { counter: "lost", per: "told", least: 0.0, most: 0.05 },
        ];
        let bars = Bars { seeds_min: 10, each: EACH };
        let check = |seeds, told, lost| bars.check(seeds, |name| if name == "told" { told } else { lost });
        assert_eq!(check(9, 0, 100), Ok(()), "too few");
        for (told, lost, is_within) in [(90, 0, true), (110, 5, true), (89, 0, false), (111, 0, false), (100, 6, false)]
        {
            assert_eq!(check(10, told, lost).is_ok(), is_within, "{told} {lost}");
        }
        let what = check(10, 80, 7).unwrap_err();
        assert!(what.contains("told for each of seeds is 8.0000, and 9 to 11 is"), "{what}");
        assert!(what.contains("lost for each of told is 0.0875"), "{what}");
        assert!(check(10, 0, 0).unwrap_err().contains("NaN"), "nothing at all is not well");
    }
}
