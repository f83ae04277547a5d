//! Faults of real processes under a volume in use: no error reaches its client, no byte differs from a mirror, and all copies come back.
//!
//! Five servers, one volume of three copies, and other people's programs as clients and as the oracle ([`load`]). Each round attaches the
//! volume at a server, draws a fault, heals it, waits until all copies are there, ends the clients, and compares the whole volume with the
//! mirror by way of another server. A round that fails keeps its folder, and the next one begins with a new cluster.

mod cluster;
mod load;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use self::cluster::{Cluster, SERVERS};
use self::load::{Load, Met, compare};
use super::plan::Plan;
use super::worker::{now, pause};
use crate::dice::Dice;
use crate::failure::Failure;
use crate::process::{output, timed};
use crate::requirements::is_there;
use crate::terminal::{complain, say};
use crate::workspace::Workspace;

/// All copies are there again after this, or the round has failed.
const WHOLE_MAX: Duration = Duration::from_secs(120);
/// The same where a drive came back empty: the old one is given up after a minute.
const REPLACED_MAX: Duration = Duration::from_secs(300);
/// Clients work for so long before the fault, and after all copies are there.
const WORK: Duration = Duration::from_secs(2);
/// The other volume, which fills the drives.
const FILLER: &str = "filler";
/// Clusters that fail so often tell nothing new, and each keeps 5 GiB.
const FAILURES_MAX: usize = 3;
const FOLDER: &str = "disk";

/// What is done to the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    /// A server is killed and started again later.
    One,
    /// The same to the one that orders the writes of most placement groups.
    Primary,
    /// The same to the one that the volume is attached to.
    Attached,
    /// Two at once: groups that have two copies there wait.
    Two,
    /// All at once.
    All,
    /// A process is stopped (SIGSTOP) and goes on later.
    Stop,
    /// A server comes back without its drive.
    Wipe,
    /// The drives are filled to the last extent.
    Full,
    /// Writes or reads of a drive fail.
    Errors,
    /// Each write of a drive takes long.
    Slow,
    /// One or two servers are cut off.
    Partition,
}

const FAULTS: [Fault; 11] = [
    Fault::One,
    Fault::Primary,
    Fault::Attached,
    Fault::Two,
    Fault::All,
    Fault::Stop,
    Fault::Wipe,
    Fault::Full,
    Fault::Errors,
    Fault::Slow,
    Fault::Partition,
];

impl Fault {
    /// As it is asked for.
    const fn word(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Primary => "primary",
            Self::Attached => "attached",
            Self::Two => "two",
            Self::All => "all",
            Self::Stop => "stop",
            Self::Wipe => "wipe",
            Self::Full => "full",
            Self::Errors => "errors",
            Self::Slow => "slow",
            Self::Partition => "partition",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::One => "kill one server",
            Self::Primary => "kill the server that orders most writes",
            Self::Attached => "kill the server that the volume is attached to",
            Self::Two => "kill two servers at once",
            Self::All => "kill all servers at once",
            Self::Stop => "stop a server and continue it",
            Self::Wipe => "kill a server and remove its drive",
            Self::Full => "fill the drives by another volume",
            Self::Errors => "a drive's reads or writes fail",
            Self::Slow => "a drive's writes take long",
            Self::Partition => "cut off one or two servers",
        }
    }

    const fn whole_max(self) -> Duration {
        match self {
            Self::Wipe | Self::Errors => REPLACED_MAX,
            _ => WHOLE_MAX,
        }
    }
}

/// Reads what a person asks for.
pub(super) fn read(rounds: u32, options: &[String]) -> Result<Plan<Fault>, Failure> {
    Plan::read("--disk", rounds, options, &FAULTS.map(|fault| (fault.word(), fault)))
}

/// What was measured of a kind of fault.
#[derive(Debug, Default)]
struct Spans {
    pauses: Vec<Duration>,
    healings: Vec<Duration>,
}

/// One run.
struct Run<'a> {
    workspace: &'a Workspace,
    dice: Dice,
    spans: BTreeMap<Fault, Spans>,
    cluster: Option<Cluster>,
    /// Clusters made so far.
    made: usize,
    requests: u64,
}

