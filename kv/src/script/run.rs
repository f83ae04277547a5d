//! One script while it runs: what it may call, and what becomes of what it returns.

use mlua::{RegistryKey, Value};

use super::arguments::text_of;
use super::convert::Writer;
use super::flags::ScriptFlags;
use super::machine::{Ended, Exchange, Machine, Purpose, Wish};
use crate::acl::Context;
use crate::client::Client;
use crate::cluster::Cluster;
use crate::cluster::route::{self, Astray, Question};
use crate::command::call::Call;
use crate::command::run::{self, Frame, NotReady, Ready};
use crate::command::spec::Flags;
use crate::engine::Engine;
use crate::error::Error;
use crate::resp::{Args, Reply};

/// What runs, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Order<'a> {
    /// The digest of a script, or the name of a function.
    pub(crate) name: &'a str,
    /// What it says about itself, if it says anything.
    pub(crate) flags: Option<ScriptFlags>,
    /// The command that runs it lets it change nothing.
    pub(crate) is_readonly: bool,
    /// How many of the words behind word 2 are keys.
    pub(crate) keys: usize,
    pub(crate) purpose: Purpose,
}

/// Reads how many keys a call names, word 2.
///
/// # Errors
/// It is no number, negative, or there are not so many words; `not_number` is for the first.
pub(crate) fn count_keys(call: &Call<'_, '_>, not_number: Error) -> Result<usize, Error> {
    let count = call.integer(2).map_err(|_| not_number)?;
    let words = call.args.len() - 3;
    match usize::try_from(count) {
        Ok(count) if count <= words => Ok(count),
        Ok(_) => Err(Error::new("ERR Number of keys can't be greater than number of args")),
        Err(_) => Err(Error::new("ERR Number of keys can't be negative")),
    }
}

/// Runs a script, and replies what it returns.
///
/// # Errors
/// It may not run, or it failed and statistics do not know of it yet.
pub(crate) fn run(
    call: &mut Call<'_, '_>,
    machine: &mut Machine,
    function: &RegistryKey,
    order: Order<'_>,
) -> Result<(), Error> {
    if call.engine.is_stale(call.settings) {
        match order.flags {
            None => return Err(Error::STALE),
            Some(flags) if flags.has(ScriptFlags::ALLOW_STALE) => {}
            Some(_) => {
                return Err(Error::new(
                    "MASTERDOWN Link with MASTER is down, replica-serve-stale-data is set to 'no' and 'allow-stale' flag is not \
                     set on the script.",
                ));
            }
        }
    }
    let promises_nothing = order.flags.is_some_and(|flags| !flags.has(ScriptFlags::NO_WRITES));
    if promises_nothing && call.engine.refuses_writes(call.settings, call.client) {
        return Err(Error::new("READONLY Can not run script with write flag on readonly replica"));
    }
    if promises_nothing && order.is_readonly {
        return Err(Error::new("ERR Can not execute a script with write flag using *_ro command."));
    }
    let shuns_clusters = order.flags.is_some_and(|flags| flags.has(ScriptFlags::NO_CLUSTER));
    if shuns_clusters && call.engine.cluster().is_some() {
        return Err(Error::new("ERR Can not run script on cluster, 'no-cluster' flag is set."));
    }
    if promises_nothing && call.engine.lacks_replicas(call.settings, call.now) {
        return Err(Error::NO_REPLICAS);
    }
    let may_fill = order.flags.is_some_and(|flags| flags.has(ScriptFlags::ALLOW_OOM));
    let judges_itself = order.flags.is_some_and(|flags| !flags.has(ScriptFlags::NO_WRITES));
    if call.client.is_memory_full && judges_itself && !may_fill {
        return Err(Error::new(
            "OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'",
        ));
    }
    let database = call.client.database;
    let turn = call.engine.scripts.running.begin(order.purpose, order.name, call.args, call.now.instant);
    let is_readonly = order.is_readonly || order.flags.is_some_and(|flags| flags.has(ScriptFlags::NO_WRITES));
    let (keys, arguments) = (call.args.from(3).take(order.keys), call.args.from(3 + order.keys));
    let ended = {
        let may_cross = order.flags.is_none_or(|flags| flags.has(ScriptFlags::ALLOW_CROSS_SLOT_KEYS));
        let mut script = Script { call: &mut *call, is_readonly, may_fill, may_cross, has_written: false };
        let are_global = order.purpose == Purpose::Scripts;
        machine.run(function, (keys, arguments), are_global, |exchange| script.obey(exchange))
    };
    drop(turn);
    call.effects.ran_script = true;
    // A script may choose a database for itself.
    call.client.database = database;
    call.keys.select(database);
    // What it called is written down already.
    call.trace(Vec::new());
    let script_protocol = machine.exchange().lock().protocol;
    let failed = |what: &str| Error::text(format!("ERR Error running script {}, {}", order.name, shortened(what)));
    match ended {
        Ok(Ended { is_ok: true, value }) => {
            let engine = call.engine;
            let count = |error: &Error| engine.count_error(error);
            let mut writer = Writer { reply: call.reply, script: script_protocol, count: &count, next: machine.next() };
            writer.write(&value).map_err(|_| failed("not enough memory"))
        }
        Ok(Ended { is_ok: false, value: Value::Table(error) }) => reply_error(call.reply, &error, order.name),
        Ok(Ended { is_ok: false, value }) => {
            let text = text_of(&value).unwrap_or_else(|| b"execution failure".to_vec());
            Err(failed(&String::from_utf8_lossy(&text)))
        }
        Err(_) => Err(failed("not enough memory")),
    }
}

