//! This process and its children: facts for metrics, limits, a leash.
#![allow(unsafe_code, reason = "limits, signals to children and their leash are not offered by std")]

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use tokio::process::{Child, Command};

use super::files::{self, Creation};

/// What the kernel says about this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessFacts {
    /// Memory in use, bytes.
    pub resident_bytes: u64,
    /// Open descriptors.
    pub descriptors: u64,
    /// Threads.
    pub threads: u64,
}

/// Reads the facts; what the kernel does not tell is 0.
#[must_use]
pub fn facts() -> ProcessFacts {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.split_whitespace().next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0)
    };
    // One of the entries is the descriptor that reads the directory.
    let descriptors = fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count().saturating_sub(1));
    ProcessFacts {
        resident_bytes: field("VmRSS:") * 1_024,
        descriptors: descriptors as u64,
        threads: field("Threads:"),
    }
}

/// CPU time of this process so far, user and system together.
#[must_use]
pub fn cpu_time() -> std::time::Duration {
    let (system, user) = cpu_times(libc::RUSAGE_SELF);
    system + user
}

/// CPU time of this process's children that have ended, in the kernel and in themselves.
#[must_use]
pub fn cpu_times_of_children() -> (std::time::Duration, std::time::Duration) {
    cpu_times(libc::RUSAGE_CHILDREN)
}

/// CPU time of this process so far, in the kernel and in the program.
#[must_use]
pub fn cpu_times_of_process() -> (std::time::Duration, std::time::Duration) {
    cpu_times(libc::RUSAGE_SELF)
}

fn cpu_times(whose: libc::c_int) -> (std::time::Duration, std::time::Duration) {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: writes one rusage through the pointer, which points to room for one of ours.
    let result = unsafe { libc::getrusage(whose, usage.as_mut_ptr()) };
    if result != 0 {
        return Default::default();
    }
    // SAFETY: all zeroes is a valid rusage, and the kernel wrote over it.
    let usage = unsafe { usage.assume_init() };
    let span = |time: libc::timeval| {
        let micros = time.tv_sec.saturating_mul(1_000_000).saturating_add(time.tv_usec);
        std::time::Duration::from_micros(u64::try_from(micros).unwrap_or(0))
    };
    (span(usage.ru_stime), span(usage.ru_utime))
}

/// CPU time of the calling thread so far; of the whole process where the operating system does not tell threads apart.
#[must_use]
pub fn cpu_time_of_thread() -> std::time::Duration {
    #[cfg(target_os = "linux")]
    let whose = libc::RUSAGE_THREAD;
    #[cfg(not(target_os = "linux"))]
    let whose = libc::RUSAGE_SELF;
    let (system, user) = cpu_times(whose);
    system + user
}

/// For how long the calling thread could have run so far and did not, because others had its core; `None` where the operating system
/// does not tell.
#[must_use]
pub fn run_delay_of_thread() -> Option<std::time::Duration> {
    // Nanoseconds that it ran, that it waited for a core, and how often it ran.
    let stat = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    stat.split_ascii_whitespace().nth(1)?.parse().ok().map(std::time::Duration::from_nanos)
}

/// CPU time of process `pid` so far, user and system together, to 10 ms; `None` if there is no such process.
#[must_use]
pub fn cpu_time_of(pid: u32) -> Option<std::time::Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before the last bracket may hold anything. Behind it, user and system time are the 12th and 13th field, in
    // ticks of which the kernel promises programs 100 a second.
    let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
    Some(std::time::Duration::from_millis(10 * (ticks(11)? + ticks(12)?)))
}

/// Memory of process `pid` that lies in the machine's memory, bytes; `None` if there is no such process.
#[must_use]
pub fn resident_of(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1_024)
}

/// Lets other threads go before the calling one where both want a core; no effect where the operating system refuses.
pub fn step_back(niceness: i32) {
    // On Linux, 0 means the calling thread.
    // SAFETY: takes no memory.
    let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, niceness) };
}

/// What kind of machine this is, for the head of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Model name of its first processor.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Kernel release.
    pub kernel: String,
}

/// This machine; what the kernel does not tell is empty or 0.
#[must_use]
pub fn machine() -> Machine {
    let field = |file: &str, name: &str| {
        let text = fs::read_to_string(file).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned();
        line.trim_start_matches([':', ' ', '\t']).trim().to_owned()
    };
    let kib = field("/proc/meminfo", "MemTotal").split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok());
    Machine {
        cpu: field("/proc/cpuinfo", "model name"),
        cores: cores(),
        memory_bytes: kib.unwrap_or(0) * 1_024,
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
    }
}

/// Memory that this process can still take without pushing anything out, bytes; `None` where the kernel does not tell.
/// A limit of the control group (version 2) that the process is in counts too.
#[must_use]
pub fn memory_available() -> Option<u64> {
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default();
    let limit = number(&format!("/sys/fs/cgroup{group}/memory.max"));
    let used = number(&format!("/sys/fs/cgroup{group}/memory.current")).unwrap_or(0);
    let system = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let system = system.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let system = system.and_then(|kib| kib.split_whitespace().next()?.parse::<u64>().ok());
    let of_group = limit.map(|limit| limit.saturating_sub(used));
    of_group.into_iter().chain(system.map(|kib| kib * 1_024)).min()
}

/// Cores that this process may use.
#[must_use]
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Raises the number of descriptors to what the machine allows and returns it.
///
/// # Errors
/// The operating system refused; the old limit holds.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes one rlimit through the pointer, which points to a live rlimit of ours.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: reads one rlimit through the pointer, which points to a live rlimit of ours.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) })?;
    Ok(limit.rlim_cur)
}

