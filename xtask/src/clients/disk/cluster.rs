//! Five servers with a drive each and one volume, as on machines of their own: in network namespaces where they can be made, on loopback
//! otherwise.
//!
//! Servers are asked by `ashlar` itself, run beside them, so that nothing here speaks their protocols.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::super::server::free_ports;
use super::super::worker::{pause, until, until_within};
use crate::failure::Failure;
use crate::process::output;
use crate::workspace::Workspace;

pub(super) const SERVERS: usize = 5;
/// The volume's name and size; a little more than what is used of it.
pub(super) const VOLUME: &str = "disk";
const VOLUME_SIZE: &str = "256M";
pub(super) const VOLUME_BYTES: u64 = 256 << 20;
/// As small as a drive may be.
const DRIVE_MIB: &str = "1024";
/// Ports of one server on loopback: for other servers, for NBD.
const PORTS: u16 = 2;
/// The same in a namespace of its own.
const NAMESPACE_PORTS: [u16; 2] = [7_800, 10_809];
/// A question that takes longer is asked again, seconds.
const ASK_SECONDS_MAX: &str = "10";
/// Drives are written whole when they are made.
const MADE_MAX: Duration = Duration::from_secs(240);
/// Lines of each log that tell enough.
const COMPLAINTS_MAX: usize = 3;
/// Between two looks at the cluster: each is several programs.
const LOOK: Duration = Duration::from_millis(300);

/// Hosts on one network, as namespaces that end with this value.
struct Namespaces(String);

impl Namespaces {
    /// Makes them, if this user may.
    fn new() -> Result<Self, Failure> {
        let network = format!("ashlar-disk-{}", std::process::id());
        let made = Self(network.clone());
        ip(&["netns", "add", &network])?;
        ip(&["-n", &network, "link", "add", "bridge", "type", "bridge"])?;
        ip(&["-n", &network, "link", "set", "bridge", "up"])?;
        for number in 0..SERVERS {
            let (host, port) = (made.host(number), format!("port{number}"));
            ip(&["netns", "add", &host])?;
            ip(&["-n", &network, "link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &host])?;
            ip(&["-n", &network, "link", "set", &port, "master", "bridge", "up"])?;
            ip(&["-n", &host, "addr", "add", &format!("{}/24", address(number)), "dev", "eth0"])?;
            ip(&["-n", &host, "link", "set", "eth0", "up"])?;
            ip(&["-n", &host, "link", "set", "lo", "up"])?;
        }
        Ok(made)
    }

    fn host(&self, number: usize) -> String {
        format!("{}-{number}", self.0)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        let names = (0..SERVERS).map(|number| self.host(number)).chain([self.0.clone()]);
        names.for_each(|name| drop(ip(&["netns", "del", &name])));
    }
}

fn ip(words: &[&str]) -> Result<(), Failure> {
    let ended = Command::new("ip").args(words).stderr(Stdio::null()).status();
    let is_done = ended.map_err(|error| Failure::io("ip (Debian: iproute2)", &error))?.success();
    if is_done { Ok(()) } else { Err(Failure::Failed(format!("`ip {}` was refused", words.join(" ")))) }
}

fn address(number: usize) -> String {
    format!("10.79.0.{}", number + 1)
}

/// One server, and what is needed to start it again.
struct Server {
    data: PathBuf,
    log: PathBuf,
    /// For other servers, and for NBD clients.
    ports: [u16; 2],
    child: Option<Child>,
    /// Bytes of the log that were looked at.
    heard: usize,
}

/// The servers. They end with this value.
pub(super) struct Cluster {
    program: PathBuf,
    pub(super) folder: PathBuf,
    servers: Vec<Server>,
    namespaces: Option<Namespaces>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        (0..SERVERS).for_each(|number| self.kill(number));
    }
}

/// What the cluster says of its placement groups.
#[derive(Debug, Default)]
pub(super) struct Copies {
    pub(super) groups: usize,
    pub(super) whole: usize,
    /// Groups of which each server orders the writes.
    pub(super) led: [usize; SERVERS],
}

impl Cluster {
    /// Makes the servers and the volume.
    pub(super) fn make(workspace: &Workspace, folder: PathBuf) -> Result<Self, Failure> {
        fs::create_dir_all(&folder).map_err(|error| Failure::io("the folder of the cluster", &error))?;
        let namespaces = Namespaces::new().ok();
        let first = if namespaces.is_some() { 0 } else { free_ports(PORTS * u16::try_from(SERVERS).unwrap_or(0))? };
        let server = |number: usize| {
            let port = first + PORTS * u16::try_from(number).unwrap_or(0);
            let ports = if namespaces.is_some() { NAMESPACE_PORTS } else { [port, port + 1] };
            let (data, log) = (folder.join(format!("server-{number}")), folder.join(format!("server-{number}.log")));
            Server { data, log, ports, child: None, heard: 0 }
        };
        let servers = (0..SERVERS).map(server).collect();
        let program = workspace.target.join("debug").join("ashlar");
        let mut cluster = Self { program, folder, servers, namespaces };
        for number in 0..SERVERS {
            cluster.start(number)?;
            // It makes the cluster's secret.
            let secret = cluster.servers[0].data.join("cluster.secret");
            until("the cluster's secret to be made", || secret.exists())?;
        }
        cluster.until(MADE_MAX, "all drives to be known", |cluster| cluster.active_drives() == SERVERS)?;
        let data = cluster.servers[0].data.display().to_string();
        let mut why = String::new();
        cluster
            .until(MADE_MAX, "the volume to be made", |cluster| {
                match cluster.ask(0, &["volume", "create", VOLUME, VOLUME_SIZE, "--data", &data]) {
                    Ok(_) => true,
                    Err(Failure::Failed(what) | Failure::Usage(what)) => {
                        why = what;
                        false
                    }
                }
            })
            .map_err(|failure| Failure::Failed(format!("{failure:?}: {why}")))?;
        cluster.until_whole(MADE_MAX)?;
        Ok(cluster)
    }

