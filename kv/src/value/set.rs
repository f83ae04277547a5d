//! Sets: byte strings without repetition, in no order.
//!
//! A set of integers is a sorted row of them, another small one a short sequence, a large one a table. Which it is, and
//! when it changes, is told to clients as the encoding, so both follow Valkey's `set-max-*` settings to the member. A set
//! never goes back to a smaller form, but where it is the result of an operation.
//!
//! Calls that hash are given the hash key, always the same. An empty set is for its owner to remove.

mod algebra;
mod integers;

pub use self::algebra::{difference, difference_of, intersection, intersection_of, union_of};
use self::integers::Integers;
use crate::memory::hash_key::HashKey;
use crate::memory::index::below;
use crate::memory::packed::{Digits, Packed, Place};
use crate::value::choose::choose;
use crate::value::dict::{Dict, Entry};
use crate::value::text::Text;

/// Up to where a set keeps its small forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The setting `set-max-intset-entries`: the most members of a set of integers.
    pub intset_entries_max: usize,
    /// The setting `set-max-listpack-entries`: the most members of a short sequence.
    pub listpack_entries_max: usize,
    /// The setting `set-max-listpack-value`: the most bytes of a member of a short sequence.
    pub listpack_value_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { intset_entries_max: 512, listpack_entries_max: 128, listpack_value_bytes_max: 64 }
    }
}

/// The most bytes of a short sequence, whatever the settings say.
const PACKED_BYTES_MAX: usize = 1 << 30;

impl Limits {
    fn takes_integers(&self, entries: usize) -> bool {
        entries <= self.intset_entries_max.min(1 << 30)
    }

    /// Whether a short sequence may have a member more.
    fn packs(&self, entries: usize, bytes: usize, member_bytes: usize) -> bool {
        entries < self.listpack_entries_max
            && member_bytes <= self.listpack_value_bytes_max
            && bytes.saturating_add(member_bytes) <= PACKED_BYTES_MAX
    }
}

/// A set.
#[derive(Debug, Clone)]
pub struct Set {
    form: Form,
}

#[derive(Debug, Clone)]
enum Form {
    Integers(Integers),
    Packed(Packed),
    Table(Box<Dict>),
}

/// A popped set keeps less than one in so many of its members: those that stay are moved, not those that go.
const POP_MOVED_PART: usize = 5;

impl Set {
    /// An empty set in the form that suits its first member, and about so many.
    #[must_use]
    pub fn new(first: &[u8], members_hint: usize, limits: &Limits) -> Self {
        let form = if members_hint <= limits.intset_entries_max && Text::from(first).integer().is_some() {
            Form::Integers(Integers::default())
        } else if members_hint <= limits.listpack_entries_max {
            Form::Packed(Packed::new())
        } else {
            Form::Table(Box::default())
        };
        Self { form }
    }

    /// A set of ascending integers, each of 2, 4 or 8 bytes, little-endian: what a dump has. `None` if they are not.
    #[must_use]
    pub fn from_integers(width: usize, bytes: &[u8], key: &HashKey, limits: &Limits) -> Option<Self> {
        let integers = Integers::from_bytes(width, bytes)?;
        let mut set = Self { form: Form::Integers(integers) };
        if set.len() > limits.intset_entries_max {
            set.become_table(key);
        }
        Some(set)
    }

    /// A set of the elements of a sequence, which the caller has found to be different.
    #[must_use]
    pub fn from_packed(packed: Packed, key: &HashKey, limits: &Limits) -> Self {
        let mut set = Self { form: Form::Packed(packed) };
        if set.len() > limits.listpack_entries_max {
            set.become_table(key);
        }
        set
    }

    /// How many bytes each member has, and all of them, ascending, if the form is that of integers.
    #[must_use]
    pub fn integers(&self) -> Option<(usize, &[u8])> {
        if let Form::Integers(integers) = &self.form { Some(integers.as_bytes()) } else { None }
    }

    /// The sequence that it is, if it is one.
    #[must_use]
    pub const fn packed(&self) -> Option<&Packed> {
        if let Form::Packed(packed) = &self.form { Some(packed) } else { None }
    }

    /// Makes a set a table if so many members will be added at once that it would become one.
    pub fn prepare(&mut self, members_hint: usize, key: &HashKey, limits: &Limits) {
        let entries_max = match &self.form {
            Form::Integers(_) => limits.intset_entries_max,
            Form::Packed(_) => limits.listpack_entries_max,
            Form::Table(_) => return,
        };
        if members_hint > entries_max {
            self.become_table(key);
        }
    }

