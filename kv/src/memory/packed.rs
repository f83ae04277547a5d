//! A short sequence of byte strings in one buffer: how small collections are kept.
//!
//! A small list, hash or set has far less payload than a tree or a table of it would need in pointers. Here its elements
//! lie one after another, and a number that is written the canonical way takes one to nine bytes instead of its digits.
//!
//! An entry is a head, the payload, and the length of both once more, so that the sequence can be walked from the back:
//!
//! | first byte | entry |
//! |---|---|
//! | `0x00..=0x7f` | the integer 0 to 127 |
//! | `0x80..=0xbf` | a string of 0 to 63 bytes, the length in the low six bits |
//! | `0xc0..=0xcf` | a string of up to 4,095 bytes: four bits of the length, then eight |
//! | `0xd0..=0xef` | an integer of 13 bits, two's complement: five bits, then eight |
//! | `0xf2..=0xf8` | an integer of 2 to 8 bytes, little-endian, two's complement |
//! | `0xff` | a string with its length in four bytes, little-endian |
//!
//! The length at the end is written in groups of seven bits, the lowest in the last byte; a byte that has one more before
//! it has its top bit set. Each sequence has exactly one form: the shortest of each entry, and a string that is the
//! canonical form of an `i64` is always an integer. So equal elements have equal bytes, and `from_bytes` refuses others.
//!
//! Every change moves the bytes behind it and every search walks: the owner keeps a sequence to a few kilobytes and turns
//! it into something else when it grows past that. Plays the part of Valkey's listpack, in a format of its own.

use std::fmt;

/// The most bytes that one element may have. The owner refuses longer ones before they come here.
pub const ELEMENT_BYTES_MAX: usize = 1 << 31;

/// The most bytes in the head of an entry.
const HEAD_BYTES_MAX: usize = 9;

/// Digits of an integer: room to write one of any value.
#[derive(Debug, Clone, Copy, Default)]
pub struct Digits([u8; 20]);

impl Digits {
    /// The decimal form of a number.
    #[inline]
    pub fn write(&mut self, value: i64) -> &[u8] {
        let mut start = self.put(value.unsigned_abs());
        if value < 0 {
            start -= 1;
            self.0[start] = b'-';
        }
        &self.0[start..]
    }

    /// The same of a number without a sign.
    #[inline]
    pub fn write_unsigned(&mut self, value: u64) -> &[u8] {
        let start = self.put(value);
        &self.0[start..]
    }

    /// Puts the digits of a number at the end. Returns where they begin.
    #[inline]
    fn put(&mut self, value: u64) -> usize {
        let (mut start, mut rest) = (self.0.len(), value);
        loop {
            start -= 1;
            self.0[start] = b'0' + u8::try_from(rest % 10).expect("a digit is below ten");
            rest /= 10;
            if rest == 0 {
                return start;
            }
        }
    }
}

/// The number that these bytes are the canonical decimal form of: no plus, no leading zero, no `-0`, within an `i64`.
#[must_use]
pub fn parse_integer(bytes: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match bytes {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, bytes),
    };
    match digits {
        [b'0'] if !is_negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut value = 0_u64;
    for byte in digits {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit <= 9)?;
        value = value * 10 + u64::from(digit);
    }
    if is_negative { 0_i64.checked_sub_unsigned(value) } else { i64::try_from(value).ok() }
}

/// One element: a byte string, held as a number where it is the canonical form of one. Two are equal when their bytes are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Piece<'a>(Form<'a>);

/// Invariant: `Bytes` is never the canonical form of an `i64`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form<'a> {
    Bytes(&'a [u8]),
    Integer(i64),
}

impl<'a> From<&'a [u8]> for Piece<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self(parse_integer(bytes).map_or(Form::Bytes(bytes), Form::Integer))
    }
}

impl<'a> From<&'a Vec<u8>> for Piece<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        Self::from(bytes.as_slice())
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Piece<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Self::from(bytes.as_slice())
    }
}

