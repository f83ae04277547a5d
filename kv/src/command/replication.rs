//! Replication, as a primary tells of it: ROLE, REPLICAOF, FAILOVER, WAIT, WAITAOF.

use super::call::{Call, Run};
use crate::error::Error;
use crate::keyspace::Kind;
use crate::replicate::{Goal, LogGoal, Phase};
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
    call.reply.integer(i64::try_from(call.engine.replication.end()).unwrap_or(i64::MAX));
    let mut replicas = call.engine.replication.replicas();
    replicas.retain(|replica| replica.phase() == Phase::Online);
    call.reply.array(replicas.len());
    for replica in replicas {
        call.reply.array(3);
        call.reply.bulk(replica.host().as_bytes());
        call.reply.bulk(replica.introduction.port.to_string().as_bytes());
        call.reply.bulk(replica.acknowledged().to_string().as_bytes());
    }
    Ok(())
}

fn replicaof(call: &mut Call<'_, '_>) -> Result<(), Error> {
    if call.engine.cluster().is_some() {
        return Err(Error::new("ERR REPLICAOF not allowed in cluster mode."));
    }
    if call.args.is(1, "NO") && call.args.is(2, "ONE") {
        call.reply.ok();
        return Ok(());
    }
    call.integer(2).ok().filter(|port| (0..=65_535).contains(port)).ok_or(Error::new("ERR Invalid master port"))?;
    Err(Error::new("ERR This server cannot follow another yet"))
}

fn failover(call: &mut Call<'_, '_>) -> Result<(), Error> {
    if call.engine.cluster().is_some() {
        return Err(Error::new("ERR FAILOVER not allowed in cluster mode. Use CLUSTER FAILOVER command instead."));
    }
    if call.args.len() == 2 && call.args.is(1, "ABORT") {
        return Err(Error::new("ERR No failover in progress."));
    }
    let (mut at, mut has_timeout, mut target, mut is_forced) = (1, false, None, false);
    while at < call.args.len() {
        match () {
            () if call.args.is(at, "TIMEOUT") && at + 1 < call.args.len() && !has_timeout => {
                if call.integer(at + 1)? <= 0 {
                    return Err(Error::new("ERR FAILOVER timeout must be greater than 0"));
                }
                (has_timeout, at) = (true, at + 2);
            }
            () if call.args.is(at, "TO") && at + 2 < call.args.len() && target.is_none() => {
                let host = String::from_utf8_lossy(&call.args[at + 1]).into_owned();
                (target, at) = (Some((host, call.integer(at + 2)?)), at + 3);
            }
            () if call.args.is(at, "FORCE") && !is_forced => (is_forced, at) = (true, at + 1),
            () => return Err(Error::SYNTAX),
        }
    }
    let replicas = call.engine.replication.replicas();
    if replicas.is_empty() {
        return Err(Error::new("ERR FAILOVER requires connected replicas."));
    }
    if is_forced && !(has_timeout && target.is_some()) {
        return Err(Error::new("ERR FAILOVER with force option requires both a timeout and target HOST and IP."));
    }
    if let Some((host, port)) = target {
        let found = replicas.iter().find(|replica| replica.introduction.port == port && replica.host() == host);
        let found = found.ok_or(Error::new("ERR FAILOVER target HOST and PORT is not a replica."))?;
        if found.phase() != Phase::Online {
            return Err(Error::new("ERR FAILOVER target replica is not online."));
        }
    }
    Err(Error::new("ERR This server cannot follow another yet"))
}

/// Whether what the client wrote is where it must be is known now, or is waited for.
fn wait_for(call: &mut Call<'_, '_>, goal: Goal, timeout: usize) -> Result<(), Error> {
    let ms = call.integer(timeout).map_err(|_| Error::new("ERR timeout is not an integer or out of range"))?;
    let ms = u64::try_from(ms).map_err(|_| Error::TIMEOUT_NEGATIVE)?;
    let deadline = call.deadline_in(ms)?;
    let replication = &call.engine.replication;
    if !call.may_wait || goal.is_reached(replication) {
        call.reply.raw(&goal.reply(replication));
        return Ok(());
    }
    let awaited = Awaited { kind: Kind::Stream, or_gone: false };
    call.wait(Wait { keys: Vec::new(), awaited, deadline, request: None, goal: Some(goal) });
    Ok(())
}

fn wait(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let goal = Goal { position: call.client.written.0, replicas: call.integer(1)?, log: None };
    wait_for(call, goal, 2)
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
    let (position, logged) = call.client.written;
    let log = LogGoal { position: logged, is_wanted: local == 1, is_on };
    wait_for(call, Goal { position, replicas, log: Some(log) }, 3)
}
