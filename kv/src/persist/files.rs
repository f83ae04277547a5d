//! Where an engine's files are, and when they are written, as it is configured.

use super::saves::SavePoint;

/// Settings about files. Names are those of Valkey's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// Where all of them are (`dir`).
    pub directory: String,
    /// The name of a dump in it (`dbfilename`).
    pub dump_name: String,
    /// When dumps are taken by themselves (`save`).
    pub save_points: Vec<SavePoint>,
    /// Whether what commands do is logged (`appendonly`).
    pub is_log_on: bool,
    /// The directory of the log, in `directory` (`appenddirname`).
    pub log_folder: String,
    /// What Valkey would call its own log (`appendfilename`): a file in our log's directory keeps Valkey from beginning one there.
    pub foreign_log: String,
    /// The log begins anew when it has grown by so many percent of its base; 0 for never (`auto-aof-rewrite-percentage`).
    pub growth_percent: u64,
    /// But not before it has so many bytes (`auto-aof-rewrite-min-size`).
    pub growth_bytes_min: u64,
    /// Whether a log that ends within a record, of which no later one says that it was durable, is used without it
    /// (`aof-load-truncated`).
    pub takes_torn_log: bool,
    /// Whether writes are refused after a dump failed that a save point wanted (`stop-writes-on-bgsave-error`).
    pub stops_after_failure: bool,
}

impl Default for Files {
    fn default() -> Self {
        let point = |seconds, changes| SavePoint { seconds, changes };
        Self {
            directory: ".".into(),
            dump_name: "dump.rdb".into(),
            save_points: vec![point(3_600, 1), point(300, 100), point(60, 10_000)],
            is_log_on: false,
            log_folder: "appendonlydir".into(),
            foreign_log: "appendonly.aof".into(),
            growth_percent: 100,
            growth_bytes_min: 64 << 20,
            takes_torn_log: true,
            stops_after_failure: true,
        }
    }
}