impl From<i64> for Piece<'_> {
    fn from(value: i64) -> Self {
        Self(Form::Integer(value))
    }
}

impl<'a> Piece<'a> {
    /// The bytes of the element, written into `digits` if it is kept as a number.
    pub fn bytes<'b>(&self, digits: &'b mut Digits) -> &'b [u8]
    where
        'a: 'b,
    {
        match self.0 {
            Form::Bytes(bytes) => bytes,
            Form::Integer(value) => digits.write(value),
        }
    }

    /// The number that the element is the canonical form of.
    #[must_use]
    pub const fn integer(&self) -> Option<i64> {
        match self.0 {
            Form::Integer(value) => Some(value),
            Form::Bytes(_) => None,
        }
    }

    /// How many bytes the element has, as bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes(&mut Digits::default()).len()
    }

    /// Whether it is the empty string.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        matches!(self.0, Form::Bytes([]))
    }

    /// The bytes of the element, of its own.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        self.bytes(&mut Digits::default()).to_vec()
    }

    /// How many bytes an entry of this element takes in a [`Packed`].
    #[must_use]
    pub fn entry_bytes(&self) -> usize {
        let inner = match self.0 {
            Form::Bytes(bytes) => string_head_bytes(bytes.len()) + bytes.len(),
            Form::Integer(value) => Head::of_integer(value).len,
        };
        inner + length_bytes(inner)
    }

    /// The head of an entry, and what follows it as it is.
    fn encode(&self) -> (Head, &'a [u8]) {
        match self.0 {
            Form::Bytes(bytes) => (Head::of_string(bytes.len()), bytes),
            Form::Integer(value) => (Head::of_integer(value), &[]),
        }
    }

    /// The element at the beginning of `bytes`, and the length of its entry without the length at the end. `None` if the
    /// bytes begin no entry; whether it is in its only form is not looked at.
    #[inline]
    fn decode(bytes: &'a [u8]) -> Option<(Self, usize)> {
        let (first, rest) = bytes.split_first()?;
        let string = |start: usize, len: usize| {
            let payload = bytes.get(start..start.checked_add(len)?)?;
            Some((Self(Form::Bytes(payload)), start + len))
        };
        match *first {
            0x00..=0x7f => Some((Self(Form::Integer(i64::from(*first))), 1)),
            0x80..=0xbf => string(1, usize::from(*first & 0x3f)),
            0xc0..=0xcf => string(2, usize::from(*first & 0x0f) << 8 | usize::from(*rest.first()?)),
            0xd0..=0xef => {
                let bits = u16::from(*first - 0xd0) << 8 | u16::from(*rest.first()?);
                // Moves the sign of 13 bits to that of 16, and back with copies of it.
                let value = i16::from_ne_bytes((bits << 3).to_ne_bytes()) >> 3;
                Some((Self(Form::Integer(i64::from(value))), 2))
            }
            0xf2..=0xf8 => {
                let width = usize::from(*first & 0x0f);
                let kept = rest.get(..width)?;
                let sign = if kept[width - 1] & 0x80 == 0 { 0 } else { 0xff };
                let mut wide = [sign; 8];
                wide[..width].copy_from_slice(kept);
                Some((Self(Form::Integer(i64::from_le_bytes(wide))), 1 + width))
            }
            0xff => {
                let len = u32::from_le_bytes(*rest.first_chunk()?);
                string(5, usize::try_from(len).ok()?)
            }
            _ => None,
        }
    }
}

impl fmt::Debug for Piece<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Form::Bytes(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Form::Integer(value) => value.fmt(f),
        }
    }
}

/// What stands before the payload of an entry.
struct Head {
    bytes: [u8; HEAD_BYTES_MAX],
    len: usize,
}

