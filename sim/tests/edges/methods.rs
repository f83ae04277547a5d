//! What the servers of these tests answer, and what they remember of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ashlar_grid::error::Refusal;
use ashlar_grid::handler::{HandlerId, Handlers, Method, Packed, RegisteredTwice};
use ashlar_grid::seam::{Lane, Runtime as _};
use ashlar_grid::stream::ServerStream;
use ashlar_sim::SimRuntime;

/// Answers with the request.
pub(crate) const ECHO: HandlerId = HandlerId::new(1);
/// A server's own view of the mesh.
pub(crate) const STATUS: HandlerId = HandlerId::new(3);
/// Takes a payload and answers its length.
pub(crate) const SINK: HandlerId = HandlerId::new(5);
/// Runs counted by request id.
pub(crate) const COUNTED: HandlerId = HandlerId::new(7);
/// A stream with a pattern that its reader checks.
pub(crate) const PATTERN: HandlerId = HandlerId::new(8);

/// Answers with the request, on the connection's own task.
pub(crate) struct Echo;

impl Method for Echo {
    const ID: HandlerId = HandlerId::new(1);
    type Request = Vec<u8>;
    type Reply = Vec<u8>;
}

/// Answers the length of the request.
pub(crate) struct Sink;

impl Method for Sink {
    const ID: HandlerId = HandlerId::new(5);
    type Request = Vec<u8>;
    type Reply = Packed<u64>;
}

/// Gives back as many bytes as asked for.
pub(crate) struct Source;

impl Method for Source {
    const ID: HandlerId = HandlerId::new(2);
    type Request = Packed<u64>;
    type Reply = Vec<u8>;
}

/// The same handler, called as one whose answers are large.
pub(crate) struct LargeSource;

impl Method for LargeSource {
    const ID: HandlerId = HandlerId::new(2);
    const LANE: Lane = Lane::Bulk;
    type Request = Packed<u64>;
    type Reply = Vec<u8>;
}

/// Runs for some milliseconds, then answers; each run is remembered by the request's number.
pub(crate) struct Counted;

impl Method for Counted {
    const ID: HandlerId = HandlerId::new(7);
    type Request = Packed<(u64, u64)>;
    type Reply = Packed<u64>;
}

/// The same handler, called as one that may run twice.
pub(crate) struct Idempotent;

impl Method for Idempotent {
    const ID: HandlerId = HandlerId::new(7);
    const IDEMPOTENT: bool = true;
    type Request = Packed<(u64, u64)>;
    type Reply = Packed<u64>;
}

/// Holds its request for ten milliseconds times its first byte, then answers its length.
pub(crate) struct Slow;

impl Method for Slow {
    const ID: HandlerId = HandlerId::new(4);
    type Request = Vec<u8>;
    type Reply = Packed<u64>;
}

/// Always refuses.
pub(crate) struct Busy;

impl Method for Busy {
    const ID: HandlerId = HandlerId::new(6);
    type Request = Vec<u8>;
    type Reply = ();
}

/// Nobody answers this.
pub(crate) struct Unknown;

impl Method for Unknown {
    const ID: HandlerId = HandlerId::new(3);
    type Request = Vec<u8>;
    type Reply = ();
}

/// What one life of a server has done.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Done {
    /// Handlers that began, that run now, and that came to their end.
    pub(crate) started: u64,
    pub(crate) running: u64,
    pub(crate) finished: u64,
    /// Bytes of requests and stream messages that handlers were given.
    pub(crate) bytes: u64,
}

/// What a server has done, and over all its lives how often each request ran.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    done: Arc<Mutex<Done>>,
    runs: Arc<Mutex<BTreeMap<u64, u64>>>,
}

impl Tally {
    pub(crate) fn done(&self) -> Done {
        *self.lock_done()
    }

    fn lock_done(&self) -> MutexGuard<'_, Done> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often a request ran.
    pub(crate) fn runs(&self, number: u64) -> u64 {
        self.all_runs().get(&number).copied().unwrap_or(0)
    }

    pub(crate) fn all_runs(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, bytes: usize) -> Entered {
        let mut done = self.lock_done();
        done.started += 1;
        done.running += 1;
        done.bytes += bytes as u64;
        Entered { tally: self.clone(), finished: false }
    }
}

/// A handler that runs; dropped with its future when its caller leaves.
struct Entered {
    tally: Tally,
    finished: bool,
}

impl Entered {
    fn finish(mut self) {
        self.finished = true;
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut done = self.tally.lock_done();
        done.running -= 1;
        done.finished += u64::from(self.finished);
    }
}

