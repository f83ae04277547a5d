//! From silence to failure: doubts, suspicions, reports of voters, quorum, clearing.
//!
//! A *doubt* is a member that answered neither a direct nor an indirect probe. It is sent to voters at once. Each voter probes
//! the doubted member itself, and after the member timeout without a sign of life, counted from the first probe that went
//! unanswered or from its own last sign of life, whichever is later, it *suspects* the member (PFAIL) and reports that to the
//! other voters. A voter that suspects a member, and has valid reports from a majority, its own included, declares it
//! failed (FAIL). Any sign of life ends a doubt, and withdraws the report.
//!
//! Reports are a bit per voter in two buckets of time: a report is valid for one to two member timeouts, without a timer
//! each. They name how often the member has refuted a failure; a refutation voids what was reported before.
//!
//! What this does not do: send, or decide what a failure means. It says what is due.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;

use crate::voters::{Tally, Voters};

/// A member that is watched because it was silent.
#[derive(Debug, Clone)]
pub(crate) struct Doubt {
    /// When its silence began.
    pub(crate) since: Instant,
    /// When this member began to watch it.
    begun: Instant,
    /// Own probes that went to it.
    probes: u32,
    next_probe: Instant,
    /// Rounds of indirect probes that were asked for.
    asked: usize,
    /// Whether this member suspects it.
    pub(crate) suspected: bool,
    next_report: Instant,
    report_gap: Duration,
    /// How often this voter has reported it to those who vote now.
    pub(crate) reported: u32,
}

/// Reports of voters about one member.
#[derive(Debug, Clone, Copy, Default)]
struct Reports {
    refuted: u64,
    now: Tally,
    before: Tally,
    turned_at: Instant,
}

impl Reports {
    fn turn(&mut self, now: Instant, timeout: Duration) {
        let age = now.saturating_since(self.turned_at);
        if age >= timeout {
            self.before = if age >= timeout * 2 { Tally::default() } else { self.now };
            self.now = Tally::default();
            self.turned_at = now;
        }
    }

    fn valid(&self) -> Tally {
        self.now.with(self.before)
    }
}

/// What is due for a doubted member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// Probe it.
    Probe,
    /// Probe it, and ask others to.
    ProbeAndAsk,
}

/// What [`Suspicion::poll`] found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) probes: Vec<(ServerId, Due)>,
    /// Suspected from now on, with the length of their silence.
    pub(crate) suspected: Vec<(ServerId, Duration)>,
    /// To be reported to the voters, those that are newly suspected included.
    pub(crate) reports: Vec<ServerId>,
    /// No more doubted, because nobody can say anything about them here.
    pub(crate) expired: Vec<ServerId>,
}

/// Own probes of a doubted member are at least this far apart.
const PROBE_GAP_MIN: Duration = Duration::from_millis(100);
/// Doubts are looked at no more often than this, so that what is due together is done together.
const POLL_GAP_MIN: Duration = Duration::from_millis(20);
/// Own probes that must have gone unanswered before a suspicion.
const PROBES_MIN: u32 = 3;
/// Shares of the timeout, in hundredths, after which others are asked to probe.
const ASK_AT: [u32; 3] = [30, 60, 85];
/// A report is repeated after this, then after twice as long, and so on up to half of the timeout: it is never out of date.
const REPORT_GAP_MIN: Duration = Duration::from_millis(200);
/// For how long after a stop of this process reports do not count: they are repeated, and what comes first was sent before.
const DEAF_TIME: Duration = REPORT_GAP_MIN;
/// Who does not vote forgets a doubt after this.
const BYSTANDER_TIME: Duration = Duration::from_secs(3);

/// All doubts and reports.
#[derive(Debug, Clone, Default)]
pub(crate) struct Suspicion {
    doubts: BTreeMap<ServerId, Doubt>,
    reports: BTreeMap<ServerId, Reports>,
    next_poll: Option<Instant>,
    /// Reports that come before this may be as old as a stop of this process: they lay in its sockets.
    deaf_until: Option<Instant>,
}

