//! One case: warmed up, timed in rounds, checked.
//!
//! Each thread has blocks of its own and goes through them one at a time. All begin a round together; a round's speed is
//! the bytes of data of all threads in the time from the first to begin to the last to end. Before the first round the
//! outputs are overwritten, and in it every thread goes through all of its blocks at least once: so every output that is
//! checked was written while the clock ran.

use std::sync::Barrier;
use std::time::Duration;

use ashlar_erasure::{Codec, Error, PlanCache, Stores};
use ashlar_wire::time::Instant;

use super::Study;
use super::blocks::{Blocks, Job, Part, no_memory, no_threads};
use super::case::{Case, Hash, Layout, Subject, Walk, Work};
use super::check::{Checker, Wrong};
use super::hash::{self, Crc64Nvme, Running, Xxh3};
use super::pattern;
use crate::failure::Failure;
use crate::os::yardstick::{self, Route};
use crate::os::{clock, crew, pages::Pages};

/// Timed rounds of a case.
const ROUNDS: usize = 3;
/// Data between two looks at the clock, bytes at least.
const LOOK_BYTES: usize = 1 << 20;
/// What copies go through at a time, bytes.
const COPY_BYTES: usize = 1 << 20;

/// What a case does with one block.
pub type Step<'a> = dyn Fn(&mut Job<'_>, &mut PlanCache) -> Result<(), Error> + Sync + 'a;

/// Speeds of a case, GB (10^9 bytes of data) a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figure {
    /// What was timed.
    pub subject: Subject,
    /// The median of the rounds.
    pub median: f64,
    /// The best round.
    pub best: f64,
}

/// How long and how often.
#[derive(Debug, Clone, Copy)]
struct Timing {
    round: Duration,
    /// Steps between two looks at the clock.
    batch: usize,
}

/// One round of one thread.
#[derive(Debug, Clone, Copy)]
struct Lap {
    began: Instant,
    ended: Instant,
    steps: usize,
}

/// What one thread brings back.
struct Brought {
    laps: Vec<Lap>,
    refused: Option<Error>,
    checked: Result<(), Wrong>,
}

/// Times `case` over `blocks` and checks what it wrote.
///
/// # Errors
/// Something that was written is wrong, or the operating system gives no threads.
///
/// # Panics
/// Never: shards are cut as the codec wants them.
pub fn stripes(study: &Study, case: Case, codec: &Codec, blocks: &mut Blocks) -> Result<Figure, Failure> {
    stripes_by(study, case, codec, blocks, &*step_of(&case, codec))
}

/// As [`stripes`], with another step.
fn stripes_by(
    study: &Study,
    case: Case,
    codec: &Codec,
    blocks: &mut Blocks,
    step: &Step<'_>,
) -> Result<Figure, Failure> {
    blocks.prepare(&case, codec)?;
    let layout = blocks.layout();
    let checker = Checker::new(case, layout);
    let timing = Timing { round: study.round, batch: (LOOK_BYTES / study.block_bytes).max(1) };
    let together = Barrier::new(case.threads);
    let brought = crew::run(blocks.parts_of(&case), |mut part| {
        let mut refused = None;
        let mut jobs = jobs(&case, &layout, codec, &mut part);
        let mut plans = PlanCache::new(jobs.len());
        let laps = laps(&mut jobs, timing, &together, Job::poison, |job| {
            if let Err(error) = step(job, &mut plans) {
                refused = Some(error);
            }
        });
        let sums: Vec<Vec<u64>> = jobs.into_iter().map(|job| job.sums).collect();
        Brought { laps, refused, checked: checker.part(&part, &sums) }
    });
    let brought = brought.map_err(|error| no_threads(&error))?;
    for thread in &brought {
        assert_eq!(thread.refused, None, "shards are cut as the codec wants them");
        thread.checked.clone().map_err(|wrong| is_wrong(&Subject::Stripes(case), &wrong))?;
    }
    let laps: Vec<Vec<Lap>> = brought.into_iter().map(|thread| thread.laps).collect();
    Ok(figure(Subject::Stripes(case), study.block_bytes, &laps))
}

