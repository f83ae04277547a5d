//! `ashlar bench object`: load on any server that speaks S3.
//!
//! Callers with a connection each put, get and list objects of a bucket that is made for it. What is put cannot be compressed. A get
//! whose status or length is not that of the object counts as an error, and the first error is told.

use core::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ashlar_object::s3::Method;
use hyper::body::Bytes;

use super::Options;
use super::load::{Dice, Outcome, Phase, Results, Tally, run_beside};
use super::report::{Row, line};
use crate::failure::Failure;
use crate::front::s3::client::{S3Answer, S3Connection, S3Target};
use crate::os::workers::Workers;
use crate::os::{clock, process};

/// Objects of one size have no more bytes together than this, unless there is one only.
const TOTAL_BYTES_MAX: u64 = 512 << 20;
/// Keys of a page.
const PAGE_KEYS: usize = 1_000;
/// Bodies begin at multiples of this in one stretch of chance.
const BODY_STEP: usize = 4 << 10;

/// What is measured.
#[derive(Debug)]
pub struct Study {
    /// The servers, asked in turn by different callers.
    pub targets: Vec<Arc<S3Target>>,
    /// The bucket, made if it is not there.
    pub bucket: String,
    /// Requests at a time.
    pub callers: usize,
    /// Sizes of objects, bytes.
    pub sizes: Vec<u32>,
    /// Different keys of each size, at most.
    pub objects: usize,
    /// Gets among a hundred requests of the mixed cases.
    pub get_percent: u8,
    /// Processes of the servers, if their CPU time is to be told.
    pub server_pids: Vec<u32>,
    /// Whether objects stay.
    pub keeps: bool,
}

/// What a caller does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Put,
    Get,
    Mixed,
    List,
}

impl Work {
    const fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Get => "get",
            Self::Mixed => "mixed",
            Self::List => "list",
        }
    }
}

/// Objects of one size.
#[derive(Debug, Clone)]
struct Stock {
    bucket: String,
    bytes: usize,
    keys: usize,
    /// What bodies are cut from.
    chance: Bytes,
}

impl Stock {
    fn path(&self, number: usize) -> String {
        format!("/{}/bench/{}/{number:08}", self.bucket, self.bytes)
    }

    fn body(&self, dice: &mut Dice) -> Bytes {
        let at = dice.below((self.chance.len() - self.bytes) / BODY_STEP + 1) * BODY_STEP;
        self.chance.slice(at..at + self.bytes)
    }
}

/// The first error of a case.
#[derive(Debug, Clone, Default)]
struct FirstError(Arc<Mutex<Option<String>>>);

impl FirstError {
    fn note(&self, what: impl FnOnce() -> String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(what);
    }

    fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Runs all cases that are wanted, and tells each row.
///
/// # Errors
/// No server can be asked, the bucket cannot be made, or nothing of a case succeeds.
pub async fn run_all(study: &Study, options: &Options, tell: impl Fn(&str)) -> Result<Vec<Row>, Failure> {
    let workers = Workers::start(options.workers).map_err(|error| {
        Failure::world(format!("cannot start threads: {error}"), "check the limits of this session")
    })?;
    let has_made = make_bucket(study).await?;
    let mut rows = Vec::new();
    for bytes in &study.sizes {
        measure_size(study, options, &workers, *bytes, &mut |row| {
            tell(&line(&row));
            rows.push(row);
        })
        .await?;
    }
    if has_made && !study.keeps {
        let mut connection = open(&study.targets[0]).await?;
        let _ = connection.ask(Method::Delete, &format!("/{}", study.bucket), Bytes::new(), true).await;
    }
    Ok(rows)
}

async fn measure_size(
    study: &Study,
    options: &Options,
    workers: &Workers,
    bytes: u32,
    tell: &mut impl FnMut(Row),
) -> Result<(), Failure> {
    let most = usize::try_from(TOTAL_BYTES_MAX / u64::from(bytes.max(1))).unwrap_or(usize::MAX).max(1);
    let bytes = bytes as usize;
    let chance = chance(bytes + (1 << 20));
    let stock = Stock { bucket: study.bucket.clone(), bytes, keys: study.objects.min(most), chance };
    let works =
        [Work::Put, Work::Get, Work::Mixed, Work::List].map(|work| (work, format!("{}/{}", work.name(), shape(bytes))));
    let wanted: Vec<_> = works.iter().filter(|(_, case)| options.wants(case)).collect();
    let mut is_filled = false;
    for (work, case) in &wanted {
        if *work != Work::Put && !is_filled {
            on_each(study, workers, &stock, Method::Put).await?;
            is_filled = true;
        }
        tell(measure(study, options, workers, (*work, case), &stock).await?);
    }
    if !wanted.is_empty() && !study.keeps {
        on_each(study, workers, &stock, Method::Delete).await?;
    }
    Ok(())
}

/// One case.
async fn measure(
    study: &Study,
    options: &Options,
    workers: &Workers,
    (work, case): (Work, &str),
    stock: &Stock,
) -> Result<Row, Failure> {
    let errors = FirstError::default();
    let start = |phase: &Phase, results: &Results| {
        for number in 0..study.callers {
            let caller = Caller {
                target: Arc::clone(&study.targets[number % study.targets.len()]),
                stock: stock.clone(),
                work,
                get_percent: study.get_percent,
                dice: Dice::new(number as u64 + 1),
                errors: errors.clone(),
            };
            let (tally, results) = (phase.tally(number), results.clone());
            workers.handles[number % workers.handles.len()].spawn(async move {
                // Nobody waits for it if the benchmark was ended.
                results.send(caller.run(tally).await).ok();
            });
        }
    };
    let cpu = || study.server_pids.iter().filter_map(|pid| process::cpu_time_of(*pid)).sum();
    let outcome = run_beside(options.span(), workers, cpu, start).await;
    if let Some(what) = errors.take().filter(|_| outcome.operations == 0) {
        return Err(Failure::world(
            format!("{case}: nothing succeeded: {what}"),
            "check the address, the key and the server's log",
        ));
    }
    Ok(row(study, work, case, stock, &outcome))
}

fn row(study: &Study, work: Work, case: &str, stock: &Stock, outcome: &Outcome) -> Row {
    let unit = if work == Work::List { "keys/s" } else { "ops/s" };
    let mut row = Row::new(case, outcome.rate(), unit);
    if work != Work::List {
        row = row.with("mib_per_s", outcome.rate() * stock.bytes as f64 / f64::from(1 << 20));
    }
    for (name, quantile) in [("p50_us", 0.5), ("p99_us", 0.99), ("p999_us", 0.999)] {
        row = row.with(name, outcome.quantile_us(quantile));
    }
    if !study.server_pids.is_empty() {
        row = row.with("server_cpu_us_per_op", outcome.cpu.as_secs_f64() * 1e6 / outcome.operations.max(1) as f64);
    }
    if outcome.errors > 0 { row.with("errors", outcome.errors as f64) } else { row }
}

/// One caller.
struct Caller {
    target: Arc<S3Target>,
    stock: Stock,
    work: Work,
    get_percent: u8,
    dice: Dice,
    errors: FirstError,
}

impl Caller {
    async fn run(mut self, mut tally: Tally) -> Tally {
        let mut connection = None;
        loop {
            let goes_on = match self.step(&mut connection).await {
                Ok(messages) => tally.done(messages),
                Err(what) => {
                    self.errors.note(|| what);
                    // A server that is not there is not asked a thousand times a second.
                    clock::sleep(Duration::from_millis(20)).await;
                    let goes_on = tally.failed();
                    tally.begin();
                    goes_on
                }
            };
            if !goes_on {
                return tally;
            }
        }
    }

    /// One operation: how many it counts for.
    async fn step(&mut self, connection: &mut Option<S3Connection>) -> Result<u64, String> {
        // It is put back if nothing breaks it.
        let mut open = match connection.take() {
            Some(open) => open,
            None => S3Connection::open(&self.target).await.map_err(|error| error.0)?,
        };
        let counted = match self.work {
            Work::Put => self.put(&mut open).await?,
            Work::Get => self.get(&mut open).await?,
            Work::Mixed if self.dice.below(100) < usize::from(self.get_percent) => self.get(&mut open).await?,
            Work::Mixed => self.put(&mut open).await?,
            Work::List => self.list(&mut open).await?,
        };
        *connection = Some(open);
        Ok(counted)
    }

    async fn put(&mut self, open: &mut S3Connection) -> Result<u64, String> {
        let (path, body) = (self.stock.path(self.dice.below(self.stock.keys)), self.stock.body(&mut self.dice));
        ask(open, Method::Put, &path, body, false).await?;
        Ok(1)
    }

    async fn get(&mut self, open: &mut S3Connection) -> Result<u64, String> {
        let path = self.stock.path(self.dice.below(self.stock.keys));
        let answer = ask(open, Method::Get, &path, Bytes::new(), false).await?;
        let (found, expected) = (answer.len, self.stock.bytes as u64);
        if found == expected { Ok(1) } else { Err(format!("GET {path}: {found} bytes instead of {expected}")) }
    }

