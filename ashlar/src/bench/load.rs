//! Callers that do one thing again and again for a while, and what that took.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ashlar_wire::time::Instant;
use hdrhistogram::Histogram;

use super::report::Row;
use crate::os::wakes::Counts;
use crate::os::workers::Workers;
use crate::os::{clock, heap, process};

/// What every caller watches, and where it notes what its operations took.
#[derive(Debug, Clone)]
pub struct Phase(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    stage: AtomicU8,
    /// Nanoseconds; one for each worker, so that a thousand callers fill no cache with theirs.
    latencies: Vec<Mutex<Histogram<u64>>>,
}

// 0, the default, is warming up.
const MEASURING: u8 = 1;
const OVER: u8 = 2;

impl Phase {
    fn new(workers: usize) -> Self {
        let latencies = (0..workers.max(1)).map(|_| Mutex::new(histogram())).collect();
        Self(Arc::new(Shared { stage: AtomicU8::default(), latencies }))
    }

    /// The tally of one more caller, on `worker`.
    #[must_use]
    pub fn tally(&self, worker: usize) -> Tally {
        let worker = worker % self.0.latencies.len();
        Tally {
            phase: self.clone(),
            worker,
            last: clock::now(),
            untold: [0; UNTOLD_MAX],
            operations: 0,
            errors: 0,
            noted: 0,
        }
    }

    /// Whether callers should stop.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.stage.load(Ordering::Relaxed) == OVER
    }

    /// Whether what callers do now counts.
    #[must_use]
    pub fn is_measuring(&self) -> bool {
        self.0.stage.load(Ordering::Relaxed) == MEASURING
    }

    fn set(&self, stage: u8) {
        self.0.stage.store(stage, Ordering::Relaxed);
    }

    /// The latencies of all workers.
    fn latencies(&self) -> Histogram<u64> {
        let mut all = histogram();
        for worker in &self.0.latencies {
            let worker = worker.lock().unwrap_or_else(PoisonError::into_inner);
            all.add(&*worker).expect("all have the same bounds");
        }
        all
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(100, 60_000_000_000, 2).expect("bounds and precision are valid")
}

/// What one caller counts.
#[derive(Debug)]
pub struct Tally {
    phase: Phase,
    worker: usize,
    last: Instant,
    /// Latencies that the histogram does not know yet, nanoseconds: the first `noted`.
    untold: [u64; UNTOLD_MAX],
    noted: usize,
    operations: u64,
    errors: u64,
}

/// Latencies that a caller keeps until it tells the histogram of its worker, which all callers there share.
const UNTOLD_MAX: usize = 8;

impl Tally {
    /// Begins an operation now. Not needed where the next one begins when the last one ends.
    pub fn begin(&mut self) {
        self.last = clock::now();
    }

    /// Notes that an operation of `messages` messages is done, and begins the next. Whether to go on.
    #[inline]
    pub fn done(&mut self, messages: u64) -> bool {
        let now = clock::now();
        if self.phase.is_measuring() {
            self.operations += messages;
            let nanos = u64::try_from(now.saturating_since(self.last).as_nanos()).unwrap_or(u64::MAX);
            self.untold[self.noted] = nanos;
            self.noted += 1;
            if self.noted == UNTOLD_MAX {
                self.tell();
            }
        }
        self.last = now;
        !self.phase.is_over()
    }

    fn tell(&mut self) {
        let mut latencies = self.phase.0.latencies[self.worker].lock().unwrap_or_else(PoisonError::into_inner);
        for nanos in &self.untold[..core::mem::take(&mut self.noted)] {
            latencies.saturating_record(*nanos);
        }
    }

    /// Notes that an operation failed. Whether to go on.
    pub fn failed(&mut self) -> bool {
        self.errors += 1;
        !self.phase.is_over()
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.tell();
    }
}

/// What all callers of one case did.
#[derive(Debug)]
pub struct Outcome {
    /// Operations, or messages of streams.
    pub operations: u64,
    /// Failed ones.
    pub errors: u64,
    /// How long was measured.
    pub span: Duration,
    /// CPU time of the process, or of those that were to be watched, meanwhile.
    pub cpu: Duration,
    /// Heap allocations of the process meanwhile, if they were counted.
    pub allocations: u64,
    /// Tasks that another worker than their own has woken meanwhile.
    pub wakes: Counts,
    /// Nanoseconds.
    pub latencies: Histogram<u64>,
}

