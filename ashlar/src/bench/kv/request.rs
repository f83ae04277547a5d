//! Requests of a load: written once with gaps, filled in for each use without an allocation.
//!
//! A command is given as words. `__key__` becomes `key:` and twelve digits, `__number__` twelve digits, `__data__` the value.
//! What fills the gaps has always the same length, so a request is a copy of bytes and a few digits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::bench::load::Dice;

/// Digits of a number in a request.
const DIGITS: usize = 12;
/// What stands before a key's digits.
pub const KEY_PREFIX: &str = "key:";

/// Which key is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Any, each as likely.
    Random,
    /// One after the other, over all connections of all threads to the same server.
    Sequential,
}

/// The numbers of the keys that one server is loaded with.
#[derive(Debug, Clone)]
pub enum Keys {
    /// All below this one.
    Below(usize),
    /// These.
    Listed(Arc<[u32]>),
}

impl Keys {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        match self {
            Self::Below(count) => *count,
            Self::Listed(list) => list.len(),
        }
    }

    /// Number `at` of them; `at` is below their count.
    #[inline]
    #[must_use]
    pub fn at(&self, at: usize) -> usize {
        match self {
            Self::Below(_) => at,
            Self::Listed(list) => list[at] as usize,
        }
    }
}

/// Chooses keys and numbers for one thread's connections to one server.
#[derive(Debug)]
pub struct Chooser {
    keys: Keys,
    /// How many keys there are, on all servers.
    numbers: usize,
    order: Order,
    /// The server's next key in sequence, for all threads.
    next: Arc<AtomicUsize>,
    dice: Dice,
}

impl Chooser {
    /// A chooser of `keys`, one at least, and of numbers below `numbers`; each has a `seed` of its own. `next` is the next key in
    /// sequence: choosers that share it go through all keys together.
    #[must_use]
    pub fn new(keys: Keys, numbers: usize, order: Order, seed: usize, next: Arc<AtomicUsize>) -> Self {
        Self { keys, numbers, order, next, dice: Dice::new(seed as u64) }
    }

    #[inline]
    fn key(&mut self) -> usize {
        let count = self.keys.count();
        let at = match self.order {
            Order::Random => self.dice.below(count),
            Order::Sequential => self.next.fetch_add(1, Ordering::Relaxed) % count,
        };
        self.keys.at(at)
    }

    #[inline]
    fn number(&mut self) -> usize {
        self.dice.below(self.numbers)
    }

    /// Whether something that happens `percent` times of a hundred happens now.
    #[inline]
    pub fn is_one_of(&mut self, percent: u8) -> bool {
        self.dice.below(100) < usize::from(percent)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fill {
    Key,
    Number,
}

/// One request with its gaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    bytes: Vec<u8>,
    gaps: Vec<(usize, Fill)>,
}

impl Template {
    /// Of a command's words; `value` is what `__data__` stands for.
    #[must_use]
    pub fn new(words: &[&str], value: &[u8]) -> Self {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        let mut gaps = Vec::new();
        for word in words {
            let (text, places) = fill(word, value);
            bytes.extend_from_slice(format!("${}\r\n", text.len()).as_bytes());
            gaps.extend(places.into_iter().map(|(at, fill)| (at + bytes.len(), fill)));
            bytes.extend_from_slice(&text);
            bytes.extend_from_slice(b"\r\n");
        }
        Self { bytes, gaps }
    }

    /// Appends the request to `out`, its gaps filled by `chooser`.
    #[inline]
    pub fn append(&self, chooser: &mut Chooser, out: &mut Vec<u8>) {
        let from = out.len();
        out.extend_from_slice(&self.bytes);
        for &(at, fill) in &self.gaps {
            let number = if fill == Fill::Key { chooser.key() } else { chooser.number() };
            write_digits(number, &mut out[from + at..from + at + DIGITS]);
        }
    }
}

/// A key as `__key__` writes it.
#[must_use]
pub fn key(number: u32) -> String {
    format!("{KEY_PREFIX}{number:0DIGITS$}")
}

/// A request of these words as they are.
#[must_use]
pub fn plain(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len());
    words.iter().for_each(|word| bytes.push_str(&format!("${}\r\n{word}\r\n", word.len())));
    bytes.into_bytes()
}

