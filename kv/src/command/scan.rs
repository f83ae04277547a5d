//! SCAN goes through the keys of a database, CLUSTERSCAN through those of a cluster, node after node.
//!
//! A cursor is a slot and a place in its table. That of CLUSTERSCAN has three parts, `<fingerprint>-{<tag>}-<cursor>`: the tag leads a
//! client to the node that has the slot, and the fingerprint says whose table the place belongs to. At any other node the slot begins
//! anew, so that nothing is left out when it has moved.

use super::call::{Call, Run};
use super::elements::{NOT_OF_SCORES, NOT_OF_VALUES};
use crate::error::Error;
use crate::glob;
use crate::keyspace::{Kind, Slot, slot::SLOTS};

pub(super) const RUNS: &[(&str, Run)] = &[("clusterscan", cluster_scan), ("scan", scan)];

/// Keys that one call looks at unless COUNT says otherwise.
const COUNT_DEFAULT: usize = 10;
/// Bits of a cursor that are a place within a slot; those above are the slot.
const ORDER_BITS: u32 = 32;
/// Letters of a fingerprint: six bits each, from `0` on.
const FINGERPRINT_LETTERS: usize = 6;

/// What is looked for.
struct Filter<'a> {
    pattern: Option<&'a [u8]>,
    kind: Option<Kind>,
    count: usize,
    /// The one slot to look in (`SLOT`).
    slot: Option<Slot>,
}

impl<'a> Filter<'a> {
    fn read(call: &Call<'a, '_>, takes_slot: bool) -> Result<Self, Error> {
        let mut filter = Self { pattern: None, kind: None, count: COUNT_DEFAULT, slot: None };
        let mut at = 2;
        while at < call.args.len() {
            if !takes_slot && call.args.is(at, "NOVALUES") {
                return Err(NOT_OF_VALUES);
            }
            if !takes_slot && call.args.is(at, "NOSCORES") {
                return Err(NOT_OF_SCORES);
            }
            let value = call.args.get(at + 1).ok_or(Error::SYNTAX)?;
            match () {
                () if call.args.is(at, "COUNT") => {
                    let count = call.integer(at + 1)?;
                    filter.count = usize::try_from(count).ok().filter(|count| *count > 0).ok_or(Error::SYNTAX)?;
                }
                () if call.args.is(at, "MATCH") => filter.pattern = Some(value),
                () if call.args.is(at, "TYPE") => {
                    let kind = Kind::from_name(value);
                    let unknown = || Error::text(format!("ERR unknown type name '{}'", String::from_utf8_lossy(value)));
                    filter.kind = Some(kind.ok_or_else(unknown)?);
                }
                () if takes_slot && call.args.is(at, "SLOT") => {
                    if filter.slot.is_some() {
                        return Err(Error::new("ERR SLOT option can only be specified once"));
                    }
                    filter.slot = Some(super::cluster::slot(call, at + 1)?);
                }
                () => return Err(Error::SYNTAX),
            }
            at += 2;
        }
        Ok(filter)
    }

    /// The slot that all keys of the pattern are in, if it says so.
    fn slot_of_pattern(&self) -> Option<Slot> {
        self.pattern.filter(|pattern| *pattern != b"*").and_then(slot_of_pattern)
    }
}

/// The slot of all keys that a pattern matches, where that can be told: nothing but plain letters up to the end of the tag, or of all.
fn slot_of_pattern(pattern: &[u8]) -> Option<Slot> {
    let is_plain = |part: &[u8]| !part.iter().any(|letter| matches!(letter, b'*' | b'?' | b'[' | b'\\'));
    let open = pattern.iter().position(|letter| *letter == b'{');
    let tag = open.and_then(|open| {
        let end = pattern[open + 1..].iter().position(|letter| *letter == b'}')?;
        (end > 0).then_some(open + 1 + end + 1)
    });
    let decisive = &pattern[..tag.unwrap_or(pattern.len())];
    is_plain(decisive).then(|| Slot::of(decisive))
}

/// A place in the tables of slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    slot: Slot,
    /// Within the slot.
    order: u32,
}

impl Place {
    /// Where a slot begins.
    fn start(slot: Slot) -> Self {
        Self { slot, order: 0 }
    }

    fn from_number(number: u64) -> Option<Self> {
        let slot = u16::try_from(number >> ORDER_BITS).ok().and_then(Slot::new)?;
        let order = u32::try_from(number & u64::from(u32::MAX)).expect("32 bits were kept");
        Some(Self { slot, order })
    }

    fn number(self) -> u64 {
        u64::from(self.slot.number()) << ORDER_BITS | u64::from(self.order)
    }
}

