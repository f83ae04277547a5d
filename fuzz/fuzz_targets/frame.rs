//! Frames: the same pieces wherever the bytes are cut, and what was written is read again.
#![no_main]

use ashlar_grid::frame::{
    Decoder, FRAME_PAYLOAD_MAX, FrameError, Piece, Segment, Side, encode_binary, encode_close, encode_pong,
};
use libfuzzer_sys::arbitrary::{self, Arbitrary};

/// What a frame meant, whole.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Meaning {
    Payload(Vec<u8>),
    Ping(Vec<u8>),
    Close(u16, String),
}

/// A frame that one of our servers writes.
#[derive(Debug, Arbitrary)]
enum Written {
    Binary(Vec<u8>),
    /// A long payload of this many bytes, in a segment.
    Long(u16, u8),
    Pong(Vec<u8>),
    Close(u16, String),
}

#[derive(Debug, Arbitrary)]
struct Input {
    dialer: bool,
    cuts: Vec<u16>,
    written: Vec<Written>,
    /// Masks other than the zero key, as another implementation uses.
    mask: [u8; 4],
    noise: Vec<u8>,
}

/// What `bytes` mean to `side` when they come in pieces of `cuts`: whole frames, the beginning of one, or an error.
fn read(side: Side, bytes: &[u8], cuts: &[u16]) -> (Vec<Meaning>, Vec<u8>, Option<FrameError>) {
    let mut decoder = Decoder::new(side);
    let (mut seen, mut open) = (Vec::new(), Vec::new());
    let mut bytes = bytes.to_vec();
    let mut rest = bytes.as_mut_slice();
    let mut cuts = cuts.iter().cycle();
    while !rest.is_empty() {
        let len = cuts.next().map_or(rest.len(), |cut| usize::from(*cut) + 1).min(rest.len());
        let (mut piece, later) = rest.split_at_mut(len);
        loop {
            match decoder.next_piece(&mut piece) {
                Ok(None) => break,
                Ok(Some(Piece::Payload { bytes, ends_frame })) => {
                    open.extend_from_slice(bytes);
                    if ends_frame {
                        seen.push(Meaning::Payload(core::mem::take(&mut open)));
                    }
                }
                Ok(Some(Piece::Ping(bytes))) => seen.push(Meaning::Ping(bytes)),
                Ok(Some(Piece::Close { code, text })) => seen.push(Meaning::Close(code, text)),
                Err(error) => return (seen, open, Some(error)),
            }
        }
        assert!(piece.is_empty(), "a piece is used up");
        rest = later;
    }
    assert!(open.is_empty() || !decoder.is_between_frames());
    (seen, open, None)
}

/// Writes one frame; what it means to its reader, if anything.
fn write(side: Side, written: &Written, mask: [u8; 4], out: &mut Vec<u8>) -> Option<Meaning> {
    let start = out.len();
    let meaning = match written {
        Written::Binary(bytes) => {
            let bytes = &bytes[..bytes.len().min(FRAME_PAYLOAD_MAX)];
            out.extend(encode_binary(side, bytes));
            Some(Meaning::Payload(bytes.to_vec()))
        }
        Written::Long(len, byte) => {
            let mut segment = Segment::new(vec![1; 20]);
            segment.payload_mut().extend(core::iter::repeat_n(*byte, usize::from(*len)));
            segment.seal(side);
            out.extend_from_slice(segment.as_bytes());
            Some(Meaning::Payload(vec![*byte; usize::from(*len)]))
        }
        Written::Pong(bytes) => {
            out.extend(encode_pong(side, &bytes[..bytes.len().min(125)]));
            None
        }
        Written::Close(code, text) => {
            out.extend(encode_close(side, *code, text));
            let fits = text.char_indices().map(|(at, char)| at + char.len_utf8()).take_while(|end| *end <= 123).last();
            Some(Meaning::Close(*code, text[..fits.unwrap_or(0)].to_owned()))
        }
    };
    if side == Side::Dialer {
        set_mask(&mut out[start..], mask);
    }
    meaning
}

/// Masks a frame that was written with the zero key.
fn set_mask(frame: &mut [u8], mask: [u8; 4]) {
    let at = if frame[1] & 0x7f == 126 { 4 } else { 2 };
    frame[at..at + 4].copy_from_slice(&mask);
    frame[at + 4..].iter_mut().zip(mask.into_iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
}

libfuzzer_sys::fuzz_target!(|input: Input| {
    let (from, to) = if input.dialer { (Side::Dialer, Side::Acceptor) } else { (Side::Acceptor, Side::Dialer) };
    let mut bytes = Vec::new();
    let meant: Vec<_> =
        input.written.iter().filter_map(|written| write(from, written, input.mask, &mut bytes)).collect();
    assert_eq!(read(to, &bytes, &input.cuts), (meant.clone(), Vec::new(), None));
    bytes.extend_from_slice(&input.noise);
    let whole = read(to, &bytes, &[]);
    assert_eq!(read(to, &bytes, &input.cuts), whole);
    // Byte by byte only where that is quick.
    if bytes.len() < 2_000 {
        assert_eq!(read(to, &bytes, &[0]), whole);
    }
    assert!(whole.0.starts_with(&meant));
});
