//! `ashlar bench kv`: its arguments, the server that it starts, and its progress.

use std::collections::BTreeSet;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::json;

use super::super::{no_runtime, note, say};
use crate::bench::kv::cluster::{self, Primary};
use crate::bench::kv::login::Login;
use crate::bench::kv::request::{Keys, Order};
use crate::bench::kv::{News, Study, run_all};
use crate::bench::{Options, report};
use crate::failure::Failure;
use crate::os::poll::Target;
use crate::os::process::{self, Companion};
use crate::os::{self, files};

/// Holds the password where no file is given.
const PASSWORD_VARIABLE: &str = "ASHLAR_KV_PASSWORD";
/// What a server prints before its address.
const READY: &str = "Ready to accept connections tcp on ";
/// Keys; a quick run has a tenth.
const KEYS: u32 = 1_000_000;

/// Load on a server that speaks RESP: ours, which is started for it, or any other.
///
/// SET, GET and a mix of both, with pipelines of 1, 16 and 100. Keys are `key:` and twelve digits and stay on the server. Without
/// --cluster, one address is loaded: a cluster's other servers are not followed, and what belongs to them counts as an error.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    common: super::Common,
    /// Server to load: HOST:PORT, or the path of a unix socket [default: one that is started for it]
    #[arg(long, value_name = "ADDRESS")]
    addr: Option<String>,
    /// Load all primaries of the cluster that --addr is a node of: connections go to them in turn, each with keys whose slots its
    /// primary owns. It is asked once: a slot that moves later gives errors (MOVED), as do keys of --command that are neither
    /// `__key__` nor have it in braces
    #[arg(long, requires = "addr")]
    cluster: bool,
    /// Process of that server on this machine: its CPU time is told for each operation; several, with commas, are summed
    #[arg(long, value_name = "PID", requires = "addr", value_delimiter = ',')]
    server_pid: Vec<u32>,
    /// Worker threads of the server that is started [default: the machine's cores]
    #[arg(long, value_name = "COUNT", conflicts_with = "addr", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
    /// Connections, over all threads
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    connections: u32,
    /// Threads of the load generator [default: half of the cores, one at least]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Requests that are sent before their replies are waited for; several with commas [default: 1,16,100]
    #[arg(long, value_name = "COUNT", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pipeline: Vec<u32>,
    /// Bytes of a value
    #[arg(long, value_name = "BYTES", default_value_t = 512, value_parser = clap::value_parser!(u32).range(..=64 << 20))]
    value_bytes: u32,
    /// How many different keys [default: 1000000, with --quick 100000]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    keys: Option<u32>,
    /// In which order keys are used
    #[arg(long, value_name = "ORDER", default_value = "random")]
    order: OrderArgument,
    /// GETs among a hundred requests of the mixed cases; the others are SETs
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = clap::value_parser!(u8).range(..=100))]
    mix: u8,
    /// This command instead of SET and GET, its words between blanks; `__key__`, `__number__` and `__data__` in them stand for
    /// a key, a number below --keys and the value
    #[arg(long, value_name = "WORDS")]
    command: Option<String>,
    /// Requests a second over all connections: latency then counts from when a request was due [default: as many as there can be]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    rate: Option<u64>,
    /// End each case after so many requests, not after a time
    #[arg(long, value_name = "COUNT", conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// Not counted at the beginning of each case, milliseconds
    #[arg(long, value_name = "MS", default_value_t = 300)]
    warm_up_ms: u64,
    /// Do not write all keys before cases that read them
    #[arg(long)]
    no_fill: bool,
    /// This command is sent once in each case, when it begins to count, for instance BGSAVE; with --cluster, to each primary
    #[arg(long, value_name = "WORDS")]
    during: Option<String>,
    /// So many connections more that do nothing: a row at the end tells what memory each takes, and that each is served
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    idle: u32,
    /// User to log in as
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// File with the password, else taken from the environment [environment: ASHLAR_KV_PASSWORD]
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Database
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    db: u32,
    /// Version of RESP
    #[arg(long, value_name = "2|3", default_value_t = 2, value_parser = clap::value_parser!(u8).range(2..=3))]
    protocol: u8,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum OrderArgument {
    /// Any key, each as likely
    Random,
    /// One after the other
    Sequential,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let common = &arguments.common;
    // Thousands of connections may be asked for; a refusal shows when one cannot be opened.
    process::raise_descriptor_limit().ok();
    let own = if arguments.addr.is_none() { Some(start_server(arguments)?) } else { None };
    let study = study(arguments, own.as_ref())?;
    let options = Options {
        quick: common.quick,
        only: common.only.clone(),
        span: common.seconds.map(Duration::from_secs),
        workers: study.threads,
    };
    let head = format!("{} | {}", report::machine_line(), shape(&study, arguments));
    let is_watched = std::io::stderr().is_terminal();
    let tell = |news: News<'_>| match news {
        News::Row(line) if common.json => note(&clean(is_watched, line)),
        News::Row(line) => {
            // Takes the progress away before the row comes.
            write!(std::io::stderr().lock(), "{}", clean(is_watched, "")).ok();
            say(line);
        }
        News::Running(case, rate) if is_watched => {
            write!(std::io::stderr().lock(), "{}", clean(true, &format!("{case} {rate:.0} ops/s"))).ok();
        }
        News::Running(..) => {}
    };
    tell(News::Row(&head));
    let rows = run_all(&study, &options, tell)?;
    if rows.is_empty() {
        return Err(super::nothing_wanted(common));
    }
    if common.json {
        let facts = [
            ("server", json!(if own.is_some() { "ashlar kv".to_owned() } else { study.target.to_string() })),
            ("primaries", json!(study.primaries.len())),
            ("connections", json!(study.connections)),
            ("threads", json!(study.threads)),
            ("value_bytes", json!(study.value_bytes)),
            ("keys", json!(study.keys)),
            ("protocol", json!(study.login.protocol)),
        ];
        say(&report::json("kv", &facts, &rows));
    }
    Ok(())
}

