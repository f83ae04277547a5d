//! Replies of the transmission phase as bytes.

use super::header::{Framing, Header};
use super::output::Output;
use super::protocol::{
    EXTENDED_REPLY_MAGIC, ErrorCode, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, allocation, chunk, command,
    command_flag,
};
use super::request::{Reply, Span};
use crate::piece::Piece;

/// Writes the replies to one request.
pub(super) struct Encoder<'a> {
    pub(super) framing: Framing,
    pub(super) header: &'a Header,
    pub(super) output: &'a mut Output,
}

/// The end of the content that spans may describe, and how many may.
#[derive(Debug, Clone, Copy)]
pub(super) struct StatusBounds {
    pub(super) export_size: u64,
    pub(super) spans_max: usize,
}

impl Encoder<'_> {
    /// The owner's reply.
    ///
    /// # Panics
    /// When the reply does not fit the request: it comes from this program.
    pub(super) fn push_reply(&mut self, reply: Reply, bounds: StatusBounds) {
        let command = self.header.command;
        match reply {
            Reply::Done => {
                let has_content = matches!(command, command::READ | command::BLOCK_STATUS);
                assert!(!has_content, "a read and a query of status are answered with content");
                self.push_done();
            }
            Reply::Data(pieces) => {
                assert_eq!(command, command::READ, "only a read is answered with data");
                let len: u64 = pieces.iter().map(Piece::len).sum();
                assert_eq!(len, self.header.len, "the pieces make up the whole range");
                assert!(!pieces.iter().any(Piece::is_empty), "no piece is empty");
                self.push_data(pieces);
            }
            Reply::Status(spans) => {
                assert_eq!(command, command::BLOCK_STATUS, "only a query of status is answered with spans");
                self.push_status(&spans, bounds);
            }
            Reply::Failed { code, offset } => {
                let is_fast = self.header.has_flag(command_flag::FAST_ZERO);
                assert!(code != ErrorCode::NotSupported || is_fast, "only fast zeroes may be unsupported");
                self.push_error(code, offset);
            }
        }
    }

    /// The session's own refusal, or the owner's.
    pub(super) fn push_error(&mut self, code: ErrorCode, offset: Option<u64>) {
        let needs_chunk = matches!(self.header.command, command::READ | command::BLOCK_STATUS);
        match (self.framing, offset) {
            (Framing::Simple, _) => self.push_simple(code.number()),
            (Framing::Structured, None) if !needs_chunk => self.push_simple(code.number()),
            (_, None) => {
                self.push_chunk(chunk::FLAG_DONE, chunk::ERROR, 6);
                self.output.push(&code.number().to_be_bytes());
                self.output.push(&[0, 0]);
            }
            (_, Some(offset)) => {
                let end = self.header.offset.saturating_add(self.header.len);
                assert!((self.header.offset..end).contains(&offset), "an error lies within its request");
                self.push_chunk(chunk::FLAG_DONE, chunk::ERROR_OFFSET, 14);
                self.output.push(&code.number().to_be_bytes());
                self.output.push(&[0, 0]);
                self.output.push(&offset.to_be_bytes());
            }
        }
    }

    fn push_done(&mut self) {
        match self.framing {
            Framing::Simple | Framing::Structured => self.push_simple(0),
            Framing::Extended => self.push_chunk(chunk::FLAG_DONE, chunk::NONE, 0),
        }
    }

    fn push_simple(&mut self, error: u32) {
        self.output.push(&SIMPLE_REPLY_MAGIC.to_be_bytes());
        self.output.push(&error.to_be_bytes());
        self.output.push(&self.header.cookie.to_be_bytes());
    }

    fn push_chunk(&mut self, flags: u16, kind: u16, len: u64) {
        match self.framing {
            Framing::Simple => unreachable!("simple replies have no chunks"),
            Framing::Structured => {
                self.output.push(&STRUCTURED_REPLY_MAGIC.to_be_bytes());
                self.output.push(&flags.to_be_bytes());
                self.output.push(&kind.to_be_bytes());
                self.output.push(&self.header.cookie.to_be_bytes());
                let len = u32::try_from(len).expect("payloads are far below 4 GiB");
                self.output.push(&len.to_be_bytes());
            }
            Framing::Extended => {
                self.output.push(&EXTENDED_REPLY_MAGIC.to_be_bytes());
                self.output.push(&flags.to_be_bytes());
                self.output.push(&kind.to_be_bytes());
                self.output.push(&self.header.cookie.to_be_bytes());
                self.output.push(&self.header.offset.to_be_bytes());
                self.output.push(&len.to_be_bytes());
            }
        }
    }

    fn push_data(&mut self, pieces: Vec<Piece>) {
        if self.framing == Framing::Simple {
            self.push_simple(0);
            return self.push_pieces(pieces);
        }
        if self.header.has_flag(command_flag::DF) {
            self.push_chunk(chunk::FLAG_DONE, chunk::OFFSET_DATA, 8 + self.header.len);
            self.output.push(&self.header.offset.to_be_bytes());
            return self.push_pieces(pieces);
        }
        let (mut offset, mut left) = (self.header.offset, pieces.len());
        for piece in pieces {
            left -= 1;
            let flags = if left == 0 { chunk::FLAG_DONE } else { 0 };
            let len = piece.len();
            match piece {
                Piece::Data(bytes) => {
                    self.push_chunk(flags, chunk::OFFSET_DATA, 8 + len);
                    self.output.push(&offset.to_be_bytes());
                    self.output.push_payload(bytes);
                }
                Piece::Stored(_) => unreachable!("a read has content"),
                Piece::Zeroes(len) => {
                    self.push_chunk(flags, chunk::OFFSET_HOLE, 12);
                    self.output.push(&offset.to_be_bytes());
                    let len = u32::try_from(len).expect("a read is far below 4 GiB");
                    self.output.push(&len.to_be_bytes());
                }
            }
            offset += len;
        }
    }

    fn push_pieces(&mut self, pieces: Vec<Piece>) {
        for piece in pieces {
            match piece {
                Piece::Data(bytes) => self.output.push_payload(bytes),
                Piece::Zeroes(len) => self.output.push_zeroes(len),
                Piece::Stored(_) => unreachable!("a read has content"),
            }
        }
    }

    fn push_status(&mut self, spans: &[Span], bounds: StatusBounds) {
        let spans = self.clip(spans, bounds);
        assert!(!spans.is_empty(), "a status has at least one span");
        let count = spans.len() as u64;
        match self.framing {
            Framing::Simple => unreachable!("no context can be chosen without structured replies"),
            Framing::Structured => {
                self.push_chunk(chunk::FLAG_DONE, chunk::BLOCK_STATUS, 4 + 8 * count);
                self.output.push(&allocation::ID.to_be_bytes());
                for span in spans {
                    let len = u32::try_from(span.len).expect("clipped to 32 bits");
                    self.output.push(&len.to_be_bytes());
                    self.output.push(&span.flags().to_be_bytes());
                }
            }
            Framing::Extended => {
                self.push_chunk(chunk::FLAG_DONE, chunk::BLOCK_STATUS_EXT, 8 + 16 * count);
                self.output.push(&allocation::ID.to_be_bytes());
                let count = u32::try_from(count).expect("spans are limited");
                self.output.push(&count.to_be_bytes());
                for span in spans {
                    self.output.push(&span.len.to_be_bytes());
                    self.output.push(&u64::from(span.flags()).to_be_bytes());
                }
            }
        }
    }

    /// The spans that the protocol allows in this reply: as many as are needed to cover the request, all but the last
    /// within it, none behind the export's end. Where lengths have 32 bits, a longer span ends the list.
    fn clip(&self, spans: &[Span], bounds: StatusBounds) -> Vec<Span> {
        // The greatest multiple of the greatest smallest block.
        const COMPACT_MAX: u64 = (u32::MAX - 65_535) as u64;
        let is_one = self.header.has_flag(command_flag::REQ_ONE);
        let end = if is_one { self.header.offset + self.header.len } else { bounds.export_size };
        let (mut at, request_end) = (self.header.offset, self.header.offset + self.header.len);
        let mut clipped = Vec::new();
        let count_max = if is_one { 1 } else { bounds.spans_max };
        for span in spans.iter().take(count_max).take_while(|span| span.len > 0) {
            let mut len = span.len.min(end - at);
            let is_cut = self.framing == Framing::Structured && len > COMPACT_MAX;
            if is_cut {
                len = COMPACT_MAX;
            }
            clipped.push(Span { len, ..*span });
            at += len;
            if is_cut || at >= request_end {
                break;
            }
        }
        clipped
    }
}
