//! `ashlar-sim NAME`: runs a scenario over many seeds and says which one fails and how to run it again.
//!
//! Progress and failures go to standard error, the summary to standard output. The exit status is 1 if a seed failed.

use std::collections::BTreeMap;
use std::io::{Write, stderr, stdout};
use std::process::ExitCode;

use ashlar_sim::bus::{CommandFailure, Outside};
use ashlar_sim::scenarios::Scenario;
use ashlar_sim::swarm::{Failure, Outcome, Params, run_seed, shrink};

const USAGE: &str = "\
usage: ashlar-sim SCENARIO [options]

scenarios:
";

const BUS: &str =
    "  bus      members that watch each other, small clusters or thousands: see `ashlar-sim bus --help`\n";

const OPTIONS: &str = "
options:
  --seeds N              how many seeds (default 1000)
  --from N               the first seed (default 0)
  --seed N               this seed only
  --servers N            so many servers instead of what the seed draws (3 to 7)
  --check-determinism K  run every K-th seed twice and compare the hashes (default 50; 0: never)
  --shrink               look for the few faults that a failure needs
  --keep-going           do not stop at the first failing seed
  --quick                end within 50 seconds
  --json                 print one object and nothing else on standard output
";

/// A quick run ends after this long.
const QUICK_S_MAX: f64 = 50.0;

/// Seconds between two lines of progress.
const PROGRESS_S: f64 = 5.0;

struct Options {
    scenario: Scenario,
    seeds: u64,
    from: u64,
    servers: Option<u32>,
    check_every: u64,
    shrink: bool,
    keep_going: bool,
    quick: bool,
    json: bool,
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let name = words.next().ok_or("which scenario?")?;
    if matches!(name.as_str(), "--help" | "-h" | "help") {
        return Err(String::new());
    }
    let scenario = Scenario::named(&name).ok_or_else(|| format!("there is no scenario {name}"))?;
    let mut options = Options {
        scenario,
        seeds: 1_000,
        from: 0,
        servers: None,
        check_every: 50,
        shrink: false,
        keep_going: false,
        quick: false,
        json: false,
    };
    while let Some(word) = words.next() {
        let mut number = || -> Result<u64, String> {
            let text = words.next().ok_or_else(|| format!("{word} needs a number"))?;
            text.parse().map_err(|_| format!("{text} is not a number"))
        };
        match word.as_str() {
            "--seeds" => options.seeds = number()?,
            "--from" => options.from = number()?,
            "--seed" => (options.from, options.seeds) = (number()?, 1),
            "--servers" => options.servers = Some(number()?.clamp(3, 7) as u32),
            "--check-determinism" => options.check_every = number()?,
            "--shrink" => options.shrink = true,
            "--keep-going" => options.keep_going = true,
            "--quick" => options.quick = true,
            "--json" => options.json = true,
            _ => return Err(format!("{word} is not an option")),
        }
    }
    Ok(options)
}

/// Seconds since the program began, for speed and progress only: no run sees it.
fn stopwatch() -> impl Fn() -> f64 {
    #[expect(clippy::disallowed_methods, reason = "seeds per second are a fact about the host, outside every world")]
    let began = std::time::Instant::now();
    move || began.elapsed().as_secs_f64()
}

#[derive(Default)]
struct Summary {
    seeds: u64,
    events: u64,
    world_ns: u64,
    failed: Vec<u64>,
    counters: BTreeMap<&'static str, u64>,
}

impl Summary {
    fn add(&mut self, seed: u64, outcome: &Outcome) {
        self.seeds += 1;
        self.events += outcome.events;
        self.world_ns += outcome.world_ns;
        if outcome.failure.is_some() {
            self.failed.push(seed);
        }
        for (name, count) in &outcome.counters {
            *self.counters.entry(name).or_default() += count;
        }
    }

    fn rows(&self, seconds: f64) -> Vec<(&'static str, f64, &'static str)> {
        let mut rows = vec![
            ("seeds", self.seeds as f64, "seeds"),
            ("failed", self.failed.len() as f64, "seeds"),
            ("speed", self.seeds as f64 / seconds, "seeds/s"),
            ("events", self.events as f64, "events"),
            ("event_speed", self.events as f64 / seconds, "events/s"),
            ("world_time", self.world_ns as f64 / 1e9, "s"),
        ];
        rows.extend(self.counters.iter().map(|(name, count)| (*name, *count as f64, "count")));
        rows
    }
}

