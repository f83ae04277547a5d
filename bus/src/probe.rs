//! Whom to ask next, and what is still unanswered.
//!
//! Every member asks one other each period, in an order that is shuffled anew each time round (SWIM), so that over a round
//! everybody is asked once. A probe that is not answered within a few times the usual round trip is followed by
//! *indirect* ones: some others are asked to probe the member and to say so if it answers. If that is silent too, the
//! member is doubted; what follows is in [`suspicion`](crate::suspicion).
//!
//! Probes that are under way stand in a queue in the order of their tokens, so that an answer is found at once.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;

use crate::chance::Chance;

/// Why a member was probed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It was its turn; silence is followed up.
    Turn,
    /// It is doubted already; silence is what is expected.
    Doubt,
    /// Another member asked, with this token.
    Asked(ServerId, u32),
}

/// A probe under way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Probe {
    pub(crate) target: ServerId,
    pub(crate) token: u32,
    pub(crate) sent_at: Instant,
    pub(crate) cause: Cause,
    deadline: Instant,
    answered: bool,
}

/// A member that others were asked to probe.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Indirect {
    pub(crate) target: ServerId,
    pub(crate) token: u32,
    /// When its silence began.
    pub(crate) since: Instant,
    /// Whether it was doubted already when they were asked.
    pub(crate) in_doubt: bool,
    deadline: Instant,
    heard: bool,
}

/// Probes under way at once, of each sort; more are not begun.
const PROBES_MAX: usize = 4_096;

/// The order of probing and what is under way.
#[derive(Debug, Clone)]
pub(crate) struct Prober {
    /// Places of members in the table.
    order: Vec<u32>,
    cursor: usize,
    probes: VecDeque<Probe>,
    indirect: VecDeque<Indirect>,
    next_token: u32,
    wait_min: Duration,
    wait_max: Duration,
    /// Smoothed round trip and its mean deviation (Jacobson 1988).
    round_trip: Option<(Duration, Duration)>,
}

/// Answers slower than this many deviations beyond the usual are late.
const DEVIATIONS: u32 = 8;

impl Prober {
    pub(crate) fn new(wait_min: Duration, wait_max: Duration, first_token: u32) -> Self {
        Self {
            order: Vec::new(),
            cursor: 0,
            probes: VecDeque::new(),
            indirect: VecDeque::new(),
            next_token: first_token,
            wait_min,
            wait_max: wait_max.max(wait_min),
            round_trip: None,
        }
    }

    /// How long to wait for the answer to a direct probe. An indirect one is given three times that.
    pub(crate) fn wait(&self) -> Duration {
        let usual = self.round_trip.map_or(self.wait_max, |(smooth, deviation)| smooth * 2 + deviation * DEVIATIONS);
        usual.clamp(self.wait_min, self.wait_max)
    }

    /// A member was added in `place`: its turn comes somewhere in this round.
    pub(crate) fn handle_added(&mut self, place: usize, chance: &mut Chance) {
        let place = u32::try_from(place).expect("the number of members has a limit far below 2^32");
        let at = self.cursor + chance.below(self.order.len() - self.cursor + 1);
        self.order.push(place);
        let last = self.order.len() - 1;
        self.order.swap(at, last);
    }

    /// A member was removed, so that there are `count` now and their places have changed.
    pub(crate) fn handle_removed(&mut self, count: usize, chance: &mut Chance) {
        self.order = (0..count).map(|place| u32::try_from(place).expect("it was a place before")).collect();
        chance.shuffle(&mut self.order);
        self.cursor = 0;
    }

    /// The place of the member whose turn it is.
    pub(crate) fn next_place(&mut self, chance: &mut Chance) -> Option<usize> {
        if self.cursor >= self.order.len() {
            chance.shuffle(&mut self.order);
            self.cursor = 0;
        }
        let place = self.order.get(self.cursor)?;
        self.cursor += 1;
        usize::try_from(*place).ok()
    }

    /// A probe is sent; its token, unless too many are under way.
    pub(crate) fn begin(&mut self, target: ServerId, cause: Cause, now: Instant) -> Option<u32> {
        if self.probes.len() >= PROBES_MAX {
            return None;
        }
        let token = self.next_token;
        self.next_token = token.wrapping_add(1);
        // Deadlines never go back, so that the queue is sorted by them.
        let deadline = self.probes.back().map_or(now, |last| last.deadline).max(now + self.wait());
        self.probes.push_back(Probe { target, token, sent_at: now, cause, deadline, answered: false });
        Some(token)
    }

