//! Bytes to streams. `encode::stream` says how they are written.

use std::collections::BTreeMap;

use super::Damage;
use crate::memory::packed::Piece;
use crate::rdb::code::{entry_flag, kind};
use crate::rdb::sequence::ListpackElements;
use crate::rdb::source::Source;
use crate::value::stream::{Group, Log, Node, Pending, Stream, StreamId};

/// What is written for a count that is not known.
const UNKNOWN: u64 = u64::MAX;
/// What is written for a consumer that was never active.
const NEVER_ACTIVE: i64 = -1;
/// The least that a node, a group, a pending entry, a consumer takes in bytes.
const NODE_BYTES_MIN: usize = 2;
const GROUP_BYTES_MIN: usize = 5;
const PENDING_BYTES_MIN: usize = 25;
const CONSUMER_BYTES_MIN: usize = 10;
const ID_BYTES: usize = 16;

pub(super) fn decode(number: u8, source: &mut Source<'_>) -> Result<Stream, Damage> {
    let mut stream = Stream::new();
    let (nodes, mut made, mut made_id) = (source.count(NODE_BYTES_MIN)?, Vec::new(), Vec::new());
    for _ in 0..nodes {
        let id = source.text(&mut made_id)?;
        let base = StreamId::from_bytes(id.try_into().map_err(|_| Damage::Packed)?);
        let node = node(base, source.text(&mut made)?)?;
        if !stream.log.add_node(base, node) {
            return Err(Damage::Order);
        }
    }
    counts(number, source, &mut stream.log)?;
    let groups = source.count(GROUP_BYTES_MIN)?;
    for _ in 0..groups {
        let name: Box<[u8]> = source.text(&mut made)?.into();
        let group = group(number, source, &stream.log)?;
        if stream.groups.insert(name, group).is_some() {
            return Err(Damage::Duplicate);
        }
    }
    Ok(stream)
}

fn id(source: &mut Source<'_>) -> Result<StreamId, Damage> {
    Ok(StreamId { ms: source.length()?, seq: source.length()? })
}

fn counts(number: u8, source: &mut Source<'_>, log: &mut Log) -> Result<(), Damage> {
    let len = source.length()?;
    let last_id = id(source)?;
    let (added, deleted_id) = if number == kind::STREAM {
        (len, StreamId::MIN)
    } else {
        // The first id is that of the first entry: it need not be believed.
        id(source)?;
        let deleted_id = id(source)?;
        (source.length()?, deleted_id)
    };
    let is_whole = len == log.len() && log.set_counts(last_id, added, deleted_id);
    if is_whole { Ok(()) } else { Err(Damage::Contradiction) }
}

/// The elements of a node, one after another.
struct Reader<'a>(ListpackElements<'a>);

impl<'a> Reader<'a> {
    fn piece(&mut self) -> Result<Piece<'a>, Damage> {
        self.0.next().unwrap_or(Err(Damage::Packed))
    }

    fn number(&mut self) -> Result<i64, Damage> {
        self.piece()?.integer().ok_or(Damage::Packed)
    }

    fn count(&mut self) -> Result<u32, Damage> {
        u32::try_from(self.number()?).map_err(|_| Damage::Packed)
    }

    /// Adds so many elements; no memory is taken before they are there.
    fn pieces(&mut self, count: u32, into: &mut Vec<Piece<'a>>) -> Result<(), Damage> {
        for _ in 0..count {
            into.push(self.piece()?);
        }
        Ok(())
    }
}

fn node(base: StreamId, blob: &[u8]) -> Result<Node, Damage> {
    let mut reader = Reader(ListpackElements::new(blob)?);
    let [count, removed, names_len] = [reader.count()?, reader.count()?, reader.count()?];
    let mut names = Vec::new();
    reader.pieces(names_len, &mut names)?;
    if names.is_empty() || reader.number()? != 0 {
        return Err(Damage::Packed);
    }
    let all = count.checked_add(removed).ok_or(Damage::Packed)?;
    let mut node = Node::from_dump(&names, blob.len(), count, removed);
    let mut pieces = Vec::new();
    for _ in 0..all {
        entry(base, &mut reader, names_len, &mut pieces, &mut node)?;
    }
    let is_over = match reader.0.next() {
        None => true,
        Some(element) => element.map(|_| false)?,
    };
    if is_over && node.len() == count { Ok(node) } else { Err(Damage::Packed) }
}

