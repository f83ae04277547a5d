//! Clients of the volume, and the oracle between them and it: qemu's `quorum` driver in its mode `blkverify`.
//!
//! The oracle does each write to the volume (over NBD) and to a mirror file, reads both, and stops at the first difference. It is exported
//! again by `qemu-nbd`; on it work `fio` (random reads and writes of many sizes) and `qemu-io` (patterns, zeroes and trims, read again).

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::super::worker::{ended, now, pause, until, until_within};
use super::cluster::{Cluster, SERVERS, VOLUME, VOLUME_BYTES};
use crate::dice::Dice;
use crate::failure::Failure;
use crate::process::output;

/// How long qemu's client waits for a server that is gone, seconds.
const RECONNECT_SECONDS: u32 = 300;
/// Regions of the volume, MiB: two of fio's jobs, one of patterns. All of them are written when the cluster is new.
const REGION_MIB: u64 = 64;
const REGIONS: u64 = 3;
/// Bytes of a request that NBD carries in one piece.
const PIECE_MIB: u64 = 16;
/// Commands of `qemu-io`, more than a round takes.
const COMMANDS: usize = 50_000;
/// Whoever has no volume to attach tries again for so long.
const ATTACH_MAX: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(200);

/// What clients have met.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Met {
    pub(super) requests: u64,
    /// The request that took longest.
    pub(super) longest: Duration,
}

/// The oracle and its clients; ended with this value.
pub(super) struct Load {
    folder: PathBuf,
    oracle: Child,
    fio: Option<Child>,
    patterns: Option<Child>,
}

