//! Who owns which slot, what becomes of one, and the keys in it.

use std::collections::BTreeSet;
use std::time::Duration;

use super::super::call::{Call, Run};
use super::{NO_CLUSTER, alone, cluster, node, order, slot};
use crate::cluster::control::Order;
use crate::cluster::map::{Health, Map, Name, SlotRange};
use crate::cluster::{Cluster, Move};
use crate::error::Error;
use crate::keyspace::slot::SLOTS;
use crate::keyspace::{Keys, Slot};
use crate::resp::Request;
use crate::settings::Events;
use crate::waiting::{Goal, Wait};

pub(in crate::command) const RUNS: &[(&str, Run)] = &[
    ("cluster|addslots", |call| change(call, Change::Add, false)),
    ("cluster|addslotsrange", |call| change(call, Change::Add, true)),
    ("cluster|countkeysinslot", count_keys),
    ("cluster|delslots", |call| change(call, Change::Delete, false)),
    ("cluster|delslotsrange", |call| change(call, Change::Delete, true)),
    ("cluster|flushslot", flush_slot),
    ("cluster|flushslots", flush_slots),
    ("cluster|getkeysinslot", keys_in_slot),
    ("cluster|setslot", set_slot),
    ("cluster|slot-stats", statistics),
];

/// The most slots that `SLOT-STATS ORDERBY` reports.
const LIMIT_MAX: i64 = SLOTS as i64;

/// What ADDSLOTS and DELSLOTS do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Add,
    Delete,
}

fn change(call: &mut Call<'_, '_>, change: Change, by_ranges: bool) -> Result<(), Error> {
    let cluster = cluster(call)?;
    let map = cluster.map();
    if by_ranges && call.args.len() % 2 == 1 {
        let name = if change == Change::Add { "cluster|addslotsrange" } else { "cluster|delslotsrange" };
        return Err(Error::wrong_number(name));
    }
    let mut slots = BTreeSet::new();
    let mut at = 2;
    while at < call.args.len() {
        let first = slot(call, at)?;
        let last = if by_ranges { slot(call, at + 1)? } else { first };
        let (from, to) = (first.number(), last.number());
        if from > to {
            let text = format!("ERR start slot number {from} is greater than end slot number {to}");
            return Err(Error::text(text));
        }
        for number in from..=to {
            check_change(cluster, &map, change, number, &mut slots)?;
        }
        at += 1 + usize::from(by_ranges);
    }
    let is_lost = |slot: &Slot| map.owner(*slot).is_some_and(|owner| owner.health == Health::Failed);
    if change == Change::Delete {
        slots.iter().filter_map(|number| Slot::new(*number)).filter(is_lost).for_each(|slot| cluster.moves.leave(slot));
    }
    let ranges = SlotRange::gather(slots);
    match change {
        Change::Add => order(call, Order::Claim(ranges)),
        Change::Delete => order(call, Order::Release(ranges)),
    }
}

fn check_change(
    cluster: &Cluster,
    map: &Map,
    change: Change,
    number: u16,
    slots: &mut BTreeSet<u16>,
) -> Result<(), Error> {
    let owner = Slot::new(number).and_then(|slot| map.owner(slot).filter(|_| !cluster.moves.is_left(slot, map)));
    match (change, owner) {
        (Change::Delete, None) => Err(Error::text(format!("ERR Slot {number} is already unassigned"))),
        (Change::Add, Some(_)) => Err(Error::text(format!("ERR Slot {number} is already busy"))),
        _ if !slots.insert(number) => Err(Error::text(format!("ERR Slot {number} specified multiple times"))),
        _ => Ok(()),
    }
}

fn flush_slots(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let map = alone(call)?.map();
    if !call.engine.is_empty() {
        return Err(Error::new("ERR DB must be empty to perform CLUSTER FLUSHSLOTS."));
    }
    order(call, Order::Release(map.own().slots.clone()))
}

/// How long SETSLOT waits until its node knows who the slot's new owner is, unless it is told.
const KNOWN_WITHIN: Duration = Duration::from_secs(2);

/// What SETSLOT says of a slot.
enum Said {
    Migrating(Name),
    Importing(Name),
    Stable,
    Node(Name),
}

fn set_slot(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let cluster = alone(call)?;
    let map = cluster.map();
    let slot = slot(call, 2)?;
    let (said, timeout) = read_said(call, &map, slot)?;
    match said {
        Said::Migrating(name) => cluster.moves.begin(slot, Move::To(name)),
        Said::Importing(name) => cluster.moves.begin(slot, Move::From(name)),
        Said::Stable => cluster.moves.end(slot),
        Said::Node(name) if name == map.own().name && !map.holds(slot) => {
            let range = SlotRange { first: slot, last: slot };
            return order(call, Order::Claim(vec![range]));
        }
        // Its owner has said so, or will: what one node says of another changes nothing. Until that is known here, clients are still sent
        // after keys that are gone already, and whoever asked waits: what it asks next it shall not be told otherwise.
        Said::Node(name) if map.holds(slot) && cluster.moves.of(slot) == Some(Move::To(name)) => {
            if call.may_wait {
                call.wait(Wait::until(Goal::Given(slot), Some(call.now.instant + timeout)));
                return Ok(());
            }
        }
        Said::Node(_) if !call.engine.has_keys_in(slot) => cluster.moves.end(slot),
        Said::Node(_) => {}
    }
    call.reply.ok();
    Ok(())
}

