//! Lists: sequences of byte strings with two ends.
//!
//! A short list is one [`Packed`]; a long one is a row of them (`nodes`). Which it is, and when it changes, is told to
//! clients as the encoding, so the thresholds follow Valkey's `list-max-listpack-size` to the byte: a list becomes long
//! when what is added would not fit one sequence, and short again when its only node is at most half full.
//!
//! Not here: keys, replies, blocking. An empty list is for its owner to remove.

use crate::memory::packed::{Packed, Piece, Pieces};
use crate::value::span::{place_of, span};

mod nodes;

use nodes::{At, Nodes};

/// An end of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The left one, where the index is 0.
    Front,
    /// The right one.
    Back,
}

/// On which side of another element one is inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Nearer to the front.
    Before,
    /// Nearer to the back.
    After,
}

/// How much one sequence of a list may hold: the setting `list-max-listpack-size`. Positive: that many elements, and at
/// most 8 KiB. Negative: bytes, from 4 KiB for -1 to 64 KiB for -5.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fill(pub i32);

impl Default for Fill {
    fn default() -> Self {
        Self(-2)
    }
}

/// What a listpack has around its entries: counted too, so that the limit falls on the same element.
const FRAME_BYTES: usize = 7;
/// What Valkey reckons for the head and end of an element that is to be added to a node.
const ENTRY_BYTES: usize = 8;
/// The most bytes of a sequence when the setting limits elements.
const COUNTED_BYTES_MAX: usize = 8192;

impl Fill {
    const fn bytes_max(self) -> usize {
        match self.0 {
            0.. => COUNTED_BYTES_MAX,
            -1 => 4096,
            -2 => 8192,
            -3 => 16_384,
            -4 => 32_768,
            _ => 65_536,
        }
    }

    fn len_max(self) -> usize {
        usize::try_from(self.0).map_or(usize::MAX, |count| count.max(1))
    }

    fn is_exceeded(self, bytes: usize, len: usize) -> bool {
        bytes > self.bytes_max() || len > self.len_max()
    }

    /// Whether a node of this many bytes and elements may have one more.
    fn allows(self, bytes: usize, len: usize, element: &[u8]) -> bool {
        !self.is_large(element.len()) && !self.is_exceeded(bytes + FRAME_BYTES + element.len() + ENTRY_BYTES, len + 1)
    }

    fn takes(self, node: &Packed, element: &[u8]) -> bool {
        self.allows(node.byte_len(), node.len(), element)
    }

    /// Whether an element of this length has a node of its own.
    pub(crate) const fn is_large(self, element_bytes: usize) -> bool {
        element_bytes > self.bytes_max()
    }

    /// Whether so much is at most half of what one sequence may have. Where elements are counted, bytes are not, as long
    /// as no element is large.
    fn is_half(self, bytes: usize, len: usize) -> bool {
        let bytes_max = if self.0 < 0 { self.bytes_max() / 2 } else { self.bytes_max() };
        bytes + FRAME_BYTES <= bytes_max && len <= self.len_max() / 2
    }
}

/// A list.
#[derive(Debug, Clone)]
pub struct List {
    body: Body,
}

#[derive(Debug, Clone)]
enum Body {
    Short(Packed),
    Long(Box<Nodes>),
}

impl Default for List {
    fn default() -> Self {
        Self::new()
    }
}