impl Drop for Load {
    fn drop(&mut self) {
        let children = [self.patterns.as_mut(), self.fio.as_mut(), Some(&mut self.oracle)];
        for child in children.into_iter().flatten() {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

fn mirror(cluster: &Cluster) -> PathBuf {
    cluster.folder.join("mirror")
}

fn log_in(folder: &std::path::Path, name: &str) -> Result<File, Failure> {
    File::create(folder.join(name)).map_err(|error| Failure::io(name, &error))
}

impl Load {
    /// Attaches the volume at a server and begins to work on it.
    pub(super) fn start(cluster: &Cluster, at: usize, dice: &mut Dice, may_release: bool) -> Result<Self, Failure> {
        let mirror = mirror(cluster);
        let is_new = !mirror.exists();
        if is_new {
            let file = File::create(&mirror).and_then(|file| file.set_len(VOLUME_BYTES));
            file.map_err(|error| Failure::io("the mirror file", &error))?;
        }
        let mut load = Self { folder: cluster.folder.clone(), oracle: oracle(cluster, at)?, fio: None, patterns: None };
        if is_new {
            load.fill()?;
        }
        load.fio = Some(load.start_fio(dice)?);
        load.patterns = Some(load.start_patterns(dice, may_release)?);
        Ok(load)
    }

    fn uri(&self) -> String {
        uri(&self.folder)
    }

    /// Writes all that the clients use.
    fn fill(&self) -> Result<(), Failure> {
        let pieces = REGIONS * REGION_MIB / PIECE_MIB;
        let mut command = Command::new("qemu-io");
        command.args(["-f", "raw"]);
        for piece in 0..pieces {
            let (at, size) = (piece * PIECE_MIB, PIECE_MIB);
            command.args(["-c", &format!("write -q -P {} {at}M {size}M", piece + 1)]);
        }
        let said = output(command.arg(self.uri()))?;
        if said.contains("failed") { Err(Failure::Failed(format!("filling the volume: {said}"))) } else { Ok(()) }
    }

    fn start_fio(&self, dice: &mut Dice) -> Result<Child, Failure> {
        let job = |number: u64| {
            let (offset, size) = (number * REGION_MIB, REGION_MIB);
            [format!("--name=region-{number}"), format!("--offset={offset}m"), format!("--size={size}m")]
        };
        let mut command = Command::new("fio");
        command.args(["--ioengine=nbd", &format!("--uri={}", self.uri()), "--rw=randrw", "--rwmixread=40"]);
        command.args(["--bssplit=512/5:4k/55:16k/20:64k/15:256k/5", "--iodepth=8", "--serialize_overlap=1"]);
        command.args([
            "--norandommap",
            "--time_based",
            "--runtime=7200",
            "--rate_iops=60,90",
            "--rate_process=poisson",
        ]);
        command.args(["--verify_state_save=0", &format!("--randseed={}", dice.below(1 << 31))]);
        command.args(["--output-format=json", &format!("--output={}", self.folder.join("fio.json").display())]);
        command.args(job(0)).args(job(1)).current_dir(&self.folder);
        let log = log_in(&self.folder, "fio.log")?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        child.map_err(|error| Failure::io("fio (Debian: fio)", &error))
    }

    /// Writes patterns and zeroes, and reads each again.
    fn start_patterns(&self, dice: &mut Dice, may_release: bool) -> Result<Child, Failure> {
        let (begin, mut script) = ((2 * REGION_MIB) << 20, String::new());
        for _ in 0..COMMANDS {
            let len = [4_096, 12_288, 65_536, 1 << 20, 777][usize::try_from(dice.below(5)).unwrap_or(0)];
            let at = begin + dice.below((REGION_MIB << 20) - len);
            let pattern = match dice.below(4) {
                0 if may_release => {
                    script += &format!("write -q -z -u {at} {len}\n");
                    0
                }
                0 | 1 => {
                    script += &format!("write -q -z {at} {len}\n");
                    0
                }
                _ => {
                    let pattern = 1 + dice.below(255);
                    script += &format!("write -q -P {pattern} {at} {len}\n");
                    pattern
                }
            };
            script += &format!("read -q -P {pattern} {at} {len}\nsleep {}\n", dice.below(60));
        }
        let path = self.folder.join("patterns.script");
        fs::write(&path, script).map_err(|error| Failure::io("the script of patterns", &error))?;
        let script = File::open(&path).map_err(|error| Failure::io("the script of patterns", &error))?;
        let log = log_in(&self.folder, "patterns.log")?;
        let errors = log.try_clone().map_err(|error| Failure::io("the log of patterns", &error))?;
        let mut command = Command::new("qemu-io");
        let child = command.args(["-f", "raw", &self.uri()]).stdin(script).stdout(log).stderr(errors).spawn();
        child.map_err(|error| Failure::io("qemu-io (Debian: qemu-utils)", &error))
    }

    /// Whether everything still works.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        let names = ["the oracle", "fio", "qemu-io"];
        let children = [Some(&mut self.oracle), self.fio.as_mut(), self.patterns.as_mut()];
        let statuses = children.map(|child| child.and_then(|child| child.try_wait().ok().flatten()));
        for (name, status) in names.into_iter().zip(statuses) {
            if let Some(status) = status {
                return Err(Failure::Failed(format!("{name} has ended, {status}: {}", self.said())));
            }
        }
        let said = self.said();
        if said.is_empty() { Ok(()) } else { Err(Failure::Failed(said)) }
    }

    /// What oracle and clients complain of.
    fn said(&self) -> String {
        let read = |name: &str| fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        let patterns = read("patterns.log");
        let is_wrong = |line: &&str| line.contains("failed") || line.contains("Failed");
        let wrong: Vec<&str> = patterns.lines().filter(is_wrong).collect();
        // Whoever is ended by `finish` leaves a request behind; what it says itself is looked at before.
        let oracle = read("oracle.log");
        let oracle = oracle.lines().filter(|line| !line.contains("Disconnect client")).collect::<Vec<_>>().join("; ");
        let lines = [oracle, read("fio.log").trim().to_owned(), wrong.join("; ")];
        lines.into_iter().filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
    }

    /// Lets all requests end, and looks at what became of them.
    pub(super) fn finish(mut self) -> Result<Met, Failure> {
        self.check()?;
        if let Some(fio) = &mut self.fio {
            output(Command::new("kill").args(["-INT", &fio.id().to_string()]))?;
            ended(fio, "fio, one of whose requests hangs")?;
        }
        let met = self.met()?;
        if let Some(patterns) = &mut self.patterns {
            // A request that is under way is ended by the oracle.
            patterns.kill().ok();
            patterns.wait().ok();
        }
        (self.fio, self.patterns) = (None, None);
        self.check()?;
        output(Command::new("kill").args(["-TERM", &self.oracle.id().to_string()]))?;
        ended(&mut self.oracle, "the oracle, one of whose requests hangs")?;
        let said = self.said();
        if said.is_empty() { Ok(met) } else { Err(Failure::Failed(said)) }
    }

    fn met(&self) -> Result<Met, Failure> {
        let path = self.folder.join("fio.json");
        let text = fs::read_to_string(&path).map_err(|error| Failure::io("what fio says", &error))?;
        // Before it stands that it was told to end.
        let json = text.find('{').map(|at| &text[at..]).unwrap_or_default();
        let page: Value =
            serde_json::from_str(json).map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))?;
        let mut met = Met::default();
        for job in page["jobs"].as_array().map(Vec::as_slice).unwrap_or_default() {
            if job["error"] != 0 {
                return Err(Failure::Failed(format!("fio met error {}: {}", job["error"], path.display())));
            }
            for side in ["read", "write"] {
                met.requests += job[side]["total_ios"].as_u64().unwrap_or(0);
                let longest = Duration::from_nanos(job[side]["clat_ns"]["max"].as_u64().unwrap_or(0));
                met.longest = met.longest.max(longest);
            }
        }
        if met.requests == 0 { Err(Failure::Failed("fio has done nothing".into())) } else { Ok(met) }
    }
}

