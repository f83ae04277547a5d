//! `ashlar bench grid`: calls and streams between servers, in the shape of MinIO's published grid benchmark.
//!
//! Servers are grids in one process; payloads have 512 bytes, a stream has 10 replies and a window of one message. Operations are
//! real ones: nothing is multiplied by the number of servers. `calls` and `streams` are the same work as there: handlers are
//! served as those of the product, callers run on all threads, and each operation draws its source and its destination.
//! `inline_pinned` and `streams_pinned` are less: a caller belongs to one server and stays on the thread of its connections, and
//! handlers of calls run inline.

use std::sync::Arc;
use std::time::Duration;

use ashlar_grid::{CallOptions, PeerHandle};

use super::cluster::{Cluster, ECHO, ECHO_INLINE, ECHO_STREAM, PAYLOAD_BYTES, SINK};
use super::load::{Dice, Outcome, Results, Tally, run};
use super::report::{Row, line};
use super::{Options, memory, slow};
use crate::failure::Failure;
use crate::front::bench as rest;
use crate::os::heap;
use crate::os::runtime::OsRuntime;
use crate::os::wakes::Gathered;
use crate::os::workers::Workers;
use ashlar_node::together;

type Peers = Arc<Vec<Vec<PeerHandle<OsRuntime>>>>;

/// What every call and stream begins with.
static PAYLOAD: [u8; PAYLOAD_BYTES] = [5; PAYLOAD_BYTES];
/// Callers of the tables.
const CALLERS: [usize; 3] = [32, 256, 1_024];
/// A bulk payload, bytes.
const BULK_BYTES: usize = 8 << 20;
/// Bulk transfers that run beside small calls.
const BULK_CALLERS: usize = 4;
/// What the kernel allows for messages that nothing merges: an echo over one TCP connection a caller.
const BARE: [&str; 3] = ["bare_tcp/32", "bare_tcp/256", "bare_tcp/1024"];
/// The row of the allocations of a call.
const ALLOCATIONS: &str = "allocations/2x256";
/// Rows of two servers beside the tables.
const PAIR_CASES: [&str; 5] = [ALLOCATIONS, "long_stream/512B", "rest/2x32", "rest/2x256", "rest/2x1024"];
/// Rows of the comparison of small calls alone and beside bulk.
const BESIDE_BULK: [&str; 4] = [
    "small_calls_beside_bulk/alone",
    "small_calls_beside_bulk/beside",
    "small_calls_beside_bulk/bulk",
    "small_calls_beside_bulk/p99_ratio",
];
/// Messages of the one long stream: more than any span can take.
const LONG_STREAM_MESSAGES: u32 = u32::MAX;

/// Runs all cases that are wanted; tells each row as soon as it is there.
///
/// # Errors
/// The servers of a case could not be started.
pub async fn run_all(options: &Options, mut tell: impl FnMut(&str)) -> Result<Vec<Row>, Failure> {
    let workers = Workers::start(options.workers)
        .map_err(|error| Failure::world(format!("cannot start workers: {error}"), "raise the limits of threads"))?;
    let mut rows = Vec::new();
    let mut add = |row: Row| {
        tell(&line(&row));
        rows.push(row);
    };
    for servers in [2, 32] {
        mesh_cases(options, &workers, servers, &mut add).await?;
    }
    if BESIDE_BULK.iter().any(|case| options.wants(case)) {
        beside_bulk(options, &workers, &mut add).await?;
    }
    if memory::CASES.iter().any(|case| options.wants(case)) {
        memory::rows(options, &workers).await?.into_iter().for_each(&mut add);
    }
    if slow::cases(options).iter().any(|case| options.wants(case)) {
        slow::rows(options, &workers).await?.into_iter().for_each(&mut add);
    }
    workers.stop();
    Ok(rows)
}

/// What callers do, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Calls,
    Streams,
    InlinePinnedCalls,
    PinnedStreams,
}

impl Work {
    const ALL: [Self; 4] = [Self::Calls, Self::Streams, Self::InlinePinnedCalls, Self::PinnedStreams];

    fn case(self, servers: usize, callers: usize) -> String {
        let kind = match self {
            Self::Calls => "calls",
            Self::Streams => "streams",
            Self::InlinePinnedCalls => "inline_pinned",
            Self::PinnedStreams => "streams_pinned",
        };
        format!("{kind}/{servers}x{callers}")
    }