impl Suspicion {
    pub(crate) fn doubt(&self, id: ServerId) -> Option<&Doubt> {
        self.doubts.get(&id)
    }

    pub(crate) fn len(&self) -> usize {
        self.doubts.len()
    }

    /// How many members have been silent for at least `span`, not yet suspected.
    pub(crate) fn silent_for(&self, span: Duration, now: Instant) -> usize {
        self.doubts.values().filter(|doubt| !doubt.suspected && now.saturating_since(doubt.since) >= span).count()
    }

    /// A member has been silent since `since`. Whether that is new; the earlier beginning counts.
    pub(crate) fn begin(&mut self, id: ServerId, since: Instant, now: Instant) -> bool {
        self.next_poll = Some(self.next_poll.map_or(now, |at| at.min(now + POLL_GAP_MIN)));
        if let Some(doubt) = self.doubts.get_mut(&id) {
            doubt.since = doubt.since.min(since);
            return false;
        }
        let doubt = Doubt {
            since,
            begun: now,
            probes: 0,
            next_probe: now,
            asked: 0,
            suspected: false,
            next_report: now,
            report_gap: REPORT_GAP_MIN,
            reported: 0,
        };
        self.doubts.insert(id, doubt);
        true
    }

    /// A member has said that it stops: it is suspected without a time of silence.
    pub(crate) fn handle_left(&mut self, id: ServerId, now: Instant) {
        self.begin(id, now, now);
        self.next_poll = Some(now);
        if let Some(doubt) = self.doubts.get_mut(&id) {
            (doubt.suspected, doubt.next_report) = (true, now);
        }
    }

    /// A sign of life, or a reason not to care any more. The doubt, if there was one.
    pub(crate) fn end(&mut self, id: ServerId) -> Option<Doubt> {
        self.reports.remove(&id);
        self.doubts.remove(&id)
    }

    /// A voter suspects a member that has refuted `refuted` failures.
    pub(crate) fn handle_report(
        &mut self,
        voters: &Voters,
        from: ServerId,
        about: ServerId,
        refuted: u64,
        now: Instant,
        timeout: Duration,
    ) {
        if self.deaf_until.is_some_and(|until| now < until) {
            return;
        }
        let reports = self.reports.entry(about).or_insert(Reports { turned_at: now, ..Reports::default() });
        if refuted > reports.refuted {
            *reports = Reports { refuted, turned_at: now, ..Reports::default() };
        }
        if refuted == reports.refuted {
            reports.turn(now, timeout);
            voters.add(&mut reports.now, from);
        }
    }

    /// A voter has heard the member again.
    pub(crate) fn handle_withdrawn(&mut self, voters: &Voters, from: ServerId, about: ServerId) {
        if let Some(reports) = self.reports.get_mut(&about) {
            voters.take_out(&mut reports.now, from);
            voters.take_out(&mut reports.before, from);
        }
    }

    /// The voters whose report about a member is valid.
    pub(crate) fn reports(&mut self, about: ServerId, now: Instant, timeout: Duration) -> Tally {
        self.reports.get_mut(&about).map_or(Tally::default(), |reports| {
            reports.turn(now, timeout);
            reports.valid()
        })
    }

    /// Positions of voters have changed, so nothing reported under the old ones means anything; suspicions are reported anew.
    pub(crate) fn handle_voters_changed(&mut self, now: Instant) {
        self.reports.clear();
        for doubt in self.doubts.values_mut() {
            (doubt.next_report, doubt.report_gap, doubt.reported) = (now, REPORT_GAP_MIN, 0);
        }
        self.look_again(now);
    }

