//! Other programs: cargo, rustc and what they built.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::terminal::say;

/// The cargo that runs this chore, in the root of the workspace.
pub(crate) fn cargo(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).args(arguments);
    command
}

/// Shows the command, runs it on this terminal and fails unless it succeeds.
pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    let shown = shown(command);
    say(&format!("$ {shown}"));
    let status = command.status().map_err(|error| Failure::io(&shown, &error))?;
    if status.success() { Ok(()) } else { Err(Failure::Failed(format!("`{shown}`: {status}"))) }
}

/// Runs the command quietly and returns its standard output; its standard error stays on this terminal.
pub(crate) fn output(command: &mut Command) -> Result<String, Failure> {
    let shown = shown(command);
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| Failure::io(&shown, &error))?;
    if !output.status.success() {
        return Err(Failure::Failed(format!("`{shown}`: {}", output.status)));
    }
    String::from_utf8(output.stdout).map_err(|_| Failure::Failed(format!("`{shown}` printed no UTF-8")))
}

/// What `work` returns and how long it took on the wall.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    #[expect(clippy::disallowed_methods, reason = "a chore tells a person how long it took; nothing depends on it")]
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}

fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let mut words = vec![program.to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|argument| argument.to_string_lossy().into_owned()));
    words.join(" ")
}
