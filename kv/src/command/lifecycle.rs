//! `SHUTDOWN`, `LOLWUT`, and what a client says of reading from replicas.

use super::call::{Call, Run};
use super::connection::shown_version;
use crate::error::Error;
use crate::shutdown::Shutdown;
use crate::waiting::{Goal, Wait};

pub(super) const RUNS: &[(&str, Run)] =
    &[("shutdown", shutdown), ("lolwut", lolwut), ("readonly", readonly), ("readwrite", readwrite)];

/// The client would take what a replica has. It is noted, and shown.
fn readonly(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.client.wishes.readonly = true;
    call.reply.ok();
    Ok(())
}

fn readwrite(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.client.wishes.readonly = false;
    call.reply.ok();
    Ok(())
}

fn lolwut(call: &mut Call<'_, '_>) -> Result<(), Error> {
    if call.args.is(1, "VERSION") && call.args.len() > 2 {
        call.integer(2)?;
    }
    let (server, version) = shown_version(call.settings);
    call.reply.verbatim("txt", format!("{server} ver. {version}\n").as_bytes());
    Ok(())
}

/// The process ends soon. The client waits, and has a reply only if the end is called off.
fn shutdown(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let is = |name: &str| call.args.from(1).any(|word| word.eq_ignore_ascii_case(name.as_bytes()));
    let known = ["NOSAVE", "SAVE", "NOW", "FORCE", "SAFE", "FAILOVER", "ABORT"];
    let words = call.args.from(1).len();
    let is_known = |word: &[u8]| known.iter().any(|name| word.eq_ignore_ascii_case(name.as_bytes()));
    let contradicts = is("SAVE") && is("NOSAVE") || is("ABORT") && words > 1;
    if !call.args.from(1).all(is_known) || contradicts {
        return Err(Error::SYNTAX);
    }
    if is("ABORT") {
        if !call.engine.call_off_stop() {
            return Err(Error::new("ERR No shutdown in progress."));
        }
        call.reply.ok();
        return Ok(());
    }
    if !is("NOW") && !call.may_wait {
        return Err(Error::new("ERR SHUTDOWN without NOW or ABORT isn't allowed for DENY BLOCKING client"));
    }
    call.engine.want_stop(Shutdown::of_words(call.args.from(1)));
    if call.may_wait {
        call.wait(Wait::until(Goal::CalledOff, None));
    }
    Ok(())
}
