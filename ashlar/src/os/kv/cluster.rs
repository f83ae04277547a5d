//! `ashlar kv` as a node of a cluster (`cluster-enabled yes`): a server whose one service is the engine, with a bus of its own.
//!
//! The bus listens beside the engine, at `cluster-port` or ten thousand above the engine's port. `cluster-config-file` names the
//! directory of what the server must not forget; it is made at the first start. What the controller puts down at the mailboxes are done by a
//! thread of its own, `ClusterEngine::attend`, because an engine may take long to change its part: a script may hold its keys.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ashlar_bus::slot::GroupId;
use ashlar_kv::Engine;
use ashlar_kv::cluster::map::{Map, Node};
use ashlar_placement::domains::Conflict;
use ashlar_wire::id::ServerId;

use super::doors::Listening;
use super::{Plan, Serving, bus_secret};
use crate::config::Config;
use crate::failure::Failure;
use crate::os::datadir::{self, DataDir};
use crate::os::server::{self, Engines, Secrets};
use crate::os::{clock, files, random, sockets};
use ashlar_node::keyvalue::assignment::{EngineInfo, shard_name};
use ashlar_node::keyvalue::engine_task::EngineTask;
use ashlar_node::keyvalue::mailboxes::EngineMailboxes;
use ashlar_node::keyvalue::{Part, ReplicationStreams, Rules};

/// How far the bus's port is from that for clients, unless something else is said.
const BUS_PORT_STEP: u16 = 10_000;
/// What an engine is written as, after this word.
const SEAT_MARK: &str = "seat 1";

/// An engine's part in a cluster.
#[derive(Debug, Clone)]
pub struct ClusterEngine {
    pub(super) mailboxes: Arc<EngineMailboxes>,
    /// The streams on which engines follow each other, if they do not by connections of their own.
    pub(super) replication_streams: Option<Arc<ReplicationStreams>>,
    /// Which of the server's engines it has.
    number: usize,
    pub(super) server: ServerId,
    pub(in crate::os) engine_info: EngineInfo,
    bus_port: u16,
    /// Where the engine is remembered.
    pub(super) file: PathBuf,
    /// Where its promises are.
    promises: PathBuf,
    /// Where it is written down where its data come from.
    origin: PathBuf,
    /// Which life of the server this is.
    life: u64,
}

impl ClusterEngine {
    /// The same for an engine that follows others on these streams.
    pub(in crate::os) fn on(self, replication_streams: Arc<ReplicationStreams>) -> Self {
        Self { replication_streams: Some(replication_streams), ..self }
    }

    /// The engine is a node from now on; it serves nobody before the controller has told it what to serve.
    ///
    /// # Errors
    /// What it has promised in earlier lives cannot be read. Retry safe once the cause is gone.
    pub(super) fn join(&self, engine: &Arc<Engine>) -> Result<(), Failure> {
        self.open_promises(engine)?;
        self.open_origin(engine)?;
        let name = self.engine_info.name(self.server);
        let place = engine.announcement().place(self.bus_port);
        let node = Node { name, shard: shard_name(self.engine_info.group), place, ..Node::default() };
        engine.join_cluster(Map::alone(node), self.mailboxes.control(self.number));
        let hearer = Arc::clone(engine);
        let subscriber = move |channel: &[u8], message: &[u8], is_sharded| hearer.hear(channel, message, is_sharded);
        self.mailboxes.listen(self.number, Box::new(subscriber));
        // Before the server joins its cluster: others never hear of an engine without its ports.
        self.task().introduce(engine, clock::now_both());
        Ok(())
    }

    /// What the engine has promised, and keeps from now on.
    fn open_promises(&self, engine: &Engine) -> Result<(), Failure> {
        let file = self.promises.clone();
        let unread = |what: &dyn core::fmt::Display| {
            let what = format!("cannot read {}: {what}", file.display());
            Failure::world(what, "restore the file: without it this node could lose what its shard has acknowledged")
        };
        let kept = files::read_text(&file).map_err(|error| unread(&error))?.unwrap_or_default();
        let path = file.clone();
        let keep = move |text: &str| match files::write_whole(&path, text.as_bytes(), files::Readers::Owner) {
            Ok(()) => true,
            Err(error) => {
                tracing::error!(%error, path = %path.display(), "a promise to the shard cannot be kept, and is not given");
                false
            }
        };
        engine.open_promises(&kept, Box::new(keep)).map_err(|line| unread(&format!("line {line} makes no sense")))
    }

