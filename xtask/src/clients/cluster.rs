//! A cluster of six engines on loopback, three of which are replicas: made, resharded, failed over and broken while clients use it.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::server::free_ports;
use super::worker::{Workers, until};
use crate::failure::Failure;
use crate::workspace::Workspace;

/// Primaries, and as many replicas.
const PRIMARIES: usize = 3;
const SLOTS: usize = 16_384;
/// Slots that move while clients work.
const MOVED_SLOTS: std::ops::Range<usize> = 100..110;
/// Keys that move together.
const KEYS_TOGETHER: &str = "100";

/// Ports of a node: for clients, and for other nodes.
pub(super) const NODE_PORTS: u16 = 2;
/// A node that says nothing for so long hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// A node, and all that is needed to start it again.
pub(super) struct Node {
    program: PathBuf,
    folder: PathBuf,
    pub(super) port: u16,
    options: &'static [&'static str],
    child: Child,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

fn start(program: &Path, folder: &Path, port: u16, options: &[&str]) -> Result<Child, Failure> {
    let log = File::options().create(true).append(true).open(folder.join("log"));
    let log = log.map_err(|error| Failure::io("the log of a node", &error))?;
    let mut command = Command::new(program);
    command.args(["kv", "--port", &port.to_string(), "--workers", "1", "--save", "", "--cluster-enabled", "yes"]);
    command.args(["--cluster-port", &(port + 1).to_string(), "--cluster-node-timeout", "2000"]);
    command.args(["--repl-diskless-sync-delay", "0", "--appendonly", "yes"]).args(options).current_dir(folder);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
    child.map_err(|error| Failure::io(&program.display().to_string(), &error))
}

impl Node {
    /// Starts one in a folder, at a port and the one that follows it, with options besides those that all have.
    pub(super) fn start(
        workspace: &Workspace,
        folder: PathBuf,
        port: u16,
        options: &'static [&'static str],
    ) -> Result<Self, Failure> {
        fs::create_dir_all(&folder).map_err(|error| Failure::io("the folder of a node", &error))?;
        let program = workspace.target.join("debug").join("ashlar");
        let child = start(&program, &folder, port, options)?;
        let node = Self { program, folder, port, options, child };
        until("a node to answer", || node.ask(&["PING"]).is_ok_and(|reply| reply == "PONG"))?;
        Ok(node)
    }

    pub(super) fn start_again(&mut self) -> Result<(), Failure> {
        self.child = start(&self.program, &self.folder, self.port, self.options)?;
        Ok(())
    }

    /// Ends it as a lost machine does.
    pub(super) fn kill(&mut self) {
        // The only error is that it has ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it runs.
    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// Where it writes what it does.
    pub(super) fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// One request, on a connection of its own. The reply's words with spaces between.
    fn ask(&self, words: &[&str]) -> std::io::Result<String> {
        self.ask_within(PATIENCE, words)
    }

    /// The same for a node that may be stopped.
    pub(super) fn ask_within(&self, patience: Duration, words: &[&str]) -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&SocketAddr::from(([127, 0, 0, 1], self.port)), patience)?;
        stream.set_read_timeout(Some(patience))?;
        let mut request = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| request += &format!("${}\r\n{word}\r\n", word.len()));
        stream.write_all(request.as_bytes())?;
        read(&mut BufReader::new(stream))
    }

    /// The same for what has to be done.
    pub(super) fn order(&self, words: &[&str]) -> Result<(), Failure> {
        let reply = self.ask(words).map_err(|error| Failure::io(&words.join(" "), &error))?;
        if reply == "OK" { Ok(()) } else { Err(Failure::Failed(format!("`{}`: {reply}", words.join(" ")))) }
    }

    pub(super) fn says(&self, words: &[&str], texts: &[&str]) -> bool {
        self.ask(words).is_ok_and(|reply| texts.iter().all(|text| reply.contains(text)))
    }

    fn is_up(&self) -> bool {
        self.says(&["CLUSTER", "INFO"], &["cluster_state:ok", "cluster_slots_ok:16384", "cluster_known_nodes:6"])
    }

    pub(super) fn follows(&self) -> bool {
        self.says(&["INFO", "replication"], &["role:slave", "master_link_status:up"])
    }

    fn leads(&self) -> bool {
        self.says(&["ROLE"], &["master"])
    }

    pub(super) fn name(&self) -> Result<String, Failure> {
        self.ask(&["CLUSTER", "MYID"]).map_err(|error| Failure::io("CLUSTER MYID", &error))
    }
}

