//! Clients at work beside a chore: each says `ready` when it has begun, is told by a line that the servers are as they should be, and says then
//! how it went.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::failure::Failure;
use crate::terminal::say;

/// Pause between two looks, and how many there are before something has failed.
const LOOK: Duration = Duration::from_millis(20);
const LOOKS_MAX: usize = 3_000;

/// Looks until something is so, for a minute or so.
pub(super) fn until(what: &str, mut is_so: impl FnMut() -> bool) -> Result<(), Failure> {
    for _ in 0..LOOKS_MAX {
        if is_so() {
            return Ok(());
        }
        #[expect(clippy::disallowed_methods, reason = "it waits for other processes; nothing depends on how long")]
        thread::sleep(LOOK);
    }
    Err(Failure::Failed(format!("waited in vain for {what}")))
}

/// A client at work, told of what happens by a line.
struct Worker {
    child: Child,
    orders: ChildStdin,
    said: BufReader<std::process::ChildStdout>,
    name: String,
}

impl Worker {
    fn start(mut command: Command) -> Result<Self, Failure> {
        let name = format!("{command:?}");
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| Failure::io(&name, &error))?;
        let (orders, said) = (child.stdin.take(), child.stdout.take());
        let (Some(orders), Some(said)) = (orders, said) else {
            return Err(Failure::Failed(format!("{name} cannot be talked to")));
        };
        Ok(Self { child, orders, said: BufReader::new(said), name })
    }

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        match self.said.read_line(&mut line) {
            Ok(count) if count > 0 => Ok(line.trim_end().to_owned()),
            _ => Err(Failure::Failed(format!("{} ended too early", self.name))),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The only error is that it has ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Several clients at a time.
pub(super) struct Workers(Vec<Worker>);

impl Workers {
    /// Starts them, and waits until all have begun.
    pub(super) fn start(commands: Vec<Command>) -> Result<Self, Failure> {
        let mut workers = commands.into_iter().map(Worker::start).collect::<Result<Vec<Worker>, Failure>>()?;
        for worker in &mut workers {
            let line = worker.line()?;
            if line != "ready" {
                return Err(Failure::Failed(format!("{} says `{line}`", worker.name)));
            }
        }
        Ok(Self(workers))
    }

    /// Tells all of them that nothing changes any more, prints what each says, and fails unless all succeed.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        for worker in &mut self.0 {
            // Whoever has ended already is found out below.
            worker.orders.write_all(b"settled\n").ok();
        }
        let mut failed = Vec::new();
        for worker in &mut self.0 {
            match worker.line() {
                Ok(line) => say(&line),
                Err(Failure::Failed(what) | Failure::Usage(what)) => failed.push(what),
            }
            let status = worker.child.wait().map_err(|error| Failure::io(&worker.name, &error))?;
            if !status.success() {
                failed.push(format!("{}: {status}", worker.name));
            }
        }
        if failed.is_empty() { Ok(()) } else { Err(Failure::Failed(failed.join("; "))) }
    }
}
