//! `ashlar bench erasure`: its arguments, its progress, and where its results go.

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::time::Duration;

use ashlar_erasure::{Geometry, Kernel, Stores};
use clap::{Args, ValueEnum};
use serde_json::json;

use super::super::{note, say, table};
use super::progress::Bar;
use crate::bench::erasure::case::Walk;
use crate::bench::erasure::{
    self, BLOCK_BYTES_MAX, BLOCKS_MAX, Progress, Results, Study, THREADS_MAX, THREADS_USUAL_MAX, chart, figures,
};
use crate::bench::report::{self, Row};
use crate::failure::Failure;
use crate::os::files::{self, Readers};
use crate::os::process;

/// Forces a kernel where `--kernel` is not given.
const KERNEL_VARIABLE: &str = "ASHLAR_ERASURE_KERNEL";
/// Blocks of a study, as MinIO's; a quick one has half.
const BLOCKS: u32 = 1_024;
const ROUND: Duration = Duration::from_millis(700);
const QUICK_ROUND: Duration = Duration::from_millis(200);
const ROUNDS: u32 = 3;

/// Arguments of `ashlar bench erasure`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    common: super::Common,
    /// Data and parity shards; may be given several times [default: 12+4 8+8 4+4]
    #[arg(long, value_name = "M+K", value_delimiter = ',', value_parser = geometry)]
    geometry: Vec<Geometry>,
    /// Blocks that are gone through in turn [default: 1024, with --quick 512]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=BLOCKS_MAX as i64))]
    blocks: Option<u32>,
    /// Data bytes of a block
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20, value_parser = clap::value_parser!(u32).range(1..=BLOCK_BYTES_MAX as i64))]
    block_size: u32,
    /// Numbers of threads [default: 1, 2, 4 ... up to --threads-max]
    #[arg(long, value_name = "COUNT", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=THREADS_MAX as i64))]
    threads: Vec<u32>,
    /// Where doubling the threads ends, 128 at most [default: twice the cores; with --quick, 1 and the cores]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=THREADS_USUAL_MAX as i64))]
    threads_max: Option<u32>,
    /// Instruction sets, or `all` that the CPU has [default: the best one] [environment: ASHLAR_ERASURE_KERNEL]
    #[arg(long, value_name = "NAME|all", value_delimiter = ',')]
    kernel: Vec<String>,
    /// How results are written [default: streaming where blocks are cold, cached where they are hot or hashed next]
    #[arg(long, value_name = "WAY")]
    stores: Option<StoresArgument>,
    /// How threads go through blocks
    #[arg(long, value_name = "WAY", default_value = "both")]
    walk: WalkArgument,
    /// Write all rows to this file as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draw the chart into this file as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum StoresArgument {
    /// Through the caches
    Cached,
    /// Past the caches
    Streaming,
    /// Each case both ways
    Both,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum WalkArgument {
    /// All blocks in turn, out of every cache
    Cold,
    /// One block again and again
    Hot,
    /// First cold, then hot
    Both,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let study = study(arguments, std::env::var_os(KERNEL_VARIABLE).as_deref(), process::cores())?;
    let outputs = [&arguments.csv, &arguments.svg];
    outputs.into_iter().flatten().try_for_each(|path| expect_directory(path))?;
    let results = watched(&study)?;
    if results.figures.is_empty() {
        return Err(super::nothing_wanted(&arguments.common));
    }
    let rows = figures::rows(&figures::complete(&results.figures), process::cores());
    print(arguments.common.json, &study, &results, &rows);
    write_files(arguments, &study, &results, &rows)
}

fn write_files(arguments: &Arguments, study: &Study, results: &Results, rows: &[Row]) -> Result<(), Failure> {
    if let Some(path) = &arguments.csv {
        write(path, &erasure::table::csv(rows))?;
    }
    if let Some(path) = &arguments.svg {
        write(path, &chart::svg(study, &results.figures, &subtitle(study, results)))?;
    }
    Ok(())
}