/// How a round went.
enum Came {
    To(String),
    /// This machine cannot do it.
    Skipped(&'static str),
}

/// Plays so many rounds.
pub(super) fn run(workspace: &Workspace, plan: Plan<Fault>) -> Result<(), Failure> {
    let Plan { rounds, seed, only } = plan;
    let folder = workspace.target.join("clients").join(FOLDER);
    // What an earlier run has left would be another cluster's.
    fs::remove_dir_all(&folder).ok();
    say(&format!("disk: seed {seed}"));
    let mut run = Run { workspace, dice: Dice::new(seed), spans: BTreeMap::new(), cluster: None, made: 0, requests: 0 };
    let (mut failed, mut skipped) = (Vec::new(), 0);
    for round in 1..=rounds {
        let drawn = FAULTS[run.below(FAULTS.len())];
        let fault = only.unwrap_or(drawn);
        // Each round has chances of its own, whatever earlier ones have drawn.
        let kept = core::mem::replace(&mut run.dice, Dice::new(seed.wrapping_mul(1_000_003) + u64::from(round)));
        let (outcome, span) = timed(|| run.play(fault));
        run.dice = kept;
        let told = format!("round {round} of {rounds}, {}: {:.1} s", fault.name(), span.as_secs_f64());
        match outcome {
            Ok(Came::To(text)) => say(&format!("{told}, {text}")),
            Ok(Came::Skipped(why)) => {
                say(&format!("{told}, SKIPPED: {why}"));
                skipped += 1;
            }
            Err(Failure::Failed(what) | Failure::Usage(what)) => {
                complain(&format!("{told}, FAILED: {what}"));
                failed.push(round.to_string());
                // Its processes end, its folder stays.
                run.cluster = None;
            }
        }
        if failed.len() >= FAILURES_MAX {
            break;
        }
    }
    run.spans.iter().for_each(|(fault, spans)| say(&summary(*fault, spans)));
    say(&format!("{} requests of fio, {skipped} rounds skipped, {} failed", run.requests, failed.len()));
    let is_all_well = failed.is_empty();
    drop(run);
    if is_all_well {
        fs::remove_dir_all(&folder).ok();
        Ok(())
    } else {
        Err(Failure::Failed(format!("disk: rounds {} of seed {seed} failed", failed.join(", "))))
    }
}

fn summary(fault: Fault, spans: &Spans) -> String {
    let of = |spans: &[Duration]| {
        let mut spans = spans.to_vec();
        spans.sort();
        let seconds = |span: Option<&Duration>| span.map_or(0.0, Duration::as_secs_f64);
        let (median, longest) = (seconds(spans.get(spans.len() / 2)), seconds(spans.last()));
        format!("{median:.1} s (median), {longest:.1} s (longest)")
    };
    let Spans { pauses, healings } = spans;
    format!(
        "{} ({} rounds): pause of the client {}; all copies after {}",
        fault.name(),
        pauses.len(),
        of(pauses),
        of(healings)
    )
}

/// What `strace` makes of a drive; nothing more when it is dropped.
struct Injection(Child);

impl Drop for Injection {
    fn drop(&mut self) {
        // By a signal, so that it lets go of the server.
        output(Command::new("kill").args(["-INT", &self.0.id().to_string()])).ok();
        self.0.wait().ok();
    }
}

impl Run<'_> {
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.dice.below(end as u64)).unwrap_or(0)
    }

    fn choose(&mut self, spans_ms: &[u64]) -> Duration {
        let place = self.below(spans_ms.len());
        Duration::from_millis(spans_ms[place] + self.dice.below(700))
    }

    fn other_than(&mut self, server: usize) -> usize {
        (server + 1 + self.below(SERVERS - 1)) % SERVERS
    }

    fn make(&mut self) -> Result<Cluster, Failure> {
        self.made += 1;
        let folder: PathBuf = self.workspace.target.join("clients").join(FOLDER).join(self.made.to_string());
        let (made, span) = timed(|| Cluster::make(self.workspace, folder));
        let cluster = made?;
        let how = if cluster.has_network() { "in network namespaces" } else { "on loopback" };
        say(&format!("{SERVERS} servers {how}, made in {:.1} s", span.as_secs_f64()));
        Ok(cluster)
    }

    fn play(&mut self, fault: Fault) -> Result<Came, Failure> {
        let mut cluster = match self.cluster.take() {
            Some(cluster) => cluster,
            None => self.make()?,
        };
        let why = self.cannot(fault, &cluster);
        let outcome = match why {
            Some(why) => Ok(Came::Skipped(why)),
            None => self.play_on(fault, &mut cluster),
        };
        let outcome = outcome.map_err(|failure| {
            let (Failure::Failed(what) | Failure::Usage(what)) = failure;
            Failure::Failed(format!("{what}\n{}", cluster.state()))
        });
        self.cluster = Some(cluster);
        outcome
    }

    /// Why this machine cannot do it.
    #[expect(clippy::unused_self, reason = "beside what plays the faults")]
    fn cannot(&self, fault: Fault, cluster: &Cluster) -> Option<&'static str> {
        match fault {
            Fault::Partition if !cluster.has_network() => Some("network namespaces cannot be made here"),
            Fault::Errors | Fault::Slow if !is_there("strace") => Some("there is no strace"),
            _ => None,
        }
    }

    fn play_on(&mut self, fault: Fault, cluster: &mut Cluster) -> Result<Came, Failure> {
        let at = self.below(SERVERS);
        let mut load = Load::start(cluster, at, &mut self.dice, fault != Fault::Full)?;
        pause(WORK);
        load.check()?;
        let Some((told, healed)) = self.harm(fault, cluster, at)? else {
            load.finish()?;
            return Ok(Came::Skipped("this user may not trace processes"));
        };
        load.check()?;
        cluster.until_whole(fault.whole_max())?;
        let healing = now().duration_since(healed);
        pause(WORK);
        let Met { requests, longest } = load.finish()?;
        compare(cluster, self.other_than(at))?;
        let complaints = cluster.complaints(fault == Fault::Errors);
        if !complaints.is_empty() {
            return Err(Failure::Failed(format!("the servers' logs say: {}", complaints.join("; "))));
        }
        self.requests += requests;
        let spans = self.spans.entry(fault).or_default();
        spans.pauses.push(longest);
        spans.healings.push(healing);
        Ok(Came::To(format!(
            "at server {at}: {told}; {requests} requests, the longest {:.1} s; all copies {:.1} s after the end of the fault",
            longest.as_secs_f64(),
            healing.as_secs_f64()
        )))
    }

    /// Does the harm and ends it; when it ended. Nothing if this machine cannot do it.
    fn harm(&mut self, fault: Fault, cluster: &mut Cluster, at: usize) -> Result<Option<(String, Instant)>, Failure> {
        let other = self.other_than(at);
        let told = match fault {
            Fault::One => self.kill(cluster, &[other])?,
            Fault::Primary => {
                let led = cluster.copies(at).led;
                let most = (0..SERVERS).filter(|number| *number != at).max_by_key(|number| led[*number]);
                self.kill(cluster, &[most.unwrap_or(other)])?
            }
            Fault::Attached => self.kill(cluster, &[at])?,
            Fault::Two => {
                let first = self.below(SERVERS);
                let second = self.other_than(first);
                self.kill(cluster, &[first, second])?
            }
            Fault::All => self.kill(cluster, &core::array::from_fn::<usize, SERVERS, _>(|number| number))?,
            Fault::Stop => {
                let (number, span) = (self.below(SERVERS), self.choose(&[1_000, 5_000, 20_000]));
                cluster.signal(number, "-STOP")?;
                pause(span);
                cluster.signal(number, "-CONT")?;
                format!("server {number} stopped for {:.1} s", span.as_secs_f64())
            }
            Fault::Wipe => {
                let number = self.below(SERVERS);
                cluster.kill(number);
                let gone = fs::remove_dir_all(cluster.drive(number));
                gone.map_err(|error| Failure::io("the folder of a drive", &error))?;
                let span = self.choose(&[0, 2_000, 8_000]);
                pause(span);
                cluster.start(number)?;
                format!("server {number} without its drive after {:.1} s", span.as_secs_f64())
            }
            Fault::Full => fill(cluster, other)?,
            Fault::Errors => return self.fail_drive(cluster),
            Fault::Slow => return self.slow_drive(cluster),
            Fault::Partition => {
                let first = self.below(SERVERS);
                let count = 1 + self.below(2);
                let cut = [first, self.other_than(first)];
                let span = self.choose(&[1_000, 5_000, 20_000]);
                cut[..count].iter().try_for_each(|number| cluster.set_link(*number, "down"))?;
                pause(span);
                cut[..count].iter().try_for_each(|number| cluster.set_link(*number, "up"))?;
                format!("servers {:?} cut off for {:.1} s", &cut[..count], span.as_secs_f64())
            }
        };
        Ok(Some((told, now())))
    }

    /// Kills servers, and starts them again one after the other.
    fn kill(&mut self, cluster: &mut Cluster, numbers: &[usize]) -> Result<String, Failure> {
        let span = self.choose(&[0, 1_000, 5_000, 12_000]);
        cluster.kill_all(numbers)?;
        pause(span);
        numbers.iter().try_for_each(|number| cluster.start(*number))?;
        Ok(format!("servers {numbers:?} away for {:.1} s", span.as_secs_f64()))
    }

    fn fail_drive(&mut self, cluster: &mut Cluster) -> Result<Option<(String, Instant)>, Failure> {
        let (number, calls) = (self.below(SERVERS), ["pwrite64,fdatasync", "pread64"][self.below(2)]);
        let Some(injection) = inject(cluster, number, calls, "error=EIO")? else { return Ok(None) };
        let span = self.choose(&[1_000, 6_000]);
        pause(span);
        drop(injection);
        // The drive is replaced, or is the same again.
        let is_replaced = self.below(2) == 0;
        cluster.kill(number);
        if is_replaced {
            let gone = fs::remove_dir_all(cluster.drive(number));
            gone.map_err(|error| Failure::io("the folder of a drive", &error))?;
        }
        cluster.start(number)?;
        let what = if is_replaced { "replaced" } else { "as it was" };
        let told = format!("{calls} of server {number} failed for {:.1} s, its drive is {what}", span.as_secs_f64());
        Ok(Some((told, now())))
    }

    fn slow_drive(&mut self, cluster: &mut Cluster) -> Result<Option<(String, Instant)>, Failure> {
        let (number, delay_ms) = (self.below(SERVERS), [50, 300, 2_000][self.below(3)]);
        let delay = format!("delay_enter={}", delay_ms * 1_000);
        let Some(injection) = inject(cluster, number, "pwrite64,fdatasync", &delay)? else { return Ok(None) };
        let span = self.choose(&[5_000, 15_000]);
        pause(span);
        drop(injection);
        let told = format!("each write of server {number} took {delay_ms} ms more for {:.1} s", span.as_secs_f64());
        Ok(Some((told, now())))
    }
}

