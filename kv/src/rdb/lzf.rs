//! LZF (Lehmann): the compression of strings in files.
//!
//! A stream of runs. A byte `000nnnnn` has the next n + 1 bytes follow as they are; `lllooooo oooooooo` repeats l + 2 bytes from o + 1
//! bytes back, and with l = 7 one more byte between them adds to l. What repeats may overlap what it makes.
//!
//! The compressor takes the same decisions as Valkey's with an empty table, so that the bytes are the same. (Valkey's table
//! is not emptied between strings; in rare cases it finds a repetition that this one does not.)

use super::source::Damage;

/// The longest run of bytes as they are.
const LITERALS_MAX: usize = 32;
/// How far back a repetition may begin, and how long it may be.
const DISTANCE_MAX: usize = 1 << 13;
const REPEAT_MAX: usize = 264;
/// Repetitions are looked for without asking for the end up to this length.
const UNCHECKED_MAX: usize = 16;
/// The shortest repetition.
const REPEAT_MIN: usize = 3;
/// Bytes that can be left when the last repetition was looked for, and a head.
const TAIL_BYTES_MAX: usize = 3;
const SLOTS: usize = 1 << 16;
/// The most bytes that one compressed byte can stand for: three make the longest repetition.
const EXPANSION_MAX: usize = REPEAT_MAX / 3;

/// Finds repetitions.
#[derive(Debug)]
pub(super) struct Compressor {
    /// Where three bytes with this hash were last seen: the place in the present string, plus `base`. Less is of a string before.
    slots: Box<[u32]>,
    base: u32,
}

impl Compressor {
    pub(super) fn new() -> Self {
        Self { slots: vec![0; SLOTS].into_boxed_slice(), base: 1 }
    }

    /// Appends the compressed form if it has at most `len_max` bytes; whether it did. If not, `out` is as before.
    pub(super) fn compress(&mut self, text: &[u8], len_max: usize, out: &mut Vec<u8>) -> bool {
        let Some(text_len) = u32::try_from(text.len()).ok().filter(|_| !text.is_empty() && len_max > 0) else {
            return false;
        };
        if self.base.checked_add(text_len).is_none() {
            *self = Self::new();
        }
        let start = out.len();
        let fits = self.find_runs(text, Runs { start, len_max, literals: 0, out });
        self.base += text_len;
        if !fits {
            out.truncate(start);
        }
        fits
    }

    fn find_runs(&mut self, text: &[u8], mut runs: Runs<'_>) -> bool {
        runs.open();
        let mut at = 0;
        while at + 2 < text.len() {
            let Some(from) = self.exchange(text, at) else {
                if !runs.literal(text[at]) {
                    return false;
                }
                at += 1;
                continue;
            };
            let len = repeat_len(text, from, at);
            if !runs.repeat(at - from - 1, len) {
                return false;
            }
            at += len;
            if at + 2 >= text.len() {
                break;
            }
            // The last two places within the repetition are worth knowing.
            self.exchange(text, at - 2);
            self.exchange(text, at - 1);
        }
        runs.finish(&text[at..])
    }

    /// Notes the three bytes at a place, and tells where the same were seen before, if near enough. Never at the very front.
    fn exchange(&mut self, text: &[u8], at: usize) -> Option<usize> {
        let three: &[u8; 3] = text[at..].first_chunk()?;
        let slot = &mut self.slots[slot_of(*three)];
        let place = self.base + u32::try_from(at).ok()?;
        let from = std::mem::replace(slot, place).checked_sub(self.base)? as usize;
        let is_near = from > 0 && from < at && at - from - 1 < DISTANCE_MAX;
        (is_near && text[from..].starts_with(three)).then_some(from)
    }
}

fn slot_of([one, two, three]: [u8; 3]) -> usize {
    let bits = u32::from_be_bytes([0, one, two, three]);
    ((bits >> 8).wrapping_sub(bits.wrapping_mul(5)) as usize) & (SLOTS - 1)
}

