//! Values to bytes, each in the form that Valkey writes for its encoding.

use super::code::{container, kind, length, opcode};
use super::listpack::Listpack;
use super::lzf::Compressor;
use super::writer::Version;
use crate::memory::packed::{Digits, Packed, Piece, parse_integer};
use crate::value::hash::Hash;
use crate::value::list::{Fill, List};
use crate::value::score::write_score;
use crate::value::set::Set;
use crate::value::zset::ZSet;
use crate::value::{Object, hash};

mod stream;

/// Strings up to this length may be written as integers.
const INTEGER_BYTES_MAX: usize = 11;
/// Strings up to this length are not compressed.
const UNCOMPRESSED_BYTES_MAX: usize = 20;
/// Compression must spare at least so many bytes.
const SPARED_BYTES_MIN: usize = 4;
/// What is written for a field that does not expire.
const NEVER: i64 = -1;

/// What is behind a key.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    /// A string.
    String(&'a [u8]),
    /// Anything else.
    Object(&'a Object),
}

impl Value<'_> {
    /// The number of its type.
    pub(super) fn kind(self) -> u8 {
        match self {
            Self::String(_) => kind::STRING,
            Self::Object(Object::List(_)) => kind::LIST_QUICKLIST_2,
            Self::Object(Object::Set(set)) if set.integers().is_some() => kind::SET_INTSET,
            Self::Object(Object::Set(set)) if set.packed().is_some() => kind::SET_LISTPACK,
            Self::Object(Object::Set(_)) => kind::SET,
            Self::Object(Object::SortedSet(set)) if set.is_short() => kind::ZSET_LISTPACK,
            Self::Object(Object::SortedSet(_)) => kind::ZSET_2,
            Self::Object(Object::Hash(hash)) if hash.packed().is_some() => kind::HASH_LISTPACK,
            Self::Object(Object::Hash(hash)) if hash.expiring_len() > 0 => kind::HASH_2,
            Self::Object(Object::Hash(_)) => kind::HASH,
            Self::Object(Object::Stream(_)) => kind::STREAM_3,
        }
    }

    /// Whether only version 80 has a form for it.
    pub(crate) fn needs_valkey(self) -> bool {
        self.kind() == kind::HASH_2
    }
}

/// What a file says of a key beside its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Attributes {
    /// When it expires, Unix time in milliseconds.
    pub(crate) expiry: Option<i64>,
    /// Seconds since it was used.
    pub(crate) idle_s: Option<u64>,
    /// How often it was used, on the logarithmic scale of the policies that count.
    pub(crate) frequency: Option<u8>,
}

/// Writes keys and values. Keeps what it needs between them, so it is made once for many.
#[derive(Debug)]
pub(crate) struct Encoder {
    /// Nothing if strings are not compressed.
    compressor: Option<Compressor>,
    compresses: bool,
    list_fill: Fill,
    /// What only version 11 and later have is written in an older form.
    is_old: bool,
    /// A packed form before it is written.
    packed: Vec<u8>,
}

impl Encoder {
    /// `compresses` is `rdbcompression`, and `list_fill` `list-max-listpack-size`: longer elements stand alone.
    pub(crate) fn new(compresses: bool, list_fill: Fill) -> Self {
        Self { compressor: None, compresses, list_fill, is_old: false, packed: Vec::new() }
    }

    /// The same for a file of some version.
    pub(crate) fn of_version(self, version: Version) -> Self {
        Self { is_old: version == Version::Redis10, ..self }
    }

    /// The number of the type that a value is written as.
    fn kind(&self, value: Value<'_>) -> u8 {
        match value.kind() {
            kind::SET_LISTPACK if self.is_old => kind::SET,
            kind::STREAM_3 if self.is_old => kind::STREAM_2,
            kind => kind,
        }
    }

    /// Appends a key with everything that belongs to it.
    pub(crate) fn entry(&mut self, key: &[u8], attributes: Attributes, value: Value<'_>, out: &mut Vec<u8>) {
        let Attributes { expiry, idle_s, frequency } = attributes;
        if let Some(expiry) = expiry {
            out.push(opcode::EXPIRY_MS);
            out.extend_from_slice(&expiry.to_le_bytes());
        }
        if let Some(idle_s) = idle_s {
            out.push(opcode::IDLE);
            push_length(idle_s, out);
        }
        if let Some(frequency) = frequency {
            out.extend_from_slice(&[opcode::FREQUENCY, frequency]);
        }
        out.push(self.kind(value));
        self.text(key, out);
        self.body(value, out);
    }

    /// Appends the type of a value, and the value.
    pub(crate) fn value(&mut self, value: Value<'_>, out: &mut Vec<u8>) {
        out.push(self.kind(value));
        self.body(value, out);
    }

    fn body(&mut self, value: Value<'_>, out: &mut Vec<u8>) {
        match value {
            Value::String(text) => self.text(text, out),
            Value::Object(Object::List(list)) => self.list(list, out),
            Value::Object(Object::Set(set)) => self.set(set, out),
            Value::Object(Object::SortedSet(set)) => self.sorted_set(set, out),
            Value::Object(Object::Hash(hash)) => self.hash(hash, out),
            Value::Object(Object::Stream(stream)) => self.stream(stream, out),
        }
    }

