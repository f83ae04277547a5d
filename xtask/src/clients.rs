//! `cargo xtask clients`: programs of other people's clients against the key-value engine, in the languages of those clients; alone, on a
//! [`cluster`] that changes under them, and on servers that are restarted one after another ([`rolling`]); and of S3 clients on
//! [`objects`].
//!
//! What they need is pinned in `clients/` and installed below cargo's target directory, once for each state of the pins. Where
//! an interpreter is missing, its part is skipped and said to be: [`crate::requirements::COMPLETE`] makes that a failure.

mod cluster;
mod disk;
mod failover;
mod objects;
mod plan;
mod rolling;
mod server;
mod worker;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use self::worker::line_of;
use crate::asks_for_help;
use crate::failure::Failure;
use crate::process::{cargo, run};
use crate::requirements::{Outcome, is_there, skip};
use crate::terminal::say;
use crate::workspace::Workspace;

const HELP: &str = "\
Runs redis-py, ioredis and go-redis against the key-value engine, each as far as its language is installed; then these,
valkey-py, iovalkey, node-redis, valkey-glide and valkey-go against a cluster of engines that is resharded and loses nodes
meanwhile; then redis-py, valkey-py and go-redis while three servers are restarted one after another; then boto3 and the
AWS command line on objects, while two servers are killed.

Usage: cargo xtask clients [--install | --rolling ROUNDS | --tear ROUNDS | --lost ROUNDS | --failover ROUNDS [--seed S] [--only FAULT]
                           | --disk ROUNDS [--seed S] [--only FAULT]]

  --install          only fetch what they need, into cargo's target directory
  --rolling ROUNDS   only the restarts, each server so many times
  --failover ROUNDS  only faults of key-value nodes, one drawn in each round: a primary that is stopped, restarted or lost, a
                     node that comes back before another is lost, three of seven servers lost at once; no acknowledged
                     write may be lost, and all slots are served again within 30 s; prints how long that took
  --disk ROUNDS      only a volume of three copies on five servers over NBD, with qemu as the oracle: each write is done to a
                     mirror file too, each read is compared. One fault is drawn in each round: servers that are killed,
                     stopped or cut off, drives that are gone, full, slow or fail. No error may reach the client, nothing
                     may differ, all copies have to come back; prints the client's longest pause and how long that took.
                     Needs fio and qemu-utils; network namespaces (as root) for `partition`, strace for `errors` and `slow`
  --tear ROUNDS      only boto3 on four servers of four drives, of which one, several or all are killed in each round while 64 keys are
                     overwritten: no acknowledged object may be lost, and a conditional put has one winner
  --lost ROUNDS      only boto3 on four servers of four drives, of which four are lost in each round and replaced by empty ones; then
                     a byte of each block of shards is flipped, drive after drive: every object has to be what was put, and healed
  --seed S           which faults are drawn [default: 1]
  --only FAULT       one of them: pause, restart, return or half with --failover; one, primary, attached, two, all, stop, wipe,
                     full, errors, slow or partition with --disk

With ASHLAR_VERIFY_COMPLETE in the environment, a missing language is a failure.";

/// What a server prints before its address.
const READY: &str = "Ready to accept connections tcp on ";

/// Whoever was told to end and has not after this span is killed, seconds.
const KILL_SECONDS: &str = "10";
/// A client that takes longer hangs, seconds.
const SECONDS_MAX: &str = "100";
/// The same on a cluster, where it waits for what happens to it.
const CLUSTER_SECONDS_MAX: &str = "400";
/// The same for each round of restarts.
const ROUND_SECONDS_MAX: u32 = 200;
/// What comes after the rounds: each drive is damaged and repaired, seconds.
const DRIVES_SECONDS_MAX: u32 = 3_600;
/// The same for S3 clients, seconds.
const OBJECTS_SECONDS_MAX: &str = "400";
/// The cluster under S3 clients.
const OBJECTS_SIZE: objects::Size = objects::Size { servers: 3, drives: 1, object_mib: 320 };
/// The cluster whose servers are killed while objects are overwritten: 12 data and 4 parity shards. Hundreds of rounds do not fill it.
const TEAR_SIZE: objects::Size = objects::Size { servers: 4, drives: 4, object_mib: 1_024 };
/// More rounds would take days.
const ROUNDS_MAX: u32 = 10_000;

