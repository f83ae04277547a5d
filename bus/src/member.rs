//! The table of members: who is known, in which life, told to be alive or failed.
//!
//! What is known of a member has two halves that are merged apart, each by its own version, so that any order of news gives
//! the same table everywhere:
//!
//! - its *description* (address, zone, what it follows, what it wants to hear), which only the member itself writes. The
//!   greater `(incarnation, revision)` wins.
//! - its *life*: whether a majority has declared it failed. The greater `refuted` wins; at equal ones "failed" wins. Only
//!   the member raises `refuted`, to say that it lives after all (the refutation of SWIM, kept apart from incarnations
//!   so that a restart alone does not clear a failure: whether it may is decided by the rules of Valkey).
//!
//! Doubt and suspicion are not here: they are this member's own opinion, see `suspicion`.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use ashlar_wire::id::{Incarnation, ServerId};
use ashlar_wire::time::Instant;

use crate::event::{Departure, Health};
use crate::fingerprint::fingerprint;
use crate::index::Index;
use crate::slot::{GroupId, Zone};

/// Longest account of a member's services, bytes.
pub const SERVICES_BYTES_MAX: usize = 1_024;

/// No life is greater, and no count of refutations: so many that no server ever gets there, and that there is room beyond what is told.
pub(crate) const LIFE_MAX: Incarnation = Incarnation(1 << 62);

/// What a member says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Description {
    /// In which life it said so.
    pub incarnation: Incarnation,
    /// How often it has changed in that life.
    pub revision: u32,
    /// What it may be lost together with.
    pub zone: Zone,
    /// Where it is reached.
    pub address: Box<str>,
    /// The groups that it follows, sorted.
    pub follows: Box<[GroupId]>,
    /// In which life its memory began; 1 unless it lost it once.
    pub memory_since: Incarnation,
    /// What it wants to hear, as [`pubsub`](crate::pubsub) writes it.
    pub interest: Box<[u8]>,
    /// What it tells of its services, up to [`SERVICES_BYTES_MAX`]: where clients reach them, and the like. The bus does not read it.
    pub services: Box<[u8]>,
}

impl Description {
    pub(crate) fn version(&self) -> (Incarnation, u32) {
        (self.incarnation, self.revision)
    }
}

/// Whether a member is told to have failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Life {
    /// How often the member has refuted its failure.
    pub refuted: u64,
    /// Whether it has failed since. After `refuted` in the order, so that the greater value wins.
    pub failed: bool,
}

/// Everything that members tell each other about one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberRecord {
    /// Which.
    pub id: ServerId,
    /// What it says about itself.
    pub description: Description,
    /// What a majority says about it.
    pub life: Life,
}

/// Sequence numbers that have been seen from a member: a window, so that what comes twice or far too late is refused while
/// what was merely overtaken is not.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    greatest: u32,
    /// Bit n: `greatest - n` was seen.
    bits: u64,
}

impl Seen {
    /// Whether nothing was seen.
    pub(crate) fn is_empty(self) -> bool {
        self.greatest == 0
    }

    /// The greatest that was seen.
    #[cfg(test)]
    pub(crate) fn greatest(self) -> u32 {
        self.greatest
    }

    /// Whether `sequence` is new; it is not from now on. 0, the number of those who have none, never is.
    pub(crate) fn take(&mut self, sequence: u32) -> bool {
        if sequence == 0 {
            return false;
        }
        if sequence > self.greatest {
            let ahead = sequence - self.greatest;
            self.bits = if ahead < 64 { self.bits << ahead | 1 } else { 1 };
            self.greatest = sequence;
            return true;
        }
        let behind = self.greatest - sequence;
        if behind >= 64 || self.bits & 1 << behind != 0 {
            return false;
        }
        self.bits |= 1 << behind;
        true
    }
}

