//! The key-value engines in metrics. The label `engine` is the address on which one listens.

use ashlar_kv::figures::{
    ClusterFigures, CommandClass, CommandFigures, DURATION_BOUNDS, Figures, KeyFigures, LinkFigures, ReplicaFigures,
};

use super::{Kind, Page, Source, Telling};
use crate::os::kv::{EngineFigures, Observer};

impl Source for Observer {
    fn tell<'a>(&'a self, page: &'a mut Page) -> Telling<'a> {
        Box::pin(async move { keyvalue(page, &self.figures().await) })
    }
}

/// All metrics of the engines of this server; none where it has no engine.
fn keyvalue(page: &mut Page, engines: &[EngineFigures]) {
    let Some(EngineFigures { figures: first, .. }) = engines.first() else { return };
    let engines = Engines { page, engines };
    engines.run(first);
}

/// Where to write, and about whom.
struct Engines<'p> {
    page: &'p mut Page,
    engines: &'p [EngineFigures],
}

/// Name, kind and help of a metric.
type Head = (&'static str, Kind, &'static str);

impl Engines<'_> {
    fn run(mut self, first: &Figures) {
        // Both engines of a server are one process.
        self.page.single("ashlar_kv_memory_used_bytes", Kind::Gauge, "Memory in use.", first.memory_bytes);
        let help = "Memory beyond which keys are evicted or writes refused (maxmemory); 0 for no limit.";
        self.page.single("ashlar_kv_memory_limit_bytes", Kind::Gauge, help, first.memory_bytes_max);
        self.state();
        self.keys();
        self.commands();
        self.durations();
        self.clients();
        self.replication();
        self.slots();
        self.files();
    }

    /// One sample for each engine that has this value.
    fn each<V: core::fmt::Display>(&mut self, (name, kind, help): Head, value: impl Fn(&Figures) -> Option<V>) {
        self.page.metric(name, kind, help);
        for EngineFigures { engine, figures } in self.engines {
            if let Some(value) = value(figures) {
                self.page.sample(name, &[("engine", engine)], value);
            }
        }
    }

    fn state(&mut self) {
        let name = "ashlar_kv_role";
        self.page.metric(name, Kind::Gauge, "1 for the role that the engine has.");
        for EngineFigures { engine, figures } in self.engines {
            for (role, is_so) in [("primary", figures.link.is_none()), ("replica", figures.link.is_some())] {
                self.page.sample(name, &[("engine", engine), ("role", role)], u8::from(is_so));
            }
        }
        let head = ("ashlar_kv_loading", Kind::Gauge, "1 while data is read from files or copied from a primary.");
        self.each(head, |figures| Some(u8::from(figures.is_loading)));
    }

    fn keys(&mut self) {
        for (name, help, value) in [
            (
                "ashlar_kv_keys",
                "Keys by database.",
                (|keys| keys.keys) as fn(&ashlar_kv::figures::DatabaseFigures) -> u64,
            ),
            ("ashlar_kv_expiring_keys", "Keys with a time to live, by database.", |keys| keys.expiring),
        ] {
            self.page.metric(name, Kind::Gauge, help);
            for EngineFigures { engine, figures } in self.engines {
                for keys in figures.keys.iter().flat_map(|keys| &keys.databases) {
                    let database = keys.database.to_string();
                    self.page.sample(name, &[("engine", engine), ("database", &database)], value(keys));
                }
            }
        }
        for (name, help, value) in [
            (
                "ashlar_kv_keyspace_hits_total",
                "Keys that were looked for and found.",
                (|keys| keys.hits) as fn(&KeyFigures) -> u64,
            ),
            ("ashlar_kv_keyspace_misses_total", "Keys that were looked for and not found.", |keys| keys.misses),
            ("ashlar_kv_expired_keys_total", "Keys whose time to live ended.", |keys| keys.expired),
        ] {
            self.each((name, Kind::Counter, help), |figures| figures.keys.as_ref().map(value));
        }
        let head = ("ashlar_kv_evicted_keys_total", Kind::Counter, "Keys removed for lack of memory.");
        self.each(head, |figures| Some(figures.evicted));
    }

    fn commands(&mut self) {
        for (name, help, value) in [
            (
                "ashlar_kv_commands_total",
                "Commands that ran, by class.",
                (|sum| sum.calls) as fn(&CommandFigures) -> u64,
            ),
            ("ashlar_kv_commands_failed_total", "Commands that ran and replied an error.", |sum| sum.failed),
            ("ashlar_kv_commands_rejected_total", "Commands that were refused before they ran.", |sum| sum.rejected),
        ] {
            self.page.metric(name, Kind::Counter, help);
            for EngineFigures { engine, figures } in self.engines {
                for (class, sum) in CommandClass::ALL.iter().zip(&figures.commands) {
                    self.page.sample(name, &[("engine", engine), ("class", class.name())], value(sum));
                }
            }
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "a number of seconds needs no 53 bits")]
    fn durations(&mut self) {
        let name = "ashlar_kv_command_duration_seconds";
        self.page.metric(name, Kind::Histogram, "Time in commands, by class, without waiting for the network.");
        let bounds = DURATION_BOUNDS.map(|nanos| (nanos as f64 / 1e9).to_string());
        for EngineFigures { engine, figures } in self.engines {
            for (class, sum) in CommandClass::ALL.iter().zip(&figures.commands) {
                let labels = [("engine", engine.as_str()), ("class", class.name())];
                let [one, other] = labels;
                for (bound, count) in bounds.iter().zip(sum.within) {
                    self.page.sample(&format!("{name}_bucket"), &[one, other, ("le", bound)], count);
                }
                self.page.sample(&format!("{name}_bucket"), &[one, other, ("le", "+Inf")], sum.calls);
                self.page.sample(&format!("{name}_sum"), &labels, sum.nanos as f64 / 1e9);
                self.page.sample(&format!("{name}_count"), &labels, sum.calls);
            }
        }
    }

    fn clients(&mut self) {
        for (head, value) in [
            (
                ("ashlar_kv_clients", Kind::Gauge, "Connected clients."),
                (|figures| figures.clients as u64) as fn(&Figures) -> u64,
            ),
            (("ashlar_kv_blocked_clients", Kind::Gauge, "Clients that wait for a key or for replicas."), |figures| {
                figures.blocked_clients as u64
            }),
            (("ashlar_kv_connections_total", Kind::Counter, "Connections accepted."), |figures| figures.accepted),
            (
                ("ashlar_kv_connections_rejected_total", Kind::Counter, "Connections refused beyond maxclients."),
                |figures| figures.rejected,
            ),
            (("ashlar_kv_received_bytes_total", Kind::Counter, "Bytes from clients."), |figures| {
                figures.received_bytes
            }),
            (("ashlar_kv_sent_bytes_total", Kind::Counter, "Bytes to clients."), |figures| figures.sent_bytes),
        ] {
            self.each(head, |figures| Some(value(figures)));
        }
    }

    fn replication(&mut self) {
        let help = "How far the engine's data goes in the stream of its group.";
        self.each(("ashlar_kv_replication_offset_bytes", Kind::Gauge, help), |figures| Some(figures.offset));
        let head = ("ashlar_kv_connected_replicas", Kind::Gauge, "Replicas that have their copy and get the stream.");
        self.each(head, |figures| Some(figures.replicas.iter().filter(|replica| replica.is_online).count()));
        for (name, help, value) in [
            (
                "ashlar_kv_replica_lag_bytes",
                "Bytes of the stream that a replica has not acknowledged, as its primary sees it.",
                (|replica| replica.lag_bytes) as fn(&ReplicaFigures) -> u64,
            ),
            ("ashlar_kv_replica_lag_seconds", "Since a replica was last heard of.", |replica| {
                u64::try_from(replica.lag_s).unwrap_or(0)
            }),
        ] {
            self.page.metric(name, Kind::Gauge, help);
            for EngineFigures { engine, figures } in self.engines {
                for replica in &figures.replicas {
                    self.page.sample(name, &[("engine", engine), ("replica", &replica.place)], value(replica));
                }
            }
        }
        let link = |value: fn(&LinkFigures) -> bool| {
            move |figures: &Figures| figures.link.as_ref().map(|link| u8::from(value(link)))
        };
        let help = "1 if the stream of the primary comes; of replicas only.";
        self.each(("ashlar_kv_replication_link_up", Kind::Gauge, help), link(|link| link.is_up));
        let help = "1 while a copy of all data comes from the primary; of replicas only.";
        self.each(("ashlar_kv_replication_syncing", Kind::Gauge, help), link(|link| link.is_syncing));
        let help = "Since the primary was last heard of; of replicas whose link is up only.";
        self.each(("ashlar_kv_replication_silence_seconds", Kind::Gauge, help), |figures| figures.link?.silent_s);
    }

    fn slots(&mut self) {
        for (name, help, value) in [
            (
                "ashlar_kv_slots_owned",
                "Slots that the engine owns.",
                (|cluster| cluster.slots_owned) as fn(&ClusterFigures) -> usize,
            ),
            ("ashlar_kv_cluster_slots_assigned", "Slots of the cluster that have an owner.", |cluster| {
                cluster.slots_assigned
            }),
            ("ashlar_kv_cluster_slots_failed", "Slots of the cluster whose owner has failed.", |cluster| {
                cluster.slots_failed
            }),
            ("ashlar_kv_cluster_slots_served", "Slots of the cluster that clients are served.", |cluster| {
                cluster.slots_served()
            }),
            ("ashlar_kv_cluster_up", "1 if the engine serves clients their keys.", |cluster| {
                usize::from(cluster.is_up)
            }),
        ] {
            self.each((name, Kind::Gauge, help), |figures| figures.cluster.as_ref().map(value));
        }
    }

    fn files(&mut self) {
        let (gauge, counter) = (Kind::Gauge, Kind::Counter);
        for (head, value) in [
            (
                ("ashlar_kv_log_enabled", gauge, "1 if there is an append log."),
                (|figures| u64::from(figures.files.has_log)) as fn(&Figures) -> u64,
            ),
            (
                ("ashlar_kv_log_failed", gauge, "1 if the append log cannot be written: writes are refused."),
                |figures| u64::from(figures.files.is_log_refused),
            ),
            (("ashlar_kv_log_size_bytes", gauge, "The append log, its base included."), |figures| {
                figures.files.log_bytes
            }),
            (("ashlar_kv_log_waiting_bytes", gauge, "Bytes that are not in the append log yet."), |figures| {
                figures.files.log_waiting_bytes
            }),
            (("ashlar_kv_log_rewrites_total", counter, "Rewrites of the append log."), |figures| {
                figures.files.rewrites
            }),
            (("ashlar_kv_log_rewrite_failed", gauge, "1 if the last rewrite failed."), |figures| {
                u64::from(figures.files.has_rewrite_failed)
            }),
            (("ashlar_kv_dumps_total", counter, "Dumps written."), |figures| figures.files.dumps),
            (("ashlar_kv_dump_failed", gauge, "1 if the last dump failed."), |figures| {
                u64::from(figures.files.has_dump_failed)
            }),
            (
                ("ashlar_kv_dump_timestamp_seconds", gauge, "When the last dump ended, Unix time; 0 for never."),
                |figures| u64::try_from(figures.files.dumped_s).unwrap_or(0),
            ),
        ] {
            self.each(head, |figures| Some(value(figures)));
        }
        let help = "Changes since the last dump.";
        self.each(("ashlar_kv_dump_changes", gauge, help), |figures| Some(figures.keys.as_ref()?.changes));
    }
}

#[cfg(test)]
mod tests {
    use ashlar_kv::figures::{
        ClusterFigures, CommandFigures, DatabaseFigures, Figures, FileFigures, KeyFigures, LinkFigures, ReplicaFigures,
    };

    use ashlar_node::membership::view::BusStatus;

    use super::super::bus::bus;
    use super::super::page::tests::lint;
    use super::*;

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
        let mut page = Page::default();
        bus(&mut page, &BusStatus::default());
        keyvalue(&mut page, &engine_figures());
        let text = page.into_text();
        assert_eq!(lint(&text), Vec::<String>::new());
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
            assert!(text.lines().any(|other| other == line), "`{line}` is not in {text}");
        }
        assert!(!text.contains("ashlar_kv_keys{engine=\"10.0.0.1:6479\""), "somebody holds these keys");
    }
}
