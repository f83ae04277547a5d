//! Key-value engines, one alone or those of a server: listeners, workers, signals.

mod bus_secret;
pub mod caller;
pub mod cluster;
pub mod doors;
mod engine_host;
mod folder;
mod foreign;
mod host;
mod network;
mod persistence;
pub(in crate::os) mod store;

use core::convert::Infallible;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use std::{iter, slice, thread};

use ashlar_kv::figures::{Figures, ServiceFigures};
use ashlar_kv::kept::SettingsStore;
use ashlar_kv::{Allocator, EndSignal, Engine, EngineConfig, Link, Shutdown};
use tokio::runtime::{Builder, Handle, RuntimeFlavor};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;

use self::persistence::Persistence;
use super::acl_file::UsersFile;
use super::stopping::{Attempt, Stopping};
use super::{cache, clock, heap, process, random, rdb};
use crate::failure::Failure;
use crate::front::resp::{self, Service};
use ashlar_node::keyvalue::following::follow;
use ashlar_node::keyvalue::host::EngineHost;
use ashlar_node::keyvalue::migrating::move_slots;
use ashlar_node::keyvalue::replication_streams::Host;
use cluster::ClusterEngine;
use doors::{Doors, Listening, Open, SocketFile};
use engine_host::ProcessEngineHost;
use host::ProcessHost;
use network::{Doorman, Opened};
use store::{Store, StoredUsers};

/// Locks for each worker: so many that two workers seldom want the same one.
const SHARDS_PER_WORKER: usize = 16;

/// How often the engine looks after itself.
const TICK: Duration = Duration::from_millis(100);
/// The same while it rests.
const TICK_AT_REST: Duration = Duration::from_secs(1);
/// How long replicas may take for the rest before a server ends.
const HAND_OUT_MAX: Duration = Duration::from_secs(2);
/// Pause between two looks whether they have it.
const HAND_OUT_LOOK: Duration = Duration::from_millis(5);
/// What a person reads while a stop waits for a command that began before it.
const STILL_RUNS: &str = "a script or another command does not end, and the stop waits for it: `SCRIPT KILL` or `FUNCTION KILL` at the \
                          engine's port ends a script that has written nothing; a second signal ends the server at once";
/// How long a slow script waits until the tasks of its worker run on another thread.
const HANDOVER_MAX: Duration = Duration::from_millis(100);

/// How the engine runs.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Where clients connect.
    pub doors: Doors,
    /// Threads; each serves the connections that it accepts.
    pub workers: usize,
    /// Databases.
    pub databases: usize,
    /// An RDB file whose keys are there from the start.
    pub import: Option<PathBuf>,
    /// Settings by the names of Valkey's configuration, in the order in which they are made.
    pub settings: Vec<(String, String)>,
    /// The configuration file that they come from.
    pub config_file: Option<PathBuf>,
    /// Users, each as a name and rules.
    pub users: Vec<String>,
    /// The engine's part in a cluster, if it has one.
    pub cluster_engine: Option<ClusterEngine>,
    /// Where settings and users last by themselves, if they do.
    pub store: Option<Arc<Store>>,
}

/// Serves until a signal comes. Says where it listens with `started`, once all doors are open.
///
/// # Errors
/// The address is taken, or the operating system gives no threads. Retry safe once the cause is gone.
pub fn run(plan: &Plan, started: impl FnOnce(&[Listening])) -> Result<(), Failure> {
    if let Err(error) = process::raise_descriptor_limit() {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
    let control = Builder::new_current_thread().enable_all().build().map_err(|error| cannot_start(&error))?;
    let serving = Serving::start(slice::from_ref(plan))?;
    serving.admit_clients();
    let stopping = control.block_on(async {
        let mut stopping = Stopping::new().map_err(|error| cannot_start(&error))?;
        started(&serving.listening);
        loop {
            let request = stopping.wanted(Some(&serving)).await;
            let work = async {
                serving.hand_out(request).await;
                serving.save(request).await
            };
            if stopping.attempt(Some(&serving), request, work).await == Attempt::Ends {
                return Ok(stopping);
            }
        }
    });
    let stopped = control.block_on(async {
        let result = stopping.map(Stopping::exit_at_next);
        result.and(serving.stop_beside().await)
    });
    control.shutdown_background();
    stopped
}

/// How long figures of engines may take.
const FIGURES_MAX: Duration = Duration::from_secs(2);

/// The figures of one engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineFigures {
    /// Where clients reach it.
    pub engine: String,
    /// What there is to know.
    pub figures: Figures,
}

