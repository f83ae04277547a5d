//! What the primary did is done here too: on the same data, so it does the same.
//!
//! For the primary nothing has expired that it does not say has: its commands run as if time had not begun. They ask nobody's leave.

use std::sync::Arc;

use super::Fault;
use super::units::{Unit, Units};
use crate::acl::User;
use crate::client::Client;
use crate::client::card::Card;
use crate::command::Effects;
use crate::command::run::{self, Frame, access};
use crate::command::spec::{Flags, Spec};
use crate::engine::Engine;
use crate::keyspace::{Keys, Lock};
use crate::replicate::quorum::{Members, Term};
use crate::resp::{Args, Protocol, Reply, Request};
use crate::settings::Settings;
use crate::time::Now;

/// Does what the primary did.
#[derive(Debug)]
pub(super) struct Applier {
    client: Client,
    reply: Reply,
    effects: Effects,
    settings: Arc<Settings>,
    settings_version: u64,
}

/// What became of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Applied {
    Done,
    /// A script holds the keys, or files are read: it is to be tried again.
    Later,
    /// The role has changed. Nothing was done.
    Stale,
}

impl Applier {
    /// For the primary at the other end of a connection, which others see as this card.
    pub(super) fn new(engine: &Engine, card: Arc<Card>, database: usize) -> Self {
        let mut client = Client::again(card, User::superuser());
        (client.is_again, client.is_primary, client.database) = (false, true, database);
        client.publish();
        Self {
            client,
            reply: Reply::new(Protocol::Resp2),
            effects: Effects::default(),
            settings: engine.settings().without_client_limits(),
            settings_version: engine.settings_version(),
        }
    }

    /// The other end, as others see it.
    pub(super) fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// Does a unit, for a turn of the role, and passes it on to whoever follows this server.
    ///
    /// # Errors
    /// It cannot be done here: the data would be other than the primary's.
    pub(super) fn apply(
        &mut self,
        engine: &Engine,
        unit: &Unit,
        units: &Units,
        turn: u64,
        now: Now,
    ) -> Result<Applied, Fault> {
        if self.settings_version != engine.settings_version() {
            self.settings_version = engine.settings_version();
            self.settings = engine.settings().without_client_limits();
        }
        if engine.is_loading() {
            return Ok(Applied::Later);
        }
        self.client.meter.request_bytes = units.bytes().len();
        match unit {
            Unit::One => self.apply_one(engine, units.args(), units.bytes(), turn, now),
            Unit::Many(calls) => self.apply_all(engine, calls, units.bytes(), turn, now),
        }
    }

    fn apply_one(
        &mut self,
        engine: &Engine,
        args: Args<'_>,
        bytes: &[u8],
        turn: u64,
        now: Now,
    ) -> Result<Applied, Fault> {
        let before = self.client.database;
        let ready = if args.len() == 0 || is_for_us(args) { None } else { Some(run::find(engine, args)) };
        let ready = match ready {
            Some(Ok(ready)) if may_come(ready.spec()) => ready,
            Some(Err(error)) => return Err(not_applied(engine, error.as_str(), args)),
            _ => {
                let is_passed_on = engine.replication.relay(turn, bytes, before);
                if is_passed_on {
                    note_record(engine, args);
                }
                return Ok(stale_unless(is_passed_on));
            }
        };
        let keys = run::lock(engine, &self.settings, ready, (args, None), before, now);
        let Some(mut keys) = keys else { return Ok(Applied::Later) };
        if engine.role.turn() != turn {
            return Ok(Applied::Stale);
        }
        keys.set_now(0);
        self.run(engine, args, &mut keys, now)?;
        self.finish(engine, keys, bytes, turn, now)
    }

    fn apply_all(
        &mut self,
        engine: &Engine,
        calls: &[Request],
        bytes: &[u8],
        turn: u64,
        now: Now,
    ) -> Result<Applied, Fault> {
        let keys = if calls.is_empty() {
            let clock = access(&self.settings, now);
            Some(engine.keyspace.lock(Lock::Nothing, self.client.database, 0, clock))
        } else {
            run::lock_all(engine, &self.settings, calls, &[], self.client.database, now)
        };
        let Some(mut keys) = keys else { return Ok(Applied::Later) };
        if engine.role.turn() != turn {
            return Ok(Applied::Stale);
        }
        keys.set_now(0);
        for call in calls {
            if is_for_us(call.args()) {
                continue;
            }
            if let Err(fault) = self.run(engine, call.args(), &mut keys, now) {
                // What was done of the transaction is in the data until the dump comes; so it is in our log.
                engine.settle(&self.settings, &mut keys, &mut self.effects);
                return Err(fault);
            }
        }
        self.finish(engine, keys, bytes, turn, now)
    }

