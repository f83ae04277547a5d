//! Is the peer alive? Progress is life; silence is asked about before it is believed.
//!
//! Any received byte proves life. After a while of silence a ping goes out ahead of every queue. Its answer may be long
//! in coming for an honest reason: a slow link with bytes of ours before the ping. So the time for the answer runs only
//! while nothing else explains the wait: as long as the ping is not known to have reached the peer's kernel, every
//! byte that the peer's kernel acknowledges counts as life. A frozen process with an empty or a full buffer acknowledges
//! nothing more, and is noticed after [`Timing::silence_max`]. If this process itself was stopped, the time it slept
//! through is not held against the peer.

use core::time::Duration;

use ashlar_wire::time::Instant;

use crate::config::Timing;

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
    measure_every: Duration,
    /// Last proof of life.
    alive_at: Instant,
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
/// A link with a long round trip is given this many of them.
const ROUND_TRIPS_MAX: u32 = 8;

impl Liveness {
    /// A connection that was made at `now`.
    #[must_use]
    pub fn new(timing: &Timing, now: Instant) -> Self {
        Self {
            silence_max: timing.silence_max,
            ping_after: timing.ping_after,
            measure_every: timing.measure_every,
            alive_at: now,
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

    fn silence_max(&self) -> Duration {
        self.silence_max.max(self.round_trip.unwrap_or_default() * ROUND_TRIPS_MAX)
    }

    /// Looks at the pulse. `accepted` bytes have been handed to the socket since the beginning, of which `unacked` have
    /// not been acknowledged (`None` where that is not known: then handing over counts as acknowledged).
    pub fn handle_timeout(&mut self, now: Instant, accepted: u64, unacked: Option<u64>) -> Verdict {
        if now.saturating_since(self.next_timeout()) > STALL_MIN {
            self.alive_at = now;
        }
        self.last_check = now;
        let acked = accepted.saturating_sub(unacked.unwrap_or(0));
        if let Some(ping) = self.ping {
            let reached = ping.end.is_some_and(|end| self.acked >= end);
            let ping_alone =
                ping.end.is_some_and(|end| acked >= end && accepted == end) && self.acked + PING_LEN_MAX >= acked;
            if acked > self.acked && !reached && !ping_alone {
                self.alive_at = now;
            }
        }
        self.acked = acked;
        if self.silence(now) >= self.silence_max() {
            return Verdict::Dead;
        }
        let measured = self.last_ping.is_some_and(|at| now < at + self.measure_every);
        let due = !measured || self.silence(now) >= self.ping_after;
        if self.ping.is_none() && due {
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
                .min(self.alive_at + self.silence_max())
                .max(self.last_check + CHECK_EVERY / 8);
        }
        let measure = self.last_ping.map_or(self.last_check, |at| at + self.measure_every);
        (self.alive_at + self.ping_after).min(measure)
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
        let mut pulse = Liveness::new(&Timing::default(), at(0));
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
        let mut pulse = Liveness::new(&Timing::default(), at(0));
        assert!(matches!(pulse.handle_timeout(at(0), 0, Some(0)), Verdict::Ping(_)));
        pulse.handle_ping_written(30);
        pulse.handle_received(at(1));
        pulse.handle_pong(at(1), 1);
        // The next look was due at 901 ms.
        assert!(matches!(pulse.handle_timeout(at(4_500), 30, Some(0)), Verdict::Ping(_) | Verdict::Fine));
    }

    #[test]
    fn a_stop_of_this_process_is_not_held_against_the_peer() {
        let mut pulse = Liveness::new(&Timing::default(), at(0));
        assert!(matches!(pulse.handle_timeout(at(0), 0, Some(0)), Verdict::Ping(_)));
        assert_eq!(pulse.handle_timeout(at(20_000), 0, Some(0)), Verdict::Fine);
        pulse.handle_received(at(20_001));
        assert_eq!(pulse.handle_timeout(at(20_250), 0, Some(0)), Verdict::Fine);
    }
}
