//! `ashlar up`: a cluster on this machine with one command.
//!
//! Every server is a process of its own, as it would be on a machine of its own: the first founds the cluster, the others
//! join it. A server that dies is reported at once and started again after a pause, so that one can kill servers and
//! watch. The end of this process is the end of all of them, orderly if it can be.

mod offers;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ashlar_wire::time::Instant;

use super::asking::{ask, short};
use super::kv::picture::Asker;
use super::kv::{password_in, rebalance};
use super::server::environment;
use super::{no_runtime, note, say, table};
use crate::config::inherited::Inherited;
use crate::config::{self, DRIVE_MIB_MIN, OBJECT_MIB_MIN, REPLICA_STEP};
use crate::failure::Failure;
use crate::os::fleet::{Event, Fleet, SERVERS_MAX};
use crate::os::http::Target;
use crate::os::sockets::Listen;
use crate::os::{self, clock, datadir, files, process, sockets};
use ashlar_node::status::ServerStatus;

/// Servers of a new cluster, unless somebody wants another number.
const SERVERS_DEFAULT: usize = 3;

/// Copies of every volume.
const COPIES: usize = 3;

/// Pause before a server that died is started again: long enough to see the others notice.
const RESTART_PAUSE: Duration = Duration::from_secs(5);

/// Silence after which the servers suspect each other: on one machine a short one does, and a server that was killed is
/// found to have failed before it is started again.
const MEMBER_TIMEOUT_MS: &str = "2000";

/// How long the mesh may take to form.
const MESH_MAX: Duration = Duration::from_secs(60);

/// How often the servers are asked whether the mesh is complete.
const MESH_LOOK: Duration = Duration::from_millis(50);

/// How often servers that are to end are asked whether they do.
const STAY_LOOK: Duration = Duration::from_millis(500);

/// How long the servers may take for an orderly end: longer than their own limit for it.
const END_MAX: Duration = Duration::from_secs(15);

/// The flags that a taken port of a key-value engine is about.
const KV: Listen = Listen { port_flags: "--kv-port (0 for none)", ..Listen::SERVER };
const NBD: Listen = Listen { port_flags: "--nbd-port (0 for none)", ..Listen::SERVER };
const S3: Listen = Listen { port_flags: "--s3-port (0 for none)", ..Listen::SERVER };
const KV_REPLICA: Listen = Listen { port_flags: "--kv-replica-port", ..Listen::SERVER };

/// Lines of a dead server's log that are shown.
const LOG_LINES_MAX: usize = 5;

/// Start a cluster on this machine: several servers, one command; Ctrl-C stops it, the data stays.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Directory for everything; used again by the next `up`
    #[arg(long, value_name = "DIR", default_value = "./ashlar-data")]
    data: PathBuf,
    /// Number of servers [default: those in the directory, or 3]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=64))]
    servers: Option<u16>,
    /// Port of the first server; the others take the ports after it
    #[arg(long, value_name = "PORT", default_value_t = 7800, value_parser = clap::value_parser!(u16).range(1..=65000))]
    port_base: u16,
    /// Port of the first server's key-value engine; the others take the ports after it; 0 for none
    #[arg(long, value_name = "PORT", default_value_t = 6379, value_parser = clap::value_parser!(u16).range(0..=65000))]
    kv_port: u16,
    /// Port of the first server's second key-value engine, a replica of another server's; the others take the ports after it [default:
    /// the port of --kv-port, plus 100]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..=65000))]
    kv_replica_port: Option<u16>,
    /// Drives of each server [default: those in the directory, or 1]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=64))]
    drives: Option<u16>,
    /// Size of each drive for volumes, in MiB; 0 for no drive. Drives are written whole when they are made. Fewer than three in all
    /// are not made: a volume has three copies, on different servers, or on different drives of fewer than three servers
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = drive_size)]
    drive_mib: u32,
    /// Space for objects on each drive, in MiB; 0 for none [default: the size of the drive]
    #[arg(long, value_name = "MIB", value_parser = object_size)]
    object_mib: Option<u32>,
    /// Port of the first server for S3 clients; the others take the ports after it; 0 for none
    #[arg(long, value_name = "PORT", default_value_t = 9000, value_parser = clap::value_parser!(u16).range(0..=65000))]
    s3_port: u16,
    /// Port of the first server for NBD clients of volumes; the others take the ports after it; 0 for none
    #[arg(long, value_name = "PORT", default_value_t = 10809, value_parser = clap::value_parser!(u16).range(0..=65000))]
    nbd_port: u16,
    /// Encrypt what servers say to each other
    #[arg(long, value_name = "on|off", default_value = "on", value_parser = ["on", "off"])]
    tls: String,
    /// Print one JSON object when everything is ready, and nothing else; what happens later goes to standard error
    #[arg(long)]
    json: bool,
    /// Threads of each server [default: the cores divided by the servers]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
}

