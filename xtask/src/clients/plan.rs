//! What a person asks of rounds of faults: how many, which seed, and whether only one fault.

use crate::failure::Failure;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plan<F> {
    pub(super) rounds: u32,
    pub(super) seed: u64,
    pub(super) only: Option<F>,
}

impl<F: Copy> Plan<F> {
    /// Reads the options after `flag ROUNDS`; `faults` are all there are, and what a person calls them.
    pub(super) fn read(flag: &str, rounds: u32, options: &[String], faults: &[(&str, F)]) -> Result<Self, Failure> {
        let mut plan = Self { rounds, seed: 1, only: None };
        let mut options = options.iter();
        while let Some(option) = options.next() {
            let value = options.next();
            let is_read = match option.as_str() {
                "--seed" => value.and_then(|seed| seed.parse().ok()).map(|seed| plan.seed = seed),
                "--only" => {
                    let fault = faults.iter().find(|(word, _)| value.is_some_and(|name| name == word));
                    fault.map(|(_, fault)| plan.only = Some(*fault))
                }
                _ => None,
            };
            is_read.ok_or_else(|| {
                let words = faults.iter().map(|(word, _)| *word).collect::<Vec<_>>().join("|");
                Failure::Usage(format!("`{flag} ROUNDS` takes `--seed NUMBER` and `--only {words}`"))
            })?;
        }
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let read = |words: &[&str]| {
            let words: Vec<String> = words.iter().copied().map(str::to_owned).collect();
            Plan::read("--disk", 3, &words, &[("one", 'o'), ("all", 'a')]).ok()
        };
        assert_eq!(read(&[]), Some(Plan { rounds: 3, seed: 1, only: None }));
        assert_eq!(read(&["--only", "all", "--seed", "7"]), Some(Plan { rounds: 3, seed: 7, only: Some('a') }));
        for wrong in [&["--seed"][..], &["--seed", "x"], &["--only", "none"], &["--other", "1"]] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
    }
}
