//! From words to effects: finding a command, refusing it, locking its keys, running it.

use ashlar_wire::time::Instant;

use super::call::{Call, Effects, Run, Trace};
use super::debug;
use super::spec::keys::keys_of;
use super::spec::table::{self, COMMANDS, COMMANDS_COUNT, Command};
use super::spec::{Begin, Find, Flags, Search, Spec};
use super::transaction;
use crate::client::Client;
use crate::engine::Engine;
use crate::error::Error;
use crate::keyspace::{AccessClock, Expired, Key, Keys, Lock, Manner, Slot};
use crate::persist::journal::Readers;
use crate::resp::{Args, Reply, Request};
use crate::serve::write_removed;
use crate::settings::{Events, Settings};
use crate::statistics::command_log::Seen;
use crate::statistics::meter::{Outcome, Ran};
use crate::statistics::slots::SlotCost;
use crate::time::Now;

/// How much of the words of an unknown command its error repeats.
const REPEATED_BYTES_MAX: usize = 128;

/// What runs each command, and which shards it needs, by the command's number.
#[derive(Debug)]
pub(crate) struct Runs {
    runs: Box<[Option<Run>]>,
    needs: Box<[Needs]>,
    natures: Box<[Nature]>,
}

/// What is known of a command beside its words.
#[derive(Debug, Clone, Copy)]
struct Nature {
    /// It always does the same work.
    is_steady: bool,
    /// It only runs others, which tell of themselves.
    runs_others: bool,
    /// It may change which commands are remembered.
    changes_settings: bool,
}

impl Nature {
    fn of(command: &Command) -> Self {
        let runs_others = runs_others(command);
        let is_steady = command.spec.docs.complexity == "O(1)" && needs(command) != Needs::Everything && !runs_others;
        Self { is_steady, runs_others, changes_settings: command.full_name() == "config|set" }
    }
}

/// Which shards a command needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// None: it touches no key.
    Nothing,
    /// That of the key in this word.
    Word(usize),
    /// Those of the keys that its specification finds.
    Keys,
    /// All of them.
    Everything,
}

/// Bytes of the request that begins a transaction.
const MULTI_BYTES: usize = 15;

/// Commands without keys in their words that nevertheless look at keys.
const EVERYTHING: [&str; 38] = [
    "cluster|countkeysinslot",
    "cluster|flushslot",
    "cluster|getkeysinslot",
    "cluster|slot-stats",
    "clusterscan",
    "dbsize",
    "debug",
    "eval",
    "evalsha",
    "eval_ro",
    "evalsha_ro",
    "fcall",
    "fcall_ro",
    "flushall",
    "config|resetstat",
    "flushdb",
    // Whoever looks at scripts holds all keys: so nobody does while one runs.
    "function|delete",
    "function|dump",
    "function|flush",
    "function|list",
    "function|load",
    "function|restore",
    "info",
    "keys",
    "memory|doctor",
    "memory|stats",
    // These change the role, or may.
    "psync",
    "randomkey",
    "replicaof",
    "scan",
    "script|exists",
    "script|flush",
    "script|load",
    "script|show",
    "slaveof",
    "sort",
    "sort_ro",
    "swapdb",
];

impl Runs {
    /// The table, from the families.
    ///
    /// # Panics
    /// A family runs a command that is not in the table.
    pub(crate) fn new() -> Self {
        let mut runs = vec![None; COMMANDS_COUNT].into_boxed_slice();
        for (name, run) in super::FAMILIES.iter().copied().flatten() {
            let command = table::find_full(name.as_bytes()).unwrap_or_else(|| panic!("`{name}` is in the table"));
            let before = runs[usize::from(command.number)].replace(*run);
            assert!(before.is_none(), "`{name}` has one family");
        }
        Self { runs, needs: COMMANDS.iter().map(needs).collect(), natures: COMMANDS.iter().map(Nature::of).collect() }
    }

    /// What runs a command, if anything does.
    pub(crate) fn run(&self, command: &Command) -> Option<Run> {
        self.runs[usize::from(command.number)]
    }

    /// Whether a command, or one of its subcommands, is there.
    pub(crate) fn has(&self, command: &Command) -> bool {
        self.run(command).is_some() || command.subcommands().iter().any(|sub| self.run(sub).is_some())
    }
}

fn needs(command: &Command) -> Needs {
    if EVERYTHING.contains(&command.full_name().as_str()) {
        return Needs::Everything;
    }
    let is_one = |spec: &Spec| spec.search == Search::Specs || spec.search == Search::Set;
    match command.spec.keys {
        [] => Needs::Nothing,
        [only] if is_one(command.spec) => match (only.begin, only.find) {
            (Begin::Index(at), Find::Range { last: 0, .. }) => Needs::Word(usize::try_from(at).unwrap_or(1)),
            _ => Needs::Keys,
        },
        _ => Needs::Keys,
    }
}