/// Changes what the operating system does with a drive's file. Nothing if it refuses that.
fn inject(cluster: &Cluster, number: usize, calls: &str, what: &str) -> Result<Option<Injection>, Failure> {
    let Some(pid) = cluster.pid(number) else { return Ok(None) };
    let log = fs::File::create(cluster.folder.join("strace.log"));
    let log = log.map_err(|error| Failure::io("the log of strace", &error))?;
    let mut command = Command::new("strace");
    command.args(["-f", "-q", "-o", "/dev/null", "-p", &pid.to_string()]);
    command.arg("-P").arg(cluster.drive(number).join("extents"));
    command.args(["-e", &format!("trace={calls}"), "-e", &format!("inject={calls}:{what}")]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
    let mut injection = Injection(child.map_err(|error| Failure::io("strace", &error))?);
    pause(Duration::from_millis(300));
    let has_ended = !matches!(injection.0.try_wait(), Ok(None));
    Ok((!has_ended).then_some(injection))
}

/// Fills the drives by a volume of its own until writes to it fail for want of space, and deletes it.
fn fill(cluster: &Cluster, at: usize) -> Result<String, Failure> {
    const PIECE_MIB: u64 = 16;
    const PIECES: u64 = 256;
    let data = cluster.data(at);
    let create = ["volume", "create", FILLER, "4G", "--data", &data];
    cluster.ask(at, &create)?;
    let mut command = cluster.command(at, "qemu-io");
    command.args(["-f", "raw"]);
    for piece in 0..PIECES {
        command.args(["-c", &format!("write -q -P 90 {}M {PIECE_MIB}M", piece * PIECE_MIB)]);
    }
    let ended = command.arg(format!("nbd://127.0.0.1:{}/{FILLER}", cluster.nbd(at))).output();
    let ended = ended.map_err(|error| Failure::io("qemu-io", &error))?;
    let said = format!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    let refused = said.lines().filter(|line| line.contains("No space left")).count();
    let others = said.lines().filter(|line| line.contains("failed") && !line.contains("No space left")).count();
    if refused == 0 || others > 0 {
        return Err(Failure::Failed(format!("full drives refuse by ENOSPC, and by nothing else: {said}")));
    }
    let mut deleted = Err(Failure::Failed("not tried".into()));
    for _ in 0..50 {
        deleted = cluster.ask(at, &["volume", "delete", FILLER, "--data", &data]);
        if deleted.is_ok() {
            break;
        }
        // Its client has just gone.
        pause(Duration::from_millis(200));
    }
    deleted?;
    Ok(format!("{refused} of {PIECES} writes of {PIECE_MIB} MiB refused"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_summed_up() {
        let seconds = |all: &[u64]| all.iter().copied().map(Duration::from_secs).collect::<Vec<_>>();
        let spans = Spans { pauses: seconds(&[3, 1, 2]), healings: seconds(&[5]) };
        let text = summary(Fault::One, &spans);
        assert!(text.ends_with(
            "(3 rounds): pause of the client 2.0 s (median), 3.0 s (longest); all copies after 5.0 s (median), 5.0 s (longest)"
        ), "{text}");
    }
}
