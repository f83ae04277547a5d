//! Limits of an initiator, its pauses, and who it is.

use core::time::Duration;

use crate::block::BLOCK_BYTES;
use crate::message::{Generation, PAYLOAD_BYTES_MAX, SessionId};

/// Who an initiator is to the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attachment {
    /// Which attachment of the volume, from the catalog. Servers refuse earlier ones.
    pub generation: Generation,
    /// Never used before: each life of an initiator has another.
    pub session: SessionId,
}

/// What an initiator keeps at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Requests that are not completed, those that wait for others or for tokens among them.
    pub requests_max: usize,
    /// Bytes of the reads and writes among them. One request is always taken when there is no other.
    pub request_bytes_max: u64,
    /// Subrequests that servers have not answered.
    pub subrequests_max: usize,
    /// Payload bytes of these, in either direction. One is always sent when there is no other.
    pub subrequest_bytes_max: u64,
    /// Bytes of one subrequest's payload: a multiple of a block.
    pub payload_bytes_max: u32,
    /// Runs of one request that are under way, so that a long request leaves room for others.
    pub runs_per_request_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            requests_max: 1_024,
            request_bytes_max: 256 * 1_024 * 1_024,
            subrequests_max: 256,
            subrequest_bytes_max: 64 * 1_024 * 1_024,
            payload_bytes_max: 1_024 * 1_024,
            runs_per_request_max: 16,
        }
    }
}

impl Limits {
    /// # Panics
    /// When nothing would pass: these limits are the program's own.
    pub(super) fn assert_valid(&self) {
        assert!(
            self.requests_max > 0 && self.subrequests_max > 0 && self.runs_per_request_max > 0,
            "one of each passes"
        );
        let payload = self.payload_bytes_max;
        assert!(payload > 0 && payload.is_multiple_of(BLOCK_BYTES), "payloads are whole blocks");
        assert!(payload <= PAYLOAD_BYTES_MAX, "servers take payloads of this length");
    }
}

/// Pauses before a subrequest is sent again. They double up to a limit, and half of each is chance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pacing {
    /// The first pause.
    pub pause_min: Duration,
    /// The longest pause: what a guest waits at most after a group serves again, if nobody says that it does.
    pub pause_max: Duration,
    /// Sendings in a row that follow newer configurations without a pause.
    pub prompt_max: u32,
}

impl Default for Pacing {
    fn default() -> Self {
        Self { pause_min: Duration::from_millis(5), pause_max: Duration::from_millis(500), prompt_max: 4 }
    }
}
