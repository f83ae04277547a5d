//! MULTI, EXEC, DISCARD, WATCH, UNWATCH: commands that run together, with nothing between them.
//!
//! EXEC holds the keys of all its commands before the first one runs. A command that fails does not stop those behind it.

use std::sync::Arc;

use super::call::{Call, Run};
use super::run::{self, Frame};
use super::spec::table::Command;
use crate::acl::Context;
use crate::client::{Client, Transaction};
use crate::engine::Engine;
use crate::error::Error;
use crate::resp::Args;
use crate::resp::number::parse_i64;

/// Why EXEC does not run what MULTI has taken.
const CHANGED_RULES: &str = "ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This \
                             command is no longer allowed for the following reason: ";

pub(super) const RUNS: &[(&str, Run)] =
    &[("multi", multi), ("exec", exec), ("discard", discard), ("watch", watch), ("unwatch", unwatch)];

/// Whether a command runs although a transaction is open.
pub(crate) fn runs_at_once(command: &Command) -> bool {
    matches!(command.spec.name, "exec" | "discard" | "multi" | "watch" | "quit" | "reset")
        && command.container().is_none()
}

/// Whether it is EXEC, which holds the keys of others.
pub(crate) fn is_exec(command: &Command) -> bool {
    command.spec.name == "exec" && command.container().is_none()
}

/// The database that a queued command chooses for those behind it, if it is SELECT and will do so.
pub(crate) fn chosen_database(engine: &Engine, command: &Command, args: Args<'_>) -> Option<usize> {
    let is_select = command.spec.name == "select" && command.container().is_none();
    let number = usize::try_from(parse_i64(args.get(1).filter(|_| is_select)?)?).ok()?;
    (number < engine.keyspace.databases()).then_some(number)
}

fn multi(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.client.transaction = Some(Transaction::default());
    call.reply.ok();
    Ok(())
}

fn exec(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let Some(transaction) = call.client.transaction.take() else {
        return Err(Error::new("ERR EXEC without MULTI"));
    };
    let is_dirty = call.client.is_dirty() || watched_expired(call);
    forget_watched(call);
    if transaction.is_broken {
        return Err(Error::EXEC_ABORT);
    }
    if is_dirty {
        call.reply.null_array();
        return Ok(());
    }
    call.reply.array(transaction.queued.len());
    let (mut settings, mut version) = (None, call.engine.settings_version());
    for request in &transaction.queued {
        let args = request.args();
        // One of those before it may have changed them.
        if version != call.engine.settings_version() {
            version = call.engine.settings_version();
            settings = Some(call.engine.settings());
        }
        let settings = settings.as_deref().unwrap_or(call.settings);
        let ready = match run::find(call.engine, args) {
            Ok(ready) => ready,
            Err(error) => {
                call.reply.error(error.as_str());
                continue;
            }
        };
        call.client.refresh_user(call.engine);
        if let Err(denial) = call.engine.permit(call.client, ready.command, args, Context::Multi, call.now.unix_ms()) {
            call.reply.error(&format!("NOPERM {CHANGED_RULES}{}", denial.transaction_text()));
            continue;
        }
        let frame = Frame { engine: call.engine, settings, now: call.now, may_wait: false, is_script: false };
        run::run(&frame, ready, args, call.client, call.keys, call.reply, call.effects);
        call.reply.set_protocol(call.client.protocol);
    }
    Ok(())
}

fn discard(call: &mut Call<'_, '_>) -> Result<(), Error> {
    if call.client.transaction.take().is_none() {
        return Err(Error::new("ERR DISCARD without MULTI"));
    }
    forget_watched(call);
    call.reply.ok();
    Ok(())
}

fn watch(call: &mut Call<'_, '_>) -> Result<(), Error> {
    if !call.client.is_dirty() {
        // Those that have expired are taken out now, so that this is no change later.
        for word in call.args.from(1) {
            call.keys.contains(call.keys.key(word));
        }
        call.engine.settle_gone(call.settings, call.keys, call.effects);
        for word in call.args.from(1) {
            let place = (call.keys.database(), word.into());
            if !call.client.watched.contains(&place) {
                call.engine.waiting.watch(call.client.id, place.clone(), Arc::clone(&call.client.is_dirty));
                call.client.watched.push(place);
            }
        }
    }
    call.reply.ok();
    Ok(())
}

fn unwatch(call: &mut Call<'_, '_>) -> Result<(), Error> {
    forget_watched(call);
    call.reply.ok();
    Ok(())
}

/// Whether a watched key was there and has expired since.
fn watched_expired(call: &Call<'_, '_>) -> bool {
    let now_ms = call.now.unix_ms();
    let expired = |(database, name): &(usize, Box<[u8]>)| {
        let key = call.keys.key(name);
        let shard = call.keys.shard(key.slot);
        let found = shard.find(*database, key).map(|handle| shard.record(handle));
        found.is_some_and(|record| record.expiry().is_some_and(|at| at <= now_ms))
    };
    call.client.watched.iter().any(expired)
}

/// No key is watched any more.
pub(super) fn forget_watched(call: &mut Call<'_, '_>) {
    forget_all_watched(call.engine, call.client);
}

fn forget_all_watched(engine: &Engine, client: &mut Client) {
    engine.waiting.unwatch(client.id, &client.watched);
    client.watched.clear();
    client.is_dirty = Arc::default();
}

/// EXEC was refused: what MULTI has taken is thrown away.
pub(crate) fn discard_all(engine: &Engine, client: &mut Client) {
    client.transaction = None;
    forget_all_watched(engine, client);
}