/// The line, over the one that is on the terminal.
fn clean(is_watched: bool, line: &str) -> String {
    if is_watched { format!("\r\x1b[K{line}") } else { line.to_owned() }
}

fn shape(study: &Study, arguments: &Arguments) -> String {
    let whose = match &arguments.addr {
        None => "a server of its own".to_owned(),
        Some(address) if arguments.cluster => format!("the cluster of {address}, {} primaries", study.primaries.len()),
        Some(address) => address.clone(),
    };
    format!(
        "{whose} | {} connections, {} threads, {} keys, {} bytes",
        study.connections, study.threads, study.keys, study.value_bytes
    )
}

fn start_server(arguments: &Arguments) -> Result<Companion, Failure> {
    let workers = arguments.workers.map_or_else(process::cores, usize::from).to_string();
    // It neither reads nor writes a dump: nobody has one of this name.
    let dump = format!("ashlar-bench-{}.none", std::process::id());
    let words =
        ["kv", "--bind", "127.0.0.1", "--port", "0", "--workers", &workers, "--save", "", "--dbfilename", &dump];
    Companion::start(&words.map(Into::into), READY).map_err(|error| {
        Failure::world(
            format!("cannot start a server of its own: {error}"),
            "start one yourself and give it with --addr",
        )
    })
}

