//! Many seeds of one scenario, and which of them fails.

use std::collections::BTreeMap;
use std::io::Write;

use crate::command::{CommandFailure, Outside, PROGRESS_S, QUICK_S_MAX, is_help};
use crate::report::Rows;
use crate::scenarios::Scenario;
use crate::swarm::{Failure, Outcome, Params, Plan, run_seed, shrink};

/// What there is to ask for, for people.
pub(crate) const HELP: &str = "\
options, but for `bus`:
  --seeds N              how many seeds (default 1000)
  --from N               the first seed (default 0)
  --seed N               this seed only
  --servers N            so many servers instead of what the seed draws (3 to 7, of `kv` to 9)
  --check-determinism K  run every K-th seed twice and compare the hashes (default 50; 0: never)
  --shrink               look for the few faults that a failure needs
  --planted all|NAME     plant a bug and count the seeds until it shows (program built with the feature `planted`)
  --keep-going           do not stop at the first failing seed
  --quick                end within 60 seconds
  --json                 print one object and nothing else on standard output
";

/// Which seeds to run, and how.
#[derive(Debug)]
pub(crate) struct Seeds {
    pub(crate) count: u64,
    pub(crate) from: u64,
    pub(crate) check_every: u64,
    pub(crate) keep_going: bool,
    pub(crate) quick: bool,
    pub(crate) json: bool,
}

impl Default for Seeds {
    fn default() -> Self {
        Self { count: 1_000, from: 0, check_every: 50, keep_going: false, quick: false, json: false }
    }
}

/// The number that comes after an option.
pub(crate) fn number_after<'w>(word: &str, words: &mut impl Iterator<Item = &'w String>) -> Result<u64, String> {
    let text = words.next().ok_or_else(|| format!("{word} needs a number"))?;
    text.parse().map_err(|_| format!("{text} is not a number"))
}

impl Seeds {
    /// Takes an option that all sweeps have, with what comes after it.
    ///
    /// # Errors
    /// It is none of these, or its number is missing.
    pub(crate) fn take<'w>(&mut self, word: &str, words: &mut impl Iterator<Item = &'w String>) -> Result<(), String> {
        match word {
            "--seeds" => self.count = number_after(word, words)?,
            "--from" => self.from = number_after(word, words)?,
            "--seed" => (self.from, self.count) = (number_after(word, words)?, 1),
            "--check-determinism" => self.check_every = number_after(word, words)?,
            "--keep-going" => self.keep_going = true,
            "--quick" => self.quick = true,
            "--json" => self.json = true,
            _ => return Err(format!("{word} is not an option")),
        }
        Ok(())
    }

    pub(crate) fn numbers(&self) -> core::ops::Range<u64> {
        self.from..self.from.saturating_add(self.count)
    }

    /// Whether this one is run twice.
    pub(crate) fn is_checked(&self, seed: u64) -> bool {
        self.check_every > 0 && seed.is_multiple_of(self.check_every)
    }
}

struct Options {
    scenario: Scenario,
    seeds: Seeds,
    servers: Option<u32>,
    shrink: bool,
    planted: Option<String>,
}

impl Options {
    fn params(&self, seed: u64) -> Params {
        let mut params = Params::draw(seed, self.scenario.classes, self.scenario.servers_max);
        (self.scenario.adapt)(&mut params);
        params.servers = self.servers.unwrap_or(params.servers);
        // Faults while servers find each other are half of what there is to see.
        params.calm_ns = if seed.is_multiple_of(2) { 0 } else { self.scenario.calm_ns };
        params
    }
}

fn parse(scenario: Scenario, words: &[String]) -> Result<Options, String> {
    let mut options = Options { scenario, seeds: Seeds::default(), servers: None, shrink: false, planted: None };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--servers" => {
                let count = number_after(word, &mut words)?;
                options.servers = Some(count.clamp(3, u64::from(scenario.servers_max)) as u32);
            }
            "--shrink" => options.shrink = true,
            "--planted" => options.planted = Some(words.next().ok_or("--planted needs a name, or all")?.clone()),
            _ => options.seeds.take(word, &mut words)?,
        }
    }
    Ok(options)
}

#[derive(Default)]
struct Summary {
    seeds: u64,
    events: u64,
    world_ns: u64,
    failed: u64,
    counters: BTreeMap<&'static str, u64>,
}

impl Summary {
    fn add(&mut self, outcome: &Outcome) {
        self.seeds += 1;
        self.events += outcome.events;
        self.world_ns += outcome.world_ns;
        self.failed += u64::from(outcome.failure.is_some());
        for (name, count) in &outcome.counters {
            *self.counters.entry(name).or_default() += count;
        }
    }

    fn sum(&self, counter: &str) -> u64 {
        match counter {
            "events" => self.events,
            "world_ms" => self.world_ns / 1_000_000,
            _ => self.counters.get(counter).copied().unwrap_or(0),
        }
    }

    fn rows(&self, seconds: f64) -> Rows {
        let mut rows = Rows::default();
        rows.add("seeds", self.seeds as f64, "seeds");
        rows.add("failed", self.failed as f64, "seeds");
        rows.add("speed", self.seeds as f64 / seconds, "seeds/s");
        rows.add("events", self.events as f64, "events");
        rows.add("event_speed", self.events as f64 / seconds, "events/s");
        rows.add_ns("world_time", self.world_ns);
        self.counters.iter().for_each(|(name, count)| rows.add(*name, *count as f64, "count"));
        rows
    }
}