/// A command that was found and may run as far as its words go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ready {
    pub(crate) command: &'static Command,
    run: Run,
    needs: Needs,
    nature: Nature,
}

impl Ready {
    /// What is known of it.
    pub(crate) fn spec(self) -> &'static Spec {
        self.command.spec
    }
}

/// Why a command cannot run as its words stand.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NotReady {
    /// There is no such command.
    Unknown,
    /// This one has no such subcommand.
    UnknownSubcommand(&'static Command),
    /// It takes another number of words.
    WrongNumber(&'static Command),
}

/// Finds the command that these words call.
///
/// # Errors
/// There is none, or it takes another number of words.
pub(crate) fn find(engine: &Engine, args: Args<'_>) -> Result<Ready, Error> {
    look_up(engine, args).map_err(|error| match error {
        NotReady::Unknown => unknown(args),
        NotReady::UnknownSubcommand(command) => unknown_subcommand(command, &args[1]),
        NotReady::WrongNumber(command) => Error::wrong_number(&command.full_name()),
    })
}

/// The same for callers that word the error themselves.
///
/// # Errors
/// There is none, or it takes another number of words.
pub(crate) fn look_up(engine: &Engine, args: Args<'_>) -> Result<Ready, NotReady> {
    let command = table::find(&args[0]).filter(|command| engine.runs.has(command)).ok_or(NotReady::Unknown)?;
    let found = match args.get(1) {
        Some(word) if !command.spec.subcommands.is_empty() => {
            let sub = command.subcommand(word).filter(|sub| engine.runs.run(sub).is_some());
            sub.ok_or(NotReady::UnknownSubcommand(command))?
        }
        _ => command,
    };
    if !found.spec.takes(args.len()) {
        return Err(NotReady::WrongNumber(found));
    }
    let run = engine.runs.run(found).ok_or(NotReady::WrongNumber(found))?;
    let number = usize::from(found.number);
    Ok(Ready { command: found, run, needs: engine.runs.needs[number], nature: engine.runs.natures[number] })
}

fn unknown(args: Args<'_>) -> Error {
    let shorten = |word: &[u8], max: usize| String::from_utf8_lossy(&word[..word.len().min(max)]).into_owned();
    let mut rest = String::new();
    for word in args.from(1) {
        if rest.len() >= REPEATED_BYTES_MAX {
            break;
        }
        rest += &format!("'{}' ", shorten(word, REPEATED_BYTES_MAX - rest.len()));
    }
    let name = shorten(&args[0], REPEATED_BYTES_MAX);
    Error::text(format!("ERR unknown command '{name}', with args beginning with: {rest}"))
}

fn unknown_subcommand(command: &Command, word: &[u8]) -> Error {
    let word = String::from_utf8_lossy(&word[..word.len().min(REPEATED_BYTES_MAX)]).into_owned();
    let container = command.spec.name.to_ascii_uppercase();
    Error::text(format!("ERR unknown subcommand '{word}'. Try {container} HELP."))
}

/// The slots of the keys that a call names.
pub(crate) fn slots(ready: Ready, args: Args<'_>, into: &mut Vec<Slot>) {
    // Most commands without keys there fail as well, but PFMERGE with a target only does not: any word may be its key.
    if keys_of(ready.spec(), args, &mut |at, _| into.push(Slot::of(&args[at]))).is_err() {
        into.extend(args.from(1).map(Slot::of));
    }
}

/// Locks the keys that a call names, unless a script holds them that is slow. `hint` is what seems to be its key.
pub(crate) fn lock<'e>(
    engine: &'e Engine,
    settings: &Settings,
    ready: Ready,
    (args, hint): (Args<'_>, Option<Key<'_>>),
    database: usize,
    now: Now,
) -> Option<Keys<'e>> {
    let access = access(settings, now);
    let is_slow = engine.scripts.running.slow();
    let reads_files = engine.saves.is_served() && debug::reads_files(ready.command, args);
    let lock = |wanted: Lock<'_>| engine.keyspace.lock_unless(wanted, (database, now.unix_ms()), access, is_slow);
    match ready.needs {
        Needs::Nothing => lock(Lock::Nothing),
        Needs::Word(at) => match (args.get(at), hint) {
            (Some(word), Some(hint)) if std::ptr::eq(word, hint.bytes) => lock(Lock::Key(hint)),
            (Some(word), _) => lock(Lock::Key(engine.keyspace.key(word))),
            (None, _) => lock(Lock::Nothing),
        },
        Needs::Keys => {
            let mut found = Vec::new();
            slots(ready, args, &mut found);
            lock(Lock::Slots(&found))
        }
        // It waits for another thread that wants them.
        Needs::Everything if reads_files => lock(Lock::Nothing),
        Needs::Everything => lock(Lock::Everything),
    }
}

