//! Where keys are in a call.

use super::KeyFlags;

/// Where some of the keys of a command are, and what becomes of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeySpec {
    pub(crate) flags: KeyFlags,
    pub(crate) begin: Begin,
    pub(crate) find: Find,
    /// Shown by `COMMAND INFO`; empty for none.
    pub(crate) notes: &'static str,
}

/// Where the search for keys begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begin {
    /// At this word; the command is word 0.
    Index(i8),
    /// After this word, looked for from word `from` on, or backwards from the end if that is negative.
    Keyword { word: &'static str, from: i8 },
    /// Only the command itself can tell.
    Unknown,
}

/// Which words from there on are keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Find {
    /// Every `step`-th word up to `last`, counted from the beginning of the search; negative: from the end of the call. With a
    /// `limit` above 1 and `last` -1 only the first 1/limit of the words that are left.
    Range { last: i8, step: i8, limit: i8 },
    /// The word at `count_at` tells how many there are; they begin at `first`; both counted from the beginning of the search.
    Count { count_at: i8, first: i8, step: i8 },
    /// Only the command itself can tell.
    Unknown,
}

/// How the keys of a call are found where its [`KeySpec`]s cannot tell, or cannot tell what becomes of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Search {
    /// The specifications tell all.
    Specs,
    /// `SORT`: the first word, and the last one after `STORE`.
    Sort,
    /// `SORT_RO`: the first word.
    SortReadOnly,
    /// `MIGRATE`: the third word, or where that is empty all after `KEYS`.
    Migrate,
    /// `SET`: the old value is read only with `GET`.
    Set,
    /// `BITFIELD`: written only where an operation writes.
    BitField,
    /// `GEORADIUS` and its like: the first word, and the last one after `STORE` or `STOREDIST` from word `from` on.
    LastStore { from: u8 },
    /// `XREAD`, `XREADGROUP`: after `STREAMS` from word `from` on; a group or a consumer may be called so too. Always asked
    /// instead of the specifications.
    Streams { from: u8 },
}

impl Search {
    /// Whether it is asked even where the specifications fit the call.
    pub(super) const fn is_always_asked(self) -> bool {
        matches!(self, Self::Streams { .. })
    }
}

/// The key at word `index`.
pub(super) const fn at(index: i8, flags: KeyFlags) -> KeySpec {
    KeySpec { flags, begin: Begin::Index(index), find: Find::Range { last: 0, step: 1, limit: 0 }, notes: "" }
}

/// The key after a word that is looked for from word `from` on.
pub(super) const fn behind(word: &'static str, from: i8, flags: KeyFlags) -> KeySpec {
    KeySpec { begin: Begin::Keyword { word, from }, ..at(0, flags) }
}

/// The keys whose number is given by the word `index`, in front of them.
pub(super) const fn counted(index: i8, flags: KeyFlags) -> KeySpec {
    KeySpec { find: Find::Count { count_at: 0, first: 1, step: 1 }, ..at(index, flags) }
}

/// Keys that only the command itself finds.
pub(super) const fn unknown(flags: KeyFlags) -> KeySpec {
    KeySpec { flags, begin: Begin::Unknown, find: Find::Unknown, notes: "" }
}

impl KeySpec {
    /// And those up to `last`: counted from the first, or from the end if negative.
    pub(super) const fn through(self, last: i8) -> Self {
        self.range(last, 1, 0)
    }

    /// And every `step`-th word from there to the end; or after a count.
    pub(super) const fn step(self, step: i8) -> Self {
        match self.find {
            Find::Count { count_at, first, .. } => Self { find: Find::Count { count_at, first, step }, ..self },
            _ => self.range(-1, step, 0),
        }
    }

    /// And those in the first half of what is left.
    pub(super) const fn half(self) -> Self {
        self.range(-1, 1, 2)
    }

    /// Says why.
    pub(super) const fn notes(self, notes: &'static str) -> Self {
        Self { notes, ..self }
    }

    const fn range(self, last: i8, step: i8, limit: i8) -> Self {
        Self { find: Find::Range { last, step, limit }, ..self }
    }
}

/// Where keys are, as clients of old times read it: one range, and whether that is all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LegacyRange {
    /// The first key's word; 0 where there is no range.
    pub(crate) first: i8,
    /// The last key's word, from the end if negative.
    pub(crate) last: i8,
    pub(crate) step: i8,
    /// There are keys that the range does not show.
    pub(crate) movable: bool,
}

impl LegacyRange {
    /// What the specifications come to. One range is taken as it is; of several, those that are plain (step 1) and follow one
    /// another are joined.
    pub(crate) fn of(specs: &[KeySpec]) -> Self {
        let none = Self { first: 0, last: 0, step: 0, movable: !specs.is_empty() };
        if let [KeySpec { flags, begin: Begin::Index(first), find: Find::Range { last, step, .. }, .. }] = *specs {
            let last = if last < 0 { last } else { first + last };
            return Self { first, last, step, movable: flags.has(KeyFlags::INCOMPLETE) };
        }
        let mut joined = Self { movable: false, ..none };
        for spec in specs {
            let (Begin::Index(first), Find::Range { last, step: 1, .. }) = (spec.begin, spec.find) else {
                joined.movable = true;
                continue;
            };
            if joined.step != 0 && joined.last != first - 1 {
                joined.movable = true;
                continue;
            }
            joined.movable |= spec.flags.has(KeyFlags::INCOMPLETE);
            joined.first = if joined.step == 0 { first } else { joined.first.min(first) };
            joined.last = if last < 0 { last } else { first + last };
            joined.step = 1;
        }
        if joined.step == 0 { none } else { joined }
    }
}

#[cfg(test)]
mod tests {
    use super::super::flags::access;
    use super::*;

    #[test]
    fn legacy_ranges() {
        const RO: KeyFlags = access![RO];
        let cases = [
            ([].as_slice(), (0, 0, 0, false)),
            (&[at(1, RO).step(2)], (1, -1, 2, false)),
            (&[at(1, access![RO | INCOMPLETE])], (1, 1, 1, true)),
            (&[at(1, RO), at(2, RO).through(-1)], (1, -1, 1, false)),
            (&[at(1, RO), at(3, RO)], (1, 1, 1, true)),
            (&[at(1, RO).through(-2), at(3, RO)], (1, -2, 1, true)),
            (&[at(1, RO).step(2), at(2, RO)], (2, 2, 1, true)),
            (&[counted(1, RO)], (0, 0, 0, true)),
            (&[at(2, RO), behind("STORE", 3, RO), unknown(RO)], (2, 2, 1, true)),
        ];
        for (specs, expected) in cases {
            let LegacyRange { first, last, step, movable } = LegacyRange::of(specs);
            assert_eq!((first, last, step, movable), expected, "{specs:?}");
        }
    }
}