/// Times copies of as much data as the study's blocks hold, and checks them.
///
/// # Errors
/// A copy is wrong, or the operating system gives no memory or no threads.
pub fn copies(study: &Study, route: Route, threads: usize, pages: &mut Pages) -> Result<Figure, Failure> {
    let subject = Subject::Copy { route, threads };
    let half = pages.bytes().len() / 2;
    let (from, to) = pages.bytes_mut().split_at_mut(half);
    let mut pieces: Vec<(&[u8], &mut [u8])> = from.chunks(COPY_BYTES).zip(to.chunks_mut(COPY_BYTES)).collect();
    let mut parts = Vec::new();
    for left in (1..=threads).rev() {
        let rest = pieces.split_off(pieces.len() / left);
        parts.push(std::mem::replace(&mut pieces, rest));
    }
    let timing = Timing { round: study.round, batch: 1 };
    let together = Barrier::new(parts.len());
    let brought = crew::run(parts, |mut jobs| {
        let poison = |(_, to): &mut (&[u8], &mut [u8])| to.fill(pattern::POISON);
        let laps = laps(&mut jobs, timing, &together, poison, |(from, to)| yardstick::copy(from, to, route));
        let wrong = jobs.iter().position(|(from, to)| *from != &**to);
        (laps, wrong)
    });
    let brought = brought.map_err(|error| no_threads(&error))?;
    if let Some(block) = brought.iter().find_map(|(_, wrong)| *wrong) {
        return Err(is_wrong(&subject, &Wrong { block, what: "the copy differs".to_owned() }));
    }
    let laps: Vec<Vec<Lap>> = brought.into_iter().map(|(laps, _)| laps).collect();
    Ok(figure(subject, COPY_BYTES, &laps))
}

/// Memory for [`copies`]: as much data as the study's blocks hold, and room for its copy.
///
/// # Errors
/// The operating system gives no memory.
pub fn copy_pages(study: &Study) -> Result<Pages, Failure> {
    let len = copy_len(study).ok_or_else(|| no_memory("the blocks are longer than any memory"))?;
    let mut pages = Pages::new(len).map_err(|error| no_memory(&error.to_string()))?;
    let from = &mut pages.bytes_mut()[..len / 2];
    from.chunks_mut(COPY_BYTES).enumerate().for_each(|(piece, bytes)| pattern::fill(piece, 0, bytes));
    Ok(pages)
}

/// Bytes of [`copy_pages`]; whole pieces, and one for each thread.
pub fn copy_len(study: &Study) -> Option<usize> {
    let pieces = study.blocks.checked_mul(study.block_bytes)?.div_ceil(COPY_BYTES);
    pieces.next_multiple_of(study.threads_most()).checked_mul(2 * COPY_BYTES)
}

/// What `case` does with one block.
#[must_use]
pub fn step_of<'a>(case: &Case, codec: &'a Codec) -> Box<Step<'a>> {
    let stores = case.stores;
    match case.work {
        Work::Xor => {
            let route = if stores == Stores::Streaming { Route::Streaming } else { Route::Cached };
            Box::new(move |job, _| {
                yardstick::spread(&job.sources, &mut job.outputs, route);
                Ok(())
            })
        }
        Work::Encode | Work::EncodeHash(None) => {
            Box::new(move |job, _| codec.encode(&job.sources, &mut job.outputs, stores))
        }
        Work::EncodeHash(Some(kind)) if (case.walk, stores) == (Walk::Cold, Stores::Streaming) => match kind {
            Hash::Xxh3 => Box::new(move |job, _| by_tiles::<Xxh3>(codec, job)),
            Hash::Crc64Nvme => Box::new(move |job, _| by_tiles::<Crc64Nvme>(codec, job)),
        },
        Work::EncodeHash(Some(kind)) => Box::new(move |job, _| {
            codec.encode(&job.sources, &mut job.outputs, stores)?;
            let shards = job.sources.iter().copied().chain(job.outputs.iter().map(|output| &**output));
            job.sums.iter_mut().zip(shards).for_each(|(sum, shard)| *sum = hash::whole(kind, shard));
            Ok(())
        }),
        Work::Decode(_) => Box::new(move |job, plans| {
            plans.plan(codec, job.present, job.lost)?.run(&job.sources, &mut job.outputs, stores)
        }),
    }
}

/// Encodes and hashes, tile by tile.
fn by_tiles<R: Running>(codec: &Codec, job: &mut Job<'_>) -> Result<(), Error> {
    let mut running: Vec<R> = job.sums.iter().map(|_| R::default()).collect();
    let each = |shard: usize, piece: &[u8]| running[shard].update(piece);
    codec.encode_tiles(&job.sources, &mut job.outputs, &job.next, each)?;
    job.sums.iter_mut().zip(running).for_each(|(sum, running)| *sum = running.sum());
    Ok(())
}

fn jobs<'a>(case: &Case, layout: &Layout, codec: &Codec, part: &'a mut Part<'_>) -> Vec<Job<'a>> {
    let blocks = part.numbers.clone().zip(part.bytes.chunks_exact_mut(layout.block_len()));
    let jobs = blocks.map(|(number, block)| Job::new(case, layout, codec, number, block));
    let jobs = jobs.collect::<Result<Vec<_>, _>>();
    let mut jobs = jobs.expect("as many shards are lost as the geometry bears");
    for at in 1..jobs.len() {
        jobs[at - 1].next = jobs[at].sources.clone();
    }
    if let [first, .., last] = &mut jobs[..] {
        last.next.clone_from(&first.sources);
    }
    jobs
}