/// One client: its folder, the programs it takes with the package that brings them, and its steps.
struct Client {
    folder: &'static str,
    needs: &'static [(&'static str, &'static str)],
    pins: &'static [&'static str],
    install: fn(&Places) -> Vec<Command>,
    /// Everyday work on one engine, where there is such a program.
    run: Option<fn(&Places, &str, &str) -> Command>,
    /// Work on a cluster, for each library of the folder.
    cluster: fn(&Places, &str, &str) -> Vec<Command>,
    /// Writes while servers are restarted, for each library of the folder whose own settings are enough for that.
    rolling: fn(&Places, &str, &str) -> Vec<Command>,
}

/// Where a client's files are.
struct Places {
    /// In the repository; never written to.
    source: PathBuf,
    /// Below cargo's target directory.
    built: PathBuf,
}

const CLIENTS: [Client; 4] = [
    Client {
        folder: "python",
        needs: &[("python3", "python3 and python3-venv")],
        pins: &["requirements.txt"],
        install: |places| {
            let venv = places.built.join("venv");
            let mut make = Command::new("python3");
            make.args(["-m", "venv", "--clear"]).arg(&venv);
            let mut fetch = Command::new(venv.join("bin/pip"));
            fetch.args(["install", "--quiet", "--require-hashes", "-r"]).arg(places.source.join("requirements.txt"));
            vec![make, fetch]
        },
        run: Some(|places, host, port| {
            let mut command = Command::new(places.built.join("venv/bin/python"));
            command.arg("-B").arg(places.source.join("everyday.py")).args([host, port]);
            command
        }),
        cluster: |places, host, port| python(places, "cluster.py", host, port),
        rolling: |places, host, port| python(places, "rolling.py", host, port),
    },
    Client {
        folder: "node",
        needs: &[("node", "nodejs"), ("npm", "npm")],
        pins: &["package.json", "package-lock.json"],
        install: |places| {
            let mut fetch = Command::new("npm");
            fetch.args(["ci", "--no-audit", "--no-fund", "--silent"]).current_dir(&places.built);
            vec![fetch]
        },
        run: Some(|places, host, port| {
            let mut command = Command::new("node");
            command.arg(places.built.join("everyday.mjs")).args([host, port]);
            command
        }),
        cluster: |places, host, port| {
            let command = |library| {
                let mut command = Command::new("node");
                command.arg(places.built.join("cluster.mjs")).args([library, host, port]);
                command
            };
            ["ioredis", "iovalkey", "redis", "@valkey/valkey-glide"].map(command).into()
        },
        rolling: |_, _, _| Vec::new(),
    },
    Client {
        folder: "go",
        needs: &[("go", "golang-go")],
        pins: &["go.mod", "go.sum"],
        install: go_build,
        run: Some(|places, host, port| {
            let mut command = Command::new(places.built.join(GO_BUILT));
            command.arg(format!("{host}:{port}"));
            command
        }),
        cluster: |places, host, port| {
            let mut command = Command::new(places.built.join(GO_BUILT));
            command.arg("cluster").arg(format!("{host}:{port}"));
            vec![command]
        },
        rolling: |places, host, port| {
            let mut command = Command::new(places.built.join(GO_BUILT));
            command.arg("rolling").arg(format!("{host}:{port}"));
            vec![command]
        },
    },
    // A module of its own: it asks for a newer Go.
    Client {
        folder: "valkey-go",
        needs: &[("go", "golang-go")],
        pins: &["go.mod", "go.sum"],
        install: go_build,
        run: None,
        cluster: |places, host, port| {
            let mut command = Command::new(places.built.join(GO_BUILT));
            command.arg(format!("{host}:{port}"));
            vec![command]
        },
        rolling: |_, _, _| Vec::new(),
    },
];

/// A program in Python under each of its libraries.
fn python(places: &Places, program: &str, host: &str, port: &str) -> Vec<Command> {
    let command = |library| {
        let mut command = Command::new(places.built.join("venv/bin/python"));
        command.arg("-B").arg(places.source.join(program)).args([library, host, port]);
        command
    };
    ["redis", "valkey"].map(command).into()
}

/// The program of a client in Go.
const GO_BUILT: &str = "client";

/// Fetches and builds a client in Go.
fn go_build(places: &Places) -> Vec<Command> {
    let mut fetch = Command::new("go");
    fetch.args(["mod", "download"]).current_dir(&places.source);
    let mut build = Command::new("go");
    build.args(["build", "-mod=readonly", "-buildvcs=false", "-o"]).arg(places.built.join(GO_BUILT));
    build.arg(".").current_dir(&places.source);
    vec![fetch, build]
}