/// What is said of a slot, and how long that may take to be known here.
fn read_said(call: &Call<'_, '_>, map: &Map, slot: Slot) -> Result<(Said, Duration), Error> {
    let (args, own, number) = (call.args, map.own(), slot.number());
    let has_node = args.len() > 4;
    let said = match () {
        () if args.is(3, "MIGRATING") && has_node => {
            if !own.is_replica() && !map.holds(slot) {
                return Err(Error::text(format!("ERR I'm not the owner of hash slot {number}")));
            }
            Said::Migrating(other_primary(call, map)?)
        }
        () if args.is(3, "IMPORTING") && has_node => {
            if map.holds(slot) {
                return Err(Error::text(format!("ERR I'm already the owner of hash slot {number}")));
            }
            // Keys that came now would be taken for copies, and removed with them.
            if call.engine.migration.copies.table().has(slot) {
                return Err(Error::text(format!(
                    "ERR Keys of hash slot {number} that an earlier migration left here are still being removed: try again"
                )));
            }
            Said::Importing(other_primary(call, map)?)
        }
        () if args.is(3, "STABLE") => Said::Stable,
        () if args.is(3, "NODE") && has_node => {
            let found = node(call, map, 4, "Unknown node")?;
            if found.is_replica() {
                return Err(Error::new("ERR Target node is not a master"));
            }
            if map.holds(slot) && found.name != own.name && call.engine.has_keys_in(slot) {
                return Err(Error::text(format!(
                    "ERR Can't assign hashslot {number} to a different node while I still hold keys for this hash slot."
                )));
            }
            Said::Node(found.name)
        }
        () => {
            return Err(Error::new("ERR Invalid CLUSTER SETSLOT action or number of arguments. Try CLUSTER HELP"));
        }
    };
    let (rest, mut timeout) = (if args.is(3, "STABLE") { 4 } else { 5 }, KNOWN_WITHIN);
    for at in (rest..args.len()).filter(|at| args.is(*at, "TIMEOUT")) {
        let word = args.get(at + 1).ok_or(Error::new("ERR Missing timeout value"))?;
        let ms = crate::resp::number::parse_i64(word);
        let ms = ms.ok_or(Error::new("ERR timeout is not an integer or out of range"))?;
        match u64::try_from(ms).map_err(|_| Error::TIMEOUT_NEGATIVE)? {
            0 => {}
            ms => timeout = Duration::from_millis(ms),
        }
    }
    Ok((said, timeout))
}

/// The other primary that word 4 names.
fn other_primary(call: &Call<'_, '_>, map: &Map) -> Result<Name, Error> {
    let found = node(call, map, 4, "I don't know about node")?;
    if found.name == map.own().name {
        return Err(Error::new("ERR Target node is myself"));
    }
    if found.is_replica() {
        return Err(Error::new("ERR Target node is not a master"));
    }
    Ok(found.name)
}

/// Keys of a slot in all databases.
fn keys_of_slot(keys: &Keys<'_>, databases: usize, slot: Slot) -> usize {
    let shard = keys.shard(slot);
    (0..databases).map(|database| shard.keys_in_slot(database, slot.index())).sum()
}

fn count_keys(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.engine.cluster().ok_or(NO_CLUSTER)?;
    let number = call.integer(2)?;
    let slot = u16::try_from(number).ok().and_then(Slot::new).ok_or(Error::new("ERR Invalid slot"))?;
    let count = call.keys.shard(slot).keys_in_slot(call.keys.database(), slot.index());
    call.reply.count(count);
    Ok(())
}

fn keys_in_slot(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.engine.cluster().ok_or(NO_CLUSTER)?;
    let (number, wanted) = (call.integer(2)?, call.integer(3)?);
    let wrong = Error::new("ERR Invalid slot or number of keys");
    let slot = u16::try_from(number).ok().and_then(Slot::new).ok_or(wrong.clone())?;
    let wanted = usize::try_from(wanted).map_err(|_| wrong)?;
    let names = names_in_slot(call.keys, call.keys.database(), slot, wanted);
    call.reply.array(names.len());
    names.iter().for_each(|name| call.reply.bulk(name));
    Ok(())
}

