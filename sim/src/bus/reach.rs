//! Who could reach whom, and since when: the checkers' own view of the faults, apart from the network that makes them.

use super::check::MEMBERS_MAX;

/// What is known of the way from one member to another, or of one member.
#[derive(Debug, Clone, Copy, Default)]
struct Way {
    /// Faults that lie on it now.
    faults: u32,
    /// When the last one ended, if there was one.
    ended_ns: Option<u64>,
}

impl Way {
    fn change(&mut self, now_ns: u64, is_open: bool) {
        if is_open {
            self.faults = self.faults.saturating_sub(1);
            self.ended_ns = Some(now_ns);
        } else {
            self.faults += 1;
        }
    }

    /// Whether nothing has been wrong since `since_ns`.
    fn is_calm_since(&self, since_ns: u64) -> bool {
        self.faults == 0 && self.ended_ns.is_none_or(|ended_ns| ended_ns <= since_ns)
    }
}

/// All ways between the members of a small world.
#[derive(Debug, Default)]
pub(super) struct Reach {
    ways: [[Way; MEMBERS_MAX]; MEMBERS_MAX],
    /// Not running, or frozen.
    members: [Way; MEMBERS_MAX],
    /// Running, frozen or not.
    lives: [bool; MEMBERS_MAX],
    /// The links of all.
    links: Way,
    /// When one last could send to another, where it cannot now.
    parted_ns: [[u64; MEMBERS_MAX]; MEMBERS_MAX],
}

impl Reach {
    /// Everybody is down at first.
    pub(super) fn new() -> Self {
        let mut reach = Self::default();
        reach.members.iter_mut().for_each(|member| member.faults = 1);
        reach
    }

    /// A direction is cut or healed.
    pub(super) fn way(&mut self, now_ns: u64, from: u32, to: u32, is_open: bool) {
        self.note_parting(now_ns, from);
        self.ways[from as usize][to as usize].change(now_ns, is_open);
    }

    /// A member is frozen, or goes on.
    pub(super) fn member(&mut self, now_ns: u64, member: u32, runs: bool) {
        self.note_parting(now_ns, member);
        self.members[member as usize].change(now_ns, runs);
    }

    /// A member starts or stops.
    pub(super) fn life(&mut self, now_ns: u64, member: u32, lives: bool) {
        self.member(now_ns, member, lives);
        self.lives[member as usize] = lives;
    }

    /// All links become bad, or as they were.
    pub(super) fn links(&mut self, now_ns: u64, are_good: bool) {
        self.links.change(now_ns, are_good);
    }

    /// Something about a member is going to change: until now it and these could send to each other.
    fn note_parting(&mut self, now_ns: u64, member: u32) {
        let one = member as usize;
        for (from, to) in (0..MEMBERS_MAX).flat_map(|other| [(one, other), (other, one)]) {
            if self.can_send(from, to) {
                self.parted_ns[from][to] = now_ns;
            }
        }
    }

    /// Whether what one sends reaches another, be it after it was frozen.
    fn can_send(&self, from: usize, to: usize) -> bool {
        self.ways[from][to].faults == 0 && self.members[from].faults == 0 && self.lives[to]
    }

    /// Whether the two have reached each other all the time since `since_ns`.
    pub(super) fn both_since(&self, since_ns: u64, one: u32, other: u32) -> bool {
        let calm = |way: &Way| way.is_calm_since(since_ns);
        let (a, b) = (one as usize, other as usize);
        let ends = calm(&self.members[a]) && calm(&self.members[b]);
        calm(&self.links) && ends && (a == b || calm(&self.ways[a][b]) && calm(&self.ways[b][a]))
    }

    /// Whether two could exchange packets since `since_ns`: each could send to the other at some time.
    pub(super) fn once_since(&self, since_ns: u64, one: u32, other: u32) -> bool {
        let (a, b) = (one as usize, other as usize);
        let could_send = |from: usize, to: usize| self.can_send(from, to) || self.parted_ns[from][to] >= since_ns;
        a == b || could_send(a, b) && could_send(b, a)
    }

    /// All with whom a member could exchange packets at any time since `since_ns`, itself too, as bits by number.
    pub(super) fn reached(&self, since_ns: u64, member: u32) -> u16 {
        (0..MEMBERS_MAX as u32).filter(|to| self.once_since(since_ns, member, *to)).fold(0, |all, to| all | 1 << to)
    }

    /// All that a member may have heard of since `since_ns`, over others if need be; itself too.
    pub(super) fn around(&self, since_ns: u64, member: u32) -> impl Iterator<Item = u32> {
        let mut reached: u32 = 1 << member;
        let mut next = reached;
        while next != 0 {
            let from = next.trailing_zeros();
            next &= next - 1;
            for to in 0..MEMBERS_MAX as u32 {
                if reached >> to & 1 == 0 && self.once_since(since_ns, from, to) {
                    reached |= 1 << to;
                    next |= 1 << to;
                }
            }
        }
        (0..MEMBERS_MAX as u32).filter(move |to| reached >> to & 1 == 1)
    }

    /// Whether a member runs and is not frozen.
    pub(super) fn runs(&self, member: u32) -> bool {
        self.members[member as usize].faults == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(members: u32) -> Reach {
        let mut reach = Reach::new();
        assert!(!reach.both_since(0, 0, 1) && !reach.runs(0));
        (0..members).for_each(|member| reach.life(10, member, true));
        reach
    }

    #[test]
    fn calm_is_counted_from_the_end_of_the_last_fault() {
        let mut reach = reach(2);
        assert!(reach.both_since(10, 0, 1) && !reach.both_since(9, 0, 1));
        reach.way(20, 1, 0, false);
        reach.way(21, 1, 0, false);
        reach.way(30, 1, 0, true);
        assert!(!reach.both_since(30, 0, 1));
        reach.way(40, 1, 0, true);
        assert!(reach.both_since(40, 0, 1) && !reach.both_since(39, 1, 0));
        reach.links(50, false);
        assert!(!reach.both_since(50, 0, 1));
        reach.links(60, true);
        assert!(reach.both_since(60, 0, 1) && reach.both_since(60, 1, 1));
    }

    #[test]
    fn an_exchange_needs_both_directions_and_is_remembered() {
        let mut reach = reach(4);
        reach.way(20, 0, 1, false);
        reach.way(25, 1, 0, false);
        assert!(reach.once_since(20, 0, 1) && !reach.once_since(21, 1, 0) && reach.once_since(99, 0, 2));
        reach.way(30, 3, 0, false);
        reach.way(30, 1, 3, false);
        assert!(reach.around(50, 0).eq([0, 1, 2, 3]), "1 and 3 are reached over 2");
        reach.life(40, 2, false);
        assert!(reach.around(40, 0).eq([0, 1, 2, 3]) && reach.around(41, 0).eq([0]));
    }

    #[test]
    fn what_is_sent_to_the_frozen_reaches_them_in_the_end() {
        let mut reach = reach(3);
        reach.member(20, 1, false);
        reach.way(30, 0, 1, false);
        reach.life(30, 2, false);
        assert!(!reach.once_since(21, 0, 1), "it has not answered yet");
        reach.member(40, 1, true);
        assert!(reach.once_since(30, 0, 1) && !reach.once_since(31, 0, 1));
        assert_eq!([reach.reached(30, 0), reach.reached(31, 0)], [0b111, 0b001]);
    }
}
