//! What a replica says: SYNC, PSYNC, REPLCONF.

use super::call::{Call, Run};
use crate::cluster::map::Name;
use crate::error::Error;
use crate::replicate::quorum::Term;
use crate::replicate::{Introduction, Newcomer};

pub(super) const RUNS: &[(&str, Run)] = &[("sync", sync), ("psync", psync), ("replconf", replconf)];

/// The longest address that a replica may say it has.
const ADDRESS_BYTES_MAX: usize = 255;

fn sync(call: &mut Call<'_, '_>) -> Result<(), Error> {
    refuse_for_now(call)?;
    enter(call, true);
    Ok(())
}

fn psync(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let wanted = call.integer(2)?;
    if call.client.replica.is_some() || call.client.is_monitor {
        return Ok(());
    }
    if call.args.len() > 3 && call.args.is(3, "FAILOVER") {
        take_over(call)?;
    }
    refuse_for_now(call)?;
    let introduction = call.client.introduction.take().unwrap_or_default();
    let (history, engine) = (String::from_utf8_lossy(&call.args[1]).into_owned(), call.engine);
    let resumed = u64::try_from(wanted).ok().and_then(|wanted| {
        // It names the first byte that it wants, counted from 1.
        let position = wanted.checked_sub(1)?;
        engine.replication.resume(newcomer(call, &introduction, false), &history, position, &engine.identity)
    });
    if resumed.is_some() {
        Replicated::Partly.count(call);
        call.client.replica = resumed;
        return Ok(());
    }
    if history != "?" {
        Replicated::Refused.count(call);
    }
    call.client.introduction = Some(introduction);
    enter(call, false);
    Ok(())
}

/// The primary wants this replica of its to be the primary. All keys are held.
fn take_over(call: &Call<'_, '_>) -> Result<(), Error> {
    let engine = call.engine;
    if !engine.role.is_replica() {
        return Err(Error::new("ERR PSYNC FAILOVER can't be sent to a master."));
    }
    if !engine.identity.history().as_bytes().eq_ignore_ascii_case(&call.args[1]) {
        return Err(Error::new("ERR PSYNC FAILOVER replid must match my replid."));
    }
    tracing::info!("the primary hands its role over");
    engine.change_role(None, call.keys, call.now);
    Ok(())
}

/// A stream that stands still is nothing for replicas.
fn refuse_for_now(call: &Call<'_, '_>) -> Result<(), Error> {
    if call.client.replica.is_some() || call.client.is_monitor {
        return Ok(());
    }
    if call.engine.failover.is_on() {
        return Err(Error::new("NOMASTERLINK Can't SYNC while failing over"));
    }
    if call.client.introduction.as_ref().is_some_and(|introduction| introduction.copies) {
        // Its data stand still, and that is what is wanted of them.
        return Ok(());
    }
    if call.engine.awaits_take_over() {
        return Err(Error::new("NOMASTERLINK Can't SYNC before a majority of the copies has agreed"));
    }
    if call.engine.role.is_replica() && !call.engine.role.is_linked() {
        return Err(Error::new("NOMASTERLINK Can't SYNC while not connected with my master"));
    }
    Ok(())
}

/// What became of a wish for the stream without a dump.
enum Replicated {
    Partly,
    Refused,
}