impl List {
    /// An empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self { body: Body::Short(Packed::new()) }
    }

    /// A list of sequences, as a dump has them: they stay what they are, however full, but empty ones are left out. One that
    /// fits is a short list.
    #[must_use]
    pub fn from_nodes(parts: impl IntoIterator<Item = Packed>, fill: Fill) -> Self {
        let mut nodes = Nodes::default();
        parts.into_iter().filter(|part| !part.is_empty()).for_each(|part| nodes.add_node(End::Back, part));
        let mut list = Self { body: Body::Long(Box::new(nodes)) };
        list.settle(|bytes, len| !fill.is_exceeded(bytes + FRAME_BYTES, len));
        list
    }

    /// The sequences that hold the elements, in order.
    pub fn nodes(&self) -> impl Iterator<Item = &Packed> {
        let (short, long) = match &self.body {
            Body::Short(packed) => (Some(packed), None),
            Body::Long(nodes) => (None, Some(nodes.iter())),
        };
        short.into_iter().chain(long.into_iter().flatten())
    }

    /// How many elements there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.body {
            Body::Short(packed) => packed.len(),
            Body::Long(nodes) => nodes.len(),
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name that `OBJECT ENCODING` gives the form.
    #[must_use]
    pub const fn encoding(&self) -> &'static str {
        match self.body {
            Body::Short(_) => "listpack",
            Body::Long(_) => "quicklist",
        }
    }

    /// How many pieces of memory it has.
    #[must_use]
    pub fn parts(&self) -> usize {
        match &self.body {
            Body::Short(_) => 1,
            Body::Long(nodes) => nodes.iter().count(),
        }
    }

    /// How many bytes of memory are held, this value itself aside. Looks at every node.
    #[must_use]
    pub fn bytes_held(&self) -> usize {
        match &self.body {
            Body::Short(packed) => packed.bytes_held(),
            Body::Long(nodes) => size_of::<Nodes>() + nodes.bytes_held(),
        }
    }

    /// Adds an element at an end.
    pub fn push(&mut self, end: End, element: &[u8], fill: Fill) {
        self.make_room([element].into_iter(), fill);
        self.push_unchecked(end, element, fill);
    }

    /// Adds elements at an end, one after another: of those pushed to the front, the last is then the first. Whether
    /// the list becomes long is decided before the first of them, as for one command.
    pub fn push_all<T: AsRef<[u8]>>(&mut self, end: End, elements: impl Iterator<Item = T> + Clone, fill: Fill) {
        self.make_room(elements.clone(), fill);
        for element in elements {
            self.push_unchecked(end, element.as_ref(), fill);
        }
    }

    /// The element at an end.
    #[must_use]
    pub fn peek(&self, end: End) -> Option<Piece<'_>> {
        match end {
            End::Front => self.get(0),
            End::Back => self.get(-1),
        }
    }

    /// Takes the element at an end out.
    pub fn pop(&mut self, end: End, fill: Fill) -> Option<Vec<u8>> {
        let element = self.peek(end)?.to_vec();
        self.remove_end(end, 1, fill);
        Some(element)
    }

    /// Removes up to so many elements at an end; how many that were. To see them before: [`List::ends`].
    pub fn remove_end(&mut self, end: End, count_max: usize, fill: Fill) -> usize {
        let count = count_max.min(self.len());
        let start = match end {
            End::Front => 0,
            End::Back => self.len() - count,
        };
        self.remove_range(start, count);
        self.settle_small(fill);
        count
    }

    /// Up to so many elements at an end, in the order in which [`List::pop`] gives them.
    #[must_use]
    pub fn ends(&self, end: End, count_max: usize) -> Ends<'_> {
        let count = count_max.min(self.len());
        match end {
            End::Front => Ends::Front(self.elements(0, count)),
            End::Back => Ends::Back(self.elements(self.len() - count, count).rev()),
        }
    }

    /// The element at an index, from the back where it is negative.
    #[must_use]
    pub fn get(&self, index: i64) -> Option<Piece<'_>> {
        let at = self.locate(place_of(index, self.len())?);
        let node = self.node(at)?;
        Some(node.get(node.nth(at.n)?))
    }

    /// Puts an element in the place of the one at an index. False if there is none.
    pub fn set(&mut self, index: i64, element: &[u8], fill: Fill) -> bool {
        self.make_room([element].into_iter(), fill);
        let Some(index) = place_of(index, self.len()) else { return false };
        match &mut self.body {
            Body::Short(packed) => {
                let place = packed.nth(index).expect("the index is below the length");
                packed.replace(place, element);
            }
            Body::Long(nodes) => nodes.replace(index, element, fill),
        }
        self.settle_small(fill);
        true
    }

    /// Inserts an element beside the first one that equals `pivot`. False if none does.
    pub fn insert(&mut self, side: Side, pivot: &[u8], element: &[u8], fill: Fill) -> bool {
        self.make_room([element].into_iter(), fill);
        let pivot = Piece::from(pivot);
        let mut at = Some(At { run: 0, node: 0, n: 0 });
        while let Some(here) = at {
            let Some(node) = self.node(here) else { break };
            if let Some(n) = node.iter().position(|piece| piece == pivot) {
                let n = if side == Side::Before { n } else { n + 1 };
                self.insert_at(At { n, ..here }, element, fill);
                return true;
            }
            at = self.next_node(here);
        }
        false
    }

    /// The elements from one index to another, both within, from either end.
    #[must_use]
    pub fn range(&self, start: i64, stop: i64) -> Elements<'_> {
        let span = span(start, stop, self.len());
        self.elements(span.start, span.len())
    }

    /// All elements, from either end.
    #[must_use]
    pub fn iter(&self) -> Elements<'_> {
        self.elements(0, self.len())
    }

    /// Keeps the elements from one index to another, both within; how many were removed.
    pub fn trim(&mut self, start: i64, stop: i64, fill: Fill) -> usize {
        let len = self.len();
        let kept = span(start, stop, len);
        self.remove_range(kept.end, len - kept.end);
        self.remove_range(0, kept.start);
        self.settle_small(fill);
        len - kept.len()
    }

    /// Removes elements that equal `unwanted`: all for a count of 0, else so many, from the back where it is negative. How
    /// many were removed.
    pub fn remove(&mut self, unwanted: &[u8], count: i64, fill: Fill) -> usize {
        let from = if count < 0 { End::Back } else { End::Front };
        let count_max = match count {
            0 => usize::MAX,
            _ => usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX),
        };
        let removed = match &mut self.body {
            Body::Short(packed) => {
                let wanted = Piece::from(unwanted);
                let equal = packed.iter().filter(|piece| *piece == wanted).count();
                let skip = if from == End::Back { equal.saturating_sub(count_max) } else { 0 };
                packed.remove_equal(unwanted, skip, count_max)
            }
            Body::Long(nodes) => nodes.remove_equal(from, unwanted, count_max, fill),
        };
        if removed > 0 {
            self.settle_small(fill);
        }
        removed
    }

    /// The indexes of elements that equal `wanted`, beginning with the `rank`-th from the front, or from the back where it
    /// is negative. At most `looked_max` elements are looked at, if that is not 0. Rank 0 finds nothing.
    pub fn positions(&self, wanted: &[u8], rank: i64, looked_max: usize) -> impl Iterator<Item = usize> {
        let len = self.len();
        let looked_max = if looked_max == 0 { len } else { looked_max };
        let skip = usize::try_from(rank.unsigned_abs()).unwrap_or(usize::MAX).checked_sub(1);
        let from = if rank < 0 { End::Back } else { End::Front };
        let wanted = wanted.to_vec();
        let found = self.ends(from, looked_max).enumerate().filter_map(move |(step, piece)| {
            let index = if from == End::Back { len - 1 - step } else { step };
            (piece == Piece::from(&wanted)).then_some(index)
        });
        found.skip(skip.unwrap_or(usize::MAX))
    }

    /// Moves an element from one end to one end, which may be the same; it, or nothing of an empty list.
    pub fn rotate(&mut self, from: End, to: End, fill: Fill) -> Option<Vec<u8>> {
        let element = self.peek(from)?.to_vec();
        let start = if from == End::Front { 0 } else { self.len() - 1 };
        self.remove_range(start, 1);
        self.make_room([&element].into_iter(), fill);
        self.push_unchecked(to, &element, fill);
        self.settle_small(fill);
        Some(element)
    }

    /// Moves an element from an end to an end of another list; it, or nothing of an empty list.
    pub fn move_to(&mut self, from: End, other: &mut Self, to: End, fill: Fill) -> Option<Vec<u8>> {
        let element = self.pop(from, fill)?;
        other.push(to, &element, fill);
        Some(element)
    }

    fn push_unchecked(&mut self, end: End, element: &[u8], fill: Fill) {
        match (&mut self.body, end) {
            (Body::Short(packed), End::Front) => packed.push_front(element),
            (Body::Short(packed), End::Back) => packed.push_back(element),
            (Body::Long(nodes), _) => nodes.push(end, element, fill),
        }
    }

    fn insert_at(&mut self, at: At, element: &[u8], fill: Fill) {
        match &mut self.body {
            Body::Short(packed) => packed.insert(packed.nth(at.n).unwrap_or(packed.end()), element),
            Body::Long(nodes) => nodes.insert(at, element, fill),
        }
    }

    fn remove_range(&mut self, start: usize, count: usize) {
        match &mut self.body {
            Body::Short(packed) => {
                let place = packed.nth(start).unwrap_or(packed.end());
                packed.remove_many(place, count);
            }
            Body::Long(nodes) => nodes.remove_range(start, count),
        }
    }

    /// Becomes long if it would not stay within one sequence with these elements.
    fn make_room<T: AsRef<[u8]>>(&mut self, elements: impl Iterator<Item = T>, fill: Fill) {
        let Body::Short(packed) = &mut self.body else { return };
        let (mut bytes, mut len) = (packed.byte_len() + FRAME_BYTES, packed.len());
        for element in elements {
            bytes += element.as_ref().len();
            len += 1;
        }
        if fill.is_exceeded(bytes, len) {
            self.body = Body::Long(Box::new(Nodes::new(std::mem::take(packed))));
        }
    }

    /// Becomes short if what is left fills half a sequence at most.
    fn settle_small(&mut self, fill: Fill) {
        self.settle(|bytes, len| fill.is_half(bytes, len));
    }

    fn settle(&mut self, is_small: impl Fn(usize, usize) -> bool) {
        let Body::Long(nodes) = &mut self.body else { return };
        let fits = |node: &Packed| is_small(node.byte_len(), node.len());
        if nodes.len() == 0 {
            self.body = Body::Short(Packed::new());
        } else if nodes.only().is_some_and(fits) {
            self.body = Body::Short(std::mem::take(&mut **nodes).into_only());
        }
    }

    fn locate(&self, index: usize) -> At {
        match &self.body {
            Body::Short(_) => At { run: 0, node: 0, n: index },
            Body::Long(nodes) => nodes.locate(index),
        }
    }

    fn node(&self, at: At) -> Option<&Packed> {
        match &self.body {
            Body::Short(packed) => (at.run == 0 && at.node == 0).then_some(packed),
            Body::Long(nodes) => nodes.node(at),
        }
    }

    fn next_node(&self, at: At) -> Option<At> {
        match &self.body {
            Body::Short(_) => None,
            Body::Long(nodes) => nodes.next_node(at),
        }
    }

    fn previous_node(&self, at: At) -> Option<At> {
        match &self.body {
            Body::Short(_) => None,
            Body::Long(nodes) => nodes.previous_node(at),
        }
    }

    fn elements(&self, start: usize, count: usize) -> Elements<'_> {
        Elements { list: self, start, left: count, front: None, back: None }
    }
}

