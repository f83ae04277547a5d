//! The command line of all simulations: `ashlar sim NAME`, and `ashlar-sim NAME`, which is the same alone.
//!
//! Figures go to standard output; progress, failures and time lines to standard error. The exit status is 1 if
//! something was wrong, 2 if the words make no sense.

use core::fmt;
use std::io::{Write, stderr, stdout};
use std::process::ExitCode;

use crate::scenarios::Scenario;

const USAGE: &str = "\
usage: ashlar sim NAME [options]

Runs real parts of Ashlar in virtual time: the same seed is the same run, bit for bit.

  bus      members that watch each other, small clusters or thousands: see `ashlar sim bus --help`
  quorum   a key-value shard whose writes a majority acknowledges: see `ashlar sim quorum --help`
  replay   a key-value engine, its log and its replicas, after random commands: see `ashlar sim replay --help`
";

/// A quick run ends after this long: with what is under way then, within a minute.
pub(crate) const QUICK_S_MAX: f64 = 45.0;

/// Seconds between two lines of progress.
pub(crate) const PROGRESS_S: f64 = 5.0;

/// Why a command did not come to its end.
#[derive(Debug)]
pub enum CommandFailure {
    /// The words make no sense.
    Usage(String),
    /// Standard output or error is gone.
    Io(std::io::Error),
    /// Something is wrong, in words.
    Wrong(String),
}

impl fmt::Display for CommandFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(why) => write!(f, "{why}; --help says what there is"),
            Self::Io(error) => error.fmt(f),
            Self::Wrong(what) => f.write_str(what),
        }
    }
}

impl core::error::Error for CommandFailure {}

impl From<std::io::Error> for CommandFailure {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<String> for CommandFailure {
    fn from(what: String) -> Self {
        Self::Wrong(what)
    }
}

/// Where to write, and how long the program has run.
pub struct Outside<'a> {
    /// Figures.
    pub out: &'a mut dyn Write,
    /// Progress.
    pub err: &'a mut dyn Write,
    /// Seconds since the program began: for speed and progress only, no run sees it.
    pub elapsed_s: &'a dyn Fn() -> f64,
}

/// Runs `words`: the name of a simulation and its options.
///
/// # Errors
/// The words make no sense, a seed failed, or a cluster did not do what it must.
pub fn command(mut words: impl Iterator<Item = String>, outside: &mut Outside<'_>) -> Result<(), CommandFailure> {
    let name = words.next().ok_or_else(|| CommandFailure::Usage("which simulation?".into()))?;
    if is_help(&name) {
        let scenarios: String = Scenario::ALL.iter().map(|one| format!("  {:<8} {}\n", one.name, one.about)).collect();
        return Ok(write!(outside.out, "{USAGE}{scenarios}\n{}", crate::sweep::HELP)?);
    }
    if name == "bus" {
        return crate::bus::command(words, outside);
    }
    if name == "quorum" {
        return crate::quorum::command::command(words, outside);
    }
    if name == "replay" {
        return crate::replay::command::command(words, outside);
    }
    let scenario = Scenario::named(&name).ok_or_else(|| CommandFailure::Usage(format!("nothing is called {name}")))?;
    crate::sweep::command(scenario, words, outside)
}

/// Runs `words` for a program: with its standard output and error, and its exit status.
pub fn run(words: impl Iterator<Item = String>) -> ExitCode {
    #[expect(clippy::disallowed_methods, reason = "seeds per second are a fact about the host, outside every world")]
    let began = std::time::Instant::now();
    let elapsed_s = move || began.elapsed().as_secs_f64();
    let mut outside = Outside { out: &mut stdout(), err: &mut stderr(), elapsed_s: &elapsed_s };
    match command(words, &mut outside) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let _unheard = writeln!(stderr(), "{failure}");
            ExitCode::from(if matches!(failure, CommandFailure::Usage(_)) { 2 } else { 1 })
        }
    }
}

/// Whether a word asks for help.
pub(crate) fn is_help(word: &str) -> bool {
    matches!(word, "--help" | "-h" | "help")
}
