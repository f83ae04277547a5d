//! CLIENT: the connections of this server, and this one among them.

use super::call::{Call, Run};
use super::help;
use crate::client::describe::describe;
use crate::client::filter::Filter;
use crate::client::pause::Scope;
use crate::client::{Farewell, Silence};
use crate::error::Error;
use crate::waiting::Release;

pub(super) const RUNS: &[(&str, Run)] = &[
    ("client|capa", capa),
    ("client|getname", getname),
    ("client|help", |call| help::write(call, "CLIENT", HELP)),
    ("client|id", id),
    ("client|import-source", import_source),
    ("client|info", info),
    ("client|kill", kill),
    ("client|list", list),
    ("client|no-evict", |call| switch(call, |call, is_on| call.client.wishes.no_evict = is_on)),
    ("client|no-touch", |call| switch(call, |call, is_on| call.client.wishes.no_touch = is_on)),
    ("client|pause", pause),
    ("client|reply", reply),
    ("client|setinfo", setinfo),
    ("client|setname", setname),
    ("client|unblock", unblock),
    ("client|unpause", unpause),
];

const HELP: &[(&str, &str)] = &[
    ("CACHING (YES|NO)", "Track the keys of the next command, or do not."),
    ("CAPA <option> [options...]", "Say what this client is able to do: REDIRECT."),
    ("GETREDIR", "Tell which connection gets the invalidations of this one."),
    ("GETNAME", "Tell the name of this connection."),
    ("ID", "Tell the number of this connection."),
    ("IMPORT-SOURCE (ON|OFF)", "Mark this connection as the source of an import."),
    ("INFO", "Describe this connection."),
    ("KILL <ip:port>", "Close the connection that comes from there."),
    (
        "KILL <option> <value> [<option> <value> [...]]",
        "Close the connections that fit all options; they are those of LIST.",
    ),
    (
        "LIST [options ...]",
        "Describe connections. Options: ID, TYPE, USER, ADDR, LADDR, IP, NAME, LIB-NAME, LIB-VER, FLAGS, CAPA, DB, each also with \
         NOT- in front; SKIPME, MAXAGE, IDLE.",
    ),
    ("UNPAUSE", "End what PAUSE began."),
    ("PAUSE <timeout> [WRITE|ALL]", "Hold back all clients, or those that write, for so many milliseconds."),
    ("REPLY (ON|OFF|SKIP)", "Say whether commands of this connection are answered."),
    ("SETNAME <name>", "Name this connection."),
    ("SETINFO <option> <value>", "Say which library this is: LIB-NAME, LIB-VER."),
    ("UNBLOCK <clientid> [TIMEOUT|ERROR]", "Wake a client that waits in a command."),
    (
        "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]] [OPTIN] [OPTOUT] [NOLOOP]",
        "Say whether this client is told which of its keys have changed.",
    ),
    ("TRACKINGINFO", "Tell how this connection tracks keys."),
    ("NO-EVICT (ON|OFF)", "Keep this connection even if memory is short."),
    ("NO-TOUCH (ON|OFF)", "Let reads of this connection leave no trace in the age of keys."),
];

fn id(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.reply.integer(i64::try_from(call.client.id.0).unwrap_or(i64::MAX));
    Ok(())
}

/// A name that fits into a line of `CLIENT LIST`.
pub(super) fn checked_name(name: &[u8]) -> Result<Vec<u8>, Error> {
    if name.iter().all(u8::is_ascii_graphic) {
        return Ok(name.to_vec());
    }
    Err(Error::new("ERR Client names cannot contain spaces, newlines or special characters."))
}

fn setname(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let name = checked_name(&call.args[2])?;
    call.client.card.texts().name = name;
    call.reply.ok();
    Ok(())
}

fn getname(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let texts = call.client.card.texts();
    if texts.name.is_empty() {
        call.reply.null();
    } else {
        call.reply.bulk(&texts.name);
    }
    Ok(())
}

fn setinfo(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (is_name, is_version) = (call.args.is(2, "LIB-NAME"), call.args.is(2, "LIB-VER"));
    let what = String::from_utf8_lossy(&call.args[2]).into_owned();
    if !is_name && !is_version {
        return Err(Error::text(format!("ERR Unrecognized option '{what}'")));
    }
    let value = checked_name(&call.args[3])
        .map_err(|_| Error::text(format!("ERR {what} cannot contain spaces, newlines or special characters.")))?;
    let mut texts = call.client.card.texts();
    if is_name {
        texts.library = value;
    } else {
        texts.library_version = value;
    }
    call.reply.ok();
    Ok(())
}