impl Head {
    #[inline]
    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    #[inline]
    fn of_string(len: usize) -> Self {
        assert!(len <= ELEMENT_BYTES_MAX, "the owner refuses longer elements");
        let [low, high, third, fourth, ..] = len.to_le_bytes();
        let bytes = match len {
            0..=63 => [0x80 | low, 0, 0, 0, 0, 0, 0, 0, 0],
            64..=4095 => [0xc0 | high, low, 0, 0, 0, 0, 0, 0, 0],
            _ => [0xff, low, high, third, fourth, 0, 0, 0, 0],
        };
        Self { bytes, len: string_head_bytes(len) }
    }

    #[inline]
    fn of_integer(value: i64) -> Self {
        let [low, high, rest @ ..] = value.to_le_bytes();
        match value {
            0..=127 => Self { bytes: [low, 0, 0, 0, 0, 0, 0, 0, 0], len: 1 },
            -4096..=4095 => Self { bytes: [0xd0 + (high & 0x1f), low, 0, 0, 0, 0, 0, 0, 0], len: 2 },
            _ => {
                // One bit more than the number needs, for its sign.
                let bits = 65 - (value ^ (value >> 63)).leading_zeros();
                let width = bits.div_ceil(8).to_le_bytes()[0];
                let [third, fourth, fifth, sixth, seventh, eighth] = rest;
                let bytes = [0xf0 | width, low, high, third, fourth, fifth, sixth, seventh, eighth];
                Self { bytes, len: 1 + usize::from(width) }
            }
        }
    }
}

/// How many bytes stand before a string of this length.
#[inline]
const fn string_head_bytes(len: usize) -> usize {
    match len {
        0..=63 => 1,
        64..=4095 => 2,
        _ => 5,
    }
}

/// How many bytes the length at the end of an entry takes.
const fn length_bytes(inner: usize) -> usize {
    let mut count = 1;
    let mut rest = inner >> 7;
    while rest > 0 {
        count += 1;
        rest >>= 7;
    }
    count
}

/// Writes the length of an entry into the bytes at its end.
fn write_length(inner: usize, end: &mut [u8]) {
    let mut rest = inner;
    for (place, byte) in end.iter_mut().enumerate().rev() {
        let more = if place == 0 { 0 } else { 0x80 };
        *byte = more | (rest.to_le_bytes()[0] & 0x7f);
        rest >>= 7;
    }
}

/// The length of the entry that ends with these bytes, with its end.
#[inline]
fn read_length(bytes: &[u8]) -> usize {
    let (mut inner, mut count) = (0, 0);
    for byte in bytes.iter().rev() {
        inner |= usize::from(*byte & 0x7f) << (7 * count);
        count += 1;
        if *byte & 0x80 == 0 {
            break;
        }
    }
    inner + count
}

/// Bytes that are no sequence in its only form: someone else's fault. Decoding them again fails again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a packed sequence")
    }
}

impl std::error::Error for Malformed {}

/// Where an element begins. Holds until the sequence changes; the end is a place too, where no element is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(usize);

/// A sequence of byte strings in one buffer.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Packed {
    /// Whole entries, one after another.
    bytes: Vec<u8>,
    /// How many entries there are.
    len: usize,
}

