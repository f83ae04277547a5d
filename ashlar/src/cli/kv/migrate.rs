//! Slots that go whole from engine to engine: `CLUSTER MIGRATESLOTS` at their owners, watched to the end, with what is left of time.
//!
//! Slots are ordered in pieces: each piece changes hands by itself, so writes to few slots wait at a time, and what is done stays done if
//! the rest is broken off. An owner moves one piece after another; owners move theirs side by side.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use ashlar_wire::time::Instant;

use super::balance::{Engine, Step};
use super::picture::{Asker, Migration, count_keys, read_figures, read_migrations};
use super::rebalance::{LOOK, ranges};
use crate::cli::table;
use crate::os::clock;

/// Slots of a piece.
const PIECE_SLOTS: usize = 512;
/// How often it is told how far the moves are.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// What a slot costs beside its keys, in keys: to compare pieces with few and with many.
const SLOT_WEIGHT: u64 = 4;

/// Slots that go together.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    from: usize,
    to: usize,
    slots: Vec<u16>,
    keys: u64,
}

impl Piece {
    fn weight(&self) -> u64 {
        self.slots.len() as u64 * SLOT_WEIGHT + self.keys
    }

    /// As [`Migration::ranges`] has them.
    fn ranges(&self) -> String {
        let ranges = ranges(&self.slots);
        ranges.iter().map(|(first, last)| format!("{first}-{last}")).collect::<Vec<_>>().join(" ")
    }
}

/// How much is done, and of how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Progress {
    slots: [usize; 2],
    keys: [u64; 2],
    weight: [u64; 2],
}

impl Progress {
    fn of<'p>(pieces: impl Iterator<Item = (&'p Piece, bool)>) -> Self {
        let mut progress = Self::default();
        for (piece, is_done) in pieces {
            for at in if is_done { 0..2 } else { 1..2 } {
                progress.slots[at] += piece.slots.len();
                progress.keys[at] += piece.keys;
                progress.weight[at] += piece.weight();
            }
        }
        progress
    }

    /// What is left after so much time, if the rest goes as fast; nothing as long as nobody can know.
    fn left(&self, spent: Duration) -> Option<Duration> {
        let [done, all] = self.weight;
        let spent_us = u64::try_from(spent.as_micros()).ok()?;
        let left_us = u128::from(spent_us) * u128::from(all - done) / u128::from((done > 0).then_some(done)?);
        Some(Duration::from_micros(u64::try_from(left_us).ok()?))
    }

    fn text(&self, spent: Duration) -> String {
        let ([slots, all_slots], [keys, all_keys]) = (self.slots, self.keys);
        let left = match self.left(spent) {
            _ if slots == all_slots => format!(" in {}", span(spent)),
            Some(left) => format!(", about {} left", span(left)),
            None => String::new(),
        };
        format!("moved {slots} of {all_slots} slots, {keys} of {all_keys} keys{left}")
    }
}

