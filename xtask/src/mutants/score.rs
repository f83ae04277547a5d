//! What came of the mutants: a line for each as it is decided, and the figures at the end.

use std::fmt;

use super::list::Mutant;
use crate::terminal::say;

/// What came of one mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A test of its package failed or ran out of time.
    CaughtByTests,
    /// The simulator of its package failed or ran out of time.
    CaughtBySimulator,
    /// Nothing failed.
    Survived,
    /// It does not compile, and is not counted.
    Unviable,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::CaughtByTests => "caught by tests",
            Self::CaughtBySimulator => "caught by the simulator",
            Self::Survived => "survived",
            Self::Unviable => "unviable",
        })
    }
}

/// What came of all mutants of a run.
#[derive(Debug)]
pub(super) struct Score {
    title: String,
    has_simulator: bool,
    verdicts: Vec<Verdict>,
    survivors: Vec<String>,
}

impl Score {
    /// Nothing yet, under this title.
    pub(super) fn new(title: String, has_simulator: bool) -> Self {
        Self { title, has_simulator, verdicts: Vec::new(), survivors: Vec::new() }
    }

    /// Counts a mutant and prints its line.
    pub(super) fn note(&mut self, mutant: &Mutant, verdict: Verdict) {
        say(&format!("{verdict:23}  {}", mutant.name));
        self.verdicts.push(verdict);
        if verdict == Verdict::Survived {
            self.survivors.push(mutant.name.clone());
        }
    }

    fn count(&self, verdict: Verdict) -> usize {
        self.verdicts.iter().filter(|one| **one == verdict).count()
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unviable = self.count(Verdict::Unviable);
        let counted = self.verdicts.len() - unviable;
        let line = |f: &mut fmt::Formatter<'_>, what: &dyn fmt::Display, count: usize| {
            writeln!(f, "  {what:23} {count:>6}  {:>5} %", percent(count, counted))
        };
        writeln!(f, "{}", self.title)?;
        writeln!(f, "  {:23} {counted:>6}", "counted")?;
        line(f, &Verdict::CaughtByTests, self.count(Verdict::CaughtByTests))?;
        if self.has_simulator {
            line(f, &Verdict::CaughtBySimulator, self.count(Verdict::CaughtBySimulator))?;
        } else {
            writeln!(f, "  {:23}   none", "simulator")?;
        }
        line(f, &Verdict::Survived, self.survivors.len())?;
        writeln!(f, "  {:23} {unviable:>6}  (do not compile, not counted)", Verdict::Unviable)?;
        if !self.survivors.is_empty() {
            writeln!(f, "survivors:")?;
        }
        self.survivors.iter().try_for_each(|name| writeln!(f, "  {name}"))
    }
}

/// `part` of `whole` in percent with one digit, rounded down.
fn percent(part: usize, whole: usize) -> String {
    let tenths = (part * 1_000).checked_div(whole).unwrap_or(0);
    format!("{}.{}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::super::list::tests::mutant;
    use super::*;

    #[test]
    fn figures() {
        let mut score = Score::new("ashlar-wire: 5 of 9 mutants".into(), true);
        let verdicts = [
            Verdict::CaughtByTests,
            Verdict::CaughtBySimulator,
            Verdict::Unviable,
            Verdict::CaughtByTests,
            Verdict::Survived,
            Verdict::CaughtByTests,
        ];
        for (line, verdict) in (1..).zip(verdicts) {
            score.note(&mutant("wire/src/id.rs", line), verdict);
        }
        let text = "\
ashlar-wire: 5 of 9 mutants
  counted                      5
  caught by tests              3   60.0 %
  caught by the simulator      1   20.0 %
  survived                     1   20.0 %
  unviable                     1  (do not compile, not counted)
survivors:
  wire/src/id.rs:5:1: replace it
";
        assert_eq!(score.to_string(), text);
        let nothing = Score::new("none".into(), false).to_string();
        assert!(nothing.contains("simulator                 none\n") && !nothing.contains("survivors"), "{nothing}");
        assert_eq!([percent(1, 3), percent(0, 0), percent(5, 5)], ["33.3", "0.0", "100.0"]);
    }
}