impl Packed {
    /// An empty sequence, which holds no memory.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), len: 0 }
    }

    /// Reads a sequence that may come from anyone. Takes time in proportion to the bytes, and the memory of one copy.
    ///
    /// # Errors
    /// [`Malformed`] where the bytes are not the only form of a sequence.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut len = 0;
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = check_entry(rest).ok_or(Malformed)?;
            len += 1;
        }
        Ok(Self { bytes: bytes.to_vec(), len })
    }

    /// The only form of the sequence: what [`Packed::from_bytes`] reads.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many elements there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many bytes the entries take.
    #[must_use]
    pub const fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// How many bytes of memory are held.
    #[must_use]
    pub const fn bytes_held(&self) -> usize {
        self.bytes.capacity()
    }

    /// Where the first element is, if there is one.
    #[must_use]
    pub fn first(&self) -> Option<Place> {
        (!self.is_empty()).then_some(Place(0))
    }

    /// Where the last element is, if there is one.
    #[must_use]
    pub fn last(&self) -> Option<Place> {
        self.previous(self.end())
    }

    /// Behind the last element.
    #[must_use]
    pub const fn end(&self) -> Place {
        Place(self.bytes.len())
    }

    /// Where the element after this one is. `None` after the last.
    #[must_use]
    #[inline]
    pub fn next(&self, place: Place) -> Option<Place> {
        let next = self.after(place);
        (next != self.end()).then_some(next)
    }

    /// The place after an element: that of the next, or the end.
    #[must_use]
    #[inline]
    pub fn after(&self, place: Place) -> Place {
        let (_, inner) = self.entry(place);
        Place(place.0 + inner + length_bytes(inner))
    }

    /// Where the element before this one, or before the end, is. `None` before the first.
    #[must_use]
    #[inline]
    pub fn previous(&self, place: Place) -> Option<Place> {
        let before = &self.bytes[..place.0];
        (!before.is_empty()).then(|| Place(place.0 - read_length(before)))
    }

    /// Where the n-th element is, the first being the 0th. Walks from the nearer end.
    #[must_use]
    pub fn nth(&self, n: usize) -> Option<Place> {
        if n >= self.len {
            return None;
        }
        if n <= self.len / 2 {
            let mut place = Place(0);
            for _ in 0..n {
                place = self.after(place);
            }
            return Some(place);
        }
        let mut place = self.end();
        for _ in n..self.len {
            place = self.previous(place).expect("there are as many elements as were counted");
        }
        Some(place)
    }

    /// The element at a place.
    ///
    /// # Panics
    /// At the end, or at a place that no longer holds.
    #[must_use]
    #[inline]
    pub fn get(&self, place: Place) -> Piece<'_> {
        self.entry(place).0
    }

    /// The first element that equals these bytes, from a place on, where only every `stride`-th is looked at: 1 looks at
    /// each, 2 at the one at the place and then every other.
    #[must_use]
    pub fn find(&self, wanted: &[u8], from: Place, stride: usize) -> Option<Place> {
        let wanted = Piece::from(wanted);
        let mut place = from;
        while place != self.end() {
            if self.get(place) == wanted {
                return Some(place);
            }
            for _ in 0..stride {
                if place == self.end() {
                    return None;
                }
                place = self.after(place);
            }
        }
        None
    }

    /// All elements, from either end.
    #[must_use]
    pub fn iter(&self) -> Pieces<'_> {
        Pieces { bytes: &self.bytes }
    }

    /// The elements from a place on, from either end.
    #[must_use]
    pub fn iter_from(&self, place: Place) -> Pieces<'_> {
        Pieces { bytes: &self.bytes[place.0..] }
    }

    /// The elements from one place to before another, from either end.
    #[must_use]
    pub fn iter_between(&self, from: Place, until: Place) -> Pieces<'_> {
        Pieces { bytes: &self.bytes[from.0..until.0] }
    }

    /// The elements before a place, from either end.
    #[must_use]
    pub fn iter_until(&self, place: Place) -> Pieces<'_> {
        Pieces { bytes: &self.bytes[..place.0] }
    }

    /// Adds an element behind the last.
    pub fn push_back<'a>(&mut self, element: impl Into<Piece<'a>>) {
        let element = element.into();
        let (head, payload) = element.encode();
        let inner = head.len + payload.len();
        let end = length_bytes(inner);
        self.reserve(inner + end);
        self.bytes.extend_from_slice(head.as_slice());
        self.bytes.extend_from_slice(payload);
        let at = self.bytes.len();
        self.bytes.resize(at + end, 0);
        write_length(inner, &mut self.bytes[at..]);
        self.len += 1;
    }

    /// Adds an element before the first.
    pub fn push_front<'a>(&mut self, element: impl Into<Piece<'a>>) {
        self.insert(Place(0), element);
    }

    /// Adds an element before the one at a place, or behind all at the end. It is then at that place, and what was there
    /// is after it.
    pub fn insert<'a>(&mut self, place: Place, element: impl Into<Piece<'a>>) {
        self.splice(place.0, 0, element.into());
        self.len += 1;
    }

    /// Puts an element in the place of another.
    pub fn replace<'a>(&mut self, place: Place, element: impl Into<Piece<'a>>) {
        let old = self.after(place).0 - place.0;
        self.splice(place.0, old, element.into());
        self.shrink();
    }

    /// Removes the element at a place; the next is then at that place.
    pub fn remove(&mut self, place: Place) {
        self.remove_many(place, 1);
    }

    /// Removes as many elements as there are from a place on, up to a count; how many that were.
    pub fn remove_many(&mut self, place: Place, count_max: usize) -> usize {
        let (mut end, mut count) = (place, 0);
        while count < count_max && end != self.end() {
            end = self.after(end);
            count += 1;
        }
        self.bytes.drain(place.0..end.0);
        self.len -= count;
        self.shrink();
        count
    }

    /// Removes the elements from one place to before another.
    pub fn remove_between(&mut self, from: Place, until: Place) {
        let count = self.iter_between(from, until).count();
        self.bytes.drain(from.0..until.0);
        self.len -= count;
        self.shrink();
    }

    /// Where the elements begin that are left of a walk to the end.
    #[must_use]
    pub const fn place_of(&self, rest: &Pieces<'_>) -> Place {
        Place(self.bytes.len() - rest.bytes.len())
    }

    /// Removes the elements that equal these bytes, but for the first `skip` of them and up to a count; how many that
    /// were. One pass, however many there are.
    pub fn remove_equal(&mut self, unwanted: &[u8], skip: usize, count_max: usize) -> usize {
        let unwanted = Piece::from(unwanted);
        let (mut seen, mut removed) = (0, 0);
        let (mut read, mut write) = (Place(0), 0);
        while read != self.end() {
            let after = self.after(read);
            let mut goes = removed < count_max && self.get(read) == unwanted;
            if goes {
                seen += 1;
                goes = seen > skip;
            }
            if goes {
                removed += 1;
            } else {
                self.bytes.copy_within(read.0..after.0, write);
                write += after.0 - read.0;
            }
            read = after;
        }
        self.bytes.truncate(write);
        self.len -= removed;
        self.shrink();
        removed
    }

    /// Removes the elements from a place on and returns them as a sequence of their own.
    #[must_use]
    pub fn split_off(&mut self, place: Place) -> Self {
        let moved = self.iter_from(place).count();
        let bytes = self.bytes.get(place.0..).expect("a place is within the sequence").to_vec();
        self.bytes.truncate(place.0);
        self.len -= moved;
        self.shrink();
        Self { bytes, len: moved }
    }

    /// Adds the elements of another sequence behind the last.
    pub fn append(&mut self, other: &Self) {
        self.reserve(other.bytes.len());
        self.bytes.extend_from_slice(&other.bytes);
        self.len += other.len;
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// Makes room for as much again, if there is none for so many bytes of entries. For sequences that grow fast for a
    /// while, and are then shrunk to what they need.
    pub fn reserve_double(&mut self, bytes: usize) {
        if self.bytes.capacity() - self.bytes.len() < bytes {
            self.bytes.reserve_exact(bytes.max(self.bytes.len()));
        }
    }

    /// Gives back the memory that the elements do not need. For sequences that will not grow soon.
    pub fn shrink_to_fit(&mut self) {
        self.bytes.shrink_to_fit();
    }

    /// The element at a place, and the length of its entry without the length at the end.
    #[inline]
    fn entry(&self, place: Place) -> (Piece<'_>, usize) {
        Piece::decode(&self.bytes[place.0..]).expect("a place is where a whole entry begins")
    }

    /// Puts an entry in the place of `old` bytes.
    fn splice(&mut self, at: usize, old: usize, element: Piece<'_>) {
        let (head, payload) = element.encode();
        let inner = head.len + payload.len();
        let new = inner + length_bytes(inner);
        let len = self.bytes.len();
        if new >= old {
            self.reserve(new - old);
            self.bytes.resize(len + new - old, 0);
            self.bytes.copy_within(at + old..len, at + new);
        } else {
            self.bytes.copy_within(at + old.., at + new);
            self.bytes.truncate(len - (old - new));
        }
        let entry = &mut self.bytes[at..at + new];
        entry[..head.len].copy_from_slice(head.as_slice());
        entry[head.len..inner].copy_from_slice(payload);
        write_length(inner, &mut entry[inner..]);
    }

    /// Makes room: an eighth more than is needed, so that adding at an end copies each byte a few times at most while
    /// little memory is idle.
    fn reserve(&mut self, additional: usize) {
        let needed = self.bytes.len() + additional;
        if needed > self.bytes.capacity() {
            let room = (needed + needed / 8).next_multiple_of(16);
            self.bytes.reserve_exact(room - self.bytes.len());
        }
    }

    /// Gives memory back when more than half of it is idle.
    fn shrink(&mut self) {
        let needed = self.bytes.len();
        if self.bytes.capacity() > 64 && needed < self.bytes.capacity() / 2 {
            self.bytes.shrink_to((needed + needed / 8).next_multiple_of(16));
        }
    }
}