impl Arguments {
    /// Where to tell what happens.
    fn tell(&self) -> fn(&str) {
        if self.json { note } else { say }
    }
}

/// One server of the cluster.
#[derive(Debug)]
struct Place {
    address: String,
    /// Where its key-value engines are, if it has some: the first and the second.
    kv: Option<[String; 2]>,
    /// Where NBD clients connect, if it has a drive.
    nbd: Option<String>,
    /// Where S3 clients connect, if it keeps objects.
    s3: Option<String>,
    data: PathBuf,
    log: PathBuf,
    arguments: Vec<OsString>,
    pid: u32,
    /// When to start it again.
    restart: Option<Instant>,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let inherited = Inherited::of(&environment()).map_err(|problems| config::failure(&problems))?;
    let password = password(&inherited)?;
    let count = count(arguments)?;
    let drives = drives(arguments, count)?;
    let mut places = places(arguments, count, drives, &inherited)?;
    make_data(&arguments.data)?;
    if let Some(remark) = inherited.remark() {
        note(&format!("ashlar: {remark}"));
    }
    for place in &places {
        check_free(&place.address, Listen::SERVER, "is another `ashlar up` running?")?;
        for (address, how) in [(&place.nbd, NBD), (&place.s3, S3)] {
            address.iter().try_for_each(|address| check_free(address, how, "is another `ashlar up` running?"))?;
        }
        for (kv, how) in place.kv.iter().flat_map(|places| places.iter().zip([KV, KV_REPLICA])) {
            check_free(kv, how, "is a Redis or Valkey server, or another `ashlar up`, running?")?;
        }
    }
    datadir::make_secret(&arguments.data.join("cluster.secret"))?;
    let servers: Vec<PathBuf> = places.iter().map(|place| place.data.clone()).collect();
    datadir::share_admin_token(&arguments.data.join(datadir::ADMIN_TOKEN), &servers)?;
    os::block_on(async {
        let mut fleet = Fleet::new(count, inherited.variables).map_err(|error| no_runtime(&error))?;
        let result = live(arguments, password, &mut places, &mut fleet).await;
        let mut resolve = if result.is_ok() { Resolve::Orderly } else { Resolve::Final };
        while end(arguments.tell(), &places, &mut fleet, resolve).await == Ending::CalledOff {
            // Those that go on need the others.
            let now = clock::now();
            places
                .iter_mut()
                .enumerate()
                .filter(|(index, _)| !fleet.runs(*index))
                .for_each(|(_, place)| place.restart = Some(now));
            watch(arguments.tell(), &mut places, &mut fleet).await;
            resolve = Resolve::Final;
        }
        result
    })
    .map_err(|error| no_runtime(&error))?
}

/// Whether a server could listen there; a child that found out would only say so in its log.
fn check_free(address: &str, how: Listen, hint: &str) -> Result<(), Failure> {
    let address = address.parse().expect("the address was made from an IP and a port");
    sockets::check_free_as(address, how)
        .map_err(|failure| Failure { remedy: format!("{}; {hint}", failure.remedy), ..failure })
}

/// How many servers: as many as asked for, but not fewer than have data.
fn count(arguments: &Arguments) -> Result<usize, Failure> {
    let data = &arguments.data;
    let found = (1..=SERVERS_MAX).take_while(|number| files::exists(&data.join(name(*number)))).count();
    let Some(asked) = arguments.servers.map(usize::from) else {
        return Ok(if found == 0 { SERVERS_DEFAULT } else { found });
    };
    if asked < found {
        let what = format!("{} holds {found} servers, and only {asked} shall run", data.display());
        return Err(Failure::usage(what, "leave --servers out, or choose another directory with --data"));
    }
    Ok(asked)
}

