//! Running the program and looking at it.

use std::io::{BufRead as _, BufReader, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ashlar::os;
use ashlar::os::http::{self, Target};
use ashlar_node::status::ServerStatus;

/// How long anything may take before a test gives up; no test passes or fails by how far below it stays.
const PATIENCE: Duration = Duration::from_secs(60);

/// Pause between two looks at something that changes by itself.
const LOOK: Duration = Duration::from_millis(20);

/// Looks before giving up.
const LOOKS_MAX: usize = 3_000;

/// Held by the one test whose servers have drives: those take gigabytes, and what two of them take may be too much.
static SPACE: Mutex<()> = Mutex::new(());

/// A directory of its own, gone afterwards.
pub(crate) struct Scratch(PathBuf, Option<MutexGuard<'static, ()>>);

impl Scratch {
    pub(crate) fn new() -> Self {
        let name = u128::from_le_bytes(os::random::bytes());
        let path = std::env::temp_dir().join(format!("ashlar-program-{name:032x}"));
        std::fs::create_dir(&path).expect("the temporary directory can be written");
        Self(path, None)
    }

    /// For drives. Waits until no other test has some.
    pub(crate) fn for_drives() -> Self {
        let space = SPACE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut scratch = Self::new();
        scratch.1 = Some(space);
        scratch
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.0.join(name), text).expect("the scratch directory can be written");
        self.path(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs the program to its end.
pub(crate) fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Outcome {
    let mut running = Running::start(arguments, environment);
    let code = running.wait();
    let lines = |lines: &Receiver<String>| lines.iter().collect::<Vec<_>>().join("\n");
    Outcome { code, out: lines(&running.out), err: lines(&running.err) }
}

/// Runs the program to its end, which has to be a failure with these texts.
pub(crate) fn check_fails(arguments: &[&str], environment: &[(&str, &str)], code: i32, texts: &[&str]) {
    let outcome = run(arguments, environment);
    assert_eq!(outcome.code, Some(code), "{arguments:?}: {outcome:?}");
    for text in texts {
        assert!(outcome.err.contains(text), "`{text}` is not in {}", outcome.err);
    }
}

/// A running program; ended with the test.
pub(crate) struct Running {
    child: Child,
    pub(crate) out: Receiver<String>,
    pub(crate) err: Receiver<String>,
}

impl Running {
    pub(crate) fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::launch(Command::new(env!("CARGO_BIN_EXE_ashlar")), arguments, environment)
    }

    /// The same in a network namespace.
    pub(crate) fn start_in(namespace: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace, env!("CARGO_BIN_EXE_ashlar")]);
        Self::launch(command, arguments, &[])
    }

    fn launch(mut command: Command, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ASHLAR_")) {
            command.env_remove(name);
        }
        // Servers of tests run beside each other: only those that are about it have a key-value engine.
        command.env("ASHLAR_KV_PORT", "0");
        command.args(arguments).envs(environment.iter().copied());
        Self::spawn(command)
    }

    /// Another program, which runs this one.
    pub(crate) fn start_other(program: &str, arguments: &[String]) -> Self {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ASHLAR_")) {
            command.env_remove(name);
        }
        command.args(arguments);
        Self::spawn(command)
    }

    fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program is there");
        let out = lines(child.stdout.take().expect("piped"));
        let err = lines(child.stderr.take().expect("piped"));
        Self { child, out, err }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Reads a stream up to the line with `text` in it.
    pub(crate) fn line(lines: &Receiver<String>, text: &str) -> String {
        let mut seen = Vec::new();
        loop {
            match lines.recv_timeout(PATIENCE) {
                Ok(line) if line.contains(text) => return line,
                Ok(line) => seen.push(line),
                Err(error) => panic!("no line with `{text}` ({error}) after {seen:#?}"),
            }
        }
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    /// Waits for the end; the exit code, if it was no signal.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        let mut status = None;
        until("the end of the process", || {
            status = self.child.try_wait().expect("the child is ours");
            status.is_some()
        });
        status.and_then(|status| status.code())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

pub(crate) fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").args([format!("-{name}"), pid.to_string()]).status();
    assert!(status.expect("kill is there").success(), "signal {name} to {pid}");
}

fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    #[allow(clippy::disallowed_methods, reason = "a pipe has to be read beside the test")]
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Looks until `is_so`, a bounded number of times.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let (_keep, never) = mpsc::channel::<()>();
    for _ in 0..LOOKS_MAX {
        if is_so() {
            return;
        }
        never.recv_timeout(LOOK).ok();
    }
    panic!("waited in vain for {what}");
}

/// One server of a test.
pub(crate) struct TestServer {
    pub(crate) process: Running,
    pub(crate) address: String,
    /// Its data directory.
    pub(crate) data: String,
}

impl TestServer {
    /// Starts a server on a free port and waits until it listens.
    pub(crate) fn start(data: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut all = vec!["server", "--data", data, "--listen", "127.0.0.1:0", "--workers", "1"];
        all.extend(arguments);
        let process = Running::start(&all, environment);
        let line = Running::line(&process.err, "server started");
        let address = line.split("listening=").nth(1).and_then(|rest| rest.split(' ').next());
        let address = address.expect("the line tells the address").to_owned();
        Self { process, address, data: data.to_owned() }
    }

    pub(crate) fn status(&self) -> Option<ServerStatus> {
        status(&self.address)
    }

    /// Asks to stop and waits for a clean end.
    pub(crate) fn stop(mut self) {
        self.process.signal("TERM");
        assert_eq!(self.process.wait(), Some(0), "SIGTERM is an orderly end");
    }
}

pub(crate) fn get(address: &str, path: &str) -> Option<http::Answer> {
    let target = Target { address: address.to_owned(), ..Target::default() };
    os::block_on(http::get(&target, path)).expect("there is a runtime").ok()
}

pub(crate) fn status(address: &str) -> Option<ServerStatus> {
    serde_json::from_slice(&get(address, "/v1/status")?.body).ok()
}

/// The secret that a data directory holds.
pub(crate) fn secret(data: &str) -> String {
    let text = std::fs::read_to_string(Path::new(data).join("cluster.secret"));
    text.expect("the first server makes the secret").trim().to_owned()
}

/// An address where nobody listens.
pub(crate) fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("bound").to_string()
}
