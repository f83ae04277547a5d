//! Is the peer alive? Progress is life; silence is asked about before it is believed.
//!
//! Any received byte proves life. After a while of silence a ping goes out ahead of every queue. Its answer may be long
//! in coming for an honest reason: a slow link with bytes of ours before the ping. So the time for the answer runs only
//! while nothing else explains the wait: as long as the ping is not known to have reached the peer's kernel, every
//! byte that the peer's kernel acknowledges counts as life. A frozen process with an empty or a full buffer acknowledges
//! nothing more, and is noticed after [`Timing::silence_max`]. If this process itself was stopped, the time it slept
//! through is not held against the peer.
//!
//! A peer from which nothing is awaited is *at rest*: it is asked less often the more connections this server has, since in a
//! mesh of many servers the pings would be most of what they send. As soon as something is awaited it is asked as soon as any other.
//! Whenever that is, [`Timing::silence_max`] counts from when it would have been asked had it not been at rest: the time without
//! a question is not held against it. Of two sides at rest the one that dialed asks first, and the other has its proof of life by that.

use core::time::Duration;

use ashlar_wire::time::Instant;

use crate::config::Timing;
use crate::frame::Side;

#[derive(Debug, Clone, Copy)]
struct Ping {
    token: u64,
    sent_at: Instant,
    /// Bytes handed to the socket when the ping had been; `None` while it waits here.
    end: Option<u64>,
}

/// What the timer found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing to do before [`Liveness::next_timeout`].
    Fine,
    /// Send a ping with this token, ahead of every queue.
    Ping(u64),
    /// The peer is lost.
    Dead,
}

/// The pulse of one connection.
#[derive(Debug)]
pub struct Liveness {
    silence_max: Duration,
    ping_after: Duration,
    rest_per_connection: Duration,
    rest_max: Duration,
    measure_every: Duration,
    side: Side,
    /// Nothing is awaited from the peer: silence after which it is asked all the same.
    rest: Option<Duration>,
    /// There is reason to doubt the connection: the next ping does not wait for the end of a rest.
    is_doubted: bool,
    /// Last proof of life.
    alive_at: Instant,
    /// From when silence counts against the peer: later than that if it has not been asked in time.
    silent_from: Instant,
    last_check: Instant,
    last_ping: Option<Instant>,
    ping: Option<Ping>,
    next_token: u64,
    /// Bytes that the peer's kernel had acknowledged at the last check.
    acked: u64,
    round_trip: Option<Duration>,
}

/// While an answer is awaited, progress is looked at this often.
const CHECK_EVERY: Duration = Duration::from_millis(250);
/// A timer that is this late means that this process was stopped.
const STALL_MIN: Duration = Duration::from_millis(1_000);
/// More connections than any server has.
const CONNECTIONS_MAX: u32 = 1 << 16;
/// A link with a long round trip is given this many of them.
const ROUND_TRIPS_MAX: u32 = 8;

impl Liveness {
    /// The `side` of a connection that was made at `now`.
    #[must_use]
    pub fn new(side: Side, timing: &Timing, now: Instant) -> Self {
        Self {
            silence_max: timing.silence_max,
            ping_after: timing.ping_after,
            rest_per_connection: timing.rest_per_connection,
            rest_max: timing.rest_max,
            measure_every: timing.measure_every,
            side,
            rest: None,
            is_doubted: false,
            alive_at: now,
            silent_from: now,
            last_check: now,
            // The first ping goes out at once: it measures the round trip.
            last_ping: None,
            ping: None,
            next_token: 0,
            acked: 0,
            round_trip: None,
        }
    }

    /// Bytes were received.
    #[inline]
    pub fn handle_received(&mut self, now: Instant) {
        self.alive_at = self.alive_at.max(now);
        self.silent_from = self.silent_from.max(now);
    }

