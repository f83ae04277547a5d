//! Servers on loopback, each a process with two key-value engines, as on machines of their own.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::worker::{ended, until};
use crate::failure::Failure;
use crate::process::output;
use crate::workspace::Workspace;

/// All of a cluster.
pub(super) const SLOTS: u64 = 16_384;
/// Ports of one server: for the other servers, and for each of its two engines.
const PORTS: u16 = 3;
/// Ports below those that the kernel gives to outgoing connections: they stay free while a server is down.
const PORT_MIN: u16 = 12_000;
const PORT_MAX: u16 = 31_000;
/// A server that says nothing for so long is asked again.
const PATIENCE: Duration = Duration::from_secs(5);
/// An order to the cluster that takes longer hangs, seconds.
const ORDER_SECONDS_MAX: &str = "40";

/// Which servers.
pub(super) struct Shape {
    /// Where their data are; what an earlier run has left there goes.
    pub(super) folder: PathBuf,
    pub(super) servers: u16,
    /// Arguments besides those that all have.
    pub(super) options: &'static [&'static str],
}

/// One server, and all that is needed to start it again.
pub(super) struct Server {
    program: PathBuf,
    folder: PathBuf,
    /// For other servers and for health; those of its engines follow it.
    pub(super) port: u16,
    /// The port of the server that it joins.
    join: u16,
    options: &'static [&'static str],
    child: Child,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn loopback(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

fn start(program: &Path, folder: &Path, port: u16, join: u16, options: &[&str]) -> Result<Child, Failure> {
    let log = File::options().create(true).append(true).open(folder.join("log"));
    let log = log.map_err(|error| Failure::io("the log of a server", &error))?;
    let mut command = Command::new(program);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ASHLAR_")) {
        command.env_remove(name);
    }
    command.arg("server").arg("--data").arg(folder.join("data")).args(["--listen", &loopback(port), "--workers", "1"]);
    command.args(["--kv-port", &(port + 1).to_string(), "--kv-replica-port", &(port + 2).to_string()]).args(options);
    if join != port {
        command.args(["--join", &loopback(join)]);
        let secret = folder.with_file_name("0").join("data").join("cluster.secret");
        command.arg("--secret-file").arg(secret);
    }
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
    child.map_err(|error| Failure::io(&program.display().to_string(), &error))
}

impl Server {
    fn start(workspace: &Workspace, shape: &Shape, number: u16, first: u16) -> Result<Self, Failure> {
        let folder = shape.folder.join(number.to_string());
        let (port, join, options) = (first + PORTS * number, first, shape.options);
        fs::create_dir_all(&folder).map_err(|error| Failure::io("the folder of a server", &error))?;
        let program = workspace.target.join("debug").join("ashlar");
        let child = start(&program, &folder, port, join, options)?;
        let server = Self { program, folder, port, join, options, child };
        until("a server to answer", || server.says("/health/live", "live"))?;
        Ok(server)
    }

    /// Stops it by SIGTERM, waits for its end, and starts it again.
    pub(super) fn restart(&mut self) -> Result<(), Failure> {
        self.signal("-TERM")?;
        let name = self.name();
        let status = ended(&mut self.child, &name)?;
        if !status.success() {
            return Err(Failure::Failed(format!("SIGTERM is an orderly end, but {name}: {status}")));
        }
        self.start_again()
    }

    /// Starts it again with the same data.
    pub(super) fn start_again(&mut self) -> Result<(), Failure> {
        self.child = start(&self.program, &self.folder, self.port, self.join, self.options)?;
        Ok(())
    }

