//! Every limit and every span of time of the grid, in one place.

use core::time::Duration;

use ashlar_wire::id::{ClusterId, Incarnation, ServerId};

use crate::hello::Secrets;
use crate::seam::Lane;

/// Payloads of this many bytes and more take a bulk connection.
pub const BULK_THRESHOLD: usize = 64 * 1024;
/// Frames are closed when they hold this many bytes.
pub const FRAME_TARGET: usize = 32 * 1024;

/// Limits of one connection. Those that the peer must know travel in the hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Calls that each side may have in flight.
    pub calls_in_flight_max: u32,
    /// Streams that each side may have open.
    pub streams_open_max: u32,
    /// Bytes of requests that are being received or handled for the peer; more are refused as overloaded.
    pub inbound_bytes_max: usize,
    /// Bytes waiting to be written; more calls are refused, streams wait.
    pub outbound_bytes_max: usize,
    /// Payload of one message; longer payloads travel in chunks of this.
    pub chunk_max: usize,
    /// Longest request, answer or stream message.
    pub payload_max: usize,
    /// Receive window of a stream at its opening, bytes.
    pub stream_window: u32,
    /// Receive window of a stream at most, after tuning, bytes.
    pub stream_window_max: u32,
    /// Routes that the peer may name.
    pub routes_max: u16,
}

impl Limits {
    /// The limits for connections of `lane`.
    #[must_use]
    pub const fn for_lane(lane: Lane) -> Self {
        let small = Self {
            calls_in_flight_max: 65_536,
            streams_open_max: 65_536,
            inbound_bytes_max: 64 * 1024 * 1024,
            outbound_bytes_max: 64 * 1024 * 1024,
            chunk_max: 16 * 1024,
            payload_max: 16 * 1024 * 1024,
            stream_window: 64 * 1024,
            stream_window_max: 4 * 1024 * 1024,
            routes_max: 4_096,
        };
        match lane {
            Lane::Small => small,
            Lane::Bulk => Self {
                calls_in_flight_max: 64,
                streams_open_max: 64,
                inbound_bytes_max: 128 * 1024 * 1024,
                outbound_bytes_max: 128 * 1024 * 1024,
                chunk_max: 60 * 1024,
                payload_max: 64 * 1024 * 1024,
                ..small
            },
        }
    }
}

/// Spans of time. All on the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// A peer that is not heard for this long, while nothing else explains it, is lost.
    pub silence_max: Duration,
    /// Silence after which a ping asks, where something is awaited from the peer or a server has few connections.
    pub ping_after: Duration,
    /// Silence after which a ping asks a peer from which nothing is awaited: so much for each connection that this server has, so
    /// that a server among many sends no more pings than one among few. Never less than `ping_after`.
    pub rest_per_connection: Duration,
    /// The most that this comes to.
    pub rest_max: Duration,
    /// Round trips are measured at least this often on a busy connection.
    pub measure_every: Duration,
    /// Each step of connecting: TCP and upgrade, then every message of the hello.
    pub handshake_step_max: Duration,
    /// First pause before dialing again; doubles, with jitter, up to `backoff_max`.
    pub backoff_min: Duration,
    /// Longest pause before dialing again.
    pub backoff_max: Duration,
    /// A bulk connection unused for this long is closed.
    pub bulk_idle_max: Duration,
    /// Draining waits this long for calls and streams that still run.
    pub drain_max: Duration,
    /// Deadline of a call that gives none.
    pub call_deadline: Duration,
    /// How long an open breaker refuses before it lets one call through.
    pub breaker_pause: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            silence_max: Duration::from_secs(3),
            ping_after: Duration::from_millis(900),
            rest_per_connection: Duration::from_millis(75),
            rest_max: Duration::from_secs(15),
            measure_every: Duration::from_secs(5),
            handshake_step_max: Duration::from_secs(5),
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(2),
            bulk_idle_max: Duration::from_secs(30),
            drain_max: Duration::from_secs(10),
            call_deadline: Duration::from_secs(30),
            breaker_pause: Duration::from_millis(500),
        }
    }
}

/// Who this server is, and how its grid behaves.
#[derive(Debug, Clone)]
pub struct GridConfig {
    /// The cluster; servers of another one are refused.
    pub cluster: ClusterId,
    /// This server.
    pub server: ServerId,
    /// This life of it; greater than any earlier one's.
    pub incarnation: Incarnation,
    /// Where peers reach this server: `host:port`.
    pub address: String,
    /// The cluster secret, and during a rotation the one before it.
    pub secrets: Secrets,
    /// Limits of small connections.
    pub limits: Limits,
    /// Limits of bulk connections.
    pub bulk_limits: Limits,
    /// Spans of time.
    pub timing: Timing,
    /// Checksums on messages even where TLS protects them. Without TLS they are always on.
    pub always_checksum: bool,
    /// Bulk connections that this server opens to one peer.
    pub bulk_pool_max: usize,
    /// Addresses that are dialed whenever nobody is connected there.
    pub peers_max: usize,
    /// Connections that are in their hello at once.
    pub handshakes_max: usize,
    /// Failures in a row that open a peer's breaker.
    pub breaker_failures_max: u32,
}

impl GridConfig {
    /// A configuration with every default.
    #[must_use]
    pub fn new(
        cluster: ClusterId,
        server: ServerId,
        incarnation: Incarnation,
        address: String,
        secrets: Secrets,
    ) -> Self {
        Self {
            cluster,
            server,
            incarnation,
            address,
            secrets,
            limits: Limits::for_lane(Lane::Small),
            bulk_limits: Limits::for_lane(Lane::Bulk),
            timing: Timing::default(),
            always_checksum: false,
            bulk_pool_max: 4,
            peers_max: 4_096,
            handshakes_max: 1_024,
            breaker_failures_max: 16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1 << 10;
    const MIB: usize = 1 << 20;

    #[test]
    fn limits_are_what_the_documents_say() {
        let small = Limits {
            calls_in_flight_max: 65_536,
            streams_open_max: 65_536,
            inbound_bytes_max: 64 * MIB,
            outbound_bytes_max: 64 * MIB,
            chunk_max: 16 * KIB,
            payload_max: 16 * MIB,
            stream_window: 1 << 16,
            stream_window_max: 1 << 22,
            routes_max: 4_096,
        };
        let bulk = Limits {
            calls_in_flight_max: 64,
            streams_open_max: 64,
            inbound_bytes_max: 128 * MIB,
            outbound_bytes_max: 128 * MIB,
            chunk_max: 60 * KIB,
            payload_max: 64 * MIB,
            ..small
        };
        assert_eq!([Lane::Small, Lane::Bulk].map(Limits::for_lane), [small, bulk]);
        assert_eq!((BULK_THRESHOLD, FRAME_TARGET), (64 * KIB, 32 * KIB));
    }

    #[test]
    fn a_dead_peer_is_noticed_within_three_seconds() {
        let timing = Timing::default();
        assert!(timing.ping_after * 3 < timing.silence_max && timing.silence_max == Duration::from_secs(3));
        assert!(timing.backoff_min < timing.backoff_max && timing.call_deadline > timing.drain_max);
    }
}
