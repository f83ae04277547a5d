//! CLIENT TRACKING and what belongs to it.

use std::collections::BTreeSet;

use super::call::{Call, Run};
use crate::client::ClientId;
use crate::client::card::Figure;
use crate::error::Error;
use crate::resp::Reply;
use crate::tracking::Mode;

pub(super) const RUNS: &[(&str, Run)] = &[
    ("client|caching", caching),
    ("client|getredir", getredir),
    ("client|tracking", tracking),
    ("client|trackinginfo", trackinginfo),
];

const SWITCHED_BROADCAST: Error = Error::new(
    "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a different \
     mode.",
);
const SWITCHED_OPT: Error = Error::new(
    "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with a different \
     mode.",
);

fn tracking(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (mode, prefixes) = read_mode(call)?;
    if call.args.is(2, "ON") {
        let mode = admit(call, mode, &prefixes)?;
        call.engine.tracking.begin(&call.client.card, &mode);
        call.client.tracking = Some(Box::new(mode));
    } else if call.args.is(2, "OFF") {
        end(call);
    } else {
        return Err(Error::SYNTAX);
    }
    call.reply.ok();
    Ok(())
}

/// The client tracks no more.
pub(super) fn end(call: &mut Call<'_, '_>) {
    if call.client.tracking.take().is_some() {
        call.engine.tracking.end(call.client.id);
    }
}

/// What is asked for, and prefixes.
fn read_mode<'c>(call: &Call<'c, '_>) -> Result<(Mode, Vec<&'c [u8]>), Error> {
    let (mut mode, mut prefixes, mut at) = (Mode::default(), Vec::new(), 3);
    while at < call.args.len() {
        let value = call.args.get(at + 1);
        at += 1;
        match (call.args[at - 1].to_ascii_lowercase().as_slice(), value) {
            (b"redirect", Some(_)) => {
                if mode.redirect.is_some() {
                    return Err(Error::new("ERR A client can only redirect to a single other client"));
                }
                let id = call.integer(at)?;
                let known = u64::try_from(id).ok().map(ClientId).filter(|id| call.engine.clients.get(*id).is_some());
                let unknown = Error::new("ERR The client ID you want redirect to does not exist");
                mode.redirect = Some(known.ok_or(unknown)?);
                at += 1;
            }
            (b"prefix", Some(prefix)) => {
                prefixes.push(prefix);
                at += 1;
            }
            (b"bcast", _) => mode.prefixes = Some(BTreeSet::new()),
            (b"optin", _) => mode.opt_in = true,
            (b"optout", _) => mode.opt_out = true,
            (b"noloop", _) => mode.no_loop = true,
            _ => return Err(Error::SYNTAX),
        }
    }
    Ok((mode, prefixes))
}

/// Whether the options go together, and with those of before.
fn admit(call: &Call<'_, '_>, mut mode: Mode, prefixes: &[&[u8]]) -> Result<Mode, Error> {
    let before = call.client.tracking.as_deref();
    let known = before.and_then(|before| before.prefixes.clone());
    if mode.prefixes.is_none() && !prefixes.is_empty() {
        return Err(Error::new("ERR PREFIX option requires BCAST mode to be enabled"));
    }
    if before.is_some_and(|before| before.prefixes.is_some() != mode.prefixes.is_some()) {
        return Err(SWITCHED_BROADCAST);
    }
    if mode.prefixes.is_some() && (mode.opt_in || mode.opt_out) {
        return Err(Error::new("ERR OPTIN and OPTOUT are not compatible with BCAST"));
    }
    if mode.opt_in && mode.opt_out {
        return Err(Error::new("ERR You can't specify both OPTIN mode and OPTOUT mode"));
    }
    if before.is_some_and(|before| mode.opt_in && before.opt_out || mode.opt_out && before.opt_in) {
        return Err(SWITCHED_OPT);
    }
    if let Some(all) = &mut mode.prefixes {
        let known = known.unwrap_or_default();
        check_prefixes(&known, prefixes)?;
        all.extend(known);
        all.extend(prefixes.iter().map(|prefix| Box::from(*prefix)));
        if all.is_empty() {
            all.insert(Box::default());
        }
    }
    Ok(mode)
}

/// No key may be below two prefixes of one client.
fn check_prefixes(known: &BTreeSet<Box<[u8]>>, prefixes: &[&[u8]]) -> Result<(), Error> {
    let overlap = |left: &[u8], right: &[u8]| left.starts_with(right) || right.starts_with(left);
    let text = |prefix: &[u8]| String::from_utf8_lossy(prefix).into_owned();
    let collision = |prefix: &[u8], what: &str, other: &[u8]| {
        Error::text(format!(
            "ERR Prefix '{}' overlaps with {what} prefix '{}'. Prefixes for a single client must not overlap.",
            text(prefix),
            text(other)
        ))
    };
    for (at, prefix) in prefixes.iter().enumerate() {
        if let Some(other) = known.iter().find(|other| overlap(prefix, other)) {
            return Err(collision(prefix, "an existing", other));
        }
        if let Some(other) = prefixes[at + 1..].iter().find(|other| overlap(prefix, other)) {
            return Err(collision(prefix, "another provided", other));
        }
    }
    Ok(())
}

fn caching(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let Some(mode) = call.client.tracking.as_deref_mut() else {
        return Err(Error::new(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
        ));
    };
    if call.args.is(2, "YES") {
        if !mode.opt_in {
            return Err(Error::new("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode."));
        }
    } else if call.args.is(2, "NO") {
        if !mode.opt_out {
            return Err(Error::new("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode."));
        }
    } else {
        return Err(Error::SYNTAX);
    }
    mode.is_caching_said = true;
    call.reply.ok();
    Ok(())
}

/// The number of who is told instead: 0 for the client itself, -1 where nobody is.
fn redirect(call: &Call<'_, '_>) -> i64 {
    let tracking = call.client.tracking.as_deref();
    tracking.map_or(-1, |mode| mode.redirect.map_or(0, |id| i64::try_from(id.0).unwrap_or(i64::MAX)))
}

fn getredir(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.reply.integer(redirect(call));
    Ok(())
}

fn trackinginfo(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let redirect = redirect(call);
    let flags = flags(call);
    let reply: &mut Reply = call.reply;
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"redirect");
    reply.integer(redirect);
    reply.bulk(b"prefixes");
    let prefixes = call.client.tracking.as_deref().and_then(|mode| mode.prefixes.as_ref());
    reply.array(prefixes.map_or(0, BTreeSet::len));
    prefixes.into_iter().flatten().for_each(|prefix| reply.bulk(prefix));
    Ok(())
}

fn flags(call: &Call<'_, '_>) -> Vec<&'static str> {
    let Some(mode) = call.client.tracking.as_deref() else { return vec!["off"] };
    let said = mode.is_caching_said;
    let all = [
        (true, "on"),
        (mode.prefixes.is_some(), "bcast"),
        (mode.opt_in, "optin"),
        (mode.opt_in && said, "caching-yes"),
        (mode.opt_out, "optout"),
        (mode.opt_out && said, "caching-no"),
        (mode.no_loop, "noloop"),
        (call.client.card.get(Figure::IsRedirectBroken) != 0, "broken_redirect"),
    ];
    all.iter().filter(|(holds, _)| *holds).map(|(_, word)| *word).collect()
}
