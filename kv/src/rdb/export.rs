//! All keys of an engine as one file in memory, and back again.

use super::encode::{Attributes, Encoder, Value};
use super::import::{ImportError, ImportOptions, Imported, Loader};
use super::writer::{Fact, Version, Writer};
use crate::command::run;
use crate::engine::Engine;
use crate::keyspace::{AccessClock, Keys, Kind, Lock, Record, Shard};
use crate::replicate::Point;
use crate::settings::Settings;
use crate::time::Now;

/// The version of Valkey whose contract this engine follows, as files tell it.
const VALKEY_VERSION: &[u8] = b"9.1.0";

/// What is behind a record of a shard.
pub(crate) fn value_of<'s>(shard: &'s Shard, record: Record<'s>) -> Value<'s> {
    match record.kind() {
        Kind::String => Value::String(record.value()),
        _ => Value::Object(shard.object_of(record)),
    }
}

/// What a file says of a record beside its value.
pub(crate) fn attributes_of(record: Record<'_>, clock: AccessClock) -> Attributes {
    let access = record.access();
    let idle_s = (!clock.counts_use).then(|| u64::from(clock.idle_s(access)));
    let frequency = clock.counts_use.then(|| u8::try_from(clock.count(access)).unwrap_or(u8::MAX));
    Attributes { expiry: record.expiry(), idle_s, frequency }
}

/// What slots are called in a file of whose keys it has only copies (`cluster::migration`).
pub(super) const COPIES: &str = "ashlar-slot-copies";

/// Appends the facts that every file tells: the version, and when it was made; and the point whose data it has, if it is at one,
/// with what is known there of the term and the members of the shard; and slots of whose keys it has only copies.
pub(crate) fn with_facts<R>(
    now: Now,
    is_log_base: bool,
    (point, commit): (Option<&Point>, Option<&str>),
    copies: &str,
    then: impl FnOnce(&[Fact<'_>]) -> R,
) -> R {
    let made = now.unix_ms().div_euclid(1_000).to_string();
    let is_base: &[u8] = if is_log_base { b"1" } else { b"0" };
    let mut facts: Vec<Fact<'_>> =
        vec![("valkey-ver", VALKEY_VERSION), ("redis-bits", b"64"), ("ctime", made.as_bytes())];
    let texts = point.map(|point| (point.database.unwrap_or(0).to_string(), point.position.to_string()));
    if let (Some(point), Some((database, position))) = (point, &texts) {
        facts.push(("repl-stream-db", database.as_bytes()));
        facts.push(("repl-id", point.history.as_bytes()));
        facts.push(("repl-offset", position.as_bytes()));
    }
    if let Some(commit) = commit {
        facts.push(("ashlar-term", commit.as_bytes()));
    }
    if !copies.is_empty() {
        facts.push((COPIES, copies.as_bytes()));
    }
    facts.push(("aof-base", is_base));
    then(&facts)
}

impl Engine {
    /// All keys as a file in memory, while nobody changes them. For few keys, and for tests.
    #[must_use]
    pub fn export_rdb(&self, now: Now) -> Vec<u8> {
        let settings = self.settings();
        let clock = run::access(&settings, now);
        export(self, &self.keyspace.lock(Lock::Everything, 0, now.unix_ms(), clock), &settings, now)
    }

    /// Writes all keys down, forgets them, and reads them again, while nobody sees any.
    ///
    /// # Errors
    /// [`ImportError`]: a defect of ours, since we wrote what is read. Keys are missing then.
    pub fn reload(&self, now: Now) -> Result<Imported, ImportError> {
        let settings = self.settings();
        let clock = run::access(&settings, now);
        reload(self, &mut self.keyspace.lock(Lock::Everything, 0, now.unix_ms(), clock), &settings, now)
    }
}

/// All keys as a file. `keys` holds all shards.
pub(crate) fn export(engine: &Engine, keys: &Keys<'_>, settings: &Settings, now: Now) -> Vec<u8> {
    let databases = 0..engine.keyspace.databases();
    let needs_valkey =
        databases.clone().any(|database| keys.shards().any(|shard| has_expiring_fields(shard, database)));
    let version = if needs_valkey { Version::Valkey80 } else { Version::Redis11 };
    let encoder = Encoder::new(settings.compresses, settings.list_fill);
    let copies = engine.migration.copies.show();
    let mut writer = with_facts(now, false, (None, None), &copies, |facts| Writer::begin(version, encoder, facts));
    engine.libraries().iter().for_each(|text| writer.library(text));
    for database in databases {
        let count: usize = keys.shards().map(|shard| shard.keys(database)).sum();
        if count == 0 {
            continue;
        }
        writer.database(database, count, keys.shards().map(|shard| shard.keys_expiring(database)).sum());
        for shard in keys.shards() {
            shard.each(database, |record| {
                writer.entry(record.key(), attributes_of(record, keys.access()), value_of(shard, record));
            });
        }
    }
    writer.end()
}

fn has_expiring_fields(shard: &Shard, database: usize) -> bool {
    let mut has_some = false;
    shard.each(database, |record| {
        has_some |= record.kind() == Kind::Hash && value_of(shard, record).needs_valkey();
    });
    has_some
}

/// Writes all keys down, forgets them, and reads them again: `DEBUG RELOAD`. `keys` holds all shards.
///
/// # Errors
/// [`ImportError`]: a defect of ours, since we wrote what is read. Keys are missing then.
pub(crate) fn reload(
    engine: &Engine,
    keys: &mut Keys<'_>,
    settings: &Settings,
    now: Now,
) -> Result<Imported, ImportError> {
    let file = export(engine, keys, settings, now);
    let all: Vec<usize> = (0..engine.keyspace.databases()).collect();
    engine.waiting.changed_all(&all);
    for number in 0..engine.keyspace.shards() {
        all.iter().for_each(|database| drop(keys.shard_at(number).flush(*database)));
    }
    engine.forget_libraries();
    let file_bytes = u64::try_from(file.len()).ok();
    let mut loader = Loader::new(ImportOptions { file_bytes, ..ImportOptions::default() });
    loader.load(&file, engine, settings, now, keys)?;
    loader.finish()
}