    /// Where the engine's data come from, as the last process has written it down.
    fn open_origin(&self, engine: &Engine) -> Result<(), Failure> {
        let path = self.origin.clone();
        let unread = |what: &dyn core::fmt::Display| {
            let what = format!("cannot read {}: {what}", path.display());
            Failure::world(what, "restore the file, or remove it: the data then count as this node's own")
        };
        let kept = files::read_text(&path).map_err(|error| unread(&error))?.unwrap_or_default();
        let file = path.clone();
        let keep = move |text: &str| match files::write_whole(&file, text.as_bytes(), files::Readers::Owner) {
            Ok(()) => true,
            Err(error) => {
                tracing::error!(%error, path = %file.display(), "where the data of this node come from cannot be written down");
                false
            }
        };
        if engine.open_origin(&kept, Box::new(keep)) { Ok(()) } else { Err(unread(&"it is no record of an origin")) }
    }

    /// The task that runs its part in the cluster.
    pub(super) fn task(&self) -> EngineTask {
        let Self { mailboxes, number, engine_info, life, .. } = self;
        EngineTask { mailboxes: Arc::clone(mailboxes), number: *number, info: engine_info.clone(), life: *life }
    }
}

/// The engines of a server, whose identities are remembered in these files.
///
/// # Errors
/// A file cannot be used, or is no engine.
pub(in crate::os) fn cluster_engines(
    data: &DataDir,
    bus_port: u16,
    files: &[PathBuf],
) -> Result<(Arc<EngineMailboxes>, Vec<ClusterEngine>), Failure> {
    let mailboxes = EngineMailboxes::new(files.len());
    let cluster_engine = |(number, file): (usize, &PathBuf)| {
        let engine_info = engine_info_at(file, number)?;
        let (server, life, promises) = (data.server, data.incarnation.0, file.with_extension("oaths"));
        let origin = file.with_extension("origin");
        let (mailboxes, file) = (Arc::clone(&mailboxes), file.clone());
        Ok(ClusterEngine {
            mailboxes,
            replication_streams: None,
            number,
            server,
            engine_info,
            bus_port,
            file,
            promises,
            origin,
            life,
        })
    };
    let cluster_engines = files.iter().enumerate().map(cluster_engine).collect::<Result<_, Failure>>()?;
    Ok((mailboxes, cluster_engines))
}

/// The engine as it was left, or one that nobody ever had.
fn engine_info_at(file: &Path, number: usize) -> Result<EngineInfo, Failure> {
    let damaged = || {
        let what = format!("{} is no engine in a cluster", file.display());
        Failure::world(what, "restore the file, or start with an empty directory as a new node")
    };
    let unread = |error: std::io::Error| {
        let what = format!("cannot read {}: {error}", file.display());
        Failure::world(what, "check who may read the directory")
    };
    let Some(text) = files::read_text(file).map_err(unread)? else {
        let engine_info = EngineInfo {
            tag: EngineInfo::tag(number, u32::from_le_bytes(random::bytes())),
            group: GroupId(u64::from_le_bytes(random::bytes()) >> 1),
            ..EngineInfo::default()
        };
        keep_engine_info(file, &engine_info)?;
        return Ok(engine_info);
    };
    let words = text.trim_end().strip_prefix(SEAT_MARK).and_then(|rest| rest.trim_start().split_once(' '));
    let (tag, group) = words.ok_or_else(damaged)?;
    let tag = u32::from_str_radix(tag, 16).map_err(|_| damaged())?;
    let group = GroupId(u64::from_str_radix(group, 16).map_err(|_| damaged())?);
    Ok(EngineInfo { tag, group, ..EngineInfo::default() })
}

/// Remembers an engine. Durable when this returns.
pub(super) fn keep_engine_info(file: &Path, engine_info: &EngineInfo) -> Result<(), Failure> {
    let text = format!("{SEAT_MARK} {:08x} {}\n", engine_info.tag, engine_info.group);
    files::write_whole(file, text.as_bytes(), files::Readers::Owner)
        .map_err(|error| Failure::world(format!("cannot write {}: {error}", file.display()), "free some space there"))
}

/// Whether these settings make a node of a cluster.
#[must_use]
pub fn is_wanted(plan: &Plan) -> bool {
    setting(plan, "cluster-enabled").is_some_and(|value| value.eq_ignore_ascii_case("yes"))
}

