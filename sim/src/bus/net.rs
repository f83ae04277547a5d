//! The network between members: every packet is on its own, and may be late, lost, doubled or overtaken.
//!
//! Cuts are counted per direction, so that overlapping faults heal only when the last of them is over. Two sides (the
//! halves of a large cluster) are cut from each other whatever the counts say.

use crate::rng::Rng;

/// What every link is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Links {
    /// The least time a packet takes.
    pub latency_ns: u64,
    /// What may come on top, drawn evenly; packets overtake each other within it.
    pub jitter_ns: u64,
    /// Packets that are lost.
    pub loss_ppm: u32,
    /// Packets that arrive twice.
    pub double_ppm: u32,
    /// Packets that are late by [`Links::late_ns`] more.
    pub late_ppm: u32,
    /// How much later a late packet is, at most.
    pub late_ns: u64,
}

impl Default for Links {
    /// One data centre: 100 to 300 us, nothing lost.
    fn default() -> Self {
        Self { latency_ns: 100_000, jitter_ns: 200_000, loss_ppm: 0, double_ppm: 0, late_ppm: 0, late_ns: 0 }
    }
}

/// What becomes of one packet: when it arrives, and when its double does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Lost,
    Once(u64),
    Twice(u64, u64),
}

/// All links of one world.
#[derive(Debug, Clone)]
pub(crate) struct Net {
    links: Links,
    rng: Rng,
    members: u32,
    /// How many cuts lie on the direction `from * members + to`; empty while nothing was ever cut.
    cuts: Vec<u8>,
    /// The side of each member; empty while all are on one.
    sides: Vec<u8>,
}

impl Net {
    pub(crate) fn new(links: Links, rng: Rng, members: u32) -> Self {
        Self { links, rng, members, cuts: Vec::new(), sides: Vec::new() }
    }

    /// Other chances from now on.
    pub(crate) fn reseed(&mut self, rng: Rng) {
        self.rng = rng;
    }

    pub(crate) fn links(&self) -> Links {
        self.links
    }

    pub(crate) fn set_links(&mut self, links: Links) {
        self.links = links;
    }

    /// One more cut from `from` to `to`.
    pub(crate) fn cut(&mut self, from: u32, to: u32) {
        if self.cuts.is_empty() {
            self.cuts = vec![0; (self.members * self.members) as usize];
        }
        let count = &mut self.cuts[(from * self.members + to) as usize];
        *count = count.checked_add(1).expect("a plan has fewer faults than cuts are counted");
    }

    /// One cut fewer.
    pub(crate) fn heal(&mut self, from: u32, to: u32) {
        let count = self.cuts.get_mut((from * self.members + to) as usize);
        let count = count.expect("what heals was cut");
        *count = count.checked_sub(1).expect("what heals was cut");
    }

    /// Members of different sides no longer reach each other; an empty list joins all.
    pub(crate) fn set_sides(&mut self, sides: Vec<u8>) {
        assert!(sides.is_empty() || sides.len() == self.members as usize, "every member has a side");
        self.sides = sides;
    }

    /// Whether packets from one reach the other, but for chance.
    pub(crate) fn is_open(&self, from: u32, to: u32) -> bool {
        let apart = !self.sides.is_empty() && self.sides[from as usize] != self.sides[to as usize];
        !apart && self.cuts.get((from * self.members + to) as usize).is_none_or(|count| *count == 0)
    }

    /// Draws what becomes of a packet that is sent now.
    pub(crate) fn fate(&mut self, now_ns: u64, from: u32, to: u32) -> Fate {
        if !self.is_open(from, to) || self.rng.chance(self.links.loss_ppm) {
            return Fate::Lost;
        }
        let at_ns = self.arrival_ns(now_ns);
        if self.rng.chance(self.links.double_ppm) {
            return Fate::Twice(at_ns, self.arrival_ns(now_ns));
        }
        Fate::Once(at_ns)
    }

    fn arrival_ns(&mut self, now_ns: u64) -> u64 {
        let links = self.links;
        let late = if self.rng.chance(links.late_ppm) { self.rng.below(links.late_ns + 1) } else { 0 };
        now_ns + links.latency_ns + self.rng.below(links.jitter_ns + 1) + late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(links: Links) -> Net {
        Net::new(links, Rng::new(1), 4)
    }

    #[test]
    fn cuts_are_counted_and_have_a_direction() {
        let mut net = net(Links::default());
        for step in 0..2 {
            net.cut(0, 1);
            assert!(!net.is_open(0, 1) && net.is_open(1, 0), "{step}");
        }
        net.heal(0, 1);
        assert_eq!((net.is_open(0, 1), net.fate(0, 0, 1)), (false, Fate::Lost));
        net.heal(0, 1);
        assert!(net.is_open(0, 1));
        net.set_sides(vec![0, 1, 1, 0]);
        assert_eq!(
            [(0, 1), (0, 3), (1, 2), (3, 2)].map(|(from, to)| net.is_open(from, to)),
            [false, true, true, false]
        );
        net.set_sides(Vec::new());
        assert!(net.is_open(0, 1));
    }

    #[test]
    fn fates_follow_their_chances() {
        let links = Links { loss_ppm: 100_000, double_ppm: 200_000, late_ppm: 500_000, late_ns: 9, ..Links::default() };
        let mut net = net(links);
        let (mut lost, mut twice) = (0, 0);
        for _ in 0..10_000 {
            let arrived = match net.fate(7, 0, 1) {
                Fate::Lost => {
                    lost += 1;
                    continue;
                }
                Fate::Once(at_ns) => at_ns,
                Fate::Twice(at_ns, _) => {
                    twice += 1;
                    at_ns
                }
            };
            assert!((100_007..=300_016).contains(&arrived), "{arrived}");
        }
        assert!((900..1_100).contains(&lost) && (1_650..1_950).contains(&twice), "{lost} lost, {twice} doubled");
    }
}
