//! `CONFIG`: what can be set, by the names that Valkey gives it.

use super::call::{Call, Run};
use super::help;
use crate::client::Client;
use crate::engine::Engine;
use crate::error::Error;
use crate::glob;
use crate::keyspace::Counts;
use crate::persist::{NotOpened, Opener};
use crate::settings::Settings;
use crate::settings::parameter::{self, Parameter};
use crate::settings::table::PARAMETERS;

pub(super) const RUNS: &[(&str, Run)] = &[
    ("config|get", get),
    ("config|set", set),
    ("config|resetstat", reset_statistics),
    ("config|rewrite", rewrite),
    ("config|help", help_lines),
];

/// Letters that make a word a pattern.
const PATTERN_LETTERS: &[u8] = b"[*?";

fn get(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let is_wanted = |name: &str, parameter: &Parameter| {
        call.args.from(2).any(|word| match word.iter().any(|letter| PATTERN_LETTERS.contains(letter)) {
            true => !parameter.is_hidden && glob::matches(word, name.as_bytes(), true),
            false => word.eq_ignore_ascii_case(name.as_bytes()),
        })
    };
    let names = PARAMETERS.iter().flat_map(|parameter| [parameter.name, parameter.alias].map(|name| (name, parameter)));
    let mut wanted: Vec<(&str, &Parameter)> =
        names.filter(|(name, parameter)| !name.is_empty() && is_wanted(name, parameter)).collect();
    wanted.sort_unstable_by_key(|(name, _)| *name);
    call.reply.map(wanted.len());
    for (name, parameter) in wanted {
        call.reply.bulk(name.as_bytes());
        call.reply.bulk(&parameter.show(call.settings));
    }
    Ok(())
}

/// An error about one of the arguments.
fn failed(name: &str, why: &str) -> Error {
    Error::text(format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}"))
}

/// All or nothing: the first that cannot be set undoes those before it.
fn set(call: &mut Call<'_, '_>) -> Result<(), Error> {
    if !call.args.len().is_multiple_of(2) {
        return Err(Error::SYNTAX);
    }
    let chosen = choose(call)?;
    let args = call.args;
    call.engine.try_change_settings(|settings| {
        let before = settings.clone();
        for (at, parameter) in &chosen {
            let set = parameter.set(settings, &args[at + 1]);
            set.map_err(|why| failed(parameter.name, &why))?;
        }
        if settings.files.directory != before.files.directory {
            let folder = call.engine.host.folder(&before.files.directory, &settings.files.directory);
            settings.files.directory = folder.map_err(|why| failed("dir", &why))?;
        }
        let opener = open_log(call.engine, &before, settings)?;
        let done = move_doors(call.engine, &chosen, &before, settings).and_then(|()| {
            let parameters: Vec<&Parameter> = chosen.iter().map(|(_, parameter)| *parameter).collect();
            let changes = call.engine.changes_of(&parameters, settings);
            if changes.is_empty() { Ok(()) } else { call.engine.keep(&changes) }
        });
        if let (Some(opener), Err(_)) = (opener, &done) {
            opener.take_back();
        }
        done
    })?;
    call.reply.ok();
    Ok(())
}

/// Opens the append log if it is to be on from now on. Returns who did.
fn open_log<'e>(engine: &'e Engine, before: &Settings, after: &Settings) -> Result<Option<&'e dyn Opener>, Error> {
    let Some(opener) = engine.log_opener().filter(|_| after.files.is_log_on && !before.files.is_log_on) else {
        return Ok(None);
    };
    let opened = opener.open(&after.files);
    opened.map_err(|NotOpened| failed("appendonly", "Unable to turn on AOF. Check server logs."))?;
    Ok(Some(opener))
}

