//! What the command line of `ashlar sim bus` says.

use core::time::Duration;

use super::large::{Layout, Victims};
use super::swarm::Class;
use crate::command::{Outside, QUICK_S_MAX};

/// What there is to ask for, for people.
pub const HELP: &str = "\
usage: ashlar sim bus [options]

Real buses in virtual time. Without further words: many small clusters under every fault, one a seed.

swarm:
  --seeds N              how many seeds (default 1000)
  --from N               the first seed (default 0)
  --seed N               this seed only
  --members N            so many members (3 to 9) instead of what the seed draws
  --check-determinism K  run every K-th seed twice and compare the hashes (default 50; 0: never)
  --shrink               look for the few faults that a failure needs
  --keep-going           do not stop at the first failing seed
  --without CLASS        no seed knows that class of fault (Cut, Split, Pause, Crash, Wipe, Forget ...)
  --planted all|NAME     plant a bug and count the seeds until it is caught (feature `planted`)

a large cluster:
  --members N            so many members (10 to 10000); alone: idle traffic, and a change until all know it
  --kill P%|zone         that share of the primaries dies at one instant, or a whole zone
  --partition halves     the cluster falls into halves for four timeouts
  --hours H              an idle cluster for so long (--pauses, --loss): is anybody declared failed?
  --curve                kills 0.1, 10, 25, 33 and 50 % with --seeds N seeds each (default 20)
  --svg                  with --curve: the picture on standard output, the figures on standard error
  --timeout D            the member timeout (default 15s)
  --probe D              the probe interval (default as the bus)
  --replicas N           replicas of each group (default 1)
  --voters N             voters, spread over all members (default 101, or an odd number not above the members)
  --zones N              zones (default 3)
  --loss P%              packets that are lost
  --pauses D             with --hours: each member stands still for so long once an hour
  --latency D            the least time that a packet takes (default 100us; half of it may come on top)
  2,000 members take 3.2 GiB. With GLIBC_TUNABLES=glibc.malloc.hugetlb=1 in the environment they lie on huge pages,
  which makes long runs faster.

  --quick                end within 60 seconds: fewer seeds, and 300 members where nobody says how many
  --json                 print one object and nothing else on standard output
";

/// Everything that was asked for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Options {
    pub(super) seeds: Option<u64>,
    pub(super) from: u64,
    pub(super) members: Option<u32>,
    pub(super) check_every: u64,
    pub(super) shrink: bool,
    pub(super) keep_going: bool,
    pub(super) without: Vec<String>,
    pub(super) planted: Option<String>,
    pub(super) kill: Option<Victims>,
    pub(super) partition: bool,
    pub(super) hours: Option<f64>,
    pub(super) curve: bool,
    pub(super) svg: bool,
    pub(super) timeout: Duration,
    pub(super) probe: Option<Duration>,
    pub(super) replicas: u32,
    pub(super) voters: Option<u32>,
    pub(super) zones: u32,
    pub(super) loss_ppm: u32,
    pub(super) pauses: Duration,
    pub(super) latency: Option<Duration>,
    pub(super) quick: bool,
    pub(super) json: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seeds: None,
            from: 0,
            members: None,
            check_every: 50,
            shrink: false,
            keep_going: false,
            without: Vec::new(),
            planted: None,
            kill: None,
            partition: false,
            hours: None,
            curve: false,
            svg: false,
            timeout: Duration::from_secs(15),
            probe: None,
            replicas: 1,
            voters: None,
            zones: 3,
            loss_ppm: 0,
            pauses: Duration::ZERO,
            latency: None,
            quick: false,
            json: false,
        }
    }
}

/// Voters of a large cluster, where nobody says otherwise: half of the primaries may die at once, and a majority is left.
const VOTERS: u32 = 101;

/// Members of a large cluster, where nobody says otherwise.
const MEMBERS: u32 = 2_000;

/// The same, where it is to be quick.
const QUICK_MEMBERS: u32 = 300;

