//! Files into an engine.

use std::fmt;
use std::sync::Arc;

use super::decode::{Decoded, Rules};
use super::encode::Attributes;
use super::reader::{Entry, Fault, Item, Reader};
use super::source::Damage;
use crate::cluster::migration::Copies;
use crate::command::run;
use crate::engine::Engine;
use crate::keyspace::{AccessClock, Expiry, Key, Keys, Keyspace, Shard, Slot};
use crate::replicate::Point;
use crate::settings::Settings;
use crate::time::Now;

/// The most libraries of functions that a file may have.
const LIBRARIES_MAX: usize = 1 << 14;

/// How a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImportOptions {
    /// How long the file is in bytes, if that is known: a length that leads beyond its end is refused at once then, and not
    /// when the bytes have run out.
    pub file_bytes: Option<u64>,
    /// Keys and fields that have expired are kept, for the log that follows to deal with.
    pub keeps_expired: bool,
    /// A key or a library of functions that is there already is replaced. It is an error otherwise.
    pub replaces: bool,
    /// The file was written by this server: where it says which point of a history it is, keys that have expired are kept, because
    /// replicas that go on from that point have them too.
    pub is_own: bool,
}

/// What became of the keys of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Imported {
    /// Keys that are there now.
    pub keys: u64,
    /// Keys that had expired.
    pub expired: u64,
    /// Collections of nothing, which old servers wrote by mistake.
    pub empty: u64,
    /// Libraries of functions: their texts.
    pub libraries: Vec<Vec<u8>>,
    /// The point of a history that the file has the data of, if it says so.
    pub point: Option<Point>,
    /// What it says of the term and the members of its shard.
    pub commit: Option<String>,
    /// Slots of whose keys it has only copies, as text.
    pub copies: String,
}

/// What stopped an import. What was read before it is in the engine: the caller throws that away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportError {
    /// Where in the file the item begins that could not be read, in bytes.
    pub offset: u64,
    /// Why.
    pub cause: ImportCause,
}

/// Why a file could not be read. Its fault, so reading it again fails again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImportCause {
    /// It does not begin as one.
    NotOne,
    /// It is of this version, which is not known.
    Version(u32),
    /// It ends within something.
    Truncated,
    /// Something follows its end: an append log, mostly, which is not to be lost.
    Trailing,
    /// Its checksum is not that of its bytes.
    Checksum,
    /// Something in it is broken; under this key, if it was read.
    Damage(Damage, Option<Vec<u8>>),
    /// It has keys in a database of this number, and there are not so many.
    Database(u64),
    /// A key is there twice.
    Duplicate(Vec<u8>),
    /// It has more libraries than can be.
    Libraries,
    /// A library of functions cannot be loaded: why, in words.
    Library(String),
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: ", self.offset)?;
        match &self.cause {
            ImportCause::NotOne => f.write_str("this is no RDB file"),
            ImportCause::Version(version) => write!(f, "RDB version {version} is not known"),
            ImportCause::Truncated => f.write_str("the file ends too early"),
            ImportCause::Trailing => f.write_str("something follows the end of the RDB file: an append log?"),
            ImportCause::Checksum => f.write_str("the checksum is wrong: the file is damaged"),
            ImportCause::Damage(damage, None) => damage.fmt(f),
            ImportCause::Damage(damage, Some(key)) => write!(f, "key `{}`: {damage}", key.escape_ascii()),
            ImportCause::Database(number) => write!(f, "there is no database {number}"),
            ImportCause::Duplicate(key) => write!(f, "key `{}` is there twice", key.escape_ascii()),
            ImportCause::Libraries => f.write_str("there are too many libraries of functions"),
            ImportCause::Library(why) => write!(f, "a library of functions cannot be loaded: {why}"),
        }
    }
}

impl std::error::Error for ImportError {}

/// Shards that keys are put into, locked one by one or all before.
pub(crate) trait Shards {
    /// Gives the shard of a slot.
    fn with<R>(&mut self, slot: Slot, then: impl FnOnce(&mut Shard) -> R) -> R;
}

impl Shards for &Keyspace {
    fn with<R>(&mut self, slot: Slot, then: impl FnOnce(&mut Shard) -> R) -> R {
        then(&mut self.shard(self.shard_of(slot)))
    }
}

impl Shards for Keys<'_> {
    fn with<R>(&mut self, slot: Slot, then: impl FnOnce(&mut Shard) -> R) -> R {
        then(self.shard_mut(slot))
    }
}

/// A file on its way into an engine.
#[derive(Debug)]
pub(crate) struct Loader {
    reader: Reader,
    options: ImportOptions,
    database: usize,
    imported: Imported,
}

impl Loader {
    pub(crate) fn new(options: ImportOptions) -> Self {
        let reader = Reader::new(options.file_bytes);
        Self { reader, options, database: 0, imported: Imported::default() }
    }

