//! What a command sees while it runs, and what it leaves behind.

use std::time::Duration;

use ashlar_wire::time::Instant;

use crate::client::{Client, ClientId};
use crate::engine::Engine;
use crate::error::Error;
use crate::keyspace::{Key, Keys, Noted};
use crate::persist::journal::Written;
use crate::resp::{Args, Reply, Request};
use crate::serve::removal;
use crate::settings::{Events, Settings};
use crate::time::Now;
use crate::value::score::parse_freely;
use crate::waiting::Wait;

/// The first timeout in milliseconds that is too great: 2^63.
const TIMEOUT_MS_END: f64 = 9_223_372_036_854_775_808.0;

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
    /// The command as it came, but to replicas only and although nothing has changed: a message.
    ToReplicas,
}

/// What commands leave behind for whoever ran them.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// How many changes were made.
    pub(crate) changes: u64,
    /// What the command that runs has to say to the log.
    pub(crate) trace: Trace,
    /// What those before it had.
    pub(crate) written: Written,
    /// The log gets something of them that a command for writing did.
    pub(crate) has_logged: bool,
    /// They are about any keys that were met, and no unit.
    pub(crate) is_scattered: bool,
    pub(crate) events: Vec<KeyEvent>,
    /// Keys that have changed and that somebody waits for.
    pub(crate) ready: Vec<(usize, Box<[u8]>)>,
    /// Keys that have changed, and who did it: nothing while nobody tracks keys.
    pub(crate) changed: Vec<(Box<[u8]>, Option<ClientId>)>,
    /// A script has run: others may have left keys for after it.
    pub(crate) ran_script: bool,
    /// The command found nothing and wants to wait.
    pub(crate) wait: Option<Wait>,
}

impl Effects {
    /// Tells subscribers of keys that were made, or looked for in vain: they hear of it before of what was done with them.
    #[inline]
    pub(crate) fn take_noted(&mut self, keys: &mut Keys<'_>) {
        if !keys.has_noted() {
            return;
        }
        for (noted, database, key) in keys.take_noted() {
            let name = match noted {
                Noted::New => "new",
                Noted::Missed => "keymiss",
            };
            self.events.push(KeyEvent { name, database, key });
        }
    }
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
        self.changed_by(1, key, class, event);
    }

    /// The same for what counts as several changes.
    #[inline]
    pub(crate) fn changed_by(&mut self, changes: usize, key: Key<'_>, class: Events, event: &'static str) {
        self.effects.changes += u64::try_from(changes).expect("counts of things in memory fit 64 bits");
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
        if self.engine.tracking.is_on() {
            self.engine.invalidate(key.bytes, Some(self.client.id));
            self.effects.changed.push((key.bytes.into(), Some(self.client.id)));
        }
    }

    /// Tells subscribers of an event without counting it as a change.
    #[inline]
    pub(crate) fn notify(&mut self, class: Events, name: &'static str, key: &[u8]) {
        self.effects.take_noted(self.keys);
        if self.settings.events.has(class) {
            let database = self.keys.database();
            self.effects.events.push(KeyEvent { name, database, key: key.into() });
        }
    }

    /// What replicas and the log get instead of the command itself.
    pub(crate) fn trace(&mut self, instead: Vec<Request>) {
        self.effects.trace = if instead.is_empty() { Trace::Nothing } else { Trace::Instead(instead) };
    }

    /// The same for one command, which is made only if there is a log or a replica to get it.
    #[inline]
    pub(crate) fn trace_as(&mut self, instead: impl FnOnce(&Self) -> Request) {
        self.effects.trace = if self.engine.is_heard() { Trace::Instead(vec![instead(self)]) } else { Trace::Nothing };
    }

    /// The command found nothing: it waits, or replies as if the time were over where it may not.
    pub(crate) fn wait(&mut self, wait: Wait) {
        if self.may_wait {
            self.effects.wait = Some(wait);
        } else {
            self.reply.null_array();
        }
    }

    /// Until when a command waits that has the seconds in word `at`; nothing is for ever.
    ///
    /// # Errors
    /// It is no number, negative or out of range.
    pub(crate) fn deadline(&self, at: usize) -> Result<Option<Instant>, Error> {
        let word = &self.args[at];
        let is_number = word.first().is_some_and(u8::is_ascii_graphic);
        let seconds = parse_freely(word).filter(|_| is_number).ok_or(Error::TIMEOUT_NOT_FLOAT)?;
        let ms = (seconds * 1_000.0).ceil();
        if ms < 0.0 {
            return Err(Error::TIMEOUT_NEGATIVE);
        }
        if ms >= TIMEOUT_MS_END {
            return Err(Error::TIMEOUT_OUT_OF_RANGE);
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is whole, and within an i64")]
        let ms = ms as u64;
        self.deadline_in(ms)
    }

    /// Until when a command waits that is given milliseconds; nothing is for ever.
    ///
    /// # Errors
    /// It is out of range.
    pub(crate) fn deadline_in(&self, ms: u64) -> Result<Option<Instant>, Error> {
        let is_possible = i64::try_from(ms).is_ok_and(|ms| self.now.unix_ms().checked_add(ms).is_some());
        if !is_possible {
            return Err(Error::TIMEOUT_OUT_OF_RANGE);
        }
        Ok((ms > 0).then(|| self.now.instant + Duration::from_millis(ms)))
    }

    /// Whether a key that shall expire at this time, Unix milliseconds, has expired at once.
    pub(crate) fn has_passed(&self, at_ms: i64) -> bool {
        at_ms <= self.now.unix_ms() && !self.settings.imports && !self.engine.role.is_replica()
    }

    /// Whether a point in time, Unix milliseconds, is still to come. What a primary says it has judged by its own clock.
    pub(crate) fn has_yet_to_come(&self, at_ms: i64) -> bool {
        let is_told = self.client.is_primary || self.client.import.is_some();
        at_ms > self.now.unix_ms() && !is_told
    }

    /// Takes a key out that is there and that the command has let expire, and tells everybody.
    pub(crate) fn expire_at_once(&mut self, key: Key<'_>) {
        self.keys.remove_expired(key);
        self.changed(key, Events::EXPIRED, "expired");
        self.trace_as(|call| [removal(call.settings.memory.expires_later), key.bytes].into_iter().collect());
    }

    /// An integer that stands in word `at`.
    ///
    /// # Errors
    /// It is none.
    pub(crate) fn integer(&self, at: usize) -> Result<i64, Error> {
        crate::resp::number::parse_i64(&self.args[at]).ok_or(Error::NOT_INTEGER)
    }
}
