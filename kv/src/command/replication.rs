//! Replication, as a primary without replicas tells of it: ROLE, REPLICAOF, FAILOVER, WAIT, WAITAOF.

use super::call::{Call, Run};
use crate::error::Error;
use crate::keyspace::Kind;
use crate::settings::LogSync;
use crate::waiting::{Awaited, Wait};

pub(super) const RUNS: &[(&str, Run)] = &[
    ("role", role),
    ("replicaof", replicaof),
    ("slaveof", replicaof),
    ("failover", failover),
    ("wait", wait),
    ("waitaof", wait_log),
];

fn role(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.reply.array(3);
    call.reply.bulk(b"master");
    call.reply.integer(0);
    call.reply.array(0);
    Ok(())
}

fn replicaof(call: &mut Call<'_, '_>) -> Result<(), Error> {
    if call.args.is(1, "NO") && call.args.is(2, "ONE") {
        call.reply.ok();
        return Ok(());
    }
    call.integer(2).ok().filter(|port| (0..=65_535).contains(port)).ok_or(Error::new("ERR Invalid master port"))?;
    Err(Error::new("ERR This server cannot follow another yet"))
}

fn failover(call: &mut Call<'_, '_>) -> Result<(), Error> {
    if call.args.len() == 2 && call.args.is(1, "ABORT") {
        return Err(Error::new("ERR No failover in progress."));
    }
    let (mut at, mut has_timeout, mut has_target, mut is_forced) = (1, false, false, false);
    while at < call.args.len() {
        match () {
            () if call.args.is(at, "TIMEOUT") && at + 1 < call.args.len() && !has_timeout => {
                if call.integer(at + 1)? <= 0 {
                    return Err(Error::new("ERR FAILOVER timeout must be greater than 0"));
                }
                (has_timeout, at) = (true, at + 2);
            }
            () if call.args.is(at, "TO") && at + 2 < call.args.len() && !has_target => {
                call.integer(at + 2)?;
                (has_target, at) = (true, at + 3);
            }
            () if call.args.is(at, "FORCE") && !is_forced => (is_forced, at) = (true, at + 1),
            () => return Err(Error::SYNTAX),
        }
    }
    Err(Error::new("ERR FAILOVER requires connected replicas."))
}

/// Waits until the time is over: there is nobody to wait for.
fn wait_in_vain(call: &mut Call<'_, '_>, timeout: usize, reply: &'static [u8]) -> Result<(), Error> {
    let ms = call.integer(timeout).map_err(|_| Error::new("ERR timeout is not an integer or out of range"))?;
    let ms = u64::try_from(ms).map_err(|_| Error::TIMEOUT_NEGATIVE)?;
    let deadline = call.deadline_in(ms)?;
    if call.may_wait {
        // It stands among those that wait for a key, so that it is found there and can be released; that key is nobody's.
        let awaited = Awaited { kind: Kind::Stream, or_gone: false };
        call.wait(Wait { keys: vec![Box::default()], awaited, deadline, request: None, in_vain: reply });
    } else {
        call.reply.raw(reply);
    }
    Ok(())
}

fn wait(call: &mut Call<'_, '_>) -> Result<(), Error> {
    if call.integer(1)? <= 0 {
        call.integer(2).map_err(|_| Error::new("ERR timeout is not an integer or out of range"))?;
        call.reply.integer(0);
        return Ok(());
    }
    wait_in_vain(call, 2, b":0\r\n")
}

fn wait_log(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let local = call.integer(1)?;
    if !(0..=1).contains(&local) {
        return Err(Error::new("ERR value is out of range, value must between 0 and 1"));
    }
    let replicas = call.integer(2)?;
    if replicas < 0 {
        return Err(Error::NOT_POSITIVE);
    }
    let is_on = call.engine.journal.is_on();
    if local == 1 && !is_on {
        return Err(Error::new("ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled."));
    }
    // With `always`, a reply does not leave before everything up to it is durable.
    let is_durable = is_on && call.settings.log_sync == LogSync::Always;
    let reply: &[u8] = if is_durable { b"*2\r\n:1\r\n:0\r\n" } else { b"*2\r\n:0\r\n:0\r\n" };
    if replicas == 0 && (local == 0 || is_durable) {
        call.reply.raw(reply);
        return Ok(());
    }
    wait_in_vain(call, 3, reply)
}