    /// Takes the next bytes of the file.
    pub(crate) fn load(
        &mut self,
        bytes: &[u8],
        engine: &Engine,
        settings: &Settings,
        now: Now,
        shards: &mut impl Shards,
    ) -> Result<(), ImportError> {
        let keyspace = &engine.keyspace;
        let clock = run::access(settings, now);
        self.reader.feed(bytes);
        loop {
            // It tells its point before any key.
            let keeps = self.options.keeps_expired || self.options.is_own && self.reader.facts().point().is_some();
            let expired_ms = if keeps { i64::MIN } else { now.unix_ms() };
            let rules = Rules { hash_key: keyspace.hash_key(), settings, expired_ms };
            let offset = self.reader.offset();
            let at = |cause| ImportError { offset, cause };
            let item = self.reader.next(&rules).map_err(|fault| at(fault.into()))?;
            match item {
                None => return Ok(()),
                Some(Item::Database(number)) => {
                    let database = usize::try_from(number).ok().filter(|number| *number < keyspace.databases());
                    self.database = database.ok_or_else(|| at(ImportCause::Database(number)))?;
                }
                Some(Item::Library(text)) => {
                    if self.imported.libraries.len() == LIBRARIES_MAX {
                        return Err(at(ImportCause::Libraries));
                    }
                    engine.load_library(&text, self.options.replaces).map_err(|why| at(ImportCause::Library(why)))?;
                    self.imported.libraries.push(text);
                }
                Some(Item::End) => {}
                Some(Item::Entry(entry)) => {
                    let Entry { key: name, attributes, value } = entry;
                    let key = keyspace.key(&name);
                    let place = Place { database: self.database, key, clock, expired_ms, options: self.options };
                    match shards.with(key.slot, |shard| place.put(attributes, value, shard)) {
                        Placed::There => self.imported.keys += 1,
                        Placed::Expired => self.imported.expired += 1,
                        Placed::Empty => self.imported.empty += 1,
                        Placed::Twice => return Err(at(ImportCause::Duplicate(name.into_owned()))),
                    }
                }
            }
        }
    }

    /// The file has ended.
    pub(crate) fn finish(self) -> Result<Imported, ImportError> {
        let at = |cause| ImportError { offset: self.reader.offset(), cause };
        if !self.reader.is_over() {
            return Err(at(ImportCause::Truncated));
        }
        if !self.reader.rest().is_empty() {
            return Err(at(ImportCause::Trailing));
        }
        let facts = self.reader.facts();
        let copies = facts.copies().to_owned();
        Ok(Imported { point: facts.point(), commit: facts.commit(), copies, ..self.imported })
    }
}

impl From<Fault> for ImportCause {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::NotOne => Self::NotOne,
            Fault::Version(version) => Self::Version(version),
            Fault::Checksum => Self::Checksum,
            Fault::Damage(damage, key) => Self::Damage(damage, key),
        }
    }
}

/// Where a key goes.
struct Place<'k> {
    database: usize,
    key: Key<'k>,
    clock: AccessClock,
    expired_ms: i64,
    options: ImportOptions,
}

enum Placed {
    There,
    Expired,
    Empty,
    Twice,
}

impl Place<'_> {
    fn put(&self, attributes: Attributes, value: Decoded<'_>, shard: &mut Shard) -> Placed {
        let Self { database, key, clock, .. } = *self;
        if attributes.expiry.is_some_and(|expiry| expiry <= self.expired_ms) {
            return Placed::Expired;
        }
        if !self.options.replaces && shard.find(database, key).is_some() {
            return Placed::Twice;
        }
        let access = match (attributes.frequency, attributes.idle_s) {
            (Some(count), _) if clock.counts_use => clock.counted(count),
            (_, Some(idle_s)) => clock.idle_since(idle_s),
            _ => clock.first(),
        };
        let expiry = attributes.expiry.map_or(Expiry::Never, Expiry::At);
        match value {
            Decoded::String(text) => shard.put_string(database, key, &text, false, expiry, access),
            Decoded::Object(object) => {
                shard.put_object(database, key, object.kind(), object, expiry, access);
            }
            Decoded::Empty => return Placed::Empty,
            Decoded::Expired => return Placed::Expired,
        }
        Placed::There
    }
}

/// A file on its way into an engine: bytes come in, keys are there. Clients may be served beside it.
#[derive(Debug)]
pub struct Import<'e> {
    engine: &'e Engine,
    settings: Arc<Settings>,
    loader: Loader,
}

impl Engine {
    /// Begins to read an RDB file of Redis or Valkey into this engine.
    pub fn import_rdb(&self, options: ImportOptions) -> Import<'_> {
        Import { engine: self, settings: self.settings(), loader: Loader::new(options) }
    }
}

impl Import<'_> {
    /// Takes the next bytes of the file, as many as there are at hand. Keys that have expired by `now` are left out.
    ///
    /// # Errors
    /// [`ImportError`]: the file's fault, so the same file fails again. The import is of no use any more, and the engine has
    /// what was read before.
    pub fn handle_bytes(&mut self, bytes: &[u8], now: Now) -> Result<(), ImportError> {
        self.loader.load(bytes, self.engine, &self.settings, now, &mut &self.engine.keyspace)
    }

    /// The file has ended. What became of its keys.
    ///
    /// # Errors
    /// [`ImportError`]: the file ended too early, or goes on after its end. The file's fault, so the same file fails again.
    pub fn finish(self) -> Result<Imported, ImportError> {
        let imported = self.loader.finish()?;
        self.engine.migration.copies.replace(Copies::read(&imported.copies));
        Ok(imported)
    }
}