/// Checks that one entry in its only form begins the bytes; what follows it.
fn check_entry(bytes: &[u8]) -> Option<&[u8]> {
    let (piece, inner) = Piece::decode(bytes)?;
    if let Form::Bytes(payload) = piece.0
        && (payload.len() > ELEMENT_BYTES_MAX || parse_integer(payload).is_some())
    {
        return None;
    }
    let (head, _) = piece.encode();
    let mut end = [0; 10];
    let end = end.get_mut(..length_bytes(inner))?;
    write_length(inner, end);
    let (entry, rest) = bytes.split_at_checked(inner + end.len())?;
    (entry.starts_with(head.as_slice()) && entry[inner..] == *end).then_some(rest)
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> IntoIterator for &'a Packed {
    type Item = Piece<'a>;
    type IntoIter = Pieces<'a>;

    fn into_iter(self) -> Pieces<'a> {
        self.iter()
    }
}

/// The elements of a sequence, or of a part of one, from either end.
#[derive(Debug, Clone)]
pub struct Pieces<'a> {
    /// Whole entries.
    bytes: &'a [u8],
}

impl<'a> Pieces<'a> {
    /// Whether none is left.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Takes so many elements off the front, or as many as there are.
    pub fn split_front(&mut self, count: usize) -> Self {
        let all = self.bytes;
        for _ in 0..count {
            self.next();
        }
        Self { bytes: &all[..all.len() - self.bytes.len()] }
    }

    /// Takes so many elements off the back, or as many as there are; in the order in which they lie.
    pub fn split_back(&mut self, count: usize) -> Self {
        let all = self.bytes;
        for _ in 0..count {
            self.next_back();
        }
        Self { bytes: &all[self.bytes.len()..] }
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    #[inline]
    fn next(&mut self) -> Option<Piece<'a>> {
        if self.bytes.is_empty() {
            return None;
        }
        let (piece, inner) = Piece::decode(self.bytes).expect("a sequence is whole entries");
        self.bytes = &self.bytes[inner + length_bytes(inner)..];
        Some(piece)
    }
}

impl<'a> DoubleEndedIterator for Pieces<'a> {
    #[inline]
    fn next_back(&mut self) -> Option<Piece<'a>> {
        if self.bytes.is_empty() {
            return None;
        }
        let (rest, entry) = self.bytes.split_at(self.bytes.len() - read_length(self.bytes));
        self.bytes = rest;
        Some(Piece::decode(entry).expect("a sequence is whole entries").0)
    }
}

#[cfg(test)]
mod tests;
