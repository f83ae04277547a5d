//! Sketches that estimate how many different elements they have seen (HyperLogLog), in the strings that Valkey keeps them in.
//!
//! A sketch is 16,384 registers of six bits. An element's hash chooses a register, which keeps the longest run of zeros (and the
//! one behind it) seen in the rest of the hash. The string is a head of 16 bytes (`HYLL`, the encoding, three unused bytes, the
//! last estimate in little endian, whose highest bit says that it no longer holds) and the registers. Densely they are packed
//! from the lowest bit of each byte on. Sparsely they are runs: `00llllll` is up to 64 registers of zero, `01llllll llllllll` up
//! to 16,384, and `1vvvvvll` up to four of the value 1 to 32; lengths and values are less by one.
//!
//! The estimate is that of Ertl, "New cardinality estimation algorithms for HyperLogLog sketches" (2017), as in Redis 4, and
//! the hash `MurmurHash64A`. Runs are cut and joined exactly as Valkey does, so that the strings are the same to the byte.

/// Registers of a sketch.
pub const REGISTERS: usize = 1 << INDEX_BITS;
/// The most bytes of a sparse sketch, its head included: the default of `hll-sparse-max-bytes`.
pub const SPARSE_BYTES_MAX: usize = 3_000;

const INDEX_BITS: u32 = 14;
/// Bits of the hash that runs of zeros are looked for in.
const RUN_BITS: u32 = 64 - INDEX_BITS;
const HEAD_BYTES: usize = 16;
const DENSE_BYTES: usize = HEAD_BYTES + REGISTERS * 6 / 8;
const MAGIC: &[u8] = b"HYLL";
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
const SEED: u64 = 0xadc8_3b19;
/// 1 / (2 ln 2).
const ALPHA: f64 = 0.721_347_520_444_481_7;

const SPARSE_VALUE_MAX: u8 = 32;
const SHORT_ZEROS_MAX: usize = 64;
const VALUES_MAX: usize = 4;
/// Runs looked at for joining, from the one before the change on.
const JOINED_MAX: usize = 5;

/// A string that is no sketch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotSketch;

/// A sketch whose runs do not add up to its registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Corrupted;

/// A sketch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sketch {
    /// The head is valid; a dense one has its length.
    bytes: Vec<u8>,
    /// The most bytes that it has while it is sparse.
    sparse_bytes_max: usize,
}

/// A run of equal registers in a sparse sketch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Their value.
    pub value: u8,
    /// How many there are.
    pub len: usize,
    /// Bytes that say so: two only for zeros.
    pub bytes: usize,
}

impl Run {
    fn read(bytes: &[u8]) -> Option<Self> {
        match *bytes {
            [first, ..] if first & 0x80 != 0 => {
                Some(Self { value: (first >> 2 & 0x1f) + 1, len: usize::from(first & 3) + 1, bytes: 1 })
            }
            [first, second, ..] if first & 0x40 != 0 => {
                let len = usize::from(u16::from_be_bytes([first & 0x3f, second])) + 1;
                Some(Self { value: 0, len, bytes: 2 })
            }
            [first, ..] if first & 0xc0 == 0 => Some(Self { value: 0, len: usize::from(first) + 1, bytes: 1 }),
            _ => None,
        }
    }

    /// Writes so many registers of a value; nothing if there are none.
    fn write(value: u8, len: usize, out: &mut Vec<u8>) {
        let Some(less) = len.checked_sub(1) else { return };
        let [high, low] = u16::try_from(less).expect("there are 2^14 registers").to_be_bytes();
        match value {
            0 if len <= SHORT_ZEROS_MAX => out.push(low),
            0 => out.extend_from_slice(&[0x40 | high, low]),
            _ => out.push(0x80 | (value - 1) << 2 | low),
        }
    }
}

impl Default for Sketch {
    fn default() -> Self {
        Self::new()
    }
}