/// Watches the engines of a server, for metrics and health.
#[derive(Debug, Clone)]
pub struct Observer {
    /// Each with the place where clients reach it.
    engines: Arc<Vec<(String, Arc<Engine>)>>,
    /// One reads at a time.
    turn: Arc<Mutex<()>>,
}

impl Observer {
    /// What clients can expect of each engine now.
    #[must_use]
    pub fn service(&self) -> Vec<(String, ServiceFigures)> {
        self.engines.iter().map(|(place, engine)| (place.clone(), engine.service_figures())).collect()
    }

    /// All figures of all engines; none if others who ask take too long.
    pub async fn figures(&self) -> Vec<EngineFigures> {
        let Some(_turn) = clock::within(FIGURES_MAX, self.turn.lock()).await else { return Vec::new() };
        let engines = Arc::clone(&self.engines);
        // Commands may hold keys, for which no worker waits.
        let read = tokio::task::spawn_blocking(move || {
            let now = clock::now_both();
            let figures = engines.iter().map(|(place, engine)| (place.clone(), engine.figures(now)));
            figures.map(|(engine, figures)| EngineFigures { engine, figures }).collect()
        });
        read.await.unwrap_or_default()
    }
}

/// Engines that serve, on threads of their own, which they share.
#[derive(Debug)]
pub struct Serving {
    /// The doors that are open, engine by engine.
    pub listening: Vec<Listening>,
    stop: watch::Sender<bool>,
    /// Whether connections that come in are taken.
    admits: watch::Sender<bool>,
    threads: Vec<thread::JoinHandle<()>>,
    engines: Vec<Running>,
    store: Option<Arc<Store>>,
    /// Somebody was told that a stop waits for a command.
    is_told_what_runs: AtomicBool,
}

/// One engine.
#[derive(Debug)]
struct Running {
    engine: Arc<Engine>,
    /// Where clients reach it: its first door.
    place: String,
    cluster_engine: Option<ClusterEngine>,
    persistence: Persistence,
    _file: Option<SocketFile>,
}

/// One engine that is ready to serve, where it listens, and each worker's doors.
type Begun = (Running, Vec<Listening>, Vec<UnboundedReceiver<Opened>>);

/// What a worker gets of an engine: its service, and the doors that open.
type Post = (Service, UnboundedReceiver<Opened>);

