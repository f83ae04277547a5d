//! `ashlar bench kv`: load on a server that speaks RESP, ours or another's.
//!
//! The shape is Valkey's published one: many connections over few threads, values of 512 bytes, batches of 1, 16 and 100
//! requests. In reading order: [`request`] (requests with gaps), [`replies`] (counting replies), [`login`] (the first words on a
//! connection), [`control`] (when it counts), [`cluster`] (who has which keys), [`client`] (one thread's connections), [`idle`]
//! (those that do nothing). All keys of a load lie in one database. Of a cluster, each connection loads one primary with keys that
//! it owned at the beginning: what has moved since counts as an error.

pub mod client;
pub mod cluster;
pub mod control;
pub mod idle;
pub mod login;
pub mod replies;
pub mod request;

use std::iter::Sum;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use client::{Mix, Part, Sums, drive};
use cluster::Primary;
use control::{Control, Ending, Phase};
use idle::Idle;
use login::{Login, say};
use replies::Scanner;
use request::{Chooser, Order, Template, plain};

use super::Options;
use super::load::Dice;
use super::report::{Row, line};
use crate::failure::Failure;
use crate::os::poll::Target;
use crate::os::{clock, crew, process};

/// Requests of a batch while keys are written before others read them.
const FILL_PIPELINE: usize = 100;
/// How often progress is told.
const LOOK: Duration = Duration::from_millis(500);
/// A server that gives no reply for so long is given up, if only requests end the load.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// A benchmark of one server, or of a cluster.
#[derive(Debug, Clone)]
pub struct Study {
    /// Where it is; of a cluster, who was asked for the primaries.
    pub target: Target,
    /// The server, or all primaries of the cluster.
    pub primaries: Vec<Primary>,
    /// The servers' processes on this machine, if their CPU time is to be told.
    pub server_pids: Vec<u32>,
    /// What is said first.
    pub login: Login,
    /// Connections, over all threads.
    pub connections: usize,
    /// Threads of the generator.
    pub threads: usize,
    /// Requests of a batch, one case each.
    pub pipelines: Vec<usize>,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// How many keys there are.
    pub keys: usize,
    /// In which order they are used.
    pub order: Order,
    /// GETs among a hundred requests of the mixed case.
    pub get_percent: u8,
    /// A command of one's own instead of the usual cases.
    pub command: Option<Vec<String>>,
    /// Requests a second, over all connections; `None` is as many as there can be.
    pub rate: Option<u64>,
    /// Requests that end each case; `None` is a span of time.
    pub requests: Option<u64>,
    /// Not counted at the beginning of each case.
    pub warm_up: Duration,
    /// Whether all keys are written before a case reads them.
    pub fills: bool,
    /// A command that is sent once in each case, when it begins to count.
    pub during: Option<Vec<String>>,
    /// Connections that do nothing meanwhile.
    pub idle: usize,
}

impl Study {
    /// A figure of the servers' processes, summed; nothing if none is known, or one is not there.
    fn of_processes<T: Sum>(&self, figure: impl Fn(u32) -> Option<T>) -> Option<T> {
        let figures = self.server_pids.iter().map(|&pid| figure(pid));
        if self.server_pids.is_empty() { None } else { figures.sum() }
    }
}