    /// An answer came. The probe, if it was asked, of this member, and not answered before.
    pub(crate) fn handle_answer(&mut self, from: ServerId, token: u32, now: Instant, replay: bool) -> Option<Probe> {
        let first = self.probes.front()?.token;
        let place = usize::try_from(token.wrapping_sub(first)).ok()?;
        let probe = self.probes.get_mut(place).filter(|probe| probe.target == from && (!probe.answered || replay))?;
        probe.answered = true;
        let probe = *probe;
        // Nothing is to be done at the end of its time.
        while self.probes.pop_front_if(|first| first.answered).is_some() {}
        let sample = now.saturating_since(probe.sent_at);
        self.round_trip = Some(self.round_trip.map_or((sample, sample / 2), |(smooth, deviation)| {
            let off = sample.max(smooth) - sample.min(smooth);
            ((smooth * 7 + sample) / 8, (deviation * 3 + off) / 4)
        }));
        Some(probe)
    }

    /// Others were asked to probe a member on behalf of the probe with this token.
    pub(crate) fn begin_indirect(
        &mut self,
        target: ServerId,
        token: u32,
        since: Instant,
        in_doubt: bool,
        now: Instant,
    ) {
        if self.indirect.len() < PROBES_MAX {
            let deadline = self.indirect.back().map_or(now, |last| last.deadline).max(now + self.wait() * 3);
            self.indirect.push_back(Indirect { target, token, since, in_doubt, deadline, heard: false });
        }
    }

    /// Somebody says that a member has answered. Whether it was asked about.
    pub(crate) fn handle_heard(&mut self, target: ServerId, token: u32, replay: bool) -> bool {
        let asked = self.indirect.iter_mut().find(|asked| asked.target == target && asked.token == token);
        // Several were asked, and each may say so.
        asked.is_some_and(|asked| {
            asked.heard = true;
            true
        }) || replay
    }

    /// The next probe whose time is over and that nobody has answered.
    pub(crate) fn poll_silent(&mut self, now: Instant) -> Option<Probe> {
        while let Some(probe) = self.probes.front().copied().filter(|probe| probe.answered || probe.deadline <= now) {
            self.probes.pop_front();
            if !probe.answered {
                return Some(probe);
            }
        }
        None
    }

    /// The next member whose indirect probes are over and that nobody has heard.
    pub(crate) fn poll_unheard(&mut self, now: Instant) -> Option<Indirect> {
        while let Some(asked) = self.indirect.front().copied().filter(|asked| asked.heard || asked.deadline <= now) {
            self.indirect.pop_front();
            if !asked.heard {
                return Some(asked);
            }
        }
        None
    }

    /// When something is over next.
    pub(crate) fn next_deadline(&self) -> Instant {
        let probe = self.probes.front().map_or(Instant::NEVER, |probe| probe.deadline);
        probe.min(self.indirect.front().map_or(Instant::NEVER, |asked| asked.deadline))
    }