fn study(arguments: &Arguments, own: Option<&Companion>) -> Result<Study, Failure> {
    let target = match (&arguments.addr, own) {
        (Some(address), _) => target(address)?,
        (None, Some(own)) => Target::Tcp(own.ready.rsplit(' ').next().unwrap_or_default().to_owned()),
        (None, None) => unreachable!("a server was started where no address is given"),
    };
    let login = Login {
        user: arguments.user.clone(),
        password: password(arguments.password_file.as_deref())?,
        database: arguments.db,
        protocol: arguments.protocol,
    };
    let threads = arguments.threads.map_or_else(|| (process::cores() / 2).max(1), usize::from);
    let keys = arguments.keys.unwrap_or(if arguments.common.quick { KEYS / 10 } else { KEYS });
    let pipelines = match arguments.pipeline.as_slice() {
        [] => vec![1, 16, 100],
        given => given.iter().map(|&pipeline| pipeline as usize).collect(),
    };
    let command = words("--command", arguments.command.as_deref())?;
    let during = words("--during", arguments.during.as_deref())?;
    let given: BTreeSet<u32> = arguments.server_pid.iter().copied().collect();
    Ok(Study {
        primaries: primaries(arguments, &target, &login, keys)?,
        target,
        server_pids: given.into_iter().chain(own.map(Companion::pid)).collect(),
        login,
        connections: arguments.connections as usize,
        threads: threads.min(arguments.connections as usize),
        pipelines,
        value_bytes: arguments.value_bytes as usize,
        keys: keys as usize,
        order: match arguments.order {
            OrderArgument::Random => Order::Random,
            OrderArgument::Sequential => Order::Sequential,
        },
        get_percent: arguments.mix,
        command,
        rate: arguments.rate,
        requests: arguments.requests,
        warm_up: Duration::from_millis(arguments.warm_up_ms),
        fills: !arguments.no_fill,
        during,
        idle: arguments.idle as usize,
    })
}

/// Whom to load: the server, or its cluster.
fn primaries(arguments: &Arguments, target: &Target, login: &Login, keys: u32) -> Result<Vec<Primary>, Failure> {
    let address = match target {
        _ if !arguments.cluster => {
            return Ok(vec![Primary { target: target.clone(), keys: Keys::Below(keys as usize) }]);
        }
        Target::Tcp(address) => address,
        Target::Unix(path) => {
            return Err(Failure::usage(
                format!("a cluster cannot be asked at {}", path.display()),
                "give the address of one of its nodes as HOST:PORT with --addr",
            ));
        }
    };
    let asked = os::block_on(cluster::primaries(address, login, keys));
    let primaries = asked.map_err(|error| no_runtime(&error))??;
    let (count, connections) = (primaries.len(), arguments.connections);
    if (connections as usize) < count {
        return Err(Failure::usage(
            format!("the cluster of {address} has {count} primaries, and there are {connections} connections"),
            format!("give each primary one at least: --connections {count} or more"),
        ));
    }
    Ok(primaries)
}

/// The words of a command.
fn words(option: &str, text: Option<&str>) -> Result<Option<Vec<String>>, Failure> {
    let words: Option<Vec<String>> = text.map(|words| words.split_whitespace().map(str::to_owned).collect());
    if words.as_ref().is_some_and(Vec::is_empty) {
        let example = if option == "--command" { "LPUSH __key__ __data__" } else { "BGSAVE" };
        return Err(Failure::usage(
            format!("{option} has no word"),
            format!("give one, for instance {option} '{example}'"),
        ));
    }
    Ok(words)
}

fn target(address: &str) -> Result<Target, Failure> {
    if address.contains('/') {
        return Ok(Target::Unix(address.into()));
    }
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    match address.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && is_port(port) => Ok(Target::Tcp(address.to_owned())),
        _ => Err(Failure::usage(
            format!("`{address}` is no address"),
            "give HOST:PORT, for instance 127.0.0.1:6379, or the path of a unix socket",
        )),
    }
}

fn password(file: Option<&Path>) -> Result<Option<String>, Failure> {
    let Some(path) = file else { return Ok(std::env::var(PASSWORD_VARIABLE).ok()) };
    match files::read_text(path) {
        Ok(Some(text)) => Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned())),
        Ok(None) => {
            Err(Failure::usage(format!("there is no file {}", path.display()), "give one with --password-file"))
        }
        Err(error) => Err(Failure::usage(
            format!("cannot read {}: {error}", path.display()),
            "give a file that can be read with --password-file",
        )),
    }
}
