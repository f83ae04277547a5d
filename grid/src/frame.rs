//! WebSocket frames (RFC 6455), as far as two servers need them: binary frames with merged messages, ping, close.
//!
//! *Out*: a [`Segment`] collects messages and becomes one frame; its header is written into room kept free in front,
//! so nothing moves. The dialing side masks, as the RFC demands, with the zero key, which makes masking a copy.
//! *In*: a [`Decoder`] walks over received bytes in place and hands out [`Piece`]s of payload as they arrive, without
//! waiting for a frame's end and without a buffer of its own. An announced length is compared with a limit before
//! anything happens with it.
//!
//! Extensions, fragmentation by continuation frames and text frames are refused: no peer of ours sends them.

use core::fmt;

/// Which side dialed, hence who masks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Opened the connection; masks what it sends.
    Dialer,
    /// Accepted the connection; refuses frames that are not masked.
    Acceptor,
}

/// Longest header that we write: two bytes, two of length, four of mask.
const HEADER_MAX: usize = 8;
/// Longest payload of a frame that we write, so that its header never needs eight bytes of length.
pub const FRAME_PAYLOAD_MAX: usize = 65_535;
/// Longest payload of a frame that we accept.
pub const FRAME_ACCEPT_MAX: usize = 128 * 1024;
/// Longest payload of a control frame (RFC 6455, section 5.5).
const CONTROL_MAX: usize = 125;

const FIN: u8 = 0x80;
const MASKED: u8 = 0x80;
const OP_BINARY: u8 = 0x2;
const OP_CLOSE: u8 = 0x8;
const OP_PING: u8 = 0x9;
const OP_PONG: u8 = 0xA;

/// Why received bytes are not frames. Always the peer's fault; the connection cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    /// A frame announced more than [`FRAME_ACCEPT_MAX`] bytes, or a control frame more than 125.
    TooLong {
        /// Announced length in bytes.
        announced: u64,
    },
    /// Reserved bits, an unknown or unwanted opcode, or a fragmented frame.
    Unsupported {
        /// First byte of the frame.
        first: u8,
    },
    /// The dialing side did not mask, or the accepting side did.
    Masking,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { announced } => {
                write!(f, "a frame announces {announced} bytes; at most {FRAME_ACCEPT_MAX} are accepted")
            }
            Self::Unsupported { first } => {
                write!(f, "a frame begins with {first:#04x}; only whole binary frames are spoken")
            }
            Self::Masking => f.write_str("a frame is masked where it must not be, or the other way round"),
        }
    }
}

impl core::error::Error for FrameError {}

/// One frame in the making: messages are appended behind room for the header.
#[derive(Debug, Default)]
pub struct Segment {
    bytes: Vec<u8>,
    start: usize,
}

impl Segment {
    /// An empty segment that uses `bytes` as its buffer.
    #[must_use]
    pub fn new(mut bytes: Vec<u8>) -> Self {
        bytes.clear();
        bytes.resize(HEADER_MAX, 0);
        Self { bytes, start: HEADER_MAX }
    }

    /// Where messages are appended. Nothing before its present end may be changed.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Bytes of messages so far.
    #[inline]
    #[must_use]
    pub fn payload_len(&self) -> usize {
        self.bytes.len().saturating_sub(HEADER_MAX)
    }

    /// Writes the frame's header; call once, when the payload is complete.
    ///
    /// # Panics
    /// When the payload is longer than [`FRAME_PAYLOAD_MAX`]: its writer keeps that limit.
    pub fn seal(&mut self, side: Side) {
        self.seal_as(OP_BINARY, side);
    }

    fn seal_as(&mut self, opcode: u8, side: Side) {
        let len = self.payload_len();
        let len16 = u16::try_from(len).expect("a segment is sealed before it outgrows a frame");
        let mask_len = if side == Side::Dialer { 4 } else { 0 };
        let mask_bit = if side == Side::Dialer { MASKED } else { 0 };
        let length_len = if len < 126 { 0 } else { 2 };
        self.start = HEADER_MAX - 2 - length_len - mask_len;
        let header = &mut self.bytes[self.start..HEADER_MAX];
        header.fill(0);
        header[0] = FIN | opcode;
        match u8::try_from(len) {
            Ok(short) if short < 126 => header[1] = mask_bit | short,
            _ => {
                header[1] = mask_bit | 126;
                header[2..4].copy_from_slice(&len16.to_be_bytes());
            }
        }
    }

