//! FUNCTION, FCALL: functions that stay, in libraries.

use std::sync::Arc;

use super::call::{Call, Run};
use super::dump::foot_check;
use super::help;
use crate::engine::Engine;
use crate::error::Error;
use crate::glob;
use crate::rdb::{Encoder, payload};
use crate::script::library::{ENGINE, Libraries, Library, Registered, Restore};
use crate::script::machine::Purpose;
use crate::script::run::{self, Order};

pub(super) const RUNS: &[(&str, Run)] = &[
    ("fcall", |call| fcall(call, false)),
    ("fcall_ro", |call| fcall(call, true)),
    ("function|delete", delete),
    ("function|dump", dump),
    ("function|flush", flush),
    ("function|help", |call| help::write(call, "FUNCTION", &HELP)),
    ("function|kill", kill),
    ("function|list", list),
    ("function|load", load),
    ("function|restore", restore),
    ("function|stats", stats),
];

/// What each subcommand does.
const HELP: [(&str, &str); 8] = [
    ("DELETE <LIBRARY NAME>", "Delete a library with its functions."),
    ("DUMP", "Show all libraries as bytes that RESTORE takes."),
    ("FLUSH [ASYNC|SYNC]", "Delete all libraries."),
    ("KILL", "Stop the function that runs now."),
    ("LIST [LIBRARYNAME PATTERN] [WITHCODE]", "Show libraries and their functions, and the code if asked for."),
    ("LOAD [REPLACE] <FUNCTION CODE>", "Add a library, in place of one of its name if REPLACE is given."),
    ("RESTORE <PAYLOAD> [FLUSH|APPEND|REPLACE]", "Add the libraries that DUMP has shown. APPEND is the default."),
    ("STATS", "Show the function that runs now, and the engines."),
];

fn fcall(call: &mut Call<'_, '_>, is_readonly: bool) -> Result<(), Error> {
    let engine = call.engine;
    let mut libraries = engine.scripts.libraries();
    let function = libraries.function(&call.args[1]).ok_or(Error::new("ERR Function not found"))?;
    let function = Arc::clone(function);
    let keys = run::count_keys(call, Error::new("ERR Bad number of keys provided"))?;
    let Registered { name, flags, .. } = &*function;
    let order = Order { name, flags: Some(*flags), is_readonly, keys, purpose: Purpose::Functions };
    let machine = libraries.machine().expect("the function was made by it");
    run::run(call, machine, function.function(), order)
}

/// Changes libraries. A change that is made is written to the log as it came.
fn change<R>(call: &mut Call<'_, '_>, change: impl FnOnce(&mut Libraries) -> Result<R, String>) -> Result<R, Error> {
    let mut libraries = call.engine.scripts.libraries();
    let turn = call.engine.scripts.running.begin_loading();
    let changed = change(&mut libraries).map_err(|what| Error::text(format!("ERR {what}")));
    drop(turn);
    call.engine.scripts.count(&libraries);
    call.effects.changes += u64::from(changed.is_ok());
    changed
}

fn load(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let last = call.args.len() - 1;
    for at in 2..last {
        if !call.args.is(at, "REPLACE") {
            let option = String::from_utf8_lossy(&call.args[at]).into_owned();
            return Err(Error::text(format!("ERR Unknown option given: {option}")));
        }
    }
    let (text, replaces) = (call.args.get(last).expect("the arity was checked"), last > 2);
    let name = change(call, |libraries| libraries.load(text, replaces))?;
    call.reply.bulk(name.as_bytes());
    Ok(())
}

fn delete(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let name = call.args.get(2).expect("the arity was checked");
    change(call, |libraries| if libraries.delete(name) { Ok(()) } else { Err("Library not found".into()) })?;
    call.reply.ok();
    Ok(())
}

fn flush(call: &mut Call<'_, '_>) -> Result<(), Error> {
    match call.args.len() {
        2 => {}
        3 if call.args.is(2, "SYNC") || call.args.is(2, "ASYNC") => {}
        3 => return Err(Error::new("ERR FUNCTION FLUSH only supports SYNC|ASYNC option")),
        _ => return Err(Error::wrong_subcommand("FUNCTION", &call.args[1])),
    }
    change(call, |libraries| {
        libraries.clear();
        Ok(())
    })?;
    call.reply.ok();
    Ok(())
}

fn dump(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let mut encoder = Encoder::new(call.settings.compresses, call.settings.list_fill);
    let libraries = call.engine.scripts.libraries();
    call.reply.bulk(&payload::encode_libraries(&mut encoder, libraries.iter().map(|library| &*library.text)));
    Ok(())
}

