//! One server from its start to its end: data directory, listeners, workers, node, signals.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ashlar_grid::config::GridConfig;
use ashlar_grid::seam::Lane;
use ashlar_kv::Shutdown;
use ashlar_kv::kept::{SettingsStore as _, default_password};
use tokio::sync::watch;

use super::datadir::{self, DataDir, Opening};
use super::disks::Disks;
use super::drive_fronts::{DriveClients, DriveFronts};
use super::kv::doors::{Doors, TlsDoor};
use super::kv::store::Store;
use super::kv::{self, Serving};
use super::runtime::OsRuntime;
use super::state_writer::StateWriter;
use super::stopping::{Attempt, Stopping};
use super::tls::clients::{self, ClientProof};
use super::workers::Workers;
use super::{clock, files, process, random, sockets, tls};
use crate::config::Config;
use crate::config::root_key::GivenKey;
use crate::failure::Failure;
use crate::front::admin::Front;
use ashlar_node::keyvalue::users::SharedUsers;
use ashlar_node::keyvalue::{Part, ReplicationStreams, Rules};
use ashlar_node::membership::HandedOver;
use ashlar_node::service::Service;
use ashlar_node::{Joining, Node, Plan};

/// Databases of a server's key-value engine.
const KV_DATABASES: usize = 16;

/// Where the engines keep their logs, below the data directory.
const KV_FOLDER: &str = "kv";
const KV_REPLICA_FOLDER: &str = "kv-replica";

/// The flags that a taken port of NBD is about.
/// How a server's engines take part in their cluster. Where replicas go is for `ashlar kv rebalance`.
fn kv_rules(config: &Config) -> Rules {
    Rules {
        stands: true,
        migrates: false,
        migration_barrier: 1,
        handover_max: Duration::from_secs(5),
        keep_out: Duration::from_secs(60),
        // As with the default `cluster-replica-validity-factor` and `repl-ping-replica-period`.
        copy_age_max: Some(config.member_timeout * 10 + Duration::from_secs(10)),
    }
}

/// For so long a server that has handed its slots over answers clients before it stops, so that they learn where the slots are: whoever
/// sends a command now and then is redirected, and asks nobody who is gone.
const REDIRECT_SPAN: Duration = Duration::from_secs(1);

/// For so long at most a server that comes back lets clients wait until a majority of the voters is in reach. What it remembers of who owns
/// which slots may be old until then: clients that it told so would be sent to and fro.
const MAJORITY_SPAN: Duration = Duration::from_secs(2);

/// What a majority has told of the owners of slots is in the engines' tables after this span.
const TABLE_SPAN: Duration = Duration::from_millis(50);

/// How often a server that joins looks whether it has joined.
const JOIN_LOOK: Duration = Duration::from_millis(50);

/// What a server is told and is no configuration.
#[derive(Debug, Default)]
pub struct Secrets<'a> {
    /// The cluster's secret, if it comes from the environment.
    pub cluster: Option<&'a str>,
    /// The root key of S3, if a person gives it.
    pub root_key: Option<GivenKey>,
}

/// Runs a server until it is told to stop, with logging started already.
///
/// # Errors
/// It could not start, or not join. Retry safe once the cause is gone.
pub fn run(config: &Config, secrets: Secrets<'_>) -> Result<(), Failure> {
    run_with(config, secrets, |data, workers, address| key_value(config, data, workers, address), |_| {})
}

/// What serves clients of the key-value service in a server, and its part in the cluster.
pub(super) struct Engines {
    pub(super) serving: Serving,
    pub(super) part: Option<Part>,
}