/// Opens and closes doors if these parameters say so.
fn move_doors(
    engine: &Engine,
    chosen: &[(usize, &'static Parameter)],
    before: &Settings,
    after: &Settings,
) -> Result<(), Error> {
    const NO_PORT: &str = "Unable to listen on this port. Check server logs.";
    const NO_ADDRESS: &str = "Failed to bind to specified addresses.";
    let moved = |name: &str| {
        let chosen = chosen.iter().find(|(_, parameter)| parameter.name == name);
        chosen.is_some_and(|(_, parameter)| parameter.show(before) != parameter.show(after))
    };
    if moved("tls-port") {
        return Err(failed("tls-port", NO_PORT));
    }
    let (has_port_moved, has_bind_moved) = (moved("port"), moved("bind"));
    if !has_port_moved && !has_bind_moved {
        return Ok(());
    }
    let wrong = if has_port_moved { failed("port", NO_PORT) } else { failed("bind", NO_ADDRESS) };
    let shown = |name: &str| {
        let text = parameter::find(name.as_bytes()).map(|parameter| parameter.show(after)).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    };
    let (addresses, port) = (shown("bind"), shown("port"));
    let addresses: Vec<&str> = addresses.split_ascii_whitespace().collect();
    let listens = engine.network().map(|network| network.listen(&addresses, port.parse().unwrap_or(0)));
    match listens {
        Some(Ok(())) => Ok(()),
        Some(Err(_)) | None => Err(wrong),
    }
}

/// The parameters that a call names, and where.
fn choose(call: &Call<'_, '_>) -> Result<Vec<(usize, &'static Parameter)>, Error> {
    let mut chosen: Vec<(usize, &'static Parameter)> = Vec::new();
    for at in (2..call.args.len()).step_by(2) {
        let name = String::from_utf8_lossy(&call.args[at]).into_owned();
        let Some(parameter) = parameter::find(&call.args[at]) else {
            return Err(Error::text(format!("ERR Unknown option or number of arguments for CONFIG SET - '{name}'")));
        };
        if parameter.is_fixed {
            return Err(failed(&name, "can't set immutable config"));
        }
        if parameter.is_protected && !is_allowed(call.settings, call.client, "enable-protected-configs") {
            return Err(failed(&name, "can't set protected config"));
        }
        if chosen.iter().any(|(_, other)| other.name == parameter.name) {
            return Err(failed(&name, "duplicate parameter"));
        }
        chosen.push((at, parameter));
    }
    Ok(chosen)
}

/// Whether a parameter that says `yes`, `no` or `local` allows something to a client.
pub(crate) fn is_allowed(settings: &Settings, client: &Client, name: &str) -> bool {
    let shown = parameter::find(name.as_bytes()).map(|parameter| parameter.show(settings)).unwrap_or_default();
    match shown.as_slice() {
        b"yes" => true,
        b"local" => client.card.link.is_local(),
        _ => false,
    }
}

fn reset_statistics(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.engine.forget_errors();
    call.client.meter.flush(call.engine, false);
    call.engine.statistics.reset();
    call.engine.clients.counts.reset();
    call.engine.memory.counts.reset();
    call.engine.memory.trash.forget_freed();
    call.engine.memory.forget_peak();
    for number in 0..call.engine.keyspace.shards() {
        let counts = &mut call.keys.shard_at(number).counts;
        // Save points count changes from one dump to the next, whatever is shown.
        *counts = Counts { changes: counts.changes, ..Counts::default() };
    }
    call.reply.ok();
    Ok(())
}

fn rewrite(call: &mut Call<'_, '_>) -> Result<(), Error> {
    if call.engine.has_store() {
        // What was set is there since it was set.
        call.engine.keep(&[])?;
        call.reply.ok();
        return Ok(());
    }
    if call.engine.host.facts().config_file.is_empty() {
        return Err(Error::new("ERR The server is running without a config file"));
    }
    let settings = call.settings;
    let rewritten = call.engine.host.rewrite(&|text| crate::settings::file::rewrite(text, settings, false));
    rewritten.map_err(|why| Error::text(format!("ERR Rewriting config file: {why}")))?;
    call.reply.ok();
    Ok(())
}

fn help_lines(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let lines = [
        ("GET <pattern>", "Return parameters matching the glob-like <pattern> and their values."),
        ("SET <directive> <value>", "Set the configuration <directive> to <value>."),
        ("RESETSTAT", "Reset statistics reported by the INFO command."),
        ("REWRITE", "Rewrite the configuration file."),
    ];
    help::write(call, "CONFIG", &lines)
}