    /// Nothing is awaited from the peer, and this server has so many connections.
    pub fn handle_rest(&mut self, connections: usize) {
        if self.is_doubted {
            return;
        }
        let each = self.rest_per_connection * u32::try_from(connections).unwrap_or(u32::MAX).min(CONNECTIONS_MAX);
        let rest = each.min(self.rest_max);
        let after_the_other = if self.side == Side::Acceptor { rest / 4 } else { Duration::ZERO };
        self.rest = Some((rest + after_the_other).max(self.ping_after));
    }

    /// Something is awaited from the peer.
    #[inline]
    pub fn handle_awaited(&mut self, now: Instant) {
        // The silence after a ping counts, however long the peer was at rest before.
        if self.rest.take().is_some() && self.ping.is_none() {
            self.count_from_asking(now);
        }
    }

    /// The peer may have lost this connection: it is asked as if something were awaited, and stays so until the ping is sent.
    pub fn handle_doubt(&mut self, now: Instant) {
        self.handle_awaited(now);
        self.is_doubted = self.ping.is_none();
    }

    /// A peer that is asked now has been silent for as long as one that is asked in time, and no longer.
    fn count_from_asking(&mut self, now: Instant) {
        let before = u64::try_from(self.ping_after.as_nanos()).unwrap_or(u64::MAX);
        self.silent_from = self.silent_from.max(Instant::from_nanos(now.as_nanos().saturating_sub(before)));
    }

    /// The ping is in the socket, and `accepted` bytes in all have been handed over since the beginning.
    pub fn handle_ping_written(&mut self, accepted: u64) {
        if let Some(ping) = &mut self.ping {
            ping.end = Some(ping.end.unwrap_or(accepted));
        }
    }

    /// Whether a ping waits to be handed to the socket.
    #[must_use]
    pub fn is_ping_waiting(&self) -> bool {
        self.ping.is_some_and(|ping| ping.end.is_none())
    }

    /// A pong came.
    pub fn handle_pong(&mut self, now: Instant, token: u64) {
        if let Some(ping) = self.ping.filter(|ping| ping.token == token) {
            let sample = now.saturating_since(ping.sent_at);
            self.round_trip = Some(self.round_trip.map_or(sample, |smooth| (smooth * 7 + sample) / 8));
            self.ping = None;
        }
    }

    /// Smoothed round trip, once measured.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }

    /// How long the peer has not been heard.
    #[must_use]
    pub fn silence(&self, now: Instant) -> Duration {
        now.saturating_since(self.alive_at)
    }

    /// Whether the peer was asked and answers later than it should.
    #[must_use]
    pub fn is_suspect(&self, now: Instant) -> bool {
        self.ping.is_some() && now.saturating_since(self.silent_from) > self.ping_after * 2
    }

    fn silence_max(&self) -> Duration {
        self.silence_max.max(self.round_trip.unwrap_or_default() * ROUND_TRIPS_MAX)
    }

    /// Looks at the pulse. `accepted` bytes have been handed to the socket since the beginning, of which `unacked` have
    /// not been acknowledged (`None` where that is not known: then handing over counts as acknowledged).
    pub fn handle_timeout(&mut self, now: Instant, accepted: u64, unacked: Option<u64>) -> Verdict {
        let due = if self.ping.is_some() { self.next_timeout() } else { self.ask_for_silence_at() };
        if now.saturating_since(due) > STALL_MIN {
            self.handle_received(now);
        }
        self.last_check = now;
        let acked = accepted.saturating_sub(unacked.unwrap_or(0));
        if let Some(ping) = self.ping {
            let reached = ping.end.is_some_and(|end| self.acked >= end);
            let ping_alone =
                ping.end.is_some_and(|end| acked >= end && accepted == end) && self.acked + PING_LEN_MAX >= acked;
            if acked > self.acked && !reached && !ping_alone {
                self.handle_received(now);
            }
        }
        self.acked = acked;
        if self.ping.is_some() && now.saturating_since(self.silent_from) >= self.silence_max() {
            return Verdict::Dead;
        }
        if self.ping.is_none() && now >= self.ask_at() {
            self.count_from_asking(now);
            self.is_doubted = false;
            self.next_token += 1;
            self.last_ping = Some(now);
            self.ping = Some(Ping { token: self.next_token, sent_at: now, end: None });
            return Verdict::Ping(self.next_token);
        }
        Verdict::Fine
    }