/// One member. What most packets look at stands here; what it says about itself lies apart, so that a large table is small
/// where it is read, and is shared by clones.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) id: ServerId,
    /// Its greatest life that was heard of; at least that of the description.
    pub(crate) incarnation: Incarnation,
    pub(crate) description: Arc<Description>,
    pub(crate) life: Life,
    /// When the failure became known here; meaningless while it has not failed.
    pub(crate) failed_at: Instant,
    /// The last sign of life that came here; the origin of time if there was none.
    pub(crate) heard_at: Instant,
    /// This member's own opinion; `Alive` or `Failed` follow from `life`.
    pub(crate) opinion: Opinion,
    /// What it said of its own end, in its present life.
    pub(crate) departure: Departure,
    /// Whether it votes, now or while a change of voters is under way.
    pub(crate) is_voter: bool,
    /// Packets sent to it.
    pub(crate) sent: u32,
    /// Packets heard from its present life.
    pub(crate) seen: Seen,
    /// Fingerprint of what all members should agree on.
    hash: u64,
}

/// What this member alone thinks of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Opinion {
    Fine,
    Doubted,
    Suspected,
}

impl Member {
    fn new(record: MemberRecord) -> Self {
        let mut member = Self {
            id: record.id,
            incarnation: record.description.incarnation,
            description: Arc::new(record.description),
            life: record.life,
            failed_at: Instant::ORIGIN,
            heard_at: Instant::ORIGIN,
            opinion: Opinion::Fine,
            departure: Departure::Stays,
            is_voter: false,
            sent: 0,
            seen: Seen::default(),
            hash: 0,
        };
        member.hash = member.fingerprint();
        member
    }

    fn fingerprint(&self) -> u64 {
        let mut bytes = [0; 37];
        bytes[..16].copy_from_slice(self.id.as_bytes());
        bytes[16..24].copy_from_slice(&self.description.incarnation.0.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.description.revision.to_le_bytes());
        bytes[28..36].copy_from_slice(&self.life.refuted.to_le_bytes());
        bytes[36] = u8::from(self.life.failed);
        fingerprint(&bytes)
    }

    /// Takes in that the member is in this life, if that is a later one than was known. Says whether it had stopped in order before.
    pub(crate) fn begin_life(&mut self, incarnation: Incarnation) -> bool {
        if incarnation <= self.incarnation {
            return false;
        }
        self.incarnation = incarnation;
        self.seen = Seen::default();
        core::mem::replace(&mut self.departure, Departure::Stays) == Departure::Left
    }

    /// How it is seen from here.
    pub(crate) fn health(&self) -> Health {
        match self.opinion {
            _ if self.life.failed => Health::Failed,
            Opinion::Suspected => Health::Suspected,
            Opinion::Doubted => Health::Doubted,
            Opinion::Fine => Health::Alive,
        }
    }

    /// What is told about it.
    pub(crate) fn record(&self) -> MemberRecord {
        MemberRecord { id: self.id, description: Description::clone(&self.description), life: self.life }
    }

    /// Fingerprint of what all members should agree on.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }
}

/// What taking in a record has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Change {
    pub(crate) joined: bool,
    pub(crate) described: bool,
    pub(crate) moved: bool,
    pub(crate) failed: bool,
    pub(crate) recovered: bool,
    /// It had stopped in order, and has begun another life.
    pub(crate) returned: bool,
    /// The life's version grew; true as well where `failed` or `recovered` are.
    pub(crate) life: bool,
}

impl Change {
    /// Whether others should hear of it.
    pub(crate) fn is_news(self) -> bool {
        self.joined || self.described || self.life
    }
}

/// All members that this one knows, itself included.
#[derive(Debug, Clone, Default)]
pub(crate) struct Members {
    /// In no order; a place is stable until a member is removed.
    table: Vec<Member>,
    index: Index,
    digest: u64,
    failed: BTreeSet<ServerId>,
    /// Those that came, went, failed or recovered since that was last asked.
    turned: Vec<ServerId>,
    /// The most packets that went to a member that was removed. Numbers to one that comes back go on from here, since it may
    /// remember the greatest that it has seen.
    sent_max: u32,
}

impl Members {
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// How many have not failed.
    pub(crate) fn living(&self) -> usize {
        self.table.len() - self.failed.len()
    }