/// How many drives each server has: as many as asked for, but not fewer than a server has.
fn drives(arguments: &Arguments, count: usize) -> Result<usize, Failure> {
    let servers = (1..=count).map(|number| arguments.data.join(name(number)));
    let found = |data: PathBuf| folders(&data, DRIVES_MAX).iter().take_while(|folder| files::exists(folder)).count();
    let found = servers.map(found).max().unwrap_or_default().max(1);
    match arguments.drives.map(usize::from) {
        Some(asked) if asked < found => {
            let what =
                format!("a server in {} has {found} drives, and only {asked} shall be used", arguments.data.display());
            Err(Failure::usage(what, "leave --drives out, or choose another directory with --data"))
        }
        asked => Ok(asked.unwrap_or(found)),
    }
}

/// Directories of a server's drives. The first is where a server has its drive by itself.
fn folders(data: &Path, drives: usize) -> Vec<PathBuf> {
    let name = |number| if number == 1 { "drive".to_owned() } else { format!("drive-{number}") };
    (1..=drives).map(|number| data.join(name(number))).collect()
}

fn make_data(data: &Path) -> Result<(), Failure> {
    files::make_directory(data).map_err(|error| {
        let what = format!("cannot use the data directory {}: {error}", data.display());
        Failure::world(what, "give another one with --data")
    })
}

/// The engines' present password, as far as the environment says it: the variable, else the file that they begin with.
fn password(inherited: &Inherited) -> Result<Option<String>, Failure> {
    let file = inherited.get("kv_password_file").map(|path| password_in(Path::new(path))).transpose()?;
    Ok(std::env::var("ASHLAR_KV_PASSWORD").ok().filter(|password| !password.is_empty()).or(file))
}

fn name(number: usize) -> String {
    format!("server-{number}")
}

