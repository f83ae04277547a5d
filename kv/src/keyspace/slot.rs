//! Which slot a key belongs to, as every cluster client computes it.

use std::sync::LazyLock;

/// Slots of a cluster.
pub const SLOTS: u16 = 16_384;

/// One of the [`SLOTS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u16);

impl Slot {
    /// The slot with this number, if there is one.
    #[must_use]
    pub const fn new(number: u16) -> Option<Self> {
        if number < SLOTS { Some(Self(number)) } else { None }
    }

    /// The slot of a key: CRC16 (XMODEM) of what stands between the first `{` and the next `}`, if that is anything, else of
    /// the whole key.
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        Self(crc16(hash_tag(key).unwrap_or(key)) % SLOTS)
    }

    /// The shortest name of letters and digits that lies in it, and of those the first, with digits before small letters before great
    /// ones. Put into braces it leads whatever has it to the slot.
    #[must_use]
    pub fn tag(self) -> &'static str {
        static TAGS: LazyLock<Box<[String]>> = LazyLock::new(tags);
        &TAGS[self.index()]
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }

    /// As a place in a table of all slots.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What keys that must share a slot have in common.
fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|byte| *byte == b'{')?;
    let rest = &key[open + 1..];
    let close = rest.iter().position(|byte| *byte == b'}')?;
    (close > 0).then(|| &rest[..close])
}

/// The tag of every slot.
fn tags() -> Box<[String]> {
    let letters = || (b'0'..=b'9').chain(b'a'..=b'z').chain(b'A'..=b'Z').map(char::from);
    let mut tags = vec![String::new(); usize::from(SLOTS)].into_boxed_slice();
    let mut names = vec![String::new()];
    for _ in 0..TAG_LETTERS {
        let longer = names.iter().flat_map(|name| letters().map(move |letter| format!("{name}{letter}")));
        names = longer.collect();
        for name in &names {
            let tag = &mut tags[Slot::of(name.as_bytes()).index()];
            if tag.is_empty() {
                tag.clone_from(name);
            }
        }
    }
    tags
}

/// Letters of the longest tag.
const TAG_LETTERS: usize = 3;
const POLYNOMIAL: u16 = 0x1021;

/// `TABLES[n][b]`: the remainder of byte `b` with `n` zero bytes behind it.
static TABLES: [[u16; 256]; 8] = tables();

const fn tables() -> [[u16; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut rest = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            rest = if rest & 0x8000 == 0 { rest << 1 } else { rest << 1 ^ POLYNOMIAL };
            bit += 1;
        }
        tables[0][byte] = rest;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        byte = 0;
        while byte < 256 {
            let before: u16 = tables[table - 1][byte];
            tables[table][byte] = before << 8 ^ tables[0][(before >> 8) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// CRC-16/XMODEM, eight bytes a step.
fn crc16(bytes: &[u8]) -> u16 {
    let mut crc = 0_u16;
    let mut eights = bytes.chunks_exact(8);
    for eight in &mut eights {
        let [high, low] = crc.to_be_bytes();
        crc = TABLES[7][usize::from(eight[0] ^ high)]
            ^ TABLES[6][usize::from(eight[1] ^ low)]
            ^ TABLES[5][usize::from(eight[2])]
            ^ TABLES[4][usize::from(eight[3])]
            ^ TABLES[3][usize::from(eight[4])]
            ^ TABLES[2][usize::from(eight[5])]
            ^ TABLES[1][usize::from(eight[6])]
            ^ TABLES[0][usize::from(eight[7])];
    }
    for byte in eights.remainder() {
        let [high, _] = crc.to_be_bytes();
        crc = crc << 8 ^ TABLES[0][usize::from(high ^ byte)];
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_code_and_known_slots() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        for (key, slot) in [("foo", 12_182), ("bar", 5_061), ("", 0), ("somekey", 11_058), ("foo{hash_tag}", 2_515)] {
            assert_eq!(Slot::of(key.as_bytes()).number(), slot, "{key}");
        }
    }

    #[test]
    fn eight_bytes_a_step_is_the_same_as_one() {
        let bytes: Vec<u8> = (0..300_u32).map(|at| ((at * 151) >> 2) as u8).collect();
        for len in 0..bytes.len() {
            let one = bytes[..len].iter().fold(0_u16, |mut crc, byte| {
                crc ^= u16::from(*byte) << 8;
                (0..8).for_each(|_| crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ POLYNOMIAL });
                crc
            });
            assert_eq!(crc16(&bytes[..len]), one, "{len}");
        }
    }

    #[test]
    fn every_slot_has_a_tag() {
        for number in 0..SLOTS {
            let slot = Slot::new(number).unwrap();
            assert_eq!(Slot::of(format!("a{{{}}}b", slot.tag()).as_bytes()), slot);
        }
        for (number, tag) in
            [(0, "06S"), (1, "Qi"), (25, "4L"), (51, "6od"), (80, "avs"), (100, "0or"), (16_383, "6ZJ")]
        {
            assert_eq!(Slot::new(number).unwrap().tag(), tag);
        }
    }

    #[test]
    fn only_a_tag_with_something_in_it_counts() {
        let same = [("{user1000}.following", "user1000"), ("foo{bar}{zap}", "bar"), ("foo{{bar}}zap", "{bar")];
        for (key, tag) in same {
            assert_eq!(Slot::of(key.as_bytes()), Slot::of(tag.as_bytes()));
        }
        for whole in ["foo{}{bar}", "foo{bar", "foo}bar{", "{}"] {
            assert_eq!(Slot::of(whole.as_bytes()).number(), crc16(whole.as_bytes()) % SLOTS, "{whole}");
        }
    }
}
