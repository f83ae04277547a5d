//! Looking ahead in what a connection has sent: the memory that the next requests need is asked for together.
//!
//! Of a store that is larger than the processor's caches, every key costs two or three reads of memory, each of which leads to
//! the next, and a processor that runs one request after another waits for all of them. A batch says in advance which keys it is
//! about. So before its requests are run, a few at a time, their keys are found, and for all of them together first the indexes
//! are brought near, then the entries, then the records. Of requests in a row for one large collection the same is done with its
//! members. Of a request that comes alone only the record is, all of its lines together, while it
//! is looked whether the request may run.
//!
//! What is found is a guess, and only costs time where it is wrong: nothing is remembered, and the requests are read again when they
//! are run. A guess takes the first word after the command for a key and the next for a member, but for one of a sorted set that has a
//! score before it; it stops at what is not an array of bulk strings, and skips
//! shards that somebody holds.

use crate::engine::Engine;
use crate::keyspace::Key;

/// Has bytes brought near: where they begin, and how many. It neither waits nor reads; any address may be given.
pub type Fetch = fn(*const u8, usize);

/// Requests that are looked at together: so many that their reads overlap, and so few that all stay in the nearest cache.
pub(crate) const REQUESTS_MAX: usize = 16;
/// A request of more words is not looked at: one that comes in many pieces would be read again from its beginning with each.
const WORDS_MAX: usize = 64;
/// A longer word is no key that a hint pays for.
const KEY_BYTES_MAX: usize = 256;
/// Digits of a length.
const DIGITS_MAX: usize = 9;

/// How far a batch was looked at, and what was found there.
#[derive(Debug, Default)]
pub(crate) struct Ahead<'b> {
    /// Bytes from the beginning of the batch.
    until: usize,
    /// What seem to be the keys of the requests that were looked at last.
    keys: [Option<Key<'b>>; REQUESTS_MAX],
    /// How many of those requests have run.
    ran: usize,
}

impl<'b> Ahead<'b> {
    /// The request at `at` of a batch is about to run: brings near what it and those behind it need, unless that was done. Returns
    /// what seems to be its key, hashed.
    #[inline]
    pub(crate) fn handle_request(
        &mut self,
        engine: &Engine,
        database: usize,
        batch: &'b [u8],
        at: usize,
    ) -> Option<Key<'b>> {
        if at >= self.until {
            self.until = at + self.look(engine, database, &batch[at..]);
            self.ran = 0;
        }
        let key = self.keys.get(self.ran).copied().flatten();
        self.ran += 1;
        key
    }

    /// Looks at some requests. Returns how many bytes they are; all if they are none that can be looked at.
    fn look(&mut self, engine: &Engine, database: usize, input: &'b [u8]) -> usize {
        let (mut count, mut at) = (0, 0);
        let mut members = [None; REQUESTS_MAX];
        while count < REQUESTS_MAX && at < input.len() {
            let Some((guess, len)) = next_guess(&input[at..]) else {
                at = input.len();
                break;
            };
            at += len;
            let is_short = |word: &&[u8]| word.len() <= KEY_BYTES_MAX;
            self.keys[count] = guess.key.filter(is_short).map(|key| engine.keyspace.key(key));
            members[count] = guess.member.filter(is_short);
            count += 1;
        }
        self.keys[count..].fill(None);
        if let Some(fetch) = engine.fetch() {
            engine.keyspace.fetch_ahead(database, &self.keys[..count], fetch);
            self.fetch_members(engine, database, &members[..count], fetch);
        }
        at
    }

    /// Brings near what requests in a row for one collection are about in it.
    fn fetch_members(&self, engine: &Engine, database: usize, members: &[Option<&[u8]>], fetch: Fetch) {
        let mut at = 0;
        while at < members.len() {
            let first = self.keys[at];
            let count = self.keys[at..members.len()].iter().take_while(|key| **key == first).count();
            if let Some(key) = first.filter(|_| count > 1) {
                engine.keyspace.fetch_members(database, key, &members[at..at + count], fetch);
            }
            at += count;
        }
    }
}

/// What a request seems to be about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Guess<'a> {
    key: Option<&'a [u8]>,
    /// What is looked for in the collection behind the key, if there is one.
    member: Option<&'a [u8]>,
}

/// What the request that `input` begins with seems to be about, and the request's length. `None` if that is no whole array of bulk
/// strings.
fn next_guess(input: &[u8]) -> Option<(Guess<'_>, usize)> {
    let (words, mut at) = take_number(input, b'*').filter(|(words, _)| *words <= WORDS_MAX)?;
    let (mut guess, mut member_at) = (Guess::default(), 2);
    for word in 0..words {
        let (len, head) = take_number(input.get(at..)?, b'$')?;
        let bytes = input.get(at + head..at + head + len)?;
        match word {
            // ZADD and ZINCRBY have a number before the member.
            0 if words == 4 && matches!(bytes, [b'Z' | b'z', ..]) => member_at = 3,
            1 => guess.key = Some(bytes),
            word if word == member_at => guess.member = Some(bytes),
            _ => {}
        }
        at += head + len + 2;
    }
    (words > 0 && at <= input.len()).then_some((guess, at))
}

/// A line of a letter and a number: the number, and how many bytes the line is.
#[inline]
fn take_number(line: &[u8], kind: u8) -> Option<(usize, usize)> {
    let (first, rest) = line.split_first()?;
    if *first != kind {
        return None;
    }
    let (mut number, mut digits) = (0_usize, 0);
    loop {
        match rest.get(digits)? {
            digit @ b'0'..=b'9' if digits < DIGITS_MAX => {
                number = number * 10 + usize::from(digit - b'0');
                digits += 1;
            }
            b'\r' if digits > 0 => return Some((number, digits + 3)),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests;