    /// The frame, after [`Segment::seal`].
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// The buffer, for the next segment.
    #[must_use]
    pub fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }
}

/// A close frame (RFC 6455, section 5.5.1) with `code` and as much of `text` as fits.
#[must_use]
pub fn encode_close(side: Side, code: u16, text: &str) -> Vec<u8> {
    let mut end = text.len().min(CONTROL_MAX - 2);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut payload = code.to_be_bytes().to_vec();
    payload.extend_from_slice(&text.as_bytes()[..end]);
    encode_whole(OP_CLOSE, side, &payload)
}

/// A whole binary frame around `payload`, for the few messages before the mux begins.
#[must_use]
pub fn encode_binary(side: Side, payload: &[u8]) -> Vec<u8> {
    encode_whole(OP_BINARY, side, payload)
}

/// The answer to a WebSocket ping.
#[must_use]
pub fn encode_pong(side: Side, payload: &[u8]) -> Vec<u8> {
    encode_whole(OP_PONG, side, payload)
}

fn encode_whole(opcode: u8, side: Side, payload: &[u8]) -> Vec<u8> {
    let mut segment = Segment::new(Vec::with_capacity(HEADER_MAX + payload.len()));
    segment.payload_mut().extend_from_slice(payload);
    segment.seal_as(opcode, side);
    segment.as_bytes().to_vec()
}

/// What the next bytes of a connection mean.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Payload of a binary frame, unmasked; `ends_frame` when the frame ends with it.
    Payload {
        /// The bytes.
        bytes: &'a [u8],
        /// Whether they are the frame's last.
        ends_frame: bool,
    },
    /// A WebSocket ping; answer with [`encode_pong`].
    Ping(Vec<u8>),
    /// The peer closes: its code and text.
    Close {
        /// RFC 6455 status, 1005 if none was given.
        code: u16,
        /// Its explanation.
        text: String,
    },
}

/// Reads frames out of received bytes, wherever those are cut.
#[derive(Debug)]
pub struct Decoder {
    side: Side,
    /// A header, or a control frame, of which only a part has come.
    partial: [u8; 14 + CONTROL_MAX],
    partial_len: usize,
    /// Bytes of the current binary frame still to come.
    remaining: usize,
    mask: [u8; 4],
    mask_at: usize,
}

struct Header {
    opcode: u8,
    len: usize,
    mask: [u8; 4],
    header_len: usize,
}

impl Decoder {
    /// A decoder for what the peer of `side` sends.
    #[must_use]
    pub fn new(side: Side) -> Self {
        Self { side, partial: [0; 14 + CONTROL_MAX], partial_len: 0, remaining: 0, mask: [0; 4], mask_at: 0 }
    }

