//! Commands that wait for a list.

use std::ops::Range;

use super::call::{Call, Run};
use super::list::{end_of, pop_of, shift, sources, take_of_first};
use crate::error::Error;
use crate::keyspace::Kind;
use crate::resp::Request;
use crate::settings::Events;
use crate::value::list::{End, List};
use crate::waiting::{Awaited, Wait};

pub(super) const RUNS: &[(&str, Run)] = &[
    ("blmove", blmove),
    ("blmpop", blmpop),
    ("blpop", |call| pop(call, End::Front)),
    ("brpop", |call| pop(call, End::Back)),
    ("brpoplpush", brpoplpush),
];

/// Waits for a list behind any of these keys.
fn wait(call: &mut Call<'_, '_>, keys: Range<usize>, deadline: Option<ashlar_wire::time::Instant>) {
    let keys = keys.map(|at| call.args[at].into()).collect();
    let awaited = Awaited { kind: Kind::List, or_gone: false };
    call.wait(Wait { keys, awaited, deadline, request: None, goal: None });
}

fn pop(call: &mut Call<'_, '_>, end: End) -> Result<(), Error> {
    let last = call.args.len() - 1;
    let deadline = call.deadline(last)?;
    let fill = call.settings.list_fill;
    for at in 1..last {
        let key = call.key(at);
        let Some(list) = call.keys.get_mut::<List>(key)? else { continue };
        let element = list.pop(end, fill).expect("no list that is there is empty");
        call.reply.array(2);
        call.reply.bulk(key.bytes);
        call.reply.bulk(&element);
        call.changed(key, Events::LIST, if end == End::Front { "lpop" } else { "rpop" });
        if call.keys.remove_if_empty::<List>(key) {
            call.notify(Events::GENERIC, "del", key.bytes);
        }
        call.trace_as(|_| [pop_of(end), key.bytes].into_iter().collect());
        return Ok(());
    }
    wait(call, 1..last, deadline);
    Ok(())
}

fn blmpop(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (keys, end, count) = sources(call, 2)?;
    let deadline = call.deadline(1)?;
    if !take_of_first(call, keys.clone(), end, count)? {
        wait(call, keys, deadline);
    }
    Ok(())
}

fn blmove(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (from, to) = (end_of(call, 3)?, end_of(call, 4)?);
    shift_or_wait(call, from, to, 5, |call| [&b"LMOVE"[..]].into_iter().chain(call.args.from(1).take(4)).collect())
}

fn brpoplpush(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let instead = |call: &Call<'_, '_>| [&b"RPOPLPUSH"[..], &call.args[1], &call.args[2]].into_iter().collect();
    shift_or_wait(call, End::Back, End::Front, 3, instead)
}

fn shift_or_wait(
    call: &mut Call<'_, '_>,
    from: End,
    to: End,
    timeout: usize,
    instead: impl FnOnce(&Call<'_, '_>) -> Request,
) -> Result<(), Error> {
    let (key, deadline) = (call.key(1), call.deadline(timeout)?);
    if call.keys.get_mut::<List>(key)?.is_some() {
        shift(call, from, to)?;
        call.trace_as(|call| instead(call));
    } else if call.may_wait {
        wait(call, 1..2, deadline);
    } else {
        call.reply.null();
    }
    Ok(())
}