    /// Runs one command.
    fn run(&mut self, engine: &Engine, args: Args<'_>, keys: &mut Keys<'_>, now: Now) -> Result<(), Fault> {
        let Self { client, reply, effects, settings, .. } = self;
        let ready = match run::find(engine, args) {
            Ok(ready) if may_come(ready.spec()) => ready,
            Ok(_) => return Ok(()),
            Err(error) => return Err(not_applied(engine, error.as_str(), args)),
        };
        client.traffic.last = u64::from(ready.command.number) + 1;
        let frame = Frame { engine, settings, now, may_wait: false, is_script: false };
        run::run(&frame, ready, args, client, keys, reply, effects);
        let refusal = reply.bytes().strip_prefix(b"-").map(|line| String::from_utf8_lossy(line).trim_end().to_owned());
        reply.buffer().clear();
        match refusal {
            Some(_) if args.is(0, "SELECT") => {
                Err(Fault::new("it has more databases than we have: `databases` must be greater"))
            }
            Some(line) if ready.spec().flags.has(Flags::WRITE) => Err(not_applied(engine, &line, args)),
            // A script may fail after its effects, and fails here too.
            Some(line) => {
                engine.replication.note_unexpected(&line);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Passes on what was done, with the keys still locked.
    fn finish(
        &mut self,
        engine: &Engine,
        mut keys: Keys<'_>,
        bytes: &[u8],
        turn: u64,
        now: Now,
    ) -> Result<Applied, Fault> {
        engine.settle(&self.settings, &mut keys, &mut self.effects);
        let is_passed_on = engine.replication.relay(turn, bytes, self.client.database);
        drop(keys);
        let mut found = std::mem::take(&mut self.effects.ready);
        if std::mem::take(&mut self.effects.ran_script) {
            found.extend(engine.scripts.take_deferred());
        }
        if !found.is_empty() {
            engine.serve(found, &self.settings, now);
        }
        Ok(stale_unless(is_passed_on))
    }
}

/// A write of the primary cannot be done here: this server acknowledges no more, and asks for a dump.
fn not_applied(engine: &Engine, why: &str, args: Args<'_>) -> Fault {
    const SHOWN_BYTES_MAX: usize = 64;
    engine.replication.note_unexpected(why);
    let name = args.get(0).unwrap_or_default();
    let name = name[..name.len().min(SHOWN_BYTES_MAX)].escape_ascii();
    Fault::diverged(format!("`{name}` of the primary cannot be applied here, a full copy is asked for: {why}"))
}

/// Whether this is a record of a term and its members.
pub(super) fn is_record(args: Args<'_>) -> bool {
    args.len() == 4 && args.is(0, "REPLCONF") && args.is(1, "ASHLAR-TERM")
}

/// A record of terms and members may have come.
fn note_record(engine: &Engine, args: Args<'_>) {
    if !is_record(args) {
        return;
    }
    let text = |at: usize| std::str::from_utf8(&args[at]).ok();
    let read = || Some((Term::read(text(2)?)?, Members::read(text(3)?)?));
    let Some((term, members)) = read() else { return };
    engine.replication.note_record(term, members.clone());
    if let Some(map) = engine.map() {
        engine.promises.note_members(map.own().shard, &members);
    }
}

fn stale_unless(is_passed_on: bool) -> Applied {
    if is_passed_on { Applied::Done } else { Applied::Stale }
}

/// Whether a primary may have a command done: what is about data, messages or scripts, and which database it is about. Others are
/// passed on and not done, because they are about a connection or a server.
fn may_come(spec: &Spec) -> bool {
    const OTHERS: [&str; 9] =
        ["select", "eval", "eval_ro", "evalsha", "evalsha_ro", "fcall", "fcall_ro", "load", "flush"];
    spec.flags.has(Flags::WRITE) || spec.flags.has(Flags::MAY_REPLICATE) || OTHERS.contains(&spec.name)
}

/// What is said to the replica and not about data.
pub(super) fn is_for_us(args: Args<'_>) -> bool {
    args.is(0, "REPLCONF") || args.is(0, "PING")
}
