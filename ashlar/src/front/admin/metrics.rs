//! Metrics in Prometheus' text format, made from the same status that people see.

mod bus;

use core::fmt::Write as _;

use crate::node::status::{PeerView, ServerStatus};
use crate::os::process::ProcessFacts;

/// One page of metrics.
struct Page(String);

/// How a metric behaves.
#[derive(Clone, Copy)]
enum Kind {
    /// Rises only, until the process ends.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A sum and a count of spans, both rise only.
    Summary,
}

impl Page {
    /// Starts a metric: all its samples follow.
    fn metric(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Summary => "summary",
        };
        writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}").expect("writing to a String cannot fail");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl core::fmt::Display) {
        self.0.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            self.0.push(if index == 0 { '{' } else { ',' });
            write!(self.0, "{label}=\"").expect("writing to a String cannot fail");
            self.escaped(text);
            self.0.push('"');
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        writeln!(self.0, " {value}").expect("writing to a String cannot fail");
    }

    fn escaped(&mut self, text: &str) {
        for letter in text.chars() {
            match letter {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                other => self.0.push(other),
            }
        }
    }

    fn single(&mut self, name: &str, kind: Kind, help: &str, value: impl core::fmt::Display) {
        self.metric(name, kind, help);
        self.sample(name, &[], value);
    }

    fn per_peer<V: core::fmt::Display>(
        &mut self,
        status: &ServerStatus,
        (name, kind, help): (&str, Kind, &str),
        value: impl Fn(&PeerView) -> Option<V>,
    ) {
        self.metric(name, kind, help);
        for peer in &status.peers {
            if let Some(value) = value(peer) {
                let server = peer.server.as_deref().unwrap_or("unknown");
                self.sample(name, &[("peer", server), ("address", &peer.address)], value);
            }
        }
    }
}

/// All metrics of a server.
#[must_use]
pub fn text(status: &ServerStatus, process: ProcessFacts, connections: usize) -> String {
    let mut page = Page(String::new());
    server(&mut page, status, process, connections);
    bus::bus(&mut page, &status.bus);
    grid(&mut page, status);
    peers(&mut page, status);
    page.0
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

#[allow(clippy::cast_precision_loss, reason = "a round trip needs no 53 bits")]
fn peers(page: &mut Page, status: &ServerStatus) {
    let gauge = |name, help| (name, Kind::Gauge, help);
    let counter = |name, help| (name, Kind::Counter, help);
    page.per_peer(status, gauge("ashlar_peer_up", "1 if connected."), |peer| Some(u8::from(peer.is_connected())));
    page.per_peer(status, gauge("ashlar_peer_round_trip_seconds", "Smoothed round trip."), |peer| {
        peer.round_trip_us.map(|micros| micros as f64 / 1e6)
    });
    page.per_peer(status, counter("ashlar_peer_received_bytes_total", "Received."), |peer| Some(peer.bytes_in));
    page.per_peer(status, counter("ashlar_peer_sent_bytes_total", "Sent."), |peer| Some(peer.bytes_out));
    page.per_peer(status, counter("ashlar_peer_connects_total", "Connections made."), |peer| Some(peer.connects));
    page.per_peer(status, gauge("ashlar_peer_calls_in_flight", "Calls that wait for an answer."), |peer| {
        Some(peer.calls_in_flight)
    });
    page.per_peer(status, gauge("ashlar_peer_queued_bytes", "Waiting to be written."), |peer| Some(peer.bytes_queued));
    page.per_peer(status, gauge("ashlar_peer_breaker_open", "1 if calls fail at once."), |peer| {
        Some(u8::from(peer.breaker_open))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut page = Page(String::new());
        page.metric("a", Kind::Counter, "Help.");
        page.sample("a", &[("x", "q\"b\\n\n"), ("y", "z")], 1.5);
        page.sample("a", &[], 2);
        assert_eq!(page.0, "# HELP a Help.\n# TYPE a counter\na{x=\"q\\\"b\\\\n\\n\",y=\"z\"} 1.5\na 2\n");
    }
}