/// Warms up, overwrites the outputs, then goes around the `jobs` in rounds that all threads begin together.
fn laps<J>(
    jobs: &mut [J],
    timing: Timing,
    together: &Barrier,
    poison: impl FnMut(&mut J),
    mut step: impl FnMut(&mut J),
) -> Vec<Lap> {
    let mut at = 0;
    let mut lap = |jobs: &mut [J], span: Duration, steps_min: usize| {
        let (began, mut steps) = (clock::now(), 0);
        loop {
            for _ in 0..timing.batch {
                step(&mut jobs[at]);
                at = if at + 1 == jobs.len() { 0 } else { at + 1 };
            }
            steps += timing.batch;
            let now = clock::now();
            if now.saturating_since(began) >= span && steps >= steps_min {
                return Lap { began, ended: now, steps };
            }
        }
    };
    let every_job = jobs.len();
    lap(jobs, timing.round / 4, every_job);
    jobs.iter_mut().for_each(poison);
    let mut laps = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS {
        together.wait();
        laps.push(lap(jobs, timing.round, if round == 0 { every_job } else { 1 }));
    }
    laps
}

/// The figure of laps by thread and round; each step is so many bytes of data.
fn figure(subject: Subject, step_bytes: usize, threads: &[Vec<Lap>]) -> Figure {
    let mut speeds: Vec<f64> = (0..ROUNDS)
        .map(|round| {
            let laps = || threads.iter().map(|laps| laps[round]);
            let began = laps().map(|lap| lap.began).min().unwrap_or(Instant::ORIGIN);
            let ended = laps().map(|lap| lap.ended).max().unwrap_or(Instant::ORIGIN);
            let steps: usize = laps().map(|lap| lap.steps).sum();
            let nanos = ended.saturating_since(began).as_nanos().max(1);
            steps as f64 * step_bytes as f64 / nanos as f64
        })
        .collect();
    speeds.sort_by(f64::total_cmp);
    Figure { subject, median: speeds[ROUNDS / 2], best: speeds[ROUNDS - 1] }
}

fn is_wrong(subject: &Subject, wrong: &Wrong) -> Failure {
    let what = format!("{subject}: wrong bytes in block {}: {}", wrong.block, wrong.what);
    Failure::world(what, "do not trust this kernel on this machine; test its memory, and report it")
}

/// Each job of a part once, outputs overwritten before; what it hashed.
#[cfg(test)]
pub(super) fn once(case: &Case, layout: &Layout, codec: &Codec, part: &mut Part<'_>, step: &Step<'_>) -> Vec<Vec<u64>> {
    let mut jobs = jobs(case, layout, codec, part);
    let mut plans = PlanCache::new(jobs.len());
    for job in &mut jobs {
        job.poison();
        step(job, &mut plans).unwrap();
    }
    jobs.into_iter().map(|job| job.sums).collect()
}

#[cfg(test)]
mod tests {
    use super::super::case::{Walk, cases};
    use super::super::tests::small;
    use super::*;

    /// A step that writes one wrong bit, or nothing, fails the case with exit code 1.
    #[test]
    fn a_wrong_step_fails_the_bench() {
        let study = small();
        for case in cases(&study).into_iter().filter(|case| case.walk == Walk::Cold && case.threads == 2) {
            let codec = Codec::with_kernel(case.geometry, case.kernel);
            let mut blocks = Blocks::new(Layout::of(&study, &case), 2).unwrap();
            let step = step_of(&case, &codec);
            let right = |job: &mut Job<'_>, plans: &mut PlanCache| step(job, plans);
            let flips = |job: &mut Job<'_>, plans: &mut PlanCache| {
                step(job, plans)?;
                job.outputs[0][7] ^= 0x20;
                Ok(())
            };
            let idle = |_: &mut Job<'_>, _: &mut PlanCache| Ok(());
            assert!(stripes_by(&study, case, &codec, &mut blocks, &right).is_ok(), "{case}");
            for wrong in [&flips as &Step<'_>, &idle] {
                // What the step before has left behind must not be taken for granted.
                let mut blocks = Blocks::new(Layout::of(&study, &case), 2).unwrap();
                let failure = stripes_by(&study, case, &codec, &mut blocks, wrong).unwrap_err();
                assert_eq!(failure.exit_code(), 1);
                assert!(failure.what.contains("wrong bytes in block"), "{failure}");
            }
        }
    }

    #[test]
    fn speed_is_all_bytes_from_first_to_last() {
        let lap =
            |began, ended, steps| Lap { began: Instant::from_nanos(began), ended: Instant::from_nanos(ended), steps };
        let threads =
            [vec![lap(0, 10, 1), lap(20, 30, 4), lap(40, 50, 2)], vec![lap(5, 20, 1), lap(20, 30, 4), lap(40, 50, 2)]];
        let subject = Subject::Copy { route: Route::Cached, threads: 2 };
        assert_eq!(figure(subject, 100, &threads), Figure { subject, median: 40.0, best: 80.0 });
    }
}
