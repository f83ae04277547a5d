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
use crate::memory::packed::{Packed, Piece, Pieces, Place};

/// Pieces of an entry before its values: the two parts of the id and the count of fields.
const HEAD_PIECES: usize = 3;

/// Entries in one buffer.
#[derive(Debug, Clone)]
pub(super) struct Node {
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

impl Node {
    /// A node without entries, for those with these fields.
    pub(super) fn new<T: AsRef<[u8]>>(pairs: &[T]) -> Self {
        let mut node = Self { pieces: Packed::new(), len: 0, added: 0, reckoned_bytes: FRAME_BYTES };
        node.add(count(pairs.len() / 2));
        for field in pairs.iter().step_by(2) {
            node.add(field.as_ref());
        }
        node
    }

    pub(super) const fn len(&self) -> u32 {
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
    pub(super) fn push<T: AsRef<[u8]>>(&mut self, base: StreamId, id: StreamId, pairs: &[T]) {
        let is_same = self.has_names(pairs);
        let own = if is_same { 0 } else { count(pairs.len() / 2) };
        let kept = || pairs.iter().skip(usize::from(is_same)).step_by(if is_same { 2 } else { 1 });
        self.add(id.ms.wrapping_sub(base.ms).cast_signed());
        self.add(id.seq.wrapping_sub(base.seq).cast_signed());
        self.add(own);
        kept().for_each(|piece| self.add(piece.as_ref()));
        let pieces = count(HEAD_PIECES + kept().count());
        self.add(pieces);
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

    fn has_names<T: AsRef<[u8]>>(&self, pairs: &[T]) -> bool {
        let (names, count) = self.names();
        count == pairs.len() / 2 && names.zip(pairs.iter().step_by(2)).all(|(own, name)| own == name.as_ref().into())
    }

    /// The fields of the node, followed by what is behind them.
    fn names(&self) -> (Pieces<'_>, usize) {
        let first = self.pieces.first().expect("a node begins with a count");
        (self.pieces.iter_from(self.pieces.after(first)), self.number(first))
    }

    fn number(&self, place: Place) -> usize {
        let number = self.pieces.get(place).integer().and_then(|number| usize::try_from(number).ok());
        number.expect("a count is where the form has one")
    }

    /// Where the first entry is.
    fn start(&self) -> Place {
        let first = self.pieces.first().expect("a node begins with a count");
        self.skip(first, self.number(first) + 1)
    }

    fn skip(&self, place: Place, pieces: usize) -> Place {
        (0..pieces).fold(place, |place, _| self.pieces.after(place))
    }

    /// The entries, from either end.
    pub(super) fn entries(&self, base: StreamId) -> Entries<'_> {
        Entries { node: self, base, front: self.start(), back: self.pieces.end() }
    }

    /// Removes an entry. False if there is none of this id.
    pub(super) fn remove(&mut self, base: StreamId, id: StreamId) -> bool {
        let mut entries = self.entries(base);
        loop {
            let place = entries.front;
            match entries.next() {
                Some(entry) if entry.id == id => {
                    let pieces = self.pieces_at(place);
                    self.pieces.remove_many(place, pieces);
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
        let start = self.start();
        let (mut end, mut pieces) = (start, 0);
        for _ in 0..count.min(self.len) {
            let of_entry = self.pieces_at(end);
            end = self.skip(end, of_entry);
            pieces += of_entry;
        }
        self.pieces.remove_many(start, pieces);
        self.len -= count.min(self.len);
    }

    /// How many pieces an entry has.
    fn pieces_at(&self, place: Place) -> usize {
        let own = self.number(self.skip(place, HEAD_PIECES - 1));
        let values = if own == 0 { self.names().1 } else { 2 * own };
        HEAD_PIECES + values + 1
    }

    /// The entry at a place, and the place after it.
    fn entry(&self, base: StreamId, place: Place) -> (Entry<'_>, Place) {
        let mut head = self.pieces.iter_from(place);
        let mut number = || head.next().and_then(|piece| piece.integer()).expect("an entry begins with numbers");
        let (ms, seq) = (number().cast_unsigned(), number().cast_unsigned());
        let own = usize::try_from(number()).expect("a count is not negative");
        let id = StreamId { ms: base.ms.wrapping_add(ms), seq: base.seq.wrapping_add(seq) };
        let (names, of_node) = self.names();
        let names = (own == 0).then_some(names);
        let left = if own == 0 { of_node } else { own };
        let after = self.skip(place, self.pieces_at(place));
        (Entry { id, fields: Fields { names, values: head, left } }, after)
    }
}

fn count(len: usize) -> i64 {
    i64::try_from(len).expect("a length in memory is less than 2^63")
}

/// The entries of a node.
#[derive(Debug, Clone)]
pub(super) struct Entries<'a> {
    node: &'a Node,
    base: StreamId,
    front: Place,
    back: Place,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        if self.front == self.back {
            return None;
        }
        let (entry, after) = self.node.entry(self.base, self.front);
        self.front = after;
        Some(entry)
    }
}

impl<'a> DoubleEndedIterator for Entries<'a> {
    fn next_back(&mut self) -> Option<Entry<'a>> {
        if self.front == self.back {
            return None;
        }
        let pieces = &self.node.pieces;
        let last = pieces.previous(self.back)?;
        let mut place = last;
        for _ in 0..self.node.number(last) {
            place = pieces.previous(place)?;
        }
        self.back = place;
        Some(self.node.entry(self.base, place).0)
    }
}
