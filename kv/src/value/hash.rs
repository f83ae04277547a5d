//! Hashes: fields with a value each, and maybe a time at which the field expires.
//!
//! A small hash is a short sequence of fields and values in turn, a large one, or one with a field that expires, a table.
//! Which it is, and when it changes, is told to clients as the encoding, so both follow Valkey's `hash-max-listpack-*`
//! settings to the field. A hash never goes back to the smaller form.
//!
//! An expired field is hidden by every call that is told what time it is, and still counted by [`Hash::len`], until
//! [`Hash::reap`] takes it out. It expires when the time is past its expiry, not at it.
//!
//! Calls that hash are given the hash key, always the same. An empty hash is for its owner to remove.

mod table;

use self::table::Table;
use crate::memory::hash_key::HashKey;
use crate::memory::index::below;
use crate::memory::packed::{Packed, Place};
use crate::value::choose::choose;
use crate::value::dict::{Dict, Entry};
use crate::value::text::Text;

/// Up to where a hash keeps its small form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The setting `hash-max-listpack-entries`: the most fields of a short sequence.
    pub listpack_entries_max: usize,
    /// The setting `hash-max-listpack-value`: the most bytes of a field or value of a short sequence.
    pub listpack_value_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { listpack_entries_max: 512, listpack_value_bytes_max: 64 }
    }
}

/// The most bytes of a short sequence, whatever the settings say.
const PACKED_BYTES_MAX: usize = 1 << 30;

/// A field of a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    /// What it is found by.
    pub name: Text<'a>,
    /// What it is found for.
    pub value: Text<'a>,
    /// When it expires, in milliseconds since 1970, if it does.
    pub expiry_ms: Option<i64>,
}

impl<'a> From<Entry<'a>> for Field<'a> {
    fn from(entry: Entry<'a>) -> Self {
        Self { name: entry.member.into(), value: entry.value.into(), expiry_ms: entry.expiry_ms }
    }
}

/// When a field that is set shall expire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// Never, whatever was said before.
    Never,
    /// When it would have; never if it is new.
    Kept,
    /// When this time is past, in milliseconds since 1970.
    At(i64),
}

/// A hash.
#[derive(Debug, Clone, Default)]
pub struct Hash {
    form: Form,
}

#[derive(Debug, Clone)]
enum Form {
    /// Name, value, name, value.
    Packed(Packed),
    Table(Box<Table>),
}

impl Default for Form {
    fn default() -> Self {
        Self::Packed(Packed::new())
    }
}

impl Hash {
    /// A hash without fields.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A hash of the elements of a sequence, fields and values in turn, whose fields the caller has found to be different.
    ///
    /// # Panics
    /// A field has no value.
    #[must_use]
    pub fn from_packed(packed: Packed, key: &HashKey, limits: &Limits) -> Self {
        assert!(packed.len().is_multiple_of(2), "fields and values come in pairs");
        let mut hash = Self { form: Form::Packed(packed) };
        hash.prepare_len(hash.len(), key, limits);
        hash
    }

    /// The sequence of fields and values that it is, if it is one.
    #[must_use]
    pub const fn packed(&self) -> Option<&Packed> {
        if let Form::Packed(packed) = &self.form { Some(packed) } else { None }
    }

    /// Makes a hash a table if it will have so many fields that it would become one.
    pub fn prepare_len(&mut self, fields: usize, key: &HashKey, limits: &Limits) {
        if fields > limits.listpack_entries_max {
            self.become_table(key);
        }
    }

    /// Makes a hash a table if fields that will be set at once, with names and values of these lengths in turn, would not
    /// leave it what it is.
    pub fn prepare(&mut self, lens: impl ExactSizeIterator<Item = usize>, key: &HashKey, limits: &Limits) {
        let Form::Packed(packed) = &self.form else { return };
        let is_many = lens.len() / 2 > limits.listpack_entries_max;
        let (mut sum, mut longest) = (packed.byte_len(), 0);
        for len in lens {
            (sum, longest) = (sum.saturating_add(len), longest.max(len));
        }
        if is_many || longest > limits.listpack_value_bytes_max || sum > PACKED_BYTES_MAX {
            self.become_table(key);
        }
    }

    /// The map that it is, if it is a large one.
    pub(crate) fn dict(&self) -> Option<&Dict> {
        match &self.form {
            Form::Table(table) => Some(table.dict()),
            Form::Packed(_) => None,
        }
    }