    /// Ends it as a lost machine does.
    pub(super) fn kill(&mut self) {
        // The only error is that it has ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }

    pub(super) fn name(&self) -> String {
        format!("the server at {}, whose log is {}", loopback(self.port), self.folder.join("log").display())
    }

    /// Addresses of its engines for clients.
    pub(super) fn engines(&self) -> [String; 2] {
        [loopback(self.port + 1), loopback(self.port + 2)]
    }

    /// Sends its process a signal, as `kill` names it.
    pub(super) fn signal(&self, signal: &str) -> Result<(), Failure> {
        output(Command::new("kill").args([signal, &self.child.id().to_string()])).map(drop)
    }

    /// The body of a page.
    pub(super) fn get(&self, path: &str) -> std::io::Result<String> {
        page(self.port, path)
    }

    /// Whether a page about health has this status.
    fn says(&self, path: &str, status: &str) -> bool {
        let body = self.get(path).unwrap_or_default();
        serde_json::from_str::<serde_json::Value>(&body).is_ok_and(|page| page["status"] == status)
    }

    /// What `ashlar kv` prints of the cluster that this server is of.
    pub(super) fn kv(&self, words: &[&str]) -> Result<String, Failure> {
        kv(&self.program, self.port + 1, words)
    }
}

/// The body of a page of the server at this port.
pub(super) fn page(port: u16, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&SocketAddr::from(([127, 0, 0, 1], port)), PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", loopback(port))?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

/// What `ashlar kv` prints, asked of the engine at this port.
pub(super) fn kv(program: &Path, port: u16, words: &[&str]) -> Result<String, Failure> {
    let mut command = Command::new("timeout");
    command.arg(ORDER_SECONDS_MAX).arg(program).arg("kv").args(words);
    output(command.args(["--addr", &loopback(port)]))
}

/// Whether all slots are served and every group has a replica that is online.
fn is_whole(server: &Server, servers: usize) -> bool {
    let status = server.kv(&["status", "--json"]).unwrap_or_default();
    let Ok(status) = serde_json::from_str::<serde_json::Value>(&status) else { return false };
    let groups = status["groups"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_online = |member: &serde_json::Value| member["state"] == "online";
    status["slots_served"] == SLOTS
        && groups.len() == servers
        && groups.iter().all(|group| {
            let replicas = group["replicas"].as_array().map(Vec::as_slice).unwrap_or_default();
            is_online(&group["primary"]) && replicas.len() == 1 && replicas.iter().all(is_online)
        })
}

/// Waits for what an operator waits for before the next server's turn.
pub(super) fn until_whole(servers: &[Server]) -> Result<(), Failure> {
    until("all servers to be ready, and the cluster to be whole and healthy", || {
        let is_well =
            |server: &Server| server.says("/health/ready", "ready") && server.says("/health/cluster", "healthy");
        servers.iter().all(is_well) && is_whole(&servers[0], servers.len())
    })
}

/// Ports in a row where nobody listens. Two runs at a time look in different places.
pub(super) fn free_ports(count: u16) -> Result<u16, Failure> {
    let is_free = |port: &u16| (*port..port + count).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok());
    let begin = PORT_MIN + u16::try_from(std::process::id() % 1_000).unwrap_or(0) * 10;
    let found = (begin..PORT_MAX).step_by(usize::from(count)).find(is_free);
    found.ok_or_else(|| Failure::Failed("there are no free ports in a row".into()))
}

/// Servers whose engines serve all slots, each with a replica at another server.
pub(super) fn make(workspace: &Workspace, shape: &Shape) -> Result<Vec<Server>, Failure> {
    // What an earlier run has left would be another cluster's.
    fs::remove_dir_all(&shape.folder).ok();
    let first = free_ports(PORTS * shape.servers)?;
    let start = |number| Server::start(workspace, shape, number, first);
    let servers = (0..shape.servers).map(start).collect::<Result<Vec<Server>, Failure>>()?;
    let alive = format!("\"alive\":{},", shape.servers);
    until("all servers to be members", || {
        servers.iter().all(|server| server.get("/health/cluster").is_ok_and(|page| page.contains(&alive)))
    })?;
    servers[0].kv(&["rebalance"])?;
    until_whole(&servers)?;
    Ok(servers)
}
