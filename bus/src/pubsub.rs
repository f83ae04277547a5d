//! Who wants to hear what: the interest map behind light publish and subscribe.
//!
//! A member tells with its description what it wants to hear, so a message goes to members with subscribers only. What it
//! tells has a limit, however many channels there are: hashes of channels while they are few, then a Bloom filter (Bloom
//! 1970), then "everything". So it may say too much and never too little; the receiver looks again.
//!
//! | first byte | rest |
//! |---|---|
//! | none | nothing is wanted |
//! | 0 | everything is wanted |
//! | 1 | up to 16 hashes of channels, 4 bytes each, sorted |
//! | 2 | bits of a Bloom filter, 64 to 512 bytes |
//!
//! Not here: the order or the safety of messages. One that is lost is lost.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use crate::fingerprint::fingerprint;

/// Longest written interest, bytes.
pub const INTEREST_BYTES_MAX: usize = 1 + BLOOM_BYTES_MAX;
const EXACT_MAX: usize = 16;
const BLOOM_BYTES_MIN: usize = 64;
const BLOOM_BYTES_MAX: usize = 512;
/// Bits of the filter for one channel: at ten, with four probes, about one channel in eighty is wanted in error.
const BITS_PER_CHANNEL: usize = 10;
const BLOOM_PROBES: u32 = 4;

fn hash(channel: &[u8]) -> u64 {
    fingerprint(channel)
}

fn short(hash: u64) -> [u8; 4] {
    let [a, b, c, d, ..] = hash.to_be_bytes();
    [a, b, c, d]
}

fn bits(hash: u64, bytes: usize) -> impl Iterator<Item = (usize, u8)> {
    let count = bytes as u64 * 8;
    let (start, step) = (hash >> 32, (hash & 0xffff_ffff) | 1);
    (0..BLOOM_PROBES).map(move |probe| {
        let bit = start.wrapping_add(step.wrapping_mul(probe.into())) % count;
        (usize::try_from(bit / 8).unwrap_or(0), 0x80 >> (bit % 8))
    })
}

/// The written interest in these channels, or in everything.
pub(crate) fn encode_interest(channels: &BTreeSet<Vec<u8>>, all: bool) -> Box<[u8]> {
    if all || channels.len() * BITS_PER_CHANNEL > BLOOM_BYTES_MAX * 8 {
        return Box::new([0]);
    }
    if channels.is_empty() {
        return Box::new([]);
    }
    if channels.len() <= EXACT_MAX {
        let hashes: BTreeSet<[u8; 4]> = channels.iter().map(|channel| short(hash(channel))).collect();
        return core::iter::once(1).chain(hashes.into_iter().flatten()).collect();
    }
    let bytes = (channels.len() * BITS_PER_CHANNEL / 8).next_power_of_two().clamp(BLOOM_BYTES_MIN, BLOOM_BYTES_MAX);
    let mut out = vec![0; 1 + bytes];
    out[0] = 2;
    for channel in channels {
        bits(hash(channel), bytes).for_each(|(at, bit)| out[1 + at] |= bit);
    }
    out.into_boxed_slice()
}

/// Whether whoever has this interest, in its written form, should get the messages of a channel.
#[must_use]
pub fn wants(interest: &[u8], channel: &[u8]) -> bool {
    match interest {
        [] => false,
        [1, hashes @ ..] => hashes.chunks_exact(4).any(|known| known == short(hash(channel))),
        [2, filter @ ..] if !filter.is_empty() => {
            bits(hash(channel), filter.len()).all(|(at, bit)| filter[at] & bit != 0)
        }
        // Everything, or a form of a later version: better too much than too little.
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channels(count: usize) -> BTreeSet<Vec<u8>> {
        (0..count).map(|number| alloc::format!("channel {number}").into_bytes()).collect()
    }

    #[test]
    fn what_is_wanted_is_never_missed_and_what_is_not_seldom_comes() {
        for (count, bytes_max) in [(0, 0), (1, 5), (16, 65), (17, 65), (100, 129), (409, 513), (410, 1), (5_000, 1)] {
            let wanted = channels(count);
            let interest = encode_interest(&wanted, false);
            assert!(interest.len() <= bytes_max.min(INTEREST_BYTES_MAX), "{count}: {}", interest.len());
            assert!(wanted.iter().all(|channel| wants(&interest, channel)));
            let others = (0..1_000).filter(|number| wants(&interest, alloc::format!("other {number}").as_bytes()));
            assert!(others.count() <= if count > 400 { 1_000 } else { 50 }, "{count}");
        }
        assert!(wants(&encode_interest(&channels(0), true), b"anything"));
        assert!(
            wants(&[9, 9], b"a later form") && wants(&[2], b"a filter without bits") && !wants(&[1], b"a list of none")
        );
    }

    #[test]
    fn every_member_writes_the_same_interest() {
        let one = encode_interest(&channels(1), false);
        let many = [17, 100].map(|count| fingerprint(&encode_interest(&channels(count), false)));
        let expected = [18_245_980_111_320_667_775, 15_448_768_398_415_960_646];
        assert_eq!((&*one, many), (&[1, 44, 197, 219, 128][..], expected));
    }
}
