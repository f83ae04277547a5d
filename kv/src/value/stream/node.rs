//! A node of a stream: up to about a hundred entries in one buffer.
//!
//! The node is named by the id of its first entry, and the ids of entries are kept as the difference from it. It begins with
//! the field names of that entry; an entry that has the same ones, as most do, keeps only its values:
//!
//! ```text
//! count of fields, field ..., entry ...
//! entry: milliseconds and number less those of the node (wrapping), count of fields or 0 for those of the node,
//!        value ... or field, value ..., count of all pieces before this one
//! ```
//!
//! The count at the end is for walking backwards. A removed entry leaves nothing. Follows Valkey's macro nodes, which keep
//! removed entries with a mark; what such a node would have in bytes is reckoned, so that nodes are full at the same entry.

use super::StreamId;
use crate::memory::packed::{Packed, Piece, Pieces};

/// Pieces of an entry before its values: the two parts of the id and the count of fields.
const HEAD_PIECES: usize = 3;

/// About what a piece has around it: a head and a length, of two bytes each in most.
const PIECE_FRAME_BYTES: usize = 4;

/// Entries in one buffer.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pieces: Packed,
    /// How many entries there are.
    len: u32,
    /// How many there have ever been: as many as fill a node, removed or not.
    added: u32,
    /// What a listpack would have, with all entries there have ever been, without its frame and their counts.
    reckoned_bytes: usize,
}

/// What a listpack has around its entries, and for the end of the fields.
const FRAME_BYTES: usize = 7 + 2;

/// What an element takes in a listpack.
fn listpack_bytes(piece: Piece<'_>) -> usize {
    match piece.integer() {
        Some(0..=127) => 2,
        Some(-0x1000..=0xfff) => 3,
        Some(-0x8000..=0x7fff) => 4,
        Some(-0x80_0000..=0x7f_ffff) => 5,
        Some(-0x8000_0000..=0x7fff_ffff) => 6,
        Some(_) => 10,
        None => piece.entry_bytes(),
    }
}

/// An entry of a stream.
#[derive(Debug, Clone)]
pub struct Entry<'a> {
    /// Its id.
    pub id: StreamId,
    /// Its fields with their values, in the order in which they were given.
    pub fields: Fields<'a>,
}

/// The fields of an entry, with their values.
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    /// The names, if they are those of the node.
    names: Option<Pieces<'a>>,
    /// The values, with the names before each if they are its own.
    values: Pieces<'a>,
    left: usize,
}

impl<'a> Iterator for Fields<'a> {
    type Item = (Piece<'a>, Piece<'a>);

    fn next(&mut self) -> Option<(Piece<'a>, Piece<'a>)> {
        self.left = self.left.checked_sub(1)?;
        let name = match &mut self.names {
            Some(names) => names.next()?,
            None => self.values.next()?,
        };
        Some((name, self.values.next()?))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Fields<'_> {}

impl Fields<'_> {
    /// Whether the names are not those of the node.
    pub(crate) const fn has_own_names(&self) -> bool {
        self.names.is_none()
    }
}

impl Node {
    /// A node without entries, for those with these fields.
    pub(super) fn new<'p>(pairs: impl ExactSizeIterator<Item = &'p [u8]>) -> Self {
        let mut node = Self { pieces: Packed::new(), len: 0, added: 0, reckoned_bytes: FRAME_BYTES };
        node.add(count(pairs.len() / 2));
        pairs.step_by(2).for_each(|field| node.add(field));
        node
    }

    /// A node without entries, as a dump has it: with these names, from a listpack of so many bytes that says it has so many
    /// entries, and so many that were removed.
    pub(crate) fn from_dump(names: &[Piece<'_>], bytes: usize, entries: u32, removed: u32) -> Self {
        let mut node = Self { pieces: Packed::new(), len: 0, added: removed, reckoned_bytes: 0 };
        node.add(count(names.len()));
        names.iter().for_each(|name| node.add(*name));
        let counts = [entries, removed].map(|count| listpack_bytes(i64::from(count).into()));
        node.reckoned_bytes = bytes.saturating_sub(counts[0] + counts[1]);
        node
    }

    /// Adds an entry as a dump has it: its values, or its names and values in turn if it has names of its own. What the node
    /// is reckoned to have in bytes stays.
    pub(crate) fn push_from_dump(&mut self, base: StreamId, id: StreamId, pieces: &[Piece<'_>], has_own_names: bool) {
        let bytes = self.reckoned_bytes;
        self.add(id.ms.wrapping_sub(base.ms).cast_signed());
        self.add(id.seq.wrapping_sub(base.seq).cast_signed());
        self.add(if has_own_names { count(pieces.len() / 2) } else { 0 });
        pieces.iter().for_each(|piece| self.add(*piece));
        self.add(count(HEAD_PIECES + pieces.len()));
        self.reckoned_bytes = bytes;
        self.len += 1;
        self.added += 1;
    }

    /// The names that entries without names of their own have.
    pub(crate) fn names(&self) -> Pieces<'_> {
        self.entries(StreamId::MIN).names
    }

    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    pub(super) const fn added(&self) -> u32 {
        self.added
    }

    /// What a listpack of these entries, and of those that were removed, would have in bytes.
    pub(super) fn reckoned_bytes(&self) -> usize {
        let counts = [self.len, self.added - self.len].map(|count| listpack_bytes(i64::from(count).into()));
        self.reckoned_bytes + counts[0] + counts[1]
    }

    pub(super) const fn bytes_held(&self) -> usize {
        self.pieces.bytes_held()
    }

    pub(super) fn shrink_to_fit(&mut self) {
        self.pieces.shrink_to_fit();
    }

    /// Adds an entry behind the others: names and values in turn.
    pub(super) fn push<'p>(
        &mut self,
        base: StreamId,
        id: StreamId,
        pairs: impl ExactSizeIterator<Item = &'p [u8]> + Clone,
    ) {
        let is_same = self.has_names(pairs.clone());
        let own = if is_same { 0 } else { count(pairs.len() / 2) };
        let kept = pairs.skip(usize::from(is_same)).step_by(if is_same { 2 } else { 1 });
        let pieces = HEAD_PIECES + kept.len();
        let payload: usize = kept.clone().map(<[u8]>::len).sum();
        self.pieces.reserve_double(payload + PIECE_FRAME_BYTES * pieces);
        self.add(id.ms.wrapping_sub(base.ms).cast_signed());
        self.add(id.seq.wrapping_sub(base.seq).cast_signed());
        self.add(own);
        kept.for_each(|piece| self.add(piece));
        self.add(count(pieces));
        if !is_same {
            // A listpack has a mark, and a count of fields only where they are not those of the node.
            self.reckoned_bytes += listpack_bytes(0.into());
        }
        self.len += 1;
        self.added += 1;
    }

