//! Rolling restart of three servers on loopback, as the page about operating says, while clients write with their own settings.
//!
//! Each server is stopped by SIGTERM, waited for, and started again with the same data directory; the next one follows when the cluster is
//! whole: all slots served, every replica online, every server ready and healthy. No write may fail and none that was acknowledged may be
//! missing; that is for the clients to find. Servers run by themselves, as on three machines: `ashlar up` would start them again on its own.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::worker::{Workers, ended, until};
use crate::failure::Failure;
use crate::process::{output, timed};
use crate::terminal::say;
use crate::workspace::Workspace;

const SERVERS: usize = 3;
const SLOTS: u64 = 16_384;
/// Ports of one server: for the other servers, and for each of its two engines.
const PORTS: u16 = 3;
/// Ports below those that the kernel gives to outgoing connections: they stay free while a server is down.
const PORT_MIN: u16 = 12_000;
const PORT_MAX: u16 = 31_000;
/// A server that says nothing for so long is asked again.
const PATIENCE: Duration = Duration::from_secs(5);
/// An order to the cluster that takes longer hangs, seconds.
const ORDER_SECONDS_MAX: &str = "40";

/// One server, and all that is needed to start it again.
struct Server {
    program: PathBuf,
    folder: PathBuf,
    /// For other servers and for health; those of its engines follow it.
    port: u16,
    /// The port of the server that it joins.
    join: u16,
    child: Child,
}

impl Drop for Server {
    fn drop(&mut self) {
        // The only error is that it has ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn loopback(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

fn start(program: &Path, folder: &Path, port: u16, join: u16) -> Result<Child, Failure> {
    let log = File::options().create(true).append(true).open(folder.join("log"));
    let log = log.map_err(|error| Failure::io("the log of a server", &error))?;
    let mut command = Command::new(program);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ASHLAR_")) {
        command.env_remove(name);
    }
    command.arg("server").arg("--data").arg(folder.join("data")).args(["--listen", &loopback(port), "--workers", "1"]);
    command.args(["--kv-port", &(port + 1).to_string(), "--kv-replica-port", &(port + 2).to_string()]);
    if join != port {
        command.args(["--join", &loopback(join)]);
        let secret = folder.with_file_name("0").join("data").join("cluster.secret");
        command.arg("--secret-file").arg(secret);
    }
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
    child.map_err(|error| Failure::io(&program.display().to_string(), &error))
}

impl Server {
    fn start(workspace: &Workspace, number: usize, port: u16, join: u16) -> Result<Self, Failure> {
        let folder = workspace.target.join("clients").join("rolling").join(number.to_string());
        fs::create_dir_all(&folder).map_err(|error| Failure::io("the folder of a server", &error))?;
        let program = workspace.target.join("debug").join("ashlar");
        let child = start(&program, &folder, port, join)?;
        let server = Self { program, folder, port, join, child };
        until("a server to answer", || server.says("/health/live", "live"))?;
        Ok(server)
    }

    /// Stops it by SIGTERM, waits for its end, and starts it again.
    fn restart(&mut self) -> Result<(), Failure> {
        let pid = self.child.id().to_string();
        output(Command::new("kill").args(["-TERM", &pid]))?;
        let name = self.name();
        let status = ended(&mut self.child, &name)?;
        if !status.success() {
            return Err(Failure::Failed(format!("SIGTERM is an orderly end, but {name}: {status}")));
        }
        self.child = start(&self.program, &self.folder, self.port, self.join)?;
        Ok(())
    }

    fn name(&self) -> String {
        format!("the server at {}, whose log is {}", loopback(self.port), self.folder.join("log").display())
    }

    /// The body of a page.
    fn get(&self, path: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&SocketAddr::from(([127, 0, 0, 1], self.port)), PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", loopback(self.port))?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
    }

    /// Whether a page about health has this status.
    fn says(&self, path: &str, status: &str) -> bool {
        let body = self.get(path).unwrap_or_default();
        serde_json::from_str::<serde_json::Value>(&body).is_ok_and(|page| page["status"] == status)
    }

    /// What `ashlar kv` prints of the cluster that this server is of.
    fn kv(&self, words: &[&str]) -> Result<String, Failure> {
        let mut command = Command::new("timeout");
        command.arg(ORDER_SECONDS_MAX).arg(&self.program).arg("kv").args(words);
        output(command.args(["--addr", &loopback(self.port + 1)]))
    }
}

/// Whether all slots are served and every group has a replica that is online.
fn is_whole(server: &Server) -> bool {
    let status = server.kv(&["status", "--json"]).unwrap_or_default();
    let Ok(status) = serde_json::from_str::<serde_json::Value>(&status) else { return false };
    let groups = status["groups"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_online = |member: &serde_json::Value| member["state"] == "online";
    status["slots_served"] == SLOTS
        && groups.len() == SERVERS
        && groups.iter().all(|group| {
            let replicas = group["replicas"].as_array().map(Vec::as_slice).unwrap_or_default();
            is_online(&group["primary"]) && replicas.len() == 1 && replicas.iter().all(is_online)
        })
}

/// Waits for what an operator waits for before the next server's turn.
fn until_whole(servers: &[Server]) -> Result<(), Failure> {
    until("all servers to be ready, and the cluster to be whole and healthy", || {
        let is_well =
            |server: &Server| server.says("/health/ready", "ready") && server.says("/health/cluster", "healthy");
        servers.iter().all(is_well) && is_whole(&servers[0])
    })
}

/// Ports in a row where nobody listens. Two runs at a time look in different places.
pub(super) fn free_ports(count: u16) -> Result<u16, Failure> {
    let is_free = |port: &u16| (*port..port + count).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok());
    let begin = PORT_MIN + u16::try_from(std::process::id() % 1_000).unwrap_or(0) * 10;
    let found = (begin..PORT_MAX).step_by(usize::from(count)).find(is_free);
    found.ok_or_else(|| Failure::Failed("there are no free ports in a row".into()))
}

fn make(workspace: &Workspace) -> Result<Vec<Server>, Failure> {
    // What an earlier run has left would be another cluster's.
    fs::remove_dir_all(workspace.target.join("clients").join("rolling")).ok();
    let count = u16::try_from(SERVERS).unwrap_or(u16::MAX);
    let first = free_ports(PORTS * count)?;
    let start = |(number, place)| Server::start(workspace, number, first + PORTS * place, first);
    let servers = (0..SERVERS).zip(0..count).map(start).collect::<Result<Vec<Server>, Failure>>()?;
    until("three members", || {
        servers.iter().all(|server| server.get("/health/cluster").is_ok_and(|page| page.contains("\"alive\":3")))
    })?;
    servers[0].kv(&["rebalance"])?;
    until_whole(&servers)?;
    Ok(servers)
}

/// Clients, given the address of an engine, write while all servers are restarted so many times, one after another.
pub(super) fn run(
    workspace: &Workspace,
    rounds: u32,
    clients: impl FnOnce(&str, &str) -> Vec<Command>,
) -> Result<(), Failure> {
    let mut servers = make(workspace)?;
    let workers = Workers::start(clients("127.0.0.1", &(servers[0].port + 1).to_string()))?;
    for round in 1..=rounds {
        let (outcome, span) = timed(|| {
            (0..SERVERS).try_for_each(|number| {
                servers[number].restart()?;
                until_whole(&servers)
            })
        });
        outcome?;
        say(&format!("rolling restart: round {round} of {rounds}, {:.1} s", span.as_secs_f64()));
    }
    workers.finish()
}
