//! `ashlar sim quorum`: seeds by the thousand, and bugs to order.

use super::{Outcome, run_seed};
use crate::bars;
use crate::command::{CommandFailure, Outside, PROGRESS_S, QUICK_S_MAX, is_help};
use crate::report::Rows;
use crate::sweep::Seeds;

const HELP: &str = "\
usage: ashlar sim quorum [options]

Real key-value engines of one shard whose writes a majority acknowledges (2 to 5 nodes), while nodes die, links break and anybody is
made primary at any time; each key's history must be linearisable.

  --seeds N              how many seeds (default 1000)
  --from N               the first seed (default 0)
  --seed N               this seed only
  --check-determinism K  run every K-th seed twice and compare the hashes (default 50; 0: never)
  --planted all|NAME     plant a bug and count the seeds until it shows (program built with the feature `planted`)
  --keep-going           do not stop at the first failing seed
  --quick                end within 60 seconds
  --json                 print one object and nothing else on standard output
";

#[derive(Default)]
struct Options {
    seeds: Seeds,
    planted: Option<String>,
}

fn parse(words: &[String]) -> Result<Options, String> {
    let mut options = Options::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--planted" => options.planted = Some(words.next().ok_or("--planted needs a name, or all")?.clone()),
            _ => options.seeds.take(word, &mut words)?,
        }
    }
    Ok(options)
}

/// Runs what the words after the simulation's name ask for.
pub(crate) fn command(words: impl Iterator<Item = String>, outside: &mut Outside<'_>) -> Result<(), CommandFailure> {
    let words: Vec<String> = words.collect();
    if words.iter().any(|word| is_help(word)) {
        return Ok(write!(outside.out, "{HELP}")?);
    }
    let options = parse(&words).map_err(CommandFailure::Usage)?;
    if let Some(name) = &options.planted {
        return plant_bugs(name, &options.seeds, outside);
    }
    let (sum, seeds, failed) = run(&options.seeds, outside)?;
    let mut rows = Rows::default();
    rows.add("seeds", seeds as f64, "seeds");
    rows.add("failed", failed as f64, "seeds");
    rows.add("speed", seeds as f64 / (outside.elapsed_s)(), "seeds/s");
    let counters = counters(&sum);
    counters.iter().for_each(|(name, count)| rows.add(*name, *count as f64, "count"));
    rows.print(outside.out, "quorum", options.seeds.json)?;
    match failed {
        0 => bars::QUORUM.check(seeds, |name| counted(&counters, name)).map_err(CommandFailure::Wrong),
        failed => Err(CommandFailure::Wrong(format!("{failed} of {seeds} seeds failed"))),
    }
}

/// What is counted of each seed.
fn counters(sum: &Outcome) -> [(&'static str, u64); 8] {
    [
        ("told", sum.told),
        ("untold_writes", sum.untold),
        ("kills", sum.kills),
        ("ballots", sum.ballots),
        ("terms", sum.terms),
        ("recovered", sum.recovered),
        ("could_recover", sum.could_recover),
        ("stuck", sum.stuck),
    ]
}

fn counted(counters: &[(&str, u64)], counter: &str) -> u64 {
    counters.iter().find(|(name, _)| *name == counter).map_or(0, |(_, count)| *count)
}

fn run(options: &Seeds, outside: &mut Outside<'_>) -> std::io::Result<(Outcome, u64, u64)> {
    let (mut sum, mut seeds, mut failed, mut told_s) = (Outcome::default(), 0, 0, 0.0);
    for seed in options.numbers() {
        let mut result = run_seed(seed);
        if options.is_checked(seed) && run_seed(seed) != result {
            result = Err("the same seed had two histories".to_owned());
        }
        seeds += 1;
        match result {
            Ok(outcome) => {
                sum.told += outcome.told;
                sum.untold += outcome.untold;
                sum.kills += outcome.kills;
                sum.ballots += outcome.ballots;
                sum.terms += outcome.terms;
                sum.recovered += outcome.recovered;
                sum.could_recover += outcome.could_recover;
                sum.stuck += outcome.stuck;
            }
            Err(why) => {
                failed += 1;
                writeln!(outside.err, "seed {seed}: {why}\nrun it again: ashlar sim quorum --seed {seed}\n")?;
                if !options.keep_going {
                    break;
                }
            }
        }
        let now_s = (outside.elapsed_s)();
        if now_s - told_s > PROGRESS_S {
            told_s = now_s;
            writeln!(outside.err, "{seeds} seeds, {:.1} seeds/s", seeds as f64 / now_s)?;
        }
        if options.quick && now_s > QUICK_S_MAX {
            break;
        }
    }
    Ok((sum, seeds, failed))
}

#[cfg(feature = "planted")]
fn plant_bugs(name: &str, seeds: &Seeds, outside: &mut Outside<'_>) -> Result<(), CommandFailure> {
    use ashlar_kv::replicate::quorum::{Planted, plant};
    let (mut rows, mut missed) = (Rows::default(), Vec::new());
    let bugs: Vec<Planted> =
        Planted::ALL.into_iter().filter(|bug| name == "all" || name == format!("{bug:?}")).collect();
    if bugs.is_empty() {
        return Err(CommandFailure::Usage(format!("{name} is no planted bug; they are {:?}", Planted::ALL)));
    }
    for bug in bugs {
        plant(Some(bug));
        let caught = seeds.numbers().position(|seed| run_seed(seed).is_err());
        plant(None);
        match caught {
            Some(seeds) => rows.add(format!("planted/{bug:?}"), seeds as f64 + 1.0, "seeds"),
            None => missed.push(format!("{bug:?}")),
        }
        writeln!(outside.err, "{bug:?}: {caught:?}")?;
    }
    rows.print(outside.out, "quorum", seeds.json)?;
    if missed.is_empty() { Ok(()) } else { Err(CommandFailure::Wrong(format!("never caught: {}", missed.join(", ")))) }
}

#[cfg(not(feature = "planted"))]
fn plant_bugs(_name: &str, _seeds: &Seeds, _outside: &mut Outside<'_>) -> Result<(), CommandFailure> {
    Err(CommandFailure::Usage("this program was built without the feature `planted`".to_owned()))
}
