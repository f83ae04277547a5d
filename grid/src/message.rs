//! Messages: what the two ends of a connection say to each other, merged into WebSocket frames.
//!
//! A message is one MessagePack array, always in this order:
//!
//! | element | type | meaning |
//! |---|---|---|
//! | mux id | uint | the call or stream; chosen by its initiator, see [`MuxId`] |
//! | sequence | uint | by operation: message number, bytes of credit, total length, token |
//! | deadline | uint | milliseconds that the initiator still waits; 0 is no deadline |
//! | handler | uint | [`Op::Call`], [`Op::Open`]: route << 16 + handler id; answers: outcome code |
//! | operation | uint | [`Op`] |
//! | flags | uint | [`Flags`] |
//! | payload | bin | the rest |
//! | checksum | uint 64 | XXH3 of all before it, salted with the session; only where negotiated (no TLS) |
//!
//! A payload longer than a chunk travels as several messages of the same mux id: all but the last carry
//! [`Flags::MORE`], the first announces the total in `sequence`, later ones have operation [`Op::Chunk`].

use core::fmt;

use ashlar_wire::checksum::{Salt, checksum};
use ashlar_wire::pack::{self, PackError, Reader};

/// Longest header before the payload: array, five-byte and nine-byte numbers, bin length.
pub const HEADER_MAX: usize = 1 + 9 + 9 + 5 + 5 + 2 + 2 + 5;
/// Bytes that a checksum adds.
pub const CHECKSUM_LEN: usize = 9;

/// A call or stream of one connection: the slot that its initiator gave it, and which use of that slot it is, so
/// that a late answer to an earlier use is not taken for this one's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MuxId {
    /// The initiator's slot, below its limit of calls or streams in flight.
    pub slot: u32,
    /// Which use of the slot. Its highest bit is set for streams and clear for calls, which have slots of their own.
    pub generation: u32,
}

impl MuxId {
    /// For operations that concern the connection as a whole.
    pub const CONNECTION: Self = Self { slot: 0, generation: 0 };
    /// The bit of a generation that tells streams from calls, so that no message of the one is taken for the other's.
    pub const STREAM: u32 = 1 << 31;