impl Sketch {
    /// A sketch that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        let mut bytes = MAGIC.to_vec();
        bytes.push(SPARSE);
        bytes.resize(HEAD_BYTES, 0);
        Run::write(0, REGISTERS, &mut bytes);
        Self { bytes, sparse_bytes_max: SPARSE_BYTES_MAX }
    }

    /// The sketch in a string.
    ///
    /// # Errors
    /// There is none.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NotSketch> {
        let is_sketch = bytes.len() >= HEAD_BYTES
            && bytes.starts_with(MAGIC)
            && bytes[MAGIC.len()] <= SPARSE
            && (bytes[MAGIC.len()] == SPARSE || bytes.len() == DENSE_BYTES);
        let sketch = || Self { bytes: bytes.to_vec(), sparse_bytes_max: SPARSE_BYTES_MAX };
        if is_sketch { Ok(sketch()) } else { Err(NotSketch) }
    }

    /// Says at how many bytes it becomes dense, its head included (`hll-sparse-max-bytes`).
    pub const fn limit_sparse(&mut self, bytes_max: usize) {
        self.sparse_bytes_max = bytes_max;
    }

    /// The string.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether its registers are packed, and not written as runs.
    #[must_use]
    pub fn is_dense(&self) -> bool {
        self.bytes[MAGIC.len()] == DENSE
    }

    /// Lets it see an element; whether that changed a register.
    ///
    /// # Errors
    /// Its runs are corrupted.
    pub fn add(&mut self, element: &[u8]) -> Result<bool, Corrupted> {
        let (index, value) = register_of(element);
        self.raise(index, value)
    }

    /// The estimate that it keeps, if it still holds.
    #[must_use]
    pub fn kept_count(&self) -> Option<u64> {
        let kept = u64::from_le_bytes(self.bytes[8..HEAD_BYTES].try_into().expect("eight bytes"));
        (kept >> 63 == 0).then_some(kept)
    }

    /// Keeps an estimate.
    pub fn keep_count(&mut self, count: u64) {
        self.bytes[8..HEAD_BYTES].copy_from_slice(&count.to_le_bytes());
    }

    /// The estimate that it keeps does not hold any more.
    pub fn forget_count(&mut self) {
        self.bytes[HEAD_BYTES - 1] |= 0x80;
    }

    /// Estimates how many different elements it has seen.
    ///
    /// # Errors
    /// Its runs are corrupted.
    pub fn count(&self) -> Result<u64, Corrupted> {
        let mut registers = [0; REGISTERS];
        self.merge_into(&mut registers)?;
        Ok(estimate(&registers))
    }

    /// Raises each register to what it is here.
    ///
    /// # Errors
    /// Its runs are corrupted.
    pub fn merge_into(&self, registers: &mut [u8; REGISTERS]) -> Result<(), Corrupted> {
        if self.is_dense() {
            for (index, register) in registers.iter_mut().enumerate() {
                *register = (*register).max(self.register(index));
            }
            return Ok(());
        }
        let mut at = 0;
        for run in self.runs() {
            let run = run?;
            let end = at + run.len;
            let covered = registers.get_mut(at..end).ok_or(Corrupted)?;
            if run.value > 0 {
                covered.iter_mut().for_each(|register| *register = (*register).max(run.value));
            }
            at = end;
        }
        if at == REGISTERS { Ok(()) } else { Err(Corrupted) }
    }

    /// The runs of a sparse sketch.
    pub fn runs(&self) -> impl Iterator<Item = Result<Run, Corrupted>> + '_ {
        let mut rest = &self.bytes[HEAD_BYTES..];
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let run = Run::read(rest).ok_or(Corrupted);
            rest = run.map_or(&[], |run| &rest[run.bytes..]);
            Some(run)
        })
    }

    /// Packs the registers. Says whether they were not.
    ///
    /// # Errors
    /// Its runs are corrupted.
    pub fn become_dense(&mut self) -> Result<bool, Corrupted> {
        if self.is_dense() {
            return Ok(false);
        }
        let mut registers = [0; REGISTERS];
        self.merge_into(&mut registers)?;
        self.bytes.truncate(HEAD_BYTES);
        self.bytes[MAGIC.len()] = DENSE;
        self.bytes.resize(DENSE_BYTES, 0);
        for (index, value) in registers.into_iter().enumerate().filter(|(_, value)| *value > 0) {
            self.set_register(index, value);
        }
        Ok(true)
    }

    /// A register of a dense sketch.
    fn register(&self, index: usize) -> u8 {
        let (at, shift) = (HEAD_BYTES + index * 6 / 8, index * 6 % 8);
        let second = self.bytes.get(at + 1).copied().unwrap_or(0);
        (u16::from_le_bytes([self.bytes[at], second]) >> shift & 0x3f).to_le_bytes()[0]
    }

    fn set_register(&mut self, index: usize, value: u8) {
        let (at, shift) = (HEAD_BYTES + index * 6 / 8, index * 6 % 8);
        let second = self.bytes.get(at + 1).copied().unwrap_or(0);
        let both = u16::from_le_bytes([self.bytes[at], second]) & !(0x3f << shift) | u16::from(value) << shift;
        let [low, high] = both.to_le_bytes();
        self.bytes[at] = low;
        if let Some(second) = self.bytes.get_mut(at + 1) {
            *second = high;
        }
    }

    /// Raises a register; whether it was lower.
    ///
    /// # Errors
    /// Its runs are corrupted.
    pub fn raise(&mut self, index: usize, value: u8) -> Result<bool, Corrupted> {
        if !self.is_dense() {
            return self.raise_sparse(index, value);
        }
        let is_lower = self.register(index) < value;
        if is_lower {
            self.set_register(index, value);
        }
        Ok(is_lower)
    }

    fn raise_sparse(&mut self, index: usize, value: u8) -> Result<bool, Corrupted> {
        if value > SPARSE_VALUE_MAX {
            self.become_dense()?;
            return self.raise(index, value);
        }
        let (mut before, mut at, mut first) = (None, HEAD_BYTES, 0);
        let run = loop {
            let run = Run::read(&self.bytes[at..]).ok_or(Corrupted)?;
            if index < first + run.len {
                break run;
            }
            before = Some(at);
            at += run.bytes;
            first += run.len;
        };
        if run.value >= value {
            return Ok(false);
        }
        let mut cut = Vec::with_capacity(5);
        Run::write(run.value, index - first, &mut cut);
        Run::write(value, 1, &mut cut);
        Run::write(run.value, first + run.len - index - 1, &mut cut);
        if cut.len() > run.bytes && self.bytes.len() + cut.len() - run.bytes > self.sparse_bytes_max {
            self.become_dense()?;
            return self.raise(index, value);
        }
        self.bytes.splice(at..at + run.bytes, cut);
        self.join_runs(before.unwrap_or(HEAD_BYTES));
        self.forget_count();
        Ok(true)
    }

    /// Joins runs of the same value from a place on, as far as Valkey does.
    fn join_runs(&mut self, from: usize) {
        let mut at = from;
        for _ in 0..JOINED_MAX {
            let Some(run) = Run::read(&self.bytes[at..]) else { return };
            let next = Run::read(&self.bytes[at + run.bytes..]);
            match next {
                Some(next) if run.value > 0 && run.value == next.value && run.len + next.len <= VALUES_MAX => {
                    let mut joined = Vec::with_capacity(1);
                    Run::write(run.value, run.len + next.len, &mut joined);
                    self.bytes.splice(at..at + 2, joined);
                }
                _ => at += run.bytes,
            }
        }
    }
}