/// Runs the study with a progress bar, where somebody sees it.
fn watched(study: &Study) -> Result<Results, Failure> {
    let mut bar = std::io::stderr().is_terminal().then(Bar::start);
    let results = erasure::run(study, |progress: Progress<'_>| {
        if let Some(bar) = &mut bar {
            bar.show(progress.done, progress.total, &progress.next.to_string());
        }
    });
    if let Some(bar) = bar {
        bar.clear();
    }
    results
}

fn print(as_json: bool, study: &Study, results: &Results, rows: &[Row]) {
    if as_json {
        let names: Vec<&str> = study.kernels.iter().map(|kernel| kernel.name()).collect();
        let facts = [("huge_pages", json!(results.is_on_huge_pages)), ("kernels", json!(names))];
        return say(&report::json("erasure", &facts, rows));
    }
    say(&format!("{}\n{}\n", report::machine_line(), conditions(study, results)));
    let cells: Vec<Vec<String>> = rows.iter().map(erasure::table::cells).collect();
    say(&table::text(&erasure::table::HEAD, &cells));
}

fn conditions(study: &Study, results: &Results) -> String {
    let names: Vec<&str> = study.kernels.iter().map(|kernel| kernel.name()).collect();
    let pages = if results.is_on_huge_pages { "huge pages" } else { "no huge pages" };
    format!("kernel {} | {} blocks of {} bytes | {pages}", names.join(", "), study.blocks, study.block_bytes)
}

fn subtitle(study: &Study, results: &Results) -> String {
    format!("{} | {}", report::machine_line(), conditions(study, results))
}

/// The study that is asked for: `variable` is the kernel of the environment.
fn study(arguments: &Arguments, variable: Option<&OsStr>, cores: usize) -> Result<Study, Failure> {
    let quick = arguments.common.quick;
    let usual = [(12, 4), (8, 8), (4, 4)].map(|(data, parity)| Geometry::new(data, parity));
    let usual: Vec<Geometry> = usual.into_iter().map(|geometry| geometry.expect("all are geometries")).collect();
    let round = match arguments.common.seconds {
        Some(seconds) => Duration::from_secs(seconds) / ROUNDS,
        None if quick => QUICK_ROUND,
        None => ROUND,
    };
    Ok(Study {
        geometries: if arguments.geometry.is_empty() { usual } else { once_each(&arguments.geometry) },
        block_bytes: arguments.block_size as usize,
        blocks: arguments.blocks.unwrap_or(if quick { BLOCKS / 2 } else { BLOCKS }) as usize,
        threads: threads(arguments, cores),
        kernels: kernels(&arguments.kernel, variable)?,
        stores: match arguments.stores {
            None => Vec::new(),
            Some(StoresArgument::Cached) => vec![Stores::Cached],
            Some(StoresArgument::Streaming) => vec![Stores::Streaming],
            Some(StoresArgument::Both) => vec![Stores::Cached, Stores::Streaming],
        },
        walks: match arguments.walk {
            WalkArgument::Cold => vec![Walk::Cold],
            WalkArgument::Hot => vec![Walk::Hot],
            WalkArgument::Both => vec![Walk::Cold, Walk::Hot],
        },
        only: arguments.common.only.clone(),
        round,
        is_quick: quick,
    })
}

fn threads(arguments: &Arguments, cores: usize) -> Vec<usize> {
    if !arguments.threads.is_empty() {
        return once_each(&arguments.threads).into_iter().map(|threads| threads as usize).collect();
    }
    if arguments.common.quick && arguments.threads_max.is_none() {
        return once_each(&[1, cores.min(THREADS_USUAL_MAX)]);
    }
    let most = arguments.threads_max.map_or(2 * cores, |most| most as usize).min(THREADS_USUAL_MAX);
    std::iter::successors(Some(1), |threads| Some(2 * threads)).take_while(|&threads| threads <= most).collect()
}

