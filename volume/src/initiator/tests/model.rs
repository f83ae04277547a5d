//! A cluster that fails in every way, against a flat array of bytes.
//!
//! Verified: each request completes exactly once, without an error unless it has a deadline; a read returns what a flat
//! array would, to which requests are applied in the order in which they came; a change whose deadline has passed is
//! applied or not, byte by byte, but what a later read has seen of it stays; late and repeated subrequests change
//! nothing; limits hold; nothing is stuck once servers answer again. Not verified here: copies (the model of a group has
//! one content), damage and fencing (`single.rs` has these).

use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::message::SubrequestHeader;

/// Choices from a seed (SplitMix64).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// All groups and their one content.
struct Cluster {
    table: Arc<PgTable>,
    bytes: Vec<u8>,
    configs: BTreeMap<GroupId, GroupConfig>,
    /// Changes that were applied, as long as they may come again.
    applied: BTreeSet<(GroupId, u64)>,
    settled_below: BTreeMap<GroupId, u64>,
}

impl Cluster {
    fn new() -> Self {
        let table = table(1, 8);
        let configs = (0..8).map(|pg| {
            let group = GroupId { set: SetId(1), pg: PgId(pg) };
            (group, config(&table, group, 5, 1))
        });
        let configs = configs.collect();
        let bytes = vec![0; usize::try_from(SIZE).unwrap()];
        Self { table, bytes, configs, applied: BTreeSet::new(), settled_below: BTreeMap::new() }
    }

    /// Another member leads the group from now on.
    fn change(&mut self, group: GroupId, chance: &mut Chance) {
        let epoch = self.configs[&group].epoch.0 + 1 + chance.below(3);
        let next = config(&self.table, group, epoch, usize::try_from(chance.below(3)).unwrap());
        self.configs.insert(group, next);
    }

    fn serve(&mut self, sent: &Subrequest, knows: bool) -> Answer {
        let header = &sent.header;
        let encoded = header.encode(&sent.payload);
        assert_eq!(SubrequestHeader::decode(&encoded, &sent.payload), Ok(*header));
        let leader = self.configs[&header.group];
        let hint = knows.then_some(leader);
        if sent.server != leader.server || header.drive != leader.drive {
            return answered(AnswerKind::NotPrimary(hint));
        }
        if header.epoch != leader.epoch {
            return answered(AnswerKind::OtherEpoch(hint));
        }
        let settled = self.settled_below.entry(header.group).or_default();
        *settled = (*settled).max(header.settled_below.0);
        let settled = *settled;
        self.applied.retain(|(group, number)| *group != header.group || *number >= settled);
        let start = usize::try_from(header.range.extent.extent.0 * EXTENT).unwrap() + header.range.offset as usize;
        let range = start..start + header.range.len as usize;
        if header.verb == Verb::Read {
            let bytes = &self.bytes[range];
            let is_zero = bytes.iter().all(|byte| *byte == 0);
            return match is_zero {
                true => answered(AnswerKind::Zeroes),
                false => Answer::Answered(AnswerKind::Done, Bytes::copy_from_slice(bytes)),
            };
        }
        if header.number.0 < settled {
            return answered(AnswerKind::Settled);
        }
        if self.applied.insert((header.group, header.number.0)) {
            match header.verb {
                Verb::Write => self.bytes[range].copy_from_slice(&sent.payload),
                _ => self.bytes[range].fill(0),
            }
        }
        DONE
    }
}

/// What comes at a time.
enum Event {
    /// A subrequest reaches its server; its answer comes back, or not.
    Arrive {
        sent: Subrequest,
        is_awaited: bool,
    },
    Return(SubrequestId, Answer),
}

/// One request of the guest.
struct Entry {
    range: Range<usize>,
    /// The byte with which a change fills the range.
    change: Option<u8>,
    result: Option<Result<Vec<u8>, Error>>,
}

/// Bytes have values below 32, so that a set of them is a mask.
const VALUES: u64 = 32;

