//! Programs from outside that the checks need: which, for which step, from which Debian package.
//!
//! `verify` looks for them before its first step, because a run of twenty minutes that ends with "there is no C++ compiler" has told
//! its reader too late. Where one is missing the step is skipped and called so; with [`COMPLETE`] in the environment that is a failure.

use core::fmt;

use crate::failure::Failure;
use crate::terminal::say;

/// In the environment, everything that could be skipped has to run.
pub(crate) const COMPLETE: &str = "ASHLAR_VERIFY_COMPLETE";

/// What one step of `verify` needs.
struct Requirement {
    step: &'static str,
    program: &'static str,
    package: &'static str,
    /// What is not checked without it.
    without: &'static str,
    /// Whether the step fails without it, and is not skipped.
    is_vital: bool,
}

const REQUIREMENTS: [Requirement; 6] = [
    Requirement {
        step: "clippy",
        program: "cc",
        package: "gcc",
        without: "the cryptography library and Lua do not compile",
        is_vital: true,
    },
    Requirement {
        step: "clients",
        program: "python3",
        package: "python3 and python3-venv",
        without: "no redis-py and no valkey-py",
        is_vital: false,
    },
    Requirement {
        step: "clients",
        program: "npm",
        package: "nodejs and npm",
        without: "no ioredis, iovalkey, node-redis and valkey-glide",
        is_vital: false,
    },
    Requirement {
        step: "clients",
        program: "go",
        package: "golang-go",
        without: "no go-redis and no valkey-go",
        is_vital: false,
    },
    Requirement {
        step: "differ",
        program: "redis-server",
        package: "redis-server",
        without: "no comparison with Redis",
        is_vital: false,
    },
    Requirement { step: "fuzz", program: "c++", package: "g++", without: "libFuzzer does not compile", is_vital: true },
];

/// What came of a step that did not fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All of it ran and passed.
    Passed,
    /// A part of it ran and passed; why the rest could not run.
    PassedWithout(String),
    /// None of it ran; why.
    Skipped(String),
}

impl Outcome {
    /// For `map`.
    pub(crate) fn passed((): ()) -> Self {
        Self::Passed
    }

    /// Passed, but for these parts.
    pub(crate) fn without(skipped: &[String]) -> Self {
        if skipped.is_empty() { Self::Passed } else { Self::PassedWithout(skipped.join("; ")) }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::PassedWithout(why) => write!(f, "passed, a part SKIPPED: {why}"),
            Self::Skipped(why) => write!(f, "SKIPPED: {why}"),
        }
    }
}

/// Says what these steps need and this machine lacks.
///
/// # Errors
/// Something is missing and nothing may be skipped, or a step would fail without it: nothing has run.
pub(crate) fn look(steps: &[&str]) -> Result<(), Failure> {
    let missing: Vec<&Requirement> = missing(steps, is_there).collect();
    for requirement in &missing {
        say(&describe(requirement));
    }
    let is_vital = missing.iter().any(|requirement| requirement.is_vital);
    if is_vital || (must_be_complete() && !missing.is_empty()) {
        let names: Vec<&str> = missing.iter().map(|requirement| requirement.package).collect();
        return Err(Failure::Failed(format!("install these Debian packages first: {}", names.join(", "))));
    }
    Ok(())
}

fn missing(steps: &[&str], is_there: impl Fn(&str) -> bool) -> impl Iterator<Item = &'static Requirement> {
    REQUIREMENTS.iter().filter(move |wanted| steps.contains(&wanted.step) && !is_there(wanted.program))
}

fn describe(requirement: &Requirement) -> String {
    let Requirement { step, program, package, without, .. } = requirement;
    format!("missing: {program} (Debian: {package}), for the step `{step}`; without it, {without}")
}

/// Notes that something cannot run here: says why and returns it, for the summary.
///
/// # Errors
/// Everything has to run ([`COMPLETE`]).
pub(crate) fn skip(why: String) -> Result<String, Failure> {
    if must_be_complete() {
        return Err(Failure::Failed(format!("{why}, and {COMPLETE} is set")));
    }
    say(&format!("SKIPPED: {why}"));
    Ok(why)
}

fn must_be_complete() -> bool {
    std::env::var_os(COMPLETE).is_some()
}

/// Whether the program can be started.
pub(crate) fn is_there(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_its_package_and_its_step() {
        let lacking = |program: &str| program != "go" && program != "redis-server";
        let lines: Vec<String> = missing(&["clients", "differ", "fmt"], lacking).map(describe).collect();
        assert_eq!(
            lines,
            [
                "missing: go (Debian: golang-go), for the step `clients`; without it, no go-redis and no valkey-go",
                "missing: redis-server (Debian: redis-server), for the step `differ`; without it, no comparison with Redis",
            ]
        );
        assert_eq!(missing(&["fmt", "tidy"], |_| false).count(), 0);
    }

    #[test]
    fn a_skipped_step_is_not_called_passed() {
        assert_eq!(Outcome::Passed.to_string(), "passed");
        assert_eq!(Outcome::without(&[]), Outcome::Passed);
        assert_eq!(Outcome::without(&["no go".into()]).to_string(), "passed, a part SKIPPED: no go");
        assert_eq!(Outcome::Skipped("no redis".into()).to_string(), "SKIPPED: no redis");
    }
}