    /// The name of the form, for clients.
    #[must_use]
    pub const fn encoding(&self) -> &'static str {
        match self.form {
            Form::Packed(_) => "listpack",
            Form::Table(_) => "hashtable",
        }
    }

    /// Fields, with those that have expired and were not reaped.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.form {
            Form::Packed(packed) => packed.len() / 2,
            Form::Table(table) => table.dict().len(),
        }
    }

    /// Whether there is no field, not even an expired one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fields that have not expired. Takes time in proportion to those that have.
    #[must_use]
    pub fn live_len(&self, now_ms: i64) -> usize {
        match &self.form {
            Form::Packed(packed) => packed.len() / 2,
            Form::Table(table) => table.dict().len() - table.expired_len(now_ms),
        }
    }

    /// Fields with an expiry.
    #[must_use]
    pub fn expiring_len(&self) -> usize {
        match &self.form {
            Form::Packed(_) => 0,
            Form::Table(table) => table.expiring_len(),
        }
    }

    /// The first expiry of all, if any field has one: [`Hash::reap`] has nothing to do before it is past.
    #[must_use]
    pub fn next_expiry_ms(&self) -> Option<i64> {
        match &self.form {
            Form::Packed(_) => None,
            Form::Table(table) => table.next_expiry_ms(),
        }
    }

    /// When its owner looks for expired fields next, as far as the owner has said so.
    #[must_use]
    pub const fn scheduled_ms(&self) -> Option<i64> {
        match &self.form {
            Form::Packed(_) => None,
            Form::Table(table) => table.scheduled_ms(),
        }
    }

    /// Notes when its owner looks for expired fields next. A hash without such fields does not keep it.
    pub fn set_scheduled(&mut self, at_ms: Option<i64>) {
        if let Form::Table(table) = &mut self.form {
            table.set_scheduled(at_ms);
        }
    }

    /// Bytes taken from the allocator, without its own bookkeeping. What order expiries take is estimated.
    #[must_use]
    pub fn bytes_held(&self) -> usize {
        match &self.form {
            Form::Packed(packed) => packed.bytes_held(),
            Form::Table(table) => size_of::<Table>() + table.bytes_held(),
        }
    }

    /// Sets the value of a field and its expiry; whether it was not there before.
    pub fn set(
        &mut self,
        name: &[u8],
        value: &[u8],
        expiry: Expiry,
        now_ms: i64,
        key: &HashKey,
        limits: &Limits,
    ) -> bool {
        if let Form::Packed(packed) = &mut self.form {
            let longest = name.len().max(value.len());
            let bytes = packed.byte_len() + name.len() + value.len();
            let is_short = longest <= limits.listpack_value_bytes_max && bytes <= PACKED_BYTES_MAX;
            if is_short && !matches!(expiry, Expiry::At(_)) {
                let is_new = set_packed(packed, name, value);
                if packed.len() / 2 > limits.listpack_entries_max {
                    self.become_table(key);
                }
                return is_new;
            }
        }
        self.become_table(key).set(name, value, expiry, now_ms, key)
    }

    /// A field.
    #[must_use]
    pub fn get(&self, name: &[u8], now_ms: i64, key: &HashKey) -> Option<Field<'_>> {
        match &self.form {
            Form::Packed(packed) => {
                let place = find(packed, name)?;
                Some(field_at(packed, place))
            }
            Form::Table(table) => table.get(name, now_ms, key).map(Field::from),
        }
    }

    /// Takes a field out; whether it was there.
    pub fn remove(&mut self, name: &[u8], now_ms: i64, key: &HashKey) -> bool {
        match &mut self.form {
            Form::Packed(packed) => {
                let place = find(packed, name);
                place.is_some_and(|place| packed.remove_many(place, 2) > 0)
            }
            Form::Table(table) => table.remove(name, now_ms, key),
        }
    }

    /// Says when a field expires, or that it does not; whether it is there. Makes a hash with an expiry a table.
    pub fn set_expiry(&mut self, name: &[u8], expiry_ms: Option<i64>, now_ms: i64, key: &HashKey) -> bool {
        if self.get(name, now_ms, key).is_none() {
            return false;
        }
        if expiry_ms.is_some() || matches!(self.form, Form::Table(_)) {
            self.become_table(key).set_expiry(name, expiry_ms, key);
        }
        true
    }

    /// Takes out fields that have expired, the first to expire first, up to so many, and shows their names. How many that
    /// were.
    pub fn reap(&mut self, now_ms: i64, fields_max: usize, key: &HashKey, show: impl FnMut(&[u8])) -> usize {
        match &mut self.form {
            Form::Packed(_) => 0,
            Form::Table(table) => table.reap(now_ms, fields_max, key, show),
        }
    }

    /// All fields; those of a small hash in the order in which they came.
    pub fn iter(&self, now_ms: i64) -> Box<dyn Iterator<Item = Field<'_>> + '_> {
        match &self.form {
            Form::Packed(packed) => {
                let mut pieces = packed.iter();
                Box::new(std::iter::from_fn(move || {
                    let (name, value) = (pieces.next()?, pieces.next()?);
                    Some(Field { name: name.into(), value: value.into(), expiry_ms: None })
                }))
            }
            Form::Table(table) => Box::new(table.iter(now_ms).map(Field::from)),
        }
    }

    /// Visits fields as [`crate::memory::index::Index::scan`] does; a small hash at once.
    pub fn scan<'a>(
        &'a self,
        cursor: u32,
        count: usize,
        now_ms: i64,
        key: &HashKey,
        mut visit: impl FnMut(Field<'a>),
    ) -> u32 {
        if let Form::Table(table) = &self.form {
            return table.scan(cursor, count, now_ms, key, |entry| visit(entry.into()));
        }
        self.iter(now_ms).for_each(visit);
        0
    }

    /// A field, each with the same chance, if there is one. `draw` gives evenly spread numbers of 64 bits.
    #[must_use]
    pub fn random(&self, now_ms: i64, mut draw: impl FnMut() -> u64) -> Option<Field<'_>> {
        match &self.form {
            Form::Packed(packed) => {
                let place = packed.nth(2 * below(draw(), packed.len() / 2))?;
                Some(field_at(packed, place))
            }
            Form::Table(table) => table.random(now_ms, draw).map(Field::from),
        }
    }

    /// Shows so many fields, each time any of all with the same chance. Nothing of an empty hash.
    pub fn random_repeated<'a>(
        &'a self,
        count: usize,
        now_ms: i64,
        mut draw: impl FnMut() -> u64,
        mut show: impl FnMut(Field<'a>),
    ) {
        if let Form::Packed(_) = &self.form {
            let fields: Vec<Field<'_>> = self.iter(now_ms).collect();
            if !fields.is_empty() {
                (0..count).for_each(|_| show(fields[below(draw(), fields.len())]));
            }
            return;
        }
        for _ in 0..count {
            let Some(field) = self.random(now_ms, &mut draw) else { return };
            show(field);
        }
    }

    /// Shows so many different fields, or all if there are not so many. Each selection has the same chance, but not each
    /// order.
    pub fn random_distinct<'a>(
        &'a self,
        count: usize,
        now_ms: i64,
        draw: impl FnMut() -> u64,
        mut show: impl FnMut(Field<'a>),
    ) {
        match &self.form {
            Form::Packed(_) => choose(self.iter(now_ms), self.len(), count, draw, show),
            Form::Table(table) => table.random_distinct(count, now_ms, draw, |entry| show(entry.into())),
        }
    }

    fn become_table(&mut self, key: &HashKey) -> &mut Table {
        if let Form::Packed(_) = &self.form {
            let mut dict = Dict::new();
            for Field { name, value, .. } in self.iter(i64::MIN) {
                let (name, value) = (name.to_vec(), value.to_vec());
                dict.insert(key, Entry { member: &name, value: &value, expiry_ms: None });
            }
            self.form = Form::Table(Box::new(Table::new(dict)));
        }
        let Form::Table(table) = &mut self.form else { unreachable!("what is no sequence is a table") };
        table
    }
}

fn find(packed: &Packed, name: &[u8]) -> Option<Place> {
    packed.find(name, packed.first()?, 2)
}

fn field_at(packed: &Packed, place: Place) -> Field<'_> {
    let (name, value) = (packed.get(place), packed.get(packed.after(place)));
    Field { name: name.into(), value: value.into(), expiry_ms: None }
}

/// Whether the field was not there before.
fn set_packed(packed: &mut Packed, name: &[u8], value: &[u8]) -> bool {
    if let Some(place) = find(packed, name) {
        packed.replace(packed.after(place), value);
        return false;
    }
    packed.push_back(name);
    packed.push_back(value);
    true
}

#[cfg(test)]
mod tests;
