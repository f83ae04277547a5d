//! Packed collections as they are written: listpacks, and what came before them.
//!
//! Each is walked once, element by element, and found to hold what it says when its end is reached; what was read before is
//! only good then. A ziplist is a head of its length in bytes (4, little-endian), where its last element begins (4) and the count
//! (2), the elements, and 0xff; an element is the length of the one before, a head that tells its kind, and its payload. A zipmap is a
//! count (1), then for each pair the length of the key, the key, the length of the value, a count of idle bytes, the value and the
//! idle bytes, and 0xff.

use super::listpack::{COUNT_UNKNOWN, END, HEAD_BYTES, length_bytes};
use super::source::Damage;
use crate::memory::packed::{Packed, Piece};

/// An element, or what is wrong.
pub(super) type Element<'a> = Result<Piece<'a>, Damage>;

/// All elements as a sequence of ours.
pub(super) fn pack<'a>(elements: impl Iterator<Item = Element<'a>>) -> Result<Packed, Damage> {
    let mut packed = Packed::new();
    for element in elements {
        packed.push_back(element?);
    }
    packed.shrink_to_fit();
    Ok(packed)
}

fn number_at<const N: usize>(bytes: &[u8], at: usize) -> Option<usize> {
    let mut wide = [0; 8];
    wide[..N].copy_from_slice(bytes.get(at..)?.first_chunk::<N>()?);
    usize::try_from(u64::from_le_bytes(wide)).ok()
}

fn signed(bytes: &[u8]) -> Option<i64> {
    let sign = if bytes.last()? & 0x80 == 0 { 0 } else { 0xff };
    let mut wide = [sign; 8];
    wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(i64::from_le_bytes(wide))
}

/// The elements of a listpack.
#[derive(Debug, Clone)]
pub(super) struct ListpackElements<'a> {
    /// Elements, and the end.
    rest: &'a [u8],
    /// How many elements there must be, if the head can tell.
    count: Option<usize>,
    seen: usize,
    is_over: bool,
}

impl<'a> ListpackElements<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, Damage> {
        let whole = number_at::<4>(bytes, 0).zip(number_at::<2>(bytes, 4)).filter(|(len, _)| *len == bytes.len());
        let (_, count) = whole.ok_or(Damage::Packed)?;
        let count = Some(count).filter(|count| *count != usize::from(COUNT_UNKNOWN));
        Ok(Self { rest: &bytes[HEAD_BYTES..], count, seen: 0, is_over: false })
    }

    fn read(&mut self) -> Option<Piece<'a>> {
        let (first, rest) = self.rest.split_first()?;
        let next = rest.first().copied().map(u16::from);
        let low = u16::from(*first & 0x0f) << 8;
        let text = |head: usize, len: usize| Some((self.rest.get(head..)?.get(..len)?.into(), head + len));
        let integer = |width: usize| Some((signed(rest.get(..width)?)?.into(), 1 + width));
        let (piece, len): (Piece<'a>, usize) = match *first {
            0x00..=0x7f => (i64::from(*first).into(), 1),
            0x80..=0xbf => text(1, usize::from(*first & 0x3f))?,
            0xc0..=0xdf => {
                let bits = u16::from(*first & 0x1f) << 8 | next?;
                // Moves the sign of 13 bits to that of 16, and back with copies of it.
                (i64::from((bits << 3).cast_signed() >> 3).into(), 2)
            }
            0xe0..=0xef => text(2, usize::from(low | next?))?,
            0xf0 => text(5, number_at::<4>(rest, 0)?)?,
            0xf1 => integer(2)?,
            0xf2 => integer(3)?,
            0xf3 => integer(4)?,
            0xf4 => integer(8)?,
            _ => return None,
        };
        let end = self.rest.get(len..len + length_bytes(len))?;
        self.rest = &self.rest[len + end.len()..];
        (read_length(end) == Some(len)).then_some(piece)
    }
}

/// The length at the end of an element: its groups end exactly where these bytes begin.
fn read_length(bytes: &[u8]) -> Option<usize> {
    let mut len = 0;
    for (group, byte) in bytes.iter().rev().enumerate() {
        let has_more = byte & 0x80 != 0;
        if has_more != (group + 1 < bytes.len()) {
            return None;
        }
        len |= usize::from(byte & 0x7f) << (7 * group);
    }
    Some(len)
}

impl<'a> Iterator for ListpackElements<'a> {
    type Item = Element<'a>;

    fn next(&mut self) -> Option<Element<'a>> {
        if self.is_over {
            return None;
        }
        if self.rest == [END] {
            self.is_over = true;
            return self.count.is_some_and(|count| count != self.seen).then_some(Err(Damage::Packed));
        }
        let piece = self.read();
        self.seen += 1;
        self.is_over = piece.is_none();
        Some(piece.ok_or(Damage::Packed))
    }
}

/// Bytes of a ziplist before its elements.
const ZIPLIST_HEAD_BYTES: usize = 10;
/// What stands for a length of the element before that needs four more bytes.
const LONG_BEFORE: u8 = 0xfe;

