//! `ashlar bench erasure`: how fast this machine encodes and decodes, in the shape of MinIO's CPU study.
//!
//! Blocks of 1 MiB, so many that no cache holds them, in three geometries, on 1, 2, 4 and more threads: encode, and
//! decode with each count of lost shards. Beside the speed stand what networks carry, what the machine copies, and the
//! limit: the same reads and writes with the cheapest arithmetic. Everything that is timed is checked afterwards; one
//! wrong byte fails the run.
//!
//! What it does not do: one machine's memory is taken as one (threads of several NUMA nodes work on pages wherever they
//! were first touched), and hyper-threads count as cores.
//!
//! In reading order: [`case`] (what is measured and its names), [`pattern`] (the data), [`blocks`] (where it stands),
//! [`measure`] (the clock), [`hash`] (of shards and of their pieces), [`check`] (is it right), [`figures`] (what is told of it), [`table`] and [`chart`].

pub mod blocks;
pub mod case;
pub mod chart;
pub mod check;
pub mod figures;
pub mod hash;
pub mod measure;
pub mod pattern;
pub mod table;

use std::time::Duration;

use ashlar_erasure::{Codec, Geometry, Kernel, Stores};

use self::blocks::Blocks;
use self::case::{Case, Layout, Subject, Walk};
use self::measure::Figure;
use crate::failure::Failure;
use crate::os::process;
use crate::os::yardstick::{self, Route};

/// Most threads that can be asked for.
pub const THREADS_MAX: usize = 1_024;
/// Most threads of a study that was not told how many: MinIO's.
pub const THREADS_USUAL_MAX: usize = 128;
/// Most blocks that can be asked for.
pub const BLOCKS_MAX: usize = 1 << 24;
/// Longest block that can be asked for, bytes.
pub const BLOCK_BYTES_MAX: usize = 1 << 30;

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Study {
    /// Each with all cases.
    pub geometries: Vec<Geometry>,
    /// Data bytes of a block, up to [`BLOCK_BYTES_MAX`].
    pub block_bytes: usize,
    /// Blocks, up to [`BLOCKS_MAX`].
    pub blocks: usize,
    /// Numbers of threads, up to [`THREADS_MAX`] each.
    pub threads: Vec<usize>,
    /// Instruction sets, each available here; at least one.
    pub kernels: Vec<Kernel>,
    /// Stores of every case; empty means those that fit.
    pub stores: Vec<Stores>,
    /// Cold, hot or both.
    pub walks: Vec<Walk>,
    /// Only cases whose name contains this.
    pub only: Option<String>,
    /// How long a round is; a case has three.
    pub round: Duration,
    /// Fewer cases, so that the run is done within 60 s.
    pub is_quick: bool,
}

/// How far the study is.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// Cases that are done.
    pub done: usize,
    /// All cases.
    pub total: usize,
    /// What comes next.
    pub next: &'a Subject,
}

/// What came out.
#[derive(Debug, Clone)]
pub struct Results {
    /// In the order of measuring.
    pub figures: Vec<Figure>,
    /// Whether the blocks stood on huge pages.
    pub is_on_huge_pages: bool,
}

impl Study {
    /// Whether `name` is wanted.
    #[must_use]
    pub fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }

    /// The greatest number of threads.
    #[must_use]
    pub fn threads_most(&self) -> usize {
        self.threads.iter().copied().max().unwrap_or(1)
    }

    /// The fastest of the kernels that are asked for.
    #[must_use]
    pub fn best_kernel(&self) -> Kernel {
        self.kernels.iter().copied().max().unwrap_or_default()
    }

    /// Whether this machine can bear it.
    ///
    /// # Errors
    /// Too few blocks for the threads, or too little memory; what would help.
    pub fn check(&self, available: Option<u64>) -> Result<(), Failure> {
        let most = self.threads_most();
        if self.blocks < most {
            let what = format!("{} blocks for {most} threads", self.blocks);
            return Err(Failure::usage(what, "each thread needs a block: give more with --blocks"));
        }
        let layouts = case::cases(self).into_iter().map(|case| Layout::of(self, &case).buffer_len());
        let needed = layouts.chain([measure::copy_len(self)]).collect::<Option<Vec<usize>>>();
        let needed = needed.and_then(|lens| lens.into_iter().max()).unwrap_or(usize::MAX) as u64;
        match available {
            Some(available) if available < needed => {
                let mib = |bytes: u64| bytes.div_ceil(1 << 20);
                let what = format!("the blocks take {} MiB, {} MiB are available", mib(needed), mib(available));
                Err(Failure::world(what, "ask for fewer or smaller blocks (--blocks, --block-size)"))
            }
            _ => Ok(()),
        }
    }
}