fn reply(call: &mut Call<'_, '_>) -> Result<(), Error> {
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

fn switch(call: &mut Call<'_, '_>, set: fn(&mut Call<'_, '_>, bool)) -> Result<(), Error> {
    let is_on = call.args.is(2, "ON");
    if !is_on && !call.args.is(2, "OFF") {
        return Err(Error::SYNTAX);
    }
    set(call, is_on);
    call.reply.ok();
    Ok(())
}

fn import_source(call: &mut Call<'_, '_>) -> Result<(), Error> {
    if !call.settings.imports && !call.args.is(2, "OFF") {
        return Err(Error::new("ERR Server is not in import mode"));
    }
    switch(call, |call, is_on| call.client.wishes.import_source = is_on)
}

/// Words that are not known are for servers of another version.
fn capa(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let can_redirect = call.args.from(2).any(|word| word.eq_ignore_ascii_case(b"redirect"));
    call.client.wishes.can_redirect |= can_redirect;
    call.reply.ok();
    Ok(())
}

fn info(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.client.publish();
    let mut lines = Vec::new();
    describe(&call.client.card, call.now.unix_ms(), &mut lines);
    call.reply.verbatim("txt", &lines);
    Ok(())
}

fn list(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let filter = Filter::read(call.engine, call.args, 2)?;
    call.client.publish();
    let (own, now_ms, mut lines) = (call.client.id, call.now.unix_ms(), Vec::new());
    let cards = call.engine.clients.all();
    let is_skipped = |id| filter.skip_me == Some(true) && id == own;
    for card in cards.iter().filter(|card| !is_skipped(card.id) && filter.admits(card, now_ms)) {
        describe(card, now_ms, &mut lines);
    }
    call.reply.verbatim("txt", &lines);
    Ok(())
}

fn kill(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let is_old_form = call.args.len() == 3;
    let filter = if is_old_form { Filter::of_address(&call.args[2]) } else { Filter::read(call.engine, call.args, 2)? };
    call.client.publish();
    let (own, now_ms, mut killed) = (call.client.id, call.now.unix_ms(), 0);
    let is_skipped = |id| filter.skip_me != Some(false) && id == own;
    for card in call.engine.clients.all() {
        if is_skipped(card.id) || !filter.admits(&card, now_ms) {
            continue;
        }
        killed += 1;
        if card.id == own {
            call.client.is_leaving = true;
        } else {
            call.engine.dismiss(card.id, Farewell::Dismissed);
        }
    }
    match (is_old_form, killed) {
        (false, killed) => call.reply.count(killed),
        (true, 0) => return Err(Error::new("ERR No such client")),
        (true, _) => call.reply.ok(),
    }
    Ok(())
}

fn unblock(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let how = match call.args.len() {
        3 => Release::TimeOver,
        4 if call.args.is(3, "TIMEOUT") => Release::TimeOver,
        4 if call.args.is(3, "ERROR") => Release::Error,
        4 => return Err(Error::new("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")),
        _ => return Err(Error::wrong_subcommand("CLIENT", &call.args[1])),
    };
    let id = call.integer(2)?;
    let engine = call.engine;
    let release = |id| engine.waiting.release(crate::ClientId(id), how, engine);
    let was_waiting = u64::try_from(id).is_ok_and(release);
    call.reply.integer(i64::from(was_waiting));
    Ok(())
}

fn pause(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let scope = match call.args.len() {
        3 => Scope::All,
        4 if call.args.is(3, "WRITE") => Scope::Writes,
        4 if call.args.is(3, "ALL") => Scope::All,
        4 => return Err(Error::new("ERR CLIENT PAUSE mode must be WRITE or ALL")),
        _ => return Err(Error::wrong_subcommand("CLIENT", &call.args[1])),
    };
    let ms = call.integer(2).map_err(|_| Error::new("ERR timeout is not an integer or out of range"))?;
    if ms < 0 {
        return Err(Error::TIMEOUT_NEGATIVE);
    }
    let now_ms = call.now.milliseconds();
    let until_ms = now_ms.checked_add(ms).ok_or(Error::TIMEOUT_OUT_OF_RANGE)?;
    call.engine.pause.begin(scope, until_ms, now_ms);
    call.reply.ok();
    Ok(())
}

fn unpause(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.engine.pause.end();
    call.reply.ok();
    Ok(())
}