    /// The next piece at the front of `input`, which advances past it; `None` when `input` is used up.
    ///
    /// # Errors
    /// Framing is lost; the connection must be closed.
    pub fn next_piece<'a>(&mut self, input: &mut &'a mut [u8]) -> Result<Option<Piece<'a>>, FrameError> {
        loop {
            if self.remaining > 0 {
                return Ok(self.next_payload(input));
            }
            if input.is_empty() {
                return Ok(None);
            }
            let Some(header) = self.next_header(input)? else { return Ok(None) };
            if header.opcode == OP_BINARY {
                self.partial_len = 0;
                self.remaining = header.len;
                self.mask = header.mask;
                self.mask_at = 0;
                if header.len == 0 {
                    return Ok(Some(Piece::Payload { bytes: &[], ends_frame: true }));
                }
                continue;
            }
            let whole = header.header_len + header.len;
            if !self.top_up(input, whole) {
                return Ok(None);
            }
            self.partial_len = 0;
            let payload = &mut self.partial[header.header_len..whole];
            unmask(payload, header.mask, 0);
            match header.opcode {
                OP_PING => return Ok(Some(Piece::Ping(payload.to_vec()))),
                OP_CLOSE => return Ok(Some(close_piece(payload))),
                _ => {}
            }
        }
    }

    /// Whether the bytes so far end between two frames.
    #[must_use]
    pub fn is_between_frames(&self) -> bool {
        self.remaining == 0 && self.partial_len == 0
    }

    fn next_payload<'a>(&mut self, input: &mut &'a mut [u8]) -> Option<Piece<'a>> {
        if input.is_empty() {
            return None;
        }
        let (bytes, rest) = core::mem::take(input).split_up_to(self.remaining);
        *input = rest;
        if self.mask != [0; 4] {
            unmask(bytes, self.mask, self.mask_at);
            self.mask_at = (self.mask_at + bytes.len()) % 4;
        }
        self.remaining -= bytes.len();
        Some(Piece::Payload { bytes, ends_frame: self.remaining == 0 })
    }

    /// The header at the front; consumes it from `input` into `partial`. `None` when more bytes must come.
    fn next_header(&mut self, input: &mut &mut [u8]) -> Result<Option<Header>, FrameError> {
        if !self.top_up(input, 2) {
            return Ok(None);
        }
        let (first, second) = (self.partial[0], self.partial[1]);
        let opcode = first & 0x0f;
        if first & 0xf0 != FIN || !matches!(opcode, OP_BINARY | OP_CLOSE | OP_PING | OP_PONG) {
            return Err(FrameError::Unsupported { first });
        }
        let masked = second & MASKED != 0;
        if masked != (self.side == Side::Acceptor) {
            return Err(FrameError::Masking);
        }
        let length_len = match second & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let header_len = 2 + length_len + if masked { 4 } else { 0 };
        if !self.top_up(input, header_len) {
            return Ok(None);
        }
        let announced = match length_len {
            0 => u64::from(second & 0x7f),
            length_len => self.partial[2..2 + length_len].iter().fold(0, |len, byte| len << 8 | u64::from(*byte)),
        };
        let len_max = if opcode == OP_BINARY { FRAME_ACCEPT_MAX } else { CONTROL_MAX };
        let len = usize::try_from(announced).ok().filter(|len| *len <= len_max);
        let len = len.ok_or(FrameError::TooLong { announced })?;
        let mut mask = [0; 4];
        if masked {
            mask.copy_from_slice(&self.partial[header_len - 4..header_len]);
        }
        Ok(Some(Header { opcode, len, mask, header_len }))
    }

    /// Moves bytes from `input` until `partial` holds `want`; whether it does.
    fn top_up(&mut self, input: &mut &mut [u8], want: usize) -> bool {
        if self.partial_len < want {
            let (bytes, rest) = core::mem::take(input).split_up_to(want - self.partial_len);
            self.partial[self.partial_len..self.partial_len + bytes.len()].copy_from_slice(bytes);
            self.partial_len += bytes.len();
            *input = rest;
        }
        self.partial_len >= want
    }
}

/// Splitting at most as far as the slice reaches.
trait SplitUpTo<'a> {
    fn split_up_to(self, at: usize) -> (&'a mut [u8], &'a mut [u8]);
}

impl<'a> SplitUpTo<'a> for &'a mut [u8] {
    #[inline]
    fn split_up_to(self, at: usize) -> (&'a mut [u8], &'a mut [u8]) {
        let at = at.min(self.len());
        self.split_at_mut(at)
    }
}

fn close_piece(payload: &[u8]) -> Piece<'static> {
    match payload {
        [high, low, text @ ..] => {
            let text = String::from_utf8_lossy(text).into_owned();
            Piece::Close { code: u16::from_be_bytes([*high, *low]), text }
        }
        _ => Piece::Close { code: 1005, text: String::new() },
    }
}