fn setting<'p>(plan: &'p Plan, name: &str) -> Option<&'p str> {
    let found = plan.settings.iter().rev().find(|(known, _)| known.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.trim_matches('"'))
}

/// Whether the settings name a primary, which is for the cluster to say.
fn is_told_to_follow(plan: &Plan) -> bool {
    let says =
        |(name, _): &&(String, String)| ["replicaof", "slaveof"].iter().any(|word| name.eq_ignore_ascii_case(word));
    let primary = plan.settings.iter().rfind(says).map_or("", |(_, value)| value.trim_matches('"'));
    !primary.is_empty() && !primary.eq_ignore_ascii_case("no one")
}

/// A setting that is a number above 0.
fn number_of(plan: &Plan, name: &str) -> Option<u64> {
    setting(plan, name).and_then(|value| value.parse().ok()).filter(|number| *number > 0)
}

/// Serves as a node of a cluster until a signal comes. Says where it listens with `started`, once all doors are open.
///
/// # Errors
/// An address is taken, a file cannot be used, or the operating system gives no threads. Retry safe once the cause is gone.
pub fn run(plan: &Plan, secret: Option<&str>, started: impl FnOnce(&[Listening])) -> Result<(), Failure> {
    if is_told_to_follow(plan) {
        let what = "replicaof directive not allowed in cluster mode";
        return Err(Failure::usage(what, "leave it out, and send the node CLUSTER REPLICATE once it runs"));
    }
    let root = Path::new(setting(plan, "dir").unwrap_or("."));
    let data = root.join(setting(plan, "cluster-config-file").unwrap_or("nodes.conf"));
    let config = config_of(plan, data)?;
    let own = match secret {
        Some(secret) => secret.to_owned(),
        None => derived_secret(plan, &config.data)?,
    };
    let engines = |data: &DataDir, _: usize, _: &str| {
        let (cluster_engine, part) = cluster_engine_of(plan, &config, data)?;
        let databases = number_of(plan, "cluster-databases").and_then(|count| usize::try_from(count).ok()).unwrap_or(1);
        let plan = Plan { cluster_engine: Some(cluster_engine), databases, ..plan.clone() };
        let serving = Serving::start(&[plan])?;
        Ok(Some(Engines { serving, part: Some(part) }))
    };
    server::run_with(&config, Secrets { cluster: Some(&own), root_key: None }, engines, |serving| {
        started(&serving.listening);
    })
}

fn cluster_engine_of(plan: &Plan, config: &Config, data: &DataDir) -> Result<(ClusterEngine, Part), Failure> {
    let bus_port = config.listen.port();
    let (mailboxes, mut cluster_engines) = cluster_engines(data, bus_port, &[data.root().join("seat")])?;
    let cluster_engine = cluster_engines.pop().expect("there is one for the file");
    let (engines, zone) = (vec![cluster_engine.engine_info.clone()], config.zone.clone());
    Ok((
        cluster_engine,
        Part { mailboxes, engines, bus_port, zone, rules: rules_of(plan), replication_streams: None, users: None },
    ))
}

/// What the settings say of taking part.
fn rules_of(plan: &Plan) -> Rules {
    let says = |name: &str, word: &str| setting(plan, name).is_some_and(|value| value.eq_ignore_ascii_case(word));
    let number = |name: &str, unless: u64| setting(plan, name).and_then(|value| value.parse().ok()).unwrap_or(unless);
    Rules {
        stands: !says("cluster-replica-no-failover", "yes") && !says("cluster-slave-no-failover", "yes"),
        migrates: !says("cluster-allow-replica-migration", "no"),
        migration_barrier: usize::try_from(number("cluster-migration-barrier", 1)).unwrap_or(usize::MAX),
        handover_max: Duration::from_millis(number("cluster-manual-failover-timeout", 5_000)),
        keep_out: Duration::from_secs(number("cluster-blacklist-ttl", 60)),
        copy_age_max: copy_age_max(plan),
    }
}