/// Message `number` of a stream, which tells of any that is lost, doubled or changed.
pub(crate) fn message(number: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number as usize * 31 + at * 7) as u8).collect()
}

/// What the handler of [`PATTERN`] is to do.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pattern {
    /// Send that many messages of that length.
    Down(u32, u32),
    /// Take messages until the end, checking each, then answer how many there were.
    Up(u32),
    /// Send messages of that length for ever.
    Flood(u32),
    /// Neither send nor take; wait for the caller to leave.
    Hold,
    /// Refuse at once.
    Refuse,
}

impl Pattern {
    pub(crate) fn encode(self) -> Vec<u8> {
        let (kind, a, b) = match self {
            Self::Down(count, len) => (0_u8, count, len),
            Self::Up(len) => (1, len, 0),
            Self::Flood(len) => (2, len, 0),
            Self::Hold => (3, 0, 0),
            Self::Refuse => (4, 0, 0),
        };
        let mut bytes = vec![kind];
        bytes.extend(a.to_be_bytes());
        bytes.extend(b.to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let (a, b) = (number(1)?, number(5)?);
        Some(match bytes[0] {
            0 => Self::Down(a, b),
            1 => Self::Up(a),
            2 => Self::Flood(a),
            3 => Self::Hold,
            _ => Self::Refuse,
        })
    }
}

async fn pattern(runtime: SimRuntime, initial: Vec<u8>, mut stream: ServerStream) -> Result<(), Refusal> {
    let ended = |error: ashlar_grid::error::StreamError| Refusal::new(1, error.to_string());
    match Pattern::decode(&initial).ok_or_else(|| Refusal::new(2, "no pattern"))? {
        Pattern::Down(count, len) => {
            for number in 0..u64::from(count) {
                stream.sender.send(&message(number, len as usize)).await.map_err(ended)?;
            }
        }
        Pattern::Up(len) => {
            let mut number = 0;
            while let Some(received) = stream.receiver.receive().await.map_err(ended)? {
                if received != message(number, len as usize) {
                    return Err(Refusal::new(3, format!("message {number} is not what was sent")));
                }
                number += 1;
            }
            stream.sender.send(&number.to_be_bytes()).await.map_err(ended)?;
        }
        Pattern::Flood(len) => {
            for number in 0.. {
                stream.sender.send(&message(number, len as usize)).await.map_err(ended)?;
            }
        }
        Pattern::Hold => runtime.sleep_until(runtime.now() + Duration::from_secs(100_000)).await,
        Pattern::Refuse => return Err(Refusal::new(4, "not this one")),
    }
    Ok(())
}

/// The handlers of one life of a server.
pub(crate) fn handlers(runtime: &SimRuntime, tally: &Tally) -> Result<Handlers, RegisteredTwice> {
    let (sink, counted, source, patterns) = (tally.clone(), tally.clone(), tally.clone(), tally.clone());
    let (counted_runtime, slow_runtime, pattern_runtime) = (runtime.clone(), runtime.clone(), runtime.clone());
    Handlers::new()
        .inline::<Echo>(|_, request| Ok(request))?
        .serve::<Busy, _>(|_, _| core::future::ready(Err(Refusal::new(7, "busy"))))?
        .serve::<Sink, _>(move |_, request| {
            let entered = sink.enter(request.len());
            async move {
                entered.finish();
                Ok(Packed(request.len() as u64))
            }
        })?
        .serve::<Source, _>(move |_, Packed(len)| {
            let entered = source.enter(8);
            async move {
                entered.finish();
                Ok(message(len, len as usize))
            }
        })?
        .serve::<Counted, _>(move |_, Packed((number, delay_ms))| {
            let entered = counted.enter(16);
            *counted.all_runs().entry(number).or_default() += 1;
            let sleep = counted_runtime.sleep_until(counted_runtime.now() + Duration::from_millis(delay_ms));
            async move {
                sleep.await;
                entered.finish();
                Ok(Packed(number))
            }
        })?
        .serve::<Slow, _>(move |_, request| {
            let pause = Duration::from_millis(10 * u64::from(request.first().copied().unwrap_or(0)));
            let sleep = slow_runtime.sleep_until(slow_runtime.now() + pause);
            async move {
                sleep.await;
                Ok(Packed(request.len() as u64))
            }
        })?
        .stream(PATTERN, move |_, initial, stream| {
            let entered = patterns.enter(initial.len());
            let work = pattern(pattern_runtime.clone(), initial, stream);
            async move {
                let result = work.await;
                entered.finish();
                result
            }
        })
}
