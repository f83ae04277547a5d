//! What the grid tells about itself: for `ashlar status`, metrics and logs.

use core::time::Duration;

use ashlar_wire::id::{Incarnation, ServerId};
use ashlar_wire::secret::KeyId;

use crate::mux::Counters;

/// How a peer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerState {
    /// Dialing, or waiting to dial again.
    Connecting,
    /// Connected and heard.
    Connected,
    /// Connected, and silent for longer than usual.
    Suspect,
    /// Connected, and it refuses new work: it is about to stop.
    Draining,
}

impl PeerState {
    /// Its name in status and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Connected => "connected",
            Self::Suspect => "suspect",
            Self::Draining => "draining",
        }
    }
}

/// One peer, at one moment.
#[derive(Debug, Clone)]
pub struct PeerStatus {
    /// Who; `None` while only an address is known.
    pub id: Option<ServerId>,
    /// Where it is reached.
    pub address: String,
    /// Its latest known life.
    pub incarnation: Option<Incarnation>,
    /// How it stands.
    pub state: PeerState,
    /// Smoothed round trip.
    pub round_trip: Option<Duration>,
    /// How long the present connection has lasted.
    pub connected_for: Option<Duration>,
    /// The cluster secret that it has proved on the present connection.
    pub key: Option<KeyId>,
    /// Bytes received over all connections to this peer.
    pub bytes_in: u64,
    /// Bytes sent over all connections to this peer.
    pub bytes_out: u64,
    /// What was counted on the present connection.
    pub counters: Counters,
    /// Calls that wait here for its answers.
    pub calls_in_flight: usize,
    /// Its calls that are being handled here.
    pub calls_handled: usize,
    /// Open streams.
    pub streams: usize,
    /// Bytes waiting to be written to it.
    pub bytes_queued: usize,
    /// Bulk connections.
    pub bulk_connections: usize,
    /// Connections made so far.
    pub connects: u64,
    /// Why there is none, or why the last one ended.
    pub last_error: Option<String>,
    /// Whether calls to it fail at once for now.
    pub breaker_open: bool,
}

/// Something that happened to a peer's connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerEvent {
    /// A connection was made.
    Connected {
        /// To whom.
        peer: ServerId,
        /// Where it is reached.
        address: String,
        /// In which of its lives.
        incarnation: Incarnation,
        /// Whether this side dialed.
        dialed: bool,
    },
    /// A connection ended.
    Lost {
        /// To whom.
        peer: ServerId,
        /// Where it is reached.
        address: String,
        /// Why.
        reason: String,
        /// How long nothing had been heard when that was noticed.
        silence: Duration,
        /// Whether it belongs to ordinary life: the peer or this server stopped in peace, or another connection took over.
        is_expected: bool,
    },
    /// Dialing failed; the first time in a row, or with another reason than before.
    DialFailed {
        /// Where.
        address: String,
        /// Why.
        reason: String,
        /// Whether dialing again will help without anybody's doing.
        will_heal: bool,
    },
    /// A connection from outside was refused before it became one.
    Rejected {
        /// Why.
        reason: String,
    },
}

/// What was counted over all connections since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GridCounters {
    /// Connections from outside that failed the hello, by kind.
    pub rejected: Rejected,
    /// Dials that failed.
    pub dials_failed: u64,
    /// Connections made.
    pub connects: u64,
    /// Connections lost, except by draining or shutting down.
    pub losses: u64,
    /// Connections closed because the peer broke the protocol.
    pub protocol_errors: u64,
}

/// Connections from outside that failed the hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rejected {
    /// Silent for longer than a step may take.
    pub timeout: u64,
    /// Not frames, or not a hello.
    pub malformed: u64,
    /// Another cluster.
    pub wrong_cluster: u64,
    /// No common protocol version.
    pub wrong_version: u64,
    /// No common secret, or a wrong proof.
    pub unauthenticated: u64,
    /// Everything else: duplicates, stale lives, draining, closed by the peer.
    pub other: u64,
}

#[cfg(test)]
mod tests {
    use super::PeerState::{Connected, Connecting, Draining, Suspect};

    #[test]
    fn states_have_names() {
        let names = [Connecting, Connected, Suspect, Draining].map(super::PeerState::name);
        assert_eq!(names, ["connecting", "connected", "suspect", "draining"]);
    }
}