/// How much of a message is repeated.
fn shortened(what: &str) -> &str {
    const BYTES_MAX: usize = 100;
    &what[..what.floor_char_boundary(BYTES_MAX)]
}

/// Replies an error that a script threw, with the place where.
fn reply_error(reply: &mut Reply, error: &mlua::Table, name: &str) -> Result<(), Error> {
    let field = |field: &str| error.get::<Value>(field).ok().and_then(|value| text_of(&value));
    let mut text = field("err").unwrap_or_else(|| b"ERR unknown error".to_vec());
    if let (Some(source), Some(line)) = (field("source"), field("line")) {
        text.extend_from_slice(format!(" script: {name}, on ").as_bytes());
        text.extend_from_slice(&[source.as_slice(), b":", &line, b"."].concat());
    }
    // One line, and its first word is what is counted.
    let text = String::from_utf8_lossy(&text).replace(['\r', '\n'], " ");
    if matches!(error.get("ignore_error_stats_update"), Ok(Value::Boolean(true))) {
        reply.error(&text);
        return Ok(());
    }
    Err(Error::text(text))
}

/// A script, from the side of the command that runs it.
struct Script<'s, 'c, 'k> {
    call: &'s mut Call<'c, 'k>,
    is_readonly: bool,
    /// It may call what needs memory although that is full.
    may_fill: bool,
    /// Its keys may be in several slots of a cluster.
    may_cross: bool,
    /// It has called a command that writes: from here on it must not be stopped half-way.
    has_written: bool,
}

