//! Commands about the connection itself.

use super::call::{Call, Run};
use crate::client::Silence;
use crate::error::Error;
use crate::resp::Protocol;

pub(super) const RUNS: &[(&str, Run)] = &[
    ("ping", ping),
    ("echo", echo),
    ("select", select),
    ("quit", quit),
    ("reset", reset),
    ("hello", hello),
    ("client|id", client_id),
    ("client|setname", client_setname),
    ("client|getname", client_getname),
    ("client|setinfo", client_setinfo),
    ("client|reply", client_reply),
];

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
    let number = call.integer(1)?;
    let database = usize::try_from(number).ok().filter(|database| *database < call.engine.keyspace.databases());
    call.client.database = database.ok_or(Error::new("ERR DB index is out of range"))?;
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
    call.client.database = 0;
    call.keys.select(0);
    call.client.name.clear();
    call.client.protocol = Protocol::Resp2;
    call.client.silence = Silence::Never;
    call.client.is_known = call.settings.password.is_empty();
    call.reply.status("RESET");
    Ok(())
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
    let mut at = 2;
    while at < call.args.len() {
        let left = call.args.len() - at - 1;
        if call.args.is(at, "SETNAME") && left >= 1 {
            call.client.name = checked_name(&call.args[at + 1])?;
            at += 2;
        } else {
            let word = String::from_utf8_lossy(&call.args[at]).into_owned();
            return Err(Error::text(format!("ERR Syntax error in HELLO option '{word}'")));
        }
    }
    call.client.protocol = protocol;
    call.reply.set_protocol(protocol);
    call.reply.map(7);
    for (name, value) in [("server", "valkey"), ("version", "9.1.0")] {
        call.reply.bulk(name.as_bytes());
        call.reply.bulk(value.as_bytes());
    }
    call.reply.bulk(b"proto");
    call.reply.integer(if protocol == Protocol::Resp2 { 2 } else { 3 });
    call.reply.bulk(b"id");
    call.reply.integer(i64::try_from(call.client.id.0).unwrap_or(i64::MAX));
    for (name, value) in [("mode", "standalone"), ("role", "master")] {
        call.reply.bulk(name.as_bytes());
        call.reply.bulk(value.as_bytes());
    }
    call.reply.bulk(b"modules");
    call.reply.array(0);
    Ok(())
}

fn client_id(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.reply.integer(i64::try_from(call.client.id.0).unwrap_or(i64::MAX));
    Ok(())
}

fn checked_name(name: &[u8]) -> Result<Vec<u8>, Error> {
    if name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        return Ok(name.to_vec());
    }
    Err(Error::new("ERR Client names cannot contain spaces, newlines or special characters."))
}

fn client_setname(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.client.name = checked_name(&call.args[2])?;
    call.reply.ok();
    Ok(())
}

fn client_getname(call: &mut Call<'_, '_>) -> Result<(), Error> {
    if call.client.name.is_empty() {
        call.reply.null();
    } else {
        call.reply.bulk(&call.client.name);
    }
    Ok(())
}

fn client_setinfo(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (is_name, is_version) = (call.args.is(2, "LIB-NAME"), call.args.is(2, "LIB-VER"));
    let what = String::from_utf8_lossy(&call.args[2]).into_owned();
    if !is_name && !is_version {
        return Err(Error::text(format!("ERR Unrecognized option '{what}'")));
    }
    let value = checked_name(&call.args[3]).map_err(|_| {
        Error::text(format!("ERR {} cannot contain spaces, newlines or special characters.", what.to_ascii_lowercase()))
    })?;
    if is_name {
        call.client.library.0 = value;
    } else {
        call.client.library.1 = value;
    }
    call.reply.ok();
    Ok(())
}

fn client_reply(call: &mut Call<'_, '_>) -> Result<(), Error> {
    if call.args.is(2, "ON") {
        call.client.silence = Silence::Never;
        call.reply.ok();
    } else if call.args.is(2, "OFF") {
        call.client.silence = Silence::Always;
    } else if call.args.is(2, "SKIP") {
        if call.client.silence != Silence::Always {
            call.client.silence = Silence::Next;
        }
    } else {
        return Err(Error::SYNTAX);
    }
    Ok(())
}
