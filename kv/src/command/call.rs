//! What a command sees while it runs, and what it leaves behind.

use crate::client::Client;
use crate::engine::Engine;
use crate::error::Error;
use crate::keyspace::{Key, Keys};
use crate::resp::{Args, Reply, Request};
use crate::settings::{Events, Settings};
use crate::time::Now;
use crate::waiting::Wait;

/// What runs a command. An error becomes its reply; what it had written before is taken back.
pub(crate) type Run = fn(&mut Call<'_, '_>) -> Result<(), Error>;

/// Something that happened to a key, for those who subscribe to events.
#[derive(Debug)]
pub(crate) struct KeyEvent {
    pub(crate) name: &'static str,
    pub(crate) database: usize,
    pub(crate) key: Box<[u8]>,
}

/// What is written to the log and sent to replicas for a command that changed something.
#[derive(Debug, Default)]
pub(crate) enum Trace {
    /// The command as it came.
    #[default]
    AsIs,
    /// Nothing.
    Nothing,
    /// Other commands with the same effect, which do not depend on time, chance or order.
    Instead(Vec<Request>),
}

/// What commands leave behind for whoever ran them.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// How many changes were made.
    pub(crate) changes: u64,
    pub(crate) trace: Trace,
    pub(crate) events: Vec<KeyEvent>,
    /// Keys that have changed and that somebody waits for.
    pub(crate) ready: Vec<(usize, Box<[u8]>)>,
    /// The command found nothing and wants to wait.
    pub(crate) wait: Option<Wait>,
}

/// One command while it runs.
pub(crate) struct Call<'c, 'k> {
    pub(crate) engine: &'c Engine,
    pub(crate) settings: &'c Settings,
    pub(crate) now: Now,
    /// Its words; word 0 is its name, and of a subcommand word 1 as well.
    pub(crate) args: Args<'c>,
    pub(crate) reply: &'c mut Reply,
    pub(crate) keys: &'c mut Keys<'k>,
    pub(crate) client: &'c mut Client,
    pub(crate) effects: &'c mut Effects,
    /// Whether it may wait: not in a transaction or a script.
    pub(crate) may_wait: bool,
}

impl<'c> Call<'c, '_> {
    /// The key that word `at` names.
    #[inline]
    pub(crate) fn key(&self, at: usize) -> Key<'c> {
        let word = self.args.get(at).expect("the arity was checked");
        self.keys.key(word)
    }

    /// A key has changed: transactions that watch it fail, commands that wait for it are served, subscribers are told.
    #[inline]
    pub(crate) fn changed(&mut self, key: Key<'_>, class: Events, event: &'static str) {
        self.effects.changes += 1;
        self.touched(key);
        self.notify(class, event, key.bytes);
    }

    /// A key has changed, without an event of its own and without counting as one change more.
    #[inline]
    pub(crate) fn touched(&mut self, key: Key<'_>) {
        let database = self.keys.database();
        if self.engine.waiting.changed(database, key.bytes) {
            self.effects.ready.push((database, key.bytes.into()));
        }
    }

    /// Tells subscribers of an event without counting it as a change.
    #[inline]
    pub(crate) fn notify(&mut self, class: Events, name: &'static str, key: &[u8]) {
        if self.settings.events.has(class) {
            let database = self.keys.database();
            self.effects.events.push(KeyEvent { name, database, key: key.into() });
        }
    }

    /// What replicas and the log get instead of the command itself.
    pub(crate) fn trace(&mut self, instead: Vec<Request>) {
        self.effects.trace = if instead.is_empty() { Trace::Nothing } else { Trace::Instead(instead) };
    }

    /// An integer that stands in word `at`.
    ///
    /// # Errors
    /// It is none.
    pub(crate) fn integer(&self, at: usize) -> Result<i64, Error> {
        crate::resp::number::parse_i64(&self.args[at]).ok_or(Error::NOT_INTEGER)
    }
}