/// How far what follows one place is repeated at another.
fn repeat_len(text: &[u8], from: usize, at: usize) -> usize {
    let left = (text.len() - at - 2).min(REPEAT_MAX);
    let len_max = if left > UNCHECKED_MAX { left.max(UNCHECKED_MAX + REPEAT_MIN) } else { left.max(REPEAT_MIN) };
    let same = text[from..].iter().zip(&text[at..]).take(len_max).skip(REPEAT_MIN);
    REPEAT_MIN + same.take_while(|(one, other)| one == other).count()
}

/// Runs that are written, the last of which may still take bytes.
struct Runs<'a> {
    start: usize,
    len_max: usize,
    /// Bytes of the run that is open; its head is before them.
    literals: usize,
    out: &'a mut Vec<u8>,
}

impl Runs<'_> {
    fn len(&self) -> usize {
        self.out.len() - self.start
    }

    /// Leaves room for the head of a run.
    fn open(&mut self) {
        self.out.push(0);
        self.literals = 0;
    }

    /// Writes the head of the open run, or takes its room back.
    fn close(&mut self) {
        let Some(less) = self.literals.checked_sub(1) else {
            self.out.pop();
            return;
        };
        let head = self.out.len() - self.literals - 1;
        self.out[head] = u8::try_from(less).expect("a run has at most 32 bytes");
    }

    fn push(&mut self, byte: u8) {
        self.out.push(byte);
        self.literals += 1;
        if self.literals == LITERALS_MAX {
            self.close();
            self.open();
        }
    }

    fn literal(&mut self, byte: u8) -> bool {
        let has_room = self.len() < self.len_max;
        if has_room {
            self.push(byte);
        }
        has_room
    }

    fn repeat(&mut self, distance: usize, len: usize) -> bool {
        if self.len() - usize::from(self.literals == 0) + 4 >= self.len_max {
            return false;
        }
        self.close();
        let coded = len - 2;
        let [low, high, ..] = distance.to_le_bytes();
        if let Some(more) = coded.checked_sub(7) {
            let more = u8::try_from(more).expect("a repetition has at most 264 bytes");
            self.out.extend_from_slice(&[7 << 5 | high, more]);
        } else {
            let coded = u8::try_from(coded).expect("below seven");
            self.out.push(coded << 5 | high);
        }
        self.out.push(low);
        self.open();
        true
    }

    fn finish(&mut self, rest: &[u8]) -> bool {
        if self.len() + TAIL_BYTES_MAX > self.len_max {
            return false;
        }
        rest.iter().for_each(|byte| self.push(*byte));
        self.close();
        true
    }
}

/// Appends what `bytes` stand for, which must be exactly `len` bytes. No more memory is taken than they can stand for.
pub(super) fn decompress(bytes: &[u8], len: usize, out: &mut Vec<u8>) -> Result<(), Damage> {
    if len > bytes.len().saturating_mul(EXPANSION_MAX) {
        return Err(Damage::Compression);
    }
    out.reserve_exact(len);
    let start = out.len();
    let mut rest = bytes;
    while let Some((head, after)) = rest.split_first() {
        rest = after;
        let coded = usize::from(*head >> 5);
        let has_room = |out: &Vec<u8>, more: usize| out.len() - start + more <= len;
        if coded == 0 {
            let (run, after) = rest.split_at_checked(usize::from(*head) + 1).ok_or(Damage::Compression)?;
            if !has_room(out, run.len()) {
                return Err(Damage::Compression);
            }
            out.extend_from_slice(run);
            rest = after;
            continue;
        }
        let mut next = || {
            let (byte, after) = rest.split_first().ok_or(Damage::Compression)?;
            rest = after;
            Ok::<usize, Damage>(usize::from(*byte))
        };
        let repeat = coded + 2 + if coded == 7 { next()? } else { 0 };
        let distance = (usize::from(*head & 0x1f) << 8 | next()?) + 1;
        let from = (out.len() - start).checked_sub(distance).ok_or(Damage::Compression)? + start;
        if !has_room(out, repeat) {
            return Err(Damage::Compression);
        }
        if distance >= repeat {
            out.extend_from_within(from..from + repeat);
        } else {
            for at in from..from + repeat {
                out.push(out[at]);
            }
        }
    }
    if out.len() - start == len { Ok(()) } else { Err(Damage::Compression) }
}