impl Options {
    /// Reads the words after `bus`.
    pub(super) fn parse(words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self::default();
        let mut words = words;
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--seeds" => options.seeds = Some(number(&value()?)?),
                "--from" => options.from = number(&value()?)?,
                "--seed" => (options.from, options.seeds) = (number(&value()?)?, Some(1)),
                "--members" => options.members = Some(small(&value()?)?),
                "--check-determinism" => options.check_every = number(&value()?)?,
                "--shrink" => options.shrink = true,
                "--keep-going" => options.keep_going = true,
                "--without" => options.without.push(value()?),
                "--planted" => options.planted = Some(value()?),
                "--kill" => options.kill = Some(victims(&value()?)?),
                "--partition" => options.partition = halves(&value()?)?,
                "--hours" => options.hours = Some(value()?.parse().map_err(|_| "--hours needs a number")?),
                "--curve" => options.curve = true,
                "--svg" => options.svg = true,
                "--timeout" => options.timeout = span(&value()?)?,
                "--probe" => options.probe = Some(span(&value()?)?),
                "--replicas" => options.replicas = small(&value()?)?,
                "--voters" => options.voters = Some(small(&value()?)?),
                "--zones" => options.zones = small(&value()?)?.max(1),
                "--loss" => options.loss_ppm = share(&value()?)?,
                "--pauses" => options.pauses = span(&value()?)?,
                "--latency" => options.latency = Some(span(&value()?)?),
                "--quick" => options.quick = true,
                "--json" => options.json = true,
                _ => return Err(format!("{word} is not an option")),
            }
        }
        options.fits()
    }

    fn fits(self) -> Result<Self, String> {
        let large = self.is_large();
        let members = self.members.unwrap_or(if large { QUICK_MEMBERS } else { 5 });
        match members {
            0..=2 => Err("a cluster has at least 3 members".into()),
            10.. if !large => Err("a swarm has 3 to 9 members".into()),
            10_001.. => Err("a large cluster has up to 10000 members".into()),
            _ if large && members < 2 * (self.replicas + 1) => Err("there are too few members for two groups".into()),
            _ => Ok(self),
        }
    }

    /// The classes of fault that seeds may know.
    pub(super) fn classes(&self) -> Vec<Class> {
        let without = |class: &Class| self.without.iter().any(|name| *name == format!("{class:?}"));
        Class::ALL.iter().copied().filter(|class| !without(class)).collect()
    }

    /// Whether a large cluster is asked for.
    pub(super) fn is_large(&self) -> bool {
        let asked = self.kill.is_some() || self.partition || self.hours.is_some() || self.curve;
        asked || self.members.is_some_and(|members| members > 9)
    }

    /// Whether a quick run has lasted long enough.
    pub(super) fn is_over(&self, outside: &Outside<'_>) -> bool {
        self.quick && (outside.elapsed_s)() > QUICK_S_MAX
    }

    /// Seeds of each point of a curve.
    pub(super) fn curve_seeds(&self) -> u64 {
        self.seeds.unwrap_or(if self.quick { 2 } else { 20 })
    }

    /// The large cluster that is asked for.
    pub(super) fn layout(&self) -> Layout {
        let members = self.members.unwrap_or(if self.quick { QUICK_MEMBERS } else { MEMBERS });
        let mut layout = Layout::new(members, self.timeout);
        layout.replicas = self.replicas;
        layout.zones = self.zones;
        let odd = (layout.members - 1) | 1;
        layout.voters = self.voters.unwrap_or(VOTERS.min(if odd > layout.members { odd - 2 } else { odd }));
        layout.config.probe_interval = self.probe.unwrap_or(layout.config.probe_interval);
        layout.links.loss_ppm = self.loss_ppm;
        if let Some(latency) = self.latency {
            let latency_ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
            (layout.links.latency_ns, layout.links.jitter_ns) = (latency_ns, latency_ns / 2);
        }
        layout
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text} is not a number"))
}

fn small(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("{text} is not a number"))
}

/// A share in parts of a million, from a text such as `0.1%`.
fn share(text: &str) -> Result<u32, String> {
    let percent = text.strip_suffix('%').and_then(|text| text.parse::<f64>().ok());
    match percent {
        Some(percent) if (0.0..=100.0).contains(&percent) => Ok((percent * 10_000.0).round() as u32),
        _ => Err(format!("{text} is not a share (write 10%)")),
    }
}

fn victims(text: &str) -> Result<Victims, String> {
    if text == "zone" { Ok(Victims::Zone(0)) } else { share(text).map(Victims::Primaries) }
}

fn halves(text: &str) -> Result<bool, String> {
    if text == "halves" { Ok(true) } else { Err(format!("{text}: a cluster falls into `halves` only")) }
}

/// A span from a text such as `15s`, `500ms`, `100us`.
fn span(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1e-3), ("us", 1e-6), ("s", 1.0)];
    let parsed = units.iter().find_map(|(unit, seconds)| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * seconds));
    match parsed {
        Some(seconds) if (0.0..=1e6).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("{text} is not a span of time (write 15s, 500ms or 100us)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn words_become_options() {
        let usual = Options::default();
        let cases = [
            ("", usual.clone()),
            ("--seed 7 --shrink", Options { from: 7, seeds: Some(1), shrink: true, ..usual.clone() }),
            (
                "--members 2000 --kill 0.1%",
                Options { members: Some(2_000), kill: Some(Victims::Primaries(1_000)), ..usual.clone() },
            ),
            (
                "--kill zone --timeout 500ms",
                Options { kill: Some(Victims::Zone(0)), timeout: Duration::from_millis(500), ..usual },
            ),
        ];
        for (line, options) in cases {
            assert_eq!(parse(line), Ok(options), "{line}");
        }
        assert!(parse("--members 2000").is_ok_and(|options| options.is_large()));
        assert!(parse("--members 5").is_ok_and(|options| !options.is_large()));
        for wrong in [
            "--seeds",
            "--seeds x",
            "--kill 101%",
            "--kill ten",
            "--timeout 5",
            "--partition thirds",
            "--members 2",
            "--nothing",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn voters_are_odd_and_no_more_than_members() {
        for (members, voters) in [(2_000, 101), (100, 99), (99, 99), (40, 39), (10, 9)] {
            let options = parse(&format!("--members {members}")).expect("it is a large cluster");
            assert_eq!(options.layout().voters, voters, "{members}");
        }
    }
}