/// Names of up to so many keys of a slot.
fn names_in_slot(keys: &Keys<'_>, database: usize, slot: Slot, wanted: usize) -> Vec<Box<[u8]>> {
    let (shard, mut names, mut cursor) = (keys.shard(slot), Vec::new(), 0);
    while names.len() < wanted {
        let left = wanted - names.len();
        cursor = shard.scan_slot(database, slot.index(), cursor, left, |record| names.push(record.key().into()));
        if cursor == 0 {
            break;
        }
    }
    names.truncate(wanted);
    names
}

fn flush_slot(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.engine.cluster().ok_or(NO_CLUSTER)?;
    let slot = slot(call, 2)?;
    if call.args.len() > 3 && !call.args.is(3, "ASYNC") && !call.args.is(3, "SYNC") {
        return Err(Error::SYNTAX);
    }
    let (present, mut gone) = (call.keys.database(), Vec::new());
    for database in 0..call.engine.keyspace.databases() {
        call.keys.select(database);
        for name in names_in_slot(call.keys, database, slot, usize::MAX) {
            let key = call.keys.key(&name);
            if call.keys.remove(key).is_some() {
                call.changed(key, Events::GENERIC, "del");
                gone.push((database, name));
            }
        }
    }
    call.keys.select(present);
    // Each in its database.
    crate::serve::write_removed(&gone, false, &mut call.effects.written);
    call.effects.has_logged |= !gone.is_empty();
    call.trace(Vec::<Request>::new());
    call.reply.ok();
    Ok(())
}

/// What is told of slots, in this order; all but the first only while it is counted.
const FIGURES: [&str; 4] = ["key-count", "cpu-usec", "network-bytes-in", "network-bytes-out"];

/// The figures of a slot.
fn figures(call: &Call<'_, '_>, slot: Slot) -> [u64; 4] {
    let keys = keys_of_slot(call.keys, call.engine.keyspace.databases(), slot);
    let cost = call.engine.statistics.slots.of(slot);
    [keys as u64, cost.nanos / 1_000, cost.bytes_in, cost.bytes_out]
}

fn statistics(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let map = cluster(call)?.map();
    let shown = if call.settings.logs.counts_slots { FIGURES.len() } else { 1 };
    let all = |first: u16, last: u16| {
        let slots = (first..=last).filter_map(Slot::new).filter(|slot| map.serves(*slot));
        slots.map(|slot| (slot, figures(call, slot))).collect::<Vec<(Slot, [u64; 4])>>()
    };
    let chosen = match () {
        () if call.args.is(2, "SLOTSRANGE") && call.args.len() == 5 => {
            let (first, last) = (slot(call, 3)?.number(), slot(call, 4)?.number());
            if first > last {
                let text = format!("ERR Start slot number {first} is greater than end slot number {last}");
                return Err(Error::text(text));
            }
            all(first, last)
        }
        () if call.args.is(2, "ORDERBY") => {
            let figure = FIGURES[..shown].iter().position(|name| call.args.is(3, &name.to_ascii_uppercase()));
            let figure = figure.ok_or(Error::new("ERR Unrecognized sort metric for ORDERBY."))?;
            let (limit, is_ascending) = read_order(call)?;
            let mut all = all(0, SLOTS - 1);
            if is_ascending {
                all.sort_by_key(|(slot, figures)| (figures[figure], *slot));
            } else {
                all.sort_by_key(|(slot, figures)| (std::cmp::Reverse(figures[figure]), *slot));
            }
            all.truncate(limit);
            all
        }
        () => return Err(Error::wrong_subcommand("CLUSTER", &call.args[1])),
    };
    call.reply.array(chosen.len());
    for (slot, figures) in chosen {
        call.reply.array(2);
        call.reply.integer(slot.number().into());
        call.reply.map(shown);
        for (name, figure) in FIGURES.iter().zip(figures).take(shown) {
            call.reply.bulk(name.as_bytes());
            call.reply.integer(i64::try_from(figure).unwrap_or(i64::MAX));
        }
    }
    Ok(())
}

/// How many slots `ORDERBY` wants, and whether those with the least first.
fn read_order(call: &Call<'_, '_>) -> Result<(usize, bool), Error> {
    let (mut limit, mut direction, mut at) = (None, None, 4);
    while at < call.args.len() {
        let is_again = match () {
            () if call.args.is(at, "LIMIT") && at + 1 < call.args.len() => {
                let wanted = call.integer(at + 1)?;
                if !(1..=LIMIT_MAX).contains(&wanted) {
                    return Err(Error::new("ERR Limit has to lie in between 1 and 16384 (maximum number of slots)."));
                }
                at += 1;
                limit.replace(usize::try_from(wanted).unwrap_or(usize::MAX)).is_some()
            }
            () if call.args.is(at, "ASC") => direction.replace(true).is_some(),
            () if call.args.is(at, "DESC") => direction.replace(false).is_some(),
            () => return Err(Error::SYNTAX),
        };
        if is_again {
            return Err(Error::new("ERR Multiple filters of the same type are disallowed."));
        }
        at += 1;
    }
    Ok((limit.unwrap_or(usize::from(SLOTS)), direction.unwrap_or(false)))
}
