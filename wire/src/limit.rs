//! How much of anything. Protocols share these limits, so they stand in one place and are tied together below.
//!
//! A limit here is part of the protocol: a peer that goes beyond it is refused. What a server merely prefers (its
//! windows, its batch sizes) is announced in the grid's hello, within these limits. Lengths are bytes of the value
//! itself, without its header.

/// The payload of one message on the small lane.
pub const SMALL_PAYLOAD_BYTES_MAX: usize = 16 << 20;

/// The payload of one message on the bulk lane.
pub const BULK_PAYLOAD_BYTES_MAX: usize = 64 << 20;

/// From this size on, a payload takes the bulk lane.
pub const BULK_THRESHOLD_BYTES: usize = 64 << 10;

/// A payload on the small lane that is longer than this is cut into pieces of this size, so that no message stands
/// long before another.
pub const CHUNK_BYTES_MAX: usize = 16 << 10;

/// The most that we put into one WebSocket frame: what fits the two-byte length.
pub const FRAME_SENT_BYTES_MAX: usize = 65_535;

/// The most that we accept in one WebSocket frame. Greater than what we send, so that it can grow without a version.
pub const FRAME_RECEIVED_BYTES_MAX: usize = 128 << 10;

/// The fixed header of a grid message (mux id, sequence, deadline, handler, operation, flags, payload length).
pub const MESSAGE_HEADER_BYTES_MAX: usize = 64;

/// One message of the hello, before the peer is known.
pub const HELLO_BYTES_MAX: usize = 2 << 10;

/// Calls that one peer may have in flight at another.
pub const CALLS_IN_FLIGHT_MAX: u32 = 65_536;

/// Streams that one peer may have open at another.
pub const STREAMS_MAX: u32 = 65_536;

/// Bytes of a stream that its sender may have under way unread.
pub const STREAM_WINDOW_BYTES_MAX: u32 = 64 << 20;

/// The text in an error or a refusal.
pub const ERROR_TEXT_BYTES_MAX: usize = 1_024;

/// The text of an address, `host:port` (a host name has at most 253 bytes).
pub const ADDRESS_TEXT_BYTES_MAX: usize = 256;

/// Secrets that a cluster may have at one time: the newest, and the one before it while it is being replaced.
pub const SECRETS_MAX: usize = 2;

const _: () = {
    assert!(CHUNK_BYTES_MAX + MESSAGE_HEADER_BYTES_MAX <= FRAME_SENT_BYTES_MAX, "a chunk fits a frame of ours");
    assert!(FRAME_SENT_BYTES_MAX <= FRAME_RECEIVED_BYTES_MAX, "we accept what we send");
    assert!(FRAME_SENT_BYTES_MAX <= u16::MAX as usize, "a frame of ours has a two-byte length");
    assert!(CHUNK_BYTES_MAX < BULK_THRESHOLD_BYTES, "a bulk payload is more than one chunk");
    assert!(BULK_THRESHOLD_BYTES <= SMALL_PAYLOAD_BYTES_MAX, "the small lane can stand in for the bulk lane");
    assert!(SMALL_PAYLOAD_BYTES_MAX <= BULK_PAYLOAD_BYTES_MAX, "the bulk lane takes whatever the small lane takes");
    assert!(BULK_PAYLOAD_BYTES_MAX <= u32::MAX as usize, "a payload has a length of four bytes");
    assert!(CHUNK_BYTES_MAX <= STREAM_WINDOW_BYTES_MAX as usize, "a window holds at least one chunk");
    assert!(HELLO_BYTES_MAX <= FRAME_SENT_BYTES_MAX, "a hello fits one frame");
    assert!(ERROR_TEXT_BYTES_MAX + 64 <= HELLO_BYTES_MAX, "a refusal with the longest text fits a hello message");
    assert!(ADDRESS_TEXT_BYTES_MAX + 512 <= HELLO_BYTES_MAX, "a hello with the longest address fits");
};