/// The register of an element, and what it is raised to.
fn register_of(element: &[u8]) -> (usize, u8) {
    let hash = murmur(element);
    let index = usize::try_from(hash % (1 << INDEX_BITS)).expect("14 bits");
    // The bit above the others ends the longest run.
    let zeros = (hash >> INDEX_BITS | 1 << RUN_BITS).trailing_zeros();
    (index, u8::try_from(zeros + 1).expect("at most 51"))
}

/// `MurmurHash64A` (Appleby), which the format is bound to.
fn murmur(bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
    let mix = |word: u64| (word ^ word >> 47).wrapping_mul(FACTOR);
    let len = u64::try_from(bytes.len()).expect("lengths have 64 bits");
    let mut hash = SEED ^ len.wrapping_mul(FACTOR);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        hash = (hash ^ mix(u64::from_le_bytes(*word).wrapping_mul(FACTOR))).wrapping_mul(FACTOR);
    }
    if !rest.is_empty() {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(FACTOR);
    }
    let hash = mix(hash);
    hash ^ hash >> 47
}

/// How many different elements registers like these have most likely seen.
#[must_use]
pub fn estimate(registers: &[u8; REGISTERS]) -> u64 {
    const TOP: usize = RUN_BITS as usize + 1;
    let mut counts = [0_u32; 64];
    registers.iter().for_each(|value| counts[usize::from(value & 0x3f)] += 1);
    let all = 16_384.0;
    let mut sum = all * tau((all - f64::from(counts[TOP])) / all);
    for count in counts[1..TOP].iter().rev() {
        sum = (sum + f64::from(*count)) * 0.5;
    }
    sum += all * sigma(f64::from(counts[0]) / all);
    let estimate = (ALPHA * all * all / sum).round();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is a whole number from zero on, and far below 2^64 but for registers that no elements make"
    )]
    let estimate = estimate as u64;
    estimate
}