fn span(span: Duration) -> String {
    table::span(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

/// How many keys each of these slots has at its owner.
pub(super) async fn keys_of_slots(
    asker: &mut Asker,
    owner: &Engine,
    slots: &[u16],
) -> Result<BTreeMap<u16, u64>, String> {
    let info = asker.text(&owner.place, &["INFO", "KEYSPACE"]).await?;
    count_keys(asker, &owner.place, read_figures(&info).keys.keys(), slots).await
}

/// Does all [`Step::Migrate`] of a batch.
///
/// # Errors
/// An engine does not answer, or a piece has not moved: it is where it was. The others have moved. Retry safe.
pub(super) async fn move_whole(
    asker: &mut Asker,
    engines: &[Engine],
    steps: &[Step],
    say: &mut dyn FnMut(&str),
) -> Result<(), String> {
    let mut pieces: BTreeMap<usize, Vec<Piece>> = BTreeMap::new();
    for step in steps {
        let Step::Migrate { slots, from, to } = step else { continue };
        let keys = keys_of_slots(asker, &engines[*from], slots).await?;
        let piece = |slots: &[u16]| {
            let keys = slots.iter().filter_map(|slot| keys.get(slot)).sum();
            Piece { from: *from, to: *to, slots: slots.to_vec(), keys }
        };
        pieces.entry(*from).or_default().extend(slots.chunks(PIECE_SLOTS).map(piece));
    }
    if pieces.is_empty() {
        return Ok(());
    }
    let begin = clock::now();
    let mut earlier: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
    for (from, pieces) in &pieces {
        let known = migrations(asker, &engines[*from].place).await?;
        earlier.insert(*from, known.into_iter().map(|migration| migration.name).collect());
        order(asker, &engines[*from], engines, pieces).await?;
    }
    watch(asker, engines, &pieces, &earlier, begin, say).await
}

/// Orders the pieces of one owner.
async fn order(asker: &mut Asker, from: &Engine, engines: &[Engine], pieces: &[Piece]) -> Result<(), String> {
    let mut words = vec!["CLUSTER".to_owned(), "MIGRATESLOTS".into()];
    for piece in pieces {
        words.push("SLOTSRANGE".into());
        words.extend(ranges(&piece.slots).iter().flat_map(|(first, last)| [first.to_string(), last.to_string()]));
        words.extend(["NODE".into(), engines[piece.to].name.clone()]);
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    asker.text(&from.place, &words).await.map(drop)
}

async fn migrations(asker: &mut Asker, place: &str) -> Result<Vec<Migration>, String> {
    Ok(read_migrations(&asker.ask(place, &["CLUSTER", "GETSLOTMIGRATIONS"]).await?))
}

/// Looks at the owners until none of what was ordered is under way, and tells how far it is.
async fn watch(
    asker: &mut Asker,
    engines: &[Engine],
    pieces: &BTreeMap<usize, Vec<Piece>>,
    earlier: &BTreeMap<usize, BTreeSet<String>>,
    begin: Instant,
    say: &mut dyn FnMut(&str),
) -> Result<(), String> {
    let (mut told, mut told_at) = (Progress::default(), begin);
    loop {
        let (mut is_over, mut failed, mut done) = (true, None, BTreeSet::new());
        for from in pieces.keys() {
            let place = &engines[*from].place;
            let known = migrations(asker, place).await?;
            let ours = known.into_iter().filter(|one| one.is_export && !earlier[from].contains(&one.name));
            for Migration { ranges, state, message, .. } in ours {
                match state.as_str() {
                    "success" => drop(done.insert((*from, ranges))),
                    "failed" | "cancelled" => {
                        failed.get_or_insert(format!("slots {ranges} stay at {place} ({state}): {message}"));
                    }
                    _ => is_over = false,
                }
            }
        }
        let all = pieces.values().flatten();
        let progress = Progress::of(all.map(|piece| (piece, done.contains(&(piece.from, piece.ranges())))));
        let now = clock::now();
        let is_due = now.saturating_since(told_at) >= TELL_EVERY || is_over;
        if is_due && progress != told && progress.slots[0] > 0 {
            say(&progress.text(now.saturating_since(begin)));
            (told, told_at) = (progress, now);
        }
        match failed {
            Some(why) if is_over => return Err(why),
            None if is_over => return Ok(()),
            _ => clock::sleep(LOOK).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_told_with_the_time_that_is_left() {
        let piece = |slots: core::ops::Range<u16>, keys| Piece { from: 0, to: 1, slots: slots.collect(), keys };
        let pieces = [piece(0..512, 8_000), piece(512..1_024, 8_000), piece(1_024..1_025, 0)];
        let progress = |done: usize| Progress::of(pieces.iter().enumerate().map(|(at, piece)| (piece, at < done)));
        let spent = Duration::from_secs(4);
        assert_eq!(progress(0).text(spent), "moved 0 of 1025 slots, 0 of 16000 keys");
        assert_eq!(progress(1).text(spent), "moved 512 of 1025 slots, 8000 of 16000 keys, about 4.0 s left");
        assert_eq!(progress(3).text(spent), "moved 1025 of 1025 slots, 16000 of 16000 keys in 4.0 s");
        let never = Progress { weight: [1, u64::MAX], ..Progress::default() };
        assert_eq!(never.left(Duration::MAX), None, "longer than can be counted");
    }

    #[test]
    fn pieces_have_the_words_of_the_reply() {
        let piece = Piece { from: 0, to: 1, slots: vec![0, 1, 2, 9], keys: 0 };
        assert_eq!(piece.ranges(), "0-2 9-9");
    }
}