/// Visits keys from a place on, up to the end of slot `last`. Returns their names, and where to go on unless that is the end.
fn walk(call: &mut Call<'_, '_>, filter: &Filter<'_>, from: Place, last: Slot) -> (Vec<Vec<u8>>, Option<Place>) {
    let (database, now_ms) = (call.keys.database(), call.keys.seen_ms());
    let is_hidden = super::space::hidden(call);
    let (mut seen, mut shown, mut expired) = (0, Vec::new(), Vec::new());
    let mut place = Some(from);
    while let Some(Place { slot, order }) = place {
        let shard = call.keys.shard(slot);
        // What is empty is passed over even when enough was seen: the next call begins where there is something.
        if order > 0 || shard.keys_in_slot(database, slot.index()) > 0 {
            if seen >= filter.count {
                break;
            }
            let next = shard.scan_slot(database, slot.index(), order, filter.count - seen, |record| {
                seen += 1;
                let is_kind = filter.kind.is_none_or(|kind| kind == record.kind());
                let is_match = filter.pattern.is_none_or(|pattern| glob::matches(pattern, record.key(), false));
                if is_kind && is_match && !is_hidden(record.key()) {
                    let into = if record.is_live(now_ms) { &mut shown } else { &mut expired };
                    into.push(record.key().to_vec());
                }
            });
            if next > 0 {
                place = Some(Place { slot, order: next });
                continue;
            }
        }
        place = Slot::new(slot.number() + 1).filter(|next| *next <= last).map(Place::start);
    }
    // What has expired is taken out by being looked for.
    for name in &expired {
        call.keys.peek(call.keys.key(name));
    }
    (shown, place)
}

fn write(call: &mut Call<'_, '_>, cursor: &str, shown: &[Vec<u8>]) {
    call.reply.array(2);
    call.reply.bulk(cursor.as_bytes());
    call.reply.array(shown.len());
    shown.iter().for_each(|name| call.reply.bulk(name));
}

fn scan(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let text = std::str::from_utf8(&call.args[1]).ok();
    let cursor: u64 = text.and_then(|text| text.parse().ok()).ok_or(Error::new("ERR invalid cursor"))?;
    let filter = Filter::read(call, false)?;
    let last = Slot::new(SLOTS - 1).expect("it is the last of them");
    let place = Place::from_number(cursor);
    let (from, last) = match filter.slot_of_pattern().filter(|_| call.engine.cluster().is_some()) {
        // Keys that can match are in one slot.
        Some(slot) => (place.filter(|place| place.slot == slot).or(Some(Place::start(slot))), slot),
        None => (place, last),
    };
    let (shown, next) = from.map_or((Vec::new(), None), |from| walk(call, &filter, from, last));
    write(call, &next.map_or(0, Place::number).to_string(), &shown);
    Ok(())
}

/// What this engine's tables are known by.
fn fingerprint(call: &Call<'_, '_>) -> String {
    let mut left = call.keys.key(b"").hash;
    let letter = move || {
        let bits = u8::try_from(left & 0x3f).expect("six bits");
        left >>= 6;
        char::from(b'0' + bits)
    };
    std::iter::repeat_with(letter).take(FINGERPRINT_LETTERS).collect()
}

/// A cursor at the beginning of a slot, for whichever node has it.
fn at_slot(slot: Slot) -> String {
    format!("0-{{{}}}-0", slot.tag())
}

/// Where a cursor of CLUSTERSCAN stands.
fn read_cursor(word: &[u8], own: &str) -> Option<Place> {
    let mut parts = word.splitn(3, |letter| *letter == b'-');
    let (fingerprint, tag, cursor) = (parts.next()?, parts.next()?, parts.next()?);
    let number: u64 = std::str::from_utf8(cursor).ok().filter(|text| !text.starts_with('+'))?.parse().ok()?;
    let start = Place::start(Slot::of(tag));
    let known = Place::from_number(number).filter(|place| fingerprint == own.as_bytes() && place.slot == start.slot);
    Some(known.unwrap_or(start))
}

fn cluster_scan(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let map = super::cluster::cluster(call)?.map();
    let filter = Filter::read(call, true)?;
    let of_pattern = filter.slot_of_pattern();
    // Nothing can be in two slots.
    let is_vain = filter.slot.is_some_and(|slot| of_pattern.is_some_and(|other| other != slot));
    if &call.args[1] == b"0" {
        let first = filter.slot.or(of_pattern).unwrap_or_else(|| Slot::new(0).expect("there is one"));
        write(call, &if is_vain { "0".to_owned() } else { at_slot(first) }, &[]);
        return Ok(());
    }
    let own = fingerprint(call);
    let from = read_cursor(&call.args[1], &own).ok_or(Error::new("ERR Invalid cursor"))?;
    if filter.slot.is_some_and(|slot| slot != from.slot) {
        return Err(Error::new("ERR Cursor slot mismatch with SLOT argument"));
    }
    if let Some(wanted) = of_pattern.filter(|wanted| *wanted != from.slot) {
        let is_ahead = !is_vain && wanted > from.slot;
        write(call, &if is_ahead { at_slot(wanted) } else { "0".to_owned() }, &[]);
        return Ok(());
    }
    let is_single = filter.slot.or(of_pattern).is_some();
    let owner = |slot: Slot| map.owner(slot).map(|node| node.name);
    let mut last = from.slot;
    let mut after = Slot::new(last.number() + 1);
    while let Some(next) = after.filter(|next| !is_single && owner(*next) == owner(from.slot)) {
        last = next;
        after = Slot::new(next.number() + 1);
    }
    let (shown, next) = walk(call, &filter, from, last);
    let cursor = match (next, after) {
        (Some(place), _) => format!("{own}-{{{}}}-{}", place.slot.tag(), place.number()),
        (None, Some(after)) if !is_single => at_slot(after),
        (None, _) => "0".to_owned(),
    };
    write(call, &cursor, &shown);
    Ok(())
}
