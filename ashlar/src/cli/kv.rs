//! `ashlar kv`: the key-value engine alone, in the foreground.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use crate::failure::Failure;
use crate::os::{kv, logs, process};

/// Run the key-value engine alone: one server that any Redis or Valkey client can use. Data is in memory only.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Address to listen on
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), value_name = "IP")]
    bind: IpAddr,
    /// Port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 6379)]
    port: u16,
    /// Threads that serve clients; one for each core unless given
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// How many databases there are
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    databases: u16,
    /// RDB file of Redis or Valkey whose keys are there from the start
    #[arg(long, value_name = "FILE")]
    import: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    logs::start("info", false);
    let plan = kv::Plan {
        listen: SocketAddr::new(arguments.bind, arguments.port),
        workers: arguments.workers.unwrap_or_else(process::cores),
        databases: usize::from(arguments.databases),
        import: arguments.import.clone(),
    };
    kv::run(&plan, |listening| {
        // The line that tools which start Valkey wait for.
        super::say(&format!("Ready to accept connections tcp on {listening}"));
    })
}