/// Locks the keys of several calls together, and those that are watched, unless a script holds them that is slow.
pub(crate) fn lock_all<'e>(
    engine: &'e Engine,
    settings: &Settings,
    calls: &[Request],
    watched: &[(usize, Box<[u8]>)],
    database: usize,
    now: Now,
) -> Option<Keys<'e>> {
    let mut found: Vec<Slot> = watched.iter().map(|(_, key)| Slot::of(key)).collect();
    let mut wants_all = false;
    for call in calls {
        // What cannot be found now will fail when it is run.
        let Ok(ready) = find(engine, call.args()) else { continue };
        wants_all |= ready.needs == Needs::Everything;
        slots(ready, call.args(), &mut found);
    }
    let wanted = if wants_all { Lock::Everything } else { Lock::Slots(&found) };
    let is_slow = engine.scripts.running.slow();
    engine.keyspace.lock_unless(wanted, (database, now.unix_ms()), access(settings, now), is_slow)
}

/// How uses of keys are noted now.
pub(crate) fn access(settings: &Settings, now: Now) -> AccessClock {
    AccessClock {
        growth: settings.lfu_growth,
        decay_minutes: settings.lfu_decay_minutes,
        ..AccessClock::new(settings.policy, now.unix_ms())
    }
}

/// What a command runs in.
pub(crate) struct Frame<'f> {
    pub(crate) engine: &'f Engine,
    pub(crate) settings: &'f Settings,
    pub(crate) now: Now,
    pub(crate) may_wait: bool,
    /// A script has called it.
    pub(crate) is_script: bool,
}

/// Runs a command with its keys locked. Its reply is written, an error too.
pub(crate) fn run(
    frame: &Frame<'_>,
    ready: Ready,
    args: Args<'_>,
    client: &mut Client,
    keys: &mut Keys<'_>,
    reply: &mut Reply,
    effects: &mut Effects,
) {
    let mark = reply.mark();
    let Frame { engine, settings, now, may_wait, .. } = *frame;
    let (database, changes) = (keys.database(), effects.changes);
    keys.behave(manner(engine, settings, client));
    let is_monitored = engine.monitors.is_on() && !ready.spec().flags.has(Flags::ADMIN);
    let is_shown_first = ready.spec().flags.has(Flags::SKIP_MONITOR);
    if is_monitored && is_shown_first {
        engine.monitors.show(client, ready.command, args, frame.is_script, now);
    }
    if !ready.nature.is_steady {
        client.meter.settle(engine);
    }
    // Those inside it read the clock for themselves.
    let begun = ready.nature.runs_others.then(|| client.meter.read(engine));
    keys.keep_access(client.wishes.no_touch && ready.spec().name != "touch");
    // For a primary nothing has expired that it does not say has.
    let is_told = client.is_primary || client.import.is_some() && ready.spec().flags.has(Flags::WRITE);
    let seen = if is_told { now.before_all() } else { now };
    let mut call = Call { engine, settings, now: seen, args, reply, keys, client, effects, may_wait };
    let done = (ready.run)(&mut call);
    // A script writes its own errors.
    let has_failed = done.is_err() || ready.nature.runs_others && reply.since(mark).starts_with(b"-");
    let outcome = if has_failed { Outcome::Failed } else { Outcome::Done };
    if let Err(error) = done {
        reply.rewind(mark);
        reply.error(error.as_str());
        engine.count_error(&error);
    }
    if effects.wait.is_none() {
        measure(frame, ready, args, client, (outcome, reply.len_since(mark), begun));
    }
    if client.tracking.is_some() {
        remember_reads(engine, ready, args, client);
        engine.limit_tracking(settings.tracking_keys_max);
    }
    // One that waits is shown when it came, and not again when it is served.
    if is_monitored && !is_shown_first && !client.is_again {
        engine.monitors.show(client, ready.command, args, frame.is_script, now);
    }
    let trace = std::mem::take(&mut effects.trace);
    if engine.is_heard() {
        let has_changed = effects.changes != changes;
        write_down(frame, ready, args, (database, trace, has_changed), keys, effects);
    }
}