    /// This process was stopped for a while: answers may lie in its sockets, so everything gets that much longer.
    pub(crate) fn handle_stall(&mut self, span: Duration) {
        self.probes.iter_mut().for_each(|probe| probe.deadline = probe.deadline + span);
        self.indirect.iter_mut().for_each(|asked| asked.deadline = asked.deadline + span);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    const fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn id(number: u8) -> ServerId {
        ServerId::from_bytes([number; 16])
    }

    fn prober() -> Prober {
        Prober::new(Duration::from_millis(100), Duration::from_millis(500), u32::MAX - 1)
    }

    #[test]
    fn everybody_has_a_turn_in_each_round() {
        let (mut prober, mut chance) = (prober(), Chance::new(1));
        assert_eq!(prober.next_place(&mut chance), None);
        (0..10).for_each(|place| prober.handle_added(place, &mut chance));
        for _ in 0..3 {
            let round: BTreeSet<_> = (0..10).filter_map(|_| prober.next_place(&mut chance)).collect();
            assert_eq!(round.len(), 10);
        }
        let mut round: BTreeSet<_> = (0..4).filter_map(|_| prober.next_place(&mut chance)).collect();
        prober.handle_added(10, &mut chance);
        round.extend((0..7).filter_map(|_| prober.next_place(&mut chance)));
        assert_eq!(round.len(), 11, "a newcomer has its turn in the round in which it came");
        prober.handle_removed(5, &mut chance);
        let round: BTreeSet<_> = (0..5).filter_map(|_| prober.next_place(&mut chance)).collect();
        assert_eq!(round, (0..5).collect());
    }

    #[test]
    fn a_newcomer_may_have_any_of_the_turns_that_are_left() {
        let turns: BTreeSet<_> = (0..100)
            .map(|seed| {
                let (mut prober, mut chance) = (prober(), Chance::new(seed));
                (0..4).for_each(|place| prober.handle_added(place, &mut chance));
                (0..2).for_each(|_| assert!(prober.next_place(&mut chance).is_some()));
                prober.handle_added(4, &mut chance);
                (0..3).position(|_| prober.next_place(&mut chance) == Some(4))
            })
            .collect();
        assert_eq!(turns, [0, 1, 2].map(Some).into());
    }

    #[test]
    fn only_the_first_answer_of_the_one_who_was_asked_counts() {
        let mut prober = prober();
        let tokens: Vec<u32> = (1..=3).filter_map(|number| prober.begin(id(number), Cause::Turn, at(0))).collect();
        assert_eq!(tokens, [u32::MAX - 1, u32::MAX, 0], "tokens wrap");
        assert!(prober.handle_answer(id(1), tokens[1], at(1), false).is_none());
        assert!(prober.handle_answer(id(2), tokens[1], at(1), false).is_some());
        assert!(prober.handle_answer(id(2), tokens[1], at(1), false).is_none());
        assert!(prober.handle_answer(id(2), 77, at(1), false).is_none());
        let silent: Vec<_> = core::iter::from_fn(|| prober.poll_silent(at(500))).map(|probe| probe.target).collect();
        assert_eq!(silent, [id(1), id(3)]);
        assert_eq!(prober.next_deadline(), Instant::NEVER);
    }

    #[test]
    fn patience_follows_the_round_trip_between_its_bounds() {
        let mut prober = prober();
        assert_eq!(prober.wait(), Duration::from_millis(500));
        for (round_trip, expected) in [(1, 100..=100), (100, 200..=400), (400, 500..=500)] {
            for turn in 0..100 {
                let token = prober.begin(id(1), Cause::Turn, at(turn * 1_000)).unwrap();
                prober.handle_answer(id(1), token, at(turn * 1_000 + round_trip), false);
                assert!(prober.poll_silent(at(turn * 1_000 + 999)).is_none());
            }
            assert!(expected.contains(&prober.wait().as_millis()), "{round_trip}: {:?}", prober.wait());
        }
    }

    #[test]
    fn patience_is_two_round_trips_and_eight_deviations() {
        let mut prober = prober();
        let micros = |micros: u64| Instant::from_nanos(micros * 1_000);
        for (turn, round_trip, wait) in [(1, 40_000, 240_000), (2, 80_000, 290_000), (3, 20_000, 283_750)] {
            let token = prober.begin(id(1), Cause::Turn, micros(turn * 1_000_000)).unwrap();
            prober.handle_answer(id(1), token, micros(turn * 1_000_000 + round_trip), false);
            assert_eq!(prober.wait(), Duration::from_micros(wait), "{turn}");
        }
    }

    #[test]
    fn so_many_probes_are_under_way_and_no_more() {
        let mut prober = prober();
        for number in 0..=PROBES_MAX {
            assert_eq!(prober.begin(id(1), Cause::Doubt, at(0)).is_some(), number < PROBES_MAX);
            prober.begin_indirect(id(1), 7, at(0), false, at(0));
        }
        assert_eq!(core::iter::from_fn(|| prober.poll_unheard(at(1_500))).count(), PROBES_MAX);
    }

    #[test]
    fn silence_after_indirect_probes_is_reported_once() {
        let mut prober = prober();
        prober.begin_indirect(id(1), 5, at(0), false, at(100));
        prober.begin_indirect(id(2), 6, at(0), false, at(100));
        assert!(prober.handle_heard(id(2), 6, false) && !prober.handle_heard(id(2), 5, false));
        assert!(prober.poll_unheard(at(1_599)).is_none());
        let unheard: Vec<_> =
            core::iter::from_fn(|| prober.poll_unheard(at(1_600))).map(|asked| asked.target).collect();
        assert_eq!(unheard, [id(1)]);
    }

    #[test]
    fn a_stop_of_this_process_is_not_held_against_anybody() {
        let mut prober = prober();
        prober.begin(id(1), Cause::Turn, at(0));
        prober.begin_indirect(id(1), 5, at(0), false, at(0));
        prober.handle_stall(Duration::from_secs(3));
        assert!(prober.poll_silent(at(3_400)).is_none() && prober.poll_silent(at(3_500)).is_some());
        assert!(prober.poll_unheard(at(4_499)).is_none() && prober.poll_unheard(at(4_500)).is_some());
    }
}
