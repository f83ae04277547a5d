//! What a server is told before it starts: file, environment and flags, in that order of growing weight.
//!
//! Everything about a key stands once, in [`keys::KEYS`]. Reading is a function of texts ([`resolve`]): who reads the
//! file and the environment is the caller. All problems are reported, not the first one only. Secrets are not
//! configuration: they come from files or from the variables in [`SECRET_VARIABLES`], and never from arguments.

pub mod file;
pub mod flags;
pub mod inherited;
pub mod keys;
pub mod nearest;
mod ports;
pub mod reference;
pub mod root_key;

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::collections::BTreeMap;
use std::path::PathBuf;

use ashlar_placement::domains::Conflict;

use crate::failure::Failure;
use flags::Flags;
use keys::{Fallback, KEYS, Key, Value};

/// Environment variables that are not keys of the table: where the file is, what is too secret for one, and what is for
/// one command only.
pub const SECRET_VARIABLES: [(&str, &str); 6] = [
    ("ASHLAR_CONFIG", "The configuration file, as with `--config`."),
    ("ASHLAR_SECRET", "The cluster's secret itself; stronger than `secret_file`."),
    (
        "MINIO_ROOT_USER",
        "The root key of S3, with `MINIO_ROOT_PASSWORD`, or the files that `MINIO_ROOT_USER_FILE` and `MINIO_ROOT_PASSWORD_FILE` name: at \
         all servers the same. It replaces the one that the cluster has made.",
    ),
    ("ASHLAR_ADMIN_TOKEN", "The token for the admin API of a server on another machine."),
    (
        "ASHLAR_KV_PASSWORD",
        "The present password of the key-value engines, for `ashlar kv status`, `rebalance` and `password`, and `ashlar up`.",
    ),
    ("ASHLAR_ERASURE_KERNEL", "The instruction set of `ashlar bench erasure`, as with `--kernel`."),
];

/// Where a value came from; a later one has more weight.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Nobody gave it.
    Fallback,
    /// `FILE:LINE`.
    File(String),
    /// The name of the variable.
    Environment(String),
    /// The flag with its dashes.
    Flag(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fallback => f.write_str("default"),
            Self::File(place) => f.write_str(place),
            Self::Environment(name) => write!(f, "environment variable {name}"),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// Something wrong with the configuration: where and what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where it stands: file and line, variable or flag.
    pub place: String,
    /// What is wrong there and what would be right.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// The texts to read.
#[derive(Debug, Clone, Copy)]
pub struct Texts<'a> {
    /// Name and content of the file.
    pub file: Option<(&'a str, &'a str)>,
    /// The environment, at least all that starts with `ASHLAR_`.
    pub environment: &'a [(String, String)],
    /// The flags.
    pub flags: &'a Flags,
}

/// Values by key, each with its source.
pub type Values = BTreeMap<&'static str, (Value, Source)>;