    const fn unit(self) -> &'static str {
        match self {
            Self::Calls | Self::InlinePinnedCalls => "ops/s",
            Self::Streams | Self::PinnedStreams => "msgs/s",
        }
    }

    /// Whether a caller belongs to one server and stays on the thread of its connections.
    const fn is_pinned(self) -> bool {
        matches!(self, Self::InlinePinnedCalls | Self::PinnedStreams)
    }

    /// One operation: how many messages were answered, 0 if it failed.
    async fn run(self, peer: &PeerHandle<OsRuntime>) -> u64 {
        let handler = match self {
            Self::Calls => ECHO,
            Self::InlinePinnedCalls => ECHO_INLINE,
            Self::Streams | Self::PinnedStreams => return one_stream(peer, &PAYLOAD).await,
        };
        let answer = peer.call_bytes(handler, &PAYLOAD, CallOptions::default()).await;
        u64::from(answer.is_ok_and(|answer| answer.len() == PAYLOAD_BYTES))
    }
}

/// The tables: calls, streams, and for two servers the single caller, the long stream and plain HTTP.
async fn mesh_cases(
    options: &Options,
    workers: &Workers,
    servers: usize,
    add: &mut impl FnMut(Row),
) -> Result<(), Failure> {
    let singles: &[usize] = if servers == 2 { &[1] } else { &[] };
    let table = Work::ALL.into_iter().flat_map(|work| {
        let singles = singles.iter().filter(move |_| work.unit() == "ops/s");
        singles.chain(&CALLERS).map(move |callers| (work, *callers))
    });
    let table: Vec<_> = table.filter(|(work, callers)| options.wants(&work.case(servers, *callers))).collect();
    let extra = PAIR_CASES.iter().chain(&BARE).any(|case| servers == 2 && options.wants(case));
    if table.is_empty() && !extra {
        return Ok(());
    }
    let cluster = Cluster::start(workers, servers).await?;
    let peers: Peers = Arc::new(cluster.peers.clone());
    for (work, callers) in table {
        let outcome = load(work, options.span(), workers, &peers, callers).await;
        add(outcome.row_with_wakes(&work.case(servers, callers), work.unit()));
    }
    if servers == 2 {
        pair_cases(options, workers, &cluster, &peers, add).await?;
    }
    cluster.stop().await;
    Ok(())
}

async fn pair_cases(
    options: &Options,
    workers: &Workers,
    cluster: &Cluster,
    peers: &Peers,
    add: &mut impl FnMut(Row),
) -> Result<(), Failure> {
    if options.wants(ALLOCATIONS) {
        add(allocations(options.span(), workers, peers).await);
    }
    if options.wants("long_stream/512B") {
        add(long_stream(options.span(), workers, peers).await.row("long_stream/512B", "msgs/s"));
    }
    let addresses: Vec<String> = cluster.servers.iter().map(|server| server.address.clone()).collect();
    for callers in CALLERS {
        let case = format!("rest/2x{callers}");
        if options.wants(&case) {
            add(over_own_connections(options.span(), workers, &addresses, callers, |home, address, tally, results| {
                rest::spawn_caller(&workers.handles[home], address, tally, results);
            })
            .await
            .row(&case, "ops/s"));
        }
    }
    for (callers, case) in CALLERS.into_iter().zip(BARE) {
        if options.wants(case) {
            add(bare(options.span(), workers, callers).await?.row(case, "ops/s"));
        }
    }
    Ok(())
}

/// An echo over bare TCP.
async fn bare(span: Duration, workers: &Workers, callers: usize) -> Result<Outcome, Failure> {
    let (mut addresses, mut listening) = (Vec::new(), Vec::new());
    for handle in &workers.handles {
        let socket = rest::bind()?;
        addresses.push(socket.address.clone());
        listening.push(rest::listen_raw(handle, socket));
    }
    let outcome = over_own_connections(span, workers, &addresses, callers, |home, address, tally, results| {
        rest::spawn_raw_caller(&workers.handles[home], address, tally, results);
    })
    .await;
    listening.iter().for_each(rest::Listening::stop);
    Ok(outcome)
}

/// Callers that each have a connection of their own, to a server on another worker where there is one.
/// `spawn` starts one on the worker of that number.
async fn over_own_connections(
    span: Duration,
    workers: &Workers,
    addresses: &[String],
    callers: usize,
    spawn: impl Fn(usize, String, Tally, Results),
) -> Outcome {
    run(span, workers, |phase, results| {
        for caller in 0..callers {
            let address = addresses[(caller + 1) % addresses.len()].clone();
            let home = caller % workers.handles.len();
            spawn(home, address, phase.tally(home), results.clone());
        }
    })
    .await
}