    /// When to look again.
    #[must_use]
    pub fn next_timeout(&self) -> Instant {
        if self.ping.is_some() {
            return (self.last_check + CHECK_EVERY)
                .min(self.silent_from + self.silence_max())
                .max(self.last_check + CHECK_EVERY / 8);
        }
        self.ask_at()
    }

    /// When the next ping is due, be it for silence or to measure the round trip.
    fn ask_at(&self) -> Instant {
        match (self.last_ping, self.rest) {
            (None, _) => self.last_check,
            (Some(_), Some(_)) => self.ask_for_silence_at(),
            (Some(last), None) => self.ask_for_silence_at().min(last + self.measure_every),
        }
    }

    fn ask_for_silence_at(&self) -> Instant {
        self.silent_from + self.rest.unwrap_or(self.ping_after)
    }
}

/// A ping with its frame is no longer than this: an acknowledgement of only that is no progress of a backlog.
const PING_LEN_MAX: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Instant {
        Instant::from_nanos(1_000_000_000 + ms * 1_000_000)
    }

    /// When a peer is declared lost that falls silent at 0, with `wire(ms)` giving accepted and unacknowledged bytes.
    fn lost_at(wire: impl Fn(u64) -> (u64, Option<u64>)) -> Option<u64> {
        let mut pulse = Liveness::new(Side::Dialer, &Timing::default(), at(0));
        let mut ms = 0;
        while ms < 60_000 {
            let (accepted, unacked) = wire(ms);
            match pulse.handle_timeout(at(ms), accepted, unacked) {
                Verdict::Dead => return Some(ms),
                Verdict::Ping(_) | Verdict::Fine => {}
            }
            // A ping reaches the socket unless the backlog there holds it up.
            if pulse.is_ping_waiting() {
                pulse.handle_ping_written(accepted);
            }
            ms = ms.max((pulse.next_timeout().as_nanos() - at(0).as_nanos()) / 1_000_000).max(ms + 1);
        }
        None
    }

    #[test]
    fn frozen_idle_peer_is_lost_in_time() {
        // Its kernel still acknowledges the ping.
        let lost = lost_at(|ms| if ms == 0 { (0, Some(0)) } else { (30, Some(0)) });
        assert!(lost.is_some_and(|ms| ms <= 3_000), "{lost:?}");
    }

    #[test]
    fn frozen_peer_with_full_buffer_is_lost_in_time() {
        let lost = lost_at(|_| (1_000_000, Some(400_000)));
        assert!(lost.is_some_and(|ms| ms <= 3_000), "{lost:?}");
    }

    #[test]
    fn slow_link_with_a_backlog_lives() {
        // 4 MB in the kernel's buffer, 100 kB/s acknowledged: 40 s without a word from the peer.
        let lost = lost_at(|ms| (4_000_000, Some(4_000_000_u64.saturating_sub(ms * 100))));
        assert!(lost.is_none_or(|ms| ms >= 40_000), "{lost:?}");
    }

    #[test]
    fn a_short_stop_of_an_idle_process_is_not_held_against_the_peer_either() {
        let mut pulse = Liveness::new(Side::Dialer, &Timing::default(), at(0));
        assert!(matches!(pulse.handle_timeout(at(0), 0, Some(0)), Verdict::Ping(_)));
        pulse.handle_ping_written(30);
        pulse.handle_received(at(1));
        pulse.handle_pong(at(1), 1);
        // The next look was due at 901 ms.
        assert!(matches!(pulse.handle_timeout(at(4_500), 30, Some(0)), Verdict::Ping(_) | Verdict::Fine));
    }

    #[test]
    fn a_stop_of_this_process_is_not_held_against_the_peer() {
        let mut pulse = Liveness::new(Side::Dialer, &Timing::default(), at(0));
        assert!(matches!(pulse.handle_timeout(at(0), 0, Some(0)), Verdict::Ping(_)));
        assert_eq!(pulse.handle_timeout(at(20_000), 0, Some(0)), Verdict::Fine);
        pulse.handle_received(at(20_001));
        assert_eq!(pulse.handle_timeout(at(20_250), 0, Some(0)), Verdict::Fine);
    }

    /// A pulse whose first ping was answered at 1 ms, at rest in a mesh of so many connections.
    fn at_rest(side: Side, connections: usize) -> Liveness {
        let mut pulse = Liveness::new(side, &Timing::default(), at(0));
        assert_eq!(pulse.handle_timeout(at(0), 0, Some(0)), Verdict::Ping(1));
        pulse.handle_ping_written(30);
        pulse.handle_received(at(1));
        pulse.handle_pong(at(1), 1);
        pulse.handle_rest(connections);
        pulse
    }

    #[test]
    fn a_peer_at_rest_is_asked_the_less_often_the_more_there_are() {
        let cases = [
            (1, Side::Dialer, 900),
            (12, Side::Dialer, 900),
            (9, Side::Acceptor, 900),
            (59, Side::Dialer, 4_425),
            (59, Side::Acceptor, 5_531),
            (1_999, Side::Dialer, 15_000),
            (usize::MAX, Side::Dialer, 15_000),
        ];
        for (connections, side, after) in cases {
            let mut pulse = at_rest(side, connections);
            assert!(pulse.next_timeout() <= at(1 + after + 1), "{connections}");
            assert_eq!(pulse.handle_timeout(at(after), 30, Some(0)), Verdict::Fine, "{connections}");
            assert_eq!(pulse.handle_timeout(at(after + 2), 30, Some(0)), Verdict::Ping(2), "{connections}");
        }
    }

    #[test]
    fn a_peer_at_rest_has_as_long_for_its_answer_as_any_other() {
        let mut pulse = at_rest(Side::Dialer, 59);
        assert_eq!(pulse.handle_timeout(at(4_430), 30, Some(0)), Verdict::Ping(2));
        pulse.handle_ping_written(60);
        let mut now = 4_430;
        while pulse.handle_timeout(at(now), 60, Some(0)) == Verdict::Fine {
            assert_eq!(pulse.is_suspect(at(now)), now > 5_330, "{now}");
            assert!(pulse.next_timeout() > at(now), "{now}");
            now += 100;
        }
        assert_eq!(now, 6_530);
        assert_eq!(pulse.silence(at(now)), Duration::from_millis(6_529));
    }

    #[test]
    fn what_is_awaited_after_a_rest_is_asked_about_at_once() {
        let mut pulse = at_rest(Side::Acceptor, 59);
        pulse.handle_awaited(at(4_000));
        assert_eq!(pulse.next_timeout(), at(4_000));
        assert!(!pulse.is_suspect(at(4_000)));
        assert_eq!(pulse.handle_timeout(at(4_000), 100, Some(0)), Verdict::Ping(2));
        pulse.handle_ping_written(130);
        for now in (4_100..6_100).step_by(100) {
            assert_eq!(pulse.handle_timeout(at(now), 130, Some(0)), Verdict::Fine, "{now}");
        }
        assert_eq!(pulse.handle_timeout(at(6_100), 130, Some(0)), Verdict::Dead);
    }

    #[test]
    fn what_is_awaited_soon_after_a_word_waits_for_its_time() {
        let mut pulse = at_rest(Side::Dialer, 59);
        pulse.handle_awaited(at(500));
        assert_eq!(pulse.next_timeout(), at(901));
        assert_eq!(pulse.handle_timeout(at(500), 100, Some(0)), Verdict::Fine);
        assert_eq!(pulse.handle_timeout(at(901), 100, Some(0)), Verdict::Ping(2));
    }

    #[test]
    fn a_doubted_peer_is_asked_at_once_though_nothing_is_awaited() {
        let mut pulse = at_rest(Side::Dialer, 59);
        for now in [3_000, 4_000] {
            // Nothing is awaited, as the connection says at each look.
            pulse.handle_doubt(at(now));
            pulse.handle_rest(59);
            assert_eq!(pulse.next_timeout(), at(3_000));
        }
        assert_eq!(pulse.handle_timeout(at(4_000), 30, Some(0)), Verdict::Ping(2));
        pulse.handle_ping_written(60);
        // Doubts that come again and again give the peer no more time.
        for now in (4_100..6_100).step_by(100) {
            assert_eq!(pulse.handle_timeout(at(now), 60, Some(0)), Verdict::Fine, "{now}");
            pulse.handle_rest(59);
            pulse.handle_doubt(at(now));
            assert_eq!(pulse.is_suspect(at(now)), now > 4_900, "{now}");
        }
        assert_eq!(pulse.handle_timeout(at(6_100), 60, Some(0)), Verdict::Dead);
    }

    #[test]
    fn a_doubted_peer_that_answers_is_at_rest_again() {
        let mut pulse = at_rest(Side::Dialer, 59);
        pulse.handle_doubt(at(3_000));
        assert_eq!(pulse.handle_timeout(at(3_000), 30, Some(0)), Verdict::Ping(2));
        pulse.handle_ping_written(60);
        pulse.handle_received(at(3_001));
        pulse.handle_pong(at(3_001), 2);
        pulse.handle_rest(59);
        assert_eq!(pulse.next_timeout(), at(3_001 + 4_425));
    }

    #[test]
    fn a_stop_during_a_rest_is_not_held_against_the_peer() {
        let mut pulse = at_rest(Side::Dialer, 59);
        assert_eq!(pulse.handle_timeout(at(30_000), 30, Some(0)), Verdict::Fine);
        assert_eq!(pulse.silence(at(30_000)), Duration::ZERO);
    }

    /// A pulse whose ping is in the socket behind so many bytes, of which as many as `acked` were acknowledged before.
    fn asked(behind: u64, acked: u64) -> Liveness {
        let mut pulse = Liveness::new(Side::Dialer, &Timing::default(), at(0));
        assert_eq!(pulse.handle_timeout(at(0), behind, Some(behind - acked)), Verdict::Ping(1));
        assert!(pulse.is_ping_waiting());
        pulse.handle_ping_written(behind + 30);
        assert!(!pulse.is_ping_waiting());
        pulse
    }

    /// Looks at the pulse every 100 ms, up to a time; nothing changes meanwhile.
    fn look(pulse: &mut Liveness, ms: core::ops::Range<u64>, accepted: u64, unacked: u64) {
        for ms in ms.step_by(100) {
            assert_eq!(pulse.handle_timeout(at(ms), accepted, Some(unacked)), Verdict::Fine, "{ms}");
        }
    }

    #[test]
    fn round_trips_are_smoothed() {
        let mut pulse = Liveness::new(Side::Dialer, &Timing::default(), at(0));
        let mut now = 0;
        for (token, (took, smooth)) in (1..).zip([(80, 80), (160, 90), (10, 80)]) {
            assert_eq!(pulse.handle_timeout(at(now), 0, Some(0)), Verdict::Ping(token));
            pulse.handle_pong(at(now + 5), token + 1);
            pulse.handle_pong(at(now + 5), token - 1);
            pulse.handle_pong(at(now + took), token);
            assert_eq!(pulse.round_trip(), Some(Duration::from_millis(smooth)), "{token}");
            // A busy connection is measured every 5 s, whatever is heard on it meanwhile.
            for heard in (now + took..now + 5_000).step_by(100) {
                pulse.handle_received(at(heard));
                assert_eq!(pulse.handle_timeout(at(heard), 0, Some(0)), Verdict::Fine, "{heard}");
            }
            now += 5_000;
            assert_eq!(pulse.next_timeout(), at(now), "{token}");
            pulse.handle_received(at(now));
        }
    }

    #[test]
    fn what_is_acknowledged_counts_until_the_ping_has_arrived() {
        // Bytes accepted and not acknowledged at 2.9 s, and whether that is life.
        let cases = [
            ("nothing", 1_030, 1_030, false),
            ("one byte before the ping", 1_030, 1_029, true),
            ("all, the ping too", 1_030, 0, true),
            ("what came behind the ping as well", 1_100, 60, true),
        ];
        for (what, accepted, unacked, is_life) in cases {
            let mut pulse = asked(1_000, 0);
            look(&mut pulse, 100..2_900, 1_030, 1_030);
            assert_eq!(pulse.handle_timeout(at(2_900), accepted, Some(unacked)), Verdict::Fine, "{what}");
            let verdict = pulse.handle_timeout(at(3_000), accepted, Some(unacked));
            assert_eq!(verdict == Verdict::Dead, !is_life, "{what}");
            assert_eq!(pulse.silence(at(3_000)).as_millis(), if is_life { 100 } else { 3_000 }, "{what}");
        }
        // Once the ping has arrived, nothing explains the wait any more.
        let mut pulse = asked(1_000, 0);
        assert_eq!(pulse.handle_timeout(at(100), 1_030, Some(0)), Verdict::Fine);
        assert_eq!(pulse.silence(at(100)), Duration::ZERO);
        look(&mut pulse, 200..2_900, 2_000, 970);
        assert_eq!(pulse.handle_timeout(at(2_900), 2_000, Some(100)), Verdict::Fine);
        assert_eq!(pulse.silence(at(2_900)), Duration::from_millis(2_800));
        // The ping alone is no backlog: its acknowledgement says that a kernel lives.
        for (behind, is_life) in [(0, false), (34, false), (35, true)] {
            let mut pulse = asked(behind, 0);
            assert_eq!(pulse.handle_timeout(at(100), behind + 30, Some(0)), Verdict::Fine);
            assert_eq!(pulse.silence(at(100)).is_zero(), is_life, "{behind}");
        }
        // Where a kernel does not tell, what it has taken counts as acknowledged.
        let mut pulse = asked(1_000, 1_000);
        assert_eq!(pulse.handle_timeout(at(100), 1_030, None), Verdict::Fine);
        assert_eq!(pulse.silence(at(100)), Duration::from_millis(100), "the ping alone");
    }

    #[test]
    fn a_ping_that_waits_is_looked_after_several_times_a_second() {
        let mut pulse = asked(1_000, 0);
        assert_eq!(pulse.next_timeout(), at(250));
        assert_eq!(pulse.handle_timeout(at(250), 1_030, Some(1_030)), Verdict::Fine);
        assert_eq!(pulse.next_timeout(), at(500));
        // The end of the time for an answer is met, and no look comes at once after the last one.
        look(&mut pulse, 600..2_900, 1_030, 1_030);
        assert_eq!(pulse.next_timeout(), at(3_000));
        assert_eq!(pulse.handle_timeout(at(2_990), 1_030, Some(1_030)), Verdict::Fine);
        assert_eq!(pulse.next_timeout(), at(2_990) + CHECK_EVERY / 8);
    }

    #[test]
    fn a_long_way_is_given_eight_round_trips() {
        for (took, lost) in [(100, 3_000), (1_000, 8_000)] {
            let mut pulse = asked(0, 0);
            pulse.handle_received(at(took));
            pulse.handle_pong(at(took), 1);
            let mut now = took + 900;
            assert_eq!(pulse.handle_timeout(at(now), 30, Some(0)), Verdict::Ping(2));
            pulse.handle_ping_written(60);
            while pulse.handle_timeout(at(now), 60, Some(0)) == Verdict::Fine {
                now += 100;
            }
            assert_eq!(now, took + lost);
        }
    }

    #[test]
    fn a_look_a_second_late_means_that_this_process_was_stopped() {
        for (late, is_held_against) in [(1_000, true), (1_001, false)] {
            let mut pulse = asked(0, 0);
            look(&mut pulse, 100..600, 30, 0);
            assert_eq!(pulse.next_timeout(), at(750));
            assert_eq!(pulse.handle_timeout(at(750 + late), 30, Some(0)), Verdict::Fine);
            assert_eq!(pulse.silence(at(750 + late)).is_zero(), !is_held_against, "{late}");
        }
    }
}