/// Runs all cases that are wanted; `tell` hears of each before it begins.
///
/// # Errors
/// The machine cannot bear the study, or something that was written is wrong.
pub fn run(study: &Study, mut tell: impl FnMut(Progress<'_>)) -> Result<Results, Failure> {
    study.check(process::memory_available())?;
    let copies = copies(study);
    let cases = case::cases(study);
    let total = copies.len() + cases.len();
    let mut results = Results { figures: Vec::with_capacity(total), is_on_huge_pages: false };
    if !copies.is_empty() {
        let mut pages = measure::copy_pages(study)?;
        for (route, threads) in copies {
            tell(Progress { done: results.figures.len(), total, next: &Subject::Copy { route, threads } });
            results.figures.push(measure::copies(study, route, threads, &mut pages)?);
        }
    }
    let same_blocks = |one: &Case, other: &Case| Layout::of(study, one) == Layout::of(study, other);
    for cases in cases.chunk_by(same_blocks) {
        let mut blocks = Blocks::new(Layout::of(study, &cases[0]), process::cores())?;
        results.is_on_huge_pages |= blocks.is_on_huge_pages();
        for &case in cases {
            tell(Progress { done: results.figures.len(), total, next: &Subject::Stripes(case) });
            let codec = Codec::with_kernel(case.geometry, case.kernel);
            results.figures.push(measure::stripes(study, case, &codec, &mut blocks)?);
        }
    }
    Ok(results)
}

/// Copies of every kind that this CPU has, with every number of threads.
fn copies(study: &Study) -> Vec<(Route, usize)> {
    let is_there = |route: &Route| *route == Route::Cached || yardstick::streams();
    let routes = [Route::Cached, Route::Streaming].into_iter().filter(is_there);
    let copies = routes.flat_map(|route| study.threads.iter().map(move |&threads| (route, threads)));
    copies.filter(|&(route, threads)| study.wants(&Subject::Copy { route, threads }.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A study that takes no time worth speaking of.
    pub(super) fn small() -> Study {
        Study {
            geometries: [(4, 2), (1, 1)].map(|(data, parity)| Geometry::new(data, parity).unwrap()).to_vec(),
            block_bytes: 1 << 14,
            blocks: 5,
            threads: vec![1, 2],
            kernels: vec![Kernel::best()],
            stores: Vec::new(),
            walks: vec![Walk::Cold, Walk::Hot],
            only: None,
            round: Duration::from_micros(50),
            is_quick: false,
        }
    }

    #[test]
    fn end_to_end() {
        let mut study = small();
        study.kernels = Kernel::ALL.into_iter().filter(|kernel| kernel.is_available()).collect();
        let mut told = Vec::new();
        let results = run(&study, |progress| {
            assert_eq!(progress.done, told.len());
            told.push((progress.next.to_string(), progress.total));
        });
        let figures = results.unwrap().figures;
        assert_eq!(told.len(), figures.len());
        for (figure, (name, total)) in figures.iter().zip(&told) {
            assert_eq!((&figure.subject.to_string(), figures.len()), (name, *total));
            assert!(figure.median > 0.0 && figure.best >= figure.median, "{figure:?}");
        }
        let expected = ["copy/memcpy/t2", "xor/cold/4+2/t1", "encode/hot-padded/4+2/t2", "decode/cold/1+1/t1/lost1"];
        for name in expected {
            assert!(told.iter().any(|(told, _)| told == name), "{name}");
        }
    }

    #[test]
    fn only_what_is_wanted_runs() {
        let study = Study { only: Some("decode/hot/4+2/t2/".into()), ..small() };
        let results = run(&study, |_| {}).unwrap();
        let names: Vec<String> = results.figures.iter().map(|figure| figure.subject.to_string()).collect();
        assert_eq!(names, ["decode/hot/4+2/t2/lost1", "decode/hot/4+2/t2/lost2"]);
    }

    #[test]
    fn what_the_machine_cannot_bear_is_refused() {
        let study = small();
        assert_eq!(study.check(None), Ok(()));
        assert_eq!(study.check(Some(1 << 30)), Ok(()));
        let failure = study.check(Some(1_000)).unwrap_err();
        assert_eq!((failure.exit_code(), failure.what.contains("1 MiB are available")), (1, true), "{failure}");
        let greatest = Study { blocks: BLOCKS_MAX, block_bytes: BLOCK_BYTES_MAX, ..small() };
        assert_eq!(greatest.check(Some(1 << 50)).unwrap_err().exit_code(), 1);
        let failure = Study { threads: vec![6], ..small() }.check(None).unwrap_err();
        assert_eq!((failure.exit_code(), failure.what.as_str()), (2, "5 blocks for 6 threads"));
    }
}
