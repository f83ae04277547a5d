//! `ashlar sim replay`: so many random commands, and the shortest list that shows a difference.

use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};

use super::choices::Choices;
use super::life::Life;
use super::shrink::shrink;
use super::table::Table;
use super::world::{live, new_table};
use crate::command::{CommandFailure, Outside, PROGRESS_S, is_help};
use crate::report::Rows;
use crate::rng::Rng;

const HELP: &str = "\
usage: ashlar sim replay [options]

Random commands of the whole command table on a live key-value engine; then an engine that read its log, one that read base and log,
and two replicas must have the same content.

  --commands N   how many commands (default 100000)
  --seed S       which ones (default 1)
  --seconds N    stop after so many seconds, whatever was asked for
  --life N       this life of the seed only, as a failure names it
  --no-shrink    show a difference as it was found
  --keep-going   do not stop at the first difference
  --json         print one object and nothing else on standard output
";

/// Requests of a life, from and to.
const REQUESTS: [u64; 2] = [40, 1_200];

#[derive(Debug)]
struct Options {
    commands: u64,
    seed: u64,
    seconds: Option<f64>,
    life: Option<u64>,
    shrinks: bool,
    keeps_going: bool,
    json: bool,
}

fn parse(words: &[String]) -> Result<Options, String> {
    let mut options = Options {
        commands: 100_000,
        seed: 1,
        seconds: None,
        life: None,
        shrinks: true,
        keeps_going: false,
        json: false,
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut number = || {
            let value = words.next().ok_or_else(|| format!("{word} needs a number"))?;
            value.parse::<u64>().map_err(|_| format!("{word} needs a number, not {value}"))
        };
        match word.as_str() {
            "--commands" => options.commands = number()?,
            "--seed" => options.seed = number()?,
            "--seconds" => options.seconds = Some(number()? as f64),
            "--life" => options.life = Some(number()?),
            "--no-shrink" => options.shrinks = false,
            "--keep-going" => options.keeps_going = true,
            "--json" => options.json = true,
            other => return Err(format!("nothing is called {other}")),
        }
    }
    Ok(options)
}

/// A life of a seed by its number.
pub(super) fn life_of(table: &Table, seed: u64, number: u64) -> Life {
    let mut rng = Rng::new(seed).fork("life", number);
    let requests = rng.magnitude(REQUESTS[0]..=REQUESTS[1]) as usize;
    Life::draw(table, Choices::Seed(rng), requests)
}

/// Lives a life; a panic is a failure of it.
fn try_live(life: &Life) -> Result<(), (usize, String)> {
    catch_unwind(AssertUnwindSafe(|| live(life))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err((life.acts.len(), format!("panicked: {}", text.unwrap_or_default())))
    })
}

/// What a failure is, for people.
fn report(life: &Life, number: u64, (at, why): &(usize, String), options: &Options) -> String {
    let mut text = format!("seed {}, life {number}, after act {at} of {}: {why}\n", options.seed, life.acts.len());
    let shortest = if options.shrinks {
        let hook = take_hook();
        set_hook(Box::new(|_| {}));
        let shortest = shrink(life, &mut |life| try_live(life).is_err());
        set_hook(hook);
        shortest
    } else {
        life.clone()
    };
    if let Err((_, why)) = try_live(&shortest) {
        text += &format!("\nthe shortest way there: {why}\n");
    }
    for (name, settings) in [("live", &shortest.settings), ("others", &shortest.other_settings)] {
        let settings: Vec<String> = settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
        text += &format!("  {name}: {}\n", settings.join(", "));
    }
    shortest.acts.iter().for_each(|act| text += &format!("  {act}\n"));
    text + &format!("run it again: cargo xtask replay --seed {} --life {number}\n", options.seed)
}

/// Runs what the words after the simulation's name ask for.
pub(crate) fn command(words: impl Iterator<Item = String>, outside: &mut Outside<'_>) -> Result<(), CommandFailure> {
    let words: Vec<String> = words.collect();
    if words.iter().any(|word| is_help(word)) {
        return Ok(write!(outside.out, "{HELP}")?);
    }
    let options = parse(&words).map_err(CommandFailure::Usage)?;
    let table = new_table();
    let (mut commands, mut lives, mut failed, mut told_s) = (0, 0_u64, 0_u64, 0.0);
    let mut number = options.life.unwrap_or(0);
    while commands < options.commands {
        let life = life_of(&table, options.seed, number);
        if let Err(failure) = try_live(&life) {
            failed += 1;
            writeln!(outside.err, "{}", report(&life, number, &failure, &options))?;
        }
        (commands, lives, number) = (commands + life.requests() as u64, lives + 1, number + 1);
        let now_s = (outside.elapsed_s)();
        if now_s - told_s > PROGRESS_S {
            told_s = now_s;
            writeln!(outside.err, "{commands} commands, {:.0} commands/s", commands as f64 / now_s)?;
        }
        let is_enough = options.seconds.is_some_and(|seconds| now_s > seconds);
        if is_enough || options.life.is_some() || failed > 0 && !options.keeps_going {
            break;
        }
    }
    let mut rows = Rows::default();
    rows.add("commands", commands as f64, "commands");
    rows.add("lives", lives as f64, "lives");
    rows.add("failed", failed as f64, "lives");
    rows.add("speed", commands as f64 / (outside.elapsed_s)(), "commands/s");
    rows.print(outside.out, "replay", options.json)?;
    match failed {
        0 => Ok(()),
        failed => Err(CommandFailure::Wrong(format!("{failed} of {lives} lives ended with a difference"))),
    }
}