/// What a server is told, complete and checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The data directory.
    pub data: PathBuf,
    /// The address to accept connections on; port 0 is any free one.
    pub listen: SocketAddr,
    /// The address that peers are told; `None` is where the server really listens.
    pub advertise: Option<String>,
    /// Who to ask for the cluster; empty for a first server.
    pub join: Vec<String>,
    /// When a server that never was in the cluster gives up; `None` is never.
    pub join_timeout: Option<Duration>,
    /// Where Redis and Valkey clients connect; `None` is nowhere.
    pub kv: Option<SocketAddr>,
    /// Its address was given, and does not follow `listen`.
    pub is_kv_bind_given: bool,
    /// The same of the second engine, which is a replica of another server's as a rule; `None` without the first.
    pub kv_replica: Option<SocketAddr>,
    /// Where the password of the engines is that holds until another one is set.
    pub kv_password_file: Option<PathBuf>,
    /// How clients are served under TLS, if they are.
    pub kv_tls: Option<KvTls>,
    /// Bytes of each drive for volumes; `None` is no drive.
    pub drive_bytes: Option<u64>,
    /// Directories of the drives; empty for the one in the data directory.
    pub drives: Vec<PathBuf>,
    /// Copies of volumes and of the index of objects, at least.
    pub copies: u8,
    /// What two copies must not share.
    pub copies_apart: Conflict,
    /// Where NBD clients connect; `None` is nowhere.
    pub nbd: Option<SocketAddr>,
    /// Space for objects on each drive, in bytes.
    pub object_bytes: Option<u64>,
    /// Where S3 clients connect.
    pub s3: Option<SocketAddr>,
    /// Where S3 requests are written down, if they are.
    pub s3_audit_log: Option<PathBuf>,
    /// The day of lifecycle rules.
    pub lifecycle_day: Duration,
    /// Whether connections between servers are encrypted.
    pub tls: bool,
    /// Where the cluster's secret is, if not in the data directory.
    pub secret_file: Option<PathBuf>,
    /// What this server may be lost together with; empty for nothing in particular.
    pub zone: String,
    /// Silence after which a server is suspected.
    pub member_timeout: Duration,
    /// How many servers vote at most.
    pub voters_max: usize,
    /// Threads that serve connections; `None` is one per core.
    pub workers: Option<usize>,
    /// Log levels.
    pub log: String,
    /// Whether log lines are JSON.
    pub log_json: bool,
}

/// How clients of the key-value engines are served under TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvTls {
    /// Port of the first engine.
    pub port: u16,
    /// Port of the second one.
    pub replica_port: u16,
    /// Certificate and those behind it, PEM.
    pub certificate: PathBuf,
    /// Its key, PEM.
    pub key: PathBuf,
    /// Authorities of clients' certificates, PEM.
    pub authorities: Option<PathBuf>,
    /// Whether clients have to show one: `yes`, `optional` or `no`.
    pub auth_clients: String,
}

/// Collects the values of all keys.
///
/// # Errors
/// Every unknown name and wrong value; a retry fails in the same way.
pub fn collect(texts: Texts<'_>) -> Result<Values, Vec<Problem>> {
    let mut values = fallbacks();
    let mut problems = Vec::new();
    if let Some((name, text)) = texts.file {
        file::read(name, text, &mut values, &mut problems);
    }
    read_environment(texts.environment, &mut values, &mut problems);
    for (key, text) in &texts.flags.given {
        let place = format!("--{}", key.flag());
        take_text(key, text, Source::Flag(place), &mut values, &mut problems);
    }
    if problems.is_empty() { Ok(values) } else { Err(problems) }
}

/// The configuration of a server.
///
/// # Errors
/// Every unknown name, wrong value and missing key; a retry fails in the same way.
pub fn resolve(texts: Texts<'_>) -> Result<Config, Vec<Problem>> {
    let values = collect(texts)?;
    let mut problems = Vec::new();
    for key in KEYS.iter().filter(|key| key.fallback == Fallback::Required && !values.contains_key(key.name)) {
        let what = format!("missing: give --{}, {} or `{} = ...` in a file", key.flag(), key.environment(), key.name);
        problems.push(Problem { place: key.name.to_owned(), what });
    }
    let config = Reader(&values).config();
    if config.listen.ip().is_unspecified() && config.advertise.is_none() {
        let what = format!("missing: others cannot reach {}; say under which HOST:PORT they can", config.listen.ip());
        problems.push(Problem { place: "advertise".into(), what });
    }
    if let Some(place) = config.advertise.as_deref().filter(|place| is_unspecified(place)) {
        let what = format!("{place}: others cannot reach this address; say under which HOST:PORT they can");
        problems.push(Problem { place: "advertise".into(), what });
    }
    problems.extend(check_replica_port(&config, &values));
    problems.extend(ports::check(&config, &values));
    problems.extend(check_kv_bind(&config));
    problems.extend(check_kv_tls(&config, &values));
    problems.extend(check_drive(&config));
    if problems.is_empty() { Ok(config) } else { Err(problems) }
}