/// Reads an entry into a node, unless it was removed.
fn entry<'a>(
    base: StreamId,
    reader: &mut Reader<'a>,
    names_len: u32,
    pieces: &mut Vec<Piece<'a>>,
    node: &mut Node,
) -> Result<(), Damage> {
    let flags = reader.number()?;
    if flags & !(entry_flag::REMOVED | entry_flag::SAME_NAMES) != 0 {
        return Err(Damage::Packed);
    }
    let [ms, seq] = [reader.number()?, reader.number()?].map(i64::cast_unsigned);
    let id = StreamId { ms: base.ms.wrapping_add(ms), seq: base.seq.wrapping_add(seq) };
    let has_own_names = flags & entry_flag::SAME_NAMES == 0;
    let len = if has_own_names { reader.count()? } else { names_len };
    let many = if has_own_names { len.checked_mul(2) } else { Some(len) }.filter(|many| *many > 0);
    let many = many.ok_or(Damage::Packed)?;
    pieces.clear();
    reader.pieces(many, pieces)?;
    let counted = i64::from(many) + if has_own_names { 4 } else { 3 };
    if reader.number()? != counted {
        return Err(Damage::Packed);
    }
    if flags & entry_flag::REMOVED == 0 {
        node.push_from_dump(base, id, pieces, has_own_names);
    }
    Ok(())
}

fn group(number: u8, source: &mut Source<'_>, log: &Log) -> Result<Group, Damage> {
    let last_id = id(source)?;
    let entries_read = match number {
        kind::STREAM => log.entries_until(last_id),
        _ => Some(source.length()?).filter(|read| *read != UNKNOWN),
    };
    let mut group = Group::new(last_id, entries_read);
    let mut pending = BTreeMap::new();
    let count = source.count(PENDING_BYTES_MIN)?;
    for _ in 0..count {
        let id = StreamId::from_bytes(source.array()?);
        let delivered_ms = time(source.number()?)?;
        if pending.insert(id, (delivered_ms, source.length()?)).is_some() {
            return Err(Damage::Duplicate);
        }
    }
    let consumers = source.count(CONSUMER_BYTES_MIN)?;
    for _ in 0..consumers {
        consumer(number, source, &mut group, &mut pending)?;
    }
    // What is pending must be somebody's.
    if pending.is_empty() { Ok(group) } else { Err(Damage::Contradiction) }
}

fn consumer(
    number: u8,
    source: &mut Source<'_>,
    group: &mut Group,
    pending: &mut BTreeMap<StreamId, (i64, u64)>,
) -> Result<(), Damage> {
    let mut made = Vec::new();
    let name = source.text(&mut made)?;
    let seen_ms = time(source.number()?)?;
    let active_ms = if number == kind::STREAM_3 { source.number()? } else { seen_ms };
    let consumer = group.create_consumer(name, seen_ms).ok_or(Damage::Duplicate)?;
    let active_ms = Some(active_ms).filter(|active_ms| *active_ms != NEVER_ACTIVE);
    group.consumer_mut(consumer).active_ms = active_ms.map(time).transpose()?;
    let count = source.count(ID_BYTES)?;
    for _ in 0..count {
        let id = StreamId::from_bytes(source.array()?);
        // One that is not pending, or that another consumer has.
        let (delivered_ms, deliveries) = pending.remove(&id).ok_or(Damage::Contradiction)?;
        group.set_pending(id, Pending { consumer, delivered_ms, deliveries });
    }
    Ok(())
}

/// A time in milliseconds that can have been.
fn time(ms: i64) -> Result<i64, Damage> {
    if ms >= 0 { Ok(ms) } else { Err(Damage::Number) }
}