/// Callers that do `work` on and on.
async fn load(work: Work, span: Duration, workers: &Workers, peers: &Peers, callers: usize) -> Outcome {
    run(span, workers, |phase, results| {
        for caller in 0..callers {
            let own = caller % peers.len();
            let home = if work.is_pinned() { own } else { caller } % workers.handles.len();
            let (peers, results, mut tally) = (peers.clone(), results.clone(), phase.tally(home));
            workers.handles[home].spawn(Gathered::new(Box::pin(async move {
                let mut dice = Dice::new(caller as u64);
                tally.begin();
                loop {
                    let source = if work.is_pinned() { own } else { dice.below(peers.len()) };
                    let peer = &peers[source][dice.below(peers[source].len())];
                    let count = work.run(peer).await;
                    if !(if count > 0 { tally.done(count) } else { tally.failed() }) {
                        break;
                    }
                }
                // The receiver waits for every caller.
                let _ = results.send(tally);
            })));
        }
    })
    .await
}

/// Replies of one stream with a window of one message; 0 if it failed.
async fn one_stream(peer: &PeerHandle<OsRuntime>, initial: &[u8]) -> u64 {
    let options = CallOptions { window: (1, 1), ..CallOptions::default() };
    let Ok(mut stream) = peer.open_stream(ECHO_STREAM, initial, options).await else { return 0 };
    let mut count = 0;
    loop {
        match stream.receiver.receive().await {
            Ok(Some(message)) if message.len() == PAYLOAD_BYTES => count += 1,
            Ok(None) => return count,
            Ok(Some(_)) | Err(_) => return 0,
        }
    }
}

/// Heap allocations per call, with 256 callers, both ends together.
async fn allocations(span: Duration, workers: &Workers, peers: &Peers) -> Row {
    heap::count(true);
    let outcome = load(Work::Calls, span, workers, peers, 256).await;
    heap::count(false);
    Row::new(ALLOCATIONS, outcome.allocations as f64 / outcome.operations.max(1) as f64, "per call")
}

async fn long_stream(span: Duration, workers: &Workers, peers: &Peers) -> Outcome {
    run(span, workers, |phase, results| {
        let (peers, results, mut tally) = (peers.clone(), results.clone(), phase.tally(0));
        workers.handles[0].spawn(async move {
            let mut initial = vec![5; PAYLOAD_BYTES];
            initial.extend_from_slice(&LONG_STREAM_MESSAGES.to_be_bytes());
            let options = CallOptions::within(Duration::from_secs(600));
            if let Ok(mut stream) = peers[0][0].open_stream(ECHO_STREAM, &initial, options).await {
                while let Ok(Some(_)) = stream.receiver.receive().await {
                    let mut messages = 1;
                    while stream.receiver.next_ready().is_some() {
                        messages += 1;
                    }
                    if !tally.done(messages) {
                        break;
                    }
                }
            }
            // The receiver waits for every caller.
            let _ = results.send(tally);
        });
    })
    .await
}

/// One small caller alone, then beside large transfers of both directions.
async fn beside_bulk(options: &Options, workers: &Workers, add: &mut impl FnMut(Row)) -> Result<(), Failure> {
    let cluster = Cluster::start(workers, 2).await?;
    let peers: Peers = Arc::new(cluster.peers.clone());
    let one = || load(Work::InlinePinnedCalls, options.span(), workers, &peers, 1);
    let alone = one().await;
    let bulk = bulk_load(options.span(), workers, &peers);
    let (bulk, beside) = together::both(bulk, one()).await;
    let [alone_case, beside_case, bulk_case, ratio_case] = BESIDE_BULK;
    add(alone.row(alone_case, "ops/s"));
    add(beside.row(beside_case, "ops/s"));
    add(Row::new(bulk_case, bulk.rate() * BULK_BYTES as f64 / 1e6, "MB/s"));
    add(Row::new(ratio_case, beside.quantile_us(0.99) / alone.quantile_us(0.99), "x"));
    cluster.stop().await;
    Ok(())
}

async fn bulk_load(span: Duration, workers: &Workers, peers: &Peers) -> Outcome {
    run(span, workers, |phase, results| {
        for _ in 0..BULK_CALLERS {
            let (peers, results, mut tally) = (peers.clone(), results.clone(), phase.tally(0));
            workers.handles[0].spawn(async move {
                let payload = Arc::new(vec![5; BULK_BYTES]);
                tally.begin();
                loop {
                    let answer = peers[0][0].call_large(SINK, payload.clone(), CallOptions::default()).await;
                    if !(if answer.is_ok() { tally.done(1) } else { tally.failed() }) {
                        break;
                    }
                }
                // The receiver waits for every caller.
                let _ = results.send(tally);
            });
        }
    })
    .await
}