impl Serving {
    /// Reads what is on files, opens the doors and serves: one engine for each plan, all of which have the same number of threads. Each
    /// thread serves clients of all engines.
    ///
    /// # Errors
    /// Files cannot be read, an address is taken, or the operating system gives no threads. Retry safe once the cause is gone.
    pub fn start(plans: &[Plan]) -> Result<Self, Failure> {
        let workers = plans.iter().map(|plan| plan.workers).max().unwrap_or(1).max(1);
        let (stop, stopped) = watch::channel(false);
        let (admits, admitted) = watch::channel(false);
        let store = plans.iter().find_map(|plan| plan.store.clone());
        let (listening, threads, engines, is_told_what_runs) = Default::default();
        let mut serving = Self { listening, stop, admits, threads, engines, store, is_told_what_runs };
        let mut posts: Vec<Vec<Post>> = iter::repeat_with(Vec::new).take(workers).collect();
        for plan in plans {
            let (running, listening, doors) = Running::start(plan, workers)?;
            for (worker, (doors, posts)) in doors.into_iter().zip(&mut posts).enumerate() {
                let (engine, released) = (Arc::clone(&running.engine), running.persistence.released());
                posts.push((Service { engine, released, worker }, doors));
            }
            serving.listening.extend(listening);
            serving.engines.push(running);
        }
        let services: Vec<Vec<Service>> =
            posts.iter().map(|posts| posts.iter().map(|(service, _)| service.clone()).collect()).collect();
        let (ready, handles) = mpsc::channel();
        for (index, posts) in posts.into_iter().enumerate() {
            let (ready, life) = (ready.clone(), Life { stopped: stopped.clone(), admitted: admitted.clone() });
            serving.spawn(format!("kv-{index}-wait"), move || work(index, posts, ready, &life))?;
        }
        drop(ready);
        let replication_streams =
            plans.iter().find_map(|plan| plan.cluster_engine.as_ref()?.replication_streams.clone());
        if let Some(replication_streams) = replication_streams {
            let handles: BTreeMap<usize, Handle> = handles.iter().collect();
            replication_streams.host(hosting(services, handles));
        }
        if let Some(store) = serving.store.clone() {
            let engines: Vec<_> = serving.engines.iter().map(|running| Arc::clone(&running.engine)).collect();
            serving.spawn("kv-settings".into(), move || store.attend(&engines))?;
        }
        for number in 0..serving.engines.len() {
            let Running { engine, cluster_engine, .. } = &serving.engines[number];
            let (engine, cluster_engine) = (Arc::clone(engine), cluster_engine.clone());
            let file = cluster_engine.as_ref().map(|cluster_engine| cluster_engine.file.clone());
            let host: Arc<dyn EngineHost> = Arc::new(ProcessEngineHost::new(Arc::clone(&engine), file));
            let streams = cluster_engine.as_ref().and_then(|cluster_engine| cluster_engine.replication_streams.clone());
            let link = follow(Arc::clone(&engine), streams.clone(), Arc::clone(&host));
            serving.run_task("kv-link", &stopped, link)?;
            if let Some(cluster_engine) = cluster_engine {
                let slots = move_slots(Arc::clone(&engine), streams, Arc::clone(&host));
                serving.run_task("kv-slots", &stopped, slots)?;
                let task = cluster_engine.task().run(Arc::clone(&engine), host);
                // It ends when the mailboxes are closed, and does what was assigned before.
                serving.spawn("kv-cluster".into(), move || drop(super::block_on(task)))?;
            }
            let stopped = stopped.clone();
            serving.spawn("kv-tick".into(), move || tick(&engine, stopped))?;
        }
        Ok(serving)
    }

    /// Runs a task on a thread of its own until the engines stop: what it does may take long.
    fn run_task(
        &mut self,
        name: &str,
        stopped: &watch::Receiver<bool>,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), Failure> {
        let mut stopped = stopped.clone();
        let until_stopped = async move {
            tokio::select! {
                () = task => {}
                _ = stopped.wait_for(|&stop| stop) => {}
            }
        };
        self.spawn(name.into(), move || drop(super::block_on(until_stopped)))
    }

    fn spawn(&mut self, name: String, body: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
        let thread = thread::Builder::new().name(name).spawn(body).map_err(|error| cannot_start(&error))?;
        self.threads.push(thread);
        Ok(())
    }

    /// Takes connections from now on. Those that came before have waited in the listeners' queues.
    pub fn admit_clients(&self) {
        self.admits.send_replace(true);
    }

    /// For whoever watches the engines.
    #[must_use]
    pub fn observer(&self) -> Observer {
        let engines = self.engines.iter().map(|running| (running.place.clone(), Arc::clone(&running.engine)));
        Observer { engines: Arc::new(engines.collect()), turn: Arc::default() }
    }

