//! `ashlar up` with room for objects, and S3 clients on it while servers are killed.
//!
//! The program that the clients run finds everything in the one line that `ashlar up --json` prints when it is ready.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::server::free_ports;
use super::worker::{ended, line_of};
use crate::failure::Failure;
use crate::process::{output, run as run_command};
use crate::terminal::say;
use crate::workspace::Workspace;

/// Ports of each server: for other servers, for NBD, for S3.
const PORTS: u16 = 3;
/// Space on each server for volumes, as little as there can be.
const DRIVE_MIB: &str = "1024";

/// A cluster that ends, and its data with it, when it is dropped.
struct Cluster {
    child: Child,
    folder: PathBuf,
    /// The folder stays: something was wrong, and its logs may say what.
    is_kept: bool,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // By a signal, so that it ends its servers.
        output(Command::new("kill").args(["-INT", &self.child.id().to_string()])).ok();
        if let Err(Failure::Failed(what) | Failure::Usage(what)) = ended(&mut self.child, "`ashlar up`") {
            say(&what);
        }
        if self.is_kept {
            say(&format!("its data and logs are left in {}", self.folder.display()));
        } else {
            fs::remove_dir_all(&self.folder).ok();
        }
    }
}

/// How large a cluster is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) servers: u16,
    /// Drives of each server.
    pub(super) drives: u16,
    /// Space for objects on each server.
    pub(super) object_mib: u32,
}

/// Starts a cluster; the file with what it says of itself when it is ready.
fn start(workspace: &Workspace, Size { servers, drives, object_mib }: Size) -> Result<(Cluster, PathBuf), Failure> {
    let folder = workspace.target.join("clients").join("objects");
    fs::remove_dir_all(&folder).ok();
    fs::create_dir_all(&folder).map_err(|error| Failure::io("the folder of the cluster", &error))?;
    let log = File::create(folder.join("log")).map_err(|error| Failure::io("the log of the cluster", &error))?;
    let port = free_ports(servers * PORTS)?;
    let [base, nbd, s3] = [port, port + servers, port + 2 * servers].map(|port| port.to_string());
    let program = workspace.target.join("debug").join("ashlar");
    let mut command = Command::new(&program);
    command.arg("up").arg("--data").arg(folder.join("data")).args(["--json", "--kv-port", "0", "--workers", "1"]);
    command.args(["--port-base", &base, "--nbd-port", &nbd, "--s3-port", &s3, "--drive-mib", DRIVE_MIB]);
    command.args(["--object-mib", &object_mib.to_string()]);
    command.args(["--servers", &servers.to_string(), "--drives", &drives.to_string()]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn();
    let child = child.map_err(|error| Failure::io(&program.display().to_string(), &error))?;
    let mut cluster = Cluster { child, folder, is_kept: false };
    let line = cluster.child.stdout.take().and_then(|out| line_of(out, Some));
    let Some(line) = line else {
        let log = fs::read_to_string(cluster.folder.join("log")).unwrap_or_default();
        return Err(Failure::Failed(format!("`ashlar up` was not ready in time: {log}")));
    };
    let ready = cluster.folder.join("ready.json");
    fs::write(&ready, line).map_err(|error| Failure::io(&ready.display().to_string(), &error))?;
    Ok((cluster, ready))
}

/// Runs what `client` makes of the file on a cluster of that size.
pub(super) fn run(workspace: &Workspace, size: Size, client: impl FnOnce(&Path) -> Command) -> Result<(), Failure> {
    let (mut cluster, ready) = start(workspace, size)?;
    let result = run_command(&mut client(&ready));
    cluster.is_kept = result.is_err();
    drop(cluster);
    result
}