/// Checks that no port is wanted twice: each kind has one for each server, from its first on; 0 is none.
fn check_apart(ports: &[(usize, &'static str)], count: usize) -> Result<(), Failure> {
    let used = ports.iter().filter(|(first, _)| *first > 0);
    for (place, (first, flag)) in used.clone().enumerate() {
        let meets = |(other, _): &&(usize, &str)| first.abs_diff(*other) < count;
        if let Some((other, other_flag)) = used.clone().skip(place + 1).find(meets) {
            let what = format!(
                "{count} servers need ports {first} to {} for {flag} and {other} to {} for {other_flag}, which are partly the same",
                first + count - 1,
                other + count - 1
            );
            return Err(Failure::usage(what, format!("choose another {other_flag}")));
        }
    }
    Ok(())
}

fn places(arguments: &Arguments, count: usize, drives: usize, inherited: &Inherited) -> Result<Vec<Place>, Failure> {
    let above = usize::from(arguments.kv_port) + REPLICA_STEP as usize;
    let replica_port = arguments.kv_replica_port.map_or(above, usize::from);
    let replica_port = if arguments.kv_port == 0 { 0 } else { replica_port };
    let ports = [
        (usize::from(arguments.port_base), "--port-base"),
        (usize::from(arguments.kv_port), "--kv-port"),
        (replica_port, "--kv-replica-port"),
        (usize::from(arguments.nbd_port), "--nbd-port"),
        (usize::from(arguments.s3_port), "--s3-port"),
    ];
    check_apart(&ports, count)?;
    for (first, flag) in ports {
        let last = first + count - 1;
        if u16::try_from(last).is_err() {
            let what = format!("there is no port {last} for the last of {count} servers");
            return Err(Failure::usage(what, format!("choose a smaller {flag}")));
        }
    }
    let workers = arguments.workers.map_or_else(|| (process::cores() / count).max(1), usize::from);
    let member_timeout_ms = inherited.get("member_timeout_ms").unwrap_or(MEMBER_TIMEOUT_MS).to_owned();
    let first = format!("127.0.0.1:{}", arguments.port_base);
    let place = |index: usize| {
        let address = format!("127.0.0.1:{}", usize::from(arguments.port_base) + index);
        let kv_port = if arguments.kv_port == 0 { 0 } else { usize::from(arguments.kv_port) + index };
        let replica_port = if replica_port == 0 { 0 } else { replica_port + index };
        let drive_mib = drive_mib(arguments, count * drives);
        let nbd_port =
            if arguments.nbd_port > 0 && drive_mib > 0 { usize::from(arguments.nbd_port) + index } else { 0 };
        let object_mib = if drive_mib == 0 { 0 } else { arguments.object_mib.unwrap_or(drive_mib) };
        let has_s3 = object_mib > 0 && arguments.s3_port > 0;
        let s3_port = if has_s3 { usize::from(arguments.s3_port) + index } else { 0 };
        let data = arguments.data.join(name(index + 1));
        let log = arguments.data.join(format!("{}.log", name(index + 1)));
        let mut words: Vec<OsString> = vec!["server".into(), "--data".into(), data.clone().into()];
        let secret = arguments.data.join("cluster.secret");
        for (flag, value) in [
            ("--listen", address.clone().into()),
            ("--kv-port", kv_port.to_string().into()),
            ("--kv-replica-port", replica_port.to_string().into()),
            ("--secret-file", secret.into_os_string()),
            ("--tls", arguments.tls.clone().into()),
            ("--workers", workers.to_string().into()),
            ("--member-timeout-ms", member_timeout_ms.clone().into()),
            ("--drive-mib", drive_mib.to_string().into()),
            ("--nbd-port", nbd_port.to_string().into()),
            ("--object-mib", object_mib.to_string().into()),
            ("--s3-port", s3_port.to_string().into()),
        ] {
            words.extend([flag.into(), value]);
        }
        if drives > 1 && drive_mib > 0 {
            words.extend(folders(&data, drives).into_iter().flat_map(|folder| ["--drives".into(), folder.into()]));
        }
        if count < COPIES && drive_mib > 0 {
            words.extend(["--copies-on".into(), "drives".into()]);
        }
        if index > 0 {
            words.extend(["--join".into(), first.clone().into()]);
        }
        let nbd = (nbd_port > 0).then(|| format!("127.0.0.1:{nbd_port}"));
        let s3 = has_s3.then(|| format!("127.0.0.1:{s3_port}"));
        let kv = (kv_port > 0).then(|| [kv_port, replica_port].map(|port| format!("127.0.0.1:{port}")));
        Place { address, kv, nbd, s3, data, log, arguments: words, pid: 0, restart: None }
    };
    Ok((0..count).map(place).collect())
}

/// Most drives of a server.
const DRIVES_MAX: usize = 64;
/// Most MiB of a drive, and of the space for objects.
const MIB_MAX: u64 = 16_777_216;

/// MiB of a drive, as a flag gives them.
fn drive_size(text: &str) -> Result<u32, String> {
    size(text, DRIVE_MIB_MIN)
}

/// MiB of the space for objects, as a flag gives them.
fn object_size(text: &str) -> Result<u32, String> {
    size(text, OBJECT_MIB_MIN)
}

fn size(text: &str, least: u64) -> Result<u32, String> {
    let mib = text.parse::<u32>().ok().filter(|mib| *mib == 0 || (least..=MIB_MAX).contains(&u64::from(*mib)));
    mib.ok_or_else(|| format!("give 0 for none, or {least} to {MIB_MAX}"))
}

/// Size of each drive: a volume has three copies, so fewer drives are of no use.
fn drive_mib(arguments: &Arguments, drives_in_all: usize) -> u32 {
    if drives_in_all < COPIES { 0 } else { arguments.drive_mib }
}

/// Starts all, waits for the mesh, then watches until somebody wants an end.
async fn live(
    arguments: &Arguments,
    password: Option<String>,
    places: &mut [Place],
    fleet: &mut Fleet,
) -> Result<(), Failure> {
    let begin = clock::now();
    for (index, place) in places.iter_mut().enumerate() {
        start(fleet, index, place)?;
    }
    let Some(statuses) = until_complete(places, fleet).await? else { return Ok(()) };
    if !arrange(arguments.tell(), password, places, fleet).await? {
        return Ok(());
    }
    let offers = match fleet.beside(offers::prepare(arguments, places)).await {
        Ok(offers) => offers,
        Err(Event::Ended { place, status }) => return Err(died_early(&places[place], place, &status)),
        Err(Event::Signal(_) | Event::Due) => return Ok(()),
    };
    let took = u64::try_from(clock::now().saturating_since(begin).as_millis()).unwrap_or(u64::MAX);
    if arguments.json {
        say(&offers.json(places, &statuses));
    } else {
        say(&greeting(arguments, places, &statuses, took));
        offers.text().iter().for_each(|text| say(text));
    }
    watch(arguments.tell(), places, fleet).await;
    Ok(())
}

fn start(fleet: &mut Fleet, index: usize, place: &mut Place) -> Result<(), Failure> {
    place.restart = None;
    place.pid = fleet.start(index, &place.arguments, &place.log).map_err(|error| {
        let what = format!("cannot start server {}: {error}", index + 1);
        Failure::world(what, format!("check that {} can be written", place.log.display()))
    })?;
    Ok(())
}

/// What each server says once all are connected to all; `None` if somebody wanted an end before.
async fn until_complete(places: &[Place], fleet: &mut Fleet) -> Result<Option<Vec<ServerStatus>>, Failure> {
    let deadline = clock::now() + MESH_MAX;
    loop {
        match fleet.next(Some(clock::now() + MESH_LOOK)).await {
            Event::Signal(_) => return Ok(None),
            Event::Ended { place, status } => return Err(died_early(&places[place], place, &status)),
            Event::Due => {}
        }
        let mut statuses = Vec::with_capacity(places.len());
        for place in places {
            statuses.extend(server_status(place).await.filter(|status| status.connected() + 1 >= places.len()));
        }
        if statuses.len() == places.len() {
            return Ok(Some(statuses));
        }
        if clock::now() >= deadline {
            let what =
                format!("{} of {} servers see all others after {} s", statuses.len(), places.len(), MESH_MAX.as_secs());
            let remedy = format!("look at the log, for instance {}", places[0].log.display());
            return Err(Failure::world(what, remedy));
        }
    }
}

/// Makes one cluster of the key-value engines, unless somebody wants an end before. That something is amiss there ends nothing: it is
/// told, and can be put right while the servers run.
async fn arrange(
    tell: fn(&str),
    password: Option<String>,
    places: &[Place],
    fleet: &mut Fleet,
) -> Result<bool, Failure> {
    let entries: Vec<String> = places.iter().flat_map(|place| place.kv.clone()).flatten().collect();
    if entries.is_empty() {
        return Ok(true);
    }
    let expected = entries.len();
    let mut asker = Asker::new(entries, password);
    match fleet.beside(rebalance::run(&mut asker, Some(expected), &mut |line| tell(line))).await {
        Ok(Ok(_)) => Ok(true),
        Ok(Err(failure)) => {
            note(&format!("ashlar: {failure}"));
            Ok(true)
        }
        Err(Event::Ended { place, status }) => Err(died_early(&places[place], place, &status)),
        Err(Event::Signal(_) | Event::Due) => Ok(false),
    }
}

async fn server_status(place: &Place) -> Option<ServerStatus> {
    let target = Target { address: place.address.clone(), ..Target::default() };
    let body = ask(&target, "/v1/status").await.ok()?;
    serde_json::from_slice(&body).ok()
}

fn died_early(place: &Place, index: usize, status: &str) -> Failure {
    let what =
        format!("server {} ended ({status}) before the cluster was complete:\n{}", index + 1, last_lines(&place.log));
    Failure::world(what, format!("the whole log is in {}", place.log.display()))
}

fn last_lines(log: &Path) -> String {
    let text = files::read_end(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let last = lines.iter().skip(lines.len().saturating_sub(LOG_LINES_MAX));
    last.map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}

fn greeting(arguments: &Arguments, places: &[Place], statuses: &[ServerStatus], took_ms: u64) -> String {
    let rows = places.iter().zip(statuses).map(|(place, status)| {
        let server = short(Some(&status.server));
        let [kv, replica] = place.kv.clone().unwrap_or_else(|| ["-".into(), "-".into()]);
        vec![server, place.pid.to_string(), place.address.clone(), kv, replica, place.data.display().to_string()]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let (count, last) = (places.len(), places.last().map_or(0, |place| place.pid));
    let addr = if arguments.port_base == 7800 { String::new() } else { format!(" --addr {}", places[0].address) };
    let links = if arguments.tls == "on" { "encrypted" } else { "plain, with checksums" };
    let redis = match arguments.kv_port {
        0 => String::new(),
        port => {
            let addr = if port == 6379 { String::new() } else { format!(" --addr 127.0.0.1:{port}") };
            let alone = if count == 1 { "   (one server: nobody keeps a replica)" } else { "" };
            format!("redis-cli -c -p {port} set greeting hello\n  ashlar kv status{addr}{alone}\n  ")
        }
    };
    format!(
        "ashlar is up: {count} servers, connected each to each ({links}) after {}\n\n{}\n\n\
         Try, in another terminal:\n  \
         ashlar status{addr}\n  \
         curl http://{}/metrics\n  \
         {redis}kill -9 {last}\n\n\
         A server that dies is started again after {} s. Ctrl-C stops all; the data stays in {}.\n\
         `ashlar forget` and `ashlar secret rotate` need the token in {}: give them{addr} --data {}.\n",
        table::span(took_ms),
        table::text(&["server", "pid", "address", "key-value", "replicas", "data"], &rows),
        places[0].address,
        RESTART_PAUSE.as_secs(),
        arguments.data.display(),
        arguments.data.join(datadir::ADMIN_TOKEN).display(),
        arguments.data.display(),
    )
}

/// Reports who dies and starts them again, until a signal comes.
async fn watch(tell: fn(&str), places: &mut [Place], fleet: &mut Fleet) {
    loop {
        let due = places.iter().filter_map(|place| place.restart).min();
        match fleet.next(due).await {
            Event::Signal(_) => return,
            Event::Ended { place: index, status } => {
                let place = &mut places[index];
                place.restart = Some(clock::now() + RESTART_PAUSE);
                let seconds = RESTART_PAUSE.as_secs();
                tell(&format!(
                    "server {} (pid {}, {}) ended: {status}; starting it again in {seconds} s",
                    index + 1,
                    place.pid,
                    place.address
                ));
            }
            Event::Due => restart_due(tell, places, fleet),
        }
    }
}

fn restart_due(tell: fn(&str), places: &mut [Place], fleet: &mut Fleet) {
    let now = clock::now();
    for (index, place) in places.iter_mut().enumerate().filter(|(_, place)| place.restart.is_some_and(|at| at <= now)) {
        match start(fleet, index, place) {
            Ok(()) => tell(&format!("server {} runs again (pid {}, {})", index + 1, place.pid, place.address)),
            Err(failure) => {
                place.restart = Some(now + RESTART_PAUSE);
                note(&format!("ashlar: {failure}"));
            }
        }
    }
}

/// How the servers are ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Resolve {
    /// Not those whose data cannot be saved.
    Orderly,
    /// All of them.
    Final,
}

/// What became of an attempt to end the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Done,
    /// A server goes on, because it cannot save its data.
    CalledOff,
}

/// Ends all servers: by asking, then without.
async fn end(tell: fn(&str), places: &[Place], fleet: &mut Fleet, resolve: Resolve) -> Ending {
    if fleet.running() == 0 {
        return Ending::Done;
    }
    tell(&format!("stopping {} servers; the data stays", fleet.running()));
    fleet.terminate_all();
    let deadline = clock::now() + END_MAX;
    while fleet.running() > 0 {
        match fleet.next(Some(deadline.min(clock::now() + STAY_LOOK))).await {
            Event::Ended { .. } => {}
            Event::Signal(_) => {
                note("ashlar: ending at once");
                fleet.kill_all();
            }
            Event::Due if resolve == Resolve::Orderly && tell_who_stays(places, fleet).await => {
                return Ending::CalledOff;
            }
            Event::Due if clock::now() > deadline + RESTART_PAUSE => return Ending::Done,
            Event::Due if clock::now() >= deadline => {
                note(&format!("ashlar: {} servers took too long and are ended at once", fleet.running()));
                fleet.kill_all();
                clock::sleep(MESH_LOOK).await;
            }
            Event::Due => {}
        }
    }
    Ending::Done
}

/// Whether a server goes on because it cannot save its data. That is told.
async fn tell_who_stays(places: &[Place], fleet: &Fleet) -> bool {
    let mut stays = false;
    for (index, place) in places.iter().enumerate().filter(|(index, _)| fleet.runs(*index)) {
        if let Some(why) = server_status(place).await.and_then(|status| status.stays_because) {
            stays = true;
            note(&format!(
                "ashlar: server {} goes on, because data would be lost: {why}\n  what to do: make room, or end it without what is not \
                 saved by another Ctrl-C; its log is {}",
                index + 1,
                place.log.display()
            ));
        }
    }
    stays
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_that_meet_are_refused() {
        let check = |ports: &[(usize, &'static str)], count| check_apart(ports, count).map_err(|failure| failure.what);
        assert_eq!(check(&[(10, "a"), (13, "b"), (0, "c"), (0, "d")], 3), Ok(()));
        let meets = check(&[(10, "a"), (40, "b"), (12, "c")], 3).unwrap_err();
        assert_eq!(meets, "3 servers need ports 10 to 12 for a and 12 to 14 for c, which are partly the same");
    }
}