/// How old a replica's copy may be when its primary fails, if it is to stand: `cluster-replica-validity-factor` times the node
/// timeout, and one ping period. The factor 0 means any age.
fn copy_age_max(plan: &Plan) -> Option<Duration> {
    let number = |names: [&str; 2], unless: u64| {
        names.iter().find_map(|name| setting(plan, name)?.parse().ok()).unwrap_or(unless)
    };
    let factor = number(["cluster-replica-validity-factor", "cluster-slave-validity-factor"], 10);
    let timeout_ms = number_of(plan, "cluster-node-timeout").unwrap_or(15_000);
    let ping_s = number(["repl-ping-replica-period", "repl-ping-slave-period"], 10);
    (factor > 0).then(|| Duration::from_millis(timeout_ms.saturating_mul(factor)) + Duration::from_secs(ping_s))
}

/// The secret of clusters that have none: everybody knows it, unless the settings have a password for replication.
///
/// # Errors
/// The node is of a cluster whose secret an earlier version derived from this password. Not safe to retry.
fn derived_secret(plan: &Plan, data: &Path) -> Result<String, Failure> {
    let password = setting(plan, "primaryauth").or_else(|| setting(plan, "masterauth")).unwrap_or_default();
    let earlier = bus_secret::earlier_cluster(password);
    if let Some(cluster) = earlier.filter(|earlier| datadir::cluster_in(data).is_ok_and(|own| own == Some(*earlier))) {
        let what = format!(
            "the node in {} is of cluster {cluster}, whose secret an earlier version derived from `primaryauth` by a hash that can be guessed",
            data.display()
        );
        let remedy = format!(
            "stop all nodes of the cluster, make 64 hexadecimal digits by chance (`openssl rand -hex 32`), start every node with \
             ASHLAR_SECRET={cluster}.DIGITS in its environment, and change `primaryauth`: the cluster's id still tells what it was"
        );
        return Err(Failure::usage(what, remedy));
    }
    if password.is_empty() {
        tracing::warn!(
            "the cluster has no secret of its own: whoever reaches the port of its bus can join; set ASHLAR_SECRET"
        );
    } else {
        tracing::warn!(
            "the cluster has no secret of its own: whoever knows or guesses `primaryauth` and reaches the port of its bus can join; set \
             ASHLAR_SECRET"
        );
    }
    Ok(bus_secret::of_password(password))
}

fn config_of(plan: &Plan, data: PathBuf) -> Result<Config, Failure> {
    let number = |name: &str| number_of(plan, name);
    let port = plan.doors.port.or(plan.doors.tls.as_ref().map(|tls| tls.port)).unwrap_or(0);
    let bus_port =
        number("cluster-port").and_then(|port| u16::try_from(port).ok()).or_else(|| port.checked_add(BUS_PORT_STEP));
    let bus_port = bus_port.filter(|_| port > 0 || number("cluster-port").is_some()).ok_or_else(|| {
        let what = format!("no port for the cluster bus is left above port {port}");
        Failure::usage(what, "give a port up to 55535, or cluster-port")
    })?;
    let address = plan.doors.addresses.first().copied().unwrap_or(std::net::Ipv4Addr::LOCALHOST.into());
    let announced = setting(plan, "cluster-announce-ip").filter(|host| !host.is_empty()).map(str::to_owned);
    let advertised = announced.or_else(|| address.is_unspecified().then(|| sockets::own_address(address).to_string()));
    let announced_port = number("cluster-announce-bus-port").unwrap_or(bus_port.into());
    Ok(Config {
        data,
        listen: SocketAddr::new(address, bus_port),
        advertise: advertised.map(|host| {
            if host.contains(':') { format!("[{host}]:{announced_port}") } else { format!("{host}:{announced_port}") }
        }),
        join: Vec::new(),
        join_timeout: None,
        kv: None,
        is_kv_bind_given: false,
        kv_replica: None,
        kv_password_file: None,
        kv_tls: None,
        drive_bytes: None,
        drives: Vec::new(),
        nbd: None,
        s3_audit_log: None,
        copies: 3,
        copies_apart: Conflict::Server,
        object_bytes: None,
        s3: None,
        lifecycle_day: Duration::from_secs(86_400),
        tls: setting(plan, "tls-cluster").is_some_and(|value| value.eq_ignore_ascii_case("yes")),
        secret_file: None,
        zone: setting(plan, "availability-zone").unwrap_or_default().to_owned(),
        member_timeout: Duration::from_millis(number("cluster-node-timeout").unwrap_or(15_000)),
        voters_max: 101,
        workers: Some(1),
        log: "info".into(),
        log_json: false,
    })
}