    #[inline]
    const fn to_u64(self) -> u64 {
        (self.generation as u64) << 32 | self.slot as u64
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the two halves are what is wanted")]
    const fn from_u64(value: u64) -> Self {
        Self { slot: value as u32, generation: (value >> 32) as u32 }
    }
}

macro_rules! ops {
    ($($(#[$doc:meta])* $name:ident = $value:literal,)*) => {
        /// What a message does. Append only: a number never changes its meaning.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Op { $($(#[$doc])* $name = $value,)* }

        impl Op {
            /// Every operation.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            #[inline]
            fn from_u64(value: u64) -> Option<Self> {
                match value {
                    $($value => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

ops! {
    /// Request of a call.
    Call = 1,
    /// Its answer: outcome in `handler`.
    Reply = 2,
    /// The initiator no longer waits for a call or stream.
    Cancel = 3,
    /// Opens a stream: initiator's receive window in `sequence`, initial payload.
    Open = 4,
    /// Stream accepted: responder's receive window in `sequence`.
    Accept = 5,
    /// One message of a stream: its number in `sequence`.
    Data = 6,
    /// The receiver of a stream took `sequence` bytes out of its window, or widened it by that.
    Credit = 7,
    /// Orderly end of one direction: message count in `sequence`, digest in the payload. From a responder it is the end of
    /// its handler too, unless [`Flags::MORE`] says that the handler goes on reading; then another end follows.
    End = 8,
    /// Any other end: outcome in `handler`, text in the payload.
    Reset = 9,
    /// Answer with [`Op::Pong`] and the same `sequence`.
    Ping = 10,
    /// Answer to a ping.
    Pong = 11,
    /// Sequence 0: the sender drains; it refuses new calls and streams, finishes old ones, and closes when it has the
    /// answer. Sequence 1 is that answer: nothing comes from the sender any more, and it waits for nothing.
    GoAway = 12,
    /// Continues the payload of a chunked message.
    Chunk = 13,
    /// From now on `sequence` stands for the route that the payload names.
    Route = 14,
    /// Prove the newest secret: a nonce.
    Challenge = 15,
    /// The proof.
    Proof = 16,
    /// A message to a handler that is never answered and may be lost: its handler, its payload, all in one message.
    Datagram = 17,
}

/// Bits that qualify a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// Sent by the responder of the mux id; without it, by the initiator.
    pub const RESPONDER: Self = Self(1);
    /// More of this payload follows in [`Op::Chunk`] messages; see also [`Op::End`].
    pub const MORE: Self = Self(2);

    /// Whether all bits of `other` are set.
    #[inline]
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The bits of both.
    #[inline]
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// All of a message but its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Which call or stream.
    pub id: MuxId,
    /// By operation.
    pub sequence: u64,
    /// Milliseconds that the initiator still waits; 0 is no deadline.
    pub deadline_ms: u32,
    /// Route and handler, or an outcome.
    pub handler: u32,
    /// What it does.
    pub op: Op,
    /// How.
    pub flags: Flags,
}

impl Header {
    /// A header with everything but the essentials zero.
    #[must_use]
    pub const fn new(op: Op, id: MuxId, sequence: u64) -> Self {
        Self { id, sequence, deadline_ms: 0, handler: 0, op, flags: Flags(0) }
    }

    /// The same, sent by the responder if `responder`.
    #[must_use]
    pub const fn from_responder(mut self, responder: bool) -> Self {
        if responder {
            self.flags = self.flags.with(Flags::RESPONDER);
        }
        self
    }
}

/// A received message; the payload stays where it was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// Everything else.
    pub header: Header,
    /// The payload, or the part of it that this message carries.
    pub payload: &'a [u8],
}

/// Why bytes are not a message. Always the peer's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageError {
    /// Framing is lost: not an array of the negotiated length, or a field of another type.
    Malformed(PackError),
    /// The payload of one message is longer than [`Limits::chunk_max`](crate::config::Limits) allows.
    TooLong {
        /// Announced length in bytes.
        announced: usize,
    },
    /// The bytes are not those that were sent.
    Checksum,
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(error) => write!(f, "a message is malformed: {error}"),
            Self::TooLong { announced } => write!(f, "a message announces {announced} bytes of payload"),
            Self::Checksum => f.write_str("a message's checksum does not fit its bytes"),
        }
    }
}

impl core::error::Error for MessageError {}

/// What the front of some bytes is.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// A whole message, and its length in bytes. An operation that this version does not know is `None`.
    Whole(Option<Message<'a>>, usize),
    /// The beginning of a message that has at least this many bytes in all.
    Needs(usize),
}

/// Appends a message to `out`.
#[inline]
pub fn encode(out: &mut Vec<u8>, header: &Header, payload: &[u8], salt: Option<Salt>) {
    let start = out.len();
    out.reserve(HEADER_MAX + payload.len() + CHECKSUM_LEN);
    pack::write_array_len(out, if salt.is_some() { 8 } else { 7 });
    pack::write_uint(out, header.id.to_u64());
    pack::write_uint(out, header.sequence);
    pack::write_uint(out, u64::from(header.deadline_ms));
    pack::write_uint(out, u64::from(header.handler));
    pack::write_uint(out, u64::from(header.op as u8));
    pack::write_uint(out, u64::from(header.flags.0));
    pack::write_bin(out, payload);
    if let Some(salt) = salt {
        let sum = checksum(salt, &out[start..]);
        out.push(0xcf);
        out.extend_from_slice(&sum.0.to_be_bytes());
    }
}

/// Changes the operation of the message at the front of `bytes`, which [`encode`] wrote with the same `salt`.
///
/// # Panics
/// When there is no whole message.
pub fn change_op(bytes: &mut [u8], op: Op, salt: Option<Salt>) {
    let (raw, body_len) = parse_fields(bytes, usize::MAX, salt.is_some()).expect("written by `encode`");
    bytes[raw.op_at] = op as u8;
    if let Some(salt) = salt {
        let sum = checksum(salt, &bytes[..body_len]);
        bytes[body_len + 1..body_len + CHECKSUM_LEN].copy_from_slice(&sum.0.to_be_bytes());
    }
}

/// Reads the message at the front of `bytes`.
///
/// # Errors
/// Framing is lost; the connection must be closed.
#[inline]
pub fn parse(bytes: &[u8], payload_max: usize, salt: Option<Salt>) -> Result<Parsed<'_>, MessageError> {
    match parse_fields(bytes, payload_max, salt.is_some()) {
        Ok((raw, body_len)) => finish(bytes, &raw, body_len, salt),
        Err(PackError::Truncated) => Ok(Parsed::Needs(bytes.len() + 1)),
        Err(PackError::TooLong { len, .. }) => Err(MessageError::TooLong { announced: len }),
        Err(error) => Err(MessageError::Malformed(error)),
    }
}

struct Raw {
    id: u64,
    sequence: u64,
    deadline_ms: u64,
    handler: u64,
    op: u64,
    op_at: usize,
    flags: u64,
    payload_at: usize,
    payload_len: usize,
}

/// The fields, and the length of the message without its checksum. The payload may not be there yet.
#[inline]
fn parse_fields(bytes: &[u8], payload_max: usize, checked: bool) -> Result<(Raw, usize), PackError> {
    let mut reader = Reader::new(bytes);
    let len = reader.read_array_len()?;
    if len != if checked { 8 } else { 7 } {
        return Err(PackError::Malformed);
    }
    let id = reader.read_uint()?;
    let sequence = reader.read_uint()?;
    let deadline_ms = reader.read_uint()?;
    let handler = reader.read_uint()?;
    let op_at = bytes.len() - reader.remaining().len();
    let op = reader.read_uint()?;
    let flags = reader.read_uint()?;
    let payload_len = reader.read_bin_len(payload_max)?;
    let payload_at = bytes.len() - reader.remaining().len();
    Ok((
        Raw { id, sequence, deadline_ms, handler, op, op_at, flags, payload_at, payload_len },
        payload_at + payload_len,
    ))
}

#[inline]
fn finish<'a>(bytes: &'a [u8], raw: &Raw, body_len: usize, salt: Option<Salt>) -> Result<Parsed<'a>, MessageError> {
    let whole_len = body_len + if salt.is_some() { CHECKSUM_LEN } else { 0 };
    if bytes.len() < whole_len {
        return Ok(Parsed::Needs(whole_len));
    }
    if let Some(salt) = salt {
        let expected = checksum(salt, &bytes[..body_len]).0.to_be_bytes();
        if bytes[body_len] != 0xcf || bytes[body_len + 1..whole_len] != expected {
            return Err(MessageError::Checksum);
        }
    }
    let narrow = |value: u64| u32::try_from(value).map_err(|_| MessageError::Malformed(PackError::Malformed));
    let (deadline_ms, handler) = (narrow(raw.deadline_ms)?, narrow(raw.handler)?);
    let flags = u8::try_from(raw.flags).map_err(|_| MessageError::Malformed(PackError::Malformed))?;
    let message = Op::from_u64(raw.op).map(|op| Message {
        header: Header {
            id: MuxId::from_u64(raw.id),
            sequence: raw.sequence,
            deadline_ms,
            handler,
            op,
            flags: Flags(flags),
        },
        payload: &bytes[raw.payload_at..raw.payload_at + raw.payload_len],
    });
    Ok(Parsed::Whole(message, whole_len))
}

/// Cuts the payload of frames into messages, wherever received bytes end.
#[derive(Debug)]
pub struct Assembler {
    /// A message of which only a part has come.
    partial: Vec<u8>,
    payload_max: usize,
    salt: Option<Salt>,
}

/// Room that is kept for the next message that comes in parts, bytes: of small ones each batch may end with one.
const PARTIAL_KEPT_MAX: usize = 1_024;
/// Bytes taken at once when a message's length is not known yet.
const PROBE: usize = 64;

impl Assembler {
    /// An assembler for messages with payloads up to `payload_max` bytes, with checksums if `salt`.
    #[must_use]
    pub fn new(payload_max: usize, salt: Option<Salt>) -> Self {
        Self { partial: Vec::new(), payload_max, salt }
    }

