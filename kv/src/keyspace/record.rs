//! How a key lies in its cell.
//!
//! ```text
//! byte 0       kind (bits 0 to 2), RAW (3), EXPIRES (4), WIDE (5), MARK (6)
//! bytes 1..4   when it was used, as the eviction policy counts
//! then         length of the key in 1 byte and of the value in 2; WIDE: 4 and 4
//! then         EXPIRES: milliseconds of Unix time, 8 bytes
//! then         the key, the value
//! ```
//!
//! The value of a string is its bytes; that of any other kind is the number of an object. Numbers are little-endian. This form
//! never leaves the process.

/// What is behind a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    String,
    List,
    Set,
    SortedSet,
    Hash,
    Stream,
}

const KIND: u8 = 7;
const RAW: u8 = 1 << 3;
const EXPIRES: u8 = 1 << 4;
const WIDE: u8 = 1 << 5;
/// Whether a snapshot has it: see `shard/cut.rs`.
const MARK: u8 = 1 << 6;

const NARROW_HEAD: usize = 7;
const WIDE_HEAD: usize = 12;
const EXPIRY_BYTES: usize = 8;

impl Kind {
    const ALL: [Self; 6] = [Self::String, Self::List, Self::Set, Self::SortedSet, Self::Hash, Self::Stream];

    /// As `TYPE` says it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::List => "list",
            Self::Set => "set",
            Self::SortedSet => "zset",
            Self::Hash => "hash",
            Self::Stream => "stream",
        }
    }

    /// The kind of this name.
    pub(crate) fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name().as_bytes().eq_ignore_ascii_case(name))
    }
}

/// What a record says beside its key and value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) kind: Kind,
    /// A string that was changed in place: it is not shown as an integer or a short string.
    pub(crate) is_raw: bool,
    /// Unix time in milliseconds.
    pub(crate) expiry: Option<i64>,
    /// 24 bits.
    pub(crate) access: u32,
}

/// The lengths of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    key_at: usize,
    key_len: usize,
    value_len: usize,
}

impl Shape {
    const fn value_at(self) -> usize {
        self.key_at + self.key_len
    }

    const fn end(self) -> usize {
        self.value_at() + self.value_len
    }
}

/// Bytes of a record.
pub(crate) const fn record_len(key_len: usize, value_len: usize, expires: bool) -> usize {
    let head = if is_wide(key_len, value_len) { WIDE_HEAD } else { NARROW_HEAD };
    head + key_len + value_len + if expires { EXPIRY_BYTES } else { 0 }
}

/// Whether lengths like these need the longer head.
pub(crate) const fn is_wide(key_len: usize, value_len: usize) -> bool {
    key_len > u8::MAX as usize || value_len > u16::MAX as usize
}

/// Writes everything but the value into a cell that is long enough. Returns where the value goes.
///
/// # Panics
/// The cell is too short, or a length is 4 GiB or more.
pub(crate) fn write<'a>(
    cell: &'a mut [u8],
    attributes: Attributes,
    mark: bool,
    key: &[u8],
    value_len: usize,
) -> &'a mut [u8] {
    let small = |len: usize| u32::try_from(len).expect("keys and values are shorter than 4 GiB");
    let wide = is_wide(key.len(), value_len);
    let Attributes { kind, is_raw, expiry, access } = attributes;
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    cell[0] = kind as u8 | flag(is_raw, RAW) | flag(expiry.is_some(), EXPIRES) | flag(wide, WIDE) | flag(mark, MARK);
    cell[1..4].copy_from_slice(&access.to_le_bytes()[..3]);
    let (key_len, value_len_bytes) = (small(key.len()).to_le_bytes(), small(value_len).to_le_bytes());
    let mut at = if wide {
        cell[4..8].copy_from_slice(&key_len);
        cell[8..12].copy_from_slice(&value_len_bytes);
        WIDE_HEAD
    } else {
        cell[4] = key_len[0];
        cell[5..7].copy_from_slice(&value_len_bytes[..2]);
        NARROW_HEAD
    };
    if let Some(expiry) = expiry {
        cell[at..at + EXPIRY_BYTES].copy_from_slice(&expiry.to_le_bytes());
        at += EXPIRY_BYTES;
    }
    cell[at..at + key.len()].copy_from_slice(key);
    at += key.len();
    &mut cell[at..at + value_len]
}

/// A record, read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record<'a> {
    cell: &'a [u8],
    shape: Shape,
}

impl<'a> Record<'a> {
    /// The record in a cell.
    #[inline]
    pub(crate) fn of(cell: &'a [u8]) -> Self {
        Self { cell, shape: shape(cell) }
    }