/// The word with zeroes in its gaps, and where they are.
fn fill(word: &str, value: &[u8]) -> (Vec<u8>, Vec<(usize, Fill)>) {
    let (mut text, mut gaps, mut rest) = (Vec::new(), Vec::new(), word);
    while let Some(at) = rest.find("__") {
        text.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("__data__") {
            text.extend_from_slice(value);
            rest = after;
        } else if let Some(after) = rest.strip_prefix("__key__") {
            text.extend_from_slice(KEY_PREFIX.as_bytes());
            gaps.push((text.len(), Fill::Key));
            text.extend_from_slice(&[b'0'; DIGITS]);
            rest = after;
        } else if let Some(after) = rest.strip_prefix("__number__") {
            gaps.push((text.len(), Fill::Number));
            text.extend_from_slice(&[b'0'; DIGITS]);
            rest = after;
        } else {
            text.push(b'_');
            rest = &rest[1..];
        }
    }
    text.extend_from_slice(rest.as_bytes());
    (text, gaps)
}

#[inline]
fn write_digits(mut number: usize, place: &mut [u8]) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(words: &[&str], chooser: &mut Chooser) -> String {
        let mut out = b"before|".to_vec();
        Template::new(words, b"vvv").append(chooser, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn gaps_are_filled_where_they_are() {
        let mut chooser = Chooser::new(Keys::Below(1_000), 1_000, Order::Sequential, 1, Arc::new(AtomicUsize::new(1)));
        assert_eq!(
            text(&["SET", "__key__", "__data__"], &mut chooser),
            "before|*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000001\r\n$3\r\nvvv\r\n"
        );
        assert_eq!(
            text(&["MGET", "__key__", "{__key__}x", "___", "a__b"], &mut chooser),
            "before|*5\r\n$4\r\nMGET\r\n$16\r\nkey:000000000002\r\n$19\r\n{key:000000000003}x\r\n$3\r\n___\r\n$4\r\na__b\r\n"
        );
        let numbered = text(&["LPUSH", "l", "n__number__"], &mut chooser);
        let number = numbered.split("$13\r\nn").nth(1).and_then(|rest| rest.get(..12)).unwrap();
        assert!(number.parse::<usize>().is_ok_and(|number| number < 1_000), "{numbered}");
    }

    #[test]
    fn plain_words_have_no_gaps() {
        assert_eq!(plain(&["AUTH", "__key__"]), b"*2\r\n$4\r\nAUTH\r\n$7\r\n__key__\r\n");
    }

    #[test]
    fn threads_in_sequence_meet_every_key_once() {
        let mut seen = [0; 10];
        let next = Arc::new(AtomicUsize::new(0));
        for (thread, taken) in [3, 7].into_iter().enumerate() {
            let mut chooser = Chooser::new(Keys::Below(10), 10, Order::Sequential, thread + 1, Arc::clone(&next));
            (0..taken).for_each(|_| seen[chooser.key()] += 1);
        }
        assert_eq!(seen, [1; 10]);
        let mut random = Chooser::new(Keys::Below(10), 10, Order::Random, 1, Arc::default());
        (0..1_000).for_each(|_| seen[random.key()] += 1);
        assert!(seen.iter().all(|&count| count > 50), "{seen:?}");
    }

    #[test]
    fn each_server_has_a_sequence_of_its_own() {
        let lists = [Keys::Listed([1, 4, 5].into()), Keys::Listed([0, 2].into())];
        let next: [Arc<AtomicUsize>; 2] = Default::default();
        let chooser =
            |server: usize| Chooser::new(lists[server].clone(), 6, Order::Sequential, 1, Arc::clone(&next[server]));
        let mut choosers = [chooser(0), chooser(1), chooser(0)];
        let keys: Vec<usize> = [0, 1, 2, 1, 0, 1, 2].map(|at| choosers[at].key()).into();
        assert_eq!(keys, [1, 0, 4, 2, 5, 0, 1]);
        let mut random = Chooser::new(lists[0].clone(), 6, Order::Random, 1, Arc::default());
        assert!((0..100).all(|_| [1, 4, 5].contains(&random.key())));
        assert!((0..100).map(|_| random.number()).any(|number| number == 0), "numbers are not only those of its keys");
    }

    #[test]
    fn percents() {
        let mut chooser = Chooser::new(Keys::Below(10), 10, Order::Random, 1, Arc::default());
        let happened = (0..10_000).filter(|_| chooser.is_one_of(80)).count();
        assert!((7_700..8_300).contains(&happened), "{happened}");
        assert!((0..1_000).all(|_| chooser.is_one_of(100)) && !(0..1_000).any(|_| chooser.is_one_of(0)));
    }
}