/// Writes down for the log and replicas what a command did; keys that were found to have expired before what it did itself.
fn write_down(
    frame: &Frame<'_>,
    ready: Ready,
    args: Args<'_>,
    (database, trace, has_changed): (usize, Trace, bool),
    keys: &mut Keys<'_>,
    effects: &mut Effects,
) {
    let gone = keys.take_untold();
    write_removed(&gone, frame.settings.memory.expires_later, &mut effects.written);
    let before = effects.written.commands();
    effects.is_scattered = ready.spec().flags.has(Flags::TOUCHES_ARBITRARY_KEYS);
    match trace {
        Trace::AsIs if !has_changed || ready.nature.runs_others => {}
        Trace::AsIs => effects.written.push(database, args.from(0)),
        Trace::ToReplicas => effects.written.push_for(Readers::Replicas, database, args.from(0)),
        Trace::Nothing => {}
        Trace::Instead(requests) => {
            requests.iter().for_each(|request| effects.written.push(database, request.args().from(0)));
        }
    }
    effects.has_logged |= effects.written.commands() > before && ready.spec().flags.has(Flags::WRITE);
}

/// What a client's command does with keys that it comes upon.
#[inline]
fn manner(engine: &Engine, settings: &Settings, client: &Client) -> Manner {
    let expired = match (settings.imports, client.wishes.import_source) {
        _ if client.obeys_nobody() => Expired::Seen,
        _ if engine.role.is_replica() && settings.replication.is_read_only => Expired::Kept,
        _ if engine.role.is_replica() => Expired::Hidden,
        // A pause promises that nothing changes.
        (false, _) if engine.pause.is_on() => Expired::Hidden,
        (false, _) => Expired::TakenOut,
        (true, false) => Expired::Hidden,
        (true, true) => Expired::Seen,
    };
    Manner { expired, notes_new: settings.events.has(Events::NEW), notes_missed: settings.events.has(Events::MISS) }
}

/// Counts a command that ran, and keeps it where it is remarkable.
#[inline]
fn measure(
    frame: &Frame<'_>,
    ready: Ready,
    args: Args<'_>,
    client: &mut Client,
    (outcome, reply_bytes, begun): (Outcome, usize, Option<Instant>),
) {
    let Frame { engine, settings, now, .. } = *frame;
    // Whether it is remembered is as it has just said.
    let changed = ready.nature.changes_settings.then(|| engine.settings());
    let settings = changed.as_deref().unwrap_or(settings);
    let is_steady = ready.nature.is_steady;
    let ran = Ran { command: ready.command.number, outcome, is_steady, reply_bytes, begun };
    client.traffic.commands += 1;
    let nanos = client.meter.note(engine, &settings.logs, ran);
    if settings.logs.counts_slots && frame.may_wait && engine.cluster().is_some() {
        count_slot(engine, client, transaction::is_exec(ready.command), nanos.unwrap_or(0), reply_bytes);
    }
    let flags = ready.spec().flags;
    if let Some(ms) = nanos.map(|nanos| nanos / 1_000_000)
        && settings.logs.latency_ms > 0
        && ms >= settings.logs.latency_ms
    {
        let event = if flags.has(Flags::FAST) { "fast-command" } else { "command" };
        engine.statistics.latency.note(event, ms, now.unix_us.div_euclid(1_000_000));
    }
    if !flags.has(Flags::SKIP_SLOWLOG) {
        let request_bytes = client.meter.request_bytes;
        let micros = nanos.map(|nanos| nanos / 1_000);
        let seen = Seen { command: ready.command, args, micros, request_bytes, reply_bytes };
        engine.statistics.logs.note(&settings.logs, client, seen, now);
    }
}

/// Counts what a client's command has cost its slot. What runs inside a transaction or a script is part of that.
fn count_slot(engine: &Engine, client: &Client, is_exec: bool, nanos: u64, reply_bytes: usize) {
    let Some(slot) = client.slot.filter(|_| !client.crosses_slots) else { return };
    let begin = if is_exec { MULTI_BYTES } else { 0 };
    let bytes_in = (client.meter.request_bytes + begin) as u64;
    engine.statistics.slots.add(slot, SlotCost { nanos, bytes_in, bytes_out: reply_bytes as u64 });
}

/// Notes what a client that tracks has read. Commands of scripts are noted by themselves.
fn remember_reads(engine: &Engine, ready: Ready, args: Args<'_>, client: &Client) {
    let is_read = ready.spec().flags.has(Flags::READONLY) && !ready.nature.runs_others;
    if is_read && client.tracking.as_ref().is_some_and(|mode| mode.remembers()) {
        // A call whose keys cannot be told has read none.
        let _ = keys_of(ready.spec(), args, &mut |at, _| engine.tracking.remember(&args[at], client.id));
    }
}

/// Whether a command only runs others, which have told the log themselves.
fn runs_others(command: &Command) -> bool {
    matches!(
        command.full_name().as_str(),
        "exec" | "eval" | "evalsha" | "eval_ro" | "evalsha_ro" | "fcall" | "fcall_ro"
    )
}