    /// The map that it is, if it is a large one.
    pub(crate) fn dict(&self) -> Option<&Dict> {
        match &self.form {
            Form::Table(dict) => Some(dict),
            Form::Integers(_) | Form::Packed(_) => None,
        }
    }

    /// The name of the form, for clients.
    #[must_use]
    pub const fn encoding(&self) -> &'static str {
        match self.form {
            Form::Integers(_) => "intset",
            Form::Packed(_) => "listpack",
            Form::Table(_) => "hashtable",
        }
    }

    /// Members.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.form {
            Form::Integers(integers) => integers.len(),
            Form::Packed(packed) => packed.len(),
            Form::Table(dict) => dict.len(),
        }
    }

    /// Whether there is no member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes taken from the allocator, without its own bookkeeping.
    #[must_use]
    pub fn bytes_held(&self) -> usize {
        match &self.form {
            Form::Integers(integers) => integers.bytes_held(),
            Form::Packed(packed) => packed.bytes_held(),
            Form::Table(dict) => size_of::<Dict>() + dict.bytes_held(),
        }
    }

    /// Adds a member; whether it was not there before.
    pub fn add(&mut self, member: &[u8], key: &HashKey, limits: &Limits) -> bool {
        self.add_text(member.into(), key, limits)
    }

    /// Takes a member out; whether it was there.
    pub fn remove(&mut self, member: &[u8], key: &HashKey) -> bool {
        self.remove_text(member.into(), key)
    }

    /// Whether a member is there.
    #[must_use]
    pub fn contains(&self, member: &[u8], key: &HashKey) -> bool {
        self.contains_text(member.into(), key)
    }

    /// All members; integers in their order.
    pub fn iter(&self) -> Box<dyn Iterator<Item = Text<'_>> + '_> {
        match &self.form {
            Form::Integers(integers) => Box::new(integers.iter().map(Text::from)),
            Form::Packed(packed) => Box::new(packed.iter().map(Text::from)),
            Form::Table(dict) => Box::new(dict.iter().map(|entry| entry.member.into())),
        }
    }

    /// Visits members as [`crate::memory::index::Index::scan`] does; a small set at once.
    pub fn scan<'a>(&'a self, cursor: u32, count: usize, key: &HashKey, mut visit: impl FnMut(Text<'a>)) -> u32 {
        if let Form::Table(dict) = &self.form {
            return dict.scan(key, cursor, count, |entry| visit(entry.member.into()));
        }
        self.iter().for_each(visit);
        0
    }

    /// A member, each with the same chance, if there is one. `draw` gives evenly spread numbers of 64 bits.
    #[must_use]
    pub fn random(&self, mut draw: impl FnMut() -> u64) -> Option<Text<'_>> {
        if self.is_empty() {
            return None;
        }
        match &self.form {
            Form::Integers(integers) => Some(integers.nth(below(draw(), integers.len())).into()),
            Form::Packed(packed) => {
                let place = packed.nth(below(draw(), packed.len()))?;
                Some(packed.get(place).into())
            }
            Form::Table(dict) => Some(dict.entry(dict.random(draw)?).member.into()),
        }
    }

    /// Shows so many members, each time any of all with the same chance. Nothing of an empty set.
    pub fn random_repeated<'a>(&'a self, count: usize, mut draw: impl FnMut() -> u64, mut show: impl FnMut(Text<'a>)) {
        if self.is_empty() {
            return;
        }
        if let Form::Packed(packed) = &self.form {
            let members: Vec<_> = packed.iter().collect();
            (0..count).for_each(|_| show(members[below(draw(), members.len())].into()));
        } else {
            (0..count).filter_map(|_| self.random(&mut draw)).for_each(show);
        }
    }

    /// Shows so many different members, or all if there are not so many. Each selection has the same chance, but not each
    /// order.
    pub fn random_distinct<'a>(&'a self, count: usize, draw: impl FnMut() -> u64, mut show: impl FnMut(Text<'a>)) {
        match &self.form {
            Form::Table(dict) => dict.random_distinct(count, draw, |entry| show(entry.member.into())),
            _ => choose(self.iter(), self.len(), count, draw, show),
        }
    }

    /// Takes out a member, each with the same chance, if there is one.
    pub fn pop(&mut self, key: &HashKey, draw: impl FnMut() -> u64) -> Option<Vec<u8>> {
        let member = self.random(draw)?.to_vec();
        let is_removed = self.remove(&member, key);
        assert!(is_removed, "a member that was drawn is there");
        Some(member)
    }

    /// Takes out so many members, or all if there are not so many, and shows them. Each selection has the same chance.
    /// Where few stay, they become a set of their own, in the form that suits them.
    pub fn pop_many(
        &mut self,
        count: usize,
        key: &HashKey,
        limits: &Limits,
        mut draw: impl FnMut() -> u64,
        mut show: impl FnMut(Text<'_>),
    ) {
        let staying = self.len().saturating_sub(count);
        if staying * POP_MOVED_PART > count {
            while let Some(member) = (self.len() > staying).then(|| self.pop(key, &mut draw)).flatten() {
                show(member.as_slice().into());
            }
            return;
        }
        let mut rest = match self.form {
            Form::Integers(_) => Self { form: Form::Integers(Integers::default()) },
            _ => Self { form: Form::Packed(Packed::new()) },
        };
        self.random_distinct(staying, draw, |member| {
            rest.add_text(member, key, limits);
        });
        let before = std::mem::replace(self, rest);
        before.iter().filter(|member| !self.contains_text(*member, key)).for_each(show);
    }

    fn add_text(&mut self, member: Text<'_>, key: &HashKey, limits: &Limits) -> bool {
        match &mut self.form {
            Form::Integers(integers) => {
                let Some(value) = member.integer() else {
                    self.leave_integers(key, limits);
                    return self.add_text(member, key, limits);
                };
                let is_new = integers.insert(value);
                if !limits.takes_integers(integers.len()) {
                    self.become_table(key);
                }
                is_new
            }
            Form::Packed(packed) => {
                if find(packed, member).is_some() {
                    return false;
                }
                if limits.packs(packed.len(), packed.byte_len(), member.len()) {
                    packed.push_back(member.piece());
                    return true;
                }
                self.become_table(key);
                self.add_text(member, key, limits)
            }
            Form::Table(dict) => {
                let mut digits = Digits::default();
                dict.insert(key, entry(member.bytes(&mut digits))).is_new()
            }
        }
    }

    fn remove_text(&mut self, member: Text<'_>, key: &HashKey) -> bool {
        match &mut self.form {
            Form::Integers(integers) => member.integer().is_some_and(|value| integers.remove(value)),
            Form::Packed(packed) => {
                let place = find(packed, member);
                place.inspect(|place| packed.remove(*place)).is_some()
            }
            Form::Table(dict) => dict.remove(key, member.bytes(&mut Digits::default())).is_some(),
        }
    }

    fn contains_text(&self, member: Text<'_>, key: &HashKey) -> bool {
        match &self.form {
            Form::Integers(integers) => member.integer().is_some_and(|value| integers.contains(value)),
            Form::Packed(packed) => find(packed, member).is_some(),
            Form::Table(dict) => dict.contains(key, member.bytes(&mut Digits::default())),
        }
    }

    /// Makes room for a member that is no integer: becomes a short sequence if one takes all integers and a member more.
    fn leave_integers(&mut self, key: &HashKey, limits: &Limits) {
        let Form::Integers(integers) = &self.form else { return };
        let ends = integers.iter().next().into_iter().chain(integers.iter().next_back());
        let digits_max = ends.map(|value| Text::from(value).len()).max().unwrap_or(0);
        if limits.packs(integers.len(), integers.len().saturating_mul(digits_max), digits_max) {
            let mut packed = Packed::new();
            integers.iter().for_each(|value| packed.push_back(value));
            self.form = Form::Packed(packed);
        } else {
            self.become_table(key);
        }
    }

    fn become_table(&mut self, key: &HashKey) {
        let (mut dict, mut digits) = (Box::<Dict>::default(), Digits::default());
        for member in self.iter() {
            dict.insert(key, entry(member.bytes(&mut digits)));
        }
        self.form = Form::Table(dict);
    }
}

fn entry(member: &[u8]) -> Entry<'_> {
    Entry { member, value: &[], expiry_ms: None }
}

fn find(packed: &Packed, member: Text<'_>) -> Option<Place> {
    packed.find(member.bytes(&mut Digits::default()), packed.first()?, 1)
}

#[cfg(test)]
mod tests;