fn uri(folder: &std::path::Path) -> String {
    format!("nbd+unix:///?socket={}", folder.join("oracle.sock").display())
}

/// Starts the oracle. The volume may still be attached elsewhere for a moment.
fn oracle(cluster: &Cluster, at: usize) -> Result<Child, Failure> {
    let socket = cluster.folder.join("oracle.sock");
    let options = format!(
        "driver=quorum,blkverify=on,vote-threshold=2,children.0.driver=nbd,children.0.server.type=inet,children.0.server.host=127.0.0.1,\
         children.0.server.port={},children.0.export={VOLUME},children.0.reconnect-delay={RECONNECT_SECONDS},\
         children.1.driver=file,children.1.filename={}",
        cluster.nbd(at),
        mirror(cluster).display()
    );
    let begun = now();
    loop {
        fs::remove_file(&socket).ok();
        let log = log_in(&cluster.folder, "oracle.log")?;
        let mut command = cluster.command(at, "qemu-nbd");
        command.args(["--persistent", "--shared=8", "--discard=unmap", "--socket"]).arg(&socket);
        let child = command.args(["--image-opts", &options]).stdout(Stdio::null()).stderr(log).spawn();
        let mut child = child.map_err(|error| Failure::io("qemu-nbd (Debian: qemu-utils)", &error))?;
        let mut has_ended = false;
        until("the oracle to listen", || {
            has_ended = !matches!(child.try_wait(), Ok(None));
            has_ended || socket.exists()
        })?;
        if !has_ended {
            return Ok(child);
        }
        if now().duration_since(begun) > ATTACH_MAX {
            let said = fs::read_to_string(cluster.folder.join("oracle.log")).unwrap_or_default();
            return Err(Failure::Failed(format!("the volume cannot be attached at server {at}: {said}")));
        }
        pause(LOOK);
    }
}

/// Compares the whole volume with its mirror, by way of a server.
pub(super) fn compare(cluster: &Cluster, at: usize) -> Result<(), Failure> {
    let volume = format!("nbd://127.0.0.1:{}/{VOLUME}", cluster.nbd(at % SERVERS));
    let mut found = None;
    let mut said = String::new();
    until_within(ATTACH_MAX, "the volume to be attached for a comparison", || {
        let mut command = cluster.command(at, "qemu-img");
        command.args(["compare", "-f", "raw", "-F", "raw", &volume]).arg(mirror(cluster));
        if let Ok(ended) = command.output() {
            said = format!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
            // 2 and more: something could not be opened or read.
            found = ended.status.code().filter(|code| *code < 2);
        }
        found.is_some()
    })
    .map_err(|failure| Failure::Failed(format!("{failure:?}: {said}")))?;
    if found == Some(0) { Ok(()) } else { Err(Failure::Failed(format!("volume and mirror differ: {said}"))) }
}
