//! EVAL, EVALSHA and SCRIPT: scripts that come with the command, and those that are remembered.

use super::call::{Call, Run};
use crate::error::Error;
use crate::script::cache::{Origin, Sha};
use crate::script::machine::Purpose;
use crate::script::run::{self, Order};

pub(super) const RUNS: &[(&str, Run)] = &[
    ("eval", |call| eval(call, false)),
    ("eval_ro", |call| eval(call, true)),
    ("evalsha", |call| evalsha(call, false)),
    ("evalsha_ro", |call| evalsha(call, true)),
    ("script|debug", debug),
    ("script|exists", exists),
    ("script|flush", flush),
    ("script|help", help),
    ("script|kill", kill),
    ("script|load", load),
    ("script|show", show),
];

const NO_DEBUGGER: Error = Error::new(
    "ERR This server has no script debugger, so the script was not run. SCRIPT DEBUG NO lets scripts run on this connection",
);
const NO_SCRIPT: Error = Error::new("NOSCRIPT No matching script.");

fn eval(call: &mut Call<'_, '_>, is_readonly: bool) -> Result<(), Error> {
    refuse_debugging(call)?;
    let keys = run::count_keys(call, Error::NOT_INTEGER)?;
    let sha = call.engine.scripts.evals().add(&call.args[1], Origin::Eval)?;
    start(call, sha, keys, is_readonly)
}

fn evalsha(call: &mut Call<'_, '_>, is_readonly: bool) -> Result<(), Error> {
    const DIGITS: usize = 40;
    refuse_debugging(call)?;
    if call.args[1].len() != DIGITS {
        return Err(NO_SCRIPT);
    }
    let keys = run::count_keys(call, Error::NOT_INTEGER)?;
    let sha = Sha::parse(&call.args[1]).ok_or(NO_SCRIPT)?;
    start(call, sha, keys, is_readonly)
}

fn start(call: &mut Call<'_, '_>, sha: Sha, keys: usize, is_readonly: bool) -> Result<(), Error> {
    let engine = call.engine;
    let mut evals = engine.scripts.evals();
    let flags = evals.get(sha).ok_or(NO_SCRIPT)?.flags;
    let name = sha.hex();
    let order = Order { name: &name, flags, is_readonly, keys, purpose: Purpose::Scripts };
    let (machine, function) = evals.start(sha).expect("it was just found");
    run::run(call, machine, function, order)
}

fn load(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let sha = call.engine.scripts.evals().add(&call.args[2], Origin::Load)?;
    call.reply.bulk(sha.hex().as_bytes());
    Ok(())
}

fn exists(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let evals = call.engine.scripts.evals();
    call.reply.array(call.args.len() - 2);
    for digits in call.args.from(2) {
        let is_there = Sha::parse(digits).is_some_and(|sha| evals.get(sha).is_some());
        call.reply.integer(i64::from(is_there));
    }
    Ok(())
}

fn show(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let evals = call.engine.scripts.evals();
    let script = Sha::parse(&call.args[2]).and_then(|sha| evals.get(sha)).ok_or(NO_SCRIPT)?;
    call.reply.bulk(&script.text);
    Ok(())
}

fn flush(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let is_known =
        call.args.len() == 2 || call.args.len() == 3 && (call.args.is(2, "SYNC") || call.args.is(2, "ASYNC"));
    if !is_known {
        return Err(Error::new("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
    }
    call.engine.scripts.evals().clear();
    call.reply.ok();
    Ok(())
}

fn kill(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.engine.scripts.running.kill(Purpose::Scripts)?;
    call.reply.ok();
    Ok(())
}

/// A client that wants to debug a script expects that what it writes is rolled back, and `valkey-cli --ldb` sends the script
/// although the debugger was refused.
fn refuse_debugging(call: &Call<'_, '_>) -> Result<(), Error> {
    if call.client.wishes.debugger { Err(NO_DEBUGGER) } else { Ok(()) }
}

/// There is no debugger: it can only be turned off. Scripts are refused from the wish for it on.
fn debug(call: &mut Call<'_, '_>) -> Result<(), Error> {
    if call.args.is(2, "NO") {
        call.client.wishes.debugger = false;
        call.reply.ok();
        return Ok(());
    }
    if call.args.is(2, "YES") || call.args.is(2, "SYNC") {
        call.client.wishes.debugger = true;
        return Err(Error::new(
            "ERR This server has no script debugger. Scripts of this connection are refused until SCRIPT DEBUG NO",
        ));
    }
    Err(Error::new("ERR Use SCRIPT DEBUG YES/SYNC/NO"))
}

/// What each subcommand does.
const HELP: [&str; 15] = [
    "SCRIPT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "DEBUG (YES|SYNC|NO)",
    "    Choose whether scripts of this connection run in a debugger.",
    "EXISTS <sha1> [<sha1> ...]",
    "    Tell which scripts are remembered.",
    "FLUSH [ASYNC|SYNC]",
    "    Forget all scripts.",
    "KILL",
    "    Stop the script that runs now.",
    "LOAD <script>",
    "    Remember a script without running it.",
    "SHOW <sha1>",
    "    Show the text of a script.",
    "HELP",
    "    Print this help.",
];

fn help(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.reply.array(HELP.len());
    HELP.iter().for_each(|line| call.reply.status(line));
    Ok(())
}