/// A reply, with spaces between the words of an array.
fn read(from: &mut BufReader<TcpStream>) -> std::io::Result<String> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    let line = line.trim_end();
    let count = || line[1..].parse::<usize>().map_err(std::io::Error::other);
    match line.as_bytes().first() {
        Some(b'*') => {
            let words = (0..count()?).map(|_| read(from)).collect::<std::io::Result<Vec<String>>>()?;
            Ok(words.join(" "))
        }
        Some(b'$') => {
            let mut text = vec![0; count()? + 2];
            from.read_exact(&mut text)?;
            text.truncate(text.len() - 2);
            String::from_utf8(text).map_err(std::io::Error::other)
        }
        Some(_) => Ok(line[1..].to_owned()),
        None => Err(std::io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Three primaries with a replica each, in this order.
fn make(workspace: &Workspace) -> Result<Vec<Node>, Failure> {
    // What an earlier run has left would be another cluster's.
    fs::remove_dir_all(workspace.target.join("clients").join("cluster")).ok();
    let count = u16::try_from(2 * PRIMARIES).unwrap_or(u16::MAX);
    let first = free_ports(NODE_PORTS * count)?;
    let folder = workspace.target.join("clients").join("cluster");
    let start = |place: u16| {
        let folder = folder.join(place.to_string());
        Node::start(workspace, folder, first + NODE_PORTS * place, &[])
    };
    let nodes = (0..count).map(start).collect::<Result<Vec<_>, _>>()?;
    for (number, node) in nodes[..PRIMARIES].iter().enumerate() {
        let (first, last) = (SLOTS * number / PRIMARIES, SLOTS * (number + 1) / PRIMARIES - 1);
        node.order(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()])?;
    }
    for other in &nodes[1..] {
        let (port, bus_port) = (other.port.to_string(), (other.port + 1).to_string());
        nodes[0].order(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus_port])?;
    }
    until("all nodes to know each other", || nodes.iter().all(Node::is_up))?;
    for (replica, primary) in nodes[PRIMARIES..].iter().zip(&nodes) {
        replica.order(&["CLUSTER", "REPLICATE", &primary.name()?])?;
    }
    until("replicas to follow", || nodes[PRIMARIES..].iter().all(Node::follows))?;
    let names = nodes.iter().map(Node::name).collect::<Result<Vec<String>, Failure>>()?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    until("replicas to be shown", || nodes.iter().all(|node| node.says(&["CLUSTER", "SLOTS"], &names)))?;
    Ok(nodes)
}

/// Moves some slots with their keys, while clients write to them.
fn reshard(source: &Node, target: &Node) -> Result<(), Failure> {
    let (source_name, target_name) = (source.name()?, target.name()?);
    let port = target.port.to_string();
    for slot in MOVED_SLOTS.map(|slot| slot.to_string()) {
        target.order(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_name])?;
        source.order(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_name])?;
        until("a slot to be empty", || {
            let keys = source.ask(&["CLUSTER", "GETKEYSINSLOT", &slot, KEYS_TOGETHER]).unwrap_or_default();
            if keys.is_empty() {
                return true;
            }
            let words = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "REPLACE", "KEYS"];
            let words: Vec<&str> = words.into_iter().chain(keys.split(' ')).collect();
            // What was not moved is looked for again.
            source.ask(&words).ok();
            false
        })?;
        target.order(&["CLUSTER", "SETSLOT", &slot, "NODE", &target_name])?;
        source.order(&["CLUSTER", "SETSLOT", &slot, "NODE", &target_name])?;
    }
    Ok(())
}

/// Clients, given the address of a node, on a cluster that changes under them: errors pass, and what was acknowledged after the
/// last change is there.
pub(super) fn run(workspace: &Workspace, clients: impl FnOnce(&str, &str) -> Vec<Command>) -> Result<(), Failure> {
    let mut nodes = make(workspace)?;
    let port = nodes[0].port.to_string();
    let workers = Workers::start(clients("127.0.0.1", &port))?;
    reshard(&nodes[0], &nodes[1])?;
    let (primary, replica) = (&nodes[1], &nodes[1 + PRIMARIES]);
    replica.order(&["CLUSTER", "FAILOVER"])?;
    until("a failover by agreement", || replica.leads() && primary.follows())?;
    nodes[2].kill();
    let (lost, left) = (2, [0, 1, 3, 4, 5]);
    until("a replica to take over", || {
        nodes[lost + PRIMARIES].leads() && left.iter().all(|number| nodes[*number].is_up())
    })?;
    nodes[lost].start_again()?;
    until("the lost node to be back", || nodes[lost].follows() && nodes.iter().all(Node::is_up))?;
    workers.finish()
}