fn kernels(names: &[String], variable: Option<&OsStr>) -> Result<Vec<Kernel>, Failure> {
    let available: Vec<Kernel> = Kernel::ALL.into_iter().filter(|kernel| kernel.is_available()).rev().collect();
    let named: Vec<(&str, OsString)> = match variable {
        Some(name) if names.is_empty() => vec![(KERNEL_VARIABLE, name.to_owned())],
        _ => names.iter().map(|name| ("--kernel", name.into())).collect(),
    };
    let mut kernels = Vec::new();
    for (place, name) in named {
        let name = name.to_string_lossy();
        if name == "all" {
            kernels.extend(&available);
            continue;
        }
        let kernel = Kernel::from_str(&name)
            .map_err(|error| Failure::usage(format!("{place}: no kernel {name:?}"), format!("{error}, or all")))?;
        if !kernel.is_available() {
            let names: Vec<&str> = available.iter().map(|kernel| kernel.name()).collect();
            let what = format!("{place}: this CPU cannot run the kernel {kernel}");
            return Err(Failure::usage(what, format!("it can run: {}", names.join(" "))));
        }
        kernels.push(kernel);
    }
    Ok(if kernels.is_empty() { vec![Kernel::best()] } else { once_each(&kernels) })
}

fn once_each<T: Copy + PartialEq>(values: &[T]) -> Vec<T> {
    let mut once = Vec::new();
    for value in values {
        if !once.contains(value) {
            once.push(*value);
        }
    }
    once
}

fn geometry(text: &str) -> Result<Geometry, String> {
    let (data, parity) = text.split_once('+').ok_or("write M+K, for instance 12+4")?;
    let number = |text: &str| text.parse::<usize>().map_err(|_| format!("`{text}` is not a number of shards"));
    Geometry::new(number(data)?, number(parity)?).map_err(|error| error.to_string())
}

