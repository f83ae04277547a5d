//! Commands about the connection itself.

use super::call::{Call, Run};
use super::client::checked_name;
use super::generic::database_of;
use crate::acl::{self, Context};
use crate::client::{Silence, Wishes};
use crate::error::Error;
use crate::resp::Protocol;
use crate::settings::{Settings, parameter};

pub(super) const RUNS: &[(&str, Run)] = &[
    ("auth", auth),
    ("ping", ping),
    ("echo", echo),
    ("select", select),
    ("quit", quit),
    ("reset", reset),
    ("hello", hello),
];

fn auth(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let args = call.args;
    match args.len() {
        2 if call.engine.acl.default_user().needs_no_password => {
            return Err(Error::new(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
                 configuration is correct?",
            ));
        }
        2 => enter(call, acl::DEFAULT, &args[1])?,
        3 => enter(call, &args[1], &args[2])?,
        _ => return Err(Error::SYNTAX),
    }
    call.reply.ok();
    Ok(())
}

/// Lets a client in that knows the user's password.
fn enter(call: &mut Call<'_, '_>, user: &[u8], password: &[u8]) -> Result<(), Error> {
    let context = if call.may_wait { Context::TopLevel } else { Context::Multi };
    call.engine.enter(call.client, (user, password), (&call.args[0], context, call.now.unix_ms()))
}

fn ping(call: &mut Call<'_, '_>) -> Result<(), Error> {
    if call.args.len() < 3 && call.client.protocol == Protocol::Resp2 && !call.client.subscriptions.is_empty() {
        call.reply.array(2);
        call.reply.bulk(b"pong");
        call.reply.bulk(call.args.get(1).unwrap_or_default());
        return Ok(());
    }
    match call.args.len() {
        1 => call.reply.status("PONG"),
        2 => call.reply.bulk(&call.args[1]),
        _ => return Err(Error::wrong_number("ping")),
    }
    Ok(())
}

fn echo(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.reply.bulk(&call.args[1]);
    Ok(())
}

fn select(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.client.database = database_of(call, call.integer(1)?)?;
    call.keys.select(call.client.database);
    call.reply.ok();
    Ok(())
}

fn quit(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.client.is_leaving = true;
    call.reply.ok();
    Ok(())
}

fn reset(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.client.transaction = None;
    super::transaction::forget_watched(call);
    super::pubsub::unsubscribe_all(call);
    super::client_tracking::end(call);
    if std::mem::take(&mut call.client.is_monitor) {
        call.engine.monitors.end(call.client.id);
    }
    call.client.database = 0;
    call.keys.select(0);
    call.client.card.texts().name.clear();
    call.client.protocol = Protocol::Resp2;
    call.client.silence = Silence::Never;
    // What the client is able to do stays.
    let Wishes { can_redirect, .. } = call.client.wishes;
    call.client.wishes = Wishes { can_redirect, ..Wishes::default() };
    let user = call.engine.acl.default_user();
    let is_open = user.is_open();
    call.client.set_user(user, is_open);
    call.reply.status("RESET");
    Ok(())
}

/// Which server clients are told that they speak to, and its version: Valkey, or with `extended-redis-compatibility` the Redis
/// that it is compatible with.
pub(super) fn shown_version(settings: &Settings) -> (&'static str, &'static str) {
    let is_compatible =
        parameter::find(b"extended-redis-compatibility").is_some_and(|flag| flag.show(settings) == b"yes");
    if is_compatible { ("Redis", "7.2.4") } else { ("Valkey", "9.1.0") }
}

fn hello(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let mut protocol = call.client.protocol;
    if call.args.len() > 1 {
        protocol = match call.integer(1) {
            Ok(2) => Protocol::Resp2,
            Ok(3) => Protocol::Resp3,
            Ok(_) => return Err(Error::new("NOPROTO unsupported protocol version")),
            Err(_) => return Err(Error::new("ERR Protocol version is not an integer or out of range")),
        };
    }
    let (args, mut user, mut name, mut at) = (call.args, None, None, 2);
    while at < args.len() {
        let left = args.len() - at - 1;
        if args.is(at, "AUTH") && left >= 2 {
            user = Some((&args[at + 1], &args[at + 2]));
            at += 3;
        } else if args.is(at, "SETNAME") && left >= 1 {
            name = Some(checked_name(&args[at + 1])?);
            at += 2;
        } else {
            let word = String::from_utf8_lossy(&args[at]).into_owned();
            return Err(Error::text(format!("ERR Syntax error in HELLO option '{word}'")));
        }
    }
    if let Some((user, password)) = user {
        enter(call, user, password)?;
    }
    if !call.client.is_authenticated {
        return Err(Error::new(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> \
             option can be used to authenticate the client and select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        call.client.card.texts().name = name;
    }
    call.client.protocol = protocol;
    call.reply.set_protocol(protocol);
    let zone = parameter::find(b"availability-zone").map(|zone| zone.show(call.settings)).unwrap_or_default();
    call.reply.map(7 + usize::from(!zone.is_empty()));
    let (server, version) = shown_version(call.settings);
    for (name, value) in [("server", server.to_ascii_lowercase().as_str()), ("version", version)] {
        call.reply.bulk(name.as_bytes());
        call.reply.bulk(value.as_bytes());
    }
    call.reply.bulk(b"proto");
    call.reply.integer(if protocol == Protocol::Resp2 { 2 } else { 3 });
    call.reply.bulk(b"id");
    call.reply.integer(i64::try_from(call.client.id.0).unwrap_or(i64::MAX));
    for (name, value) in
        [("mode", if call.engine.cluster().is_some() { "cluster" } else { "standalone" }), ("role", "master")]
    {
        call.reply.bulk(name.as_bytes());
        call.reply.bulk(value.as_bytes());
    }
    call.reply.bulk(b"modules");
    call.reply.array(0);
    if !zone.is_empty() {
        call.reply.bulk(b"availability_zone");
        call.reply.bulk(&zone);
    }
    Ok(())
}