    /// How each engine is asked to end.
    pub(super) fn stop_wanted(&self) -> Vec<Option<Shutdown>> {
        self.engines.iter().map(|running| running.engine.wants_stop()).collect()
    }

    /// All engines are to end like this.
    pub(super) fn want_stop(&self, request: Shutdown) {
        self.engines.iter().for_each(|running| running.engine.want_stop(request));
    }

    /// All engines go on.
    pub(super) fn call_off_stop(&self) {
        self.cancel_save();
        for running in &self.engines {
            running.engine.call_off_stop();
        }
    }

    /// How a signal ends the process, by the settings of the first engine.
    pub(super) fn shutdown_on(&self, signal: EndSignal) -> Shutdown {
        self.engines.first().map(|running| running.engine.shutdown_on(signal)).unwrap_or_default()
    }

    /// Saves everything that must outlast the process, while reads are served. Writes are held back. Dropped half-way it goes on until
    /// [`Serving::cancel_save`].
    ///
    /// # Errors
    /// Something is not on files. Retry safe once the cause is gone.
    pub(super) async fn save(&self, request: Shutdown) -> Result<(), Failure> {
        if !request.needs_save() {
            return Ok(());
        }
        let save = |running: &Running| {
            let engine = Arc::clone(&running.engine);
            tokio::task::spawn_blocking(move || persistence::save_finally(&engine, request))
        };
        let saving: Vec<_> = self.engines.iter().map(save).collect();
        for saved in saving {
            let lost = |error| Failure::world(format!("data cannot be saved: {error}"), "see the log for the reason");
            saved.await.map_err(lost)??;
        }
        Ok(())
    }

    /// Gives up what [`Serving::save`] does.
    pub(super) fn cancel_save(&self) {
        self.engines.iter().for_each(|running| running.engine.saves().cancel_final());
    }

    /// How long replicas may take to take over before a server ends: the longest `shutdown-timeout` of its engines.
    #[must_use]
    pub fn shutdown_timeout(&self) -> Duration {
        self.engines.iter().map(|running| running.engine.shutdown_timeout()).max().unwrap_or_default()
    }

    /// Waits, for a moment at most, until no engine owns slots: all were handed over, and clients are told so from then on. Writes that
    /// were held back before would wait for that until the process ends.
    pub(super) async fn until_handed_over(&self) {
        let deadline = clock::now() + HAND_OUT_MAX;
        let owns =
            |running: &Running| running.engine.service_figures().cluster.is_some_and(|cluster| cluster.slots_owned > 0);
        while self.engines.iter().any(owns) && clock::now() < deadline {
            clock::sleep(HAND_OUT_LOOK).await;
        }
    }

    fn engines(&self) -> Vec<Arc<Engine>> {
        self.engines.iter().map(|running| Arc::clone(&running.engine)).collect()
    }

    /// Says so once if commands that run now do not end soon. Does not end: to be waited for beside what is done for the stop.
    pub(super) async fn watch_what_runs(&self) -> Infallible {
        let engines = self.engines();
        let settled = tokio::task::spawn_blocking(move || {
            engines.iter().for_each(|engine| engine.settle_writes(clock::now_both()));
        });
        if clock::within(HAND_OUT_MAX, settled).await.is_none() {
            self.say_what_runs();
        }
        core::future::pending().await
    }

    fn say_what_runs(&self) {
        if !self.is_told_what_runs.swap(true, Ordering::Relaxed) {
            tracing::warn!("{STILL_RUNS}");
        }
    }

