//! The command line: what a person types, and what is printed in answer.
//!
//! Exit codes: 0 done, 1 the world refused, 2 arguments or configuration are wrong. Results go to standard output,
//! everything else to standard error.

pub mod asking;
pub mod bench;
pub mod bucket;
pub mod catalog;
pub mod config;
pub mod drives;
pub mod forget;
pub mod kv;
pub mod object;
pub mod s3;
pub mod secret;
pub mod server;
pub mod sim;
pub mod status;
pub mod table;
pub mod up;
pub mod volume;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::failure::Failure;

/// Servers that form one cluster: connected each to each, authenticated, watched.
#[derive(Debug, Parser)]
#[command(name = "ashlar", version, about, disable_help_subcommand = true, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a cluster on this machine: several servers, one command; Ctrl-C stops it, the data stays
    Up(up::Arguments),
    /// Run one server
    Server(server::Arguments),
    /// Show the servers of a cluster and the connections between them
    Status(status::Arguments),
    /// Remove a server that left for good
    Forget(forget::Arguments),
    /// Remove a drive
    Drives(drives::Arguments),
    /// Show the catalog, or bring it back when a majority of its voters is gone for good
    Catalog(catalog::Arguments),
    /// Replace the cluster's secret while the cluster runs
    Secret(secret::Arguments),
    /// Print the key for S3 clients
    S3(s3::Arguments),
    /// Create and list volumes
    Volume(volume::Arguments),
    /// List buckets of objects, and say how much they may have
    Bucket(bucket::Arguments),
    /// Read all shards of a bucket's objects, and make anew what is lost
    Object(object::Arguments),
    /// Run the key-value engine alone: one server for any Redis or Valkey client
    Kv(kv::Arguments),
    /// Measure the published figures on this machine
    Bench(bench::Arguments),
    /// Run clusters in virtual time: under every fault, or of thousands of servers of which half die
    Sim(sim::Arguments),
    /// Check, show or describe the configuration
    Config(config::Arguments),
}

/// Runs the command line `arguments`, the program's name first.
#[must_use]
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    let (arguments, configuration) = match kv::valkey::expand(arguments) {
        Ok(kv::valkey::Wish::Run(arguments, configuration)) => (arguments, configuration),
        Ok(kv::valkey::Wish::Print(text)) => {
            say(text);
            return ExitCode::SUCCESS;
        }
        Err(failure) => {
            note(&format!("ashlar: {failure}"));
            return ExitCode::from(failure.exit_code());
        }
    };
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version come as errors too; where they cannot be printed, nothing can.
            error.print().ok();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let result = match arguments.command {
        Command::Sim(arguments) => return sim::run(arguments),
        Command::Up(arguments) => up::run(&arguments),
        Command::Server(arguments) => server::run(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Forget(arguments) => forget::run(&arguments),
        Command::Drives(arguments) => drives::run(&arguments),
        Command::Catalog(arguments) => catalog::run(&arguments),
        Command::Secret(arguments) => secret::run(&arguments),
        Command::S3(arguments) => s3::run(&arguments),
        Command::Volume(arguments) => volume::run(&arguments),
        Command::Bucket(arguments) => bucket::run(&arguments),
        Command::Object(arguments) => object::run(&arguments),
        Command::Kv(arguments) => kv::run(&arguments, configuration),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Config(arguments) => config::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            note(&format!("ashlar: {failure}"));
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Prints a result. A closed standard output is no failure: whoever read it has seen enough.
pub(crate) fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).ok();
}

/// Prints to standard error.
pub(crate) fn note(text: &str) {
    writeln!(std::io::stderr().lock(), "{text}").ok();
}

/// The failure of a command that got no runtime.
pub(crate) fn no_runtime(error: &std::io::Error) -> Failure {
    Failure::world(format!("the operating system refused: {error}"), "check the limits of this user (ulimit -a)")
}