/// The elements of a ziplist.
#[derive(Debug, Clone)]
pub(super) struct ZiplistElements<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Bytes of the element before.
    before: usize,
    seen: usize,
    is_over: bool,
}

impl<'a> ZiplistElements<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, Damage> {
        let is_whole = number_at::<4>(bytes, 0) == Some(bytes.len()) && bytes.len() > ZIPLIST_HEAD_BYTES;
        let elements = Self { bytes, at: ZIPLIST_HEAD_BYTES, before: 0, seen: 0, is_over: false };
        if is_whole { Ok(elements) } else { Err(Damage::Packed) }
    }

    fn read(&mut self) -> Option<Piece<'a>> {
        let element = self.bytes.get(self.at..self.bytes.len() - 1)?;
        let (before, head) = match element.first()? {
            &LONG_BEFORE => (number_at::<4>(element, 1)?, 5),
            short => (usize::from(*short), 1),
        };
        let (first, rest) = element.get(head..)?.split_first()?;
        let text = |more: usize, len: usize| Some((rest.get(more..)?.get(..len)?.into(), 1 + more + len));
        let integer = |width: usize| Some((signed(rest.get(..width)?)?.into(), 1 + width));
        let (piece, len): (Piece<'a>, usize) = match *first {
            0x00..=0x3f => text(0, usize::from(*first))?,
            0x40..=0x7f => text(1, usize::from(u16::from_be_bytes([*first & 0x3f, *rest.first()?])))?,
            0x80..=0xbf => text(4, usize::try_from(u32::from_be_bytes(*rest.first_chunk()?)).ok()?)?,
            0xc0 => integer(2)?,
            0xd0 => integer(4)?,
            0xe0 => integer(8)?,
            0xf0 => integer(3)?,
            0xfe => integer(1)?,
            0xf1..=0xfd => (i64::from((*first & 0x0f) - 1).into(), 1),
            _ => return None,
        };
        if before != self.before {
            return None;
        }
        self.before = head + len;
        self.at += self.before;
        Some(piece)
    }

    /// Whether the head tells what was found.
    fn is_as_said(&self) -> bool {
        let count = number_at::<2>(self.bytes, 8);
        let last = number_at::<4>(self.bytes, 4);
        let is_counted = count == Some(self.seen) || count == Some(usize::from(COUNT_UNKNOWN));
        is_counted && (self.seen == 0 || last == Some(self.at - self.before))
    }
}

impl<'a> Iterator for ZiplistElements<'a> {
    type Item = Element<'a>;

    fn next(&mut self) -> Option<Element<'a>> {
        if self.is_over {
            return None;
        }
        if self.bytes[self.at..] == [END] {
            self.is_over = true;
            return (!self.is_as_said()).then_some(Err(Damage::Packed));
        }
        let piece = self.read();
        self.seen += 1;
        self.is_over = piece.is_none();
        Some(piece.ok_or(Damage::Packed))
    }
}

/// What stands for a length in a zipmap that needs four more bytes, and for a count that one byte cannot tell.
const ZIPMAP_LONG: u8 = 254;

/// The keys and values of a zipmap, in turn.
#[derive(Debug, Clone)]
pub(super) struct ZipmapElements<'a> {
    bytes: &'a [u8],
    /// Pairs, and the end.
    rest: &'a [u8],
    seen: usize,
    is_over: bool,
}

impl<'a> ZipmapElements<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, Damage> {
        let rest = bytes.get(1..).filter(|rest| !rest.is_empty()).ok_or(Damage::Packed)?;
        Ok(Self { bytes, rest, seen: 0, is_over: false })
    }

    /// Reads a length that may be followed by a byte that tells how many bytes are idle behind the payload.
    fn read(&mut self, has_idle: bool) -> Option<Piece<'a>> {
        let (len, head) = match self.rest.first()? {
            &END => return None,
            // A length that fits one byte is written in one.
            &ZIPMAP_LONG => (number_at::<4>(self.rest, 1).filter(|len| *len >= usize::from(ZIPMAP_LONG))?, 5),
            short => (usize::from(*short), 1),
        };
        let idle = if has_idle { usize::from(*self.rest.get(head)?) } else { 0 };
        let start = head + usize::from(has_idle);
        let payload = self.rest.get(start..start.checked_add(len)?)?;
        self.rest = self.rest.get(start + len + idle..).filter(|rest| !rest.is_empty())?;
        Some(payload.into())
    }

    /// Whether the head tells what was found.
    fn is_as_said(&self) -> bool {
        let count = self.bytes[0];
        self.seen.is_multiple_of(2) && (count >= ZIPMAP_LONG || usize::from(count) == self.seen / 2)
    }
}

impl<'a> Iterator for ZipmapElements<'a> {
    type Item = Element<'a>;