    #[inline]
    pub(crate) fn key(self) -> &'a [u8] {
        &self.cell[self.shape.key_at..self.shape.value_at()]
    }

    #[inline]
    pub(crate) fn value(self) -> &'a [u8] {
        &self.cell[self.shape.value_at()..self.shape.end()]
    }

    /// Bytes of the whole record.
    #[cfg(test)]
    pub(crate) fn len(self) -> usize {
        self.shape.end()
    }

    #[inline]
    pub(crate) fn kind(self) -> Kind {
        Kind::ALL[usize::from(self.cell[0] & KIND)]
    }

    pub(crate) fn is_raw(self) -> bool {
        self.cell[0] & RAW != 0
    }

    #[inline]
    pub(crate) fn mark(self) -> bool {
        self.cell[0] & MARK != 0
    }

    #[inline]
    pub(crate) fn expires(self) -> bool {
        self.cell[0] & EXPIRES != 0
    }

    #[inline]
    pub(crate) fn expiry(self) -> Option<i64> {
        self.expires().then(|| {
            let at = self.shape.key_at - EXPIRY_BYTES;
            i64::from_le_bytes(self.cell[at..at + EXPIRY_BYTES].try_into().expect("there are eight"))
        })
    }

    /// Whether it is to be seen: its time has not passed.
    #[inline]
    pub(crate) fn is_live(self, now_ms: i64) -> bool {
        self.expiry().is_none_or(|at| at > now_ms)
    }

    pub(crate) fn access(self) -> u32 {
        u32::from_le_bytes([self.cell[1], self.cell[2], self.cell[3], 0])
    }

    pub(crate) fn attributes(self) -> Attributes {
        Attributes { kind: self.kind(), is_raw: self.is_raw(), expiry: self.expiry(), access: self.access() }
    }

    /// The object behind the key.
    ///
    /// # Panics
    /// It is a string.
    #[inline]
    pub(crate) fn object(self) -> u32 {
        u32::from_le_bytes(self.value().try_into().expect("the value of an object is its number"))
    }
}

/// Whether the record in a cell is that of `key`.
#[inline]
pub(crate) fn is_of(cell: &[u8], key: &[u8]) -> bool {
    let shape = shape(cell);
    cell[shape.key_at..shape.value_at()] == *key
}

#[inline]
fn shape(cell: &[u8]) -> Shape {
    let expiry = if cell[0] & EXPIRES == 0 { 0 } else { EXPIRY_BYTES };
    if cell[0] & WIDE == 0 {
        let value_len = usize::from(u16::from_le_bytes([cell[5], cell[6]]));
        return Shape { key_at: NARROW_HEAD + expiry, key_len: usize::from(cell[4]), value_len };
    }
    let number = |at: usize| u32::from_le_bytes(cell[at..at + 4].try_into().expect("there are four")) as usize;
    Shape { key_at: WIDE_HEAD + expiry, key_len: number(4), value_len: number(8) }
}

/// The value in a cell, to write.
pub(crate) fn value_mut(cell: &mut [u8]) -> &mut [u8] {
    let shape = shape(cell);
    &mut cell[shape.value_at()..shape.end()]
}

/// Notes when the record was used.
#[inline]
pub(crate) fn set_access(cell: &mut [u8], access: u32) {
    cell[1..4].copy_from_slice(&access.to_le_bytes()[..3]);
}

/// Notes whether a snapshot has the record.
pub(crate) fn set_mark(cell: &mut [u8], mark: bool) {
    cell[0] = cell[0] & !MARK | if mark { MARK } else { 0 };
}

/// Notes that the string was changed in place.
pub(crate) fn set_raw(cell: &mut [u8]) {
    cell[0] |= RAW;
}

/// Changes when a record that expires does so.
///
/// # Panics
/// It does not expire.
pub(crate) fn set_expiry(cell: &mut [u8], expiry: i64) {
    assert!(cell[0] & EXPIRES != 0, "there is room for an expiry");
    let at = shape(cell).key_at - EXPIRY_BYTES;
    cell[at..at + EXPIRY_BYTES].copy_from_slice(&expiry.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for key_len in [0, 1, 16, 255, 256, 70_000] {
            for value_len in [0, 1, 8, 255, 256, 65_535, 65_536] {
                for (expiry, is_raw, kind) in
                    [(None, false, Kind::String), (Some(-1), true, Kind::String), (Some(i64::MAX), false, Kind::Stream)]
                {
                    let key: Vec<u8> = (0..key_len).map(|at| at as u8).collect();
                    let attributes = Attributes { kind, is_raw, expiry, access: 0x00ab_cdef };
                    let len = record_len(key_len, value_len, expiry.is_some());
                    let mut cell = vec![0xee; len + 5];
                    write(&mut cell, attributes, is_raw, &key, value_len).fill(7);
                    assert_eq!(Record::of(&cell).mark(), is_raw);
                    set_mark(&mut cell, !is_raw);
                    assert_eq!(Record::of(&cell).mark(), !is_raw);
                    let record = Record::of(&cell);
                    assert_eq!((record.key(), record.len()), (&key[..], len));
                    assert_eq!(record.value(), vec![7; value_len]);
                    assert_eq!(record.attributes(), attributes);
                    assert!(is_of(&cell, &key) && !is_of(&cell, b"another"));
                    set_access(&mut cell, 5);
                    if expiry.is_some() {
                        set_expiry(&mut cell, 77);
                    }
                    value_mut(&mut cell).fill(9);
                    let record = Record::of(&cell);
                    assert_eq!((record.access(), record.expiry()), (5, expiry.map(|_| 77)));
                    assert_eq!((record.key(), record.value()), (&key[..], &vec![9; value_len][..]));
                    assert!(cell[len..].iter().all(|byte| *byte == 0xee));
                }
            }
        }
    }

    #[test]
    fn a_short_key_and_value_take_seven_bytes_more() {
        assert_eq!(record_len(16, 8, false), 31);
        assert_eq!(record_len(16, 64, true), 95);
    }
}
