//! Metrics in Prometheus' text format, made from the same status that people see.

mod bus;
mod keyvalue;

use core::fmt::Write as _;

use crate::os::kv::EngineFigures;
use crate::os::process::ProcessFacts;
use ashlar_node::status::{PeerView, ServerStatus};
use ashlar_node::volume::space::{DriveSpace, Room};

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
    /// The same, with counts of spans up to each of some bounds.
    Histogram,
}

impl Page {
    /// Starts a metric: all its samples follow.
    fn metric(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Summary => "summary",
            Kind::Histogram => "histogram",
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
        for message_part in text.chars() {
            match message_part {
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
pub fn text(
    status: &ServerStatus,
    process: ProcessFacts,
    connections: usize,
    engines: &[EngineFigures],
    drives: &[DriveSpace],
) -> String {
    let mut page = Page(String::new());
    server(&mut page, status, process, connections);
    bus::bus(&mut page, &status.bus);
    grid(&mut page, status);
    peers(&mut page, status);
    keyvalue::keyvalue(&mut page, engines);
    space(&mut page, drives);
    page.0
}

/// The drives of this server; none where it has none.
fn space(page: &mut Page, drives: &[DriveSpace]) {
    if drives.is_empty() {
        return;
    }
    type Number = fn(&Room) -> u64;
    let numbers: [(&str, &str, Number); 2] = [
        ("ashlar_drive_bytes", "Bytes of data that the drive can hold.", |room| room.bytes),
        ("ashlar_drive_free_bytes", "Bytes of data that still can be written, an upper bound.", |room| room.free),
    ];
    for (name, help, number) in numbers {
        page.metric(name, Kind::Gauge, help);
        for DriveSpace { drive, volumes, objects, .. } in drives {
            for (kind, room) in [("volumes", volumes), ("objects", objects)] {
                page.sample(name, &[("drive", &drive.to_string()), ("for", kind)], number(room));
            }
        }
    }
    page.metric(
        "ashlar_drive_failed",
        Kind::Gauge,
        "1 if the drive has failed a write or a sync and is not used any more.",
    );
    for DriveSpace { drive, has_failed, .. } in drives {
        page.sample("ashlar_drive_failed", &[("drive", &drive.to_string())], u8::from(*has_failed));
    }
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
    use std::collections::{BTreeMap, BTreeSet};

    use ashlar_kv::figures::{
        ClusterFigures, CommandFigures, DatabaseFigures, Figures, FileFigures, KeyFigures, LinkFigures, ReplicaFigures,
    };

    use super::*;
    use ashlar_node::membership::view::BusStatus;

    #[test]
    fn labels_are_escaped() {
        let mut page = Page(String::new());
        page.metric("a", Kind::Counter, "Help.");
        page.sample("a", &[("x", "q\"b\\n\n"), ("y", "z")], 1.5);
        page.sample("a", &[], 2);
        assert_eq!(page.0, "# HELP a Help.\n# TYPE a counter\na{x=\"q\\\"b\\\\n\\n\",y=\"z\"} 1.5\na 2\n");
    }

    /// What is wrong with a page by Prometheus' conventions, as `promtool check metrics` has them.
    fn lint(page: &str) -> Vec<String> {
        let (mut wrong, mut kinds, mut helps) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
        let mut seen = BTreeSet::new();
        for line in page.lines() {
            let words: Vec<&str> = line.splitn(4, ' ').collect();
            match words[..] {
                ["#", "HELP", name, help] if !help.is_empty() => drop(helps.insert(name)),
                ["#", "TYPE", name, kind] => {
                    if kinds.insert(name, kind).is_some() {
                        wrong.push(format!("{name} begins twice"));
                    }
                    let is_plain =
                        name.chars().all(|message_part| message_part.is_ascii_lowercase() || message_part == '_');
                    let units = ["_ms", "_us", "_kb", "_mb", "_milliseconds", "_minutes", "_percent"];
                    let suffixes: &[&str] = if kind == "counter" { &[] } else { &["_total"] };
                    let reserved = ["_count", "_sum", "_bucket", "_info_total", "_counter", "_gauge", "_histogram"];
                    if !is_plain || units.iter().chain(suffixes).chain(&reserved).any(|end| name.ends_with(end)) {
                        wrong.push(format!("{name} is no name of a {kind}"));
                    }
                    if kind == "counter" && !name.ends_with("_total") {
                        wrong.push(format!("{name} does not end in _total"));
                    }
                }
                _ => {
                    let name = line.split(['{', ' ']).next().unwrap_or_default();
                    let series = line.rsplit_once(' ').map_or(line, |(series, _)| series);
                    if !seen.insert(series) {
                        wrong.push(format!("{series} is there twice"));
                    }
                    let ends = ["_bucket", "_sum", "_count"];
                    let base =
                        ends.iter().find_map(|end| name.strip_suffix(end)).filter(|base| kinds.contains_key(base));
                    if base.is_none() && !kinds.contains_key(name) || !helps.contains(base.unwrap_or(name)) {
                        wrong.push(format!("{name} has no type or no help"));
                    }
                }
            }
        }
        wrong
    }

    fn engine_figures() -> Vec<EngineFigures> {
        let keys = KeyFigures {
            databases: vec![DatabaseFigures { database: 0, keys: 7, expiring: 2 }],
            hits: 3,
            ..KeyFigures::default()
        };
        let within = core::array::from_fn(|at| at as u64);
        let write = CommandFigures { calls: 20, nanos: 2_500_000_000, within, ..CommandFigures::default() };
        let replica = ReplicaFigures { place: "10.0.0.2:6479".into(), is_online: true, lag_bytes: 12, lag_s: 1 };
        let cluster = ClusterFigures { is_up: true, slots_owned: 5_462, slots_assigned: 16_384, slots_failed: 0 };
        let figures = Figures {
            is_loading: false,
            link: None,
            cluster: Some(cluster),
            keys: Some(keys),
            commands: [write, CommandFigures::default(), CommandFigures::default()],
            evicted: 0,
            memory_bytes: 1 << 20,
            memory_bytes_max: 0,
            clients: 4,
            blocked_clients: 0,
            accepted: 9,
            rejected: 0,
            received_bytes: 100,
            sent_bytes: 200,
            offset: 300,
            replicas: vec![replica],
            files: FileFigures { has_log: true, log_bytes: 88, ..FileFigures::default() },
        };
        let link = LinkFigures { is_up: true, is_syncing: false, silent_s: Some(0) };
        let second = Figures { link: Some(link), replicas: Vec::new(), keys: None, ..figures.clone() };
        let engine = |engine: &str, figures| EngineFigures { engine: engine.into(), figures };
        vec![engine("10.0.0.1:6379", figures), engine("10.0.0.1:6479", second)]
    }

    #[test]
    fn engines_are_told_by_the_conventions() {
        let mut page = Page(String::new());
        bus::bus(&mut page, &BusStatus::default());
        keyvalue::keyvalue(&mut page, &engine_figures());
        assert_eq!(lint(&page.0), Vec::<String>::new());
        for line in [
            "ashlar_kv_role{engine=\"10.0.0.1:6479\",role=\"replica\"} 1",
            "ashlar_kv_keys{engine=\"10.0.0.1:6379\",database=\"0\"} 7",
            "ashlar_kv_keyspace_hits_total{engine=\"10.0.0.1:6379\"} 3",
            "ashlar_kv_commands_total{engine=\"10.0.0.1:6379\",class=\"write\"} 20",
            "ashlar_kv_command_duration_seconds_bucket{engine=\"10.0.0.1:6379\",class=\"write\",le=\"0.00001\"} 0",
            "ashlar_kv_command_duration_seconds_bucket{engine=\"10.0.0.1:6379\",class=\"write\",le=\"10\"} 18",
            "ashlar_kv_command_duration_seconds_bucket{engine=\"10.0.0.1:6379\",class=\"write\",le=\"+Inf\"} 20",
            "ashlar_kv_command_duration_seconds_sum{engine=\"10.0.0.1:6379\",class=\"write\"} 2.5",
            "ashlar_kv_replica_lag_bytes{engine=\"10.0.0.1:6379\",replica=\"10.0.0.2:6479\"} 12",
            "ashlar_kv_replication_link_up{engine=\"10.0.0.1:6479\"} 1",
            "ashlar_kv_cluster_slots_served{engine=\"10.0.0.1:6379\"} 16384",
            "ashlar_kv_log_size_bytes{engine=\"10.0.0.1:6379\"} 88",
            "ashlar_kv_memory_used_bytes 1048576",
        ] {
            assert!(page.0.lines().any(|other| other == line), "`{line}` is not in {}", page.0);
        }
        assert!(!page.0.contains("ashlar_kv_keys{engine=\"10.0.0.1:6479\""), "somebody holds these keys");
        let planted = "# HELP a_ms h\n# TYPE a_ms gauge\n# HELP b h\n# TYPE b counter\nc 1\nb 1\nb 1\n";
        assert_eq!(lint(planted).len(), 4, "{:?}", lint(planted));
    }
}
