//! `MIGRATE`: keys go to another server, which takes them with RESTORE.
//!
//! The keys stay locked until the other server has answered, so that each is on one server at any moment; others who want keys
//! of the same shards wait as long. A connection is kept for a while: whoever moves slots calls this again and again.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ashlar_wire::time::Instant;

use super::call::{Call, Run};
use super::dump;
use crate::error::Error;
use crate::network::{Broken, Line};
use crate::rdb::Encoder;
use crate::resp::number::Decimal;
use crate::settings::Events;

/// Connections that are kept.
const LINES_MAX: usize = 64;
/// How long one is kept after its last use.
const LINE_KEPT: Duration = Duration::from_secs(10);
/// How long the other server may take for a step where the caller wants no limit.
const SPAN_MS: u64 = 1_000;
/// Bytes that are sent in one step.
const STEP_BYTES: usize = 64 << 10;
/// The longest line of a reply that is looked at; what is behind is skipped.
const LINE_BYTES_MAX: usize = 1_023;
const UNREACHED: Error = Error::new("IOERR error or timeout connecting to the client");

pub(super) const RUNS: &[(&str, Run)] = &[("migrate", migrate)];

/// A host and a port.
type Target = (Box<[u8]>, Box<[u8]>);

/// Connections that are kept.
#[derive(Debug, Default)]
pub(crate) struct Lines(Mutex<BTreeMap<Target, Open>>);

/// A connection to another server.
#[derive(Debug)]
struct Open {
    line: Box<dyn Line>,
    /// What was read and belongs to the next reply.
    rest: Vec<u8>,
    /// The database that it is in, if that is known.
    database: Option<i64>,
    used: Instant,
}

impl Lines {
    fn take(&self, host: &[u8], port: &[u8]) -> Option<Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&(host.into(), port.into()))
    }

    fn keep(&self, host: &[u8], port: &[u8], open: Open) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= LINES_MAX {
            kept.pop_first();
        }
        kept.insert((host.into(), port.into()), open);
    }

    /// Closes what was not used for a while.
    pub(crate) fn handle_tick(&self, now: Instant) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|_, open| now.saturating_since(open.used) <= LINE_KEPT);
    }
}

/// What is asked for.
struct Order<'c> {
    copies: bool,
    replaces: bool,
    user: Option<&'c [u8]>,
    password: Option<&'c [u8]>,
    keys: Vec<&'c [u8]>,
    database: i64,
    span: Duration,
}

