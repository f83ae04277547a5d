//! One thread's connections: batches of requests out, replies counted, each reply's latency kept.
//!
//! Without a rate, a connection sends its next batch when the last reply of the one before has come. With a rate, batches are
//! due at fixed times whatever the server does, and latency counts from when a batch was due: a server that stalls is charged
//! for every request that could not be sent meanwhile (no coordinated omission).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::ErrorKind;
use std::ops::Range;
use std::time::Duration;

use ashlar_wire::time::Instant;
use hdrhistogram::Histogram;

use super::cluster::Primary;
use super::control::{Control, Phase};
use super::login::Login;
use super::replies::{Counts, Scanner};
use super::request::{Chooser, Template};
use crate::failure::Failure;
use crate::os::clock;
use crate::os::poll::{Poller, Stream};

/// Room for replies that one read takes, bytes; one buffer a thread.
const INPUT_BYTES: usize = 256 << 10;
/// How long a thread sleeps at most before it looks whether it is over.
const LOOK: Duration = Duration::from_millis(20);

/// What is sent.
#[derive(Debug, Clone)]
pub struct Mix {
    /// Every request, or every one that is not the other.
    pub usual: Template,
    /// The other request, and how many of a hundred it is.
    pub other: Option<(Template, u8)>,
}

/// The part of a load that one thread takes.
#[derive(Debug)]
pub struct Part<'a> {
    /// Where to: connections go to them in turn.
    pub primaries: &'a [Primary],
    /// What is said first.
    pub login: &'a Login,
    /// What is sent.
    pub mix: &'a Mix,
    /// Requests of a batch.
    pub pipeline: usize,
    /// Connections of this thread, of those of all threads.
    pub connections: Range<usize>,
    /// From one batch of a connection to its next; `None` is as fast as replies come.
    pub interval: Option<Duration>,
    /// Which keys, for each primary.
    pub choosers: Vec<Chooser>,
}

/// What one thread saw while it counted.
#[derive(Debug)]
pub struct Sums {
    /// Replies that came.
    pub counts: Counts,
    /// Connections that the server ended.
    pub lost: u64,
    /// Nanoseconds, one for each reply.
    pub latencies: Histogram<u64>,
    /// The text of the first error reply.
    pub first_error: Option<String>,
}

impl Default for Sums {
    fn default() -> Self {
        // 0.1 us to a minute, to a thousandth.
        let latencies = Histogram::new_with_bounds(100, 60_000_000_000, 3).expect("bounds and precision are valid");
        Self { counts: Counts::default(), lost: 0, latencies, first_error: None }
    }
}

impl Sums {
    /// Adds what another thread saw.
    pub fn add(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        self.lost += other.lost;
        self.latencies.add(&other.latencies).expect("all have the same bounds");
        self.first_error = self.first_error.take().or_else(|| other.first_error.clone());
    }
}

struct Connection {
    stream: Stream,
    /// To which of the primaries.
    primary: usize,
    batch: Vec<u8>,
    sent: usize,
    outstanding: u64,
    /// When the batch was sent, or when it was due.
    began: Instant,
    due: Instant,
    /// Sent while it counts.
    is_measured: bool,
    scanner: Scanner,
    is_lost: bool,
}

/// Runs one thread's part until the load is over.
///
/// # Errors
/// The server cannot be reached, does not speak RESP, or ended all connections.
pub fn drive(part: Part<'_>, control: &Control) -> Result<Sums, Failure> {
    let refused = |error: std::io::Error| {
        Failure::world(format!("cannot watch a connection: {error}"), "check the limits of this user (ulimit -a)")
    };
    let poller = Poller::new().map_err(refused)?;
    let mut connections = Vec::with_capacity(part.connections.len());
    for (number, overall) in part.connections.clone().enumerate() {
        let primary = overall % part.primaries.len();
        let stream = part.login.open(&part.primaries[primary].target)?;
        stream.make_nonblocking().and_then(|()| poller.watch(&stream, number)).map_err(refused)?;
        connections.push(Connection {
            stream,
            primary,
            batch: Vec::new(),
            sent: 0,
            outstanding: 0,
            began: Instant::ORIGIN,
            due: Instant::ORIGIN,
            is_measured: false,
            scanner: Scanner::default(),
            is_lost: false,
        });
    }
    let mut driver = Driver { part, control, connections, waiting: BinaryHeap::new(), sums: Sums::default() };
    control.ready();
    driver.run(poller)?;
    for connection in &driver.connections {
        let error = connection.scanner.first_error().map(str::to_owned);
        driver.sums.first_error = driver.sums.first_error.or(error);
    }
    Ok(driver.sums)
}

struct Driver<'a> {
    part: Part<'a>,
    control: &'a Control,
    connections: Vec<Connection>,
    /// Connections that have nothing to do before a time.
    waiting: BinaryHeap<Reverse<(Instant, usize)>>,
    sums: Sums,
}

