//! Metrics in Prometheus' text format, made from the same status that people see.

mod bus;
mod disks;
mod keyvalue;
mod objects;
mod page;

use ashlar_node::status::{PeerView, ServerStatus};

use super::Front;
use crate::os::process::{self, ProcessFacts};

pub(super) use page::Kind;
pub use page::{Page, Source, Telling};

/// All metrics of a server: its own, then those of its services in turn.
pub(super) async fn text(front: &Front) -> String {
    let mut page = Page::default();
    let status = front.node.status().await;
    server(&mut page, &status, process::facts(), front.connections());
    bus::bus(&mut page, &status.bus);
    grid(&mut page, &status);
    peers(&mut page, &status);
    for source in front.sources() {
        source.tell(&mut page).await;
    }
    page.into_text()
}

#[allow(clippy::cast_precision_loss, reason = "a number of seconds needs no 53 bits")]
fn server(page: &mut Page, status: &ServerStatus, process: ProcessFacts, connections: usize) {
    page.metric("ashlar_info", Kind::Gauge, "Who this is; always 1.");
    let labels = [("server", status.server.as_str()), ("cluster", &status.cluster), ("version", &status.version)];
    page.sample("ashlar_info", &labels, 1);
    page.single("ashlar_uptime_seconds", Kind::Gauge, "Since the start.", status.uptime_ms as f64 / 1e3);
    page.single("ashlar_incarnation", Kind::Gauge, "Which of its lives this is.", status.incarnation);
    page.single("ashlar_ready", Kind::Gauge, "1 if the server takes part.", u8::from(status.ready));
    page.single("ashlar_connections", Kind::Gauge, "Open connections of the HTTP listener.", connections);
    page.single("process_resident_memory_bytes", Kind::Gauge, "Memory in use.", process.resident_bytes);
    page.single("process_open_fds", Kind::Gauge, "Open descriptors.", process.descriptors);
    page.single("process_threads", Kind::Gauge, "Threads.", process.threads);
}

fn grid(page: &mut Page, status: &ServerStatus) {
    let grid = status.grid;
    page.single("ashlar_grid_connects_total", Kind::Counter, "Connections made.", grid.connects);
    page.single("ashlar_grid_losses_total", Kind::Counter, "Connections lost unexpectedly.", grid.losses);
    page.single("ashlar_grid_dials_failed_total", Kind::Counter, "Dials that failed.", grid.dials_failed);
    let name = "ashlar_grid_rejected_total";
    page.metric(name, Kind::Counter, "Connections from outside that were refused.");
    for (reason, count) in [
        ("timeout", grid.rejected_timeout),
        ("malformed", grid.rejected_malformed),
        ("wrong_cluster", grid.rejected_wrong_cluster),
        ("wrong_version", grid.rejected_wrong_version),
        ("unauthenticated", grid.rejected_unauthenticated),
        ("other", grid.rejected_other),
    ] {
        page.sample(name, &[("reason", reason)], count);
    }
}

fn per_peer<V: core::fmt::Display>(
    page: &mut Page,
    status: &ServerStatus,
    (name, kind, help): (&str, Kind, &str),
    value: impl Fn(&PeerView) -> Option<V>,
) {
    page.metric(name, kind, help);
    for peer in &status.peers {
        if let Some(value) = value(peer) {
            let server = peer.server.as_deref().unwrap_or("unknown");
            page.sample(name, &[("peer", server), ("address", &peer.address)], value);
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "a round trip needs no 53 bits")]
fn peers(page: &mut Page, status: &ServerStatus) {
    let gauge = |name, help| (name, Kind::Gauge, help);
    let counter = |name, help| (name, Kind::Counter, help);
    per_peer(page, status, gauge("ashlar_peer_up", "1 if connected."), |peer| Some(u8::from(peer.is_connected())));
    per_peer(page, status, gauge("ashlar_peer_round_trip_seconds", "Smoothed round trip."), |peer| {
        peer.round_trip_us.map(|micros| micros as f64 / 1e6)
    });
    per_peer(page, status, counter("ashlar_peer_received_bytes_total", "Received."), |peer| Some(peer.bytes_in));
    per_peer(page, status, counter("ashlar_peer_sent_bytes_total", "Sent."), |peer| Some(peer.bytes_out));
    per_peer(page, status, counter("ashlar_peer_connects_total", "Connections made."), |peer| Some(peer.connects));
    per_peer(page, status, gauge("ashlar_peer_calls_in_flight", "Calls that wait for an answer."), |peer| {
        Some(peer.calls_in_flight)
    });
    per_peer(page, status, gauge("ashlar_peer_queued_bytes", "Waiting to be written."), |peer| Some(peer.bytes_queued));
    per_peer(page, status, gauge("ashlar_peer_breaker_open", "1 if calls fail at once."), |peer| {
        Some(u8::from(peer.breaker_open))
    });
}