impl<'a> IntoIterator for &'a List {
    type Item = Piece<'a>;
    type IntoIter = Elements<'a>;

    fn into_iter(self) -> Elements<'a> {
        self.iter()
    }
}

/// A part of a list, from either end.
#[derive(Debug, Clone)]
pub struct Elements<'a> {
    list: &'a List,
    /// The index of the first element that is left.
    start: usize,
    left: usize,
    /// Where the next from the front comes from; found when it is first asked for. So is `back`.
    front: Option<(At, Pieces<'a>)>,
    back: Option<(At, Pieces<'a>)>,
}

impl<'a> Iterator for Elements<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        if self.left == 0 {
            return None;
        }
        let list = self.list;
        let of_node = |at: At| {
            let node = list.node(at).expect("there are elements left");
            (at, node.iter_from(node.nth(at.n).unwrap_or(node.end())))
        };
        let (at, pieces) = self.front.get_or_insert_with(|| of_node(list.locate(self.start)));
        let piece = pieces.next().or_else(|| {
            (*at, *pieces) = of_node(list.next_node(*at)?);
            pieces.next()
        });
        self.start += 1;
        self.left -= 1;
        piece
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl DoubleEndedIterator for Elements<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let list = self.list;
        let of_node = |at: At| {
            let node = list.node(at).expect("there are elements left");
            (at, node.iter_until(node.nth(at.n).unwrap_or(node.end())))
        };
        let (at, pieces) = self.back.get_or_insert_with(|| {
            let last = list.locate(self.start + self.left - 1);
            of_node(At { n: last.n + 1, ..last })
        });
        let piece = pieces.next_back().or_else(|| {
            (*at, *pieces) = of_node(list.previous_node(*at)?);
            pieces.next_back()
        });
        self.left -= 1;
        piece
    }
}

impl ExactSizeIterator for Elements<'_> {}

/// The elements at one end of a list, the outermost first.
#[derive(Debug, Clone)]
pub enum Ends<'a> {
    /// From the front.
    Front(Elements<'a>),
    /// From the back.
    Back(std::iter::Rev<Elements<'a>>),
}

impl<'a> Iterator for Ends<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        match self {
            Self::Front(elements) => elements.next(),
            Self::Back(elements) => elements.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self {
            Self::Front(elements) => elements.size_hint(),
            Self::Back(elements) => elements.size_hint(),
        }
    }
}

impl ExactSizeIterator for Ends<'_> {}

#[cfg(test)]
mod tests;