impl Outcome {
    /// Operations a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.operations as f64 / self.span.as_secs_f64()
    }

    /// A quantile of the latencies, microseconds.
    #[must_use]
    pub fn quantile_us(&self, quantile: f64) -> f64 {
        self.latencies.value_at_quantile(quantile) as f64 / 1e3
    }

    /// The usual row: operations a second and what one took.
    #[must_use]
    pub fn row(&self, case: &str, unit: &'static str) -> Row {
        let row = Row::new(case, self.rate(), unit)
            .with("mean_us", self.latencies.mean() / 1e3)
            .with("p50_us", self.quantile_us(0.5))
            .with("p99_us", self.quantile_us(0.99))
            .with("p999_us", self.quantile_us(0.999))
            .with("cpu_us_per_op", self.cpu.as_secs_f64() * 1e6 / self.operations.max(1) as f64);
        if self.errors > 0 { row.with("errors", self.errors as f64) } else { row }
    }

    /// The same, with how often workers woke each other's tasks, and with how many of these they had to wake each other.
    #[must_use]
    pub fn row_with_wakes(&self, case: &str, unit: &'static str) -> Row {
        let per_op = |count| count as f64 / self.operations.max(1) as f64;
        let row = self.row(case, unit);
        row.with("cross_wakes_per_op", per_op(self.wakes.lines)).with("worker_wakes_per_op", per_op(self.wakes.wakes))
    }
}

/// What a caller sends when it has stopped.
pub type Results = std::sync::mpsc::Sender<Tally>;

/// Starts callers on `workers` with `start`, lets them warm up, measures for `span`, stops them and adds up.
pub async fn run(span: Duration, workers: &Workers, start: impl FnOnce(&Phase, &Results)) -> Outcome {
    run_beside(span, workers, process::cpu_time, start).await
}

/// The same, where the CPU time that counts is that which `cpu` tells.
pub async fn run_beside(
    span: Duration,
    workers: &Workers,
    cpu: impl Fn() -> Duration,
    start: impl FnOnce(&Phase, &Results),
) -> Outcome {
    let phase = Phase::new(workers.handles.len());
    let (results, tallies) = std::sync::mpsc::channel();
    start(&phase, &results);
    drop(results);
    clock::sleep(WARM_UP.min(span)).await;
    let (began, cpu_before, heap_before, wakes_before) = (clock::now(), cpu(), heap::counts(), workers.wakes());
    phase.set(MEASURING);
    clock::sleep(span).await;
    phase.set(OVER);
    let (ended, cpu_after, heap_after, wakes_after) = (clock::now(), cpu(), heap::counts(), workers.wakes());
    let tallies = collect(tallies).await;
    let operations = tallies.iter().map(|tally| tally.operations).sum();
    let errors = tallies.iter().map(|tally| tally.errors).sum();
    // With this, the histograms know the last of their latencies.
    drop(tallies);
    Outcome {
        operations,
        errors,
        span: ended.saturating_since(began),
        cpu: cpu_after.saturating_sub(cpu_before),
        allocations: heap_after.allocations - heap_before.allocations,
        wakes: wakes_after - wakes_before,
        latencies: phase.latencies(),
    }
}

/// All tallies, once every caller has ended. The callers are on other threads; this one only looks from time to time.
async fn collect(tallies: std::sync::mpsc::Receiver<Tally>) -> Vec<Tally> {
    let mut all = Vec::new();
    loop {
        match tallies.try_recv() {
            Ok(tally) => all.push(tally),
            Err(std::sync::mpsc::TryRecvError::Empty) => clock::sleep(Duration::from_millis(2)).await,
            Err(std::sync::mpsc::TryRecvError::Disconnected) => return all,
        }
    }
}

/// Not measured at the beginning of each case.
const WARM_UP: Duration = Duration::from_millis(300);

/// Chance for load: a xorshift generator, the same in every run.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// The generator number `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `end`, which is at least 1.
    #[inline]
    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let span = u64::try_from(end).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.0 % span).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_latency_is_lost() {
        for operations in [0, 1, 7, 8, 9, 100] {
            let phase = Phase::new(2);
            let mut tallies = [phase.tally(0), phase.tally(1), phase.tally(2)];
            assert!(tallies.iter_mut().all(|tally| tally.done(1)), "warming up");
            phase.set(MEASURING);
            for _ in 0..operations {
                assert!(tallies.iter_mut().all(|tally| tally.done(1)));
            }
            assert_eq!(tallies.iter().map(|tally| tally.operations).sum::<u64>(), 3 * operations);
            drop(tallies);
            assert_eq!(phase.latencies().len(), 3 * operations);
        }
    }
}