/// The smallest drive for volumes, MiB: a smaller one has no room for tables and data.
pub const DRIVE_MIB_MIN: u64 = 1_024;
/// The smallest space for objects, MiB: eight segments and what stands before them.
pub const OBJECT_MIB_MIN: u64 = 257;

/// A drive and the space for objects are large enough, before anything is written.
fn check_drive(config: &Config) -> Option<Problem> {
    let problem = |place: &str, what: String| Some(Problem { place: place.to_owned(), what });
    let (drive, objects) = (config.drive_bytes.map(|bytes| bytes >> 20), config.object_bytes.map(|bytes| bytes >> 20));
    match (drive, objects) {
        (Some(mib), _) if mib < DRIVE_MIB_MIN => {
            problem("drive_mib", format!("{mib} is too small: a drive has {DRIVE_MIB_MIN} MiB at least; 0 for none"))
        }
        (Some(_), Some(mib)) if mib < OBJECT_MIB_MIN => problem(
            "object_mib",
            format!("{mib} is too small: the space for objects has {OBJECT_MIB_MIN} MiB at least; 0 for none"),
        ),
        _ if !config.drives.is_empty() && drive.is_none() => {
            problem("drives", "they need a size: give drive_mib too".to_owned())
        }
        _ if has_twice(&config.drives) => problem("drives", "a directory is there twice".to_owned()),
        (None, Some(_)) => problem("object_mib", "it needs a drive: give drive_mib too".to_owned()),
        (None, None) if config.nbd.is_some() => problem("nbd_port", "it needs a drive: give drive_mib too".to_owned()),
        (_, None) if config.s3.is_some() => {
            problem("s3_port", "it needs a drive with space for objects: give drive_mib and object_mib too".to_owned())
        }
        (_, objects) if config.s3_audit_log.is_some() && (objects.is_none() || config.s3.is_none()) => problem(
            "s3_audit_log",
            "it means nothing without S3: give s3_port and object_mib, or leave it out".to_owned(),
        ),
        _ => None,
    }
}

fn has_twice(paths: &[PathBuf]) -> bool {
    paths.iter().enumerate().any(|(at, path)| paths[..at].contains(path))
}

/// Engines that only this machine reaches cannot be part of a cluster of several machines.
fn check_kv_bind(config: &Config) -> Option<Problem> {
    let kv = config.kv?;
    if !kv.ip().is_loopback() || config.listen.ip().is_loopback() {
        return None;
    }
    let what = format!(
        "{} is reached from this machine only, and `listen` {} from others: their engines and clients could not reach \
         this server's; leave kv_bind out, so that it follows `listen`, or give kv_port 0 for no engines",
        kv.ip(),
        config.listen.ip(),
    );
    Some(Problem { place: "kv_bind".into(), what })
}

/// Whether a place is an address that stands for all of a machine's own.
fn is_unspecified(place: &str) -> bool {
    place.parse::<SocketAddr>().is_ok_and(|place| place.ip().is_unspecified())
}

/// There is a port for the second engine.
fn check_replica_port(config: &Config, values: &Values) -> Option<Problem> {
    let kv = config.kv?;
    if config.kv_replica.is_some() || values.contains_key("kv_replica_port") {
        return None;
    }
    let what =
        format!("missing: there is no port {} above kv_port; give one, or 0", u32::from(kv.port()) + REPLICA_STEP);
    Some(Problem { place: "kv_replica_port".into(), what })
}