/// What is told while it runs.
#[derive(Debug)]
pub enum News<'a> {
    /// A row is there, as a line for people.
    Row(&'a str),
    /// A case runs: its name and operations a second so far.
    Running(&'a str, f64),
}

/// One case.
struct Case {
    name: String,
    mix: Mix,
    pipeline: usize,
    reads: bool,
}

/// Runs all cases that are wanted; tells each row as soon as it is there.
///
/// # Errors
/// The server cannot be reached or does not answer.
pub fn run_all(study: &Study, options: &Options, mut tell: impl FnMut(News<'_>) + Send) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    let mut is_filled = !study.fills;
    let idle = if study.idle > 0 { Some(Idle::open(study)?) } else { None };
    for case in cases(study).into_iter().filter(|case| options.wants(&case.name)) {
        if case.reads && !is_filled {
            fill(study, &mut tell)?;
            is_filled = true;
        }
        let load =
            Load { order: study.order, rate: study.rate, requests: study.requests, ..Load::usual(study, options) };
        let row = load.run(&case, &mut tell)?.row(&case, study);
        tell(News::Row(&line(&row)));
        rows.push(row);
    }
    if let Some(idle) = idle {
        let row = idle.row(study)?;
        tell(News::Row(&line(&row)));
        rows.push(row);
    }
    Ok(rows)
}

fn cases(study: &Study) -> Vec<Case> {
    let value = value(study.value_bytes);
    let template = |words: &[&str]| Template::new(words, &value);
    let kinds = match &study.command {
        Some(words) => {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            vec![("command", Mix { usual: template(&words), other: None }, false)]
        }
        None => {
            let (set, get) = (template(&["SET", "__key__", "__data__"]), template(&["GET", "__key__"]));
            let mixed = Mix { usual: set.clone(), other: Some((get.clone(), study.get_percent)) };
            vec![
                ("set", Mix { usual: set, other: None }, false),
                ("get", Mix { usual: get, other: None }, true),
                ("mixed", mixed, true),
            ]
        }
    };
    let pipelines = |(kind, mix, reads): (&str, Mix, bool)| {
        let case = |&pipeline: &usize| Case { name: format!("{kind}/{pipeline}"), mix: mix.clone(), pipeline, reads };
        study.pipelines.iter().map(case).collect::<Vec<_>>()
    };
    kinds.into_iter().flat_map(pipelines).collect()
}

/// Bytes that do not compress well, the same in every run.
fn value(bytes: usize) -> Vec<u8> {
    let mut dice = Dice::new(512);
    const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-";
    (0..bytes).map(|_| LETTERS[dice.below(LETTERS.len())]).collect()
}

/// Writes every key once: one primary after the other, because all requests of a load are one number.
fn fill(study: &Study, tell: &mut (impl FnMut(News<'_>) + Send)) -> Result<(), Failure> {
    let mix = Mix { usual: Template::new(&["SET", "__key__", "__data__"], &value(study.value_bytes)), other: None };
    let case = Case { name: "filling".into(), mix, pipeline: FILL_PIPELINE, reads: false };
    for primary in &study.primaries {
        let load = Load {
            study,
            primaries: std::slice::from_ref(primary),
            span: Duration::MAX,
            warm_up: Duration::ZERO,
            order: Order::Sequential,
            rate: None,
            requests: Some(primary.keys.count() as u64),
            during: None,
        };
        if let Some(error) = load.run(&case, tell)?.sums.first_error {
            return Err(Failure::world(
                format!("{} refuses to be filled with keys: {error}", primary.target),
                "choose fewer keys with --keys, or leave them as they are with --no-fill",
            ));
        }
    }
    Ok(())
}

/// How one case is run.
#[derive(Debug, Clone, Copy)]
struct Load<'a> {
    study: &'a Study,
    /// Who is loaded.
    primaries: &'a [Primary],
    span: Duration,
    warm_up: Duration,
    order: Order,
    rate: Option<u64>,
    requests: Option<u64>,
    during: Option<&'a [String]>,
}

/// A thread of a load.
enum Role<'a> {
    Client(Part<'a>),
    Watcher,
}

/// What the watcher saw.
#[derive(Debug, Default, Clone, Copy)]
struct Watched {
    span: Duration,
    client_cpu: Duration,
    server_cpu: Option<Duration>,
    /// The server's memory at the end, bytes.
    server_bytes: Option<u64>,
    is_silent: bool,
}

impl<'a> Load<'a> {
    fn usual(study: &'a Study, options: &Options) -> Self {
        let (order, rate, requests) = (study.order, study.rate, study.requests);
        let during = study.during.as_deref();
        let (primaries, warm_up) = (study.primaries.as_slice(), study.warm_up);
        Self { study, primaries, span: options.span(), warm_up, order, rate, requests, during }
    }

    fn threads(&self) -> usize {
        self.study.threads.clamp(1, self.study.connections.max(1))
    }

    fn run(&self, case: &Case, tell: &mut (impl FnMut(News<'_>) + Send)) -> Result<Outcome, Failure> {
        let control = Control::new(self.requests);
        let tell = std::sync::Mutex::new(tell);
        let parts = self.parts(case).into_iter().map(Role::Client).chain([Role::Watcher]).collect();
        let results = crew::run_anywhere(parts, |role| match role {
            Role::Client(part) => {
                let _ending = Ending(&control);
                Ok((Some(drive(part, &control)?), None))
            }
            Role::Watcher => {
                let mut tell = tell.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                let watched = self.watch(&control, |rate| tell(News::Running(&case.name, rate)));
                Ok((None, Some(watched?)))
            }
        });
        let results = results
            .map_err(|error| Failure::world(format!("cannot start threads: {error}"), "choose fewer with --threads"))?;
        let (mut sums, mut watched) = (Sums::default(), Watched::default());
        for result in results {
            let (part, seen) = result?;
            watched = seen.unwrap_or(watched);
            if let Some(part) = part {
                sums.add(&part);
            }
        }
        if watched.is_silent || sums.counts.replies == 0 {
            let what = format!("{} gave no reply to {} while it was measured", self.study.target, case.name);
            return Err(Failure::world(
                what,
                "choose a command that replies at once, or measure longer with --seconds",
            ));
        }
        Ok(Outcome { sums, watched })
    }

    fn parts(&self, case: &'a Case) -> Vec<Part<'a>> {
        let (study, threads, count) = (self.study, self.threads(), self.primaries.len());
        let next: Vec<Arc<AtomicUsize>> = (0..count).map(|_| Arc::default()).collect();
        let chooser = |thread: usize, number: usize| {
            let (keys, seed) = (self.primaries[number].keys.clone(), thread * count + number + 1);
            Chooser::new(keys, study.keys, self.order, seed, Arc::clone(&next[number]))
        };
        let part = |thread: usize| Part {
            primaries: self.primaries,
            login: &study.login,
            mix: &case.mix,
            pipeline: case.pipeline,
            connections: study.connections * thread / threads..study.connections * (thread + 1) / threads,
            interval: self
                .rate
                .map(|rate| Duration::from_secs_f64((case.pipeline * study.connections) as f64 / rate.max(1) as f64)),
            choosers: (0..count).map(|number| chooser(thread, number)).collect(),
        };
        (0..threads).map(part).collect()
    }

    /// Lets the threads begin, count and end; tells operations a second from time to time.
    fn watch(&self, control: &Control, mut tell: impl FnMut(f64)) -> Result<Watched, Failure> {
        let threads = self.threads();
        if !control.wait_for_ready(threads) {
            control.set(Phase::Over);
            return Ok(Watched::default());
        }
        if !self.warm_up.is_zero() {
            control.set(Phase::WarmUp);
            control.wait(self.warm_up, threads);
        }
        let server = || self.study.of_processes(process::cpu_time_of);
        let (began, client_before, server_before) = (clock::now(), process::cpu_time(), server());
        control.set(Phase::Measuring);
        let begun = self.begin();
        let (mut seen, mut moved) = (0, began);
        let is_silent = loop {
            let passed = clock::now().saturating_since(began);
            let left = if self.requests.is_some() { LOOK } else { self.span.saturating_sub(passed) };
            let is_silent = clock::now().saturating_since(moved) >= SILENCE_MAX && self.requests.is_some();
            if left.is_zero() || is_silent || !control.wait(left.min(LOOK), threads) {
                break is_silent;
            }
            let (done, now) = (control.done(), clock::now());
            if done > seen {
                (seen, moved) = (done, now);
            }
            tell(done as f64 / now.saturating_since(began).as_secs_f64());
        };
        control.set(Phase::Over);
        let (ended, client_after, server_after) = (clock::now(), process::cpu_time(), server());
        begun?;
        Ok(Watched {
            span: ended.saturating_since(began),
            client_cpu: client_after.saturating_sub(client_before),
            server_cpu: server_before.zip(server_after).map(|(before, after)| after.saturating_sub(before)),
            server_bytes: self.study.of_processes(process::resident_of),
            is_silent,
        })
    }

    /// It counts from now on: sends everybody the command that is to run meanwhile, and waits until it is answered.
    fn begin(&self) -> Result<(), Failure> {
        let Some(words) = self.during else { return Ok(()) };
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        for Primary { target, .. } in self.primaries {
            let mut stream = self.study.login.open(target)?;
            say(&mut stream, target, &plain(&words), &mut Scanner::default())?;
        }
        Ok(())
    }
}

struct Outcome {
    sums: Sums,
    watched: Watched,
}

impl Outcome {
    fn row(&self, case: &Case, study: &Study) -> Row {
        let (sums, watched) = (&self.sums, &self.watched);
        let replies = sums.counts.replies as f64;
        let micros = |quantile: f64| sums.latencies.value_at_quantile(quantile) as f64 / 1e3;
        let mut row = Row::new(&case.name, replies / watched.span.as_secs_f64(), "ops/s")
            .with("mean_us", sums.latencies.mean() / 1e3)
            .with("p50_us", micros(0.5))
            .with("p99_us", micros(0.99))
            .with("p999_us", micros(0.999))
            .with("max_us", sums.latencies.max() as f64 / 1e3)
            .with("errors", sums.counts.errors as f64)
            .with("client_cpu_us_per_op", watched.client_cpu.as_secs_f64() * 1e6 / replies);
        if case.reads {
            row = row.with("misses", sums.counts.nulls as f64);
        }
        if sums.lost > 0 {
            row = row.with("connections_lost", sums.lost as f64);
        }
        if let Some(bytes) = watched.server_bytes {
            row = row.with("server_resident_mib", bytes as f64 / f64::from(1 << 20));
        }
        if let Some(rate) = study.rate {
            row = row.with("rate_asked", rate as f64);
        }
        if let Some(cpu) = watched.server_cpu {
            row = row.with("server_cpu_us_per_op", cpu.as_secs_f64() * 1e6 / replies);
            // Less than a tick of CPU time says nothing.
            if !cpu.is_zero() {
                row = row.with("server_ops_per_cpu_s", replies / cpu.as_secs_f64());
            }
        }
        row
    }
}
