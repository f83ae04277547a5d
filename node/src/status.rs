//! What a server tells about itself and its peers: the values behind `/v1/status`, `/v1/mesh` and `ashlar status`.
//!
//! They travel as JSON to people and packed, fields in order, between servers: new fields go to the end, with a default.

use core::time::Duration;

use ashlar_grid::status::{GridCounters, PeerStatus};
use serde::{Deserialize, Serialize};

use super::membership::view::BusStatus;

/// One server's own view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerStatus {
    /// Who.
    pub server: String,
    /// Of which cluster.
    pub cluster: String,
    /// Where peers reach it.
    pub address: String,
    /// Which of its lives this is.
    pub incarnation: u64,
    /// Of the program.
    pub version: String,
    /// Process id on its machine.
    pub pid: u32,
    /// Since its start.
    pub uptime_ms: u64,
    /// Whether connections between servers are encrypted.
    pub tls: bool,
    /// Whether it takes part.
    pub ready: bool,
    /// Whether it is about to stop.
    pub draining: bool,
    /// Connections counted since its start.
    pub grid: GridStatus,
    /// Everybody whom it is connected to, or dials.
    pub peers: Vec<PeerView>,
    /// What it may be lost together with, as it was told; empty for nothing in particular.
    #[serde(default)]
    pub zone: String,
    /// The membership as it sees it.
    #[serde(default)]
    pub bus: BusStatus,
    /// Key ids of the cluster's secrets that it holds, the newest first; two while the secret is replaced.
    #[serde(default)]
    pub secrets: Vec<String>,
    /// Why it goes on although it was told to stop: data could not be saved.
    #[serde(default)]
    pub stays_because: Option<String>,
}

/// One peer as one server sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerView {
    /// Who; none while only an address is known.
    pub server: Option<String>,
    /// Where it is reached.
    pub address: String,
    /// Its latest known life.
    pub incarnation: Option<u64>,
    /// connecting, connected, suspect, draining.
    pub state: String,
    /// Smoothed.
    pub round_trip_us: Option<u64>,
    /// Age of the present connection.
    pub connected_ms: Option<u64>,
    /// Received from it.
    pub bytes_in: u64,
    /// Sent to it.
    pub bytes_out: u64,
    /// Received over the present connection.
    pub messages_in: u64,
    /// Started over the present connection.
    pub calls_out: u64,
    /// Received over the present connection.
    pub calls_in: u64,
    /// Wait here for its answers.
    pub calls_in_flight: u64,
    /// Bytes that wait to be written to it.
    pub bytes_queued: u64,
    /// Open now.
    pub bulk_connections: u64,
    /// Connections made so far.
    pub connects: u64,
    /// Why there is none, or why the last one ended.
    pub last_error: Option<String>,
    /// Whether calls to it fail at once for now.
    pub breaker_open: bool,
}

/// Connections counted since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GridStatus {
    /// Made.
    pub connects: u64,
    /// Lost, except by draining or stopping.
    pub losses: u64,
    /// Dials that failed.
    pub dials_failed: u64,
    /// Refused from outside: silent too long.
    pub rejected_timeout: u64,
    /// Refused from outside: no hello.
    pub rejected_malformed: u64,
    /// Refused from outside: another cluster.
    pub rejected_wrong_cluster: u64,
    /// Refused from outside: no common version.
    pub rejected_wrong_version: u64,
    /// Refused from outside: no common secret.
    pub rejected_unauthenticated: u64,
    /// Refused from outside: everything else.
    pub rejected_other: u64,
}

/// Every server's view, asked through one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshStatus {
    /// The server that was asked.
    pub asked: String,
    /// Its cluster.
    pub cluster: String,
    /// Itself and everybody whom it knows, by address.
    pub servers: Vec<MeshView>,
}

/// One server of a mesh.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshView {
    /// Who; none while only an address is known.
    pub server: Option<String>,
    /// Where it is reached.
    pub address: String,
    /// What it answered.
    pub status: Option<ServerStatus>,
    /// Why it did not answer.
    pub error: Option<String>,
}

impl ServerStatus {
    /// Peers that are connected now.
    #[must_use]
    pub fn connected(&self) -> usize {
        self.peers.iter().filter(|peer| peer.is_connected()).count()
    }
}

impl PeerView {
    /// Whether it takes part, as far as this server can see.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.state == "connected"
    }
}

impl From<PeerStatus> for PeerView {
    fn from(peer: PeerStatus) -> Self {
        Self {
            server: peer.id.map(|id| id.to_string()),
            address: peer.address,
            incarnation: peer.incarnation.map(|incarnation| incarnation.0),
            state: peer.state.name().to_owned(),
            round_trip_us: peer.round_trip.map(micros),
            connected_ms: peer.connected_for.map(millis),
            bytes_in: peer.bytes_in,
            bytes_out: peer.bytes_out,
            messages_in: peer.counters.messages_in,
            calls_out: peer.counters.calls_out,
            calls_in: peer.counters.calls_in,
            calls_in_flight: peer.calls_in_flight as u64,
            bytes_queued: peer.bytes_queued as u64,
            bulk_connections: peer.bulk_connections as u64,
            connects: peer.connects,
            last_error: peer.last_error,
            breaker_open: peer.breaker_open,
        }
    }
}

impl From<GridCounters> for GridStatus {
    fn from(counters: GridCounters) -> Self {
        Self {
            connects: counters.connects,
            losses: counters.losses,
            dials_failed: counters.dials_failed,
            rejected_timeout: counters.rejected.timeout,
            rejected_malformed: counters.rejected.malformed,
            rejected_wrong_cluster: counters.rejected.wrong_cluster,
            rejected_wrong_version: counters.rejected.wrong_version,
            rejected_unauthenticated: counters.rejected.unauthenticated,
            rejected_other: counters.rejected.other,
        }
    }
}

/// Whole milliseconds of a span.
#[must_use]
pub fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
