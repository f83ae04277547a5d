//! Clients at work beside a chore: each says `ready` when it has begun, is told by a line that the servers are as they should be, and says then
//! how it went.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::terminal::say;

/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(20);
/// What is not so after this span has failed, however long one look takes.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The time, for spans that a person is told.
pub(super) fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "a chore measures other processes, and no test depends on how long")]
    Instant::now()
}

/// Lets time pass.
pub(super) fn pause(span: Duration) {
    #[expect(clippy::disallowed_methods, reason = "it waits for other processes; nothing depends on how long")]
    thread::sleep(span);
}

/// Looks until something is so, for a minute at most and once at least.
pub(super) fn until(what: &str, is_so: impl FnMut() -> bool) -> Result<(), Failure> {
    until_within(WAIT_MAX, what, is_so)
}

/// The same for another span at most.
pub(super) fn until_within(max: Duration, what: &str, mut is_so: impl FnMut() -> bool) -> Result<(), Failure> {
    let begun = now();
    loop {
        if is_so() {
            return Ok(());
        }
        if now().duration_since(begun) > max {
            return Err(Failure::Failed(format!("waited in vain for {what}, {} s", max.as_secs())));
        }
        pause(LOOK);
    }
}

/// Waits for the end of a process that was told to stop; one that does not is killed, which is a failure.
pub(super) fn ended(child: &mut Child, what: &str) -> Result<ExitStatus, Failure> {
    let mut status = None;
    let waited = until(&format!("the end of {what}"), || {
        status = child.try_wait().transpose();
        status.is_some()
    });
    if let Err(failure) = waited {
        child.kill().ok();
        child.wait().ok();
        return Err(failure);
    }
    let unknown = || Err(std::io::Error::other("its status is unknown"));
    status.unwrap_or_else(unknown).map_err(|error| Failure::io(what, &error))
}

/// The first line that a process prints and that `take` wants something of; none where its output ends before, or none comes in a minute.
pub(super) fn line_of<T: Send + 'static>(
    out: impl Read + Send + 'static,
    mut take: impl FnMut(String) -> Option<T> + Send + 'static,
) -> Option<T> {
    let (found, line) = mpsc::channel();
    #[expect(clippy::disallowed_methods, reason = "a chore reads what may never come, and has to go on then")]
    thread::spawn(move || {
        let mut lines = BufReader::new(out).lines().map_while(Result::ok);
        // Nobody may want it any more.
        lines.find_map(&mut take).map(|line| found.send(line).ok())
    });
    line.recv_timeout(WAIT_MAX).ok()
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