impl Script<'_, '_, '_> {
    /// Does what the script wishes.
    fn obey(&mut self, exchange: &mut Exchange) {
        let Exchange { wish, request, reply, protocol, .. } = exchange;
        reply.set_protocol(*protocol);
        let args = request.args();
        match wish {
            Wish::Run => self.run(args, reply),
            Wish::Check => self.check(args, reply),
        }
    }

    /// Runs a command.
    fn run(&mut self, args: Args<'_>, reply: &mut Reply) {
        match self.admit(args) {
            Ok(ready) => {
                if ready.spec().flags.has(Flags::WRITE) {
                    self.has_written = true;
                    self.call.engine.scripts.running.wrote();
                }
                let Call { engine, settings, now, .. } = *self.call;
                let frame = Frame { engine, settings, now, may_wait: false, is_script: true };
                let Call { client, keys, effects, .. } = &mut *self.call;
                run::run(&frame, ready, args, client, keys, reply, effects);
            }
            Err(error) => {
                self.call.engine.count_error(&error);
                if let Ok(Ready { command, .. }) | Err(NotReady::WrongNumber(command)) =
                    run::look_up(self.call.engine, args)
                {
                    self.call.client.meter.reject(command.number);
                }
                reply.error(error.as_str());
            }
        }
    }

    /// Says whether the client may run a command.
    fn check(&self, args: Args<'_>, reply: &mut Reply) {
        match run::look_up(self.call.engine, args) {
            Ok(ready) => reply.boolean(may(self.call.engine, self.call.client, ready, args)),
            Err(NotReady::WrongNumber(_)) => reply.boolean(true),
            Err(_) => reply.error("ERR no such command"),
        }
    }

    /// Finds a command that the script may call.
    fn admit(&mut self, args: Args<'_>) -> Result<Ready, Error> {
        let ready = run::look_up(self.call.engine, args).map_err(|error| match error {
            NotReady::WrongNumber(_) => Error::new("ERR Wrong number of args calling command from script"),
            _ => Error::new("ERR Unknown command called from script"),
        })?;
        let flags = ready.spec().flags;
        if flags.has(Flags::NOSCRIPT) && !self.call.engine.switches.scripts_run_all.is_on() {
            return Err(Error::new("ERR This Redis command is not allowed from script"));
        }
        let Call { engine, client, now, .. } = &*self.call;
        engine.permit(client, ready.command, args, Context::Script, now.unix_ms()).map_err(|denial| {
            let why = denial.text(&client.user.name, ready.command);
            Error::text(format!("NOPERM ACL failure in script: {why}"))
        })?;
        if self.is_readonly && (flags.has(Flags::WRITE) || flags.has(Flags::MAY_REPLICATE)) {
            return Err(Error::new("ERR Write commands are not allowed from read-only scripts."));
        }
        if flags.has(Flags::WRITE) && engine.refuses_writes(self.call.settings, client) {
            return Err(Error::READ_ONLY);
        }
        if !flags.has(Flags::STALE) && engine.is_stale(self.call.settings) {
            return Err(Error::new("ERR Can not execute the command on a stale replica"));
        }
        let is_alone = flags.has(Flags::WRITE) && engine.lacks_replicas(self.call.settings, *now);
        if is_alone && !self.has_written {
            return Err(Error::NO_REPLICAS);
        }
        if client.is_memory_full && !self.may_fill && !self.has_written && flags.has(Flags::DENYOOM) {
            return Err(Error::MEMORY_FULL);
        }
        if let Some(cluster) = engine.cluster() {
            self.stay_here(cluster, ready, args)?;
        }
        Ok(ready)
    }
}

impl Script<'_, '_, '_> {
    /// A node of a cluster lets a script touch only keys that it serves, and unless the script says otherwise only those of one slot.
    fn stay_here(&mut self, cluster: &Cluster, ready: Ready, args: Args<'_>) -> Result<(), Error> {
        let Call { client, settings, .. } = &mut *self.call;
        // Whoever is sent nowhere has not looked: a replica's link.
        let Some(map) = client.sight.seen() else { return Ok(()) };
        let away = || Error::new("ERR Attempted to access a non local key in a cluster node");
        let Some(question) = Question::of_call(ready, args, None).map_err(|_| away())? else { return Ok(()) };
        route::judge(cluster, map, settings, client, question).map_err(|astray| {
            let name = ready.command.full_name();
            match astray {
                Astray::DownForWrites => Error::text(format!(
                    "ERR Can not execute a write command '{name}' while the cluster is down and readonly"
                )),
                Astray::Down => {
                    Error::text(format!("ERR Can not execute a command '{name}' while the cluster is down"))
                }
                _ => away(),
            }
        })?;
        let slot = *client.slot.get_or_insert(question.slot);
        if !self.may_cross && slot != question.slot {
            return Err(Error::new("ERR Script attempted to access keys that do not hash to the same slot"));
        }
        client.crosses_slots |= slot != question.slot;
        Ok(())
    }
}

/// Whether a client may run a command.
fn may(engine: &Engine, client: &Client, ready: Ready, args: Args<'_>) -> bool {
    client.user.may_do_everything() || client.user.check(ready.command, args, engine.databases_of(client)).is_ok()
}