/// Applies a history to a flat array whose bytes are sets of values.
fn check(seed: u64, history: &BTreeMap<u64, Entry>, content: &[u8]) {
    let mut array = vec![1_u32; content.len()];
    for (id, entry) in history {
        let bytes = &mut array[entry.range.clone()];
        match (entry.change, entry.result.as_ref().expect("every request has completed")) {
            (Some(byte), Ok(_)) => bytes.fill(1 << byte),
            (Some(byte), Err(Error::TimedOut)) => bytes.iter_mut().for_each(|set| *set |= 1 << byte),
            (None, Ok(read)) => {
                assert_eq!(read.len(), bytes.len());
                for (index, (set, byte)) in bytes.iter_mut().zip(read).enumerate() {
                    assert!(*set & 1 << byte != 0, "seed {seed}, request {id}: byte {index} is {byte}");
                    // Whoever reads it again gets the same.
                    *set = 1 << byte;
                }
            }
            (None, Err(Error::TimedOut)) => {}
            (_, Err(error)) => panic!("seed {seed}, request {id}: {error}"),
        }
    }
    let is_possible = array.iter().zip(content).all(|(set, byte)| *set & 1 << byte != 0);
    assert!(is_possible, "seed {seed}: the content is another");
}

struct World {
    chance: Chance,
    now: Instant,
    cluster: Cluster,
    initiator: Initiator,
    limits: Limits,
    events: BTreeMap<(Instant, u64), Event>,
    next_event: u64,
    /// What the guest has asked for and got, in order.
    history: BTreeMap<u64, Entry>,
    /// Requests that are not completed.
    open: usize,
    has_deadlines: bool,
    faulty: bool,
    repetitions: u64,
}

impl World {
    fn new(seed: u64, has_deadlines: bool) -> Self {
        let mut chance = Chance(seed);
        let limits = Limits {
            requests_max: 40,
            request_bytes_max: 400_000,
            subrequests_max: 1 + usize::try_from(chance.below(16)).unwrap(),
            subrequest_bytes_max: 16_384 << chance.below(5),
            payload_bytes_max: 4_096 << chance.below(5),
            runs_per_request_max: 1 + usize::try_from(chance.below(4)).unwrap(),
        };
        let initiator =
            Initiator::new(ATTACHMENT, volume(), vec![table(1, 8)], limits, Pacing::default(), seed).unwrap();
        Self {
            chance,
            now: at(0),
            cluster: Cluster::new(),
            initiator,
            limits,
            events: BTreeMap::new(),
            next_event: 0,
            history: BTreeMap::new(),
            open: 0,
            has_deadlines,
            faulty: true,
            repetitions: 0,
        }
    }

    fn schedule(&mut self, delay_ms_max: u64, event: Event) {
        let due = Instant::from_nanos(self.now.as_nanos() + self.chance.below(delay_ms_max * 1_000_000) + 1);
        self.events.insert((due, self.next_event), event);
        self.next_event += 1;
    }

    /// A request of the guest, applied to the flat array if it is taken.
    fn request(&mut self, id: u64) {
        let offset = self.chance.below(SIZE);
        let len_max = [600, 9_000, 150_000][usize::try_from(self.chance.below(3)).unwrap()];
        let len = (1 + self.chance.below(len_max)).min(SIZE - offset);
        let (offset, len) = match self.chance.percent(40) {
            true => (offset / K * K, len.next_multiple_of(K).min(SIZE - offset / K * K)),
            false => (offset, len),
        };
        let (start, end) = (usize::try_from(offset).unwrap(), usize::try_from(offset + len).unwrap());
        let byte = u8::try_from(1 + self.chance.below(VALUES - 1)).unwrap();
        let (op, range, change) = match self.chance.below(10) {
            0..4 => (read(offset, len), start..end, None),
            4..8 => (write(offset, len, byte), start..end, Some(byte)),
            8 => {
                let space = if self.chance.percent(50) { Space::Keep } else { Space::Release };
                (Op::Zero { offset, len, space }, start..end, Some(0))
            }
            _ => {
                let (from, to) = (start.next_multiple_of(4_096), end / 4_096 * 4_096);
                (Op::Discard { offset, len }, from..to.max(from), Some(0))
            }
        };
        let wait = 1_000_000 + self.chance.below(30_000_000);
        let is_limited = self.has_deadlines && self.chance.percent(30);
        let deadline = is_limited.then(|| Instant::from_nanos(self.now.as_nanos() + wait));
        match self.initiator.handle_request(self.now, RequestId(id), op, deadline) {
            Ok(()) => {}
            Err(Error::TooMuchInFlight) => return,
            Err(error) => panic!("{error}"),
        }
        self.open += 1;
        self.history.insert(id, Entry { range, change, result: None });
    }

