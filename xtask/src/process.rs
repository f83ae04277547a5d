//! Other programs: cargo, rustc and what they built.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
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

/// Does `work`. Programs that it still runs after `limit` are shown and killed, so that whoever waits for them goes on, and fails.
pub(crate) fn within<T>(limit: Duration, work: impl FnOnce() -> T) -> T {
    let (done, is_done) = mpsc::channel::<()>();
    #[expect(
        clippy::disallowed_methods,
        reason = "a chore runs programs, and somebody has to look at the clock meanwhile"
    )]
    let watch = thread::spawn(move || {
        // What is started after that is killed by the next look.
        while is_done.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
            kill_below(std::process::id(), limit);
        }
    });
    let result = work();
    drop(done);
    // It has nothing to say.
    watch.join().ok();
    result
}

/// Kills all programs that a process has started, and those that they have.
fn kill_below(of: u32, limit: Duration) {
    for pid in descendants(of, &parents()) {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        say(&format!("still running after {} s, killed: {pid} {}", limit.as_secs(), words.trim_end()));
        // The only error is that it has ended already.
        Command::new("kill").args(["-KILL", &pid.to_string()]).stderr(Stdio::null()).status().ok();
    }
}

/// Each process with its parent.
fn parents() -> Vec<(u32, u32)> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: u32| Some((pid, parent(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?))).collect()
}

/// The parent in a process's line of figures: the second word behind its name, which ends with the last bracket.
fn parent(figures: &str) -> Option<u32> {
    figures.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn descendants(of: u32, parents: &[(u32, u32)]) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut last = vec![of];
    while let Some(parent) = last.pop() {
        let children = parents.iter().filter(|(pid, its)| *its == parent && *pid != of).map(|(pid, _)| *pid);
        last.extend(children.filter(|pid| found.insert(*pid)));
    }
    found
}

fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let mut words = vec![program.to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|argument| argument.to_string_lossy().into_owned()));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn a_process_is_found_below_whoever_started_it() {
        assert_eq!(parent("12 (a (b) c) S 7 12 12 0"), Some(7));
        assert_eq!(parent("12"), None);
        let parents = [(1, 0), (2, 1), (3, 2), (4, 3), (5, 1)];
        assert_eq!(descendants(2, &parents), BTreeSet::from([3, 4]));
        assert_eq!(descendants(4, &parents), BTreeSet::new());
    }

    #[test]
    fn programs_that_a_process_has_started_are_killed() {
        // The shell waits for its child, as a test does that waits for a server; it says when there is one.
        let shell = Command::new("sh").args(["-c", "sleep 1000 & echo; wait $!"]).stdout(Stdio::piped()).spawn();
        let mut shell = shell.expect("there is a shell");
        let mut said = [0];
        shell.stdout.take().expect("its output is ours").read_exact(&mut said).expect("it has a child");
        kill_below(shell.id(), Duration::ZERO);
        assert!(shell.wait().is_ok_and(|status| status.code() == Some(128 + 9)), "its child was killed, not itself");
    }

    #[test]
    fn work_that_ends_in_time_returns_what_it_made() {
        assert_eq!(within(Duration::from_secs(1_000), || 7), 7);
    }
}