/// A port for TLS needs its files; without one the files mean nothing.
fn check_kv_tls(config: &Config, values: &Values) -> Option<Problem> {
    let problem = |place: &str, what: String| Some(Problem { place: place.to_owned(), what });
    let Some(tls) = &config.kv_tls else {
        let wanted = matches!(values.get("kv_tls_port"), Some((Value::Number(1..), _)));
        let lone = ["kv_tls_cert", "kv_tls_key", "kv_tls_ca"].into_iter().find(|name| values.contains_key(name));
        return match (wanted, lone) {
            (true, _) if config.kv.is_none() => problem("kv_tls_port", "there is no engine: kv_port is 0".to_owned()),
            (true, _) => {
                let missing = ["kv_tls_cert", "kv_tls_key"].into_iter().find(|name| !values.contains_key(name));
                let place = missing.unwrap_or("kv_replica_tls_port");
                problem(place, "missing: TLS for clients (kv_tls_port) needs it".to_owned())
            }
            (false, Some(name)) => problem(name, "it means nothing without kv_tls_port".to_owned()),
            (false, None) => None,
        };
    };
    let needs_authorities = tls.auth_clients != "no" && tls.authorities.is_none();
    if needs_authorities {
        let what = "missing: clients have to show certificates, and nothing says who may have signed them; give it, or \
                    kv_tls_auth_clients = no";
        return problem("kv_tls_ca", what.to_owned());
    }
    None
}

/// How far the second engine's port is from the first one's, unless something else is said.
pub const REPLICA_STEP: u32 = 100;

/// All problems as one failure of a command.
#[must_use]
pub fn failure(problems: &[Problem]) -> Failure {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let what = format!("the configuration is wrong:\n  {}", lines.join("\n  "));
    Failure::usage(what, "correct this; `ashlar config reference` describes every key")
}

fn fallbacks() -> Values {
    let fixed = KEYS.iter().filter_map(|key| match key.fallback {
        Fallback::Fixed(text) => Some((key, text)),
        Fallback::Computed(_) | Fallback::Required => None,
    });
    fixed
        .map(|(key, text)| {
            let value = key.parse(text).expect("the table's own values are right: a test reads them all");
            (key.name, (value, Source::Fallback))
        })
        .collect()
}

fn read_environment(environment: &[(String, String)], values: &mut Values, problems: &mut Vec<Problem>) {
    for (name, text) in environment.iter().filter(|(name, _)| name.starts_with("ASHLAR_")) {
        if SECRET_VARIABLES.iter().any(|(known, _)| known == name) {
            continue;
        }
        if let Some(key) = KEYS.iter().find(|key| key.environment() == *name) {
            take_text(key, text, Source::Environment(name.clone()), values, problems);
        } else if let Some(problem) = unknown_variable(name) {
            problems.push(problem);
        }
    }
}

/// A variable like one of ours is a slip; one unlike all of them is somebody else's (an orchestrator puts
/// `ASHLAR_SERVICE_HOST` and its kin into every container).
fn unknown_variable(name: &str) -> Option<Problem> {
    let known: Vec<String> = KEYS.iter().map(Key::environment).collect();
    let known = known.iter().map(String::as_str).chain(SECRET_VARIABLES.iter().map(|(name, _)| *name));
    let near = nearest::nearest(name, known)?;
    Some(Problem { place: format!("environment variable {name}"), what: format!("unknown; did you mean {near}?") })
}

fn take_text(key: &'static Key, text: &str, source: Source, values: &mut Values, problems: &mut Vec<Problem>) {
    match key.parse(text) {
        Ok(value) => {
            values.insert(key.name, (value, source));
        }
        Err(expected) => problems.push(Problem { place: source.to_string(), what: wrong(text, &expected) }),
    }
}

fn wrong(text: &str, expected: &str) -> String {
    format!("`{text}` is not what is expected here: {expected}")
}

/// Takes typed values out of checked ones.
struct Reader<'a>(&'a Values);

