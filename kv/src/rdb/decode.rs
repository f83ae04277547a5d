//! Bytes to values: every type there has been, into what this engine keeps.
//!
//! Which form a value gets is decided by the settings of now, as Valkey does: a packed form stays packed unless it has too many
//! elements, and what was written element by element gets the form that the same elements would get by commands.

use std::borrow::Cow;

use super::code::{container, kind};
use super::sequence::{Element, ListpackElements, ZiplistElements, ZipmapElements, pack};
use super::shape::OLD_SCORE_SPECIAL;
use super::source::{Damage, Source, module_name};
use crate::memory::hash_key::HashKey;
use crate::memory::packed::{Digits, Packed, Piece};
use crate::settings::Settings;
use crate::value::Object;
use crate::value::dict::{Dict, Entry};
use crate::value::hash::{Expiry, Hash};
use crate::value::list::{End, List};
use crate::value::score::{parse_freely, parse_number};
use crate::value::set::Set;
use crate::value::zset::ZSet;

mod stream;

/// What a hash writes for a field that does not expire.
const NEVER: i64 = -1;

/// What decides how values are kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules<'a> {
    /// What collections are hashed with.
    pub(crate) hash_key: &'a HashKey,
    pub(crate) settings: &'a Settings,
    /// Fields that have expired by this time, Unix milliseconds, are left out; `i64::MIN` leaves none out.
    pub(crate) expired_ms: i64,
}

/// A value that was read.
#[derive(Debug, Clone)]
pub(crate) enum Decoded<'a> {
    /// A string.
    String(Cow<'a, [u8]>),
    /// Anything else.
    Object(Object),
    /// A collection of nothing. Old servers wrote such by mistake.
    Empty,
    /// A hash all of whose fields have expired.
    Expired,
}

/// Reads a value of a type.
pub(super) fn decode<'a>(number: u8, source: &mut Source<'a>, rules: &Rules<'_>) -> Result<Decoded<'a>, Damage> {
    let object = match number {
        kind::STRING => return string(source),
        kind::LIST => Object::List(list(source, rules)?),
        kind::LIST_ZIPLIST => Object::List(list_ziplist(source, rules)?),
        kind::LIST_QUICKLIST => Object::List(quicklist(source, rules, false)?),
        kind::LIST_QUICKLIST_2 => Object::List(quicklist(source, rules, true)?),
        kind::SET => Object::Set(set(source, rules)?),
        kind::SET_INTSET => Object::Set(integers(source, rules)?),
        kind::SET_LISTPACK => Object::Set(set_listpack(source, rules)?),
        kind::ZSET => Object::SortedSet(sorted_set(source, rules, old_score)?),
        kind::ZSET_2 => Object::SortedSet(sorted_set(source, rules, score)?),
        kind::ZSET_ZIPLIST | kind::ZSET_LISTPACK => Object::SortedSet(sorted_set_packed(number, source, rules)?),
        kind::HASH | kind::HASH_2 | kind::HASH_EXPIRING => return fields(number, source, rules),
        kind::HASH_LISTPACK_EXPIRING => return listpack_of_triples(source, rules),
        kind::HASH_ZIPMAP | kind::HASH_ZIPLIST | kind::HASH_LISTPACK => {
            Object::Hash(hash_packed(number, source, rules)?)
        }
        kind::STREAM | kind::STREAM_2 | kind::STREAM_3 => Object::Stream(Box::new(stream::decode(number, source)?)),
        kind::MODULE => return Err(Damage::Module(module_name(source.length()?))),
        kind::MODULE_PRE_RELEASE => return Err(Damage::Module(*b"before-GA")),
        _ => return Err(Damage::Type(number)),
    };
    Ok(if is_empty(&object) { Decoded::Empty } else { Decoded::Object(object) })
}

fn is_empty(object: &Object) -> bool {
    match object {
        Object::List(list) => list.is_empty(),
        Object::Set(set) => set.is_empty(),
        Object::SortedSet(set) => set.is_empty(),
        Object::Hash(hash) => hash.is_empty(),
        Object::Stream(_) => false,
    }
}