    /// This process was stopped for a while: that silence was its own. Whoever was suspected before may be well for long, and
    /// reports of that time may lie in the sockets before its signs of life: it is probed again before it is suspected again,
    /// and such reports do not count. Those that are not suspected any more.
    pub(crate) fn handle_stall(&mut self, span: Duration, now: Instant) -> Vec<ServerId> {
        self.deaf_until = Some(now + DEAF_TIME);
        let mut withdrawn = Vec::new();
        for (id, doubt) in &mut self.doubts {
            doubt.since = (doubt.since + span).min(now);
            doubt.next_probe = now;
            if core::mem::take(&mut doubt.suspected) {
                withdrawn.push(*id);
                (doubt.begun, doubt.probes) = (now, 0);
            } else {
                doubt.begun = (doubt.begun + span).min(now);
            }
        }
        self.look_again(now);
        withdrawn
    }

    /// Something may be due sooner than it was thought.
    fn look_again(&mut self, now: Instant) {
        self.next_poll = self.next_poll.map(|at| at.min(now));
    }

    /// A majority is in reach again, after it was not: whoever was cut off cannot say who else was silent meanwhile.
    pub(crate) fn handle_regained(&mut self, now: Instant) -> Vec<ServerId> {
        let mut withdrawn = Vec::new();
        for (id, doubt) in &mut self.doubts {
            if core::mem::take(&mut doubt.suspected) {
                withdrawn.push(*id);
            }
            (doubt.since, doubt.begun, doubt.probes, doubt.asked, doubt.next_probe) = (now, now, 0, 0, now);
        }
        self.look_again(now);
        withdrawn
    }

    /// When to call [`Suspicion::poll`].
    pub(crate) fn next_poll(&self) -> Instant {
        self.next_poll.unwrap_or(Instant::NEVER)
    }

    /// What is due now. `wait` is how long an answer may take; `watches`: whether this member watches doubted members to the
    /// end, as voters do. `unprobed` is a planted bug.
    pub(crate) fn poll(
        &mut self,
        now: Instant,
        timeout: Duration,
        wait: Duration,
        watches: bool,
        unprobed: bool,
    ) -> Found {
        let mut found = Found::default();
        let mut next = Instant::NEVER;
        for (id, doubt) in &mut self.doubts {
            if !watches {
                if now >= doubt.begun + BYSTANDER_TIME {
                    found.expired.push(*id);
                }
                next = next.min(doubt.begun + BYSTANDER_TIME);
                continue;
            }
            let silent = now.saturating_since(doubt.since);
            let asked_enough = unprobed || doubt.probes >= PROBES_MIN && now >= doubt.begun + wait * 4;
            if !doubt.suspected && silent >= timeout && asked_enough {
                doubt.suspected = true;
                doubt.next_report = now;
                found.suspected.push((*id, silent));
            }
            if doubt.suspected && now >= doubt.next_report {
                doubt.next_report = now + doubt.report_gap;
                doubt.report_gap = (doubt.report_gap * 2).min(timeout / 2);
                doubt.reported = doubt.reported.saturating_add(1);
                found.reports.push(*id);
            }
            if now >= doubt.next_probe && !unprobed {
                found.probes.push((*id, doubt.due(silent, timeout)));
                doubt.probes += 1;
                doubt.next_probe = now + doubt.probe_gap(timeout, wait);
            }
            next = next.min(doubt.due_at(timeout, wait, unprobed));
        }
        found.expired.iter().for_each(|id| {
            self.doubts.remove(id);
        });
        self.next_poll = (!self.doubts.is_empty()).then_some(next.max(now + POLL_GAP_MIN));
        self.reports.retain(|_, reports| now.saturating_since(reports.turned_at) < timeout * 2);
        found
    }
}

impl Doubt {
    /// When something is due for it next.
    fn due_at(&self, timeout: Duration, wait: Duration, unprobed: bool) -> Instant {
        let probe = if unprobed { Instant::NEVER } else { self.next_probe };
        let other = match self.suspected {
            true => self.next_report,
            false if unprobed => self.since + timeout,
            false if self.probes < PROBES_MIN => Instant::NEVER,
            false => (self.since + timeout).max(self.begun + wait * 4),
        };
        probe.min(other)
    }

    fn due(&mut self, silent: Duration, timeout: Duration) -> Due {
        let passed = ASK_AT.iter().filter(|share| silent >= timeout * **share / 100).count();
        if passed > self.asked {
            self.asked = passed;
            return Due::ProbeAndAsk;
        }
        Due::Probe
    }