fn restore(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let how = match call.args.len() {
        3 => Restore::Append,
        4 if call.args.is(3, "APPEND") => Restore::Append,
        4 if call.args.is(3, "REPLACE") => Restore::Replace,
        4 if call.args.is(3, "FLUSH") => Restore::Flush,
        4 => {
            let what = "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.";
            return Err(Error::new(what));
        }
        _ => return Err(Error::wrong_subcommand("FUNCTION", &call.args[1])),
    };
    let texts = payload::decode_libraries(&call.args[2], foot_check(call))
        .map_err(|what| Error::text(format!("ERR {what}")))?;
    change(call, |libraries| libraries.restore(&texts, how))?;
    call.reply.ok();
    Ok(())
}

fn kill(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.engine.scripts.running.kill(Purpose::Functions)?;
    call.reply.ok();
    Ok(())
}

fn list(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (mut pattern, mut with_code, mut at) = (None, false, 2);
    while at < call.args.len() {
        if !with_code && call.args.is(at, "WITHCODE") {
            with_code = true;
        } else if pattern.is_none() && call.args.is(at, "LIBRARYNAME") {
            at += 1;
            let given = call.args.get(at).ok_or(Error::new("ERR library name argument was not given"))?;
            pattern = Some(given);
        } else {
            let word = String::from_utf8_lossy(&call.args[at]).into_owned();
            return Err(Error::text(format!("ERR Unknown argument {word}")));
        }
        at += 1;
    }
    let libraries = call.engine.scripts.libraries();
    let is_asked =
        |library: &&Library| pattern.is_none_or(|pattern| glob::matches(pattern, library.name.as_bytes(), true));
    call.reply.array(libraries.iter().filter(is_asked).count());
    for library in libraries.iter().filter(is_asked) {
        describe(call, library, with_code);
    }
    Ok(())
}

fn describe(call: &mut Call<'_, '_>, library: &Library, with_code: bool) {
    let reply = &mut *call.reply;
    reply.map(if with_code { 4 } else { 3 });
    for word in ["library_name", &library.name, "engine", ENGINE, "functions"] {
        reply.bulk(word.as_bytes());
    }
    reply.array(library.functions.len());
    for function in &library.functions {
        reply.map(3);
        for word in ["name", &function.name, "description"] {
            reply.bulk(word.as_bytes());
        }
        match &function.description {
            Some(description) => reply.bulk(description),
            None => reply.null(),
        }
        reply.bulk(b"flags");
        reply.set(function.flags.names().count());
        function.flags.names().for_each(|flag| reply.status(flag));
    }
    if with_code {
        reply.bulk(b"library_code");
        reply.bulk(&library.text);
    }
}

fn stats(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let shown = call.engine.scripts.running.shown(call.now.instant)?;
    let (libraries, functions) = call.engine.scripts.counts();
    let reply = &mut *call.reply;
    reply.map(2);
    reply.bulk(b"running_script");
    match shown {
        None => reply.null(),
        Some(shown) => {
            reply.map(3);
            reply.bulk(b"name");
            reply.bulk(shown.name.as_bytes());
            reply.bulk(b"command");
            reply.array(shown.command.args().len());
            shown.command.args().from(0).for_each(|word| reply.bulk(word));
            reply.bulk(b"duration_ms");
            reply.integer(i64::try_from(shown.duration_ms).unwrap_or(i64::MAX));
        }
    }
    reply.bulk(b"engines");
    reply.map(1);
    reply.bulk(ENGINE.as_bytes());
    reply.map(2);
    for (name, count) in [("libraries_count", libraries), ("functions_count", functions)] {
        reply.bulk(name.as_bytes());
        reply.count(count);
    }
    Ok(())
}

impl Engine {
    /// The texts of all libraries of functions, to be kept with the keys.
    pub(crate) fn libraries(&self) -> Vec<Box<[u8]>> {
        self.scripts.libraries().iter().map(|library| library.text.clone()).collect()
    }

    /// Forgets all libraries.
    pub(crate) fn forget_libraries(&self) {
        let mut libraries = self.scripts.libraries();
        libraries.clear();
        self.scripts.count(&libraries);
    }

    /// Adds a library of functions from a file, in place of one of the same name if it `replaces`.
    ///
    /// # Errors
    /// What is wrong with it, in words; or there is one of its name already.
    pub(crate) fn load_library(&self, text: &[u8], replaces: bool) -> Result<(), String> {
        let mut libraries = self.scripts.libraries();
        let turn = self.scripts.running.begin_loading();
        let loaded = libraries.load(text, replaces).map(drop);
        drop(turn);
        self.scripts.count(&libraries);
        loaded
    }
}