fn string<'a>(source: &mut Source<'a>) -> Result<Decoded<'a>, Damage> {
    source.text_kept().map(Decoded::String)
}

/// Whether two of these names are the same. Takes time in proportion to n log n.
fn has_duplicates<'a>(names: impl Iterator<Item = Piece<'a>> + Clone, key: &HashKey) -> bool {
    let mut digits = Digits::default();
    let mut hashes: Vec<u64> = names.clone().map(|name| key.hash(name.bytes(&mut digits))).collect();
    hashes.sort_unstable();
    let is_likely = hashes.windows(2).any(|two| two[0] == two[1]);
    is_likely && {
        let mut names: Vec<Vec<u8>> = names.map(|name| name.to_vec()).collect();
        names.sort_unstable();
        names.windows(2).any(|two| two[0] == two[1])
    }
}

/// The elements of a sequence of fields and values in turn, whose fields differ.
fn pairs<'a>(elements: impl Iterator<Item = Element<'a>>, key: &HashKey) -> Result<Packed, Damage> {
    let packed = pack(elements)?;
    if !packed.len().is_multiple_of(2) {
        return Err(Damage::Packed);
    }
    if has_duplicates(packed.iter().step_by(2), key) { Err(Damage::Duplicate) } else { Ok(packed) }
}

fn list(source: &mut Source<'_>, rules: &Rules<'_>) -> Result<List, Damage> {
    let (count, fill) = (source.count(1)?, rules.settings.list_fill);
    let (mut list, mut made) = (List::new(), Vec::new());
    for _ in 0..count {
        list.push(End::Back, source.text(&mut made)?, fill);
    }
    Ok(list)
}

fn list_ziplist(source: &mut Source<'_>, rules: &Rules<'_>) -> Result<List, Damage> {
    let (mut made, fill) = (Vec::new(), rules.settings.list_fill);
    let (mut list, mut digits) = (List::new(), Digits::default());
    for element in ZiplistElements::new(source.text(&mut made)?)? {
        list.push(End::Back, element?.bytes(&mut digits), fill);
    }
    Ok(list)
}

fn quicklist(source: &mut Source<'_>, rules: &Rules<'_>, has_containers: bool) -> Result<List, Damage> {
    let count = source.count(if has_containers { 2 } else { 1 })?;
    let (mut nodes, mut made) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let container = if has_containers { source.length()? } else { container::PACKED };
        let blob = source.text(&mut made)?;
        nodes.push(match container {
            _ if blob.is_empty() => return Err(Damage::Packed),
            container::PACKED if has_containers => pack(ListpackElements::new(blob)?)?,
            container::PACKED => pack(ZiplistElements::new(blob)?)?,
            container::PLAIN => {
                let mut node = Packed::new();
                node.push_back(blob);
                node.shrink_to_fit();
                node
            }
            _ => return Err(Damage::Packed),
        });
    }
    Ok(List::from_nodes(nodes, rules.settings.list_fill))
}

fn set(source: &mut Source<'_>, rules: &Rules<'_>) -> Result<Set, Damage> {
    let (count, limits, key) = (source.count(1)?, &rules.settings.set, rules.hash_key);
    let mut made = Vec::new();
    // A set that is announced as large is a table from the start, whatever its members are.
    let hint = if count > limits.intset_entries_max { usize::MAX } else { 0 };
    let mut set = Set::new(b"0", hint, limits);
    for _ in 0..count {
        if !set.add(source.text(&mut made)?, key, limits) {
            return Err(Damage::Duplicate);
        }
    }
    Ok(set)
}

fn integers(source: &mut Source<'_>, rules: &Rules<'_>) -> Result<Set, Damage> {
    let mut made = Vec::new();
    let mut blob = Source::new(source.text(&mut made)?);
    let [width, count] = [blob.array()?, blob.array()?].map(|number: [u8; 4]| u32::from_le_bytes(number) as usize);
    let bytes = blob.bytes(width.checked_mul(count).ok_or(Damage::Packed)?)?;
    blob.finish()?;
    let set = Set::from_integers(width, bytes, rules.hash_key, &rules.settings.set);
    set.filter(|set| set.len() == count && count > 0).ok_or(Damage::Packed)
}