    /// Those that have failed.
    pub(crate) fn failed(&self) -> impl Iterator<Item = ServerId> {
        self.failed.iter().copied()
    }

    /// Those that came, went, failed or recovered since the last call.
    pub(crate) fn take_turned(&mut self) -> Vec<ServerId> {
        core::mem::take(&mut self.turned)
    }

    /// Fingerprint of what all members should agree on.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    pub(crate) fn place(&self, id: ServerId) -> Option<usize> {
        self.index.find(id, |place| self.table[place].id)
    }

    pub(crate) fn get(&self, id: ServerId) -> Option<&Member> {
        self.place(id).map(|place| &self.table[place])
    }

    pub(crate) fn get_mut(&mut self, id: ServerId) -> Option<&mut Member> {
        self.place(id).map(|place| &mut self.table[place])
    }

    /// The member in a place.
    pub(crate) fn at(&self, place: usize) -> &Member {
        &self.table[place]
    }

    pub(crate) fn at_mut(&mut self, place: usize) -> &mut Member {
        &mut self.table[place]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Member> {
        self.table.iter()
    }

    /// All of them in the order of their ids.
    pub(crate) fn sorted(&self) -> Vec<&Member> {
        let mut sorted: Vec<&Member> = self.table.iter().collect();
        sorted.sort_unstable_by_key(|member| member.id);
        sorted
    }

    /// Adds a member that is not there yet.
    pub(crate) fn insert(&mut self, record: MemberRecord, now: Instant) -> &mut Member {
        let place = self.table.len();
        assert!(self.place(record.id).is_none(), "a member is added once");
        self.index.insert(record.id, place, |place| self.table[place].id);
        let mut member = Member::new(record);
        member.failed_at = now;
        member.sent = self.sent_max;
        self.digest ^= member.hash;
        self.turned.push(member.id);
        if member.life.failed {
            self.failed.insert(member.id);
        }
        self.table.push(member);
        &mut self.table[place]
    }

    /// Removes a member; the last one takes its place.
    pub(crate) fn remove(&mut self, id: ServerId) -> Option<Member> {
        let place = self.place(id)?;
        let member = self.table.swap_remove(place);
        self.index.rebuild(self.table.iter().map(|member| member.id));
        self.digest ^= member.hash;
        self.turned.push(id);
        self.failed.remove(&id);
        self.sent_max = self.sent_max.max(member.sent);
        Some(member)
    }

    /// Merges a record into the member that it is about, by the two rules in the head of this module.
    pub(crate) fn merge(&mut self, record: MemberRecord, now: Instant) -> Change {
        let Some(place) = self.place(record.id) else {
            let failed = record.life.failed;
            self.insert(record, now);
            return Change { joined: true, failed, life: failed, ..Change::default() };
        };
        let described = self.describe(place, record.description);
        let life = self.set_life(place, record.life, now);
        Change { described: described.described, moved: described.moved, returned: described.returned, ..life }
    }

    /// Takes a description if it is newer.
    pub(crate) fn describe(&mut self, place: usize, description: Description) -> Change {
        let member = &mut self.table[place];
        if description.version() <= member.description.version() {
            return Change::default();
        }
        let moved = description.address != member.description.address;
        let returned = member.begin_life(description.incarnation);
        member.description = Arc::new(description);
        self.rehash(place);
        Change { described: true, moved, returned, ..Change::default() }
    }

    /// Takes what is said about a member's life if it is newer.
    pub(crate) fn set_life(&mut self, place: usize, life: Life, now: Instant) -> Change {
        let member = &mut self.table[place];
        if life <= member.life {
            return Change::default();
        }
        let before = core::mem::replace(&mut member.life, life);
        if life.failed && !before.failed {
            member.failed_at = now;
        }
        let id = member.id;
        if life.failed != before.failed {
            self.turned.push(id);
        }
        if life.failed {
            self.failed.insert(id);
        } else {
            self.failed.remove(&id);
        }
        self.rehash(place);
        Change {
            failed: life.failed && !before.failed,
            recovered: before.failed && !life.failed,
            life: true,
            ..Change::default()
        }
    }

    fn rehash(&mut self, place: usize) {
        let member = &mut self.table[place];
        let fresh = member.fingerprint();
        self.digest ^= member.hash ^ fresh;
        member.hash = fresh;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> ServerId {
        ServerId::from_bytes([number; 16])
    }

    fn record(number: u8, incarnation: u64, revision: u32, refuted: u64, failed: bool) -> MemberRecord {
        let description = Description {
            incarnation: Incarnation(incarnation),
            revision,
            address: alloc::format!("{incarnation}.{revision}").into(),
            ..Description::default()
        };
        MemberRecord { id: id(number), description, life: Life { refuted, failed } }
    }

    #[test]
    fn any_order_of_news_gives_the_same_table() {
        let news = [
            record(1, 1, 0, 0, false),
            record(1, 1, 2, 0, true),
            record(1, 2, 0, 1, false),
            record(1, 1, 9, 1, true),
            record(2, 1, 0, 0, true),
        ];
        let mut chance = crate::chance::Chance::new(5);
        let mut digests = Vec::new();
        for _ in 0..50 {
            let mut order = news.clone();
            chance.shuffle(&mut order);
            let mut members = Members::default();
            for record in order.iter().chain(&order) {
                members.merge(record.clone(), Instant::ORIGIN);
            }
            let one = members.get(id(1)).unwrap();
            assert_eq!((&*one.description.address, one.life), ("2.0", Life { refuted: 1, failed: true }));
            assert_eq!(members.living(), 0);
            digests.push(members.digest());
        }
        assert!(digests.iter().all(|digest| *digest == digests[0]));
    }

    #[test]
    fn a_failure_is_cleared_by_its_member_only() {
        let mut members = Members::default();
        members.merge(record(1, 1, 0, 0, false), Instant::ORIGIN);
        assert!(members.merge(record(1, 1, 0, 0, true), Instant::ORIGIN).failed);
        let restarted = members.merge(record(1, 2, 0, 0, false), Instant::ORIGIN);
        assert!(restarted.described && !restarted.recovered, "a restart alone clears nothing");
        assert!(members.merge(record(1, 2, 0, 1, false), Instant::ORIGIN).recovered);
        assert_eq!(members.merge(record(1, 1, 0, 0, true), Instant::ORIGIN), Change::default(), "old news");
    }

    #[test]
    fn removal_keeps_the_others() {
        let mut members = Members::default();
        for number in 1..=5 {
            members.merge(record(number, 1, 0, 0, number == 2), Instant::ORIGIN);
        }
        let all = members.digest();
        members.remove(id(2)).unwrap();
        assert!(members.get(id(2)).is_none() && members.remove(id(2)).is_none());
        assert!([1, 3, 4, 5].iter().all(|number| members.get(id(*number)).unwrap().id == id(*number)));
        assert_eq!((members.len(), members.living()), (4, 4));
        members.merge(record(2, 1, 0, 0, true), Instant::ORIGIN);
        assert_eq!(members.digest(), all);
    }

    #[test]
    fn sequence_numbers_count_once() {
        let mut seen = Seen::default();
        let cases =
            [(1, true), (1, false), (3, true), (2, true), (2, false), (70, true), (6, false), (7, true), (200, true)];
        // What has no number is never new.
        assert!(!seen.take(0) && seen.is_empty());
        for (sequence, fresh) in cases {
            assert_eq!(seen.take(sequence), fresh, "{sequence}");
        }
        assert!(!seen.take(70) && !seen.take(0));
        // The window ends 64 before the greatest, and what was seen in it moves along.
        for (greatest, older, fresh) in [(65, 2, true), (66, 2, false), (64, 1, false), (65, 1, false), (3, 1, false)] {
            let mut seen = Seen::default();
            assert!(seen.is_empty() && seen.take(1) && !seen.is_empty());
            assert!(seen.take(greatest));
            assert_eq!((seen.take(older), seen.greatest()), (fresh, greatest), "{greatest} {older}");
        }
    }

    #[test]
    fn every_record_says_what_it_has_changed() {
        let none = Change::default();
        let described = Change { described: true, moved: true, ..none };
        let elsewhere = record(1, 1, 2, 1, false);
        let mut same_place = record(1, 1, 3, 1, false);
        same_place.description.address = elsewhere.description.address.clone();
        let life = Change { life: true, ..none };
        let cases = [
            (record(1, 1, 0, 0, false), Change { joined: true, ..none }, &[1][..]),
            (record(1, 1, 0, 0, false), none, &[]),
            (record(1, 1, 1, 0, false), described, &[]),
            (record(1, 1, 1, 0, true), Change { failed: true, ..life }, &[1]),
            (record(1, 1, 0, 1, false), Change { recovered: true, ..life }, &[1]),
            (record(1, 1, 0, 2, false), life, &[]),
            (record(1, 1, 0, 3, true), Change { failed: true, ..life }, &[1]),
            (record(1, 1, 0, 4, true), life, &[]),
            (elsewhere, described, &[]),
            (same_place, Change { moved: false, ..described }, &[]),
            (record(1, 2, 0, 5, false), Change { described: true, moved: true, recovered: true, ..life }, &[1]),
            (record(2, 1, 0, 0, true), Change { joined: true, failed: true, ..life }, &[2]),
        ];
        let mut members = Members::default();
        for (number, (record, expected, turned)) in (1..).zip(cases) {
            let now = Instant::from_nanos(number);
            assert_eq!(members.merge(record, now), expected, "{number}");
            assert_eq!(expected.is_news(), expected != none, "{number}");
            assert_eq!(members.take_turned(), turned.iter().map(|number| id(*number)).collect::<Vec<_>>(), "{number}");
        }
        assert_eq!(members.get(id(1)).unwrap().failed_at, Instant::from_nanos(7), "when it failed last");
        assert_eq!(members.get(id(2)).unwrap().failed_at, Instant::from_nanos(12));
        assert_eq!(members.failed().collect::<Vec<_>>(), [id(2)]);
        members.remove(id(2));
        assert_eq!((members.take_turned(), members.failed().count()), (alloc::vec![id(2)], 0));
        // These numbers are compared between members, so they must not change.
        assert_eq!(
            (members.digest(), members.get(id(1)).unwrap().hash()),
            (4_769_534_711_771_428_168, members.digest())
        );
    }

    #[test]
    fn a_later_life_begins_with_nothing_heard() {
        for (known, departure, incarnation, returned) in [
            (2, Departure::Left, 3, true),
            (2, Departure::Leaves, 3, false),
            (2, Departure::Stays, 3, false),
            (2, Departure::Left, 2, false),
            (2, Departure::Left, 1, false),
        ] {
            for by_description in [false, true] {
                let mut members = Members::default();
                let member = members.insert(record(1, known, 0, 0, false), Instant::ORIGIN);
                member.departure = departure;
                assert!(member.seen.take(5));
                let told = if by_description {
                    members.merge(record(1, incarnation, 0, 0, false), Instant::ORIGIN).returned
                } else {
                    members.at_mut(0).begin_life(Incarnation(incarnation))
                };
                let (member, begins) = (members.at(0), incarnation > known);
                assert_eq!((told, member.seen.is_empty()), (returned, begins), "{incarnation} {departure:?}");
                assert_eq!(member.incarnation, Incarnation(incarnation.max(known)));
                let expected = if begins { Departure::Stays } else { departure };
                assert_eq!(member.departure, expected, "{incarnation} {departure:?}");
            }
        }
    }

    #[test]
    fn packets_to_one_that_comes_back_are_counted_on() {
        let mut members = Members::default();
        for (number, sent) in [(1, 7), (2, 5)] {
            members.insert(record(number, 1, 0, 0, false), Instant::ORIGIN).sent = sent;
        }
        members.remove(id(1));
        members.remove(id(2));
        assert_eq!(members.insert(record(1, 1, 0, 0, false), Instant::ORIGIN).sent, 7);
    }
}
