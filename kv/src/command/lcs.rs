//! LCS: the longest common subsequence of two strings.
//!
//! The length for every two beginnings of the strings is kept in a table, and the subsequence is read off it from the end on, by
//! the way that Valkey takes where several are equally long: clients see the places.

use super::call::{Call, Run};
use crate::error::Error;
use crate::keyspace::Key;

pub(super) const RUNS: &[(&str, Run)] = &[("lcs", lcs)];

/// What LCS replies.
#[derive(Debug, Clone, Copy, Default)]
struct Options {
    /// The length alone.
    len: bool,
    /// Where it is in both strings.
    places: bool,
    with_len: bool,
    /// The shortest run that is shown.
    run_min: usize,
}

impl Options {
    fn read(call: &Call<'_, '_>) -> Result<Self, Error> {
        let mut options = Self::default();
        let mut at = 3;
        while at < call.args.len() {
            let is = |word| call.args.is(at, word);
            match () {
                () if is("IDX") => options.places = true,
                () if is("LEN") => options.len = true,
                () if is("WITHMATCHLEN") => options.with_len = true,
                () if is("MINMATCHLEN") && at + 1 < call.args.len() => {
                    at += 1;
                    options.run_min = usize::try_from(call.integer(at)?).unwrap_or(0);
                }
                () => return Err(Error::SYNTAX),
            }
            at += 1;
        }
        Ok(options)
    }
}

/// Lengths for all beginnings of two strings.
struct Table {
    lens: Vec<u32>,
    width: usize,
}

impl Table {
    /// The table of two strings that takes no more than so many bytes.
    fn new(one: &[u8], other: &[u8], bytes_max: usize) -> Result<Self, Error> {
        let width = other.len() + 1;
        let cells = (one.len() + 1).checked_mul(width).and_then(|cells| Some((cells, cells.checked_mul(4)?)));
        let failed = Error::new("ERR Insufficient memory, failed allocating transient memory for LCS");
        let (cells, bytes) = cells.ok_or_else(|| failed.clone())?;
        if bytes > bytes_max {
            return Err(Error::new("ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len"));
        }
        let mut lens: Vec<u32> = Vec::new();
        lens.try_reserve_exact(cells).map_err(|_| failed)?;
        lens.resize(cells, 0);
        for (row, byte) in (1..).zip(one) {
            let (before, present) = lens[(row - 1) * width..].split_at_mut(width);
            for (column, other) in (1..).zip(other) {
                present[column] = match byte == other {
                    true => before[column - 1] + 1,
                    false => before[column].max(present[column - 1]),
                };
            }
        }
        Ok(Self { lens, width })
    }

    fn at(&self, one: usize, other: usize) -> u32 {
        self.lens[one * self.width + other]
    }
}

/// Bytes that are the same and stand side by side in both strings: where they begin, and how many they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stretch {
    one: usize,
    other: usize,
    len: usize,
}

/// The stretches of the longest common subsequence, the last first.
fn stretches(one: &[u8], other: &[u8], table: &Table) -> Vec<Stretch> {
    let (mut row, mut column) = (one.len(), other.len());
    let mut all: Vec<Stretch> = Vec::new();
    // A stretch that came to the beginning of a string, or was left, is not continued.
    let mut is_open = false;
    while row > 0 && column > 0 {
        if one[row - 1] != other[column - 1] {
            if table.at(row - 1, column) > table.at(row, column - 1) {
                row -= 1;
            } else {
                column -= 1;
            }
            is_open = false;
            continue;
        }
        match all.last_mut().filter(|last| is_open && last.one == row && last.other == column) {
            Some(last) => *last = Stretch { one: row - 1, other: column - 1, len: last.len + 1 },
            None => all.push(Stretch { one: row - 1, other: column - 1, len: 1 }),
        }
        is_open = true;
        (row, column) = (row - 1, column - 1);
    }
    all
}

/// A string, or nothing for a key that is not there.
fn string(call: &mut Call<'_, '_>, key: Key<'_>) -> Result<Vec<u8>, Error> {
    let found = call.keys.string(key).map_err(|_| Error::new("ERR The specified keys must contain string values"))?;
    Ok(found.unwrap_or_default().to_vec())
}

fn lcs(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (first, second) = (call.key(1), call.key(2));
    let (one, other) = (string(call, first)?, string(call, second)?);
    let options = Options::read(call)?;
    if options.len && options.places {
        return Err(Error::new("ERR If you want both the length and indexes, please just use IDX."));
    }
    let bytes_max = usize::try_from(call.settings.word_bytes_max).unwrap_or(usize::MAX);
    let table = Table::new(&one, &other, bytes_max)?;
    let len = table.at(one.len(), other.len()) as usize;
    if options.len {
        call.reply.count(len);
        return Ok(());
    }
    let stretches = stretches(&one, &other, &table);
    if options.places {
        reply_places(call, &stretches, len, options);
    } else {
        let bytes: Vec<u8> =
            stretches.iter().rev().flat_map(|part| &one[part.one..part.one + part.len]).copied().collect();
        call.reply.bulk(&bytes);
    }
    Ok(())
}

fn reply_places(call: &mut Call<'_, '_>, stretches: &[Stretch], len: usize, options: Options) {
    let shown: Vec<&Stretch> = stretches.iter().filter(|part| part.len >= options.run_min).collect();
    call.reply.map(2);
    call.reply.bulk(b"matches");
    call.reply.array(shown.len());
    for part in shown {
        call.reply.array(2 + usize::from(options.with_len));
        for start in [part.one, part.other] {
            call.reply.array(2);
            call.reply.count(start);
            call.reply.count(start + part.len - 1);
        }
        if options.with_len {
            call.reply.count(part.len);
        }
    }
    call.reply.bulk(b"len");
    call.reply.count(len);
}