impl Reader<'_> {
    fn text(&self, name: &str) -> Option<String> {
        self.0.get(name).map(|(value, _)| value.to_string())
    }

    fn texts(&self, name: &str) -> Vec<String> {
        match self.0.get(name) {
            Some((Value::Texts(texts), _)) => texts.clone(),
            _ => Vec::new(),
        }
    }

    fn number(&self, name: &str) -> Option<u64> {
        match self.0.get(name) {
            Some((Value::Number(number), _)) => Some(*number),
            _ => None,
        }
    }

    fn kv(&self) -> Option<SocketAddr> {
        let port = self.number("kv_port").and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0)?;
        let given = self.text("kv_bind").and_then(|text| text.parse().ok());
        Some(SocketAddr::new(given.unwrap_or_else(|| self.listen().ip()), port))
    }

    fn kv_replica(&self) -> Option<SocketAddr> {
        let kv = self.kv()?;
        let above = || u64::from(u32::from(kv.port()) + REPLICA_STEP);
        let port = u16::try_from(self.number("kv_replica_port").unwrap_or_else(above)).ok()?;
        (port > 0).then(|| SocketAddr::new(kv.ip(), port))
    }

    fn kv_tls(&self) -> Option<KvTls> {
        let port = u16::try_from(self.number("kv_tls_port")?).ok().filter(|port| *port > 0)?;
        let above = || u64::from(u32::from(port) + REPLICA_STEP);
        self.kv()?;
        Some(KvTls {
            port,
            replica_port: u16::try_from(self.number("kv_replica_tls_port").unwrap_or_else(above)).ok()?,
            certificate: self.text("kv_tls_cert")?.into(),
            key: self.text("kv_tls_key")?.into(),
            authorities: self.text("kv_tls_ca").map(PathBuf::from),
            auth_clients: self.text("kv_tls_auth_clients")?,
        })
    }

    fn nbd(&self) -> Option<SocketAddr> {
        let port = self.number("nbd_port").and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0)?;
        Some(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port))
    }

    fn s3(&self) -> Option<SocketAddr> {
        let port = self.number("s3_port").and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0)?;
        Some(SocketAddr::new(self.listen().ip(), port))
    }

    fn listen(&self) -> SocketAddr {
        let port = self.number("port_base").and_then(|port| u16::try_from(port).ok()).unwrap_or_default();
        let local = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
        self.text("listen").and_then(|text| text.parse().ok()).unwrap_or(local)
    }

    fn config(&self) -> Config {
        let join_timeout_s = self.number("join_timeout_s").unwrap_or_default();
        Config {
            data: PathBuf::from(self.text("data").unwrap_or_default()),
            listen: self.listen(),
            advertise: self.text("advertise"),
            join: self.texts("join"),
            join_timeout: (join_timeout_s > 0).then(|| Duration::from_secs(join_timeout_s)),
            kv: self.kv(),
            is_kv_bind_given: self.text("kv_bind").is_some(),
            kv_replica: self.kv_replica(),
            kv_password_file: self.text("kv_password_file").map(PathBuf::from),
            kv_tls: self.kv_tls(),
            drive_bytes: self.number("drive_mib").filter(|mib| *mib > 0).map(|mib| mib << 20),
            drives: self.texts("drives").into_iter().map(PathBuf::from).collect(),
            copies: self.number("copies").and_then(|copies| copies.try_into().ok()).unwrap_or(u8::MAX),
            copies_apart: match self.text("copies_on").as_deref() {
                Some("drives") => Conflict::Drive,
                _ => Conflict::Server,
            },
            nbd: self.nbd(),
            object_bytes: self.number("object_mib").filter(|mib| *mib > 0).map(|mib| mib << 20),
            s3: self.s3(),
            s3_audit_log: self.text("s3_audit_log").map(PathBuf::from),
            lifecycle_day: Duration::from_secs(self.number("lifecycle_day_s").unwrap_or_default()),
            tls: matches!(self.0.get("tls"), Some((Value::Switch(true), _))),
            secret_file: self.text("secret_file").map(PathBuf::from),
            zone: self.text("zone").unwrap_or_default(),
            member_timeout: Duration::from_millis(self.number("member_timeout_ms").unwrap_or_default()),
            voters_max: self.number("voters_max").and_then(|count| usize::try_from(count).ok()).unwrap_or_default(),
            workers: self.number("workers").and_then(|count| usize::try_from(count).ok()),
            log: self.text("log").unwrap_or_default(),
            log_json: self.text("log_format").as_deref() == Some("json"),
        }
    }
}

#[cfg(test)]
mod tests;