/// Says before a long run that its results could not be written.
fn expect_directory(path: &Path) -> Result<(), Failure> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if files::exists(directory) {
        return Ok(());
    }
    Err(Failure::usage(format!("there is no directory {}", directory.display()), "make it, or write elsewhere"))
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    files::write_whole(path, text.as_bytes(), Readers::Others).map_err(|error| {
        Failure::world(format!("cannot write {}: {error}", path.display()), "look at its directory's permissions")
    })?;
    note(&format!("wrote {}", path.display()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parse(line: &str) -> Result<Arguments, String> {
        let words = ["erasure"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.arguments).map_err(|error| error.to_string())
    }

    fn studied(line: &str) -> Study {
        study(&parse(line).unwrap(), None, 3).unwrap()
    }

    #[test]
    fn defaults_are_the_study() {
        let study = studied("");
        let geometries: Vec<String> = study.geometries.iter().map(Geometry::to_string).collect();
        assert_eq!(geometries, ["12+4", "8+8", "4+4"]);
        assert_eq!((study.block_bytes, study.blocks, &study.threads), (1 << 20, 1_024, &vec![1, 2, 4]));
        assert_eq!(
            (study.kernels, study.stores, study.walks),
            (vec![Kernel::best()], vec![], vec![Walk::Cold, Walk::Hot])
        );
        assert_eq!((study.round, study.is_quick, study.only), (ROUND, false, None));
    }

    #[test]
    fn choices() {
        let study =
            studied("--quick --only cold --seconds 6 --geometry 2+1 --geometry 3+2,2+1 --stores both --walk hot");
        let geometries: Vec<String> = study.geometries.iter().map(Geometry::to_string).collect();
        assert_eq!(geometries, ["2+1", "3+2"]);
        assert_eq!((study.blocks, study.round, study.threads), (512, Duration::from_secs(2), vec![1, 3]));
        assert_eq!((study.stores, study.walks), (vec![Stores::Cached, Stores::Streaming], vec![Walk::Hot]));
        for (line, threads) in [
            ("--threads 5,2,5", vec![5, 2]),
            ("--threads-max 1", vec![1]),
            ("--threads-max 128", vec![1, 2, 4, 8, 16, 32, 64, 128]),
            ("--quick --threads-max 5", vec![1, 2, 4]),
        ] {
            assert_eq!(studied(line).threads, threads, "{line}");
        }
        assert_eq!(super::study(&parse("").unwrap(), None, 500).unwrap().threads.last(), Some(&128));
    }

    #[test]
    fn kernels_by_flag_and_environment() {
        let of = |line: &str, variable: Option<&str>| study(&parse(line).unwrap(), variable.map(OsStr::new), 1);
        let kernels = |line, variable| of(line, variable).map(|study| study.kernels);
        assert_eq!(kernels("--kernel portable", None), Ok(vec![Kernel::Portable]));
        assert_eq!(kernels("", Some("portable")), Ok(vec![Kernel::Portable]));
        assert_eq!(kernels("--kernel portable", Some("nonsense")), Ok(vec![Kernel::Portable]), "the flag is stronger");
        let all = kernels("--kernel all", None).unwrap();
        assert_eq!((all.first(), all.last()), (Some(&Kernel::best()), Some(&Kernel::Portable)));
        assert_eq!(kernels("--kernel all,portable", None), Ok(all));
        let failure = kernels("", Some("gfni")).unwrap_err();
        assert_eq!((failure.exit_code(), failure.what.as_str()), (2, "ASHLAR_ERASURE_KERNEL: no kernel \"gfni\""));
        assert!(failure.remedy.contains("portable ssse3 avx2"), "{failure}");
        let absent = Kernel::ALL.into_iter().find(|kernel| !kernel.is_available()).unwrap();
        let failure = kernels(&format!("--kernel {absent}"), None).unwrap_err();
        assert_eq!(
            (failure.exit_code(), failure.what),
            (2, format!("--kernel: this CPU cannot run the kernel {absent}"))
        );
    }

    #[test]
    fn slips_are_refused() {
        for (line, expected) in [
            ("--geometry 12", "write M+K"),
            ("--geometry 200+57", "at most 256"),
            ("--geometry 4+x", "`x` is not a number"),
            ("--blocks 0", "0 is not in"),
            ("--block-size 0", "0 is not in"),
            ("--threads 0", "0 is not in"),
            ("--threads 1025", "1025 is not in"),
            ("--threads-max 129", "129 is not in"),
            ("--stores none", "possible values: cached, streaming, both"),
            ("--walk warm", "possible values: cold, hot, both"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn files_are_written_and_missing_directories_told_first() {
        let scratch = files::tests::Scratch::new();
        let (csv, svg) = (scratch.0.join("rows.csv"), scratch.0.join("chart.svg"));
        let arguments = parse(&format!("--csv {} --svg {}", csv.display(), svg.display())).unwrap();
        let study =
            Study { blocks: 2, threads: vec![1], round: Duration::ZERO, ..studied("--geometry 2+1 --walk cold") };
        let results = erasure::run(&study, |_| {}).unwrap();
        let rows = figures::rows(&figures::complete(&results.figures), 1);
        write_files(&arguments, &study, &results, &rows).unwrap();
        let text = files::read_text(&csv).unwrap().unwrap();
        assert!(text.contains("\r\nencode/cold/2+1/t1,") && text.contains("\r\ndecode/cold/2+1/t1,"), "{text}");
        let text = files::read_text(&svg).unwrap().unwrap();
        assert!(text.starts_with("<svg") && text.contains("2+1, all blocks in turn"));
        let arguments = parse(&format!("--csv {}", scratch.0.join("absent/rows.csv").display())).unwrap();
        let failure = run(&arguments).unwrap_err();
        assert_eq!((failure.exit_code(), failure.what.starts_with("there is no directory")), (2, true));
    }
}
