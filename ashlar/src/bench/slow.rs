//! What a slow link does to a backlog and to one large message: nothing but take time.

use std::time::Duration;

use ashlar_grid::CallOptions;

use super::Options;
use super::cluster::{Cluster, PAYLOAD_BYTES, SINK};
use super::report::Row;
use crate::failure::Failure;
use crate::os::clock;
use crate::os::throttle::Throttle;
use crate::os::workers::Workers;

/// Calls of the backlog, and MiB of the large message.
const fn sizes(options: &Options) -> (usize, usize) {
    if options.quick { (4_000, 4) } else { (60_000, 16) }
}

/// The rows, in their order.
#[must_use]
pub fn cases(options: &Options) -> [String; 2] {
    let (calls, mib) = sizes(options);
    [format!("slow_link/1MiBps/{calls}_calls"), format!("slow_link/2MiBps/{mib}MiB_message")]
}

/// The slow-link table.
///
/// # Errors
/// The servers could not be started.
pub async fn rows(options: &Options, workers: &Workers) -> Result<Vec<Row>, Failure> {
    let (calls, mib) = sizes(options);
    let [backlog, message] = cases(options);
    let (cluster, links) = Cluster::start_slow(workers, 1 << 20).await?;
    let mut rows = Vec::new();
    rows.push(measure(workers, &cluster, backlog, calls, PAYLOAD_BYTES).await);
    links.iter().for_each(|link| link.set_rate(2 << 20));
    rows.push(measure(workers, &cluster, message, 1, mib << 20).await);
    cluster.stop().await;
    links.iter().for_each(Throttle::stop);
    Ok(rows)
}

/// Starts `calls` calls of `bytes` bytes at once and waits for all of them.
async fn measure(workers: &Workers, cluster: &Cluster, case: String, calls: usize, bytes: usize) -> Row {
    let losses = || cluster.servers.iter().map(|server| server.grid.counters().losses).sum::<u64>();
    let (began, lost_before) = (clock::now(), losses());
    let (sender, results) = std::sync::mpsc::channel();
    for _ in 0..calls {
        let (peer, sender) = (cluster.peers[0][0].clone(), sender.clone());
        workers.handles[0].spawn(async move {
            let options = CallOptions::within(Duration::from_secs(300));
            let answer = peer.call_bytes(SINK, &vec![5; bytes], options).await;
            // The receiver waits for every caller.
            let _ = sender.send(answer.is_ok());
        });
    }
    drop(sender);
    let mut failed = 0;
    loop {
        match results.try_recv() {
            Ok(ok) => failed += usize::from(!ok),
            Err(std::sync::mpsc::TryRecvError::Empty) => clock::sleep(Duration::from_millis(5)).await,
            Err(std::sync::mpsc::TryRecvError::Disconnected) => break,
        }
    }
    let seconds = clock::now().saturating_since(began).as_secs_f64();
    Row::new(case, seconds, "s").with("failed", failed as f64).with("connections_lost", (losses() - lost_before) as f64)
}
