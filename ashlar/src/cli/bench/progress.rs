//! A progress bar: one line of a terminal, drawn over itself.

use std::io::Write as _;

use ashlar_wire::time::Instant;

use crate::os::clock;

/// Cells of the bar.
const CELLS: usize = 24;
/// Back to the line's beginning, and everything behind it away.
const CLEAR: &str = "\r\x1b[K";

/// A bar that began at some time.
#[derive(Debug)]
pub(super) struct Bar {
    began: Instant,
}

impl Bar {
    pub(super) fn start() -> Self {
        Self { began: clock::now() }
    }

    /// Draws that `done` of `total` steps are over and `next` is what comes.
    pub(super) fn show(&mut self, done: usize, total: usize, next: &str) {
        let seconds = clock::now().saturating_since(self.began).as_secs();
        // A terminal that is gone is no failure.
        write!(std::io::stderr().lock(), "{CLEAR}{}", line(done, total, seconds, next)).ok();
    }

    /// Takes the bar away.
    pub(super) fn clear(self) {
        write!(std::io::stderr().lock(), "{CLEAR}").ok();
    }
}

fn line(done: usize, total: usize, seconds: u64, next: &str) -> String {
    let full = CELLS * done / total.max(1);
    let bar: String = (0..CELLS).map(|cell| if cell < full { '#' } else { '.' }).collect();
    let left = match done as u64 {
        0 => String::new(),
        steps => format!(", {} s left", seconds * (total.saturating_sub(done)) as u64 / steps),
    };
    format!("[{bar}] {done}/{total}{left}  {next}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        for ((done, total, seconds), expected) in [
            ((0, 4, 0), "[........................] 0/4  next"),
            ((1, 4, 10), "[######..................] 1/4, 30 s left  next"),
            ((4, 4, 40), "[########################] 4/4, 0 s left  next"),
            ((0, 0, 0), "[........................] 0/0  next"),
        ] {
            assert_eq!(line(done, total, seconds, "next"), expected);
        }
    }
}
