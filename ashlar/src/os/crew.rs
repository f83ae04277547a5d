//! A crew: threads for one piece of bulk work, each with its own part, pinned to cores, gone at its end.
#![allow(unsafe_code, reason = "which cores a thread may use is not offered by std")]

use std::io;
use std::panic;
use std::sync::mpsc;
use std::thread;

/// Runs `body` on each of `parts`, each on a thread of its own, and gives what they returned in the same order.
///
/// No thread begins before all have been started, so bodies may wait for each other. Where there is more than one
/// thread, each is pinned to one of the cores that this process may use, in turn; where the system refuses that, it runs
/// wherever it is put.
///
/// # Errors
/// The operating system gives no more threads; no body has begun. Retry safe.
pub fn run<P: Send, R: Send>(parts: Vec<P>, body: impl Fn(P) -> R + Sync) -> io::Result<Vec<R>> {
    let cores = if parts.len() > 1 { usable_cores() } else { Vec::new() };
    run_on(&cores, parts, body)
}

/// The same, with every thread wherever the system puts it: for work that waits for others on the same machine.
///
/// # Errors
/// The operating system gives no more threads; no body has begun. Retry safe.
pub fn run_anywhere<P: Send, R: Send>(parts: Vec<P>, body: impl Fn(P) -> R + Sync) -> io::Result<Vec<R>> {
    run_on(&[], parts, body)
}

/// Each part on one of `cores` in turn, or anywhere if there are none.
fn run_on<P: Send, R: Send>(cores: &[usize], parts: Vec<P>, body: impl Fn(P) -> R + Sync) -> io::Result<Vec<R>> {
    thread::scope(|scope| {
        let mut threads = Vec::with_capacity(parts.len());
        for (index, part) in parts.into_iter().enumerate() {
            let core = (!cores.is_empty()).then(|| cores[index % cores.len()]);
            let (go, going) = mpsc::channel::<()>();
            let body = &body;
            let work = move || {
                if let Some(core) = core {
                    pin(core);
                }
                // An error means that another thread could not be started.
                going.recv().ok().map(|()| body(part))
            };
            let started = thread::Builder::new().name(format!("crew-{index}")).spawn_scoped(scope, work)?;
            threads.push((go, started));
        }
        for (go, _) in &threads {
            // A thread that is gone has panicked: it is joined below.
            go.send(()).ok();
        }
        let results = threads.into_iter().map(|(_, thread)| thread.join());
        let results = results.map(|result| result.unwrap_or_else(|panicked| panic::resume_unwind(panicked)));
        Ok(results.map(|result| result.expect("all were told to go")).collect())
    })
}

/// The numbers of the cores that this process may use; empty where the kernel does not tell.
fn usable_cores() -> Vec<usize> {
    let Some(set) = usable_set() else { return Vec::new() };
    let bits = usize::try_from(libc::CPU_SETSIZE).unwrap_or(0);
    // SAFETY: the number is below the set's size.
    (0..bits).filter(|&core| unsafe { libc::CPU_ISSET(core, &set) }).collect()
}

fn usable_set() -> Option<libc::cpu_set_t> {
    let mut set = no_core();
    // SAFETY: the kernel writes at most one set through the pointer, which points to one of ours; 0 is this thread.
    let result = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    (result == 0).then_some(set)
}

/// Binds the calling thread to a core; no effect where the kernel refuses.
fn pin(core: usize) {
    let mut set = no_core();
    // SAFETY: the number comes from `usable_cores` and is below the set's size.
    unsafe { libc::CPU_SET(core, &mut set) };
    // SAFETY: the kernel reads one set through the pointer, which points to one of ours; 0 is this thread.
    let _ = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
}

fn no_core() -> libc::cpu_set_t {
    // SAFETY: a set is an array of integers; all zeroes is the empty one.
    unsafe { std::mem::zeroed() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::sync::Barrier;

    fn allowed() -> String {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
        line.trim().to_owned()
    }

    /// The safe twin: what the kernel's own table says of each thread.
    #[test]
    fn each_on_its_core_and_all_at_once() {
        let cores = usable_cores();
        assert_eq!(cores.len(), super::super::process::cores());
        let before = allowed();
        let together = Barrier::new(5);
        let results = run((0..5).collect(), |part: usize| {
            together.wait();
            (part, allowed())
        });
        for (index, (part, allowed)) in results.unwrap().into_iter().enumerate() {
            assert_eq!((part, allowed), (index, cores[index % cores.len()].to_string()));
        }
        assert_eq!(allowed(), before, "the caller stays where it was");
        assert_eq!(run(vec![()], |()| allowed()).unwrap(), [&before[..]], "one thread alone is free");
        assert_eq!(run_anywhere(vec![(), ()], |()| allowed()).unwrap(), [&before[..]; 2]);
    }

    #[test]
    fn panics_are_passed_on() {
        let result = panic::catch_unwind(|| run(vec![1, 2], |part| assert!(part == 1, "part {part}")));
        assert_eq!(result.unwrap_err().downcast_ref::<String>().map(String::as_str), Some("part 2"));
    }
}