/// The same with a key-value service that `engines` starts, if any, once the data directory is open; it is told the number of threads
/// and where other servers reach this one. `started` is told of it once the
/// server is part of its cluster.
pub(super) fn run_with(
    config: &Config,
    secrets: Secrets<'_>,
    engines: impl FnOnce(&DataDir, usize, &str) -> Result<Option<Engines>, Failure>,
    started: impl FnOnce(&Serving),
) -> Result<(), Failure> {
    if let Err(error) = process::raise_descriptor_limit() {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
    let Secrets { cluster: secret_text, root_key } = secrets;
    let opening = Opening { joins: !config.join.is_empty(), secret_text, secret_file: config.secret_file.as_deref() };
    let data = DataDir::open(&config.data, opening)?;
    let worker_count = config.workers.unwrap_or_else(process::cores);
    let listeners = sockets::listen(config.listen, worker_count)?;
    let listening = listeners.first().and_then(|listener| listener.local_addr().ok()).unwrap_or(config.listen);
    let address = config.advertise.clone().unwrap_or_else(|| listening.to_string());
    let (kv, part) = match engines(&data, worker_count, &address)? {
        Some(Engines { serving, part }) => (Some(serving), part),
        None => (None, None),
    };
    let disks = Disks::open(&data, config, root_key)?;
    let drive_fronts = DriveFronts::listen(config, disks.as_ref(), worker_count)?;
    let workers = Workers::start(worker_count).map_err(|error| cannot_start(&error))?;
    let control = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let control = control.map_err(|error| cannot_start(&error))?;
    let runtime = Arc::new(OsRuntime::new(Lane::Small, workers.handles.clone(), config.tls));
    let bulk = Arc::new(OsRuntime::new(Lane::Bulk, workers.bulk.clone(), config.tls));
    let result = control.block_on(async {
        let mut stopping = Stopping::new().map_err(|error| cannot_start(&error))?;
        let state_writer = StateWriter::start(data.root(), &data.secret_place).map_err(|error| cannot_start(&error))?;
        let plan = plan(config, &data, &address, part.as_ref());
        let mut services: Vec<Box<dyn Service<OsRuntime>>> = Vec::new();
        services.extend(part.map(|part| -> Box<dyn Service<OsRuntime>> { Box::new(part) }));
        services.extend(disks.iter().flat_map(Disks::services));
        let begun = Node::start(runtime, bulk, plan, state_writer, services);
        let (node, bus) = begun.map_err(|error| datadir::bus_lost(data.root(), &error.to_string()))?;
        // This thread has nothing else to do but to wait for signals and to look after joining and draining.
        tokio::spawn(bus);
        let tls = tls::server(&data.certificate_pem, &data.key_pem)?;
        let (engines, token) = (kv.as_ref().map(Serving::observer), data.admin_token.clone());
        let front = Arc::new(Front::new(
            node.clone(),
            tls.clone(),
            config.tls,
            token,
            engines,
            disks.as_ref().map(Disks::services_of_front),
            address.clone(),
        ));
        let (stop, stopped) = watch::channel(false);
        disks.iter().for_each(|disks| disks.register(&node));
        let clients = drive_fronts.serve(&workers.handles, disks.as_ref(), tls);
        for (listener, worker) in listeners.into_iter().zip(&workers.handles) {
            worker.spawn(serve(front.clone(), listener, stopped.clone()));
        }
        let (server, cluster, incarnation) = (data.server, data.cluster, data.incarnation.0);
        tracing::info!(%server, %cluster, incarnation, %listening, address, tls = config.tls, "server started");
        if let Some(serving) = &kv {
            admit(&data, serving);
            started(serving);
        }
        let result = live(config, &node, &mut stopping, kv.as_ref()).await;
        stopping.exit_at_next();
        finish(&node, disks.as_ref(), clients, result.is_ok()).await;
        stop.send_replace(true);
        result
    });
    // Whoever is connected is served until the node has drained, and then what is left goes to files.
    let kept = kv.map_or(Ok(()), |serving| control.block_on(serving.stop_beside()));
    workers.stop();
    tracing::info!("server stopped");
    result.and(kept)
}

/// Answers what is under way, and parts from the other servers, if it has joined them. Health is answered until the end: whoever balances
/// load has to see that this server goes.
async fn finish(node: &Node<OsRuntime>, disks: Option<&Disks>, clients: DriveClients, has_joined: bool) {
    let departure = async {
        if let Some(disks) = disks.filter(|_| has_joined) {
            disks.depart().await;
        }
    };
    // While other servers still answer this one.
    tokio::join!(clients.end(), departure);
    if has_joined {
        node.say_goodbye().await;
    }
    node.drain().await;
}

/// Admits clients of engines at once where the server remembers nobody, and so no owner of slots who may be another by now.
fn admit(data: &DataDir, serving: &Serving) {
    if data.peers.is_empty() {
        serving.admit_clients();
    }
}

/// This server's key-value engines, on threads of their own, which they share: nothing that their clients do delays the node. The first
/// is the primary of a group, the second follows another server's first, as `ashlar kv rebalance` arranges it.
fn key_value(config: &Config, data: &DataDir, workers: usize, address: &str) -> Result<Option<Engines>, Failure> {
    let Some(first) = config.kv else { return Ok(None) };
    let second = config.kv_replica.map(|address| (address, KV_REPLICA_FOLDER, "--kv-replica-port (0 for none)"));
    let engines: Vec<_> = core::iter::once((first, KV_FOLDER, "--kv-port (0 for none)")).chain(second).collect();
    let folders: Vec<_> = engines.iter().map(|(_, folder, _)| data.root().join(folder)).collect();
    for folder in &folders {
        files::make_directory(folder).map_err(|error| {
            let what = format!("cannot use {}: {error}", folder.display());
            Failure::world(what, "check who may write in the data directory")
        })?;
    }
    let bus_port = address.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(0);
    let engine_files: Vec<_> = folders.iter().map(|folder| folder.join("seat")).collect();
    let (mailboxes, cluster_engines) = kv::cluster::cluster_engines(data, bus_port, &engine_files)?;
    let replication_streams = Arc::new(ReplicationStreams::default());
    let store = Store::open(data)?;
    begin_closed(config, &store)?;
    let part = Part {
        mailboxes,
        engines: cluster_engines.iter().map(|cluster_engine| cluster_engine.engine_info.clone()).collect(),
        bus_port,
        zone: config.zone.clone(),
        rules: kv_rules(config),
        replication_streams: Some(Arc::clone(&replication_streams)),
        users: Some(Arc::clone(&store) as Arc<dyn SharedUsers>),
    };
    let plans: Vec<kv::Plan> = engines
        .iter()
        .zip(&folders)
        .zip(cluster_engines)
        .map(|(((address, _, port_flag), folder), cluster_engine)| kv::Plan {
            doors: Doors { port_flag, tls: tls_door(config, *address), ..Doors::of_server(*address) },
            workers,
            databases: KV_DATABASES,
            import: None,
            settings: settings(config, *address, folder),
            config_file: None,
            users: Vec::new(),
            cluster_engine: Some(cluster_engine.on(Arc::clone(&replication_streams))),
            store: Some(Arc::clone(&store)),
        })
        .collect();
    let serving = Serving::start(&plans)?;
    for door in &serving.listening {
        tracing::info!(kind = door.kind, place = door.place, "key-value engine started");
    }
    Ok(Some(Engines { serving, part: Some(part) }))
}

/// The password of the configuration holds as long as nothing else was said of the default user.
fn begin_closed(config: &Config, store: &Store) -> Result<(), Failure> {
    config.kv_password_file.iter().for_each(|path| files::warn_if_open(path));
    let Some(path) = config.kv_password_file.as_deref().filter(|_| !store.kept().has_default_user()) else {
        return Ok(());
    };
    let failed = |why: &dyn core::fmt::Display| {
        let what = format!("no password in {}: {why}", path.display());
        Failure::world(what, "give a file whose first line is the password, or leave kv_password_file out")
    };
    let text = files::read_text(path).map_err(|error| failed(&error))?;
    let text = text.ok_or_else(|| failed(&"there is no such file"))?;
    let password =
        text.lines().next().filter(|line| !line.is_empty()).ok_or_else(|| failed(&"its first line is empty"))?;
    store.keep(&default_password(password.as_bytes())).map_err(|why| failed(&why))
}

/// The door for clients under TLS of the engine at that address, if there is one.
fn tls_door(config: &Config, address: SocketAddr) -> Option<TlsDoor> {
    let tls = config.kv_tls.as_ref()?;
    let is_first = config.kv == Some(address);
    let clients = match tls.auth_clients.as_str() {
        "no" => ClientProof::None,
        "optional" => ClientProof::Optional,
        _ => ClientProof::Required,
    };
    let files = clients::Files {
        certificate: tls.certificate.clone(),
        key: tls.key.clone(),
        authorities: tls.authorities.clone(),
        clients,
        flags: "--kv-tls-",
    };
    Some(TlsDoor { port: if is_first { tls.port } else { tls.replica_port }, files })
}

/// What an engine of a server is set to at the start.
fn settings(config: &Config, address: SocketAddr, folder: &Path) -> Vec<(String, String)> {
    let timeout_ms = config.member_timeout.as_millis().to_string();
    let own = address.ip().to_string();
    let databases = KV_DATABASES.to_string();
    let mut settings = vec![
        ("dir", folder.display().to_string()),
        // What a server has acknowledged is in its log, and durable within a second.
        ("appendonly", "yes".into()),
        ("save", String::new()),
        ("cluster-enabled", "yes".into()),
        ("cluster-databases", databases),
        ("cluster-node-timeout", timeout_ms),
        ("cluster-allow-replica-migration", "no".into()),
        // A replica that comes need not wait for others.
        ("repl-diskless-sync-delay", "0".into()),
    ];
    // Otherwise clients are told the host under which other servers reach this one.
    if !address.ip().is_unspecified() && (config.is_kv_bind_given || config.advertise.is_none()) {
        settings.push(("cluster-announce-ip", own));
    }
    settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

async fn serve(front: Arc<Front>, listener: std::net::TcpListener, stopped: watch::Receiver<bool>) {
    if let Err(error) = front.serve(listener, stopped).await {
        tracing::error!(%error, "a worker cannot listen");
    }
}

fn plan(config: &Config, data: &DataDir, address: &str, part: Option<&Part>) -> Plan {
    let bus = ashlar_bus::Config {
        member_timeout: config.member_timeout,
        voters_chosen_max: config.voters_max,
        // Whoever is told to join has no say before it has.
        founds: config.join.is_empty(),
        ..ashlar_bus::Config::default()
    };
    let secrets = data.token.secrets.clone();
    Plan {
        grid: GridConfig::new(data.cluster, data.server, data.incarnation, address.to_owned(), secrets),
        is_tls: config.tls,
        pid: std::process::id(),
        join: config.join.clone(),
        met: data.peers.iter().map(|peer| (peer.server, peer.address.clone())).collect(),
        bus: part.map_or(bus.clone(), |part| part.rules.applied_to(&bus)),
        zone: config.zone.clone(),
        saved: data.bus.clone(),
        seed: u64::from_le_bytes(random::bytes()),
    }
}

/// Joins, then serves until it has to stop and everything is done that could stand against that.
async fn live(
    config: &Config,
    node: &Node<OsRuntime>,
    stopping: &mut Stopping,
    kv: Option<&Serving>,
) -> Result<(), Failure> {
    let mut admission = core::pin::pin!(admit_clients(node, kv));
    loop {
        let request = tokio::select! {
            failure = until_not_joined(config, node) => return Err(failure),
            never = &mut admission => match never {},
            request = stopping.wanted(kv) => request,
        };
        match stopping.attempt(kv, request, leave(node, kv, request)).await {
            Attempt::Ends => return Ok(()),
            Attempt::CalledOff(why) => node.stay(why.map(|failure| failure.what)).await,
            Attempt::Again => {}
        }
    }
}

/// Hands over what this server leads, so that its clients find the new primaries by `MOVED` while it still answers; then saves data, with
/// writes held back. After that it only has to say goodbye; until then it can go on, as a replica of those that took over.
async fn leave(node: &Node<OsRuntime>, kv: Option<&Serving>, request: Shutdown) -> Result<(), Failure> {
    let within = kv.filter(|_| !request.is_now).map_or(Duration::ZERO, Serving::shutdown_timeout);
    let watch = async {
        match kv {
            Some(serving) => serving.watch_what_runs().await,
            None => core::future::pending().await,
        }
    };
    let HandedOver { groups, slots_left } = tokio::select! {
        handed = node.hand_over(within) => handed,
        never = watch => match never {},
    };
    if groups > 0 {
        tracing::info!(groups, "handed over to replicas on other servers");
    }
    if !slots_left.is_empty() {
        // Where all servers stop together this is as it should be.
        tracing::info!(
            slots = slots_left.as_str(),
            "no replica has taken these slots over: they are not served until one does or this server is back; \
             `ashlar kv status` shows who follows"
        );
    }
    if let Some(serving) = kv {
        if groups > 0 && slots_left.is_empty() {
            serving.until_handed_over().await;
        }
        serving.hand_out(request).await;
        serving.save(request).await?;
    }
    if groups > 0 {
        clock::sleep(REDIRECT_SPAN).await;
    }
    Ok(())
}

/// Takes connections of clients once the server knows from a majority who owns which slots, or when that takes too long. Does not end.
async fn admit_clients(node: &Node<OsRuntime>, kv: Option<&Serving>) -> Infallible {
    if let Some(serving) = kv {
        let deadline = clock::now() + MAJORITY_SPAN;
        while !node.bus().await.majority && clock::now() < deadline {
            clock::sleep(JOIN_LOOK).await;
        }
        clock::sleep(TABLE_SPAN).await;
        serving.admit_clients();
    }
    core::future::pending().await
}

/// Ends only if the server cannot join.
async fn until_not_joined(config: &Config, node: &Node<OsRuntime>) -> Failure {
    let deadline = config.join_timeout.map(|span| clock::now() + span);
    loop {
        let waiting = match node.joining() {
            Joining::Done => core::future::pending().await,
            Joining::Hopeless(reason) => return refused(&reason),
            Joining::Waiting(reason) => reason,
        };
        if deadline.is_some_and(|deadline| clock::now() >= deadline) {
            return unreachable(config, waiting);
        }
        clock::sleep(JOIN_LOOK).await;
    }
}

fn refused(reason: &str) -> Failure {
    Failure::world(
        format!("the cluster does not let this server in: {reason}"),
        "give this server the cluster's own secret (cluster.secret of a server that is in it) and the same setting of tls",
    )
}

fn unreachable(config: &Config, reason: Option<String>) -> Failure {
    let seconds = config.join_timeout.map_or(0, |span| span.as_secs());
    let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
    Failure::world(
        format!("no server answered at {} within {seconds} s{reason}", config.join.join(", ")),
        "check that the address is right, that a server runs there and that no firewall is in between; \
         --join-timeout-s 0 waits for ever",
    )
}

fn cannot_start(error: &io::Error) -> Failure {
    Failure::world(format!("the server cannot start: {error}"), "check the limits of this user (ulimit -a)")
}