fn run(options: &Options) -> std::io::Result<(Summary, f64)> {
    let elapsed_s = stopwatch();
    let mut summary = Summary::default();
    let mut told_s = 0.0;
    for seed in options.from..options.from.saturating_add(options.seeds) {
        let mut params = Params::draw(seed, options.scenario.classes);
        params.servers = options.servers.unwrap_or(params.servers);
        let mut outcome = run_seed(&params, &options.scenario.make);
        if options.check_every > 0 && seed % options.check_every == 0 {
            check_determinism(options, &params, &mut outcome);
        }
        summary.add(seed, &outcome);
        if options.seeds == 1 {
            writeln!(stderr(), "seed {seed}: {} events, event hash {:016x}", outcome.events, outcome.event_hash)?;
        }
        if let Some(failure) = outcome.failure {
            tell_failure(options, failure)?;
            if !options.keep_going {
                break;
            }
        }
        let now_s = elapsed_s();
        if now_s - told_s > PROGRESS_S {
            told_s = now_s;
            writeln!(stderr(), "{} seeds, {:.1} seeds/s", summary.seeds, summary.seeds as f64 / now_s)?;
        }
        if options.quick && now_s > QUICK_S_MAX {
            break;
        }
    }
    Ok((summary, elapsed_s()))
}

fn check_determinism(options: &Options, params: &Params, outcome: &mut Outcome) {
    let again = run_seed(params, &options.scenario.make);
    if outcome.failure.is_none() && (again.event_hash, again.events) != (outcome.event_hash, outcome.events) {
        let [once, twice] = [outcome.event_hash, again.event_hash];
        outcome.failure = Some(Failure {
            what: format!("the same seed had two histories: {once:016x} and {twice:016x}"),
            params: params.clone(),
            plan: ashlar_sim::swarm::Plan::draw(params),
            tail: Vec::new(),
        });
    }
}

fn tell_failure(options: &Options, failure: Failure) -> std::io::Result<()> {
    let seed = failure.params.seed;
    let failure = if options.shrink { shrink(failure, &options.scenario.make) } else { failure };
    let servers = options.servers.map(|servers| format!(" --servers {servers}")).unwrap_or_default();
    let name = options.scenario.name;
    writeln!(stderr(), "{failure}run it again: ashlar-sim {name} --seed {seed}{servers} [--shrink]\n")
}

fn print(options: &Options, summary: &Summary, seconds: f64) -> std::io::Result<()> {
    let rows = summary.rows(seconds);
    let name = options.scenario.name;
    if options.json {
        let machine = format!("{{\"arch\": \"{}\", \"os\": \"{}\"}}", std::env::consts::ARCH, std::env::consts::OS);
        let row = |(case, value, unit): &(&str, f64, &str)| {
            format!("{{\"case\": \"{case}\", \"value\": {value:.1}, \"unit\": \"{unit}\"}}")
        };
        let rows: Vec<String> = rows.iter().map(row).collect();
        return writeln!(
            stdout(),
            "{{\"bench\": \"sim/{name}\", \"machine\": {machine}, \"rows\": [{}]}}",
            rows.join(", ")
        );
    }
    for (case, value, unit) in rows {
        writeln!(stdout(), "{case:<28} {value:>16.1} {unit}")?;
    }
    Ok(())
}

/// The bus has a world and options of its own.
fn bus(words: impl Iterator<Item = String>) -> ExitCode {
    let elapsed_s = stopwatch();
    let mut outside = Outside { out: &mut stdout(), err: &mut stderr(), elapsed_s: &elapsed_s };
    match ashlar_sim::bus::command(words, &mut outside) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let _unheard = writeln!(stderr(), "{failure}");
            ExitCode::from(if matches!(failure, CommandFailure::Usage(_)) { 2 } else { 1 })
        }
    }
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("bus") {
        return bus(std::env::args().skip(2));
    }
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(why) => {
            let code = u8::from(!why.is_empty()) * 2;
            let scenarios: String =
                Scenario::ALL.iter().map(|one| format!("  {:<8} {}\n", one.name, one.about)).collect();
            let help = format!("{USAGE}{scenarios}{BUS}{OPTIONS}");
            let _unheard = if code == 0 { write!(stdout(), "{help}") } else { write!(stderr(), "{why}\n\n{help}") };
            return ExitCode::from(code);
        }
    };
    let told = run(&options).and_then(|(summary, seconds)| print(&options, &summary, seconds).map(|()| summary));
    match told {
        Ok(summary) if summary.failed.is_empty() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