    /// Engines take no writes any more, until the stop is called off. Of primaries it is waited, for a moment at most, until their replicas
    /// have what they have: one of them may take over, and should lack nothing that was acknowledged.
    pub(super) async fn hand_out(&self, request: Shutdown) {
        let engines = self.engines();
        // Before anything is waited for: a stop that is called off meanwhile lets go of all of them.
        engines.iter().for_each(|engine| engine.hold_writes_for_stop());
        // A script may hold keys, for which nobody here waits.
        let held = tokio::task::spawn_blocking(move || {
            let hold = |engine: Arc<Engine>| {
                engine.settle_writes(clock::now_both());
                // What was handed over belongs to the new primary: nothing more is to be said to replicas.
                let cluster = engine.service_figures().cluster;
                let leads = engine.upstream().is_none() && cluster.is_none_or(|cluster| cluster.slots_owned > 0);
                let position = if leads { engine.position() } else { None };
                position.map(|position| (engine, position))
            };
            engines.into_iter().filter_map(hold).collect::<Vec<_>>()
        });
        let Some(Ok(left)) = clock::within(HAND_OUT_MAX, held).await else {
            return self.say_what_runs();
        };
        if request.is_now {
            return;
        }
        let deadline = clock::now() + HAND_OUT_MAX;
        while left.iter().any(|(engine, position)| !engine.is_replicated(*position)) && clock::now() < deadline {
            clock::sleep(HAND_OUT_LOOK).await;
        }
    }

    /// The same as [`Serving::stop`] while this thread goes on looking after signals.
    ///
    /// # Errors
    /// As there.
    pub(super) async fn stop_beside(self) -> Result<(), Failure> {
        let lost = |error| Failure::world(format!("the engines did not stop: {error}"), "see the log for the reason");
        tokio::task::spawn_blocking(|| self.stop()).await.map_err(lost)?
    }

    /// Serves nobody any more, and writes what is left to files.
    ///
    /// # Errors
    /// Something is not on files that should be.
    pub fn stop(self) -> Result<(), Failure> {
        self.stop.send_replace(true);
        self.engines
            .iter()
            .filter_map(|running| running.cluster_engine.as_ref())
            .for_each(|cluster_engine| cluster_engine.mailboxes.close());
        self.store.iter().for_each(|store| store.close());
        for thread in self.threads {
            // A worker that panicked has ended the process already.
            thread.join().ok();
        }
        let wanted = self.engines.iter().find_map(|running| running.engine.wants_stop()).unwrap_or_default();
        let stopped: Vec<_> = self.engines.into_iter().map(|running| running.stop(wanted)).collect();
        stopped.into_iter().collect()
    }
}

impl Running {
    /// Writes what is left to files, and that the data there are whole.
    fn stop(self, request: Shutdown) -> Result<(), Failure> {
        self.persistence.stop(request)?;
        // A dump says itself at which point its data are; a log does not.
        if self.cluster_engine.is_some() && self.engine.files().is_log_on {
            self.engine.note_orderly_end();
        }
        Ok(())
    }

    /// Reads what is on files and opens the doors, for so many threads.
    fn start(plan: &Plan, workers: usize) -> Result<Begun, Failure> {
        let shards = (workers * SHARDS_PER_WORKER).next_power_of_two().min(1 << 10);
        let config = EngineConfig { secret: random::bytes(), shards, databases: plan.databases };
        let engine =
            Arc::new(Engine::with_host(&config, Arc::new(ProcessHost::new(workers, plan.config_file.clone()))));
        count_memory(&engine);
        engine.fetch_ahead_with(cache::fetch_ahead);
        configure(&engine, plan)?;
        engine.set_give_way(Box::new(give_way));
        let persistence = Persistence::start(&engine)?;
        if let Some(path) = &plan.import {
            let imported = rdb::import(&engine, path)?;
            let libraries = imported.libraries.len();
            engine.forget_point();
            let (keys, expired, empty) = (imported.keys, imported.expired, imported.empty);
            tracing::info!(keys, expired, empty, libraries, "imported");
            persistence.take_in()?;
        }
        engine.follow_as_configured(clock::now_both());
        let Open { doors, listening, certificates, file } = plan.doors.open(workers)?;
        show_doors(&engine, plan, &listening)?;
        if let Some(certificates) = certificates {
            engine.show_certificates(certificates);
        }
        if let Some(cluster_engine) = &plan.cluster_engine {
            cluster_engine.join(&engine)?;
        }
        let streams_of = plan.cluster_engine.as_ref().filter(|engine| engine.replication_streams.is_some());
        let (doorman, doors) = Doorman::new(doors, streams_of.map(|engine| engine.server));
        engine.set_network(Box::new(doorman));
        let place = listening.first().map(|door| door.place.clone()).unwrap_or_default();
        Ok((
            Self { engine, place, cluster_engine: plan.cluster_engine.clone(), persistence, _file: file },
            listening,
            doors,
        ))
    }
}

