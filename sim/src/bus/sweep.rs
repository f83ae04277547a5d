//! Many seeds of small clusters, one after another.

use std::io::Write;

use super::options::Options;
use super::swarm::{Bug, Failure, Outcome, Params, run_seed, shrink};
use crate::bars;
use crate::command::{CommandFailure, Outside, PROGRESS_S, QUICK_S_MAX};
use crate::report::Rows;

/// No bug is planted.
#[cfg(feature = "planted")]
pub(super) const SOUND: Bug = None;

/// No bug is planted.
#[cfg(not(feature = "planted"))]
pub(super) const SOUND: Bug = ();

/// What is counted of each seed.
const COUNTERS: [&str; 6] = ["votes", "elections", "failures", "failures_of_living", "recoveries", "agreed_milli"];

#[derive(Debug, Default)]
struct Summary {
    seeds: u64,
    failed: u64,
    events: u64,
    world_ns: u64,
    counts: [u64; COUNTERS.len()],
}

impl Summary {
    fn add(&mut self, outcome: &Outcome) {
        self.seeds += 1;
        self.failed += u64::from(outcome.failure.is_some());
        self.events += outcome.events;
        self.world_ns += outcome.world_ns;
        let counts = outcome.counts;
        let failures = [counts.failures, counts.failures_of_living];
        let more = [counts.votes, counts.elections, failures[0], failures[1], counts.recoveries, outcome.agreed_milli];
        self.counts.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
    }

    fn sum(&self, counter: &str) -> u64 {
        match counter {
            "events" => self.events,
            "world_ms" => self.world_ns / 1_000_000,
            _ => COUNTERS.iter().zip(self.counts).find(|(name, _)| **name == counter).map_or(0, |(_, count)| count),
        }
    }

    fn rows(&self, seconds: f64, rows: &mut Rows) {
        rows.add("seeds", self.seeds as f64, "seeds");
        rows.add("failed", self.failed as f64, "seeds");
        rows.add("speed", self.seeds as f64 / seconds, "seeds/s");
        rows.add("events", self.events as f64, "events");
        rows.add("event_speed", self.events as f64 / seconds, "events/s");
        rows.add_ns("world_time", self.world_ns);
        COUNTERS.iter().zip(self.counts).for_each(|(name, count)| rows.add(*name, count as f64, "count"));
    }
}

/// Runs the seeds that were asked for.
pub(super) fn command(options: &Options, outside: &mut Outside<'_>, rows: &mut Rows) -> Result<(), CommandFailure> {
    let began_s = (outside.elapsed_s)();
    let (mut summary, mut told_s) = (Summary::default(), began_s);
    let seeds = options.seeds.unwrap_or(1_000);
    let classes = options.classes();
    for seed in options.from..options.from.saturating_add(seeds) {
        let params = Params::draw(seed, &classes, options.members);
        let mut outcome = run_seed(&params, SOUND);
        if options.check_every > 0 && seed % options.check_every == 0 {
            check_determinism(&params, &mut outcome);
        }
        summary.add(&outcome);
        if seeds == 1 {
            writeln!(outside.err, "seed {seed}: {} events, event hash {:016x}", outcome.events, outcome.event_hash)?;
        }
        if let Some(failure) = outcome.failure {
            tell_failure(options, failure, outside.err)?;
            if !options.keep_going {
                break;
            }
        }
        let now_s = (outside.elapsed_s)();
        if now_s - told_s > PROGRESS_S {
            told_s = now_s;
            let speed = summary.seeds as f64 / (now_s - began_s);
            writeln!(outside.err, "{} seeds, {speed:.1} seeds/s", summary.seeds)?;
        }
        if options.quick && now_s > QUICK_S_MAX {
            break;
        }
    }
    summary.rows((outside.elapsed_s)() - began_s, rows);
    let is_usual = options.members.is_none() && options.without.is_empty();
    match summary.failed {
        0 if is_usual => bars::BUS.check(summary.seeds, |name| summary.sum(name)).map_err(CommandFailure::Wrong),
        0 => Ok(()),
        failed => Err(CommandFailure::Wrong(format!("{failed} of {} seeds failed", summary.seeds))),
    }
}

fn check_determinism(params: &Params, outcome: &mut Outcome) {
    let again = run_seed(params, SOUND);
    if outcome.failure.is_none() && (again.event_hash, again.events) != (outcome.event_hash, outcome.events) {
        let [once, twice] = [outcome.event_hash, again.event_hash];
        outcome.failure = Some(Failure {
            what: format!("the same seed had two histories: {once:016x} and {twice:016x}"),
            params: params.clone(),
            plan: super::swarm::Plan::draw(params),
            tail: Vec::new(),
        });
    }
}

fn tell_failure(options: &Options, failure: Failure, err: &mut dyn Write) -> std::io::Result<()> {
    let seed = failure.params.seed;
    let failure = if options.shrink { shrink(failure, SOUND) } else { failure };
    let members = options.members.map(|members| format!(" --members {members}")).unwrap_or_default();
    let without: String = options.without.iter().map(|class| format!(" --without {class}")).collect();
    writeln!(err, "{failure}run it again: ashlar sim bus --seed {seed}{members}{without} [--shrink]\n")
}