fn unmask(bytes: &mut [u8], mask: [u8; 4], at: usize) {
    for (offset, byte) in bytes.iter_mut().enumerate() {
        *byte ^= mask[(at + offset) % 4];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All payload that `bytes`, cut into pieces of `cut`, hold; with `|` at each frame's end.
    fn decode(side: Side, bytes: &[u8], cut: usize) -> Result<Vec<u8>, FrameError> {
        let mut decoder = Decoder::new(side);
        let mut seen = Vec::new();
        for piece in bytes.chunks(cut) {
            let mut piece = piece.to_vec();
            let mut input = piece.as_mut_slice();
            loop {
                match decoder.next_piece(&mut input)? {
                    Some(Piece::Payload { bytes, ends_frame }) => {
                        seen.extend_from_slice(bytes);
                        seen.extend_from_slice(if ends_frame { b"|" } else { b"" });
                    }
                    Some(Piece::Ping(bytes)) => seen.extend([b"ping ", bytes.as_slice(), b"|"].concat()),
                    Some(Piece::Close { code, text }) => seen.extend(format!("close {code} {text}|").as_bytes()),
                    None => break,
                }
            }
        }
        Ok(seen)
    }

    #[test]
    fn frames_survive_any_cut() {
        let long = vec![b'x'; 70_000 - 5_000];
        for (ours, theirs) in [(Side::Dialer, Side::Acceptor), (Side::Acceptor, Side::Dialer)] {
            let mut bytes = encode_binary(ours, b"hello");
            bytes.extend(encode_binary(ours, b""));
            bytes.extend(encode_whole(OP_PING, ours, b"are you there"));
            bytes.extend(encode_binary(ours, &long));
            bytes.extend(encode_close(ours, 1008, "not authenticated"));
            let expected =
                [b"hello||ping are you there|".as_slice(), &long, b"|close 1008 not authenticated|"].concat();
            for cut in [1, 2, 3, 5, 7, 64, 1_000, 1_000_000] {
                assert_eq!(decode(theirs, &bytes, cut).as_ref(), Ok(&expected), "cut {cut}");
            }
        }
    }

    #[test]
    fn golden_bytes() {
        assert_eq!(encode_binary(Side::Acceptor, b"ab"), [0x82, 2, b'a', b'b']);
        assert_eq!(encode_binary(Side::Dialer, b"ab"), [0x82, 0x82, 0, 0, 0, 0, b'a', b'b']);
        assert_eq!(encode_binary(Side::Acceptor, &[7; 126])[..4], [0x82, 126, 0, 126]);
        assert_eq!(encode_close(Side::Acceptor, 1008, "no"), [0x88, 4, 0x03, 0xf0, b'n', b'o']);
    }

    #[test]
    fn masked_bytes_of_a_library_are_read() {
        // RFC 6455, section 5.7: a masked "Hello", here as a binary frame.
        let bytes = [0x82, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
        for cut in 1..=bytes.len() {
            assert_eq!(decode(Side::Acceptor, &bytes, cut).as_deref(), Ok(b"Hello|".as_slice()));
        }
    }

    #[test]
    fn bad_frames_are_refused() {
        let cases: [(&[u8], Side, FrameError); 6] = [
            (&[0x81, 0x01, 0x61], Side::Dialer, FrameError::Unsupported { first: 0x81 }),
            (&[0x02, 0x01, 0x61], Side::Dialer, FrameError::Unsupported { first: 0x02 }),
            (&[0x82, 0x81, 0, 0, 0, 0, 0x61], Side::Dialer, FrameError::Masking),
            (&[0x82, 0x01, 0x61], Side::Acceptor, FrameError::Masking),
            (&[0x82, 127, 0, 0, 0, 1, 0x9e, 0, 0, 0], Side::Dialer, FrameError::TooLong { announced: 0x1_9e00_0000 }),
            (&[0x89, 126, 0, 126], Side::Dialer, FrameError::TooLong { announced: 126 }),
        ];
        for (bytes, side, error) in cases {
            assert_eq!(decode(side, bytes, 1), Err(error), "{bytes:02x?}");
        }
    }

    #[test]
    fn lengths_at_their_borders() {
        for (ours, theirs, mask) in [(Side::Dialer, Side::Acceptor, 4), (Side::Acceptor, Side::Dialer, 0)] {
            for (len, header_len) in [(0, 2), (125, 2), (126, 4), (127, 4), (255, 4), (256, 4), (FRAME_PAYLOAD_MAX, 4)]
            {
                let payload: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
                let bytes = encode_binary(ours, &payload);
                assert_eq!(bytes.len(), header_len + mask + len, "{len}");
                let seen = decode(theirs, &bytes, 1_000);
                assert_eq!(seen, Ok([payload.as_slice(), b"|"].concat()), "{len}");
            }
            // Eight bytes of length are read too, as another program may write them.
            for (len, fits) in [(5, true), (FRAME_ACCEPT_MAX, true), (FRAME_ACCEPT_MAX + 1, false)] {
                let announced = len as u64;
                let mut bytes = vec![0x82, if mask > 0 { 0xff } else { 127 }];
                bytes.extend(announced.to_be_bytes());
                bytes.resize(bytes.len() + mask + len, 0);
                let expected =
                    if fits { Ok([&vec![0; len][..], b"|"].concat()) } else { Err(FrameError::TooLong { announced }) };
                assert_eq!(decode(theirs, &bytes, 1_000), expected, "{len}");
            }
        }
    }

    #[test]
    fn control_frames_come_whole_and_pongs_are_passed_over() {
        for cut in [1, 3, 1_000] {
            let longest = [7; CONTROL_MAX];
            let mut bytes = encode_whole(OP_PING, Side::Acceptor, &longest);
            bytes.extend(encode_pong(Side::Acceptor, b"nobody asked"));
            bytes.extend(encode_binary(Side::Acceptor, b"ab"));
            bytes.extend([0x88, 0]);
            bytes.extend([0x88, 1, 9]);
            let expected = [b"ping ", &longest[..], b"|ab|close 1005 |close 1005 |"].concat();
            assert_eq!(decode(Side::Dialer, &bytes, cut), Ok(expected), "cut {cut}");
        }
        assert_eq!(encode_pong(Side::Acceptor, b"hi"), [0x8a, 2, b'h', b'i']);
        for (text, len) in [("x".repeat(123), 125), ("x".repeat(124), 125), ("ä".repeat(100), 124)] {
            let bytes = encode_close(Side::Acceptor, 1000, &text);
            assert_eq!((usize::from(bytes[1]), bytes.len()), (len, 2 + len));
            let seen = decode(Side::Dialer, &bytes, 1_000).expect("a frame");
            let seen = str::from_utf8(&seen).expect("cut between characters");
            assert!(seen.strip_prefix("close 1000 ").is_some_and(|told| text.starts_with(told.trim_end_matches('|'))));
        }
    }

    #[test]
    fn between_frames_is_where_none_has_begun() {
        let bytes = [encode_binary(Side::Dialer, b"abc"), encode_whole(OP_PING, Side::Dialer, b"hi")].concat();
        let mut decoder = Decoder::new(Side::Acceptor);
        assert!(decoder.is_between_frames());
        for (at, byte) in bytes.iter().enumerate() {
            let mut piece = [*byte];
            let mut input = piece.as_mut_slice();
            while decoder.next_piece(&mut input).expect("frames").is_some() {}
            assert_eq!(decoder.is_between_frames(), at == 8 || at + 1 == bytes.len(), "after byte {at}");
        }
    }

    #[test]
    fn a_segment_gives_its_buffer_back_and_starts_empty() {
        let mut segment = Segment::new(vec![9; 1_000]);
        assert_eq!(segment.payload_len(), 0);
        segment.payload_mut().extend_from_slice(b"ab");
        assert_eq!(segment.payload_len(), 2);
        segment.seal(Side::Acceptor);
        assert_eq!(segment.as_bytes(), encode_binary(Side::Acceptor, b"ab"));
        assert!(segment.into_buffer().capacity() >= 1_000);
        assert_eq!(Segment::default().payload_len(), 0);
    }

    #[test]
    fn errors_say_what_was_wrong() {
        let cases = [
            (FrameError::TooLong { announced: 200_000 }, "a frame announces 200000 bytes; at most 131072 are accepted"),
            (FrameError::Unsupported { first: 0x01 }, "a frame begins with 0x01; only whole binary frames are spoken"),
            (FrameError::Masking, "a frame is masked where it must not be, or the other way round"),
        ];
        for (error, text) in cases {
            assert_eq!(error.to_string(), text);
        }
    }
}
