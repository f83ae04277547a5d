//! Heap bytes that an idle peer and an idle stream take, both ends counted and halved.

use std::sync::Arc;
use std::time::Duration;

use ashlar_grid::CallOptions;

use super::Options;
use super::cluster::{Cluster, ECHO, PAYLOAD_BYTES, SINK_STREAM};
use super::report::Row;
use crate::failure::Failure;
use crate::os::workers::Workers;
use crate::os::{clock, heap};

/// The rows, in their order.
pub const CASES: [&str; 2] = ["memory/idle_peer", "memory/idle_stream"];
/// Streams that are kept open.
const STREAMS: usize = 1_000;
/// Calls on each connection before it idles: buffers that stay would show.
const CALLS: usize = 100;
/// After this span of idleness buffers have been given back.
const IDLE_SPAN: Duration = Duration::from_secs(4);

/// Bytes per idle peer after traffic, and per idle stream.
///
/// # Errors
/// The servers could not be started.
pub async fn rows(options: &Options, workers: &Workers) -> Result<Vec<Row>, Failure> {
    let servers = if options.quick { 12 } else { 32 };
    heap::follow(true);
    let lonely = {
        let before = heap::counts().live_bytes;
        let cluster = Cluster::start(workers, 1).await?;
        let bytes = heap::counts().live_bytes - before;
        cluster.stop().await;
        bytes
    };
    let before = heap::counts().live_bytes;
    let cluster = Cluster::start(workers, servers).await?;
    traffic(workers, &cluster).await;
    clock::sleep(IDLE_SPAN).await;
    let with_peers = heap::counts().live_bytes;
    let ends = servers * (servers - 1);
    let per_peer = (with_peers - before - lonely * signed(servers)) / signed(ends);
    let per_stream = idle_streams(workers, &cluster).await;
    cluster.stop().await;
    heap::follow(false);
    Ok(vec![
        Row::new(CASES[0], per_peer as f64 / 1024.0, "KiB").with("peers", ends as f64),
        Row::new(CASES[1], per_stream as f64 / 1024.0, "KiB").with("streams", STREAMS as f64),
    ])
}

fn signed(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Some calls over every connection.
async fn traffic(workers: &Workers, cluster: &Cluster) {
    let (sender, done) = std::sync::mpsc::channel::<()>();
    for (number, peers) in cluster.peers.iter().enumerate() {
        let (peers, sender) = (peers.clone(), sender.clone());
        workers.handles[number % workers.handles.len()].spawn(async move {
            for peer in &peers {
                for _ in 0..CALLS {
                    // Memory is what is looked at here; failures would show in every other case.
                    let _ = peer.call_bytes(ECHO, &[5; PAYLOAD_BYTES], CallOptions::default()).await;
                }
            }
            drop(sender);
        });
    }
    drop(sender);
    while !matches!(done.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected)) {
        clock::sleep(Duration::from_millis(5)).await;
    }
}

/// Opens streams whose handlers wait for messages, lets them idle, and says what one end takes.
async fn idle_streams(workers: &Workers, cluster: &Cluster) -> i64 {
    let peer = cluster.peers[0][0].clone();
    let before = heap::counts().live_bytes;
    let (sender, opened) = std::sync::mpsc::channel();
    let release = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let waiting = release.clone();
    workers.handles[0].spawn(async move {
        let options = CallOptions::within(Duration::from_secs(600));
        let mut streams = Vec::with_capacity(STREAMS);
        for _ in 0..STREAMS {
            streams.extend(peer.open_stream(SINK_STREAM, &[], options).await.ok());
        }
        // The receiver waits for it.
        let _ = sender.send(streams.len());
        while !waiting.load(std::sync::atomic::Ordering::Relaxed) {
            clock::sleep(Duration::from_millis(5)).await;
        }
    });
    let count = loop {
        match opened.try_recv() {
            Ok(count) => break count,
            Err(_) => clock::sleep(Duration::from_millis(5)).await,
        }
    };
    clock::sleep(Duration::from_millis(500)).await;
    let bytes = heap::counts().live_bytes - before;
    release.store(true, std::sync::atomic::Ordering::Relaxed);
    // Two ends, of which one has the handler's task as well.
    bytes / signed(count.max(1)) / 2
}