    /// Appends a string: as an integer, compressed, or as it is.
    pub(super) fn text(&mut self, text: &[u8], out: &mut Vec<u8>) {
        if text.len() <= INTEGER_BYTES_MAX
            && let Some(value) = parse_integer(text)
            && push_integer(value, out)
        {
            return;
        }
        if self.compresses && text.len() > UNCOMPRESSED_BYTES_MAX && self.compressed(text, out) {
            return;
        }
        push_length(len_of(text.len()), out);
        out.extend_from_slice(text);
    }

    fn compressed(&mut self, text: &[u8], out: &mut Vec<u8>) -> bool {
        let compressor = self.compressor.get_or_insert_with(Compressor::new);
        let start = out.len();
        let len_max = text.len() - SPARED_BYTES_MIN;
        if !compressor.compress(text, len_max, out) {
            return false;
        }
        let mut head = vec![length::COMPRESSED];
        push_length(len_of(out.len() - start), &mut head);
        push_length(len_of(text.len()), &mut head);
        out.splice(start..start, head);
        true
    }

    /// Appends the packed form of some elements.
    fn pieces<'p>(&mut self, pieces: impl Iterator<Item = Piece<'p>>, out: &mut Vec<u8>) {
        let mut packed = std::mem::take(&mut self.packed);
        let mut listpack = Listpack::begin(&mut packed);
        pieces.for_each(|piece| listpack.push(piece));
        self.text(listpack.finish(), out);
        self.packed = packed;
    }

    fn list(&mut self, list: &List, out: &mut Vec<u8>) {
        push_length(len_of(list.nodes().count()), out);
        for node in list.nodes() {
            if let Some(element) = self.alone(node) {
                push_length(container::PLAIN, out);
                self.text(&element, out);
            } else {
                push_length(container::PACKED, out);
                self.pieces(node.iter(), out);
            }
        }
    }

    /// The element of a node that has one, which is too long for a packed form.
    fn alone(&self, node: &Packed) -> Option<Vec<u8>> {
        let element = node.iter().next().filter(|_| node.len() == 1)?;
        self.list_fill.is_large(element.len()).then(|| element.to_vec())
    }

    fn set(&mut self, set: &Set, out: &mut Vec<u8>) {
        if let Some((width, bytes)) = set.integers() {
            let [width, len] =
                [width, set.len()].map(|number| u32::try_from(number).expect("limited to 2^30 integers"));
            let blob = [&width.to_le_bytes(), &len.to_le_bytes(), bytes].concat();
            self.text(&blob, out);
        } else if let Some(packed) = set.packed().filter(|_| !self.is_old) {
            self.pieces(packed.iter(), out);
        } else {
            push_length(len_of(set.len()), out);
            let mut digits = Digits::default();
            set.iter().for_each(|member| self.text(member.bytes(&mut digits), out));
        }
    }

    fn sorted_set(&mut self, set: &ZSet, out: &mut Vec<u8>) {
        let mut digits = Digits::default();
        if set.is_short() {
            let (mut packed, mut score) = (std::mem::take(&mut self.packed), Vec::new());
            let mut listpack = Listpack::begin(&mut packed);
            for entry in set {
                score.clear();
                write_score(entry.score, &mut score);
                listpack.push(entry.member.piece());
                listpack.push(&score);
            }
            self.text(listpack.finish(), out);
            self.packed = packed;
            return;
        }
        push_length(len_of(set.len()), out);
        for entry in set.iter().rev() {
            self.text(entry.member.bytes(&mut digits), out);
            out.extend_from_slice(&entry.score.to_le_bytes());
        }
    }

    fn hash(&mut self, hash: &Hash, out: &mut Vec<u8>) {
        if let Some(packed) = hash.packed() {
            return self.pieces(packed.iter(), out);
        }
        let expires = hash.expiring_len() > 0;
        push_length(len_of(hash.len()), out);
        let mut digits = Digits::default();
        // Before all times no field has expired.
        for hash::Field { name, value, expiry_ms } in hash.iter(i64::MIN) {
            self.text(name.bytes(&mut digits), out);
            self.text(value.bytes(&mut digits), out);
            if expires {
                out.extend_from_slice(&expiry_ms.unwrap_or(NEVER).to_le_bytes());
            }
        }
    }
}

pub(super) fn len_of(len: usize) -> u64 {
    u64::try_from(len).expect("lengths have 64 bits")
}

/// Appends a length in its shortest form.
pub(super) fn push_length(len: u64, out: &mut Vec<u8>) {
    let bytes = len.to_be_bytes();
    match len {
        0..0x40 => out.push(length::SIX_BITS << 6 | bytes[7]),
        0x40..0x4000 => out.extend_from_slice(&[length::FOURTEEN_BITS << 6 | bytes[6], bytes[7]]),
        0x4000..=0xffff_ffff => {
            out.push(length::FOUR_BYTES);
            out.extend_from_slice(&bytes[4..]);
        }
        _ => {
            out.push(length::EIGHT_BYTES);
            out.extend_from_slice(&bytes);
        }
    }
}

/// Appends an integer in place of its digits, if four bytes hold it.
fn push_integer(value: i64, out: &mut Vec<u8>) -> bool {
    let bytes = value.to_le_bytes();
    let (head, width) = match value {
        -0x80..=0x7f => (length::INTEGER_8, 1),
        -0x8000..=0x7fff => (length::INTEGER_16, 2),
        -0x8000_0000..=0x7fff_ffff => (length::INTEGER_32, 4),
        _ => return false,
    };
    out.push(head);
    out.extend_from_slice(&bytes[..width]);
    true
}