    /// Calls `each` for every message that `bytes` completes; keeps a rest for the next time.
    ///
    /// # Errors
    /// Framing is lost, or what `each` returned.
    #[inline]
    pub fn handle_bytes<E: From<MessageError>>(
        &mut self,
        mut bytes: &[u8],
        mut each: impl FnMut(Option<Message<'_>>) -> Result<(), E>,
    ) -> Result<(), E> {
        if !self.partial.is_empty() {
            bytes = self.complete_partial(bytes, &mut each)?;
        }
        while !bytes.is_empty() {
            match parse(bytes, self.payload_max, self.salt)? {
                Parsed::Whole(message, len) => {
                    each(message)?;
                    bytes = &bytes[len..];
                }
                Parsed::Needs(needs) => {
                    self.partial.reserve_exact(needs.max(PROBE));
                    self.partial.extend_from_slice(bytes);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Finishes the message in `partial` from the front of `bytes`; what is left of `bytes`.
    fn complete_partial<'a, E: From<MessageError>>(
        &mut self,
        bytes: &'a [u8],
        each: &mut impl FnMut(Option<Message<'_>>) -> Result<(), E>,
    ) -> Result<&'a [u8], E> {
        let before = self.partial.len();
        let mut taken = PROBE.min(bytes.len());
        self.partial.extend_from_slice(&bytes[..taken]);
        loop {
            match parse(&self.partial, self.payload_max, self.salt)? {
                Parsed::Whole(message, len) => {
                    each(message)?;
                    self.partial.clear();
                    if self.partial.capacity() > PARTIAL_KEPT_MAX {
                        self.partial = Vec::new();
                    }
                    // The message was incomplete with `before` bytes, so it ends within what was taken now.
                    return Ok(&bytes[len - before..]);
                }
                Parsed::Needs(_) if taken == bytes.len() => return Ok(&[]),
                Parsed::Needs(needs) => {
                    let more = (needs - self.partial.len()).min(bytes.len() - taken);
                    self.partial.extend_from_slice(&bytes[taken..taken + more]);
                    taken += more;
                }
            }
        }
    }

    /// Bytes held for a message that is not complete.
    #[must_use]
    pub fn partial_len(&self) -> usize {
        self.partial.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(op: Op, payload_len: usize) -> (Header, Vec<u8>) {
        let header = Header {
            id: MuxId { slot: 300, generation: 7 },
            sequence: 70_000,
            deadline_ms: 30_000,
            handler: 3 << 16 | 2,
            op,
            flags: Flags::MORE,
        };
        (header, (0..payload_len).map(|at| (at % 251) as u8).collect())
    }

    #[test]
    fn golden_bytes() {
        let header =
            Header { deadline_ms: 200, handler: 5, ..Header::new(Op::Call, MuxId { slot: 1, generation: 0 }, 0) };
        let mut out = Vec::new();
        encode(&mut out, &header, b"ab", None);
        assert_eq!(out, [0x97, 1, 0, 0xcc, 200, 5, 1, 0, 0xc4, 2, b'a', b'b']);
        let mut checked = Vec::new();
        encode(&mut checked, &header, b"ab", Some(Salt::new(&[b"test"])));
        assert_eq!(checked[0], 0x98);
        assert_eq!(checked[1..12], out[1..]);
        assert_eq!(checked.len(), out.len() + CHECKSUM_LEN);
    }

    #[test]
    fn operations_keep_their_numbers() {
        let numbers: Vec<u8> = Op::ALL.iter().map(|op| *op as u8).collect();
        assert_eq!(numbers, (1..=17).collect::<Vec<u8>>());
        assert!(Op::ALL.iter().all(|op| Op::from_u64(u64::from(*op as u8)) == Some(*op)));
    }

    #[test]
    fn messages_survive_any_cut() {
        for salt in [None, Some(Salt::new(&[b"session"]))] {
            let samples: Vec<_> = [0, 1, 17, 255, 256, 600, 16_384].map(|len| sample(Op::Data, len)).into();
            let mut bytes = Vec::new();
            for (header, payload) in &samples {
                encode(&mut bytes, header, payload, salt);
            }
            for cut in [1, 2, 3, 13, 63, 64, 65, 500, 4_096, bytes.len()] {
                let mut assembler = Assembler::new(16_384, salt);
                let mut seen = Vec::new();
                for piece in bytes.chunks(cut) {
                    let each = |message: Option<Message<'_>>| {
                        let message = message.expect("a known operation");
                        seen.push((message.header, message.payload.to_vec()));
                        Ok::<(), MessageError>(())
                    };
                    assembler.handle_bytes(piece, each).expect("well-formed");
                }
                assert_eq!(seen, samples, "cut {cut}");
                assert_eq!(assembler.partial_len(), 0);
            }
        }
    }

    #[test]
    fn a_changed_byte_shows() {
        let salt = Salt::new(&[b"session"]);
        let (header, payload) = sample(Op::Call, 40);
        let mut bytes = Vec::new();
        encode(&mut bytes, &header, &payload, Some(salt));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            assert!(
                !matches!(parse(&changed, 1 << 20, Some(salt)), Ok(Parsed::Whole(..))),
                "the change of byte {at} went unseen"
            );
        }
        assert_eq!(parse(&bytes, 1 << 20, Some(Salt::new(&[b"other session"]))), Err(MessageError::Checksum));
    }

    #[test]
    fn announced_lengths_are_checked_first() {
        let bytes = [0x97, 1, 0, 0, 5, 1, 0, 0xc6, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(parse(&bytes, 16_384, None), Err(MessageError::TooLong { announced: 0xffff_ffff }));
    }

    #[test]
    fn the_longest_header_is_as_long_as_it_says() {
        let id = MuxId { slot: u32::MAX, generation: u32::MAX };
        let (sequence, op, flags) = (u64::MAX, Op::Datagram, Flags(u8::MAX));
        let header = Header { id, sequence, deadline_ms: u32::MAX, handler: u32::MAX, op, flags };
        let payload = vec![7; 70_000];
        let mut out = Vec::new();
        encode(&mut out, &header, &payload, Some(Salt::new(&[b"test"])));
        // No operation has a number that takes two bytes so far.
        assert_eq!(out.len(), HEADER_MAX - 1 + payload.len() + CHECKSUM_LEN);
        let parsed = parse(&out, payload.len(), Some(Salt::new(&[b"test"])));
        assert_eq!(parsed, Ok(Parsed::Whole(Some(Message { header, payload: &payload }), out.len())));
    }

    #[test]
    fn a_beginning_says_how_much_is_missing() {
        for salt in [None, Some(Salt::new(&[b"session"]))] {
            let (header, payload) = sample(Op::Data, 300);
            let mut bytes = Vec::new();
            encode(&mut bytes, &header, &payload, salt);
            let header_len = bytes.len() - payload.len() - if salt.is_some() { CHECKSUM_LEN } else { 0 };
            for cut in 0..bytes.len() {
                let needs = if cut < header_len { cut + 1 } else { bytes.len() };
                assert_eq!(parse(&bytes[..cut], 300, salt), Ok(Parsed::Needs(needs)), "cut {cut}");
            }
            bytes.push(0);
            assert!(matches!(parse(&bytes, 300, salt), Ok(Parsed::Whole(Some(_), len)) if len + 1 == bytes.len()));
            assert_eq!(parse(&bytes, 299, salt), Err(MessageError::TooLong { announced: 300 }));
        }
    }

    #[test]
    fn an_operation_is_changed_and_nothing_else() {
        for salt in [None, Some(Salt::new(&[b"session"]))] {
            let (header, payload) = sample(Op::Call, 40);
            let mut bytes = Vec::new();
            encode(&mut bytes, &header, &payload, salt);
            let len = bytes.len();
            bytes.extend_from_slice(b"the next one");
            change_op(&mut bytes, Op::Cancel, salt);
            let header = Header { op: Op::Cancel, ..header };
            assert_eq!(parse(&bytes, 40, salt), Ok(Parsed::Whole(Some(Message { header, payload: &payload }), len)));
            assert_eq!(&bytes[len..], b"the next one");
        }
    }

    #[test]
    fn what_is_not_known_is_passed_over_and_what_does_not_fit_is_an_error() {
        let unknown = [0x97, 1, 0, 0, 5, 99, 0, 0xc4, 1, b'x'];
        assert_eq!(parse(&unknown, 10, None), Ok(Parsed::Whole(None, 10)));
        let malformed = Err(MessageError::Malformed(PackError::Malformed));
        let wide = |field: &[u8], at: usize| [&unknown[..at], field, &unknown[at + 1..]].concat();
        // A deadline, a handler and flags that are too large, and an element too many or too few.
        assert_eq!(parse(&wide(&[0xcf, 0, 0, 0, 1, 0, 0, 0, 0], 3), 10, None), malformed);
        assert_eq!(parse(&wide(&[0xcf, 0, 0, 0, 1, 0, 0, 0, 0], 4), 10, None), malformed);
        assert_eq!(parse(&wide(&[0xcd, 1, 0], 6), 10, None), malformed);
        assert_eq!(parse(&wide(&[0x98], 0), 10, None), malformed);
        assert_eq!(parse(&unknown, 10, Some(Salt::new(&[b"session"]))), malformed);
    }

    #[test]
    fn bits_of_flags() {
        let both = Flags::RESPONDER.with(Flags::MORE);
        assert_eq!((both, Flags(1).with(Flags(1))), (Flags(3), Flags(1)));
        for (flags, responder, more) in
            [(0, false, false), (1, true, false), (2, false, true), (3, true, true), (4, false, false)]
        {
            let flags = Flags(flags);
            assert_eq!((flags.contains(Flags::RESPONDER), flags.contains(Flags::MORE)), (responder, more));
            assert_eq!(flags.contains(both), responder && more);
        }
        let header = Header::new(Op::Data, MuxId::CONNECTION, 1);
        assert_eq!(
            (header.from_responder(false).flags, header.from_responder(true).flags),
            (Flags(0), Flags::RESPONDER)
        );
    }

    #[test]
    fn only_little_room_is_kept_for_the_next_message_in_parts() {
        for (len, is_kept) in [(600, true), (PARTIAL_KEPT_MAX, false), (16_000, false)] {
            let (header, payload) = sample(Op::Data, len);
            let mut bytes = Vec::new();
            encode(&mut bytes, &header, &payload, None);
            let mut assembler = Assembler::new(16_384, None);
            let (first, rest) = bytes.split_at(100);
            assembler.handle_bytes(first, |_| Ok::<(), MessageError>(())).expect("a beginning");
            assert_eq!(assembler.partial_len(), 100);
            assembler.handle_bytes(rest, |_| Ok::<(), MessageError>(())).expect("the rest");
            assert_eq!((assembler.partial_len(), assembler.partial.capacity() > 0), (0, is_kept), "{len}");
        }
    }

    #[test]
    fn errors_say_what_was_wrong() {
        let malformed = format!("a message is malformed: {}", PackError::Malformed);
        let cases = [
            (MessageError::Malformed(PackError::Malformed), malformed.as_str()),
            (MessageError::TooLong { announced: 7 }, "a message announces 7 bytes of payload"),
            (MessageError::Checksum, "a message's checksum does not fit its bytes"),
        ];
        for (error, text) in cases {
            assert_eq!(error.to_string(), text);
        }
    }
}