impl Driver<'_> {
    fn run(&mut self, mut poller: Poller) -> Result<(), Failure> {
        let (mut ready, mut input) = (Vec::new(), vec![0; INPUT_BYTES]);
        self.control.wait_for_start();
        self.start();
        loop {
            let phase = self.control.phase();
            if phase == Phase::Over || self.is_done() {
                return Ok(());
            }
            let patience = match self.waiting.peek() {
                Some(Reverse((due, _))) => due.saturating_since(clock::now()).min(LOOK),
                None => LOOK,
            };
            poller.wait(patience, &mut ready).map_err(|error| {
                Failure::world(format!("the operating system refused to wait: {error}"), "try again")
            })?;
            let before = self.sums.counts.replies;
            for &number in &ready {
                self.handle_ready(number, phase, &mut input)?;
            }
            self.send_due();
            self.control.add(self.sums.counts.replies - before);
        }
    }

    /// Sends the first batches: all at once, or spread over the first interval.
    fn start(&mut self) {
        let (now, count) = (clock::now(), self.connections.len().max(1));
        for number in 0..self.connections.len() {
            match self.part.interval {
                None => self.begin_batch(number, now),
                Some(interval) => {
                    let due = now + interval.mul_f64(number as f64 / count as f64);
                    self.connections[number].due = due;
                    self.waiting.push(Reverse((due, number)));
                }
            }
        }
    }

    /// Whether as many requests as were asked for have been sent and answered.
    fn is_done(&self) -> bool {
        self.control.is_spent() && self.connections.iter().all(|connection| connection.outstanding == 0)
    }

    fn send_due(&mut self) {
        while let Some(&Reverse((due, number))) = self.waiting.peek() {
            if due > clock::now() {
                return;
            }
            self.waiting.pop();
            self.begin_batch(number, due);
        }
    }

    fn begin_batch(&mut self, number: usize, began: Instant) {
        let connection = &mut self.connections[number];
        let is_measured = self.control.phase() == Phase::Measuring;
        let requests = if is_measured { self.control.claim(self.part.pipeline) } else { self.part.pipeline };
        if requests == 0 || connection.is_lost {
            return;
        }
        connection.batch.clear();
        connection.sent = 0;
        let chooser = &mut self.part.choosers[connection.primary];
        for _ in 0..requests {
            let template = match &self.part.mix.other {
                Some((other, percent)) if chooser.is_one_of(*percent) => other,
                _ => &self.part.mix.usual,
            };
            template.append(chooser, &mut connection.batch);
        }
        connection.outstanding = requests as u64;
        (connection.began, connection.is_measured) = (began, is_measured);
        if !connection.write() {
            connection.outstanding = 0;
            self.sums.lost += 1;
        }
    }

    fn handle_ready(&mut self, number: usize, phase: Phase, input: &mut [u8]) -> Result<(), Failure> {
        let connection = &mut self.connections[number];
        let mut counts = Counts::default();
        let was_lost = connection.is_lost;
        let is_alive = !was_lost && connection.write() && connection.read(input, &mut counts)?;
        if !is_alive {
            self.sums.lost += u64::from(!was_lost);
            (connection.is_lost, connection.outstanding) = (true, 0);
            let target = &self.part.primaries[connection.primary].target;
            return if self.connections.iter().all(|connection| connection.is_lost) {
                Err(Failure::world(
                    format!("{target} ended all connections"),
                    "look at the server's log; it may have stopped, or allow fewer clients",
                ))
            } else {
                Ok(())
            };
        }
        if counts.replies == 0 {
            return Ok(());
        }
        connection.outstanding = connection.outstanding.checked_sub(counts.replies).ok_or_else(|| {
            Failure::usage("there are more replies than requests", "choose a command that has one reply")
        })?;
        let now = clock::now();
        let is_counted = if self.control.is_bounded() { connection.is_measured } else { phase == Phase::Measuring };
        if is_counted {
            let nanos = u64::try_from(now.saturating_since(connection.began).as_nanos()).unwrap_or(u64::MAX);
            let nanos = nanos.clamp(self.sums.latencies.low(), self.sums.latencies.high());
            self.sums.latencies.saturating_record_n(nanos, counts.replies);
            self.sums.counts.add(&counts);
        }
        if connection.outstanding == 0 {
            self.go_on(number, now);
        }
        Ok(())
    }

    /// The last reply has come: the next batch, now or when it is due.
    fn go_on(&mut self, number: usize, now: Instant) {
        let Some(interval) = self.part.interval else { return self.begin_batch(number, now) };
        let connection = &mut self.connections[number];
        connection.due = connection.due + interval;
        self.waiting.push(Reverse((connection.due, number)));
    }
}

impl Connection {
    /// Writes as much as the kernel takes; whether the connection lives.
    fn write(&mut self) -> bool {
        while self.sent < self.batch.len() {
            match self.stream.write(&self.batch[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    self.is_lost = true;
                    return false;
                }
            }
        }
        true
    }

    /// Reads all that is there; whether the connection lives.
    fn read(&mut self, input: &mut [u8], counts: &mut Counts) -> Result<bool, Failure> {
        loop {
            match self.stream.read(input) {
                Ok(0) => return Ok(false),
                Ok(count) => {
                    self.scanner.scan(&input[..count], counts).map_err(|_| super::login::no_resp())?;
                    if count < input.len() {
                        return Ok(true);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Ok(false),
            }
        }
    }
}