fn set_listpack(source: &mut Source<'_>, rules: &Rules<'_>) -> Result<Set, Damage> {
    let mut made = Vec::new();
    let packed = pack(ListpackElements::new(source.text(&mut made)?)?)?;
    if has_duplicates(packed.iter(), rules.hash_key) {
        return Err(Damage::Duplicate);
    }
    Ok(Set::from_packed(packed, rules.hash_key, &rules.settings.set))
}

/// A score of eight bytes.
fn score(source: &mut Source<'_>) -> Result<f64, Damage> {
    Ok(f64::from_le_bytes(source.array()?))
}

/// A score as text.
fn old_score(source: &mut Source<'_>) -> Result<f64, Damage> {
    match source.byte()? {
        255 => Ok(f64::NEG_INFINITY),
        254 => Ok(f64::INFINITY),
        OLD_SCORE_SPECIAL => Err(Damage::Number),
        len => score_of_text(source.bytes(len.into())?),
    }
}

/// A score as text that some server wrote. What is too near to zero is zero.
fn score_of_text(text: &[u8]) -> Result<f64, Damage> {
    let is_written = text.first().is_some_and(|first| first.is_ascii_alphanumeric() || b"+-.".contains(first));
    let score = parse_freely(text).filter(|_| is_written);
    parse_number(text).or(score).ok_or(Damage::Number)
}

fn sorted_set(
    source: &mut Source<'_>,
    rules: &Rules<'_>,
    score: fn(&mut Source<'_>) -> Result<f64, Damage>,
) -> Result<ZSet, Damage> {
    let count = source.count(2)?;
    let (mut members, mut made) = (Dict::new(), Vec::new());
    for _ in 0..count {
        let member = source.text(&mut made)?;
        let score = score(source)?;
        if score.is_nan() {
            return Err(Damage::Number);
        }
        let entry = Entry { member, value: &score.to_le_bytes(), expiry_ms: None };
        if !members.insert(rules.hash_key, entry).is_new() {
            return Err(Damage::Duplicate);
        }
    }
    Ok(ZSet::from_members(members, &rules.settings.sorted_set))
}

fn sorted_set_packed(number: u8, source: &mut Source<'_>, rules: &Rules<'_>) -> Result<ZSet, Damage> {
    let mut made = Vec::new();
    let blob = source.text(&mut made)?;
    let packed = match number {
        kind::ZSET_ZIPLIST => pairs(ZiplistElements::new(blob)?, rules.hash_key)?,
        _ => pairs(ListpackElements::new(blob)?, rules.hash_key)?,
    };
    let (mut entries, mut digits) = (Vec::with_capacity(packed.len() / 2), Digits::default());
    let mut pieces = packed.iter();
    while let Some((member, score)) = pieces.next().zip(pieces.next()) {
        entries.push((member, score_of_text(score.bytes(&mut digits))?));
    }
    let set = ZSet::from_ordered(entries.into_iter(), rules.hash_key, &rules.settings.sorted_set);
    set.ok_or(Damage::Order)
}

/// A hash that is written field by field.
fn fields<'a>(number: u8, source: &mut Source<'_>, rules: &Rules<'_>) -> Result<Decoded<'a>, Damage> {
    let first_ms = if number == kind::HASH_EXPIRING { source.number()? } else { 0 };
    let count = source.count(2)?;
    let mut filling = Filling::new(count, rules);
    let (mut made, mut made_value) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let after_first = if number == kind::HASH_EXPIRING { source.length()? } else { 0 };
        let name = source.text(&mut made)?;
        let value = source.text(&mut made_value)?;
        let expiry_ms = match number {
            kind::HASH_2 => Some(source.number()?).filter(|expiry_ms| *expiry_ms != NEVER),
            // One more than what is to be added to the first; 0 for a field that does not expire.
            _ if after_first > 0 => Some(first_ms.checked_add_unsigned(after_first - 1).ok_or(Damage::Number)?),
            _ => None,
        };
        filling.add(name, value, expiry_ms)?;
    }
    Ok(filling.finish())
}

