//! The transmission phase: requests and replies.

use bytes::Bytes;

use super::super::header::{Header, Rules};
use super::super::protocol::{ErrorCode, command, command_flag};
use super::super::reply::{Encoder, StatusBounds};
use super::super::request::{Io, IoRequest, Reply, Request, RequestId};
use super::{End, Session, State};

impl Session {
    /// The owner's answer to [`Request::Io`], in any order. What is answered here is promised to the client.
    ///
    /// # Panics
    /// When the request is not in flight, or the answer does not fit it.
    pub fn handle_reply(&mut self, id: RequestId, reply: Reply) {
        let header = self.in_flight.remove(&id).expect("a request is answered once");
        self.held_bytes -= header.held_len();
        let export_size = self.export.as_ref().expect("requests are let in on an export").size;
        let bounds = StatusBounds { export_size, spans_max: self.limits.spans_max };
        self.encoder(&header).push_reply(reply, bounds);
        self.resume_held();
    }

    pub(super) fn handle_request_header(&mut self, message: &[u8]) {
        let framing = self.negotiated.framing;
        let Some(header) = Header::decode(framing, message) else { return self.end_with(End::BadMagic) };
        if header.command == command::DISC {
            self.requests.push_back(Request::Disconnect);
            return self.end_with(End::Disconnected);
        }
        match (header.check(&self.rules()), header.payload_len(framing)) {
            (Ok(()), _) => self.let_in(header),
            (Err(code), 0) => self.refuse(&header, code),
            (Err(_), len) if len > self.limits.skip_bytes_max => self.end_with(End::TooLong),
            (Err(code), len) => self.state = State::SkipPayload(header, len, code),
        }
    }

    /// The payload of a write is complete.
    pub(super) fn handle_payload(&mut self) {
        let State::Payload(header, data) = std::mem::replace(&mut self.state, State::RequestHeader) else {
            unreachable!("a payload was being received")
        };
        self.start(header, Io::Write(Bytes::from(data)));
    }

    /// Lets a request in that had to wait for room, if there is room now.
    pub(super) fn resume_held(&mut self) {
        let State::Held(header) = self.state else { return };
        if self.is_shutting_down {
            return match header.payload_len(self.negotiated.framing) {
                0 => self.refuse(&header, ErrorCode::Shutdown),
                len => self.state = State::SkipPayload(header, len, ErrorCode::Shutdown),
            };
        }
        self.let_in(header);
    }

    /// Answers a request that does not reach the owner, and reads the next.
    pub(super) fn refuse(&mut self, header: &Header, code: ErrorCode) {
        self.state = State::RequestHeader;
        self.encoder(header).push_error(code, None);
    }

    fn rules(&self) -> Rules<'_> {
        Rules {
            export: self.export.as_ref().expect("requests are read after an export was chosen"),
            framing: self.negotiated.framing,
            has_allocation: self.has_allocation,
            payload_bytes_max: self.limits.payload_bytes_max,
            is_shutting_down: self.is_shutting_down,
        }
    }

    fn encoder<'a>(&'a mut self, header: &'a Header) -> Encoder<'a> {
        Encoder { framing: self.negotiated.framing, header, output: &mut self.output }
    }

    /// Lets a valid request in, or keeps it until its payload has room.
    fn let_in(&mut self, header: Header) {
        let len = header.held_len();
        let kept = self.held_bytes + self.output.len();
        let has_room = len == 0 || kept == 0 || kept + len <= self.limits.held_bytes_max;
        if !has_room {
            self.state = State::Held(header);
            return;
        }
        self.state = State::RequestHeader;
        self.held_bytes += len;
        let io = match header.command {
            command::READ => Io::Read,
            command::WRITE => {
                self.state = State::Payload(header, Vec::new());
                return;
            }
            command::FLUSH => Io::Flush,
            command::TRIM => Io::Trim,
            command::CACHE => Io::Cache,
            command::WRITE_ZEROES => Io::WriteZeroes {
                may_punch: !header.has_flag(command_flag::NO_HOLE),
                fast_only: header.has_flag(command_flag::FAST_ZERO),
            },
            command::BLOCK_STATUS => Io::Status,
            _ => unreachable!("unknown commands were refused"),
        };
        self.start(header, io);
    }

    fn start(&mut self, header: Header, io: Io) {
        let id = RequestId(self.next_id);
        self.next_id += 1;
        let Header { offset, len, .. } = header;
        let fua = header.has_flag(command_flag::FUA);
        self.in_flight.insert(id, header);
        self.requests.push_back(Request::Io(IoRequest { id, offset, len, fua, io }));
    }
}