/// Runs the seeds that the words after the scenario's name ask for.
pub(crate) fn command(
    scenario: Scenario,
    words: impl Iterator<Item = String>,
    outside: &mut Outside<'_>,
) -> Result<(), CommandFailure> {
    let words: Vec<String> = words.collect();
    if words.iter().any(|word| is_help(word)) {
        return Ok(write!(outside.out, "usage: ashlar sim {} [options]\n\n{HELP}", scenario.name)?);
    }
    let options = parse(scenario, &words).map_err(CommandFailure::Usage)?;
    if let Some(name) = &options.planted {
        return hunt(&options, name, outside);
    }
    let summary = run(&options, outside)?;
    summary.rows((outside.elapsed_s)()).print(outside.out, scenario.name, options.seeds.json)?;
    match summary.failed {
        0 if options.servers.is_some() => Ok(()),
        0 => scenario.bars.check(summary.seeds, |name| summary.sum(name)).map_err(CommandFailure::Wrong),
        failed => Err(CommandFailure::Wrong(format!("{failed} of {} seeds failed", summary.seeds))),
    }
}

fn run(options: &Options, outside: &mut Outside<'_>) -> std::io::Result<Summary> {
    let mut summary = Summary::default();
    let mut told_s = 0.0;
    for seed in options.seeds.numbers() {
        let params = options.params(seed);
        let mut outcome = run_seed(&params, &options.scenario.make);
        if options.seeds.is_checked(seed) {
            check_determinism(options, &params, &mut outcome);
        }
        summary.add(&outcome);
        if options.seeds.count == 1 {
            writeln!(outside.err, "seed {seed}: {} events, event hash {:016x}", outcome.events, outcome.event_hash)?;
        }
        if let Some(failure) = outcome.failure {
            tell_failure(options, failure, outside.err)?;
            if !options.seeds.keep_going {
                break;
            }
        }
        let now_s = (outside.elapsed_s)();
        if now_s - told_s > PROGRESS_S {
            told_s = now_s;
            writeln!(outside.err, "{} seeds, {:.1} seeds/s", summary.seeds, summary.seeds as f64 / now_s)?;
        }
        if options.seeds.quick && now_s > QUICK_S_MAX {
            break;
        }
    }
    Ok(summary)
}

/// Plants the bugs of that name, or all, one after another, and counts the seeds until the checkers see each.
fn hunt(options: &Options, name: &str, outside: &mut Outside<'_>) -> Result<(), CommandFailure> {
    let bugs = (options.scenario.bugs)();
    let wanted: Vec<usize> = (0..bugs.len()).filter(|bug| name == "all" || bugs[*bug] == name).collect();
    if wanted.is_empty() {
        let what = format!(
            "no bug is called {name}; there are {bugs:?}, in a program that was built with the feature `planted`"
        );
        return Err(CommandFailure::Usage(what));
    }
    let (mut rows, mut missed) = (Rows::default(), Vec::new());
    for bug in wanted {
        (options.scenario.plant)(Some(bug));
        let caught = options.seeds.numbers().zip(1_u64..).find_map(|(seed, count)| {
            run_seed(&options.params(seed), &options.scenario.make).failure.map(|failure| (count, failure.what))
        });
        (options.scenario.plant)(None);
        let name = &bugs[bug];
        match caught {
            Some((count, what)) => {
                writeln!(outside.err, "{name:<20} {count:>6} seeds: {}", what.lines().next().unwrap_or_default())?;
                rows.add(format!("planted/{name}"), count as f64, "seeds");
            }
            None => {
                writeln!(outside.err, "{name:<20} not in {} seeds", options.seeds.count)?;
                missed.push(name.as_str());
            }
        }
    }
    rows.print(outside.out, options.scenario.name, options.seeds.json)?;
    if missed.is_empty() { Ok(()) } else { Err(CommandFailure::Wrong(format!("never caught: {}", missed.join(", ")))) }
}

fn check_determinism(options: &Options, params: &Params, outcome: &mut Outcome) {
    let again = run_seed(params, &options.scenario.make);
    if outcome.failure.is_none() && (again.event_hash, again.events) != (outcome.event_hash, outcome.events) {
        let [once, twice] = [outcome.event_hash, again.event_hash];
        outcome.failure = Some(Failure {
            what: format!("the same seed had two histories: {once:016x} and {twice:016x}"),
            params: params.clone(),
            plan: Plan::draw(params),
            tail: Vec::new(),
        });
    }
}

fn tell_failure(options: &Options, failure: Failure, err: &mut dyn Write) -> std::io::Result<()> {
    let seed = failure.params.seed;
    let failure = if options.shrink { shrink(failure, &options.scenario.make) } else { failure };
    let servers = options.servers.map(|servers| format!(" --servers {servers}")).unwrap_or_default();
    let name = options.scenario.name;
    writeln!(err, "{failure}run it again: ashlar sim {name} --seed {seed}{servers} [--shrink]\n")
}