/// A listpack of fields, values and times at which the fields expire, 0 for never.
fn listpack_of_triples<'a>(source: &mut Source<'_>, rules: &Rules<'_>) -> Result<Decoded<'a>, Damage> {
    let _first_ms = source.number()?;
    let mut made = Vec::new();
    let packed = pack(ListpackElements::new(source.text(&mut made)?)?)?;
    if !packed.len().is_multiple_of(3) {
        return Err(Damage::Packed);
    }
    let mut filling = Filling::new(packed.len() / 3, rules);
    let (mut digits, mut value_digits) = (Digits::default(), Digits::default());
    let mut pieces = packed.iter();
    while let (Some(name), Some(value), Some(expiry)) = (pieces.next(), pieces.next(), pieces.next()) {
        let expiry_ms = expiry.integer().ok_or(Damage::Number)?;
        let expiry_ms = (expiry_ms != 0).then_some(expiry_ms);
        filling.add(name.bytes(&mut digits), value.bytes(&mut value_digits), expiry_ms)?;
    }
    Ok(filling.finish())
}

/// A hash that is being filled.
struct Filling<'r> {
    hash: Hash,
    rules: &'r Rules<'r>,
    /// Fields that had expired.
    expired: usize,
}

impl<'r> Filling<'r> {
    fn new(count: usize, rules: &'r Rules<'r>) -> Self {
        let mut hash = Hash::new();
        hash.prepare_len(count, rules.hash_key, &rules.settings.hash);
        Self { hash, rules, expired: 0 }
    }

    fn add(&mut self, name: &[u8], value: &[u8], expiry_ms: Option<i64>) -> Result<(), Damage> {
        let Rules { hash_key, settings, expired_ms } = *self.rules;
        if expiry_ms.is_some_and(|expiry_ms| expiry_ms < 0) {
            return Err(Damage::Number);
        }
        if expiry_ms.is_some_and(|expiry_ms| expiry_ms < expired_ms) {
            self.expired += 1;
            return Ok(());
        }
        let expiry = expiry_ms.map_or(Expiry::Never, Expiry::At);
        // Before all times no field has expired, so a name that comes twice is found.
        let is_new = self.hash.set(name, value, expiry, i64::MIN, hash_key, &settings.hash);
        if is_new { Ok(()) } else { Err(Damage::Duplicate) }
    }

    fn finish<'a>(self) -> Decoded<'a> {
        match (self.hash.is_empty(), self.expired) {
            (true, 0) => Decoded::Empty,
            (true, _) => Decoded::Expired,
            (false, _) => Decoded::Object(Object::Hash(self.hash)),
        }
    }
}

fn hash_packed(number: u8, source: &mut Source<'_>, rules: &Rules<'_>) -> Result<Hash, Damage> {
    let mut made = Vec::new();
    let (blob, key, limits) = (source.text(&mut made)?, rules.hash_key, &rules.settings.hash);
    let packed = match number {
        kind::HASH_ZIPLIST => pairs(ZiplistElements::new(blob)?, key)?,
        kind::HASH_LISTPACK => pairs(ListpackElements::new(blob)?, key)?,
        _ => {
            let packed = pairs(ZipmapElements::new(blob)?, key)?;
            let longest = packed.iter().map(|piece| piece.len()).max().unwrap_or(0);
            let is_small = longest <= limits.listpack_value_bytes_max;
            let fields = if is_small { packed.len() / 2 } else { usize::MAX };
            let mut hash = Hash::from_packed(packed, key, limits);
            hash.prepare_len(fields, key, limits);
            return Ok(hash);
        }
    };
    Ok(Hash::from_packed(packed, key, limits))
}