/// How it went.
#[derive(Debug, Default)]
struct Outcome {
    /// Keys about which it said something.
    answered: usize,
    /// Keys that the other server has taken, by their number.
    taken: Vec<usize>,
    /// What it said against it, first.
    refusal: Option<Vec<u8>>,
    /// Why nothing more came, and whether that was seen when writing.
    broken: Option<(Broken, &'static str)>,
}

fn migrate(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let mut order = read_order(call)?;
    order.keys.retain(|name| {
        let key = call.keys.key(name);
        call.keys.read(key).is_some()
    });
    if order.keys.is_empty() {
        call.reply.status("NOKEY");
        return Ok(());
    }
    let (host, port) = (call.args[1].to_vec(), call.args[2].to_vec());
    let mut may_retry = true;
    let outcome = loop {
        let mut open = open(call, &host, &port, order.span)?;
        let selects = open.database != Some(order.database);
        let requests = write_requests(call, &order, selects);
        let outcome = exchange(&mut open, &order, selects, &requests);
        // A connection that was kept may have been closed by the other side long ago.
        let is_stale = outcome.answered == 0 && matches!(outcome.broken, Some((Broken::Gone, _)));
        if is_stale && may_retry {
            may_retry = false;
            continue;
        }
        if outcome.broken.is_none() {
            open.database = outcome.refusal.is_none().then_some(order.database);
            open.used = call.engine.host.now();
            call.engine.lines.keep(&host, &port, open);
        }
        break outcome;
    };
    if !order.copies {
        let gone: Vec<&[u8]> = outcome.taken.iter().map(|at| order.keys[*at]).collect();
        forget(call, &gone);
    }
    match outcome {
        Outcome { refusal: Some(line), .. } => {
            let line = String::from_utf8_lossy(&line).into_owned();
            Err(Error::text(format!("ERR Target instance replied with error: {line}")))
        }
        Outcome { broken: Some((_, what)), .. } => {
            Err(Error::text(format!("IOERR error or timeout {what} to target instance")))
        }
        Outcome { .. } => {
            call.reply.ok();
            Ok(())
        }
    }
}

fn read_order<'c>(call: &Call<'c, '_>) -> Result<Order<'c>, Error> {
    let args = call.args;
    let word = |at: usize| args.get(at).ok_or(Error::SYNTAX);
    let (mut copies, mut replaces, mut user, mut password) = (false, false, None, None);
    let (mut keys, mut at) = (vec![word(3)?], 6);
    while at < args.len() {
        match args[at].to_ascii_lowercase().as_slice() {
            b"copy" => copies = true,
            b"replace" => replaces = true,
            b"auth" => {
                at += 1;
                password = Some(word(at)?);
            }
            b"auth2" => {
                at += 2;
                (user, password) = (Some(word(at - 1)?), Some(word(at)?));
            }
            b"keys" if !args[3].is_empty() => {
                return Err(Error::new(
                    "ERR When using MIGRATE KEYS option, the key argument must be set to the empty string",
                ));
            }
            b"keys" => {
                keys = args.from(at + 1).collect();
                break;
            }
            _ => return Err(Error::SYNTAX),
        }
        at += 1;
    }
    let (timeout_ms, database) = (call.integer(5)?, call.integer(4)?);
    let span_ms = u64::try_from(timeout_ms).ok().filter(|ms| *ms > 0).unwrap_or(SPAN_MS);
    Ok(Order { copies, replaces, user, password, keys, database, span: Duration::from_millis(span_ms) })
}

/// The connection that is kept, or a new one.
fn open(call: &Call<'_, '_>, host: &[u8], port: &[u8], span: Duration) -> Result<Open, Error> {
    if let Some(kept) = call.engine.lines.take(host, port) {
        return Ok(kept);
    }
    let network = call.engine.network().ok_or(UNREACHED)?;
    let name = str::from_utf8(host).map_err(|_| UNREACHED)?;
    let number = str::from_utf8(port).ok().and_then(|port| port.parse().ok()).ok_or(UNREACHED)?;
    let line = network.dial(name, number, span).map_err(|_| UNREACHED)?;
    Ok(Open { line, rest: Vec::new(), database: None, used: call.engine.host.now() })
}

/// AUTH and SELECT where they are needed, and a RESTORE for each key.
fn write_requests(call: &mut Call<'_, '_>, order: &Order<'_>, selects: bool) -> Vec<u8> {
    let mut out = Vec::new();
    if let Some(password) = order.password {
        let words: Vec<&[u8]> = [&b"AUTH"[..]].into_iter().chain(order.user).chain([password]).collect();
        write_request(&mut out, &words);
    }
    if selects {
        write_request(&mut out, &[b"SELECT", Decimal::new(order.database).as_bytes()]);
    }
    let mut encoder = Encoder::new(call.settings.compresses, call.settings.list_fill);
    let now_ms = call.now.unix_ms();
    for name in &order.keys {
        let key = call.keys.key(name);
        let found = call.keys.peek(key).expect("it is locked, and the time stands still");
        let ttl_ms = found.record().expiry().map_or(0, |at_ms| (at_ms - now_ms).max(1));
        let payload = dump::payload_of(&mut encoder, found);
        let ttl = Decimal::new(ttl_ms);
        let verb = if call.engine.cluster().is_some() { &b"RESTORE-ASKING"[..] } else { b"RESTORE" };
        let words = [verb, name, ttl.as_bytes(), &payload, b"REPLACE"];
        write_request(&mut out, &words[..if order.replaces { 5 } else { 4 }]);
    }
    out
}

fn write_request(out: &mut Vec<u8>, words: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// Sends the requests and reads what comes back.
fn exchange(open: &mut Open, order: &Order<'_>, selects: bool, requests: &[u8]) -> Outcome {
    let mut outcome = Outcome::default();
    for step in requests.chunks(STEP_BYTES) {
        if let Err(why) = open.line.write(step, order.span) {
            outcome.broken = Some((why, "writing"));
            return outcome;
        }
    }
    let before = usize::from(order.password.is_some()) + usize::from(selects);
    // AUTH or SELECT was refused: what the other server takes all the same is not where it should be.
    let mut is_shut_out = false;
    for number in 0..before + order.keys.len() {
        let line = match read_line(open, order.span) {
            Ok(line) => line,
            Err(why) => {
                outcome.broken = Some((why, "reading"));
                return outcome;
            }
        };
        let refusal = line.strip_prefix(b"-");
        is_shut_out |= number < before && refusal.is_some();
        outcome.answered += usize::from(number >= before);
        if let Some(what) = refusal {
            outcome.refusal.get_or_insert_with(|| what.to_vec());
        } else if number >= before && !is_shut_out {
            outcome.taken.push(number - before);
        }
    }
    outcome
}

/// One line without its end.
fn read_line(open: &mut Open, span: Duration) -> Result<Vec<u8>, Broken> {
    let mut room = [0; 4 << 10];
    loop {
        if let Some(end) = open.rest.iter().position(|byte| *byte == b'\n') {
            let mut line: Vec<u8> = open.rest.drain(..=end).collect();
            line.pop();
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            line.truncate(LINE_BYTES_MAX);
            return Ok(line);
        }
        open.rest.truncate(LINE_BYTES_MAX);
        let count = open.line.read(&mut room, span)?;
        open.rest.extend_from_slice(&room[..count]);
    }
}

/// The keys are the other server's now.
fn forget(call: &mut Call<'_, '_>, gone: &[&[u8]]) {
    for name in gone {
        let key = call.keys.key(name);
        if call.keys.remove(key).is_some() {
            call.changed(key, Events::GENERIC, "del");
        }
    }
    if !gone.is_empty() {
        call.trace_as(|_| [&b"DEL"[..]].into_iter().chain(gone.iter().copied()).collect());
    }
}