    async fn list(&mut self, open: &mut S3Connection) -> Result<u64, String> {
        let (bucket, bytes) = (&self.stock.bucket, self.stock.bytes);
        let after = self.dice.below(self.stock.keys.saturating_sub(PAGE_KEYS) + 1);
        let mut path = format!("/{bucket}?list-type=2&max-keys={PAGE_KEYS}&prefix=bench%2F{bytes}%2F");
        if after > 0 {
            write!(path, "&start-after=bench%2F{bytes}%2F{:08}", after - 1).expect("memory takes text");
        }
        let answer = ask(open, Method::Get, &path, Bytes::new(), true).await?;
        let found = answer.body.windows(5).filter(|window| window == b"<Key>").count();
        let expected = PAGE_KEYS.min(self.stock.keys - after);
        if found == expected { Ok(found as u64) } else { Err(format!("{path}: {found} keys instead of {expected}")) }
    }
}

/// One request, whose answer has to be good.
async fn ask(
    connection: &mut S3Connection,
    method: Method,
    path: &str,
    body: Bytes,
    keeps: bool,
) -> Result<S3Answer, String> {
    let answer = connection.ask(method, path, body, keeps).await.map_err(|error| error.0)?;
    if (200..300).contains(&answer.status) {
        return Ok(answer);
    }
    let text = String::from_utf8_lossy(&answer.body).chars().take(300).collect::<String>();
    Err(format!("{} {path}: {} {text}", method.name(), answer.status))
}

/// Puts or deletes every object of a size, outside of what is measured.
async fn on_each(study: &Study, workers: &Workers, stock: &Stock, method: Method) -> Result<(), Failure> {
    let callers = study.callers.min(stock.keys);
    let one = |caller: usize| {
        let (target, stock) = (Arc::clone(&study.targets[caller % study.targets.len()]), stock.clone());
        async move {
            let mut dice = Dice::new(caller as u64 + 1_000_000);
            let mut connection = S3Connection::open(&target).await.map_err(|error| error.0)?;
            for number in (caller..stock.keys).step_by(callers) {
                let body = if method == Method::Put { stock.body(&mut dice) } else { Bytes::new() };
                ask(&mut connection, method, &stock.path(number), body, false).await?;
            }
            Ok::<(), String>(())
        }
    };
    let tasks: Vec<_> =
        (0..callers).map(|caller| workers.handles[caller % workers.handles.len()].spawn(one(caller))).collect();
    for task in tasks {
        let done = task.await.unwrap_or_else(|error| Err(error.to_string()));
        done.map_err(|what| Failure::world(what, "check the server's log"))?;
    }
    Ok(())
}

/// Makes the bucket. Whether it was not there before.
async fn make_bucket(study: &Study) -> Result<bool, Failure> {
    let mut connection = open(&study.targets[0]).await?;
    let path = format!("/{}", study.bucket);
    let failed = |what: String| Failure::world(what, "check the address and the key");
    let head = connection.ask(Method::Head, &path, Bytes::new(), false).await.map_err(|error| failed(error.0))?;
    if head.status == 200 {
        return Ok(false);
    }
    let made = ask(&mut connection, Method::Put, &path, Bytes::new(), true).await;
    made.map(|_| true).map_err(|what| failed(format!("the bucket cannot be made: {what}")))
}

async fn open(target: &Arc<S3Target>) -> Result<S3Connection, Failure> {
    let opened = S3Connection::open(target).await;
    opened.map_err(|error| Failure::world(error.0, "check that a server runs there, and name it with --endpoint"))
}

/// Bytes that cannot be compressed.
fn chance(len: usize) -> Bytes {
    let mut dice = Dice::new(7);
    let words = core::iter::repeat_with(|| (dice.below(usize::MAX) as u64).to_le_bytes());
    words.take(len.div_ceil(8)).flatten().collect()
}

/// A size as names of cases say it.
fn shape(bytes: usize) -> String {
    match bytes {
        0 => "0B".to_owned(),
        _ if bytes.is_multiple_of(1 << 20) => format!("{}MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{}KiB", bytes >> 10),
        _ => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_lie_within_what_they_are_cut_from() {
        let mut dice = Dice::new(1);
        for bytes in [0, 1, 4_096, 70_000] {
            let stock = Stock { bucket: "b".into(), bytes, keys: 3, chance: chance(bytes + (1 << 20)) };
            assert!((0..100).all(|_| stock.body(&mut dice).len() == bytes));
            assert!(stock.path(2).starts_with("/b/bench/") && stock.path(2).ends_with("/00000002"));
        }
    }

    #[test]
    fn sizes_are_named_by_their_unit() {
        let names = [0, 700, 4_096, 1 << 20, 3 << 20].map(shape);
        assert_eq!(names, ["0B", "700B", "4KiB", "1MiB", "3MiB"]);
    }
}