    fn send(&mut self, sent: Subrequest) {
        self.repetitions += u64::from(sent.id.attempt > 1);
        let fate = if self.faulty { self.chance.below(100) } else { 99 };
        match fate {
            // Lost on the way there: perhaps it comes much later.
            0..8 => {
                self.schedule(20, Event::Return(sent.id, Answer::Lost));
                if self.chance.percent(70) {
                    self.schedule(2_000, Event::Arrive { sent, is_awaited: false });
                }
            }
            8..14 => {
                let retry_after_ms = u32::try_from(self.chance.below(50)).unwrap();
                self.schedule(5, Event::Return(sent.id, answered(AnswerKind::Busy { retry_after_ms })));
            }
            // Repeated on the way.
            14..18 => {
                self.schedule(500, Event::Arrive { sent: sent.clone(), is_awaited: false });
                self.schedule(5, Event::Arrive { sent, is_awaited: true });
            }
            _ => self.schedule(5, Event::Arrive { sent, is_awaited: true }),
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive { sent, is_awaited } => {
                let knows = self.chance.percent(70);
                let answer = self.cluster.serve(&sent, knows);
                let is_lost = self.faulty && self.chance.percent(8);
                if is_awaited {
                    let answer = if is_lost { Answer::Lost } else { answer };
                    self.schedule(5, Event::Return(sent.id, answer));
                }
            }
            Event::Return(id, answer) => self.initiator.handle_answer(self.now, id, answer),
        }
    }

    /// Everything that can be done at this time.
    fn settle(&mut self) {
        while let Some(sent) = self.initiator.poll_subrequest() {
            let (count, bytes) = self.initiator.in_flight();
            assert!(count <= self.limits.subrequests_max);
            assert!(bytes <= self.limits.subrequest_bytes_max || count == 1);
            self.send(sent);
        }
        while let Some(completion) = self.initiator.poll_completion() {
            let entry = self.history.get_mut(&completion.id.0).expect("it was asked for");
            let result = completion.result.map(|pieces| flat(&pieces));
            assert!(entry.result.replace(result).is_none(), "a request completes once");
            self.open -= 1;
        }
    }

    /// Goes on to the next thing that happens. False if nothing ever will.
    fn step(&mut self) -> bool {
        self.settle();
        let event = self.events.first_key_value().map(|((due, _), _)| *due);
        let Some(next) = event.into_iter().chain(self.initiator.poll_timeout()).min() else { return false };
        self.now = self.now.max(next);
        self.initiator.handle_timeout(self.now);
        while let Some(entry) = self.events.first_entry()
            && entry.key().0 <= self.now
        {
            let event = entry.remove();
            self.happen(event);
        }
        true
    }

    fn maybe_change_leader(&mut self) {
        if self.chance.percent(10) {
            let group = GroupId { set: SetId(1), pg: PgId(u32::try_from(self.chance.below(8)).unwrap()) };
            self.cluster.change(group, &mut self.chance);
            if self.chance.percent(50) {
                self.initiator.handle_config(group, self.cluster.configs[&group]);
            }
        }
    }
}

/// One run: how many sendings were repetitions, and how many requests have passed their deadlines.
fn run(seed: u64, has_deadlines: bool) -> (u64, usize) {
    let mut world = World::new(seed, has_deadlines);
    for id in 0..300 {
        world.request(id);
        for _ in 0..world.chance.below(4) {
            world.maybe_change_leader();
            world.step();
        }
    }
    world.faulty = false;
    let healed = world.now;
    while world.open > 0 {
        let goes_on = world.step() && world.now.saturating_since(healed).as_secs() < 60;
        assert!(goes_on || world.open == 0, "seed {seed}: {} requests are stuck", world.open);
    }
    // What is still on its way arrives too.
    while world.step() {}
    assert_eq!((world.initiator.requests(), world.initiator.in_flight()), (0, (0, 0)), "seed {seed}");
    check(seed, &world.history, &world.cluster.bytes);
    let late = world.history.values().filter(|entry| entry.result == Some(Err(Error::TimedOut))).count();
    (world.repetitions, late)
}

#[test]
fn a_volume_is_a_flat_array_whatever_fails() {
    let repetitions: u64 = (0..150).map(|seed| run(seed, false).0).sum();
    assert!(repetitions > 1_000, "faults were met: {repetitions}");
}

#[test]
fn a_change_that_was_given_up_is_done_or_not_and_never_later() {
    let late: usize = (1_000..1_150).map(|seed| run(seed, true).1).sum();
    assert!(late > 1_000, "deadlines have passed: {late}");
}