/// The share of registers that are zero, in the estimate: Ertl's sigma.
fn sigma(share: f64) -> f64 {
    if share >= 1.0 {
        return f64::INFINITY;
    }
    let (mut power, mut factor, mut sum) = (share, 1.0, share);
    loop {
        power *= power;
        let before = sum;
        sum += power * factor;
        factor += factor;
        if is_same(before, sum) {
            return sum;
        }
    }
}

/// The share of registers that are not full, in the estimate: Ertl's tau.
fn tau(share: f64) -> f64 {
    if share <= 0.0 || share >= 1.0 {
        return 0.0;
    }
    let (mut root, mut factor, mut sum) = (share, 1.0, 1.0 - share);
    loop {
        root = root.sqrt();
        let before = sum;
        factor *= 0.5;
        sum -= (1.0 - root) * (1.0 - root) * factor;
        if is_same(before, sum) {
            return sum / 3.0;
        }
    }
}

/// Whether a sum no longer changes.
fn is_same(left: f64, right: f64) -> bool {
    left.to_bits() == right.to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::draws::Draws;

    #[test]
    fn sparse_and_dense_agree() {
        let (mut sparse, mut dense) = (Sketch::new(), Sketch::new());
        dense.become_dense().unwrap();
        for number in 0..5_000_u32 {
            let element = number.to_le_bytes();
            assert_eq!(sparse.add(&element).unwrap(), dense.add(&element).unwrap());
            if number % 500 == 7 {
                assert_eq!(sparse.count(), dense.count());
                let far = sparse.count().unwrap().abs_diff(u64::from(number) + 1);
                assert!(far <= u64::from(number) / 20 + 1, "{number} is {far} off");
            }
        }
        assert!(sparse.is_dense(), "5,000 elements do not fit 3,000 bytes");
    }

    #[test]
    fn registers_do_not_disturb_each_other() {
        let mut draws = Draws(1);
        let mut sketch = Sketch::new();
        sketch.become_dense().unwrap();
        let values: Vec<u8> = (0..REGISTERS).map(|_| draws.byte() & 0x3f).collect();
        for (index, value) in values.iter().enumerate().rev() {
            sketch.set_register(index, *value);
        }
        assert!((0..REGISTERS).all(|index| sketch.register(index) == values[index]));
    }

    #[test]
    fn what_is_no_sketch_is_refused() {
        let good = Sketch::new();
        assert_eq!(Sketch::from_bytes(good.as_bytes()), Ok(good.clone()));
        for cut in 0..HEAD_BYTES {
            assert_eq!(Sketch::from_bytes(&good.as_bytes()[..cut]), Err(NotSketch));
        }
        let mut other = good.as_bytes().to_vec();
        other[4] = DENSE;
        assert_eq!(Sketch::from_bytes(&other), Err(NotSketch));
        let short = Sketch::from_bytes(&good.as_bytes()[..HEAD_BYTES + 1]).unwrap();
        assert_eq!(short.count(), Err(Corrupted));
        assert_eq!(short.clone().add(b"x"), Err(Corrupted));
    }
}