/// Runs the chore.
pub(crate) fn command(arguments: &[String]) -> Result<(), Failure> {
    if asks_for_help(arguments) {
        say(HELP);
        return Ok(());
    }
    let workspace = Workspace::load()?;
    match arguments {
        [] => clients(&workspace).map(drop),
        [flag] if flag == "--install" => installed(&workspace).map(drop),
        [flag, rounds] if flag == "--rolling" => {
            let rounds = rounds_of(rounds)?;
            let (clients, _) = installed(&workspace)?;
            build(&workspace)?;
            restarted(&workspace, &clients, rounds)
        }
        [flag, rounds, options @ ..] if flag == "--failover" => {
            let plan = failover::read(rounds_of(rounds)?, options)?;
            build(&workspace)?;
            failover::run(&workspace, plan)
        }
        [flag, rounds, options @ ..] if flag == "--disk" => {
            let plan = disk::read(rounds_of(rounds)?, options)?;
            build(&workspace)?;
            disk::run(&workspace, plan)
        }
        [flag, rounds] if flag == "--tear" => beside_kills(&workspace, "tear.py", rounds_of(rounds)?),
        [flag, rounds] if flag == "--lost" => beside_kills(&workspace, "lost.py", rounds_of(rounds)?),
        _ => {
            let text = "`clients` takes `--install`, `--rolling ROUNDS`, `--failover ROUNDS`, `--disk ROUNDS`, `--tear ROUNDS`, or `--lost ROUNDS`, and nothing else";
            Err(Failure::Usage(text.into()))
        }
    }
}

fn rounds_of(text: &str) -> Result<u32, Failure> {
    let rounds = text.parse().ok().filter(|rounds| (1..=ROUNDS_MAX).contains(rounds));
    rounds.ok_or_else(|| Failure::Usage(format!("ROUNDS is 1 to {ROUNDS_MAX}")))
}

/// A program works on objects, and kills servers and damages drives meanwhile.
fn beside_kills(workspace: &Workspace, program: &str, rounds: u32) -> Result<(), Failure> {
    let (clients, skipped) = installed(workspace)?;
    let python = clients.iter().find(|(client, _)| client.folder == "python");
    let Some((_, places)) = python else { return Err(Failure::Failed(skipped.join("; "))) };
    build(workspace)?;
    objects::run(workspace, TEAR_SIZE, |ready| {
        let mut command = Command::new(places.built.join("venv/bin/python"));
        command.arg(places.source.join(program)).arg(ready).arg(rounds.to_string());
        limited(&command, &rounds.saturating_mul(ROUND_SECONDS_MAX).saturating_add(DRIVES_SECONDS_MAX).to_string())
    })
}

/// Builds the program that clients meet.
fn build(workspace: &Workspace) -> Result<(), Failure> {
    run(&mut cargo(&workspace.root, &["build", "--package", "ashlar", "--locked"]))
}

/// Clients write while servers are restarted.
fn restarted(workspace: &Workspace, clients: &[Installed], rounds: u32) -> Result<(), Failure> {
    let seconds = rounds.saturating_mul(ROUND_SECONDS_MAX).to_string();
    rolling::run(workspace, rounds, |host, port| {
        let commands = clients.iter().flat_map(|(client, places)| (client.rolling)(places, host, port));
        commands.map(|command| limited(&command, &seconds)).collect()
    })
}

/// Everyday work of every client whose language is there.
pub(crate) fn clients(workspace: &Workspace) -> Result<Outcome, Failure> {
    let (clients, skipped) = installed(workspace)?;
    if clients.is_empty() {
        return Ok(Outcome::Skipped(skipped.join("; ")));
    }
    build(workspace)?;
    let server = KvServer::start(workspace)?;
    let (host, port) = server.address.rsplit_once(':').unwrap_or_default();
    let mut failed = Vec::new();
    for (client, places) in &clients {
        // All run, whatever fails.
        let Some(everyday) = client.run else { continue };
        let mut command = limited(&everyday(places, host, port), SECONDS_MAX);
        if let Err(Failure::Failed(message) | Failure::Usage(message)) = run(&mut command) {
            failed.push(message);
        }
    }
    drop(server);
    let on_cluster = |host: &str, port: &str| {
        let commands = clients.iter().flat_map(|(client, places)| (client.cluster)(places, host, port));
        commands.map(|command| limited(&command, CLUSTER_SECONDS_MAX)).collect()
    };
    if let Err(Failure::Failed(message) | Failure::Usage(message)) = cluster::run(workspace, on_cluster) {
        failed.push(message);
    }
    if let Err(Failure::Failed(message) | Failure::Usage(message)) = restarted(workspace, &clients, 1) {
        failed.push(message);
    }
    if let Some((_, places)) = clients.iter().find(|(client, _)| client.folder == "python") {
        let on_objects = |ready: &Path| {
            let mut command = Command::new(places.built.join("venv/bin/python"));
            command.arg(places.source.join("objects.py")).arg(ready);
            limited(&command, OBJECTS_SECONDS_MAX)
        };
        if let Err(Failure::Failed(message) | Failure::Usage(message)) =
            objects::run(workspace, OBJECTS_SIZE, on_objects)
        {
            failed.push(message);
        }
    }
    if failed.is_empty() { Ok(Outcome::without(&skipped)) } else { Err(Failure::Failed(failed.join("; "))) }
}