    fn add<'a>(&mut self, piece: impl Into<Piece<'a>>) {
        let piece = piece.into();
        self.reckoned_bytes += listpack_bytes(piece);
        self.pieces.push_back(piece);
    }

    fn has_names<'p>(&self, pairs: impl ExactSizeIterator<Item = &'p [u8]>) -> bool {
        let Entries { mut names, names_len, .. } = self.entries(StreamId::MIN);
        names_len == pairs.len() / 2 && pairs.step_by(2).all(|name| names.next() == Some(name.into()))
    }

    /// The entries, from either end.
    pub(crate) fn entries(&self, base: StreamId) -> Entries<'_> {
        let mut rest = self.pieces.iter();
        let names_len = length(rest.next());
        Entries { base, names: rest.split_front(names_len), names_len, rest }
    }

    /// Removes an entry. False if there is none of this id.
    pub(super) fn remove(&mut self, base: StreamId, id: StreamId) -> bool {
        let mut entries = self.entries(base);
        loop {
            let place = self.pieces.place_of(&entries.rest);
            match entries.next() {
                Some(entry) if entry.id == id => {
                    let after = self.pieces.place_of(&entries.rest);
                    self.pieces.remove_between(place, after);
                    self.len -= 1;
                    return true;
                }
                Some(entry) if entry.id < id => {}
                _ => return false,
            }
        }
    }

    /// Removes the first entries, up to a count.
    pub(super) fn remove_first(&mut self, count: u32) {
        let mut entries = self.entries(StreamId::MIN);
        let place = self.pieces.place_of(&entries.rest);
        let count = count.min(self.len);
        for _ in 0..count {
            entries.next();
        }
        let after = self.pieces.place_of(&entries.rest);
        self.pieces.remove_between(place, after);
        self.len -= count;
    }
}

fn count(len: usize) -> i64 {
    i64::try_from(len).expect("a length in memory is less than 2^63")
}

fn integer(piece: Option<Piece<'_>>) -> i64 {
    piece.and_then(|piece| piece.integer()).expect("a number is where the form has one")
}

fn length(piece: Option<Piece<'_>>) -> usize {
    usize::try_from(integer(piece)).expect("a count is not negative")
}

/// The entries of a node.
#[derive(Debug, Clone)]
pub(crate) struct Entries<'a> {
    base: StreamId,
    names: Pieces<'a>,
    names_len: usize,
    /// Whole entries.
    rest: Pieces<'a>,
}

impl<'a> Entries<'a> {
    /// Reads what stands before the values: the id, and the fields without them.
    fn read_head(&self, pieces: &mut Pieces<'a>) -> (StreamId, Fields<'a>) {
        let mut number = || integer(pieces.next());
        let (ms, seq) = (number().cast_unsigned(), number().cast_unsigned());
        let id = StreamId { ms: self.base.ms.wrapping_add(ms), seq: self.base.seq.wrapping_add(seq) };
        let fields = match length(pieces.next()) {
            0 => Fields { names: Some(self.names.clone()), values: pieces.clone(), left: self.names_len },
            own => Fields { names: None, values: pieces.clone(), left: own },
        };
        (id, fields)
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let mut rest = self.rest.clone();
        let (id, mut fields) = self.read_head(&mut rest);
        let values = if fields.names.is_some() { fields.left } else { 2 * fields.left };
        fields.values = rest.split_front(values);
        rest.next();
        self.rest = rest;
        Some(Entry { id, fields })
    }
}

impl<'a> DoubleEndedIterator for Entries<'a> {
    fn next_back(&mut self) -> Option<Entry<'a>> {
        let pieces = length(Some(self.rest.next_back()?));
        let mut entry = self.rest.split_back(pieces);
        let (id, fields) = self.read_head(&mut entry);
        Some(Entry { id, fields })
    }
}