/// Sets what the plan says of parameters and users.
fn configure(engine: &Engine, plan: &Plan) -> Result<(), Failure> {
    for (name, value) in &plan.settings {
        engine.configure(name, value).map_err(|why| {
            let what = format!("`{name} {value}` cannot be set: {why}");
            Failure::usage(what, "see docs/kv-parameters.md for what there is")
        })?;
    }
    for user in &plan.users {
        let added = engine.add_user(user.as_bytes());
        added.map_err(|why| Failure::usage(format!("`user {user}`: {why}"), "see ACL HELP for the rules of users"))?;
    }
    let users_file = plan.settings.iter().rev().find(|(name, value)| name == "aclfile" && !value.is_empty());
    if let Some((_, path)) = users_file {
        let used = engine.use_acl_file(Box::new(UsersFile::new(path.into())));
        used.map_err(|why| {
            Failure::usage(format!("{path}: {why}"), "correct the file of users, or leave out `aclfile`")
        })?;
    }
    plan.store.as_ref().map_or(Ok(()), |store| take_up(engine, store))
}

/// Settings and users are those of the store, and last in it from now on.
fn take_up(engine: &Engine, store: &Arc<Store>) -> Result<(), Failure> {
    let applied = engine.apply_kept(&store.kept());
    let used = applied.and_then(|()| engine.use_acl_file(Box::new(StoredUsers(Arc::clone(store)))));
    used.map_err(|why| {
        let what = format!("settings and users that were kept cannot be used: {why}");
        Failure::world(what, "start the version of ashlar that has kept them")
    })?;
    engine.set_store(Arc::clone(store) as Arc<dyn SettingsStore>);
    Ok(())
}

/// Parameters say what doors there are, and how many threads.
fn show_doors(engine: &Engine, plan: &Plan, listening: &[Listening]) -> Result<(), Failure> {
    let port = |kind: &str| {
        let door = listening.iter().find(|door| door.kind == kind)?;
        door.place.rsplit_once(':').map(|(_, port)| port.to_owned())
    };
    let path = listening.iter().find(|door| door.kind == "unix").map(|door| door.place.clone());
    let addresses: Vec<String> = plan.doors.addresses.iter().map(ToString::to_string).collect();
    for (name, value) in [
        ("port", port("tcp").unwrap_or_else(|| "0".into())),
        ("tls-port", port("tls").unwrap_or_else(|| "0".into())),
        ("unixsocket", path.unwrap_or_default()),
        ("bind", addresses.join(" ")),
        ("io-threads", plan.workers.clamp(1, 128).to_string()),
    ] {
        let set = engine.configure(name, &value);
        set.map_err(|why| Failure::world(format!("`{name} {value}`: {why}"), "report this as a defect"))?;
    }
    Ok(())
}

/// The engine looks after itself, until it is told to stop.
fn tick(engine: &Engine, mut stopped: watch::Receiver<bool>) {
    let ticked = super::block_on(async {
        let mut is_over = false;
        while !is_over {
            let span = if engine.is_resting() { TICK_AT_REST } else { TICK };
            is_over = tokio::select! {
                _ = stopped.wait_for(|&stop| stop) => true,
                _ = clock::within(span, poll_fn(|cx| engine.poll_tick_wanted(cx))) => false,
            };
            engine.handle_tick(clock::now_both());
        }
    });
    if let Err(error) = ticked {
        tracing::error!(%error, "keys do not expire by themselves any more");
    }
}

