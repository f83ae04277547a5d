//! Dumps and the append log: SAVE, BGSAVE, BGREWRITEAOF, LASTSAVE.
//!
//! A snapshot is always taken beside the commands, by a thread of the process. SAVE only waits for it, and holds no key
//! meanwhile: other workers go on.

use super::Run;
use super::call::Call;
use crate::error::Error;
use crate::persist::snapshot::Purpose;

/// Full names, and what runs each.
pub(crate) const RUNS: &[(&str, Run)] =
    &[("bgrewriteaof", bgrewriteaof), ("bgsave", bgsave), ("lastsave", lastsave), ("save", save)];

const IN_PROGRESS: Error = Error::new("ERR Background save already in progress");

fn save(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let saves = served(call)?;
    if saves.get().is_pending(Purpose::Dump) {
        return Err(IN_PROGRESS);
    }
    if !saves.take_and_wait(Purpose::Dump) {
        return Err(Error::new("ERR"));
    }
    call.reply.ok();
    Ok(())
}

fn bgsave(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let saves = served(call)?;
    let state = saves.get();
    match call.args.get(1) {
        Some(word) if call.args.len() == 2 && word.eq_ignore_ascii_case(b"cancel") => {
            if !saves.cancel_dump() {
                return Err(Error::new("ERR Background saving is currently not in progress or scheduled"));
            }
            let is_running = matches!(state.running, Some((Purpose::Dump, _)));
            call.reply.status(if is_running {
                "Background saving cancelled"
            } else {
                "Scheduled background saving cancelled"
            });
            return Ok(());
        }
        Some(word) if call.args.len() > 2 || !word.eq_ignore_ascii_case(b"schedule") => return Err(Error::SYNTAX),
        _ => {}
    }
    if state.is_pending(Purpose::Dump) {
        return Err(IN_PROGRESS);
    }
    if state.running.is_some() && call.args.len() < 2 {
        return Err(Error::new(
            "ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE SCHEDULE in order to schedule \
             a BGSAVE whenever possible.",
        ));
    }
    saves.want(Purpose::Dump);
    call.reply.status(if state.running.is_some() {
        "Background saving scheduled"
    } else {
        "Background saving started"
    });
    Ok(())
}

fn bgrewriteaof(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let saves = served(call)?;
    let state = saves.get();
    if matches!(state.running, Some((Purpose::LogBase, _))) {
        return Err(Error::new("ERR Background append only file rewriting already in progress"));
    }
    saves.want(Purpose::LogBase);
    call.reply.status(if state.running.is_some() {
        "Background append only file rewriting scheduled"
    } else {
        "Background append only file rewriting started"
    });
    Ok(())
}

fn lastsave(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let state = call.engine.saves.get();
    call.reply.integer(state.dumps.ended_s.max(state.loaded_s));
    Ok(())
}

/// The snapshots, if the process takes any.
fn served<'c>(call: &Call<'c, '_>) -> Result<&'c crate::persist::Saves, Error> {
    let saves = &call.engine.saves;
    if saves.is_served() { Ok(saves) } else { Err(Error::new("ERR This engine keeps no files")) }
}