impl Replicated {
    fn count(&self, call: &Call<'_, '_>) {
        let replication = &call.engine.replication;
        let count = match self {
            Self::Partly => &replication.partial,
            Self::Refused => &replication.refused,
        };
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

fn newcomer<'n>(call: &'n Call<'_, '_>, introduction: &'n Introduction, is_old: bool) -> Newcomer<'n> {
    Newcomer { card: &call.client.card, introduction, is_old, now_s: call.now.seconds() }
}

/// The client is a replica from now on, and waits for a dump.
fn enter(call: &mut Call<'_, '_>, is_old: bool) {
    if call.client.replica.is_some() || call.client.is_monitor {
        return;
    }
    let introduction = call.client.introduction.take().unwrap_or_default();
    let engine = call.engine;
    let rename = || engine.identity.change_history([engine.draw(), engine.draw()]);
    let replica = engine.replication.enter(newcomer(call, &introduction, is_old), rename);
    call.client.replica = Some(replica);
}

fn replconf(call: &mut Call<'_, '_>) -> Result<(), Error> {
    if call.args.len().is_multiple_of(2) {
        return Err(Error::SYNTAX);
    }
    for at in (1..call.args.len()).step_by(2) {
        match () {
            () if call.args.is(at, "ACK") => return acknowledge(call, at),
            // Only a replica has an answer.
            () if call.args.is(at, "GETACK") => return Ok(()),
            () if call.args.is(at, "ASHLAR-MEMBER") && call.args.len() == 7 => return enrol(call),
            () if call.args.is(at, "ASHLAR-HAS") && call.args.len() == 5 => return contains(call),
            () => introduce(call, at)?,
        }
    }
    call.reply.ok();
    Ok(())
}

fn name(call: &Call<'_, '_>, at: usize) -> Result<Name, Error> {
    Name::read(&call.args[at]).ok_or(Error::new("ERR this is the name of no node"))
}

fn term(call: &Call<'_, '_>, at: usize) -> Option<Term> {
    std::str::from_utf8(&call.args[at]).ok().and_then(Term::read)
}

/// `REPLCONF ASHLAR-MEMBER node OF shard COPIES term`: a replica says which node it is, and is told which term is served here. With a
/// term that this node has promised to it, it takes over the data that are here.
fn enrol(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (member, shard) = (name(call, 2)?, name(call, 4)?);
    let engine = call.engine;
    let mut introduction = call.client.introduction.take().unwrap_or_default();
    introduction.member = Some(member);
    let copied = term(call, 6);
    let mandate = engine.mandate(shard, member, copied);
    introduction.copies = mandate.is_ok() && copied.is_some();
    call.client.introduction = Some(introduction);
    call.reply.status(&mandate?);
    Ok(())
}

/// `REPLCONF ASHLAR-HAS history POSITION position`: whether the data here contain a history up to a position.
fn contains(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let wrong = || Error::new("ERR this is no point of a history");
    let text = |at: usize| std::str::from_utf8(&call.args[at]).map_err(|_| wrong());
    let (history, position) = (text(2)?, text(4)?.parse().map_err(|_| wrong())?);
    let has = call.engine.contains(history, position);
    call.reply.status(if has { "YES" } else { "NO" });
    Ok(())
}

/// One thing that a replica says of itself.
fn introduce(call: &mut Call<'_, '_>, at: usize) -> Result<(), Error> {
    let mut introduction = call.client.introduction.take().unwrap_or_default();
    let done = read(call, at, &mut introduction);
    call.client.introduction = Some(introduction);
    done
}

fn read(call: &Call<'_, '_>, at: usize, into: &mut Introduction) -> Result<(), Error> {
    let word = &call.args[at + 1];
    match () {
        () if call.args.is(at, "LISTENING-PORT") => into.port = call.integer(at + 1)?,
        () if call.args.is(at, "IP-ADDRESS") => {
            if word.len() > ADDRESS_BYTES_MAX {
                let len = word.len();
                let text = format!("ERR REPLCONF ip-address provided by replica instance is too long: {len} bytes");
                return Err(Error::text(text));
            }
            into.address = Some(String::from_utf8_lossy(word).into_owned());
        }
        () if call.args.is(at, "CAPA") => {
            into.takes_marks |= call.args.is(at + 1, "EOF");
            into.takes_names |= call.args.is(at + 1, "PSYNC2");
        }
        () if call.args.is(at, "RDB-ONLY") => into.wants_dump_only = flag(call, at + 1)?,
        () if call.args.is(at, "RDB-FILTER-ONLY") => filter(word, into)?,
        () if call.args.is(at, "VERSION") => {
            let version = version_of(word);
            let wrong = || Error::text(format!("ERR Unrecognized version format: {}", String::from_utf8_lossy(word)));
            into.version = version.ok_or_else(wrong)?;
        }
        // A dump on a connection of its own is never offered.
        () if call.args.is(at, "RDB-CHANNEL") => drop(flag(call, at + 1)?),
        () if call.args.is(at, "SET-RDB-CLIENT-ID") => {
            return Err(Error::text(format!("ERR Unrecognized RDB client id {}", call.integer(at + 1)?)));
        }
        () if call.args.is(at, "SET-CLUSTER-NODE-ID") => {
            return Err(Error::new("ERR This instance has cluster support disabled"));
        }
        () => {
            let option = String::from_utf8_lossy(&call.args[at]).into_owned();
            return Err(Error::text(format!("ERR Unrecognized REPLCONF option: {option}")));
        }
    }
    Ok(())
}

fn flag(call: &Call<'_, '_>, at: usize) -> Result<bool, Error> {
    match call.integer(at)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Error::new("ERR value is out of range, value must between 0 and 1")),
    }
}

/// Only parts of the data are wanted: functions, or nothing.
fn filter(word: &[u8], into: &mut Introduction) -> Result<(), Error> {
    (into.wants_keys, into.wants_functions) = (false, false);
    for part in word.split(u8::is_ascii_whitespace).filter(|part| !part.is_empty()) {
        if !part.eq_ignore_ascii_case(b"functions") {
            let part = String::from_utf8_lossy(part).into_owned();
            return Err(Error::text(format!("ERR Unsupported rdb-filter-only option: {part}")));
        }
        into.wants_functions = true;
    }
    Ok(())
}

/// `9.1.0` as one number.
fn version_of(word: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(word).ok()?;
    let parts: Option<Vec<u32>> = text.split('.').map(|part| part.parse::<u8>().ok().map(u32::from)).collect();
    match parts?[..] {
        [major, minor, patch] => Some(major << 16 | minor << 8 | patch),
        _ => None,
    }
}

/// A replica says how far it has come. There is no reply.
fn acknowledge(call: &mut Call<'_, '_>, at: usize) -> Result<(), Error> {
    let Some(replica) = call.client.replica.clone() else { return Ok(()) };
    let number = |at: usize| call.integer(at).ok().and_then(|number| u64::try_from(number).ok());
    let Some(position) = number(at + 1) else { return Ok(()) };
    let logged = if call.args.len() > at + 3 && call.args.is(at + 2, "FACK") { number(at + 3) } else { None };
    call.engine.acknowledge(&replica, position, logged, call.now);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert_eq!(version_of(b"9.1.0"), Some(0x0009_0100));
        for wrong in ["", "9", "9.1", "9.1.x", "9.1.0.0", "9.1.256"] {
            assert_eq!(version_of(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