    fn probe_gap(&self, timeout: Duration, wait: Duration) -> Duration {
        match self.probes {
            0..PROBES_MIN => wait,
            _ if self.suspected => (timeout / 4).max(PROBE_GAP_MIN),
            _ => (timeout / 15).max(PROBE_GAP_MIN),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::voters::{Origin, VoterSet};
    use ashlar_wire::epoch::Epoch;

    const TIMEOUT: Duration = Duration::from_secs(15);
    const WAIT: Duration = Duration::from_millis(100);

    const fn at(ms: u64) -> Instant {
        Instant::from_nanos(100_000_000_000 + ms * 1_000_000)
    }

    fn id(number: u8) -> ServerId {
        ServerId::from_bytes([number; 16])
    }

    fn voters() -> Voters {
        let mut voters = Voters::default();
        let ids = (1..=5).map(id).collect();
        voters.hear(
            &VoterSet {
                epoch: Epoch(1),
                origin: Origin::Told,
                after: Epoch::ZERO,
                floor: Epoch::ZERO,
                voters: ids,
                previous: Vec::new(),
                forgetful: Vec::new(),
                previous_forgetful: Vec::new(),
            },
            id(1),
        );
        voters
    }

    /// When a member is suspected whose silence began at 0 and is watched from `begun` on.
    fn suspected_at(begun: u64) -> u64 {
        let mut suspicion = Suspicion::default();
        assert!(suspicion.begin(id(9), at(0), at(begun)));
        assert!(!suspicion.begin(id(9), at(50), at(begun)));
        loop {
            let now = suspicion.next_poll();
            let found = suspicion.poll(now, TIMEOUT, WAIT, true, false);
            if !found.suspected.is_empty() {
                assert_eq!(found.reports, [id(9)]);
                return now.saturating_since(at(0)).as_millis().try_into().unwrap();
            }
        }
    }

    #[test]
    fn suspected_after_the_timeout_and_own_probes() {
        assert_eq!(suspected_at(400), 15_000);
        assert_eq!(suspected_at(14_900), 15_300);
        assert_eq!(suspected_at(20_000), 20_400);
    }

    #[test]
    fn reports_count_once_a_voter_and_expire() {
        let (voters, mut suspicion) = (voters(), Suspicion::default());
        let count = |suspicion: &mut Suspicion, now| suspicion.reports(id(9), now, TIMEOUT).present.count_ones();
        for from in [1, 2, 2, 7] {
            suspicion.handle_report(&voters, id(from), id(9), 0, at(0), TIMEOUT);
        }
        assert_eq!(count(&mut suspicion, at(0)), 2);
        suspicion.handle_report(&voters, id(3), id(9), 0, at(15_000), TIMEOUT);
        assert_eq!(count(&mut suspicion, at(29_000)), 3);
        assert_eq!(count(&mut suspicion, at(30_000)), 1);
        suspicion.handle_withdrawn(&voters, id(3), id(9));
        assert_eq!(count(&mut suspicion, at(30_000)), 0);
    }

    #[test]
    fn a_refutation_voids_what_was_reported_before() {
        let (voters, mut suspicion) = (voters(), Suspicion::default());
        for (from, refuted, expected) in [(1, 0, 1), (2, 0, 2), (3, 1, 1), (4, 0, 1), (4, 1, 2)] {
            suspicion.handle_report(&voters, id(from), id(9), refuted, at(0), TIMEOUT);
            assert_eq!(suspicion.reports(id(9), at(0), TIMEOUT).present.count_ones(), expected);
        }
    }

    #[test]
    fn reports_that_lay_in_sockets_during_a_stop_do_not_count() {
        let (voters, mut suspicion) = (voters(), Suspicion::default());
        suspicion.handle_stall(Duration::from_secs(20), at(0));
        let mut count = |ms| {
            suspicion.handle_report(&voters, id(1), id(9), 0, at(ms), TIMEOUT);
            suspicion.reports(id(9), at(ms), TIMEOUT).present.count_ones()
        };
        assert_eq!([count(0), count(199), count(200)], [0, 0, 1]);
    }

    #[test]
    fn a_stop_of_this_process_is_not_held_against_anybody() {
        let mut suspicion = Suspicion::default();
        suspicion.begin(id(9), at(0), at(300));
        for ms in (300..5_000).step_by(100) {
            suspicion.poll(at(ms), TIMEOUT, WAIT, true, false);
        }
        assert_eq!(suspicion.handle_stall(Duration::from_secs(20), at(25_000)), []);
        assert!(suspicion.poll(at(25_000), TIMEOUT, WAIT, true, false).suspected.is_empty());
        assert!(suspicion.poll(at(34_900), TIMEOUT, WAIT, true, false).suspected.is_empty());
        assert_eq!(suspicion.poll(at(35_000), TIMEOUT, WAIT, true, false).suspected.len(), 1);
        // Another stop: the suspicion is one no more until own probes have gone unanswered again.
        assert_eq!(suspicion.handle_stall(Duration::from_secs(20), at(60_000)), [id(9)]);
        assert_eq!(suspicion.handle_stall(Duration::from_secs(1), at(60_000)), []);
        let mut suspected = (60_000..70_000).step_by(100).filter(|ms| {
            let found = suspicion.poll(at(*ms), TIMEOUT, WAIT, true, false);
            !found.suspected.is_empty()
        });
        assert_eq!(suspected.next(), Some(60_400));
    }

    #[test]
    fn who_was_cut_off_begins_anew() {
        let mut suspicion = Suspicion::default();
        suspicion.begin(id(9), at(0), at(0));
        for ms in (0..20_000).step_by(100) {
            suspicion.poll(at(ms), TIMEOUT, WAIT, true, false);
        }
        assert_eq!(suspicion.handle_regained(at(20_000)), [id(9)]);
        assert_eq!(suspicion.handle_regained(at(20_000)), []);
        let mut suspected = (20_000..40_000).step_by(100).filter(|ms| {
            let found = suspicion.poll(at(*ms), TIMEOUT, WAIT, true, false);
            !found.suspected.is_empty()
        });
        assert_eq!(suspected.next(), Some(35_000));
    }

    #[test]
    fn bystanders_forget_and_reports_are_repeated() {
        let mut suspicion = Suspicion::default();
        suspicion.begin(id(9), at(0), at(0));
        assert!(suspicion.poll(at(2_900), TIMEOUT, WAIT, false, false).expired.is_empty());
        assert_eq!(suspicion.poll(at(3_000), TIMEOUT, WAIT, false, false).expired, [id(9)]);
        suspicion.begin(id(9), at(0), at(0));
        let reports = (0..400_u64).filter(|tick| {
            let found = suspicion.poll(at(tick * 100), TIMEOUT, WAIT, true, false);
            !found.reports.is_empty()
        });
        let times: Vec<u64> = reports.take(5).collect();
        assert_eq!(times, [150, 152, 156, 164, 180]);
        assert!(suspicion.end(id(9)).is_some_and(|doubt| doubt.suspected));
        assert_eq!(suspicion.next_poll(), at(18_950), "when it is probed again");
    }

    /// When a voter that looks exactly when it should has something to do about a member whose silence began at 0, and what. It
    /// begins to watch at `begun`.
    fn actions(begun: u64, timeout: Duration, until: u64) -> Vec<(u64, &'static str)> {
        let mut suspicion = Suspicion::default();
        suspicion.begin(id(9), at(0), at(begun));
        let mut actions = Vec::new();
        loop {
            let now = suspicion.next_poll();
            let ms = now.saturating_since(at(0)).as_millis().try_into().unwrap();
            if ms > until {
                return actions;
            }
            let found = suspicion.poll(now, timeout, WAIT, true, false);
            let suspected = found.suspected.iter().map(|(_, silent)| {
                assert_eq!(*silent, now.saturating_since(at(0)));
                "suspect"
            });
            let probes = found.probes.iter().map(|(_, due)| if *due == Due::Probe { "probe" } else { "ask" });
            let before = actions.len();
            actions.extend(
                suspected.chain(found.reports.iter().map(|_| "report")).chain(probes).map(|action| (ms, action)),
            );
            assert!(actions.len() > before, "nothing is due at {ms}");
        }
    }

    #[test]
    fn a_doubted_member_is_probed_asked_for_suspected_and_reported_at_set_times() {
        let mut expected: Vec<_> = [400, 500, 600].map(|ms| (ms, "probe")).into();
        expected.extend(
            (1..=14).map(|second| (second * 1_000 + 600, if [4, 9, 13].contains(&second) { "ask" } else { "probe" })),
        );
        expected.extend([
            (15_000, "suspect"),
            (15_000, "report"),
            (15_200, "report"),
            (15_600, "report"),
            (15_600, "probe"),
        ]);
        expected.extend([
            (16_400, "report"),
            (18_000, "report"),
            (19_350, "probe"),
            (21_200, "report"),
            (23_100, "probe"),
        ]);
        expected.extend([
            (26_850, "probe"),
            (27_600, "report"),
            (30_600, "probe"),
            (34_350, "probe"),
            (35_100, "report"),
        ]);
        assert_eq!(actions(400, TIMEOUT, 36_000), expected);
        // A short timeout: probes keep a distance, and whoever begins late waits for its own probes.
        let expected: [(u64, &str); 11] = [
            (900, "ask"),
            (1_000, "probe"),
            (1_100, "probe"),
            (1_200, "probe"),
            (1_300, "suspect"),
            (1_300, "report"),
            (1_300, "probe"),
            (1_425, "probe"),
            (1_500, "report"),
            (1_550, "probe"),
            (1_675, "probe"),
        ];
        assert_eq!(actions(900, Duration::from_millis(500), 1_700), expected);
    }

    #[test]
    fn a_suspicion_needs_three_own_probes_and_the_time_of_four_answers() {
        for (polls, suspected) in
            [(&[0, 100, 200, 300, 399, 400][..], Some(400)), (&[500, 600, 700, 720], Some(720)), (&[500, 10_000], None)]
        {
            let mut suspicion = Suspicion::default();
            suspicion.begin(id(9), Instant::ORIGIN, at(0));
            let mut polls = polls.iter().copied();
            let found = polls.find(|ms| !suspicion.poll(at(*ms), TIMEOUT, WAIT, true, false).suspected.is_empty());
            assert_eq!(found, suspected);
        }
        let mut late = Suspicion::default();
        late.begin(id(9), Instant::ORIGIN, at(0));
        late.poll(at(500), TIMEOUT, WAIT, true, false);
        assert_eq!(late.next_poll(), at(600), "there is nothing to do before the next probe");
    }

    #[test]
    fn what_is_due_together_is_looked_at_together() {
        let mut suspicion = Suspicion::default();
        assert_eq!(suspicion.next_poll(), Instant::NEVER);
        suspicion.begin(id(8), at(0), at(0));
        assert_eq!(suspicion.next_poll(), at(0));
        suspicion.poll(at(0), TIMEOUT, WAIT, true, false);
        suspicion.begin(id(9), at(0), at(30));
        assert_eq!(suspicion.next_poll(), at(50), "somewhat later");
        suspicion.poll(at(90), TIMEOUT, WAIT, true, false);
        assert_eq!(suspicion.next_poll(), at(110), "one is due at 100");
        suspicion.poll(at(110), TIMEOUT, WAIT, false, false);
        assert_eq!(suspicion.next_poll(), at(3_000), "a bystander has nothing to do before it forgets the first");
        suspicion.handle_left(id(7), at(200));
        assert_eq!(suspicion.next_poll(), at(200), "a goodbye does not wait");
        assert_eq!(suspicion.poll(at(3_030), TIMEOUT, WAIT, false, false).expired, [id(8), id(9)]);
        suspicion.poll(at(3_050), TIMEOUT, WAIT, false, false);
        assert_eq!((suspicion.len(), suspicion.next_poll()), (1, at(3_200)));
        suspicion.handle_stall(Duration::ZERO, at(3_100));
        assert_eq!(suspicion.next_poll(), at(3_100), "after a stop it is looked at again");
        suspicion.poll(at(3_100), TIMEOUT, WAIT, false, false);
        suspicion.handle_regained(at(3_130));
        assert_eq!(suspicion.next_poll(), at(3_130), "and where a majority is in reach again");
    }

    #[test]
    fn those_are_silent_for_a_while_who_are_not_suspected_yet() {
        let mut suspicion = Suspicion::default();
        suspicion.begin(id(7), at(0), at(0));
        suspicion.begin(id(8), at(500), at(500));
        suspicion.handle_left(id(9), at(0));
        let silent = |ms| suspicion.silent_for(Duration::from_millis(ms), at(1_000));
        assert_eq!([0, 500, 501, 1_000, 1_001].map(silent), [2, 2, 1, 1, 0]);
    }

    #[test]
    fn time_under_watch_does_not_count_while_this_process_was_stopped() {
        let mut suspicion = Suspicion::default();
        suspicion.begin(id(9), Instant::ORIGIN, at(0));
        for ms in [0, 100, 200] {
            suspicion.poll(at(ms), TIMEOUT, WAIT, true, false);
        }
        suspicion.handle_stall(Duration::from_secs(10), at(10_300));
        let suspected =
            [10_300, 10_399, 10_400].map(|ms| suspicion.poll(at(ms), TIMEOUT, WAIT, true, false).suspected.len());
        assert_eq!(suspected, [0, 0, 1]);
    }

    #[test]
    fn other_voters_hear_all_suspicions_anew() {
        let (voters, mut suspicion) = (voters(), Suspicion::default());
        suspicion.handle_left(id(9), at(0));
        let reported = |suspicion: &mut Suspicion, ms| suspicion.poll(at(ms), TIMEOUT, WAIT, true, false).reports;
        for ms in [0, 200, 600] {
            assert_eq!(reported(&mut suspicion, ms), [id(9)], "{ms}");
        }
        assert_eq!(suspicion.doubt(id(9)).map(|doubt| doubt.reported), Some(3));
        suspicion.handle_report(&voters, id(2), id(9), 0, at(600), TIMEOUT);
        suspicion.handle_voters_changed(at(700));
        assert_eq!(suspicion.reports(id(9), at(700), TIMEOUT), Tally::default(), "their places are others now");
        assert_eq!(suspicion.next_poll(), at(700));
        for (ms, expected) in [(700, 1), (899, 1), (900, 2), (1_299, 2), (1_300, 3)] {
            reported(&mut suspicion, ms);
            assert_eq!(suspicion.doubt(id(9)).map(|doubt| doubt.reported), Some(expected), "{ms}");
        }
    }

    #[test]
    fn reports_are_valid_for_one_to_two_timeouts_also_soon_after_the_clock_began() {
        let early = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        for refuted in [0, 1] {
            let (voters, mut suspicion) = (voters(), Suspicion::default());
            suspicion.handle_report(&voters, id(1), id(9), refuted, early(10_000), TIMEOUT);
            let counted = [15_000, 24_999, 30_000, 44_999, 45_000]
                .map(|ms| suspicion.reports(id(9), early(ms), TIMEOUT).present.count_ones());
            assert_eq!(counted, [1, 1, 1, 1, 0], "{refuted}");
        }
        // What is out of date is kept for nobody.
        let (voters, mut suspicion) = (voters(), Suspicion::default());
        suspicion.handle_report(&voters, id(1), id(9), 0, at(0), TIMEOUT);
        let kept = [0, 10_000, 29_999, 30_000].map(|ms| {
            suspicion.poll(at(ms), TIMEOUT, WAIT, true, false);
            suspicion.reports.len()
        });
        assert_eq!(kept, [1, 1, 1, 0]);
    }
}