    /// Whether links between servers can be cut.
    pub(super) const fn has_network(&self) -> bool {
        self.namespaces.is_some()
    }

    /// A program on the machine of a server.
    pub(super) fn command(&self, number: usize, program: impl AsRef<Path>) -> Command {
        let mut command = match &self.namespaces {
            Some(namespaces) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", &namespaces.host(number)]).arg(program.as_ref());
                command
            }
            None => Command::new(program.as_ref()),
        };
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ASHLAR_")) {
            command.env_remove(name);
        }
        command.stdin(Stdio::null());
        command
    }

    /// Starts a server, for the first time or again.
    pub(super) fn start(&mut self, number: usize) -> Result<(), Failure> {
        let of = |number: usize| match &self.namespaces {
            Some(_) => format!("{}:{}", address(number), NAMESPACE_PORTS[0]),
            None => format!("127.0.0.1:{}", self.servers[number].ports[0]),
        };
        let Server { data, log, ports: [port, nbd], .. } = &self.servers[number];
        let log = File::options().create(true).append(true).open(log);
        let log = log.map_err(|error| Failure::io("the log of a server", &error))?;
        let mut command = self.command(number, &self.program);
        command.arg("server").arg("--data").arg(data).args(["--workers", "1", "--kv-port", "0", "--object-mib", "0"]);
        command.args(["--drive-mib", DRIVE_MIB, "--member-timeout-ms", "2000", "--nbd-port", &nbd.to_string()]);
        if self.namespaces.is_some() {
            command.args(["--listen", &format!("0.0.0.0:{port}"), "--advertise", &of(number)]);
        } else {
            command.args(["--listen", &of(number)]);
        }
        if number > 0 {
            command.args(["--join", &of(0)]).arg("--secret-file").arg(self.servers[0].data.join("cluster.secret"));
        }
        let child = command.stdout(Stdio::null()).stderr(log).spawn();
        let child = child.map_err(|error| Failure::io(&self.program.display().to_string(), &error))?;
        self.servers[number].child = Some(child);
        Ok(())
    }

    /// Ends a server as a lost machine does.
    pub(super) fn kill(&mut self, number: usize) {
        if let Some(mut child) = self.servers[number].child.take() {
            // The only error is that it has ended already.
            child.kill().ok();
            child.wait().ok();
        }
    }

    /// Ends several at the same moment.
    pub(super) fn kill_all(&mut self, numbers: &[usize]) -> Result<(), Failure> {
        numbers.iter().try_for_each(|number| self.signal(*number, "-KILL"))?;
        numbers.iter().for_each(|number| self.kill(*number));
        Ok(())
    }

    pub(super) fn pid(&self, number: usize) -> Option<u32> {
        self.servers[number].child.as_ref().map(Child::id)
    }

    /// Sends a server's process a signal, as `kill` names it.
    pub(super) fn signal(&self, number: usize, signal: &str) -> Result<(), Failure> {
        let Some(pid) = self.pid(number) else { return Ok(()) };
        output(Command::new("kill").args([signal, &pid.to_string()])).map(drop)
    }

    /// Cuts a server off from all others, or brings it back.
    pub(super) fn set_link(&self, number: usize, state: &str) -> Result<(), Failure> {
        let Some(namespaces) = &self.namespaces else { return Ok(()) };
        ip(&["-n", &namespaces.0, "link", "set", &format!("port{number}"), state])
    }

    /// The folder of a server's drive.
    pub(super) fn drive(&self, number: usize) -> PathBuf {
        self.servers[number].data.join("drive")
    }

    /// A server's data directory, as an argument.
    pub(super) fn data(&self, number: usize) -> String {
        self.servers[number].data.display().to_string()
    }

    /// Where NBD clients on the machine of a server find a volume.
    pub(super) fn nbd(&self, number: usize) -> u16 {
        self.servers[number].ports[1]
    }

    /// What `ashlar` prints about a server.
    pub(super) fn ask(&self, number: usize, words: &[&str]) -> Result<String, Failure> {
        let mut command = self.command(number, "timeout");
        command.arg(ASK_SECONDS_MAX).arg(&self.program).args(words);
        command.args(["--addr", &format!("127.0.0.1:{}", self.servers[number].ports[0])]);
        let ended = command.output().map_err(|error| Failure::io("ashlar", &error))?;
        if ended.status.success() {
            Ok(String::from_utf8_lossy(&ended.stdout).into_owned())
        } else {
            let said = String::from_utf8_lossy(&ended.stderr).trim().to_owned();
            Err(Failure::Failed(format!("`ashlar {}` of server {number}: {said}", words.join(" "))))
        }
    }

    fn list(&self, number: usize, words: &[&str]) -> Vec<Value> {
        let text = self.ask(number, words).unwrap_or_default();
        serde_json::from_str::<Value>(&text).ok().and_then(|list| list.as_array().cloned()).unwrap_or_default()
    }

    /// Drives that are used, and that their servers say work.
    fn active_drives(&self) -> usize {
        let drives = self.list(0, &["drives", "list", "--json"]);
        drives.iter().filter(|drive| drive["state"] == "active" && drive["works"] == true).count()
    }

    /// Placement groups, as a server knows them.
    pub(super) fn copies(&self, number: usize) -> Copies {
        let drives = self.list(number, &["drives", "list", "--json"]);
        let place = |id: &Value| {
            let address = drives.iter().find(|drive| drive["id"] == *id)?["address"].as_str()?;
            (0..SERVERS).find(|number| self.advertised(*number) == address)
        };
        let mut copies = Copies::default();
        for group in self.list(number, &["drives", "groups", "--json"]) {
            copies.groups += 1;
            copies.whole += usize::from(group["whole"] == true);
            if let Some(number) = place(&group["primary"]) {
                copies.led[number] += 1;
            }
        }
        copies
    }

    fn advertised(&self, number: usize) -> String {
        match self.namespaces {
            Some(_) => format!("{}:{}", address(number), NAMESPACE_PORTS[0]),
            None => format!("127.0.0.1:{}", self.servers[number].ports[0]),
        }
    }

    /// Whether all servers know that all copies are there.
    fn is_whole(&self) -> bool {
        let is_so = |number: usize| {
            let Copies { groups, whole, .. } = self.copies(number);
            groups > 0 && whole == groups
        };
        (0..SERVERS).all(is_so) && self.active_drives() == SERVERS
    }

    /// Looks until something is so; fails at once where a server has ended by itself.
    fn until(&mut self, max: Duration, what: &str, mut is_so: impl FnMut(&Self) -> bool) -> Result<(), Failure> {
        let mut ended = None;
        until_within(max, what, || {
            ended = self.ended_by_itself();
            let is_over = ended.is_some() || is_so(self);
            if !is_over {
                pause(LOOK);
            }
            is_over
        })?;
        ended.map_or(Ok(()), |what| Err(Failure::Failed(what)))
    }

    /// Waits until all copies are there.
    pub(super) fn until_whole(&mut self, max: Duration) -> Result<(), Failure> {
        self.until(max, "all placement groups to have all copies", Self::is_whole)
    }

    fn ended_by_itself(&mut self) -> Option<String> {
        self.servers.iter_mut().find_map(|server| {
            let status = server.child.as_mut()?.try_wait().ok()??;
            Some(format!("a server has ended by itself, {status}: {}", server.log.display()))
        })
    }

    /// What the servers' logs tell, since they were looked at last, that a fault must not bring about: a panic, and damage on a drive unless
    /// its reads were made to fail.
    pub(super) fn complaints(&mut self, may_be_damaged: bool) -> Vec<String> {
        let is_one = |line: &&str| line.contains("panicked at") || !may_be_damaged && line.contains("is damaged");
        let mut complaints = Vec::new();
        for server in &mut self.servers {
            let log = fs::read(&server.log).unwrap_or_default();
            let new = String::from_utf8_lossy(log.get(server.heard..).unwrap_or_default()).into_owned();
            server.heard = log.len();
            complaints.extend(new.lines().filter(is_one).take(COMPLAINTS_MAX).map(str::to_owned));
        }
        complaints
    }

    /// How everything is, for a failure.
    pub(super) fn state(&self) -> String {
        let mut text = format!("folder: {}\n", self.folder.display());
        for number in 0..SERVERS {
            let Copies { groups, whole, led } = self.copies(number);
            text += &format!("server {number} knows: {whole} of {groups} groups are whole; led by each: {led:?}\n");
        }
        let asked = [&["drives", "groups"][..], &["drives", "list"], &["volume", "list"]];
        for words in asked {
            let said = (0..SERVERS).find_map(|number| self.ask(number, words).ok());
            text += &said.unwrap_or_default();
        }
        text
    }
}