/// A child that runs this same program.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// Its process id.
    pub pid: u32,
}

impl Server {
    /// Starts this program with `arguments` and `variables`; what it logs is appended to `log`. The child gets SIGKILL when the
    /// calling thread ends, and none of this process's other `ASHLAR_` settings except those for logging.
    ///
    /// # Errors
    /// The operating system refused, or `log` cannot be written. Retry safe.
    pub fn start(arguments: &[OsString], variables: &[(String, String)], log: &Path) -> io::Result<Self> {
        let log = files::create(log, Creation::Append)?;
        let mut command = this_program(arguments)?;
        command.stdout(log.try_clone()?).stderr(log);
        command.envs(variables.iter().map(|(name, text)| (name, text)));
        let child = Command::from(command).spawn()?;
        let pid = child.id().ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { child, pid })
    }

    /// How it ended. Cancel-safe.
    ///
    /// # Errors
    /// The operating system lost it.
    pub async fn ended(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Asks it to end in an orderly way. No effect on one that has ended.
    pub fn terminate(&self) {
        let Some(pid) = self.child.id().and_then(|pid| libc::pid_t::try_from(pid).ok()) else { return };
        // SAFETY: takes no memory; the child was not waited for yet (`id` is there), so the id is still its own.
        let _ = unsafe { libc::kill(pid, libc::SIGTERM) };
    }

    /// Ends it at once. No effect on one that has ended.
    pub fn kill(&mut self) {
        // The only error is that it has ended already.
        self.child.start_kill().ok();
    }
}

/// A child that runs this same program, says on its standard output when it is ready, and is killed when this value is dropped.
#[derive(Debug)]
pub struct Companion {
    child: std::process::Child,
    /// The line by which it was ready.
    pub ready: String,
}

impl Companion {
    /// Starts this program with `arguments` and waits for a line that has `ready` in it. Its standard error is this process's.
    ///
    /// # Errors
    /// The operating system refused, or the child ended before it was ready. Retry safe.
    pub fn start(arguments: &[OsString], ready: &str) -> io::Result<Self> {
        let mut child = this_program(arguments)?.stdout(Stdio::piped()).spawn()?;
        let out = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut companion = Self { child, ready: String::new() };
        // Lines that come later stay in the pipe: the child says little.
        let line = io::BufReader::new(out).lines().find(|line| line.as_ref().is_ok_and(|line| line.contains(ready)));
        companion.ready = line.ok_or(io::ErrorKind::UnexpectedEof)??;
        Ok(companion)
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        // The only error is that it has ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// This program with `arguments`, as a child that gets SIGKILL when the calling thread ends.
fn this_program(arguments: &[OsString]) -> io::Result<std::process::Command> {
    let mut command = std::process::Command::new(std::env::current_exe()?);
    command.args(arguments).stdin(Stdio::null());
    // A signal from the terminal is for the parent, which stops its children in its own order.
    command.process_group(0);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("ASHLAR_") && !text.starts_with("ASHLAR_LOG") {
            command.env_remove(&name);
        }
    }
    let parent = std::process::id();
    // SAFETY: between fork and exec the closure makes two system calls and touches no memory but its own.
    unsafe { command.pre_exec(move || die_with(parent)) };
    Ok(command)
}

/// Asks for SIGKILL at the end of `parent`, unless that has come already.
fn die_with(parent: u32) -> io::Result<()> {
    let signal = libc::c_ulong::try_from(libc::SIGKILL).unwrap_or_default();
    // SAFETY: PR_SET_PDEATHSIG takes a signal number and no memory.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) })?;
    if std::os::unix::process::parent_id() == parent { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_there() {
        let facts = facts();
        assert!(facts.resident_bytes > 0 && facts.descriptors >= 3 && facts.threads >= 1, "{facts:?}");
        assert!(cores() >= 1);
        assert!(memory_available().is_some_and(|bytes| bytes > 0 && bytes <= machine().memory_bytes));
    }

    /// The safe twin: what the kernel's own table says, in ticks of 10 ms.
    #[test]
    fn cpu_time_is_the_kernels() {
        let ticks = || {
            let stat = fs::read_to_string("/proc/self/stat").unwrap();
            let fields: Vec<u64> =
                stat.rsplit(')').next().unwrap().split_whitespace().map(|field| field.parse().unwrap_or(0)).collect();
            std::time::Duration::from_millis(10 * (fields[11] + fields[12]))
        };
        let (before, time, after) = (ticks(), cpu_time(), ticks());
        let slack = std::time::Duration::from_millis(40);
        assert!(time + slack >= before && time <= after + slack, "{before:?} {time:?} {after:?}");
        let of_pid = cpu_time_of(std::process::id()).unwrap();
        assert!(of_pid >= after && cpu_time_of(u32::MAX).is_none(), "{of_pid:?} {after:?}");
    }

    /// The safe twin: what the kernel's own table says of the thread.
    #[test]
    fn a_thread_steps_back() {
        let thread = std::thread::Builder::new();
        let niceness = thread.spawn(|| {
            step_back(10);
            let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
            stat.rsplit(')').next().unwrap().split_whitespace().nth(16).unwrap().to_owned()
        });
        assert_eq!(niceness.unwrap().join().unwrap(), "10");
    }

    /// The safe twin: what the kernel's own table says.
    #[test]
    fn limit_is_the_hard_one() {
        let raised = raise_descriptor_limit().unwrap();
        let limits = fs::read_to_string("/proc/self/limits").unwrap();
        let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
        let soft = line.split_whitespace().nth(3).unwrap();
        assert_eq!(soft, raised.to_string());
    }
}
