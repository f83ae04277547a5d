//! Replication, as clients see it: ROLE, REPLICAOF, FAILOVER, WAIT, WAITAOF.

use core::time::Duration;

use super::call::{Call, Run};
use crate::error::Error;
use crate::replicate::failover::{self, Order};
use crate::replicate::role::LinkState;
use crate::replicate::{Copied, LogGoal, Phase, Upstream};
use crate::waiting::{Goal, Wait};

pub(super) const RUNS: &[(&str, Run)] = &[
    ("role", role),
    ("replicaof", replicaof),
    ("slaveof", replicaof),
    ("failover", failover),
    ("wait", wait),
    ("waitaof", wait_log),
];

fn role(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let number = |position: u64| i64::try_from(position).unwrap_or(i64::MAX);
    let view = call.engine.role.view();
    if let Some(upstream) = &view.upstream {
        let (host, port) = upstream.place();
        let is_up = view.state == LinkState::Connected;
        call.reply.array(5);
        call.reply.bulk(b"slave");
        call.reply.bulk(host.as_bytes());
        call.reply.integer(i64::from(port));
        call.reply.bulk(view.state.name().as_bytes());
        call.reply.integer(if is_up { number(call.engine.replication.end()) } else { -1 });
        return Ok(());
    }
    call.reply.array(3);
    call.reply.bulk(b"master");
    call.reply.integer(number(call.engine.replication.end()));
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

/// All keys are held, so that the role changes between two commands.
fn replicaof(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let engine = call.engine;
    if engine.cluster().is_some() {
        return Err(Error::new("ERR REPLICAOF not allowed in cluster mode."));
    }
    if engine.failover.is_on() {
        return Err(Error::new("ERR REPLICAOF not allowed while failing over."));
    }
    if call.args.is(1, "NO") && call.args.is(2, "ONE") {
        engine.change_role(None, call.keys, call.now);
        call.reply.ok();
        return Ok(());
    }
    if call.client.replica.is_some() {
        return Err(Error::new("ERR Command is not valid when client is a replica."));
    }
    let port = call.integer(2).ok().and_then(|port| u16::try_from(port).ok());
    let port = port.ok_or(Error::new("ERR Invalid master port"))?;
    let host = String::from_utf8_lossy(&call.args[1]).into_owned();
    let present = engine.upstream();
    let is_same = |(known, at): (&str, u16)| known.eq_ignore_ascii_case(&host) && at == port;
    if present.as_ref().map(Upstream::place).is_some_and(is_same) {
        call.reply.status("OK Already connected to specified master");
        return Ok(());
    }
    engine.change_role(Some(Upstream::Address { host, port }), call.keys, call.now);
    call.reply.ok();
    Ok(())
}

fn failover(call: &mut Call<'_, '_>) -> Result<(), Error> {
    if call.engine.cluster().is_some() {
        return Err(Error::new("ERR FAILOVER not allowed in cluster mode. Use CLUSTER FAILOVER command instead."));
    }
    if call.args.len() == 2 && call.args.is(1, "ABORT") {
        if !call.engine.call_off_failover() {
            return Err(Error::new("ERR No failover in progress."));
        }
        call.reply.ok();
        return Ok(());
    }
    let order = read_failover(call)?;
    if call.engine.failover.is_on() {
        return Err(Error::new("ERR FAILOVER already in progress."));
    }
    if call.engine.role.is_replica() {
        return Err(Error::new("ERR FAILOVER is not valid when server is a replica."));
    }
    let replicas = call.engine.replication.replicas();
    if replicas.is_empty() {
        return Err(Error::new("ERR FAILOVER requires connected replicas."));
    }
    if order.is_forced && !(order.until.is_some() && order.target.is_some()) {
        return Err(Error::new("ERR FAILOVER with force option requires both a timeout and target HOST and IP."));
    }
    if let Some((host, port)) = &order.target {
        let found = replicas.iter().find(|replica| failover::is_at(replica, host, *port));
        let found = found.ok_or(Error::new("ERR FAILOVER target HOST and PORT is not a replica."))?;
        if found.phase() != Phase::Online {
            return Err(Error::new("ERR FAILOVER target replica is not online."));
        }
    }
    call.engine.begin_failover(order);
    call.reply.ok();
    Ok(())
}

/// What a failover is to be like.
fn read_failover(call: &Call<'_, '_>) -> Result<Order, Error> {
    let mut order = Order { target: None, until: None, is_forced: false };
    let mut at = 1;
    while at < call.args.len() {
        match () {
            () if call.args.is(at, "TIMEOUT") && at + 1 < call.args.len() && order.until.is_none() => {
                let ms = call.integer(at + 1)?;
                if ms <= 0 {
                    return Err(Error::new("ERR FAILOVER timeout must be greater than 0"));
                }
                let until = call.now.instant + Duration::from_millis(ms.unsigned_abs());
                (order.until, at) = (Some(until), at + 2);
            }
            () if call.args.is(at, "TO") && at + 2 < call.args.len() && order.target.is_none() => {
                let host = String::from_utf8_lossy(&call.args[at + 1]).into_owned();
                (order.target, at) = (Some((host, call.integer(at + 2)?)), at + 3);
            }
            () if call.args.is(at, "FORCE") && !order.is_forced => (order.is_forced, at) = (true, at + 1),
            () => return Err(Error::SYNTAX),
        }
    }
    Ok(order)
}

/// Whether what the client wrote is where it must be is known now, or is waited for.
fn wait_for(call: &mut Call<'_, '_>, copied: Copied, timeout: usize) -> Result<(), Error> {
    let ms = call.integer(timeout).map_err(|_| Error::new("ERR timeout is not an integer or out of range"))?;
    let ms = u64::try_from(ms).map_err(|_| Error::TIMEOUT_NEGATIVE)?;
    let deadline = call.deadline_in(ms)?;
    let replication = &call.engine.replication;
    if !call.may_wait || copied.is_reached(replication) {
        call.reply.raw(&copied.reply(replication));
        return Ok(());
    }
    call.wait(Wait::until(Goal::Copied(copied), deadline));
    Ok(())
}

fn wait(call: &mut Call<'_, '_>) -> Result<(), Error> {
    if call.engine.role.is_replica() {
        return Err(Error::new(
            "ERR WAIT cannot be used with replica instances. Please also note that if a replica is configured to be writable (which \
             is not the default) writes to replicas are just local and are not propagated.",
        ));
    }
    let copied = Copied { position: call.client.written.0, replicas: call.integer(1)?, log: None };
    wait_for(call, copied, 2)
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
    if call.engine.role.is_replica() {
        return Err(Error::new(
            "ERR WAITAOF cannot be used with replica instances. Please also note that writes to replicas are just local and are not \
             propagated.",
        ));
    }
    let is_on = call.engine.journal.is_on();
    if local == 1 && !is_on {
        return Err(Error::new("ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled."));
    }
    let (position, logged) = call.client.written;
    let log = LogGoal { position: logged, is_wanted: local == 1, is_on };
    wait_for(call, Copied { position, replicas, log: Some(log) }, 3)
}