/// The engine's memory is that of the process.
fn count_memory(engine: &Engine) {
    engine.count_memory_with(Allocator {
        live_bytes: heap::live_bytes,
        follow: heap::follow,
        resident_bytes: || process::facts().resident_bytes,
        purge: heap::purge,
    });
}

/// Streams of other servers' replicas go round the threads that there are.
fn hosting(services: Vec<Vec<Service>>, threads: BTreeMap<usize, Handle>) -> Host {
    let next = AtomicUsize::new(0);
    Box::new(move |from, port, stream| {
        let turn = next.fetch_add(1, Ordering::Relaxed) % threads.len().max(1);
        let (worker, thread) = threads.iter().nth(turn)?;
        let service = services[*worker].iter().find(|service| service.engine.announcement().port == port)?;
        let link = Link {
            peer: from.to_owned(),
            local: format!("{}:{port}", service.engine.announcement().host),
            descriptor: -1,
            is_unix: false,
            is_tls: false,
            is_server: true,
        };
        Some(Box::pin(resp::visit(service.clone(), stream, link, thread.clone())))
    })
}

/// The life of one worker. Its tasks run on a thread of their own, which can hand them to another: see [`give_way`].
fn work(index: usize, posts: Vec<Post>, ready: mpsc::Sender<(usize, Handle)>, life: &Life) {
    let name = format!("kv-{index}");
    let served = Builder::new_multi_thread().worker_threads(1).thread_name(name).enable_all().build();
    let served = served.and_then(|runtime| {
        // An error means that nobody wants to know.
        ready.send((index, runtime.handle().clone())).ok();
        drop(ready);
        let result = runtime.block_on(async {
            let mut serving = JoinSet::new();
            posts.into_iter().for_each(|(service, doors)| drop(serving.spawn(serve(service, doors, life.clone()))));
            while let Some(ended) = serving.join_next().await {
                ended.unwrap_or_else(|error| Err(io::Error::other(error)))?;
            }
            Ok(())
        });
        runtime.shutdown_background();
        result
    });
    if let Err(error) = served {
        tracing::error!(%error, "a worker cannot listen");
    }
}

/// What a worker is told of the service's life.
#[derive(Debug, Clone)]
struct Life {
    /// It is to end.
    stopped: watch::Receiver<bool>,
    /// Connections that come in are taken.
    admitted: watch::Receiver<bool>,
}

/// Serves at all doors that this worker is given, once connections are taken, until it is told to stop.
async fn serve(service: Service, mut doors: UnboundedReceiver<Opened>, life: Life) -> io::Result<()> {
    let Life { mut stopped, mut admitted } = life;
    tokio::select! {
        _ = stopped.wait_for(|&stop| stop) => return Ok(()),
        _ = admitted.wait_for(|&admits| admits) => {}
    }
    // Each door on a task of its own, so that none holds up another.
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            _ = stopped.wait_for(|&stop| stop) => return Ok(()),
            Some(Opened { door, closed }) = doors.recv() => {
                tasks.spawn(resp::serve(service.clone(), door, closed));
            }
            Some(ended) = tasks.join_next() => ended.unwrap_or_else(|error| Err(io::Error::other(error)))?,
        }
    }
}

/// A script of this thread's worker takes long: the worker's other tasks go on on another thread, so that their clients can be
/// told so, and end the script. It comes back when they run there.
fn give_way() {
    if Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread) {
        let (runs, is_running) = mpsc::channel();
        drop(tokio::spawn(async move { runs.send(()).ok() }));
        // An error means that it takes too long, or that the process ends: the script goes on anyway.
        tokio::task::block_in_place(|| is_running.recv_timeout(HANDOVER_MAX).ok());
    }
}

fn cannot_start(error: &io::Error) -> Failure {
    Failure::world(format!("the engine cannot start: {error}"), "check the limits of this user (ulimit -a)")
}
