//! Rolling restart of three servers on loopback, as the page about operating says, while clients write with their own settings.
//!
//! Each server is stopped by SIGTERM, waited for, and started again with the same data directory; the next one follows when the cluster is
//! whole: all slots served, every replica online, every server ready and healthy. No write may fail and none that was acknowledged may be
//! missing; that is for the clients to find. Servers run by themselves, as on three machines: `ashlar up` would start them again on its own.

use std::process::Command;

use super::server::{Shape, make, until_whole};
use super::worker::Workers;
use crate::failure::Failure;
use crate::process::timed;
use crate::terminal::say;
use crate::workspace::Workspace;

const SERVERS: u16 = 3;

/// Clients, given the address of an engine, write while all servers are restarted so many times, one after another.
pub(super) fn run(
    workspace: &Workspace,
    rounds: u32,
    clients: impl FnOnce(&str, &str) -> Vec<Command>,
) -> Result<(), Failure> {
    let folder = workspace.target.join("clients").join("rolling");
    let shape = Shape { folder, servers: SERVERS, options: &[] };
    let mut servers = make(workspace, &shape)?;
    let workers = Workers::start(clients("127.0.0.1", &(servers[0].port + 1).to_string()))?;
    for round in 1..=rounds {
        let (outcome, span) = timed(|| {
            (0..servers.len()).try_for_each(|number| {
                servers[number].restart()?;
                until_whole(&servers)
            })
        });
        outcome?;
        say(&format!("rolling restart: round {round} of {rounds}, {:.1} s", span.as_secs_f64()));
    }
    workers.finish()
}