    fn next(&mut self) -> Option<Element<'a>> {
        if self.is_over {
            return None;
        }
        let is_value = !self.seen.is_multiple_of(2);
        if self.rest == [END] && !is_value {
            self.is_over = true;
            return (!self.is_as_said()).then_some(Err(Damage::Packed));
        }
        let piece = self.read(is_value);
        self.seen += 1;
        self.is_over = piece.is_none();
        Some(piece.ok_or(Damage::Packed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::draws::Draws;
    use crate::rdb::listpack::Listpack;

    fn written(pieces: &[Piece<'_>]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut listpack = Listpack::begin(&mut out);
        pieces.iter().for_each(|piece| listpack.push(*piece));
        listpack.finish().to_vec()
    }

    fn read_all(bytes: &[u8]) -> Result<Vec<Vec<u8>>, Damage> {
        let elements = ListpackElements::new(bytes)?;
        elements.map(|element| element.map(|piece| piece.to_vec())).collect()
    }

    #[test]
    fn listpacks_are_read_as_they_were_written() {
        let edges = [0, 127, 128, 4095, 4096, 32_767, 32_768, 8_388_607, 8_388_608, 1 << 31, 1 << 40, i64::MAX];
        let numbers = edges.iter().flat_map(|edge| [*edge, -edge, -edge - 1]);
        let lens = [0, 1, 63, 64, 122, 125, 126, 127, 4095, 4096, 16_377, 16_378, 16_379, 70_000];
        let texts: Vec<Vec<u8>> = lens.iter().map(|len| vec![b'x'; *len]).collect();
        let pieces: Vec<Piece<'_>> = numbers.map(Piece::from).chain(texts.iter().map(Piece::from)).collect();
        for count in [0, 1, pieces.len()] {
            let bytes = written(&pieces[..count]);
            let expected: Vec<Vec<u8>> = pieces[..count].iter().map(Piece::to_vec).collect();
            assert_eq!(read_all(&bytes), Ok(expected));
        }
        let many = vec![Piece::from(7); 70_000];
        assert_eq!(read_all(&written(&many)).map(|read| read.len()), Ok(70_000), "the head cannot count them");
    }

    #[test]
    fn every_cut_and_flip_of_a_listpack_is_refused_or_another_listpack() {
        let texts = [b"abc".to_vec(), vec![b'y'; 100]];
        let pieces = [1.into(), Piece::from(&texts[0]), (-5000).into(), Piece::from(&texts[1]), i64::MIN.into()];
        let bytes = written(&pieces);
        for cut in 0..bytes.len() {
            assert_eq!(read_all(&bytes[..cut]), Err(Damage::Packed), "cut at {cut}");
        }
        let mut refused = 0;
        for at in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[at / 8] ^= 1 << (at % 8);
            let is_packed = pack(ListpackElements::new(&flipped).into_iter().flatten()).is_ok();
            refused += usize::from(read_all(&flipped).is_err());
            assert_eq!(read_all(&flipped).is_ok(), is_packed && ListpackElements::new(&flipped).is_ok());
        }
        assert!(refused > 120, "the head, the ends and the kinds are known when wrong: {refused}");
    }

    #[test]
    fn nonsense_ends() {
        let mut draws = Draws(3);
        for _ in 0..20_000 {
            let mut bytes: Vec<u8> = (0..draws.below(60)).map(|_| draws.byte()).collect();
            if bytes.len() >= 4 {
                let len = u32::try_from(bytes.len()).unwrap();
                bytes[..4].copy_from_slice(&len.to_le_bytes());
            }
            let counts = [
                ListpackElements::new(&bytes).map(Iterator::count),
                ZiplistElements::new(&bytes).map(Iterator::count),
                ZipmapElements::new(&bytes).map(Iterator::count),
            ];
            assert!(counts.iter().flatten().all(|count| *count <= bytes.len()));
        }
    }

    #[test]
    fn ziplists_and_zipmaps_as_redis_wrote_them() {
        let ziplist = [
            &b"\x2b\0\0\0\x25\0\0\0\x08\0"[..],
            b"\0\x03abc",
            b"\x05\xf1",
            b"\x02\xfd",
            b"\x02\xfe\x80",
            b"\x03\xc0\x2c\x01",
            b"\x04\xf0\xff\xff\x7f",
            b"\x05\xd0\0\0\0\x80",
            b"\x06\x40\x02hi",
            b"\xff",
        ]
        .concat();
        let read = ZiplistElements::new(&ziplist).unwrap().map(|element| element.map(|piece| piece.to_vec()));
        let expected = ["abc", "0", "12", "-128", "300", "8388607", "-2147483648", "hi"];
        assert_eq!(read.collect::<Result<Vec<_>, _>>().unwrap(), expected.map(|text| text.as_bytes().to_vec()));
        let zipmap = b"\x02\x03foo\x03\x00bar\x05hello\x05\x02world..\xff";
        let read = ZipmapElements::new(zipmap).unwrap().map(|element| element.map(|piece| piece.to_vec()));
        let expected = ["foo", "bar", "hello", "world"];
        assert_eq!(read.collect::<Result<Vec<_>, _>>().unwrap(), expected.map(|text| text.as_bytes().to_vec()));
        for cut in 0..zipmap.len() {
            let read = ZipmapElements::new(&zipmap[..cut]).map(|elements| elements.filter(Result::is_err).count());
            assert_ne!(read, Ok(0), "cut at {cut}");
        }
    }
}
