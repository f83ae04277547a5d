//! Limits of one NBD session.

use super::protocol::STRING_BYTES_MAX;

/// What one client can make a session keep, or do without end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Options of one handshake. A client needs about ten; `nbdinfo --list` a few for each export.
    pub options_max: u32,
    /// Bytes of one option that are read. A longer one is passed over and refused.
    pub option_bytes_max: usize,
    /// Bytes of one option or one refused payload that are passed over. A longer one ends the session.
    pub skip_bytes_max: u64,
    /// Exports in one answer to `LIST`.
    pub exports_listed_max: usize,
    /// Requests that the owner has and has not answered.
    pub in_flight_max: usize,
    /// Bytes of one read or write; announced to the client.
    pub payload_bytes_max: u32,
    /// Payload bytes that are kept at once: of writes that are not answered, of reads that are not sent. One request is
    /// always let in when nothing else is kept.
    pub held_bytes_max: u64,
    /// Bytes of replies that wait for the client to read. No request is read beyond.
    pub output_bytes_max: u64,
    /// Spans in one answer about allocation.
    pub spans_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            options_max: 4_096,
            option_bytes_max: 64 * 1_024,
            skip_bytes_max: 64 * 1_024 * 1_024,
            exports_listed_max: 16_384,
            in_flight_max: 256,
            payload_bytes_max: 32 * 1_024 * 1_024,
            held_bytes_max: 64 * 1_024 * 1_024,
            output_bytes_max: 64 * 1_024 * 1_024,
            spans_max: 16_384,
        }
    }
}

impl Limits {
    /// Checks that the limits let a client work at all.
    ///
    /// # Panics
    /// When a name does not fit into an option, or a limit is zero: these limits are the program's own.
    pub(super) fn assert_valid(&self) {
        assert!(self.option_bytes_max >= STRING_BYTES_MAX + 6, "a name fits into an option");
        assert!(self.options_max > 0 && self.in_flight_max > 0 && self.spans_max > 0, "one of each is let in");
        assert!(self.payload_bytes_max >= super::protocol::UNFRAGMENTED_MIN, "reads of 64 KiB have to be possible");
        assert!(self.skip_bytes_max >= u64::from(self.payload_bytes_max), "a refused payload can be passed over");
    }
}