/// The same command, ended by force where it takes too long: a client may wait for ever for what does not come.
fn limited(command: &Command, seconds: &str) -> Command {
    let mut limited = Command::new("timeout");
    limited.args(["--kill-after", KILL_SECONDS, seconds]).arg(command.get_program()).args(command.get_args());
    limited
}

/// A client with all that it needs.
type Installed = (Client, Places);

/// The clients that can run; and why others cannot.
fn installed(workspace: &Workspace) -> Result<(Vec<Installed>, Vec<String>), Failure> {
    let (mut clients, mut skipped) = (Vec::new(), Vec::new());
    for client in CLIENTS {
        let missing = client.needs.iter().find(|(program, _)| !is_there(program));
        if let Some((program, package)) = missing {
            skipped.push(skip(format!("clients/{} needs {program} (Debian: {package})", client.folder))?);
            continue;
        }
        let places = Places {
            source: workspace.root.join("clients").join(client.folder),
            built: workspace.target.join("clients").join(client.folder),
        };
        install(&client, &places)?;
        clients.push((client, places));
    }
    Ok((clients, skipped))
}

/// Installs what the pins say, unless that was done for the same pins.
fn install(client: &Client, places: &Places) -> Result<(), Failure> {
    fs::create_dir_all(&places.built).map_err(|error| io(&places.built, &error))?;
    let mut state = String::new();
    for entry in fs::read_dir(&places.source).map_err(|error| io(&places.source, &error))?.flatten() {
        // Beside its pins lies the program itself; both are wanted where the client is built.
        let name = entry.file_name();
        fs::copy(entry.path(), places.built.join(&name)).map_err(|error| io(&entry.path(), &error))?;
        if client.pins.iter().any(|pin| name == *pin) || name.to_string_lossy().ends_with(".go") {
            let text = fs::read_to_string(entry.path()).map_err(|error| io(&entry.path(), &error))?;
            state.push_str(&text);
        }
    }
    let stamp = places.built.join("installed");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == state) {
        return Ok(());
    }
    fs::remove_file(&stamp).ok();
    (client.install)(places).iter_mut().try_for_each(run)?;
    fs::write(&stamp, state).map_err(|error| io(&stamp, &error))
}

fn io(path: &Path, error: &std::io::Error) -> Failure {
    Failure::io(&path.display().to_string(), error)
}

/// The engine in a directory of its own, killed at the end.
pub(crate) struct KvServer {
    child: Child,
    pub(crate) address: String,
}

impl KvServer {
    /// Starts what `cargo build` has built, on a free port.
    pub(crate) fn start(workspace: &Workspace) -> Result<Self, Failure> {
        let folder = workspace.target.join("clients").join("data");
        fs::create_dir_all(&folder).map_err(|error| Failure::io("the folder of the engine", &error))?;
        let program = workspace.target.join("debug").join("ashlar");
        let mut command = Command::new(&program);
        command.args(["kv", "--port", "0", "--workers", "2", "--save", ""]).current_dir(folder);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let child = child.map_err(|error| Failure::io(&program.display().to_string(), &error))?;
        let mut server = Self { child, address: String::new() };
        let address = |line: String| line.strip_prefix(READY).map(str::to_owned);
        let address = server.child.stdout.take().and_then(|out| line_of(out, address));
        server.address = address.ok_or_else(|| Failure::Failed("the engine was not ready in time".into()))?;
        Ok(server)
    }
}

impl Drop for KvServer {
    fn drop(&mut self) {
        // The only error is that it has ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
