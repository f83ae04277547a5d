//! `ashlar bench`: runs a benchmark and prints its rows.

mod erasure;
mod kv;
mod object;
mod progress;

use std::time::Duration;

use clap::{Args, Subcommand};

use super::{no_runtime, note, say};
use crate::bench::{Options, grid, report};
use crate::failure::Failure;
use crate::os::{self, process};

/// Arguments of `ashlar bench`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Debug, Subcommand)]
enum Benchmark {
    /// Calls and streams between servers: MinIO's published tables, small calls beside bulk, memory, slow links
    Grid(Grid),
    /// Reed-Solomon on this CPU: MinIO's study of encoding and decoding by threads, lost shards and instruction sets
    Erasure(erasure::Arguments),
    /// Load on the key-value engine, or on any other server that speaks RESP: SET and GET at pipelines 1, 16 and 100
    Kv(kv::Arguments),
    /// Load on S3 storage, ours or any other's: PUT, GET, both and lists of objects of several sizes
    Object(object::Arguments),
}

#[derive(Debug, Args)]
struct Common {
    /// Be done within 60 s: shorter and smaller cases
    #[arg(long)]
    quick: bool,
    /// Print one JSON object and nothing else on standard output
    #[arg(long)]
    json: bool,
    /// Only cases whose name contains this text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Measure each case for this many seconds
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
}

#[derive(Debug, Args)]
struct Grid {
    #[command(flatten)]
    common: Common,
    /// Worker threads [default: the machine's cores]
    #[arg(long, value_name = "COUNT")]
    workers: Option<usize>,
}

/// Runs the command.
///
/// # Errors
/// What is measured could not be started or gave wrong results, or no case has the name.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.benchmark {
        Benchmark::Grid(arguments) => run_grid(arguments),
        Benchmark::Erasure(arguments) => erasure::run(arguments),
        Benchmark::Kv(arguments) => kv::run(arguments),
        Benchmark::Object(arguments) => object::run(arguments),
    }
}

fn run_grid(arguments: &Grid) -> Result<(), Failure> {
    let common = &arguments.common;
    let options = Options {
        quick: common.quick,
        only: common.only.clone(),
        span: common.seconds.map(Duration::from_secs),
        workers: arguments.workers.unwrap_or_else(process::cores).max(1),
    };
    // 32 servers in one process have 992 ends of connections; a refusal shows when one cannot be opened.
    process::raise_descriptor_limit().ok();
    let tell = |line: &str| if common.json { note(line) } else { say(line) };
    tell(&report::machine_line());
    let rows = os::block_on(grid::run_all(&options, tell)).map_err(|error| no_runtime(&error))??;
    if rows.is_empty() {
        return Err(nothing_wanted(common));
    }
    if common.json {
        say(&report::json("grid", &[], &rows));
    }
    Ok(())
}

/// The failure of a run whose `--only` leaves nothing.
fn nothing_wanted(common: &Common) -> Failure {
    let what = format!("no case of this benchmark contains {:?}", common.only.as_deref().unwrap_or_default());
    Failure::usage(what, "run it without --only to see all names")
}
